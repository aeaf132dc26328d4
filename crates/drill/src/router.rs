//! The link's honest router: it advertises itself every half second, and answers solicitations.
//!
//! Made by `traffic.rs`, once for a whole drill. It forwards nothing: the hosts behind it are part
//! of the crowd. Invariant: it never stops, so that a host which loses it has lost it by itself.
//! Reading: RFC 4861 section 6.2, RFC 4191 section 2.2.

use core::net::Ipv6Addr;
use core::time::Duration;

use floodwall_base::{IpCidr, MacAddr};
use floodwall_pktgen::{Blast, Content, Pace, Peer, Plan, StationConfig, Stream};
use floodwall_wire::ndp::{Lifetime, NdpOption, Preference, PrefixInfo, RouterAdvertisementFields};
use floodwall_wire::{EtherType, EthernetFields, IpProtocol, Ipv6Fields, ethernet, ipv6};

use crate::error::DrillError;
use crate::topology;

/// Between two advertisements: a solicited one would come as soon.
const ADVERTISING_INTERVAL: Duration = Duration::from_millis(500);
/// The lifetime in its advertisements.
const ADVERTISED_LIFETIME: Duration = Duration::from_secs(1800);
/// Every host of the link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The router, which answers for both of its addresses.
pub(crate) fn router() -> Result<Blast, DrillError> {
    let addrs = [
        IpCidr::new(topology::ROUTER_V4.into(), 32),
        IpCidr::new(topology::ROUTER_LINK_LOCAL.into(), 128),
    ];
    let station = StationConfig {
        mac: topology::ROUTER_MAC,
        addrs: addrs.into_iter().flatten().collect(),
        peer: Peer::Link(MacAddr::of_ipv6_multicast(ALL_NODES)),
        is_router: true,
        ..StationConfig::default()
    };
    let content = Content::Replay { frames: vec![advertisement()], mutate: false };
    let stream = Stream { content, pace: Pace::every(ADVERTISING_INTERVAL), ..Stream::default() };
    Ok(Blast::new(Plan { station, streams: vec![stream] })?)
}

/// Its advertisement: a default router of the highest preference, the prefix of the link, and the
/// usual times, lest a false router's last.
fn advertisement() -> Vec<u8> {
    let fields = RouterAdvertisementFields {
        hop_limit: Some(64),
        managed: false,
        other: false,
        preference: Preference::High,
        router_lifetime: ADVERTISED_LIFETIME,
        reachable_time: Duration::from_secs(30),
        retrans_timer: Duration::from_secs(1),
    };
    let lifetime = Lifetime::from_secs(ADVERTISED_LIFETIME.as_secs() as u32);
    let [a, b, c, d, ..] = topology::SERVER_V6.segments();
    let options = [
        NdpOption::SourceLinkAddr(topology::ROUTER_MAC),
        NdpOption::PrefixInfo(PrefixInfo {
            prefix: Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0),
            prefix_len: 64,
            on_link: true,
            autonomous: false,
            valid_lifetime: lifetime,
            preferred_lifetime: lifetime,
        }),
    ];
    let (from, mut body) = (topology::ROUTER_LINK_LOCAL, [0; 128]);
    // Sixteen bytes, eight and thirty-two.
    let len = fields.emit_into(&options, from, ALL_NODES, &mut body).unwrap_or(0);
    let mut link = [0; ethernet::HEADER_LEN];
    let dst_addr = MacAddr::of_ipv6_multicast(ALL_NODES);
    EthernetFields { dst_addr, src_addr: topology::ROUTER_MAC, ether_type: EtherType::IPV6 }
        .emit(&mut link);
    let mut network = [0; ipv6::HEADER_LEN];
    Ipv6Fields::new(from, ALL_NODES, IpProtocol::ICMPV6, 255, len as u16).emit(&mut network);
    [&link, &network[..], body.get(..len).unwrap_or_default()].concat()
}

#[cfg(test)]
mod tests {
    use floodwall_wire::{Ipv6Header, RouterAdvertisement};

    use super::*;

    #[test]
    fn what_the_router_says_can_be_believed() {
        let frame = advertisement();
        let ip = Ipv6Header::parse(&frame[14..], frame.len() - 14).unwrap();
        assert_eq!((ip.total_len(), ip.hop_limit()), (frame.len() - 14, 255));
        let said = RouterAdvertisement::parse(&frame[54..]).unwrap();
        assert_eq!(said.options().count(), 2);
        let pseudo = ip.pseudo_header(IpProtocol::ICMPV6, (frame.len() - 54) as u32);
        assert!(pseudo.add(floodwall_checksum::sum(&frame[54..])).verifies());
    }
}
