//! `DeviceCapacity`: how many packets a second a device path takes in and judges (decision F27).
//!
//! Called by `floodwall self-test --capacity` and `floodwall run --capacity`. On a cable of its
//! own, as `bench.rs` lays it, an unverified source sends as much as one thread can
//! (`unknown.rs`). Judged is what the worker takes in and what the program at the interface
//! refuses for us; what finds a ring full is not. Worker and kernel's half are on one core, the
//! sender on another where there is one.
//!
//! It is the figure of this machine's cable, not of a card: a card's driver costs less than a
//! veth's, or more.

use core::fmt;
use core::time::Duration;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use floodwall_base::Instant;
use floodwall_device::{DeviceSpec, DeviceStats};
use floodwall_dispatch::{Clock, pin, pin_to_core};
use serde::Serialize;

use super::bench::{self, SelfTestBench};
use super::finding::Findings;
use super::probes;
use super::unknown::UnknownPeer;
use crate::criteria::OFFERED_MAX;
use crate::error::DrillError;
use crate::report::grouped;

/// What the flood has before anything counts.
const WARM_UP: Duration = Duration::from_millis(300);
/// How long each count goes on, and how many there are: their median is reported.
const COUNT_TIME: Duration = Duration::from_millis(500);
const COUNT_WINDOWS: usize = 3;
/// From this part of what is offered on, the sender was the limit.
const SENDER_LIMITED: f64 = 0.99;

/// Whether an interruption was requested.
type IsOver<'a> = dyn Fn() -> bool + Sync + 'a;

/// The measured capacity of a device path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DeviceCapacity {
    /// The word of the device, as it was opened.
    pub device: String,
    /// Packets a second that were taken in and judged.
    pub judged_pps: u64,
    /// Packets a second that were sent.
    pub offered_pps: u64,
    /// Whether next to all were judged, so that the path may be able to take more.
    pub is_senders_limit: bool,
    /// Whether the sender had no core of its own, so that the path may be able to take more.
    pub shares_core: bool,
}

impl fmt::Display for DeviceCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guaranteed = (self.judged_pps as f64 * OFFERED_MAX) as u64;
        let [judged, offered, guaranteed] =
            [self.judged_pps, self.offered_pps, guaranteed].map(grouped);
        write!(
            f,
            "on a cable of its own {judged} packets/s are taken in and judged, of {offered}"
        )?;
        if self.is_senders_limit {
            write!(f, ", the most that one core sends here: it may be more")?;
        }
        if self.shares_core {
            write!(f, ", sent from the same core: alone it takes more")?;
        }
        write!(f, "; the guarantees under flood hold up to {guaranteed}/s")
    }
}

/// Measures the path that `word` opens, with its worker on `core`, or on any. Takes 3 to 6 s, and
/// stops soon after `is_over` returns true.
///
/// # Errors
/// It could not be measured: a privilege or a command is missing, the device does not open, or
/// it was interrupted.
pub fn measure_capacity(
    word: &DeviceSpec,
    core: Option<usize>,
    is_over: &IsOver<'_>,
) -> Result<DeviceCapacity, DrillError> {
    bench::in_namespace(word, || inside(word, core, is_over))
}

/// The same as a finding.
pub(super) fn tell(
    word: &DeviceSpec,
    findings: &mut Findings,
    stop: &AtomicBool,
) -> Result<(), DrillError> {
    match measure_capacity(word, None, &|| stop.load(Ordering::Relaxed)) {
        Ok(capacity) => findings.capacity(capacity),
        Err(DrillError::Device(error)) => findings.lacks("capacity", error.to_string(), ""),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn inside(
    word: &DeviceSpec,
    core: Option<usize>,
    is_over: &IsOver<'_>,
) -> Result<DeviceCapacity, DrillError> {
    let kernels = bench::lay(word)?;
    let (ours, senders) = cores(core);
    let opened = bench::open(word, ours)?;
    bench::address(&kernels)?;
    let unknown = UnknownPeer::open(word, &kernels)?;
    let (bench, group, ending) = bench::raise(word, opened, ours)?;
    let counted = count(&bench, unknown, senders, is_over);
    ending.trigger();
    group.join()?;
    let (judged_pps, offered_pps) = counted?;
    if offered_pps == 0 {
        let what = format!("nothing could be sent into {kernels}");
        return Err(DrillError::Missing { what, remedy: "report it" });
    }
    Ok(DeviceCapacity {
        device: word.to_string(),
        judged_pps,
        offered_pps,
        is_senders_limit: judged_pps as f64 >= offered_pps as f64 * SENDER_LIMITED,
        shares_core: senders.is_none(),
    })
}

/// The worker's core and the sender's, where there are two.
fn cores(wanted: Option<usize>) -> (Option<usize>, Option<usize>) {
    let Ok(two) = pin::cores_for(2) else { return (wanted, None) };
    let ours = wanted.or(two.first().copied());
    (ours, two.into_iter().find(|core| Some(*core) != ours))
}

/// Packets a second that were judged, and that were sent.
fn count(
    bench: &SelfTestBench,
    unknown: UnknownPeer,
    core: Option<usize>,
    is_over: &IsOver<'_>,
) -> Result<(u64, u64), DrillError> {
    if !probes::until(|| probes::addresses_stand(bench)) {
        return Err(DrillError::WorkerEnded("our addresses were not usable in time".to_owned()));
    }
    let (sent, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            // Where it may not be pinned, the system schedules it.
            let _ = core.map(pin_to_core);
            unknown.run(&sent, &over)
        });
        let windows = watch(bench, &sent, is_over);
        over.store(true, Ordering::Relaxed);
        let sent = sending.join().unwrap_or_else(|_| {
            Err(DrillError::WorkerEnded("the sender panicked; see above, and report it".to_owned()))
        });
        sent.and(windows)
    })
}

/// The medians of some windows.
#[expect(clippy::disallowed_methods, reason = "a flood is watched in real time")]
fn watch(
    bench: &SelfTestBench,
    sent: &AtomicU64,
    is_over: &IsOver<'_>,
) -> Result<(u64, u64), DrillError> {
    std::thread::sleep(WARM_UP);
    let mut rates = Vec::new();
    let mut before = CapacitySample::at(bench, sent)?;
    for _ in 0..COUNT_WINDOWS {
        if is_over() {
            return Err(DrillError::Interrupted);
        }
        std::thread::sleep(COUNT_TIME);
        let now = CapacitySample::at(bench, sent)?;
        rates.push(before.until(&now));
        before = now;
    }
    rates.sort_unstable();
    Ok(rates.get(COUNT_WINDOWS / 2).copied().unwrap_or_default())
}

/// What counts at one moment.
struct CapacitySample {
    at: Instant,
    judged: u64,
    sent: u64,
}

impl CapacitySample {
    fn at(bench: &SelfTestBench, sent: &AtomicU64) -> Result<Self, DrillError> {
        let queues = bench.queues();
        if queues.is_empty() {
            return Err(DrillError::WorkerEnded("it did not answer in time".to_owned()));
        }
        let judged = queues.iter().map(|queue| judged(&queue.stats)).sum();
        Ok(Self { at: Clock::new().now(), judged, sent: sent.load(Ordering::Relaxed) })
    }

    /// Packets a second judged and sent.
    fn until(&self, later: &Self) -> (u64, u64) {
        let seconds = (later.at - self.at).as_secs_f64().max(f64::EPSILON);
        let rate = |before: u64, after: u64| (after.saturating_sub(before) as f64 / seconds) as u64;
        (rate(self.judged, later.judged), rate(self.sent, later.sent))
    }
}

/// Taken in, and refused at the interface for a reason of ours.
const fn judged(stats: &DeviceStats) -> u64 {
    stats.rx_packets
        + stats.rx_source_group
        + stats.rx_vlan_foreign
        + stats.rx_kind_unknown
        + stats.rx_header_malformed
        + stats.rx_address_foreign
        + stats.rx_port_closed
        + stats.rx_denied
        + stats.rx_unverified
        + stats.rx_segments
        + stats.rx_service_full
        + stats.rx_prefix_full
        + stats.rx_flow_full
        + stats.rx_flow_prefix_full
        + stats.rx_group_full
        + stats.rx_syns_answered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_observed_is_judged() {
        let mut stats = DeviceStats::default();
        stats.rx_ring_full = 1000;
        stats.rx_no_buffer = 1000;
        assert_eq!(judged(&stats), 0);
        stats.rx_packets = 1;
        stats.rx_port_closed = 10;
        stats.rx_unverified = 100;
        stats.rx_service_full = 1000;
        stats.rx_syns_answered = 10_000;
        assert_eq!(judged(&stats), 11_111);
    }

    #[test]
    fn a_rate_is_of_its_time() {
        let look = |millis: u64, judged, sent| CapacitySample {
            at: Instant::from_nanos(millis * 1_000_000),
            judged,
            sent,
        };
        assert_eq!(look(0, 5, 10).until(&look(500, 105, 1010)), (200, 2000));
        assert_eq!(look(0, 5, 10).until(&look(500, 0, 0)), (0, 0), "counts that fell");
    }

    #[test]
    fn a_limit_that_is_not_the_paths_is_said() {
        let mut capacity = DeviceCapacity {
            device: "xdp:e".to_owned(),
            judged_pps: 1_000_000,
            offered_pps: 1_250_000,
            is_senders_limit: false,
            shares_core: false,
        };
        let said = capacity.to_string();
        assert!(
            said.contains("1,000,000 packets/s") && said.ends_with("up to 800,000/s"),
            "{said}"
        );
        assert!(!said.contains("more"), "{said}");
        capacity.is_senders_limit = true;
        assert!(capacity.to_string().contains("may be more"));
    }
}
