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
    let pseudo = pseudo_header(flow, 0).unwrap_or(InternetSum::ZERO);
    pseudo.add(InternetSum::of_u32(ports)).fold()
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
