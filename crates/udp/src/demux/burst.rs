//! The look-ups of a burst side by side, so that their cache misses overlap.
//!
//! Called by `classify.rs` in loops over the burst. [`SocketDemux::seek`] prefetches the one line
//! that most likely decides about a datagram: the marks of a bucket, or the key of a port's only
//! socket. [`SocketDemux::may_find`] looks at the marks: most unverified sources go no further.
//! [`SocketDemux::sight`] looks at the bucket: where no tag fits, no socket is connected to the
//! sender. [`SocketDemux::settle`] compares keys, for the remaining candidates. With tables far
//! larger than the caches a burst waits for memory once a loop, for lines that the previous loop
//! has prefetched. Invariant: finds what [`SocketDemux::lookup`] finds.

use floodwall_sync::prefetch;

use super::key::{DemuxProbe, KeyKind, V4};
use super::key_table::BucketPeek;
use super::port::{NONE, PortEntry};
use super::{EVERY_PORT, KeyPosition, SocketDemux};

/// How far one look-up has come. Eight bytes, which stay in a register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BurstSeek {
    /// What the bucket has, or the socket that it may be.
    hash_or_guess: u32,
    /// The way in the upper two bits; the place of a port that several sockets share, or
    /// [`NO_PLACE`].
    way_and_place: u32,
}

const PLACE_BITS: u32 = 30;
const NO_PLACE: u32 = (1 << PLACE_BITS) - 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BurstPath {
    /// No socket has the port.
    Unmatched = 0,
    /// The guess, or none.
    Guess = 1,
    /// None but connected sockets: the bucket's, or none.
    Flow = 2,
    /// The bucket's, or another socket of this port.
    Many = 3,
}

impl BurstSeek {
    pub(crate) const UNMATCHED: Self = Self::new(BurstPath::Unmatched, NO_PLACE, NONE);

    #[inline(always)]
    const fn new(way: BurstPath, place: u32, hash_or_guess: u32) -> Self {
        Self { hash_or_guess, way_and_place: (way as u32) << PLACE_BITS | place & NO_PLACE }
    }

    #[inline(always)]
    const fn way(self) -> BurstPath {
        match self.way_and_place >> PLACE_BITS {
            0 => BurstPath::Unmatched,
            1 => BurstPath::Guess,
            2 => BurstPath::Flow,
            _ => BurstPath::Many,
        }
    }

    /// The socket, where it can be no other.
    #[inline(always)]
    pub(crate) const fn only(self) -> Option<u32> {
        match self.way() {
            BurstPath::Guess => Some(self.hash_or_guess),
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
pub(crate) enum BurstSight {
    /// No socket takes it.
    Unmatched,
    /// This one or none.
    Perhaps(u32),
    /// There is more to look at.
    Unclear,
}

impl SocketDemux {
    /// Starts the look-up of a datagram to one host, at this port. Waits for nothing but what all
    /// datagrams to a port share; prefetches the rest only where several sockets have it.
    #[inline(always)]
    pub(crate) fn seek(&self, local_port: u16, probe: impl FnOnce() -> DemuxProbe) -> BurstSeek {
        match self.at(local_port) {
            at if self.every => self.seek_every(&at, probe),
            KeyPosition::Unmatched => BurstSeek::UNMATCHED,
            KeyPosition::Sole(guess) => self.guess(guess, NO_PLACE),
            KeyPosition::Shared(place) => self.seek_shared(place, &probe()),
        }
    }

    /// Where a socket takes every port: it alone, where no socket has this one; else the full
    /// look-up comes at the end.
    #[inline(never)]
    fn seek_every(&self, at: &KeyPosition, probe: impl FnOnce() -> DemuxProbe) -> BurstSeek {
        match (at, self.at(EVERY_PORT)) {
            (KeyPosition::Unmatched, KeyPosition::Sole(guess)) => self.guess(guess, NO_PLACE),
            _ => {
                let hash = self.hash.connected(&probe());
                self.flows.prefetch_mark(hash);
                BurstSeek::new(BurstPath::Many, NO_PLACE, hash)
            }
        }
    }

    #[inline(always)]
    fn seek_shared(&self, place: u32, probe: &DemuxProbe) -> BurstSeek {
        let Some(port) = self.shared.get(place as usize) else { return BurstSeek::UNMATCHED };
        if port.spread > 0 {
            // Which of them it is for is looked up at the end.
            return BurstSeek::new(BurstPath::Many, place, self.hash.connected(probe));
        }
        let (hash, way) = if port.connected == port.total {
            (self.hash.connected(probe), BurstPath::Flow)
        } else if port.connected > 0 {
            (self.hash.connected(probe), BurstPath::Many)
        } else {
            return self.seek_unconnected(place, port, probe);
        };
        self.flows.prefetch_mark(hash);
        BurstSeek::new(way, place, hash)
    }

    /// On a shared port without a connected socket.
    #[inline(never)]
    fn seek_unconnected(&self, place: u32, port: &PortEntry, probe: &DemuxProbe) -> BurstSeek {
        if port.bound == 0 {
            return self.guess(wildcard(port, probe), place);
        }
        let hash = self.hash.key(&probe.bound());
        self.flows.prefetch_mark(hash);
        BurstSeek::new(BurstPath::Many, place, hash)
    }

    #[inline(always)]
    fn guess(&self, guess: u32, place: u32) -> BurstSeek {
        if let Some(key) = self.keys.get(guess as usize) {
            prefetch(key);
        }
        BurstSeek::new(BurstPath::Guess, place, guess)
    }

    /// Whether there may be a socket, by the prefetched marks. Prefetches the bucket then.
    #[inline(always)]
    pub(crate) fn may_find(&self, seek: BurstSeek) -> bool {
        match seek.way() {
            BurstPath::Unmatched => false,
            BurstPath::Flow if !self.flows.may_have(seek.hash_or_guess) => false,
            BurstPath::Guess => true,
            BurstPath::Flow | BurstPath::Many => {
                self.flows.prefetch(seek.hash_or_guess);
                true
            }
        }
    }

    /// Looks at the prefetched bucket.
    #[inline(always)]
    pub(crate) fn sight(&self, seek: BurstSeek) -> BurstSight {
        let BucketPeek { socket, sure } = match seek.way() {
            BurstPath::Unmatched => return BurstSight::Unmatched,
            BurstPath::Guess => return BurstSight::Unclear,
            BurstPath::Flow | BurstPath::Many => self.flows.peek(seek.hash_or_guess),
        };
        match seek.way() {
            BurstPath::Flow if sure && socket == NONE => BurstSight::Unmatched,
            BurstPath::Flow if sure => BurstSight::Perhaps(socket),
            _ => BurstSight::Unclear,
        }
    }

    /// Prefetches what [`SocketDemux::settle`] will compare.
    #[inline(always)]
    pub(crate) fn prefetch(&self, socket: u32) {
        if let Some(key) = self.keys.get(socket as usize) {
            prefetch(key);
        }
    }

    /// The socket, if there is one.
    #[inline(always)]
    pub(crate) fn settle(&self, probe: &DemuxProbe, seek: BurstSeek) -> u32 {
        if self.every {
            return self.lookup(probe).unwrap_or(NONE);
        }
        if let Some(port) = self.shared.get(seek.place() as usize).filter(|port| port.spread > 0) {
            return self.lookup_shared(port, *probe).unwrap_or(NONE);
        }
        let (guess, sure) = match seek.way() {
            BurstPath::Unmatched => return NONE,
            BurstPath::Guess => (seek.hash_or_guess, true),
            BurstPath::Flow | BurstPath::Many => {
                let BucketPeek { socket, sure } = self.flows.peek(seek.hash_or_guess);
                (socket, sure)
            }
        };
        // Behind a tag that two share, a key that is less narrow may hide one that is more so.
        let fits = self.keys.get(guess as usize).is_some_and(|key| {
            key.local_port == probe.local_port
                && key.accepts(probe)
                && (sure || key.kind == KeyKind::Connected)
        });
        match self.shared.get(seek.place() as usize) {
            _ if fits => guess,
            Some(port) if seek.way() == BurstPath::Many || !sure => {
                self.settle_one(port, probe, sure)
            }
            _ => NONE,
        }
    }

    /// Two kinds to look for, or a crowded bucket: one by one.
    #[inline(never)]
    fn settle_one(&self, port: &PortEntry, probe: &DemuxProbe, sure: bool) -> u32 {
        if sure && (port.connected == 0 || port.bound == 0) {
            return wildcard(port, probe);
        }
        self.lookup_shared(port, *probe).unwrap_or(NONE)
    }
}

/// The newest socket on this port that accepts any peer.
#[inline(always)]
const fn wildcard(port: &PortEntry, probe: &DemuxProbe) -> u32 {
    let [v4, v6] = port.wildcards;
    if probe.families() == V4 { v4 } else { v6 }
}
