//! A TCP client of a test: what it sends, byte by byte, and what it reads of the answers.
//!
//! Called by the handshake tests. It keeps no state but what it chose: the test selects which
//! segment comes next. Invariant: checksums are right, and IPv4 and IPv6 are made by the same
//! calls.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use floodwall_base::Family;
use floodwall_checksum::sum;
use floodwall_packet::PacketBuf;
use floodwall_wire::tcp::{HEADER_LEN_MAX, TcpFields, TcpFlags, TcpHeader};
use floodwall_wire::tcp_options::{TcpOptionSet, Timestamps};
use floodwall_wire::{IpProtocol, Ipv4Header, Ipv6Header, ethernet, ipv6};

use crate::answer::bytes_of;
use crate::craft::{self, HOST, addr, from_peer};

/// A client behind the peer, which is the router of such.
#[derive(Clone, Copy, Debug)]
pub struct TcpClient {
    /// Its end.
    pub from: SocketAddr,
    /// The service.
    pub to: SocketAddr,
    /// Its initial sequence number.
    pub isn: u32,
    /// What its SYN offers.
    pub options: TcpOptionSet,
    /// Its clock, where it sends timestamps.
    pub clock: u32,
    /// The window field of its segments, not scaled.
    pub window: u16,
}

/// The fields of a segment of ours.
#[derive(Clone, Debug)]
pub struct Heard {
    /// Its destination.
    pub to: SocketAddr,
    /// SEG.SEQ.
    pub seq: u32,
    /// SEG.ACK.
    pub ack: u32,
    /// The control bits.
    pub flags: TcpFlags,
    /// Not scaled.
    pub window: u16,
    /// The options.
    pub options: TcpOptionSet,
    /// The text.
    pub text: Vec<u8>,
    /// Bytes of the IP packet.
    pub len: usize,
}

/// SYN and ACK.
pub const SYN_ACK: TcpFlags = TcpFlags(0x12);

impl TcpClient {
    /// The `n`th client of a family at a port of the host, with today's options; each is in a
    /// network of its own for as long as there are some.
    #[must_use]
    pub fn nth(n: u32, family: Family, port: u16) -> Self {
        let ip: IpAddr = match family {
            Family::V4 => Ipv4Addr::from(0x0b00_0000_u32 | (n & 0xffff) << 8 | n >> 16).into(),
            Family::V6 => {
                let net = 0x2001_0db8_u128 << 96;
                Ipv6Addr::from(net | u128::from(n) << 72 | 7).into()
            }
        };
        Self {
            from: SocketAddr::new(ip, 1024 + (n % 50_000) as u16),
            to: SocketAddr::new(addr(family, HOST), port),
            isn: n.wrapping_mul(0x9e37_79b1),
            options: TcpOptionSet {
                mss: Some(1400),
                window_scale: Some(9),
                sack_permitted: true,
                timestamps: Some(Timestamps { value: 70_000 + n, echo: 0 }),
                ..TcpOptionSet::NONE
            },
            clock: 70_000 + n,
            window: 64_000,
        }
    }

    /// The same without timestamps.
    #[must_use]
    pub const fn timeless(self) -> Self {
        Self { options: TcpOptionSet { timestamps: None, ..self.options }, ..self }
    }

    /// Any frame of this client: sequence and acknowledgment number, flags, options, text.
    #[must_use]
    pub fn frame(
        &self,
        (seq, ack): (u32, u32),
        flags: TcpFlags,
        options: &TcpOptionSet,
        text: &[u8],
    ) -> Vec<u8> {
        from_peer(&self.packet((seq, ack), flags, options, text))
    }

    /// The same as an IP packet.
    ///
    /// # Panics
    /// Never: 60 bytes hold every header.
    #[must_use]
    pub fn packet(
        &self,
        (seq, ack): (u32, u32),
        flags: TcpFlags,
        options: &TcpOptionSet,
        text: &[u8],
    ) -> Vec<u8> {
        let fields = TcpFields {
            src_port: self.from.port(),
            dst_port: self.to.port(),
            seq,
            ack,
            flags,
            window: self.window,
            urgent: 0,
        };
        let mut out = [0; HEADER_LEN_MAX];
        let (from, to) = (self.from.ip(), self.to.ip());
        let len = floodwall_wire::tcp::HEADER_LEN + options.emitted_len() + text.len();
        let pseudo = craft::pseudo(from, to, IpProtocol::TCP, len);
        let len = fields.emit(options, pseudo, sum(text), &mut out).expect("60 bytes");
        craft::ip(from, to, IpProtocol::TCP, &[&out[..len], text].concat())
    }

    /// Its SYN.
    #[must_use]
    pub fn syn(&self) -> Vec<u8> {
        self.frame((self.isn, 0), TcpFlags::SYN, &self.options, &[])
    }

    /// Its answer to a SYN-ACK, with text or without.
    #[must_use]
    pub fn ack(&self, answer: &Heard, text: &[u8]) -> Vec<u8> {
        let flags = if text.is_empty() { TcpFlags::ACK } else { TcpFlags::ACK | TcpFlags::PSH };
        let seqs = (self.isn.wrapping_add(1), answer.seq.wrapping_add(1));
        self.frame(seqs, flags, &self.stamped(answer), text)
    }

    /// The options of a segment after an answer.
    #[must_use]
    pub fn stamped(&self, answer: &Heard) -> TcpOptionSet {
        let echo = answer.options.timestamps.map(|stamp| stamp.value);
        let stamp = self.options.timestamps.and(echo);
        let timestamps = stamp.map(|echo| Timestamps { value: self.clock.wrapping_add(1), echo });
        TcpOptionSet { timestamps, ..TcpOptionSet::NONE }
    }

    /// What of these packets is for this client.
    #[must_use]
    pub fn hears(&self, packets: &[PacketBuf]) -> Vec<Heard> {
        packets.iter().filter_map(heard).filter(|heard| heard.to == self.from).collect()
    }
}

/// The fields of a frame of ours, if it is a TCP segment.
#[must_use]
pub fn heard(packet: &PacketBuf) -> Option<Heard> {
    heard_in(&bytes_of(packet))
}

/// The same of the bytes of a frame.
#[must_use]
pub fn heard_in(bytes: &[u8]) -> Option<Heard> {
    let ip = bytes.get(ethernet::HEADER_LEN..)?;
    let (dst_addr, segment): (IpAddr, &[u8]) = match ip.first()? >> 4 {
        4 => {
            let header = Ipv4Header::parse(ip, ip.len()).ok()?;
            (header.protocol() == IpProtocol::TCP).then_some(())?;
            (header.dst_addr().into(), ip.get(header.header_len()..header.total_len())?)
        }
        _ => {
            let header = Ipv6Header::parse(ip, ip.len()).ok()?;
            (header.next_header() == IpProtocol::TCP).then_some(())?;
            let end = ipv6::HEADER_LEN + header.payload_len();
            (header.dst_addr().into(), ip.get(ipv6::HEADER_LEN..end)?)
        }
    };
    let header = TcpHeader::parse(segment, segment.len()).ok()?;
    Some(Heard {
        to: SocketAddr::new(dst_addr, header.dst_port()),
        seq: header.seq(),
        ack: header.ack(),
        flags: header.flags(),
        window: header.window(),
        options: TcpOptionSet::read(header.options()).ok()?,
        text: segment.get(header.header_len()..)?.to_vec(),
        len: ip.len(),
    })
}
