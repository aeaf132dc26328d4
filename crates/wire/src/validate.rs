//! A whole frame checked in one pass: link, IP, extension headers, TCP or UDP.
//!
//! Called by tools and benches that hold a contiguous frame; the stack itself goes header by
//! header (`stack/rx.rs`), with the same parts. Invariant: every offset returned lies inside the
//! frame, in the order `network <= transport <= payload <= end`. Checksums over payloads are not
//! looked at. Read first: `ipv4.rs`, `ipv6_walk.rs`.

use thiserror::Error;

use crate::{
    EtherType, EthernetError, EthernetHeader, ExtensionError, ExtensionLimits, ExtensionWalk,
    IpProtocol, Ipv4Error, Ipv4Header, Ipv6Error, Ipv6Header, TcpError, TcpHeader, UdpError,
    UdpHeader, WalkEnd,
};

/// Why a frame was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Its Ethernet header.
    #[error("{0}")]
    Ethernet(#[from] EthernetError),
    /// It is neither IPv4 nor IPv6.
    #[error("neither IPv4 nor IPv6 but {0}")]
    EtherType(EtherType),
    /// Its IPv4 header.
    #[error("{0}")]
    Ipv4(#[from] Ipv4Error),
    /// Its IPv6 header.
    #[error("{0}")]
    Ipv6(#[from] Ipv6Error),
    /// Its IPv6 extension headers.
    #[error("{0}")]
    Extension(#[from] ExtensionError),
    /// Its TCP header.
    #[error("{0}")]
    Tcp(#[from] TcpError),
    /// Its UDP header.
    #[error("{0}")]
    Udp(#[from] UdpError),
}

/// Where the parts of a checked frame are, in bytes from its beginning.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Validated {
    /// Where the IP header is.
    pub network: u16,
    /// Where the upper-layer header is.
    pub transport: u16,
    /// Where the upper layer's payload is; the same as `transport` if the protocol is neither TCP
    /// nor UDP, or in a fragment.
    pub payload: u32,
    /// Where the payload ends: before Ethernet padding and UDP options.
    pub end: u32,
    /// The upper-layer protocol.
    pub protocol: IpProtocol,
    /// Whether this is a fragment, whose upper layer was not looked at.
    pub is_fragment: bool,
}

/// Checks `frame`, an Ethernet frame with an IPv4 or IPv6 packet.
///
/// # Errors
/// See [`FrameError`]. Cost: about 5 ns for TCP or UDP without extension headers.
#[inline]
pub fn validate(frame: &[u8]) -> Result<Validated, FrameError> {
    let ethernet = EthernetHeader::parse(frame)?;
    let network = ethernet.header_len();
    let packet = frame.get(network..).unwrap_or_default();
    match ethernet.ether_type() {
        EtherType::IPV6 => validate_ipv6(network, packet),
        EtherType::IPV4 => validate_ipv4(network, packet),
        other => Err(FrameError::EtherType(other)),
    }
}

#[inline]
fn validate_ipv4(network: usize, packet: &[u8]) -> Result<Validated, FrameError> {
    let header = Ipv4Header::parse(packet, packet.len())?;
    let place = Place { network, protocol: header.protocol(), is_fragment: header.is_fragment() };
    upper(place, packet, header.header_len(), header.total_len())
}

#[inline]
fn validate_ipv6(network: usize, packet: &[u8]) -> Result<Validated, FrameError> {
    let header = Ipv6Header::parse(packet, packet.len())?;
    let protocol = header.next_header();
    if protocol == IpProtocol::UDP || protocol == IpProtocol::TCP {
        let place = Place { network, protocol, is_fragment: false };
        return upper(place, packet, header.header_len(), header.total_len());
    }
    validate_chain(network, packet, &header)
}

#[cold]
fn validate_chain(
    network: usize,
    packet: &[u8],
    header: &Ipv6Header<'_>,
) -> Result<Validated, FrameError> {
    let walk = ExtensionWalk::of_packet(header, packet.len(), ExtensionLimits::default());
    let (end, fragment) = walk.run(packet, |_, _| {})?;
    let (protocol, offset) = match end {
        WalkEnd::UpperLayer { protocol, offset, .. } => (protocol, offset),
        WalkEnd::NoNextHeader { offset } => (IpProtocol::NO_NEXT_HEADER, offset),
        WalkEnd::LaterFragment { offset } => (IpProtocol::FRAGMENT, offset),
    };
    let is_fragment = fragment.is_some_and(|place| !place.fields.is_atomic());
    upper(Place { network, protocol, is_fragment }, packet, offset, header.total_len())
}

/// What is known before the upper layer.
struct Place {
    network: usize,
    protocol: IpProtocol,
    is_fragment: bool,
}

/// Checks the upper layer in `packet[from..to]`; `from <= to <= packet.len()`.
#[inline]
fn upper(place: Place, packet: &[u8], from: usize, to: usize) -> Result<Validated, FrameError> {
    let Place { network, protocol, is_fragment } = place;
    let bytes = packet.get(from..to).unwrap_or_default();
    let (header_len, end) = match protocol {
        _ if is_fragment => (0, to),
        IpProtocol::UDP => {
            let udp = UdpHeader::parse(bytes, bytes.len())?;
            (crate::udp::HEADER_LEN, from + udp.len())
        }
        IpProtocol::TCP => (TcpHeader::parse(bytes, bytes.len())?.header_len(), to),
        _ => (0, to),
    };
    Ok(Validated {
        network: network as u16,
        transport: (network + from) as u16,
        payload: (network + from + header_len) as u32,
        end: (network + end) as u32,
        protocol,
        is_fragment,
    })
}
