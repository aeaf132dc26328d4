//! Proportional rate reduction (RFC 9937): how the window falls during a recovery.
//!
//! Called by `recovery`. Invariant: what is sent in a recovery is at most what arrived in it,
//! scaled by the reduction, while more than `ssthresh` is in flight; below that, at most what
//! arrived, one segment more for each ACK that shows progress and no loss.

/// The PRR state of one recovery; all values in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrrState {
    ssthresh: u32,
    /// In flight when the recovery began (RecoverFS).
    flight: u32,
    delivered: u32,
    out: u32,
    /// What may be sent now.
    allowance: u32,
}

impl PrrState {
    /// A recovery begins, with `flight` bytes in flight, none of which was reported as delivered
    /// before this ACK (RecoverFS).
    #[must_use]
    pub const fn begin(flight: u32, ssthresh: u32) -> Self {
        let flight = if flight == 0 { 1 } else { flight };
        Self { ssthresh, flight, delivered: 0, out: 0, allowance: 0 }
    }

    /// Processes an ACK: `delivered` bytes were newly delivered, `pipe` is in flight, and `is_safe`
    /// is set where `una` advanced and no more loss was detected.
    pub fn on_ack(&mut self, delivered: u32, pipe: u32, is_safe: bool, mss: u32) {
        self.delivered = self.delivered.saturating_add(delivered);
        let count = if pipe > self.ssthresh {
            let share = u64::from(self.delivered) * u64::from(self.ssthresh);
            let share = share.div_ceil(u64::from(self.flight.max(1)));
            u32::try_from(share).unwrap_or(u32::MAX).saturating_sub(self.out)
        } else {
            let more = self.delivered.saturating_sub(self.out).max(delivered);
            let more = if is_safe { more.saturating_add(mss) } else { more };
            more.min(self.ssthresh - pipe)
        };
        // The first retransmission is always sent: fast retransmit.
        self.allowance = if self.out == 0 { count.max(mss) } else { count };
    }

    /// `len` bytes were sent.
    pub const fn on_sent(&mut self, len: u32) {
        self.out = self.out.saturating_add(len);
        self.allowance = self.allowance.saturating_sub(len);
    }

    /// At least `bytes` may be sent now.
    pub const fn grant(&mut self, bytes: u32) {
        if self.allowance < bytes {
            self.allowance = bytes;
        }
    }

    /// Bytes that may be sent now.
    #[must_use]
    pub const fn allowance(&self) -> u32 {
        self.allowance
    }
}
