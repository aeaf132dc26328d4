//! Waiting: the one place where a worker gives up its core.
//!
//! Called by the worker when a turn left nothing to do. It waits for the stop, the bell, any
//! device, or the moment given; all of them stay ready until they are seen to, so nothing that
//! happened before the call is missed.

use std::os::fd::AsFd;
use std::time::Duration;

use floodwall_base::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::{ClockId, clock_nanosleep_absolute};

use crate::bell::Bell;
use crate::port::Port;
use crate::stop::Stop;

/// How long the stop may have to wait for a worker that stays away.
const STOP_LOOK: Duration = Duration::from_millis(20);

/// Ports that one worker may have.
pub(crate) const PORTS_MAX: usize = 64;

/// What ended a sleep.
pub(crate) struct WakeReason {
    /// The bell.
    pub(crate) rung: bool,
    /// The stop, or a signal on this thread.
    pub(crate) stopped: bool,
    /// The ports that have something, as bits.
    pub(crate) ports: u64,
}

/// Sleeps until something happens, or until `until`; for ever where that is `None`. What a worker
/// that is not hungry has in its devices does not wake it: it would not take it.
pub(crate) fn sleep(
    stop: &Stop,
    bell: &Bell,
    ports: &[Port],
    is_hungry: bool,
    now: Instant,
    until: Option<Instant>,
) -> Result<WakeReason, Errno> {
    let quiet = PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN);
    let mut waited = [const { None }; PORTS_MAX + 2].map(|_: Option<()>| quiet.clone());
    let mut port_of = [0_u8; PORTS_MAX + 2];
    waited[1] = PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN);
    let mut count = 2;
    for (index, port) in ports.iter().enumerate().take(if is_hungry { PORTS_MAX } else { 0 }) {
        if let Some(descriptor) = port.readiness(now) {
            waited[count] = PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
            port_of[count] = index as u8;
            count += 1;
        }
    }
    let timeout = until.map(|until| timespec(until - now));
    match poll(&mut waited[..count], timeout.as_ref()) {
        Ok(_) => {}
        // A signal on this thread: look around and come back.
        Err(Errno::INTR) => return Ok(WakeReason { rung: false, stopped: true, ports: 0 }),
        Err(error) => return Err(error),
    }
    let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
    let mut woken =
        WakeReason { rung: is_ready(&waited[1]), stopped: is_ready(&waited[0]), ports: 0 };
    for (fd, index) in waited[2..count].iter().zip(&port_of[2..count]) {
        woken.ports |= u64::from(is_ready(fd)) << index;
    }
    Ok(woken)
}

/// Leaves the core to others until `until`, regardless of arrivals; checks for the stop now and
/// then. Sleeps by absolute time, so that time between reading the clock and sleeping is not added.
pub(crate) fn stay_away(stop: &Stop, now: Instant, until: Instant) {
    let mut at = now;
    while at < until && !stop.is_triggered() {
        at = (at + STOP_LOOK).min(until);
        // A signal on this thread is no reason to come back.
        while clock_nanosleep_absolute(ClockId::Boottime, &timespec(at - Instant::ORIGIN))
            == Err(Errno::INTR)
        {}
    }
}

fn timespec(length: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(length.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(length.subsec_nanos()),
    }
}
