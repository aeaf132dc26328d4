//! Connections through a guard, in network namespaces of their own.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use crate::rig::{self, PEER, Rig, config, connect_and_echo, counted, echo, server, skip, start};
use floodwall_guard::{GuardConfig, GuardError, UdpPort, Watch};

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

/// Segments that the calling thread's namespace has sent again.
fn sent_again() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let [names, values] = [lines.next().unwrap(), lines.next().unwrap()];
    let at = names.split_whitespace().position(|name| name == "RetransSegs").unwrap();
    values.split_whitespace().nth(at).unwrap().parse().unwrap()
}

/// Packets of one poll are given to the second program before TCP has seen the first of them: what
/// follows a cookie's ACK must not be taken for another proof, which would cost the client its data
/// and 200 ms.
#[test]
fn an_ack_and_data_of_one_poll_make_one_connection_and_nothing_is_sent_again() {
    let Some(rig) = Rig::new() else { return };
    for v6 in [false, true] {
        echo(server(v6, 7000));
    }
    let Some(guard) = start(config(&[7000], Watch::Always)) else { return };
    // What the client sends leaves every 10 ms, all at once.
    let slots = rig.run(|| {
        let words = format!("qdisc add dev {PEER} root netem slot 10ms 10ms");
        let done = Command::new("tc").args(words.split(' ')).output();
        done.is_ok_and(|out| out.status.success())
    });
    for v6 in [false, true] {
        let (before, again) = (counted(&guard, "adopted"), rig.run(sent_again));
        let streams = rig.run(move || {
            let mut streams = Vec::new();
            for _ in 0..30 {
                let mut stream = TcpStream::connect(server(v6, 7000)).unwrap();
                stream.set_nodelay(true).unwrap();
                // Two segments right behind the ACK.
                stream.write_all(b"one").unwrap();
                stream.write_all(b"two").unwrap();
                let mut bytes = [0; 6];
                stream.read_exact(&mut bytes).unwrap();
                assert_eq!(&bytes, b"onetwo");
                streams.push(stream);
            }
            streams
        });
        assert_eq!(counted(&guard, "adopted") - before, 30, "{:?}", guard.status());
        assert_eq!((counted(&guard, "not_adopted"), rig.run(sent_again) - again), (0, 0));
        drop(streams);
    }
    match slots {
        true => assert!(counted(&guard, "ack_repeated") >= 60, "{:?}", guard.status()),
        false => skip("no `tc`, or no netem: whether they came in one poll was not looked at"),
    }
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
