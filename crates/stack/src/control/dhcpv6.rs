//! The stack's side of DHCPv6: one client per configured interface, started by the flags of router
//! advertisements; its messages become packets, its leases addresses, its settings DNS servers.
//!
//! Called by `deliver.rs` for received messages, by `router.rs` when a router has spoken, by
//! `dhcp.rs` for links and addresses, and for timed work. Invariants: a leased address is a /128
//! without a route of its own (RFC 5942: what is on the link routers say); it is removed when its
//! lease ends; the operator's configuration is never touched. Reading: RFC 8415 section 18.2, RFC
//! 4861 section 4.2 (M and O). Not here: validation of servers' messages (`floodwall_dhcp`).
//!
//! # Under flood
//! See `floodwall_dhcp::v6`. A datagram costs one check of its ports, and only while a client waits
//! for an answer. A router that sets flags starts one client of an interface, once.

pub(crate) mod state;

use core::net::{IpAddr, Ipv6Addr};

use floodwall_base::limits::DHCP_MESSAGE_BYTES_MAX;
use floodwall_base::{Counter, DropReason, IfIndex, Instant, Randomness, Units};
use floodwall_checksum::{InternetSum, pseudo_header_v6, sum};
use floodwall_dhcp::{
    Dhcpv6Client, Dhcpv6Event, Dhcpv6Lease, Dhcpv6Settings, Dhcpv6Transmission, Dhcpv6Wanted,
};
use floodwall_ip::{AddressOrigin, AddressState, ArrivedUpper, Detection, Interface, LinkMedium};
use floodwall_packet::{ChecksumState, PacketBuf};
use floodwall_wire::dhcpv6::{ALL_SERVERS, CLIENT_PORT, SERVER_PORT};
use floodwall_wire::ndp::RouterAdvertisementFields;
use floodwall_wire::{IpProtocol, UdpFields, UdpHeader, udp};

use self::state::ServedInterface;
use crate::control::addresses::AddAddress;
use crate::ip::addr_pair::AddrPair;
use crate::ip::outgoing_packet::{BEST_EFFORT, OutgoingPacket};
use crate::ip::rx_meta::RxMeta;
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// Messages to servers do not leave the link.
const HOP_LIMIT: u8 = 1;

impl Stack {
    /// Enables or disables the DHCPv6 client of an interface (RFC 8415), which starts when a router
    /// says that addresses (M) or settings (O) are to be had. Disabling releases the lease. No
    /// effect where the interface is not Ethernet.
    pub fn set_dhcpv6(&mut self, iface: IfIndex, on: bool, now: Instant) {
        let Some(interface) = self.interfaces.get(usize::from(iface.0)) else { return };
        let LinkMedium::Ethernet(mac) = interface.medium else { return };
        let clients = &mut self.control.dhcpv6;
        let Some(slot) = clients.served.get_mut(usize::from(iface.0)) else { return };
        let new = || ServedInterface { client: Dhcpv6Client::new(mac), on: false, shown: None };
        let served = slot.get_or_insert_with(new);
        if core::mem::replace(&mut served.on, on) && !on {
            served.client.release(now);
        }
        clients.listens |= on;
        clients.look();
    }

    /// The DHCPv6 client of an interface, where it has one: its state, its lease, its refusals.
    #[must_use]
    pub fn dhcpv6(&self, iface: IfIndex) -> Option<&Dhcpv6Client> {
        self.control.dhcpv6.served.get(usize::from(iface.0))?.as_ref().map(|served| &served.client)
    }

    /// The settings that DHCPv6 servers have given, with the interface of each.
    pub fn dhcpv6_settings(&self) -> impl Iterator<Item = (IfIndex, &Dhcpv6Settings)> {
        self.interfaces.iter().filter_map(|i| Some((i.index, self.dhcpv6(i.index)?.settings()?)))
    }

    /// A router of the link has spoken: what its flags say there is to be had is asked for.
    pub(crate) fn dhcpv6_advertised(
        &mut self,
        iface: IfIndex,
        fields: &RouterAdvertisementFields,
        now: Instant,
        random: &mut Randomness,
    ) {
        let wanted = match (fields.managed, fields.other) {
            (true, _) => Dhcpv6Wanted::Address,
            (false, true) => Dhcpv6Wanted::Settings,
            (false, false) => return,
        };
        if let Some(served) = self.control.dhcpv6.of(iface).filter(|served| served.on) {
            served.client.start(wanted, now, random);
            self.control.dhcpv6.look();
        }
    }

    /// Notifies the client of the state of an address of a lease.
    pub(crate) fn dhcpv6_address(
        &mut self,
        iface: IfIndex,
        state: Option<AddressState>,
        now: Instant,
        random: &mut Randomness,
    ) {
        let Some(served) = self.control.dhcpv6.of(iface) else { return };
        match state {
            Some(AddressState::Preferred | AddressState::Deprecated) => served.client.verified(now),
            Some(AddressState::Duplicate) => {
                self.stats.counters.count(Counter::FloodwallDhcpDeclines);
                served.client.unusable(now, random);
            }
            Some(AddressState::Tentative) | None => {}
        }
        self.control.dhcpv6.look();
    }

    /// Whether a UDP datagram to us is a reply to a local client, by the port that it comes to.
    pub(crate) fn is_for_dhcpv6(
        &mut self,
        packet: &PacketBuf,
        ascent: &RxMeta<Ipv6Addr>,
        upper: ArrivedUpper,
    ) -> bool {
        let waits = self.dhcpv6(ascent.iface).is_some_and(Dhcpv6Client::awaits);
        if !waits || ascent.to_group {
            return false;
        }
        let (mut room, at) = ([0; 4], ascent.l3 + upper.offset);
        let ports: Option<&[u8; 4]> = packet.header_array(at, &mut room, &mut self.stats.access);
        ports.is_some_and(|[_, _, c, d]| u16::from_be_bytes([*c, *d]) == CLIENT_PORT)
    }

    /// Handles a message for a local client.
    #[cold]
    pub(crate) fn dhcpv6_input(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv6Addr>,
        upper: ArrivedUpper,
    ) {
        self.stats.counters.count(Counter::FloodwallDhcpIn);
        let l4 = ascent.l3 + upper.offset;
        let mut room = [0; udp::HEADER_LEN + DHCP_MESSAGE_BYTES_MAX];
        let len = packet.len().saturating_sub(l4).min(room.len());
        let bytes = packet.header(l4, len, &mut room, &mut self.stats.access);
        let bytes = bytes.filter(|_| packet.len() - l4 == len);
        let summed = packet.checksum_state() != ChecksumState::Unverified;
        let ends = (ascent.heading.src_addr, ascent.heading.dst_addr);
        let Some(payload) = bytes.and_then(|bytes| datagram(bytes, ends, summed)) else {
            return self.refuse_dhcp(packet);
        };
        let Self { control, interfaces, .. } = self;
        let Some(served) = control.dhcpv6.of(ascent.iface) else {
            return self.refuse_dhcp(packet);
        };
        let leased = served.client.lease().map(|lease| lease.addr);
        let is_ours = |addr: Ipv6Addr| {
            let has = |i: &Interface| i.address(addr.into()).is_some();
            leased != Some(addr) && interfaces.iter().any(has)
        };
        match served.client.input(payload, cx.now, cx.random, is_ours) {
            Ok(()) => {
                self.stats.outcomes.delivered += 1;
                drop(packet);
                self.dhcpv6_timers(cx, Units(4));
            }
            Err(_) => self.refuse_dhcp(packet),
        }
    }

    /// Processes due client events, up to `budget` of them.
    pub(crate) fn dhcpv6_timers(&mut self, cx: &mut RoundContext<'_>, budget: Units) -> Units {
        let mut left = budget;
        while !left.is_zero() && self.control.dhcpv6.deadline().is_some_and(|at| at <= cx.now) {
            let Some((iface, event)) = self.control.dhcpv6.poll(cx.now, cx.random) else { break };
            left = left.minus(Units(1));
            match event {
                Dhcpv6Event::Send(message) => self.send_dhcpv6(cx, iface, &message),
                Dhcpv6Event::Verify(lease) => self.verify_lease_v6(cx, iface, &lease),
                Dhcpv6Event::Bound(lease) => self.apply_lease_v6(cx, iface, &lease),
                Dhcpv6Event::Ended(addr, _) => self.end_lease_v6(cx, iface, addr),
                Dhcpv6Event::Informed => {}
            }
            self.show_settings(iface);
        }
        budget.minus(left)
    }

    /// Reports changed DNS servers and domains to the embedding program.
    fn show_settings(&mut self, iface: IfIndex) {
        let Some(served) = self.control.dhcpv6.of(iface) else { return };
        let settings = served.client.settings().copied();
        if core::mem::replace(&mut served.shown, settings) != settings {
            self.control.routers.count_dns_change();
        }
    }

    /// Sends a message from our link-local address. Without one it is not sent: the client tries
    /// again, as after a loss.
    fn send_dhcpv6(
        &mut self,
        cx: &mut RoundContext<'_>,
        iface: IfIndex,
        message: &Dhcpv6Transmission,
    ) {
        let interface = self.interfaces.get(usize::from(iface.0));
        let Some(src_addr) = interface.and_then(Interface::link_local_addr) else { return };
        self.stats.counters.count(Counter::FloodwallDhcpOut);
        let ends = AddrPair { src_addr, dst_addr: ALL_SERVERS };
        let Some(packet) = as_datagram(cx, message, src_addr) else {
            self.stats.outcomes.originated += 1;
            return self.stats.drops_out.count(DropReason::NoBuffer);
        };
        let (zone, protocol) = (Some(iface), IpProtocol::UDP);
        let (hop_limit, class) = (HOP_LIMIT, BEST_EFFORT);
        self.output(cx, OutgoingPacket { packet, ends, protocol, hop_limit, class, zone });
    }

    /// Starts duplicate address detection for a lease's address (RFC 8415 section 18.2.10.1).
    fn verify_lease_v6(&mut self, cx: &mut RoundContext<'_>, iface: IfIndex, lease: &Dhcpv6Lease) {
        let new = leased(lease);
        if self.add_address(iface, new, cx.now, cx.random).is_err()
            && let Some(served) = self.control.dhcpv6.of(iface)
        {
            served.client.unusable(cx.now, cx.random);
        }
    }

    /// Applies a lease that has been granted or renewed.
    fn apply_lease_v6(&mut self, cx: &mut RoundContext<'_>, iface: IfIndex, lease: &Dhcpv6Lease) {
        self.stats.counters.count(Counter::FloodwallDhcpLeases);
        self.stats.counters.count(Counter::FloodwallChanges);
        let (addr, ends) = (IpAddr::V6(lease.addr), (lease.preferred_until, lease.valid_until));
        if self.refresh_address(iface, addr, ends.0, ends.1, cx.now).is_err() {
            // A failure is visible in `address show`; the next renewal retries.
            let _ = self.add_address(iface, leased(lease), cx.now, cx.random);
        }
        self.sockets.path_cache.forget();
    }

    fn end_lease_v6(&mut self, cx: &mut RoundContext<'_>, iface: IfIndex, addr: Ipv6Addr) {
        self.stats.counters.count(Counter::FloodwallChanges);
        if self.is_leased(iface, addr.into()) {
            // It was found there above.
            let _ = self.remove_address(iface, addr.into(), cx.now, cx.random);
        }
        self.sockets.path_cache.forget();
    }
}

/// The interface address of a lease.
fn leased(lease: &Dhcpv6Lease) -> AddAddress {
    AddAddress {
        addr: lease.addr.into(),
        prefix_len: 128,
        origin: AddressOrigin::Dhcp,
        preferred_until: lease.preferred_until,
        valid_until: lease.valid_until,
        detection: Detection::Probe,
        prefix_route: false,
    }
}

/// The UDP payload of a datagram, if length and checksum are correct; the checksum may not be
/// absent (RFC 8200 section 8.1).
fn datagram(bytes: &[u8], ends: (Ipv6Addr, Ipv6Addr), summed: bool) -> Option<&[u8]> {
    let header = UdpHeader::parse(bytes, bytes.len()).ok()?;
    let payload = bytes.get(udp::HEADER_LEN..header.len())?;
    let pseudo = pseudo(ends.0, ends.1, header.len());
    let whole = summed || header.verifies(pseudo, sum(payload));
    (whole && header.checksum().is_some()).then_some(payload)
}

/// A message with its UDP header.
fn as_datagram(
    cx: &RoundContext<'_>,
    message: &Dhcpv6Transmission,
    src_addr: Ipv6Addr,
) -> Option<PacketBuf> {
    let payload = message.bytes();
    let len = udp::HEADER_LEN + payload.len();
    let mut packet = cx.pool.alloc_for(len)?;
    let (header, body) = packet.extend(len)?.split_first_chunk_mut::<{ udp::HEADER_LEN }>()?;
    body.copy_from_slice(payload);
    let fields = UdpFields { src_port: CLIENT_PORT, dst_port: SERVER_PORT, len: len as u16 };
    fields.emit(pseudo(src_addr, ALL_SERVERS, len), sum(payload), header);
    Some(packet)
}

fn pseudo(src_addr: Ipv6Addr, dst_addr: Ipv6Addr, len: usize) -> InternetSum {
    pseudo_header_v6(src_addr, dst_addr, IpProtocol::UDP.0, len as u32)
}
