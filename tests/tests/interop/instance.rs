//! `floodwall run` as a process of its own, as its operator sees it: by what `floodwall stat`
//! shows, by what the system reports of the process, by how it ends.
//!
//! Invariant: when it ends it reports that every packet is accounted for exactly once, each drop
//! has a reason, and the exit code is 0; or the test fails.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::binary::floodwall;
use crate::command::{Process, Said, ip, run, shown_by_ip};
use crate::link::{Kind, NAME, OTHER_END};
use crate::namespace::{has_interface, pause, until};
use crate::site::Site;

/// How long it may take on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(20);

/// A folder that goes with the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("floodwall-interop-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The path of a file in it. None of them has a blank.
    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process of `floodwall run`.
pub(crate) struct Instance {
    binary: &'static Path,
    process: Process,
    socket: String,
    _folder: Folder,
}

impl Instance {
    /// Starts one with these flags, plugged into the site; `None`, and said so, where this machine
    /// cannot.
    pub(crate) fn start(site: &Site, kind: Kind, flags: &str) -> Option<Self> {
        let (binary, folder) = (floodwall()?, Folder::new());
        let socket = folder.file("control");
        let device = match kind {
            Kind::Tap => format!("tap:{NAME}"),
            Kind::Tun => panic!("a TUN is no station"),
            Kind::Packet | Kind::Xdp => {
                assert!(ip(&format!("link add {NAME} type veth peer name {OTHER_END}")));
                site.plug(NAME);
                assert!(ip(&format!("link set {OTHER_END} mtu {} up", site.mtu)));
                let word = if kind == Kind::Xdp { "xdp" } else { "packet" };
                format!("{word}:{OTHER_END}")
            }
        };
        let words = format!("run --device {device} --socket {socket} {flags}");
        let process = Process::start(binary.to_str()?, &words, b"")?;
        let mut instance = Self { binary, process, socket, _folder: folder };
        if kind == Kind::Tap {
            assert!(until(PATIENCE, || has_interface(NAME) || instance.process.has_ended()));
            site.plug(NAME);
        }
        let answers =
            |instance: &mut Self| instance.look().is_some() || instance.process.has_ended();
        assert!(until(PATIENCE, || answers(&mut instance)), "it never answers");
        Some(instance)
    }

    /// Runs another command of ours on it: words like `address show`.
    pub(crate) fn command(&self, words: &str) -> Said {
        let words = format!("{words} --socket {}", self.socket);
        run(self.binary.to_str().unwrap(), &words, b"").unwrap()
    }

    /// Runs `route` with these words on it: options and a verb.
    pub(crate) fn route(&self, words: &str) -> Said {
        let words = format!("route --socket {} {words}", self.socket);
        run(self.binary.to_str().unwrap(), &words, b"").unwrap()
    }

    /// What `stat --json` shows, asked without a process; `None` where there is no answer yet.
    fn look(&self) -> Option<Value> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"stat\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let answer: Value = serde_json::from_str(&text).ok()?;
        answer.get("error").is_none().then_some(answer)
    }

    /// The whole of `stat --json`.
    pub(crate) fn stat(&self) -> Value {
        let said = self.command("stat --json");
        assert!(said.status.success(), "it answers: {}", said.complaint);
        serde_json::from_str(&said.text).unwrap()
    }

    /// Waits until `stat` shows something; what it shows then.
    pub(crate) fn wait_for(&self, limit: Duration, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut stat = Value::Null;
        let has_come = until(limit, || {
            pause(Duration::from_millis(100));
            self.look().is_some_and(|look| {
                stat = look;
                is_so(&stat)
            })
        });
        assert!(has_come, "within {limit:?} it never showed that: {:#}", stat["network"]);
        stat
    }

    /// Waits until it has nothing more to take from its device.
    pub(crate) fn wait_until_idle(&self) -> Value {
        let mut before = 0;
        let idle = until(PATIENCE, || {
            let arrived = self.look().as_ref().map(arrived);
            let same = arrived.is_some_and(|arrived| arrived <= before + 3);
            before = arrived.unwrap_or(before);
            pause(Duration::from_millis(100));
            same
        });
        assert!(idle, "packets go on coming");
        self.stat()
    }

    /// Packets that the way to it has lost for want of room: the kernel's queue, or the device's
    /// own ring.
    pub(crate) fn lost_on_the_way(&self) -> u64 {
        let shown = shown_by_ip(&format!("-s -j link show dev {NAME}"));
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let stats = &self.stat()["devices"][0]["stats"];
        let of = |name: &str| stats[name].as_u64().unwrap();
        let queue = shown[0]["stats64"]["tx"]["dropped"].as_u64().unwrap();
        queue + of("rx_ring_full") + of("rx_no_buffer")
    }

    /// Memory that it holds, in KiB.
    pub(crate) fn resident(&self) -> u64 {
        resident(self.process.id())
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.process.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its own end; what it said.
    pub(crate) fn wait(self, limit: Duration) -> Said {
        self.process.wait(limit)
    }

    /// Ends it, and it ends well; its last `stat`, and what it said.
    pub(crate) fn end(self) -> (Value, String) {
        let stat = self.stat();
        assert_conserved(&stat);
        let said = self.process.end();
        let last = said.complaint.lines().last().unwrap_or_default();
        assert_eq!(said.status.code(), Some(0), "{}", said.complaint);
        assert!(last.ends_with("every packet is accounted for exactly once"), "{}", said.complaint);
        (stat, said.complaint)
    }
}

/// Memory that a process holds, in KiB.
pub(crate) fn resident(process: u32) -> u64 {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(path).expect("it is alive");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Packets that have arrived, whether they held anything or not.
pub(crate) fn arrived(stat: &Value) -> u64 {
    stat["conservation"]["arrived"].as_u64().unwrap()
}

/// Every packet is accounted for exactly once, and each drop has a reason with a name and a
/// sentence.
pub(crate) fn assert_conserved(stat: &Value) {
    let law = &stat["conservation"];
    assert_eq!(law["holds"], true, "{law}");
    for (direction, dead) in [("in", "dropped_in"), ("out", "dropped_out")] {
        let drops = stat["drops"].as_array().unwrap().iter();
        let named = drops.filter(|drop| drop["direction"] == direction).map(|drop| {
            assert!(!drop["reason"].as_str().unwrap().is_empty(), "{drop}");
            assert!(!drop["sentence"].as_str().unwrap().is_empty(), "{drop}");
            drop["count"].as_u64().unwrap()
        });
        assert_eq!(named.sum::<u64>(), law[dead].as_u64().unwrap(), "{law}");
    }
}
