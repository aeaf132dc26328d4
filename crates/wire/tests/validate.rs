//! The two levels of `validate` must agree: a VLAN tag forces the slow one.

use floodwall_base::MacAddr;
use floodwall_checksum::InternetSum;
use floodwall_wire::tcp_options::TcpOptionSet;
use floodwall_wire::*;
use proptest::prelude::*;

fn frame(v6: bool, tcp: bool, tag: Option<VlanTag>, payload: &[u8]) -> (usize, Vec<u8>) {
    let mut upper = [0; 60];
    let len = if tcp {
        let (flags, options) = (TcpFlags::ACK, TcpOptionSet { mss: Some(9), ..TcpOptionSet::NONE });
        let fields =
            TcpFields { src_port: 1, dst_port: 2, seq: 3, ack: 4, flags, window: 5, urgent: 0 };
        fields.emit(&options, InternetSum::ZERO, InternetSum::ZERO, &mut upper).unwrap()
    } else {
        let fields = UdpFields { src_port: 1, dst_port: 2, len: 8 + payload.len() as u16 };
        fields.emit_without_checksum(upper.first_chunk_mut().unwrap());
        8
    };
    let (protocol, ether_type) = (
        if tcp { IpProtocol::TCP } else { IpProtocol::UDP },
        if v6 { EtherType::IPV6 } else { EtherType::IPV4 },
    );
    let mut link = [0; 22];
    let (dst_addr, src_addr) = (MacAddr([2; 6]), MacAddr([4; 6]));
    let tags: Vec<_> = tag.into_iter().collect();
    let fields = EthernetFields { dst_addr, src_addr, ether_type };
    let link_len = fields.emit_tagged(&tags, &mut link).unwrap();
    let body = [&upper[..len], payload].concat();
    let mut ip = [0; 40];
    let ip_len = if v6 {
        let (a, b) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        Ipv6Fields::new(a, b, protocol, 64, body.len() as u16).emit(&mut ip);
        40
    } else {
        let (a, b) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let fields = Ipv4Fields::new(a, b, protocol, 64, 20 + body.len() as u16);
        fields.emit(ip.first_chunk_mut().unwrap());
        20
    };
    (link_len, [&link[..link_len], &ip[..ip_len], &body].concat())
}

const TAG: VlanTag = VlanTag { kind: EtherType::VLAN, priority: 0, drop_eligible: false, id: 1 };

#[test]
fn offsets_ports_and_protocol_are_found_in_both_versions() {
    for (v6, ip_len) in [(true, 40), (false, 20)] {
        for (tcp, upper_len) in [(true, 24), (false, 8)] {
            let (network, mut frame) = frame(v6, tcp, None, &[7; 30]);
            let end = frame.len() as u32;
            frame.extend([0; 9]);
            let transport = network + ip_len;
            let want = Validated {
                network: network as u16,
                transport: transport as u16,
                payload: (transport + upper_len) as u32,
                end,
                src_port: 1,
                dst_port: 2,
                protocol: if tcp { IpProtocol::TCP } else { IpProtocol::UDP },
                is_fragment: false,
            };
            assert_eq!(validate(&frame), Ok(want), "Ethernet padding is not payload");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn both_levels_agree_on_any_damage(
        v6: bool,
        tcp: bool,
        payload in prop::collection::vec(any::<u8>(), 0..40),
        damage in prop::collection::vec((0usize..70, any::<u8>()), 0..3),
        cut in 0usize..130,
    ) {
        let (_, mut plain) = frame(v6, tcp, None, &payload);
        let (network, mut tagged) = frame(v6, tcp, Some(TAG), &payload);
        for (at, value) in damage {
            if at + 14 < plain.len() {
                (plain[at + 14], tagged[at + network]) = (value, value);
            }
        }
        let cut = cut.clamp(14, plain.len());
        let plain = validate(&plain[..cut]);
        let tagged = validate(&tagged[..cut + 4]).map(|found| Validated {
            network: found.network - 4,
            transport: found.transport - 4,
            payload: found.payload - 4,
            end: found.end - 4,
            ..found
        });
        prop_assert_eq!(plain, tagged);
    }
}
