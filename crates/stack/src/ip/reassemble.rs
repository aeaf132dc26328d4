//! Fragments that arrived: into the store, and out of it as a whole packet, in the same round.
//!
//! Called by `rx.rs` for each fragment that is for this host, and for timed work. A reassembled
//! datagram goes through the same checks and the same delivery as one that came in one piece; one
//! that timed out is answered with an ICMP error if its first fragment is there. Invariant: a
//! fragment has one outcome: held, merged into a whole that has its own, or dropped with a reason.
//! Reading: RFC 8200 section 4.5, RFC 1122 section 3.3.2. Not here: the store
//! (`floodwall_ip::reassembly`).

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{Counter, DropReason, Units};
use floodwall_ip::input::{self, Layers};
use floodwall_ip::{
    ArrivedUpper, Fragment, FragmentPiece, FragmentStore, IcmpError, ReassemblyExpired,
    ReassemblyTally, Whole,
};
use floodwall_packet::{HandoffKind, PacketBuf};
use floodwall_wire::ipv6_walk::FragmentPlace;

use crate::ip::ip_family::IpFamily;
use crate::ip::rx_meta::RxMeta;
use crate::round_context::RoundContext;
use crate::stack::Stack;
use crate::stats::Stats;

/// Datagrams given up in one go, before any of them is answered.
const EXPIRED_MAX: usize = 16;

/// What differs between the families.
pub(crate) trait ReassembleFamily: IpFamily {
    const IN_DISCARDS: Counter;

    /// The family's store, and the statistics in which its drops are counted.
    fn reassembly(stack: &mut Stack) -> (&mut FragmentStore<Self>, &mut Stats);

    /// Delivers a packet that was put together, behind the checks of any other.
    fn deliver_whole(
        stack: &mut Stack,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Self>,
    );
}

impl ReassembleFamily for Ipv4Addr {
    const IN_DISCARDS: Counter = Counter::IpInDiscards;

    fn reassembly(stack: &mut Stack) -> (&mut FragmentStore<Self>, &mut Stats) {
        (&mut stack.v4.reassembly, &mut stack.stats)
    }

    fn deliver_whole(
        stack: &mut Stack,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Self>,
    ) {
        let RxMeta { l3, heading, .. } = ascent;
        match input::ipv4_upper(&packet, l3, &heading, &mut stack.stats.access) {
            Ok(upper) => {
                let upper = ArrivedUpper { fragmented: true, ..upper };
                stack.deliver_v4(cx, packet, ascent, upper);
            }
            Err(refusal) => stack.refuse(cx, packet, ascent, None, refusal),
        }
    }
}

impl ReassembleFamily for Ipv6Addr {
    const IN_DISCARDS: Counter = Counter::Ip6InDiscards;

    fn reassembly(stack: &mut Stack) -> (&mut FragmentStore<Self>, &mut Stats) {
        (&mut stack.v6.reassembly, &mut stack.stats)
    }

    fn deliver_whole(
        stack: &mut Stack,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Self>,
    ) {
        let (limits, access) = (&stack.policy.extension_limits, &mut stack.stats.access);
        match input::ipv6_upper(&packet, ascent.l3, &ascent.heading, limits, access) {
            Ok(Layers::Upper(upper)) => {
                let upper = ArrivedUpper { fragmented: true, ..upper };
                stack.deliver_v6(cx, packet, ascent, upper);
            }
            // The first fragment was refused if its chain had another fragment header.
            Ok(Layers::Fragment { .. }) => {
                stack.drop_ip::<Self>(packet, DropReason::FragmentMalformed);
            }
            Err(refusal) => stack.refuse(cx, packet, ascent, None, refusal),
        }
    }
}

impl Stack {
    /// An IPv4 fragment for this host.
    #[cold]
    pub(crate) fn fragment_v4(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv4Addr>,
    ) {
        let place = (ascent.iface, ascent.l3, ascent.to_group);
        match FragmentPiece::of_ipv4(&packet, place, ascent.heading, &mut self.stats.access) {
            Ok(piece) => self.reassemble(cx, packet, &piece),
            Err(refusal) => self.refuse(cx, packet, ascent, None, refusal),
        }
    }

    /// An IPv6 fragment for this host, which is not all of its packet.
    #[cold]
    pub(crate) fn fragment_v6(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv6Addr>,
        found: (FragmentPlace, Option<ArrivedUpper>),
    ) {
        let place = (ascent.iface, ascent.l3, ascent.to_group);
        match FragmentPiece::of_ipv6(&packet, place, ascent.heading, found, &mut self.stats.access)
        {
            Ok(piece) => self.reassemble(cx, packet, &piece),
            Err(refusal) => self.refuse(cx, packet, ascent, found.1, refusal),
        }
    }

    fn reassemble<A: ReassembleFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        piece: &FragmentPiece<A>,
    ) {
        self.memory.has_moved = true;
        let (store, stats) = A::reassembly(self);
        let (fragment, late) = store.input(piece, packet, cx.now, cx.pool, &mut tally(stats));
        if let Some(expired) = late {
            self.expired(cx, expired);
        }
        match fragment {
            Fragment::Held => {}
            Fragment::Dropped => self.stats.counters.count(A::IN_DISCARDS),
            Fragment::Whole(whole) => self.whole(cx, whole),
        }
    }

    /// A datagram is complete: it goes on as if it had come in one piece.
    fn whole<A: ReassembleFamily>(&mut self, cx: &mut RoundContext<'_>, whole: Whole<A>) {
        let Whole { mut packet, first, fragments } = whole;
        self.stats.outcomes.merged += fragments.saturating_sub(1);
        let FragmentPiece { iface, l3, heading, to_group, .. } = first;
        if let Some(owner) = self.owner_of_whole(&packet, l3) {
            packet.trim_front(l3);
            return self.hand_to(cx, owner, HandoffKind::Reassembled, packet);
        }
        A::deliver_whole(self, cx, packet, RxMeta { iface, l3, heading, to_group });
    }

    /// Reassembly timed out: the sender gets an ICMP error if the first fragment is there. The
    /// drops are counted already.
    fn expired<A: ReassembleFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        expired: ReassemblyExpired<A>,
    ) {
        let Some((packet, first)) = expired.first else { return };
        let FragmentPiece { iface, l3, heading, to_group, .. } = first;
        let ascent = RxMeta { iface, l3, heading, to_group };
        self.answer_error(cx, &packet, ascent, None, IcmpError::ReassemblyTimeExceeded);
    }

    /// Gives up what was waited for in vain, up to `budget` units.
    pub(crate) fn reassembly_timers<A: ReassembleFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        budget: Units,
    ) -> Units {
        let (mut due, mut count) = ([const { None }; EXPIRED_MAX], 0);
        let (store, stats) = A::reassembly(self);
        let granted = Units(budget.0.min(EXPIRED_MAX as u32));
        let spent = store.expire(cx.now, granted, &mut tally(stats), |expired| {
            if let Some(slot) = due.get_mut(count) {
                *slot = Some(expired);
                count += 1;
            }
        });
        for expired in due.into_iter().flatten() {
            self.expired::<A>(cx, expired);
        }
        spent
    }
}

fn tally(stats: &mut Stats) -> ReassemblyTally<'_> {
    ReassemblyTally {
        drops: &mut stats.drops_in,
        counters: &mut stats.counters,
        access: &mut stats.access,
    }
}
