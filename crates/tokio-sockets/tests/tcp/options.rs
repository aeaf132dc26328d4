//! What can be set, before and after.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::tcp::place::{Listener, Place, Socket, Stream, soon};

pub(crate) async fn options_are_read_back<P: Place>(place: Arc<P>) {
    let (mut here, mut there) = place.connected().await;
    assert!(!here.nodelay());
    here.set_nodelay(true);
    assert!(here.nodelay());
    if !place.is_v6() {
        // tokio's name is the IPv4 option's.
        assert_eq!(here.ttl(), 64);
        here.set_ttl(9).unwrap();
        assert_eq!(here.ttl(), 9);
        here.set_ttl(256).unwrap_err();
    }
    assert_eq!(here.linger(), None);
    here.set_zero_linger();
    assert_eq!(here.linger(), Some(Duration::ZERO));
    here.write_all(b"it goes on").await.unwrap();
    soon(there.read_exact(&mut [0; 10])).await.unwrap();
}

pub(crate) async fn a_socket_is_bound_before_it_connects<P: Place>(place: Arc<P>) {
    let listener = place.listener().await;
    // A free port.
    let free = place.socket(place.is_v6());
    free.set_and_check_options();
    let port = {
        let (first, _there) = place.connected().await;
        first.local_addr().port()
    };
    let port = if port > 40_000 { port - 9000 } else { port + 9000 };
    let local = (place.here(), port).into();
    free.bind(local).unwrap();
    let mut here = soon(free.connect(listener.local_addr())).await.unwrap();
    assert_eq!(here.local_addr(), local);
    let (mut there, peer) = soon(listener.accept()).await.unwrap();
    assert_eq!(peer, local);
    there.write_all(b"x").await.unwrap();
    soon(here.read_exact(&mut [0])).await.unwrap();
    // The side that closes first waits (TIME-WAIT): not the requested port.
    drop(there);
    assert_eq!(soon(here.read(&mut [0])).await.unwrap(), 0);
}

pub(crate) async fn a_socket_listens<P: Place>(place: Arc<P>) {
    // At an address that is here; the connecting socket is here, too.
    let socket = place.socket(place.is_v6());
    socket.set_and_check_options();
    socket.bind((place.here(), 0).into()).unwrap();
    let listener = socket.listen(5).await.unwrap();
    let mut here = soon(place.connect(listener.local_addr())).await.unwrap();
    let (mut there, _) = soon(listener.accept()).await.unwrap();
    here.write_all(b"x").await.unwrap();
    soon(there.read_exact(&mut [0])).await.unwrap();
}

pub(crate) async fn several_listen_at_one_port_that_all_share_it<P: Place>(place: Arc<P>) {
    let socket = |port| {
        let socket = place.socket(place.is_v6());
        socket.share_port();
        socket.bind((place.here(), port).into()).unwrap();
        socket
    };
    let first = socket(0).listen(16).await.unwrap();
    let at = first.local_addr();
    let second = socket(at.port()).listen(16).await.unwrap();
    assert_eq!(second.local_addr(), at);
    let alone = place.socket(place.is_v6());
    assert!(alone.bind(at).is_err() || alone.listen(16).await.is_err(), "it does not share");
    for _ in 0..20 {
        let mut here = soon(place.connect(at)).await.unwrap();
        let accepted = soon(async {
            tokio::select! { it = first.accept() => it, it = second.accept() => it }
        });
        let (mut there, _) = accepted.await.unwrap();
        here.write_all(b"x").await.unwrap();
        soon(there.read_exact(&mut [0])).await.unwrap();
    }
    // The port stays with the one that is left, and is free after it.
    drop(first);
    for _ in 0..4 {
        let mut here = soon(place.connect(at)).await.unwrap();
        let (mut there, _) = soon(second.accept()).await.unwrap();
        there.write_all(b"x").await.unwrap();
        soon(here.read_exact(&mut [0])).await.unwrap();
    }
    drop(second);
    assert!(place.connect(at).await.is_err());
}

pub(crate) async fn a_socket_of_the_other_family_is_refused<P: Place>(place: Arc<P>) {
    let listener = place.listener().await;
    let other = place.socket(!place.is_v6());
    assert!(other.bind((place.here(), 0).into()).is_err());
    assert!(other.connect(listener.local_addr()).await.is_err());
}
