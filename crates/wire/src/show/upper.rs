//! The upper layer's part of a line.
//!
//! Called by `show.rs` only. Invariant: each form begins with a space and its protocol's name.

use core::fmt::{self, Display, Formatter};
use core::net::{Ipv4Addr, Ipv6Addr};

use super::{ShownQuote, packet};
use crate::icmpv6::Icmpv6Type;
use crate::ndp::{
    NdpError, NdpOption, NdpOptions, NeighborAdvertisement, NeighborSolicitation, Redirect,
    RouterAdvertisement, RouterSolicitation,
};
use crate::tcp_options::TcpOption;
use crate::{
    Icmpv4Header, Icmpv4Message, Icmpv6Header, Icmpv6Message, IpProtocol, TcpFlags, TcpHeader,
    UdpHeader,
};

/// What an IP packet carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShownUpper<'a> {
    pub(super) protocol: IpProtocol,
    /// The bytes there are.
    pub(super) bytes: &'a [u8],
    /// The payload length in bytes according to the IP header.
    pub(super) len: usize,
    pub(super) quote: ShownQuote,
    /// Whether this is the whole upper layer, and not only its first fragment or a quote of it.
    pub(super) whole: bool,
}

impl Display for ShownUpper<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.protocol)?;
        match self.protocol {
            IpProtocol::TCP => self.tcp(f),
            IpProtocol::UDP => self.udp(f),
            IpProtocol::ICMPV4 => self.icmpv4(f),
            IpProtocol::IGMP => super::group::message::<Ipv4Addr>(self.bytes, self.len, f),
            IpProtocol::ICMPV6 => self.icmpv6(f),
            _ => write!(f, " len {}", self.len),
        }
    }
}

impl ShownUpper<'_> {
    /// The maximum of the upper layer's length field: a first fragment's length is not known.
    const fn available(&self) -> usize {
        if self.whole { self.len } else { usize::MAX }
    }

    fn udp(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match UdpHeader::parse(self.bytes, self.available()) {
            Ok(udp) => {
                write!(f, " {} > {}", udp.src_port(), udp.dst_port())?;
                write!(f, " len {}", udp.payload_len())
            }
            Err(error) => write!(f, " [{error}]"),
        }
    }

    fn tcp(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let tcp = match TcpHeader::parse(self.bytes, self.available()) {
            Ok(tcp) => tcp,
            Err(error) => return self.tcp_ports(error, f),
        };
        write!(f, " {} > {} {}", tcp.src_port(), tcp.dst_port(), tcp.flags())?;
        write!(f, " seq {}", tcp.seq())?;
        if tcp.flags().contains(TcpFlags::ACK) {
            write!(f, " ack {}", tcp.ack())?;
        }
        write!(f, " win {}", tcp.window())?;
        for option in tcp.options() {
            match option {
                Ok(option) => tcp_option(option, f)?,
                Err(error) => write!(f, " [{error}]")?,
            }
        }
        write!(f, " len {}", self.len.saturating_sub(tcp.header_len()))
    }

    /// What remains in a quote of eight bytes.
    fn tcp_ports(&self, error: crate::TcpError, f: &mut Formatter<'_>) -> fmt::Result {
        match *self.bytes {
            [a, b, c, d, ..] if self.quote == ShownQuote::Inside => {
                write!(f, " {} > {}", u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
            }
            _ => write!(f, " [{error}]"),
        }
    }

    fn icmpv4(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let header = match Icmpv4Header::parse(self.bytes) {
            Ok(header) => header,
            Err(error) => return write!(f, " [{error}]"),
        };
        match header.message() {
            Icmpv4Message::EchoReply { id, seq } => self.echo("reply", id, seq, f),
            Icmpv4Message::EchoRequest { id, seq } => self.echo("request", id, seq, f),
            Icmpv4Message::DestinationUnreachable { code, next_hop_mtu: 0 } => {
                write!(f, " destination unreachable code {}", code.0)?;
                self.quoted(f)
            }
            Icmpv4Message::DestinationUnreachable { code, next_hop_mtu } => {
                write!(f, " destination unreachable code {} mtu {next_hop_mtu}", code.0)?;
                self.quoted(f)
            }
            Icmpv4Message::Redirect { code, gateway } => {
                write!(f, " redirect code {code} to {gateway}")?;
                self.quoted(f)
            }
            Icmpv4Message::TimeExceeded { code } => {
                write!(f, " time exceeded code {}", code.0)?;
                self.quoted(f)
            }
            Icmpv4Message::ParameterProblem { code, pointer } => {
                write!(f, " parameter problem code {code} pointer {pointer}")?;
                self.quoted(f)
            }
            Icmpv4Message::Unknown { kind, code, .. } => {
                write!(f, " type {} code {code} len {}", kind.0, self.len)
            }
        }
    }

    fn icmpv6(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let header = match Icmpv6Header::parse(self.bytes) {
            Ok(header) => header,
            Err(error) => return write!(f, " [{error}]"),
        };
        match header.message() {
            Icmpv6Message::EchoReply { id, seq } => self.echo("reply", id, seq, f),
            Icmpv6Message::EchoRequest { id, seq } => self.echo("request", id, seq, f),
            Icmpv6Message::DestinationUnreachable { code } => {
                write!(f, " destination unreachable code {}", code.0)?;
                self.quoted(f)
            }
            Icmpv6Message::PacketTooBig { mtu } => {
                write!(f, " packet too big mtu {mtu}")?;
                self.quoted(f)
            }
            Icmpv6Message::TimeExceeded { code } => {
                write!(f, " time exceeded code {}", code.0)?;
                self.quoted(f)
            }
            Icmpv6Message::ParameterProblem { code, pointer } => {
                write!(f, " parameter problem code {} pointer {pointer}", code.0)?;
                self.quoted(f)
            }
            Icmpv6Message::Unknown { kind, code, .. } => match ndp(kind, self.bytes, f) {
                Some(Ok(result)) => result,
                Some(Err(error)) => write!(f, " [{error}]"),
                None if kind.is_group_membership() => {
                    super::group::message::<Ipv6Addr>(self.bytes, self.len, f)
                }
                None => write!(f, " type {} code {code} len {}", kind.0, self.len),
            },
        }
    }

    fn echo(&self, which: &str, id: u16, seq: u16, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, " echo {which} id {id} seq {seq} len {}", self.len.saturating_sub(8))
    }

    /// The packet an error is about.
    fn quoted(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let quoted = self.bytes.get(8..).unwrap_or_default();
        if self.quote == ShownQuote::Inside || quoted.is_empty() {
            return write!(f, " len {}", self.len);
        }
        f.write_str(" about {")?;
        packet(quoted, ShownQuote::Inside, f)?;
        f.write_str("}")
    }
}

fn tcp_option(option: TcpOption<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    match option {
        TcpOption::Nop => Ok(()),
        TcpOption::Mss(mss) => write!(f, " mss {mss}"),
        TcpOption::WindowScale(shift) => write!(f, " wscale {shift}"),
        TcpOption::SackPermitted => f.write_str(" sackOK"),
        TcpOption::Sack(blocks) => {
            f.write_str(" sack")?;
            blocks.iter().try_for_each(|block| write!(f, " {}:{}", block.left, block.right))
        }
        TcpOption::Timestamps(times) => write!(f, " ts {} ecr {}", times.value, times.echo),
        TcpOption::Unknown { kind, .. } => write!(f, " option {kind}"),
    }
}

/// A neighbor discovery message, or `None` if the type is none.
fn ndp(
    kind: Icmpv6Type,
    message: &[u8],
    f: &mut Formatter<'_>,
) -> Option<Result<fmt::Result, NdpError>> {
    Some(match kind {
        Icmpv6Type::ROUTER_SOLICITATION => RouterSolicitation::parse(message).map(|view| {
            f.write_str(" router solicitation")?;
            ndp_options(view.options(), f)
        }),
        Icmpv6Type::ROUTER_ADVERTISEMENT => RouterAdvertisement::parse(message).map(|view| {
            let fields = view.fields();
            let secs = fields.router_lifetime.as_secs();
            write!(f, " router advertisement lifetime {secs}s")?;
            fields.hop_limit.map_or(Ok(()), |hops| write!(f, " hop limit {hops}"))?;
            f.write_str(if fields.managed { " managed" } else { "" })?;
            f.write_str(if fields.other { " other" } else { "" })?;
            ndp_options(view.options(), f)
        }),
        Icmpv6Type::NEIGHBOR_SOLICITATION => NeighborSolicitation::parse(message).map(|view| {
            write!(f, " neighbor solicitation who has {}", view.target_addr())?;
            ndp_options(view.options(), f)
        }),
        Icmpv6Type::NEIGHBOR_ADVERTISEMENT => NeighborAdvertisement::parse(message).map(|view| {
            let fields = view.fields();
            write!(f, " neighbor advertisement {}", fields.target_addr)?;
            f.write_str(if fields.router { " router" } else { "" })?;
            f.write_str(if fields.solicited { " solicited" } else { "" })?;
            f.write_str(if fields.override_entry { " override" } else { "" })?;
            ndp_options(view.options(), f)
        }),
        Icmpv6Type::REDIRECT => Redirect::parse(message).map(|view| {
            let fields = view.fields();
            write!(f, " redirect {} to {}", fields.dst_addr, fields.target_addr)?;
            ndp_options(view.options(), f)
        }),
        _ => return None,
    })
}

fn ndp_options(mut options: NdpOptions<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    options.try_for_each(|option| match option {
        NdpOption::SourceLinkAddr(addr) => write!(f, " source {addr}"),
        NdpOption::TargetLinkAddr(addr) => write!(f, " target {addr}"),
        NdpOption::PrefixInfo(info) => write!(f, " prefix {}/{}", info.prefix, info.prefix_len),
        NdpOption::RedirectedHeader(bytes) => write!(f, " redirected len {}", bytes.len()),
        NdpOption::Mtu(mtu) => write!(f, " mtu {mtu}"),
        NdpOption::Nonce(_) => f.write_str(" nonce"),
        NdpOption::RouteInfo(info) => write!(f, " route {}/{}", info.prefix, info.prefix_len),
        NdpOption::RecursiveDns { servers, .. } => write!(f, " dns servers {}", servers.len()),
        NdpOption::DnsSearch { .. } => f.write_str(" dns search"),
        NdpOption::Unknown { kind, .. } => write!(f, " option {kind}"),
    })
}
