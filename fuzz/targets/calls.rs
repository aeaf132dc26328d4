//! Calls of sockets from several threads at once.
//!
//! The body is `floodwall_testkit::fuzz_bodies::calls`. Run it with
//! `cargo fuzz run -s none calls -- -max_total_time=60`. What it finds may depend on the order of
//! threads: run a finding again until it shows.
#![no_main]
#![forbid(unsafe_code)]

libfuzzer_sys::fuzz_target!(|data: &[u8]| floodwall_testkit::fuzz_bodies::calls(data));
