//! `floodwall capture`: writes packets of a running instance to a pcapng file.
//!
//! The instance streams whole pcapng blocks; this side writes only whole ones, so that the file is
//! valid whenever it ends: at its limits, at SIGINT, with the instance.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::CaptureArgs;
use crate::capture::{CaptureRequest, read_filter};
use crate::exit::Exit;
use crate::socket::{REQUEST_MAX, path};

/// How long a read waits until signals are looked at.
const READ_TIMEOUT: Duration = Duration::from_millis(200);
/// Bytes of the longest block that is believed.
const BLOCK_MAX: usize = 1 << 20;
/// The type of a block with a packet.
const PACKET_BLOCK: u32 = 6;

/// Captures until a limit or a signal.
pub(crate) fn capture(args: &CaptureArgs) -> Exit {
    let filter = args.filter.join(" ");
    if let Err(why) = read_filter(&filter) {
        eprintln!("floodwall: {why}");
        return Exit::Usage;
    }
    let (dropped, count, seconds) = (args.dropped, args.count, args.seconds);
    let request = CaptureRequest { dropped, count, seconds, snap_len: args.snaplen, filter };
    let line = format!("capture {}\n", request.line());
    if line.len() > REQUEST_MAX {
        eprintln!("floodwall: the filter is too long");
        return Exit::Usage;
    }
    let socket = match path::find(args.socket.as_deref()) {
        Ok(socket) => socket,
        Err(exit) => return exit,
    };
    let mut stream = match UnixStream::connect(&socket) {
        Ok(stream) => stream,
        Err(error) => {
            eprintln!("floodwall: no instance is reached on {}: {error}", socket.display());
            return Exit::Unreachable;
        }
    };
    let mut out = match open(&args.file) {
        Ok(out) => out,
        Err(error) => {
            eprintln!("floodwall: cannot write {}: {error}", args.file.display());
            return Exit::Usage;
        }
    };
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Without it the signal ends the process; the file is valid then, too.
        let _ = signal_hook::flag::register(signal, Arc::clone(&ends));
    }
    let sent = stream
        .set_read_timeout(Some(READ_TIMEOUT))
        .and_then(|()| stream.write_all(line.as_bytes()));
    let copied = sent
        .map_err(CaptureError::Instance)
        .and_then(|()| copy(&mut stream, &mut out, &|| ends.load(Ordering::Relaxed)));
    told(copied, &args.file)
}

fn told(copied: Result<CaptureCounts, CaptureError>, file: &Path) -> Exit {
    match copied {
        Ok(CaptureCounts { packets, .. }) => {
            eprintln!("floodwall: {packets} packets captured");
            Exit::Done
        }
        Err(CaptureError::Refused(why)) => {
            eprintln!("floodwall: the instance refused: {why}");
            Exit::Refused
        }
        Err(CaptureError::Instance(error)) => {
            eprintln!("floodwall: the instance does not answer: {error}");
            Exit::Unreachable
        }
        // A closed pipe (as from `head`) is no failure.
        Err(CaptureError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
        Err(CaptureError::Output(error)) => {
            eprintln!("floodwall: cannot write {}: {error}", file.display());
            Exit::Usage
        }
    }
}

/// The file, for its owner only; `-` is standard output.
fn open(path: &Path) -> io::Result<Box<dyn Write>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdout()));
    }
    let mut options = OpenOptions::new();
    let file: File = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
    Ok(Box::new(CaptureFile { file, has_begun: false }))
}

/// A file that is emptied when its first block comes, so that a capture that is refused leaves what
/// was there.
struct CaptureFile {
    file: File,
    has_begun: bool,
}

impl Write for CaptureFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !std::mem::replace(&mut self.has_begun, true) && self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Why a capture failed.
#[derive(Debug)]
enum CaptureError {
    Refused(String),
    Instance(io::Error),
    Output(io::Error),
}

#[derive(Debug, Default, PartialEq)]
struct CaptureCounts {
    packets: u64,
    bytes: u64,
}

/// Copies whole blocks until the stream ends, or `ends` is true.
fn copy(
    stream: &mut impl Read,
    out: &mut impl Write,
    ends: &dyn Fn() -> bool,
) -> Result<CaptureCounts, CaptureError> {
    let (mut waiting, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    let mut counts = CaptureCounts::default();
    while !ends() {
        let read = match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => {
                    continue;
                }
                _ => return Err(CaptureError::Instance(error)),
            },
        };
        waiting.extend_from_slice(piece.get(..read).unwrap_or_default());
        let whole = whole_blocks(&waiting, &mut counts).map_err(CaptureError::Instance)?;
        let Some(blocks) = waiting.get(..whole).filter(|blocks| !blocks.is_empty()) else {
            continue;
        };
        out.write_all(blocks).and_then(|()| out.flush()).map_err(CaptureError::Output)?;
        waiting.drain(..whole);
    }
    match (counts.bytes, waiting.first()) {
        (0, Some(b'{')) => {
            let answer: serde_json::Value = serde_json::from_slice(&waiting).unwrap_or_default();
            let why = answer.get("error").and_then(|error| error.as_str());
            Err(CaptureError::Refused(why.unwrap_or("its answer makes no sense").to_owned()))
        }
        (0, None) if !ends() => Err(CaptureError::Instance(io::ErrorKind::UnexpectedEof.into())),
        _ => Ok(counts),
    }
}

/// Bytes of the whole blocks at the front, which are counted.
fn whole_blocks(bytes: &[u8], counts: &mut CaptureCounts) -> io::Result<usize> {
    let mut at = 0;
    if bytes.first() == Some(&b'{') {
        return Ok(0);
    }
    loop {
        let word = |from: usize| {
            let four = bytes.get(from..from + 4)?.first_chunk::<4>()?;
            Some(u32::from_ne_bytes(*four))
        };
        let (Some(kind), Some(len)) = (word(at), word(at + 4)) else { return Ok(at) };
        let len = len as usize;
        if !(12..=BLOCK_MAX).contains(&len) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if bytes.len() < at + len {
            return Ok(at);
        }
        counts.packets += u64::from(kind == PACKET_BLOCK);
        counts.bytes += len as u64;
        at += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its pieces one after the other.
    struct Pieces(Vec<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            let piece = if self.0.is_empty() { Vec::new() } else { self.0.remove(0) };
            room[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    fn block(kind: u32, len: u32) -> Vec<u8> {
        let mut block = vec![0; len as usize];
        block[..4].copy_from_slice(&kind.to_ne_bytes());
        block[4..8].copy_from_slice(&len.to_ne_bytes());
        block
    }

    #[test]
    fn only_whole_blocks_are_written() {
        let whole = [block(0x0a0d_0d0a, 28), block(PACKET_BLOCK, 64)].concat();
        let all = [whole.clone(), block(PACKET_BLOCK, 100)[..99].to_vec()].concat();
        for cut in [1, 13, 28, 40, 100] {
            let mut out = Vec::new();
            let mut pieces = Pieces(vec![all[..cut].to_vec(), all[cut..].to_vec()]);
            let counts = copy(&mut pieces, &mut out, &|| false).unwrap();
            assert_eq!((counts, &out), (CaptureCounts { packets: 1, bytes: 92 }, &whole));
        }
        // A length that no block has.
        let mut pieces = Pieces(vec![[PACKET_BLOCK, 4].map(u32::to_ne_bytes).concat()]);
        assert!(matches!(
            copy(&mut pieces, &mut Vec::new(), &|| false),
            Err(CaptureError::Instance(_))
        ));
        let mut pieces = Pieces(vec![b"{\"error\":\"busy\"}\n".to_vec()]);
        let error = copy(&mut pieces, &mut Vec::new(), &|| false).unwrap_err();
        assert!(matches!(error, CaptureError::Refused(why) if why == "busy"));
    }
}
