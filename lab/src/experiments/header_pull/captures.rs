//! The captures of which packets and header lengths are measured: part of the program, or files.
//!
//! Those in the program are small ones of `data/pcaps` (licences and origins stand there), so that
//! an installed program measures the same. A plan may name a file of its user's instead.

use floodwall_device::{Capture, parse_capture, read_capture};

use crate::error::LabError;

/// Expands to the name and the bytes of each file.
macro_rules! embedded {
    ($($name:literal,)*) => {
        /// Name and bytes of each capture in the program.
        const EMBEDDED: &[(&str, &[u8])] = &[$((
            $name,
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../data/pcaps/", $name)),
        ),)*];
    };
}

embedded! {
    "libpcap/filter-AH-IPcomp-IPv6.pcap",
    "own/nmap-O-v4.pcap",
    "own/nmap-O-v6.pcap",
    "own/seed-rh0-4addr-echo.pcap",
    "own/si6-frag6-policy.pcap",
    "own/thc-implementation6.pcap",
    "tcpdump/OSPFv3_with_AH.pcap",
    "tcpdump/babel_rfc6126bis.pcap",
    "tcpdump/ipv6_mobility_1.pcap",
    "tcpdump/mptcp-v1.pcap",
    "tcpdump/quic_handshake.pcap",
    "tcpdump/sflow-print-v6.pcap",
}

/// The IP packets of a capture that were captured whole, without padding behind them.
///
/// # Errors
/// It is not there, is no capture, or has no IP packet.
pub fn ip_packets(name: &str) -> Result<Vec<Vec<u8>>, LabError> {
    let wrong = |what: String| LabError::Capture { name: name.to_owned(), what };
    let capture: Capture = match EMBEDDED.iter().find(|(own, _)| *own == name) {
        Some((_, bytes)) => {
            parse_capture(bytes).map_err(|broken| wrong(broken.reason.to_owned()))?
        }
        None => read_capture(name).map_err(|error| wrong(error.to_string()))?,
    };
    let whole = |bytes: &[u8]| {
        let len = match bytes.first()? >> 4 {
            4 => usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?])),
            _ => 40 + usize::from(u16::from_be_bytes([*bytes.get(4)?, *bytes.get(5)?])),
        };
        bytes.get(..len).filter(|bytes| bytes.len() >= 20).map(<[u8]>::to_vec)
    };
    let packets: Vec<_> = capture.packets.iter().filter_map(|packet| whole(packet.ip()?)).collect();
    if packets.is_empty() {
        return Err(wrong("no whole IP packet in it".to_owned()));
    }
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_capture_in_the_program_has_whole_packets() {
        for (name, _) in EMBEDDED {
            assert!(!ip_packets(name).unwrap().is_empty(), "{name}");
        }
        assert_eq!(ip_packets("own/seed-rh0-4addr-echo.pcap").unwrap()[0].len(), 128);
        assert!(matches!(ip_packets("nosuch.pcap"), Err(LabError::Capture { .. })));
    }
}
