//! `Udp`: the sockets of one stack, and their control operations: open, bind, connect, close.
//!
//! Called by `stack` for its applications. Invariants: a place is used again only under another
//! generation; a closed socket leaves nothing behind, not in the tables, not in the accounts.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use floodwall_base::{Family, IfIndex, Instant, SecretRandom, Steering, WorkerId};
use floodwall_packet::{CapacityHints, Pool};
use floodwall_wire::{IcmpReport, IpProtocol};
use thiserror::Error;

use crate::allowance::Allowance;
use crate::demux::{
    DemuxProbe, KeyHold, KeyKind, SocketDemux, SocketKey, TableFull, V4, V6, addr, bits, canonical,
    is_group, is_link_scope, zone_of,
};
use crate::drops::{DropCause, RefusedDatagram, UdpDrops};
use crate::ephemeral;
use crate::fair::{FairShare, ShareDemand};
use crate::group_filter::GroupSockets;
use crate::icmp_error::{IcmpError, IcmpVerdict, QuotedDatagram};
use crate::id::{SocketClosed, SocketId};
use crate::intake::{Intake, LocalIntake};
use crate::memory::SocketMemory;
use crate::ready::ReadyList;
use crate::settings::{SocketSettings, UdpConfig};

/// All sockets of one stack.
///
/// # Under flood
/// Reachable by any sender. Bounds: `sockets_max` places, allocated at construction, which only
/// applications take; per socket the intake's (`intake.rs`); for all together `memory.rs`. Worst
/// work per datagram: two table probes and one pass over its bytes. When a socket is full the new
/// datagram is refused before its bytes are read; a flood of one socket costs the others nothing.
/// Counters: `UdpNoPorts`, `UdpRcvbufErrors`, `UdpInErrors` and those of IPv6.
#[derive(Debug)]
pub struct Udp<I: Intake = LocalIntake> {
    pub(crate) demux: SocketDemux,
    pub(crate) sockets: Vec<Socket<I>>,
    pub(crate) ready: ReadyList,
    /// What still fits into each socket, by its place.
    pub(crate) rooms: Arc<CapacityHints>,
    /// Sources that have had much of a socket that fills up.
    pub(crate) fair: FairShare,
    /// What all of them hold.
    pub(crate) memory: SocketMemory,
    pub(crate) drops: UdpDrops,
    /// Sockets that have refused something since the last report.
    pub(crate) refusing: ReadyList,
    /// Some socket needs more than a datagram's usual metadata.
    pub(crate) tells: bool,
    /// When this round began.
    pub(crate) now: Instant,
    pub(crate) free: Vec<u32>,
    /// Places that all shards share, for the shard that allots them.
    pub(crate) shared_free: Vec<u32>,
    pub(crate) allots: bool,
    /// The worker to which our connections should hash (RSS), where there are several workers.
    home: Option<(Steering, WorkerId)>,
    config: UdpConfig,
}

/// One place. Its first cache line is all that delivery and reading touch.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Socket<I> {
    pub(crate) generation: u32,
    pub(crate) body: Option<SocketBody<I>>,
}

/// An open socket. What it listens to is in the demux.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SocketBody<I> {
    /// Its spare tags also mark a place as open or closed, in the first cache line.
    pub(crate) error: Option<IcmpError>,
    pub(crate) intake: I,
    pub(crate) send: Allowance,
    pub(crate) demand: ShareDemand,
    pub(crate) settings: SocketSettings,
    /// Boxed, for few have any, and a vector's spare values would be taken for the above.
    #[expect(clippy::box_collection, reason = "boxed for size, as the comment above explains")]
    pub(crate) groups: Option<Box<Vec<GroupSockets>>>,
    /// The message behind the last error.
    report: Option<IcmpReport>,
}

const _: () = {
    assert!(size_of::<Option<SocketBody<LocalIntake>>>() == size_of::<SocketBody<LocalIntake>>());
    assert!(core::mem::offset_of!(Socket<LocalIntake>, body) == 8);
    assert!(core::mem::offset_of!(SocketBody<LocalIntake>, send) == 64 - 8);
};

impl<I: Intake> SocketBody<I> {
    /// Takes two accounts.
    pub(crate) fn open(
        pool: &Pool,
        settings: SocketSettings,
        rooms: &Arc<CapacityHints>,
        index: u32,
    ) -> Result<Self, OpenError> {
        let intake = I::open(pool, settings.receive_bytes, rooms, index);
        let intake = intake.ok_or(OpenError::NoAccount)?;
        let send = Allowance::open(pool, settings.send_bytes).ok_or(OpenError::NoAccount)?;
        Ok(Self {
            intake,
            send,
            settings,
            error: None,
            demand: ShareDemand::default(),
            groups: None,
            report: None,
        })
    }
}

/// Why a socket cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum OpenError {
    /// `sockets_max` are open.
    #[error("all {0} UDP sockets are open: raise sockets_max")]
    TooMany(usize),
    /// The pool has no two accounts left.
    #[error("the packet pool has no account left: raise accounts, two for each UDP socket")]
    NoAccount,
}

/// Why a socket cannot be bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another socket holds the address and port, or a wildcard that covers it.
    #[error("the address is in use")]
    AddrInUse,
    /// The address is of a family that the socket does not support.
    #[error("the address is not of the socket's family")]
    AddressFamily,
    /// A socket is bound once.
    #[error("the socket is bound already")]
    AlreadyBound,
    /// The socket is closed.
    #[error(transparent)]
    Closed(#[from] SocketClosed),
    /// A socket at every port has none of its own.
    #[error("a socket at every port has none of its own: bind it to port 0, do not connect it")]
    EveryPort,
    /// Every ephemeral port is taken.
    #[error("every ephemeral port is in use")]
    PortsExhausted,
    /// The tables have no room near the socket's key. Practically never; another port works.
    #[error("the socket table is full at this place")]
    TableFull,
    /// A link-local address needs its interface.
    #[error("a link-local address needs its interface")]
    ZoneMissing,
}

/// Why a socket cannot be connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The unbound socket could not be given a port, or the address needs its interface.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The peer or our address is unspecified, or the port is 0.
    #[error("neither address nor port may be zero")]
    Unspecified,
}

impl From<TableFull> for BindError {
    fn from(_: TableFull) -> Self {
        Self::TableFull
    }
}

impl Udp<LocalIntake> {
    /// No sockets yet, and memory for all that are allowed. `random` gives the tables' keys.
    #[must_use]
    pub fn new(config: &UdpConfig, random: &mut SecretRandom) -> Self {
        Self::with_intake(config, random)
    }
}

impl<I: Intake> Udp<I> {
    /// As [`Udp::new`], for another kind of intake.
    #[must_use]
    pub fn with_intake(config: &UdpConfig, random: &mut SecretRandom) -> Self {
        let (own, all) = (config.sockets_max, config.sockets_max + config.shared_max);
        let mut fair = FairShare::new(random.hash_key());
        fair.set_on(config.fair_drop);
        let mut udp = Self {
            fair,
            memory: SocketMemory::new(config.memory_bytes, all),
            drops: UdpDrops::new(all),
            refusing: ReadyList::new(all),
            tells: false,
            now: Instant::ORIGIN,
            demux: SocketDemux::new(all, random),
            sockets: Vec::with_capacity(all),
            ready: ReadyList::new(all),
            rooms: CapacityHints::new(all),
            free: Vec::with_capacity(own),
            shared_free: (own as u32..all as u32).rev().collect(),
            allots: false,
            home: None,
            config: config.clone(),
        };
        if config.shared_max > 0 {
            (0..all).for_each(|_| _ = udp.grow());
            udp.free.extend((0..own as u32).rev());
        }
        udp
    }

    /// Places that shards open by themselves.
    pub(crate) const fn sockets_max(&self) -> usize {
        self.config.sockets_max
    }

    /// Places that all shards share.
    pub(crate) const fn shared_max(&self) -> usize {
        self.config.shared_max
    }

    /// Makes one more place.
    pub(crate) fn grow(&mut self) -> u32 {
        self.sockets.push(Socket { generation: 1, body: None });
        self.demux.grow();
        self.ready.grow();
        self.memory.grow();
        self.refusing.grow();
        self.sockets.len() as u32 - 1
    }

    /// Lets connections of unbound sockets choose ports with which `worker` owns their flow.
    pub const fn set_home(&mut self, steering: Steering, worker: WorkerId) {
        self.home = Some((steering, worker));
    }

    /// Opens an unbound socket. Takes two accounts of the pool.
    ///
    /// # Errors
    /// Too many sockets, or no account.
    pub fn open(&mut self, pool: &Pool, settings: SocketSettings) -> Result<SocketId, OpenError> {
        if self.free.is_empty() && self.sockets.len() >= self.config.sockets_max {
            return Err(OpenError::TooMany(self.config.sockets_max));
        }
        let index = self.free.last().copied().unwrap_or(self.sockets.len() as u32);
        self.tells |= settings.timestamps || settings.drop_count;
        let body = SocketBody::open(pool, settings, &self.rooms, index)?;
        self.memory.fit(pool);
        let index = self.free.pop().unwrap_or_else(|| self.grow());
        self.drops.begin(index);
        let generation = self.sockets.get_mut(index as usize).map_or(0, |socket| {
            socket.body = Some(body);
            socket.generation
        });
        Ok(SocketId { index, generation })
    }

    /// How many sockets are open. Visits all places.
    #[must_use]
    pub fn open_sockets(&self) -> usize {
        self.sockets.iter().filter(|socket| socket.body.is_some()).count()
    }

    /// Closes a socket; what waits in it is dropped, and its charges are released. Returns how many
    /// datagrams that were: the stack's ledger has them as delivered.
    ///
    /// # Errors
    /// It is closed.
    pub fn close(&mut self, id: SocketId) -> Result<usize, SocketClosed> {
        let waiting = self.body(id)?.intake.len();
        self.demux.leave(id.index);
        self.ready.remove(id.index);
        self.refusing.remove(id.index);
        self.memory.forget(id.index);
        if let Some(socket) = self.sockets.get_mut(id.index()) {
            socket.generation = socket.generation.wrapping_add(1);
            socket.body = None;
        }
        if id.index() < self.config.sockets_max {
            self.free.push(id.index);
        } else if self.allots {
            self.shared_free.push(id.index);
        }
        Ok(waiting)
    }

    /// Binds a socket to an address of ours (the caller has checked that it is) or to all of
    /// them, and to a port, or to an ephemeral one for port 0 (to every port, where its settings
    /// enable that). `zone` is the interface of a link-local address. Returns what it is bound to.
    ///
    /// # Errors
    /// See [`BindError`]. Without `reuse_address` on both, sockets may not overlap: neither equal
    /// addresses nor a wildcard with a specific one, IPv4 with `::` included.
    pub fn bind(
        &mut self,
        id: SocketId,
        local: SocketAddr,
        zone: Option<IfIndex>,
        random: &mut SecretRandom,
    ) -> Result<SocketAddr, BindError> {
        let hold = self.hold_for(id, canonical(local), zone)?;
        if self.demux.key(id.index).kind != KeyKind::Unbound {
            return Err(BindError::AlreadyBound);
        }
        let hold = match self.body(id)?.settings.every_port {
            true => self.at_every_port(hold)?,
            false => self.with_port(hold, random, |_| true)?,
        };
        self.demux.enter(id.index, SocketKey::bound(&hold), hold)?;
        Ok(SocketAddr::new(canonical(local).ip(), hold.port))
    }

    /// What a socket would hold if it were bound to `local`.
    pub(crate) fn hold_for(
        &self,
        id: SocketId,
        local: SocketAddr,
        zone: Option<IfIndex>,
    ) -> Result<KeyHold, BindError> {
        let settings = &self.body(id)?.settings;
        let families = match (settings.family, local.ip()) {
            (Family::V4, IpAddr::V4(_)) => V4,
            (Family::V6, IpAddr::V4(_)) if !settings.v6_only => V4,
            (Family::V6, IpAddr::V6(a)) if a.is_unspecified() && !settings.v6_only => V4 | V6,
            (Family::V6, IpAddr::V6(_)) => V6,
            _ => return Err(BindError::AddressFamily),
        };
        let address = if local.ip().is_unspecified() { 0 } else { bits(local.ip()) };
        let zone = match zone {
            None if is_link_scope(address) => return Err(BindError::ZoneMissing),
            Some(iface) if is_link_scope(address) || is_group(address) => zone_of(iface),
            _ => 0,
        };
        let spread = settings.spread_flows;
        let reuse = settings.reuse_address || spread;
        Ok(KeyHold { local: address, zone, port: local.port(), families, reuse, spread })
    }

    /// The hold of a socket at every port, where it may have that: it is kept under port 0.
    fn at_every_port(&self, hold: KeyHold) -> Result<KeyHold, BindError> {
        match hold.port {
            0 if self.demux.refuses(&hold) => Err(BindError::AddrInUse),
            0 => Ok(hold),
            _ => Err(BindError::EveryPort),
        }
    }

    /// The hold with a port that it may have.
    fn with_port(
        &self,
        hold: KeyHold,
        random: &mut SecretRandom,
        suits: impl Fn(u16) -> bool,
    ) -> Result<KeyHold, BindError> {
        if hold.port == 0 {
            let ports = &self.config.ephemeral_ports;
            let port = ephemeral::pick(&self.demux, hold, ports, random, suits)
                .ok_or(BindError::PortsExhausted)?;
            return Ok(KeyHold { port, ..hold });
        }
        if self.demux.refuses(&hold) { Err(BindError::AddrInUse) } else { Ok(hold) }
    }

    /// Connects: the socket receives from one peer only, and sends to it by default. An unbound
    /// socket gets an ephemeral port. `src_addr` is our address towards the peer, for sockets that
    /// are bound to none; `zone` is the interface of a link-local address. May be called again.
    ///
    /// # Errors
    /// See [`ConnectError`]; the socket is unchanged then.
    pub fn connect(
        &mut self,
        id: SocketId,
        remote: SocketAddr,
        src_addr: IpAddr,
        zone: Option<IfIndex>,
        random: &mut SecretRandom,
    ) -> Result<(), ConnectError> {
        let remote = canonical(remote);
        if remote.ip().is_unspecified() || remote.port() == 0 {
            return Err(ConnectError::Unspecified);
        }
        let unbound = self.demux.key(id.index).kind == KeyKind::Unbound;
        let hold = if unbound {
            let wildcard = self.wildcard(id)?;
            // What all shards have is at home everywhere.
            let home = self.home.filter(|_| id.index() < self.config.sockets_max);
            self.with_port(self.hold_for(id, wildcard, None)?, random, |port| {
                let local = SocketAddr::new(canonical(SocketAddr::new(src_addr, 0)).ip(), port);
                home.is_none_or(|(steering, worker)| {
                    steering.flow(local, remote, IpProtocol::UDP.0) == worker
                })
            })?
        } else {
            self.body(id).map_err(BindError::from)?;
            self.demux.hold(id.index)
        };
        self.connect_held(id, (hold, unbound), remote, src_addr, zone)
    }

    /// Connects a socket that holds what it will hold, now or from now on.
    pub(crate) fn connect_held(
        &mut self,
        id: SocketId,
        (hold, unbound): (KeyHold, bool),
        remote: SocketAddr,
        src_addr: IpAddr,
        zone: Option<IfIndex>,
    ) -> Result<(), ConnectError> {
        let src_addr = bits(canonical(SocketAddr::new(src_addr, 0)).ip());
        let local = if hold.is_wildcard() { src_addr } else { hold.local };
        let remote_bits = bits(remote.ip());
        let iface = zone.map_or(hold.zone, zone_of);
        if addr(local).is_unspecified() {
            return Err(ConnectError::Unspecified);
        }
        if hold.port == 0 {
            return Err(BindError::EveryPort.into());
        }
        let key = SocketKey::connected(local, hold.port, remote_bits, remote.port(), iface);
        if hold.families & key.families == 0 || addr(local).is_ipv4() != remote.is_ipv4() {
            return Err(BindError::AddressFamily.into());
        }
        if iface == 0 && (is_link_scope(local) || is_link_scope(remote_bits)) {
            return Err(BindError::ZoneMissing.into());
        }
        let done = if unbound {
            self.demux.enter(id.index, key, hold)
        } else {
            self.demux.rekey(id.index, key)
        };
        Ok(done.map_err(BindError::from)?)
    }

    /// Every address, as the socket's family writes it.
    pub(crate) fn wildcard(&self, id: SocketId) -> Result<SocketAddr, BindError> {
        Ok(match self.body(id)?.settings.family {
            Family::V4 => (Ipv4Addr::UNSPECIFIED, 0).into(),
            Family::V6 => (Ipv6Addr::UNSPECIFIED, 0).into(),
        })
    }

    /// Disconnects: the socket receives from any source again, at what it was bound to. It keeps
    /// its port.
    ///
    /// # Errors
    /// It is closed, or (practically never) the table is full at the place.
    pub fn disconnect(&mut self, id: SocketId) -> Result<(), BindError> {
        self.body(id)?;
        if self.demux.key(id.index).kind == KeyKind::Connected {
            self.demux.rekey(id.index, SocketKey::bound(&self.demux.hold(id.index)))?;
        }
        Ok(())
    }

    /// Our end: `None` where the socket is unbound. The address is the wildcard of the socket's
    /// family where it is neither bound to one nor connected.
    ///
    /// # Errors
    /// It is closed.
    pub fn local_addr(&self, id: SocketId) -> Result<Option<SocketAddr>, SocketClosed> {
        let (body, key) = (self.body(id)?, self.demux.key(id.index));
        let ip = match key.kind {
            KeyKind::Unbound => return Ok(None),
            KeyKind::Wildcard if body.settings.family == Family::V4 || key.families == V4 => {
                Ipv4Addr::UNSPECIFIED.into()
            }
            KeyKind::Wildcard => Ipv6Addr::UNSPECIFIED.into(),
            KeyKind::Bound | KeyKind::Connected => addr(key.local),
        };
        Ok(Some(SocketAddr::new(ip, key.local_port)))
    }

    /// The peer of a connected socket.
    ///
    /// # Errors
    /// It is closed.
    pub fn peer_addr(&self, id: SocketId) -> Result<Option<SocketAddr>, SocketClosed> {
        self.body(id)?;
        let key = self.demux.key(id.index);
        let connected = key.kind == KeyKind::Connected;
        Ok(connected.then(|| SocketAddr::new(addr(key.remote), key.remote_port)))
    }

    /// The interface that the socket's link-local address belongs to.
    ///
    /// # Errors
    /// It is closed.
    pub fn zone(&self, id: SocketId) -> Result<Option<IfIndex>, SocketClosed> {
        self.body(id)?;
        Ok(self.demux.key(id.index).zone.checked_sub(1).map(|iface| IfIndex(iface as u16)))
    }

    /// The socket's settings.
    ///
    /// # Errors
    /// It is closed.
    pub fn settings(&self, id: SocketId) -> Result<&SocketSettings, SocketClosed> {
        Ok(&self.body(id)?.settings)
    }

    /// Changes the socket's settings. `family` never changes, and `v6_only`, `reuse_address` and
    /// the like do not once it is bound: those are left as they are.
    ///
    /// # Errors
    /// It is closed.
    pub fn set_settings(&mut self, id: SocketId, new: SocketSettings) -> Result<(), SocketClosed> {
        let bound = self.demux.key(id.index).kind != KeyKind::Unbound;
        self.tells |= new.timestamps || new.drop_count;
        let body = self.body_mut(id)?;
        let old = &body.settings;
        let fixed = (old.family, old.v6_only, old.reuse_address, old.spread_flows);
        let every_port = old.every_port;
        body.intake.set_limit(new.receive_bytes);
        body.send.set_limit(new.send_bytes);
        body.settings = new;
        body.settings.family = fixed.0;
        if bound {
            let settings = &mut body.settings;
            (settings.v6_only, settings.reuse_address) = (fixed.1, fixed.2);
            (settings.spread_flows, settings.every_port) = (fixed.3, every_port);
        }
        Ok(())
    }

    /// Total number of datagrams that wait in sockets. Visits all places.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let bodies = self.sockets.iter().filter_map(|socket| socket.body.as_ref());
        bodies.map(|body| body.intake.len() as u64).sum()
    }

    /// The open sockets at `looks` places from `from` on; and where to go on, `None` at the end.
    /// Costs a visit for each place.
    #[must_use]
    pub fn sockets_from(&self, from: usize, looks: usize) -> (Vec<SocketId>, Option<usize>) {
        let all = self.sockets.iter().enumerate().skip(from).take(looks);
        let open = all.filter(|(_, socket)| socket.body.is_some());
        let ids = open.map(|(index, socket)| {
            let generation = socket.generation;
            SocketId { index: index as u32, generation }
        });
        let next = from.saturating_add(looks);
        (ids.collect(), (next < self.sockets.len()).then_some(next))
    }

    /// Datagrams that wait, true bytes charged to the receive limit, and datagrams dropped for
    /// want of room since the socket was opened.
    ///
    /// # Errors
    /// It is closed.
    pub fn queue(&self, id: SocketId) -> Result<(usize, u64, u64), SocketClosed> {
        let body = self.body(id)?;
        let refused = self.drops.of(id.index());
        Ok((body.intake.len(), body.intake.charged(), refused.total()))
    }

    /// Datagrams that the socket has taken since it was opened, read or not.
    ///
    /// # Errors
    /// It is closed.
    pub fn taken(&self, id: SocketId) -> Result<u64, SocketClosed> {
        self.body(id).map(|_| self.memory.taken(id.index() as u32))
    }

    /// What the socket refused since it was opened, and why.
    ///
    /// # Errors
    /// It is closed.
    pub fn refused(&self, id: SocketId) -> Result<RefusedDatagram, SocketClosed> {
        self.body(id).map(|_| self.drops.of(id.index()))
    }

    /// Takes the next socket that has refused something since it was last taken here, and all that
    /// it refused. Constant time.
    pub fn next_refusing(&mut self) -> Option<(SocketId, RefusedDatagram)> {
        let index = self.refusing.take()?;
        let generation = self.sockets.get(index as usize)?.generation;
        Some((SocketId { index, generation }, self.drops.of(index as usize)))
    }

    /// Counts a refusal.
    #[inline]
    pub(crate) fn refuse(&mut self, index: u32, cause: DropCause) {
        self.drops.count(index, cause);
        self.refusing.mark(index);
    }

    /// What happens next happens at `now`: a round begins.
    #[inline]
    pub fn begin(&mut self, now: Instant) {
        self.now = now;
        self.fair.begin(now);
        if self.memory.wants_review() {
            self.review();
        }
    }

    /// Looks at what some sockets hold still, and gives back their limits to those that may have
    /// them again.
    #[cold]
    fn review(&mut self) {
        for index in self.memory.take_due() {
            let body = self.sockets.get_mut(index as usize).and_then(|socket| socket.body.as_mut());
            let Some(body) = body else { continue };
            let (used, limit) = (body.intake.charged(), body.intake.limit());
            let allowed = self.memory.allowed(index, used);
            if self.memory.is_cut(index) {
                body.intake.hold_to(if used == 0 { limit } else { allowed });
                self.memory.set_cut(index, used > 0 && allowed < limit);
            }
            self.memory.reviewed(index, used);
        }
    }

    /// True bytes that all sockets hold, as far as is known: never less than they do, those
    /// excepted of sockets that are closed.
    #[must_use]
    pub const fn memory_held(&self) -> u64 {
        self.memory.held()
    }

    /// True bytes of the socket that are on their way out.
    ///
    /// # Errors
    /// It is closed.
    pub fn sending(&self, id: SocketId) -> Result<u64, SocketClosed> {
        Ok(self.body(id)?.send.used())
    }

    /// Takes an ICMP error about a datagram that may be ours. The caller has parsed the quote but
    /// not matched it: only a socket that could have sent the datagram gets the error (RFC 8085
    /// section 5.2). Connected sockets get hard errors, others only with `recv_errors`. A later
    /// error replaces one that was not read.
    pub fn icmp_error(&mut self, quote: &QuotedDatagram, error: IcmpError) -> IcmpVerdict {
        let Some(index) = self.quoted(quote) else { return IcmpVerdict::NoFlow };
        let connected = self.demux.key(index).kind == KeyKind::Connected;
        let Some(socket) = self.sockets.get_mut(index as usize) else { return IcmpVerdict::NoFlow };
        let id = SocketId { index, generation: socket.generation };
        let Some(body) = &mut socket.body else { return IcmpVerdict::NoFlow };
        if !(body.settings.recv_errors || connected && error.is_hard()) {
            return IcmpVerdict::Ignored(id);
        }
        body.error = Some(error);
        self.ready.mark(index);
        IcmpVerdict::Delivered(id)
    }

    /// The socket that can have sent a quoted datagram, and whether it is connected to where that
    /// went: if not, whether it did send there is for its stack to know.
    #[must_use]
    pub fn sender_of(&self, quote: &QuotedDatagram) -> Option<(SocketId, bool)> {
        let index = self.quoted(quote)?;
        let connected = self.demux.key(index).kind == KeyKind::Connected;
        let generation = self.sockets.get(index as usize)?.generation;
        Some((SocketId { index, generation }, connected))
    }

    fn quoted(&self, quote: &QuotedDatagram) -> Option<u32> {
        let probe = DemuxProbe {
            local: bits(canonical(quote.local).ip()),
            remote: bits(canonical(quote.remote).ip()),
            iface: zone_of(quote.iface),
            local_port: quote.local.port(),
            remote_port: quote.remote.port(),
        };
        self.demux.lookup(&probe)
    }

    /// Keeps the message behind the error that [`Udp::icmp_error`] has just delivered.
    pub fn note_report(&mut self, id: SocketId, report: IcmpReport) {
        if let Ok(body) = self.body_mut(id) {
            body.report = Some(report);
        }
    }

    /// The message behind the last error that was delivered to the socket.
    #[must_use]
    pub fn last_report(&self, id: SocketId) -> Option<IcmpReport> {
        self.body(id).ok()?.report
    }

    /// Takes the next socket that has news: a datagram or an error since it was last taken.
    /// Each is given once, however much has arrived; constant time.
    pub fn next_ready(&mut self) -> Option<SocketId> {
        let index = self.ready.take()?;
        let generation = self.sockets.get(index as usize)?.generation;
        Some(SocketId { index, generation })
    }

    /// Whether some socket has news.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    #[inline]
    pub(crate) fn body(&self, id: SocketId) -> Result<&SocketBody<I>, SocketClosed> {
        match self.sockets.get(id.index()) {
            Some(socket) if socket.generation == id.generation => {
                socket.body.as_ref().ok_or(SocketClosed)
            }
            _ => Err(SocketClosed),
        }
    }

    #[inline]
    pub(crate) fn body_mut(&mut self, id: SocketId) -> Result<&mut SocketBody<I>, SocketClosed> {
        match self.sockets.get_mut(id.index()) {
            Some(socket) if socket.generation == id.generation => {
                socket.body.as_mut().ok_or(SocketClosed)
            }
            _ => Err(SocketClosed),
        }
    }
}
