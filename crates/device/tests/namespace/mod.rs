//! A network namespace of one thread, for tests that need real interfaces.
//!
//! Used by the tests of TUN, TAP and AF_PACKET. Without root, or without the kernel's support, it
//! prints the reason and the test passes without having checked its claim.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing test may panic")]
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::io;
use std::os::fd::BorrowedFd;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{PoisonError, RwLock};
use std::thread;

use floodwall_device::{Device, DeviceError};
use floodwall_packet::{Burst, PacketBuf, PacketList, Pool};

/// Runs `test` on a thread with its own network namespace, or prints why not.
pub fn inside(test: impl FnOnce() + Send + 'static) {
    let name = thread::current().name().unwrap_or("test").to_owned();
    let runner = thread::Builder::new().name(name).spawn(move || {
        // SAFETY: takes no pointer; affects this thread only, which shares its namespace with none.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            skip(&format!("no network namespace of its own: {}", io::Error::last_os_error()));
            return;
        }
        if !ip("link set lo up") {
            skip("the command `ip` is missing or fails");
            return;
        }
        test();
    });
    if let Err(panic) = runner.unwrap().join() {
        std::panic::resume_unwind(panic);
    }
}

/// Reports that a test's claim was not checked.
pub fn skip(why: &str) {
    eprintln!("SKIPPED {}: {why}", thread::current().name().unwrap_or("test"));
}

/// Unwraps what this machine may lack; prints why and gives `None` where it does.
pub fn available<T>(what: Result<T, DeviceError>) -> Option<T> {
    match what {
        Ok(found) => Some(found),
        Err(error @ (DeviceError::NotFound { .. } | DeviceError::NoPrivilege { .. })) => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Held for writing while a process starts: until it is another program, the new process has a copy
/// of every open descriptor, and what this process drops meanwhile stays open (a file's lock, a
/// program at an interface).
static STARTING: RwLock<()> = RwLock::new(());

fn spawn(command: &mut Command) -> io::Result<Child> {
    let _starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// Runs a process; what it says.
pub fn output(command: &mut Command) -> io::Result<Output> {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn(piped)?.wait_with_output()
}

/// Drops a device or its place while no process starts, so that the kernel's part of it is closed
/// then.
pub fn close<T>(what: T) {
    let _none_starts = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    drop(what);
}

/// Runs one `ip` command in the calling thread's namespace.
pub fn ip(words: &str) -> bool {
    let ended =
        spawn(Command::new("ip").args(words.split_whitespace())).and_then(|mut ip| ip.wait());
    ended.is_ok_and(|status| status.success())
}

/// The output of one `ip` command in the calling thread's namespace.
pub fn shown(words: &str) -> String {
    let output = output(Command::new("ip").args(words.split_whitespace())).unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Turns forwarding on for both families.
pub fn forward() {
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
}

/// Waits up to a second for a descriptor to become readable.
pub fn wait(fd: BorrowedFd<'_>) -> bool {
    wait_millis(fd, 1000)
}

/// Waits that long for a descriptor to become readable.
pub fn wait_millis(fd: BorrowedFd<'_>, millis: i64) -> bool {
    let mut polled = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    let time =
        rustix::event::Timespec { tv_sec: millis / 1000, tv_nsec: (millis % 1000) * 1_000_000 };
    rustix::event::poll(&mut polled, Some(&time)).unwrap() > 0
}

/// Receives until a packet satisfies `wanted`; others (the kernel's own) are ignored.
pub fn receive_where(
    device: &mut impl Device,
    pool: &Pool,
    wanted: impl Fn(&PacketBuf) -> bool,
) -> Option<PacketBuf> {
    for _ in 0..100 {
        let mut burst = Burst::new();
        device.receive(pool, &mut burst).unwrap();
        if let Some(found) = burst.drain().find(&wanted) {
            return Some(found);
        }
        if !device.pending() && !device.readiness().is_some_and(wait) {
            return None;
        }
    }
    None
}

/// Sends one packet, which must leave.
pub fn send(device: &mut impl Device, packet: PacketBuf) {
    let mut list = PacketList::new();
    list.push_back(packet);
    assert_eq!(device.transmit(&mut list).unwrap(), 1);
}

/// All bytes of a packet.
pub fn flat(packet: &PacketBuf) -> Vec<u8> {
    let mut bytes = vec![0; packet.len()];
    packet.copy_out(0, &mut bytes);
    bytes
}

/// Takes all privileges from the calling thread, and from no other.
pub fn drop_capabilities() -> bool {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).is_ok()
}

/// The calling thread goes on as user and group 65534 with these capabilities and no others.
pub fn become_nothing(kept: rustix::thread::CapabilitySet) -> bool {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities};
    const NOBODY: libc::c_int = 65_534;
    let set = |kept, inheritable| {
        let sets = CapabilitySets { effective: kept, permitted: kept, inheritable };
        set_capabilities(None, sets).is_ok()
    };
    // By the raw calls, which change this thread alone.
    // SAFETY: takes no pointer.
    let group = || unsafe { libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY) } == 0;
    // SAFETY: as above.
    let user = || unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) } == 0;
    let kept_over = set_keep_capabilities(true).is_ok() && group() && user();
    kept_over && set(kept, CapabilitySet::empty())
}
