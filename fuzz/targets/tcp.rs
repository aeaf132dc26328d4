//! Any segment into any state of a TCP connection, with sequence numbers put right.
//!
//! The body is `floodwall_testkit::fuzz_bodies::tcp`. Run it with
//! `cargo fuzz run -s none tcp -- -max_total_time=60`.
#![no_main]
#![forbid(unsafe_code)]

libfuzzer_sys::fuzz_target!(|data: &[u8]| floodwall_testkit::fuzz_bodies::tcp(data));
