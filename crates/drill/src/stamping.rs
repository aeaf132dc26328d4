//! `Stamping`: a program that does nothing but read the clock, on the worker's core, in real time.
//!
//! Started by `wire.rs` for one phase. It always wants the core, so what it gets is what the worker
//! leaves it. Its share is taken of processor time, by the system's account: what others on the
//! machine took from both of them counts for neither. The longest time between two of its stamps
//! contains what the system's scheduler did, so it is reported, not judged (decision D18).

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use floodwall_dispatch::{ApplicationShare, Clock, pin_to_core};
use rustix::time::{ClockId, clock_gettime};

/// What it got.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StampSource {
    /// Processor time.
    pub(crate) ran: Duration,
    /// The longest time between two stamps.
    pub(crate) gap: Duration,
}

/// The application of the share phase, on a thread of its own. Dropping it ends it.
pub(crate) struct Stamping {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Option<StampSource>>>,
}

impl Stamping {
    /// Starts it on `core`, and reports to the worker there that an application is at work.
    pub(crate) fn start(core: usize, applications: &ApplicationShare) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (until, applications) = (Arc::clone(&stop), applications.clone());
        let thread =
            std::thread::Builder::new().name("drill-stamps".to_owned()).spawn(move || {
                pin_to_core(core).ok()?;
                let at_work = applications.at_work();
                let stamps = take(&until);
                drop(at_work);
                Some(stamps)
            })?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends it. `None` where it could not have the worker's core.
    pub(crate) fn end(mut self) -> Option<StampSource> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok().flatten()
    }
}

impl Drop for Stamping {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its result is not needed any more.
            let _ = thread.join();
        }
    }
}

fn take(until: &AtomicBool) -> StampSource {
    let clock = Clock::new();
    let (before, mut last, mut gap) = (processor_time(), clock.now(), Duration::ZERO);
    while !until.load(Ordering::Relaxed) {
        let now = clock.now();
        gap = gap.max(now - last);
        last = now;
    }
    StampSource { ran: processor_time().saturating_sub(before), gap }
}

/// What the calling thread has had of a processor so far.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "the program shall have had the core for a while"
    )]
    fn it_says_that_it_is_at_work_and_ends_when_it_is_told() {
        let applications = ApplicationShare::new();
        let stamping = Stamping::start(0, &applications).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let stamps = stamping.end();
        assert!(stamps.is_none_or(|stamps| stamps.ran > Duration::ZERO && !stamps.gap.is_zero()));
        drop(Stamping::start(0, &applications).unwrap());
    }
}
