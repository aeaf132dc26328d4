//! The vendored captures, and a reader for their two formats.
//!
//! Many of them are broken on purpose: the reader gives what can be read and stops where a record's
//! length is wrong. Reading: the IETF drafts on the PCAP and PCAPNG capture file formats.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Link type of Ethernet frames.
pub const ETHERNET: u32 = 1;
/// Link types of bare IP packets: raw, by OpenBSD's and BSD/OS's numbers too, IPv4, IPv6.
pub const BARE_IP: [u32; 5] = [101, 12, 14, 228, 229];

/// One packet of a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Captured {
    /// The link type of the interface it was seen on.
    pub link: u32,
    /// What was captured; perhaps not all of it.
    pub bytes: Vec<u8>,
    /// How many bytes it had.
    pub original_len: usize,
}

impl Captured {
    /// The frame, where the link is Ethernet; else `None`.
    #[must_use]
    pub fn frame(&self) -> Option<&[u8]> {
        (self.link == ETHERNET).then_some(&self.bytes)
    }

    /// The IP packet without its link header, where the link is Ethernet or there is none.
    #[must_use]
    pub fn ip_packet(&self) -> Option<&[u8]> {
        if BARE_IP.contains(&self.link) {
            return Some(&self.bytes);
        }
        let frame = self.frame()?;
        let header = floodwall_wire::EthernetHeader::parse(frame).ok()?;
        frame.get(header.header_len()..)
    }
}

/// The captures of the repository, sorted by path.
#[must_use]
pub fn vendored() -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(&root().join("data/pcaps"), &mut found);
    found
}

/// More captures, for optional deep tests: those of the folder that `FLOODWALL_CAPTURES` names, or
/// of one beside the checkout. Prints one line when there are none, naming `test`.
#[must_use]
pub fn optional(test: &str) -> Vec<PathBuf> {
    let beside = root().join("../shared/data/pcaps");
    let folder = env::var_os("FLOODWALL_CAPTURES").map_or(beside, PathBuf::from);
    let mut found = Vec::new();
    collect(&folder, &mut found);
    if found.is_empty() {
        eprintln!("skipped: {test} with more captures: none in {}", folder.display());
    }
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "pcap" || ext == "pcapng") {
            found.push(path);
        }
    }
}

/// The packets of a capture file, as far as they can be read.
///
/// # Errors
/// The file cannot be read, or is of neither format.
pub fn read(path: &Path) -> io::Result<Vec<Captured>> {
    let bytes = fs::read(path)?;
    parse(&bytes).ok_or_else(|| {
        let what = format!("{}: neither pcap nor pcapng", path.display());
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// The packets in the bytes of a capture file; `None` where they are of neither format.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<Vec<Captured>> {
    match bytes.first_chunk::<4>()? {
        [0x0a, 0x0d, 0x0d, 0x0a] => Some(parse_pcapng(bytes)),
        [0xd4 | 0x4d, 0xc3 | 0x3c, 0xb2, 0xa1] => Some(parse_pcap(bytes, Order::Little, 16)),
        [0xa1, 0xb2, 0xc3 | 0x3c, 0xd4 | 0x4d] => Some(parse_pcap(bytes, Order::Big, 16)),
        // Kuznetzov's variant: eight more bytes a record.
        [0x34, 0xcd, 0xb2, 0xa1] => Some(parse_pcap(bytes, Order::Little, 24)),
        [0xa1, 0xb2, 0xcd, 0x34] => Some(parse_pcap(bytes, Order::Big, 24)),
        _ => None,
    }
}

#[derive(Clone, Copy)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn long(self, bytes: &[u8], at: usize) -> Option<u32> {
        let four = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => u32::from_le_bytes(four),
            Self::Big => u32::from_be_bytes(four),
        })
    }

    fn word(self, bytes: &[u8], at: usize) -> Option<u16> {
        let two = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => u16::from_le_bytes(two),
            Self::Big => u16::from_be_bytes(two),
        })
    }
}

fn parse_pcap(bytes: &[u8], order: Order, record_header: usize) -> Vec<Captured> {
    // The upper half of the word has the length of a check sequence.
    let link = order.long(bytes, 20).unwrap_or_default() & 0xffff;
    let mut packets = Vec::new();
    let mut rest = bytes.get(24..).unwrap_or_default();
    while let Some((packet, behind)) = record(rest, order, record_header, link) {
        packets.push(packet);
        rest = behind;
    }
    packets
}

fn record(rest: &[u8], order: Order, header: usize, link: u32) -> Option<(Captured, &[u8])> {
    let len = order.long(rest, 8)? as usize;
    let original_len = order.long(rest, 12)? as usize;
    let (bytes, behind) = rest.get(header..)?.split_at_checked(len)?;
    Some((Captured { link, bytes: bytes.to_vec(), original_len }, behind))
}

fn parse_pcapng(bytes: &[u8]) -> Vec<Captured> {
    let mut packets = Vec::new();
    let mut links = Vec::new();
    let (mut order, mut rest) = (Order::Little, bytes);
    loop {
        if rest.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
            let little = rest.get(8) == Some(&0x4d);
            order = if little { Order::Little } else { Order::Big };
            links.clear();
        }
        let Some((kind, body, behind)) = block(rest, order) else { return packets };
        match kind {
            // An interface: its link type.
            1 => links.push(order.word(body, 0).unwrap_or_default().into()),
            2 | 3 | 6 => packets.extend(packet_block(kind, body, order, &links)),
            _ => {}
        }
        rest = behind;
    }
}

/// Kind and body of the first block, and what is behind it.
fn block(rest: &[u8], order: Order) -> Option<(u32, &[u8], &[u8])> {
    let len = order.long(rest, 4)? as usize;
    if len < 12 || !len.is_multiple_of(4) {
        return None;
    }
    let (block, behind) = rest.split_at_checked(len)?;
    Some((order.long(block, 0)?, &block[8..len - 4], behind))
}

/// The packet of an obsolete (2), simple (3) or enhanced (6) packet block.
fn packet_block(kind: u32, body: &[u8], order: Order, links: &[u32]) -> Option<Captured> {
    let (interface, len_at, data_at) = match kind {
        2 => (u32::from(order.word(body, 0)?), 12, 20),
        3 => (0, 0, 4),
        _ => (order.long(body, 0)?, 12, 20),
    };
    let link = *links.get(interface as usize)?;
    let data = body.get(data_at..)?;
    let (len, original_len) = match kind {
        3 => (data.len().min(order.long(body, 0)? as usize), order.long(body, 0)? as usize),
        _ => (order.long(body, len_at)? as usize, order.long(body, len_at + 4)? as usize),
    };
    Some(Captured { link, bytes: data.get(..len)?.to_vec(), original_len })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry of the manifest: a capture and its number of packets.
    fn manifest() -> Vec<(String, usize)> {
        let text = fs::read_to_string(root().join("data/pcaps/MANIFEST.tsv")).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter_map(|line| {
                let columns: Vec<_> = line.split('\t').collect();
                Some((columns.first()?.to_string(), columns.get(6)?.parse().ok()?))
            })
            .collect()
    }

    #[test]
    fn every_vendored_capture_has_the_packets_of_the_manifest() {
        let manifest = manifest();
        assert!(manifest.len() > 400 && vendored().len() >= manifest.len());
        let mut different = Vec::new();
        for (file, packets) in &manifest {
            match read(&root().join("data/pcaps").join(file)) {
                Ok(found) if found.len() == *packets => {}
                Ok(found) => different.push(format!("{file}: {} of {packets}", found.len())),
                Err(error) => different.push(error.to_string()),
            }
        }
        assert!(different.is_empty(), "{}", different.join("\n"));
    }

    #[test]
    fn a_malformed_record_ends_the_capture() {
        let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        bytes.extend([0; 12]);
        bytes.extend(ETHERNET.to_le_bytes());
        for len in [3_u32, u32::MAX] {
            bytes.extend([0; 8]);
            bytes.extend(len.to_le_bytes());
            bytes.extend(9_u32.to_le_bytes());
            bytes.extend([1, 2, 3]);
        }
        let packets = parse(&bytes).unwrap();
        let want = Captured { link: ETHERNET, bytes: vec![1, 2, 3], original_len: 9 };
        assert_eq!(packets, [want]);
        assert_eq!(parse(b"text"), None);
    }
}
