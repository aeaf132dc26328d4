//! What listeners answer SYNs with, for devices with a program that answers at the interface.
//!
//! Called by `stack`. Invariant: what is offered is what [`ConnectionTable::input`] would answer by
//! cookie: the listener that a segment would find, its options, its header. Where that depends on
//! more than address and port (several listeners share the port and say different things) nothing
//! is offered.

use core::net::IpAddr;

use floodwall_base::{Endpoint, FlowKey, IfIndex, Instant};
use floodwall_packet::{CookieKeys, SynOffer};
use floodwall_syncache::{CookieMoment, SynCache};

use crate::connection_table::ConnectionTable;
use crate::pseudo_header::PROTOCOL;

impl ConnectionTable<SynCache> {
    /// The keys of cookies in force at `at`, in the epoch that ends at `until`.
    #[must_use]
    pub fn cookie_keys(&self, at: CookieMoment, until: Instant) -> CookieKeys {
        let keys = self.half_open.interface_keys(at, until);
        CookieKeys { epoch: keys.epoch.0, until, keys: keys.keys, clock: keys.clock }
    }

    /// A program at the interface answers SYNs with what was offered, or does so no more.
    pub const fn set_interface_answers(&mut self, answers: bool) {
        self.half_open.set_interface_answers(answers);
    }

    /// Gives `to` what SYNs for an address of ours, arriving by `iface`, are answered with, port by
    /// port. `hop_limit` is that of a listener that asks for none.
    pub fn syn_offers(
        &self,
        (addr, iface): (IpAddr, IfIndex),
        hop_limit: u8,
        mut to: impl FnMut(SynOffer),
    ) {
        for port in self.listeners.heard().iter().filter(|port| *port != 0) {
            if let Some(offer) = self.syn_offer(Endpoint::new(addr, port), iface, hop_limit) {
                to(offer);
            }
        }
    }

    /// A number that changes whenever [`ConnectionTable::syn_offers`] may say something else
    /// because a listener has come or gone.
    #[must_use]
    pub fn listeners_changed(&self) -> u64 {
        self.listeners.changes()
    }

    fn syn_offer(&self, local: Endpoint, iface: IfIndex, hop_limit: u8) -> Option<SynOffer> {
        let flow = FlowKey { local, remote: local, zone: iface, protocol: PROTOCOL };
        let mut all = self.listeners.all_that_hear(&flow, iface).map(|index| {
            let (settings, _) = self.listeners.of_new(index)?;
            let half = self.half_open.offer_of(self.listeners.half(index)?)?;
            // The interface's program has no flag for it.
            if !half.scaling {
                return None;
            }
            let (v4, v6) = half.mss;
            Some(SynOffer {
                addr: local.ip(),
                port: local.port,
                window: half.window,
                mss: if local.ip().is_ipv4() { v4 } else { v6 },
                window_scale: half.window_scale,
                sack: half.sack,
                timestamps: half.timestamps,
                ecn: half.ecn,
                hop_limit: settings.hop_limit.unwrap_or(hop_limit),
                traffic_class: settings.traffic_class,
            })
        });
        let first = all.next().flatten()?;
        all.all(|other| other == Some(first)).then_some(first)
    }
}
