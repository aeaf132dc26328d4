//! Beginnings and ends: of sockets, of tasks that wait on them, of runtimes.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use crate::parity::datagrams::Datagrams;
use crate::parity::place::{Place, soon};

pub(crate) async fn a_socket_dropped_by_an_aborted_reader_frees_its_port<P: Place>(place: Arc<P>) {
    let one = place.one().await;
    let at = one.local_addr().unwrap();
    let reader = tokio::spawn(async move { one.recv(&mut [0; 10]).await });
    tokio::time::sleep(Duration::from_millis(5)).await;
    reader.abort();
    assert!(soon(reader).await.unwrap_err().is_cancelled());
    // The kernel holds a closed socket while another thread's epoll_wait(2) looks at it.
    let bound = async {
        while let Err(error) = place.bind(at).await {
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(bound).await;
}

/// Bound on one runtime, used on another while the first exists.
pub(crate) async fn a_socket_serves_another_runtime<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    let other = std::thread::Builder::new().spawn(move || {
        crate::parity::current_thread().block_on(async {
            let mut room = [0; 10];
            for _ in 0..20 {
                let len = soon(b.recv(&mut room)).await.unwrap();
                b.send(&room[..len]).await.unwrap();
            }
            b
        })
    });
    let mut room = [0; 10];
    for n in 0..20 {
        a.send(&[n]).await.unwrap();
        assert_eq!(soon(a.recv(&mut room)).await.unwrap(), 1);
        assert_eq!(room[0], n);
    }
    // And home again.
    let other = tokio::task::spawn_blocking(move || other.unwrap().join().unwrap());
    let b = soon(other).await.unwrap();
    a.send(b"back").await.unwrap();
    assert_eq!(soon(b.recv(&mut room)).await.unwrap(), 4);
}

pub(crate) async fn sockets_may_be_dropped_outside_of_any_runtime<P: Place>(place: Arc<P>) {
    let one = place.one().await;
    let at = one.local_addr().unwrap();
    let dropping = std::thread::Builder::new().spawn(move || drop(one)).unwrap();
    soon(tokio::task::spawn_blocking(move || dropping.join().unwrap())).await.unwrap();
    place.bind(at).await.unwrap();
}

pub(crate) async fn a_thousand_short_lives_leave_nothing<P: Place>(place: Arc<P>) {
    let sink = place.one_there().await;
    let to = sink.local_addr().unwrap();
    for n in 0..1000_u32 {
        let one = place.one().await;
        one.send_to(&n.to_be_bytes(), to).await.unwrap();
        let mut room = [0; 8];
        let (len, from) = soon(sink.recv_from(&mut room)).await.unwrap();
        assert_eq!((len, &room[..4]), (4, &n.to_be_bytes()[..]));
        assert_eq!(from, one.local_addr().unwrap());
        // An unread datagram is dropped with it.
        sink.send_to(b"unread", from).await.unwrap();
    }
}
