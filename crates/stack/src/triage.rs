//! Triage: classifies packets as established, unverified or refusable before any work is spent on
//! them.
//!
//! Called by the dispatcher's gate for a burst, under pressure only; no counter moves, and nothing
//! is written but the tokens of TCP's flows.
//! Established is what connected sockets wait for, what peers that a socket has answered send
//! (`recent_peers.rs`), segments that TCP connections expect and handshakes that complete
//! (`tcp/src/table/triage.rs`), replies of neighbours that we solicited, requests of those that
//! have answered us once, ICMP errors that quote such flows, and, on a router, packets between
//! pairs of hosts that have exchanged traffic in both directions (`forward/flows.rs`). Refusable is
//! what would be dropped anyway: frames and packets for others, malformed lengths, ports without a
//! listener, sockets that are full, unknown protocols. Everything else is unverified, and so is
//! what the first chunk does not show: fragments, chains of extension headers, headers in pieces.
//!
//! Invariant: what is called refusable here is dropped by `rx.rs` and the layers behind it. The
//! steps are loops over the burst (parse and prefetch, look up, compare), so that its cache misses
//! overlap; the packets that make up a flood take the short walk of `triage/plain.rs`. Layouts: RFC
//! 894, RFC 791, RFC 8200, RFC 768, RFC 9293, RFC 792, RFC 4443, RFC 826, RFC 4861 section 4.4.

pub(crate) mod recent_peers;
pub(crate) mod scratch;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{Family, MacAddr};
use floodwall_ip::{Interface, LinkMedium, NeighborState};
use floodwall_packet::{Burst, PacketBuf, Triage};
use floodwall_udp::{DatagramKey, LookupSlot};
use floodwall_wire::{
    ArpOperation, ArpPacket, EtherType, Icmpv6Type, IpProtocol, ethernet, icmpv4, ipv4, ipv6,
};

use self::scratch::{TriageQuery, TriageScratch, of_dialogue};
use self::unwanted::UnwantedPacket;
use crate::ip::forward::crossing::CrossingPacket;
use crate::ip::forward::flows;
use crate::ip::rx::takes_any;
use crate::stack::Stack;
use crate::triage::plain::{PlainPacket, PlainVerdict};
use crate::triage::recent_peers::{PEER_QUOTA, PeerSlot, peer_of};

mod note_answered;
mod plain;
mod unwanted;

/// Where a hop limit of 255 shows that a neighbour sent it (RFC 4861 section 7.1).
const HOP_LIMIT_OF_A_NEIGHBOR: u8 = 255;

/// Maximum number of neighbour requests per burst that count as established. Any station on the
/// link can forge a neighbour's request, so they must not crowd out other traffic; and a neighbour
/// sends no more than one per second.
const KNOCKS_MAX: usize = 2;

/// Result of parsing one packet's headers.
enum TriageLook {
    /// A request from a neighbour that has answered us: established, up to [`KNOCKS_MAX`] per
    /// burst.
    Knock,
    /// Its class is known.
    Is(Triage),
    /// The class of the socket that this datagram is for.
    Datagram(DatagramKey),
    /// An error about this datagram of ours, turned round as if its answer had come.
    Error(DatagramKey),
    /// The class of the dialogue between these ends: the packet is for others.
    Transit(flows::DialogueSlot),
}

/// Classifies each packet of a burst.
pub(crate) fn classify(stack: &Stack, burst: &Burst, classes: &mut [Triage]) {
    // Always present: `classify` is not re-entrant.
    let mut desk = stack.burst.triage.take().unwrap_or_default();
    let unwanted = UnwantedPacket::now(stack);
    let left = sort_out(stack, unwanted, burst, classes, &mut desk);
    if left > 0 {
        look_again(stack, unwanted, burst, classes, &mut desk, left);
    }
    stack.burst.triage.set(Some(desk));
}

/// Marks what is plainly refusable; returns how many packets need the full walk. Two loops: the
/// first prefetches one cache line for each datagram, the second reads it.
#[inline(always)]
fn sort_out(
    stack: &Stack,
    unwanted: UnwantedPacket,
    burst: &Burst,
    classes: &mut [Triage],
    desk: &mut TriageScratch,
) -> usize {
    let (mut plain, mut count, mut left) = (PlainPacket::new(stack, unwanted), 0, 0);
    let mut passing = 0;
    for (at, class) in classes.iter_mut().enumerate() {
        let Some(packet) = burst.get(at) else { break };
        let at = at as u8;
        match plain.look(packet) {
            Some(PlainVerdict::Datagram { sought, unwanted }) => {
                *class = unwanted;
                if let Some(sought) = sought
                    && let Some(slot) = desk.sought.get_mut(count)
                {
                    *slot = (sought, at);
                    count += 1;
                }
            }
            Some(PlainVerdict::Transit(place)) => {
                desk.note_transit(stack.policy.forwarding.as_deref(), place, at, &mut passing)
            }
            None => note(&mut desk.left, &mut left, at),
        }
    }
    desk.judge(stack.policy.forwarding.as_deref(), passing, classes);
    for (sought, at) in desk.sought.iter().take(count) {
        if stack.sockets.udp.may_find(*sought) {
            note(&mut desk.left, &mut left, *at);
        }
    }
    left
}

#[inline(always)]
fn note(left: &mut [u8; BURST_MAX], count: &mut usize, at: u8) {
    if let Some(slot) = left.get_mut(*count) {
        *slot = at;
        *count += 1;
    }
}

/// Those of a burst that are not plainly refusable: parsed to the end, looked up, compared.
#[inline(never)]
fn look_again(
    stack: &Stack,
    unwanted: UnwantedPacket,
    burst: &Burst,
    classes: &mut [Triage],
    desk: &mut TriageScratch,
    left: usize,
) {
    let (mut count, mut passing, mut knocks) = (0, 0, 0);
    let numbers = desk.left;
    for number in numbers.into_iter().take(left) {
        let at = usize::from(number);
        let (Some(packet), Some(class)) = (burst.get(at), classes.get_mut(at)) else { continue };
        let (datagram_key, is_error) = match look(stack, packet) {
            TriageLook::Is(known) => {
                *class = known;
                continue;
            }
            TriageLook::Knock => {
                knocks += 1;
                *class = if knocks <= KNOCKS_MAX { Triage::Established } else { Triage::Unknown };
                continue;
            }
            TriageLook::Transit(place) => {
                desk.note_transit(stack.policy.forwarding.as_deref(), place, number, &mut passing);
                continue;
            }
            TriageLook::Datagram(datagram_key) => (datagram_key, false),
            TriageLook::Error(datagram_key) => (datagram_key, true),
        };
        if let (Some(question), Some(slot)) =
            (desk.questions.get_mut(count), desk.asked.get_mut(count))
        {
            *question = TriageQuery { at, is_error, iface: packet.iface() };
            stack.sockets.udp.ask(datagram_key, packet.class(), slot);
            count += 1;
        }
    }
    desk.judge(stack.policy.forwarding.as_deref(), passing, classes);
    let (Some(questions), Some(asked)) = (desk.questions.get(..count), desk.asked.get(..count))
    else {
        return;
    };
    let mut answers = [Triage::Rejectable; BURST_MAX];
    stack.sockets.udp.answer(asked, &mut answers);
    prefer_answered(stack, questions, asked, &mut answers);
    for (question, (answer, asked)) in questions.iter().zip(answers.into_iter().zip(asked)) {
        if let Some(class) = classes.get_mut(question.at) {
            *class = match answer {
                // An error is delivered although the socket is full.
                Triage::Rejectable if question.is_error => Triage::Unknown,
                Triage::Rejectable => unwanted.of(asked.datagram_key()),
                other => other,
            };
        }
    }
}

impl Stack {
    /// The result of [`Engine::classify`](floodwall_packet::Engine::classify) for a packet in one
    /// chunk, computed the straightforward way: the full walk, one look-up after another, the
    /// socket's own account. A reference for tests and benches.
    #[must_use]
    pub fn classify_slowly(&self, packet: &PacketBuf) -> Triage {
        let (datagram_key, is_error) = match look(self, packet) {
            TriageLook::Is(known) => return known,
            TriageLook::Knock => return Triage::Established,
            TriageLook::Transit(place) => {
                return of_dialogue(self.policy.forwarding.as_deref(), place);
            }
            TriageLook::Datagram(datagram_key) => (datagram_key, false),
            TriageLook::Error(datagram_key) => (datagram_key, true),
        };
        match self.sockets.udp.classify_slowly(&datagram_key, packet.true_size()) {
            Triage::Rejectable if is_error => Triage::Unknown,
            Triage::Rejectable => UnwantedPacket::now(self).of(&datagram_key),
            Triage::Unknown => {
                let place =
                    self.sockets.recent_peers.place(&peer_of(&datagram_key, packet.iface()));
                if self.sockets.recent_peers.is_established(place) {
                    Triage::Established
                } else {
                    Triage::Unknown
                }
            }
            Triage::Established => Triage::Established,
        }
    }
}

/// Unverified peers that we have lately answered count as established, limited to [`PEER_QUOTA`]
/// where connected sockets exist.
fn prefer_answered(
    stack: &Stack,
    questions: &[TriageQuery],
    asked: &[LookupSlot],
    answers: &mut [Triage; BURST_MAX],
) {
    // Only unverified packets are looked up; their places first, so that their cache misses
    // overlap.
    let mut places = [(0_usize, PeerSlot::UNUSED); BURST_MAX];
    let mut count = 0;
    for (at, (answer, (asked, question))) in
        answers.iter().zip(asked.iter().zip(questions)).enumerate()
    {
        if *answer == Triage::Unknown
            && let Some(place) = places.get_mut(count)
        {
            *place = (
                at,
                stack.sockets.recent_peers.place(&peer_of(asked.datagram_key(), question.iface)),
            );
            stack.sockets.recent_peers.prefetch(place.1);
            count += 1;
        }
    }
    let mut left = if stack.sockets.udp.has_connected() { PEER_QUOTA } else { BURST_MAX };
    for (at, place) in places.into_iter().take(count) {
        if left > 0
            && stack.sockets.recent_peers.is_established(place)
            && let Some(answer) = answers.get_mut(at)
        {
            *answer = Triage::Established;
            left -= 1;
        }
    }
}

/// A packet that is not for this host on a link from which it passes packets on.
fn transit<A: CrossingPacket>(stack: &Stack, src_addr: A, dst_addr: A) -> TriageLook {
    match &stack.policy.forwarding {
        Some(forwarding) => TriageLook::Transit(forwarding.dialogues.place(src_addr, dst_addr)),
        None => TriageLook::Is(Triage::Unknown),
    }
}

fn look(stack: &Stack, packet: &PacketBuf) -> TriageLook {
    let is_whole = packet.first().len() == packet.len();
    // `None` is refusable, where all of the packet has been seen.
    let unseen = || TriageLook::Is(if is_whole { Triage::Rejectable } else { Triage::Unknown });
    frame(stack, packet).unwrap_or_else(unseen)
}

fn frame(stack: &Stack, packet: &PacketBuf) -> Option<TriageLook> {
    let interface = stack.interfaces.get(usize::from(packet.iface().0)).filter(|i| i.up)?;
    let bytes = packet.first();
    let LinkMedium::Ethernet(mac) = interface.medium else {
        return match bytes.first()? >> 4 {
            4 => v4(stack, interface, packet, 0),
            6 => v6(stack, interface, packet, 0),
            _ => None,
        };
    };
    let header: &[u8; ethernet::HEADER_LEN] = bytes.first_chunk()?;
    let [d0, d1, d2, d3, d4, d5, s0, .., t0, t1] = *header;
    let dst_addr = MacAddr([d0, d1, d2, d3, d4, d5]);
    if dst_addr != mac && !dst_addr.is_group() || s0 & 1 == 1 {
        return None;
    }
    let (mut ether_type, mut l3) = (EtherType(u16::from_be_bytes([t0, t1])), ethernet::HEADER_LEN);
    if ether_type == EtherType::VLAN {
        let [id0, id1, t0, t1] = *bytes.get(l3..)?.first_chunk()?;
        // A priority tag; other VLANs are not ours.
        if u16::from_be_bytes([id0, id1]) & 0xfff != 0 {
            return None;
        }
        (ether_type, l3) = (EtherType(u16::from_be_bytes([t0, t1])), l3 + ethernet::TAG_LEN);
    }
    match ether_type {
        EtherType::IPV4 => v4(stack, interface, packet, l3),
        EtherType::IPV6 => v6(stack, interface, packet, l3),
        EtherType::ARP => arp(stack, interface, bytes.get(l3..)?, source(bytes)?),
        kind if kind.is_tag() => Some(TriageLook::Is(Triage::Unknown)),
        _ => None,
    }
}

/// The station that sent a frame.
fn source(frame: &[u8]) -> Option<MacAddr> {
    Some(MacAddr(*frame.get(6..)?.first_chunk()?))
}

/// A reply of a neighbour that we solicited is established, and so is a request for an address of
/// ours from one that has answered us.
fn arp(stack: &Stack, interface: &Interface, bytes: &[u8], from: MacAddr) -> Option<TriageLook> {
    let arp = ArpPacket::parse(bytes).ok()?;
    let (neighbors, iface) = (&stack.v4.neighbors, interface.index);
    if arp.operation == ArpOperation::REPLY {
        let neighbor = neighbors.neighbor(iface, arp.sender_addr);
        let asked = neighbor.is_some_and(|neighbor| is_asked(neighbor.state));
        return Some(TriageLook::Is(if asked { Triage::Established } else { Triage::Unknown }));
    }
    let knocks = arp.operation == ArpOperation::REQUEST
        && arp.sender_link_addr == from
        && interface.owns_v4(arp.target_addr).is_some_and(|state| state.is_assigned())
        && neighbors.is_proven(iface, arp.sender_addr, from);
    Some(if knocks { TriageLook::Knock } else { TriageLook::Is(Triage::Unknown) })
}

/// Whether an answer of such a neighbour is waited for.
const fn is_asked(state: NeighborState) -> bool {
    matches!(
        state,
        NeighborState::Incomplete
            | NeighborState::Delay
            | NeighborState::Probe
            | NeighborState::Unreachable
    )
}

fn v4(stack: &Stack, interface: &Interface, packet: &PacketBuf, l3: usize) -> Option<TriageLook> {
    let bytes = packet.first().get(l3..)?;
    let fixed: &[u8; ipv4::HEADER_LEN] = bytes.first_chunk()?;
    let header_len = ipv4::header_len(fixed)?;
    let [_, _, len0, len1, _, _, frag0, frag1, _, protocol, _, _, s0, s1, s2, s3, d0, d1, d2, d3] =
        *fixed;
    let total_len = usize::from(u16::from_be_bytes([len0, len1]));
    if total_len < header_len || total_len > packet.len() - l3 {
        return None;
    }
    let (src_addr, dst_addr) = (Ipv4Addr::new(s0, s1, s2, s3), Ipv4Addr::new(d0, d1, d2, d3));
    if !interface.owns_v4(dst_addr).is_some_and(|state| state.is_assigned()) {
        let many = dst_addr.is_multicast() || interface.is_broadcast_v4(dst_addr);
        let taken = takes_any(interface, dst_addr);
        if !many && !taken && stack.forwards::<Ipv4Addr>(interface.index) {
            return Some(transit(stack, src_addr, dst_addr));
        }
        // A DHCP reply may be sent to an address that is not ours yet.
        let open = many || stack.dhcp_asks() || interface.medium == LinkMedium::Loopback;
        if !taken || open {
            return open.then_some(TriageLook::Is(Triage::Unknown));
        }
    }
    if u16::from_be_bytes([frag0, frag1]) & 0x3fff != 0 {
        return Some(TriageLook::Is(Triage::Unknown));
    }
    let body = bytes.get(header_len..)?;
    match IpProtocol(protocol) {
        IpProtocol::UDP => datagram(interface, src_addr.into(), dst_addr.into(), body),
        IpProtocol::ICMPV4 => Some(error_v4(interface, body)),
        IpProtocol::IGMP => Some(TriageLook::Is(Triage::Unknown)),
        IpProtocol::TCP if stack.tcp.is_some() => {
            let ends = (src_addr.into(), dst_addr.into());
            segment(stack, interface, ends, body, total_len - header_len)
        }
        other => overheard(stack, Family::V4, other),
    }
}

fn v6(stack: &Stack, interface: &Interface, packet: &PacketBuf, l3: usize) -> Option<TriageLook> {
    let bytes = packet.first().get(l3..)?;
    let (fixed, body) = bytes.split_first_chunk::<{ ipv6::HEADER_LEN }>()?;
    let [version, _, _, _, len0, len1, next, hop_limit, ends @ ..] = fixed;
    let payload_len = usize::from(u16::from_be_bytes([*len0, *len1]));
    if version >> 4 != 6 || payload_len > packet.len() - l3 - ipv6::HEADER_LEN {
        return None;
    }
    let (from, to) = ends.split_first_chunk::<16>()?;
    let src_addr = Ipv6Addr::from(*from);
    let dst_addr = Ipv6Addr::from(*to.first_chunk::<16>()?);
    let next = IpProtocol(*next);
    if next == IpProtocol::ICMPV6 && *hop_limit == HOP_LIMIT_OF_A_NEIGHBOR {
        if let Some(neighbor) = advertised(stack, interface, body) {
            return Some(TriageLook::Is(neighbor));
        }
        if knocks(stack, interface, packet, (src_addr, body)) {
            return Some(TriageLook::Knock);
        }
    }
    if !interface.owns_v6(dst_addr).is_some_and(|state| state.is_assigned()) {
        let many = dst_addr.is_multicast();
        let taken = takes_any(interface, dst_addr);
        if !many && !taken && stack.forwards::<Ipv6Addr>(interface.index) {
            return Some(transit(stack, src_addr, dst_addr));
        }
        let open = many || interface.medium == LinkMedium::Loopback;
        if !taken || open {
            return open.then_some(TriageLook::Is(Triage::Unknown));
        }
    }
    match next {
        IpProtocol::UDP => datagram(interface, src_addr.into(), dst_addr.into(), body),
        IpProtocol::ICMPV6 => Some(error_v6(interface, body)),
        IpProtocol::TCP if stack.tcp.is_some() => {
            segment(stack, interface, (src_addr.into(), dst_addr.into()), body, payload_len)
        }
        next if next.is_extension() => Some(TriageLook::Is(Triage::Unknown)),
        other => overheard(stack, Family::V6, other),
    }
}

/// An advertisement of a neighbour that we solicited is established.
fn advertised(stack: &Stack, interface: &Interface, message: &[u8]) -> Option<Triage> {
    if *message.first()? != Icmpv6Type::NEIGHBOR_ADVERTISEMENT.0 {
        return None;
    }
    let target = Ipv6Addr::from(*message.get(8..)?.first_chunk::<16>()?);
    let neighbor = stack.v6.neighbors.neighbor(interface.index, target)?;
    is_asked(neighbor.state).then_some(Triage::Established)
}

/// Whether a neighbour that has answered us solicits an address of ours.
fn knocks(
    stack: &Stack,
    interface: &Interface,
    packet: &PacketBuf,
    (from, message): (Ipv6Addr, &[u8]),
) -> bool {
    if message.first() != Some(&Icmpv6Type::NEIGHBOR_SOLICITATION.0) {
        return false;
    }
    let target = message.get(8..).and_then(|target| target.first_chunk::<16>());
    let ours = target.and_then(|target| interface.owns_v6(Ipv6Addr::from(*target)));
    let station = source(packet.first()).filter(|_| interface.link_addr().is_some());
    ours.is_some_and(|state| state.is_assigned())
        && station
            .is_some_and(|station| stack.v6.neighbors.is_proven(interface.index, from, station))
}

/// A protocol that only raw sockets here may want.
fn overheard(stack: &Stack, family: Family, protocol: IpProtocol) -> Option<TriageLook> {
    stack.sockets.raw.hears(family, protocol).then_some(TriageLook::Is(Triage::Unknown))
}

/// The class of a TCP segment of `len` bytes, of which `body` is in the first chunk.
fn segment(
    stack: &Stack,
    interface: &Interface,
    ends: (IpAddr, IpAddr),
    body: &[u8],
    len: usize,
) -> Option<TriageLook> {
    let family = if ends.0.is_ipv4() { Family::V4 } else { Family::V6 };
    let set = &stack.tcp.as_ref()?.set;
    let bytes = body.get(..len).unwrap_or(body);
    match set.triage(ends, interface.index, (bytes, len), stack.burst.at) {
        None | Some(Triage::Rejectable) if stack.sockets.raw.hears(family, IpProtocol::TCP) => {
            Some(TriageLook::Is(Triage::Unknown))
        }
        class => class.map(TriageLook::Is),
    }
}

fn datagram(
    interface: &Interface,
    src_addr: IpAddr,
    dst_addr: IpAddr,
    body: &[u8],
) -> Option<TriageLook> {
    let [s0, s1, d0, d1, len0, len1, _, _] = *body.first_chunk()?;
    if usize::from(u16::from_be_bytes([len0, len1])) < floodwall_wire::udp::HEADER_LEN {
        return None;
    }
    let (src_port, dst_port) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
    let (from, to) = ((src_addr, src_port), (dst_addr, dst_port));
    Some(TriageLook::Datagram(DatagramKey::new(from, to, interface.index)))
}

/// Of an ICMP message: the datagram of ours that it is an error about, if it is one.
fn error_v4(interface: &Interface, message: &[u8]) -> TriageLook {
    let quoted = || {
        let kind = floodwall_wire::Icmpv4Type(*message.first()?);
        let is_error = matches!(
            kind,
            floodwall_wire::Icmpv4Type::DESTINATION_UNREACHABLE
                | floodwall_wire::Icmpv4Type::TIME_EXCEEDED
                | floodwall_wire::Icmpv4Type::PARAMETER_PROBLEM
        );
        let quote = message.get(icmpv4::HEADER_LEN..).filter(|_| is_error)?;
        let fixed: &[u8; ipv4::HEADER_LEN] = quote.first_chunk()?;
        let ports = quote.get(ipv4::header_len(fixed)?..)?;
        let [.., frag0, frag1, _, protocol, _, _, s0, s1, s2, s3, d0, d1, d2, d3] = *fixed;
        let later = u16::from_be_bytes([frag0, frag1]) & 0x1fff != 0;
        let ours = Ipv4Addr::new(s0, s1, s2, s3).into();
        let theirs = Ipv4Addr::new(d0, d1, d2, d3).into();
        if later { None } else { turned(interface, protocol, ours, theirs, ports) }
    };
    quoted().unwrap_or(TriageLook::Is(Triage::Unknown))
}

/// As [`error_v4`].
fn error_v6(interface: &Interface, message: &[u8]) -> TriageLook {
    let quoted = || {
        let kind = Icmpv6Type(*message.first()?);
        let quote =
            message.get(floodwall_wire::icmpv6::HEADER_LEN..).filter(|_| kind.is_error())?;
        let (fixed, ports) = quote.split_first_chunk::<{ ipv6::HEADER_LEN }>()?;
        let [_, _, _, _, _, _, protocol, _, ends @ ..] = fixed;
        let (ours, theirs) = ends.split_first_chunk::<16>()?;
        let ours = Ipv6Addr::from(*ours).into();
        let theirs = Ipv6Addr::from(*theirs.first_chunk::<16>()?).into();
        turned(interface, *protocol, ours, theirs, ports)
    };
    quoted().unwrap_or(TriageLook::Is(Triage::Unknown))
}

/// The datagram that would answer the one that an ICMP error quotes.
fn turned(
    interface: &Interface,
    protocol: u8,
    ours: IpAddr,
    theirs: IpAddr,
    ports: &[u8],
) -> Option<TriageLook> {
    let [o0, o1, t0, t1] = *ports.first_chunk()?;
    let (our_port, their_port) = (u16::from_be_bytes([o0, o1]), u16::from_be_bytes([t0, t1]));
    let datagram_key = DatagramKey::new((theirs, their_port), (ours, our_port), interface.index);
    (IpProtocol(protocol) == IpProtocol::UDP).then_some(TriageLook::Error(datagram_key))
}
