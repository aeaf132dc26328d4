//! Floodwall as the client, the kernel as the server.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::Duration;

use floodwall_base::{Family, Instant, Units};
use floodwall_device::{FaultConfig, FaultRates};
use floodwall_stack::{Application, Sockets, StartError};
use floodwall_udp::{IcmpError, RecvError, SocketId, SocketSettings};

use crate::bench::Bench;
use crate::echo::PATIENCE;
use crate::link::{Kind, ends};
use crate::namespace::{inside, tell as tell_measured};

/// Questions of each client.
const QUESTIONS: u32 = 200;
/// A port of the kernel's without a listener (RFC 863's service).
const DISCARD: u16 = 9;
/// How long a client waits before it sends again, and before it looks for a source address again.
const AGAIN: Duration = Duration::from_millis(200);

/// A client's result.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    /// Every question was answered, in so many tries.
    Answered(u32),
    /// An error came back.
    Refused(IcmpError),
}

/// Sends one peer request after request: connect, send, receive.
struct Client {
    to: SocketAddr,
    socket: Option<SocketId>,
    connected: bool,
    question: u32,
    tries: u32,
    /// When to ask again; `None` when all is said.
    again: Option<Instant>,
    tell: SyncSender<(SocketAddr, Told)>,
}

impl Client {
    fn new(to: SocketAddr, tell: &SyncSender<(SocketAddr, Told)>) -> Self {
        Self {
            to,
            socket: None,
            connected: false,
            question: 0,
            tries: 0,
            again: Some(Instant::ORIGIN),
            tell: tell.clone(),
        }
    }

    fn end(&mut self, told: Told) {
        self.again = None;
        self.tell.try_send((self.to, told)).unwrap();
    }

    /// Connects, where that is still to be done, and sends a request.
    fn ask(&mut self, sockets: &mut Sockets<'_>, socket: SocketId) {
        self.again = Some(sockets.now() + AGAIN);
        // Our address may still be tentative.
        self.connected = self.connected || sockets.udp_connect(socket, self.to).is_ok();
        if self.connected {
            self.tries += 1;
            sockets.udp_send(socket, None, &self.question.to_be_bytes()).unwrap();
        }
    }

    /// Whether the answer to the question has come.
    fn hear(&mut self, sockets: &mut Sockets<'_>, socket: SocketId) -> bool {
        let mut room = [0; 64];
        match sockets.udp_recv(socket, &mut room) {
            Ok(received) => {
                assert_eq!((received.len, received.from), (4, self.to));
                room[..4] == self.question.to_be_bytes()
            }
            Err(RecvError::WouldBlock) => false,
            Err(RecvError::Icmp(error)) => {
                self.end(Told::Refused(error));
                false
            }
            Err(error) => panic!("{error}"),
        }
    }
}

impl Application for Client {
    fn name(&self) -> &str {
        "client"
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        let (any, family): (SocketAddr, _) = match self.to {
            SocketAddr::V4(_) => ("0.0.0.0:0".parse().unwrap(), Family::V4),
            SocketAddr::V6(_) => ("[::]:0".parse().unwrap(), Family::V6),
        };
        self.socket = Some(sockets.udp_bind(any, SocketSettings::new(family))?);
        Ok(())
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, _: Units) -> Units {
        let (Some(socket), Some(again)) = (self.socket, self.again) else { return Units(0) };
        if self.connected && self.hear(sockets, socket) {
            self.question += 1;
            if self.question == QUESTIONS {
                self.end(Told::Answered(self.tries));
            } else {
                self.ask(sockets, socket);
            }
        } else if self.again.is_some() && again <= sockets.now() {
            self.ask(sockets, socket);
        }
        Units(1)
    }

    fn deadline(&self) -> Option<Instant> {
        self.again
    }
}

/// A socket of the kernel's that sends back what it gets, until dropped.
pub(crate) struct Echo {
    ends: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Echo {
    pub(crate) fn start(socket: UdpSocket) -> Self {
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let its_ends = ends.clone();
        let thread = thread::Builder::new().spawn(move || {
            let mut room = [0; 2048];
            while !its_ends.load(Ordering::Relaxed) {
                if let Ok((len, from)) = socket.recv_from(&mut room) {
                    let _ = socket.send_to(&room[..len], from);
                }
            }
        });
        Self { ends, thread: Some(thread.unwrap()) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// Two clients of each family: one with a peer that answers, and one with a closed port. Returns
/// when both have reported their result.
fn clients_over(kind: Kind, fault: Option<FaultConfig>) -> Option<Bench> {
    let (tell, told) = mpsc::sync_channel(8);
    let mut servers = Vec::new();
    let mut clients: Vec<Box<dyn Application>> = Vec::new();
    // The kernel has its addresses only when the link is there, and the clients must be there
    // before: so its sockets have none.
    for (ends, any) in ends().into_iter().zip(["0.0.0.0:0", "[::]:0"]) {
        let socket = UdpSocket::bind(any).unwrap();
        let port = socket.local_addr().unwrap().port();
        servers.push(Echo::start(socket));
        clients.push(Box::new(Client::new(SocketAddr::new(ends.kernel, port), &tell)));
        clients.push(Box::new(Client::new(SocketAddr::new(ends.kernel, DISCARD), &tell)));
    }
    let bench = Bench::with(kind, kind.usual_offload(), fault, clients)?;
    for _ in 0..4 {
        let (to, told) = told.recv_timeout(6 * PATIENCE).expect("a client comes to its end");
        match told {
            Told::Answered(tries) => {
                tell_measured(&format!("{tries} tries for {QUESTIONS} questions to {to}"));
                assert!(to.port() != DISCARD && tries >= QUESTIONS);
            }
            Told::Refused(error) => {
                assert_eq!((to.port(), error), (DISCARD, IcmpError::PortUnreachable));
            }
        }
    }
    Some(bench)
}

fn clients_without_loss(kind: Kind) {
    inside(move || {
        let Some(bench) = clients_over(kind, None) else { return };
        bench.end_without_loss();
    });
}

/// Resolution is ours to repeat here, as are the questions.
#[test]
fn our_clients_are_answered_and_refused_over_a_link_that_loses_one_in_ten() {
    inside(|| {
        let rates = FaultRates { loss: 0.1, ..FaultRates::default() };
        let fault = FaultConfig { seed: 78, rx: rates, tx: rates };
        let Some(bench) = clients_over(Kind::Tap, Some(fault)) else { return };
        bench.running.stop().outcome.expect("it was asked to end");
    });
}

#[test]
fn our_clients_are_answered_and_refused_by_the_kernel_over_tap() {
    clients_without_loss(Kind::Tap);
}

#[test]
fn our_clients_are_answered_and_refused_by_the_kernel_over_tun() {
    clients_without_loss(Kind::Tun);
}

#[test]
fn our_clients_are_answered_and_refused_by_the_kernel_over_a_packet_socket() {
    clients_without_loss(Kind::Packet);
}
