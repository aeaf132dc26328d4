//! Whether an interface joins packets on arrival (GRO), read and set through ethtool's ioctl(2).
//!
//! Called by `linux.rs`: a veth has a receive half of its own only while it joins packets.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::interface::named;

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;

/// `struct ethtool_value`.
#[repr(C)]
struct JoiningValue {
    command: u32,
    value: u32,
}

/// Whether it does.
pub(super) fn is_on(name: &str) -> io::Result<bool> {
    ask(name, ETHTOOL_GGRO, 0).map(|value| value != 0)
}

/// Makes it do so, or not. Needs CAP_NET_ADMIN.
pub(super) fn set(name: &str, on: bool) -> io::Result<()> {
    ask(name, ETHTOOL_SGRO, u32::from(on)).map(drop)
}

fn ask(name: &str, command: u32, value: u32) -> io::Result<u32> {
    // SAFETY: no pointers; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut value = JoiningValue { command, value };
    let mut question = named(name)?;
    question.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: both structures outlive the call, and have the layout that the system reads and
    // writes for these two commands.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut question) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value.value) }
}
