//! `Dhcp`: the DHCPv4 clients of a stack's interfaces, and what each has been leased.
//!
//! Made once with the stack (`build.rs`); used by `dhcp.rs`.

use floodwall_base::{IfIndex, Instant, Randomness};
use floodwall_dhcp::{DhcpClient, DhcpEvent};

/// One interface's client.
#[derive(Debug)]
pub(super) struct LeasedInterface {
    pub(super) client: DhcpClient,
    /// Whether the client is enabled: it starts when the link comes up.
    pub(super) on: bool,
}

/// The clients of all interfaces.
#[derive(Debug)]
pub(crate) struct Dhcp {
    pub(super) served: Box<[Option<LeasedInterface>]>,
    /// At least one client waits for an answer.
    pub(super) asks: bool,
}

impl Dhcp {
    /// Allocates room for a client on each of so many interfaces.
    pub(crate) fn new(interfaces: usize) -> Self {
        Self { served: (0..interfaces).map(|_| None).collect(), asks: false }
    }

    pub(super) fn client(&self, iface: IfIndex) -> Option<&DhcpClient> {
        self.served.get(usize::from(iface.0))?.as_ref().map(|served| &served.client)
    }

    pub(super) fn client_mut(&mut self, iface: IfIndex) -> Option<&mut DhcpClient> {
        self.served.get_mut(usize::from(iface.0))?.as_mut().map(|served| &mut served.client)
    }

    /// Whether any client waits for an answer: otherwise no packet is checked.
    #[inline]
    pub(crate) const fn asks(&self) -> bool {
        self.asks
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.served.iter().flatten().filter_map(|served| served.client.deadline()).min()
    }

    pub(super) fn look(&mut self) {
        self.asks = self.served.iter().flatten().any(|served| served.client.awaits());
    }

    /// The next event of any client.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        random: &mut Randomness,
    ) -> Option<(IfIndex, DhcpEvent)> {
        let event = self.served.iter_mut().enumerate().find_map(|(index, served)| {
            let event = served.as_mut()?.client.poll(now, random)?;
            Some((IfIndex(index as u16), event))
        });
        self.look();
        event
    }
}
