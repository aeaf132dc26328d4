//! SYN, ACK, a copy of it, a reset and the listener's end from four threads, under loom.
//!
//! Run by the step `loom` of `cargo xtask ci`; without `cfg(loom)` this file is empty. Security bar
//! row 8 (CVE-2026-43198, CVE-2024-50154). The primitives between the threads are the product's
//! own, not stand-ins: the rings by which two workers pass a flow's segments to its owner
//! (`sync::spsc`), the call by which a program informs the owner that it has dropped the listener,
//! and the queue by which the owner passes accepted connections to it (`sync::Call`,
//! `sync::AcceptQueue`). The owner has the real cache with its real hashes; time and randomness are
//! arguments. The part of `tcp` around the cache is a dozen lines here ([`Owner::segment`],
//! [`Owner::end`]): segments of a flow with a connection belong to that connection, and the end of
//! a listener ends the connections that wait in its queue.
//!
//! Mutations that the test has detected: an ACK that leaves its entry, a reset that leaves it, a
//! listener id that is used again, a place that is not released (in the listener's count, in the
//! prefix's), a segment that is not counted, a closed queue that accepts more, a call that is
//! answered after the check.
#![cfg(loom)]
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a failing test may panic")]

use floodwall_base::{Randomness, Units};
use floodwall_sync::shim::Arc;
use floodwall_sync::shim::atomic::AtomicU32;
use floodwall_sync::spsc::{self, Consumer};
use floodwall_sync::{AcceptQueue, Call, Doorbell};
use floodwall_syncache::contract::{HandshakeClient, at_millis, listening, proven, sent};
use floodwall_syncache::{
    AcceptSlot, AckOutcome, AckRefusal, CacheSettings, CookieMoment, CookiePolicy, HalfOpen,
    HandshakeAck, ListenSettings, ListenerId, ResetReply, Secret, SynCache, SynSegment,
};
use loom::thread;

/// Long after the start: a cookie is accepted only where one was sent.
const NOW: CookieMoment = at_millis(600_000);
/// When all half-open connections have expired.
const LATER: CookieMoment = at_millis(630_000);

/// A segment that a worker passes to the owner.
#[derive(Clone, Copy, Debug)]
enum Segment {
    Syn(SynSegment),
    Ack(HandshakeAck),
    Reset(HandshakeClient),
}

/// State shared by the owner and the listening program.
struct Shared {
    bell: Doorbell,
    call: Call,
    accepts: AcceptQueue,
    link: AtomicU32,
}

impl Shared {
    fn call(&self) {
        if self.call.make() {
            let _ = self.bell.ring(0, self.call.link());
        }
    }

    /// Drops a listening handle; returns how many connections it found and resets.
    fn let_go(&self) -> u32 {
        self.accepts.close();
        let found = self.accepts.take(|_| Some(&self.link)).count() as u32;
        self.call();
        found
    }
}

/// The outcomes of connections: each has exactly one.
#[derive(Default, Debug)]
struct Children {
    born: u32,
    /// Ended by the peer's reset before the program accepted it.
    by_peer: u32,
    /// Ended with the listener.
    by_end: u32,
    /// Completed after the listener had stopped accepting.
    refused: u32,
    handed_over: u32,
}

/// The worker that owns the flow.
struct Owner {
    cache: SynCache,
    listener: Option<ListenerId>,
    /// Whether the flow has a connection, which no longer belongs to the cache.
    connected: bool,
    /// The place of the accept queue in which it waits.
    waits: Option<AcceptSlot>,
    children: Children,
    /// Connections that the peer's reset ended: their cookie may be used again afterwards.
    resets: u32,
    /// Segments by outcome: for the connection, for no flow, SYNs and ACKs of the cache, its
    /// resets.
    outcomes: [u64; 4],
}

fn cache() -> SynCache {
    let mut random = Randomness::from_number(11).secret;
    let secret = Secret::random(&mut random);
    let settings = CacheSettings { rows: 1, entries: 8, listeners: 1, ..CacheSettings::default() };
    SynCache::new(settings, secret, &mut random, at_millis(0))
}

/// One place in the accept queue, and one per prefix: a leaked place is detected.
fn settings(cookies: CookiePolicy) -> ListenSettings {
    ListenSettings { cookies, ..listening(1) }
}

impl Owner {
    fn new(cookies: CookiePolicy) -> Self {
        let mut cache = cache();
        let listener = cache.listen(settings(cookies));
        assert!(listener.is_some());
        let children = Children::default();
        let (connected, waits, resets, outcomes) = (false, None, 0, [0; 4]);
        Self { cache, listener, connected, waits, children, resets, outcomes }
    }

    fn round(&mut self, shared: &Shared, rings: &mut [Consumer<Segment>; 2]) {
        for ring in rings {
            for segment in ring.pop_batch(4) {
                self.segment(segment);
            }
        }
        if shared.bell.take(|_| Some(shared.call.link())).count() > 0
            && shared.call.answer(|| shared.accepts.is_gone())
        {
            self.end();
        }
        self.accept(shared);
        let stats = self.listener.and_then(|id| self.cache.listener_stats(id));
        assert!(stats.is_none_or(|it| it.waiting == u64::from(self.waits.is_some())));
    }

    fn segment(&mut self, segment: Segment) {
        if self.connected {
            self.outcomes[0] += 1;
            if matches!(segment, Segment::Reset(_)) {
                self.connected = false;
                self.resets += 1;
                if let Some(slot) = self.waits.take() {
                    self.cache.accepted(slot);
                    self.children.by_peer += 1;
                }
            }
            return;
        }
        let Some(listener) = self.listener else {
            self.outcomes[1] += 1;
            return;
        };
        match segment {
            Segment::Syn(syn) => {
                self.outcomes[2] += 1;
                let _ = sent(self.cache.syn(listener, &syn, NOW));
            }
            Segment::Ack(ack) => {
                self.outcomes[2] += 1;
                if let AckOutcome::Proven(proof) = self.cache.ack(listener, &ack, NOW) {
                    assert_eq!((proof.listener(), proof.flow()), (listener, &ack.flow));
                    (self.connected, self.waits) = (true, Some(proof.slot()));
                    self.children.born += 1;
                }
            }
            Segment::Reset(client) => {
                self.outcomes[3] += 1;
                let before = self.cache.stats().half_open;
                let done = self.cache.reset(&client.flow, client.irs + 1, NOW);
                assert_eq!(done == ResetReply::Removed, before == 1, "{done:?}");
                assert_eq!(self.cache.stats().half_open, 0, "an exact reset leaves nothing");
            }
        }
    }

    /// The listener ends, and with it the connections that wait.
    fn end(&mut self) {
        let Some(listener) = self.listener.take() else { return };
        if let Some(slot) = self.waits.take() {
            self.cache.accepted(slot);
            self.connected = false;
            self.children.by_end += 1;
        }
        self.cache.unlisten(listener);
    }

    /// Passes the waiting connections to the program.
    fn accept(&mut self, shared: &Shared) {
        if self.waits.is_none() || !shared.accepts.has_room(0) {
            return;
        }
        let Some(slot) = self.waits.take() else { return };
        self.cache.accepted(slot);
        match shared.accepts.hand_over(0, &shared.link) {
            Ok(_) => self.children.handed_over += 1,
            Err(_) => {
                self.connected = false;
                self.children.refused += 1;
            }
        }
    }
}

/// The client's segments, as the cache's answers determine them.
fn segments(client: HandshakeClient, cookies: CookiePolicy) -> (Segment, Segment, Segment) {
    let mut twin = Owner::new(cookies);
    let answer = sent(twin.cache.syn(twin.listener.unwrap(), &client.syn(), NOW));
    (Segment::Syn(client.syn()), Segment::Ack(client.ack(&answer)), Segment::Reset(client))
}

/// Two workers have two segments each; the program makes an unrelated call and then drops the
/// listener.
fn in_parallel(
    hand: impl Fn(Segment, Segment, Segment) -> [[Segment; 2]; 2],
    v6: bool,
    cookies: CookiePolicy,
) {
    let client = HandshakeClient::nth(7, v6);
    let (syn, ack, reset) = segments(client, cookies);
    let hands = hand(syn, ack, reset);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(2);
    builder.check(move || {
        let shared = Arc::new(Shared {
            bell: Doorbell::new(),
            call: Call::new(),
            accepts: AcceptQueue::new(1),
            link: AtomicU32::new(0),
        });
        let [(mut one, from_one), (mut other, from_other)] = [spsc::ring(2), spsc::ring(2)];
        let workers = [
            thread::spawn(move || hands[0].into_iter().for_each(|it| one.push(it).unwrap())),
            thread::spawn(move || assert_eq!(other.push_batch(hands[1]), 2)),
        ];
        let theirs = Arc::clone(&shared);
        let program = thread::spawn(move || {
            theirs.call();
            theirs.let_go()
        });
        let (mut owner, mut rings) = (Owner::new(cookies), [from_one, from_other]);
        owner.round(&shared, &mut rings);
        owner.round(&shared, &mut rings);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        let reset_by_program = program.join().unwrap();
        owner.round(&shared, &mut rings);
        assert_eq!(shared.accepts.take(|_| Some(&shared.link)).count(), 0, "left in the queue");
        assert_eq!(owner.children.handed_over, reset_by_program);
        owner.check(&client, ack, cookies);
    });
}

impl Owner {
    /// All threads have finished.
    fn check(mut self, client: &HandshakeClient, ack: Segment, cookies: CookiePolicy) {
        assert!(self.listener.is_none(), "the call was processed");
        let Children { born, by_peer, by_end, refused, handed_over } = self.children;
        assert_eq!(born, by_peer + by_end + refused + handed_over, "each ended once");
        let again = if cookies == CookiePolicy::Always { self.resets } else { 0 };
        assert!(born <= 1 + again, "{born} connections from one handshake");
        assert!(self.waits.is_none());
        let [_, _, judged, _] = self.outcomes;
        assert_eq!(self.outcomes.iter().sum::<u64>(), 4, "each segment has one outcome");
        let stats = self.cache.stats();
        assert_eq!(stats.syns() + stats.acks(), judged, "{stats:?}");
        assert_eq!(stats.added, stats.left() + stats.half_open, "{stats:?}");
        assert_eq!(stats.completed + stats.cookies_received, u64::from(born));

        // The next listener has the same slot, and none of the last one's clients.
        let next = self.cache.listen(settings(cookies)).unwrap();
        let Segment::Ack(ack) = ack else { return };
        if cookies != CookiePolicy::Always {
            let refused = AckOutcome::Refused(AckRefusal::Unknown);
            assert_eq!(
                self.cache.ack(next, &ack, NOW),
                refused,
                "connection created for a listener that is gone"
            );
        }
        // Every place was released: a client of the same prefix gets the only one.
        let answer = sent(self.cache.syn(next, &client.syn(), NOW));
        let proof = proven(self.cache.ack(next, &client.ack(&answer), NOW));
        self.cache.accepted(proof.slot());
        assert_eq!(self.cache.listener_stats(next).unwrap().waiting, 0);
        self.cache.work(LATER, Units(64), &mut |_| panic!("retransmitted without an entry"));
        let stats = self.cache.stats();
        assert_eq!((stats.half_open, stats.added), (0, stats.left()), "{stats:?}");
    }
}

const fn usual(syn: Segment, ack: Segment, reset: Segment) -> [[Segment; 2]; 2] {
    [[syn, ack], [ack, reset]]
}

#[test]
fn one_child_at_most_and_nothing_left_by_cache_ipv4() {
    in_parallel(usual, false, CookiePolicy::Overflow);
}

#[test]
fn one_child_at_most_and_nothing_left_by_cache_ipv6() {
    in_parallel(usual, true, CookiePolicy::Overflow);
}

#[test]
fn one_child_at_a_time_and_nothing_left_by_cookie_ipv4() {
    in_parallel(usual, false, CookiePolicy::Always);
}

#[test]
fn one_child_at_a_time_and_nothing_left_by_cookie_ipv6() {
    in_parallel(usual, true, CookiePolicy::Always);
}

/// The reverse order: the reset arrives through the SYN's worker, the repeated SYN through the
/// other.
#[test]
fn a_syn_that_comes_again_by_another_worker_revives_nothing() {
    in_parallel(|syn, ack, reset| [[syn, reset], [syn, ack]], false, CookiePolicy::Overflow);
}
