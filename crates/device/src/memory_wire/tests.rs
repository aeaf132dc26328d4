//! Order, capacity, cut and thread use of a memory wire.

use std::thread;

use floodwall_packet::{ChecksumState, Offload, PoolConfig, Region};

use super::*;

fn list_of(pool: &Pool, numbers: impl IntoIterator<Item = u8>) -> PacketList {
    let mut list = PacketList::new();
    for number in numbers {
        list.push_back(pool.packet_from(&[number; 60]).unwrap());
    }
    list
}

#[test]
fn packets_cross_in_order_and_are_counted_at_both_ends() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (mut a, mut b) = pair(8);
    let mut list = list_of(&pool, 0..5);
    assert!(!b.pending());
    assert_eq!(a.transmit(&mut list).unwrap(), 5);
    assert!(b.pending() && !a.pending());
    let mut burst = Burst::new();
    assert_eq!(b.receive(&pool, &mut burst).unwrap(), 5);
    let firsts: Vec<u8> = burst.iter().map(|p| p.first()[0]).collect();
    assert_eq!(firsts, [0, 1, 2, 3, 4]);
    assert_eq!((a.stats().tx_packets, a.stats().tx_bytes), (5, 300));
    assert_eq!((b.stats().rx_packets, b.stats().rx_bytes), (5, 300));
    assert_eq!(b.receive(&pool, &mut burst).unwrap(), 0);
}

#[test]
fn what_a_full_wire_has_no_room_for_stays_with_the_sender() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (mut a, mut b) = pair(4);
    let mut list = list_of(&pool, 0..6);
    assert_eq!(a.transmit(&mut list).unwrap(), 4);
    assert_eq!(list.len(), 2);
    assert_eq!(a.stats().tx_bytes, 240);
    assert_eq!(a.transmit(&mut list).unwrap(), 0);
    let mut burst = Burst::new();
    assert_eq!(b.receive(&pool, &mut burst).unwrap(), 4);
    assert_eq!(a.transmit(&mut list).unwrap(), 2);
    assert_eq!(a.stats().tx_lost() + b.stats().rx_lost(), 0);
}

#[test]
fn a_cut_wire_is_gone_once_what_was_sent_has_arrived() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (mut a, mut b) = pair(4);
    a.transmit(&mut list_of(&pool, 0..1)).unwrap();
    drop(a);
    let mut burst = Burst::new();
    assert_eq!(b.receive(&pool, &mut burst).unwrap(), 1);
    assert!(matches!(b.receive(&pool, &mut burst), Err(DeviceError::Gone { .. })));
    let mut list = list_of(&pool, 0..1);
    let error = b.transmit(&mut list).unwrap_err();
    assert!(error.to_string().starts_with("wire-b: gone"), "{error}");
    assert_eq!(list.len(), 1);
}

#[test]
fn the_sender_keeps_its_knowledge_and_the_virtio_header_crosses() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let account = pool.open_account(1 << 20).unwrap();
    let (mut a, mut b) = pair(4);
    let mut packet = pool.packet_from(&[7; 60]).unwrap();
    packet.charge(&account).unwrap();
    packet.set_flow_hash(9);
    packet.set_checksum_state(ChecksumState::Partial);
    packet.set_offload(Offload { flags: 1, checksum_start: 34, ..Offload::default() });
    let mut list = PacketList::new();
    list.push_back(packet);
    a.transmit(&mut list).unwrap();
    let mut burst = Burst::new();
    b.receive(&pool, &mut burst).unwrap();
    let packet = burst.drain().next().unwrap();
    assert_eq!(packet.flow_hash(), 0);
    assert_eq!(packet.checksum_state(), ChecksumState::Partial);
    assert_eq!(packet.offload().unwrap().checksum_start, 34);
    let mut again = packet;
    again.charge(&account).unwrap();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test needs a second thread")]
fn the_ends_may_live_on_two_threads() {
    const PACKETS: usize = 5000;
    let region = Region::new(&PoolConfig { workers: 2, ..PoolConfig::default() }).unwrap();
    let (mut a, mut b) = pair(64);
    let sender = {
        let region = std::sync::Arc::clone(&region);
        thread::spawn(move || {
            let pool = region.attach().unwrap();
            let mut list = PacketList::new();
            for number in 0..PACKETS {
                // The pool comes home in batches: wait until a frame is there.
                let packet = loop {
                    match pool.packet_from(&number.to_be_bytes()) {
                        Some(packet) => break packet,
                        None => thread::yield_now(),
                    }
                };
                list.push_back(packet);
                while !list.is_empty() {
                    if a.transmit(&mut list).unwrap() == 0 {
                        thread::yield_now();
                    }
                }
            }
            a
        })
    };
    let pool = region.attach().unwrap();
    let mut burst = Burst::new();
    let mut expected = 0_usize;
    while expected < PACKETS {
        b.receive(&pool, &mut burst).unwrap();
        for packet in burst.drain() {
            assert_eq!(packet.first(), expected.to_be_bytes());
            expected += 1;
        }
        thread::yield_now();
    }
    assert_eq!(sender.join().unwrap().stats().tx_packets, PACKETS as u64);
}
