//! Connections through a guard, in network namespaces of their own.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a failing test may panic")]

mod rig;

use std::net::UdpSocket;
use std::time::Duration;

use floodwall_guard::{GuardConfig, GuardError, UdpPort, Watch};
use rig::{Rig, config, connect_and_echo, counted, echo, server, start};

#[test]
fn connections_of_both_families_are_answered_and_taken_over() {
    let Some(rig) = Rig::new() else { return };
    for v6 in [false, true] {
        echo(server(v6, 7000));
    }
    let Some(guard) = start(config(&[7000], Watch::Always)) else { return };
    for v6 in [false, true] {
        for n in 0..50 {
            rig.run(move || connect_and_echo(server(v6, 7000))).unwrap_or_else(|error| {
                panic!("IPv6 {v6}, number {n}: {error}: {:?}", guard.status())
            });
        }
    }
    assert_eq!(counted(&guard, "syn_answered"), 100);
    assert_eq!(counted(&guard, "adopted"), 100);
    assert_eq!(counted(&guard, "not_adopted"), 0);
}

#[test]
fn asleep_the_kernel_answers() {
    let Some(rig) = Rig::new() else { return };
    echo(server(false, 7000));
    let Some(guard) = start(config(&[7000], Watch::Backlog { shift: 2 })) else { return };
    for _ in 0..10 {
        rig.run(|| connect_and_echo(server(false, 7000))).unwrap();
    }
    assert_eq!(counted(&guard, "syn_answered"), 0);
    assert_eq!(counted(&guard, "syn_asleep"), 10);
}

#[test]
fn a_second_guard_and_cookies_that_are_off_are_refused_in_words() {
    let Some(_rig) = Rig::new() else { return };
    let Some(_guard) = start(config(&[7000], Watch::Always)) else { return };
    let error = floodwall_guard::Guard::start(config(&[7000], Watch::Always)).unwrap_err();
    assert!(matches!(error, GuardError::Busy(_)), "{error}");
    assert!(error.to_string().contains("XDP program already"));
    rig::sysctl("ipv4/tcp_syncookies", "0");
    let error = floodwall_guard::Guard::start(config(&[7000], Watch::Always)).unwrap_err();
    assert!(matches!(error, GuardError::CookiesOff), "{error}");
}

#[test]
fn one_loud_sender_of_datagrams_is_cut_to_its_rate() {
    let Some(rig) = Rig::new() else { return };
    let udp_ports = vec![UdpPort { port: 7000, protocol: None }];
    let udp = GuardConfig { udp_ports, ..config(&[], Watch::Always) };
    let Some(guard) = start(udp) else { return };
    for v6 in [false, true] {
        let socket = UdpSocket::bind(server(v6, 7000)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        rig.run(move || {
            let from = UdpSocket::bind(if v6 { "[::]:0" } else { "0.0.0.0:0" }).unwrap();
            for _ in 0..3000 {
                from.send_to(b"a question", server(v6, 7000)).unwrap();
            }
        });
        let arrived = std::iter::from_fn(|| socket.recv(&mut [0; 64]).ok()).count();
        // As many as the socket's buffer holds.
        assert!(arrived > 100, "{arrived}");
    }
    let (passed, dropped) = (counted(&guard, "datagrams"), counted(&guard, "datagrams_dropped"));
    // A quarter of a second's thousand at once, and what is due while they are sent.
    assert_eq!(passed + dropped, 6000);
    assert!(passed >= 500 && dropped > 2000, "{passed} {dropped}");
}
