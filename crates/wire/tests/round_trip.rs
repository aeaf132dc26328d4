//! What is written is read back as it was, for every header.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use floodwall_base::MacAddr;
use floodwall_checksum::{InternetSum, pseudo_header_v4, pseudo_header_v6, sum};
use floodwall_wire::icmpv6::{ParameterProblemCode, UnreachableCode};
use floodwall_wire::ipv6_ext::{
    self, ExtensionHeader, FragmentFields, emit_authentication, emit_options, emit_routing,
};
use floodwall_wire::ndp::*;
use floodwall_wire::tcp_options::{SackBlock, TcpOption, TcpOptionSet, TcpOptions, Timestamps};
use floodwall_wire::*;
use proptest::prelude::*;

fn macs() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr)
}

fn v4() -> impl Strategy<Value = Ipv4Addr> {
    any::<[u8; 4]>().prop_map(Ipv4Addr::from)
}

fn v6() -> impl Strategy<Value = Ipv6Addr> {
    any::<[u8; 16]>().prop_map(Ipv6Addr::from)
}

fn unicast_v6() -> impl Strategy<Value = Ipv6Addr> {
    v6().prop_filter("not multicast", |addr| !addr.is_multicast())
}

fn tags() -> impl Strategy<Value = Vec<VlanTag>> {
    let tag = (any::<bool>(), 0..8u8, any::<bool>(), 0..4096u16).prop_map(|(s, p, d, id)| {
        let kind = if s { EtherType::SERVICE_VLAN } else { EtherType::VLAN };
        VlanTag { kind, priority: p, drop_eligible: d, id }
    });
    prop::collection::vec(tag, 0..=2)
}

fn ecns() -> impl Strategy<Value = Ecn> {
    any::<u8>().prop_map(Ecn::of_traffic_class)
}

fn ipv4_fields() -> impl Strategy<Value = Ipv4Fields> {
    let numbers = (any::<u8>(), ecns(), 60..=u16::MAX, any::<u16>(), 0..0x2000u16, any::<u8>());
    let rest = (any::<bool>(), any::<bool>(), any::<u8>(), v4(), v4());
    (numbers, rest).prop_map(|((dscp, ecn, len, id, offset, ttl), (df, mf, protocol, from, to))| {
        Ipv4Fields {
            dscp: Dscp::new(dscp),
            ecn,
            total_len: len,
            id,
            dont_fragment: df,
            more_fragments: mf,
            fragment_offset: offset * 8,
            ttl,
            protocol: IpProtocol(protocol),
            src_addr: from,
            dst_addr: to,
        }
    })
}

fn ipv6_fields() -> impl Strategy<Value = Ipv6Fields> {
    let numbers = (any::<u8>(), ecns(), 0..0x10_0000u32, any::<u16>(), any::<u8>(), any::<u8>());
    (numbers, v6(), v6()).prop_map(|((dscp, ecn, label, len, next, hops), from, to)| Ipv6Fields {
        dscp: Dscp::new(dscp),
        ecn,
        flow_label: label,
        payload_len: len,
        next_header: IpProtocol(next),
        hop_limit: hops,
        src_addr: from,
        dst_addr: to,
    })
}

fn sack() -> impl Strategy<Value = [Option<SackBlock>; 4]> {
    prop::collection::vec(any::<(u32, u32)>(), 0..=4).prop_map(|blocks| {
        let mut sack = [None; 4];
        for (to, (left, right)) in sack.iter_mut().zip(blocks) {
            *to = Some(SackBlock { left, right });
        }
        sack
    })
}

fn tcp_options() -> impl Strategy<Value = TcpOptionSet> {
    let mss = any::<Option<u16>>();
    (mss, any::<Option<u8>>(), any::<bool>(), sack(), any::<Option<(u32, u32)>>()).prop_map(
        |(mss, window_scale, sack_permitted, sack, timestamps)| TcpOptionSet {
            mss,
            window_scale,
            sack_permitted,
            sack,
            timestamps: timestamps.map(|(value, echo)| Timestamps { value, echo }),
        },
    )
}

/// Owned stand-ins for the options that borrow.
type Blob = Vec<u8>;

fn ndp_options(
    blob: &Blob,
    servers: &[[u8; 16]],
    addr: Ipv6Addr,
    n: u32,
) -> Vec<NdpOption<'static>> {
    // Tests may leak; options borrow.
    let padded: &'static [u8] = Vec::leak(blob[..blob.len() / 8 * 8].to_vec());
    let servers: &'static [[u8; 16]] = Vec::leak(servers.to_vec());
    let nonce: &'static [u8] = Vec::leak([padded, &[1; 6]].concat());
    let lifetime = Lifetime::from_secs(n);
    let prefix_len = (n % 129) as u8;
    let mut options = vec![
        NdpOption::SourceLinkAddr(MacAddr([2; 6])),
        NdpOption::TargetLinkAddr(MacAddr([4; 6])),
        NdpOption::PrefixInfo(PrefixInfo {
            prefix: addr,
            prefix_len,
            on_link: n & 1 == 0,
            autonomous: n & 2 == 0,
            valid_lifetime: lifetime,
            preferred_lifetime: Lifetime::INFINITE,
        }),
        NdpOption::RedirectedHeader(padded),
        NdpOption::Mtu(n),
        NdpOption::Nonce(nonce),
        NdpOption::RouteInfo(RouteInfo {
            prefix: addr,
            prefix_len,
            preference: Preference::Low,
            lifetime,
        }),
        NdpOption::Unknown { kind: 200, data: nonce },
    ];
    if !servers.is_empty() {
        options.push(NdpOption::RecursiveDns { lifetime, servers });
    }
    if !padded.is_empty() {
        options.push(NdpOption::DnsSearch { lifetime, names: padded });
    }
    options
}

proptest! {
    #[test]
    fn ethernet(to in macs(), from in macs(), kind: u16, tags in tags()) {
        let ether_type = EtherType(kind);
        prop_assume!(!ether_type.is_tag());
        let fields = EthernetFields { dst_addr: to, src_addr: from, ether_type };
        let mut out = [0xaa; 22];
        let len = fields.emit_tagged(&tags, &mut out).unwrap();
        let header = EthernetHeader::parse(&out[..len]).unwrap();
        prop_assert_eq!(header.fields(), fields);
        prop_assert_eq!(header.header_len(), len);
        prop_assert_eq!(header.tags().collect::<Vec<_>>(), tags.clone());
        prop_assert!(fields.emit_tagged(&tags, &mut out[..len - 1]).is_err());
        if tags.is_empty() {
            let mut fixed = [0; 14];
            fields.emit(&mut fixed);
            prop_assert_eq!(&fixed[..], &out[..14]);
        }
    }

    #[test]
    fn arp(operation: u16, a in macs(), b in v4(), c in macs(), d in v4()) {
        let packet = ArpPacket {
            operation: ArpOperation(operation),
            sender_link_addr: a,
            sender_addr: b,
            target_link_addr: c,
            target_addr: d,
        };
        let mut out = [0; 28];
        packet.emit(&mut out);
        prop_assert_eq!(ArpPacket::parse(&out), Ok(packet));
    }

    #[test]
    fn ipv4(
        fields in ipv4_fields(),
        options in prop::collection::vec(any::<u8>(), 0..=40),
    ) {
        let mut fixed = [0xaa; 20];
        fields.emit(&mut fixed);
        let header = Ipv4Header::parse(&fixed, fields.total_len.into()).unwrap();
        prop_assert_eq!(header.fields(), fields);
        prop_assert_eq!(header.fragment_offset(), usize::from(fields.fragment_offset));

        let mut out = [0xaa; 60];
        let len = fields.emit_with_options(&options, &mut out).unwrap();
        let header = Ipv4Header::parse(&out[..len], fields.total_len.into()).unwrap();
        prop_assert_eq!(header.fields(), fields);
        prop_assert_eq!(header.header_len(), len);
        prop_assert!(header.options_bytes().starts_with(&options));
        prop_assert_eq!(header.payload_len(), usize::from(fields.total_len) - len);
        let start = out.first_chunk().unwrap();
        prop_assert_eq!(ipv4::header_len(start), Some(len));
    }

    #[test]
    fn lowering_the_ttl_keeps_the_checksum(fields in ipv4_fields()) {
        let mut out = [0; 20];
        fields.emit(&mut out);
        let before = out;
        match ipv4::decrement_ttl(&mut out) {
            Some(ttl) => {
                prop_assert_eq!(ttl, fields.ttl - 1);
                let header = Ipv4Header::parse(&out, usize::MAX).unwrap();
                prop_assert_eq!(header.fields(), Ipv4Fields { ttl, ..fields });
            }
            None => {
                prop_assert!(fields.ttl <= 1);
                prop_assert_eq!(out, before);
            }
        }
    }

    #[test]
    fn ipv6(fields in ipv6_fields()) {
        let mut out = [0xaa; 40];
        fields.emit(&mut out);
        let header = Ipv6Header::parse(&out, header_and(fields.payload_len)).unwrap();
        prop_assert_eq!(header.fields(), fields);
        let lowered = ipv6::decrement_hop_limit(&mut out);
        prop_assert_eq!(lowered, fields.hop_limit.checked_sub(1).filter(|&hops| hops > 0));
    }

    #[test]
    fn udp(
        src_port: u16,
        dst_port: u16,
        payload in prop::collection::vec(any::<u8>(), 0..100),
        a in v6(),
        b in v6(),
    ) {
        let len = 8 + payload.len() as u16;
        let fields = UdpFields { src_port, dst_port, len };
        let pseudo = pseudo_header_v6(a, b, IpProtocol::UDP.0, len.into());
        let mut out = [0xaa; 8];
        fields.emit(pseudo, sum(&payload), &mut out);
        let header = UdpHeader::parse(&out, len.into()).unwrap();
        prop_assert_eq!(header.fields(), fields);
        prop_assert!(header.checksum().is_some());
        prop_assert!(header.verifies(pseudo, sum(&payload)));
        prop_assert!(!header.verifies(pseudo, sum(&payload).add(InternetSum::of_u16(1))));
    }

    #[test]
    fn tcp(
        ports: (u16, u16),
        numbers: (u32, u32),
        rest: (u8, u16, u16),
        options in tcp_options(),
        payload in prop::collection::vec(any::<u8>(), 0..100),
        a in v4(),
        b in v4(),
    ) {
        let fields = TcpFields {
            src_port: ports.0,
            dst_port: ports.1,
            seq: numbers.0,
            ack: numbers.1,
            flags: TcpFlags(rest.0),
            window: rest.1,
            urgent: rest.2,
        };
        let len = 20 + options.emitted_len() + payload.len();
        let pseudo = pseudo_header_v4(a, b, IpProtocol::TCP.0, len as u16);
        let mut out = [0xaa; 60];
        let header_len = fields.emit(&options, pseudo, sum(&payload), &mut out).unwrap();
        prop_assert_eq!(header_len, 20 + options.emitted_len());
        let header = TcpHeader::parse(&out[..header_len], len).unwrap();
        prop_assert_eq!(header.fields(), fields);
        prop_assert!(header.verifies(pseudo, sum(&payload)));
        prop_assert_eq!(tcp::header_len(out.first_chunk().unwrap()), Some(header_len));
        let read = TcpOptionSet::read(header.options()).unwrap();
        // SACK blocks give way when the others leave them no room.
        prop_assert_eq!(TcpOptionSet { sack: options.sack, ..read }, options);
        for (read, written) in read.sack.iter().zip(options.sack) {
            prop_assert!(read.is_none() || *read == written);
        }
        let short = &mut out[..header_len - 1];
        prop_assert!(fields.emit(&options, pseudo, InternetSum::ZERO, short).is_err());
    }

    #[test]
    fn a_usual_tcp_header_made_in_one_go_is_the_same(
        ports: (u16, u16),
        numbers: (u32, u32),
        rest: (u8, u16),
        stamps: (u32, u32),
        of_syn: (u16, u8),
        payload in prop::collection::vec(any::<u8>(), 0..100),
        a in v4(),
        b in v4(),
    ) {
        let fields = TcpFields {
            src_port: ports.0,
            dst_port: ports.1,
            seq: numbers.0,
            ack: numbers.1,
            flags: TcpFlags(rest.0),
            window: rest.1,
            urgent: 0,
        };
        let ends = sum(&[ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat());
        let stamps = Timestamps { value: stamps.0, echo: stamps.1 };
        let forms = [(None, tcp::HEADER_LEN), (Some(stamps), tcp::STAMPED_LEN)];
        for (timestamps, header_len) in forms {
            let options = TcpOptionSet { timestamps, ..TcpOptionSet::NONE };
            let len = header_len + payload.len();
            let pseudo = pseudo_header_v4(a, b, IpProtocol::TCP.0, len as u16);
            let (mut wanted, mut made) = ([0xaa; 60], [0xaa; 60]);
            fields.emit(&options, pseudo, sum(&payload), &mut wanted).unwrap();
            let others = pseudo.add(ends).add(sum(&payload));
            if let Some(stamps) = timestamps {
                fields.emit_stamped(stamps, others, made.first_chunk_mut().unwrap());
            } else {
                fields.emit_bare(others, made.first_chunk_mut().unwrap());
            }
            prop_assert_eq!(made, wanted);
        }
        let of_syn = TcpOptionSet {
            mss: Some(of_syn.0),
            window_scale: Some(of_syn.1),
            sack_permitted: true,
            timestamps: Some(stamps),
            ..TcpOptionSet::NONE
        };
        let pseudo = pseudo_header_v4(a, b, IpProtocol::TCP.0, tcp::SYN_LEN as u16);
        let (mut wanted, mut made) = ([0xaa; 60], [0xaa; 60]);
        fields.emit(&of_syn, pseudo, InternetSum::ZERO, &mut wanted).unwrap();
        let numbers = of_syn.of_usual_syn().unwrap();
        fields.emit_syn(&numbers, pseudo, made.first_chunk_mut().unwrap());
        prop_assert_eq!(made, wanted);
        let block = Some(SackBlock { left: 1, right: 2 });
        for other in [
            TcpOptionSet { mss: None, ..of_syn },
            TcpOptionSet { window_scale: None, ..of_syn },
            TcpOptionSet { sack_permitted: false, ..of_syn },
            TcpOptionSet { timestamps: None, ..of_syn },
            TcpOptionSet { sack: [block, None, None, None], ..of_syn },
        ] {
            prop_assert_eq!(other.of_usual_syn(), None);
        }
    }

    #[test]
    fn icmpv4(
        kind: u8,
        code: u8,
        rest: [u8; 4],
        body in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        // Reading what was written is exact; reading anything and writing it keeps the kind.
        let message = Icmpv4Message::Unknown { kind: Icmpv4Type(kind), code, rest };
        let mut out = [0; 8];
        message.emit(sum(&body), &mut out);
        let header = Icmpv4Header::parse(&out).unwrap();
        prop_assert!(header.verifies(sum(&body)));
        let read = header.message();
        let mut again = [0; 8];
        read.emit(sum(&body), &mut again);
        let header = Icmpv4Header::parse(&again).unwrap();
        prop_assert_eq!(header.message(), read);
        prop_assert!(header.verifies(sum(&body)));
        prop_assert_eq!((header.kind(), header.code()), (Icmpv4Type(kind), code));
    }

    #[test]
    fn icmpv6(
        kind: u8,
        code: u8,
        rest: [u8; 4],
        body in prop::collection::vec(any::<u8>(), 0..64),
        a in v6(),
    ) {
        let pseudo = pseudo_header_v6(a, a, IpProtocol::ICMPV6.0, 8 + body.len() as u32);
        let message = Icmpv6Message::Unknown { kind: Icmpv6Type(kind), code, rest };
        let mut out = [0; 8];
        message.emit(pseudo, sum(&body), &mut out);
        let header = Icmpv6Header::parse(&out).unwrap();
        prop_assert!(header.verifies(pseudo, sum(&body)));
        let read = header.message();
        let mut again = [0; 8];
        read.emit(pseudo, sum(&body), &mut again);
        let header = Icmpv6Header::parse(&again).unwrap();
        prop_assert_eq!(header.message(), read);
        prop_assert_eq!(header.kind(), Icmpv6Type(kind));
    }

    #[test]
    fn neighbor_discovery(
        target in unicast_v6(),
        to in unicast_v6(),
        flags: [bool; 3],
        blob in prop::collection::vec(any::<u8>(), 0..60),
        servers in prop::collection::vec(any::<[u8; 16]>(), 0..4),
        n: u32,
        lifetime: u16,
    ) {
        let options = ndp_options(&blob, &servers, target, n);
        let mut out = [0xaa; 1024];
        let verifies = |message: &[u8]| {
            let len = message.len() as u32;
            pseudo_header_v6(target, to, 58, len).add(sum(message)).verifies()
        };

        let fields = NeighborSolicitationFields { target_addr: target };
        let len = fields.emit_into(&options, target, to, &mut out).unwrap();
        let view = NeighborSolicitation::parse(&out[..len]).unwrap();
        prop_assert!(verifies(&out[..len]));
        prop_assert_eq!(view.fields(), fields);
        prop_assert_eq!(view.options().collect::<Vec<_>>(), options.clone());
        prop_assert_eq!(view.options().source_link_addr(), Some(MacAddr([2; 6])));
        prop_assert_eq!(view.options().target_link_addr(), Some(MacAddr([4; 6])));
        prop_assert!(view.options().nonce().is_some());
        prop_assert!(fields.emit_into(&options, target, to, &mut out[..len - 1]).is_err());

        let [router, solicited, override_entry] = flags;
        let fields = NeighborAdvertisementFields {
            router, solicited, override_entry, target_addr: target,
        };
        let len = fields.emit_into(&options, target, to, &mut out).unwrap();
        let view = NeighborAdvertisement::parse(&out[..len]).unwrap();
        prop_assert!(verifies(&out[..len]));
        prop_assert_eq!(view.fields(), fields);

        let fields = RouterAdvertisementFields {
            hop_limit: Some(lifetime as u8).filter(|&hops| hops > 0),
            managed: router,
            other: solicited,
            preference: Preference::High,
            router_lifetime: Duration::from_secs(lifetime.into()),
            reachable_time: Duration::from_millis(n.into()),
            retrans_timer: Duration::from_millis(u64::from(n) / 2),
        };
        let len = fields.emit_into(&options, target, to, &mut out).unwrap();
        let view = RouterAdvertisement::parse(&out[..len]).unwrap();
        prop_assert!(verifies(&out[..len]));
        prop_assert_eq!(view.fields(), fields);
        prop_assert_eq!(view.options().collect::<Vec<_>>(), options.clone());

        let fields = RedirectFields { target_addr: target, dst_addr: to };
        let len = fields.emit_into(&options, target, to, &mut out).unwrap();
        prop_assert_eq!(Redirect::parse(&out[..len]).unwrap().fields(), fields);

        let len = RouterSolicitationFields.emit_into(&options, target, to, &mut out).unwrap();
        prop_assert!(RouterSolicitation::parse(&out[..len]).is_ok());
        prop_assert!(verifies(&out[..len]));
    }

    #[test]
    fn extension_headers(
        next: u8,
        data in prop::collection::vec(any::<u8>(), 0..100),
        numbers: (u8, u8, u32, u32),
        offset in 0..0x2000u16,
        more: bool,
    ) {
        let next_header = IpProtocol(next);
        let (kind, left, spi, sequence) = numbers;
        let mut out = [0xaa; 256];

        let len = emit_options(next_header, &data, &mut out).unwrap();
        for kind in [IpProtocol::HOP_BY_HOP, IpProtocol::DESTINATION_OPTIONS] {
            let header = ExtensionHeader::take(kind, &out).unwrap();
            prop_assert_eq!((header.kind(), header.next_header()), (kind, next_header));
            prop_assert_eq!(header.header_len(), len);
        }

        let len = emit_routing(next_header, kind, left, &data, &mut out).unwrap();
        let Some(ExtensionHeader::Routing(header)) =
            ExtensionHeader::take(IpProtocol::ROUTING, &out[..len])
        else {
            panic!("no routing header")
        };
        prop_assert_eq!(header.next_header(), next_header);
        prop_assert_eq!((header.routing_type(), header.segments_left()), (kind, left));
        prop_assert!(header.data().starts_with(&data));

        let len = emit_authentication(next_header, spi, sequence, &data, &mut out).unwrap();
        let Some(ExtensionHeader::Authentication(header)) =
            ExtensionHeader::take(IpProtocol::AUTHENTICATION, &out[..len])
        else {
            panic!("no authentication header")
        };
        prop_assert_eq!(header.security_parameters_index(), spi);
        prop_assert!(header.data()[4..].starts_with(&data));

        let fields = FragmentFields { next_header, offset: offset * 8, more, id: spi };
        let mut fixed = [0xaa; 8];
        fields.emit(&mut fixed);
        let Some(ExtensionHeader::Fragment(read)) =
            ExtensionHeader::take(IpProtocol::FRAGMENT, &fixed)
        else {
            panic!("no fragment header")
        };
        prop_assert_eq!(read, fields);
    }
}

fn header_and(payload_len: u16) -> usize {
    ipv6::HEADER_LEN + usize::from(payload_len)
}

#[test]
fn typed_icmp_messages_round_trip() {
    use floodwall_wire::icmpv4::{TimeExceededCode, UnreachableCode as V4};
    let gateway = Ipv4Addr::new(192, 0, 2, 1);
    for message in [
        Icmpv4Message::EchoReply { id: 1, seq: 2 },
        Icmpv4Message::EchoRequest { id: 0xffff, seq: 0xfffe },
        Icmpv4Message::DestinationUnreachable {
            code: V4::FRAGMENTATION_NEEDED,
            next_hop_mtu: 1400,
        },
        Icmpv4Message::Redirect { code: 1, gateway },
        Icmpv4Message::TimeExceeded { code: TimeExceededCode::REASSEMBLY },
        Icmpv4Message::ParameterProblem { code: 0, pointer: 20 },
    ] {
        let mut out = [0; 8];
        message.emit(InternetSum::ZERO, &mut out);
        assert_eq!(Icmpv4Header::parse(&out).unwrap().message(), message);
    }
    for message in [
        Icmpv6Message::EchoReply { id: 1, seq: 2 },
        Icmpv6Message::EchoRequest { id: 0xffff, seq: 0xfffe },
        Icmpv6Message::DestinationUnreachable { code: UnreachableCode::PORT },
        Icmpv6Message::PacketTooBig { mtu: 1280 },
        Icmpv6Message::TimeExceeded { code: icmpv6::TimeExceededCode::HOP_LIMIT },
        Icmpv6Message::ParameterProblem {
            code: ParameterProblemCode::UNRECOGNIZED_OPTION,
            pointer: 42,
        },
    ] {
        let mut out = [0; 8];
        message.emit(InternetSum::ZERO, InternetSum::ZERO, &mut out);
        assert_eq!(Icmpv6Header::parse(&out).unwrap().message(), message);
    }
}

#[test]
fn headers_too_big_for_their_length_fields_are_not_written() {
    let mut out = [0; 4096];
    assert!(emit_options(IpProtocol::UDP, &[0; 2046], &mut out).is_ok());
    assert!(emit_options(IpProtocol::UDP, &[0; 2047], &mut out).is_err());
    assert!(emit_routing(IpProtocol::UDP, 0, 0, &[0; 2044], &mut out).is_ok());
    assert!(emit_routing(IpProtocol::UDP, 0, 0, &[0; 2045], &mut out).is_err());
    assert!(emit_authentication(IpProtocol::UDP, 0, 0, &[0; 2000], &mut out).is_err());
    assert!(ipv6_ext::header_len(IpProtocol::ESP, &[0; 8]).is_none());
    let fields = Ipv4Fields::new([1; 4].into(), [2; 4].into(), IpProtocol::UDP, 64, 100);
    assert!(fields.emit_with_options(&[0; 41], &mut out).is_err());
}

/// CVE-2026-43341, CVE-2026-31415: a sum of lengths near 2^8 or 2^16 wrapped in an emitter.
#[test]
fn row_77_no_sum_of_lengths_wraps_in_an_emitter() {
    let mut out = [0; 5000];
    for len in (0..2100).filter(|len| len % 8 < 2 || *len > 2020) {
        let data = vec![7; len];
        for option in [
            NdpOption::RedirectedHeader(&data),
            NdpOption::Unknown { kind: 200, data: &data },
            NdpOption::DnsSearch { lifetime: Lifetime::from_secs(9), names: &data },
            NdpOption::RecursiveDns {
                lifetime: Lifetime::from_secs(9),
                servers: data.as_chunks().0,
            },
        ] {
            if let Ok(written) = option.emit_into(&mut out) {
                assert_eq!((written, written <= 2040), (usize::from(out[1]) * 8, true), "{len}");
            } else {
                assert!(len > 1900, "{len} bytes of data have room");
            }
        }
        for is_routing in [false, true] {
            let emitted = match is_routing {
                true => emit_routing(IpProtocol::UDP, 0, 0, &data, &mut out),
                false => emit_options(IpProtocol::UDP, &data, &mut out),
            };
            // Routing data is whole words.
            let Ok(written) = emitted else { continue };
            assert!(len <= 2046 && written == (usize::from(out[1]) + 1) * 8 && written >= len);
        }
    }
    // DHCP's options have one byte of length: longer ones go in pieces that are joined again.
    for len in [0, 1, 254, 255, 256, 257, 509, 510, 511, 512, 1000] {
        let value: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let fields = Dhcpv4Fields {
            is_reply: true,
            xid: 1,
            secs: 0,
            wants_broadcast: false,
            ciaddr: [0; 4].into(),
            yiaddr: [0; 4].into(),
            chaddr: MacAddr([2; 6]),
        };
        let len = fields.emit_into(&[(43, &value), (53, &[5])], &mut out).unwrap();
        let message = Dhcpv4Message::parse(&out[..len]).unwrap();
        let mut room = [0; 2000];
        assert_eq!(message.join(43, &mut room).unwrap_or_default(), value);
        assert!(message.kind().is_some());
    }
    // TCP's forty bytes hold as many blocks as fit, and no more.
    let block = Some(SackBlock { left: 1, right: 2 });
    for (mss, times, scale) in [(true, true, true), (false, true, false), (false, false, false)] {
        let options = TcpOptionSet {
            mss: mss.then_some(1460),
            timestamps: times.then_some(Timestamps { value: 1, echo: 2 }),
            window_scale: scale.then_some(7),
            sack: [block; 4],
            ..TcpOptionSet::NONE
        };
        let len = options.emit_into(&mut out).unwrap();
        assert_eq!((len, len <= 40, len % 4), (options.emitted_len(), true, 0));
    }
}

/// The options one by one.
fn one_by_one(bytes: &[u8]) -> TcpOptionSet {
    let mut set = TcpOptionSet::NONE;
    for option in TcpOptions::new(bytes).map_while(Result::ok) {
        match option {
            TcpOption::Mss(mss) => set.mss = Some(mss),
            TcpOption::WindowScale(shift) => set.window_scale = Some(shift),
            TcpOption::SackPermitted => set.sack_permitted = true,
            TcpOption::Sack(blocks) => {
                set.sack = [None; 4];
                set.sack.iter_mut().zip(blocks.iter()).for_each(|(to, block)| *to = Some(block));
            }
            TcpOption::Timestamps(stamps) => set.timestamps = Some(stamps),
            _ => {}
        }
    }
    set
}

#[test]
fn the_options_of_a_usual_syn_are_read_at_once_as_one_by_one_whatever_byte_differs() {
    let timestamps = Some(Timestamps { value: 0x0102_0304, echo: 0x0506_0708 });
    let options = TcpOptionSet {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps,
        ..TcpOptionSet::NONE
    };
    let mut bytes = [0; 40];
    assert_eq!(options.emit_into(&mut bytes), Ok(20));
    assert_eq!(TcpOptionSet::read(TcpOptions::new(&bytes[..20])), Ok(options));
    for (len, at) in [20, 24].into_iter().flat_map(|len| (0..20).map(move |at| (len, at))) {
        for byte in [0, 1, 2, 3, 4, 5, 8, 10, 255] {
            let mut other = bytes;
            other[at] = byte;
            let other = &other[..len];
            let mut read = TcpOptionSet::NONE;
            let _ = read.add(TcpOptions::new(other));
            assert_eq!(read, one_by_one(other), "{other:?}");
        }
    }
}
