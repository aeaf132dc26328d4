//! Slow loris: thousands of peers that connect to a service and send nothing, or begin a request
//! that they never end. Newcomers are served, and so are active peers.

use std::time::Duration;

use floodwall_base::{Counter, Family, Units};
use floodwall_services::{ServiceKind, StreamKind, StreamService, TcpService};
use floodwall_stack::Application;
use floodwall_tcp::TcpSettings;
use floodwall_tests::craft::FAMILIES;
use floodwall_tests::tcp_peer::{TcpPeer, put};
use floodwall_wire::tcp::TcpFlags;

const A: TcpFlags = TcpFlags::ACK;
/// More than the host has places.
const SILENT: u16 = 6000;

/// A service of the host, at a port beside the peer's usual one.
fn serve(peer: &mut TcpPeer, mut service: Box<dyn Application>) -> Box<dyn Application> {
    peer.sockets(|s| service.start(s)).0.expect("a service");
    service
}

/// A connection of the peer, and what has been said on it.
struct Talk {
    port: u16,
    iss: u32,
    said: u32,
    heard: u32,
}

impl Talk {
    /// Opens one; `None` where the host has no place.
    fn open(peer: &mut TcpPeer, service: &mut dyn Application, port: u16) -> Option<Self> {
        peer.ports.1 = port;
        let answers = peer.give(&put(TcpFlags::SYN, 0, 0));
        let iss = answers.iter().find(|it| it.ports.1 == port)?.seq;
        peer.iss = iss;
        peer.give(&put(A, 1, 1));
        peer.sockets(|s| service.run(s, Units(64)));
        Some(Self { port, iss, said: 1, heard: 1 })
    }

    /// Sends something, and acknowledges all of the answer; returns its length.
    fn say(&mut self, peer: &mut TcpPeer, service: &mut dyn Application, says: &[u8]) -> u32 {
        (peer.ports.1, peer.iss) = (self.port, self.iss);
        peer.give(&put(A, self.said, self.heard).data(says));
        self.said += says.len() as u32;
        let (_, answers) = peer.sockets(|s| service.run(s, Units(64)));
        let ours = answers.iter().filter(|it| it.ports.1 == self.port);
        let len = ours.map(|it| it.len as u32).sum();
        self.heard += len;
        peer.give(&put(A, self.said, self.heard));
        len
    }
}

fn flood(family: Family, port: u16, service: Box<dyn Application>, begun: &[u8], whole: &[u8]) {
    let what = format!("{family:?} {port}");
    let mut peer = TcpPeer::new(family, &TcpSettings::default());
    peer.ports.0 = port;
    let mut service = serve(&mut peer, service);
    let mut talker = Talk::open(&mut peer, &mut *service, 5000).expect("a place");
    for n in 0..SILENT {
        let silent = Talk::open(&mut peer, &mut *service, 10_000 + n);
        if let Some(mut silent) = silent.filter(|_| !begun.is_empty()) {
            silent.say(&mut peer, &mut *service, begun);
        }
        peer.wait(Duration::from_millis(1));
        if n % 100 == 0 {
            let newcomer = Talk::open(&mut peer, &mut *service, 50_000 + n);
            let mut newcomer = newcomer.expect("a place");
            assert!(newcomer.say(&mut peer, &mut *service, whole) > 0, "{what} after {n}");
            assert!(talker.say(&mut peer, &mut *service, whole) > 0, "{what} after {n}");
        }
    }
    let (used, most) = peer.set(|tcp| (tcp.len(), tcp.places_max()));
    assert!(used < most && used > most / 2, "{used} of {most}, {what}");
    // Each of the silent is there, or was reset and counted; of the others none was.
    let resets = peer.rig.stats().counters.of(Counter::TcpEstabResets);
    let newcomers = u64::from(SILENT / 100);
    let gone = (u64::from(SILENT) + newcomers + 1).saturating_sub(used as u64);
    assert!(resets <= gone && resets + newcomers >= gone, "{resets} of {gone}, {what}");
}

#[test]
fn requests_that_never_end_take_no_newcomers_place() {
    for family in FAMILIES {
        let service = Box::new(StreamService::new(StreamKind::Http, 8080));
        flood(family, 8080, service, b"GET / HTTP/1.1\r\nHost: a", b"GET / HTTP/1.1\r\n\r\n");
    }
}

#[test]
fn silence_takes_no_newcomers_place() {
    for family in FAMILIES {
        let service = Box::new(TcpService::new(ServiceKind::Echo, 7777));
        flood(family, 7777, service, b"", b"a line");
        let service = Box::new(StreamService::new(StreamKind::Http, 8080));
        flood(family, 8080, service, b"", b"GET / HTTP/1.1\r\n\r\n");
    }
}
