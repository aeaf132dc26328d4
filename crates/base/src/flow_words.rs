//! `FlowWords`: a flow as 64-bit words for the keyed hashes.
//!
//! Called by the code that looks flows up in tables that remote peers fill: connections, half-open
//! connections and TIME-WAIT, and by SYN cookies. Invariant: two different flows give different
//! words, families included: IPv4 makes two words, IPv6 five, and the hashes cover the length. Not
//! here: keys; the protocol, as each such table holds one protocol.

use crate::FlowKey;

/// The words of a flow, and room for one more after them.
#[derive(Clone, Copy, Debug)]
pub struct FlowWords {
    words: [u64; 6],
    len: usize,
}

impl FlowWords {
    /// The words of a flow. About 5 ns.
    #[must_use]
    #[inline]
    pub fn of(flow: &FlowKey) -> Self {
        let FlowKey { local, remote, zone, .. } = flow;
        let ports = u64::from(local.port) << 48 | u64::from(remote.port) << 32 | u64::from(zone.0);
        match (local.ipv4_bits(), remote.ipv4_bits()) {
            (Some(ours), Some(theirs)) => {
                let addrs = u64::from(ours) << 32 | u64::from(theirs);
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

    /// The same with one more word; unchanged where it has one already.
    #[must_use]
    #[inline]
    pub fn with(mut self, word: u64) -> Self {
        if let Some(free) = self.words.get_mut(self.len) {
            *free = word;
            self.len += 1;
        }
        self
    }

    /// The words.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[u64] {
        self.words.get(..self.len).unwrap_or(&self.words)
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::*;
    use crate::{Endpoint, IfIndex};

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
                assert_ne!(FlowWords::of(one).as_slice(), FlowWords::of(other).as_slice());
            }
            assert_ne!(
                FlowWords::of(one).with(1).as_slice(),
                FlowWords::of(one).with(2).as_slice()
            );
        }
    }
}
