//! One file a command.

pub(crate) mod address;
pub(crate) mod capture;
pub(crate) mod check;
pub(crate) mod cleanup;
#[cfg(feature = "lab")]
pub(crate) mod cost;
pub(crate) mod drill;
pub(crate) mod explain;
pub(crate) mod guard;
#[cfg(feature = "lab")]
pub(crate) mod lab;
pub(crate) mod neigh;
pub(crate) mod paper;
pub(crate) mod pktgen;
pub(crate) mod reload;
pub(crate) mod route;
pub(crate) mod run;
pub(crate) mod self_test;
pub(crate) mod socket;
pub(crate) mod stat;
pub(crate) mod top;
