//! `InterfaceLink`: the kind of an interface, whether it is up, and whether it is a bridge port.
//!
//! Called by `linux.rs` and for TUN and TAP, through the routes' family of netlink, which needs no
//! privilege. Invariant: the interface is looked for in the calling thread's network namespace.

use std::io;

use super::netlink::{IFLA_IFNAME, LINK_HEAD, attributes, link_named, text};

const IFLA_ADDRESS: u16 = 1;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_SLAVE_KIND: u16 = 4;

/// Properties of one interface, as read by rtnetlink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InterfaceLink {
    /// The system's number.
    pub(super) index: u32,
    /// Its name.
    pub(super) name: String,
    /// Its link address, as digits.
    pub(super) address: String,
    /// The driver's kind, as `veth`; empty for cards.
    pub(super) kind: String,
    /// What it is a part of, as `bridge`; empty where of nothing.
    pub(super) part_of: String,
    /// Whether it is up.
    pub(super) is_up: bool,
}

impl InterfaceLink {
    /// Looks for the interface `name`.
    pub(super) fn of(name: &str) -> io::Result<Self> {
        Self::read(&link_named(name)?)
            .ok_or_else(|| io::Error::other("the kernel's answer is cut off"))
    }

    fn read(answer: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(*answer.get(at..)?.first_chunk()?));
        let mut link =
            Self { index: word(4)?, is_up: word(8)? & libc::IFF_UP as u32 != 0, ..Self::default() };
        for (kind, value) in attributes(answer.get(LINK_HEAD..)?) {
            match kind {
                IFLA_ADDRESS => link.address = value.iter().map(|b| format!("{b:02x}")).collect(),
                IFLA_IFNAME => link.name = text(value),
                IFLA_LINKINFO => link.read_info(value),
                _ => {}
            }
        }
        Some(link)
    }

    fn read_info(&mut self, value: &[u8]) {
        for (kind, value) in attributes(value) {
            match kind {
                IFLA_INFO_KIND => self.kind = text(value),
                IFLA_INFO_SLAVE_KIND => self.part_of = text(value),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_found_and_others_are_not() {
        let link = InterfaceLink::of("lo").unwrap();
        assert_eq!((link.index, link.part_of.as_str()), (1, ""));
        let error = InterfaceLink::of("no-such-if").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
