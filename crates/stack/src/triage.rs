//! Triage: whose a packet is, before any work is put into it.
//!
//! Called by the dispatcher for a burst, read-only, at the price of one table probe. It guesses
//! where guessing is cheap: what it calls a stranger may turn out refusable later.

use core::net::{IpAddr, SocketAddr};

use floodwall_packet::{PacketBuf, Triage};
use floodwall_wire::{EtherType, IpProtocol, ethernet, ipv4, ipv6};

use floodwall_ip::LinkMedium;

use crate::shard::Stack;

/// Says of one packet whose it is.
pub(crate) fn classify(stack: &Stack, packet: &PacketBuf) -> Triage {
    look(stack, packet).unwrap_or(Triage::Refusable)
}

/// `None` where the first chunk already tells that the packet will be dropped.
fn look(stack: &Stack, packet: &PacketBuf) -> Option<Triage> {
    let interface = stack.interfaces.get(usize::from(packet.iface().0))?;
    let bytes = packet.first();
    let LinkMedium::Ethernet(_) = interface.medium else {
        return ip(stack, packet, 0, bytes.first()? >> 4);
    };
    let ether_type = bytes.get(12..14)?.first_chunk().map(|t| u16::from_be_bytes(*t))?;
    match EtherType(ether_type) {
        EtherType::IPV4 => ip(stack, packet, ethernet::HEADER_LEN, 4),
        EtherType::IPV6 => ip(stack, packet, ethernet::HEADER_LEN, 6),
        EtherType::ARP | EtherType::VLAN => Some(Triage::Stranger),
        _ => None,
    }
}

fn ip(stack: &Stack, packet: &PacketBuf, l3: usize, version: u8) -> Option<Triage> {
    let bytes = packet.first().get(l3..)?;
    let (protocol, src_addr, dst_addr, l4): (u8, IpAddr, IpAddr, usize) = match version {
        4 => {
            let fixed: &[u8; ipv4::HEADER_LEN] = bytes.first_chunk()?;
            let addr = |at: usize| fixed.get(at..)?.first_chunk::<4>().map(|a| IpAddr::from(*a));
            (fixed[9], addr(12)?, addr(16)?, ipv4::header_len(fixed)?)
        }
        6 => {
            let fixed: &[u8; ipv6::HEADER_LEN] = bytes.first_chunk()?;
            let addr = |at: usize| fixed.get(at..)?.first_chunk::<16>().map(|a| IpAddr::from(*a));
            (fixed[6], addr(8)?, addr(24)?, ipv6::HEADER_LEN)
        }
        _ => return None,
    };
    if IpProtocol(protocol) != IpProtocol::UDP {
        return Some(Triage::Stranger);
    }
    let ports: &[u8; 4] = bytes.get(l4..)?.first_chunk()?;
    let (src_port, dst_port) =
        (u16::from_be_bytes([ports[0], ports[1]]), u16::from_be_bytes([ports[2], ports[3]]));
    let iface = packet.iface();
    let (from, to) = (SocketAddr::new(src_addr, src_port), SocketAddr::new(dst_addr, dst_port));
    Some(stack.udp.classify(from, to, iface))
}
