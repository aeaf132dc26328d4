//! Answering on the control socket, in a thread of its own, never on the worker.
//!
//! Called once by `run`. The thread sleeps until a client connects.
//!
//! # Under flood
//! Reachable by the owner's processes. Bound: [`CONNECTIONS_MAX`] connections, [`REQUEST_MAX`]
//! bytes each, or [`LONG_MAX`] where the first line announces a batch, and [`CLIENT_PATIENCE`] from
//! the first byte to the last, of a batch for each part; a client that stalls is cut off, and
//! further ones wait in the system's queue. Packets lose nothing: the worker is queried at most
//! once per request, between two bursts.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use floodwall_base::Instant;
use floodwall_dispatch::{Clock, Stop};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{LONG_MAX, REQUEST_MAX};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 16;
/// How long one may last.
const CLIENT_PATIENCE: Duration = Duration::from_secs(2);

/// One client.
struct ControlConnection {
    stream: UnixStream,
    request: Vec<u8>,
    /// Total bytes of a request that announces its length in its first line.
    long: Option<usize>,
    /// The answer and how much of it has been sent.
    answer: Option<(Vec<u8>, usize)>,
    deadline: Instant,
}

/// Bytes read at once.
const READ_BYTES: usize = 4096;

/// The bytes that follow a first line with a length: `routes BYTES MODE`.
fn announced(line: &[u8]) -> Option<usize> {
    let line = std::str::from_utf8(line).ok()?.strip_prefix("routes ")?;
    line.split_ascii_whitespace().next()?.parse().ok().filter(|len| *len <= LONG_MAX)
}

/// What has become of a connection.
#[derive(PartialEq)]
enum ConnectionOutcome {
    Open,
    Closed,
}

/// Serves until `stop` is triggered. `answer` turns a request into one line, or returns `None`
/// where it goes on with a clone of the connection by itself.
pub(crate) fn serve(
    listener: &UnixListener,
    stop: &Stop,
    mut answer: impl FnMut(&str, &UnixStream) -> Option<String>,
) -> io::Result<()> {
    let clock = Clock::new();
    let mut connections: Vec<ControlConnection> = Vec::with_capacity(CONNECTIONS_MAX);
    while !stop.is_triggered() {
        wait(listener, stop, &connections, clock.now())?;
        let now = clock.now();
        connections.retain_mut(|connection| {
            if connection.deadline <= now {
                return false;
            }
            let had = connection.progress();
            let outcome = connection.step(&mut answer);
            if connection.progress() != had && connection.long.is_some() {
                connection.deadline = clock.now() + CLIENT_PATIENCE;
            }
            outcome == ConnectionOutcome::Open
        });
        while connections.len() < CONNECTIONS_MAX {
            let Ok((stream, _)) = listener.accept() else { break };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let deadline = now + CLIENT_PATIENCE;
            let request = Vec::with_capacity(REQUEST_MAX);
            connections.push(ControlConnection {
                stream,
                request,
                long: None,
                answer: None,
                deadline,
            });
        }
    }
    Ok(())
}

/// Sleeps until a client connects, or the first patience ends. While all places are taken, new
/// clients are left in the system's queue.
fn wait(
    listener: &UnixListener,
    stop: &Stop,
    connections: &[ControlConnection],
    now: Instant,
) -> io::Result<()> {
    let mut waited = vec![PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
    for connection in connections {
        let wish = if connection.answer.is_some() { PollFlags::OUT } else { PollFlags::IN };
        waited.push(PollFd::from_borrowed_fd(connection.stream.as_fd(), wish));
    }
    if connections.len() < CONNECTIONS_MAX {
        waited.push(PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
    }
    let timeout = connections.iter().map(|c| c.deadline - now).min().map(|length| Timespec {
        tv_sec: length.as_secs().cast_signed(),
        tv_nsec: i64::from(length.subsec_nanos()),
    });
    match poll(&mut waited, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl ControlConnection {
    /// Reads or writes as much as is possible without waiting.
    fn step(
        &mut self,
        answer: &mut impl FnMut(&str, &UnixStream) -> Option<String>,
    ) -> ConnectionOutcome {
        if self.answer.is_none() {
            match self.read() {
                Ok(Some(request)) => {
                    let Some(line) = answer(&request, &self.stream) else {
                        return ConnectionOutcome::Closed;
                    };
                    let mut line = line.into_bytes();
                    line.push(b'\n');
                    self.answer = Some((line, 0));
                }
                Ok(None) => return ConnectionOutcome::Open,
                Err(_) => return ConnectionOutcome::Closed,
            }
        }
        self.write()
    }

    /// The request, once its line is whole.
    fn read(&mut self) -> io::Result<Option<String>> {
        let mut piece = [0; READ_BYTES];
        loop {
            let room = self.long.unwrap_or(REQUEST_MAX) - self.request.len();
            match self.stream.read(&mut piece[..room.min(READ_BYTES)]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.request.extend_from_slice(&piece[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if let Some(long) = self.long {
                if self.request.len() == long {
                    return Ok(Some(String::from_utf8_lossy(&self.request).into_owned()));
                }
                continue;
            }
            if let Some(end) = self.request.iter().position(|byte| *byte == b'\n') {
                if let Some(len) = announced(&self.request[..end]) {
                    self.long = Some(end + 1 + len);
                    self.request.truncate(end + 1 + len);
                    if len == 0 || self.request.len() == end + 1 + len {
                        return Ok(Some(String::from_utf8_lossy(&self.request).into_owned()));
                    }
                    continue;
                }
                let line = String::from_utf8_lossy(&self.request[..end]);
                return Ok(Some(line.trim().to_owned()));
            }
            if self.request.len() == REQUEST_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }

    /// What has been read and sent, to see whether it goes on.
    fn progress(&self) -> (usize, usize) {
        (self.request.len(), self.answer.as_ref().map_or(0, |(_, sent)| 1 + *sent))
    }

    fn write(&mut self) -> ConnectionOutcome {
        let Some((answer, sent)) = &mut self.answer else { return ConnectionOutcome::Open };
        while *sent < answer.len() {
            match self.stream.write(&answer[*sent..]) {
                Ok(0) => return ConnectionOutcome::Closed,
                Ok(n) => *sent += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return ConnectionOutcome::Open;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return ConnectionOutcome::Closed,
            }
        }
        ConnectionOutcome::Closed
    }
}

#[cfg(test)]
mod tests;
