//! What the neighbour cache does for the default router list, and what routers do to the cache.
//!
//! Called by `stack` for accepted router advertisements and for `router_discovery`'s probes.
//! Invariants: a router's advertisement proves the path from it, not the path to it; a probe
//! without a packet evicts as any solicitation does. Read first: RFC 4861 sections 6.3.2 and 6.3.4,
//! RFC 4191 section 3.5.

use core::time::Duration;

use floodwall_base::{Address, IfIndex, Instant, MacAddr};
use floodwall_packet::PacketList;

use super::{
    MULTICAST_SOLICIT_MAX, NeighborCache, NeighborEvent, NeighborState, REACHABLE_TIME,
    RETRANS_TIMER,
};

/// The times of one interface's link.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkTimers {
    pub(super) reachable: Duration,
    pub(super) retrans: Duration,
    /// Whether solicitations may come early: no router has set their interval.
    pub(super) early: bool,
}

impl Default for LinkTimers {
    fn default() -> Self {
        Self { reachable: REACHABLE_TIME, retrans: RETRANS_TIMER, early: true }
    }
}

impl<A: Address> NeighborCache<A> {
    /// Sets the reachable time of this link, and the interval between solicitations; `None` for the
    /// defaults. Timers that run are left.
    pub fn set_timers(
        &mut self,
        iface: IfIndex,
        reachable: Option<Duration>,
        retrans: Option<Duration>,
    ) {
        if let Some(timers) = self.timers.get_mut(usize::from(iface.0)) {
            timers.reachable = reachable.unwrap_or(REACHABLE_TIME);
            timers.retrans = retrans.unwrap_or(RETRANS_TIMER);
            timers.early = retrans.is_none();
        }
    }

    /// A router in our list sent an advertisement, with its link address or without (RFC 4861
    /// section 6.3.4): as [`NeighborCache::solicited_by`], and it is known to be a router.
    pub fn router_said(
        &mut self,
        iface: IfIndex,
        addr: A,
        link_addr: Option<MacAddr>,
        now: Instant,
        released: &mut PacketList,
    ) -> Option<MacAddr> {
        let known = match link_addr {
            Some(link_addr) => self.solicited_by(iface, addr, link_addr, now, released),
            None => None,
        };
        let at = self.table.find(iface, addr)?;
        self.table.entry_mut(at)?.is_router = true;
        known
    }

    /// Resolves a gateway before there are packets for it, and again when it is stale, so that its
    /// link address is known whenever a flood begins. Returns what to send; `None` where nothing
    /// is to be done, it is being solicited already, or there is no room.
    pub fn keep(&mut self, iface: IfIndex, addr: A, now: Instant) -> Option<NeighborEvent<A>> {
        let found = self.table.find(iface, addr);
        let state = found.and_then(|at| self.table.entry(at)?.state);
        let is_due = match state {
            None | Some(NeighborState::Stale) => true,
            Some(NeighborState::Failed) => {
                let until = found.and_then(|at| self.table.entry(at)).map(|entry| entry.until);
                until.is_none_or(|until| until <= now)
            }
            Some(_) => false,
        };
        let event = if is_due { self.probe(iface, addr, now) } else { None };
        let at = self.table.find(iface, addr)?;
        let entry = self.table.entry_mut(at)?;
        entry.kept = true;
        if event.is_some() && entry.state == Some(NeighborState::Incomplete) {
            // As many solicitations as packets would have caused.
            entry.solicits = 1;
        }
        event
    }

    /// Probes a neighbour's reachability once, although there is no traffic to it. Returns what to
    /// send; `None` where it is being probed already, or there is no room.
    pub fn probe(&mut self, iface: IfIndex, addr: A, now: Instant) -> Option<NeighborEvent<A>> {
        let at = match self.table.find(iface, addr) {
            Some(at) => at,
            None if usize::from(iface.0) >= self.table.config.interfaces => return None,
            None if self.table.room_for_unresolved(iface) => self.table.create(iface, addr)?,
            None => return None,
        };
        let entry = self.table.entry_mut(at)?;
        let (state, unicast) = match entry.state {
            None | Some(NeighborState::Failed) => {
                entry.solicits = MULTICAST_SOLICIT_MAX;
                (NeighborState::Incomplete, None)
            }
            Some(NeighborState::Stale | NeighborState::Delay | NeighborState::Reachable) => {
                entry.solicits = 1;
                (NeighborState::Probe, Some(entry.link_addr))
            }
            Some(_) => return None,
        };
        self.enter(at, state, now);
        Some(NeighborEvent::Solicit { iface, addr, unicast })
    }
}
