//! Every header cut at every byte, and every wrong length field, is refused with its reason.

use std::net::Ipv4Addr;

use floodwall_base::MacAddr;
use floodwall_checksum::{InternetSum, header20};
use floodwall_wire::ipv4_options::{Ipv4Option, Ipv4OptionReason, Ipv4Options};
use floodwall_wire::ndp::{NdpOptionError, NeighborSolicitationFields};
use floodwall_wire::tcp_options::{TcpOption, TcpOptionReason, TcpOptionSet, TcpOptions};
use floodwall_wire::*;

fn ipv4() -> [u8; 20] {
    let mut out = [0; 20];
    let fields =
        Ipv4Fields::new([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), IpProtocol::UDP, 64, 100);
    fields.emit(&mut out);
    out
}

/// Writes the checksum again after something was changed.
fn reseal(mut header: [u8; 20]) -> [u8; 20] {
    header[10..12].fill(0);
    let check = header20(&header).finish();
    header[10..12].copy_from_slice(&check.to_be_bytes());
    header
}

#[test]
fn ethernet_cut_anywhere_is_refused() {
    let src_addr = MacAddr([2, 0, 0, 0, 0, 1]);
    let fields = EthernetFields { dst_addr: src_addr, src_addr, ether_type: EtherType::IPV6 };
    let tag = VlanTag { kind: EtherType::VLAN, priority: 7, drop_eligible: true, id: 4095 };
    for tags in [&[][..], &[tag], &[tag, tag]] {
        let mut out = [0; 22];
        let len = fields.emit_tagged(tags, &mut out).unwrap();
        for cut in 0..len {
            let want =
                if cut < 14 { EthernetError::Truncated } else { EthernetError::TagTruncated };
            assert_eq!(EthernetHeader::parse(&out[..cut]).unwrap_err(), want, "{cut}");
        }
        assert!(EthernetHeader::parse(&out[..len]).is_ok());
    }
    let mut out = [0; 26];
    fields.emit_tagged(&[tag; 3], &mut out).unwrap();
    assert_eq!(EthernetHeader::parse(&out).unwrap_err(), EthernetError::TooManyTags);
}

#[test]
fn arp_cut_anywhere_or_of_another_kind_is_refused() {
    let packet = ArpPacket {
        operation: ArpOperation::REQUEST,
        sender_link_addr: MacAddr([2; 6]),
        sender_addr: [192, 0, 2, 1].into(),
        target_link_addr: MacAddr::ZERO,
        target_addr: [192, 0, 2, 2].into(),
    };
    let mut out = [0; 28];
    packet.emit(&mut out);
    for cut in 0..28 {
        assert_eq!(ArpPacket::parse(&out[..cut]), Err(ArpError::Truncated));
    }
    for (at, value, want) in [
        (1, 6, ArpError::HardwareType),
        (2, 9, ArpError::ProtocolType),
        (4, 8, ArpError::HardwareLength),
        (5, 16, ArpError::ProtocolLength),
    ] {
        let mut bad = out;
        bad[at] = value;
        assert_eq!(ArpPacket::parse(&bad), Err(want));
    }
}

#[test]
fn malformed_ipv4_is_refused_by_its_reason() {
    let good = ipv4();
    for cut in 0..20 {
        assert_eq!(Ipv4Header::parse(&good[..cut], 100).unwrap_err(), Ipv4Error::Truncated);
    }
    assert!(Ipv4Header::parse(&good, 100).is_ok());
    assert!(Ipv4Header::parse(&good, 1500).is_ok(), "padding is no error");
    assert_eq!(Ipv4Header::parse(&good, 99).unwrap_err(), Ipv4Error::TotalLengthLong);
    for version in (0..16).filter(|&v| v != 4) {
        let mut bad = good;
        bad[0] = version << 4 | 5;
        assert_eq!(Ipv4Header::parse(&reseal(bad), 100).unwrap_err(), Ipv4Error::Version);
    }
    for words in 0..5 {
        let mut bad = good;
        bad[0] = 0x40 | words;
        assert_eq!(Ipv4Header::parse(&reseal(bad), 100).unwrap_err(), Ipv4Error::HeaderLength);
        assert_eq!(ipv4::header_len(&bad), None);
    }
    for words in 6..16 {
        let mut bad = good;
        bad[0] = 0x40 | words;
        assert_eq!(Ipv4Header::parse(&reseal(bad), 100).unwrap_err(), Ipv4Error::Truncated);
    }
    for total in 0..20u16 {
        let mut bad = good;
        bad[2..4].copy_from_slice(&total.to_be_bytes());
        let error = Ipv4Header::parse(&reseal(bad), 100).unwrap_err();
        assert_eq!(error, Ipv4Error::TotalLengthShort);
    }
    for bit in 0..160 {
        let mut bad = good;
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(Ipv4Header::parse(&bad, usize::MAX).is_err(), "bit {bit}");
    }
    let mut bad = good;
    bad[8] ^= 1;
    assert_eq!(Ipv4Header::parse(&bad, 100).unwrap_err(), Ipv4Error::Checksum);
    assert!(Ipv4Header::parse_offloaded(&bad, 100).is_ok());
}

#[test]
fn malformed_ipv6_is_refused_by_its_reason() {
    let (a, b) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    let mut good = [0; 40];
    Ipv6Fields::new(a, b, IpProtocol::UDP, 64, 60).emit(&mut good);
    for cut in 0..40 {
        assert_eq!(Ipv6Header::parse(&good[..cut], 100).unwrap_err(), Ipv6Error::Truncated);
    }
    assert!(Ipv6Header::parse(&good, 100).is_ok());
    assert!(Ipv6Header::parse(&good, 1500).is_ok(), "padding is no error");
    assert_eq!(Ipv6Header::parse(&good, 99).unwrap_err(), Ipv6Error::PayloadLengthLong);
    for version in (0..16).filter(|&v| v != 6) {
        let mut bad = good;
        bad[0] = version << 4;
        assert_eq!(Ipv6Header::parse(&bad, 100).unwrap_err(), Ipv6Error::Version);
    }
}

#[test]
fn malformed_udp_is_refused_by_its_reason() {
    let mut good = [0; 8];
    UdpFields { src_port: 1, dst_port: 2, len: 20 }.emit_without_checksum(&mut good);
    for cut in 0..8 {
        assert_eq!(UdpHeader::parse(&good[..cut], 20).unwrap_err(), UdpError::Truncated);
    }
    assert_eq!(UdpHeader::parse(&good, 19).unwrap_err(), UdpError::LengthLong);
    let header = UdpHeader::parse(&good, 40).unwrap();
    assert_eq!(header.payload_len(), 12, "bytes behind the length are options (RFC 9868)");
    assert_eq!(header.checksum(), None);
    assert!(header.verifies(InternetSum::ZERO, InternetSum::ZERO));
    for len in 0..8 {
        good[5] = len;
        assert_eq!(UdpHeader::parse(&good, 20).unwrap_err(), UdpError::LengthShort);
    }
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_all_ones() {
    let mut out = [0; 8];
    let fields = UdpFields { src_port: 0xffff, dst_port: 0, len: 8 };
    // 0xffff + 8 + 0xfff7 folds to all ones, and its complement is zero.
    fields.emit(InternetSum::of_u16(0xfff7), InternetSum::ZERO, &mut out);
    assert_eq!(out[6..], [0xff, 0xff]);
    assert!(
        UdpHeader::parse(&out, 8).unwrap().verifies(InternetSum::of_u16(0xfff7), InternetSum::ZERO)
    );
}

#[test]
fn malformed_tcp_is_refused_by_its_reason() {
    let fields = TcpFields {
        src_port: 1,
        dst_port: 2,
        seq: 3,
        ack: 4,
        flags: TcpFlags::SYN | TcpFlags::ACK,
        window: 5,
        urgent: 0,
    };
    let options = TcpOptionSet { mss: Some(1460), ..TcpOptionSet::NONE };
    let mut good = [0; 24];
    assert_eq!(fields.emit(&options, InternetSum::ZERO, InternetSum::ZERO, &mut good), Ok(24));
    for cut in 0..24 {
        assert_eq!(TcpHeader::parse(&good[..cut], 24).unwrap_err(), TcpError::Truncated);
    }
    assert_eq!(TcpHeader::parse(&good, 23).unwrap_err(), TcpError::DataOffsetLong);
    assert!(TcpHeader::parse(&good, 24).is_ok());
    for words in 0..5 {
        good[12] = words << 4;
        assert_eq!(TcpHeader::parse(&good, 24).unwrap_err(), TcpError::DataOffsetShort);
    }
    for words in 7..16 {
        good[12] = words << 4;
        assert_eq!(TcpHeader::parse(&good, 24).unwrap_err(), TcpError::DataOffsetLong);
        assert_eq!(TcpHeader::parse(&good, 100).unwrap_err(), TcpError::Truncated);
    }
}

#[test]
fn icmp_cut_anywhere_is_refused() {
    for cut in 0..8 {
        assert!(Icmpv4Header::parse(&[0; 8][..cut]).is_err());
        assert!(Icmpv6Header::parse(&[0; 8][..cut]).is_err());
    }
}

/// Every option kind with every length, cut at every byte: bounded and never past the end.
#[test]
fn tcp_options_of_every_kind_and_length_end() {
    for kind in 0..=255u8 {
        for len in 0..=255u8 {
            let mut bytes = [1; 40];
            (bytes[0], bytes[1]) = (kind, len);
            for cut in 0..=40 {
                let items: Vec<_> = TcpOptions::new(&bytes[..cut]).collect();
                assert!(items.len() <= cut);
                assert!(items.iter().rev().skip(1).all(Result::is_ok), "errors end the walk");
            }
        }
    }
}

#[test]
fn bad_tcp_options_say_where_and_why() {
    use TcpOptionReason::{Length, LengthForKind};
    for (bytes, offset, reason) in [
        (&[1, 1, 2][..], 22, Length),
        (&[2, 0], 20, Length),
        (&[2, 1], 20, Length),
        (&[2, 5, 0, 0], 20, Length),
        (&[2, 3, 0, 0], 20, LengthForKind),
        (&[3, 4, 0, 0], 20, LengthForKind),
        (&[1, 4, 3, 0], 21, LengthForKind),
        (&[5, 2], 20, LengthForKind),
        (&[5, 9, 0, 0, 0, 0, 0, 0, 0], 20, LengthForKind),
        (&[8, 9, 0, 0, 0, 0, 0, 0, 0], 20, LengthForKind),
        (&[99, 0], 20, Length),
    ] {
        let error = TcpOptions::new(bytes).find_map(Result::err).unwrap();
        assert_eq!((error.offset, error.reason), (offset, reason), "{bytes:?}");
        assert!(TcpOptionSet::read(TcpOptions::new(bytes)).is_err());
    }
    let items: Vec<_> = TcpOptions::new(&[0, 2, 4, 9, 9]).collect();
    assert!(items.is_empty(), "nothing counts behind the end");
    let unknown = TcpOptions::new(&[253, 4, 7, 8]).next().unwrap().unwrap();
    assert_eq!(unknown, TcpOption::Unknown { kind: 253, data: &[7, 8] });
}

#[test]
fn ipv4_options_of_every_kind_and_length_end() {
    for kind in 0..=255u8 {
        for len in 0..=255u8 {
            let mut bytes = [1; 40];
            (bytes[0], bytes[1]) = (kind, len);
            for cut in 0..=40 {
                let items: Vec<_> = Ipv4Options::new(&bytes[..cut]).collect();
                assert!(items.len() <= cut);
                assert!(items.iter().rev().skip(1).all(Result::is_ok), "errors end the walk");
            }
        }
    }
}

#[test]
fn ipv4_options_are_read_and_refused_by_kind() {
    use Ipv4OptionReason::{Length, LengthForKind, Overflow, Pointer};
    let bytes = [131, 11, 8, 10, 0, 0, 1, 10, 0, 0, 2, 1, 148, 4, 0, 0, 0];
    let items: Vec<_> = Ipv4Options::new(&bytes).map(Result::unwrap).collect();
    let [Ipv4Option::LooseSourceRoute(route), Ipv4Option::Nop, Ipv4Option::RouterAlert(0)] =
        items[..]
    else {
        panic!("{items:?}")
    };
    let addrs: Vec<_> = route.addrs().collect();
    assert_eq!(addrs, ["10.0.0.1", "10.0.0.2"].map(|a| a.parse::<Ipv4Addr>().unwrap()));
    assert!(!route.is_complete());
    for (bytes, offset, reason) in [
        (&[1, 1, 7][..], 22, Length),
        (&[7, 0], 20, Length),
        (&[7, 1], 20, Length),
        (&[7, 41, 4], 20, Length),
        (&[7, 2], 20, LengthForKind),
        (&[137, 6, 4, 0, 0, 0], 20, LengthForKind),
        (&[131, 7, 3, 0, 0, 0, 0], 20, Pointer),
        (&[68, 3, 5], 20, LengthForKind),
        (&[68, 4, 4, 0], 20, Pointer),
        (&[7, 7, 7, 0, 0, 0, 0], 20, Pointer),
        (&[68, 8, 8, 0, 0, 0, 0, 0], 20, Pointer),
        (&[68, 4, 5, 0xf0], 20, Overflow),
        (&[148, 3, 0], 20, LengthForKind),
    ] {
        let error = Ipv4Options::new(bytes).find_map(Result::err).unwrap();
        assert_eq!((error.offset, error.reason), (offset, reason), "{bytes:?}");
    }
    for (full, flags) in [(&[7, 7, 8, 9, 9, 9, 9][..], 0), (&[68, 4, 5, 0xf3], 3)] {
        assert!(Ipv4Options::new(full).all(|option| option.is_ok()), "{flags}");
    }
}

#[test]
fn malformed_neighbor_discovery_is_refused_by_its_reason() {
    let addr = "fe80::1".parse().unwrap();
    let fields = NeighborSolicitationFields { target_addr: addr };
    let mut out = [0; 64];
    let option = NdpOption::SourceLinkAddr(MacAddr([2; 6]));
    let len = fields.emit_into(&[option], addr, addr, &mut out).unwrap();
    assert_eq!(len, 32);
    let parse = |bytes: &[u8]| NeighborSolicitation::parse(bytes).map(drop);
    for cut in 0..len {
        let want = match cut {
            0..24 => Err(NdpError::Truncated),
            24 => Ok(()),
            _ => Err(NdpError::Option(NdpOptionError::LengthLong(24))),
        };
        assert_eq!(parse(&out[..cut]), want, "{cut}");
    }
    let change = |at: usize, value: u8| {
        let mut bad = out;
        bad[at] = value;
        parse(&bad[..len]).unwrap_err()
    };
    assert_eq!(change(0, 136), NdpError::Type);
    assert_eq!(change(1, 1), NdpError::Code);
    assert_eq!(change(8, 0xff), NdpError::MulticastTarget);
    assert_eq!(change(25, 0), NdpError::Option(NdpOptionError::LengthZero(24)));
    assert_eq!(change(25, 2), NdpError::Option(NdpOptionError::LengthLong(24)));
    for kind in [3, 24, 25, 31] {
        let reason = NdpOptionError::LengthForKind(24);
        if kind != 24 {
            assert_eq!(change(24, kind), NdpError::Option(reason), "{kind}");
        }
    }
    let mut many = [0; 24 + 65 * 8];
    many[..24].copy_from_slice(&out[..24]);
    for option in many[24..].chunks_mut(8) {
        option[..2].copy_from_slice(&[200, 1]);
    }
    assert_eq!(parse(&many), Err(NdpError::Option(NdpOptionError::TooMany)));
    assert_eq!(parse(&many[..24 + 64 * 8]), Ok(()));
}
