//! A station on a link: its link address, its peer, and the addresses it answers for.
//!
//! Used by `blast.rs` and `honest.rs`. It answers ARP requests and neighbour solicitations for its
//! addresses, and finds its peer's link address by the same two protocols where it is not
//! configured. There is one peer, no cache and no reachability probe.
//!
//! Reading: RFC 826, RFC 4861 sections 4.3, 4.4 and 7.2.
//!
//! # Under flood
//! Reachable by a neighbour. Bound: it keeps nothing but the peer's address. Worst work per
//! packet: one answer, built on the stack.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use floodwall_base::{IfIndex, Instant, IpCidr, MacAddr, solicited_node};
use floodwall_packet::{PacketBuf, Round};
use floodwall_wire::ndp::{NdpOption, NeighborAdvertisementFields, NeighborSolicitationFields};
use floodwall_wire::{
    ArpOperation, ArpPacket, EtherType, EthernetFields, Icmpv6Header, Icmpv6Type, IpProtocol,
    Ipv6Fields, NeighborAdvertisement, NeighborSolicitation, arp, ethernet, ipv6,
};

use crate::error::PlanError;
use crate::seen::{SeenIp, SeenPacket};

/// The interval between solicitations of the peer (RFC 4861 section 10, RETRANS_TIMER).
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The hop limit of neighbour discovery (RFC 4861 section 7.1).
const ND_HOPS: u8 = 255;
/// An Ethernet and an IPv6 header, a solicitation or advertisement with one option.
const ND_BYTES: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + 32;

/// What the link carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StationMedium {
    /// Ethernet frames.
    #[default]
    Ethernet,
    /// IP packets without any link header.
    Ip,
}

/// The destination of everything that is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// The owner of this address on the link: found by ARP or neighbour discovery first. Nothing
    /// is sent before.
    Addr(IpAddr),
    /// The station with this link address.
    Link(MacAddr),
}

/// The sender's configuration. The default is Ethernet on interface 1, to the broadcast address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StationConfig {
    /// The interface.
    pub iface: IfIndex,
    /// What its link carries.
    pub medium: StationMedium,
    /// Our link address.
    pub mac: MacAddr,
    /// The addresses, or prefixes, that we answer ARP and neighbour solicitations for. The first of
    /// a family is the source of solicitations for the peer. `10.0.0.9` is one address,
    /// `10.0.0.9/24` all of its prefix: what a generator with random sources claims, so that
    /// answers to them come back.
    pub addrs: Vec<IpCidr>,
    /// The destination link address.
    pub peer: Peer,
    /// Whether its neighbour advertisements set the router flag. A router that does not is removed
    /// (RFC 4861 section 7.2.5).
    pub is_router: bool,
}

impl Default for StationConfig {
    fn default() -> Self {
        Self {
            iface: IfIndex(1),
            medium: StationMedium::Ethernet,
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            addrs: Vec::new(),
            peer: Peer::Link(MacAddr::BROADCAST),
            is_router: false,
        }
    }
}

impl StationConfig {
    /// Our first address of the family of `like`.
    fn addr_like(&self, like: IpAddr) -> Option<IpAddr> {
        self.addrs.iter().map(|cidr| cidr.addr()).find(|a| a.is_ipv4() == like.is_ipv4())
    }

    pub(crate) fn check(&self) -> Result<(), PlanError> {
        match self.peer {
            Peer::Addr(peer) if self.addr_like(peer).is_none() => Err(PlanError::PeerFamily),
            _ => Ok(()),
        }
    }
}

/// The link state of one station: peer resolution and answers to solicitations.
pub(crate) struct PktgenStation {
    pub(crate) config: StationConfig,
    peer: Option<MacAddr>,
    /// When to solicit the peer next.
    ask_at: Instant,
}

impl PktgenStation {
    pub(crate) fn new(config: StationConfig) -> Result<Self, PlanError> {
        config.check()?;
        let peer = match config.peer {
            Peer::Link(mac) => Some(mac),
            Peer::Addr(_) if config.medium == StationMedium::Ip => Some(MacAddr::ZERO),
            Peer::Addr(_) => None,
        };
        Ok(Self { config, peer, ask_at: Instant::ORIGIN })
    }

    /// The peer's link address, once known.
    pub(crate) const fn peer(&self) -> Option<MacAddr> {
        self.peer
    }

    /// When the peer must be solicited; `None` once it is known.
    pub(crate) fn ask_deadline(&self) -> Option<Instant> {
        self.peer.is_none().then_some(self.ask_at)
    }

    /// Solicits the peer's link address if it is time.
    pub(crate) fn ask(&mut self, round: &mut Round<'_>) {
        let Peer::Addr(peer) = self.config.peer else { return };
        if self.peer.is_some() || self.ask_at > round.now {
            return;
        }
        self.ask_at = round.now + ASK_AGAIN;
        match (self.config.addr_like(peer), peer) {
            (Some(IpAddr::V4(ours)), IpAddr::V4(peer)) => {
                self.send_arp(ArpOperation::REQUEST, ours, MacAddr::ZERO, peer, round);
            }
            (Some(IpAddr::V6(ours)), IpAddr::V6(peer)) => self.solicit(ours, peer, round),
            _ => {}
        }
    }

    /// Deals with ARP and neighbour discovery; false where the packet is neither.
    pub(crate) fn input(
        &mut self,
        packet: &PacketBuf,
        seen: &SeenPacket<'_>,
        round: &mut Round<'_>,
    ) -> bool {
        match seen {
            SeenPacket::Arp(arp) => {
                self.input_arp(arp, round);
                true
            }
            SeenPacket::Ip(ip) if ip.protocol == IpProtocol::ICMPV6 => {
                self.input_nd(packet, ip, round)
            }
            _ => false,
        }
    }

    fn claims(&self, addr: IpAddr) -> bool {
        self.config.addrs.iter().any(|cidr| cidr.contains(addr))
    }

    fn learn(&mut self, addr: IpAddr, mac: MacAddr) {
        if self.config.peer == Peer::Addr(addr) && mac.is_unicast() {
            self.peer = Some(mac);
        }
    }

    fn input_arp(&mut self, arp: &ArpPacket, round: &mut Round<'_>) {
        self.learn(arp.sender_addr.into(), arp.sender_link_addr);
        if arp.operation == ArpOperation::REQUEST && self.claims(arp.target_addr.into()) {
            let (ours, mac) = (arp.target_addr, arp.sender_link_addr);
            self.send_arp(ArpOperation::REPLY, ours, mac, arp.sender_addr, round);
        }
    }

    fn send_arp(
        &self,
        operation: ArpOperation,
        sender_addr: Ipv4Addr,
        target_link_addr: MacAddr,
        target_addr: Ipv4Addr,
        round: &mut Round<'_>,
    ) {
        let asks = operation == ArpOperation::REQUEST;
        let to = if asks { MacAddr::BROADCAST } else { target_link_addr };
        let mut frame = [0; ethernet::HEADER_LEN + arp::PACKET_LEN];
        let Some((link, body)) = frame.split_first_chunk_mut() else { return };
        let Some(body) = body.first_chunk_mut() else { return };
        self.link_header(to, EtherType::ARP, link);
        let sender_link_addr = self.config.mac;
        let packet =
            ArpPacket { operation, sender_link_addr, sender_addr, target_link_addr, target_addr };
        packet.emit(body);
        self.transmit(&frame, round);
    }

    fn input_nd(&mut self, packet: &PacketBuf, ip: &SeenIp<'_>, round: &mut Round<'_>) -> bool {
        let Ok(icmp) = Icmpv6Header::parse(ip.head) else { return false };
        if !icmp.kind().is_neighbor_discovery() {
            return false;
        }
        // RFC 4861 section 7.1: a message that crossed a router, or is damaged, is dropped.
        if ip.hop_limit != ND_HOPS || !ip.is_whole() || !ip.verifies(packet) {
            return true;
        }
        match icmp.kind() {
            Icmpv6Type::NEIGHBOR_ADVERTISEMENT => {
                if let Ok(nd) = NeighborAdvertisement::parse(ip.head)
                    && let Some(mac) = nd.options().target_link_addr()
                {
                    self.learn(nd.target_addr().into(), mac);
                }
            }
            Icmpv6Type::NEIGHBOR_SOLICITATION => self.input_solicitation(ip, round),
            _ => {}
        }
        true
    }

    fn input_solicitation(&mut self, ip: &SeenIp<'_>, round: &mut Round<'_>) {
        let Ok(nd) = NeighborSolicitation::parse(ip.head) else { return };
        let IpAddr::V6(asker) = ip.src_addr else { return };
        if let Some(mac) = nd.options().source_link_addr() {
            self.learn(ip.src_addr, mac);
        }
        if !self.claims(nd.target_addr().into()) {
            return;
        }
        // A solicitor without an address is answered by multicast (RFC 4861 section 7.2.4).
        let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let (to_addr, to) = if asker.is_unspecified() {
            (all, MacAddr::of_ipv6_multicast(all))
        } else {
            (asker, nd.options().source_link_addr().unwrap_or(ip.link_src))
        };
        let ours = nd.target_addr();
        let fields = NeighborAdvertisementFields {
            router: self.config.is_router,
            solicited: !asker.is_unspecified(),
            override_entry: true,
            target_addr: ours,
        };
        let option = [NdpOption::TargetLinkAddr(self.config.mac)];
        self.send_nd(to, ours, to_addr, round, |out| {
            fields.emit_into(&option, ours, to_addr, out).unwrap_or(0)
        });
    }

    fn solicit(&self, ours: Ipv6Addr, target_addr: Ipv6Addr, round: &mut Round<'_>) {
        let group = solicited_node(target_addr);
        let fields = NeighborSolicitationFields { target_addr };
        let option = [NdpOption::SourceLinkAddr(self.config.mac)];
        self.send_nd(MacAddr::of_ipv6_multicast(group), ours, group, round, |out| {
            fields.emit_into(&option, ours, group, out).unwrap_or(0)
        });
    }

    fn send_nd(
        &self,
        to: MacAddr,
        src_addr: Ipv6Addr,
        dst_addr: Ipv6Addr,
        round: &mut Round<'_>,
        message: impl FnOnce(&mut [u8]) -> usize,
    ) {
        let mut frame = [0; ND_BYTES];
        let Some((link, rest)) = frame.split_first_chunk_mut() else { return };
        let Some((network, body)) = rest.split_first_chunk_mut() else { return };
        let len = message(body);
        self.link_header(to, EtherType::IPV6, link);
        let protocol = IpProtocol::ICMPV6;
        Ipv6Fields::new(src_addr, dst_addr, protocol, ND_HOPS, len as u16).emit(network);
        let whole = ethernet::HEADER_LEN + ipv6::HEADER_LEN + len;
        self.transmit(frame.get(..whole).unwrap_or_default(), round);
    }

    fn link_header(
        &self,
        to: MacAddr,
        ether_type: EtherType,
        out: &mut [u8; ethernet::HEADER_LEN],
    ) {
        EthernetFields { dst_addr: to, src_addr: self.config.mac, ether_type }.emit(out);
    }

    /// Sends a frame; false where the pool is empty.
    pub(crate) fn transmit(&self, frame: &[u8], round: &mut Round<'_>) -> bool {
        let Some(mut packet) = round.pool.packet_from(frame) else { return false };
        packet.set_iface(self.config.iface);
        round.departing.push_back(packet);
        true
    }
}
