//! Echo requests and the replies to them.
//!
//! Called by `deliver.rs` with a message with a correct checksum. A request to one of our addresses
//! is answered within the peer's share of echo replies (a token bucket). One to a group makes every
//! member answer the claimed source, so each such answer counts as an error does: against the
//! peer's small share and against the global share (`ip/icmp_limit.rs`). Reading: RFC 1122 section
//! 3.2.2.6, RFC 4443 section 4.2. Not here: requests that we send (`ping.rs`).

pub(crate) mod refusals;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{Address, Counter, DropReason, limits};
use floodwall_fib::exceptions::path_mtu_floor;
use floodwall_ip::output::HeaderError;
use floodwall_ip::reply_options::ReplyOptions;
use floodwall_ip::{IcmpAllowance, icmp, output};
use floodwall_packet::PacketBuf;
use floodwall_wire::icmpv4::Icmpv4Type;
use floodwall_wire::icmpv6::Icmpv6Type;
use floodwall_wire::{Dscp, Ecn, IpProtocol, Ipv4Fields, ipv4};

use crate::ip::addr_pair::AddrPair;
use crate::ip::ip_family::IpFamily;
use crate::ip::outgoing_packet::{BEST_EFFORT, OutgoingPacket, traffic_class};
use crate::ip::rx_meta::RxMeta;
use crate::ip::tx::HOP_LIMIT;
use crate::round_context::RoundContext;
use crate::stack::Stack;

impl Stack {
    pub(crate) fn echo_v4(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv4Addr>,
        l4: usize,
    ) {
        self.stats.counters.count(Counter::IcmpInEchos);
        if is_refused(&packet, ascent, self.icmp.echo_refusals.broadcasts) {
            return self.drop_packet(packet, DropReason::IcmpEchoRefused);
        }
        let kinds = (Icmpv4Type::ECHO_REQUEST.0, Icmpv4Type::ECHO_REPLY.0);
        let class = self.class_asked::<Ipv4Addr>(&packet, ascent.l3);
        let options = (l4 > ascent.l3 + ipv4::HEADER_LEN)
            .then(|| self.reply_options(cx, &packet, ascent, l4))
            .filter(|options| !options.is_empty());
        let Some((packet, from)) = self.echo(cx, packet, ascent, l4, kinds) else { return };
        self.stats.counters.count(Counter::IcmpOutMsgs);
        self.stats.counters.count(Counter::IcmpOutEchoReps);
        match options {
            None => self.reply(cx, packet, ascent, (from, class)),
            Some(options) => self.reply_with_options(cx, packet, ascent, (from, class), options),
        }
    }

    pub(crate) fn echo_v6(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv6Addr>,
        l4: usize,
    ) {
        self.stats.counters.count(Counter::Icmp6InEchos);
        // A group also receives packets forged with our own source address: address detection needs
        // it.
        let forged = ascent.to_group && self.is_forged(ascent);
        if forged || ascent.heading.src_addr.is_unspecified() {
            return self.drop_packet(packet, DropReason::IpSourceInvalid);
        }
        if is_refused(&packet, ascent, self.icmp.echo_refusals.multicast_v6) {
            return self.drop_packet(packet, DropReason::IcmpEchoRefused);
        }
        let kinds = (Icmpv6Type::ECHO_REQUEST.0, Icmpv6Type::ECHO_REPLY.0);
        let class = self.class_asked::<Ipv6Addr>(&packet, ascent.l3);
        let Some((packet, from)) = self.echo(cx, packet, ascent, l4, kinds) else { return };
        self.stats.counters.count(Counter::Icmp6OutMsgs);
        self.stats.counters.count(Counter::Icmp6OutEchoReplies);
        self.reply(cx, packet, ascent, (from, class));
    }

    /// Makes a reply of an echo request, if the peer is within its share, with the local address
    /// that it is sent from.
    fn echo<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        mut packet: PacketBuf,
        ascent: RxMeta<A>,
        l4: usize,
        kinds: (u8, u8),
    ) -> Option<(PacketBuf, A)> {
        let Some(from) = self.echo_source(cx, ascent) else {
            self.drop_packet(packet, DropReason::IcmpEchoRefused);
            return None;
        };
        let (peer, secret) = (ascent.heading.src_addr.to_ip(), &mut cx.random.secret);
        let allowed = match ascent.to_group {
            true => self.icmp.limit.allow_error(peer, cx.now, secret),
            false => self.icmp.limit.allow_echo(peer, cx.now, secret),
        };
        let over = match allowed {
            IcmpAllowance::Yes => None,
            IcmpAllowance::PeerLimited => Some(A::OUT_LIMITED_PEER),
            IcmpAllowance::GlobalLimited => Some(A::OUT_LIMITED_ALL),
        };
        if let Some(counter) = over {
            self.stats.counters.count(counter);
            self.drop_packet(packet, DropReason::IcmpRateLimited);
            return None;
        }
        // The pseudo header's sum is unchanged where source and destination are swapped.
        let asked = ascent.heading.dst_addr;
        let checked = (from != asked && A::BITS == 128).then_some((asked, from));
        packet.trim_front(l4);
        match icmp::echo_reply(cx.pool, packet, kinds, checked, &mut self.stats.access) {
            Ok(packet) => {
                self.stats.outcomes.answered += 1;
                Some((packet, from))
            }
            Err(packet) => {
                // Two more at most: the bytes to be written, and what is left of their chunk.
                let full = packet.chunk_count() + 2 > limits::CHUNKS_MAX;
                let reason = if full { DropReason::TooManyChunks } else { DropReason::NoBuffer };
                self.drop_packet(packet, reason);
                None
            }
        }
    }

    /// The source address of a reply: the request's destination, or for a group or anycast request,
    /// ours towards the peer (RFC 4443 section 4.2).
    fn echo_source<A: IpFamily>(&self, cx: &RoundContext<'_>, ascent: RxMeta<A>) -> Option<A> {
        if !ascent.to_group && !self.is_anycast(ascent.heading.dst_addr) {
            return Some(ascent.heading.dst_addr);
        }
        self.source_for(cx, ascent.heading.src_addr, Some(ascent.iface))
    }

    /// The options of the reply to a request that has some (RFC 1122 section 3.2.2.6).
    #[cold]
    fn reply_options(
        &mut self,
        cx: &RoundContext<'_>,
        packet: &PacketBuf,
        ascent: RxMeta<Ipv4Addr>,
        l4: usize,
    ) -> ReplyOptions {
        let mut scratch = [0; ipv4::HEADER_LEN_MAX];
        let (at, len) = (ascent.l3 + ipv4::HEADER_LEN, l4 - ascent.l3 - ipv4::HEADER_LEN);
        let access = &mut self.stats.access;
        let asked = packet.header(at, len, &mut scratch, access).unwrap_or_default();
        let own = self.echo_source(cx, ascent).unwrap_or(ascent.heading.dst_addr);
        let is_ours = |addr: Ipv4Addr| {
            let addr = IpAddr::V4(addr);
            self.interfaces.iter().any(|i| i.owns(addr).is_some_and(|it| it.is_assigned()))
        };
        #[expect(clippy::cast_possible_truncation, reason = "a clock that wraps")]
        ReplyOptions::to(asked, own, is_ours, (cx.now.as_nanos() / 1_000_000) as u32)
    }

    #[cold]
    fn reply_with_options(
        &mut self,
        cx: &mut RoundContext<'_>,
        mut packet: PacketBuf,
        ascent: RxMeta<Ipv4Addr>,
        (from, class): (Ipv4Addr, u8),
        options: ReplyOptions,
    ) {
        packet.clear_offload();
        packet.set_link_group(false);
        let dst_addr = ascent.heading.src_addr;
        let told = self.icmp.echo_paths.mtu(dst_addr.to_ip(), cx.now);
        let mut fields = Ipv4Fields::new(from, dst_addr, IpProtocol::ICMPV4, HOP_LIMIT, 0);
        (fields.dscp, fields.ecn) = (Dscp::of_traffic_class(class), Ecn::NotCapable);
        let path = self.path(cx, dst_addr, Some(ascent.iface));
        self.originate::<Ipv4Addr>(packet.len() + ipv4::HEADER_LEN + options.bytes().len());
        let packet = match output::ipv4_with_options(cx.pool, packet, fields, options.bytes()) {
            Ok(packet) => packet,
            Err(HeaderError::NoBuffer(packet)) => {
                return self.drop_output::<Ipv4Addr>(packet, DropReason::NoBuffer);
            }
            Err(HeaderError::TooLong(packet)) => {
                return self.drop_output::<Ipv4Addr>(packet, DropReason::PacketTooBig);
            }
        };
        match path {
            Ok(path) => self.send_headed(cx, packet, path.at_most(told), None),
            Err(reason) => self.drop_output::<Ipv4Addr>(packet, reason),
        }
    }

    /// The traffic class of a request, which its reply copies (RFC 1812 section 4.3.2.5, RFC 1349
    /// section 4.1); not the ECN bits, for a reply has seen no congestion.
    fn class_asked<A: IpFamily>(&mut self, packet: &PacketBuf, l3: usize) -> u8 {
        let mut scratch = [0; 2];
        let first = packet.header_array(l3, &mut scratch, &mut self.stats.access);
        let class = first.map_or(BEST_EFFORT, traffic_class::<A>);
        Dscp::of_traffic_class(class).with_ecn(Ecn::NotCapable)
    }

    fn reply<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        mut packet: PacketBuf,
        ascent: RxMeta<A>,
        (from, class): (A, u8),
    ) {
        packet.clear_offload();
        packet.set_link_group(false);
        let ends = AddrPair { src_addr: from, dst_addr: ascent.heading.src_addr };
        let hop_limit = self.hop_limit_of::<A>(ascent.iface);
        let (protocol, zone) = (A::ICMP, Some(ascent.iface));
        // No message makes a path MTU fall below the floor, so a short reply needs no look-up.
        let is_long = packet.len() + A::HEADER_LEN > path_mtu_floor(A::FAMILY) as usize;
        let told = is_long.then(|| self.icmp.echo_paths.mtu(ends.dst_addr.to_ip(), cx.now));
        let path_mtu = told.flatten();
        let outgoing = OutgoingPacket { packet, ends, protocol, hop_limit, class, zone };
        self.output_within(cx, outgoing, path_mtu);
    }
}

/// Whether a request is ignored: one to a group or broadcast address where these are ignored, or
/// one to a unicast address in a broadcast or multicast frame (RFC 1122 section 3.3.6).
fn is_refused<A>(packet: &PacketBuf, ascent: RxMeta<A>, ignored: bool) -> bool {
    if ascent.to_group { ignored } else { packet.is_link_group() }
}
