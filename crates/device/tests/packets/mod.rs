//! Packets of both families, made by hand for the device tests.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing test may panic")]
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::net::IpAddr;

use floodwall_checksum::{Accumulator, pseudo_header_v4, pseudo_header_v6, sum};
use floodwall_packet::Offload;

/// TCP's number.
pub const TCP: u8 = 6;
/// UDP's number.
pub const UDP: u8 = 17;

/// An IP packet with `segment` behind its header.
pub fn ip_packet(src_addr: IpAddr, dst_addr: IpAddr, protocol: u8, segment: &[u8]) -> Vec<u8> {
    let mut packet;
    match (src_addr, dst_addr) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let len = u16::try_from(20 + segment.len()).unwrap().to_be_bytes();
            packet = vec![0x45, 0, len[0], len[1], 0, 1, 0x40, 0, 64, protocol, 0, 0];
            packet.extend(from.octets());
            packet.extend(to.octets());
            let check = sum(&packet).finish().to_be_bytes();
            packet[10..12].copy_from_slice(&check);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let len = u16::try_from(segment.len()).unwrap().to_be_bytes();
            packet = vec![0x60, 0, 0, 0, len[0], len[1], protocol, 64];
            packet.extend(from.octets());
            packet.extend(to.octets());
        }
        _ => panic!("two families"),
    }
    packet.extend(segment);
    packet
}

/// The folded sum of the pseudo header: what a partial checksum field holds.
pub fn pseudo(src_addr: IpAddr, dst_addr: IpAddr, protocol: u8, len: usize) -> u16 {
    match (src_addr, dst_addr) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            pseudo_header_v4(from, to, protocol, len as u16).fold()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            pseudo_header_v6(from, to, protocol, len as u32).fold()
        }
        _ => panic!("two families"),
    }
}

/// A datagram with the pseudo header's sum in its checksum field, and its metadata. Offsets count
/// from the IP header.
pub fn partial_datagram(
    src_addr: IpAddr,
    dst_addr: IpAddr,
    ports: [u16; 2],
    data: &[u8],
) -> (Vec<u8>, Offload) {
    let len = 8 + data.len();
    let mut segment = Vec::new();
    segment.extend(ports[0].to_be_bytes());
    segment.extend(ports[1].to_be_bytes());
    segment.extend((len as u16).to_be_bytes());
    segment.extend(pseudo(src_addr, dst_addr, UDP, len).to_be_bytes());
    segment.extend(data);
    let packet = ip_packet(src_addr, dst_addr, UDP, &segment);
    let start = (packet.len() - len) as u16;
    (packet, Offload { flags: 1, checksum_start: start, checksum_offset: 6, ..Offload::default() })
}

/// The largest TCP payload that fits a packet of either family.
pub const PAYLOAD_MAX: usize = 65_535 - 40 - 20;

/// A TCP GSO frame with `payload` bytes, to be cut into pieces of 1400.
pub fn super_segment(src_addr: IpAddr, dst_addr: IpAddr, payload: usize) -> (Vec<u8>, Offload) {
    let (network, gso_type) = if src_addr.is_ipv4() { (20, 1) } else { (40, 4) };
    let mut segment = vec![0; 20 + payload];
    segment[..4].copy_from_slice(&[0x1f, 0x90, 0x1f, 0x91]);
    segment[4..8].copy_from_slice(&7_u32.to_be_bytes());
    segment[12..16].copy_from_slice(&[0x50, 0x10, 0xff, 0xff]);
    for (i, byte) in segment[20..].iter_mut().enumerate() {
        *byte = (i % 251) as u8;
    }
    let partial = pseudo(src_addr, dst_addr, TCP, segment.len());
    segment[16..18].copy_from_slice(&partial.to_be_bytes());
    let offload = Offload {
        flags: 1,
        gso_type,
        header_len: network + 20,
        gso_size: 1400,
        checksum_start: network,
        checksum_offset: 16,
    };
    (ip_packet(src_addr, dst_addr, TCP, &segment), offload)
}

/// A whole TCP segment of `payload` bytes from `seq` on.
pub fn segment(src_addr: IpAddr, dst_addr: IpAddr, seq: u32, flags: u8, payload: usize) -> Vec<u8> {
    let mut segment = vec![0; 20 + payload];
    segment[..4].copy_from_slice(&[0x1f, 0x90, 0x1f, 0x91]);
    segment[4..8].copy_from_slice(&seq.to_be_bytes());
    segment[12..16].copy_from_slice(&[0x50, flags, 0xff, 0xff]);
    for (i, byte) in segment[20..].iter_mut().enumerate() {
        *byte = ((seq as usize + i) % 251) as u8;
    }
    let mut all = Accumulator::new();
    all.add(&pseudo(src_addr, dst_addr, TCP, segment.len()).to_be_bytes()).add(&segment);
    let check = all.finish();
    segment[16..18].copy_from_slice(&check.to_be_bytes());
    ip_packet(src_addr, dst_addr, TCP, &segment)
}

/// Whether the transport checksum of an IP packet without options is right.
pub fn verifies(packet: &[u8]) -> bool {
    let (network, protocol) = if packet[0] >> 4 == 4 { (20, packet[9]) } else { (40, packet[6]) };
    let segment = &packet[network..];
    let pseudo_sum = if network == 20 {
        let from: [u8; 4] = packet[12..16].try_into().unwrap();
        let to: [u8; 4] = packet[16..20].try_into().unwrap();
        pseudo_header_v4(from.into(), to.into(), protocol, segment.len() as u16)
    } else {
        let from: [u8; 16] = packet[8..24].try_into().unwrap();
        let to: [u8; 16] = packet[24..40].try_into().unwrap();
        pseudo_header_v6(from.into(), to.into(), protocol, segment.len() as u32)
    };
    Accumulator::with(pseudo_sum).add(segment).verifies()
}

/// `packet` behind an Ethernet header.
pub fn frame(to: [u8; 6], from: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let ether_type: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&to[..], &from, &ether_type, packet].concat()
}

/// The same place, counted from an Ethernet frame's first byte.
pub fn behind_ethernet(mut offload: Offload) -> Offload {
    offload.checksum_start += 14;
    if offload.header_len > 0 {
        offload.header_len += 14;
    }
    offload
}
