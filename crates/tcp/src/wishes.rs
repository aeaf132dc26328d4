//! What a program wants of a connection beyond the usual: how long to try, what to hold back, how
//! to go on after a pause.
//!
//! Part of `connection.rs`; asked by `output.rs` before data leaves, by `alarm.rs` while a SYN is
//! unanswered. Sixteen bytes: most connections have the usual ones. Reading: RFC 1122 section
//! 4.2.3.5, RFC 5681 section 4.1.

use core::time::Duration;

use crate::settings::Settings;

/// As many SYNs as time allows.
const ANY: u8 = u8::MAX;

/// See the file's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wishes {
    /// Bytes that may be written and not sent.
    unsent_most: u32,
    /// Milliseconds for the handshake; 0 is the usual.
    opening: u32,
    /// Milliseconds that data may stay unacknowledged (RFC 5482); 0 is the usual.
    stalling: u32,
    /// SYNs sent again, [`ANY`] or fewer.
    syn_retries: u8,
    /// A congestion window that nobody used shrinks.
    pub(crate) restarts_slowly: bool,
    cork: bool,
    /// The last write said that more comes.
    more: bool,
}

impl Wishes {
    pub(crate) fn of(settings: &Settings) -> Self {
        Self {
            unsent_most: settings.unsent_bytes.unwrap_or(u32::MAX),
            opening: millis(settings.open_timeout),
            stalling: millis(settings.user_timeout),
            syn_retries: settings.syn_retries.unwrap_or(ANY),
            restarts_slowly: settings.slow_start_after_idle,
            cork: settings.cork,
            more: false,
        }
    }

    /// Whether less than a full segment stays, as long as it may: once nothing is in flight, until
    /// the timer of a shut window rings.
    pub(crate) const fn holds_back(&self) -> bool {
        self.cork || self.more
    }

    pub(crate) const fn set_cork(&mut self, on: bool) {
        self.cork = on;
    }

    /// A program writes, and says whether more comes.
    pub(crate) const fn writes(&mut self, more: bool) {
        self.more = more;
    }

    /// How many bytes may be written where so many are unsent: at least a segment, where any.
    pub(crate) fn room(&self, unsent: u32, mss: u32) -> usize {
        match self.unsent_most.saturating_sub(unsent) {
            0 => 0,
            room => room.max(mss) as usize,
        }
    }

    /// For how long a handshake is tried, of the usual time.
    pub(crate) fn opening(&self, usual: Duration) -> Duration {
        bounded(usual, self.opening)
    }

    /// For how long nothing may be acknowledged, of the usual time.
    pub(crate) fn stalling(&self, usual: Duration) -> Duration {
        bounded(usual, self.stalling)
    }

    /// Whether a SYN that was sent again so often is sent once more.
    pub(crate) const fn tries_again(&self, retries: u8) -> bool {
        self.syn_retries == ANY || retries < self.syn_retries
    }
}

/// At least one, where there is a bound at all; 0 is none.
fn millis(time: Option<Duration>) -> u32 {
    time.map_or(0, |time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1))
}

fn bounded(usual: Duration, millis: u32) -> Duration {
    match millis {
        0 => usual,
        millis => usual.min(Duration::from_millis(millis.into())),
    }
}
