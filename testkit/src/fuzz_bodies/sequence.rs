//! Frames, clock steps and a host's own doings in any order: a whole stack with interfaces,
//! sockets, groups, accepted router advertisements and SLAAC addresses.
//!
//! The bytes are a program, one step after another ([`STEPS_MAX`] at most). Besides whole frames
//! there are packets with corrected checksums and lengths, and such that come in fragments, so that
//! the deep end is reached. Invariants that are checked: both ledgers balance after every step;
//! timed work gets on; tables stay within their bounds; and after a long while without a packet all
//! packet memory is back in the pool.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::limits::ADDRESSES_MAX;
use floodwall_base::{Family, IfIndex, Instant, IpCidr, MacAddr, Randomness, Units};
use floodwall_checksum::{pseudo_header_v4, pseudo_header_v6, sum};
use floodwall_packet::{Burst, Engine, PacketBuf, PacketList, Pool, PoolConfig, Round, Triage};
use floodwall_services::{ServiceKind, UdpService};
use floodwall_stack::{
    AddAddress, Application, Host, InterfaceConfig, LinkMedium, StackConfig, accounts_needed,
};
use floodwall_udp::{SocketId, SocketSettings};
use floodwall_wire::ipv6_ext::FragmentFields;
use floodwall_wire::{EtherType, EthernetFields, IpProtocol, Ipv4Fields, Ipv6Fields, ethernet};

/// Steps of one program.
const STEPS_MAX: usize = 64;
/// What a frame may have: an Ethernet header and a little more than the MTU.
const FRAME_BYTES_MAX: usize = 1600;
/// Pieces of one packet.
const PIECES_MAX: usize = 24;
/// Calls of timed work without time going on: more are a loop without end.
const CALLS_MAX: usize = 5000;
/// How long memory has to come back: longer than any timer of a packet's (60 s, RFC 8200 section
/// 4.5), lifetimes of addresses and routes apart.
const PEACE: Duration = Duration::from_secs(200);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const ETH: IfIndex = IfIndex(1);
const NEIGHBORS: usize = 8;

thread_local! {
    static POOL: RefCell<Pool> = RefCell::new(pool());
}

fn pool() -> Pool {
    let config = PoolConfig {
        small: 256,
        frames: 192,
        supers: 2,
        references: 128,
        accounts: accounts_needed(&config()) + 16,
        ..PoolConfig::default()
    };
    Pool::new(&config).expect("a megabyte")
}

fn config() -> StackConfig {
    let addresses = |texts: &[&str]| -> Vec<IpCidr> {
        texts.iter().map(|text| text.parse().expect("an address with its prefix")).collect()
    };
    let ethernet = InterfaceConfig {
        name: "eth0".into(),
        medium: LinkMedium::Ethernet(MAC),
        addresses: addresses(&["10.0.0.1/24", "fd00::1/64", "fe80::1/64"]),
        gateways: vec!["10.0.0.2".parse().expect("an address")],
        accept_ra: true,
        autoconf: true,
        ..InterfaceConfig::default()
    };
    let bare = InterfaceConfig {
        name: "tun0".into(),
        addresses: addresses(&["192.0.2.1/24", "2001:db8::1/64"]),
        ..InterfaceConfig::default()
    };
    StackConfig {
        interfaces: vec![ethernet, bare],
        udp_sockets_max: 8,
        udp_receive_bytes: 65_536,
        neighbors_max: NEIGHBORS,
        ..StackConfig::default()
    }
}

/// Runs `data` as a program.
///
/// # Panics
/// One of the invariants listed at the top of this file does not hold.
pub fn sequence(data: &[u8]) {
    POOL.with_borrow(|pool| {
        let before = pool.available();
        let _counts = run(pool, data);
        assert_eq!(pool.available(), before, "not all is home after the host has gone");
    });
}

/// A host and its clock.
struct Machine<'a> {
    host: Host,
    pool: &'a Pool,
    random: Randomness,
    now: Instant,
    burst: Burst,
    socket: SocketId,
    /// Sequence of made packets, for identifications.
    made: u8,
}

/// Bytes that are taken one after the other.
struct Program<'a>(&'a [u8]);

impl<'a> Program<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Zero where there is nothing left.
    fn small(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }

    fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.small(), self.small()])
    }

    /// As many bytes as the next two say, or as there are.
    fn bytes(&mut self, most: usize) -> &'a [u8] {
        let len = usize::from(self.word()) % most;
        let (taken, rest) = self.0.split_at_checked(len).unwrap_or((self.0, &[]));
        self.0 = rest;
        taken
    }
}

/// Runs a program; returns how many packets were delivered, and how many left.
fn run(pool: &Pool, data: &[u8]) -> (u64, u64) {
    let mut machine = Machine::new(pool);
    let start = pool.available();
    // Until its addresses are its own.
    machine.pass(Duration::from_secs(5));
    let mut program = Program(data);
    for _ in 0..STEPS_MAX {
        let Some(step) = program.byte() else { break };
        machine.step(step, &mut program);
    }
    machine.round();
    machine.pass(PEACE);
    machine.drain();
    let stats = machine.host.stack().stats();
    assert_eq!(stats.pending, 0, "nothing waits for a neighbour any more");
    assert_eq!(pool.available(), start, "memory is not back to its former use");
    (stats.outcomes.delivered + stats.outcomes.answered, stats.outcomes.transmitted)
}

impl<'a> Machine<'a> {
    fn new(pool: &'a Pool) -> Self {
        let mut random = Randomness::from_number(1);
        let now = Instant::from_nanos(1_000_000_000);
        let applications: Vec<Box<dyn Application>> = vec![
            Box::new(UdpService::new(ServiceKind::Echo, 7)),
            Box::new(UdpService::new(ServiceKind::Discard, 9)),
        ];
        let host = Host::new(&config(), applications, pool, &mut random, now);
        let mut host = host.expect("the configuration makes sense");
        let (mut burst, mut departing) = (Burst::new(), PacketList::new());
        let (arrived, budget) = (&mut burst, Units(64));
        let round = &mut Round {
            now,
            pool,
            random: &mut random,
            arrived,
            departing: &mut departing,
            budget,
            peers: None,
        };
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 4000);
        let settings = SocketSettings::new(Family::V6);
        let socket = host.stack_mut().sockets(round).udp_bind(any, settings).expect("a socket");
        Self { host, pool, random, now, burst, socket, made: 0 }
    }

    fn step(&mut self, step: u8, program: &mut Program<'_>) {
        let choice = step >> 4;
        match step & 0xf {
            0..=2 => {
                self.arrive(IfIndex(1 + u16::from(choice & 1)), program.bytes(FRAME_BYTES_MAX))
            }
            3..=5 => {
                let packet = self.make(choice, program);
                self.arrive_packet(&packet);
            }
            6..=8 => self.pieces(choice, program),
            9 => self.pass(Duration::from_millis(program.word().into())),
            10 => self.pass(Duration::from_secs(u64::from(program.small()) % 90)),
            11 => self.send(program),
            12 => self.group(choice, program),
            13 => self.address(choice, program),
            14 => self.link(choice),
            _ => self.drain(),
        }
        if choice & 8 == 0 {
            self.round();
        }
        self.check();
    }

    /// One frame, as it is.
    fn arrive(&mut self, iface: IfIndex, frame: &[u8]) {
        // Where a flood of the program's own has taken all memory, nothing more arrives.
        let Some(mut packet) = self.pool.packet_from(frame) else { return };
        packet.set_iface(iface);
        if let Err(packet) = self.burst.push(packet) {
            drop(packet);
            self.round();
        }
    }

    /// An IP packet from the link, or from the bare interface's peer.
    fn arrive_packet(&mut self, packet: &[u8]) {
        let v6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let ether_type = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let dst_addr = match (v6, packet) {
            (true, [head @ .., _]) if head.len() > 24 && head[24] == 0xff => {
                MacAddr([0x33, 0x33, packet[36], packet[37], packet[38], packet[39]])
            }
            (false, _) if packet.len() >= 20 && packet[16] >> 4 == 0xe => {
                MacAddr([1, 0, 0x5e, packet[17] & 0x7f, packet[18], packet[19]])
            }
            _ => MAC,
        };
        let mut link = [0; ethernet::HEADER_LEN];
        EthernetFields { dst_addr, src_addr: PEER, ether_type }.emit(&mut link);
        self.arrive(ETH, &[&link, packet].concat());
    }

    /// A packet with correct lengths and checksums.
    fn make(&mut self, choice: u8, program: &mut Program<'_>) -> Vec<u8> {
        let (protocol, ends, hops) = (program.small(), program.small(), program.small());
        // Neighbour discovery messages are accepted from the link only, queries with a hop limit of
        // one.
        let hops = [255, 1, 64, hops][usize::from(hops & 3)];
        let payload = program.bytes(6000);
        self.made = self.made.wrapping_add(1);
        made(choice & 4 == 0, IpProtocol(protocol), ends, hops, self.made, payload)
    }

    /// A packet in pieces, in an order of the program's, perhaps not all of them.
    fn pieces(&mut self, choice: u8, program: &mut Program<'_>) {
        let (unit, order, skip) = (program.small(), program.small(), program.small());
        let packet = self.make(choice, program);
        let pieces = cut(&packet, (usize::from(unit) + 1) * 8, self.made);
        let count = pieces.len();
        for n in 0..count {
            let at = (n * (usize::from(order) | 1) + usize::from(order >> 4)) % count;
            if skip & 1 == 0 || at != usize::from(skip >> 1) % count {
                self.arrive_packet(&pieces[at]);
            }
        }
    }

    fn send(&mut self, program: &mut Program<'_>) {
        let to = endpoint(program.small());
        let payload = vec![7; usize::from(program.word()) % 20_000];
        let socket = self.socket;
        self.with_round(|host, round| {
            // What is refused is the sender's to know.
            let _ = host.stack_mut().sockets(round).udp_send(socket, Some(to), &payload);
            Units(1)
        });
    }

    fn group(&mut self, choice: u8, program: &mut Program<'_>) {
        let low = program.small();
        let group: IpAddr = if choice & 1 == 0 {
            Ipv4Addr::new(239, 0, 0, low).into()
        } else {
            Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, low.into()).into()
        };
        let socket = self.socket;
        self.with_round(|host, round| {
            // Twenty are enough for one socket.
            let _ = host.stack_mut().sockets(round).udp_join(socket, group, ETH);
            Units(1)
        });
    }

    fn address(&mut self, choice: u8, program: &mut Program<'_>) {
        let low = program.small();
        let addr: IpAddr = if choice & 1 == 0 {
            Ipv4Addr::new(10, 0, 0, low).into()
        } else {
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, low.into()).into()
        };
        let len = if addr.is_ipv4() { 24 } else { 64 };
        let cidr = IpCidr::new(addr, len).expect("a length of its family");
        let (now, stack) = (self.now, self.host.stack_mut());
        // It may be there, or not be there: that is the caller's to know.
        let _ = if choice & 2 == 0 {
            stack.add_address(ETH, AddAddress::manual(cidr), now, &mut self.random)
        } else {
            stack.remove_address(ETH, addr, now, &mut self.random)
        };
    }

    fn link(&mut self, choice: u8) {
        let (now, up) = (self.now, choice & 1 == 0);
        self.host.stack_mut().set_carrier(ETH, up, now, &mut self.random);
    }

    /// The application reads what it was sent.
    fn drain(&mut self) {
        let (socket, mut buffer) = (self.socket, vec![0; 65_536]);
        self.with_round(|host, round| {
            while host.stack_mut().sockets(round).udp_recv(socket, &mut buffer).is_ok() {}
            Units(1)
        });
    }

    /// What has arrived is taken, and timed work that is due is done.
    fn round(&mut self) {
        let mut classes = [Triage::Unknown; 64];
        self.host.classify(&self.burst, &mut classes);
        self.with_round(|host, round| {
            let spent = host.round(round);
            spent.plus(host.work(round))
        });
        assert!(self.burst.is_empty(), "a round takes the whole burst");
    }

    /// Time passes, and everything that is due meanwhile is done in time.
    fn pass(&mut self, time: Duration) {
        self.round();
        let (until, mut calls) = (self.now + time, 0);
        while let Some(due) = self.host.deadline().filter(|due| *due <= until) {
            calls = if due > self.now { 0 } else { calls + 1 };
            assert!(calls < CALLS_MAX, "timed work does not get on at {:?}", self.now);
            self.now = self.now.max(due);
            self.with_round(Host::work);
        }
        self.now = until;
    }

    fn with_round(&mut self, act: impl FnOnce(&mut Host, &mut Round<'_>) -> Units) {
        let mut departing = PacketList::new();
        let (pool, random, arrived) = (self.pool, &mut self.random, &mut self.burst);
        let (now, budget) = (self.now, Units(64));
        act(
            &mut self.host,
            &mut Round {
                now,
                pool,
                random,
                arrived,
                departing: &mut departing,
                budget,
                peers: None,
            },
        );
        while let Some(packet) = departing.pop_front() {
            assert!(fits(&packet), "{} bytes leave", packet.len());
        }
    }

    fn check(&self) {
        let stack = self.host.stack();
        let stats = stack.stats();
        assert!(stats.conservation().holds(), "{stats:?}");
        let neighbors = [stack.neighbors_v4().iter().count(), stack.neighbors_v6().iter().count()];
        // Of each interface, the loopback's among them.
        assert!(neighbors.iter().all(|count| *count <= 3 * NEIGHBORS), "{neighbors:?}");
        for interface in stack.interfaces() {
            let [v4, v6] = [true, false].map(|v4| {
                interface.addresses().filter(|address| address.addr.is_ipv4() == v4).count()
            });
            assert!(v4 <= ADDRESSES_MAX && v6 <= ADDRESSES_MAX, "{v4}, {v6} addresses");
        }
    }
}

/// Nothing leaves that no link takes.
fn fits(packet: &PacketBuf) -> bool {
    packet.len() <= 1500 + ethernet::HEADER_LEN
}

/// A destination of the host: neighbours that exist or not, itself, groups, far hosts.
fn endpoint(choice: u8) -> SocketAddr {
    let low = choice >> 4;
    let addr: IpAddr = match choice & 7 {
        0 => Ipv4Addr::new(10, 0, 0, low).into(),
        1 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, low.into()).into(),
        2 => Ipv4Addr::new(198, 51, 100, low).into(),
        3 => Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, low.into()).into(),
        4 => Ipv4Addr::LOCALHOST.into(),
        5 => Ipv6Addr::LOCALHOST.into(),
        6 => Ipv4Addr::new(192, 0, 2, low).into(),
        _ => Ipv4Addr::new(239, 0, 0, low).into(),
    };
    SocketAddr::new(addr, if choice & 8 == 0 { 4000 } else { 7 })
}

/// An IP packet with lengths and checksums put right.
fn made(v6: bool, protocol: IpProtocol, ends: u8, hops: u8, id: u8, payload: &[u8]) -> Vec<u8> {
    let mut body = payload.to_vec();
    let (low, kind) = (u16::from(ends & 0xf), ends >> 4);
    if v6 {
        let from = match kind & 3 {
            0 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, low),
            1 => Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, low),
            2 => Ipv6Addr::UNSPECIFIED,
            _ => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, low),
        };
        let to = match kind >> 2 {
            0 | 1 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
            2 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
            _ => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
        };
        let pseudo = pseudo_header_v6(from, to, protocol.0, body.len() as u32);
        put_checksum(protocol, &mut body, |body| pseudo.add(sum(body)).finish());
        let mut header = [0; 40];
        Ipv6Fields::new(from, to, protocol, hops, body.len() as u16).emit(&mut header);
        return [&header[..], &body].concat();
    }
    let from = match kind & 3 {
        0 | 1 => Ipv4Addr::new(10, 0, 0, low as u8),
        2 => Ipv4Addr::UNSPECIFIED,
        _ => Ipv4Addr::new(198, 51, 100, low as u8),
    };
    let to = match kind >> 2 {
        0 | 1 => Ipv4Addr::new(10, 0, 0, 1),
        2 => Ipv4Addr::new(224, 0, 0, 1),
        _ => Ipv4Addr::BROADCAST,
    };
    let pseudo = pseudo_header_v4(from, to, protocol.0, body.len() as u16);
    put_checksum(protocol, &mut body, |body| match protocol {
        IpProtocol::UDP => pseudo.add(sum(body)).finish(),
        _ => sum(body).finish(),
    });
    let mut header = [0; 20];
    let mut fields = Ipv4Fields::new(from, to, protocol, hops, (20 + body.len()) as u16);
    fields.id = id.into();
    fields.emit(&mut header);
    [&header[..], &body].concat()
}

/// Puts lengths and checksum of what is carried right, where it is something that has any.
fn put_checksum(protocol: IpProtocol, body: &mut [u8], check: impl FnOnce(&[u8]) -> u16) {
    let len = body.len();
    let at = match protocol {
        IpProtocol::UDP if len >= 8 => {
            body[4..6].copy_from_slice(&(len as u16).to_be_bytes());
            6
        }
        IpProtocol::ICMPV4 | IpProtocol::ICMPV6 | IpProtocol::IGMP if len >= 4 => 2,
        _ => return,
    };
    body[at..at + 2].fill(0);
    let value = match check(body) {
        0 if protocol == IpProtocol::UDP => 0xffff,
        value => value,
    };
    body[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The packet in pieces of so many bytes; the last one takes what is left.
fn cut(packet: &[u8], unit: usize, id: u8) -> Vec<Vec<u8>> {
    let v6 = packet[0] >> 4 == 6;
    let (header, body) = packet.split_at(if v6 { 40 } else { 20 });
    let unit = unit.max(body.len().div_ceil(PIECES_MAX).next_multiple_of(8));
    let count = body.len().div_ceil(unit).max(1);
    let piece = |n: usize| {
        let (offset, more) = ((n * unit) as u16, n + 1 < count);
        let bytes = &body[n * unit..((n + 1) * unit).min(body.len())];
        let mut front = header.to_vec();
        if v6 {
            let next_header = IpProtocol(front[6]);
            front[6] = IpProtocol::FRAGMENT.0;
            front[4..6].copy_from_slice(&((8 + bytes.len()) as u16).to_be_bytes());
            let mut fragment = [0; 8];
            FragmentFields { next_header, offset, more, id: id.into() }.emit(&mut fragment);
            front.extend(fragment);
        } else {
            front[2..4].copy_from_slice(&((20 + bytes.len()) as u16).to_be_bytes());
            let place = (offset / 8) | (u16::from(more) << 13);
            front[6..8].copy_from_slice(&place.to_be_bytes());
            front[10..12].fill(0);
            let check = sum(&front).finish();
            front[10..12].copy_from_slice(&check.to_be_bytes());
        }
        [&front[..], bytes].concat()
    };
    (0..count).map(piece).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_corpus_reaches_sockets_and_makes_the_host_speak() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/sequence");
        let pool = pool();
        let silent = run(&pool, &[]);
        let (mut taken, mut spoke) = (0, 0);
        for entry in fs::read_dir(folder).unwrap() {
            let (delivered, left) = run(&pool, &fs::read(entry.unwrap().path()).unwrap());
            taken += usize::from(delivered > silent.0);
            spoke += usize::from(left > silent.1);
        }
        assert!(taken >= 6 && spoke >= 10, "{taken} taken, {spoke} spoke");
    }
}
