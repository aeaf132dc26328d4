//! The neighbour cache: from a neighbour's IP address to its link address, RFC 4861's states.
//!
//! Called by `stack` before it writes a link header, by `arp.rs` and `ndp.rs` with received
//! messages, and by transports that have confirmed that a peer is reachable. One cache serves all
//! interfaces of one family; both families run the same code. It never sends:
//! [`Resolution::Waiting`] and [`NeighborEvent::Solicit`] report when a solicitation is due.
//!
//! Invariants: all memory is taken at construction; a packet given to the cache comes back exactly
//! once (released, dropped with a reason, or in an event); nothing evicted ever holds a packet;
//! resolved neighbours never give way to unresolved ones; one that is in use is probed before it is
//! stale, and used until all probes are lost. Read first: RFC 4861 sections 7.2, 7.3 and 10, RFC
//! 6583 section 7. Not here: the tables of states (`neighbor/state.rs`), what is solicited before
//! the RFC's time (`neighbor/early.rs`), validation of messages (`arp.rs`, `ndp.rs`).
//!
//! # Under flood
//! Each interface has three shares that cannot take from each other:
//!
//! - *Unresolved* neighbours ([`NeighborConfig::unresolved`]), reachable by any sender that makes
//!   us send to unused addresses: a scan through us, spoofed sources. When full, the neighbour that
//!   failed longest ago is evicted. Where all are still being resolved, one of a source prefix
//!   (/24, /48; our own traffic is one more) that has two more of them than the prefix of the new
//!   packet gives way, or one more where a second has passed without an answer; else the new packet
//!   is dropped, as are those that waited: `NeighborTableFull`. So a prefix that makes us resolve
//!   few neighbours has its first contact while fewer prefixes than half of the slots flood. Beyond
//!   that (spoofed sources) newcomers compete for the slots that no neighbour answered in a second,
//!   256 a second. Neighbours that are resolved lose nothing.
//! - *Unverified* neighbours ([`NeighborConfig::unknown`]), reachable by any station on the link:
//!   neighbours that solicited us and have never answered us. When full, the oldest unverified one
//!   is evicted. Evicting a legitimate one costs one more solicitation. A neighbour with outgoing
//!   traffic is probed at once, not after the five seconds of RFC 4861 section 7.3.3, and so is
//!   unverified for one round trip only.
//! - *Verified* neighbours, the rest: when full, the least recently used stale one is evicted;
//!   where none is stale, the new neighbour's waiting packets leave and it is not kept.
//!
//! At most [`NeighborConfig::pending`] packets wait for one neighbour; the oldest is dropped as
//! `NeighborPendingFull`. All together hold a part of the pool's frames
//! (`NEIGHBOR_PENDING_DIVISOR`); when they do, a neighbour is solicited as always, and of the
//! packets for it the oldest is dropped, or the new one where none waits: honest traffic loses the
//! packet that caused the solicitation. Worst work per packet: one keyed hash, at most 64 cells,
//! eight others compared, one eviction.

mod changes;
mod early;
mod index;
mod routers;
mod state;
mod table;

use core::time::Duration;

use floodwall_base::limits::{
    NEIGHBOR_PENDING_DIVISOR, NEIGHBOR_PENDING_MAX, NEIGHBOR_UNVERIFIED_MAX,
    NEIGHBORS_INCOMPLETE_MAX, NEIGHBORS_MAX,
};
use floodwall_base::{
    Address, DropReason, HashKey, IfIndex, Instant, MacAddr, PublicRandom, Units,
};
use floodwall_packet::{PacketBuf, PacketList, Pool};
use thiserror::Error;

pub use self::changes::Usable;
use self::early::EarlyCredit;
pub use self::early::{EARLY_SOLICIT_FIRST, EARLY_SOLICIT_MAX};
pub(crate) use self::index::NeighborIndex;
use self::routers::LinkTimers;
pub use self::state::{AdvertisementFlags, NeighborState};
use self::state::{on_advertisement, on_solicitation};
use self::table::{NeighborEntry, NeighborTable};

/// Solicitations to the link for an address (RFC 4861 section 10, MAX_MULTICAST_SOLICIT).
pub const MULTICAST_SOLICIT_MAX: u8 = 3;
/// Unicast probes of a neighbour's reachability (RFC 4861 section 10, MAX_UNICAST_SOLICIT).
pub const UNICAST_SOLICIT_MAX: u8 = 3;
/// The interval between two solicitations (RFC 4861 section 10, RETRANS_TIMER).
pub const RETRANS_TIMER: Duration = Duration::from_secs(1);
/// How long a sign of life counts, before it is randomised (RFC 4861 section 10, REACHABLE_TIME).
pub const REACHABLE_TIME: Duration = Duration::from_secs(30);
/// How long an upper protocol may confirm reachability before we probe (RFC 4861 section 10,
/// DELAY_FIRST_PROBE_TIME).
pub const DELAY_FIRST_PROBE_TIME: Duration = Duration::from_secs(5);
/// How often a neighbour that was reachable once is solicited by multicast, when it no longer
/// answers itself (RFC 7048 section 3): after one, three, nine times the interval, and once more of
/// that passes before it is given up. Packets go on to its last link address meanwhile.
pub const UNREACHABLE_SOLICIT_MAX: u8 = 3;
/// How much longer each of these waits (RFC 7048 section 3, BACKOFF_MULTIPLE).
const BACKOFF_MULTIPLE: u32 = 3;
/// So long before a neighbour would become stale a use of it counts as that of a stale one, or half
/// of the time for which it counts as reachable, where that is less: it is in
/// [`NeighborState::Delay`] and probed while it still counts.
pub const REFRESH_LEAD: Duration = Duration::from_secs(10);
/// How long a neighbour that did not answer is not solicited again.
pub const FAILED_HOLD: Duration = Duration::from_secs(1);
/// How long such a neighbour is shown.
pub const FAILED_KEEP: Duration = Duration::from_secs(60);

/// How large a cache is. Every number but the first is per interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborConfig {
    /// The number of interfaces: valid indices are below this.
    pub interfaces: usize,
    /// Maximum number of neighbours.
    pub entries: usize,
    /// Of these, unresolved ones: being resolved, or failed. At most half of the total.
    pub unresolved: usize,
    /// Of the resolved ones, those that have never answered us.
    pub unknown: usize,
    /// Packets that wait for one neighbour.
    pub pending: usize,
}

impl NeighborConfig {
    /// The defaults of `limits.rs` for this many interfaces.
    #[must_use]
    pub const fn for_interfaces(interfaces: usize) -> Self {
        Self {
            interfaces,
            entries: NEIGHBORS_MAX,
            unresolved: NEIGHBORS_INCOMPLETE_MAX,
            unknown: NEIGHBOR_UNVERIFIED_MAX,
            pending: NEIGHBOR_PENDING_MAX,
        }
    }

    /// The same with unresolved neighbours taking half of the entries at most, regardless of the
    /// configured value: a small table must hold resolved ones too.
    fn balanced(self) -> Self {
        Self { unresolved: self.unresolved.min(self.entries / 2), ..self }
    }

    /// Resolved neighbours of one interface.
    const fn resolved(&self) -> usize {
        self.entries.saturating_sub(self.unresolved)
    }
}

/// What became of a packet that needs a link address.
#[derive(Debug)]
pub enum Resolution {
    /// It may leave, to this link address.
    Known(PacketBuf, MacAddr),
    /// It waits.
    Waiting {
        /// Whether a solicitation is due now: a multicast solicitation or a broadcast request.
        solicit: bool,
        /// The packet that was evicted from the queue: drop it as
        /// [`DropReason::NeighborPendingFull`].
        dropped: Option<PacketBuf>,
        /// What waited for a neighbour that gave way to this one: drop each as
        /// [`DropReason::NeighborTableFull`].
        evicted: PacketList,
    },
    /// It is dropped, for this reason.
    Refused(PacketBuf, DropReason),
}

/// What timed work requires of its caller.
#[derive(Debug)]
pub enum NeighborEvent<A> {
    /// Solicit a neighbour's link address.
    Solicit {
        /// On this interface.
        iface: IfIndex,
        /// For this address.
        addr: A,
        /// The neighbour itself, for a unicast probe; else multicast or broadcast.
        unicast: Option<MacAddr>,
    },
    /// A neighbour did not answer: another next hop should be used, where there is one. For a
    /// neighbour that was reachable once the event comes twice: when it stops answering, and when
    /// it is given up.
    Unreachable {
        /// On this interface.
        iface: IfIndex,
        /// This neighbour.
        addr: A,
        /// What waited for it, oldest first: drop each as [`DropReason::NeighborUnreachable`]; its
        /// source may get an ICMP error (RFC 4861 section 7.2.2).
        packets: PacketList,
    },
}

/// What an advertisement changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighborEvidence {
    /// The neighbour's link address: what waited for it leaves there.
    pub link_addr: MacAddr,
    /// Whether it is a router, where the advertisement was accepted for that.
    pub router: Option<bool>,
    /// Whether it answered us.
    pub reachable: bool,
}

/// One neighbour, for showing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbor<A> {
    /// Its address.
    pub addr: A,
    /// On this interface.
    pub iface: IfIndex,
    /// Its link address, where it is known.
    pub link_addr: Option<MacAddr>,
    /// What is known of it.
    pub state: NeighborState,
    /// Whether the router flag is set.
    pub is_router: bool,
    /// Packets that wait for it.
    pub pending: usize,
}

/// The cache has no room for another static neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the interface's neighbours fill its table and none is stale: raise the bound")]
pub struct NeighborTableFull;

/// The neighbour cache of one family, for all interfaces.
pub struct NeighborCache<A> {
    table: NeighborTable<A>,
    /// True bytes of the packets that wait, and as many as may.
    waiting: u64,
    waiting_max: u64,
    timers: Box<[LinkTimers]>,
    early: Box<[EarlyCredit]>,
    random: PublicRandom,
    /// See [`NeighborCache::moves`].
    moves: u64,
}

impl<A: Address> NeighborCache<A> {
    /// An empty cache. Takes about 200 bytes an entry, of which there are `entries` for each of
    /// `interfaces`. `random` spreads the times for which neighbours count as reachable.
    #[must_use]
    pub fn new(config: NeighborConfig, key: HashKey, random: PublicRandom, now: Instant) -> Self {
        let timers = vec![LinkTimers::default(); config.interfaces].into();
        let early = vec![EarlyCredit::default(); config.interfaces].into();
        let table = NeighborTable::new(config, key, now);
        Self { table, waiting: 0, waiting_max: u64::MAX, timers, early, random, moves: 0 }
    }

    /// Lets no more packets wait than the part of the frames of `pool` that is for those of one
    /// family.
    pub fn fit(&mut self, pool: &Pool) {
        self.waiting_max = pool.frames_true_bytes() / NEIGHBOR_PENDING_DIVISOR;
    }

    /// True bytes of the packets that wait.
    #[must_use]
    pub const fn waiting_bytes(&self) -> u64 {
        self.waiting
    }

    /// The neighbour's link address, where it may be used. A reachable or permanent neighbour costs
    /// one keyed hash and a read; a stale one, or one that soon will be, is watched from now on
    /// (RFC 4861 section 7.3.3).
    #[inline]
    pub fn lookup(&mut self, iface: IfIndex, addr: A, now: Instant) -> Option<MacAddr> {
        let at = self.table.find(iface, addr)?;
        let entry = self.table.entry(at)?;
        match entry.state {
            Some(NeighborState::Permanent) => Some(entry.link_addr),
            Some(NeighborState::Reachable) if now < entry.watch_from => Some(entry.link_addr),
            _ => self.use_entry(at, now),
        }
    }

    /// A number that changes whenever a neighbour that could be sent to has another link address,
    /// is doubted, does not answer, or is removed. Not when one that was not in use is evicted.
    #[must_use]
    pub const fn moves(&self) -> u64 {
        self.moves
    }

    /// Until when packets may leave to a neighbour without the cache's knowledge: it is not to
    /// become stale meanwhile. [`Instant::ORIGIN`] where they may not, [`Instant::FAR`] where a
    /// probe is under way, or nothing changes the entry.
    #[must_use]
    pub fn watch_from(&self, iface: IfIndex, addr: A) -> Instant {
        let usable = self.table.find(iface, addr).and_then(|at| self.usable_at(at));
        usable.map_or(Instant::ORIGIN, |usable| usable.watch_from)
    }

    /// As [`NeighborCache::lookup`], and where the link address is not known the packet waits.
    /// `source` is the packet's source address where it came from elsewhere,
    /// [`Address::UNSPECIFIED`] where it is our own.
    #[inline]
    pub fn resolve(
        &mut self,
        iface: IfIndex,
        (addr, source): (A, A),
        now: Instant,
        packet: PacketBuf,
    ) -> Resolution {
        match self.lookup(iface, addr, now) {
            Some(link_addr) => Resolution::Known(packet, link_addr),
            None => self.wait(iface, (addr, source), now, packet),
        }
    }

    /// Whether a solicitation is outstanding: an answer is expected.
    #[must_use]
    pub fn is_asked(&self, iface: IfIndex, addr: A) -> bool {
        let state = self.table.find(iface, addr).and_then(|at| self.table.entry(at)?.state);
        use NeighborState::{Incomplete, Probe, Unreachable};
        matches!(state, Some(Incomplete | Probe | Unreachable))
    }

    /// An advertisement about `addr` arrived, checked (RFC 4861 section 7.2.5). It creates nothing.
    /// Packets that waited go to `released`; `None` where the neighbour has no entry, or the
    /// advertisement changed nothing.
    pub fn advertised(
        &mut self,
        iface: IfIndex,
        addr: A,
        link_addr: Option<MacAddr>,
        flags: AdvertisementFlags,
        now: Instant,
        released: &mut PacketList,
    ) -> Option<NeighborEvidence> {
        let at = self.table.find(iface, addr)?;
        let entry = self.table.entry(at)?;
        let change = on_advertisement(entry.state?, entry.supplied(link_addr), flags)?;
        // An unsolicited answer proves nothing.
        let proves = change.state == NeighborState::Reachable;
        let router = change.take_router.then_some(flags.router);
        let was = entry.state;
        if is_other(was, change.state, change.take_link_addr) {
            self.moves += 1;
        }
        self.take_pending(at, released);
        if !self.make_room_to_become(at, proves) {
            self.table.discard(at);
            return link_addr.map(|link_addr| NeighborEvidence {
                link_addr,
                router,
                reachable: proves,
            });
        }
        let entry = self.table.entry_mut(at)?;
        if let (true, Some(link_addr)) = (change.take_link_addr, link_addr) {
            entry.link_addr = link_addr;
        }
        if change.take_router {
            entry.is_router = flags.router;
        }
        let known = entry.link_addr;
        // A sign of life prolongs; anything else leaves a running timer alone.
        if entry.state != Some(change.state) || proves {
            self.enter(at, change.state, now);
        }
        Some(NeighborEvidence { link_addr: known, router, reachable: proves })
    }

    /// A checked solicitation for one of our own addresses arrived from an on-link `addr` with its
    /// link address (RFC 4861 section 7.2.3; an ARP request): the neighbour is remembered as stale.
    /// Packets that waited go to `released`, and leave to the link address that is returned; `None`
    /// where nothing is kept.
    pub fn solicited_by(
        &mut self,
        iface: IfIndex,
        addr: A,
        link_addr: MacAddr,
        now: Instant,
        released: &mut PacketList,
    ) -> Option<MacAddr> {
        let Some(at) = self.table.find(iface, addr) else {
            return self.remember_unverified_packet(iface, addr, link_addr, now);
        };
        let entry = self.table.entry(at)?;
        let state = entry.state?;
        let Some(after) = on_solicitation(state, entry.supplied(Some(link_addr))) else {
            return Some(entry.link_addr);
        };
        if state == NeighborState::Failed {
            self.table.discard(at);
            return self.remember_unverified_packet(iface, addr, link_addr, now);
        }
        if is_other(Some(state), after, true) {
            self.moves += 1;
        }
        self.take_pending(at, released);
        if !self.make_room_to_become(at, false) {
            self.table.discard(at);
            return Some(link_addr);
        }
        self.table.entry_mut(at)?.link_addr = link_addr;
        self.enter(at, after, now);
        Some(link_addr)
    }

    /// The neighbour has shown that it is no router (RFC 4861 section 6.2.6).
    pub fn is_host(&mut self, iface: IfIndex, addr: A) {
        if let Some(entry) = self.table.find(iface, addr).and_then(|at| self.table.entry_mut(at)) {
            entry.is_router = false;
        }
    }

    /// Reachability confirmation by an upper protocol: new data that we sent was acknowledged (RFC
    /// 4861 section 7.3.1). Costs a keyed hash; call once a round and flow.
    pub fn confirm(&mut self, iface: IfIndex, addr: A, now: Instant) {
        let Some(at) = self.table.find(iface, addr) else {
            return;
        };
        let state = self.table.entry(at).and_then(|e| e.state);
        match state {
            // The timer notices when it rings that there is time left.
            Some(NeighborState::Reachable) => {
                let (until, watch_from) = self.reachable_until(iface, now);
                if let Some(entry) = self.table.entry_mut(at) {
                    entry.until = entry.until.max(until);
                    entry.watch_from = entry.watch_from.max(watch_from);
                }
            }
            Some(
                NeighborState::Stale
                | NeighborState::Delay
                | NeighborState::Probe
                | NeighborState::Unreachable,
            ) => {
                self.enter(at, NeighborState::Reachable, now);
            }
            _ => {}
        }
    }

    /// Does timed work, one unit a neighbour at most eight times over, while units last; returns
    /// what was spent.
    pub fn work(
        &mut self,
        now: Instant,
        budget: Units,
        mut emit: impl FnMut(NeighborEvent<A>),
    ) -> Units {
        let mut left = budget;
        while let Some(at) = self.table.wheel.pop_due(now, &mut left) {
            if let Some(event) = self.ring(at, now) {
                emit(event);
            }
        }
        budget.minus(left)
    }

    /// When [`NeighborCache::work`] must be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.table.wheel.deadline()
    }

    /// Keeps a neighbour for ever, with this link address. Packets that waited go to `released`.
    ///
    /// # Errors
    /// The interface does not exist, or its table is full of neighbours that are in use.
    pub fn set_permanent(
        &mut self,
        iface: IfIndex,
        addr: A,
        link_addr: MacAddr,
        now: Instant,
        released: &mut PacketList,
    ) -> Result<(), NeighborTableFull> {
        self.remove(iface, addr, released);
        self.moves += 1;
        let made =
            self.table.room_for_resolved(iface).then(|| self.table.create(iface, addr)).flatten();
        let at = made.ok_or(NeighborTableFull)?;
        if let Some(entry) = self.table.entry_mut(at) {
            entry.link_addr = link_addr;
        }
        self.enter(at, NeighborState::Permanent, now);
        Ok(())
    }

    /// Removes a neighbour in any state; what waited goes to `pending`. False where it was not
    /// known.
    pub fn remove(&mut self, iface: IfIndex, addr: A, pending: &mut PacketList) -> bool {
        let Some(at) = self.table.find(iface, addr) else {
            return false;
        };
        self.moves += 1;
        self.take_pending(at, pending);
        self.table.discard(at);
        true
    }

    /// Removes all neighbours of an interface, permanent ones too; what waited goes to `pending`.
    /// Visits every entry: for the operator, and for links that go down.
    pub fn flush(&mut self, iface: IfIndex, pending: &mut PacketList) {
        self.flush_where(iface, |_| true, pending);
    }

    /// As [`NeighborCache::flush`], but keeps the permanent ones: for a link that went down: its
    /// stations may be others when it comes back.
    pub fn flush_learnt(&mut self, iface: IfIndex, pending: &mut PacketList) {
        self.flush_where(iface, |state| state != NeighborState::Permanent, pending);
    }

    fn flush_where(
        &mut self,
        iface: IfIndex,
        goes: impl Fn(NeighborState) -> bool,
        pending: &mut PacketList,
    ) {
        self.moves += 1;
        for at in 0..self.table.capacity() {
            let entry = self.table.entry(at);
            if entry.is_some_and(|e| e.state.is_some_and(&goes) && e.iface == iface) {
                self.take_pending(at, pending);
                self.table.discard(at);
            }
        }
    }

    /// What is known of one neighbour.
    #[must_use]
    pub fn neighbor(&self, iface: IfIndex, addr: A) -> Option<Neighbor<A>> {
        shown(self.table.entry(self.table.find(iface, addr)?)?)
    }

    /// Whether this station has answered a solicitation of ours for this address, and that still
    /// counts for it. Cost: one look-up.
    #[must_use]
    pub fn is_proven(&self, iface: IfIndex, addr: A, link_addr: MacAddr) -> bool {
        let entry = self.table.find(iface, addr).and_then(|at| self.table.entry(at));
        entry.is_some_and(|entry| entry.proven && entry.link_addr == link_addr)
    }

    /// Every neighbour, in no order. Visits every entry: for showing.
    pub fn iter(&self) -> impl Iterator<Item = Neighbor<A>> + '_ {
        self.table.iter().filter_map(shown)
    }
}

/// What happens to one entry.
impl<A: Address> NeighborCache<A> {
    /// The neighbour is sent to: a stale one is watched (RFC 4861 section 7.3.3).
    #[cold]
    fn use_entry(&mut self, at: u32, now: Instant) -> Option<MacAddr> {
        let entry = self.table.entry(at)?;
        let link_addr = entry.link_addr;
        match entry.state? {
            NeighborState::Incomplete | NeighborState::Failed => None,
            // Reachable until a moment that is near, or has passed before the timer expired.
            NeighborState::Stale | NeighborState::Reachable => {
                self.enter(at, NeighborState::Delay, now);
                Some(link_addr)
            }
            _ => {
                if !entry.used {
                    self.table.entry_mut(at)?.used = true;
                }
                Some(link_addr)
            }
        }
    }

    /// A packet for a neighbour that is not resolved.
    #[cold]
    fn wait(
        &mut self,
        iface: IfIndex,
        (addr, source): (A, A),
        now: Instant,
        packet: PacketBuf,
    ) -> Resolution {
        let found = self.table.find(iface, addr);
        let state = found.and_then(|at| self.table.entry(at));
        match (found, state.and_then(|e| Some((e.state?, e.until)))) {
            (Some(at), Some((NeighborState::Incomplete, _))) => {
                let dropped = self.queue(at, packet);
                Resolution::Waiting { solicit: false, dropped, evicted: PacketList::new() }
            }
            (Some(_), Some((NeighborState::Failed, until))) if now < until => {
                Resolution::Refused(packet, DropReason::NeighborUnreachable)
            }
            (Some(at), Some(_)) => self.ask(at, self.table.requester(iface, source), now, packet),
            _ => {
                if usize::from(iface.0) >= self.table.config.interfaces {
                    return Resolution::Refused(packet, DropReason::InterfaceUnknown);
                }
                let requester = self.table.requester(iface, source);
                let room = self.room_for(iface, requester);
                let made =
                    room.and_then(|evicted| Some((evicted, self.table.create(iface, addr)?)));
                let Some((gone, at)) = made else {
                    return Resolution::Refused(packet, DropReason::NeighborTableFull);
                };
                let mut resolution = self.ask(at, requester, now, packet);
                if let Resolution::Waiting { evicted, .. } = &mut resolution {
                    *evicted = gone;
                }
                resolution
            }
        }
    }

    /// Makes room for another unresolved neighbour; returned is what waited for the one that gave
    /// way.
    fn room_for(&mut self, iface: IfIndex, requester: u16) -> Option<PacketList> {
        if self.table.room_for_unresolved(iface) {
            return Some(PacketList::new());
        }
        let at = self.table.over_share(iface, requester)?;
        let packets = self.take_waiting(at);
        self.table.discard(at);
        Some(packets)
    }

    /// Starts to resolve a neighbour, with the first packet that waits for it.
    fn ask(&mut self, at: u32, requester: u16, now: Instant, packet: PacketBuf) -> Resolution {
        if let Some(entry) = self.table.entry_mut(at) {
            entry.solicits = 1;
        }
        self.table.set_requester(at, requester);
        let dropped = self.queue(at, packet);
        self.enter(at, NeighborState::Incomplete, now);
        Resolution::Waiting { solicit: true, dropped, evicted: PacketList::new() }
    }

    /// Lets a packet wait. The oldest makes room (RFC 4861 section 7.2.2), also where all packets
    /// together have none; returned is the one that cannot wait.
    fn queue(&mut self, at: u32, packet: PacketBuf) -> Option<PacketBuf> {
        let (pending_max, size) = (self.table.config.pending, u64::from(packet.true_size()));
        let room = self.waiting_max.saturating_sub(self.waiting);
        let Some(entry) = self.table.entry_mut(at) else { return Some(packet) };
        let oldest = entry.pending.iter().next().map_or(0, |p| u64::from(p.true_size()));
        // Where nothing waits any packet may, or one that is large would never be sent.
        let fits = size <= room.saturating_add(oldest) || self.waiting == 0;
        if pending_max == 0 || !fits {
            return Some(packet);
        }
        let is_full = entry.pending.len() >= pending_max || size > room;
        let dropped = if is_full { entry.pending.pop_front() } else { None };
        entry.pending.push_back(packet);
        entry.used = true;
        let gone = if dropped.is_some() { oldest } else { 0 };
        self.waiting = (self.waiting + size).saturating_sub(gone);
        dropped
    }

    /// A neighbour's timer rang.
    fn ring(&mut self, at: u32, now: Instant) -> Option<NeighborEvent<A>> {
        let entry = self.table.entry_mut(at)?;
        let (iface, addr, link_addr) = (entry.iface, entry.addr, entry.link_addr);
        if entry.is_solicited() && now < entry.until {
            return self.solicit_early(at, now);
        }
        let asked_enough = match entry.state? {
            NeighborState::Incomplete => entry.solicits >= MULTICAST_SOLICIT_MAX,
            NeighborState::Probe => entry.solicits >= UNICAST_SOLICIT_MAX,
            NeighborState::Unreachable => entry.solicits >= UNREACHABLE_SOLICIT_MAX,
            NeighborState::Delay => {
                entry.solicits = 0;
                false
            }
            NeighborState::Reachable if now < entry.until => {
                let until = entry.until;
                self.table.wheel.insert(at, until);
                return None;
            }
            NeighborState::Reachable => {
                self.enter(at, NeighborState::Stale, now);
                return None;
            }
            NeighborState::Failed => {
                self.table.discard(at);
                return None;
            }
            NeighborState::Stale | NeighborState::Permanent => return None,
        };
        if asked_enough {
            let (state, proven) = (entry.state, entry.proven);
            if state != Some(NeighborState::Incomplete) {
                self.moves += 1;
            }
            let packets = self.take_waiting(at);
            if state == Some(NeighborState::Probe) && proven {
                if let Some(entry) = self.table.entry_mut(at) {
                    entry.solicits = 0;
                }
                self.enter(at, NeighborState::Unreachable, now);
            } else {
                self.fail(at, now);
            }
            return Some(NeighborEvent::Unreachable { iface, addr, packets });
        }
        entry.solicits = entry.solicits.saturating_add(1);
        let (state, unicast) = match entry.state {
            Some(state @ (NeighborState::Incomplete | NeighborState::Unreachable)) => (state, None),
            _ => (NeighborState::Probe, Some(link_addr)),
        };
        self.enter(at, state, now);
        Some(NeighborEvent::Solicit { iface, addr, unicast })
    }

    /// A neighbour did not answer: it is kept as failed where there is room for another unresolved
    /// one, and forgotten else.
    fn fail(&mut self, at: u32, now: Instant) {
        let Some(entry) = self.table.entry(at) else {
            return;
        };
        let resolved = entry.state.is_some_and(NeighborState::is_resolved);
        if resolved && !self.table.room_for_unresolved(entry.iface) {
            self.table.discard(at);
        } else {
            self.enter(at, NeighborState::Failed, now);
        }
    }

    /// An unsolicited neighbour that solicited us.
    fn remember_unverified_packet(
        &mut self,
        iface: IfIndex,
        addr: A,
        link_addr: MacAddr,
        now: Instant,
    ) -> Option<MacAddr> {
        if !self.table.room_for_unverified_packet(iface) {
            return None;
        }
        let at = self.table.create(iface, addr)?;
        self.table.entry_mut(at)?.link_addr = link_addr;
        self.enter(at, NeighborState::Stale, now);
        Some(link_addr)
    }

    /// Makes room for what an entry becomes. It never makes room by evicting that entry.
    fn make_room_to_become(&mut self, at: u32, proven: bool) -> bool {
        let Some((iface, state)) = self.table.entry(at).map(|e| (e.iface, e.state)) else {
            return false;
        };
        match state {
            Some(state) if state.is_resolved() => true,
            _ if proven => self.table.room_for_resolved(iface),
            _ => self.table.room_for_unverified_packet(iface),
        }
    }

    /// Takes what waits for a neighbour.
    fn take_waiting(&mut self, at: u32) -> PacketList {
        let entry = self.table.entry_mut(at);
        let packets = entry.map(|entry| entry.pending.take()).unwrap_or_default();
        let size: u64 = packets.iter().map(|packet| u64::from(packet.true_size())).sum();
        self.waiting = self.waiting.saturating_sub(size);
        packets
    }

    /// The same, behind what others waited for.
    fn take_pending(&mut self, at: u32, released: &mut PacketList) {
        let mut packets = self.take_waiting(at);
        while let Some(packet) = packets.pop_front() {
            released.push_back(packet);
        }
    }

    /// Puts an entry into a state, with the timer of that state.
    fn enter(&mut self, at: u32, state: NeighborState, now: Instant) {
        let Some(iface) = self.table.entry(at).map(|e| e.iface) else { return };
        let LinkTimers { retrans, early, .. } = self.timers_of(iface);
        let (reachable_until, watch_from) = match state {
            NeighborState::Reachable => self.reachable_until(iface, now),
            _ => (now, now),
        };
        let Some(entry) = self.table.entry_mut(at) else {
            return;
        };
        let mut proven = entry.proven;
        let timer = match state {
            NeighborState::Incomplete | NeighborState::Probe => {
                Some(entry.solicited_until(now + retrans, early, now))
            }
            NeighborState::Unreachable => {
                let wait = retrans * BACKOFF_MULTIPLE.pow(u32::from(entry.solicits));
                // The first solicitation of this state is yet to come.
                Some(entry.solicited_until(now + wait, early && entry.solicits > 0, now))
            }
            // An unverified neighbour with outgoing traffic is probed with the next timed work:
            // while unverified, others can evict it (specs/exceptions/rfc4861-7.3.3.md).
            NeighborState::Delay if !proven => Some(now),
            NeighborState::Delay => Some(now + DELAY_FIRST_PROBE_TIME),
            NeighborState::Failed => {
                entry.until = now + FAILED_HOLD;
                entry.is_router = false;
                proven = false;
                Some(now + FAILED_KEEP)
            }
            NeighborState::Reachable => {
                (entry.until, entry.watch_from) = (reachable_until, watch_from);
                proven = true;
                Some(reachable_until)
            }
            NeighborState::Permanent => {
                proven = true;
                None
            }
            NeighborState::Stale => None,
        };
        self.table.set_state(at, state, proven, timer);
    }

    fn timers_of(&self, iface: IfIndex) -> LinkTimers {
        self.timers.get(usize::from(iface.0)).copied().unwrap_or_default()
    }

    /// Until when a neighbour that has just answered counts as reachable, and from when on a use
    /// has it probed.
    fn reachable_until(&mut self, iface: IfIndex, now: Instant) -> (Instant, Instant) {
        let time = self.reachable_time(iface);
        (now + time, now + time.saturating_sub(REFRESH_LEAD.min(time / 2)))
    }

    /// Between half and one and a half of the link's, [`REACHABLE_TIME`] by default, uniformly (RFC
    /// 4861 section 6.3.2).
    fn reachable_time(&mut self, iface: IfIndex) -> Duration {
        let nanos = self.timers_of(iface).reachable.as_nanos() as u64;
        Duration::from_nanos(nanos / 2 + self.random.below(nanos))
    }
}

/// Whether a change takes from a neighbour that could be sent to what senders know of it.
fn is_other(was: Option<NeighborState>, is: NeighborState, takes_link_addr: bool) -> bool {
    let doubted = is == NeighborState::Stale && was != Some(NeighborState::Stale);
    was.is_some_and(NeighborState::is_resolved) && (takes_link_addr || doubted)
}

/// An entry as others see it.
fn shown<A: Address>(entry: &NeighborEntry<A>) -> Option<Neighbor<A>> {
    let state = entry.state?;
    Some(Neighbor {
        addr: entry.addr,
        iface: entry.iface,
        link_addr: state.is_resolved().then_some(entry.link_addr),
        state,
        is_router: entry.is_router,
        pending: entry.pending.len(),
    })
}

#[cfg(test)]
mod tests;
