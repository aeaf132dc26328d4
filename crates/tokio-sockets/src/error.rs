//! Why a network did not start, or has ended.

use std::io;
use std::net::IpAddr;

use floodwall_device::{DeviceError, InvalidDeviceSpec};
use floodwall_dispatch::{WorkerGroupError, entropy::NoEntropy};
use floodwall_packet::PoolError;
use floodwall_stack::ConfigError;
use thiserror::Error;

/// An error of starting or running a network. Each message gives a remedy in one line. It converts
/// into an [`io::Error`], so that `?` works where sockets are used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// The text names no device.
    #[error(transparent)]
    Word(#[from] InvalidDeviceSpec),
    /// The device could not be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The text is no address with its prefix length.
    #[error("{0:?} is no address with its prefix length: write one as in 192.0.2.1/24")]
    Address(String),
    /// The text is no address.
    #[error("{0:?} is no router's address: write one as in 192.0.2.254")]
    Gateway(String),
    /// An interface setting was given before a device was named.
    #[error("{0} belongs to a device: name the device first")]
    NoDevice(&'static str),
    /// The network has no device.
    #[error("a network needs a device: give one, as in .device(\"tap:fw0\")")]
    Empty,
    /// So many workers cannot be.
    #[error("there cannot be {0} workers: use 1 to {max}", max = floodwall_dispatch::WORKERS_MAX)]
    WorkerCount(usize),
    /// No link has such an MTU.
    #[error("{0} cannot be an MTU: use 68 to 65535")]
    Mtu(u32),
    /// A device value cannot be shared among workers.
    #[error("{device} has {queues} queues, and there are {workers} workers: give one queue each")]
    Queues {
        /// Which device.
        device: String,
        /// How many queues it has.
        queues: usize,
        /// How many workers there are.
        workers: usize,
    },
    /// The configuration makes no host.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No packet memory.
    #[error(transparent)]
    Memory(#[from] PoolError),
    /// The system gives no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// The workers could not start, or ended by themselves.
    #[error(transparent)]
    Workers(#[from] WorkerGroupError),
    /// The address is in use by another station on the link (duplicate address detection).
    #[error("{0} is in use by another station of the link: give another address")]
    Duplicate(IpAddr),
    /// An address did not become usable.
    #[error("{0} did not become usable in time: is the link up?")]
    NotReady(IpAddr),
    /// The system refused something.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The network has ended.
    #[error("the network has ended")]
    Ended,
}

impl From<NetworkError> for io::Error {
    fn from(error: NetworkError) -> Self {
        let kind = match &error {
            NetworkError::Word(_)
            | NetworkError::Address(_)
            | NetworkError::Gateway(_)
            | NetworkError::NoDevice(_)
            | NetworkError::Empty
            | NetworkError::WorkerCount(_)
            | NetworkError::Mtu(_)
            | NetworkError::Queues { .. }
            | NetworkError::Config(_) => io::ErrorKind::InvalidInput,
            NetworkError::Device(DeviceError::NoPrivilege { .. }) => {
                io::ErrorKind::PermissionDenied
            }
            NetworkError::Device(DeviceError::NotFound { .. }) => io::ErrorKind::NotFound,
            NetworkError::Device(DeviceError::Busy { .. }) => io::ErrorKind::ResourceBusy,
            NetworkError::Duplicate(_) => io::ErrorKind::AddrInUse,
            NetworkError::NotReady(_) => io::ErrorKind::TimedOut,
            NetworkError::Memory(_) => io::ErrorKind::OutOfMemory,
            NetworkError::Ended => io::ErrorKind::BrokenPipe,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
