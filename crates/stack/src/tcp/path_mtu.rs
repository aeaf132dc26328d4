//! The path MTU of connections, and the MSS of answers to SYNs: what the routing tables say of the
//! way back to a peer.
//!
//! Called by `tcp.rs` with every transmission and with every SYN. Invariant: no segment is ever an
//! IP fragment of ours: what exceeds the path's MTU is dropped here in place of being cut, and
//! counted (`cut.rs` refuses it as well).

use core::net::IpAddr;

use floodwall_base::{DropReason, IfIndex, Instant};
use floodwall_ip::output::HeaderError;
use floodwall_tcp::ArrivedSegment;
use floodwall_wire::ipv4;
use floodwall_wire::tcp::TcpFlags;

use super::{FlowEnds, ends_of};
use crate::ip::ip_family::IpFamily;
use crate::ip::outgoing_packet::{OutgoingPacket, OutputPath};
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// What a segment has to know of its path: mostly that of the one before, which is not copied.
#[derive(Clone, Copy)]
pub(super) struct SegmentWay {
    /// The path MTU that its connection follows; `None` where it is not known.
    pub(super) mtu: Option<u32>,
    /// The largest packet that leaves with the headers of the one before; 0 where none does.
    pub(super) largest: u32,
}

impl Stack {
    /// What a segment to a destination has to know of its path, which is [`Stack::tcp_path`]'s.
    #[inline]
    pub(super) fn tcp_way<A: IpFamily>(
        &mut self,
        cx: &RoundContext<'_>,
        dst_addr: A,
        zone: Option<IfIndex>,
    ) -> SegmentWay {
        match self.sockets.path_cache.last_mtu(dst_addr, zone, cx.now) {
            Some(mtu) => SegmentWay { mtu: (!self.is_behind()).then_some(mtu), largest: mtu },
            None => self.tcp_other_way(cx, dst_addr, zone),
        }
    }

    /// The same where the one before went elsewhere, or to this host itself.
    #[inline(never)]
    fn tcp_other_way<A: IpFamily>(
        &mut self,
        cx: &RoundContext<'_>,
        dst_addr: A,
        zone: Option<IfIndex>,
    ) -> SegmentWay {
        let path = self.tcp_path(cx, dst_addr, zone).ok();
        let mtu = path.and_then(|path| self.path_mtu(path));
        let largest = if let Some(OutputPath::Via { mtu, .. }) = path { mtu } else { 0 };
        SegmentWay { mtu, largest }
    }

    /// Where a segment goes: mostly where the one before went.
    #[inline]
    pub(super) fn tcp_path<A: IpFamily>(
        &mut self,
        cx: &RoundContext<'_>,
        dst_addr: A,
        zone: Option<IfIndex>,
    ) -> Result<OutputPath<A>, DropReason> {
        if let Some(path) = self.sockets.path_cache.last(dst_addr, zone, cx.now) {
            return Ok(path);
        }
        let path = self.path(cx, dst_addr, zone)?;
        self.note_path((dst_addr, zone), path, cx.now);
        Ok(path)
    }

    #[inline(never)]
    fn note_path<A: IpFamily>(
        &mut self,
        to: (A, Option<IfIndex>),
        path: OutputPath<A>,
        now: Instant,
    ) {
        let to_neighbor = self.leads_to_neighbor(path);
        self.sockets.path_cache.note_last(to, path, to_neighbor, now);
    }

    /// The MTU of a path, with what was learnt of the destination; `None` where this shard's tables
    /// are behind.
    #[inline]
    fn path_mtu<A: IpFamily>(&self, path: OutputPath<A>) -> Option<u32> {
        match path {
            OutputPath::Via { mtu, .. } => (!self.is_behind()).then_some(mtu),
            OutputPath::Local => self.interfaces.first().map(|loopback| loopback.mtu),
        }
    }

    /// The MTU of the link by which a path begins: what we announce is what we can receive, not
    /// what the path carries (RFC 9293 section 3.7.1).
    pub(super) fn link_mtu_on<A: IpFamily>(&self, path: OutputPath<A>) -> u32 {
        self.link_mtu_at::<A>(match path {
            OutputPath::Via { iface, .. } => iface,
            OutputPath::Local => IfIndex::LOOPBACK,
        })
    }

    /// The same of a path out of an interface.
    #[inline]
    pub(super) fn link_mtu_at<A: IpFamily>(&self, iface: IfIndex) -> u32 {
        self.interfaces.get(usize::from(iface.0)).map_or(0, |i| i.mtu_of(A::BITS == 32))
    }

    /// The MTU of the link by which packets to `peer` leave; 0 where no route leads there.
    pub(super) fn link_mtu_to(
        &mut self,
        cx: &RoundContext<'_>,
        peer: IpAddr,
        zone: IfIndex,
    ) -> u32 {
        let zone = Some(zone).filter(|zone| *zone != IfIndex::default());
        match peer {
            IpAddr::V4(peer) => {
                self.tcp_path(cx, peer, zone).map_or(0, |path| self.link_mtu_on(path))
            }
            IpAddr::V6(peer) => {
                self.tcp_path(cx, peer, zone).map_or(0, |path| self.link_mtu_on(path))
            }
        }
    }

    /// Of a SYN without ACK the MTU of the link back to its sender; 0 of every other segment: its
    /// connection follows the path when it sends. The answer takes the path that is looked up here.
    #[inline]
    pub(super) fn mtu_back(
        &mut self,
        cx: &RoundContext<'_>,
        ArrivedSegment { flow, segment, .. }: &ArrivedSegment,
        iface: IfIndex,
    ) -> u32 {
        if !segment.has(TcpFlags::SYN) || segment.has(TcpFlags::ACK) {
            return 0;
        }
        match ends_of(flow) {
            FlowEnds::V4(ends) => self.mtu_back_to(cx, ends.dst_addr, iface),
            FlowEnds::V6(ends) => self.mtu_back_to(cx, ends.dst_addr, iface),
        }
    }

    #[inline(never)]
    fn mtu_back_to<A: IpFamily>(&mut self, cx: &RoundContext<'_>, peer: A, iface: IfIndex) -> u32 {
        let zone = peer.is_link_scope().then_some(iface);
        self.tcp_path(cx, peer, zone).map_or(0, |path| self.link_mtu_on(path))
    }

    /// Sends a segment that routers may fragment: its path carries less than the smallest size that
    /// is believed.
    #[cold]
    pub(super) fn output_fragmentable<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        outgoing: OutgoingPacket<A>,
        path: OutputPath<A>,
    ) {
        let OutgoingPacket { packet, ends, protocol, hop_limit, class, .. } = outgoing;
        self.originate::<A>(packet.len() + A::HEADER_LEN);
        match A::header(cx.pool, packet, ends, protocol, hop_limit, class) {
            Ok(mut packet) => {
                let header = packet.front_mut(ipv4::HEADER_LEN).filter(|_| A::BITS == 32);
                if let Some(header) = header.and_then(|bytes| bytes.first_chunk_mut()) {
                    floodwall_ip::output::let_fragment(header, cx.random.secret.next_u32() as u16);
                }
                self.send_headed(cx, packet, path, None);
            }
            Err(HeaderError::NoBuffer(packet)) => {
                self.drop_output::<A>(packet, DropReason::NoBuffer);
            }
            Err(HeaderError::TooLong(packet)) => {
                self.drop_output::<A>(packet, DropReason::PacketTooBig);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};
    use core::time::Duration;

    use floodwall_base::{HashKey, MacAddr, Randomness, Steering};
    use floodwall_packet::{PacketList, Pool, PoolConfig};
    use floodwall_sync::qsbr::Domain;
    use floodwall_tcp::SegmentMarks;
    use floodwall_wire::IpProtocol;

    use super::*;
    use crate::ip::addr_pair::AddrPair;
    use crate::shards::{Role, seats};
    use crate::{InterfaceConfig, LinkMedium, StackConfig};

    /// A host with one interface, and what its rounds are given.
    fn host(medium: LinkMedium) -> (Stack, Pool, Randomness) {
        let addresses = vec!["10.0.0.1/24".parse().unwrap(), "fd00::1/64".parse().unwrap()];
        let name = "eth0".into();
        let interface = InterfaceConfig { name, medium, addresses, ..InterfaceConfig::default() };
        let config = StackConfig {
            interfaces: vec![interface],
            duplicate_address_detection: false,
            ..StackConfig::default()
        };
        let mut random = Randomness::from_number(1);
        let stack = Stack::new(&config, &mut random, Instant::ORIGIN).unwrap();
        (stack, Pool::new(&PoolConfig::default()).unwrap(), random)
    }

    /// Whether the path of a segment to `dst_addr` serves another one after so many milliseconds.
    fn serves_after<A: IpFamily>(medium: LinkMedium, dst_addr: A, millis: u64) -> bool {
        let (mut stack, pool, mut random) = host(medium);
        let (now, mut departing) = (Instant::from_nanos(1_000), PacketList::new());
        let (random, departing) = (&mut random, &mut departing);
        let cx = RoundContext { now, pool: &pool, random, departing, peers: None };
        assert!(stack.tcp_path(&cx, dst_addr, None).is_ok());
        stack.sockets.path_cache.last(dst_addr, None, now + Duration::from_millis(millis)).is_some()
    }

    #[test]
    fn segments_to_a_neighbor_are_seen_by_its_probes_and_those_of_a_bare_link_need_not_be() {
        let (v4, v6) = (Ipv4Addr::new(10, 0, 0, 2), Ipv6Addr::from_bits(0xfd << 120 | 2));
        let serves =
            |medium, millis| [serves_after(medium, v4, millis), serves_after(medium, v6, millis)];
        let ethernet = LinkMedium::Ethernet(MacAddr([2, 0, 0, 0, 0, 1]));
        assert_eq!(serves(ethernet, 99), [true; 2]);
        assert_eq!(serves(ethernet, 101), [false; 2], "reachability is looked after");
        assert_eq!(serves(LinkMedium::Ip, 999), [true; 2]);
        assert_eq!(serves(LinkMedium::Ip, 1001), [false; 2]);
    }

    /// What a segment to each destination has to know, asked twice.
    fn a_way_is_that_of_the_path<A: IpFamily>([ours, neighbor, nowhere]: [A; 3]) {
        let (mut stack, pool, mut random) = host(LinkMedium::Ip);
        let (now, mut departing) = (Instant::from_nanos(1_000), PacketList::new());
        let (random, departing) = (&mut random, &mut departing);
        let mut cx = RoundContext { now, pool: &pool, random, departing, peers: None };
        let loopback = stack.interfaces[0].mtu;
        for (dst_addr, mtu, largest) in
            [(nowhere, None, 0), (ours, Some(loopback), 0), (neighbor, Some(1500), 1500)]
        {
            for _ in 0..2 {
                let way = stack.tcp_way(&cx, dst_addr, None);
                assert_eq!((way.mtu, way.largest), (mtu, largest), "{dst_addr}");
            }
        }
        // Headers serve a segment that fits, and no other.
        let (ends, marks) =
            (AddrPair { src_addr: ours, dst_addr: neighbor }, SegmentMarks::default());
        let segment = || pool.packet_from(&[7; 32]).unwrap();
        let departed = A::header(&pool, segment(), ends, IpProtocol::TCP, 64, 0).unwrap();
        stack.sockets.path_cache.note_heads((&ends, None), marks, &departed, 32);
        let total = departed.len() as u32;
        for (largest, leaves) in [(0, false), (total - 1, false), (total, true)] {
            let way = SegmentWay { mtu: None, largest };
            let left = stack.tcp_depart_as_before(&mut cx, (&ends, None), way, segment(), &marks);
            assert_eq!(left.is_ok(), leaves, "{largest}");
        }
    }

    #[test]
    fn a_segment_is_told_of_its_path_and_leaves_with_earlier_headers_where_it_fits() {
        a_way_is_that_of_the_path(
            [[10, 0, 0, 1], [10, 0, 0, 2], [192, 0, 2, 1]].map(Ipv4Addr::from),
        );
        let v6 = ["fd00::1", "fd00::2", "2001:db8::1"];
        a_way_is_that_of_the_path(v6.map(|addr| addr.parse::<Ipv6Addr>().unwrap()));
    }

    /// A follower of a host of two workers.
    fn follower() -> (Stack, Pool, Randomness) {
        let (config, steering) = (StackConfig::default(), Steering::new(HashKey::new(1, 2), 2));
        let mut random = Randomness::from_number(1);
        let seat = seats(&config, &Domain::new(2), steering, &mut random.secret).pop().unwrap();
        let stack = Stack::seated(&config, seat, &mut random, Instant::ORIGIN).unwrap();
        assert!(stack.is_follower());
        (stack, Pool::new(&PoolConfig::default()).unwrap(), random)
    }

    fn a_mtu_is_told_unless_it_may_have_changed<A: IpFamily>(dst_addr: A) {
        let (mut stack, pool, mut random) = follower();
        let (now, mut departing) = (Instant::from_nanos(1_000), PacketList::new());
        let (random, departing) = (&mut random, &mut departing);
        let cx = RoundContext { now, pool: &pool, random, departing, peers: None };
        let path = OutputPath::Via { iface: IfIndex(1), next_hop: dst_addr, mtu: 1400 };
        stack.note_path((dst_addr, None), path, now);
        for (is_behind, mtu) in [(false, Some(1400)), (true, None), (false, Some(1400))] {
            let Role::Follower(follower) = &mut stack.shard.role else { panic!("it follows") };
            follower.withhold(is_behind);
            let way = stack.tcp_way(&cx, dst_addr, None);
            assert_eq!((way.mtu, way.largest), (mtu, 1400));
            assert_eq!(stack.path_mtu(path), mtu, "as of a path that is looked up");
        }
    }

    #[test]
    fn connections_are_told_no_mtu_by_a_follower_while_the_control_shard_withholds_its_tables() {
        a_mtu_is_told_unless_it_may_have_changed(Ipv4Addr::new(10, 0, 0, 2));
        a_mtu_is_told_unless_it_may_have_changed("fd00::2".parse::<Ipv6Addr>().unwrap());
    }
}
