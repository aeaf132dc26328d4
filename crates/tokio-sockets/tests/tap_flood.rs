//! The echo service of the first example on a TAP, flooded from the Linux kernel's side while Linux
//! clients send queries.
//!
//! Everything is in a network namespace of the test's own, which has no name and goes with its
//! threads. It takes root and `ip`; without, the test prints so and passes. The flood is bounded in
//! time and in packets. The answered share of the legitimate queries is counted and printed. The
//! assertions hold on any machine, however loaded: the service continues to answer under each
//! flood, all queries are answered before the floods and when they are over, the packet accounting
//! balances, and a flood of a closed port is answered within the limits of ICMP.
//!
//! Which queries are answered under a flood of the service's own port is a matter of chance:
//! clients and flood share one queue in the kernel and one in the socket, which are full, and each
//! packet has the same chance of a place. (A late answer has not been seen: it is loss, not delay.)
//!
//! And a host's links are followed while it runs: the MTU of a TAP, a TUN and a packet socket's
//! interface, and whether they are up.
#![expect(clippy::disallowed_methods, reason = "the kernel is flooded and waited for in real time")]

use std::io::Read;
use std::net::{SocketAddr, UdpSocket as KernelSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use floodwall_base::{Counter, DropReason};
use floodwall_dispatch::pin_to_core;
use floodwall_tokio_sockets::{Network, NetworkEvent, NetworkStats, TcpListener, UdpSocket};
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;

use crate::namespace::{self, ip};

const SERVICE: u16 = 7001;
const CLOSED: u16 = 7002;
/// How long each flood lasts.
const LENGTH: Duration = Duration::from_secs(1);
/// Its packets at most, of each of two threads.
const PACKETS: u64 = 1_500_000;
/// How long a client waits for an answer.
const WAIT: Duration = Duration::from_millis(200);
/// How long it waits where nothing may be lost: as long as the slowest machine needs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Queries of each client then.
const QUESTIONS: u64 = 50;

/// What the clients saw.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    asked: u64,
    answered: u64,
}

#[test]
fn linux_clients_are_answered_while_linux_floods_the_service() {
    in_namespace(|| scenario("fwtok0", None));
}

/// Worker and runtime on one core: the worker's wake-up waits for tasks that are ready.
#[test]
fn linux_clients_are_answered_where_worker_and_runtime_share_a_core() {
    in_namespace(|| scenario("fwtok1", Some(0)));
}

/// In both directions and families, of every kind of device that is opened by name.
#[test]
fn a_programs_host_follows_the_mtu_of_its_links() {
    in_namespace(|| {
        assert!(ip("link add fwmtu2 type veth peer name fwmtu3"));
        assert!(ip("link set fwmtu2 up") && ip("link set fwmtu3 up"));
        for (device, theirs, n) in [
            ("tap:fwmtu0", "fwmtu0", 0),
            ("tun:fwmtu1", "fwmtu1", 1),
            ("packet:fwmtu2", "fwmtu3", 2),
        ] {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(follows_mtu(device, theirs, n));
        }
    });
}

async fn follows_mtu(device: &str, theirs: &str, n: u8) {
    let ours = [format!("10.79.{n}.2"), format!("fd79:{n}::2")];
    let network = Network::builder()
        .device(device)
        .address(&format!("{}/24", ours[0]))
        .address(&format!("{}/64", ours[1]))
        .start()
        .await
        .unwrap();
    assert!(ip(&format!("addr add 10.79.{n}.1/24 dev {theirs}")));
    assert!(ip(&format!("addr add fd79:{n}::1/64 dev {theirs} nodad")));
    // What the kernel takes does not depend on the MTU of its own end.
    assert!(ip(&format!("route add {}/32 dev {theirs} advmss 1460", ours[0])));
    assert!(ip(&format!("-6 route add {}/128 dev {theirs} advmss 1440", ours[1])));
    let listener = TcpListener::bind(&network, "[::]:7003").await.unwrap();
    let name = device.split(':').nth(1).unwrap();
    for mtu in [1500_u16, 1300, 1400] {
        assert!(ip(&format!("link set {name} mtu {mtu}")));
        for (to, headers) in ours.iter().zip([40, 60]) {
            let mut said = 0;
            let began = Instant::now();
            while said != u32::from(mtu - headers) {
                assert!(began.elapsed() < PATIENCE, "{device}: {said} with an MTU of {mtu}");
                let to = SocketAddr::new(to.parse().unwrap(), 7003);
                let client = thread::spawn(move || {
                    let mut client = std::net::TcpStream::connect(to).unwrap();
                    client.read_exact(&mut [0; 3000]).unwrap();
                    client
                });
                let (mut stream, _) = listener.accept().await.unwrap();
                // The path is looked up with the first segment.
                stream.write_all(&[7; 3000]).await.unwrap();
                let info = stream.info().await.unwrap();
                said = info.snd_mss + if info.timestamps { 12 } else { 0 };
                drop(client.join().unwrap());
            }
        }
    }
    follows_link(&network, name).await;
    network.shutdown().await.unwrap();
}

/// A link that goes down and comes back is an event each time.
async fn follows_link(network: &Network, name: &str) {
    let mut events = network.events().unwrap();
    let mut wait_for = async |wanted: NetworkEvent| {
        let seen = async { while events.next().await.unwrap() != wanted {} };
        tokio::time::timeout(PATIENCE, seen).await.expect("an event of the link");
    };
    // The first look is what later ones are compared with.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let interface = || name.to_owned();
    assert!(ip(&format!("link set {name} down")));
    wait_for(NetworkEvent::LinkDown { interface: interface() }).await;
    assert!(ip(&format!("link set {name} up")));
    wait_for(NetworkEvent::LinkUp { interface: interface() }).await;
}

fn scenario(tap: &'static str, core: Option<usize>) {
    let (stop, stopped) = oneshot::channel();
    let (up, is_up) = std::sync::mpsc::channel();
    let answers = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&answers);
    let service = thread::spawn(move || {
        if let Some(core) = core
            && pin_to_core(core).is_err()
        {
            eprintln!("SKIPPED: core {core} may not be used here");
            return None;
        }
        // The workers' threads are this thread's children: they share its core.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Some(runtime.block_on(serve(tap, core.is_some(), up, stopped, &counted)))
    });
    if is_up.recv().is_err() {
        assert!(service.join().unwrap().is_none());
        return;
    }
    assert!(ip(&format!("addr add 10.78.0.1/24 dev {tap}")));
    assert!(ip(&format!("addr add fd78::1/64 dev {tap} nodad")));
    all_are_answered("at rest");
    for (name, port) in [("another port", CLOSED), ("the same port", SERVICE)] {
        let (flooded, before) = (Arc::new(AtomicU64::new(0)), answers.load(Ordering::Relaxed));
        let share = ask_under(port, &flooded);
        let given = answers.load(Ordering::Relaxed) - before;
        let rate = flooded.load(Ordering::Relaxed) / LENGTH.as_secs();
        eprintln!(
            "MEASURED {tap}, flood of {name} at {rate}/s: {} of {} questions answered ({} %), \
             {given} answers in all",
            share.answered,
            share.asked,
            100 * share.answered / share.asked.max(1)
        );
        assert!(given > 0, "the service stops under a flood of {name}");
    }
    all_are_answered("when the floods are over");
    stop.send(()).unwrap();
    let stats = service.join().unwrap().expect("it served");
    assert!(stats.is_conserved());
    let (none, full) =
        (stats.drops_in(DropReason::UdpNoPort), stats.drops_in(DropReason::UdpSocketFull));
    let told = stats.counter(Counter::IcmpOutDestUnreachs);
    eprintln!("MEASURED {tap}: {none} to a closed port, {told} answered; {full} without room");
    assert!(none > 0, "the flood of the closed port arrived");
    assert!(told < none, "errors about it are limited");
}

/// The first example, and a way to end it.
async fn serve(
    tap: &str,
    shares_core: bool,
    up: std::sync::mpsc::Sender<()>,
    mut stopped: oneshot::Receiver<()>,
    answers: &AtomicU64,
) -> NetworkStats {
    let network = Network::builder()
        .device(&format!("tap:{tap}"))
        .address("10.78.0.2/24")
        .address("fd78::2/64")
        .shares_core(shares_core)
        .start()
        .await
        .unwrap();
    let socket = UdpSocket::bind(&network, ("::", SERVICE)).await.unwrap();
    up.send(()).unwrap();
    let mut buffer = [0; 65_535];
    loop {
        tokio::select! {
            received = socket.recv_from(&mut buffer) => {
                let Ok((len, from)) = received else { continue };
                // An ICMP error about an earlier answer is no reason to stop.
                let _ = socket.send_to(&buffer[..len], from).await;
                answers.fetch_add(1, Ordering::Relaxed);
            }
            _ = &mut stopped => break,
        }
    }
    let stats = network.stats().await.unwrap();
    network.shutdown().await.unwrap();
    stats
}

/// Two Linux clients send queries, one a family, while two threads flood a port.
fn ask_under(port: u16, flooded: &Arc<AtomicU64>) -> Share {
    let over = Arc::new(AtomicBool::new(false));
    let flooders = ["10.78.0.2", "fd78::2"].map(|to| {
        let to = SocketAddr::new(to.parse().unwrap(), port);
        let (over, count) = (Arc::clone(&over), Arc::clone(flooded));
        thread::spawn(move || flooder(to, &over, &count))
    });
    let clients = ["10.78.0.2", "fd78::2"].map(|to| thread::spawn(move || client(to)));
    let mut all = Share::default();
    for client in clients {
        let share = client.join().unwrap();
        all.asked += share.asked;
        all.answered += share.answered;
    }
    over.store(true, Ordering::Release);
    flooders.into_iter().for_each(|flooder| flooder.join().unwrap());
    all
}

/// Without a flood: each query of both clients is answered, at the first time.
fn all_are_answered(when: &str) {
    for to in ["10.78.0.2", "fd78::2"] {
        let socket = connected(to);
        // The link may not be up yet, a neighbour not known, a queue not empty.
        let end = Instant::now() + PATIENCE;
        while !ask(&socket, 0, WAIT) {
            assert!(Instant::now() < end, "no answer from {to} {when}");
        }
        for question in 1..=QUESTIONS {
            assert!(ask(&socket, question, PATIENCE), "question {question} to {to} {when}");
        }
    }
}

fn flooder(to: SocketAddr, over: &AtomicBool, count: &AtomicU64) {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = KernelSocket::bind(any).unwrap();
    let mut sent = 0;
    while sent < PACKETS && !over.load(Ordering::Acquire) {
        // A packet that the kernel refused was never sent.
        if socket.send_to(b"a flood", to).is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
        sent += 1;
    }
}

fn client(to: &str) -> Share {
    let socket = connected(to);
    let end = Instant::now() + LENGTH;
    let mut share = Share::default();
    while Instant::now() < end {
        share.asked += 1;
        share.answered += u64::from(ask(&socket, share.asked, WAIT));
        thread::sleep(Duration::from_millis(1));
    }
    share
}

fn connected(to: &str) -> KernelSocket {
    let any = if to.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = KernelSocket::bind(any).unwrap();
    socket.connect(SocketAddr::new(to.parse().unwrap(), SERVICE)).unwrap();
    socket
}

/// Sends one query; returns whether its answer came. Answers to earlier queries do not count.
fn ask(socket: &KernelSocket, question: u64, wait: Duration) -> bool {
    let question = question.to_be_bytes();
    socket.set_read_timeout(Some(wait)).unwrap();
    let _ = socket.send(&question);
    let mut room = [0; 8];
    loop {
        match socket.recv(&mut room) {
            Ok(8) if room == question => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

/// Runs the test on a thread with its own network namespace, or prints why not.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let runner = thread::spawn(move || {
        if let Err(missing) = namespace::enter() {
            return eprintln!("SKIPPED: {missing}");
        }
        if !std::path::Path::new("/dev/net/tun").exists() {
            return eprintln!("SKIPPED: /dev/net/tun is not there");
        }
        test();
    });
    if let Err(panic) = runner.join() {
        std::panic::resume_unwind(panic);
    }
}
