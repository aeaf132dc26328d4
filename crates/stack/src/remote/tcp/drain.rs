//! What a stack that ends its connections does to those of programs: see `drain.rs` of this crate.

use core::task::Waker;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use floodwall_sync::mailbox::Bits;

use super::slot::{ENDED, STOPPED};
use crate::remote::shard::RemoteShard;
use crate::round_context::RoundContext;
use crate::sockets::Sockets;
use crate::stack::Stack;

impl RemoteShard {
    /// Programs that accept get `BrokenPipe` from now on. What was finished before may be accepted.
    pub(crate) fn stop_listening(&mut self) {
        for open in self.tcp.listeners.drain(..) {
            open.listen.listening.stop();
        }
    }

    /// Whether nothing that programs sent or wrote waits here.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.has_work() && !self.tcp.is_busy()
    }
}

impl Stack {
    /// Closes the connections of programs in the slots from `from` on, `visits` of them at most,
    /// behind all that was written. Their programs may read what has arrived. Returns the next slot
    /// to visit; `None` at the end.
    pub(crate) fn close_held(
        &mut self,
        cx: &mut RoundContext<'_>,
        from: u32,
        visits: u32,
    ) -> Option<u32> {
        let mut remote = self.shard.remote.take()?;
        let shared = Arc::clone(&remote.shared);
        let (first, count) = remote.tcp.slots();
        let end = from.saturating_add(visits).min(count);
        for index in first + from..first + end {
            let (Some(slot), Some(local)) = (shared.tcp.slot(index), remote.tcp.local(index))
            else {
                continue;
            };
            let Some(id) = local.id else { continue };
            // Before the last look at what was written: a later call fails.
            slot.state.fetch_or(ENDED, Ordering::AcqRel);
            let (mut chunks, bits) = slot.tx.take(Bits::NONE);
            if let Some(tcp) = self.tcp.as_mut().filter(|_| !chunks.is_empty()) {
                let paid: u32 = chunks.iter().map(|chunk| chunk.true_size()).sum();
                local.charged = local.charged.saturating_add(paid);
                let _ = tcp.set.send_chunks(id, &mut chunks, cx.now);
            }
            if bits.has(Bits::DROPPED) {
                // Its ring is on its way, and the slot is needed until then.
                continue;
            }
            remote.tcp.part_from(index);
            slot.rx.set(STOPPED);
            slot.reader.take().into_iter().for_each(Waker::wake);
            slot.writer.take().into_iter().for_each(Waker::wake);
            // It was there a moment ago.
            let _ = Sockets::new(self, cx.again()).tcp_close(id);
        }
        self.shard.remote = Some(remote);
        (end < count).then_some(end)
    }
}
