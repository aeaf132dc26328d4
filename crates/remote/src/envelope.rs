//! Metadata of a datagram that a program sends: its addresses, and the credit charged for it.
//!
//! Written by the program's thread into the frame itself, in the place where the worker will write
//! the headers; so a datagram needs no memory beside its own. Both ends are this file.

use core::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use floodwall_base::IfIndex;
use floodwall_checksum::InternetSum;

/// Bytes of it. Less than the headroom of the smallest frame.
pub(super) const ENVELOPE_LEN: usize = 56;

/// The metadata in front of a datagram on its way from a program to the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The peer; `None` for the connected one.
    pub to: Option<SocketAddr>,
    /// Our end, where the program wants a certain one.
    pub from: Option<SocketAddr>,
    /// It leaves from there or not at all.
    pub insists: bool,
    /// The interface, where the program wants a certain one.
    pub iface: Option<IfIndex>,
    /// True bytes that were taken of the socket's credit.
    pub paid: u32,
    /// The payload's sum, made while it was copied.
    pub sum: u16,
}

const HAS_TO: u8 = 1;
const TO_V4: u8 = 2;
const HAS_FROM: u8 = 4;
const FROM_V4: u8 = 8;
const HAS_IFACE: u8 = 16;
const FROM_INSISTS: u8 = 32;

fn wide(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

/// Back; an IPv4-mapped address that the program wrote as IPv6 stays one.
fn narrow(octets: [u8; 16], v4: bool) -> IpAddr {
    let wide = Ipv6Addr::from_octets(octets);
    wide.to_ipv4_mapped().filter(|_| v4).map_or(IpAddr::V6(wide), IpAddr::V4)
}

impl Envelope {
    /// The payload's sum as the checksum crate wants it.
    pub const fn payload_sum(&self) -> InternetSum {
        InternetSum::of_u16(self.sum)
    }

    pub(super) fn write(&self, out: &mut [u8; ENVELOPE_LEN]) {
        let mut flags = 0;
        let mut words = out.iter_mut();
        let mut put = |bytes: &[u8]| {
            bytes.iter().zip(&mut words).for_each(|(byte, place)| *place = *byte);
        };
        let (to, port, scope) = match self.to {
            None => ([0; 16], 0, 0),
            Some(to) => {
                flags |= HAS_TO | if to.is_ipv4() { TO_V4 } else { 0 };
                let scope = if let SocketAddr::V6(to) = to { to.scope_id() } else { 0 };
                (wide(to.ip()), to.port(), scope)
            }
        };
        let (from, from_port) = self.from.map_or(([0; 16], 0), |from| {
            flags |= HAS_FROM | if from.is_ipv4() { FROM_V4 } else { 0 };
            (wide(from.ip()), from.port())
        });
        flags |= if self.insists { FROM_INSISTS } else { 0 };
        flags |= if self.iface.is_some() { HAS_IFACE } else { 0 };
        put(&[flags]);
        put(&to);
        put(&port.to_be_bytes());
        put(&scope.to_be_bytes());
        put(&from);
        put(&from_port.to_be_bytes());
        put(&self.iface.map_or(0, |iface| iface.0).to_be_bytes());
        put(&self.paid.to_be_bytes());
        put(&self.sum.to_be_bytes());
    }

    pub(super) fn read(bytes: &[u8; ENVELOPE_LEN]) -> Self {
        let mut rest = bytes.as_slice();
        let flags = take::<1>(&mut rest)[0];
        let has = |flag: u8| flags & flag != 0;
        let to = take::<16>(&mut rest);
        let port = u16::from_be_bytes(take(&mut rest));
        let scope = u32::from_be_bytes(take(&mut rest));
        let to = match narrow(to, has(TO_V4)) {
            IpAddr::V4(ip) => SocketAddr::from((ip, port)),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
        };
        let from = narrow(take::<16>(&mut rest), has(FROM_V4));
        let from = SocketAddr::new(from, u16::from_be_bytes(take(&mut rest)));
        let iface = IfIndex(u16::from_be_bytes(take(&mut rest)));
        Self {
            to: has(HAS_TO).then_some(to),
            from: has(HAS_FROM).then_some(from),
            insists: has(FROM_INSISTS),
            iface: has(HAS_IFACE).then_some(iface),
            paid: u32::from_be_bytes(take(&mut rest)),
            sum: u16::from_be_bytes(take(&mut rest)),
        }
    }
}

/// The first bytes of what is left.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    match rest.split_first_chunk::<N>() {
        Some((first, more)) => {
            *rest = more;
            *first
        }
        None => [0; N],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let ends = ["192.0.2.7:9", "[2001:db8::1]:65535", "[fe80::1%3]:53", "[::ffff:1.2.3.4]:1"];
        for to in ends.map(|end| Some(end.parse().unwrap())).into_iter().chain([None]) {
            for from in [None, Some("192.0.2.1:7"), Some("[fe80::2]:65535")] {
                let from = from.map(|from| from.parse().unwrap());
                let insists = from.is_some_and(|from: SocketAddr| from.port() == 7);
                for iface in [None, Some(IfIndex(7))] {
                    let (paid, sum) = (2_304, 0xabcd);
                    let envelope = Envelope { to, from, insists, iface, paid, sum };
                    let mut bytes = [0xff; ENVELOPE_LEN];
                    envelope.write(&mut bytes);
                    assert_eq!(Envelope::read(&bytes), envelope);
                }
            }
        }
    }
}
