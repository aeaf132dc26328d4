//! Any fragments in any order, with any overlap and any pause between them, against flat bytes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use floodwall_base::{
    Address, Counters, DropCounts, DropReason, HashKey, IfIndex, Instant, TimerWheel, Units, limits,
};
use floodwall_ip::input::{self, Layers};
use floodwall_ip::{Fragment, FragmentPiece, FragmentStore, ReassemblyConfig, ReassemblyTally};
use floodwall_packet::{AccessCounters, PacketBuf, Pool, PoolConfig};
use floodwall_wire::ipv6_ext::FragmentFields;
use floodwall_wire::{
    ExtensionLimits, IpProtocol, Ipv4Fields, Ipv4Header, Ipv6Fields, Ipv6Header, ipv4, ipv6,
    ipv6_ext,
};

use crate::cuts::Cut;

/// Fragments of one run: the store must never be full, which the model does not know.
const STEPS_MAX: usize = 300;
/// A protocol of which nothing is known.
const PROTOCOL: IpProtocol = IpProtocol(253);
/// Datagrams that are sent at a time.
const NAMES: u8 = 3;

thread_local! {
    static POOL: RefCell<Pool> = RefCell::new(pool());
}

fn pool() -> Pool {
    let config = PoolConfig { small: 512, frames: 768, references: 16, ..PoolConfig::default() };
    Pool::new(&config).expect("two megabytes")
}

/// Runs the steps of `data`. Its first byte selects the family; six bytes each give the datagram of
/// a fragment, where it belongs, how it is cut, and how much time has passed.
///
/// # Panics
/// The store and flat bytes do not agree, or not all is home at the end.
pub fn reassembly(data: &[u8]) {
    let Some((family, steps)) = data.split_first() else { return };
    POOL.with_borrow(|pool| {
        let before = pool.available();
        if family & 1 == 0 {
            run::<Ipv4Addr>(pool, steps);
        } else {
            run::<Ipv6Addr>(pool, steps);
        }
        assert_eq!(pool.available(), before, "not all is home");
    });
}

/// One fragment to be sent.
#[derive(Clone, Copy, Debug)]
struct Step {
    name: u8,
    offset: usize,
    len: usize,
    more: bool,
    cut: u8,
    pause: u64,
    /// What its bytes are made of.
    seed: u8,
}

impl Step {
    fn of(bytes: [u8; 6], seed: u8) -> Self {
        let [a, b, c, d, e, f] = bytes;
        // Places near the start are tried most; some are near the end of what a packet can have.
        let unit = match a >> 6 {
            0 | 1 => usize::from(b) % 24,
            2 => usize::from(b),
            _ => 8191 - usize::from(b) % 16,
        };
        let len = match d >> 6 {
            0 | 1 => usize::from(d & 0x3f) % 8 * 8,
            2 => usize::from(c) * 8 % 1400,
            _ => usize::from(c),
        };
        Self {
            name: a & 0x3f,
            offset: unit * 8,
            len,
            more: e & 3 != 0,
            cut: e >> 2,
            pause: if f > 240 { u64::from(f - 240) * 5 } else { 0 },
            seed,
        }
    }

    fn end(&self) -> usize {
        self.offset + self.len
    }

    fn payload(&self) -> Vec<u8> {
        (0..self.len).map(|n| ((self.offset + n) as u8).wrapping_mul(31) ^ self.seed).collect()
    }
}

/// What differs between the families.
trait Wire: Address {
    const TIMEOUT: Duration;
    const OVERLAP_ENDS: bool;
    /// Bytes before the payload that its length counts.
    const COUNTED: usize;

    fn packet(step: &Step) -> Vec<u8>;
    fn piece(
        packet: &PacketBuf,
        access: &mut AccessCounters,
    ) -> Result<FragmentPiece<Self>, DropReason>;
    /// The payload of a packet that was put together, its header checked.
    fn payload(bytes: &[u8]) -> &[u8];
}

impl Wire for Ipv4Addr {
    const TIMEOUT: Duration = limits::REASSEMBLY_TIMEOUT_V4;
    const OVERLAP_ENDS: bool = false;
    const COUNTED: usize = ipv4::HEADER_LEN;

    fn packet(step: &Step) -> Vec<u8> {
        let (from, to) = (Self::new(10, 0, 0, step.name % NAMES), Self::new(10, 0, 1, 1));
        let len = ipv4::HEADER_LEN + step.len;
        let fields = Ipv4Fields {
            id: u16::from(step.name / NAMES % NAMES),
            dont_fragment: false,
            more_fragments: step.more,
            fragment_offset: step.offset as u16,
            ..Ipv4Fields::new(from, to, PROTOCOL, 64, len as u16)
        };
        let mut header = [0; ipv4::HEADER_LEN];
        fields.emit(&mut header);
        [&header[..], &step.payload()].concat()
    }

    fn piece(
        packet: &PacketBuf,
        access: &mut AccessCounters,
    ) -> Result<FragmentPiece<Self>, DropReason> {
        let heading = input::ipv4(packet, 0, access).expect("it is well made");
        FragmentPiece::of_ipv4(packet, (IfIndex(1), 0, false), heading, access)
            .map_err(|r| r.reason)
    }

    fn payload(bytes: &[u8]) -> &[u8] {
        let header = Ipv4Header::parse(bytes, bytes.len()).expect("a header with its checksum");
        assert!(header.total_len() == bytes.len() && !header.is_fragment());
        &bytes[ipv4::HEADER_LEN..]
    }
}

impl Wire for Ipv6Addr {
    const TIMEOUT: Duration = limits::REASSEMBLY_TIMEOUT_V6;
    const OVERLAP_ENDS: bool = true;
    const COUNTED: usize = 0;

    fn packet(step: &Step) -> Vec<u8> {
        let net = |subnet, host| Self::new(0x2001, 0xdb8, 0, subnet, 0, 0, 0, host);
        let (from, to) = (net(u16::from(step.name % NAMES), 1), net(9, 9));
        let len = ipv6_ext::HEADER_LEN_MIN + step.len;
        let mut header = [0; ipv6::HEADER_LEN];
        Ipv6Fields::new(from, to, IpProtocol::FRAGMENT, 64, len as u16).emit(&mut header);
        let mut fragment = [0; ipv6_ext::HEADER_LEN_MIN];
        let id = u32::from(step.name / NAMES % NAMES);
        let (offset, more) = (step.offset as u16, step.more);
        FragmentFields { next_header: PROTOCOL, offset, more, id }.emit(&mut fragment);
        [&header[..], &fragment, &step.payload()].concat()
    }

    fn piece(
        packet: &PacketBuf,
        access: &mut AccessCounters,
    ) -> Result<FragmentPiece<Self>, DropReason> {
        let heading = input::ipv6(packet, 0, access).expect("it is well made");
        let layers = input::ipv6_upper(packet, 0, &heading, &ExtensionLimits::default(), access);
        let Ok(Layers::Fragment { place, upper }) = layers else { panic!("{layers:?}") };
        FragmentPiece::of_ipv6(packet, (IfIndex(1), 0, false), heading, (place, upper), access)
            .map_err(|refusal| refusal.reason)
    }

    fn payload(bytes: &[u8]) -> &[u8] {
        let header = Ipv6Header::parse(bytes, bytes.len()).expect("a header");
        assert_eq!((header.total_len(), header.next_header()), (bytes.len(), PROTOCOL));
        &bytes[ipv6::HEADER_LEN..]
    }
}

/// A datagram as flat bytes.
struct Model {
    until: Instant,
    bytes: Vec<Option<u8>>,
    total: Option<usize>,
    fragments: Vec<(usize, usize)>,
    dead: Option<DropReason>,
}

/// The expected result of a fragment: a drop of the newcomer or of all, or none.
enum Expected {
    Stored,
    Dies(DropReason),
    AllDie(DropReason),
}

impl Model {
    fn new(until: Instant) -> Self {
        let (bytes, fragments) = (Vec::new(), Vec::new());
        Self { until, bytes, total: None, fragments, dead: None }
    }

    fn has(&self, at: usize) -> bool {
        self.bytes.get(at).is_some_and(Option::is_some)
    }

    fn runs(&self) -> usize {
        let starts = |at: &usize| self.has(*at) && (*at == 0 || !self.has(*at - 1));
        (0..self.bytes.len()).filter(starts).count()
    }

    fn judge(&self, step: &Step, strict: bool) -> Expected {
        if let Some(reason) = self.dead {
            return Expected::Dies(reason);
        }
        let quarrel = match strict {
            true => Expected::AllDie(DropReason::FragmentOverlap),
            false => Expected::Dies(DropReason::FragmentOverlap),
        };
        let disagrees = match (self.total, step.more) {
            (Some(total), true) => step.end() > total,
            (Some(total), false) => step.end() != total,
            (None, true) => false,
            (None, false) => self.bytes.len() > step.end(),
        };
        if disagrees {
            return quarrel;
        }
        let held = (step.offset..step.end()).filter(|at| self.has(*at)).count();
        let same = self.fragments.contains(&(step.offset, step.end()))
            && step.more == (self.total != Some(step.end()));
        if held > 0 && strict {
            return if same { Expected::Dies(DropReason::FragmentDuplicate) } else { quarrel };
        }
        if held == step.len {
            return Expected::Dies(DropReason::FragmentDuplicate);
        }
        let apart =
            held == 0 && !(step.offset > 0 && self.has(step.offset - 1)) && !self.has(step.end());
        let full = self.fragments.len() >= limits::REASSEMBLY_FRAGMENTS_MAX
            || (apart && self.runs() >= limits::REASSEMBLY_RUNS_MAX);
        if full { Expected::AllDie(DropReason::FragmentTooMany) } else { Expected::Stored }
    }

    fn store(&mut self, step: &Step) {
        if self.bytes.len() < step.end() {
            self.bytes.resize(step.end(), None);
        }
        for (slot, byte) in self.bytes[step.offset..].iter_mut().zip(step.payload()) {
            slot.get_or_insert(byte);
        }
        self.fragments.push((step.offset, step.end()));
        if !step.more {
            self.total = Some(step.end());
        }
    }

    fn whole(&self) -> Option<Vec<u8>> {
        self.total.filter(|total| *total == self.bytes.len())?;
        self.bytes.iter().copied().collect()
    }
}

/// The store, its oracle, and what both have counted.
struct Bench<A> {
    store: FragmentStore<A>,
    models: BTreeMap<(u8, u8), Model>,
    now: Instant,
    drops: DropCounts,
    expected: DropCounts,
    counters: Counters,
    access: AccessCounters,
}

fn run<A: Wire>(pool: &Pool, steps: &[u8]) {
    let now = Instant::from_nanos(1_000_000_000);
    let config = ReassemblyConfig { bytes: 1 << 24, datagrams: 64 };
    let mut bench = Bench::<A> {
        store: FragmentStore::new(config, HashKey::new(1, 2), now),
        models: BTreeMap::new(),
        now,
        drops: DropCounts::default(),
        expected: DropCounts::default(),
        counters: Counters::default(),
        access: AccessCounters::default(),
    };
    for (n, bytes) in steps.chunks_exact(6).take(STEPS_MAX).enumerate() {
        let bytes = bytes.try_into().expect("six");
        bench.step(pool, &Step::of(bytes, n as u8));
        bench.check();
    }
    bench.pass(A::TIMEOUT.as_secs() + 1);
    bench.check();
    assert_eq!((bench.store.bytes(), bench.store.datagrams()), (0, 0));
}

impl<A: Wire> Bench<A> {
    fn step(&mut self, pool: &Pool, step: &Step) {
        // Timers run late or not at all: what is over is over.
        if step.pause > 0 && step.cut & 1 == 0 {
            self.pass(step.pause);
        } else {
            self.now += Duration::from_secs(step.pause);
        }
        // All of a packet in one piece is none of the store's business.
        if step.offset == 0 && !step.more {
            return;
        }
        let bytes = A::packet(step);
        let places = (0..usize::from(step.cut % 5)).map(|n| n * 37 % bytes.len());
        let cut = Cut::at(places.collect());
        let Some(packet) = pool.packet_from_chunks(cut.of(&bytes)) else { return };
        let malformed = step.len == 0
            || (step.more && !step.len.is_multiple_of(8))
            || A::COUNTED + step.end() > 65_535;
        let piece = match A::piece(&packet, &mut self.access) {
            Ok(piece) => piece,
            Err(reason) => {
                assert_eq!((reason, malformed), (DropReason::FragmentMalformed, true), "{step:?}");
                return;
            }
        };
        assert!(!malformed, "{step:?}");
        self.input(pool, step, &piece, packet);
    }

    fn input(&mut self, pool: &Pool, step: &Step, piece: &FragmentPiece<A>, packet: PacketBuf) {
        let key = (step.name % NAMES, step.name / NAMES % NAMES);
        if self.models.get(&key).is_some_and(|model| model.until <= self.now) {
            self.forget(key);
        }
        let until = self.now + A::TIMEOUT;
        let model = self.models.entry(key).or_insert_with(|| Model::new(until));
        let mut whole = None;
        match model.judge(step, A::OVERLAP_ENDS) {
            Expected::Dies(reason) => self.expected.count(reason),
            Expected::AllDie(reason) => {
                self.expected.add(reason, 1 + model.fragments.len() as u64);
                (model.dead, model.fragments, model.bytes) = (Some(reason), vec![], vec![]);
            }
            Expected::Stored => {
                model.store(step);
                whole = model.whole();
            }
        }
        let Self { store, drops, counters, access, now, .. } = self;
        let mut tally = ReassemblyTally { drops, counters, access };
        let (fragment, _) = store.input(piece, packet, *now, pool, &mut tally);
        match (fragment, whole) {
            (Fragment::Whole(got), Some(want)) => {
                let bytes: Vec<u8> = got.packet.chunks().flatten().copied().collect();
                assert!(A::payload(&bytes) == want, "other bytes: {step:?}");
                assert!(got.packet.chunk_count() <= limits::CHUNKS_MAX);
                let model = self.models.remove(&key).expect("it was there");
                assert_eq!(got.fragments, model.fragments.len() as u64);
            }
            (Fragment::Held | Fragment::Dropped, None) => {}
            (got, want) => panic!("{got:?}, but {} of {step:?}", want.is_some()),
        }
    }

    /// Lets time pass, and timers run.
    fn pass(&mut self, seconds: u64) {
        // And a little: a wheel gives out what is due one granule late.
        self.now += Duration::from_secs(seconds) + TimerWheel::GRANULARITY * 2;
        let Self { store, drops, counters, access, now, .. } = self;
        let mut tally = ReassemblyTally { drops, counters, access };
        while store.deadline().is_some_and(|due| due <= *now) {
            store.expire(*now, Units(16), &mut tally, |expired| {
                assert!(expired.first.is_none_or(|(packet, _)| !packet.is_empty()));
            });
        }
        let over: Vec<_> =
            self.models.iter().filter(|(_, m)| m.until <= self.now).map(|(key, _)| *key).collect();
        over.into_iter().for_each(|key| self.forget(key));
    }

    fn forget(&mut self, key: (u8, u8)) {
        let model = self.models.remove(&key).expect("it is there");
        if model.dead.is_none() {
            self.expected.add(DropReason::FragmentTimeout, model.fragments.len() as u64);
        }
    }

    fn check(&self) {
        assert_eq!(self.drops, self.expected);
        let held: usize = self.models.values().map(|model| model.fragments.len()).sum();
        assert_eq!(self.store.held(), held as u64);
        assert!(held > 0 || self.store.bytes() == 0, "{} bytes of nothing", self.store.bytes());
    }
}

#[cfg(test)]
mod tests {
    use crate::Seeded;

    use super::*;

    /// Programs of small pieces of few datagrams: overlaps of every shape, and many wholes.
    #[test]
    fn random_fragments_agree_with_flat_bytes() {
        let mut random = Seeded::new(11);
        for _ in 0..3000 {
            let len = random.below(1200);
            let mut program: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            let (close, calm) = (random.below(3), random.below(4));
            for step in program.iter_mut().skip(1).collect::<Vec<_>>().chunks_exact_mut(6) {
                if close > 0 {
                    *step[0] &= 0x03;
                    *step[1] %= 8 * close as u8;
                    *step[3] &= 0x3f;
                }
                if calm > 0 {
                    *step[5] = 0;
                }
            }
            reassembly(&program);
        }
    }

    #[test]
    fn datagrams_of_all_sizes_come_together_in_any_order() {
        let mut random = Seeded::new(12);
        for family in [0, 1] {
            for unit in [8, 64, 552, 904, 1232] {
                let total = random.below(60_000.min(unit * 120)) + unit;
                let mut order: Vec<usize> = (0..total.div_ceil(unit)).collect();
                random.shuffle(&mut order);
                let steps: Vec<_> = order
                    .into_iter()
                    .map(|n| {
                        let (offset, len) = (n * unit, unit.min(total - n * unit));
                        let more = offset + len < total;
                        Step { name: 0, offset, len, more, cut: 0, pause: 0, seed: 7 }
                    })
                    .collect();
                POOL.with_borrow(|pool| {
                    let wholes = match family {
                        0 => drive::<Ipv4Addr>(pool, &steps),
                        _ => drive::<Ipv6Addr>(pool, &steps),
                    };
                    assert_eq!(wholes, u64::from(steps.len() > 1), "{unit} {total}");
                });
            }
        }
    }

    fn drive<A: Wire>(pool: &Pool, steps: &[Step]) -> u64 {
        let now = Instant::from_nanos(1);
        let mut bench = Bench::<A> {
            store: FragmentStore::new(ReassemblyConfig::default(), HashKey::new(1, 2), now),
            models: BTreeMap::new(),
            now,
            drops: DropCounts::default(),
            expected: DropCounts::default(),
            counters: Counters::default(),
            access: AccessCounters::default(),
        };
        for step in steps {
            bench.step(pool, step);
            bench.check();
        }
        let counter = match A::OVERLAP_ENDS {
            true => floodwall_base::Counter::Ip6ReasmOKs,
            false => floodwall_base::Counter::IpReasmOKs,
        };
        bench.counters.of(counter)
    }
}
