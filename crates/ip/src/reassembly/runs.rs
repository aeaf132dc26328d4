//! The bytes of an incomplete datagram: runs without gaps, in order.
//!
//! Called by `reassembly.rs`. A run is a list of packets with adjoining bytes; the first packet of
//! the datagram keeps its headers in front. Runs are nodes of one array, taken at the start, that
//! each datagram links in order of offset. Invariants: runs of a datagram neither overlap nor
//! adjoin; a run has at least one packet; what is not in a datagram is in the list of free nodes. A
//! small fragment is copied behind its neighbour where there is room, so that many small ones do
//! not hold a frame each. Not here: checks of what may be inserted.

use floodwall_base::IndexLists;
use floodwall_packet::{PacketBuf, PacketList};

/// No node.
pub(super) const NONE: u32 = u32::MAX;
/// The list of free nodes.
const FREE_LIST: u32 = 0;

/// Bytes that adjoin.
pub(super) struct FragmentRun {
    start: u32,
    end: u32,
    next: u32,
    /// All packets but the last, in order.
    earlier: PacketList,
    /// The last one: what follows may be copied behind it.
    last: Option<PacketBuf>,
}

/// All runs of one family's store.
pub(super) struct FragmentRuns {
    nodes: Box<[FragmentRun]>,
    free: IndexLists,
}

/// The runs of one datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct FragmentChain {
    first: u32,
    /// The run that grew last: where the next fragment most likely goes.
    recent: u32,
    /// How many runs there are.
    pub(super) count: usize,
}

/// Where bytes would go.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteRange {
    /// The run before, which ends at or before the bytes.
    before: u32,
    /// The run that ends behind the bytes' start: it begins behind their end, or they overlap.
    pub(super) behind: u32,
    /// Runs looked at.
    pub(super) steps: u64,
}

/// What storing a packet took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grown {
    /// True bytes of what was stored.
    pub(super) added: u64,
    /// True bytes of packets that were copied into others: their memory was freed.
    pub(super) freed: u64,
    /// Bytes copied.
    pub(super) copied: u64,
}

impl Grown {
    pub(super) const fn add(&mut self, more: Self) {
        self.added += more.added;
        self.freed += more.freed;
        self.copied += more.copied;
    }

    fn absorbed(packet: &PacketBuf) -> Self {
        Self { added: 0, freed: u64::from(packet.true_size()), copied: packet.len() as u64 }
    }
}

impl ByteRange {
    /// In a datagram without bytes.
    pub(super) const START: Self = Self { before: NONE, behind: NONE, steps: 0 };
}

impl FragmentChain {
    pub(super) const EMPTY: Self = Self { first: NONE, recent: NONE, count: 0 };
}

impl FragmentRuns {
    pub(super) fn new(count: usize) -> Self {
        let run = |_| FragmentRun {
            start: 0,
            end: 0,
            next: NONE,
            earlier: PacketList::new(),
            last: None,
        };
        let mut free = IndexLists::new(count, 1);
        (0..free.items()).for_each(|at| free.push_back(FREE_LIST, at));
        Self { nodes: (0..count).map(run).collect(), free }
    }

    /// Whether a further run could be made.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty(FREE_LIST)
    }

    /// Where a run starts and ends.
    pub(super) fn span(&self, at: u32) -> Option<(u32, u32)> {
        self.nodes.get(at as usize).map(|run| (run.start, run.end))
    }

    /// The run behind another.
    pub(super) fn following(&self, at: u32) -> u32 {
        self.nodes.get(at as usize).map_or(NONE, |run| run.next)
    }

    /// Where bytes that begin at `start` would go. The run that grew last is looked at first:
    /// fragments in order cost one look.
    pub(super) fn locate(&self, chain: &FragmentChain, start: u32) -> ByteRange {
        let mut place = ByteRange { before: NONE, behind: chain.first, steps: 1 };
        if let Some((_, end)) = self.span(chain.recent).filter(|(_, end)| *end <= start) {
            place =
                ByteRange { before: chain.recent, behind: self.following(chain.recent), steps: 1 };
            debug_assert!(end <= start);
        }
        while let Some((_, end)) = self.span(place.behind) {
            if end > start {
                break;
            }
            place.before = place.behind;
            place.behind = self.following(place.behind);
            place.steps += 1;
        }
        place
    }

    /// The run that grew last, if `len` bytes that begin at `start` go behind it as a packet of
    /// their own and nothing comes after.
    #[inline]
    pub(super) fn next_of(
        &mut self,
        chain: &FragmentChain,
        start: u32,
        len: usize,
    ) -> Option<&mut FragmentRun> {
        let run = self.nodes.get_mut(chain.recent as usize)?;
        let absorbed = run.last.as_ref().is_none_or(|last| len <= last.tailroom());
        (run.end == start && run.next == NONE && !absorbed).then_some(run)
    }

    /// The end of the last run.
    pub(super) fn end(&self, chain: &FragmentChain) -> u32 {
        let mut at = if chain.recent == NONE { chain.first } else { chain.recent };
        let mut end = 0;
        while let Some((_, here)) = self.span(at) {
            end = here;
            at = self.following(at);
        }
        end
    }

    /// Whether bytes at `place` would need a run of their own.
    pub(super) fn is_apart(&self, place: &ByteRange, start: u32, end: u32) -> bool {
        let joins_before = self.span(place.before).is_some_and(|(_, to)| to == start);
        let joins_behind = self.span(place.behind).is_some_and(|(from, _)| from == end);
        !joins_before && !joins_behind
    }

    /// Inserts a packet, with bytes from `start` to `end`, at a place that is empty.
    ///
    /// # Errors
    /// Gives the packet back where a run is needed and none is free.
    pub(super) fn insert(
        &mut self,
        chain: &mut FragmentChain,
        place: ByteRange,
        (start, end): (u32, u32),
        packet: PacketBuf,
    ) -> Result<Grown, PacketBuf> {
        let joins_before = self.span(place.before).is_some_and(|(_, to)| to == start);
        let joins_behind = self.span(place.behind).is_some_and(|(from, _)| from == end);
        let mut grown = Grown { added: u64::from(packet.true_size()), freed: 0, copied: 0 };
        if joins_before {
            grown.add(self.extend(place.before, packet, end));
            chain.recent = place.before;
            if joins_behind {
                grown.add(self.join(place.before, place.behind));
                chain.count -= 1;
            }
        } else if joins_behind {
            grown.add(self.extend_front(place.behind, packet, start));
            chain.recent = place.behind;
        } else {
            let Some(at) = self.free.pop_front(FREE_LIST) else { return Err(packet) };
            if let Some(run) = self.nodes.get_mut(at as usize) {
                let earlier = PacketList::new();
                *run = FragmentRun { start, end, next: place.behind, earlier, last: Some(packet) };
            }
            match self.nodes.get_mut(place.before as usize) {
                Some(before) => before.next = at,
                None => chain.first = at,
            }
            chain.recent = at;
            chain.count += 1;
        }
        Ok(grown)
    }

    /// Adds a packet behind a run.
    fn extend(&mut self, at: u32, packet: PacketBuf, end: u32) -> Grown {
        let Some(run) = self.nodes.get_mut(at as usize) else { return Grown::default() };
        run.end = end;
        run.push(packet)
    }

    /// Adds a packet before a run.
    fn extend_front(&mut self, at: u32, mut packet: PacketBuf, start: u32) -> Grown {
        let mut grown = Grown::default();
        let Some(run) = self.nodes.get_mut(at as usize) else { return grown };
        run.start = start;
        let first = run.earlier.pop_front();
        let Some(first) = first.or_else(|| run.last.take()) else { return grown };
        if absorbs(&mut packet, &first) {
            grown = Grown::absorbed(&first);
        } else if run.last.is_none() {
            run.last = Some(first);
        } else {
            run.earlier.push_front(first);
        }
        match run.last {
            None => run.last = Some(packet),
            Some(_) => run.earlier.push_front(packet),
        }
        grown
    }

    /// Adds the run `behind`, which adjoins, to the run `at`.
    fn join(&mut self, at: u32, behind: u32) -> Grown {
        let nothing = Grown::default();
        let Some(other) = self.nodes.get_mut(behind as usize) else { return nothing };
        let (mut earlier, last) = (other.earlier.take(), other.last.take());
        let (end, next) = (other.end, other.next);
        self.free.push_back(FREE_LIST, behind);
        let Some(run) = self.nodes.get_mut(at as usize) else { return nothing };
        (run.end, run.next) = (end, next);
        let Some(first) = earlier.pop_front() else {
            return last.map_or(nothing, |last| run.push(last));
        };
        let grown = run.push(first);
        if let Some(before) = run.last.take() {
            run.earlier.push_back(before);
        }
        run.earlier.append(&mut earlier);
        run.last = last;
        grown
    }

    /// Takes all packets of a datagram, in order; its nodes are free again.
    pub(super) fn take(&mut self, chain: &mut FragmentChain) -> PacketList {
        let mut all = PacketList::new();
        let mut at = chain.first;
        while let Some(run) = self.nodes.get_mut(at as usize) {
            all.append(&mut run.earlier);
            if let Some(last) = run.last.take() {
                all.push_back(last);
            }
            let next = core::mem::replace(&mut run.next, NONE);
            self.free.push_back(FREE_LIST, at);
            at = next;
        }
        *chain = FragmentChain::EMPTY;
        all
    }
}

impl FragmentRun {
    /// Appends a packet for which [`FragmentRuns::next_of`] returned a run, and which ends at
    /// `end`.
    #[inline]
    pub(super) fn follow(&mut self, end: u32, packet: PacketBuf) {
        self.end = end;
        if let Some(before) = self.last.replace(packet) {
            self.earlier.push_back(before);
        }
    }

    /// Adds a packet behind: its bytes behind those of the last one where they fit, else itself.
    fn push(&mut self, packet: PacketBuf) -> Grown {
        if let Some(last) = &mut self.last
            && absorbs(last, &packet)
        {
            return Grown::absorbed(&packet);
        }
        if let Some(before) = self.last.replace(packet) {
            self.earlier.push_back(before);
        }
        Grown::default()
    }
}

/// Copies `more` behind `packet`, if it is one chunk with room.
fn absorbs(packet: &mut PacketBuf, more: &PacketBuf) -> bool {
    let len = more.len();
    if len > packet.tailroom() {
        return false;
    }
    match packet.extend(len) {
        Some(room) => more.copy_out(0, room) == len,
        None => false,
    }
}
