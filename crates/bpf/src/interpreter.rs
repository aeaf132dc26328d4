//! An interpreter of the instructions that the programs use, with models of maps and helpers.
//!
//! Called by tests and fuzz targets, on any platform and without privilege. It is stricter than
//! the machine that it models: a read of what was never written, an address out of bounds, an
//! unknown function or a run that is too long ends with a [`InterpreterFault`] instead of a panic,
//! so that a program which the kernel would refuse is found out by running it. Not here: the
//! verifier's proof over all paths; only the kernel has that.

mod fault;
mod host_sockets;
mod kernel_calls;
mod maps;
mod memory;
mod run;

use std::collections::BTreeMap;

pub use self::fault::InterpreterFault;
pub use self::host_sockets::{HostModel, SocketModel};
use self::maps::{Kind, MapModel};
use crate::instruction::Instruction;

/// Instructions that one run may take, tail calls included.
const STEPS_MAX: u64 = 1_000_000;
/// Tail calls of one run: the kernel's bound.
const TAIL_CALLS_MAX: u32 = 33;

/// Verdicts of XDP programs.
pub mod verdict {
    /// Something went wrong; the frame is lost.
    pub const ABORTED: u64 = 0;
    /// The frame is lost.
    pub const DROP: u64 = 1;
    /// The frame goes on to the system.
    pub const PASS: u64 = 2;
    /// The frame leaves by the interface that it came by.
    pub const TRANSMIT: u64 = 3;
    /// The frame goes where a redirect helper said.
    pub const REDIRECT: u64 = 4;
}

/// Where a redirected frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// An interface by number.
    Interface(u32),
    /// An entry of a map.
    Socket {
        /// The map.
        map: i32,
        /// The key.
        key: u32,
    },
}

/// What a run gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The program's result.
    pub verdict: u64,
    /// What the last redirect helper was told.
    pub target: Option<Target>,
    /// Instructions that were carried out.
    pub steps: u64,
}

/// The machine: maps, programs and the clock that programs see.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    maps: BTreeMap<i32, MapModel>,
    programs: Vec<Vec<Instruction>>,
    /// What `bpf_ktime_get_ns` and `bpf_ktime_get_boot_ns` say.
    pub nanos: u64,
    /// What `bpf_get_smp_processor_id` says; below the number of cores.
    pub core: usize,
    /// What `bpf_get_prandom_u32` says next; it counts on from there.
    pub random: u32,
    /// The kernel's sockets.
    pub host: HostModel,
    /// The metadata that the last run left in front of the frame.
    pub metadata: Vec<u8>,
    /// The interface that frames come by, and the receive queue.
    pub interface: (u32, u32),
}

/// Cores that per-core maps have values for.
const CORES: usize = 4;
/// The first descriptor that is given away.
const FIRST_FD: i32 = 3;

impl Machine {
    /// A machine without maps, at time 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn add(&mut self, kind: Kind, sizes: (usize, usize), entries: usize) -> i32 {
        let fd = FIRST_FD + self.maps.len() as i32;
        self.maps.insert(fd, MapModel::new(kind, sizes, entries, CORES));
        fd
    }

    /// A map of values by index. Returns its descriptor.
    pub fn array(&mut self, value_bytes: usize, entries: usize) -> i32 {
        self.add(Kind::Array, (4, value_bytes), entries)
    }

    /// The same with values of each core's own.
    pub fn per_core_array(&mut self, value_bytes: usize, entries: usize) -> i32 {
        self.add(Kind::PerCoreArray, (4, value_bytes), entries)
    }

    /// A map of values by key.
    pub fn hash(&mut self, key_bytes: usize, value_bytes: usize, entries: usize) -> i32 {
        self.add(Kind::Hash, (key_bytes, value_bytes), entries)
    }

    /// The same; when full, what was used longest ago goes.
    pub fn lru_hash(&mut self, key_bytes: usize, value_bytes: usize, entries: usize) -> i32 {
        self.add(Kind::LruHash, (key_bytes, value_bytes), entries)
    }

    /// A map of programs, for tail calls.
    pub fn programs(&mut self, entries: usize) -> i32 {
        self.add(Kind::Programs, (4, 8), entries)
    }

    /// A map of sockets by queue.
    pub fn sockets(&mut self, entries: usize) -> i32 {
        self.add(Kind::Sockets, (4, 8), entries)
    }

    /// Puts a program into a map of programs.
    pub fn set_program(&mut self, programs: i32, index: usize, code: Vec<Instruction>) {
        self.programs.push(code);
        let number = self.programs.len() as u64 - 1;
        if let Some(map) = self.maps.get_mut(&programs) {
            map.set_number(index, number);
        }
    }

    /// There is a socket for that queue.
    pub fn set_socket(&mut self, sockets: i32, index: usize) {
        if let Some(map) = self.maps.get_mut(&sockets) {
            map.set_number(index, 0);
        }
    }

    /// The bytes of a value, of the present core where cores have their own; `None` where there is
    /// none.
    pub fn value(&mut self, map: i32, key: &[u8]) -> Option<&mut [u8]> {
        let core = self.core;
        let map = self.maps.get_mut(&map)?;
        let (at, len) = (map.lookup(key, core)?, map.value_bytes());
        map.bytes(at, len).ok()
    }

    /// A word of a value of 64-bit words.
    pub fn word(&mut self, map: i32, key: &[u8], word: usize) -> Option<u64> {
        let bytes = self.value(map, key)?.get(word * 8..)?.first_chunk::<8>()?;
        Some(u64::from_ne_bytes(*bytes))
    }

    /// Sets a word of a value of 64-bit words that is there.
    pub fn set_word(&mut self, map: i32, key: &[u8], word: usize, value: u64) {
        let place = self.value(map, key).and_then(|bytes| bytes.get_mut(word * 8..word * 8 + 8));
        if let Some(place) = place {
            place.copy_from_slice(&value.to_ne_bytes());
        }
    }

    /// Puts a value into a map; false where it has no room or another shape.
    pub fn set(&mut self, map: i32, key: &[u8], value: &[u8]) -> bool {
        let core = self.core;
        let Some(map) = self.maps.get_mut(&map) else { return false };
        map.key_bytes() == key.len()
            && map.value_bytes() == value.len()
            && map.update(key, value, 0, core) == 0
    }

    /// Takes a key out.
    pub fn remove(&mut self, map: i32, key: &[u8]) -> bool {
        self.maps.get_mut(&map).is_some_and(|map| map.delete(key) == 0)
    }

    /// Runs a program on a frame, which it may change.
    ///
    /// # Errors
    /// What the program must not do.
    pub fn run(
        &mut self,
        code: &[Instruction],
        frame: &mut Vec<u8>,
    ) -> Result<Outcome, InterpreterFault> {
        run::Run::new(self, frame).run(code)
    }
}

#[cfg(test)]
mod tests;
