//! `Connection`, the TCB: the state of one connection, its two halves, its timers, and the
//! operations of its application.
//!
//! Used by `connection_table.rs` for one place of its table. Arriving segments are handled in
//! `input.rs`, outgoing ones are built in `output.rs`, timers are handled in `timeouts.rs`.
//! Invariants: only [`Connection::step`] changes the state; pending output is noted in `due` and
//! built when the caller asks for it; nothing is allocated. Reading: RFC 9293 sections 3.3 and
//! 3.10.

use core::num::NonZeroU8;
use core::time::Duration;

use floodwall_base::{Counters, Family, FlowKey, Instant, Randomness, Seq};
use floodwall_packet::Pool;
use floodwall_sync::prefetch;
use floodwall_syncache::Proven;

use crate::congestion::Algorithm;
use crate::connection_flags::ConnectionFlags;
use crate::error::{ConnectionError, RecvError, SendError};
use crate::events::ConnectionEvents;
use crate::memory::{FRAME_TRUE_BYTES, HALF_LIMIT_FIRST, SMALL_PIECE, SMALL_TRUE_BYTES, Scarcity};
use crate::mss::default_mss;
use crate::orphan_patience::PlacesUsed;
use crate::out_of_order::{OooRanges, OutOfOrder};
use crate::path::{PathKept, PathSize};
use crate::pseudo_header::ends_sum;
use crate::rare_state::RareState;
use crate::receive_state::ReceiveState;
use crate::recovery::{Agreement, Recovery};
use crate::rtt::RttConfig;
use crate::segment::Segment;
use crate::send_state::SendState;
use crate::sent_segments::SentSegments;
use crate::settings::{Acknowledge, TcpSettings};
use crate::state::{StateStep, TcpState};
use crate::state_slab::{NO_STATE, StateSlab};
use crate::time_wait::{TimeWait, TimeWaitArrival, opens_anew};
use crate::timer::{AckDelay, RareTimer, TimerKind, Timers};
use crate::timestamps::{OPTION_LEN, RecentTimestamp, TimestampClock};

/// The environment that a call borrows to a connection.
pub(crate) struct ConnectionContext<'a> {
    pub(crate) now: Instant,
    pub(crate) pool: &'a Pool,
    pub(crate) random: &'a mut Randomness,
    pub(crate) counters: &'a mut Counters,
    pub(crate) runs: &'a mut OooRanges,
    pub(crate) records: &'a mut SentSegments,
    /// The memory limit of all connections is reached (`memory.rs`).
    pub(crate) full: bool,
    /// Devices complete checksums (checksum offload).
    pub(crate) partial: bool,
    /// How long connections without an owner may wait depends on this.
    pub(crate) places: PlacesUsed,
}

/// Bounds of the retransmission timeout.
const RTT_CONFIG: RttConfig = RttConfig {
    initial: Duration::from_secs(1),
    min: Duration::from_millis(200),
    max: Duration::from_secs(120),
};

/// A connection without a user timeout is not given up within so many nanoseconds of a stall.
const PATIENCE_LEAST: u64 = 1_000_000_000;

/// Bounds of the retransmission timeout.
pub(crate) const fn rto_config() -> RttConfig {
    RTT_CONFIG
}

/// Pending output: a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ConnectionDue(u8);

impl ConnectionDue {
    /// A SYN or a SYN-ACK.
    pub(crate) const SYN: Self = Self(1);
    /// An acknowledgment.
    pub(crate) const ACK: Self = Self(2);
    /// A reset; the connection ends with it.
    pub(crate) const RST: Self = Self(4);
    /// A probe segment that the peer must answer: its sequence number lies before the window.
    pub(crate) const PROBE: Self = Self(8);
    /// New data, even if less than a full segment fits.
    pub(crate) const FORCE: Self = Self(16);

    pub(crate) const fn has(self, what: Self) -> bool {
        self.0 & what.0 != 0
    }

    pub(crate) const fn add(&mut self, what: Self) {
        self.0 |= what.0;
    }

    pub(crate) const fn remove(&mut self, what: Self) {
        self.0 &= !what.0;
    }
}

/// The options agreed on in the handshake, and the path's segment size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NegotiatedOptions {
    /// The largest payload that the peer accepts.
    pub(crate) peer_mss: u16,
    /// The largest payload that the path carries, without options ([`PathSize::mss`]).
    pub(crate) path_mss: u16,
    /// Timestamps are in use (RFC 7323 section 3).
    pub(crate) timestamps: bool,
    /// The peer supports selective acknowledgments.
    pub(crate) sack: bool,
    /// Window scaling is in use.
    pub(crate) scaled: bool,
    /// ECN is in use (RFC 3168).
    pub(crate) ecn: bool,
}

/// The options that our SYN offers: a set of bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfferedOptions(u8);

impl OfferedOptions {
    const TIMESTAMPS: u8 = 1;
    const SACK: u8 = 2;
    const SCALE: u8 = 4;
    const ECN: u8 = 8;

    const fn of(settings: &TcpSettings) -> Self {
        let TcpSettings { timestamps, sack, window_scale: scale, ecn, .. } = *settings;
        Self(timestamps as u8 | (sack as u8) << 1 | (scale as u8) << 2 | (ecn as u8) << 3)
    }

    pub(crate) const fn timestamps(self) -> bool {
        self.0 & Self::TIMESTAMPS != 0
    }

    pub(crate) const fn sack(self) -> bool {
        self.0 & Self::SACK != 0
    }

    pub(crate) const fn scale(self) -> bool {
        self.0 & Self::SCALE != 0
    }

    pub(crate) const fn ecn(self) -> bool {
        self.0 & Self::ECN != 0
    }
}

/// How a connection ended abnormally (RFC 4022, `tcpAttemptFails` and `tcpEstabResets`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AbortReason {
    /// Before it was established.
    Attempt,
    /// In ESTABLISHED or CLOSE-WAIT.
    Open,
    /// After our FIN, before all was acknowledged and the peer had closed; no counter of the RFC.
    Closing,
}

impl AbortReason {
    const fn of(state: TcpState) -> Option<Self> {
        match state {
            TcpState::SynSent | TcpState::SynReceived => Some(Self::Attempt),
            TcpState::Established | TcpState::CloseWait => Some(Self::Open),
            TcpState::FinWait1 | TcpState::FinWait2 | TcpState::Closing | TcpState::LastAck => {
                Some(Self::Closing)
            }
            _ => None,
        }
    }
}

/// The TCB: the state of one connection. Fields are ordered by access, so that those which each
/// segment needs share cache lines: with many connections none of them is cached, and the cost of a
/// segment is the number of lines it touches.
#[repr(C)]
pub(crate) struct Connection {
    pub(crate) flow: FlowKey,
    state: TcpState,
    pub(crate) due: ConnectionDue,
    pub(crate) events: ConnectionEvents,
    /// The application has released the connection (orphan).
    pub(crate) released: bool,
    pub(crate) acknowledge: Acknowledge,
    /// The send buffer is nearly full: the program is notified once it has space.
    pub(crate) crowded: bool,
    pub(crate) flags: ConnectionFlags,
    pub(crate) probes: u8,
    /// A tail loss probe is pending (RFC 8985).
    pub(crate) probe: bool,
    pub(crate) hop_limit: Option<NonZeroU8>,
    pub(crate) traffic_class: u8,
    /// The peer's FIN arrived out of order ([`ReceiveState::fin_end`]).
    pub(crate) fin_ahead: bool,
    /// In SYN-SENT: the SYN was repeated because an earlier connection answered it. In TIME-WAIT: a
    /// SYN was answered by an ACK, so that an exact reset may come from a peer in SYN-SENT.
    pub(crate) syn_answered: bool,
    pub(crate) error: Option<ConnectionError>,
    /// The largest payload that we accept: announced in the SYN.
    pub(crate) our_mss: u16,
    pub(crate) agreed: NegotiatedOptions,
    /// Set when it ended abnormally: whether it was established.
    pub(crate) broke: Option<AbortReason>,
    pub(crate) offers: OfferedOptions,
    /// Maximum of true bytes in the send buffer.
    pub(crate) send_bytes: u32,
    /// Our timestamp clock for this peer, with an offset that hides the uptime (RFC 7323 section
    /// 5.4).
    pub(crate) clock: TimestampClock,
    /// What few connections need: a place in the slab of [`RareState`]s, or [`NO_STATE`].
    pub(crate) rare: u32,
    pub(crate) snd: SendState,
    pub(crate) rcv: ReceiveState,
    pub(crate) timers: Timers,
    /// The newest timestamp of the peer (TS.Recent).
    pub(crate) recent: RecentTimestamp,
    /// When the last segment of the peer arrived; before that, when our first SYN left.
    pub(crate) heard: Instant,
    /// Since when there was no progress: nothing acknowledged, and the window not opened.
    pub(crate) stalled: Instant,
    /// The reassembly queue: segments that arrived out of order.
    pub(crate) out_of_order: OutOfOrder,
    pub(crate) path: PathKept,
    pub(crate) recovery: Recovery,
}

/// The initial parameters of a connection.
pub(crate) struct OpenKind<'a> {
    pub(crate) flow: FlowKey,
    pub(crate) iss: Seq,
    pub(crate) clock: TimestampClock,
    /// The largest payload that we accept.
    pub(crate) our_mss: u16,
    pub(crate) path: PathSize,
    pub(crate) settings: &'a TcpSettings,
    pub(crate) now: Instant,
}

/// The options agreed on in a proven handshake (decision E22).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handshake {
    irs: Seq,
    mss: u16,
    /// The client's window scale and ours.
    window_scale: Option<(u8, u8)>,
    sack: bool,
    /// The client's latest timestamp, where timestamps are in use.
    timestamp: Option<u32>,
    ecn: bool,
}

impl Handshake {
    /// The proven handshake.
    pub(crate) fn of(proven: &Proven) -> Self {
        Self {
            irs: proven.irs(),
            mss: proven.mss().0,
            window_scale: proven.window_scale(),
            sack: proven.sack(),
            timestamp: proven.timestamps().map(|timestamps| timestamps.recent),
            ecn: proven.ecn(),
        }
    }
}

impl Connection {
    /// A connection in CLOSED, to be opened by [`Connection::open`] or [`Connection::prove`], once
    /// it has its settings ([`Connection::take_settings`]).
    #[inline]
    pub(crate) fn new(start: &OpenKind<'_>) -> Self {
        let now = start.now;
        Self {
            flow: start.flow,
            state: TcpState::Closed,
            due: ConnectionDue::default(),
            events: ConnectionEvents::NONE,
            released: false,
            acknowledge: Acknowledge::SecondFull,
            agreed: NegotiatedOptions {
                peer_mss: 0,
                path_mss: 0,
                timestamps: false,
                sack: false,
                scaled: false,
                ecn: false,
            },
            offers: OfferedOptions(0),
            flags: ConnectionFlags::default(),
            rare: NO_STATE,
            our_mss: 0,

            hop_limit: None,
            traffic_class: 0,
            error: None,
            snd: SendState::new(start.iss),
            rcv: ReceiveState::new(now),
            recovery: Recovery::new(start.iss + 1, 1, Algorithm::Cubic, now),
            probe: false,
            timers: Timers::NONE,
            send_bytes: 0,
            crowded: false,
            clock: start.clock,
            recent: RecentTimestamp::default(),
            out_of_order: OutOfOrder::new(),
            fin_ahead: false,
            heard: now,
            broke: None,
            syn_answered: false,
            stalled: now,
            probes: 0,
            path: PathSize::UNKNOWN.kept(),
        }
    }

    /// Takes what the program has set, and what is known of the path. Apart from
    /// [`Connection::new`], so that each value is stored where it is read: in one expression all
    /// wait for the last.
    #[inline]
    pub(crate) fn take_settings(&mut self, rare: &mut StateSlab<RareState>, start: &OpenKind<'_>) {
        let (settings, family) = (start.settings, family(&start.flow));
        self.flags = ConnectionFlags::of(settings);
        self.acknowledge = settings.acknowledge;
        self.offers = OfferedOptions::of(settings);
        self.hop_limit = settings.hop_limit.and_then(NonZeroU8::new);
        self.traffic_class = settings.traffic_class;
        self.send_bytes = settings.send_bytes;
        self.set_rare(rare, settings);
        self.rcv.take_most(settings.receive_bytes, settings.receive_tuned);
        self.rcv.ends_sum = ends_sum(&start.flow);
        self.our_mss = start.our_mss;
        self.path = start.path.kept();
        let mss = start.path.mss(family);
        (self.agreed.peer_mss, self.agreed.path_mss) = (default_mss(family).0, mss);
        self.recovery.begin_under(settings.algorithm, u32::from(mss));
    }

    /// An active open: SYN-SENT, with the SYN pending.
    pub(crate) fn open(&mut self) {
        self.step(StateStep::Open);
        self.due.add(ConnectionDue::SYN);
    }

    /// A passive open with a proven handshake: ESTABLISHED.
    pub(crate) fn prove(
        &mut self,
        rare: &mut StateSlab<RareState>,
        start: &OpenKind<'_>,
        shake: &Handshake,
    ) {
        self.state = TcpState::Listen;
        self.step(StateStep::SynAcked);
        self.snd.start();
        self.rcv.start(shake.irs);
        self.agreed = NegotiatedOptions {
            peer_mss: clamp_mss(shake.mss),
            sack: shake.sack,
            timestamps: shake.timestamp.is_some(),
            scaled: shake.window_scale.is_some(),
            ecn: shake.ecn,
            ..self.agreed
        };
        self.rcv.expect_at_most(self.agreed.peer_mss);
        let recent = shake.timestamp.map(|value| RecentTimestamp::new(value, start.now));
        self.recent = recent.unwrap_or_default();
        let (theirs, ours) = shake.window_scale.unwrap_or((0, 0));
        (self.snd.shift, self.rcv.shift) = (theirs.min(14), ours.min(14));
        // The window that the SYN-ACK offered.
        self.rcv.edge = self.rcv.nxt + self.syn_window();
        // The first acceptable segment brings the window.
        (self.snd.wl1, self.snd.wl2) = (shake.irs, start.iss);
        let mss = self.mss();
        self.recovery.begin_with_segments_of(mss);
        self.arm_keepalive(rare);
    }

    /// The program has accepted the connection. An acknowledgment that has waited for that is quick
    /// now (`is_quick`): it leaves at the end of the round, unless the program answers in it.
    pub(crate) fn accept(&mut self) {
        self.rcv.accept();
        if self.timers.delays_ack() && self.acknowledge == Acknowledge::SecondFull {
            self.timers.ack = AckDelay::Quick;
        }
    }

    /// Prefetches the lines that a segment or a write will touch: all at once, so that the misses
    /// overlap.
    pub(crate) fn prefetch(&self) {
        prefetch(&self.flow);
        prefetch(&self.send_bytes);
        self.snd.prefetch();
        prefetch(&self.rcv);
        prefetch(&self.rcv.queue);
        prefetch(&self.timers);
        prefetch(&self.heard);
        prefetch(&self.out_of_order);
        self.recovery.prefetch();
    }

    pub(crate) const fn state(&self) -> TcpState {
        self.state
    }

    /// Performs a step of the state table; a step that does not exist is a bug.
    pub(crate) fn step(&mut self, step: StateStep) {
        match self.state.after(step) {
            Some(next) => self.state = next,
            None => debug_assert!(false, "{} has no step {step:?}", self.state),
        }
    }

    /// Initializes the sender, which has sent nothing yet, with the segment size agreed on and the
    /// measurements so far.
    pub(crate) fn restart_recovery(&mut self, now: Instant) {
        let mss = self.mss();
        self.recovery.begin_again(mss, now);
    }

    /// The TIME-WAIT record of a closed connection.
    pub(crate) fn time_wait(&self, rare: &StateSlab<RareState>) -> TimeWait {
        let challenges = self.known_rare(rare).map(|state| state.challenges);
        TimeWait {
            snd_nxt: self.snd.nxt,
            rcv_nxt: self.rcv.nxt,
            window: u16::try_from(self.rcv.window() >> self.rcv.shift).unwrap_or(u16::MAX),
            timestamps: self.agreed.timestamps.then_some((self.clock, self.recent)),
            challenges: challenges.unwrap_or_default(),
            syn_answered: self.syn_answered,
        }
    }

    /// Whether a SYN may open a new connection of the same endpoints in place of this one in
    /// TIME-WAIT (RFC 9293 section 3.6.1, RFC 6191).
    pub(crate) fn opens_anew(&self, rare: &StateSlab<RareState>, segment: &Segment) -> bool {
        let arrived = TimeWaitArrival::of(segment).of_listener(self.offers.timestamps());
        self.state == TcpState::TimeWait && opens_anew(&self.time_wait(rare), &arrived)
    }

    /// The parameters of the handshake that the sender needs.
    pub(crate) const fn agreement(&self) -> Agreement {
        Agreement { sack: self.agreed.sack, rtt: &RTT_CONFIG }
    }

    /// The timeout in force.
    pub(crate) fn rto(&self) -> Duration {
        self.recovery.rtt().rto(&RTT_CONFIG)
    }

    /// Sets the one timer of data in flight; that of a SYN is set where the SYN is sent. Where it
    /// would not be before `armed`, when it is asked for anyway, it is computed then.
    #[inline(always)]
    pub(crate) fn arm_retransmit(&mut self, rare: &StateSlab<RareState>, armed: Instant) {
        if !self.state.is_synchronized() {
            return;
        }
        if self.recovery.board().outstanding() == 0 {
            self.timers.clear(TimerKind::Retransmit);
        } else if !self.retransmits_not_before(rare, armed) {
            self.arm_retransmit_now(rare);
        }
    }

    /// The same, computed.
    #[inline(never)]
    fn arm_retransmit_now(&mut self, rare: &StateSlab<RareState>) {
        self.timers.set(TimerKind::Retransmit, self.retransmits_at(rare));
    }

    /// When the timer of data in flight expires.
    #[inline(always)]
    fn retransmits_at(&self, rare: &StateSlab<RareState>) -> Instant {
        self.recovery.timer(&self.agreement()).map_or(Instant::FAR, |(_, at)| {
            // Not later than the connection is given up (RFC 5482).
            at.min(self.given_up_at(rare))
        })
    }

    /// Whether the timer of data in flight, computed now, would not be before `armed`: then it need
    /// not be until that time. A cheap lower bound.
    #[inline(always)]
    fn retransmits_not_before(&self, rare: &StateSlab<RareState>, armed: Instant) -> bool {
        let is_later = !self.flags.has(ConnectionFlags::USER_TIMEOUT)
            && self.stalled.as_nanos().saturating_add(PATIENCE_LEAST) >= armed.as_nanos()
            && self.recovery.rings_not_before(&self.agreement(), armed);
        debug_assert!(!is_later || self.retransmits_at(rare) >= armed, "the bound is a lower one");
        is_later
    }

    /// Payload bytes of a full segment: the minimum of peer and path, less the options of every
    /// segment (RFC 6691). The unit of congestion control; see [`Connection::segment_room`].
    pub(crate) fn mss(&self) -> u32 {
        let options = if self.agreed.timestamps { OPTION_LEN } else { 0 };
        u32::from(self.agreed.peer_mss.min(self.agreed.path_mss)).saturating_sub(options).max(1)
    }

    /// The number of SACK blocks to send, if that many fit.
    #[inline(always)]
    pub(crate) const fn block_count(&self) -> u32 {
        self.out_of_order.runs() + self.flags.has(ConnectionFlags::DUPLICATE) as u32
    }

    /// Payload bytes of a full segment that is sent now: as [`Connection::mss`], less the SACK
    /// blocks that it will carry (RFC 9293 section 3.7.1: all options count).
    #[inline(always)]
    pub(crate) fn segment_room(&self) -> u32 {
        match self.block_count() {
            0 => self.mss(),
            blocks => self.room_beside(blocks),
        }
    }

    /// The same with so many SACK blocks.
    #[inline(never)]
    fn room_beside(&self, blocks: u32) -> u32 {
        let blocks = if self.agreed.sack { blocks } else { 0 };
        let sack = match blocks.min(self.sack_blocks_max() as u32) {
            0 => 0,
            blocks => 4 + 8 * blocks,
        };
        self.mss().saturating_sub(sack).max(1)
    }

    /// How many SACK blocks fit beside the other options.
    pub(crate) const fn sack_blocks_max(&self) -> usize {
        if self.agreed.timestamps { 3 } else { 4 }
    }

    /// Whether the connection has ended completely: its place may be freed.
    pub(crate) fn is_over(&self) -> bool {
        self.state == TcpState::Closed && self.released && !self.due.has(ConnectionDue::RST)
    }

    /// True bytes that it holds, including those handed out to programs.
    pub(crate) const fn held(&self) -> u32 {
        self.rcv.held().saturating_add(self.out_of_order.held()).saturating_add(self.snd.held())
    }

    /// The current limit of the send buffer in true bytes: two congestion windows of full segments,
    /// one in flight and one behind it, within the memory limit. Where memory is scarce, no more
    /// than a frame beyond the peer's window: what the peer does not take yet is not kept here for
    /// it, be its window closed now or about to close.
    pub(crate) fn send_limit(&self) -> u32 {
        let limit = if self.flags.has(ConnectionFlags::SEND_TUNED) {
            let window = self.recovery.window().window();
            let bytes = |window: u32| window.div_ceil(self.mss()).saturating_mul(FRAME_TRUE_BYTES);
            let twice = bytes(window).saturating_mul(2);
            // Before its first window the peer has refused nothing.
            let is_scarce = self.snd.scarcity != Scarcity::None;
            let (wanted, least) = if is_scarce && self.snd.wnd_max > 0 {
                (twice.min(bytes(self.snd.wnd).saturating_add(FRAME_TRUE_BYTES)), FRAME_TRUE_BYTES)
            } else {
                (twice, HALF_LIMIT_FIRST)
            };
            wanted.clamp(least.min(self.send_bytes), self.send_bytes)
        } else {
            self.send_bytes
        };
        let limit = limit.min(self.rcv.send_allowed);
        // Where nothing is in flight no acknowledgment would notify the program of room.
        match (self.snd.nxt == self.snd.una, self.snd.scarcity) {
            (true, Scarcity::NoFrame) => limit.max(SMALL_TRUE_BYTES),
            (true, _) => limit.max(FRAME_TRUE_BYTES),
            (false, _) => limit,
        }
    }

    /// Whether less than a third of the send buffer is free, or of its first size where it has
    /// grown: a third of what a long path needs is a third of its goodput.
    fn is_crowded(&self, rare: &StateSlab<RareState>) -> bool {
        let limit = self.send_limit();
        self.room(rare) == 0 || self.fills(limit)
    }

    /// How many bytes may be written by the limit of unsent ones.
    #[inline]
    pub(crate) fn room(&self, rare: &StateSlab<RareState>) -> usize {
        if !self.flags.has(ConnectionFlags::LIMITS_UNSENT) {
            return usize::MAX;
        }
        self.user_options(rare).room(self.snd.unsent(), self.mss())
    }

    /// The same of this limit, where unsent bytes have none.
    #[inline(always)]
    pub(crate) fn fills(&self, limit: u32) -> bool {
        self.snd.held() >= limit - limit.min(HALF_LIMIT_FIRST) / 3
    }

    /// Notes after a write whether the buffer is full, so that the program is notified of free
    /// space (backpressure).
    pub(crate) fn note_written(&mut self, rare: &StateSlab<RareState>) {
        self.crowded |= self.is_crowded(rare);
    }

    /// After an acknowledgment: notifies a waiting program once a third of the buffer, or all of
    /// it, is free.
    #[inline(always)]
    pub(crate) fn note_room(&mut self, rare: &StateSlab<RareState>) {
        if self.snd.held() == 0 || self.crowded && !self.is_crowded(rare) {
            self.crowded = false;
            self.events.add(ConnectionEvents::WRITABLE);
        }
    }

    /// After written data has left: where unsent bytes are limited, notifies a waiting program.
    #[inline(always)]
    pub(crate) fn note_sent(&mut self, rare: &StateSlab<RareState>) {
        if self.crowded && !self.is_crowded(rare) {
            self.note_room(rare);
        }
    }

    /// Whether there are events of which its program has to be told.
    #[inline(always)]
    pub(crate) fn has_news_for_program(&self) -> bool {
        !self.events.is_empty() && !self.released
    }

    /// Whether there may be output.
    pub(crate) fn wants_output(&self, records: &SentSegments) -> bool {
        self.due != ConnectionDue::default() || self.has_news(records)
    }

    /// Ends at once. Received data can still be read.
    pub(crate) fn fail(&mut self, error: ConnectionError) {
        if self.state == TcpState::Closed {
            return;
        }
        self.broke = AbortReason::of(self.state);
        self.step(StateStep::Abort);
        self.error = Some(error);
        self.snd.clear();
        self.clear_timers();
        self.due = ConnectionDue::default();
        self.events
            .add(ConnectionEvents::READABLE | ConnectionEvents::WRITABLE | ConnectionEvents::ENDED);
    }

    /// Ends normally.
    pub(crate) fn finish(&mut self) {
        self.snd.clear();
        self.clear_timers();
        self.events.add(ConnectionEvents::ENDED);
    }

    /// Ends at once, with a reset to the peer if the connection is synchronized (RFC 9293 section
    /// 3.10.5).
    pub(crate) fn abort(&mut self, error: ConnectionError) {
        let tell = self.state.is_synchronized() && self.state != TcpState::TimeWait
            || self.state == TcpState::SynReceived;
        self.fail(error);
        self.rcv.queue.clear();
        if tell {
            self.due.add(ConnectionDue::RST);
        }
    }

    /// Switches Nagle's algorithm off, or on again. When it is switched off, also where it was off,
    /// what it holds back is sent, and what a cork or `MSG_MORE` holds back, too (as on Linux).
    pub(crate) fn set_nodelay(&mut self, nodelay: bool) {
        self.flags.set(ConnectionFlags::NODELAY, nodelay);
        if nodelay && self.snd.unsent() > 0 {
            self.due.add(ConnectionDue::FORCE);
        }
    }

    #[inline(always)]
    pub(crate) fn arm_keepalive(&mut self, rare: &mut StateSlab<RareState>) {
        if let Some(keepalive) = self.keepalive(rare) {
            self.set_rare_timer(rare, RareTimer::Keepalive, self.heard + keepalive.idle());
        }
    }
}

/// The operations of the application.
impl Connection {
    /// Writes the part of `bytes` that fits; with `more`, a last short segment waits for the next
    /// write.
    pub(crate) fn send(
        &mut self,
        cx: &ConnectionContext<'_>,
        bytes: &[u8],
        more: bool,
    ) -> Result<usize, SendError> {
        if let Some(error) = self.error.take() {
            return Err(error.into());
        }
        if !self.state.takes_data() || self.snd.fin {
            return Err(SendError::Closed);
        }
        let chunk = self.mss() as usize;
        let limit = self.send_limit();
        let room = self.room(&cx.records.rare);
        let room = if limit < FRAME_TRUE_BYTES { room.min(SMALL_PIECE) } else { room };
        let fits = bytes.get(..room).unwrap_or(bytes);
        let taken = self.snd.write(fits, chunk.max(128), limit, cx.pool);
        self.flags.set(ConnectionFlags::MORE, more);
        self.note_written(&cx.records.rare);
        self.crowded |= taken < bytes.len();
        if taken == 0 && !bytes.is_empty() {
            return Err(SendError::WouldBlock);
        }
        Ok(taken)
    }

    /// Copies received data into `out`; 0 means end of stream.
    pub(crate) fn recv(&mut self, out: &mut [u8], now: Instant) -> Result<usize, RecvError> {
        let read = self.rcv.queue.read(out);
        if read > 0 || out.is_empty() {
            self.rcv.tuning.took(read as u32);
            self.note_read(now);
            return Ok(read);
        }
        self.nothing_to_read()
    }

    /// The reason why nothing can be read: end of stream, an error, or would block. A stream that
    /// the peer has ended is read to its end, in every later state of the connection (as on Linux).
    pub(crate) fn nothing_to_read(&mut self) -> Result<usize, RecvError> {
        if self.rcv.fin {
            return Ok(0);
        }
        if let Some(error) = self.error.take() {
            return Err(error.into());
        }
        let ended = self.rcv.fin || self.rcv.shut || self.state == TcpState::Closed;
        if ended { Ok(0) } else { Err(RecvError::WouldBlock) }
    }

    /// After a read: the window may have grown enough for a window update.
    #[inline(always)]
    pub(crate) fn note_read(&mut self, now: Instant) {
        self.rcv.note_read(now);
        if self.state.hears()
            && self.state != TcpState::SynReceived
            && self.rcv.owes_update(self.out_of_order.held())
        {
            self.due.add(ConnectionDue::ACK);
        }
    }

    /// Closes the send direction (RFC 9293 section 3.10.4).
    pub(crate) fn shutdown_write(&mut self) {
        if self.snd.fin || matches!(self.state, TcpState::Closed | TcpState::TimeWait) {
            return;
        }
        // The FIN is sent after the data, also where the handshake is not complete: the state
        // changes when it is sent (see `output.rs`).
        self.snd.fin = true;
    }

    /// The application releases the connection. With unread data, or `reset`, the peer gets a reset
    /// (RFC 2525 section 2.17); else written data is still sent.
    pub(crate) fn release(&mut self, reset: bool, orphan_for: Duration, now: Instant) {
        self.released = true;
        // TIME-WAIT must answer the peer, even if the program aborts.
        if matches!(self.state, TcpState::Closed | TcpState::TimeWait) {
            return self.rcv.queue.clear();
        }
        if reset || !self.rcv.queue.is_empty() {
            return self.abort(ConnectionError::Aborted);
        }
        if self.state == TcpState::SynSent {
            // In SYN-SENT the peer has no state to reset (RFC 9293 section 3.10.4).
            self.step(StateStep::Close);
            return self.finish();
        }
        self.rcv.shut = true;
        self.shutdown_write();
        if self.state == TcpState::FinWait2 {
            self.timers.set(TimerKind::Close, now + orphan_for);
        }
    }
}

/// The family of a flow's ends.
pub(crate) fn family(flow: &FlowKey) -> Family {
    if flow.remote.ip().is_ipv4() { Family::V4 } else { Family::V6 }
}

/// A peer's MSS, clamped to the floor (row 18 of the bar).
pub(crate) fn clamp_mss(mss: u16) -> u16 {
    mss.max(floodwall_base::limits::TCP_MSS_FLOOR)
}
