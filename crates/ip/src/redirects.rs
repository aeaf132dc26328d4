//! `Redirects`: destinations for which a router told us a better first hop, both families.
//!
//! Called by `stack`: at every look-up of a path through a router, and with redirects that it has
//! judged. A redirect counts only for the router that its route leads to: whoever is replaced by
//! another takes its redirects along. Invariants: at most [`REDIRECTS_MAX`], memory taken at
//! construction; each counts for [`REDIRECT_LIFETIME`] by the reader's own clock. Read first: RFC
//! 4861 section 8.3, RFC 1122 section 3.3.1.3. Not here: who may redirect (the stack, which knows
//! the first hops and our addresses).
//!
//! # Under flood
//! Reachable by whoever can speak as the first hop, if redirects are followed at all. When full the
//! oldest goes: its destination takes one hop more. Worst work per packet: one keyed hash, and none
//! while there is no redirect.

use core::time::Duration;

use floodwall_base::limits::REDIRECTS_MAX;
use floodwall_base::{Address, HashKey, IfIndex, IndexLists, Instant};

use crate::neighbor::Index;

/// How long a redirect counts: as long as Linux remembers what a router said of a path.
pub const REDIRECT_LIFETIME: Duration = Duration::from_secs(600);
/// The list of places by age, and that of free places.
const BY_AGE: u32 = 0;
const FREE: u32 = 1;

/// One redirect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Redirect<A> {
    /// For packets to whom.
    pub dst_addr: A,
    /// On which link.
    pub iface: IfIndex,
    /// The router that the route leads to.
    pub via: A,
    /// The better first hop; the destination itself where it is on the link.
    pub target_addr: A,
}

/// A redirect and when it ends.
type Timed<A> = (Redirect<A>, Instant);

/// See the file's head.
#[derive(Debug)]
pub struct Redirects<A> {
    entries: Box<[Option<Timed<A>>]>,
    index: Index,
    lists: IndexLists,
    key: HashKey,
    len: usize,
    revision: u32,
}

impl<A: Address> Redirects<A> {
    /// An empty set. Takes about 10 KiB.
    #[must_use]
    pub fn new(key: HashKey) -> Self {
        let mut lists = IndexLists::new(REDIRECTS_MAX, 2);
        (0..lists.items()).for_each(|at| lists.push_back(FREE, at));
        Self {
            entries: vec![None; REDIRECTS_MAX].into(),
            index: Index::new(REDIRECTS_MAX),
            lists,
            key,
            len: 0,
            revision: 0,
        }
    }

    /// Changes whenever anything here was changed: for whoever keeps a copy.
    #[must_use]
    pub const fn revision(&self) -> u32 {
        self.revision
    }

    /// Becomes a copy of another set, its revision included. Allocates nothing.
    pub fn copy_from(&mut self, other: &Self) {
        self.entries.clone_from(&other.entries);
        self.index.copy_from(&other.index);
        self.lists.copy_from(&other.lists);
        (self.key, self.len, self.revision) = (other.key, other.len, other.revision);
    }

    /// The first hop towards `dst_addr` instead of `via`, where there is another.
    #[must_use]
    #[inline]
    pub fn lookup(&self, dst_addr: A, iface: IfIndex, via: A, now: Instant) -> Option<A> {
        if self.len == 0 {
            return None;
        }
        let (redirect, until) = self.entry(self.find(dst_addr, iface)?)?;
        (redirect.via == via && *until > now).then_some(redirect.target_addr)
    }

    /// Remembers a redirect that was judged good; the oldest makes room.
    pub fn learn(&mut self, redirect: Redirect<A>, now: Instant) {
        if let Some(at) = self.find(redirect.dst_addr, redirect.iface) {
            self.discard(at);
        }
        if self.lists.is_empty(FREE)
            && let Some(oldest) = self.lists.first(BY_AGE)
        {
            self.discard(oldest);
        }
        let hash = self.hash(redirect.dst_addr, redirect.iface);
        let Some(at) = self.lists.first(FREE).filter(|at| self.index.insert(hash, *at)) else {
            return;
        };
        self.lists.push_back(BY_AGE, at);
        self.len += 1;
        self.revision = self.revision.wrapping_add(1);
        if let Some(entry) = self.entries.get_mut(at as usize) {
            *entry = Some((redirect, now + REDIRECT_LIFETIME));
        }
    }

    /// Forgets what `which` names; true where there was any. Visits all: for neighbours that do not
    /// answer, and links that go down.
    pub fn forget(&mut self, mut which: impl FnMut(&Redirect<A>) -> bool) -> bool {
        let before = self.len;
        if before == 0 {
            return false;
        }
        for at in 0..self.lists.items() {
            if self.entry(at).is_some_and(|(redirect, _)| which(redirect)) {
                self.discard(at);
            }
        }
        self.len < before
    }

    /// The redirects that count at `now`, oldest first.
    pub fn iter(&self, now: Instant) -> impl Iterator<Item = (Redirect<A>, Instant)> + '_ {
        let all = self.lists.iter(BY_AGE).filter_map(|at| self.entry(at).copied());
        all.filter(move |(_, until)| *until > now)
    }

    #[inline]
    fn hash(&self, dst_addr: A, iface: IfIndex) -> u32 {
        self.key.addr(dst_addr.to_ip(), u32::from(iface.0)) as u32
    }

    #[inline]
    fn find(&self, dst_addr: A, iface: IfIndex) -> Option<u32> {
        self.index.find(self.hash(dst_addr, iface), |at| {
            self.entry(at).is_some_and(|(r, _)| r.dst_addr == dst_addr && r.iface == iface)
        })
    }

    #[inline]
    fn entry(&self, at: u32) -> Option<&Timed<A>> {
        self.entries.get(at as usize)?.as_ref()
    }

    fn discard(&mut self, at: u32) {
        if let Some((old, _)) = self.entries.get_mut(at as usize).and_then(Option::take) {
            self.index.remove(self.hash(old.dst_addr, old.iface), at);
            self.lists.push_back(FREE, at);
            self.len -= 1;
            self.revision = self.revision.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const ONE: IfIndex = IfIndex(1);
    const NOW: Instant = Instant::from_nanos(1);

    fn nth<A: Address>(n: u32) -> A {
        A::from_bits_aligned(if A::BITS == 32 {
            u128::from(0x0a00_0000 + n) << 96
        } else {
            0xfd00 << 112 | u128::from(n)
        })
    }

    fn redirect<A: Address>(about: u32, via: u32, target: u32) -> Redirect<A> {
        let (dst_addr, via, target_addr) = (nth(about), nth(via), nth(target));
        Redirect { dst_addr, iface: ONE, via, target_addr }
    }

    fn followed<A: Address>() {
        let mut redirects = Redirects::<A>::new(HashKey::new(1, 2));
        let (about, via, target): (A, A, A) = (nth(100), nth(1), nth(2));
        assert_eq!(redirects.lookup(about, ONE, via, NOW), None);
        redirects.learn(redirect(100, 1, 2), NOW);
        assert_eq!(redirects.lookup(about, ONE, via, NOW), Some(target));
        assert_eq!(redirects.lookup(nth(101), ONE, via, NOW), None);
        assert_eq!(redirects.lookup(about, IfIndex(2), via, NOW), None);
        assert_eq!(redirects.lookup(about, ONE, nth(3), NOW), None, "the route leads elsewhere");
        let end = NOW + REDIRECT_LIFETIME;
        assert_eq!(
            (redirects.lookup(about, ONE, via, end), redirects.iter(end).count()),
            (None, 0)
        );
        redirects.learn(redirect(100, 1, 7), NOW);
        assert_eq!(redirects.lookup(about, ONE, via, NOW), Some(nth(7)));
        assert_eq!(redirects.iter(NOW).count(), 1);
        assert!(!redirects.forget(|r| r.target_addr == target));
        assert!(redirects.forget(|r| r.iface == ONE) && !redirects.forget(|_| true));
        assert_eq!(redirects.lookup(about, ONE, via, NOW), None);
    }

    #[test]
    fn a_redirect_counts_for_its_destination_link_and_router_and_for_ten_minutes() {
        followed::<Ipv4Addr>();
        followed::<Ipv6Addr>();
    }

    fn flooded<A: Address>() {
        let mut redirects = Redirects::<A>::new(HashKey::new(1, 2));
        for n in 0..20_000 {
            redirects.learn(redirect(1000 + n, 1, 2), NOW);
            assert!(redirects.len <= REDIRECTS_MAX);
        }
        let kept: Vec<_> = redirects.iter(NOW).map(|(r, _)| r.dst_addr).collect();
        let last: Vec<A> = (0..64).map(|n| nth(1000 + 20_000 - 64 + n)).collect();
        assert_eq!(kept, last, "the newest, oldest first");
    }

    #[test]
    fn a_flood_leaves_as_many_as_there_may_be() {
        flooded::<Ipv4Addr>();
        flooded::<Ipv6Addr>();
    }
}
