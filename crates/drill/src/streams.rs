//! What each flood is made of: streams of `pktgen`, both families by turns.
//!
//! Read by `flood.rs` when a stretch is prepared. Every packet is due at once: how fast they go is
//! the gate's business. Invariant: no honest client's address is a source of anything here that
//! could be accepted, because an address on a link belongs to the station that claims it, and no
//! host can verify that (RFC 826, RFC 4861 section 11).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use floodwall_base::PublicRandom;
use floodwall_pktgen::{
    AddrRange, Content, Forgery, Fragments, Headers, Pace, PortRange, SizeRange, Stream, Withheld,
};

use floodwall_wire::tcp::TcpFlags;

use crate::flood::FloodKind;
use crate::{hostile, paths, syns, topology};

/// Headers in the longest chains: what fits a frame.
const CHAIN_HEADERS: usize = 100;
/// What fragments are cut by: tiny ones, overlapping ones, and such as never make a packet. Each
/// with the bytes that the packet carries.
const FRAGMENT_CUTS: [(Fragments, usize); 6] = [
    (Fragments { bytes: 8, overlap: 0, withheld: Withheld::None }, 56),
    (Fragments { bytes: 8, overlap: 0, withheld: Withheld::Last }, 120),
    (Fragments { bytes: 24, overlap: 8, withheld: Withheld::None }, 100),
    (Fragments { bytes: 1200, overlap: 0, withheld: Withheld::Last }, 2000),
    (Fragments { bytes: 1200, overlap: 0, withheld: Withheld::First }, 2000),
    (Fragments { bytes: 600, overlap: 0, withheld: Withheld::Middle }, 2000),
];

/// The streams of a flood; `seed` decides what is made beforehand.
pub(crate) fn of(kind: FloodKind, seed: u64) -> Vec<Stream> {
    match kind {
        FloodKind::Hostile => {
            let frames = hostile::frames();
            vec![replay(frames.clone(), false), replay(frames.clone(), true), replay(frames, true)]
        }
        FloodKind::UdpClosed => both(&topology::UNKNOWN_HOSTS, &Content::Udp, closed()),
        FloodKind::UdpOpen => both(&topology::UNKNOWN_HOSTS, &Content::Udp, service()),
        FloodKind::Neighbors => both(&topology::NEIGHBORS, &Content::Udp, service()),
        FloodKind::Syn => syn(),
        FloodKind::SynOneRow => vec![replay(syns::one_row(), false)],
        FloodKind::SynAndAck => syns_and_acks(),
        FloodKind::AckAndReset => acks_and_resets(),
        FloodKind::IcmpEcho => {
            both(&topology::UNKNOWN_HOSTS, &Content::IcmpEcho, PortRange::one(9))
        }
        FloodKind::IcmpErrors => {
            vec![replay(hostile::icmp_errors(&mut PublicRandom::new(seed)), false)]
        }
        FloodKind::Fragments => fragments(),
        FloodKind::Headers => headers(),
        FloodKind::Sweeps => sweeps(),
        FloodKind::Routers => routers(),
        FloodKind::Queries => queries(),
        FloodKind::TooBig => vec![replay(paths::too_big(&mut PublicRandom::new(seed)), false)],
        FloodKind::Redirects => vec![replay(paths::redirects(&mut PublicRandom::new(seed)), false)],
    }
}

/// Due at once; the gate decides.
const fn at_once() -> Pace {
    Pace::every(Duration::from_nanos(1))
}

fn closed() -> PortRange {
    let (first, last) = topology::CLOSED_PORTS;
    PortRange { first, last }
}

const fn service() -> PortRange {
    PortRange::one(topology::SERVICE_PORT)
}

fn replay(frames: Vec<Vec<u8>>, mutate: bool) -> Stream {
    let content = Content::Replay { frames, mutate };
    Stream { content, pace: at_once(), ..Stream::default() }
}

/// The same content in both families, by turns.
fn both(sources: &[&str; 2], content: &Content, dst_ports: PortRange) -> Vec<Stream> {
    let to = topology::FAMILIES.map(topology::server_addr);
    let streams = towards(sources, to.map(AddrRange::from), content);
    let with = |stream| Stream { dst_ports, payload: SizeRange::one(18), ..stream };
    streams.into_iter().map(with).collect()
}

/// From the sources of each family to its destinations.
fn towards(sources: &[&str; 2], to: [AddrRange; 2], content: &Content) -> Vec<Stream> {
    let one = |(source, to): (&&str, AddrRange)| {
        let from: AddrRange = source.parse().ok()?;
        Some(Stream::new(content.clone(), from, to, at_once()))
    };
    sources.iter().zip(to).filter_map(one).collect()
}

/// SYNs, every other one with a request in it (its text must not be kept).
fn syn() -> Vec<Stream> {
    let syn = &Content::Tcp(TcpFlags::SYN);
    let sized = |bytes: usize| {
        let with = move |stream| Stream { payload: SizeRange::one(bytes), ..stream };
        both(&topology::UNKNOWN_HOSTS, syn, service()).into_iter().map(with)
    };
    sized(0).chain(sized(120)).collect()
}

/// What spends the budget of cookies: SYNs open the gate, and ACKs and resets come through it.
fn syns_and_acks() -> Vec<Stream> {
    let few = ["198.19.8.0/24", "2001:2:0:13::8:0/120"];
    [TcpFlags::SYN, TcpFlags::ACK, TcpFlags::RST]
        .into_iter()
        .flat_map(|flags| both(&few, &Content::Tcp(flags), service()))
        .map(|stream| Stream { payload: SizeRange::one(0), ..stream })
        .collect()
}

/// Unsolicited segments: of unknown flows, to the service; and from every port of the honest
/// callers, to both services that they use, with guessed numbers (RFC 5961).
fn acks_and_resets() -> Vec<Stream> {
    let callers = topology::caller_addrs(0).into_iter().map(|cidr| cidr.addr().to_string());
    let callers: Vec<String> = callers.collect();
    let [v4, v6] = callers.as_slice() else { return Vec::new() };
    let callers = [v4.as_str(), v6.as_str()];
    let reset = TcpFlags::RST;
    [TcpFlags::ACK, reset, reset | TcpFlags::ACK]
        .into_iter()
        .flat_map(|flags| {
            let content = &Content::Tcp(flags);
            let mut all = both(&topology::UNKNOWN_HOSTS, content, service());
            all.extend(both(&callers, content, service()));
            all.extend(both(&callers, content, PortRange::one(topology::WEB_PORT)));
            all
        })
        .map(|stream| Stream { payload: SizeRange::one(0), ..stream })
        .collect()
}

/// Each of [`FRAGMENT_CUTS`], to the service.
fn fragments() -> Vec<Stream> {
    let cut = |(cut, payload)| {
        let streams = both(&topology::UNKNOWN_HOSTS, &Content::Udp, service());
        let with = move |stream| Stream {
            fragments: Some(cut),
            payload: SizeRange::one(payload),
            ..stream
        };
        streams.into_iter().map(with)
    };
    FRAGMENT_CUTS.into_iter().flat_map(cut).collect()
}

/// Everything at random, the longest chains, and chains that are cut before their end (RFC 7112).
fn headers() -> Vec<Stream> {
    let chain = Headers::Chain(SizeRange::one(CHAIN_HEADERS));
    let cut = Fragments { bytes: 64, overlap: 0, withheld: Withheld::Last };
    let plans = [
        (Content::Udp, Headers::Mixed, None),
        (Content::IcmpEcho, Headers::Mixed, None),
        (Content::Udp, chain, None),
        (Content::Udp, Headers::Chain(SizeRange::one(12)), Some(cut)),
    ];
    let put = |(content, headers, fragments)| {
        let streams = both(&topology::UNKNOWN_HOSTS, &content, service());
        let with = move |stream| Stream { headers: Some(headers), fragments, ..stream };
        streams.into_iter().map(with)
    };
    plans.into_iter().flat_map(put).collect()
}

/// Requests for the host, which make it learn the sender; requests for all addresses; claims.
fn sweeps() -> Vec<Stream> {
    let host = topology::FAMILIES.map(|family| AddrRange::from(topology::server_addr(family)));
    let link = topology::NEIGHBORS.map(|prefix| prefix.parse().unwrap_or(host[0]));
    let forged = |forgery, to| towards(&topology::CLAIMANTS, to, &Content::Forged(forgery));
    let mut all = forged(Forgery::NeighborRequests, host);
    all.extend(forged(Forgery::NeighborRequests, link));
    all.extend(forged(Forgery::NeighborClaims, host));
    all
}

/// The destinations of queries about routers and groups: every host of the link.
fn all_hosts() -> [AddrRange; 2] {
    let v4 = IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1));
    let v6 = IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1));
    [v4.into(), v6.into()]
}

/// Advertisements to all, and redirects to the host, those of the router itself among them.
fn routers() -> Vec<Stream> {
    let host = topology::FAMILIES.map(|family| AddrRange::from(topology::server_addr(family)));
    let redirects = Content::Forged(Forgery::Redirects);
    let advertisements = Content::Forged(Forgery::RouterAdvertisements);
    let mut all = towards(&topology::FALSE_ROUTERS, all_hosts(), &advertisements);
    all.extend(towards(&topology::FALSE_ROUTERS, host, &redirects));
    let own = [IpAddr::V4(topology::ROUTER_V4), IpAddr::V6(topology::ROUTER_LINK_LOCAL)];
    all.extend(own.into_iter().zip(host).map(|(router, host)| {
        Stream::new(redirects.clone(), AddrRange::from(router), host, at_once())
    }));
    all
}

fn queries() -> Vec<Stream> {
    towards(&topology::FALSE_ROUTERS, all_hosts(), &Content::Forged(Forgery::GroupQueries))
}

#[cfg(test)]
mod tests {
    use floodwall_base::Family;

    use super::*;

    #[test]
    fn every_kind_of_flood_has_both_families() {
        for kind in FloodKind::ALL {
            let streams = of(kind, 1);
            let replays = |stream: &Stream| matches!(stream.content, Content::Replay { .. });
            let has = |family: Family| streams.iter().any(|stream| stream.family() == family);
            assert!(
                streams.iter().all(replays) || topology::FAMILIES.into_iter().all(has),
                "{kind:?}"
            );
            assert!(!streams.is_empty(), "{kind:?}");
        }
    }

    #[test]
    fn nothing_claims_to_be_an_honest_client_or_the_router() {
        let parties = topology::TopologyHost::ALL.into_iter();
        let honest = parties.flat_map(|party| {
            topology::FAMILIES
                .into_iter()
                .flat_map(move |family| topology::client_addrs(party, family))
        });
        let known: Vec<IpAddr> = honest
            .map(|cidr| cidr.addr())
            .chain([topology::ROUTER_V4.into(), topology::ROUTER_LINK_LOCAL.into()])
            .collect();
        let claims = Content::Forged(Forgery::NeighborClaims);
        for prefix in
            [topology::CLAIMANTS, topology::FALSE_ROUTERS, topology::UNKNOWN_HOSTS].concat()
        {
            let prefix: floodwall_base::IpCidr = prefix.parse().unwrap();
            assert!(known.iter().all(|addr| !prefix.contains(*addr)), "{prefix}");
        }
        assert_eq!(sweeps().iter().filter(|stream| stream.content == claims).count(), 2);
    }
}
