//! The settings of a cache and of a listener.
//!
//! Read by `syn_cache.rs`; set by the configuration. The defaults are those of
//! [`floodwall_base::limits`]. Invariant: no value makes the cache fail: each is clamped to its
//! bounds at construction.

use floodwall_base::limits;

/// When a SYN is answered by a cookie only, without an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CookiePolicy {
    /// Never: a SYN that does not fit the cache is dropped.
    Never,
    /// When the cache, or the share of the source prefix, overflows.
    #[default]
    Overflow,
    /// Always: nothing is cached, no SYN-ACK is retransmitted.
    Always,
}

/// The settings of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheSettings {
    /// Rows, rounded up to a power of two.
    pub rows: usize,
    /// Maximum total of half-open connections; rows times [`limits::SYN_CACHE_WAYS`] where that
    /// is less.
    pub entries: usize,
    /// Maximum of half-open connections of one source prefix (IPv4 /24, IPv6 /56).
    pub prefix_entries: usize,
    /// SYN-ACK retransmissions per second, and the burst.
    pub retransmits: (u32, u32),
    /// Cookie verifications per second, and the burst. Half of it is reserved for flows to
    /// which a cookie was sent recently.
    pub verifications: (u32, u32),
    /// Whether other instances make cookies with the same secret: then every unknown ACK is
    /// verified, within the budget (decision E23).
    pub shared: bool,
    /// Maximum number of listeners.
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

/// The settings of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListenSettings {
    /// The backlog: connections that may wait to be accepted. It bounds nothing else: half-open
    /// connections belong to the cache.
    pub backlog: usize,
    /// The part of the backlog that one source prefix may fill.
    pub prefix_backlog: usize,
    /// When SYNs are answered by cookies only.
    pub cookies: CookiePolicy,
    /// The window of SYN-ACKs.
    pub window: u16,
    /// Our window scale, sent to clients that offer one; at most 14.
    pub window_scale: u8,
    /// Whether windows are scaled for clients that offer it.
    pub scaling: bool,
    /// Our largest segment for IPv4 and for IPv6 clients.
    pub mss: (u16, u16),
    /// Whether selective acknowledgements are permitted to clients that offer them.
    pub sack: bool,
    /// Whether timestamps are sent to clients that offer them.
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
            scaling: true,
            mss: (1460, 1440),
            sack: true,
            timestamps: true,
            ecn: true,
        }
    }
}
