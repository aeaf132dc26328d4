//! Two hosts that both send over a link that loses, lets frames overtake each other and changes its
//! MTU, with a path behind it that is narrower at times: every segment fits what it leaves by, its
//! SACK blocks and timestamps included, and none is ever an IP fragment (RFC 9293 section 3.7.1),
//! in both families. The rig refuses every fragment of a TCP segment that leaves.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing test may panic")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Family, IfIndex, Instant, PublicRandom};
use floodwall_packet::PacketBuf;
use floodwall_stack::StackConfig;
use floodwall_tcp::{ConnectionId, TcpSettings};
use floodwall_tests::craft::{FAMILIES, HOST, PEER, addr, frame, icmpv4, icmpv6, mac, v4, v6};
use floodwall_tests::{Rig, bytes_of, ethernet_config};
use floodwall_wire::icmpv4::UnreachableCode;
use floodwall_wire::tcp_options::TcpOptionSet;
use floodwall_wire::{EtherType, Icmpv4Message, Icmpv6Message, TcpHeader};

const LINK: usize = 14;
const ETH0: IfIndex = IfIndex(1);
/// Bytes that each host sends.
const TOTAL: usize = 300_000;
const STEP: Duration = Duration::from_millis(2);

/// One of the two hosts, and what is on its way to it.
struct End {
    rig: Rig,
    number: u8,
    id: Option<ConnectionId>,
    arriving: Vec<(Instant, Vec<u8>)>,
    sent: usize,
    read: usize,
}

/// The byte of a host's stream at a place.
fn byte(number: u8, at: usize) -> u8 {
    (at * 31 + at / 256 + usize::from(number)) as u8
}

impl End {
    fn new(number: u8, other: u8) -> Self {
        let config = StackConfig { tcp_connections_max: 8, ..ethernet_config(number) };
        let rig = Rig::with_neighbor(&config, other);
        Self { rig, number, id: None, arriving: Vec::new(), sent: 0, read: 0 }
    }

    /// Timed work, frames that have arrived, and the program; what departs.
    fn step(&mut self, now: Instant, other: u8) -> Vec<PacketBuf> {
        let mut departed = self.rig.run_until(now);
        let arriving = std::mem::take(&mut self.arriving);
        let (due, later): (Vec<_>, Vec<_>) = arriving.into_iter().partition(|(at, _)| *at <= now);
        self.arriving = later;
        for (_, bytes) in due {
            departed.extend(self.rig.frame(&bytes));
        }
        let Some(id) = self.id else { return departed };
        let mut room = [0; 4096];
        while let (Ok(len @ 1..), more) = self.rig.sockets(|s| s.tcp_recv(id, &mut room)) {
            for (n, got) in room[..len].iter().enumerate() {
                assert_eq!(*got, byte(other, self.read + n), "at {}", self.read + n);
            }
            self.read += len;
            departed.extend(more);
        }
        while self.sent < TOTAL {
            let end = TOTAL.min(self.sent + 8192);
            let bytes: Vec<u8> = (self.sent..end).map(|at| byte(self.number, at)).collect();
            let (sent, more) = self.rig.sockets(|s| s.tcp_send(id, &bytes));
            departed.extend(more);
            match sent {
                Ok(len @ 1..) => self.sent += len,
                _ => break,
            }
        }
        departed
    }
}

/// The way between them.
struct Way {
    family: Family,
    random: PublicRandom,
    /// Of the link, which both hosts know.
    mtu: u32,
    /// Of the narrowest link behind it.
    path: u32,
    /// Frames as long as the link permits that report a hole; and reports of narrow paths.
    seen: (u32, u32),
}

impl Way {
    fn one_of(&mut self, all: &[u32]) -> u32 {
        all[self.random.below(all.len() as u64) as usize]
    }

    /// Now and then another link, or another path.
    fn change(&mut self, ends: &mut [End; 2]) {
        if self.random.below(40) == 0 {
            self.mtu = self.one_of(&[1280, 1300, 1400, 1492, 1500, 4000]);
            for end in ends {
                end.rig.stack.set_link_mtu(ETH0, self.mtu);
            }
        }
        if self.random.below(100) == 0 {
            self.path = self.one_of(&[1280, 1350, 1450, 9000]);
        }
    }

    /// Takes a frame of `from`; what arrives, and whether that is at the other end.
    fn carry(&mut self, frame: Vec<u8>, from: u8) -> Option<(Vec<u8>, bool)> {
        assert!(frame.len() <= LINK + self.mtu as usize, "{} bytes of {}", frame.len(), self.mtu);
        let is_full = frame.len() + 40 > LINK + self.mtu as usize;
        self.seen.0 += u32::from(is_full && reports_a_hole(&frame));
        if self.random.below(25) == 0 {
            return None;
        }
        if frame.len() <= LINK + self.path as usize {
            return Some((frame, true));
        }
        self.seen.1 += 1;
        Some((self.too_big(from, &frame[LINK..]), false))
    }

    /// "Your packet is larger than the path", from a router behind the link.
    fn too_big(&self, to: u8, quote: &[u8]) -> Vec<u8> {
        let quote = &quote[..quote.len().min(500)];
        let (ether_type, packet) = match self.family {
            Family::V4 => {
                let code = UnreachableCode::FRAGMENTATION_NEEDED;
                let next_hop_mtu = self.path as u16;
                let message = Icmpv4Message::DestinationUnreachable { code, next_hop_mtu };
                let from = Ipv4Addr::new(203, 0, 113, 9);
                (EtherType::IPV4, icmpv4(from, v4(to), message, quote))
            }
            Family::V6 => {
                let message = Icmpv6Message::PacketTooBig { mtu: self.path };
                let from = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 9);
                (EtherType::IPV6, icmpv6(from, v6(to), message, quote))
            }
        };
        frame(mac(to), mac(HOST + PEER - to), ether_type, &packet)
    }
}

/// Whether a segment has SACK blocks.
fn reports_a_hole(frame: &[u8]) -> bool {
    let (is_tcp, at) = match frame[12..14] {
        [8, 0] => (frame[23] == 6, LINK + 20),
        [0x86, 0xdd] => (frame[20] == 6, LINK + 40),
        _ => return false,
    };
    let segment = frame.get(at..).filter(|_| is_tcp).unwrap_or_default();
    let header = TcpHeader::parse(segment, segment.len()).ok();
    let options = header.and_then(|header| TcpOptionSet::read(header.options()).ok());
    options.is_some_and(|options| options.sack[0].is_some())
}

/// Both hosts send all they have; returns what the way saw.
fn exchange(family: Family, seed: u64) -> (u32, u32) {
    let mut ends = [End::new(HOST, PEER), End::new(PEER, HOST)];
    let random = PublicRandom::new(seed);
    let mut way = Way { family, random, mtu: 1500, path: 9000, seen: (0, 0) };
    let settings = TcpSettings::default();
    let any = SocketAddr::new(IpAddr::from([0_u16; 8]), 80);
    let listener = ends[1].rig.sockets(|s| s.tcp_listen(any, &settings, 16, 1)).0.expect("one");
    let owner = ends[0].rig.sockets(|s| s.tcp_owner()).0.expect("an owner");
    let to = SocketAddr::new(addr(family, PEER), 80);
    let (id, first) = ends[0].rig.sockets(|s| s.tcp_connect(to, &settings, owner));
    ends[0].id = Some(id.expect("room"));
    let mut waiting = vec![(0, first)];
    let mut now = ends[0].rig.now;
    let end = now + Duration::from_secs(600);
    while ends.iter().any(|end| end.read < TOTAL) {
        assert!(now < end, "{family:?} {seed}: {} and {} bytes", ends[0].read, ends[1].read);
        now += STEP;
        for (at, departed) in std::mem::take(&mut waiting) {
            for packet in departed {
                let from = if at == 0 { HOST } else { PEER };
                let Some((bytes, passes)) = way.carry(bytes_of(&packet), from) else { continue };
                let later = Duration::from_millis(5 + 5 * u64::from(way.random.below(20) == 0));
                let to = if passes { 1 - at } else { at };
                ends[to].arriving.push((now + later, bytes));
            }
        }
        way.change(&mut ends);
        for (at, end) in ends.iter_mut().enumerate() {
            let other = if at == 0 { PEER } else { HOST };
            waiting.push((at, end.step(now, other)));
        }
        if ends[1].id.is_none() {
            ends[1].id = ends[1].rig.sockets(|s| s.tcp_accept(listener)).0.expect("it listens");
        }
    }
    for end in &ends {
        assert!(end.rig.conservation().holds(), "{:?}", end.rig.stats());
    }
    way.seen
}

#[test]
fn no_segment_is_a_fragment_over_lossy_links_whose_mtu_and_path_change() {
    for family in FAMILIES {
        let seen = (0..4).map(|seed| exchange(family, seed));
        let seen = seen.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        assert!(seen.0 > 20 && seen.1 > 5, "{family:?}: {seen:?} are few");
    }
}
