//! What happens by itself: lifetimes end, links go and come.
//!
//! Called by `stack` for timed work. Both are done in steps of a number that the caller gives, and
//! resumed; neither decides an answer: readers check lifetimes by their own clock, and pass over a
//! next hop with a link that is down.

use core::time::Duration;

use floodwall_base::{IfIndex, Instant};
use floodwall_sync::shim::atomic::Ordering::Release;

use crate::fib::Fib;
use crate::lpm::LpmFamily;
use crate::records::NONE;

/// How long after a failed removal no deadline is reported: it is tried again before that.
const REMOVAL_RETRY: Duration = Duration::from_millis(4);

/// The cost of one visit of [`Fib::sweep`] below a route, in the trie's units.
const SWEEP_VISIT_UNITS: usize = 16;

/// Routes that are looked at in the very call that reports a link as down or up.
pub(crate) const SWEPT_AT_ONCE: usize = 1024;

impl<A: LpmFamily> Fib<A> {
    /// Removes routes that are over, `most` of them at most; returns how many it visited, each of
    /// which was due. The rest is for the next call: see [`Fib::deadline`].
    pub fn collect(&mut self, now: Instant, most: usize) -> usize {
        let before = self.units;
        for visited in 0..most {
            // The work below removed routes counts, too.
            let is_enough = self.units - before > self.step as u64;
            if is_enough || self.ready(now).is_err() {
                return visited;
            }
            let Some(lifetime) = self.expiry.pop_due(now) else {
                self.tell_ends(now);
                return visited;
            };
            let until = self.shared.lifetimes.until(lifetime);
            let at = self.lifetime_of.get(lifetime as usize).copied().unwrap_or(NONE);
            // Too much waits for readers: it is due again at the next tick.
            if until > now || self.remove_at(at, now).is_err() {
                self.expiry.insert(lifetime, until.max(now), now);
                self.ends_known_from = now + REMOVAL_RETRY;
                return visited + 1;
            }
        }
        most
    }

    /// Gives the large tables the time before which none of their routes ends, so that look-ups
    /// until then need not check lifetimes. Not while an expired route waits to be removed.
    pub(crate) fn tell_ends(&mut self, now: Instant) {
        // A table with pending work may still show a route that has ended and is gone.
        if now >= self.ends_known_from && self.owing.is_none() {
            let from = self.expiry.ends_from();
            self.tables.iter_mut().for_each(|table| table.index.none_ends_before(from));
        }
    }

    /// When [`Fib::collect`] or [`Fib::sweep`] has something to do.
    #[inline]
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match (self.sweep, self.owing) {
            (None, None) if self.leaving.len() == 0 => self.expiry.deadline(),
            _ => Some(Instant::ORIGIN),
        }
    }

    /// Sets whether an interface carries packets. While it does not, look-ups pass its routes over;
    /// they come back with it. Of a large table some are looked at now, the others by
    /// [`Fib::sweep`]: until then packets find those, and no way out.
    pub fn set_usable(&mut self, iface: IfIndex, usable: bool, now: Instant) {
        let bit = 1_u64.checked_shl(u32::from(iface.0)).unwrap_or(0);
        let down = if usable { self.down & !bit } else { self.down | bit };
        if down == self.down {
            return;
        }
        self.down = down;
        self.shared.down.store(down, Release);
        self.sweep = Some(0);
        self.changed();
        self.sweep(now, SWEPT_AT_ONCE);
    }

    /// Whether look-ups count the routes of an interface.
    #[must_use]
    #[inline]
    pub const fn is_usable(&self, iface: IfIndex) -> bool {
        self.down.unbounded_shr(iface.0 as u32) & 1 == 0
    }

    /// Goes on with what a change left to be done: of a route, the part of the trie and the routes
    /// with an end that are below it; of many that go, the next ones; of a link, its routes. Visits
    /// `most` of them at most; returns how many it visited.
    pub fn sweep(&mut self, now: Instant, most: usize) -> usize {
        let units = most.saturating_mul(SWEEP_VISIT_UNITS);
        let below = self.go_on(units, now);
        let below = (below + self.leave(units - below, now)).div_ceil(SWEEP_VISIT_UNITS).min(most);
        let waits = self.owing.is_some() || self.leaving.len() > 0;
        let Some(from) = self.sweep.filter(|_| !waits) else { return below };
        let (end, before, mut visited) = (self.records.end(), self.units, 0);
        let mut at = from;
        while at < end && below + visited < most {
            let done = self
                .records
                .at(at)
                .map(|record| (record.table, record.prefix))
                .map_or(Ok(()), |(table, prefix)| {
                    self.ready(now).and_then(|()| self.refresh(table, prefix, now))
                });
            at += u32::from(done.is_ok());
            visited += 1;
            let owed = (self.units - before) as usize / SWEEP_VISIT_UNITS;
            if done.is_err() || below + visited + owed >= most {
                visited = (visited + owed).min(most - below);
                break;
            }
        }
        self.sweep = (at < end).then_some(at);
        self.changed();
        below + visited
    }
}
