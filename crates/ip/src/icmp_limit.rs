//! Rate limits of ICMP answers: token buckets per peer, and one for all errors together.
//!
//! Called by `stack` before it makes an error or an echo reply. Each share is a bucket of credit
//! that refills with time (`floodwall_base::TokenBucket`). Invariants: the peer's bucket is checked
//! first, and an answer that it withholds costs the others nothing; the tokens that an answer costs
//! are random, so that counting answers does not reveal how many were spent on other peers. Read
//! first: RFC 4443 section 2.4 (f), RFC 1812 section 4.3.2.8; Man and others, "DNS Cache Poisoning
//! Attack Reloaded" (CCS 2020), for what a predictable global limit reveals.
//!
//! # Under flood
//! Reachable by any sender, with any source address. Bound: [`IcmpLimitConfig::peers`] buckets of
//! eight bytes for errors and as many for echoes, allocated at the start; peers share one by keyed
//! hash, an IPv6 peer with its /64. Worst work per packet: one keyed hash, one random number.
//! Nothing is evicted: a bucket resets by refilling. Honest traffic loses errors while a flood of
//! spoofed sources empties the bucket of all, and echo replies where its slot is shared with an
//! attacker, one chance in [`IcmpLimitConfig::peers`] a source. Counters: `IcmpOutRateLimitHost`,
//! `IcmpOutRateLimitGlobal` and their IPv6 likes, by the caller.

use core::net::{IpAddr, Ipv6Addr};

use floodwall_base::limits::{
    ICMP_ECHO_PEER_BURST, ICMP_ECHO_PEER_RATE, ICMP_ERROR_BURST, ICMP_ERROR_RATE, ICMP_PEER_BURST,
    ICMP_PEER_RATE, ICMP_PEERS,
};
use floodwall_base::{HashKey, Instant, Price, SecretRandom, TokenBucket};

/// Answers a second, and at once. Zero answers a second are none ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpRate {
    /// Answers a second.
    pub per_second: u32,
    /// Burst of answers, after an idle time.
    pub burst: u32,
}

/// What an [`IcmpLimit`] allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpLimitConfig {
    /// Buckets of each sort; rounded up to a power of two.
    pub peers: usize,
    /// Errors to one peer.
    pub error_peer: IcmpRate,
    /// Errors to all peers together.
    pub error_all: IcmpRate,
    /// Echo replies to one peer.
    pub echo_peer: IcmpRate,
}

impl Default for IcmpLimitConfig {
    fn default() -> Self {
        let rate = |per_second, burst| IcmpRate { per_second, burst };
        Self {
            peers: ICMP_PEERS,
            error_peer: rate(ICMP_PEER_RATE, ICMP_PEER_BURST),
            error_all: rate(ICMP_ERROR_RATE, ICMP_ERROR_BURST),
            echo_peer: rate(ICMP_ECHO_PEER_RATE, ICMP_ECHO_PEER_BURST),
        }
    }
}

/// Whether an answer may leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum IcmpAllowance {
    /// It may.
    Yes,
    /// The peer is over its share.
    PeerLimited,
    /// The limit for all peers together is exceeded.
    GlobalLimited,
}

/// Token buckets for ICMP errors and echo replies, per peer and total.
#[derive(Clone, Debug)]
pub struct IcmpLimit {
    key: HashKey,
    error_peers: Box<[TokenBucket]>,
    echo_peers: Box<[TokenBucket]>,
    error_all: TokenBucket,
    error_peer_price: Price,
    error_all_price: Price,
    echo_peer_price: Price,
}

impl IcmpLimit {
    /// Full buckets.
    #[must_use]
    pub fn new(config: &IcmpLimitConfig, key: HashKey) -> Self {
        let peers = config.peers.max(1).next_power_of_two();
        let full: Box<[TokenBucket]> = vec![TokenBucket::default(); peers].into();
        Self {
            key,
            error_peers: full.clone(),
            echo_peers: full,
            error_all: TokenBucket::default(),
            error_peer_price: price_of(config.error_peer),
            error_all_price: price_of(config.error_all),
            echo_peer_price: price_of(config.echo_peer),
        }
    }

    /// Whether an error may be sent to `peer`. Costs one keyed hash.
    pub fn allow_error(
        &mut self,
        peer: IpAddr,
        now: Instant,
        random: &mut SecretRandom,
    ) -> IcmpAllowance {
        let slot = self.slot(peer);
        let Some(bucket) = self.error_peers.get_mut(slot) else {
            return IcmpAllowance::PeerLimited;
        };
        if !bucket.has(self.error_peer_price, now) {
            return IcmpAllowance::PeerLimited;
        }
        if !self.error_all.has(self.error_all_price, now) {
            return IcmpAllowance::GlobalLimited;
        }
        let dice = random.next_u64();
        bucket.spend_by_chance(self.error_peer_price, now, dice as u32);
        self.error_all.spend_by_chance(self.error_all_price, now, (dice >> 32) as u32);
        IcmpAllowance::Yes
    }

    /// Whether an echo reply may be sent to `peer`. Costs one keyed hash.
    pub fn allow_echo(
        &mut self,
        peer: IpAddr,
        now: Instant,
        random: &mut SecretRandom,
    ) -> IcmpAllowance {
        let slot = self.slot(peer);
        match self.echo_peers.get_mut(slot) {
            Some(bucket) if bucket.has(self.echo_peer_price, now) => {
                bucket.spend_by_chance(self.echo_peer_price, now, random.next_u32());
                IcmpAllowance::Yes
            }
            _ => IcmpAllowance::PeerLimited,
        }
    }

    /// The bucket of a peer: of its /64 for IPv6, since a host has all of that to send from; but
    /// not for link-local addresses, where all stations of the link are in one.
    fn slot(&self, peer: IpAddr) -> usize {
        let peer = match peer {
            IpAddr::V6(addr) if !addr.is_unicast_link_local() => {
                IpAddr::V6(Ipv6Addr::from_bits(addr.to_bits() >> 64 << 64))
            }
            other => other,
        };
        self.key.addr(peer, 0) as usize & (self.error_peers.len() - 1)
    }
}

const fn price_of(rate: IcmpRate) -> Price {
    Price::new(rate.per_second, rate.burst)
}

#[cfg(test)]
#[path = "icmp_limit/tests.rs"]
mod tests;
