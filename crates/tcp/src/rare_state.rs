//! `RareState`: what few connections need, and those that do not at each segment: unusual settings,
//! the budget of challenge ACKs, the state of path MTU discovery, an out-of-order FIN, duplicate
//! data to report (D-SACK), the keepalive timer, and the timer of a retry for want of memory.
//!
//! A connection takes one from its shard's slab when it has something to keep there, and gives it
//! back when it is freed. Flags of the connection say which parts are of note
//! ([`crate::connection_flags`]). Invariant: a part that has a flag counts only while that is set;
//! the others have the value that they have in a connection without a state.
//!
//! # Under flood
//! Reachable by any host that forges a peer's address and hits its window (challenge ACKs, answers
//! to segments outside of the window), by a peer that sends an out-of-order FIN or duplicate data,
//! and by routers (packet too big); by programs with such settings; by all that fills the pool.
//! Bound: one for each place ([`crate::state_slab`]), so that the flood of one connection takes
//! none from another. When full, which the bound excludes: no challenge ACK is sent, a FIN out of
//! order is dropped, duplicate data is not reported, a packet too big is ignored, and there is no
//! keepalive. Honest traffic loses nothing. Moves no counter of its own. Shown by
//! `answers_out_of_window_take_one_rare_state_of_the_connection_that_is_hit`.

mod of_connection;

use floodwall_base::Seq;
use floodwall_wire::tcp_options::SackBlock;

use crate::challenge::ChallengeLimit;
use crate::coarse_time::CoarseTime;
use crate::path::PathSize;
use crate::settings::KeepaliveTimes;
use crate::timer::RareTimers;
use crate::user_options::UserOptions;

/// What few connections need.
#[derive(Clone, Debug)]
pub(crate) struct RareState {
    pub(crate) keepalive: Option<KeepaliveTimes>,
    pub(crate) options: UserOptions,
    pub(crate) path: PathSize,
    /// The budget of challenge ACKs.
    pub(crate) challenges: ChallengeLimit,
    /// When a segment outside of the window was last answered (ends an ACK loop).
    pub(crate) answered: CoarseTime,
    /// The end of the peer's FIN, where that arrived out of order (`Connection::fin_ahead`).
    pub(crate) fin_end: Seq,
    pub(crate) timers: RareTimers,
    /// The duplicate to report next.
    pub(crate) duplicate: SackBlock,
}

impl RareState {
    const NONE: Self = Self {
        keepalive: None,
        options: UserOptions::NONE,
        path: PathSize::UNKNOWN,
        challenges: ChallengeLimit::new(),
        answered: CoarseTime::ORIGIN,
        fin_end: Seq(0),
        timers: RareTimers::NONE,
        duplicate: SackBlock { left: 0, right: 0 },
    };
}

const _: () = assert!(size_of::<RareState>() <= 96, "beside a connection of 512 bytes");
