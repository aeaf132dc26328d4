//! Chunk transfer for programs on other threads: whole chunks in both directions.
//!
//! Used by `stack` (its `remote`), which moves chunks between a connection and a program's
//! mailboxes without reading them: the program's own two copies are the only ones (decision B8).
//! Invariant: data handed out and not consumed counts against the window as if it were still queued
//! here, so a program that does not read closes the window (backpressure).

use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU8;

use floodwall_base::{Endpoint, IfIndex, Instant, SecretRandom};
use floodwall_packet::PacketList;
use floodwall_syncache::HalfOpen;

use crate::connection_table::ConnectionTable;
use crate::error::{ConnectionError, RecvError, SendError};
use crate::id::{ConnectionId, StaleHandle};
use crate::port;
use crate::settings::{Keepalive, KeepaliveTimes, TcpSettings};
use crate::timer::RareTimer;

impl<H: HalfOpen> ConnectionTable<H> {
    /// Takes all chunks that a program has written; the caller enforces the send buffer limit. They
    /// are segmented as they are; chunks of [`ConnectionTable::chunk_len`] are sent whole.
    ///
    /// # Errors
    /// See [`SendError`]; never `WouldBlock`. The chunks are dropped then.
    pub fn send_chunks(
        &mut self,
        id: ConnectionId,
        chunks: &mut PacketList,
        now: Instant,
    ) -> Result<(), SendError> {
        let (connection, rare) = self.named_rare(id)?;
        let closed = !connection.state().takes_data() || connection.snd.fin;
        let outcome = match connection.error {
            Some(_) => Err(SendError::Closed),
            None if closed => Err(SendError::Closed),
            None => Ok(()),
        };
        while let Some(chunk) = chunks.pop_front() {
            if outcome.is_ok() {
                connection.snd.push(chunk);
            }
        }
        connection.note_written(rare);
        self.settle(id.index, now);
        outcome
    }

    /// Moves received data to `chunks`, until half of the receive limit is handed out and not
    /// consumed. `Ok(true)`: end of stream, and all data is handed out.
    ///
    /// # Errors
    /// The error with which the connection ended, once, after all received data; never
    /// `WouldBlock`: without data the result is `Ok(false)`.
    pub fn hand_out(
        &mut self,
        id: ConnectionId,
        chunks: &mut PacketList,
    ) -> Result<bool, RecvError> {
        let connection = self.named_mut(id)?;
        while connection.rcv.lent < (connection.rcv.limit / 2).max(1)
            && let Some(chunk) = connection.rcv.queue.pop()
        {
            connection.rcv.tuning.took(chunk.len() as u32);
            connection.rcv.lent = connection.rcv.lent.saturating_add(chunk.held_size());
            chunks.push_back(chunk);
        }
        if !connection.rcv.queue.is_empty() {
            return Ok(false);
        }
        match connection.nothing_to_read() {
            Ok(_) => Ok(true),
            Err(RecvError::WouldBlock) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Releases true bytes that were handed out and consumed by the program: the window may open.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn consumed(
        &mut self,
        id: ConnectionId,
        bytes: u32,
        now: Instant,
    ) -> Result<(), StaleHandle> {
        let connection = self.named_mut(id)?;
        connection.rcv.lent = connection.rcv.lent.saturating_sub(bytes);
        connection.note_read(now);
        self.settle(id.index, now);
        Ok(())
    }

    /// True bytes written and not acknowledged.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn held(&self, id: ConnectionId) -> Result<u32, StaleHandle> {
        Ok(self.named(id)?.snd.held())
    }

    /// Current limit of true bytes written and not acknowledged: the total credit of a program
    /// (backpressure).
    ///
    /// # Errors
    /// The connection is gone.
    pub fn send_limit(&self, id: ConnectionId) -> Result<u32, StaleHandle> {
        Ok(self.named(id)?.send_limit())
    }

    /// The amount of consumed true bytes at which a program should report them at the latest: a
    /// quarter of the current receive limit.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn read_step(&self, id: ConnectionId) -> Result<u32, StaleHandle> {
        Ok(self.named(id)?.rcv.bound() / 4)
    }

    /// The preferred length of written chunks: that of a full segment.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn chunk_len(&self, id: ConnectionId) -> Result<usize, StaleHandle> {
        Ok((self.named(id)?.mss() as usize).max(128))
    }

    /// The error with which the connection ended, if any, without clearing it.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn error(&self, id: ConnectionId) -> Result<Option<ConnectionError>, StaleHandle> {
        Ok(self.named(id)?.error)
    }

    /// Whether the peer has closed its send direction.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn has_ended(&self, id: ConnectionId) -> Result<bool, StaleHandle> {
        Ok(self.named(id)?.rcv.fin)
    }

    /// Sets the hop limit (time to live) of sent packets; `None` is the interface's.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn set_hop_limit(
        &mut self,
        id: ConnectionId,
        hop_limit: Option<u8>,
    ) -> Result<(), StaleHandle> {
        self.named_mut(id)?.hop_limit = hop_limit.and_then(NonZeroU8::new);
        Ok(())
    }

    /// Sets the TOS byte or traffic class of sent packets, except for its two lowest bits.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn set_traffic_class(&mut self, id: ConnectionId, class: u8) -> Result<(), StaleHandle> {
        self.named_mut(id)?.traffic_class = class;
        Ok(())
    }

    /// Sets whether and how a silent peer is probed (keepalive).
    ///
    /// # Errors
    /// The connection is gone.
    pub fn set_keepalive(
        &mut self,
        id: ConnectionId,
        keepalive: Option<Keepalive>,
        now: Instant,
    ) -> Result<(), StaleHandle> {
        let (connection, rare) = self.named_rare(id)?;
        connection.set_keepalive(rare, keepalive.map(KeepaliveTimes::of));
        match keepalive {
            Some(_) => connection.arm_keepalive(rare),
            None => connection.set_rare_timer(rare, RareTimer::Keepalive, Instant::FAR),
        }
        self.settle(id.index, now);
        Ok(())
    }

    /// An ephemeral port without a listener, for a listener that requested no specific port.
    #[must_use]
    pub fn free_port(&self, local: IpAddr, random: &mut SecretRandom) -> Option<u16> {
        let end = Endpoint::new(local.to_canonical(), 0);
        let ordinary = TcpSettings::default();
        let suits = |port| {
            let here = SocketAddr::new(local, port);
            !self.listeners.holds(end, port)
                && self.listeners.may_open(here, IfIndex::default(), &ordinary).is_ok()
        };
        port::pick(&self.config.ephemeral, random, suits)
    }
}
