//! The loads that a pair of hosts is measured with. Each compares every byte that it reads.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::lwip::Lwip;
use crate::net::{IDLE_PORTS, Net, PORT, Shape, Side, open};

/// Bytes of one message of a ping-pong, and of an exchange.
const MESSAGE: usize = 64;
/// Bytes of one write and of one read of bulk.
const PIECE: usize = 65_536;
/// The period of bulk's bytes: no power of two, so that what is displaced is seen.
const PERIOD: usize = 251;
/// Between a connection's end and the next ones: its port comes free before they run out.
const PAUSE: Duration = Duration::from_millis(20);

/// One contestant's row.
pub(crate) trait Load {
    /// Does `n` of what the row counts.
    fn run(&mut self, n: usize);

    /// Does so many after a few that bring its memory back into the caches; nanoseconds of one.
    fn timed(&mut self, n: usize) -> f64 {
        self.run(n.div_ceil(10));
        let start = own_nanos();
        self.run(n);
        (own_nanos() - start) / n as f64
    }
}

impl Load for Lwip {
    fn run(&mut self, n: usize) {
        Self::timed(self, n);
    }

    fn timed(&mut self, n: usize) -> f64 {
        Self::timed(self, n)
    }
}

/// What this thread has used of a processor, in nanoseconds: other programs do not count.
fn own_nanos() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

struct Stream<C> {
    conns: [C; 2],
    written: usize,
    read: usize,
}

/// One direction as fast as it goes, the streams in turn. Counts pieces.
pub(crate) struct Bulk<N: Net> {
    net: N,
    streams: Vec<Stream<N::Conn>>,
    /// Two periods more than a piece; gives the byte at any offset of a stream.
    text: Vec<u8>,
    buffer: Vec<u8>,
}

impl<N: Net> Bulk<N> {
    pub(crate) fn new(shape: Shape) -> Self {
        let mut net = N::new(shape);
        let streams = (0..shape.connections)
            .map(|_| Stream { conns: open(&mut net, PORT), written: 0, read: 0 })
            .collect();
        let text = (0..PIECE + PERIOD).map(|i| (i % PERIOD) as u8).collect();
        Self { net, streams, text, buffer: vec![0; PIECE] }
    }
}

impl<N: Net> Load for Bulk<N> {
    fn run(&mut self, n: usize) {
        let Self { net, streams, text, buffer } = self;
        let each = n * PIECE / streams.len();
        let goal = streams[0].read + each;
        let mut left = streams.len();
        while left > 0 {
            for stream in streams.iter_mut() {
                let want = (goal - stream.written).min(PIECE);
                let at = stream.written % PERIOD;
                let bytes = &text[at..at + want];
                stream.written += net.send(Side::Client, stream.conns[0], bytes);
            }
            net.turn();
            for stream in streams.iter_mut().filter(|stream| stream.read < goal) {
                while let Some(read) = net.recv(Side::Server, stream.conns[1], buffer) {
                    let at = stream.read % PERIOD;
                    assert!(buffer[..read] == text[at..at + read], "bytes are lost or changed");
                    stream.read += read;
                }
                left -= usize::from(stream.read == goal);
            }
            net.turn();
        }
    }
}

/// A message there and back, on each connection in its turn.
pub(crate) struct PingPong<N: Net> {
    net: N,
    conns: Vec<[N::Conn; 2]>,
    next: usize,
}

impl<N: Net> PingPong<N> {
    pub(crate) fn new(shape: Shape) -> Self {
        let mut net = N::new(shape);
        let conns = (0..shape.connections).map(|_| open(&mut net, PORT)).collect();
        Self { net, conns, next: 0 }
    }
}

impl<N: Net> Load for PingPong<N> {
    fn run(&mut self, n: usize) {
        for _ in 0..n {
            let [client, server] = self.conns[self.next % self.conns.len()];
            let (message, mut read) = ([self.next as u8; MESSAGE], [0; MESSAGE]);
            for (from, to, side) in [(client, server, Side::Client), (server, client, Side::Server)]
            {
                let other = if side == Side::Client { Side::Server } else { Side::Client };
                assert_eq!(self.net.send(side, from, &message), MESSAGE);
                self.net.turn();
                assert_eq!(self.net.recv(other, to, &mut read), Some(MESSAGE));
                assert_eq!(read, message);
            }
            self.next += 1;
        }
    }
}

/// Connections that open, exchange a message each way and close, some at a time.
pub(crate) struct Churn<N: Net> {
    net: N,
    at_once: usize,
    next: u64,
    /// Those of a generation. Kept, so that none is allocated for each, as in lwIP's driver.
    clients: Vec<N::Conn>,
    servers: Vec<N::Conn>,
}

impl<N: Net> Churn<N> {
    /// Amid so many that do nothing.
    pub(crate) fn new(shape: Shape, at_once: usize, idle: usize) -> Self {
        let mut net = N::new(Shape { connections: at_once + idle, ..shape });
        for n in 0..idle {
            open(&mut net, PORT + 1 + n as u16 % IDLE_PORTS);
        }
        let [clients, servers] = [(); 2].map(|()| Vec::with_capacity(at_once));
        Self { net, at_once, next: 0, clients, servers }
    }

    fn generation(&mut self) {
        let Self { net, at_once, next, clients, servers } = self;
        clients.clear();
        clients.extend((0..*at_once).map(|_| net.connect(PORT)));
        net.turn();
        for (n, client) in clients.iter().enumerate() {
            let message = [(*next + n as u64).to_le_bytes(); MESSAGE / 8];
            assert_eq!(net.send(Side::Client, *client, message.as_flattened()), MESSAGE);
        }
        net.turn();
        let mut read = [0; MESSAGE];
        servers.clear();
        servers.extend((0..*at_once).map(|_| net.accept().expect("all have opened")));
        for server in servers.iter() {
            assert_eq!(net.recv(Side::Server, *server, &mut read), Some(MESSAGE));
            assert_eq!(net.send(Side::Server, *server, &read), MESSAGE);
        }
        net.turn();
        for (n, client) in clients.iter().enumerate() {
            let message = [(*next + n as u64).to_le_bytes(); MESSAGE / 8];
            assert_eq!(net.recv(Side::Client, *client, &mut read), Some(MESSAGE));
            assert_eq!(&read, message.as_flattened());
            net.close(Side::Client, *client);
        }
        net.turn();
        for server in servers.iter() {
            assert_eq!(net.recv(Side::Server, *server, &mut read), Some(0));
            net.close(Side::Server, *server);
        }
        net.turn();
        // The last acknowledgment arrives.
        net.turn();
        net.wait(PAUSE);
        *next += *at_once as u64;
    }
}

impl<N: Net> Load for Churn<N> {
    fn run(&mut self, n: usize) {
        (0..n.div_ceil(self.at_once)).for_each(|_| self.generation());
    }
}
