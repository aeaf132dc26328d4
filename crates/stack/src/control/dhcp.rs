//! The stack's side of DHCPv4: one client per configured interface; its messages become packets,
//! its leases addresses and routes.
//!
//! Called by `rx.rs` and `deliver.rs` for received messages, by `addresses.rs` and `link.rs` for
//! events that a client waits for, and for timed work. Invariants: what a lease configured is
//! removed when it ends: its address, its routes and its MTU; the operator's configuration is never
//! touched. Reading: RFC 2131 section 4.1 (broadcasts without an address), RFC 5227. Not here:
//! validation of servers' messages (`floodwall_dhcp`), name resolution.
//!
//! # Under flood
//! See `floodwall_dhcp`. A datagram costs one check of its ports, and only while a client waits for
//! an answer; one for an address that is not ours is checked on that interface alone.

pub(crate) mod state;

use core::net::{IpAddr, Ipv4Addr};

use floodwall_base::limits::DHCP_MESSAGE_BYTES_MAX;
use floodwall_base::{Counter, DropReason, IfIndex, Instant, Randomness, Units};
use floodwall_checksum::{InternetSum, pseudo_header_v4, sum};
use floodwall_dhcp::{DhcpClient, DhcpEvent, Lease, LeaseRoute, Transmission};
use floodwall_fib::{Route, RouteProtocol};
use floodwall_ip::{
    AddressOrigin, AddressState, ArrivedHeading, ArrivedUpper, Detection, LinkMedium, input,
};
use floodwall_packet::{ChecksumState, PacketBuf};
use floodwall_wire::dhcpv4::{CLIENT_PORT, SERVER_PORT};
use floodwall_wire::{IpProtocol, UdpFields, UdpHeader, udp};

use self::state::LeasedInterface;
use crate::control::addresses::AddAddress;
use crate::ip::addr_pair::AddrPair;
use crate::ip::outgoing_packet::{BEST_EFFORT, OutgoingPacket};
use crate::ip::rx_meta::RxMeta;
use crate::ip::tx::HOP_LIMIT;
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// Metric of routes from a lease; the operator's routes take precedence.
const LEASE_METRIC: u32 = 1024;

impl Stack {
    /// Enables or disables the DHCP client of an interface (RFC 2131). Disabling releases the
    /// lease. No effect where the interface is not Ethernet.
    pub fn set_dhcp(&mut self, iface: IfIndex, on: bool, now: Instant, random: &mut Randomness) {
        let Some(interface) = self.interfaces.get(usize::from(iface.0)) else { return };
        let LinkMedium::Ethernet(mac) = interface.medium else { return };
        let up = interface.up;
        let Some(slot) = self.control.dhcp.served.get_mut(usize::from(iface.0)) else { return };
        let served = slot.get_or_insert_with(|| {
            let client = DhcpClient::new(mac);
            LeasedInterface { client, on: false }
        });
        match (core::mem::replace(&mut served.on, on), on) {
            (true, false) => served.client.release(now),
            (false, true) if up => served.client.start(now, random),
            _ => {}
        }
        self.control.dhcp.look();
    }

    /// The DHCP client of an interface, where it has one: its state, its lease, its refusals.
    #[must_use]
    pub fn dhcp(&self, iface: IfIndex) -> Option<&DhcpClient> {
        self.control.dhcp.client(iface)
    }

    /// Releases all leases, for an orderly shutdown; the release messages leave with the next timed
    /// work.
    pub fn release_leases(&mut self, now: Instant) {
        for served in self.control.dhcp.served.iter_mut().flatten() {
            served.client.release(now);
            served.on = false;
        }
        self.control.dhcp.look();
        self.control.dhcpv6.release(now);
    }

    /// A link came up or went down.
    pub(crate) fn dhcp_link(&mut self, iface: IfIndex, now: Instant, random: &mut Randomness) {
        let up = self.interfaces.get(usize::from(iface.0)).is_some_and(|i| i.up);
        if !up {
            self.control.dhcpv6.link_down(iface);
        }
        let served =
            self.control.dhcp.served.get_mut(usize::from(iface.0)).and_then(Option::as_mut);
        let Some(LeasedInterface { client, on: true, .. }) = served else { return };
        if up {
            client.start(now, random);
        } else {
            client.stop();
            if let Some(interface) = self.interfaces.get_mut(usize::from(iface.0)) {
                interface.set_leased_mtu(None);
            }
        }
        self.control.dhcp.look();
    }

    /// Notifies the client of the address's family of an address change that it may wait for.
    pub(crate) fn dhcp_address(
        &mut self,
        iface: IfIndex,
        addr: IpAddr,
        now: Instant,
        random: &mut Randomness,
    ) {
        if !self.is_leased(iface, addr) {
            return;
        }
        let state = self.interfaces.get(usize::from(iface.0)).and_then(|i| i.owns(addr));
        if addr.is_ipv6() {
            return self.dhcpv6_address(iface, state, now, random);
        }
        let Some(client) = self.control.dhcp.client_mut(iface) else { return };
        match state {
            Some(AddressState::Preferred | AddressState::Deprecated) => client.verified(now),
            Some(AddressState::Duplicate) => {
                self.stats.counters.count(Counter::FloodwallDhcpDeclines);
                client.unusable(now, random);
            }
            Some(AddressState::Tentative) | None => {}
        }
        self.control.dhcp.look();
    }

    /// Whether the address is from a lease: on the first sign of a conflict it is declined.
    pub(crate) fn is_leased(&self, iface: IfIndex, addr: IpAddr) -> bool {
        let interface = self.interfaces.get(usize::from(iface.0));
        let address = interface.and_then(|i| i.address(addr));
        address.is_some_and(|a| a.origin == AddressOrigin::Dhcp)
    }

    /// Whether a UDP datagram to us is a reply to a local client, by the port that it comes to.
    /// Servers and relays behind address translators may send from other ports than 67.
    pub(crate) fn is_for_dhcp(
        &mut self,
        packet: &PacketBuf,
        iface: IfIndex,
        upper: ArrivedUpper,
        l3: usize,
    ) -> bool {
        self.dhcp_reply_from(packet, iface, upper, l3).is_some()
    }

    /// The port that a reply to a local client comes from; `None` for any other datagram.
    fn dhcp_reply_from(
        &mut self,
        packet: &PacketBuf,
        iface: IfIndex,
        upper: ArrivedUpper,
        l3: usize,
    ) -> Option<u16> {
        let mut ports = [0; 4];
        let answers = self.is_follower() && self.dhcp_asks()
            || self.control.dhcp.client(iface).is_some_and(DhcpClient::awaits);
        let at = l3 + upper.offset;
        let ports: Option<&[u8; 4]> =
            answers.then(|| packet.header_array(at, &mut ports, &mut self.stats.access)).flatten();
        let [a, b, c, d] = *ports?;
        (u16::from_be_bytes([c, d]) == CLIENT_PORT).then_some(u16::from_be_bytes([a, b]))
    }

    /// Handles a datagram to an address that is not ours: a reply to a client that has no address
    /// yet, sent to the offered address (RFC 2131 section 4.1), in a frame for this station or, by
    /// servers that do not know how, for all; or one to drop.
    #[cold]
    pub(crate) fn dhcp_stray(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        l3: usize,
        heading: &ArrivedHeading<Ipv4Addr>,
    ) {
        let iface = packet.iface();
        let awaited = self.is_follower()
            || self.control.dhcp.client(iface).is_some_and(DhcpClient::awaits_without_address);
        if awaited
            && let Ok(upper) = input::ipv4_upper(&packet, l3, heading, &mut self.stats.access)
            && upper.protocol == IpProtocol::UDP
            // To an address that is not ours, from the server's own port only.
            && self.dhcp_reply_from(&packet, iface, upper, l3) == Some(SERVER_PORT)
        {
            let ascent = RxMeta { iface, l3, heading: *heading, to_group: false };
            return self.dhcp_input(cx, packet, ascent, upper);
        }
        if self.forwards::<Ipv4Addr>(iface) {
            return self.transit(cx, packet, l3, heading);
        }
        self.drop_ip::<Ipv4Addr>(packet, DropReason::IpNotForUs);
    }

    /// Handles a message for a local client.
    #[cold]
    pub(crate) fn dhcp_input(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv4Addr>,
        upper: ArrivedUpper,
    ) {
        if self.is_follower() {
            return self.hand_in(cx, packet, upper.fragmented.then_some(ascent.l3));
        }
        self.stats.counters.count(Counter::FloodwallDhcpIn);
        let l4 = ascent.l3 + upper.offset;
        let mut room = [0; udp::HEADER_LEN + DHCP_MESSAGE_BYTES_MAX];
        let len = packet.len().saturating_sub(l4).min(room.len());
        let bytes = packet.header(l4, len, &mut room, &mut self.stats.access);
        let Some(bytes) = bytes.filter(|_| packet.len() - l4 == len) else {
            return self.refuse_dhcp(packet);
        };
        let summed = packet.checksum_state() != ChecksumState::Unverified;
        let Some(payload) = datagram(bytes, &ascent.heading, summed) else {
            return self.refuse_dhcp(packet);
        };
        let Self { control, interfaces, .. } = self;
        // The client's own address is no conflict: it renews that lease.
        let is_others = |addr: Ipv4Addr| {
            let of = |i: &floodwall_ip::Interface| Some((i.index, i.address(addr.into())?.origin));
            let found = interfaces.iter().find_map(of);
            found.is_some_and(|(at, by)| at != ascent.iface || by != AddressOrigin::Dhcp)
        };
        let Some(client) = control.dhcp.client_mut(ascent.iface) else {
            return self.refuse_dhcp(packet);
        };
        match client.input(payload, ascent.heading.src_addr, cx.now, cx.random, is_others) {
            Ok(()) => {
                self.stats.outcomes.delivered += 1;
                drop(packet);
                self.dhcp_timers(cx, Units(4));
            }
            Err(_) => self.refuse_dhcp(packet),
        }
    }

    pub(crate) fn refuse_dhcp(&mut self, packet: PacketBuf) {
        self.stats.counters.count(Counter::FloodwallDhcpRefused);
        self.drop_packet(packet, DropReason::DhcpRefused);
    }

    /// Processes due client events, up to `budget` of them.
    pub(crate) fn dhcp_timers(&mut self, cx: &mut RoundContext<'_>, budget: Units) -> Units {
        let mut left = budget;
        while !left.is_zero() && self.control.dhcp.deadline().is_some_and(|at| at <= cx.now) {
            let Some((iface, event)) = self.control.dhcp.poll(cx.now, cx.random) else { break };
            left = left.minus(Units(1));
            match event {
                DhcpEvent::Send(message) => self.send_dhcp(cx, iface, &message),
                DhcpEvent::Verify(lease) => self.verify_lease(cx, iface, &lease),
                DhcpEvent::Bound(lease) => self.apply_lease(cx, iface, &lease),
                DhcpEvent::Ended(addr, _) => self.end_lease(cx, iface, addr),
            }
        }
        budget.minus(left)
    }

    fn send_dhcp(&mut self, cx: &mut RoundContext<'_>, iface: IfIndex, message: &Transmission) {
        self.stats.counters.count(Counter::FloodwallDhcpOut);
        let Transmission { src_addr, dst_addr, .. } = *message;
        let Some(packet) = as_datagram(cx, message) else {
            self.stats.outcomes.originated += 1;
            return self.stats.drops_out.count(DropReason::NoBuffer);
        };
        let zone = Some(iface);
        let (ends, protocol) = (AddrPair { src_addr, dst_addr }, IpProtocol::UDP);
        self.output(
            cx,
            OutgoingPacket {
                packet,
                ends,
                protocol,
                hop_limit: HOP_LIMIT,
                class: BEST_EFFORT,
                zone,
            },
        );
    }

    /// Starts duplicate address detection for a lease's address.
    fn verify_lease(&mut self, cx: &mut RoundContext<'_>, iface: IfIndex, lease: &Lease) {
        let new = leased(lease, Detection::Probe);
        // An expired address is removed by its own lifetime; a new lease may come before.
        let _ = self.remove_address(iface, new.addr, cx.now, cx.random);
        if self.add_address(iface, new, cx.now, cx.random).is_err()
            && let Some(client) = self.control.dhcp.client_mut(iface)
        {
            client.unusable(cx.now, cx.random);
        }
    }

    /// Applies a lease that has been granted or renewed.
    fn apply_lease(&mut self, cx: &mut RoundContext<'_>, iface: IfIndex, lease: &Lease) {
        self.stats.counters.count(Counter::FloodwallDhcpLeases);
        self.stats.counters.count(Counter::FloodwallChanges);
        let (addr, until) = (IpAddr::V4(lease.addr), lease.expires);
        let interface = self.interfaces.get(usize::from(iface.0));
        let now_has = interface.and_then(|i| i.address(addr));
        if now_has.is_some_and(|a| a.prefix_len != lease.prefix_len) {
            // A different prefix needs a different route.
            let _ = self.remove_address(iface, addr, cx.now, cx.random);
        }
        if self.refresh_address(iface, addr, until, until, cx.now).is_err() {
            let again = leased(lease, Detection::Announce);
            // A failure is visible in `address show`; the next renewal retries.
            let _ = self.add_address(iface, again, cx.now, cx.random);
        }
        self.apply_lease_routes(iface, lease, cx.now);
        if let Some(interface) = self.interfaces.get_mut(usize::from(iface.0)) {
            interface.set_leased_mtu(lease.mtu.map(u32::from));
        }
        self.sockets.path_cache.forget();
    }

    /// Adds the lease's routes and removes those that it no longer has. A route that stays is only
    /// prolonged: readers never find it missing.
    fn apply_lease_routes(&mut self, iface: IfIndex, lease: &Lease, now: Instant) {
        let of_lease = |(rank, route): (u32, LeaseRoute)| Route {
            gateway: route.gateway,
            protocol: RouteProtocol::Dhcp,
            metric: LEASE_METRIC + rank,
            expires: lease.expires,
            src_addr: Some(lease.addr),
            ..Route::on_link(route.prefix, iface)
        };
        let wanted = || (0..).zip(lease.routes.iter()).map(of_lease);
        let full = wanted().any(|route| self.v4.routes.set(route, now).is_err());
        self.v4.routes.remove_told(now, |r| {
            let kept = |w: Route<_>| (w.prefix, w.gateway) == (r.prefix, r.gateway);
            r.iface == iface && r.protocol == RouteProtocol::Dhcp && !wanted().any(kept)
        });
        if !full {
            return;
        }
        // There may be room now.
        for route in wanted() {
            if self.v4.routes.set(route, now).is_err() {
                self.stats.counters.count(Counter::FloodwallDhcpRoutesFailed);
            }
        }
    }

    fn end_lease(&mut self, cx: &mut RoundContext<'_>, iface: IfIndex, addr: Ipv4Addr) {
        self.stats.counters.count(Counter::FloodwallChanges);
        if self.is_leased(iface, addr.into()) {
            // It was found there above.
            let _ = self.remove_address(iface, addr.into(), cx.now, cx.random);
        }
        self.forget_lease_routes(iface, cx.now);
        if let Some(interface) = self.interfaces.get_mut(usize::from(iface.0)) {
            interface.set_leased_mtu(None);
        }
        self.sockets.path_cache.forget();
    }

    fn forget_lease_routes(&mut self, iface: IfIndex, now: Instant) {
        self.v4.routes.remove_told(now, |r| r.iface == iface && r.protocol == RouteProtocol::Dhcp);
    }
}

/// The interface address of a lease.
fn leased(lease: &Lease, detection: Detection) -> AddAddress {
    AddAddress {
        addr: lease.addr.into(),
        prefix_len: lease.prefix_len,
        origin: AddressOrigin::Dhcp,
        preferred_until: lease.expires,
        valid_until: lease.expires,
        detection,
        prefix_route: true,
    }
}

/// The UDP payload of a datagram, if length and checksum are correct.
fn datagram<'a>(
    bytes: &'a [u8],
    heading: &ArrivedHeading<Ipv4Addr>,
    summed: bool,
) -> Option<&'a [u8]> {
    let header = UdpHeader::parse(bytes, bytes.len()).ok()?;
    let payload = bytes.get(udp::HEADER_LEN..header.len())?;
    let pseudo = pseudo(heading.src_addr, heading.dst_addr, header.len());
    (summed || header.verifies(pseudo, sum(payload))).then_some(payload)
}

/// A DHCP message with its UDP header.
fn as_datagram(cx: &RoundContext<'_>, message: &Transmission) -> Option<PacketBuf> {
    let payload = message.bytes();
    let len = udp::HEADER_LEN + payload.len();
    let mut packet = cx.pool.alloc_for(len)?;
    let (header, body) = packet.extend(len)?.split_first_chunk_mut::<{ udp::HEADER_LEN }>()?;
    body.copy_from_slice(payload);
    let fields = UdpFields { src_port: CLIENT_PORT, dst_port: SERVER_PORT, len: len as u16 };
    fields.emit(pseudo(message.src_addr, message.dst_addr, len), sum(payload), header);
    Some(packet)
}

fn pseudo(src_addr: Ipv4Addr, dst_addr: Ipv4Addr, len: usize) -> InternetSum {
    pseudo_header_v4(src_addr, dst_addr, IpProtocol::UDP.0, len as u16)
}
