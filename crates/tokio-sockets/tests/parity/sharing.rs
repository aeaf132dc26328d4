//! One socket, several tasks; and tasks that give up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::parity::datagrams::Datagrams;
use crate::parity::place::{Place, soon};

pub(crate) async fn several_readers_share_what_comes<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    let (b, count) = (Arc::new(b), 40_u32);
    let (found, mut all) = mpsc::unbounded_channel();
    for _ in 0..8 {
        let (b, found) = (Arc::clone(&b), found.clone());
        tokio::spawn(async move {
            let mut room = [0; 4];
            while b.recv(&mut room).await.is_ok_and(|len| len == 4) {
                found.send(u32::from_be_bytes(room)).unwrap();
            }
        });
    }
    for n in 0..count {
        a.send(&n.to_be_bytes()).await.unwrap();
        if n % 7 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let mut seen = BTreeSet::new();
    while seen.len() < count as usize {
        let n = soon(all.recv()).await.unwrap();
        assert!(seen.insert(n), "{n} was read twice");
    }
    // Each of the eight is woken by one datagram, and none stays asleep.
    for _ in 0..8 {
        a.send(b"end").await.unwrap();
    }
    drop(found);
    assert_eq!(soon(all.recv()).await, None);
}

pub(crate) async fn a_reader_and_a_writer_share_a_socket<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    let echo = tokio::spawn(async move {
        let mut room = [0; 8];
        for _ in 0..200 {
            let len = soon(b.recv(&mut room)).await.unwrap();
            b.send(&room[..len]).await.unwrap();
        }
    });
    let a = Arc::new(a);
    let reading = Arc::clone(&a);
    let (go, mut gone) = mpsc::channel(20);
    let reader = tokio::spawn(async move {
        let mut room = [0; 8];
        for n in 0..200_u32 {
            assert_eq!(soon(reading.recv(&mut room)).await.unwrap(), 4);
            assert_eq!(room[..4], n.to_be_bytes());
            gone.recv().await.unwrap();
        }
    });
    for n in 0..200_u32 {
        go.send(()).await.unwrap();
        a.send(&n.to_be_bytes()).await.unwrap();
    }
    soon(reader).await.unwrap();
    soon(echo).await.unwrap();
}

/// Reads are dropped at every moment; what arrived is read by a later one, once, in order.
pub(crate) async fn a_cancelled_read_loses_nothing<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    const COUNT: u32 = 150;
    let sender = tokio::spawn(async move {
        for n in 0..COUNT {
            a.send(&n.to_be_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_micros(u64::from(n % 5) * 300)).await;
        }
        a
    });
    let mut room = [0; 4];
    let (mut next, mut cancelled) = (0, 0_u32);
    soon(async {
        while next < COUNT {
            let patience = Duration::from_micros(u64::from(cancelled % 7) * 200);
            match tokio::time::timeout(patience, b.recv(&mut room)).await {
                Ok(len) => {
                    assert_eq!(len.unwrap(), 4);
                    assert_eq!(u32::from_be_bytes(room), next);
                    next += 1;
                }
                Err(_) => cancelled += 1,
            }
        }
    })
    .await;
    sender.await.unwrap();
}

/// The one that was to be woken gives up; the other must not sleep on.
pub(crate) async fn a_cancelled_reader_leaves_its_wake_to_another<P: Place>(place: Arc<P>) {
    for _ in 0..20 {
        let (a, b) = place.connected().await;
        let b = Arc::new(b);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let b = Arc::clone(&b);
                tokio::spawn(async move { b.recv(&mut [0; 10]).await })
            })
            .collect();
        tokio::task::yield_now().await;
        a.send(b"for one of them").await.unwrap();
        readers[0].abort();
        a.send(b"for the other").await.unwrap();
        let mut readers = readers.into_iter();
        // It may have been quicker.
        let _ = soon(readers.next().unwrap()).await;
        assert!(soon(readers.next().unwrap()).await.unwrap().is_ok());
    }
}

pub(crate) async fn select_between_two_sockets_loses_nothing<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    let (c, d) = place.connected().await;
    const COUNT: u32 = 100;
    let sender = tokio::spawn(async move {
        for n in 0..COUNT {
            a.send(&n.to_be_bytes()).await.unwrap();
            c.send(&n.to_be_bytes()).await.unwrap();
            if n % 3 == 0 {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        (a, c)
    });
    let (mut room, mut other) = ([0; 4], [0; 4]);
    let mut next = [0, 0];
    soon(async {
        while next != [COUNT, COUNT] {
            let (at, n) = tokio::select! {
                len = b.recv(&mut room) => { len.unwrap(); (0, u32::from_be_bytes(room)) }
                len = d.recv(&mut other) => { len.unwrap(); (1, u32::from_be_bytes(other)) }
            };
            assert_eq!(n, next[at]);
            next[at] += 1;
        }
    })
    .await;
    sender.await.unwrap();
}

/// The waker of the task that began to wait is not the one that waits in the end.
pub(crate) async fn a_socket_moves_to_another_task<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    let b = tokio::spawn(async move {
        let gave_up =
            tokio::time::timeout(Duration::from_millis(5), b.recv(&mut [0; 10])).await.is_err();
        assert!(gave_up);
        b
    });
    let b = b.await.unwrap();
    let reader = tokio::spawn(async move { b.recv(&mut [0; 10]).await.unwrap() });
    tokio::time::sleep(Duration::from_millis(5)).await;
    a.send(b"hello").await.unwrap();
    assert_eq!(soon(reader).await.unwrap(), 5);
}
