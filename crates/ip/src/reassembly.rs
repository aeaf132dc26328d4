//! Fragments wait for one another, bounded: one store a family, one design for both.
//!
//! Called by `stack` with each fragment after its headers were checked ([`FragmentPiece`]), and for
//! timed work. What comes back is a whole packet as its sender made it, or a drop with its reason.
//! Invariants: every byte of a datagram is the first one that arrived for its place; any overlap
//! ends an IPv6 datagram, exact duplicates apart (RFC 5722, RFC 8200 section 4.5); an answer never
//! depends on a timer having run; every fragment is held, part of a whole, or counted as dropped.
//! Reading: RFC 791, RFC 815, RFC 8200 section 4.5, RFC 6946 (atomic fragments never come here).
//! Not here: the fields of a single fragment (`piece.rs`), its bytes' place (`runs.rs`), the last
//! header (`gather.rs`).
//!
//! # Under flood
//! Reachable by any sender. Bound: `REASSEMBLY_BYTES` of true size, an eighth of the pool's frames
//! at most ([`FragmentStore::fit`]), and `REASSEMBLY_DATAGRAMS` for each family; a source (IPv4
//! address, IPv6 /64) has `REASSEMBLY_SOURCE_BYTES` and `REASSEMBLY_SOURCE_DATAGRAMS` for certain,
//! and more only while as much again is free; a datagram has `REASSEMBLY_FRAGMENTS_MAX` fragments
//! in `REASSEMBLY_RUNS_MAX` runs. Worst work per fragment: one keyed lookup, a look at each run, a
//! copy of at most a frame, `REASSEMBLY_EVICTIONS_MAX` datagrams evicted; in order, one look.
//! Evicted: within a share that is full its least recently extended datagram
//! (`FragmentSourceFull`), else the store's (`FragmentStoreFull`). Honest traffic from elsewhere
//! loses a datagram only if as many others as the store holds were extended between two of its
//! fragments. Counters: those reasons, `IpReasmFails`, `Ip6ReasmFails`.

mod fill;
mod gather;
mod piece;
mod runs;
mod store;

use core::time::Duration;

use floodwall_base::{
    Address, Counter, Counters, DropCounts, DropReason, Family, HashKey, Instant, Units, limits,
};
use floodwall_packet::{AccessCounters, PacketBuf, Pool};

pub use self::piece::FragmentPiece;
use self::runs::{ByteRange, Grown};
use self::store::{DatagramHead, Emptied, ReassemblyKey, Store};

/// How much a store holds: see `limits.rs` for the defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReassemblyConfig {
    /// True bytes.
    pub bytes: u64,
    /// Incomplete datagrams; their table is allocated at the start, about 600 bytes each.
    pub datagrams: usize,
}

impl Default for ReassemblyConfig {
    fn default() -> Self {
        Self { bytes: limits::REASSEMBLY_BYTES as u64, datagrams: limits::REASSEMBLY_DATAGRAMS }
    }
}

/// What became of a fragment.
#[derive(Debug)]
pub enum Fragment<A> {
    /// It waits for others.
    Held,
    /// It was what was missing.
    Whole(Whole<A>),
    /// It, and perhaps others, were dropped; all are counted.
    Dropped,
}

/// A datagram put together.
#[derive(Debug)]
pub struct Whole<A> {
    /// As its sender made it, link header of the first fragment included.
    pub packet: PacketBuf,
    /// The first fragment's description, with the whole's heading.
    pub first: FragmentPiece<A>,
    /// How many fragments it came in.
    pub fragments: u64,
}

/// A datagram given up because its time was over.
#[derive(Debug)]
pub struct ReassemblyExpired<A> {
    /// Its first fragment, where that had arrived, as it arrived: for the ICMP error about it.
    pub first: Option<(PacketBuf, FragmentPiece<A>)>,
}

/// Where outcomes, counts and headers are counted.
pub struct ReassemblyTally<'a> {
    /// Drops of received packets.
    pub drops: &'a mut DropCounts,
    /// nstat's counters.
    pub counters: &'a mut Counters,
    /// How headers were read.
    pub access: &'a mut AccessCounters,
}

/// Work done so far, in counts: what a fragment costs must not grow with what is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReassemblyWork {
    /// Runs looked at.
    pub runs: u64,
    /// Bytes of payload copied.
    pub copied: u64,
    /// Datagrams pushed out.
    pub evicted: u64,
}

/// The reassembly store of one family.
pub struct FragmentStore<A> {
    store: Store<A>,
    timeout: Duration,
    work: ReassemblyWork,
}

/// Why a new fragment is dropped before anything was stored.
type Refused = (PacketBuf, DropReason);

impl<A: Address> FragmentStore<A> {
    /// An empty store with all its tables.
    #[must_use]
    pub fn new(config: ReassemblyConfig, key: HashKey, now: Instant) -> Self {
        let timeout = match A::FAMILY {
            Family::V4 => limits::REASSEMBLY_TIMEOUT_V4,
            Family::V6 => limits::REASSEMBLY_TIMEOUT_V6,
        };
        Self { store: Store::new(config, key, now), timeout, work: ReassemblyWork::default() }
    }

    /// Holds no more of the frames of `pool` than the part that is for fragments of one family,
    /// regardless of its configured size, but never less than one source's share. To be called
    /// before it holds any.
    pub fn fit(&mut self, pool: &Pool) {
        let part = pool.frames_true_bytes() / limits::REASSEMBLY_DIVISOR;
        self.store.limit_bytes(part.max(limits::REASSEMBLY_SOURCE_BYTES as u64));
    }

    /// Fragments that wait now.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.store.all.fragments
    }

    /// True bytes that wait now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.store.all.bytes
    }

    /// Datagrams that are incomplete now, including those that refuse further fragments.
    #[must_use]
    pub fn datagrams(&self) -> usize {
        self.store.all.datagrams
    }

    /// Work done so far.
    #[must_use]
    pub fn work_done(&self) -> ReassemblyWork {
        self.work
    }

    /// When [`FragmentStore::expire`] has work at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.store.wheel.deadline()
    }

    /// Takes one fragment, which `piece` describes. Cost: see "Under flood" of this module.
    /// Returns, beside the fragment's outcome, an expired datagram with the same key.
    pub fn input(
        &mut self,
        piece: &FragmentPiece<A>,
        packet: PacketBuf,
        now: Instant,
        pool: &Pool,
        tally: &mut ReassemblyTally<'_>,
    ) -> (Fragment<A>, Option<ReassemblyExpired<A>>) {
        tally.counters.count(pick::<A>(Counter::IpReasmReqds, Counter::Ip6ReasmReqds));
        match self.follow(piece, packet, now, pool) {
            Ok(at) => (self.complete(at, pool, tally), None),
            Err(packet) => self.input_slow_path(piece, packet, now, pool, tally),
        }
    }

    /// A fragment for which a place must be looked for.
    #[inline(never)]
    fn input_slow_path(
        &mut self,
        piece: &FragmentPiece<A>,
        packet: PacketBuf,
        now: Instant,
        pool: &Pool,
        tally: &mut ReassemblyTally<'_>,
    ) -> (Fragment<A>, Option<ReassemblyExpired<A>>) {
        let key = ReassemblyKey::of(piece);
        let mut found = self.store.find(&key);
        let mut expired = None;
        if let Some(at) = found
            && self.store.at(at).is_some_and(|datagram| datagram.deadline <= now)
        {
            expired = self.give_up(at, tally);
            found = None;
        }
        match self.admit(key, found, piece, packet, now, pool, tally) {
            Ok(at) => (self.complete(at, pool, tally), expired),
            Err((packet, reason)) => {
                drop(packet);
                tally.drops.count(reason);
                tally.counters.count(pick::<A>(Counter::IpReasmFails, Counter::Ip6ReasmFails));
                (Fragment::Dropped, expired)
            }
        }
    }

    /// The usual case in few steps: a fragment in one frame that begins where the datagram that
    /// grew last ends, and for which there is room. It is stored as [`FragmentStore::admit`] would.
    ///
    /// # Errors
    /// Gives the packet back, nothing changed, where anything is unusual.
    #[inline]
    fn follow(
        &mut self,
        piece: &FragmentPiece<A>,
        mut packet: PacketBuf,
        now: Instant,
        pool: &Pool,
    ) -> Result<u32, PacketBuf> {
        let Some(at) = self.store.recent(piece) else { return Err(packet) };
        let bytes = u64::from(packet.true_size());
        let fits = gather::is_one_frame(pool, &packet)
            && self.store.crowd(piece.heading.src_addr, bytes, Some(at), false).is_none();
        let Some((datagram, runs)) = self.store.parts(at).filter(|_| fits) else {
            return Err(packet);
        };
        let (start, end) = (piece.offset as u32, piece.end() as u32);
        let awaited = datagram.total.is_none()
            && datagram.deadline > now
            && datagram.fragments < limits::REASSEMBLY_FRAGMENTS_MAX;
        let run = runs.next_of(&datagram.chain, start, piece.len).filter(|_| awaited);
        let Some(run) = run else { return Err(packet) };
        let group = packet.is_link_group();
        packet.trim_front(piece.payload());
        packet.clear_offload();
        packet.uncharge();
        run.follow(end, packet);
        datagram.take_in(piece, end - start, group);
        self.work.runs += 1;
        self.store.grow(at, Grown { added: bytes, ..Grown::default() });
        Ok(at)
    }

    /// Stores the fragment; returns its datagram.
    #[expect(clippy::too_many_arguments, reason = "one step of `input`, split for its length")]
    fn admit(
        &mut self,
        key: ReassemblyKey<A>,
        found: Option<u32>,
        piece: &FragmentPiece<A>,
        packet: PacketBuf,
        now: Instant,
        pool: &Pool,
        tally: &mut ReassemblyTally<'_>,
    ) -> Result<u32, Refused> {
        let span = (piece.offset as u32, piece.end() as u32);
        let mut place = ByteRange::START;
        if let Some(at) = found {
            if let Some(reason) = self.store.at(at).and_then(|datagram| datagram.dead) {
                return Err((packet, reason));
            }
            match self.judge(at, piece, span) {
                Ok(found) => place = found,
                Err(FragmentVerdict::Newcomer(reason)) => return Err((packet, reason)),
                Err(FragmentVerdict::All(reason)) => {
                    self.kill(at, reason, tally);
                    return Err((packet, reason));
                }
            }
        }
        let mut packet = match gather::compact(pool, packet) {
            Ok(packet) => packet,
            Err(packet) => return Err((packet, DropReason::NoBuffer)),
        };
        if piece.offset > 0 {
            packet.trim_front(piece.payload());
        }
        packet.clear_offload();
        packet.uncharge();
        packet = self.make_room(found, piece, span, place, packet, tally)?;
        let at = match found {
            Some(at) => at,
            None => match self.store.make(key, now + self.timeout) {
                Some(at) => at,
                None => return Err((packet, DropReason::FragmentStoreFull)),
            },
        };
        self.keep(at, piece, span, place, packet, pool).map(|()| at)
    }

    /// Whether the fragment fits what is there, and where its first byte goes.
    fn judge(
        &mut self,
        at: u32,
        piece: &FragmentPiece<A>,
        span: (u32, u32),
    ) -> Result<ByteRange, FragmentVerdict> {
        let strict = A::FAMILY == Family::V6;
        let Some((datagram, runs)) = self.store.parts(at) else {
            return Err(FragmentVerdict::Newcomer(DropReason::FragmentStoreFull));
        };
        let place = runs.locate(&datagram.chain, span.0);
        self.work.runs += place.steps;
        let disagrees = match (datagram.total, piece.more) {
            (Some(total), true) => span.1 > total,
            (Some(total), false) => span.1 != total,
            (None, true) => false,
            (None, false) => runs.end(&datagram.chain) > span.1,
        };
        if disagrees {
            return Err(FragmentVerdict::quarrel(strict));
        }
        let overlapped = runs.span(place.behind).filter(|(start, _)| *start < span.1);
        if let Some((start, end)) = overlapped {
            let within = start <= span.0 && span.1 <= end;
            let last = datagram.total == Some(span.1);
            let again = datagram.end_of(span.0, end) == Some(span.1) && last != piece.more;
            match (strict, within) {
                (true, true) if again => {
                    return Err(FragmentVerdict::Newcomer(DropReason::FragmentDuplicate));
                }
                (true, _) => return Err(FragmentVerdict::quarrel(strict)),
                (false, true) => {
                    return Err(FragmentVerdict::Newcomer(DropReason::FragmentDuplicate));
                }
                (false, false) => {}
            }
        }
        let apart = overlapped.is_none() && runs.is_apart(&place, span.0, span.1);
        let full = datagram.fragments >= limits::REASSEMBLY_FRAGMENTS_MAX
            || (apart && datagram.chain.count >= limits::REASSEMBLY_RUNS_MAX);
        if full { Err(FragmentVerdict::All(DropReason::FragmentTooMany)) } else { Ok(place) }
    }

    /// Pushes others out until the fragment fits, or gives it back.
    fn make_room(
        &mut self,
        found: Option<u32>,
        piece: &FragmentPiece<A>,
        span: (u32, u32),
        place: ByteRange,
        packet: PacketBuf,
        tally: &mut ReassemblyTally<'_>,
    ) -> Result<PacketBuf, Refused> {
        let bytes = u64::from(packet.true_size());
        let apart = self.store.runs.is_apart(&place, span.0, span.1);
        let src_addr = piece.heading.src_addr;
        for _ in 0..limits::REASSEMBLY_EVICTIONS_MAX {
            let Some(crowd) = self.store.crowd(src_addr, bytes, found, apart) else {
                return Ok(packet);
            };
            let Some(oldest) = crowd.oldest else { return Err((packet, crowd.reason)) };
            self.work.evicted += 1;
            let packets = self.store.remove(oldest);
            self.drop_burst(packets, crowd.reason, tally);
        }
        match self.store.crowd(src_addr, bytes, found, apart) {
            None => Ok(packet),
            Some(crowd) => Err((packet, crowd.reason)),
        }
    }

    /// Puts the fragment's bytes where none are yet.
    fn keep(
        &mut self,
        at: u32,
        piece: &FragmentPiece<A>,
        span: (u32, u32),
        place: ByteRange,
        packet: PacketBuf,
        pool: &Pool,
    ) -> Result<(), Refused> {
        let Some((datagram, runs)) = self.store.parts(at) else {
            return Err((packet, DropReason::FragmentStoreFull));
        };
        let header = if piece.offset == 0 { piece.payload() } else { 0 };
        let (group, chain) = (packet.is_link_group(), &mut datagram.chain);
        // Where something overlaps, the first fragment's packet keeps what comes before it.
        let ends = runs.span(place.behind).map_or(span.1, |(start, _)| start.min(span.1));
        let (missing, grown) = match fill::fill(chain, runs, pool, (place, header), span, packet) {
            Ok(done) => done,
            Err(packet) => return Err((packet, DropReason::NoBuffer)),
        };
        datagram.take_in(piece, missing, group);
        if piece.offset == 0 && datagram.head.is_none() {
            datagram.head = Some(DatagramHead { piece: *piece, len: header + ends as usize });
        }
        self.work.copied += grown.copied;
        self.store.grow(at, grown);
        Ok(())
    }

    /// Builds the packet of a datagram that is complete.
    fn complete(&mut self, at: u32, pool: &Pool, tally: &mut ReassemblyTally<'_>) -> Fragment<A> {
        let Some(datagram) = self.store.at(at) else { return Fragment::Held };
        let total = datagram.received;
        // Nearly all end here: what they are the first of is looked at after.
        if datagram.total != Some(total) {
            return Fragment::Held;
        }
        let Some(head) = datagram.head else { return Fragment::Held };
        let (fragments, seen) = (datagram.fragments as u64, datagram.ecn);
        let group = datagram.link_group;
        let (packets, _) = self.store.remove(at);
        let made = gather::ecn_of(seen, head.piece.ecn).and_then(|ecn| {
            let mut packet = gather::chain(pool, packets)?;
            let heading =
                gather::head(pool, &mut packet, &head.piece, total as usize, ecn, tally.access)?;
            packet.set_link_group(group);
            Ok((packet, heading))
        });
        match made {
            Ok((packet, heading)) => {
                tally.counters.count(pick::<A>(Counter::IpReasmOKs, Counter::Ip6ReasmOKs));
                let first = FragmentPiece { heading, ..head.piece };
                Fragment::Whole(Whole { packet, first, fragments })
            }
            Err(reason) => {
                tally.drops.add(reason, fragments);
                tally.counters.count(pick::<A>(Counter::IpReasmFails, Counter::Ip6ReasmFails));
                Fragment::Dropped
            }
        }
    }

    /// Drops all that is there of a datagram. What still arrives of it is dropped too, until its
    /// time is over or its place is needed (RFC 5722 section 4).
    fn kill(&mut self, at: u32, reason: DropReason, tally: &mut ReassemblyTally<'_>) {
        let packets = self.store.empty(at);
        if let Some(datagram) = self.store.at(at) {
            datagram.dead = Some(reason);
        }
        self.drop_burst(packets, reason, tally);
    }

    /// Counts dropped fragments: `fragments` of them, in perhaps fewer packets.
    fn drop_burst(
        &mut self,
        (packets, fragments): Emptied,
        reason: DropReason,
        tally: &mut ReassemblyTally<'_>,
    ) {
        drop(packets);
        if fragments > 0 {
            tally.drops.add(reason, fragments);
            tally.counters.count(pick::<A>(Counter::IpReasmFails, Counter::Ip6ReasmFails));
        }
    }

    /// Drops a datagram that has timed out; `None` where it had been dropped before.
    fn give_up(
        &mut self,
        at: u32,
        tally: &mut ReassemblyTally<'_>,
    ) -> Option<ReassemblyExpired<A>> {
        let (dead, head) = self.store.at(at).map(|d| (d.dead.is_some(), d.head))?;
        let (mut packets, fragments) = self.store.remove(at);
        if dead {
            return None;
        }
        let first = head.and_then(|head| {
            let mut packet = packets.pop_front()?;
            packet.truncate(head.len);
            Some((packet, head.piece))
        });
        self.drop_burst((packets, fragments), DropReason::FragmentTimeout, tally);
        tally.counters.count(pick::<A>(Counter::IpReasmTimeout, Counter::Ip6ReasmTimeout));
        Some(ReassemblyExpired { first })
    }

    /// Spends up to `budget` units of work on datagrams that have timed out; each costs one, and
    /// one more for every sixteen fragments. Returns what was spent.
    pub fn expire(
        &mut self,
        now: Instant,
        budget: Units,
        tally: &mut ReassemblyTally<'_>,
        mut each: impl FnMut(ReassemblyExpired<A>),
    ) -> Units {
        let mut left = budget;
        while let Some(at) = self.store.wheel.pop_due(now, &mut left) {
            let fragments = self.store.at(at).map_or(0, |datagram| datagram.fragments);
            left = left.minus(Units(fragments as u32 / 16));
            if let Some(expired) = self.give_up(at, tally) {
                each(expired);
            }
        }
        budget.minus(left)
    }
}

/// A conflict between a new fragment and its datagram.
enum FragmentVerdict {
    /// The fragment alone is dropped.
    Newcomer(DropReason),
    /// Its whole datagram is dropped with it.
    All(DropReason),
}

impl FragmentVerdict {
    /// Fragments contradict one another: IPv6 gives up all, IPv4 keeps what came first.
    const fn quarrel(strict: bool) -> Self {
        match strict {
            true => Self::All(DropReason::FragmentOverlap),
            false => Self::Newcomer(DropReason::FragmentOverlap),
        }
    }
}

/// The counter of the family.
const fn pick<A: Address>(v4: Counter, v6: Counter) -> Counter {
    match A::FAMILY {
        Family::V4 => v4,
        Family::V6 => v6,
    }
}
