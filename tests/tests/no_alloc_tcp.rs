//! Between a segment's arrival and its departure nothing is allocated: bulk, losses, opening and
//! closing; and a byte of bulk is copied twice, by its writer and by its reader.
//!
//! Two sets of connections hand each other packets of one pool. Everything is done once to warm up,
//! then counted.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counters, IfIndex, Instant, Randomness, Units};
use floodwall_packet::{AccessCounters, PacketBuf, PacketList, Pool, PoolConfig, Region};
use floodwall_tcp::{
    ConnectionAddrs, ConnectionId, ConnectionTable, CookieMoment, ListenerId, SegmentInput,
    TcpConfig, TcpContext, TcpSettings, Transmit,
};
use floodwall_testkit::alloc::{CountingAllocator, counted};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

struct Host {
    tcp: ConnectionTable,
    random: Randomness,
    counters: Counters,
    arrived: PacketList,
    addr: IpAddr,
}

struct Pair {
    pool: Pool,
    now: Instant,
    hosts: [Host; 2],
    listener: ListenerId,
    /// Every so many segments one is lost.
    loses: Option<u64>,
    segments: u64,
    access: AccessCounters,
    /// Places and lengths of the payloads that were sent, while they are recorded.
    seen: Option<Vec<Piece>>,
}

/// The address of some bytes, and how many.
type Piece = (usize, usize);

/// The pieces of a packet that have bytes.
fn pieces(packet: &PacketBuf) -> impl Iterator<Item = Piece> + '_ {
    packet
        .chunks()
        .filter(|piece| !piece.is_empty())
        .map(|piece| (piece.as_ptr().addr(), piece.len()))
}

/// Those of a segment's text: its header is in front of it, in the same chunk or another.
fn text(segment: &PacketBuf) -> impl Iterator<Item = Piece> + '_ {
    let mut header = segment.payload();
    pieces(segment).filter_map(move |(at, len)| {
        let here = header.min(len);
        header -= here;
        (here < len).then_some((at + here, len - here))
    })
}

impl Pair {
    fn new(v6: bool) -> Self {
        let pool =
            PoolConfig { frames: 8192, small: 8192, references: 16_384, ..PoolConfig::default() };
        let pool = Region::new(&pool).unwrap().attach().unwrap();
        let now = Instant::from_nanos(1_000_000_000);
        let host = |n: u8| {
            let mut random = Randomness::from_number(n.into());
            let config = TcpConfig { connections_max: 64, ..TcpConfig::default() };
            let tcp = ConnectionTable::new(config, CookieMoment::simulated(now), &mut random);
            let v6_addr = format!("fd00::{n}").parse().unwrap();
            let addr = if v6 { v6_addr } else { IpAddr::from([10, 0, 0, n]) };
            let (counters, arrived) = (Counters::default(), PacketList::new());
            Host { tcp, random, counters, arrived, addr }
        };
        let mut hosts = [host(1), host(2)];
        let any = SocketAddr::new("::".parse().unwrap(), 80);
        let settings = TcpSettings::default();
        let tcp = &mut hosts[1].tcp;
        let listener = tcp.listen(any, IfIndex::default(), 1500, &settings, 64, 0).unwrap();
        let access = AccessCounters::default();
        Self { pool, now, hosts, listener, loses: None, segments: 0, access, seen: None }
    }

    fn with<R>(
        &mut self,
        host: usize,
        act: impl FnOnce(&mut ConnectionTable, &mut TcpContext<'_>) -> R,
    ) -> R {
        let Host { tcp, random, counters, .. } = &mut self.hosts[host];
        let epoch = CookieMoment::simulated(self.now).epoch;
        let mut lend = TcpContext { now: self.now, epoch, pool: &self.pool, random, counters };
        act(tcp, &mut lend)
    }

    fn launch(&mut self, from: usize, out: Transmit) {
        self.segments += 1;
        if let Some(seen) = &mut self.seen {
            seen.extend(text(&out.packet));
        }
        if self.loses.is_none_or(|every| !self.segments.is_multiple_of(every)) {
            self.hosts[1 - from].arrived.push_back(out.packet);
        }
    }

    /// Until nothing moves any more; then a millisecond passes.
    fn exchange(&mut self) {
        loop {
            for host in [0, 1] {
                while let Some(out) = self.with(host, |tcp, lend| tcp.transmit(lend)) {
                    self.launch(host, out);
                }
            }
            let before = self.segments;
            for host in [0, 1] {
                while let Some(packet) = self.hosts[host].arrived.pop_front() {
                    let input = SegmentInput {
                        src_addr: self.hosts[1 - host].addr,
                        dst_addr: self.hosts[host].addr,
                        iface: IfIndex(1),
                        l4: 0,
                        len: packet.len(),
                        mtu: 1500,
                        group: false,
                        congestion: false,
                    };
                    let mut access = self.access;
                    let verdict =
                        self.with(host, |tcp, lend| tcp.input(lend, &input, packet, &mut access));
                    self.access = access;
                    if let floodwall_tcp::SegmentVerdict::Answered(out) = verdict {
                        self.launch(host, out);
                    }
                }
            }
            let wants = self.hosts.iter().any(|host| host.tcp.wants_transmit());
            let flies = self.hosts.iter().any(|host| !host.arrived.is_empty());
            if !wants && !flies && before == self.segments {
                break;
            }
        }
        self.now += Duration::from_millis(1);
        for host in [0, 1] {
            self.with(host, |tcp, lend| tcp.work(lend, Units(64), &mut |_| {}));
        }
    }

    fn open(&mut self) -> [ConnectionId; 2] {
        let [from, to] = [0, 1].map(|host: usize| self.hosts[host].addr);
        let ends = ConnectionAddrs {
            local: SocketAddr::new(from, 0),
            remote: SocketAddr::new(to, 80),
            zone: IfIndex::default(),
            mtu: 1500,
        };
        let settings = TcpSettings::default();
        let client = self.with(0, |tcp, lend| tcp.connect(lend, &ends, &settings, 0)).unwrap();
        let listener = self.listener;
        for _ in 0..4000 {
            self.exchange();
            if let Some(server) = self.with(1, |tcp, _| tcp.accept(listener)).unwrap() {
                return [client, server];
            }
        }
        panic!("nothing arrived");
    }

    /// Moves so many bytes from the client to the server.
    fn bulk(&mut self, ids: [ConnectionId; 2], bytes: usize) {
        let (out, mut buffer) = ([7; 16_384], [0; 16_384]);
        let (mut written, mut read, mut turns) = (0, 0, 0);
        while read < bytes {
            let rest = &out[..out.len().min(bytes - written)];
            written += self.with(0, |tcp, lend| tcp.send(lend, ids[0], rest)).unwrap_or(0);
            self.exchange();
            while let Ok(n) = self.with(1, |tcp, lend| tcp.recv(ids[1], &mut buffer, lend.now)) {
                read += n;
            }
            turns += 1;
            assert!(turns < 200_000, "{read} of {bytes}");
        }
    }

    fn close(&mut self, ids: [ConnectionId; 2]) {
        for host in [0, 1] {
            self.with(host, |tcp, lend| tcp.close(lend, ids[host])).unwrap();
            self.exchange();
        }
    }
}

#[test]
fn bulk_allocates_nothing_with_losses_and_without() {
    for v6 in [false, true] {
        for loses in [None, Some(97)] {
            let mut pair = Pair::new(v6);
            let ids = pair.open();
            pair.loses = loses;
            pair.bulk(ids, 1 << 20);
            let (count, ()) = counted(|| pair.bulk(ids, 1 << 20));
            assert_eq!(count.allocations, 0, "IPv6: {v6}, losing {loses:?}");
        }
    }
}

#[test]
fn opening_and_closing_allocates_nothing() {
    let mut pair = Pair::new(true);
    for _ in 0..20 {
        let ids = pair.open();
        pair.close(ids);
    }
    let (count, ()) = counted(|| {
        for _ in 0..20 {
            let ids = pair.open();
            pair.bulk(ids, 1000);
            pair.close(ids);
        }
    });
    assert_eq!(count.allocations, 0);
}

/// The writer's copy is the one that is sent, sent again, received and handed out, in place: so a
/// copying reader makes the second copy of a byte and the last.
#[test]
fn bytes_are_copied_by_their_writer_and_by_their_reader_and_by_nothing_else() {
    for v6 in [false, true] {
        for whole in [false, true] {
            let mut pair = Pair::new(v6);
            let ids = pair.open();
            pair.bulk(ids, 1 << 18);
            let len = pair.with(0, |tcp, _| tcp.chunk_len(ids[0])).unwrap();
            let bytes: Vec<u8> = (0..20 * len).map(|n| (n ^ n >> 8) as u8).collect();
            pair.seen = Some(Vec::new());
            if whole {
                // As a program on another thread writes: chunks of its own.
                let mut chunks = PacketList::new();
                for piece in bytes.chunks(len) {
                    chunks.push_back(pair.pool.packet_from(piece).unwrap());
                }
                let sent = pair.with(0, |tcp, lend| tcp.send_chunks(ids[0], &mut chunks, lend.now));
                sent.unwrap();
            } else {
                let sent = pair.with(0, |tcp, lend| tcp.send(lend, ids[0], &bytes));
                assert_eq!(sent, Ok(bytes.len()));
            }
            for _ in 0..100 {
                pair.exchange();
            }
            let sent = pair.seen.take().unwrap();
            let (mut received, mut text) = (Vec::new(), Vec::<u8>::new());
            while let Ok(Some(chunk)) = pair.with(1, |tcp, lend| tcp.recv_chunk(ids[1], lend.now)) {
                received.extend(pieces(&chunk));
                text.extend(chunk.chunks().flatten());
            }
            assert!(text == bytes, "IPv6: {v6}");
            assert_eq!(received, sent, "the same memory at both ends, IPv6: {v6}");
            assert_eq!(sent.len(), 20, "a segment, a piece");
        }
    }
}

#[test]
fn what_is_sent_again_is_the_writers_copy() {
    let mut pair = Pair::new(true);
    let ids = pair.open();
    pair.bulk(ids, 1 << 18);
    pair.seen = Some(Vec::new());
    (pair.loses, pair.segments) = (Some(3), 0);
    let sent = pair.with(0, |tcp, lend| tcp.send(lend, ids[0], &[7; 14_000]));
    assert_eq!(sent, Ok(14_000));
    for _ in 0..2000 {
        pair.exchange();
    }
    let mut seen = pair.seen.take().unwrap();
    let all = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert!(all > seen.len(), "something was sent again");
    assert_eq!(seen.iter().map(|(_, len)| len).sum::<usize>(), 14_000);
}
