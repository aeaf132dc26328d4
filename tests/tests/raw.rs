//! Raw sockets of a whole stack: which programs may have one, what it receives beside the others,
//! what it sends.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::net::IpAddr;

use floodwall_base::limits::{ICMP_SOCKETS_DIVISOR, RAW_SOCKETS_MAX};
use floodwall_base::{DropReason, Family, IfIndex};
use floodwall_stack::{
    Icmpv6Filter, RawId, RawOpenError, RawRecvError, RawSendError, RawSettings, StackConfig,
};
use floodwall_tests::craft::{
    FAMILIES, HOST, PEER, addr, echo, from_peer, icmp_of, ip, port_unreachable, pseudo, udp_to_port,
};
use floodwall_tests::{Owed, Rig, Sent, ethernet_config};
use floodwall_udp::SocketSettings;
use floodwall_wire::IpProtocol;

fn rig() -> Rig {
    let config = StackConfig { raw_sockets_max: 4, ..ethernet_config(HOST) };
    Rig::with_neighbor(&config, PEER)
}

fn open(rig: &mut Rig, settings: RawSettings) -> RawId {
    rig.sockets(|s| s.raw_open(settings)).0.unwrap()
}

fn heard(rig: &mut Rig, id: RawId) -> Option<Vec<u8>> {
    let mut out = vec![0; 2000];
    let got = rig.sockets(|s| s.raw_recv(id, &mut out)).0.ok()?;
    out.truncate(got.len);
    Some(out)
}

#[test]
fn without_leave_nothing_has_one() {
    let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
    for family in FAMILIES {
        let opened = rig.sockets(|s| s.raw_open(RawSettings::new(family, icmp_of(family)))).0;
        assert_eq!(opened, Err(RawOpenError::NotAllowed));
    }
}

#[test]
fn a_protocol_that_only_a_raw_socket_speaks_is_heard_and_not_answered() {
    for family in FAMILIES {
        let mut rig = rig();
        let protocol = IpProtocol(200);
        let packet = ip(addr(family, PEER), addr(family, HOST), protocol, b"hello");
        let owed = match family {
            Family::V4 => Owed::unreachable(family, 2),
            Family::V6 => Owed::problem_v6(1, 6),
        };
        rig.packet_is_dropped("no socket", &packet, DropReason::ProtocolUnknown, Some(owed));
        let id = open(&mut rig, RawSettings::new(family, protocol));
        assert!(rig.lives("heard", &from_peer(&packet)).is_empty());
        assert_eq!(heard(&mut rig, id).as_deref(), Some(&b"hello"[..]));
        rig.sockets(|s| s.raw_close(id));
        rig.packet_is_dropped("closed again", &packet, DropReason::ProtocolUnknown, Some(owed));
    }
}

/// What a raw socket receives is answered and delivered as if it were not there, and its reader may
/// sleep for ever: the others lose nothing, the pool no more than the limit.
#[test]
fn a_sleeping_reader_takes_nothing_from_the_receivers_of_the_packets() {
    for family in FAMILIES {
        let mut rig = rig();
        for protocol in [icmp_of(family), IpProtocol::UDP] {
            let settings =
                RawSettings { receive_bytes: 10_000, ..RawSettings::new(family, protocol) };
            open(&mut rig, settings);
        }
        let any = std::net::SocketAddr::new("::".parse().unwrap(), 7000);
        let socket = rig.sockets(|s| s.udp_bind(any, SocketSettings::new(Family::V6))).0.unwrap();
        let ask = from_peer(&echo(addr(family, PEER), addr(family, HOST), &[7; 900]));
        let datagram = from_peer(&udp_to_port(family, 7000, &[7; 900]));
        let free = rig.pool.available();
        for _ in 0..500 {
            rig.run_for(std::time::Duration::from_millis(1));
            let answers = rig.lives("an echo", &ask);
            assert_eq!(Sent::of(&answers[0]).icmp().body, [7; 900]);
            rig.lives("a datagram", &datagram);
            assert_eq!(rig.sockets(|s| s.udp_recv(socket, &mut [0; 1000])).0.unwrap().len, 900);
        }
        let pinned = free.frames - rig.pool.available().frames;
        assert!((2..=10).contains(&pinned), "{pinned} frames for two sockets of 10,000 bytes");
    }
}

/// As many sleeping readers as there may be pin no more than their part of the pool together, and
/// leave references; each has received something.
#[test]
fn many_sleeping_readers_have_one_part_of_the_memory() {
    for family in FAMILIES {
        let config = StackConfig { raw_sockets_max: RAW_SOCKETS_MAX, ..ethernet_config(HOST) };
        let mut rig = Rig::with_neighbor(&config, PEER);
        let all = rig.pool.available();
        let other = if family == Family::V4 { Family::V6 } else { Family::V4 };
        let ids: Vec<_> = (0..RAW_SOCKETS_MAX)
            .map(|n| {
                let of = if n % 8 == 7 { other } else { family };
                open(&mut rig, RawSettings::new(of, icmp_of(of)))
            })
            .collect();
        for n in 0..500 {
            rig.run_for(std::time::Duration::from_millis(1));
            for of in [family, other] {
                let ask = echo(addr(of, PEER), addr(of, HOST), &[n as u8; 900]);
                assert_eq!(rig.frame(&from_peer(&ask)).len(), 1, "it is answered all the same");
            }
        }
        let free = rig.pool.available();
        let part = (rig.pool.frames_true_bytes() / ICMP_SOCKETS_DIVISOR) as usize / 2176;
        assert!(all.frames - free.frames <= part + RAW_SOCKETS_MAX, "{free:?} of {all:?}");
        assert!(free.references >= all.references / 4, "{free:?} of {all:?}");
        assert!(ids.into_iter().all(|id| heard(&mut rig, id).is_some()));
    }
}

#[test]
fn an_icmp_listener_hears_whole_messages_with_a_right_checksum() {
    for family in FAMILIES {
        let mut rig = rig();
        let id = open(&mut rig, RawSettings::new(family, icmp_of(family)));
        let header = if family == Family::V4 { 20 } else { 40 };
        let ask = echo(addr(family, PEER), addr(family, HOST), b"overheard");
        rig.frame(&from_peer(&ask));
        assert_eq!(heard(&mut rig, id).as_deref(), Some(&ask[header..]));
        let mut broken = ask;
        broken[header + 9] ^= 1;
        rig.packet_is_dropped("broken", &broken, DropReason::IcmpChecksum, None);
        assert_eq!(heard(&mut rig, id), None);
    }
}

#[test]
fn a_filter_keeps_icmpv6_types_out() {
    let mut rig = rig();
    let filter = Icmpv6Filter::BLOCK_ALL.passing(129);
    let settings = RawSettings { filter, ..RawSettings::new(Family::V6, IpProtocol::ICMPV6) };
    let id = open(&mut rig, settings);
    rig.frame(&from_peer(&echo(addr(Family::V6, PEER), addr(Family::V6, HOST), b"?")));
    assert_eq!(heard(&mut rig, id), None);
}

#[test]
fn what_is_sent_leaves_from_our_own_address_and_with_a_checksum_where_the_family_has_one() {
    for family in FAMILIES {
        let mut rig = rig();
        let id = open(&mut rig, RawSettings::new(family, icmp_of(family)));
        let mut message =
            vec![if family == Family::V4 { 8 } else { 128 }, 0, 0, 0, 0, 7, 0, 1, 9, 9];
        if family == Family::V4 {
            let check = floodwall_checksum::sum(&message).finish();
            message[2..4].copy_from_slice(&check.to_be_bytes());
        }
        let (sent, frames) = rig.sockets(|s| s.raw_send(id, addr(family, PEER), None, &message));
        sent.unwrap();
        let sent = Sent::of(&frames[0]);
        assert_eq!((sent.from, sent.to), (addr(family, HOST), addr(family, PEER)));
        assert_eq!(sent.icmp().body, [9, 9]);
        // Another protocol goes as it is, from the address that the socket is bound to.
        let local = Some(addr(family, HOST));
        let id = open(&mut rig, RawSettings { local, ..RawSettings::new(family, IpProtocol(200)) });
        let frames = rig.sockets(|s| s.raw_send(id, addr(family, PEER), None, b"as it is")).1;
        let sent = Sent::of(&frames[0]);
        assert_eq!((sent.protocol, &sent.payload[..]), (IpProtocol(200), &b"as it is"[..]));
        // No address but ours.
        let forged: Option<IpAddr> = Some(addr(family, 9));
        let id = open(
            &mut rig,
            RawSettings { local: forged, ..RawSettings::new(family, IpProtocol(200)) },
        );
        let refused = rig.sockets(|s| s.raw_send(id, addr(family, PEER), None, b"?")).0;
        assert_eq!(refused, Err(RawSendError::NotOurs(addr(family, 9))));
    }
    // A checksum at a place of the program's choice.
    let mut rig = rig();
    let settings =
        RawSettings { checksum_offset: Some(4), ..RawSettings::new(Family::V6, IpProtocol(200)) };
    let id = open(&mut rig, settings);
    let frames = rig.sockets(|s| s.raw_send(id, addr(Family::V6, PEER), None, &[1; 9])).1;
    let sent = Sent::of(&frames[0]);
    let sum = floodwall_checksum::sum(&sent.payload);
    assert!(pseudo(sent.from, sent.to, IpProtocol(200), 9).add(sum).verifies());
}

#[test]
fn an_error_about_what_was_sent_is_reported_with_its_sender_and_kind() {
    for family in FAMILIES {
        let mut rig = rig();
        let protocol = IpProtocol(200);
        let id = open(&mut rig, RawSettings::new(family, protocol));
        let quoted = ip(addr(family, HOST), addr(family, PEER), protocol, b"was sent");
        rig.lives("an error", &from_peer(&port_unreachable(family, &quoted)));
        let told = rig.sockets(|s| s.raw_recv(id, &mut [])).0;
        let Err(RawRecvError::Icmp(report)) = told else { panic!("{told:?}") };
        assert_eq!((report.offender, report.iface), (addr(family, PEER), IfIndex(1)));
        assert_eq!(report.dst_addr, addr(family, PEER));
    }
}
