//! One test per rule; the test's name is the rule.

mod arrival;
mod closing;
mod opening;
mod peers;
mod segment_size;
mod sending;
