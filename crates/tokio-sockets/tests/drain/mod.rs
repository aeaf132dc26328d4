//! Data that was written is delivered, or its connection is reset: how a network ends.
//!
//! The long form of the first test, `FLOODWALL_DEEP=1`, has 1,000 runs, with seeds from
//! `FLOODWALL_DRAIN_SEED` on, in one process, which has room for 1,024 pools at a time.

mod slow_wire;

use std::future::Future;
use std::io::ErrorKind;
use std::time::Duration;

use floodwall_base::PublicRandom;
use floodwall_packet::PoolConfig;
use floodwall_tokio_sockets::{Drained, Network, NetworkBuilder, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::drain::slow_wire::{SlowEnd, WireFaults, slow_wire};

/// Runs of the usual form, for each wire, and of the long one.
const RUNS: u64 = 8;
const RUNS_DEEP: u64 = 1000;

async fn soon<F: Future>(what: F) -> F::Output {
    // A bound for what hangs, no measure.
    tokio::time::timeout(Duration::from_secs(120), what).await.expect("it comes to its end")
}

fn host(end: SlowEnd, number: u8, workers: usize) -> NetworkBuilder {
    let memory =
        PoolConfig { frames: 1024, small: 1024, references: 1024, ..PoolConfig::default() };
    let memory = PoolConfig {
        frames: memory.frames * workers,
        small: memory.small * workers,
        references: memory.references * workers,
        ..memory
    };
    Network::builder()
        .attach(end)
        .address(&format!("198.18.0.{number}/24"))
        .address(&format!("2001:2::{number}/64"))
        .workers(workers)
        .connections_max(64)
        .send_memory(512, 512)
        .memory(memory)
}

async fn hosts(faults: WireFaults, workers: usize) -> (Network, Network) {
    let (here, there) = slow_wire(faults);
    let (client, server) = (host(here, 1, workers), host(there, 2, workers));
    (soon(client.start()).await.unwrap(), soon(server.start()).await.unwrap())
}

const NO_FAULTS: WireFaults = WireFaults { delay: Duration::ZERO, losses: 0, seed: 1 };

const fn server_of(v6: bool) -> &'static str {
    if v6 { "[2001:2::2]:80" } else { "198.18.0.2:80" }
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Connects, writes, drops and ends the network; the server must read all, and then the end.
async fn connect_write_drop_shutdown(v6: bool, faults: WireFaults, ending: Ending) {
    let (client, server) = hosts(faults, 1 + faults.seed as usize % 2).await;
    let listener = TcpListener::bind(&server, server_of(v6)).await.unwrap();
    let reader = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.map(|_| all)
    });
    let mut stream = soon(TcpStream::connect(&client, server_of(v6))).await.unwrap();
    let len = 1 + PublicRandom::new(faults.seed).below(60_000) as usize;
    soon(stream.write_all(&payload(len))).await.unwrap();
    drop(stream);
    match ending {
        Ending::Shutdown => soon(client.shutdown()).await.unwrap(),
        Ending::Drop => drop(client),
    }
    let all = soon(reader).await.unwrap().unwrap_or_else(|error| panic!("{faults:?}: {error}"));
    assert!(all == payload(len), "{faults:?}: {} of {len} bytes", all.len());
    // Its wire may have been cut by then.
    let _ = soon(server.shutdown()).await;
}

#[derive(Clone, Copy)]
enum Ending {
    Shutdown,
    Drop,
}

async fn many(ending: Ending) {
    let is_deep = std::env::var_os("FLOODWALL_DEEP").is_some_and(|deep| deep != "0");
    let is_first = matches!(ending, Ending::Shutdown);
    let runs = if is_deep && is_first { RUNS_DEEP } else { RUNS };
    let seed = std::env::var("FLOODWALL_DRAIN_SEED").ok();
    let seed: u64 = seed.and_then(|text| text.parse().ok()).unwrap_or(0);
    for (millis, losses) in [(0, 0), (2, 0), (50, 0), (2, 10)] {
        let delay = Duration::from_millis(millis);
        for first in (0..runs).step_by(8) {
            let run = |seed: u64| {
                let faults = WireFaults { delay, losses, seed };
                tokio::spawn(connect_write_drop_shutdown(seed % 4 > 1, faults, ending))
            };
            let together: Vec<_> = (first..runs.min(first + 8)).map(|n| run(seed + n)).collect();
            for one in together {
                one.await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_before_a_shutdown_arrives_and_so_does_the_end() {
    many(Ending::Shutdown).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_before_the_last_handle_is_dropped_arrives_too() {
    many(Ending::Drop).await;
}

#[tokio::test]
async fn a_reader_that_starts_late_gets_all() {
    for v6 in [false, true] {
        let (client, server) = hosts(NO_FAULTS, 1).await;
        let listener = TcpListener::bind(&server, server_of(v6)).await.unwrap();
        let reader = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.map(|_| all)
        });
        let mut stream = soon(TcpStream::connect(&client, server_of(v6))).await.unwrap();
        soon(stream.write_all(&payload(200_000))).await.unwrap();
        drop(stream);
        soon(client.shutdown()).await.unwrap();
        assert!(soon(reader).await.unwrap().unwrap() == payload(200_000));
    }
}

#[tokio::test]
async fn a_peer_that_reads_nothing_is_reset_when_the_time_is_over_and_counted() {
    for (v6, workers) in [(false, 1), (true, 2)] {
        let (here, there) = slow_wire(NO_FAULTS);
        let client = soon(host(here, 1, workers).start()).await.unwrap();
        let server = host(there, 2, workers).tcp(|tcp| {
            tcp.receive_bytes = 16_384;
        });
        let server = soon(server.start()).await.unwrap();
        let listener = TcpListener::bind(&server, server_of(v6)).await.unwrap();
        let mut stream = soon(TcpStream::connect(&client, server_of(v6))).await.unwrap();
        let (mut there, _) = soon(listener.accept()).await.unwrap();
        // More than the peer's window, of which it reads nothing.
        let mut written = 0;
        let all = payload(60_000);
        let mut write = async || {
            while let Ok(n) = stream.write(&all).await {
                written += n;
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(200), write()).await;
        drop(stream);
        let drained = soon(client.drain(Duration::from_millis(100))).await;
        assert_eq!(drained, Drained { closed: 0, reset: 1 });
        let mut read = 0;
        let error = loop {
            match soon(there.read(&mut [0; 60_000])).await {
                Ok(0) => panic!("{read} of {written} bytes, and a clean end"),
                Ok(n) => read += n,
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(error, ErrorKind::ConnectionReset);
        assert!(read < written);
        soon(client.shutdown()).await.unwrap();
    }
}

#[tokio::test]
async fn a_shutdown_closes_what_a_program_still_holds() {
    for (v6, workers) in [(false, 1), (true, 2)] {
        let (client, server) = hosts(NO_FAULTS, workers).await;
        let listener = TcpListener::bind(&server, server_of(v6)).await.unwrap();
        let mut stream = soon(TcpStream::connect(&client, server_of(v6))).await.unwrap();
        let reader = tokio::spawn(async move {
            let (mut there, _) = listener.accept().await.unwrap();
            let mut all = Vec::new();
            there.read_to_end(&mut all).await.map(|_| all)
        });
        soon(stream.write_all(&payload(50_000))).await.unwrap();
        soon(client.shutdown()).await.unwrap();
        assert!(soon(reader).await.unwrap().unwrap() == payload(50_000));
        assert_eq!(stream.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(stream.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}

#[tokio::test]
async fn a_drain_lets_programs_finish_and_takes_nothing_new() {
    for (v6, workers) in [(false, 1), (true, 2)] {
        let (client, server) = hosts(NO_FAULTS, workers).await;
        let listener = TcpListener::bind(&server, server_of(v6)).await.unwrap();
        let mut stream = soon(TcpStream::connect(&client, server_of(v6))).await.unwrap();
        let (mut there, _) = soon(listener.accept()).await.unwrap();
        let draining = tokio::spawn({
            let server = server.clone();
            async move { server.drain(Duration::from_secs(60)).await }
        });
        let refused = soon(listener.accept()).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::BrokenPipe);
        // The listener of another worker may close a moment later.
        if workers == 1 {
            let refused = soon(TcpStream::connect(&client, server_of(v6))).await;
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
        let refused = soon(TcpStream::connect(&server, "198.18.0.1:1")).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::BrokenPipe);
        for _ in 0..3 {
            soon(stream.write_all(b"question")).await.unwrap();
            soon(there.read_exact(&mut [0; 8])).await.unwrap();
            soon(there.write_all(b"answer")).await.unwrap();
            soon(stream.read_exact(&mut [0; 6])).await.unwrap();
        }
        assert!(!draining.is_finished());
        drop(there);
        assert_eq!(soon(stream.read(&mut [0])).await.unwrap(), 0);
        drop(stream);
        assert_eq!(soon(draining).await.unwrap(), Drained { closed: 1, reset: 0 });
        assert_eq!(soon(server.drain(Duration::ZERO)).await, Drained::default());
        let _ = soon(server.shutdown()).await;
        assert_eq!(server.drain(Duration::ZERO).await, Drained::default());
    }
}

#[tokio::test]
async fn without_patience_a_connection_is_reset_at_once() {
    let (here, there) = slow_wire(NO_FAULTS);
    let client = soon(host(here, 1, 1).drain(Duration::ZERO).start()).await.unwrap();
    let server = soon(host(there, 2, 1).start()).await.unwrap();
    let listener = TcpListener::bind(&server, server_of(true)).await.unwrap();
    let stream = soon(TcpStream::connect(&client, server_of(true))).await.unwrap();
    let (mut there, _) = soon(listener.accept()).await.unwrap();
    drop((stream, client));
    // The end may come first, as on Linux; the reset behind it ends what is written.
    let end = soon(there.read(&mut [0; 8])).await.map_err(|error| error.kind());
    let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    assert!(end == Ok(0) || end.is_err_and(|kind| kinds.contains(&kind)), "{end:?}");
    let refused = soon(async {
        loop {
            match there.write(b"late").await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => return error.kind(),
            }
        }
    });
    assert!(kinds.contains(&refused.await));
}
