//! One core's protocol state, and the rounds in which it runs: an
//! [`Engine`](floodwall_packet::Engine).
//!
//! Called by `dispatch` on real cores and by `world` in virtual time. A round takes the burst, then
//! what the loopback holds; timed work is done in slices. Invariants: every packet that arrived and
//! every packet that this stack made is accounted for exactly once ([`Stats::conservation`]); no
//! allocation per packet; nothing here does I/O or reads a clock.

mod engine;
mod new;

use core::cell::Cell;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{
    Counter, DropReason, IfIndex, Instant, MacAddr, Steering, Units, WorkerId, limits,
};
use floodwall_fib::Fib;
use floodwall_ip::{FragmentStore, Interface, NeighborCache, neighbor::NeighborTableFull};
use floodwall_packet::{Burst, PacketList};

use crate::config::StackConfig;
use crate::parts::{
    BurstState, ControlState, FamilyState, IcmpState, MemoryShare, PacketPolicy, ShardContext,
    SocketTables,
};
use crate::round_context::RoundContext;
use crate::shards::Role;
use crate::stats::Stats;
use crate::watched::{ChangeMark, Watched};

/// One shard of an IPv4/IPv6 host: interfaces, tables, sockets and statistics of one core. Driven
/// as an [`Engine`](floodwall_packet::Engine).
pub struct Stack {
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) v4: FamilyState<Ipv4Addr>,
    pub(crate) v6: FamilyState<Ipv6Addr>,
    pub(crate) control: Watched<ControlState>,
    pub(crate) icmp: IcmpState,
    pub(crate) policy: PacketPolicy,
    pub(crate) sockets: SocketTables,
    /// Connections, where this stack has any.
    pub(crate) tcp: Option<Box<crate::tcp::shard::TcpShard>>,
    pub(crate) shard: ShardContext,
    pub(crate) burst: BurstState,
    pub(crate) memory: MemoryShare,
    pub(crate) stats: Stats,
    /// The earliest deadline of the watched parts when they were asked last.
    pub(crate) parts_deadline: Cell<Instant>,
    /// Whether one of them may have changed since.
    pub(crate) parts_mark: ChangeMark,
    /// Copies packets for an operator, where one looks.
    pub(crate) tap: Option<Box<crate::tap::PacketTap>>,
}

impl Stack {
    /// Which of its host's workers runs this stack.
    #[must_use]
    pub const fn worker(&self) -> WorkerId {
        self.shard.worker
    }

    /// The function that maps a flow to the worker that owns it.
    #[must_use]
    pub const fn steering(&self) -> &Steering {
        &self.shard.steering
    }

    /// What has been counted, complete as of now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        let access = stats.access;
        stats.held = self.v4.reassembly.held() + self.v6.reassembly.held();
        let pairs = [
            (Counter::FloodwallHeaderChecks, access.checks()),
            (Counter::FloodwallHeaderBorrows, access.borrows),
            (Counter::FloodwallHeaderCopies, access.copies),
            (Counter::FloodwallHeaderCopiedBytes, access.copied_bytes),
            (Counter::FloodwallHeaderPulldowns, access.pulldowns),
            (Counter::FloodwallHeaderFailures, access.failures),
        ];
        for (counter, value) in pairs {
            stats.counters.set(counter, value);
        }
        // A program that shows addresses, routes and name servers reads them again when this
        // changes.
        let changes = stats.counters.of(Counter::FloodwallChanges);
        let routes =
            u64::from(self.v4.routes.generation()) + u64::from(self.v6.routes.generation());
        stats.counters.set(Counter::FloodwallChanges, changes + routes + self.dns_changes());
        self.count_published(&mut stats.counters);
        self.count_half_open(&mut stats.counters);
        stats
    }

    /// The interfaces, the loopback first.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The IPv4 routes; of a follower none: its control shard has them.
    #[must_use]
    pub fn routes_v4(&self) -> &Fib<Ipv4Addr> {
        &self.v4.routes
    }

    /// The IPv6 routes; of a follower none: its control shard has them.
    #[must_use]
    pub fn routes_v6(&self) -> &Fib<Ipv6Addr> {
        &self.v6.routes
    }

    /// The IPv4 neighbours.
    #[must_use]
    pub fn neighbors_v4(&self) -> &NeighborCache<Ipv4Addr> {
        &self.v4.neighbors
    }

    /// The IPv6 neighbours.
    #[must_use]
    pub fn neighbors_v6(&self) -> &NeighborCache<Ipv6Addr> {
        &self.v6.neighbors
    }

    /// IPv4 datagrams that lack fragments.
    #[must_use]
    pub fn reassembly_v4(&self) -> &FragmentStore<Ipv4Addr> {
        &self.v4.reassembly
    }

    /// IPv6 datagrams that lack fragments.
    #[must_use]
    pub fn reassembly_v6(&self) -> &FragmentStore<Ipv6Addr> {
        &self.v6.reassembly
    }

    /// The access list of an interface, where it has one, with what each rule decided here.
    #[must_use]
    pub fn access_list(&self, iface: IfIndex) -> Option<&floodwall_ip::access_list::AccessList> {
        self.policy.access_lists.get(usize::from(iface.0))?.as_ref()
    }

    /// Replaces the access list of an interface on this shard; without rules it has none. The
    /// counts of the rules begin anew. Returns false, and changes nothing, where there is no such
    /// interface, or it is the loopback, or there are more rules than `ACCESS_RULES_MAX`.
    /// Allocates: not for the packet path.
    pub fn set_access_list(
        &mut self,
        iface: IfIndex,
        rules: &[floodwall_ip::access_list::AccessRule],
    ) -> bool {
        let at = usize::from(iface.0);
        let fits = rules.len() <= limits::ACCESS_RULES_MAX;
        if iface == IfIndex::LOOPBACK || at >= self.interfaces.len() || !fits {
            return false;
        }
        let mut lists = core::mem::take(&mut self.policy.access_lists).into_vec();
        lists.resize_with(self.interfaces.len(), || None);
        if let Some(list) = lists.get_mut(at) {
            let new = || floodwall_ip::access_list::AccessList::new(rules);
            *list = (!rules.is_empty()).then(new);
        }
        // Packets are not looked at where no interface has rules.
        if lists.iter().any(Option::is_some) {
            self.policy.access_lists = lists.into();
        }
        self.policy.access_changes += 1;
        self.sockets.path_cache.forget();
        true
    }

    /// The interface with this name.
    #[must_use]
    pub fn interface_named(&self, name: &str) -> Option<IfIndex> {
        self.interfaces.iter().find(|i| i.name == name).map(|i| i.index)
    }

    /// Sets the time at which the following packets are received.
    #[inline]
    pub(crate) fn begin(&mut self, now: Instant) {
        self.sockets.recent_peers.begin(now);
        self.shard.wall.begin(now);
        if let Some(forwarding) = &mut self.policy.forwarding {
            forwarding.dialogues.begin(now);
        }
        self.sockets.udp.begin(now);
    }

    /// Takes a burst, then what waits on the loopback.
    pub(crate) fn receive(&mut self, cx: &mut RoundContext<'_>, arrived: &mut Burst) -> Units {
        self.stats.counters.count(Counter::FloodwallRounds);
        self.begin(cx.now);
        let start = self.begin_burst();
        // Counted before the loop: even if it ends early, all of them have arrived.
        self.stats.outcomes.received += arrived.len() as u64;
        let mut behind = arrived.len();
        for packet in arrived.drain() {
            behind -= 1;
            self.burst.more_arrives = behind > 0;
            self.take_in(cx, packet);
        }
        self.tcp_end_burst(cx);
        let looped = self.burst.loopback.len().min(limits::BURST_MAX);
        for behind in (0..looped).rev() {
            let Some(packet) = self.burst.loopback.pop_front() else { break };
            self.burst.more_arrives = behind > 0;
            self.input(cx, packet);
        }
        if looped > 0 {
            self.tcp_end_burst(cx);
        }
        self.forward_all(cx);
        self.effort_of_burst(&start)
    }

    /// When there is work beside that of connections; [`Instant::FAR`] where there is none. This
    /// runs every turn: parts are asked only after they have changed.
    #[inline(always)]
    pub(crate) fn deadline_beside_tcp(&self) -> Instant {
        if !self.parts_mark.is_clear() {
            return self.find_deadline_beside_tcp();
        }
        let first = self.parts_deadline.get();
        debug_assert_eq!(first, self.deadline_of_parts(), "a change was not seen");
        debug_assert!(!self.has_others(), "others were not seen");
        first
    }

    /// The same where a part has changed, or there are others.
    #[inline(never)]
    fn find_deadline_beside_tcp(&self) -> Instant {
        if self.parts_mark.has_changed() {
            self.parts_deadline.set(self.deadline_of_parts());
        }
        let first = self.parts_deadline.get();
        debug_assert_eq!(first, self.deadline_of_parts(), "a change was not seen");
        let others = self.has_others();
        self.parts_mark.clear(others);
        if others { self.deadline_with_others(first) } else { first }
    }

    /// Whether there are programs on other threads, a drain or other shards to look after.
    fn has_others(&self) -> bool {
        let ShardContext { remote, drain, role, .. } = &self.shard;
        remote.is_some() | drain.is_some() | matches!(role, Role::Control(_))
    }

    /// The earlier of `first` and what programs on other threads, a drain and other shards need.
    #[inline(never)]
    fn deadline_with_others(&self, mut first: Instant) -> Instant {
        let mut or = |at: Option<Instant>| first = first.min(at.unwrap_or(Instant::FAR));
        or(self.shard.remote.as_ref().and_then(|remote| remote.deadline()));
        or(self.drain_deadline());
        if let Role::Control(control) = &self.shard.role {
            or(control.deadline(self));
        }
        first
    }

    /// The earliest deadline of the watched parts.
    fn deadline_of_parts(&self) -> Instant {
        let mut first = self.control.address_deadline.unwrap_or(Instant::FAR);
        let mut or = |at: Option<Instant>| first = first.min(at.unwrap_or(Instant::FAR));
        or(self.v4.neighbors.deadline());
        or(self.v6.neighbors.deadline());
        or(self.control.dad.deadline());
        or(self.control.routers.deadline());
        or(self.control.advertisers.deadline());
        or(self.v4.reassembly.deadline());
        or(self.v6.reassembly.deadline());
        or(self.control.dhcp.deadline());
        or(self.control.dhcpv6.deadline());
        or(self.group_gateway_deadline());
        or(self.control.groups.deadline());
        or(self.v4.routes.deadline());
        or(self.v6.routes.deadline());
        first
    }

    /// Keeps a neighbour for ever (`ip neigh add … nud permanent`).
    ///
    /// # Errors
    /// The interface is not there, or its table is full.
    pub fn add_neighbor(
        &mut self,
        iface: IfIndex,
        addr: IpAddr,
        link_addr: MacAddr,
        now: Instant,
    ) -> Result<(), NeighborTableFull> {
        let mut waited = PacketList::new();
        match addr {
            IpAddr::V4(a) => self.v4.neighbors.set_permanent(iface, a, link_addr, now, &mut waited),
            IpAddr::V6(a) => self.v6.neighbors.set_permanent(iface, a, link_addr, now, &mut waited),
        }?;
        // The packets that waited were sent for a neighbour with another link address.
        self.neighbors_gone(&waited);
        Ok(())
    }

    /// Removes a neighbour in any state (`ip neigh del`). Packets that wait for it are dropped.
    /// False if it is not in the cache.
    pub fn remove_neighbor(&mut self, iface: IfIndex, addr: IpAddr) -> bool {
        let mut waited = PacketList::new();
        let known = match addr {
            IpAddr::V4(addr) => self.v4.neighbors.remove(iface, addr, &mut waited),
            IpAddr::V6(addr) => self.v6.neighbors.remove(iface, addr, &mut waited),
        };
        self.neighbors_gone(&waited);
        known
    }

    /// Removes all neighbours of an interface, permanent ones too (`ip neigh flush nud all`).
    /// Packets that wait for them are dropped. Visits every entry.
    pub fn flush_neighbors(&mut self, iface: IfIndex) {
        let mut waited = PacketList::new();
        self.v4.neighbors.flush(iface, &mut waited);
        self.v6.neighbors.flush(iface, &mut waited);
        self.neighbors_gone(&waited);
    }

    /// As [`Stack::flush_neighbors`], but keeps the permanent ones (`ip neigh flush`).
    pub fn flush_learnt_neighbors(&mut self, iface: IfIndex) {
        let mut waited = PacketList::new();
        self.v4.neighbors.flush_learnt(iface, &mut waited);
        self.v6.neighbors.flush_learnt(iface, &mut waited);
        self.neighbors_gone(&waited);
    }

    /// Invalidates cached paths after neighbours were removed; these packets waited for them.
    fn neighbors_gone(&mut self, waited: &PacketList) {
        self.sockets.path_cache.forget();
        self.stats.pending -= waited.len() as u64;
        self.stats.drops_out.add(DropReason::NeighborUnreachable, waited.len() as u64);
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.leave_place();
    }
}

/// What a pool must have so that `config`'s sockets can all be opened.
#[must_use]
pub fn accounts_needed(config: &StackConfig) -> usize {
    2 * (config.udp_sockets_max + config.udp_shared_sockets_max)
}
