//! Honest clients of the kernel's: each connects, sends a line and waits until it comes back; and a
//! server of the kernel's that sends lines back.
//!
//! Called by `syn_flood.rs`. One thread drives all clients with poll(2): a call begins when it is
//! due, independent of the others, and ends with a reset, so that no port is kept. Invariant: a
//! call's time counts from when it was due.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use floodwall_base::Instant;
use floodwall_dispatch::{Clock, pin_to_core};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, bind, connect};
use rustix::net::{listen, socket_with, sockopt};

use crate::flooded_router::{INSIDE, OUTSIDE};

/// How long a client tries.
const TRIES_FOR: Duration = Duration::from_secs(3);
const LINE: &[u8] = b"is anybody there?\n";
/// How long a look takes at most.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// The kernel's accept queue, as ours.
const BACKLOG: i32 = 1024;

/// What is called, how often, and how often a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    pub(crate) count: u32,
    pub(crate) rate: u64,
    pub(crate) to: Option<SocketAddr>,
}

impl Calls {
    fn due(&self, begun: Instant, n: u32) -> Instant {
        begun + Duration::from_nanos(u64::from(n) * 1_000_000_000 / self.rate)
    }
}

/// A stream socket of that address's family that never waits.
fn socket(of: SocketAddr) -> OwnedFd {
    let family = if of.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(family, SocketType::STREAM, flags, None).unwrap()
}

/// A call under way.
struct Call {
    stream: TcpStream,
    due: Instant,
    said: bool,
    heard: usize,
}

/// What became of a look at a call.
enum Is {
    UnderWay,
    Done,
    Lost,
}

impl Call {
    fn begin(to: SocketAddr, due: Instant) -> Option<Self> {
        let socket = socket(to);
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
        match connect(&socket, &to) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {
                Some(Self { stream: socket.into(), due, said: false, heard: 0 })
            }
            Err(_) => None,
        }
    }

    fn waits_for(&self) -> PollFlags {
        if self.said { PollFlags::IN } else { PollFlags::OUT }
    }

    fn look(&mut self) -> Is {
        if !self.said {
            match self.stream.write(LINE) {
                Ok(len) => self.said = len == LINE.len(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Is::UnderWay,
                Err(_) => return Is::Lost,
            }
        }
        let mut room = [0; 64];
        match self.stream.read(&mut room) {
            Ok(0) => return Is::Lost,
            Ok(len) => {
                assert!(LINE[self.heard..].starts_with(&room[..len]), "another line came back");
                self.heard += len;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return Is::Lost,
        }
        if self.heard == LINE.len() { Is::Done } else { Is::UnderWay }
    }
}

/// Calls everybody, in the calling thread's namespace; how long each took, shortest first, those
/// that never came off last.
pub(crate) fn call(all: &[Calls]) -> Vec<Option<Duration>> {
    let _ = pin_to_core(OUTSIDE);
    let clock = Clock::new();
    let begun = clock.now();
    let (mut begun_of, mut calls) = (vec![0; all.len()], Vec::<Call>::new());
    let (mut took, mut lost) = (Vec::new(), 0);
    loop {
        for (calling, next) in all.iter().zip(&mut begun_of) {
            while *next < calling.count && calling.due(begun, *next) <= clock.now() {
                let to = calling.to.expect("the calls have a target");
                let call = Call::begin(to, calling.due(begun, *next));
                lost += usize::from(call.is_none());
                calls.extend(call);
                *next += 1;
            }
        }
        let mut polled: Vec<_> =
            calls.iter().map(|it| PollFd::new(&it.stream, it.waits_for())).collect();
        let _ = poll(&mut polled, Some(&LOOK));
        let ready: Vec<_> = polled.iter().map(|it| !it.revents().is_empty()).collect();
        drop(polled);
        let (now, mut ready) = (clock.now(), ready.into_iter());
        calls.retain_mut(|call| {
            let is = if ready.next() == Some(true) { call.look() } else { Is::UnderWay };
            match is {
                Is::Done => took.push(Some(now - call.due)),
                Is::UnderWay if now - call.due < TRIES_FOR => return true,
                Is::UnderWay | Is::Lost => lost += 1,
            }
            false
        });
        if calls.is_empty() && all.iter().zip(&begun_of).all(|(it, next)| *next == it.count) {
            break;
        }
    }
    took.sort_unstable();
    took.extend(std::iter::repeat_n(None, lost));
    took
}

/// Sockets of the kernel's that send lines back, until dropped; on the server's core.
pub(crate) struct Lines {
    ends: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Lines {
    /// Listens in the calling thread's namespace.
    pub(crate) fn start(at: [SocketAddr; 2]) -> Self {
        let listeners = at.map(|at| {
            let socket = socket(at);
            bind(&socket, &at).unwrap();
            listen(&socket, BACKLOG).unwrap();
            socket
        });
        let ends = Arc::new(AtomicBool::new(false));
        let its_ends = ends.clone();
        let thread = thread::Builder::new().spawn(move || {
            let _ = pin_to_core(INSIDE);
            let mut streams: Vec<TcpStream> = Vec::new();
            while !its_ends.load(Ordering::Relaxed) {
                let all = listeners.iter().map(AsFd::as_fd);
                let all = all.chain(streams.iter().map(AsFd::as_fd));
                let mut polled: Vec<_> =
                    all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
                let _ = poll(&mut polled, Some(&LOOK));
                let ready: Vec<_> = polled.iter().map(|it| !it.revents().is_empty()).collect();
                drop(polled);
                let mut of_streams = ready[listeners.len()..].iter();
                streams.retain_mut(|stream| of_streams.next() != Some(&true) || sends_back(stream));
                for listener in &listeners {
                    while let Ok(accepted) = accept_with(listener, SocketFlags::NONBLOCK) {
                        streams.push(accepted.into());
                    }
                }
            }
        });
        Self { ends, thread: Some(thread.unwrap()) }
    }
}

/// Sends back what came; whether the stream goes on.
fn sends_back(stream: &mut TcpStream) -> bool {
    let mut room = [0; 256];
    match stream.read(&mut room) {
        Ok(0) => false,
        Ok(len) => stream.write_all(&room[..len]).is_ok(),
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}
