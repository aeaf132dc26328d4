//! Where the generator's packets go: so many flows, each of so many packets, then another address.
//!
//! Called by `core.rs` for every packet. The way of the classic generator (`flows`, `flowlen`,
//! `IPDST_RND`): a flow is picked at random; when it has had its packets it gets another random
//! address of the range. Invariant: the same seed gives the same addresses in the same order.

use floodwall_base::{Address, Prefix, PublicRandom};

/// The generator's flows and the destinations that they have drawn.
pub(super) struct Flows<A> {
    range: Prefix<A>,
    /// Packets of a flow.
    len: u32,
    /// For each flow its address and the packets that it has had.
    flows: Vec<(A, u32)>,
    random: PublicRandom,
    /// Addresses drawn.
    pub(super) drawn: u64,
}

impl<A: Address> Flows<A> {
    pub(super) fn new(range: Prefix<A>, count: usize, len: u32, seed: u64) -> Self {
        let len = len.max(1);
        // Flows do not all end at once: each begins somewhere in its life.
        let mut random = PublicRandom::new(seed);
        let begin = |_| (draw(range, &mut random), 0);
        let mut flows: Vec<_> = (0..count.max(1)).map(begin).collect();
        for flow in &mut flows {
            flow.1 = random.below(u64::from(len)) as u32;
        }
        Self { range, len, flows, random, drawn: 0 }
    }

    /// The next packet's destination.
    pub(super) fn next(&mut self) -> A {
        let at = self.random.below(self.flows.len() as u64) as usize;
        let Some((addr, seen)) = self.flows.get_mut(at) else { return A::UNSPECIFIED };
        if *seen >= self.len {
            *addr = draw(self.range, &mut self.random);
            *seen = 0;
            self.drawn += 1;
        }
        *seen += 1;
        *addr
    }
}

fn draw<A: Address>(range: Prefix<A>, random: &mut PublicRandom) -> A {
    let bits = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    let host = bits.checked_shr(u32::from(range.len())).unwrap_or(0);
    A::from_bits_aligned(range.addr().to_bits_aligned() | host)
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    #[test]
    fn one_packet_in_so_many_goes_to_an_address_that_none_has_gone_to() {
        let range: Prefix<Ipv4Addr> = Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8).unwrap();
        // Flows that there are at the start are not among those drawn.
        for (len, least, most) in [(1, 98_976, 100_000), (10, 9_000, 11_000)] {
            let mut flows = Flows::new(range, 1024, len, 1);
            assert!((0..100_000).all(|_| range.contains(flows.next())));
            assert!((least..=most).contains(&flows.drawn), "{len}: {}", flows.drawn);
        }
    }
}
