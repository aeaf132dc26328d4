//! `SynCache`: the product's [`HalfOpen`]: cache first, cookie where the cache cannot keep.
//!
//! Called by `tcp`'s listeners and by guards. One for each worker: flows belong to workers, so two
//! of them never see one handshake. Every initial sequence number is a cookie, of cached entries
//! too, so that displacing one costs its client nothing but our retransmission (Lemon 2001 section
//! 7). Invariants: an entry leaves only for a reason that was checked first (a guessed segment
//! removes nothing); memory is taken at construction; what an entry is too old for is refused
//! whether or not timed work ran. Not here: rows and slots (`cache.rs`), the cookie's bits
//! (`cookie.rs`), the keys (`secret.rs`), timed work (`syn_cache/timed.rs`).
//!
//! # Under flood
//! SYNs: see `cache.rs`. Unknown ACKs: nothing where that listener has nothing half open, else one
//! look at a row, by the hash under which connections were looked for; the gate is shut unless
//! something of that listener was displaced or answered by cookie within 30 s, or keys were loaded;
//! then one hash more, under the budget (`budget.rs`). SYNs of one prefix: a quarter of the cache,
//! the rest by cookie. Completed handshakes: the backlog, and three quarters of it for one prefix.
//! Retransmissions: `SYN_ACK_RETRANSMITS` an entry, `SYN_ACK_RETRANSMIT_RATE` in all, none while
//! entries are lost before they serve: so a SYN is answered by at most four segments, by one under
//! flood.

mod timed;

use core::time::Duration;

use floodwall_base::{
    Bucket, FlowKey, FlowWords, HashKey, Instant, Mss, Price, SecretRandom, Seq, Units,
};

use crate::budget::Budget;
use crate::cache::{Cache, Place, Tick};
use crate::cookie::{self, Kept};
use crate::entry::{Agreed, Entry, syn_ack};
use crate::half_open::{
    Acked, Answered, ChallengeAck, HalfOpen, Refusal, Reset, SynAck, SynRefusal, Unreachable,
};
use crate::listener::{AcceptSlot, Listener, ListenerId, Listeners};
use crate::moment::{Epoch, Moment};
use crate::proven::{By, Proven, Timestamps};
use crate::secret::{Keyring, LIFETIME, Secret};
use crate::segment::{Ack, Syn};
use crate::settings::{CacheSettings, CookiePolicy, ListenSettings};
use crate::shares::Shares;
use crate::stats::{ListenerStats, Stats};
use crate::timestamp;

/// See the file's head.
pub struct SynCache {
    settings: CacheSettings,
    /// Where a flow's row is.
    index: HashKey,
    cache: Cache,
    listeners: Listeners,
    keys: Keyring,
    shares: Shares,
    budget: Budget,
    resend: (Bucket, Price),
    /// Until when every gate is open, because keys were loaded.
    loaded_until: Instant,
    /// Entries that one listener displaces in a second before it pauses.
    enough: usize,
    /// A program at the interface makes and opens cookies of ours (`interface.rs`).
    pub(crate) interface_answers: bool,
    /// Entries whose listener is gone, until somebody comes across them.
    orphans: u64,
    next_sweep: Instant,
    /// Where the sweep goes on, while one is under way.
    hand: Option<u32>,
    stats: Stats,
    spent: Units,
}

/// A flow as the tables know it.
struct Found {
    hash: u64,
}

impl Found {
    /// Our clock as that flow sees it. Its offset is made of bits of the hash that choose neither
    /// row nor tag, nor a place among connections, so that a client which learns them learns
    /// nothing of where it lies.
    #[inline]
    const fn clock(&self, now: Instant) -> u32 {
        timestamp::clock(now, (self.hash >> 24) as u32)
    }
}

impl SynCache {
    /// An empty cache. Takes all its memory: 2 KiB a row, a megabyte by default. `secret` is that
    /// of the cookies; `random` gives the keys of this start.
    #[must_use]
    pub fn new(
        settings: CacheSettings,
        secret: Secret,
        random: &mut SecretRandom,
        at: Moment,
    ) -> Self {
        let cache = Cache::new(settings.rows, settings.entries);
        let (rate, burst) = settings.retransmits;
        Self {
            settings,
            index: random.hash_key(),
            enough: (settings.entries / 8).max(1),
            cache,
            listeners: Listeners::new(settings.listeners),
            keys: Keyring::new(secret, at),
            shares: Shares::new(random.hash_key()),
            budget: Budget::new(settings.verifications, at),
            resend: (Bucket::default(), Price::new(rate, burst)),
            loaded_until: at.now + LIFETIME,
            interface_answers: false,
            orphans: 0,
            next_sweep: at.now,
            hand: None,
            stats: Stats::default(),
            spent: Units::default(),
        }
    }

    /// The secret was made for this instance: no cookie of another one is waited for, and gates are
    /// shut until there is a reason.
    #[must_use]
    pub fn with_new_secret(mut self) -> Self {
        self.loaded_until = Instant::ORIGIN;
        self
    }

    /// Takes another secret for cookies. Those of the last one stay good for their lifetime; gates
    /// are open as long. The same secret again changes nothing, and says so.
    pub fn reload(&mut self, secret: Secret, at: Moment) -> bool {
        let changed = self.keys.reload(secret, at);
        if changed {
            self.loaded_until = at.now + LIFETIME;
        }
        changed
    }

    /// Whether other instances make cookies with the same secret: see [`CacheSettings::shared`].
    pub fn set_shared(&mut self, shared: bool) {
        self.settings.shared = shared;
    }

    /// What a listener was told.
    pub(crate) fn settings_of(&self, listener: ListenerId) -> Option<ListenSettings> {
        self.listeners.of(listener).map(|it| it.settings)
    }

    /// The key of an epoch, for a program that makes the same cookies.
    pub(crate) fn key_of(&self, epoch: Epoch) -> (u64, u64) {
        self.keys.key_of(epoch)
    }

    /// The key of the hash that shifts our timestamps for each flow.
    pub(crate) const fn clock_key(&self) -> (u64, u64) {
        self.index.to_words()
    }

    /// Bytes of memory, all taken at construction.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.cache.memory()
    }

    #[inline]
    fn found(&self, flow: &FlowKey) -> Found {
        Found { hash: self.index.flow(flow) }
    }

    #[inline]
    fn spend(&mut self, units: u32) {
        self.spent = self.spent.plus(Units(units));
    }

    /// The live entry of a flow and listener. One of another listening, or one that is over, is
    /// taken out.
    #[inline]
    fn live(
        &mut self,
        found: &Found,
        flow: &FlowKey,
        id: ListenerId,
        now: Instant,
    ) -> Option<Place> {
        let place = self.cache.find(found.hash, |entry| entry.is_of(flow))?;
        let entry = self.cache.entry(place)?;
        let (other, over) = (entry.listener != id, self.is_over(place, entry, now));
        if other || over {
            self.remove(place);
            *(if other { &mut self.stats.aborted } else { &mut self.stats.stale }) += 1;
            return None;
        }
        Some(place)
    }

    /// Takes an entry out; who counts why is the caller.
    fn remove(&mut self, place: Place) {
        if let Some(entry) = self.cache.entry(place).copied() {
            self.cache.give_back(place);
            self.forget(&entry);
        }
    }

    /// Counts an entry off that is not in the cache any more.
    fn forget(&mut self, entry: &Entry) {
        self.shares.drop_half_open(entry.share);
        let of = match self.listeners.of_mut(entry.listener) {
            Some(listener) => &mut listener.stats.half_open,
            None => &mut self.orphans,
        };
        *of = of.saturating_sub(1);
    }

    /// A cookie for that SYN, now.
    #[inline]
    fn cookie(&mut self, syn: &Syn, agreed: &Agreed, at: Moment) -> Seq {
        let (key, odd) = self.keys.current(at);
        let words = FlowWords::of(&syn.flow);
        let kept = Kept::of(&syn.flow, agreed.mss, agreed.window_scale, agreed.sack);
        cookie::make(&key, odd, &words, syn.seq, kept, agreed.marks())
    }

    fn answer(
        &self,
        found: &Found,
        syn: &Syn,
        (iss, agreed): (Seq, &Agreed),
        settings: &ListenSettings,
        now: Instant,
    ) -> SynAck {
        let clock = agreed.timestamp.map_or(0, |_| found.clock(now));
        syn_ack(syn.flow, syn.seq, iss, agreed, settings, clock)
    }

    /// A SYN whose ends are known already.
    fn again(
        &mut self,
        place: Place,
        found: &Found,
        syn: &Syn,
        id: ListenerId,
        at: Moment,
    ) -> Answered {
        let Some(settings) = self.listeners.of(id).map(|it| it.settings) else {
            return Answered::Refused(SynRefusal::NoListener);
        };
        let agreed = agree(syn, &settings);
        let Some(entry) = self.cache.entry_mut(place) else {
            return Answered::Refused(SynRefusal::Full);
        };
        let known = entry.agreed();
        let timeless = |agreed: Agreed| Agreed { timestamp: agreed.timestamp.map(|_| 0), ..agreed };
        let same = entry.irs() == syn.seq;
        if same && timeless(known) == timeless(agreed) || settings.cookies == CookiePolicy::Never {
            if same {
                entry.refresh(agreed.timestamp);
                entry.set_repeated();
            }
            let entry = *entry;
            self.stats.duplicates += 1;
            let clock = found.clock(at.now);
            return Answered::Again(entry.syn_ack(&settings, clock));
        }
        // Another client of the same ends, or one that has given up its options, or a forger. Each
        // has its own cookie; the entry stays with whom it was made for, and whichever of them
        // acknowledges first has the connection.
        entry.set_rival();
        let iss = self.cookie(syn, &agreed, at);
        // The entry knows of it: for this flow alone the gate is open, as long as it is there.
        self.cookie_of(found, syn, (iss, &agreed), id, at)
    }

    /// A SYN that is answered without a trace: from now on cookies come back.
    fn by_cookie_alone(
        &mut self,
        found: &Found,
        syn: &Syn,
        made: (Seq, &Agreed),
        id: ListenerId,
        at: Moment,
    ) -> Answered {
        if let Some(listener) = self.listeners.of_mut(id) {
            listener.open_gate(at.now);
        }
        self.cookie_of(found, syn, made, id, at)
    }

    /// The answer that is all that is kept of a SYN.
    fn cookie_of(
        &mut self,
        found: &Found,
        syn: &Syn,
        (iss, agreed): (Seq, &Agreed),
        id: ListenerId,
        at: Moment,
    ) -> Answered {
        self.budget.expect(found.hash, at.epoch);
        self.stats.cookies_sent += 1;
        let Some(listener) = self.listeners.of_mut(id) else {
            return Answered::Refused(SynRefusal::NoListener);
        };
        listener.stats.cookies_sent += 1;
        let settings = listener.settings;
        Answered::Cookie(self.answer(found, syn, (iss, agreed), &settings, at.now))
    }

    /// A SYN that is new.
    fn newcomer(&mut self, found: &Found, syn: &Syn, id: ListenerId, at: Moment) -> Answered {
        let Some(listener) = self.listeners.of(id) else {
            return Answered::Refused(SynRefusal::NoListener);
        };
        let (settings, agreed) = (listener.settings, agree(syn, &listener.settings));
        let is_cookie_only = listener.is_cookie_only(at.now);
        if !is_cookie_only {
            // The one line that is in no cache is under way while hashes are computed.
            self.cache.expect_claim(found.hash);
        }
        let iss = self.cookie(syn, &agreed, at);
        if is_cookie_only {
            return self.by_cookie_alone(found, syn, (iss, &agreed), id, at);
        }
        let share = self.shares.of(syn.flow.remote);
        let in_share = self.shares.half_open(share) < self.settings.prefix_entries;
        let full = self.cache.is_full();
        let Some(claim) = in_share.then(|| self.cache.claim(found.hash)).flatten() else {
            if settings.cookies == CookiePolicy::Never {
                self.stats.refused_full += 1;
                self.count_refused(id);
                return Answered::Refused(SynRefusal::Full);
            }
            self.stats.cookies_for_share += 1;
            return self.by_cookie_alone(found, syn, (iss, &agreed), id, at);
        };
        if let Some(evicted) = &claim.evicted {
            self.displaced(evicted, self.cache.due(claim.place), full, id, at.now);
        }
        let entry = Entry::new(&syn.flow, (syn.seq, iss, syn.window), &agreed, id, share);
        if let Some(slot) = self.cache.entry_mut(claim.place) {
            *slot = entry.made_at(at.now);
        }
        self.cache.set_due(claim.place, timed::first_due(at.now));
        self.shares.add_half_open(share);
        self.budget.expect(found.hash, at.epoch);
        if let Some(listener) = self.listeners.of_mut(id) {
            listener.stats.half_open += 1;
        }
        if self.cache.len() == 1 {
            self.next_sweep = at.now + timed::SWEEP;
        }
        self.stats.added += 1;
        Answered::Cached(self.answer(found, syn, (iss, &agreed), &settings, at.now))
    }

    /// A SYN of listener `by` has taken the slot of `evicted`, whose cookie stays good.
    fn displaced(&mut self, evicted: &Entry, due: Tick, full: bool, by: ListenerId, now: Instant) {
        self.forget(evicted);
        *(if full { &mut self.stats.cache_overflow } else { &mut self.stats.row_overflow }) += 1;
        let young = evicted.retransmits == 0 && Tick::of(now).since(due) < 0;
        if let Some(victim) = self.listeners.of_mut(evicted.listener) {
            victim.open_gate(now);
            if young {
                victim.crowd(now);
            }
        }
        let enough = self.enough;
        if young
            && let Some(listener) = self.listeners.of_mut(by)
            && listener.displaced(now, enough)
        {
            listener.stats.cookie_only += 1;
            self.stats.cookie_only += 1;
        }
    }

    fn count_refused(&mut self, id: ListenerId) {
        if let Some(listener) = self.listeners.of_mut(id) {
            listener.stats.refused += 1;
        }
    }

    fn refuse(&mut self, id: ListenerId, why: Refusal) -> Acked {
        let stats = &mut self.stats;
        match why {
            // Counted where it was found out.
            Refusal::Unknown => {}
            Refusal::BadAck => stats.bad_ack += 1,
            Refusal::BadSeq => stats.bad_seq += 1,
            Refusal::AcceptFull => stats.accept_full += 1,
            Refusal::Budget => stats.over_budget += 1,
            Refusal::NoListener => stats.no_listener += 1,
        }
        self.count_refused(id);
        Acked::Refused(why)
    }

    /// A place of the accept queue for that client, taken.
    fn accept_slot(&mut self, id: ListenerId, flow: &FlowKey) -> Option<AcceptSlot> {
        let share = Shares::of_queue(self.shares.of(flow.remote), id.slot);
        let taken = self.shares.accepts(share);
        let listener = self.listeners.of_mut(id)?;
        let ListenSettings { backlog, prefix_backlog, .. } = listener.settings;
        if listener.waiting >= backlog || taken >= prefix_backlog {
            return None;
        }
        listener.waiting += 1;
        self.shares.add_accept(share);
        Some(AcceptSlot { listener: id, share })
    }

    /// An ACK whose ends have an entry.
    fn confirm(
        &mut self,
        place: Place,
        found: &Found,
        ack: &Ack,
        id: ListenerId,
        at: Moment,
    ) -> Acked {
        let Some((entry, settings)) =
            self.cache.entry(place).copied().zip(self.listeners.of(id).map(|it| it.settings))
        else {
            return self.refuse(id, Refusal::NoListener);
        };
        if ack.ack != entry.iss() + 1 {
            return self.confirm_rival(place, &entry, found, ack, id, at);
        }
        let agreed = entry.agreed();
        let in_window = ack.seq.is_within(entry.irs() + 1, u32::from(settings.window).max(1));
        let in_time = match (agreed.timestamp, ack.timestamp) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(recent), Some((value, _))) => value.wrapping_sub(recent) as i32 >= 0,
        };
        if !in_window || !in_time {
            return self.refuse(id, Refusal::BadSeq);
        }
        let Some(slot) = self.accept_slot(id, &ack.flow) else {
            return self.refuse(id, Refusal::AcceptFull);
        };
        let round_trip = self.round_trip(place, &entry, found, ack, at.now);
        self.remove(place);
        self.stats.completed += 1;
        if let Some(listener) = self.listeners.of_mut(id) {
            listener.stats.hits += 1;
        }
        let clock = agreed.timestamp.map_or(0, |_| found.clock(at.now));
        Acked::Proven(Proven {
            flow: ack.flow,
            slot,
            irs: entry.irs(),
            iss: entry.iss(),
            mss: Mss(agreed.mss),
            peer_window: Some(entry.window()),
            window_scale: agreed.window_scale.map(|theirs| (theirs, settings.window_scale)),
            sack: agreed.sack,
            timestamps: ack
                .timestamp
                .filter(|_| agreed.timestamp.is_some())
                .map(|(recent, _)| Timestamps { recent, last_sent: clock }),
            ecn: agreed.ecn,
            retransmitted: entry.retransmits,
            round_trip,
            by: By::Cache,
        })
    }

    /// How long the answer to an entry's SYN-ACK took. None where we sent it again by ourselves
    /// (Karn); where a SYN that came again had it sent again, only a timestamp says which it was.
    fn round_trip(
        &self,
        place: Place,
        entry: &Entry,
        found: &Found,
        ack: &Ack,
        now: Instant,
    ) -> Option<Duration> {
        if entry.retransmits > 0 {
            return None;
        }
        if entry.is_repeated() {
            let (_, echo) = ack.timestamp.filter(|_| entry.agreed().timestamp.is_some())?;
            return timestamp::ago(found.clock(now), echo);
        }
        Some(timed::age(self.cache.due(place), entry.born(), now))
    }

    /// An ACK that acknowledges something else than the entry's SYN-ACK: an earlier one of ours, or
    /// the cookie of a rival, or nothing. The entry stays unless a cookie is proved.
    fn confirm_rival(
        &mut self,
        place: Place,
        entry: &Entry,
        found: &Found,
        ack: &Ack,
        id: ListenerId,
        at: Moment,
    ) -> Acked {
        let gate = |listener| self.may_verify(listener, at.now);
        if !entry.has_rival() && !self.listeners.of(id).is_some_and(gate) {
            return self.refuse(id, Refusal::BadAck);
        }
        let done = self.by_cookie(found, ack, id, at);
        if matches!(done, Acked::Proven(_)) {
            self.remove(place);
            self.stats.unsent += 1;
        }
        done
    }

    /// Whether an ACK that no entry explains may be a cookie: the gate is open, or keys were loaded
    /// lately, or other instances make cookies too (decision E23).
    #[inline]
    fn may_verify(&self, listener: &Listener, now: Instant) -> bool {
        let loaded = now < self.loaded_until || self.settings.shared || self.interface_answers;
        listener.gate_is_open(now) || loaded && listener.settings.cookies != CookiePolicy::Never
    }

    /// An ACK that no entry explains, while no cookie is due.
    fn unasked(&mut self, id: ListenerId) -> Acked {
        self.stats.unasked += 1;
        self.refuse(id, Refusal::Unknown)
    }

    /// Whether the cookie of an ACK is one of the keys that were last in force.
    fn would_open(&self, ack: &Ack) -> bool {
        let (irs, iss) = (ack.seq - 1, ack.ack - 1);
        let marks = ack.timestamp.map(|(_, echo)| timestamp::marks_of(echo));
        let (key, last) = self.keys.standing(cookie::is_odd(iss));
        let words = FlowWords::of(&ack.flow);
        let opens = |key| cookie::open(&key, &words, irs, iss, marks).is_some();
        opens(key) || last.is_some_and(opens)
    }

    /// Computes the cookie of an ACK and, if it is one, makes the proof.
    fn by_cookie(&mut self, found: &Found, ack: &Ack, id: ListenerId, at: Moment) -> Acked {
        if !self.budget.take(found.hash, at) {
            return self.refuse(id, Refusal::Budget);
        }
        self.spend(1);
        let Some(settings) = self.listeners.of(id).map(|it| it.settings) else {
            return self.refuse(id, Refusal::NoListener);
        };
        let (irs, iss) = (ack.seq - 1, ack.ack - 1);
        let timestamp = ack.timestamp.filter(|_| settings.timestamps);
        let marks = timestamp.map(|(_, echo)| timestamp::marks_of(echo));
        let (key, last) = self.keys.candidates(cookie::is_odd(iss), at);
        let words = FlowWords::of(&ack.flow);
        let open = |key: &_| cookie::open(key, &words, irs, iss, marks);
        let Some(kept) = open(&key).or_else(|| last.as_ref().and_then(open)) else {
            self.stats.cookies_failed += 1;
            return self.refuse(id, Refusal::Unknown);
        };
        let Some(slot) = self.accept_slot(id, &ack.flow) else {
            return self.refuse(id, Refusal::AcceptFull);
        };
        self.stats.cookies_received += 1;
        if let Some(listener) = self.listeners.of_mut(id) {
            listener.stats.cookies_valid += 1;
        }
        let (scale, sack, ecn) = match marks {
            Some(marks) => timestamp::read(marks),
            None => (kept.scale(), kept.sack(), false),
        };
        Acked::Proven(Proven {
            flow: ack.flow,
            slot,
            irs,
            iss,
            mss: Mss(kept.mss(&ack.flow)),
            peer_window: None,
            window_scale: scale.map(|theirs| (theirs, settings.window_scale)),
            sack,
            timestamps: timestamp
                .map(|(recent, echo)| Timestamps { recent, last_sent: timestamp::latest(echo) }),
            ecn,
            retransmitted: 0,
            round_trip: timestamp.and_then(|(_, echo)| timestamp::ago(found.clock(at.now), echo)),
            by: By::Cookie,
        })
    }
}

/// What the client offers and the listener allows.
#[inline]
fn agree(syn: &Syn, settings: &ListenSettings) -> Agreed {
    let offered = &syn.options;
    Agreed {
        mss: syn.mss(),
        said_mss: offered.mss.is_some(),
        window_scale: offered.window_scale.map(|shift| shift.min(14)),
        sack: offered.sack && settings.sack,
        ecn: offered.ecn && settings.ecn,
        timestamp: offered.timestamp.filter(|_| settings.timestamps),
    }
}

impl HalfOpen for SynCache {
    fn listen(&mut self, settings: ListenSettings) -> Option<ListenerId> {
        self.listeners.add(settings)
    }

    fn unlisten(&mut self, listener: ListenerId) {
        if let Some(gone) = self.listeners.remove(listener) {
            self.orphans += gone.stats.half_open;
        }
    }

    fn set_cookies(&mut self, listener: ListenerId, policy: CookiePolicy) {
        if let Some(listener) = self.listeners.of_mut(listener) {
            listener.settings.cookies = policy;
        }
    }

    fn backlog(&self, listener: ListenerId) -> Option<usize> {
        self.listeners.of(listener).map(|listener| listener.settings.backlog)
    }

    fn flow_key(&self) -> HashKey {
        self.index
    }

    #[inline]
    fn expect(&self, hash: u64) {
        self.cache.expect_row(hash);
    }

    fn syn_hashed(&mut self, listener: ListenerId, syn: &Syn, hash: u64, at: Moment) -> Answered {
        self.spend(1);
        if self.listeners.of(listener).is_none() {
            self.stats.no_listener += 1;
            return Answered::Refused(SynRefusal::NoListener);
        }
        if !syn.is_answerable() {
            self.stats.implausible += 1;
            self.count_refused(listener);
            return Answered::Refused(SynRefusal::Implausible);
        }
        let found = Found { hash };
        match self.live(&found, &syn.flow, listener, at.now) {
            Some(place) => self.again(place, &found, syn, listener, at),
            None => self.newcomer(&found, syn, listener, at),
        }
    }

    fn ack_hashed(&mut self, listener: ListenerId, ack: &Ack, hash: u64, at: Moment) -> Acked {
        self.spend(1);
        let Some(of) = self.listeners.of(listener) else {
            return self.refuse(listener, Refusal::NoListener);
        };
        let (known, gate) = (of.stats.half_open + self.orphans, self.may_verify(of, at.now));
        // Where nothing is half open and no cookie is due no row need be looked at to refuse.
        if known == 0 && !gate {
            return self.unasked(listener);
        }
        let found = Found { hash };
        match self.live(&found, &ack.flow, listener, at.now) {
            Some(place) => self.confirm(place, &found, ack, listener, at),
            None if gate => self.by_cookie(&found, ack, listener, at),
            None => self.unasked(listener),
        }
    }

    fn accepted(&mut self, slot: AcceptSlot) {
        self.shares.drop_accept(slot.share);
        if let Some(listener) = self.listeners.of_mut(slot.listener) {
            listener.waiting = listener.waiting.saturating_sub(1);
        }
    }

    fn reset(&mut self, flow: &FlowKey, seq: Seq, at: Moment) -> Reset {
        self.spend(1);
        let found = self.found(flow);
        let place = self.cache.find(found.hash, |entry| entry.is_of(flow));
        let Some((place, entry)) = place.and_then(|it| Some((it, *self.cache.entry(it)?))) else {
            return Reset::Ignored;
        };
        let expected = entry.irs() + 1;
        if seq == expected {
            self.remove(place);
            self.stats.reset += 1;
            // Its rival has a cookie and nothing else.
            if entry.has_rival()
                && let Some(listener) = self.listeners.of_mut(entry.listener)
            {
                listener.open_gate(at.now);
            }
            return Reset::Removed;
        }
        let window = self.listeners.of(entry.listener).map_or(0, |it| it.settings.window);
        if !seq.is_within(expected, u32::from(window)) {
            return Reset::Ignored;
        }
        self.stats.challenged += 1;
        Reset::Challenge(ChallengeAck { seq: entry.iss() + 1, ack: expected })
    }

    fn unreachable(&mut self, flow: &FlowKey, quoted: Seq) -> Unreachable {
        self.spend(1);
        let found = self.found(flow);
        let Some(place) = self.cache.find(found.hash, |entry| entry.is_of(flow)) else {
            return Unreachable::Ignored;
        };
        let Some(entry) = self.cache.entry_mut(place).filter(|entry| entry.iss() == quoted) else {
            return Unreachable::Ignored;
        };
        if !entry.unreached() || entry.retransmits < floodwall_base::limits::SYN_ACK_RETRANSMITS {
            return Unreachable::Noted;
        }
        self.remove(place);
        self.stats.unreachable += 1;
        Unreachable::Removed
    }

    fn unsent(&mut self, flow: &FlowKey, at: Moment) {
        let found = self.found(flow);
        if let Some(place) = self.cache.find(found.hash, |entry| entry.is_of(flow)) {
            let listener = self.cache.entry(place).map(|entry| entry.listener);
            self.remove(place);
            self.stats.unsent += 1;
            if let Some(listener) = listener.and_then(|id| self.listeners.of_mut(id)) {
                listener.open_gate(at.now);
            }
        }
    }

    fn expects(&self, flow: &FlowKey) -> bool {
        let found = self.found(flow);
        self.cache.find(found.hash, |entry| entry.is_of(flow)).is_some()
    }

    fn recognizes(&self, ack: &Ack) -> bool {
        let found = self.found(&ack.flow);
        let place = self.cache.find(found.hash, |entry| entry.is_of(&ack.flow));
        let entry = place.and_then(|place| self.cache.entry(place));
        // A stranger's flow is in no row, and in the filter by chance at most: then it costs a hash
        // more, and no write.
        entry.is_some_and(|entry| ack.ack == entry.iss() + 1)
            || (self.interface_answers || self.budget.is_expected(found.hash))
                && self.would_open(ack)
    }

    fn work(&mut self, at: Moment, granted: Units, send: &mut impl FnMut(&SynAck)) -> Units {
        self.sweep(at, granted, send)
    }

    fn deadline(&self) -> Instant {
        if self.cache.len() == 0 { Instant::FAR } else { self.next_sweep }
    }

    fn take_spent(&mut self) -> Units {
        core::mem::take(&mut self.spent)
    }

    fn stats(&self) -> Stats {
        Stats { half_open: self.cache.len() as u64, ..self.stats }
    }

    fn listener_stats(&self, listener: ListenerId) -> Option<ListenerStats> {
        let it = self.listeners.of(listener)?;
        Some(ListenerStats { waiting: it.waiting as u64, ..it.stats })
    }
}
