//! The end of a network's connections in good order, before its workers stop.
//!
//! Each worker ends its own connections (`drain.rs` in `stack`), and answers when none is left.
//! Nothing here polls or needs a timer of the runtime. Invariant: the workers stop once the last of
//! them has answered, or can no longer answer.

use std::sync::Arc;
use std::time::Duration;

use floodwall_dispatch::{ControlQueue, Shown, Stop, WorkerCommand};
use floodwall_stack::{Drained, HeldConnections, Stack};
use tokio::sync::oneshot;

use crate::network::{Network, NetworkInner};

impl Network {
    /// Ends all connections in good order: listeners close first, and nothing new is accepted or
    /// opened. Connections that their program has let go of deliver what was written; those that
    /// it still holds may be used until their program is done with them. When `patience` is over,
    /// what is left is reset, so that every peer learns of the end. A peer that has acknowledged
    /// all data and does not close its side is waited for as well.
    ///
    /// Returns how the connections ended. UDP sockets work on; call [`Network::shutdown`] then. May
    /// be called again: the shorter time counts. If the call is dropped, draining continues.
    pub async fn drain(&self, patience: Duration) -> Drained {
        self.drain_by(patience, HeldConnections::Keep).await
    }

    pub(crate) async fn drain_by(&self, patience: Duration, held: HeldConnections) -> Drained {
        let begin = move |queue: &mut ControlQueue<'_, Shown<Stack>>| {
            let (answer, answered) = oneshot::channel();
            // The caller may have been dropped.
            let done = move |drained| _ = answer.send(drained);
            queue.engine.engine.drain(queue.now, patience, held, done);
            answered
        };
        let mut all = Drained::default();
        // A network that has ended has no connections.
        for answered in self.ask(begin).await.unwrap_or_default() {
            all += answered.await.unwrap_or_default();
        }
        all
    }
}

impl NetworkInner {
    /// As [`Network::shutdown`], without waiting: the last worker that is done stops them all.
    pub(crate) fn drain_and_stop(&self) {
        let last = Arc::new(StopAtDrop(self.stop.clone()));
        for control in &self.controls {
            let (last, patience) = (Arc::clone(&last), self.drain);
            let begin = move |queue: &mut ControlQueue<'_, Shown<Stack>>| {
                let stack = &mut queue.engine.engine;
                stack.drain(queue.now, patience, HeldConnections::Close, move |_| drop(last));
            };
            // One that cannot be told has nothing to wait for.
            let _ = control.post(WorkerCommand::new(begin));
        }
    }
}

/// Stops the workers when its last owner is gone.
struct StopAtDrop(Stop);

impl Drop for StopAtDrop {
    fn drop(&mut self) {
        self.0.trigger();
    }
}
