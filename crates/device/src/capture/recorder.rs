//! `Recorder`: a device that records the packets of another one, and writes them as pcapng.
//!
//! Called by `floodwall run --record` and by tests. Invariant: nothing is written between arrival
//! and departure: packets are copied into a buffer of fixed size, which [`Recorder::flush`] empties
//! outside of the round. What does not fit is counted, and recorded in the file at that place. One
//! link type a stream, as tcpdump demands.

use core::fmt;
use core::time::Duration;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;

use floodwall_base::limits::BURST_MAX;
use floodwall_packet::{Burst, PacketBuf, PacketList, Pool};

use super::blocks::{BlockWriter, CaptureDirection, PacketBlock};
use crate::device::{Device, DeviceInfo};
use crate::error::DeviceError;
use crate::first_line_place::FirstLinePlace;
use crate::first_line_report::FirstLineReport;
use crate::service_sample::ServiceSample;
use crate::stats::DeviceStats;

/// Bytes of a record's head in the buffer: time, losses before, wire length, length, direction.
const RECORD_HEAD_BYTES: usize = 8 + 8 + 4 + 4 + 1;

/// The limits of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecorderConfig {
    /// Bytes between two flushes, heads of 25 bytes a packet included.
    pub buffer_bytes: usize,
    /// Bytes of each packet at most; 0 for all.
    pub snap_len: u32,
}

impl Default for RecorderConfig {
    fn default() -> Self {
        Self { buffer_bytes: 4 << 20, snap_len: 0 }
    }
}

/// Bytes recorded and both counts of losses, at some moment.
type Mark = (usize, u64, u64);

/// A device wrapper that records every packet to a pcapng writer.
pub struct Recorder<D, W: Write> {
    inner: D,
    writer: BlockWriter<W>,
    clock: Box<dyn FnMut() -> Duration + Send>,
    buffer: Vec<u8>,
    config: RecorderConfig,
    /// Total of packets that did not fit the buffer.
    missed: u64,
    /// The same since the last that did.
    missed_before_next: u64,
}

impl<D: Device, W: Write + Send> Recorder<D, W> {
    /// Wraps a device, and writes the file's header. `clock` gives the time since 1970-01-01 00:00
    /// UTC; it is called once a call with packets.
    ///
    /// # Errors
    /// The writer's.
    pub fn new(
        inner: D,
        writer: W,
        config: RecorderConfig,
        clock: impl FnMut() -> Duration + Send + 'static,
    ) -> io::Result<Self> {
        let mut writer = BlockWriter::new(writer)?;
        let info = inner.info();
        writer.interface(&info.name, info.medium, config.snap_len)?;
        let buffer = Vec::with_capacity(config.buffer_bytes);
        let clock = Box::new(clock);
        Ok(Self { inner, writer, clock, buffer, config, missed: 0, missed_before_next: 0 })
    }

    /// Writes the recorded packets, and returns how many.
    ///
    /// # Errors
    /// The writer's; the recorded packets are then discarded, lest they be written twice.
    pub fn flush(&mut self) -> io::Result<usize> {
        let result = write_all(&self.buffer, &mut self.writer);
        self.buffer.clear();
        let written = result?;
        self.writer.get_mut().flush()?;
        Ok(written)
    }

    /// Packets that are not in the file because the buffer was full.
    #[must_use]
    pub const fn missed(&self) -> u64 {
        self.missed
    }

    /// The device inside.
    pub const fn inner(&self) -> &D {
        &self.inner
    }

    /// Flushes, and gives device and writer back.
    ///
    /// # Errors
    /// The writer's.
    pub fn finish(mut self) -> io::Result<(D, W)> {
        self.flush()?;
        Ok((self.inner, self.writer.into_inner()))
    }

    fn mark(&self) -> Mark {
        (self.buffer.len(), self.missed, self.missed_before_next)
    }

    /// Discards what was recorded since `mark`.
    fn return_to(&mut self, mark: Mark) {
        self.buffer.truncate(mark.0);
        (self.missed, self.missed_before_next) = (mark.1, mark.2);
    }

    fn remember(&mut self, packet: &PacketBuf, time: Duration, direction: CaptureDirection) {
        let snap = match self.config.snap_len {
            0 => usize::MAX,
            some => some as usize,
        };
        let len = packet.len().min(snap);
        if self.buffer.len() + RECORD_HEAD_BYTES + len > self.config.buffer_bytes {
            self.missed += 1;
            self.missed_before_next += 1;
            return;
        }
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buffer.extend(nanos.to_ne_bytes());
        self.buffer.extend(self.missed_before_next.to_ne_bytes());
        self.buffer.extend((packet.len() as u32).to_ne_bytes());
        self.buffer.extend((len as u32).to_ne_bytes());
        self.buffer.push(direction as u8);
        packet.chunks_in(0, len).for_each(|bytes| self.buffer.extend(bytes));
        self.missed_before_next = 0;
    }
}

/// Splits off one record of the buffer.
fn split_record(buffer: &[u8]) -> Option<(PacketBlock<'_>, &[u8])> {
    let (nanos, rest) = buffer.split_first_chunk()?;
    let (missed, rest) = rest.split_first_chunk()?;
    let (wire, rest) = rest.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    let (direction, rest) = rest.split_first()?;
    let (data, rest) = rest.split_at_checked(u32::from_ne_bytes(*len) as usize)?;
    let inbound = *direction == CaptureDirection::Inbound as u8;
    let block = PacketBlock {
        interface: 0,
        time: Duration::from_nanos(u64::from_ne_bytes(*nanos)),
        data,
        wire_len: u32::from_ne_bytes(*wire),
        direction: if inbound { CaptureDirection::Inbound } else { CaptureDirection::Outbound },
        missed: u64::from_ne_bytes(*missed),
        comment: None,
    };
    Some((block, rest))
}

fn write_all<W: Write>(mut buffer: &[u8], writer: &mut BlockWriter<W>) -> io::Result<usize> {
    let mut written = 0;
    while let Some((block, rest)) = split_record(buffer) {
        writer.packet(&block)?;
        buffer = rest;
        written += 1;
    }
    Ok(written)
}

impl<D: Device, W: Write + Send> Device for Recorder<D, W> {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        let before = burst.len();
        let taken = self.inner.receive(pool, burst)?;
        if taken > 0 {
            let time = (self.clock)();
            for packet in burst.iter().skip(before) {
                self.remember(packet, time, CaptureDirection::Inbound);
            }
        }
        Ok(taken)
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        let mut left = 0;
        while !packets.is_empty() {
            let time = (self.clock)();
            let mut batch = PacketList::new();
            let mut marks = [self.mark(); BURST_MAX + 1];
            for mark in marks.iter_mut().skip(1) {
                let Some(packet) = packets.pop_front() else { break };
                self.remember(&packet, time, CaptureDirection::Outbound);
                *mark = self.mark();
                batch.push_back(packet);
            }
            let offered = batch.len();
            let result = self.inner.transmit(&mut batch);
            let gone = offered.saturating_sub(batch.len());
            batch.append(packets);
            *packets = batch;
            left += gone;
            // Packets that stayed were not sent: they are recorded when they are.
            if let Some(mark) = marks.get(gone) {
                self.return_to(*mark);
            }
            result?;
            if gone < offered {
                break;
            }
        }
        Ok(left)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.inner.readiness()
    }

    fn rest(&mut self) {
        self.inner.rest();
    }

    fn pending(&self) -> bool {
        self.inner.pending()
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
        self.inner.stats()
    }
}

impl<D, W: Write> fmt::Debug for Recorder<D, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({} bytes recorded, {} missed)", self.buffer.len(), self.missed)
    }
}
