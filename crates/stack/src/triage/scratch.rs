//! `TriageScratch`: what is noted of a burst while its packets are classified.
//!
//! Filled in and read by `triage.rs`. Invariant: nothing in it counts beyond one burst; it is kept
//! for its memory.

use floodwall_base::IfIndex;
use floodwall_base::limits::BURST_MAX;
use floodwall_packet::Triage;
use floodwall_udp::{LookupSlot, PortProbe};

use crate::ip::forward::flows;
use crate::ip::forward::forwarding::Forwarding;

/// Other properties of a packet that was queued for a table look-up.
#[derive(Clone, Copy)]
pub(super) struct TriageQuery {
    /// Its number in the burst.
    pub(super) at: usize,
    pub(super) is_error: bool,
    pub(super) iface: IfIndex,
}

/// What is noted of a burst: kept from one to the next, for to clear 7 KiB would cost as much as to
/// parse a fifth of it.
pub(crate) struct TriageScratch {
    /// What plain datagrams seek, and their numbers in the burst.
    pub(super) sought: [(PortProbe, u8); BURST_MAX],
    /// Numbers of those that need a closer look.
    pub(super) left: [u8; BURST_MAX],
    pub(super) questions: [TriageQuery; BURST_MAX],
    pub(super) asked: [LookupSlot; BURST_MAX],
    /// Dialogues of others that packets may be of, and their numbers in the burst.
    pub(super) transits: [(flows::DialogueSlot, u8); BURST_MAX],
}

impl Default for TriageScratch {
    fn default() -> Self {
        let nothing = TriageQuery { at: 0, is_error: false, iface: IfIndex(0) };
        Self {
            sought: [(PortProbe::NOTHING, 0); BURST_MAX],
            left: [0; BURST_MAX],
            questions: [nothing; BURST_MAX],
            asked: [LookupSlot::NOTHING; BURST_MAX],
            transits: [(flows::DialogueSlot::UNUSED, 0); BURST_MAX],
        }
    }
}

impl TriageScratch {
    /// A packet for others: its dialogue's entry will be looked at.
    #[inline(always)]
    pub(super) fn note_transit(
        &mut self,
        forwarding: Option<&Forwarding>,
        place: flows::DialogueSlot,
        at: u8,
        passing: &mut usize,
    ) {
        if let (Some(slot), Some(forwarding)) = (self.transits.get_mut(*passing), forwarding) {
            forwarding.dialogues.prefetch(place);
            *slot = (place, at);
            *passing += 1;
        }
    }

    /// Sets the classes of packets that are for others.
    #[inline(always)]
    pub(super) fn judge(
        &self,
        forwarding: Option<&Forwarding>,
        passing: usize,
        classes: &mut [Triage],
    ) {
        for (place, at) in self.transits.iter().take(passing) {
            if let Some(class) = classes.get_mut(usize::from(*at)) {
                *class = of_dialogue(forwarding, *place);
            }
        }
    }
}

/// The class of a packet for others, given the `place` of its dialogue's entry.
#[inline]
pub(super) fn of_dialogue(forwarding: Option<&Forwarding>, place: flows::DialogueSlot) -> Triage {
    if forwarding.is_some_and(|forwarding| forwarding.dialogues.is_established(place)) {
        Triage::Established
    } else {
        Triage::Unknown
    }
}
