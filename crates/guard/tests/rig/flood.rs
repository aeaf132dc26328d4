//! Segments and datagrams with sources that are not there, from a raw socket of the calling
//! thread's namespace.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, Protocol, SendFlags, SocketType, sendto, socket};

/// A source of one family and one kind of segment.
pub struct Flood {
    socket: OwnedFd,
    to: SocketAddr,
    flags: u8,
    /// Of datagrams in place of segments.
    payload: Option<&'static [u8]>,
    state: u64,
}

impl Flood {
    pub fn new(to: SocketAddr, flags: u8) -> Self {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let protocol = Protocol::from_raw(NonZeroU32::new(255).unwrap());
        let socket = socket(family, SocketType::RAW, Some(protocol)).unwrap();
        Self { socket, to, flags, payload: None, state: 0x1234_5678_9abc_def1 }
    }

    /// Of datagrams that say this.
    pub fn datagrams(to: SocketAddr, payload: &'static [u8]) -> Self {
        Self { payload: Some(payload), ..Self::new(to, 0) }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// Makes so many, to be sent over and over by [`Flood::send_made`].
    pub fn made(&mut self, count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|_| self.packet()).collect()
    }

    /// Sends them.
    pub fn send_made<'a>(&self, packets: impl Iterator<Item = &'a Vec<u8>>) {
        let to = SocketAddr::new(self.to.ip(), 0);
        for packet in packets {
            // What the kernel has no room for is lost, as on a wire.
            let _ = sendto(&self.socket, packet, SendFlags::DONTWAIT, &to);
        }
    }

    /// Sends so many.
    pub fn send(&mut self, count: usize) {
        for _ in 0..count {
            let packet = self.packet();
            // The port of a raw socket means a protocol to IPv6, and must be none.
            let to = SocketAddr::new(self.to.ip(), 0);
            // What the kernel has no room for is lost, as on a wire.
            let _ = sendto(&self.socket, &packet, SendFlags::DONTWAIT, &to);
        }
    }

    fn packet(&mut self) -> Vec<u8> {
        let (a, b) = (self.next(), self.next());
        let mut l4 = Vec::with_capacity(64);
        l4.extend((a as u16 | 1024).to_be_bytes());
        l4.extend(self.to.port().to_be_bytes());
        let (protocol, sum_at) = match self.payload {
            None => {
                l4.extend((b as u32).to_be_bytes());
                l4.extend(((b >> 32) as u32).to_be_bytes());
                l4.extend([6 << 4, self.flags, 0xfa, 0xf0, 0, 0, 0, 0, 2, 4, 5, 180]);
                (6, 16)
            }
            Some(payload) => {
                l4.extend((8 + payload.len() as u16).to_be_bytes());
                l4.extend([0, 0]);
                l4.extend(payload);
                (17, 6)
            }
        };
        let len = l4.len() as u16;
        let (mut packet, pseudo) = match self.to.ip() {
            IpAddr::V4(to) => {
                let mut ip = vec![0x45, 0];
                ip.extend((20 + len).to_be_bytes());
                ip.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
                ip.extend([198, 18 | (a >> 40) as u8 & 1, (a >> 24) as u8, (a >> 32) as u8]);
                ip.extend(to.octets());
                let pseudo = ip[12..20].to_vec();
                (ip, pseudo)
            }
            IpAddr::V6(to) => {
                let mut ip = vec![0x60, 0, 0, 0];
                ip.extend(len.to_be_bytes());
                ip.extend([protocol, 64, 0x20, 0x01, 0x0d, 0xb8]);
                ip.extend(a.to_be_bytes());
                ip.extend([0, 0, 0, 9]);
                ip.extend(to.octets());
                let pseudo = ip[8..40].to_vec();
                (ip, pseudo)
            }
        };
        let sum = sum(&[&pseudo[..], &[0, protocol], &len.to_be_bytes(), &l4].concat());
        l4[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
        packet.extend(l4);
        packet
    }
}

fn sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
