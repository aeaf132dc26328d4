//! What a packet costs a whole stack, against a plain one of its size: inputs, machine, hill-climb.
//!
//! Called by the bench `worst_cost`, which measures time, and by `tests/worst_cost.rs`, which
//! counts work. Invariants: the same seed gives the same inputs in the same order, and the same
//! counts; an input's cost is judged against a datagram of the same length that is read by a
//! service, or, where the input made something leave, by one that answers. Not here: what several
//! packets together can do beyond what each can (reassembly): there the group is one input, and its
//! mean is judged.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use floodwall_base::{Family, IfIndex, Instant, Randomness, Units};
use floodwall_checksum::sum;
use floodwall_packet::{Burst, Engine, PacketBuf, PacketList, Pool, PoolConfig, Round};
use floodwall_pktgen::{
    AddrRange, Blast, Content, Forgery, Fragments, Headers, Pace, Peer, Plan, PortRange, SizeRange,
    StationConfig, Stream, Withheld,
};
use floodwall_services::{ServiceKind, UdpService};
use floodwall_stack::{Application, Host, InterfaceConfig, StackConfig, accounts_needed};
use floodwall_testkit::{Seeded, captures};
use floodwall_wire::IpProtocol;

use crate::craft::{self, HOST, PEER, addr, from_peer, mac};
use crate::rig::ethernet_config;

/// The most that a hostile packet may cost, in packets of its size.
pub const RATIO_MAX: f64 = 4.0;
/// Packets that are measured at once.
pub const COPIES: usize = 32;
/// The longest frame that the link takes.
const FRAME_MAX: usize = 1514;
/// Ports of the services: one answers, one does not.
const PORTS: [u16; 2] = [7, 9];
/// The first source port of plain packets.
const PLAIN_PORT: usize = 1024;
/// Between two measurements: every limit is full again.
const PAUSE: Duration = Duration::from_secs(3);
/// Measurements after which a machine is replaced by a fresh one.
const AGE_MAX: u32 = 400;

/// One packet, or some that belong together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Input {
    /// Where it is from.
    pub from: String,
    /// Its frames.
    pub frames: Vec<Vec<u8>>,
}

impl Input {
    /// Bytes of a frame, on average.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.iter().map(Vec::len).sum::<usize>() / self.frames.len().max(1)
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Its family: IPv4 where it is not IP.
    #[must_use]
    pub fn family(&self) -> Family {
        let v6 = self.frames.first().and_then(|f| f.get(12..14)) == Some(&[0x86, 0xdd]);
        if v6 { Family::V6 } else { Family::V4 }
    }
}

/// What was done for some packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Packets that arrived.
    pub arrived: u64,
    /// Headers looked at.
    pub checks: u64,
    /// Bytes copied so that a header lay in one piece.
    pub copied_bytes: u64,
    /// Chunks taken for that.
    pub allocations: u64,
    /// Packets that left.
    pub departed: u64,
    /// Their bytes.
    pub departed_bytes: u64,
}

impl Work {
    /// One number: a look at a packet, a header, a cache line copied or a chunk taken count one
    /// each, a packet that is made and leaves counts four.
    #[must_use]
    pub const fn points(&self) -> u64 {
        self.arrived
            + self.checks
            + self.copied_bytes / 64
            + self.allocations
            + self.departed * 4
            + self.departed_bytes / 64
    }
}

/// A host with two services, and a known peer and router.
pub struct Machine {
    host: Host,
    pool: Pool,
    random: Randomness,
    now: Instant,
    age: u32,
    burst: Burst,
    departing: PacketList,
}

impl Machine {
    /// A fresh one.
    ///
    /// # Panics
    /// The machine has no memory.
    #[must_use]
    pub fn new() -> Self {
        let config = config();
        let sizes = PoolConfig {
            small: 2048,
            frames: 2048,
            references: 1024,
            accounts: accounts_needed(&config),
            ..PoolConfig::default()
        };
        let pool = Pool::new(&sizes).expect("memory");
        let (mut random, now) = (Randomness::from_number(1), Instant::from_nanos(1_000_000_000));
        let services: Vec<Box<dyn Application>> = vec![
            Box::new(UdpService::new(ServiceKind::Echo, PORTS[0])),
            Box::new(UdpService::new(ServiceKind::Discard, PORTS[1])),
        ];
        let host = Host::new(&config, services, &pool, &mut random, now).expect("a host");
        let (burst, departing) = (Burst::new(), PacketList::new());
        let mut machine = Self { host, pool, random, now, age: 0, burst, departing };
        for family in craft::FAMILIES {
            let stack = machine.host.stack_mut();
            stack.add_neighbor(IfIndex(1), addr(family, PEER), mac(PEER), now).expect("room");
        }
        machine.pause();
        machine
    }

    /// Lets time pass, and does what is due.
    fn pause(&mut self) {
        let until = self.now + PAUSE;
        while let Some(due) = self.host.deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.call(Host::work);
            drop(self.departing.take());
        }
        self.now = until;
    }

    fn call(&mut self, act: impl FnOnce(&mut Host, &mut Round<'_>) -> Units) {
        let Self { host, pool, random, now, burst, departing, .. } = self;
        let budget = Units(256);
        act(
            host,
            &mut Round { now: *now, pool, random, arrived: burst, departing, budget, peers: None },
        );
    }

    /// Lets copies of the input arrive, some at a time; `around` is called around each round that
    /// takes them. Returns how many packets arrived.
    ///
    /// # Panics
    /// The host keeps all memory.
    pub fn arrive(&mut self, input: &Input, mut around: impl FnMut(&mut dyn FnMut())) -> u64 {
        self.age += 1;
        if self.age > AGE_MAX {
            *self = Self::new();
        }
        self.pause();
        let copies = (COPIES / input.frames.len().max(1)).max(1);
        let frames = || input.frames.iter().cycle().take(copies * input.frames.len());
        let mut arrived = 0;
        let mut frames = frames().peekable();
        while frames.peek().is_some() {
            for frame in frames.by_ref().take(64) {
                let mut packet = self.pool.packet_from(frame).expect("room in the pool");
                packet.set_iface(IfIndex(1));
                self.burst.push(packet).expect("at most a burst");
                arrived += 1;
            }
            around(&mut || self.call(Host::round));
        }
        arrived
    }

    /// What was made to leave since the last look; it goes home.
    pub fn departed(&mut self) -> (u64, u64) {
        let bytes = self.departing.iter().map(PacketBuf::len).sum::<usize>();
        let packets = self.departing.len();
        drop(self.departing.take());
        (packets as u64, bytes as u64)
    }

    /// Counts the work for copies of an input.
    pub fn count(&mut self, input: &Input) -> Work {
        // A machine that is replaced meanwhile begins at zero.
        if self.age >= AGE_MAX {
            *self = Self::new();
        }
        self.pause();
        let before = self.host.stack().stats().access;
        let arrived = self.arrive(input, |round| round());
        let after = self.host.stack().stats().access;
        let (departed, departed_bytes) = self.departed();
        Work {
            arrived,
            checks: after.checks() - before.checks(),
            copied_bytes: after.copied_bytes - before.copied_bytes,
            allocations: after.allocations - before.allocations,
            departed,
            departed_bytes,
        }
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

fn config() -> StackConfig {
    let mut config = ethernet_config(HOST);
    let link_local = "fe80::1/64".parse().expect("an address");
    for interface in &mut config.interfaces {
        interface.addresses.push(link_local);
        let gateways = craft::FAMILIES.map(|family| addr(family, PEER)).to_vec();
        *interface = InterfaceConfig { gateways, accept_ra: true, ..interface.clone() };
    }
    StackConfig { udp_sockets_max: 8, ..config }
}

/// Plain packets of a family that are as long as a frame: datagrams for a service that answers, or
/// for one that does not, each from another port. What comes of ends that a socket knows is cheaper
/// still (`stack/src/ip/udp_predict.rs`) and no measure of what an unknown peer costs.
#[must_use]
pub fn plain(family: Family, len: usize, answered: bool) -> Input {
    let headers = 14 + if family == Family::V4 { 20 } else { 40 } + 8;
    let payload = vec![0x55; len.clamp(headers, FRAME_MAX) - headers];
    let to = (addr(family, HOST), if answered { PORTS[0] } else { PORTS[1] }).into();
    let frames = (0..COPIES).map(|copy| {
        // Ports that no other length has.
        let port = PLAIN_PORT + len.min(FRAME_MAX) * COPIES + copy;
        from_peer(&craft::udp((addr(family, PEER), port as u16).into(), to, &payload))
    });
    Input { from: "plain".to_owned(), frames: frames.collect() }
}

/// Every input: corpora, captures as they are and aimed at the host, generated floods.
#[must_use]
pub fn inputs(seed: u64) -> Vec<Input> {
    let mut all = corpora();
    for path in captures::vendored() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for captured in captures::read(&path).unwrap_or_default() {
            let frame = match (captured.frame(), captured.ip_packet()) {
                (Some(frame), _) => frame.to_vec(),
                (None, Some(packet)) => from_peer(packet),
                _ => continue,
            };
            push(&mut all, &name, frame);
        }
    }
    all.extend(floods(seed));
    all.sort();
    all.dedup_by(|a, b| a.frames == b.frames);
    all
}

/// A frame as it is where it is for us, and aimed at us.
fn push(all: &mut Vec<Input>, name: &str, mut frame: Vec<u8>) {
    if (14..=FRAME_MAX).contains(&frame.len()) {
        aim(&mut frame);
        all.push(Input { from: name.to_owned(), frames: vec![frame] });
    }
}

/// Addresses a frame to the host, from the peer, and puts the checksums right.
pub fn aim(frame: &mut [u8]) {
    if frame.len() < 14 {
        return;
    }
    if frame[0] & 1 == 0 {
        frame[..6].copy_from_slice(&mac(HOST).0);
    }
    frame[6..12].copy_from_slice(&mac(PEER).0);
    let (link, packet) = frame.split_at_mut(14);
    let (src, dst, at): (IpAddr, IpAddr, usize) = match link[12..14] {
        [8, 0] if packet.len() >= 20 => (addr(Family::V4, PEER), addr(Family::V4, HOST), 12),
        [0x86, 0xdd] if packet.len() >= 40 => (addr(Family::V6, PEER), addr(Family::V6, HOST), 8),
        _ => return,
    };
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            packet[at..at + 4].copy_from_slice(&src.octets());
            if packet[16] >> 4 != 0xe {
                packet[at + 4..at + 8].copy_from_slice(&dst.octets());
            }
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            // Neighbours of the link keep their own kind of address.
            if packet[at] != 0xfe {
                packet[at..at + 16].copy_from_slice(&src.octets());
            }
            if packet[at + 16] != 0xff {
                packet[at + 16..at + 32].copy_from_slice(&dst.octets());
            }
        }
        _ => {}
    }
    let version = if src.is_ipv4() { 4 } else { 6 };
    if packet[0] >> 4 == version {
        repair(packet);
    }
}

/// Puts the checksums of an IP packet right where they are where one expects them.
fn repair(packet: &mut [u8]) {
    let (protocol, l4, pseudo) = if packet[0] >> 4 == 4 {
        let end = (usize::from(packet[0] & 15) * 4).clamp(20, packet.len());
        packet[10..12].fill(0);
        let check = sum(&packet[..end]).finish();
        packet[10..12].copy_from_slice(&check.to_be_bytes());
        let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        let body = total.clamp(end, packet.len()) - end;
        let ends = [12, 16].map(|at| {
            let octets: [u8; 4] = core::array::from_fn(|n| packet[at + n]);
            IpAddr::from(octets)
        });
        let protocol = IpProtocol(packet[9]);
        let pseudo = craft::pseudo(ends[0], ends[1], protocol, body);
        (protocol, end..end + body, (protocol != IpProtocol::ICMPV4).then_some(pseudo))
    } else {
        let total = 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]));
        let body = total.clamp(40, packet.len()) - 40;
        let ends = [8, 24].map(|at| {
            let octets: [u8; 16] = core::array::from_fn(|n| packet[at + n]);
            IpAddr::from(octets)
        });
        let protocol = IpProtocol(packet[6]);
        let pseudo = craft::pseudo(ends[0], ends[1], protocol, body);
        (protocol, 40..40 + body, Some(pseudo))
    };
    let body = &mut packet[l4];
    let at = match protocol {
        IpProtocol::UDP => 6,
        IpProtocol::TCP => 16,
        IpProtocol::ICMPV4 | IpProtocol::ICMPV6 | IpProtocol::IGMP => 2,
        _ => return,
    };
    let Some(place) = body.get_mut(at..at + 2) else { return };
    place.fill(0);
    let with = match (protocol, pseudo) {
        (IpProtocol::IGMP, _) | (_, None) => sum(body),
        (_, Some(pseudo)) => pseudo.add(sum(body)),
    };
    let check = match with.finish() {
        0 if protocol == IpProtocol::UDP => 0xffff,
        check => check,
    };
    body[at..at + 2].copy_from_slice(&check.to_be_bytes());
}

/// The frames of the fuzz corpora: those of sequences one by one.
fn corpora() -> Vec<Input> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let mut all = Vec::new();
    let mut folders: Vec<_> = fs::read_dir(root).into_iter().flatten().flatten().collect();
    folders.sort_by_key(fs::DirEntry::path);
    for folder in folders {
        let name = folder.file_name().to_string_lossy().into_owned();
        let mut files: Vec<_> =
            fs::read_dir(folder.path()).into_iter().flatten().flatten().collect();
        files.sort_by_key(fs::DirEntry::path);
        for file in files {
            let bytes = fs::read(file.path()).unwrap_or_default();
            let name = format!("corpus {name}");
            match name.as_str() {
                "corpus stack_frame" => frames_of(&bytes, &name, &mut all),
                // One byte selects how; bytes that are no frame are aimed as if they were one.
                _ => push(&mut all, &name, bytes.get(1..).unwrap_or_default().to_vec()),
            }
        }
    }
    all
}

/// The frames of the body `stack_frame`: each behind three bytes.
fn frames_of(mut rest: &[u8], name: &str, all: &mut Vec<Input>) {
    while let [_, low, high, behind @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*low, *high])) % 1600;
        let (frame, behind) = behind.split_at_checked(len).unwrap_or((behind, &[]));
        push(all, name, frame.to_vec());
        rest = behind;
    }
}

/// What the generator's floods send, each kind and family; fragments of a packet stay together.
#[must_use]
pub fn floods(seed: u64) -> Vec<Input> {
    let mut all = Vec::new();
    for family in craft::FAMILIES {
        for (name, stream) in streams(family) {
            // A packet's pieces together, where it is cut.
            let cut = stream.fragments.is_some();
            let count = if cut { 8 } else { 48 };
            let stream = Stream { count: Some(if cut { 1 } else { count }), ..stream };
            for n in 0..if cut { count } else { 1 } {
                let frames = generated(&stream, seed ^ n);
                if cut {
                    all.push(Input { from: name.to_owned(), frames });
                } else {
                    let one = |frame| Input { from: name.to_owned(), frames: vec![frame] };
                    all.extend(frames.into_iter().map(one));
                }
            }
        }
    }
    all
}

fn streams(family: Family) -> Vec<(&'static str, Stream)> {
    let (here, router) = match family {
        Family::V4 => ("10.0.0.128/25", "10.0.0.2"),
        Family::V6 => ("fd00::8000/113", "fe80::2"),
    };
    let all_hosts = match family {
        Family::V4 => "224.0.0.1",
        Family::V6 => "ff02::1",
    };
    let range = |text: &str| text.parse::<AddrRange>().expect("a range");
    let (peer, host) = (addr(family, PEER).into(), AddrRange::from(addr(family, HOST)));
    let pace = Pace::every(Duration::from_nanos(1));
    let with = |content, from, to| Stream::new(content, from, to, pace);
    let service =
        |content| Stream { dst_ports: PortRange::one(PORTS[0]), ..with(content, peer, host) };
    let size = |min, max| SizeRange { min, max };
    let put = |headers| Stream { headers: Some(headers), ..service(Content::Udp) };
    let cut = |bytes, overlap, withheld, payload| Stream {
        fragments: Some(Fragments { bytes, overlap, withheld }),
        payload: SizeRange::one(payload),
        ..service(Content::Udp)
    };
    let forged = |forgery, from, to| with(Content::Forged(forgery), from, to);
    vec![
        ("echo", Stream { payload: size(0, 1400), ..service(Content::IcmpEcho) }),
        ("closed", Stream { payload: size(0, 1400), ..with(Content::Udp, peer, host) }),
        ("neighbours", Stream { src_addrs: range(here), ..service(Content::Udp) }),
        ("chain", put(Headers::Chain(size(1, 160)))),
        ("options", put(Headers::Options(size(1, 300)))),
        ("unknown options", put(Headers::Unknown(size(1, 300)))),
        ("padding", put(Headers::Padding(size(1, 1200)))),
        ("routing", put(Headers::Routing(size(0, 80)))),
        ("headers", put(Headers::Mixed)),
        ("tiny fragments", cut(8, 0, Withheld::None, 248)),
        ("tiny fragments", cut(8, 0, Withheld::Last, 248)),
        ("overlaps", cut(24, 8, Withheld::None, 400)),
        ("fragments", cut(1400, 0, Withheld::None, 4000)),
        ("fragments", cut(1400, 0, Withheld::None, 60_000)),
        ("incomplete", cut(1400, 0, Withheld::Middle, 4000)),
        ("requests", forged(Forgery::NeighborRequests, range(here), host)),
        ("claims", forged(Forgery::NeighborClaims, range(here), host)),
        ("routers", forged(Forgery::RouterAdvertisements, range(router), range(all_hosts))),
        ("redirects", forged(Forgery::Redirects, range(router), host)),
        ("queries", forged(Forgery::GroupQueries, range(router), range(all_hosts))),
    ]
}

/// The frames that a stream sends.
fn generated(stream: &Stream, seed: u64) -> Vec<Vec<u8>> {
    let pool = Pool::new(&PoolConfig { small: 512, frames: 512, ..PoolConfig::default() });
    let pool = pool.expect("memory");
    let station =
        StationConfig { mac: mac(PEER), peer: Peer::Link(mac(HOST)), ..StationConfig::default() };
    let mut blast = Blast::new(Plan { station, streams: vec![stream.clone()] }).expect("a plan");
    let (mut burst, mut departing) = (Burst::new(), PacketList::new());
    let mut random = Randomness::from_number(seed);
    let mut frames = Vec::new();
    for call in 0..64 {
        let mut round = Round {
            now: Instant::from_nanos(1_000_000 * (1 + call)),
            pool: &pool,
            random: &mut random,
            arrived: &mut burst,
            departing: &mut departing,
            budget: Units(256),
            peers: None,
        };
        blast.work(&mut round);
        while let Some(packet) = departing.pop_front() {
            frames.push(packet.chunks().flatten().copied().collect());
        }
    }
    frames
}

/// A neighbour of an input: a few bytes changed, perhaps cut or drawn out; aimed again.
#[must_use]
pub fn mutated(input: &Input, random: &mut Seeded) -> Input {
    let mut next = input.clone();
    let which = random.below(next.frames.len());
    let Some(frame) = next.frames.get_mut(which) else { return next };
    for _ in 0..1 + random.below(3) {
        if frame.len() <= 14 {
            break;
        }
        let reach = if random.below(3) == 0 { FRAME_MAX } else { 80 };
        let at = 14 + random.below((frame.len() - 14).min(reach));
        match random.below(4) {
            0 => frame[at] = random.next() as u8,
            1 => frame[at] = frame[at].wrapping_add(1),
            2 => frame[at] ^= 1 << random.below(8),
            _ => {
                // A stretch again, in its own place: more options, more headers.
                let len = (1 + random.below(4)) * 8;
                let end = (at + len).min(frame.len());
                let stretch = frame[at..end].to_vec();
                if frame.len() + stretch.len() <= FRAME_MAX {
                    frame.splice(at..at, stretch);
                    lengths(frame);
                }
            }
        }
    }
    if next.frames.len() == 1
        && let Some(frame) = next.frames.first_mut()
        && frame.get(12..14).is_some_and(|kind| kind == [8, 0] || kind == [0x86, 0xdd])
    {
        aim(frame);
    }
    next
}

/// Makes the IP header say how long the packet is.
fn lengths(frame: &mut [u8]) {
    let len = frame.len() - 14;
    match frame.get(12..14) {
        Some([8, 0]) if len >= 20 => frame[16..18].copy_from_slice(&(len as u16).to_be_bytes()),
        Some([0x86, 0xdd]) if len >= 40 => {
            frame[18..20].copy_from_slice(&((len - 40) as u16).to_be_bytes());
        }
        _ => {}
    }
}
