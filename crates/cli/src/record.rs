//! `--record`: every packet of a device into a pcapng file.
//!
//! Called by `run` when it opens devices. The worker only copies; a thread of its own writes, so a
//! slow disk never holds up packets. What it does not keep up with is missing in the file, and the
//! last line reports how many bytes.
//!
//! Invariant: the file holds whole blocks only, in order. A packet is on its way to the file by the
//! device's next call at the latest; all are there when the run has ended.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread::{self, JoinHandle};

use floodwall_device::{Device, DeviceError, DeviceInfo, DeviceStats, Recorder, RecorderConfig};
use floodwall_dispatch::Clock;
use floodwall_packet::{Burst, PacketList, Pool};

/// Pieces that may wait for the disk.
const PIECES_MAX: usize = 256;
/// Bytes of a piece that could not be handed over yet.
const PIECE_MAX: usize = 8 << 20;

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
    /// Bytes that are not in the file.
    lost: Arc<AtomicU64>,
}

impl Write for RecordPiece {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Hands over what was collected, or keeps it where the disk lags behind; too much is lost.
    fn flush(&mut self) -> io::Result<()> {
        match self.disk.try_send(std::mem::take(&mut self.bytes)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(bytes)) if bytes.len() < PIECE_MAX => {
                self.bytes = bytes;
                Ok(())
            }
            Err(TrySendError::Full(bytes) | TrySendError::Disconnected(bytes)) => {
                self.lost.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                Err(io::ErrorKind::StorageFull.into())
            }
        }
    }
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
        self.hand_over();
        let count = self.recorder.receive(pool, burst)?;
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
    thread: JoinHandle<io::Result<u64>>,
    lost: Arc<AtomicU64>,
}

/// Records `device` to `path`, which is made anew, for its owner's eyes only.
pub(crate) fn record(
    device: Box<dyn Device>,
    path: &Path,
) -> io::Result<(Box<dyn Device>, Recording)> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let (disk, pieces) = mpsc::sync_channel(PIECES_MAX);
    let lost = Arc::new(AtomicU64::new(0));
    let piece = RecordPiece { bytes: Vec::new(), disk, lost: Arc::clone(&lost) };
    let clock = Clock::new();
    let recorder =
        Recorder::new(device, piece, RecorderConfig::default(), move || clock.unix_time())?;
    let builder = thread::Builder::new().name("record".to_owned());
    let thread = builder.spawn(move || write(file, &pieces))?;
    let recorded = RecordedPacket { recorder, owes: true };
    Ok((Box::new(recorded), Recording { path: path.to_owned(), thread, lost }))
}

/// Writes until the device is gone; returns the number of bytes.
fn write(mut file: File, pieces: &Receiver<Vec<u8>>) -> io::Result<u64> {
    let mut written = 0;
    for piece in pieces {
        file.write_all(&piece)?;
        written += piece.len() as u64;
    }
    file.sync_data()?;
    Ok(written)
}

impl Recording {
    /// Waits until all is written; to be called when the device has been dropped.
    pub(crate) fn end(self) -> Result<String, String> {
        let path = self.path.display();
        match self.thread.join() {
            Ok(Ok(bytes)) => match self.lost.load(Ordering::Relaxed) {
                0 => Ok(format!("recorded {bytes} bytes to {path}")),
                lost => {
                    Err(format!("the recording {path} lacks {lost} bytes: the disk was too slow"))
                }
            },
            Ok(Err(error)) => Err(format!("the recording {path} is incomplete: {error}")),
            Err(_) => Err(format!("the recording {path} is incomplete: its thread panicked")),
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
    fn a_disk_that_lags_behind_loses_whole_pieces_and_holds_nobody_up() {
        let (disk, pieces) = mpsc::sync_channel(1);
        let lost = Arc::new(AtomicU64::new(0));
        let mut piece = RecordPiece { bytes: Vec::new(), disk, lost: Arc::clone(&lost) };
        let mut put = |n: usize| {
            piece.write_all(&vec![7; n]).unwrap();
            piece.flush()
        };
        assert!(put(10).is_ok() && put(10).is_ok());
        assert!(put(PIECE_MAX).is_err(), "too much waits");
        assert_eq!(lost.load(Ordering::Relaxed), PIECE_MAX as u64 + 10);
        assert!(put(5).is_ok(), "and then it goes on");
        assert_eq!(pieces.try_recv().unwrap().len(), 10);
        assert!(put(5).is_ok());
        assert_eq!(pieces.try_recv().unwrap().len(), 10);
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
