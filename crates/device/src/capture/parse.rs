//! From the bytes of a capture file to packets.
//!
//! Called by `capture.rs` only. The records themselves are parsed by `pcap-parser`; this file walks
//! from one to the next, keeps the interfaces of a pcapng section and converts ticks to times.
//! Invariant: every step consumes at least one byte, so the walk ends.

use core::time::Duration;

use pcap_parser::nom;
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, PcapHeader};

use super::{Capture, CapturedPacket, LinkType, Truncation};

/// The first word of a pcapng file; it reads the same in both byte orders.
const SECTION_BLOCK: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Bytes of the largest record that any tool writes; more is a broken length.
const RECORD_MAX: usize = 1 << 24;
const NANOS_PER_SECOND: u128 = 1_000_000_000;

pub(super) fn parse(bytes: &[u8]) -> Result<Capture, Truncation> {
    if bytes.starts_with(&SECTION_BLOCK) { parse_pcapng(bytes) } else { parse_pcap(bytes) }
}

fn broken(offset: usize, reason: &'static str) -> Truncation {
    Truncation { offset, reason }
}

/// How the reading of one record ended, where it gave none.
fn damage<E>(error: &nom::Err<E>, offset: usize) -> Truncation {
    match error {
        nom::Err::Incomplete(_) => broken(offset, "the file ends in the middle of this record"),
        _ => broken(offset, "this record is malformed"),
    }
}

fn parse_pcap(bytes: &[u8]) -> Result<Capture, Truncation> {
    let (mut rest, header) =
        pcap_parser::parse_pcap_header(bytes).map_err(|error| match error {
            nom::Err::Incomplete(_) => broken(0, "the file ends within its header"),
            _ => broken(0, "this is neither a pcap nor a pcapng file"),
        })?;
    // The upper bits describe a frame check sequence.
    let link = LinkType::of_number(header.network.0.cast_unsigned() & 0x0fff_ffff);
    let mut capture = Capture::default();
    while !rest.is_empty() {
        let offset = bytes.len() - rest.len();
        let record = if header.is_modified_format() {
            pcap_parser::parse_pcap_frame_modified(rest)
        } else if header.is_bigendian() {
            pcap_parser::parse_pcap_frame_be(rest)
        } else {
            pcap_parser::parse_pcap_frame(rest)
        };
        let (behind, record) = match record {
            Ok(found) => found,
            Err(error) => {
                capture.truncated_at = Some(record_damage(&error, rest, &header, offset));
                break;
            }
        };
        let data = record.data.get(..record.caplen as usize).unwrap_or(record.data);
        capture.packets.push(CapturedPacket {
            time: pcap_time(&header, record.ts_sec, record.ts_usec),
            link,
            bytes: data.to_vec(),
            wire_len: record.origlen,
        });
        rest = behind;
    }
    Ok(capture)
}

/// Distinguishes an implausible length from a truncated file.
fn record_damage<E>(
    error: &nom::Err<E>,
    record: &[u8],
    header: &PcapHeader,
    offset: usize,
) -> Truncation {
    let len = record.get(8..12).and_then(<[u8]>::first_chunk).map_or(0, |word: &[u8; 4]| {
        if header.is_bigendian() { u32::from_be_bytes(*word) } else { u32::from_le_bytes(*word) }
    });
    if len as usize > RECORD_MAX {
        return broken(offset, "this record claims more bytes than any packet has");
    }
    damage(error, offset)
}

fn pcap_time(header: &PcapHeader, seconds: u32, fraction: u32) -> Duration {
    let nanos = if header.is_nanosecond_precision() {
        u64::from(fraction)
    } else {
        u64::from(fraction) * 1000
    };
    Duration::from_secs(u64::from(seconds)).saturating_add(Duration::from_nanos(nanos))
}

/// A pcapng section's description of one interface.
struct Described {
    link: LinkType,
    /// Ticks of a second.
    resolution: u64,
    /// Seconds to add.
    offset: i64,
}

fn parse_pcapng(bytes: &[u8]) -> Result<Capture, Truncation> {
    let mut capture = Capture::default();
    let mut interfaces: Vec<Described> = Vec::new();
    let mut big_endian = false;
    let mut rest = bytes;
    while !rest.is_empty() {
        let offset = bytes.len() - rest.len();
        if rest.starts_with(&SECTION_BLOCK) {
            big_endian = rest.get(8..12) == Some(&[0x1a, 0x2b, 0x3c, 0x4d]);
            interfaces.clear();
        }
        let block = if big_endian {
            pcap_parser::parse_block_be(rest)
        } else {
            pcap_parser::parse_block_le(rest)
        };
        let (behind, block) = match block {
            Ok(found) => found,
            Err(error) if offset == 0 => {
                return Err(broken(
                    0,
                    match error {
                        nom::Err::Incomplete(_) => "the file ends within its section header",
                        _ => "the section header is malformed",
                    },
                ));
            }
            Err(error) => {
                capture.truncated_at = Some(damage(&error, offset));
                break;
            }
        };
        if behind.len() >= rest.len() {
            capture.truncated_at = Some(broken(offset, "this record has no length"));
            break;
        }
        if let Err(reason) = take_block(&block, &mut interfaces, &mut capture) {
            capture.truncated_at = Some(broken(offset, reason));
            break;
        }
        rest = behind;
    }
    Ok(capture)
}

fn take_block(
    block: &Block<'_>,
    interfaces: &mut Vec<Described>,
    capture: &mut Capture,
) -> Result<(), &'static str> {
    const UNKNOWN: &str = "this packet names an interface that the section does not describe";
    match block {
        Block::InterfaceDescription(interface) => interfaces.push(Described {
            link: LinkType::of_number(interface.linktype.0.cast_unsigned()),
            resolution: interface.ts_resolution().filter(|r| *r > 0).unwrap_or(1_000_000),
            offset: interface.ts_offset(),
        }),
        Block::EnhancedPacket(packet) => {
            let interface = interfaces.get(packet.if_id as usize).ok_or(UNKNOWN)?;
            let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            capture.packets.push(CapturedPacket {
                time: interface.time(ticks),
                link: interface.link,
                bytes: packet.packet_data().to_vec(),
                wire_len: packet.origlen,
            });
        }
        Block::SimplePacket(packet) => {
            let interface = interfaces.first().ok_or(UNKNOWN)?;
            capture.packets.push(CapturedPacket {
                time: Duration::ZERO,
                link: interface.link,
                bytes: packet.packet_data().to_vec(),
                wire_len: packet.origlen,
            });
        }
        _ => {}
    }
    Ok(())
}

impl Described {
    fn time(&self, ticks: u64) -> Duration {
        let nanos =
            u128::from(ticks % self.resolution) * NANOS_PER_SECOND / u128::from(self.resolution);
        let seconds = (ticks / self.resolution).saturating_add_signed(self.offset);
        // The remainder of a division by the resolution is less than a second.
        Duration::new(seconds, nanos as u32)
    }
}
