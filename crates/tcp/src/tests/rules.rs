//! One test for each rule, its name the rule.

mod arrival;
mod closing;
mod opening;
mod sending;
