//! A planted fault: a fuzzer that does not find it within seconds is blind.
//!
//! The body is `floodwall_testkit::fuzz_bodies::canary`. Run it with
//! `cargo fuzz run -s none canary -- -max_total_time=60`.
#![no_main]
#![forbid(unsafe_code)]

libfuzzer_sys::fuzz_target!(|data: &[u8]| floodwall_testkit::fuzz_bodies::canary(data));
