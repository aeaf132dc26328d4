//! Floodwall as a sender beside the kernel: the same receivers, the same cable of 100 Mbit/s, 50 ms
//! there and back, a queue of as long, losses by chance; ten flows at a time.
//!
//! Two namespaces have a TUN each, and a cable between these (`cable.rs`). Receivers are the
//! kernel's sockets in the far one. The near one's kernel sends by itself, and forwards for a host
//! of ours behind another TUN: so both go through the same cable to the same receivers. Both use
//! CUBIC with SACK. `FLOODWALL_DEEP=1` runs it (60 s a case, or `FLOODWALL_SECONDS`).

#![expect(clippy::disallowed_methods, reason = "the kernel runs in real time")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use floodwall_device::{Tun, TunConfig, TunKind};
use floodwall_services::{StreamKind, StreamService};
use floodwall_stack::{InterfaceConfig, StackConfig};

use crate::cable::{Cable, CableConfig};
use crate::command::ip;
use crate::link::{self, Kind};
use crate::namespace::{available, enter_own, inside_alone, is_deep, set, skip, tell};
use crate::running::Running;

const FLOWS: usize = 10;
const RATE: u64 = 100_000_000;
const PORT: u16 = 5001;
const ONE_WAY: Duration = Duration::from_millis(25);
/// The kernel's own sender, and ours.
const SENDERS: [(&str, &str); 2] = [("Linux", "10.78.0.1"), ("Floodwall", "10.77.0.2")];
/// Our goodput to the kernel's, at least.
const SHARE: f64 = 0.9;
/// Jain's index of ten flows without losses by chance, at least.
const FAIRNESS: f64 = 0.85;

/// One end of the cable.
fn end(name: &str, addr: &str) -> Option<Tun> {
    let config =
        TunConfig { kind: TunKind::Tun, queues: 1, vnet_header: false, up: true, mtu: Some(1500) };
    let tun = available(Tun::open(name, &config))?.pop()?;
    assert!(ip(&format!("addr add {addr}/24 dev {name}")));
    // The cable has the queue.
    assert!(ip(&format!("link set {name} txqueuelen 5000")));
    Some(tun)
}

/// The kernel sends to each client that connects, until it closes.
fn serve(near: SocketAddr) {
    let listener = TcpListener::bind(near).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                rustix::net::sockopt::set_tcp_congestion(&stream, "cubic").unwrap();
                let (mut stream, piece) = (stream, vec![b'x'; 1 << 18]);
                while stream.write_all(&piece).is_ok() {}
            });
        }
    });
}

/// Bits a second that each of the flows reads.
fn receive(from: SocketAddr, time: Duration) -> Vec<f64> {
    let readers: Vec<_> = (0..FLOWS)
        .map(|_| {
            thread::spawn(move || {
                let mut stream =
                    TcpStream::connect_timeout(&from, Duration::from_secs(30)).unwrap();
                stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
                let (start, mut room, mut bytes) = (Instant::now(), vec![0; 1 << 18], 0_u64);
                while start.elapsed() < time {
                    bytes += stream.read(&mut room).unwrap_or(0) as u64;
                }
                bytes as f64 * 8.0 / start.elapsed().as_secs_f64()
            })
        })
        .collect();
    readers.into_iter().map(|reader| reader.join().unwrap()).collect()
}

/// The far namespace: its end of the cable, and a thread that receives on request.
type Asked = (SocketAddr, Duration);

fn far() -> Option<(Tun, mpsc::Sender<Asked>, mpsc::Receiver<Vec<f64>>)> {
    let ((asks, asked), (tells, told)) = (mpsc::channel::<Asked>(), mpsc::channel());
    let (gives, given) = mpsc::channel();
    thread::spawn(move || {
        let tun = enter_own().then(|| end("cable1", "10.78.0.2")).flatten();
        let is_up = tun.is_some() && ip("route add 10.77.0.0/24 via 10.78.0.1");
        gives.send(tun.filter(|_| is_up)).unwrap();
        for (from, time) in asked {
            tells.send(receive(from, time)).unwrap();
        }
    });
    Some((given.recv().ok()??, asks, told))
}

fn host() -> Option<Running> {
    let device = link::open(Kind::Tun, false)?;
    let gateways = vec!["10.77.0.1".parse().unwrap()];
    let interfaces = vec![InterfaceConfig { gateways, ..link::interface(Kind::Tun, link::MTU) }];
    let config = StackConfig { interfaces, tcp_connections_max: 64, ..StackConfig::default() };
    let chargen = StreamService::new(StreamKind::Chargen, PORT);
    let running = Running::start(config, device, vec![Box::new(chargen)]);
    running.wait_for_addresses();
    Some(running)
}

/// Jain's index: 1 where all have the same.
fn fairness(flows: &[f64]) -> f64 {
    let (sum, squares) = flows.iter().fold((0.0, 0.0), |(sum, sq), it| (sum + it, sq + it * it));
    sum * sum / (squares * flows.len() as f64)
}

#[test]
fn goodput_and_fairness_beside_the_kernels_through_one_cable() {
    if !is_deep() {
        return skip("it takes minutes: FLOODWALL_DEEP=1 runs it");
    }
    inside_alone(|| {
        let seconds = std::env::var("FLOODWALL_SECONDS").ok().and_then(|it| it.parse().ok());
        let time = Duration::from_secs(seconds.unwrap_or(60));
        let Some(near) = end("cable0", "10.78.0.1") else { return };
        let Some((tun, asks, told)) = far() else { return };
        let config = CableConfig { rate: RATE, delay: ONE_WAY, queue: 2 * ONE_WAY };
        let cable = Cable::lay([near, tun], config);
        let Some(running) = host() else { return };
        set("net/ipv4/ip_forward", "1");
        // The kernel must not remember the path of one case for the next.
        set("net/ipv4/tcp_no_metrics_save", "1");
        serve(SocketAddr::new(SENDERS[0].1.parse().unwrap(), PORT));
        let mut missed = Vec::new();
        for losses in [0, 1000, 10_000] {
            cable.lose(losses);
            let mut sums = Vec::new();
            for (name, addr) in SENDERS {
                let before = cable.drops();
                asks.send((SocketAddr::new(addr.parse().unwrap(), PORT), time)).unwrap();
                let flows = told.recv().unwrap();
                let after = cable.drops();
                let (sum, index) = (flows.iter().sum::<f64>(), fairness(&flows));
                tell(&format!(
                    "loss {:.1} %: {name:9} {:6.2} Mbit/s, Jain's index {index:.3}, {} lost, {} \
                     too many",
                    f64::from(losses) / 10_000.0,
                    sum / 1e6,
                    after.0 - before.0,
                    after.1 - before.1,
                ));
                sums.push(sum);
                if losses == 0 && name != SENDERS[0].0 && index < FAIRNESS {
                    missed.push(format!("fairness {index:.3}"));
                }
                thread::sleep(Duration::from_secs(2));
            }
            if sums[1] < SHARE * sums[0] {
                missed.push(format!("{losses} of a million lost: {:.2}", sums[1] / sums[0]));
            }
        }
        running.stop();
        assert!(missed.is_empty(), "below the kernel's: {missed:?}");
    });
}
