//! `Poller`: the kernel's half of an interface, run within our own system call.
//!
//! Made by `linux.rs`, called by `af_packet.rs` where its ring is empty. An io_uring that never
//! carries a request: NAPI instances are registered by their ids, and it busy polls them while it
//! waits. A socket of the kernel's own stack could poll too, but learns a NAPI id only from a
//! packet received through that instance, which cannot be relied upon on a foreign link.
//!
//! Invariants: [`PollDrive::poll`] returns after [`POLL_MICROS`] or little more, and takes no
//! memory; between two polls the card does not call, for as long as the half was set to look by
//! itself (`gro_flush_timeout`); [`PollDrive::release`] has the card call again. Needs Linux 6.13,
//! and an io_uring that is not forbidden. Reading: io_uring_register(2), `IORING_REGISTER_NAPI`.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Microseconds of one poll: some three dozen frames.
const POLL_MICROS: u32 = 20;
/// Of one where more waits than that takes: a call costs some microseconds of its own.
const LONG_MICROS: u32 = 60;
/// Of the look that gives the half back.
const LOOK_MICROS: u32 = 1;

const IORING_ENTER_GETEVENTS: libc::c_uint = 1;
const IORING_ENTER_EXT_ARG: libc::c_uint = 1 << 3;
const IORING_REGISTER_NAPI: libc::c_uint = 27;
/// Operations of `struct io_uring_napi`.
const NAPI_REGISTER: u8 = 0;
const NAPI_ADD_ID: u8 = 1;
/// The tracking mode with explicitly registered NAPI ids only.
const TRACKING_STATIC: u32 = 1;

/// What runs the kernel's half: a [`Poller`], or the fake of `tests.rs`.
pub(super) trait PollDrive: Send + Debug {
    /// Runs it for a moment.
    fn poll(&mut self);
    /// Runs it for a longer moment.
    fn poll_long(&mut self) {
        self.poll();
    }
    /// Runs it once more and gives it back to the card, which calls when something comes.
    fn release(&mut self);
}

/// Busy polling of an interface's NAPI instances.
#[derive(Debug)]
pub(super) struct Poller {
    /// Polls with preference: the card is silent meanwhile and after.
    preferring: PollRing,
    /// Looks once without, which ends as the card's own look would: its calls are on again.
    releasing: PollRing,
}

/// An io_uring that busy polls NAPI instances while it waits. Registered ids persist until the
/// ring's polling mode is changed.
#[derive(Debug)]
struct PollRing(OwnedFd);

/// `struct io_uring_napi`.
#[repr(C)]
struct RingNapi {
    busy_poll_micros: u32,
    prefer_busy_poll: u8,
    operation: u8,
    pad: [u8; 2],
    parameter: u32,
    reserved: u32,
}

/// `struct io_uring_getevents_arg`.
#[repr(C)]
struct PollWait {
    mask: u64,
    mask_bytes: u32,
    min_wait_micros: u32,
    time: u64,
}

/// `struct __kernel_timespec`.
#[repr(C)]
struct PollTime {
    seconds: i64,
    nanos: i64,
}

impl Poller {
    /// A poller of these receive halves.
    pub(super) fn open(ids: &[u32]) -> io::Result<Self> {
        let preferring = PollRing::open(ids, LONG_MICROS, true)?;
        Ok(Self { preferring, releasing: PollRing::open(ids, LOOK_MICROS, false)? })
    }
}

impl PollRing {
    fn open(ids: &[u32], micros: u32, prefer: bool) -> io::Result<Self> {
        // `struct io_uring_params`: all zeros is the default.
        let mut parameters = [0_u64; 15];
        // SAFETY: the system reads and writes 120 bytes, which outlive the call.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which has no other owner.
        let ring = Self(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) });
        ring.register(NAPI_REGISTER, TRACKING_STATIC, (micros, prefer))?;
        ids.iter().try_for_each(|id| ring.register(NAPI_ADD_ID, *id, (micros, prefer)))?;
        Ok(ring)
    }

    fn register(&self, operation: u8, parameter: u32, way: (u32, bool)) -> io::Result<()> {
        let mut wish = RingNapi {
            busy_poll_micros: way.0,
            prefer_busy_poll: u8::from(way.1),
            operation,
            pad: [0; 2],
            parameter,
            reserved: 0,
        };
        let (ring, what) = (self.0.as_raw_fd(), IORING_REGISTER_NAPI);
        // SAFETY: the system reads and writes one structure of this layout, which outlives the
        // call.
        let result =
            unsafe { libc::syscall(libc::SYS_io_uring_register, ring, what, &raw mut wish, 1) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits so long for an event that never comes, and polls meanwhile.
    fn wait(&self, micros: u32) {
        let time = PollTime { seconds: 0, nanos: i64::from(micros) * 1000 };
        let at = (&raw const time) as u64;
        let wait = PollWait { mask: 0, mask_bytes: 0, min_wait_micros: 0, time: at };
        let (ring, flags) = (self.0.as_raw_fd(), IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG);
        // SAFETY: the system reads both structures, which have its layout and outlive the call. It
        // ends at the timeout or with a signal; neither needs handling.
        let _ = unsafe {
            let (wait, bytes) = (&raw const wait, size_of::<PollWait>());
            libc::syscall(libc::SYS_io_uring_enter, ring, 0, 1, flags, wait, bytes)
        };
    }
}

impl PollDrive for Poller {
    fn poll(&mut self) {
        self.preferring.wait(POLL_MICROS);
    }

    fn poll_long(&mut self) {
        self.preferring.wait(LONG_MICROS);
    }

    fn release(&mut self) {
        self.releasing.wait(LOOK_MICROS);
    }
}
