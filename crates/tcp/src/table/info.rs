//! Queries and settings of an open connection.
//!
//! Used by `stack` for its applications, by `show`, and by the script runner. Nothing here changes
//! the stream.

use core::num::NonZeroU8;
use core::time::Duration;

use floodwall_base::Instant;
use floodwall_syncache::HalfOpen;

use crate::congestion::UNLIMITED;
use crate::connection_flags::ConnectionFlags;
use crate::connection_table::ConnectionTable;
use crate::id::{ConnectionId, ListenerId, StaleHandle};
use crate::recovery::RecoveryPhase;
use crate::settings::TcpSettings;
use crate::state::TcpState;
use crate::timer::RareTimer;

/// A snapshot of a connection: Linux's `TCP_INFO`, in bytes.
#[derive(Clone, Debug)]
pub struct Info {
    /// The connection state.
    pub state: TcpState,
    /// The phase of the sender.
    pub phase: RecoveryPhase,
    /// Timestamps are in use.
    pub timestamps: bool,
    /// Selective acknowledgments are in use.
    pub sack: bool,
    /// Window scaling is in use.
    pub scaled: bool,
    /// ECN is in use.
    pub ecn: bool,
    /// The congestion window in bytes.
    pub window: u32,
    /// The slow start threshold; `None` before any congestion event.
    pub threshold: Option<u32>,
    /// Bytes sent and not acknowledged.
    pub outstanding: u32,
    /// Of these, SACKed by the peer.
    pub sacked: u32,
    /// Of these, considered lost.
    pub lost: u32,
    /// Payload bytes of a full segment to the peer.
    pub snd_mss: u32,
    /// The largest payload that we accept.
    pub our_mss: u16,
    /// Consecutive timeouts.
    pub backoff: u8,
    /// Consecutive zero-window probes.
    pub probes: u8,
    /// The smoothed round-trip time; zero before the first sample.
    pub rtt: Duration,
    /// Its mean deviation.
    pub rtt_variation: Duration,
    /// The current retransmission timeout.
    pub rto: Duration,
    /// Bytes considered lost and not delivered since, those sent again included.
    pub lost_so_far: u32,
    /// Bytes sent again and not known to be delivered.
    pub repeated: u32,
    /// Bytes written and not sent yet.
    pub unsent: u32,
    /// Bytes that the peer's window still permits.
    pub usable: u32,
    /// The estimated size of the peer's segments.
    pub rcv_mss: u16,
    /// How often segments were delivered out of order, up to 255.
    pub reordered: u8,
    /// By how many segments at most; 3 at least, as Linux tells it. Losses
    /// are detected by time.
    pub reordering: u32,
    /// Time since the last segment of the peer.
    pub heard_ago: Duration,
    /// Bytes available to read.
    pub readable: u32,
    /// The peer has closed its send direction.
    pub has_ended: bool,
    /// The send buffer has space.
    pub writable: bool,
    /// Current limit of the receive buffer in true bytes, apart from the memory limit.
    pub receive_limit: u32,
    /// Current limit of the send buffer in true bytes.
    pub send_limit: u32,
}

impl<H: HalfOpen> ConnectionTable<H> {
    /// A snapshot of a connection.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn info(&self, id: ConnectionId, now: Instant) -> Result<Info, StaleHandle> {
        let it = self.named(id)?;
        let (board, rtt) = (it.recovery.board(), it.recovery.rtt());
        let records = &self.records;
        let repeated = board.repeated(records);
        let threshold = it.recovery.window().ssthresh();
        Ok(Info {
            state: it.state(),
            phase: it.recovery.phase(),
            timestamps: it.agreed.timestamps,
            sack: it.agreed.sack,
            scaled: it.agreed.scaled,
            ecn: it.agreed.ecn,
            window: it.recovery.window().window(),
            threshold: (threshold < UNLIMITED).then_some(threshold),
            outstanding: board.outstanding(),
            sacked: board.sacked(records),
            lost: board.lost(records),
            lost_so_far: board.lost(records) + repeated,
            repeated,
            unsent: it.snd.unsent(),
            usable: it.snd.usable(),
            rcv_mss: it.rcv.mss,
            reordered: it.recovery.reordering().0,
            reordering: it.recovery.reordering().1,
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
                && it.room(&self.records.rare) > 0,
            receive_limit: it.rcv.limit,
            send_limit: it.send_limit(),
        })
    }

    /// The connections at `looks` places from `from` on, TIME-WAIT apart; and where to go on,
    /// `None` at the end. Costs a visit for each place.
    #[must_use]
    pub fn connections_from(
        &self,
        from: usize,
        looks: usize,
    ) -> (Vec<ConnectionId>, Option<usize>) {
        let all = self.places.iter().enumerate().skip(from).take(looks);
        let open = all.filter(|(_, place)| place.connection.is_some());
        let ids = open.map(|(index, _)| self.id(index as u32)).collect();
        let next = from.saturating_add(looks);
        (ids, (next < self.places.len()).then_some(next))
    }

    /// Changes the settings of an open connection: buffer sizes, Nagle and cork, delayed ACKs,
    /// keepalive, timeouts, hop limit and traffic class. Options negotiated in the handshake stay.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn configure(
        &mut self,
        id: ConnectionId,
        settings: &TcpSettings,
        now: Instant,
    ) -> Result<(), StaleHandle> {
        let (connection, rare) = self.named_rare(id)?;
        connection.send_bytes = settings.send_bytes;
        connection.rcv.resize(settings.receive_bytes, settings.receive_tuned);
        if connection.flags.has(ConnectionFlags::NODELAY) != settings.nodelay {
            connection.set_nodelay(settings.nodelay);
        }
        connection.flags.take_settings(settings);
        connection.acknowledge = settings.acknowledge;
        connection.set_rare(rare, settings);
        connection.hop_limit = settings.hop_limit.and_then(NonZeroU8::new);
        connection.traffic_class = settings.traffic_class;
        connection.set_rare_timer(rare, RareTimer::Keepalive, Instant::FAR);
        connection.arm_keepalive(rare);
        self.settle(id.index, now);
        Ok(())
    }

    /// Whether the accept queue has a connection.
    ///
    /// # Errors
    /// The listener is gone.
    pub fn has_waiting(&self, listener: ListenerId) -> Result<bool, StaleHandle> {
        self.listeners.has_waiting(listener)
    }
}
