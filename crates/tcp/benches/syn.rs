//! A SYN that comes as a packet and leaves as a SYN-ACK packet, by cache and by cookie, and an
//! unknown ACK refused, beside the bare floor and beside smoltcp.
//!
//! Run: `cargo bench -p floodwall-tcp --bench syn`. The bare floor is what nobody can leave out:
//! the header and its options parsed, its checksum verified, one keyed hash over the flow, and the
//! reply built with its checksum. smoltcp has a listening socket for each connection that may be
//! half open; it gets 128 and 1024 of them, as the source's backlogs, and is timed for the SYNs
//! that they answer. Rounds are interleaved and medians taken; ratios are what counts.
#![expect(clippy::unwrap_used, reason = "a bench stops at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant as Clock;

use floodwall_base::{Counters, HashKey, IfIndex, Instant, Randomness};
use floodwall_checksum::{Sum, pseudo_header_v4, sum};
use floodwall_packet::{AccessCounters, PacketBuf, Pool, PoolConfig};
use floodwall_tcp::{CookiePolicy, Input, Lend, Moment, Settings, Tcp, TcpConfig, Verdict};
use floodwall_wire::tcp::{HEADER_LEN, HEADER_LEN_MAX, TcpFields, TcpFlags, TcpHeader};
use floodwall_wire::tcp_options::{TcpOptionSet, Timestamps};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PORT: u16 = 80;

fn main() {
    let whole = std::env::args().any(|arg| arg == "--bench");
    let (rounds, syns) = if whole { (25, 4096) } else { (1, 64) };
    let syn = segments(syns, TcpFlags::SYN);
    let ack = segments(syns, TcpFlags::ACK);
    let pool = Pool::new(&PoolConfig { small: 512, frames: 64, ..PoolConfig::default() }).unwrap();
    let mut bare = Bare { pool: &pool, key: HashKey::new(1, 2) };
    let mut ours = [CookiePolicy::Never, CookiePolicy::Always, CookiePolicy::Overflow]
        .map(|policy| Ours::new(&pool, policy));
    let mut rivals = [128, 1024].map(smol::Rival::new);
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); 7];
    for _ in 0..rounds {
        let [cached, cookies, shut] = &mut ours;
        let nanos = [
            each(&syn, |syn| bare.syn(syn)),
            each(&syn, |syn| bare.refuse(syn)),
            each(&syn, |syn| assert!(cached.input(syn))),
            each(&syn, |syn| assert!(cookies.input(syn))),
            each(&ack, |ack| assert!(!shut.input(ack))),
            rivals[0].answer(&syn),
            rivals[1].answer(&syn),
        ];
        times.iter_mut().zip(nanos).for_each(|(all, one)| all.push(one));
    }
    let medians: Vec<f64> = times.into_iter().map(median).collect();
    let names = [
        "bare: parsed, hashed, answered",
        "bare: parsed, one probe",
        "SYN by cache",
        "SYN by cookie",
        "unknown ACK, gate shut",
        "smoltcp, 128 listening",
        "smoltcp, 1024 listening",
    ];
    for (name, it) in names.iter().zip(&medians) {
        println!("{name:<32} {it:>9.1} ns  {:>6.2} x bare", it / medians[0]);
    }
    let dearest = medians[2].max(medians[3]);
    println!(
        "unknown ACK is {:.2} x parse and probe; smoltcp takes {:.1} and {:.1} times as long",
        medians[4] / medians[1],
        medians[5] / dearest,
        medians[6] / dearest
    );
}

/// One segment of a client.
struct Sent {
    from: SocketAddr,
    bytes: Vec<u8>,
}

fn segments(count: u32, flags: TcpFlags) -> Vec<Sent> {
    let one = |n: u32| {
        let n = n.wrapping_mul(0x9e37_79b1);
        let from = Ipv4Addr::from(0x0b00_0000 | n >> 8);
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
        let pseudo = pseudo_header_v4(from, SERVER, 6, len as u16);
        let len = fields.emit(&options, pseudo, Sum::default(), &mut out).unwrap();
        Sent { from: SocketAddr::new(from.into(), src_port), bytes: out[..len].to_vec() }
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
        let IpAddr::V4(from) = sent.from.ip() else { panic!("IPv4 alone") };
        let bytes = packet.first();
        let pseudo = pseudo_header_v4(from, SERVER, 6, bytes.len() as u16);
        assert!(pseudo.add(sum(bytes)).verifies());
        let header = TcpHeader::parse(bytes, bytes.len()).unwrap();
        let options = TcpOptionSet::read(header.options()).unwrap();
        let ports = u64::from(header.src_port()) << 16 | u64::from(header.dst_port());
        let hash = self.key.words(&[from.to_bits().into(), SERVER.to_bits().into(), ports]);
        (packet, options, hash)
    }

    fn syn(&mut self, sent: &Sent) {
        let (packet, options, hash) = self.read(sent);
        let IpAddr::V4(from) = sent.from.ip() else { panic!("IPv4 alone") };
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
        let pseudo = pseudo_header_v4(SERVER, from, 6, len as u16);
        let len = fields.emit(&options, pseudo, Sum::default(), &mut out).unwrap();
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
    tcp: Tcp,
    random: Randomness,
    counters: Counters,
    access: AccessCounters,
    now: Instant,
}

impl<'a> Ours<'a> {
    fn new(pool: &'a Pool, policy: CookiePolicy) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let mut random = Randomness::from_number(3);
        let config = TcpConfig { connections_max: 1024, ..TcpConfig::default() };
        let mut tcp = Tcp::new(config, Moment::simulated(now), &mut random);
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT);
        let settings = Settings::default();
        let listener = tcp.listen(any, IfIndex::default(), 1500, &settings, 1024, 0).unwrap();
        tcp.set_cookies(listener, policy).unwrap();
        // The gate that is open after a start is shut.
        let now = Instant::from_nanos(100_000_000_000);
        let (counters, access) = (Counters::default(), AccessCounters::default());
        Self { pool, tcp, random, counters, access, now }
    }

    /// Whether it was answered by a segment that is built.
    fn input(&mut self, sent: &Sent) -> bool {
        let Self { pool, tcp, random, counters, access, now } = self;
        let packet = pool.packet_from(&sent.bytes).unwrap();
        let input = Input {
            src_addr: sent.from.ip(),
            dst_addr: SERVER.into(),
            iface: IfIndex(1),
            l4: 0,
            len: sent.bytes.len(),
            mtu: 1500,
            group: false,
            congestion: false,
        };
        let epoch = Moment::simulated(*now).epoch;
        let mut lend = Lend { now: *now, epoch, pool, random, counters };
        matches!(tcp.input(&mut lend, &input, packet, access), Verdict::Answered(_))
    }
}

/// smoltcp as its users run it.
mod smol {
    use std::collections::VecDeque;
    use std::time::Instant as Clock;

    use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
    use smoltcp::phy::{
        ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken,
    };
    use smoltcp::socket::tcp;
    use smoltcp::time::Instant;
    use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

    use super::{PORT, SERVER, Sent};

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
        pub(crate) fn new(backlog: usize) -> Self {
            let mut wire = Wire::default();
            let config = Config::new(HardwareAddress::Ip);
            let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
            interface.update_ip_addrs(|all| {
                all.push(IpCidr::new(IpAddress::Ipv4(SERVER), 8)).unwrap();
            });
            interface.routes_mut().add_default_ipv4_route(SERVER).unwrap();
            let mut sockets = SocketSet::new(Vec::new());
            let buffer = || tcp::SocketBuffer::new(vec![0; 512]);
            let socket = |_| sockets.add(tcp::Socket::new(buffer(), buffer()));
            let handles = (0..backlog).map(socket).collect();
            Self { wire, interface, sockets, handles, now: 0 }
        }

        /// Nanoseconds for each SYN, of as many as it can answer.
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
        use floodwall_wire::{IpProtocol, Ipv4Fields, ipv4};
        let std::net::IpAddr::V4(from) = sent.from.ip() else { panic!("IPv4 alone") };
        let mut head = [0; ipv4::HEADER_LEN];
        let len = ipv4::HEADER_LEN + sent.bytes.len();
        Ipv4Fields::new(from, SERVER, IpProtocol::TCP, 64, len as u16).emit(&mut head);
        [&head[..], &sent.bytes].concat()
    }
}
