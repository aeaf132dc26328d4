//! `Advertisers`: the interfaces on which this host advertises itself, each with its advertiser.
//!
//! Made once with the stack (`build.rs`); used by `advertise.rs`.

use floodwall_base::{IfIndex, Instant, PublicRandom};
use floodwall_ip::LinkMedium;
use floodwall_ip::advertiser::Advertiser;

use crate::config::StackConfig;

/// The advertising interfaces, each with its advertiser.
pub(crate) struct Advertisers(pub(super) Box<[(IfIndex, Advertiser)]>);

impl Advertisers {
    pub(crate) fn new(config: &StackConfig, random: &mut PublicRandom, now: Instant) -> Self {
        let speaking = config.interfaces.iter().enumerate().filter_map(|(at, interface)| {
            let forwards = config.ipv6_forwarding && interface.forwarding;
            let ethernet = matches!(interface.medium, LinkMedium::Ethernet(_));
            let said = interface.advertise.as_ref().filter(|_| forwards && ethernet)?;
            Some((IfIndex(at as u16 + 1), Advertiser::new(said.clone(), now, random)))
        });
        Self(speaking.collect())
    }

    pub(crate) fn none() -> Self {
        Self(Box::default())
    }

    pub(super) fn of(&mut self, iface: IfIndex) -> Option<&mut Advertiser> {
        self.0.iter_mut().find(|(index, _)| *index == iface).map(|(_, engine)| engine)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.iter().filter_map(|(_, engine)| engine.deadline()).min()
    }
}
