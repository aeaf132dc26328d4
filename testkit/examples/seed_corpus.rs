//! Writes seeds for the fuzz targets: packets of the vendored captures, and programs.
//!
//! `cargo run -p floodwall-testkit --example seed_corpus -- fuzz/corpus`, once; from then on the
//! corpora grow by what the fuzzers find. Each file is named by a hash of what is in it.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::{env, fs, io};

use floodwall_testkit::{Seeded, captures};

/// Bytes of a seed: the bytes behind add nothing new.
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
    neighbor_programs(folder)?;
    programs(folder)?;
    fragments(folder)?;
    calls(folder)?;
    let mut random = Seeded::new(7);
    for len in (8..=256).step_by(8) {
        let program: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        write(folder, "pulldown", &program)?;
    }
    Ok(())
}

/// Frames in a row for the whole stack: all frames of a capture, addressed to the fuzzed host.
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
            // The same as steps of a program that takes whole frames.
            let steps = whole_frames(&sequence);
            write(folder, "sequence", &steps)?;
        }
    }
    Ok(())
}

/// The frames of a sequence as a program's steps, with a second between them.
fn whole_frames(mut sequence: &[u8]) -> Vec<u8> {
    let mut steps = Vec::new();
    while let [_, low, high, rest @ ..] = sequence {
        let (frame, behind) = rest.split_at(usize::from(u16::from_le_bytes([*low, *high])));
        steps.extend([0, *low, *high]);
        steps.extend(frame);
        steps.extend([10, 1]);
        sequence = behind;
    }
    steps
}

/// One step that makes a packet: whole, or in pieces of `cut` bytes in the order `order`.
fn made(choice: u8, cut: Option<[u8; 3]>, protocol: u8, ends: u8, payload: &[u8]) -> Vec<u8> {
    let mut step = vec![(choice << 4) | if cut.is_some() { 6 } else { 3 }];
    step.extend(cut.unwrap_or_default().iter().take(if cut.is_some() { 3 } else { 0 }));
    step.extend([protocol, ends, 0]);
    step.extend((payload.len() as u16).to_le_bytes());
    step.extend(payload);
    step
}

/// Programs of the kinds that the sequence body has, each family: pieces in and out of order, with
/// one missing; neighbours, routers, queries; sending; links and addresses that change.
fn programs(folder: &Path) -> io::Result<()> {
    let datagram = |len: usize| {
        let mut bytes = vec![0x13, 0x88, 0, 7, 0, 0, 0, 0];
        bytes.resize(8 + len, 0x55);
        bytes
    };
    let echo = |v6: bool, len: usize| {
        let mut bytes = vec![if v6 { 128 } else { 8 }, 0, 0, 0, 1, 1, 0, 1];
        bytes.resize(8 + len, 0x66);
        bytes
    };
    let prefix = [
        &[3, 4, 64, 0xc0, 0, 0, 14, 16, 0, 0, 7, 8, 0, 0, 0, 0, 0x20, 1, 0x0d, 0xb8, 0, 7][..],
        &[0; 10],
    ]
    .concat();
    let router = [
        &[134, 0, 0, 0, 64, 0x08, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0][..],
        &[1, 1, 2, 0, 0, 0, 0, 2],
        &prefix,
        &[5, 1, 0, 0, 0, 0, 5, 0],
    ]
    .concat();
    let us = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let solicitation = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &us, &[1, 1, 2, 0, 0, 0, 0, 2]].concat();
    let (clock, long) = ([10, 1].to_vec(), [10, 70].to_vec());
    for choice in [0, 4] {
        let v6 = choice == 0;
        let icmp = if v6 { 58 } else { 1 };
        let both = [
            vec![made(choice, None, 17, 2, &datagram(40))],
            vec![made(choice, None, icmp, 2, &echo(v6, 900))],
            vec![made(choice, Some([9, 0, 0]), 17, 2, &datagram(300)), clock.clone()],
            vec![made(choice, Some([99, 3, 0]), 17, 2, &datagram(4000)), clock.clone()],
            vec![made(choice, Some([20, 5, 5]), icmp, 2, &echo(v6, 2000)), long.clone()],
            vec![made(choice, Some([150, 1, 0]), icmp, 2, &echo(v6, 5900)), long.clone()],
            vec![vec![11, if v6 { 0x21 } else { 0x20 }, 0xa0, 0x0f], clock.clone()],
            vec![vec![0x0c | u8::from(v6) << 4, 3], clock.clone(), long.clone()],
            vec![vec![0x0d | u8::from(v6) << 4, 77], long.clone(), vec![0x2d, 77], clock.clone()],
            vec![vec![0x1e], clock.clone(), vec![0x0e], long.clone()],
        ];
        for steps in both {
            write(folder, "sequence", &steps.concat())?;
        }
    }
    let neighbors = [
        vec![made(0, None, 58, 0x32, &router), long.clone()],
        vec![
            made(0, None, 58, 0xb2, &router),
            made(0, None, 17, 0x12, &datagram(9)),
            clock.clone(),
        ],
        vec![made(0, None, 58, 0x02, &solicitation), clock],
        // A query of MLD behind its router alert, for all groups; one of IGMP.
        vec![
            vec![0x1c, 3],
            made(0, None, 58, 0xb2, &[&[130, 0, 0, 0, 3, 232][..], &[0; 22]].concat()),
            long.clone(),
        ],
        vec![vec![0x0c, 3], made(4, None, 2, 0xb2, &[17, 10, 0, 0, 0, 0, 0, 0]), long],
    ];
    for steps in neighbors {
        write(folder, "sequence", &steps.concat())?;
    }
    Ok(())
}

/// Programs for the body `ndp`: the neighbour and router messages of each capture, with time and
/// datagrams of ours between them.
fn neighbor_programs(folder: &Path) -> io::Result<()> {
    for path in captures::vendored() {
        let mut program = Vec::new();
        for (number, captured) in captures::read(&path)?.iter().enumerate() {
            let Some(frame) = captured.frame() else { continue };
            let (Some([0x86, 0xdd]), Some(58)) = (frame.get(12..14), frame.get(20)) else {
                continue;
            };
            let (Some(kind @ 133..=137), Some(body)) = (frame.get(54), frame.get(58..)) else {
                continue;
            };
            if body.len() <= 250 && program.len() < 1200 {
                let to = if *kind == 135 { 1 } else { 0 };
                program.extend([kind - 133, number as u8 & 63, to, body.len() as u8]);
                program.extend(body);
                program.extend([6, 10 + number as u8 % 20, 7, number as u8 & 63]);
            }
        }
        if !program.is_empty() {
            write(folder, "ndp", &program)?;
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

/// Fragments of few datagrams, close together: in order, in disorder, overlapping, with pauses.
fn fragments(folder: &Path) -> io::Result<()> {
    let mut random = Seeded::new(13);
    for number in 0..24_u8 {
        let mut program = vec![number];
        for step in 0..random.below(40) as u8 + 4 {
            let (offset, units) = if number < 8 { (step % 6, 1) } else { (random.next() as u8, 0) };
            let len = if units == 1 { 1 } else { random.next() as u8 & 0x3f };
            let more = u8::from(step % 6 != 5);
            let pause = if number >= 16 { random.next() as u8 } else { 0 };
            program.extend([step / 6 % 3, offset % 24, 0, len, more, pause]);
        }
        write(folder, "reassembly", &program)?;
    }
    Ok(())
}

/// Calls of three threads: sockets and streams first, then anything.
fn calls(folder: &Path) -> io::Result<()> {
    let mut random = Seeded::new(17);
    for number in 0..24_u8 {
        let mut program = vec![number];
        for _ in 0..3 {
            let first: &[[u8; 2]] = if number & 2 == 0 { &[[0, 1], [0, 66]] } else { &[[7, 130]] };
            program.extend(first.iter().flatten());
            for _ in 0..40 {
                let kinds: &[u8] = if number & 2 == 0 {
                    &[1, 2, 3, 4, 5, 6]
                } else {
                    &[8, 8, 9, 9, 10, 11, 12, 13, 14, 15]
                };
                let any = number >= 16;
                let what = if any { random.next() as u8 } else { kinds[random.below(kinds.len())] };
                // Every second one lets the worker come by first.
                program.extend([what | (random.next() as u8 & 64), random.next() as u8]);
            }
        }
        write(folder, "calls", &program)?;
    }
    Ok(())
}

fn write(folder: &Path, target: &str, seed: &[u8]) -> io::Result<()> {
    let mut hash = DefaultHasher::new();
    seed.hash(&mut hash);
    let folder = folder.join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(format!("{:016x}", hash.finish())), seed)
}
