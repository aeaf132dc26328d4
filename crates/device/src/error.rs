//! `DeviceError`: what went wrong with which device, and what to do about it.
//!
//! Every message names the device, what was missing and the remedy, because an operator reads it
//! before anything runs. Made when a device is opened, and at most once when it goes away.

use std::io;

use thiserror::Error;

/// See the file's head.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The process may not do what the device needs.
    #[error(
        "{device}: may not {action}: {missing} is missing; run as root, or grant it once with \
         `sudo setcap cap_net_admin,cap_net_raw+ep <binary>`"
    )]
    NoPrivilege {
        /// Which device.
        device: String,
        /// What was tried.
        action: &'static str,
        /// Which capability or permission is missing.
        missing: &'static str,
    },
    /// There is no such device.
    #[error("{device}: not found: {missing} does not exist; {remedy}")]
    NotFound {
        /// Which device.
        device: String,
        /// What does not exist.
        missing: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// Somebody else has the device.
    #[error(
        "{device}: busy: another process, or another instance here, holds it; stop that one (`lsof \
         /dev/net/tun` may show it), or choose another name"
    )]
    Busy {
        /// Which device.
        device: String,
    },
    /// The device vanished while it was used.
    #[error("{device}: gone: the interface was deleted; create it again and open it anew")]
    Gone {
        /// Which device.
        device: String,
    },
    /// The system or the device cannot do what was asked.
    #[error("{device}: {missing} is not supported here; {remedy}")]
    Unsupported {
        /// Which device.
        device: String,
        /// What cannot be done.
        missing: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// The system refused for another reason.
    #[error("{device}: cannot {action}: {source}")]
    Io {
        /// Which device.
        device: String,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl DeviceError {
    /// The device's name.
    #[must_use]
    pub fn device(&self) -> &str {
        match self {
            Self::NoPrivilege { device, .. }
            | Self::NotFound { device, .. }
            | Self::Busy { device }
            | Self::Gone { device }
            | Self::Unsupported { device, .. }
            | Self::Io { device, .. } => device,
        }
    }

    /// What the system's answer to `action` on an open or opening device means.
    #[cfg(target_os = "linux")]
    pub(crate) fn from_system(device: &str, action: &'static str, source: io::Error) -> Self {
        let device = device.to_owned();
        match source.raw_os_error() {
            Some(libc::EPERM) => Self::NoPrivilege { device, action, missing: "CAP_NET_ADMIN" },
            Some(libc::EBUSY) => Self::Busy { device },
            Some(libc::EBADFD | libc::ENODEV | libc::ENXIO) => Self::Gone { device },
            _ => Self::Io { device, action, source },
        }
    }
}
