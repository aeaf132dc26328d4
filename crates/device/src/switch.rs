//! `Switch`: a learning Ethernet switch in memory.
//!
//! Called by tests and by programs that put several stacks onto one link. Each port is one end of a
//! [`MemoryWire`]; the other end may be used on another thread, while the switch itself moves only
//! when [`Switch::step`] is called. Invariant: a frame never leaves by the port that it came from,
//! and frames from one port to another keep their order.
//! Reading: IEEE 802.1D-2004, 7.7 to 7.9 (no spanning tree here: do not make loops).
//!
//! # Under flood
//! Any sender behind a port can fill the address table with forged source addresses. Bound: the
//! configured entries, in buckets of four chosen by a keyed hash. Work per frame: two buckets, and
//! for an unknown destination one copy per port. When a bucket is full the least recently used
//! entry is evicted; traffic to it is flooded until it sends again: `evicted`, `flooded`. A port
//! with a full wire loses the frames for it, `port_full`; no other port is affected.

use core::time::Duration;

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{HashKey, Instant, MacAddr};
use floodwall_packet::{PacketBuf, Pool};

use crate::copy;
use crate::memory_wire::{self, MemoryWire, WireConfig};

/// Entries of a bucket.
const BUCKET_WAYS: usize = 4;
/// Addresses that no bridge forwards: the first 12 hexadecimal digits but the last (802.1D 7.12.6).
const RESERVED_ADDRESSES: [u8; 5] = [0x01, 0x80, 0xc2, 0x00, 0x00];

/// How a switch is built.
#[derive(Clone, Debug)]
pub struct SwitchConfig {
    /// Ports.
    pub ports: usize,
    /// Frames that wait in each direction of a port's wire.
    pub capacity: usize,
    /// Bytes of the largest IP packet, reported to the stacks.
    pub mtu: u32,
    /// Whether GSO frames and partial checksums may cross.
    pub offload: bool,
    /// Entries of the address table, rounded up.
    pub addresses: usize,
    /// The time after which an address without traffic is removed (ageing time).
    pub ageing: Duration,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            ports: 4,
            capacity: 1024,
            mtu: 1500,
            offload: false,
            addresses: 1024,
            ageing: Duration::from_secs(300),
        }
    }
}

/// What became of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SwitchCounts {
    /// Frames taken from ports: each is in exactly one of the next five.
    pub received: u64,
    /// For one known port.
    pub forwarded: u64,
    /// For all other ports: a group, or an unknown receiver.
    pub flooded: u64,
    /// Not forwarded, since the receiver is behind the sender's own port.
    pub filtered: u64,
    /// Not forwarded, since the receiver's address is reserved for the link.
    pub reserved: u64,
    /// Not forwarded, since the frame ends within its header or its sender is a group.
    pub malformed: u64,
    /// Copies lost since a port's wire was full.
    pub port_full: u64,
    /// Copies lost since the packet pool was empty.
    pub no_buffer: u64,
    /// Addresses that pushed out another.
    pub evicted: u64,
}

/// A learning Ethernet switch with one [`MemoryWire`] end per port.
#[derive(Debug)]
pub struct Switch {
    ports: Vec<MemoryWire>,
    table: Vec<[Option<SwitchEntry>; BUCKET_WAYS]>,
    key: HashKey,
    ageing: Duration,
    counts: SwitchCounts,
}

#[derive(Clone, Copy, Debug)]
struct SwitchEntry {
    addr: MacAddr,
    port: usize,
    heard: Instant,
}

impl Switch {
    /// A switch, and the far ends of its ports in order. Allocates here and never again.
    #[must_use]
    pub fn new(config: &SwitchConfig, key: HashKey) -> (Self, Vec<MemoryWire>) {
        let wire = |port: usize| {
            memory_wire::pair_of(WireConfig {
                capacity: config.capacity,
                mtu: config.mtu,
                offload: config.offload,
                names: [format!("switch-{port}"), format!("port-{port}")],
                ..WireConfig::default()
            })
        };
        let (ports, ends) = (0..config.ports).map(wire).unzip();
        let buckets = config.addresses.div_ceil(BUCKET_WAYS).next_power_of_two();
        let (table, counts) = (vec![[None; BUCKET_WAYS]; buckets], SwitchCounts::default());
        (Self { ports, table, key, ageing: config.ageing, counts }, ends)
    }

    /// Forwards up to a burst from every port; returns how many frames it took.
    pub fn step(&mut self, now: Instant, pool: &Pool) -> usize {
        let mut taken = 0;
        for port in 0..self.ports.len() {
            for _ in 0..BURST_MAX {
                let Some(frame) = self.ports.get_mut(port).and_then(MemoryWire::take) else {
                    break;
                };
                self.counts.received += 1;
                taken += 1;
                self.input(now, pool, port, frame);
            }
        }
        taken
    }

    /// What became of frames so far.
    #[must_use]
    pub const fn counts(&self) -> SwitchCounts {
        self.counts
    }

    fn input(&mut self, now: Instant, pool: &Pool, port: usize, frame: PacketBuf) {
        let mut header = [0; 14];
        let complete = frame.copy_out(0, &mut header) == header.len();
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = header;
        let (to, from) = (MacAddr([a, b, c, d, e, f]), MacAddr([g, h, i, j, k, l]));
        if !complete || from.is_group() {
            self.counts.malformed += 1;
            return;
        }
        self.learn(now, from, port);
        if to.0.starts_with(&RESERVED_ADDRESSES) && f < 0x10 {
            self.counts.reserved += 1;
            return;
        }
        match self.lookup(now, to) {
            Some(known) if known == port => self.counts.filtered += 1,
            Some(known) => {
                self.counts.forwarded += 1;
                self.send(known, frame);
            }
            None => {
                self.counts.flooded += 1;
                self.flood(pool, port, frame);
            }
        }
    }

    /// A copy to every other port, the frame itself to the last.
    fn flood(&mut self, pool: &Pool, port: usize, frame: PacketBuf) {
        let last = (0..self.ports.len()).rev().find(|p| *p != port);
        for to in (0..self.ports.len()).filter(|p| *p != port && Some(*p) != last) {
            match copy::copy_packet(pool, &frame) {
                Some(copy) => self.send(to, copy),
                None => self.counts.no_buffer += 1,
            }
        }
        if let Some(last) = last {
            self.send(last, frame);
        }
    }

    fn send(&mut self, port: usize, frame: PacketBuf) {
        let sent = self.ports.get_mut(port).is_some_and(|wire| wire.send(frame).is_ok());
        self.counts.port_full += u64::from(!sent);
    }

    fn bucket(&mut self, addr: MacAddr) -> Option<&mut [Option<SwitchEntry>; BUCKET_WAYS]> {
        let mask = self.table.len() as u64 - 1;
        let at = (self.key.bytes(&addr.0) & mask) as usize;
        self.table.get_mut(at)
    }

    fn lookup(&mut self, now: Instant, addr: MacAddr) -> Option<usize> {
        if addr.is_group() {
            return None;
        }
        let ageing = self.ageing;
        let entry = self.bucket(addr)?.iter().flatten().find(|e| e.addr == addr)?;
        (now.saturating_since(entry.heard) <= ageing).then_some(entry.port)
    }

    fn learn(&mut self, now: Instant, addr: MacAddr, port: usize) {
        let Some(bucket) = self.bucket(addr) else { return };
        let entry = SwitchEntry { addr, port, heard: now };
        if let Some(known) = bucket.iter_mut().flatten().find(|e| e.addr == addr) {
            *known = entry;
            return;
        }
        // An empty place sorts before every entry, the oldest entry before the others.
        let oldest = bucket.iter_mut().min_by_key(|e| e.map(|e| e.heard));
        let evicted = oldest.is_some_and(|place| place.replace(entry).is_some());
        self.counts.evicted += u64::from(evicted);
    }
}

#[cfg(test)]
#[path = "switch/tests.rs"]
mod tests;
