//! The built command on a TAP of its own, from its start to its end.
//!
//! Needs root, for a network namespace and the TAP; reports that it was skipped elsewhere.

use std::process::Command;
use std::time::Duration;

use crate::support::{BIN, Ended, HOST, Instance, alone, may};
use rustix::process::Signal;
use serde_json::Value;

fn start(name: &str) -> Instance {
    start_with(name, &[])
}

fn start_with(name: &str, more: &[&str]) -> Instance {
    let args = HOST.iter().chain(&["--service=udp-echo:7001"]).chain(more);
    Instance::start(name, &args.copied().collect::<Vec<_>>())
}

fn report(running: &Instance) -> Value {
    running.json(&["stat", "--json"])
}

fn assert_ended_well(Ended { code, said, socket }: &Ended) {
    assert_eq!(*code, Some(0), "{said}");
    assert!(!socket.exists(), "the socket is removed");
    assert!(said.contains("tap:fw0: interface 1, Ethernet, our address"), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.contains("floodwall: ended after "), "{said}");
    assert!(last.ends_with("every packet is accounted for exactly once"), "{said}");
}

#[test]
fn both_signals_end_it_in_good_order() {
    if !may() {
        return;
    }
    for signal in [Signal::INT, Signal::TERM] {
        assert_ended_well(&start("signals").end_by(signal));
    }
}

#[test]
fn the_capacity_of_its_device_is_said_before_it_begins_where_that_is_asked_for() {
    if !may() {
        return;
    }
    let ended = start_with("capacity", &["--capacity"]).end_by(Signal::TERM);
    let mut lines = ended.said.lines();
    let said = lines.find(|line| line.contains("floodwall: tap:fw0: capacity: on a cable of"));
    assert!(said.is_some_and(|line| line.contains(" packets/s are taken in")), "{}", ended.said);
    assert!(
        lines.any(|line| line.contains("tap:fw0: interface 1")),
        "then it opens: {}",
        ended.said
    );
    assert_ended_well(&ended);
}

#[test]
fn stat_tells_the_same_to_humans_and_programs() {
    if !may() {
        return;
    }
    let running = start("stat");
    let json = report(&running);
    let device = &json["devices"][0];
    assert_eq!(device["ifname"], "fw0");
    let addresses = device["addr_info"].as_array().unwrap();
    assert!(addresses.iter().any(|address| address["local"] == "fd00::2"), "{json}");
    assert_eq!(json["conservation"]["holds"], true);
    assert!(json["counters"]["IpInReceives"].is_u64(), "{json}");
    assert!(json["worker"]["rounds"].as_u64().unwrap() > 0);
    let (brief, all) = (running.text(&["stat"]), running.text(&["stat", "--all"]));
    assert!(brief.contains("1: fw0 link/ether") && brief.contains("Conservation: every packet"));
    assert!(!brief.contains("UdpRcvbufErrors") && all.contains("UdpRcvbufErrors"), "{all}");
    assert!(!brief.contains('\x1b'), "no colour into a pipe");
    assert_ended_well(&running.end_by(Signal::TERM));
}

#[test]
fn a_second_instance_on_the_same_socket_is_told_and_the_first_goes_on() {
    if !may() {
        return;
    }
    let running = start("second");
    let socket = running.socket().to_str().unwrap().to_owned();
    let second = alone(&["run", "--device=tap:fw0", "--socket", &socket]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(said.contains("another floodwall answers on"), "{said}");
    assert!(running.ask(&["stat"]).status.success());
    assert_ended_well(&running.end_by(Signal::TERM));
}

#[test]
fn what_a_killed_instance_leaves_is_removed_by_cleanup_and_by_nothing_while_it_runs() {
    if !may() {
        return;
    }
    let mut running = start("killed");
    let cleaned = |running: &Instance| {
        let output = running.ask(&["cleanup"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    cleaned(&running);
    assert!(running.ask(&["stat"]).status.success(), "what runs is left alone");
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    assert_eq!(running.ask(&["stat"]).status.code(), Some(3));
    let removed = format!("removed {}", running.socket().display());
    assert!(cleaned(&running).lines().any(|line| line == removed));
    assert!(!running.socket().exists());
}

#[test]
fn at_rest_it_hardly_wakes() {
    if !may() {
        return;
    }
    let running = start("rest");
    // Addresses are probed and the kernel greets the new link for a few seconds; then compare.
    let sleeps = || report(&running)["worker"]["sleeps"].as_u64().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let before = sleeps();
    std::thread::sleep(Duration::from_secs(2));
    let during = sleeps() - before;
    assert!(during <= 20, "{during} wake-ups in two seconds at rest");
    assert_ended_well(&running.end_by(Signal::TERM));
}

/// An instance on one end of a veth, the kernel's half where it is wanted.
fn start_on_veth(half: &str) -> Instance {
    let script = "ip link add ours type veth peer name theirs && ip link set ours up && \
                  ip link set theirs up";
    let args = ["--device=packet:ours", HOST[1], HOST[2], "--kernel-half", half];
    Instance::start_after(&format!("half-{half}"), script, &args, &[])
}

#[test]
fn the_kernels_half_has_a_place_that_is_said_and_an_idle_worker_sleeps_whichever() {
    if !may() {
        return;
    }
    for half in ["auto", "busy-poll", "leave"] {
        let running = start_on_veth(half);
        let told = report(&running)["devices"][0]["kernel_half"].clone();
        let words = told["words"].as_str().unwrap().to_owned();
        let text = running.text(&["stat"]);
        assert!(text.contains(&words), "{text}");
        let sleeps = || report(&running)["worker"]["sleeps"].as_u64().unwrap();
        std::thread::sleep(Duration::from_secs(3));
        let before = sleeps();
        std::thread::sleep(Duration::from_secs(2));
        let during = sleeps() - before;
        assert!(during <= 20, "{half}: {during} wake-ups in two seconds at rest");
        let Ended { code, said, .. } = running.end_by(Signal::TERM);
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
fn beside(running: &Instance, script: &str) -> Option<String> {
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
    // Their cores are watched for other programs, for which nothing is configured.
    let tasks = std::fs::read_dir(format!("/proc/{}/task", running.child.id())).unwrap();
    let mut names =
        tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    assert!(names.any(|name| name.trim() == "core-watch"));
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
            answered(&report(&running)) >= 80
        });
        let json = report(&running);
        assert!(enough, "{json}");
        let workers = json["workers"].as_array().unwrap();
        assert_eq!(workers.len(), 2);
        for worker in workers {
            assert!(worker["core"].is_u64(), "pinned: {worker}");
            assert!(worker["facts"]["sent_packets"].as_u64().unwrap() > 0, "both answer: {worker}");
        }
        assert_eq!(json["conservation"]["holds"], true, "{json}");
    }
    let text = running.text(&["stat", "--workers"]);
    assert!(text.contains("2 workers on cores ") && text.contains("paused ago"), "{text}");
    assert_ended_well(&running.end_by(Signal::TERM));
}

#[test]
fn more_workers_than_cores_and_cores_that_are_not_there_are_told_in_words() {
    let refused = |args: &[&str]| {
        let mut command = Command::new(BIN);
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
        assert_ended_well(&running.end_by(Signal::TERM));
        return;
    }
    let Ended { code, said, socket } = running.ended();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("floodwall: no device is left: fw0: gone"), "{said}");
    assert!(!socket.exists());
}

/// Under any limit on address space it runs, or says what is too small: it never aborts.
#[test]
fn a_small_address_space_is_refused_in_words() {
    if !may() {
        return;
    }
    let mut refused = 0;
    for mebibytes in [48, 60, 84, 112, 128, 192, 320, 352, 384, 512] {
        let socket = std::env::temp_dir()
            .join(format!("floodwall-space-{}-{mebibytes}", std::process::id()));
        let (binary, kib) = (BIN, mebibytes * 1024);
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
    assert!(refused > 0, "48 MiB were enough");
}
