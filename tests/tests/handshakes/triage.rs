//! Classes of segments: SYNs are unverified, a completed handshake is established, and no guess is.

use std::time::Duration;

use floodwall_base::IfIndex;
use floodwall_packet::Triage::{self, Established, Rejectable, Unknown};
use floodwall_packet::{Engine as _, RxFilter};
use floodwall_stack::tcp_set::CookiePolicy;
use floodwall_tests::Rig;
use floodwall_tests::craft::FAMILIES;
use floodwall_tests::tcp::TcpClient;
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::TcpOptionSet;

use crate::{HELLO, OTHER_PORT, PORT, accept, answer, client, listen, rig, server};

fn class(rig: &Rig, frame: Vec<u8>) -> Triage {
    rig.classify(&[frame])[0]
}

#[test]
fn one_that_comes_back_with_a_syn_acks_number_is_established_by_cache_and_by_cookie() {
    for family in FAMILIES {
        for policy in [CookiePolicy::Overflow, CookiePolicy::Always] {
            let (mut rig, listener) = server(8);
            rig.sockets(|s| s.tcp_set_cookies(listener, policy).unwrap());
            for it in [client(1, family), client(2, family).timeless()] {
                assert_eq!(class(&rig, it.syn()), Unknown);
                let heard = answer(&it, &rig.frame(&it.syn()));
                assert_eq!(class(&rig, it.syn()), Unknown, "again");
                assert_eq!(class(&rig, it.ack(&heard, HELLO)), Established, "{policy:?}");
                for bit in 0..32 {
                    let seqs = (it.isn.wrapping_add(1), heard.seq.wrapping_add(1) ^ 1 << bit);
                    let guess = it.frame(seqs, TcpFlags::ACK, &it.stamped(&heard), &[]);
                    assert_eq!(class(&rig, guess), Unknown, "bit {bit}");
                }
                let other = TcpClient { from: client(9, family).from, ..it };
                assert_eq!(class(&rig, other.ack(&heard, &[])), Unknown);
                rig.frame(&it.ack(&heard, &[]));
                assert!(accept(&mut rig, listener).is_some());
            }
        }
    }
}

#[test]
fn what_an_open_connection_waits_for_is_established_and_blind_guesses_are_not() {
    for family in FAMILIES {
        let (mut rig, listener) = server(8);
        let it = client(1, family);
        let heard = answer(&it, &rig.frame(&it.syn()));
        rig.frame(&it.ack(&heard, HELLO));
        accept(&mut rig, listener).unwrap();
        let next = it.isn.wrapping_add(1 + HELLO.len() as u32);
        let theirs = heard.seq.wrapping_add(1);
        let with = |seq: u32, ack: u32, flags: TcpFlags| {
            class(&rig, it.frame((seq, ack), flags, &it.stamped(&heard), &[]))
        };
        let [ack, rst] = [TcpFlags::ACK, TcpFlags::RST];
        assert_eq!(with(next, theirs, ack), Established);
        assert_eq!(with(next.wrapping_add(60_000), theirs, ack), Established, "in the window");
        assert_eq!(with(next.wrapping_sub(9000), theirs, ack), Established, "sent again");
        assert_eq!(with(next, theirs, rst), Established, "the exact reset");
        assert_eq!(with(next.wrapping_add(1), theirs, rst), Unknown);
        assert_eq!(with(next, theirs.wrapping_add(1), ack), Unknown, "never sent");
        for guess in 1..16_u32 {
            assert_eq!(with(next.wrapping_add(guess << 28), theirs, ack), Unknown);
            assert_eq!(with(next, theirs.wrapping_add(guess << 28), ack), Unknown);
        }
    }
}

/// No listener, wrong lengths, flags without a meaning: dropped anyway, so dropped first.
#[test]
fn what_tcp_would_refuse_is_refusable_and_is_refused() {
    for family in FAMILIES {
        let (mut rig, _) = server(8);
        let it = client(1, family);
        let closed = TcpClient::nth(2, family, 4444);
        let none = TcpOptionSet::NONE;
        let mut short = it.syn();
        let l4 = if family == floodwall_base::Family::V4 { 34 } else { 54 };
        short[l4 + 12] = 0xf0;
        let frames = [
            closed.syn(),
            closed.frame((1, 2), TcpFlags::ACK, &none, &[]),
            it.frame((1, 2), TcpFlags::NONE, &none, &[]),
            it.frame((1, 2), TcpFlags::SYN | TcpFlags::FIN, &none, &[]),
            it.frame((1, 2), TcpFlags::SYN | TcpFlags::ACK, &none, &[]),
            short,
        ];
        for frame in frames {
            assert_eq!(class(&rig, frame.clone()), Rejectable, "{frame:?}");
            let before = rig.stats();
            rig.frame(&frame);
            let (lost, _) = floodwall_tests::drops_between(&before, &rig.stats());
            assert_eq!(lost.len(), 1, "{lost:?}");
        }
    }
}

/// The wants reported to devices for TCP's ports: connections outlive their listener, and TIME-WAIT
/// them.
#[test]
fn a_port_is_wanted_as_long_as_anything_of_it_is_there() {
    let wants = |rig: &Rig| {
        let mut wanted = RxFilter::default();
        rig.stack.rx_filter(IfIndex(1), &mut wanted);
        (wanted.tcp.has(PORT), wanted.tcp.has(OTHER_PORT), wanted.any_tcp)
    };
    let told = |rig: &Rig| rig.stack.wants_changed();
    for family in FAMILIES {
        let mut rig = rig();
        assert_eq!(wants(&rig), (false, false, false));
        let before = told(&rig);
        let listener = listen(&mut rig, PORT, 8);
        assert_eq!(wants(&rig), (true, false, false));
        assert_ne!(told(&rig), before);
        let it = client(1, family);
        let heard = answer(&it, &rig.frame(&it.syn()));
        rig.frame(&it.ack(&heard, HELLO));
        let id = accept(&mut rig, listener).unwrap();
        rig.sockets(|s| s.tcp_unlisten(listener).unwrap());
        assert_eq!(wants(&rig), (true, false, false), "the connection is there");
        assert_eq!(class(&rig, it.ack(&heard, HELLO)), Established);
        assert_eq!(class(&rig, client(2, family).syn()), Rejectable);
        // We close first, and keep a record.
        let mut buffer = [0; 64];
        rig.sockets(|s| s.tcp_recv(id, &mut buffer)).0.unwrap();
        let (_, departed) = rig.sockets(|s| s.tcp_close(id));
        let fin = it.hears(&departed).pop().unwrap();
        let (next, ack) = (it.isn.wrapping_add(1 + HELLO.len() as u32), fin.seq.wrapping_add(1));
        let both = TcpFlags::FIN | TcpFlags::ACK;
        rig.frame(&it.frame((next, ack), both, &it.stamped(&fin), &[]));
        let last = it.frame((next, ack), both, &it.stamped(&fin), &[]);
        assert_eq!(class(&rig, last), Unknown, "it may come again");
        assert_eq!(wants(&rig), (true, false, false), "the record is there");
        let before = told(&rig);
        rig.run_for(Duration::from_secs(600));
        assert_eq!(wants(&rig), (false, false, false), "nothing of it is left");
        assert_ne!(told(&rig), before);
    }
}
