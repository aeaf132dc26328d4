//! The queue against flat bytes, and its bounds.

use floodwall_packet::PoolConfig;
use proptest::prelude::*;

use super::*;

const ROOM: u32 = 1 << 30;
/// So short that even gaps of one make fewer runs than are allowed.
const STREAM: usize = 2 * TCP_RUNS_FLOW - 8;

fn pool() -> Pool {
    let few = PoolConfig { small: 512, frames: 64, references: 1024, ..PoolConfig::default() };
    Pool::new(&few).unwrap()
}

fn bytes_of(list: &PacketList) -> Vec<u8> {
    list.iter().flat_map(|packet| packet.chunks().flatten().copied().collect::<Vec<_>>()).collect()
}

struct Queue {
    runs: OooRanges,
    queue: OutOfOrder,
    pool: Pool,
    /// To be reported next, as a connection keeps it.
    duplicate: Option<SackBlock>,
}

impl Queue {
    fn new() -> Self {
        Self { runs: OooRanges::new(256), queue: OutOfOrder::new(), pool: pool(), duplicate: None }
    }

    fn insert(&mut self, seq: Seq, bytes: &[u8], room: u32) -> Insertion {
        let packet = self.pool.packet_from(bytes).unwrap();
        let (outcome, duplicate) = self.queue.insert(&mut self.runs, &self.pool, seq, packet, room);
        self.duplicate = self.duplicate.or(duplicate);
        outcome
    }

    fn blocks(&mut self, most: usize) -> Vec<(u32, u32)> {
        let blocks = self.queue.sack_blocks(&self.runs, self.duplicate.take(), most);
        blocks.iter().flatten().map(|block| (block.left, block.right)).collect()
    }

    /// The invariants that hold at any time.
    fn check(&self) -> Vec<(Seq, Vec<u8>)> {
        self.check_with(0)
    }

    /// The same, where other connections have so many runs.
    fn check_with(&self, others: usize) -> Vec<(Seq, Vec<u8>)> {
        let (mut at, mut held, mut all) = (self.queue.first, 0, Vec::new());
        let mut last: Option<Seq> = None;
        while let Some(run) = self.runs.run(at) {
            let bytes = bytes_of(&run.packets);
            assert_eq!(bytes.len() as u32, run.end.since(run.start), "a run has no hole");
            assert!(
                last.is_none_or(|end| end.is_before(run.start)),
                "runs neither touch nor overlap"
            );
            assert_eq!(run.packets.iter().map(PacketBuf::held_size).sum::<u32>(), run.held);
            held += run.held;
            last = Some(run.end);
            all.push((run.start, bytes));
            at = run.next;
        }
        assert_eq!((held, all.len()), (self.queue.held, self.queue.count as usize));
        assert_eq!(self.runs.available() + all.len() + others, 256);
        all
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert { at: usize, len: usize, fill: u8 },
    Ready { to: usize },
    Blocks,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..STREAM, 1..40_usize, any::<u8>())
            .prop_map(|(at, len, fill)| Step::Insert { at, len: len.min(STREAM - at), fill }),
        2 => (0..STREAM, 1..3_usize, any::<u8>())
            .prop_map(|(at, len, fill)| Step::Insert { at, len: len.min(STREAM - at), fill }),
        2 => (0..STREAM / 4).prop_map(|to| Step::Ready { to }),
        1 => Just(Step::Blocks),
    ]
}

proptest! {
    #[test]
    fn any_order_of_any_pieces_gives_the_bytes_that_came_first(
        base in prop_oneof![Just(u32::MAX - 60), any::<u32>()],
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut q = Queue::new();
        let before = q.pool.available();
        let mut model: Vec<Option<u8>> = vec![None; STREAM];
        let mut next = 0;
        for step in steps {
            match step {
                Step::Insert { at, len, fill } => {
                    let at = at.max(next);
                    let len = len.min(STREAM - at);
                    if len == 0 { continue; }
                    let bytes: Vec<u8> = (0..len).map(|i| fill.wrapping_add(i as u8)).collect();
                    let is_new = model[at..at + len].iter().any(Option::is_none);
                    let outcome = q.insert(Seq(base) + at as u32, &bytes, ROOM);
                    let expected = if is_new { Insertion::Kept } else { Insertion::Duplicate };
                    prop_assert_eq!(outcome, expected);
                    for (place, byte) in model[at..at + len].iter_mut().zip(bytes) {
                        place.get_or_insert(byte);
                    }
                }
                Step::Ready { to } => {
                    // The stream advances to `to` by in-order data, and takes what joins.
                    let from = next.max(to);
                    let (list, end) = q.queue.take_ready(&mut q.runs, Seq(base) + from as u32);
                    let mut expected = Vec::new();
                    let mut at = from;
                    while at < STREAM && let Some(byte) = model[at] {
                        expected.push(byte);
                        at += 1;
                    }
                    prop_assert_eq!(bytes_of(&list), expected);
                    prop_assert_eq!(end, Seq(base) + at as u32);
                    model[..at].fill(None);
                    next = at;
                }
                Step::Blocks => {
                    for (left, right) in q.blocks(4).into_iter().skip(1) {
                        let (l, r) = (left.wrapping_sub(base), right.wrapping_sub(base));
                        prop_assert!((l..r).all(|i| model[i as usize].is_some()));
                    }
                }
            }
            let held: Vec<_> = q.check();
            for (start, bytes) in held {
                let at = start.since(Seq(base)) as usize;
                let there = &model[at..at + bytes.len()];
                let expected: Vec<u8> = there.iter().map(|b| b.unwrap()).collect();
                prop_assert_eq!(bytes, expected);
            }
            let total: usize = q.check().iter().map(|(_, bytes)| bytes.len()).sum();
            prop_assert_eq!(total, model.iter().flatten().count());
        }
        q.queue.clear(&mut q.runs);
        prop_assert_eq!(q.runs.available(), 256);
        prop_assert_eq!(q.pool.available(), before);
    }
}

#[test]
fn blocks_name_the_run_that_grew_last_and_a_duplicate_once() {
    let mut q = Queue::new();
    for at in [10_u32, 20, 30, 40, 50] {
        assert_eq!(q.insert(Seq(at), &[1; 5], ROOM), Insertion::Kept);
    }
    assert_eq!(q.blocks(4), [(50, 55), (40, 45), (30, 35), (20, 25)]);
    assert_eq!(q.insert(Seq(15), &[1; 2], ROOM), Insertion::Kept);
    assert_eq!(q.blocks(3), [(10, 17), (50, 55), (40, 45)]);
    // RFC 2883 section 4.2: the duplicate, then the run that holds it.
    assert_eq!(q.insert(Seq(41), &[1; 2], ROOM), Insertion::Duplicate);
    assert_eq!(q.blocks(3), [(41, 43), (40, 45), (10, 17)]);
    assert_eq!(q.blocks(2), [(40, 45), (10, 17)]);
    q.duplicate = Some(SackBlock { left: 1, right: 9 });
    assert_eq!(q.blocks(2), [(1, 9), (40, 45)]);
}

#[test]
fn gaps_of_one_fill_the_bound_and_then_only_what_comes_earlier_is_kept() {
    let mut q = Queue::new();
    let most = TCP_RUNS_FLOW as u32;
    for i in 1..=most {
        assert_eq!(q.insert(Seq(1000 + 2 * i), &[0], ROOM), Insertion::Kept);
    }
    for i in most + 1..most + 5000 {
        assert_eq!(q.insert(Seq(1000 + 2 * i), &[0], ROOM), Insertion::TooManyRuns);
    }
    assert_eq!((q.queue.runs(), q.runs.available()), (most, 256 - TCP_RUNS_FLOW));
    // The data nearest to the hole is never refused: the farthest run is dropped.
    assert_eq!(q.insert(Seq(1000), &[0], ROOM), Insertion::Kept);
    assert_eq!((q.queue.runs(), q.queue.end(&q.runs)), (most, Some(Seq(1000 + 2 * most - 1))));
    // A segment that joins runs needs no new run.
    assert_eq!(q.insert(Seq(1001), &[0], ROOM), Insertion::Kept);
    assert_eq!(q.queue.runs(), most - 1);
    q.check();
}

#[test]
fn connections_with_many_holes_leave_runs_to_those_with_few() {
    let mut q = Queue::new();
    let mut greedy: Vec<OutOfOrder> = (0..10).map(|_| OutOfOrder::new()).collect();
    for queue in &mut greedy {
        for i in 1..200 {
            let packet = q.pool.packet_from(&[0]).unwrap();
            let _ = queue.insert(&mut q.runs, &q.pool, Seq(1000 + 2 * i), packet, ROOM);
        }
    }
    let counts: Vec<u32> = greedy.iter().map(OutOfOrder::runs).collect();
    assert_eq!(
        counts,
        [
            64,
            64,
            64,
            32,
            RUNS_WHEN_SHORT,
            RUNS_WHEN_SHORT,
            RUNS_WHEN_SHORT,
            RUNS_WHEN_SHORT,
            RUNS_WHEN_SHORT,
            RUNS_WHEN_SHORT
        ]
    );
    // A connection with one hole is served, and the others' first holes are filled as before.
    assert_eq!(q.insert(Seq(50), &[0], ROOM), Insertion::Kept);
    let packet = q.pool.packet_from(&[0]).unwrap();
    let (first, _) = greedy[0].insert(&mut q.runs, &q.pool, Seq(1000), packet, ROOM);
    assert_eq!((first, greedy[0].runs()), (Insertion::Kept, 64));
    q.check_with(greedy.iter().map(|queue| queue.runs() as usize).sum());
}

#[test]
fn room_is_counted_in_true_bytes_and_made_for_the_earliest() {
    let mut q = Queue::new();
    let size = q.pool.packet_from(&[0]).unwrap().held_size();
    for at in [300, 200] {
        assert_eq!(q.insert(Seq(at), &[0], 2 * size), Insertion::Kept);
    }
    assert_eq!(q.insert(Seq(400), &[0], 2 * size), Insertion::NoRoom);
    assert_eq!(q.insert(Seq(250), &[0], 2 * size), Insertion::NoRoom);
    assert_eq!(q.insert(Seq(100), &[0], 2 * size), Insertion::Kept);
    assert_eq!((q.queue.held(), q.queue.end(&q.runs)), (2 * size, Some(Seq(201))));
    assert_eq!(q.insert(Seq(50), &[0], size - 1), Insertion::NoRoom);
    // A duplicate needs no room.
    assert_eq!(q.insert(Seq(100), &[0], 0), Insertion::Duplicate);
    q.check();
    q.queue.clear(&mut q.runs);
    assert_eq!(q.insert(Seq(50), &[0], size), Insertion::Kept);
    assert_eq!(q.insert(Seq(40), &[0], size), Insertion::Kept, "the only one went");
    q.check();
}

#[test]
fn a_shard_without_runs_refuses_and_a_flow_without_any_waits() {
    let mut runs = OooRanges::new(1);
    let pool = pool();
    let (mut a, mut b) = (OutOfOrder::new(), OutOfOrder::new());
    let packet = || pool.packet_from(&[7; 10]).unwrap();
    assert_eq!(a.insert(&mut runs, &pool, Seq(10), packet(), ROOM).0, Insertion::Kept);
    assert_eq!(b.insert(&mut runs, &pool, Seq(10), packet(), ROOM).0, Insertion::TooManyRuns);
    a.clear(&mut runs);
    assert_eq!(b.insert(&mut runs, &pool, Seq(10), packet(), ROOM).0, Insertion::Kept);
}
