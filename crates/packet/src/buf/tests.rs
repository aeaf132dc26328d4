//! What a handle promises beyond plain bytes.

use crate::access::AccessCounters;
use crate::burst::Burst;
use crate::pool::{Pool, PoolConfig};

fn pool() -> Pool {
    let config =
        PoolConfig { small: 16, frames: 16, supers: 1, references: 128, ..PoolConfig::default() };
    Pool::new(&config).unwrap()
}

#[test]
fn no_mutable_slice_of_shared_bytes_is_made_even_for_no_bytes() {
    let pool = pool();
    let mut packet = pool.packet_from(b"shared").unwrap();
    let mut view = packet.share(&pool, 1, 3).unwrap();
    let mut access = AccessCounters::default();
    for both in [&mut packet, &mut view] {
        assert_eq!(both.prepend(0), Some(&mut [][..]));
        assert_eq!(both.extend(0), Some(&mut [][..]));
        assert_eq!(both.pulldown(&pool, 2, 0, &mut access), Ok(&mut [][..]));
    }
    assert_eq!((packet.first(), view.first()), (&b"shared"[..], &b"har"[..]));
}

#[test]
fn what_a_drain_leaves_is_dropped_with_it() {
    let pool = pool();
    let before = pool.available();
    let mut burst = Burst::new();
    for _ in 0..5 {
        burst.push(pool.packet_from(b"p").unwrap()).unwrap();
    }
    assert!(burst.drain().next().is_some());
    assert_eq!((burst.len(), pool.available()), (0, before));
    assert_eq!(burst.iter().count(), 0);
}
