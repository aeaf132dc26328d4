//! Classifies datagrams by socket for triage, before any work is spent on them.
//!
//! Called by the stack's triage for a burst, before the first packet of it is handled: it starts
//! the look-ups while it parses, and reads the results once all cache lines are on their way
//! (`demux/burst.rs`). Nothing is changed or counted. A packet that will be refused costs one cache
//! line that may miss, the bucket's; whether a socket is full is read from two bits (`Rooms`), not
//! from its account. With many sockets this also speeds up established peers: `input` then finds
//! the tables warm (packet design note, section 5).
//!
//! Invariant: what is refusable here `Udp::input` would not take: shown for any sockets in
//! `tests/triage.rs`.

use core::net::{IpAddr, SocketAddr};

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{IfIndex, PortSet};
use floodwall_packet::{Class, Triage};

use crate::demux::{
    BurstSeek, BurstSight, DemuxProbe, KeyKind, NONE, V4, bits, is_group, is_link_scope, zone_of,
};
use crate::intake::Intake;
use crate::sockets::Udp;

/// The look-up key of one datagram: its source, its destination, and its interface.
#[derive(Clone, Copy, Debug)]
pub struct DatagramKey(DemuxProbe);

impl DatagramKey {
    /// An empty query: for arrays.
    pub const UNUSED: Self =
        Self(DemuxProbe { local: 0, remote: 0, iface: 0, local_port: 0, remote_port: 0 });

    /// Of the addresses and ports in a datagram's headers.
    #[must_use]
    #[inline(always)]
    pub fn new(from: (IpAddr, u16), to: (IpAddr, u16), iface: IfIndex) -> Self {
        Self(DemuxProbe {
            local: bits(to.0),
            remote: bits(from.0),
            iface: zone_of(iface),
            local_port: to.1,
            remote_port: from.1,
        })
    }

    pub(crate) const fn of(probe: DemuxProbe) -> Self {
        Self(probe)
    }

    /// The sender's address, IPv4 mapped (RFC 4291 section 2.5.5.2), and port.
    #[must_use]
    #[inline]
    pub const fn remote(&self) -> (u128, u16) {
        (self.0.remote, self.0.remote_port)
    }

    /// Whether it is of IPv4.
    #[must_use]
    #[inline]
    pub const fn is_v4(&self) -> bool {
        self.0.families() == V4
    }

    /// Whether the sender's address is valid on its link only.
    #[must_use]
    #[inline]
    pub const fn is_link_scope(&self) -> bool {
        is_link_scope(self.0.remote)
    }

    /// Our port.
    #[must_use]
    #[inline]
    pub const fn local_port(&self) -> u16 {
        self.0.local_port
    }
}

/// A look-up with its first step in progress.
#[derive(Clone, Copy, Debug)]
pub struct PortProbe(BurstSeek);

impl PortProbe {
    /// Nothing was sought: for arrays.
    pub const NOTHING: Self = Self(BurstSeek::UNMATCHED);
}

/// A look-up in progress: its cache lines are on their way.
#[derive(Clone, Copy, Debug)]
pub struct LookupSlot {
    datagram_key: DatagramKey,
    seek: BurstSeek,
    class: Class,
}

impl LookupSlot {
    /// No look-up: for arrays.
    pub const NOTHING: Self =
        Self { datagram_key: DatagramKey::UNUSED, seek: BurstSeek::UNMATCHED, class: Class::Frame };

    /// About which datagram.
    #[must_use]
    #[inline(always)]
    pub const fn datagram_key(&self) -> &DatagramKey {
        &self.datagram_key
    }
}

impl<I: Intake> Udp<I> {
    /// As [`Udp::answer`] for one datagram, which came in a frame.
    #[must_use]
    pub fn classify(&self, from: SocketAddr, to: SocketAddr, iface: IfIndex) -> Triage {
        let mut class = [Triage::Rejectable];
        let one = DatagramKey::new((from.ip(), from.port()), (to.ip(), to.port()), iface);
        let mut asked = LookupSlot::NOTHING;
        self.ask(one, Class::Frame, &mut asked);
        self.answer(&[asked], &mut class);
        class[0]
    }

    /// What [`Udp::answer`] returns, computed directly: one look-up, then the socket's own account
    /// about a packet of so many true bytes. For tests and benches, which compare.
    #[must_use]
    pub fn classify_slowly(&self, datagram_key: &DatagramKey, true_size: u32) -> Triage {
        let Some(index) = self.demux.lookup(&datagram_key.0) else {
            let group = is_group(datagram_key.0.local);
            return if group { Triage::Unknown } else { Triage::Rejectable };
        };
        let socket = self.sockets.get(index as usize);
        match socket.and_then(|socket| socket.body.as_ref()) {
            Some(body) if body.intake.admits(true_size) => match self.demux.key(index).kind {
                KeyKind::Connected => Triage::Established,
                _ => Triage::Unknown,
            },
            _ => Triage::Rejectable,
        }
    }

    /// Starts the look-up of a datagram to this local port, in a packet with a first chunk of
    /// `class`. `None` where no socket takes it: none has the port, or the only one that has it is
    /// full. `datagram_key` has the rest of the key, where several sockets have the port. Some 2
    /// ns; waits for no table.
    #[must_use]
    #[inline(always)]
    pub fn seek(
        &self,
        local_port: u16,
        class: Class,
        datagram_key: impl FnOnce() -> DatagramKey,
    ) -> Option<PortProbe> {
        if !self.demux.is_heard(local_port) {
            return None;
        }
        let seek = self.demux.seek(local_port, || datagram_key().0);
        let full = seek.only().is_some_and(|socket| !self.rooms.of(socket).admits(class));
        (!full).then_some(PortProbe(seek))
    }

    /// The ports that any socket has.
    #[must_use]
    pub const fn ports(&self) -> &PortSet {
        self.demux.heard()
    }

    /// Whether a socket has every port.
    #[must_use]
    pub const fn hears_every_port(&self) -> bool {
        self.demux.hears_every_port()
    }

    /// Whether some socket may take the datagram, by the marks of a bucket: of unverified sources
    /// to connected sockets, one in 70 or so. One load, which [`Udp::seek`] has prefetched;
    /// prefetches the bucket.
    #[must_use]
    #[inline(always)]
    pub fn may_find(&self, sought: PortProbe) -> bool {
        self.demux.may_find(sought.0)
    }

    /// Starts the look-up of a datagram, in a packet with a first chunk of `class`, and keeps it
    /// in `asked`. A few ns; waits for no table.
    #[inline(always)]
    pub fn ask(&self, datagram_key: DatagramKey, class: Class, asked: &mut LookupSlot) {
        asked.seek = self.demux.seek(datagram_key.0.local_port, || datagram_key.0);
        asked.datagram_key = datagram_key;
        asked.class = class;
    }

    /// For each of up to [`BURST_MAX`] datagrams: established where a connected socket has exactly
    /// this peer, unverified where some other socket would take it, refusable where none would,
    /// because no socket has the port or the socket is full. Where only connected sockets have the
    /// port, one cache line is enough to refuse; the others cost the line of a key each, fetched
    /// together.
    #[inline]
    pub fn answer(&self, asked: &[LookupSlot], classes: &mut [Triage]) {
        for (asked, class) in asked.iter().zip(&mut *classes) {
            *class = Self::unwanted(asked);
        }
        // Numbers of those that have to be looked at more closely.
        let (mut left, mut count) = ([0_u8; BURST_MAX], 0);
        for (at, asked) in asked.iter().enumerate() {
            if let Some(slot) = left.get_mut(count) {
                *slot = at as u8;
            }
            count += usize::from(self.demux.may_find(asked.seek));
        }
        let (mut perhaps, mut wanted) = ([0_u8; BURST_MAX], 0);
        for at in left.into_iter().take(count) {
            let Some(asked) = asked.get(usize::from(at)) else { continue };
            if let Some(slot) = perhaps.get_mut(wanted) {
                *slot = at;
            }
            wanted += usize::from(self.may_take(asked));
        }
        for at in perhaps.into_iter().take(wanted) {
            if let (Some(asked), Some(class)) =
                (asked.get(usize::from(at)), classes.get_mut(usize::from(at)))
            {
                *class = self.class_of(asked);
            }
        }
    }

    /// What a datagram is that no socket takes: a group may have members on another address.
    #[inline(always)]
    const fn unwanted(asked: &LookupSlot) -> Triage {
        if is_group(asked.datagram_key.0.local) { Triage::Unknown } else { Triage::Rejectable }
    }

    /// Whether some socket may take it, by its bucket and by what fits into the socket there.
    #[inline(always)]
    fn may_take(&self, asked: &LookupSlot) -> bool {
        match self.demux.sight(asked.seek) {
            BurstSight::Unmatched => false,
            BurstSight::Unclear => true,
            BurstSight::Perhaps(socket) => {
                // If this socket is full, no other can take the datagram.
                let takes = self.rooms.of(socket).admits(asked.class);
                if takes {
                    self.demux.prefetch(socket);
                }
                takes
            }
        }
    }

    #[inline(always)]
    fn class_of(&self, asked: &LookupSlot) -> Triage {
        let probe = &asked.datagram_key.0;
        let socket = self.demux.settle(probe, asked.seek);
        if socket == NONE {
            return Self::unwanted(asked);
        }
        if !self.rooms.of(socket).admits(asked.class) {
            return Triage::Rejectable;
        }
        match self.demux.kind(socket) {
            KeyKind::Connected => Triage::Established,
            _ => Triage::Unknown,
        }
    }

    /// Whether some socket is connected: then some peers are established by a program's own choice.
    #[must_use]
    #[inline]
    pub const fn has_connected(&self) -> bool {
        self.demux.connected() > 0
    }
}
