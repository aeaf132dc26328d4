//! The segment size that we send (RFC 9293 section 3.7.1, RFC 6691), with a floor.
//!
//! Called when a connection is made and when its path's MTU changes. Invariant: the result is at
//! least `TCP_MSS_FLOOR` less options, regardless of a peer's option or a router's message: with a
//! tiny MSS, one segment of an attacker would cost hundreds of ours (CVE-2019-11479).

use floodwall_base::limits::TCP_MSS_FLOOR;
use floodwall_base::{Family, Mss};

/// The smallest accepted path MTU: Linux's `min_pmtu`, and RFC 8200 section 5 (decision E25).
const MTU_FLOOR: (u32, u32) = (552, 1280);

/// Bytes of the fixed TCP header.
const TCP_HEADER: u32 = 20;

/// The MSS of a peer that sent no MSS option (RFC 9293 section 3.7.1).
#[must_use]
pub const fn default_mss(family: Family) -> Mss {
    match family {
        Family::V4 => Mss(536),
        Family::V6 => Mss(1220),
    }
}

/// The MSS that we announce on a link of this MTU (RFC 6691: without options).
#[must_use]
pub const fn announced_mss(family: Family, link_mtu: u32) -> Mss {
    Mss(payload(family, link_mtu))
}

/// The maximum of bytes that one segment carries, the options of every segment included: the
/// minimum of the peer's MSS and the path's, both raised to their floors. At least 1.
#[must_use]
pub const fn send_mss(family: Family, peer: Option<u16>, path_mtu: u32, options_len: u32) -> u32 {
    let peer = match peer {
        Some(mss) => mss,
        None => default_mss(family).0,
    };
    let peer = if peer < TCP_MSS_FLOOR { TCP_MSS_FLOOR } else { peer };
    let path = payload(family, floored_mtu(family, path_mtu));
    let mss = if peer < path { peer } else { path } as u32;
    if mss > options_len { mss - options_len } else { 1 }
}

/// A path MTU raised to the accepted minimum: IPv4 552, IPv6 1280 (decision E25).
#[must_use]
pub const fn floored_mtu(family: Family, mtu: u32) -> u32 {
    let floor = match family {
        Family::V4 => MTU_FLOOR.0,
        Family::V6 => MTU_FLOOR.1,
    };
    if mtu < floor { floor } else { mtu }
}

const fn payload(family: Family, mtu: u32) -> u16 {
    let ip = match family {
        Family::V4 => 20,
        Family::V6 => 40,
    };
    let payload = mtu.saturating_sub(ip + TCP_HEADER);
    if payload > u16::MAX as u32 { u16::MAX } else { payload as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_smaller_of_peer_and_path() {
        assert_eq!(announced_mss(Family::V4, 1500), Mss(1460));
        assert_eq!(announced_mss(Family::V6, 1500), Mss(1440));
        assert_eq!(announced_mss(Family::V4, 65_575), Mss(65_535));
        assert_eq!(announced_mss(Family::V4, 0), Mss(0));
        assert_eq!(send_mss(Family::V4, Some(1460), 1500, 12), 1448);
        assert_eq!(send_mss(Family::V6, Some(1460), 1500, 12), 1428);
        assert_eq!(send_mss(Family::V4, Some(1000), 1500, 0), 1000);
        assert_eq!(send_mss(Family::V4, None, 1500, 0), 536);
        assert_eq!(send_mss(Family::V6, None, 1500, 0), 1220);
    }

    #[test]
    fn no_option_and_no_message_makes_a_segment_tiny() {
        for family in [Family::V4, Family::V6] {
            for peer in 0..=88 {
                for options in [0, 12, 40] {
                    let mss = send_mss(family, Some(peer), 1500, options);
                    assert_eq!(mss, u32::from(TCP_MSS_FLOOR) - options);
                }
            }
            for mtu in 0..1280 {
                assert!(send_mss(family, Some(1460), mtu, 12) >= 500);
            }
        }
    }
}
