//! `Card`: driver properties of an interface, read with ethtool's ioctl(2).
//!
//! Called by `af_xdp.rs` when it opens. Where a driver does not answer, the interface has one
//! receive queue and no name of a driver.

use crate::interface::{InterfaceControl, named};
use std::io;

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x3;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_drvinfo`: the command, seven texts, five numbers.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    rx_max: u32,
    tx_max: u32,
    other_max: u32,
    combined_max: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// The driver of an interface and its number of receive queues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Card {
    /// The driver's name.
    pub(super) driver: String,
    /// Receive queues, at least one.
    pub(super) queues: u32,
}

impl Card {
    /// Queries the driver in the calling thread's network namespace.
    pub(super) fn of(name: &str) -> io::Result<Self> {
        let control = InterfaceControl::open()?;
        let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
        let known = ask(&control, name, &mut info).is_ok();
        let end = info.driver.iter().position(|byte| *byte == 0).unwrap_or(info.driver.len());
        let driver = info.driver.get(..end).filter(|_| known).unwrap_or_default();
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
        let counted = ask(&control, name, &mut channels).is_ok();
        let queues = if counted { channels.rx.saturating_add(channels.combined) } else { 1 };
        Ok(Self { driver: String::from_utf8_lossy(driver).into_owned(), queues: queues.max(1) })
    }

    /// Whether the other end hands over GSO frames as they are, and no longer does while a
    /// program is attached: these drivers do so for any flags of the program.
    pub(super) fn cuts_for_programs(&self) -> bool {
        matches!(self.driver.as_str(), "veth" | "virtio_net")
    }

    /// Whether the other end is this machine's own memory.
    pub(super) fn is_local(&self) -> bool {
        self.driver == "veth"
    }
}

/// Structures that ethtool's commands above read and write.
trait ChannelCount {}
impl ChannelCount for DriverInfo {}
impl ChannelCount for Channels {}

fn ask<A: ChannelCount>(control: &InterfaceControl, name: &str, answer: &mut A) -> io::Result<()> {
    let mut question = named(name)?;
    question.ifr_ifru.ifru_data = core::ptr::from_mut(answer).cast();
    // SAFETY: both structures outlive the call, and the second has the layout that the system reads
    // and writes for the command in its first field.
    let result = unsafe { libc::ioctl(control.fd(), SIOCETHTOOL, &raw mut question) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_says_nothing_has_one_queue() {
        assert_eq!(size_of::<DriverInfo>(), 196);
        assert_eq!(size_of::<Channels>(), 36);
        let lo = Card::of("lo").unwrap();
        assert_eq!(lo.queues, 1);
        assert!(!lo.is_local());
        assert!(!Card::of("no-such-if").unwrap().is_local());
    }
}
