//! `Exceptions`: what was learnt of single destinations, both families: that a path carries less
//! than its first link, and that there is a better first hop.
//!
//! Called by `stack`: at every look-up of a host's own path, and with what it has judged. One
//! design for path MTUs and redirects: one entry a destination, which has the one, the other, or
//! both. An entry counts only for the next hop that it was learnt over: a flow that takes another
//! route leaves it behind at once, without a walk. Invariants: at most [`EXCEPTIONS_MAX`] entries
//! and [`EXCEPTIONS_HOP_MAX`] of one next hop, in memory taken at construction; each part counts
//! for [`LIFETIME`] by the reader's own clock, so nothing has to be collected, and no route has a
//! list of its own; forwarding never reads this (a forged message must not make a router emit
//! others). Followers of the one writer copy the buckets that changed. Read first: RFC 1191 section
//! 6.3, RFC 8201 sections 4 and 5.2, RFC 4861 section 8.3. Not here: whether a message quotes a
//! flow of ours (the stack, which has the sockets); [`PathUpdateFilter`] comes after that.
//!
//! # Under flood
//! Reachable by a host that can quote a live flow of ours, which an off-path attacker must guess.
//! Bounds: [`EXCEPTIONS_MAX`], [`EXCEPTIONS_HOP_MAX`], and [`PathUpdateFilter`]'s rate (a token
//! bucket) for all accepted messages. Work of a refused message: none here. Work of an accepted
//! one: a keyed hash and one bucket; where the table holds more than one next hop may have, one
//! pass over it, which a message pays for at the rate of acceptance only. Evicted: an expired
//! entry; else a random entry of the newcomer's bucket above a depth drawn from
//! [`EXCEPTION_DEPTH_MIN`] to [`EXCEPTION_DEPTH_MAX`]; else a random one of the same next hop.
//! Neither place nor victim can be observed from outside (CVE-2021-20322). Honest traffic loses at
//! most what an entry saves: one packet, until its path MTU is learnt again. A look-up costs a
//! keyed hash and one bucket, and a comparison where nothing is known. Counters:
//! `FloodwallExceptionsLearnt`, and one for each refusal, by the caller.

mod path_update_filter;

use core::time::Duration;

use floodwall_base::limits::{
    EXCEPTION_DEPTH_MAX, EXCEPTION_DEPTH_MIN, EXCEPTIONS_HOP_MAX, EXCEPTIONS_MAX,
};
use floodwall_base::{Address, HashKey, IfIndex, Instant, SecretRandom};

pub use self::path_update_filter::{PathUpdateFilter, PathUpdateRefusal, TooBig, path_mtu_floor};

/// How long an entry counts: RFC 1191 section 6.3 and RFC 8201 section 4 advise ten minutes before
/// a path is tried anew; Linux remembers as long.
pub const LIFETIME: Duration = Duration::from_secs(600);

const BUCKETS: usize = EXCEPTIONS_MAX / EXCEPTION_DEPTH_MAX;
const _: () = assert!(BUCKETS.is_power_of_two());

/// Where a route hands packets to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FirstHop<A> {
    /// On which link.
    pub iface: IfIndex,
    /// The route's router; `None` where destinations are on the link.
    pub via: Option<A>,
}

/// What is known of one destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exception<A> {
    /// The destination that it is about.
    pub dst_addr: A,
    /// Over which route's next hop: for others it does not count.
    pub hop: FirstHop<A>,
    /// The most bytes of an IP packet that the path carries, and until when.
    pub mtu: Option<(u32, Instant)>,
    /// The better first hop, and until when; the destination itself where it is on the link.
    pub target_addr: Option<(A, Instant)>,
}

impl<A: Address> Exception<A> {
    /// When nothing of it counts any more.
    #[must_use]
    pub fn until(&self) -> Instant {
        let mtu = self.mtu.map_or(Instant::ORIGIN, |(_, until)| until);
        self.target_addr.map_or(mtu, |(_, until)| mtu.max(until))
    }
}

/// What counts now for one destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownException<A> {
    /// The most bytes of an IP packet that the path carries.
    pub mtu: Option<u32>,
    /// The better first hop.
    pub target_addr: Option<A>,
}

impl<A> KnownException<A> {
    const NOTHING: Self = Self { mtu: None, target_addr: None };
}

/// What one message teaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathUpdate<A> {
    /// The path carries so many bytes.
    PathMtu(u32),
    /// That one is a better first hop.
    Redirect(A),
}

#[derive(Clone, Debug)]
struct ExceptionBucket<A> {
    entries: [Option<Exception<A>>; EXCEPTION_DEPTH_MAX],
    /// That of the table when this was changed last.
    revision: u32,
}

/// Path MTUs and redirects of single destinations, in bounded memory.
#[derive(Debug)]
pub struct Exceptions<A> {
    buckets: Box<[ExceptionBucket<A>]>,
    key: HashKey,
    /// Entries, including expired ones that are not evicted yet.
    len: usize,
    /// After this, nothing counts.
    until: Instant,
    revision: u32,
}

impl<A: Address> Exceptions<A> {
    /// Nothing is known. Takes about 110 KiB for IPv4 and 260 KiB for IPv6.
    #[must_use]
    pub fn new(key: HashKey) -> Self {
        let empty = ExceptionBucket { entries: [None; EXCEPTION_DEPTH_MAX], revision: 0 };
        Self {
            buckets: vec![empty; BUCKETS].into(),
            key,
            len: 0,
            until: Instant::ORIGIN,
            revision: 0,
        }
    }

    /// Changes with every change here: for holders of a copy.
    #[must_use]
    pub const fn revision(&self) -> u32 {
        self.revision
    }

    /// Entries, including expired ones that are not evicted yet. At most [`EXCEPTIONS_MAX`].
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that a table of this family takes.
    #[must_use]
    pub const fn bytes() -> usize {
        BUCKETS * size_of::<ExceptionBucket<A>>()
    }

    /// Becomes a copy of another table, its revision included. Copies the buckets that differ and
    /// allocates nothing.
    pub fn copy_from(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            if mine.revision != theirs.revision {
                mine.clone_from(theirs);
            }
        }
        (self.key, self.len) = (other.key, other.len);
        (self.until, self.revision) = (other.until, other.revision);
    }

    /// The valid exception for packets to `dst_addr` with a route over `hop`.
    #[must_use]
    #[inline]
    pub fn lookup(&self, dst_addr: A, hop: FirstHop<A>, now: Instant) -> KnownException<A> {
        if now >= self.until {
            return KnownException::NOTHING;
        }
        self.find(dst_addr, hop, now)
    }

    #[inline(never)]
    fn find(&self, dst_addr: A, hop: FirstHop<A>, now: Instant) -> KnownException<A> {
        let entries = self.buckets.get(self.place(dst_addr)).map_or(&[][..], |b| &b.entries);
        let same = |e: &&Exception<A>| e.dst_addr == dst_addr && e.hop == hop;
        entries.iter().flatten().find(same).map_or(KnownException::NOTHING, |e| KnownException {
            mtu: e.mtu.filter(|(_, until)| *until > now).map(|(mtu, _)| mtu),
            target_addr: e.target_addr.filter(|(_, until)| *until > now).map(|(addr, _)| addr),
        })
    }

    /// Stores what was accepted, for [`LIFETIME`]; the eviction is described at the head of the
    /// file.
    pub fn learn(
        &mut self,
        dst_addr: A,
        hop: FirstHop<A>,
        lesson: PathUpdate<A>,
        now: Instant,
        random: &mut SecretRandom,
    ) {
        let until = now + LIFETIME;
        let at = self.place(dst_addr);
        let fresh = Exception { dst_addr, hop, mtu: None, target_addr: None };
        if !self.knows(at, dst_addr, hop) {
            if self.len >= EXCEPTIONS_HOP_MAX {
                self.make_room_on(hop, now, random);
            }
            self.make_room_in(at, now, random);
        }
        self.revision = self.revision.wrapping_add(1);
        let revision = self.revision;
        let Some(bucket) = self.buckets.get_mut(at) else { return };
        let known =
            |e: &Option<Exception<A>>| e.is_some_and(|e| e.dst_addr == dst_addr && e.hop == hop);
        let place = bucket.entries.iter().position(known);
        let place = place.or_else(|| bucket.entries.iter().position(Option::is_none));
        let Some(slot) = place.and_then(|place| bucket.entries.get_mut(place)) else { return };
        self.len += usize::from(slot.is_none());
        let entry = slot.get_or_insert(fresh);
        match lesson {
            PathUpdate::PathMtu(mtu) => entry.mtu = Some((mtu, until)),
            PathUpdate::Redirect(addr) => entry.target_addr = Some((addr, until)),
        }
        bucket.revision = revision;
        self.until = self.until.max(until);
    }

    /// Forgets the redirects that `which` names; true where there was any. Visits all: for
    /// neighbours that do not answer.
    pub fn forget_redirects(&mut self, mut which: impl FnMut(&Exception<A>, A) -> bool) -> bool {
        self.retain(|entry| {
            let gone = entry.target_addr.is_some_and(|(target_addr, _)| which(entry, target_addr));
            let target_addr = entry.target_addr.filter(|_| !gone);
            let left = entry.mtu.is_some() || target_addr.is_some();
            left.then_some(Exception { target_addr, ..*entry })
        })
    }

    /// Forgets all that was learnt over a link; true where there was any. Visits all: for links
    /// that go down.
    pub fn forget_on(&mut self, iface: IfIndex) -> bool {
        self.retain(|entry| (entry.hop.iface != iface).then_some(*entry))
    }

    /// What counts at `now`, in no order.
    pub fn iter(&self, now: Instant) -> impl Iterator<Item = Exception<A>> + '_ {
        let lives = move |until: Instant| until > now;
        self.buckets.iter().flat_map(|bucket| bucket.entries.iter().flatten()).filter_map(
            move |entry| {
                let mtu = entry.mtu.filter(|(_, until)| lives(*until));
                let target_addr = entry.target_addr.filter(|(_, until)| lives(*until));
                let left = mtu.is_some() || target_addr.is_some();
                left.then_some(Exception { mtu, target_addr, ..*entry })
            },
        )
    }

    fn place(&self, dst_addr: A) -> usize {
        self.key.addr(dst_addr.to_ip(), 0) as usize & (BUCKETS - 1)
    }

    fn knows(&self, at: usize, dst_addr: A, hop: FirstHop<A>) -> bool {
        let same = |e: &Exception<A>| e.dst_addr == dst_addr && e.hop == hop;
        self.buckets.get(at).is_some_and(|bucket| bucket.entries.iter().flatten().any(same))
    }

    /// Leaves fewer in a bucket than a depth drawn for this newcomer.
    fn make_room_in(&mut self, at: usize, now: Instant, random: &mut SecretRandom) {
        const SPREAD: u64 = (EXCEPTION_DEPTH_MAX - EXCEPTION_DEPTH_MIN + 1) as u64;
        let depth = EXCEPTION_DEPTH_MIN + random.below(SPREAD) as usize;
        let Some(bucket) = self.buckets.get_mut(at) else { return };
        let before = bucket.entries.iter().flatten().count();
        for slot in &mut bucket.entries {
            *slot = slot.filter(|entry| entry.until() > now);
        }
        let mut left = bucket.entries.iter().flatten().count();
        while left >= depth {
            let victim = random.below(left as u64) as usize;
            let mut full = bucket.entries.iter_mut().filter(|slot| slot.is_some());
            if let Some(slot) = full.nth(victim) {
                *slot = None;
            }
            left -= 1;
        }
        self.len -= before - left;
    }

    /// Leaves fewer of one next hop than it may have: what has expired goes, and else a random one
    /// of it (each with the same chance, in one pass).
    fn make_room_on(&mut self, hop: FirstHop<A>, now: Instant, random: &mut SecretRandom) {
        let (mut of_hop, mut victim) = (0, None);
        self.retain(|entry| {
            if entry.until() <= now {
                return None;
            }
            if entry.hop == hop {
                of_hop += 1;
                if random.below(of_hop) == 0 {
                    victim = Some(entry.dst_addr);
                }
            }
            Some(*entry)
        });
        if of_hop < EXCEPTIONS_HOP_MAX as u64 {
            return;
        }
        self.retain(|entry| {
            let goes = entry.hop == hop && Some(entry.dst_addr) == victim;
            (!goes).then_some(*entry)
        });
    }

    /// Keeps what `left` leaves of each entry; true where anything changed.
    fn retain(&mut self, mut left: impl FnMut(&Exception<A>) -> Option<Exception<A>>) -> bool {
        if self.len == 0 {
            return false;
        }
        let (next, mut changed) = (self.revision.wrapping_add(1), false);
        for bucket in &mut self.buckets {
            for slot in &mut bucket.entries {
                let Some(entry) = slot else { continue };
                let now = left(entry);
                if now != *slot {
                    (*slot, bucket.revision, changed) = (now, next, true);
                    self.len -= usize::from(now.is_none());
                }
            }
        }
        if changed {
            self.revision = next;
        }
        changed
    }
}

#[cfg(test)]
mod tests;
