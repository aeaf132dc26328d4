//! `ReadyQueue`: the order in which a service's connections get their turns (deficit round robin).
//!
//! Used by `service_listener.rs`. A connection with work left when its quantum is
//! spent goes to the end of the queue, and is served again when all others have been. Invariants: a
//! connection is in the queue once at most; one that ended is skipped; nothing is allocated after
//! the start.
//!
//! # Under flood
//! Any number of peers make their connections ready, and keep them so. Bound: one entry for each of
//! `tcp_connections_max` places. Each gets [`QUANTUM_UNITS`] units a turn, independent of what it
//! sends.

use std::collections::VecDeque;

use floodwall_tcp::ConnectionId;

/// Units that one connection may spend before the next one's turn.
pub(crate) const QUANTUM_UNITS: u32 = 16;
/// Bytes that are copied for one unit.
const BYTES_A_UNIT: usize = 1024;

/// The units that copying costs.
pub(crate) const fn copied(bytes: usize) -> u32 {
    bytes.div_ceil(BYTES_A_UNIT) as u32
}

/// What a connection did in its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ServedTurn {
    /// Units that it spent.
    pub(crate) spent: u32,
    /// It has more to do at once.
    pub(crate) more: bool,
}

/// Ready connections, in the order of their turns.
#[derive(Debug, Default)]
pub(crate) struct ReadyQueue {
    order: VecDeque<usize>,
    /// By place: the connection that is in the queue.
    queued: Vec<Option<ConnectionId>>,
}

impl ReadyQueue {
    /// Makes room for the connections of a stack.
    pub(crate) fn prepare(&mut self, connections_max: usize) {
        self.order.reserve(connections_max);
        self.queued.resize(connections_max, None);
    }

    pub(crate) fn push(&mut self, id: ConnectionId) {
        let Some(place) = self.queued.get_mut(id.index()) else { return };
        // The one that was there before has ended.
        if place.replace(id).is_none() {
            self.order.push_back(id.index());
        }
    }

    pub(crate) fn pop(&mut self) -> Option<ConnectionId> {
        self.queued.get_mut(self.order.pop_front()?)?.take()
    }

    /// Whether none is ready.
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kilobyte_costs_as_much_as_a_part_of_it() {
        assert_eq!([0, 1, 1024, 1025, 16_384].map(copied), [0, 1, 1, 2, 16]);
    }
}
