//! Errors of a device on XDP, with what the operator can do.
//!
//! Made from the kernel's errors while a device opens. Plain functions.

use std::io;

use crate::error::DeviceError;

pub(super) fn unsupported(name: &str, missing: &'static str, remedy: &'static str) -> DeviceError {
    DeviceError::Unsupported { device: name.to_owned(), missing, remedy }
}

pub(super) fn failed(name: &str, action: &'static str, error: io::Error) -> DeviceError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => DeviceError::NoPrivilege {
            device: name.to_owned(),
            action,
            missing: "one of CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF",
        },
        Some(libc::ENOBUFS) => unsupported(
            name,
            "locking the packet memory",
            "raise the bound: `ulimit -l unlimited`, or LimitMEMLOCK=infinity in the unit",
        ),
        Some(libc::ENOSYS) => unsupported(
            name,
            "BPF in this kernel",
            "use packet:INTERFACE, or a kernel with CONFIG_BPF_SYSCALL; where calls are filtered \
             (a container, a unit), allow bpf(2)",
        ),
        Some(libc::EAFNOSUPPORT) => unsupported(
            name,
            "AF_XDP in this kernel",
            "use packet:INTERFACE, or a kernel with CONFIG_XDP_SOCKETS",
        ),
        _ => DeviceError::from_system(name, action, error),
    }
}
