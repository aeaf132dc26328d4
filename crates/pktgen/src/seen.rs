//! What a generator sees of a packet that arrived: enough to count it, answer it, match it.
//!
//! Called by `station.rs`, `count.rs` and `honest.rs`. Invariant: offsets and lengths are within
//! the packet, as the views of `wire` have checked. Extension headers are not walked: what has any
//! is counted as other.

use core::net::IpAddr;

use floodwall_base::MacAddr;
use floodwall_checksum::InternetSum;
use floodwall_packet::{AccessCounters, ChecksumState, PacketBuf};
use floodwall_wire::{
    ArpPacket, EtherType, EthernetHeader, ExtensionHeader, IpProtocol, Ipv4Header, Ipv6Header,
    ethernet, udp,
};

use crate::station::StationMedium;

/// Bytes that are looked at: link, network and transport header, and a stamp or an ND message.
pub(crate) const LOOK_BYTES: usize = 192;

/// An IP packet.
pub(crate) struct SeenIp<'a> {
    /// The source of the frame; zero where the medium has no link addresses.
    pub(crate) link_src: MacAddr,
    pub(crate) src_addr: IpAddr,
    pub(crate) dst_addr: IpAddr,
    pub(crate) protocol: IpProtocol,
    pub(crate) hop_limit: u8,
    pub(crate) is_fragment: bool,
    /// Which piece of its packet, where it is a fragment.
    pub(crate) place: Option<SeenPlace>,
    /// Where the transport header starts, in the packet.
    l4: usize,
    /// Bytes from there to the IP packet's end.
    l4_len: usize,
    /// As many of them as were looked at.
    pub(crate) head: &'a [u8],
    pseudo: InternetSum,
}

/// Which piece of which packet a fragment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SeenPlace {
    pub(crate) id: u32,
    pub(crate) offset: usize,
    pub(crate) more: bool,
    /// What the packet carries.
    pub(crate) protocol: IpProtocol,
    /// Bytes of headers in front of the piece.
    pub(crate) skip: usize,
}

/// A packet.
pub(crate) enum SeenPacket<'a> {
    Arp(ArpPacket),
    Ip(SeenIp<'a>),
    Other,
}

/// Looks at a packet. Cost: one header check each layer; a copy where they straddle chunks.
pub(crate) fn see<'a>(
    packet: &'a PacketBuf,
    medium: StationMedium,
    scratch: &'a mut [u8; LOOK_BYTES],
) -> SeenPacket<'a> {
    let look = packet.len().min(LOOK_BYTES);
    let mut access = AccessCounters::default();
    let Some(bytes) = packet.header(0, look, scratch, &mut access) else {
        return SeenPacket::Other;
    };
    if medium == StationMedium::Ip {
        return see_ip(bytes, 0, packet.len(), MacAddr::ZERO);
    }
    let Ok(frame) = EthernetHeader::parse(bytes) else { return SeenPacket::Other };
    let rest = bytes.get(ethernet::HEADER_LEN..).unwrap_or_default();
    match frame.ether_type() {
        EtherType::ARP => ArpPacket::parse(rest).map_or(SeenPacket::Other, SeenPacket::Arp),
        EtherType::IPV4 | EtherType::IPV6 if frame.header_len() == ethernet::HEADER_LEN => {
            see_ip(rest, ethernet::HEADER_LEN, packet.len(), frame.src_addr())
        }
        _ => SeenPacket::Other,
    }
}

/// Looks at the IP packet in `bytes`, which starts at `l3` of a packet of `len` bytes.
fn see_ip(bytes: &[u8], l3: usize, len: usize, link_src: MacAddr) -> SeenPacket<'_> {
    let len = len - l3.min(len);
    if let Ok(ip) = Ipv4Header::parse(bytes, len) {
        let (l4, l4_len) = (ip.header_len(), ip.payload_len());
        return SeenPacket::Ip(SeenIp {
            link_src,
            src_addr: ip.src_addr().into(),
            dst_addr: ip.dst_addr().into(),
            protocol: ip.protocol(),
            hop_limit: ip.ttl(),
            is_fragment: ip.is_fragment(),
            place: ip.is_fragment().then(|| SeenPlace {
                id: ip.id().into(),
                offset: ip.fragment_offset(),
                more: ip.more_fragments(),
                protocol: ip.protocol(),
                skip: 0,
            }),
            l4: l3 + l4,
            l4_len,
            head: head(bytes, l4, l4_len),
            pseudo: ip.pseudo_header(ip.protocol(), l4_len as u16),
        });
    }
    let Ok(ip) = Ipv6Header::parse(bytes, len) else { return SeenPacket::Other };
    let (l4, l4_len) = (ip.header_len(), ip.payload_len());
    SeenPacket::Ip(SeenIp {
        link_src,
        src_addr: ip.src_addr().into(),
        dst_addr: ip.dst_addr().into(),
        protocol: ip.next_header(),
        hop_limit: ip.hop_limit(),
        is_fragment: ip.next_header() == IpProtocol::FRAGMENT,
        place: place(ip.next_header(), bytes.get(l4..).unwrap_or_default()),
        l4: l3 + l4,
        l4_len,
        head: head(bytes, l4, l4_len),
        pseudo: ip.pseudo_header(ip.next_header(), l4_len as u32),
    })
}

/// The piece that an IPv6 fragment header announces.
fn place(kind: IpProtocol, bytes: &[u8]) -> Option<SeenPlace> {
    if kind != IpProtocol::FRAGMENT {
        return None;
    }
    let taken = ExtensionHeader::take(kind, bytes)?;
    let skip = taken.header_len();
    let ExtensionHeader::Fragment(fields) = taken else { return None };
    let (id, offset, more) = (fields.id, usize::from(fields.offset), fields.more);
    Some(SeenPlace { id, offset, more, protocol: fields.next_header, skip })
}

/// The transport's bytes, as many as there are and were looked at.
fn head(bytes: &[u8], l4: usize, l4_len: usize) -> &[u8] {
    let rest = bytes.get(l4..).unwrap_or_default();
    rest.get(..l4_len).unwrap_or(rest)
}

impl SeenIp<'_> {
    /// Bytes of the transport, looked at or not.
    pub(crate) const fn body_len(&self) -> usize {
        self.l4_len
    }

    /// Whether all of the transport's bytes were looked at.
    pub(crate) const fn is_whole(&self) -> bool {
        self.head.len() == self.l4_len
    }

    /// Whether the transport checksum is right; `packet` is the one that was looked at. What a
    /// sender on this machine left to its card, which there is none of, is not damaged.
    pub(crate) fn verifies(&self, packet: &PacketBuf) -> bool {
        if packet.checksum_state() == ChecksumState::Partial {
            return true;
        }
        let body = packet.sum(self.l4, self.l4_len);
        match self.protocol {
            IpProtocol::ICMPV4 => body.verifies(),
            IpProtocol::UDP if self.src_addr.is_ipv4() && self.head.get(6..8) == Some(&[0, 0]) => {
                true
            }
            _ => self.pseudo.add(body).verifies(),
        }
    }

    /// The sum over what is behind the IP header and `skip` more bytes.
    pub(crate) fn sum_behind(&self, packet: &PacketBuf, skip: usize) -> InternetSum {
        packet.sum(self.l4 + skip, self.l4_len.saturating_sub(skip))
    }

    /// What a datagram carries, as far as it was looked at.
    pub(crate) fn udp_payload(&self) -> &[u8] {
        self.head.get(udp::HEADER_LEN..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodwall_base::MacAddr;
    use floodwall_packet::{Pool, PoolConfig};

    use crate::template::{Template, TemplateShape};

    #[test]
    fn a_checksum_that_a_local_sender_left_to_its_card_is_not_damaged() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        for (from, to) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
            let addrs = (from.parse().unwrap(), to.parse().unwrap());
            let link = (MacAddr::ZERO, MacAddr::ZERO);
            let template =
                Template::new(TemplateShape::Udp, StationMedium::Ethernet, link, addrs, 64, 20);
            let mut frame = template.unwrap().frame().to_vec();
            let at = frame.len() - 21;
            frame[at] ^= 0x55;
            let mut packet = pool.packet_from(&frame).unwrap();
            let verifies = |packet: &PacketBuf| {
                let mut scratch = [0; LOOK_BYTES];
                let SeenPacket::Ip(ip) = see(packet, StationMedium::Ethernet, &mut scratch) else {
                    panic!()
                };
                ip.verifies(packet)
            };
            assert!(!verifies(&packet), "{from}");
            packet.set_checksum_state(ChecksumState::Partial);
            assert!(verifies(&packet), "{from}");
        }
    }
}
