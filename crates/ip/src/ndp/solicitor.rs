//! `RouterSolicitor`: when to ask routers to speak, at longer and longer intervals.
//!
//! Called by `stack`, one for each interface that wants a router. Invariant: no two questions are
//! closer than nine tenths of the interval, which doubles up to an hour, so that a link without a
//! router is not bothered. Read first: RFC 4861 section 6.3.7, RFC 7559 section 2.

use core::time::Duration;

use floodwall_base::{Instant, PublicRandom};

/// How long the first question may be delayed (MAX_RTR_SOLICITATION_DELAY).
const DELAY_MAX: Duration = Duration::from_secs(1);
/// The first interval (IRT of RFC 7559).
const INTERVAL: Duration = Duration::from_secs(4);
/// The longest interval (MRT of RFC 7559).
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// See the file's head.
#[derive(Clone, Debug)]
pub struct RouterSolicitor {
    next: Option<Instant>,
    interval: Duration,
}

impl RouterSolicitor {
    /// One that first asks within a second from `now`.
    #[must_use]
    pub fn new(now: Instant, random: &mut PublicRandom) -> Self {
        let delay = Duration::from_nanos(random.below(DELAY_MAX.as_nanos() as u64));
        Self { next: Some(now + delay), interval: INTERVAL }
    }

    /// Whether to ask now.
    pub fn work(&mut self, now: Instant, random: &mut PublicRandom) -> bool {
        if self.next.is_none_or(|next| now < next) {
            return false;
        }
        // RFC 7559 section 2.1: a tenth more or less.
        let nanos = self.interval.as_nanos() as u64;
        let jittered = nanos - nanos / 10 + random.below(nanos / 5);
        self.next = Some(now + Duration::from_nanos(jittered));
        self.interval = (self.interval * 2).min(INTERVAL_MAX);
        true
    }

    /// A router has spoken: no more questions.
    pub const fn stop(&mut self) {
        self.next = None;
    }

    /// When [`RouterSolicitor::work`] must be called at the latest.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_become_rarer_and_stop_with_the_first_router() {
        let mut random = PublicRandom::new(3);
        let mut solicitor = RouterSolicitor::new(Instant::ORIGIN, &mut random);
        assert!(solicitor.deadline().is_some_and(|d| d < Instant::ORIGIN + DELAY_MAX));
        let (mut last, mut interval) = (None, INTERVAL);
        for _ in 0..20 {
            let now = solicitor.deadline().unwrap();
            assert!(solicitor.work(now, &mut random) && !solicitor.work(now, &mut random));
            if let Some(last) = last {
                let waited = now - last;
                assert!(waited >= interval * 9 / 10 && waited <= interval * 11 / 10);
                interval = (interval * 2).min(INTERVAL_MAX);
            }
            last = Some(now);
        }
        assert_eq!(interval, INTERVAL_MAX);
        solicitor.stop();
        assert_eq!(solicitor.deadline(), None);
        assert!(!solicitor.work(Instant::FAR, &mut random));
    }
}
