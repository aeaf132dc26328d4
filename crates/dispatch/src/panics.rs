//! What happens when a worker panics (decision D19).
//!
//! Called by `worker_group.rs`. By default the process ends, with a message for a bug report. With
//! [`OnPanic::Isolate`] the worker's engine is dropped and made again, while the other workers
//! continue. A bare [`Worker`](crate::Worker) unwinds into the thread that runs it.
//!
//! Invariant: a packet that makes the engine panic costs at most [`RESTARTS_MAX`] restarts in
//! [`RESTART_WINDOW`]; beyond that the shard stays down until the window has passed, its packets
//! are dropped and counted, and no more core time is spent on it.
//!
//! # Under flood
//! Reachable by any sender of such a packet, if one exists. Bound: as above. Legitimate traffic of
//! that shard loses its flows, and all service while it is down; other shards lose nothing. Where
//! an engine cannot be made again (the control shard of a host), the worker group ends with an
//! error that gives the reason.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{self, PanicHookInfo};
use std::sync::Once;
use std::time::Duration;

use floodwall_base::{Instant, WorkerId};

/// Restarts of one shard in one [`RESTART_WINDOW`].
pub(crate) const RESTARTS_MAX: usize = 8;
/// See [`RESTARTS_MAX`].
pub(crate) const RESTART_WINDOW: Duration = Duration::from_secs(60);

/// What a panic of one worker does to the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnPanic {
    /// The process ends at once, after a message on standard error.
    #[default]
    EndProcess,
    /// All workers end, and [`WorkerGroup::join`](crate::WorkerGroup::join) returns the report: for
    /// programs that end by themselves then, in good order.
    EndGroup,
    /// The worker's flows are closed and its engine is made again; the others go on.
    Isolate,
}

/// What to report of a panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PanicReport {
    /// Which worker.
    pub worker: WorkerId,
    /// Its engine's type.
    pub engine: &'static str,
    /// The version of this library.
    pub version: &'static str,
    /// File, line and column.
    pub place: String,
    /// The panic message.
    pub message: String,
}

impl fmt::Display for PanicReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worker, engine, version, place, message } = self;
        write!(
            f,
            "worker {} panicked at {place}: {message} (floodwall {version}, engine {engine}). This \
             is a bug: please report this line with the configuration and, if you can, a capture \
             made with --record",
            worker.0
        )
    }
}

thread_local! {
    /// Where this thread panicked last.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on the place of each panic is kept for the report; what was done with panics before is
/// done as before.
pub(crate) fn keep_places() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            keep(info);
            before(info);
        }));
    });
}

fn keep(info: &PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string);
    // A thread that is ending has no place left, nor a report to make.
    let _ = PLACE.try_with(|kept| {
        if let Ok(mut kept) = kept.try_borrow_mut() {
            *kept = place;
        }
    });
}

/// What to report of the panic that this thread has just caught.
pub(crate) fn report<E>(worker: WorkerId, payload: &(dyn Any + Send)) -> PanicReport {
    let place = PLACE.with(|kept| kept.borrow_mut().take());
    let message = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    PanicReport {
        worker,
        engine: std::any::type_name::<E>(),
        version: env!("CARGO_PKG_VERSION"),
        place: place.unwrap_or_else(|| "an unknown place".to_owned()),
        message: message.unwrap_or_else(|| "no message".to_owned()),
    }
}

/// When a shard may be made again.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    /// The last ones, in a ring; the oldest is overwritten next.
    last: [Option<Instant>; RESTARTS_MAX],
    oldest: usize,
    /// How many there have been.
    pub(crate) count: u64,
}

impl Restarts {
    /// When the next one is granted at the earliest; the past means now.
    pub(crate) fn next(&self) -> Option<Instant> {
        let oldest = self.last.get(self.oldest).copied().flatten();
        Some(oldest.map_or(Instant::ORIGIN, |oldest| oldest + RESTART_WINDOW))
    }

    /// Whether one is granted now; it counts then.
    pub(crate) fn granted(&mut self, now: Instant) -> bool {
        let granted = self.next().is_some_and(|next| next <= now);
        if granted && let Some(slot) = self.last.get_mut(self.oldest) {
            *slot = Some(now);
            self.oldest = (self.oldest + 1) % RESTARTS_MAX;
            self.count += 1;
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_granted_at_once_but_only_so_many_in_a_window() {
        let mut restarts = Restarts::default();
        let start = Instant::from_nanos(5_000_000_000);
        for _ in 0..RESTARTS_MAX {
            assert!(restarts.granted(start));
        }
        assert!(!restarts.granted(start) && !restarts.granted(start + RESTART_WINDOW / 2));
        assert_eq!(restarts.next(), Some(start + RESTART_WINDOW));
        for _ in 0..RESTARTS_MAX {
            assert!(restarts.granted(start + RESTART_WINDOW));
        }
        assert!(!restarts.granted(start + RESTART_WINDOW));
        assert_eq!(restarts.count, 2 * RESTARTS_MAX as u64);
    }
}
