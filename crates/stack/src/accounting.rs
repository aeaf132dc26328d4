//! Packet drops and their accounting, and the ICMP errors sent in response.
//!
//! Called from everywhere in the stack; each drop is counted here and nowhere else. Errors are sent
//! only where addresses and rate limits allow. Reading: RFC 1122 section 3.2.2, RFC 4443 section
//! 2.4.

use floodwall_base::{Address, Counter, DropReason, Family};
use floodwall_ip::{ArrivedUpper, IcmpError, RefusedAction, icmp};
use floodwall_packet::PacketBuf;

use crate::ip::addr_pair::AddrPair;
use crate::ip::ip_family::IpFamily;
use crate::ip::outgoing_packet::OutgoingPacket;
use crate::ip::rx_meta::RxMeta;
use crate::round_context::RoundContext;
use crate::stack::Stack;
use crate::tap::TapEvent;
use floodwall_ip::IcmpAllowance;

impl Stack {
    /// Refuses a packet: counts the drop, and sends an error if one is owed and allowed.
    #[cold]
    pub(crate) fn refuse<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<A>,
        upper: Option<ArrivedUpper>,
        refusal: RefusedAction,
    ) {
        if let Some(error) = refusal.owed {
            self.answer_error(cx, &packet, ascent, upper, error);
        }
        self.drop_ip::<A>(packet, refusal.reason);
    }

    /// Answers a packet with an ICMP error, if the packet, its addresses and the limits allow.
    pub(crate) fn answer_error<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: &PacketBuf,
        ascent: RxMeta<A>,
        upper: Option<ArrivedUpper>,
        error: IcmpError,
    ) {
        let (l3, heading, zone) = (ascent.l3, &ascent.heading, Some(ascent.iface));
        let addresses = (heading.src_addr, heading.dst_addr);
        let access = &mut self.stats.access;
        // A broadcast address looks like a unicast address where the subnet mask is unknown.
        let excepted = A::FAMILY == Family::V6 && error.is_owed_to_groups();
        if ascent.to_group && !excepted {
            return;
        }
        if !icmp::may_answer(packet, l3, addresses, upper, error, access) {
            return;
        }
        let counters = &mut self.stats.counters;
        match self.icmp.limit.allow_error(heading.src_addr.to_ip(), cx.now, &mut cx.random.secret) {
            IcmpAllowance::Yes => {}
            IcmpAllowance::PeerLimited => return counters.count(A::OUT_LIMITED_PEER),
            IcmpAllowance::GlobalLimited => return counters.count(A::OUT_LIMITED_ALL),
        }
        // A forwarded packet's destination is none of our addresses.
        let asked = !ascent.to_group && self.speaks_as(heading.dst_addr);
        let ours = asked.then_some(heading.dst_addr);
        let from = ours.or_else(|| self.source_for(cx, heading.src_addr, zone));
        let Some(src_addr) = from else { return };
        let ends = AddrPair { src_addr, dst_addr: heading.src_addr };
        let Some(message) = A::icmp_error(cx.pool, error, packet, l3, ends) else {
            return self.stats.counters.count(A::OUT_DISCARDS);
        };
        A::count_error(self, error);
        let (protocol, hop_limit) = (A::ICMP, self.hop_limit_of::<A>(ascent.iface));
        self.output(
            cx,
            OutgoingPacket {
                packet: message,
                ends,
                protocol,
                hop_limit,
                class: A::ERROR_CLASS,
                zone,
            },
        );
    }

    /// Drops a packet that this host originated.
    #[cold]
    pub(crate) fn drop_output<A: IpFamily>(&mut self, packet: PacketBuf, reason: DropReason) {
        self.stats.drops_out.count(reason);
        self.stats.counters.count(match reason {
            DropReason::NoRoute => A::OUT_NO_ROUTES,
            _ => A::OUT_DISCARDS,
        });
        if let Some(tap) = &mut self.tap {
            tap.dropped(&packet, TapEvent::DroppedOut(reason));
        }
        drop(packet);
    }

    /// Drops a received packet that was not yet validated as an IP packet.
    #[cold]
    pub(crate) fn drop_packet(&mut self, packet: PacketBuf, reason: DropReason) {
        self.stats.drops_in.count(reason);
        if let Some(tap) = &mut self.tap {
            tap.dropped(&packet, TapEvent::DroppedIn(reason));
        }
        drop(packet);
    }

    /// Drops a received IP packet.
    #[cold]
    pub(crate) fn drop_ip<A: Address>(&mut self, packet: PacketBuf, reason: DropReason) {
        let v4 = A::FAMILY == Family::V4;
        let pick = |a: Counter, b: Counter| if v4 { a } else { b };
        let counter = match reason {
            DropReason::IpLength | DropReason::IpTruncated if !v4 => Counter::Ip6InTruncatedPkts,
            DropReason::IpSourceInvalid
            | DropReason::IpDestinationInvalid
            | DropReason::IpGroupNotJoined
            | DropReason::IpNotForUs => pick(Counter::IpInAddrErrors, Counter::Ip6InAddrErrors),
            DropReason::ProtocolUnknown => {
                pick(Counter::IpInUnknownProtos, Counter::Ip6InUnknownProtos)
            }
            DropReason::NoBuffer
            | DropReason::HandoffFull
            | DropReason::InterfaceDown
            | DropReason::RouteBlackhole
            | DropReason::AccessDenied
            | DropReason::ForwardReversePath => pick(Counter::IpInDiscards, Counter::Ip6InDiscards),
            DropReason::ForwardMartian
            | DropReason::ForwardLinkScope
            | DropReason::ForwardBroadcast => {
                pick(Counter::IpInAddrErrors, Counter::Ip6InAddrErrors)
            }
            DropReason::NoRoute | DropReason::RouteUnreachable | DropReason::RouteProhibited => {
                pick(Counter::IpInNoRoutes, Counter::Ip6InNoRoutes)
            }
            DropReason::PacketTooBig => pick(Counter::IpFragFails, Counter::Ip6InTooBigErrors),
            _ => pick(Counter::IpInHdrErrors, Counter::Ip6InHdrErrors),
        };
        self.stats.counters.count(counter);
        self.drop_packet(packet, reason);
    }
}
