//! A packet with holes: built once, then patched for each copy, its checksums with it.
//!
//! Called by `blast.rs` and `honest.rs`. Invariant: after every call the frame is a valid packet
//! with right checksums. A hole costs a few additions, not a sum over the packet: a field's change
//! is put into the checksums that cover it (RFC 1624). The payload is zeros but for what is written
//! into it. Not here: fragments (`fragment.rs`), damage (`replay.rs`).

use core::net::IpAddr;

use floodwall_base::MacAddr;
use floodwall_checksum::{InternetSum, pseudo_header_v4, pseudo_header_v6};
use floodwall_wire::tcp_options::TcpOptionSet;
use floodwall_wire::{
    EtherType, EthernetFields, Icmpv4Message, Icmpv6Message, IpProtocol, Ipv4Fields, Ipv6Fields,
    TcpFields, TcpFlags, UdpFields, ethernet, icmpv4, ipv4, ipv6, tcp, udp,
};

use crate::error::PlanError;
use crate::station::StationMedium;

/// The MSS that a SYN announces: Ethernet's, by family.
const fn mss(v4: bool) -> u16 {
    if v4 { 1460 } else { 1440 }
}

/// What a template is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TemplateShape {
    Echo,
    Tcp(TcpFlags),
    Udp,
}

impl TemplateShape {
    const fn protocol(self, v4: bool) -> IpProtocol {
        match self {
            Self::Echo if v4 => IpProtocol::ICMPV4,
            Self::Echo => IpProtocol::ICMPV6,
            Self::Tcp(_) => IpProtocol::TCP,
            Self::Udp => IpProtocol::UDP,
        }
    }
}

/// Which checksums a field is covered by.
#[derive(Clone, Copy)]
struct CoveredRange {
    ip: bool,
    transport: bool,
}

/// A packet with variable fields, patched in place for each copy.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    shape: TemplateShape,
    v4: bool,
    /// Where the IP header is.
    network: usize,
    /// Where the transport header is.
    transport: usize,
    /// Where the payload is.
    payload: usize,
    payload_len: usize,
    /// Where the transport checksum is.
    check: usize,
}

impl Template {
    /// A datagram between two addresses with room for `payload_max` bytes of zeros, all of them
    /// there; ports are zero.
    ///
    /// # Errors
    /// Addresses of two families, or a payload that fits no packet.
    pub fn udp(
        medium: StationMedium,
        link: (MacAddr, MacAddr),
        addrs: (IpAddr, IpAddr),
        hop_limit: u8,
        payload_max: usize,
    ) -> Result<Self, PlanError> {
        Self::new(TemplateShape::Udp, medium, link, addrs, hop_limit, payload_max)
    }

    /// A packet from the first to the second of each pair.
    pub(crate) fn new(
        shape: TemplateShape,
        medium: StationMedium,
        (from, to): (MacAddr, MacAddr),
        (src_addr, dst_addr): (IpAddr, IpAddr),
        hop_limit: u8,
        payload_max: usize,
    ) -> Result<Self, PlanError> {
        if src_addr.is_ipv4() != dst_addr.is_ipv4() {
            return Err(PlanError::MixedFamilies);
        }
        let v4 = src_addr.is_ipv4();
        let network = if medium == StationMedium::Ethernet { ethernet::HEADER_LEN } else { 0 };
        let transport = network + if v4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let (header_len, check) = header_of(shape, v4);
        let len = transport - network + header_len + payload_max;
        if len > usize::from(u16::MAX) {
            return Err(PlanError::PayloadTooLong(payload_max));
        }
        let mut this = Self {
            bytes: vec![0; network + len],
            shape,
            v4,
            network,
            transport,
            payload: transport + header_len,
            payload_len: payload_max,
            check: transport + check,
        };
        this.write_link(from, to);
        this.write_network(src_addr, dst_addr, hop_limit, len);
        this.write_transport(src_addr, dst_addr, header_len + payload_max);
        Ok(this)
    }

    fn write_link(&mut self, from: MacAddr, to: MacAddr) {
        if self.network == 0 {
            return;
        }
        let ether_type = if self.v4 { EtherType::IPV4 } else { EtherType::IPV6 };
        if let Some(out) = self.bytes.first_chunk_mut() {
            EthernetFields { dst_addr: to, src_addr: from, ether_type }.emit(out);
        }
    }

    fn write_network(&mut self, src_addr: IpAddr, dst_addr: IpAddr, hop_limit: u8, len: usize) {
        let protocol = self.shape.protocol(self.v4);
        let rest = self.bytes.get_mut(self.network..).unwrap_or_default();
        match (src_addr, dst_addr) {
            (IpAddr::V4(src_addr), IpAddr::V4(dst_addr)) => {
                if let Some(out) = rest.first_chunk_mut() {
                    Ipv4Fields::new(src_addr, dst_addr, protocol, hop_limit, len as u16).emit(out);
                }
            }
            (IpAddr::V6(src_addr), IpAddr::V6(dst_addr)) => {
                if let Some(out) = rest.first_chunk_mut() {
                    let len = (len - ipv6::HEADER_LEN) as u16;
                    Ipv6Fields::new(src_addr, dst_addr, protocol, hop_limit, len).emit(out);
                }
            }
            _ => {}
        }
    }

    fn write_transport(&mut self, src_addr: IpAddr, dst_addr: IpAddr, len: usize) {
        let (shape, v4) = (self.shape, self.v4);
        let pseudo = pseudo_header(src_addr, dst_addr, shape.protocol(v4), len);
        let rest = self.bytes.get_mut(self.transport..).unwrap_or_default();
        match shape {
            TemplateShape::Udp => {
                if let Some(out) = rest.first_chunk_mut() {
                    let fields = UdpFields { src_port: 0, dst_port: 0, len: len as u16 };
                    fields.emit(pseudo, InternetSum::ZERO, out);
                }
            }
            TemplateShape::Echo => {
                if let Some(out) = rest.first_chunk_mut() {
                    if v4 {
                        Icmpv4Message::EchoRequest { id: 0, seq: 0 }.emit(InternetSum::ZERO, out);
                    } else {
                        Icmpv6Message::EchoRequest { id: 0, seq: 0 }.emit(
                            pseudo,
                            InternetSum::ZERO,
                            out,
                        );
                    }
                }
            }
            TemplateShape::Tcp(flags) => {
                let fields = TcpFields {
                    src_port: 0,
                    dst_port: 0,
                    seq: 0,
                    ack: 0,
                    flags,
                    window: u16::MAX,
                    urgent: 0,
                };
                // The constructor has made room for exactly this header.
                let written = fields.emit(&tcp_options(flags, v4), pseudo, InternetSum::ZERO, rest);
                debug_assert!(written.is_ok());
            }
        }
    }

    /// The packet as it is now.
    #[must_use]
    pub fn frame(&self) -> &[u8] {
        self.bytes.get(..self.payload + self.payload_len).unwrap_or_default()
    }

    /// Where the IP header is in the frame.
    pub(crate) const fn network(&self) -> usize {
        self.network
    }

    /// Changes the link addresses, where the medium has any.
    pub fn set_link(&mut self, from: MacAddr, to: MacAddr) {
        self.write_link(from, to);
    }

    /// Changes the source address. One of the other family changes nothing.
    pub fn set_src_addr(&mut self, addr: IpAddr) {
        self.set_addr(addr, if self.v4 { 12 } else { 8 });
    }

    /// Changes the destination address. One of the other family changes nothing.
    pub fn set_dst_addr(&mut self, addr: IpAddr) {
        self.set_addr(addr, if self.v4 { 16 } else { 24 });
    }

    fn set_addr(&mut self, addr: IpAddr, offset: usize) {
        let pseudo = !(self.v4 && self.shape == TemplateShape::Echo);
        let covered = CoveredRange { ip: self.v4, transport: pseudo };
        let at = self.network + offset;
        match addr {
            IpAddr::V4(addr) if self.v4 => self.patch(at, &addr.octets(), covered),
            IpAddr::V6(addr) if !self.v4 => self.patch(at, &addr.octets(), covered),
            _ => {}
        }
    }

    /// Changes the source port; in an echo request, the identifier.
    pub fn set_src_port(&mut self, port: u16) {
        let offset = if self.shape == TemplateShape::Echo { 4 } else { 0 };
        self.patch_transport(offset, &port.to_be_bytes());
    }

    /// Changes the destination port; in an echo request, the sequence number.
    pub fn set_dst_port(&mut self, port: u16) {
        let offset = if self.shape == TemplateShape::Echo { 6 } else { 2 };
        self.patch_transport(offset, &port.to_be_bytes());
    }

    /// Changes a segment's sequence and acknowledgment numbers; nothing in other packets. The
    /// acknowledgment stays zero without the flag.
    pub fn set_numbers(&mut self, seq: u32, ack: u32) {
        let TemplateShape::Tcp(flags) = self.shape else { return };
        self.patch_transport(4, &seq.to_be_bytes());
        if flags.contains(TcpFlags::ACK) {
            self.patch_transport(8, &ack.to_be_bytes());
        }
    }

    /// Changes an IPv4 packet's identification; nothing in IPv6.
    pub fn set_id(&mut self, id: u16) {
        if self.v4 {
            let covered = CoveredRange { ip: true, transport: false };
            self.patch(self.network + 4, &id.to_be_bytes(), covered);
        }
    }

    /// Writes into the payload at an even offset an even number of bytes; what does not fit the
    /// payload as it is now is not written.
    pub fn set_payload(&mut self, offset: usize, bytes: &[u8]) {
        if offset.saturating_add(bytes.len()) <= self.payload_len {
            let at = self.payload + offset;
            self.patch(at, bytes, CoveredRange { ip: false, transport: true });
        }
    }

    /// Changes how much of the payload the packet has; at most what the template was made with.
    /// Bytes that were written beyond the new end must have been zero.
    pub fn set_payload_len(&mut self, len: usize) {
        let len = len.min(self.bytes.len() - self.payload);
        let old_len = self.payload - self.transport + self.payload_len;
        self.payload_len = len;
        let new_len = self.payload - self.transport + len;
        if old_len == new_len {
            return;
        }
        let (old, new) = (old_len as u16, new_len as u16);
        if self.v4 {
            let total = ((ipv4::HEADER_LEN + new_len) as u16).to_be_bytes();
            self.patch(self.network + 2, &total, CoveredRange { ip: true, transport: false });
        } else {
            let none = CoveredRange { ip: false, transport: false };
            self.patch(self.network + 4, &new.to_be_bytes(), none);
        }
        // The length also stands in the pseudo-header, which ICMPv4 has not.
        if !(self.v4 && self.shape == TemplateShape::Echo) {
            self.update_transport(u32::from(!old) + u32::from(new));
        }
        if self.shape == TemplateShape::Udp {
            self.patch_transport(4, &new.to_be_bytes());
        }
    }

    fn patch_transport(&mut self, offset: usize, new: &[u8]) {
        self.patch(self.transport + offset, new, CoveredRange { ip: false, transport: true });
    }

    /// Writes `new`, an even number of bytes at an even place, and patches what covers it: once for
    /// all of it (RFC 1624 section 3, with the differences of the words added up first).
    fn patch(&mut self, at: usize, new: &[u8], covered: CoveredRange) {
        let Some(old) = self.bytes.get_mut(at..at + new.len()) else { return };
        if old == new {
            return;
        }
        let mut difference = 0_u32;
        for (old, new) in old.as_chunks_mut::<2>().0.iter_mut().zip(new.as_chunks::<2>().0) {
            let (was, is) = (u16::from_be_bytes(*old), u16::from_be_bytes(*new));
            if was != is {
                difference += u32::from(!was) + u32::from(is);
            }
            *old = *new;
        }
        if covered.ip {
            let place = self.network + 10;
            self.set_word(place, patched(self.word(place), difference));
        }
        if covered.transport {
            self.update_transport(difference);
        }
    }

    /// The transport's sum, where what it covers has changed by so much.
    fn update_transport(&mut self, difference: u32) {
        let check = patched(self.word(self.check), difference);
        // Zero would mean "no checksum" (RFC 768); all ones is the same number.
        let check = if check == 0 && self.shape == TemplateShape::Udp { 0xffff } else { check };
        self.set_word(self.check, check);
    }

    fn word(&self, at: usize) -> u16 {
        let field = self.bytes.get(at..).and_then(|rest| rest.first_chunk::<2>());
        field.map_or(0, |field| u16::from_be_bytes(*field))
    }

    fn set_word(&mut self, at: usize, value: u16) {
        if let Some(field) = self.bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
            *field = value.to_be_bytes();
        }
    }
}

/// A checksum, where the complements of old words and the new ones add up to `difference`.
fn patched(check: u16, difference: u32) -> u16 {
    let sum = u32::from(!check) + difference;
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// The options of a SYN.
fn tcp_options(flags: TcpFlags, v4: bool) -> TcpOptionSet {
    let opens = flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags::ACK);
    TcpOptionSet { mss: opens.then_some(mss(v4)), ..TcpOptionSet::default() }
}

/// Bytes of the transport header, and where in it the checksum is.
fn header_of(shape: TemplateShape, v4: bool) -> (usize, usize) {
    match shape {
        TemplateShape::Echo => (icmpv4::HEADER_LEN, 2),
        TemplateShape::Tcp(flags) => (tcp::HEADER_LEN + tcp_options(flags, v4).emitted_len(), 16),
        TemplateShape::Udp => (udp::HEADER_LEN, 6),
    }
}

pub(crate) fn pseudo_header(
    src: IpAddr,
    to: IpAddr,
    protocol: IpProtocol,
    len: usize,
) -> InternetSum {
    match (src, to) {
        (IpAddr::V4(src), IpAddr::V4(to)) => pseudo_header_v4(src, to, protocol.0, len as u16),
        (IpAddr::V6(src), IpAddr::V6(to)) => pseudo_header_v6(src, to, protocol.0, len as u32),
        _ => InternetSum::ZERO,
    }
}

#[cfg(test)]
#[path = "template/tests.rs"]
mod tests;
