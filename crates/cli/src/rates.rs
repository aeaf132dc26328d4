//! Two reports of one instance, and what happened between them, per second.
//!
//! Used by `stat --watch`, `top` and `explain`. Invariant: a counter that began anew (the instance
//! was restarted, a shard made again) counts from zero, and never below.

use std::collections::BTreeMap;

use floodwall_dispatch::WorkerCounter;

use crate::report::{DeviceReport, RunReport};

/// Facts of a worker that are states, and not counts.
const WORKER_GAUGES: [WorkerCounter; 5] = [
    WorkerCounter::LongestRoundNanos,
    WorkerCounter::LongestRunNanos,
    WorkerCounter::Backlog,
    WorkerCounter::TriageWaiting,
    WorkerCounter::DevicesLive,
];

/// Whether a worker's fact is a state.
pub(crate) fn is_gauge(name: &str) -> bool {
    WORKER_GAUGES.iter().any(|gauge| gauge.name() == name)
}

/// What happened between two reports.
#[derive(Clone, Copy)]
pub(crate) struct ReportDifference<'a> {
    pub(crate) before: &'a RunReport,
    pub(crate) after: &'a RunReport,
    pub(crate) seconds: f64,
}

impl<'a> ReportDifference<'a> {
    /// `None` where the second is not later, or of another process.
    pub(crate) fn new(before: &'a RunReport, after: &'a RunReport) -> Option<Self> {
        let nanos = after.uptime_ns.checked_sub(before.uptime_ns).filter(|nanos| *nanos > 0)?;
        let same = before.pid == after.pid;
        same.then_some(Self { before, after, seconds: nanos as f64 / 1e9 })
    }

    fn rate(&self, before: u64, after: u64) -> f64 {
        // Counters wrap nowhere in practice: less than before means begun anew.
        let more = after.checked_sub(before).unwrap_or(after);
        more as f64 / self.seconds
    }

    fn of_map(&self, pick: impl Fn(&RunReport) -> &BTreeMap<String, u64>, name: &str) -> f64 {
        let of = |report| pick(report).get(name).copied().unwrap_or(0);
        self.rate(of(self.before), of(self.after))
    }

    /// A counter of the stack, per second.
    pub(crate) fn counter(&self, name: &str) -> f64 {
        self.of_map(|report| &report.counters, name)
    }

    /// A counter of the workers, per second.
    pub(crate) fn worker(&self, fact: WorkerCounter) -> f64 {
        self.of_map(|report| &report.worker, fact.name())
    }

    /// Packets dropped for a reason, in either direction, per second.
    pub(crate) fn dropped(&self, reason: &str) -> f64 {
        let of = |report: &RunReport| {
            report.drops.iter().filter(|drop| drop.reason == reason).map(|drop| drop.count).sum()
        };
        self.rate(of(self.before), of(self.after))
    }

    /// A count of the devices of an interface, or of all, per second.
    pub(crate) fn device(&self, ifname: Option<&str>, stat: &str) -> f64 {
        let of = |report: &RunReport| {
            let named = |d: &&DeviceReport| ifname.is_none_or(|name| d.ifname == name);
            let all = report.devices.iter().filter(named);
            all.filter_map(|device| device.stats.get(stat)).sum::<u64>()
        };
        self.rate(of(self.before), of(self.after))
    }

    /// A count of one device queue, by its place in the later report, per second.
    pub(crate) fn queue(&self, n: usize, stat: &str) -> f64 {
        let of = |report: &RunReport| report.devices.get(n)?.stats.get(stat).copied();
        let name = |report: &RunReport| report.devices.get(n).map(|device| device.ifindex);
        match name(self.before) == name(self.after) {
            true => self.rate(of(self.before).unwrap_or(0), of(self.after).unwrap_or(0)),
            false => 0.0,
        }
    }

    /// A count of the listener at this address, per second.
    pub(crate) fn listener(
        &self,
        at: std::net::SocketAddr,
        pick: impl Fn(&crate::listeners::ListenerSettings) -> u64,
    ) -> f64 {
        let of =
            |report: &RunReport| report.listeners.iter().find(|l| l.local == at).map_or(0, &pick);
        self.rate(of(self.before), of(self.after))
    }

    /// A count of the UDP socket at this address, per second.
    pub(crate) fn udp(
        &self,
        at: std::net::SocketAddr,
        pick: impl Fn(&crate::listeners::UdpReport) -> u64,
    ) -> f64 {
        let of =
            |report: &RunReport| report.udp_sockets.iter().find(|u| u.local == at).map_or(0, &pick);
        self.rate(of(self.before), of(self.after))
    }

    /// A counter of one worker, per second.
    pub(crate) fn of_worker(&self, worker: usize, fact: WorkerCounter) -> Option<f64> {
        let of = |report: &RunReport| report.workers.get(worker)?.facts.get(fact.name()).copied();
        Some(self.rate(of(self.before)?, of(self.after)?))
    }

    /// The part of its core, from 0 to 1, that a worker left to other programs; `None` where it
    /// does not share its core.
    pub(crate) fn left(&self, worker: usize) -> Option<f64> {
        let ran = self.of_worker(worker, WorkerCounter::BalanceRanNanos)?;
        let rested = self.of_worker(worker, WorkerCounter::BalanceRestedNanos)?;
        (ran + rested > 0.0).then(|| rested / (ran + rested))
    }

    /// Every drop reason that counted, the most frequent first: direction, reason, per second.
    pub(crate) fn drops(&self) -> Vec<(String, String, f64)> {
        let mut all: Vec<_> = self
            .after
            .drops
            .iter()
            .map(|drop| {
                let same = |old: &&crate::report::DropReport| {
                    old.reason == drop.reason && old.direction == drop.direction
                };
                let old = self.before.drops.iter().find(same).map_or(0, |old| old.count);
                let rate = self.rate(old, drop.count);
                (drop.direction.clone(), drop.reason.clone(), rate)
            })
            .filter(|(.., rate)| *rate > 0.0)
            .collect();
        all.sort_by(|a, b| b.2.total_cmp(&a.2));
        all
    }

    /// The names of interfaces, each once.
    pub(crate) fn interfaces(&self) -> Vec<&'a str> {
        let mut names: Vec<_> = self.after.devices.iter().map(|d| d.ifname.as_str()).collect();
        names.dedup();
        names
    }
}

/// A rate in three digits: 12.3k, 4.56M.
pub(crate) fn short(rate: f64) -> String {
    // An empty sum of numbers is -0.
    let (value, unit) = match rate + 0.0 {
        r if r >= 1e9 => (r / 1e9, "G"),
        r if r >= 1e6 => (r / 1e6, "M"),
        r if r >= 1e3 => (r / 1e3, "k"),
        r => (r, ""),
    };
    match value {
        v if v >= 100.0 || v == 0.0 => format!("{v:.0}{unit}"),
        v if v >= 10.0 => format!("{v:.1}{unit}"),
        v => format!("{v:.2}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::DropReport;

    #[test]
    fn differences_are_per_second_and_never_negative() {
        let mut before = RunReport { uptime_ns: 1_000_000_000, ..RunReport::default() };
        let mut after = RunReport { uptime_ns: 3_000_000_000, ..RunReport::default() };
        before.counters.insert("IpInReceives".to_owned(), 10);
        after.counters.insert("IpInReceives".to_owned(), 30);
        before.counters.insert("UdpNoPorts".to_owned(), 50);
        after.counters.insert("UdpNoPorts".to_owned(), 4);
        after.drops.push(DropReport {
            direction: "in".to_owned(),
            reason: "UdpNoPort".to_owned(),
            count: 8,
            sentence: String::new(),
        });
        let between = ReportDifference::new(&before, &after).unwrap();
        assert_eq!(between.counter("IpInReceives"), 10.0);
        assert_eq!(between.counter("UdpNoPorts"), 2.0, "it began anew");
        assert_eq!(between.dropped("UdpNoPort"), 4.0);
        assert_eq!(between.drops(), [("in".to_owned(), "UdpNoPort".to_owned(), 4.0)]);
        assert!(ReportDifference::new(&after, &before).is_none());
        after.pid = 7;
        assert!(ReportDifference::new(&before, &after).is_none(), "another process");
    }

    #[test]
    fn rates_have_three_digits() {
        for (rate, text) in
            [(0.0, "0"), (1.5, "1.50"), (12.34, "12.3"), (999.0, "999"), (212_000.0, "212k")]
        {
            assert_eq!(short(rate), text);
        }
    }
}
