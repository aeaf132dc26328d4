//! What a device reports of the first line: what is in force, asleep or awake, and why the rest is
//! not.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;

use floodwall_base::{IfIndex, Instant, MacAddr};
use floodwall_device::{
    Device, DeviceSpec, FirstLineMode, FirstLinePart, FirstLineReport, OpenConfig,
};
use floodwall_packet::{CookieKeys, RxFilter, SynOffer, SynOffers};

use crate::namespace::{inside, ip, skip, wait_millis};

const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0a]);

/// The device on our end of a new veth pair; `None`, and said so, where there is none.
fn opened(word: &str, first_line: FirstLineMode) -> Option<Box<dyn Device>> {
    if !(ip("link add ours type veth peer name kernels")
        && ip("link set ours up")
        && ip("link set kernels up"))
    {
        skip("no veth pair in this kernel");
        return None;
    }
    let config = OpenConfig { station: Some(OURS), first_line, ..OpenConfig::default() };
    match word.parse::<DeviceSpec>().unwrap().open(&config) {
        Ok(opened) => opened.queues.into_iter().next(),
        Err(error) => {
            skip(&error.to_string());
            None
        }
    }
}

/// The states of the parts: cookies, live flows, fair credit, redirect.
fn states(device: &dyn Device) -> [String; 4] {
    device.first_line_report().parts.map(|(_, state)| state.name().to_owned())
}

fn reason(device: &dyn Device, part: FirstLinePart) -> String {
    device.first_line_report().state(part).reason().unwrap_or_default().to_owned()
}

fn offers(addr: Option<&str>) -> SynOffers {
    let mut offers = SynOffers::default();
    offers.zone = IfIndex(1);
    let keys = CookieKeys { epoch: 1, until: Instant::FAR, keys: [(1, 2); 4], clock: (3, 4) };
    offers.keys = Some(keys);
    if let Some(addr) = addr {
        offers.add(SynOffer {
            addr: addr.parse::<IpAddr>().unwrap(),
            port: 80,
            window: 1000,
            mss: 1460,
            window_scale: 7,
            sack: true,
            timestamps: true,
            ecn: false,
            hop_limit: 64,
            traffic_class: 0,
        });
    }
    offers
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

#[test]
fn parts_sleep_until_the_worker_is_pressed_and_those_that_are_missing_say_why() {
    inside(|| {
        let Some(mut xdp) = opened("xdp:ours", FirstLineMode::Auto) else { return };
        // The peer of this veth has neither GRO nor a program.
        assert_eq!(states(&*xdp), ["asleep", "asleep", "asleep", "missing"]);
        assert!(reason(&*xdp, FirstLinePart::Redirect).contains("gro on"));
        // A stack that has no cookies to offer; one without listeners; one with one.
        for (told, words) in [
            (SynOffers::default(), "the stack offers none"),
            (offers(None), "no TCP listener"),
            (offers(Some("10.0.0.2")), ""),
            (offers(Some("fd00::2")), ""),
        ] {
            xdp.answer_syns(&told);
            let why = reason(&*xdp, FirstLinePart::Cookies);
            assert!(why.contains(words) && why.is_empty() == words.is_empty(), "{words}: {why}");
        }
        let mut wanted = RxFilter::default();
        wanted.nothing();
        wanted.add_v4([10, 0, 0, 2].into(), false);
        xdp.want(&wanted);
        for (now, credit, state) in [(1, Some(10), "awake"), (2, None, "asleep")] {
            xdp.admit(at(now), credit);
            let report = xdp.first_line_report();
            assert_eq!(states(&*xdp), [state, state, state, "missing"], "{report}");
        }
        // With the peer's GRO, which is looked for once a second, only a host has no redirect.
        if !Command::new("ethtool")
            .args(["-K", "kernels", "gro", "on"])
            .status()
            .is_ok_and(|s| s.success())
        {
            return skip("no ethtool");
        }
        let quiet = UdpSocket::bind("127.0.0.1:0").unwrap();
        let is_known = (0..3000).any(|_| {
            wait_millis(quiet.as_fd(), 10);
            reason(&*xdp, FirstLinePart::Redirect) == "this host forwards nothing"
        });
        assert!(is_known, "{}", xdp.first_line_report());
        wanted.any_v4 = true;
        xdp.want(&wanted);
        assert_eq!(states(&*xdp), ["asleep"; 4], "{}", xdp.first_line_report());
    });
}

#[test]
fn what_is_switched_off_or_not_to_be_had_is_missing_with_its_reason() {
    inside(|| {
        let Some(off) = opened("xdp:ours", FirstLineMode::Off) else { return };
        assert_eq!(off.first_line_report().common_reason(), Some("it is off, as configured"));
        drop(off);
        assert!(ip("link del ours"));
        let filter = opened("xdp:ours,mode=generic", FirstLineMode::Filter).unwrap();
        assert_eq!(states(&*filter), ["missing", "asleep", "asleep", "missing"]);
        assert!(reason(&*filter, FirstLinePart::Cookies).contains("`--first-line filter`"));
        assert!(reason(&*filter, FirstLinePart::Redirect).contains("generic"));
        drop(filter);
        assert!(ip("link del ours"));
        let packet = opened("packet:ours", FirstLineMode::Off).unwrap();
        assert_eq!(packet.first_line_report().common_reason(), Some("it is off, as configured"));
        drop(packet);
        assert!(ip("link del ours"));
        // The peer of a veth cuts its segments for a program, so that it comes on demand.
        let packet = opened("packet:ours", FirstLineMode::Auto).unwrap();
        assert_eq!(states(&*packet), ["on-demand", "on-demand", "on-demand", "missing"]);
        assert!(reason(&*packet, FirstLinePart::Redirect).contains("use `xdp:`"));
        drop(packet);
        assert!(ip("link del ours"));
        let packet = opened("packet:ours", FirstLineMode::Cookies).unwrap();
        assert_eq!(states(&*packet), ["asleep", "asleep", "asleep", "missing"]);
    });
}

#[test]
fn a_device_without_a_program_has_one_reason_for_all_parts() {
    let (wire, _) = floodwall_device::pair(1);
    assert_eq!(wire.first_line_report(), FirstLineReport::default());
    assert!(wire.first_line_report().common_reason().is_some());
}
