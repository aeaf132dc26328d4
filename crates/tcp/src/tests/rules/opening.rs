//! How connections begin: RFC 9293 sections 3.5 and 3.10.7.1 to 3.10.7.3.

use core::time::Duration;

use floodwall_base::{DropReason, Seq};
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::{TcpOptionSet, Timestamps};

use crate::tests::cable::small;
use crate::tests::peer::{A, F, Peer, Put, R, S, put};
use crate::{ConnectionError, ListenError, OpenError, RecvError, TcpConfig, TcpSettings, TcpState};

#[test]
fn an_idle_connection_takes_no_more_than_its_bound() {
    let bytes = crate::ConnectionTable::<floodwall_syncache::SynCache>::connection_bytes();
    assert!(bytes <= 512, "{bytes}");
}

#[test]
fn a_port_where_nothing_listens_answers_with_a_reset_and_never_to_one() {
    for v6 in [false, true] {
        let mut peer = Peer::new(v6);
        let answer = peer.give(put(S, 0, 0).data(b"abc"));
        assert_eq!(peer.dropped, Some(DropReason::TcpNoConnection));
        let [reset] = &answer[..] else { panic!("{answer:?}") };
        assert_eq!((reset.flags, reset.seq, reset.ack), (R | A, 0, peer.theirs(4)));
        let answer = peer.give(put(A, 7, 9));
        assert_eq!((answer[0].flags, answer[0].seq), (R, peer.ours(9)));
        assert!(peer.give(put(R, 0, 0)).is_empty() && peer.give(put(R | A, 0, 5)).is_empty());
    }
}

#[test]
fn of_all_flags_only_a_syn_begins_anything_and_none_makes_a_connection() {
    // Row 5.
    for listens in [false, true] {
        let mut peer = Peer::new(true);
        if listens {
            peer.listen(&TcpSettings::default(), 4);
        }
        for flags in 0..=255_u8 {
            peer.peer_port += 1;
            for out in peer.give(put(TcpFlags(flags), 3, 9).data(b"x")) {
                let is_syn = listens && flags & 0x17 == S.0;
                assert_eq!(out.flags.contains(S), is_syn, "{flags:#x}: {out:?}");
                assert!(out.flags.contains(R) != is_syn);
            }
        }
        assert!(peer.host.tcp.is_empty());
    }
}

#[test]
fn segments_of_port_zero_are_dropped() {
    // RFC 6335 section 6 reserves it: no program can be meant, nor have sent it.
    for v6 in [false, true] {
        let mut peer = Peer::new(v6);
        peer.listen(&TcpSettings::default(), 4);
        let mut to_zero = peer.bytes(&put(S, 0, 0));
        // The sum stays: what the port loses, the urgent pointer gains.
        let port = [to_zero[2], to_zero[3]];
        to_zero[2..4].copy_from_slice(&[0, 0]);
        to_zero[18..20].copy_from_slice(&port);
        assert!(peer.give_bytes(&to_zero).is_empty());
        assert_eq!(peer.dropped, Some(DropReason::TcpMalformed));
        peer.peer_port = 0;
        assert!(peer.give(put(S, 0, 0)).is_empty());
        assert_eq!(peer.dropped, Some(DropReason::TcpMalformed));
    }
}

#[test]
fn a_segment_of_ourselves_or_to_a_group_is_dropped_in_silence() {
    // Row 7: land (CVE-1999-0016).
    let mut peer = Peer::new(false);
    peer.listen(&TcpSettings::default(), 4);
    let bytes = peer.bytes(&put(S, 0, 0));
    let now = peer.now;
    let addr = peer.host.addrs[0];
    for (group, src_addr, same) in [(true, "10.0.0.9".parse().unwrap(), false), (false, addr, true)]
    {
        let (tcp, mut lend) = peer.host.lend(now);
        let mut bytes = bytes.clone();
        if same {
            bytes[0..2].copy_from_slice(&80_u16.to_be_bytes());
        }
        let packet = lend.pool.packet_from(&bytes).unwrap();
        let input = crate::SegmentInput {
            src_addr,
            dst_addr: addr,
            iface: floodwall_base::IfIndex(1),
            l4: 0,
            len: bytes.len(),
            mtu: 1500,
            group,
            congestion: false,
        };
        let verdict = tcp.input(&mut lend, &input, packet, &mut Default::default());
        assert!(matches!(verdict, crate::SegmentVerdict::Dropped(DropReason::TcpMalformed)));
    }
}

#[test]
fn a_full_accept_queue_delays_a_client_and_loses_nothing_of_it() {
    // Row 9.
    let mut peer = Peer::new(false);
    let listener = peer.listen(&TcpSettings::default(), 1);
    let answer = peer.give(put(S, 0, 0)).remove(0);
    peer.iss = answer.seq;
    assert!(peer.give(put(A, 1, 1)).is_empty());
    peer.peer_port += 1;
    let answer = peer.give(put(S, 0, 0)).remove(0);
    peer.iss = answer.seq;
    assert!(peer.give(put(A, 1, 1).data(b"hello")).is_empty());
    assert_eq!(peer.dropped, Some(DropReason::TcpHandshakeRefused));
    assert_eq!(peer.host.tcp.len(), 1);
    assert!(peer.host.tcp.accept(listener).unwrap().is_some());
    // The client sends again, and is accepted.
    peer.give(put(A, 1, 1).data(b"hello"));
    let id = peer.host.tcp.accept(listener).unwrap().unwrap();
    assert_eq!(peer.read(id, 9).0, Ok(b"hello".to_vec()));
}

#[test]
fn both_sides_may_open_at_once() {
    // RFC 9293 section 3.5, figure 7.
    for v6 in [false, true] {
        let mut peer = Peer::new(v6);
        let id = peer.connect(&TcpSettings::default());
        let answer = peer.give(put(S, 0, 0));
        assert_eq!((answer[0].flags, answer[0].seq), (S | A, peer.ours(0)));
        assert_eq!(answer[0].ack, peer.theirs(1));
        assert_eq!(peer.state(id), TcpState::SynReceived);
        // The peer's SYN-ACK repeats its SYN.
        peer.give(put(S | A, 0, 1));
        assert_eq!(peer.state(id), TcpState::Established);
        peer.give(put(A, 1, 1).data(b"hi"));
        assert_eq!(peer.read(id, 9).0, Ok(b"hi".to_vec()));
    }
}

#[test]
fn a_reset_ends_a_half_open_connection_as_it_was_opened() {
    // RFC 9293 section 3.10.7.4, second check: one of ours is refused, and of one that the peer
    // opened no program hears anything.
    for v6 in [false, true] {
        let mut peer = Peer::new(v6);
        let id = peer.connect(&TcpSettings::default());
        peer.give(put(S, 0, 0));
        assert_eq!(peer.state(id), TcpState::SynReceived);
        assert!(peer.give(put(R, 1, 0)).is_empty());
        assert_eq!(peer.read(id, 9).0, Err(RecvError::Connection(ConnectionError::Refused)));
        let mut peer = Peer::new(v6);
        let listener = peer.listen(&TcpSettings::default(), 4);
        peer.iss = peer.give(put(S, 0, 0)).remove(0).seq;
        assert!(peer.give(put(R, 1, 0)).is_empty());
        assert_eq!(peer.give(put(A, 1, 1))[0].flags, R, "it is forgotten");
        assert_eq!(peer.host.tcp.accept(listener), Ok(None));
        // The listener goes on.
        peer.iss = peer.give(put(S, 0, 0)).remove(0).seq;
        peer.give(put(A, 1, 1));
        assert!(peer.host.tcp.accept(listener).unwrap().is_some());
    }
}

#[test]
fn a_listener_at_one_address_hears_no_other() {
    let others = ["10.0.0.77", "fd00::77"];
    for v6 in [false, true] {
        let mut peer = Peer::new(v6);
        let ours = peer.host.addrs[usize::from(v6)];
        let other = others[usize::from(v6)].parse().unwrap();
        let listen = |peer: &mut Peer, addr: core::net::IpAddr| {
            let at = core::net::SocketAddr::new(addr, crate::tests::peer::PORT);
            let zone = floodwall_base::IfIndex::default();
            peer.host.tcp.listen(at, zone, 1500, &TcpSettings::default(), 4, 0).unwrap()
        };
        listen(&mut peer, other);
        assert_eq!(peer.give(put(S, 0, 0))[0].flags, R | A);
        let listener = listen(&mut peer, ours);
        peer.iss = peer.give(put(S, 0, 0)).remove(0).seq;
        peer.give(put(A, 1, 1));
        assert!(peer.host.tcp.accept(listener).unwrap().is_some());
    }
}

#[test]
fn an_answer_that_acknowledges_another_syn_is_reset_and_ours_goes_on() {
    // RFC 9293 section 3.10.7.3, first check; section 3.5.1.
    let mut peer = Peer::new(false);
    let id = peer.connect(&TcpSettings::default());
    for ack in [0, 2, 1 << 31] {
        let answer = peer.give(put(S | A, 0, ack));
        assert_eq!((answer[0].flags, answer[0].seq), (R, peer.ours(ack)));
        assert_eq!(peer.dropped, Some(DropReason::TcpAckInvalid));
        assert!(peer.give(put(R | A, 0, ack)).is_empty());
    }
    assert_eq!(peer.state(id), TcpState::SynSent);
    assert!(peer.give(put(S | A, 0, 1))[0].flags == A);
    assert_eq!(peer.state(id), TcpState::Established);
}

#[test]
fn a_refused_connection_says_so_and_a_reset_without_acknowledgment_is_ignored() {
    let mut peer = Peer::new(false);
    let id = peer.connect(&TcpSettings::default());
    peer.give(put(R, 0, 0));
    peer.give(put(F | A, 0, 1));
    assert_eq!(peer.state(id), TcpState::SynSent);
    peer.give(put(R | A, 0, 1));
    assert_eq!(peer.read(id, 9).0, Err(RecvError::Connection(ConnectionError::Refused)));
    assert_eq!(ConnectionError::Refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn an_unanswered_syn_is_sent_again_ever_later_for_three_minutes() {
    // RFC 9293 section 3.8.3: at least three minutes.
    let mut peer = Peer::new(true);
    let id = peer.connect(&TcpSettings::default());
    let again = peer.wait(Duration::from_secs(170));
    assert!(again.iter().all(|out| out.flags == S && out.seq == peer.iss));
    assert!((6..=8).contains(&again.len()), "{}", again.len());
    assert_eq!(peer.state(id), TcpState::SynSent);
    peer.wait(Duration::from_secs(200));
    assert_eq!(peer.read(id, 9).0, Err(RecvError::Connection(ConnectionError::TimedOut)));
    let now = peer.now;
    let (tcp, lend) = peer.host.lend(now);
    tcp.close(&lend, id).unwrap();
    assert!(peer.host.tcp.is_empty());
}

#[test]
fn how_long_and_how_often_a_syn_is_tried_can_be_set() {
    // RFC 1122 section 4.2.3.5: TCP_SYNCNT, and FreeBSD's TCP_KEEPINIT.
    let second = Duration::from_secs(1);
    for v6 in [false, true] {
        for retries in [0, 1, 3] {
            let mut peer = Peer::new(v6);
            let settings = TcpSettings { syn_retries: Some(retries), ..TcpSettings::default() };
            let id = peer.connect(&settings);
            assert_eq!(peer.wait(170 * second).len(), usize::from(retries));
            let error = RecvError::Connection(ConnectionError::TimedOut);
            assert_eq!(peer.read(id, 9).0, Err(error));
        }
        let mut peer = Peer::new(v6);
        let settings = TcpSettings { open_timeout: Some(5 * second), ..TcpSettings::default() };
        let id = peer.connect(&settings);
        assert_eq!(peer.wait(4 * second).len(), 2);
        assert_eq!(peer.state(id), TcpState::SynSent);
        peer.wait(2 * second);
        assert_eq!(peer.read(id, 9).0, Err(RecvError::Connection(ConnectionError::TimedOut)));
        // It bounds the handshake only.
        let (mut peer, id) = Peer::accepted(v6, &settings, TcpOptionSet::NONE);
        peer.write(id, b"x");
        peer.wait(60 * second);
        assert_eq!(peer.state(id), TcpState::Established);
    }
}

#[test]
fn a_segment_size_can_be_asked_for() {
    // TCP_MAXSEG: announced by both sides of the handshake, and obeyed.
    for (v6, asked, size) in
        [(false, 1000, 1000), (true, 700, 700), (false, 9000, 1460), (true, 9, 88)]
    {
        let settings =
            TcpSettings { mss: Some(asked), timestamps: false, ..TcpSettings::default() };
        let mut peer = Peer::new(v6);
        let listener = peer.listen(&settings, 4);
        let large = TcpOptionSet { mss: Some(9000), ..TcpOptionSet::NONE };
        let syn = Put { options: large, ..put(S, 0, 0) };
        assert_eq!(peer.give(syn)[0].options.mss, Some(size));
        peer.peer_port += 1;
        let id = peer.handshake(listener, large);
        assert_eq!(peer.write(id, &[1; 4000])[0].data.len(), usize::from(size));
        let mut peer = Peer::new(v6);
        assert_eq!(peer.connect_saying(&settings).1.options.mss, Some(size));
    }
}

#[test]
fn a_peers_segment_size_is_kept_to_but_never_below_the_floor() {
    // RFC 9293 section 3.7.1 (MUST-15: defaults 536 and 1220); row 18.
    let data = [1; 4000];
    for (v6, mss, expected) in [
        (false, None, 536),
        (true, None, 1220),
        (false, Some(1000), 1000),
        (false, Some(9000), 1460),
        (true, Some(9000), 1440),
        (false, Some(0), 88),
        (true, Some(1), 88),
    ] {
        let options = TcpOptionSet { mss, ..TcpOptionSet::NONE };
        let (mut peer, id) = Peer::accepted(v6, &TcpSettings::default(), options);
        assert_eq!(peer.write(id, &data)[0].data.len(), expected, "{mss:?}");
        let (mut peer, id) = Peer::connected(v6, &TcpSettings::default(), options);
        assert_eq!(peer.write(id, &data)[0].data.len(), expected, "{mss:?}");
    }
}

#[test]
fn a_window_scale_above_14_counts_as_14_and_is_used_both_ways_or_not_at_all() {
    // RFC 7323 sections 2.2 and 2.3; row 32.
    let settings = TcpSettings { receive_bytes: 1 << 20, ..TcpSettings::default() };
    for window_scale in [None, Some(0), Some(14), Some(15), Some(255)] {
        let options = TcpOptionSet { window_scale, mss: Some(1460), ..TcpOptionSet::NONE };
        let (mut peer, id) = Peer::accepted(false, &settings, options);
        peer.give(put(A, 1, 1).window(1));
        let sent = peer.write(id, &[0; 3000]);
        let window = 1_usize << window_scale.unwrap_or(0).min(14);
        let bytes: usize = sent.iter().map(|out| out.data.len()).sum();
        assert!(bytes <= window && (window < 1460 || bytes > 0), "{window_scale:?}: {bytes}");
        let answer = peer.give(put(A, 3, 1).data(b"ahead"));
        let offered = u32::from(answer[0].window) << if window_scale.is_some() { 5 } else { 0 };
        assert!(offered <= (1 << 20) + 32);
        assert_eq!(offered > 65_535, window_scale.is_some());
    }
}

#[test]
fn listeners_that_share_a_port_get_connections_by_their_ends() {
    let mut peer = Peer::new(false);
    let shared = TcpSettings { share_port: true, ..TcpSettings::default() };
    let listeners = [0; 4].map(|_| peer.listen(&shared, 64));
    let any = core::net::SocketAddr::new("::".parse().unwrap(), crate::tests::peer::PORT);
    let zone = floodwall_base::IfIndex::default();
    let alone = peer.host.tcp.listen(any, zone, 1500, &TcpSettings::default(), 4, 0);
    assert_eq!(alone, Err(crate::ListenError::InUse), "in use without the share option");
    for n in 0..60 {
        peer.peer_port = 10_000 + n;
        let answer = peer.give(put(S, 0, 0)).remove(0);
        peer.iss = answer.seq;
        peer.give(put(A, 1, 1));
    }
    let waiting = listeners
        .map(|listener| core::iter::from_fn(|| peer.host.tcp.accept(listener).unwrap()).count());
    assert_eq!(waiting.iter().sum::<usize>(), 60);
    assert!(waiting.iter().all(|n| *n >= 4), "{waiting:?}");
}

#[test]
fn a_listener_at_every_port_gets_what_no_other_wants() {
    for v6 in [false, true] {
        let mut peer = Peer::new(v6);
        let everything = TcpSettings { every_port: true, ..TcpSettings::default() };
        let of_port = peer.listen(&TcpSettings::default(), 4);
        let listen = |peer: &mut Peer, port, settings: &TcpSettings| {
            let any = core::net::SocketAddr::from(([0_u16; 8], port));
            peer.host.tcp.listen(any, floodwall_base::IfIndex::default(), 1500, settings, 4, 0)
        };
        // Port 0 is valid only for a listener at every port.
        assert_eq!(listen(&mut peer, 0, &TcpSettings::default()), Err(ListenError::InvalidAddress));
        assert_eq!(listen(&mut peer, 81, &everything), Err(ListenError::InvalidAddress));
        let every = listen(&mut peer, 0, &everything).unwrap();
        assert_eq!(listen(&mut peer, 0, &everything), Err(ListenError::InUse));
        peer.handshake(of_port, TcpOptionSet::NONE);
        for port in [81, 1, 65_535] {
            peer.port = port;
            let id = peer.handshake(every, TcpOptionSet::NONE);
            assert_eq!(peer.host.tcp.ends(id).unwrap().0.port(), port);
        }
        // A closed listener accepts nothing.
        let now = peer.now;
        let (tcp, lend) = peer.host.lend(now);
        tcp.unlisten(&lend, every).unwrap();
        peer.port = 82;
        assert_eq!(peer.give(put(S, 0, 0))[0].flags, R | A);
    }
}

#[test]
fn a_handshake_that_later_data_proves_drops_no_earlier_data() {
    // RFC 7323 section 4.3: only a segment at the left edge of the window sets TS.Recent. The ACK
    // of the handshake was lost, and its first two segments of data come out of order.
    for v6 in [false, true] {
        let mut peer = Peer::new(v6);
        let listener = peer.listen(&TcpSettings::default(), 4);
        let timestamps = Some(floodwall_wire::tcp_options::Timestamps { value: 1000, echo: 0 });
        let options = TcpOptionSet { timestamps, sack_permitted: true, ..TcpOptionSet::NONE };
        let answer = peer.give(Put { options, ..put(S, 0, 0) }).remove(0);
        peer.iss = answer.seq;
        let echo = answer.options.timestamps.unwrap().value;
        peer.give(put(A, 101, 1).time(1020, echo).data(&[2; 100]));
        assert_eq!(peer.dropped, None);
        peer.give(put(A, 1, 1).time(1010, echo).data(&[1; 100]));
        assert_eq!(peer.dropped, None, "{v6}");
        let id = peer.host.tcp.accept(listener).unwrap().unwrap();
        let read = peer.read(id, 500).0.unwrap();
        assert_eq!(read, [[1; 100], [2; 100]].concat());
    }
}

/// A host with one ephemeral port, which is in TIME-WAIT, and the sequence number at which the
/// closed connection ended.
fn one_port_in_time_wait(v6: bool, options: TcpOptionSet, settings: &TcpSettings) -> (Peer, Seq) {
    let config = TcpConfig { ephemeral: 50_000..=50_000, ..small() };
    let mut peer = Peer::with_config(v6, config);
    let id = peer.connect(settings);
    let mut stamp = options.timestamps.map(|it| it.value);
    let mut say = |peer: &mut Peer, it: Put<'static>| {
        stamp = stamp.map(|stamp| stamp + 1);
        peer.give(stamp.map_or(it.clone(), |stamp| it.time(stamp, 0)))
    };
    assert_eq!(peer.give(Put { options, ..put(S | A, 0, 1) })[0].flags, A);
    assert!(!peer.write(id, &[0; 5000]).is_empty());
    say(&mut peer, put(A, 1, 5001));
    assert_eq!(peer.close(id)[0].flags, F | A);
    assert_eq!(say(&mut peer, put(F | A, 1, 5002))[0].flags, A);
    let end = Seq(peer.ours(5002));
    (peer, end)
}

#[test]
fn a_port_in_time_wait_is_used_again_where_timestamps_tell_the_connections_apart() {
    let stamped = Timestamps { value: 77, echo: 0 };
    let stamped = TcpOptionSet { timestamps: Some(stamped), ..TcpOptionSet::NONE };
    let settings = TcpSettings::default();
    let bare = TcpSettings { timestamps: false, ..settings };
    for v6 in [false, true] {
        let (mut peer, end) = one_port_in_time_wait(v6, stamped, &settings);
        assert_eq!(peer.try_connect(&settings), Err(OpenError::NoPort), "at once");
        peer.wait(Duration::from_millis(980));
        assert_eq!(peer.try_connect(&settings), Err(OpenError::NoPort), "within a second");
        peer.wait(Duration::from_millis(30));
        assert_eq!(peer.try_connect(&bare), Err(OpenError::NoPort), "the new one has none");
        let (id, syn) = peer.connect_saying(&settings);
        assert!((end + 65_536).is_before(Seq(syn.seq)), "beyond the old one's numbers");
        assert!(syn.options.timestamps.is_some());
        // The record is gone, and the connection is as any.
        let options = TcpOptionSet {
            timestamps: Some(Timestamps { value: 5000, echo: 0 }),
            ..TcpOptionSet::NONE
        };
        assert_eq!(peer.give(Put { options, ..put(S | A, 0, 1) })[0].flags, A);
        assert_eq!(peer.state(id), TcpState::Established);
        assert_eq!(peer.try_connect(&settings), Err(OpenError::NoPort), "it is open");

        // A port that is asked for is given at once.
        let (mut peer, end) = one_port_in_time_wait(v6, stamped, &settings);
        assert_eq!(peer.try_connect_from(50_000, &bare), Err(OpenError::InUse));
        let id = peer.try_connect_from(50_000, &settings).unwrap();
        let iss = peer.host.tcp.named(id).unwrap().snd.iss;
        assert!((end + 65_536).is_before(iss), "beyond the old one's numbers");
        assert_eq!(peer.try_connect_from(50_000, &settings), Err(OpenError::InUse), "it is open");

        // Without timestamps nothing tells old segments from new ones for two lifetimes.
        let (mut peer, _) = one_port_in_time_wait(v6, TcpOptionSet::NONE, &settings);
        peer.wait(Duration::from_secs(50));
        assert_eq!(peer.try_connect(&settings), Err(OpenError::NoPort));
        assert_eq!(peer.try_connect_from(50_000, &settings), Err(OpenError::InUse));
        peer.wait(Duration::from_secs(11));
        assert!(peer.try_connect(&settings).is_ok(), "TIME-WAIT is over");
    }
}
