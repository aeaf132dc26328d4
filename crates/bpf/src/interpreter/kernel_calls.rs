//! What the helper functions of the kernel do, as far as the programs call them.
//!
//! Called by `run.rs` for an instruction that calls one. Invariant: as in the kernel, `R1` to `R5`
//! are lost, and what changes the frame makes its old addresses bad.

use super::fault::InterpreterFault;
use super::maps::Kind;
use super::memory::MemoryRegion;
use super::run::Run;
use super::{TAIL_CALLS_MAX, Target, verdict};
use crate::instruction::Function;

/// Bytes that a frame may grow by.
const TAIL_ROOM: i64 = 256;
/// Bytes that a frame keeps at least.
const LINK_BYTES: i64 = 14;
const INVALID: i64 = -22;

const fn known(number: i32) -> Option<Function> {
    Some(match number {
        1 => Function::MapLookup,
        2 => Function::MapUpdate,
        3 => Function::MapDelete,
        5 => Function::MonotonicNanos,
        7 => Function::Random,
        8 => Function::Core,
        12 => Function::TailCall,
        23 => Function::Redirect,
        51 => Function::RedirectMap,
        54 => Function::AdjustMeta,
        65 => Function::AdjustTail,
        86 => Function::Release,
        99 => Function::LookupTcp,
        137 => Function::ToTcpSocket,
        206 => Function::CheckKernelCookieV4,
        207 => Function::CheckKernelCookieV6,
        125 => Function::BootNanos,
        188 => Function::FrameBytes,
        _ => return None,
    })
}

impl Run<'_> {
    /// Carries a helper out.
    pub(super) fn help(&mut self, number: i32) -> Result<(), InterpreterFault> {
        let function = known(number).ok_or(InterpreterFault::UnknownFunction(number))?;
        let result = match function {
            Function::MapLookup => self.lookup()?,
            Function::MapUpdate => self.update()?,
            Function::MapDelete => self.delete()?,
            Function::MonotonicNanos | Function::BootNanos => self.machine.nanos,
            Function::Random => {
                self.machine.random = self.machine.random.wrapping_add(1);
                u64::from(self.machine.random)
            }
            Function::Core => self.machine.core as u64,
            Function::TailCall => self.tail_call()?,
            Function::Redirect => {
                self.target = Some(Target::Interface(self.get(1)? as u32));
                verdict::REDIRECT
            }
            Function::RedirectMap => self.redirect_map()?,
            Function::AdjustTail => self.adjust_tail()?,
            Function::AdjustMeta => self.adjust_metadata()?,
            Function::LookupTcp => self.lookup_socket()?,
            Function::Release => self.release_socket()?,
            Function::ToTcpSocket => self.as_tcp_socket()?,
            Function::CheckKernelCookieV4 => self.check_cookie(20)?,
            Function::CheckKernelCookieV6 => self.check_cookie(40)?,
            _ => self.context().map(|()| self.frame.len() as u64)?,
        };
        for register in 1..=5 {
            if let Some(place) = self.registers.get_mut(register) {
                *place = None;
            }
        }
        self.set(0, result)
    }

    /// The first argument is the context.
    pub(super) fn context(&self) -> Result<(), InterpreterFault> {
        if self.get(1)? == MemoryRegion::Context.at(0) {
            Ok(())
        } else {
            Err(InterpreterFault::NoMemory)
        }
    }

    /// The map that a register holds.
    fn handle(&self, register: u8) -> Result<i32, InterpreterFault> {
        match MemoryRegion::of(self.get(register)?)? {
            (MemoryRegion::Handle(fd), 0) => Ok(fd),
            _ => Err(InterpreterFault::NoMap),
        }
    }

    fn key(&mut self, fd: i32) -> Result<Vec<u8>, InterpreterFault> {
        let bytes = self.machine.maps.get(&fd).ok_or(InterpreterFault::NoMap)?.key_bytes();
        let address = self.get(2)?;
        self.read(address, bytes)
    }

    fn lookup(&mut self) -> Result<u64, InterpreterFault> {
        let fd = self.handle(1)?;
        let (key, core) = (self.key(fd)?, self.machine.core);
        let map = self.machine.maps.get_mut(&fd).ok_or(InterpreterFault::NoMap)?;
        if matches!(map.kind, Kind::Programs | Kind::Sockets) {
            return Err(InterpreterFault::NoMap);
        }
        Ok(map.lookup(&key, core).map_or(0, |at| MemoryRegion::Map(fd).at(at as u64)))
    }

    fn update(&mut self) -> Result<u64, InterpreterFault> {
        let fd = self.handle(1)?;
        let (key, core) = (self.key(fd)?, self.machine.core);
        let bytes = self.machine.maps.get(&fd).ok_or(InterpreterFault::NoMap)?.value_bytes();
        let (value, flags) = (self.get(3)?, self.get(4)?);
        let value = self.read(value, bytes)?;
        let map = self.machine.maps.get_mut(&fd).ok_or(InterpreterFault::NoMap)?;
        Ok(map.update(&key, &value, flags, core).cast_unsigned())
    }

    fn delete(&mut self) -> Result<u64, InterpreterFault> {
        let fd = self.handle(1)?;
        let key = self.key(fd)?;
        let map = self.machine.maps.get_mut(&fd).ok_or(InterpreterFault::NoMap)?;
        Ok(map.delete(&key).cast_unsigned())
    }

    fn tail_call(&mut self) -> Result<u64, InterpreterFault> {
        self.context()?;
        let (fd, index) = (self.handle(2)?, self.get(3)?);
        let map = self.machine.maps.get(&fd).filter(|map| map.kind == Kind::Programs);
        let number = map.ok_or(InterpreterFault::NoMap)?.number(u64::from(index as u32));
        let program = number.and_then(|n| self.machine.programs.get(n as usize));
        if let Some(program) = program.filter(|_| self.tail_calls < TAIL_CALLS_MAX) {
            self.tail_calls += 1;
            self.goes_on = Some(program.clone());
        }
        Ok(INVALID.cast_unsigned())
    }

    fn redirect_map(&mut self) -> Result<u64, InterpreterFault> {
        let (map, key, flags) = (self.handle(1)?, self.get(2)? as u32, self.get(3)?);
        let sockets = self.machine.maps.get(&map).filter(|map| map.kind == Kind::Sockets);
        if sockets.ok_or(InterpreterFault::NoMap)?.number(u64::from(key)).is_none() {
            return Ok(flags & 3);
        }
        self.target = Some(Target::Socket { map, key });
        Ok(verdict::REDIRECT)
    }

    /// Makes room in front of the frame, or takes it away.
    fn adjust_metadata(&mut self) -> Result<u64, InterpreterFault> {
        const MOST: usize = 32;
        self.context()?;
        let delta = self.get(2)? as i32;
        self.moves += 1;
        let bytes = self.machine.metadata.len() as i64 - i64::from(delta);
        let fits = (0..=MOST as i64).contains(&bytes) && bytes % 4 == 0;
        if !fits || !self.machine.host.has_metadata {
            return Ok(INVALID.cast_unsigned());
        }
        self.machine.metadata = vec![0; bytes as usize];
        Ok(0)
    }

    fn adjust_tail(&mut self) -> Result<u64, InterpreterFault> {
        self.context()?;
        let delta = i64::from(self.get(2)? as i32);
        self.moves += 1;
        let len = self.frame.len() as i64 + delta;
        if len < LINK_BYTES || delta > TAIL_ROOM {
            return Ok(INVALID.cast_unsigned());
        }
        self.frame.resize(len as usize, 0);
        Ok(0)
    }
}
