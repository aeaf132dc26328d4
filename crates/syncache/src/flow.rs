//! A flow as words for the keyed hashes.
//!
//! Called by the cache's index, by cookies and by shares. Invariant: two different flows are
//! different words, families included: IPv4 makes two words, IPv6 five, and the hashes count
//! length. Not here: keys.

use floodwall_base::{Endpoint, FlowKey};

/// Words of a flow, and room for one more behind them.
#[derive(Clone, Copy)]
pub(crate) struct Words {
    words: [u64; 6],
    len: usize,
}

impl Words {
    /// The words of a flow; its protocol is TCP and does not count.
    #[inline]
    pub(crate) fn of(flow: &FlowKey) -> Self {
        let FlowKey { local, remote, zone, .. } = flow;
        let ports = u64::from(local.port) << 48 | u64::from(remote.port) << 32 | u64::from(zone.0);
        match (local.addr.to_ipv4_mapped(), remote.addr.to_ipv4_mapped()) {
            (Some(ours), Some(theirs)) => {
                let addrs = u64::from(ours.to_bits()) << 32 | u64::from(theirs.to_bits());
                Self { words: [addrs, ports, 0, 0, 0, 0], len: 2 }
            }
            _ => {
                let (ours, theirs) = (local.addr.to_bits(), remote.addr.to_bits());
                let halves = [(ours >> 64) as u64, ours as u64, (theirs >> 64) as u64];
                let [a, b, c] = halves;
                Self { words: [a, b, c, theirs as u64, ports, 0], len: 5 }
            }
        }
    }

    /// The same with one word more.
    #[inline]
    pub(crate) fn with(mut self, word: u64) -> Self {
        if let Some(free) = self.words.get_mut(self.len) {
            *free = word;
            self.len += 1;
        }
        self
    }

    /// The words.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u64] {
        self.words.get(..self.len).unwrap_or(&self.words)
    }
}

/// The prefix that a source shares with its neighbours: IPv4 /24, IPv6 /56.
#[inline]
pub(crate) fn prefix(remote: Endpoint) -> u64 {
    match remote.addr.to_ipv4_mapped() {
        Some(v4) => u64::from(v4.to_bits() >> 8),
        // A bit that no IPv4 prefix has.
        None => 1 << 63 | (remote.addr.to_bits() >> 72) as u64,
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use floodwall_base::IfIndex;

    use super::*;

    fn flow(local: &str, remote: &str, ports: (u16, u16), zone: u16) -> FlowKey {
        let end = |addr: &str, port| Endpoint::new(addr.parse::<IpAddr>().unwrap(), port);
        FlowKey {
            local: end(local, ports.0),
            remote: end(remote, ports.1),
            zone: IfIndex(zone),
            protocol: 6,
        }
    }

    #[test]
    fn flows_that_differ_anywhere_are_other_words() {
        let all = [
            flow("10.0.0.1", "10.0.0.2", (80, 5), 0),
            flow("10.0.0.2", "10.0.0.1", (80, 5), 0),
            flow("10.0.0.1", "10.0.0.2", (5, 80), 0),
            flow("10.0.0.1", "10.0.0.3", (80, 5), 0),
            flow("fe80::1", "fe80::2", (80, 5), 1),
            flow("fe80::1", "fe80::2", (80, 5), 2),
            flow("fe80::1", "fe80::1:0:0:2", (80, 5), 2),
        ];
        for (n, one) in all.iter().enumerate() {
            for other in &all[n + 1..] {
                assert_ne!(Words::of(one).as_slice(), Words::of(other).as_slice());
            }
            assert_ne!(Words::of(one).with(1).as_slice(), Words::of(one).with(2).as_slice());
        }
    }

    #[test]
    fn neighbours_share_a_prefix_and_families_do_not() {
        let of = |addr: &str| prefix(Endpoint::new(addr.parse().unwrap(), 7));
        assert_eq!(of("192.0.2.1"), of("192.0.2.254"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("2001:db8:0:ff::1"), of("2001:db8:0:1::2"));
        assert_ne!(of("2001:db8:0:100::1"), of("2001:db8::1"));
        assert_ne!(of("0.0.1.1"), of("::1"));
    }
}
