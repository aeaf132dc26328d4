//! `Net`: two hosts and a wire, as an application of either stack uses them.

use std::time::Duration;

/// Which end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Client,
    Server,
}

/// What the wire between two hosts is like, and what their sockets may hold.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) v6: bool,
    /// The largest IP packet in bytes.
    pub(crate) mtu: usize,
    /// Whether both ends compute and verify TCP's checksums.
    pub(crate) sums: bool,
    /// Bytes of each socket's two buffers.
    pub(crate) buffer: usize,
    /// Connections at a time.
    pub(crate) connections: usize,
}

impl Shape {
    /// Bytes of a socket's buffers, unless a row sets another number.
    pub(crate) const BUFFER: usize = 262_144;

    /// An Ethernet's MTU and checksums.
    pub(crate) const fn plain(v6: bool) -> Self {
        Self { v6, mtu: 1500, sums: true, buffer: Self::BUFFER, connections: 1 }
    }
}

/// The port at which the server listens for what is measured.
pub(crate) const PORT: u16 = 7000;
/// Those for connections that idle: as many as the client's ports do not suffice for.
pub(crate) const IDLE_PORTS: u16 = 8;

/// Two hosts on a wire that loses nothing.
pub(crate) trait Net {
    type Conn: Copy;

    fn new(shape: Shape) -> Self;

    /// The client opens a connection.
    fn connect(&mut self, port: u16) -> Self::Conn;

    /// The server takes one that waits.
    fn accept(&mut self) -> Option<Self::Conn>;

    /// Bytes that were taken.
    fn send(&mut self, side: Side, conn: Self::Conn, bytes: &[u8]) -> usize;

    /// Bytes that were read; 0 at the peer's end of data, `None` if nothing is queued.
    fn recv(&mut self, side: Side, conn: Self::Conn, out: &mut [u8]) -> Option<usize>;

    fn close(&mut self, side: Side, conn: Self::Conn);

    /// What was sent arrives at the other end, and what that answers at the first.
    fn turn(&mut self);

    /// Advances time by `time` without traffic.
    fn wait(&mut self, time: Duration);
}

/// A connection's two ends, which carry data.
pub(crate) fn open<N: Net>(net: &mut N, port: u16) -> [N::Conn; 2] {
    let client = net.connect(port);
    for _ in 0..100 {
        net.turn();
        if let Some(server) = net.accept() {
            return [client, server];
        }
    }
    panic!("a connection did not open");
}
