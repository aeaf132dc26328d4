//! The content of a received ICMP error, for the program that sent the quoted packet.
//!
//! Made by `stack` of a message with a valid checksum and a quote of a socket of ours; kept by the
//! sockets of `udp` and `ip` until it is read. Invariant: a plain value of either family, trusted
//! no further than an unsigned message can be (RFC 5927). Read first: RFC 1122 section 4.1.3.3, RFC
//! 4443 section 2.4 (d). Not here: what to do about it.

use core::net::IpAddr;

use floodwall_base::IfIndex;

use crate::icmpv4::{self, Icmpv4Message, Icmpv4Type};
use crate::icmpv6::{Icmpv6Message, Icmpv6Type};

/// One received ICMP error about a packet of a local socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IcmpReport {
    /// The sender of the error: a router on the way, or the destination itself. Gives the family.
    pub offender: IpAddr,
    /// Where it arrived; a link-local offender is to be understood there.
    pub iface: IfIndex,
    /// Where the packet of ours had been sent to.
    pub dst_addr: IpAddr,
    /// The ICMP type.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// The four bytes behind the checksum: MTU, pointer, or nothing.
    pub info: u32,
}

impl IcmpReport {
    /// The report of an ICMPv4 error.
    #[must_use]
    pub fn of_v4(
        offender: IpAddr,
        iface: IfIndex,
        dst_addr: IpAddr,
        message: &Icmpv4Message,
    ) -> Self {
        let (kind, code, rest) = message.parts();
        Self { offender, iface, dst_addr, kind: kind.0, code, info: u32::from_be_bytes(rest) }
    }

    /// The report of an ICMPv6 error.
    #[must_use]
    pub fn of_v6(
        offender: IpAddr,
        iface: IfIndex,
        dst_addr: IpAddr,
        message: &Icmpv6Message,
    ) -> Self {
        let (kind, code, rest) = message.parts();
        Self { offender, iface, dst_addr, kind: kind.0, code, info: u32::from_be_bytes(rest) }
    }

    /// The MTU of the link that the packet did not fit, in bytes. `None` where the message is about
    /// something else, or from a router older than RFC 1191.
    #[must_use]
    pub const fn mtu(&self) -> Option<u32> {
        let mtu = match self.offender {
            IpAddr::V4(_)
                if self.kind == Icmpv4Type::DESTINATION_UNREACHABLE.0
                    && self.code == icmpv4::UnreachableCode::FRAGMENTATION_NEEDED.0 =>
            {
                self.info & 0xffff
            }
            IpAddr::V6(_) if self.kind == Icmpv6Type::PACKET_TOO_BIG.0 => self.info,
            _ => 0,
        };
        if mtu == 0 { None } else { Some(mtu) }
    }

    /// Where in the packet of ours the byte at fault stands, with a parameter problem.
    #[must_use]
    pub const fn pointer(&self) -> Option<u32> {
        match self.offender {
            IpAddr::V4(_) if self.kind == Icmpv4Type::PARAMETER_PROBLEM.0 => Some(self.info >> 24),
            IpAddr::V6(_) if self.kind == Icmpv6Type::PARAMETER_PROBLEM.0 => Some(self.info),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::icmpv4::{TimeExceededCode, UnreachableCode};
    use crate::icmpv6::ParameterProblemCode;

    #[test]
    fn mtu_and_pointer_are_told_where_the_message_has_them_and_nowhere_else() {
        let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        let of_v4 = |message| IcmpReport::of_v4(v4, IfIndex(1), v4, &message);
        let of_v6 = |message| IcmpReport::of_v6(v6, IfIndex(1), v6, &message);
        let code = UnreachableCode::FRAGMENTATION_NEEDED;
        for (next_hop_mtu, mtu) in [(1400, Some(1400)), (0, None)] {
            let told = of_v4(Icmpv4Message::DestinationUnreachable { code, next_hop_mtu });
            assert_eq!((told.mtu(), told.pointer(), told.kind, told.code), (mtu, None, 3, 4));
        }
        let told = of_v4(Icmpv4Message::ParameterProblem { code: 0, pointer: 20 });
        assert_eq!((told.mtu(), told.pointer()), (None, Some(20)));
        let told = of_v4(Icmpv4Message::TimeExceeded { code: TimeExceededCode::TTL });
        assert_eq!((told.mtu(), told.pointer(), told.kind), (None, None, 11));
        assert_eq!(of_v6(Icmpv6Message::PacketTooBig { mtu: 1280 }).mtu(), Some(1280));
        let code = ParameterProblemCode::UNRECOGNIZED_OPTION;
        let told = of_v6(Icmpv6Message::ParameterProblem { code, pointer: 70_000 });
        assert_eq!((told.mtu(), told.pointer(), told.code), (None, Some(70_000), 2));
    }
}
