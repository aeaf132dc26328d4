//! ARP for IPv4 over Ethernet.
//!
//! Called by `ip/arp.rs`, `pktgen` and the tests. Invariant: an [`ArpPacket`] is Ethernet and
//! IPv4 with their own address lengths; anything else is refused. Read first: RFC 826 ("Packet
//! Reception"), RFC 5227 (probes). Not here: any decision on what to accept.

use core::fmt;
use core::net::Ipv4Addr;

use floodwall_base::MacAddr;
use thiserror::Error;

use crate::field;

/// The bytes of an ARP packet for IPv4 over Ethernet.
pub const PACKET_LEN: usize = 28;

/// The operation of an ARP packet: request or reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ArpOperation(pub u16);

impl ArpOperation {
    /// Requests the link address of the target address.
    pub const REQUEST: Self = Self(1);
    /// The sender has the sender address.
    pub const REPLY: Self = Self(2);
}

impl fmt::Display for ArpOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::REQUEST => f.write_str("request"),
            Self::REPLY => f.write_str("reply"),
            Self(number) => write!(f, "operation {number}"),
        }
    }
}

/// Why bytes are not an ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ArpError {
    /// Fewer than 28 bytes.
    #[error("the ARP packet is cut short")]
    Truncated,
    /// The hardware is not Ethernet.
    #[error("the ARP hardware type is not Ethernet")]
    HardwareType,
    /// The protocol is not IPv4.
    #[error("the ARP protocol type is not IPv4")]
    ProtocolType,
    /// The hardware address is not six bytes long.
    #[error("the ARP hardware address length is not 6")]
    HardwareLength,
    /// The protocol address is not four bytes long.
    #[error("the ARP protocol address length is not 4")]
    ProtocolLength,
}

/// The values of an ARP packet: small enough to be copied out of the bytes at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ArpPacket {
    /// The operation: request or reply.
    pub operation: ArpOperation,
    /// The sender's link address.
    pub sender_link_addr: MacAddr,
    /// The sender's IPv4 address; unspecified in a probe (RFC 5227).
    pub sender_addr: Ipv4Addr,
    /// The target's link address; zero in a request.
    pub target_link_addr: MacAddr,
    /// The requested IPv4 address.
    pub target_addr: Ipv4Addr,
}

impl ArpPacket {
    /// Checks the packet at the front of `bytes`; Ethernet padding behind it is ignored.
    ///
    /// # Errors
    /// See [`ArpError`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ArpError> {
        let packet = bytes.first_chunk::<PACKET_LEN>().ok_or(ArpError::Truncated)?;
        if field::word::<0, _>(packet) != 1 {
            return Err(ArpError::HardwareType);
        }
        if field::word::<2, _>(packet) != 0x0800 {
            return Err(ArpError::ProtocolType);
        }
        if packet[4] != 6 {
            return Err(ArpError::HardwareLength);
        }
        if packet[5] != 4 {
            return Err(ArpError::ProtocolLength);
        }
        Ok(Self {
            operation: ArpOperation(field::word::<6, _>(packet)),
            sender_link_addr: MacAddr(field::bytes::<8, 6, _>(packet)),
            sender_addr: Ipv4Addr::from_octets(field::bytes::<14, 4, _>(packet)),
            target_link_addr: MacAddr(field::bytes::<18, 6, _>(packet)),
            target_addr: Ipv4Addr::from_octets(field::bytes::<24, 4, _>(packet)),
        })
    }

    /// Writes the packet.
    #[inline]
    pub fn emit(&self, out: &mut [u8; PACKET_LEN]) {
        field::put::<0, 6, _>(out, [0x00, 0x01, 0x08, 0x00, 6, 4]);
        field::put_word::<6, _>(out, self.operation.0);
        field::put::<8, 6, _>(out, self.sender_link_addr.0);
        field::put::<14, 4, _>(out, self.sender_addr.octets());
        field::put::<18, 6, _>(out, self.target_link_addr.0);
        field::put::<24, 4, _>(out, self.target_addr.octets());
    }
}
