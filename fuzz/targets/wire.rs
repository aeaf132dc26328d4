//! Any bytes as a frame: parse, show, write again; whole and in chunks.
//!
//! The body is `floodwall_testkit::fuzz_bodies::wire`. Run it with
//! `cargo fuzz run -s none wire -- -max_total_time=60`.
#![no_main]
#![forbid(unsafe_code)]

libfuzzer_sys::fuzz_target!(|data: &[u8]| floodwall_testkit::fuzz_bodies::wire(data));
