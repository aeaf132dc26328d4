//! `LinkState`: whether the system's interface behind a device carries packets, and how large; its
//! name and link address, which an administrator may change at any time.
//!
//! Called a few times a second by a thread that is not the worker, because a query costs a system
//! call. An interface has carrier while it is up and its link is there (for a TAP: it is open in a
//! process; for a veth: its other end is up, too). Invariants: it queries the network namespace in
//! which it was made; it follows the interface that had the name then, by its number, after a
//! rename too.

use std::io;

use floodwall_base::MacAddr;

use crate::interface::InterfaceControl;

/// A handle to read an interface's carrier state and MTU.
#[derive(Debug)]
pub struct LinkState {
    control: InterfaceControl,
    index: i32,
}

impl LinkState {
    /// A look at the interface `name`, in the calling thread's network namespace.
    ///
    /// # Errors
    /// No descriptor is left, or there is no such interface.
    pub fn new(name: &str) -> io::Result<Self> {
        let control = InterfaceControl::open()?;
        let index = control.interface(name).index()?;
        Ok(Self { control, index })
    }

    /// What it is called now; `None` where it does not exist any more. One system call.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        self.control.name_of(self.index).ok()
    }

    /// Whether it is up and its link is there; false where it does not exist. Two system calls.
    #[must_use]
    pub fn carries(&self) -> bool {
        let carries = |name: String| self.control.interface(&name).carries().ok();
        self.name().and_then(carries).unwrap_or(false)
    }

    /// Bytes of the largest IP packet that it carries now; `None` where it does not exist. Two
    /// system calls.
    #[must_use]
    pub fn mtu(&self) -> Option<u32> {
        self.name().and_then(|name| self.control.interface(&name).mtu().ok())
    }

    /// Its link address now; `None` where it does not exist or has none of Ethernet's kind. Two
    /// system calls.
    #[must_use]
    pub fn mac(&self) -> Option<MacAddr> {
        self.name().and_then(|name| self.control.interface(&name).mac().ok().flatten())
    }
}
