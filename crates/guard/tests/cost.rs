//! What a verdict costs, by the kernel's own test runs. Ignored: it prints, and judges nothing.
//!
//! `cargo test -p floodwall-guard --test cost -- --ignored --nocapture`, as root.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a failing test may panic")]

mod rig;

use std::net::{IpAddr, TcpListener, TcpStream};

use floodwall_bpf::{AccessSize, Assembler, JumpCondition, Register};
use floodwall_device::host_bpf::{HostMap, HostMapKind, HostProgram, HostProgramKind};
use floodwall_guard::{Guard, GuardConfig, Watch};
use rig::{CLIENT, Rig, SERVER, config, server, start};

const PORT: u16 = 7000;
const LINUX: [u8; 20] = [2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7];

/// A segment to the server.
fn frame(v6: bool, ports: (u16, u16), numbers: (u32, u32), flags: u8, options: &[u8]) -> Vec<u8> {
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
fn run(program: &HostProgram, frame: &[u8], times: u32) -> (u32, u32) {
    loop {
        match program.run(&mut frame.to_vec(), times) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            other => return other.unwrap(),
        }
    }
}

/// One of many runs on a frame that each finds new: written by a program, which goes on to the
/// guard's; less what the writing costs.
fn renewed(guard: &Guard, frame: &[u8]) -> (u32, u32) {
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
    a.tail_call(Register::R6, programs.fd(), 0);
    a.place(short);
    a.set(Register::R0, 7).exit();
    let writer = HostProgram::load(&a.finish().unwrap(), HostProgramKind::Xdp).unwrap();
    let best = || (0..5).map(|_| run(&writer, frame, 100_000)).min_by_key(|it| it.1).unwrap();
    let without = best();
    programs.set_program(0, guard.classifier()).unwrap();
    let with = best();
    (with.0, with.1.saturating_sub(without.1))
}

/// One of many runs on the same frame, which it must not change.
fn repeated(guard: &Guard, frame: &[u8]) -> (u32, u32) {
    let runs = (0..5).map(|_| run(guard.classifier(), frame, 100_000));
    runs.min_by_key(|(_, nanos)| *nanos).unwrap()
}

#[test]
#[ignore = "prints figures"]
fn what_verdicts_cost() {
    let Some(rig) = Rig::new() else { return };
    let listeners = [false, true].map(|v6| TcpListener::bind(server(v6, PORT)).unwrap());
    let Some(guard) = start(config(&[PORT], Watch::Always)) else { return };
    for (v6, listener) in [false, true].into_iter().zip(&listeners) {
        let stream = rig.run(move || TcpStream::connect(server(v6, PORT)).unwrap());
        let peer = listener.accept().unwrap().1.port();
        let segment = |port, flags, options: &[u8]| frame(v6, port, (5, 77), flags, options);
        let other = segment((4711, 9), 2, &LINUX);
        let base = repeated(&guard, &other).1;
        println!("IPv6 {v6}: another port {base} ns, which is taken off below");
        for (what, options) in [("Linux' options", &LINUX[..]), ("MSS alone", &LINUX[..4])] {
            let (verdict, nanos) = renewed(&guard, &segment((4711, PORT), 2, options));
            println!("  SYN with {what}: {nanos} ns (verdict {verdict})");
        }
        for (what, frame) in [
            ("forged ACK", segment((4711, PORT), 0x10, &[])),
            ("RST of no connection", segment((4711, PORT), 4, &[])),
            ("segment of a connection", segment((peer, PORT), 0x10, &[])),
        ] {
            let (verdict, nanos) = repeated(&guard, &frame);
            println!("  {what}: {} ns (verdict {verdict})", nanos - base);
        }
        drop(stream);
    }
    drop(guard);
    let asleep = GuardConfig { ports: vec![PORT], ..config(&[], Watch::Backlog { shift: 2 }) };
    let Some(guard) = start(asleep) else { return };
    for v6 in [false, true] {
        let syn = frame(v6, (4711, PORT), (5, 0), 2, &LINUX);
        let other = frame(v6, (4711, 9), (5, 0), 2, &LINUX);
        let base = repeated(&guard, &other).1;
        // Few enough that they do not wake it.
        let best = (0..10).map(|_| run(guard.classifier(), &syn, 50).1).min().unwrap();
        println!("IPv6 {v6}: SYN while asleep {} ns", best - base);
    }
}
