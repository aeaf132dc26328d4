//! smoltcp as its users run it: one interface on a loopback device, two sockets.

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Loopback, Medium};
use smoltcp::socket::udp;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use crate::{BURST, Pair};

pub(crate) struct SmoltcpPair {
    device: Loopback,
    interface: Interface,
    sockets: SocketSet<'static>,
    from: SocketHandle,
    at: SocketHandle,
    to: (IpAddress, u16),
    payload: Vec<u8>,
    now: i64,
}

fn socket(port: u16, len: usize) -> udp::Socket<'static> {
    let buffer =
        || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; BURST], vec![0; BURST * len]);
    let mut socket = udp::Socket::new(buffer(), buffer());
    socket.bind(port).unwrap();
    socket
}

impl SmoltcpPair {
    pub(crate) fn new(len: usize, v6: bool) -> Self {
        let mut device = Loopback::new(Medium::Ip);
        let mut interface =
            Interface::new(Config::new(HardwareAddress::Ip), &mut device, Instant::ZERO);
        let addr: IpAddress = if v6 { "fd00::2" } else { "10.0.0.2" }.parse().unwrap();
        let prefix = if v6 { 64 } else { 24 };
        interface.update_ip_addrs(|all| all.push(IpCidr::new(addr, prefix)).unwrap());
        let mut sockets = SocketSet::new(Vec::new());
        let (from, at) = (sockets.add(socket(4000, len)), sockets.add(socket(7000, len)));
        let payload = (0..len).map(|i| i as u8).collect();
        Self { device, interface, sockets, from, at, to: (addr, 7000), payload, now: 0 }
    }
}

impl Pair for SmoltcpPair {
    fn exchange(&mut self) -> usize {
        self.now += 10;
        let sender = self.sockets.get_mut::<udp::Socket<'_>>(self.from);
        for i in 0..BURST {
            self.payload[0] = i as u8;
            sender.send_slice(&self.payload, self.to).unwrap();
        }
        let now = Instant::from_micros(self.now);
        let receiver = self.at;
        let mut good = 0;
        while self.interface.poll(now, &mut self.device, &mut self.sockets)
            != smoltcp::iface::PollResult::None
        {}
        let receiver = self.sockets.get_mut::<udp::Socket<'_>>(receiver);
        while let Ok((bytes, _)) = receiver.recv() {
            self.payload[0] = good as u8;
            good += usize::from(bytes == &self.payload[..]);
        }
        good
    }
}
