//! Every future of the API is dropped at every await, before and after it was woken: nothing is
//! lost by that, nothing is taken twice, and what it had begun to open is closed again.

mod streams;
mod udp;

use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use floodwall_base::Family;
use floodwall_device::{MemoryWire, pair};
use floodwall_packet::PoolConfig;
use floodwall_tokio_sockets::Network;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Sockets and connections of the host: far fewer than futures are dropped.
const PLACES: usize = 24;
/// How often each future is dropped at each point.
const TURNS: usize = 4;

/// Where a future is dropped: at its so many-th await, before what it waits for or after that.
#[derive(Clone, Copy, Debug)]
struct Point {
    pending: usize,
    woken: bool,
}

/// The points of a future: of all the API's, none waits for more than three things.
fn points() -> impl Iterator<Item = Point> {
    let of = |pending| [false, true].map(|woken| Point { pending, woken });
    (0..TURNS).flat_map(move |_| (1..=3).flat_map(of))
}

/// What a waker rings.
#[derive(Default)]
struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

async fn soon<F: Future>(what: F) -> F::Output {
    timeout(Duration::from_secs(60), what).await.expect("it happens in time")
}

/// Polls a future, each time but the first once it was woken, up to `point`, and drops it there;
/// its output where it was done before. `cause` happens once the future waits: before it is dropped
/// or, where it is dropped at its first await unwoken, after that.
async fn cut<T>(
    point: Point,
    future: impl Future<Output = T>,
    cause: impl Future<Output = ()>,
) -> Option<T> {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let (mut future, mut cause) = (Box::pin(future), Some(cause));
    let mut done = None;
    for pending in 1..=point.pending {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            done = Some(output);
            break;
        }
        if pending == point.pending && !point.woken {
            break;
        }
        if let Some(cause) = cause.take() {
            soon(cause).await;
        }
        soon(bell.0.notified()).await;
    }
    drop(future);
    if let Some(cause) = cause {
        soon(cause).await;
    }
    done
}

/// What happens by itself.
async fn nothing() {}

/// Whether a future is not done at once.
async fn waits(future: impl Future) -> bool {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

/// A host with few places, that sends to itself.
struct Host {
    network: Network,
    ip: IpAddr,
    /// Kept: without it the host ends.
    _other_end: MemoryWire,
}

async fn host(family: Family) -> Host {
    let (here, _other_end) = pair(64);
    let memory = PoolConfig { small: 4096, frames: 2048, references: 512, ..PoolConfig::default() };
    let network = Network::builder()
        .attach(here)
        .address("198.18.0.1/24")
        .address("2001:2::1/64")
        .memory(memory)
        .send_memory(2048, 1024)
        .sockets_max(PLACES)
        .connections_max(PLACES)
        .stack(|config| config.duplicate_address_detection = false)
        .start();
    let ip = if family == Family::V4 { "127.0.0.1" } else { "::1" };
    Host { network: soon(network).await.unwrap(), ip: ip.parse().unwrap(), _other_end }
}

/// The calls of a network itself.
async fn of_the_host(family: Family) {
    let Host { network, _other_end, .. } = host(family).await;
    let (address, prefix) = match family {
        Family::V4 => ("198.18.7.1/24", "203.0.113.0/24"),
        Family::V6 => ("2001:2:7::1/64", "2001:db8::/32"),
    };
    let added: IpAddr = address.split('/').next().unwrap().parse().unwrap();
    let gateway: IpAddr =
        if family == Family::V4 { "198.18.0.9" } else { "2001:2::9" }.parse().unwrap();
    let events = &mut network.events().unwrap();
    for point in points() {
        cut(point, network.stats(), nothing()).await;
        assert!(soon(network.stats()).await.unwrap().is_conserved());
        cut(point, network.online(family), nothing()).await;
        soon(network.online(family)).await.unwrap();
        cut(point, network.dns_servers(), nothing()).await;
        assert!(soon(network.dns_servers()).await.unwrap().is_empty());
        // What was asked for is done although the answer is not waited for; a second time it is
        // refused.
        cut(point, network.add_address(address, None), nothing()).await;
        assert!(soon(network.add_address(address, None)).await.is_err(), "{point:?}");
        let all = soon(network.addresses()).await.unwrap();
        assert_eq!(all.iter().filter(|one| one.address.addr() == added).count(), 1);
        cut(point, network.addresses(), nothing()).await;
        cut(point, network.remove_address(added), nothing()).await;
        assert!(soon(network.remove_address(added)).await.is_err(), "{point:?}");
        cut(point, network.add_route(prefix, Some(gateway), None), nothing()).await;
        let routes = soon(network.routes()).await.unwrap();
        assert_eq!(routes.iter().filter(|route| route.gateway == Some(gateway)).count(), 1);
        cut(point, network.routes(), nothing()).await;
        cut(point, network.remove_route(prefix, Some(gateway)), nothing()).await;
        assert!(!soon(network.remove_route(prefix, Some(gateway))).await.unwrap_or(false));
        cut(point, network.neighbours(), nothing()).await;
        soon(network.neighbours()).await.unwrap();
    }
    // Events wait for the next call.
    while !waits(events.next()).await {}
    let before = Point { pending: 1, woken: false };
    let add = async { network.add_address(address, None).await.unwrap() };
    assert!(cut(before, events.next(), add).await.is_none());
    assert!(soon(events.next()).await.is_some(), "of the address");
    // A call that is dropped leaves the network as it was, or ending: the next one waits for that.
    let ended = cut(before, network.closed(), nothing()).await;
    assert!(ended.is_none());
    let patience = Duration::from_millis(1);
    cut(before, network.drain(patience), nothing()).await;
    assert!(soon(network.stats()).await.is_ok(), "it works on");
    cut(before, network.shutdown(), nothing()).await;
    soon(network.shutdown()).await.unwrap();
}

/// Runs one part on both kinds of runtime, in both families.
fn run<F: Future<Output = ()>>(part: impl Fn(Family) -> F) {
    let mut runtimes = [
        tokio::runtime::Builder::new_current_thread(),
        tokio::runtime::Builder::new_multi_thread(),
    ];
    for builder in &mut runtimes {
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            part(Family::V4).await;
            part(Family::V6).await;
        });
    }
}

#[test]
fn calls_of_a_network_that_are_dropped_are_done_or_not_and_the_next_ones_are_answered() {
    run(of_the_host);
}

#[test]
fn udp_calls_that_are_dropped_leave_no_socket_and_lose_no_datagram() {
    run(udp::opens);
    run(udp::reads);
    run(udp::writes);
}

#[test]
fn tcp_calls_that_are_dropped_leave_no_connection_and_lose_no_byte() {
    run(streams::opens);
    run(streams::accepts);
    run(streams::reads);
    run(streams::writes);
}
