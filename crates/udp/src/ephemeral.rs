//! Ephemeral port selection.
//!
//! Random choice with re-randomised attempts (RFC 6056 section 3.3.2, algorithm 2), so that an
//! off-path attacker cannot guess a port; where chance fails, a walk from a random start finds what
//! is left (section 3.3.1). Invariant: an error means that every port of the range is really taken.

use core::ops::RangeInclusive;

use floodwall_base::SecretRandom;

use crate::demux::{KeyHold, SocketDemux};

/// Random attempts. With nine of ten ports taken, all of them fail once in 29 times.
const PORT_ATTEMPTS: usize = 32;

/// A port of `range` that `hold` may have and that `suits`, never one that it would share. At most
/// [`PORT_ATTEMPTS`]
/// and one look at each port of the range: 0.2 ms where all are taken.
pub(crate) fn pick(
    demux: &SocketDemux,
    hold: KeyHold,
    range: &RangeInclusive<u16>,
    random: &mut SecretRandom,
    suits: impl Fn(u16) -> bool,
) -> Option<u16> {
    let (first, count) = (*range.start(), u64::from(*range.end()) + 1);
    let count = count.saturating_sub(u64::from(first));
    let is_free = |port: &u16| {
        let free = *port != 0 && !demux.refuses(&KeyHold { port: *port, reuse: false, ..hold });
        free && suits(*port)
    };
    let mut port_at = |n: u64| first.wrapping_add((n % count.max(1)) as u16);
    if count == 0 {
        return None;
    }
    for _ in 0..PORT_ATTEMPTS {
        let port = port_at(random.below(count));
        if is_free(&port) {
            return Some(port);
        }
    }
    let start = random.below(count);
    (start..start + count).map(&mut port_at).find(is_free)
}
