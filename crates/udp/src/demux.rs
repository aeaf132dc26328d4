//! Which socket a datagram is for: connected first, then its address and port, then its port, then
//! every port.
//!
//! A port with one socket, the usual case, is one load from an array and one compare with the
//! socket's key. A port with several has its keys in a hash table with a secret key
//! (`key_table.rs`): one probe per kind of socket that the port has at all, at most two, and the
//! newest of equal sockets wins, as in Linux. Sockets at every port are those of port 0, which is
//! not used otherwise: they are looked up where the datagram's own port has none for it. So the
//! cost of a look-up does not depend on how many sockets there are. Called by `sockets.rs`
//! (changes) and `input.rs` (look-ups).
//!
//! Invariants: `keys` and `holds` of a socket that is entered never change; the hash tables hold
//! the sockets of shared ports only.
//!
//! # Under flood
//! Remote peers only cause look-ups: two cache lines, at most two probes of a table, and as many
//! again where a socket takes every port. Only applications make it grow, up to `sockets_max`,
//! allocated at construction. A datagram to a group visits `UDP_GROUP_SOCKETS_MAX` sockets at most;
//! honest groups with more sockets on one port lose the rest.

mod burst;
mod hash;
mod key;
mod key_table;
mod port;

#[cfg(test)]
mod tests;

use floodwall_base::limits::UDP_GROUP_SOCKETS_MAX;
use floodwall_base::{PortSet, SecretRandom};
use floodwall_sync::HugeArray;

pub(crate) use burst::{BurstSeek, BurstSight};
use hash::TupleHash;
pub(crate) use key::{
    DemuxProbe, KeyHold, KeyKind, SocketKey, V4, V6, addr, bits, canonical, is_group,
    is_link_scope, zone_of,
};
use key_table::KeyTable;
pub(crate) use key_table::TableFull;
pub(crate) use port::NONE;
use port::PortEntry;

/// In `SocketDemux::ports`: the rest of the number is a place in `shared`, not a socket's.
const SHARED_PORT: u32 = 1 << 31;

/// Where sockets at every port are kept.
const EVERY_PORT: u16 = 0;

/// All port numbers, 0 included.
const PORTS: usize = 1 << 16;

/// A socket's neighbours in one list.
#[derive(Clone, Copy, Debug)]
struct SocketLink {
    prev: u32,
    next: u32,
}

const LINKED_ALONE: SocketLink = SocketLink { prev: NONE, next: NONE };

/// Which list: wildcards per family (a socket with one key uses the first for its equals), and
/// binds to one address.
const SOCKET_LISTS: usize = 2;

/// The demultiplexing table of one stack: from a datagram's addresses and ports to its socket.
#[derive(Debug)]
pub(crate) struct SocketDemux {
    /// Per port: 0, or a socket's place plus one, or a shared port's plus one with [`SHARED_PORT`].
    ports: Box<[u32; PORTS]>,
    /// Those that are not 0.
    heard: PortSet,
    keys: HugeArray<SocketKey>,
    shared: Vec<PortEntry>,
    shared_free: Vec<u32>,
    flows: KeyTable,
    held: KeyTable,
    holds: Vec<KeyHold>,
    links: Vec<[SocketLink; 3]>,
    hash: TupleHash,
    /// Which of several has a flow.
    spread_hash: TupleHash,
    /// Sockets that are connected.
    connected: u32,
    /// Some socket takes every port.
    every: bool,
    /// Changes with everything that may change the result of a look-up.
    changes: u32,
}

/// What a port's number means.
enum KeyPosition {
    Unmatched,
    Sole(u32),
    Shared(u32),
}

impl SocketDemux {
    pub(crate) fn new(sockets_max: usize, random: &mut SecretRandom) -> Self {
        Self {
            // By way of a vector: an array of this size must not be on a stack.
            ports: vec![0; PORTS].try_into().unwrap_or_else(|_| Box::new([0; PORTS])),
            heard: PortSet::default(),
            keys: HugeArray::with_capacity(sockets_max),
            shared: Vec::with_capacity(sockets_max / 2),
            shared_free: Vec::with_capacity(sockets_max / 2),
            flows: KeyTable::new(sockets_max),
            held: KeyTable::new(sockets_max),
            holds: Vec::with_capacity(sockets_max),
            links: Vec::with_capacity(sockets_max),
            hash: TupleHash::new(random),
            spread_hash: TupleHash::new(random),
            connected: 0,
            every: false,
            changes: 0,
        }
    }

    /// Makes a place for one more socket.
    pub(crate) fn grow(&mut self) {
        self.keys.push(SocketKey::UNBOUND);
        self.holds.push(KeyHold::NONE);
        self.links.push([LINKED_ALONE; 3]);
    }

    pub(crate) fn key(&self, index: u32) -> SocketKey {
        self.keys.get(index as usize).copied().unwrap_or(SocketKey::UNBOUND)
    }

    #[inline(always)]
    pub(crate) fn kind(&self, index: u32) -> KeyKind {
        self.keys.get(index as usize).map_or(KeyKind::Unbound, |key| key.kind)
    }

    /// How many sockets are connected.
    pub(crate) const fn connected(&self) -> u32 {
        self.connected
    }

    pub(crate) fn hold(&self, index: u32) -> KeyHold {
        self.holds.get(index as usize).copied().unwrap_or(KeyHold::NONE)
    }

    #[inline(always)]
    fn at(&self, port: u16) -> KeyPosition {
        match self.ports.get(usize::from(port)).copied().unwrap_or(0) {
            0 => KeyPosition::Unmatched,
            n if n & SHARED_PORT == 0 => KeyPosition::Sole(n - 1),
            n => KeyPosition::Shared((n & !SHARED_PORT) - 1),
        }
    }

    /// The socket for a datagram to one host. About 3 ns for a port with one socket, 8 for others.
    #[inline(always)]
    pub(crate) fn lookup(&self, probe: &DemuxProbe) -> Option<u32> {
        match self.lookup_port(probe) {
            None if self.every => self.lookup_every(*probe),
            found => found,
        }
    }

    /// The socket at every port that takes what is sent to this address.
    #[inline(never)]
    fn lookup_every(&self, probe: DemuxProbe) -> Option<u32> {
        self.lookup_port(&DemuxProbe { local_port: EVERY_PORT, ..probe })
    }

    /// The socket of the datagram's own port.
    #[inline(always)]
    fn lookup_port(&self, probe: &DemuxProbe) -> Option<u32> {
        match self.at(probe.local_port) {
            KeyPosition::Unmatched => None,
            KeyPosition::Sole(index) => {
                self.keys.get(index as usize)?.accepts(probe).then_some(index)
            }
            KeyPosition::Shared(place) => {
                self.lookup_shared(self.shared.get(place as usize)?, *probe)
            }
        }
    }

    #[inline(never)]
    fn lookup_shared(&self, port: &PortEntry, probe: DemuxProbe) -> Option<u32> {
        if port.connected > 0
            && let Some(index) = self.find(&probe.connected())
        {
            return Some(index);
        }
        if port.bound > 0
            && let Some(index) = self.find(&probe.bound())
        {
            return Some(self.spread(port, index, 0, &probe));
        }
        let [v4, v6] = port.wildcards;
        let (list, index) = if probe.families() == V4 { (0, v4) } else { (1, v6) };
        Some(index)
            .filter(|index| *index != NONE)
            .map(|index| self.spread(port, index, list, &probe))
    }

    /// Selects one of several sockets that are bound alike (`SO_REUSEPORT`) for this flow: among
    /// those that spread flows, by a hash with a key of its own, since peers can observe which
    /// socket serves them. The newest where it does not spread. A walk over `UDP_GROUP_SOCKETS_MAX`
    /// of them at most.
    #[inline(always)]
    fn spread(&self, port: &PortEntry, newest: u32, list: usize, probe: &DemuxProbe) -> u32 {
        if port.spread == 0 || !self.hold(newest).spread {
            return newest;
        }
        let alike = || {
            let all = self.chain(list, Some(newest)).take(UDP_GROUP_SOCKETS_MAX);
            all.filter(|index| self.hold(*index).spread)
        };
        let hash = u64::from(self.spread_hash.connected(probe));
        let chosen = (hash * alike().count() as u64) >> u32::BITS;
        alike().nth(chosen as usize).unwrap_or(newest)
    }

    /// The newest socket with exactly this key.
    #[inline]
    fn find(&self, key: &SocketKey) -> Option<u32> {
        self.flows.find(self.hash.key(key), |i| self.keys.get(i as usize) == Some(key))
    }

    /// Fills `out` with the sockets for a datagram to a group or broadcast address, as many as
    /// fit; returns how many there are in it.
    pub(crate) fn lookup_group(&self, probe: &DemuxProbe, out: &mut [u32]) -> usize {
        let place = match self.at(probe.local_port) {
            KeyPosition::Unmatched => return 0,
            KeyPosition::Sole(_) => {
                let found = self.lookup_port(probe);
                return out.iter_mut().zip(found).map(|(slot, index)| *slot = index).count();
            }
            KeyPosition::Shared(place) => place,
        };
        let Some(port) = self.shared.get(place as usize) else { return 0 };
        let [v4, v6] = port.wildcards;
        let (family, wildcard) = if probe.families() == V4 { (0, v4) } else { (1, v6) };
        // A group may be bound with or without its link.
        let bound = probe.bound();
        let on_link = SocketKey { zone: probe.iface, ..bound };
        let lists = [
            (0, self.find(&probe.connected())),
            (0, self.find(&bound)),
            (0, self.find(&on_link).filter(|_| bound.zone == 0)),
            (family, Some(wildcard).filter(|index| *index != NONE)),
        ];
        let sockets = lists.into_iter().flat_map(|(list, first)| self.chain(list, first));
        out.iter_mut().zip(sockets).map(|(slot, index)| *slot = index).count()
    }

    /// A socket and those behind it in one of its lists.
    fn chain(&self, list: usize, first: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        core::iter::successors(first, move |index| {
            let next = self.links.get(*index as usize)?.get(list)?.next;
            (next != NONE).then_some(next)
        })
    }

    /// Whether a bind would take what another socket holds.
    pub(crate) fn refuses(&self, new: &KeyHold) -> bool {
        match self.at(new.port) {
            KeyPosition::Unmatched => false,
            KeyPosition::Sole(index) => {
                let old = self.hold(index);
                let same = old.local == new.local && old.zone == new.zone;
                old.families & new.families != 0
                    && (same || old.is_wildcard() || new.is_wildcard())
                    && !(old.reuse && new.reuse)
            }
            KeyPosition::Shared(place) => {
                self.shared.get(place as usize).is_some_and(|port| port.refuses(new))
                    || self.holder(new).is_some_and(|old| !(new.reuse && self.hold(old).reuse))
            }
        }
    }

    /// A socket that is bound to exactly this address and port, on a shared port.
    fn holder(&self, hold: &KeyHold) -> Option<u32> {
        if hold.is_wildcard() {
            return None;
        }
        let same =
            |old: &KeyHold| KeyHold { reuse: hold.reuse, spread: hold.spread, ..*old } == *hold;
        self.held.find(self.hash.hold(hold), |i| self.holds.get(i as usize).is_some_and(same))
    }

    /// A number that changes whenever the result of a look-up may change.
    #[inline]
    pub(crate) const fn changes(&self) -> u32 {
        self.changes
    }

    /// Enters a socket that is not entered.
    ///
    /// # Errors
    /// The table has no room near the key; nothing is changed then.
    pub(crate) fn enter(
        &mut self,
        index: u32,
        key: SocketKey,
        hold: KeyHold,
    ) -> Result<(), TableFull> {
        self.changes = self.changes.wrapping_add(1);
        if let (Some(own), Some(held)) =
            (self.keys.get_mut(index as usize), self.holds.get_mut(index as usize))
        {
            (*own, *held) = (key, hold);
            self.connected += u32::from(key.kind == KeyKind::Connected);
        }
        let place = match self.at(hold.port) {
            KeyPosition::Unmatched => {
                self.set_port(hold.port, index + 1);
                return Ok(());
            }
            KeyPosition::Sole(other) => self.share(hold.port, other),
            KeyPosition::Shared(place) => Ok(place),
        };
        let entered = place.and_then(|place| {
            self.attach(place, index).inspect_err(|_| self.unshare(place, hold.port))
        });
        if entered.is_err() {
            self.forget(index);
        }
        entered
    }

    /// Takes a socket out, where it is entered. Its port is free for others at once.
    pub(crate) fn leave(&mut self, index: u32) {
        if self.kind(index) == KeyKind::Unbound {
            return;
        }
        self.changes = self.changes.wrapping_add(1);
        let port = self.hold(index).port;
        match self.at(port) {
            KeyPosition::Unmatched => return,
            KeyPosition::Sole(_) => self.set_port(port, 0),
            KeyPosition::Shared(place) => {
                self.detach(place, index);
                self.unshare(place, port);
            }
        }
        self.forget(index);
    }

    fn forget(&mut self, index: u32) {
        if let Some(key) = self.keys.get_mut(index as usize) {
            self.connected -= u32::from(key.kind == KeyKind::Connected);
            *key = SocketKey::UNBOUND;
        }
    }

    /// Lets a socket listen to something else on its port.
    ///
    /// # Errors
    /// As [`SocketDemux::enter`]; the socket listens as before then.
    pub(crate) fn rekey(&mut self, index: u32, key: SocketKey) -> Result<(), TableFull> {
        let (before, hold) = (self.key(index), self.hold(index));
        self.leave(index);
        let entered = self.enter(index, key, hold);
        if entered.is_err() {
            // It had room a moment ago, and nothing was added since.
            self.enter(index, before, hold)?;
        }
        entered
    }

    fn set_port(&mut self, port: u16, to: u32) {
        if let Some(slot) = self.ports.get_mut(usize::from(port)) {
            *slot = to;
        }
        self.heard.set(port, to != 0);
        if port == EVERY_PORT {
            self.every = to != 0;
        }
    }

    /// The ports that any socket has; [`EVERY_PORT`] where one has every port.
    pub(crate) const fn heard(&self) -> &PortSet {
        &self.heard
    }

    /// Whether a socket has every port.
    pub(crate) const fn hears_every_port(&self) -> bool {
        self.every
    }

    /// Whether any socket has this port, or every port. One load from 8 KiB.
    #[inline(always)]
    pub(crate) fn is_heard(&self, port: u16) -> bool {
        self.every || self.heard.has(port)
    }

    /// Gives the sole socket of a port company: a record for the port.
    #[cold]
    fn share(&mut self, port: u16, other: u32) -> Result<u32, TableFull> {
        let place = self.shared_free.pop().unwrap_or_else(|| {
            self.shared.push(PortEntry::EMPTY);
            self.shared.len() as u32 - 1
        });
        if let Some(record) = self.shared.get_mut(place as usize) {
            *record = PortEntry::EMPTY;
        }
        if let Err(full) = self.attach(place, other) {
            self.shared_free.push(place);
            return Err(full);
        }
        self.set_port(port, SHARED_PORT | (place + 1));
        Ok(place)
    }

    /// Removes a port's record where one socket is left.
    fn unshare(&mut self, place: u32, port: u16) {
        let Some(record) = self.shared.get(place as usize) else { return };
        if record.total == 1 {
            let last = record.places;
            self.detach(place, last);
            self.set_port(port, last + 1);
            self.shared_free.push(place);
        }
    }

    /// Puts a socket into the lists and tables of its shared port.
    fn attach(&mut self, place: u32, index: u32) -> Result<(), TableFull> {
        let (key, hold) = (self.key(index), self.hold(index));
        if key.kind == KeyKind::Wildcard {
            for (list, family) in [V4, V6].into_iter().enumerate() {
                if key.families & family != 0 {
                    let head =
                        self.wildcard(place, list).map(|head| core::mem::replace(head, index));
                    self.link_before(list, index, head.unwrap_or(NONE));
                }
            }
        } else {
            let (hash, head) = (self.hash.key(&key), self.find(&key));
            match head {
                Some(head) => self.flows.replace(hash, head, index),
                None => self.flows.insert(hash, index)?,
            }
            self.link_before(0, index, head.unwrap_or(NONE));
        }
        if !hold.is_wildcard()
            && let Err(full) = self.attach_hold(index, &hold)
        {
            self.detach_key(place, index, &key);
            return Err(full);
        }
        if let Some(port) = self.shared.get_mut(place as usize) {
            port.count_in(index, &key, &hold);
        }
        Ok(())
    }

    fn attach_hold(&mut self, index: u32, hold: &KeyHold) -> Result<(), TableFull> {
        let (hash, head) = (self.hash.hold(hold), self.holder(hold));
        match head {
            Some(head) => self.held.replace(hash, head, index),
            None => self.held.insert(hash, index)?,
        }
        self.link_before(SOCKET_LISTS, index, head.unwrap_or(NONE));
        Ok(())
    }

    /// The inverse of [`SocketDemux::attach`].
    fn detach(&mut self, place: u32, index: u32) {
        let (key, hold) = (self.key(index), self.hold(index));
        self.detach_key(place, index, &key);
        if !hold.is_wildcard() {
            let link = self.unlink(SOCKET_LISTS, index);
            let hash = self.hash.hold(&hold);
            follow(&mut self.held, hash, index, link);
        }
        if let Some(port) = self.shared.get_mut(place as usize) {
            port.count_out(index, &key, &hold);
        }
    }

    fn detach_key(&mut self, place: u32, index: u32, key: &SocketKey) {
        if key.kind == KeyKind::Wildcard {
            for (list, family) in [V4, V6].into_iter().enumerate() {
                if key.families & family != 0 {
                    let link = self.unlink(list, index);
                    if link.prev == NONE
                        && let Some(head) = self.wildcard(place, list)
                    {
                        *head = link.next;
                    }
                }
            }
        } else {
            let link = self.unlink(0, index);
            let hash = self.hash.key(key);
            follow(&mut self.flows, hash, index, link);
        }
    }

    fn wildcard(&mut self, place: u32, family: usize) -> Option<&mut u32> {
        self.shared.get_mut(place as usize)?.wildcards.get_mut(family)
    }

    fn link(&mut self, list: usize, index: u32) -> Option<&mut SocketLink> {
        self.links.get_mut(index as usize)?.get_mut(list)
    }

    /// Prepends a socket to a list with the present head `head`.
    fn link_before(&mut self, list: usize, index: u32, head: u32) {
        if let Some(link) = self.link(list, index) {
            *link = SocketLink { prev: NONE, next: head };
        }
        if let Some(link) = self.link(list, head) {
            link.prev = index;
        }
    }

    /// Takes a socket out of a list; returns the neighbours that it had.
    fn unlink(&mut self, list: usize, index: u32) -> SocketLink {
        let link = self
            .link(list, index)
            .map_or(LINKED_ALONE, |link| core::mem::replace(link, LINKED_ALONE));
        if let Some(prev) = self.link(list, link.prev) {
            prev.next = link.next;
        }
        if let Some(next) = self.link(list, link.next) {
            next.prev = link.prev;
        }
        link
    }

    /// Entries and passes of both tables: for tests.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> [(usize, u64); 2] {
        [self.flows.entries(), self.held.entries()]
    }
}

/// Lets the next of equal sockets stand in the table for one that left, if that one stood there.
fn follow(table: &mut KeyTable, hash: u32, left: u32, link: SocketLink) {
    match link {
        SocketLink { prev: NONE, next: NONE } => table.remove(hash, left),
        SocketLink { prev: NONE, next } => table.replace(hash, left, next),
        _ => (),
    }
}
