//! A station at the link address of the interface itself, which the host keeps.
//!
//! Called by `af_xdp.rs` when a device opens. IP addresses then decide: packets for an address that
//! the stack accepts are ours, of any protocol. All others pass to the host. Of traffic that both
//! may need (groups, address resolution, replies to DHCP clients) the device takes a copy through
//! its packet socket (`Accept::Common`). A router, which accepts any address, takes all packets.
//! Invariant: no address belongs to both, not even the one that each would derive from the link
//! address (RFC 4291 appendix A).

use std::io;
use std::net::Ipv6Addr;

use floodwall_base::MacAddr;

use super::{failed, unsupported};
use crate::error::DeviceError;

/// The note that `run` prints about a shared link address.
pub(super) const SHARED_ADDRESS_NOTE: &str = "the host has the same link address: packets for our \
                                              addresses come to us, all others go to the host";

/// Checks that stack and host can share the link address.
pub(super) fn check(name: &str, mac: MacAddr) -> Result<(), DeviceError> {
    let addresses = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    if !has(&addresses, name, made_of(mac)) {
        return Ok(());
    }
    Err(unsupported(
        name,
        "our station at the interface's own link address, of which the host has made its IPv6 \
         link-local address, as our stack would",
        "`ip link set dev INTERFACE addrgenmode random`, and the link down and up again; or give \
         another link address with `--mac`, or leave it out",
    ))
}

/// Why there is no program.
pub(super) fn not_loaded(name: &str, is_shared: bool, error: io::Error) -> DeviceError {
    let is_denied = matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES));
    if is_shared && !is_denied {
        return unsupported(
            name,
            "a station at the interface's own link address in this kernel",
            "it needs Linux 5.18 or later; or give another link address with `--mac`",
        );
    }
    failed(name, "load the program that steers frames", error)
}

/// Of the system's list, `if_inet6`: whether an interface has an address.
fn has(addresses: &str, name: &str, addr: Ipv6Addr) -> bool {
    let wanted = format!("{:032x}", addr.to_bits());
    addresses.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some(wanted.as_str()) && words.last() == Some(name)
    })
}

/// The link-local address that is made of a link address.
const fn made_of(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let (high, low) = ([0xfe, 0x80, 0, 0, 0, 0, 0, 0], [a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    Ipv6Addr::from_bits((u64::from_be_bytes(high) as u128) << 64 | u64::from_be_bytes(low) as u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_both_would_make_is_found_on_this_interface_only() {
        let mac = MacAddr([2, 0x11, 0x22, 0x33, 0x44, 0x55]);
        assert_eq!(made_of(mac), "fe80::11:22ff:fe33:4455".parse::<Ipv6Addr>().unwrap());
        let line = |name| {
            format!(
                "fe800000000000000011\
                                   22fffe334455 03 40 20 80     {name}\n"
            )
        };
        let lines = format!("{}{}", line("eth1"), line("eth0"));
        assert!(has(&lines, "eth0", made_of(mac)) && has(&lines, "eth1", made_of(mac)));
        assert!(!has(&lines, "eth", made_of(mac)));
        assert!(!has(&lines, "eth0", made_of(MacAddr([2, 0x11, 0x22, 0x33, 0x44, 0x54]))));
        assert!(!has("", "eth0", made_of(mac)));
    }
}
