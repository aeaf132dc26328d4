//! `ReadyQueue`: the order in which a service's connections get their turns (deficit round robin).
//!
//! Called by the services on the stack's own core. A connection with work left when its quantum is
//! spent goes to the end of the queue, and is served again when all others have been. Invariants: a
//! connection is in the queue once at most; one that ended is skipped; nothing is allocated after
//! the start.
//!
//! # Under flood
//! Any number of peers make their connections ready, and keep them so. Bound: one entry for each of
//! `tcp_connections_max` places. Each gets [`QUANTUM_UNITS`] units a turn, independent of what it
//! sends.

use std::collections::VecDeque;

use floodwall_base::Units;
use floodwall_stack::Sockets;
use floodwall_tcp::ConnectionId;

use crate::service_listener::ServiceListener;

/// Units that one connection may spend before the next one's turn.
const QUANTUM_UNITS: u32 = 16;
/// Bytes that are copied for one unit.
const BYTES_A_UNIT: usize = 1024;
/// Units for taking an event, with a look at its connection.
const EVENT_UNITS: u32 = 1;

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

    fn push(&mut self, id: ConnectionId) {
        let Some(place) = self.queued.get_mut(id.index()) else { return };
        // The one that was there before has ended.
        if place.replace(id).is_none() {
            self.order.push_back(id.index());
        }
    }

    fn pop(&mut self) -> Option<ConnectionId> {
        self.queued.get_mut(self.order.pop_front()?)?.take()
    }

    /// Whether none is ready.
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Serves ready connections in their order until `budget` is spent or none is left. `serve` may
    /// spend the quantum that it is given, and not much more. Returns the units spent.
    pub(crate) fn run(
        &mut self,
        sockets: &mut Sockets<'_>,
        listener: &mut ServiceListener,
        budget: Units,
        mut serve: impl FnMut(&mut Sockets<'_>, ConnectionId, u32) -> ServedTurn,
    ) -> Units {
        let mut spent = 0;
        while spent < budget.0 {
            // One that has become ready waits behind those that were ready before.
            if let Some(id) = listener.next(sockets) {
                spent += EVENT_UNITS;
                self.push(id);
            }
            let Some(id) = self.pop() else { break };
            let turn = serve(sockets, id, QUANTUM_UNITS);
            spent += turn.spent;
            if turn.more {
                self.push(id);
            }
        }
        Units(spent)
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
