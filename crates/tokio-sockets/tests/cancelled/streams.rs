//! Futures of TCP: listeners and streams.

use std::net::SocketAddr;

use floodwall_base::Family;
use floodwall_tokio_sockets::{Network, TcpListener, TcpSocket, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};

use crate::cancelled::{Host, cut, host, nothing, points, soon};

const PORT: u16 = 7000;

fn socket(network: &Network, v6: bool) -> TcpSocket {
    if v6 { TcpSocket::new_v6(network) } else { TcpSocket::new_v4(network) }.unwrap()
}

/// A listener or a connection that a dropped call has opened is closed again.
pub(crate) async fn opens(family: Family) {
    let Host { network, ip, _other_end } = host(family).await;
    let at = SocketAddr::new(ip, PORT);
    for point in points() {
        drop(cut(point, TcpListener::bind(&network, at), nothing()).await);
        let socket = socket(&network, ip.is_ipv6());
        socket.bind(at).unwrap();
        drop(cut(point, socket.listen(8), nothing()).await);
        drop(cut(point, TcpListener::bind_every(&network), nothing()).await);
        let listener = soon(TcpListener::bind(&network, at)).await.expect("the port is free again");

        for by_socket in [false, true] {
            let connect = async {
                match by_socket {
                    true => self::socket(&network, ip.is_ipv6()).connect(at).await,
                    false => TcpStream::connect(&network, at).await,
                }
            };
            drop(cut(point, connect, nothing()).await);
            let mut here = soon(TcpStream::connect(&network, at)).await.expect("there is room");
            here.write_all(b"here").await.unwrap();
            // What the dropped call left may be accepted before: it is at its end, or reset.
            loop {
                let (mut there, peer) = soon(listener.accept()).await.unwrap();
                let mut room = [0; 4];
                if peer == here.local_addr().unwrap() {
                    soon(there.read_exact(&mut room)).await.unwrap();
                    break;
                }
                assert!(matches!(soon(there.read(&mut room)).await, Ok(0) | Err(_)));
            }
        }
    }
}

/// A call that is dropped has taken no connection.
pub(crate) async fn accepts(family: Family) {
    let Host { network, ip, _other_end } = host(family).await;
    let listener = TcpListener::bind(&network, (ip, 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    for point in points() {
        let mut here = None;
        let connect = async { here = Some(TcpStream::connect(&network, at).await.unwrap()) };
        let accepted = match cut(point, listener.accept(), connect).await {
            Some(accepted) => accepted,
            None => soon(listener.accept()).await,
        };
        assert_eq!(accepted.unwrap().1, here.unwrap().local_addr().unwrap(), "{point:?}");
    }
}

/// Two ends of a connection.
async fn connected(network: &Network, at: SocketAddr) -> [TcpStream; 2] {
    let listener = soon(TcpListener::bind(network, at)).await.unwrap();
    let at = listener.local_addr().unwrap();
    let (here, there) = tokio::join!(TcpStream::connect(network, at), listener.accept());
    [here.unwrap(), there.unwrap().0]
}

/// A call that is dropped has read nothing.
pub(crate) async fn reads(family: Family) {
    let Host { network, ip, _other_end } = host(family).await;
    let mut both = connected(&network, SocketAddr::new(ip, 0)).await;
    let [a, b] = &mut both;
    for (n, point) in points().enumerate() {
        let (says, mut room) = ([n as u8; 4], [0; 4]);
        let write = async { a.write_all(&says).await.unwrap() };
        let read = cut(point, b.read(&mut room), write).await.map_or(0, |len| len.unwrap());
        soon(b.read_exact(&mut room[read..])).await.unwrap();
        assert_eq!(room, says, "{point:?}");
    }
    for (n, point) in points().enumerate() {
        let (says, mut room) = ([n as u8; 4], [0; 4]);
        let write = async { a.write_all(&says).await.unwrap() };
        let done = cut(point, b.peek(&mut room), write).await;
        assert!(done.is_none_or(|len| len.unwrap() == 4 && room == says));
        let write = async { a.write_all(&says).await.unwrap() };
        soon(b.read_exact(&mut room)).await.unwrap();
        assert_eq!(room, says);
        let done = cut(point, b.readable(), write).await;
        assert!(done.is_none_or(|done| done.is_ok()));
        soon(b.read_exact(&mut room)).await.unwrap();
        assert_eq!(room, says);
        let write = async { a.write_all(&says).await.unwrap() };
        let done = cut(point, b.ready(Interest::READABLE), write).await;
        assert!(done.is_none_or(|done| done.unwrap().is_readable()));
        soon(b.read_exact(&mut room)).await.unwrap();
        assert_eq!(room, says);
        cut(point, b.info(), nothing()).await;
        soon(b.info()).await.unwrap();
    }
}

/// Fills both sides' memory; how many bytes that took.
fn fill(stream: &TcpStream, from: usize) -> usize {
    let mut at = from;
    while let Ok(len) = stream.try_write(&bytes(at)) {
        at += len;
    }
    at - from
}

/// A kilobyte of the stream, which is other bytes at each place.
fn bytes(at: usize) -> Vec<u8> {
    (at..at + 1000).map(|n| (n % 251) as u8).collect()
}

/// A call that is dropped has written nothing; one that is done has written what it says.
pub(crate) async fn writes(family: Family) {
    let Host { network, ip, _other_end } = host(family).await;
    let [mut a, mut b] = connected(&network, SocketAddr::new(ip, 0)).await;
    let (mut written, mut read) = (0, 0);
    for (n, point) in points().enumerate() {
        written += fill(&a, written);
        let take = async {
            let mut room = vec![0; 1 << 16];
            while read + 1000 < written {
                let len = b.read(&mut room).await.unwrap();
                assert!(
                    room[..len]
                        .iter()
                        .enumerate()
                        .all(|(n, byte)| { *byte == ((read + n) % 251) as u8 })
                );
                read += len;
            }
        };
        let says = bytes(written);
        match n % 3 {
            0 => {
                let done = cut(point, a.write(&says), take).await;
                written += done.map_or(0, |len| len.unwrap());
            }
            1 => drop(cut(point, a.writable(), take).await),
            _ => drop(cut(point, a.ready(Interest::WRITABLE), take).await),
        }
    }
    for point in points() {
        cut(point, a.flush(), nothing()).await;
    }
    // The end comes behind all that was written, and to be asked for again does no harm.
    for point in points() {
        cut(point, a.shutdown(), nothing()).await;
    }
    let mut rest = Vec::new();
    soon(b.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.iter().enumerate().all(|(n, byte)| *byte == ((read + n) % 251) as u8));
    assert_eq!(read + rest.len(), written);
}
