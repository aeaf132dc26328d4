//! An interface as the network layer sees it: link, addresses, groups.
//!
//! Called by `stack` (configuration, and for every packet whether it is ours), by `arp.rs`,
//! `ndp.rs` and `source_address.rs`. Invariants: at most [`ADDRESSES_MAX`] addresses of each family
//! and [`INTERFACE_GROUPS_MAX`] joined groups, memory taken at construction; no address twice; an
//! Ethernet interface with IPv6 has a link-local address from the start. No received packet changes
//! this state, so it cannot be flooded. Read first: RFC 4291 section 2.8 (what a host must
//! recognise), RFC 1122 section 3.2.1.3, RFC 4862 section 5.3. Not here: timers of addresses
//! (`dad.rs`).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::limits::{ADDRESSES_MAX, INTERFACE_GROUPS_MAX};
use floodwall_base::{
    Address, IfIndex, Instant, IpCidr, MacAddr, ipv4_is_reserved, solicited_node,
};
use thiserror::Error;

mod address;

use address::Assigned;
pub use address::{AddressOrigin, AddressState, InterfaceAddress};

/// The hop limit of what we send, until something else is configured (RFC 1700's 64).
pub const HOP_LIMIT: u8 = 64;

/// What the interface's frames look like.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkMedium {
    /// Ethernet frames, with our own link address: neighbours must be resolved.
    Ethernet(MacAddr),
    /// Bare IP packets to one peer or network behind: nothing to resolve.
    Ip,
    /// Bare IP packets that come back to ourselves.
    Loopback,
}

/// Why an interface refuses an address or a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum InterfaceError {
    /// It has this address already.
    #[error("the interface has {0} already")]
    AddressExists(IpAddr),
    /// It has as many of this family as it may.
    #[error("the interface has {ADDRESSES_MAX} addresses of this family already")]
    AddressesFull,
    /// No host can have this address.
    #[error("{0} cannot be a host's address")]
    AddressInvalid(IpAddr),
    /// It has not this address.
    #[error("the interface does not have {0}")]
    AddressUnknown(IpAddr),
    /// The group is none.
    #[error("{0} is not a multicast group")]
    GroupInvalid(IpAddr),
    /// It has joined as many as it may.
    #[error("the interface has joined {INTERFACE_GROUPS_MAX} groups already")]
    GroupsFull,
}

/// A Bloom filter: one bit of 256 an address. So many, because each of a router's destinations that
/// is a false positive costs a mispredicted branch.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct MulticastSieve([u64; 4]);

impl MulticastSieve {
    /// The 64-bit word and the bit. Spreads by the golden ratio (Knuth, volume 3, section 6.4):
    /// adjacent addresses get different bits. A peer that picks addresses that share a bit with
    /// ours only causes the exact look-up.
    #[inline]
    const fn bit(key: u64) -> (usize, u64) {
        let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((spread >> 62) as usize, 1 << (spread >> 56 & 63))
    }

    #[inline]
    fn may_hold(&self, key: u64) -> bool {
        let (word, bit) = Self::bit(key);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    fn insert(&mut self, key: u64) {
        let (word, bit) = Self::bit(key);
        self.0.get_mut(word).into_iter().for_each(|word| *word |= bit);
    }
}

/// Both halves of an address in one number.
#[inline]
const fn fold_v6(addr: Ipv6Addr) -> u64 {
    let bits = addr.to_bits();
    bits as u64 ^ (bits >> 64) as u64
}

/// The subnet-router anycast address of an address's prefix (RFC 4291 section 2.6.1). Between two
/// routers, and of one address, there is none (RFC 6164 section 5.1).
fn router_anycast(addr: Ipv6Addr, prefix_len: u8) -> Option<Ipv6Addr> {
    let host = u128::MAX.checked_shr(prefix_len.into()).filter(|host| *host > 1)?;
    Some(Ipv6Addr::from_bits(addr.to_bits() & !host))
}

/// The bits behind a prefix.
#[inline]
const fn host_bits(prefix_len: u8) -> u32 {
    match u32::MAX.checked_shr(prefix_len as u32) {
        Some(bits) => bits,
        None => 0,
    }
}

/// IPv6's minimum MTU (RFC 8200 section 5).
const MTU_MIN_V6: u32 = 1280;

/// One interface: link, MTU, addresses and groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its number.
    pub index: IfIndex,
    /// Its name, for humans.
    pub name: String,
    /// Its frames, and our link address.
    pub medium: LinkMedium,
    /// Bytes of the largest IPv4 packet that we send: what the link carries, or less where a lease
    /// says so.
    pub mtu: u32,
    /// Whether packets may pass: the operator lets them, and the link carries.
    pub up: bool,
    /// Whether the operator lets packets pass.
    pub admin_up: bool,
    /// Whether the link carries.
    pub carrier: bool,
    /// Bytes of the largest IPv6 packet that we send: the same, or less where a router says so.
    pub mtu_v6: u32,
    /// Bytes of the largest packet that the link itself carries.
    pub link_mtu: u32,
    /// The MTU of the interface's lease, and the one that a router advertises.
    told_mtu: (Option<u32>, Option<u32>),
    /// The hop limit of the IPv6 packets that we send here.
    pub hop_limit: u8,
    /// Whether IPv6 packets that arrive here are forwarded: neighbours see it in the router flag.
    pub is_router: bool,
    /// Promiscuous: whether every unicast packet that arrives here is for us, regardless of
    /// destination.
    pub any_destination: bool,
    v4: Vec<Assigned<Ipv4Addr>>,
    v6: Vec<Assigned<Ipv6Addr>>,
    /// Of the IPv4 addresses and their prefixes' broadcast addresses, and of the IPv6 addresses and
    /// their prefixes' subnet-router anycast addresses.
    sieves: (MulticastSieve, MulticastSieve),
    /// The joined groups, and how many times each is joined.
    groups: Vec<(IpAddr, u32)>,
}

impl Interface {
    /// An interface that is up. Loopback gets 127.0.0.1/8 and ::1/128; Ethernet gets its IPv6
    /// link-local address, [`AddressState::Tentative`], where `ipv6` is wanted. Allocates all that
    /// it ever needs.
    #[must_use]
    pub fn new(
        index: IfIndex,
        name: impl Into<String>,
        medium: LinkMedium,
        mtu: u32,
        ipv6: bool,
    ) -> Self {
        let mut iface = Self {
            index,
            name: name.into(),
            medium,
            mtu,
            up: true,
            admin_up: true,
            carrier: true,
            hop_limit: HOP_LIMIT,
            is_router: false,
            any_destination: false,
            mtu_v6: mtu,
            link_mtu: mtu,
            told_mtu: (None, None),
            v4: Vec::with_capacity(ADDRESSES_MAX),
            v6: Vec::with_capacity(ADDRESSES_MAX),
            sieves: Default::default(),
            groups: Vec::with_capacity(INTERFACE_GROUPS_MAX),
        };
        let (tentative, preferred) = (AddressState::Tentative, AddressState::Preferred);
        match medium {
            LinkMedium::Ethernet(link_addr) if ipv6 => {
                let addr = link_local(link_addr);
                iface.v6.push(Assigned::own(addr, 64, tentative));
            }
            LinkMedium::Loopback => {
                iface.v4.push(Assigned::own(Ipv4Addr::LOCALHOST, 8, preferred));
                if ipv6 {
                    iface.v6.push(Assigned::own(Ipv6Addr::LOCALHOST, 128, preferred));
                }
            }
            LinkMedium::Ethernet(_) | LinkMedium::Ip => {}
        }
        iface.fill_sieves();
        iface
    }

    /// Becomes a copy of another interface. Allocates nothing but for a longer name.
    pub fn copy_from(&mut self, other: &Self) {
        let Self { index, name, medium, mtu, up, admin_up, carrier, mtu_v6, hop_limit, .. } = self;
        (*index, *medium, *mtu, *up) = (other.index, other.medium, other.mtu, other.up);
        (*admin_up, *carrier) = (other.admin_up, other.carrier);
        (*mtu_v6, *hop_limit) = (other.mtu_v6, other.hop_limit);
        (self.link_mtu, self.told_mtu) = (other.link_mtu, other.told_mtu);
        name.clone_from(&other.name);
        self.is_router = other.is_router;
        self.v4.clone_from(&other.v4);
        self.v6.clone_from(&other.v6);
        self.sieves = other.sieves;
        self.groups.clone_from(&other.groups);
    }

    /// Bytes of the largest packet of a family that we send.
    #[must_use]
    #[inline]
    pub const fn mtu_of(&self, v4: bool) -> u32 {
        if v4 { self.mtu } else { self.mtu_v6 }
    }

    /// The link's own MTU has changed; true where that changes what we send.
    pub fn set_link_mtu(&mut self, mtu: u32) -> bool {
        self.link_mtu = mtu;
        self.fit_mtu()
    }

    /// The MTU of a lease (RFC 2132 section 5.1), or that of none. One below IPv6's minimum counts
    /// for IPv4 alone.
    pub fn set_leased_mtu(&mut self, mtu: Option<u32>) {
        self.told_mtu.0 = mtu;
        self.fit_mtu();
    }

    /// The MTU that a router advertises (RFC 4861 section 6.3.4), or that of none. It counts for
    /// IPv6.
    pub fn set_advertised_mtu(&mut self, mtu: Option<u32>) {
        self.told_mtu.1 = mtu;
        self.fit_mtu();
    }

    /// The smallest of what counts for each family: judged again whenever any of it changes.
    fn fit_mtu(&mut self) -> bool {
        let before = (self.mtu, self.mtu_v6);
        let (leased, advertised) = self.told_mtu;
        self.mtu = self.link_mtu.min(leased.unwrap_or(u32::MAX));
        let of_lease = leased.filter(|mtu| *mtu >= MTU_MIN_V6).unwrap_or(u32::MAX);
        self.mtu_v6 = self.link_mtu.min(of_lease).min(advertised.unwrap_or(u32::MAX));
        before != (self.mtu, self.mtu_v6)
    }

    /// Sets whether the interface is administratively up, and whether the link has a carrier; true
    /// where [`Interface::up`] changes thereby.
    pub const fn set_link(&mut self, admin_up: bool, carrier: bool) -> bool {
        let before = self.up;
        (self.admin_up, self.carrier) = (admin_up, carrier);
        self.up = admin_up && carrier;
        before != self.up
    }

    /// Whether this IPv4 address can neither be ours here, in any state, nor a broadcast address
    /// here: true for nearly all sources, found in three instructions. False decides nothing. For
    /// addresses that arrived on a link: 127/8 is not looked for.
    #[must_use]
    #[inline]
    pub fn is_surely_foreign_v4(&self, addr: Ipv4Addr) -> bool {
        !self.sieves.0.may_hold(u64::from(addr.to_bits()))
    }

    /// Whether it has an address of 240/4, so that its neighbours may, too.
    #[must_use]
    pub fn has_reserved(&self) -> bool {
        self.v4.iter().any(|assigned| ipv4_is_reserved(assigned.addr))
    }

    /// Whether this IPv6 address cannot be ours here, in any state, nor the subnet-router anycast
    /// address of a prefix of ours. False decides nothing.
    #[must_use]
    #[inline]
    pub fn is_surely_foreign_v6(&self, addr: Ipv6Addr) -> bool {
        !self.sieves.1.may_hold(fold_v6(addr))
    }

    /// After every change of the addresses.
    fn fill_sieves(&mut self) {
        self.sieves = Default::default();
        for a in &self.v4 {
            self.sieves.0.insert(u64::from(a.addr.to_bits()));
            let host = host_bits(a.prefix_len);
            self.sieves.0.insert(u64::from(a.addr.to_bits() | host));
            self.sieves.0.insert(u64::from(a.addr.to_bits() & !host));
        }
        for a in &self.v6 {
            self.sieves.1.insert(fold_v6(a.addr));
            if let Some(anycast) = router_anycast(a.addr, a.prefix_len) {
                self.sieves.1.insert(fold_v6(anycast));
            }
        }
    }

    /// Our link address, where the link has them.
    #[must_use]
    #[inline]
    pub const fn link_addr(&self) -> Option<MacAddr> {
        match self.medium {
            LinkMedium::Ethernet(link_addr) => Some(link_addr),
            LinkMedium::Ip | LinkMedium::Loopback => None,
        }
    }

    /// Whether this IPv4 address is one of ours here, and how far. All of 127/8 is the loopback's
    /// (RFC 1122 section 3.2.1.3 (g)). One compare an address.
    #[must_use]
    #[inline]
    pub fn owns_v4(&self, addr: Ipv4Addr) -> Option<AddressState> {
        if addr.is_loopback() && self.medium == LinkMedium::Loopback {
            return Some(AddressState::Preferred);
        }
        self.v4.iter().find(|a| a.addr == addr).map(|a| a.state)
    }

    /// Whether this IPv6 address is one of ours here, and how far. One compare an address.
    #[must_use]
    #[inline]
    pub fn owns_v6(&self, addr: Ipv6Addr) -> Option<AddressState> {
        self.v6.iter().find(|a| a.addr == addr).map(|a| a.state)
    }

    /// As [`Interface::owns_v4`] or [`Interface::owns_v6`].
    #[must_use]
    #[inline]
    pub fn owns(&self, addr: IpAddr) -> Option<AddressState> {
        match addr {
            IpAddr::V4(addr) => self.owns_v4(addr),
            IpAddr::V6(addr) => self.owns_v6(addr),
        }
    }

    /// Whether this is a broadcast address of the link: 255.255.255.255, or all ones behind one of
    /// our prefixes (RFC 1122 section 3.2.1.3 (d)); prefixes of 31 and 32 bits have no such address
    /// (RFC 3021).
    #[must_use]
    #[inline]
    pub fn is_broadcast_v4(&self, addr: Ipv4Addr) -> bool {
        addr == Ipv4Addr::BROADCAST
            || self.v4.iter().any(|a| {
                let host = host_bits(a.prefix_len);
                host > 1 && addr.to_bits() == a.addr.to_bits() | host
            })
    }

    /// The addresses of [`Interface::is_broadcast_v4`] that are behind our prefixes.
    pub fn broadcasts_v4(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let behind = |a: &Assigned<Ipv4Addr>| {
            let host = host_bits(a.prefix_len);
            (host > 1).then(|| Ipv4Addr::from_bits(a.addr.to_bits() | host))
        };
        self.v4.iter().filter_map(behind)
    }

    /// Whether an address is that of one of our networks, which was its broadcast address once
    /// (RFC 1812 section 4.2.3.1).
    #[must_use]
    pub fn is_network_v4(&self, addr: Ipv4Addr) -> bool {
        self.v4.iter().any(|a| {
            let host = host_bits(a.prefix_len);
            host > 1 && addr.to_bits() == a.addr.to_bits() & !host
        })
    }

    /// Whether this is the subnet-router anycast address of one of our prefixes, and we are one of
    /// its routers (RFC 4291 section 2.6.1). Some instructions for what it is not.
    #[must_use]
    #[inline]
    pub fn is_router_anycast(&self, addr: Ipv6Addr) -> bool {
        self.is_router
            && !self.is_surely_foreign_v6(addr)
            && self.owns_v6(addr).is_none()
            && self.router_anycasts().any(|anycast| anycast == addr)
    }

    /// The subnet-router anycast addresses that we answer to.
    pub fn router_anycasts(&self) -> impl Iterator<Item = Ipv6Addr> + '_ {
        let assigned = self.v6.iter().filter(|a| self.is_router && a.state.is_assigned());
        assigned.filter_map(|a| router_anycast(a.addr, a.prefix_len))
    }

    /// Whether we are in this group: every host is in 224.0.0.1, ff01::1, ff02::1 and the
    /// solicited-node group of each of its addresses, tentative ones included, a router those of
    /// its anycast addresses too (RFC 4291 section 2.8); others must have been joined.
    #[must_use]
    #[inline]
    pub fn is_member(&self, group: IpAddr) -> bool {
        let always = match group {
            IpAddr::V4(group) => group == Ipv4Addr::new(224, 0, 0, 1),
            IpAddr::V6(group) => {
                group == ALL_NODES
                    || group == ALL_NODES_HERE
                    || self.v6.iter().any(|a| solicited_node(a.addr) == group)
                    || self.router_anycasts().any(|anycast| solicited_node(anycast) == group)
            }
        };
        always || self.groups.iter().any(|(joined, _)| *joined == group)
    }

    /// Whether the address is on-link: in the prefix of one of our addresses, or is link-local:
    /// such a neighbour is reached without a router.
    #[must_use]
    pub fn is_on_link(&self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(addr) => self.v4.iter().any(|a| a.covers(addr)),
            IpAddr::V6(addr) => addr.is_link_scope() || self.v6.iter().any(|a| a.covers(addr)),
        }
    }

    /// Every address, IPv4 first, in the order in which they came.
    pub fn addresses(&self) -> impl Iterator<Item = InterfaceAddress> + '_ {
        self.v4.iter().map(Assigned::shown).chain(self.v6.iter().map(Assigned::shown))
    }

    /// Our link-local IPv6 address, where it may be used.
    #[must_use]
    pub fn link_local_addr(&self) -> Option<Ipv6Addr> {
        let mut assigned = self.v6.iter().filter(|a| a.state.is_assigned());
        assigned.find(|a| a.addr.is_link_scope()).map(|a| a.addr)
    }

    /// The source address for soliciting `target`, a neighbour here: one of the prefix that holds
    /// it, else our IPv6 link-local one, else any that is assigned (RFC 4861 section 7.2.2).
    #[must_use]
    pub fn solicit_source(&self, target: IpAddr) -> Option<IpAddr> {
        match target {
            IpAddr::V4(target) => nearest(&self.v4, target),
            IpAddr::V6(target) => nearest(&self.v6, target),
        }
    }

    /// Adds an address of the operator's, for ever, in a state.
    ///
    /// # Errors
    /// As [`Interface::insert_address`].
    pub fn add_address(&mut self, cidr: IpCidr, state: AddressState) -> Result<(), InterfaceError> {
        self.insert_address(&InterfaceAddress::manual(cidr, state))
    }

    /// Adds an address.
    ///
    /// # Errors
    /// It is there already, cannot be a host's, or there are [`ADDRESSES_MAX`] of its family.
    pub fn insert_address(&mut self, new: &InterfaceAddress) -> Result<(), InterfaceError> {
        let addr = new.addr;
        if addr.is_unspecified() || addr.is_multicast() || addr == Ipv4Addr::BROADCAST {
            return Err(InterfaceError::AddressInvalid(addr));
        }
        if self.addresses().any(|a| a.addr == addr) {
            return Err(InterfaceError::AddressExists(addr));
        }
        match addr {
            IpAddr::V4(addr) if self.v4.len() < ADDRESSES_MAX => {
                self.v4.push(Assigned::of(addr, new));
            }
            IpAddr::V6(addr) if self.v6.len() < ADDRESSES_MAX => {
                self.v6.push(Assigned::of(addr, new));
            }
            _ => return Err(InterfaceError::AddressesFull),
        }
        self.fill_sieves();
        Ok(())
    }

    /// Takes an address away.
    ///
    /// # Errors
    /// It is not there.
    pub fn remove_address(&mut self, addr: IpAddr) -> Result<(), InterfaceError> {
        let before = self.v4.len() + self.v6.len();
        match addr {
            IpAddr::V4(addr) => self.v4.retain(|a| a.addr != addr),
            IpAddr::V6(addr) => self.v6.retain(|a| a.addr != addr),
        }
        self.fill_sieves();
        let gone = self.v4.len() + self.v6.len() < before;
        if gone { Ok(()) } else { Err(InterfaceError::AddressUnknown(addr)) }
    }

    /// What is known of one address.
    #[must_use]
    pub fn address(&self, addr: IpAddr) -> Option<InterfaceAddress> {
        self.addresses().find(|a| a.addr == addr)
    }

    /// Sets until when an address may be used; `None` for ever. Its state is left as it is.
    ///
    /// # Errors
    /// It is not there.
    pub fn set_lifetimes(
        &mut self,
        addr: IpAddr,
        preferred_until: Option<Instant>,
        valid_until: Option<Instant>,
    ) -> Result<(), InterfaceError> {
        let ends = match addr {
            IpAddr::V4(addr) => self.v4.iter_mut().find(|a| a.addr == addr).map(Assigned::ends),
            IpAddr::V6(addr) => self.v6.iter_mut().find(|a| a.addr == addr).map(Assigned::ends),
        };
        let (preferred, valid) = ends.ok_or(InterfaceError::AddressUnknown(addr))?;
        *preferred = preferred_until.unwrap_or(Instant::FAR);
        *valid = valid_until.unwrap_or(Instant::FAR);
        Ok(())
    }

    /// Sets how far an address may be used from now on.
    ///
    /// # Errors
    /// It is not there.
    pub fn set_address_state(
        &mut self,
        addr: IpAddr,
        state: AddressState,
    ) -> Result<(), InterfaceError> {
        let slot = match addr {
            IpAddr::V4(addr) => self.v4.iter_mut().find(|a| a.addr == addr).map(|a| &mut a.state),
            IpAddr::V6(addr) => self.v6.iter_mut().find(|a| a.addr == addr).map(|a| &mut a.state),
        };
        *slot.ok_or(InterfaceError::AddressUnknown(addr))? = state;
        Ok(())
    }

    /// Joins a group once more; true where it was not joined before.
    ///
    /// # Errors
    /// It is no group, or [`INTERFACE_GROUPS_MAX`] others are joined.
    pub fn join(&mut self, group: IpAddr) -> Result<bool, InterfaceError> {
        if !group.is_multicast() {
            return Err(InterfaceError::GroupInvalid(group));
        }
        if let Some((_, joins)) = self.groups.iter_mut().find(|(joined, _)| *joined == group) {
            *joins = joins.saturating_add(1);
            return Ok(false);
        }
        if self.groups.len() >= INTERFACE_GROUPS_MAX {
            return Err(InterfaceError::GroupsFull);
        }
        self.groups.push((group, 1));
        Ok(true)
    }

    /// Leaves a group once; true where it is not joined any more.
    pub fn leave(&mut self, group: IpAddr) -> bool {
        let Some(at) = self.groups.iter().position(|(joined, _)| *joined == group) else {
            return false;
        };
        let last = self.groups.get_mut(at).is_some_and(|(_, joins)| {
            *joins = joins.saturating_sub(1);
            *joins == 0
        });
        if last {
            self.groups.swap_remove(at);
        }
        last
    }

    /// The joined groups.
    pub fn groups(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.groups.iter().map(|(group, _)| *group)
    }
}

/// Of the assigned addresses, one with a prefix that holds `target`, else a link-local one, else
/// the first.
fn nearest<A: Address>(addrs: &[Assigned<A>], target: A) -> Option<IpAddr> {
    let assigned = || addrs.iter().filter(|a| a.state.is_assigned());
    let found = assigned()
        .find(|a| a.covers(target))
        .or_else(|| assigned().find(|a| a.addr.is_link_scope()))
        .or_else(|| assigned().next());
    found.map(|a| a.addr.to_ip())
}

/// Every IPv6 node of the link (RFC 4291 section 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Every IPv6 node of the interface, which is ourselves.
const ALL_NODES_HERE: Ipv6Addr = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 1);

/// The link-local address of a link address: fe80::/64 and the modified EUI-64 (RFC 4291 appendix
/// A, RFC 2464 section 5).
#[must_use]
pub const fn link_local(link_addr: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = link_addr.0;
    Ipv6Addr::from_octets([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 0x02, b, c, 0xff, 0xfe, d, e, f])
}

#[cfg(test)]
#[path = "iface/tests.rs"]
mod tests;
