//! A graceful shutdown of axum (and so of hyper), and then of its network: what was begun is whole.
#![cfg(feature = "tokio")]
#![expect(clippy::unwrap_used, reason = "a failing test may panic")]

use std::time::Duration;

use axum::{Router, extract::Path, routing::get};
use floodwall::net::{Network, TcpListener, TcpStream};
use floodwall_device::pair;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// What is downloaded.
const BYTES: usize = 8 << 20;
/// A bound for what hangs.
const PATIENCE: Duration = Duration::from_secs(120);

async fn download(server: &'static str) {
    let (here, there) = pair(1024);
    let ours = Network::builder().attach(here).drain(PATIENCE);
    let ours = ours.address("198.18.0.1/24").address("2001:2::1/64").start().await.unwrap();
    let theirs = Network::builder().attach(there);
    let theirs = theirs.address("198.18.0.2/24").address("2001:2::2/64").start().await.unwrap();

    let listener = TcpListener::bind(&ours, "[::]:8080").await.unwrap();
    let bytes = |Path(n): Path<usize>| async move { vec![b'f'; n] };
    let pages = Router::new().route("/bytes/{n}", get(bytes));
    let (stop, stopped) = oneshot::channel::<()>();
    let signal = async move { _ = stopped.await };
    let served =
        tokio::spawn(axum::serve(listener, pages).with_graceful_shutdown(signal).into_future());

    let mut stream = TcpStream::connect(&theirs, server).await.unwrap();
    let request = format!("GET /bytes/{BYTES} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut all = vec![0; 1000];
    stream.read_exact(&mut all).await.unwrap();
    stop.send(()).unwrap();
    let ends = tokio::spawn(async move {
        served.await.unwrap().unwrap();
        ours.shutdown().await.unwrap();
    });
    stream.read_to_end(&mut all).await.unwrap();
    let body = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(all.len() - body, BYTES, "to {server}");
    drop(stream);
    ends.await.unwrap();
}

#[tokio::test]
async fn a_download_over_ipv4_is_whole() {
    timeout(PATIENCE, download("198.18.0.1:8080")).await.unwrap();
}

#[tokio::test]
async fn a_download_over_ipv6_is_whole() {
    timeout(PATIENCE, download("[2001:2::1]:8080")).await.unwrap();
}
