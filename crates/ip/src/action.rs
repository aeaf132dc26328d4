//! The outcome of a packet as a value: decided first, acted upon in one place.

use floodwall_base::DropReason;
use floodwall_wire::Owed;

/// The ICMP error to send to the source of a refused packet, for either family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpError {
    /// No socket is bound to the port.
    PortUnreachable,
    /// The upper protocol is not supported; the byte at `pointer` of the packet announced it.
    ProtocolUnreachable {
        /// From the first byte of the IP header.
        pointer: u32,
    },
    /// The destination does not answer on its link.
    HostUnreachable,
    /// No route leads there.
    NoRoute,
    /// Administratively prohibited.
    Prohibited,
    /// Its source's address means nothing where its destination is (IPv6 only).
    BeyondScope,
    /// It does not fit the next link and may not be cut.
    PacketTooBig {
        /// Bytes of the largest packet that does.
        mtu: u32,
    },
    /// Its hop limit ran out here.
    HopLimitExceeded,
    /// Its other fragments did not come in time; about a first fragment alone.
    ReassemblyTimeExceeded,
    /// The packet's headers are in error.
    ParameterProblem {
        /// The family's code.
        code: u8,
        /// From the first byte of the IP header.
        pointer: u32,
        /// Sent even where the packet went to a group (RFC 8200 section 4.2, action 10).
        to_group: bool,
    },
}

impl IcmpError {
    /// Whether it is sent even where the packet went to a group (RFC 4443 section 2.4 (e.3)); no
    /// IPv4 error is.
    #[must_use]
    pub const fn is_owed_to_groups(self) -> bool {
        matches!(self, Self::PacketTooBig { .. } | Self::ParameterProblem { to_group: true, .. })
    }
}

/// Why a packet is dropped, and which error its source gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefusedAction {
    /// Under which name it is counted.
    pub reason: DropReason,
    /// What to answer, if addresses and rates allow.
    pub owed: Option<IcmpError>,
}

impl From<DropReason> for RefusedAction {
    fn from(reason: DropReason) -> Self {
        Self { reason, owed: None }
    }
}

impl RefusedAction {
    /// A refusal with an ICMP error.
    #[must_use]
    pub const fn owing(reason: DropReason, error: IcmpError) -> Self {
        Self { reason, owed: Some(error) }
    }

    pub(crate) fn of_extension(reason: DropReason, owed: Owed) -> Self {
        let owed = match owed {
            Owed::Nothing => None,
            Owed::ParameterProblem { code, pointer, to_multicast } => {
                let pointer = u32::try_from(pointer).unwrap_or(u32::MAX);
                let (code, to_group) = (code.0, to_multicast);
                Some(IcmpError::ParameterProblem { code, pointer, to_group })
            }
        };
        Self { reason, owed }
    }
}
