//! Worker groups with devices that know established flows: reports of flows, and limits on others.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use floodwall_base::{IfIndex, Instant, Units};
use floodwall_device::{Device, DeviceError, DeviceInfo, DeviceStats, Medium};
use floodwall_packet::{Burst, HandoffList, PacketBuf, PacketList, Pool, Round, RxFilter, Triage};

use super::tests::{owned_by, wait_until};
use super::*;

/// Offset of a packet's mark: established or unverified.
const MARK_AT: usize = 27;

/// What a test sees of one queue.
#[derive(Debug, Default)]
struct CreditSeen {
    /// Established flows reported to the device.
    told: AtomicU64,
    /// Packets of established flows that came to its worker from another one.
    adopted: AtomicU64,
    /// Turns with a credit for unverified flows, and turns without a limit under pressure.
    cut: AtomicU64,
    uncut: AtomicU64,
    /// Reports that everything is accepted, and that something is.
    everything: AtomicU64,
    something: AtomicU64,
}

/// A queue that is never empty, or always: one of ten packets is of an established flow.
struct CreditQueue {
    info: DeviceInfo,
    packets: Option<[[u8; 28]; 2]>,
    given: u64,
    knows: bool,
    seen: Arc<CreditSeen>,
}

impl Device for CreditQueue {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        let Some([established, unknown]) = &self.packets else { return Ok(0) };
        let before = burst.len();
        while burst.room() > 0 {
            let bytes = if self.given.is_multiple_of(10) { established } else { unknown };
            let Some(packet) = pool.packet_from(bytes) else { break };
            assert!(burst.push(packet).is_ok());
            self.given += 1;
        }
        // The other worker may have no core of its own.
        thread::yield_now();
        Ok(burst.len() - before)
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        let told = [&self.seen.everything, &self.seen.something];
        assert!(!self.knows || told.iter().any(|count| count.load(Ordering::Relaxed) > 0));
        Ok(packets.take().len())
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn pending(&self) -> bool {
        self.packets.is_some()
    }

    fn admit(&mut self, _: Instant, credit: Option<usize>) {
        let count = match credit {
            Some(usize::MAX) => &self.seen.uncut,
            Some(_) => &self.seen.cut,
            None => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn want(&mut self, wanted: &RxFilter) {
        let count = if wanted.any_v6 { &self.seen.everything } else { &self.seen.something };
        assert!(wanted.any_v6 || wanted.udp.has(7));
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn knows_established_flows(&self) -> bool {
        self.knows
    }

    fn mark_established(&mut self, _: Instant, established: &PacketBuf) {
        assert_eq!(established.first()[MARK_AT], b'f');
        self.seen.told.fetch_add(1, Ordering::Relaxed);
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }
}

/// Takes everything, and classifies packets by their mark.
struct CreditTaker(Arc<CreditSeen>);

impl Engine for CreditTaker {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        round.arrived.drain().for_each(|packet| round.departing.push_back(packet));
        Units(1)
    }

    fn work(&mut self, _: &mut Round<'_>) -> Units {
        Units(0)
    }

    fn adopt(&mut self, _: &mut Round<'_>, handed: &mut HandoffList) -> Units {
        self.0.adopted.fetch_add(handed.drain().count() as u64, Ordering::Relaxed);
        Units(1)
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        for (packet, class) in burst.iter().zip(classes) {
            let is_established = packet.first()[MARK_AT] == b'f';
            *class = if is_established { Triage::Established } else { Triage::Unknown };
        }
    }

    fn rx_filter(&self, iface: IfIndex, wanted: &mut RxFilter) {
        wanted.nothing();
        wanted.udp.set(7, iface == IfIndex(1));
    }

    fn wants_changed(&self) -> u64 {
        // Something changes once.
        u64::from(self.0.adopted.load(Ordering::Relaxed) > 100)
    }
}

impl Publish for CreditTaker {
    fn words(&self, _: &mut [u64]) {}
}

/// A worker group of two on queues of these interfaces. The first queue is flooded with unverified
/// flows of its own worker; the established flows belong to the second worker, which is under no
/// pressure.
fn flooded(
    ifaces: [u16; 2],
    knows: bool,
) -> (WorkerGroup<CreditTaker>, Stop, [Arc<CreditSeen>; 2]) {
    let seen: [Arc<CreditSeen>; 2] = Default::default();
    let mut config =
        WorkerGroupConfig::new((0..2).map(|_| WorkerSlot::default()).collect()).unwrap();
    for (at, iface) in ifaces.into_iter().enumerate() {
        let packets = [(1, b'f'), (0, b's')].map(|(owner, mark)| {
            let mut bytes = owned_by(&config.steering, owner, 7);
            bytes[MARK_AT] = mark;
            bytes
        });
        let info = DeviceInfo {
            name: format!("queue-{at}"),
            medium: Medium::Ip,
            mtu: 1500,
            mac: None,
            offload: false,
        };
        let packets = (at == 0).then_some(packets);
        let queue = CreditQueue { info, packets, given: 0, knows, seen: Arc::clone(&seen[at]) };
        config.slots[at].ports.push(Port::new(IfIndex(iface), Box::new(queue)));
    }
    let stop = Stop::new().unwrap();
    let all = seen.clone();
    let make = move |setting: &mut Setting<'_>| {
        Ok(CreditTaker(Arc::clone(&all[usize::from(setting.worker.0)])))
    };
    let group = WorkerGroup::start(config, &stop, make).unwrap();
    (group, stop, seen)
}

#[test]
fn the_owner_of_a_flow_tells_the_interface_of_it_whichever_queue_it_came_by() {
    let (group, stop, [first, second]) = flooded([1, 1], true);
    // Though the second worker has no pressure. Not all that it adopts: while the first worker has
    // no core, nothing says that it drops unverified flows. Beside other work a turn of it, of some
    // packets, takes a round of the scheduler.
    wait_until(|| second.told.load(Ordering::Relaxed) > 2_000);
    assert!(first.cut.load(Ordering::Relaxed) > 0, "unverified flows have a credit");
    assert_eq!(first.told.load(Ordering::Relaxed), 0, "its worker knows none of them");
    let wants = |seen: &CreditSeen| {
        [&seen.everything, &seen.something].map(|count| count.load(Ordering::Relaxed))
    };
    assert_eq!(wants(&first), [0, 1], "at the start");
    assert_eq!(wants(&second), [0, 2], "and when it changes");
    stop.trigger();
    assert!(group.join().unwrap().is_conserved());
}

#[test]
fn where_a_worker_could_tell_of_nothing_no_unverified_packets_are_cut() {
    let (group, stop, [first, second]) = flooded([1, 2], true);
    wait_until(|| first.uncut.load(Ordering::Relaxed) > 1000);
    assert_eq!(first.cut.load(Ordering::Relaxed), 0);
    assert_eq!(second.told.load(Ordering::Relaxed), 0);
    assert!(first.everything.load(Ordering::Relaxed) > 0, "nor could it report what it accepts");
    assert_eq!(first.something.load(Ordering::Relaxed), 0);
    stop.trigger();
    assert!(group.join().unwrap().is_conserved());
}
