//! The scoreboard against a model with the status of every byte, and its bounds.

use floodwall_base::limits::TCP_SACK_STEPS;
use proptest::prelude::*;

use floodwall_wire::tcp_options::SackBlock;

use super::*;

const MSS: u32 = 10;

fn ms(n: u64) -> Instant {
    Instant::ORIGIN + Duration::from_millis(n)
}

fn block(left: Seq, right: Seq) -> Option<SackBlock> {
    Some(SackBlock { left: left.0, right: right.0 })
}

fn segment<'a>(ack: Seq, sack: &'a [Option<SackBlock>], now: Instant) -> AckSegment<'a> {
    AckSegment { ack, sack, echoed_at: None, is_duplicate: false, rtt_min: u64::MAX, now }
}

/// One byte of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Byte {
    outcome: SegmentOutcome,
    sent_at: Instant,
    retransmits: u8,
    /// The first byte of its segment.
    segment: usize,
}

/// Bytes from `una` on; index 0 of `bytes` is the first byte ever.
struct Model {
    base: Seq,
    bytes: Vec<Byte>,
    una: usize,
}

impl Model {
    fn count(&self, outcome: SegmentOutcome) -> u32 {
        self.bytes[self.una..].iter().filter(|b| b.outcome == outcome).count() as u32
    }

    fn seq(&self, at: usize) -> Seq {
        self.base + at as u32
    }

    fn segment_end(&self, at: usize) -> usize {
        let of = self.bytes[at].segment;
        (at..self.bytes.len()).find(|&i| self.bytes[i].segment != of).unwrap_or(self.bytes.len())
    }

    /// Whole segments (or their rest) within the range are SACKed.
    fn sack(&mut self, from: usize, to: usize) {
        let mut at = from;
        while at < to {
            let end = self.segment_end(at);
            let is_begin = at == self.una || self.bytes[at - 1].segment != self.bytes[at].segment;
            if is_begin && end <= to {
                self.bytes[at..end].iter_mut().for_each(|b| b.outcome = SegmentOutcome::Sacked);
            }
            at = end;
        }
    }
}

fn check(board: &Scoreboard, records: &SentSegments, model: &Model) {
    assert_eq!(board.una(), model.seq(model.una));
    assert_eq!(board.nxt(), model.seq(model.bytes.len()));
    assert_eq!(board.sacked(records), model.count(SegmentOutcome::Sacked));
    assert_eq!(board.lost(records), model.count(SegmentOutcome::Lost));
    assert_eq!(board.pipe(records), model.count(SegmentOutcome::InFlight));
    let (mut at, mut index, mut seen) = (model.una, board.by_seq.first, 0);
    while let Some(record) = records.at(index) {
        assert_eq!(record.start, model.seq(at));
        assert!(record.len > 0);
        for _ in 0..record.len {
            let byte = model.bytes[at];
            assert_eq!(record.outcome, byte.outcome, "byte {at}");
            if byte.outcome != SegmentOutcome::Sacked {
                assert_eq!((record.sent_at, record.retransmits), (byte.sent_at, byte.retransmits));
            }
            at += 1;
        }
        seen += 1;
        index = record.next;
    }
    assert_eq!((at, seen), (model.bytes.len(), board.record_count()));
    // Each list by time contains each record of its status once, and the in-flight one is sorted.
    for (ends, outcome) in [
        (board.in_flight, SegmentOutcome::InFlight),
        (board.known_marks(records).list, SegmentOutcome::Lost),
    ] {
        let (mut index, mut bytes, mut last) = (ends.first, 0, None);
        while let Some(record) = records.at(index) {
            assert_eq!(record.outcome, outcome);
            assert!(
                outcome == SegmentOutcome::Lost || last.is_none_or(|last| last <= record.sent_at)
            );
            bytes += record.len;
            last = Some(record.sent_at);
            index = record.newer;
        }
        assert_eq!(bytes, model.count(outcome));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send(u32),
    Ack(usize),
    Sack(Vec<(usize, usize)>),
    Detect,
    Timeout,
    Retransmit(u32),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop_oneof![Just(MSS), Just(4 * MSS), 1..35_u32].prop_map(Step::Send),
        3 => (0..60_usize).prop_map(Step::Ack),
        4 => prop::collection::vec((0..200_usize, 1..50_usize), 1..4).prop_map(Step::Sack),
        2 => Just(Step::Detect),
        1 => Just(Step::Timeout),
        4 => prop_oneof![Just(MSS), 1..25_u32].prop_map(Step::Retransmit),
        3 => (1..200_u64).prop_map(Step::Wait),
    ]
}

#[expect(clippy::too_many_lines, reason = "one arm for each kind of step")]
fn play(base: Seq, steps: Vec<Step>) {
    let mut records = SentSegments::new(2000, 4);
    let mut board = Scoreboard::new(base);
    let mut rack = RackState::new(base);
    let mut model = Model { base, bytes: Vec::new(), una: 0 };
    let mut now = ms(0);
    for step in steps {
        match step {
            Step::Wait(n) => now += Duration::from_millis(n),
            Step::Send(len) => {
                assert!(board.on_sent(&mut records, len, MSS, now));
                let first = model.bytes.len();
                model.bytes.extend((0..len as usize).map(|i| Byte {
                    outcome: SegmentOutcome::InFlight,
                    sent_at: now,
                    retransmits: 0,
                    segment: first + i / MSS as usize * MSS as usize,
                }));
            }
            Step::Ack(n) => {
                let to = (model.una + n).min(model.bytes.len());
                let new = model.bytes[model.una..to]
                    .iter()
                    .filter(|b| b.outcome != SegmentOutcome::Sacked);
                let expected = (to - model.una, new.count());
                model.una = to;
                let change =
                    board.on_ack(&mut records, &segment(model.seq(to), &[], now), &mut rack);
                assert_eq!((change.acked as usize, change.acked_new as usize), expected);
            }
            Step::Sack(ranges) => {
                let mut blocks = [None; 4];
                let before = model.count(SegmentOutcome::Sacked);
                for (place, (at, len)) in blocks.iter_mut().skip(1).zip(ranges) {
                    let from = (model.una + at).min(model.bytes.len());
                    let to = (from + len).min(model.bytes.len());
                    *place = block(model.seq(from), model.seq(to));
                    model.sack(from, to);
                }
                // Invalid blocks around them change nothing: inverted, empty, unsent, acknowledged.
                blocks[0] = [
                    block(model.seq(model.bytes.len()), board.una()),
                    block(board.una(), board.una()),
                    block(board.nxt(), board.nxt() + 5),
                    block(board.una() - 5, board.una() + 100_000),
                ][now.as_nanos() as usize / 1_000_000 % 4];
                let una = board.una();
                let change = board.on_ack(&mut records, &segment(una, &blocks, now), &mut rack);
                assert_eq!(change.sacked, model.count(SegmentOutcome::Sacked) - before);
            }
            Step::Detect => {
                let (lost, _) = board.detect_lost(&mut records, &rack, Duration::ZERO, now);
                let before = model.count(SegmentOutcome::Lost);
                for at in model.una..model.bytes.len() {
                    // Detection goes by a record's end, which covers all segments with the same
                    // status and time.
                    if model.bytes[at].outcome == SegmentOutcome::InFlight {
                        let seq = model.seq(at);
                        let record = record_of(&board, &records, seq);
                        if record.outcome == SegmentOutcome::Lost {
                            assert!(rack.was_sent_before(
                                record.sent_at,
                                record.end(),
                                record.retransmits > 0
                            ));
                            model.bytes[at].outcome = SegmentOutcome::Lost;
                        } else {
                            // Of data sent at one moment, some may be detected a little later.
                            let is_tie = !rack.was_sent_before(
                                record.sent_at,
                                board.nxt(),
                                record.retransmits > 0,
                            );
                            let is_early = now < record.sent_at + rack.rtt();
                            let is_before = rack.was_sent_before(
                                record.sent_at,
                                record.end(),
                                record.retransmits > 0,
                            );
                            assert!(!is_before || is_tie || is_early);
                        }
                    }
                }
                assert_eq!(lost, model.count(SegmentOutcome::Lost) - before);
            }
            Step::Timeout => {
                let una = model.una;
                if model.bytes.get(una).is_some_and(|b| b.outcome == SegmentOutcome::Sacked) {
                    model.bytes[una..]
                        .iter_mut()
                        .filter(|b| b.outcome == SegmentOutcome::Sacked)
                        .for_each(|b| {
                            b.outcome = SegmentOutcome::Lost;
                        });
                    // Segment boundaries are forgotten on reneging: skip the rest of the run.
                    board.on_timeout(&mut records, None, now);
                    assert_eq!((board.sacked(&records), board.pipe(&records)), (0, 0));
                    board.clear(&mut records);
                    assert_eq!(records.available(), 2000);
                    return;
                }
                model.bytes[una..]
                    .iter_mut()
                    .filter(|b| b.outcome == SegmentOutcome::InFlight)
                    .for_each(|b| {
                        b.outcome = SegmentOutcome::Lost;
                    });
                board.on_timeout(&mut records, None, now);
            }
            Step::Retransmit(len) => {
                let Some((start, most)) = board.next_lost(&records) else { continue };
                let len = len.min(most);
                board.on_retransmitted(&mut records, start, len, now);
                let at = start.since(base) as usize;
                // Data retransmitted in other pieces has other segment boundaries.
                for byte in &mut model.bytes[at..at + len as usize] {
                    assert_eq!(byte.outcome, SegmentOutcome::Lost);
                    byte.outcome = SegmentOutcome::InFlight;
                    byte.sent_at = now;
                    byte.retransmits += 1;
                }
                let cut = at + len as usize;
                if let Some(byte) = model.bytes.get(cut).copied()
                    && byte.segment == model.bytes[cut - 1].segment
                {
                    let end = model.segment_end(cut);
                    model.bytes[cut..end].iter_mut().for_each(|b| b.segment = cut);
                }
            }
        }
        check(&board, &records, &model);
    }
    board.clear(&mut records);
    assert_eq!((records.available(), board.outstanding(), board.pipe(&records)), (2000, 0, 0));
    assert_eq!(records.marks.in_use(), 0, "given back");
}

fn record_of(board: &Scoreboard, records: &SentSegments, seq: Seq) -> SentSegment {
    let mut index = board.by_seq.first;
    loop {
        let record = records.at(index).unwrap();
        if seq.is_within(record.start, record.len) {
            return record.clone();
        }
        index = record.next;
    }
}

proptest! {
    #[test]
    fn any_course_of_events_gives_every_byte_its_fate(
        base in prop_oneof![Just(u32::MAX - 100), any::<u32>()],
        steps in prop::collection::vec(step(), 1..80),
    ) {
        play(Seq(base), steps);
    }
}

#[test]
fn a_burst_of_segments_is_one_record_and_a_small_one_ends_it() {
    let (mut records, mut board) = (SentSegments::new(100, 4), Scoreboard::new(Seq(0)));
    for len in [MSS, 3 * MSS, MSS, 4] {
        assert!(board.on_sent(&mut records, len, MSS, ms(0)));
    }
    assert_eq!(board.record_count(), 1);
    assert!(board.on_sent(&mut records, MSS, MSS, ms(0)), "behind a small segment: a new one");
    assert!(board.on_sent(&mut records, MSS, MSS, ms(1)), "another moment: a new one");
    assert_eq!((board.record_count(), board.outstanding()), (3, 6 * MSS + 4 + MSS));
}

#[test]
fn blocks_that_cut_segments_make_no_records() {
    // Row 18, CVE-2019-11478: blocks of one byte in every place.
    let (mut records, mut board) = (SentSegments::new(100, 4), Scoreboard::new(Seq(0)));
    let mut rack = RackState::new(Seq(0));
    assert!(board.on_sent(&mut records, 10 * MSS, MSS, ms(0)));
    for left in 0..10 * MSS {
        for right in left + 1..=(left + MSS).min(10 * MSS) {
            let blocks = [block(Seq(left), Seq(right))];
            board.on_ack(&mut records, &segment(Seq(0), &blocks, ms(1)), &mut rack);
        }
        assert!(board.record_count() <= 10);
    }
    assert_eq!(
        (board.sacked(&records), board.sacked_segments(&records)),
        (10 * MSS, 10),
        "whole segments count"
    );
    assert_eq!(board.record_count(), 1, "and are one record again");
}

#[test]
fn blocks_here_and_there_cost_a_bounded_number_of_steps() {
    let most = 4000_u32;
    let (mut records, mut board) = (SentSegments::new(65_536, 4), Scoreboard::new(Seq(0)));
    let mut rack = RackState::new(Seq(0));
    assert!(board.on_sent(&mut records, 2 * most * MSS, MSS, ms(0)));
    for i in 0..most {
        let left = Seq((2 * i + 1) * MSS);
        let blocks = [block(left, left + MSS)];
        board.on_ack(&mut records, &segment(Seq(0), &blocks, ms(1)), &mut rack);
    }
    assert!(board.record_count() as usize <= TCP_RECORDS_FLOW);
    assert!(board.sacked(&records) > TCP_RECORDS_FLOW as u32 / 2 * MSS - 10 * MSS);
    // First and last place alternately: the search does not walk the whole list.
    let sacked = board.sacked(&records);
    let blocks = [block(Seq(0), Seq(MSS))];
    let change = board.on_ack(&mut records, &segment(Seq(0), &blocks, ms(2)), &mut rack);
    assert_eq!(change.sacked, 0, "{TCP_SACK_STEPS} steps do not lead there");
    for _ in 0..TCP_RECORDS_FLOW as u32 / TCP_SACK_STEPS + 1 {
        board.on_ack(&mut records, &segment(Seq(0), &blocks, ms(2)), &mut rack);
    }
    assert_eq!(
        board.sacked(&records),
        sacked + MSS,
        "an honest peer repeats it until it is processed"
    );
}

#[test]
fn a_full_slab_stops_new_data_of_those_that_have_some_and_nothing_else() {
    let mut records = SentSegments::new(80, 4);
    let (mut a, mut b) = (Scoreboard::new(Seq(0)), Scoreboard::new(Seq(0)));
    let mut sent = 0;
    while a.on_sent(&mut records, MSS, MSS, ms(sent)) {
        sent += 1;
    }
    assert_eq!((sent, records.available()), (70, 10), "a part is kept back");
    assert!(b.on_sent(&mut records, MSS, MSS, ms(0)) && !b.can_record(&records));
    // A split may use the reserve.
    a.mark_first_lost(&mut records);
    a.on_retransmitted(&mut records, Seq(0), 3, ms(99));
    assert_eq!(records.available(), 8);
    a.clear(&mut records);
    assert!(b.can_record(&records));
}

#[test]
fn duplicates_are_believed_only_where_something_was_sent() {
    let (mut records, mut board) = (SentSegments::new(100, 4), Scoreboard::new(Seq(1000)));
    let mut rack = RackState::new(Seq(1000));
    assert!(board.on_sent(&mut records, 10 * MSS, MSS, ms(0)));
    let b = |left: u32, right: u32| block(Seq(left), Seq(right));
    for (ack, blocks, is_dsack) in [
        (1050, vec![b(1020, 1030)], true),
        (1050, vec![b(1040, 1051)], false),
        (1050, vec![b(1070, 1080), b(1060, 1090)], true),
        (1050, vec![b(1060, 1090), b(1070, 1080)], false),
        (1050, vec![b(1030, 1020)], false),
        (1050, vec![b(1101, 1102)], false),
        (1050, vec![b(0x8000_0000, 0x8000_0010)], false),
    ] {
        let change = board.on_ack(&mut records, &segment(Seq(ack), &blocks, ms(1)), &mut rack);
        assert_eq!(change.dsack.is_some(), is_dsack, "{blocks:?}");
    }
}
