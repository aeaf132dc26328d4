//! `Control`: requests of other threads to a running engine.
//!
//! Called by the control socket's thread and by tests. A request is a closure; it waits in a
//! bounded mailbox and is carried out by the worker between two bursts, off the packet path. So
//! only the worker ever accesses the engine, without a lock.
//!
//! # Under flood
//! Reachable by threads of this process only. Bound: [`MAILBOX_REQUESTS`] waiting requests, of
//! which [`COMMANDS_MAX`] are carried out a turn. When full, the request fails at once.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::time::Duration;

use floodwall_base::Instant;
use thiserror::Error;

use crate::bell::Bell;
use crate::port::{Port, PortReport};

/// Requests that may wait.
const MAILBOX_REQUESTS: usize = 64;
/// Requests that are carried out in one turn.
pub(crate) const COMMANDS_MAX: usize = 4;

/// What a request sees of the worker.
#[derive(Debug)]
pub struct ControlQueue<'a, E> {
    /// The time of this turn.
    pub now: Instant,
    /// The engine, between two bursts.
    pub engine: &'a mut E,
    pub(crate) ports: &'a [Port],
}

impl<E> ControlQueue<'_, E> {
    /// What the devices have carried and lost. May cost a system call for each.
    #[must_use]
    pub fn ports(&self) -> Vec<PortReport> {
        self.ports.iter().map(Port::report).collect()
    }
}

/// One request. It must be short: packets wait while it is carried out.
#[expect(clippy::type_complexity, reason = "one closure; a second name would hide it")]
pub struct WorkerCommand<E>(Box<dyn FnOnce(&mut ControlQueue<'_, E>) + Send>);

impl<E> WorkerCommand<E> {
    /// A request out of a closure.
    pub fn new(what: impl FnOnce(&mut ControlQueue<'_, E>) + Send + 'static) -> Self {
        Self(Box::new(what))
    }

    pub(crate) fn carry_out(self, desk: &mut ControlQueue<'_, E>) {
        (self.0)(desk);
    }
}

impl<E> std::fmt::Debug for WorkerCommand<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WorkerCommand")
    }
}

/// Why a request was not carried out, or is not known to have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ControlError {
    /// Too many requests wait already.
    #[error("the worker has too many requests waiting; try again later")]
    Full,
    /// The worker has ended, or its engine is gone and not made again yet.
    #[error("the worker has ended, or its shard is being made again")]
    Ended,
    /// No answer came in time.
    #[error("the worker did not answer in time")]
    Late,
}

/// A handle to send requests to one worker. Clones refer to the same worker.
#[derive(Debug)]
pub struct Control<E> {
    sender: SyncSender<WorkerCommand<E>>,
    bell: Bell,
}

impl<E> Clone for Control<E> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), bell: self.bell.clone() }
    }
}

impl<E: 'static> Control<E> {
    /// Posts a request and returns at once.
    ///
    /// # Errors
    /// The mailbox is full, or the worker has ended.
    pub fn post(&self, command: WorkerCommand<E>) -> Result<(), ControlError> {
        self.offer(command).map_err(|(error, _)| error)
    }

    /// As [`Control::post`], and gives the request back where it is refused.
    ///
    /// # Errors
    /// As there.
    pub fn offer(&self, command: WorkerCommand<E>) -> Result<(), (ControlError, WorkerCommand<E>)> {
        self.sender.try_send(command).map_err(|refused| match refused {
            TrySendError::Full(command) => (ControlError::Full, command),
            TrySendError::Disconnected(command) => (ControlError::Ended, command),
        })?;
        self.bell.ring();
        Ok(())
    }

    /// Posts a request and waits for its answer, `patience` at most.
    ///
    /// # Errors
    /// As [`Control::post`]; or no answer came in time: then it is unknown whether the request was
    /// or will be carried out.
    pub fn ask<R: Send + 'static>(
        &self,
        patience: Duration,
        what: impl FnOnce(&mut ControlQueue<'_, E>) -> R + Send + 'static,
    ) -> Result<R, ControlError> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.post(WorkerCommand::new(move |desk| {
            // The requester may have timed out; the answer is dropped then.
            let _ = answer.try_send(what(desk));
        }))?;
        answered.recv_timeout(patience).map_err(|missing| match missing {
            RecvTimeoutError::Timeout => ControlError::Late,
            RecvTimeoutError::Disconnected => ControlError::Ended,
        })
    }
}

/// The mailbox's two ends.
pub(crate) fn mailbox<E>(bell: &Bell) -> (Control<E>, Receiver<WorkerCommand<E>>) {
    let (sender, receiver) = mpsc::sync_channel(MAILBOX_REQUESTS);
    (Control { sender, bell: bell.clone() }, receiver)
}
