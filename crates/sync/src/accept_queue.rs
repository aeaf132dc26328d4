//! The way of finished connections from any workers to the one program that accepts them.
//!
//! # What it is
//!
//! A [`Doorbell`] with connections as its slots and the program as its worker: workers ring for
//! what they have finished, the program takes the whole list. To it comes a bound, which no worker
//! waits at: it leaves its mark and is called when there is room. And an end: the program lets go
//! of the queue, and what is in it, or comes later, is reset by exactly one of the two sides.
//!
//! # Callers
//!
//! A listener has one for all its workers (`stack`'s remote sockets).
//!
//! # Invariant
//!
//! A connection is in the hands of its worker, in the list, or in the program's hands. What
//! [`AcceptQueue::hand_over`] refuses stays the worker's. Nothing comes into the list after
//! [`AcceptQueue::close`], so a take that follows it gets the rest of the list. A worker that found
//! no room is notified by the next [`AcceptQueue::accepted`], or saw the room at its second look.
//!
//! # Orderings, and why
//!
//! The list is the doorbell's. A worker that finds no room sets its mark and looks again; the
//! program makes room and then takes the marks. Each does both by exchanges that acquire and
//! release, so one of the two sees the other: the marks' exchanges are in one order, and the later
//! exchange sees what the first side did before. [`AcceptQueue::close`] releases, and
//! [`AcceptQueue::is_gone`] acquires; that a worker looks is the matter of a [`Call`](crate::Call)
//! after it.
//!
//! # Under flood
//!
//! Peers fill it with completed connections. Bound: the number it was made with, and one for each
//! worker beyond it, as each looks before it hands over. When it is full connections stay in their
//! workers' queues, and their backlogs then apply backpressure to clients.

use core::fmt;

use crate::Doorbell;
use crate::doorbell::{DoorbellRung, DoorbellStopped, Ring};
use crate::shim::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Release},
};

/// The accept queue of a listener, shared by its workers: completed connections, by slot index.
pub struct AcceptQueue {
    finished: Doorbell,
    /// How many those are, and those that the program has taken out and not accepted.
    waiting: AtomicU32,
    max: u32,
    /// Workers that have more and found no room.
    stalled: AtomicU64,
    /// The program has let go of it.
    gone: AtomicBool,
}

/// Workers that have more and found no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "they are to be called"]
pub struct AcceptStalled(u64);

impl AcceptStalled {
    /// Whether there is none.
    #[must_use]
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this worker may be one of them. Where there are more than 64, some share a mark.
    #[must_use]
    pub const fn has(self, worker: usize) -> bool {
        self.0 & mark(worker) != 0
    }
}

const fn mark(worker: usize) -> u64 {
    1 << (worker % 64)
}

impl AcceptQueue {
    /// An empty queue, in which `max` connections can wait.
    #[must_use]
    pub fn new(max: u32) -> Self {
        Self {
            finished: Doorbell::new(),
            waiting: AtomicU32::new(0),
            max,
            stalled: AtomicU64::new(0),
            gone: AtomicBool::new(false),
        }
    }

    /// The worker's: whether the program has let go of it.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone.load(Acquire)
    }

    /// The worker's: whether it may hand one more over; else it is called when it may.
    #[must_use]
    pub fn has_room(&self, worker: usize) -> bool {
        let full = || self.waiting.load(Acquire) >= self.max;
        if !full() {
            return true;
        }
        self.stalled.fetch_or(mark(worker), AcqRel);
        !full()
    }

    /// The worker's: hands the connection `index` over, linked through `link`. It has looked for
    /// room.
    ///
    /// # Errors
    /// The queue is closed; the connection stays the worker's.
    pub fn hand_over(&self, index: u32, link: &AtomicU32) -> Result<Ring, DoorbellStopped> {
        self.waiting.fetch_add(1, AcqRel);
        self.finished.ring(index, link)
    }

    /// The program's: takes all that there are, in the order in which they came.
    pub fn take<'a, L: Fn(u32) -> Option<&'a AtomicU32>>(&self, link_of: L) -> DoorbellRung<L> {
        self.finished.take(link_of)
    }

    /// The program's: it has accepted one of what it took. Returns the workers to be called.
    pub fn accepted(&self) -> AcceptStalled {
        self.waiting.fetch_sub(1, AcqRel);
        AcceptStalled(self.stalled.swap(0, AcqRel))
    }

    /// The program's: whether something is there to be taken: a hint.
    #[must_use]
    #[inline]
    pub fn has_rung(&self) -> bool {
        self.finished.has_rung()
    }

    /// The program's: announces that it is about to sleep; `false` where there is something: look
    /// first.
    #[must_use]
    pub fn park(&self) -> bool {
        self.finished.park()
    }

    /// The program's: lets go of it. What is in it is to be taken then, and all workers called.
    pub fn close(&self) {
        self.gone.store(true, Release);
        self.finished.stop();
    }

    /// The program stops serving it: no worker will hand anything over.
    pub fn stop(&self) {
        self.finished.stop();
    }

    /// Whether it was closed or stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.finished.is_stopped()
    }
}

impl fmt::Debug for AcceptQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptQueue")
            .field("finished", &self.finished)
            .field("gone", &self.is_gone())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
