//! Rates hold on average, peers do not starve each other, and counting answers reveals little.

use core::time::Duration;

use floodwall_base::Randomness;

use super::*;

const KEY: HashKey = HashKey::new(7, 9);

fn limit() -> IcmpLimit {
    IcmpLimit::new(&IcmpLimitConfig::default(), KEY)
}

fn random(seed: u64) -> SecretRandom {
    Randomness::from_number(seed).secret
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn now() -> Instant {
    Instant::ORIGIN + Duration::from_secs(100)
}

#[test]
fn one_peer_gets_its_rate_in_both_families() {
    for peer in ["192.0.2.1", "2001:db8::1", "fe80::1"] {
        let (mut limit, mut random) = (limit(), random(1));
        let mut sent = 0;
        for millisecond in 0..10_000 {
            let at = now() + Duration::from_millis(millisecond);
            sent += u32::from(limit.allow_error(ip(peer), at, &mut random) == IcmpAllowance::Yes);
        }
        // 100 a second and 50 at once, over ten seconds.
        assert!((950..1150).contains(&sent), "{peer}: {sent}");
    }
}

#[test]
fn echo_replies_have_a_higher_share_of_their_own() {
    let (mut limit, mut random) = (limit(), random(2));
    let peer = ip("192.0.2.1");
    while limit.allow_error(peer, now(), &mut random) == IcmpAllowance::Yes {}
    let sent =
        (0..5000).filter(|_| limit.allow_echo(peer, now(), &mut random) == IcmpAllowance::Yes);
    let sent = sent.count();
    assert!((850..1150).contains(&sent), "{sent}");
    assert_eq!(limit.allow_echo(peer, now(), &mut random), IcmpAllowance::PeerLimited);
    let later = now() + Duration::from_millis(10);
    assert_eq!(limit.allow_echo(peer, later, &mut random), IcmpAllowance::Yes);
}

#[test]
fn a_peer_over_its_share_costs_others_nothing() {
    let (mut limit, mut random) = (limit(), random(3));
    for millisecond in 0..1000 {
        let at = now() + Duration::from_millis(millisecond);
        for _ in 0..10 {
            let _ = limit.allow_error(ip("203.0.113.5"), at, &mut random);
        }
        // Another peer, at 20 a second, is always answered.
        if millisecond % 50 == 0 {
            assert_eq!(limit.allow_error(ip("192.0.2.9"), at, &mut random), IcmpAllowance::Yes);
        }
    }
}

#[test]
fn all_together_are_limited_however_many_they_are() {
    let (mut limit, mut random) = (limit(), random(4));
    let (mut sent, mut global) = (0_u32, 0_u32);
    for n in 0..100_000_u32 {
        let peer = IpAddr::V4((0x0a00_0000 + n).into());
        let at = now() + Duration::from_micros(u64::from(n) * 10);
        match limit.allow_error(peer, at, &mut random) {
            IcmpAllowance::Yes => sent += 1,
            IcmpAllowance::GlobalLimited => global += 1,
            IcmpAllowance::PeerLimited => {}
        }
    }
    assert!((950..1150).contains(&sent), "{sent}");
    assert!(global > 90_000);
}

#[test]
fn a_whole_ipv6_subnet_is_one_peer_and_a_link_is_many() {
    let (mut limit, mut random) = (limit(), random(5));
    let (mut subnet, mut link) = (0, 0);
    for n in 0..200 {
        let far = ip(&format!("2001:db8::{n:x}"));
        subnet += u32::from(limit.allow_echo(far, now(), &mut random) == IcmpAllowance::Yes);
    }
    assert_eq!(subnet, 200);
    for n in 0..4000 {
        let far = ip(&format!("2001:db8::{n:x}"));
        let near = ip(&format!("fe80::{n:x}"));
        subnet += u32::from(limit.allow_echo(far, now(), &mut random) == IcmpAllowance::Yes);
        link += u32::from(limit.allow_echo(near, now(), &mut random) == IcmpAllowance::Yes);
    }
    assert!(subnet < 1150 && link > 3900, "{subnet} {link}");
}

#[test]
fn nothing_leaves_where_the_rate_is_zero() {
    let none = IcmpRate { per_second: 0, burst: 5 };
    let config = IcmpLimitConfig { error_all: none, echo_peer: none, ..Default::default() };
    let (mut limit, mut random) = (IcmpLimit::new(&config, KEY), random(6));
    let peer = ip("192.0.2.1");
    assert_eq!(limit.allow_error(peer, now(), &mut random), IcmpAllowance::GlobalLimited);
    assert_eq!(limit.allow_echo(peer, now(), &mut random), IcmpAllowance::PeerLimited);
}

/// A spoofed scan of 50 ports, then probes of the attacker's own until it is refused: with one open
/// port there is one error less, and so one answer more to count. (CVE-2020-25705. A guess
/// is right half of the time; 55% is the bar.)
#[test]
fn counting_answers_after_a_spoofed_scan_tells_an_open_port_at_most_a_little() {
    let config = IcmpLimitConfig {
        // Peers' own shares out of the way: the share for all is what is attacked.
        error_peer: IcmpRate { per_second: 10_000, burst: 10_000 },
        ..Default::default()
    };
    let mut random = random(7);
    let trials = 4000_u32;
    let mut counted = [vec![0_u32; 200], vec![0_u32; 200]];
    for trial in 0..trials * 2 {
        let open = trial % 2;
        let mut limit = IcmpLimit::new(&config, KEY);
        for port in 0..40 - open {
            let spoofed = IpAddr::V4((0x0a00_0000 + port).into());
            let _ = limit.allow_error(spoofed, now(), &mut random);
        }
        let mine = ip("203.0.113.5");
        let mut answers = 0;
        while answers < 199 && limit.allow_error(mine, now(), &mut random) == IcmpAllowance::Yes {
            answers += 1;
        }
        counted[open as usize][answers] += 1;
    }
    // The best guess for each count, over both cases.
    let hits: u32 = counted[0].iter().zip(&counted[1]).map(|(a, b)| a.max(b)).sum();
    let rate = f64::from(hits) / f64::from(trials * 2);
    assert!(rate <= 0.55, "{rate}");
}
