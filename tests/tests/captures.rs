//! Every vendored capture through the whole stack, and every packet of them cut in pieces.
//!
//! Many of these packets crashed other stacks or dissectors. None may panic here, leak, or end
//! without being accounted for exactly once; and where a packet's chunks end must not matter
//! (CVE-2019-5608, CVE-2019-5611, CVE-2007-1365 are what happens where it does). Each packet
//! arrives twice: as a frame and as a bare IP packet, and both times at a host that has its
//! destination address.
//!
//! `FLOODWALL_DEEP=1` cuts every packet, instead of a sample; captures beside the checkout are
//! replayed too where they exist (see `floodwall_testkit::captures::optional`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use floodwall_testkit::captures::{optional, read, vendored};
use floodwall_testkit::{Seeded, cuts};
use floodwall_tests::{Aim, Arrival, Replay, arrivals};

/// Bytes of each packet that are cut at every place.
const CUT_BYTES: usize = 256;
/// Without `FLOODWALL_DEEP`, one packet of so many is cut.
const SAMPLE: usize = 8;

fn is_deep() -> bool {
    std::env::var_os("FLOODWALL_DEEP").is_some_and(|value| value != "0")
}

/// What was done, in numbers.
#[derive(Default, Debug)]
struct Tally {
    captures: usize,
    packets: usize,
    rounds: usize,
    departed: usize,
    received: usize,
    too_long: usize,
    outcomes: BTreeMap<String, usize>,
}

/// The packets of a capture by their aims, in order.
fn by_aim(packets: Vec<Arrival>) -> BTreeMap<Aim, Vec<Arrival>> {
    let mut groups: BTreeMap<Aim, Vec<Arrival>> = BTreeMap::new();
    for packet in packets {
        groups.entry(packet.aim()).or_default().push(packet);
    }
    groups
}

/// Calls `each` with the packets of one aim, for every aim of every capture, in both forms.
fn for_each_aim(paths: &[PathBuf], mut each: impl FnMut(&Path, &mut Replay, &[Arrival])) -> usize {
    let mut captures = 0;
    for path in paths {
        // Empty files and other formats are not captures.
        let Ok(packets) = read(path) else { continue };
        captures += 1;
        for framed in [true, false] {
            for (aim, packets) in by_aim(arrivals(&packets, framed)) {
                let mut replay = Replay::new(aim, &packets);
                each(path, &mut replay, &packets);
                replay.settle();
            }
        }
    }
    captures
}

fn replay_whole(paths: &[PathBuf]) -> Tally {
    let mut tally = Tally::default();
    tally.captures = for_each_aim(paths, |_, replay, packets| {
        for packet in packets {
            tally.packets += 1;
            let Some(verdict) = replay.whole(packet) else {
                tally.too_long += 1;
                continue;
            };
            tally.rounds += 1;
            tally.departed += verdict.departed.len();
            tally.received += verdict.received.len();
            let outcome = match verdict.dropped.0.first() {
                Some((reason, _)) => reason.name().to_owned(),
                None => format!("{:?}", &verdict.outcomes[..2]),
            };
            *tally.outcomes.entry(outcome).or_default() += 1;
        }
    });
    tally
}

fn replay_cut(paths: &[PathBuf], sample: usize) -> Tally {
    let mut tally = Tally::default();
    let mut chosen = Seeded::new(7);
    tally.captures = for_each_aim(paths, |path, replay, packets| {
        for packet in packets {
            if chosen.below(sample) != 0 {
                continue;
            }
            let Some(want) = replay.whole(packet) else { continue };
            tally.packets += 1;
            let bytes = packet.bytes.len().min(CUT_BYTES);
            for cut in cuts::all(bytes, 3, chosen.next()) {
                let Some(got) = replay.cut(packet, &cut) else {
                    tally.too_long += 1;
                    continue;
                };
                assert_eq!(got, want, "{}: {packet:02x?} {cut:?}", path.display());
                tally.rounds += 1;
            }
        }
    });
    tally
}

#[test]
fn every_vendored_capture_passes_the_stack_with_one_fate_a_packet() {
    let tally = replay_whole(&vendored());
    println!("{tally:#?}");
    assert!(tally.captures > 500 && tally.packets > 29_000, "{tally:?}");
    // They reach deep enough to mean something.
    assert!(tally.received > 500 && tally.departed > 5000, "{tally:?}");
}

#[test]
fn every_cut_of_a_packet_gives_the_same_verdict_and_the_same_bytes() {
    let sample = if is_deep() { 1 } else { 2 * SAMPLE };
    let tally = replay_cut(&vendored(), sample);
    println!("{tally:#?}");
    assert!(tally.packets > 30_000 / sample / 2 && tally.rounds > 200 * tally.packets);
}

#[test]
fn further_captures_pass_the_stack_with_one_fate_a_packet() {
    let paths: Vec<_> = optional("captures")
        .into_iter()
        .filter(|path| path.components().any(|c| c.as_os_str() == "ndpi"))
        .collect();
    if paths.is_empty() {
        return println!("skipped: no further captures");
    }
    println!("{:#?}", replay_whole(&paths));
    println!("{:#?}", replay_cut(&paths, if is_deep() { 1 } else { 10 * SAMPLE }));
}
