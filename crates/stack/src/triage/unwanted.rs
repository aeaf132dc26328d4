//! `UnwantedPacket`: how datagrams are classified that no socket takes.
//!
//! Computed by `triage.rs` once for each burst; read there and by `plain.rs`.

use floodwall_base::Family;
use floodwall_packet::Triage;
use floodwall_udp::DatagramKey;
use floodwall_wire::{IpProtocol, dhcpv6};

use crate::stack::Stack;

/// What datagrams are that no socket takes, the same for a whole burst.
#[derive(Clone, Copy)]
pub(super) struct UnwantedPacket {
    pub(super) v4: Triage,
    pub(super) v6: Triage,
    /// To the port of a DHCPv6 client.
    pub(super) client_v6: Triage,
}

impl UnwantedPacket {
    pub(super) fn now(stack: &Stack) -> Self {
        let unless = |wanted| if wanted { Triage::Unknown } else { Triage::Rejectable };
        // Checks whether any raw socket has the protocol, not which. A DHCP reply to us may be for
        // an address that we do not have yet.
        let hears = |family| stack.sockets.raw.hears(family, IpProtocol::UDP);
        Self {
            v4: unless(hears(Family::V4) || stack.dhcp_asks()),
            v6: unless(hears(Family::V6)),
            client_v6: unless(hears(Family::V6) || stack.control.dhcpv6.listens()),
        }
    }

    #[inline(always)]
    pub(super) fn of(self, datagram_key: &DatagramKey) -> Triage {
        match datagram_key.is_v4() {
            true => self.v4,
            false if datagram_key.local_port() == dhcpv6::CLIENT_PORT => self.client_v6,
            false => self.v6,
        }
    }
}
