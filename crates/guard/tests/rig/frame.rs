//! Segments to the server as frames, for the kernel's own test runs of programs.

use std::net::IpAddr;

use floodwall_bpf::{AccessSize, Assembler, Function, JumpCondition, Register};
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
