//! `floodwall self-test` as its operator sees it: what it proves in namespaces of its own, what it
//! reports of an existing interface, and that it leaves nothing behind.

use std::time::Duration;

use serde_json::Value;

use crate::binary::floodwall;
use crate::command::{Process, Said, ip, shown_by_ip};
use crate::namespace::{inside, inside_alone, is_deep, pause, set};

/// It waits for repeats where GSO frames are lost: half a minute on an idle machine.
const LIMIT: Duration = Duration::from_secs(180);

/// What is proved for each device in any case.
const PROVED: [&str; 11] = [
    "open",
    "ping IPv4",
    "ping IPv6",
    "UDP IPv4",
    "UDP IPv6",
    "TCP IPv4",
    "TCP IPv6",
    "unfinished checksums",
    "the device's losses",
    "link down and up",
    "conservation",
];

/// Runs it with these words; `None`, and said so, where there is no such command.
fn self_test(words: &str) -> Option<Said> {
    let process = Process::start(floodwall()?.to_str()?, &format!("self-test {words}"), b"")?;
    Some(process.wait(LIMIT))
}

fn report(said: &Said) -> Value {
    serde_json::from_str(&said.text).unwrap_or_else(|error| {
        panic!("{error}: {} {}", said.text, said.complaint);
    })
}

/// The outcomes of a check, one for each device or time.
fn outcomes<'a>(report: &'a Value, check: &str) -> Vec<&'a str> {
    let all = report["findings"].as_array().unwrap().iter();
    let these = all.filter(|finding| finding["check"] == check);
    these.map(|finding| finding["outcome"].as_str().unwrap()).collect()
}

/// A device on a cable of its own.
fn is_proved(word: &'static str, super_frames: &'static str) {
    inside(move || {
        let Some(said) = self_test(&format!("{word} --in-namespaces --json")) else { return };
        let report = report(&said);
        assert_eq!(said.status.code(), Some(0), "{report:#}");
        assert_eq!((&report["works"], &report["place"]), (&true.into(), &"namespace".into()));
        for check in PROVED {
            assert_eq!(outcomes(&report, check), ["works"], "{check}: {report:#}");
        }
        assert_eq!(outcomes(&report, "GSO frames")[0], super_frames, "{report:#}");
        assert_eq!(outcomes(&report, "each queue used").len(), 1, "{report:#}");
        assert!(report.get("capacities").is_none(), "not requested");
        // None of it was in the caller's namespace.
        assert!(!shown_by_ip("link show").contains("fw0"));
    });
}

#[test]
fn a_tap_is_proved_on_a_cable_of_its_own() {
    is_proved("tap:fw0,queues=2", "works");
}

#[test]
fn a_tun_is_proved_on_a_cable_of_its_own() {
    is_proved("tun:fw0,queues=1", "works");
}

#[test]
fn a_packet_socket_is_proved_on_a_cable_of_its_own() {
    is_proved("packet:fw0", "works");
}

#[test]
fn xdp_is_proved_on_a_cable_of_its_own() {
    is_proved("xdp:fw0,queues=1,mode=native", "lacks");
}

#[test]
fn xdp_with_four_queues_is_proved_on_a_cable_of_its_own() {
    is_proved("xdp:fw0,queues=4,mode=native", "lacks");
}

#[test]
fn xdp_in_generic_mode_is_proved_on_a_cable_of_its_own() {
    is_proved("xdp:fw0,queues=4,mode=generic", "lacks");
}

#[test]
fn the_capacity_of_a_path_is_a_figure_where_it_is_asked_for() {
    // It floods with all that a core can send.
    inside_alone(|| {
        let kinds = ["xdp:fw0,queues=1,mode=native", "tap:fw0,queues=1", "packet:fw0", "tun:fw0"];
        for word in kinds.into_iter().take(if is_deep() { 4 } else { 2 }) {
            let words = format!("{word} --in-namespaces --capacity --json");
            let Some(said) = self_test(&words) else { return };
            let report = report(&said);
            assert_eq!(said.status.code(), Some(0), "{word}: {report:#}");
            assert_eq!(outcomes(&report, "capacity"), ["works"], "{report:#}");
            let [capacity] = &report["capacities"].as_array().unwrap()[..] else {
                panic!("{report:#}");
            };
            let of = |name: &str| capacity[name].as_u64().unwrap();
            // Both are read while packets are under way.
            let (judged, offered) = (of("judged_pps"), of("offered_pps"));
            assert!(judged > 1000 && judged <= offered + offered / 4 + 1000, "{capacity:#}");
        }
        // Where the interface is there, it is not what is flooded.
        for conf in ["all", "default"] {
            set(&format!("net/ipv6/conf/{conf}/disable_ipv6"), "1");
        }
        assert!(ip("link add near type veth peer name far"));
        assert!(ip("link set near up") && ip("link set far up"));
        let state = || shown_by_ip("-d -s -j link show dev near");
        let before = state();
        let Some(said) = self_test("packet:near --capacity --json") else { return };
        let report = report(&said);
        assert_eq!((said.status.code(), &report["place"]), (Some(0), &"interface".into()));
        assert_eq!(report["capacities"].as_array().unwrap().len(), 1, "{report:#}");
        assert_eq!(state(), before);
    });
}

#[test]
fn an_interface_that_is_there_is_left_as_it_was_and_hears_nothing() {
    inside(|| {
        for conf in ["all", "default"] {
            set(&format!("net/ipv6/conf/{conf}/disable_ipv6"), "1");
        }
        let each = "numrxqueues 2 numtxqueues 2";
        assert!(ip(&format!("link add near {each} type veth peer name far {each}")));
        assert!(ip("link set near up") && ip("link set far up"));
        let state = || shown_by_ip("-d -s -j link show dev near");
        let before = state();
        for kind in ["xdp", "packet"] {
            let Some(said) = self_test(&format!("{kind}:near --json")) else { return };
            let report = report(&said);
            assert_eq!(said.status.code(), Some(0), "{report:#}");
            assert_eq!(report["place"], "interface");
            for check in ["open", "link", "packet memory", "left as it was"] {
                assert_eq!(outcomes(&report, check), ["works"], "{kind}: {check}: {report:#}");
            }
            let program = outcomes(&report, "XDP program");
            assert_eq!(program.len(), usize::from(kind == "xdp"), "{report:#}");
            assert!(program.iter().all(|outcome| *outcome == "works"), "{report:#}");
            // Cookies, live flows, fair credit, redirect: the peer takes no frames from a program.
            let line = outcomes(&report, "first line");
            assert_eq!(line, ["works", "works", "works", "lacks"], "{report:#}");
        }
        // Counters and all: no packet left, none arrived, nothing is set.
        assert_eq!(state(), before);
    });
}

#[test]
fn what_does_not_work_is_said_with_its_reason_and_ends_with_one() {
    inside(|| {
        let Some(missing) = self_test("xdp:none") else { return };
        assert_eq!(missing.status.code(), Some(1), "{}", missing.text);
        assert!(missing.text.contains("FAILS  open"), "{}", missing.text);
        assert!(missing.text.contains("`ip link` lists"), "{}", missing.text);
        assert!(missing.text.contains("to do: `--in-namespaces`"), "{}", missing.text);
        assert!(ip("link add large mtu 9000 type veth peer name end mtu 9000"));
        assert!(ip("link set large up"));
        let large = self_test("xdp:large").unwrap();
        assert_eq!(large.status.code(), Some(1), "{}", large.text);
        assert!(large.text.contains("mtu 1500"), "{}", large.text);
        let wrong = self_test("veth:fw0").unwrap();
        assert_eq!(wrong.status.code(), Some(2), "{}", wrong.complaint);
        assert!(wrong.complaint.contains("as in tap:fw0"), "{}", wrong.complaint);
    });
}

#[test]
fn asked_to_end_it_ends_and_leaves_nothing() {
    inside(|| {
        let Some(binary) = floodwall() else { return };
        let words = "self-test xdp:fw0 --in-namespaces";
        let Some(process) = Process::start(binary.to_str().unwrap(), words, b"") else { return };
        pause(Duration::from_secs(2));
        let said = process.end();
        assert_eq!(said.status.code(), Some(2), "{} {}", said.text, said.complaint);
        assert!(said.complaint.contains("interrupted"), "{}", said.complaint);
        assert!(!shown_by_ip("link show").contains("fw"));
    });
}
