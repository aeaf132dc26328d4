//! A program with tokio listeners over a TAP, as the attacked host: the same services as `floodwall
//! run` offers in these tests, written by hand.

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use floodwall_base::{Counter, DropReason};
use floodwall_dispatch::WorkerCounter;
use floodwall_tokio_sockets::{Network, NetworkError, TcpListener, TcpSocket, TcpStream};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::OURS;
use crate::link::NAME;
use crate::namespace::{has_interface, skip, until};
use crate::site::Site;

/// How long the network may take to start.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest head that is read.
const HEAD_MAX: usize = 8192;
/// Bytes that are written at a time.
const PIECE: usize = 16_384;

/// The program, which runs on a thread of its own until it is told to end.
pub(super) struct Program {
    network: Network,
    runtime: Handle,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Program {
    /// Starts it, plugged into the site; `None`, and said so, where this machine cannot.
    pub(super) fn start(site: &Site, workers: usize) -> Option<Self> {
        let (tell, told) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let handle = runtime.handle().clone();
            runtime.block_on(async move {
                let started = start(workers).await.map_err(|error| error.to_string());
                let network = started.as_ref().ok().cloned();
                tell.send(started.map(|network| (network, handle))).unwrap();
                if let Some(network) = network {
                    let _ = stopped.await;
                    network.shutdown().await.unwrap();
                }
            });
        });
        assert!(until(PATIENCE, || has_interface(NAME) || thread.is_finished()));
        if has_interface(NAME) {
            site.plug(NAME);
        }
        match told.recv().unwrap() {
            Ok((network, runtime)) => Some(Self { network, runtime, stop, thread }),
            Err(error) => {
                skip(&error);
                None
            }
        }
    }

    /// What the tests look at, in the form of `floodwall stat --json`.
    pub(super) fn stat(&self) -> Value {
        let stats = self.runtime.block_on(self.network.stats()).unwrap();
        let counters = [
            ("FloodwallTcpEvictedUnowned", Counter::FloodwallTcpEvictedUnowned),
            ("FloodwallTcpEvictedIdle", Counter::FloodwallTcpEvictedIdle),
            ("TcpExtTCPAbortOnMemory", Counter::TcpExtTCPAbortOnMemory),
        ];
        let counters: serde_json::Map<_, _> = counters
            .into_iter()
            .map(|(name, counter)| (name.to_owned(), stats.counter(counter).into()))
            .collect();
        let reasons =
            [("NoBuffer", DropReason::NoBuffer), ("TcpReceiveFull", DropReason::TcpReceiveFull)];
        let drops = reasons.into_iter().filter(|(_, reason)| stats.drops_in(*reason) > 0);
        let drops: Vec<_> = drops.map(|(name, _)| json!({ "reason": name })).collect();
        let workers = stats.workers.iter().map(|worker| {
            let of = |fact| worker.facts.of(fact);
            json!({ "facts": {
                "longest_turn_ns": of(WorkerCounter::LongestTurnNanos),
                "longest_turn_end_ns": of(WorkerCounter::LongestTurnEndNanos),
                "longest_turn_sent": of(WorkerCounter::LongestTurnSent),
                "longest_turn_slice_ns": of(WorkerCounter::LongestTurnSliceNanos),
                "longest_turn_commands": of(WorkerCounter::LongestTurnCommands),
                "longest_turn_receive_ns": of(WorkerCounter::LongestTurnReceiveNanos),
                "longest_turn_transmit_ns": of(WorkerCounter::LongestTurnTransmitNanos),
                "longest_turn_processor_ns": of(WorkerCounter::LongestTurnProcessorNanos),
                "longest_turn_packets": of(WorkerCounter::LongestTurnPackets),
                "longest_turn_units": of(WorkerCounter::LongestTurnUnits),
                "longest_turn_slice_units": of(WorkerCounter::LongestTurnSliceUnits),
            } })
        });
        json!({ "counters": counters, "drops": drops, "workers": workers.collect::<Vec<_>>() })
    }

    /// Ends it: what arrived is accounted for.
    pub(super) fn end(self) {
        let is_conserved = || {
            let stats = self.runtime.block_on(self.network.stats());
            stats.is_ok_and(|stats| stats.is_conserved())
        };
        assert!(until(PATIENCE, is_conserved), "each packet is accounted for once");
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

/// A network with a listener for each service.
async fn start(workers: usize) -> std::result::Result<Network, NetworkError> {
    let [v4, v6] = OURS;
    let network = Network::builder()
        .device(&format!("tap:{NAME}"))
        .address(&format!("{v4}/16"))
        .address(&format!("{v6}/48"))
        .workers(workers)
        .start()
        .await?;
    for v6 in [false, true] {
        for port in [8080, 8081, 7] {
            let listener = listen(&network, v6, port).await.unwrap();
            tokio::spawn(accept(listener, port == 7));
        }
    }
    Ok(network)
}

async fn listen(network: &Network, v6: bool, port: u16) -> Result<TcpListener> {
    let socket = if v6 { TcpSocket::new_v6(network) } else { TcpSocket::new_v4(network) }?;
    let any = if v6 { IpAddr::from([0_u16; 8]) } else { IpAddr::from([0_u8; 4]) };
    socket.bind(SocketAddr::new(any, port))?;
    socket.listen(1024).await
}

async fn accept(listener: TcpListener, echoes: bool) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move { if echoes { echo(stream).await } else { serve(stream).await } });
    }
}

async fn echo(mut stream: TcpStream) -> Result<()> {
    let mut room = [0; 2048];
    loop {
        let got = stream.read(&mut room).await?;
        if got == 0 {
            return Ok(());
        }
        stream.write_all(&room[..got]).await?;
    }
}

/// Answers requests one after the other; `GET /bytes/N` with so many bytes.
async fn serve(mut stream: TcpStream) -> Result<()> {
    let (mut heads, mut looked_at, mut room) = (Vec::new(), 0, [0; 2048]);
    loop {
        // What was looked at is not looked at again.
        let from = usize::saturating_sub(looked_at, 3);
        if let Some(end) = heads[from..].windows(4).position(|four| four == b"\r\n\r\n") {
            let head: Vec<u8> = heads.drain(..from + end + 4).collect();
            looked_at = 0;
            if answer(&mut stream, &String::from_utf8_lossy(&head)).await? {
                return stream.shutdown().await;
            }
            continue;
        }
        looked_at = heads.len();
        let got = stream.read(&mut room).await?;
        if got == 0 || looked_at > HEAD_MAX {
            return Err(Error::from(ErrorKind::InvalidData));
        }
        heads.extend_from_slice(&room[..got]);
    }
}

/// Answers a request; whether the connection ends behind it.
async fn answer(stream: &mut TcpStream, head: &str) -> Result<bool> {
    let bytes = head.strip_prefix("GET /bytes/").and_then(|rest| rest.split(' ').next());
    let mut left: usize = bytes.and_then(|count| count.parse().ok()).unwrap_or(0);
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {left}\r\n\r\n");
    stream.write_all(answer.as_bytes()).await?;
    while left > 0 {
        let piece = left.min(PIECE);
        stream.write_all(&[b'm'; PIECE][..piece]).await?;
        left -= piece;
    }
    Ok(head.contains("Connection: close"))
}
