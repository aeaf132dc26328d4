//! The adversarial list of mechanism S3 that is not a row: odd offers, old segments, guesses.

use std::time::Duration;

use floodwall_checksum::sum;
use floodwall_stack::tcp_set::{CookiePolicy, ProvenBy, TcpSettings};
use floodwall_tests::craft::{self, FAMILIES};
use floodwall_tests::tcp::TcpClient;
use floodwall_wire::IpProtocol;
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::{TcpOptionSet, Timestamps};

use crate::floods::{BURST, Flood, burst};
use crate::{HELLO, accept, answer, client, half_open, read, server};

const POLICIES: [CookiePolicy; 2] = [CookiePolicy::Overflow, CookiePolicy::Always];

/// Segment sizes of 0, 1, between two of the table's and the largest; scales over 14 (RFC 7323
/// section 2.3); unknown options.
#[test]
fn odd_offers_make_sane_connections_by_cache_and_by_cookie() {
    for family in FAMILIES {
        for policy in POLICIES {
            for (n, mss) in [0, 1, 88, 1299, 1399, u16::MAX].into_iter().enumerate() {
                for scale in [None, Some(0), Some(3), Some(14), Some(15), Some(255)] {
                    let (mut rig, listener) = server(8);
                    rig.sockets(|s| s.tcp_set_cookies(listener, policy).unwrap());
                    let mut odd = client(n as u32, family);
                    odd.options.mss = Some(mss);
                    odd.options.window_scale = scale;
                    odd = if n % 2 == 0 { odd.timeless() } else { odd };
                    let answer = answer(&odd, &rig.frame(&odd.syn()));
                    rig.frame(&odd.ack(&answer, HELLO));
                    let id = accept(&mut rig, listener).unwrap();
                    assert_eq!(read(&mut rig, id), HELLO);
                    let said = rig.sockets(|s| s.tcp_syn_said(id).unwrap()).0.unwrap();
                    let by = if policy == CookiePolicy::Always {
                        ProvenBy::Cookie
                    } else {
                        ProvenBy::Cache
                    };
                    assert_eq!(said.by, by);
                    assert!(said.mss >= 88 && said.mss <= mss.max(88), "{mss} became {}", said.mss);
                    let most = scale.map(|scale| scale.min(14));
                    assert!(said.window_scale <= most, "{scale:?}: {:?}", said.window_scale);
                    assert_eq!(said.window_scale.is_some(), most.is_some());
                    // What it is sent keeps to what it said.
                    let (sent, departed) = rig.sockets(|s| s.tcp_send(id, &[7; 3000]));
                    assert!(sent.unwrap() > 0);
                    for heard in odd.hears(&departed) {
                        assert!(heard.text.len() <= usize::from(said.mss), "{}", heard.text.len());
                    }
                }
            }
        }
    }
}

/// A SYN with these bytes of options as they are.
fn syn_with(client: &TcpClient, options: &[u8]) -> Vec<u8> {
    assert!(options.len() <= 40 && options.len().is_multiple_of(4));
    let mut segment = [&[0; 20][..], options].concat();
    segment[..2].copy_from_slice(&client.from.port().to_be_bytes());
    segment[2..4].copy_from_slice(&client.to.port().to_be_bytes());
    segment[4..8].copy_from_slice(&client.isn.to_be_bytes());
    segment[12] = (segment.len() as u8 / 4) << 4;
    segment[13] = TcpFlags::SYN.0;
    segment[14..16].copy_from_slice(&64_000_u16.to_be_bytes());
    let (from, to) = (client.from.ip(), client.to.ip());
    let pseudo = craft::pseudo(from, to, IpProtocol::TCP, segment.len());
    let check = pseudo.add(sum(&segment)).finish();
    segment[16..18].copy_from_slice(&check.to_be_bytes());
    craft::from_peer(&craft::ip(from, to, IpProtocol::TCP, &segment))
}

/// Unknown options (an experiment's, MD5 signatures, Fast Open, multipath), some with lengths that
/// end them early: skipped, never sent back, and what else was offered stands.
#[test]
fn options_that_nothing_knows_are_skipped_by_cache_and_by_cookie() {
    const UNKNOWN: [&[u8]; 5] = [
        &[253, 4, 0xf9, 0x89],
        &[19, 18, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        &[34, 2],
        &[30, 12, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8],
        &[77, 3, 9],
    ];
    for family in FAMILIES {
        for policy in POLICIES {
            for unknown in UNKNOWN {
                let (mut rig, listener) = server(8);
                rig.sockets(|s| s.tcp_set_cookies(listener, policy).unwrap());
                let it = client(1, family).timeless();
                let known: [&[u8]; 3] = [&[2, 4, 0x05, 0x78], &[3, 3, 9], &[4, 2]];
                let mut options = [unknown, known[0], known[1], unknown, known[2]].concat();
                if options.len() > 40 {
                    options = [unknown, known[0], known[1], known[2]].concat();
                }
                options.resize(options.len().next_multiple_of(4), 0);
                let heard = answer(&it, &rig.frame(&syn_with(&it, &options)));
                assert_eq!(heard.options.mss.is_some(), heard.options.window_scale.is_some());
                rig.frame(&it.ack(&heard, HELLO));
                let id = accept(&mut rig, listener).unwrap();
                assert_eq!(read(&mut rig, id), HELLO);
                let said = rig.sockets(|s| s.tcp_syn_said(id).unwrap()).0.unwrap();
                // A cookie without timestamps rounds 9 down to 8, and 1,400 where it has no place.
                let six = family == floodwall_base::Family::V6;
                let (mss, scale) = match policy {
                    CookiePolicy::Always => (if six { 1380 } else { 1400 }, 8),
                    _ => (1400, 9),
                };
                assert_eq!((said.mss, said.window_scale, said.sack), (mss, Some(scale), true));
            }
        }
    }
}

/// An ECN-setup SYN is agreed to by cache and by cookie, by a cookie where timestamps carry it.
#[test]
fn ecn_is_agreed_to_in_the_syn_ack_and_kept_by_the_cookie() {
    for family in FAMILIES {
        for policy in POLICIES {
            let (mut rig, listener) = server(8);
            rig.sockets(|s| s.tcp_set_cookies(listener, policy).unwrap());
            let it = client(1, family);
            let setup = TcpFlags::SYN | TcpFlags::ECE | TcpFlags::CWR;
            let departed = rig.frame(&it.frame((it.isn, 0), setup, &it.options, &[]));
            let heard = answer(&it, &departed);
            assert_eq!(heard.flags, TcpFlags(0x52), "SYN, ACK, ECE");
            rig.frame(&it.ack(&heard, &[]));
            let id = accept(&mut rig, listener).unwrap();
            assert!(rig.sockets(|s| s.tcp_syn_said(id).unwrap()).0.unwrap().ecn, "{policy:?}");
        }
    }
}

/// The second completing ACK belongs to the connection that the first one made; the same cookie
/// again after its end makes no second one that anybody could mistake for the first.
#[test]
fn a_completing_ack_that_comes_twice_makes_one_connection() {
    for family in FAMILIES {
        for policy in POLICIES {
            let (mut rig, listener) = server(8);
            rig.sockets(|s| s.tcp_set_cookies(listener, policy).unwrap());
            let it = client(1, family);
            let heard = answer(&it, &rig.frame(&it.syn()));
            for _ in 0..3 {
                rig.frame(&it.ack(&heard, HELLO));
            }
            let id = accept(&mut rig, listener).unwrap();
            assert_eq!((read(&mut rig, id), accept(&mut rig, listener)), (HELLO.to_vec(), None));
            // Closed by both; in TIME-WAIT the replay is no handshake.
            rig.sockets(|s| s.tcp_close(id).unwrap());
            let end = it.isn.wrapping_add(1 + HELLO.len() as u32);
            let fin = TcpFlags::FIN | TcpFlags::ACK;
            rig.frame(&it.frame((end, heard.seq.wrapping_add(2)), fin, &it.stamped(&heard), &[]));
            rig.run_for(Duration::from_secs(1));
            rig.frame(&it.ack(&heard, HELLO));
            assert_eq!(accept(&mut rig, listener), None, "{policy:?}: a replay");
        }
    }
}

/// Resets and ICMP errors that guess; the client connects all the same.
#[test]
fn guessed_resets_and_errors_end_no_handshake_and_exact_ones_do() {
    for family in FAMILIES {
        let (mut rig, listener) = server(8);
        let it = client(1, family);
        let heard = answer(&it, &rig.frame(&it.syn()));
        for off in [0_u32, 2, 5000, 70_000, 1 << 31] {
            let seqs = (it.isn.wrapping_add(off), 0);
            let departed = rig.frame(&it.frame(seqs, TcpFlags::RST, &TcpOptionSet::NONE, &[]));
            assert!(departed.is_empty() && half_open(&rig) == 1, "{off}");
        }
        let quote = |seq: u32| {
            let mut turned = it;
            std::mem::swap(&mut turned.from, &mut turned.to);
            let packet = turned.packet((seq, 0), TcpFlags(0x12), &TcpOptionSet::NONE, &[]);
            craft::from_peer(&craft::port_unreachable(family, &packet))
        };
        for seq in [heard.seq ^ 1, heard.seq, heard.seq, 0] {
            rig.frame(&quote(seq));
            assert_eq!(half_open(&rig), 1, "not by {seq}, which is early");
        }
        rig.frame(&it.ack(&heard, HELLO));
        assert!(accept(&mut rig, listener).is_some());
        let again = client(2, family);
        answer(&again, &rig.frame(&again.syn()));
        let seqs = (again.isn.wrapping_add(1), 0);
        rig.frame(&again.frame(seqs, TcpFlags::RST, &TcpOptionSet::NONE, &[]));
        assert_eq!(half_open(&rig), 0, "the exact one");
    }
}

/// A SYN again, with the same number and with another: whichever is acknowledged is the connection.
#[test]
fn a_client_that_starts_again_gets_in_with_either_number() {
    for family in FAMILIES {
        for second in [false, true] {
            let (mut rig, listener) = server(8);
            let first = client(1, family);
            let restarted = TcpClient { isn: first.isn ^ 0x5555, ..first };
            let early = answer(&first, &rig.frame(&first.syn()));
            let again = answer(&first, &rig.frame(&first.syn()));
            assert_eq!((early.seq, early.ack), (again.seq, again.ack));
            let late = answer(&restarted, &rig.frame(&restarted.syn()));
            let (it, heard) = if second { (restarted, late) } else { (first, early) };
            rig.frame(&it.ack(&heard, HELLO));
            let id = accept(&mut rig, listener).unwrap();
            assert_eq!(read(&mut rig, id), HELLO);
            assert_eq!((half_open(&rig), accept(&mut rig, listener)), (0, None));
        }
    }
}

/// A SYN again after a flood has displaced what the first one left, with the same number and with
/// another: each answer is good, the early one and the late one. A few rows keep their oldest until
/// the cache pauses; most do not.
#[test]
fn a_client_that_starts_again_after_it_was_displaced_gets_in_with_either_number() {
    for family in FAMILIES {
        let (mut rig, listener) = server(64);
        let cases = [(false, false), (false, true), (true, false), (true, true)];
        let clients: Vec<_> = (0..32).map(|n| client(n, family)).collect();
        let early: Vec<_> = clients.iter().map(|it| answer(it, &rig.frame(&it.syn()))).collect();
        for n in 0..400 {
            burst(&mut rig, Flood::Syn, n * BURST);
        }
        let mut by_cookie = [0; 4];
        for (n, first) in clients.into_iter().enumerate() {
            let (renumbered, acks_late) = cases[n % 4];
            let isn = if renumbered { first.isn ^ 0x5555 } else { first.isn };
            let again = TcpClient { isn, ..first };
            let late = answer(&again, &rig.frame(&again.syn()));
            let (it, heard) = if acks_late { (again, &late) } else { (first, &early[n]) };
            rig.frame(&it.ack(heard, HELLO));
            let id = accept(&mut rig, listener).expect("let in");
            assert_eq!(read(&mut rig, id), HELLO);
            let said = rig.sockets(|s| s.tcp_syn_said(id).unwrap()).0.unwrap();
            assert_eq!((said.window_scale, said.sack), (Some(9), true));
            by_cookie[n % 4] += u32::from(said.by == ProvenBy::Cookie);
        }
        assert!(by_cookie.iter().all(|clients| *clients >= 4), "{by_cookie:?} of 8 displaced");
        assert_eq!(accept(&mut rig, listener), None);
    }
}

/// A simultaneous open: one connection, nothing half-open, and nothing in the accept queue (RFC
/// 9293 section 3.5, figure 8). A SYN-ACK to a listener is refused.
#[test]
fn syns_that_cross_make_one_connection_and_a_syn_ack_to_a_listener_none() {
    for family in FAMILIES {
        let (mut rig, listener) = server(8);
        let mut it = client(1, family);
        let (id, departed) = rig.sockets(|s| {
            let owner = s.tcp_owner().unwrap();
            s.tcp_connect(it.from, &TcpSettings::default(), owner).unwrap()
        });
        let heard = it.hears(&departed);
        assert!(heard.len() == 1 && heard[0].flags.contains(TcpFlags::SYN), "{heard:?}");
        it.to = rig.sockets(|s| s.tcp_ends(id).unwrap()).0.0;
        let crossed = answer(&it, &rig.frame(&it.syn()));
        assert_eq!((crossed.seq, half_open(&rig)), (heard[0].seq, 0));
        rig.frame(&it.ack(&crossed, HELLO));
        assert_eq!((read(&mut rig, id), accept(&mut rig, listener)), (HELLO.to_vec(), None));

        let stray = client(2, family);
        let heard = answer(&stray, &rig.frame(&stray.syn()));
        let seqs = (stray.isn, heard.seq.wrapping_add(1));
        let departed = rig.frame(&stray.frame(seqs, TcpFlags(0x12), &stray.options, &[]));
        assert!(stray.hears(&departed).iter().all(|it| it.text.is_empty() && it.flags.0 & 2 == 0));
        assert_eq!((half_open(&rig), accept(&mut rig, listener)), (1, None));
        rig.frame(&stray.ack(&heard, HELLO));
        assert!(accept(&mut rig, listener).is_some(), "it was not held against the client");
    }
}

/// Timestamps that run backwards are old segments; that they wrap is no reason to refuse anybody.
#[test]
fn old_timestamps_are_silence_and_wrapped_ones_are_not() {
    for family in FAMILIES {
        let (mut rig, listener) = server(8);
        let mut it = client(1, family);
        it.clock = u32::MAX;
        it.options.timestamps = Some(Timestamps { value: u32::MAX, echo: 0 });
        let heard = answer(&it, &rig.frame(&it.syn()));
        let mut old = it;
        old.clock = u32::MAX - 50;
        assert!(rig.frame(&old.ack(&heard, HELLO)).is_empty());
        assert_eq!((accept(&mut rig, listener), half_open(&rig)), (None, 1));
        rig.frame(&it.ack(&heard, HELLO));
        let id = accept(&mut rig, listener).expect("its clock has wrapped to 0");
        assert_eq!(read(&mut rig, id), HELLO);
    }
}

/// A window of nothing in the completing ACK, and a flow label on every segment.
#[test]
fn windows_of_nothing_and_flow_labels_hinder_nothing() {
    for family in FAMILIES {
        let (mut rig, listener) = server(8);
        let it = client(1, family);
        let labelled = |mut frame: Vec<u8>| {
            if family == floodwall_base::Family::V6 {
                frame[14 + 1..14 + 4].copy_from_slice(&[0xa, 0xbc, 0xde]);
                frame[14] = 0x60;
            }
            frame
        };
        let heard = answer(&it, &rig.frame(&labelled(it.syn())));
        let mut frame = labelled(it.ack(&heard, &[]));
        let l4 = if family == floodwall_base::Family::V4 { 34 } else { 54 };
        let window = u16::from_be_bytes([frame[l4 + 14], frame[l4 + 15]]);
        let check = u16::from_be_bytes([frame[l4 + 16], frame[l4 + 17]]);
        // RFC 1624: the sum without the window.
        let sum = u32::from(!check) + u32::from(!window);
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        frame[l4 + 14..l4 + 16].copy_from_slice(&[0, 0]);
        frame[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
        rig.frame(&frame);
        let id = accept(&mut rig, listener).expect("accepted");
        let (_, departed) = rig.sockets(|s| s.tcp_send(id, HELLO));
        assert!(it.hears(&departed).is_empty(), "its window is shut");
    }
}

/// Keys turn every 15 s: a handshake that began before is accepted after.
#[test]
fn keys_that_turn_in_mid_handshake_cost_nothing_the_connection() {
    for family in FAMILIES {
        for (after, good) in [(1, true), (15, true), (50, false)] {
            let (mut rig, listener) = server(8);
            rig.sockets(|s| s.tcp_set_cookies(listener, CookiePolicy::Always).unwrap());
            rig.now += Duration::from_millis(13_900);
            let it = client(1, family);
            let heard = answer(&it, &rig.frame(&it.syn()));
            rig.now += Duration::from_secs(after);
            rig.frame(&it.ack(&heard, HELLO));
            assert_eq!(accept(&mut rig, listener).is_some(), good, "after {after} s");
        }
    }
}
