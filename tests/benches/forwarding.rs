//! What it costs to pass a packet of 64 bytes on with the whole Internet's table, beside the same
//! loop with look-up and rewrite alone; one core, both families.
//!
//! Run: `cargo bench -p floodwall-tests --bench forwarding`. The prefixes are those of `data/bgp`,
//! each through one of sixteen neighbours; destinations are random addresses within random
//! prefixes. *Router*: the stack's round, from a burst of 64 frames in the pool to the departing
//! list. *Bare*: for the same frames a burst's look-up, the neighbour by its number, the link
//! header and the hop limit, nothing else: no validation, no accounting, no addresses of ours.
//! Making the frames is in neither. Rounds are interleaved; what is reported is the median of the
//! time of the thread's processor. As a test (`cargo test`) it runs a small share of everything
//! once.
#![expect(clippy::unwrap_used, reason = "a bench stops at the first surprise")]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use floodwall_base::{Family, HashKey, MacAddr, Prefix, PublicRandom};
use floodwall_fib::{Fib, FibConfig, Found, lpm};
use floodwall_ip::forward::lower_hop_limit;
use floodwall_packet::{Burst, Engine, PacketBuf, PacketList, Round};
use floodwall_tests::Rig;
use floodwall_tests::craft::FAMILIES;
use floodwall_tests::internet::{FIRST, NEIGHBORS, fill, frames, prefixes};
use floodwall_tests::transit::{LEFT, RIGHT, right, right_mac, router_config};
use rustix::time::{ClockId, clock_gettime};

const BURST: usize = 64;

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned() as u32)
}

struct Bench {
    rig: Rig,
    burst: Burst,
    departing: PacketList,
}

impl Bench {
    fn new(routes: usize) -> Self {
        let mut config = router_config();
        (config.routes, config.routes_max) = (Vec::new(), routes + 64);
        let mut rig = Rig::new(&config);
        for family in FAMILIES {
            for n in FIRST..FIRST + NEIGHBORS {
                rig.stack.add_neighbor(RIGHT, right(family, n), right_mac(n), rig.now).unwrap();
            }
        }
        rig.run_for(Duration::from_secs(10));
        Self { rig, burst: Burst::new(), departing: PacketList::new() }
    }

    fn packet(&self, frame: &[u8]) -> PacketBuf {
        let mut packet = self.rig.pool.packet_from(frame).unwrap();
        packet.set_iface(LEFT);
        packet
    }

    /// The stack's round over one burst; how many departed.
    fn route(&mut self, frames: &[Vec<u8>]) -> (Duration, usize) {
        for frame in frames {
            let packet = self.packet(frame);
            self.burst.push(packet).unwrap();
        }
        let mut round = Round {
            now: self.rig.now,
            pool: &self.rig.pool,
            random: &mut self.rig.random,
            arrived: &mut self.burst,
            departing: &mut self.departing,
            budget: floodwall_base::Units(256),
            peers: None,
        };
        let before = cpu_time();
        self.rig.stack.round(&mut round);
        let spent = cpu_time() - before;
        let departed = self.departing.len();
        drop(self.departing.take());
        (spent, departed)
    }

    /// Look-up and rewrite alone.
    fn bare<A: lpm::LpmFamily>(
        &mut self,
        fib: &Fib<A>,
        stations: &[[u8; 12]],
        (frames, addrs): (&[Vec<u8>], &[A]),
    ) -> (Duration, usize) {
        let mut packets: Vec<_> = frames.iter().map(|frame| self.packet(frame)).collect();
        let mut found: [Option<Found<A>>; BURST] = [None; BURST];
        let before = cpu_time();
        fib.lookup_burst(addrs, self.rig.now, &mut found);
        for (mut packet, found) in packets.drain(..).zip(&found) {
            let Some(found) = found else { continue };
            let Some(bytes) = packet.first_mut() else { continue };
            let at = found.gateway.map_or(0, |via| via.to_bits_aligned() as usize);
            let at = if A::FAMILY == Family::V4 {
                found.gateway.map_or(0, |via| (via.to_bits_aligned() >> 96) as usize)
            } else {
                at
            };
            bytes[..12].copy_from_slice(&stations[at & 127]);
            lower_hop_limit::<A>(bytes[14..].first_chunk_mut().unwrap());
            packet.set_iface(found.iface);
            self.departing.push_back(packet);
        }
        let spent = cpu_time() - before;
        let departed = self.departing.len();
        drop(self.departing.take());
        (spent, departed)
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn compare<A: lpm::LpmFamily>(
    bench: &mut Bench,
    prefixes: &[Prefix<A>],
    bursts: usize,
    rounds: usize,
) {
    let config = FibConfig::for_routes(prefixes.len() + 64);
    let mut fib = Fib::alone(config, HashKey::new(1, 2), bench.rig.now);
    fill(&mut fib, prefixes, bench.rig.now);
    let mut stations = vec![[0; 12]; 128];
    for n in FIRST..FIRST + NEIGHBORS {
        let MacAddr(to) = right_mac(n);
        let MacAddr(from) = right_mac(1);
        stations[usize::from(n) & 127] =
            <[u8; 12]>::try_from([to, from].concat().as_slice()).unwrap();
    }
    let (frames, addrs) = frames(prefixes, bursts * BURST, &mut PublicRandom::new(9));
    let (mut routed, mut bare) = (Vec::new(), Vec::new());
    let total = (bursts * BURST) as f64;
    for _ in 0..rounds {
        let (mut a, mut b) = ((Duration::ZERO, 0), (Duration::ZERO, 0));
        for (frames, addrs) in frames.chunks(BURST).zip(addrs.chunks(BURST)) {
            let (spent, departed) = bench.route(frames);
            a = (a.0 + spent, a.1 + departed);
            let (spent, departed) = bench.bare(&fib, &stations, (frames, addrs));
            b = (b.0 + spent, b.1 + departed);
        }
        assert_eq!((a.1, b.1), (frames.len(), frames.len()), "all were passed on");
        routed.push(a.0.as_nanos() as f64 / total);
        bare.push(b.0.as_nanos() as f64 / total);
    }
    let ratio = median(bare.iter().zip(&routed).map(|(b, r)| b / r).collect());
    let (routed, bare) = (median(routed), median(bare));
    println!(
        "{:?}, {} routes: router {routed:.0} ns a packet ({:.2} M/s), look-up and rewrite alone \
         {bare:.0} ns ({:.2} M/s): {ratio:.2}x",
        A::FAMILY,
        prefixes.len(),
        1e3 / routed,
        1e3 / bare,
    );
}

fn main() {
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let (routes, bursts, rounds) = if is_bench { (usize::MAX, 1024, 9) } else { (2000, 4, 1) };
    let (v4, v6) = (prefixes::<Ipv4Addr>(routes), prefixes::<Ipv6Addr>(routes));
    let mut bench = Bench::new(v4.len().max(v6.len()));
    let now = bench.rig.now;
    fill(bench.rig.stack.routes_v4_mut(), &v4, now);
    fill(bench.rig.stack.routes_v6_mut(), &v6, now);
    bench.rig.stack.routes_changed();
    compare(&mut bench, &v4, bursts, rounds);
    compare(&mut bench, &v6, bursts, rounds);
}
