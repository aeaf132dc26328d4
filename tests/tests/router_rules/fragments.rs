//! Packets larger than their next link (RFC 1812 section 4.2.2.7, RFC 791 section 3.2, RFC 1191
//! section 4, RFC 8200 section 5, RFC 4443 section 3.2).

use floodwall_base::DropReason::PacketTooBig;
use floodwall_base::Family;
use floodwall_tests::craft::{
    FAMILIES, PEER, addr, fragment, fragments, ip, ipv4_with_options, v4,
};
use floodwall_wire::{IpProtocol, Ipv4Fields, Ipv4Header};

use super::*;

/// A router with an MTU of 1,280 bytes on its right link.
fn narrow() -> Transit {
    let mut config = router_config();
    config.interfaces[1].mtu = 1280;
    Transit::new(&config)
}

/// A packet of 1,400 bytes of payload.
fn large(family: Family) -> Vec<u8> {
    let payload: Vec<u8> = (0..1400_u32).map(|n| n as u8).collect();
    let packet = ip(addr(family, PEER), far(family, 7), IpProtocol::UDP, &payload);
    with_hop_limit(&packet, 64)
}

/// What a packet becomes on its way to the right: each piece's header and payload.
fn pieces(packet: &[u8]) -> Vec<(Ipv4Fields, Vec<u8>, Vec<u8>)> {
    let departed = narrow().arrive(LEFT, &[from_left(packet)]);
    let taken = departed.iter().map(|piece| {
        let bytes = bytes_of(piece)[14..].to_vec();
        assert!(bytes.len() <= 1280 && piece.iface() == RIGHT);
        let header = Ipv4Header::parse(&bytes, bytes.len()).unwrap();
        let (options, payload) = (header.options_bytes(), &bytes[header.header_len()..]);
        (header.fields(), options.to_vec(), payload.to_vec())
    });
    taken.collect()
}

#[test]
fn rfc1812_4_2_2_7_as_few_pieces_as_may_be_in_their_order() {
    let packet = large(Family::V4);
    let pieces = pieces(&packet);
    let lens: Vec<_> = pieces.iter().map(|(.., payload)| payload.len()).collect();
    assert_eq!(lens, [1256, 144], "the most that fits and is a multiple of eight");
    let places: Vec<_> =
        pieces.iter().map(|(f, ..)| (f.fragment_offset, f.more_fragments)).collect();
    assert_eq!(places, [(0, true), (1256, false)]);
    let whole: Vec<_> = pieces.into_iter().flat_map(|(.., payload)| payload).collect();
    assert_eq!(whole, packet[20..]);
}

#[test]
fn rfc791_3_2_a_fragment_is_cut_into_fragments_of_its_datagram() {
    for more in [false, true] {
        let (whole, len) = (large(Family::V4), 1400);
        let mut packet = fragment(&whole, 9, 0, len, more);
        packet[6..8].copy_from_slice(&(100_u16 | u16::from(more) << 13).to_be_bytes());
        let pieces = pieces(&with_hop_limit(&packet, 64));
        let places: Vec<_> =
            pieces.iter().map(|(f, ..)| (f.id, f.fragment_offset, f.more_fragments)).collect();
        assert_eq!(places, [(9, 800, true), (9, 800 + 1256, more)]);
    }
}

#[test]
fn rfc791_3_1_later_pieces_have_the_copied_options_alone() {
    let to = std::net::Ipv4Addr::new(172, 16, 0, 7);
    let fields = Ipv4Fields::new(v4(PEER), to, IpProtocol::UDP, 64, 0);
    // One that stays in the first piece, one that is copied.
    let options = [30, 4, 1, 1, 0x9e, 4, 2, 2];
    let pieces = pieces(&ipv4_with_options(fields, &options, &[7; 1400]));
    let options: Vec<_> = pieces.iter().map(|(_, options, _)| options.clone()).collect();
    assert_eq!(options, [vec![30, 4, 1, 1, 0x9e, 4, 2, 2], vec![0x9e, 4, 2, 2]]);
}

/// IPv6 packets are never fragmented by routers, fragments neither (RFC 8200 section 4.5).
#[test]
fn rfc1812_4_2_2_7_what_must_not_be_cut_is_told_the_mtu() {
    for family in FAMILIES {
        let mut whole = large(family);
        if family == Family::V4 {
            whole[6] |= 0x40;
            whole = with_hop_limit(&whole, 64);
        }
        let mut packets = vec![whole.clone()];
        if family == Family::V6 {
            packets.push(fragment(&whole, 9, 0, 1400, true));
            packets.push(fragment(&whole, 9, 8, 1400, false));
        }
        for packet in packets {
            let icmp = told(&mut narrow(), &packet, PacketTooBig);
            assert_eq!((icmp.kind, icmp.code), kind(family, (3, 4), (2, 0)));
            assert_eq!(icmp.word, 1280, "RFC 1191 section 4, RFC 4443 section 3.2");
            assert_eq!(icmp.body[..40], packet[..40], "as it was");
        }
    }
}

#[test]
fn rfc1812_4_3_2_7_nothing_is_told_that_a_later_fragment_is_too_big() {
    let mut packet = large(Family::V4);
    packet[6..8].copy_from_slice(&0x4001_u16.to_be_bytes());
    let packet = with_hop_limit(&packet, 64);
    assert!(narrow().expect_drop("a later one", &packet, PacketTooBig).is_empty());
}

#[test]
fn rfc1812_4_2_2_8_others_fragments_are_not_put_together() {
    for family in FAMILIES {
        let mut router = router();
        for piece in fragments(&large(family), 9, 496) {
            passes(&mut router, &piece);
        }
    }
}

#[test]
fn rfc8200_5_what_just_fits_is_passed_on_whole() {
    for (family, payload) in [(Family::V4, 1260), (Family::V6, 1240)] {
        let packet = ip(addr(family, PEER), far(family, 7), IpProtocol::UDP, &vec![7; payload]);
        passes(&mut narrow(), &packet);
    }
}
