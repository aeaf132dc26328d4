//! `HalfThread`: the thread that runs one receive half (NAPI): what it has used of its core, and
//! how it stands there for the moment.
//!
//! Made by `napi.rs`, one for each queue; called by `af_xdp.rs` and `af_packet.rs` for a worker
//! that shares its core with other programs. Invariant: once this is dropped the thread stands as
//! its place asks for.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::poller::PollDrive;
use super::system::System;
use super::threaded::{Napi, NapiSetting};
use super::tuning::{
    BEFORE_FLUSH_NANOS, CORE_SLICE, NICE_BEFORE, NICE_BEHIND, NICE_CHOOSING, NICE_DENIED,
    POLL_DEFER, POLL_FLUSH_NANOS, THREAD_FLUSH_NANOS,
};
use crate::napi_policy::NapiPriority;
use crate::napi_rank::NapiRank;
use crate::thread_time::ThreadTime;

/// How long it runs at a stretch where the worker may interrupt it: the scheduler lets a thread
/// that wakes go first if its own slice is the shorter one.
const LONG_SLICE: Duration = Duration::from_millis(1);
/// The worker's own rank while it shares its core: what both leave, and no more, is others'.
const NICE_GRANTED: i32 = -20;

/// The thread of one receive half.
#[derive(Debug)]
pub(crate) struct HalfThread {
    system: Box<dyn System>,
    thread: u32,
    /// Its nice value by its place.
    nice: i32,
    /// What it has used, as the kernel tells it.
    time: Option<File>,
    rank: NapiRank,
    /// What runs the half within our calls, where the system has such.
    driver: Option<Box<dyn PollDrive>>,
    /// The half, as its place has set it.
    napi: Napi,
    /// The place was given up: the thread is as before, and stays so.
    over: Arc<AtomicBool>,
}

impl HalfThread {
    /// Of a half that has a thread.
    pub(super) fn new(system: Box<dyn System>, napi: Napi, over: &Arc<AtomicBool>) -> Option<Self> {
        let thread = napi.thread?;
        let nice = system.standing(thread).ok()?.nice;
        let (time, driver) = (system.thread_time(thread).ok(), system.driver(&[napi.id]).ok());
        let (rank, over) = (NapiRank::Placed, Arc::clone(over));
        Some(Self { system, thread, nice, time, rank, driver, napi, over })
    }

    /// From now on its place is before the worker, or behind it: at once, or when its rank is that
    /// of its place again. Costs system calls. Without the privilege it stays where it is.
    pub(crate) fn place(&mut self, rank: NapiPriority) {
        let (nice, flush_nanos) = match rank {
            NapiPriority::Behind => (NICE_BEHIND, THREAD_FLUSH_NANOS),
            NapiPriority::Before => (NICE_BEFORE, BEFORE_FLUSH_NANOS),
            NapiPriority::Choosing => (NICE_CHOOSING, BEFORE_FLUSH_NANOS),
            NapiPriority::Guarding => (NICE_BEFORE, self.napi.setting.flush_nanos),
        };
        if self.over.load(Ordering::Relaxed) {
            return;
        }
        let is_placed = self.rank == NapiRank::Placed;
        if is_placed && self.system.set_turns(self.thread, nice, CORE_SLICE).is_err() {
            return;
        }
        self.nice = nice;
        self.napi.setting.flush_nanos = flush_nanos;
        if !self.is_taken() {
            let placed = NapiSetting { threaded: None, ..self.napi.setting };
            let _ = self.system.set_napi(self.napi.id, &placed);
        }
    }

    /// The time of the thread; `None` where the system does not tell. Costs a system call.
    pub(crate) fn time(&self) -> Option<ThreadTime> {
        ThreadTime::read(self.time.as_ref()?)
    }

    /// From now on it stands so. Costs a system call or two where that changes.
    pub(crate) fn set_rank(&mut self, rank: NapiRank) {
        if rank == self.rank || self.over.load(Ordering::Relaxed) {
            return;
        }
        let (nice, slice) = match rank {
            NapiRank::Placed => (self.nice, CORE_SLICE),
            NapiRank::Granted | NapiRank::Taken => (NICE_GRANTED, LONG_SLICE),
            NapiRank::Denied => (NICE_DENIED, LONG_SLICE),
        };
        if rank == NapiRank::Taken && !self.take() {
            return;
        }
        if self.is_taken() {
            self.give_back();
        }
        // Without the privilege it never had another rank.
        if self.system.set_turns(self.thread, nice, slice).is_ok() || rank == NapiRank::Taken {
            self.rank = rank;
        }
    }

    /// Whether the half runs within the worker's calls.
    pub(crate) fn is_taken(&self) -> bool {
        self.rank == NapiRank::Taken
    }

    /// Runs the half for a moment, once it is taken; for a longer one where much waits.
    pub(crate) fn poll(&mut self, long: bool) {
        match &mut self.driver {
            Some(driver) if self.rank == NapiRank::Taken && long => driver.poll_long(),
            Some(driver) if self.rank == NapiRank::Taken => driver.poll(),
            _ => {}
        }
    }

    /// The card does not call the half between our polls any more.
    fn take(&self) -> bool {
        let ours = NapiSetting { defer: POLL_DEFER, flush_nanos: POLL_FLUSH_NANOS, threaded: None };
        self.driver.is_some() && self.system.set_napi(self.napi.id, &ours).is_ok()
    }

    /// The half is its thread's again.
    fn give_back(&mut self) {
        let placed = NapiSetting { threaded: None, ..self.napi.setting };
        let _ = self.system.set_napi(self.napi.id, &placed);
        // A last look has the thread called again.
        self.driver.iter_mut().for_each(|driver| driver.release());
        self.rank = NapiRank::Granted;
    }
}

impl Drop for HalfThread {
    fn drop(&mut self) {
        self.set_rank(NapiRank::Placed);
    }
}
