//! Effects and counters of a device with injected faults.

use floodwall_packet::PoolConfig;

use super::*;
use crate::memory_wire::{MemoryWire, pair};

fn pool() -> Pool {
    Pool::new(&PoolConfig::default()).unwrap()
}

fn pass(pool: &Pool, numbers: u32, config: &FaultConfig) -> (Vec<Vec<u8>>, Fault<MemoryWire>) {
    let (a, mut b) = pair(4096);
    let mut a = Fault::new(a, config);
    let mut burst = Burst::new();
    a.receive(pool, &mut burst).unwrap();
    let mut arrived = Vec::new();
    for number in 0..numbers {
        let mut list = PacketList::new();
        let mut bytes = [0; 60];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        list.push_back(pool.packet_from(&bytes).unwrap());
        assert_eq!(a.transmit(&mut list).unwrap(), 1);
        if number % 16 == 15 {
            a.receive(pool, &mut burst).unwrap();
        }
    }
    for _ in 0..2 {
        a.receive(pool, &mut burst).unwrap();
    }
    while b.receive(pool, &mut burst).unwrap() > 0 {
        arrived.extend(burst.drain().map(|p| p.first().to_vec()));
    }
    (arrived, a)
}

fn tx(tx: FaultRates) -> FaultConfig {
    FaultConfig { seed: 7, tx, ..FaultConfig::default() }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

#[test]
fn without_rates_nothing_happens() {
    let pool = pool();
    let (arrived, device) = pass(&pool, 100, &FaultConfig::default());
    assert!(arrived.iter().map(|b| number(b)).eq(0..100));
    let quiet = FaultCounts { seen: 100, ..FaultCounts::default() };
    assert_eq!(device.counts().1, quiet);
}

#[test]
fn losses_and_duplicates_add_up_and_repeat_with_their_seed() {
    let pool = pool();
    let rates = FaultRates { loss: 0.2, duplication: 0.1, ..FaultRates::default() };
    let (arrived, device) = pass(&pool, 1000, &tx(rates));
    let counts = device.counts().1;
    assert_eq!(arrived.len() as u64, 1000 - counts.lost + counts.duplicated);
    assert!(counts.lost > 100 && counts.lost < 300, "{counts:?}");
    assert!(counts.duplicated > 40, "{counts:?}");
    assert_eq!((device.stats().tx_injected, counts.spared), (counts.lost, 0));
    let (again, _) = pass(&pool, 1000, &tx(rates));
    assert!(arrived == again);
    let (other, _) = pass(&pool, 1000, &FaultConfig { seed: 8, ..tx(rates) });
    assert!(arrived != other);
}

#[test]
fn reordered_packets_all_arrive_and_none_strays_further_than_told() {
    let pool = pool();
    let rates = FaultRates { reordering: 0.3, distance: 3, ..FaultRates::default() };
    let (arrived, device) = pass(&pool, 500, &tx(rates));
    let mut numbers: Vec<u32> = arrived.iter().map(|b| number(b)).collect();
    let late = numbers.windows(2).filter(|w| w[0] > w[1]).count();
    assert!(late > 50, "{late}");
    assert!(device.counts().1.reordered > 100);
    for (place, number) in numbers.iter().enumerate() {
        assert!(place.abs_diff(*number as usize) <= HELD_MAX, "{number} at {place}");
    }
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..500));
}

#[test]
fn a_corrupted_packet_differs_in_one_bit_and_a_truncated_one_is_shorter() {
    let pool = pool();
    let rates = FaultRates { corruption: 1.0, ..FaultRates::default() };
    let (arrived, device) = pass(&pool, 20, &tx(rates));
    for (sent, bytes) in arrived.iter().enumerate() {
        let mut original = [0; 60];
        original[..4].copy_from_slice(&(sent as u32).to_be_bytes());
        let flipped: u32 = bytes.iter().zip(&original).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(flipped, 1);
    }
    assert_eq!(device.counts().1.corrupted, 20);
    let rates = FaultRates { truncation: 1.0, ..FaultRates::default() };
    let (arrived, device) = pass(&pool, 20, &tx(rates));
    assert!(arrived.iter().all(|b| b.len() < 60));
    assert_eq!(device.counts().1.truncated, 20);
}

#[test]
fn a_partial_checksum_is_finished_before_a_bit_flips() {
    let pool = pool();
    let (mut a, b) = pair(8);
    let rx = FaultRates { corruption: 1.0, ..FaultRates::default() };
    let mut b = Fault::new(b, &FaultConfig { seed: 3, rx, ..FaultConfig::default() });
    let mut packet = pool.packet_from(&[1; 60]).unwrap();
    packet.set_checksum_state(ChecksumState::Partial);
    packet.set_offload(Offload {
        flags: 1,
        checksum_start: 34,
        checksum_offset: 6,
        ..Offload::default()
    });
    let mut list = PacketList::new();
    list.push_back(packet);
    a.transmit(&mut list).unwrap();
    let mut burst = Burst::new();
    assert_eq!(b.receive(&pool, &mut burst).unwrap(), 1);
    let packet = burst.drain().next().unwrap();
    assert_eq!((packet.checksum_state(), packet.offload()), (ChecksumState::Unverified, None));
    let mut finished = [1; 60];
    let sum = floodwall_checksum::sum(&finished[34..]).finish();
    finished[40..42].copy_from_slice(&sum.to_be_bytes());
    let flipped: u32 =
        packet.first().iter().zip(&finished).map(|(a, b)| (a ^ b).count_ones()).sum();
    assert_eq!((flipped, b.counts().0.corrupted), (1, 1));
}

#[test]
fn arrivals_are_disturbed_and_counted_apart_from_departures() {
    let pool = pool();
    let (mut a, b) = pair(256);
    let rx = FaultRates { loss: 0.5, ..FaultRates::default() };
    let mut b = Fault::new(b, &FaultConfig { seed: 1, rx, ..FaultConfig::default() });
    let mut list = PacketList::new();
    for _ in 0..200 {
        list.push_back(pool.packet_from(&[1; 60]).unwrap());
    }
    a.transmit(&mut list).unwrap();
    let mut burst = Burst::new();
    let mut taken = 0;
    while b.pending() {
        taken += b.receive(&pool, &mut burst).unwrap();
        burst.drain().for_each(drop);
    }
    let (rx, tx) = b.counts();
    assert_eq!((rx.seen, rx.lost + taken as u64, tx.seen), (200, 200, 0));
    assert_eq!((b.stats().rx_packets, b.stats().rx_injected), (taken as u64, rx.lost));
}

#[test]
fn what_the_device_has_no_room_for_stays_with_the_sender_but_for_a_burst() {
    let pool = pool();
    let (a, _b) = pair(4);
    let mut a = Fault::new(a, &FaultConfig::default());
    let mut list = PacketList::new();
    for _ in 0..200 {
        list.push_back(pool.packet_from(&[1; 60]).unwrap());
    }
    let left = a.transmit(&mut list).unwrap();
    assert_eq!((left, list.len()), (4 + BURST_MAX, 200 - 4 - BURST_MAX));
    assert_eq!(a.transmit(&mut list).unwrap(), 0);
}
