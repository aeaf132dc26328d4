//! A device that keeps the rules, and devices that do not.

use std::sync::Arc;

use crate::account::Account;
use crate::buf::PacketBuf;
use crate::descriptor::Class;
use crate::pool::{HEADROOM, Pool, PoolConfig, Region};

fn pool() -> Pool {
    let config =
        PoolConfig { small: 4, frames: 4, supers: 2, references: 4, ..PoolConfig::default() };
    Pool::new(&config).unwrap()
}

fn lent(pool: &Pool, account: &Account, bytes: &[u8]) -> u64 {
    let mut packet = pool.packet_from(bytes).unwrap();
    packet.charge(account).unwrap();
    packet.lend().unwrap()
}

#[test]
fn a_lent_packet_comes_back_as_it_was_in_every_class() {
    let pool = pool();
    let account = pool.open_account(1 << 20).unwrap();
    let before = pool.available();
    for len in [0, 10, 1000, 60_000] {
        let bytes = vec![7; len];
        let address = lent(&pool, &account, &bytes);
        assert_ne!(pool.available(), before);
        assert!(account.used() > 0);
        let packet = pool.region().take_back(address).unwrap();
        assert_eq!(packet.first(), bytes);
        drop(packet);
        assert_eq!((account.used(), pool.available()), (0, before));
    }
    assert_eq!(pool.region().refused_returns(), 0);
}

#[test]
fn addresses_of_frames_are_those_of_the_umem() {
    let pool = pool();
    let (memory, bytes, chunk) = pool.region().umem();
    let frames: Vec<_> = (0..4).map(|_| pool.alloc(Class::Frame).unwrap()).collect();
    for mut frame in frames {
        assert!(frame.extend_from_slice(b"to the wire"));
        let at = frame.first().as_ptr().addr();
        let address = frame.lend().unwrap();
        assert_eq!(memory.as_ptr().addr() + address as usize, at);
        assert!((address as usize) < bytes && address as usize % chunk == HEADROOM);
        assert!(pool.region().take_back(address).is_some());
    }
}

#[test]
fn what_a_device_wrote_becomes_a_fresh_packet() {
    let pool = pool();
    let account = pool.open_account(1 << 20).unwrap();
    let mut packet = pool.alloc(Class::Frame).unwrap();
    packet.set_flow_hash(9);
    packet.set_link_group(true);
    packet.charge(&account).unwrap();
    let address = packet.lend().unwrap();
    let frame = address - HEADROOM as u64;
    assert!(pool.region().take_back_filled(frame + 2000, 49).is_none(), "beyond the frame");
    assert!(pool.region().take_back_filled(frame + 2000, usize::MAX).is_none());
    let packet = pool.region().take_back_filled(frame + 2000, 48).unwrap();
    assert_eq!((packet.len(), packet.headroom(), packet.tailroom()), (48, 2000, 0));
    assert_eq!((packet.flow_hash(), packet.is_link_group(), account.used()), (0, false, 0));
    assert_eq!(pool.region().refused_returns(), 2);
}

#[test]
fn a_confused_device_makes_no_second_owner() {
    let pool = pool();
    let region = Arc::clone(pool.region());
    let address = pool.packet_from(&[1; 500]).unwrap().lend().unwrap();
    let end = region.umem().1 as u64 + region.bytes() as u64;
    // Never lent: foreign, free, inside the right frame but not the packet's first byte.
    let wrong = [address + 1, address - 1, address + 2048, end, end - 1, u64::MAX, 1 << 63];
    for address in wrong {
        assert!(region.take_back(address).is_none(), "{address}");
    }
    let packet = region.take_back(address).unwrap();
    assert!(region.take_back(address).is_none(), "the same address twice");
    drop(packet);
    assert!(region.take_back(address).is_none(), "and once more when it is home");
    assert!(region.take_back_filled(address, 1).is_none());
    assert_eq!(region.refused_returns(), wrong.len() as u64 + 3);
    assert_eq!(pool.available().frames, 4);
}

#[test]
fn chains_and_shared_bytes_are_not_lent() {
    let pool = pool();
    let before = pool.available();
    let packet = pool.packet_from(b"shared").unwrap();
    let view = packet.share(&pool, 0, 6).unwrap();
    let (packet, view) = (packet.lend().unwrap_err(), view.lend().unwrap_err());
    drop(view);
    let address = packet.lend().unwrap();
    drop(pool.region().take_back(address));
    let chain = pool.packet_from_chunks([&b"a"[..], b"b"]).unwrap();
    drop(chain.lend().unwrap_err());
    assert_eq!(pool.available(), before);
}

#[test]
fn a_packet_trimmed_away_to_its_frames_end_has_no_address_to_lend() {
    let pool = pool();
    let mut packet = pool.alloc(Class::Frame).unwrap();
    assert!(packet.extend(packet.tailroom()).is_some());
    packet.trim_front(usize::MAX);
    let mut packet = packet.lend().unwrap_err();
    assert!(packet.prepend(1).is_some());
    let address = packet.lend().unwrap();
    assert!(pool.region().take_back(address).is_some());
}

#[test]
fn two_threads_that_get_the_same_address_make_one_owner() {
    let pool = pool();
    let region: &Region = pool.region();
    for _ in 0..2000 {
        let address = pool.packet_from(&[5; 300]).unwrap().lend().unwrap();
        let take = || region.take_back(address).map(|packet: PacketBuf| packet.len());
        let (here, there) = std::thread::scope(|scope| {
            let other = scope.spawn(take);
            let here = take();
            (here, other.join().unwrap())
        });
        assert_eq!(here.xor(there), Some(300));
        assert_eq!(pool.available().frames, 4);
    }
}

#[test]
fn memory_that_a_device_keeps_is_never_freed() {
    let pool = pool();
    let (memory, ..) = pool.region().umem();
    let address = pool.packet_from(&[9; 500]).unwrap().lend().unwrap();
    drop(pool);
    // SAFETY: the region stays, since one of its frames is lent.
    assert_eq!(unsafe { memory.add(address as usize).read() }, 9);
}
