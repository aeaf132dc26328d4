//! Connection places under real connections: peers of one source prefix complete handshakes and
//! hold what they get, at the lowest price that filled the table of places and at four times it.
//! Peers of other prefixes connect, and established ones go on.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, Family, Units};
use floodwall_services::{ServiceKind, StreamKind, StreamService, TcpService};
use floodwall_stack::{Application, InterfaceConfig, Sockets, StackConfig};
use floodwall_tcp::{ConnectionError, ConnectionId, RecvError, TcpSettings, TcpState};
use floodwall_tests::craft::{FAMILIES, HOST, PEER, addr};
use floodwall_tests::tcp::{Heard, TcpClient, heard};
use floodwall_tests::{Rig, ethernet_config};
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::TcpOptionSet;

const A: TcpFlags = TcpFlags::ACK;
/// Places of the host: a sixteenth of what `run` and the attacks on it had. Rates are as measured:
/// a place is taken sixteen times as often.
const PLACES: usize = 1024;
/// Departed packets are held for so long at most.
const WAIT_STEP: Duration = Duration::from_millis(250);

/// The address of a host of a prefix: an IPv4 /24, or an IPv6 /64 of a /48 of its own.
pub(crate) fn source(family: Family, prefix: u16, host: u16) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([10, 1, prefix as u8, host as u8]),
        Family::V6 => IpAddr::from([0xfd01, 0, prefix, host / 256, 0, 0, 0, host]),
    }
}

/// The address of a host of one of many prefixes of attackers, which no other peer has.
fn attacker(family: Family, prefix: u16, host: u16) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([10, 2 + (prefix / 256) as u8, prefix as u8, host as u8]),
        Family::V6 => IpAddr::from([0xfd02, 0, prefix, host / 256, 0, 0, 0, host]),
    }
}

/// A host behind a router, with services, and what happens to it.
pub(crate) struct World {
    rig: Rig,
    services: Vec<Box<dyn Application>>,
    /// Segments of the host for flows that are played.
    pub(crate) out: Vec<Heard>,
    next: u32,
}

/// A connection that the test plays: its client, and the sequence numbers of both sides.
#[derive(Clone)]
pub(crate) struct Play {
    pub(crate) client: TcpClient,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
}

impl World {
    pub(crate) fn new(services: Vec<Box<dyn Application>>) -> Self {
        Self::with(PLACES, services)
    }

    /// One with memory that belongs to the first connection that takes it.
    pub(crate) fn unfair(services: Vec<Box<dyn Application>>) -> Self {
        let defaults = StackConfig { tcp_connections_max: PLACES, ..ethernet_config(HOST) };
        Self::of(StackConfig { tcp_fair_memory: false, ..defaults }, services)
    }

    pub(crate) fn with(places: usize, services: Vec<Box<dyn Application>>) -> Self {
        let config = StackConfig { tcp_connections_max: places, ..ethernet_config(HOST) };
        Self::of(config, services)
    }

    fn of(mut config: StackConfig, mut services: Vec<Box<dyn Application>>) -> Self {
        let [eth] = config.interfaces.as_mut_slice() else { panic!("one interface") };
        *eth = InterfaceConfig {
            gateways: FAMILIES.into_iter().map(|family| addr(family, PEER)).collect(),
            ..eth.clone()
        };
        let mut rig = Rig::with_neighbor(&config, PEER);
        for service in &mut services {
            rig.sockets(|s| service.start(s)).0.expect("a service");
        }
        Self { rig, services, out: Vec::new(), next: 0 }
    }

    fn give(&mut self, frame: &[u8]) {
        let departed = self.rig.frame(frame);
        self.out.extend(departed.iter().filter_map(heard));
    }

    /// The services serve what waits.
    pub(crate) fn serve(&mut self) {
        for service in &mut self.services {
            let (_, departed) = self.rig.sockets(|s| service.run(s, Units(64)));
            self.out.extend(departed.iter().filter_map(heard));
        }
    }

    /// What departs is given back to the pool in steps, as a device does: else a long wait uses up
    /// the pool, and each connection tries for memory all the time.
    pub(crate) fn wait(&mut self, time: Duration) {
        let mut left = time;
        loop {
            let step = left.min(WAIT_STEP);
            let departed = self.rig.run_for(step);
            self.out.extend(departed.iter().filter_map(heard));
            left -= step;
            if left.is_zero() {
                break;
            }
        }
        self.serve();
    }

    /// What the host has sent to a client since this was asked last.
    pub(crate) fn heard(&mut self, client: &TcpClient) -> Vec<Heard> {
        let all = std::mem::take(&mut self.out);
        all.into_iter().filter(|it| it.to == client.from).collect()
    }

    /// Completes a handshake; `None` where it is refused.
    pub(crate) fn open(&mut self, from: IpAddr, port: u16) -> Option<Play> {
        let from = SocketAddr::new(from, 1024 + (self.next.wrapping_add(1) % 60_000) as u16);
        self.open_from(from, port)
    }

    /// The same from this port.
    pub(crate) fn open_from(&mut self, from: SocketAddr, port: u16) -> Option<Play> {
        self.next += 1;
        let family = if from.is_ipv4() { Family::V4 } else { Family::V6 };
        let mut client = TcpClient::nth(self.next, family, port).timeless();
        client.from = from;
        self.out.clear();
        self.give(&client.syn());
        let answers = self.heard(&client);
        let answer = answers.iter().find(|it| it.flags.contains(TcpFlags::SYN | A))?;
        let play =
            Play { seq: client.isn.wrapping_add(1), ack: answer.seq.wrapping_add(1), client };
        self.say(&play, A, &[]);
        self.serve();
        Some(play)
    }

    pub(crate) fn say(&mut self, play: &Play, flags: TcpFlags, text: &[u8]) {
        self.say_with(play, flags, &TcpOptionSet::NONE, text);
    }

    /// The same with options.
    pub(crate) fn say_with(
        &mut self,
        play: &Play,
        flags: TcpFlags,
        options: &TcpOptionSet,
        text: &[u8],
    ) {
        let frame = play.client.frame((play.seq, play.ack), flags, options, text);
        self.give(&frame);
    }

    /// One service listens no more, or again.
    pub(crate) fn listen(&mut self, service: usize, listens: bool) {
        let service = &mut self.services[service];
        if listens {
            self.rig.sockets(|s| service.start(s)).0.expect("a service");
        } else {
            self.rig.sockets(|s| service.stop(s));
        }
    }

    /// The host's clock goes on by so much at once: nothing was done meanwhile.
    pub(crate) fn jump(&mut self, time: Duration) {
        self.rig.now += time;
        self.wait(Duration::ZERO);
    }

    /// True bytes that connections may hold together: a half of the frames.
    pub(crate) fn tcp_memory(&self) -> u64 {
        self.rig.pool.region().frames_true_bytes() / 2
    }

    /// True bytes that connections hold, and how many connections there are.
    pub(crate) fn held(&mut self) -> (u64, usize) {
        let held = |s: &mut Sockets<'_>| s.tcp_with(|tcp, _| (tcp.memory_held(), tcp.len()));
        self.rig.sockets(held).0.expect("TCP")
    }

    /// Sends a request and acknowledges the answer; the number of bytes that came. A reset is
    /// `None`.
    pub(crate) fn ask(&mut self, play: &mut Play, text: &[u8]) -> Option<usize> {
        self.out.clear();
        self.say(play, A | TcpFlags::PSH, text);
        play.seq = play.seq.wrapping_add(text.len() as u32);
        self.serve();
        let answers = self.heard(&play.client);
        if answers.iter().any(|it| it.flags.contains(TcpFlags::RST)) {
            return None;
        }
        let bytes = answers.iter().map(|it| it.text.len()).sum();
        let fin = answers.iter().any(|it| it.flags.contains(TcpFlags::FIN));
        play.ack = play.ack.wrapping_add(bytes as u32 + u32::from(fin));
        (bytes > 0).then(|| self.say(play, A, &[])).map(|()| bytes)
    }

    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.rig.stats().counters.of(counter)
    }
}

pub(crate) const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
pub(crate) const LAST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

pub(crate) fn http() -> Box<dyn Application> {
    Box::new(StreamService::new(StreamKind::Http, 80))
}

pub(crate) fn echo() -> Box<dyn Application> {
    Box::new(TcpService::new(ServiceKind::Echo, 7))
}

/// What a connection of the attacker does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attack {
    /// It takes its answer and never closes: FIN-WAIT-2 (A1).
    FinWait2,
    /// It closes, and never acknowledges our FIN: LAST-ACK (A2).
    LastAck,
    /// It never acknowledges the answer and our FIN: FIN-WAIT-1 (A2).
    FinWait1,
    /// It sends nothing (A3).
    Idle,
}

impl Attack {
    fn carry_out(self, world: &mut World, play: &mut Play) {
        match self {
            Self::FinWait2 => _ = world.ask(play, LAST),
            Self::FinWait1 => {
                world.say(play, A, LAST);
                world.serve();
            }
            Self::LastAck => {
                world.say(play, A | TcpFlags::FIN, &[]);
                world.serve();
            }
            Self::Idle => {}
        }
    }
}

/// Honest peers beside `rate` connections a second of one attacker, for so many milliseconds; its
/// addresses are all of one prefix.
fn beside(family: Family, attack: Attack, rate: u32, millis: u32, ports: &[u16]) {
    beside_prefixes(family, attack, (rate, 1), millis, ports);
}

/// The same where its addresses are of so many prefixes.
fn beside_prefixes(
    family: Family,
    attack: Attack,
    (rate, prefixes): (u32, u32),
    millis: u32,
    ports: &[u16],
) {
    let what = format!("{family:?} {attack:?} at {rate}/s of {prefixes} prefixes");
    let mut world = World::new(vec![http(), echo()]);
    let mut old = world.open(source(family, 9, 1), 80).expect("a place");
    let mut idle = world.open(source(family, 8, 1), 7).expect("a place");
    let (mut honest, mut served, mut refused, mut owed) = (0, 0, 0, 0);
    for now in (0..millis).step_by(5) {
        owed += rate * 5;
        while owed >= 1000 {
            owed -= 1000;
            let port = ports[world.next as usize % ports.len()];
            let prefix = (world.next % prefixes) as u16;
            let from = attacker(family, prefix, (world.next / prefixes % 200) as u16);
            match world.open(from, port) {
                Some(mut play) => attack.carry_out(&mut world, &mut play),
                None => refused += 1,
            }
        }
        if now % 50 == 0 {
            // A newcomer of a prefix that has no connection, and one that goes on.
            honest += 1;
            let from = source(family, 20 + (now / 50 % 100) as u16, 3);
            if let Some(mut newcomer) = world.open(from, 80) {
                served += u32::from(world.ask(&mut newcomer, LAST).is_some());
                world.say(&newcomer, A | TcpFlags::FIN, &[]);
            }
            assert!(world.ask(&mut old, GET).is_some(), "{what}: an old one, at {now} ms");
        }
        world.wait(Duration::from_millis(5));
    }
    assert!(served * 100 >= honest * 99, "{what}: {served} of {honest} served, {refused} refused");
    assert!(world.ask(&mut idle, b"still there").is_some(), "{what}: an idle one");
    let evicted = match attack {
        Attack::Idle => world.count(Counter::FloodwallTcpEvictedIdle),
        _ => world.count(Counter::FloodwallTcpEvictedUnowned),
    };
    assert!(evicted > 0, "{what}");
    // Everything is back once they have been given up.
    world.wait(Duration::from_secs(400));
    let (memory, connections) = world.held();
    assert_eq!(memory, 0, "{what}");
    assert!(attack == Attack::Idle || connections < 8, "{what}: {connections} are left");
}

/// Of 2,000 clients behind one address, beside 8,000 connections of another one: how many were
/// answered at first, and how many still were once all of them were there.
fn behind_one_address(family: Family, attacker: u16) -> (usize, usize) {
    const CLIENTS: usize = 2000;
    let mut world = World::with(4 * PLACES, vec![http(), echo()]);
    let (nat, attacker) = (source(family, 9, 1), source(family, attacker, 200));
    let mut clients = Vec::new();
    for _ in 0..CLIENTS / 5 {
        for number in 0..20 {
            if let Some(mut play) = world.open(attacker, [80, 7][number % 2]) {
                let attack = if number % 2 == 0 { Attack::FinWait2 } else { Attack::Idle };
                attack.carry_out(&mut world, &mut play);
            }
        }
        for _ in 0..5 {
            if let Some(mut client) = world.open(nat, 80)
                && world.ask(&mut client, GET).is_some()
            {
                clients.push(client);
            }
        }
        world.wait(Duration::from_millis(5));
    }
    let answered = clients.iter_mut().filter_map(|client| world.ask(client, GET)).count();
    (clients.len(), answered)
}

/// They are one prefix, and have one share.
#[test]
fn two_thousand_clients_behind_one_address_are_served_beside_an_attacker_of_another_prefix() {
    for family in FAMILIES {
        let (first, again) = behind_one_address(family, 1);
        assert!(first >= 1980 && again >= 1980, "{family:?}: {first} at first, {again} again");
        // In the attacker's own prefix, too: of an IPv4 /24 the address that holds most gives way;
        // of a /64 those that are idle, and come again.
        let (first, again) = behind_one_address(family, 9);
        let least = if family == Family::V4 { 1900 } else { 0 };
        assert!(first >= 1900 && again >= least, "{family:?}: {first} at first, {again} again");
    }
}

/// 1,000 a second for 17 s filled 16,384 places, 273 a second kept them so.
#[test]
fn connections_in_fin_wait_2_shut_no_other_prefix_out() {
    for family in FAMILIES {
        for rate in [1000, 4000] {
            beside(family, Attack::FinWait2, rate, 2 * PLACES as u32 * 1000 / rate, &[80]);
        }
    }
}

/// Each prefix has its share, however many the attacker has: of 34 places beside 30, of three
/// beside 300. Newcomers have less, and so have those that hold one or two.
#[test]
fn attackers_of_many_prefixes_shut_no_other_prefix_out() {
    for family in FAMILIES {
        for attack in [Attack::FinWait2, Attack::LastAck, Attack::FinWait1, Attack::Idle] {
            for prefixes in [30, 300] {
                let millis = 2 * PLACES as u32;
                beside_prefixes(family, attack, (1000, prefixes), millis, &[80]);
            }
        }
    }
}

/// 137 a second kept 16,384 places so for as long as they went on.
#[test]
fn connections_in_last_ack_and_fin_wait_1_shut_no_other_prefix_out() {
    for family in FAMILIES {
        for attack in [Attack::LastAck, Attack::FinWait1] {
            for rate in [1000, 4000] {
                beside(family, attack, rate, 2 * PLACES as u32 * 1000 / rate, &[80]);
            }
        }
    }
}

/// 15,000 idle connections on one service, then 6,000 on another.
#[test]
fn idle_connections_on_two_services_shut_no_other_prefix_out() {
    for family in FAMILIES {
        for rate in [1000, 4000] {
            beside(family, Attack::Idle, rate, 2 * PLACES as u32 * 1000 / rate, &[80, 7]);
        }
    }
}

/// A program's own listener: it accepts, and does nothing more.
fn program(
    world: &mut World,
    settings: &TcpSettings,
) -> impl FnMut(&mut World) -> Vec<ConnectionId> + use<> {
    let any = SocketAddr::new(IpAddr::from([0_u16; 8]), 4000);
    let listen = |s: &mut Sockets<'_>| s.tcp_listen(any, settings, 1024, 40);
    let listener = world.rig.sockets(listen).0.expect("a listener");
    move |world| {
        let accept = |s: &mut Sockets<'_>| {
            std::iter::from_fn(|| s.tcp_accept(listener).expect("it listens")).collect()
        };
        world.rig.sockets(accept).0
    }
}

/// Opens `count` connections of the attacker's prefix to the program, which holds them.
fn hold(
    world: &mut World,
    family: Family,
    count: u32,
    settings: &TcpSettings,
) -> Vec<ConnectionId> {
    let mut accept = program(world, settings);
    let mut held = Vec::new();
    for n in 0..count {
        world.open(source(family, 1, (n % 200) as u16), 4000);
        held.extend(accept(world));
        release(world, &mut held);
        world.wait(Duration::from_millis(1));
    }
    held
}

/// Releases what was evicted, as a program does that reads an error.
fn release(world: &mut World, held: &mut Vec<ConnectionId>) {
    held.retain(|id| {
        let ended = world.rig.sockets(|s| s.tcp_state(*id)).0 == Ok(TcpState::Closed);
        if ended {
            let error = world.rig.sockets(|s| s.tcp_recv(*id, &mut [0])).0;
            assert_eq!(error, Err(RecvError::Connection(ConnectionError::Aborted)));
            world.rig.sockets(|s| s.tcp_close(*id)).0.expect("it is there");
        }
        !ended
    });
}

#[test]
fn a_program_s_listener_takes_part_and_is_told() {
    for family in FAMILIES {
        let mut world = World::with(64, vec![http()]);
        let mut held = hold(&mut world, family, 300, &TcpSettings::default());
        assert!(held.len() <= 64 && held.len() > 32, "{}", held.len());
        for prefix in 20..40 {
            let mut newcomer = world.open(source(family, prefix, 1), 80).expect("a place");
            assert!(world.ask(&mut newcomer, LAST).is_some());
            release(&mut world, &mut held);
        }
        assert!(world.count(Counter::FloodwallTcpEvictedIdle) >= 20);
    }
}

/// Without the mechanism the attack works: connections that must not be evicted shut the others
/// out.
#[test]
fn a_listener_that_permits_no_eviction_keeps_all_places() {
    for family in FAMILIES {
        let mut world = World::with(64, vec![http()]);
        let never = TcpSettings { evict_idle_after: None, ..TcpSettings::default() };
        let held = hold(&mut world, family, 300, &never);
        assert_eq!(held.len(), 64);
        let refused = (20..40).filter(|prefix| {
            let newcomer = world.open(source(family, *prefix, 1), 80);
            newcomer.is_none_or(|mut it| world.ask(&mut it, LAST).is_none())
        });
        assert_eq!(refused.count(), 20, "{family:?}");
        assert_eq!(world.count(Counter::FloodwallTcpEvictedIdle), 0);
    }
}

#[test]
fn connections_that_must_be_idle_for_a_time_stay_for_so_long() {
    for family in FAMILIES {
        let mut world = World::with(64, vec![http()]);
        let later = TcpSettings {
            evict_idle_after: Some(Duration::from_secs(10)),
            ..TcpSettings::default()
        };
        let held = hold(&mut world, family, 100, &later);
        assert_eq!(world.count(Counter::FloodwallTcpEvictedIdle), 0);
        assert!(held.len() > 60, "{}", held.len());
        world.wait(Duration::from_secs(10));
        // A newcomer may find no place yet, and makes room for the next one.
        world.open(source(family, 20, 1), 80);
        world.wait(Duration::from_millis(10));
        assert!(world.count(Counter::FloodwallTcpEvictedIdle) > 0, "{family:?}");
    }
}

#[test]
fn a_listener_s_limits_hold_and_make_room_by_fair_share() {
    for family in FAMILIES {
        let mut world = World::with(256, vec![http()]);
        let limited = TcpSettings { places_max: Some(20), ..TcpSettings::default() };
        let held = hold(&mut world, family, 60, &limited);
        // Within half a second the prefix's own connections are not evicted for others of it.
        assert_eq!((held.len(), world.count(Counter::FloodwallTcpEvictedIdle)), (20, 0));
        for prefix in 30..35 {
            world.open(source(family, prefix, 1), 4000).expect("a place");
        }
        assert_eq!(world.count(Counter::FloodwallTcpEvictedIdle), 5, "{family:?}");
    }
    for family in FAMILIES {
        let mut world = World::with(256, vec![http()]);
        let limited = TcpSettings { per_prefix_max: Some(20), ..TcpSettings::default() };
        let held = hold(&mut world, family, 60, &limited);
        assert_eq!((held.len(), world.count(Counter::FloodwallTcpEvictedIdle)), (20, 0));
        for prefix in 30..35 {
            world.open(source(family, prefix, 1), 4000).expect("a place");
        }
        assert_eq!(world.count(Counter::FloodwallTcpEvictedIdle), 0, "{family:?}");
        // One that is idle gives way to another of its prefix.
        world.wait(Duration::from_secs(1));
        world.open(source(family, 1, 1), 4000);
        assert_eq!(world.count(Counter::FloodwallTcpEvictedIdle), 1, "{family:?}");
    }
}

/// An attacker with a /48 has one share, as one with a /24 has.
#[test]
fn an_ipv6_site_that_spreads_over_all_its_networks_has_one_share() {
    let mut world = World::new(vec![http()]);
    let mut honest = world.open(source(Family::V6, 9, 1), 80).expect("a place");
    for n in 0..3 * PLACES as u16 {
        let site = 0xfd02_u16;
        world.open(IpAddr::from([site, 0, 7, n, 0, 0, 0, 1]), 80);
        world.wait(Duration::from_millis(1));
        if n % 100 == 0 {
            let from = source(Family::V6, 20 + n / 100, 3);
            let mut newcomer = world.open(from, 80).expect("a place");
            assert!(world.ask(&mut newcomer, LAST).is_some(), "after {n}");
        }
    }
    assert!(world.ask(&mut honest, GET).is_some(), "it has held on");
}
