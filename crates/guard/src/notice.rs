//! `Notice`: what a running guard has noticed, for its log.

use core::fmt;

/// Something that has changed, with what follows from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// `net.ipv4.tcp_syncookies` was set to 0, or set back.
    Cookies(bool),
    /// Settings of TCP, or the MTU, have changed.
    Offers,
    /// No socket listens on a port, or one does again.
    Listener(u16, bool),
    /// The listener of a port is MPTCP.
    Multipath(u16),
    /// SYNs of a port are answered, or the kernel's again.
    Awake(u16, bool),
    /// The kernel does not take connections over.
    NotAdopted(u16, u64),
    /// The driver leaves no room for metadata.
    NoMetadata(u16),
    /// The interface is up, or not.
    Carrier(bool),
    /// A rule of the packet filter breaks connections: the words of `--check`.
    Rule(String),
    /// There is no such rule any more.
    RulesWell,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cookies(true) => {
                write!(f, "net.ipv4.tcp_syncookies is on again: SYNs are answered from now on")
            }
            Self::Cookies(false) => write!(
                f,
                "net.ipv4.tcp_syncookies is 0: the kernel takes no cookies, so that nothing is \
                 answered until it is set to 1"
            ),
            Self::Offers => write!(f, "settings of TCP have changed, and are followed"),
            Self::Listener(port, true) => write!(f, "a socket listens on port {port} again"),
            Self::Listener(port, false) => {
                write!(f, "no socket listens on port {port}: its segments pass to the kernel")
            }
            Self::Multipath(port) => write!(
                f,
                "the listener of port {port} is MPTCP, which takes no cookies of others: its \
                 segments pass to the kernel; turn MPTCP off in the service \
                 (GODEBUG=multipathtcp=0 for Go) or by net.mptcp.enabled=0"
            ),
            Self::Awake(port, true) => write!(f, "port {port}: awake, SYNs are answered"),
            Self::Awake(port, false) => write!(f, "port {port}: asleep, SYNs are the kernel's"),
            Self::NotAdopted(port, count) => write!(
                f,
                "port {port}: the kernel did not take {count} proven connections over; the \
                 listener may have gone meanwhile"
            ),
            Self::NoMetadata(port) => write!(
                f,
                "port {port}: the driver has no room for metadata, so that no connection can be \
                 taken over; use --generic"
            ),
            Self::Rule(text) => f.write_str(text),
            Self::RulesWell => write!(f, "no rule breaks connections any more"),
            Self::Carrier(true) => write!(f, "the interface is up again"),
            Self::Carrier(false) => write!(f, "the interface is down"),
        }
    }
}
