//! Triage against the straightforward way, and against what then becomes of the datagram.

use floodwall_base::PublicRandom;
use floodwall_base::limits::BURST_MAX;
use floodwall_packet::{Class, Triage};

use super::*;

/// Ports that sockets and datagrams share; the last has no socket.
const PORTS: u64 = 6;

/// Ours and theirs of one family.
struct Ends {
    family: Family,
    ours: [&'static str; 2],
    theirs: [&'static str; 3],
}

const ENDS: [Ends; 2] = [
    Ends {
        family: Family::V4,
        ours: ["10.0.0.1", "10.0.0.9"],
        theirs: ["10.0.0.2", "10.0.0.3", "192.0.2.9"],
    },
    Ends {
        family: Family::V6,
        ours: ["fd00::1", "fd00::9"],
        theirs: ["fd00::2", "fd00::3", "2001:db8::9"],
    },
];

/// A host with sockets that come and go, get full and are read.
struct Churn {
    bench: Bench,
    pick: PublicRandom,
    open: Vec<SocketId>,
}

impl Churn {
    fn below(&mut self, n: usize) -> usize {
        self.pick.below(n as u64) as usize
    }

    /// A socket: wildcard, bound or connected, on a port that others may have, of few bytes.
    fn open(&mut self) {
        let ends = &ENDS[self.below(2)];
        let (port, bytes) = (50 + self.below(PORTS as usize - 1) as u16, self.below(900) as u64);
        let v6_only = self.below(2) == 0;
        // Some take every port: they come and go, so that triage runs with and without.
        let every = self.below(12) == 0;
        let port = if every { 0 } else { port };
        let id = self.bench.open_with(ends.family, |s| {
            (s.reuse_address, s.receive_bytes, s.v6_only) = (true, bytes, v6_only);
            s.every_port = every;
        });
        let ours = ends.ours[self.below(2)];
        let wildcard = if ends.family == Family::V4 { "0.0.0.0" } else { "::" };
        let local = if self.below(4) == 0 { wildcard } else { ours };
        let bound = self.bench.bind(id, local, port).is_ok();
        if bound && self.below(3) > 0 {
            let remote = end(ends.theirs[self.below(3)], 1 + self.below(3) as u16);
            let _ = self.bench.connect(id, remote, ours);
        }
        self.open.push(id);
    }

    fn change(&mut self) {
        if self.open.is_empty() || self.open.len() < 40 && self.below(3) == 0 {
            return self.open();
        }
        let at = self.below(self.open.len());
        match self.below(5) {
            0 => {
                self.bench.udp.close(self.open.swap_remove(at)).unwrap();
            }
            1 => {
                let _ = self.bench.udp.disconnect(self.open[at]);
            }
            2 => {
                let mut settings = self.bench.udp.settings(self.open[at]).unwrap().clone();
                settings.receive_bytes = self.below(900) as u64;
                self.bench.udp.set_settings(self.open[at], settings).unwrap();
            }
            _ => {
                let _ = self.bench.recv(self.open[at]);
            }
        }
    }

    fn datagram(&mut self) -> (SocketAddr, SocketAddr) {
        let ends = &ENDS[self.below(2)];
        let from = end(ends.theirs[self.below(3)], 1 + self.below(3) as u16);
        (from, end(ends.ours[self.below(2)], 50 + self.below(PORTS as usize) as u16))
    }

    /// Classifies a burst as the stack does, and compares; returns the classes.
    fn classify(&self, burst: &[(SocketAddr, SocketAddr)], true_size: u32) -> Vec<Triage> {
        let udp = &self.bench.udp;
        let datagram_key = |(from, to): &(SocketAddr, SocketAddr)| {
            DatagramKey::new((from.ip(), from.port()), (to.ip(), to.port()), IfIndex(1))
        };
        let mut asked = [LookupSlot::NOTHING; BURST_MAX];
        for (datagram, slot) in burst.iter().zip(&mut asked) {
            udp.ask(datagram_key(datagram), Class::Small, slot);
        }
        let mut classes = vec![Triage::Unknown; burst.len()];
        udp.answer(&asked[..burst.len()], &mut classes);
        for (datagram, class) in burst.iter().zip(&classes) {
            let slowly = udp.classify_slowly(&datagram_key(datagram), true_size);
            assert_eq!(*class, slowly, "{datagram:?}");
            let port = datagram.1.port();
            let sought = udp.seek(port, Class::Small, || datagram_key(datagram));
            let sorted_out = sought.is_none_or(|sought| !udp.may_find(sought));
            assert!(!sorted_out || slowly == Triage::Rejectable, "{datagram:?}");
        }
        classes
    }
}

#[test]
fn any_sockets_are_triaged_as_one_look_up_after_another_says_and_as_they_then_take() {
    let mut seen = [0; 3];
    for seed in 0..30 {
        let (bench, pick) = (Bench::new(), PublicRandom::new(seed));
        let mut churn = Churn { bench, pick, open: Vec::new() };
        let true_size = churn.bench.pool.packet_from(b"x").unwrap().true_size();
        for _ in 0..60 {
            (0..6).for_each(|_| churn.change());
            let burst: Vec<_> = (0..churn.below(65)).map(|_| churn.datagram()).collect();
            churn.classify(&burst, true_size);
            // One by one, for each may fill a socket.
            for datagram @ (from, to) in burst {
                let class = churn.classify(&[datagram], true_size)[0];
                let taken =
                    matches!(churn.bench.arrive(from, to, b"x"), DatagramVerdict::Delivered { .. });
                assert_eq!(taken, class != Triage::Rejectable, "{from} {to}");
                seen[class as usize] += 1;
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 1000), "{seen:?}");
}
