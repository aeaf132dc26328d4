//! The programs beside `syncache` and `wire`: the same cookies, the same answers, the same
//! verdicts.

mod answers;
mod bad;
mod datagrams;
mod host;
mod proofs;
mod ranks;
mod rig;
