//! Any sequence of SYNs, ACKs, resets, errors, closings and time, against a model.
//!
//! The body is `floodwall_testkit::fuzz_bodies::syncache`. Run it with
//! `cargo fuzz run -s none syncache -- -max_total_time=60`.
#![no_main]
#![forbid(unsafe_code)]

libfuzzer_sys::fuzz_target!(|data: &[u8]| floodwall_testkit::fuzz_bodies::syncache(data));
