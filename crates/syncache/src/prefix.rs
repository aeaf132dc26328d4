//! The prefix that a source shares with its neighbours, as a word for a keyed hash.
//!
//! Called by `shares.rs`. Invariant: no IPv4 prefix is an IPv6 one's word. Not here: keys.

use floodwall_base::Endpoint;

/// The prefix that a source shares with its neighbours: IPv4 /24, IPv6 /56.
#[inline]
pub(crate) fn prefix(remote: Endpoint) -> u64 {
    match remote.ipv4_bits() {
        Some(bits) => u64::from(bits >> 8),
        // A bit that no IPv4 prefix has.
        None => 1 << 63 | (remote.addr.to_bits() >> 72) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
