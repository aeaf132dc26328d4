//! What a verdict costs, by the kernel's own test runs. Ignored: it prints, and judges nothing.
//!
//! `cargo test -p floodwall-guard --test guarded cost:: -- --ignored --nocapture`, as root.

use std::net::{TcpListener, TcpStream};

use crate::rig::frame::{frame, run, writer};
use crate::rig::{Rig, config, server, start};
use floodwall_guard::{Guard, GuardConfig, Watch};

const PORT: u16 = 7000;
const LINUX: [u8; 20] = [2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7];

/// One of many runs on a frame that each finds new: written by a program, which goes on to the
/// guard's; less what the writing costs.
fn renewed(guard: &Guard, frame: &[u8]) -> (u32, u32) {
    let (writer, programs) = writer(frame, &[]);
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
