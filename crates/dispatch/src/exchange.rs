//! `Exchange`: one worker's ends of the rings by which the workers of a worker group hand packets
//! over.
//!
//! Called by the worker's turn: it collects what others handed over before it takes new input, and
//! gives out what it has for them once at the end, one batch a neighbour, with one nudge of the
//! neighbour's bell. A ring for each ordered pair of workers (`sync::spsc`): one writer, one
//! reader, no lock, order kept.
//!
//! Invariants: a turn adopts at most [`BURST_MAX`] packets, beginning with another neighbour each
//! time; each packet for a neighbour is in its ring after the turn, waits here for the next, or is
//! dropped by the name of its kind; a neighbour that sleeps over a ring that is not empty is woken
//! (`sync::Alarm`, where the loom models are).
//!
//! # Under flood
//! Any peer with packets that arrive at another worker than their flow's owner fills the rings.
//! Bound: [`HANDOFF_RING`] packets a pair, and as many that wait for room here; work per packet:
//! two moves. When full, a worker takes in less itself, and what has no room waits, for
//! [`HANDOFF_WAIT`] at most: so a bulk transfer that is faster than its owner for a moment loses
//! nothing, and the devices hold what is not taken in. From then on, until the ring has been half
//! empty, the new packet is dropped at once: a neighbour that is flooded, or stands still, must not
//! hold up others' flows. There are separate counters for frames and for the engine's own packets.
//! Packets to be sent may use [`HANDOFF_OUTGOING_MAX`] of it at most: a flood that makes every
//! worker resolve neighbours that do not exist still leaves room for frames to the control shard.
//! Legitimate traffic that arrives at its owner loses nothing; traffic that must cross to an
//! overloaded worker loses as the flood does.

use floodwall_base::limits::{
    BURST_MAX, HANDOFF_MAX, HANDOFF_OUTGOING_MAX, HANDOFF_RING, HANDOFF_WAIT,
};
use floodwall_base::{Instant, WorkerId};
use floodwall_packet::{Handoff, HandoffKind, HandoffList, PacketBuf, PacketList};
use floodwall_sync::CachePadded;
use floodwall_sync::spsc::{self, Consumer, Producer};

use crate::bell::Bell;
use crate::worker_counters::{WorkerCounter, WorkerCounters};

/// Minimum credit of devices for unverified flows in a turn even though a ring is full: a neighbour
/// that has stopped must not starve the unverified flows of others.
const CREDIT_LEAST: usize = 4;

/// What a packet in a ring is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HandoffItem {
    /// The other engine's: see [`HandoffKind`].
    Engine(HandoffKind),
    /// To be transmitted by the other worker, which has a queue of its device.
    Departure,
}

/// A packet in a ring.
#[derive(Debug)]
struct HandoffParcel {
    errand: HandoffItem,
    packet: PacketBuf,
}

/// All there is between this worker and one other.
struct PeerWorker {
    id: WorkerId,
    bell: Bell,
    to: Producer<HandoffParcel>,
    from: Consumer<HandoffParcel>,
    /// What goes out at the end of the turn, behind what had no room in the last; never more than
    /// the ring holds.
    outbox: Vec<HandoffParcel>,
    /// Since when its ring is too full; `None` once it has been half empty.
    full_since: Option<Instant>,
}

impl PeerWorker {
    /// Whether what has no room waits for it.
    fn is_waited_for(&self, now: Instant) -> bool {
        self.full_since.is_none_or(|since| now.saturating_since(since) < HANDOFF_WAIT)
    }
}

/// One worker's ends of the hand-off rings to and from all others.
pub(crate) struct Exchange {
    own: WorkerId,
    /// Each on lines of its own: its indices are written with each packet.
    neighbours: Vec<CachePadded<PeerWorker>>,
    /// The neighbour that is served first in the next turn.
    first: usize,
    /// Room in the fullest ring that the last turn gave something to.
    room: usize,
    /// The same of the rings that are waited for: what this worker takes in meanwhile.
    capacity: usize,
    /// What the engine has for others, in the call that runs.
    pub(crate) offered: HandoffList,
    /// What the engine is given of others.
    pub(crate) handed: HandoffList,
}

/// The exchanges of a worker group, one a worker, in order: every ring between them. `bells` are
/// theirs.
pub(crate) fn exchanges(bells: &[Bell]) -> Vec<Exchange> {
    let mut all: Vec<_> = (0..bells.len()).map(|own| Exchange::new(own as u16)).collect();
    for one in 0..bells.len() {
        for other in 0..one {
            let (to_other, at_other) = spsc::ring(HANDOFF_RING);
            let (to_one, at_one) = spsc::ring(HANDOFF_RING);
            all[one].join(other as u16, &bells[other], to_other, at_one);
            all[other].join(one as u16, &bells[one], to_one, at_other);
        }
    }
    all.iter_mut().for_each(|exchange| exchange.neighbours.sort_by_key(|n| n.id));
    all
}

impl Exchange {
    fn new(own: u16) -> Self {
        Self {
            own: WorkerId(own),
            neighbours: Vec::new(),
            first: 0,
            room: HANDOFF_RING,
            capacity: usize::MAX,
            offered: HandoffList::new(HANDOFF_MAX),
            handed: HandoffList::new(BURST_MAX),
        }
    }

    fn join(
        &mut self,
        id: u16,
        bell: &Bell,
        to: Producer<HandoffParcel>,
        from: Consumer<HandoffParcel>,
    ) {
        let outbox = Vec::with_capacity(HANDOFF_RING);
        let (id, bell) = (WorkerId(id), bell.clone());
        let neighbour = PeerWorker { id, bell, to, from, outbox, full_since: None };
        self.neighbours.push(CachePadded::new(neighbour));
    }

    /// Makes the lists again that are written with each packet, by the worker's own thread: those
    /// of all workers were allocated side by side, and two may have met in one line. Before the
    /// first packet.
    pub(crate) fn settle(&mut self) {
        self.offered = HandoffList::new(HANDOFF_MAX);
        self.handed = HandoffList::new(BURST_MAX);
        for neighbour in &mut self.neighbours {
            neighbour.outbox = Vec::with_capacity(HANDOFF_RING);
        }
        let joined = self.neighbours.drain(..).collect();
        self.neighbours = joined;
    }

    /// Takes what others handed over: `most` at most, packets for the engine into `handed`,
    /// departures into `departing`. Returns how many.
    pub(crate) fn collect(
        &mut self,
        most: usize,
        departing: &mut PacketList,
        facts: &mut WorkerCounters,
    ) -> usize {
        let count = self.neighbours.len();
        let mut room = most.min(BURST_MAX);
        let asked = room;
        let mut departures = 0;
        for step in 0..count {
            let index = (self.first + step) % count;
            let Some(neighbour) = self.neighbours.get_mut(index) else { break };
            for HandoffParcel { errand, packet } in neighbour.from.pop_batch(room) {
                room -= 1;
                match errand {
                    // There is room: it is as large as the number of packets taken.
                    HandoffItem::Engine(kind) => {
                        let _ = self.handed.push(Handoff { to: self.own, kind, packet });
                    }
                    HandoffItem::Departure => {
                        departing.push_back(packet);
                        departures += 1;
                    }
                }
            }
        }
        self.first = (self.first + 1) % count.max(1);
        let taken = asked - room;
        facts.add(WorkerCounter::Adopted, taken as u64);
        facts.add(WorkerCounter::AdoptedDepartures, departures);
        taken
    }

    /// A frame that arrived here and belongs to `to`.
    #[inline]
    pub(crate) fn frame(&mut self, to: WorkerId, packet: PacketBuf, facts: &mut WorkerCounters) {
        facts.add(WorkerCounter::RxForeign, 1);
        self.stage(
            to,
            HandoffParcel { errand: HandoffItem::Engine(HandoffKind::Frame), packet },
            facts,
        );
    }

    /// A packet that leaves through a device of which only `to` has a queue.
    pub(crate) fn departure(
        &mut self,
        to: WorkerId,
        packet: PacketBuf,
        facts: &mut WorkerCounters,
    ) {
        self.stage(to, HandoffParcel { errand: HandoffItem::Departure, packet }, facts);
    }

    /// After each call of the engine: what it had for others goes to their outboxes.
    #[inline]
    pub(crate) fn take_offered(&mut self, facts: &mut WorkerCounters) {
        if self.offered.is_empty() {
            return;
        }
        let mut offered = std::mem::replace(&mut self.offered, HandoffList::new(0));
        for Handoff { to, kind, packet } in offered.drain() {
            facts.add(WorkerCounter::EngineHandoffs, 1);
            self.stage(to, HandoffParcel { errand: HandoffItem::Engine(kind), packet }, facts);
        }
        self.offered = offered;
    }

    #[inline]
    fn stage(&mut self, to: WorkerId, parcel: HandoffParcel, facts: &mut WorkerCounters) {
        // Neighbours are in order, and we are not among them.
        let index = usize::from(to.0) - usize::from(to > self.own);
        match self.neighbours.get_mut(index) {
            Some(neighbour) if to != self.own && neighbour.outbox.len() < HANDOFF_RING => {
                neighbour.outbox.push(parcel);
            }
            // No such worker, or more than its ring could ever hold.
            _ => facts.add(lost(parcel.errand), 1),
        }
    }

    /// At the end of the turn: a batch to each neighbour that has mail, and a nudge.
    pub(crate) fn give_out(&mut self, now: Instant, facts: &mut WorkerCounters) {
        (self.room, self.capacity) = (HANDOFF_RING, usize::MAX);
        let (mut waiting, mut departures_waiting) = (0, 0);
        for neighbour in &mut self.neighbours {
            let neighbour = &mut **neighbour;
            if neighbour.outbox.is_empty() && neighbour.full_since.is_none() {
                continue;
            }
            let mut room = neighbour.to.room();
            if room >= HANDOFF_RING / 2 {
                neighbour.full_since = None;
            }
            let waits = neighbour.is_waited_for(now);
            let (mut departures, mut goes) = (0, 0);
            neighbour.outbox.retain(|HandoffParcel { errand, .. }| {
                let fits = room > kept_free(*errand);
                room -= usize::from(fits);
                goes += usize::from(fits);
                departures += u64::from(fits && *errand == HandoffItem::Departure);
                // Behind the first that stays, none fits any more: what goes is the front.
                let stays = !fits && waits && kept_free(*errand) == 0;
                waiting += u64::from(stays);
                departures_waiting += u64::from(stays && *errand == HandoffItem::Departure);
                facts.add(lost(*errand), u64::from(!fits && !stays));
                fits || stays
            });
            if goes > 0 {
                self.room = self.room.min(room);
            }
            if room < HANDOFF_RING / 2 {
                neighbour.full_since.get_or_insert(now);
                // Half of what is left: the engine may make more of what is taken in.
                let capacity = (room / 2).max(CREDIT_LEAST);
                self.capacity = if waits { self.capacity.min(capacity) } else { self.capacity };
            }
            facts.add(WorkerCounter::HandedOver, goes as u64);
            facts.add(WorkerCounter::HandedDepartures, departures);
            neighbour.to.push_batch(neighbour.outbox.drain(..goes));
            neighbour.bell.nudge();
        }
        facts.set(WorkerCounter::HandoffWaiting, waiting);
        facts.set(WorkerCounter::HandoffDeparturesWaiting, departures_waiting);
    }

    /// The worker ends: what still waits for room is lost, and counted.
    pub(crate) fn close(&mut self, facts: &mut WorkerCounters) {
        for parcel in self.neighbours.iter_mut().flat_map(|neighbour| neighbour.outbox.drain(..)) {
            facts.add(lost(parcel.errand), 1);
        }
        facts.set(WorkerCounter::HandoffWaiting, 0);
        facts.set(WorkerCounter::HandoffDeparturesWaiting, 0);
    }

    /// Packets that this worker should take in at most, so that what it makes of them for others
    /// finds room: no limit unless a ring fills up.
    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether packets wait for room in a ring, here or in the devices: the next turn follows at
    /// once. Never for longer than [`HANDOFF_WAIT`].
    pub(crate) fn owes(&self) -> bool {
        self.capacity < BURST_MAX
            || self.neighbours.iter().any(|neighbour| !neighbour.outbox.is_empty())
    }

    /// Maximum packets of unverified flows that devices may deliver, of which some may belong to
    /// other workers. Where a ring is half full it is half of the remaining room, so that
    /// established flows find room in it.
    pub(crate) fn credit(&self, own: Option<usize>) -> Option<usize> {
        if self.room >= HANDOFF_RING / 2 {
            return own;
        }
        let most = (self.room / 2).max(CREDIT_LEAST);
        Some(own.map_or(most, |own| own.min(most)))
    }

    /// Whether something waits here for this worker. A load a neighbour.
    pub(crate) fn has_mail(&mut self) -> bool {
        self.neighbours.iter_mut().any(|neighbour| neighbour.from.ready() > 0)
    }

    /// How many packets wait here for this worker.
    pub(crate) fn waiting(&mut self) -> usize {
        self.neighbours.iter_mut().map(|neighbour| neighbour.from.ready()).sum()
    }

    /// After a panic in a call of the engine: its lists are there again, and empty.
    pub(crate) fn restore(&mut self, facts: &mut WorkerCounters) {
        self.take_offered(facts);
        self.offered = HandoffList::new(HANDOFF_MAX);
        self.handed = HandoffList::new(BURST_MAX);
    }
}

/// How much of a ring such a packet leaves to others.
const fn kept_free(errand: HandoffItem) -> usize {
    match errand {
        HandoffItem::Engine(HandoffKind::Outgoing) => HANDOFF_RING - HANDOFF_OUTGOING_MAX,
        _ => 0,
    }
}

/// Under which fact the loss of such a packet is counted.
const fn lost(errand: HandoffItem) -> WorkerCounter {
    match errand {
        HandoffItem::Engine(HandoffKind::Frame | HandoffKind::Quoting | HandoffKind::Believed) => {
            WorkerCounter::DropsHandoffFrame
        }
        HandoffItem::Engine(HandoffKind::Outgoing) => WorkerCounter::DropsHandoffOutgoing,
        HandoffItem::Engine(HandoffKind::Reassembled) => WorkerCounter::DropsHandoffReassembled,
        HandoffItem::Departure => WorkerCounter::DropsHandoffDeparture,
    }
}

#[cfg(test)]
mod tests {
    use floodwall_packet::{Pool, PoolConfig};

    use super::*;

    #[test]
    fn what_is_written_with_each_packet_shares_no_line_with_another_workers() {
        let (_pool, _, mut all) = three();
        all.iter_mut().for_each(Exchange::settle);
        let hot = |exchange: &Exchange| {
            exchange.neighbours.iter().map(|n| core::ptr::from_ref(&**n).addr()).collect::<Vec<_>>()
        };
        for neighbour in all.iter().flat_map(hot) {
            assert_eq!(neighbour % 128, 0, "it begins a pair of lines");
        }
        assert_eq!(size_of::<CachePadded<PeerWorker>>() % 128, 0, "and ends one");
    }

    fn three() -> (Pool, Vec<Bell>, Vec<Exchange>) {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let bells: Vec<_> = (0..3).map(|_| Bell::new().unwrap()).collect();
        let exchanges = exchanges(&bells);
        (pool, bells, exchanges)
    }

    fn marks(exchange: &mut Exchange, facts: &mut WorkerCounters) -> Vec<(HandoffKind, u8)> {
        let mut departing = PacketList::new();
        exchange.collect(BURST_MAX, &mut departing, facts);
        exchange.handed.drain().map(|h| (h.kind, h.packet.first()[0])).collect()
    }

    const LATER: Instant = Instant::from_nanos(1);

    /// A burst that is larger than a ring: what has no room waits, in order, and less is taken in.
    #[test]
    fn what_has_no_room_waits_and_nothing_of_a_burst_is_lost() {
        let (pool, _, mut all) = three();
        let mut facts = WorkerCounters::default();
        let mut next = 0_u32;
        let mut offer = |all: &mut Vec<Exchange>, count: usize, facts: &mut WorkerCounters| {
            for _ in 0..count {
                let packet = pool.packet_from(&next.to_be_bytes()).unwrap();
                facts.add(WorkerCounter::SentPackets, 1);
                all[0].departure(WorkerId(1), packet, facts);
                next += 1;
            }
            all[0].give_out(LATER, facts);
        };
        offer(&mut all, HANDOFF_RING - 8, &mut facts);
        assert_eq!((all[0].capacity(), facts.of(WorkerCounter::HandoffWaiting)), (4, 0));
        offer(&mut all, 100, &mut facts);
        assert_eq!((all[0].capacity(), facts.of(WorkerCounter::HandoffWaiting)), (4, 92));
        assert!(all[0].owes() && facts.are_conserved(), "{facts:?}");
        let (mut departing, mut adopted) = (PacketList::new(), WorkerCounters::default());
        while all[1].collect(BURST_MAX, &mut departing, &mut adopted) > 0 {
            all[0].give_out(LATER, &mut facts);
            assert!(facts.are_conserved(), "{facts:?}");
        }
        let read = |packet: &PacketBuf| u32::from_be_bytes(packet.first()[..4].try_into().unwrap());
        assert!(departing.iter().map(read).eq(0..next), "all, in order");
        assert_eq!((all[0].capacity(), all[0].owes()), (usize::MAX, false));
        assert_eq!(facts.lost_in_handoff(), 0);
    }

    /// A neighbour that takes nothing is waited for once.
    #[test]
    fn a_neighbour_that_stands_still_holds_nothing_up() {
        let (pool, _, mut all) = three();
        let mut facts = WorkerCounters::default();
        let offer = |all: &mut Vec<Exchange>, now: Instant, facts: &mut WorkerCounters| {
            for _ in 0..HANDOFF_RING {
                all[0].frame(WorkerId(1), pool.packet_from(&[1]).unwrap(), facts);
            }
            all[0].give_out(now, facts);
            (all[0].capacity(), facts.of(WorkerCounter::DropsHandoffFrame))
        };
        let ring = HANDOFF_RING as u64;
        assert_eq!(offer(&mut all, LATER, &mut facts), (CREDIT_LEAST, 0));
        assert_eq!(offer(&mut all, LATER, &mut facts), (CREDIT_LEAST, 0));
        let after = LATER + HANDOFF_WAIT;
        assert_eq!(offer(&mut all, after, &mut facts), (usize::MAX, 2 * ring));
        assert!(!all[0].owes() && facts.are_conserved(), "{facts:?}");
        assert_eq!(offer(&mut all, after + HANDOFF_WAIT, &mut facts).0, usize::MAX);
        // It runs again, and is waited for again.
        let mut departing = PacketList::new();
        while all[1].collect(BURST_MAX, &mut departing, &mut WorkerCounters::default()) > 0 {
            all[1].handed.drain().for_each(drop);
        }
        assert_eq!(offer(&mut all, after + HANDOFF_WAIT * 2, &mut facts).0, CREDIT_LEAST);
        assert_eq!(facts.of(WorkerCounter::HandoffWaiting), 0);
    }

    #[test]
    fn what_a_full_ring_does_not_take_is_dropped_by_the_name_of_what_it_was_for() {
        let (pool, _, mut all) = three();
        let mut facts = WorkerCounters::default();
        let packet = || pool.packet_from(&[1]).unwrap();
        for _ in 0..HANDOFF_RING + 3 {
            all[0].frame(WorkerId(2), packet(), &mut facts);
        }
        all[0].give_out(LATER, &mut facts);
        assert_eq!(facts.of(WorkerCounter::HandedOver), HANDOFF_RING as u64);
        assert_eq!(facts.of(WorkerCounter::DropsHandoffFrame), 3);
        for (kind, count) in [(HandoffKind::Outgoing, 2), (HandoffKind::Reassembled, 1)] {
            for _ in 0..count {
                all[0].offered.push(Handoff { to: WorkerId(2), kind, packet: packet() }).unwrap();
            }
        }
        all[0].take_offered(&mut facts);
        all[0].departure(WorkerId(2), packet(), &mut facts);
        // There is no worker of that number, and no worker hands over to itself.
        all[0].frame(WorkerId(3), packet(), &mut facts);
        all[0].frame(WorkerId(0), packet(), &mut facts);
        all[0].frame(WorkerId(1), packet(), &mut facts);
        all[0].give_out(LATER + HANDOFF_WAIT, &mut facts);
        let lost = [
            WorkerCounter::DropsHandoffFrame,
            WorkerCounter::DropsHandoffOutgoing,
            WorkerCounter::DropsHandoffReassembled,
            WorkerCounter::DropsHandoffDeparture,
        ];
        assert_eq!(lost.map(|fact| facts.of(fact)), [5, 2, 1, 1]);
        facts.add(WorkerCounter::SentPackets, 1);
        assert!(facts.are_conserved() && all[1].waiting() == 1, "{facts:?}");
        drop(all);
        assert_eq!(pool.available(), Pool::new(&PoolConfig::default()).unwrap().available());
    }

    #[test]
    fn a_ring_that_fills_leaves_room_to_established_flows_and_starves_none() {
        let (pool, _, mut all) = three();
        let mut facts = WorkerCounters::default();
        let mut give = |all: &mut Vec<Exchange>, count: usize| {
            for _ in 0..count {
                all[0].frame(WorkerId(1), pool.packet_from(&[1]).unwrap(), &mut facts);
            }
            all[0].give_out(LATER, &mut facts);
            [None, Some(32), Some(usize::MAX)].map(|own| all[0].credit(own))
        };
        let half = HANDOFF_RING / 2;
        assert_eq!(give(&mut all, half), [None, Some(32), Some(usize::MAX)]);
        assert_eq!(give(&mut all, half / 2), [Some(half / 4), Some(32), Some(half / 4)]);
        assert_eq!(give(&mut all, half / 2), [Some(4), Some(4), Some(4)]);
        assert_eq!(give(&mut all, 0), [None, Some(32), Some(usize::MAX)], "nothing is for it");
    }

    #[test]
    fn what_is_to_be_sent_leaves_half_of_a_ring_to_what_has_arrived() {
        let (pool, _, mut all) = three();
        let mut facts = WorkerCounters::default();
        let packet = || pool.packet_from(&[1]).unwrap();
        // In one turn or in many.
        for _ in 0..2 {
            for _ in 0..HANDOFF_RING / HANDOFF_MAX {
                for _ in 0..HANDOFF_MAX {
                    let kind = HandoffKind::Outgoing;
                    let handoff = Handoff { to: WorkerId::CONTROL, kind, packet: packet() };
                    all[2].offered.push(handoff).unwrap();
                }
                all[2].take_offered(&mut facts);
            }
            all[2].give_out(LATER, &mut facts);
        }
        assert_eq!(facts.of(WorkerCounter::HandedOver), HANDOFF_OUTGOING_MAX as u64);
        let refused = 2 * HANDOFF_RING - HANDOFF_OUTGOING_MAX;
        assert_eq!(facts.of(WorkerCounter::DropsHandoffOutgoing), refused as u64);
        let kind = HandoffKind::Reassembled;
        all[2].offered.push(Handoff { to: WorkerId::CONTROL, kind, packet: packet() }).unwrap();
        all[2].take_offered(&mut facts);
        all[2].frame(WorkerId::CONTROL, packet(), &mut facts);
        all[2].give_out(LATER, &mut facts);
        assert_eq!(facts.of(WorkerCounter::HandedOver), HANDOFF_OUTGOING_MAX as u64 + 2);
    }

    #[test]
    fn a_turn_adopts_one_burst_in_order_and_begins_with_another_neighbour_each_time() {
        let (pool, _, mut all) = three();
        let mut facts = WorkerCounters::default();
        for from in [1, 2] {
            for _ in 0..2 * BURST_MAX {
                let packet = pool.packet_from(&[from as u8]).unwrap();
                all[from].frame(WorkerId(0), packet, &mut facts);
            }
            all[from].give_out(LATER, &mut facts);
        }
        let mut adopted = WorkerCounters::default();
        let mut turns = Vec::new();
        while all[0].has_mail() {
            let turn = marks(&mut all[0], &mut adopted);
            assert!(
                turn.len() <= BURST_MAX && turn.is_sorted_by_key(|(_, mark)| *mark != turn[0].1)
            );
            turns.push(turn[0].1);
        }
        assert_eq!(
            (turns, adopted.of(WorkerCounter::Adopted)),
            (vec![1, 2, 1, 2], 4 * BURST_MAX as u64)
        );
    }

    #[test]
    fn each_kind_arrives_as_what_it_is_and_departures_go_to_the_devices() {
        let (pool, _, mut all) = three();
        let mut facts = WorkerCounters::default();
        let kinds = [HandoffKind::Frame, HandoffKind::Outgoing, HandoffKind::Reassembled];
        for (kind, mark) in kinds.into_iter().zip(1..) {
            let packet = pool.packet_from(&[mark]).unwrap();
            all[2].offered.push(Handoff { to: WorkerId(1), kind, packet }).unwrap();
        }
        all[2].take_offered(&mut facts);
        all[2].departure(WorkerId(1), pool.packet_from(&[4]).unwrap(), &mut facts);
        all[2].give_out(LATER, &mut facts);
        let mut departing = PacketList::new();
        assert_eq!(all[1].collect(BURST_MAX, &mut departing, &mut facts), 4);
        let handed: Vec<_> =
            all[1].handed.drain().map(|h| (h.to, h.kind, h.packet.first()[0])).collect();
        let expected: Vec<_> =
            kinds.into_iter().zip(1..).map(|(k, m)| (WorkerId(1), k, m)).collect();
        assert_eq!(handed, expected);
        assert_eq!(departing.iter().map(|p| p.first()[0]).collect::<Vec<_>>(), [4]);
        assert_eq!(facts.of(WorkerCounter::AdoptedDepartures), 1);
    }

    #[test]
    fn a_bell_rings_only_where_its_worker_sleeps() {
        let (pool, bells, mut all) = three();
        let mut facts = WorkerCounters::default();
        let mut hand_over = |all: &mut Vec<Exchange>| {
            all[0].frame(WorkerId(1), pool.packet_from(&[1]).unwrap(), &mut facts);
            all[0].give_out(LATER, &mut facts);
        };
        hand_over(&mut all);
        assert!(!bells[1].heard(), "awake, it checks anyway");
        assert!(bells[1].doze());
        hand_over(&mut all);
        assert!(!bells[2].heard());
        bells[1].rise(true);
        assert!(bells[1].heard());
    }
}
