//! The pseudo-header of a flow's segments: its sum, and that of what no segment changes.
//!
//! Used where a segment is made (`output.rs`) and where a connection begins. Reading: RFC 9293
//! section 3.1.

use core::net::IpAddr;

use floodwall_base::FlowKey;
use floodwall_checksum::{InternetSum, pseudo_header_v4, pseudo_header_v6};

/// TCP's protocol number.
pub(crate) const PROTOCOL: u8 = 6;

/// The sum of what no segment of a flow changes in its pseudo-header and header: addresses,
/// protocol number and ports.
pub(crate) fn ends_sum(flow: &FlowKey) -> u16 {
    let ports = u32::from(flow.local.port) << 16 | u32::from(flow.remote.port);
    pseudo_header_of_any(flow, 0).add(InternetSum::of_u32(ports)).fold()
}

/// The sum of the pseudo-header of a short segment that we send, of either family: what an IPv4
/// address is mapped by adds nothing to a sum.
#[inline]
pub(crate) fn pseudo_header_of_any(flow: &FlowKey, len: u16) -> InternetSum {
    debug_assert_eq!(flow.local.ipv4_bits().is_some(), flow.remote.ipv4_bits().is_some());
    pseudo_header_v6(flow.local.addr, flow.remote.addr, PROTOCOL, len.into())
}

/// The sum of the pseudo-header of a segment that we send.
pub(crate) fn pseudo_header(flow: &FlowKey, len: u32) -> Option<InternetSum> {
    match (flow.local.ip(), flow.remote.ip()) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => {
            Some(pseudo_header_v4(local, remote, PROTOCOL, u16::try_from(len).ok()?))
        }
        (IpAddr::V6(local), IpAddr::V6(remote)) => {
            Some(pseudo_header_v6(local, remote, PROTOCOL, len))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use floodwall_base::{Endpoint, IfIndex};

    use super::*;

    #[test]
    fn the_sum_of_either_family_is_that_of_its_pseudo_header() {
        for (local, remote) in [("10.0.0.1", "192.0.2.255"), ("2001:db8::1", "fd00::ffff")] {
            let [local, remote]: [IpAddr; 2] = [local, remote].map(|addr| addr.parse().unwrap());
            for (n, len) in (0..2000).flat_map(|n| [0, 20, 40, 1480].map(|len| (n, len))) {
                let flow = FlowKey {
                    local: Endpoint::new(local, 80 + n),
                    remote: Endpoint::new(remote, 40_000 + 7 * n),
                    zone: IfIndex(0),
                    protocol: PROTOCOL,
                };
                let wanted = pseudo_header(&flow, len.into()).unwrap();
                assert_eq!(pseudo_header_of_any(&flow, len).fold(), wanted.fold());
                let ports = [flow.local.port, flow.remote.port].map(InternetSum::of_u16);
                let ends = pseudo_header(&flow, 0).unwrap().add(ports[0]).add(ports[1]);
                assert_eq!(ends_sum(&flow), ends.fold());
            }
        }
    }
}
