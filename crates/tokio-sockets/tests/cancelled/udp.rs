//! Futures of UDP sockets.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Waker};

use floodwall_base::Family;
use floodwall_tokio_sockets::UdpSocket;
use tokio::io::Interest;

use crate::cancelled::{Bell, Host, cut, host, nothing, points, soon};

const PORT: u16 = 7000;

/// A socket that a dropped call has opened is closed again, and its port is free.
pub(crate) async fn opens(family: Family) {
    let Host { network, ip, _other_end } = host(family).await;
    let at = SocketAddr::new(ip, PORT);
    let peers = [
        UdpSocket::bind(&network, (ip, 0)).await.unwrap(),
        UdpSocket::bind(&network, (ip, 0)).await.unwrap(),
    ];
    let [one, other] = peers.each_ref().map(|peer| peer.local_addr().unwrap());
    for point in points() {
        drop(cut(point, UdpSocket::bind(&network, at), nothing()).await);
        drop(soon(UdpSocket::bind(&network, at)).await.expect("the port is free again"));
        drop(cut(point, UdpSocket::bind_with(&network, at, |_| ()), nothing()).await);
        let socket = soon(UdpSocket::bind(&network, at)).await.expect("the port is free again");

        cut(point, socket.connect(one), nothing()).await;
        soon(socket.connect(other)).await.unwrap();
        assert_eq!(socket.peer_addr().unwrap(), other);
        soon(peers[1].send_to(b"hello", at)).await.unwrap();
        assert_eq!(soon(socket.recv(&mut [0; 8])).await.unwrap(), 5, "of its last peer");

        cut(point, socket.set_settings(|settings| settings.hop_limit = Some(9)), nothing()).await;
        soon(socket.set_settings(|settings| settings.hop_limit = Some(8))).await.unwrap();
        assert_eq!(socket.settings().hop_limit, Some(8));
    }
    for point in points() {
        drop(cut(point, UdpSocket::bind_every(&network), nothing()).await);
    }
    drop(soon(UdpSocket::bind_every(&network)).await.expect("there is room for it"));
}

/// Whether a call takes what it reads.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    Takes,
    Looks,
}

/// One kind of read: what it finds, where it returns bytes, is what was sent; what it has not taken
/// is there for the next one; and another that waits is woken all the same.
async fn read<F: Future<Output = io::Result<Vec<u8>>>>(
    [a, b]: &[UdpSocket; 2],
    reads: Reads,
    call: impl Fn() -> F,
) {
    for (n, point) in points().enumerate() {
        let says = [n as u8; 4];
        let waiting = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&waiting));
        let mut other = Box::pin(b.readable());
        assert!(other.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let done = cut(point, call(), async { assert_eq!(a.send(&says).await.unwrap(), 4) }).await;
        soon(waiting.0.notified()).await;
        let mut room = [0; 8];
        let found = done.map(|done| done.unwrap());
        assert!(found.as_ref().is_none_or(|found| found.is_empty() || **found == says));
        if found.is_none() || reads == Reads::Looks {
            assert_eq!(soon(b.recv(&mut room)).await.unwrap(), 4, "{point:?}");
            assert_eq!(room[..4], says);
        }
        assert_eq!(b.try_recv(&mut room).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}

/// A call that is dropped has taken nothing.
pub(crate) async fn reads(family: Family) {
    use Reads::{Looks, Takes};
    let Host { network, ip, _other_end } = host(family).await;
    let both = [
        UdpSocket::bind(&network, (ip, 0)).await.unwrap(),
        UdpSocket::bind(&network, (ip, 0)).await.unwrap(),
    ];
    let [here, there] = both.each_ref().map(|socket| socket.local_addr().unwrap());
    both[0].connect(there).await.unwrap();
    both[1].connect(here).await.unwrap();
    let b = &both[1];
    read(&both, Takes, || async {
        let mut room = [0; 8];
        b.recv(&mut room).await.map(|len| room[..len].to_vec())
    })
    .await;
    read(&both, Takes, || async {
        let mut room = [0; 8];
        b.recv_from(&mut room).await.map(|(len, _)| room[..len].to_vec())
    })
    .await;
    read(&both, Takes, || async {
        let mut room = [0; 8];
        b.receive(&mut room).await.map(|received| room[..received.len].to_vec())
    })
    .await;
    read(&both, Takes, || async { b.recv_packet().await.map(|packet| packet.to_vec()) }).await;
    read(&both, Takes, || async {
        let mut heard = Vec::new();
        b.recv_batch(&mut heard, 8).await.map(|_| heard.iter().flat_map(|it| it.to_vec()).collect())
    })
    .await;
    read(&both, Takes, || async {
        let mut room = [0; 8];
        b.recv_segments(&mut room).await.map(|got| room[..got.received.len].to_vec())
    })
    .await;
    read(&both, Takes, || async {
        let mut room = [0; 8];
        b.async_io(Interest::READABLE, || b.try_recv(&mut room)).await?;
        Ok(room[..4].to_vec())
    })
    .await;
    read(&both, Looks, || async {
        let mut room = [0; 8];
        b.peek(&mut room).await.map(|len| room[..len].to_vec())
    })
    .await;
    read(&both, Looks, || async {
        let mut room = [0; 8];
        b.peek_from(&mut room).await.map(|(len, _)| room[..len].to_vec())
    })
    .await;
    read(&both, Looks, || async { b.peek_sender().await.map(|_| Vec::new()) }).await;
    read(&both, Looks, || async { b.readable().await.map(|()| Vec::new()) }).await;
    read(&both, Looks, || async { b.ready(Interest::READABLE).await.map(|_| Vec::new()) }).await;
}

/// Fills a socket's credit; how many datagrams it took.
fn fill(socket: &UdpSocket) -> usize {
    (0..).take_while(|_| socket.try_send(&[7; 100]).is_ok()).count()
}

/// One kind of write, while there is no credit: a call that is dropped has sent all of one datagram
/// or nothing, and credit comes back for the next.
async fn write<F: Future<Output = io::Result<usize>>>(
    [a, b]: &[UdpSocket; 2],
    each: usize,
    call: impl Fn() -> F,
) {
    for point in points() {
        let mut sent = fill(a);
        sent += cut(point, call(), nothing()).await.map_or(0, |done| done.unwrap() / each);
        sent += soon(call()).await.unwrap() / each;
        // The writes between arrive as well, in order; none of them is there twice.
        let mut room = [0; 200];
        for _ in 0..sent {
            assert_eq!(soon(b.recv(&mut room)).await.unwrap(), 100, "{point:?}");
        }
        soon(a.send(b"the last")).await.unwrap();
        assert_eq!(soon(b.recv(&mut room)).await.unwrap(), 8, "{point:?}");
    }
}

/// Credit that a dropped call waited for is there for the next.
pub(crate) async fn writes(family: Family) {
    let Host { network, ip, _other_end } = host(family).await;
    let narrow = UdpSocket::bind_with(&network, (ip, 0), |settings| settings.send_bytes = 2000);
    let both = [soon(narrow).await.unwrap(), UdpSocket::bind(&network, (ip, 0)).await.unwrap()];
    let [here, there] = both.each_ref().map(|socket| socket.local_addr().unwrap());
    both[0].connect(there).await.unwrap();
    both[1].connect(here).await.unwrap();
    let a = &both[0];
    let says = &[7; 100];
    write(&both, 100, || a.send(says)).await;
    write(&both, 100, || a.send_to(says, there)).await;
    write(&both, 100, || async { a.async_io(Interest::WRITABLE, || a.try_send(says)).await }).await;
    write(&both, 100, || async {
        a.writable().await?;
        Ok(0)
    })
    .await;
    write(&both, 1, || async {
        a.ready(Interest::WRITABLE).await?;
        a.send_batch(&[(says, there)]).await
    })
    .await;
    write(&both, 100, || a.send_segments(says, 100, there)).await;
}
