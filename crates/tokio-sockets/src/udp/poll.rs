//! Operations without waiting (`try_*`) and poll functions, for hand-written futures.
//!
//! Of several tasks that poll one direction, the last one is woken, as with tokio's socket; any
//! number may await. A `try_` call costs none of the task's budget.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use floodwall_stack::remote::{UdpHandle, WaitDirection};
use floodwall_udp::Received;
use tokio::io::{Interest, ReadBuf};

use super::UdpSocket;
use crate::readiness;

impl UdpSocket {
    /// Sends one datagram to the connected peer, now or not at all.
    ///
    /// # Errors
    /// As [`UdpSocket::send`], and `WouldBlock` where that would wait.
    pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
        self.handle.try_send(buf)
    }

    /// Sends one datagram to `target`, now or not at all.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`], and `WouldBlock` where that would wait.
    pub fn try_send_to(&self, buf: &[u8], target: SocketAddr) -> io::Result<usize> {
        self.handle.try_send_to(buf, target)
    }

    /// Sends one datagram from `source` to `target`, now or not at all.
    ///
    /// # Errors
    /// As [`UdpSocket::send_from`], and `WouldBlock` where that would wait.
    pub fn try_send_from(
        &self,
        buf: &[u8],
        source: SocketAddr,
        target: SocketAddr,
    ) -> io::Result<usize> {
        self.handle.try_send_from(buf, source, target)
    }

    /// Receives one datagram that is there, with all that is known of it.
    ///
    /// # Errors
    /// As [`UdpSocket::try_recv`].
    pub fn try_receive(&self, buf: &mut [u8]) -> io::Result<Received> {
        self.handle.try_recv_from(buf)
    }

    /// Receives one datagram that is there.
    ///
    /// # Errors
    /// As [`UdpSocket::recv`], and `WouldBlock` where none is there.
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.handle.try_recv_from(buf).map(|received| received.len)
    }

    /// As [`UdpSocket::try_recv`], with the sender's address.
    ///
    /// # Errors
    /// As there.
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.with_sender(self.handle.try_recv_from(buf))
    }

    /// Copies the oldest datagram, where one is there, and leaves it.
    ///
    /// # Errors
    /// As [`UdpSocket::try_recv`].
    pub fn try_peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.handle.try_peek_from(buf).map(|received| received.len)
    }

    /// As [`UdpSocket::try_peek`], with the sender's address.
    ///
    /// # Errors
    /// As there.
    pub fn try_peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.with_sender(self.handle.try_peek_from(buf))
    }

    /// The sender of the oldest datagram, where one is there.
    ///
    /// # Errors
    /// As [`UdpSocket::try_recv`].
    pub fn try_peek_sender(&self) -> io::Result<SocketAddr> {
        self.try_peek_from(&mut []).map(|(_, from)| from)
    }

    /// Runs `what`. Readiness is not cached here, as tokio does it, so there is no flag to clear
    /// when it returns `WouldBlock`: the next wait checks again.
    ///
    /// # Errors
    /// Those of `what`.
    pub fn try_io<R>(
        &self,
        _interest: Interest,
        what: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        what()
    }

    /// Polls [`UdpSocket::writable`].
    pub fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(cx, WaitDirection::Write)
    }

    /// Polls [`UdpSocket::readable`].
    pub fn poll_recv_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(cx, WaitDirection::Read)
    }

    /// Polls [`UdpSocket::send`].
    pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(cx, WaitDirection::Write, |handle, cx| handle.poll_send_to(cx, buf, None))
    }

    /// Polls [`UdpSocket::send_to`].
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        target: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, WaitDirection::Write, |handle, cx| handle.poll_send_to(cx, buf, Some(target)))
    }

    /// Polls [`UdpSocket::recv`]; appends to what `buf` holds already.
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_recv_from(cx, buf).map_ok(drop)
    }

    /// Polls [`UdpSocket::recv_from`]; appends to what `buf` holds already.
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        let room = buf.initialize_unfilled();
        let received =
            ready!(self.poll(cx, WaitDirection::Read, |h, cx| h.poll_recv_from(cx, room)));
        Poll::Ready(self.filled(buf, received))
    }

    /// Polls [`UdpSocket::peek`]; appends to what `buf` holds already.
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_peek_from(cx, buf).map_ok(drop)
    }

    /// Polls [`UdpSocket::peek_from`]; appends to what `buf` holds already.
    pub fn poll_peek_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        let room = buf.initialize_unfilled();
        let received =
            ready!(self.poll(cx, WaitDirection::Read, |h, cx| h.poll_peek_from(cx, room)));
        Poll::Ready(self.filled(buf, received))
    }

    /// Polls [`UdpSocket::peek_sender`].
    pub fn poll_peek_sender(&self, cx: &mut Context<'_>) -> Poll<io::Result<SocketAddr>> {
        let received =
            ready!(self.poll(cx, WaitDirection::Read, |h, cx| h.poll_peek_from(cx, &mut [])));
        Poll::Ready(received.map(|received| self.sender(&received)))
    }

    /// One poll, paid for where it achieves something.
    pub(super) fn poll<R>(
        &self,
        cx: &mut Context<'_>,
        direction: WaitDirection,
        poll: impl FnOnce(&UdpHandle, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        readiness::paid(cx, |cx| {
            self.name_group(direction);
            poll(&self.handle, cx)
        })
    }

    fn poll_ready(&self, cx: &mut Context<'_>, direction: WaitDirection) -> Poll<io::Result<()>> {
        self.poll(cx, direction, |handle, cx| handle.poll_ready(cx, direction))
    }

    fn with_sender(&self, received: io::Result<Received>) -> io::Result<(usize, SocketAddr)> {
        received.map(|received| (received.len, self.sender(&received)))
    }

    fn filled(
        &self,
        buf: &mut ReadBuf<'_>,
        received: io::Result<Received>,
    ) -> io::Result<SocketAddr> {
        let received = received?;
        buf.advance(received.len);
        Ok(self.sender(&received))
    }
}
