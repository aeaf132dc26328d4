//! `PathUpdateFilter`: which messages that quote a live flow of ours are accepted.
//!
//! Called by `stack`, by each of its shards for its own flows, before anything is stored. The order
//! is that of the work: bounds, then whether it lowers anything, then the rate. Invariant: a
//! refused message costs no credit. The credit that an accepted one costs is random: the owner of
//! one flow cannot count how much was spent for another's, which would reveal whether a guess of
//! another's ports was right (CVE-2020-25705 was the same with errors). Read first: RFC 1191
//! section 3, RFC 8201 section 4, RFC 5927 section 7.

use floodwall_base::limits::{EXCEPTION_BURST, EXCEPTION_RATE};
use floodwall_base::{Family, Instant, Price, SecretRandom, TokenBucket};

/// The minimum path MTU that is accepted. RFC 8201 section 4 lets IPv6 discard what is below 1280;
/// 552 is Linux's `min_pmtu`: a smaller one gains an attacker packets, and no link.
#[must_use]
pub const fn path_mtu_floor(family: Family) -> u32 {
    match family {
        Family::V4 => 552,
        Family::V6 => 1280,
    }
}

/// Why a message is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathUpdateRefusal {
    /// Its MTU is below the family's least.
    BelowFloor,
    /// The path is known to carry no more, or the quoted packet would have passed.
    NotLower,
    /// The rate limit is reached.
    Limited,
}

/// The content of a "packet too big" message, as far as it counts here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooBig {
    /// Its family.
    pub family: Family,
    /// The MTU of the path according to the message.
    pub mtu: u32,
    /// What it is known to carry.
    pub current: u32,
    /// Bytes of the quoted packet, according to its own header.
    pub quoted: u32,
}

/// One shard's judge: bounds and a token bucket for path MTUs and redirects.
#[derive(Clone, Debug)]
pub struct PathUpdateFilter {
    credit: TokenBucket,
    price: Price,
}

impl PathUpdateFilter {
    /// With this shard's part of its host's rate.
    #[must_use]
    pub fn new(workers: u16) -> Self {
        let part = |all: u32| all.div_ceil(u32::from(workers.max(1)));
        let price = Price::new(part(EXCEPTION_RATE), part(EXCEPTION_BURST));
        Self { credit: TokenBucket::default(), price }
    }

    /// Whether a path MTU is accepted.
    ///
    /// # Errors
    /// Why not.
    pub fn path_mtu(
        &mut self,
        said: &TooBig,
        now: Instant,
        random: &mut SecretRandom,
    ) -> Result<(), PathUpdateRefusal> {
        if said.mtu < path_mtu_floor(said.family) {
            return Err(PathUpdateRefusal::BelowFloor);
        }
        if said.mtu >= said.current || said.mtu >= said.quoted {
            return Err(PathUpdateRefusal::NotLower);
        }
        self.afford(now, random)
    }

    /// Whether one more message can be accepted at all.
    ///
    /// # Errors
    /// [`PathUpdateRefusal::Limited`].
    pub fn afford(
        &mut self,
        now: Instant,
        random: &mut SecretRandom,
    ) -> Result<(), PathUpdateRefusal> {
        if !self.credit.has(self.price, now) {
            return Err(PathUpdateRefusal::Limited);
        }
        self.credit.spend_by_chance(self.price, now, random.next_u32());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use floodwall_base::Randomness;

    use super::*;

    const NOW: Instant = Instant::from_nanos(5_000_000_000);

    fn said(family: Family, mtu: u32) -> TooBig {
        TooBig { family, mtu, current: 1500, quoted: 1500 }
    }

    #[test]
    fn only_what_lowers_a_path_and_not_below_the_floor_is_believed() {
        let (mut judge, mut random) = (PathUpdateFilter::new(1), Randomness::from_number(1).secret);
        for (family, floor) in [(Family::V4, 552), (Family::V6, 1280)] {
            let mut ask = |said| judge.path_mtu(&said, NOW, &mut random);
            for mtu in [0, 1, 68, floor - 1] {
                assert_eq!(ask(said(family, mtu)), Err(PathUpdateRefusal::BelowFloor));
            }
            for mtu in [1500, 1501, 9000, u32::MAX] {
                assert_eq!(ask(said(family, mtu)), Err(PathUpdateRefusal::NotLower));
            }
            let fitted = TooBig { quoted: floor, ..said(family, floor) };
            assert_eq!(
                ask(fitted),
                Err(PathUpdateRefusal::NotLower),
                "the packet would have passed"
            );
            for mtu in [floor, 1499] {
                assert_eq!(ask(said(family, mtu)), Ok(()));
            }
        }
    }

    #[test]
    fn belief_has_a_rate_which_refusals_do_not_spend() {
        for workers in [1, 4] {
            let (mut judge, mut random) =
                (PathUpdateFilter::new(workers), Randomness::from_number(1).secret);
            for _ in 0..100_000 {
                let _ = judge.path_mtu(&said(Family::V6, 1500), NOW, &mut random);
            }
            let mut believed = 0;
            for n in 0..10_000 {
                let now = NOW + Duration::from_millis(n);
                let said = said(Family::V6, 1280);
                let again = (0..10).filter(|_| judge.path_mtu(&said, now, &mut random).is_ok());
                believed += again.count() as u32;
            }
            let expected = (EXCEPTION_RATE * 10 + EXCEPTION_BURST) / u32::from(workers);
            assert!(believed.abs_diff(expected) < expected / 5, "{believed} for {expected}");
        }
    }

    #[test]
    fn what_was_spent_for_one_does_not_tell_another_how_often() {
        // After the same number of beliefs, the next is refused or not as chance has it.
        let mut random = Randomness::from_number(2).secret;
        let left = |random: &mut SecretRandom| {
            let mut judge = PathUpdateFilter::new(1);
            (0..1000).take_while(|_| judge.afford(NOW, random).is_ok()).count()
        };
        let all: Vec<usize> = (0..64).map(|_| left(&mut random)).collect();
        let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        assert!(most - least > 16, "{least} to {most}");
    }
}
