//! Any sequence of neighbour and router messages, ARP, datagrams of ours, link changes and clock
//! steps into a host that accepts router advertisements and redirects.

use std::cell::RefCell;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Family, IfIndex, Instant, MacAddr, Randomness, Units, limits};
use floodwall_packet::{Burst, Engine, PacketList, Pool, PoolConfig, Round};
use floodwall_stack::{AddressOrigin, InterfaceConfig, LinkMedium, Stack, StackConfig};
use floodwall_udp::{SocketId, SocketSettings};
use floodwall_wire::{
    EtherType, EthernetFields, EthernetHeader, IpProtocol, Ipv6Fields, ethernet, ipv6,
};

/// Steps of one run.
const STEPS_MAX: usize = 200;
/// Bytes of a message behind type, code and checksum.
const BODY_MAX: usize = 255;
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const MTU: u32 = 1500;
const ONE: IfIndex = IfIndex(1);
/// Where ICMPv6 starts in a frame.
const MESSAGE_AT: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN;

thread_local! {
    static POOL: RefCell<Pool> = RefCell::new(pool());
}

fn pool() -> Pool {
    let config = PoolConfig {
        small: 512,
        frames: 256,
        supers: 1,
        references: 64,
        accounts: 64,
        ..PoolConfig::default()
    };
    Pool::new(&config).expect("a megabyte")
}

fn config() -> StackConfig {
    let address = |text: &str| text.parse().expect("an address with its prefix");
    StackConfig {
        interfaces: vec![InterfaceConfig {
            name: "eth0".into(),
            medium: LinkMedium::Ethernet(MAC),
            mtu: MTU,
            addresses: ["10.0.0.1/24", "fd00::1/64"].map(address).into(),
            gateways: vec![[10, 0, 0, 2].into()],
            accept_ra: true,
            autoconf: true,
            ..InterfaceConfig::default()
        }],
        udp_sockets_max: 4,
        udp_receive_bytes: 16_384,
        neighbors_max: 64,
        accept_redirects: true,
        ..StackConfig::default()
    }
}

/// The host, its clock and what it lives from.
struct World<'a> {
    stack: Stack,
    pool: &'a Pool,
    random: Randomness,
    now: Instant,
    socket: Option<SocketId>,
}

/// Runs `data` as a program: a byte selects the event, the next ones its arguments.
///
/// # Panics
/// A bound does not hold, a packet is not accounted for exactly once, or something learnt outlives
/// its link.
pub fn ndp(data: &[u8]) {
    POOL.with_borrow(|pool| {
        let before = pool.available();
        run(pool, data);
        assert_eq!(pool.available(), before, "not all is home");
    });
}

fn run(pool: &Pool, data: &[u8]) {
    let (mut random, now) = (Randomness::from_number(1), Instant::from_nanos(1_000_000_000));
    let stack = Stack::new(&config(), &mut random, now).expect("the configuration makes sense");
    let mut world = World { stack, pool, random, now, socket: None };
    let mut rest = data;
    for _ in 0..STEPS_MAX {
        let Some((&what, behind)) = rest.split_first() else { break };
        rest = world.act(what, behind);
        world.check();
    }
    world.set_up(false);
    world.check();
    world.check_empty();
}

impl World<'_> {
    /// Does one thing; returns what is behind its bytes.
    fn act<'b>(&mut self, what: u8, rest: &'b [u8]) -> &'b [u8] {
        let (&[arg], behind) = rest.split_first_chunk().unwrap_or((&[0], &[]));
        match what % 8 {
            kind @ 0..=4 => return self.message(133 + kind, what >> 3, rest),
            5 => return self.arp(rest),
            // From a millisecond to fifty days.
            6 => self.pass(Duration::from_millis(1) * (1 << (arg % 32))),
            _ if arg & 0xc0 == 0xc0 => {
                self.set_up(false);
                self.set_up(true);
            }
            _ => self.send(arg),
        }
        behind
    }

    /// A message of neighbour discovery: its source, destination, length and bytes.
    fn message<'b>(&mut self, kind: u8, flaw: u8, rest: &'b [u8]) -> &'b [u8] {
        let (&[sender, to, len], rest) = rest.split_first_chunk().unwrap_or((&[0, 0, 0], &[]));
        let len = usize::from(len).min(BODY_MAX);
        let (body, rest) = rest.split_at_checked(len).unwrap_or((rest, &[]));
        let src_addr = match sender >> 6 {
            0 | 1 => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, u16::from(sender & 63)),
            2 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(sender & 63)),
            _ => Ipv6Addr::UNSPECIFIED,
        };
        let own = self.stack.interfaces()[1].addresses().filter_map(|a| match a.addr {
            std::net::IpAddr::V6(addr) => Some(addr),
            std::net::IpAddr::V4(_) => None,
        });
        let own: Vec<_> = own.collect();
        let own = own.get(usize::from(to >> 2) % own.len().max(1)).copied();
        let own = own.unwrap_or(Ipv6Addr::LOCALHOST);
        let dst_addr = match to & 3 {
            0 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
            1 => floodwall_base::solicited_node(own),
            _ => own,
        };
        let hop_limit = if flaw == 31 { 254 } else { 255 };
        let frame = message_frame(kind, (src_addr, dst_addr), hop_limit, body);
        self.arrives(&frame);
        rest
    }

    /// An ARP packet: its bytes from the operation on.
    fn arp<'b>(&mut self, rest: &'b [u8]) -> &'b [u8] {
        let (body, rest) = rest.split_at_checked(21).unwrap_or((rest, &[]));
        let mut frame = vec![0; ethernet::HEADER_LEN];
        let fields = EthernetFields {
            dst_addr: MacAddr::BROADCAST,
            src_addr: MacAddr([2, 0, 0, 0, 0, 9]),
            ether_type: EtherType::ARP,
        };
        fields.emit(frame.first_chunk_mut().expect("14 bytes"));
        frame.extend([0, 1, 8, 0, 6, 4, 0]);
        frame.extend(body);
        self.arrives(&frame);
        rest
    }

    fn arrives(&mut self, frame: &[u8]) {
        let Some(mut packet) = self.pool.packet_from(frame) else { return };
        packet.set_iface(ONE);
        let mut burst = Burst::new();
        burst.push(packet).expect("the first");
        self.round(&mut burst);
    }

    fn round(&mut self, burst: &mut Burst) {
        let mut departing = PacketList::new();
        let mut round = Round {
            now: self.now,
            pool: self.pool,
            random: &mut self.random,
            arrived: burst,
            departing: &mut departing,
            budget: Units(64),
            peers: None,
        };
        self.stack.round(&mut round);
        self.stack.work(&mut round);
        while let Some(packet) = departing.pop_front() {
            let bytes: Vec<u8> = packet.chunks().flatten().copied().collect();
            let header = EthernetHeader::parse(&bytes).expect("it leaves by Ethernet");
            assert_eq!(header.src_addr(), MAC);
        }
    }

    /// Lets time pass: at once, as after a sleep, then all work that is due.
    fn pass(&mut self, length: Duration) {
        self.now += length;
        for _ in 0..64 {
            if self.stack.deadline().is_none_or(|due| due > self.now) {
                break;
            }
            self.round(&mut Burst::new());
        }
    }

    fn set_up(&mut self, up: bool) {
        self.stack.set_up(ONE, up, self.now, &mut self.random);
    }

    /// Sends a datagram to a near or far host, so that neighbours and routers are used.
    fn send(&mut self, to: u8) {
        let far = |high: u16| Ipv6Addr::new(0x2001, high, 0, 0, 0, 0, 0, u16::from(to & 15));
        let addr: std::net::IpAddr = match to >> 4 & 3 {
            0 => far(0xdb8).into(),
            1 => far(0xdb9).into(),
            2 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(to & 15)).into(),
            _ => [10, 0, 0, to & 15].into(),
        };
        let mut departing = PacketList::new();
        let mut round = Round {
            now: self.now,
            pool: self.pool,
            random: &mut self.random,
            arrived: &mut Burst::new(),
            departing: &mut departing,
            budget: Units(64),
            peers: None,
        };
        let mut sockets = self.stack.sockets(&mut round);
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 4000);
        let settings = SocketSettings::new(Family::V6);
        let socket = self.socket.or_else(|| sockets.udp_bind(any, settings).ok());
        if let Some(id) = socket {
            // Whether there is a way is what is being tried.
            let _ = sockets.udp_send(id, Some(SocketAddr::new(addr, 9)), b"?");
        }
        self.socket = socket;
    }

    /// What always holds.
    fn check(&self) {
        let (stack, now) = (&self.stack, self.now);
        let stats = stack.stats();
        assert!(stats.conservation().holds(), "{stats:?}");
        let (_, engine) =
            stack.routers().next().expect("the interface accepts router advertisements");
        assert!(engine.routers().count() <= limits::ROUTERS_MAX);
        assert!(engine.routes().count() <= limits::ADVERTISED_ROUTES_MAX);
        assert!(engine.prefixes().count() <= limits::PREFIXES_MAX);
        assert!(engine.dns().servers(now).count() <= limits::DNS_SERVERS_MAX);
        assert!(engine.dns().search(now).count() <= limits::DNS_SEARCH_MAX);
        assert!(stack.exceptions_v6().len() <= limits::EXCEPTIONS_MAX);
        assert!(self.autoconf() <= limits::AUTOCONF_ADDRESSES_MAX);
        let configured = 3;
        let most = limits::ROUTERS_MAX + limits::ADVERTISED_ROUTES_MAX + limits::PREFIXES_MAX;
        assert!(stack.routes_v6().len() <= configured + most);
        let interface = &stack.interfaces()[1];
        assert!((1280..=MTU).contains(&interface.mtu_v6) && interface.mtu == MTU);
        assert!(interface.hop_limit >= 64, "the floor");
        let waiting = stack.neighbors_v6().iter().filter(|n| !n.state.is_resolved()).count();
        assert!(waiting <= 32, "half of the table");
    }

    fn autoconf(&self) -> usize {
        let all = self.stack.interfaces()[1].addresses();
        all.filter(|a| a.origin == AddressOrigin::Autoconf).count()
    }

    /// What holds once the link is down.
    fn check_empty(&self) {
        let (_, engine) =
            self.stack.routers().next().expect("the interface accepts router advertisements");
        assert_eq!((engine.routers().count(), engine.routes().count()), (0, 0));
        assert_eq!((engine.prefixes().count(), self.autoconf()), (0, 0));
        assert_eq!(self.stack.exceptions_v6().iter(self.now).count(), 0);
        assert_eq!(self.stack.dns(self.now).servers, []);
        let interface = &self.stack.interfaces()[1];
        assert_eq!((interface.mtu_v6, interface.hop_limit), (MTU, 64));
        let learnt = self.stack.routes_v6().dump().filter(|r| r.expires.is_some());
        assert_eq!(learnt.count(), 0);
    }
}

/// A message in its frame, checksum included.
fn message_frame(
    kind: u8,
    (src_addr, dst_addr): (Ipv6Addr, Ipv6Addr),
    hop_limit: u8,
    body: &[u8],
) -> Vec<u8> {
    let link = EthernetFields {
        dst_addr: if dst_addr.is_multicast() { MacAddr::of_ipv6_multicast(dst_addr) } else { MAC },
        src_addr: MacAddr([2, 0, 0, 0, 0, 9]),
        ether_type: EtherType::IPV6,
    };
    let mut frame = vec![0; MESSAGE_AT];
    frame.extend([kind, 0, 0, 0]);
    frame.extend(body);
    let len = 4 + body.len();
    let (header, _) = frame.split_first_chunk_mut().expect("14 bytes");
    link.emit(header);
    let fields = Ipv6Fields::new(src_addr, dst_addr, IpProtocol::ICMPV6, hop_limit, len as u16);
    let header = &mut frame[ethernet::HEADER_LEN..];
    fields.emit(header.first_chunk_mut().expect("40 bytes"));
    let pseudo =
        floodwall_checksum::pseudo_header_v6(src_addr, dst_addr, IpProtocol::ICMPV6.0, len as u32);
    let check = pseudo.add(floodwall_checksum::sum(&frame[MESSAGE_AT..])).finish();
    frame[MESSAGE_AT + 2..MESSAGE_AT + 4].copy_from_slice(&check.to_be_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The corpus is no use if the host never accepts any of it.
    #[test]
    fn the_corpus_makes_the_host_believe_routers() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/ndp");
        let pool = pool();
        let mut believed = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let data = fs::read(entry.unwrap().path()).unwrap();
            let (mut random, now) = (Randomness::from_number(1), Instant::from_nanos(1));
            let stack = Stack::new(&config(), &mut random, now).unwrap();
            let mut world = World { stack, pool: &pool, random, now, socket: None };
            let mut rest = &data[..];
            let mut learnt = false;
            while let Some((&what, behind)) = rest.split_first() {
                rest = world.act(what, behind);
                let (_, engine) = world.stack.routers().next().unwrap();
                learnt |= engine.routers().count() + engine.prefixes().count() > 0;
            }
            believed += usize::from(learnt);
        }
        assert!(believed >= 8, "{believed}");
    }
}
