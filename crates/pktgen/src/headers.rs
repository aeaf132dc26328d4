//! Headers put between the IP header and the transport: chains, options, padding, routing.
//!
//! Called by `blast.rs` for each packet of a stream that has them. Invariant: the resulting packet
//! has the length of its header fields and its checksums are right, IPv4's header checksum and the
//! transport's alike: the latter does not cover what is inserted (RFC 8200 section 8.1). Whether a
//! receiver should accept it is the plan's choice. IPv4 has 40 bytes of options where IPv6 has
//! headers, so the same plan means what comes nearest. Reading: RFC 791 section 3.1, RFC 8200
//! sections 4.2 to 4.6. Not here: fragments (`fragment.rs`), which can be cut out of the result.

use floodwall_base::PublicRandom;
use floodwall_wire::ipv6_ext::{HEADER_LEN_MIN, emit_options, emit_routing};
use floodwall_wire::{IpProtocol, Ipv4Header, Ipv6Header, ipv4, ipv6};

use crate::range::{SizeRange, Spread};

/// Maximum bytes that are inserted.
const HEADERS_BYTES_MAX: usize = 4096;
/// Bytes of options in an IPv4 header, at most.
const IPV4_OPTIONS_MAX: usize = ipv4::HEADER_LEN_MAX - ipv4::HEADER_LEN;
/// Maximum bytes of one options header or one routing header.
const ONE_MAX: usize = 2040;

/// What is put between the IP header and the transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Headers {
    /// So many extension headers of eight bytes, each empty destination options, the first
    /// hop-by-hop options. IPv4: so many options that record routes and times.
    Chain(SizeRange),
    /// So many options that every host knows to skip, in one header.
    Options(SizeRange),
    /// So many options of random unknown kinds, with the first two bits selecting the action.
    Unknown(SizeRange),
    /// So many bytes of padding options in one header.
    Padding(SizeRange),
    /// A routing header with so many addresses, of a random type. IPv4: source routes.
    Routing(SizeRange),
    /// Any of these, each packet another.
    Mixed,
}

impl Headers {
    /// One of the others, where this is [`Headers::Mixed`].
    fn settle(self, random: &mut PublicRandom) -> Self {
        if self != Self::Mixed {
            return self;
        }
        match random.below(5) {
            0 => Self::Chain(SizeRange { min: 1, max: 100 }),
            1 => Self::Options(SizeRange { min: 1, max: 200 }),
            2 => Self::Unknown(SizeRange { min: 1, max: 16 }),
            3 => Self::Padding(SizeRange { min: 1, max: 1200 }),
            _ => Self::Routing(SizeRange { min: 0, max: 64 }),
        }
    }

    pub(crate) const fn size(self) -> SizeRange {
        match self {
            Self::Chain(size)
            | Self::Options(size)
            | Self::Unknown(size)
            | Self::Padding(size)
            | Self::Routing(size) => size,
            Self::Mixed => SizeRange::one(0),
        }
    }
}

/// Writes `frame`, with its IP header at `network` and without options, with `headers` inserted, to
/// `out`. What does not fit `len_max` bytes is left out.
pub(crate) fn put_in(
    frame: &[u8],
    network: usize,
    headers: Headers,
    len_max: usize,
    random: &mut PublicRandom,
    out: &mut Vec<u8>,
) {
    let headers = headers.settle(random);
    let (link, packet) = frame.split_at_checked(network).unwrap_or((frame, &[]));
    let room = len_max.saturating_sub(frame.len());
    out.clear();
    out.extend_from_slice(link);
    if let Ok(ip) = Ipv4Header::parse(packet, packet.len()) {
        let mut options = [0; IPV4_OPTIONS_MAX];
        let len = ipv4_options(headers, room.min(IPV4_OPTIONS_MAX), random, &mut options);
        let mut fields = ip.fields();
        let mut header = [0; ipv4::HEADER_LEN_MAX];
        fields.total_len += len as u16;
        let written = fields.emit_with_options(options.get(..len).unwrap_or_default(), &mut header);
        out.extend_from_slice(header.get(..written.unwrap_or(0)).unwrap_or_default());
        out.extend_from_slice(packet.get(ipv4::HEADER_LEN..).unwrap_or_default());
        return;
    }
    let Ok(ip) = Ipv6Header::parse(packet, packet.len()) else { return };
    let mut chain = [0; HEADERS_BYTES_MAX];
    let room = room.min(HEADERS_BYTES_MAX);
    let (first, len) = ipv6_chain(headers, ip.next_header(), room, random, &mut chain);
    let mut fields = ip.fields();
    (fields.next_header, fields.payload_len) = (first, fields.payload_len + len as u16);
    let mut header = [0; ipv6::HEADER_LEN];
    fields.emit(&mut header);
    out.extend_from_slice(&header);
    out.extend_from_slice(chain.get(..len).unwrap_or_default());
    out.extend_from_slice(packet.get(ipv6::HEADER_LEN..).unwrap_or_default());
}

/// Writes options of at most `room` bytes; returns how many they are, a multiple of four.
fn ipv4_options(
    headers: Headers,
    room: usize,
    random: &mut PublicRandom,
    out: &mut [u8; IPV4_OPTIONS_MAX],
) -> usize {
    let count = headers.size().draw(Spread::Random, 0, random);
    let mut len = 0;
    let mut put = |bytes: &[u8]| {
        let Some(to) = out.get_mut(len..len + bytes.len()) else { return false };
        to.copy_from_slice(bytes);
        len += bytes.len();
        true
    };
    for n in 0..count.min(IPV4_OPTIONS_MAX) {
        let more = match headers {
            Headers::Padding(_) | Headers::Options(_) => put(&[1]),
            // Record route with one free place; timestamps with one.
            Headers::Chain(_) if n % 2 == 0 => put(&[7, 7, 4, 0, 0, 0, 0, 1]),
            Headers::Chain(_) => put(&[68, 8, 5, 0, 0, 0, 0, 0]),
            // Loose and strict source routes.
            Headers::Routing(_) => {
                let kind = if random.below(2) == 0 { 131 } else { 137 };
                let addr = (random.next_u64() as u32).to_be_bytes();
                let [a, b, c, d] = addr;
                put(&[kind, 7, 4, a, b, c, d, 1])
            }
            Headers::Unknown(_) | Headers::Mixed => {
                let word = random.next_u64().to_le_bytes();
                let [kind, a, b, ..] = word;
                // Kinds that stand for themselves, and known ones, are other floods.
                put(&[kind | 0x1e, 4, a, b])
            }
        };
        if !more {
            break;
        }
    }
    len.min(room) & !3
}

/// Writes extension headers of at most `room` bytes; returns the first one's kind, or `last` where
/// there is none, and how many bytes they are.
fn ipv6_chain(
    headers: Headers,
    last: IpProtocol,
    room: usize,
    random: &mut PublicRandom,
    out: &mut [u8; HEADERS_BYTES_MAX],
) -> (IpProtocol, usize) {
    let size = headers.size().draw(Spread::Random, 0, random);
    let out = out.get_mut(..room).unwrap_or_default();
    match headers {
        Headers::Chain(_) => {
            let count = size.min(room / HEADER_LEN_MIN);
            for (n, place) in out.chunks_exact_mut(HEADER_LEN_MIN).take(count).enumerate() {
                let next = if n + 1 == count { last } else { IpProtocol::DESTINATION_OPTIONS };
                // A place of eight bytes holds eight.
                let _ = emit_options(next, &[], place);
            }
            match count {
                0 => (last, 0),
                _ => (IpProtocol::HOP_BY_HOP, count * HEADER_LEN_MIN),
            }
        }
        Headers::Routing(_) => {
            let mut data = [0; ONE_MAX];
            let len = (4 + size.saturating_mul(16)).min(ONE_MAX - 4).min(room.saturating_sub(8));
            data.iter_mut().skip(4).for_each(|byte| *byte = random.next_u64() as u8);
            let kind = [0, 2, 3, 4, 253].get(random.below(5) as usize).copied().unwrap_or(0);
            let data = data.get(..len).unwrap_or_default();
            let left = random.below(size as u64 + 1) as u8;
            let len = emit_routing(last, kind, left, data, out).unwrap_or(0);
            if len == 0 { (last, 0) } else { (IpProtocol::ROUTING, len) }
        }
        Headers::Options(_) | Headers::Unknown(_) | Headers::Padding(_) | Headers::Mixed => {
            let mut options = [0; ONE_MAX];
            let most = room.saturating_sub(10).min(ONE_MAX);
            let len = ipv6_options(headers, size, most, random, &mut options);
            let kind = if random.below(2) == 0 {
                IpProtocol::HOP_BY_HOP
            } else {
                IpProtocol::DESTINATION_OPTIONS
            };
            let len = emit_options(last, options.get(..len).unwrap_or_default(), out).unwrap_or(0);
            if len == 0 { (last, 0) } else { (kind, len) }
        }
    }
}

/// Writes `size` options, or bytes of padding, as far as there is room; returns how many bytes they
/// are.
fn ipv6_options(
    headers: Headers,
    size: usize,
    room: usize,
    random: &mut PublicRandom,
    out: &mut [u8; ONE_MAX],
) -> usize {
    if let Headers::Padding(_) = headers {
        let size = size.min(room);
        for place in out.get_mut(..size).unwrap_or_default().chunks_mut(200) {
            // One byte is a padding of its own: zero.
            let len = place.len();
            if let Some(head) = place.first_chunk_mut::<2>() {
                *head = [1, (len - 2) as u8];
            }
        }
        return size;
    }
    // Options of four bytes: kind, length two, two bytes.
    let count = size.min(room / 4);
    for place in out.as_chunks_mut::<4>().0.iter_mut().take(count) {
        let word = random.next_u64().to_le_bytes();
        // The first two bits select what a receiver that does not know the option does: zero is to
        // skip it. Kinds from 0x1e on are for experiments and the unassigned.
        let kind = match headers {
            Headers::Options(_) => 0x1e,
            _ => word[0] | 0x1e,
        };
        *place = [kind, 2, word[1], word[2]];
    }
    count * 4
}

#[cfg(test)]
mod tests {
    use floodwall_base::MacAddr;
    use floodwall_checksum::sum;
    use floodwall_wire::{ExtensionLimits, ExtensionWalk, UdpHeader, validate};

    use super::*;
    use crate::station::StationMedium;
    use crate::template::Template;

    const ALL: [Headers; 6] = [
        Headers::Chain(SizeRange { min: 0, max: 170 }),
        Headers::Options(SizeRange { min: 1, max: 400 }),
        Headers::Unknown(SizeRange { min: 1, max: 40 }),
        Headers::Padding(SizeRange { min: 1, max: 1500 }),
        Headers::Routing(SizeRange { min: 0, max: 90 }),
        Headers::Mixed,
    ];

    fn template(v4: bool) -> Template {
        let addrs = if v4 { ["10.0.0.1", "10.0.0.2"] } else { ["fd00::1", "fd00::2"] };
        let addrs = addrs.map(|text| text.parse().unwrap());
        let link = (MacAddr([2; 6]), MacAddr([4; 6]));
        Template::udp(StationMedium::Ethernet, link, (addrs[0], addrs[1]), 64, 42).unwrap()
    }

    fn walk(packet: &[u8]) -> usize {
        let ip = Ipv6Header::parse(packet, packet.len()).unwrap();
        let limits = ExtensionLimits {
            headers_max: 1000,
            options_max: 1000,
            padding_max: 4000,
            chain_bytes_max: HEADERS_BYTES_MAX,
        };
        let mut walk = ExtensionWalk::of_packet(&ip, packet.len(), limits);
        while let Some(want) = walk.wants() {
            let bytes = &packet[want.offset..want.offset + want.len];
            if walk.feed(bytes).is_err() {
                return 0;
            }
        }
        walk.end().map_or(0, |_| 1)
    }

    #[test]
    fn what_is_put_in_leaves_lengths_and_checksums_right_in_both_families() {
        let (mut random, mut out) = (PublicRandom::new(1), Vec::new());
        for (headers, v4) in ALL.into_iter().flat_map(|h| [(h, true), (h, false)]) {
            let template = template(v4);
            let (mut longer, mut walked) = (0, 0);
            for _ in 0..300 {
                put_in(template.frame(), 14, headers, 1514, &mut random, &mut out);
                assert!(out.len() <= 1514, "{headers:?}");
                longer += usize::from(out.len() > template.frame().len());
                let packet = &out[14..];
                let body = &packet[packet.len() - 50..];
                let (total, pseudo) = if v4 {
                    let ip = Ipv4Header::parse(packet, packet.len()).unwrap();
                    (ip.total_len(), ip.pseudo_header(IpProtocol::UDP, 50))
                } else {
                    walked += walk(packet);
                    let ip = Ipv6Header::parse(packet, packet.len()).unwrap();
                    (ip.total_len(), ip.pseudo_header(IpProtocol::UDP, 50))
                };
                assert_eq!(total, packet.len(), "{headers:?}");
                let udp = UdpHeader::parse(body, body.len()).unwrap();
                assert!(udp.verifies(pseudo, sum(&body[8..])), "{headers:?}");
                assert!(validate(&out).is_ok() || !v4, "{headers:?}");
            }
            assert!(longer > 250, "{headers:?}: {longer} of 300 got any");
            // Unknown options end most walks, as they should.
            let least = if matches!(headers, Headers::Unknown(_)) { 1 } else { 20 };
            assert!(v4 || walked >= least, "{headers:?}: {walked} of 300 can be walked");
        }
    }

    #[test]
    fn a_chain_is_as_long_as_asked_for() {
        let (mut random, mut out) = (PublicRandom::new(1), Vec::new());
        let chain = Headers::Chain(SizeRange::one(100));
        put_in(template(false).frame(), 14, chain, 1514, &mut random, &mut out);
        assert_eq!(out.len(), template(false).frame().len() + 800);
    }
}
