//! Packets against flat bytes: random programs of every operation, and header access for every cut.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a test's own functions are tests too")]

use floodwall_packet::{AccessCounters, PacketBuf, Pool, PoolConfig};
use floodwall_testkit::cuts::{self, Cut};
use floodwall_testkit::packet_model::PacketModel;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_program_keeps_packets_equal_to_their_models(
        ops in proptest::collection::vec(any::<[u8; 4]>(), 0..200)
    ) {
        PacketModel::new().run(ops.as_flattened());
    }
}

fn bytes_of(packet: &PacketBuf) -> Vec<u8> {
    packet.chunks().flatten().copied().collect()
}

/// Each cut of a packet, with the pool it is of.
fn each_cut(len: usize, check: impl Fn(&Pool, &[u8], &Cut, PacketBuf)) {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let before = pool.available();
    let flat: Vec<u8> = (0..len).map(|n| n as u8).collect();
    for cut in cuts::all(len, 200, 42) {
        let packet = pool.packet_from_chunks(cut.of(&flat)).unwrap();
        check(&pool, &flat, &cut, packet);
    }
    assert_eq!(pool.available(), before);
}

/// Some ranges of `len` bytes, those beyond the end included.
fn ranges(len: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len + 2).step_by(3).flat_map(move |off| (0..44).step_by(5).map(move |len| (off, len)))
}

#[test]
fn a_header_is_what_flat_bytes_say_for_every_cut() {
    each_cut(100, |pool, flat, cut, packet| {
        let (mut scratch, mut access) = ([0; 64], AccessCounters::default());
        let view = packet.share(pool, 0, flat.len()).unwrap();
        for (off, len) in ranges(flat.len()) {
            for packet in [&packet, &view] {
                let got = packet.header(off, len, &mut scratch, &mut access);
                assert_eq!(got, flat.get(off..off + len), "{len} from {off}, {cut:?}");
            }
        }
        assert_eq!(access.checks(), 2 * ranges(flat.len()).count() as u64, "each is counted once");
        assert_eq!((access.pulldowns, access.allocations), (0, 0));
    });
}

#[test]
fn pulldown_gives_what_flat_bytes_say_for_every_cut_and_writes_nowhere_else() {
    each_cut(60, |pool, flat, cut, packet| {
        let mut access = AccessCounters::default();
        drop(packet);
        for (off, len) in ranges(flat.len()).step_by(2) {
            let mut packet = pool.packet_from_chunks(cut.of(flat)).unwrap();
            let view = (len % 2 == 0).then(|| packet.share(pool, 0, flat.len()).unwrap());
            let mut want = flat.to_vec();
            match packet.pulldown(pool, off, len, &mut access) {
                Ok(got) => {
                    assert_eq!(got, &flat[off..off + len], "{len} from {off}, {cut:?}");
                    got.fill(0xee);
                    want[off..off + len].fill(0xee);
                }
                Err(error) => assert!(off + len > flat.len(), "{error}: {len} from {off}, {cut:?}"),
            }
            assert_eq!(bytes_of(&packet), want);
            assert!(view.is_none_or(|view| bytes_of(&view) == flat));
        }
    });
}
