//! The vocabulary of the Floodwall stack: words that everyone uses, and no behaviour.
#![forbid(unsafe_code)]

mod mac;

pub use mac::{MacAddr, ParseMacError};
