//! The accessors against the flat packet: every corpus packet, every split, the same headers; and
//! memory shared with another owner is bit-identical afterwards.
#![expect(clippy::unwrap_used, reason = "what a test cannot do without ends the test")]

use std::collections::BTreeSet;

use floodwall_lab::baselines::chain::{Chain, Costs, Cut, Kind, Sizes};
use floodwall_lab::experiments::header_pull::{
    Accessor, Audit, End, Flat, HeaderAccess, Own, Setting, ip_packets, walk,
};
use floodwall_testkit::cuts;

const SIZES: Sizes = Sizes { header: 100, data: 104, cluster: 2048 };
const CAPTURES: &[&str] = &[
    "libpcap/filter-AH-IPcomp-IPv6.pcap",
    "own/nmap-O-v4.pcap",
    "own/nmap-O-v6.pcap",
    "own/seed-rh0-4addr-echo.pcap",
    "own/si6-frag6-policy.pcap",
    "own/thc-implementation6.pcap",
    "tcpdump/OSPFv3_with_AH.pcap",
    "tcpdump/babel_rfc6126bis.pcap",
    "tcpdump/ipv6_mobility_1.pcap",
    "tcpdump/mptcp-v1.pcap",
];

/// What a walk requests of a packet, in order.
#[derive(Default)]
struct Script<'a> {
    flat: &'a [u8],
    asks: Vec<(usize, usize)>,
}

impl HeaderAccess for Script<'_> {
    fn header(&mut self, off: usize, len: usize) -> Option<&[u8]> {
        self.asks.push((off, len));
        self.flat.get(off..off + len)
    }
}

/// One packet of every shape in the corpus: a shape is the sequence of a walk's requests.
fn corpus() -> Vec<Vec<u8>> {
    let (mut shapes, mut packets) = (BTreeSet::new(), Vec::new());
    for name in CAPTURES {
        for flat in ip_packets(name).unwrap() {
            let mut script = Script { flat: &flat, asks: Vec::new() };
            let seen = walk(&mut script, flat[0] >> 4, flat.len());
            if shapes.insert((script.asks, seen.header_bytes, flat.len() > 256)) {
                packets.push(flat);
            }
        }
    }
    assert!(packets.len() > 50, "{} shapes", packets.len());
    packets
}

/// A test's cut as kinds and lengths: small pieces where they fit, or all clusters.
fn kinds(cut: &cuts::Cut, flat: &[u8], clusters: bool) -> Cut {
    // No piece is longer than a cluster.
    let pieces = cut.of(flat).into_iter().flat_map(|piece| {
        let empty = piece.is_empty().then_some(piece);
        empty.into_iter().chain(piece.chunks(SIZES.cluster))
    });
    let kind = |number: usize, len: usize| match number {
        _ if clusters => Kind::Cluster,
        0 if len <= SIZES.header => Kind::Header,
        _ if len <= SIZES.data => Kind::Data,
        _ => Kind::Cluster,
    };
    pieces.enumerate().map(|(n, piece)| (kind(n, piece.len()), piece.len())).collect()
}

/// Walks one accessor over one split, another owner of the memory watching.
fn check(setting: &Setting, accessor: Accessor, flat: &[u8], cut: &Cut) -> (End, u64) {
    let mut scratch = vec![0; setting.scratch];
    let own = Own::new(accessor, SIZES, flat, cut, &setting.pool, &mut scratch).unwrap();
    let (chain, packet) = match &own {
        Own::Chain { chain, .. } => (Some(chain.share()), None),
        Own::Scratch { packet, .. } => {
            (None, Some(packet.share(&setting.pool, 0, packet.len()).unwrap()))
        }
    };
    let mut audit = Audit::new(own, flat);
    let seen = walk(&mut audit, flat[0] >> 4, flat.len());
    let (_, costs, wrong) = audit.finish();
    assert_eq!(wrong, 0, "{accessor:?} {cut:?}");
    let untouched = match (chain, packet) {
        (Some(chain), _) => chain.flat(),
        (_, Some(packet)) => packet.chunks().flatten().copied().collect(),
        _ => unreachable!("one of both was shared"),
    };
    assert!(untouched == flat, "{accessor:?} wrote to shared memory: {cut:?}");
    (seen.end, costs.failures)
}

#[test]
fn every_accessor_equals_the_flat_packet_on_every_split() {
    let mut setting = Setting::new(SIZES, 96, 4096).unwrap();
    setting.scratch = 4096;
    let (mut walks, mut lost) = (0_u64, 0_u64);
    for (number, flat) in corpus().iter().enumerate() {
        let right = walk(&mut Flat(flat), flat[0] >> 4, flat.len());
        let reach = flat.len().min(256);
        let cuts = cuts::all(reach, 40, number as u64);
        for cut in cuts.flat_map(|cut| [false, true].map(|all| kinds(&cut, flat, all))) {
            for accessor in Accessor::ALL {
                walks += 1;
                let (end, failures) = check(&setting, accessor, flat, &cut);
                if failures == 0 {
                    assert_eq!(end, right.end, "{accessor:?} {cut:?}");
                    continue;
                }
                // Only beyond a limit of its own.
                lost += 1;
                assert_eq!(end, End::Lost);
                let limit = match accessor {
                    Accessor::Pullup => SIZES.header,
                    Accessor::Pullup2 | Accessor::Pulldown => SIZES.cluster,
                    Accessor::Scratch => usize::MAX,
                };
                assert!(right.header_bytes > limit, "{accessor:?} {cut:?}");
            }
        }
    }
    assert!(walks > 100_000 && lost > 1000, "{walks} walks, {lost} lost");
}

#[test]
fn the_flat_packet_is_kept_by_accessors_that_rearrange_it() {
    let flat = &ip_packets("own/seed-rh0-4addr-echo.pcap").unwrap()[0];
    let setting = Setting::new(SIZES, 96, 2048).unwrap();
    for accessor in [Accessor::Pullup2, Accessor::Pulldown, Accessor::Scratch] {
        for cut in cuts::all(128, 50, 3) {
            let cut = kinds(&cut, flat, false);
            let mut scratch = vec![0; 2048];
            let mut own =
                Own::new(accessor, SIZES, flat, &cut, &setting.pool, &mut scratch).unwrap();
            walk(&mut own, 6, flat.len());
            assert_eq!(&own.flat(), flat, "{accessor:?} {cut:?}");
        }
    }
}

/// A chain, its costs, and what a second owner of its clusters sees.
fn pulled(cut: &Cut, asks: &[(usize, usize)], accessor: Accessor) -> (Chain, Costs) {
    let flat: Vec<u8> = (0..cut.iter().map(|(_, len)| len).sum()).map(|n: usize| n as u8).collect();
    let setting = Setting::new(SIZES, 96, 2048).unwrap();
    let mut scratch = vec![0; 2048];
    let mut own = Own::new(accessor, SIZES, &flat, cut, &setting.pool, &mut scratch).unwrap();
    for &(off, len) in asks {
        own.header(off, len);
    }
    match own {
        Own::Chain { chain, costs, .. } => (chain, costs),
        Own::Scratch { .. } => unreachable!("not requested"),
    }
}

#[test]
fn pulldown_takes_room_behind_before_it_allocates() {
    // The first piece has 60 bytes of room: the 4 missing ones are brought to it.
    let (chain, costs) =
        pulled(&vec![(Kind::Header, 40), (Kind::Data, 24)], &[(36, 8)], Accessor::Pulldown);
    assert_eq!((costs.copies, costs.copied_bytes, costs.allocations), (1, 4, 0));
    assert_eq!(chain.pieces()[0].bytes().len(), 44);
    // A full first piece has none: a fresh one comes between.
    let (chain, costs) =
        pulled(&vec![(Kind::Header, 100), (Kind::Data, 28)], &[(40, 72)], Accessor::Pulldown);
    assert_eq!((costs.copies, costs.copied_bytes, costs.allocations), (1, 72, 1));
    let lens: Vec<_> = chain.pieces().iter().map(|piece| piece.bytes().len()).collect();
    assert_eq!(lens, [40, 72, 16]);
}

#[test]
fn pullup_copies_outer_headers_again_and_is_dropped_at_its_limit() {
    let cut = vec![(Kind::Cluster, 50), (Kind::Data, 100)];
    let (_, costs) = pulled(&cut, &[(40, 20), (60, 20)], Accessor::Pullup);
    // 60 bytes into a fresh buffer; then its room takes the next 20.
    assert_eq!((costs.copies, costs.copied_bytes, costs.allocations), (2, 80, 1));
    let (chain, costs) = pulled(&cut, &[(40, 61)], Accessor::Pullup);
    assert_eq!((costs.failures, costs.copies, chain.is_empty()), (1, 0, true));
    // Beyond a small buffer, m_pullup2 fills a first cluster up where it is.
    let (chain, costs) = pulled(&cut, &[(40, 61)], Accessor::Pullup2);
    assert_eq!((costs.failures, costs.copied_bytes, chain.len()), (0, 51, 150));
}

#[test]
fn the_fifth_packet_is_input_five_times_and_asked_eighteen_times() {
    let flat = &ip_packets("own/seed-rh0-4addr-echo.pcap").unwrap()[0];
    let mut script = Script { flat, asks: Vec::new() };
    let seen = walk(&mut script, 6, flat.len());
    assert_eq!((seen.end, seen.passes, seen.header_bytes), (End::Parsed, 5, 120));
    // One more check is made in the reply's own copy.
    assert_eq!(script.asks.len(), 17);
    assert_eq!(script.asks.iter().filter(|ask| **ask == (40, 72)).count(), 5);
    // A hop with another host's address ends it: this host is no router.
    let mut other = flat.clone();
    other[48] ^= 1;
    let seen = walk(&mut Flat(&other), 6, other.len());
    assert_eq!((seen.end, seen.passes), (End::Beyond, 1));
}

#[test]
fn any_bytes_are_walked_to_an_end_and_alike() {
    let mut setting = Setting::new(SIZES, 96, 2048).unwrap();
    setting.scratch = 1 << 17;
    let mut random = floodwall_testkit::Seeded::new(11);
    for flat in corpus() {
        for _ in 0..20 {
            let mut flat = flat.clone();
            flat.truncate(random.below(flat.len()) + 1);
            for _ in 0..4 {
                let at = random.below(flat.len());
                flat[at] = random.below(256) as u8;
            }
            let cut = SIZES.driver(flat.len());
            let right = walk(&mut Flat(&flat), flat[0] >> 4, flat.len()).end;
            let (end, _) = check(&setting, Accessor::Scratch, &flat, &cut);
            assert_eq!(end, right);
        }
    }
}
