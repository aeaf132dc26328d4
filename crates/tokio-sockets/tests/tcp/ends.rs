//! Ends of connections and errors, which must be of the same kind at both stacks.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};

use crate::tcp::place::{Listener, Place, Stream, soon};

fn kind<T>(outcome: io::Result<T>) -> ErrorKind {
    outcome.map(drop).expect_err("it is refused").kind()
}

/// Writes until the stream returns an error.
async fn write_until_refused(stream: &mut impl Stream) -> ErrorKind {
    soon(async {
        loop {
            if let Err(error) = stream.write_all(b"hello").await {
                return error.kind();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
}

pub(crate) async fn a_clean_end_is_read_as_zero_for_ever<P: Place>(place: Arc<P>) {
    let (here, mut there) = place.connected().await;
    let mut here = here;
    here.write_all(b"bye").await.unwrap();
    drop(here);
    let mut room = [0; 3];
    soon(there.read_exact(&mut room)).await.unwrap();
    for _ in 0..3 {
        assert_eq!(soon(there.read(&mut room)).await.unwrap(), 0);
        assert_eq!(there.try_read(&mut room).unwrap(), 0);
    }
}

pub(crate) async fn half_a_close_leaves_the_other_half<P: Place>(place: Arc<P>) {
    let (mut here, mut there) = place.connected().await;
    here.write_all(b"question").await.unwrap();
    here.shutdown().await.unwrap();
    let mut found = Vec::new();
    soon(there.read_to_end(&mut found)).await.unwrap();
    assert_eq!(found, b"question");
    let answer = crate::tcp::transfer::payload(100_000);
    let expected = answer.clone();
    let writer = tokio::spawn(async move {
        there.write_all(&answer).await.unwrap();
        there.shutdown().await.unwrap();
    });
    found.clear();
    soon(here.read_to_end(&mut found)).await.unwrap();
    assert!(found == expected, "{} bytes", found.len());
    writer.await.unwrap();
}

pub(crate) async fn writing_after_the_own_shutdown_is_a_broken_pipe<P: Place>(place: Arc<P>) {
    let (mut here, _there) = place.connected().await;
    here.shutdown().await.unwrap();
    assert_eq!(kind(here.write(b"x").await), ErrorKind::BrokenPipe);
    assert_eq!(kind(here.try_write(b"x")), ErrorKind::BrokenPipe);
}

pub(crate) async fn a_dropped_writing_half_is_an_end<P: Place>(place: Arc<P>) {
    let (here, mut there) = place.connected().await;
    let (mut reading, mut writing) = here.into_split();
    writing.write_all(b"all").await.unwrap();
    drop(writing);
    let mut found = Vec::new();
    soon(there.read_to_end(&mut found)).await.unwrap();
    assert_eq!(found, b"all");
    there.write_all(b"answer").await.unwrap();
    soon(reading.read_exact(&mut [0; 6])).await.unwrap();
}

pub(crate) async fn unread_data_at_the_drop_is_a_reset<P: Place>(place: Arc<P>) {
    let (mut here, there) = place.connected().await;
    here.write_all(b"unheard").await.unwrap();
    there.ready(Interest::READABLE).await;
    drop(there);
    assert_eq!(kind(soon(here.read(&mut [0; 4])).await), ErrorKind::ConnectionReset);
}

pub(crate) async fn a_reset_is_told_once_behind_the_data<P: Place>(place: Arc<P>) {
    let (mut here, mut there) = place.connected().await;
    there.write_all(b"final data").await.unwrap();
    here.ready(Interest::READABLE).await;
    let mut room = [0; 4];
    soon(here.read_exact(&mut room)).await.unwrap();
    there.set_zero_linger();
    drop(there);
    soon(here.read_exact(&mut [0; 6])).await.unwrap();
    assert_eq!(kind(soon(here.read(&mut room)).await), ErrorKind::ConnectionReset);
    assert_eq!(soon(here.read(&mut room)).await.unwrap(), 0);
    assert_eq!(kind(here.write(b"x").await), ErrorKind::BrokenPipe);
}

pub(crate) async fn a_reset_behind_the_end_is_a_broken_pipe<P: Place>(place: Arc<P>) {
    let (mut here, there) = place.connected().await;
    drop(there);
    assert_eq!(soon(here.read(&mut [0; 4])).await.unwrap(), 0);
    assert_eq!(write_until_refused(&mut here).await, ErrorKind::BrokenPipe);
    assert_eq!(soon(here.read(&mut [0; 4])).await.unwrap(), 0);
}

pub(crate) async fn a_closed_port_is_refused<P: Place>(place: Arc<P>) {
    let listener = place.listener().await;
    let at = listener.local_addr();
    drop(listener);
    // A listener of ours is gone when its workers have come by.
    let refused = soon(async {
        loop {
            match place.connect(at).await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => return error.kind(),
            }
        }
    });
    assert!(matches!(refused.await, ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset));
    assert_eq!(kind(soon(place.connect(at)).await), ErrorKind::ConnectionRefused);
}

pub(crate) async fn a_port_in_use_is_refused<P: Place>(place: Arc<P>) {
    let listener = place.listener().await;
    assert_eq!(kind(place.bind(listener.local_addr()).await), ErrorKind::AddrInUse);
}

pub(crate) async fn a_port_is_free_again_once_its_listener_is_dropped<P: Place>(place: Arc<P>) {
    let mut at = SocketAddr::new(place.there(), 0);
    for _ in 0..20 {
        let listener = place.bind(at).await.expect("the one before was dropped");
        at = listener.local_addr();
        assert_ne!(at.port(), 0);
    }
}

pub(crate) async fn an_address_of_another_host_is_refused<P: Place>(place: Arc<P>) {
    let elsewhere = if place.is_v6() { "[2001:db8::1]:0" } else { "192.0.2.1:0" };
    let elsewhere: SocketAddr = elsewhere.parse().unwrap();
    assert_eq!(kind(place.bind(elsewhere).await), ErrorKind::AddrNotAvailable);
}

pub(crate) async fn one_that_nothing_accepts_is_reset_with_the_listener<P: Place>(place: Arc<P>) {
    let listener = place.listener().await;
    let mut here = soon(place.connect(listener.local_addr())).await.unwrap();
    here.write_all(b"hello?").await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(listener);
    assert_eq!(kind(soon(here.read(&mut [0; 4])).await), ErrorKind::ConnectionReset);
}

pub(crate) async fn shutting_down_twice_is_allowed<P: Place>(place: Arc<P>) {
    let (mut here, there) = place.connected().await;
    here.shutdown().await.unwrap();
    here.shutdown().await.unwrap();
    drop(there);
    assert_eq!(soon(here.read(&mut [0; 4])).await.unwrap(), 0);
    here.shutdown().await.unwrap();
}

/// The unspecified address means this host.
pub(crate) async fn a_listener_on_every_address_is_reached_by_its_own_address<P: Place>(
    place: Arc<P>,
) {
    if place.here() != place.there() {
        return;
    }
    let any: SocketAddr = if place.is_v6() { "[::]:0" } else { "0.0.0.0:0" }.parse().unwrap();
    let listener = soon(place.bind(any)).await.unwrap();
    let to = listener.local_addr();
    assert!(to.ip().is_unspecified());
    let mut here = soon(place.connect(to)).await.unwrap();
    let (mut there, from) = soon(listener.accept()).await.unwrap();
    assert!(here.peer_addr().ip().is_loopback() && from.ip().is_loopback());
    assert_eq!((here.peer_addr().port(), here.local_addr()), (to.port(), from));
    here.write_all(b"x").await.unwrap();
    soon(there.read_exact(&mut [0])).await.unwrap();
}
