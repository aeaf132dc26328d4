//! Two sets of connections and a cable between them with loss, duplication, delay and corruption.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use floodwall_base::{Counters, IfIndex, Instant, PublicRandom, Randomness, Units};
use floodwall_packet::{AccessCounters, PacketList, Pool, PoolConfig, Region};
use floodwall_syncache::CookieMoment;

use crate::{
    ArrivedSegment, ConnectionAddrs, ConnectionId, ConnectionTable, ListenerId, RecvError,
    SegmentInput, SegmentVerdict, SendError, TcpConfig, TcpContext, TcpSettings, Transmit,
};

/// Frames of a host's pool: half of them may be held by its connections.
pub(super) const FRAMES: usize = 8192;

/// The impairments of the cable.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    pub(super) delay: Duration,
    pub(super) jitter: Duration,
    pub(super) loss: f64,
    pub(super) twice: f64,
    pub(super) spoil: f64,
    /// Bits per second of each direction, and the maximum queueing delay before a segment is
    /// dropped; `None` is unlimited.
    pub(super) rate: Option<(u64, Duration)>,
}

/// One host.
pub(super) struct Host {
    pub(super) tcp: ConnectionTable,
    pub(super) pool: Pool,
    pub(super) random: Randomness,
    pub(super) counters: Counters,
    pub(super) addrs: [IpAddr; 2],
}

/// A segment on the cable.
#[derive(Clone, Debug)]
pub(super) struct Flying {
    pub(super) to: usize,
    pub(super) src_addr: IpAddr,
    pub(super) dst_addr: IpAddr,
    pub(super) bytes: Vec<u8>,
}

pub(super) struct Cable {
    pub(super) hosts: [Host; 2],
    pub(super) now: Instant,
    pub(super) weather: Weather,
    pub(super) chance: PublicRandom,
    flying: BTreeMap<(Instant, u64), Flying>,
    count: u64,
    /// When each direction has finished sending.
    busy: [Instant; 2],
    /// Segments put on the cable, from each side.
    pub(super) sent: [u64; 2],
    /// A hash of all of them, with their times.
    pub(super) seen: u64,
    /// Segments that left within the call that wrote them.
    pub(super) at_once: u64,
}

impl Host {
    pub(super) fn new(seed: u64, number: u8, config: TcpConfig, now: Instant) -> Self {
        Self::with_frames(seed, number, config, now, FRAMES)
    }

    /// A host with a pool of so many frames.
    pub(super) fn with_frames(
        seed: u64,
        number: u8,
        config: TcpConfig,
        now: Instant,
        frames: usize,
    ) -> Self {
        let pool = PoolConfig { frames, small: 4096, references: frames, ..Default::default() };
        let mut random = Randomness::from_number(seed);
        let tcp = ConnectionTable::new(config, CookieMoment::simulated(now), &mut random);
        let v6 = format!("fd00::{number}").parse().unwrap();
        Self {
            tcp,
            pool: Region::new(&pool).unwrap().attach().unwrap(),
            random,
            counters: Counters::default(),
            addrs: [IpAddr::from([10, 0, 0, number]), v6],
        }
    }

    /// The same with so few references that segments are sent as copies.
    pub(super) fn with_references(self, references: usize) -> Self {
        let pool = PoolConfig { frames: FRAMES, small: 4096, references, ..Default::default() };
        Self { pool: Region::new(&pool).unwrap().attach().unwrap(), ..self }
    }

    pub(super) fn lend(&mut self, now: Instant) -> (&mut ConnectionTable, TcpContext<'_>) {
        let Self { tcp, pool, random, counters, .. } = self;
        let epoch = CookieMoment::simulated(now).epoch;
        (tcp, TcpContext { now, epoch, pool, random, counters })
    }
}

pub(super) fn small() -> TcpConfig {
    TcpConfig { connections_max: 64, listeners_max: 8, ..TcpConfig::default() }
}

impl Cable {
    pub(super) fn new(seed: u64) -> Self {
        Self::starting_at(seed, Instant::from_nanos(1_000_000_000))
    }

    pub(super) fn starting_at(seed: u64, now: Instant) -> Self {
        Self::with_frames(seed, now, FRAMES)
    }

    pub(super) fn with_frames(seed: u64, now: Instant, frames: usize) -> Self {
        let host = |n| Host::with_frames(seed * 2 + u64::from(n), n, small(), now, frames);
        let hosts = [1, 2].map(host);
        Self {
            hosts,
            now,
            weather: Weather { delay: Duration::from_millis(5), ..Weather::default() },
            chance: PublicRandom::new(seed),
            flying: BTreeMap::new(),
            count: 0,
            busy: [now; 2],
            sent: [0; 2],
            seen: 0,
            at_once: 0,
        }
    }

    pub(super) fn listen(&mut self, host: usize, port: u16, settings: &TcpSettings) -> ListenerId {
        let any = SocketAddr::new("::".parse().unwrap(), port);
        self.hosts[host].tcp.listen(any, IfIndex::default(), 1500, settings, 16, 0).unwrap()
    }

    /// Opens a connection from host 0 to host 1.
    pub(super) fn connect(&mut self, v6: bool, port: u16, settings: &TcpSettings) -> ConnectionId {
        self.connect_out(v6, port, settings, false)
    }

    /// The same; the SYN leaves at once or by lists.
    pub(super) fn connect_out(
        &mut self,
        v6: bool,
        port: u16,
        settings: &TcpSettings,
        at_once: bool,
    ) -> ConnectionId {
        let [from, to] = [0, 1].map(|host| self.hosts[host].addrs[usize::from(v6)]);
        let ends = ConnectionAddrs {
            local: SocketAddr::new(from, 0),
            remote: SocketAddr::new(to, port),
            zone: IfIndex::default(),
            mtu: 1500,
        };
        let now = self.now;
        let (tcp, mut lend) = self.hosts[0].lend(now);
        if !at_once {
            return tcp.connect(&mut lend, &ends, settings, 0).unwrap();
        }
        let (id, out) = tcp.connect_now(&mut lend, &ends, settings, 0, None).unwrap();
        self.at_once += u64::from(out.is_some());
        if let Some(out) = out {
            let bytes = out.packet.chunks().flatten().copied().collect();
            self.fly(Flying { to: 1, src_addr: from, dst_addr: to, bytes });
        }
        id
    }

    pub(super) fn accept(&mut self, host: usize, listener: ListenerId) -> Option<ConnectionId> {
        self.hosts[host].tcp.accept(listener).unwrap()
    }

    pub(super) fn recv(
        &mut self,
        host: usize,
        id: ConnectionId,
        out: &mut [u8],
    ) -> Result<usize, RecvError> {
        let now = self.now;
        self.hosts[host].tcp.recv(id, out, now)
    }

    pub(super) fn shutdown(&mut self, host: usize, id: ConnectionId) {
        let now = self.now;
        self.hosts[host].tcp.shutdown_write(id, now).unwrap();
    }

    pub(super) fn write(&mut self, host: usize, id: ConnectionId, bytes: &[u8]) -> usize {
        let now = self.now;
        let (tcp, mut lend) = self.hosts[host].lend(now);
        tcp.send(&mut lend, id, bytes).unwrap_or(0)
    }

    /// As a host's application writes: all that may be sent leaves, at once (`now`) or by lists.
    pub(super) fn write_out(
        &mut self,
        host: usize,
        id: ConnectionId,
        bytes: &[u8],
        more: bool,
        at_once: bool,
    ) -> Result<usize, SendError> {
        let now = self.now;
        let (tcp, mut lend) = self.hosts[host].lend(now);
        let ends = tcp.ends(id);
        let (sent, out) = match (at_once, more) {
            (true, _) => tcp.send_now(&mut lend, id, bytes, (more, None)),
            (false, true) => (tcp.send_more(&mut lend, id, bytes), None),
            (false, false) => (tcp.send(&mut lend, id, bytes), None),
        };
        self.at_once += u64::from(out.is_some());
        if let (Some(out), Ok((local, remote))) = (out, ends) {
            let bytes = out.packet.chunks().flatten().copied().collect();
            let (src_addr, dst_addr) = (local.ip(), remote.ip());
            self.fly(Flying { to: 1 - host, src_addr, dst_addr, bytes });
        }
        self.flush();
        sent
    }

    pub(super) fn close(&mut self, host: usize, id: ConnectionId) {
        let now = self.now;
        let (tcp, lend) = self.hosts[host].lend(now);
        tcp.close(&lend, id).unwrap();
    }

    /// As a host's application closes: what may be sent leaves, at once (`now`) or by lists.
    pub(super) fn close_out(&mut self, host: usize, id: ConnectionId, at_once: bool) {
        let now = self.now;
        let (tcp, mut lend) = self.hosts[host].lend(now);
        let (local, remote) = tcp.ends(id).unwrap();
        let out = match at_once && tcp.next_to_write(id).is_some() {
            true => tcp.close_now(&mut lend, id, None).unwrap(),
            false => {
                tcp.close(&lend, id).unwrap();
                None
            }
        };
        self.at_once += u64::from(out.is_some());
        if let Some(out) = out {
            let bytes = out.packet.chunks().flatten().copied().collect();
            let (src_addr, dst_addr) = (local.ip(), remote.ip());
            self.fly(Flying { to: 1 - host, src_addr, dst_addr, bytes });
        }
        self.flush();
    }

    /// Puts a segment on the cable, with impairments applied.
    pub(super) fn fly(&mut self, flying: Flying) {
        let len = flying.bytes.len() + if flying.dst_addr.is_ipv4() { 20 } else { 40 };
        assert!(len <= 1500, "a segment of {len} bytes would be fragmented");
        self.sent[1 - flying.to] += 1;
        let mut hash = DefaultHasher::new();
        (self.seen, self.now.as_nanos(), flying.to, &flying.bytes).hash(&mut hash);
        self.seen = hash.finish();
        let Weather { delay, jitter, loss, twice, spoil, rate } = self.weather;
        let mut delay = delay;
        if let Some((rate, patience)) = rate {
            let busy = &mut self.busy[1 - flying.to];
            let wait = busy.saturating_since(self.now);
            if wait > patience {
                return;
            }
            let nanos = (flying.bytes.len() as u64 + 40) * 8 * 1_000_000_000 / rate;
            *busy = self.now + wait + Duration::from_nanos(nanos);
            delay += wait + Duration::from_nanos(nanos);
        }
        let copies = 1 + usize::from(self.chance.chance(twice));
        for _ in 0..copies {
            if self.chance.chance(loss) {
                continue;
            }
            let mut flying = flying.clone();
            if self.chance.chance(spoil) {
                let at = self.chance.below(flying.bytes.len() as u64) as usize;
                flying.bytes[at] ^= 1 << self.chance.below(8);
            }
            let late = Duration::from_nanos(self.chance.below(jitter.as_nanos() as u64 + 1));
            self.count += 1;
            self.flying.insert((self.now + delay + late, self.count), flying);
        }
    }

    /// Puts all pending output on the cable.
    pub(super) fn flush(&mut self) {
        for host in 0..2 {
            loop {
                let now = self.now;
                let (tcp, mut lend) = self.hosts[host].lend(now);
                let mut rest = PacketList::new();
                let Some(out) = tcp.transmit_run(&mut lend, &mut rest) else { break };
                let Transmit { src_addr, dst_addr, .. } = out;
                self.launch(host, out);
                while let Some(packet) = rest.pop_front() {
                    let bytes = packet.chunks().flatten().copied().collect();
                    self.fly(Flying { to: 1 - host, src_addr, dst_addr, bytes });
                }
            }
        }
    }

    fn launch(&mut self, from: usize, out: Transmit) {
        let bytes: Vec<u8> = out.packet.chunks().flatten().copied().collect();
        let Transmit { src_addr, dst_addr, .. } = out;
        self.fly(Flying { to: 1 - from, src_addr, dst_addr, bytes });
    }

    /// Delivers one of several simultaneous arrivals: its run may wait for the others.
    pub(super) fn deliver(&mut self, flying: &Flying) {
        let now = self.now;
        let (tcp, mut lend) = self.hosts[flying.to].lend(now);
        let Some(packet) = lend.pool.packet_from(&flying.bytes) else { return };
        let input = SegmentInput {
            src_addr: flying.src_addr,
            dst_addr: flying.dst_addr,
            iface: IfIndex(1),
            l4: 0,
            len: flying.bytes.len(),
            mtu: 1500,
            group: false,
            congestion: false,
        };
        let access = &mut AccessCounters::default();
        let mut arrived = ArrivedSegment::NONE;
        let verdict = match arrived.read(&mut lend, &input, &packet, access) {
            Ok(()) => {
                let link = (input.iface, input.mtu);
                tcp.input_of_burst(&mut lend, &arrived, link, packet, &mut None)
            }
            Err(reason) => Some(SegmentVerdict::Dropped(reason)),
        };
        match verdict.unwrap_or(SegmentVerdict::Taken) {
            SegmentVerdict::Answered(out) => self.launch(flying.to, out),
            SegmentVerdict::Refused(reset, _) => {
                let packet = tcp.reset(&mut lend, &reset).unwrap();
                let bytes = packet.chunks().flatten().copied().collect();
                let (src_addr, dst_addr) = (flying.dst_addr, flying.src_addr);
                self.fly(Flying { to: 1 - flying.to, src_addr, dst_addr, bytes });
            }
            SegmentVerdict::Taken | SegmentVerdict::Replied | SegmentVerdict::Dropped(_) => {}
        }
    }

    /// Processes the next event at its time; false where there is none before `until`.
    pub(super) fn step(&mut self, until: Instant) -> bool {
        self.flush();
        let arrives = self.flying.first_key_value().map(|((at, _), _)| *at);
        let rings = self.hosts.iter().filter_map(|host| host.tcp.deadline()).min();
        let Some(next) = arrives.into_iter().chain(rings).min().filter(|next| *next <= until)
        else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = self.now.max(next);
        while let Some(entry) = self.flying.first_entry().filter(|e| e.key().0 <= self.now) {
            let flying = entry.remove();
            self.deliver(&flying);
        }
        for host in 0..2 {
            let now = self.now;
            let (tcp, mut lend) = self.hosts[host].lend(now);
            tcp.end_train(&mut lend);
        }
        self.flush();
        for host in 0..2 {
            let now = self.now;
            let (tcp, mut lend) = self.hosts[host].lend(now);
            let mut again = vec![];
            tcp.work(&mut lend, Units(64), &mut |answer| again.push(*answer));
            let again: Vec<_> =
                again.iter().filter_map(|answer| tcp.syn_ack(&mut lend, answer, 1500)).collect();
            again.into_iter().for_each(|out| self.launch(host, out));
        }
        self.flush();
        true
    }

    pub(super) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
    }
}
