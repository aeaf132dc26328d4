//! Any SYN by cookie: what comes back is what was offered or less, and nothing changed is accepted.
//!
//! The body is `floodwall_testkit::fuzz_bodies::cookie`. Run it with
//! `cargo fuzz run -s none cookie -- -max_total_time=60`.
#![no_main]
#![forbid(unsafe_code)]

libfuzzer_sys::fuzz_target!(|data: &[u8]| floodwall_testkit::fuzz_bodies::cookie(data));
