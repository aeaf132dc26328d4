//! Batched and zero-copy receive and send, which tokio's socket does not have.
//!
//! A batch costs one unit of the task's budget and one exchange with the worker, however large.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use floodwall_base::IfIndex;
use floodwall_stack::remote::{Segments, UdpHandle};
use floodwall_udp::ReceivedPacket;

use super::UdpSocket;

/// One received datagram in the memory that it arrived in (zero copy). It stays charged to its
/// socket until it is dropped: a program that keeps many receives no more. May be sent to and
/// dropped on any thread.
///
/// Its payload is one or more [chunks](Datagram::chunks): one, unless it was put together from
/// fragments or is larger than a frame of the pool.
pub struct Datagram {
    inner: ReceivedPacket,
    from: SocketAddr,
}

impl Datagram {
    /// The sender, as [`UdpSocket::recv_from`] writes it.
    #[must_use]
    pub const fn from(&self) -> SocketAddr {
        self.from
    }

    /// The address of ours, or the group, and the port that it was sent to.
    #[must_use]
    pub const fn to(&self) -> SocketAddr {
        self.inner.to
    }

    /// Where it arrived.
    #[must_use]
    pub const fn iface(&self) -> IfIndex {
        self.inner.iface
    }

    /// Bytes of payload.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.inner.payload.end - self.inner.payload.start
    }

    /// Whether it has no payload.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The payload where it is contiguous, which is usual.
    #[must_use]
    pub fn as_slice(&self) -> Option<&[u8]> {
        self.inner.packet.first().get(self.inner.payload.clone())
    }

    /// The payload's pieces, in order.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.inner.packet.chunks_in(self.inner.payload.start, self.len())
    }

    /// Copies the payload out; how many bytes.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let len = self.len().min(out.len());
        out.get_mut(..len)
            .map_or(0, |out| self.inner.packet.copy_out(self.inner.payload.start, out))
    }

    /// The payload in a vector of its own.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.len()];
        self.copy_to(&mut out);
        out
    }
}

impl UdpSocket {
    /// Receives one datagram without a copy. Otherwise as [`UdpSocket::recv_from`].
    ///
    /// # Errors
    /// As there.
    pub async fn recv_packet(&self) -> io::Result<Datagram> {
        let inner = self.reading(UdpHandle::try_recv_packet).await?;
        Ok(self.datagram(inner))
    }

    /// As [`UdpSocket::recv_packet`] where a datagram is there.
    ///
    /// # Errors
    /// `WouldBlock` otherwise.
    pub fn try_recv_packet(&self) -> io::Result<Datagram> {
        self.handle.try_recv_packet().map(|inner| self.datagram(inner))
    }

    /// Receives all that is there, `most` at most, at the end of `datagrams`; waits for the first.
    /// How many. No datagram is copied. Cancel safe.
    ///
    /// # Errors
    /// As [`UdpSocket::recv`]; none of it where a datagram was received.
    ///
    /// # Example
    ///
    /// ```
    /// # use floodwall_tokio_sockets::{Network, UdpSocket};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let (wire, _other_end) = floodwall_device::pair(64);
    /// # let network = Network::builder().attach(wire).address("192.0.2.1/24").start().await?;
    /// let (a, b) = (
    ///     UdpSocket::bind(&network, "127.0.0.1:0").await?,
    ///     UdpSocket::bind(&network, "127.0.0.1:0").await?,
    /// );
    /// let to = b.local_addr()?;
    /// let sent = a.send_batch(&[(&b"one"[..], to), (b"two", to), (b"three", to)]).await?;
    /// assert_eq!(sent, 3);
    ///
    /// let mut heard = Vec::new();
    /// while heard.len() < 3 {
    ///     b.recv_batch(&mut heard, 64).await?;
    /// }
    /// let texts: Vec<_> = heard.iter().filter_map(|datagram| datagram.as_slice()).collect();
    /// assert_eq!(texts, [&b"one"[..], b"two", b"three"]);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn recv_batch(
        &self,
        datagrams: &mut Vec<Datagram>,
        most: usize,
    ) -> io::Result<usize> {
        self.reading(|_| self.try_recv_batch(datagrams, most)).await
    }

    /// As [`UdpSocket::recv_batch`], without waiting.
    ///
    /// # Errors
    /// As there, and `WouldBlock` where nothing is there.
    pub fn try_recv_batch(&self, datagrams: &mut Vec<Datagram>, most: usize) -> io::Result<usize> {
        self.handle.try_recv_batch(most, |inner| datagrams.push(self.datagram(inner)))
    }

    /// Sends datagrams in order, each to its own address; returns when all have been taken, waiting
    /// as often as [`UdpSocket::send_to`] would. How many: all, unless one is refused, and then
    /// those before it. Dropped while it waits, it has sent those that were taken, in order.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`], of the first datagram.
    pub async fn send_batch<B: AsRef<[u8]>>(
        &self,
        datagrams: &[(B, SocketAddr)],
    ) -> io::Result<usize> {
        let mut sent = 0;
        while let Some(left) = datagrams.get(sent..).filter(|left| !left.is_empty()) {
            match self.writing(|_| self.try_send_batch(left)).await {
                Ok(count) => sent += count,
                Err(error) if sent == 0 => return Err(error),
                // The batch was successful so far; the next call returns the error.
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    /// As [`UdpSocket::send_batch`], as many as are taken at once.
    ///
    /// # Errors
    /// As there, and `WouldBlock` where none is taken.
    pub fn try_send_batch<B: AsRef<[u8]>>(
        &self,
        datagrams: &[(B, SocketAddr)],
    ) -> io::Result<usize> {
        let mut sent = 0;
        for some in datagrams.chunks(BATCH_DATAGRAMS) {
            let mut pieces = [(&[][..], None); BATCH_DATAGRAMS];
            for (piece, (payload, to)) in pieces.iter_mut().zip(some) {
                *piece = (payload.as_ref(), Some(*to));
            }
            match self.handle.try_send_batch(pieces.get(..some.len()).unwrap_or_default()) {
                Ok(count) => sent += count,
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
            if sent % BATCH_DATAGRAMS != 0 {
                break;
            }
        }
        Ok(sent)
    }

    /// Receives one datagram and those behind it that are like it (sender, our address, interface,
    /// length), as many as wait and have room; a shorter one is the last. The same coalescing as
    /// Linux's `UDP_GRO`. Cancel safe.
    ///
    /// # Errors
    /// As [`UdpSocket::recv`].
    pub async fn recv_segments(&self, buf: &mut [u8]) -> io::Result<Segments> {
        let segments = self.reading(|handle| handle.try_recv_segments(buf)).await?;
        Ok(self.segments_written(segments))
    }

    /// As [`UdpSocket::recv_segments`], without waiting.
    ///
    /// # Errors
    /// As there, and `WouldBlock` where nothing is there.
    pub fn try_recv_segments(&self, buf: &mut [u8]) -> io::Result<Segments> {
        self.handle.try_recv_segments(buf).map(|segments| self.segments_written(segments))
    }

    fn segments_written(&self, segments: Segments) -> Segments {
        Segments { received: self.with_sender_written(segments.received), ..segments }
    }

    /// Sends a buffer as datagrams of `size` bytes, the last perhaps shorter: as Linux does with
    /// `UDP_SEGMENT`, and of any number. Returns when all have been taken; how many bytes that
    /// were: all, unless a datagram is refused, and then those before it. Dropped while it waits,
    /// it has sent those that were taken.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`], of the first datagram; `InvalidInput` for a size of 0.
    pub async fn send_segments(
        &self,
        buf: &[u8],
        size: usize,
        target: SocketAddr,
    ) -> io::Result<usize> {
        let mut sent =
            self.writing(|handle| handle.try_send_segments(buf, size, Some(target))).await?;
        while let Some(left) = buf.get(sent..).filter(|left| !left.is_empty()) {
            match self.writing(|handle| handle.try_send_segments(left, size, Some(target))).await {
                Ok(bytes) => sent += bytes,
                // The batch was successful so far; the next call returns the error.
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    /// As [`UdpSocket::send_segments`], as many as are taken at once.
    ///
    /// # Errors
    /// As there, and `WouldBlock` where none is taken.
    pub fn try_send_segments(
        &self,
        buf: &[u8],
        size: usize,
        target: SocketAddr,
    ) -> io::Result<usize> {
        self.handle.try_send_segments(buf, size, Some(target))
    }

    fn datagram(&self, inner: ReceivedPacket) -> Datagram {
        let from = super::with_scope(inner.from, inner.iface);
        Datagram { from: self.as_written(from), inner }
    }
}

/// Datagrams that are handed to the worker at once.
const BATCH_DATAGRAMS: usize = 64;

impl fmt::Debug for Datagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datagram")
            .field("from", &self.from)
            .field("to", &self.to())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
