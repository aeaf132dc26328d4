//! Listeners: the table of listening endpoints, and the accept queues.
//!
//! Used by `connection_table.rs`. A segment without a connection is processed by
//! `set/handshake.rs`, which looks up its listener here. Invariants: of several matching listeners,
//! the one bound to the address has priority over the one bound to all of its family, and that over
//! the one of both families; among several equal ones that share a port (`SO_REUSEPORT`) a keyed
//! hash of the connection's endpoints selects one; a listener at every port is kept under port 0,
//! which no valid segment has, and gets what no other listener matches; a connection is in one
//! accept queue at most; the backlog is enforced by `syncache`.
//!
//! # Under flood
//! Accept queues fill with proven connections only, up to each listener's backlog
//! (`TCP_BACKLOG_MAX` at most); then a client's last ACK is dropped until there is room: the client
//! sends again. A look-up is one load and a walk over the listeners of one port.

use core::net::{IpAddr, SocketAddr};

use floodwall_base::{Endpoint, FlowKey, HashKey, IfIndex, IndexLists, PortSet};
use floodwall_syncache::ListenerId as HalfId;

use crate::error::ListenError;
use crate::id::{ListenerId, StaleHandle};
use crate::settings::TcpSettings;

/// No listener.
const NONE: u16 = u16::MAX;
/// The list of listeners at every port: segments to port 0 are malformed.
const EVERY_PORT: u16 = 0;

/// One listener.
struct ListenerEntry {
    local: Endpoint,
    /// Both families, or one address.
    any: WildcardListeners,
    zone: IfIndex,
    settings: TcpSettings,
    /// The id of its half-open connections.
    half: HalfId,
    owner: u32,
    next: u16,
}

impl ListenerEntry {
    /// Whether a segment of that flow matches the listener's address.
    #[inline]
    fn hears(&self, flow: &FlowKey, iface: IfIndex) -> bool {
        let zone = self.zone == IfIndex::default() || self.zone == iface;
        zone && match self.any {
            WildcardListeners::Both => true,
            WildcardListeners::Family => flow.local.ipv4_bits().is_some(),
            WildcardListeners::Address => self.local.addr == flow.local.addr,
        }
    }
}

/// The scope of addresses on which a listener accepts connections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WildcardListeners {
    Both,
    /// All IPv4 addresses; a listener at IPv6's unspecified address accepts both families.
    Family,
    Address,
}

/// The table of listeners by port, with their accept queues.
pub(crate) struct ListenerTable {
    /// The first listener of each port.
    ports: Box<[u16]>,
    /// The ports that have a listener.
    heard: PortSet,
    /// How often a listener came or went.
    changes: u64,
    listeners: Vec<(u32, Option<ListenerEntry>)>,
    max: usize,
    /// The accept queues: a list for each listener.
    queues: IndexLists,
    /// The key of the hash that selects among listeners which share a port.
    key: HashKey,
}

impl ListenerTable {
    pub(crate) fn new(max: usize, connections: usize, key: HashKey) -> Self {
        let max = max.min(usize::from(NONE));
        Self {
            ports: vec![NONE; 1 << 16].into(),
            heard: PortSet::default(),
            changes: 0,
            listeners: Vec::with_capacity(max),
            max,
            queues: IndexLists::new(connections, max),
            key,
        }
    }

    fn get(&self, index: u16) -> Option<&ListenerEntry> {
        self.listeners.get(usize::from(index))?.1.as_ref()
    }

    fn named(&mut self, id: ListenerId) -> Result<&mut ListenerEntry, StaleHandle> {
        let (_, listener) = self
            .listeners
            .get_mut(id.index as usize)
            .filter(|(generation, _)| *generation == id.generation)
            .ok_or(StaleHandle)?;
        listener.as_mut().ok_or(StaleHandle)
    }

    fn on_port(&self, port: u16) -> impl Iterator<Item = (u16, &ListenerEntry)> {
        let mut at = self.ports.get(usize::from(port)).copied().unwrap_or(NONE);
        core::iter::from_fn(move || {
            let listener = self.get(at)?;
            let index = core::mem::replace(&mut at, listener.next);
            Some((index, listener))
        })
    }

    /// The ports that have a listener.
    pub(crate) const fn heard(&self) -> &PortSet {
        &self.heard
    }

    /// A number that is another one whenever a listener has come or gone.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether there is a listener at every port.
    pub(crate) fn hears_every_port(&self) -> bool {
        self.heard.has(EVERY_PORT)
    }

    /// Whether a new listener may use that endpoint.
    pub(crate) fn may_open(
        &self,
        local: SocketAddr,
        zone: IfIndex,
        settings: &TcpSettings,
    ) -> Result<(), ListenError> {
        let (local, any) = extent(local);
        let TcpSettings { share_port: shares, every_port, .. } = *settings;
        if local.ip().is_multicast() || (local.port == 0) != every_port {
            return Err(ListenError::InvalidAddress);
        }
        let taken = |(_, other): (u16, &ListenerEntry)| {
            let same = other.any == any && other.local == local && other.zone == zone;
            same && !(shares && other.settings.share_port)
        };
        if self.on_port(local.port).any(taken) { Err(ListenError::InUse) } else { Ok(()) }
    }

    pub(crate) fn open(
        &mut self,
        local: SocketAddr,
        zone: IfIndex,
        settings: &TcpSettings,
        half: HalfId,
        owner: u32,
    ) -> Result<ListenerId, ListenError> {
        let (local, any) = extent(local);
        let free = self.listeners.iter().position(|(_, listener)| listener.is_none());
        let index = match free {
            Some(index) => index,
            None if self.listeners.len() < self.max => {
                self.listeners.push((0, None));
                self.listeners.len() - 1
            }
            None => return Err(ListenError::TooMany),
        };
        let head = self.ports.get_mut(usize::from(local.port)).ok_or(ListenError::TooMany)?;
        let next = core::mem::replace(head, index as u16);
        self.heard.set(local.port, true);
        self.changes += 1;
        let (generation, slot) = self.listeners.get_mut(index).ok_or(ListenError::TooMany)?;
        let settings = settings.clone();
        *slot = Some(ListenerEntry { local, any, zone, settings, half, owner, next });
        Ok(ListenerId { index: index as u32, generation: *generation })
    }

    /// Removes a listener; its accept queue is empty already.
    pub(crate) fn close(&mut self, id: ListenerId) -> Result<HalfId, StaleHandle> {
        let (port, half) = (self.named(id)?.local.port, self.named(id)?.half);
        let index = id.index as u16;
        let after = self.named(id)?.next;
        let before = self.on_port(port).find(|(_, listener)| listener.next == index);
        match before.map(|(at, _)| at) {
            Some(at) => {
                if let Some((_, Some(listener))) = self.listeners.get_mut(usize::from(at)) {
                    listener.next = after;
                }
            }
            None => {
                if let Some(head) = self.ports.get_mut(usize::from(port)) {
                    *head = after;
                    self.heard.set(port, after != NONE);
                }
            }
        }
        if let Some((generation, listener)) = self.listeners.get_mut(id.index as usize) {
            *listener = None;
            *generation = generation.wrapping_add(1);
            self.changes += 1;
        }
        Ok(half)
    }

    /// The listener of a segment.
    pub(crate) fn lookup(&self, flow: &FlowKey, iface: IfIndex) -> Option<u32> {
        let best = self.best_on(flow.local.port, flow, iface);
        best.or_else(|| self.best_on(EVERY_PORT, flow, iface))
    }

    /// The same among the listeners of one port.
    fn best_on(&self, port: u16, flow: &FlowKey, iface: IfIndex) -> Option<u32> {
        let (mut best, mut first, mut count) = (WildcardListeners::Both, NONE, 0);
        for (index, listener) in self.on_port(port) {
            if !listener.hears(flow, iface) || count > 0 && listener.any < best {
                continue;
            }
            if count == 0 || listener.any > best {
                (best, first, count) = (listener.any, index, 0);
            }
            count += 1;
        }
        if count > 1 {
            // As long as no listener is added or removed, all segments of a handshake select the
            // same one.
            let nth = self.hash(flow) as usize % count;
            let equal = |it: &(u16, &ListenerEntry)| it.1.any == best && it.1.hears(flow, iface);
            first = self.on_port(port).filter(equal).nth(nth)?.0;
        }
        (count > 0).then_some(u32::from(first))
    }

    /// The listeners of which one gets that flow: the best of its port.
    pub(crate) fn all_that_hear(
        &self,
        flow: &FlowKey,
        iface: IfIndex,
    ) -> impl Iterator<Item = u32> {
        let port = flow.local.port;
        let hears = move |it: &(u16, &ListenerEntry)| it.1.hears(flow, iface);
        let best = self.on_port(port).filter(hears).map(|(_, listener)| listener.any).max();
        let all = self.on_port(port).filter(hears);
        all.filter(move |it| Some(it.1.any) == best).map(|(index, _)| u32::from(index))
    }

    fn hash(&self, flow: &FlowKey) -> u64 {
        let remote = self.key.addr(flow.remote.ip(), u32::from(flow.remote.port));
        self.key.words(&[remote, u64::from(flow.local.port)])
    }

    /// Whether there is a listener at this address and port, or at all addresses.
    pub(crate) fn holds(&self, local: Endpoint, port: u16) -> bool {
        let end = Endpoint { port, ..local };
        // The set is small, and mostly answers for a port that was drawn.
        self.heard.has(port)
            && self
                .on_port(port)
                .any(|(_, other)| other.any != WildcardListeners::Address || other.local == end)
    }

    /// The settings and the owner of a listener's connections.
    pub(crate) fn of_new(&self, index: u32) -> Option<(&TcpSettings, u32)> {
        let listener = self.get(u16::try_from(index).ok()?)?;
        Some((&listener.settings, listener.owner))
    }

    /// The listener of an id of half-open connections.
    pub(crate) fn half(&self, index: u32) -> Option<HalfId> {
        self.get(u16::try_from(index).ok()?).map(|listener| listener.half)
    }

    /// The same by the application's handle.
    pub(crate) fn half_of(&mut self, id: ListenerId) -> Result<HalfId, StaleHandle> {
        self.named(id).map(|listener| listener.half)
    }

    /// Every listener: its endpoint, its handle, and the id of its half-open connections.
    pub(crate) fn all(&self) -> impl Iterator<Item = (SocketAddr, HalfId)> {
        self.listeners.iter().filter_map(|(_, listener)| listener.as_ref()).map(|listener| {
            let Endpoint { port, .. } = listener.local;
            let ip = match listener.any {
                WildcardListeners::Both => IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED),
                WildcardListeners::Family | WildcardListeners::Address => listener.local.ip(),
            };
            (SocketAddr::new(ip, port), listener.half)
        })
    }

    /// The handle of any listener; `None` where there is none.
    pub(crate) fn first(&self) -> Option<ListenerId> {
        let index = self.listeners.iter().position(|(_, listener)| listener.is_some())?;
        let generation = self.listeners.get(index)?.0;
        Some(ListenerId { index: index as u32, generation })
    }

    pub(crate) fn enqueue(&mut self, index: u32, connection: u32) {
        self.queues.push_back(index, connection);
    }

    /// A connection is not to be accepted any more.
    pub(crate) fn dequeue(&mut self, connection: u32) {
        self.queues.unlink(connection);
    }

    pub(crate) fn has_waiting(&self, id: ListenerId) -> Result<bool, StaleHandle> {
        let place = self.listeners.get(id.index as usize);
        let live = place.is_some_and(|(n, it)| *n == id.generation && it.is_some());
        if live { Ok(!self.queues.is_empty(id.index)) } else { Err(StaleHandle) }
    }

    pub(crate) fn accept(&mut self, id: ListenerId) -> Result<Option<u32>, StaleHandle> {
        self.named(id)?;
        Ok(self.queues.pop_front(id.index))
    }
}

/// The endpoint listened at, IPv4 mapped, and its scope.
fn extent(local: SocketAddr) -> (Endpoint, WildcardListeners) {
    let addr = local.ip().to_canonical();
    let any = match local.ip() {
        IpAddr::V6(v6) if v6.is_unspecified() => WildcardListeners::Both,
        _ if addr.is_unspecified() => WildcardListeners::Family,
        _ => WildcardListeners::Address,
    };
    (Endpoint::new(addr, local.port()), any)
}
