//! DHCPv6 (RFC 8415): one address of a server (IA_NA), DNS servers and search domains.
//!
//! Called by `stack`, once for each interface with a router that announces addresses (M) or other
//! settings (O) by DHCPv6. `v6/client.rs` is the state machine, `v6/lease.rs` validates what a
//! server sends. Not here: prefix delegation, temporary addresses, rapid commit, reconfiguration by
//! the server (which needs authentication), the server's unicast option (obsolete).
//!
//! # Under flood
//! As of DHCPv4 (`lib.rs`): an answer must have the transaction id of a request of ours, which all
//! stations of the link see, and our DUID. Bound: one offer and one lease of fixed size, with the
//! server's DUID ([`DUID_LEN_MAX`] bytes), `DHCP_DNS_MAX` servers and `DHCP_NAMES_BYTES` bytes of
//! domains; of `DHCP_MESSAGE_BYTES_MAX` bytes each is read at most three times. Requests follow RFC
//! 8415 section 15 and are at least a second apart, for every answer of a server.

pub(crate) mod client;
pub(crate) mod lease;

use floodwall_wire::dhcpv6::DUID_LEN_MAX;

/// The identifier of a server or client (RFC 8415 section 11), stored inline.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Duid {
    bytes: [u8; DUID_LEN_MAX],
    len: u8,
}

impl Duid {
    /// An identifier; `None` where it is empty or too long to be one.
    #[must_use]
    pub fn new(value: &[u8]) -> Option<Self> {
        let mut bytes = [0; DUID_LEN_MAX];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        (value.len() > 2).then_some(Self { bytes, len: value.len() as u8 })
    }

    /// Its bytes, the type first.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl core::fmt::Debug for Duid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

impl core::fmt::Display for Duid {
    /// Hexadecimal, as servers log it.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
