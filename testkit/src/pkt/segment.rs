//! Segments as bytes on the wire, written and read without the product's own code, so that a
//! mistake there is seen.

use std::net::IpAddr;

use super::script::{Opt, Segment};

/// Both ends of the connection under test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) local: (IpAddr, u16),
    pub(super) remote: (IpAddr, u16),
}

/// Bytes that an option takes.
pub(super) fn option_len(option: &Opt) -> usize {
    match option {
        Opt::Eol | Opt::Nop => 1,
        Opt::Mss(_) => 4,
        Opt::Wscale(_) => 3,
        Opt::SackOk => 2,
        Opt::Raw(_, bytes) => 2 + bytes.len(),
        Opt::Sack(blocks) => 2 + 8 * blocks.len(),
        Opt::Ts(..) => 10,
    }
}

/// The packet that carries `segment` (its numbers are the wire's) from the remote end.
pub(super) fn encode(ends: &Ends, segment: &Segment) -> Vec<u8> {
    let mut options = Vec::new();
    for option in &segment.options {
        match option {
            Opt::Eol => options.push(0),
            Opt::Nop => options.push(1),
            Opt::Mss(mss) => options.extend([&[2, 4][..], &mss.to_be_bytes()].concat()),
            Opt::Wscale(shift) => options.extend([3, 3, *shift]),
            Opt::SackOk => options.extend([4, 2]),
            Opt::Sack(blocks) => {
                options.extend([5, 2 + 8 * blocks.len() as u8]);
                for (left, right) in blocks {
                    options.extend([left.to_be_bytes(), right.to_be_bytes()].concat());
                }
            }
            Opt::Ts(value, echo) => {
                options.extend([8, 10]);
                options.extend([value.to_be_bytes(), echo.to_be_bytes()].concat());
            }
            Opt::Raw(kind, bytes) => {
                options.extend([*kind, 2 + bytes.len() as u8]);
                options.extend(bytes);
            }
        }
    }
    let mut tcp = Vec::new();
    tcp.extend(ends.remote.1.to_be_bytes());
    tcp.extend(ends.local.1.to_be_bytes());
    tcp.extend(segment.start.to_be_bytes());
    tcp.extend(segment.ack.unwrap_or(0).to_be_bytes());
    let offset = ((20 + options.len()) / 4) << 4;
    tcp.extend([offset as u8 | (segment.flags >> 8) as u8, segment.flags as u8]);
    tcp.extend(segment.win.unwrap_or(0).to_be_bytes());
    tcp.extend([0, 0]);
    tcp.extend(segment.urgent.to_be_bytes());
    tcp.extend(options);
    tcp.resize(tcp.len() + segment.len as usize, 0);
    let sum = checksum(&[&pseudo(ends, tcp.len()), &tcp]);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    let mut packet = ip_header(ends, 6, tcp.len());
    if let Some(class) = segment.class {
        set_class(&mut packet, class, segment.ttl);
    }
    packet.extend(tcp);
    packet
}

/// Writes the traffic class and the hop limit into a complete header.
fn set_class(header: &mut [u8], class: u8, ttl: Option<u8>) {
    if header[0] >> 4 == 6 {
        header[0] = 0x60 | class >> 4;
        header[1] = class << 4;
        header[7] = ttl.unwrap_or(header[7]);
        return;
    }
    header[1] = class;
    header[8] = ttl.unwrap_or(header[8]);
    header[10..12].fill(0);
    let sum = checksum(&[header]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn pseudo(ends: &Ends, len: usize) -> Vec<u8> {
    let mut bytes = octets(ends.remote.0);
    bytes.extend(octets(ends.local.0));
    bytes.extend((len as u32).to_be_bytes());
    bytes.extend([0, 0, 0, 6]);
    bytes
}

pub(super) fn octets(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

/// A header from the remote end to the local one.
pub(super) fn ip_header(ends: &Ends, protocol: u8, len: usize) -> Vec<u8> {
    let mut header = if ends.local.0.is_ipv6() {
        let mut header = vec![0x60, 0, 0, 0];
        header.extend((len as u16).to_be_bytes());
        header.extend([protocol, 64]);
        header
    } else {
        let mut header = vec![0x45, 0];
        header.extend((20 + len as u16).to_be_bytes());
        header.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        header
    };
    header.extend(octets(ends.remote.0));
    header.extend(octets(ends.local.0));
    if ends.local.0.is_ipv4() {
        let sum = checksum(&[&header]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    header
}

pub(super) fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A segment that the TCP under test sent: its ports, numbers as on the wire. `None` where the
/// packet is none of it.
pub(super) fn decode(packet: &[u8], ends: &Ends) -> Option<((u16, u16), Segment)> {
    let (header, addrs, protocol) = if ends.local.0.is_ipv6() {
        let is_ours = packet.first()? >> 4 == 6;
        (40, packet.get(8..40).filter(|_| is_ours)?, *packet.get(6)?)
    } else {
        let is_ours = packet.first()? >> 4 == 4;
        let len = usize::from(packet.first()? & 15) * 4;
        (len, packet.get(12..20).filter(|_| is_ours)?, *packet.get(9)?)
    };
    let expected = [octets(ends.local.0), octets(ends.remote.0)].concat();
    if protocol != 6 || addrs != expected {
        return None;
    }
    let tcp = packet.get(header..)?;
    let half = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?));
    let data = usize::from(tcp.get(12)? >> 4) * 4;
    let flags = half(12)? & 0x0fff;
    let segment = Segment {
        flags,
        start: word(4)?,
        len: tcp.get(data..)?.len() as u32,
        ack: Some(word(8)?),
        win: half(14),
        urgent: half(18)?,
        options: read_options(tcp.get(20..data)?)?,
        any_options: false,
        class: Some(if header == 40 && ends.local.0.is_ipv6() {
            packet.first()? << 4 | packet.get(1)? >> 4
        } else {
            *packet.get(1)?
        }),
        ecn: None,
        ttl: packet.get(if ends.local.0.is_ipv6() { 7 } else { 8 }).copied(),
        any_start: false,
        raw_start: false,
    };
    Some(((half(0)?, half(2)?), segment))
}

fn read_options(mut bytes: &[u8]) -> Option<Vec<Opt>> {
    let mut options = Vec::new();
    while let [kind, rest @ ..] = bytes {
        if *kind < 2 {
            options.push(if *kind == 0 { Opt::Eol } else { Opt::Nop });
            bytes = rest;
            continue;
        }
        let len = usize::from(*rest.first()?);
        let data = bytes.get(2..len)?;
        let word = |at: usize| Some(u32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?));
        options.push(match (kind, data) {
            (2, &[high, low]) => Opt::Mss(u16::from_be_bytes([high, low])),
            (3, &[shift]) => Opt::Wscale(shift),
            (4, []) => Opt::SackOk,
            (5, _) => {
                let blocks = (0..data.len() / 8).map(|i| Some((word(8 * i)?, word(8 * i + 4)?)));
                Opt::Sack(blocks.collect::<Option<_>>()?)
            }
            (8, _) => Opt::Ts(word(0)?, word(4)?),
            _ => Opt::Raw(*kind, data.to_vec()),
        });
        bytes = bytes.get(len..)?;
    }
    Some(options)
}
