//! What a handle promises beyond plain bytes.

use crate::access::AccessCounters;
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
