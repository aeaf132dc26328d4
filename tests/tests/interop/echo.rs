//! Datagrams that come back: of every size, from dual-stack sockets, and from `nc`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::bench::{Bench, ECHO_PORT};
use crate::command::run;
use crate::link::{Ends, ends};

/// How long an answer may take on a machine with much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that show what is missing, and where.
fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ len as u8).collect()
}

/// Sends a payload of this length and gets it back.
pub(crate) fn there_and_back(socket: &UdpSocket, to: SocketAddr, len: usize) {
    let (sent, mut room) = (payload(len), vec![0; len + 1]);
    assert_eq!(socket.send_to(&sent, to).unwrap(), len);
    let (received, from) = socket.recv_from(&mut room).unwrap_or_else(|error| {
        panic!("{len} bytes to {to} did not come back: {error}");
    });
    assert_eq!((&room[..received], from), (&sent[..], to));
}

pub(crate) fn bind(addr: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((addr, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Every `step`th size up to the largest in one packet; returns how many.
pub(crate) fn sizes(ends: Ends, step: usize) -> u64 {
    let most = if ends.ours.is_ipv4() { 1472 } else { 1452 };
    let socket = bind(ends.kernel);
    let all = (0..=most).step_by(step).chain([most]);
    all.map(|len| there_and_back(&socket, SocketAddr::new(ends.ours, ECHO_PORT), len)).count()
        as u64
}

pub(crate) fn every_size(bench: Bench) {
    let counts = ends().map(|ends| sizes(ends, 1));
    let end = bench.end_without_loss();
    use floodwall_base::Counter::{
        Udp6InDatagrams, Udp6OutDatagrams, UdpInDatagrams, UdpOutDatagrams,
    };
    let count = |counter| end.stats.counters.of(counter);
    assert_eq!([count(UdpInDatagrams), count(Udp6InDatagrams)], counts);
    assert_eq!([count(UdpOutDatagrams), count(Udp6OutDatagrams)], counts);
}

pub(crate) fn dual_stack(bench: Bench) {
    let socket = bind(Ipv6Addr::UNSPECIFIED.into());
    for len in [0, 1, 100, 1452] {
        for Ends { ours, .. } in ends() {
            let ours = match ours {
                IpAddr::V4(ours) => ours.to_ipv6_mapped(),
                IpAddr::V6(ours) => ours,
            };
            there_and_back(&socket, SocketAddr::new(ours.into(), ECHO_PORT), len);
        }
    }
    bench.end_without_loss();
}

pub(crate) fn netcat(bench: Bench) {
    for Ends { ours, .. } in ends() {
        let lines = format!("a line to {ours}\n");
        let words = format!("-u -w 1 {ours} {ECHO_PORT}");
        let Some(said) = run("nc", &words, lines.as_bytes()) else { return };
        assert_eq!(said.text, lines, "{}", said.complaint);
    }
    bench.end_without_loss();
}
