//! `FibPair`: the routing tables of both families; `FibReaders`: what followers have of them.
//!
//! Made with the stack (`build.rs`) or with the places of a host's shards (`shards/seat.rs`);
//! looked up by `routes.rs`. Its bound is described at [`floodwall_fib::Fib`].

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{HashKey, Instant, SecretRandom, limits};
use floodwall_fib::{Fib, FibConfig, FibReader};
use floodwall_sync::qsbr::Domain;

use crate::config::StackConfig;

/// The tables of both families.
pub(crate) struct FibPair {
    pub(crate) v4: Fib<Ipv4Addr>,
    pub(crate) v6: Fib<Ipv6Addr>,
}

/// What followers have of them.
#[derive(Clone)]
pub(crate) struct FibReaders {
    pub(crate) v4: FibReader<Ipv4Addr>,
    pub(crate) v6: FibReader<Ipv6Addr>,
}

impl FibPair {
    /// Tables that the workers of `domain` read.
    pub(crate) fn shared(domain: &Domain, config: &StackConfig, random: &mut SecretRandom) -> Self {
        let (bounds, now) = (bounds(config), Instant::ORIGIN);
        Self {
            v4: Fib::new(domain, bounds, random.hash_key(), now),
            v6: Fib::new(domain, bounds, random.hash_key(), now),
        }
    }

    /// Tables of a stack to which none are given: no other shard reads them, and a follower needs
    /// none.
    pub(crate) fn of(is_follower: bool, config: &StackConfig, random: &mut SecretRandom) -> Self {
        if is_follower {
            return Self::none();
        }
        let (bounds, now) = (bounds(config), Instant::ORIGIN);
        Self {
            v4: Fib::alone(bounds, random.hash_key(), now),
            v6: Fib::alone(bounds, random.hash_key(), now),
        }
    }

    fn none() -> Self {
        let none = FibConfig {
            routes_max: 0,
            learnt_max: 0,
            expiring_max: 0,
            next_hops_max: 0,
            groups_max: 0,
        };
        let (key, now) = (HashKey::new(0, 0), Instant::ORIGIN);
        Self { v4: Fib::alone(none, key, now), v6: Fib::alone(none, key, now) }
    }

    pub(crate) fn readers(&self) -> FibReaders {
        FibReaders { v4: self.v4.reader(), v6: self.v6.reader() }
    }
}

/// What a stack's tables may hold.
fn bounds(config: &StackConfig) -> FibConfig {
    let learnt_max = config.interfaces.len() * limits::ROUTES_LEARNT_INTERFACE_MAX;
    let configured = FibConfig::for_routes(config.routes_max);
    let (dropped, routes_max) = (configured.learnt_max, config.routes_max);
    FibConfig {
        learnt_max,
        expiring_max: routes_max + learnt_max,
        next_hops_max: configured.next_hops_max - dropped + learnt_max,
        ..configured
    }
}
