//! `Replays`: an old data frame of a real connection, sent again and again.
//!
//! Used by `callers.rs` for the attack of that purpose. The frame is the first one that leaves with
//! the connection's line; from then on copies of it leave at a rate, as a flood's packets do.

use core::time::Duration;

use floodwall_base::{IfIndex, Instant};
use floodwall_packet::Round;

use crate::flood::{AT_ONCE, FloodGate};

/// Copies a second, both families together: what has been sent to an interface.
pub(super) const REPLAYS_PER_SECOND: u64 = 883_000;
/// Connections of which a frame is sent again: one of each family.
const FRAMES: usize = 2;
/// Where in a frame its source is, and its type.
const SOURCE: core::ops::Range<usize> = 6..14;

/// What is sent again, and how fast.
pub(super) struct Replays {
    frames: Vec<Vec<u8>>,
    next: usize,
    gate: FloodGate,
    is_held: bool,
    sent: u64,
}

impl Replays {
    /// So many copies a second, for so long once there are frames.
    pub(super) fn new(rate: u64, length: Duration) -> Self {
        let gate = FloodGate::new(rate, length);
        Self { frames: Vec::with_capacity(FRAMES), next: 0, gate, is_held: false, sent: 0 }
    }

    /// Holds the copies back, or lets them go on.
    pub(super) const fn hold(&mut self, held: bool) {
        self.is_held = held;
    }

    /// Keeps the frames of a station with this line that are about to leave, one of each family.
    pub(super) fn keep(&mut self, round: &Round<'_>, from: [u8; 6], line: &[u8]) {
        if self.frames.len() == FRAMES {
            return;
        }
        for packet in round.departing.iter() {
            let source = packet.first().get(SOURCE).unwrap_or_default();
            let is_known = self.frames.iter().any(|frame| frame.get(SOURCE) == Some(source));
            if source.starts_with(&from) && !is_known {
                let bytes: Vec<u8> = packet.chunks().flatten().copied().collect();
                if bytes.ends_with(line) {
                    self.frames.push(bytes);
                }
            }
        }
    }

    /// Sends the copies that are due.
    pub(super) fn send(&mut self, round: &mut Round<'_>) {
        if self.frames.is_empty() {
            return;
        }
        let most = AT_ONCE.min(u64::from(round.budget.0));
        let count = self.gate.pass(round.now, most);
        for _ in 0..if self.is_held { 0 } else { count } {
            self.next = (self.next + 1) % self.frames.len();
            let frame = self.frames.get(self.next).map(Vec::as_slice).unwrap_or_default();
            if let Some(mut packet) = round.pool.packet_from(frame) {
                packet.set_iface(IfIndex(1));
                round.departing.push_back(packet);
                self.sent += 1;
            }
        }
    }

    /// Copies that were sent.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// When copies are due; `None` before there is a frame, and when it is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.gate.deadline().filter(|_| !self.frames.is_empty())
    }
}
