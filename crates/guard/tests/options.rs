//! Options at both ends of a guarded connection, beside those of a direct one.
//!
//! `ss` tells what the two kernels have agreed on. Every row is made twice in the same namespaces,
//! before the guard is there and behind it, and must be equal.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::rig::{self, IFACE, Rig, agreed, config, counted, server, start, sysctl};
use floodwall_guard::Watch;

/// Both ends of one connection, with data both ways.
fn ends(rig: &Rig, v6: bool, port: u16, buffer: Option<usize>) -> [Vec<String>; 2] {
    let listener = TcpListener::bind(server(v6, port)).unwrap();
    if let Some(bytes) = buffer {
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, bytes).unwrap();
    }
    let client = rig.run(move || {
        let addr = server(v6, port);
        let mut stream = TcpStream::connect_timeout(&addr, Duration::from_secs(3)).unwrap();
        stream.write_all(b"x").unwrap();
        (agreed(&format!("dport = :{port}")), stream)
    });
    let accepted = listener.accept().unwrap();
    let here = agreed(&format!("state established sport = :{port}"));
    drop((client.1, accepted));
    [client.0, here]
}

/// One row: client and server sysctls, and the listener's buffer.
struct Row {
    client: &'static [(&'static str, &'static str)],
    server: &'static [(&'static str, &'static str)],
    buffer: Option<usize>,
    peer_mtu: u32,
}

const PLAIN: Row = Row { client: &[], server: &[], buffer: None, peer_mtu: 1500 };
const TS: &str = "ipv4/tcp_timestamps";
const SACK: &str = "ipv4/tcp_sack";
const SCALE: &str = "ipv4/tcp_window_scaling";
const ECN: &str = "ipv4/tcp_ecn";

fn rows() -> Vec<Row> {
    let off = |client| Row { client, ..PLAIN };
    let here = |server| Row { server, ..PLAIN };
    let buffer = |bytes| Row { buffer: Some(bytes), ..PLAIN };
    let mtu = |peer_mtu| Row { peer_mtu, ..PLAIN };
    vec![
        PLAIN,
        off(&[(TS, "0")]),
        off(&[(SACK, "0")]),
        off(&[(SCALE, "0")]),
        off(&[(TS, "0"), (SACK, "0")]),
        off(&[(TS, "0"), (SCALE, "0")]),
        off(&[(SACK, "0"), (SCALE, "0")]),
        off(&[(TS, "0"), (SACK, "0"), (SCALE, "0")]),
        off(&[(ECN, "1")]),
        here(&[(TS, "0")]),
        here(&[(SACK, "0")]),
        here(&[(SCALE, "0")]),
        here(&[(ECN, "0")]),
        Row { client: &[(ECN, "1")], server: &[(ECN, "0")], ..PLAIN },
        buffer(8 << 10),
        buffer(128 << 10),
        buffer(1 << 20),
        mtu(1480),
    ]
}

fn all(rig: &Rig, first_port: u16, mut follow: impl FnMut()) -> Vec<[Vec<String>; 2]> {
    let usual = [(TS, "1"), (SACK, "1"), (SCALE, "1"), (ECN, "2")];
    let mut found = Vec::new();
    for (row, n) in rows().into_iter().zip(0..) {
        let (client, mtu) = (row.client, row.peer_mtu);
        usual.iter().chain(row.server).for_each(|(name, value)| sysctl(name, value));
        rig.run(move || {
            usual.iter().chain(client).for_each(|(name, value)| sysctl(name, value));
            assert!(rig::ip(&format!("link set gd1 mtu {mtu}")));
        });
        follow();
        for (v6, of) in [(false, 0), (true, 1)] {
            found.push(ends(rig, v6, first_port + 2 * n + of, row.buffer));
        }
    }
    usual.iter().for_each(|(name, value)| sysctl(name, value));
    found
}

#[test]
fn both_ends_agree_on_what_they_would_without_the_guard() {
    let Some(rig) = Rig::new() else { return };
    let (direct_port, guarded_port) = (7000, 7100);
    let direct = all(&rig, direct_port, || {});
    let has =
        |n: usize, word: &str| direct[2 * n].iter().all(|end| end.iter().any(|it| it == word));
    assert!(has(0, "ts") && has(0, "sack") && !has(0, "ecn") && has(8, "ecn"), "{direct:?}");
    let ports: Vec<_> = (guarded_port..).take(40).collect();
    let Some(mut guard) = start(config(&ports, Watch::Always)) else { return };
    let guarded = all(&rig, guarded_port, || drop(guard.follow().unwrap()));
    for (n, (direct, guarded)) in direct.iter().zip(&guarded).enumerate() {
        assert_eq!(direct, guarded, "row {} of {IFACE}, IPv6 {}", n / 2, n % 2);
    }
    assert_eq!(counted(&guard, "adopted"), guarded.len() as u64);
    assert_eq!(counted(&guard, "not_adopted"), 0);
}
