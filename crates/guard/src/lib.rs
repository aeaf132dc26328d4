//! SYN cookies in front of the services of the kernel's own stack.
//!
//! Used by `floodwall guard`. A [`Guard`] loads the programs of `floodwall_bpf::cookie::host`,
//! attaches them to an interface and follows what they depend on: sysctls, the MTU, addresses, the
//! secret, the wall clock. Nothing of the interface or the namespace is changed but the two links,
//! which go with the process unless they are pinned. Start reading at `guard.rs`. Reading:
//! `docs/guard.md`. Not here: arguments, output (crate `cli`).
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod addresses;
#[cfg(target_os = "linux")]
mod check;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
mod facts;
#[cfg(target_os = "linux")]
mod guard;
#[cfg(target_os = "linux")]
mod loaded;
#[cfg(target_os = "linux")]
mod notice;
#[cfg(target_os = "linux")]
pub mod pins;
#[cfg(target_os = "linux")]
mod rules;
#[cfg(target_os = "linux")]
mod status;
#[cfg(target_os = "linux")]
mod trial;

#[cfg(target_os = "linux")]
pub use floodwall_bpf::cookie::host::DatagramProtocol;

#[cfg(target_os = "linux")]
pub use self::{
    check::{GuardFinding, Trouble, check},
    error::GuardError,
    facts::{Facts, ListeningPorts},
    guard::{Guard, GuardConfig, UdpPort, Watch},
    notice::Notice,
    status::{PortStatus, REFUSED_MAX, RefusedPrefix, Status},
};
