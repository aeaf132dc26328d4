//! Learning, flooding, ageing and eviction of the switch.

use floodwall_packet::{Burst, PacketList, PoolConfig};

use super::*;
use crate::device::Device;

const NOW: Instant = Instant::from_nanos(1);

fn station(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n]
}

fn send(pool: &Pool, end: &mut MemoryWire, to: [u8; 6], from: [u8; 6]) {
    let mut list = PacketList::new();
    list.push_back(pool.packet_from(&[&to[..], &from, &[8, 0], &[7; 46]].concat()).unwrap());
    assert_eq!(end.transmit(&mut list).unwrap(), 1);
}

fn received(pool: &Pool, ends: &mut [MemoryWire]) -> Vec<usize> {
    let mut burst = Burst::new();
    ends.iter_mut()
        .map(|end| {
            end.receive(pool, &mut burst).unwrap();
            burst.drain().count()
        })
        .collect()
}

fn build(config: SwitchConfig) -> (Pool, Switch, Vec<MemoryWire>) {
    let (switch, ends) = Switch::new(&config, HashKey::new(1, 2));
    (Pool::new(&PoolConfig::default()).unwrap(), switch, ends)
}

#[test]
fn an_unknown_receiver_is_flooded_and_a_known_one_is_not() {
    let (pool, mut switch, mut ends) = build(SwitchConfig::default());
    send(&pool, &mut ends[0], station(3), station(0));
    assert_eq!(switch.step(NOW, &pool), 1);
    assert_eq!(received(&pool, &mut ends), [0, 1, 1, 1]);
    send(&pool, &mut ends[3], station(0), station(3));
    switch.step(NOW, &pool);
    assert_eq!(received(&pool, &mut ends), [1, 0, 0, 0]);
    send(&pool, &mut ends[0], station(3), station(0));
    switch.step(NOW, &pool);
    assert_eq!(received(&pool, &mut ends), [0, 0, 0, 1]);
    let counts = switch.counts();
    assert_eq!((counts.flooded, counts.forwarded, counts.received), (1, 2, 3));
}

#[test]
fn groups_reach_all_and_reserved_or_malformed_frames_nothing() {
    let (pool, mut switch, mut ends) = build(SwitchConfig::default());
    send(&pool, &mut ends[0], MacAddr::BROADCAST.0, station(0));
    send(&pool, &mut ends[0], [1, 0x80, 0xc2, 0, 0, 0xe], station(0));
    send(&pool, &mut ends[0], station(9), MacAddr::BROADCAST.0);
    let mut list = PacketList::new();
    list.push_back(pool.packet_from(&[0; 13]).unwrap());
    ends[0].transmit(&mut list).unwrap();
    switch.step(NOW, &pool);
    assert_eq!(received(&pool, &mut ends), [0, 1, 1, 1]);
    let counts = switch.counts();
    assert_eq!((counts.flooded, counts.reserved, counts.malformed), (1, 1, 2));
}

#[test]
fn a_station_that_moves_or_grows_silent_is_followed() {
    let (pool, mut switch, mut ends) = build(SwitchConfig::default());
    send(&pool, &mut ends[1], station(9), station(1));
    send(&pool, &mut ends[2], station(9), station(1));
    switch.step(NOW, &pool);
    received(&pool, &mut ends);
    send(&pool, &mut ends[0], station(1), station(0));
    switch.step(NOW, &pool);
    assert_eq!(received(&pool, &mut ends), [0, 0, 1, 0]);
    send(&pool, &mut ends[0], station(1), station(0));
    switch.step(NOW + Duration::from_secs(301), &pool);
    assert_eq!(received(&pool, &mut ends), [0, 1, 1, 1], "aged out: flooded");
}

#[test]
fn invented_senders_are_bounded_and_push_out_the_oldest() {
    let (pool, mut switch, mut ends) =
        build(SwitchConfig { ports: 2, addresses: 16, ..SwitchConfig::default() });
    for n in 0..200_u8 {
        send(&pool, &mut ends[0], station(255), station(n));
        switch.step(Instant::from_nanos(u64::from(n)), &pool);
        received(&pool, &mut ends);
    }
    let known = switch.table.iter().flatten().flatten().count();
    assert!(known <= 16);
    assert_eq!(switch.counts().evicted, 200 - known as u64);
    // The last one seen is still known.
    send(&pool, &mut ends[1], station(199), station(254));
    switch.step(Instant::from_nanos(200), &pool);
    assert_eq!(switch.counts().forwarded, 1);
}

#[test]
fn a_full_port_loses_its_own_frames_and_counts_them() {
    let (pool, mut switch, mut ends) =
        build(SwitchConfig { ports: 3, capacity: 4, ..SwitchConfig::default() });
    for _ in 0..2 {
        for _ in 0..4 {
            send(&pool, &mut ends[0], MacAddr::BROADCAST.0, station(0));
        }
        switch.step(NOW, &pool);
        let mut burst = Burst::new();
        assert_eq!(ends[1].receive(&pool, &mut burst).unwrap(), 4);
    }
    assert_eq!(switch.counts().port_full, 4, "port 2 has not been read");
}

#[test]
fn without_memory_copies_are_lost_and_counted() {
    let (_, mut switch, mut ends) = build(SwitchConfig { ports: 3, ..SwitchConfig::default() });
    let config = PoolConfig { frames: 1, small: 0, supers: 0, ..PoolConfig::default() };
    let pool = Pool::new(&config).unwrap();
    send(&pool, &mut ends[0], MacAddr::BROADCAST.0, station(0));
    switch.step(NOW, &pool);
    assert_eq!(received(&pool, &mut ends), [0, 0, 1]);
    assert_eq!(switch.counts().no_buffer, 1);
}
