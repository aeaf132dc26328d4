//! Frames on the way, in the order of their arrival.
//!
//! Called by `world.rs`. A frame's bytes are stored here, in neither end's pool, from the end of
//! its sender's round until it is in the receiver's ring. Invariant: frames of the same instant
//! come out in the order in which they were put in, so nothing depends on the heap's internals.
//! Memory grows to the peak number of frames on the way at once, and is then reused.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use floodwall_base::Instant;

use crate::link::{LinkId, Side};

/// One frame on the way.
pub(crate) struct InFlight {
    pub(crate) at: Instant,
    order: u64,
    pub(crate) link: LinkId,
    pub(crate) from: Side,
    pub(crate) frame: Vec<u8>,
}

impl InFlight {
    const fn key(&self) -> (Instant, u64) {
        (self.at, self.order)
    }
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for InFlight {}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// Frames on the way, ordered by arrival time.
#[derive(Default)]
pub(crate) struct FrameFlight {
    heap: BinaryHeap<Reverse<InFlight>>,
    order: u64,
    /// Empty buffers, to be used again.
    spare: Vec<Vec<u8>>,
}

impl FrameFlight {
    /// An empty buffer.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub(crate) fn recycle(&mut self, mut frame: Vec<u8>) {
        frame.clear();
        self.spare.push(frame);
    }

    pub(crate) fn push(&mut self, at: Instant, link: LinkId, from: Side, frame: Vec<u8>) {
        self.order += 1;
        self.heap.push(Reverse(InFlight { at, order: self.order, link, from, frame }));
    }

    /// When the next frame arrives.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|frame| frame.0.at)
    }

    pub(crate) fn pop(&mut self) -> Option<InFlight> {
        self.heap.pop().map(|frame| frame.0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}
