//! TCP: any segment into any state, with sequence numbers put right, among an application's calls,
//! ICMP errors and clock steps.
//!
//! The bytes are a program of at most [`STEPS_MAX`] steps. The peer's numbers are taken from the
//! connection itself and moved by a small or a large step, so that what is sent often fits; each
//! byte of its stream encodes its place. Invariants: no panic; what is read is the peer's stream,
//! each byte in its place; a set of dropped connections is empty in the end, and all memory is
//! back.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counters, Endpoint, FlowKey, IfIndex, Instant, Randomness, Seq, Units};
use floodwall_packet::{AccessCounters, Pool, PoolConfig, Region};
use floodwall_tcp::{
    ConnectionAddrs, ConnectionId, ConnectionTable, CookieMoment, IcmpSays, ListenerId,
    SegmentInput, SegmentVerdict, TcpConfig, TcpContext, TcpSettings, TcpState,
};
use floodwall_wire::tcp::{TcpFields, TcpFlags, TcpHeader};
use floodwall_wire::tcp_options::TcpOptionSet;

const STEPS_MAX: usize = 200;
/// The peer's first sequence number: its stream wraps.
const IRS: u32 = 0xffff_fff0;
const PORTS: (u16, u16) = (80, 4000);

struct World {
    tcp: ConnectionTable,
    pool: Pool,
    random: Randomness,
    counters: Counters,
    now: Instant,
    listener: ListenerId,
    id: Option<ConnectionId>,
    /// Our port.
    port: u16,
    iss: u32,
    addrs: (IpAddr, IpAddr),
}

/// The bytes of a program, zero when they are over.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A step from a number that fits: mostly none, sometimes small, sometimes any.
    fn step(&mut self) -> u32 {
        match self.u8() {
            0..=159 => 0,
            160..=199 => u32::from(self.u8()),
            200..=229 => u32::from(self.u8()).wrapping_neg(),
            230..=249 => u32::from(self.u8()) << 8,
            _ => u32::from_be_bytes([self.u8(), self.u8(), self.u8(), self.u8()]),
        }
    }

    fn take(&mut self, n: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }
}

/// The byte of the peer's stream at a sequence number.
const fn byte_at(seq: u32) -> u8 {
    let at = seq.wrapping_sub(IRS.wrapping_add(1));
    (at ^ at >> 8 ^ at >> 16) as u8
}

impl World {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let pool = PoolConfig { frames: 256, small: 256, references: 256, ..PoolConfig::default() };
        let region = Region::new(&pool).expect("memory for a small pool");
        let now = Instant::from_nanos(1_000_000_000);
        let mut random = Randomness::from_number(1);
        let config = TcpConfig { connections_max: 8, listeners_max: 2, ..TcpConfig::default() };
        let mut tcp = ConnectionTable::new(config, CookieMoment::simulated(now), &mut random);
        let choice = bytes.u8();
        let settings = TcpSettings {
            receive_bytes: [1000, 5000, 100_000, 65_536][usize::from(choice & 3)],
            send_bytes: [1000, 40_000][usize::from(choice >> 2 & 1)],
            ecn: choice & 8 != 0,
            cork: choice & 64 != 0,
            unsent_bytes: (choice & 128 != 0).then_some(700),
            ..TcpSettings::default()
        };
        let v6 = choice & 16 != 0;
        let addr = |v4: &str, six: &str| if v6 { six.parse() } else { v4.parse() };
        let addrs = (addr("10.0.0.1", "fd00::1"), addr("10.0.0.2", "fd00::2"));
        let addrs = (addrs.0.expect("an address"), addrs.1.expect("an address"));
        let any = SocketAddr::from(([0_u16; 8], PORTS.0));
        let listener = tcp.listen(any, IfIndex::default(), 1500, &settings, 4, 0);
        let mut it = Self {
            listener: listener.expect("the first listener"),
            tcp,
            pool: region.attach().expect("the first to attach"),
            random,
            counters: Counters::default(),
            now,
            id: None,
            port: PORTS.0,
            iss: 0,
            addrs,
        };
        if choice & 32 != 0 {
            let ends = ConnectionAddrs {
                local: SocketAddr::new(it.addrs.0, 0),
                remote: SocketAddr::new(it.addrs.1, PORTS.1),
                zone: IfIndex::default(),
                mtu: 1500,
            };
            let id = it.with(|tcp, lend| tcp.connect(lend, &ends, &settings, 0));
            let id = id.expect("the first connection");
            it.port = it.tcp.ends(id).expect("it is there").0.port();
            it.id = Some(id);
        }
        it.flush();
        it
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut ConnectionTable, &mut TcpContext<'_>) -> R) -> R {
        let Self { tcp, pool, random, counters, now, .. } = self;
        let epoch = CookieMoment::simulated(*now).epoch;
        act(tcp, &mut TcpContext { now: *now, epoch, pool, random, counters })
    }

    /// Reads what leaves: our SYN carries our first number.
    fn note(&mut self, packet: &[u8]) {
        let header = TcpHeader::parse(packet, packet.len()).expect("our own header");
        TcpOptionSet::read(header.options()).expect("our own options");
        if header.flags().contains(TcpFlags::SYN) {
            self.iss = header.seq();
        }
    }

    fn flush(&mut self) {
        // Each turn takes a segment off; none makes more of them than there is data.
        for _ in 0..10_000 {
            let Some(out) = self.with(|tcp, lend| tcp.transmit(lend)) else { return };
            let bytes: Vec<u8> = out.packet.chunks().flatten().copied().collect();
            self.note(&bytes);
        }
        panic!("a connection that never stops sending");
    }

    fn segment(&mut self, bytes: &mut Bytes<'_>) {
        let numbers = self.id.and_then(|id| self.tcp.sequence(id).ok());
        let opened = numbers.filter(|(_, theirs)| theirs.0 != 0);
        let (ours, theirs) = match opened {
            Some((ours, theirs)) => (ours.0, theirs.0),
            None => (self.iss.wrapping_add(1), IRS.wrapping_add(u32::from(bytes.u8() & 1))),
        };
        let (seq, ack) = (theirs.wrapping_add(bytes.step()), ours.wrapping_sub(bytes.step()));
        let flags = match bytes.u8() {
            0..=99 => TcpFlags::ACK,
            100..=139 => TcpFlags::ACK | TcpFlags::PSH,
            140..=159 => TcpFlags::SYN,
            160..=179 => TcpFlags::SYN | TcpFlags::ACK,
            180..=199 => TcpFlags::FIN | TcpFlags::ACK,
            any => TcpFlags(any.wrapping_mul(167) ^ bytes.u8()),
        };
        let window = u16::from_be_bytes([bytes.u8(), bytes.u8()]);
        let options = match bytes.u8() {
            0..=127 => Vec::new(),
            n => bytes.take(usize::from(n & 7) * 4 + 4),
        };
        let len = match bytes.u8() {
            0..=99 => 0,
            100..=199 => u32::from(bytes.u8()),
            n => u32::from(n) * 6,
        };
        let first = seq.wrapping_add(u32::from(flags.contains(TcpFlags::SYN)));
        let data: Vec<u8> = (0..len).map(|at| byte_at(first.wrapping_add(at))).collect();
        self.put(seq, ack, flags, window, &options, &data);
    }

    fn put(
        &mut self,
        seq: u32,
        ack: u32,
        flags: TcpFlags,
        window: u16,
        options: &[u8],
        data: &[u8],
    ) {
        let urgent = window;
        let (src_port, dst_port) = (PORTS.1, self.port);
        let fields = TcpFields { src_port, dst_port, seq, ack, flags, window, urgent };
        let mut fixed = [0; 20];
        let padded = options.len().next_multiple_of(4);
        fields.emit_fixed((5 + padded / 4) as u8, &mut fixed);
        let mut bytes = fixed.to_vec();
        bytes.extend_from_slice(options);
        bytes.resize(20 + padded, 0);
        bytes.extend_from_slice(data);
        let Some(mut packet) = self.pool.packet_from(&bytes) else { return };
        // Checksums are verified by `wire`: this one counts as right.
        packet.set_checksum_state(floodwall_packet::ChecksumState::Verified);
        let input = SegmentInput {
            src_addr: self.addrs.1,
            dst_addr: self.addrs.0,
            iface: IfIndex(1),
            l4: 0,
            len: bytes.len(),
            mtu: 1500,
            group: false,
            congestion: window & 1 == 1,
        };
        let mut access = AccessCounters::default();
        let verdict = self.with(|tcp, lend| tcp.input(lend, &input, packet, &mut access));
        if let SegmentVerdict::Answered(out) = verdict {
            let bytes: Vec<u8> = out.packet.chunks().flatten().copied().collect();
            self.note(&bytes);
        }
        self.flush();
    }

    fn read(&mut self, most: usize) {
        let (Some(id), now) = (self.id, self.now) else { return };
        let mut out = vec![0; most];
        let Ok(info) = self.tcp.info(id, now) else { return };
        let next = self.tcp.sequence(id).map_or(0, |(_, theirs)| theirs.0);
        // For any first SYN: what was not read ends where the peer's next byte, or FIN, is.
        let first = next.wrapping_sub(u32::from(info.has_ended)).wrapping_sub(info.readable);
        let Ok(n) = self.tcp.recv(id, &mut out, now) else { return };
        for (at, byte) in out.iter().take(n).enumerate() {
            assert_eq!(*byte, byte_at(first.wrapping_add(at as u32)), "byte {at} of {n}");
        }
        self.flush();
    }

    fn call(&mut self, bytes: &mut Bytes<'_>) {
        let now = self.now;
        match (bytes.u8() % 8, self.id) {
            (0 | 1, Some(id)) => {
                let piece = vec![7; usize::from(bytes.u8()) * 20];
                let _ = self.with(|tcp, lend| tcp.send(lend, id, &piece));
            }
            (2 | 3, Some(_)) => {
                let most = usize::from(bytes.u8()) * 8;
                self.read(most);
            }
            (4, Some(id)) => {
                let _ = self.tcp.shutdown_write(id, now);
            }
            (5, Some(id)) => self.leave(id, bytes.u8() & 1 == 1),
            (6, Some(id)) => {
                let mut info =
                    TcpSettings { nodelay: bytes.u8() & 1 == 1, ..TcpSettings::default() };
                info.keepalive = (bytes.u8() & 1 == 1).then(Default::default);
                let _ = self.tcp.configure(id, &info, now);
            }
            (_, None) => {
                let listener = self.listener;
                self.id = self.tcp.accept(listener).ok().flatten();
            }
            _ => {}
        }
        self.flush();
    }

    fn leave(&mut self, id: ConnectionId, resets: bool) {
        let _ = self.with(|tcp, lend| match resets {
            true => tcp.abort(lend, id),
            false => tcp.close(lend, id),
        });
        self.id = None;
        self.flush();
    }

    fn error(&mut self, bytes: &mut Bytes<'_>) {
        let flow = FlowKey {
            local: Endpoint::new(self.addrs.0, self.port),
            remote: Endpoint::new(self.addrs.1, PORTS.1),
            zone: IfIndex::default(),
            protocol: 6,
        };
        let seq = Seq(self.iss.wrapping_add(bytes.step()));
        let says = match bytes.u8() % 3 {
            0 => IcmpSays::Refused,
            1 => IcmpSays::Unreachable,
            _ => IcmpSays::TooBig(u32::from(bytes.u8()) * 8),
        };
        self.tcp.icmp_error(&flow, seq, says, self.now);
        self.flush();
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(due) = self.tcp.deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.with(|tcp, lend| tcp.work(lend, Units(64), &mut |_| {}));
            self.flush();
        }
        self.now = until;
    }

    /// Everybody lets go; nothing may stay.
    fn end(mut self) {
        if let Some(id) = self.id {
            if self.tcp.state(id).is_ok_and(|state| state != TcpState::Closed) {
                self.read(1 << 16);
            }
            self.leave(id, false);
        }
        let listener = self.listener;
        let _ = self.with(|tcp, lend| tcp.unlisten(lend, listener));
        self.flush();
        self.pass(Duration::from_secs(4000));
        assert!(self.tcp.is_empty(), "{} connections are left", self.tcp.len());
        let free = self.pool.available();
        assert_eq!((free.frames, free.small, free.references), (256, 256, 256), "memory is left");
    }
}

/// Plays the program.
pub fn tcp(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut world = World::new(&mut bytes);
    for _ in 0..STEPS_MAX {
        if bytes.0.is_empty() {
            break;
        }
        match bytes.u8() {
            0..=149 => world.segment(&mut bytes),
            150..=219 => world.call(&mut bytes),
            220..=229 => world.error(&mut bytes),
            230..=249 => world.pass(Duration::from_millis(u64::from(bytes.u8()) * 4)),
            _ => world.pass(Duration::from_secs(u64::from(bytes.u8()) * 4)),
        }
    }
    world.end();
}
