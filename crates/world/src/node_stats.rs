//! What a node did: what a test reads.

use core::time::Duration;

/// What a node did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeStats {
    /// Turns of its worker.
    pub turns: u64,
    /// Calls of [`Engine::round`](floodwall_packet::Engine::round).
    pub rounds: u64,
    /// Calls of [`Engine::work`](floodwall_packet::Engine::work).
    pub works: u64,
    /// Calls of [`Engine::work`](floodwall_packet::Engine::work) that were requested at once and
    /// did nothing.
    pub fruitless: u64,
    /// Packets handed to the engine.
    pub packets_in: u64,
    /// Packets that the engine sent.
    pub packets_out: u64,
    /// Of these, packets for an interface without a link, dropped.
    pub unlinked: u64,
    /// Units that the engine reports as spent.
    pub units: u64,
    /// Time during which the node was busy.
    pub busy: Duration,
    /// The longest turn.
    pub turn_max: Duration,
    /// Peak number of packets in the ring.
    pub ring_peak: usize,
    /// Packets that other workers of the host handed over.
    pub adopted: u64,
    /// Packets that they handed over and that found no room.
    pub handoff_lost: u64,
    /// Times that the engine panicked and was made again.
    pub panics: u64,
    /// Packets that it held then and had not touched.
    pub untouched: u64,
    /// Packets that other workers handed over and that were dropped at the gate, or wait there.
    pub handed_held: u64,
    /// Packets that the gate looked at.
    pub looked_at: u64,
    /// Of these, refusable packets, dropped (`TriageRejectable`).
    pub refused: u64,
    /// Packets of unverified flows dropped because too many waited (`TriageUnknown`).
    pub crowded_out: u64,
    /// Packets of unverified flows that wait now.
    pub waiting: usize,
    /// Times that the worker's share was used up while packets waited.
    pub time_squeeze: u64,
    /// The longest run of the worker without a break, where it has a share.
    pub run_max: Duration,
    /// How long the application ran.
    pub application_ran: Duration,
    /// The longest that the application wanted to run and did not, up to now.
    pub application_gap_max: Duration,
}
