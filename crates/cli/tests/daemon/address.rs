//! `floodwall address`, `link` and `neigh` against a running instance on a TAP of its own, and
//! `floodwall pktgen`.
//!
//! Needs root, for a network namespace and the TAP; reports that it was skipped elsewhere. The
//! tests of syntax errors need neither.

use std::process::{Command, Output};
use std::time::Duration;

use crate::support::{BIN, Ended, Instance, may};
use rustix::process::Signal;
use serde_json::Value;

/// An instance, asked in words.
struct Running(Instance);

impl Running {
    fn start(name: &str, flags: &[&str]) -> Self {
        let args: Vec<_> = ["--device=tap:fw0"].iter().chain(flags).copied().collect();
        Self(Instance::start(name, &args))
    }

    fn ask(&self, words: &str) -> Output {
        self.0.ask(&words.split(' ').collect::<Vec<_>>())
    }

    /// A refused command: its exit code and its message.
    fn refused(&self, words: &str) -> (i32, String) {
        let output = self.ask(words);
        assert!(output.stdout.is_empty(), "{words}: {output:?}");
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }

    fn done(&self, words: &str) -> String {
        let output = self.ask(words);
        assert!(output.status.success() && output.stderr.is_empty(), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn address(&self, local: &str) -> Option<Value> {
        let all: Value = serde_json::from_str(&self.done("address show -j")).unwrap();
        let links = all.as_array().unwrap().iter();
        let mut addresses = links.flat_map(|link| link["addr_info"].as_array().unwrap());
        addresses.find(|address| address["local"] == local).cloned()
    }

    fn end(self) -> String {
        let Ended { code, said, .. } = self.0.end_by(Signal::TERM);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.ends_with("every packet is accounted for exactly once\n"), "{said}");
        said
    }
}

#[test]
fn addresses_come_and_go_in_the_words_of_ip() {
    if !may() {
        return;
    }
    let running = Running::start("words", &["--address=10.0.0.2/24"]);
    assert_eq!(running.done("address add 10.0.0.9/24 dev fw0"), "");
    assert_eq!(running.done("a a fd00::9/64 dev fw0 valid_lft 600 preferred_lft 300"), "");
    let four = running.address("10.0.0.9").unwrap();
    assert_eq!(four["family"], "inet");
    assert_eq!((&four["prefixlen"], &four["scope"]), (&24.into(), &"global".into()));
    assert_eq!(four["valid_life_time"], u32::MAX);
    assert!(four.get("dynamic").is_none());
    let six = running.address("fd00::9").unwrap();
    assert_eq!((&six["dynamic"], &six["tentative"]), (&true.into(), &true.into()));
    assert!((1..=300).contains(&six["preferred_life_time"].as_u64().unwrap()), "{six}");
    let shown = running.done("addr show dev fw0");
    assert!(shown.contains("1: fw0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500"), "{shown}");
    assert!(shown.contains("    inet 10.0.0.9/24 scope global fw0\n"), "{shown}");
    assert!(shown.contains("valid_lft forever preferred_lft forever"), "{shown}");
    for (words, part) in [
        ("address add 10.0.0.9/24 dev fw0", "10.0.0.9 is on fw0 already"),
        ("address add 10.0.0.255/24 dev fw0", "cannot be an interface's address"),
        ("address add 10.0.0.9/24 dev fw7", "there is no interface \"fw7\"; there are lo, fw0"),
        ("address add 10.1.0.9/24 dev lo", "the loopback keeps its own addresses"),
        ("address del 10.0.0.77 dev fw0", "fw0 does not have 10.0.0.77"),
        ("address del 10.0.0.9/16 dev fw0", "fw0 has 10.0.0.9/24, not 10.0.0.9/16"),
        ("address show dev fw7", "there is no interface \"fw7\""),
        ("link set fw7 up", "there is no interface \"fw7\""),
    ] {
        let (code, said) = running.refused(words);
        assert_eq!(code, 2, "{words}");
        assert!(said.contains(part) && said.contains("; "), "{words}: {said}");
    }
    assert_eq!(running.done("address del 10.0.0.9/24 dev fw0"), "");
    assert_eq!(running.address("10.0.0.9"), None);
    running.end();
}

#[test]
fn neighbours_and_routes_stand_in_the_words_of_ip() {
    if !may() {
        return;
    }
    let routes = ["--address=10.0.0.2/24", "--route=192.0.2.0/24 via 10.0.0.1"];
    let running = Running::start("neigh", &routes);
    // Of `route` every option stands before the words.
    let socket = running.0.socket();
    let shown = Command::new(BIN)
        .args(["route", "--socket", socket.to_str().unwrap(), "show"])
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("192.0.2.0/24 via 10.0.0.1 dev fw0"), "{shown}");
    let add = "neigh add 10.0.0.7 lladdr 02:00:00:00:00:07 dev fw0";
    assert_eq!(running.done(add), "");
    assert_eq!(running.done("neigh add fd00::7 lladdr 02:00:00:00:00:07 dev fw0"), "");
    let shown = running.done("neigh show dev fw0");
    assert!(shown.contains("10.0.0.7 dev fw0 lladdr 02:00:00:00:00:07 PERMANENT\n"), "{shown}");
    let all: Value = serde_json::from_str(&running.done("neigh -6 show -j")).unwrap();
    assert_eq!(all.as_array().unwrap().len(), 1);
    assert_eq!((&all[0]["dst"], &all[0]["state"][0]), (&"fd00::7".into(), &"PERMANENT".into()));
    for (words, part) in [
        (add, "10.0.0.7 is known on fw0 already"),
        ("neigh change 10.0.0.8 lladdr 02:00:00:00:00:08 dev fw0", "10.0.0.8 is not known on fw0"),
        ("neigh add 10.0.0.2 lladdr 02:00:00:00:00:08 dev fw0", "an address of this host"),
        ("neigh add 10.0.0.8 lladdr 02:00:00:00:00:08 dev lo", "lo has no link addresses"),
        ("neigh del 10.0.0.8 dev fw0", "10.0.0.8 is not known on fw0"),
    ] {
        let (code, said) = running.refused(words);
        assert_eq!(code, 2, "{words}");
        assert!(said.contains(part), "{words}: {said}");
    }
    assert_eq!(running.done("neigh replace 10.0.0.7 lladdr 02:00:00:00:00:09 dev fw0"), "");
    assert!(running.done("neigh show 10.0.0.7").contains("lladdr 02:00:00:00:00:09"));
    assert_eq!(running.done("neigh flush dev fw0"), "", "permanent ones stay");
    assert!(running.done("neigh show").contains("10.0.0.7"));
    assert_eq!(running.done("neigh del 10.0.0.7 dev fw0"), "");
    assert_eq!(running.done("neigh flush dev fw0 nud all"), "");
    // The gateway may be found again by now.
    let left = running.done("neigh show");
    assert!(!left.contains("10.0.0.7") && !left.contains("fd00::7"), "{left}");
    running.end();
}

/// In a network namespace of its own, over its loopback.
#[test]
fn the_generator_sends_what_a_script_says_and_only_where_it_may() {
    const SCRIPT: &str = "#!/bin/sh\nCOUNT=\"count 2000\"\necho \"Configuring $PGDEV\"\n\
        pgset \"$COUNT\"\npgset \"flag IPDST_RND\"\npgset \"dst_min 127.0.0.1\"\n\
        pgset \"dst_max 127.0.0.9\"\n";
    let path = std::env::temp_dir().join(format!("floodwall-pgset-{}.sh", std::process::id()));
    std::fs::write(&path, SCRIPT).unwrap();
    let words = "--device packet:lo --address 127.0.0.1/8 --peer 02:00:00:00:00:01 -j";
    let words: Vec<&str> = words.split(' ').collect();
    let refused = Command::new(BIN).arg("pktgen").arg(&path).args(&words).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("--i-own-this-network"), "{said}");
    std::fs::write(&path, SCRIPT.replace("IPDST_RND", "IPDST_ROUND")).unwrap();
    let wrong = Command::new(BIN).arg("pktgen").arg(&path).args(&words).output().unwrap();
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(said.contains("line 5: `IPDST_ROUND`: is no flag"), "{said}");
    if may() {
        std::fs::write(&path, SCRIPT).unwrap();
        // Not everywhere may one see whether this is the system's own network.
        let (path, words) = (path.display(), words.join(" "));
        let generate = format!("{BIN} pktgen {path} {words} --i-own-this-network");
        let line = format!("ip link set lo up && exec {generate}");
        let output = Command::new("unshare").args(["--net", "sh", "-c", &line]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        assert!(said.contains("Configuring /proc/net/pktgen/lo"), "{said}");
        let sent: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&sent["sent"], &sent["frames"]), (&2000.into(), &2000.into()), "{sent}");
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_table_that_is_full_says_so() {
    if !may() {
        return;
    }
    let running = Running::start("full", &["--address=10.0.0.2/24"]);
    let refused = (1..=40).find_map(|host| {
        let words = format!("address add 10.7.0.{host}/24 dev fw0");
        let output = running.ask(&words);
        (!output.status.success()).then(|| (host, String::from_utf8(output.stderr).unwrap()))
    });
    let (host, said) = refused.unwrap();
    assert_eq!(host, floodwall_base::limits::ADDRESSES_MAX);
    assert!(said.contains("addresses of this family already; delete one first"), "{said}");
    running.end();
}

#[test]
fn a_link_that_is_set_down_is_seen_down_and_comes_back() {
    if !may() {
        return;
    }
    let running = Running::start("link", &["--address=10.0.0.2/24"]);
    assert!(running.done("link show").contains("state UP"));
    assert_eq!(running.done("link set dev fw0 down"), "");
    let down: Value = serde_json::from_str(&running.done("link show dev fw0 -j")).unwrap();
    assert_eq!(down[0]["operstate"], "DOWN");
    assert!(down[0].get("addr_info").is_none());
    // Long enough for the watch to see it.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(running.done("link set fw0 up"), "");
    assert!(running.done("link show dev fw0").contains("state UP"));
    assert!(running.end().contains("fw0: the link is down"));
}

#[test]
fn without_an_address_the_link_is_asked_and_with_one_nothing_is() {
    if !may() {
        return;
    }
    for (flags, asked) in [
        (&[][..], "asking DHCP servers and IPv6 routers"),
        (&["--dhcp=false"], "asking IPv6 routers"),
        (&["--dhcp=false", "--accept-ra=false"], "address configuration is off"),
    ] {
        let running = Running::start("asks", flags);
        let report: Value = serde_json::from_str(&running.done("stat --json")).unwrap();
        let leases = report["network"]["leases"].as_array().unwrap();
        assert_eq!(leases.len(), usize::from(flags.is_empty()), "{flags:?}");
        assert!(running.end().contains(asked), "{flags:?}");
    }
    let running = Running::start("given", &["--address=10.0.0.2/24"]);
    let report: Value = serde_json::from_str(&running.done("stat --json")).unwrap();
    assert_eq!(report["network"]["leases"].as_array().unwrap().len(), 0);
    running.end();
}

#[test]
fn wrong_words_are_named_before_anybody_is_asked() {
    for (words, part) in [
        ("address dance", "address: \"dance\" is no word here; use `add ADDRESS/LENGTH dev IFACE`"),
        ("address add 10.0.0.9/24", "the interface is missing"),
        ("address add 10.0.0.9 dev fw0", "10.0.0.9 lacks its prefix length"),
        ("link set fw0 sideways", "link: \"sideways\" is neither up nor down"),
    ] {
        let output = Command::new(BIN).args(words.split(' ')).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words}: {said}");
        assert!(said.contains(part), "{words}: {said}");
    }
}
