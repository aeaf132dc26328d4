//! Any sequence of frames into a host with sockets, in virtual time.
//!
//! The body is `floodwall_testkit::fuzz_bodies::stack_frame`. Run it with
//! `cargo fuzz run -s none stack_frame -- -max_total_time=60`.
#![no_main]
#![forbid(unsafe_code)]

libfuzzer_sys::fuzz_target!(|data: &[u8]| floodwall_testkit::fuzz_bodies::stack_frame(data));
