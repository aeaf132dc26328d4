//! smoltcp's server, as its examples have it: one loop, one TUN, a socket a client.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Medium, TunTapInterface, wait};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::HardwareAddress;

use crate::talk::{Next, PIECE, Pages, Talk};

/// Bytes of each buffer of each socket.
const BUFFER: usize = 65_536;

/// A socket as a stream.
struct Stream<'a>(&'a mut Socket<'static>);

impl Read for Stream<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.0.can_recv() {
            return self.0.recv_slice(out).map_err(io::Error::other);
        }
        if self.0.may_recv() { Err(ErrorKind::WouldBlock.into()) } else { Ok(0) }
    }
}

impl Write for Stream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.send_slice(bytes) {
            Ok(0) => Err(ErrorKind::WouldBlock.into()),
            sent => sent.map_err(io::Error::other),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Serves until it is killed.
pub(crate) fn serve(device: &str, addresses: &[String], sockets: usize) {
    let mut device = TunTapInterface::new(device, Medium::Ip).unwrap();
    let descriptor = device.as_raw_fd();
    let mut config = Config::new(HardwareAddress::Ip);
    config.random_seed = u64::from(std::process::id());
    let mut interface = Interface::new(config, &mut device, Instant::now());
    interface.update_ip_addrs(|all| {
        addresses.iter().for_each(|text| all.push(text.parse().unwrap()).unwrap());
    });
    let mut set = SocketSet::new(Vec::new());
    let mut talks: Vec<(SocketHandle, Talk)> = (0..sockets)
        .map(|_| {
            let buffer = || SocketBuffer::new(vec![0; BUFFER]);
            let mut socket = Socket::new(buffer(), buffer());
            socket.set_nagle_enabled(false);
            (set.add(socket), Talk::default())
        })
        .collect();
    let (pages, mut buffer) = (Pages::new(), vec![0; PIECE]);
    println!("serving");
    loop {
        interface.poll(Instant::now(), &mut device, &mut set);
        let mut worked = false;
        for (handle, talk) in &mut talks {
            worked |= serve_one(set.get_mut(*handle), talk, &pages, &mut buffer);
        }
        if !worked {
            let now = Instant::now();
            wait(descriptor, interface.poll_delay(now, &set)).unwrap();
        }
    }
}

/// Serves a socket as far as it goes now; whether there is something to send for it.
fn serve_one(
    socket: &mut Socket<'static>,
    talk: &mut Talk,
    pages: &Pages,
    buffer: &mut [u8],
) -> bool {
    if !socket.is_open() {
        // Closed, or in TIME-WAIT, which it may leave for the next client.
        *talk = Talk::default();
        socket.listen(80).unwrap();
        return false;
    }
    let over = socket.state() == State::CloseWait;
    if !(over || socket.state() == State::Established && (socket.can_recv() || talk.is_answering()))
    {
        return false;
    }
    let before = socket.send_queue();
    let next = talk.serve(&mut Stream(socket), pages, buffer, true);
    if next == Next::Close {
        socket.close();
    }
    next == Next::Close || socket.send_queue() != before
}
