//! Many datagrams in one call: a large payload cut into them, one put together from them, and
//! bursts for threads that block.
//!
//! What `UDP_SEGMENT` (GSO) and `UDP_GRO` are in Linux, at the socket: one call, one lock, one
//! exchange with the worker for any number of datagrams. On the way each is a datagram of its own.
//! Called by programs. Invariants: a segment is sent whole or not at all; coalesced datagrams are
//! of one sender, to one address, on one interface, of equal lengths but for the last.

use core::net::SocketAddr;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::io;

use floodwall_packet::PacketList;
use floodwall_udp::{Received, ReceivedPacket, copy_datagram};

use super::errno::Errno;
use super::handle::{UdpHandle, would_block};
use super::sender::SendBlocked;
use super::waiters::{WaitDirection, Waited};

/// Datagrams of one sender that were copied one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segments {
    /// The first of them; `len` is that of all.
    pub received: Received,
    /// Bytes of each, of the last perhaps less.
    pub size: usize,
}

impl UdpHandle {
    /// Sends a payload as datagrams of `size` bytes each, the last perhaps shorter, to `to` or to
    /// the connected peer: as many as there is credit and memory for. How many bytes that were.
    ///
    /// # Errors
    /// As [`UdpHandle::try_send_to`], of the first; none where one was taken. `InvalidInput` for a
    /// size of 0.
    pub fn try_send_segments(
        &self,
        payload: &[u8],
        size: usize,
        to: Option<SocketAddr>,
    ) -> io::Result<usize> {
        match self.segments(payload, size, to) {
            Ok(bytes) => Ok(bytes),
            Err(SendBlocked::Failed(errno)) => Err(errno.into_io()),
            Err(_) => would_block(),
        }
    }

    /// As [`UdpHandle::try_send_segments`], and registers the task where none was taken.
    pub fn poll_send_segments(
        &self,
        cx: &mut Context<'_>,
        payload: &[u8],
        size: usize,
        to: Option<SocketAddr>,
    ) -> Poll<io::Result<usize>> {
        let (waiters, cell) = self.waiting(WaitDirection::Write);
        self.poll_write(
            size.min(payload.len()),
            || waiters.poll(cell, cx.waker()),
            || self.segments(payload, size, to),
        )
    }

    /// Blocks the thread until all segments are taken, `patience` at most for each part of them.
    /// How many bytes that were: all, unless one is refused, and then those before it.
    ///
    /// # Errors
    /// As [`UdpHandle::try_send_segments`], and `TimedOut` instead of `WouldBlock`; none where one
    /// was taken.
    pub fn send_segments_blocking(
        &self,
        payload: &[u8],
        size: usize,
        to: Option<SocketAddr>,
        patience: Duration,
    ) -> io::Result<usize> {
        let count = self.all_blocking(payload.len(), patience, size, |done| {
            self.segments(payload.get(done..).unwrap_or_default(), size, to)
        });
        // Nothing is a datagram, too.
        if payload.is_empty() { self.send_to_blocking(payload, to, patience) } else { count }
    }

    /// Blocks the thread until all datagrams are taken, `patience` at most for each part of them.
    /// How many: all, unless one is refused, and then those before it.
    ///
    /// # Errors
    /// As [`UdpHandle::try_send_batch`], and `TimedOut` instead of `WouldBlock`; none where one was
    /// taken.
    pub fn send_batch_blocking(
        &self,
        datagrams: &[(&[u8], Option<SocketAddr>)],
        patience: Duration,
    ) -> io::Result<usize> {
        let longest = datagrams.iter().map(|(payload, _)| payload.len()).max().unwrap_or(0);
        self.all_blocking(datagrams.len(), patience, longest, |done| {
            self.send_many(datagrams.get(done..).unwrap_or_default().iter().copied())
        })
    }

    /// Copies the oldest datagram and those behind it that can be coalesced with it into `buffer`,
    /// as many as are queued and have room; a shorter one is the last. A first one that is longer
    /// than the buffer is truncated, and the result reports that.
    ///
    /// # Errors
    /// As [`UdpHandle::try_recv_from`].
    pub fn try_recv_segments(&self, buffer: &mut [u8]) -> io::Result<Segments> {
        let copy = |list: &mut PacketList| self.copy_segments(list, buffer);
        self.read(copy).unwrap_or_else(would_block).map(|segments| self.told(segments))
    }

    /// As [`UdpHandle::try_recv_segments`], and registers the task where nothing is there.
    pub fn poll_recv_segments(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<Segments>> {
        let copy = |list: &mut PacketList| self.copy_segments(list, buffer);
        self.poll_read(cx, copy).map_ok(|segments| self.told(segments))
    }

    /// Blocks the thread until a datagram is there, `patience` at most; else as
    /// [`UdpHandle::try_recv_segments`].
    ///
    /// # Errors
    /// As there, and `TimedOut` instead of `WouldBlock`.
    pub fn recv_segments_blocking(
        &self,
        buffer: &mut [u8],
        patience: Duration,
    ) -> io::Result<Segments> {
        self.read_blocking(patience, |handle| handle.try_recv_segments(buffer))
    }

    /// Blocks the thread until a datagram is there, `patience` at most; else as
    /// [`UdpHandle::try_recv_batch`].
    ///
    /// # Errors
    /// As there, and `TimedOut` instead of `WouldBlock`.
    pub fn recv_batch_blocking(
        &self,
        most: usize,
        patience: Duration,
        mut each: impl FnMut(ReceivedPacket),
    ) -> io::Result<usize> {
        self.read_blocking(patience, |handle| handle.try_recv_batch(most, &mut each))
    }

    /// Tries until something is there, sleeping in between.
    pub(super) fn read_blocking<R>(
        &self,
        patience: Duration,
        mut attempt: impl FnMut(&Self) -> io::Result<R>,
    ) -> io::Result<R> {
        let mut ready = self.ready(WaitDirection::Read);
        self.block(patience, |handle, cx| {
            loop {
                match attempt(handle) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    done => return Poll::Ready(done),
                }
                if Pin::new(&mut ready).poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
    }

    /// Calls `some` with the number of items done, until all of `all` are done.
    fn all_blocking(
        &self,
        all: usize,
        patience: Duration,
        len: usize,
        some: impl Fn(usize) -> Result<usize, SendBlocked>,
    ) -> io::Result<usize> {
        let mut done = 0;
        while done < all {
            let mut ready = self.ready(WaitDirection::Write);
            let more = self.block(patience, |handle, cx| {
                handle.poll_write(len, || ready.register(cx.waker()), || some(done))
            });
            match more {
                Ok(more) => done += more,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Bytes that were taken.
    fn segments(
        &self,
        payload: &[u8],
        size: usize,
        to: Option<SocketAddr>,
    ) -> Result<usize, SendBlocked> {
        if size == 0 {
            return Err(SendBlocked::Failed(Errno::INVALID));
        }
        if payload.is_empty() {
            return self.send_many(core::iter::once((payload, to))).map(|_| 0);
        }
        let count = self.send_many(payload.chunks(size).map(|segment| (segment, to)))?;
        Ok(payload.len().min(count * size))
    }

    /// Copies datagrams like the first one behind it.
    fn copy_segments(&self, list: &mut PacketList, buffer: &mut [u8]) -> Option<Segments> {
        let mut received = self.copy_first(list, buffer)?;
        let size = received.len;
        while size > 0 && !received.truncated {
            let Some(room) = buffer.get_mut(received.len..received.len + size) else { break };
            // Whether a datagram is longer than a segment is found by copying that many bytes:
            // bytes of the buffer beyond the returned length are unspecified.
            let next = list.iter().next().and_then(|packet| copy_datagram(packet, room));
            let Some(next) = next.filter(|next| is_like(next, &received)) else { break };
            if let Some(packet) = list.pop_front() {
                self.drop_burst(list, packet);
            }
            received.len += next.len;
            if next.len < size {
                break;
            }
        }
        Some(Segments { received, size })
    }

    /// Adds the number of refused datagrams, if the socket has that option.
    fn told(&self, mut segments: Segments) -> Segments {
        self.tell_drops(&mut segments.received);
        segments
    }
}

fn is_like(next: &Received, first: &Received) -> bool {
    let ends = |it: &Received| (it.from, it.to, it.iface);
    !next.truncated && next.len > 0 && ends(next) == ends(first)
}
