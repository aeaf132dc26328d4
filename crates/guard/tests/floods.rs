//! Honest connections while segments of no connection come, and what the kernel sees of them.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a failing test may panic")]

mod rig;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use floodwall_guard::Watch;
use rig::{Flood, Rig, config, connect_and_echo, counted, echo, server, start};

const PORT: u16 = 7000;
const SYN: u8 = 0x02;
/// SYN, ACK, RST, SYN-ACK, FIN with ACK.
const KINDS: [u8; 5] = [SYN, 0x10, 0x04, 0x12, 0x11];
/// Honest connections beside each flood.
const HONEST: usize = 60;

/// Floods from the client's namespace until `ended`; the number of segments.
fn flooded(v6: bool, kinds: &'static [u8], ended: Arc<AtomicBool>) -> impl FnOnce() + Send {
    move || {
        let mut sources: Vec<_> =
            kinds.iter().map(|kind| Flood::new(server(v6, PORT), *kind)).collect();
        // Bounded in any case.
        for _ in 0..200 {
            if ended.load(Ordering::Relaxed) {
                return;
            }
            sources.iter_mut().for_each(|source| source.send(1000 / kinds.len()));
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn routes() {
    assert!(rig::ip(&format!("route add 198.18.0.0/15 via {}", rig::CLIENT.0)));
    assert!(rig::ip(&format!("route add 2001:db8::/32 via {}", rig::CLIENT.1)));
}

/// Honest connections during one flood; what did not echo.
fn honest(rig: &Rig, v6: bool, kinds: &'static [u8]) -> usize {
    rig.run(move || {
        let ended = Arc::new(AtomicBool::new(false));
        let flood = flooded(v6, kinds, Arc::clone(&ended));
        // The flood's thread has the namespace of the one that starts it.
        let flood = thread::spawn(flood);
        let lost = (0..HONEST).filter(|_| connect_and_echo(server(v6, PORT)).is_err()).count();
        ended.store(true, Ordering::Relaxed);
        flood.join().unwrap();
        lost
    })
}

#[test]
fn connections_succeed_beside_each_flood_and_a_standing_one_goes_on() {
    let Some(rig) = Rig::new() else { return };
    routes();
    for v6 in [false, true] {
        echo(server(v6, PORT));
    }
    let Some(guard) = start(config(&[PORT], Watch::Backlog { shift: 2 })) else { return };
    let mut standing = rig.run(|| TcpStream::connect(server(false, PORT)).unwrap());
    for v6 in [false, true] {
        for kinds in KINDS.iter().map(core::slice::from_ref).chain([&KINDS[..]]) {
            assert_eq!(honest(&rig, v6, kinds), 0, "beside {kinds:x?}, IPv6 {v6}");
        }
    }
    let seen = |name| counted(&guard, name);
    // The flood woke it, and little of it reached the kernel.
    assert!(seen("syn_answered") > 20 * seen("syn_asleep"), "{:?}", guard.status());
    assert!(seen("woken") > 0 && seen("ack_forged") > 1000 && seen("stray") > 1000);
    assert_eq!(seen("not_adopted"), 0);
    standing.write_all(b"still").unwrap();
    let mut bytes = [0; 5];
    standing.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    standing.read_exact(&mut bytes).unwrap();
}
