//! Chunks of acknowledged data: how many one moment frees, and that all are freed soon.

use core::time::Duration;

use floodwall_base::limits::TCP_CHUNKS_FREED_MAX;
use floodwall_base::{Instant, Units};
use floodwall_packet::PacketList;
use floodwall_wire::tcp_options::TcpOptionSet;

use super::peer::{A, F, PEER_PORT, Peer, Put, R, put};
use crate::{ConnectionId, ListenerId, TcpSettings, TcpState};

/// Bytes of a chunk.
const CHUNK: usize = 38;
/// Chunks that are written to each connection: what a first window takes is more than a moment
/// frees.
const CHUNKS: usize = 300;
/// Segments that whole chunks fill.
const MSS: TcpOptionSet = TcpOptionSet { mss: Some(1368), ..TcpOptionSet::NONE };

/// A connection of the peer's port with that number.
#[derive(Clone, Copy)]
struct Sender {
    id: ConnectionId,
    peer_port: u16,
    iss: u32,
}

/// The text of all chunks.
fn text() -> Vec<u8> {
    (0..CHUNKS * CHUNK).map(|n| (n % 251) as u8).collect()
}

impl Sender {
    fn open(peer: &mut Peer, listener: ListenerId, number: u16) -> Self {
        peer.peer_port = PEER_PORT + number;
        let id = peer.handshake(listener, MSS);
        Self { id, peer_port: peer.peer_port, iss: peer.iss }
    }

    /// What the program wrote in small chunks; returns the number of bytes that left.
    fn write(self, peer: &mut Peer) -> u32 {
        (peer.peer_port, peer.iss) = (self.peer_port, self.iss);
        let mut chunks = PacketList::new();
        for piece in text().chunks(CHUNK) {
            chunks.push_back(peer.host.pool.packet_from(piece).unwrap());
        }
        let out = peer.with(|tcp, now| tcp.send_chunks(self.id, &mut chunks, now).unwrap());
        out.iter().map(|segment| segment.data.len() as u32).sum()
    }

    /// The peer says this; true bytes that are freed by it.
    fn frees(self, peer: &mut Peer, put: Put<'_>) -> u64 {
        (peer.peer_port, peer.iss) = (self.peer_port, self.iss);
        let before = peer.host.tcp.memory_held();
        peer.give(put);
        before - peer.host.tcp.memory_held()
    }
}

/// So many connections of a peer, with all their text on its way.
fn senders(v6: bool, count: u16) -> (Peer, Vec<Sender>) {
    let mut peer = Peer::new(v6);
    let listener = peer.listen(&TcpSettings::default(), 16);
    let all: Vec<_> = (0..count).map(|number| Sender::open(&mut peer, listener, number)).collect();
    for sender in &all {
        assert_eq!(sender.write(&mut peer) as usize, CHUNKS * CHUNK, "the window takes all");
    }
    (peer, all)
}

/// Of so many units, how many a call of timed work spends.
fn work(peer: &mut Peer, now: Instant, units: u32) -> u32 {
    peer.now = now;
    let (tcp, mut lend) = peer.host.lend(now);
    tcp.work(&mut lend, Units(units), &mut |_| {}).0
}

#[test]
fn acknowledgments_of_one_moment_free_a_bounded_number_of_chunks_of_all_connections() {
    for v6 in [false, true] {
        let (mut peer, all) = senders(v6, 4);
        let held = peer.host.tcp.memory_held();
        let each = held / (all.len() * CHUNKS) as u64;
        let everything = put(A, 1, 1 + (CHUNKS * CHUNK) as u32);
        let freed = all.iter().map(|it| it.frees(&mut peer, everything.clone())).sum::<u64>();
        assert_eq!(freed, u64::from(TCP_CHUNKS_FREED_MAX) * each, "{v6}");
        // Timed work frees the rest at its price, which ends each call.
        let (mut spent, mut at, mut left) = (0, peer.now, peer.host.tcp.memory_held());
        for _ in 0..200 {
            at += Duration::from_millis(1);
            let units = work(&mut peer, at, 16);
            let freed = (left - peer.host.tcp.memory_held()) / each;
            // The last connection may hold more than is left.
            assert!(freed <= 16 * 16 + 128, "{freed} chunks in {units} of 16 units");
            (spent, left) = (spent + units, left - freed * each);
        }
        assert_eq!(left, 0, "{v6}: all memory is back");
        let rest = (all.len() * CHUNKS) as u32 - TCP_CHUNKS_FREED_MAX;
        assert!(spent >= rest / 16, "{spent} units for {rest} chunks");
        for sender in all {
            let connection = peer.host.tcp.named(sender.id).unwrap();
            assert_eq!((connection.snd.held(), connection.snd.outstanding()), (0, 0));
            assert_eq!(peer.host.tcp.unacknowledged(sender.id), Ok(0));
        }
    }
}

#[test]
fn a_program_gets_room_once_what_is_acknowledged_is_freed_without_another_segment() {
    for v6 in [false, true] {
        let (mut peer, all) = senders(v6, 1);
        while peer.host.tcp.next_event(0).is_some() {}
        all[0].frees(&mut peer, put(A, 1, 1 + (CHUNKS * CHUNK) as u32));
        assert!(peer.host.tcp.memory_held() > 0 && peer.host.tcp.next_event(0).is_none());
        assert!(peer.wait(Duration::from_millis(5)).is_empty());
        let (id, events) = peer.host.tcp.next_event(0).unwrap();
        assert_eq!(id, all[0].id);
        assert!(!events.is_empty() && peer.host.tcp.memory_held() == 0, "{v6}");
    }
}

#[test]
fn what_is_sent_again_lies_behind_what_is_not_freed_yet() {
    for v6 in [false, true] {
        let (mut peer, all) = senders(v6, 2);
        // The budget of the moment is gone; another moment's work has not come.
        all[0].frees(&mut peer, put(A, 1, 1 + (CHUNKS * CHUNK) as u32));
        let from = (CHUNKS - 20) * CHUNK + 7;
        assert_eq!(all[1].frees(&mut peer, put(A, 1, 1 + from as u32)), 0, "{v6}");
        let connection = peer.host.tcp.named(all[1].id).unwrap();
        assert_eq!(connection.snd.outstanding() as usize, CHUNKS * CHUNK - from);
        let first = peer.ours(1 + from as u32);
        let pool = &peer.host.pool;
        let again = connection.snd.again(connection.snd.una, 500, pool).unwrap();
        let again: Vec<u8> = again.chunks().flatten().copied().collect();
        assert_eq!(again, text()[from..from + again.len()], "{v6}");
        let out = peer.wait(Duration::from_secs(2));
        let lost = out.iter().find(|segment| segment.seq == first).unwrap();
        assert_eq!(lost.data, text()[from..from + lost.data.len()], "{v6}");
    }
}

#[test]
fn a_connection_that_ends_with_chunks_that_are_not_freed_gives_all_memory_back() {
    for v6 in [false, true] {
        for is_reset in [false, true] {
            let (mut peer, all) = senders(v6, 1);
            let end = (CHUNKS * CHUNK) as u32;
            assert!(peer.shutdown(all[0].id)[0].flags.contains(F));
            all[0].frees(&mut peer, put(A, 1, 1 + end + 1));
            assert!(peer.host.tcp.memory_held() > 0);
            assert_eq!(peer.state(all[0].id), TcpState::FinWait2, "{v6}");
            match is_reset {
                true => _ = peer.give(put(R, 1, 0)),
                false => _ = peer.wait(Duration::from_millis(5)),
            }
            assert_eq!(peer.host.tcp.memory_held(), 0, "{v6} {is_reset}");
        }
    }
}

#[test]
fn connections_that_end_at_one_moment_free_a_bounded_number_of_chunks() {
    for v6 in [false, true] {
        let (mut peer, all) = senders(v6, 4);
        let free = |peer: &Peer| peer.host.pool.available().small;
        let before = free(&peer);
        for (sender, is_ours) in all.iter().zip([false, true, false, true]) {
            (peer.peer_port, peer.iss) = (sender.peer_port, sender.iss);
            match is_ours {
                false => _ = peer.give(put(R, 1, 0)),
                true => {
                    let now = peer.now;
                    let (tcp, lend) = peer.host.lend(now);
                    tcp.abort(&lend, sender.id).unwrap();
                    peer.with(|_, _| ());
                }
            }
        }
        assert_eq!(peer.host.tcp.memory_held(), 0, "{v6}: it is no connection's any more");
        let freed = free(&peer) - before;
        assert!((1..=TCP_CHUNKS_FREED_MAX as usize).contains(&freed), "{v6}: {freed} chunks");
        // Timed work, which is due at once, frees the rest at its price.
        let mut calls = 0;
        while peer.host.tcp.deadline().is_some_and(|at| at <= peer.now) {
            let (now, had) = (peer.now, free(&peer));
            let units = work(&mut peer, now, 16);
            let freed = free(&peer) - had;
            assert!(freed <= 8 * 16 && freed <= 16 * units as usize, "{freed} for {units}");
            calls += 1;
        }
        assert_eq!(free(&peer) - before, all.len() * CHUNKS, "{v6}");
        assert!(calls >= (all.len() * CHUNKS - TCP_CHUNKS_FREED_MAX as usize) / (8 * 16));
    }
}
