//! A steering program is attached to its interface: by the best way that is wanted and supported.
//!
//! Called by the devices that have such a program, when they open (`af_xdp.rs`, `packet_line.rs`).

use std::io;

use super::bpf::Attach;
use super::failure::{failed, unsupported};
use super::steering::QueueSteering;
use crate::error::DeviceError;
use crate::xdp_mode::XdpMode;

/// Attaches the program by the best way that is wanted and that there is.
pub(super) fn attach(
    name: &str,
    steering: &QueueSteering,
    index: u32,
    mode: XdpMode,
    notes: &mut Vec<String>,
) -> Result<(), DeviceError> {
    let refused = |error: io::Error| match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => unsupported(
            name,
            "a second XDP program on the interface",
            "detach the other program first (`bpftool net`, `ip link` show it)",
        ),
        _ => failed(name, "attach the program to the interface", error),
    };
    if mode == XdpMode::Generic {
        notes.push("generic XDP, as configured".to_owned());
        return steering.attach(index, Attach::Generic).map_err(refused);
    }
    match steering.attach(index, Attach::Native) {
        Ok(()) => {
            notes.push("native XDP".to_owned());
            Ok(())
        }
        Err(error) if mode == XdpMode::Auto && is_unfit(&error) => {
            notes.push(format!("generic XDP: the driver does not support native ({error})"));
            steering.attach(index, Attach::Generic).map_err(refused)
        }
        Err(error) => Err(refused(error)),
    }
}

/// Whether the error means that the driver cannot run programs, or not with these settings.
pub(super) fn is_unfit(error: &io::Error) -> bool {
    !matches!(
        error.raw_os_error(),
        Some(libc::EBUSY | libc::EEXIST | libc::EPERM | libc::EACCES | libc::ENODEV)
    )
}
