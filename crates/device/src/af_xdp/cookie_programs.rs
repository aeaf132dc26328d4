//! `CookiePrograms`: the programs for SYNs and for ACKs, and which of them are in force.
//!
//! Loaded by `cookies.rs`; put into force there, and by `program_switch.rs` on a thread of its own.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32};
use std::io;

use super::bpf::{BpfProgram, Map};
use super::features;
use super::filter::{SEGMENT_PROGRAM, SYN_PROGRAM};
use super::way_back::PassingAnswers;

/// The bit of [`CookiePrograms::started`] that stands where answers pass by the system.
pub(super) const ANSWERS_PASS: u32 = 1 << 8;

/// The programs, and which of them are in force.
#[derive(Debug)]
pub(super) struct CookiePrograms {
    pub(super) map: Map,
    /// The program for SYNs, and the one for other segments.
    pub(super) loaded: [BpfProgram; 2],
    /// The program for SYNs that are answered by way of the system, or why there is none.
    pub(super) passing: Result<PassingAnswers, String>,
    /// A bit for each program that is in force, and one where answers pass by the system.
    pub(super) started: AtomicU32,
    /// Whether there are keys to check ACKs with.
    pub(super) checks: AtomicBool,
    /// Of a veth with a peer that takes answers only under conditions; 0 of no such.
    pub(super) veth: AtomicU32,
    /// Whether frames that are redirected to the interface leave by it.
    pub(super) transmits: AtomicBool,
}

impl CookiePrograms {
    /// From now on one of the programs is in force, or frames of its kind are as without it.
    /// `passes` is whether answers pass by the system.
    pub(super) fn set(&self, which: i32, on: bool, passes: bool) -> io::Result<()> {
        let (bit, index) = (1 << which, which.cast_unsigned());
        let started = self.started.load(Relaxed);
        let wanted = match (on, passes && which == SYN_PROGRAM) {
            (true, true) => bit | ANSWERS_PASS,
            (true, false) => bit,
            (false, _) => 0,
        };
        let kinds = if which == SYN_PROGRAM { bit | ANSWERS_PASS } else { bit };
        if started & kinds == wanted {
            return Ok(());
        }
        let program = match &self.passing {
            Ok(passing) if wanted & ANSWERS_PASS != 0 => Some(passing.program()?),
            _ => self.loaded.get(index as usize),
        };
        match program.filter(|_| on) {
            Some(program) => self.map.set(index, program.fd().cast_unsigned())?,
            None => self.map.clear(index)?,
        }
        self.started.store(started & !kinds | wanted, Relaxed);
        Ok(())
    }

    /// Whether answers arrive, and whether they pass by the system to do so.
    pub(super) fn way_back(&self) -> (bool, bool) {
        let takes = match self.veth.load(Relaxed) {
            0 => true,
            index => features::transmits(index).unwrap_or(false),
        };
        self.transmits.store(takes, Relaxed);
        match takes {
            true => (true, false),
            false => (self.passing.is_ok(), self.passing.is_ok()),
        }
    }

    /// Puts into force what is wanted and possible now. Waits for locks of the kernel, and where a
    /// program goes, for every processor.
    pub(super) fn follow(&self) {
        let checks = self.checks.load(Relaxed);
        let (arrives, passes) = self.way_back();
        // What the kernel refuses is tried again.
        let _ = self
            .set(SEGMENT_PROGRAM, checks, false)
            .and_then(|()| self.set(SYN_PROGRAM, checks && arrives, passes));
    }

    /// Whether answers arrive, as of the last look.
    pub(super) fn arrives(&self) -> bool {
        !self.is_veth() || self.transmits.load(Relaxed) || self.passing.is_ok()
    }

    pub(super) fn has_started(&self) -> bool {
        self.started.load(Relaxed) != 0
    }

    /// Whether the way back may change.
    pub(super) fn is_veth(&self) -> bool {
        self.veth.load(Relaxed) != 0
    }
}
