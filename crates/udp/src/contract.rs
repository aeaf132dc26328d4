//! The contract tests that every implementation of [`Intake`] must pass.
//!
//! Run by this crate's tests for [`crate::LocalIntake`], and by tests of other intakes under the
//! feature `testing`. Each check panics with what was broken.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::Instant;
use floodwall_packet::{CapacityHint, CapacityHints, Class, PacketBuf, Pool};

use crate::intake::{Intake, IntakeOffer};

/// Sources of both families, since an intake may treat them apart.
const SOURCES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Runs every check. `pool` needs some small frames and accounts.
///
/// # Panics
/// Where the intake breaks the contract.
pub fn check<I: Intake>(pool: &Pool) {
    for source in SOURCES {
        keeps_order::<I>(pool, source);
        holds_its_limit::<I>(pool, source);
        takes_one_when_empty::<I>(pool, source);
        releases_exactly::<I>(pool, source);
        survives_a_lower_limit::<I>(pool, source);
        says_what_fits::<I>(pool, source);
    }
}

fn packet(pool: &Pool, tag: u8) -> PacketBuf {
    pool.packet_from(&[tag]).expect("the pool of this check has small frames")
}

/// Reserves and queues; the packet comes back where it is refused.
fn offer<I: Intake>(
    intake: &mut I,
    mut packet: PacketBuf,
    source: IpAddr,
) -> Result<bool, PacketBuf> {
    let offer = IntakeOffer { source, now: Instant::ORIGIN };
    if intake.reserve(&mut packet, &offer) { Ok(intake.push(packet)) } else { Err(packet) }
}

fn open<I: Intake>(pool: &Pool, limit: u64) -> I {
    I::open(pool, limit, &CapacityHints::new(1), 0).expect("the pool of this check has accounts")
}

fn keeps_order<I: Intake>(pool: &Pool, source: IpAddr) {
    let mut intake: I = open(pool, u64::MAX / 4);
    for tag in 0..5 {
        let was_empty = offer(&mut intake, packet(pool, tag), source);
        assert_eq!(was_empty.ok(), Some(tag == 0), "only the first finds the queue empty");
    }
    assert_eq!((intake.len(), intake.is_empty()), (5, false));
    for tag in 0..5 {
        assert_eq!(intake.first().map(|p| p.first().to_vec()), Some(vec![tag]));
        let taken = intake.take().expect("as many come out as went in");
        assert_eq!(taken.first(), [tag], "one source's datagrams stay in order");
    }
    assert!(intake.take().is_none() && intake.first().is_none() && intake.is_empty());
}

fn holds_its_limit<I: Intake>(pool: &Pool, source: IpAddr) {
    let size = packet(pool, 0).true_size();
    let mut intake: I = open(pool, u64::from(size) * 3);
    for tag in 0..3 {
        assert!(offer(&mut intake, packet(pool, tag), source).is_ok());
    }
    assert!(!intake.admits(1));
    let refused = offer(&mut intake, packet(pool, 9), source)
        .expect_err("true sizes count, not payload bytes");
    assert_eq!(refused.first(), [9], "the new packet is given back");
    assert_eq!((intake.len(), intake.charged()), (3, u64::from(size) * 3));
    drop(refused);
    assert_eq!(intake.charged(), u64::from(size) * 3, "a refused packet was never charged");
}

fn takes_one_when_empty<I: Intake>(pool: &Pool, source: IpAddr) {
    for limit in [0, 1] {
        let mut intake: I = open(pool, limit);
        for round in 0..3 {
            assert!(intake.admits(1));
            let first = offer(&mut intake, packet(pool, round), source);
            assert_eq!(first.ok(), Some(true), "an empty intake takes one, limit {limit}");
            assert!(offer(&mut intake, packet(pool, 9), source).is_err(), "and no second");
            assert_eq!(intake.take().map(|p| p.first().to_vec()), Some(vec![round]));
            assert_eq!(intake.charged(), 0);
        }
    }
}

fn releases_exactly<I: Intake>(pool: &Pool, source: IpAddr) {
    let before = pool.available();
    let mut intake: I = open(pool, u64::MAX / 4);
    for tag in 0..4 {
        assert!(offer(&mut intake, packet(pool, tag), source).is_ok());
    }
    let all = intake.charged();
    let mut reserved = packet(pool, 5);
    let offer = IntakeOffer { source, now: Instant::ORIGIN };
    assert!(intake.reserve(&mut reserved, &offer) && intake.charged() > all && intake.len() == 4);
    drop(reserved);
    assert_eq!(intake.charged(), all, "a packet that is dropped unqueued is not charged");
    let taken = intake.take();
    assert_eq!(intake.charged(), all, "what is taken stays charged while it exists");
    drop(taken);
    assert_eq!(intake.charged(), all / 4 * 3, "and is released when it is dropped");
    drop(intake);
    assert_eq!(pool.available(), before, "a dropped intake leaves nothing behind");
}

fn survives_a_lower_limit<I: Intake>(pool: &Pool, source: IpAddr) {
    let size = packet(pool, 0).true_size();
    let mut intake: I = open(pool, u64::from(size) * 4);
    for tag in 0..4 {
        assert!(offer(&mut intake, packet(pool, tag), source).is_ok());
    }
    intake.set_limit(u64::from(size));
    assert_eq!(intake.len(), 4, "what waits stays");
    for left in (0..4).rev() {
        let more = offer(&mut intake, packet(pool, 9), source);
        assert!(more.is_err(), "nothing is taken above the new limit");
        drop(intake.take());
        assert_eq!(intake.charged(), u64::from(size) * left);
    }
    assert!(offer(&mut intake, packet(pool, 9), source).is_ok());
}

fn says_what_fits<I: Intake>(pool: &Pool, source: IpAddr) {
    let (rooms, size) = (CapacityHints::new(3), u64::from(packet(pool, 0).true_size()));
    for limit in [1, size, 3 * size + 200, 20 * size] {
        let mut intake = I::open(pool, limit, &rooms, 1).expect("an account");
        let mut turns = 0;
        while turns < 60 {
            let room = rooms.of(1);
            assert_eq!(room.admits(Class::Small), intake.admits(size as u32), "{limit} {room:?}");
            match offer(&mut intake, packet(pool, 1), source) {
                Ok(_) => assert!(room.admits(Class::Small), "it was taken, {limit}"),
                Err(_) => {
                    assert!(!room.admits(Class::Small), "it was refused, {limit}");
                    drop(intake.take());
                }
            }
            turns += 1;
        }
        intake.set_limit(1);
        let expected =
            if intake.charged() == 0 { CapacityHint::Frame } else { CapacityHint::Nothing };
        assert_eq!(rooms.of(1), expected);
        drop(intake);
        assert_eq!([0, 1, 2].map(|index| rooms.of(index)), [CapacityHint::Frame; 3]);
    }
}
