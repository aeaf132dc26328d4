//! Optional settings of a connection: time limits of the handshake and of unacknowledged data, and
//! the limit of unsent data.
//!
//! Part of [`crate::rare_state`], as most connections have the defaults; used by `output.rs` before
//! data is sent, by `timeouts.rs` while a SYN is unanswered. Reading: RFC 1122 section 4.2.3.5.

use core::time::Duration;

use crate::settings::TcpSettings;

/// As many SYNs as the time limit permits.
const ANY_SYNS: u8 = u8::MAX;

/// The optional settings of one connection, in compact form: 16 bytes.
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
}

impl UserOptions {
    /// None is set.
    pub(crate) const NONE: Self =
        Self { unsent_most: u32::MAX, opening: 0, stalling: 0, syn_retries: ANY_SYNS };

    /// Whether a program has set any of them.
    #[inline]
    pub(crate) const fn is_any(settings: &TcpSettings) -> bool {
        settings.unsent_bytes.is_some()
            || settings.open_timeout.is_some()
            || settings.user_timeout.is_some()
            || settings.syn_retries.is_some()
    }

    pub(crate) fn of(settings: &TcpSettings) -> Self {
        Self {
            unsent_most: settings.unsent_bytes.unwrap_or(u32::MAX),
            opening: millis(settings.open_timeout),
            stalling: millis(settings.user_timeout),
            syn_retries: settings.syn_retries.unwrap_or(ANY_SYNS),
        }
    }

    /// Whether unsent data is limited.
    pub(crate) const fn limits_unsent(&self) -> bool {
        self.unsent_most != u32::MAX
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
