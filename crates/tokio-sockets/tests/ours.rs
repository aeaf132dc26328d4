//! What tokio's own socket cannot do, or does otherwise: runtimes that come and go, networks that
//! end, errors of routes, names.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing test may panic")]

use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use floodwall_device::{MemoryWire, pair};
use floodwall_packet::PoolConfig;
use floodwall_tokio_sockets::{Network, NetworkError, Resolver, Resolving, UdpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// How long anything may take that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

async fn soon<F: Future>(what: F) -> F::Output {
    timeout(PATIENCE, what).await.expect("it happens in time")
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A host that sends to itself, on a wire with its other end kept.
struct Host {
    network: Network,
    wire: Mutex<Option<MemoryWire>>,
}

fn host(shares_core: bool) -> Host {
    let (here, other) = pair(64);
    let memory = PoolConfig { small: 4096, frames: 1024, references: 64, ..PoolConfig::default() };
    let network = current_thread().block_on(
        Network::builder()
            .attach(here)
            .address("198.18.0.1/24")
            .memory(memory)
            .send_memory(8192, 64)
            .sockets_max(512)
            .shares_core(shares_core)
            .start(),
    );
    Host { network: network.unwrap(), wire: Mutex::new(Some(other)) }
}

async fn bind(network: &Network) -> UdpSocket {
    UdpSocket::bind(network, "127.0.0.1:0").await.unwrap()
}

#[test]
fn a_runtime_that_ends_leaves_its_sockets_to_the_next() {
    let host = host(false);
    let socket = Arc::new(current_thread().block_on(bind(&host.network)));
    let at = socket.local_addr().unwrap();
    let other = current_thread().block_on(bind(&host.network));
    // More runtimes than there are wake groups, one after the other.
    for n in 0..70_u8 {
        let runtime = if n % 7 == 0 { multi_thread() } else { current_thread() };
        runtime.block_on(async {
            let waiting = Arc::clone(&socket);
            tokio::spawn(async move { waiting.recv(&mut [0; 8]).await });
            tokio::task::yield_now().await;
        });
        // It ends while its task waits.
        drop(runtime);
        current_thread().block_on(async {
            other.send_to(&[n], at).await.unwrap();
            let mut room = [0; 8];
            assert_eq!(soon(socket.recv(&mut room)).await.unwrap(), 1);
            assert_eq!(room[0], n);
        });
    }
}

#[test]
fn more_runtimes_at_once_than_wake_groups_are_all_woken() {
    let host = host(false);
    let sender = current_thread().block_on(bind(&host.network));
    let (told, addrs) = std::sync::mpsc::channel();
    let threads: Vec<_> = (0..70)
        .map(|_| {
            let (network, told) = (host.network.clone(), told.clone());
            std::thread::Builder::new()
                .spawn(move || {
                    current_thread().block_on(async {
                        let socket = bind(&network).await;
                        told.send(socket.local_addr().unwrap()).unwrap();
                        soon(socket.recv(&mut [0; 8])).await.unwrap()
                    })
                })
                .unwrap()
        })
        .collect();
    current_thread().block_on(async {
        for _ in 0..70 {
            let at = addrs.recv().unwrap();
            sender.send_to(b"wake up", at).await.unwrap();
        }
    });
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 7);
    }
}

/// Four hundred tasks wait, more than a thread's own queue holds and than a driver wakes at once.
#[test]
fn hundreds_of_waiting_tasks_are_all_woken() {
    for (runtime, shares_core) in [(current_thread(), false), (multi_thread(), true)] {
        let host = host(shares_core);
        runtime.block_on(async {
            let sender = bind(&host.network).await;
            let mut tasks = Vec::new();
            for _ in 0..400 {
                let socket = bind(&host.network).await;
                let at = socket.local_addr().unwrap();
                let task = tokio::spawn(async move { socket.recv(&mut [0; 8]).await.unwrap() });
                tasks.push((at, task));
            }
            let all: Vec<(&[u8], SocketAddr)> =
                tasks.iter().map(|(at, _)| (&b"wake up"[..], *at)).collect();
            assert_eq!(soon(sender.send_batch(&all)).await.unwrap(), 400);
            for (_, task) in tasks {
                assert_eq!(soon(task).await.unwrap(), 7);
            }
        });
    }
}

#[test]
fn a_worker_that_is_woken_last_is_still_woken() {
    let host = host(true);
    for runtime in [current_thread(), multi_thread()] {
        runtime.block_on(async {
            let (a, b) = (bind(&host.network).await, bind(&host.network).await);
            let to = b.local_addr().unwrap();
            for n in 0..300_u32 {
                a.send_to(&n.to_be_bytes(), to).await.unwrap();
                let mut room = [0; 8];
                assert_eq!(soon(b.recv(&mut room)).await.unwrap(), 4);
                assert_eq!(room[..4], n.to_be_bytes());
            }
        });
    }
    // The runtime ends before its driver has come to it.
    let (a, b) =
        current_thread().block_on(async { (bind(&host.network).await, bind(&host.network).await) });
    let to = b.local_addr().unwrap();
    for _ in 0..20 {
        current_thread().block_on(async { a.try_send_to(b"last data", to).unwrap() });
        current_thread().block_on(async { soon(b.recv(&mut [0; 16])).await.unwrap() });
    }
    // And without any.
    a.try_send_to(b"no runtime", to).unwrap();
    current_thread().block_on(async { soon(b.recv(&mut [0; 16])).await.unwrap() });
}

#[test]
fn who_waits_is_told_when_the_network_ends() {
    let host = host(false);
    multi_thread().block_on(async {
        let socket = Arc::new(bind(&host.network).await);
        let waiting = Arc::clone(&socket);
        let reader = tokio::spawn(async move { waiting.recv(&mut [0; 8]).await });
        tokio::time::sleep(Duration::from_millis(5)).await;
        soon(host.network.shutdown()).await.unwrap();
        let broken = soon(reader).await.unwrap().unwrap_err();
        assert_eq!(broken.kind(), ErrorKind::BrokenPipe);
        let to = socket.local_addr().unwrap();
        assert_eq!(socket.send_to(b"x", to).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        let refused = UdpSocket::bind(&host.network, "127.0.0.1:0").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
        assert!(matches!(host.network.stats().await, Err(NetworkError::Ended)));
        soon(host.network.shutdown()).await.unwrap();
    });
}

#[test]
fn a_network_whose_last_device_vanishes_ends_and_says_so() {
    let host = host(false);
    current_thread().block_on(async {
        let socket = bind(&host.network).await;
        drop(host.wire.lock().unwrap().take());
        let error = soon(host.network.closed()).await.unwrap_err();
        assert!(error.to_string().contains("no device is left"), "{error}");
        assert_eq!(soon(socket.recv(&mut [0; 8])).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_destination_without_a_route_is_told_by_the_next_call() {
    let host = host(false);
    current_thread().block_on(async {
        let socket = UdpSocket::bind(&host.network, "0.0.0.0:0").await.unwrap();
        socket.send_to(b"to nowhere", "192.0.2.1:9").await.unwrap();
        let told = soon(socket.recv(&mut [0; 8])).await.unwrap_err();
        assert_eq!(told.kind(), ErrorKind::NetworkUnreachable);
    });
}

struct Names;

impl Resolver for Names {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolving<'a> {
        Box::pin(async move {
            match host {
                "me.example" => Ok(vec![([127, 0, 0, 1], port).into()]),
                _ => Err(ErrorKind::NotFound.into()),
            }
        })
    }
}

#[test]
fn names_are_asked_of_the_resolver_where_there_is_one() {
    let (here, _other) = pair(64);
    current_thread().block_on(async {
        let network = Network::builder()
            .attach(here)
            .address("198.18.0.1/24")
            .resolver(Names)
            .start()
            .await
            .unwrap();
        let socket = UdpSocket::bind(&network, "me.example:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(socket.send_to(b"hello", ("me.example", port)).await.unwrap(), 5);
        assert_eq!(soon(socket.recv(&mut [0; 8])).await.unwrap(), 5);
        let unknown = socket.connect("you.example:7").await.unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn what_is_wrong_with_a_network_is_told_before_it_runs() {
    let start = |builder: floodwall_tokio_sockets::NetworkBuilder| {
        current_thread().block_on(builder.start()).unwrap_err().to_string()
    };
    let wire = || pair(64).0;
    let said = [
        start(Network::builder()),
        start(Network::builder().address("192.0.2.1/24")),
        start(Network::builder().device("fw0")),
        start(Network::builder().attach(wire()).address("192.0.2.1/99")),
        start(Network::builder().attach(wire()).address("192.0.2.1/24").gateway("next door")),
        start(Network::builder().attach(wire()).address("192.0.2.1/24").workers(0)),
        start(Network::builder().attach(wire()).address("192.0.2.1/24").cores([100_000])),
        start(Network::builder().attach(wire()).address("224.0.0.1/24")),
    ];
    let remedies = [
        "give one, as in",
        "name the device first",
        "as in tap:fw0",
        "write one as in 192.0.2.1/24",
        "write one as in 192.0.2.254",
        "worker",
        "choose one of these",
        "use a unicast address",
    ];
    for (said, remedy) in said.iter().zip(remedies) {
        assert!(said.contains(remedy), "{said:?} does not contain {remedy:?}");
    }
}
