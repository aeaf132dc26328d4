//! Random histories: the table stays sound, and no packet is lost or doubled.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Send(u32),
    Advertise(u32, Option<u32>, u8),
    AskForUs(u32, u32),
    Confirm(u32),
    Pass(u64),
    Work(u32),
    Permanent(u32),
    Remove(u32),
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    let n = || 0_u32..16;
    prop_oneof![
        8 => n().prop_map(Step::Send),
        4 => (n(), prop::option::of(0_u32..3), 0_u8..8)
            .prop_map(|(n, m, f)| Step::Advertise(n, m, f)),
        3 => (n(), 0_u32..3).prop_map(|(n, m)| Step::AskForUs(n, m)),
        2 => n().prop_map(Step::Confirm),
        4 => (0_u64..50_000).prop_map(Step::Pass),
        8 => (0_u32..6).prop_map(Step::Work),
        1 => n().prop_map(Step::Permanent),
        1 => n().prop_map(Step::Remove),
        1 => Just(Step::Flush),
    ]
}

/// Plays a history; the packets that were given and those that came back.
fn play<A: Nth>(steps: &[Step]) -> (usize, usize) {
    let config =
        NeighborConfig { interfaces: 2, entries: 8, unresolved: 3, unknown: 2, pending: 2 };
    let mut world = World::<A>::with(config);
    let (mut given, mut back) = (0, 0);
    for step in steps {
        match *step {
            Step::Send(n) => {
                given += 1;
                back += usize::from(!matches!(world.send(n), Outcome::Asks | Outcome::Waits));
            }
            Step::Advertise(n, link_addr, bits) => {
                let flags = AdvertisementFlags {
                    solicited: bits & 1 != 0,
                    overriding: bits & 2 != 0,
                    router: bits & 4 != 0,
                };
                let told = world.advertises(n, link_addr.map(mac), flags);
                let left = world.left();
                assert!(left == 0 || told.is_some());
                back += left;
            }
            Step::AskForUs(n, link_addr) => {
                let released = &mut world.released;
                let known =
                    world.cache.solicited_by(ONE, A::nth(n), mac(link_addr), world.now, released);
                let left = world.left();
                assert!(left == 0 || known == Some(mac(link_addr)));
                back += left;
            }
            Step::Confirm(n) => world.cache.confirm(ONE, A::nth(n), world.now),
            Step::Pass(millis) => world.now += Duration::from_millis(millis),
            Step::Work(units) => {
                let spent = world.cache.work(world.now, Units(units), |event| {
                    if let NeighborEvent::Unreachable { packets, .. } = event {
                        back += packets.len();
                    }
                });
                assert!(spent <= Units(units));
            }
            Step::Permanent(n) => {
                let released = &mut world.released;
                let _ = world.cache.set_permanent(ONE, A::nth(n), mac(n), world.now, released);
                back += world.left();
            }
            Step::Remove(n) => {
                world.cache.remove(ONE, A::nth(n), &mut world.released);
                back += world.left();
            }
            Step::Flush => {
                world.cache.flush(ONE, &mut world.released);
                back += world.left();
            }
        }
        world.cache.table.assert_sound();
        let waiting: usize = world.cache.iter().map(|neighbor| neighbor.pending).sum();
        assert_eq!(given, back + waiting);
        let each = world.pool.packet_from(&[1]).map(|packet| u64::from(packet.true_size()));
        assert_eq!(Some(world.cache.waiting_bytes()), each.map(|each| each * waiting as u64));
    }
    world.cache.flush(ONE, &mut world.released);
    (given, back + world.left())
}

proptest! {
    #[test]
    fn no_packet_is_lost_and_the_table_stays_sound(
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let (given, back) = play::<Ipv4Addr>(&steps);
        prop_assert_eq!(given, back);
        let (given, back) = play::<Ipv6Addr>(&steps);
        prop_assert_eq!(given, back);
    }
}
