//! Errors are reported, with the same kind of error.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::parity::datagrams::Datagrams;
use crate::parity::place::{Ip, Place, never, soon};
use crate::parity::transfer::{largest, payload};

/// The system's numbers for errors without a kind of their own.
const DESTINATION_MISSING: i32 = 89;
const MESSAGE_TOO_LONG: i32 = 90;
const FAMILY_NOT_SUPPORTED: i32 = 97;

fn kind<T: std::fmt::Debug>(outcome: io::Result<T>) -> ErrorKind {
    outcome.expect_err("it is refused").kind()
}

fn number<T: std::fmt::Debug>(outcome: io::Result<T>) -> Option<i32> {
    outcome.expect_err("it is refused").raw_os_error()
}

pub(crate) async fn a_port_in_use_is_refused<P: Place>(place: Arc<P>) {
    let one = place.one().await;
    let taken = one.local_addr().unwrap();
    assert_eq!(kind(place.bind(taken).await.map(drop)), ErrorKind::AddrInUse);
}

pub(crate) async fn a_wildcard_beside_an_address_is_refused<P: Place>(place: Arc<P>) {
    let one = place.one().await;
    let all = SocketAddr::new(place.any().ip(), one.local_addr().unwrap().port());
    assert_eq!(kind(place.bind(all).await.map(drop)), ErrorKind::AddrInUse);
    drop(one);
    let all = place.bind(all).await.unwrap();
    let one = SocketAddr::new(place.here(), all.local_addr().unwrap().port());
    assert_eq!(kind(place.bind(one).await.map(drop)), ErrorKind::AddrInUse);
}

pub(crate) async fn a_port_is_free_again_once_its_socket_is_dropped<P: Place>(place: Arc<P>) {
    let at = place.one().await.local_addr().unwrap();
    for _ in 0..100 {
        drop(place.bind(at).await.expect("the one before was dropped"));
    }
}

pub(crate) async fn an_address_of_another_host_is_refused<P: Place>(place: Arc<P>) {
    let elsewhere: SocketAddr = match place.ip() {
        Ip::V4 => "192.0.2.1:0".parse().unwrap(),
        Ip::V6 => "[2001:db8::1]:0".parse().unwrap(),
    };
    assert_eq!(kind(place.bind(elsewhere).await.map(drop)), ErrorKind::AddrNotAvailable);
}

pub(crate) async fn port_zero_gets_a_port<P: Place>(place: Arc<P>) {
    let (a, b) = (place.one().await, place.one().await);
    let (a, b) = (a.local_addr().unwrap(), b.local_addr().unwrap());
    assert_eq!((a.ip(), b.ip()), (place.here(), place.here()));
    assert!(a.port() >= 1024 && b.port() >= 1024 && a.port() != b.port(), "{a} {b}");
}

pub(crate) async fn a_peer_is_known_only_when_connected<P: Place>(place: Arc<P>) {
    let (a, b) = place.two().await;
    assert_eq!(kind(a.peer_addr()), ErrorKind::NotConnected);
    a.connect(b.local_addr().unwrap()).await.unwrap();
    assert_eq!(a.peer_addr().unwrap(), b.local_addr().unwrap());
}

pub(crate) async fn sending_without_a_destination_is_refused<P: Place>(place: Arc<P>) {
    let one = place.one().await;
    assert_eq!(number(one.send(b"no peer").await), Some(DESTINATION_MISSING));
    assert_eq!(number(one.try_send(b"no peer")), Some(DESTINATION_MISSING));
}

pub(crate) async fn a_datagram_beyond_the_largest_is_refused<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    let sent = payload(largest(place.ip()) + 1);
    assert_eq!(number(a.send(&sent).await), Some(MESSAGE_TOO_LONG));
    assert_eq!(number(a.try_send_to(&sent, b.local_addr().unwrap())), Some(MESSAGE_TOO_LONG));
    a.send(b"fits").await.unwrap();
    let mut room = [0; 10];
    assert_eq!(soon(b.recv(&mut room)).await.unwrap(), 4);
}

pub(crate) async fn port_zero_cannot_be_sent_to<P: Place>(place: Arc<P>) {
    let one = place.one().await;
    let nowhere = SocketAddr::new(place.there(), 0);
    assert_eq!(kind(one.send_to(b"x", nowhere).await), ErrorKind::InvalidInput);
}

pub(crate) async fn a_destination_of_the_other_family_is_refused<P: Place>(place: Arc<P>) {
    if place.ip() == Ip::V6 {
        return;
    }
    let one = place.one().await;
    let other = "[::1]:9".parse().unwrap();
    assert_eq!(number(one.send_to(b"x", other).await), Some(FAMILY_NOT_SUPPORTED));
    assert_eq!(number(one.connect(other).await), Some(FAMILY_NOT_SUPPORTED));
}

/// A closed port there. A socket of ours is gone when its worker has processed the drop.
async fn closed<P: Place>(place: &P) -> SocketAddr {
    let at = place.one_there().await.local_addr().unwrap();
    place.settle().await;
    at
}

pub(crate) async fn a_closed_port_is_a_refused_connection<P: Place>(place: Arc<P>) {
    let one = place.one().await;
    one.connect(closed(&*place).await).await.unwrap();
    one.send(b"hello").await.unwrap();
    let refused = soon(one.recv(&mut [0; 10])).await;
    assert_eq!(kind(refused), ErrorKind::ConnectionRefused);
}

pub(crate) async fn a_closed_port_is_told_once_and_the_socket_goes_on<P: Place>(place: Arc<P>) {
    let one = place.one().await;
    one.connect(closed(&*place).await).await.unwrap();
    for _ in 0..3 {
        one.send(b"hello").await.unwrap();
        assert_eq!(kind(soon(one.recv(&mut [0; 10])).await), ErrorKind::ConnectionRefused);
        never(one.recv(&mut [0; 10])).await;
    }
    let peer = place.one_there().await;
    one.connect(peer.local_addr().unwrap()).await.unwrap();
    one.send(b"you").await.unwrap();
    assert_eq!(soon(peer.recv(&mut [0; 10])).await.unwrap(), 3);
}

pub(crate) async fn a_closed_port_is_not_told_to_the_unconnected<P: Place>(place: Arc<P>) {
    let one = place.one().await;
    one.send_to(b"hello", closed(&*place).await).await.unwrap();
    never(one.recv_from(&mut [0; 10])).await;
}

pub(crate) async fn a_peer_that_goes_away_is_a_refused_connection<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    a.send(b"hello").await.unwrap();
    assert_eq!(soon(b.recv(&mut [0; 10])).await.unwrap(), 5);
    drop(b);
    place.settle().await;
    // The first goes out, and its answer is the error.
    a.send(b"still there?").await.unwrap();
    assert_eq!(kind(soon(a.recv(&mut [0; 10])).await), ErrorKind::ConnectionRefused);
}

pub(crate) async fn a_pending_error_can_be_taken<P: Place>(place: Arc<P>) {
    let one = place.one().await;
    assert!(one.take_error().unwrap().is_none());
    one.connect(closed(&*place).await).await.unwrap();
    one.send(b"hello").await.unwrap();
    let error = soon(async {
        loop {
            if let Some(error) = one.take_error().unwrap() {
                return error;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert!(one.take_error().unwrap().is_none(), "it is given once");
    never(one.recv(&mut [0; 10])).await;
}

pub(crate) async fn a_pending_error_wakes_a_reader<P: Place>(place: Arc<P>) {
    let one = Arc::new(place.one().await);
    one.connect(closed(&*place).await).await.unwrap();
    let waiting = Arc::clone(&one);
    let reader = tokio::spawn(async move { waiting.recv(&mut [0; 10]).await });
    tokio::task::yield_now().await;
    one.send(b"hello").await.unwrap();
    assert_eq!(kind(soon(reader).await.unwrap()), ErrorKind::ConnectionRefused);
}

pub(crate) async fn a_broadcast_needs_leave<P: Place>(place: Arc<P>) {
    if place.ip() == Ip::V6 {
        return;
    }
    let one = place.bind(place.any()).await.unwrap();
    assert!(!one.broadcast().unwrap());
    let broadcast = "255.255.255.255:9".parse().unwrap();
    assert_eq!(kind(one.send_to(b"x", broadcast).await), ErrorKind::PermissionDenied);
    one.set_broadcast(true).unwrap();
    assert!(one.broadcast().unwrap());
    let outcome = one.send_to(b"x", broadcast).await;
    // Whether a route leads there is the host's affair.
    assert!(!matches!(&outcome, Err(e) if e.kind() == ErrorKind::PermissionDenied), "{outcome:?}");
    one.set_broadcast(false).unwrap();
    assert_eq!(kind(one.send_to(b"x", broadcast).await), ErrorKind::PermissionDenied);
}
