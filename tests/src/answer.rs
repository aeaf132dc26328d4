//! What a stack answered, taken apart and checked: nothing that leaves may be malformed.
//!
//! Called by the scenario tests with the frames that departed.

use std::net::IpAddr;

use floodwall_base::Family;
use floodwall_packet::PacketBuf;
use floodwall_wire::{
    EtherType, EthernetHeader, Icmpv4Header, Icmpv6Header, IpProtocol, Ipv4Header, Ipv6Header,
    ethernet, icmpv4, icmpv6, ipv6,
};

use crate::craft::{HOST, PEER, icmp_of, mac, pseudo};

/// The bytes of a packet, together.
#[must_use]
pub fn bytes_of(packet: &PacketBuf) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(packet.len());
    packet.chunks().for_each(|chunk| bytes.extend_from_slice(chunk));
    bytes
}

/// An IP packet that left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Its source.
    pub from: IpAddr,
    /// Its destination.
    pub to: IpAddr,
    /// What it carries.
    pub protocol: IpProtocol,
    /// Its traffic class, TOS for IPv4.
    pub class: u8,
    /// The IPv4 identification, 0 for IPv6.
    pub id: u16,
    /// Bytes of the whole IP packet.
    pub len: usize,
    /// What is behind the IP header.
    pub payload: Vec<u8>,
}

impl Sent {
    /// Takes a frame from the host to the peer apart.
    ///
    /// # Panics
    /// It is malformed, or is no IP packet.
    #[must_use]
    pub fn of(packet: &PacketBuf) -> Self {
        let bytes = bytes_of(packet);
        let header = EthernetHeader::parse(&bytes).expect("an Ethernet header");
        assert_eq!((header.dst_addr(), header.src_addr()), (mac(PEER), mac(HOST)));
        Self::of_ip(&bytes[ethernet::HEADER_LEN..], header.ether_type())
    }

    /// Takes an IP packet apart.
    ///
    /// # Panics
    /// It is malformed.
    #[must_use]
    pub fn of_ip(bytes: &[u8], ether_type: EtherType) -> Self {
        match ether_type {
            EtherType::IPV4 => {
                let header = Ipv4Header::parse(bytes, bytes.len()).expect("an IPv4 header");
                assert_eq!(header.total_len(), bytes.len(), "the length is the frame's");
                Self {
                    from: header.src_addr().into(),
                    to: header.dst_addr().into(),
                    protocol: header.protocol(),
                    class: header.dscp().with_ecn(header.ecn()),
                    id: header.id(),
                    len: bytes.len(),
                    payload: bytes[header.header_len()..].to_vec(),
                }
            }
            EtherType::IPV6 => {
                let header = Ipv6Header::parse(bytes, bytes.len()).expect("an IPv6 header");
                assert_eq!(header.total_len(), bytes.len(), "the length is the frame's");
                Self {
                    from: header.src_addr().into(),
                    to: header.dst_addr().into(),
                    protocol: header.next_header(),
                    class: header.dscp().with_ecn(header.ecn()),
                    id: 0,
                    len: bytes.len(),
                    payload: bytes[ipv6::HEADER_LEN..].to_vec(),
                }
            }
            other => panic!("{other:?} is not IP"),
        }
    }

    /// The ICMP message: type, code, the four bytes behind the checksum, the rest.
    ///
    /// # Panics
    /// It is none of its family, or its checksum is wrong.
    #[must_use]
    pub fn icmp(&self) -> Icmp {
        assert_eq!(self.protocol, icmp_of(Family::of(self.from)));
        let (header, body) = self.payload.split_at(icmpv4::HEADER_LEN);
        let sum = floodwall_checksum::sum(body);
        if self.from.is_ipv4() {
            assert!(Icmpv4Header::parse(header).expect("eight bytes").verifies(sum));
        } else {
            let pseudo = pseudo(self.from, self.to, IpProtocol::ICMPV6, self.payload.len());
            assert!(Icmpv6Header::parse(header).expect("eight bytes").verifies(pseudo, sum));
        }
        const { assert!(icmpv4::HEADER_LEN == icmpv6::HEADER_LEN) };
        let word = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        Icmp { kind: header[0], code: header[1], word, body: body.to_vec() }
    }
}

/// An ICMP message of either family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Icmp {
    /// The type.
    pub kind: u8,
    /// The code.
    pub code: u8,
    /// The four bytes behind the checksum.
    pub word: u32,
    /// The rest.
    pub body: Vec<u8>,
}

/// The error that a packet should earn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owed {
    /// The ICMP type.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// The four bytes behind the checksum.
    pub word: u32,
}

impl Owed {
    /// "Destination unreachable", of either family.
    #[must_use]
    pub const fn unreachable(family: Family, code: u8) -> Self {
        Self { kind: if matches!(family, Family::V4) { 3 } else { 1 }, code, word: 0 }
    }

    /// ICMPv4's "parameter problem", with a pointer of one byte.
    #[must_use]
    pub const fn problem_v4(code: u8, pointer: u8) -> Self {
        Self { kind: 12, code, word: (pointer as u32) << 24 }
    }

    /// ICMPv6's "parameter problem".
    #[must_use]
    pub const fn problem_v6(code: u8, pointer: u32) -> Self {
        Self { kind: 4, code, word: pointer }
    }

    /// Checks the one frame that left: the error, about `packet`, as much of it quoted as may be
    /// (RFC 1812 section 4.3.2.3: 576 bytes, RFC 4443 section 2.4 (c): 1280), from the host to its
    /// peer.
    ///
    /// # Panics
    /// It is anything else.
    pub fn check(&self, packet: &[u8], departed: &[PacketBuf]) {
        assert_eq!(departed.len(), 1, "one error");
        let sent = Sent::of(&departed[0]);
        let icmp = sent.icmp();
        assert_eq!((icmp.kind, icmp.code, icmp.word), (self.kind, self.code, self.word));
        let (most, headers) = if sent.from.is_ipv4() { (576, 28) } else { (1280, 48) };
        let quoted = packet.len().min(most - headers);
        assert_eq!(icmp.body, packet[..quoted], "the packet is quoted from its first byte");
        assert_eq!(sent.len, headers + quoted);
    }
}
