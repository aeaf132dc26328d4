//! Shares against a model that counts every user.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const KEY: HashKey = HashKey::new(3, 4);

fn v4(prefix: u8, host: u8) -> IpAddr {
    IpAddr::from([10, 0, prefix, host])
}

/// A host of a /64 of a /48.
fn v6(site: u16, net: u16, host: u16) -> IpAddr {
    IpAddr::from([0x2001, 0xdb8, site, net, 0, 0, 0, host])
}

#[test]
fn the_heaviest_prefix_is_that_of_all_its_addresses() {
    let mut shares = Shares::new(100, 1, KEY);
    assert_eq!((shares.heaviest(0), shares.prefixes(0)), (None, 0));
    let alone = shares.join(0, v4(1, 1)).unwrap();
    shares.add(alone, 10);
    assert_eq!(shares.heaviest(0), Some(alone));
    let many: Vec<_> = (0..20).map(|host| shares.join(0, v4(2, host)).unwrap()).collect();
    many.iter().for_each(|id| shares.add(*id, 1));
    shares.add(many[7], 1);
    assert_eq!(shares.heaviest(0), Some(many[7]));
    assert_eq!((shares.total(0), shares.prefixes(0)), (31, 2));
    assert_eq!((shares.held_by(0, v4(2, 99)), shares.held_by(0, v4(3, 0))), (21, 0));
    assert_eq!((shares.prefix_weight(many[0]), shares.part_weight(many[0])), (21, 1));
    assert!(shares.is_beside(0, many[0], v4(2, 99)) && !shares.is_beside(0, alone, v4(2, 99)));
    assert_eq!(shares.heaviest_beside(0, v4(1, 77)), Some(alone));
    assert_eq!(shares.heaviest_beside(0, v4(3, 77)), None);
}

#[test]
fn an_ipv6_site_is_one_prefix_however_it_spreads() {
    let mut shares = Shares::new(5000, 1, KEY);
    let honest = shares.join(0, v6(1, 1, 1)).unwrap();
    shares.add(honest, 3);
    let spread: Vec<_> = (0..1000).map(|net| shares.join(0, v6(2, net, 1)).unwrap()).collect();
    spread.iter().for_each(|id| shares.add(*id, 1));
    // The honest /64 in the site holds more than any other there, and less than most sites.
    assert_eq!(shares.prefix_weight(shares.heaviest(0).unwrap()), 1000);
    assert_eq!(shares.prefixes(0), 2);
    // Interface identifiers are one part.
    let one = shares.join(0, v6(2, 7, 1)).unwrap();
    assert_eq!((one, shares.join(0, v6(2, 7, 2))), (spread[7], Some(spread[7])));
}

#[test]
fn families_and_groups_do_not_mix() {
    let mut shares = Shares::new(8, 2, KEY);
    let mapped = IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x0a00, 0x0101]);
    let four = shares.join(0, v4(1, 1)).unwrap();
    assert_eq!(shares.join(0, mapped), Some(four), "an IPv4-mapped address");
    // The IPv6 prefix with the same bits.
    let bits = u64::from(u32::from_be_bytes([10, 0, 1, 0]) >> 8);
    let six = IpAddr::from((u128::from(bits) << 80).to_be_bytes());
    assert_ne!(shares.join(0, six), Some(four));
    let other = shares.join(1, v4(1, 1)).unwrap();
    shares.add(other, 5);
    assert_eq!((shares.held_by(0, v4(1, 1)), shares.held_by(1, v4(1, 1))), (0, 5));
    assert_eq!((shares.heaviest(0), shares.heaviest(1)), (None, Some(other)));
    assert_eq!(shares.join(2, v4(1, 1)), None);
}

#[test]
fn equals_take_turns_by_age_and_prefixes_without_users_are_gone() {
    let mut shares = Shares::new(3, 1, KEY);
    let ids: Vec<_> = (1..4).map(|n| shares.join(0, v4(n, 1)).unwrap()).collect();
    ids.iter().for_each(|id| shares.add(*id, 2));
    assert_eq!(shares.heaviest(0), Some(ids[0]));
    assert_eq!(shares.join(0, v4(4, 1)), None, "three users");
    shares.subtract(ids[0], 2);
    shares.quit(ids[0]);
    assert_eq!((shares.heaviest(0), shares.prefixes(0)), (Some(ids[1]), 2));
    let next = shares.join(0, v4(4, 1)).unwrap();
    shares.add(next, 1);
    assert_eq!(shares.total(0), 5);
}

proptest! {
    /// Beside a model that adds everything up.
    #[test]
    fn what_it_reports_is_true(
        steps in proptest::collection::vec((0_u8..24, 0_u8..3, 0_u64..5000, any::<bool>()), 1..400),
    ) {
        let mut shares = Shares::new(72, 1, KEY);
        let mut users: HashMap<(u8, u8), (ShareId, u64)> = HashMap::new();
        for (prefix, host, weight, six) in steps {
            let addr = match six || prefix % 2 == 0 {
                true => v6(u16::from(prefix), u16::from(host), 1),
                false => v4(prefix, host),
            };
            let key = (prefix | u8::from(addr.is_ipv6()) << 7, host);
            match users.remove(&key) {
                Some((id, held)) if weight % 3 == 0 => {
                    shares.subtract(id, held);
                    shares.quit(id);
                }
                Some((id, held)) => {
                    shares.subtract(id, held);
                    shares.add(id, weight);
                    users.insert(key, (id, weight));
                }
                None => {
                    let Some(id) = shares.join(0, addr) else { continue };
                    shares.add(id, weight);
                    users.insert(key, (id, weight));
                }
            }
            let mut sums: HashMap<u8, u64> = HashMap::new();
            for ((prefix, _), (_, held)) in &users {
                *sums.entry(*prefix).or_default() += held;
            }
            let most = sums.values().copied().max().unwrap_or(0);
            prop_assert_eq!(shares.total(0), sums.values().sum::<u64>());
            prop_assert_eq!(shares.prefixes(0), sums.values().filter(|sum| **sum > 0).count());
            match shares.heaviest(0) {
                None => prop_assert_eq!(most, 0),
                Some(id) => {
                    let weight = shares.prefix_weight(id);
                    prop_assert!(weight <= most && most - weight <= most / 8, "{weight} of {most}");
                    let prefix = users.iter().find(|(_, (it, _))| *it == id).unwrap().0.0;
                    let parts = users.iter().filter(|((it, _), _)| *it == prefix);
                    let part = parts.map(|(_, (_, held))| *held).max().unwrap();
                    prop_assert!(part - shares.part_weight(id) <= part / 8);
                }
            }
        }
    }
}
