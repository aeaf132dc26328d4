//! The mailbox under ordinary threads, and under loom.

use super::*;
use crate::shim::UnsafeCell;
use crate::take_all::TakeAllLink;

/// A node with a payload that loom watches.
#[repr(align(64))]
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

fn push(mailbox: &Mailbox<Letter>, text: u32, bits: Bits) -> Bits {
    let letter = Box::new(Letter { link: TakeAllLink::new(), text: UnsafeCell::new(0) });
    // SAFETY: the letter is not shared yet.
    letter.text.with_mut(|slot| unsafe { *slot = text });
    // SAFETY: the letter is fresh, and given up.
    unsafe { mailbox.push(NonNull::from(Box::leak(letter)), bits) }
}

/// Takes all, in the order of arrival.
fn take(mailbox: &Mailbox<Letter>, clear: Bits) -> (Vec<u32>, Bits) {
    let (chain, bits) = mailbox.take(clear);
    let open = |node: NonNull<Letter>| {
        // SAFETY: the node came from `push` and was yielded once.
        let letter = unsafe { Box::from_raw(node.as_ptr()) };
        // SAFETY: the letter is ours.
        letter.text.with(|text| unsafe { *text })
    };
    (chain.reverse().map(open).collect(), bits)
}

#[cfg(not(loom))]
mod threads {
    use super::*;

    #[test]
    fn nodes_and_flags_travel_in_one_word() {
        let mailbox = Mailbox::new();
        assert_eq!(push(&mailbox, 1, Bits::QUEUED), Bits::NONE, "the first push rings");
        assert_eq!(push(&mailbox, 2, Bits::QUEUED), Bits::QUEUED);
        assert_eq!(mailbox.set(Bits::FIN), Bits::QUEUED);
        let (texts, bits) = take(&mailbox, Bits::QUEUED);
        assert_eq!((texts, bits), (vec![1, 2], Bits::QUEUED.and(Bits::FIN)));
        assert_eq!(mailbox.bits(), Bits::FIN, "only what the taker clears is cleared");
        assert!(mailbox.is_empty());
    }

    #[test]
    fn one_that_finds_something_does_not_sleep() {
        let mailbox = Mailbox::new();
        assert!(mailbox.park(Bits::FIN));
        assert!(push(&mailbox, 1, Bits::NONE).has(Bits::WAIT), "the pusher wakes");
        assert!(!mailbox.bits().has(Bits::WAIT), "and only one pusher does");
        assert!(!mailbox.park(Bits::FIN), "there is a letter");
        assert_eq!(take(&mailbox, Bits::NONE).0, [1]);
        mailbox.set(Bits::FIN);
        assert!(!mailbox.park(Bits::FIN.and(Bits::RESET)), "there is an end");
        assert!(mailbox.park(Bits::RESET), "and a consumer that ignores it sleeps");
        assert!(mailbox.set(Bits::RESET).has(Bits::WAIT));
    }

    #[test]
    fn flags_tell_their_names() {
        assert_eq!(format!("{:?}", Bits::FIN.and(Bits::GONE)), r#"{"FIN", "GONE"}"#);
    }

    /// One sends, one sleeps whenever there is nothing; all arrives, in order.
    #[test]
    fn nothing_is_lost_between_two_threads_that_sleep() {
        const LETTERS: u32 = 200_000;
        let mailbox = Mailbox::new();
        let woken = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                for text in 0..LETTERS {
                    if push(&mailbox, text, Bits::NONE).has(Bits::WAIT) {
                        woken.store(true, std::sync::atomic::Ordering::Release);
                    }
                }
            });
            let mut next = 0;
            while next < LETTERS {
                for text in take(&mailbox, Bits::NONE).0 {
                    assert_eq!(text, next);
                    next += 1;
                }
                if next < LETTERS && mailbox.park(Bits::NONE) {
                    while !woken.swap(false, std::sync::atomic::Ordering::AcqRel) {
                        std::thread::yield_now();
                    }
                }
            }
            sender.join().unwrap();
        });
    }
}

/// Weakened by hand, each made a model fail: `change`'s release and its acquire (all three with a
/// payload), and a `park` that sleeps although a node is there (deadlock).
#[cfg(loom)]
mod model {
    use loom::{sync::Notify, thread};

    use super::*;
    use crate::Doorbell;
    use crate::shim::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    };

    struct Shared {
        mailbox: Mailbox<Letter>,
        /// Stands for a waker: the thread that finds `WAIT` notifies it. A wait that never ends
        /// fails the model.
        waker: Notify,
    }

    impl Shared {
        fn send(&self, text: u32) {
            if push(&self.mailbox, text, Bits::QUEUED).has(Bits::WAIT) {
                self.waker.notify();
            }
        }

        fn receive(&self, count: usize) -> Vec<u32> {
            let mut texts = Vec::new();
            loop {
                texts.extend(take(&self.mailbox, Bits::QUEUED).0);
                if texts.len() == count {
                    return texts;
                }
                if self.mailbox.park(Bits::NONE) {
                    self.waker.wait();
                }
            }
        }
    }

    fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(preemptions);
        builder.check(model);
    }

    fn shared() -> Arc<Shared> {
        Arc::new(Shared { mailbox: Mailbox::new(), waker: Notify::new() })
    }

    #[test]
    fn a_sleeping_reader_is_told_of_every_letter() {
        bounded(3, || {
            let ours = shared();
            let sender = Arc::clone(&ours);
            let thread = thread::spawn(move || (1..=2).for_each(|text| sender.send(text)));
            assert_eq!(ours.receive(2), [1, 2]);
            thread.join().unwrap();
        });
    }

    #[test]
    fn two_senders_and_a_sleeper_lose_nothing() {
        bounded(2, || {
            let ours = shared();
            let threads = [1, 2].map(|text| {
                let sender = Arc::clone(&ours);
                thread::spawn(move || sender.send(text))
            });
            let mut texts = ours.receive(2);
            texts.sort_unstable();
            assert_eq!(texts, [1, 2]);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    /// The reader goes while the sender pushes: the letter is either refused by what the sender
    /// finds, or found by the reader as unread.
    #[test]
    fn a_message_to_a_closing_reader_is_seen_by_one_of_the_two() {
        bounded(3, || {
            let ours = shared();
            let sender = Arc::clone(&ours);
            let thread =
                thread::spawn(move || push(&sender.mailbox, 7, Bits::NONE).has(Bits::GONE));
            ours.mailbox.set(Bits::GONE);
            let unread = take(&ours.mailbox, Bits::NONE).0;
            let refused = thread.join().unwrap();
            let late = take(&ours.mailbox, Bits::NONE).0;
            assert_eq!(unread.len() + late.len(), 1);
            assert!(refused || unread == [7], "delivered, or known to be refused");
        });
    }

    /// A slot as a socket has it: a mailbox, its link in a doorbell, and memory that belongs to its
    /// user until the user's last access.
    struct Slot {
        mailbox: Mailbox<Letter>,
        link: AtomicU32,
        memory: UnsafeCell<u32>,
    }

    // SAFETY: as the model checks, the memory is not touched by two at a time.
    unsafe impl Send for Slot {}
    // SAFETY: as above.
    unsafe impl Sync for Slot {}

    /// What one of the two could do wrong.
    #[derive(Clone, Copy, PartialEq)]
    enum Mistake {
        None,
        /// The user looks at its slot behind the exchange although it need not ring.
        UserLingers,
        /// The worker takes the mailbox of a slot that has not rung.
        WorkerTakesUnrung,
    }

    /// The user has sent and rung, lets go, and rings for that where it must; the worker comes by
    /// twice, takes the mailbox only where the slot has rung, and frees the slot once it has seen
    /// that the user let go.
    fn letting_go(mistake: Mistake) {
        bounded(2, move || {
            let slot = Slot {
                mailbox: Mailbox::new(),
                link: AtomicU32::new(0),
                memory: UnsafeCell::new(0),
            };
            let ours = Arc::new((slot, Doorbell::new()));
            let theirs = Arc::clone(&ours);
            assert_eq!(push(&ours.0.mailbox, 1, Bits::QUEUED), Bits::NONE);
            ours.1.ring(0, &ours.0.link).unwrap();
            let user = thread::spawn(move || {
                let (slot, bell) = &*theirs;
                // Behind the exchange the slot is the user's only if it still has to ring.
                let rings = !slot.mailbox.set(Bits::DROPPED.and(Bits::QUEUED)).has(Bits::QUEUED);
                if rings || mistake == Mistake::UserLingers {
                    thread::yield_now();
                    slot.memory.with(|_| ());
                }
                if rings {
                    bell.ring(0, &slot.link).unwrap();
                }
            });
            let (slot, bell) = &*ours;
            let (mut letters, mut free) = (0, false);
            for _ in 0..2 {
                let rung = bell.take(|index| (index == 0).then_some(&slot.link)).count();
                let takes = mistake == Mistake::WorkerTakesUnrung;
                for _ in 0..rung.max(usize::from(takes)) {
                    let (texts, bits) = take(&slot.mailbox, Bits::QUEUED);
                    letters += texts.len();
                    free |= bits.has(Bits::DROPPED);
                }
                if free {
                    // The next user's.
                    slot.memory.with_mut(|_| ());
                    break;
                }
            }
            user.join().unwrap();
            if !free {
                letters += take(&slot.mailbox, Bits::NONE).0.len();
            }
            assert_eq!(letters, 1, "lost, or found twice");
        });
    }

    #[test]
    fn a_slot_is_used_again_only_after_its_users_last_access() {
        letting_go(Mistake::None);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn a_user_that_lingers_is_found_in_the_next_users_slot() {
        letting_go(Mistake::UserLingers);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn a_slot_with_its_ring_still_to_come_must_not_be_freed() {
        letting_go(Mistake::WorkerTakesUnrung);
    }

    /// What one socket's program and two workers share: what arrived, and an error's number.
    #[derive(Default)]
    struct Socket {
        rx: Mailbox<Letter>,
        error: AtomicU32,
        /// Letters that were not read when the slot was cleared.
        unread: AtomicU32,
    }

    impl Socket {
        fn clear(&self) {
            let unread = take(&self.rx, Bits::RESET.and(Bits::GONE).and(Bits::WAIT)).0.len();
            self.unread.fetch_add(unread as u32, Ordering::AcqRel);
            self.error.swap(0, Ordering::AcqRel);
        }
    }

    /// A worker's knowledge of the slot: the last one to forget it clears it.
    struct Known(Arc<Socket>);

    impl Drop for Known {
        fn drop(&mut self) {
            self.0.clear();
        }
    }

    /// A program lets go while a worker delivers an error with the last datagram. The control shard
    /// detects it, and the slot is cleared when both workers have released it; or, `too_early`, by
    /// the control shard at once.
    fn dropped_against_reset(too_early: bool) {
        bounded(2, move || {
            let socket = Arc::new(Socket::default());
            let tx = Arc::new(Mailbox::<Letter>::new());
            let known = (!too_early).then(|| Arc::new(Known(Arc::clone(&socket))));
            let delivers = thread::spawn({
                let (socket, known) = (Arc::clone(&socket), known.clone());
                move || {
                    socket.error.swap(111, Ordering::AcqRel);
                    push(&socket.rx, 1, Bits::RESET);
                    drop(known);
                }
            });
            let program = thread::spawn({
                let (socket, tx) = (Arc::clone(&socket), Arc::clone(&tx));
                move || {
                    socket.rx.set(Bits::GONE);
                    let unread = take(&socket.rx, Bits::NONE).0.len();
                    tx.set(Bits::DROPPED.and(Bits::QUEUED));
                    unread
                }
            });
            let close = |known| if too_early { socket.clear() } else { drop(known) };
            let heard = take(&tx, Bits::QUEUED).1.has(Bits::DROPPED);
            let known = if heard {
                _ = close(known);
                None
            } else {
                Some(known)
            };
            delivers.join().unwrap();
            let unread = program.join().unwrap();
            known.into_iter().for_each(close);
            let left =
                (socket.rx.is_empty(), socket.rx.bits(), socket.error.load(Ordering::Acquire));
            assert_eq!(left, (true, Bits::NONE, 0), "the next user would find it");
            assert_eq!(unread as u32 + socket.unread.load(Ordering::Acquire), 1, "read or dropped");
        });
    }

    #[test]
    fn the_next_user_of_a_slot_finds_nothing_of_an_error_that_came_as_the_last_one_left() {
        dropped_against_reset(false);
    }

    #[test]
    #[should_panic(expected = "the next user would find it")]
    fn a_slot_that_is_cleared_before_every_worker_has_forgotten_it_is_not_clean() {
        dropped_against_reset(true);
    }

    /// Why the flag stands in the word: set apart from it, after a look, it comes too late.
    #[test]
    #[should_panic(expected = "asleep for ever")]
    fn a_naive_sleeper_sleeps_for_ever() {
        bounded(3, || {
            let ours = shared();
            let waits = Arc::new(AtomicBool::new(false));
            let (sender, flag) = (Arc::clone(&ours), Arc::clone(&waits));
            let thread = thread::spawn(move || {
                push(&sender.mailbox, 1, Bits::NONE);
                flag.swap(false, Ordering::AcqRel)
            });
            let empty = ours.mailbox.is_empty();
            if empty {
                waits.store(true, Ordering::Release);
            }
            let told = thread.join().unwrap();
            take(&ours.mailbox, Bits::NONE);
            assert!(!empty || told, "asleep for ever");
        });
    }
}
