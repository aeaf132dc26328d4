//! How `run` ends: at a signal its connections are drained, leases are given back, and then the
//! workers stop.
//!
//! Two threads: one takes signals, so that a second one always ends the process at once; the other
//! waits for the workers meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use floodwall_dispatch::{Control, ControlQueue, Shown, Stop, WorkerCommand, WorkerSeat};
use floodwall_stack::{Drained, HeldConnections, Host};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::threads::spawn_named;
use crate::watch;

/// How long connections may take to end, where nothing else is wanted.
pub(crate) const DRAIN_DEFAULT: Duration = Duration::from_secs(5);
/// How much longer a worker may take for its answer.
const DRAIN_ANSWER_PATIENCE: Duration = Duration::from_secs(1);

/// What is done at the end, once the workers stand.
#[derive(Clone)]
pub(crate) struct Ending {
    workers: Arc<OnceLock<Vec<Control<Shown<Host>>>>>,
    stop: Stop,
    patience: Duration,
}

impl Ending {
    pub(crate) fn new(stop: &Stop, patience: Duration) -> Self {
        Self { workers: Arc::default(), stop: stop.clone(), patience }
    }

    /// The workers stand.
    pub(crate) fn set_workers(&self, seats: &[WorkerSeat<Shown<Host>>]) {
        // The only place that sets it.
        let _ = self.workers.set(seats.iter().map(|seat| seat.control.clone()).collect());
    }

    /// SIGINT and SIGTERM end the run in good order; a second one ends it at once.
    pub(crate) fn catch_signals(&self) -> Result<Handle, String> {
        let mut signals = Signals::new([SIGINT, SIGTERM])
            .map_err(|error| format!("cannot catch signals: {error}"))?;
        let (handle, ending) = (signals.handle(), self.clone());
        let asked = AtomicBool::new(false);
        spawn_named("signals", move || {
            for signal in signals.forever() {
                if asked.swap(true, Ordering::Relaxed) {
                    crate::log::flush();
                    std::process::exit(128 + signal);
                }
                let (ends, stop) = (ending.clone(), ending.stop.clone());
                if spawn_named("ending", move || ends.end()).is_err() {
                    stop.trigger();
                }
            }
        })?;
        Ok(handle)
    }

    fn end(&self) {
        if let Some(workers) = self.workers.get() {
            let drained = self.drain(workers);
            if drained != Drained::default() {
                let Drained { closed, reset } = drained;
                tracing::info!("connections at the end: {closed} closed, {reset} reset");
            }
            // A lease is needed until the last connection has ended.
            workers.first().into_iter().for_each(watch::say_farewell);
        }
        self.stop.trigger();
    }

    /// Lets all connections of all workers end.
    fn drain(&self, workers: &[Control<Shown<Host>>]) -> Drained {
        let (answer, answers) = mpsc::channel();
        for worker in workers {
            let (answer, patience) = (answer.clone(), self.patience);
            let begin = move |queue: &mut ControlQueue<'_, Shown<Host>>| {
                let stack = queue.engine.engine.stack_mut();
                let done = move |drained| _ = answer.send(drained);
                stack.drain(queue.now, patience, HeldConnections::Close, done);
            };
            // One that is down has no connections.
            let _ = worker.post(WorkerCommand::new(begin));
        }
        drop(answer);
        let mut all = Drained::default();
        while let Ok(drained) = answers.recv_timeout(self.patience + DRAIN_ANSWER_PATIENCE) {
            all += drained;
        }
        all
    }
}
