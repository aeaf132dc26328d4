//! `floodwall guard` as a process: its words, its status, its ends.
//!
//! Needs root and a kernel with what the guard needs; reports that it was skipped elsewhere.
#![expect(clippy::unwrap_used, reason = "what a test cannot do without ends the test")]
#![expect(clippy::disallowed_methods, reason = "the test waits for another process")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use floodwall_device::host_bpf;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const BIN: &str = env!("CARGO_BIN_EXE_floodwall");
const IFACE: &str = "gc0";

/// A namespace of this thread's own with a veth; false, with the reason printed, without.
fn may() -> bool {
    #[expect(deprecated, reason = "what makes it unsafe is a flag about descriptors")]
    let own = rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET);
    let link = format!("link add {IFACE} type veth peer name gc1");
    if own.is_err() || !ip(&link) || !ip(&format!("link set {IFACE} up")) {
        eprintln!("SKIPPED: no network namespace with a veth; it takes root");
        return false;
    }
    true
}

fn ip(words: &str) -> bool {
    Command::new("ip").args(words.split(' ')).status().is_ok_and(|status| status.success())
}

/// What `ip` says of the programs of the interface.
fn programs() -> bool {
    let out = Command::new("ip").args(["-d", "link", "show", IFACE]).output().unwrap();
    String::from_utf8_lossy(&out.stdout).contains("xdp")
}

struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
    folder: PathBuf,
}

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("floodwall-guard-{name}-{}", std::process::id()))
}

fn command(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(BIN);
    command.arg("guard").args(args).env("XDG_RUNTIME_DIR", folder(name));
    command
}

impl Running {
    /// A guard that says that it is one; `None`, with its words printed, where it cannot be.
    fn start(name: &str, args: &[&str]) -> Option<Self> {
        let mut child = command(name, args).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        if first.contains("the kernel ") || first.contains("no permission") {
            eprintln!("SKIPPED: {first}");
            child.wait().unwrap();
            return None;
        }
        assert_eq!(first, format!("floodwall: {IFACE}: ports 22, 443 are guarded"));
        Some(Self { child, lines, folder: folder(name) })
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

const ARGS: [&str; 5] = [IFACE, "--port", "443", "--port", "22"];

#[test]
fn it_tells_its_status_and_ends_without_a_trace() {
    if !may() {
        return;
    }
    let Some(mut guard) = Running::start("ends", &ARGS) else { return };
    assert!(programs());
    let out = command("ends", &[IFACE, "--status", "--json"]).output().unwrap();
    let said: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(said["interface"], IFACE);
    assert_eq!((&said["ports"][0]["port"], &said["ports"][1]["port"]), (&22.into(), &443.into()));
    assert_eq!(said["ports"][0]["counts"]["syn_answered"], 0);
    assert_eq!(said["ports"][0]["awake_seconds"], Value::Null);
    let out = command("ends", &[IFACE, "--status"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "tcp 22: asleep\ntcp 443: asleep\n");
    // A second one is refused and changes nothing.
    let second = command("second", &ARGS).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let words = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(words.contains("there is an XDP program already"), "{words}");
    guard.signal(Signal::TERM);
    assert_eq!(guard.child.wait().unwrap().code(), Some(0));
    let last = guard.lines.by_ref().map_while(Result::ok).last().unwrap();
    assert_eq!(last, format!("floodwall: {IFACE}: no longer guarded"));
    assert!(!programs());
    let gone = command("ends", &[IFACE, "--status"]).output().unwrap();
    assert_eq!(gone.status.code(), Some(3));
}

#[test]
fn killed_it_leaves_no_program() {
    if !may() {
        return;
    }
    let Some(mut guard) = Running::start("killed", &ARGS) else { return };
    assert!(programs());
    guard.signal(Signal::KILL);
    guard.child.wait().unwrap();
    // The kernel releases descriptors of a killed process a moment later.
    let left = (0..100).take_while(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        programs()
    });
    assert!(left.count() < 100, "the program is still there");
}

/// A BPF file system of this thread's own, where guards pin; false, with the reason printed,
/// without.
fn may_pin() -> bool {
    #[expect(deprecated, reason = "what makes it unsafe is a flag about descriptors")]
    let own = rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS);
    let run = |words: &str| {
        Command::new("mount").args(words.split(' ')).status().is_ok_and(|it| it.success())
    };
    let may = own.is_ok() && run("--make-rprivate /") && run("-t bpf bpf /sys/fs/bpf");
    if !may {
        eprintln!("SKIPPED: no BPF file system can be mounted");
    }
    may
}

/// Every setting of the namespace, what tools say of links, queues and rules, and the links at the
/// traffic control's ingress.
fn everything() -> BTreeMap<String, String> {
    fn settings(folder: &Path, found: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                settings(&path, found);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                found.insert(path.display().to_string(), text);
            }
        }
    }
    let mut found = BTreeMap::new();
    settings(Path::new("/proc/sys/net"), &mut found);
    for command in [
        "ip -d link",
        "ip address",
        "ip route show table all",
        "tc qdisc show",
        "nft list ruleset",
        &format!("ethtool -k {IFACE}"),
    ] {
        let mut words = command.split(' ');
        let out = Command::new(words.next().unwrap()).args(words).output();
        let said = out.map_or_else(|error| error.to_string(), |out| format!("{:?}", out.stdout));
        found.insert(command.to_owned(), said);
    }
    let (index, _) = host_bpf::interface(IFACE).unwrap();
    found.insert("ingress".to_owned(), format!("{:?}", host_bpf::ingress_links(index)));
    found
}

/// What `floodwall cleanup` says, for this interface or for all.
fn cleanup(name: &str, args: &[&str]) -> String {
    let mut command = Command::new(BIN);
    let out = command.arg("cleanup").args(args).env("XDG_RUNTIME_DIR", folder(name)).output();
    let out = out.unwrap();
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn cleanup_removes_what_a_killed_guard_has_pinned_and_neither_a_living_nor_a_kept_one() {
    const PINS: &str = "/sys/fs/bpf/floodwall/gc0";
    let pinned: Vec<_> = ARGS.into_iter().chain(["--pin"]).collect();
    if !may() || !may_pin() {
        return;
    }
    let before = everything();
    let Some(mut guard) = Running::start("pins", &pinned) else { return };
    let held = format!("{IFACE}: guarded by process {}, left alone", guard.child.id());
    assert_eq!(cleanup("pins", &[]).lines().find(|line| line.contains("guarded")), Some(&*held));
    let kill = |guard: &mut Running| {
        guard.signal(Signal::KILL);
        guard.child.wait().unwrap();
    };
    kill(&mut guard);
    assert!(programs() && Path::new(PINS).is_dir(), "it goes on alone");
    // The next one takes over, and ends on purpose.
    let mut next = Running::start("pins", &pinned).unwrap();
    next.signal(Signal::TERM);
    assert_eq!(next.child.wait().unwrap().code(), Some(0));
    for args in [&[][..], &[IFACE]] {
        let said = cleanup("pins", args);
        assert!(said.contains("still guarded by what --pin has kept on purpose"), "{said}");
        assert!(programs());
    }
    let other = command("other", &ARGS).output().unwrap();
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(said.contains(&format!("removed by `floodwall cleanup {IFACE}`")), "{said}");
    // Another interface of that name, in another namespace: neither is touched.
    std::thread::spawn(|| {
        assert!(may());
        let said = cleanup("elsewhere", &[]);
        assert!(said.contains("at an interface of another network namespace"), "{said}");
        let pinned: Vec<_> = ARGS.into_iter().chain(["--pin"]).collect();
        let second = command("elsewhere", &pinned).output().unwrap();
        let said = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(said.contains("is at an interface of another network namespace"), "{said}");
    })
    .join()
    .unwrap();
    assert!(programs());
    // And a third one is killed.
    let mut third = Running::start("pins", &pinned).unwrap();
    kill(&mut third);
    let socket = third.folder.join("floodwall");
    assert!(std::fs::read_dir(&socket).unwrap().flatten().count() > 0, "its socket is left");
    let said = cleanup("pins", &[IFACE]);
    let removed = "no longer guarded by the programs of a guard that was killed";
    assert!(said.contains(removed) && said.contains(PINS), "{said}");
    assert!(said.contains("removed ") && said.contains(".guard"), "{said}");
    // The kernel takes them off the interface a moment later.
    let left = (0..1500).take_while(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        everything() != before
    });
    assert!(left.count() < 1500, "something is left");
    assert!(!Path::new(PINS).exists());
    assert!(!cleanup("pins", &[]).contains(IFACE), "the second run finds nothing");
    // What guards nothing goes too: of an interface that has gone.
    kill(&mut Running::start("pins", &pinned).unwrap());
    assert!(ip(&format!("link delete {IFACE}")));
    let said = cleanup("pins", &[]);
    assert!(said.contains("nothing was guarded by what a guard had pinned"), "{said}");
    assert!(!Path::new(PINS).exists());
}

#[test]
fn what_is_wrong_is_said_before_anything_is_attached() {
    if !may() {
        return;
    }
    for (args, words) in [
        (&["nowhere", "--port", "22"][..], "no such interface"),
        (&[IFACE][..], "name 1 to 63 ports"),
        (&[IFACE, "--port", "22", "--cookie-secret", "/nowhere"][..], "cannot be read"),
    ] {
        let out = command("wrong", args).output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(said.contains(words), "{said}");
    }
    let out = command("wrong", &[IFACE, "--check", "--port", "22"]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("ok     net.ipv4.tcp_syncookies is on"), "{said}");
    assert!(said.contains("note   no socket of this network namespace listens on port 22"));
    std::fs::write("/proc/sys/net/ipv4/tcp_syncookies", "0").unwrap();
    let out = command("wrong", &[IFACE, "--check"]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stdout).contains("BREAKS net.ipv4.tcp_syncookies is 0"));
    let out = command("wrong", &ARGS).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("tcp_syncookies is 0") && !programs(), "{said}");
}
