//! The look-ups of a burst side by side, so that their cache misses overlap.
//!
//! Called by `classify.rs` in loops over the burst. [`Demux::seek`] prefetches the one line that
//! most likely decides about a datagram: the marks of a bucket, or the key of a port's only socket.
//! [`Demux::may_find`] looks at the marks: most unverified sources go no further. [`Demux::sight`]
//! looks at the bucket: where no tag fits, no socket is connected to the sender. [`Demux::settle`]
//! compares keys, for the remaining candidates. With tables far larger than the caches a burst
//! waits for memory once a loop, for lines that the previous loop has prefetched. Invariant: finds
//! what [`Demux::lookup`] finds.

use floodwall_sync::prefetch;

use super::key::{Kind, Probe, V4};
use super::key_table::Peek;
use super::port::{NONE, Port};
use super::{At, Demux, EVERY_PORT};

/// How far one look-up has come. Eight bytes, which stay in a register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seek {
    /// What the bucket has, or the socket that it may be.
    hash_or_guess: u32,
    /// The way in the upper two bits; the place of a port that several sockets share, or
    /// [`NO_PLACE`].
    way_and_place: u32,
}

const PLACE_BITS: u32 = 30;
const NO_PLACE: u32 = (1 << PLACE_BITS) - 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// No socket has the port.
    Nobody = 0,
    /// The guess, or none.
    Guess = 1,
    /// None but connected sockets: the bucket's, or none.
    Flow = 2,
    /// The bucket's, or another socket of this port.
    Many = 3,
}

impl Seek {
    pub(crate) const NOBODY: Self = Self::new(Way::Nobody, NO_PLACE, NONE);

    #[inline(always)]
    const fn new(way: Way, place: u32, hash_or_guess: u32) -> Self {
        Self { hash_or_guess, way_and_place: (way as u32) << PLACE_BITS | place & NO_PLACE }
    }

    #[inline(always)]
    const fn way(self) -> Way {
        match self.way_and_place >> PLACE_BITS {
            0 => Way::Nobody,
            1 => Way::Guess,
            2 => Way::Flow,
            _ => Way::Many,
        }
    }

    /// The socket, where it can be no other.
    #[inline(always)]
    pub(crate) const fn only(self) -> Option<u32> {
        match self.way() {
            Way::Guess => Some(self.hash_or_guess),
            _ => None,
        }
    }

    #[inline(always)]
    const fn place(self) -> u32 {
        self.way_and_place & NO_PLACE
    }
}

/// What one look at one line shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sight {
    /// No socket takes it.
    Nobody,
    /// This one or none.
    Perhaps(u32),
    /// There is more to look at.
    Unclear,
}

impl Demux {
    /// Starts the look-up of a datagram to one host, at this port. Waits for nothing but what all
    /// datagrams to a port share; prefetches the rest only where several sockets have it.
    #[inline(always)]
    pub(crate) fn seek(&self, local_port: u16, probe: impl FnOnce() -> Probe) -> Seek {
        match self.at(local_port) {
            at if self.every => self.seek_every(&at, probe),
            At::Nobody => Seek::NOBODY,
            At::Sole(guess) => self.guess(guess, NO_PLACE),
            At::Shared(place) => self.seek_shared(place, &probe()),
        }
    }

    /// Where a socket takes every port: it alone, where no socket has this one; else the full
    /// look-up comes at the end.
    #[inline(never)]
    fn seek_every(&self, at: &At, probe: impl FnOnce() -> Probe) -> Seek {
        match (at, self.at(EVERY_PORT)) {
            (At::Nobody, At::Sole(guess)) => self.guess(guess, NO_PLACE),
            _ => {
                let hash = self.hash.connected(&probe());
                self.flows.prefetch_mark(hash);
                Seek::new(Way::Many, NO_PLACE, hash)
            }
        }
    }

    #[inline(always)]
    fn seek_shared(&self, place: u32, probe: &Probe) -> Seek {
        let Some(port) = self.shared.get(place as usize) else { return Seek::NOBODY };
        if port.spread > 0 {
            // Which of them it is for is looked up at the end.
            return Seek::new(Way::Many, place, self.hash.connected(probe));
        }
        let (hash, way) = if port.connected == port.total {
            (self.hash.connected(probe), Way::Flow)
        } else if port.connected > 0 {
            (self.hash.connected(probe), Way::Many)
        } else {
            return self.seek_unconnected(place, port, probe);
        };
        self.flows.prefetch_mark(hash);
        Seek::new(way, place, hash)
    }

    /// On a shared port without a connected socket.
    #[inline(never)]
    fn seek_unconnected(&self, place: u32, port: &Port, probe: &Probe) -> Seek {
        if port.bound == 0 {
            return self.guess(wildcard(port, probe), place);
        }
        let hash = self.hash.key(&probe.bound());
        self.flows.prefetch_mark(hash);
        Seek::new(Way::Many, place, hash)
    }

    #[inline(always)]
    fn guess(&self, guess: u32, place: u32) -> Seek {
        if let Some(key) = self.keys.get(guess as usize) {
            prefetch(key);
        }
        Seek::new(Way::Guess, place, guess)
    }

    /// Whether there may be a socket, by the prefetched marks. Prefetches the bucket then.
    #[inline(always)]
    pub(crate) fn may_find(&self, seek: Seek) -> bool {
        match seek.way() {
            Way::Nobody => false,
            Way::Flow if !self.flows.may_have(seek.hash_or_guess) => false,
            Way::Guess => true,
            Way::Flow | Way::Many => {
                self.flows.prefetch(seek.hash_or_guess);
                true
            }
        }
    }

    /// Looks at the prefetched bucket.
    #[inline(always)]
    pub(crate) fn sight(&self, seek: Seek) -> Sight {
        let Peek { socket, sure } = match seek.way() {
            Way::Nobody => return Sight::Nobody,
            Way::Guess => return Sight::Unclear,
            Way::Flow | Way::Many => self.flows.peek(seek.hash_or_guess),
        };
        match seek.way() {
            Way::Flow if sure && socket == NONE => Sight::Nobody,
            Way::Flow if sure => Sight::Perhaps(socket),
            _ => Sight::Unclear,
        }
    }

    /// Prefetches what [`Demux::settle`] will compare.
    #[inline(always)]
    pub(crate) fn expect(&self, socket: u32) {
        if let Some(key) = self.keys.get(socket as usize) {
            prefetch(key);
        }
    }

    /// The socket, if there is one.
    #[inline(always)]
    pub(crate) fn settle(&self, probe: &Probe, seek: Seek) -> u32 {
        if self.every {
            return self.lookup(probe).unwrap_or(NONE);
        }
        if let Some(port) = self.shared.get(seek.place() as usize).filter(|port| port.spread > 0) {
            return self.lookup_shared(port, *probe).unwrap_or(NONE);
        }
        let (guess, sure) = match seek.way() {
            Way::Nobody => return NONE,
            Way::Guess => (seek.hash_or_guess, true),
            Way::Flow | Way::Many => {
                let Peek { socket, sure } = self.flows.peek(seek.hash_or_guess);
                (socket, sure)
            }
        };
        // Behind a tag that two share, a key that is less narrow may hide one that is more so.
        let fits = self.keys.get(guess as usize).is_some_and(|key| {
            key.local_port == probe.local_port
                && key.accepts(probe)
                && (sure || key.kind == Kind::Connected)
        });
        match self.shared.get(seek.place() as usize) {
            _ if fits => guess,
            Some(port) if seek.way() == Way::Many || !sure => self.settle_one(port, probe, sure),
            _ => NONE,
        }
    }

    /// Two kinds to look for, or a crowded bucket: one by one.
    #[inline(never)]
    fn settle_one(&self, port: &Port, probe: &Probe, sure: bool) -> u32 {
        if sure && (port.connected == 0 || port.bound == 0) {
            return wildcard(port, probe);
        }
        self.lookup_shared(port, *probe).unwrap_or(NONE)
    }
}

/// The newest socket on this port that accepts any peer.
#[inline(always)]
const fn wildcard(port: &Port, probe: &Probe) -> u32 {
    let [v4, v6] = port.wildcards;
    if probe.families() == V4 { v4 } else { v6 }
}
