//! The relay example: what goes anywhere through a TUN goes to a proxy, connections and datagrams.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::command::{Process, ip};
use crate::link::NAME;
use crate::namespace::{inside, until};
use crate::tcp::example;

const PATIENCE: Duration = Duration::from_secs(30);
/// Networks without an owner, and a host in each.
const ANYWHERE: [(&str, &str); 2] =
    [("198.51.100.0/24", "198.51.100.7:4711"), ("2001:db8::/32", "[2001:db8::7]:80")];

/// A proxy (RFC 1928, without authentication) that lets a client through to an echo of its own, and
/// reports the requested destination.
#[expect(clippy::disallowed_methods, reason = "it runs beside the test")]
fn proxy() -> (SocketAddr, Receiver<SocketAddr>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let (at, (tells, told)) = (listener.local_addr().unwrap(), channel());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tells = tells.clone();
            thread::spawn(move || serve(stream, &tells));
        }
    });
    (at, told)
}

fn serve(mut stream: TcpStream, tells: &Sender<SocketAddr>) {
    let (mut greeting, mut request) = ([0; 3], [0; 3]);
    stream.read_exact(&mut greeting).unwrap();
    stream.write_all(&[5, 0]).unwrap();
    stream.read_exact(&mut request).unwrap();
    assert_eq!((greeting, request[0], request[2]), ([5, 1, 0], 5, 0));
    let mut bytes = [0; 19];
    stream.read_exact(&mut bytes[..1]).unwrap();
    let len = if bytes[0] == 1 { 7 } else { 19 };
    stream.read_exact(&mut bytes[1..len]).unwrap();
    let (to, _) = end(&bytes);
    match request[1] {
        1 => {
            tells.send(to).unwrap();
            stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
            let mut room = [0; 4096];
            while let Ok(n @ 1..) = stream.read(&mut room) {
                stream.write_all(&room[..n]).unwrap();
            }
        }
        3 => {
            let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
            let port = socket.local_addr().unwrap().port().to_be_bytes();
            stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, port[0], port[1]]).unwrap();
            let mut room = [0; 4096];
            // Each datagram goes back as if it came from where it was sent.
            while let Ok((len, from)) = socket.recv_from(&mut room) {
                tells.send(end(&room[3..len]).0).unwrap();
                socket.send_to(&room[..len], from).unwrap();
            }
        }
        other => panic!("request {other}"),
    }
}

/// An address and port as SOCKS5 writes them, and what is behind.
fn end(bytes: &[u8]) -> (SocketAddr, &[u8]) {
    let (ip, rest) = if bytes[0] == 1 {
        let (ip, rest) = bytes[1..].split_first_chunk::<4>().unwrap();
        (IpAddr::from(*ip), rest)
    } else {
        let (ip, rest) = bytes[1..].split_first_chunk::<16>().unwrap();
        (IpAddr::from(*ip), rest)
    };
    (SocketAddr::new(ip, u16::from_be_bytes([rest[0], rest[1]])), &rest[2..])
}

/// The example on a TUN to which all of [`ANYWHERE`] is routed.
fn relay(proxy: SocketAddr) -> Option<Process> {
    let path = example("relay")?;
    let words = format!("tun:{NAME} 10.77.0.2/24,fd77::2/64 {proxy}");
    let relay = Process::start(path.to_str().unwrap(), &words, b"")?;
    let is_up = || ip(&format!("addr replace 10.77.0.1/24 dev {NAME}"));
    assert!(until(PATIENCE, is_up), "the relay makes its device");
    assert!(crate::link::give_v6("fd77::1/64", NAME));
    assert!(ANYWHERE.iter().all(|(net, _)| ip(&format!("route add {net} dev {NAME}"))));
    Some(relay)
}

/// Connections to anywhere go through a TUN and the relay to a proxy, which receives their
/// destination; bytes go both ways.
#[test]
fn the_relay_example_takes_connections_to_anywhere() {
    inside(|| {
        let (proxy, told) = proxy();
        let Some(relay) = relay(proxy) else { return };
        for (_, to) in ANYWHERE {
            let to: SocketAddr = to.parse().unwrap();
            let connects = || TcpStream::connect_timeout(&to, Duration::from_secs(1)).ok();
            let mut stream = connects();
            assert!(until(PATIENCE, || {
                stream = stream.take().or_else(connects);
                stream.is_some()
            }));
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(&[b'r'; 100_000]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            assert!(back.len() == 100_000 && back.iter().all(|byte| *byte == b'r'));
            assert_eq!(told.recv_timeout(PATIENCE), Ok(to));
        }
        relay.kill();
    });
}

/// Datagrams too: each sender has an association of its own at the proxy, and the kernel's sockets,
/// connected ones, receive the answers, with the destination as their source.
#[test]
fn the_relay_example_takes_datagrams_to_anywhere() {
    inside(|| {
        let (proxy, told) = proxy();
        let Some(relay) = relay(proxy) else { return };
        for (_, to) in ANYWHERE {
            let to: SocketAddr = to.parse().unwrap();
            let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            for n in 0..5_u16 {
                let to = SocketAddr::new(to.ip(), to.port() + n);
                let socket = UdpSocket::bind(any).unwrap();
                socket.connect(to).unwrap();
                socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
                let mut back = [0; 2000];
                let heard = || {
                    let sent = socket.send(&[n as u8; 1200]);
                    sent.and_then(|_| socket.recv(&mut back)).ok()
                };
                // The first ones may come before the device is up.
                let mut len = None;
                let mut heard = heard;
                assert!(until(PATIENCE, || {
                    len = heard();
                    len.is_some()
                }));
                assert_eq!((len, back[0]), (Some(1200), n as u8));
                assert_eq!(told.recv_timeout(PATIENCE), Ok(to));
                while told.try_recv().is_ok() {}
            }
        }
        relay.kill();
    });
}
