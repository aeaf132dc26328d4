//! The take-all list under ordinary threads, and under loom.

use super::*;

/// A node with a payload that loom watches: an access that the list does not order fails the model.
struct Letter {
    link: TakeAllLink<Self>,
    text: UnsafeCell<u32>,
}

// SAFETY: `link` is a field, reached without touching the node.
unsafe impl Node for Letter {
    unsafe fn link(node: NonNull<Self>) -> NonNull<TakeAllLink<Self>> {
        // SAFETY: the caller's node is live, so its field is in bounds and not null.
        unsafe { NonNull::new_unchecked(&raw mut (*node.as_ptr()).link) }
    }
}

// SAFETY: a letter belongs to one thread at a time; its link is only followed by its owner.
unsafe impl Send for Letter {}

impl Letter {
    /// Writes a letter and lets go of it.
    fn leak(text: u32) -> NonNull<Self> {
        let letter = Box::new(Self { link: TakeAllLink::new(), text: UnsafeCell::new(0) });
        // SAFETY: the letter is not shared yet.
        letter.text.with_mut(|slot| unsafe { *slot = text });
        NonNull::from(Box::leak(letter))
    }

    /// Takes a letter back and reads it.
    fn open(node: NonNull<Self>) -> u32 {
        // SAFETY: the node came from `leak` and was yielded once by a chain.
        let letter = unsafe { Box::from_raw(node.as_ptr()) };
        // SAFETY: the letter is ours.
        letter.text.with(|text| unsafe { *text })
    }
}

fn push(list: &TakeAllList<Letter>, text: u32) -> PushedOnto {
    // SAFETY: the letter is fresh, and given up.
    unsafe { list.push(Letter::leak(text)) }
}

/// Pushes a chain of letters that arrive in the order given.
fn push_chain(list: &TakeAllList<Letter>, texts: &[u32]) -> PushedOnto {
    let nodes: Vec<_> = texts.iter().map(|&text| Letter::leak(text)).collect();
    for pair in nodes.windows(2) {
        // SAFETY: both letters are fresh and ours.
        unsafe { pair[1].as_ref().link.set_next(Some(pair[0])) };
    }
    // SAFETY: linked just now from the newest to the oldest, all ours, and given up.
    unsafe { list.push_chain(nodes[nodes.len() - 1], nodes[0]) }
}

fn open_all(chain: Chain<Letter>) -> Vec<u32> {
    chain.map(Letter::open).collect()
}

/// Fails unless each producer's letters (`producer * 1,000,000 + n`) came in order, all of them.
fn assert_each_in_order(texts: &[u32], producers: u32, each: u32) {
    for producer in 0..producers {
        let own = texts.iter().filter(|&&text| text / 1_000_000 == producer);
        assert!(own.map(|text| text % 1_000_000).eq(0..each), "producer {producer}: {texts:?}");
    }
    assert_eq!(texts.len(), (producers * each) as usize);
}

#[cfg(not(loom))]
mod threads {
    use super::*;

    #[test]
    fn nodes_come_newest_first_and_reversed_in_order_of_arrival() {
        let list = TakeAllList::new();
        assert_eq!(push(&list, 1), PushedOnto::Empty);
        assert_eq!(push(&list, 2), PushedOnto::NotEmpty);
        assert_eq!(push(&list, 3), PushedOnto::NotEmpty);
        assert_eq!(open_all(list.take_all()), [3, 2, 1]);
        assert!(list.is_empty());
        (1..=3).for_each(|text| _ = push(&list, text));
        assert_eq!(open_all(list.take_all().reverse()), [1, 2, 3]);
    }

    #[test]
    fn empty_list_gives_an_empty_chain() {
        let list = TakeAllList::<Letter>::new();
        assert!(list.take_all().is_empty());
        assert!(list.take_all().reverse().next().is_none());
        assert_eq!(list.take_all().into_first(), None);
    }

    #[test]
    fn chain_goes_in_as_a_whole_and_keeps_its_order() {
        let list = TakeAllList::new();
        assert_eq!(push_chain(&list, &[1, 2, 3]), PushedOnto::Empty);
        assert_eq!(push_chain(&list, &[4]), PushedOnto::NotEmpty);
        assert_eq!(push_chain(&list, &[5, 6]), PushedOnto::NotEmpty);
        assert_eq!(open_all(list.take_all().reverse()), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn chain_survives_the_way_through_its_first_node() {
        let list = TakeAllList::new();
        push_chain(&list, &[1, 2, 3]);
        let mut chain = list.take_all().reverse();
        assert_eq!(chain.next().map(Letter::open), Some(1));
        let first = chain.into_first();
        // SAFETY: these are the nodes just given to us, linked.
        assert_eq!(open_all(unsafe { Chain::from_first(first) }), [2, 3]);
    }

    #[test]
    fn stress_of_three_producers_and_a_taker_loses_nothing() {
        const EACH: u32 = 20_000;
        let list = TakeAllList::new();
        let mut texts = Vec::new();
        std::thread::scope(|scope| {
            let threads = [0, 1, 2].map(|producer| {
                let list = &list;
                scope.spawn(move || produce(list, producer * 1_000_000, EACH))
            });
            while texts.len() < 3 * EACH as usize {
                texts.extend(open_all(list.take_all().reverse()));
                std::thread::yield_now();
            }
            threads.into_iter().for_each(|thread| thread.join().expect("producer"));
        });
        assert!(list.is_empty());
        assert_each_in_order(&texts, 3, EACH);
    }

    /// Pushes by ones and by chains of three, in turn.
    fn produce(list: &TakeAllList<Letter>, from: u32, count: u32) {
        let texts: Vec<u32> = (from..from + count).collect();
        for (turn, part) in texts.chunks(3).enumerate() {
            if turn % 2 == 0 {
                push_chain(list, part);
            } else {
                part.iter().for_each(|&text| _ = push(list, text));
            }
        }
    }
}

/// Two operations a thread. Weakened by hand, each alone made these models fail: the release of
/// `push_chain`'s exchange, and the acquire of `take_all`'s, to relaxed.
///
/// In each model the taker is the last thread made, and so the last to run at first. Loom looks
/// for what an exchange races with in the last access to the word only, and there a producer's
/// own guess at the head hides the taker's earlier look: with the taker first, loom never lets it
/// take anything in mid-push, and finds no fault in either weakening. Hence also `saw_some`.
#[cfg(loom)]
mod model {
    use std::sync::{
        Arc as StdArc,
        atomic::{AtomicBool, Ordering::SeqCst},
    };

    use loom::{model::Builder, sync::Arc, thread};

    use super::*;

    /// Preemption bound 3: real faults need one or two forced switches (Musuvathi and Qadeer,
    /// *Iterative Context Bounding*, 2007), and three threads without a bound do not end soon.
    fn check(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    /// Two producers (one is the first thread) and a taker that takes once beside them; the rest is
    /// taken when all are done.
    fn check_two_producers(produce: fn(&TakeAllList<Letter>, u32)) {
        let saw_some = StdArc::new(AtomicBool::new(false));
        let saw = StdArc::clone(&saw_some);
        check(move || {
            let list = Arc::new(TakeAllList::new());
            let [second, third] = [(); 2].map(|()| Arc::clone(&list));
            let producer = thread::spawn(move || produce(&second, 1_000_000));
            let taker = thread::spawn(move || open_all(third.take_all().reverse()));
            produce(&list, 0);
            producer.join().expect("producer");
            let mut texts = taker.join().expect("taker");
            saw.fetch_or((1..4).contains(&texts.len()), SeqCst);
            texts.extend(open_all(list.take_all().reverse()));
            assert_each_in_order(&texts, 2, 2);
        });
        assert!(saw_some.load(SeqCst), "the taker never took part of the letters");
    }

    #[test]
    fn two_producers_and_a_taker_lose_nothing_and_keep_order() {
        check_two_producers(|list, from| {
            push(list, from);
            push(list, from + 1);
        });
    }

    #[test]
    fn two_producers_of_chains_and_a_taker_lose_nothing_and_keep_order() {
        check_two_producers(|list, from| {
            push_chain(list, &[from, from + 1]);
        });
    }

    #[test]
    fn exactly_one_of_two_producers_finds_the_list_empty() {
        check(|| {
            let list = Arc::new(TakeAllList::new());
            let other = Arc::clone(&list);
            let thread = thread::spawn(move || push(&other, 1));
            let found = [push(&list, 2), thread.join().expect("producer")];
            assert_eq!(found.iter().filter(|&&was| was == PushedOnto::Empty).count(), 1);
            assert_eq!(open_all(list.take_all()).len(), 2);
        });
    }

    #[test]
    fn two_takers_get_disjoint_chains() {
        check(|| {
            let list = Arc::new(TakeAllList::new());
            push(&list, 1);
            let takers = [(); 2].map(|()| {
                let list = Arc::clone(&list);
                thread::spawn(move || open_all(list.take_all()))
            });
            push(&list, 2);
            let mut texts: Vec<_> =
                takers.into_iter().flat_map(|taker| taker.join().expect("taker")).collect();
            texts.extend(open_all(list.take_all()));
            texts.sort_unstable();
            assert_eq!(texts, [1, 2]);
        });
    }
}
