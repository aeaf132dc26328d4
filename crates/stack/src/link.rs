//! Link state changes: what is discarded, what is kept, and what is started again.
//!
//! Called between rounds: by the operator (`set_up`) and by the device's watcher (`set_carrier`). A
//! link that comes back may be another link, so everything learnt from it is discarded when it goes
//! down: neighbours, autoconfigured and leased addresses and their routes. The operator's
//! configuration stays, unusable, and its addresses are verified again. Nothing is transmitted
//! here; messages leave with the next timed work. Reading: RFC 4862 section 5.3, RFC 4861 section
//! 6.3.7, RFC 5227 section 2.1, RFC 6059.

pub(crate) mod neighbors;
pub(crate) mod rx_filter;

use core::net::IpAddr;

use floodwall_base::{Counter, DropReason, IfIndex, Instant, Randomness};
use floodwall_fib::RouteProtocol;
use floodwall_ip::Detection;
use floodwall_packet::PacketList;

use crate::stack::Stack;

impl Stack {
    /// Sets the administrative state of an interface (`ip link set … up`, `down`). No effect where
    /// the interface does not exist or has that state.
    pub fn set_up(&mut self, iface: IfIndex, up: bool, now: Instant, random: &mut Randomness) {
        let Some(interface) = self.interfaces.get_mut(usize::from(iface.0)) else { return };
        let carrier = interface.carrier;
        if interface.set_link(up, carrier) {
            self.link_changed(iface, now, random);
        }
    }

    /// Sets the carrier state of an interface, as the device reports it. Packets pass only while
    /// both the administrative and the carrier state are up; see [`Stack::set_up`].
    pub fn set_carrier(
        &mut self,
        iface: IfIndex,
        carrier: bool,
        now: Instant,
        random: &mut Randomness,
    ) {
        let Some(interface) = self.interfaces.get_mut(usize::from(iface.0)) else { return };
        let admin_up = interface.admin_up;
        if interface.set_link(admin_up, carrier) {
            self.link_changed(iface, now, random);
        }
    }

    /// The MTU of an interface's link, as the device reports it: both families follow, and open
    /// connections with their next segments. What a lease or a router says of it is judged against
    /// the new one.
    pub fn set_link_mtu(&mut self, iface: IfIndex, mtu: u32) {
        let Some(interface) = self.interfaces.get_mut(usize::from(iface.0)) else { return };
        let changed = interface.set_link_mtu(mtu);
        self.routers_link_mtu(iface, mtu);
        if changed {
            self.sockets.path_cache.forget();
            self.stats.counters.count(Counter::FloodwallChanges);
        }
    }

    /// Handles a change of the interface's `up`. The one place that notifies dependent parts.
    fn link_changed(&mut self, iface: IfIndex, now: Instant, random: &mut Randomness) {
        let Some(up) = self.interfaces.get(usize::from(iface.0)).map(|i| i.up) else { return };
        self.v4.routes.set_usable(iface, up, now);
        self.v6.routes.set_usable(iface, up, now);
        self.sockets.path_cache.forget();
        self.routers_link_changed(iface, up, now, random);
        self.advertisers_link_changed(iface, up, now, &mut random.public);
        self.forget_exceptions_on(iface);
        if up {
            self.verify_all(iface, now, random);
        } else {
            self.forget_link(iface, now, random);
        }
        self.stats.counters.count(Counter::FloodwallChanges);
        self.dhcp_link(iface, now, random);
        self.groups_changed(iface, now, random);
    }

    /// Discards what was learnt from the link.
    fn forget_link(&mut self, iface: IfIndex, now: Instant, random: &mut Randomness) {
        let at = usize::from(iface.0);
        let next = |stack: &Self, skip: usize| {
            let interface = stack.interfaces.get(at)?;
            interface.addresses().nth(skip).map(|a| (a.addr, a.origin))
        };
        let mut kept = 0;
        while let Some((addr, origin)) = next(self, kept) {
            self.control.dad.stop(iface, addr);
            if !origin.is_of_the_link() || self.remove_address(iface, addr, now, random).is_err() {
                kept += 1;
            }
        }
        let told = [RouteProtocol::RouterAdvertisement, RouteProtocol::Dhcp];
        self.v4.routes.remove_told(now, |r| r.iface == iface && told.contains(&r.protocol));
        self.v6.routes.remove_told(now, |r| r.iface == iface && told.contains(&r.protocol));
        let mut waited = PacketList::new();
        self.v4.neighbors.flush_learnt(iface, &mut waited);
        self.v6.neighbors.flush_learnt(iface, &mut waited);
        self.stats.pending -= waited.len() as u64;
        self.stats.drops_out.add(DropReason::InterfaceDown, waited.len() as u64);
    }

    /// Starts duplicate address detection for all addresses of the interface: a station on the new
    /// link may have them.
    fn verify_all(&mut self, iface: IfIndex, now: Instant, random: &mut Randomness) {
        let at = usize::from(iface.0);
        let mut visited = 0;
        while let Some(addr) =
            self.interfaces.get(at).and_then(|i| Some(i.addresses().nth(visited)?.addr))
        {
            let detection = match addr {
                IpAddr::V4(_) => Detection::Announce,
                IpAddr::V6(_) => Detection::Probe,
            };
            self.verify(iface, addr, detection, now, random);
            visited += 1;
        }
    }
}
