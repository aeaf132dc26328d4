//! What may be set: of a whole set of connections, and of one connection.
//!
//! Plain values with defaults; the reasons of the bounds stand in `base/limits.rs`. Invariant:
//! whatever stands here, nothing panics: values are clamped where they are used.

use core::num::NonZeroU32;
use core::ops::RangeInclusive;
use core::time::Duration;

use floodwall_base::limits;

use crate::congestion::Algorithm;

/// Settings of one connection; a listener's connections begin with the listener's.
#[derive(Clone, Debug)]
pub struct Settings {
    /// True bytes that may wait to be read: what the window is opened for at most.
    pub receive_bytes: u32,
    /// The window begins small and grows towards `receive_bytes` as the program reads
    /// (`tuning.rs`); without, it is opened for all of them at once.
    pub receive_tuned: bool,
    /// True bytes that may wait to be acknowledged, at most.
    pub send_bytes: u32,
    /// As many may wait as keep the congestion window filled, and no more; without, always
    /// `send_bytes`.
    pub send_tuned: bool,
    /// Small segments leave at once although others are not acknowledged (Nagle's algorithm off).
    pub nodelay: bool,
    /// Less than a full segment waits for more to be written (`TCP_CORK`), or for the end; where
    /// nothing is in flight, for a retransmission timeout at most (200 ms on short paths). It goes
    /// before `nodelay`.
    pub cork: bool,
    /// How many bytes may be written and not yet sent (`TCP_NOTSENT_LOWAT`): beyond, writes wait.
    /// For programs on the same core; others have `send_bytes` of credit.
    pub unsent_bytes: Option<u32>,
    /// How soon data is acknowledged.
    pub acknowledge: Acknowledge,
    /// After so long a silence the peer is asked whether it lives (RFC 9293 section 3.8.4).
    pub keepalive: Option<Keepalive>,
    /// How long data may stay unacknowledged (RFC 5482); `None` leaves it to the retransmissions.
    pub user_timeout: Option<Duration>,
    /// How long a connection may take to be opened, three minutes at most (RFC 9293 section 3.8.3;
    /// FreeBSD's `TCP_KEEPINIT`).
    pub open_timeout: Option<Duration>,
    /// How often an unanswered SYN is sent again (`TCP_SYNCNT`); without, as often as time allows.
    pub syn_retries: Option<u8>,
    /// The largest payload of a segment, announced and sent, where the path's is not wanted
    /// (`TCP_MAXSEG`). Fixed when opened; never below `TCP_MSS_FLOOR`.
    pub mss: Option<u16>,
    /// A congestion window that nobody used for a timeout shrinks (RFC 5681 section 4.1).
    pub slow_start_after_idle: bool,
    /// The hop limit or time to live of what is sent, where the interface's is not wanted.
    pub hop_limit: Option<u8>,
    /// The TOS byte or traffic class of what is sent (RFC 9293 section 3.9.2). Its two lowest bits
    /// are congestion's, and ignored.
    pub traffic_class: u8,
    /// A listener lets others listen at the same address and port, that say so too: each connection
    /// goes to one of them by a keyed hash of its ends (`SO_REUSEPORT`).
    pub share_port: bool,
    /// A listener at port 0 takes every port of its addresses at which nobody else listens. A
    /// connection's own end says where its peer wanted to go.
    pub every_port: bool,
    /// Who says how much may be in flight.
    pub algorithm: Algorithm,
    /// Ask the peer for congestion marks (RFC 3168); who asks us is answered as this says too.
    pub ecn: bool,
    /// Offer timestamps and agree to them (RFC 7323 section 3).
    pub timestamps: bool,
    /// Offer selective acknowledgments and agree to them (RFC 2018).
    pub sack: bool,
    /// Offer scaled windows and agree to them (RFC 7323 section 2).
    pub window_scale: bool,
}

impl Settings {
    /// The segment size that is wanted, of what the path carries.
    pub(crate) fn wanted_mss(&self, path: u16) -> u16 {
        self.mss.map_or(path, |mss| mss.max(limits::TCP_MSS_FLOOR).min(path))
    }
}

/// How soon data that came in order is acknowledged; never later than 40 ms (RFC 9293 section
/// 3.8.6.3 allows half a second). What came out of order is acknowledged at once in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Acknowledge {
    /// With every second full segment.
    #[default]
    SecondFull,
    /// With every second segment, however short: what systems of Berkeley's line do.
    EverySecond,
    /// Each segment (`TCP_QUICKACK`).
    AtOnce,
}

/// How a silent peer is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keepalive {
    /// After how long a silence.
    pub idle: Duration,
    /// How long after each question.
    pub interval: Duration,
    /// How many questions without an answer end the connection.
    pub count: u8,
}

/// The same as each connection keeps it, in whole milliseconds: a fourth of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asking {
    idle: NonZeroU32,
    interval: NonZeroU32,
    pub(crate) count: u8,
}

impl Asking {
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
    /// Linux's: two hours, 75 seconds, nine questions (RFC 9293 section 3.8.4: MUST-28).
    fn default() -> Self {
        let (idle, interval) = (Duration::from_secs(7200), Duration::from_secs(75));
        Self { idle, interval, count: 9 }
    }
}

impl Default for Settings {
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
    /// Connections at a time.
    pub connections_max: usize,
    /// Listeners at a time.
    pub listeners_max: usize,
    /// Connections that wait to be accepted, of one listener, at most.
    pub backlog_max: usize,
    /// Ports for connections that do not ask for one.
    pub ephemeral: RangeInclusive<u16>,
    /// Records of connections in TIME-WAIT at a time.
    pub time_waits_max: usize,
    /// True bytes that all connections may hold together: sent and not acknowledged, received and
    /// not read. In any case no more than half of the pool's frames, or what others leave of them,
    /// so that packets go on arriving.
    pub memory_bytes: u64,
    /// How long TIME-WAIT lasts: twice the longest life of a segment.
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
            time_wait: limits::TCP_TIME_WAIT,
        }
    }
}
