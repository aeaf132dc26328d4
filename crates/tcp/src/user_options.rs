//! Optional settings of a connection: time limits of the handshake and of unacknowledged data,
//! corking, unsent data limit, and slow start after idle.
//!
//! Part of `connection.rs`; used by `output.rs` before data is sent, by `timeouts.rs` while a SYN
//! is unanswered. Sixteen bytes: most connections have the defaults. Reading: RFC 1122 section
//! 4.2.3.5, RFC 5681 section 4.1.

use core::time::Duration;

use crate::settings::TcpSettings;

/// As many SYNs as the time limit permits.
const ANY_SYNS: u8 = u8::MAX;

/// The optional settings of one connection, in compact form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserOptions {
    /// Limit of bytes written and not sent.
    unsent_most: u32,
    /// Time limit of the handshake in milliseconds; 0 is the default.
    opening: u32,
    /// Milliseconds that data may stay unacknowledged (user timeout, RFC 5482); 0 is the default.
    stalling: u32,
    /// Maximum of SYN retransmissions, or [`ANY_SYNS`].
    syn_retries: u8,
    /// A congestion window that was unused is reduced.
    pub(crate) restarts_slowly: bool,
    cork: bool,
    /// The last write had `MSG_MORE`.
    more: bool,
}

impl UserOptions {
    /// None is set.
    pub(crate) const NONE: Self = Self {
        unsent_most: u32::MAX,
        opening: 0,
        stalling: 0,
        syn_retries: ANY_SYNS,
        restarts_slowly: false,
        cork: false,
        more: false,
    };

    pub(crate) fn of(settings: &TcpSettings) -> Self {
        Self {
            unsent_most: settings.unsent_bytes.unwrap_or(u32::MAX),
            opening: millis(settings.open_timeout),
            stalling: millis(settings.user_timeout),
            syn_retries: settings.syn_retries.unwrap_or(ANY_SYNS),
            restarts_slowly: settings.slow_start_after_idle,
            cork: settings.cork,
            more: false,
        }
    }

    /// Whether a partial segment is held back, as long as possible: once nothing is in flight,
    /// until the persist timer expires.
    pub(crate) const fn holds_back(&self) -> bool {
        self.cork || self.more
    }

    /// Whether writes or unsent data are treated in any other than the usual way.
    pub(crate) const fn is_particular(&self) -> bool {
        self.cork || self.unsent_most != u32::MAX
    }

    pub(crate) const fn set_cork(&mut self, on: bool) {
        self.cork = on;
    }

    /// Notes a write, and whether more data follows.
    pub(crate) const fn writes(&mut self, more: bool) {
        self.more = more;
    }

    /// How many bytes may be written where so many are unsent: at least a segment, if any.
    pub(crate) fn room(&self, unsent: u32, mss: u32) -> usize {
        match self.unsent_most.saturating_sub(unsent) {
            0 => 0,
            room => room.max(mss) as usize,
        }
    }

    /// The time limit of the handshake; the argument is the default.
    pub(crate) fn opening(&self, usual: Duration) -> Duration {
        bounded(usual, self.opening)
    }

    /// The user timeout, where the application has set one.
    pub(crate) const fn user_timeout(&self) -> Option<Duration> {
        match self.stalling {
            0 => None,
            millis => Some(Duration::from_millis(millis as u64)),
        }
    }

    /// The time limit of unacknowledged data; the argument is the default.
    pub(crate) fn stalling(&self, usual: Duration) -> Duration {
        bounded(usual, self.stalling)
    }

    /// Whether a SYN that was retransmitted so often is retransmitted once more.
    pub(crate) const fn tries_again(&self, retries: u8) -> bool {
        self.syn_retries == ANY_SYNS || retries < self.syn_retries
    }
}

/// At least one, where there is a limit; 0 means none.
fn millis(time: Option<Duration>) -> u32 {
    time.map_or(0, |time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1))
}

fn bounded(usual: Duration, millis: u32) -> Duration {
    match millis {
        0 => usual,
        millis => usual.min(Duration::from_millis(millis.into())),
    }
}
