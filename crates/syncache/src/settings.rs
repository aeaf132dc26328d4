//! What a cache and a listener are told at their start.
//!
//! Read by `syn_cache.rs`; filled by the configuration. The defaults are those of
//! [`floodwall_base::limits`]. Invariant: no value makes the cache fail: each is brought within
//! its bounds at construction.

use floodwall_base::limits;

/// When a SYN is answered by a cookie alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CookiePolicy {
    /// Never: what is not in the cache is lost.
    Never,
    /// When the cache, or the source's share of it, overflows.
    #[default]
    Overflow,
    /// Always: nothing is cached, no SYN-ACK is sent again.
    Always,
}

/// What a cache is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheSettings {
    /// Rows, rounded up to a power of two.
    pub rows: usize,
    /// Half-open connections at most, in all; rows times [`limits::SYN_CACHE_WAYS`] where that is
    /// less.
    pub entries: usize,
    /// Half-open connections of one source prefix (IPv4 /24, IPv6 /56) at most.
    pub prefix_entries: usize,
    /// SYN-ACKs sent again in a second, and at once.
    pub retransmits: (u32, u32),
    /// Cookies verified in a second, and at once. Half of it is kept for flows to which a cookie
    /// was sent lately.
    pub verifications: (u32, u32),
    /// Whether other instances make cookies with the same secret: then every unknown ACK is
    /// verified, under the budget (decision E23).
    pub shared: bool,
    /// Listeners at most.
    pub listeners: usize,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            rows: limits::SYN_CACHE_ROWS,
            entries: limits::SYN_CACHE_ENTRIES,
            prefix_entries: limits::SYN_CACHE_PREFIX_MAX,
            retransmits: (limits::SYN_ACK_RETRANSMIT_RATE, limits::SYN_ACK_RETRANSMIT_BURST),
            verifications: (limits::SYN_COOKIE_VERIFY_RATE, limits::SYN_COOKIE_VERIFY_BURST),
            shared: false,
            listeners: limits::LISTENERS_MAX,
        }
    }
}

/// What a listener is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListenSettings {
    /// Connections that may wait to be accepted. It bounds nothing else: half-open connections are
    /// the cache's.
    pub backlog: usize,
    /// Of these, how many may be of one source prefix.
    pub prefix_backlog: usize,
    /// When SYNs are answered by cookies alone.
    pub cookies: CookiePolicy,
    /// The window of SYN-ACKs.
    pub window: u16,
    /// Our shift, sent to who offers one; at most 14.
    pub window_scale: u8,
    /// Our largest segment for IPv4 and for IPv6 clients.
    pub mss: (u16, u16),
    /// Whether selective acknowledgements are permitted to who offers them.
    pub sack: bool,
    /// Whether timestamps are sent to who offers them.
    pub timestamps: bool,
    /// Whether ECN is agreed to.
    pub ecn: bool,
}

impl ListenSettings {
    /// A listener of that backlog: all options, three quarters of the backlog for one prefix.
    #[must_use]
    pub const fn new(backlog: usize) -> Self {
        let backlog = if backlog == 0 { 1 } else { backlog };
        Self {
            backlog,
            prefix_backlog: backlog - backlog / 4,
            cookies: CookiePolicy::Overflow,
            window: u16::MAX,
            window_scale: 7,
            mss: (1460, 1440),
            sack: true,
            timestamps: true,
            ecn: true,
        }
    }
}
