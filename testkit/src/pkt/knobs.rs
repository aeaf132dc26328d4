//! What a script's shell commands mean to the back end in memory.
//!
//! Scripts of others set up their machine with `sysctl` and programs of their suite. Invariant: a
//! setting that Floodwall has is set; one that changes nothing of what a script sees is taken for
//! granted; anything else fails the script, and says so.

use floodwall_tcp::{Algorithm, Settings};

/// Settings of Linux and of FreeBSD that need nothing here: they name what Floodwall does anyway,
/// or tune what scripts do not see.
const GRANTED: &[&str] = &[
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_dsack",
    "net.ipv4.tcp_fack",
    "net.ipv4.tcp_recovery",
    "net.ipv4.tcp_early_retrans",
    "net.ipv4.tcp_frto",
    "net.ipv4.tcp_reordering",
    "net.ipv4.tcp_min_tso_segs",
    "net.ipv4.tcp_tso_win_divisor",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_fastopen",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_syn_retries",
    "net.ipv4.tcp_synack_retries",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_invalid_ratelimit",
    "net.core.default_qdisc",
    "kern.ipc.maxsockbuf",
    "net.inet.tcp.hostcache.purgenow",
    "net.inet.tcp.recvspace",
    "net.inet.tcp.sendspace",
    "net.inet.tcp.blackhole",
];

/// What commands have set so far.
#[derive(Clone, Debug)]
pub(super) struct Knobs {
    timestamps: bool,
    sack: bool,
    scale: bool,
    ecn: bool,
    algorithm: Algorithm,
}

impl Default for Knobs {
    fn default() -> Self {
        let (timestamps, sack, scale, ecn) = (true, true, true, false);
        Self { timestamps, sack, scale, ecn, algorithm: Algorithm::default() }
    }
}

impl Knobs {
    /// What a new socket begins with.
    pub(super) fn settings(&self, buffer: u32) -> Settings {
        Settings {
            receive_bytes: buffer,
            send_bytes: buffer,
            timestamps: self.timestamps,
            sack: self.sack,
            window_scale: self.scale,
            ecn: self.ecn,
            algorithm: self.algorithm,
            ..Settings::default()
        }
    }

    /// Carries out a command; several may stand one after another.
    pub(super) fn command(&mut self, command: &str) -> Result<(), String> {
        for one in command.split(['\n', ';']).flat_map(|line| line.split("&&")) {
            let mut words = one.split_whitespace();
            let program = words.next().unwrap_or_default();
            let name = program.rsplit('/').next().unwrap_or_default();
            match name {
                "" | "true" | "sleep" | "defaults.sh" | "set_sysctls_restore.py" | "rm" => {}
                "sysctl" | "set_sysctls.py" => self.sysctls(words)?,
                _ => return Err(format!("`{one}` means nothing to the back end in memory")),
            }
        }
        Ok(())
    }

    fn sysctls<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> Result<(), String> {
        let words = words.filter(|word| !word.starts_with('-'));
        for setting in words.filter(|word| word.contains('=')) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            self.set(name.trim_start_matches("/proc/sys/"), value.trim_matches('"'))?;
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let name = name.replace('/', ".");
        let is_on = value != "0";
        match name.as_str() {
            "net.ipv4.tcp_timestamps" => self.timestamps = is_on,
            "net.ipv4.tcp_sack" | "net.inet.tcp.sack.enable" => self.sack = is_on,
            "net.ipv4.tcp_window_scaling" => self.scale = is_on,
            "net.inet.tcp.rfc1323" => (self.timestamps, self.scale) = (is_on, is_on),
            "net.ipv4.tcp_ecn" | "net.inet.tcp.ecn.enable" => self.ecn = value == "1",
            "net.ipv4.tcp_congestion_control" => {
                self.algorithm = match value {
                    "reno" => Algorithm::Reno,
                    "cubic" => Algorithm::Cubic,
                    _ => return Err(format!("there is no congestion controller `{value}`")),
                };
            }
            known if GRANTED.contains(&known) => {}
            _ => return Err(format!("the setting {name} means nothing to the back end in memory")),
        }
        Ok(())
    }
}
