//! Rows of the list of mistakes that one segment, or a few, show.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, Family, Units};
use floodwall_packet::Engine;
use floodwall_stack::tcp_set::CookiePolicy;
use floodwall_tests::craft::{FAMILIES, HOST, addr, from_peer};
use floodwall_tests::tcp::TcpClient;
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::TcpOptionSet;

use crate::{
    First, HELLO, PORT, accept, answer, client, converses, half_open, listen, read, rig, server,
};

/// Row 2 (the source's 30 % in its drop routine): no SYN costs more work than another.
#[test]
fn a_syn_costs_the_same_units_at_any_backlog_and_however_full_the_cache() {
    let mut all = Vec::new();
    for backlog in [128, 1024, 65_536] {
        let (mut rig, _) = server(backlog);
        for fill in [0, 4000] {
            for n in 0..fill {
                rig.frame(&client(50_000 + n, FAMILIES[n as usize % 2]).syn());
            }
            for family in FAMILIES {
                let frame = client(7 + fill, family).syn();
                let mut packet = rig.pool.packet_from(&frame).unwrap();
                packet.set_iface(floodwall_base::IfIndex(1));
                let (units, _) = rig.round(vec![packet], |stack, round| stack.round(round));
                all.push(units);
            }
        }
    }
    assert!(all.iter().all(|units| *units == all[0] && *units > Units(0)), "{all:?}");
}

/// Row 3 (CVE-2002-0518): the entry is removed with its listener; the next listener of the port is
/// clean.
#[test]
fn a_listener_that_was_closed_and_opened_again_gives_no_old_handshake_a_wrong_child() {
    for family in FAMILIES {
        let (mut rig, listener) = server(8);
        let old = client(1, family);
        let answered = answer(&old, &rig.frame(&old.syn()));
        rig.sockets(|s| s.tcp_unlisten(listener).unwrap());
        let departed = rig.frame(&old.ack(&answered, HELLO));
        let heard = old.hears(&departed);
        assert!(heard.len() == 1 && heard[0].flags.contains(TcpFlags::RST), "{heard:?}");
        let again = listen(&mut rig, PORT, 8);
        rig.frame(&old.ack(&answered, HELLO));
        // ProvenBy its cookie or not at all; by it, with the options that it offered.
        if let Some(id) = accept(&mut rig, again) {
            let said = rig.sockets(|s| s.tcp_syn_said(id).unwrap()).0.unwrap();
            assert_eq!((said.window_scale, said.sack), (Some(9), true));
            assert_eq!(said.by, floodwall_stack::tcp_set::ProvenBy::Cookie);
            assert_eq!(read(&mut rig, id), HELLO);
        }
        assert!(converses(&mut rig, again, &client(2, family), First::Client));
    }
}

/// Row 4 (CVE-2003-1230): the layout's 2^-24 is tried in the SYN cache's own tests; here, that a
/// guess finds no way round them.
#[test]
fn no_guessed_acknowledgment_opens_anything_whether_cookies_are_about_or_not() {
    for family in FAMILIES {
        let (mut rig, listener) = server(64);
        for flooded in [false, true] {
            if flooded {
                rig.sockets(|s| s.tcp_set_cookies(listener, CookiePolicy::Always).unwrap());
                rig.frame(&client(5, family).syn());
            }
            let forger = client(5, family);
            for n in 0..4096_u32 {
                let seqs = (forger.isn.wrapping_add(1), n.wrapping_mul(0x9e37_79b1));
                rig.frame(&forger.frame(seqs, TcpFlags::ACK, &TcpOptionSet::NONE, b"text"));
            }
            assert_eq!(accept(&mut rig, listener), None);
            let stats = rig.stack.half_open_stats().unwrap();
            assert_eq!(stats.cookies_failed > 0, flooded || stats.cookies_failed > 0);
        }
        assert_eq!(rig.stats().counters.of(Counter::TcpPassiveOpens), 0);
        assert_eq!(rig.stats().counters.of(Counter::TcpExtSyncookiesRecv), 0);
        // The gate was open for having just started, and then for the SYN: never computed without.
        rig.now += Duration::from_secs(300);
        let before = rig.stats().counters.of(Counter::TcpExtSyncookiesFailed);
        let forger = client(6, family);
        rig.frame(&forger.frame((1, 2), TcpFlags::ACK, &TcpOptionSet::NONE, &[]));
        assert_eq!(rig.stats().counters.of(Counter::TcpExtSyncookiesFailed), before);
    }
}

/// Row 5 (CVE-2012-6638): only a plain SYN makes an entry, with any other flag none.
#[test]
fn of_all_256_flag_bytes_only_plain_syns_make_an_entry() {
    for family in FAMILIES {
        let (mut rig, listener) = server(8);
        let open = client(999, family);
        let shaken = answer(&open, &rig.frame(&open.syn()));
        rig.frame(&open.ack(&shaken, &[]));
        accept(&mut rig, listener).expect("one that is open");
        for flags in 0..=u8::MAX {
            for port in [PORT, 4444] {
                let odd = TcpClient::nth(u32::from(flags), family, port);
                let frame = odd.frame((odd.isn, 77), TcpFlags(flags), &odd.options, &[]);
                rig.frame(&frame);
            }
            rig.frame(&open.frame((open.isn, 3), TcpFlags(flags), &open.options, &[]));
        }
        assert_eq!(half_open(&rig), 16, "SYN with and without ECE, CWR, PSH, URG");
        assert!(rig.conservation().holds());
        assert_eq!(accept(&mut rig, listener), None);
    }
}

/// Row 7 (CVE-1999-0016, CVE-2005-0688): sources that no host can have.
#[test]
fn what_comes_from_nothing_is_dropped_in_silence_in_every_state() {
    let sources: [&[&str]; 2] = [
        &["10.0.0.1", "0.0.0.0", "224.0.0.1", "10.0.0.255", "255.255.255.255", "127.0.0.1"],
        &["fd00::1", "::", "ff02::1", "::1"],
    ];
    for (family, sources) in FAMILIES.into_iter().zip(sources) {
        for source in sources {
            let ip: IpAddr = source.parse().unwrap();
            for port in [PORT, 4000, 0] {
                let (mut rig, listener) = server(8);
                let mut impossible = client(3, family);
                impossible.from = SocketAddr::new(ip, port);
                for flags in [TcpFlags::SYN, TcpFlags::ACK, TcpFlags::RST, TcpFlags(0x12)] {
                    let departed =
                        rig.frame(&impossible.frame((1, 2), flags, &impossible.options, b"text"));
                    assert!(departed.is_empty(), "{source} {port} {flags:?}: {departed:?}");
                }
                assert_eq!((half_open(&rig), accept(&mut rig, listener)), (0, None));
                assert!(rig.conservation().holds());
            }
        }
        // Port 0 of anybody, and to groups and everybody.
        let groups: &[IpAddr] = match family {
            Family::V4 => {
                &[IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 255))]
            }
            Family::V6 => &[IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1))],
        };
        for to in groups.iter().copied().chain([addr(family, HOST)]) {
            let (mut rig, _) = server(8);
            let mut it = client(4, family);
            it.to.set_ip(to);
            if to == addr(family, HOST) {
                it.from.set_port(0);
            }
            let packet = it.packet((it.isn, 0), TcpFlags::SYN, &it.options, &[]);
            assert!(rig.frame(&from_peer(&packet)).is_empty(), "{to}");
            assert_eq!(half_open(&rig), 0, "{to}");
        }
    }
}

/// Row 9: ten backlogs of handshakes that are not accepted, each with text behind it.
#[test]
fn an_accept_queue_that_is_full_puts_clients_off_and_loses_no_acknowledged_byte() {
    const BACKLOG: u32 = 8;
    for family in FAMILIES {
        let (mut rig, listener) = server(BACKLOG as usize);
        // Cookies are no longer accepted for a recent start: the entries have to stay.
        rig.now += Duration::from_secs(40);
        let all: Vec<_> = (0..10 * BACKLOG).map(|n| client(n, family)).collect();
        let answers: Vec<_> =
            all.iter().map(|client| answer(client, &rig.frame(&client.syn()))).collect();
        let mut acknowledged = 0;
        for (client, answer) in all.iter().zip(&answers) {
            let departed = rig.frame(&client.ack(answer, HELLO));
            let end = client.isn.wrapping_add(1 + HELLO.len() as u32);
            acknowledged += client.hears(&departed).iter().filter(|it| it.ack == end).count();
        }
        assert!(acknowledged <= BACKLOG as usize);
        let counters = rig.stats().counters;
        assert_eq!(counters.of(Counter::TcpPassiveOpens), u64::from(BACKLOG));
        assert_eq!(counters.of(Counter::TcpExtListenOverflows), u64::from(9 * BACKLOG));
        // Each comes again with its text until there is room, as clients do.
        let mut served = vec![];
        for _ in 0..10 {
            while let Some(id) = accept(&mut rig, listener) {
                assert_eq!(read(&mut rig, id), HELLO);
                served.push(rig.sockets(|s| s.tcp_ends(id).unwrap()).0.1);
                rig.sockets(|s| s.tcp_abort(id).unwrap());
            }
            for (client, answer) in all.iter().zip(&answers) {
                if !served.contains(&client.from) {
                    rig.frame(&client.ack(answer, HELLO));
                }
            }
        }
        assert_eq!(served.len(), all.len(), "all of them, each once");
    }
}

/// Row 11 (Bock et al. 2021): no data is sent before the peer's address is proven.
#[test]
fn no_text_goes_to_a_source_that_is_not_proven_nor_is_any_of_its_text_kept() {
    for family in FAMILIES {
        let (mut rig, listener) = server(8);
        let it = client(1, family);
        let text = b"GET / HTTP/1.1\r\nHost: forbidden.example\r\n\r\n";
        for flags in [TcpFlags::SYN, TcpFlags::PSH | TcpFlags::ACK, TcpFlags::PSH] {
            let departed = rig.frame(&it.frame((it.isn, 9), flags, &it.options, text));
            let heard = it.hears(&departed);
            assert!(heard.iter().all(|it| it.text.is_empty()), "{heard:?}");
        }
        // What came with the SYN was not acknowledged, and is not read twice when it comes again.
        let again = it.frame((it.isn, 0), TcpFlags::SYN, &it.options, text);
        let answer = answer(&it, &rig.frame(&again));
        rig.frame(&it.ack(&answer, text));
        let id = accept(&mut rig, listener).unwrap();
        assert_eq!(read(&mut rig, id), text);
    }
}

/// A sender without a route gets no second SYN-ACK either: nothing of it is kept.
#[test]
fn a_syn_that_cannot_be_answered_leaves_no_entry() {
    for family in FAMILIES {
        // No gateway: the client is nowhere.
        let mut config = floodwall_tests::ethernet_config(HOST);
        config.tcp_connections_max = 8;
        let mut rig = floodwall_tests::Rig::with_neighbor(&config, floodwall_tests::craft::PEER);
        listen(&mut rig, PORT, 8);
        let departed = rig.frame(&client(1, family).syn());
        assert!(departed.is_empty() && half_open(&rig) == 0, "{family:?}");
        assert_eq!(rig.stack.half_open_stats().unwrap().unsent, 1);
        let later = rig.run_for(Duration::from_secs(20));
        assert!(client(1, family).hears(&later).is_empty());
        assert!(rig.conservation().holds());
    }
}

/// A restart and a sister instance that have the secret accept each other's cookies, if the wall
/// clocks agree.
#[test]
fn a_sister_host_with_the_same_secret_takes_over_in_mid_handshake() {
    use floodwall_stack::tcp_set::Secret;
    let secret = Secret::from_bytes(&std::array::from_fn::<u8, 32, _>(|n| n as u8)).unwrap();
    let other = Secret::from_bytes(&[3, 1, 4, 1].repeat(16)).unwrap();
    let today = Duration::from_secs(1_800_000_000);
    for family in FAMILIES {
        for (theirs, later, good) in [(secret, 9, true), (secret, 60, false), (other, 9, false)] {
            let (mut first, _) = server(8);
            let (mut second, listener) = server(8);
            second.random = floodwall_base::Randomness::from_number(77);
            // They were started at different times, and have been up for long.
            second.now += Duration::from_secs(5000);
            first.now += Duration::from_secs(300);
            for (rig, secret, ahead) in [(&mut first, secret, 0), (&mut second, theirs, later)] {
                let now = rig.now;
                rig.stack.set_wall_clock(now, today + Duration::from_secs(ahead));
                assert!(rig.stack.set_cookie_secret(secret, now));
                assert!(!rig.stack.set_cookie_secret(secret, now), "nothing new");
                rig.now += Duration::from_millis(1);
            }
            let it = client(1, family);
            let answered = answer(&it, &first.frame(&it.syn()));
            let departed = second.frame(&it.ack(&answered, HELLO));
            match accept(&mut second, listener) {
                Some(id) => assert!(good && read(&mut second, id) == HELLO),
                None => {
                    // A cookie may be outstanding: the segment may be a later one of a client after
                    // its first was lost. One without text is reset.
                    assert!(!good && it.hears(&departed).is_empty(), "{later} s");
                    let departed = second.frame(&it.ack(&answered, b""));
                    assert!(it.hears(&departed)[0].flags.contains(TcpFlags::RST), "{later} s");
                }
            }
        }
    }
    let _ = rig;
}
