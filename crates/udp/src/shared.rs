//! Sockets that every shard of a host has under one id: one shard decides, the others repeat.
//!
//! Called by `stack` on the control shard ([`Udp::open_shared`], then [`Udp::bind`] and the like,
//! which choose places and ports) and on its followers (the calls that end in `_as`, which take
//! them as arguments). Invariants: these sockets have places of their own, above those that each
//! shard opens by itself, so that ids never meet; what is repeated never checks whether an address
//! is in use, for that was decided.

use core::net::{IpAddr, SocketAddr};

use floodwall_base::{IfIndex, WorkerId};
use floodwall_packet::Pool;

use crate::demux::{KeyKind, SocketKey, canonical};
use crate::id::SocketId;
use crate::intake::Intake;
use crate::settings::SocketSettings;
use crate::sockets::{BindError, ConnectError, OpenError, Socket, SocketBody, Udp};

/// What one of `workers` replicas may use of a limit that all share: the parts of all add up to it.
#[must_use]
pub fn part_of(limit: u64, worker: WorkerId, workers: u16) -> u64 {
    let (limit, all) = (u128::from(limit), u128::from(workers.max(1)));
    let below = |n: u16| limit * u128::from(n) / all;
    let next = worker.0.saturating_add(1).min(workers.max(1));
    (below(next) - below(worker.0.min(next))) as u64
}

impl<I: Intake> Udp<I> {
    /// Opens an unbound socket that all shards will have. Takes two accounts of the pool. Where no
    /// places are set aside for such ones it is opened as any other, and the shards must have
    /// opened
    /// the same ones before.
    ///
    /// # Errors
    /// All shared places are taken, or the pool has no account.
    pub fn open_shared(
        &mut self,
        pool: &Pool,
        settings: SocketSettings,
    ) -> Result<SocketId, OpenError> {
        if self.shared_max() == 0 {
            return self.open(pool, settings);
        }
        self.allots = true;
        let Some(&index) = self.shared_free.last() else {
            return Err(OpenError::TooMany(self.shared_max()));
        };
        let generation = self.sockets.get(index as usize).map_or(0, |socket| socket.generation);
        let id = SocketId { index, generation };
        self.open_as(id, pool, settings)?;
        self.shared_free.pop();
        Ok(id)
    }

    /// Opens the socket that another shard has opened as `id`.
    ///
    /// # Errors
    /// The place does not exist or is taken, or the pool has no account.
    pub fn open_as(
        &mut self,
        id: SocketId,
        pool: &Pool,
        settings: SocketSettings,
    ) -> Result<(), OpenError> {
        let taken = OpenError::TooMany(self.shared_max().max(self.sockets_max()));
        self.tells |= settings.timestamps || settings.drop_count;
        let body = SocketBody::open(pool, settings, &self.rooms, id.index)?;
        self.memory.fit(pool);
        if !self.is_shared(id) {
            // Where no places are set aside: it must be free here too.
            while self.sockets.len() <= id.index() && id.index() < self.sockets_max() {
                let next = self.grow();
                self.free.push(next);
            }
            let free = self.free.iter().position(|index| *index == id.index).ok_or(taken)?;
            self.free.swap_remove(free);
        }
        let socket = self.sockets.get_mut(id.index()).ok_or(taken)?;
        *socket = Socket { generation: id.generation, body: Some(body) };
        self.drops.begin(id.index);
        Ok(())
    }

    /// Whether all shards have this socket.
    #[must_use]
    pub const fn is_shared(&self, id: SocketId) -> bool {
        id.index() >= self.sockets_max()
    }

    /// Binds a socket as another shard has bound it, port included.
    ///
    /// # Errors
    /// See [`BindError`]; never `AddrInUse`.
    pub fn bind_as(
        &mut self,
        id: SocketId,
        local: SocketAddr,
        zone: Option<IfIndex>,
    ) -> Result<(), BindError> {
        let hold = self.hold_for(id, canonical(local), zone)?;
        if self.demux.key(id.index).kind != KeyKind::Unbound {
            return Err(BindError::AlreadyBound);
        }
        Ok(self.demux.enter(id.index, SocketKey::bound(&hold), hold)?)
    }

    /// Connects a socket as another shard has connected it; `port` is what it got where it was
    /// unbound.
    ///
    /// # Errors
    /// See [`ConnectError`]; never `AddrInUse`.
    pub fn connect_as(
        &mut self,
        id: SocketId,
        remote: SocketAddr,
        src_addr: IpAddr,
        zone: Option<IfIndex>,
        port: u16,
    ) -> Result<(), ConnectError> {
        let unbound = self.demux.key(id.index).kind == KeyKind::Unbound;
        let hold = if unbound {
            let wildcard = SocketAddr::new(self.wildcard(id)?.ip(), port);
            self.hold_for(id, wildcard, None)?
        } else {
            self.body(id).map_err(BindError::from)?;
            self.demux.hold(id.index)
        };
        self.connect_held(id, (hold, unbound), canonical(remote), src_addr, zone)
    }
}

#[cfg(test)]
mod tests {
    use floodwall_base::Family;
    use floodwall_packet::PoolConfig;

    use super::*;
    use crate::UdpConfig;

    #[test]
    fn the_parts_of_a_limit_add_up_to_it() {
        for (limit, workers) in [(212_992, 1), (212_992, 3), (7, 4), (u64::MAX, 5)] {
            let all = (0..workers).map(|w| part_of(limit, WorkerId(w), workers));
            assert_eq!(all.map(u128::from).sum::<u128>(), u128::from(limit));
        }
        assert_eq!(part_of(8, WorkerId(9), 4), 0);
        assert_eq!(part_of(8, WorkerId(0), 0), 8);
    }

    #[test]
    fn shards_have_a_shared_socket_under_one_id_beside_others() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let config = UdpConfig { sockets_max: 4, shared_max: 2, ..UdpConfig::default() };
        let mut random = floodwall_base::Randomness::from_number(1).secret;
        let mut control: Udp = Udp::new(&config, &mut random);
        let mut other: Udp = Udp::new(&config, &mut random);
        let settings = || SocketSettings::new(Family::V4);
        let own = other.open(&pool, settings()).unwrap();
        let wild = "0.0.0.0:0".parse().unwrap();
        for round in 0..3 {
            let ids = [(); 2].map(|()| control.open_shared(&pool, settings()).unwrap());
            assert_eq!(control.open_shared(&pool, settings()), Err(OpenError::TooMany(2)));
            for id in ids {
                assert!(control.is_shared(id) && !control.is_shared(own));
                other.open_as(id, &pool, settings()).unwrap();
                let local = control.bind(id, wild, None, &mut random).unwrap();
                other.bind_as(id, local, None).unwrap();
                assert_eq!(other.local_addr(id), control.local_addr(id), "{round}");
                let remote = "10.0.0.9:7".parse().unwrap();
                let from = "10.0.0.1".parse().unwrap();
                control.connect(id, remote, from, None, &mut random).unwrap();
                other.connect_as(id, remote, from, None, local.port()).unwrap();
                assert_eq!(other.local_addr(id), control.local_addr(id));
                control.close(id).unwrap();
                other.close(id).unwrap();
                assert!(other.close(id).is_err());
            }
        }
        assert_eq!((control.open_sockets(), other.open_sockets()), (0, 1));
    }
}
