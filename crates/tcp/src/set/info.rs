//! What can be asked of a connection, and set while it is open.
//!
//! Called by `stack` for its applications, by `show`, and by the runner of scripts. Nothing here
//! changes the stream.

use core::num::NonZeroU8;
use core::time::Duration;

use floodwall_base::Instant;
use floodwall_syncache::HalfOpen;

use crate::congestion::{CongestionControl, UNLIMITED};
use crate::id::{ConnectionId, Gone, ListenerId};
use crate::recovery::Phase;
use crate::settings::{Asking, Settings};
use crate::state::State;
use crate::tcp::Tcp;
use crate::timer::Timer;
use crate::wishes::Wishes;

/// A connection as it stands: Linux's `TCP_INFO`, in bytes.
#[derive(Clone, Debug)]
pub struct Info {
    /// Its state.
    pub state: State,
    /// Where the sender stands.
    pub phase: Phase,
    /// What both agreed on: timestamps.
    pub timestamps: bool,
    /// Selective acknowledgments.
    pub sack: bool,
    /// Scaled windows.
    pub scaled: bool,
    /// Congestion marks.
    pub ecn: bool,
    /// Bytes that congestion lets be in flight.
    pub window: u32,
    /// Where slow start ends; `None` while no congestion was seen.
    pub threshold: Option<u32>,
    /// Bytes sent and not acknowledged.
    pub outstanding: u32,
    /// Of these, reported by the peer.
    pub sacked: u32,
    /// Of these, taken for lost.
    pub lost: u32,
    /// Payload bytes of a full segment to the peer.
    pub snd_mss: u32,
    /// The largest payload that we take.
    pub our_mss: u16,
    /// Timeouts in a row.
    pub backoff: u8,
    /// Questions about a shut window in a row.
    pub probes: u8,
    /// The smoothed round-trip time; zero before the first sample.
    pub rtt: Duration,
    /// Its variation.
    pub rtt_variation: Duration,
    /// The timeout in force.
    pub rto: Duration,
    /// How long ago the peer was heard.
    pub heard_ago: Duration,
    /// Bytes that wait to be read.
    pub readable: u32,
    /// The peer has no more to send.
    pub has_ended: bool,
    /// A write would take something.
    pub writable: bool,
    /// True bytes that may wait to be read at this moment, memory apart.
    pub receive_limit: u32,
    /// True bytes that may wait to be acknowledged at this moment.
    pub send_limit: u32,
}

impl<H: HalfOpen> Tcp<H> {
    /// A connection as it stands.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn info(&self, id: ConnectionId, now: Instant) -> Result<Info, Gone> {
        let it = self.named(id)?;
        let (board, rtt) = (it.recovery.board(), it.recovery.rtt());
        let threshold = it.recovery.controller().ssthresh();
        Ok(Info {
            state: it.state(),
            phase: it.recovery.phase(),
            timestamps: it.agreed.timestamps,
            sack: it.agreed.sack,
            scaled: it.agreed.scaled,
            ecn: it.agreed.ecn,
            window: it.recovery.controller().window(),
            threshold: (threshold < UNLIMITED).then_some(threshold),
            outstanding: board.outstanding(),
            sacked: board.sacked(),
            lost: board.lost(),
            snd_mss: it.mss(),
            our_mss: it.our_mss,
            backoff: rtt.backoff(),
            probes: it.probes,
            rtt: rtt.smoothed().unwrap_or_default(),
            rtt_variation: rtt.variation(),
            rto: it.rto(),
            heard_ago: now.saturating_since(it.heard),
            readable: it.rcv.queue.len(),
            has_ended: it.rcv.fin,
            writable: it.state().takes_data()
                && !it.snd.fin
                && it.snd.held() < it.send_limit()
                && it.wishes.room(it.snd.unsent(), it.mss()) > 0,
            receive_limit: it.rcv.limit,
            send_limit: it.send_limit(),
        })
    }

    /// Sets what may change while a connection is open: sizes, what waits and for what, how soon
    /// data is acknowledged, keepalive, timeouts, hop limit and class. What the handshake agreed on
    /// stays.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn configure(
        &mut self,
        id: ConnectionId,
        settings: &Settings,
        now: Instant,
    ) -> Result<(), Gone> {
        let connection = self.named_mut(id)?;
        (connection.send_bytes, connection.send_tuned) = (settings.send_bytes, settings.send_tuned);
        connection.rcv.resize(settings.receive_bytes, settings.receive_tuned);
        connection.nodelay = settings.nodelay;
        connection.acknowledge = settings.acknowledge;
        connection.wishes = Wishes::of(settings);
        connection.hop_limit = settings.hop_limit.and_then(NonZeroU8::new);
        connection.traffic_class = settings.traffic_class;
        connection.keepalive = settings.keepalive.map(Asking::of);
        connection.timers.clear(Timer::Keepalive);
        connection.arm_keepalive();
        self.settle(id.index, now);
        Ok(())
    }

    /// Whether somebody waits to be accepted.
    ///
    /// # Errors
    /// The listener is gone.
    pub fn has_waiting(&self, listener: ListenerId) -> Result<bool, Gone> {
        self.listeners.has_waiting(listener)
    }
}
