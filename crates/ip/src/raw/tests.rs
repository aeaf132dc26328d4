//! The table alone: permissions, filters, and the cost of sockets that do not read.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_packet::PoolConfig;

use super::*;

fn pool() -> Pool {
    Pool::new(&PoolConfig { small: 64, frames: 128, references: 512, ..Default::default() })
        .unwrap()
}

const FROM: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const TO: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

fn packet(pool: &Pool, upper: &[u8]) -> PacketBuf {
    let mut bytes = vec![0x60, 0, 0, 0, 0, 0, 200, 61];
    bytes.extend(FROM.octets());
    bytes.extend(TO.octets());
    bytes.extend(upper);
    pool.packet_from(&bytes).unwrap()
}

fn input(protocol: u8) -> RawInput {
    let (src_addr, dst_addr, protocol) = (FROM.into(), TO.into(), IpProtocol(protocol));
    RawInput { src_addr, dst_addr, iface: IfIndex(1), protocol, l3: 0, l4: 40 }
}

fn show(sockets: &mut RawSockets, pool: &Pool, input: &RawInput, upper: &[u8]) -> bool {
    sockets.input(input, &packet(pool, upper), pool, &mut AccessCounters::default())
}

#[test]
fn nothing_opens_one_where_none_is_allowed() {
    let settings = RawSettings::new(Family::V6, IpProtocol(200));
    assert_eq!(RawSockets::new(0).open(settings), Err(RawOpenError::NotAllowed));
    let mut sockets = RawSockets::new(2);
    let id = sockets.open(settings).unwrap();
    sockets.open(settings).unwrap();
    assert_eq!(sockets.open(settings), Err(RawOpenError::TooMany(2)));
    sockets.close(id);
    assert_eq!(sockets.settings(id), Err(RawClosed));
    sockets.open(settings).unwrap();
    sockets.close(id);
    assert_eq!(sockets.open(settings), Err(RawOpenError::TooMany(2)), "an old name closes nothing");
}

#[test]
fn only_the_protocols_and_ends_that_a_socket_wants_are_heard() {
    let pool = pool();
    let v6 = RawSettings::new(Family::V6, IpProtocol(200));
    let other = Ipv6Addr::LOCALHOST.into();
    for (settings, hears) in [
        (v6, true),
        (RawSettings { local: Some(TO.into()), peer: Some(FROM.into()), ..v6 }, true),
        (RawSettings { iface: Some(IfIndex(1)), ..v6 }, true),
        (RawSettings { local: Some(other), ..v6 }, false),
        (RawSettings { peer: Some(other), ..v6 }, false),
        (RawSettings { iface: Some(IfIndex(2)), ..v6 }, false),
        (RawSettings::new(Family::V4, IpProtocol(200)), false),
        (RawSettings::new(Family::V6, IpProtocol(199)), false),
    ] {
        let mut sockets = RawSockets::new(1);
        let id = sockets.open(settings).unwrap();
        assert!(sockets.hears(settings.family, settings.protocol));
        assert_eq!(show(&mut sockets, &pool, &input(200), b"upper"), hears, "{settings:?}");
        let mut out = [0; 9];
        match sockets.recv(id, &mut out) {
            Ok(got) => {
                assert!(hears);
                assert_eq!(
                    (&out[..got.len], got.from, got.to),
                    (&b"upper"[..], FROM.into(), TO.into())
                );
                assert_eq!((got.hop_limit, got.iface, got.truncated), (61, IfIndex(1), false));
            }
            Err(error) => assert!(!hears && error == RawRecvError::WouldBlock),
        }
        sockets.close(id);
        assert!(!sockets.hears(settings.family, settings.protocol));
    }
}

#[test]
fn a_filter_passes_the_types_that_it_names() {
    let pool = pool();
    for (kind, passed) in [(0, true), (63, true), (64, false), (129, true), (255, true), (1, false)]
    {
        let filter =
            [0, 63, 129, 255].into_iter().fold(Icmpv6Filter::BLOCK_ALL, Icmpv6Filter::passing);
        assert_eq!(filter.passes(kind), passed);
        assert!(Icmpv6Filter::PASS_ALL.passes(kind) && !Icmpv6Filter::BLOCK_ALL.passes(kind));
        let mut sockets = RawSockets::new(1);
        let settings = RawSettings { filter, ..RawSettings::new(Family::V6, IpProtocol::ICMPV6) };
        sockets.open(settings).unwrap();
        assert_eq!(show(&mut sockets, &pool, &input(58), &[kind, 0, 0, 0]), passed);
    }
}

/// The view keeps the packet's frame from being used again: it counts with it.
#[test]
fn a_reader_that_does_not_read_pins_no_more_than_its_limit_and_others_lose_nothing() {
    let pool = pool();
    let mut sockets = RawSockets::new(2);
    let upper = [7; 1000];
    let frame = u64::from(packet(&pool, &upper).true_size());
    let settings = RawSettings::new(Family::V6, IpProtocol(200));
    let lazy = RawSettings { receive_bytes: 4 * frame, ..settings };
    let (lazy, eager) = (sockets.open(lazy).unwrap(), sockets.open(settings).unwrap());
    let free = pool.available();
    for _ in 0..1000 {
        assert!(show(&mut sockets, &pool, &input(200), &upper));
        assert!(sockets.recv(eager, &mut [0; 1000]).is_ok());
    }
    let pinned = free.frames - pool.available().frames;
    assert!((1..=4).contains(&pinned), "{pinned} frames");
    assert_eq!(sockets.drops(lazy), Ok(1000 - pinned as u64));
    assert_eq!(sockets.drops(eager), Ok(0));
    sockets.close(lazy);
    assert_eq!(pool.available(), free);
}

#[test]
fn a_packet_carries_the_checksum_that_its_settings_want_wherever_it_stands() {
    let (pool, mut access) = (pool(), AccessCounters::default());
    let ends = (FROM.into(), TO.into());
    for (protocol, offset, at) in [(58, None, Some(2)), (58, Some(4), Some(2)), (200, None, None)]
        .into_iter()
        .chain([(200, Some(0), Some(0)), (200, Some(14), Some(14)), (17, Some(6), Some(6))])
    {
        for len in [16, 17, 1999, 5000] {
            let mut sockets = RawSockets::new(1);
            let settings = RawSettings::new(Family::V6, IpProtocol(protocol));
            let id = sockets.open(RawSettings { checksum_offset: offset, ..settings }).unwrap();
            let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let made = sockets.packet(&pool, id, ends, &payload, &mut access).unwrap();
            let mut bytes = vec![0; len];
            made.copy_out(0, &mut bytes);
            let pseudo = pseudo_header_v6(FROM, TO, protocol, len as u32);
            match at {
                None => assert_eq!(bytes, payload),
                Some(at) => {
                    assert!(pseudo.add(floodwall_checksum::sum(&bytes)).verifies());
                    bytes[at..at + 2].copy_from_slice(&payload[at..at + 2]);
                    assert_eq!(bytes, payload, "nothing else is touched");
                }
            }
        }
    }
    for (len, offset) in [(0, 0), (1, 0), (16, 15), (16, 16), (16, 3)] {
        let mut sockets = RawSockets::new(1);
        let settings = RawSettings::new(Family::V6, IpProtocol(200));
        let id = sockets.open(RawSettings { checksum_offset: Some(offset), ..settings }).unwrap();
        let made = sockets.packet(&pool, id, ends, &vec![0; len], &mut access);
        assert_eq!(made.map(|_| ()), Err(RawPacketError::ChecksumOffset), "{len} {offset}");
    }
    let mut sockets = RawSockets::new(1);
    let id = sockets.open(RawSettings::new(Family::V4, IpProtocol(200))).unwrap();
    let to = Ipv4Addr::LOCALHOST.into();
    assert!(sockets.packet(&pool, id, (to, to), b"v4", &mut access).is_ok());
    let other = sockets.packet(&pool, id, ends, b"v6", &mut access).map(|_| ());
    assert_eq!(other, Err(RawPacketError::AddressFamily));
    let long = sockets.packet(&pool, id, (to, to), &[0; 65_516], &mut access).map(|_| ());
    assert_eq!(long, Err(RawPacketError::MessageTooLong { max: 65_515 }));
}
