//! What a script's shell commands mean to the back end in memory.
//!
//! Scripts of others set up their machine with `sysctl` and programs of their suite. Invariant: a
//! setting that Floodwall has is set; one that changes nothing of what a script sees is taken for
//! granted; one that requires what Floodwall refuses, or that is unknown, fails the script with a
//! message.

use std::time::Duration;

use floodwall_tcp::{Acknowledge, Algorithm, Keepalive, TcpSettings};

use super::memory::algorithm_of;
use super::profile::Profile;
use super::script::Script;

/// Settings of Linux and of FreeBSD that need nothing here, with any value: they tune what scripts
/// do not see, or what they see is compared wherever it shows.
const GRANTED: &[&str] = &[
    "net.core.default_qdisc",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_base_mss",
    "net.ipv4.tcp_comp_sack_delay_ns",
    "net.ipv4.tcp_comp_sack_nr",
    "net.ipv4.tcp_comp_sack_slack_ns",
    "net.ipv4.tcp_dsack",
    "net.ipv4.tcp_early_retrans",
    "net.ipv4.tcp_fack",
    "net.ipv4.tcp_fastopen",
    "net.ipv4.tcp_fastopen_key",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_frto",
    "net.ipv4.tcp_invalid_ratelimit",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_min_tso_segs",
    "net.ipv4.tcp_moderate_rcvbuf",
    // A path that loses large segments is looked for in any case; no window is taken back.
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_pacing_ca_ratio",
    "net.ipv4.tcp_pacing_ss_ratio",
    "net.ipv4.tcp_recovery",
    "net.ipv4.tcp_reordering",
    "net.ipv4.tcp_shrink_window",
    "net.ipv4.tcp_synack_retries",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_tso_rtt_log",
    "net.ipv4.tcp_tso_win_divisor",
    // A port in TIME-WAIT is used again after a second; less shows where a script connects.
    "net.ipv4.tcp_tw_reuse_delay",
    "net.inet.icmp.icmplim",
    "net.inet.tcp.delacktime",
    "net.inet.tcp.delayed_ack",
    // A SYN with FIN begins nothing where a listener is asked.
    "net.inet.tcp.drop_synfin",
    "net.inet.tcp.ecn.maxretries",
    "net.inet.tcp.fast_finwait2_recycle",
    "net.inet.tcp.hostcache.enable",
    "net.inet.tcp.hostcache.purgenow",
    "net.inet.tcp.icmp_may_rst",
    "net.inet.tcp.insecure_rst",
    "net.inet.tcp.insecure_syn",
    // A SYN keeps its options; where a script wants one without them, that shows.
    "net.inet.tcp.rexmit_drop_options",
    "net.inet.tcp.rexmit_slop",
    // What is lost is found by time in any case.
    "net.inet.tcp.rfc6675_pipe",
    "net.inet.tcp.sack.revised",
    // What a send buffer begins with; it grows.
    "net.inet.tcp.sendspace",
    "net.inet.tcp.syncache.rst_on_sock_fail",
    "net.inet.tcp.syncookies",
    "net.inet.tcp.tolerate_missing_ts",
    "net.inet.tcp.tso",
];
/// Settings that need nothing at the value that Floodwall has anyway, and are refused at another.
const ONLY: &[(&str, &str)] = &[
    ("net.ipv4.tcp_abort_on_overflow", "0"),
    ("net.ipv4.tcp_rfc1337", "1"),
    ("net.ipv4.tcp_rto_max_ms", "120000"),
    ("net.ipv4.tcp_tw_reuse", "1"),
    ("net.inet.tcp.blackhole", "0"),
    ("net.inet.tcp.initcwnd_segments", "10"),
    ("net.inet.tcp.syncookies_only", "0"),
    ("net.inet.tcp.rexmit_initial", "1000"),
    ("net.inet.tcp.pmtud_blackhole_detection", "0"),
];
/// Programs of the suites that put back or measure what is gone with the play anyway.
const IDLE: &[&str] = &["", "true", "sleep", "sync", "rm", "dd", "set_sysctls_restore.py"];

/// What commands have set so far.
#[derive(Clone, Debug)]
pub(super) struct Knobs {
    profile: Profile,
    timestamps: bool,
    sack: bool,
    scale: bool,
    /// ECN is requested; and agreed to where the peer requests it.
    ecn: (bool, bool),
    algorithm: Algorithm,
    /// Maximum bytes of buffers, from which the window scale follows.
    receive_most: u32,
    send_most: u32,
    /// An unused congestion window shrinks.
    restarts_slowly: bool,
    unsent_bytes: Option<u32>,
    syn_retries: Option<u8>,
    open_timeout: Option<Duration>,
    /// The initial value of a socket that requests it.
    keepalive: Keepalive,
    /// Bytes that a buffer has, which does not grow.
    receive_fixed: Option<u32>,
    /// The segment size that the route announces.
    mss: Option<u16>,
    /// Nothing that is sent arrives.
    is_cut: bool,
    /// Bytes of the link's largest packet, where a command has changed them.
    mtu: Option<u32>,
}

impl Knobs {
    /// What the system begins with that a script was written on.
    pub(super) fn of(script: &Script, buffer: u32) -> Self {
        let mut knobs = Self::new(script.profile(), buffer);
        if let Some(shift) = Profile::scale_of(script) {
            knobs.receive_most = 65_535_u32.checked_shl(shift.into()).unwrap_or(u32::MAX);
        }
        knobs
    }

    /// What a system of this profile begins with; `buffer`: what Floodwall's own scripts have.
    pub(super) fn new(profile: Profile, buffer: u32) -> Self {
        // Linux's are those of `defaults.sh`, which its scripts all run.
        let (receive_most, send_most, receive_fixed) = match profile {
            Profile::Own => (buffer, buffer, None),
            Profile::Linux => (15 << 20, 4 << 20, None),
            Profile::FreeBsd => (2 << 20, 2 << 20, Some(65_536)),
        };
        Self {
            profile,
            timestamps: true,
            sack: true,
            scale: true,
            ecn: (false, profile == Profile::FreeBsd),
            algorithm: Algorithm::default(),
            restarts_slowly: true,
            unsent_bytes: None,
            syn_retries: None,
            open_timeout: None,
            keepalive: match profile {
                Profile::FreeBsd => Keepalive { count: 8, ..Keepalive::default() },
                Profile::Own | Profile::Linux => Keepalive::default(),
            },
            receive_most,
            send_most,
            receive_fixed,
            mss: None,
            is_cut: false,
            mtu: None,
        }
    }

    /// What a new socket begins with.
    pub(super) fn settings(&self) -> TcpSettings {
        TcpSettings {
            // Where the profile is another's, the maximum gives the scale; what is fixed is set
            // once the connection is there.
            receive_bytes: self.receive_most,
            send_bytes: self.send_most,
            timestamps: self.timestamps,
            sack: self.sack,
            window_scale: self.scale,
            ecn: self.ecn.0,
            algorithm: self.algorithm,
            slow_start_after_idle: self.restarts_slowly,
            unsent_bytes: self.unsent_bytes,
            syn_retries: self.syn_retries,
            open_timeout: self.open_timeout,
            mss: self.mss,
            acknowledge: match self.profile {
                Profile::Own => Acknowledge::default(),
                Profile::Linux => Acknowledge::AtOnce,
                Profile::FreeBsd => Acknowledge::EverySecond,
            },
            ..TcpSettings::default()
        }
    }

    /// Whether a listener agrees to ECN where a peer requests it.
    pub(super) const fn answers_ecn(&self) -> bool {
        self.ecn.1
    }

    /// When a silent peer is probed, where a program enables keepalive.
    pub(super) const fn keepalive(&self) -> Keepalive {
        self.keepalive
    }

    /// The system that the script expects.
    pub(super) const fn profile(&self) -> Profile {
        self.profile
    }

    /// Bytes of a receive buffer that does not grow, where the system has such.
    pub(super) const fn receive_fixed(&self) -> Option<u32> {
        self.receive_fixed
    }

    /// Whether the queue of the interface drops all that is sent.
    pub(super) const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Bytes of the link's largest packet, where a command has changed them.
    pub(super) const fn mtu(&self) -> Option<u32> {
        self.mtu
    }

    /// Carries out a command; several may stand one after another.
    pub(super) fn command(&mut self, command: &str) -> Result<(), String> {
        let command = command.replace("\\\n", " ");
        for one in command.split(['\n', ';']).flat_map(|line| line.split("&&")) {
            let words = shell_words(one)?;
            let mut words = words.iter().map(String::as_str);
            let program = words.next().unwrap_or_default();
            let name = program.rsplit('/').next().unwrap_or_default();
            let arguments: Vec<&str> = words.clone().collect();
            match (name, arguments.as_slice()) {
                (name, _) if IDLE.contains(&name) => {}
                // It sets the profile, which is set already.
                ("defaults.sh", _) => {}
                (name, _) if name.starts_with("sysctl_restore") => {}
                ("sysctl" | "set_sysctls.py", _) => self.sysctls(words)?,
                // Nothing is remembered, and nothing is paced, in the first place.
                ("ip", ["tcp_metrics", "flush", ..]) => {}
                ("tc", ["qdisc", "add" | "replace", .., "pfifo" | "pfifo_fast" | "fq"]) => {}
                ("tc", ["qdisc", "add" | "replace", .., "pfifo", "limit", "0"]) => {
                    self.is_cut = true;
                }
                ("tc", ["qdisc", "del" | "delete", ..]) => self.is_cut = false,
                (
                    "ip",
                    ["route", "add" | "change", _, rest @ ..]
                    | ["-6", "route", "add" | "change", _, rest @ ..],
                ) => self.route(one, rest)?,
                ("ip", ["link", "set", "dev", _, "mtu", bytes]) => {
                    let bytes = bytes.parse().ok().filter(|bytes| (68..=65_535).contains(bytes));
                    self.mtu = Some(bytes.ok_or("an MTU is from 68 to 65535")?);
                }
                // Segments leave one by one in memory, and none is joined on its way in.
                ("ethtool", ["-K", ..]) => {}
                // Slow start ends by HyStart++ (RFC 9406), which shows where it does.
                ("echo", [_, ">", path])
                    if path.ends_with("/tcp_cubic/parameters/hystart_detect") => {}
                // It begins to count anew; what it counts is Linux's own, and refused.
                ("nstat", ["-n"]) => {}
                _ => {
                    let one = one.trim();
                    return Err(format!("`{one}` means nothing to the back end in memory"));
                }
            }
        }
        Ok(())
    }

    /// What a route says of connections. Its first window is not carried out: it shows where
    /// segments leave.
    fn route(&mut self, command: &str, words: &[&str]) -> Result<(), String> {
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = words.next();
            if *word == "mtu" && value == Some(&"lock") {
                value = words.next();
            }
            match (*word, value) {
                ("via" | "dev", Some(_)) => {}
                // Smaller than what is announced, no packet is larger than the route takes.
                ("mtu" | "initcwnd", Some(value)) if value.parse::<u32>().is_ok() => {}
                ("advmss", Some(value)) if value.parse::<u16>().is_ok() => {
                    self.mss = value.parse().ok();
                }
                _ => {
                    let command = command.trim();
                    return Err(format!("`{command}` means nothing to the back end in memory"));
                }
            }
        }
        Ok(())
    }

    fn sysctls<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> Result<(), String> {
        for setting in words.filter(|word| !word.starts_with('-')) {
            let Some((name, value)) = setting.split_once('=') else {
                return Err(format!("sysctl: `{setting}` is no NAME=VALUE"));
            };
            self.set(name.trim_start_matches("/proc/sys/"), value)?;
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let name = name.replace('/', ".");
        let is_on = value != "0";
        let number = |at: usize| {
            let word = value.split_whitespace().nth(at).and_then(shell_number);
            word.ok_or_else(|| format!("{name}: `{value}` has no number there"))
        };
        match name.as_str() {
            "net.ipv4.tcp_timestamps" => self.timestamps = is_on,
            "net.ipv4.tcp_sack" | "net.inet.tcp.sack.enable" => self.sack = is_on,
            "net.ipv4.tcp_window_scaling" => self.scale = is_on,
            "net.inet.tcp.rfc1323" => (self.timestamps, self.scale) = (is_on, is_on),
            "net.ipv4.tcp_ecn" if matches!(value, "3" | "4" | "5") => {
                return Err("accurate ECN (RFC 9768) is not supported".to_owned());
            }
            // Data in a SYN is taken without a cookie, or without a listener's consent.
            "net.ipv4.tcp_fastopen"
                if shell_number(value).is_some_and(|bits| bits & 0x600 != 0) =>
            {
                return Err("fast open (RFC 7413) is not supported".to_owned());
            }
            "net.ipv4.tcp_ecn" | "net.inet.tcp.ecn.enable" => {
                self.ecn = (value == "1", matches!(value, "1" | "2"));
            }
            "net.ipv4.tcp_slow_start_after_idle" => self.restarts_slowly = is_on,
            "net.ipv4.tcp_notsent_lowat" => {
                self.unsent_bytes = Some(number(0)?).filter(|bytes| *bytes != u32::MAX);
            }
            "net.ipv4.tcp_syn_retries" => self.syn_retries = u8::try_from(number(0)?).ok(),
            "net.inet.tcp.keepinit" => {
                self.open_timeout = Some(Duration::from_millis(number(0)?.into()));
            }
            "net.ipv4.tcp_keepalive_time" => {
                self.keepalive.idle = Duration::from_secs(number(0)?.into());
            }
            "net.ipv4.tcp_keepalive_intvl" => {
                self.keepalive.interval = Duration::from_secs(number(0)?.into());
            }
            "net.inet.tcp.keepidle" => {
                self.keepalive.idle = Duration::from_millis(number(0)?.into());
            }
            "net.inet.tcp.keepintvl" => {
                self.keepalive.interval = Duration::from_millis(number(0)?.into());
            }
            "net.ipv4.tcp_keepalive_probes" | "net.inet.tcp.keepcnt" => {
                self.keepalive.count = u8::try_from(number(0)?).unwrap_or(u8::MAX);
            }
            "net.ipv4.tcp_rmem" => self.receive_most = number(2)?,
            "net.ipv4.tcp_wmem" => self.send_most = number(2)?,
            "kern.ipc.maxsockbuf" => self.receive_most = number(0)?,
            "net.inet.tcp.recvspace" => self.receive_fixed = Some(number(0)?),
            "net.ipv4.tcp_congestion_control" | "net.inet.tcp.cc.algorithm" => {
                let known = algorithm_of(value);
                self.algorithm =
                    known.ok_or_else(|| format!("there is no congestion controller `{value}`"))?;
            }
            known if GRANTED.contains(&known) => {}
            known => match ONLY.iter().find(|(only, _)| *only == known) {
                Some((_, only)) if *only == value => {}
                Some((_, only)) => return Err(format!("{name}: there is {only} alone")),
                None => {
                    let why = "means nothing to the back end in memory";
                    return Err(format!("the setting {name} {why}"));
                }
            },
        }
        Ok(())
    }
}

/// A number, decimal or hexadecimal, or a product of numbers as a shell computes it:
/// `$((32*1024))`.
fn shell_number(word: &str) -> Option<u32> {
    let inner = word.strip_prefix("$((").and_then(|word| word.strip_suffix("))"));
    let parse = |word: &str| match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => word.parse(),
    };
    let mut factors = inner.unwrap_or(word).split('*').map(parse);
    factors.try_fold(1_u32, |product, factor| product.checked_mul(factor.ok()?))
}

/// The words of a command: blanks part them, but not inside of quotation marks; what goes to
/// nowhere (`> /dev/null 2>&1`) is left out.
fn shell_words(command: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in command.chars() {
        match (quote, c) {
            // A comment, up to the end.
            (None, '#') if word.is_empty() => break,
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None, c) if c.is_whitespace() => words.push(std::mem::take(&mut word)),
            (_, c) => word.push(c),
        }
    }
    words.push(word);
    if quote.is_some() {
        return Err(format!("`{}`: a quotation mark is not closed", command.trim()));
    }
    words.retain(|word| {
        !word.is_empty()
            && !matches!(word.as_str(), "/dev/null" | "2>&1" | ">/dev/null" | "2>/dev/null")
    });
    words.pop_if(|word| word == ">");
    Ok(words)
}

/// What a script requires of sockets: how many of them must be in a state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    pub(super) state: String,
    pub(super) count: u64,
    /// Only sockets that programs have; else also what no program has accepted.
    pub(super) of_programs: bool,
}

/// `sockstat … [| grep PROGRAM] | grep -c STATE | grep NUMBER`, or `grep " 0A " /proc/net/tcp…`,
/// which is about the one listener of a script. Nothing where the command is another.
///
/// # Errors
/// It is this command in a form that is not known.
pub(super) fn asked_of_sockets(command: &str) -> Result<Option<Asked>, String> {
    // Linux's table of sockets: whether at least one listens at this port.
    if command.contains("grep \" 0A \" /proc/net/tcp") {
        return Ok(Some(Asked { state: "LISTEN".to_owned(), count: 1, of_programs: true }));
    }
    let stages: Vec<Vec<&str>> =
        command.split('|').map(|stage| stage.split_whitespace().collect()).collect();
    if stages.first().and_then(|stage| stage.first()) != Some(&"sockstat") {
        return Ok(None);
    }
    let wrong = || format!("`{}`: this form of sockstat is not supported", command.trim());
    let (of_programs, rest) = match stages.as_slice() {
        [_, program, rest @ ..] if matches!(program.as_slice(), ["grep", _]) => (true, rest),
        [_, rest @ ..] => (false, rest),
        [] => return Err(wrong()),
    };
    let [states, count] = rest else { return Err(wrong()) };
    let (["grep", "-c", state], ["grep", count]) = (states.as_slice(), count.as_slice()) else {
        return Err(wrong());
    };
    let count = count.parse().map_err(|_| wrong())?;
    Ok(Some(Asked { state: (*state).to_owned(), count, of_programs }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_carried_out_granted_or_refused() {
        let mut knobs = Knobs::new(Profile::Linux, 1);
        for command in [
            "./defaults.sh # a remark\n./set_sysctls.py \
             /proc/sys/net/ipv4/tcp_min_tso_segs=4 \\\n  /proc/sys/net/ipv4/tcp_timestamps=0",
            "sysctl -q net.ipv4.tcp_rmem=\"4096 540000 $((1000*1000))\" > /dev/null 2>&1",
            "/tmp/sysctl_restore_${PPID}.sh",
            "tc qdisc replace dev tun0 root pfifo; sysctl -w net.inet.tcp.rexmit_initial=1000",
            "sysctl net.inet.tcp.delacktime=100 net.inet.tcp.drop_synfin=1",
            "sysctl -q net.ipv4.tcp_mtu_probing=1 net.ipv4.tcp_shrink_window=1 \
             net.ipv4.tcp_rto_max_ms=120000 net.ipv4.tcp_tw_reuse_delay=1",
            "sysctl -w net.inet.tcp.rexmit_drop_options=1; ip link set dev tun0 mtu 9000",
            "sysctl net.ipv4.tcp_ecn=2 net.ipv4.tcp_fastopen=0x3",
            "tc qdisc replace dev tun0 root fq",
            "tc qdisc delete dev tun0 root 2>/dev/null ; tc qdisc add dev tun0 root pfifo limit 0",
            "ip -6 route add 2001:DB8::1 via fd3d::0 dev tun0 advmss 600 mtu lock 660 initcwnd 11",
        ] {
            assert_eq!(knobs.command(command), Ok(()), "{command}");
        }
        let settings = knobs.settings();
        assert_eq!((settings.mss, knobs.is_cut()), (Some(600), true));
        assert_eq!(knobs.mtu(), Some(9000));
        assert!(!settings.timestamps && settings.receive_bytes == 1_000_000);
        for (command, why) in [
            ("ip route add 192.0.2.1 via 192.168.0.2 advmss", "means nothing"),
            ("ip route add 192.0.2.1 metric 3", "means nothing"),
            ("ip addr add 192.0.2.1", "means nothing"),
            ("ip link set dev tun0 mtu 60", "from 68"),
            ("sysctl -w net.inet.tcp.rexmit_initial=3000", "1000 alone"),
            ("sysctl -w net.ipv4.tcp_rto_max_ms=1000", "120000 alone"),
            ("sysctl -q net.ipv4.tcp_ecn=3", "accurate ECN"),
            ("sysctl net.ipv4.tcp_fastopen=0x402", "fast open"),
            ("sysctl -w net.inet.tcp.unheard=1", "means nothing"),
            ("sysctl net.ipv4.tcp_sack", "no NAME=VALUE"),
            ("sysctl net.ipv4.tcp_rmem=\"1 2\"", "no number there"),
            ("reboot", "means nothing"),
            ("sysctl \"a", "not closed"),
        ] {
            let error = knobs.command(command).expect_err(command);
            assert!(error.contains(why), "{command}: {error}");
        }
    }

    #[test]
    fn states_are_asked_for_in_one_form() {
        let asked = asked_of_sockets("sockstat -4 -P tcp -s | grep any | grep -c CLOSED | grep 2");
        let closed = Asked { state: "CLOSED".to_owned(), count: 2, of_programs: true };
        assert_eq!(asked, Ok(Some(closed.clone())));
        let asked = asked_of_sockets("sockstat -s -p 80 | grep -c CLOSED | grep 2");
        assert_eq!(asked, Ok(Some(Asked { of_programs: false, ..closed })));
        let asked = asked_of_sockets("grep \" 0A \" /proc/net/tcp /proc/net/tcp6 | grep \":1F90\"");
        let state = "LISTEN".to_owned();
        assert_eq!(asked, Ok(Some(Asked { state, count: 1, of_programs: true })));
        assert_eq!(asked_of_sockets("sysctl a=1"), Ok(None));
        assert!(asked_of_sockets("sockstat -4 | wc").is_err());
    }
}
