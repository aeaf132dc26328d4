//! What several sockets on one port share: the lists, and the counts that decide bind conflicts.
//!
//! A port with one socket needs none of this; `demux.rs` then goes straight to the socket.

use super::key::{KeyHold, KeyKind, SocketKey, V4, V6};

/// No socket.
pub(crate) const NONE: u32 = u32::MAX;

/// The state of one port with two sockets or more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortEntry {
    /// Per family: the newest wildcard socket.
    pub(crate) wildcards: [u32; 2],
    /// Sockets that are connected, and that listen to one address.
    pub(crate) connected: u32,
    pub(crate) bound: u32,
    /// Sockets among which flows are spread.
    pub(crate) spread: u32,
    /// All sockets, and the exclusive-or of their places: with one left, its place.
    pub(crate) total: u32,
    pub(crate) places: u32,
    /// Per family: binds.
    held: [PortUse; 2],
}

/// Binds of one family.
#[derive(Clone, Copy, Default, Debug)]
struct PortUse {
    all: u32,
    exclusive: u32,
    wildcard: u32,
    wildcard_exclusive: u32,
}

impl PortEntry {
    pub(crate) const EMPTY: Self = Self {
        wildcards: [NONE; 2],
        connected: 0,
        bound: 0,
        spread: 0,
        total: 0,
        places: 0,
        held: [PortUse { all: 0, exclusive: 0, wildcard: 0, wildcard_exclusive: 0 }; 2],
    };

    /// Counts a socket in.
    pub(crate) fn count_in(&mut self, index: u32, key: &SocketKey, hold: &KeyHold) {
        self.count(index, key, hold, 1);
    }

    /// Counts a socket out.
    pub(crate) fn count_out(&mut self, index: u32, key: &SocketKey, hold: &KeyHold) {
        self.count(index, key, hold, u32::MAX);
    }

    /// Adds `one`, which is 1 or its two's complement.
    fn count(&mut self, index: u32, key: &SocketKey, hold: &KeyHold, one: u32) {
        let add = |n: &mut u32, when: bool| {
            if when {
                *n = n.wrapping_add(one);
            }
        };
        add(&mut self.total, true);
        self.places ^= index;
        add(&mut self.connected, key.kind == KeyKind::Connected);
        add(&mut self.bound, key.kind == KeyKind::Bound);
        add(&mut self.spread, hold.spread);
        for (count, family) in self.held.iter_mut().zip([V4, V6]) {
            let here = hold.families & family != 0;
            add(&mut count.all, here);
            add(&mut count.exclusive, here && !hold.reuse);
            add(&mut count.wildcard, here && hold.is_wildcard());
            add(&mut count.wildcard_exclusive, here && hold.is_wildcard() && !hold.reuse);
        }
    }

    /// Whether a new bind meets one that it may not share with; binds to the very same address
    /// are looked up elsewhere.
    pub(crate) fn refuses(&self, new: &KeyHold) -> bool {
        self.held.iter().zip([V4, V6]).filter(|(_, f)| new.families & f != 0).any(|(count, _)| {
            let met = match (new.is_wildcard(), new.reuse) {
                (true, true) => count.exclusive,
                (true, false) => count.all,
                (false, true) => count.wildcard_exclusive,
                (false, false) => count.wildcard,
            };
            met > 0
        })
    }
}
