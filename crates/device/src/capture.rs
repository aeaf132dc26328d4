//! Capture files: reading them whole, and what link type a packet in them has.
//!
//! Called by [`Replay`](crate::Replay), by the programs, and by tests and fuzzers that feed the
//! stack. Both formats, pcap and pcapng, in both byte orders. Invariant: no file, however broken,
//! causes a panic or takes more memory than a few times its size. The packets before the damage are
//! returned, with a note of its position. Reading: draft-ietf-opsawg-pcap and
//! draft-ietf-opsawg-pcapng.

use core::time::Duration;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

mod annotated;
mod blocks;
mod parse;
mod recorder;
mod replay;

pub use annotated::{AnnotatedPacket, AnnotatedWriter};
pub use recorder::{Recorder, RecorderConfig};
pub use replay::Replay;

/// The link header of packets in a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LinkType {
    /// Four bytes with the address family, in either byte order (0 and 108).
    BsdLoopback,
    /// An Ethernet header (1).
    Ethernet,
    /// Linux "cooked" capture, 16 bytes (113).
    LinuxCooked,
    /// Linux "cooked" capture, version 2, 20 bytes (276).
    LinuxCooked2,
    /// Anything else, by its number: the bytes are given, but no IP packet is found in them.
    Other(u32),
    /// Nothing: an IP packet (101, 12, 14, 228, 229).
    RawIp,
}

impl LinkType {
    /// The link type for a number of the registry at tcpdump.org.
    #[must_use]
    pub const fn of_number(number: u32) -> Self {
        match number {
            0 | 108 => Self::BsdLoopback,
            1 => Self::Ethernet,
            12 | 14 | 101 | 228 | 229 => Self::RawIp,
            113 => Self::LinuxCooked,
            276 => Self::LinuxCooked2,
            other => Self::Other(other),
        }
    }
}

/// One packet of a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapturedPacket {
    /// Time of capture, since 1970-01-01 00:00 UTC; zero where the file has none.
    pub time: Duration,
    /// What its bytes begin with.
    pub link: LinkType,
    /// Its bytes, as many as were captured.
    pub bytes: Vec<u8>,
    /// Its bytes on the wire.
    pub wire_len: u32,
}

impl CapturedPacket {
    /// The IP packet within, including trailing padding; `None` where there is none.
    #[must_use]
    pub fn ip(&self) -> Option<&[u8]> {
        let bytes = self.bytes.as_slice();
        let inside = match self.link {
            LinkType::Ethernet => inside_ethernet(bytes)?,
            LinkType::RawIp => bytes,
            LinkType::BsdLoopback => inside_loopback(bytes)?,
            LinkType::LinuxCooked => is_ip(bytes.get(14..16)?).then(|| bytes.get(16..))??,
            LinkType::LinuxCooked2 => is_ip(bytes.get(..2)?).then(|| bytes.get(20..))??,
            LinkType::Other(_) => return None,
        };
        matches!(inside.first()? >> 4, 4 | 6).then_some(inside)
    }
}

/// Behind the Ethernet header and up to two tags.
fn inside_ethernet(bytes: &[u8]) -> Option<&[u8]> {
    let mut at = 12;
    for _ in 0..3 {
        let protocol = bytes.get(at..at + 2)?;
        if is_ip(protocol) {
            return bytes.get(at + 2..);
        }
        if !matches!(protocol, [0x81, 0x00] | [0x88, 0xa8] | [0x91, 0x00]) {
            return None;
        }
        at += 4;
    }
    None
}

/// Behind the address family: 2 everywhere for IPv4; 24, 28, 30 and 10 for IPv6, by system.
fn inside_loopback(bytes: &[u8]) -> Option<&[u8]> {
    let family = u32::from_be_bytes(*bytes.first_chunk()?);
    let family = if family > 0xffff { family.swap_bytes() } else { family };
    matches!(family, 2 | 10 | 24 | 28 | 30).then(|| bytes.get(4..))?
}

fn is_ip(protocol: &[u8]) -> bool {
    matches!(protocol, [0x08, 0x00] | [0x86, 0xdd])
}

/// Where and how a capture stops making sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncation {
    /// Bytes from the file's start to the record that is broken.
    pub offset: usize,
    /// What is wrong there.
    pub reason: &'static str,
}

/// A capture, read whole.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Capture {
    /// Its packets in order.
    pub packets: Vec<CapturedPacket>,
    /// Where it breaks off, where it does: everything before is in `packets`.
    pub truncated_at: Option<Truncation>,
}

/// Why a file gives no capture at all.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The system cannot read it.
    #[error("{}: cannot read the capture: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is no capture.
    #[error("{}: at byte {offset}: {reason}", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// Bytes from the file's start to what is wrong.
        offset: usize,
        /// What is wrong.
        reason: &'static str,
    },
}

/// Reads a capture file, pcap or pcapng.
///
/// # Errors
/// The file cannot be read, or is no capture. A file that breaks off is no error: see
/// [`Capture::truncated_at`].
pub fn read_capture(path: impl AsRef<Path>) -> Result<Capture, CaptureError> {
    let path = path.as_ref();
    let bytes =
        fs::read(path).map_err(|source| CaptureError::Io { path: path.to_owned(), source })?;
    parse::parse(&bytes).map_err(|broken| CaptureError::Malformed {
        path: path.to_owned(),
        offset: broken.offset,
        reason: broken.reason,
    })
}

/// Reads a capture from memory: what fuzzers call.
///
/// # Errors
/// Where the bytes begin as no capture does, and why.
pub fn parse_capture(bytes: &[u8]) -> Result<Capture, Truncation> {
    parse::parse(bytes)
}

#[cfg(test)]
mod tests;
