//! Mistakes of others in 2025 and 2026 (rows 74, 75 and 82 of the list of attacks); the other rows
//! up to 82 stand beside what they are about, as `docs/threats.md` lists them.

use std::net::SocketAddr;
use std::time::Duration;

use floodwall_base::{DropReason, Family, IfIndex, Instant, Randomness};
use floodwall_ip::{IcmpAllowance, IcmpLimit, IcmpLimitConfig};
use floodwall_tests::Rig;
use floodwall_tests::craft::{
    FAMILIES, HOST, PEER, addr, echo, fragments, from_peer, ipv6_chain, options_header, udp,
};
use floodwall_udp::SocketSettings;
use floodwall_wire::IpProtocol;

use crate::rig;

/// CVE-2026-23016: a datagram that a program does not read kept what it arrived by: the fragments'
/// buffers, their queue, the interface.
#[test]
fn row_74_a_reassembled_datagram_pins_no_more_than_itself() {
    for family in FAMILIES {
        let mut rig = rig();
        let local = SocketAddr::new(addr(family, HOST), 5000);
        let settings = SocketSettings { receive_bytes: 1 << 20, ..SocketSettings::new(family) };
        let id = rig.sockets(|s| s.udp_bind(local, settings)).0.expect("a socket");
        let from = SocketAddr::new(addr(family, PEER), 4000);
        let packet = udp(from, local, &vec![7; 20_000]);
        let free = rig.pool.available().frames;
        let pieces = fragments(&packet, 9, 1400);
        // Some come twice: the copies must not stay either.
        for piece in pieces.iter().take(5).chain(&pieces) {
            rig.frame(&from_peer(piece));
        }
        let held = free - rig.pool.available().frames;
        assert!((1..=pieces.len()).contains(&held), "{held} frames for {} pieces", pieces.len());
        // The store has forgotten it: the same pieces may begin another, and time frees nothing.
        rig.run_for(Duration::from_secs(90));
        assert_eq!(free - rig.pool.available().frames, held);
        // The interface may go meanwhile, and what is read is whole.
        let now = rig.now;
        rig.stack.set_up(IfIndex(1), false, now, &mut rig.random);
        let mut out = vec![0; 30_000];
        let got = rig.sockets(|s| s.udp_recv(id, &mut out)).0.expect("it waits").len;
        assert_eq!((got, out[got - 1]), (20_000, 7));
        assert_eq!(rig.pool.available().frames, free, "{family:?}");
        assert!(rig.conservation().holds());
    }
}

/// Linux b1216f1d667b: a server ends, and the retries of all its clients are answered one by one.
#[test]
fn row_75_retries_to_a_port_that_has_closed_are_answered_within_the_limit() {
    for family in FAMILIES {
        let mut rig = rig();
        let (host, peer) = (addr(family, HOST), addr(family, PEER));
        let (mut told, mut served, mut asked) = (0, 0, 0);
        for n in 0..100_000_u32 {
            let from = SocketAddr::new(peer, 1024 + (n % 60_000) as u16);
            let retry = udp(from, SocketAddr::new(host, 5353), b"again");
            told += rig.frame(&from_peer(&retry)).len();
            if n % 1000 == 0 {
                rig.run_for(Duration::from_millis(10));
                served += rig.frame(&from_peer(&echo(peer, host, b"?"))).len();
                asked += 1;
            }
        }
        assert!(told <= 250, "{told} messages in a second");
        assert_eq!((served, asked), (100, 100), "others are served");
        assert!(rig.conservation().holds());
    }
}

/// The limiter's arithmetic at the ends of its settings.
#[test]
fn row_75_limits_of_any_size_neither_wrap_nor_divide_by_zero() {
    let rates = [(0, 0), (0, u32::MAX), (1, 1), (1, u32::MAX), (u32::MAX, 1), (u32::MAX, u32::MAX)];
    for (per_second, burst) in rates {
        let mut icmp = IcmpLimitConfig::default();
        for rate in [&mut icmp.error_peer, &mut icmp.error_all, &mut icmp.echo_peer] {
            (rate.per_second, rate.burst) = (per_second, burst);
        }
        let mut random = Randomness::from_number(75);
        for family in FAMILIES {
            let (peer, none) = (addr(family, PEER), per_second == 0 || burst == 0);
            let mut limit = IcmpLimit::new(&icmp, random.secret.hash_key());
            let mut now = Instant::from_nanos(1);
            let mut ask = |now| match limit.allow_echo(peer, now, &mut random.secret) {
                IcmpAllowance::Yes => limit.allow_error(peer, now, &mut random.secret),
                no => no,
            };
            let allowed = (0..100).filter(|_| ask(now) == IcmpAllowance::Yes).count();
            match burst {
                _ if none => assert_eq!(allowed, 0),
                u32::MAX => assert_eq!(allowed, 100),
                _ => assert!((1..=100).contains(&allowed)),
            }
            for _ in 0..3 {
                now += Duration::from_secs(3);
                assert_eq!(ask(now) == IcmpAllowance::Yes, !none, "{per_second} {burst}");
            }
        }
    }
}

/// A filter that cannot read a header must not let it pass, and no drop may be uncounted: the
/// host's own sockets behind chains of headers that are too long, cut, or in a first fragment.
#[test]
fn row_82_what_hides_its_upper_header_reaches_no_socket() {
    let options = IpProtocol::DESTINATION_OPTIONS;
    let mut rig = rig();
    let local = SocketAddr::new(addr(Family::V6, HOST), 5000);
    let id = rig.sockets(|s| s.udp_bind(local, SocketSettings::new(Family::V6))).0.expect("one");
    let from = SocketAddr::new(addr(Family::V6, PEER), 4000);
    let upper = udp(from, local, b"hidden")[40..].to_vec();
    let header = options_header(&[1, 4, 0, 0, 0, 0]);
    let reaches = |rig: &mut Rig, packet: &[u8]| {
        rig.frame(&from_peer(packet));
        rig.sockets(|s| s.udp_recv(id, &mut [0; 64]).is_ok()).0
    };
    let chain = |count: usize| vec![(options, &header[..]); count];
    let short = ipv6_chain(&chain(1), IpProtocol::UDP, &upper);
    assert!(reaches(&mut rig, &short), "what can be read is delivered");
    for count in [9, 17, 40] {
        let long = ipv6_chain(&chain(count), IpProtocol::UDP, &upper);
        let before = rig.stats().drops_in.of(DropReason::ExtensionLimit);
        assert!(!reaches(&mut rig, &long), "{count} headers");
        assert_eq!(rig.stats().drops_in.of(DropReason::ExtensionLimit), before + 1);
    }
    // The first fragment ends behind the header before the upper one (RFC 7112 section 5).
    for piece in fragments(&short, 5, 8) {
        assert!(!reaches(&mut rig, &piece));
    }
    assert!(rig.conservation().holds());
}
