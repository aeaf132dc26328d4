//! Which prefixes the table of dropped frames keeps.

use core::net::{IpAddr, Ipv6Addr};

use super::host::{HostRig, NUMBER};
use super::rig::{PORT, Sent};
use crate::cookie::host::{RANK_EACH, RANK_WORDS, RANKED, RankedSource, Tally};
use crate::interpreter::verdict;

/// A host of prefix `n`.
fn source(v6: bool, n: u16, host: u8) -> IpAddr {
    let [a, b] = n.to_be_bytes();
    match v6 {
        false => [20, a, b, host.max(1)].into(),
        true => Ipv6Addr::new(0x2001, 0xdb8, 7, n, 0, 0, 0, u16::from(host) + 1).into(),
    }
}

/// A RST of no connection, which is dropped.
fn drop_one(rig: &mut HostRig, from: IpAddr) {
    let stray = Sent { from, flags: 4, ports: (4711, PORT), ..Sent::syn(from.is_ipv6(), &[]) };
    assert_eq!(rig.run(&mut stray.frame()).verdict, verdict::DROP);
}

/// What stands in the table, the loudest first.
fn ranked(rig: &mut HostRig) -> Vec<RankedSource> {
    let mut all: Vec<_> = (0..RANKED as u32)
        .filter_map(|n| {
            let words: [u64; RANK_WORDS] = core::array::from_fn(|word| {
                rig.machine.word(rig.maps.ranked, &n.to_ne_bytes(), word).unwrap()
            });
            RankedSource::of(words)
        })
        .collect();
    all.sort_by_key(|it| core::cmp::Reverse(it.frames));
    all
}

#[test]
fn a_loud_prefix_stands_above_sources_that_are_all_different() {
    for v6 in [false, true] {
        let mut rig = HostRig::new(true);
        // Others have taken nearly all entries before.
        (20_000..60_000).for_each(|n| drop_one(&mut rig, source(v6, n, 3)));
        // A fifth of the frames, of many hosts of one prefix.
        for n in 0..20_000_u16 {
            let from = if n % 5 == 0 { source(v6, 9, (n / 5) as u8) } else { source(v6, n, 3) };
            drop_one(&mut rig, from);
        }
        let all = ranked(&mut rig);
        let first = all[0];
        let bits = if v6 { 64 } else { 24 };
        let wanted: IpAddr =
            if v6 { "2001:db8:7:9::".parse().unwrap() } else { [20, 0, 9, 0].into() };
        assert_eq!((first.prefix, first.bits), (wanted, bits));
        assert_eq!((first.port, first.reason), (NUMBER, Tally::Stray as u8));
        // It sent 4,000; others of its entry take a little off.
        assert!((3_000..=4_500).contains(&first.frames), "{first:?}");
        assert!(all[1].frames <= 8 * RANK_EACH, "{:?}", all[1]);
        assert!(all.len() <= RANKED);
    }
}

#[test]
fn a_prefix_that_has_gone_leaves_its_place() {
    let mut rig = HostRig::new(true);
    let frames = |rig: &mut HostRig, n, count| {
        (0..count * RANK_EACH).for_each(|_| drop_one(rig, source(false, n, 1)));
    };
    frames(&mut rig, 1, 50);
    assert_eq!(ranked(&mut rig)[0].frames, 50 * RANK_EACH);
    // A minute later everything that stands there is anothers' to take.
    rig.after(70_000);
    (1000..6000).for_each(|n| frames(&mut rig, n, 1));
    let all = ranked(&mut rig);
    assert!(all.iter().all(|it| it.prefix != IpAddr::from([20, 0, 1, 0])), "{:?}", all[0]);
}
