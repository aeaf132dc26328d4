//! The look-ups of a burst side by side, so that their cache misses overlap.
//!
//! Called by `classify.rs`. Each step is a loop over the burst that does one dependent load a
//! datagram: the port, the bucket, the key. With tables far larger than the caches a burst then
//! waits for memory a few times and not once a datagram. Invariant: finds what [`Demux::lookup`]
//! finds.

use floodwall_base::limits::BURST_MAX;

use super::key::{Probe, V4};
use super::key_table::Peek;
use super::port::{NONE, Port};
use super::{At, Demux};

/// How far one look-up has come.
#[derive(Clone, Copy)]
struct Seek {
    /// The socket that it may be, or [`NONE`].
    guess: u32,
    /// Of what is looked for on a port that several sockets share.
    hash: u32,
    /// That port's place, or [`NONE`].
    place: u32,
    /// Whether it can be no other.
    sure: bool,
}

const NOBODY: Seek = Seek { guess: NONE, hash: 0, place: NONE, sure: true };

impl Demux {
    /// The sockets for datagrams to one host each: `found` gets a place or [`NONE`] for each of
    /// the first [`BURST_MAX`] probes.
    #[inline]
    pub(crate) fn lookup_burst<'a>(
        &self,
        probes: impl Iterator<Item = &'a Probe> + Clone,
        found: &mut [u32; BURST_MAX],
    ) {
        let mut seeks = [NOBODY; BURST_MAX];
        for (probe, seek) in probes.clone().zip(&mut seeks) {
            *seek = self.begin(probe);
        }
        for seek in &mut seeks {
            if seek.place != NONE {
                let Peek { socket, sure } = self.flows.peek(seek.hash);
                (seek.guess, seek.sure) = (socket, sure);
            }
        }
        for ((probe, seek), found) in probes.zip(&seeks).zip(found) {
            *found = self.finish(probe, seek);
        }
    }

    #[inline(always)]
    fn begin(&self, probe: &Probe) -> Seek {
        let place = match self.at(probe.local_port) {
            At::Nobody => return NOBODY,
            At::Sole(guess) => return Seek { guess, ..NOBODY },
            At::Shared(place) => place,
        };
        let Some(port) = self.shared.get(place as usize) else { return NOBODY };
        if port.connected > 0 {
            Seek { hash: self.hash.key(&probe.connected()), place, ..NOBODY }
        } else if port.bound > 0 {
            Seek { hash: self.hash.key(&probe.bound()), place, ..NOBODY }
        } else {
            Seek { guess: wildcard(port, probe), ..NOBODY }
        }
    }

    #[inline(always)]
    fn finish(&self, probe: &Probe, seek: &Seek) -> u32 {
        let fits = self
            .keys
            .get(seek.guess as usize)
            .is_some_and(|key| key.local_port == probe.local_port && key.accepts(probe));
        if fits {
            return seek.guess;
        }
        match self.shared.get(seek.place as usize) {
            None => NONE,
            Some(port) if seek.sure && (port.connected == 0 || port.bound == 0) => {
                wildcard(port, probe)
            }
            // Two kinds to look for, or a crowded bucket: one by one.
            Some(port) => self.lookup_shared(port, *probe).unwrap_or(NONE),
        }
    }
}

/// The newest socket that takes anybody on this port.
#[inline(always)]
const fn wildcard(port: &Port, probe: &Probe) -> u32 {
    let [v4, v6] = port.wildcards;
    if probe.families() == V4 { v4 } else { v6 }
}
