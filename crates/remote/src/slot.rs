//! A slot: what one socket's program and its workers share, 128 bytes.
//!
//! Line A is written by the program (the worker takes, and gives credit), line B by workers (the
//! program takes); where the host has more memory nodes, each further one has a line of its own.
//! Slots are allocated at the start and used again under another generation.
//! Invariant: between a slot's close and its next use both mailboxes are empty and without flags.

use floodwall_packet::{NodeQueues, PacketMailbox};
use floodwall_sync::mailbox::Bits;
use floodwall_sync::shim::atomic::{AtomicU8, AtomicU32, Ordering};
use floodwall_sync::{Credit, WakerCell};

/// An ICMP or send error waits in the slot.
pub(super) const SLOT_ERROR: Bits = Bits::RESET;
/// The stack has stopped.
pub(super) const SLOT_STOPPED: Bits = Bits::FIN;
/// No slot, where the number of one is kept.
pub(super) const NO_SLOT: u32 = u32::MAX;
/// Every flag.
pub(super) const ALL_FLAGS: Bits =
    Bits::QUEUED.and(Bits::WAIT).and(Bits::FIN).and(Bits::RESET).and(Bits::GONE).and(Bits::DROPPED);

/// A slot of a socket, and which of its uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// The shared state of one socket: mailboxes, credit and wakers of its program and the workers.
#[repr(C, align(128))]
pub(super) struct RemoteSlot {
    // Line A.
    /// What the program sends.
    pub(super) tx: PacketMailbox,
    /// True bytes that it may still send.
    pub(super) credit: Credit,
    /// The next slot in its worker's doorbell, or in the free list.
    pub(super) link: AtomicU32,
    pub(super) generation: AtomicU32,
    /// Waits for memory to send from: the next one that does.
    pub(super) dry_link: AtomicU32,
    /// Stands among those that wait for memory.
    pub(super) dry: AtomicU8,
    /// The writer's runtime.
    pub(super) write_group: AtomicU8,
    pub(super) writer: WakerCell,
    /// True bytes that may be on their way out: the worker that sends for it changes this together
    /// with the credit.
    pub(super) send_bytes: AtomicU32,
    _rest_of_line_a: [u8; 4],
    // Line B.
    /// What arrived, on workers of any NUMA node.
    pub(super) rx: NodeQueues,
    pub(super) reader: WakerCell,
    /// An error's number; given once.
    pub(super) error: AtomicU32,
    /// The reader's runtime.
    pub(super) read_group: AtomicU8,
}

const _: () =
    assert!(size_of::<RemoteSlot>() == 128 && core::mem::offset_of!(RemoteSlot, rx) == 64);

impl RemoteSlot {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            tx: PacketMailbox::new(),
            credit: Credit::new(0),
            link: AtomicU32::new(0),
            generation: AtomicU32::new(1),
            dry_link: AtomicU32::new(0),
            dry: AtomicU8::new(0),
            write_group: AtomicU8::new(0),
            writer: WakerCell::new(),
            send_bytes: AtomicU32::new(0),
            _rest_of_line_a: [0; 4],
            rx: NodeQueues::new(nodes),
            reader: WakerCell::new(),
            error: AtomicU32::new(0),
            read_group: AtomicU8::new(0),
        }
    }

    /// Makes the slot ready for its next user: no other thread has access.
    pub(super) fn clear(&self) {
        drop(self.tx.take(ALL_FLAGS));
        drop(self.rx.take(ALL_FLAGS));
        drop(self.writer.take());
        drop(self.reader.take());
        while self.credit.take(u32::MAX) > 0 {}
        self.send_bytes.store(0, Ordering::Relaxed);
        self.error.swap(0, Ordering::AcqRel);
        self.write_group.store(0, Ordering::Relaxed);
        self.read_group.store(0, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}
