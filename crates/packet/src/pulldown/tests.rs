//! Pulldown against flat bytes.

use super::*;
use crate::pool::{PoolConfig, Region};

fn bytes_of(packet: &PacketBuf) -> Vec<u8> {
    packet.chunks().flatten().copied().collect()
}

#[test]
fn every_range_of_every_cut_reads_and_writes_like_flat_bytes() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let flat: Vec<u8> = (0..40).collect();
    let mut access = AccessCounters::default();
    for cut in 0..=40 {
        for off in 0..=40 {
            for len in 0..=40 - off {
                let mut packet =
                    pool.packet_from_chunks([&flat[..cut], &[], &flat[cut..]]).unwrap();
                let got = packet.pulldown(&pool, off, len, &mut access).unwrap();
                assert_eq!(got, &flat[off..off + len], "cut {cut}, {len} from {off}");
                got.fill(0xee);
                let mut want = flat.clone();
                want[off..off + len].fill(0xee);
                assert_eq!(bytes_of(&packet), want);
                assert_eq!(packet.len(), 40);
            }
        }
    }
    assert_eq!(access.failures, 0);
}

#[test]
fn shared_bytes_are_never_written() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let before = pool.available();
    let flat: Vec<u8> = (0..100).collect();
    let mut packet = pool.packet_from(&flat).unwrap();
    let view = packet.share(&pool, 0, 100).unwrap();
    assert!(packet.first_mut().is_none() && packet.prepend(1).is_none());
    let mut access = AccessCounters::default();
    packet.pulldown(&pool, 10, 20, &mut access).unwrap().fill(0);
    assert_eq!(bytes_of(&view), flat);
    assert_eq!(bytes_of(&packet)[..10], flat[..10]);
    assert_eq!(bytes_of(&packet)[10..30], [0; 20]);
    assert_eq!(bytes_of(&packet)[30..], flat[30..]);
    drop(packet);
    assert_eq!(bytes_of(&view), flat);
    drop(view);
    assert_eq!(pool.available(), before);
}

#[test]
fn failure_changes_nothing() {
    let config = PoolConfig { small: 0, frames: 2, references: 0, ..PoolConfig::default() };
    let pool = Region::new(&config).unwrap().attach().unwrap();
    let mut access = AccessCounters::default();
    let mut packet = pool.packet_from_chunks([&[1_u8; 1792][..], &[2_u8; 8]]).unwrap();
    let flat = bytes_of(&packet);
    assert_eq!(packet.pulldown(&pool, 1790, 8, &mut access), Err(PulldownError::NoMemory));
    assert_eq!(packet.pulldown(&pool, 1799, 2, &mut access), Err(PulldownError::TooShort));
    assert_eq!(packet.pulldown(&pool, usize::MAX, 2, &mut access), Err(PulldownError::TooShort));
    assert_eq!((bytes_of(&packet), access.failures), (flat, 3));
}

#[test]
fn a_header_is_borrowed_where_it_can_be_and_copied_where_it_straddles() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let packet = pool.packet_from_chunks([&[1, 2, 3][..], &[], &[4, 5, 6]]).unwrap();
    let (mut scratch, mut access) = ([0; 4], AccessCounters::default());
    assert_eq!(packet.header(0, 3, &mut scratch, &mut access), Some(&[1, 2, 3][..]));
    assert_eq!(packet.header(3, 3, &mut scratch, &mut access), Some(&[4, 5, 6][..]));
    assert_eq!((access.borrows, access.copied_bytes), (2, 0));
    assert_eq!(packet.header(2, 3, &mut scratch, &mut access), Some(&[3, 4, 5][..]));
    assert_eq!((access.copies, access.copied_bytes), (1, 3));
    assert_eq!(packet.header(4, 3, &mut scratch, &mut access), None);
    assert_eq!(packet.header(0, 5, &mut scratch, &mut access), None);
    assert_eq!(access.failures, 2);
}
