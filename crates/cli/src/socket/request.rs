//! The requests on the control socket, one line each.
//!
//! Written by the commands, read by the instance. Invariant: what [`ControlRequest`] writes of
//! itself it reads again, and nothing else; every line fits [`super::REQUEST_MAX`].

use std::fmt;
use std::net::IpAddr;

use floodwall_base::IpCidr;

use crate::neighbors::NeighborRequest;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ControlRequest {
    /// Everything that is counted.
    Stat,
    /// The configuration file read again.
    Reload,
    /// Everything that is known of links.
    Network,
    /// A new address; times in seconds, `None` for ever.
    AddAddress { dev: String, address: IpCidr, valid: Option<u32>, preferred: Option<u32> },
    /// An address less; the prefix length must fit where it is given.
    DelAddress { dev: String, addr: IpAddr, prefix_len: Option<u8> },
    /// Neighbours shown or changed.
    Neighbor(NeighborRequest),
    /// A link up or down.
    SetLink { dev: String, up: bool },
}

impl fmt::Display for ControlRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |time: &Option<u32>| time.map_or("forever".to_owned(), |t| t.to_string());
        match self {
            Self::Stat => f.write_str("stat"),
            Self::Reload => f.write_str("reload"),
            Self::Network => f.write_str("network"),
            Self::AddAddress { dev, address, valid, preferred } => {
                write!(f, "address add {dev} {address} {} {}", time(valid), time(preferred))
            }
            Self::DelAddress { dev, addr, prefix_len: Some(len) } => {
                write!(f, "address del {dev} {addr}/{len}")
            }
            Self::DelAddress { dev, addr, prefix_len: None } => {
                write!(f, "address del {dev} {addr}")
            }
            Self::Neighbor(request) => write!(f, "neigh {request}"),
            Self::SetLink { dev, up } => {
                write!(f, "link set {dev} {}", if *up { "up" } else { "down" })
            }
        }
    }
}

impl ControlRequest {
    /// Reads a request.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let time = |word: &str| match word {
            "forever" => Some(None),
            seconds => seconds.parse().ok().map(Some),
        };
        Some(match *words {
            ["stat"] => Self::Stat,
            ["reload"] => Self::Reload,
            ["network"] => Self::Network,
            ["address", "add", dev, address, valid, preferred] => Self::AddAddress {
                dev: dev.to_owned(),
                address: address.parse().ok()?,
                valid: time(valid)?,
                preferred: time(preferred)?,
            },
            ["address", "del", dev, address] => Self::DelAddress {
                dev: dev.to_owned(),
                addr: address.split('/').next()?.parse().ok()?,
                prefix_len: match address.split_once('/') {
                    Some((_, len)) => Some(len.parse().ok()?),
                    None => None,
                },
            },
            ["neigh", ref rest @ ..] => Self::Neighbor(NeighborRequest::read(rest)?),
            ["link", "set", dev, state @ ("up" | "down")] => {
                Self::SetLink { dev: dev.to_owned(), up: state == "up" }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_reads_itself_and_fits_a_line() {
        let (dev, long) = ("fifteen-bytes-x".to_owned(), "ffff:".repeat(7) + "ffff/128");
        let address: IpCidr = long.parse().unwrap();
        let (addr, valid) = (address.addr(), Some(u32::MAX - 1));
        for request in [
            ControlRequest::Stat,
            ControlRequest::Network,
            ControlRequest::Reload,
            ControlRequest::AddAddress { dev: dev.clone(), address, valid, preferred: valid },
            ControlRequest::AddAddress { dev: dev.clone(), address, valid: None, preferred: None },
            ControlRequest::DelAddress { dev: dev.clone(), addr, prefix_len: Some(128) },
            ControlRequest::DelAddress { dev: dev.clone(), addr, prefix_len: None },
            ControlRequest::Neighbor(NeighborRequest::Show),
            ControlRequest::Neighbor(NeighborRequest::Delete { dev: dev.clone(), addr }),
            ControlRequest::SetLink { dev: dev.clone(), up: true },
            ControlRequest::SetLink { dev, up: false },
        ] {
            let line = request.to_string();
            assert!(line.len() < crate::socket::REQUEST_MAX, "{line}");
            assert_eq!(ControlRequest::read(&line), Some(request), "{line}");
        }
    }

    #[test]
    fn what_is_no_request_is_none() {
        for line in [
            "",
            "stat all",
            "address add fw0",
            "address add fw0 10.0.0.1/33 1 1",
            "address del fw0 x",
            "link set fw0 sideways",
            "address add fw0 10.0.0.1/8 -1 never",
        ] {
            assert_eq!(ControlRequest::read(line), None, "{line}");
        }
    }
}
