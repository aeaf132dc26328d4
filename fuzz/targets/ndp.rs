//! Any sequence of neighbour and router messages and clock steps into a host that accepts router
//! advertisements.
//!
//! The body is `floodwall_testkit::fuzz_bodies::ndp`. Run it with
//! `cargo fuzz run -s none ndp -- -max_total_time=60`.
#![no_main]
#![forbid(unsafe_code)]

libfuzzer_sys::fuzz_target!(|data: &[u8]| floodwall_testkit::fuzz_bodies::ndp(data));
