//! Connection places of a program's listener, with one worker and with two: real connections of one
//! source prefix that stay idle, or take their answer and never close, shut no other prefix out,
//! and the program is told which of its connections were reset.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing test may panic")]

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use floodwall_base::MacAddr;
use floodwall_device::{MemoryWire, pair};
use floodwall_dispatch::WorkerConfig;
use floodwall_packet::PoolConfig;
use floodwall_tokio_sockets::{Network, TcpSocket, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long anything may take that must happen, on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// Places of each worker of the server, and for each of them connections of the attacker.
const PLACES: usize = 64;
const ATTACKS: usize = 200;

/// What a connection of the attacker does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attack {
    /// It sends nothing (A3).
    Idles,
    /// It takes its answer, and never closes (A1).
    Takes,
}

async fn host(wire: MemoryWire, number: u8, connections: usize, workers: usize) -> Network {
    let mut builder = Network::builder().attach(wire).mac(MacAddr([2, 0, 0, 0, 0, number]));
    // Hosts of several prefixes on one link.
    for prefix in 0..4 {
        builder = builder
            .address(&format!("198.18.{prefix}.{number}/16"))
            .address(&format!("2001:db8:{prefix}::{number}/32"));
    }
    builder
        .workers(workers)
        .memory(PoolConfig {
            small: 4096 * workers,
            frames: 4096 * workers,
            references: 8192 * workers,
            ..PoolConfig::default()
        })
        .send_memory(4096, 4096)
        .sockets_max(16)
        .connections_max(connections)
        // A memory wire has no descriptor to wake the worker.
        .worker(WorkerConfig { look_every: Duration::from_micros(200), ..WorkerConfig::default() })
        .stack(|config| config.duplicate_address_detection = false)
        .start()
        .await
        .unwrap()
}

fn end(v6: bool, prefix: u16, number: u16, port: u16) -> SocketAddr {
    let ip = match v6 {
        true => IpAddr::from([0x2001, 0xdb8, prefix, 0, 0, 0, 0, number]),
        false => IpAddr::from([198, 18, prefix as u8, number as u8]),
    };
    SocketAddr::new(ip, port)
}

async fn connect(network: &Network, v6: bool, prefix: u16) -> std::io::Result<TcpStream> {
    let socket = if v6 { TcpSocket::new_v6(network) } else { TcpSocket::new_v4(network) }?;
    socket.bind(end(v6, prefix, 1, 0))?;
    socket.connect(end(v6, 0, 2, 4000)).await
}

/// Echoes, until it is told to end; counts the connections that were reset to make room.
async fn serve(mut stream: TcpStream, evicted: Arc<AtomicUsize>) {
    let mut buffer = [0; 64];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) => return,
            Ok(n) => {
                if stream.write_all(&buffer[..n]).await.is_err() || buffer[..n].contains(&b'.') {
                    return;
                }
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
                evicted.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }
}

async fn echoes(stream: &mut TcpStream, says: &[u8; 5]) -> bool {
    let mut back = [0; 5];
    stream.write_all(says).await.is_ok() && stream.read_exact(&mut back).await.is_ok()
}

async fn attack_beside_newcomers(v6: bool, attack: Attack, workers: usize) {
    let what = format!("{attack:?}, IPv6: {v6}, {workers} workers");
    let (here, there) = pair(1024);
    let (clients, server) = (host(here, 1, 1024, 1).await, host(there, 2, PLACES, workers).await);
    let attacks = ATTACKS * workers;
    let any = if v6 { TcpSocket::new_v6(&server) } else { TcpSocket::new_v4(&server) }.unwrap();
    any.bind(end(v6, 0, 2, 4000)).unwrap();
    let listener = any.listen(128).await.unwrap();
    let evicted = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&evicted);
    let accepting = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&counts)));
        }
    });
    let mut old = connect(&clients, v6, 2).await.unwrap();
    assert!(echoes(&mut old, b"hello").await);
    let (mut held, mut served) = (Vec::new(), 0);
    for n in 0..attacks {
        // What finds no place waits for one: the attacker does not.
        let attempt = async {
            let mut stream = connect(&clients, v6, 1).await.ok()?;
            (attack == Attack::Idles || echoes(&mut stream, b"last.").await).then_some(stream)
        };
        let attempt = tokio::time::timeout(Duration::from_millis(20), attempt);
        held.extend(attempt.await.ok().flatten());
        if n % 10 == 0 {
            let mut newcomer = connect(&clients, v6, 3).await.unwrap();
            served += usize::from(echoes(&mut newcomer, b"hello").await);
            assert!(echoes(&mut old, b"hello").await, "{what}: an old one, beside {n}");
        }
    }
    assert_eq!(served, attacks / 10, "{what}: newcomers of another prefix");
    assert!(held.len() > PLACES * workers, "{what}: {} held", held.len());
    // No program knows those that it has closed.
    let told = evicted.load(Ordering::Relaxed);
    assert!(attack == Attack::Takes || told > 0, "{what}: the program is told");
    accepting.abort();
}

fn run(attack: Attack) {
    for (v6, workers) in [(false, 1), (true, 2)] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let all = attack_beside_newcomers(v6, attack, workers);
            tokio::time::timeout(PATIENCE, all).await.unwrap();
        });
    }
}

#[test]
fn idle_connections_of_one_prefix_shut_no_other_one_out() {
    run(Attack::Idles);
}

#[test]
fn connections_that_are_never_closed_shut_no_other_prefix_out() {
    run(Attack::Takes);
}
