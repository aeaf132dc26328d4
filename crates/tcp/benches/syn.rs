//! Cost of a SYN that arrives as a packet and leaves as a SYN-ACK packet, by cache and by cookie,
//! and of an unknown ACK that is refused, compared with the bare floor and with smoltcp.
//!
//! Run: `cargo bench -p floodwall-tcp --bench syn`. The bare floor is the unavoidable work: the
//! header and its options parsed, its checksum verified, one keyed hash over the flow, and the
//! reply built with its checksum. smoltcp has a listening socket for each connection that may be
//! half-open; it gets 128 and 1024 of them, as the backlogs of the source, and is timed for the
//! SYNs that they answer. Both families; rounds are interleaved and medians taken; the ratios are
//! compared with the targets: 8 times the floor for a SYN, 20 times smoltcp's rate, 2 times parse
//! and probe for an unknown ACK. The unknown ACK is refused in three cases: nothing is half-open, a
//! connection of the same listener is, and thousands are. The floor itself is compared with smoltcp
//! too: no server that parses, hashes and answers can exceed it.
#![expect(clippy::unwrap_used, reason = "a bench stops at the first error")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant as Clock;

use floodwall_base::{Counters, HashKey, IfIndex, Instant, Randomness};
use floodwall_checksum::{InternetSum, pseudo_header_v4, pseudo_header_v6, sum};
use floodwall_packet::{AccessCounters, PacketBuf, Pool, PoolConfig};
use floodwall_tcp::{
    ConnectionTable, CookieMoment, CookiePolicy, SegmentInput, SegmentVerdict, TcpConfig,
    TcpContext, TcpSettings,
};
use floodwall_wire::tcp::{HEADER_LEN, HEADER_LEN_MAX, TcpFields, TcpFlags, TcpHeader};
use floodwall_wire::tcp_options::{TcpOptionSet, Timestamps};

const PORT: u16 = 80;

/// Our address of a family.
const fn server(four: bool) -> IpAddr {
    if four {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))
    } else {
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1))
    }
}

/// The sum of the pseudo header between these.
fn pseudo(from: IpAddr, to: IpAddr, len: usize) -> InternetSum {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => pseudo_header_v4(from, to, 6, len as u16),
        (IpAddr::V6(from), IpAddr::V6(to)) => pseudo_header_v6(from, to, 6, len as u32),
        _ => panic!("one family"),
    }
}

/// The 16-bit words of an address.
fn words(addr: IpAddr) -> [u64; 2] {
    match addr {
        IpAddr::V4(addr) => [addr.to_bits().into(), 0],
        IpAddr::V6(addr) => [(addr.to_bits() >> 64) as u64, addr.to_bits() as u64],
    }
}

fn main() {
    let whole = std::env::args().any(|arg| arg == "--bench");
    for four in [true, false] {
        measure(four, if whole { (25, 4096) } else { (1, 64) });
    }
}

/// The fixture for one family.
fn measure(four: bool, (rounds, syns): (usize, u32)) {
    let syn = segments(four, syns, TcpFlags::SYN);
    let ack = segments(four, syns, TcpFlags::ACK);
    let pool = Pool::new(&PoolConfig { small: 512, frames: 64, ..PoolConfig::default() }).unwrap();
    let mut bare = Bare { pool: &pool, key: HashKey::new(1, 2) };
    let overflow = CookiePolicy::Overflow;
    let mut ours = [CookiePolicy::Never, CookiePolicy::Always, overflow, overflow, overflow]
        .map(|policy| Ours::new(&pool, four, policy));
    // None of the ACKs belongs to them; so few that no row is full, or the gate would open.
    let others = segments(four, 2 * syns, TcpFlags::SYN);
    for (number, one) in others[syns as usize..].iter().enumerate() {
        assert!(number > 0 || ours[3].input(one));
        assert!(ours[4].input(one));
    }
    let mut rivals = [128, 1024].map(|backlog| smol::Rival::new(four, backlog));
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); 9];
    for _ in 0..rounds {
        let [cached, cookies, idle, busy, crowded] = &mut ours;
        let nanos = [
            each(&syn, |syn| bare.syn(syn)),
            each(&syn, |syn| bare.refuse(syn)),
            each(&syn, |syn| assert!(cached.input(syn))),
            each(&syn, |syn| assert!(cookies.input(syn))),
            each(&ack, |ack| assert!(!idle.input(ack))),
            each(&ack, |ack| assert!(!busy.input(ack))),
            each(&ack, |ack| assert!(!crowded.input(ack))),
            rivals[0].answer(&syn),
            rivals[1].answer(&syn),
        ];
        times.iter_mut().zip(nanos).for_each(|(all, one)| all.push(one));
    }
    tell(four, &times.into_iter().map(median).collect::<Vec<f64>>());
}

fn tell(four: bool, medians: &[f64]) {
    println!("{}", if four { "IPv4" } else { "IPv6" });
    let names = [
        "bare: parsed, hashed, answered",
        "bare: parsed, one probe",
        "SYN by cache",
        "SYN by cookie",
        "unknown ACK, none half open",
        "unknown ACK, one half open",
        "unknown ACK, 4096 half open",
        "smoltcp, 128 listening",
        "smoltcp, 1024 listening",
    ];
    for (name, it) in names.iter().zip(medians) {
        println!("{name:<32} {it:>9.1} ns  {:>6.2} x bare", it / medians[0]);
    }
    let dearest = medians[2].max(medians[3]);
    let kept = |keeps: bool| if keeps { "kept" } else { "MISSED" };
    let floor = dearest / medians[0];
    println!("a SYN: {floor:.2} x bare (at most 8: {})", kept(floor <= 8.0));
    for (backlog, rival) in [(128, medians[7]), (1024, medians[8])] {
        let (faster, most) = (rival / dearest, rival / medians[0]);
        println!(
            "smoltcp with {backlog}: {faster:.1} x the time (at least 20: {}; bare: {most:.1})",
            kept(faster >= 20.0)
        );
    }
    for (name, it) in names.iter().zip(medians).skip(4).take(3) {
        let refused = it / medians[1];
        println!("{name}: {refused:.2} x parse and probe (at most 2: {})", kept(refused <= 2.0));
    }
}

/// One segment of a client.
struct Sent {
    from: SocketAddr,
    to: IpAddr,
    bytes: Vec<u8>,
}

fn segments(four: bool, count: u32, flags: TcpFlags) -> Vec<Sent> {
    let one = |n: u32| {
        let n = n.wrapping_mul(0x9e37_79b1);
        let from: IpAddr = if four {
            Ipv4Addr::from(0x0b00_0000 | n >> 8).into()
        } else {
            Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(n) << 60 | 7).into()
        };
        let to = server(four);
        let options = TcpOptionSet {
            mss: (flags == TcpFlags::SYN).then_some(1460),
            window_scale: (flags == TcpFlags::SYN).then_some(7),
            sack_permitted: flags == TcpFlags::SYN,
            timestamps: Some(Timestamps { value: n, echo: 0 }),
            ..TcpOptionSet::NONE
        };
        let src_port = 1024 | (n as u16 & 0x7fff);
        let fields =
            TcpFields { src_port, dst_port: PORT, seq: n, ack: 7, flags, window: 1000, urgent: 0 };
        let mut out = [0; HEADER_LEN_MAX];
        let len = HEADER_LEN + options.emitted_len();
        let len =
            fields.emit(&options, pseudo(from, to, len), InternetSum::default(), &mut out).unwrap();
        Sent { from: SocketAddr::new(from, src_port), to, bytes: out[..len].to_vec() }
    };
    (0..count).map(one).collect()
}

fn each(all: &[Sent], act: impl FnMut(&Sent)) -> f64 {
    let before = Clock::now();
    all.iter().for_each(act);
    before.elapsed().as_nanos() as f64 / all.len() as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

struct Bare<'a> {
    pool: &'a Pool,
    key: HashKey,
}

impl Bare<'_> {
    fn read(&self, sent: &Sent) -> (PacketBuf, TcpOptionSet, u64) {
        let packet = self.pool.packet_from(&sent.bytes).unwrap();
        let (from, bytes) = (sent.from.ip(), packet.first());
        assert!(pseudo(from, sent.to, bytes.len()).add(sum(bytes)).verifies());
        let header = TcpHeader::parse(bytes, bytes.len()).unwrap();
        let options = TcpOptionSet::read(header.options()).unwrap();
        let ports = u64::from(header.src_port()) << 16 | u64::from(header.dst_port());
        // IPv4 addresses are a word together, as in the product.
        let ([a, b], [c, d]) = (words(from), words(sent.to));
        let hash = match from {
            IpAddr::V4(_) => self.key.words(&[a << 32 | c, ports]),
            IpAddr::V6(_) => self.key.words(&[a, b, c, d, ports]),
        };
        (packet, options, hash)
    }

    fn syn(&mut self, sent: &Sent) {
        let (packet, options, hash) = self.read(sent);
        let options = TcpOptionSet {
            timestamps: options.timestamps.map(|t| Timestamps { value: 9, echo: t.value }),
            ..options
        };
        let fields = TcpFields {
            src_port: PORT,
            dst_port: sent.from.port(),
            seq: hash as u32,
            ack: 8,
            flags: TcpFlags::SYN | TcpFlags::ACK,
            window: 65_535,
            urgent: 0,
        };
        let mut out = [0; HEADER_LEN_MAX];
        let len = HEADER_LEN + options.emitted_len();
        let pseudo = pseudo(sent.to, sent.from.ip(), len);
        let len = fields.emit(&options, pseudo, InternetSum::default(), &mut out).unwrap();
        drop(packet);
        black_box(self.pool.packet_from(&out[..len]).unwrap());
    }

    fn refuse(&mut self, sent: &Sent) {
        let (packet, _, hash) = self.read(sent);
        black_box((packet, hash));
    }
}

struct Ours<'a> {
    pool: &'a Pool,
    tcp: ConnectionTable,
    random: Randomness,
    counters: Counters,
    access: AccessCounters,
    now: Instant,
}

impl<'a> Ours<'a> {
    fn new(pool: &'a Pool, four: bool, policy: CookiePolicy) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let mut random = Randomness::from_number(3);
        let config = TcpConfig { connections_max: 1024, ..TcpConfig::default() };
        let mut tcp = ConnectionTable::new(config, CookieMoment::simulated(now), &mut random);
        let any: IpAddr =
            if four { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let any = SocketAddr::new(any, PORT);
        let settings = TcpSettings::default();
        let listener = tcp.listen(any, IfIndex::default(), 1500, &settings, 1024, 0).unwrap();
        tcp.set_cookies(listener, policy).unwrap();
        // The gate that is open after a start is shut by then.
        let now = Instant::from_nanos(100_000_000_000);
        let (counters, access) = (Counters::default(), AccessCounters::default());
        Self { pool, tcp, random, counters, access, now }
    }

    /// Processes the segment; returns whether it was answered by a segment.
    fn input(&mut self, sent: &Sent) -> bool {
        let Self { pool, tcp, random, counters, access, now } = self;
        let packet = pool.packet_from(&sent.bytes).unwrap();
        let input = SegmentInput {
            src_addr: sent.from.ip(),
            dst_addr: sent.to,
            iface: IfIndex(1),
            l4: 0,
            len: sent.bytes.len(),
            mtu: 1500,
            group: false,
            congestion: false,
        };
        let epoch = CookieMoment::simulated(*now).epoch;
        let mut lend = TcpContext { now: *now, epoch, pool, random, counters };
        matches!(tcp.input(&mut lend, &input, packet, access), SegmentVerdict::Answered(_))
    }
}

/// smoltcp in a typical configuration.
mod smol {
    use std::collections::VecDeque;
    use std::net::IpAddr;
    use std::time::Instant as Clock;

    use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
    use smoltcp::phy::{
        ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken,
    };
    use smoltcp::socket::tcp;
    use smoltcp::time::Instant;
    use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

    use super::{PORT, Sent, server};

    #[derive(Default)]
    struct Wire {
        to_them: VecDeque<Vec<u8>>,
        answers: usize,
        spare: Vec<u8>,
    }

    struct In(Vec<u8>);
    struct Out<'a>(&'a mut Wire);

    impl RxToken for In {
        fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
            f(&self.0)
        }
    }

    impl TxToken for Out<'_> {
        fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
            self.0.answers += 1;
            self.0.spare.resize(len, 0);
            f(&mut self.0.spare)
        }
    }

    impl Device for Wire {
        type RxToken<'a> = In;
        type TxToken<'a> = Out<'a>;

        fn receive(&mut self, _: Instant) -> Option<(In, Out<'_>)> {
            let next = self.to_them.pop_front()?;
            Some((In(next), Out(self)))
        }

        fn transmit(&mut self, _: Instant) -> Option<Out<'_>> {
            Some(Out(self))
        }

        fn capabilities(&self) -> DeviceCapabilities {
            let mut all = DeviceCapabilities::default();
            all.medium = Medium::Ip;
            all.max_transmission_unit = 1500;
            all.checksum = ChecksumCapabilities::default();
            all
        }
    }

    pub(crate) struct Rival {
        wire: Wire,
        interface: Interface,
        sockets: SocketSet<'static>,
        handles: Vec<SocketHandle>,
        now: i64,
    }

    impl Rival {
        pub(crate) fn new(four: bool, backlog: usize) -> Self {
            let mut wire = Wire::default();
            let config = Config::new(HardwareAddress::Ip);
            let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
            interface.update_ip_addrs(|all| {
                all.push(IpCidr::new(IpAddress::from(server(four)), 8)).unwrap();
            });
            match server(four) {
                IpAddr::V4(own) => interface.routes_mut().add_default_ipv4_route(own),
                IpAddr::V6(own) => interface.routes_mut().add_default_ipv6_route(own),
            }
            .unwrap();
            let mut sockets = SocketSet::new(Vec::new());
            let buffer = || tcp::SocketBuffer::new(vec![0; 512]);
            let socket = |_| sockets.add(tcp::Socket::new(buffer(), buffer()));
            let handles = (0..backlog).map(socket).collect();
            Self { wire, interface, sockets, handles, now: 0 }
        }

        /// Nanoseconds per SYN, for as many SYNs as it can answer.
        pub(crate) fn answer(&mut self, syns: &[Sent]) -> f64 {
            self.now += 1_000_000;
            let now = Instant::from_micros(self.now);
            for handle in &self.handles {
                let socket = self.sockets.get_mut::<tcp::Socket<'_>>(*handle);
                socket.abort();
            }
            while self.interface.poll(now, &mut self.wire, &mut self.sockets)
                != smoltcp::iface::PollResult::None
            {}
            for handle in &self.handles {
                self.sockets.get_mut::<tcp::Socket<'_>>(*handle).listen(PORT).unwrap();
            }
            let some = &syns[..syns.len().min(self.handles.len())];
            self.wire.to_them = some.iter().map(packet).collect();
            self.wire.answers = 0;
            let before = Clock::now();
            while self.interface.poll(now, &mut self.wire, &mut self.sockets)
                != smoltcp::iface::PollResult::None
            {}
            let took = before.elapsed().as_nanos() as f64;
            assert_eq!(self.wire.answers, some.len(), "each is answered");
            took / some.len() as f64
        }
    }

    fn packet(sent: &Sent) -> Vec<u8> {
        use floodwall_wire::{IpProtocol, Ipv4Fields, Ipv6Fields, ipv4, ipv6};
        let (mut four, mut six) = ([0; ipv4::HEADER_LEN], [0; ipv6::HEADER_LEN]);
        let len = sent.bytes.len() as u16;
        let head: &[u8] = match (sent.from.ip(), sent.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let len = ipv4::HEADER_LEN as u16 + len;
                Ipv4Fields::new(from, to, IpProtocol::TCP, 64, len).emit(&mut four);
                &four
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                Ipv6Fields::new(from, to, IpProtocol::TCP, 64, len).emit(&mut six);
                &six
            }
            _ => panic!("one family"),
        };
        [head, &sent.bytes].concat()
    }
}
