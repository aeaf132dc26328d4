//! What is in flight: how much may be, what has to be sent again, and when.
//!
//! Called by the connection's handlers. One timer, its timeout after RFC 6298, and everything that
//! is not acknowledged sent again when it runs out; three duplicates send the first again at once
//! (RFC 5681 section 3.2). Invariant: what is to be sent again lies between `una` and `nxt`.

use core::time::Duration;

use floodwall_base::{Instant, Seq};

const RTO_MIN: Duration = Duration::from_millis(200);
const RTO_MAX: Duration = Duration::from_secs(60);

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Flight {
    window: u32,
    threshold: u32,
    srtt: Option<Duration>,
    var: Duration,
    backoff: u8,
    duplicates: u8,
    /// The next number to be sent again, up to where.
    again: Option<(Seq, Seq)>,
    /// The end of a segment that was sent once, and when.
    timed: Option<(Seq, Instant)>,
}

impl Flight {
    pub(crate) const fn new(mss: u32) -> Self {
        Self {
            window: 10 * mss,
            threshold: u32::MAX,
            srtt: None,
            var: Duration::ZERO,
            backoff: 0,
            duplicates: 0,
            again: None,
            timed: None,
        }
    }

    /// Takes over what was measured before the segment size was known.
    pub(crate) fn inherit(&mut self, before: Self) {
        *self = Self { window: self.window, ..before };
    }

    pub(crate) fn timeout(&self) -> Duration {
        let base = self.srtt.map_or(Duration::from_secs(1), |srtt| srtt + 4 * self.var);
        base.max(RTO_MIN).saturating_mul(1 << self.backoff.min(10)).min(RTO_MAX)
    }

    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.srtt
    }

    /// Bytes that may be in flight.
    pub(crate) const fn window(&self) -> u32 {
        self.window
    }

    pub(crate) fn sent(&mut self, end: Seq, now: Instant) {
        if self.timed.is_none() {
            self.timed = Some((end, now));
        }
    }

    pub(crate) fn sent_again(&mut self, end: Seq) {
        self.timed = None;
        if let Some((next, to)) = &mut self.again {
            *next = next.later(end);
            if to.is_at_most(*next) {
                self.again = None;
            }
        }
    }

    /// What is to be sent again next: from where, and up to where.
    pub(crate) const fn lost(&self) -> Option<(Seq, Seq)> {
        self.again
    }

    fn sample(&mut self, rtt: Duration) {
        self.backoff = 0;
        match self.srtt {
            None => (self.srtt, self.var) = (Some(rtt), rtt / 2),
            Some(srtt) => {
                self.var = self.var * 3 / 4 + srtt.abs_diff(rtt) / 4;
                self.srtt = Some(srtt * 7 / 8 + rtt / 8);
            }
        }
    }

    /// `bytes` more were acknowledged, up to `ack`.
    pub(crate) fn acked(&mut self, ack: Seq, bytes: u32, mss: u32, now: Instant) {
        if let Some((end, at)) = self.timed
            && end.is_at_most(ack)
        {
            self.timed = None;
            self.sample(now - at);
        }
        self.duplicates = 0;
        if let Some((next, to)) = self.again {
            let next = next.later(ack);
            self.again = next.is_before(to).then_some((next, to));
        }
        self.window = if self.window < self.threshold {
            self.window.saturating_add(bytes.min(2 * mss))
        } else {
            self.window.saturating_add((u64::from(mss) * u64::from(bytes) / u64::from(self.window.max(1))) as u32)
        }
        .min(1 << 30);
    }

    /// An acknowledgment told nothing new while data is in flight.
    pub(crate) fn duplicate(&mut self, una: Seq, nxt: Seq, mss: u32) {
        self.duplicates = self.duplicates.saturating_add(1);
        if self.duplicates == 3 && self.again.is_none() {
            self.threshold = (nxt.since(una) / 2).max(2 * mss);
            self.window = self.threshold;
            self.again = Some((una, una + nxt.since(una).min(mss)));
        }
    }

    pub(crate) fn timed_out(&mut self, una: Seq, nxt: Seq, mss: u32) {
        if self.backoff == 0 {
            self.threshold = (nxt.since(una) / 2).max(2 * mss);
        }
        self.backoff = self.backoff.saturating_add(1);
        self.window = mss;
        self.timed = None;
        self.again = una.is_before(nxt).then_some((una, nxt));
    }

    pub(crate) const fn backoff(&self) -> u8 {
        self.backoff
    }
}
