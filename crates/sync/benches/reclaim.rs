//! What a reader pays for reclamation in each burst: a view and a quiescent state at its end,
//! against `crossbeam-epoch` (pin and unpin) and `seize` (a guard), and against nothing at all.
//!
//! A burst here is one look at the shared value, so that only the reader's duty is left. Twice:
//! while the value stays, and while a writer on another core replaces it 100,000 times a second.
//! Rounds of all rivals are interleaved and medians are printed; trust ratios, not figures. Every
//! look is checked: the value is whole, and never older than the one seen before. Run it with
//! `cargo bench -p floodwall-sync --bench reclaim`.
#![cfg(not(loom))]

use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use std::thread;
use std::time::{Duration, Instant as Clock};

use crossbeam_epoch::{Atomic, Collector as Epochs, Owned};
use floodwall_base::Instant;
use floodwall_sync::RcuCell;
use floodwall_sync::qsbr::{Domain, Limbo, LimboCaps, Moment};
use seize::{Collector as Seized, Guard as _};

/// So few that a round is over before the machine has something else to do.
const BURSTS: u64 = 100_000;
const ROUNDS: usize = 151;
const RATE: u64 = 100_000;
/// A burst of the product: 64 packets.
const BAR_NANOS: f64 = 5.0;

/// What is shared: a number twice, so that half a value is noticed.
struct Value([u64; 2]);

impl Value {
    const fn new(number: u64) -> Self {
        Self([number, !number])
    }

    /// Its number, at least `last`.
    #[inline]
    fn check(&self, last: u64) -> u64 {
        let Self([number, complement]) = *black_box(self);
        assert!(number == !complement && number >= last, "{number} after {last}, {complement}");
        number
    }
}

/// A rival: how long its bursts take; `writer` selects whether a writer runs meanwhile.
type Run = fn(bool) -> Duration;

fn main() {
    let rivals: [(&str, Run); 4] =
        [("nothing", nothing), ("floodwall", ours), ("crossbeam", crossbeam), ("seize", seized)];
    for replaced in [false, true] {
        let mut rounds = rivals.map(|_| Vec::with_capacity(ROUNDS));
        for _ in 0..ROUNDS {
            for ((_, run), times) in rivals.iter().zip(&mut rounds) {
                times.push(run(replaced));
            }
        }
        let nanos = rounds.map(|times| median(times).as_nanos() as f64 / BURSTS as f64);
        let how = if replaced { "replaced 100,000 times a second" } else { "left alone" };
        println!("value {how}: {BURSTS} bursts, medians of {ROUNDS} rounds");
        let duty = |nanos_of: f64| (nanos_of - nanos[0]).max(0.0);
        for ((name, _), nanos_of) in rivals.iter().zip(nanos) {
            let ratio = duty(nanos_of) / duty(nanos[1]).max(0.5);
            println!(
                "  {name:10} {nanos_of:7.2} ns/burst, {:6.2} the reader's duty, {ratio:5.1} x",
                duty(nanos_of)
            );
        }
        let verdict = if duty(nanos[1]) < BAR_NANOS { "kept" } else { "MISSED" };
        println!("  bar: the duty is under {BAR_NANOS} ns a burst: {verdict}");
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn clock() -> Clock {
    Clock::now()
}

/// Times `burst`, called with its number and the number seen last, while `replace` is called at
/// its pace by another thread, if at all. `replace` gets numbers that grow.
fn timed(
    replaced: bool,
    mut burst: impl FnMut(u64, u64) -> u64,
    mut replace: impl FnMut(u64) + Send,
) -> Duration {
    let (started, done) = (AtomicBool::new(!replaced), AtomicBool::new(false));
    let newest = AtomicU64::new(0);
    thread::scope(|scope| {
        if replaced {
            scope.spawn(|| {
                let start = clock();
                let mut number = 0;
                while !done.load(Relaxed) {
                    let due = start.elapsed().as_nanos() as u64 * RATE / 1_000_000_000;
                    if number < due {
                        number += 1;
                        newest.store(number, Relaxed);
                        replace(number);
                    } else {
                        std::hint::spin_loop();
                    }
                    started.store(true, Relaxed);
                }
            });
        }
        while !started.load(Relaxed) {
            thread::yield_now();
        }
        let start = clock();
        let mut last = 0;
        for n in 0..BURSTS {
            last = burst(n, last);
        }
        let took = start.elapsed();
        done.store(true, Relaxed);
        assert!(last <= newest.load(Relaxed), "{last} was never written");
        took
    })
}

/// The value itself, which is not freed before the end.
fn nothing(replaced: bool) -> Duration {
    let shown = AtomicPtr::new(Box::into_raw(Box::new(Value::new(0))));
    let mut old = Vec::with_capacity(1 << 20);
    let kept = &mut old;
    // SAFETY: nothing is freed before the end.
    let burst = |_, last| unsafe { &*shown.load(Acquire) }.check(last);
    let took = timed(replaced, burst, |number| {
        let new = Box::into_raw(Box::new(Value::new(number)));
        kept.push(shown.swap(new, AcqRel).expose_provenance());
    });
    old.push(shown.load(Acquire).expose_provenance());
    for value in old {
        // SAFETY: each came from a box and was kept once; both threads are done.
        drop(unsafe { Box::from_raw(ptr::with_exposed_provenance_mut::<Value>(value)) });
    }
    took
}

fn ours(replaced: bool) -> Duration {
    let domain = Domain::new(1);
    let cell = RcuCell::new(&domain, Box::new(Value::new(0)));
    let mut limbo: Limbo<_> = domain.limbo(LimboCaps { items: 1 << 16, bytes: 1 << 20 });
    let mut reader = domain.reader().expect("the first of one");
    let burst = |n, last| {
        let seen = cell.load(reader.view()).check(last);
        reader.pass(Moment::RoundEnd, Instant::from_nanos(n));
        seen
    };
    timed(replaced, burst, |number| {
        let now = Instant::from_nanos(number);
        let _ = cell.replace(Box::new(Value::new(number)), 16, &mut limbo, now);
        limbo.reclaim(|| now, drop);
    })
}

fn crossbeam(replaced: bool) -> Duration {
    let epochs = Epochs::new();
    let shown = Atomic::new(Value::new(0));
    let handle = epochs.register();
    let burst = |_, last| {
        let guard = handle.pin();
        // SAFETY: the guard keeps the loaded value allocated, and the cell is never empty.
        unsafe { shown.load(Acquire, &guard).deref() }.check(last)
    };
    let mut writer = None;
    let took = timed(replaced, burst, |number| {
        // A handle belongs to the thread that uses it.
        let handle = writer.get_or_insert_with(|| Sent(epochs.register()));
        let guard = handle.0.pin();
        let old = shown.swap(Owned::new(Value::new(number)), AcqRel, &guard);
        // SAFETY: it was unlinked by this, the only writer.
        unsafe { guard.defer_destroy(old) };
    });
    // SAFETY: both threads are done with the value.
    drop(unsafe { shown.into_owned() });
    took
}

/// A handle that its thread has made and leaves behind when it ends.
struct Sent(crossbeam_epoch::LocalHandle);

// SAFETY: it is made and used by the writer's thread alone, and dropped after that has ended.
unsafe impl Send for Sent {}

fn seized(replaced: bool) -> Duration {
    /// Frees a value.
    ///
    /// # Safety
    /// It came from a box, and no reader holds it any more.
    unsafe fn free(value: *mut Value, _: &Seized) {
        // SAFETY: guaranteed by the caller.
        drop(unsafe { Box::from_raw(value) });
    }
    let collector = Seized::new();
    let shown = AtomicPtr::new(Box::into_raw(Box::new(Value::new(0))));
    let burst = |_, last| {
        let guard = collector.enter();
        // SAFETY: the guard keeps the value allocated, and the pointer came from a box.
        unsafe { &*guard.protect(&shown, Acquire) }.check(last)
    };
    let took = timed(replaced, burst, |number| {
        let guard = collector.enter();
        let new = Box::into_raw(Box::new(Value::new(number)));
        let old = guard.swap(&shown, new, AcqRel);
        // SAFETY: it was unlinked by this, the only writer, and came from a box.
        unsafe { guard.defer_retire(old, free) };
    });
    // SAFETY: both threads are done; what is shown came from a box and was not retired.
    drop(unsafe { Box::from_raw(shown.load(Acquire)) });
    took
}
