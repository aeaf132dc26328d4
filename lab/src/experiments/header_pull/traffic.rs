//! The packets of each row: generated from a seed, or out of a capture; and how they arrive in
//! pieces.
//!
//! Shares of protocols and of layouts stand in the plan (where the source published them, they are
//! the source's). Addresses, ports and payload are random; checksums are left zero, for nothing
//! here looks at them. A row's packets are the same for every accessor.

use core::net::Ipv6Addr;

use floodwall_base::PublicRandom;
use floodwall_wire::{Icmpv6Type, IpProtocol, Ipv6Fields};
use serde::Deserialize;

use crate::baselines::chain::{Cut, Kind, Sizes};
use crate::error::LabError;

use super::captures;

/// How packets come to be in pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// By a driver's rules, which know nothing of headers.
    Driver,
    /// By the loopback interface: as the sender made them, headers in small pieces of their own.
    Loopback,
}

/// Shares, in percent or any other unit.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    tcp: f64,
    udp: f64,
    icmpv6: f64,
    /// Of all packets: that fit one small piece, two, or need clusters.
    one_small: f64,
    two_small: f64,
    clusters: f64,
    /// Of ICMPv6: solicitations and advertisements of neighbours, advertisements of routers, echo,
    /// errors.
    neighbors: f64,
    routers: f64,
    echoes: f64,
    errors: f64,
}

/// Where a row's packets come from.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// Generated.
    Mix(Mix),
    /// The packets of a capture, all over again until there are enough.
    Capture(String),
    /// An echo request behind so many bytes of destination options.
    DestinationOptions(u8),
}

/// One row of the tables.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its name, also in names of numbers.
    pub name: String,
    /// The source's row that it is put beside.
    #[serde(default)]
    pub published: String,
    /// How its packets arrive.
    pub arrival: Arrival,
    /// What they are.
    pub traffic: Traffic,
    /// How many, where that is not the plan's number.
    pub packets: Option<u64>,
}

/// One packet, and where the loopback interface would have it cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Its bytes from the IP header on.
    pub flat: Vec<u8>,
    /// Bytes of headers that its sender made in a piece of their own.
    head: usize,
}

impl Packet {
    /// One that came over a wire: nothing is known of how it was made.
    #[must_use]
    pub fn received(flat: Vec<u8>) -> Self {
        Self { head: flat.len().min(40), flat }
    }

    /// Cut as it arrives.
    #[must_use]
    pub fn cut(&self, arrival: Arrival, sizes: Sizes) -> Cut {
        let len = self.flat.len();
        match arrival {
            Arrival::Driver => sizes.driver(len),
            Arrival::Loopback if len <= self.head => vec![(Kind::Header, len)],
            Arrival::Loopback => {
                let rest = len - self.head;
                let mut cut = vec![(Kind::Header, self.head)];
                match rest <= sizes.data {
                    true => cut.push((Kind::Data, rest)),
                    false => cut.extend(sizes.clusters(rest)),
                }
                cut
            }
        }
    }
}

/// The packets of a row.
///
/// # Errors
/// It requests a capture that does not exist.
pub fn packets(row: &Row, sizes: Sizes, count: u64, seed: u64) -> Result<Vec<Packet>, LabError> {
    let mut maker = Maker { random: PublicRandom::new(seed), sizes };
    let all = 0..row.packets.unwrap_or(count);
    Ok(match &row.traffic {
        Traffic::Mix(mix) => all.map(|_| maker.mixed(mix)).collect(),
        Traffic::DestinationOptions(bytes) => all.map(|_| maker.options_echo(*bytes)).collect(),
        Traffic::Capture(name) => {
            let of_capture = captures::ip_packets(name)?;
            let cycle = of_capture.iter().cycle().zip(all);
            cycle.map(|(flat, _)| Packet::received(flat.clone())).collect()
        }
    })
}

struct Maker {
    random: PublicRandom,
    sizes: Sizes,
}

impl Maker {
    /// One of several by their shares.
    fn pick(&mut self, shares: &[f64]) -> usize {
        let all: f64 = shares.iter().sum();
        let mut at = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 * all;
        for (number, share) in shares.iter().enumerate() {
            if at < *share {
                return number;
            }
            at -= share;
        }
        shares.len().saturating_sub(1)
    }

    fn between(&mut self, from: usize, to: usize) -> usize {
        from + self.random.below((to.saturating_sub(from) + 1) as u64) as usize
    }

    fn mixed(&mut self, mix: &Mix) -> Packet {
        match self.pick(&[mix.tcp, mix.udp, mix.icmpv6]) {
            0 => {
                let options = [0, 12, 12, 12, 20, 24][self.between(0, 5)];
                let mut segment = vec![0; 20 + options];
                segment[12] = ((20 + options) / 4 * 16) as u8;
                self.transport(mix, IpProtocol::TCP, segment)
            }
            1 => self.transport(mix, IpProtocol::UDP, vec![0; 8]),
            _ => self.icmpv6(mix),
        }
    }

    /// A header with as much payload as the packet's layout has room for.
    fn transport(&mut self, mix: &Mix, protocol: IpProtocol, mut header: Vec<u8>) -> Packet {
        let head = 40 + header.len();
        let Sizes { header: one, data, .. } = self.sizes;
        let len = match self.pick(&[mix.one_small, mix.two_small, mix.clusters]) {
            0 => self.between(head.min(one), one),
            1 => self.between(one + 1, one + data),
            _ => self.between(one + data + 1, 1500),
        };
        header.resize(len.max(head) - 40, 0xa5);
        // The stack makes IP and transport header together.
        Packet { flat: self.ipv6(protocol, &header), head }
    }

    fn icmpv6(&mut self, mix: &Mix) -> Packet {
        match self.pick(&[mix.neighbors, mix.routers, mix.echoes, mix.errors]) {
            0 => {
                let kinds = [Icmpv6Type::NEIGHBOR_SOLICITATION, Icmpv6Type::NEIGHBOR_ADVERTISEMENT];
                // Target and one link-address option.
                let message = message(kinds[self.between(0, 1)], 32);
                Packet { flat: self.ipv6(IpProtocol::ICMPV6, &message), head: 72 }
            }
            1 => {
                // Link address, and up to two prefixes and an MTU.
                let options = [8, 40, 48, 80][self.between(0, 3)];
                let message = message(Icmpv6Type::ROUTER_ADVERTISEMENT, 16 + options);
                Packet { flat: self.ipv6(IpProtocol::ICMPV6, &message), head: 56 + options }
            }
            2 => {
                let len = self.between(8 + 8, 8 + 1024);
                let message = message(Icmpv6Type::ECHO_REQUEST, len);
                // A raw socket brings the message, the stack puts the IP header before it.
                Packet { flat: self.ipv6(IpProtocol::ICMPV6, &message), head: 40 }
            }
            _ => {
                // A quoted datagram or segment.
                let inner = [IpProtocol::UDP, IpProtocol::TCP][self.between(0, 1)];
                let len = self.between(8, 600);
                let quoted = self.ipv6(inner, &vec![0; len]);
                let mut message = message(Icmpv6Type::DESTINATION_UNREACHABLE, 8);
                message.extend(quoted);
                Packet { flat: self.ipv6(IpProtocol::ICMPV6, &message), head: 48 }
            }
        }
    }

    /// Padding options and an echo request of 16 bytes, as the source's fifth packet has.
    fn options_echo(&mut self, bytes: u8) -> Packet {
        let bytes = usize::from(bytes).next_multiple_of(8).max(8);
        let mut payload = vec![0; bytes];
        payload[0] = IpProtocol::ICMPV6.0;
        payload[1] = (bytes / 8 - 1) as u8;
        payload[2] = 1; // PadN
        payload[3] = (bytes - 4) as u8;
        payload.extend(message(Icmpv6Type::ECHO_REQUEST, 16));
        let flat = self.ipv6(IpProtocol::DESTINATION_OPTIONS, &payload);
        Packet { flat, head: 40 }
    }

    fn ipv6(&mut self, next_header: IpProtocol, payload: &[u8]) -> Vec<u8> {
        let mut addr = |last| {
            let random = u128::from(self.random.next_u64());
            Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | random << 16 | last)
        };
        let (src_addr, dst_addr) = (addr(1), addr(2));
        let len = payload.len() as u16;
        let mut header = [0; 40];
        Ipv6Fields::new(src_addr, dst_addr, next_header, 64, len).emit(&mut header);
        [&header, payload].concat()
    }
}

/// An ICMPv6 message of a type, zero otherwise.
fn message(kind: Icmpv6Type, len: usize) -> Vec<u8> {
    let mut message = vec![0; len];
    if let Some(first) = message.first_mut() {
        *first = kind.0;
    }
    message
}
