//! Faults on purpose, one of each sort that the sanitizers are run for: `cargo xtask sanitize` runs
//! them first and goes on only if each is reported. Nothing here unless a sanitizer is on.
#![cfg(sanitized)]
#![expect(clippy::disallowed_methods, reason = "a race takes two threads")]

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::Arc;
use std::thread;

/// A number that two threads write and nothing orders.
struct Unordered(UnsafeCell<u64>);

// SAFETY: it is not sound, and that is what is to be reported: `race` writes it from two threads.
unsafe impl Sync for Unordered {}

#[test]
#[ignore = "a fault on purpose: `cargo xtask sanitize thread` must see it"]
fn race() {
    let number = Arc::new(Unordered(UnsafeCell::new(0)));
    let write = |number: Arc<Unordered>| {
        move || {
            for n in 0..1000 {
                // SAFETY: the place is live; that there is no other writer is not true, on purpose.
                unsafe { black_box(number.0.get()).write(n) };
            }
        }
    };
    let other = thread::spawn(write(number.clone()));
    write(number)();
    other.join().unwrap();
}

#[test]
#[ignore = "a fault on purpose: `cargo xtask sanitize address` must see it"]
fn leak() {
    // In a thread of its own: on this one's stack a copy of the address might outlive it.
    let lose = || core::mem::forget(black_box(vec![7_u8; 4321]));
    thread::spawn(lose).join().unwrap();
}

#[test]
#[ignore = "a fault on purpose: `cargo xtask sanitize address` must see it"]
fn use_after_free() {
    let memory = Box::new(7_u64);
    let place = black_box(core::ptr::from_ref(&*memory));
    drop(memory);
    // SAFETY: it is not sound, and that is what is to be reported: the box is gone.
    black_box(unsafe { place.read_volatile() });
}
