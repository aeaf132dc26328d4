//! Group membership: the groups that interfaces receive are reported to routers and switches, and
//! queries are answered.
//!
//! Called by `deliver.rs` with IGMP and MLD messages, by `addresses.rs` and `link.rs` when
//! addresses or links change, by `multicast/sockets.rs` when programs join and leave, for timers.
//! Invariant: after [`Stack::groups_changed`] the two engines of an interface have exactly the
//! groups that its programs joined and that its addresses need; nothing else updates them. Reading:
//! RFC 9776, RFC 9777, RFC 3590 (the source of a report), RFC 4862 section 5.4.2 (a tentative
//! address's group too). Not here: the engine itself and its bounds (`floodwall_ip::membership`, `#
//! Under flood` there); delivery to sockets (`floodwall_udp`).

mod input;
mod sockets;
pub(crate) mod state;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use floodwall_base::limits::INTERFACE_GROUPS_MAX;
use floodwall_base::{
    Address, Counter, DropReason, IfIndex, Instant, Randomness, Units, solicited_node,
};
use floodwall_ip::membership::{self, HEADERS_MAX, MESSAGE_MIN, MembershipReport};
use floodwall_ip::{
    AddressState, GroupMessageKind, GroupProtocolState, Interface, LinkMedium, SourceFilter,
};
use floodwall_wire::group::GroupProtocol;

use self::state::GroupLink;
use crate::ip::ip_family::IpFamily;
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// Maximum length of a report: an Ethernet MTU.
const MESSAGE_MAX: usize = 1500;
/// Maximum delay of a link's first report, so that hosts that start together do not all send at
/// once (RFC 4862 section 5.4.2).
const FIRST_WAIT_MAX: Duration = Duration::from_millis(100);

/// One family's membership engine of a link.
pub(crate) trait GroupEngines: IpFamily + GroupProtocol {
    fn engine(link: &mut GroupLink) -> &mut GroupProtocolState<Self>;

    /// Counts a transmitted report.
    fn count_report(stack: &mut Stack, kind: GroupMessageKind);
}

impl GroupEngines for Ipv4Addr {
    fn engine(link: &mut GroupLink) -> &mut GroupProtocolState<Self> {
        &mut link.v4
    }
    fn count_report(stack: &mut Stack, kind: GroupMessageKind) {
        stack.stats.counters.count(match kind {
            GroupMessageKind::Leave => Counter::FloodwallIgmpOutLeaves,
            _ => Counter::FloodwallIgmpOutReports,
        });
    }
}

impl GroupEngines for Ipv6Addr {
    fn engine(link: &mut GroupLink) -> &mut GroupProtocolState<Self> {
        &mut link.v6
    }
    fn count_report(stack: &mut Stack, kind: GroupMessageKind) {
        stack.stats.counters.count(Counter::Icmp6OutMsgs);
        stack.stats.counters.count(match kind {
            GroupMessageKind::Leave => Counter::Icmp6OutGroupMembReductions,
            GroupMessageKind::Records => Counter::Icmp6OutMLDv2Reports,
            _ => Counter::Icmp6OutGroupMembResponses,
        });
    }
}

/// The desired memberships of an interface for one family: each group with its filter.
struct WantedGroup<A> {
    groups: [Option<(A, SourceFilter<A>)>; INTERFACE_GROUPS_MAX],
}

impl<A: GroupProtocol> WantedGroup<A> {
    fn of(interface: &Interface) -> Self {
        let mut groups = [None; INTERFACE_GROUPS_MAX];
        let joined = interface.groups().filter_map(A::from_ip);
        for (slot, group) in groups.iter_mut().zip(joined) {
            *slot = Some((group, SourceFilter::ALL_SOURCES));
        }
        Self { groups }
    }

    fn filter(&self, group: A) -> Option<SourceFilter<A>> {
        self.groups.iter().flatten().find(|(g, _)| *g == group).map(|(_, filter)| *filter)
    }
}

/// Whether an address of the interface requires the group (RFC 4291 section 2.8).
fn is_solicited<A: Address>(interface: &Interface, group: A) -> bool {
    solicited(interface).any(|g| g.to_ip() == group.to_ip())
}

/// The solicited-node groups of the interface's addresses, on a link with neighbour discovery.
fn solicited(interface: &Interface) -> impl Iterator<Item = Ipv6Addr> + '_ {
    let asked = matches!(interface.medium, LinkMedium::Ethernet(_));
    let addresses =
        interface.addresses().filter(move |a| asked && a.state != AddressState::Duplicate);
    let ours = addresses.filter_map(|a| match a.addr {
        IpAddr::V6(addr) => Some(addr),
        IpAddr::V4(_) => None,
    });
    let anycasts = interface.router_anycasts().filter(move |_| asked);
    ours.chain(anycasts).map(solicited_node)
}

impl Stack {
    /// Recomputes an interface's memberships after any change of its groups, addresses or link: the
    /// one place for that. Costs a pass over its groups for each of them; never on a packet's path
    /// except where the packet brought an address.
    pub(crate) fn groups_changed(&mut self, iface: IfIndex, now: Instant, random: &mut Randomness) {
        let Self { interfaces, control, .. } = self;
        let groups = &mut control.groups;
        let Some(interface) = interfaces.get(usize::from(iface.0)) else { return };
        let Some(link) = groups.link_mut(iface) else { return };
        if interface.medium == LinkMedium::Loopback {
            return;
        }
        if !interface.up {
            (link.up, link.has_source) = (false, false);
            link.v4.clear();
            link.v6.clear();
            return groups.plan();
        }
        let first = !core::mem::replace(&mut link.up, true);
        let wait = if first { first_wait(random) } else { Duration::ZERO };
        let mut wanted_v4 = WantedGroup::<Ipv4Addr>::of(interface);
        let mut wanted_v6 = WantedGroup::<Ipv6Addr>::of(interface);
        if groups.filtered > 0 {
            sockets::merge_filters(&self.sockets.udp, iface, &mut wanted_v4.groups);
            sockets::merge_filters(&self.sockets.udp, iface, &mut wanted_v6.groups);
        }
        let Some(link) = groups.link_mut(iface) else { return };
        follow(interface, &wanted_v4, link, now, wait);
        follow(interface, &wanted_v6, link, now, wait);
        let has_source = interface.link_local_addr().is_some();
        // Reports without a source reached switches at best (RFC 3590 section 4).
        if has_source && !link.has_source && !first {
            link.v6.announce(now, Duration::ZERO);
        }
        link.has_source = has_source;
        groups.plan();
    }

    /// Recomputes the memberships of every interface: at the start.
    pub(crate) fn all_groups_changed(&mut self, now: Instant, random: &mut Randomness) {
        for at in 0..self.interfaces.len() {
            self.groups_changed(IfIndex(at as u16), now, random);
        }
    }

    /// Sends due reports, up to `budget` messages.
    pub(crate) fn group_timers(&mut self, cx: &mut RoundContext<'_>, budget: Units) -> Units {
        let mut spent = Units(0);
        if self.control.groups.next.is_none_or(|next| next > cx.now) {
            return spent;
        }
        for at in 0..self.interfaces.len() {
            let iface = IfIndex(at as u16);
            for one in [Self::group_report::<Ipv4Addr>, Self::group_report::<Ipv6Addr>] {
                if spent < budget {
                    spent = spent.plus(one(self, cx, iface));
                }
            }
        }
        self.control.groups.plan();
        spent
    }

    /// Sends one report of one interface and family, if one is due.
    fn group_report<A: GroupEngines>(
        &mut self,
        cx: &mut RoundContext<'_>,
        iface: IfIndex,
    ) -> Units {
        let Self { interfaces, control, .. } = self;
        let groups = &mut control.groups;
        let Some(interface) = interfaces.get(usize::from(iface.0)) else { return Units(0) };
        let Some(link) = groups.link_mut(iface) else { return Units(0) };
        let engine = A::engine(link);
        if engine.deadline().is_none_or(|due| due > cx.now) {
            return Units(0);
        }
        let mut out = [0; MESSAGE_MAX];
        let room = (interface.mtu as usize).saturating_sub(HEADERS_MAX);
        let room = room.clamp(MESSAGE_MIN, MESSAGE_MAX - HEADERS_MAX);
        let src_addr = report_source::<A>(interface);
        let out = out.get_mut(..room).unwrap_or_default();
        let report = engine.work(src_addr, out, cx.now, &mut cx.random.public);
        if let Some(report) = report
            && let Some(message) = out.get(..report.len)
        {
            self.send_report(cx, iface, report, message);
        }
        Units(1)
    }

    fn send_report<A: GroupEngines>(
        &mut self,
        cx: &mut RoundContext<'_>,
        iface: IfIndex,
        report: MembershipReport<A>,
        message: &[u8],
    ) {
        let packet = membership::packet(cx.pool, report.ends, message);
        self.originate::<A>(packet.as_ref().map_or(0, |p| p.len()));
        let Some(packet) = packet else {
            // The engine repeats it.
            self.stats.counters.count(A::OUT_DISCARDS);
            return self.stats.drops_out.count(DropReason::NoBuffer);
        };
        A::count_report(self, report.kind);
        self.transmit(cx, packet, iface, report.ends.dst_addr, None);
    }
}

fn first_wait(random: &mut Randomness) -> Duration {
    Duration::from_nanos(random.public.below(FIRST_WAIT_MAX.as_nanos() as u64))
}

/// Our address to report from: unspecified where there is none yet (RFC 9776 section 4.2.14, RFC
/// 3590 section 4).
fn report_source<A: Address>(interface: &Interface) -> A {
    let v6 = interface.link_local_addr().map(IpAddr::V6);
    let mut all = interface.addresses().filter(|a| a.state.is_assigned()).map(|a| a.addr);
    let v4 = all.find(IpAddr::is_ipv4);
    v6.into_iter().chain(v4).find_map(A::from_ip).unwrap_or(A::UNSPECIFIED)
}

/// Updates one engine to the desired memberships.
fn follow<A: GroupEngines>(
    interface: &Interface,
    wanted: &WantedGroup<A>,
    link: &mut GroupLink,
    now: Instant,
    wait: Duration,
) {
    let engine = A::engine(link);
    let unwanted = |engine: &GroupProtocolState<A>| {
        let mut groups = engine.groups();
        groups.find(|g| wanted.filter(*g).is_none() && !is_solicited(interface, *g))
    };
    while let Some(group) = unwanted(engine) {
        // Leaving a joined group always succeeds.
        let _ = engine.set(group, SourceFilter::NO_SOURCES, now, wait);
    }
    let own = solicited(interface).filter_map(|g| A::from_ip(g.into()));
    for group in own {
        // There is room for a group of each address, beside all that can be joined.
        let _ = engine.set(group, SourceFilter::ALL_SOURCES, now, wait);
    }
    for (group, filter) in wanted.groups.iter().flatten() {
        let filter =
            if is_solicited(interface, *group) { SourceFilter::ALL_SOURCES } else { *filter };
        let _ = engine.set(*group, filter, now, wait);
    }
}
