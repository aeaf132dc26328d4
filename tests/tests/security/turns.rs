//! Turns of a service: a peer that sends thousands of requests at once, or one byte at a time, gets
//! its share of each turn and no more.

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Family, Instant, Units};
use floodwall_packet::Engine;
use floodwall_services::{ServiceKind, StreamKind, StreamService, TcpService};
use floodwall_stack::{Application, Sockets, StartError};
use floodwall_tcp::{ConnectionId, ListenerId, TcpSettings};
use floodwall_tests::craft::FAMILIES;
use floodwall_tests::tcp_peer::{Segment, TcpPeer, put};
use floodwall_wire::tcp::TcpFlags;

const A: TcpFlags = TcpFlags::ACK;
/// Units of one turn, as a host grants them.
const TURN: u32 = 128;
/// What one connection may spend in its turn, and what its last piece may cost beyond.
const QUANTUM: u32 = 16;
const PIECE: u32 = 20;
/// The shortest request there is.
const REQUEST: &[u8] = b"HEAD / HTTP/1.1\r\n\r\n";
/// Of these in one segment, and segments.
const IN_SEGMENT: usize = 70;
const SEGMENTS: usize = 10;

/// A connection of the peer.
struct Client {
    port: u16,
    iss: u32,
    said: u32,
    heard: u32,
}

impl Client {
    fn open(peer: &mut TcpPeer, port: u16) -> Self {
        peer.ports.1 = port;
        let answers = peer.give(&put(TcpFlags::SYN, 0, 0));
        let iss = answers.iter().find(|it| it.ports.1 == port).expect("a SYN-ACK").seq;
        peer.iss = iss;
        peer.give(&put(A, 1, 1));
        Self { port, iss, said: 1, heard: 1 }
    }

    fn say(&mut self, peer: &mut TcpPeer, says: &[u8]) {
        (peer.ports.1, peer.iss) = (self.port, self.iss);
        peer.give(&put(A, self.said, self.heard).data(says));
        self.said += says.len() as u32;
    }

    /// Acknowledges what was sent to it; how many bytes of text that was.
    fn hear(&mut self, peer: &mut TcpPeer, sent: &[Segment]) -> u32 {
        let ours = sent.iter().filter(|it| it.ports.1 == self.port);
        let len = ours.map(|it| it.len as u32).sum();
        if len > 0 {
            self.heard += len;
            (peer.ports.1, peer.iss) = (self.port, self.iss);
            let more = peer.give(&put(A, self.said, self.heard));
            return len + self.hear(peer, &more);
        }
        len
    }
}

fn turn(peer: &mut TcpPeer, service: &mut dyn Application) -> (u32, Vec<Segment>) {
    let (spent, sent) = peer.sockets(|s| service.run(s, Units(TURN)));
    assert!(spent.0 <= TURN + QUANTUM + PIECE, "{} units in a turn of {TURN}", spent.0);
    (spent.0, sent)
}

/// Length of the answer to one request.
fn answer_len(peer: &mut TcpPeer, service: &mut dyn Application) -> u32 {
    let mut client = Client::open(peer, 4000);
    client.say(peer, REQUEST);
    let (_, sent) = turn(peer, service);
    client.hear(peer, &sent)
}

#[test]
fn one_that_sends_hundreds_of_requests_at_once_shares_each_turn_with_the_others() {
    for family in FAMILIES {
        let mut peer = TcpPeer::new(family, &TcpSettings::default());
        peer.ports.0 = 8080;
        let mut service = StreamService::new(StreamKind::Http, 8080);
        peer.sockets(|s| service.start(s)).0.expect("a service");
        let one = answer_len(&mut peer, &mut service);
        let mut greedy = Client::open(&mut peer, 5000);
        for _ in 0..SEGMENTS {
            greedy.say(&mut peer, &REQUEST.repeat(IN_SEGMENT));
        }
        let (mut answers, mut turns) = (0, 0);
        while answers < (IN_SEGMENT * SEGMENTS) as u32 {
            // One that asks once is answered in the same turn, behind any backlog.
            let mut honest = Client::open(&mut peer, 6000 + turns);
            honest.say(&mut peer, REQUEST);
            let (spent, sent) = turn(&mut peer, &mut service);
            assert_eq!(honest.hear(&mut peer, &sent), one, "{family:?}, turn {turns}");
            let heard = greedy.hear(&mut peer, &sent);
            assert!(
                heard.is_multiple_of(one) && heard / one <= TURN / 4,
                "{heard} bytes in a turn"
            );
            assert!(spent > heard / one * 4, "a request costs more than four units");
            answers += heard / one;
            turns += 1;
            assert!(turns < 200, "{family:?}: it is never done");
        }
        assert!(turns > 20, "{family:?}: {turns} turns");
    }
}

/// Sends a head of 7,000 bytes byte by byte, which is then answered; units of the dearest byte.
fn dearest_byte(family: Family, service: &mut dyn Application) -> u32 {
    let mut peer = TcpPeer::new(family, &TcpSettings::default());
    peer.ports.0 = 8080;
    peer.sockets(|s| service.start(s)).0.expect("a service");
    let one = answer_len(&mut peer, service);
    let mut slow = Client::open(&mut peer, 5000);
    turn(&mut peer, service);
    let mut head = b"HEAD / HTTP/1.1\r\nX: ".to_vec();
    head.resize(7000, b'x');
    head.extend_from_slice(b"\r\n\r\n");
    let (last, first) = head.split_last().expect("a head");
    let mut dearest = 0;
    for byte in first {
        slow.say(&mut peer, &[*byte]);
        let (spent, sent) = turn(&mut peer, service);
        dearest = dearest.max(spent);
        assert_eq!(slow.hear(&mut peer, &sent), 0);
    }
    slow.say(&mut peer, &[*last]);
    let (_, sent) = turn(&mut peer, service);
    assert_eq!(slow.hear(&mut peer, &sent), one);
    dearest
}

/// What the service did before it parsed each byte once: it looks at a head from its beginning
/// whenever more of it has come.
struct Rescanning {
    open: Option<(ListenerId, u32)>,
    room: Vec<u8>,
}

impl Rescanning {
    /// A connection has something: units spent on it.
    fn serve(&mut self, sockets: &mut Sockets<'_>, id: ConnectionId) -> u32 {
        let n = sockets.tcp_peek(id, &mut self.room).unwrap_or(0);
        if let Some(end) = self.room[..n].windows(4).position(|four| four == b"\r\n\r\n") {
            sockets.tcp_recv(id, &mut self.room[..end + 4]).expect("it was looked at");
            sockets.tcp_send(id, b"HTTP/1.1 200 OK\r\n\r\n").expect("there is room");
        }
        // As the service charges: a unit, and one for each kilobyte.
        1 + n.div_ceil(1024) as u32
    }
}

impl Application for Rescanning {
    fn name(&self) -> &str {
        "rescanning"
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 8080);
        let owner = sockets.tcp_owner()?;
        let listener = sockets.tcp_listen(any, &TcpSettings::default(), 64, owner)?;
        self.open = Some((listener, owner));
        Ok(())
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, _: Units) -> Units {
        let (listener, owner) = self.open.expect("it was started");
        let mut spent = 0;
        while let Ok(Some(id)) = sockets.tcp_accept(listener) {
            spent += self.serve(sockets, id);
        }
        while let Some((id, _)) = sockets.tcp_event(owner) {
            spent += self.serve(sockets, id);
        }
        Units(spent)
    }
}

#[test]
fn a_head_that_comes_byte_by_byte_costs_the_same_for_each_byte() {
    for family in FAMILIES {
        let mut service = StreamService::new(StreamKind::Http, 8080);
        let dearest = dearest_byte(family, &mut service);
        assert!(dearest <= 4, "{family:?}: {dearest} units for a byte");
    }
}

#[test]
fn a_service_that_looks_at_a_head_from_its_beginning_pays_for_all_of_it_with_each_byte() {
    for family in FAMILIES {
        let mut service = Rescanning { open: None, room: vec![0; 16_384] };
        let dearest = dearest_byte(family, &mut service);
        assert!(dearest >= 8, "{family:?}: {dearest} units for a byte");
    }
}

#[test]
fn what_one_sends_to_be_echoed_leaves_a_part_of_the_turn_to_others() {
    for family in FAMILIES {
        let mut peer = TcpPeer::new(family, &TcpSettings::default());
        peer.ports.0 = 7777;
        let mut service = TcpService::new(ServiceKind::Discard, 7777);
        peer.sockets(|s| service.start(s)).0.expect("a service");
        let mut clients: Vec<_> = (0..12).map(|n| Client::open(&mut peer, 5000 + n)).collect();
        for client in &mut clients {
            for _ in 0..10 {
                client.say(&mut peer, &[7; 1400]);
            }
        }
        // 14 units each, and one for the look that finds nothing more: not all in one turn.
        let (first, _) = turn(&mut peer, &mut service);
        let (second, _) = turn(&mut peer, &mut service);
        assert!(first >= TURN && second > 0, "{family:?}: {first} and {second} units");
        let (third, _) = turn(&mut peer, &mut service);
        assert!(first + second + third >= 12 * 14, "{family:?}: {first}, {second}, {third}");
    }
}

/// Clients with a page each, which is more than a few segments.
const READERS: usize = 8;
const PAGE: &[u8] = b"GET /bytes/8000 HTTP/1.1\r\n\r\n";

/// Segments with text of each reader, call by call until nothing is left, where a call may send so
/// many.
fn segments_by_call(family: Family, room: usize) -> Vec<[usize; READERS]> {
    let mut peer = TcpPeer::new(family, &TcpSettings::default());
    peer.ports.0 = 8080;
    let mut service = StreamService::new(StreamKind::Http, 8080);
    peer.sockets(|s| service.start(s)).0.expect("a service");
    let mut clients: Vec<_> =
        (0..READERS as u16).map(|n| Client::open(&mut peer, 5000 + n)).collect();
    // They are accepted before they ask: requests are acknowledged before they are answered.
    peer.sockets(|s| service.run(s, Units(10_000)));
    clients.iter_mut().for_each(|client| client.say(&mut peer, PAGE));
    peer.wait(Duration::ZERO);
    let mut calls = Vec::new();
    let mut note = |sent: &[Segment]| {
        let mut call = [0; READERS];
        for segment in sent.iter().filter(|it| it.len > 0) {
            call[usize::from(segment.ports.1 - 5000)] += 1;
        }
        calls.push(call);
    };
    peer.rig.stack.set_tx_room(room);
    let (_, sent) = peer.sockets(|s| service.run(s, Units(10_000)));
    note(&sent);
    let owes = |peer: &TcpPeer| peer.rig.stack.deadline() == Some(Instant::ORIGIN);
    while owes(&peer) {
        peer.rig.stack.set_tx_room(0);
        assert!(!owes(&peer), "{family:?}: without room it has nothing to do");
        peer.rig.stack.set_tx_room(room);
        let (_, sent) = peer.rig.round(Vec::new(), |stack, round| stack.work(round));
        note(&peer.read(&sent));
    }
    calls
}

/// A call in which many segments could leave ends with those that there is room for. The rest
/// leaves in later calls, and no connection has to wait for all of another's.
#[test]
fn what_there_is_no_room_to_send_leaves_in_the_next_calls_in_turn() {
    const ROOM: usize = 20;
    for family in FAMILIES {
        // Without a bound all leave at once.
        let at_once = segments_by_call(family, usize::MAX);
        let [all] = at_once.as_slice() else { panic!("{family:?}: {at_once:?}") };
        assert!(all.iter().sum::<usize>() > 2 * ROOM, "{family:?}: {all:?}");
        let calls = segments_by_call(family, ROOM);
        let sums: Vec<usize> = calls.iter().map(|call| call.iter().sum()).collect();
        let (last, full) = sums.split_last().expect("calls");
        assert!(full.len() > 1 && full.iter().all(|sum| *sum == ROOM), "{family:?}: {calls:?}");
        assert!((1..=ROOM).contains(last), "{family:?}: {calls:?}");
        let of = |n: usize| calls.iter().map(|call| call[n]).sum::<usize>();
        assert!((0..READERS).all(|n| of(n) == all[n]), "{family:?}: {calls:?}");
    }
}
