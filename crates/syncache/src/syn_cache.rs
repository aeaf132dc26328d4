//! `SynCache`: the product's [`HalfOpen`]: the cache first, a SYN cookie where the cache has no
//! room.
//!
//! Used by `tcp`'s listeners and by guards. There is one per worker: flows belong to workers, so
//! one handshake is always processed by one worker. Every initial sequence number is a cookie, also
//! of cached entries, so that evicting one costs its client nothing but our retransmission (Lemon
//! 2001 section 7). Invariants: an entry is removed only for a verified reason (a guessed segment
//! removes nothing); memory is allocated at construction; an entry past its lifetime is refused
//! whether or not timed work has run. Not here: rows and slots (`cache.rs`), the cookie's bits
//! (`cookie.rs`), the keys (`secret.rs`), timed work (`syn_cache/timed.rs`).
//!
//! # Under flood
//! SYNs: see `cache.rs`. Unknown ACKs: no work where that listener has nothing half-open, else one
//! look-up of a row, by the hash with which connections were looked up; the gate is shut unless an
//! entry of that listener was evicted or a SYN answered by cookie within 30 s, or keys were loaded;
//! then one more hash, within the budget (`budget.rs`). SYNs of one prefix: a quarter of the cache,
//! the rest by cookie. Completed handshakes: the backlog, and three quarters of it for one prefix.
//! Retransmissions: `SYN_ACK_RETRANSMITS` per entry, `SYN_ACK_RETRANSMIT_RATE` in total, none while
//! entries are evicted before they serve: so a SYN is answered by at most six segments, and by one
//! under flood.

mod timed;

use core::time::Duration;

use floodwall_base::{
    FlowKey, FlowWords, HashKey, Instant, Mss, Price, SecretRandom, Seq, TokenBucket, Units,
};

use crate::budget::CookieBudget;
use crate::cache::{Cache, CacheSlot, CacheTick};
use crate::cookie::{self, CookieOptions};
use crate::entry::{AgreedOptions, SynEntry, syn_ack};
use crate::half_open::{
    AckOutcome, AckRefusal, ChallengeAck, HalfOpen, ResetReply, SynAck, SynAnswer, SynRefusal,
    Unreachable,
};
use crate::listener::{AcceptSlot, CacheListener, CacheListeners, ListenerId};
use crate::moment::{CookieEpoch, CookieMoment};
use crate::proven::{Proven, ProvenBy, ProvenTimestamps};
use crate::secret::{COOKIE_LIFETIME, Keyring, Secret};
use crate::segment::{HandshakeAck, SynSegment};
use crate::settings::{CacheSettings, CookiePolicy, ListenSettings};
use crate::shares::ListenerShares;
use crate::stats::{ListenerStats, Stats};
use crate::timestamp;

/// Retransmissions of a SYN-ACK before ICMP errors about it are believed: FreeBSD's.
const UNREACHED_RETRANSMITS: u8 = 3;

/// The SYN cache of one worker, with SYN cookies for its overflow.
pub struct SynCache {
    settings: CacheSettings,
    /// The key that maps flows to rows.
    index: HashKey,
    cache: Cache,
    listeners: CacheListeners,
    keys: Keyring,
    shares: ListenerShares,
    budget: CookieBudget,
    resend: (TokenBucket, Price),
    /// Until when every gate is open, because keys were loaded.
    loaded_until: Instant,
    /// Entries of one listener that must be evicted within a second to begin a pause.
    enough: usize,
    /// Entries of listeners that are gone, still to be removed.
    orphans: u64,
    /// A program at the interface makes and opens cookies of ours (`interface.rs`).
    pub(crate) interface_answers: bool,
    next_sweep: Instant,
    /// The row at which the current sweep continues, if one is in progress.
    hand: Option<u32>,
    stats: Stats,
    spent: Units,
}

/// The hash of a flow as the tables use it.
struct FoundEntry {
    hash: u64,
}

impl FoundEntry {
    /// Our timestamp clock for that flow. Its offset is made of hash bits that select neither
    /// row nor tag, nor a slot among connections, so that a client which learns them learns nothing
    /// about its position.
    #[inline]
    const fn clock(&self, now: Instant) -> u32 {
        timestamp::clock(now, (self.hash >> 24) as u32)
    }
}

impl SynCache {
    /// An empty cache. Allocates all its memory: 2 KiB per row, a megabyte by default. `secret`
    /// is that of the cookies; `random` gives the keys of this process.
    #[must_use]
    pub fn new(
        settings: CacheSettings,
        secret: Secret,
        random: &mut SecretRandom,
        at: CookieMoment,
    ) -> Self {
        let cache = Cache::new(settings.rows, settings.entries);
        let (rate, burst) = settings.retransmits;
        Self {
            settings,
            index: random.hash_key(),
            enough: (settings.entries / 8).max(1),
            cache,
            listeners: CacheListeners::new(settings.listeners),
            keys: Keyring::new(secret, at),
            shares: ListenerShares::new(random.hash_key()),
            budget: CookieBudget::new(settings.verifications, at),
            resend: (TokenBucket::default(), Price::new(rate, burst)),
            loaded_until: at.now + COOKIE_LIFETIME,
            orphans: 0,
            interface_answers: false,
            next_sweep: at.now,
            hand: None,
            stats: Stats::default(),
            spent: Units::default(),
        }
    }

    /// Declares that the secret was made for this instance: no cookies of other instances are
    /// expected, and gates start shut.
    #[must_use]
    pub fn with_new_secret(mut self) -> Self {
        self.loaded_until = Instant::ORIGIN;
        self
    }

    /// Replaces the secret of cookies. Cookies of the previous one stay valid for their
    /// lifetime; gates are open for that time. Returns false, without a change, if it is the same
    /// secret.
    pub fn reload(&mut self, secret: Secret, at: CookieMoment) -> bool {
        let changed = self.keys.reload(secret, at);
        if changed {
            self.loaded_until = at.now + COOKIE_LIFETIME;
        }
        changed
    }

    /// What a listener was configured with.
    pub(crate) fn settings_of(&self, listener: ListenerId) -> Option<ListenSettings> {
        self.listeners.of(listener).map(|it| it.settings)
    }

    /// The key of an epoch, for a program that makes the same cookies.
    pub(crate) fn key_of(&self, epoch: CookieEpoch) -> (u64, u64) {
        self.keys.key_of(epoch)
    }

    /// The key of the hash that shifts our timestamps for each flow.
    pub(crate) const fn clock_key(&self) -> (u64, u64) {
        self.index.to_words()
    }

    /// Sets whether other instances make cookies with the same secret: see
    /// [`CacheSettings::shared`].
    pub fn set_shared(&mut self, shared: bool) {
        self.settings.shared = shared;
    }

    /// Memory in bytes, all allocated at construction.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.cache.memory()
    }

    #[inline]
    fn found(&self, flow: &FlowKey) -> FoundEntry {
        FoundEntry { hash: self.index.flow(flow) }
    }

    #[inline]
    fn spend(&mut self, units: u32) {
        self.spent = self.spent.plus(Units(units));
    }

    /// The live entry of a flow and listener. An entry of an earlier listener, or one past its
    /// lifetime, is removed.
    #[inline]
    fn live(
        &mut self,
        found: &FoundEntry,
        flow: &FlowKey,
        id: ListenerId,
        now: Instant,
    ) -> Option<CacheSlot> {
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

    /// Removes an entry; the caller counts the reason.
    fn remove(&mut self, place: CacheSlot) {
        if let Some(entry) = self.cache.entry(place) {
            let (share, listener) = (entry.share, entry.listener);
            self.cache.give_back(place);
            self.forget(share, listener);
        }
    }

    /// Updates the counts for an entry of this share and listener that has left the cache.
    fn forget(&mut self, share: u16, listener: ListenerId) {
        self.shares.drop_half_open(share);
        let of = match self.listeners.of_mut(listener) {
            Some(listener) => &mut listener.stats.half_open,
            None => &mut self.orphans,
        };
        *of = of.saturating_sub(1);
    }

    /// The cookie for that SYN at this time.
    #[inline]
    fn cookie(&mut self, syn: &SynSegment, agreed: &AgreedOptions, at: CookieMoment) -> Seq {
        let (key, odd) = self.keys.current(at);
        let words = FlowWords::of(&syn.flow);
        let kept = CookieOptions::of(&syn.flow, agreed.mss, agreed.window_scale, agreed.sack);
        cookie::make(&key, odd, &words, syn.seq, kept, agreed.marks())
    }

    fn answer(
        &self,
        found: &FoundEntry,
        syn: &SynSegment,
        (iss, agreed): (Seq, &AgreedOptions),
        settings: &ListenSettings,
        (by, now): (ProvenBy, Instant),
    ) -> SynAck {
        let clock = agreed.timestamp.map_or(0, |_| found.clock(now));
        syn_ack(syn.flow, syn.seq, iss, agreed, settings, (by, clock))
    }

    /// Processes a SYN between endpoints that have an entry.
    fn again(
        &mut self,
        place: CacheSlot,
        found: &FoundEntry,
        syn: &SynSegment,
        id: ListenerId,
        at: CookieMoment,
    ) -> SynAnswer {
        let Some(settings) = self.listeners.of(id).map(|it| it.settings) else {
            return SynAnswer::Refused(SynRefusal::NoListener);
        };
        let agreed = agree(syn, &settings);
        let Some(entry) = self.cache.entry_mut(place) else {
            return SynAnswer::Refused(SynRefusal::Full);
        };
        let known = entry.agreed();
        let timeless = |agreed: AgreedOptions| AgreedOptions {
            timestamp: agreed.timestamp.map(|_| 0),
            ..agreed
        };
        let same = entry.irs() == syn.seq;
        if same && timeless(known) == timeless(agreed) || settings.cookies == CookiePolicy::Never {
            if same {
                entry.refresh(agreed.timestamp);
                entry.set_repeated();
            }
            let entry = *entry;
            self.stats.duplicates += 1;
            let clock = found.clock(at.now);
            return SynAnswer::Again(entry.syn_ack(&settings, clock));
        }
        // Another client of the same endpoints, or one that has given up its options, or a
        // forged SYN. Each gets its own cookie; the entry stays unchanged, and the first of them to
        // acknowledge gets the connection.
        entry.set_rival();
        let iss = self.cookie(syn, &agreed, at);
        // The entry records it: for this flow alone the gate is open, as long as the entry
        // exists.
        self.cookie_of(found, syn, (iss, &agreed), id, at)
    }

    /// Answers a SYN without an entry: from now on cookies are expected.
    fn by_cookie_alone(
        &mut self,
        found: &FoundEntry,
        syn: &SynSegment,
        made: (Seq, &AgreedOptions),
        id: ListenerId,
        at: CookieMoment,
    ) -> SynAnswer {
        if let Some(listener) = self.listeners.of_mut(id) {
            listener.open_gate(at.now);
        }
        self.cookie_of(found, syn, made, id, at)
    }

    /// The SYN-ACK for a SYN of which nothing else is stored.
    fn cookie_of(
        &mut self,
        found: &FoundEntry,
        syn: &SynSegment,
        (iss, agreed): (Seq, &AgreedOptions),
        id: ListenerId,
        at: CookieMoment,
    ) -> SynAnswer {
        self.budget.prefetch(found.hash, at.epoch);
        self.stats.cookies_sent += 1;
        let Some(listener) = self.listeners.of_mut(id) else {
            return SynAnswer::Refused(SynRefusal::NoListener);
        };
        listener.stats.cookies_sent += 1;
        let settings = listener.settings;
        // ECN is kept in our timestamp, or not at all (docs/design/syn-cookie.md).
        let agreed = AgreedOptions { ecn: agreed.ecn && agreed.timestamp.is_some(), ..*agreed };
        let by = (ProvenBy::Cookie, at.now);
        SynAnswer::Cookie(self.answer(found, syn, (iss, &agreed), &settings, by))
    }

    /// Processes a SYN without an entry.
    fn newcomer(
        &mut self,
        found: &FoundEntry,
        syn: &SynSegment,
        id: ListenerId,
        at: CookieMoment,
    ) -> SynAnswer {
        let Some(listener) = self.listeners.of(id) else {
            return SynAnswer::Refused(SynRefusal::NoListener);
        };
        let (settings, agreed) = (listener.settings, agree(syn, &listener.settings));
        let is_cookie_only = listener.is_cookie_only(at.now);
        if !is_cookie_only {
            // The one line that is not cached is prefetched while hashes are computed.
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
                return SynAnswer::Refused(SynRefusal::Full);
            }
            self.stats.cookies_for_share += 1;
            return self.by_cookie_alone(found, syn, (iss, &agreed), id, at);
        };
        if let Some(evicted) = &claim.evicted {
            self.displaced(evicted, self.cache.due(claim.place), full, id, at.now);
        }
        let entry = SynEntry::new(&syn.flow, (syn.seq, iss, syn.window), &agreed, id, share);
        if let Some(slot) = self.cache.entry_mut(claim.place) {
            *slot = entry.made_at(at.now);
        }
        self.cache.set_due(claim.place, timed::first_due(at.now));
        self.shares.add_half_open(share);
        self.budget.prefetch(found.hash, at.epoch);
        if let Some(listener) = self.listeners.of_mut(id) {
            listener.stats.half_open += 1;
        }
        if self.cache.len() == 1 {
            self.next_sweep = at.now + timed::SWEEP_PERIOD;
        }
        self.stats.added += 1;
        let by = (ProvenBy::Cache, at.now);
        SynAnswer::Cached(self.answer(found, syn, (iss, &agreed), &settings, by))
    }

    /// Accounts for a SYN of listener `by` that has evicted `evicted`; that cookie stays
    /// valid.
    fn displaced(
        &mut self,
        evicted: &SynEntry,
        due: CacheTick,
        full: bool,
        by: ListenerId,
        now: Instant,
    ) {
        self.forget(evicted.share, evicted.listener);
        *(if full { &mut self.stats.cache_overflow } else { &mut self.stats.row_overflow }) += 1;
        let young = evicted.retransmits == 0 && CacheTick::of(now).since(due) < 0;
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

    fn refuse(&mut self, id: ListenerId, why: AckRefusal) -> AckOutcome {
        let stats = &mut self.stats;
        match why {
            // Already counted when its end was detected.
            AckRefusal::Unknown => {}
            AckRefusal::BadAck => stats.bad_ack += 1,
            AckRefusal::BadSeq => stats.bad_seq += 1,
            AckRefusal::AcceptFull => stats.accept_full += 1,
            AckRefusal::Budget => stats.over_budget += 1,
            AckRefusal::NoListener => stats.no_listener += 1,
        }
        self.count_refused(id);
        AckOutcome::Refused(why)
    }

    /// Reserves a place in the accept queue for a client with this share of the cache.
    fn accept_slot(&mut self, id: ListenerId, share: u16) -> Option<AcceptSlot> {
        let share = ListenerShares::of_queue(share, id.slot);
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

    /// Processes an ACK between endpoints that have an entry.
    fn confirm(
        &mut self,
        place: CacheSlot,
        found: &FoundEntry,
        ack: &HandshakeAck,
        id: ListenerId,
        at: CookieMoment,
    ) -> AckOutcome {
        let Some((entry, settings)) =
            self.cache.entry(place).copied().zip(self.listeners.of(id).map(|it| it.settings))
        else {
            return self.refuse(id, AckRefusal::NoListener);
        };
        if ack.ack != entry.iss() + 1 {
            return self.confirm_rival(place, &entry, found, ack, id, at);
        }
        let agreed = entry.agreed();
        let in_window = ack.seq.is_within(entry.irs() + 1, u32::from(settings.window).max(1));
        let in_time = match (agreed.timestamp, ack.timestamp) {
            // A client that leaves its timestamp out is answered like any peer that does.
            (None, _) | (_, None) => true,
            (Some(recent), Some((value, _))) => value.wrapping_sub(recent) as i32 >= 0,
        };
        if !in_window || !in_time {
            return self.refuse(id, AckRefusal::BadSeq);
        }
        let Some(slot) = self.accept_slot(id, entry.share) else {
            return self.refuse(id, AckRefusal::AcceptFull);
        };
        let round_trip = self.round_trip(place, &entry, found, ack, at.now);
        self.remove(place);
        self.stats.completed += 1;
        if let Some(listener) = self.listeners.of_mut(id) {
            listener.stats.hits += 1;
        }
        let clock = agreed.timestamp.map_or(0, |_| found.clock(at.now));
        AckOutcome::Proven(Proven {
            flow: ack.flow,
            slot,
            irs: entry.irs(),
            iss: entry.iss(),
            mss: Mss(agreed.mss),
            peer_window: Some(entry.window()),
            window_scale: agreed.window_scale.map(|theirs| (theirs, settings.window_scale)),
            sack: agreed.sack,
            timestamps: agreed.timestamp.map(|of_syn| {
                // Later data may prove the handshake: its timestamp is newer than that of data
                // which is still to come (RFC 7323 section 4.3).
                let next = ack.timestamp.filter(|_| ack.seq == entry.irs() + 1);
                let recent = next.map_or(of_syn, |(value, _)| value);
                ProvenTimestamps { recent, last_sent: clock }
            }),
            ecn: agreed.ecn,
            retransmitted: entry.retransmits,
            round_trip,
            by: ProvenBy::Cache,
        })
    }

    /// The round-trip time of an entry's SYN-ACK. `None` where we retransmitted it (Karn);
    /// where a repeated SYN was answered again, only a timestamp is unambiguous.
    fn round_trip(
        &self,
        place: CacheSlot,
        entry: &SynEntry,
        found: &FoundEntry,
        ack: &HandshakeAck,
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

    /// Processes an ACK that does not acknowledge the entry's SYN-ACK: it may acknowledge an
    /// earlier one, or be the cookie of another SYN of the same endpoints, or be invalid. Of an
    /// earlier one it may lie behind the client's first data, as what answers our later SYN-ACK
    /// does (RFC 5961 section 4.2): then the entry tells where the client began. The entry stays
    /// unless a cookie is verified.
    fn confirm_rival(
        &mut self,
        place: CacheSlot,
        entry: &SynEntry,
        found: &FoundEntry,
        ack: &HandshakeAck,
        id: ListenerId,
        at: CookieMoment,
    ) -> AckOutcome {
        let gate = |listener| self.may_verify(listener, at.now);
        if !entry.has_rival() && !self.listeners.of(id).is_some_and(gate) {
            return self.refuse(id, AckRefusal::BadAck);
        }
        let window = self.listeners.of(id).map_or(0, |it| u32::from(it.settings.window));
        let is_later = ack.seq != entry.irs() + 1 && ack.seq.is_within(entry.irs() + 1, window);
        let began = is_later.then(|| (entry.irs(), entry.agreed().timestamp));
        let done = self.by_cookie(found, (ack, began), id, at);
        if matches!(done, AckOutcome::Proven(_)) {
            self.remove(place);
            self.stats.unsent += 1;
        }
        done
    }

    /// Whether an ACK without an entry may be a cookie: the gate is open, or keys were loaded
    /// recently, or other instances make cookies too (decision E23).
    #[inline]
    fn may_verify(&self, listener: &CacheListener, now: Instant) -> bool {
        let loaded = now < self.loaded_until || self.settings.shared || self.interface_answers;
        listener.gate_is_open(now) || loaded && listener.settings.cookies != CookiePolicy::Never
    }

    /// Refuses an ACK without an entry, while no cookie is outstanding.
    fn unasked(&mut self, id: ListenerId) -> AckOutcome {
        self.stats.unasked += 1;
        self.refuse(id, AckRefusal::Unknown)
    }

    /// Whether the cookie of an ACK is valid under one of the keys last in force.
    fn would_open(&self, ack: &HandshakeAck) -> bool {
        let (irs, iss) = (ack.seq - 1, ack.ack - 1);
        let marks = ack.timestamp.map(|(_, echo)| timestamp::marks_of(echo));
        let (key, last) = self.keys.standing(cookie::is_odd(iss));
        let words = FlowWords::of(&ack.flow);
        let opens = |key| cookie::open(&key, &words, irs, iss, marks).is_some();
        opens(key) || last.is_some_and(opens)
    }

    /// Verifies the cookie of an ACK and, if it is valid, makes the proof. `began` is the initial
    /// sequence number and the timestamp of a SYN that the ACK may belong to, where it does not
    /// follow its SYN directly.
    fn by_cookie(
        &mut self,
        found: &FoundEntry,
        (ack, began): (&HandshakeAck, Option<(Seq, Option<u32>)>),
        id: ListenerId,
        at: CookieMoment,
    ) -> AckOutcome {
        if !self.budget.take(found.hash, at) {
            return self.refuse(id, AckRefusal::Budget);
        }
        self.spend(1);
        let Some(settings) = self.listeners.of(id).map(|it| it.settings) else {
            return self.refuse(id, AckRefusal::NoListener);
        };
        let iss = ack.ack - 1;
        let timestamp = ack.timestamp.filter(|_| settings.timestamps);
        let marks = timestamp.map(|(_, echo)| timestamp::marks_of(echo));
        let (key, last) = self.keys.candidates(cookie::is_odd(iss), at);
        let words = FlowWords::of(&ack.flow);
        let open = |irs: Seq| {
            let open = |key: &_| cookie::open(key, &words, irs, iss, marks);
            let kept = open(&key).or_else(|| last.as_ref().and_then(open));
            kept.map(|kept| (irs, kept))
        };
        let opened = open(ack.seq - 1).or_else(|| began.and_then(|(irs, _)| open(irs)));
        let Some((irs, kept)) = opened else {
            self.stats.cookies_failed += 1;
            return self.refuse(id, AckRefusal::Unknown);
        };
        let share = self.shares.of(ack.flow.remote);
        let Some(slot) = self.accept_slot(id, share) else {
            return self.refuse(id, AckRefusal::AcceptFull);
        };
        self.stats.cookies_received += 1;
        if let Some(listener) = self.listeners.of_mut(id) {
            listener.stats.cookies_valid += 1;
        }
        let (scale, sack, ecn) = match marks {
            Some(marks) => timestamp::read(marks),
            None => (kept.scale(), kept.sack(), false),
        };
        AckOutcome::Proven(Proven {
            flow: ack.flow,
            slot,
            irs,
            iss,
            mss: Mss(kept.mss(&ack.flow)),
            peer_window: None,
            window_scale: scale.map(|theirs| (theirs, settings.window_scale)),
            sack,
            timestamps: timestamp.map(|(recent, echo)| ProvenTimestamps {
                // As of an entry that later data proves.
                recent: began.and_then(|(_, of_syn)| of_syn).unwrap_or(recent),
                last_sent: timestamp::latest(echo),
            }),
            ecn,
            retransmitted: 0,
            round_trip: timestamp.and_then(|(_, echo)| timestamp::ago(found.clock(at.now), echo)),
            by: ProvenBy::Cookie,
        })
    }
}

/// The options that the client offers and the listener allows.
#[inline]
fn agree(syn: &SynSegment, settings: &ListenSettings) -> AgreedOptions {
    let offered = &syn.options;
    AgreedOptions {
        mss: syn.mss(),
        said_mss: offered.mss.is_some(),
        window_scale: offered.window_scale.filter(|_| settings.scaling).map(|shift| shift.min(14)),
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
    fn prefetch(&self, hash: u64) {
        self.cache.expect_row(hash);
    }

    fn syn_hashed(
        &mut self,
        listener: ListenerId,
        syn: &SynSegment,
        hash: u64,
        at: CookieMoment,
    ) -> SynAnswer {
        self.spend(1);
        if self.listeners.of(listener).is_none() {
            self.stats.no_listener += 1;
            return SynAnswer::Refused(SynRefusal::NoListener);
        }
        if !syn.is_answerable() {
            self.stats.implausible += 1;
            self.count_refused(listener);
            return SynAnswer::Refused(SynRefusal::Implausible);
        }
        let found = FoundEntry { hash };
        match self.live(&found, &syn.flow, listener, at.now) {
            Some(place) => self.again(place, &found, syn, listener, at),
            None => self.newcomer(&found, syn, listener, at),
        }
    }

    fn ack_hashed(
        &mut self,
        listener: ListenerId,
        ack: &HandshakeAck,
        hash: u64,
        at: CookieMoment,
    ) -> AckOutcome {
        self.spend(1);
        let Some(of) = self.listeners.of(listener) else {
            return self.refuse(listener, AckRefusal::NoListener);
        };
        let (known, gate) = (of.stats.half_open + self.orphans, self.may_verify(of, at.now));
        // Where nothing is half-open and no cookie is outstanding, the ACK is refused without a
        // look-up.
        if known == 0 && !gate {
            return self.unasked(listener);
        }
        let found = FoundEntry { hash };
        match self.live(&found, &ack.flow, listener, at.now) {
            Some(place) => self.confirm(place, &found, ack, listener, at),
            None if gate => self.by_cookie(&found, (ack, None), listener, at),
            None => self.unasked(listener),
        }
    }

    fn accepted(&mut self, slot: AcceptSlot) {
        self.shares.drop_accept(slot.share);
        if let Some(listener) = self.listeners.of_mut(slot.listener) {
            listener.waiting = listener.waiting.saturating_sub(1);
        }
    }

    fn reset(&mut self, flow: &FlowKey, seq: Seq, at: CookieMoment) -> ResetReply {
        self.spend(1);
        let found = self.found(flow);
        let place = self.cache.find(found.hash, |entry| entry.is_of(flow));
        let Some((place, entry)) = place.and_then(|it| Some((it, *self.cache.entry(it)?))) else {
            return ResetReply::Ignored;
        };
        let expected = entry.irs() + 1;
        if seq == expected {
            self.remove(place);
            self.stats.reset += 1;
            // The other SYN of these endpoints has a cookie and nothing else.
            if entry.has_rival()
                && let Some(listener) = self.listeners.of_mut(entry.listener)
            {
                listener.open_gate(at.now);
            }
            return ResetReply::Removed;
        }
        let window = self.listeners.of(entry.listener).map_or(0, |it| it.settings.window);
        if !seq.is_within(expected, u32::from(window)) {
            return ResetReply::Ignored;
        }
        self.stats.challenged += 1;
        ResetReply::Challenge(ChallengeAck { seq: entry.iss() + 1, ack: expected })
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
        if !entry.unreached() || entry.retransmits < UNREACHED_RETRANSMITS {
            return Unreachable::Noted;
        }
        self.remove(place);
        self.stats.unreachable += 1;
        Unreachable::Removed
    }

    fn unsent(&mut self, flow: &FlowKey, at: CookieMoment) {
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

    fn awaits_cookies(&self, listener: ListenerId, now: Instant) -> bool {
        self.listeners.of(listener).is_some_and(|listener| self.may_verify(listener, now))
    }

    fn recognizes(&self, ack: &HandshakeAck) -> bool {
        let found = self.found(&ack.flow);
        let place = self.cache.find(found.hash, |entry| entry.is_of(&ack.flow));
        let entry = place.and_then(|place| self.cache.entry(place));
        // An unverified flow is in no row, and in the filter only by a false positive: then it
        // costs one more hash, and no write.
        entry.is_some_and(|entry| ack.ack == entry.iss() + 1)
            || (self.interface_answers || self.budget.is_expected(found.hash))
                && self.would_open(ack)
    }

    fn work(&mut self, at: CookieMoment, granted: Units, send: &mut impl FnMut(&SynAck)) -> Units {
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
