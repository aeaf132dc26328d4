//! Any bytes as one line for humans, in the manner of tcpdump.
//!
//! Called by the command line, by test failures and by traces; never on a packet's path.
//! Invariant: any bytes give a line; what cannot be parsed is marked in brackets and ends it.
//! Nothing is allocated: formatting goes straight into the formatter.
//!
//! ```
//! let line = floodwall_wire::show::ShownFrame(&[0; 3]).to_string();
//! assert_eq!(line, "[the Ethernet header is cut short]");
//! ```

mod group;
mod upper;

use core::fmt::{self, Display, Formatter};

use crate::ipv4_options::{Ipv4Option, RouteData};
use crate::ipv6_ext::{ExtensionHeader, OptionsHeader};
use crate::ipv6_options::Ipv6Option;
use crate::{
    ArpOperation, ArpPacket, Ecn, EtherType, EthernetHeader, ExtensionLimits, ExtensionWalk,
    IpProtocol, Ipv4Error, Ipv4Header, Ipv6Error, Ipv6Header, Step, WalkEnd,
};
use upper::ShownUpper;

/// An Ethernet frame, to be displayed.
#[derive(Clone, Copy, Debug)]
pub struct ShownFrame<'a>(
    /// The frame, from the destination address on.
    pub &'a [u8],
);

/// An IPv4 or IPv6 packet, to be displayed.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a>(
    /// The packet, from the version on.
    pub &'a [u8],
);

impl Display for ShownFrame<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let header = match EthernetHeader::parse(self.0) {
            Ok(header) => header,
            Err(error) => return write!(f, "[{error}]"),
        };
        write!(f, "{} > {} ", header.src_addr(), header.dst_addr())?;
        for tag in header.tags() {
            let eligible = if tag.drop_eligible { " dei" } else { "" };
            write!(f, "{} {} priority {}{eligible} ", tag.kind, tag.id, tag.priority)?;
        }
        let payload = self.0.get(header.header_len()..).unwrap_or_default();
        match header.ether_type() {
            EtherType::ARP => arp(payload, f),
            EtherType::IPV4 => ipv4(payload, ShownQuote::Allowed, f),
            EtherType::IPV6 => ipv6(payload, ShownQuote::Allowed, f),
            other => write!(f, "{other} len {}", payload.len()),
        }
    }
}

impl Display for Packet<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        packet(self.0, ShownQuote::Allowed, f)
    }
}

/// Whether an ICMP error may show the packet it quotes: a quote inside of a quote may not, so
/// that no packet makes this recurse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ShownQuote {
    Allowed,
    Inside,
}

fn packet(bytes: &[u8], quote: ShownQuote, f: &mut Formatter<'_>) -> fmt::Result {
    match bytes.first() {
        None => f.write_str("[no bytes]"),
        Some(first) if first >> 4 == 4 => ipv4(bytes, quote, f),
        Some(first) if first >> 4 == 6 => ipv6(bytes, quote, f),
        Some(first) => write!(f, "[IP version {}]", first >> 4),
    }
}

fn arp(bytes: &[u8], f: &mut Formatter<'_>) -> fmt::Result {
    let arp = match ArpPacket::parse(bytes) {
        Ok(arp) => arp,
        Err(error) => return write!(f, "ARP [{error}]"),
    };
    let ArpPacket { operation, sender_link_addr, sender_addr, target_addr, .. } = arp;
    match operation {
        ArpOperation::REQUEST => {
            write!(f, "ARP who has {target_addr}, tell {sender_addr} at {sender_link_addr}")
        }
        ArpOperation::REPLY => {
            write!(f, "ARP {sender_addr} is at {sender_link_addr}, to {target_addr}")
        }
        other => write!(f, "ARP {other} {sender_addr} > {target_addr}"),
    }
}

const fn ecn(ecn: Ecn) -> &'static str {
    match ecn {
        Ecn::NotCapable => "",
        Ecn::Capable1 => " ect1",
        Ecn::Capable0 => " ect0",
        Ecn::CongestionExperienced => " ce",
    }
}

fn ipv4(bytes: &[u8], quote: ShownQuote, f: &mut Formatter<'_>) -> fmt::Result {
    // A packet cut short or damaged is shown as far as it goes.
    let parsed = Ipv4Header::parse(bytes, bytes.len());
    let header = match parsed {
        Err(Ipv4Error::TotalLengthLong | Ipv4Error::Checksum) => {
            Ipv4Header::parse_offloaded(bytes, usize::MAX)
        }
        other => other,
    };
    let header = match header {
        Ok(header) => header,
        Err(error) => return write!(f, "IPv4 [{error}]"),
    };
    write!(f, "IPv4 {} > {} ttl {}", header.src_addr(), header.dst_addr(), header.ttl())?;
    f.write_str(ecn(header.ecn()))?;
    if let Err(error) = parsed
        && quote == ShownQuote::Allowed
    {
        write!(f, " [{error}]")?;
    }
    ipv4_options(&header, f)?;
    if header.is_fragment() {
        let more = if header.more_fragments() { " more" } else { "" };
        write!(f, " Fragment(id {} offset {}{more})", header.id(), header.fragment_offset())?;
    }
    let (from, to) = (header.header_len(), header.total_len().min(bytes.len()));
    if header.fragment_offset() > 0 {
        return write!(f, " {} len {}", header.protocol(), header.payload_len());
    }
    let payload = bytes.get(from..to).unwrap_or_default();
    let (protocol, len) = (header.protocol(), header.payload_len());
    ShownUpper { protocol, bytes: payload, len, quote, whole: !header.is_fragment() }.fmt(f)
}

fn ipv4_options(header: &Ipv4Header<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    let route = |name: &str, route: RouteData<'_>, f: &mut Formatter<'_>| {
        write!(f, " {name}(pointer {}", route.pointer)?;
        route.addrs().try_for_each(|addr| write!(f, " {addr}"))?;
        f.write_str(")")
    };
    for option in header.options() {
        match option {
            Ok(Ipv4Option::Nop) => {}
            Ok(Ipv4Option::RecordRoute(data)) => route("RecordRoute", data, f)?,
            Ok(Ipv4Option::LooseSourceRoute(data)) => route("LooseSourceRoute", data, f)?,
            Ok(Ipv4Option::StrictSourceRoute(data)) => route("StrictSourceRoute", data, f)?,
            Ok(Ipv4Option::Timestamp(data)) => write!(f, " Timestamp(flag {})", data.flag)?,
            Ok(Ipv4Option::RouterAlert(value)) => write!(f, " RouterAlert({value})")?,
            Ok(Ipv4Option::Unknown { kind, .. }) => write!(f, " option {kind}")?,
            Err(error) => write!(f, " [{error}]")?,
        }
    }
    Ok(())
}

fn ipv6(bytes: &[u8], quote: ShownQuote, f: &mut Formatter<'_>) -> fmt::Result {
    let parsed = Ipv6Header::parse(bytes, bytes.len());
    let header = match parsed {
        Err(Ipv6Error::PayloadLengthLong) => Ipv6Header::parse(bytes, usize::MAX),
        other => other,
    };
    let header = match header {
        Ok(header) => header,
        Err(error) => return write!(f, "IPv6 [{error}]"),
    };
    write!(f, "IPv6 {} > {} hop {}", header.src_addr(), header.dst_addr(), header.hop_limit())?;
    f.write_str(ecn(header.ecn()))?;
    if let Err(error) = parsed
        && quote == ShownQuote::Allowed
    {
        write!(f, " [{error}]")?;
    }
    chain(&header, bytes, quote, f)
}

/// The extension headers and what is behind them.
fn chain(
    header: &Ipv6Header<'_>,
    bytes: &[u8],
    quote: ShownQuote,
    f: &mut Formatter<'_>,
) -> fmt::Result {
    let mut walk = ExtensionWalk::of_packet(header, bytes.len(), ExtensionLimits::default());
    while let Some(want) = walk.wants() {
        let fed = bytes.get(want.offset..).unwrap_or_default();
        match walk.feed(fed.get(..want.len).unwrap_or(fed)) {
            Ok(Step::Header { header, .. }) => extension(&header, f)?,
            Ok(Step::More | Step::End(_)) => {}
            Err(error) => return write!(f, " [{error}]"),
        }
    }
    let Some(end) = walk.end() else { return Ok(()) };
    let total = header.total_len();
    match end {
        WalkEnd::UpperLayer { protocol, offset, .. } => {
            let whole = walk.fragment().is_none_or(|place| place.fields.is_atomic());
            let payload = bytes.get(offset..total.min(bytes.len())).unwrap_or_default();
            let len = total.saturating_sub(offset);
            ShownUpper { protocol, bytes: payload, len, quote, whole }.fmt(f)
        }
        WalkEnd::LaterFragment { offset } => {
            let protocol = walk.fragment().map_or(IpProtocol::FRAGMENT, |p| p.fields.next_header);
            write!(f, " {protocol} len {}", total.saturating_sub(offset))
        }
        WalkEnd::NoNextHeader { offset } => {
            write!(f, " NoNextHeader len {}", total.saturating_sub(offset))
        }
    }
}

fn extension(header: &ExtensionHeader<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    write!(f, " {}", header.kind())?;
    match header {
        ExtensionHeader::HopByHop(options) | ExtensionHeader::DestinationOptions(options) => {
            ipv6_options(options, f)
        }
        ExtensionHeader::Routing(header) => {
            write!(f, "(type {} left {})", header.routing_type(), header.segments_left())
        }
        ExtensionHeader::Fragment(fields) => {
            let more = if fields.more { " more" } else { "" };
            write!(f, "(id {:#010x} offset {}{more})", fields.id, fields.offset)
        }
        ExtensionHeader::Authentication(header) => {
            write!(f, "(spi {:#010x})", header.security_parameters_index())
        }
    }
}

fn ipv6_options(header: &OptionsHeader<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    // The walk has let no bad option through.
    for (_, option) in header.options().flatten() {
        match option {
            Ipv6Option::Pad1 | Ipv6Option::PadN(_) => {}
            Ipv6Option::RouterAlert(value) => write!(f, "(router alert {value})")?,
            Ipv6Option::JumboPayload(len) => write!(f, "(jumbo payload {len})")?,
            Ipv6Option::Unknown { kind, .. } => write!(f, "(option {kind:#04x})")?,
        }
    }
    Ok(())
}
