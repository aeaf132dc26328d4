//! Crews over memory wires: several real threads, an engine that echoes, forwards and panics.
#![expect(clippy::disallowed_methods, reason = "the far ends of the wires are a thread of theirs")]

use std::thread;
use std::time::Duration;

use floodwall_base::{IfIndex, Instant, Units};
use floodwall_device::{Device, Medium, MemoryWire, WireConfig, pair_of};
use floodwall_packet::{Burst, Handoff, HandoffList, PacketList, Pool, Round, Triage};

use super::*;
use crate::Clock;

/// Patience of the tests with another thread: none of them asserts how long something took.
const PATIENCE: Duration = Duration::from_secs(30);

fn wait_until(mut happened: impl FnMut() -> bool) {
    let clock = Clock::new();
    let end = clock.now() + PATIENCE;
    while !happened() {
        assert!(clock.now() < end, "it never happened");
        thread::yield_now();
    }
}

/// Sends back what arrives, by the interface on which it came.
struct Echo {
    id: WorkerId,
    seen: u64,
    adopted: u64,
}

impl Engine for Echo {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        let mut spent = 0;
        for packet in round.arrived.drain() {
            spent += 1;
            self.seen += 1;
            round.departing.push_back(packet);
        }
        Units(spent)
    }

    fn work(&mut self, _: &mut Round<'_>) -> Units {
        Units(0)
    }

    fn adopt(&mut self, round: &mut Round<'_>, handed: &mut HandoffList) -> Units {
        let mut spent = 0;
        for Handoff { to, packet, .. } in handed.drain() {
            assert_eq!(to, self.id);
            spent += 1;
            self.adopted += 1;
            round.departing.push_back(packet);
        }
        Units(spent)
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn classify(&self, _: &Burst, _: &mut [Triage]) {}
}

impl Publish for Echo {
    fn words(&self, out: &mut [u64]) {
        out[0] = self.seen;
        out[1] = self.adopted;
    }
}

fn wire() -> (MemoryWire, MemoryWire) {
    pair_of(WireConfig { capacity: 1024, medium: Medium::Ip, ..WireConfig::default() })
}

/// A crew of `workers` unpinned workers with a wire each, and the far ends of the wires.
fn crew<E: Engine + Publish + 'static>(
    workers: usize,
    on_panic: OnPanic,
    make: impl Fn(&mut Setting<'_>) -> Result<E, String> + Send + Sync + 'static,
) -> (Crew<E>, Stop, Steering, Vec<MemoryWire>) {
    let (near, far): (Vec<_>, Vec<_>) = (0..workers).map(|_| wire()).unzip();
    let berth = |near| Berth { core: None, ports: vec![Port::new(IfIndex(1), Box::new(near))] };
    let config = CrewConfig::new(near.into_iter().map(berth).collect()).unwrap();
    let config = CrewConfig { on_panic, ..config };
    let (stop, steering) = (Stop::new().unwrap(), config.steering);
    let crew = Crew::start(config, &stop, make).unwrap();
    (crew, stop, steering, far)
}

fn echo(setting: &mut Setting<'_>) -> Result<Echo, String> {
    Ok(Echo { id: setting.worker, seen: 0, adopted: 0 })
}

/// A UDP packet of 28 bytes from that port.
fn udp(port: u16) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[0] = 0x45;
    bytes[3] = 28;
    bytes[8] = 64;
    bytes[9] = 17;
    bytes[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    bytes[20..22].copy_from_slice(&port.to_be_bytes());
    bytes[23] = 7;
    bytes[25] = 8;
    bytes
}

#[test]
fn a_frame_that_arrives_elsewhere_is_handed_to_its_owner_and_answered_by_it() {
    let (crew, stop, steering, mut far) = crew(3, OnPanic::EndCrew, echo);
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let seats = crew.seats().to_vec();
    let count = 300;
    let mut owned = [0_u64; 3];
    let mut foreign = 0;
    let mut list = PacketList::new();
    for port in 0..count {
        let packet = udp(5000 + port);
        let owner = floodwall_wire::steer::packet(&steering, &packet);
        owned[usize::from(owner.0)] += 1;
        foreign += u64::from(owner.0 != 1);
        list.push_back(pool.packet_from(&packet).unwrap());
    }
    // All of them arrive at worker 1.
    far[1].transmit(&mut list).unwrap();
    seats[1].bell.ring();
    let mut burst = Burst::new();
    let mut back = 0;
    wait_until(|| {
        for far in &mut far {
            back += far.receive(&pool, &mut burst).unwrap();
            burst.drain().for_each(drop);
        }
        back == usize::from(count)
    });
    stop.trigger();
    let ended = crew.join().unwrap();
    assert!(ended.is_conserved() && ended.in_rings == 0, "{ended:?}");
    assert_eq!(ended.sum(Fact::RxForeign), foreign);
    for (worker, owned) in owned.iter().enumerate() {
        let facts = &ended.workers[worker].facts;
        assert_eq!(facts.of(Fact::SentPackets), *owned, "worker {worker}");
        assert_eq!(facts.of(Fact::TxPackets), *owned, "on its own queue");
    }
}
