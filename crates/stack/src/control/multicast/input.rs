//! IGMP and MLD messages that arrived: validated, counted, handed to their interface's engine.
//!
//! Called by `deliver.rs`. Invariant: nothing is processed before checksum, hop limit and router
//! alert are validated. Reading: RFC 9776 section 4, RFC 9777 sections 5 and 6.2.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{Counter, DropReason, limits};
use floodwall_ip::{ArrivedUpper, GroupHeading, GroupMessageKind};
use floodwall_packet::{AccessCounters, ChecksumState, PacketBuf};
use floodwall_wire::ipv4_options::{Ipv4Option, Ipv4Options};
use floodwall_wire::ipv6_options::{Ipv6Option, Ipv6Options};
use floodwall_wire::{IpProtocol, ipv4, ipv6};

use super::{GroupEngines, MESSAGE_MAX};
use crate::ip::rx_meta::RxMeta;
use crate::round_context::RoundContext;
use crate::stack::Stack;

impl Stack {
    /// Handles an IGMP message.
    #[cold]
    pub(crate) fn igmp(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv4Addr>,
        upper: ArrivedUpper,
    ) {
        if self.is_follower() {
            return self.hand_in(cx, packet, upper.fragmented.then_some(ascent.l3));
        }
        let l4 = ascent.l3 + upper.offset;
        let unverified = packet.checksum_state() == ChecksumState::Unverified;
        if unverified && !packet.sum(l4, packet.len().saturating_sub(l4)).verifies() {
            self.stats.counters.count(Counter::FloodwallIgmpInCsumErrors);
            self.stats.counters.count(Counter::FloodwallIgmpInErrors);
            return self.drop_packet(packet, DropReason::IgmpChecksum);
        }
        let alert = router_alert_v4(&packet, &ascent, &mut self.stats.access);
        let result = self.group_message(cx, &packet, ascent, upper, alert, |stack, kind| {
            stack.stats.counters.count(match kind {
                GroupMessageKind::Query => Counter::FloodwallIgmpInQueries,
                GroupMessageKind::Unknown => Counter::FloodwallIgmpInErrors,
                _ => Counter::FloodwallIgmpInReports,
            });
        });
        self.group_message_done(packet, result, Counter::FloodwallIgmpInErrors);
    }

    /// Handles an MLD message with a correct checksum.
    #[cold]
    pub(crate) fn mld(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv6Addr>,
        upper: ArrivedUpper,
    ) {
        // Our own message, looped back, or a forged one.
        if self.is_forged(ascent) {
            return self.drop_ip::<Ipv6Addr>(packet, DropReason::IpSourceInvalid);
        }
        let alert = router_alert_v6(&packet, &ascent, &mut self.stats.access);
        let result = self.group_message(cx, &packet, ascent, upper, alert, |stack, kind| {
            stack.stats.counters.count(match kind {
                GroupMessageKind::Query => Counter::Icmp6InGroupMembQueries,
                GroupMessageKind::Leave => Counter::Icmp6InGroupMembReductions,
                GroupMessageKind::Records => Counter::Icmp6InMLDv2Reports,
                GroupMessageKind::Report | GroupMessageKind::Unknown => {
                    Counter::Icmp6InGroupMembResponses
                }
            });
        });
        self.group_message_done(packet, result, Counter::Icmp6InErrors);
    }

    fn group_message<A: GroupEngines>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: &PacketBuf,
        ascent: RxMeta<A>,
        upper: ArrivedUpper,
        router_alert: bool,
        count: impl FnOnce(&mut Self, GroupMessageKind),
    ) -> Result<(), DropReason> {
        let l4 = ascent.l3 + upper.offset;
        let len = packet.len().saturating_sub(l4);
        if len > MESSAGE_MAX {
            return Err(DropReason::GroupMessageMalformed);
        }
        let mut scratch = [0; MESSAGE_MAX];
        let bytes = packet.header(l4, len, &mut scratch, &mut self.stats.access);
        let message = bytes.and_then(|bytes| A::parse(bytes).ok());
        let message = message.ok_or(DropReason::GroupMessageMalformed)?;
        count(self, GroupMessageKind::of(&message));
        let heading = GroupHeading {
            src_addr: ascent.heading.src_addr,
            dst_addr: ascent.heading.dst_addr,
            hop_limit: ascent.heading.hop_limit,
            router_alert,
        };
        let link =
            self.control.groups.link_mut(ascent.iface).ok_or(DropReason::InterfaceUnknown)?;
        A::engine(link).input(&heading, &message, cx.now, &mut cx.random.public)?;
        self.control.groups.plan();
        Ok(())
    }

    fn group_message_done(
        &mut self,
        packet: PacketBuf,
        result: Result<(), DropReason>,
        errors: Counter,
    ) {
        match result {
            Ok(()) => self.stats.outcomes.delivered += 1,
            Err(reason) => {
                if reason != DropReason::GroupMessageNotForUs {
                    self.stats.counters.count(errors);
                }
                self.drop_packet(packet, reason);
            }
        }
    }
}

/// Whether an IPv4 packet carries the router alert option (RFC 2113).
fn router_alert_v4(
    packet: &PacketBuf,
    ascent: &RxMeta<Ipv4Addr>,
    access: &mut AccessCounters,
) -> bool {
    let mut scratch = [0; ipv4::HEADER_LEN_MAX];
    let len = ascent.heading.header_len.saturating_sub(ipv4::HEADER_LEN);
    let bytes = match len {
        0 => None,
        _ => packet.header(ascent.l3 + ipv4::HEADER_LEN, len, &mut scratch, access),
    };
    let mut options = Ipv4Options::new(bytes.unwrap_or_default());
    options.any(|option| matches!(option, Ok(Ipv4Option::RouterAlert(0))))
}

/// Whether an IPv6 packet carries the router alert option for MLD, value 0, in hop-by-hop options
/// (RFC 2711).
fn router_alert_v6(
    packet: &PacketBuf,
    ascent: &RxMeta<Ipv6Addr>,
    access: &mut AccessCounters,
) -> bool {
    if ascent.heading.protocol != IpProtocol::HOP_BY_HOP {
        return false;
    }
    let at = ascent.l3 + ipv6::HEADER_LEN;
    let mut scratch = [0; limits::EXTENSION_BYTES_MAX];
    let Some(len) = packet.header(at, 2, &mut scratch, access).and_then(|b| b.get(1).copied())
    else {
        return false;
    };
    let len = (usize::from(len) + 1) * 8;
    let mut scratch = [0; limits::EXTENSION_BYTES_MAX];
    let bytes = match len <= scratch.len() {
        true => packet.header(at, len, &mut scratch, access),
        false => None,
    };
    let options = bytes.and_then(|b| b.get(2..)).unwrap_or_default();
    Ipv6Options::new(options).any(|o| matches!(o, Ok((_, Ipv6Option::RouterAlert(0)))))
}
