//! Errors as the operating system numbers them, so that programs find the `ErrorKind` that they
//! know from the kernel's sockets.
//!
//! A number also fits into the slot's error word. The numbers are Linux's, as everything that runs
//! this stack on a device is.

use std::io;

use floodwall_tcp::ConnectionError;
use floodwall_udp::{BindError, ConnectError, GroupError, IcmpError, SendError as UdpSendError};

const EAGAIN: u32 = 11;
const ENOMEM: u32 = 12;
const EACCES: u32 = 13;
const ENODEV: u32 = 19;
const EINVAL: u32 = 22;
const ENFILE: u32 = 23;
const EPIPE: u32 = 32;
const EPROTO: u32 = 71;
const EDESTADDRREQ: u32 = 89;
const EMSGSIZE: u32 = 90;
const ENOPROTOOPT: u32 = 92;
const EPROTONOSUPPORT: u32 = 93;
const EAFNOSUPPORT: u32 = 97;
const EADDRINUSE: u32 = 98;
const EADDRNOTAVAIL: u32 = 99;
const ENETUNREACH: u32 = 101;
const ENOBUFS: u32 = 105;
const ECONNABORTED: u32 = 103;
const ECONNRESET: u32 = 104;
const ETIMEDOUT: u32 = 110;
const ECONNREFUSED: u32 = 111;
const EHOSTUNREACH: u32 = 113;

/// An error's number: never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(u32);

impl Errno {
    /// The stack has stopped, or the socket is closed.
    pub const STOPPED: Self = Self(EPIPE);
    /// Try again later.
    pub const AGAIN: Self = Self(EAGAIN);
    /// The destination makes no sense.
    pub const INVALID: Self = Self(EINVAL);
    /// A destination is needed.
    pub const NO_DESTINATION: Self = Self(EDESTADDRREQ);
    /// Not of the socket's family.
    pub const FAMILY: Self = Self(EAFNOSUPPORT);
    /// Broadcast was not enabled.
    pub const ACCESS: Self = Self(EACCES);
    /// Another socket has the address.
    pub const IN_USE: Self = Self(EADDRINUSE);
    /// Every socket is open.
    pub const TOO_MANY: Self = Self(ENFILE);
    /// Larger than a datagram may be.
    pub const TOO_LONG: Self = Self(EMSGSIZE);

    /// The address is none of ours, or cannot be used now.
    pub const NOT_OURS: Self = Self(EADDRNOTAVAIL);
    /// No route leads there.
    pub const NO_ROUTE: Self = Self(ENETUNREACH);

    /// The peer reset the connection.
    pub const RESET: Self = Self(ECONNRESET);
    /// The protocol is not supported by this stack.
    pub const NO_PROTOCOL: Self = Self(EPROTONOSUPPORT);

    /// The error of a connection that ended. A reset after the peer's end of data is an error only
    /// for writers, as in the kernel.
    pub(super) const fn of_ended(error: ConnectionError, after_end: bool) -> Self {
        Self(match error {
            ConnectionError::Refused => ECONNREFUSED,
            ConnectionError::Reset if after_end => EPIPE,
            ConnectionError::Reset => ECONNRESET,
            ConnectionError::TimedOut => ETIMEDOUT,
            ConnectionError::Unreachable => EHOSTUNREACH,
            _ => ECONNABORTED,
        })
    }

    /// Out of the slot's word; 0 is none.
    pub(super) fn from_word(word: u32) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    pub(super) const fn word(self) -> u32 {
        self.0
    }

    /// As programs see it.
    pub(super) fn into_io(self) -> io::Error {
        io::Error::from_raw_os_error(self.0.cast_signed())
    }
}

impl From<IcmpError> for Errno {
    fn from(error: IcmpError) -> Self {
        Self(match error {
            IcmpError::PortUnreachable => ECONNREFUSED,
            IcmpError::NetUnreachable => ENETUNREACH,
            IcmpError::PacketTooBig { .. } => EMSGSIZE,
            IcmpError::ProtocolUnreachable => ENOPROTOOPT,
            IcmpError::HostUnreachable | IcmpError::AdminProhibited | IcmpError::TimeExceeded => {
                EHOSTUNREACH
            }
            _ => EPROTO,
        })
    }
}

impl From<UdpSendError> for Errno {
    fn from(error: UdpSendError) -> Self {
        Self(match error {
            UdpSendError::AddressFamily => EAFNOSUPPORT,
            UdpSendError::BroadcastRefused => EACCES,
            UdpSendError::Closed(_) => EPIPE,
            UdpSendError::Icmp(icmp) => return icmp.into(),
            UdpSendError::MessageTooLong { .. } => EMSGSIZE,
            UdpSendError::NoBuffer => ENOBUFS,
            UdpSendError::WouldBlock => EAGAIN,
            _ => EINVAL,
        })
    }
}

impl From<BindError> for Errno {
    fn from(error: BindError) -> Self {
        Self(match error {
            BindError::AddrInUse | BindError::PortsExhausted | BindError::TableFull => EADDRINUSE,
            BindError::AddressFamily => EAFNOSUPPORT,
            BindError::Closed(_) => EPIPE,
            _ => EINVAL,
        })
    }
}

impl From<ConnectError> for Errno {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Bind(error) => error.into(),
            // No address of ours leads there: the same error as the kernel's.
            _ => Self(ENETUNREACH),
        }
    }
}

impl From<GroupError> for Errno {
    fn from(error: GroupError) -> Self {
        Self(match error {
            GroupError::Closed(_) => EPIPE,
            GroupError::Membership => EADDRINUSE,
            GroupError::NoInterface => ENODEV,
            GroupError::TooMany | GroupError::TooManySources => ENOMEM,
            _ => EINVAL,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn programs_find_the_kinds_that_they_know() {
        let kinds = [
            (Errno::from(IcmpError::PortUnreachable), ErrorKind::ConnectionRefused),
            (Errno::from(IcmpError::HostUnreachable), ErrorKind::HostUnreachable),
            (Errno::from(IcmpError::NetUnreachable), ErrorKind::NetworkUnreachable),
            (Errno::from(BindError::AddrInUse), ErrorKind::AddrInUse),
            (Errno::NO_DESTINATION, ErrorKind::Other),
            (Errno::from(UdpSendError::WouldBlock), ErrorKind::WouldBlock),
            (Errno::NOT_OURS, ErrorKind::AddrNotAvailable),
            (Errno::STOPPED, ErrorKind::BrokenPipe),
            (Errno::INVALID, ErrorKind::InvalidInput),
        ];
        for (errno, kind) in kinds {
            let error = errno.into_io();
            let known = kind == ErrorKind::Other || error.kind() == kind;
            assert!(known, "{error:?} is not {kind:?}");
            assert_eq!(Errno::from_word(errno.word()), Some(errno));
        }
        assert_eq!(Errno::from_word(0), None);
    }
}
