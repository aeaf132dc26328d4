//! Ephemeral ports.
//!
//! Each is drawn at random from secret randomness (RFC 6056 section 3.3.2, algorithm 2), so that
//! ports towards one peer reveal nothing about ports towards another, and must satisfy the caller:
//! its four-tuple is free, and RSS delivers its answers to this worker (decision D16). Where random
//! attempts fail, a walk from a random start finds a free one (section 3.3.1). Invariant: `None`
//! means that no port of the range is suitable.

use core::ops::RangeInclusive;

use floodwall_base::SecretRandom;

/// Random attempts. With nine of ten ports unsuitable, all of them fail with a probability of 1/29.
const PORT_ATTEMPTS: usize = 32;

/// A port of `range` for which `suits` is true. Costs at most [`PORT_ATTEMPTS`] draws and one test
/// per port.
pub(crate) fn pick(
    range: &RangeInclusive<u16>,
    random: &mut SecretRandom,
    mut suits: impl FnMut(u16) -> bool,
) -> Option<u16> {
    let first = *range.start();
    let count = (u64::from(*range.end()) + 1).saturating_sub(u64::from(first));
    if count == 0 {
        return None;
    }
    let port_at = |n: u64| first.wrapping_add(n as u16);
    let mut suits = |port: &u16| *port != 0 && suits(*port);
    for _ in 0..PORT_ATTEMPTS {
        let port = port_at(random.below(count));
        if suits(&port) {
            return Some(port);
        }
    }
    let start = random.below(count);
    (start..count).chain(0..start).map(port_at).find(suits)
}

#[cfg(test)]
mod tests {
    use floodwall_base::Randomness;

    use super::*;

    #[test]
    fn the_last_port_that_suits_is_found() {
        let mut random = Randomness::from_number(1).secret;
        assert_eq!(pick(&(1000..=9999), &mut random, |port| port == 4242), Some(4242));
        assert_eq!(pick(&(1000..=9999), &mut random, |_| false), None);
        assert_eq!(pick(&(0..=0), &mut random, |_| true), None);
    }

    #[test]
    fn ports_spread_over_the_whole_range() {
        let mut random = Randomness::from_number(2).secret;
        let mut seen = [0; 16];
        for _ in 0..1600 {
            let port = pick(&(0x4000..=0x7fff), &mut random, |_| true).unwrap();
            seen[usize::from((port - 0x4000) >> 10)] += 1;
        }
        assert!(seen.iter().all(|n| (60..150).contains(n)), "{seen:?}");
    }
}
