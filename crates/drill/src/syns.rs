//! SYNs that are made beforehand: those that would meet in one row of a cache without a key.
//!
//! Read by `streams.rs`. The source's cache of 2001 added its secret to addresses and ports by
//! exclusive or, so that a sender that keeps the sum of all words the same puts its own SYNs, and
//! those of any client, into one row, with any secret. With a keyed hash they are as any others.

use core::net::{IpAddr, SocketAddr};

use floodwall_base::Family;
use floodwall_checksum::{InternetSum, pseudo_header_v4, pseudo_header_v6};
use floodwall_wire::tcp::{HEADER_LEN_MAX, TcpFields, TcpFlags};
use floodwall_wire::tcp_options::TcpOptionSet;
use floodwall_wire::{EtherType, IpProtocol, Ipv4Fields, Ipv6Fields, ipv4, ipv6};

use crate::{hostile, topology};

/// SYNs of each family.
const SYNS_OF_FAMILY: u16 = 1024;
/// What their last address word and port come to.
const COLLIDING_WORD: u16 = 0x4a17;

/// Both families by turns.
pub(crate) fn one_row() -> Vec<Vec<u8>> {
    (0..SYNS_OF_FAMILY)
        .flat_map(|n| topology::FAMILIES.map(|family| syn(family, n)))
        .flatten()
        .collect()
}

fn syn(family: Family, n: u16) -> Option<Vec<u8>> {
    let [a, b] = n.to_be_bytes();
    let from: IpAddr = match family {
        Family::V4 => [198, 19, a & 0x7f, b].into(),
        Family::V6 => [0x2001, 2, 0, 0x13, 0, 0, 0, n].into(),
    };
    let to = SocketAddr::new(topology::server_addr(family), topology::SERVICE_PORT);
    segment(SocketAddr::new(from, COLLIDING_WORD ^ n), to, u32::from(n) << 8)
}

fn segment(from: SocketAddr, to: SocketAddr, seq: u32) -> Option<Vec<u8>> {
    let fields = TcpFields {
        src_port: from.port(),
        dst_port: to.port(),
        seq,
        ack: 0,
        flags: TcpFlags::SYN,
        window: 65_000,
        urgent: 0,
    };
    let options = TcpOptionSet { mss: Some(1400), ..TcpOptionSet::NONE };
    let (len, mut out) = (floodwall_wire::tcp::HEADER_LEN + options.emitted_len(), vec![]);
    let mut tcp = [0; HEADER_LEN_MAX];
    match (from.ip(), to.ip()) {
        (IpAddr::V4(src_addr), IpAddr::V4(dst_addr)) => {
            let mut head = [0; ipv4::HEADER_LEN];
            let whole = (ipv4::HEADER_LEN + len) as u16;
            Ipv4Fields::new(src_addr, dst_addr, IpProtocol::TCP, 60, whole).emit(&mut head);
            let pseudo = pseudo_header_v4(src_addr, dst_addr, IpProtocol::TCP.0, len as u16);
            fields.emit(&options, pseudo, InternetSum::default(), &mut tcp).ok()?;
            out.extend(hostile::link_header(EtherType::IPV4));
            out.extend(head);
        }
        (IpAddr::V6(src_addr), IpAddr::V6(dst_addr)) => {
            let mut head = [0; ipv6::HEADER_LEN];
            Ipv6Fields::new(src_addr, dst_addr, IpProtocol::TCP, 60, len as u16).emit(&mut head);
            let pseudo = pseudo_header_v6(src_addr, dst_addr, IpProtocol::TCP.0, len as u32);
            fields.emit(&options, pseudo, InternetSum::default(), &mut tcp).ok()?;
            out.extend(hostile::link_header(EtherType::IPV6));
            out.extend(head);
        }
        _ => return None,
    }
    out.extend(tcp.get(..len)?);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_whole_and_their_words_cancel_each_other_out() {
        let all = one_row();
        assert_eq!(all.len(), 2 * usize::from(SYNS_OF_FAMILY));
        for frame in all {
            let (addr_end, l4) = if frame[14] >> 4 == 4 { (30, 34) } else { (38, 54) };
            let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
            let low =
                word(addr_end - 2) ^ if addr_end == 30 { 0x8000 & word(addr_end - 2) } else { 0 };
            assert_eq!(low ^ word(l4), COLLIDING_WORD);
            assert_eq!(frame[l4 + 13], TcpFlags::SYN.0);
        }
    }
}
