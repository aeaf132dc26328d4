//! Any program of operations on packets, against flat bytes.
//!
//! The body is `floodwall_testkit::fuzz_bodies::pulldown`. Run it with
//! `cargo fuzz run -s none pulldown -- -max_total_time=60`.
#![no_main]
#![forbid(unsafe_code)]

libfuzzer_sys::fuzz_target!(|data: &[u8]| floodwall_testkit::fuzz_bodies::pulldown(data));
