//! What we refuse, as the kernel's sockets see it.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use floodwall_base::DropReason;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RawProtocol, SocketType};

use crate::bench::{Bench, CLOSED_PORT};
use crate::command::run;
use crate::echo::{PATIENCE, bind};
use crate::link::{Ends, ends};

/// SCTP, and a number that is kept for experiments (RFC 3692).
const PROTOCOLS: [u32; 2] = [132, 253];

/// Sends until the socket receives an error: an error may be withheld by our limits, for a while.
fn error_of(socket: &UdpSocket) -> io::Error {
    socket.send(b"anybody?").unwrap();
    socket.recv(&mut [0; 64]).expect_err("no answer")
}

pub(crate) fn closed_port(bench: Bench) {
    for Ends { kernel, ours } in ends() {
        let socket = bind(kernel);
        socket.connect((ours, CLOSED_PORT)).unwrap();
        for _ in 0..3 {
            assert_eq!(error_of(&socket).kind(), ErrorKind::ConnectionRefused, "{ours}");
        }
    }
    assert_eq!(bench.running.stats().drops_in.of(DropReason::UdpNoPort), 6);
    bench.end_without_loss();
}

/// A raw socket in std's clothes: it sends and receives as a datagram socket does.
fn raw(to: IpAddr, protocol: u32) -> UdpSocket {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let protocol = Protocol::from_raw(RawProtocol::new(protocol).unwrap());
    let socket = rustix::net::socket(family, SocketType::RAW, Some(protocol)).unwrap();
    rustix::net::connect(&socket, &SocketAddr::new(to, 0)).unwrap();
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

pub(crate) fn unknown_protocol(bench: Bench) {
    for Ends { ours, .. } in ends() {
        // Protocol unreachable; IPv6 calls it a parameter problem.
        let expected = if ours.is_ipv4() { Errno::NOPROTOOPT } else { Errno::PROTO };
        for protocol in PROTOCOLS {
            let error = error_of(&raw(ours, protocol));
            assert_eq!(error.raw_os_error(), Some(expected.raw_os_error()), "{ours}: {error}");
        }
    }
    assert_eq!(bench.running.stats().drops_in.of(DropReason::ProtocolUnknown), 4);
    bench.end_without_loss();
}

pub(crate) fn traceroute(bench: Bench) {
    for Ends { ours, .. } in ends() {
        let traced = || {
            let said = run("traceroute", &format!("-n -q1 -w5 -N1 -m3 {ours}"), b"")?;
            let hops: Vec<_> = said.text.lines().skip(1).collect();
            let is_ours = |hop: &&str| hop.split_whitespace().nth(1) == Some(&ours.to_string());
            let ends = hops.len() == 1 && hops.iter().all(is_ours);
            Some((ends, said))
        };
        // A single probe may be lost on the way, on a machine with much else to do.
        let Some((mut ends, mut said)) = traced() else { return };
        if !ends && let Some(again) = traced() {
            (ends, said) = again;
        }
        assert!(ends, "{} {}", said.text, said.complaint);
    }
    bench.end_without_loss();
}
