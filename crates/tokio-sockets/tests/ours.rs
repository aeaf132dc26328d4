//! What tokio's own socket cannot do, or does otherwise: runtimes that come and go, networks that
//! end, errors of routes, names.

use std::future::Future;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use floodwall_base::Family;
use floodwall_device::{MemoryWire, pair};
use floodwall_packet::PoolConfig;
use floodwall_tokio_sockets::{
    Network, NetworkError, Resolver, Resolving, TcpListener, TcpSocket, TcpStream, UdpSocket,
};
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
fn one_that_waits_is_told_when_the_network_ends() {
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
fn a_network_ends_and_reports_it_when_its_last_device_vanishes() {
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
        start(Network::builder().attach(wire()).address("192.0.2.1")),
        start(Network::builder().attach(wire()).address("2001:db8::1")),
        start(Network::builder().attach(wire()).address("192.0.2.1/24").workers(0)),
        start(Network::builder().attach(wire()).address("192.0.2.1/24").workers(1000)),
        start(Network::builder().attach(wire()).address("192.0.2.1/24").mtu(100_000)),
        start(Network::builder().attach(wire()).address("192.0.2.1/24").mtu(0)),
        start(Network::builder().attach(wire()).address("192.0.2.1/24").cores([100_000])),
        start(Network::builder().attach(wire()).address("224.0.0.1/24")),
    ];
    let remedies = [
        "give one, as in",
        "name the device first",
        "as in tap:fw0",
        "write one as in 192.0.2.1/24",
        "write one as in 192.0.2.254",
        "\"192.0.2.1\" is no address with its prefix length",
        "\"2001:db8::1\" is no address with its prefix length",
        "there cannot be 0 workers: use 1 to 64",
        "there cannot be 1000 workers: use 1 to 64",
        "100000 cannot be an MTU: use 68 to 65535",
        "0 cannot be an MTU: use 68 to 65535",
        "choose one of these",
        "use a unicast address",
    ];
    for (said, remedy) in said.iter().zip(remedies) {
        assert!(said.contains(remedy), "{said:?} does not contain {remedy:?}");
    }
}

/// RFC 1122 section 4.2.3.10, with Linux's error: no connection leads to more than one host. (Not
/// tried at the kernel: nothing may leave this machine.)
#[test]
fn a_connection_to_a_group_or_broadcast_address_is_refused_at_once() {
    let (here, _other) = pair(64);
    current_thread().block_on(async {
        let builder = Network::builder().attach(here).address("198.18.0.1/24");
        let network = builder.address("2001:db8::1/64").gateway("198.18.0.254").start().await;
        let network = network.unwrap();
        for to in
            ["224.0.0.5:9", "239.1.2.3:9", "255.255.255.255:9", "198.18.0.255:9", "[ff02::1]:9"]
        {
            // Also where its path is known.
            for _ in 0..2 {
                let refused = soon(TcpStream::connect(&network, to)).await.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::NetworkUnreachable, "{to}");
            }
        }
        let socket = UdpSocket::bind(&network, "0.0.0.0:0").await.unwrap();
        for to in ["255.255.255.255:9", "198.18.0.255:9"] {
            let refused = socket.connect(to).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{to}");
        }
        socket.set_broadcast(true).unwrap();
        socket.connect("198.18.0.255:9").await.unwrap();
        socket.connect("239.1.2.3:9").await.unwrap();
    });
}

/// Where an IPv6 socket takes IPv4, every call writes its sender in the same way (QUIC libraries
/// compare them), and answers go there.
#[test]
fn every_call_writes_the_sender_alike() {
    let host = host(false);
    current_thread().block_on(async {
        let server = UdpSocket::bind(&host.network, "[::]:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        let client = bind(&host.network).await;
        client.connect(("127.0.0.1", port)).await.unwrap();
        let from = client.local_addr().unwrap().port();
        let mapped: SocketAddr = format!("[::ffff:127.0.0.1]:{from}").parse().unwrap();
        let mut room = [0; 64];
        for way in 0..6 {
            client.send(b"hello").await.unwrap();
            soon(server.readable()).await.unwrap();
            let sender = match way {
                0 => soon(server.receive(&mut room)).await.unwrap().from,
                1 => server.try_receive(&mut room).unwrap().from,
                2 => soon(server.recv_segments(&mut room)).await.unwrap().received.from,
                3 => server.try_recv_segments(&mut room).unwrap().received.from,
                4 => server.try_recv_packet().unwrap().from(),
                _ => soon(server.recv_from(&mut room)).await.unwrap().1,
            };
            assert_eq!(sender, mapped, "way {way}");
        }
        client.send(b"hello").await.unwrap();
        let received = soon(server.receive(&mut room)).await.unwrap();
        server.reply(b"there", &received).await.unwrap();
        assert_eq!(soon(client.recv(&mut room)).await.unwrap(), 5);
        server.send_to(b"again", received.from).await.unwrap();
        assert_eq!(soon(client.recv(&mut room)).await.unwrap(), 5);
    });
}

#[test]
fn an_accepted_stream_has_keepalive_and_linger() {
    let host = host(false);
    current_thread().block_on(async {
        let listener = TcpListener::bind(&host.network, "127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let socket = TcpSocket::new_v4(&host.network).unwrap();
        socket.set_keepalive(true).unwrap();
        let here = soon(socket.connect(to)).await.unwrap();
        let (there, _) = soon(listener.accept()).await.unwrap();
        assert!(here.keepalive().unwrap() && !there.keepalive().unwrap());
        there.set_keepalive(true).unwrap();
        there.set_zero_linger().unwrap();
        assert!(there.keepalive().unwrap());
        assert_eq!(there.linger().unwrap(), Some(Duration::ZERO));
    });
}

#[test]
fn a_group_is_joined_for_named_senders() {
    let host = host(false);
    current_thread().block_on(async {
        host.network.add_address("fd00:5::1/64", None).await.unwrap();
        soon(host.network.online(Family::V6)).await.unwrap();
        let rows = [
            ("232.1.2.3", ["198.18.0.1", "198.18.0.9"], "fd00:5::9"),
            ("ff3e::8000:5", ["fd00:5::1", "fd00:5::9"], "198.18.0.9"),
        ];
        for (group, senders, foreign) in rows {
            let group: IpAddr = group.parse().unwrap();
            let [ours, other] = senders.map(|addr| addr.parse::<IpAddr>().unwrap());
            let any = if group.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(&host.network, any).await.unwrap();
            let none = socket.join_sources(group, 0, &[]).unwrap_err();
            assert_eq!(none.kind(), ErrorKind::InvalidInput);
            let other_family = socket.join_sources(group, 0, &[foreign.parse().unwrap()]);
            assert_eq!(other_family.unwrap_err().kind(), ErrorKind::InvalidInput);
            let port = socket.local_addr().unwrap().port();
            let sender = UdpSocket::bind(&host.network, (ours, 0)).await.unwrap();
            let mut room = [0; 8];
            // From another sender only: ours is not heard, then it is.
            join_one(&socket, group, other);
            sender.send_to(b"one", (group, port)).await.unwrap();
            leave_one(&socket, group, other);
            join_one(&socket, group, ours);
            sender.send_to(b"three", (group, port)).await.unwrap();
            assert_eq!(soon(socket.recv(&mut room)).await.unwrap(), 5, "{group}");
        }
    });
}

/// Joins a group for one sender, by the call of its family.
fn join_one(socket: &UdpSocket, group: IpAddr, source: IpAddr) {
    use IpAddr::{V4, V6};
    match (group, source) {
        (V4(group), V4(source)) => {
            socket.join_ssm_v4(&source, &group, &Ipv4Addr::UNSPECIFIED).unwrap();
        }
        (V6(_), _) => socket.join_sources(group, 0, &[source]).unwrap(),
        _ => panic!("two families"),
    }
}

/// Leaves what [`join_one`] joined.
fn leave_one(socket: &UdpSocket, group: IpAddr, source: IpAddr) {
    use IpAddr::{V4, V6};
    match (group, source) {
        (V4(group), V4(source)) => {
            socket.leave_ssm_v4(&source, &group, &Ipv4Addr::UNSPECIFIED).unwrap();
        }
        (V6(group), _) => socket.leave_multicast_v6(&group, 0).unwrap(),
        _ => panic!("two families"),
    }
}
