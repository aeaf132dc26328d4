//! One connection: its state, its two halves, its timers, and what its application may do.
//!
//! Called by `tcp.rs` for one place of its table. Arriving segments are handled in `input.rs`, what
//! leaves is made in `output.rs`; timers ring in `alarm.rs`. Invariants: only [`Connection::step`]
//! changes the state; what is to leave is noted in `due` and made when the caller asks; nothing is
//! allocated. Reading: RFC 9293 sections 3.3 and 3.10.

use core::num::NonZeroU8;
use core::time::Duration;

use floodwall_base::{Counters, Family, FlowKey, Instant, Randomness, Seq};
use floodwall_packet::Pool;
use floodwall_sync::prefetch;
use floodwall_syncache::Proven;

use crate::challenge::ChallengeLimit;
use crate::congestion::CongestionControl;
use crate::error::{ConnectionError, RecvError, SendError};
use crate::events::Events;
use crate::marks::Marks;
use crate::memory::FRAME;
use crate::mss::default_mss;
use crate::rcv::{Rcv, first_limit};
use crate::reassembly::{Reassembly, Runs};
use crate::records::Records;
use crate::recovery::{Agreement, Recovery};
use crate::rtt::RttConfig;
use crate::segment::Segment;
use crate::settings::{Acknowledge, Asking, Settings};
use crate::snd::Snd;
use crate::state::{State, Step};
use crate::time_wait::{Arrived, TimeWait, opens_anew};
use crate::timer::{Timer, Timers};
use crate::timestamps::{Recent, TimestampClock};
use crate::wishes::Wishes;

/// What one call lends to a connection.
pub(crate) struct Cx<'a> {
    pub(crate) now: Instant,
    pub(crate) pool: &'a Pool,
    pub(crate) random: &'a mut Randomness,
    pub(crate) counters: &'a mut Counters,
    pub(crate) runs: &'a mut Runs,
    pub(crate) records: &'a mut Records,
    /// All connections together hold what they may (`memory.rs`).
    pub(crate) full: bool,
    /// Devices finish checksums.
    pub(crate) partial: bool,
}

/// Bounds of the retransmission timeout.
const RTT: RttConfig = RttConfig {
    initial: Duration::from_secs(1),
    min: Duration::from_millis(200),
    max: Duration::from_secs(120),
};

/// Bounds of the retransmission timeout.
pub(crate) const fn rto_config() -> RttConfig {
    RTT
}

/// What is to leave: a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Due(u8);

impl Due {
    /// A SYN, or the answer to one.
    pub(crate) const SYN: Self = Self(1);
    /// An acknowledgment.
    pub(crate) const ACK: Self = Self(2);
    /// A reset; then the connection is over.
    pub(crate) const RST: Self = Self(4);
    /// A segment that the peer must answer: its number lies before the window.
    pub(crate) const PROBE: Self = Self(8);
    /// New data, however little fits.
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

/// What both sides agreed on in the handshake, and what the path carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    /// The largest payload that the peer takes.
    pub(crate) peer_mss: u16,
    /// The largest payload that the path carries, without options.
    pub(crate) path_mss: u16,
    /// Timestamps are sent and expected (RFC 7323 section 3).
    pub(crate) timestamps: bool,
    /// The peer understands selective acknowledgments.
    pub(crate) sack: bool,
    /// Windows are scaled.
    pub(crate) scaled: bool,
    /// Congestion is marked instead of told by losses (RFC 3168).
    pub(crate) ecn: bool,
}

/// What our SYN offers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offers {
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
    pub(crate) scale: bool,
    pub(crate) ecn: bool,
}

impl Offers {
    const fn of(settings: &Settings) -> Self {
        let Settings { timestamps, sack, window_scale: scale, ecn, .. } = *settings;
        Self { timestamps, sack, scale, ecn }
    }
}

/// How a connection ended that did not end in order (RFC 4022, `tcpAttemptFails` and
/// `tcpEstabResets`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Broke {
    /// Before it was open.
    Attempt,
    /// While both sides could send, or ours could.
    Open,
}

impl Broke {
    const fn of(state: State) -> Option<Self> {
        match state {
            State::SynSent | State::SynReceived => Some(Self::Attempt),
            State::Established | State::CloseWait => Some(Self::Open),
            _ => None,
        }
    }
}

/// See the file's head. In this order, so that what each segment asks for lies together: of many
/// connections none lies in the caches, and what a segment costs is the lines that it touches.
#[repr(C)]
pub(crate) struct Connection {
    pub(crate) flow: FlowKey,
    state: State,
    pub(crate) due: Due,
    pub(crate) events: Events,
    /// The application has let go of it.
    pub(crate) released: bool,
    pub(crate) nodelay: bool,
    pub(crate) acknowledge: Acknowledge,
    /// Its program has written until there was no room: it waits to be told of some.
    pub(crate) crowded: bool,
    /// Whether fewer than `send_bytes` may wait while the congestion window is small.
    pub(crate) send_tuned: bool,
    /// What was seen and said of congestion marks (`marks.rs`).
    pub(crate) marks: Marks,
    pub(crate) probes: u8,
    pub(crate) hop_limit: Option<NonZeroU8>,
    pub(crate) traffic_class: u8,
    /// The largest payload that we take: announced in the SYN.
    pub(crate) our_mss: u16,
    pub(crate) agreed: Agreed,
    /// True bytes that may wait to be acknowledged at most.
    pub(crate) send_bytes: u32,
    /// Our clock as this peer sees it (RFC 7323 section 5.4: no uptime is told).
    pub(crate) clock: TimestampClock,
    pub(crate) snd: Snd,
    pub(crate) rcv: Rcv,
    pub(crate) timers: Timers,
    /// The newest timestamp of the peer (TS.Recent).
    pub(crate) recent: Recent,
    /// When the peer was heard last; before that, when our SYN left first.
    pub(crate) heard: Instant,
    /// Since when nothing that was sent was acknowledged, nor the window opened.
    pub(crate) stalled: Instant,
    /// A tail loss probe is to leave: what to repeat where there is nothing new (RFC 8985).
    pub(crate) probe: Option<(Seq, u32)>,
    /// What arrived before its turn.
    pub(crate) ahead: Reassembly,
    /// The peer's FIN, where it arrived before its turn.
    pub(crate) fin_ahead: Option<Seq>,
    pub(crate) keepalive: Option<Asking>,
    pub(crate) recovery: Recovery,
    /// How often what changes nothing may still be answered.
    pub(crate) challenges: ChallengeLimit,
    pub(crate) error: Option<ConnectionError>,
    /// Whether it was open when it ended otherwise than in order.
    pub(crate) broke: Option<Broke>,
    pub(crate) offers: Offers,
    pub(crate) wishes: Wishes,
}

/// What a connection begins with.
pub(crate) struct Start<'a> {
    pub(crate) flow: FlowKey,
    pub(crate) iss: Seq,
    pub(crate) clock: TimestampClock,
    /// The largest payload that the way to the peer carries.
    pub(crate) path_mss: u16,
    pub(crate) settings: &'a Settings,
    pub(crate) now: Instant,
}

/// What a proven handshake agreed on (decision E22).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handshake {
    irs: Seq,
    mss: u16,
    /// How the client scales its windows, and how we do.
    window_scale: Option<(u8, u8)>,
    sack: bool,
    /// The client's newest timestamp, where both send them.
    timestamp: Option<u32>,
    ecn: bool,
}

impl Handshake {
    /// The one that was proven.
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
    fn new(start: &Start<'_>, state: State) -> Self {
        let Start { settings, now, .. } = start;
        let mss = start.path_mss;
        Self {
            flow: start.flow,
            state,
            due: Due::default(),
            events: Events::NONE,
            released: false,
            nodelay: settings.nodelay,
            acknowledge: settings.acknowledge,
            agreed: Agreed {
                peer_mss: default_mss(family(&start.flow)).0,
                path_mss: mss,
                timestamps: false,
                sack: false,
                scaled: false,
                ecn: false,
            },
            offers: Offers::of(settings),
            marks: Marks::default(),
            our_mss: mss,
            hop_limit: settings.hop_limit.and_then(NonZeroU8::new),
            traffic_class: settings.traffic_class,
            error: None,
            snd: Snd::new(start.iss),
            rcv: Rcv::new(settings.receive_bytes, settings.receive_tuned, *now),
            recovery: Recovery::new(start.iss + 1, u32::from(mss), settings.algorithm, *now),
            probe: None,
            timers: Timers::NONE,
            send_bytes: settings.send_bytes,
            send_tuned: settings.send_tuned,
            crowded: false,
            clock: start.clock,
            recent: Recent::default(),
            ahead: Reassembly::new(),
            fin_ahead: None,
            challenges: ChallengeLimit::new(),
            heard: *now,
            broke: None,
            stalled: *now,
            probes: 0,
            keepalive: settings.keepalive.map(Asking::of),
            wishes: Wishes::of(settings),
        }
    }

    /// An active open: SYN-SENT, the SYN due.
    pub(crate) fn open(start: &Start<'_>) -> Self {
        let mut connection = Self::new(start, State::Closed);
        connection.step(Step::Open);
        connection.due.add(Due::SYN);
        connection
    }

    /// A passive open whose handshake is proven: ESTABLISHED.
    pub(crate) fn proven(start: &Start<'_>, shake: &Handshake) -> Self {
        let mut connection = Self::new(start, State::Listen);
        connection.step(Step::SynAcked);
        connection.snd.una = start.iss + 1;
        connection.snd.nxt = start.iss + 1;
        connection.rcv.start(shake.irs);
        connection.agreed = Agreed {
            peer_mss: clamp_mss(shake.mss),
            sack: shake.sack,
            timestamps: shake.timestamp.is_some(),
            scaled: shake.window_scale.is_some(),
            ecn: shake.ecn,
            ..connection.agreed
        };
        connection.rcv.expect_at_most(connection.agreed.peer_mss);
        let recent = shake.timestamp.map(|value| Recent::new(value, start.now));
        connection.recent = recent.unwrap_or_default();
        let (theirs, ours) = shake.window_scale.unwrap_or((0, 0));
        (connection.snd.shift, connection.rcv.shift) = (theirs.min(14), ours.min(14));
        // What the SYN-ACK offered.
        connection.rcv.edge = connection.rcv.nxt + connection.syn_window();
        // The first acceptable segment brings the window.
        (connection.snd.wl1, connection.snd.wl2) = (shake.irs, start.iss);
        connection.restart_recovery(start.now);
        connection.arm_keepalive();
        connection
    }

    /// Asks for what a segment or a write will read and write: all at once, where each field would
    /// wait for the one before.
    pub(crate) fn expect(&self) {
        prefetch(&self.flow);
        prefetch(&self.send_bytes);
        self.snd.expect();
        prefetch(&self.rcv);
        prefetch(&self.rcv.queue);
        prefetch(&self.timers);
        prefetch(&self.heard);
        prefetch(&self.ahead);
        self.recovery.expect();
    }

    pub(crate) const fn state(&self) -> State {
        self.state
    }

    /// Takes a step of the table; one that does not exist is our own mistake.
    pub(crate) fn step(&mut self, step: Step) {
        match self.state.after(step) {
            Some(next) => self.state = next,
            None => debug_assert!(false, "{} has no step {step:?}", self.state),
        }
    }

    /// The sender begins with the segment size that was agreed on, and what was measured so far.
    pub(crate) fn restart_recovery(&mut self, now: Instant) {
        let algorithm = self.recovery.controller().algorithm();
        let fresh = Recovery::new(self.snd.iss + 1, self.mss(), algorithm, now);
        let before = core::mem::replace(&mut self.recovery, fresh);
        *self.recovery.rtt_mut() = before.rtt().clone();
    }

    /// What stays behind of a closed connection.
    pub(crate) fn time_wait(&self) -> TimeWait {
        TimeWait {
            snd_nxt: self.snd.nxt,
            rcv_nxt: self.rcv.nxt,
            window: u16::try_from(self.rcv.window() >> self.rcv.shift).unwrap_or(u16::MAX),
            timestamps: self.agreed.timestamps.then_some((self.clock, self.recent)),
            challenges: self.challenges,
        }
    }

    /// Whether a SYN opens a new connection of the same ends, which this one in TIME-WAIT makes way
    /// for (RFC 9293 section 3.6.1, RFC 6191).
    pub(crate) fn opens_anew(&self, segment: &Segment) -> bool {
        self.state == State::TimeWait && opens_anew(&self.time_wait(), &Arrived::of(segment))
    }

    /// What the sender must know of the handshake.
    pub(crate) const fn agreement(&self) -> Agreement {
        Agreement { sack: self.agreed.sack, rtt: &RTT }
    }

    /// The timeout in force.
    pub(crate) fn rto(&self) -> Duration {
        self.recovery.rtt().rto(&RTT)
    }

    /// The one timer of what is in flight; that of a SYN is set where it leaves.
    pub(crate) fn arm_retransmit(&mut self) {
        if !self.state.is_synchronized() {
            return;
        }
        let at = self.recovery.timer(&self.agreement()).map_or(Instant::FAR, |(_, at)| at);
        self.timers.set(Timer::Retransmit, at);
    }

    /// Payload bytes of a full segment: what peer and path take, less the options of every segment
    /// (RFC 6691).
    pub(crate) fn mss(&self) -> u32 {
        let options = if self.agreed.timestamps { 12 } else { 0 };
        u32::from(self.agreed.peer_mss.min(self.agreed.path_mss)).saturating_sub(options).max(1)
    }

    /// Whether nothing more will happen: the place may be freed.
    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Closed && self.released && !self.due.has(Due::RST)
    }

    /// True bytes that it holds, those included that programs were handed.
    pub(crate) const fn held(&self) -> u32 {
        self.rcv.held().saturating_add(self.ahead.held()).saturating_add(self.snd.held())
    }

    /// True bytes that may wait to be acknowledged at this moment: two congestion windows of full
    /// segments, one in flight and one behind it, as far as memory goes.
    pub(crate) fn send_limit(&self) -> u32 {
        let limit = if self.send_tuned {
            let segments = self.recovery.controller().window().div_ceil(self.mss());
            let first = first_limit(self.send_bytes, true);
            segments.saturating_mul(2 * FRAME).clamp(first, self.send_bytes)
        } else {
            self.send_bytes
        };
        limit.min(self.rcv.allowed)
    }

    /// Whether less than a third of that is free.
    fn is_crowded(&self) -> bool {
        let limit = self.send_limit();
        let full = self.wishes.room(self.snd.unsent(), self.mss()) == 0;
        full || self.snd.held() >= limit - limit / 3
    }

    /// Something was written: whoever filled the room is told when there is some again.
    pub(crate) fn note_written(&mut self) {
        self.crowded |= self.is_crowded();
    }

    /// Something was acknowledged: a third of the room, or all of it, is worth a wake-up.
    pub(crate) fn note_room(&mut self) {
        if self.snd.held() == 0 || self.crowded && !self.is_crowded() {
            self.crowded = false;
            self.events.add(Events::WRITABLE);
        }
    }

    /// Something left that was written: where that counts, there is room.
    pub(crate) fn note_sent(&mut self) {
        if self.crowded && !self.is_crowded() {
            self.note_room();
        }
    }

    /// Whether something may be to leave.
    pub(crate) fn wants_output(&self, records: &Records) -> bool {
        self.due != Due::default() || self.has_news(records)
    }

    /// Ends at once. What was received stays to be read.
    pub(crate) fn fail(&mut self, error: ConnectionError) {
        if self.state == State::Closed {
            return;
        }
        self.broke = Broke::of(self.state);
        self.step(Step::Abort);
        self.error = Some(error);
        self.snd.clear();
        self.timers.clear_all();
        self.due = Due::default();
        self.events.add(Events::READABLE | Events::WRITABLE | Events::ENDED);
    }

    /// Ends in order.
    pub(crate) fn finish(&mut self) {
        self.snd.clear();
        self.timers.clear_all();
        self.events.add(Events::ENDED);
    }

    /// Ends at once, and tells the peer, where it knows of the connection (RFC 9293 section
    /// 3.10.5).
    pub(crate) fn abort(&mut self, error: ConnectionError) {
        let tell = self.state.is_synchronized() && self.state != State::TimeWait
            || self.state == State::SynReceived;
        self.fail(error);
        self.rcv.queue.clear();
        if tell {
            self.due.add(Due::RST);
        }
    }

    pub(crate) fn arm_keepalive(&mut self) {
        if let Some(keepalive) = self.keepalive {
            self.timers.set(Timer::Keepalive, self.heard + keepalive.idle());
        }
    }
}

/// What the application does.
impl Connection {
    /// Takes what fits of `bytes`; `more` is to come, and a last short segment waits for it.
    pub(crate) fn send(
        &mut self,
        cx: &Cx<'_>,
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
        let room = self.wishes.room(self.snd.unsent(), self.mss());
        let fits = bytes.get(..room).unwrap_or(bytes);
        let taken = self.snd.write(fits, chunk.max(128), limit, cx.pool);
        self.wishes.writes(more);
        self.note_written();
        self.crowded |= taken < bytes.len();
        if taken == 0 && !bytes.is_empty() {
            return Err(SendError::WouldBlock);
        }
        Ok(taken)
    }

    /// Copies what was received into `out`; 0 is the peer's end.
    pub(crate) fn recv(&mut self, out: &mut [u8], now: Instant) -> Result<usize, RecvError> {
        let read = self.rcv.queue.read(out);
        if read > 0 || out.is_empty() {
            self.rcv.tuning.took(read as u32);
            self.note_read(now);
            return Ok(read);
        }
        self.nothing_to_read()
    }

    /// Why nothing can be read: the end, an error, or not yet.
    pub(crate) fn nothing_to_read(&mut self) -> Result<usize, RecvError> {
        if let Some(error) = self.error.take() {
            return Err(error.into());
        }
        let ended = self.rcv.fin || self.rcv.shut || self.state == State::Closed;
        if ended { Ok(0) } else { Err(RecvError::WouldBlock) }
    }

    /// The window may have grown enough to be told.
    pub(crate) fn note_read(&mut self, now: Instant) {
        self.rcv.note_read(now);
        if self.state.hears()
            && self.state != State::SynReceived
            && self.rcv.owes_update(self.ahead.held())
        {
            self.due.add(Due::ACK);
        }
    }

    /// The application has no more to send (RFC 9293 section 3.10.4).
    pub(crate) fn shutdown_write(&mut self) {
        if self.snd.fin || matches!(self.state, State::Closed | State::TimeWait) {
            return;
        }
        // The FIN leaves behind the data, where the connection is still to be opened too: the state
        // changes as it does (see `output.rs`).
        self.snd.fin = true;
    }

    /// The application lets go. With unread data, or `reset`, the peer is told by a reset (RFC 2525
    /// section 2.17); else what was written still leaves.
    pub(crate) fn release(&mut self, reset: bool, orphan_for: Duration, now: Instant) {
        self.released = true;
        // TIME-WAIT owes the peer an answer, whatever its program thinks of it.
        if matches!(self.state, State::Closed | State::TimeWait) {
            return self.rcv.queue.clear();
        }
        if reset || !self.rcv.queue.is_empty() {
            return self.abort(ConnectionError::Aborted);
        }
        if self.state == State::SynSent {
            // Nothing of it is known to anybody (RFC 9293 section 3.10.4).
            self.step(Step::Close);
            return self.finish();
        }
        self.rcv.shut = true;
        self.shutdown_write();
        if self.state == State::FinWait2 {
            self.timers.set(Timer::Close, now + orphan_for);
        }
    }
}

/// The family of a flow's ends.
pub(crate) fn family(flow: &FlowKey) -> Family {
    if flow.remote.ip().is_ipv4() { Family::V4 } else { Family::V6 }
}

/// A peer's MSS, not below what makes sense (row 18 of the bar).
pub(crate) fn clamp_mss(mss: u16) -> u16 {
    mss.max(floodwall_base::limits::TCP_MSS_FLOOR)
}
