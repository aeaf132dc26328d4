//! The source prefix used for accounting, encoded as one word for a keyed hash.
//!
//! Used by `shares.rs`. Invariant: an IPv4 prefix and an IPv6 prefix never give the same word. Not
//! here: keys.

use floodwall_base::Endpoint;

/// The prefix that groups a source for accounting: IPv4 /24, IPv6 /56.
#[inline]
pub(crate) fn prefix(remote: Endpoint) -> u64 {
    match remote.ipv4_bits() {
        Some(bits) => u64::from(bits >> 8),
        // A bit that is never set in the encoding of an IPv4 prefix.
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
