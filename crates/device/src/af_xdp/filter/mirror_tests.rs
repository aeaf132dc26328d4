//! The filter's code, run by the interpreter on headers of every kind, beside a mirror in Rust.
//!
//! The mirror reads a frame the plain way and knows nothing of the code. Each frame is a packet of
//! some kind with a few bytes changed and a length of its own; seeds are fixed. The interpreter
//! refuses a read beyond the frame or of what was never written, so every frame also shows that.
//! Where the kernel runs programs, it is asked about some of the frames, too.

use floodwall_base::PublicRandom;
use floodwall_bpf::interpreter::{Machine, verdict};
use floodwall_bpf::sample::{self, SampledService};
use floodwall_bpf::{Assembler, Instruction, Register};
use floodwall_packet::RxFilter;

use super::code::{self, KnownFields};
use super::established::{ENTRY_WORDS, KEY_WORDS, SET_WAYS, SETS};
use super::fair::{FairMaps, PREFIXES, SERVICES};
use super::flow_share::FlowMaps;
use super::tests::{NOW, STATION, TCP, UDP, flow, frame};
use super::{DESK_GRANTED, DESK_REFUSED, DESK_WORDS, FilterRefusal, ProgramKind};
use crate::af_xdp::destination_maps::DestinationMaps;
use crate::af_xdp::filter_tables::{BY_PORT, PORT_WORDS};
use crate::af_xdp::first_line::{FirstLine, FirstLineState};

const SEED: u64 = 11;
/// Frames that the interpreter is asked about, and of these the kernel.
const FRAMES: usize = 20_000;
const FRAMES_KERNEL: usize = 1_000;
/// The only open port, of both protocols, at the addresses of [`flow`].
const PORT: u16 = 7;
const OURS_V4: [u8; 4] = [10, 0, 0, 99];
const OURS_V6: [u8; 16] = [0xfd; 16];

/// What becomes of a frame under pressure, with credit for all: the reason for which it is dropped,
/// if any.
fn mirror(frame: &[u8]) -> Option<FilterRefusal> {
    let half = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    if frame.len() < 14 {
        return None;
    }
    if frame[6] & 1 == 1 {
        return Some(FilterRefusal::SourceGroup);
    }
    match half(12)? {
        0x0800 => mirror_v4(frame.get(14..)?),
        0x86dd => mirror_v6(frame.get(14..)?),
        0x0806 | 0x88a8 => None,
        0x8100 if frame.len() < 18 || half(14)? & 0xfff == 0 => None,
        0x8100 => Some(FilterRefusal::VlanForeign),
        _ => Some(FilterRefusal::KindUnknown),
    }
}

fn mirror_v4(packet: &[u8]) -> Option<FilterRefusal> {
    let header: &[u8; 20] = packet.first_chunk()?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let header_bytes = usize::from(header[0] & 15) * 4;
    if header[0] >> 4 != 4 || header_bytes < 20 || length < header_bytes || length > packet.len() {
        return Some(FilterRefusal::HeaderMalformed);
    }
    let is_whole = u16::from_be_bytes([header[6], header[7]]) & 0x3fff == 0;
    let ports = packet.get(20..24).filter(|_| header_bytes == 20 && is_whole);
    let (group, ours) = (header[16] >= 224, header[16..] == OURS_V4);
    mirror_to((group, ours), header[9], ports)
}

fn mirror_v6(packet: &[u8]) -> Option<FilterRefusal> {
    let header: &[u8; 40] = packet.first_chunk()?;
    let length = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
    if header[0] >> 4 != 6 || length > packet.len() {
        return Some(FilterRefusal::HeaderMalformed);
    }
    if header[6] == 58 {
        return None;
    }
    mirror_to((header[24] == 0xff, header[24..] == OURS_V6), header[6], packet.get(40..44))
}

/// Of a packet that goes to a group, or to us, or elsewhere.
fn mirror_to(
    (group, ours): (bool, bool),
    protocol: u8,
    ports: Option<&[u8]>,
) -> Option<FilterRefusal> {
    let ports = ports.filter(|_| matches!(protocol, TCP | UDP));
    let is_closed = ports.is_some_and(|ports| ports[2..] != PORT.to_be_bytes());
    match (group, ours) {
        (true, _) => None,
        (false, false) => Some(FilterRefusal::AddressForeign),
        (false, true) => is_closed.then_some(FilterRefusal::PortClosed),
    }
}

/// The machine with the filter's maps, and the filter's code.
struct Modelled {
    machine: Machine,
    desks: i32,
    samples: i32,
    code: Vec<Instruction>,
}

impl Modelled {
    fn new() -> Self {
        let mut machine = Machine::new();
        let words =
            |machine: &mut Machine, each: usize, count: usize| machine.array(8 * each, count);
        let desks = words(&mut machine, DESK_WORDS, 1);
        let established = words(&mut machine, SET_WAYS * ENTRY_WORDS, SETS);
        let board = words(&mut machine, 5, 1);
        let ports = words(&mut machine, 1, 2 * PORT_WORDS);
        let addresses = machine.hash(16, 8, 8);
        let maps = DestinationMaps { board, ports, addresses, denied: machine.hash(20, 8, 1) };
        let fair = FairMaps {
            services: words(&mut machine, 2, SERVICES as usize),
            prefixes: words(&mut machine, 2, PREFIXES as usize),
            key: 0x1234_5678_9abc_def1,
        };
        let flows = FlowMaps { prefixes: words(&mut machine, 2, PREFIXES as usize), key: 77 };
        let samples = words(&mut machine, 1, sample::ENTRIES);
        let key: [u64; KEY_WORDS] = core::array::from_fn(|n| (0x9e37_79b9 * (n as u64 + 3)) | 1);
        let known = KnownFields {
            desks,
            established,
            key: &key,
            prefix_key: [3, 5, 7, 9],
            maps,
            fair,
            flows: Some(flows),
            samples,
            programs: None,
            redirects: None,
        };
        let mut a = Assembler::new();
        let through = a.label();
        a.copy(Register::R6, Register::R1);
        code::emit(&mut a, &known, through);
        a.place(through);
        a.set(Register::R0, 2).exit();
        let code = a.finish().unwrap();
        let zero = 0_u32.to_ne_bytes();
        machine.set_word(desks, &zero, 0, 1);
        for kind in ProgramKind::ALL {
            machine.set_word(desks, &zero, DESK_GRANTED + kind as usize, u64::MAX);
        }
        let words = [super::DESK_BEYOND, super::DESK_SERVICE_MAX];
        for word in words.into_iter().chain([super::DESK_SERVICE_HIGH, super::DESK_PREFIX_MAX]) {
            machine.set_word(desks, &zero, word, u64::MAX);
        }
        let mapped = u128::from_be_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 99]);
        for addr in [mapped.to_be_bytes(), OURS_V6] {
            assert!(machine.set(addresses, &addr, &BY_PORT.to_ne_bytes()));
        }
        for first in [0, PORT_WORDS] {
            let (word, lane) = (first + usize::from(PORT) / 8, usize::from(PORT) % 8 * 8);
            machine.set_word(ports, &(word as u32).to_ne_bytes(), 0, 1 << lane);
        }
        Self { machine, desks, samples, code }
    }

    fn refusals(&mut self) -> [u64; FilterRefusal::COUNT] {
        let desks = self.desks;
        core::array::from_fn(|why| {
            self.machine.word(desks, &0_u32.to_ne_bytes(), DESK_REFUSED + why).unwrap()
        })
    }

    /// What the code makes of a frame: the reason for which it is dropped, if any.
    fn say(&mut self, frame: &[u8]) -> Option<FilterRefusal> {
        let before = self.refusals();
        let outcome = self.machine.run(&self.code, &mut frame.to_vec());
        let outcome = outcome.unwrap_or_else(|fault| panic!("{fault:?}: {frame:x?}"));
        let after = self.refusals();
        let counted = |why: &FilterRefusal| after[*why as usize] != before[*why as usize];
        let mut why = FilterRefusal::ALL.into_iter().filter(counted);
        let refused = why.next();
        assert_eq!((why.next(), refused.is_some()), (None, outcome.verdict == verdict::DROP));
        refused
    }
}

/// A frame of some kind with some damage.
fn damaged(random: &mut PublicRandom) -> Vec<u8> {
    let six = random.below(2) == 1;
    let protocol = [UDP, TCP, 58, 1, 0, 44][random.below(6) as usize];
    let mut bytes = match random.below(8) {
        0 => {
            let kind = [0x0806, 0x8100, 0x88a8, 0x9000][random.below(4) as usize];
            frame(kind, &[random.below(2) as u8; 40])
        }
        _ => flow(six, protocol, 1, 1000),
    };
    // Half of them keep what is read first, so that what is behind it is read as well.
    let (first, changes) = match random.below(4) {
        0 => (0, 1 + random.below(8)),
        1 => (14, random.below(4)),
        _ => (34, random.below(3)),
    };
    for _ in 0..changes {
        let at = first + random.below((bytes.len() - first) as u64) as usize;
        bytes[at] ^= match random.below(3) {
            0 => 1 << random.below(8),
            _ => random.below(256) as u8,
        };
    }
    match random.below(4) {
        0 => bytes.truncate(14 + random.below(60) as usize),
        1 => bytes.resize(bytes.len() + random.below(40) as usize, 0),
        _ => {}
    }
    bytes
}

#[test]
fn headers_of_every_kind_get_the_verdict_of_the_mirror() {
    let (mut random, mut modelled) = (PublicRandom::new(SEED), Modelled::new());
    let mut said = [0; FilterRefusal::COUNT + 1];
    for number in 0..FRAMES {
        let frame = damaged(&mut random);
        let (expected, found) = (mirror(&frame), modelled.say(&frame));
        assert_eq!(found, expected, "seed {SEED}, frame {number}: {frame:x?}");
        said[expected.map_or(FilterRefusal::COUNT, |why| why as usize)] += 1;
    }
    let reasons = [
        FilterRefusal::SourceGroup,
        FilterRefusal::VlanForeign,
        FilterRefusal::KindUnknown,
        FilterRefusal::HeaderMalformed,
        FilterRefusal::AddressForeign,
        FilterRefusal::PortClosed,
    ];
    for why in reasons {
        assert!(said[why as usize] > FRAMES / 200, "{why:?} is hardly ever tried: {said:?}");
    }
    assert!(said[FilterRefusal::COUNT] > FRAMES / 4, "{said:?}");
    // Shorter than a link header: the kernel never shows such a frame, and nothing is read.
    (0..14).for_each(|len| assert_eq!(modelled.say(&vec![0xff; len]), None));
}

/// Of 16 closed ports each is refused as often; and what has no ports leaves no service.
#[test]
fn of_each_reason_the_last_services_are_sampled() {
    for six in [false, true] {
        let mut modelled = Modelled::new();
        let of_ring = |modelled: &mut Modelled, why: FilterRefusal| -> Vec<_> {
            let first = why as usize * sample::RING;
            let samples = modelled.samples;
            let mut word = |n: usize| {
                let key = ((first + n) as u32).to_ne_bytes();
                modelled.machine.word(samples, &key, 0).unwrap()
            };
            (0..sample::RING).map(|n| SampledService::of(word(n))).collect()
        };
        for n in 0..600_u16 {
            let protocol = if n % 32 < 16 { UDP } else { TCP };
            let mut closed = flow(six, protocol, 1, 1000);
            let ports = if six { 54 } else { 34 };
            closed[ports + 2..ports + 4].copy_from_slice(&(2000 + n % 32).to_be_bytes());
            assert_eq!(modelled.say(&closed), Some(FilterRefusal::PortClosed));
        }
        let sampled = of_ring(&mut modelled, FilterRefusal::PortClosed);
        // Every sixteenth frame: the one before a multiple of 16.
        let both = [(UDP, 2015), (TCP, 2031)];
        let both = both.map(|(protocol, port)| Some(SampledService { protocol, port }));
        for service in both {
            assert_eq!(sampled.iter().filter(|it| **it == service).count(), 8, "{sampled:?}");
        }
        let others = of_ring(&mut modelled, FilterRefusal::AddressForeign);
        assert!(others.iter().all(Option::is_none), "{others:?}");
        // Without credit: of a flow its service, of others none.
        let desks = modelled.desks;
        for kind in ProgramKind::UNVERIFIED {
            modelled.machine.set_word(desks, &[0; 4], DESK_GRANTED + kind as usize, 0);
        }
        modelled.machine.set_word(desks, &[0; 4], super::DESK_BEYOND, 0);
        for _ in 0..16 * sample::EACH / 2 {
            assert_eq!(modelled.say(&flow(six, UDP, 1, 1000)), Some(FilterRefusal::Unknown));
            let other = frame(0x0806, &[0; 40]);
            assert_eq!(modelled.say(&other), Some(FilterRefusal::Unknown));
        }
        let sampled = of_ring(&mut modelled, FilterRefusal::Unknown);
        let none = Some(SampledService { protocol: 0, port: 0 });
        assert!(sampled.iter().all(|it| *it == none), "each second frame: {sampled:?}");
    }
}

#[test]
fn the_kernel_says_the_same() {
    let Some(mut line) = super::tests::or_skipped(FirstLine::load(STATION)) else { return };
    let mut wanted = RxFilter::default();
    wanted.nothing();
    wanted.add_v4(OURS_V4.into(), true);
    wanted.add_v6(OURS_V6.into(), true);
    wanted.tcp.set(PORT, true);
    wanted.udp.set(PORT, true);
    line.want(&wanted);
    line.admit(NOW, Some(usize::MAX));
    let mut random = PublicRandom::new(SEED);
    for number in 0..FRAMES_KERNEL {
        let mut frame = damaged(&mut random);
        frame[..6].copy_from_slice(&STATION.0);
        let said = line.say(&frame).unwrap();
        let found = matches!(said, FirstLineState::Refused(_));
        assert_eq!(found, mirror(&frame).is_some(), "frame {number}: {said:?}, {frame:x?}");
    }
}
