//! Any bytes through the header views: parse, show, write again, parse again; whole and in chunks.

use std::cell::RefCell;

use floodwall_base::{HashKey, Steering, WorkerId};
use floodwall_checksum::{InternetSum, sum};
use floodwall_packet::{AccessCounters, PacketBuf, Pool, PoolConfig};
use floodwall_wire::show;
use floodwall_wire::steer;
use floodwall_wire::tcp_options::TcpOptionSet;
use floodwall_wire::{
    ArpPacket, EtherType, EthernetHeader, ExtensionError, ExtensionLimits, ExtensionWalk,
    Icmpv4Header, Icmpv6Header, IpProtocol, Ipv4Header, Ipv6Header, NeighborAdvertisement,
    NeighborSolicitation, Redirect, RouterAdvertisement, RouterSolicitation, Step, TcpHeader,
    UdpHeader, WalkEnd, validate,
};

use crate::cuts::Cut;

/// The most that a line may have per byte shown, and besides: a look at any bytes stays readable.
const SHOWN_PER_BYTE: usize = 24;
const SHOWN_BESIDES: usize = 2048;

thread_local! {
    static POOL: RefCell<Pool> = RefCell::new(pool());
}

fn pool() -> Pool {
    let config = PoolConfig {
        small: 64,
        frames: 64,
        supers: 1,
        references: 0,
        accounts: 1,
        ..PoolConfig::default()
    };
    Pool::new(&config).expect("a quarter of a megabyte")
}

/// The first byte selects how to cut, the rest is an Ethernet frame.
///
/// # Panics
/// A header read, written and read again is another one; or it matters how a packet is cut.
pub fn wire(data: &[u8]) {
    let Some((&how, frame)) = data.split_first() else { return };
    let frame = frame.get(..4096).unwrap_or(frame);
    shown(frame);
    steered(frame);
    if let Ok(places) = validate(frame) {
        let order = [places.network.into(), places.transport.into(), places.payload, places.end];
        assert!(order.is_sorted() && places.end as usize <= frame.len(), "{places:?}");
    }
    let Ok(header) = EthernetHeader::parse(frame) else { return };
    let mut again = [0; 64];
    let tags: Vec<_> = header.tags().collect();
    let len = header.fields().emit_tagged(&tags, &mut again).expect("64 bytes are enough");
    assert_eq!(&again[..len], &frame[..header.header_len()]);
    let packet = &frame[header.header_len()..];
    match header.ether_type() {
        EtherType::ARP => arp(packet),
        EtherType::IPV4 => ipv4(packet),
        EtherType::IPV6 => ipv6(packet, how),
        _ => {}
    }
}

/// For any bytes, one of the workers owns them, and the same one each time; one worker owns all.
fn steered(frame: &[u8]) {
    let steering = Steering::new(HashKey::new(1, 2), 5);
    for owner in [steer::frame, steer::packet] {
        let found = owner(&steering, frame);
        assert!(found.0 < 5 && found == owner(&steering, frame));
        let alone = Steering::new(HashKey::new(1, 2), 1);
        assert_eq!(owner(&alone, frame), WorkerId::CONTROL);
    }
}

fn shown(frame: &[u8]) {
    for line in [show::ShownFrame(frame).to_string(), show::Packet(frame).to_string()] {
        assert!(line.len() <= SHOWN_BESIDES + SHOWN_PER_BYTE * frame.len(), "{}", line.len());
        assert!(!line.contains('\n'));
    }
}

fn arp(packet: &[u8]) {
    let Ok(parsed) = ArpPacket::parse(packet) else { return };
    let mut again = [0; 28];
    parsed.emit(&mut again);
    assert_eq!(again, packet[..28]);
}

fn ipv4(packet: &[u8]) {
    let Ok(header) = Ipv4Header::parse(packet, packet.len()) else { return };
    let (len, total) = (header.header_len(), header.total_len());
    assert!(len <= total && total <= packet.len());
    let mut again = [0; 60];
    let written = header.fields().emit_with_options(header.options_bytes(), &mut again);
    assert_eq!(written.ok(), Some(len));
    let reparsed = Ipv4Header::parse(&again[..len], total).expect("what was written can be read");
    assert_eq!(reparsed.fields(), header.fields());
    assert_eq!(reparsed.options_bytes(), header.options_bytes());
    assert!(header.options().count() <= header.options_bytes().len());
    if header.is_fragment() {
        return;
    }
    let payload = &packet[len..total];
    match header.protocol() {
        IpProtocol::UDP => udp(payload),
        IpProtocol::TCP => tcp(payload),
        IpProtocol::ICMPV4 => icmpv4(payload),
        _ => {}
    }
}

fn ipv6(packet: &[u8], how: u8) {
    let Ok(header) = Ipv6Header::parse(packet, packet.len()) else { return };
    assert!(header.total_len() <= packet.len());
    let mut again = [0; 40];
    header.fields().emit(&mut again);
    assert_eq!(again, packet[..40]);
    let walk = ExtensionWalk::of_packet(&header, packet.len(), ExtensionLimits::default());
    let mut seen = Vec::new();
    let end = walk.run(packet, |header, offset| seen.push((header.kind(), offset)));
    assert!(seen.len() <= 8 && seen.is_sorted_by_key(|seen| seen.1));
    chunked(walk, packet, how, &(seen, end.map(|end| end.0)));
    if let Ok((WalkEnd::UpperLayer { protocol, offset, .. }, None)) = end {
        let payload = &packet[offset..header.total_len()];
        match protocol {
            IpProtocol::UDP => udp(payload),
            IpProtocol::TCP => tcp(payload),
            IpProtocol::ICMPV6 => icmpv6(payload),
            _ => {}
        }
    }
}

/// The headers met, and how it ended.
type Walked = (Vec<(IpProtocol, usize)>, Result<WalkEnd, ExtensionError>);

/// The same walk over the same packet in chunks, fed only the bytes that it requests.
fn chunked(walk: ExtensionWalk, packet: &[u8], how: u8, whole: &Walked) {
    POOL.with_borrow(|pool| {
        let before = pool.available();
        let step = usize::from(how % 61) + 1;
        let cut = Cut::at((0..40).map(|n| n * step + usize::from(how / 61) * 16).collect());
        let scattered = pool.packet_from_chunks(cut.of(packet)).expect("48 chunks of 64");
        assert_eq!(&feed(walk, &scattered), whole, "cut every {step} bytes");
        drop(scattered);
        assert_eq!(pool.available(), before);
    });
}

fn feed(mut walk: ExtensionWalk, packet: &PacketBuf) -> Walked {
    let (mut seen, mut access) = (Vec::new(), AccessCounters::default());
    let mut scratch = [0; 2048];
    while let Some(want) = walk.wants() {
        let bytes = packet
            .header(want.offset, want.len, &mut scratch, &mut access)
            .expect("it requests bytes of the packet only, and few");
        match walk.feed(bytes) {
            Ok(Step::Header { header, offset, .. }) => seen.push((header.kind(), offset)),
            Ok(_) => {}
            Err(error) => return (seen, Err(error)),
        }
    }
    (seen, Ok(walk.end().expect("it wants nothing more")))
}

fn udp(payload: &[u8]) {
    let Ok(header) = UdpHeader::parse(payload, payload.len()) else { return };
    assert!(header.len() <= payload.len());
    let (pseudo, body) = (InternetSum::default(), sum(&payload[8..header.len()]));
    let mut again = [0; 8];
    header.fields().emit(pseudo, body, &mut again);
    let reparsed = UdpHeader::parse(&again, payload.len()).expect("just written");
    assert_eq!(reparsed.fields(), header.fields());
    assert!(reparsed.verifies(pseudo, body));
}

fn tcp(payload: &[u8]) {
    let Ok(header) = TcpHeader::parse(payload, payload.len()) else { return };
    assert!(header.header_len() <= payload.len());
    let Ok(set) = TcpOptionSet::read(header.options()) else { return };
    let (pseudo, body) = (InternetSum::default(), sum(&payload[header.header_len()..]));
    let mut again = [0; 60];
    let written = header.fields().emit(&set, pseudo, body, &mut again);
    let len = written.expect("60 bytes are enough");
    let reparsed = TcpHeader::parse(&again[..len], len).expect("just written");
    assert_eq!(reparsed.fields(), header.fields());
    assert!(reparsed.verifies(pseudo, body));
    let again = TcpOptionSet::read(reparsed.options()).expect("just written");
    assert_eq!((again.mss, again.window_scale), (set.mss, set.window_scale));
    assert_eq!((again.sack_permitted, again.timestamps), (set.sack_permitted, set.timestamps));
}

fn icmpv4(payload: &[u8]) {
    let Ok(header) = Icmpv4Header::parse(payload) else { return };
    let (mut again, body) = ([0; 8], sum(&payload[8..]));
    header.message().emit(body, &mut again);
    let reparsed = Icmpv4Header::parse(&again).expect("just written");
    assert_eq!(reparsed.message(), header.message());
    assert!(reparsed.verifies(body));
}

fn icmpv6(payload: &[u8]) {
    let Ok(header) = Icmpv6Header::parse(payload) else { return };
    let (mut again, body) = ([0; 8], sum(&payload[8..]));
    header.message().emit(Default::default(), body, &mut again);
    let reparsed = Icmpv6Header::parse(&again).expect("just written");
    assert_eq!(reparsed.message(), header.message());
    assert!(reparsed.verifies(Default::default(), body));
    ndp(payload);
}

/// Every view of neighbour discovery, on any bytes: the type is part of what they check.
fn ndp(message: &[u8]) {
    let views = [
        RouterSolicitation::parse(message).map(|view| view.options()).ok(),
        RouterAdvertisement::parse(message).map(|view| view.options()).ok(),
        NeighborSolicitation::parse(message).map(|view| view.options()).ok(),
        NeighborAdvertisement::parse(message).map(|view| view.options()).ok(),
        Redirect::parse(message).map(|view| view.options()).ok(),
    ];
    assert!(views.iter().flatten().count() <= 1, "of two types at once");
    for options in views.into_iter().flatten() {
        assert!(options.count() * 8 <= message.len());
    }
}
