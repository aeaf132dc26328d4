//! Cutting a whole packet into fragments, rightly or in the ways that floods do.
//!
//! Called by `blast.rs`. Invariant: each fragment is a valid IP packet by itself; whether they can
//! be put together is the plan's choice. Reading: RFC 791 section 3.2, RFC 8200 section 4.5.

use floodwall_wire::ipv6_ext::FragmentFields;
use floodwall_wire::{IpProtocol, Ipv4Header, Ipv6Header, ipv4, ipv6};

use crate::plan::{Fragments, Withheld};

/// Bytes of an IPv6 fragment header.
const FRAGMENT_HEADER: usize = 8;

/// Maximum bytes of a fragment's headers.
pub(crate) const HEADERS_MAX: usize = 14 + ipv6::HEADER_LEN + FRAGMENT_HEADER;

/// Fragments `frame`, with its IP header at `network`, and gives each fragment to `send`. `scratch`
/// is where they are made. Returns how many were sent.
pub(crate) fn cut(
    frame: &[u8],
    network: usize,
    plan: Fragments,
    id: u32,
    scratch: &mut Vec<u8>,
    mut send: impl FnMut(&[u8]),
) -> u32 {
    let packet = frame.get(network..).unwrap_or_default();
    let header_len = match Ipv4Header::parse(packet, packet.len()) {
        // Options stay behind: no fragment needs them.
        Ok(ip) => ip.header_len(),
        Err(_) => ipv6::HEADER_LEN,
    };
    let body = packet.get(header_len..).unwrap_or_default();
    let step = plan.bytes.saturating_sub(plan.overlap).max(8);
    let (mut offset, mut sent) = (0, 0);
    loop {
        let end = (offset + plan.bytes).min(body.len());
        let last = end == body.len();
        let withheld = match plan.withheld {
            Withheld::First => offset == 0,
            Withheld::Last => last,
            Withheld::Middle => offset != 0 && !last,
            Withheld::None => false,
        };
        if !withheld {
            let place = FragmentSpan { offset: offset as u16, more: !last, id };
            let piece = body.get(offset..end).unwrap_or_default();
            scratch.clear();
            scratch.extend_from_slice(frame.get(..network).unwrap_or_default());
            write_headers(packet, place, piece.len(), scratch);
            scratch.extend_from_slice(piece);
            send(scratch);
            sent += 1;
        }
        if last {
            return sent;
        }
        offset += step;
    }
}

/// Which piece of which packet.
#[derive(Clone, Copy)]
struct FragmentSpan {
    offset: u16,
    more: bool,
    id: u32,
}

fn write_headers(packet: &[u8], place: FragmentSpan, piece_len: usize, out: &mut Vec<u8>) {
    if let Ok(ip) = Ipv4Header::parse(packet, packet.len()) {
        let mut fields = ip.fields();
        fields.total_len = (ipv4::HEADER_LEN + piece_len) as u16;
        fields.id = place.id as u16;
        fields.fragment_offset = place.offset;
        fields.more_fragments = place.more;
        fields.dont_fragment = false;
        let mut header = [0; ipv4::HEADER_LEN];
        fields.emit(&mut header);
        out.extend_from_slice(&header);
        return;
    }
    let Ok(ip) = Ipv6Header::parse(packet, packet.len()) else { return };
    let mut fields = ip.fields();
    let next_header = fields.next_header;
    fields.payload_len = (FRAGMENT_HEADER + piece_len) as u16;
    fields.next_header = IpProtocol::FRAGMENT;
    let mut header = [0; ipv6::HEADER_LEN];
    fields.emit(&mut header);
    out.extend_from_slice(&header);
    let mut header = [0; FRAGMENT_HEADER];
    let FragmentSpan { offset, more, id } = place;
    FragmentFields { next_header, offset, more, id }.emit(&mut header);
    out.extend_from_slice(&header);
}

#[cfg(test)]
mod tests {
    use floodwall_base::MacAddr;
    use floodwall_wire::{ExtensionHeader, validate};

    use super::*;
    use crate::station::StationMedium;
    use crate::template::Template;

    /// Each fragment's offset, length and whether more follow.
    fn pieces(v4: bool, plan: Fragments) -> Vec<(usize, usize, bool)> {
        let addrs = if v4 { ["10.0.0.1", "10.0.0.2"] } else { ["fd00::1", "fd00::2"] };
        let addrs = addrs.map(|text| text.parse().unwrap());
        let link = (MacAddr([2; 6]), MacAddr([4; 6]));
        let template =
            Template::udp(StationMedium::Ethernet, link, (addrs[0], addrs[1]), 64, 42).unwrap();
        let (mut found, mut joined) = (Vec::new(), vec![0; 50]);
        let sent = cut(template.frame(), 14, plan, 7, &mut Vec::new(), |frame| {
            let checked = validate(frame).unwrap();
            assert!(checked.is_fragment && checked.end as usize == frame.len());
            let packet = &frame[14..];
            let (offset, more, body) = if v4 {
                let ip = Ipv4Header::parse(packet, packet.len()).unwrap();
                assert_eq!(ip.id(), 7);
                (ip.fragment_offset(), ip.more_fragments(), &packet[20..])
            } else {
                let taken = ExtensionHeader::take(IpProtocol::FRAGMENT, &packet[40..]).unwrap();
                let ExtensionHeader::Fragment(fields) = taken else { panic!("no fragment") };
                assert_eq!((fields.id, fields.next_header), (7, IpProtocol::UDP));
                (usize::from(fields.offset), fields.more, &packet[48..])
            };
            joined[offset..offset + body.len()].copy_from_slice(body);
            found.push((offset, body.len(), more));
        });
        assert_eq!(sent as usize, found.len());
        if plan.withheld == Withheld::None {
            let whole = &template.frame()[template.frame().len() - 50..];
            assert_eq!(joined, whole, "what was cut joins again");
        }
        found
    }

    #[test]
    fn fragments_are_tiny_overlapping_or_incomplete_as_the_plan_says() {
        for v4 in [true, false] {
            let plan = Fragments { bytes: 24, overlap: 0, withheld: Withheld::None };
            assert_eq!(pieces(v4, plan), [(0, 24, true), (24, 24, true), (48, 2, false)]);
            let last = Fragments { withheld: Withheld::Last, ..plan };
            assert_eq!(pieces(v4, last), [(0, 24, true), (24, 24, true)]);
            let first = Fragments { withheld: Withheld::First, ..plan };
            assert_eq!(pieces(v4, first), [(24, 24, true), (48, 2, false)]);
            let middle = Fragments { withheld: Withheld::Middle, ..plan };
            assert_eq!(pieces(v4, middle), [(0, 24, true), (48, 2, false)]);
            let tiny = Fragments { bytes: 8, ..plan };
            assert_eq!(pieces(v4, tiny).len(), 7);
            let overlap = Fragments { overlap: 8, ..plan };
            assert_eq!(pieces(v4, overlap), [(0, 24, true), (16, 24, true), (32, 18, false)]);
        }
    }
}
