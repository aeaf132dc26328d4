//! The kernel's sockets, as far as programs ask for them.
//!
//! Used by `kernel_calls.rs`. A socket is found by the bytes of its tuple, as it lies in the frame.
//! Invariant: what was looked up must be released before the program ends or goes on with another,
//! as the kernel's verifier asks.

use std::collections::BTreeMap;

use super::fault::InterpreterFault;
use super::memory::MemoryRegion;
use super::run::Run;

/// Where the state is in what a look-up gives.
const SOCKET_STATE_AT: usize = 72;

/// One socket.
#[derive(Clone, Debug, Default)]
pub struct SocketModel {
    /// Its state by the kernel's numbers: 10 is a listener, 1 a connection.
    pub state: u32,
    /// The bytes of the kernel's structure; `None` of a request or a timewait socket.
    pub fields: Option<Vec<u8>>,
}

/// The sockets and cookies of a kernel.
#[derive(Clone, Debug, Default)]
pub struct HostModel {
    /// Sockets by address and port of the destination, as they lie in the frame.
    pub listeners: BTreeMap<Vec<u8>, SocketModel>,
    /// Sockets by both ends.
    pub connections: BTreeMap<Vec<u8>, SocketModel>,
    /// Whether ACKs carry cookies of the kernel's own.
    pub has_cookies: bool,
    /// Whether a frame has room for metadata.
    pub has_metadata: bool,
    /// What look-ups have found in this run, by number.
    pub(super) found: Vec<SocketModel>,
    /// How many of them are held.
    pub(super) held: usize,
}

impl HostModel {
    fn find(&self, tuple: &[u8]) -> Option<SocketModel> {
        let address = if tuple.len() == 12 { 4 } else { 16 };
        let (destination, ports) =
            (tuple.get(address..2 * address)?, tuple.get(2 * address + 2..)?);
        let key: Vec<u8> = destination.iter().chain(ports).copied().collect();
        self.connections.get(tuple).or_else(|| self.listeners.get(&key)).cloned()
    }
}

impl Run<'_> {
    pub(super) fn lookup_socket(&mut self) -> Result<u64, InterpreterFault> {
        self.context()?;
        let (tuple, bytes) = (self.get(2)?, self.get(3)? as usize);
        if !matches!(bytes, 12 | 36) || self.get(5)? != 0 || (self.get(4)? as i32) >= 0 {
            return Err(InterpreterFault::OutOfBounds);
        }
        let tuple = self.read(tuple, bytes)?;
        let host = &mut self.machine.host;
        let Some(socket) = host.find(&tuple) else { return Ok(0) };
        host.found.push(socket);
        host.held += 1;
        Ok(MemoryRegion::Socket(host.found.len() - 1).at(0))
    }

    fn socket(&self) -> Result<usize, InterpreterFault> {
        match MemoryRegion::of(self.get(1)?)? {
            (MemoryRegion::Socket(number), 0) => Ok(number),
            _ => Err(InterpreterFault::NoMemory),
        }
    }

    pub(super) fn release_socket(&mut self) -> Result<u64, InterpreterFault> {
        let number = self.socket()?;
        let host = &mut self.machine.host;
        host.held = host.held.checked_sub(1).ok_or(InterpreterFault::NotHeld)?;
        // What was read of it is good no more.
        if let Some(socket) = host.found.get_mut(number) {
            socket.fields = None;
        }
        Ok(0)
    }

    pub(super) fn as_tcp_socket(&self) -> Result<u64, InterpreterFault> {
        let number = self.socket()?;
        let socket = self.machine.host.found.get(number).ok_or(InterpreterFault::NoMemory)?;
        Ok(socket.fields.as_ref().map_or(0, |_| MemoryRegion::TcpSocket(number).at(0)))
    }

    pub(super) fn check_cookie(&mut self, heading: usize) -> Result<u64, InterpreterFault> {
        let (ip, tcp) = (self.get(1)?, self.get(2)?);
        self.read(ip, heading)?;
        self.read(tcp, 20)?;
        Ok(if self.machine.host.has_cookies { 0 } else { u64::from(u32::MAX) - 1 })
    }

    /// Bytes of a socket at `at`.
    pub(super) fn of_socket(
        &self,
        number: usize,
        is_tcp: bool,
        at: usize,
        len: usize,
    ) -> Result<&[u8], InterpreterFault> {
        let socket = self.machine.host.found.get(number).ok_or(InterpreterFault::NoMemory)?;
        match is_tcp {
            true => {
                let fields = socket.fields.as_ref().ok_or(InterpreterFault::NoMemory)?;
                fields.get(at..at + len).ok_or(InterpreterFault::OutOfBounds)
            }
            false if at == SOCKET_STATE_AT && len == 4 => Ok(match socket.state {
                1 if cfg!(target_endian = "little") => &[1, 0, 0, 0],
                1 => &[0, 0, 0, 1],
                10 if cfg!(target_endian = "little") => &[10, 0, 0, 0],
                10 => &[0, 0, 0, 10],
                // Any other.
                _ => &[1; 4],
            }),
            false => Err(InterpreterFault::OutOfBounds),
        }
    }
}
