//! The command as a daemon: its whole life, its log, what an operator asks it, its reports.
//!
//! One binary, so that tests which mostly wait for other processes wait beside one another. Most
//! need root, for a network namespace and a TAP each, and say where they were skipped.
#![expect(clippy::unwrap_used, reason = "what a test cannot do without ends the test")]
#![expect(clippy::disallowed_methods, reason = "the tests wait for other processes")]

mod address;
mod capture;
mod incidents;
mod lifetime;
mod logs;
mod operator;
mod reload;
mod report;
mod support;
mod terminal;
mod units;
