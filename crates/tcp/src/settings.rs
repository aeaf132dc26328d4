//! Settings of a whole set of connections, and of one connection.
//!
//! Plain values with defaults; the bounds are explained in `base/limits.rs`. Invariant: no value
//! causes a panic: values are clamped where they are used.

use core::num::NonZeroU32;
use core::ops::RangeInclusive;
use core::time::Duration;

use floodwall_base::limits;

use crate::congestion::Algorithm;

/// Settings of one connection; a listener's connections inherit those of the listener.
#[derive(Clone, Debug)]
pub struct TcpSettings {
    /// The maximum receive buffer in true bytes, which bounds the window.
    pub receive_bytes: u32,
    /// Auto-tuning: the window begins small and grows towards `receive_bytes` as the program reads
    /// (`tuning.rs`); otherwise it has its full size at once.
    pub receive_tuned: bool,
    /// The maximum send buffer in true bytes.
    pub send_bytes: u32,
    /// Auto-tuning: the send buffer is limited to what fills the congestion window; otherwise it is
    /// always `send_bytes`.
    pub send_tuned: bool,
    /// Small segments are sent at once although others are unacknowledged (Nagle's algorithm off).
    pub nodelay: bool,
    /// A partial segment waits for more data (`TCP_CORK`), or for the end; where nothing is in
    /// flight, at most for a retransmission timeout (200 ms on short paths). Takes precedence over
    /// `nodelay`.
    pub cork: bool,
    /// Limit of bytes written and not yet sent (`TCP_NOTSENT_LOWAT`): beyond it, writes block. For
    /// programs on the same core; others have `send_bytes` of credit.
    pub unsent_bytes: Option<u32>,
    /// The delayed ACK policy.
    pub acknowledge: Acknowledge,
    /// Keepalive: after how long a silence the peer is probed (RFC 9293 section 3.8.4).
    pub keepalive: Option<Keepalive>,
    /// The user timeout: how long data may stay unacknowledged (RFC 5482); `None` leaves it to the
    /// limit of retransmissions.
    pub user_timeout: Option<Duration>,
    /// The time limit of the handshake, at most three minutes (RFC 9293 section 3.8.3; FreeBSD's
    /// `TCP_KEEPINIT`).
    pub open_timeout: Option<Duration>,
    /// The maximum of SYN retransmissions (`TCP_SYNCNT`); `None` is as many as the time limit
    /// permits.
    pub syn_retries: Option<u8>,
    /// The maximum payload of a segment, announced and sent, instead of the path's (`TCP_MAXSEG`).
    /// Fixed when opened; never below `TCP_MSS_FLOOR`.
    pub mss: Option<u16>,
    /// A congestion window that was unused for an RTO is reduced (RFC 5681 section 4.1).
    pub slow_start_after_idle: bool,
    /// The hop limit or time to live of sent packets, instead of the interface's.
    pub hop_limit: Option<u8>,
    /// The TOS byte or traffic class of sent packets (RFC 9293 section 3.9.2). Its two lowest bits
    /// belong to ECN, and are ignored.
    pub traffic_class: u8,
    /// A listener shares its address and port with others that have this set too: a keyed hash of
    /// the endpoints distributes connections among them (`SO_REUSEPORT`).
    pub share_port: bool,
    /// A listener at port 0 accepts on every port of its addresses that has no listener of its own.
    /// A connection's local endpoint is the destination that its peer chose.
    pub every_port: bool,
    /// For a listener: its connections may be reset to make room for others where places run out,
    /// once they have been idle for so long (no segment of the peer); zero means at any time, and
    /// `None` never. Always of the source prefix that holds most; `None` leaves its places to
    /// whichever peer takes them first, so limit them by `places_max`.
    pub evict_idle_after: Option<Duration>,
    /// For a listener: the maximum number of its connections on each shard. Beyond it a newcomer
    /// evicts one of the source prefix that holds most of them, or is refused.
    pub places_max: Option<usize>,
    /// For a listener: the maximum number of its connections on each shard of one source prefix
    /// (IPv4 /24, IPv6 /48). Beyond it a newcomer evicts an idle one of these, or is refused.
    pub per_prefix_max: Option<usize>,
    /// The congestion controller.
    pub algorithm: Algorithm,
    /// Request ECN (RFC 3168), and accept requests of peers.
    pub ecn: bool,
    /// Offer and accept timestamps (RFC 7323 section 3).
    pub timestamps: bool,
    /// Offer and accept selective acknowledgments (RFC 2018).
    pub sack: bool,
    /// Offer and accept window scaling (RFC 7323 section 2).
    pub window_scale: bool,
}

impl TcpSettings {
    /// The segment size to use, within what the path carries.
    pub(crate) fn wanted_mss(&self, path: u16) -> u16 {
        self.mss.map_or(path, |mss| mss.max(limits::TCP_MSS_FLOOR).min(path))
    }
}

/// The delayed ACK policy: how soon in-order data is acknowledged; never later than 40 ms (RFC 9293
/// section 3.8.6.3 permits half a second). Out-of-order data is always acknowledged at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Acknowledge {
    /// Every second full segment.
    #[default]
    SecondFull,
    /// Every second segment of any length: as BSD-derived systems do.
    EverySecond,
    /// Each segment (`TCP_QUICKACK`).
    AtOnce,
}

/// The keepalive parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keepalive {
    /// Idle time before the first probe.
    pub idle: Duration,
    /// Interval between probes.
    pub interval: Duration,
    /// Number of unanswered probes that ends the connection.
    pub count: u8,
}

/// The same as stored in each connection, in whole milliseconds: a quarter of the size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeepaliveTimes {
    idle: NonZeroU32,
    interval: NonZeroU32,
    pub(crate) count: u8,
}

impl KeepaliveTimes {
    pub(crate) fn of(keepalive: Keepalive) -> Self {
        let millis = |time: Duration| {
            let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
            NonZeroU32::new(millis).unwrap_or(NonZeroU32::MIN)
        };
        let Keepalive { idle, interval, count } = keepalive;
        Self { idle: millis(idle), interval: millis(interval), count }
    }

    pub(crate) const fn idle(self) -> Duration {
        Duration::from_millis(self.idle.get() as u64)
    }

    pub(crate) const fn interval(self) -> Duration {
        Duration::from_millis(self.interval.get() as u64)
    }
}

impl Default for Keepalive {
    /// Linux's defaults: two hours, 75 seconds, nine probes (RFC 9293 section 3.8.4: MUST-28).
    fn default() -> Self {
        let (idle, interval) = (Duration::from_secs(7200), Duration::from_secs(75));
        Self { idle, interval, count: 9 }
    }
}

impl Default for TcpSettings {
    fn default() -> Self {
        Self {
            receive_bytes: limits::TCP_RECEIVE_BYTES as u32,
            receive_tuned: true,
            send_bytes: limits::TCP_SEND_BYTES as u32,
            send_tuned: true,
            nodelay: false,
            cork: false,
            unsent_bytes: None,
            acknowledge: Acknowledge::default(),
            keepalive: None,
            user_timeout: None,
            open_timeout: None,
            syn_retries: None,
            mss: None,
            slow_start_after_idle: true,
            hop_limit: None,
            traffic_class: 0,
            share_port: false,
            every_port: false,
            evict_idle_after: Some(Duration::ZERO),
            places_max: None,
            per_prefix_max: None,
            algorithm: Algorithm::default(),
            ecn: false,
            timestamps: true,
            sack: true,
            window_scale: true,
        }
    }
}

/// Settings of a whole set.
#[derive(Clone, Debug)]
pub struct TcpConfig {
    /// Maximum number of connections.
    pub connections_max: usize,
    /// Maximum number of listeners.
    pub listeners_max: usize,
    /// Maximum backlog of one listener: connections that wait to be accepted.
    pub backlog_max: usize,
    /// The range of ephemeral ports.
    pub ephemeral: RangeInclusive<u16>,
    /// Maximum number of TIME-WAIT records.
    pub time_waits_max: usize,
    /// Limit of true bytes that all connections hold together: sent and not acknowledged, received
    /// and not read. Never more than half of the pool's frames, or what other users leave of them,
    /// so that packets can still arrive.
    pub memory_bytes: u64,
    /// Whether that memory is shared between source prefixes: each is guaranteed its fair share,
    /// and where memory is short connections of the prefixes that hold most are reset. Where false,
    /// whichever connection takes memory first keeps it.
    pub fair_memory: bool,
    /// Whether expected segments without progress cost tokens of their flow and prefix under
    /// pressure. Where false, replays of real connections go before newcomers.
    pub flow_credit: bool,
    /// The duration of TIME-WAIT: twice the maximum segment lifetime (2 MSL).
    pub time_wait: Duration,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            connections_max: limits::TCP_CONNECTIONS_MAX,
            listeners_max: limits::LISTENERS_MAX,
            backlog_max: limits::TCP_BACKLOG_MAX,
            ephemeral: 32_768..=60_999,
            time_waits_max: limits::TCP_TIME_WAITS,
            memory_bytes: u64::MAX,
            fair_memory: true,
            flow_credit: true,
            time_wait: limits::TCP_TIME_WAIT,
        }
    }
}
