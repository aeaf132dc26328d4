//! A connection's slot: what its program and its worker share, 128 bytes.
//!
//! Line A is written by the program (the worker takes, and gives credit), line B by the worker.
//! Invariant: an unused slot has empty mailboxes without flags, no credit and no wakers.

use core::net::SocketAddr;

use floodwall_packet::PacketMailbox;
use floodwall_sync::lock::Mutex;
use floodwall_sync::mailbox::Bits;
use floodwall_sync::shim::atomic::{AtomicU8, AtomicU32, Ordering};
use floodwall_sync::{Credit, WakerCell};

use crate::slot::ALL_FLAGS;

/// The worker has stopped: no data or flag follows.
pub(crate) const STREAM_STOPPED: Bits = Bits::DROPPED;

/// The handshake is complete.
pub(crate) const STREAM_OPENED: u32 = 1;
/// Nothing can be written any more.
pub(crate) const STREAM_ENDED: u32 = 2;

/// The shared state of one connection: mailboxes, credit and wakers of its program and its worker.
#[repr(C, align(128))]
pub(crate) struct TcpSlot {
    // Line A.
    /// What the program wrote. `FIN`: end of data; `RESET`: reset it; `DROPPED`: the handle is
    /// gone.
    pub(crate) tx: PacketMailbox,
    /// True bytes that it may still write.
    pub(crate) credit: Credit,
    /// The next slot in the worker's doorbell.
    pub(crate) link: AtomicU32,
    /// True bytes that were read since the worker looked last.
    pub(crate) consumed: AtomicU32,
    /// What the program has set: see `options.rs`.
    pub(crate) options: AtomicU32,
    /// Waits for memory to write into: the next one that does.
    pub(crate) dry_link: AtomicU32,
    /// Stands among those that wait for memory.
    pub(crate) dry: AtomicU8,
    /// The writer's runtime.
    pub(crate) write_group: AtomicU8,
    pub(crate) writer: WakerCell,
    // Line B.
    /// What arrived. `FIN`: the peer has no more; `RESET`: it ended with an error.
    pub(crate) rx: PacketMailbox,
    pub(crate) reader: WakerCell,
    /// An error's number; given once.
    pub(crate) error: AtomicU32,
    /// [`STREAM_OPENED`], [`STREAM_ENDED`].
    pub(crate) state: AtomicU32,
    /// The next finished connection of the same listener.
    pub(crate) accept_link: AtomicU32,
    /// Bytes of a full segment: how long chunks should be.
    pub(crate) chunk_len: AtomicU32,
    /// Number of true bytes that the program reads before it notifies the worker.
    pub(crate) read_step: AtomicU32,
    /// The reader's runtime.
    pub(crate) read_group: AtomicU8,
}

const _: () = assert!(size_of::<TcpSlot>() == 128);
const _: () = assert!(core::mem::offset_of!(TcpSlot, rx) == 64);

impl TcpSlot {
    pub(crate) fn new() -> Self {
        Self {
            tx: PacketMailbox::new(),
            credit: Credit::new(0),
            link: AtomicU32::new(0),
            consumed: AtomicU32::new(0),
            options: AtomicU32::new(0),
            dry_link: AtomicU32::new(0),
            dry: AtomicU8::new(0),
            write_group: AtomicU8::new(0),
            writer: WakerCell::new(),
            rx: PacketMailbox::new(),
            reader: WakerCell::new(),
            error: AtomicU32::new(0),
            state: AtomicU32::new(0),
            accept_link: AtomicU32::new(0),
            chunk_len: AtomicU32::new(1),
            read_step: AtomicU32::new(0),
            read_group: AtomicU8::new(0),
        }
    }

    pub(crate) fn has(&self, state: u32) -> bool {
        self.state.load(Ordering::Acquire) & state != 0
    }

    /// Makes the slot ready for its next user: no other thread has access.
    pub(crate) fn clear(&self) {
        drop(self.tx.take(ALL_FLAGS));
        drop(self.rx.take(ALL_FLAGS));
        drop(self.writer.take());
        drop(self.reader.take());
        while self.credit.take(u32::MAX) > 0 {}
        for word in [&self.consumed, &self.options, &self.error, &self.state] {
            word.swap(0, Ordering::AcqRel);
        }
        self.write_group.store(0, Ordering::Relaxed);
        self.read_group.store(0, Ordering::Relaxed);
    }
}

/// Addresses and properties of a slot's connection: written before the slot is handed to the
/// program, read by it then. This lock is never contended.
pub(crate) type FactsCell = Mutex<TcpSlotFacts>;

/// See [`FactsCell`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpSlotFacts {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) options: u32,
}

impl Default for TcpSlotFacts {
    fn default() -> Self {
        let unset = SocketAddr::from(([0; 4], 0));
        Self { local: unset, peer: unset, options: 0 }
    }
}
