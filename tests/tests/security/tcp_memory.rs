//! Slow read: hundreds of connections with peers that read nothing, or that send to programs that
//! do not read. What they hold is bounded together, and all other packets, handshakes and bytes go
//! on.

use std::time::Duration;

use floodwall_base::{Counter, DropReason, Family};
use floodwall_tcp::{ConnectionId, TcpSettings};
use floodwall_tests::craft::FAMILIES;
use floodwall_tests::tcp_peer::{Segment, TcpPeer, put};
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::TcpOptionSet;

const S: TcpFlags = TcpFlags::SYN;
const A: TcpFlags = TcpFlags::ACK;
const R: TcpFlags = TcpFlags::RST;
const HOGS: u16 = 400;

/// How a peer holds the host's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hog {
    /// It sends what no program reads.
    Sends,
    /// It requests much and acknowledges nothing.
    ReadsNothing,
    /// It requests a byte at a time, which leaves at once, and acknowledges none.
    ReadsNoByte,
}

/// A connection from this port; a connection reset meanwhile is another.
pub(crate) fn open(peer: &mut TcpPeer, port: u16) -> ConnectionId {
    peer.ports.1 = port;
    let options = TcpOptionSet { mss: Some(1400), window_scale: Some(7), ..TcpOptionSet::NONE };
    let answers = peer.give(&put(S, 0, 0).options(options));
    let answer = answers.iter().find(|it| it.ports.1 == port).expect("a SYN-ACK");
    assert!(answer.flags.contains(S | A), "{answer:?}");
    peer.iss = answer.seq;
    peer.give(&put(A, 1, 1));
    let listener = peer.listener;
    peer.sockets(|s| s.tcp_accept(listener)).0.expect("it listens").expect("it is open")
}

pub(crate) fn hold(peer: &mut TcpPeer, id: ConnectionId, hog: Hog) {
    match hog {
        Hog::Sends => {
            for n in 0..190 {
                peer.give(&put(A, 1 + n * 1400, 1).data(&[b'x'; 1400]));
            }
        }
        Hog::ReadsNothing => while peer.sockets(|s| s.tcp_send(id, &[b'y'; 16_000])).0.is_ok() {},
        Hog::ReadsNoByte => {
            for _ in 0..1000 {
                if peer.sockets(|s| s.tcp_send(id, b"y")).0.is_err() {
                    break;
                }
            }
        }
    }
}

/// A short question and its answer.
pub(crate) fn exchange(peer: &mut TcpPeer, port: u16) {
    let id = open(peer, port);
    peer.give(&put(A, 1, 1).data(&[b'q'; 700]));
    assert_eq!(peer.received(id).len(), 700, "port {port}");
    let (taken, sent) = peer.sockets(|s| s.tcp_send(id, &[b'a'; 2000]));
    let of_it = |it: &&Segment| it.ports.1 == port && !it.flags.contains(R);
    let bytes: usize = sent.iter().filter(of_it).map(|it| it.len).sum();
    assert_eq!((taken, bytes), (Ok(2000), 2000), "port {port}");
    peer.give(&put(A, 701, 2001));
    peer.sockets(|s| s.tcp_abort(id)).0.expect("it is open");
}

fn flood(family: Family, hog: Hog) {
    let mut peer = TcpPeer::new(family, &TcpSettings { nodelay: true, ..TcpSettings::default() });
    let all = peer.rig.pool.available();
    let mut dropped = 0;
    for n in 0..HOGS {
        let id = open(&mut peer, 10_000 + n);
        hold(&mut peer, id, hog);
        peer.wait(Duration::from_millis(5));
        if n % 10 == 9 {
            exchange(&mut peer, 30_000 + n);
        }
        let free = peer.rig.pool.available();
        let what = format!("{free:?} of {all:?}, {family:?} {hog:?} {n}");
        assert!(free.frames > all.frames / 3 && free.references > all.references / 5, "{what}");
        dropped = peer.rig.stats().drops_in.of(DropReason::TcpReceiveFull);
    }
    let held = peer.set(|tcp| tcp.memory_held());
    // Beside each other only they are ended at the bound, an eighth above the limit.
    let limit = peer.rig.pool.frames_true_bytes() / 2;
    assert!(held <= limit + limit / 8 + 16 * 2176, "{held}");
    let aborted = peer.rig.stats().counters.of(Counter::TcpExtTCPAbortOnMemory);
    assert!((1..u64::from(HOGS)).contains(&aborted), "{aborted} ended, {dropped} refused");
    // A closed connection frees everything.
    peer.wait(Duration::from_secs(1000));
}

#[test]
fn peers_that_read_nothing_leave_memory_to_others() {
    FAMILIES.into_iter().for_each(|family| flood(family, Hog::ReadsNothing));
}

/// Each byte that was sent by itself keeps memory, and no reference that others need.
#[test]
fn peers_that_acknowledge_no_single_byte_leave_memory_to_others() {
    FAMILIES.into_iter().for_each(|family| flood(family, Hog::ReadsNoByte));
}

#[test]
fn peers_that_nothing_reads_leave_memory_to_others() {
    FAMILIES.into_iter().for_each(|family| flood(family, Hog::Sends));
}

#[test]
fn a_connection_that_moves_on_is_not_ended_for_those_that_stand_still() {
    for family in FAMILIES {
        let mut peer =
            TcpPeer::new(family, &TcpSettings { nodelay: true, ..TcpSettings::default() });
        let honest = open(&mut peer, 9000);
        let (iss, mut sent, mut got) = (peer.iss, 1, 0);
        for n in 0..HOGS {
            let id = open(&mut peer, 10_000 + n);
            hold(&mut peer, id, Hog::Sends);
            peer.wait(Duration::from_millis(5));
            (peer.ports.1, peer.iss) = (9000, iss);
            peer.give(&put(A, sent, 1).data(&[b'q'; 1000]));
            let bytes = peer.received(honest).len();
            assert_eq!(bytes, 1000, "{family:?} after {n}");
            (sent, got) = (sent + 1000, got + bytes);
        }
        assert_eq!(got, 1000 * usize::from(HOGS));
        assert!(peer.rig.stats().counters.of(Counter::TcpExtTCPAbortOnMemory) > 0);
    }
}
