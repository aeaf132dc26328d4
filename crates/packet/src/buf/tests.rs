//! What a handle guarantees beyond plain bytes.

use floodwall_base::limits::CHUNKS_MAX;
use floodwall_base::{IfIndex, Instant};

use crate::access::AccessCounters;
use crate::buf::PacketBuf;
use crate::burst::Burst;
use crate::descriptor::Class;
use crate::meta::{ChecksumState, Offload};
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
fn layers_stay_right_when_a_trim_reaches_into_later_chunks() {
    let pool = pool();
    let flat: Vec<u8> = (0..60).collect();
    for cut in 0..=60 {
        for trim in 0..=60_usize {
            let mut packet = pool.packet_from_chunks([&flat[..cut], &flat[cut..]]).unwrap();
            packet.set_layers(14, 34, 42);
            packet.trim_front(trim);
            let want = [14, 34, 42].map(|at: usize| at.saturating_sub(trim));
            let got = [packet.l3(), packet.l4(), packet.payload()];
            assert_eq!(got, want, "cut at {cut}, {trim} trimmed");
        }
    }
}

#[test]
fn the_middle_of_a_packet_is_what_lies_there_however_it_is_cut() {
    let pool = pool();
    let flat: Vec<u8> = (0..12).collect();
    for (cut, n, len) in
        (0..=12).flat_map(|cut| (0..14).flat_map(move |n| (0..14).map(move |len| (cut, n, len))))
    {
        let packet = match cut {
            12 => pool.packet_from(&flat).unwrap(),
            cut => pool.packet_from_chunks([&flat[..cut], &flat[cut..]]).unwrap(),
        };
        let middle = packet.middle(n, len);
        let want = &flat[n.min(12)..(n + len).min(12)];
        let got: Vec<u8> = middle.chunks().flatten().copied().collect();
        assert_eq!((&got[..], middle.len()), (want, want.len()), "{cut} {n} {len}");
        assert!(want.is_empty() || !middle.first().is_empty(), "{cut} {n} {len}");
    }
}

#[test]
fn layers_far_beyond_any_frame_are_kept_as_the_largest() {
    let pool = pool();
    let mut packet = pool.packet_from(b"x").unwrap();
    packet.set_layers(0, usize::MAX, usize::MAX);
    assert!(packet.l3() == 0 && packet.l4() > 65_000);
}

#[test]
fn what_is_known_of_a_packet_survives_a_header_in_front_with_and_without_headroom() {
    let pool = pool();
    let make = || {
        let mut packet = pool.packet_from(&[1; 60]).unwrap();
        packet.set_layers(0, 20, 28);
        packet.set_iface(IfIndex(7));
        packet.set_flow_hash(99);
        packet.set_link_group(true);
        packet.set_checksum_state(ChecksumState::Partial);
        packet.set_timestamp(Instant::from_nanos(5));
        packet.set_offload(Offload { gso_type: 1, gso_size: 1000, ..Offload::default() });
        packet
    };
    let with_room = make().push_header(&pool, 14).unwrap();
    let mut full = make();
    let view = full.share(&pool, 0, 60).unwrap();
    full = full.push_header(&pool, 14).unwrap();
    assert_eq!((with_room.chunk_count(), full.chunk_count()), (1, 2));
    drop(view);
    for packet in [with_room, full] {
        assert_eq!((packet.l3(), packet.l4(), packet.payload()), (14, 34, 42));
        assert_eq!((packet.iface(), packet.flow_hash()), (IfIndex(7), 99));
        assert!(packet.is_link_group());
        assert_eq!(packet.checksum_state(), ChecksumState::Partial);
        assert_eq!(packet.timestamp(), Some(Instant::from_nanos(5)));
        assert_eq!(packet.offload().map(|o| (o.gso_type, o.gso_size)), Some((1, 1000)));
    }
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

#[test]
fn a_chain_of_sixty_four_shared_bytes_can_be_pulled_down() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let before = pool.available();
    let flat: Vec<u8> = (0..CHUNKS_MAX as u8).collect();
    for (off, len) in [(0, CHUNKS_MAX), (0, 40), (10, 40), (CHUNKS_MAX - 2, 2)] {
        let packet = pool.packet_from_chunks(flat.chunks(1)).unwrap();
        let mut view = packet.share(&pool, 0, CHUNKS_MAX).unwrap();
        assert_eq!(view.chunk_count(), CHUNKS_MAX);
        let mut access = AccessCounters::default();
        let got = view.pulldown(&pool, off, len, &mut access).unwrap();
        assert_eq!(got, &flat[off..off + len]);
        assert_eq!(view.chunks().flatten().copied().collect::<Vec<_>>(), flat);
        assert!(view.chunk_count() <= CHUNKS_MAX);
        assert_eq!(view.len(), CHUNKS_MAX);
    }
    assert_eq!(pool.available(), before);
}

#[test]
fn a_reader_elsewhere_keeps_the_writer_away_until_it_is_done() {
    const ROUNDS: u8 = 200;
    let pool = pool();
    let before = pool.available();
    // Our own ring: a sanitizer cannot see how the standard library's channels order things.
    let (mut to, mut from) = floodwall_sync::spsc::ring::<(u8, PacketBuf)>(4);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut read = 0;
            while read < ROUNDS {
                let Some((round, view)) = from.pop() else {
                    std::thread::yield_now();
                    continue;
                };
                assert!(view.first().iter().all(|&byte| byte == round));
                read += 1;
            }
        });
        let mut packet = pool.packet_from(&[0; 100]).unwrap();
        for round in 0..ROUNDS {
            let mut sent = to.push((round, packet.share(&pool, 10, 50).unwrap()));
            while let Err(again) = sent {
                std::thread::yield_now();
                sent = to.push(again);
            }
            // Every other round the owner goes first.
            if round % 2 == 1 {
                packet = pool.packet_from(&[round + 1; 100]).unwrap();
                continue;
            }
            loop {
                if let Some(bytes) = packet.first_mut() {
                    bytes.fill(round + 1);
                    break;
                }
                std::thread::yield_now();
            }
        }
        reader.join().unwrap();
    });
    assert_eq!(pool.available(), before);
}

#[test]
fn a_view_of_shared_memory_counts_what_it_keeps_alive() {
    let pool = pool();
    let packet = pool.packet_from_chunks([&b"four"[..], &[7; 1000]]).unwrap();
    assert_eq!(packet.held_size(), packet.true_size());
    let (all, tail) = (packet.share(&pool, 0, 1004).unwrap(), packet.share(&pool, 100, 4).unwrap());
    assert_eq!(all.held_size(), packet.true_size() + all.true_size());
    let of_view = tail.share(&pool, 0, 1).unwrap();
    let held = tail.held_size();
    assert!(held > tail.true_size() && held < all.held_size());
    assert_eq!(of_view.held_size(), held, "a view of a view keeps the same frame");
}

#[test]
fn one_that_shares_behind_its_front_still_puts_headers_before_what_others_read() {
    let pool = pool();
    for bytes in [&b"text"[..], &[7; 1400]] {
        let mut packet = pool.packet_from(bytes).unwrap();
        let (headroom, size) = (packet.headroom(), packet.true_size());
        let view = packet.share_behind(&pool).unwrap();
        assert_eq!(view.first(), bytes);
        assert_eq!((packet.headroom(), view.headroom(), view.tailroom()), (headroom, 0, 0));
        packet.prepend(20).unwrap().fill(1);
        packet = packet.push_header(&pool, 14).unwrap();
        packet.front_mut(14).unwrap().fill(2);
        packet.front_mut(34).unwrap()[13] = 3;
        assert_eq!(packet.chunk_count(), 1);
        // The bytes of the view are read-only, and nothing is behind it.
        assert_eq!(packet.front_mut(35), None);
        assert_eq!(packet.first_mut(), None);
        assert_eq!(packet.extend(1), None);
        assert_eq!(packet.tailroom(), 0);
        assert_eq!(view.first(), bytes);
        assert_eq!(packet.first()[..14], [[2; 13].as_slice(), &[3]].concat());
        assert_eq!(packet.first()[14..], [[1; 20].as_slice(), bytes].concat());
        // The view counts as the frame, in every holder.
        assert_eq!((view.true_size(), view.held_size()), (size, size));
        let again = view.share(&pool, 0, bytes.len()).unwrap();
        assert_eq!(again.held_size(), again.true_size() + size);
        assert!(packet.headroom() > 0, "a view of the view sees no more than it");
        drop((again, view));
        assert!(packet.first_mut().is_some());
    }
    assert_eq!(pool.available().frames, 16);
    assert_eq!((pool.available().small, pool.available().references), (16, 128));
}

#[test]
fn a_shared_front_is_not_written() {
    let pool = pool();
    let mut packet = pool.packet_from(b"headtext").unwrap();
    packet.trim_front(4);
    // This one was made while the front was part of the packet.
    let old = {
        let mut whole = pool.packet_from(b"headtext").unwrap();
        let old = whole.share(&pool, 0, 8).unwrap();
        whole.trim_front(4);
        assert_eq!(whole.headroom(), 0);
        assert_eq!(whole.prepend(1), None);
        assert_eq!(whole.front_mut(1), None);
        assert!(whole.share_behind(&pool).is_none(), "others share it already");
        old
    };
    assert_eq!(old.first(), b"headtext");
    // What is shared of the whole later takes the front away again.
    let view = packet.share_behind(&pool).unwrap();
    packet.prepend(4).unwrap().copy_from_slice(b"HEAD");
    let all = packet.share(&pool, 0, 8).unwrap();
    assert_eq!(packet.front_mut(1), None);
    assert_eq!(packet.prepend(1), None);
    assert_eq!(packet.headroom(), 0);
    assert_eq!((all.first(), view.first()), (&b"HEADtext"[..], &b"text"[..]));
    // A reference has no front, and a chain none that is before all of its bytes.
    let mut reference = view.share(&pool, 0, 4).unwrap();
    assert_eq!(reference.front_mut(1), None);
    assert_eq!(reference.prepend(1), None);
    assert!(reference.share_behind(&pool).is_none());
    let mut chain = pool.packet_from_chunks([&b"ab"[..], b"cd"]).unwrap();
    assert!(chain.share_behind(&pool).is_none());
    assert_eq!(chain.front_mut(3), None, "beyond the first chunk");
}

#[test]
fn a_view_that_stands_for_its_frame_outlives_it_elsewhere() {
    let pool = pool();
    let account = pool.open_account(1 << 20).unwrap();
    let mut packet = pool.packet_from(&[9; 1000]).unwrap();
    let mut view = packet.share_behind(&pool).unwrap();
    view.charge(&account).unwrap();
    assert_eq!(account.used(), u64::from(packet.true_size()));
    // It travels, gets its last header there, and is dropped.
    std::thread::scope(|scope| {
        scope.spawn(move || {
            packet.prepend(14).unwrap().fill(4);
            assert_eq!(packet.first()[13..15], [4, 9]);
        });
    });
    assert_eq!((view.first(), pool.available().frames), (&[9; 1000][..], 15));
    drop(view);
    assert_eq!((account.used(), pool.available().frames), (0, 16));
}

#[test]
fn headroom_that_is_asked_for_is_there_as_far_as_the_text_leaves_room() {
    let pool = pool();
    let small = pool.alloc_behind(128, 64).unwrap();
    assert_eq!((small.class(), small.headroom(), small.tailroom()), (Class::Small, 128, 128));
    let tight = pool.alloc_behind(128, 170).unwrap();
    assert_eq!((tight.class(), tight.headroom(), tight.tailroom()), (Class::Small, 86, 170));
    let frame = pool.alloc_behind(128, 1448).unwrap();
    assert_eq!((frame.class(), frame.headroom()), (Class::Frame, 256));
}
