//! What shortcuts leave as it is: a flow that was looked up in vain is found once it has a
//! connection; a connection with nothing in flight has no loss timer; the acknowledgment that
//! proves a handshake does to the connection what it does on the general path; and a connection
//! has what its program has set, though it is made without.

use floodwall_base::Seq;
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::{SackBlock, TcpOptionSet, Timestamps};

use super::peer::{A, F, Peer, Put, S, put};
use crate::congestion::Algorithm;
use crate::connection_flags::ConnectionFlags;
use crate::segment::Segment;
use crate::settings::{Acknowledge, Keepalive};
use crate::timer::TimerKind;
use crate::{ConnectionId, TcpSettings};

#[test]
fn a_flow_that_was_unknown_is_found_by_its_hash_once_it_has_a_connection() {
    for v6 in [false, true] {
        let mut peer = Peer::new(v6);
        let listener = peer.listen(&TcpSettings::default(), 4);
        let flow = peer.flow();
        let tcp = &mut peer.host.tcp;
        let unknown = tcp.find_by_hash(&flow);
        assert_eq!(unknown, Err(tcp.hash(&flow)));
        assert_eq!(tcp.find_by_hash(&flow), unknown);
        let id = peer.handshake(listener, TcpOptionSet::NONE);
        let tcp = &mut peer.host.tcp;
        assert_eq!(tcp.find_by_hash(&flow), Ok(id.index() as u32));
    }
}

#[test]
fn a_connection_with_nothing_in_flight_has_no_loss_timer() {
    for v6 in [false, true] {
        let settings = TcpSettings::default();
        let (mut peer, id) = Peer::connected(v6, &settings, TcpOptionSet::NONE);
        let has_one =
            |peer: &Peer| peer.host.tcp.named(id).unwrap().timers.is_set(TimerKind::Retransmit);
        assert!(!has_one(&peer));
        assert_eq!(peer.write(id, b"hello").len(), 1);
        assert!(has_one(&peer));
        assert!(peer.give(put(A, 1, 6)).is_empty());
        assert!(!has_one(&peer));
    }
}

/// A connection that the peer has opened with an acknowledgment with these flags and this window.
fn proved(
    (v6, is_stamped): (bool, bool),
    settings: &TcpSettings,
    flags: TcpFlags,
    window: u16,
) -> (Peer, ConnectionId) {
    let mut peer = Peer::new(v6);
    let listener = peer.listen(settings, 4);
    let timestamps = is_stamped.then_some(Timestamps { value: 70, echo: 0 });
    let scale = (window > 1000).then_some(3);
    let options = TcpOptionSet { timestamps, window_scale: scale, ..TcpOptionSet::NONE };
    let answer = peer.give(Put { options, ..put(S, 0, 0) }).remove(0);
    peer.iss = answer.seq;
    let mut ack = put(flags, 1, 1).window(window);
    if let Some(theirs) = answer.options.timestamps {
        ack = ack.time(71, theirs.value);
    }
    assert!(peer.give(ack).is_empty());
    let id = peer.host.tcp.accept(listener).unwrap().unwrap();
    (peer, id)
}

#[test]
fn a_bare_acknowledgment_proves_a_handshake_as_on_the_general_path() {
    let idle = core::time::Duration::from_secs(30);
    let keepalive = Some(Keepalive { idle, ..Keepalive::default() });
    for case in [(false, false), (false, true), (true, false), (true, true)] {
        for keepalive in [None, keepalive] {
            for window in [0, 1, 900, 50_000] {
                let settings = TcpSettings { keepalive, ..TcpSettings::default() };
                // PSH means nothing without text, and is on the general path.
                let seen = [A, A | TcpFlags::PSH].map(|flags| {
                    let (mut peer, id) = proved(case, &settings, flags, window);
                    let deadline = peer.host.tcp.deadline();
                    let (it, rare) = peer.host.tcp.named_rare(id).unwrap();
                    let sender = (it.snd.una, it.snd.nxt, it.snd.wnd, it.snd.wnd_max);
                    let window = (it.snd.wl1, it.snd.wl2, it.snd.scarcity);
                    let rcv = (it.rcv.nxt, it.rcv.edge, it.rcv.allowed, it.rcv.send_allowed);
                    let times = (it.heard, it.stalled, it.recent, it.next_timer(rare), deadline);
                    let seen = format!("{:?}", (it.state(), sender, window, rcv, times));
                    let sent = peer.write(id, b"text");
                    format!("{seen} {:?}", sent.iter().map(|it| &it.data).collect::<Vec<_>>())
                });
                assert_eq!(seen[0], seen[1], "{case:?}, {keepalive:?}, {window}");
            }
        }
    }
}

#[test]
fn only_an_acknowledgment_and_nothing_else_proves_without_the_general_path() {
    for is_stamped in [false, true] {
        let case = (false, is_stamped);
        let (peer, id) = proved(case, &TcpSettings::default(), A, 900);
        let it = peer.host.tcp.named(id).unwrap();
        let (seq, ack) = (Seq(peer.theirs(1)), Seq(peer.ours(1)));
        let mut bare = Segment { seq, ack, flags: A, window: 9, ..Segment::NONE };
        bare.options.timestamps = is_stamped.then_some(Timestamps { value: 71, echo: 0 });
        assert!(it.is_bare_proof(&bare));
        let mut stamped = bare;
        stamped.options.timestamps = Some(Timestamps { value: 72, echo: 0 });
        let mut sacks = bare;
        sacks.options.sack[0] = Some(SackBlock { left: 1, right: 2 });
        let others = [
            Segment { seq: seq + 1, ..bare },
            Segment { seq: seq - 1, ..bare },
            Segment { ack: ack + 1, ..bare },
            Segment { ack: ack - 1, ..bare },
            Segment { flags: A | F, ..bare },
            Segment { flags: A | TcpFlags::ECE, ..bare },
            Segment { flags: A | TcpFlags::CWR, ..bare },
            Segment { flags: A | TcpFlags::PSH, ..bare },
            Segment { len: 1, ..bare },
            Segment { congestion: true, ..bare },
            stamped,
            sacks,
        ];
        for (n, other) in others.iter().enumerate() {
            assert!(!it.is_bare_proof(other), "{n}: {other:?}");
        }
    }
}

#[test]
fn a_connection_has_what_its_program_has_set() {
    let second = core::time::Duration::from_secs(1);
    let unusual = TcpSettings {
        receive_bytes: 400_000,
        receive_tuned: true,
        send_bytes: 77_000,
        send_tuned: true,
        nodelay: true,
        cork: true,
        unsent_bytes: Some(5000),
        acknowledge: Acknowledge::AtOnce,
        keepalive: Some(Keepalive { idle: 7 * second, interval: 3 * second, count: 4 }),
        user_timeout: Some(50 * second),
        open_timeout: Some(20 * second),
        syn_retries: Some(3),
        mss: Some(1111),
        slow_start_after_idle: true,
        hop_limit: Some(9),
        traffic_class: 0x28,
        algorithm: Algorithm::Reno,
        ecn: false,
        timestamps: false,
        sack: false,
        window_scale: false,
        ..TcpSettings::default()
    };
    let seen = |v6, settings: &TcpSettings| {
        let mut peer = Peer::new(v6);
        let id = peer.connect(settings);
        let it = peer.host.tcp.named(id).unwrap();
        let window = it.recovery.window();
        let has = |flag| it.flags.has(flag);
        let (tuned, nodelay) = (has(ConnectionFlags::SEND_TUNED), has(ConnectionFlags::NODELAY));
        let sender = (it.send_bytes, tuned, nodelay, window.algorithm());
        let sizes = (it.our_mss, it.mss(), it.recovery.mss(), window.window(), it.agreed.peer_mss);
        let limits = (it.rcv.limit, it.rcv.shift, it.acknowledge, it.hop_limit, it.traffic_class);
        let sums = it.rcv.ends_sum == crate::pseudo_header::ends_sum(&it.flow);
        let offers = [it.offers.timestamps(), it.offers.sack(), it.offers.scale(), it.offers.ecn()];
        let rare = &peer.host.tcp.records.rare;
        let text = (it.user_options(rare), it.keepalive(rare), it.path_size(rare));
        let (slow, cork) = (has(ConnectionFlags::RESTARTS_SLOWLY), has(ConnectionFlags::CORK));
        let flags = format!("restarts_slowly: {slow:?}, cork: {cork:?}, ");
        format!("{sender:?} {sizes:?} {limits:?} {offers:?} {sums} {flags} {text:?}")
    };
    for v6 in [false, true] {
        let text = seen(v6, &unusual);
        let wanted = [
            "(77000, true, true, Reno) (1111, ",
            " (262144, 3, AtOnce, Some(9), 40) [false, false, false, false] true ",
            "unsent_most: 5000, opening: 20000, stalling: 50000, syn_retries: 3 ",
            "restarts_slowly: true, cork: true, ",
            "idle: 7000, interval: 3000, count: 4",
            "mtu: 1500, told: 0, cap: 1111, ",
        ];
        for part in wanted {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let text = seen(v6, &TcpSettings { receive_tuned: false, ..unusual.clone() });
        assert!(text.contains(" (400000, 3, "), "{text}");
        assert_eq!(usual_sizes(v6), (if v6 { 1440 } else { 1460 }, 14_600 - 200 * u32::from(v6)));
    }
}

/// The segment size that a connection with the usual settings announces, and its first window.
fn usual_sizes(v6: bool) -> (u16, u32) {
    let mut peer = Peer::new(v6);
    let id = peer.connect(&TcpSettings { timestamps: false, ..TcpSettings::default() });
    let it = peer.host.tcp.named(id).unwrap();
    (it.our_mss, it.recovery.window().window())
}
