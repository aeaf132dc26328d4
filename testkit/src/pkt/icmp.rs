//! ICMP errors of a script, as bytes on the wire: the message, and the quote of what it is about.
//!
//! Called by the runner. Written without the product's own code, as `segment.rs` is.

use super::segment::{Ends, checksum, ip_header, octets};

/// An ICMP error as a script writes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Icmp {
    pub(super) kind: String,
    pub(super) code: String,
    pub(super) mtu: u32,
    /// Where the quoted segment begins, from our first sequence number on; and its bytes.
    pub(super) quoted: (u32, u32),
}

/// The numbers of IPv4 and IPv6 for a type's and a code's name.
const TYPES: &[(&str, Option<u8>, Option<u8>)] = &[
    ("echo_reply", Some(0), Some(129)),
    ("echo_request", Some(8), Some(128)),
    ("timestamp_request", Some(13), None),
    ("timestamp_reply", Some(14), None),
    ("information_request", Some(15), None),
    ("information_reply", Some(16), None),
    ("address_mask_request", Some(17), None),
    ("address_mask_reply", Some(18), None),
    ("unreachable", Some(3), Some(1)),
    ("source_quench", Some(4), None),
    ("redirect", Some(5), None),
    ("time_exceeded", Some(11), Some(3)),
    ("parameter_problem", Some(12), Some(4)),
    ("packet_too_big", None, Some(2)),
];
/// Codes of an IPv4 type (`None`: of any).
const CODES_V4: &[(Option<u8>, &str, u8)] = &[
    (None, "", 0),
    (Some(3), "net_unreachable", 0),
    (Some(3), "host_unreachable", 1),
    (Some(3), "protocol_unreachable", 2),
    (Some(3), "port_unreachable", 3),
    (Some(3), "frag_needed", 4),
    (Some(3), "source_route_failed", 5),
    (Some(3), "net_unknown", 6),
    (Some(3), "host_unknown", 7),
    (Some(3), "source_host_isolated", 8),
    (Some(3), "net_prohibited", 9),
    (Some(3), "host_prohibited", 10),
    (Some(3), "net_unreachable_for_tos", 11),
    (Some(3), "host_unreachable_for_tos", 12),
    (Some(3), "packet_filtered", 13),
    (Some(3), "comm_prohibited", 13),
    (Some(3), "precedence_violation", 14),
    (Some(3), "precedence_cutoff", 15),
    (Some(11), "ttl_exceeded_in_transit", 0),
    (Some(11), "fragment_reassembly_time_exceeded", 1),
    (Some(11), "frag_reass_exceeded", 1),
];
const CODES_V6: &[(Option<u8>, &str, u8)] = &[
    (None, "", 0),
    (Some(1), "no_route", 0),
    (Some(1), "admin_prohibited", 1),
    (Some(1), "not_neighbour", 2),
    (Some(1), "address_unreachable", 3),
    (Some(1), "port_unreachable", 4),
    (Some(3), "exceed_hoplimit", 0),
    (Some(3), "exceed_fragment_reassembly_time", 1),
    (Some(3), "exceeded_hop_limit", 0),
    (Some(3), "exceeded_frag_time", 1),
    (Some(4), "header_field", 0),
    (Some(4), "erroneous_header_field", 0),
    (Some(4), "unknown_next_header", 1),
    (Some(4), "unknown_option", 2),
];

/// The numbers of a type and a code in a family.
pub(super) fn numbers(kind: &str, code: &str, is_ipv6: bool) -> Option<(u8, u8)> {
    let number = |word: &str, prefix: &str| word.strip_prefix(prefix)?.parse().ok();
    let known = TYPES.iter().find(|(name, ..)| *name == kind);
    let of_family = known.and_then(|(_, v4, v6)| if is_ipv6 { *v6 } else { *v4 });
    let codes = if is_ipv6 { CODES_V6 } else { CODES_V4 };
    let kind = of_family.or_else(|| number(kind, "type_"))?;
    let suits = |of: Option<u8>| of.is_none_or(|of| of == kind);
    let of_code = codes.iter().find(|(of, name, _)| *name == code && suits(*of));
    let code = of_code.map(|(.., number)| *number).or_else(|| number(code, "code_"))?;
    Some((kind, code))
}

/// The packet that carries the error, from the remote end; `seq` is the quoted segment's.
pub(super) fn encode(ends: &Ends, icmp: &Icmp, seq: u32) -> Option<Vec<u8>> {
    let is_ipv6 = ends.local.0.is_ipv6();
    let (kind, code) = numbers(&icmp.kind, &icmp.code, is_ipv6)?;
    let back = Ends { local: ends.remote, remote: ends.local };
    let mut quote = ip_header(&back, 6, 20 + icmp.quoted.1 as usize);
    quote.extend(ends.local.1.to_be_bytes());
    quote.extend(ends.remote.1.to_be_bytes());
    quote.extend(seq.to_be_bytes());
    let mut message = vec![kind, code, 0, 0];
    let is_mtu_v4 = !is_ipv6 && (kind, code) == (3, 4);
    message.extend(if is_ipv6 || is_mtu_v4 { icmp.mtu } else { 0 }.to_be_bytes());
    message.extend(quote);
    let mut pseudo = Vec::new();
    if is_ipv6 {
        pseudo.extend(octets(ends.remote.0));
        pseudo.extend(octets(ends.local.0));
        pseudo.extend((message.len() as u32).to_be_bytes());
        pseudo.extend([0, 0, 0, 58]);
    }
    let sum = checksum(&[&pseudo, &message]);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = ip_header(ends, if is_ipv6 { 58 } else { 1 }, message.len());
    packet.extend(message);
    Some(packet)
}
