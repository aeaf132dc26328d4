//! `ConnectionFlags`: what of a connection is a yes or a no, one bit each.
//!
//! Part of `Connection`. Some say that its [`crate::rare_state`] has something of note, so that the
//! usual path tests a bit and does not look there.

use crate::settings::TcpSettings;

/// A set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ConnectionFlags(u16);

impl ConnectionFlags {
    /// Nagle's algorithm is off.
    pub(crate) const NODELAY: Self = Self(0x1);
    /// Partial segments wait for more data, as long as possible.
    pub(crate) const CORK: Self = Self(0x2);
    /// The last write had `MSG_MORE`.
    pub(crate) const MORE: Self = Self(0x4);
    /// A congestion window that was unused is reduced (RFC 5681 section 4.1).
    pub(crate) const RESTARTS_SLOWLY: Self = Self(0x8);
    /// The send buffer is limited below `send_bytes` while the congestion window is small.
    pub(crate) const SEND_TUNED: Self = Self(0x10);
    /// Unsent bytes have a limit, which is in the rare state.
    pub(crate) const LIMITS_UNSENT: Self = Self(0x20);
    /// There is a user timeout (RFC 5482), which is in the rare state.
    pub(crate) const USER_TIMEOUT: Self = Self(0x40);
    /// There is a keepalive, of which the rare state has the times.
    pub(crate) const KEEPALIVE: Self = Self(0x80);
    /// More is known of the path than its MTU: it is in the rare state.
    pub(crate) const PATH: Self = Self(0x100);
    /// The path carries less than IPv4's floor: routers may fragment.
    pub(crate) const CLEARS_DF: Self = Self(0x200);
    /// The segment built last is a probe for a larger segment size.
    pub(crate) const SIZE_PROBE: Self = Self(0x400);
    /// ECN: the peer's segments were marked: ECE is set on every segment until the peer sends CWR.
    pub(crate) const ECHO: Self = Self(0x800);
    /// ECN: the window was reduced: CWR is set on the next new data.
    pub(crate) const REDUCED: Self = Self(0x1000);
    /// ECN: the segment built last is ECN-capable.
    pub(crate) const CAPABLE: Self = Self(0x2000);
    /// A timer is set that is in the rare state.
    pub(crate) const TIMED: Self = Self(0x4000);
    /// A duplicate is to be reported, which is in the rare state (D-SACK, RFC 2883 section 4).
    pub(crate) const DUPLICATE: Self = Self(0x8000);

    /// Those that settings give; the others are clear.
    pub(crate) const fn of(settings: &TcpSettings) -> Self {
        let mut flags = Self(0);
        flags.take_settings(settings);
        flags
    }

    /// Sets or clears those that settings give, of an open connection.
    pub(crate) const fn take_settings(&mut self, settings: &TcpSettings) {
        self.set(Self::NODELAY, settings.nodelay);
        self.set(Self::CORK, settings.cork);
        self.set(Self::MORE, false);
        self.set(Self::RESTARTS_SLOWLY, settings.slow_start_after_idle);
        self.set(Self::SEND_TUNED, settings.send_tuned);
    }

    /// Both sets.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it contains any of these.
    #[inline(always)]
    pub(crate) const fn has(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }

    /// Adds these, or removes them.
    #[inline(always)]
    pub(crate) const fn set(&mut self, these: Self, on: bool) {
        if on {
            self.0 |= these.0;
        } else {
            self.0 &= !these.0;
        }
    }

    /// Removes these; returns whether it had any of them.
    #[inline(always)]
    pub(crate) const fn take(&mut self, these: Self) -> bool {
        let had = self.has(these);
        self.0 &= !these.0;
        had
    }
}
