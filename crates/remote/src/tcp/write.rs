//! The writing half of a connection's handle: memory from a lane, credit in true bytes.
//!
//! The bytes are copied once, into the chunks that segments will borrow. Invariants: true bytes
//! that wait to be acknowledged never exceed the connection's `send_bytes`; a writer that has no
//! memory waits in line, and is never given an error for it.

use core::task::{Context, Poll};
use core::time::Duration;
use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;

use floodwall_packet::{PacketList, Pool};
use floodwall_sync::mailbox::Bits;

use super::slot::{STREAM_ENDED, TcpSlot};
use super::stream::TcpHandle;
use crate::errno::Errno;
use crate::handle::{lock, would_block};
use crate::waiters::{Parker, WaitDirection, Waited};

/// True bytes of a frame, without which nothing is written.
pub(crate) const CHUNK_TRUE_BYTES: u32 = 2048 + 128;
/// Bytes that one call takes at most.
const WRITE_MAX: usize = 65_536;

/// Why nothing was taken.
enum WriteBlocked {
    Credit,
    Memory,
    Failed(Errno),
}

impl TcpHandle {
    /// Writes what fits of these buffers, in turn; how many bytes.
    fn write(&self, bufs: &[IoSlice<'_>]) -> Result<usize, WriteBlocked> {
        let slot = self.slot().ok_or(WriteBlocked::Failed(Errno::STOPPED))?;
        let shut = lock(&self.write);
        if slot.error.load(Ordering::Relaxed) != 0
            && let Some(errno) = self.pending_error()
        {
            return Err(WriteBlocked::Failed(errno));
        }
        if *shut || self.is_over(slot) {
            return Err(WriteBlocked::Failed(Errno::STOPPED));
        }
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Ok(0);
        }
        let left = u32::try_from(slot.credit.left()).unwrap_or(u32::MAX);
        if left < CHUNK_TRUE_BYTES {
            return Err(WriteBlocked::Credit);
        }
        let chunk_len = slot.chunk_len.load(Ordering::Relaxed) as usize;
        let lane = self.index as usize;
        let fill = |pool: &Pool| fill(pool, bufs, chunk_len, left);
        let (list, taken, paid) = self.shared.with_lane(lane, fill).unwrap_or_default();
        if taken == 0 {
            return Err(WriteBlocked::Memory);
        }
        let _ = slot.credit.take(paid);
        let rings = !slot.tx.push(list, Bits::QUEUED).has(Bits::QUEUED);
        drop(shut);
        if rings {
            self.shared.ring_tcp(self.index).map_err(WriteBlocked::Failed)?;
        }
        Ok(taken)
    }

    /// Whether no more data can be written.
    pub(super) fn is_over(&self, slot: &TcpSlot) -> bool {
        slot.has(STREAM_ENDED) || self.shared.is_stopped(self.shared.tcp.home(self.index))
    }

    /// An error or the end may have come between the look and the sleep: neither is in the word.
    fn has_news(&self, slot: &TcpSlot) -> bool {
        slot.error.load(Ordering::Acquire) != 0 || self.is_over(slot)
    }

    /// Whether data would be accepted, or an error is pending.
    pub(super) fn is_writable(&self, slot: &TcpSlot) -> bool {
        let credit = slot.credit.left() >= u64::from(CHUNK_TRUE_BYTES);
        credit || self.has_news(slot) || *lock(&self.write)
    }

    /// Sleeps for credit; `false`: look again.
    pub(super) fn park_writer(&self, slot: &TcpSlot) -> bool {
        slot.credit.park(CHUNK_TRUE_BYTES) && !self.has_news(slot)
    }

    fn park_for(&self, blocked: &WriteBlocked) -> bool {
        let Some(slot) = self.slot() else { return false };
        match blocked {
            WriteBlocked::Failed(_) => false,
            WriteBlocked::Credit => self.park_writer(slot),
            WriteBlocked::Memory => {
                self.shared.wait_for_memory(self.shared.tcp_bell(self.index));
                // Its worker comes by, awake or not.
                self.call();
                !self.has_news(slot)
            }
        }
    }

    /// Writes what fits of these buffers, in turn; how many bytes were taken.
    ///
    /// # Errors
    /// `WouldBlock` where there is no credit or no memory just now; what the connection ended with,
    /// once; `BrokenPipe` where our side is closed, or the connection or the stack is over.
    pub fn try_write(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.write(bufs) {
            Ok(taken) => Ok(taken),
            Err(WriteBlocked::Failed(errno)) => Err(errno.into_io()),
            Err(_) => would_block(),
        }
    }

    /// As [`TcpHandle::try_write`], and registers the task where that would wait. Of several tasks
    /// that poll, the last one is woken.
    pub fn poll_write(
        &self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.write(bufs) {
                Ok(taken) => return Poll::Ready(Ok(taken)),
                Err(WriteBlocked::Failed(errno)) => return Poll::Ready(Err(errno.into_io())),
                Err(blocked) => {
                    let (waiters, cell) = self.waiting(WaitDirection::Write);
                    waiters.poll(cell, cx.waker());
                    if self.park_for(&blocked) {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    /// Blocks the thread until something is taken, `patience` at most.
    ///
    /// # Errors
    /// As [`TcpHandle::try_write`], and `TimedOut` instead of `WouldBlock`.
    pub fn write_blocking(&self, bytes: &[u8], patience: Duration) -> io::Result<usize> {
        Parker::new().block(patience, |cx| self.poll_write(cx, &[IoSlice::new(bytes)]))
    }

    /// Closes our direction: the FIN follows all that was written. May be called again.
    pub fn shutdown_write(&self) {
        let Some(slot) = self.slot() else { return };
        let rings = {
            let mut shut = lock(&self.write);
            *shut = true;
            !slot.tx.set(Bits::FIN.and(Bits::QUEUED)).has(Bits::QUEUED)
        };
        if rings {
            let _ = self.shared.ring_tcp(self.index);
        }
    }

    /// Whether our side is closed.
    #[must_use]
    pub fn is_shut(&self) -> bool {
        *lock(&self.write)
    }
}

/// Chunks of what fits of the buffers into `left` true bytes; how many bytes, and what they cost.
fn fill(
    pool: &Pool,
    bufs: &[IoSlice<'_>],
    chunk_len: usize,
    left: u32,
) -> (PacketList, usize, u32) {
    let (mut list, mut taken, mut paid) = (PacketList::new(), 0, 0);
    let all: usize = bufs.iter().map(|buf| buf.len()).sum();
    let all = all.min(WRITE_MAX);
    let chunk_len = chunk_len.clamp(1, pool.frame_capacity());
    let mut rest = bufs.iter().map(|buf| &**buf);
    let mut piece: &[u8] = &[];
    while taken < all && paid + CHUNK_TRUE_BYTES <= left {
        let len = chunk_len.min(all - taken);
        let Some(mut chunk) = pool.alloc_for(len) else { break };
        let Some(mut room) = chunk.extend(len) else { break };
        while !room.is_empty() {
            if piece.is_empty() {
                let Some(next) = rest.next() else { break };
                piece = next;
            }
            let here = piece.len().min(room.len());
            let (now, later) = piece.split_at(here);
            let (out, behind) = core::mem::take(&mut room).split_at_mut(here);
            out.copy_from_slice(now);
            (piece, room) = (later, behind);
        }
        paid += chunk.true_size();
        taken += len;
        list.push_back(chunk);
    }
    (list, taken, paid)
}
