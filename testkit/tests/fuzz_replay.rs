//! Every corpus of `fuzz/` through its body, in ordinary test runs.

use std::fs;
use std::path::Path;

use floodwall_testkit::{Seeded, captures, fuzz_bodies};

#[test]
fn every_corpus_replays() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for fuzz_bodies::Body { name, run } in fuzz_bodies::ALL {
        let mut files: Vec<_> =
            fs::read_dir(root.join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(files.len() >= 10, "{name} has a corpus of {}", files.len());
        for file in files {
            println!("{}", file.display());
            run(&fs::read(file).unwrap());
        }
    }
}

#[test]
fn every_vendored_packet_passes_the_wire_body_whole_and_cut_short() {
    let mut packets = 0;
    for path in captures::vendored() {
        for captured in captures::read(&path).unwrap() {
            let Some(frame) = as_frame(&captured) else { continue };
            println!("{}", path.display());
            for how in [0, 7, 255] {
                fuzz_bodies::wire(&[&[how], &frame[..]].concat());
            }
            for len in (0..frame.len().min(120)).step_by(3) {
                fuzz_bodies::wire(&[&[len as u8], &frame[..len]].concat());
            }
            packets += 1;
        }
    }
    assert!(packets > 5000, "{packets} packets");
}

#[test]
fn more_captures_pass_the_wire_body_where_there_are_any() {
    let mut packets = 0;
    for path in captures::optional("the wire body") {
        for captured in captures::read(&path).unwrap_or_default() {
            let Some(frame) = as_frame(&captured) else { continue };
            fuzz_bodies::wire(&[&[packets as u8], &frame[..]].concat());
            packets += 1;
        }
    }
    println!("{packets} packets");
}

#[test]
fn random_programs_keep_packets_and_models_equal() {
    let mut random = Seeded::new(1);
    for run in 0..300 {
        let program: Vec<u8> = (0..random.below(1200)).map(|_| random.next() as u8).collect();
        println!("run {run} of seed 1");
        fuzz_bodies::pulldown(&program);
    }
}

/// Programs of mostly SYNs, ACKs and time, of few clients; both ways of completing are reached
/// often, so that what the body asserts of them is asserted.
#[test]
fn random_programs_complete_handshakes_by_entry_and_by_cookie_and_keep_the_model() {
    let mut random = Seeded::new(2);
    let (mut cache, mut cookie) = (0, 0);
    for run in 0..600 {
        println!("run {run} of seed 2");
        let mut program = vec![run as u8];
        for _ in 0..random.below(400) {
            let what = [0, 0, 3, 3, 4, 6, random.next() as u8 & 7][random.below(7)];
            let index = random.below(24) as u8;
            program.extend([what | random.next() as u8 & 0x48, index]);
        }
        let completed = fuzz_bodies::syncache_play(&program);
        (cache, cookie) = (cache + completed.cache, cookie + completed.cookie);
    }
    assert!(cache > 500 && cookie > 500, "{cache} by entry, {cookie} by cookie");
}

/// Threads that share sockets and streams, over and over: the order differs each time.
#[test]
fn random_calls_from_several_threads_lose_no_byte_and_no_memory() {
    let mut random = Seeded::new(3);
    for run in 0..60 {
        println!("run {run} of seed 3");
        let program: Vec<u8> = (0..random.below(300)).map(|_| random.next() as u8).collect();
        fuzz_bodies::calls(&program);
    }
}

#[test]
#[should_panic(expected = "the canary is dead")]
fn the_canary_is_dropped_of_its_word() {
    fuzz_bodies::canary(b"FLOODGATE");
    fuzz_bodies::canary(b"FLOODWALL");
}

/// A frame of its own, or one with an Ethernet header made up for a bare packet.
fn as_frame(captured: &captures::Captured) -> Option<Vec<u8>> {
    if let Some(frame) = captured.frame() {
        return Some(frame.to_vec());
    }
    let packet = captured.ip_packet()?;
    let kind: [u8; 2] = if packet.first()? >> 4 == 6 { [0x86, 0xdd] } else { [0x08, 0x00] };
    Some([&[2; 12], &kind[..], packet].concat())
}
