//! Models of the kernel's maps, as far as the programs use them.
//!
//! Made by [`Machine`](super::Machine), read and written by programs through helpers, and by tests
//! directly. Invariant: a value stays at its place as long as its key is there, so that an address
//! which a program got stays good within its run.

use super::fault::InterpreterFault;

/// Kinds of maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Array,
    PerCoreArray,
    Hash,
    /// As `Hash`; when full the entry that was used longest ago goes.
    LruHash,
    Programs,
    Sockets,
}

/// `bpf_map_update_elem`: any present value is replaced.
const ANY: u64 = 0;
const ONLY_NEW: u64 = 1;
const ONLY_OLD: u64 = 2;
/// Errors of the system, as helpers return them.
const NO_ENTRY: i64 = -2;
const TOO_BIG: i64 = -7;
const EXISTS: i64 = -17;
const INVALID: i64 = -22;

/// A map.
#[derive(Clone, Debug)]
pub(super) struct MapModel {
    pub(super) kind: Kind,
    key_bytes: usize,
    value_bytes: usize,
    /// Distance of two values: the size, rounded up to eight.
    stride: usize,
    entries: usize,
    values: Vec<u8>,
    keys: Vec<Option<Box<[u8]>>>,
    used: Vec<u64>,
    clock: u64,
}

impl MapModel {
    pub(super) fn new(
        kind: Kind,
        (key_bytes, value_bytes): (usize, usize),
        entries: usize,
        cores: usize,
    ) -> Self {
        let stride = value_bytes.next_multiple_of(8);
        let copies = if kind == Kind::PerCoreArray { cores } else { 1 };
        let is_hash = matches!(kind, Kind::Hash | Kind::LruHash);
        Self {
            kind,
            key_bytes,
            value_bytes,
            stride,
            entries,
            values: vec![0; stride * entries * copies],
            keys: if is_hash { vec![None; entries] } else { Vec::new() },
            used: if is_hash { vec![0; entries] } else { Vec::new() },
            clock: 0,
        }
    }

    pub(super) const fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    pub(super) const fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Where the value of a key begins in the map's memory.
    pub(super) fn lookup(&mut self, key: &[u8], core: usize) -> Option<usize> {
        match self.kind {
            Kind::Array | Kind::PerCoreArray => {
                let index = index_of(key).filter(|index| *index < self.entries)?;
                let core = if self.kind == Kind::PerCoreArray { core } else { 0 };
                Some((core * self.entries + index) * self.stride)
            }
            Kind::Hash | Kind::LruHash => {
                let slot = self.slot(key)?;
                self.touch(slot);
                Some(slot * self.stride)
            }
            Kind::Programs | Kind::Sockets => None,
        }
    }

    fn slot(&self, key: &[u8]) -> Option<usize> {
        self.keys.iter().position(|other| other.as_deref() == Some(key))
    }

    fn touch(&mut self, slot: usize) {
        self.clock += 1;
        if let Some(used) = self.used.get_mut(slot) {
            *used = self.clock;
        }
    }

    /// As the helper; 0 or an error of the system.
    pub(super) fn update(&mut self, key: &[u8], value: &[u8], flags: u64, core: usize) -> i64 {
        let at = match self.kind {
            Kind::Programs | Kind::Sockets => return INVALID,
            Kind::Array | Kind::PerCoreArray if flags == ONLY_NEW => return EXISTS,
            Kind::Array | Kind::PerCoreArray => match self.lookup(key, core) {
                Some(at) => at,
                None => return TOO_BIG,
            },
            Kind::Hash | Kind::LruHash => match self.claim(key, flags) {
                Ok(slot) => slot * self.stride,
                Err(error) => return error,
            },
        };
        if let Some(place) = self.values.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
        0
    }

    fn claim(&mut self, key: &[u8], flags: u64) -> Result<usize, i64> {
        let found = self.slot(key);
        match (flags, found) {
            (ONLY_NEW, Some(_)) => return Err(EXISTS),
            (ONLY_OLD, None) => return Err(NO_ENTRY),
            (ANY | ONLY_NEW | ONLY_OLD, _) => {}
            _ => return Err(INVALID),
        }
        let free = || self.keys.iter().position(Option::is_none);
        let oldest = || (0..self.entries).min_by_key(|slot| self.used.get(*slot));
        let slot = found.or_else(free).or_else(|| match self.kind {
            Kind::LruHash => oldest(),
            _ => None,
        });
        let slot = slot.ok_or(TOO_BIG)?;
        if let Some(place) = self.keys.get_mut(slot) {
            *place = Some(key.into());
        }
        self.touch(slot);
        Ok(slot)
    }

    /// As the helper; 0 or an error of the system.
    pub(super) fn delete(&mut self, key: &[u8]) -> i64 {
        if self.keys.is_empty() {
            return INVALID;
        }
        match self.slot(key).and_then(|slot| self.keys.get_mut(slot)) {
            Some(place) => {
                *place = None;
                0
            }
            None => NO_ENTRY,
        }
    }

    /// Bytes of a value, for a load or store of a program.
    pub(super) fn bytes(&mut self, at: usize, len: usize) -> Result<&mut [u8], InterpreterFault> {
        let within = at % self.stride.max(1);
        if within + len > self.value_bytes {
            return Err(InterpreterFault::OutOfBounds);
        }
        self.values.get_mut(at..at + len).ok_or(InterpreterFault::OutOfBounds)
    }

    /// Of sockets and programs: whether there is one, and which.
    pub(super) fn number(&self, index: u64) -> Option<u64> {
        let index = usize::try_from(index).ok().filter(|index| *index < self.entries)?;
        let bytes = self.values.get(index * self.stride..)?.first_chunk::<8>()?;
        u64::from_ne_bytes(*bytes).checked_sub(1)
    }

    /// Puts a socket or a program in.
    pub(super) fn set_number(&mut self, index: usize, number: u64) {
        let at = index * self.stride;
        if let Some(place) = self.values.get_mut(at..at + 8) {
            place.copy_from_slice(&(number + 1).to_ne_bytes());
        }
    }
}

fn index_of(key: &[u8]) -> Option<usize> {
    usize::try_from(u32::from_ne_bytes(*key.first_chunk()?)).ok()
}
