//! The log's lines about floods and evictions: when one begins, where, and what it was when it
//! ends.
//!
//! Called by the watch of `run` once a second with the published counters. Where a device drops
//! packets before the workers see them, and while a flood is under way, it asks the workers for a
//! whole report; at rest it asks for nothing. Nothing of it is on the packet path.
//!
//! # Under flood
//! Bound: two lines a flood (`FloodWatch`), and [`LINE_PRICE`] together; what is held back is
//! counted in the next line.

use std::sync::{Arc, Mutex, PoisonError};

use floodwall_base::{Counter, Instant, Price, TokenBucket};
use floodwall_dispatch::{
    FloodBegan, FloodCounts, FloodEnded, FloodEvent, FloodUnderWay, FloodWatch, Published,
    WorkerCounters,
};
use tracing::{info, warn};

use crate::capture::Sampler;
use crate::explain;
use crate::hosted;
use crate::rates::{ReportDifference, short};
use crate::report::RunReport;
use crate::sources;

/// Lines about floods and evictions: one a second in the long run, twenty at once.
const LINE_PRICE: Price = Price::new(1, 20);

/// Makes a report of the whole instance; `None` where the workers do not answer.
pub(crate) type Look = Box<dyn Fn() -> Option<RunReport> + Send>;

/// The floods that are under way, for reports: at most one of each kind, replaced at each look.
#[derive(Clone, Debug, Default)]
pub(crate) struct FloodNote(Arc<Mutex<Vec<FloodUnderWay>>>);

impl FloodNote {
    pub(crate) fn get(&self) -> Vec<FloodUnderWay> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, floods: Vec<FloodUnderWay>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = floods;
    }
}

/// The state between looks.
pub(crate) struct FloodLog {
    watch: FloodWatch,
    note: FloodNote,
    look: Look,
    sampler: Sampler,
    /// Whether devices drop packets that no worker counts.
    devices_drop: bool,
    /// Floods that have no service or prefix assigned yet, with the report of their beginning.
    begun: Vec<(FloodBegan, Option<RunReport>)>,
    evicted: Option<[u64; 3]>,
    lines: TokenBucket,
    held_back: u64,
}

impl FloodLog {
    pub(crate) fn new(look: Look, sampler: Sampler, devices_drop: bool, note: FloodNote) -> Self {
        Self {
            watch: FloodWatch::default(),
            note,
            look,
            sampler,
            devices_drop,
            begun: Vec::new(),
            evicted: None,
            lines: TokenBucket::default(),
            held_back: 0,
        }
    }

    /// Looks at the counters, and writes what began or ended.
    pub(crate) fn look(&mut self, now: Instant, published: &[Published]) {
        let stats = hosted::read(&hosted::sum(published));
        let loops = WorkerCounters::of_all(published.iter().map(|one| &one.facts));
        let mut counts = FloodCounts::new(&stats.counters, &stats.drops_in, &loops);
        let mut report = None;
        if self.devices_drop || !self.begun.is_empty() {
            report = (self.look)();
        }
        if let (true, Some(report)) = (self.devices_drop, &report) {
            counts
                .add_devices(|stat| report.devices.iter().filter_map(|d| d.stats.get(stat)).sum());
        }
        for (began, before) in std::mem::take(&mut self.begun) {
            self.began(now, began, before.as_ref(), report.as_ref());
        }
        let events = self.watch.look(now, &counts);
        self.note.set(self.watch.under_way().collect());
        for event in events {
            match event {
                FloodEvent::Began(began) => {
                    let before = report.clone().or_else(|| (self.look)());
                    self.begun.push((began, before));
                }
                FloodEvent::Ended(ended) => self.ended(now, ended),
                _ => {}
            }
        }
        self.evictions(now, &stats.counters);
    }

    /// One line a second after it began: by then two reports say at which service.
    fn began(
        &mut self,
        now: Instant,
        began: FloodBegan,
        before: Option<&RunReport>,
        after: Option<&RunReport>,
    ) {
        let Some(held_back) = self.may_write(now) else { return };
        let between = before.zip(after).and_then(|(b, a)| ReportDifference::new(b, a));
        let findings = between.as_ref().map(explain::findings).unwrap_or_default();
        let found = findings.into_iter().find(|finding| finding.name == began.kind.name());
        let place = found.map(|finding| finding.place).unwrap_or_default();
        let (kind, rate) = (began.kind.name(), short(began.rate));
        let at = if place.is_empty() { String::new() } else { format!(" at {place}") };
        let sources = sources::line(&(self.sampler)());
        warn!(
            event = "flood_began",
            kind,
            rate = began.rate.round(),
            place,
            sources,
            held_back,
            "flood begins: {kind}{at}, {rate} packets a second: {}",
            began.kind.sentence()
        );
    }

    fn ended(&mut self, now: Instant, ended: FloodEnded) {
        let Some(held_back) = self.may_write(now) else { return };
        let (kind, peak) = (ended.kind.name(), short(ended.peak));
        let seconds = ended.length.as_secs_f64();
        let honest = ended.honest_share.map_or_else(
            || "the honest share is not known".to_owned(),
            |share| format!("{:.1} % of the service before went on", share * 100.0),
        );
        info!(
            event = "flood_ended",
            kind,
            seconds,
            peak_rate = ended.peak.round(),
            refused = ended.refused,
            honest_share = ended.honest_share,
            held_back,
            "flood ended: {kind} after {seconds:.0} s, {peak} packets a second at most, {} \
             refused; {honest}",
            ended.refused
        );
    }

    /// Connections that were reset to make room, since the last line about them.
    fn evictions(&mut self, now: Instant, counters: &floodwall_base::Counters) {
        let counts = [
            Counter::FloodwallTcpEvictedUnowned,
            Counter::FloodwallTcpEvictedUnaccepted,
            Counter::FloodwallTcpEvictedIdle,
        ]
        .map(|counter| counters.of(counter));
        let before = *self.evicted.get_or_insert(counts);
        let more: Vec<_> = counts.iter().zip(before).map(|(c, b)| c.saturating_sub(b)).collect();
        let [unowned, unaccepted, idle] = more[..] else { return };
        if counts == before || !self.lines.has(LINE_PRICE, now) {
            return;
        }
        self.evicted = Some(counts);
        let Some(held_back) = self.may_write(now) else { return };
        let all = unowned + unaccepted + idle;
        warn!(
            event = "evictions",
            unowned, unaccepted, idle, held_back, "{all} TCP connections reset to make room"
        );
    }

    /// Whether a line is within the rate; with the number of lines held back before.
    fn may_write(&mut self, now: Instant) -> Option<u64> {
        if self.lines.take(LINE_PRICE, now) {
            return Some(std::mem::take(&mut self.held_back));
        }
        self.held_back += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn of_many_lines_twenty_are_written_at_once_and_then_one_a_second_with_what_was_held_back() {
        let (look, sampler): (Look, Sampler) = (Box::new(|| None), Box::new(Vec::new));
        let mut log = FloodLog::new(look, sampler, false, FloodNote::default());
        let at = |second: u64| Instant::ORIGIN + Duration::from_secs(100 + second);
        assert_eq!((0..50).filter(|_| log.may_write(at(0)).is_some()).count(), 20);
        assert_eq!(log.may_write(at(1)), Some(30));
        assert_eq!(log.may_write(at(1)), None);
        assert_eq!(log.may_write(at(2)), Some(1));
    }
}
