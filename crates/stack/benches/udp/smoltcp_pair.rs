//! smoltcp as its users run it: one interface and two sockets. Its device is a loop that keeps its
//! packets' memory for the next ones and leaves all checksums to the interface, as ours does: that
//! of smoltcp itself allocates each packet and has none computed nor verified.

use std::collections::VecDeque;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium};
use smoltcp::socket::udp;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use crate::smoltcp_packets::{Arrived, Departing};
use crate::{BURST, Pair};

/// What departs arrives.
#[derive(Default)]
struct Loop {
    packets: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

impl Device for Loop {
    type RxToken<'a> = Arrived<'a>;
    type TxToken<'a> = Departing<'a>;

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 65_535;
        capabilities
    }

    fn receive(&mut self, _: Instant) -> Option<(Arrived<'_>, Departing<'_>)> {
        let packet = self.packets.pop_front()?;
        let memory = self.spare.pop().unwrap_or_default();
        Some((Arrived(packet, &mut self.spare), Departing(memory, &mut self.packets)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Departing<'_>> {
        let memory = self.spare.pop().unwrap_or_default();
        Some(Departing(memory, &mut self.packets))
    }
}

pub(crate) struct SmoltcpPair {
    device: Loop,
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
        let mut device = Loop::default();
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
