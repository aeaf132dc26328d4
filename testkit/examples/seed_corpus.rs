//! Writes seeds for the fuzz targets: packets of the vendored captures, and programs.
//!
//! `cargo run -p floodwall-testkit --example seed_corpus -- fuzz/corpus`, once; from then on the
//! corpora grow by what the fuzzers find. Each file is named by a hash of what is in it.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::{env, fs, io};

use floodwall_testkit::{Seeded, captures};

/// Bytes of a seed: what is behind says nothing new.
const SEED_BYTES_MAX: usize = 300;
/// Packets of one capture that become seeds.
const PACKETS_MAX: usize = 2;

fn main() -> io::Result<()> {
    let folder = env::args().nth(1).unwrap_or_else(|| "fuzz/corpus".into());
    let folder = Path::new(&folder);
    let mut shapes = HashSet::new();
    for path in captures::vendored() {
        let mut taken = 0;
        for captured in captures::read(&path)? {
            let Some(frame) = captured.frame().filter(|_| taken < PACKETS_MAX) else { continue };
            // One seed for each kind of header chain: the first bytes without addresses.
            let packet = frame.get(14..).unwrap_or_default();
            let shape = [frame.get(12..14), packet.get(..1), packet.get(6..10), packet.get(40..46)];
            if shapes.insert(shape.map(|part| part.unwrap_or_default().to_vec())) {
                let frame = &frame[..frame.len().min(SEED_BYTES_MAX)];
                write(folder, "wire", &[&[taken as u8 * 13], frame].concat())?;
                taken += 1;
            }
        }
    }
    sequences(folder)?;
    let mut random = Seeded::new(7);
    for len in (8..=256).step_by(8) {
        let program: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        write(folder, "pulldown", &program)?;
    }
    Ok(())
}

/// Frames in a row for the whole stack: whatever a capture has, addressed to the fuzzed host.
fn sequences(folder: &Path) -> io::Result<()> {
    let words = ["icmp", "arp", "dns", "ndp", "ra", "frag", "udp", "ipv6", "echo", "mld"];
    for path in captures::vendored() {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
        if !words.iter().any(|word| name.contains(word)) {
            continue;
        }
        let mut sequence = Vec::new();
        for (number, captured) in captures::read(&path)?.iter().take(6).enumerate() {
            let Some(frame) = captured.frame().filter(|frame| frame.len() < 400) else { continue };
            let mut frame = frame.to_vec();
            readdress(&mut frame);
            sequence.push((number as u8 % 4) << 5);
            sequence.extend((frame.len() as u16).to_le_bytes());
            sequence.extend(frame);
        }
        if !sequence.is_empty() {
            write(folder, "stack_frame", &sequence)?;
        }
    }
    Ok(())
}

/// Sends a frame to the host that `fuzz_bodies::stack_frame` makes: station and IP address.
fn readdress(frame: &mut [u8]) {
    let Ok(header) = floodwall_wire::EthernetHeader::parse(frame) else { return };
    let (at, kind, group) = (header.header_len(), header.ether_type(), frame[0] & 1 != 0);
    if !group {
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    }
    match kind {
        floodwall_wire::EtherType::IPV4 if frame.len() >= at + 20 => {
            frame[at + 16..at + 20].copy_from_slice(&[10, 0, 0, 1]);
            let end = at + (usize::from(frame[at] & 0xf) * 4).clamp(20, frame.len() - at);
            frame[at + 10..at + 12].fill(0);
            let check = floodwall_checksum::sum(&frame[at..end]).finish();
            frame[at + 10..at + 12].copy_from_slice(&check.to_be_bytes());
        }
        floodwall_wire::EtherType::IPV6 if frame.len() >= at + 40 && frame[at + 24] != 0xff => {
            let us = std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
            frame[at + 24..at + 40].copy_from_slice(&us.octets());
        }
        _ => {}
    }
}

fn write(folder: &Path, target: &str, seed: &[u8]) -> io::Result<()> {
    let mut hash = DefaultHasher::new();
    seed.hash(&mut hash);
    let folder = folder.join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(format!("{:016x}", hash.finish())), seed)
}
