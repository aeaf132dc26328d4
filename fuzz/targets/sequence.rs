//! Frames, clock steps and a host's own doings in any order, in virtual time.
//!
//! The body is `floodwall_testkit::fuzz_bodies::sequence`. Run it with
//! `cargo fuzz run -s none sequence -- -max_total_time=60`.
#![no_main]
#![forbid(unsafe_code)]

libfuzzer_sys::fuzz_target!(|data: &[u8]| floodwall_testkit::fuzz_bodies::sequence(data));
