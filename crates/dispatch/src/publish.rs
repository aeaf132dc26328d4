//! What a worker shows of itself and of its engine: one snapshot, never torn.
//!
//! The worker publishes once a round at most, and before it sleeps; programs read it from any
//! thread without disturbing it (decision D19). Sums that must be conserved are checked on one
//! snapshot: the loop's facts and the engine's words in it are consistent.

use floodwall_base::{IfIndex, Instant, Units};
use floodwall_packet::{
    Burst, Engine, HandoffList, RedirectOffer, Round, RxFilter, SynOffers, Triage,
};
use floodwall_sync::snapshot::{self, SnapshotReader, SnapshotWriter};

use crate::worker_counters::{WorkerCounter, WorkerCounters};

/// Words that an engine may publish.
pub const WORDS_MAX: usize = 480;
/// Words of a snapshot: the time, the facts, the engine's.
const SNAPSHOT_WORDS: usize = 1 + WorkerCounter::ALL.len() + WORDS_MAX;

/// An engine that can show its counters.
pub trait Publish {
    /// Writes the counters to the front of `out`, which has [`WORDS_MAX`] words and still holds
    /// those of the last time. Called once a round at most; must cost no more than the copy.
    fn words(&self, out: &mut [u64]);

    /// Maximum number of words that it ever writes: unused words cost nothing.
    fn words_max(&self) -> usize {
        WORDS_MAX
    }
}

/// An engine without counters of its own, together with a function that publishes for it.
#[derive(Debug)]
pub struct Shown<E> {
    /// The engine.
    pub engine: E,
    words: fn(&E, &mut [u64]),
    words_max: usize,
}

impl<E> Shown<E> {
    /// `words` writes the engine's counters: see [`Publish::words`].
    pub const fn new(engine: E, words: fn(&E, &mut [u64])) -> Self {
        Self { engine, words, words_max: WORDS_MAX }
    }

    /// Publishes nothing: its counters are read by requests.
    pub const fn silent(engine: E) -> Self {
        Self { engine, words: |_, _| (), words_max: 0 }
    }
}

impl<E> Publish for Shown<E> {
    fn words(&self, out: &mut [u64]) {
        (self.words)(&self.engine, out);
    }

    fn words_max(&self) -> usize {
        self.words_max
    }
}

impl<E: Engine> Engine for Shown<E> {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        self.engine.round(round)
    }

    fn work(&mut self, round: &mut Round<'_>) -> Units {
        self.engine.work(round)
    }

    fn adopt(&mut self, round: &mut Round<'_>, handed: &mut HandoffList) -> Units {
        self.engine.adopt(round, handed)
    }

    fn rx_capacity(&self, now: Instant) -> usize {
        self.engine.rx_capacity(now)
    }

    fn touch_memory(&mut self) -> usize {
        self.engine.touch_memory()
    }

    fn set_tx_room(&mut self, packets: usize) {
        self.engine.set_tx_room(packets);
    }

    fn departed(&mut self) {
        self.engine.departed();
    }

    fn rests(&mut self) -> bool {
        self.engine.rests()
    }

    fn deadline(&self) -> Option<Instant> {
        self.engine.deadline()
    }

    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        self.engine.classify(burst, classes);
    }

    fn rx_filter(&self, iface: IfIndex, wanted: &mut RxFilter) {
        self.engine.rx_filter(iface, wanted);
    }

    fn syn_offers(&self, now: Instant, iface: IfIndex, offers: &mut SynOffers) {
        self.engine.syn_offers(now, iface, offers);
    }

    fn syn_offers_changed(&self, now: Instant) -> u64 {
        self.engine.syn_offers_changed(now)
    }

    fn syns_are_answered(&mut self, answered: bool) {
        self.engine.syns_are_answered(answered);
    }

    fn take_redirects(&mut self, offers: &mut Vec<RedirectOffer>) {
        self.engine.take_redirects(offers);
    }

    fn redirects_changed(&self) -> u64 {
        Engine::redirects_changed(&self.engine)
    }

    fn wants_changed(&self) -> u64 {
        self.engine.wants_changed()
    }
}

/// One snapshot.
#[derive(Clone, Debug)]
pub struct Published {
    /// When it was taken.
    pub at: Instant,
    /// What the loop has counted.
    pub facts: WorkerCounters,
    /// What the engine wrote.
    pub words: Vec<u64>,
}

/// Reads snapshots, on any thread.
#[derive(Clone, Debug)]
pub struct PublishedReader(SnapshotReader<SNAPSHOT_WORDS>);

impl PublishedReader {
    /// The newest snapshot. Copies 4 KiB; never waits for the worker.
    #[must_use]
    pub fn read(&self) -> Published {
        let [at, words @ ..] = self.0.read().words;
        let (facts, words) = words.split_at(WorkerCounter::ALL.len());
        Published {
            at: Instant::from_nanos(at),
            facts: WorkerCounters::from_words(facts),
            words: words.to_vec(),
        }
    }
}

/// The worker's end.
pub(crate) struct Publisher {
    writer: SnapshotWriter<SNAPSHOT_WORDS>,
    words: [u64; SNAPSHOT_WORDS],
    /// So many of them an engine may have written.
    used: usize,
}

impl Publisher {
    pub(crate) fn new() -> (Self, PublishedReader) {
        let (writer, reader) = snapshot::cell([0; SNAPSHOT_WORDS]);
        (Self { writer, words: [0; SNAPSHOT_WORDS], used: 0 }, PublishedReader(reader))
    }

    /// Publishes a snapshot. Without an engine its words stay those of the last time.
    pub(crate) fn publish(
        &mut self,
        now: Instant,
        facts: &WorkerCounters,
        engine: Option<&impl Publish>,
    ) {
        let [at, words @ ..] = &mut self.words;
        *at = now.as_nanos();
        let (loop_words, engine_words) = words.split_at_mut(WorkerCounter::ALL.len());
        loop_words.copy_from_slice(facts.as_words());
        if let Some(engine) = engine {
            engine.words(engine_words);
            self.used = self.used.max(engine.words_max().min(WORDS_MAX));
        }
        // A worker that sleeps between any two packets does this for each of them.
        let front = 1 + WorkerCounter::ALL.len() + self.used;
        self.writer.publish_front(self.words.get(..front).unwrap_or(&self.words));
    }
}
