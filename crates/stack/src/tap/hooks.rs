//! Where a round copies packets for an operator: those that arrived, and those that depart.
//!
//! Called by the stack's engine at both ends of each call. Costs a look at one pointer where no
//! operator listens.

use floodwall_base::{DropReason, Instant};
use floodwall_packet::{HandoffKind, HandoffList, PacketBuf, PacketList};

use super::{PacketTap, TapEvent};
use crate::stack::Stack;

impl Stack {
    /// Has packets copied, or no more; returns the tap before.
    pub fn set_tap(&mut self, tap: Option<Box<PacketTap>>) -> Option<Box<PacketTap>> {
        core::mem::replace(&mut self.tap, tap)
    }

    /// Whether a tap is installed.
    #[must_use]
    pub const fn has_tap(&self) -> bool {
        self.tap.is_some()
    }

    /// Whether an operator is to see every packet, so that none may pass without the worker.
    pub(crate) fn is_captured(&self) -> bool {
        self.tap.as_ref().is_some_and(|tap| !tap.config.is_sample)
    }

    /// A round begins with these packets; returns how many are departing already.
    #[inline]
    pub(crate) fn tap_begin<'p>(
        &mut self,
        now: Instant,
        arrived: impl Iterator<Item = &'p PacketBuf>,
        departing: usize,
    ) -> usize {
        if let Some(tap) = &mut self.tap {
            tap.now = now;
            if tap.takes_arrivals() {
                arrived.for_each(|packet| tap.take(packet, TapEvent::Arrived));
            }
        }
        departing
    }

    /// The same with what another worker received: frames that no stack has looked at.
    #[inline]
    pub(crate) fn tap_begin_handed(
        &mut self,
        now: Instant,
        handed: &HandoffList,
        departing: usize,
    ) -> usize {
        let frames = handed.iter().filter(|handoff| handoff.kind == HandoffKind::Frame);
        self.tap_begin(now, frames.map(|handoff| &handoff.packet), departing)
    }

    /// The segment that was kept is dropped.
    #[cold]
    pub(crate) fn tap_dropped_held(&mut self, reason: DropReason) {
        if let Some(tap) = &mut self.tap {
            tap.dropped_held(reason);
        }
    }

    /// A round ends: what it has added to the departing packets leaves.
    #[inline]
    pub(crate) fn tap_end(&mut self, departing: &PacketList, before: usize) {
        if let Some(tap) = &mut self.tap
            && tap.takes_departures()
        {
            departing.iter().skip(before).for_each(|packet| tap.take(packet, TapEvent::Sent));
        }
    }
}
