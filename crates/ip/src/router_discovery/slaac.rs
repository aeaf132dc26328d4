//! `StableIds`: interface identifiers that are stable per link and reveal nothing else.
//!
//! Called by `prefixes.rs` for each prefix from which we make an address. Invariants: the same
//! secret, interface, prefix and counter give the same identifier; without the secret a peer can
//! neither guess the identifier nor link those of two prefixes; an identifier is never one of the
//! reserved ones. Read first: RFC 7217 section 5 (the function), RFC 5453 (reserved identifiers),
//! RFC 8064. Not here: temporary addresses (RFC 8981).

use core::net::Ipv6Addr;

use floodwall_base::{HashKey, Prefix};

/// The prefix length that leaves room for an identifier (RFC 4291 section 2.5.1, RFC 4862 section
/// 5.5.3 (d)).
pub const AUTOCONF_PREFIX_LEN: u8 = 64;
/// How often another identifier is tried after a conflict (RFC 7217 section 6, IDGEN_RETRIES).
pub const IDGEN_RETRIES: u8 = 3;
/// How often in a row an identifier may be a reserved one: the chance of each is below 2^-38.
const RESERVED_TRIES: u8 = 4;

/// The generator of stable identifiers (RFC 7217) of one interface.
#[derive(Clone, Copy, Debug)]
pub struct StableIds {
    key: HashKey,
    iface: u64,
}

impl StableIds {
    /// The identifiers of the interface with this name under this secret. The name stands for the
    /// interface (RFC 7217 appendix A.4): a station address would change with the hardware.
    #[must_use]
    pub fn new(key: HashKey, iface_name: &str) -> Self {
        Self { key, iface: key.bytes(iface_name.as_bytes()) }
    }

    /// The address of the prefix, of length [`AUTOCONF_PREFIX_LEN`], after so many conflicts;
    /// `None` where the identifier is reserved, or the length is wrong.
    #[must_use]
    pub fn address(&self, prefix: Prefix<Ipv6Addr>, conflicts: u8) -> Option<Ipv6Addr> {
        if prefix.len() != AUTOCONF_PREFIX_LEN {
            return None;
        }
        let network = prefix.addr().to_bits();
        (0..RESERVED_TRIES).find_map(|step| {
            let id = self.id((network >> 64) as u64, conflicts, step);
            let addr = Ipv6Addr::from_bits(network | u128::from(id));
            (!is_reserved(id)).then_some(addr)
        })
    }

    /// RFC 7217 section 5, step 1: F(Prefix, Net_Iface, Network_ID, DAD_Counter, secret_key), with
    /// SipHash as F and no Network_ID.
    fn id(&self, network: u64, conflicts: u8, step: u8) -> u64 {
        let mut bytes = [0; 18];
        let (front, back) = bytes.split_at_mut(8);
        front.copy_from_slice(&network.to_be_bytes());
        if let Some((iface, counters)) = back.split_first_chunk_mut::<8>() {
            *iface = self.iface.to_be_bytes();
            counters.copy_from_slice(&[conflicts, step]);
        }
        self.key.bytes(&bytes)
    }
}

/// Whether an identifier is the subnet-router anycast address's, a reserved anycast address's, or
/// one of IANA's own range (RFC 5453 section 3).
const fn is_reserved(id: u64) -> bool {
    id == 0
        || matches!(id, 0xfdff_ffff_ffff_ff80..=0xfdff_ffff_ffff_ffff)
        || matches!(id, 0x0200_5eff_fe00_0000..=0x0200_5eff_feff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix<Ipv6Addr> {
        Prefix::new(text.parse().unwrap(), 64).unwrap()
    }

    #[test]
    fn an_identifier_is_stable_and_changes_with_everything_that_it_is_made_of() {
        let ids = StableIds::new(HashKey::new(1, 2), "eth0");
        let (a, b) = (prefix("2001:db8:1::"), prefix("2001:db8:2::"));
        let first = ids.address(a, 0).unwrap();
        assert_eq!(ids.address(a, 0), Some(first));
        assert!(a.contains(first));
        let low = |addr: Option<Ipv6Addr>| addr.unwrap().to_bits() as u64;
        let others = [
            low(ids.address(a, 1)),
            low(ids.address(b, 0)),
            low(StableIds::new(HashKey::new(1, 3), "eth0").address(a, 0)),
            low(StableIds::new(HashKey::new(1, 2), "eth1").address(a, 0)),
        ];
        assert!(!others.contains(&low(Some(first))));
    }

    #[test]
    fn only_a_prefix_of_64_bits_makes_an_address() {
        let ids = StableIds::new(HashKey::new(1, 2), "eth0");
        for len in [0, 1, 63, 65, 128] {
            let prefix = Prefix::new("2001:db8::".parse().unwrap(), len).unwrap();
            assert_eq!(ids.address(prefix, 0), None, "{len}");
        }
    }

    #[test]
    fn reserved_identifiers_are_known() {
        for id in [0, 0xfdff_ffff_ffff_ff80, u64::from(u32::MAX) << 32 | 0xffff_ffff] {
            assert_eq!(is_reserved(id), id != u64::MAX);
        }
        assert!(is_reserved(0xfdff_ffff_ffff_ffff) && !is_reserved(0xfdff_ffff_ffff_ff7f));
        assert!(is_reserved(0x0200_5eff_fe00_5213) && !is_reserved(0x0200_5eff_ff00_0000));
    }
}
