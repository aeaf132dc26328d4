//! `DeviceError`: what went wrong with which device, and what to do about it.
//!
//! Every message names the device, what was missing and the remedy, because an operator reads it
//! before anything runs. Made when a device is opened, and at most once when it goes away.

use std::io;

use thiserror::Error;

/// An error of opening or using a device. The message names the device and a remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The process may not do what the device needs.
    #[error(
        "{device}: may not {action}: {missing} is missing; run as root, or grant it once with \
         `sudo setcap {}+ep <binary>`",
        capabilities(missing)
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
    #[error("{device}: not found: {missing} does not exist; {}", named(remedy, device))]
    NotFound {
        /// Which device.
        device: String,
        /// What does not exist.
        missing: &'static str,
        /// The remedy; `INTERFACE` in it stands for the device's name.
        remedy: &'static str,
    },
    /// The device is in use by another process or instance.
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
    /// The system or the device does not support the request.
    #[error("{device}: {missing} is not supported here; {}", named(remedy, device))]
    Unsupported {
        /// Which device.
        device: String,
        /// What cannot be done.
        missing: &'static str,
        /// The remedy; `INTERFACE` in it stands for the device's name.
        remedy: &'static str,
    },
    /// The system refused for another reason.
    #[error("{device}: cannot {action}: {source}")]
    Io {
        /// Which device.
        device: String,
        /// What was tried.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// What a binary is granted that lacks this.
fn capabilities(missing: &str) -> &'static str {
    if missing.contains("CAP_BPF") {
        "cap_net_admin,cap_net_raw,cap_bpf"
    } else {
        "cap_net_admin,cap_net_raw"
    }
}

/// A remedy that can be copied to a shell, with the device's name without its suffix after a colon.
pub(crate) fn named(remedy: &str, device: &str) -> String {
    remedy.replace("INTERFACE", device.split(':').next().unwrap_or(device))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_can_be_copied_as_it_stands() {
        let lacks = |missing| DeviceError::NoPrivilege {
            device: "fw0".to_owned(),
            action: "open it",
            missing,
        };
        let text = lacks("one of CAP_NET_RAW and CAP_BPF").to_string();
        assert!(text.contains("setcap cap_net_admin,cap_net_raw,cap_bpf+ep"), "{text}");
        let text = lacks("CAP_NET_ADMIN").to_string();
        assert!(text.contains("setcap cap_net_admin,cap_net_raw+ep"), "{text}");
        for device in ["fw0", "fw0: behind the worker"] {
            let error = DeviceError::Unsupported {
                device: device.to_owned(),
                missing: "this MTU",
                remedy: "lower it with `ip link set dev INTERFACE mtu 1500`",
            };
            assert!(error.to_string().ends_with("`ip link set dev fw0 mtu 1500`"), "{error}");
        }
    }
}
