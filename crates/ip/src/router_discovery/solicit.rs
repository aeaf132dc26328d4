//! `RouterSolicitor`: when to send router solicitations, at growing intervals.
//!
//! Called by `router_discovery.rs`. Invariant: no two solicitations are closer than nine tenths of
//! the interval, which doubles up to an hour, so that a link without a router sees little traffic;
//! routers that come and go cannot make us solicit faster than the first interval. Read first: RFC
//! 4861 section 6.3.7, RFC 7559 section 2.

use core::time::Duration;

use floodwall_base::{Instant, PublicRandom};

/// Maximum delay of the first solicitation (MAX_RTR_SOLICITATION_DELAY).
pub const SOLICITATION_DELAY_MAX: Duration = Duration::from_secs(1);
/// The first interval (IRT of RFC 7559).
pub const SOLICITATION_INTERVAL: Duration = Duration::from_secs(4);
/// The longest interval (MRT of RFC 7559).
pub const SOLICITATION_INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// The solicitation timer of one interface.
#[derive(Clone, Debug)]
pub struct RouterSolicitor {
    next: Option<Instant>,
    interval: Duration,
    /// No solicitation before this moment.
    not_before: Instant,
}

impl RouterSolicitor {
    /// Sends its first solicitation within a second from `now`.
    #[must_use]
    pub fn new(now: Instant, random: &mut PublicRandom) -> Self {
        let not_before = Instant::ORIGIN;
        let mut this = Self { next: None, interval: SOLICITATION_INTERVAL, not_before };
        this.restart(now, random);
        this
    }

    /// Whether to send one now.
    pub fn work(&mut self, now: Instant, random: &mut PublicRandom) -> bool {
        if self.next.is_none_or(|next| now < next) {
            return false;
        }
        // RFC 7559 section 2.1: a tenth more or less.
        let nanos = self.interval.as_nanos() as u64;
        let jittered = nanos - nanos / 10 + random.below(nanos / 5);
        self.next = Some(now + Duration::from_nanos(jittered));
        self.not_before = now + SOLICITATION_INTERVAL;
        self.interval = (self.interval * 2).min(SOLICITATION_INTERVAL_MAX);
        true
    }

    /// A router has advertised: no more solicitations.
    pub const fn stop(&mut self) {
        self.next = None;
    }

    /// The link is another, or its last router is gone: starts over, but never sooner after the
    /// last solicitation than the first interval.
    pub fn restart(&mut self, now: Instant, random: &mut PublicRandom) {
        let nanos = random.below(SOLICITATION_DELAY_MAX.as_nanos() as u64);
        self.next = Some((now + Duration::from_nanos(nanos)).max(self.not_before));
        self.interval = SOLICITATION_INTERVAL;
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
        let first = solicitor.deadline().unwrap();
        assert!(first < Instant::ORIGIN + SOLICITATION_DELAY_MAX);
        let (mut last, mut interval) = (None, SOLICITATION_INTERVAL);
        for _ in 0..20 {
            let now = solicitor.deadline().unwrap();
            assert!(solicitor.work(now, &mut random) && !solicitor.work(now, &mut random));
            if let Some(last) = last {
                let waited = now - last;
                assert!(waited >= interval * 9 / 10 && waited <= interval * 11 / 10);
                interval = (interval * 2).min(SOLICITATION_INTERVAL_MAX);
            }
            last = Some(now);
        }
        assert_eq!(interval, SOLICITATION_INTERVAL_MAX);
        solicitor.stop();
        assert_eq!(solicitor.deadline(), None);
        assert!(!solicitor.work(Instant::FAR, &mut random));
    }

    #[test]
    fn routers_that_come_and_go_cannot_make_us_ask_faster() {
        let mut random = PublicRandom::new(3);
        let mut solicitor = RouterSolicitor::new(Instant::ORIGIN, &mut random);
        let (mut now, mut asked) = (Instant::ORIGIN, 0);
        let end = now + Duration::from_secs(100);
        while now < end {
            asked += u32::from(solicitor.work(now, &mut random));
            solicitor.stop();
            solicitor.restart(now, &mut random);
            now += Duration::from_millis(10);
        }
        assert!((15..=26).contains(&asked), "{asked} in 100 seconds");
    }
}
