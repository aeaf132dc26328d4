//! What the program of an XDP interface refuses, beside the class of the stack's own triage.
//!
//! Every frame of every vendored capture, as it is, cut short, and with each of its first bytes
//! changed, goes through the program (`BPF_PROG_TEST_RUN`) and through `Engine::classify`. Nothing
//! may be dropped at the interface that triage would not call refusable. Needs the privileges of
//! XDP; without them it reports a skip.

use std::collections::BTreeMap;

use floodwall_base::{Instant, MacAddr};
use floodwall_device::{DeviceError, FirstLine, FirstLineState};
use floodwall_packet::Triage;
use floodwall_testkit::captures::{read, vendored};
use floodwall_tests::{Aim, Arrival, Replay, arrivals};

/// The maximum length of a frame from such an interface: it is in one piece.
const FRAME_MAX: usize = 1700;
const FRAME_MIN: usize = 14;
/// Bytes of a frame that are changed: headers of link and network, with ports.
const CHANGED: usize = 58;
/// One frame of so many is changed and cut.
const SAMPLE: usize = 16;

/// The program for a station, under pressure, with credit for everybody.
fn pressed(station: MacAddr) -> Option<FirstLine> {
    match FirstLine::load(station) {
        Ok(mut line) => {
            line.admit(Instant::ORIGIN, Some(usize::MAX));
            Some(line)
        }
        Err(error @ DeviceError::NoPrivilege { .. }) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// What the two said, by how often.
type Tally = BTreeMap<(String, &'static str), usize>;

fn compare(line: &FirstLine, replay: &Replay, frame: &[u8], tally: &mut Tally) {
    if !(FRAME_MIN..=FRAME_MAX).contains(&frame.len()) {
        return;
    }
    let Some(class) = replay.class(frame) else { return };
    let said = line.say(frame).expect("a program that runs");
    let refused = match said {
        FirstLineState::Refused(name) => name,
        FirstLineState::Taken
        | FirstLineState::Passed
        | FirstLineState::Answered
        | FirstLineState::Redirected => "",
    };
    assert!(
        refused.is_empty() || class == Triage::Rejectable,
        "{refused} at the interface, {class:?} to triage: {:x?}",
        &frame[..frame.len().min(80)]
    );
    *tally.entry((format!("{class:?}"), refused)).or_insert(0) += 1;
}

/// The frame with one byte changed, in two ways for each; and cut behind each.
fn variants(frame: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let changed = (0..frame.len().min(CHANGED)).flat_map(move |at| {
        [0x01, 0x40].map(|bits| {
            let mut changed = frame.to_vec();
            changed[at] ^= bits;
            changed
        })
    });
    let cut = (FRAME_MIN..frame.len().min(CHANGED + 8)).map(|end| frame[..end].to_vec());
    changed.chain(cut)
}

#[test]
fn nothing_is_dropped_at_the_interface_that_triage_would_not_refuse() {
    let mut tally = Tally::new();
    for path in vendored() {
        let Ok(packets) = read(&path) else { continue };
        let mut aims: BTreeMap<Aim, Vec<Arrival>> = BTreeMap::new();
        for frame in arrivals(&packets, true) {
            aims.entry(frame.aim()).or_default().push(frame);
        }
        for (aim, frames) in aims {
            let Some(station) = aim.station else { continue };
            let Some(mut line) = pressed(station) else { return };
            let replay = Replay::new(aim, &frames);
            line.want(&replay.wants());
            for (number, frame) in frames.iter().enumerate() {
                compare(&line, &replay, &frame.bytes, &mut tally);
                if number % SAMPLE == 0 {
                    variants(&frame.bytes).for_each(|f| compare(&line, &replay, &f, &mut tally));
                }
            }
        }
    }
    eprintln!("{tally:#?}");
    let refused = |name| tally.get(&("Rejectable".to_owned(), name)).copied().unwrap_or(0);
    let names = [
        "rx_source_group",
        "rx_vlan_foreign",
        "rx_kind_unknown",
        "rx_header_malformed",
        "rx_address_foreign",
        "rx_port_closed",
    ];
    for name in names {
        assert!(refused(name) > 20, "{name} is hardly ever tried: {tally:#?}");
    }
    let taken = tally.get(&("Unknown".to_owned(), "")).copied().unwrap_or(0);
    assert!(taken > 1000, "{tally:#?}");
}
