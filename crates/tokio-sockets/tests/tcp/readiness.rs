//! Operations that would block return so, and waiting tasks are woken.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};

use crate::tcp::place::{Place, Stream, never, soon};

fn would_block<T>(outcome: &io::Result<T>) -> bool {
    matches!(outcome, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

pub(crate) async fn trying_an_empty_stream_would_block<P: Place>(place: Arc<P>) {
    let (mut here, there) = place.connected().await;
    assert!(would_block(&there.try_read(&mut [0; 4])));
    here.write_all(b"x").await.unwrap();
    soon(there.ready(Interest::READABLE)).await;
    assert_eq!(there.try_read(&mut [0; 4]).unwrap(), 1);
    assert!(would_block(&there.try_read(&mut [0; 4])));
}

pub(crate) async fn a_full_stream_would_block_until_the_peer_reads<P: Place>(place: Arc<P>) {
    let (here, mut there) = place.connected().await;
    let piece = vec![7; 100_000];
    let mut written = 0_u64;
    // Full is what stays full.
    for _ in 0..3 {
        while let Ok(n) = here.try_write(&piece) {
            written += n as u64;
            assert!(written < 1 << 30, "it is never full");
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let reader = tokio::spawn(async move {
        let (mut read, mut room) = (0, vec![0; 65_536]);
        loop {
            match there.read(&mut room).await.unwrap() {
                0 => return read,
                n => read += n as u64,
            }
        }
    });
    soon(here.ready(Interest::WRITABLE)).await;
    let mut here = here;
    soon(here.write_all(&piece)).await.unwrap();
    drop(here);
    assert_eq!(soon(reader).await.unwrap(), written + 100_000);
}

pub(crate) async fn readable_comes_with_the_bytes_and_with_the_end<P: Place>(place: Arc<P>) {
    let (mut here, there) = place.connected().await;
    // tokio's readiness is a hint until it was tried.
    assert!(would_block(&there.try_read(&mut [0; 4])));
    never(there.ready(Interest::READABLE)).await;
    here.write_all(b"x").await.unwrap();
    assert!(soon(there.ready(Interest::READABLE)).await.is_readable());
    assert_eq!(there.try_read(&mut [0; 4]).unwrap(), 1);
    drop(here);
    soon(async {
        loop {
            there.ready(Interest::READABLE).await;
            match there.try_read(&mut [0; 4]) {
                Ok(n) => return assert_eq!(n, 0),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
    })
    .await;
}

pub(crate) async fn a_fresh_stream_is_writable_and_not_readable<P: Place>(place: Arc<P>) {
    let (here, there) = place.connected().await;
    for stream in [&here, &there] {
        assert!(would_block(&stream.try_read(&mut [0; 4])));
        let ready = soon(stream.ready(Interest::READABLE | Interest::WRITABLE)).await;
        assert!(ready.is_writable() && !ready.is_readable(), "{ready:?}");
    }
}

pub(crate) async fn a_ready_stream_lets_other_tasks_run<P: Place>(place: Arc<P>) {
    let (mut here, mut there) = place.connected().await;
    here.write_all(&[1; 4000]).await.unwrap();
    while soon(there.peek(&mut [0; 4000])).await.unwrap() < 4000 {
        tokio::task::yield_now().await;
    }
    let turns = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&turns);
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let mut room = [0];
    for _ in 0..4000 {
        there.read_exact(&mut room).await.unwrap();
    }
    other.abort();
    assert!(turns.load(Ordering::Relaxed) > 2, "a stream that is always ready starves others");
}

pub(crate) async fn try_io_that_would_block_waits_for_the_next<P: Place>(place: Arc<P>) {
    let (mut here, there) = place.connected().await;
    here.write_all(b"x").await.unwrap();
    soon(there.ready(Interest::READABLE)).await;
    assert!(would_block(&there.try_io(|| Err(ErrorKind::WouldBlock.into()))));
    here.write_all(b"y").await.unwrap();
    soon(there.ready(Interest::READABLE)).await;
    assert_eq!(there.try_io(|| Ok(3)).unwrap(), 3);
}

/// Waits until the readiness of a stream shows what is wanted of it.
async fn shows<S: Stream>(stream: &S, interest: Interest, wanted: fn(tokio::io::Ready) -> bool) {
    soon(async {
        while !wanted(stream.ready(interest).await) {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    })
    .await;
}

pub(crate) async fn the_peers_end_closes_reading_and_both_ends_close_writing<P: Place>(
    place: Arc<P>,
) {
    let (mut here, mut there) = place.connected().await;
    let both = Interest::READABLE | Interest::WRITABLE;
    here.write_all(b"x").await.unwrap();
    shows(&there, Interest::READABLE, |ready| ready.is_readable()).await;
    let ready = soon(there.ready(both)).await;
    assert!(!ready.is_read_closed() && !ready.is_write_closed(), "{ready:?}");
    here.shutdown().await.unwrap();
    // With what was not read yet; and only where that is of interest.
    shows(&there, Interest::READABLE, |ready| ready.is_read_closed()).await;
    let ready = soon(there.ready(Interest::WRITABLE)).await;
    assert!(!ready.is_read_closed() && !ready.is_write_closed(), "{ready:?}");
    there.shutdown().await.unwrap();
    for stream in [&here, &there] {
        shows(stream, both, |ready| ready.is_read_closed() && ready.is_write_closed()).await;
    }
}

pub(crate) async fn a_reset_closes_both<P: Place>(place: Arc<P>) {
    let (here, there) = place.connected().await;
    here.set_zero_linger();
    drop(here);
    let both = Interest::READABLE | Interest::WRITABLE;
    shows(&there, both, |ready| ready.is_read_closed() && ready.is_write_closed()).await;
}
