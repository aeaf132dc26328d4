//! `LinkState`: whether the system's interface behind a device carries packets, and how large.
//!
//! Called a few times a second by a thread that is not the worker, because a query costs a system
//! call. An interface has carrier while it is up and its link is there (for a TAP: it is open in a
//! process; for a veth: its other end is up, too). Invariant: it queries the network namespace in
//! which it was made.

use std::io;

use crate::interface::InterfaceControl;

/// A handle to read an interface's carrier state and MTU.
#[derive(Debug)]
pub struct LinkState {
    control: InterfaceControl,
    name: String,
}

impl LinkState {
    /// A look at the interface `name`, in the calling thread's network namespace.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(name: &str) -> io::Result<Self> {
        Ok(Self { control: InterfaceControl::open()?, name: name.to_owned() })
    }

    /// Whether the interface is up and its link is there; false where it does not exist.
    #[must_use]
    pub fn carries(&self) -> bool {
        self.control.interface(&self.name).carries().unwrap_or(false)
    }

    /// Bytes of the largest IP packet that the interface carries now; `None` where it does not
    /// exist.
    #[must_use]
    pub fn mtu(&self) -> Option<u32> {
        self.control.interface(&self.name).mtu().ok()
    }
}
