//! A machine with the maps and both programs, a SYN cache with the same keys, and frames.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{Endpoint, FlowKey, IfIndex, Instant, Randomness, Seq};
use floodwall_syncache::{
    CacheSettings, CookieEpoch, CookieMoment, CookiePolicy, HalfOpen, ListenSettings, ListenerId,
    Secret, SynAnswer, SynCache, SynOptions, SynSegment,
};
use floodwall_wire::tcp_options::{TcpOptionSet, TcpOptions, Timestamps};

use crate::cookie::*;
use crate::interpreter::{Machine, Outcome};
use crate::{Assembler, Instruction, Register};

/// What the programs of the tests return.
pub(super) const ANSWERED: u64 = 3;
pub(super) const ASLEEP: u64 = 10;
pub(super) const LEFT: u64 = 11;
pub(super) const BROKEN: u64 = 12;
pub(super) const PROVEN: u64 = 20;
pub(super) const FORGED: u64 = 21;
pub(super) const STRAY: u64 = 22;

pub(super) const PORT: u16 = 80;
pub(super) const ZONE: u16 = 3;
pub(super) const OURS: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(10, 0, 0, 1), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
pub(super) const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// The cookie programs in the interpreter, with their maps.
pub(super) struct Rig {
    pub(super) machine: Machine,
    pub(super) maps: Maps,
    pub(super) syn: Vec<Instruction>,
    pub(super) ack: Vec<Instruction>,
    pub(super) cache: SynCache,
    pub(super) listener: ListenerId,
    pub(super) now: Instant,
}

pub(super) fn programs(maps: &Maps) -> (Vec<Instruction>, Vec<Instruction>) {
    let mut a = Assembler::new();
    let ways =
        SynWays { answered: a.label(), asleep: a.label(), left: a.label(), broken: a.label() };
    answer_syn(&mut a, maps, &ways);
    let ends = [
        (ways.answered, ANSWERED),
        (ways.asleep, ASLEEP),
        (ways.left, LEFT),
        (ways.broken, BROKEN),
    ];
    for (label, verdict) in ends {
        a.place(label);
        a.set(Register::R0, verdict as i32).exit();
    }
    let syn = a.finish().unwrap();
    let mut a = Assembler::new();
    let ways = AckWays { proven: a.label(), forged: a.label(), stray: a.label() };
    check_ack(&mut a, maps, &ways);
    for (label, verdict) in [(ways.proven, PROVEN), (ways.forged, FORGED), (ways.stray, STRAY)] {
        a.place(label);
        a.set(Register::R0, verdict as i32).exit();
    }
    (syn, a.finish().unwrap())
}

pub(super) fn secret(n: u8) -> Secret {
    let bytes: Vec<u8> = (0..32).map(|byte| byte ^ n).collect();
    Secret::from_bytes(&bytes).unwrap()
}

impl Rig {
    /// Awake, with a listener on each of our addresses.
    pub(super) fn new(settings: ListenSettings, now: Instant) -> Self {
        let mut machine = Machine::new();
        let maps = Maps {
            desks: machine.array(Desk::WORDS * 8, 2),
            scratch: machine.per_core_array(SCRATCH_BYTES, 1),
            keys: machine.array(KEY_WORDS * 8, KEY_ENTRIES),
            listeners: machine.hash(LISTENER_KEY_BYTES, 8, 64),
            addresses: Some(machine.hash(16, 8, 16)),
            samples: Some(machine.array(8, 2 * crate::sample::ENTRIES)),
        };
        let (syn, ack) = programs(&maps);
        let at = CookieMoment::simulated(now);
        let mut random = Randomness::from_number(7).secret;
        let mut cache = SynCache::new(CacheSettings::default(), secret(1), &mut random, at);
        cache.set_shared(true);
        let settings = ListenSettings { cookies: CookiePolicy::Always, ..settings };
        let listener = cache.listen(settings).unwrap();
        let mut rig = Self { machine, maps, syn, ack, cache, listener, now };
        rig.listen(&settings);
        for addr in [OURS.0.to_ipv6_mapped(), OURS.1, LINK_LOCAL] {
            assert!(rig.machine.set(maps.addresses.unwrap(), &addr.octets(), &[0; 8]));
        }
        rig.at(now);
        rig.pressed(true);
        rig
    }

    /// What the listeners say.
    pub(super) fn listen(&mut self, settings: &ListenSettings) {
        for addr in [IpAddr::V4(OURS.0), OURS.1.into(), LINK_LOCAL.into()] {
            let mss = if addr.is_ipv4() { settings.mss.0 } else { settings.mss.1 };
            let offer = Offer {
                window: settings.window,
                mss,
                window_scale: settings.window_scale,
                sack: settings.sack,
                timestamps: settings.timestamps,
                ecn: settings.ecn,
                hop_limit: 64,
                traffic_class: 0,
            };
            let key = listener_key(addr, PORT);
            assert!(self.machine.set(self.maps.listeners, &key, &offer.word().to_ne_bytes()));
        }
    }

    pub(super) fn moment(&self) -> CookieMoment {
        CookieMoment::simulated(self.now)
    }

    /// It is `now`, and the keys are written.
    pub(super) fn at(&mut self, now: Instant) {
        self.only_at(now);
        self.turn();
    }

    /// It is `now`, and the user has not noticed.
    pub(super) fn only_at(&mut self, now: Instant) {
        self.now = now;
        self.machine.nanos = now.as_nanos();
    }

    /// Writes the keys.
    pub(super) fn turn(&mut self) {
        let CookieEpoch(epoch) = self.moment().epoch;
        let until = Instant::from_nanos((epoch + 1) * EPOCH_NANOS);
        let keys = self.cache.interface_keys(self.moment(), until);
        for (key, of) in keys.keys.into_iter().zip(epoch.wrapping_sub(1)..) {
            let words = KeyTable::key(key);
            self.put(KeyTable::entry_of(of), &words);
        }
        let until = KeyTable::until(epoch, until.as_nanos());
        self.put(0, &KeyTable::header(until, keys.clock, ZONE));
    }

    fn put(&mut self, entry: usize, words: &[u64; KEY_WORDS]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert!(self.machine.set(self.maps.keys, &(entry as u32).to_ne_bytes(), &bytes));
    }

    pub(super) fn desk(&mut self, word: Desk) -> u64 {
        self.machine.word(self.maps.desks, &[0; 4], word as usize).unwrap()
    }

    pub(super) fn pressed(&mut self, is: bool) {
        let word = Desk::Pressed as usize;
        self.machine.set_word(self.maps.desks, &[0; 4], word, u64::from(is));
    }

    pub(super) fn run_syn(&mut self, frame: &mut Vec<u8>) -> Outcome {
        let code = core::mem::take(&mut self.syn);
        let outcome = self.machine.run(&code, frame);
        self.syn = code;
        outcome.unwrap()
    }

    pub(super) fn run_ack(&mut self, frame: &mut Vec<u8>) -> Outcome {
        let code = core::mem::take(&mut self.ack);
        let outcome = self.machine.run(&code, frame);
        self.ack = code;
        outcome.unwrap()
    }

    /// What the cache answers to a SYN.
    pub(super) fn cache_answers(&mut self, sent: &Sent) -> Option<Vec<u8>> {
        let set = TcpOptionSet::read(TcpOptions::new(&sent.options)).ok()?;
        let syn = SynSegment {
            flow: sent.flow(),
            seq: Seq(sent.seq),
            window: 1000,
            options: SynOptions {
                mss: set.mss,
                window_scale: set.window_scale,
                sack: set.sack_permitted,
                timestamp: set.timestamps.map(|it| it.value),
                ecn: sent.flags & 0xc0 == 0xc0,
            },
        };
        let (listener, at) = (self.listener, self.moment());
        let SynAnswer::Cookie(answer) = self.cache.syn(listener, &syn, at) else { return None };
        let options = TcpOptionSet {
            mss: answer.mss,
            window_scale: answer.window_scale,
            sack_permitted: answer.sack,
            timestamps: answer.timestamp.map(|(value, echo)| Timestamps { value, echo }),
            ..TcpOptionSet::NONE
        };
        let mut bytes = [0; 40];
        let len = options.emit_into(&mut bytes).unwrap();
        let back = Sent {
            from: sent.to,
            to: sent.from,
            ports: (sent.ports.1, sent.ports.0),
            seq: answer.seq.0,
            ack: answer.ack.0,
            flags: if answer.ecn { 0x52 } else { 0x12 },
            window: answer.window,
            options: bytes[..len].to_vec(),
            text: 0,
        };
        let mut frame = back.frame();
        let (ours, theirs) = frame[..12].split_at_mut(6);
        ours.swap_with_slice(theirs);
        Some(frame)
    }
}

/// A segment to us, or back.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    pub(super) ports: (u16, u16),
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    pub(super) window: u16,
    pub(super) options: Vec<u8>,
    /// Bytes of text.
    pub(super) text: usize,
}

impl Sent {
    /// A SYN to us.
    pub(super) fn syn(v6: bool, options: &[u8]) -> Self {
        let (from, to) = match v6 {
            false => (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9)), IpAddr::V4(OURS.0)),
            true => ("2001:db8::9".parse().unwrap(), OURS.1.into()),
        };
        let options = options.to_vec();
        let ports = (4711, PORT);
        Self { from, to, ports, seq: 1000, ack: 0, flags: 2, window: 1000, options, text: 0 }
    }

    pub(super) fn flow(&self) -> FlowKey {
        let is_local = |addr: IpAddr| match addr {
            IpAddr::V4(addr) => addr.is_link_local(),
            IpAddr::V6(addr) => addr.is_unicast_link_local(),
        };
        let zone = if is_local(self.from) || is_local(self.to) { ZONE } else { 0 };
        FlowKey {
            local: Endpoint::new(self.to, self.ports.1),
            remote: Endpoint::new(self.from, self.ports.0),
            zone: IfIndex(zone),
            protocol: 6,
        }
    }

    /// The frame, with checksums, and with the answer's headers where it is one.
    pub(super) fn frame(&self) -> Vec<u8> {
        let mut tcp = Vec::new();
        tcp.extend(self.ports.0.to_be_bytes());
        tcp.extend(self.ports.1.to_be_bytes());
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        tcp.extend([(5 + self.options.len() as u8 / 4) << 4, self.flags]);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(&self.options);
        tcp.extend(core::iter::repeat_n(0x55, self.text));
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9];
        let mut pseudo = Vec::new();
        match (self.from, self.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                frame.extend(0x0800_u16.to_be_bytes());
                let mut ip = vec![0x45, 0];
                ip.extend((20 + tcp.len() as u16).to_be_bytes());
                ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
                ip.extend(from.octets().iter().chain(&to.octets()));
                let sum = sum_of(&ip);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend(ip);
                pseudo.extend(from.octets().iter().chain(&to.octets()));
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                frame.extend(0x86dd_u16.to_be_bytes());
                frame.extend([0x60, 0, 0, 0]);
                frame.extend((tcp.len() as u16).to_be_bytes());
                frame.extend([6, 64]);
                frame.extend(from.octets().iter().chain(&to.octets()));
                pseudo.extend(from.octets().iter().chain(&to.octets()));
            }
            _ => unreachable!("of one family"),
        }
        pseudo.extend([0, 6]);
        pseudo.extend((tcp.len() as u16).to_be_bytes());
        pseudo.extend(&tcp);
        let sum = sum_of(&pseudo);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        frame.extend(tcp);
        frame
    }

    /// The same padded to the least that Ethernet carries.
    pub(super) fn padded(&self) -> Vec<u8> {
        let mut frame = self.frame();
        frame.resize(frame.len().max(60), 0);
        frame
    }
}

/// The Internet checksum, slow and obviously right.
fn sum_of(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match *pair {
        [a, b] => u32::from(u16::from_be_bytes([a, b])),
        [a] => u32::from(a) << 8,
        _ => 0,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
