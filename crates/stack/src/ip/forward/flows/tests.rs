//! Active pairs in virtual time: both families, floods of random destinations, expiry.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{PublicRandom, Randomness};

use super::*;

fn table() -> ForwardedFlows {
    ForwardedFlows::new(&mut Randomness::from_number(5).secret)
}

const fn at(ms: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
}

/// An address derived from a number.
trait Named: Address {
    fn named(number: u64) -> Self;
}

impl Named for Ipv4Addr {
    fn named(number: u64) -> Self {
        Self::from_bits(number as u32)
    }
}

impl Named for Ipv6Addr {
    fn named(number: u64) -> Self {
        let number = u128::from(number);
        Self::from_bits(0x2001_0db8 << 96 | number << 70 | number)
    }
}

fn note<A: Named>(table: &mut ForwardedFlows, from: u64, to: u64) {
    let place = table.place(A::named(from), A::named(to));
    table.note(place);
}

fn is_established<A: Named>(table: &ForwardedFlows, from: u64, to: u64) -> bool {
    table.is_established(table.place(A::named(from), A::named(to)))
}

fn answered_is_established_until_silence<A: Named>() {
    let mut table = table();
    table.begin(at(0));
    note::<A>(&mut table, 1, 2);
    assert!(!is_established::<A>(&table, 1, 2), "the sender has not been answered yet");
    assert!(is_established::<A>(&table, 2, 1), "its answer is awaited");
    note::<A>(&mut table, 2, 1);
    for (from, to, established) in [(1, 2, true), (2, 1, true), (1, 3, false), (3, 2, false)] {
        assert_eq!(is_established::<A>(&table, from, to), established, "{from} to {to}");
    }
    // From now on only one of them sends.
    for ms in (0..29_000).step_by(100) {
        table.begin(at(ms));
        note::<A>(&mut table, 1, 2);
    }
    assert!(is_established::<A>(&table, 1, 2));
    table.begin(at(31_000));
    note::<A>(&mut table, 1, 2);
    assert!(!is_established::<A>(&table, 1, 2), "a pair that is one-way again is unverified");
    assert!(is_established::<A>(&table, 2, 1));
}

#[test]
fn one_that_is_answered_is_established_until_silence() {
    answered_is_established_until_silence::<Ipv4Addr>();
    answered_is_established_until_silence::<Ipv6Addr>();
}

fn random_destinations_displace_no_dialogue<A: Named>() {
    let (mut table, mut random) = (table(), PublicRandom::new(7));
    table.begin(at(0));
    for host in 0..10_000 {
        note::<A>(&mut table, 1_000_000 + host, 7);
        note::<A>(&mut table, 7, 1_000_000 + host);
    }
    let established = |table: &ForwardedFlows| {
        let pairs = (0..10_000).map(|host| 1_000_000 + host);
        pairs
            .filter(|host| {
                is_established::<A>(table, *host, 7) && is_established::<A>(table, 7, *host)
            })
            .count()
    };
    let before = established(&table);
    // Ten thousand balls in 8,192 sets of eight: hardly any set is too small.
    assert!(before > 9_990, "{before}");
    for n in 0..400_000_u64 {
        table.begin(at(n / 100));
        note::<A>(&mut table, 7, random.next_u64() << 20);
    }
    assert_eq!(established(&table), before, "active pairs stay");
    let (some, both) = table.count();
    assert!(some <= DIALOGUES && both == before, "{some} {both}");
}

#[test]
fn a_flood_of_random_destinations_neither_grows_the_table_nor_displaces_a_dialogue() {
    random_destinations_displace_no_dialogue::<Ipv4Addr>();
    random_destinations_displace_no_dialogue::<Ipv6Addr>();
}

#[test]
fn an_answer_beside_a_flood_of_random_destinations_makes_an_established_flow() {
    let (mut table, mut random) = (table(), PublicRandom::new(8));
    let mut established = 0;
    for flow in 0..100 {
        table.begin(at(flow * 100));
        note::<Ipv4Addr>(&mut table, flow, 1 << 16);
        // Unverified pairs recorded in a tenth of a second, of a flood that is forwarded whole.
        for _ in 0..5_000 {
            note::<Ipv4Addr>(&mut table, 1 << 17, random.next_u64());
        }
        established += usize::from(is_established::<Ipv4Addr>(&table, 1 << 16, flow));
    }
    assert!(established >= 99, "{established} of 100");
}

#[test]
fn time_that_wraps_makes_no_established_flows_of_unverified_packets() {
    let mut table = table();
    table.begin(at(0));
    note::<Ipv4Addr>(&mut table, 2, 1);
    let wrapped = Instant::from_nanos(at(0).as_nanos() + (1 << (16 + TICK_BITS)));
    table.begin(wrapped);
    assert!(!is_established::<Ipv4Addr>(&table, 1, 2), "after one long idle period");
    // And where time advances step by step.
    let mut table = self::table();
    table.begin(at(0));
    note::<Ipv4Addr>(&mut table, 2, 1);
    for step in 1..=1 << 16 {
        table.begin(Instant::from_nanos(at(0).as_nanos() + (step << TICK_BITS)));
    }
    assert!(!is_established::<Ipv4Addr>(&table, 1, 2));
}

#[test]
fn of_a_full_burst_a_part_is_noted_of_each_interface_and_another_part_each_time() {
    let mut table = table();
    // Sixty packets of a flood, and four that came by another interface.
    let burst: Vec<_> = (0..64).map(|n| IfIndex(if n % 16 == 7 { 2 } else { 1 })).collect();
    let mut noted = [0_usize; 64];
    for _ in 0..8 {
        let mut sample = table.sample(burst.iter().copied());
        let taken: Vec<_> = burst.iter().map(|iface| sample.takes(*iface)).collect();
        let of = |wanted: u16| {
            burst.iter().zip(&taken).filter(|(iface, taken)| iface.0 == wanted && **taken).count()
        };
        assert!((7..=BURST_NOTES).contains(&of(1)), "{}", of(1));
        assert_eq!(of(2), 4);
        noted.iter_mut().zip(&taken).for_each(|(count, taken)| *count += usize::from(*taken));
    }
    assert!(noted.iter().all(|count| *count >= 1), "{noted:?}");
}
