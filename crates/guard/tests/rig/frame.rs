//! Segments to the server as frames, for the kernel's own test runs of programs.

use std::net::{IpAddr, SocketAddr};

use floodwall_bpf::{AccessSize, Assembler, Function, JumpCondition, Operation, Register};
use floodwall_device::host_bpf::{HostMap, HostMapKind, HostProgram, HostProgramKind};

use super::{CLIENT, SERVER};

/// A segment to the server.
pub fn frame(
    v6: bool,
    ports: (u16, u16),
    numbers: (u32, u32),
    flags: u8,
    options: &[u8],
) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9];
    let bytes = 20 + options.len() as u16;
    let (ours, theirs) = if v6 { (SERVER.1, CLIENT.1) } else { (SERVER.0, CLIENT.0) };
    match (theirs.parse().unwrap(), ours.parse().unwrap()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut ip = vec![0x45, 0];
            ip.extend((20 + bytes).to_be_bytes());
            ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
            ip.extend(from.octets().iter().chain(&to.octets()));
            let mut sum: u32 = ip.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
            sum = (sum & 0xffff) + (sum >> 16);
            ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
            frame.extend([8, 0]);
            frame.extend(ip);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(bytes.to_be_bytes());
            frame.extend([6, 64]);
            frame.extend(from.octets().iter().chain(&to.octets()));
        }
        _ => unreachable!("of one family"),
    }
    frame.extend(ports.0.to_be_bytes());
    frame.extend(ports.1.to_be_bytes());
    frame.extend(numbers.0.to_be_bytes());
    frame.extend(numbers.1.to_be_bytes());
    frame.extend([(5 + options.len() as u8 / 4) << 4, flags, 0xfa, 0xf0, 0, 0, 0, 0]);
    frame.extend(options);
    frame
}

/// Runs on a copy, again where a signal interrupts.
pub fn run(program: &HostProgram, frame: &[u8], times: u32) -> (u32, u32) {
    loop {
        match program.run(&mut frame.to_vec(), times) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            other => return other.unwrap(),
        }
    }
}

/// A program that writes a frame, with random words at these places, and goes on to the program
/// that is in the map.
pub fn writer(frame: &[u8], random: &[i16]) -> (HostProgram, HostMap) {
    let programs = HostMap::create(HostMapKind::Programs, 4, 4, 1).unwrap();
    let mut a = Assembler::new();
    let short = a.label();
    a.copy(Register::R6, Register::R1)
        .load(AccessSize::Word, Register::R7, Register::R6, 0)
        .load(AccessSize::Word, Register::R8, Register::R6, 4)
        .copy(Register::R1, Register::R7)
        .add(Register::R1, frame.len() as i32 & !3)
        .jump_if_reg(Register::R1, JumpCondition::Above, Register::R8, short);
    for (at, word) in (0..).step_by(4).zip(frame.chunks_exact(4)) {
        let word = i32::from_ne_bytes(*word.first_chunk().unwrap());
        a.store_value(AccessSize::Word, Register::R7, at, word);
    }
    for at in random {
        a.call(Function::Random).store(AccessSize::Word, Register::R7, *at, Register::R0);
    }
    a.tail_call(Register::R6, programs.fd(), 0);
    a.place(short);
    a.set(Register::R0, 7).exit();
    (HostProgram::load(&a.finish().unwrap(), HostProgramKind::Xdp).unwrap(), programs)
}

/// A program that writes a frame and sends it back, so many a second, with random 16-bit words at
/// the first places and what keeps checksums at the second; and its map: the time of the next
/// frame, and how many were sent. When none is due, a run of it drops its copy.
pub fn sender(frame: &[u8], pairs: &[(i16, i16)], pace: u64) -> (HostProgram, HostMap) {
    let map = HostMap::create(HostMapKind::Array, 4, 16, 1).unwrap();
    let mut a = Assembler::new();
    let (none, due) = (a.label(), a.label());
    a.copy(Register::R6, Register::R1)
        .store_value(AccessSize::Word, Register::R10, -4, 0)
        .map(Register::R1, map.fd())
        .copy(Register::R2, Register::R10)
        .add(Register::R2, -4)
        .call(Function::MapLookup)
        .jump_if(Register::R0, JumpCondition::Equal, 0, none)
        .copy(Register::R9, Register::R0)
        .call(Function::BootNanos)
        .load(AccessSize::Double, Register::R1, Register::R9, 0)
        .jump_if_reg(Register::R0, JumpCondition::Below, Register::R1, none)
        // What is owed of more than a millisecond is not made up for.
        .add(Register::R0, -1_000_000)
        .jump_if_reg(Register::R1, JumpCondition::AtLeast, Register::R0, due)
        .copy(Register::R1, Register::R0);
    a.place(due);
    a.add(Register::R1, (1_000_000_000 / pace) as i32)
        .store(AccessSize::Double, Register::R9, 0, Register::R1)
        .load(AccessSize::Double, Register::R1, Register::R9, 8)
        .add(Register::R1, 1)
        .store(AccessSize::Double, Register::R9, 8, Register::R1)
        .load(AccessSize::Word, Register::R7, Register::R6, 0)
        .load(AccessSize::Word, Register::R8, Register::R6, 4)
        .copy(Register::R1, Register::R7)
        .add(Register::R1, frame.len() as i32)
        .jump_if_reg(Register::R1, JumpCondition::Above, Register::R8, none);
    for (at, byte) in (0..).zip(frame) {
        a.store_value(AccessSize::Byte, Register::R7, at, i32::from(*byte));
    }
    for (at, other) in pairs {
        a.call(Function::Random)
            .store(AccessSize::Half, Register::R7, *at, Register::R0)
            .compute(Register::R0, Operation::Xor, 0xffff)
            .store(AccessSize::Half, Register::R7, *other, Register::R0);
    }
    a.set(Register::R0, 3).exit();
    a.place(none);
    a.set(Register::R0, 1).exit();
    (HostProgram::load(&a.finish().unwrap(), HostProgramKind::Xdp).unwrap(), map)
}

/// A datagram to the server with that link address, from a source outside; where random words go
/// for [`sender`].
pub fn datagram(mac: [u8; 6], to: SocketAddr, payload: &[u8]) -> (Vec<u8>, Vec<(i16, i16)>) {
    let mut frame = mac.to_vec();
    frame.extend([2, 0, 0, 0, 0, 9]);
    let bytes = 8 + payload.len() as u16;
    let udp = |sum: u16| {
        let head = [4711_u16, to.port(), bytes, sum].map(u16::to_be_bytes).concat();
        [&head, payload].concat()
    };
    let sum = |bytes: &[u8]| {
        let pair = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b));
        let sum: u32 = bytes.chunks(2).map(pair).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        !(((sum & 0xffff) + (sum >> 16)) as u16)
    };
    match to.ip() {
        IpAddr::V4(to) => {
            let mut ip = vec![0x45, 0];
            ip.extend((20 + bytes).to_be_bytes());
            ip.extend([0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 0, 0]);
            ip.extend(to.octets());
            // As if the random words were 0 and what keeps the sum.
            ip[4..6].copy_from_slice(&[0xff, 0xff]);
            let header = sum(&ip);
            ip[10..12].copy_from_slice(&header.to_be_bytes());
            frame.extend([8, 0]);
            frame.extend(ip);
            frame.extend(udp(0));
            (frame, vec![(28, 18)])
        }
        IpAddr::V6(to) => {
            let mut addresses = vec![0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
            addresses.extend([0, 0, 0, 9]);
            addresses.extend(to.octets());
            let covered = [&addresses[..], &[0, 17], &bytes.to_be_bytes(), &udp(0)].concat();
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(bytes.to_be_bytes());
            frame.extend([17, 64]);
            frame.extend(&addresses);
            frame.extend(udp(sum(&covered)));
            (frame, vec![(26, 30), (28, 32)])
        }
    }
}
