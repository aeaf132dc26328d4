//! `FairShare`: whose datagram a socket takes while more come than are read.
//!
//! Called by `input.rs` between the port look-up and anything that is spent on the datagram
//! (decision E24). A pure value: time comes in, a verdict goes out. Of a socket's bytes
//! * the first half is for whoever comes first, as everywhere;
//! * up to three quarters is for a source beside whom hardly anything comes: one sender alone,
//!   however fast, finds most of the room;
//! * up to seven eighths is for everybody who was granted little lately: the fuller the socket, the
//!   less that may be, so that what is left is never taken by few;
//! * the last eighth is for peers that were answered lately, by a measure four times as wide: that
//!   they are known makes them no lighter, but a few at a time may use what is theirs.
//!
//! Whom the socket is connected to is never asked. Invariants: it only refuses more than the exact
//! cap does, never less; where it refuses somebody, that one's estimate or the reserve says so.
//! Reading: `sketch.rs` for the estimate's bound; Choudhury and Hahne 1998 for thresholds that
//! follow the room that is left. Not here: the cap itself (`allowance.rs`).
//!
//! # Under flood
//! Who can fill it: anybody, with forged sources. Bound and worst work: the sketch's; nothing is
//! hashed while a socket holds less than an eighth. Who is refused: prefixes that were granted
//! much, of those /24 and /48 too that send from many addresses. Honest traffic: a light sender
//! loses what the sketch's error takes. Against forged sources of as many prefixes as the socket
//! has room for datagrams nobody is heavy: who was never answered is then one of them, and loses
//! as they do; who was answered has the reserve. Reason: `UdpOverShare`.

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
/// Part of the room left that a narrow and a wide prefix of strangers may have been granted lately.
const STRANGERS: (u64, u64) = (4, 2);
/// The same of answered peers.
const ANSWERED: (u64, u64) = (1, 1);

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

/// What was asked of one socket lately, granted or not. A word and a half.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand(Decaying);

/// See the file's head.
#[derive(Debug)]
pub struct FairShare {
    sketch: PrefixSketch,
    tick: u32,
    is_on: bool,
}

impl FairShare {
    /// For all sockets of a shard: 256 KiB.
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
    /// nearly empty everybody has, at the price of a compare. Else two hashes and eight counters.
    /// `standing` is asked only where it may matter.
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
        demand.0.add(ask.true_size, self.tick);
        let places = self.sketch.places(ask.source, ask.socket);
        let granted = self.sketch.granted(&places, self.tick);
        let is_granted = ask.used <= ask.limit / 2
            || self.is_alone(ask, *demand, granted)
            || match standing() {
                Standing::Connected => return true,
                standing => is_light(ask, granted, standing),
            };
        if is_granted {
            self.sketch.grant_at(&places, granted, ask.true_size, self.tick);
        }
        is_granted
    }

    /// Whether hardly anything else was asked of the socket lately, and enough room stays for the
    /// next who comes.
    fn is_alone(&self, ask: &Ask, demand: Demand, granted: Granted) -> bool {
        let (own, all) = (granted.narrow.saturating_add(ask.true_size), demand.0.at(self.tick));
        all.saturating_sub(own) < own / ALONE_PART
            && ask.used.saturating_add(ask.true_size.into()) <= ask.limit - ask.limit / NEXT_PART
    }
}

/// Whether so little was granted lately that the room left allows more.
fn is_light(ask: &Ask, granted: Granted, standing: Standing) -> bool {
    let (reserve, (narrow, wide)) = match standing {
        Standing::Stranger => (ask.limit / RESERVE_PART, STRANGERS),
        _ => (0, ANSWERED),
    };
    let asked = u64::from(ask.true_size);
    let room = (ask.limit - reserve).checked_sub(ask.used).filter(|room| *room >= asked);
    let Some(room) = room else { return false };
    // Whoever was granted nothing lately may always begin, while there is room.
    let fits = |granted: u32, part| u64::from(granted) + asked <= room.max(4 * asked) / part;
    fits(granted.narrow, narrow) && fits(granted.wide, wide)
}

#[cfg(test)]
mod tests;
