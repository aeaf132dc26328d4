//! A UDP echo service and a client in the same process, over a memory wire: no root, no device, no
//! network.
//!
//! The service runs as an application of a host, under a worker on a thread of its own; the
//! client's stack is driven by hand at the other end. On a real device only the last argument of
//! `Port::new` changes: a `Tun`, or an `AfPacket`.

use std::error::Error;
use std::time::Duration;

use floodwall::dispatch::{Clock, Port, Shown, Stop, Worker, WorkerConfig, entropy};
use floodwall::packet::{Burst, Engine, PacketList, Pool, PoolConfig, Round};
use floodwall::services::{ServiceKind, UdpService};
use floodwall::{
    Device, Family, Host, IfIndex, InterfaceConfig, LinkMedium, MacAddr, SocketSettings, Stack,
    StackConfig, Units, accounts_needed, device,
};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// One Ethernet interface: 198.18.0.`host` and 2001:2::`host`.
fn config(host: u8) -> Outcome<StackConfig> {
    let interface = InterfaceConfig {
        name: "wire0".to_owned(),
        medium: LinkMedium::Ethernet(MacAddr([2, 0, 0, 0, 0, host])),
        mtu: 1500,
        addresses: vec![
            format!("198.18.0.{host}/24").parse()?,
            format!("2001:2::{host}/64").parse()?,
        ],
        gateways: Vec::new(),
        ..InterfaceConfig::default()
    };
    let interfaces = vec![interface];
    Ok(StackConfig { interfaces, duplicate_address_detection: false, ..StackConfig::default() })
}

fn pool(config: &StackConfig) -> Outcome<Pool> {
    Ok(Pool::new(&PoolConfig { accounts: accounts_needed(config), ..PoolConfig::default() })?)
}

/// The server's thread: a worker, a host, an echo service.
fn serve(wire: device::MemoryWire, stop: &Stop) -> Outcome<()> {
    let (config, mut random) = (config(1)?, entropy::randomness()?);
    let pool = pool(&config)?;
    let echo = Box::new(UdpService::new(ServiceKind::Echo, 7001));
    let host = Host::new(&config, vec![echo], &pool, &mut random, Clock::new().now())?;
    let ports = vec![Port::new(IfIndex(1), Box::new(wire))];
    let config = WorkerConfig::default();
    let mut worker = Worker::new(Shown::silent(host), pool, random, ports, config)?;
    worker.run(stop)?;
    Ok(())
}

/// Sends a query to the service at `server`, and returns its reply.
fn ask(wire: &mut device::MemoryWire, server: &str, question: &[u8]) -> Outcome<String> {
    let (config, mut random, clock) = (config(2)?, entropy::randomness()?, Clock::new());
    let pool = pool(&config)?;
    let mut stack = Stack::new(&config, &mut random, clock.now())?;
    let (mut arrived, mut departing) = (Burst::new(), PacketList::new());
    let mut socket = None;
    let end = clock.now() + Duration::from_secs(5);
    while clock.now() < end {
        wire.receive(&pool, &mut arrived)?;
        arrived.iter_mut().for_each(|packet| packet.set_iface(IfIndex(1)));
        let mut round = Round {
            now: clock.now(),
            pool: &pool,
            random: &mut random,
            arrived: &mut arrived,
            departing: &mut departing,
            budget: Units(256),
            peers: None,
        };
        stack.round(&mut round);
        stack.work(&mut round);
        let mut sockets = stack.sockets(&mut round);
        if let Some(socket) = socket {
            let mut answer = [0; 1500];
            if let Ok(received) = sockets.udp_recv(socket, &mut answer) {
                return Ok(String::from_utf8_lossy(&answer[..received.len]).into_owned());
            }
        } else {
            let any = "[::]:0".parse()?;
            let id = sockets.udp_bind(any, SocketSettings::new(Family::V6))?;
            sockets.udp_send(id, Some(server.parse()?), question)?;
            socket = Some(id);
        }
        wire.transmit(&mut departing)?;
        std::thread::yield_now();
    }
    Err("no answer within 5 seconds".into())
}

fn main() -> Outcome<()> {
    let stop = Stop::new()?;
    let (theirs, mut ours) = device::pair(256);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(theirs, &stop));
        for server in ["198.18.0.1:7001", "[2001:2::1]:7001"] {
            let answer = ask(&mut ours, server, b"hello, Floodwall");
            match answer {
                Ok(answer) => println!("{server} replied: {answer}"),
                Err(error) => println!("{server}: {error}"),
            }
        }
        stop.trigger();
        server.join().map_err(|_| "the server panicked")?
    })
}
