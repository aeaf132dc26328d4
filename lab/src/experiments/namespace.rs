//! The network that experiments with real threads run in: a namespace of one thread, with cables.
//!
//! Called by `starvation/threads.rs`, `xdp_flood/trials.rs` and `first_line/trials.rs`. A veth pair
//! with the kernel's own stack at its far end, or one shared with ours, and a TAP with ours. The
//! namespace has no name and no route out, and is removed with the threads in it, however they end.
//! Needs root, `ip` and `mount`.

use std::process::{Command, Stdio};

use rustix::thread::UnshareFlags;

/// Where the flood enters the cable to the kernel.
pub(crate) const VETH_NEAR: &str = "fwlab0";
/// The kernel's end of it.
pub(crate) const VETH_FAR: &str = "fwlab1";
/// Where control groups are, and where they are put for a moment.
const GROUPS: &str = "/sys/fs/cgroup";
const ASIDE: &str = "/mnt";
/// The cable to our stack.
pub(crate) const TAP: &str = "fwlab2";

/// Puts the calling thread, and those that it starts, into a namespace of its own.
///
/// # Errors
/// What is missing, in words.
pub(crate) fn enter() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("it makes a network namespace, and this is not root".to_owned());
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        return Err("/dev/net/tun is not there".to_owned());
    }
    #[expect(deprecated, reason = "only its file-table flag can harm, and that one is not used")]
    let own = rustix::thread::unshare(UnshareFlags::NEWNET | UnshareFlags::NEWNS);
    own.map_err(|errno| format!("the system refuses a network namespace ({errno})"))?;
    // The system's files about this namespace's interfaces, for this thread only.
    run("mount", "--make-rprivate /")?;
    // The control groups are in the folder that is covered by that, and a kernel thread may have to
    // be moved into ours. Where they cannot be kept visible, no thread is moved.
    let kept = run("mount", &format!("--rbind {GROUPS} {ASIDE}")).is_ok();
    run("mount", "-t sysfs sysfs /sys")?;
    if kept {
        run("mount", &format!("--rbind {ASIDE} {GROUPS}"))?;
        run("umount", &format!("-l {ASIDE}"))?;
    }
    Ok(())
}

/// Lays the cable to the kernel's stack: its end has these addresses, and receives on `core`.
/// Returns that end's link address.
///
/// # Errors
/// What is missing, in words.
pub(crate) fn lay_veth(addrs: &[String], core: usize) -> Result<[u8; 6], String> {
    run("ip", "link set lo up")?;
    run("ip", &format!("link add {VETH_NEAR} type veth peer name {VETH_FAR}"))?;
    for addr in addrs {
        let nodad = if addr.contains(':') { " nodad" } else { "" };
        run("ip", &format!("addr add {addr} dev {VETH_FAR}{nodad}"))?;
    }
    run("ip", &format!("link set {VETH_NEAR} up"))?;
    run("ip", &format!("link set {VETH_FAR} up"))?;
    // Else the sender's core would do the receiver's work.
    steer(VETH_FAR, core)?;
    let text = std::fs::read_to_string(format!("/sys/class/net/{VETH_FAR}/address"));
    let text = text.map_err(|error| format!("{VETH_FAR} has no address ({error})"))?;
    let mut octets = text.trim().split(':').map(|part| u8::from_str_radix(part, 16));
    let mut next = || octets.next().and_then(Result::ok).ok_or("an odd link address".to_owned());
    Ok([next()?, next()?, next()?, next()?, next()?, next()?])
}

/// Has the kernel's receive half of an interface run on `core`, for every sender.
///
/// # Errors
/// What is missing, in words.
pub(crate) fn steer(name: &str, core: usize) -> Result<(), String> {
    let steer = format!("/sys/class/net/{name}/queues/rx-0/rps_cpus");
    let mask = 1_u128.checked_shl(core as u32).unwrap_or(0);
    std::fs::write(&steer, format!("{mask:x}"))
        .map_err(|error| format!("the kernel's receive half cannot be steered ({error})"))
}

/// Runs `ip` with these arguments.
///
/// # Errors
/// What it printed.
pub(crate) fn ip(words: &str) -> Result<(), String> {
    run("ip", words)
}

/// Frames that an interface has received.
///
/// # Errors
/// The system does not report it.
pub(crate) fn received(name: &str) -> Result<u64, String> {
    let path = format!("/sys/class/net/{name}/statistics/rx_packets");
    let text = std::fs::read_to_string(&path);
    let count = text.ok().and_then(|text| text.trim().parse().ok());
    count.ok_or_else(|| format!("{path} has no number"))
}

/// Brings our stack's cable up, once the TAP is open.
///
/// # Errors
/// What is missing, in words.
pub(crate) fn raise_tap() -> Result<(), String> {
    run("ip", &format!("link set {TAP} up"))
}

/// Runs a program with these arguments.
///
/// # Errors
/// It is missing, or what it printed.
pub(crate) fn run(program: &str, words: &str) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(words.split_whitespace()).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("`{program}` is missing ({error})"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{program} {words}` said: {}", said.trim()))
}

/// Has a thread, by its number, precede everything of the default class on its core.
///
/// # Errors
/// The system refuses it, in words.
pub(crate) fn put_first(thread: i32, priority: u32) -> Result<(), String> {
    let rank = || run("chrt", &format!("--fifo --pid {priority} {thread}"));
    // A control group of version 1 may have no time for such threads; the topmost one has.
    let leave = |_| std::fs::write("/sys/fs/cgroup/cpu/cgroup.procs", thread.to_string());
    rank().or_else(|said| leave(()).map_err(|_| said).and_then(|()| rank()))
}
