//! The built command on a TAP of its own, from its start to its end.
//!
//! Needs root, for a network namespace and the TAP; reports that it was skipped elsewhere.
#![expect(clippy::unwrap_used, reason = "what a test cannot do without ends the test")]
#![expect(clippy::disallowed_methods, reason = "the test waits for another process")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A command in a network namespace of its own, which is gone with the process.
fn alone(args: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", env!("CARGO_BIN_EXE_floodwall")]).args(args);
    command
}

/// Whether a namespace and a TAP can be had here.
fn may() -> bool {
    let made = Command::new("unshare").args(["--net", "true"]).output();
    let may = made.is_ok_and(|made| made.status.success())
        && std::fs::File::options().write(true).open("/dev/net/tun").is_ok();
    if !may {
        eprintln!("skipped: needs root, for a network namespace and /dev/net/tun");
    }
    may
}

struct Running {
    child: Child,
    socket: PathBuf,
}

fn start(name: &str) -> Running {
    start_with(name, &[])
}

fn start_with(name: &str, more: &[&str]) -> Running {
    let folder = std::env::temp_dir().join(format!("floodwall-life-{}", std::process::id()));
    let socket = folder.join(format!("{name}.sock"));
    let child = alone(&["run", "--device=tap:fw0", "--socket", socket.to_str().unwrap()])
        .args(["--address=10.0.0.2/24", "--address=fd00::2/64", "--service=udp-echo:7001"])
        .args(more)
        .stderr(Stdio::piped())
        .spawn();
    let running = Running { child: child.unwrap(), socket };
    for _ in 0..1000 {
        if running.stat(&["--json"]).status.success() {
            return running;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it never answered");
}

impl Running {
    fn stat(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_floodwall"));
        command.args(["stat", "--socket", self.socket.to_str().unwrap()]).args(args);
        command.output().unwrap()
    }

    fn json(&self) -> Value {
        let output = self.stat(&["--json"]);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Sends a signal, and returns the exit code and the messages.
    fn end(self, signal: Signal) -> (Option<i32>, String, PathBuf) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let output = self.child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap(), self.socket)
    }
}

fn assert_ended_well((code, said, socket): &(Option<i32>, String, PathBuf)) {
    assert_eq!(*code, Some(0), "{said}");
    assert!(!Path::new(socket).exists(), "the socket is removed");
    assert!(said.contains("tap:fw0: interface 1, Ethernet, our address"), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("floodwall: ended after "), "{said}");
    assert!(last.ends_with("every packet is accounted for exactly once"), "{said}");
}

#[test]
fn both_signals_end_it_in_good_order() {
    if !may() {
        return;
    }
    for signal in [Signal::INT, Signal::TERM] {
        assert_ended_well(&start("signals").end(signal));
    }
}

#[test]
fn the_capacity_of_its_device_is_said_before_it_begins_where_that_is_asked_for() {
    if !may() {
        return;
    }
    let ended = start_with("capacity", &["--capacity"]).end(Signal::TERM);
    let mut lines = ended.1.lines();
    let said = lines.find(|line| line.starts_with("floodwall: tap:fw0: capacity: on a cable of"));
    assert!(said.is_some_and(|line| line.contains(" packets/s are taken in")), "{}", ended.1);
    assert!(lines.any(|line| line.contains("tap:fw0: interface 1")), "then it opens: {}", ended.1);
    assert_ended_well(&ended);
}

#[test]
fn stat_tells_the_same_to_humans_and_programs() {
    if !may() {
        return;
    }
    let running = start("stat");
    let json = running.json();
    let device = &json["devices"][0];
    assert_eq!(device["ifname"], "fw0");
    let addresses = device["addr_info"].as_array().unwrap();
    assert!(addresses.iter().any(|address| address["local"] == "fd00::2"), "{json}");
    assert_eq!(json["conservation"]["holds"], true);
    assert!(json["counters"]["IpInReceives"].is_u64(), "{json}");
    assert!(json["worker"]["rounds"].as_u64().unwrap() > 0);
    let text = |args: &[&str]| String::from_utf8(running.stat(args).stdout).unwrap();
    let (brief, all) = (text(&[]), text(&["--all"]));
    assert!(brief.contains("1: fw0 link/ether") && brief.contains("Conservation: every packet"));
    assert!(!brief.contains("UdpRcvbufErrors") && all.contains("UdpRcvbufErrors"), "{all}");
    assert!(!brief.contains('\x1b'), "no colour into a pipe");
    assert_ended_well(&running.end(Signal::TERM));
}

#[test]
fn a_second_instance_on_the_same_socket_is_told_and_the_first_goes_on() {
    if !may() {
        return;
    }
    let running = start("second");
    let socket = running.socket.to_str().unwrap().to_owned();
    let second = alone(&["run", "--device=tap:fw0", "--socket", &socket]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(said.contains("another floodwall answers on"), "{said}");
    assert!(running.stat(&[]).status.success());
    assert_ended_well(&running.end(Signal::TERM));
}

#[test]
fn at_rest_it_hardly_wakes() {
    if !may() {
        return;
    }
    let running = start("rest");
    // Addresses are probed and the kernel greets the new link for a few seconds; then compare.
    let sleeps = || running.json()["worker"]["sleeps"].as_u64().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let before = sleeps();
    std::thread::sleep(Duration::from_secs(2));
    let during = sleeps() - before;
    assert!(during <= 20, "{during} wake-ups in two seconds at rest");
    assert_ended_well(&running.end(Signal::TERM));
}

/// An instance on one end of a veth, the kernel's half where it is wanted.
fn start_on_veth(half: &str) -> Running {
    let folder = std::env::temp_dir().join(format!("floodwall-life-{}", std::process::id()));
    let socket = folder.join(format!("half-{half}.sock"));
    let script = "ip link add ours type veth peer name theirs && ip link set ours up && \
                  ip link set theirs up && exec \"$@\"";
    let child = Command::new("unshare")
        .args(["--net", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_floodwall"), "run"])
        .args(["--device=packet:ours", "--address=10.0.0.2/24", "--address=fd00::2/64"])
        .args(["--kernel-half", half, "--socket", socket.to_str().unwrap()])
        .stderr(Stdio::piped())
        .spawn();
    let running = Running { child: child.unwrap(), socket };
    for _ in 0..1000 {
        if running.stat(&["--json"]).status.success() {
            return running;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it never answered");
}

#[test]
fn the_kernels_half_has_a_place_that_is_said_and_an_idle_worker_sleeps_whichever() {
    if !may() {
        return;
    }
    for half in ["auto", "busy-poll", "leave"] {
        let running = start_on_veth(half);
        let told = running.json()["devices"][0]["kernel_half"].clone();
        let words = told["words"].as_str().unwrap().to_owned();
        let text = String::from_utf8(running.stat(&[]).stdout).unwrap();
        assert!(text.contains(&words), "{text}");
        let sleeps = || running.json()["worker"]["sleeps"].as_u64().unwrap();
        std::thread::sleep(Duration::from_secs(3));
        let before = sleeps();
        std::thread::sleep(Duration::from_secs(2));
        let during = sleeps() - before;
        assert!(during <= 20, "{half}: {during} wake-ups in two seconds at rest");
        let (code, said, _) = running.end(Signal::TERM);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(&format!("packet:ours: the kernel's half: {words}")), "{said}");
        match half {
            "leave" => assert_eq!(told["place"], "left"),
            // Where the kernel cannot, it reports what is missing.
            _ => assert!(told["place"] != "left" || told["lacks"][0].is_string(), "{told}"),
        }
    }
}

/// Runs a script where the instance's TAP is. `None` where that cannot be done here.
fn beside(running: &Running, script: &str) -> Option<String> {
    let pid = running.child.id().to_string();
    let output = Command::new("nsenter")
        .args(["--net", "--target", &pid, "bash", "-ec", script])
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        eprintln!("skipped: needs nsenter, bash and ip: {said}");
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn two_workers_share_one_tap_and_every_packet_has_one_fate() {
    if !may() {
        return;
    }
    if !std::thread::available_parallelism().is_ok_and(|cores| cores.get() >= 2) {
        eprintln!("skipped: needs two cores");
        return;
    }
    let running = start_with("two", &["--workers=2", "--panic=isolate"]);
    let script = "ip address add 10.0.0.1/24 dev fw0; ip address add fd00::1/64 dev fw0 nodad
        for n in $(seq 40); do
            echo hello > /dev/udp/10.0.0.2/7001
            echo hello > /dev/udp/fd00::2/7001
        done";
    let count = |json: &Value, name: &str| json["counters"][name].as_u64().unwrap();
    if beside(&running, script).is_some() {
        let answered =
            |json: &Value| count(json, "UdpOutDatagrams") + count(json, "Udp6OutDatagrams");
        let enough = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            answered(&running.json()) >= 80
        });
        let json = running.json();
        assert!(enough, "{json}");
        let workers = json["workers"].as_array().unwrap();
        assert_eq!(workers.len(), 2);
        for worker in workers {
            assert!(worker["core"].is_u64(), "pinned: {worker}");
            assert!(worker["facts"]["sent_packets"].as_u64().unwrap() > 0, "both answer: {worker}");
        }
        assert_eq!(json["conservation"]["holds"], true, "{json}");
    }
    let text = String::from_utf8(running.stat(&["--workers"]).stdout).unwrap();
    assert!(text.contains("2 workers on cores ") && text.contains("paused ago"), "{text}");
    assert_ended_well(&running.end(Signal::TERM));
}

#[test]
fn more_workers_than_cores_and_cores_that_are_not_there_are_told_in_words() {
    let refused = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_floodwall"));
        command.args(["run", "--device=tap:fw0"]).args(args);
        let output = command.args(["--socket", "/nonexistent/fw.sock"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused(&["--workers=64"]);
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    if cores < 64 {
        let expected = format!("--workers: 64 workers are more than the {cores} cores that");
        assert!(said.contains(&expected) && said.contains("at most"), "{said}");
    }
    let said = refused(&["--cores=1022,1023"]);
    assert!(said.contains("--cores: core 1022 is not among those that this process may"), "{said}");
    let said = refused(&["--cpu=1023"]);
    assert!(said.contains("--cpu: core 1023 is not among those that this process may"), "{said}");
}

#[test]
fn it_ends_in_words_when_its_only_device_is_deleted() {
    if !may() {
        return;
    }
    let running = start("gone");
    let pid = running.child.id().to_string();
    let deleted = Command::new("nsenter")
        .args(["--net", "--target", &pid, "ip", "link", "delete", "fw0"])
        .status();
    if !deleted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: needs nsenter and ip");
        assert_ended_well(&running.end(Signal::TERM));
        return;
    }
    let socket = running.socket.clone();
    let output = running.child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("floodwall: no device is left: fw0: gone"), "{said}");
    assert!(!socket.exists());
}

/// Whatever the limit on address space is, it runs, or says what is too small: it never aborts.
#[test]
fn a_small_address_space_is_refused_in_words() {
    if !may() {
        return;
    }
    let mut refused = 0;
    for mebibytes in [24, 48, 60, 72, 84, 96, 112, 128] {
        let socket = std::env::temp_dir()
            .join(format!("floodwall-space-{}-{mebibytes}", std::process::id()));
        let (binary, kib) = (env!("CARGO_BIN_EXE_floodwall"), mebibytes * 1024);
        let words = format!(
            "ulimit -v {kib}; exec timeout -s INT 2 {binary} run --device tap:fw0 --socket {} \
             --address 10.0.0.2/24 --service http:80 --drain 0",
            socket.display()
        );
        let output = Command::new("unshare").args(["--net", "sh", "-c", &words]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let is_refused = said.contains("address space") || said.contains("packet memory");
        refused += usize::from(is_refused);
        let has_run = said.contains("floodwall: running");
        assert!(is_refused != has_run, "{mebibytes} MiB: {:?}\n{said}", output.status);
        assert!(!said.contains("memory allocation of"), "{mebibytes} MiB: {said}");
    }
    assert!(refused > 0, "24 MiB were enough");
}
