//! A whole frame checked in one pass: link, IP, extension headers, TCP or UDP.
//!
//! Called by tools and benches that hold a contiguous frame; the stack itself goes header by
//! header (`stack/rx.rs`), with the same parts. Invariant: every offset returned is inside the
//! frame, in the order `network <= transport <= payload <= end`. Checksums over payloads are not
//! looked at. Read first: `ipv4.rs`, `ipv6_walk.rs`.

use thiserror::Error;

use crate::{
    EtherType, EthernetError, EthernetHeader, ExtensionError, ExtensionLimits, ExtensionWalk,
    IpProtocol, Ipv4Error, Ipv4Header, Ipv6Error, Ipv6Header, TcpError, TcpHeader, UdpError,
    UdpHeader, WalkEnd, ethernet, field, ipv4, ipv6, udp,
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
    /// The ports of TCP or UDP; zeros if the protocol is neither, or in a fragment.
    pub src_port: u16,
    /// See `src_port`.
    pub dst_port: u16,
    /// The upper-layer protocol.
    pub protocol: IpProtocol,
    /// Whether this is a fragment; its upper layer was not looked at.
    pub is_fragment: bool,
}

/// Checks `frame`, an Ethernet frame with an IPv4 or IPv6 packet.
///
/// # Errors
/// See [`FrameError`]. Cost: 1 to 4 ns for TCP or UDP without tags, options and extension
/// headers; tens for the rest.
#[inline]
pub fn validate(frame: &[u8]) -> Result<Validated, FrameError> {
    validate_plain(frame).map_or_else(|| validate_any(frame), Ok)
}

/// The frames that floods are made of: no tag, no option, no extension header, no fragment, TCP
/// or UDP, and nothing wrong. Same parts as the other level, but no reason to carry along.
#[inline]
fn validate_plain(frame: &[u8]) -> Option<Validated> {
    let (link, packet) = frame.split_first_chunk::<{ ethernet::HEADER_LEN }>()?;
    match EtherType(field::word::<12, _>(link)) {
        EtherType::IPV6 => {
            let header = Ipv6Header::parse(packet, packet.len()).ok()?;
            let behind = packet.get(ipv6::HEADER_LEN..)?;
            plain_upper(header.next_header(), behind.get(..header.payload_len())?, 54)
        }
        EtherType::IPV4 if packet.first() == Some(&0x45) => {
            let header = Ipv4Header::parse(packet, packet.len()).ok()?;
            let behind = packet.get(ipv4::HEADER_LEN..)?;
            if header.is_fragment() {
                return None;
            }
            plain_upper(header.protocol(), behind.get(..header.payload_len())?, 34)
        }
        _ => None,
    }
}

/// Checks a TCP or UDP header in `bytes`, which begin at `transport` of the frame.
#[inline(always)]
fn plain_upper(protocol: IpProtocol, bytes: &[u8], transport: u16) -> Option<Validated> {
    let (header_len, len, src_port, dst_port) = if protocol == IpProtocol::UDP {
        let header = UdpHeader::parse(bytes, bytes.len()).ok()?;
        (udp::HEADER_LEN, header.len(), header.src_port(), header.dst_port())
    } else if protocol == IpProtocol::TCP {
        let header = TcpHeader::parse(bytes, bytes.len()).ok()?;
        (header.header_len(), bytes.len(), header.src_port(), header.dst_port())
    } else {
        return None;
    };
    Some(Validated {
        network: ethernet::HEADER_LEN as u16,
        transport,
        payload: u32::from(transport) + header_len as u32,
        end: u32::from(transport) + len as u32,
        src_port,
        dst_port,
        protocol,
        is_fragment: false,
    })
}

/// All other frames, and the reasons why some are refused.
#[cold]
#[inline(never)]
fn validate_any(frame: &[u8]) -> Result<Validated, FrameError> {
    let ethernet = EthernetHeader::parse(frame)?;
    let network = ethernet.header_len();
    let packet = frame.get(network..).unwrap_or_default();
    match ethernet.ether_type() {
        EtherType::IPV6 => validate_ipv6(network, packet),
        EtherType::IPV4 => validate_ipv4(network, packet),
        other => Err(FrameError::EtherType(other)),
    }
}

fn validate_ipv4(network: usize, packet: &[u8]) -> Result<Validated, FrameError> {
    let header = Ipv4Header::parse(packet, packet.len())?;
    let place =
        HeaderSpan { network, protocol: header.protocol(), is_fragment: header.is_fragment() };
    upper(place, packet, header.header_len(), header.total_len())
}

fn validate_ipv6(network: usize, packet: &[u8]) -> Result<Validated, FrameError> {
    let header = Ipv6Header::parse(packet, packet.len())?;
    let walk = ExtensionWalk::of_packet(&header, packet.len(), ExtensionLimits::default());
    let (end, fragment) = walk.run(packet, |_, _| {})?;
    let (protocol, offset) = match end {
        WalkEnd::UpperLayer { protocol, offset, .. } => (protocol, offset),
        WalkEnd::NoNextHeader { offset } => (IpProtocol::NO_NEXT_HEADER, offset),
        WalkEnd::LaterFragment { offset } => (IpProtocol::FRAGMENT, offset),
    };
    let is_fragment = fragment.is_some_and(|place| !place.fields.is_atomic());
    upper(HeaderSpan { network, protocol, is_fragment }, packet, offset, header.total_len())
}

/// What is known before the upper layer.
struct HeaderSpan {
    network: usize,
    protocol: IpProtocol,
    is_fragment: bool,
}

/// Checks the upper layer in `packet[from..to]`; `from <= to <= packet.len()`.
fn upper(
    place: HeaderSpan,
    packet: &[u8],
    from: usize,
    to: usize,
) -> Result<Validated, FrameError> {
    let HeaderSpan { network, protocol, is_fragment } = place;
    let bytes = packet.get(from..to).unwrap_or_default();
    let (header_len, end, src_port, dst_port) = match protocol {
        _ if is_fragment => (0, to, 0, 0),
        IpProtocol::UDP => {
            let header = UdpHeader::parse(bytes, bytes.len())?;
            (udp::HEADER_LEN, from + header.len(), header.src_port(), header.dst_port())
        }
        IpProtocol::TCP => {
            let header = TcpHeader::parse(bytes, bytes.len())?;
            (header.header_len(), to, header.src_port(), header.dst_port())
        }
        _ => (0, to, 0, 0),
    };
    Ok(Validated {
        network: network as u16,
        transport: (network + from) as u16,
        payload: (network + from + header_len) as u32,
        end: (network + end) as u32,
        src_port,
        dst_port,
        protocol,
        is_fragment,
    })
}
