//! nmap's scans: of ports in fragments, of protocols, and what it concludes of our identifications.

use serde_json::Value;

use crate::attacks::{Scene, honest};
use crate::command::{Said, run};
use crate::instance::assert_conserved;
use crate::link::Kind;
use crate::namespace::{inside, tell};

/// One scan from the attacker's namespace; its output, and the counters after it.
fn scanned(kind: Kind, words: &'static str, judge: fn(&Said, &Value)) {
    inside(move || {
        let Some(scene) = Scene::set_up(kind, None, "--service udp-echo:7") else { return };
        let Some(said) = scene.unknown.inside(|| run("nmap", words, b"")) else { return };
        assert!(said.status.success(), "{} {}", said.text, said.complaint);
        let stat = scene.instance.wait_until_idle();
        honest::assert_all_answered(&scene.honest);
        assert_conserved(&stat);
        judge(&said, &stat);
        scene.end();
    });
}

/// Tiny fragments of TCP segments: nothing of ours answers TCP yet, and nothing stays behind.
#[test]
fn a_port_scan_in_tiny_fragments_ends() {
    scanned(Kind::Tap, "-n -Pn -f -sS -p 1-200 --max-retries 0 10.77.0.2", |said, _| {
        assert!(!said.text.contains(" open "), "{}", said.text);
    });
}

/// Fewer protocols than errors that a peer gets in one go: probes after those may stay without an
/// answer, and nmap has no result for them then.
#[test]
fn a_scan_of_ipv4_protocols_finds_those_that_we_have() {
    let words = "-n -Pn -sO -T5 --max-retries 1 -p 1,17,33,50,89,132 10.77.0.2";
    scanned(Kind::Packet, words, |said, _| {
        let lines = ["1 open icmp", "17 open udp", "33 closed dccp", "50 closed esp"];
        for line in lines.iter().chain(&["89 closed ospfigp", "132 closed sctp"]) {
            assert!(said.has_words(line), "{line}: {}", said.text);
        }
    });
}

#[test]
fn a_scan_of_ipv6_protocols_finds_nothing_that_we_have_not() {
    scanned(Kind::Tap, "-6 -n -Pn -sO -T5 --max-retries 1 fd77::2", |said, _| {
        for line in ["4 open ipv4", "41 open ipv6", "47 open gre"] {
            assert!(!said.has_words(line), "{}", said.text);
        }
    });
}

/// How the identifications of our packets follow each other, as nmap calls it: one by one (`I`,
/// also with the bytes in the wrong order, `BI`) or by small steps (`RI`) can be guessed.
#[test]
fn nmap_finds_no_order_in_our_identifications() {
    let words = "-n -Pn -O -d --max-os-tries 1 -sSU -p 7,8 10.77.0.2";
    scanned(Kind::Tap, words, |said, _| {
        // The fingerprint is broken anywhere into lines of its own, or stands whole where no known
        // system is the same.
        let (_, fingerprint) = said.text.split_once("fingerprint:\n").expect(&said.text);
        let lines = fingerprint.lines().map(|line| line.strip_prefix("OS:").unwrap_or(line));
        let fingerprint: String = lines.take_while(|line| !line.is_empty()).collect();
        assert!(fingerprint.contains("SCAN("), "{}", said.text);
        let mut classes = String::new();
        for class in ["TI=", "CI=", "II="] {
            let Some((_, rest)) = fingerprint.split_once(class) else { continue };
            let value = rest.split(['%', ')']).next().unwrap();
            classes += &format!(" {class}{value}");
            assert!(!["I", "BI", "RI"].contains(&value), "{fingerprint}");
        }
        tell(&format!("nmap's classes of identification:{classes}"));
    });
}
