//! `floodwall address` and links that go down and come up, under a running instance.

use std::time::Duration;

use crate::attacks::ADDRESSES;
use crate::command::{Said, ip};
use crate::instance::Instance;
use crate::link::{Kind, MTU, NAME, OTHER_END};
use crate::namespace::{inside, pause, until};
use crate::site::{Host, Site};

/// How long a change may take to arrive, detection of duplicates included.
const PATIENCE: Duration = Duration::from_secs(10);

/// Us with an address of each family, and another host; `None`, and said so, where this machine
/// cannot.
fn set_up(kind: Kind) -> Option<(Host, Instance)> {
    let site = Site::new(MTU);
    let host = site.host(3);
    let instance = Instance::start(&site, kind, ADDRESSES)?;
    for addr in ["10.77.0.2", "fd77::2"] {
        assert!(until(PATIENCE, || host.is_answered(addr)), "{addr}");
    }
    Some((host, instance))
}

fn done(said: &Said) {
    assert!(said.status.success(), "{} {}", said.text, said.complaint);
}

fn changed(kind: Kind) {
    inside(move || {
        let Some((host, instance)) = set_up(kind) else { return };
        let stat = instance.stat();
        let name = stat["devices"][0]["ifname"].as_str().unwrap();
        for (addr, len) in [("10.77.0.50", 24), ("fd77::50", 64)] {
            let (word, shown) = (format!("{addr}/{len} dev {name}"), format!("{addr}/{len}"));
            let is_shown = || instance.command("address show").text.contains(&shown);
            assert!(!is_shown() && !host.is_answered(addr));
            done(&instance.command(&format!("address add {word}")));
            assert!(until(PATIENCE, || host.is_answered(addr)), "{addr} is ours now");
            assert!(is_shown());
            // A second time it is refused, in words.
            let again = instance.command(&format!("address add {word}"));
            assert!(!again.status.success() && !again.complaint.is_empty());
            done(&instance.command(&format!("address del {word}")));
            assert!(!is_shown() && !host.is_answered(addr), "{addr} is ours no more");
        }
        // The others have not noticed.
        assert!(host.is_answered("10.77.0.2") && host.is_answered("fd77::2"));
        instance.end();
    });
}

#[test]
fn an_address_comes_and_goes_over_tap() {
    changed(Kind::Tap);
}

#[test]
fn an_address_comes_and_goes_over_a_packet_socket() {
    changed(Kind::Packet);
}

/// An address with a lifetime need not be removed by hand.
#[test]
fn an_address_for_a_time_goes_by_itself() {
    inside(|| {
        let Some((host, instance)) = set_up(Kind::Tap) else { return };
        for (addr, len) in [("10.77.0.50", 24), ("fd77::50", 64)] {
            let words = format!("address add {addr}/{len} dev {NAME} valid_lft 6 preferred_lft 5");
            done(&instance.command(&words));
            assert!(until(Duration::from_secs(5), || host.is_answered(addr)), "{addr} is ours now");
            let is_shown = || instance.command("address show").text.contains(addr);
            assert!(until(PATIENCE, || !is_shown()), "{addr} has had its time");
            assert!(!host.is_answered(addr));
        }
        instance.end();
    });
}

fn link_down_and_up(kind: Kind) {
    inside(move || {
        let Some((host, instance)) = set_up(kind) else { return };
        for _ in 0..2 {
            assert!(ip(&format!("link set {NAME} down")));
            pause(Duration::from_millis(600));
            assert!(!host.is_answered("10.77.0.2"));
            assert!(ip(&format!("link set {NAME} up")));
            for addr in ["10.77.0.2", "fd77::2"] {
                assert!(until(PATIENCE, || host.is_answered(addr)), "{addr} is back");
            }
        }
        instance.end();
    });
}

#[test]
fn a_link_goes_down_and_service_is_back_when_it_comes_up_over_tap() {
    link_down_and_up(Kind::Tap);
}

#[test]
fn a_link_goes_down_and_service_is_back_when_it_comes_up_over_a_packet_socket() {
    link_down_and_up(Kind::Packet);
}

/// Another name, link address and MTU are said, and nothing else changes; the interface's end ends
/// the process, in words.
fn renamed_changed_and_deleted(kind: Kind) {
    const NAME_NEW: &str = "fwrenamed";
    const ADDRESS_NEW: &str = "02:00:00:00:55:99";
    inside(move || {
        let Some((host, instance)) = set_up(kind) else { return };
        let is_answered = || {
            for addr in ["10.77.0.2", "fd77::2"] {
                assert!(until(PATIENCE, || host.is_answered(addr)), "{addr}");
            }
        };
        let link = |stat: &serde_json::Value| stat["network"]["links"][1].clone();
        for change in [
            format!("link set {OTHER_END} name {NAME_NEW}"),
            format!("link set {NAME_NEW} address {ADDRESS_NEW}"),
            format!("link set {NAME_NEW} mtu 1400"),
        ] {
            assert!(ip(&change), "{change}");
            // Longer than it takes to be seen.
            pause(Duration::from_millis(600));
            is_answered();
        }
        let stat = instance.wait_for(PATIENCE, |stat| link(stat)["mtu"] == 1400);
        assert_ne!(link(&stat)["operstate"], "DOWN");
        assert!(ip(&format!("link del {NAME_NEW}")));
        let said = instance.wait(PATIENCE);
        assert_eq!(said.status.code(), Some(1), "{}", said.complaint);
        for words in [
            format!("{OTHER_END} is called {NAME_NEW} now"),
            format!("{NAME_NEW} has the link address {ADDRESS_NEW} now"),
            format!("{NAME_NEW}: packets of up to 1400 bytes from now on"),
            "no device is left".to_owned(),
        ] {
            let lines = said.complaint.matches(&words).count();
            assert_eq!(lines, 1, "{words}: {}", said.complaint);
        }
        assert!(!said.complaint.contains("panicked"), "{}", said.complaint);
    });
}

#[test]
fn an_interface_is_renamed_changed_and_deleted_under_a_packet_socket() {
    renamed_changed_and_deleted(Kind::Packet);
}

#[test]
fn an_interface_is_renamed_changed_and_deleted_under_xdp() {
    renamed_changed_and_deleted(Kind::Xdp);
}
