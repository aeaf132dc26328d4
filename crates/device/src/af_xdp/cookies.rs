//! `Cookies`: SYNs answered and ACKs believed by the program at the interface.
//!
//! Made by `steering.rs`, told by the device of queue 0 what to answer with ([`SynOffers`]). The
//! programs are composed in the crate `bpf`; here are their maps, and what becomes of the frames
//! that they leave alone. They stand in a map of programs, behind the filter's code: while there is
//! none in it everything is as without them. Invariants: keys of four epochs are written before the
//! word that puts them in force; a listener is in the table before SYNs for it are answered and out
//! of it before its word is forgotten.
//!
//! # Under flood
//! See `floodwall_bpf::cookie`. Bound: `XDP_LISTENERS` listeners, each at one address; SYNs for
//! more are the stack's. The lock is taken where listeners change, and not by code that handles
//! packets.

mod validate;

use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32};
use std::io;
use std::sync::Arc;

use floodwall_base::Instant;
use floodwall_base::limits::XDP_LISTENERS;
use floodwall_bpf::cookie::{
    AckWays, Desk, EPOCH_NANOS, KEY_ENTRIES, KEY_WORDS, KeyTable, LISTENER_KEY_BYTES, Maps, Offer,
    SCRATCH_BYTES, SynWays, answer_syn, check_ack, listener_key,
};
use floodwall_bpf::{Assembler, Function, Instruction, Label, NoProgram, Register};
use floodwall_packet::SynOffers;
use floodwall_sync::lock::Mutex;

use super::bpf::{BpfMapData, BpfProgram, Map, MapKind};
use super::filter::{SEGMENT_PROGRAM, SYN_PROGRAM, XdpFilter};
use super::link_station::LinkStation;
use super::mapped_words::MappedWords;
use super::program_switch::ProgramSwitch;
use super::way_back::{self, PassingAnswers};
use super::xdp_abi::{DROP, Deliver, TRANSMIT};
use crate::af_xdp::cookie_programs::CookiePrograms;
use crate::first_line_mode::FirstLineMode;
use crate::stats::DeviceStats;

/// How an answer leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Back {
    /// By the way that drivers keep for it (`XDP_TX`).
    Transmitted,
    /// As a frame that is redirected to the interface of that number: where the peer of a veth has
    /// no program of its own, the other way leads nowhere.
    Redirected(u32),
    /// Up to the system with this mark, where `way_back.rs` sends them back.
    Passed(u64),
}

/// What the program at an interface is to do besides steering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CookieProgramPlan {
    /// Frames are dropped under pressure.
    pub(crate) filters: bool,
    /// Established flows have tokens, and their prefixes a share: [`AfXdpConfig::flow_credit`].
    ///
    /// [`AfXdpConfig::flow_credit`]: crate::AfXdpConfig::flow_credit
    pub(crate) flow_credit: bool,
    /// SYNs are answered, and the answers leave so.
    pub(crate) answers: Option<Back>,
    /// It is an error if they cannot be.
    pub(crate) must_answer: bool,
    /// The peer of a veth takes answers only under conditions: the number of the interface.
    pub(crate) veth: Option<u32>,
    /// Where frames go that are not dropped.
    pub(crate) deliver: Deliver,
}

impl Default for CookieProgramPlan {
    /// To drop, and not to answer.
    fn default() -> Self {
        let deliver = Deliver::ToSockets;
        Self {
            filters: true,
            flow_credit: true,
            answers: None,
            must_answer: false,
            veth: None,
            deliver,
        }
    }
}

impl CookieProgramPlan {
    /// What is asked for. `is_veth` is whether the other side is this machine's.
    pub(crate) fn of(
        first_line: FirstLineMode,
        station: &LinkStation,
        is_veth: bool,
        index: u32,
    ) -> Self {
        let veth = is_veth.then_some(index);
        let back = veth.map_or(Back::Transmitted, |_| Back::Redirected(index));
        let wants = matches!(first_line, FirstLineMode::Auto | FirstLineMode::Cookies);
        Self {
            filters: first_line != FirstLineMode::Off || station.is_shared,
            flow_credit: true,
            answers: wants.then_some(back),
            must_answer: first_line == FirstLineMode::Cookies,
            veth,
            deliver: Deliver::ToSockets,
        }
    }
}

/// What `run` says where everything is in force.
const IN_FORCE: &str = "under pressure unverified traffic is limited at the interface, SYNs are \
                        answered there, and ACKs are checked";
type Listener = ([u8; LISTENER_KEY_BYTES], u64);

/// The cookie programs of one interface, and the maps that they share.
#[derive(Debug)]
pub(crate) struct Cookies {
    desks: MappedWords,
    keys: MappedWords,
    listeners: BpfMapData<LISTENER_KEY_BYTES>,
    programs: Arc<CookiePrograms>,
    /// What puts them into force while workers are at work.
    switch: Option<ProgramSwitch>,
    shown: Mutex<Vec<Listener>>,
    queues: u32,
    /// Whether the stack has said what SYNs are answered with.
    is_told: AtomicBool,
    /// The programs' own; kept for as long as they may run.
    _scratch: Map,
}

impl Cookies {
    /// Has the kernel load the programs, for so many queues, and for frames that go to `sockets`.
    /// Nothing is answered before [`Cookies::start`].
    pub(crate) fn load(
        filter: &XdpFilter,
        to: (i32, Deliver),
        queues: u32,
        back: Back,
    ) -> io::Result<Self> {
        let (desks, keys) = (
            MappedWords::create(Desk::WORDS, queues)?,
            MappedWords::create(KEY_WORDS, KEY_ENTRIES as u32)?,
        );
        let scratch = Map::create(MapKind::PerCpuArray, SCRATCH_BYTES, 1)?;
        let listeners = BpfMapData::create(XDP_LISTENERS as u32)?;
        let maps = Maps {
            desks: desks.fd(),
            scratch: scratch.fd(),
            keys: keys.fd(),
            listeners: listeners.fd(),
            addresses: Some(filter.maps().addresses),
            samples: Some(filter.samples()),
        };
        let nowhere = |NoProgram| io::Error::other("the program has a jump to nowhere");
        let syns_by = |back| {
            syns(filter, &maps, to, back).map_err(nowhere).and_then(|s| BpfProgram::load(&s, to.1))
        };
        let passing = match back {
            Back::Redirected(index) => {
                let load = PassingAnswers::load(index, |mark| syns_by(Back::Passed(mark)));
                load.map_err(|error| error.to_string())
            }
            Back::Transmitted | Back::Passed(_) => Err(String::new()),
        };
        let syns = syns_by(back)?;
        let segments = BpfProgram::load(&segments(filter, &maps, to).map_err(nowhere)?, to.1)?;
        Ok(Self {
            desks,
            keys,
            listeners,
            programs: Arc::new(CookiePrograms {
                map: Map::create(MapKind::Programs, 4, 2)?,
                loaded: [syns, segments],
                passing,
                started: AtomicU32::new(0),
                checks: AtomicBool::new(false),
                veth: AtomicU32::new(match back {
                    Back::Redirected(index) => index,
                    Back::Transmitted | Back::Passed(_) => 0,
                }),
                transmits: AtomicBool::new(false),
            }),
            switch: None,
            shown: Mutex::new(Vec::with_capacity(XDP_LISTENERS)),
            queues,
            is_told: AtomicBool::new(false),
            _scratch: scratch,
        })
    }

    /// The map of programs that the filter's code goes on with.
    pub(crate) fn programs(&self) -> i32 {
        self.programs.map.fd()
    }

    /// Whether frames that are redirected to the interface leave by it, as of the last look.
    pub(crate) fn transmits(&self) -> bool {
        self.programs.transmits.load(Relaxed)
    }

    /// The programs are in force from now on, without asking whether answers arrive.
    pub(crate) fn start(&self) -> io::Result<()> {
        [SYN_PROGRAM, SEGMENT_PROGRAM]
            .into_iter()
            .try_for_each(|which| self.programs.set(which, true, false))
    }

    /// Says how answers leave, where that is not certain.
    pub(crate) fn reach_peer(
        &mut self,
        plan: &CookieProgramPlan,
        is_generic: bool,
        notes: &mut Vec<String>,
    ) {
        // In front of the system's stack a redirected frame leaves as any other does.
        let veth = plan.veth.filter(|_| !is_generic);
        self.programs.veth.store(veth.unwrap_or(0), Relaxed);
        // Here and not on a worker's core.
        self.switch = ProgramSwitch::start(&self.programs).ok();
        let helps = "`ethtool -K PEER gro on` helps, within a second";
        notes.push(match (self.programs.way_back(), &self.programs.passing) {
            ((true, false), _) => IN_FORCE.to_owned(),
            ((_, true), _) => format!(
                "{IN_FORCE}; answers pass by the system, at some cost, because the peer takes no \
                 frames from a program (it has none itself, and no GRO); {helps}"
            ),
            (_, passing) => format!(
                "SYNs are not answered at the interface, and ACKs are checked there: the peer \
                 takes no frames from a program (it has none itself, and no GRO), and they cannot \
                 pass by the system either ({}); {helps}",
                passing.as_ref().err().map_or("", String::as_str)
            ),
        });
    }

    /// What SYNs are answered with, told anew: ACKs are checked from now on, and SYNs answered
    /// where answers arrive. What the kernel refuses is tried again when the keys turn. Programs
    /// come and go in a thread of their own, but for the first time.
    pub(crate) fn renew(&self, offers: &SynOffers) {
        self.is_told.store(true, Relaxed);
        let checks = offers.keys.is_some() && self.offer(offers).is_ok();
        let before = self.programs.checks.swap(checks, Relaxed);
        match &self.switch {
            Some(switch) if self.programs.has_started() => {
                if before != checks {
                    switch.wake();
                }
            }
            _ => self.programs.follow(),
        }
    }

    /// Whether any queue answered SYNs so lately that their cookies are good.
    pub(crate) fn has_answered(&self, now: Instant) -> bool {
        (0..self.queues).any(|queue| {
            let until = self.word(queue, Desk::AwakeUntil);
            until != 0 && now.as_nanos() < until.saturating_add(2 * EPOCH_NANOS)
        })
    }

    /// Whether SYNs are answered by any queue now.
    pub(super) fn is_awake(&self, now: Instant) -> bool {
        (0..self.queues).any(|queue| {
            let until = self.word(queue, Desk::AwakeUntil);
            self.word(queue, Desk::Pressed) != 0 || now.as_nanos() < until
        })
    }

    /// Why SYNs cannot be answered as it is now; `None` where they can.
    pub(super) fn why_not(&self) -> Option<&'static str> {
        if !self.programs.arrives() {
            return Some(
                "answers would not arrive: the peer takes no frames from a program (it has none \
                 itself, and no GRO); `ethtool -K PEER gro on` helps",
            );
        }
        if !self.is_told.load(Relaxed) {
            return None;
        }
        if !self.programs.checks.load(Relaxed) {
            return Some(
                "the stack offers none here: its rules look at more than sources, or workers have \
                 no secret in common, or there is no TCP",
            );
        }
        // No holder of it panics.
        let is_empty = self.shown.lock().is_ok_and(|shown| shown.is_empty());
        is_empty.then_some("no TCP listener is open at an address of this interface")
    }

    /// From now on SYNs are answered with this.
    pub(crate) fn offer(&self, offers: &SynOffers) -> io::Result<()> {
        match &offers.keys {
            None => self.put_header(0, 0),
            Some(keys) => {
                for (epoch, key) in keys.by_epoch() {
                    self.put(KeyTable::entry_of(epoch), 0, &KeyTable::key(key));
                }
                let until = KeyTable::until(keys.epoch, keys.until.as_nanos());
                let header = KeyTable::header(until, keys.clock, offers.zone.0);
                self.put(0, 1, &header);
                self.put_header(0, until);
            }
        }
        self.list(offers)
    }

    /// Writes words of a value of the keys from the one numbered `first` on.
    fn put(&self, entry: usize, first: usize, words: &[u64; KEY_WORDS]) {
        let places = self.keys.all().iter().skip(entry * KEY_WORDS);
        for (place, word) in places.zip(words).skip(first) {
            if place.load(Relaxed) != *word {
                place.store(*word, Relaxed);
            }
        }
    }

    fn put_header(&self, word: usize, value: u64) {
        if let Some(place) = self.keys.all().get(word) {
            place.store(value, Release);
        }
    }

    /// Shows the listeners.
    fn list(&self, offers: &SynOffers) -> io::Result<()> {
        // No holder of it panics.
        let Ok(mut shown) = self.shown.lock() else { return Err(io::ErrorKind::Other.into()) };
        let wanted = |offer: &floodwall_packet::SynOffer| {
            let word = Offer {
                window: offer.window,
                mss: offer.mss,
                window_scale: offer.window_scale,
                sack: offer.sack,
                timestamps: offer.timestamps,
                ecn: offer.ecn,
                hop_limit: offer.hop_limit,
                traffic_class: offer.traffic_class,
            };
            (listener_key(offer.addr, offer.port), word.word())
        };
        let all = || offers.listeners().iter().take(XDP_LISTENERS).map(wanted);
        for (key, _) in shown.extract_if(.., |(key, _)| !all().any(|(other, _)| other == *key)) {
            self.listeners.remove(&key)?;
        }
        for (key, word) in all() {
            match shown.iter_mut().find(|(other, _)| *other == key) {
                Some((_, before)) if *before == word => {}
                Some((_, before)) => {
                    self.listeners.set(&key, word)?;
                    *before = word;
                }
                None => {
                    self.listeners.set(&key, word)?;
                    shown.push((key, word));
                }
            }
        }
        Ok(())
    }

    fn word(&self, queue: u32, word: Desk) -> u64 {
        let desk = (queue < self.queues).then_some(queue as usize * Desk::WORDS);
        let place = desk.and_then(|desk| self.desks.all().get(desk + word as usize));
        place.map_or(0, |place| place.load(Relaxed))
    }

    /// Whether the worker of `queue` is behind, which wakes the program.
    pub(crate) fn press(&self, queue: u32, pressed: bool) {
        let desk = (queue < self.queues).then_some(queue as usize * Desk::WORDS);
        let place = desk.and_then(|desk| self.desks.all().get(desk + Desk::Pressed as usize));
        if let Some(place) = place {
            place.store(u64::from(pressed), Relaxed);
        }
    }

    /// SYNs answered and ACKs refused at `queue` since the start.
    pub(crate) fn judged(&self, queue: u32) -> u64 {
        self.word(queue, Desk::Answered) + self.word(queue, Desk::Forged)
    }

    /// Adds what was counted at `queue`.
    pub(crate) fn count(&self, queue: u32, stats: &mut DeviceStats) {
        stats.rx_syns_answered += self.word(queue, Desk::Answered);
        stats.rx_cookies_proven += self.word(queue, Desk::Proven);
        stats.rx_cookies_forged += self.word(queue, Desk::Forged);
    }
}

const _: () = assert!(
    EPOCH_NANOS == floodwall_base::limits::SYN_COOKIE_PERIOD.as_nanos() as u64,
    "the programs' epochs are those of the stack"
);

/// The program for SYNs.
fn syns(
    filter: &XdpFilter,
    maps: &Maps,
    (sockets, deliver): (i32, Deliver),
    back: Back,
) -> Result<Vec<Instruction>, NoProgram> {
    let mut a = Assembler::new();
    let ways =
        SynWays { answered: a.label(), asleep: a.label(), left: a.label(), broken: a.label() };
    answer_syn(&mut a, maps, &ways);
    a.place(ways.left);
    filter.emit_behind(&mut a, ways.asleep, true);
    a.place(ways.asleep);
    deliver.emit(&mut a, sockets);
    a.place(ways.answered);
    match back {
        Back::Transmitted => drop(a.set(Register::R0, TRANSMIT)),
        Back::Passed(mark) => way_back::pass(&mut a, mark, ways.broken),
        Back::Redirected(index) => {
            a.set(Register::R1, index.cast_signed()).set(Register::R2, 0).call(Function::Redirect);
        }
    }
    a.exit();
    a.place(ways.broken);
    a.set(Register::R0, DROP).exit();
    a.finish()
}

/// The program for other segments of no known connection.
fn segments(
    filter: &XdpFilter,
    maps: &Maps,
    (sockets, deliver): (i32, Deliver),
) -> Result<Vec<Instruction>, NoProgram> {
    let mut a = Assembler::new();
    let ways = AckWays { proven: a.label(), forged: a.label(), stray: a.label() };
    let through: Label = a.label();
    check_ack(&mut a, maps, &ways);
    a.place(ways.forged);
    a.place(ways.stray);
    filter.emit_behind(&mut a, through, false);
    a.place(ways.proven);
    filter.emit_mark_established(&mut a, through);
    a.place(through);
    deliver.emit(&mut a, sockets);
    a.finish()
}

#[cfg(test)]
mod tests;
