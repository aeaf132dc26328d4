//! TIME-WAIT as small records (RFC 9293 section 3.6.1): the state that a closed connection leaves
//! behind.
//!
//! Used by the shard's demultiplexer for segments of flows without a connection. Invariants: a
//! record is found by its whole flow under a keyed hash; a reset removes one only where it answers
//! our answer to a SYN, with the exact number (RFC 1337; the peer is in SYN-SENT); a SYN opens a
//! new connection only where no segment of the old one can be mistaken for the new one's (RFC 6191,
//! RFC 9293 section 3.10.7.4); records are listed by age, so the first to expire is the first of
//! the list.
//!
//! # Under flood
//! Reachable by a peer that opens and closes connections, where we close first. Bound:
//! `TCP_TIME_WAITS` records, each at most for the configured time. Work: one hash and one chain,
//! with a length that cannot be influenced without the key. When full the oldest record is evicted:
//! a duplicate of its segments is answered by a reset then, and a new connection of these endpoints
//! is protected by its initial sequence number and timestamps alone.

use core::time::Duration;

use floodwall_base::{FlowKey, HashKey, IndexLists, Instant, PortSet, Seq};
use floodwall_wire::tcp::TcpFlags;

use crate::challenge::ChallengeLimit;
use crate::port_counts::PortCounts;
use crate::segment::Segment;
use crate::timestamps::{RecentTimestamp, TimestampClock};

/// Which part of its time a record may stay longer, until others have expired as well.
const EXPIRY_DIVISOR: u32 = 128;
/// The list of all records, oldest first.
const BY_AGE: u32 = 0;

/// The record of a closed connection.
#[derive(Clone, Copy, Debug)]
pub struct TimeWait {
    /// SND.NXT, FIN included.
    pub snd_nxt: Seq,
    /// RCV.NXT, FIN included.
    pub rcv_nxt: Seq,
    /// The window to announce, unscaled as on the wire.
    pub window: u16,
    /// Our clock and the peer's latest timestamp, where timestamps were in use.
    pub timestamps: Option<(TimestampClock, RecentTimestamp)>,
    /// Remaining answers in the current second.
    pub challenges: ChallengeLimit,
    /// A SYN was answered by an ACK: an exact reset may come from a peer in SYN-SENT, which has
    /// nothing of the old connection (RFC 9293 section 3.10.7.3).
    pub syn_answered: bool,
}

/// The fields of a segment to a flow in TIME-WAIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TimeWaitArrival {
    /// Its first sequence number.
    pub seq: Seq,
    /// Its length in sequence space: data, SYN and FIN.
    pub len: u32,
    /// It has SYN.
    pub syn: bool,
    /// It has FIN.
    pub fin: bool,
    /// It has RST.
    pub rst: bool,
    /// It has ACK.
    pub ack: bool,
    /// Its timestamp, TSval.
    pub timestamp: Option<u32>,
    /// A listener would take a connection that it opens; without one nothing replaces the record.
    pub is_listened: bool,
    /// A connection that it opens would use timestamps: the listener agrees to them.
    pub timestamps_agreed: bool,
}

impl TimeWaitArrival {
    pub(crate) fn of(segment: &Segment) -> Self {
        Self {
            seq: segment.seq,
            len: segment.sequence_len(),
            syn: segment.has(TcpFlags::SYN),
            fin: segment.has(TcpFlags::FIN),
            rst: segment.has(TcpFlags::RST),
            ack: segment.has(TcpFlags::ACK),
            timestamp: segment.options.timestamps.map(|timestamps| timestamps.value),
            is_listened: false,
            timestamps_agreed: false,
        }
    }

    /// The same for a listener that agrees to timestamps, or does not.
    pub(crate) const fn of_listener(self, timestamps: bool) -> Self {
        let timestamps_agreed = timestamps && self.timestamp.is_some();
        Self { is_listened: true, timestamps_agreed, ..self }
    }
}

/// The action for a segment.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub enum TimeWaitVerdict {
    /// The flow is not in TIME-WAIT.
    Absent,
    /// The segment is dropped.
    Ignore,
    /// Answer `<SEQ=snd_nxt><ACK=rcv_nxt><CTL=ACK>`, within the record's limit of answers.
    Ack(TimeWait),
    /// A new connection: the record is removed; the new initial sequence number must lie beyond its
    /// `snd_nxt`.
    Reopen(TimeWait),
}

#[derive(Clone, Copy, Debug)]
struct TimeWaitEntry {
    flow: FlowKey,
    record: TimeWait,
    expires: Instant,
    next: u32,
    /// The flow's hash.
    hash: u32,
}

const NONE: u32 = u32::MAX;

/// The TIME-WAIT records of one shard. All memory is allocated at construction.
#[derive(Debug)]
pub struct TimeWaits {
    entries: Box<[Option<TimeWaitEntry>]>,
    buckets: Box<[u32]>,
    lists: IndexLists,
    /// Free records, the one that came free last on top: few are touched where few are in use.
    free: Vec<u32>,
    key: HashKey,
    stay: Duration,
    /// When the oldest record is removed, a little after it has expired; [`Instant::FAR`] where
    /// there is none. Asked every turn.
    due: Instant,
    len: usize,
    ports: PortCounts,
}

impl TimeWaits {
    /// A table of `capacity` records, each for `stay` (2 MSL: four minutes by RFC 9293, typically
    /// one).
    #[must_use]
    pub fn new(capacity: usize, stay: Duration, key: HashKey) -> Self {
        let capacity = capacity.min(NONE as usize / 4);
        Self {
            entries: vec![None; capacity].into(),
            buckets: vec![NONE; capacity.next_power_of_two()].into(),
            lists: IndexLists::new(capacity, 1),
            free: (0..capacity as u32).rev().collect(),
            key,
            stay,
            due: Instant::FAR,
            len: 0,
            ports: PortCounts::default(),
        }
    }

    /// Number of flows in TIME-WAIT.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no record.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds or renews the record of a flow. Returns the flow that was evicted for it.
    pub fn insert(&mut self, flow: &FlowKey, record: TimeWait, now: Instant) -> Option<FlowKey> {
        self.insert_hashed((flow, self.hash(flow)), record, now)
    }

    /// As [`TimeWaits::insert`], of a flow that was hashed before.
    pub(crate) fn insert_hashed(
        &mut self,
        (flow, hash): (&FlowKey, u32),
        record: TimeWait,
        now: Instant,
    ) -> Option<FlowKey> {
        if let Some(index) = self.find(flow, hash) {
            self.remove_at(index);
        }
        let evicted = if self.free.is_empty() {
            let oldest = self.lists.first(BY_AGE)?;
            self.remove_at(oldest)
        } else {
            None
        };
        let index = self.free.pop()?;
        let bucket = self.bucket_of(hash);
        let head = self.buckets.get_mut(bucket)?;
        let (expires, next) = (now + self.stay, *head);
        let entry = TimeWaitEntry { flow: *flow, record, expires, next, hash };
        *head = index;
        *self.entries.get_mut(index as usize)? = Some(entry);
        self.lists.push_back(BY_AGE, index);
        self.due = self.due.min(expires + self.stay / EXPIRY_DIVISOR);
        self.len += 1;
        self.ports.enter(flow.local.port);
        evicted
    }

    /// The local ports with a record.
    #[must_use]
    pub const fn ports(&self) -> &PortSet {
        self.ports.set()
    }

    /// The record of a flow.
    #[must_use]
    pub fn lookup(&self, flow: &FlowKey) -> Option<&TimeWait> {
        self.find(flow, self.hash(flow)).and_then(|index| self.entry(index)).map(|e| &e.record)
    }

    /// Whether a flow that was hashed before has a record.
    pub(crate) fn has(&self, flow: &FlowKey, hash: u32) -> bool {
        !self.is_empty() && self.find(flow, hash).is_some()
    }

    /// Whether an active open may reuse these endpoints: the record has a timestamp at least a
    /// second old (RFC 6191, applied to the other side). The removed record gives the sequence
    /// number to start beyond.
    pub fn reuse(&mut self, flow: &FlowKey, now: Instant) -> Option<TimeWait> {
        self.is_reusable(flow, now).then(|| self.remove(flow)).flatten()
    }

    /// The same for a port that was asked for: timestamps are enough, however young, as on Linux; a
    /// program that names its port cannot take another.
    pub(crate) fn reuse_requested(&mut self, flow: &FlowKey) -> Option<TimeWait> {
        let is_stamped = self.lookup(flow)?.timestamps.is_some();
        is_stamped.then(|| self.remove(flow)).flatten()
    }

    /// Whether [`TimeWaits::reuse`] would remove the record of these endpoints.
    pub(crate) fn is_reusable(&self, flow: &FlowKey, now: Instant) -> bool {
        let stamps = self.lookup(flow).and_then(|record| record.timestamps);
        stamps.is_some_and(|(_, recent)| recent.is_as_old_as(Duration::from_secs(1), now))
    }

    /// Processes a segment to `flow` (RFC 9293 section 3.10.7.4, TIME-WAIT). Constant work.
    pub fn input(
        &mut self,
        flow: &FlowKey,
        arrived: &TimeWaitArrival,
        now: Instant,
    ) -> TimeWaitVerdict {
        self.input_hashed((flow, self.hash(flow)), arrived, now)
    }

    /// As [`TimeWaits::input`], of a flow that was hashed before.
    pub(crate) fn input_hashed(
        &mut self,
        (flow, hash): (&FlowKey, u32),
        arrived: &TimeWaitArrival,
        now: Instant,
    ) -> TimeWaitVerdict {
        let Some(index) = self.find(flow, hash) else {
            return TimeWaitVerdict::Absent;
        };
        let stay = self.stay;
        let Some(Some(entry)) = self.entries.get_mut(index as usize) else {
            return TimeWaitVerdict::Absent;
        };
        // The timer may be late: a record past its time does not count.
        if now >= entry.expires {
            self.remove_at(index);
            return TimeWaitVerdict::Absent;
        }
        if arrived.rst {
            // RFC 1337, fix F1; but a peer in SYN-SENT resets what answers its SYN with an
            // acknowledgment of the old connection, and would wait for its end in vain.
            if entry.record.syn_answered && arrived.seq == entry.record.rcv_nxt {
                self.remove_at(index);
            }
            return TimeWaitVerdict::Ignore;
        }
        if opens_anew(&entry.record, arrived) {
            let record = entry.record;
            self.remove_at(index);
            return TimeWaitVerdict::Reopen(record);
        }
        let old = is_old(&entry.record, arrived, now);
        // The peer has not received our last ACK: its FIN is retransmitted, and the wait restarts.
        let again = arrived.fin && !arrived.syn && !old;
        if again && arrived.seq + arrived.len == entry.record.rcv_nxt {
            entry.expires = now + stay;
            let record = entry.record;
            self.lists.push_back(BY_AGE, index);
            self.note_oldest();
            return TimeWaitVerdict::Ack(record);
        }
        let in_place = arrived.seq == entry.record.rcv_nxt && arrived.len == 0;
        if arrived.syn || old || !in_place {
            TimeWaitVerdict::Ack(entry.record)
        } else {
            TimeWaitVerdict::Ignore
        }
    }

    /// Stores the changed field of a record: its limit of answers.
    pub fn update(&mut self, flow: &FlowKey, record: TimeWait) {
        if let Some(index) = self.find(flow, self.hash(flow))
            && let Some(Some(entry)) = self.entries.get_mut(index as usize)
        {
            entry.record = record;
        }
    }

    /// Removes expired records, at most `units`; returns how many: a call in which none was due is
    /// free, so that a caller which loops until nothing is left terminates.
    pub fn expire(&mut self, now: Instant, units: u32) -> u32 {
        for spent in 0..units {
            let Some(oldest) = self.lists.first(BY_AGE) else {
                return spent;
            };
            if self.entry(oldest).is_some_and(|entry| now < entry.expires) {
                return spent;
            }
            self.remove_at(oldest);
        }
        units
    }

    /// When [`TimeWaits::expire`] is called next: a little after the oldest record has expired, so
    /// that a call removes several. A record past its time does not count meanwhile.
    #[must_use]
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        (self.due != Instant::FAR).then_some(self.due)
    }

    /// The same as a time; [`Instant::FAR`] where there is no record.
    #[inline]
    pub(crate) const fn due(&self) -> Instant {
        self.due
    }

    /// The order by age has changed, or what is in it.
    fn note_oldest(&mut self) {
        let oldest = self.lists.first(BY_AGE).and_then(|oldest| self.entry(oldest));
        self.due = oldest.map_or(Instant::FAR, |it| it.expires + self.stay / EXPIRY_DIVISOR);
    }

    /// Removes a flow's record.
    pub fn remove(&mut self, flow: &FlowKey) -> Option<TimeWait> {
        let index = self.find(flow, self.hash(flow))?;
        let record = self.entry(index)?.record;
        self.remove_at(index);
        Some(record)
    }

    fn hash(&self, flow: &FlowKey) -> u32 {
        self.key.flow(flow) as u32
    }

    const fn bucket_of(&self, hash: u32) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    fn entry(&self, index: u32) -> Option<&TimeWaitEntry> {
        self.entries.get(index as usize)?.as_ref()
    }

    fn find(&self, flow: &FlowKey, hash: u32) -> Option<u32> {
        let mut at = *self.buckets.get(self.bucket_of(hash))?;
        while let Some(entry) = self.entry(at) {
            if entry.hash == hash && entry.flow == *flow {
                return Some(at);
            }
            at = entry.next;
        }
        None
    }

    fn remove_at(&mut self, index: u32) -> Option<FlowKey> {
        let entry = self.entries.get_mut(index as usize)?.take()?;
        self.ports.leave(entry.flow.local.port);
        let bucket = self.bucket_of(entry.hash);
        let head = self.buckets.get_mut(bucket)?;
        if *head == index {
            *head = entry.next;
        } else {
            let mut at = *head;
            while let Some(Some(before)) = self.entries.get_mut(at as usize) {
                if before.next == index {
                    before.next = entry.next;
                    break;
                }
                at = before.next;
            }
        }
        self.lists.unlink(index);
        self.free.push(index);
        self.note_oldest();
        self.len -= 1;
        Some(entry.flow)
    }
}

/// RFC 6191 section 2: whether a SYN may open a new connection of these ends. One that nothing
/// listens for opens none, and so must not end TIME-WAIT (RFC 9293 section 3.10.7.4: from a passive
/// OPEN).
pub(crate) fn opens_anew(record: &TimeWait, arrived: &TimeWaitArrival) -> bool {
    if !arrived.syn || arrived.ack || arrived.rst || !arrived.is_listened {
        return false;
    }
    let beyond = record.rcv_nxt.is_before(arrived.seq);
    match (record.timestamps, arrived.timestamp) {
        (Some((_, recent)), Some(value)) if value != recent.echo() => {
            crate::timestamps::is_before(recent.echo(), value)
        }
        // The old connection's segments have no timestamps, the new one's have.
        (None, Some(_)) if arrived.timestamps_agreed => true,
        _ => beyond,
    }
}

fn is_old(record: &TimeWait, arrived: &TimeWaitArrival, now: Instant) -> bool {
    match (record.timestamps, arrived.timestamp) {
        (Some((_, recent)), Some(value)) => recent.is_old(value, now),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
