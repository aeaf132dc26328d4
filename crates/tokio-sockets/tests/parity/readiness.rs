//! Readiness of a socket, and the cost of waiting.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::io::{Interest, ReadBuf};

use crate::parity::datagrams::Datagrams;
use crate::parity::place::{Place, never, soon};

pub(crate) async fn trying_an_empty_socket_would_block<P: Place>(place: Arc<P>) {
    let one = place.one().await;
    let mut room = [0; 10];
    assert_eq!(one.try_recv_from(&mut room).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(one.try_recv(&mut room).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(one.try_peek(&mut room).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(one.try_peek_from(&mut room).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(one.try_peek_sender().unwrap_err().kind(), ErrorKind::WouldBlock);
}

pub(crate) async fn readable_comes_with_the_datagram<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    never(b.readable()).await;
    a.send(b"here").await.unwrap();
    soon(b.readable()).await.unwrap();
    let mut room = [0; 10];
    assert_eq!(b.try_recv(&mut room).unwrap(), 4);
    assert_eq!(b.try_recv(&mut room).unwrap_err().kind(), ErrorKind::WouldBlock);
    never(b.readable()).await;
}

pub(crate) async fn readable_stays_while_something_waits<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    a.send(b"1").await.unwrap();
    a.send(b"2").await.unwrap();
    let mut room = [0; 10];
    for _ in 0..2 {
        // Twice: the check does not consume readiness.
        soon(b.readable()).await.unwrap();
        soon(b.readable()).await.unwrap();
        // tokio's readiness is a hint: it may have to be repeated.
        while b.try_recv(&mut room).is_err() {
            soon(b.readable()).await.unwrap();
        }
    }
    assert_eq!(b.try_recv(&mut room).unwrap_err().kind(), ErrorKind::WouldBlock);
}

pub(crate) async fn writable_comes_at_once<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    soon(a.writable()).await.unwrap();
    assert_eq!(a.try_send(b"now").unwrap(), 3);
    assert_eq!(soon(b.recv(&mut [0; 10])).await.unwrap(), 3);
}

/// Polls are counted: a waiting task is polled when it begins, when the timer is checked, and when
/// a datagram arrives.
pub(crate) async fn a_waiting_reader_is_not_polled_in_vain<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    let polls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&polls);
    let reader = tokio::spawn(async move {
        let mut bytes = [0; 10];
        let mut room = ReadBuf::new(&mut bytes);
        poll_fn(|cx| {
            count.fetch_add(1, Ordering::Relaxed);
            b.poll_recv(cx, &mut room)
        })
        .await
        .unwrap();
        room.filled().len()
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(polls.load(Ordering::Relaxed) <= 2, "polled {polls:?} times for nothing");
    a.send(b"at last").await.unwrap();
    assert_eq!(soon(reader).await.unwrap(), 7);
    assert!(polls.load(Ordering::Relaxed) <= 4, "polled {polls:?} times for one datagram");
}

pub(crate) async fn readiness_of_both_kinds_is_told_apart<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    let both = Interest::READABLE | Interest::WRITABLE;
    let ready = soon(b.ready(both)).await.unwrap();
    assert!(ready.is_writable() && !ready.is_readable(), "{ready:?}");
    never(b.ready(Interest::READABLE)).await;
    a.send(b"here").await.unwrap();
    let ready = soon(b.ready(Interest::READABLE)).await.unwrap();
    assert!(ready.is_readable() && !ready.is_writable(), "{ready:?}");
    let ready = soon(b.ready(both)).await.unwrap();
    assert!(ready.is_writable() && ready.is_readable(), "{ready:?}");
}

pub(crate) async fn try_io_that_would_block_waits_for_the_next<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    a.send(b"here").await.unwrap();
    soon(b.readable()).await.unwrap();
    let mut room = [0; 10];
    let taken = b.try_io(Interest::READABLE, || Ok(7)).unwrap();
    assert_eq!(taken, 7);
    assert_eq!(soon(b.recv(&mut room)).await.unwrap(), 4);
    let nothing = b.try_io(Interest::READABLE, || b.try_recv(&mut room));
    assert_eq!(nothing.unwrap_err().kind(), ErrorKind::WouldBlock);
    never(b.readable()).await;
}

/// A flag that another task raises as soon as it gets to run.
fn bystander() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    tokio::spawn(async move { raised.store(true, Ordering::Release) });
    flag
}

pub(crate) async fn a_ready_socket_lets_other_tasks_run<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    const COUNT: usize = 200;
    for _ in 0..COUNT {
        a.send(b"x").await.unwrap();
    }
    // All of them wait before the reader begins.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let ran = bystander();
    let mut received = 0;
    let mut room = [0; 10];
    while !ran.load(Ordering::Acquire) {
        assert!(received < COUNT, "{COUNT} datagrams were read without a break");
        soon(b.recv(&mut room)).await.unwrap();
        received += 1;
    }
    assert!(received > 0 || tokio::runtime::Handle::current().metrics().num_workers() > 1);
}

pub(crate) async fn a_sender_lets_other_tasks_run<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    let ran = bystander();
    let mut sent = 0;
    while !ran.load(Ordering::Acquire) {
        assert!(sent < 10_000, "{sent} datagrams were sent without a break");
        a.send(b"x").await.unwrap();
        sent += 1;
    }
    drop(b);
}

pub(crate) async fn poll_forms_agree_with_the_others<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    let (at_a, at_b) = (a.local_addr().unwrap(), b.local_addr().unwrap());
    poll_fn(|cx| a.poll_send_ready(cx)).await.unwrap();
    assert_eq!(poll_fn(|cx| a.poll_send(cx, b"one")).await.unwrap(), 3);
    assert_eq!(poll_fn(|cx| a.poll_send_to(cx, b"three", at_b)).await.unwrap(), 5);
    let mut bytes = [0; 10];
    soon(poll_fn(|cx| b.poll_recv_ready(cx))).await.unwrap();
    assert_eq!(soon(poll_fn(|cx| b.poll_peek_sender(cx))).await.unwrap(), at_a);
    let mut room = ReadBuf::new(&mut bytes);
    assert_eq!(soon(poll_fn(|cx| b.poll_peek_from(cx, &mut room))).await.unwrap(), at_a);
    assert_eq!(room.filled(), b"one");
    room.clear();
    soon(poll_fn(|cx| b.poll_peek(cx, &mut room))).await.unwrap();
    assert_eq!(room.filled(), b"one");
    room.clear();
    assert_eq!(soon(poll_fn(|cx| b.poll_recv_from(cx, &mut room))).await.unwrap(), at_a);
    assert_eq!(room.filled(), b"one");
    room.clear();
    soon(poll_fn(|cx| b.poll_recv(cx, &mut room))).await.unwrap();
    assert_eq!(room.filled(), b"three");
    // Behind what is there already.
    a.send(b"++").await.unwrap();
    soon(poll_fn(|cx| b.poll_recv(cx, &mut room))).await.unwrap();
    assert_eq!(room.filled(), b"three++");
    poll_fn(|cx| {
        assert!(b.poll_recv_from(cx, &mut room).is_pending());
        Poll::Ready(())
    })
    .await;
}
