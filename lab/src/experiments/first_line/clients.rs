//! Honest clients of the kernel's: connect, send a line, have it back, on a schedule.
//!
//! Called by `trials.rs` in the namespace and on the core of the flood. The time of a call counts
//! from the moment at which it was due. Invariant: each call ends once, answered or not.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;

use floodwall_base::Instant;
use floodwall_dispatch::Clock;
use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use crate::error::LabError;
use crate::experiments::stalls::Stalls;

/// What is sent.
const LINE: &[u8; 32] = b"a line that is to come back here";
/// Events that are looked at together.
const EVENTS: usize = 64;

/// What became of calls, or of questions: when each was due, and after which time it was answered.
#[derive(Clone, Debug, Default)]
pub(super) struct Called(pub(super) Vec<(Instant, Option<Duration>)>);

impl Called {
    /// The answered part.
    pub(super) fn honest(&self) -> f64 {
        self.answered().count() as f64 / self.0.len().max(1) as f64
    }

    /// The time that one of a hundred answered calls exceeds, in milliseconds.
    pub(super) fn p99_millis(&self) -> f64 {
        let mut times: Vec<_> = self.answered().collect();
        times.sort_unstable();
        let at = (times.len() * 99).div_ceil(100).saturating_sub(1);
        times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }

    /// Those that met no stall.
    pub(super) fn without(mut self, stalls: &Stalls) -> Self {
        self.0.retain(|(due, _)| !stalls.spoil(*due));
        self
    }

    fn answered(&self) -> impl Iterator<Item = Duration> {
        self.0.iter().filter_map(|(_, time)| *time)
    }
}

struct Call {
    due: Instant,
    stream: Option<TcpStream>,
    has_sent: bool,
}

fn wrong(error: impl core::fmt::Display) -> LabError {
    LabError::Scene(format!("the clients: {error}"))
}

fn dial(server: SocketAddr) -> Result<TcpStream, LabError> {
    let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket: OwnedFd = socket_with(family, SocketType::STREAM, flags, None).map_err(wrong)?;
    // No state of a closed call stays.
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).map_err(wrong)?;
    match connect(&socket, &server) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(wrong(error)),
    }
}

/// So many calls, `rate` a second, each given up after `patience`.
pub(super) fn call(
    server: SocketAddr,
    (count, rate): (usize, u64),
    patience: Duration,
) -> Result<Called, LabError> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(wrong)?;
    let clock = Clock::new();
    let begin = clock.now();
    let due =
        |number: usize| begin + Duration::from_nanos(number as u64 * 1_000_000_000 / rate.max(1));
    let (mut calls, mut first): (Vec<Call>, usize) = (Vec::with_capacity(count), 0);
    let mut called: Vec<_> = (0..count).map(|number| (due(number), None)).collect();
    while first < count {
        while calls.len() < count && due(calls.len()) <= clock.now() {
            let (number, stream) = (calls.len(), dial(server)?);
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&poll, &stream, data, epoll::EventFlags::OUT).map_err(wrong)?;
            calls.push(Call { due: due(number), stream: Some(stream), has_sent: false });
        }
        let mut events = Vec::with_capacity(EVENTS);
        let wait = Timespec { tv_sec: 0, tv_nsec: 500_000 };
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(wrong(error)),
        }
        for event in events {
            let number = event.data.u64() as usize;
            let Some(call) = calls.get_mut(number) else { continue };
            let time = step(&poll, call, number, &clock).map_err(wrong)?;
            if let Some((_, answered)) = called.get_mut(number) {
                *answered = answered.or(time.filter(|time| *time <= patience));
            }
        }
        let now = clock.now();
        while let Some(call) = calls.get_mut(first) {
            if call.stream.is_some() && now - call.due <= patience {
                break;
            }
            call.stream = None;
            first += 1;
        }
    }
    Ok(Called(called))
}

/// Something has happened to a call; its time, where the line has come back.
fn step(
    poll: &OwnedFd,
    call: &mut Call,
    number: usize,
    clock: &Clock,
) -> rustix::io::Result<Option<Duration>> {
    let Some(stream) = &mut call.stream else { return Ok(None) };
    if !call.has_sent {
        if stream.write(LINE).is_ok_and(|sent| sent == LINE.len()) {
            call.has_sent = true;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::modify(poll, &*stream, data, epoll::EventFlags::IN)?;
        } else {
            call.stream = None;
        }
        return Ok(None);
    }
    let mut line = [0; 64];
    let has_come = stream.read(&mut line).is_ok_and(|len| len == LINE.len());
    call.stream = None;
    Ok(has_come.then(|| clock.now() - call.due))
}
