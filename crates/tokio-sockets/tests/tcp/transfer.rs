//! Bytes arrive, all of them, in order, however they are written and read.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWrite as _, AsyncWriteExt};

use crate::tcp::place::{Listener, Place, Socket, Stream, never, soon};

/// Bytes that repeat only after a long time.
pub(crate) fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

pub(crate) async fn bytes_go_there_and_the_answer_comes_back<P: Place>(place: Arc<P>) {
    let listener = place.listener().await;
    let mut here = soon(place.connect(listener.local_addr())).await.unwrap();
    let (mut there, peer) = soon(listener.accept()).await.unwrap();
    assert_eq!(peer, here.local_addr());
    assert_eq!((there.peer_addr(), there.local_addr()), (here.local_addr(), here.peer_addr()));
    assert_eq!(here.local_addr().ip(), place.here());
    here.write_all(b"ping").await.unwrap();
    let mut room = [0; 4];
    soon(there.read_exact(&mut room)).await.unwrap();
    assert_eq!(&room, b"ping");
    there.write_all(b"pong").await.unwrap();
    there.flush().await.unwrap();
    soon(here.read_exact(&mut room)).await.unwrap();
    assert_eq!(&room, b"pong");
    assert!(here.take_error().is_none());
}

pub(crate) async fn a_megabyte_comes_back_through_split_halves<P: Place>(place: Arc<P>) {
    let (here, there) = place.connected().await;
    let (mut reading, mut writing) = there.into_split();
    let echo = tokio::spawn(async move {
        let mut room = vec![0; 10_000];
        loop {
            let n = reading.read(&mut room).await.unwrap();
            if n == 0 {
                return;
            }
            writing.write_all(&room[..n]).await.unwrap();
        }
    });
    let (mut reading, mut writing) = here.into_split();
    let sent = payload(1 << 20);
    let expected = sent.clone();
    let writer = tokio::spawn(async move {
        for piece in sent.chunks(33_333) {
            writing.write_all(piece).await.unwrap();
        }
        writing.shutdown().await.unwrap();
    });
    let mut found = Vec::new();
    soon(reading.read_to_end(&mut found)).await.unwrap();
    assert!(found == expected, "{} bytes", found.len());
    writer.await.unwrap();
    echo.await.unwrap();
}

pub(crate) async fn several_buffers_are_written_and_read_in_turn<P: Place>(place: Arc<P>) {
    let (here, mut there) = place.connected().await;
    let bufs =
        [IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two "), IoSlice::new(b"3")];
    assert_eq!(here.try_write_vectored(&bufs).unwrap(), 9);
    there.ready(tokio::io::Interest::READABLE).await;
    let (mut first, mut second) = ([0; 3], [0; 20]);
    let mut rooms = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    let mut n = there.try_read_vectored(&mut rooms).unwrap();
    assert_eq!((&first, second[0]), (b"one", b' '));
    while n < 9 {
        n += soon(there.read(&mut second[n - 3..])).await.unwrap();
    }
    assert_eq!(&second[..6], b" two 3");
    assert!(there.is_write_vectored());
    let written = there.write_vectored(&bufs).await.unwrap();
    assert!((1..=9).contains(&written));
}

pub(crate) async fn what_is_peeked_at_stays<P: Place>(place: Arc<P>) {
    let (mut here, mut there) = place.connected().await;
    let mut room = [0; 10];
    never(there.peek(&mut room)).await;
    here.write_all(b"look").await.unwrap();
    for _ in 0..2 {
        assert_eq!(soon(there.peek(&mut room)).await.unwrap(), 4);
    }
    assert_eq!(soon(there.peek(&mut room[..2])).await.unwrap(), 2);
    assert_eq!(soon(there.read(&mut room)).await.unwrap(), 4);
    here.shutdown().await.unwrap();
    assert_eq!(soon(there.peek(&mut room)).await.unwrap(), 0);
}

pub(crate) async fn an_empty_buffer_reads_nothing_and_loses_nothing<P: Place>(place: Arc<P>) {
    let (mut here, mut there) = place.connected().await;
    assert_eq!(here.write(&[]).await.unwrap(), 0);
    here.write_all(b"x").await.unwrap();
    there.ready(tokio::io::Interest::READABLE).await;
    assert_eq!(there.try_read(&mut []).unwrap(), 0);
    assert_eq!(soon(there.read(&mut [])).await.unwrap(), 0);
    assert_eq!(soon(there.read(&mut [0; 4])).await.unwrap(), 1);
}

pub(crate) async fn halves_are_put_together_again<P: Place>(place: Arc<P>) {
    let (here, mut there) = place.connected().await;
    let (reading, writing) = here.into_split();
    let mut here = P::Stream::reunite(reading, writing).expect("they are of one stream");
    here.write_all(b"still open").await.unwrap();
    let mut room = [0; 10];
    soon(there.read_exact(&mut room)).await.unwrap();
    let (other, _there) = place.connected().await;
    let ((reading, _w), (_r, writing)) = (here.into_split(), other.into_split());
    assert!(P::Stream::reunite(reading, writing).is_none());
}

pub(crate) async fn borrowed_halves_read_and_write<P: Place>(place: Arc<P>) {
    let (mut here, mut there) = place.connected().await;
    {
        let (mut reading, mut writing) = here.split();
        let (mut r, mut w) = there.split();
        let mut room = [0; 3];
        let mut answer = [0; 3];
        let (a, b) = tokio::join!(
            async {
                writing.write_all(b"abc").await.unwrap();
                reading.read_exact(&mut answer).await.unwrap();
            },
            async {
                r.read_exact(&mut room).await.unwrap();
                w.write_all(b"def").await.unwrap();
            }
        );
        assert_eq!((a, b, &room, &answer), ((), (), b"abc", b"def"));
    }
    here.shutdown().await.unwrap();
    assert_eq!(soon(there.read(&mut [0; 1])).await.unwrap(), 0);
}

pub(crate) async fn several_tasks_accept_from_one_listener<P: Place>(place: Arc<P>) {
    let listener = Arc::new(place.listener().await);
    let at = listener.local_addr();
    let accepting: Vec<_> = (0..5)
        .map(|_| {
            let listener = Arc::clone(&listener);
            tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(b"hi").await.unwrap();
            })
        })
        .collect();
    tokio::task::yield_now().await;
    for _ in 0..5 {
        let mut here = soon(place.connect(at)).await.unwrap();
        soon(here.read_exact(&mut [0; 2])).await.unwrap();
    }
    for task in accepting {
        soon(task).await.unwrap();
    }
}

pub(crate) async fn a_cancelled_read_loses_nothing<P: Place>(place: Arc<P>) {
    let (mut here, mut there) = place.connected().await;
    for turn in 0..20_u8 {
        let mut room = [0; 4];
        let cancelled = tokio::select! {
            biased;
            n = there.read(&mut room) => panic!("nothing was written, {n:?}"),
            () = tokio::task::yield_now() => true,
        };
        assert!(cancelled);
        here.write_all(&[turn; 3]).await.unwrap();
        soon(there.read_exact(&mut room[..3])).await.unwrap();
        assert_eq!(room[..3], [turn; 3]);
    }
}

pub(crate) async fn a_cancelled_accept_loses_nothing<P: Place>(place: Arc<P>) {
    let listener = place.listener().await;
    for _ in 0..5 {
        never(async { listener.accept().await.map(drop) }).await;
        let here = soon(place.connect(listener.local_addr())).await.unwrap();
        let (_, peer) = soon(listener.accept()).await.unwrap();
        assert_eq!(peer, here.local_addr());
    }
    let _ = place.socket(place.is_v6()).bind((place.here(), 0).into());
}
