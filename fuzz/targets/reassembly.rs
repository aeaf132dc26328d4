//! Any fragments in any order, against flat bytes.
//!
//! The body is `floodwall_testkit::fuzz_bodies::reassembly`. Run it with
//! `cargo fuzz run -s none reassembly -- -max_total_time=60`.
#![no_main]
#![forbid(unsafe_code)]

libfuzzer_sys::fuzz_target!(|data: &[u8]| floodwall_testkit::fuzz_bodies::reassembly(data));
