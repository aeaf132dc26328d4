//! `RouterList`: the default routers of one link, their preference, and which of them answer.
//!
//! Called by `router_discovery.rs` with advertisements and results of the neighbour cache. A
//! router's rank is a route metric: of the routers that answer the preferred one wins, a router
//! that does not answer ranks below all that may, and the one that failed longest ago is tried
//! first, so that they take turns when none answers (RFC 4861 section 6.3.6, RFC 4191 section 3.2).
//! Invariants: at most [`ROUTERS_MAX`] routers; a lifetime that has ended counts as none by the
//! reader's own clock. Not here: routes besides the default one (`routes.rs`).
//!
//! # Under flood
//! Reachable by any station on the link. When full, the new router is refused, unless a router that
//! was probed and did not answer can be evicted: of these the one that failed longest ago. A router
//! that is used stays. Worst work per message: 16 compares, and 16 ranks. How many messages are
//! worked on is bounded too: each router of the list has a share of its own, all others have one
//! together, so invented routers take no budget from a known one; a sender that forges a known
//! router's own address can, as it could impersonate that router anyway.

use core::net::Ipv6Addr;
use core::time::Duration;

use floodwall_base::limits::{
    ROUTER_ADVERTISEMENT_BURST, ROUTER_ADVERTISEMENT_RATE, ROUTER_NEWCOMER_BURST,
    ROUTER_NEWCOMER_RATE, ROUTERS_MAX,
};
use floodwall_base::{Instant, Price, TokenBucket};
use floodwall_wire::ndp::Preference;

/// The metric of a router of medium preference: Linux's for learned routes.
pub const METRIC: u32 = 1024;
/// Behind every router that may answer.
pub(super) const METRIC_UNREACHABLE: u32 = 4096;
/// How often a router that does not answer is probed again (RFC 4191 section 3.5).
pub(super) const PROBE_INTERVAL: Duration = Duration::from_secs(60);
/// The same at most when it sends advertisements in between.
const PROBE_INTERVAL_HEARD: Duration = Duration::from_secs(5);

/// The metric of a preference, of a router or of a route of its.
pub(super) const fn metric_of(preference: Preference) -> u32 {
    match preference {
        Preference::High => METRIC / 2,
        Preference::Medium | Preference::Reserved => METRIC,
        Preference::Low => METRIC * 2,
    }
}

/// How often a known router is listened to.
const KNOWN_ROUTER_PRICE: Price = Price::new(ROUTER_ADVERTISEMENT_RATE, ROUTER_ADVERTISEMENT_BURST);
/// How often all others together are.
const NEWCOMER_PRICE: Price = Price::new(ROUTER_NEWCOMER_RATE, ROUTER_NEWCOMER_BURST);

/// One router.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownRouter {
    pub(super) addr: Ipv6Addr,
    pub(super) preference: Preference,
    /// Until when it is a default router.
    pub(super) default_until: Instant,
    /// It says that addresses are to be had by DHCPv6 (M).
    pub(super) managed: bool,
    /// In which order it failed to answer; `None`: it answers, or was never probed.
    failed: Option<u64>,
    /// When it may be probed again.
    pub(super) next_probe: Instant,
    /// The default route that was last requested: its metric and its end.
    pub(super) told: Option<(u32, Instant)>,
    /// What is left of its share of our attention.
    attention: TokenBucket,
}

impl KnownRouter {
    pub(super) fn is_default(&self, now: Instant) -> bool {
        self.default_until > now
    }

    pub(super) const fn is_reachable(&self) -> bool {
        self.failed.is_none()
    }
}

/// The router that was evicted for a new one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// It is known, or there was room.
    At(usize),
    /// It took this place of a router that does not answer.
    Displacing(usize, Ipv6Addr, bool),
}

/// The list of default routers of one interface.
#[derive(Debug)]
pub(super) struct RouterList {
    slots: Box<[Option<KnownRouter>]>,
    failures: u64,
    /// The token bucket of all that are not in the list.
    attention: TokenBucket,
}

impl RouterList {
    pub(super) fn new() -> Self {
        Self {
            slots: vec![None; ROUTERS_MAX].into(),
            failures: 0,
            attention: TokenBucket::default(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &KnownRouter> {
        self.slots.iter().flatten()
    }

    pub(super) fn at(&self, at: usize) -> Option<&KnownRouter> {
        self.slots.get(at)?.as_ref()
    }

    pub(super) fn at_mut(&mut self, at: usize) -> Option<&mut KnownRouter> {
        self.slots.get_mut(at)?.as_mut()
    }

    pub(super) fn find(&self, addr: Ipv6Addr) -> Option<usize> {
        self.slots.iter().position(|s| s.is_some_and(|r| r.addr == addr))
    }

    /// Whether another advertisement of this router is to be read now: it takes a token of its own
    /// bucket where it is known, else of the one for all unknown routers.
    pub(super) fn attend(&mut self, addr: Ipv6Addr, now: Instant) -> bool {
        let known = self.slots.iter_mut().flatten().find(|router| router.addr == addr);
        match known {
            Some(router) => router.attention.take(KNOWN_ROUTER_PRICE, now),
            None => self.attention.take(NEWCOMER_PRICE, now),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    /// A place for the router; `None` where all are taken by others that may answer.
    pub(super) fn admit(&mut self, addr: Ipv6Addr) -> Option<Admission> {
        let free = |slots: &[Option<KnownRouter>]| slots.iter().position(Option::is_none);
        if let Some(at) = self.find(addr) {
            return Some(Admission::At(at));
        }
        if let Some(at) = free(&self.slots) {
            self.put(at, addr);
            return Some(Admission::At(at));
        }
        let failed = |s: &Option<KnownRouter>| s.and_then(|r| r.failed);
        let silent = self.slots.iter().enumerate().filter(|(_, s)| failed(s).is_some());
        let (at, old) = silent.min_by_key(|(_, s)| failed(s)).map(|(at, s)| (at, *s))?;
        self.put(at, addr);
        old.map(|old| Admission::Displacing(at, old.addr, old.told.is_some()))
    }

    fn put(&mut self, at: usize, addr: Ipv6Addr) {
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = Some(KnownRouter {
                addr,
                preference: Preference::Medium,
                default_until: Instant::ORIGIN,
                managed: false,
                failed: None,
                next_probe: Instant::ORIGIN,
                told: None,
                attention: TokenBucket::default(),
            });
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<KnownRouter> {
        self.slots.get_mut(at)?.take()
    }

    /// The router was probed and did not answer.
    pub(super) fn failed(&mut self, at: usize, now: Instant) {
        self.failures += 1;
        let failures = self.failures;
        if let Some(router) = self.at_mut(at) {
            router.failed = Some(failures);
            router.next_probe = now + PROBE_INTERVAL;
        }
    }

    /// The router has answered.
    pub(super) fn answered(&mut self, at: usize) {
        if let Some(router) = self.at_mut(at) {
            router.failed = None;
        }
    }

    /// Whether a router that does not answer, and that has just sent an advertisement, should be
    /// probed.
    pub(super) fn probe_heard(&mut self, at: usize, now: Instant) -> bool {
        let Some(router) = self.at_mut(at).filter(|r| !r.is_reachable()) else { return false };
        let asked = Instant::from_nanos(
            router.next_probe.as_nanos().saturating_sub(PROBE_INTERVAL.as_nanos() as u64),
        );
        let due = now >= asked + PROBE_INTERVAL_HEARD;
        if due {
            router.next_probe = now + PROBE_INTERVAL;
        }
        due
    }

    /// What metric the default route through this router should have; `None` for no such route.
    pub(super) fn metric(&self, at: usize, now: Instant) -> Option<u32> {
        let router = self.at(at).filter(|r| r.is_default(now))?;
        match router.failed {
            None => Some(metric_of(router.preference)),
            Some(order) => {
                let before = self.iter().filter(|r| r.failed.is_some_and(|o| o < order)).count();
                Some(METRIC_UNREACHABLE + before as u32)
            }
        }
    }

    /// Whether a router may answer and is a default one.
    pub(super) fn any_default(&self, now: Instant) -> bool {
        self.iter().any(|r| r.is_default(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000);

    fn addr(n: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, n)
    }

    fn full() -> RouterList {
        let mut routers = RouterList::new();
        for n in 0..16 {
            let at = routers.admit(addr(n));
            assert_eq!(at, Some(Admission::At(usize::from(n))));
            routers.at_mut(usize::from(n)).unwrap().default_until = Instant::FAR;
        }
        routers
    }

    #[test]
    fn a_full_list_refuses_newcomers_and_never_displaces_a_router_that_may_answer() {
        let mut routers = full();
        for n in 100..10_000 {
            assert_eq!(routers.admit(addr(n)), None);
        }
        assert_eq!(routers.admit(addr(3)), Some(Admission::At(3)));
        routers.failed(7, NOW);
        routers.failed(2, NOW);
        let first = routers.admit(addr(100)).unwrap();
        assert_eq!(first, Admission::Displacing(7, addr(7), false), "the one that failed first");
        assert_eq!(routers.admit(addr(101)), Some(Admission::Displacing(2, addr(2), false)));
        assert_eq!(routers.admit(addr(102)), None);
    }

    #[test]
    fn invented_routers_take_no_attention_from_a_known_one() {
        let mut routers = RouterList::new();
        let read = |routers: &mut RouterList, n, times, now| {
            (0..times).filter(|_| routers.attend(addr(n), now)).count()
        };
        assert_eq!(read(&mut routers, 0, 1, NOW), 1, "known only once it is admitted");
        assert!(routers.admit(addr(0)).is_some());
        let invented = (100..10_000).filter(|n| routers.attend(addr(*n), NOW)).count();
        assert_eq!(invented, ROUTER_NEWCOMER_BURST as usize - 1);
        assert_eq!(read(&mut routers, 0, 100, NOW), ROUTER_ADVERTISEMENT_BURST as usize);
        // And it is read at its own rate, however many others send in between.
        for n in 1..100 {
            let now = NOW + Duration::from_secs(3 * n);
            assert!(read(&mut routers, 1000, 100, now) <= ROUTER_NEWCOMER_BURST as usize);
            assert_eq!(read(&mut routers, 0, 1, now), 1, "{n}");
        }
    }

    #[test]
    fn preference_ranks_those_that_answer_and_the_others_take_turns_behind_them() {
        let mut routers = full();
        let preferences = [Preference::High, Preference::Low, Preference::Reserved];
        for (at, preference) in preferences.into_iter().enumerate() {
            routers.at_mut(at).unwrap().preference = preference;
        }
        let metric = |r: &RouterList, at| r.metric(at, NOW).unwrap();
        assert_eq!([0, 1, 2].map(|at| metric(&routers, at)), [512, 2048, 1024]);
        for at in [0, 2, 1] {
            routers.failed(at, NOW);
        }
        assert_eq!([0, 1, 2].map(|at| metric(&routers, at)), [4096, 4098, 4097]);
        routers.failed(0, NOW);
        assert_eq!([0, 1, 2].map(|at| metric(&routers, at)), [4098, 4097, 4096]);
        routers.answered(0);
        assert_eq!(metric(&routers, 0), 512);
    }

    #[test]
    fn a_lifetime_that_has_ended_is_none_whether_or_not_a_timer_rang() {
        let mut routers = full();
        routers.at_mut(0).unwrap().default_until = NOW;
        assert_eq!(routers.metric(0, NOW), None);
        assert!(routers.metric(0, Instant::ORIGIN).is_some());
    }

    #[test]
    fn a_silent_router_that_speaks_is_asked_but_not_at_each_word() {
        let mut routers = full();
        assert!(!routers.probe_heard(0, NOW), "it answers");
        routers.failed(0, NOW);
        let mut asked = 0;
        for step in 0..1000 {
            asked += u32::from(routers.probe_heard(0, NOW + Duration::from_millis(100 * step)));
        }
        assert!((19..=20).contains(&asked), "{asked} in 100 seconds");
    }
}
