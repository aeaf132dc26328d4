//! `Dhcpv6`: the DHCPv6 clients of a stack's interfaces, and what each has been given.
//!
//! Made once with the stack (`build.rs`); used by `dhcpv6.rs`.

use floodwall_base::{IfIndex, Instant, Randomness};
use floodwall_dhcp::{Dhcpv6Client, Dhcpv6Event, Dhcpv6Settings};

use crate::config::StackConfig;

/// One interface's client.
#[derive(Debug)]
pub(super) struct ServedInterface {
    pub(super) client: Dhcpv6Client,
    /// Whether the client is enabled: routers start it.
    pub(super) on: bool,
    /// The settings that the embedding program has been told of.
    pub(super) shown: Option<Dhcpv6Settings>,
}

/// The DHCPv6 clients of all interfaces.
#[derive(Debug)]
pub(crate) struct Dhcpv6 {
    pub(super) served: Box<[Option<ServedInterface>]>,
    /// At least one client waits for an answer.
    pub(super) asks: bool,
    /// A client may wait for an answer, on this shard or on the control shard.
    pub(super) listens: bool,
}

impl Dhcpv6 {
    /// Allocates room for a client on each interface.
    pub(crate) fn new(config: &StackConfig) -> Self {
        let served = (0..=config.interfaces.len()).map(|_| None).collect();
        Self { served, asks: false, listens: config.interfaces.iter().any(|i| i.dhcpv6) }
    }

    pub(super) fn of(&mut self, iface: IfIndex) -> Option<&mut ServedInterface> {
        self.served.get_mut(usize::from(iface.0))?.as_mut()
    }

    /// Whether any client waits for an answer: otherwise no packet is checked.
    #[inline]
    pub(crate) const fn asks(&self) -> bool {
        self.asks
    }

    /// Whether answers may come to this host at all: they are not refused before they are read.
    #[inline]
    pub(crate) const fn listens(&self) -> bool {
        self.listens
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
    ) -> Option<(IfIndex, Dhcpv6Event)> {
        let event = self.served.iter_mut().enumerate().find_map(|(index, served)| {
            let event = served.as_mut()?.client.poll(now, random)?;
            Some((IfIndex(index as u16), event))
        });
        self.look();
        event
    }

    /// Releases all leases.
    pub(crate) fn release(&mut self, now: Instant) {
        for served in self.served.iter_mut().flatten() {
            served.client.release(now);
            served.on = false;
        }
        self.look();
    }

    /// The link went down; routers start the client again when it has come up.
    pub(crate) fn link_down(&mut self, iface: IfIndex) {
        if let Some(served) = self.of(iface) {
            served.client.stop();
        }
        self.look();
    }
}
