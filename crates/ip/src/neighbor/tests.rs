//! The cache's guarantees, in virtual time, for both families.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_packet::{Pool, PoolConfig};

use super::NeighborState::{
    Delay, Failed, Incomplete, Permanent, Probe, Reachable, Stale, Unreachable,
};
use super::*;

mod early;
mod limits;
mod random;
mod states;

const ONE: IfIndex = IfIndex(1);
const SECOND: Duration = Duration::from_secs(1);

/// An address of either family by number.
trait Nth: Address {
    fn nth(n: u32) -> Self;
    /// The first address of a source prefix by number.
    fn requester(prefix: u32) -> Self;
}

impl Nth for Ipv4Addr {
    fn nth(n: u32) -> Self {
        Self::from_bits(0x0a00_0000 + n)
    }
    fn requester(prefix: u32) -> Self {
        Self::from_bits(0xc000_0000 + (prefix << 8))
    }
}

impl Nth for Ipv6Addr {
    fn nth(n: u32) -> Self {
        Self::from_bits(0xfd00 << 112 | u128::from(n))
    }
    fn requester(prefix: u32) -> Self {
        Self::from_bits(0x2001 << 112 | u128::from(prefix) << 80)
    }
}

/// A station's link address by number.
fn mac(n: u32) -> MacAddr {
    let [a, b, c, d] = n.to_be_bytes();
    MacAddr([2, 0, a, b, c, d])
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    To(MacAddr),
    Waits,
    Asks,
    /// It waits, and the oldest that waited is dropped as `NeighborPendingFull`.
    Replaces,
    Dies(DropReason),
}

/// What timed work returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked<A> {
    Group(A),
    Neighbor(A, MacAddr),
    Unreachable(A, usize),
}

/// A cache with its clock, its packets, and what it did.
struct World<A> {
    cache: NeighborCache<A>,
    pool: Pool,
    now: Instant,
    released: PacketList,
}

impl<A: Nth> World<A> {
    fn with(config: NeighborConfig) -> Self {
        let packets = PoolConfig {
            small: 1024,
            frames: 1,
            references: 0,
            accounts: 1,
            ..PoolConfig::default()
        };
        let now = Instant::ORIGIN + SECOND;
        let mut cache = NeighborCache::new(config, HashKey::new(1, 2), PublicRandom::new(3), now);
        // Solicitations at the RFC's pace alone, as where a router has set it.
        for iface in 0..config.interfaces as u16 {
            cache.set_timers(IfIndex(iface), None, Some(RETRANS_TIMER));
        }
        Self { cache, pool: Pool::new(&packets).unwrap(), now, released: PacketList::new() }
    }

    fn new() -> Self {
        Self::with(NeighborConfig::for_interfaces(3))
    }

    /// Sends a packet of our own to the neighbour `n`.
    fn send(&mut self, n: u32) -> Outcome {
        self.send_for(A::UNSPECIFIED, n)
    }

    /// Forwards a packet of this source to the neighbour `n`.
    fn send_for(&mut self, source: A, n: u32) -> Outcome {
        let packet = self.pool.packet_from(&n.to_be_bytes()).unwrap();
        match self.cache.resolve(ONE, (A::nth(n), source), self.now, packet) {
            Resolution::Known(_, link_addr) => Outcome::To(link_addr),
            Resolution::Waiting { solicit: true, .. } => Outcome::Asks,
            Resolution::Waiting { dropped: Some(_), .. } => Outcome::Replaces,
            Resolution::Waiting { .. } => Outcome::Waits,
            Resolution::Refused(_, reason) => Outcome::Dies(reason),
        }
    }

    /// The neighbour `n` answers; how many packets leave.
    fn answers(&mut self, n: u32) -> usize {
        let flags = AdvertisementFlags { solicited: true, overriding: true, router: false };
        self.advertises(n, Some(mac(n)), flags);
        self.left()
    }

    fn advertises(
        &mut self,
        n: u32,
        link_addr: Option<MacAddr>,
        flags: AdvertisementFlags,
    ) -> Option<MacAddr> {
        let released = &mut self.released;
        let heard = self.cache.advertised(ONE, A::nth(n), link_addr, flags, self.now, released);
        heard.map(|heard| heard.link_addr)
    }

    /// The neighbour `n` solicits us.
    fn asks_for_us(&mut self, n: u32) -> Option<MacAddr> {
        let released = &mut self.released;
        self.cache.solicited_by(ONE, A::nth(n), mac(n), self.now, released)
    }

    /// How many packets were released since the last time.
    fn left(&mut self) -> usize {
        self.released.take().len()
    }

    /// Lets time pass, and calls timed work at every deadline of the cache.
    fn pass(&mut self, time: Duration) -> Vec<Asked<A>> {
        let asked = self.pass_timed(time).into_iter().map(|(_, it)| it).collect();
        self.cache.table.assert_sound();
        asked
    }

    /// The same, with the time of each.
    fn pass_timed(&mut self, time: Duration) -> Vec<(Instant, Asked<A>)> {
        let (end, mut asked) = (self.now + time, Vec::new());
        loop {
            let wake = self.cache.deadline().unwrap_or(Instant::FAR).max(self.now).min(end);
            self.now = wake;
            self.cache.work(wake, Units(1000), |event| {
                let it = match event {
                    NeighborEvent::Solicit { addr, unicast: None, .. } => Asked::Group(addr),
                    NeighborEvent::Solicit { addr, unicast: Some(link_addr), .. } => {
                        Asked::Neighbor(addr, link_addr)
                    }
                    NeighborEvent::Unreachable { addr, packets, .. } => {
                        Asked::Unreachable(addr, packets.len())
                    }
                };
                asked.push((wake, it));
            });
            if wake >= end {
                return asked;
            }
        }
    }

    fn state(&self, n: u32) -> Option<NeighborState> {
        self.cache.neighbor(ONE, A::nth(n)).map(|neighbor| neighbor.state)
    }

    /// Makes the neighbour `n` reachable.
    fn resolves(&mut self, n: u32) {
        assert_eq!(self.send(n), Outcome::Asks);
        assert_eq!((self.answers(n), self.state(n)), (1, Some(Reachable)));
    }

    /// Brings the neighbour `n` into a state.
    fn bring(&mut self, n: u32, state: NeighborState) {
        match state {
            Incomplete => assert_eq!(self.send(n), Outcome::Asks),
            Permanent => {
                let released = &mut self.released;
                self.cache.set_permanent(ONE, A::nth(n), mac(n), self.now, released).unwrap();
            }
            Failed => {
                self.bring(n, Incomplete);
                self.pass(4 * SECOND);
            }
            Reachable => self.resolves(n),
            Unreachable => {
                self.bring(n, Probe);
                self.pass(3 * SECOND);
            }
            Stale | Delay | Probe => {
                self.resolves(n);
                self.pass(46 * SECOND);
                if state != Stale {
                    assert_eq!(self.send(n), Outcome::To(mac(n)));
                }
                if state == Probe {
                    self.pass(DELAY_FIRST_PROBE_TIME + SECOND / 2);
                }
            }
        }
        assert_eq!(self.state(n), Some(state));
    }
}
