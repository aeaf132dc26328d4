//! `FairShare`: whose datagram a socket takes while more come than are read.
//!
//! Called by `input.rs` between the port look-up and anything that is spent on the datagram
//! (decision E24). A pure value: time comes in, a verdict goes out. Of a socket's bytes
//! * the first half is for whoever comes first, as everywhere;
//! * up to three quarters is for a source beside whom hardly anything comes: one sender alone,
//!   however fast, finds most of the room;
//! * up to seven eighths is for everybody whose part of what waits is small: the fuller the socket,
//!   the smaller, so that what is left is never taken by few;
//! * the last eighth is for peers that were answered lately and hold less than a quarter of what is
//!   left of it: a heavy one is not let in, known or not, so that strangers keep their room beside
//!   a flood that is answered.
//!
//! What is small is measured from above: a site may hold a multiple of the room that is left, a
//! network of it a multiple of what the site has left, a host a part of what the network has left.
//! So the heavy hosts of a network stop before the network does, and a light one beside them, on
//! the same LAN, still finds its room. What a source holds is its part of what the socket granted
//! lately, times what waits there. Whom the socket is connected to is never asked.
//!
//! Invariants: it only refuses more than the exact cap does, never less; where it refuses somebody,
//! that one's estimate or the reserve says so. Reading: `sketch.rs` for the estimate's bound;
//! Choudhury and Hahne 1998 for thresholds that follow the room that is left. Not here: the cap
//! itself (`allowance.rs`).
//!
//! # Under flood
//! Who can fill it: anybody, with forged sources. Bound and worst work: the sketch's, and one
//! division; nothing is hashed while a socket holds less than an eighth. Who is refused: hosts that
//! hold much, and /24, /64 and /48 that do, however many addresses they send from. Honest traffic:
//! a light sender loses what the sketch's error takes, and more where forged sources fill the very
//! network it is in. Against forged sources of as many prefixes as the socket has room for
//! datagrams nobody is heavy: who was never answered is then one of them, and loses as they do; who
//! was answered has the reserve. Reason: `UdpOverShare`.

use core::net::IpAddr;
use core::time::Duration;

use floodwall_base::{HashKey, Instant};

use crate::sketch::{Decaying, Granted, PrefixSketch};

/// How fast grants are forgotten.
const TICK: Duration = Duration::from_millis(50);
/// Part of a socket's bytes below which nobody is counted.
const CALM_PART: u64 = 8;
/// Part of a socket's bytes for answered peers alone.
const RESERVE_PART: u64 = 8;
/// Part of a socket's bytes that one sender alone leaves to the next.
const NEXT_PART: u64 = 4;
/// Beside a sender that is alone comes less than this part of what it sends.
const ALONE_PART: u32 = 8;
/// How much of the room that is left each length of prefix may hold, of what the wider one leaves,
/// in twentieths, the widest first. Alone in all of them a host has two fifths of the room, which
/// leaves a socket three quarters full with ten of them; alone a network has twice the room.
const OF_NETWORKS: [u64; 2] = [40, 5];
const OF_SITES: [u64; 3] = [50, 80, 1];
const WHOLE: u64 = 20;
/// Part of what is left of the reserve that one answered peer may hold.
const ANSWERED_PART: u64 = 4;
/// Bits of a fraction.
const FRACTION: u32 = 16;

/// A datagram that asks to be taken.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Where it says it comes from.
    pub source: IpAddr,
    /// The socket.
    pub socket: u32,
    /// Its true bytes.
    pub true_size: u32,
    /// True bytes that the socket holds.
    pub used: u64,
    /// True bytes that it may hold.
    pub limit: u64,
}

/// What a socket knows of who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nothing.
    Stranger,
    /// It was answered lately, or has proved that it is where it says.
    Answered,
    /// The socket is connected to it.
    Connected,
}

/// What was asked of one socket lately, and what was granted of it. Two words.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    asked: Decaying,
    granted: Decaying,
}

/// See the file's head.
#[derive(Debug)]
pub struct FairShare {
    sketch: PrefixSketch,
    tick: u32,
    is_on: bool,
}

impl FairShare {
    /// For all sockets of a shard: 384 KiB.
    #[must_use]
    pub fn new(key: HashKey) -> Self {
        Self { sketch: PrefixSketch::new(key, TICK), tick: 0, is_on: true }
    }

    /// Switches it off or on: while it is off, every datagram has its share.
    pub const fn set_on(&mut self, is_on: bool) {
        self.is_on = is_on;
    }

    /// What happens next happens at `now`: a round begins.
    #[inline]
    pub const fn begin(&mut self, now: Instant) {
        self.tick = self.sketch.tick_of(now);
    }

    /// Whether a socket with so many of its bytes used asks for shares at all. A compare.
    #[must_use]
    #[inline(always)]
    pub const fn is_pressed(&self, used: u64, limit: u64) -> bool {
        used > limit / CALM_PART
    }

    /// Whether the datagram has a share in its socket; if so that is noted. Of a socket that is
    /// nearly empty everybody has, at the price of a compare. Else a hash and four counters for
    /// each length of prefix. `standing` is asked only where it may matter.
    #[inline(always)]
    pub fn grants(
        &mut self,
        ask: &Ask,
        demand: &mut Demand,
        standing: impl FnOnce() -> Standing,
    ) -> bool {
        !self.is_on || !self.is_pressed(ask.used, ask.limit) || self.weighs(ask, demand, standing)
    }

    #[inline(never)]
    fn weighs(
        &mut self,
        ask: &Ask,
        demand: &mut Demand,
        standing: impl FnOnce() -> Standing,
    ) -> bool {
        demand.asked.add(ask.true_size, self.tick);
        let places = self.sketch.places(ask.source, ask.socket);
        let granted = self.sketch.granted(&places, self.tick);
        let is_granted = ask.used <= ask.limit / 2
            || self.is_alone(ask, *demand, granted)
            || match standing() {
                Standing::Connected => return true,
                standing => {
                    let held = Held::of(ask, granted, demand.granted.at(self.tick));
                    held.is_light(ask) || standing == Standing::Answered && held.has_reserve(ask)
                }
            };
        if is_granted {
            demand.granted.add(ask.true_size, self.tick);
            self.sketch.grant_at(&places, granted, ask.true_size, self.tick);
        }
        is_granted
    }

    /// Whether hardly anything else was asked of the socket lately, and enough room stays for the
    /// next who comes.
    fn is_alone(&self, ask: &Ask, demand: Demand, granted: Granted) -> bool {
        let (own, all) = (granted.host.saturating_add(ask.true_size), demand.asked.at(self.tick));
        all.saturating_sub(own) < own / ALONE_PART
            && ask.used.saturating_add(ask.true_size.into()) <= ask.limit - ask.limit / NEXT_PART
    }
}

/// What waits of a source in a socket, by each of its prefixes: as much of what waits there as it
/// has of what was granted there lately. Bytes, the longest prefix first.
struct Held([u64; 3]);

impl Held {
    /// `all` is what the socket granted lately. A division.
    fn of(ask: &Ask, granted: Granted, all: u32) -> Self {
        let each = (ask.used.min(u64::from(u32::MAX)) << FRACTION) / u64::from(all.max(1));
        let Granted { host, network, site } = granted;
        Self([host, network, site].map(|own| (u64::from(own.min(all)) * each) >> FRACTION))
    }

    /// Whether each prefix holds little beside the room that is left, and what the wider ones leave
    /// of it.
    fn is_light(&self, ask: &Ask) -> bool {
        let (asked, full) = (u64::from(ask.true_size), ask.limit - ask.limit / RESERVE_PART);
        let room = full.saturating_sub(ask.used).min(u64::from(u32::MAX));
        let leaves = |left: Option<u64>, (held, parts): (u64, u64)| {
            // Who holds nothing may always begin where there is any room.
            let may_hold = (left? * parts / WHOLE).max(asked);
            may_hold.checked_sub(held + asked)
        };
        let [host, network, site] = self.0;
        let begin = (room >= asked).then_some(room);
        match ask.source {
            IpAddr::V4(_) => [network, host].into_iter().zip(OF_NETWORKS).fold(begin, leaves),
            IpAddr::V6(_) => [site, network, host].into_iter().zip(OF_SITES).fold(begin, leaves),
        }
        .is_some()
    }

    /// Whether an answered peer holds so little that the reserve is for it.
    fn has_reserve(&self, ask: &Ask) -> bool {
        let asked = u64::from(ask.true_size);
        let room = ask.limit.saturating_sub(ask.used).min(ask.limit / RESERVE_PART);
        let [host, ..] = self.0;
        room >= asked && host + asked <= (room / ANSWERED_PART).max(asked)
    }
}

#[cfg(test)]
mod tests;
