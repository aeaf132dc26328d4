//! `Fault`: a device that loses, repeats, swaps, damages and cuts packets, on purpose and by seed.
//!
//! Called by tests and by the programs that show how a stack handles a bad link. Wraps any device;
//! each direction has its own rates and its own random numbers, so the same seed over the same
//! packets gives the same result. Invariant: every action on a packet is counted in
//! [`FaultCounts`]; an action that lacks memory is counted too.

use std::os::fd::BorrowedFd;

use floodwall_base::PublicRandom;
use floodwall_base::limits::BURST_MAX;
use floodwall_packet::{Burst, ChecksumState, Class, Offload, PacketBuf, PacketList, Pool};

use crate::copy;
use crate::device::{Device, DeviceInfo};
use crate::error::DeviceError;
use crate::first_line_place::FirstLinePlace;
use crate::first_line_report::FirstLineReport;
use crate::service_sample::ServiceSample;
use crate::stats::DeviceStats;
use crate::vnet::{self, Completion};

/// Packets that are held back at a time, per direction.
const HELD_MAX: usize = 16;
/// Frames kept for copies on departure, where no pool is available.
const SPARE_FRAMES: usize = 32;

/// How often what happens to a packet in one direction: 0.0 never, 1.0 always.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FaultRates {
    /// It disappears.
    pub loss: f64,
    /// It comes twice.
    pub duplication: f64,
    /// It is overtaken by up to `distance` others.
    pub reordering: f64,
    /// By how many others; at least 1.
    pub distance: u32,
    /// One of its bits is flipped after all checksums were computed.
    pub corruption: f64,
    /// Its end is missing.
    pub truncation: f64,
}

/// What was done in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct FaultCounts {
    /// Packets that came to this direction.
    pub seen: u64,
    /// Disappeared.
    pub lost: u64,
    /// Came twice.
    pub duplicated: u64,
    /// Were held back.
    pub reordered: u64,
    /// Had a bit flipped.
    pub corrupted: u64,
    /// Lost their end.
    pub truncated: u64,
    /// Not duplicated, held back or damaged for lack of memory, or because the packet is a
    /// GSO frame, which has no final checksums yet.
    pub spared: u64,
}

/// Rates of both directions.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FaultConfig {
    /// The same seed does the same to the same packets.
    pub seed: u64,
    /// On arrival.
    pub rx: FaultRates,
    /// On departure.
    pub tx: FaultRates,
}

/// A device wrapper that injects faults.
#[derive(Debug)]
pub struct Fault<D> {
    inner: D,
    rx: FaultDirection,
    tx: FaultDirection,
    /// Frames for copies on departure.
    spares: Vec<PacketBuf>,
    /// Nothing was sent since the last look, so that what is held back need not wait.
    tx_idle: bool,
    /// What was handed to the caller; the inner device's count has what we lost, too.
    delivered: DeviceStats,
}

#[derive(Debug)]
struct FaultDirection {
    rates: FaultRates,
    random: PublicRandom,
    counts: FaultCounts,
    /// Packets that wait for others to overtake them, and for how many.
    held: Vec<(PacketBuf, u32)>,
    /// Packets that are through, and not yet taken.
    ready: PacketList,
}

/// Where memory for copies comes from.
enum FaultMemory<'a> {
    Pool(&'a Pool),
    Spares(&'a mut Vec<PacketBuf>),
}

impl<D: Device> Fault<D> {
    /// Wraps a device.
    #[must_use]
    pub fn new(inner: D, config: &FaultConfig) -> Self {
        let mut seeds = PublicRandom::new(config.seed);
        let mut direction = |rates| FaultDirection {
            rates,
            random: PublicRandom::new(seeds.next_u64()),
            counts: FaultCounts::default(),
            held: Vec::with_capacity(HELD_MAX),
            ready: PacketList::new(),
        };
        let (rx, tx) = (direction(config.rx), direction(config.tx));
        let (spares, delivered) = (Vec::with_capacity(SPARE_FRAMES), DeviceStats::default());
        Self { inner, rx, tx, spares, tx_idle: false, delivered }
    }

    /// What was done on arrival and on departure.
    #[must_use]
    pub const fn counts(&self) -> (FaultCounts, FaultCounts) {
        (self.rx.counts, self.tx.counts)
    }

    /// Changes the rates from now on: a link that gets worse, or recovers.
    pub const fn set_rates(&mut self, rx: FaultRates, tx: FaultRates) {
        self.rx.rates = rx;
        self.tx.rates = tx;
    }

    /// The device inside.
    pub const fn inner(&self) -> &D {
        &self.inner
    }

    fn stock_spares(&mut self, pool: &Pool) {
        let rates = self.tx.rates;
        if rates.duplication > 0.0 || rates.corruption > 0.0 {
            while self.spares.len() < SPARE_FRAMES
                && let Some(spare) = pool.alloc(Class::Frame)
            {
                self.spares.push(spare);
            }
        }
    }

    fn deliver(&mut self, burst: &mut Burst) -> usize {
        let mut given = 0;
        while burst.room() > 0
            && let Some(packet) = self.rx.ready.pop_front()
        {
            self.delivered.count_rx(packet.len());
            let _ = burst.push(packet);
            given += 1;
        }
        given
    }
}

impl FaultDirection {
    /// Applies the randomly chosen faults to one packet.
    fn input(&mut self, mut packet: PacketBuf, memory: &mut FaultMemory<'_>) {
        self.counts.seen += 1;
        self.let_pass();
        if self.random.chance(self.rates.loss) {
            self.counts.lost += 1;
            return;
        }
        if self.random.chance(self.rates.corruption) {
            packet = self.corrupt(packet, memory);
        }
        if self.random.chance(self.rates.truncation) && !packet.is_empty() {
            self.truncate(&mut packet);
        }
        let twin = self.random.chance(self.rates.duplication).then(|| memory.copy(&packet));
        match twin {
            Some(Some(_)) => self.counts.duplicated += 1,
            Some(None) => self.counts.spared += 1,
            None => {}
        }
        if self.random.chance(self.rates.reordering) {
            if self.held.len() < HELD_MAX {
                self.counts.reordered += 1;
                let distance = u64::from(self.rates.distance.max(1));
                let overtaken = 1 + self.random.below(distance) as u32;
                self.held.push((packet, overtaken));
            } else {
                self.counts.spared += 1;
                self.ready.push_back(packet);
            }
        } else {
            self.ready.push_back(packet);
        }
        if let Some(twin) = twin.flatten() {
            self.ready.push_back(twin);
        }
    }

    /// Counts one packet that overtakes those held back; a packet held long enough is ready.
    fn let_pass(&mut self) {
        let mut at = 0;
        while let Some((_, left)) = self.held.get_mut(at) {
            if *left == 0 {
                let (packet, _) = self.held.remove(at);
                self.ready.push_back(packet);
            } else {
                *left -= 1;
                at += 1;
            }
        }
    }

    fn release_held(&mut self) {
        for (packet, _) in self.held.drain(..) {
            self.ready.push_back(packet);
        }
    }

    fn truncate(&mut self, packet: &mut PacketBuf) {
        if packet.checksum_state() == ChecksumState::Partial {
            self.counts.spared += 1;
            return;
        }
        let len = self.random.below(packet.len() as u64) as usize;
        packet.truncate(len);
        self.counts.truncated += 1;
    }

    /// Flips one bit in a copy, after its checksum was completed: links damage what was sent.
    fn corrupt(&mut self, packet: PacketBuf, memory: &mut FaultMemory<'_>) -> PacketBuf {
        let completion = vnet::complete(&packet);
        let copy = match completion {
            Completion::Impossible => None,
            _ if packet.is_empty() => None,
            _ => memory.copy(&packet),
        };
        let Some(mut copy) = copy.filter(PacketBuf::is_contiguous) else {
            self.counts.spared += 1;
            return packet;
        };
        let at = self.random.below(8 * packet.len() as u64) as usize;
        if let Some(bytes) = copy.first_mut() {
            if let Completion::Patch(patch) = completion
                && let Some(field) = bytes.get_mut(patch.at..patch.at + 2)
            {
                field.copy_from_slice(&patch.bytes);
            }
            if let Some(byte) = bytes.get_mut(at / 8) {
                *byte ^= 1 << (at % 8);
                self.counts.corrupted += 1;
            }
        }
        copy.set_checksum_state(ChecksumState::Unverified);
        copy.set_offload(Offload::default());
        copy
    }
}

impl FaultMemory<'_> {
    fn copy(&mut self, packet: &PacketBuf) -> Option<PacketBuf> {
        match self {
            Self::Pool(pool) => copy::copy_packet(pool, packet),
            Self::Spares(spares) => {
                let fits = spares.last().is_some_and(|s| packet.len() <= s.tailroom());
                let mut copy = spares.pop_if(|_| fits)?;
                if !packet.chunks().all(|chunk| copy.extend_from_slice(chunk)) {
                    return None;
                }
                copy::describe_as(&mut copy, packet);
                Some(copy)
            }
        }
    }
}

impl<D: Device> Device for Fault<D> {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        self.receive_while(pool, burst, &mut || true)
    }

    fn receive_while(
        &mut self,
        pool: &Pool,
        burst: &mut Burst,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<usize, DeviceError> {
        self.stock_spares(pool);
        if self.tx_idle {
            self.tx.release_held();
            self.inner.transmit(&mut self.tx.ready)?;
        }
        self.tx_idle = true;
        let given = self.deliver(burst);
        if burst.room() == 0 {
            return Ok(given);
        }
        let mut arrived = Burst::new();
        let result = self.inner.receive_while(pool, &mut arrived, goes_on);
        if arrived.is_empty() {
            self.rx.release_held();
        }
        for packet in arrived.drain() {
            self.rx.input(packet, &mut FaultMemory::Pool(pool));
        }
        let given = given + self.deliver(burst);
        if given > 0 { Ok(given) } else { result.map(|_| 0) }
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        let mut left = 0;
        loop {
            // No more than a burst waits here: the rest stays with the caller.
            while self.tx.ready.len() < BURST_MAX
                && let Some(mut packet) = packets.pop_front()
            {
                packet.uncharge();
                self.tx.input(packet, &mut FaultMemory::Spares(&mut self.spares));
                self.tx_idle = false;
                left += 1;
            }
            if self.tx.ready.is_empty() {
                return Ok(left);
            }
            match self.inner.transmit(&mut self.tx.ready) {
                Ok(0) => return Ok(left),
                Ok(_) if packets.is_empty() => return Ok(left),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.inner.readiness()
    }

    fn rest(&mut self) {
        self.inner.rest();
    }

    fn pending(&self) -> bool {
        let waits = |d: &FaultDirection| !d.ready.is_empty() || !d.held.is_empty();
        waits(&self.rx) || waits(&self.tx) || self.inner.pending()
    }

    fn first_line(&self) -> FirstLinePlace {
        self.inner.first_line()
    }

    fn first_line_report(&self) -> FirstLineReport {
        self.inner.first_line_report()
    }

    fn sampled_services(&self) -> Vec<ServiceSample> {
        self.inner.sampled_services()
    }

    fn reads_by_calls(&self) -> bool {
        self.inner.reads_by_calls()
    }

    fn ring(&self) -> usize {
        self.inner.ring()
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats {
            rx_packets: self.delivered.rx_packets,
            rx_bytes: self.delivered.rx_bytes,
            rx_injected: self.rx.counts.lost,
            tx_injected: self.tx.counts.lost,
            ..self.inner.stats()
        }
    }
}

#[cfg(test)]
#[path = "fault/tests.rs"]
mod tests;
