//! `FairShare`: which datagrams a socket accepts while more arrive than are read.
//!
//! Called by `input.rs` between the port look-up and anything that is spent on the datagram
//! (decision E24). A pure value: time comes in, a decision goes out. Of a socket's bytes
//! * the first half is for whichever sender comes first, as everywhere;
//! * up to three quarters is for a source without much competing traffic: one sender alone, however
//!   fast, finds most of the room;
//! * up to seven eighths is for every source with a small part of what waits: the fuller the
//!   socket, the smaller, so that what is left is never taken by few;
//! * the last eighth is for peers that were answered lately and hold less than a quarter of what is
//!   left of it: a heavy one is not let in, known or not, so that unverified sources keep their
//!   room beside a flood that is answered.
//!
//! What is small is measured from above: a site may hold a multiple of the room that is left, a
//! network of it a multiple of what the site has left, a host a part of what the network has left.
//! So the heavy hosts of a network stop before the network does, and a light one on the same LAN
//! still finds its room. What a source holds is its part of what the socket granted lately, times
//! what waits there. The socket's connected peer is not considered.
//!
//! Invariants: it only refuses more than the exact cap does, never less; each refusal follows from
//! the source's estimate or from the reserve. Reading: `sketch.rs` for the estimate's bound;
//! Choudhury and Hahne 1998 for thresholds that follow the room that is left. Not here: the cap
//! itself (`allowance.rs`).
//!
//! # Under flood
//! Reachable by any sender, with forged sources. Bound and worst work: the sketch's, and one
//! division; nothing is hashed while a socket holds less than an eighth. Refused: hosts that hold
//! much, and /24, /64 and /48 prefixes that do, however many addresses they send from. Honest
//! traffic: a light sender loses what the sketch's error takes, and more where forged sources fill
//! the very network it is in. Against forged sources of as many prefixes as the socket has room for
//! datagrams no source is heavy: a source that was never answered is then one of them, and loses as
//! they do; one that was answered has the reserve. Reason: `UdpOverShare`.

use core::net::IpAddr;
use core::time::Duration;

use floodwall_base::{HashKey, Instant};

use crate::sketch::{PrefixSketch, SketchCells};

/// How fast grants are forgotten.
const GRANT_TICK: Duration = Duration::from_millis(50);
/// Part of a socket's bytes below which no source is counted.
const CALM_DIVISOR: u64 = 8;
/// Part of a socket's bytes for answered peers alone.
const RESERVE_DIVISOR: u64 = 8;
/// Part of a socket's bytes that one sender alone leaves to the next.
const NEXT_DIVISOR: u64 = 4;
/// A sender counts as alone while other traffic is less than this part of its own.
const ALONE_DIVISOR: f64 = 8.0;
/// How much of the room that is left each length of prefix may hold, of what the wider one leaves,
/// the widest first. Alone in all of them a host has two fifths of the room, which leaves a socket
/// three quarters full with ten of them; alone a network has twice the room.
const OF_NETWORKS: [f64; 2] = [2.0, 0.25];
const OF_SITES: [f64; 3] = [2.5, 4.0, 0.05];
/// Part of what is left of the reserve that one answered peer may hold.
const ANSWERED_DIVISOR: u64 = 4;

/// A datagram that is offered to the socket.
#[derive(Clone, Copy, Debug)]
pub struct FairRequest {
    /// The source address.
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

/// What a socket knows about a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SenderStanding {
    /// Nothing.
    Unknown,
    /// It was answered lately, or has proved its address.
    Answered,
    /// The socket is connected to it.
    Connected,
}

/// The bytes offered to one socket lately, and the bytes granted; halved with every tick.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShareDemand {
    asked: f64,
    granted: f64,
    /// Until when they were halved.
    tick: u64,
}

impl ShareDemand {
    /// Halves it until `tick`.
    #[inline(always)]
    fn settle(&mut self, tick: u64) {
        if self.tick != tick {
            self.halve(tick);
        }
    }

    /// Once for each tick since: at the first datagram of one.
    #[cold]
    fn halve(&mut self, tick: u64) {
        let ticks = tick.wrapping_sub(self.tick);
        let part = if ticks < 64 { 1.0 / (1_u64 << ticks) as f64 } else { 0.0 };
        *self = Self { asked: self.asked * part, granted: self.granted * part, tick };
    }
}

/// Fair admission for the sockets of a shard: one sketch of grants, shared by all.
#[derive(Debug)]
pub struct FairShare {
    sketch: PrefixSketch,
    tick: u64,
    /// From when and until when that is the tick.
    lasts: (Instant, Instant),
    is_on: bool,
}

impl FairShare {
    /// For all sockets of a shard: 768 KiB.
    #[must_use]
    pub fn new(key: HashKey) -> Self {
        let lasts = (Instant::ORIGIN, Instant::ORIGIN);
        Self { sketch: PrefixSketch::new(key, GRANT_TICK), tick: 0, lasts, is_on: true }
    }

    /// Switches it off or on: while it is off, every datagram has its share.
    pub const fn set_on(&mut self, is_on: bool) {
        self.is_on = is_on;
    }

    /// What happens next happens at `now`: a round begins. A tick is found by a division, which
    /// rounds without a datagram would pay for as well: once for each tick.
    #[inline]
    pub fn begin(&mut self, now: Instant) {
        if now < self.lasts.0 || now >= self.lasts.1 {
            self.find_tick(now);
        }
    }

    #[cold]
    fn find_tick(&mut self, now: Instant) {
        self.tick = self.sketch.tick_of(now);
        let begins = Instant::from_nanos(self.tick.saturating_mul(GRANT_TICK.as_nanos() as u64));
        self.lasts = (begins, begins + GRANT_TICK);
    }

    /// Whether a socket with so many of its bytes used needs shares at all. A compare.
    #[must_use]
    #[inline(always)]
    pub const fn is_pressed(&self, used: u64, limit: u64) -> bool {
        used > limit / CALM_DIVISOR
    }

    /// Whether the datagram has a share in its socket; if so that is noted. In a socket that is
    /// nearly empty every source has one, at the price of a compare. Else a hash and two counters
    /// for each length of prefix. `standing` is evaluated only where it may matter.
    #[inline(always)]
    pub fn grants(
        &mut self,
        ask: &FairRequest,
        demand: &mut ShareDemand,
        standing: impl FnOnce() -> SenderStanding,
    ) -> bool {
        !self.is_on || !self.is_pressed(ask.used, ask.limit) || self.weighs(ask, demand, standing)
    }

    #[inline(never)]
    fn weighs(
        &mut self,
        ask: &FairRequest,
        demand: &mut ShareDemand,
        standing: impl FnOnce() -> SenderStanding,
    ) -> bool {
        demand.settle(self.tick);
        demand.asked += f64::from(ask.true_size);
        match ask.source {
            IpAddr::V4(source) => {
                let places = self.sketch.places_v4(source, ask.socket);
                self.weighs_as(places, OF_NETWORKS, ask, demand, standing)
            }
            IpAddr::V6(source) => {
                let places = self.sketch.places_v6(source, ask.socket);
                self.weighs_as(places, OF_SITES, ask, demand, standing)
            }
        }
    }

    /// For a source with `N` prefixes that count, of which each may hold `parts`.
    #[inline(always)]
    fn weighs_as<const N: usize>(
        &mut self,
        places: SketchCells<N>,
        parts: [f64; N],
        ask: &FairRequest,
        demand: &mut ShareDemand,
        standing: impl FnOnce() -> SenderStanding,
    ) -> bool {
        let look = self.sketch.look(places, self.tick);
        let held = HeldShare::of(ask, look.granted, demand.granted);
        // The standing is looked up only where nothing else decides in favour.
        let is_granted = ask.used <= ask.limit / 2
            || is_alone(ask, demand.asked, look.granted)
            || held.is_light(ask, parts)
            || match standing() {
                SenderStanding::Connected => return true,
                SenderStanding::Answered => held.has_reserve(ask),
                SenderStanding::Unknown => false,
            };
        if is_granted {
            demand.granted += f64::from(ask.true_size);
            self.sketch.grant(&look, ask.true_size, self.tick);
        }
        is_granted
    }
}

/// Whether hardly any other traffic came to the socket lately, and enough room stays for the next
/// source.
#[inline(always)]
fn is_alone<const N: usize>(ask: &FairRequest, asked: f64, granted: [f64; N]) -> bool {
    let own = granted.first().map_or(0.0, |host| host + f64::from(ask.true_size));
    asked - own < own / ALONE_DIVISOR
        && ask.used.saturating_add(ask.true_size.into()) <= ask.limit - ask.limit / NEXT_DIVISOR
}

/// What waits of a source in a socket, by each of its prefixes: as much of what waits there as it
/// has of what was granted there lately. Bytes, the longest prefix first.
struct HeldShare<const N: usize>([f64; N]);

impl<const N: usize> HeldShare<N> {
    /// `all` is what the socket granted lately. A division.
    #[inline(always)]
    fn of(ask: &FairRequest, granted: [f64; N], all: f64) -> Self {
        let each = in_bytes(ask.used) / (if all > 1.0 { all } else { 1.0 });
        Self(granted.map(|own| (if own < all { own } else { all }) * each))
    }

    /// Whether each prefix holds little compared with the room that is left, and with what the
    /// wider ones leave of it.
    #[inline(always)]
    fn is_light(&self, ask: &FairRequest, parts: [f64; N]) -> bool {
        let full = ask.limit - ask.limit / RESERVE_DIVISOR;
        let room = full.saturating_sub(ask.used);
        let (mut left, asked) = (in_bytes(room), f64::from(ask.true_size));
        let mut is_light = room >= u64::from(ask.true_size);
        for (held, part) in self.0.into_iter().rev().zip(parts) {
            // A source that holds nothing may always begin where there is any room.
            let may_hold = left * part;
            left = (if may_hold > asked { may_hold } else { asked }) - (held + asked);
            // No early return: whether a source is light during a flood is a branch that no
            // processor predicts.
            is_light &= left >= 0.0;
        }
        is_light
    }

    /// Whether an answered peer holds so little that the reserve is for it.
    #[inline(always)]
    fn has_reserve(&self, ask: &FairRequest) -> bool {
        let asked = u64::from(ask.true_size);
        let room = ask.limit.saturating_sub(ask.used).min(ask.limit / RESERVE_DIVISOR);
        let most = in_bytes((room / ANSWERED_DIVISOR).max(asked));
        let host = self.0.first().copied().unwrap_or(0.0);
        room >= asked && host + f64::from(ask.true_size) <= most
    }
}

/// Beyond 4 GiB all is alike.
#[inline(always)]
fn in_bytes(bytes: u64) -> f64 {
    f64::from(bytes.min(u32::MAX.into()) as u32)
}

#[cfg(test)]
mod tests;
