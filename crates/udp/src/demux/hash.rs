//! The keyed hash of the socket tables.
//!
//! Multilinear hashing by halves (Lemire and Kaser, "Strongly universal string hashing is fast",
//! 2013): one multiplication for two 32-bit words. Its values never leave the host, so strong
//! universality is sufficient: without the key a peer can make sockets collide only by chance.
//! Values that leave the machine use `HashKey` instead.

use floodwall_base::SecretRandom;

use super::key::{DemuxProbe, KeyHold, SocketKey, V4, is_link_scope, is_v4};

/// The secret of one table.
#[derive(Clone)]
pub(crate) struct TupleHash([u64; 16]);

/// The contribution of two words to the sum.
#[inline(always)]
const fn pair(key_a: u64, a: u32, key_b: u64, b: u32) -> u64 {
    key_a.wrapping_add(a as u64).wrapping_mul(key_b.wrapping_add(b as u64))
}

/// The four 32-bit words of an address, the lowest first.
#[inline(always)]
const fn words(bits: u128) -> [u32; 4] {
    [bits as u32, (bits >> 32) as u32, (bits >> 64) as u32, (bits >> 96) as u32]
}

impl TupleHash {
    pub(crate) fn new(random: &mut SecretRandom) -> Self {
        Self(core::array::from_fn(|_| random.next_u64()))
    }

    /// Of what a socket listens to. Two multiplications for IPv4, five for IPv6.
    #[inline]
    pub(crate) const fn key(&self, key: &SocketKey) -> u32 {
        let ports = (key.local_port as u32) << 16 | key.remote_port as u32;
        self.tuple(key.local, key.remote, ports, key.zone, key.families == V4)
    }

    /// Of what a socket listens to that is connected to exactly this peer: as [`TupleHash::key`] of
    /// [`DemuxProbe::connected`], which need not be made.
    #[inline(always)]
    pub(crate) const fn connected(&self, probe: &DemuxProbe) -> u32 {
        let on_link = is_link_scope(probe.local) || is_link_scope(probe.remote);
        let zone = if on_link { probe.iface } else { 0 };
        let ports = (probe.local_port as u32) << 16 | probe.remote_port as u32;
        self.tuple(probe.local, probe.remote, ports, zone, is_v4(probe.local))
    }

    /// Of what a socket holds.
    pub(crate) const fn hold(&self, hold: &KeyHold) -> u32 {
        self.tuple(hold.local, 0, (hold.port as u32) << 16, hold.zone, hold.families == V4)
    }

    #[inline(always)]
    const fn tuple(&self, local: u128, remote: u128, ports: u32, zone: u32, v4: bool) -> u32 {
        let [start4, k0, k1, k2, k3, start6, k4, k5, k6, k7, k8, k9, k10, k11, k12, k13] = self.0;
        let sum = if v4 {
            start4
                .wrapping_add(pair(k0, local as u32, k1, remote as u32))
                .wrapping_add(pair(k2, ports, k3, zone))
        } else {
            let ([l0, l1, l2, l3], [r0, r1, r2, r3]) = (words(local), words(remote));
            start6
                .wrapping_add(pair(k4, l0, k5, l1))
                .wrapping_add(pair(k6, l2, k7, l3))
                .wrapping_add(pair(k8, r0, k9, r1))
                .wrapping_add(pair(k10, r2, k11, r3))
                .wrapping_add(pair(k12, ports, k13, zone))
        };
        (sum >> 32) as u32
    }
}

impl core::fmt::Debug for TupleHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TupleHash(secret)")
    }
}
