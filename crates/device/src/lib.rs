//! Packet devices: everything that receives and transmits packets.
//!
//! One trait, [`Device`]. Devices: [`MemoryWire`] (in one process, or several at a [`Switch`]),
//! `Tun`, `AfPacket` and `AfXdp` (Linux), [`Replay`] (a capture file). Wrappers: [`Recorder`] and
//! [`Fault`]. `dispatch` and the programs call it; engines do not use devices.
//!
//! Invariants: no call ever blocks; a packet that a device loses is counted under a name in
//! [`DeviceStats`]; what a device has no room for stays with the caller. Every [`DeviceError`]
//! names the device, what was missing, and the remedy. Start reading at `device.rs`.
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[cfg(target_os = "linux")]
mod af_packet;
#[cfg(target_os = "linux")]
mod af_xdp;
mod capture;
mod copy;
mod device;
mod error;
mod fault;
mod first_line_mode;
mod first_line_place;
mod first_line_report;
#[cfg(target_os = "linux")]
mod gather;
#[cfg(target_os = "linux")]
mod gso_join;
#[cfg(target_os = "linux")]
pub mod host_bpf;
#[cfg(target_os = "linux")]
mod interface;
mod link_state;
#[cfg(target_os = "linux")]
mod live_sender;
mod memory_wire;
#[cfg(target_os = "linux")]
mod napi;
mod napi_policy;
mod napi_rank;
mod napi_report;
#[cfg(target_os = "linux")]
mod packet_arrival;
#[cfg(target_os = "linux")]
mod packet_ring;
mod service_sample;
#[cfg(target_os = "linux")]
mod socket;
mod spec;
mod stats;
#[cfg(target_os = "linux")]
mod super_limits;
mod switch;
mod thread_time;
#[cfg(target_os = "linux")]
mod tun;
mod vnet;
mod xdp_mode;

#[cfg(target_os = "linux")]
pub use af_packet::{AfPacket, AfPacketConfig};
#[cfg(target_os = "linux")]
pub use af_xdp::{AfXdp, AfXdpConfig, FirstLine, FirstLineState, OpenedXdp};
pub use capture::{
    AnnotatedPacket, AnnotatedWriter, Capture, CaptureError, CapturedPacket, LinkType, Recorder,
    RecorderConfig, Replay, Truncation, parse_capture, read_capture,
};
pub use device::{Device, DeviceInfo, Medium};
pub use error::DeviceError;
pub use fault::{Fault, FaultConfig, FaultCounts, FaultRates};
pub use first_line_mode::FirstLineMode;
pub use first_line_place::FirstLinePlace;
pub use first_line_report::{FirstLinePart, FirstLinePartState, FirstLineReport};
pub use link_state::LinkState;
#[cfg(target_os = "linux")]
pub use live_sender::{LiveConfig, LiveSender, LiveWord};
pub use memory_wire::{MemoryWire, WireConfig, pair, pair_of};
#[cfg(target_os = "linux")]
pub use napi::{HalfStanding, Placement, PlacementConfig};
pub use napi_policy::{InvalidNapiPolicy, NapiPolicy, NapiPriority};
pub use napi_rank::NapiRank;
pub use napi_report::{MissingCapability, PlacementReport};
pub use service_sample::ServiceSample;
pub use socket::Accept;
pub use spec::{
    DeviceKind, DeviceSpec, InvalidDeviceSpec, OpenConfig, OpenedDevice, stable_secret,
    station_address,
};
pub use stats::DeviceStats;
pub use switch::{Switch, SwitchConfig, SwitchCounts};
pub use thread_time::ThreadTime;
#[cfg(target_os = "linux")]
pub use tun::{Tun, TunConfig, TunKind};
pub use xdp_mode::XdpMode;
