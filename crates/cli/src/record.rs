//! `--record`: every packet of a device into a pcapng file.
//!
//! Called by `run` when it opens devices. The worker only copies; a thread of its own writes, so a
//! slow disk never holds up packets. What it does not keep up with is missing in the file, and the
//! last line reports how many packets.
//!
//! Invariants: the file holds whole blocks only, in order; at most [`QUEUE_BYTES`] wait for the
//! disk. A packet is on its way to the file by the device's next call at the latest; all are there
//! when the run has ended, unless the disk takes longer than [`LAST_WRITES`] for what waits then.
//!
//! # Under flood
//! Packets that come faster than the disk writes are dropped from the recording, and counted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use floodwall_device::{
    Device, DeviceError, DeviceInfo, DeviceStats, FirstLinePlace, FirstLineReport, Recorder,
    RecorderConfig, ServiceSample,
};
use floodwall_dispatch::Clock;
use floodwall_packet::{Burst, PacketList, Pool};

/// Pieces that may wait for the disk.
const PIECES_MAX: usize = 256;
/// Bytes that may wait for the disk.
const QUEUE_BYTES: usize = 32 << 20;
/// How long the end of the run waits for the disk.
const LAST_WRITES: Duration = Duration::from_secs(5);
/// A block with a packet, in the file's byte order.
const PACKET_BLOCK: u32 = 6;

/// What the worker and the writing thread share.
#[derive(Debug, Default)]
struct RecordQueue {
    /// Bytes on their way to the file.
    waiting: AtomicUsize,
    /// Packets that are not in the file.
    lost: AtomicU64,
}

/// A device that is recorded.
struct RecordedPacket {
    recorder: Recorder<Box<dyn Device>, RecordPiece>,
    /// Bytes wait in the recorder.
    owes: bool,
}

/// The recorder's writer: collects whole blocks, and hands them to the thread that writes.
struct RecordPiece {
    bytes: Vec<u8>,
    disk: SyncSender<Vec<u8>>,
    queue: Arc<RecordQueue>,
}

impl Write for RecordPiece {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Hands over what was collected, or keeps it where the disk lags behind; too much is lost.
    fn flush(&mut self) -> io::Result<()> {
        let len = self.bytes.len();
        if self.queue.waiting.load(Ordering::Relaxed) + len > QUEUE_BYTES {
            let packets = packets_in(&self.bytes);
            self.bytes.clear();
            return self.lose(packets);
        }
        self.queue.waiting.fetch_add(len, Ordering::Relaxed);
        let Err(refused) = self.disk.try_send(std::mem::take(&mut self.bytes)) else {
            return Ok(());
        };
        self.queue.waiting.fetch_sub(len, Ordering::Relaxed);
        match refused {
            TrySendError::Full(bytes) => {
                self.bytes = bytes;
                Ok(())
            }
            TrySendError::Disconnected(bytes) => self.lose(packets_in(&bytes)),
        }
    }
}

impl RecordPiece {
    #[cold]
    fn lose(&self, packets: u64) -> io::Result<()> {
        self.queue.lost.fetch_add(packets, Ordering::Relaxed);
        Err(io::ErrorKind::StorageFull.into())
    }
}

/// The number of packets in whole blocks of ours.
fn packets_in(mut blocks: &[u8]) -> u64 {
    let mut packets = 0;
    while let Some((kind, rest)) = blocks.split_first_chunk()
        && let Some(len) = rest.first_chunk()
    {
        packets += u64::from(u32::from_ne_bytes(*kind) == PACKET_BLOCK);
        let len = (u32::from_ne_bytes(*len) as usize).max(8);
        blocks = blocks.get(len..).unwrap_or_default();
    }
    packets
}

impl RecordedPacket {
    fn hand_over(&mut self) {
        if std::mem::take(&mut self.owes) {
            // What is lost here was counted where it was lost.
            let _ = self.recorder.flush();
        }
    }
}

impl Device for RecordedPacket {
    fn info(&self) -> &DeviceInfo {
        self.recorder.info()
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
        self.hand_over();
        let count = self.recorder.receive_while(pool, burst, goes_on)?;
        self.owes |= count > 0;
        Ok(count)
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        let count = self.recorder.transmit(packets);
        self.owes = true;
        self.hand_over();
        count
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.recorder.readiness()
    }

    fn rest(&mut self) {
        self.recorder.rest();
    }

    fn pending(&self) -> bool {
        self.recorder.pending()
    }

    fn first_line(&self) -> FirstLinePlace {
        self.recorder.first_line()
    }

    fn first_line_report(&self) -> FirstLineReport {
        self.recorder.first_line_report()
    }

    fn sampled_services(&self) -> Vec<ServiceSample> {
        self.recorder.sampled_services()
    }

    fn reads_by_calls(&self) -> bool {
        self.recorder.reads_by_calls()
    }

    fn ring(&self) -> usize {
        self.recorder.ring()
    }

    fn stats(&self) -> DeviceStats {
        self.recorder.stats()
    }
}

impl Drop for RecordedPacket {
    fn drop(&mut self) {
        self.owes = true;
        self.hand_over();
    }
}

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Recording {
    path: PathBuf,
    ended: Receiver<io::Result<u64>>,
    queue: Arc<RecordQueue>,
}

/// Records `device` to `path`, which is made anew, for its owner's eyes only.
pub(crate) fn record(
    device: Box<dyn Device>,
    path: &Path,
) -> io::Result<(Box<dyn Device>, Recording)> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let (disk, pieces) = mpsc::sync_channel(PIECES_MAX);
    let queue = Arc::new(RecordQueue::default());
    let piece = RecordPiece { bytes: Vec::new(), disk, queue: Arc::clone(&queue) };
    let clock = Clock::new();
    let recorder =
        Recorder::new(device, piece, RecorderConfig::default(), move || clock.unix_time())?;
    let builder = thread::Builder::new().name("record".to_owned());
    let (tell, ended) = mpsc::sync_channel(1);
    let shared = Arc::clone(&queue);
    builder.spawn(move || {
        // Nothing waits for it after `LAST_WRITES`.
        let _ = tell.send(write(file, &pieces, &shared));
    })?;
    let recorded = RecordedPacket { recorder, owes: true };
    Ok((Box::new(recorded), Recording { path: path.to_owned(), ended, queue }))
}

/// Writes until the device is gone; returns the number of bytes.
fn write(mut file: File, pieces: &Receiver<Vec<u8>>, queue: &RecordQueue) -> io::Result<u64> {
    let mut written = 0;
    for piece in pieces {
        file.write_all(&piece)?;
        written += piece.len() as u64;
        queue.waiting.fetch_sub(piece.len(), Ordering::Relaxed);
    }
    file.sync_data()?;
    Ok(written)
}

impl Recording {
    /// Waits until all is written, for [`LAST_WRITES`] at most; to be called when the device has
    /// been dropped.
    pub(crate) fn end(self) -> Result<String, String> {
        let path = self.path.display();
        let lost = || self.queue.lost.load(Ordering::Relaxed);
        match self.ended.recv_timeout(LAST_WRITES) {
            Ok(Ok(bytes)) => match lost() {
                0 => Ok(format!("recorded {bytes} bytes to {path}")),
                lost => {
                    Err(format!("the recording {path} lacks {lost} packets: the disk was too slow"))
                }
            },
            Ok(Err(error)) => Err(format!("the recording {path} is incomplete: {error}")),
            Err(RecvTimeoutError::Timeout) => {
                let waiting = self.queue.waiting.load(Ordering::Relaxed);
                Err(format!(
                    "the recording {path} lacks {} packets, and its last {waiting} bytes: the \
                     disk was too slow",
                    lost()
                ))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(format!("the recording {path} is incomplete: its thread panicked"))
            }
        }
    }
}

/// The file for one of several devices: `all.pcapng` becomes `all.fw0.pcapng`.
pub(crate) fn path_of(file: &Path, device: &str, queue: usize, is_only: bool) -> PathBuf {
    if is_only {
        return file.to_owned();
    }
    let stem = file.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    let extension = file.extension().map(|e| format!(".{}", e.to_string_lossy()));
    let number = if queue == 0 { String::new() } else { format!("-{queue}") };
    file.with_file_name(format!("{stem}.{device}{number}{}", extension.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use floodwall_device::{pair, read_capture};
    use floodwall_packet::PoolConfig;

    use super::*;

    #[test]
    fn both_directions_are_in_the_file_when_the_device_is_gone() {
        let path = std::env::temp_dir().join(format!("fw-record-{}.pcapng", std::process::id()));
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let (near, mut far) = pair(64);
        let (mut near, recording) = record(Box::new(near), &path).unwrap();
        let send = |device: &mut dyn Device, mark: u8| {
            let mut list = PacketList::new();
            list.push_back(pool.packet_from(&[mark; 60]).unwrap());
            assert_eq!(device.transmit(&mut list).unwrap(), 1);
        };
        send(near.as_mut(), 1);
        send(&mut far, 2);
        let mut burst = Burst::new();
        assert_eq!(near.receive(&pool, &mut burst).unwrap(), 1);
        drop((near, burst));
        let told = recording.end().unwrap();
        assert!(told.starts_with("recorded "), "{told}");
        let capture = read_capture(&path).unwrap();
        let marks: Vec<_> = capture.packets.iter().map(|packet| packet.bytes[0]).collect();
        assert_eq!(marks, [1, 2]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_disk_that_lags_behind_loses_packets_that_are_counted_and_takes_no_more_memory() {
        let (disk, pieces) = mpsc::sync_channel(2);
        let queue = Arc::new(RecordQueue::default());
        let mut piece = RecordPiece { bytes: Vec::new(), disk, queue: Arc::clone(&queue) };
        let mut put = |blocks: usize, len: u32| {
            for _ in 0..blocks {
                let mut block = vec![0; len as usize];
                block[..4].copy_from_slice(&PACKET_BLOCK.to_ne_bytes());
                block[4..8].copy_from_slice(&len.to_ne_bytes());
                piece.write_all(&block).unwrap();
            }
            piece.flush()
        };
        let waiting = || queue.waiting.load(Ordering::Relaxed);
        let lost = || queue.lost.load(Ordering::Relaxed);
        let half = QUEUE_BYTES as u32 / 2;
        assert!(put(1, half).is_ok() && put(1, half - 64).is_ok());
        assert_eq!((waiting(), lost()), (QUEUE_BYTES - 64, 0));
        assert!(put(3, 32).is_err(), "too much would wait");
        assert_eq!((waiting(), lost()), (QUEUE_BYTES - 64, 3));
        assert!(put(2, 32).is_ok(), "no place, but room: it is kept");
        assert_eq!((waiting(), lost()), (QUEUE_BYTES - 64, 3));
        let written = pieces.try_recv().unwrap().len();
        queue.waiting.fetch_sub(written, Ordering::Relaxed);
        assert!(put(1, 32).is_ok(), "and then it goes on");
        assert_eq!((waiting(), lost()), (half as usize + 32, 3));
        assert_eq!(pieces.try_recv().unwrap().len(), half as usize - 64);
        assert_eq!(pieces.try_recv().unwrap().len(), 96);
    }

    #[test]
    fn several_devices_get_a_file_each() {
        let file = Path::new("/x/all.pcapng");
        assert_eq!(path_of(file, "fw0", 0, true), file);
        assert_eq!(path_of(file, "fw0", 0, false), Path::new("/x/all.fw0.pcapng"));
        assert_eq!(path_of(file, "fw0", 2, false), Path::new("/x/all.fw0-2.pcapng"));
        assert_eq!(path_of(Path::new("all"), "fw1", 0, false), Path::new("all.fw1"));
    }
}
