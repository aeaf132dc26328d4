//! smoltcp as its users run it: an interface and a set of sockets for each end. The wire keeps its
//! packets' memory for the next ones.

use std::collections::VecDeque;
use std::mem::swap;
use std::time::Duration;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use crate::TURN;
use crate::net::{Net, PORT, Shape, Side};
use crate::smoltcp_packets::{Arrived, Departing};

/// One end's side of the wire.
struct Wire {
    capabilities: DeviceCapabilities,
    arrived: VecDeque<Vec<u8>>,
    departed: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

impl Device for Wire {
    type RxToken<'a> = Arrived<'a>;
    type TxToken<'a> = Departing<'a>;

    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities.clone()
    }

    fn receive(&mut self, _: Instant) -> Option<(Arrived<'_>, Departing<'_>)> {
        let packet = self.arrived.pop_front()?;
        let memory = self.spare.pop().unwrap_or_default();
        Some((Arrived(packet, &mut self.spare), Departing(memory, &mut self.departed)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Departing<'_>> {
        let memory = self.spare.pop().unwrap_or_default();
        Some(Departing(memory, &mut self.departed))
    }
}

struct End {
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
}

impl End {
    fn new(shape: Shape, addr: IpAddress) -> Self {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = shape.mtu;
        if !shape.sums {
            capabilities.checksum = ChecksumCapabilities::ignored();
        }
        let (arrived, departed) = (VecDeque::new(), VecDeque::new());
        let mut wire = Wire { capabilities, arrived, departed, spare: Vec::new() };
        let config = Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
        let prefix = if shape.v6 { 64 } else { 24 };
        interface.update_ip_addrs(|all| all.push(IpCidr::new(addr, prefix)).unwrap());
        Self { wire, interface, sockets: SocketSet::new(Vec::new()) }
    }

    fn socket(&mut self, buffer: usize) -> SocketHandle {
        let bytes = || tcp::SocketBuffer::new(vec![0; buffer]);
        let mut socket = tcp::Socket::new(bytes(), bytes());
        socket.set_nagle_enabled(false);
        self.sockets.add(socket)
    }

    fn of(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(handle)
    }

    fn poll(&mut self, nanos: u64) {
        let now = Instant::from_micros((nanos / 1000) as i64);
        self.interface.poll(now, &mut self.wire, &mut self.sockets);
    }
}

pub(crate) struct SmoltcpNet {
    ends: [End; 2],
    server: IpAddress,
    buffer: usize,
    local_port: u16,
    /// Client's sockets that are closed.
    closed: Vec<SocketHandle>,
    /// Server's sockets that listen, or have received a SYN and are not accepted.
    listening: Vec<SocketHandle>,
    /// Server's sockets that end.
    ending: Vec<SocketHandle>,
    nanos: u64,
}

impl SmoltcpNet {
    fn listen(&mut self, handle: SocketHandle, port: u16) {
        self.ends[1].of(handle).listen(port).unwrap();
        self.listening.push(handle);
    }

    fn listen_again(&mut self) {
        let all = std::mem::take(&mut self.ending);
        for handle in all {
            if self.ends[1].of(handle).state() == tcp::State::Closed {
                self.listen(handle, PORT);
            } else {
                self.ending.push(handle);
            }
        }
    }
}

impl Net for SmoltcpNet {
    type Conn = SocketHandle;

    fn new(shape: Shape) -> Self {
        let addr = |n| -> IpAddress {
            let text = if shape.v6 { format!("fd00::{n}") } else { format!("10.0.0.{n}") };
            text.parse().unwrap()
        };
        let ends = [End::new(shape, addr(1)), End::new(shape, addr(2))];
        let (buffer, local_port) = (shape.buffer, 32_768);
        let lists = || Vec::with_capacity(shape.connections);
        let (closed, listening, ending) = (lists(), lists(), lists());
        let server = addr(2);
        let mut net =
            Self { ends, server, buffer, local_port, closed, listening, ending, nanos: 0 };
        for _ in 0..shape.connections.min(64) {
            let handle = net.ends[1].socket(buffer);
            net.listen(handle, PORT);
        }
        net
    }

    fn connect(&mut self, port: u16) -> SocketHandle {
        self.listen_again();
        if port != PORT || self.listening.is_empty() {
            let handle = self.ends[1].socket(self.buffer);
            self.listen(handle, port);
        }
        let handle = self.closed.pop().unwrap_or_else(|| self.ends[0].socket(self.buffer));
        self.local_port = if self.local_port > 60_000 { 32_768 } else { self.local_port + 1 };
        let (to, from) = ((self.server, port), self.local_port);
        let End { interface, sockets, .. } = &mut self.ends[0];
        let socket = sockets.get_mut::<tcp::Socket<'_>>(handle);
        socket.connect(interface.context(), to, from).unwrap();
        handle
    }

    fn accept(&mut self) -> Option<SocketHandle> {
        let (sockets, listening) = (&mut self.ends[1].sockets, &mut self.listening);
        let heard = |handle: &SocketHandle| sockets.get::<tcp::Socket<'_>>(*handle).may_send();
        let place = listening.iter().position(heard)?;
        Some(listening.swap_remove(place))
    }

    fn send(&mut self, side: Side, conn: SocketHandle, bytes: &[u8]) -> usize {
        self.ends[side as usize].of(conn).send_slice(bytes).unwrap()
    }

    fn recv(&mut self, side: Side, conn: SocketHandle, out: &mut [u8]) -> Option<usize> {
        let socket = self.ends[side as usize].of(conn);
        match socket.recv_slice(out) {
            Ok(0) => None,
            Ok(n) => Some(n),
            Err(_) => Some(0),
        }
    }

    fn close(&mut self, side: Side, conn: SocketHandle) {
        self.ends[side as usize].of(conn).close();
        match side {
            Side::Client => self.closed.push(conn),
            Side::Server => self.ending.push(conn),
        }
    }

    fn turn(&mut self) {
        for at in [0, 1, 0] {
            self.nanos += TURN;
            self.ends[at].poll(self.nanos);
            let [client, server] = &mut self.ends;
            let (from, to) = if at == 0 { (client, server) } else { (server, client) };
            if to.wire.arrived.is_empty() {
                swap(&mut from.wire.departed, &mut to.wire.arrived);
            } else {
                to.wire.arrived.append(&mut from.wire.departed);
            }
        }
    }

    fn wait(&mut self, time: Duration) {
        self.nanos += time.as_nanos() as u64;
    }
}

/// Bytes of a socket, buffers apart.
pub(crate) const fn connection_bytes() -> usize {
    size_of::<tcp::Socket<'static>>()
}
