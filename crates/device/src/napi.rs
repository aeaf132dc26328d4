//! `Placement`: where the kernel's half of a device runs, taken when it is opened, given back when
//! it closes.
//!
//! Called by `spec.rs` for packet sockets. Before we see a frame, the kernel's half (the driver's
//! NAPI poll) has taken it from the card. As an interrupt on our core it runs before the worker,
//! and can use the whole core under flood while the worker gets no time (receive livelock). With a
//! place of its own it runs after the worker, and the excess is dropped in the card's ring. The
//! best place and the cost of each were measured: `docs/design/placement.md`.
//!
//! Invariants: each setting is recorded in a note before it is changed, and restored when this is
//! dropped, by unwinding too; after a process that was killed, by the next one (`note.rs`). A place
//! that cannot be set up leaves no change behind. Without any privilege nothing is changed, and the
//! report states the cost. Not here: dropping frames behind the packet socket, before the host's
//! own IP layer sees them, which would cut the host off from its interface.
//!
//! # Under flood
//! Nothing here grows with packets. The place decides where packets are dropped under flood: in the
//! worker's own calls, or in a thread of lower priority, the card's ring overflows first, and drops
//! packets regardless of their flow.

pub(crate) mod half_thread;
mod joining;
mod link;
mod linux;
pub(crate) mod netlink;
mod note;
pub(crate) mod own_half;
mod poller;
mod system;
#[cfg(test)]
mod tests;
mod thread;
mod threaded;
mod tuning;
mod undo;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use self::half_thread::HalfThread;
use self::link::InterfaceLink;
use self::linux::Linux;
use self::note::{NoteTaken, PlacementNote};
use self::poller::PollDrive;
use self::system::System;
use self::threaded::{Napi, NapiSetting};
use self::tuning::{
    BEFORE_FLUSH_NANOS, CORE_SLICE, EMPTY_POLLS_DEFERRED, NICE_BEFORE, NICE_BEHIND, NICE_CHOOSING,
    POLL_DEFER, POLL_FLUSH_NANOS, THREAD_FLUSH_NANOS,
};
use self::undo::{PlacementUndo, UNDO_MAX};
use crate::error::{DeviceError, named};
use crate::napi_policy::{NapiPolicy, NapiPriority};
use crate::napi_report::{MissingCapability, PlacementReport};

/// The link address of an interface of the system, as digits; `None` where there is none, or one
/// that a program makes (TUN and TAP have another one each time).
pub(crate) fn hardware_address(name: &str) -> Option<String> {
    let link = InterfaceLink::of(name).ok().filter(|link| link.kind != "tun")?;
    Some(link.address).filter(|address| address.bytes().any(|digit| digit != b'0'))
}

// Figures: `docs/design/placement.md`.
const COSTS_ALL: &str = "under flood the kernel's half runs before the worker and may leave it \
                         nothing of the core (measured on one core: a fifth of the answers, and \
                         honest requests took 30 ms instead of 1)";
const COSTS_RANK: &str = "under flood the kernel's half takes as much of the core as the worker \
                          (no loss measured with light work, up to a third with heavier)";
const COSTS_BEFORE: &str = "while the worker has the core for a moment, under flood the card's \
                            ring overflows, established flows and others alike";
const COSTS_GUARDING: &str = "while a program has the core for a moment, under flood the card's \
                              ring overflows, connections and others alike";
const COSTS_NOTE: &str = "if this process is killed, the interface keeps our settings";

/// How a device's kernel half is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementConfig {
    /// Where.
    pub half: NapiPolicy,
    /// The cores of the workers that will have the queues, in their order, taken in turn; empty
    /// where they are not pinned.
    pub cores: Vec<usize>,
    /// Which of the two goes first there, where the kernel's half is a thread.
    pub rank: NapiPriority,
}

/// The placement of the kernel's half of one interface; restores all settings when dropped.
#[derive(Debug)]
pub struct Placement {
    report: PlacementReport,
    system: Option<Box<dyn System>>,
    /// The interface's number: another one may have its name by the end.
    index: u32,
    undo: Vec<PlacementUndo>,
    note: Option<PlacementNote>,
    /// What runs the kernel's half, where that is we.
    driver: Option<Box<dyn PollDrive>>,
    /// How often it did.
    polls: u64,
    /// Receive halves that we run, as they are set while we do; and whether they are now.
    driven: Vec<(Napi, NapiSetting)>,
    holds: bool,
    /// Threads of the kernel run it on the worker's core.
    beside: bool,
    /// The thread of each queue's half, where those stand beside workers.
    halves: Vec<HalfThread>,
    /// Tells them that everything is as before.
    over: Arc<AtomicBool>,
}

/// How the kernel's half of an interface stands, for those that only look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HalfStanding {
    /// The interface has none of its own, as a veth without XDP.
    Absent,
    /// Where interrupts put it.
    Interrupts,
    /// In threads, of which the last in rank has this nice value.
    Threads {
        /// From -20, before all others, to 19.
        nice: i32,
    },
}

/// Why a place could not be had.
#[derive(Debug)]
enum PlacementRefusal {
    /// The system refused something.
    System(&'static str, io::Error),
    /// The interface has no such thing.
    Unfit { missing: &'static str, remedy: &'static str },
}

impl Placement {
    /// Gives the kernel's half of the interface `name` its place. Costs some system calls.
    ///
    /// # Errors
    /// A place that was configured explicitly is not available. With [`NapiPolicy::Auto`] this is
    /// only in the report.
    pub fn take(name: &str, config: &PlacementConfig) -> Result<Self, DeviceError> {
        if config.half == NapiPolicy::Leave {
            return Ok(Self::left(
                "where the system runs it, as configured".to_owned(),
                Vec::new(),
            ));
        }
        let system = match Linux::of(name) {
            Ok(system) => Box::new(system),
            Err(error) => {
                let refusal =
                    PlacementRefusal::System("look for the interface's receive halves", error);
                return Self::refused(name, config.half, refusal, Vec::new());
            }
        };
        let link = system.link().unwrap_or_default();
        Self::take_by(name, config, system, PlacementNote::take(&link))
    }

    fn take_by(
        name: &str,
        config: &PlacementConfig,
        system: Box<dyn System>,
        note: NoteTaken,
    ) -> Result<Self, DeviceError> {
        let mut lacks = Vec::new();
        let note = match note {
            NoteTaken::Ours(note, left) => {
                left.iter().rev().for_each(|undo| drop(undo.apply(&*system)));
                Some(note)
            }
            NoteTaken::Theirs => {
                let words = "where another floodwall on this interface has put it";
                return Ok(Self::left(words.to_owned(), lacks));
            }
            NoteTaken::Nowhere(error) => {
                lacks.push(MissingCapability {
                    missing: format!("no place to note the interface's settings ({error})"),
                    costs: COSTS_NOTE,
                    remedy: "make /run/floodwall writable for this user, or set XDG_RUNTIME_DIR \
                             (RuntimeDirectory=floodwall in a systemd unit)"
                        .to_owned(),
                });
                None
            }
        };
        let report = PlacementReport { place: "left", words: String::new(), lacks };
        let index = system.link().map_or(0, |link| link.index);
        let system = Some(system);
        let mut placement = Self::new(report, system);
        (placement.index, placement.note) = (index, note);
        match placement.settle(config) {
            Ok(()) => Ok(placement),
            Err(refusal) => {
                let lacks = core::mem::take(&mut placement.report.lacks);
                drop(placement);
                Self::refused(name, config.half, refusal, lacks)
            }
        }
    }

    /// How the kernel's half of the interface `name` stands. Changes nothing. Costs some system
    /// calls.
    ///
    /// # Errors
    /// There is no such interface, or the kernel does not tell (before Linux 6.8).
    pub fn look(name: &str) -> io::Result<HalfStanding> {
        Self::look_by(&Linux::of(name)?)
    }

    fn look_by(system: &dyn System) -> io::Result<HalfStanding> {
        let napis = system.napis()?;
        let threads: Vec<_> = napis.iter().filter_map(|napi| napi.thread).collect();
        if napis.is_empty() {
            return Ok(HalfStanding::Absent);
        }
        if threads.len() < napis.len() {
            return Ok(HalfStanding::Interrupts);
        }
        let nices = threads.iter().map(|thread| Ok(system.standing(*thread)?.nice));
        let nice = nices.collect::<io::Result<Vec<_>>>()?.into_iter().max();
        Ok(nice.map_or(HalfStanding::Absent, |nice| HalfStanding::Threads { nice }))
    }

    /// Restores what a process that was killed has left set on the interface `name`, and returns
    /// how many settings that were; `None` where a running process holds them. Costs some system
    /// calls, and changes nothing where nothing was left.
    ///
    /// # Errors
    /// There is no such interface, or no note can be read; or a setting could not be restored:
    /// then the note stays.
    pub fn repair(name: &str) -> io::Result<Option<usize>> {
        let system = Linux::of(name)?;
        let link = system.link()?;
        match PlacementNote::take(&link) {
            NoteTaken::Theirs => Ok(None),
            NoteTaken::Nowhere(error) => Err(error),
            NoteTaken::Ours(note, left) => {
                let undone: io::Result<Vec<()>> =
                    left.iter().rev().map(|undo| undo.apply(&system)).collect();
                let count = undone?.len();
                note.remove();
                Ok(Some(count))
            }
        }
    }

    /// One that has nothing to undo yet.
    fn new(report: PlacementReport, system: Option<Box<dyn System>>) -> Self {
        let (undo, note, driver, driven) = (Vec::new(), None, None, Vec::new());
        let (polls, holds, beside, halves) = (0, false, false, Vec::new());
        let over = Arc::default();
        Self {
            report,
            system,
            index: 0,
            undo,
            note,
            driver,
            polls,
            driven,
            holds,
            beside,
            halves,
            over,
        }
    }

    /// Runs the kernel's half for a moment, where that is ours to do.
    pub(crate) fn poll(&mut self) {
        self.hold();
        if let Some(driver) = &mut self.driver {
            driver.poll();
            self.polls += 1;
        }
    }

    /// Whether the kernel's half is taken from the card just now.
    pub(crate) const fn holds(&self) -> bool {
        self.holds
    }

    /// Takes the kernel's half from the card, where we run it ourselves: frames have come.
    pub(crate) fn hold(&mut self) {
        if !self.holds && self.driver.is_some() {
            self.holds = true;
            self.shift(|(_, ours)| *ours);
        }
    }

    /// Gives the kernel's half back to the card until the next [`Placement::hold`]: set as it was
    /// before us, or what comes for others while we sleep waits for our long time to be over.
    pub(crate) fn rest(&mut self) {
        if core::mem::take(&mut self.holds) {
            self.shift(|(theirs, _)| theirs.setting);
            self.driver.iter_mut().for_each(|driver| driver.release());
        }
    }

    /// Sets the halves that we run. Where that is refused by now, they stay as they are.
    fn shift(&self, to: impl Fn(&(Napi, NapiSetting)) -> NapiSetting) {
        let Some(system) = &self.system else { return };
        for half in &self.driven {
            let wish = NapiSetting { threaded: None, ..to(half) };
            let _ = system.set_napi(half.0.id, &wish);
        }
    }

    /// Whether this process runs the kernel's half (busy polling).
    pub(crate) const fn is_ours(&self) -> bool {
        self.driver.is_some()
    }

    /// The threads of the halves, for each queue in order; none where they are not on the workers'
    /// cores.
    pub(crate) fn halves(&mut self) -> Vec<HalfThread> {
        core::mem::take(&mut self.halves)
    }

    /// Whether a thread of the kernel runs it on the worker's core.
    pub(crate) const fn is_beside(&self) -> bool {
        self.beside
    }

    /// How often we ran the kernel's half ourselves.
    #[must_use]
    pub const fn polls(&self) -> u64 {
        self.polls
    }

    /// Where it is, and what lacks.
    #[must_use]
    pub const fn report(&self) -> &PlacementReport {
        &self.report
    }

    /// The report for a device without a card's ring: a TUN or TAP.
    #[must_use]
    pub fn of_tun(name: &str) -> PlacementReport {
        let link = InterfaceLink::of(name).unwrap_or_default();
        let words = match link.part_of.as_str() {
            "bridge" => {
                "nothing to place here: it is the sender's own call and our read; but it is a \
                 port of a bridge, and what comes from the bridge's cards runs where the system \
                 runs those cards"
            }
            _ => "nothing to place: it is the sender's own call and our read",
        };
        PlacementReport { place: "none", words: words.to_owned(), lacks: Vec::new() }
    }

    fn left(words: String, lacks: Vec<MissingCapability>) -> Self {
        let report = PlacementReport { place: "left", words, lacks };
        Self::new(report, None)
    }

    /// Nothing could be set up: an error where it was configured explicitly, else a report.
    fn refused(
        name: &str,
        half: NapiPolicy,
        refusal: PlacementRefusal,
        mut lacks: Vec<MissingCapability>,
    ) -> Result<Self, DeviceError> {
        if half != NapiPolicy::Auto {
            return Err(refusal.into_error(name, half));
        }
        lacks.retain(|lack| lack.costs != COSTS_NOTE);
        lacks.push(refusal.into_lack(name));
        Ok(Self::left("where the system runs it".to_owned(), lacks))
    }

    fn system(&self) -> Result<&dyn System, PlacementRefusal> {
        let none = || PlacementRefusal::System("set anything", io::ErrorKind::NotConnected.into());
        self.system.as_deref().ok_or_else(none)
    }

    /// Looks at the interface and takes the place that is wanted.
    fn settle(&mut self, config: &PlacementConfig) -> Result<(), PlacementRefusal> {
        let napis = self.napis()?;
        match config.half {
            NapiPolicy::BusyPoll => self.poll_ourselves(&napis),
            NapiPolicy::NapiThread => self.use_threads(&napis, config),
            NapiPolicy::Auto | NapiPolicy::Leave => {
                let first = self.undo.len();
                let Err(refusal) = self.use_threads(&napis, config) else { return Ok(()) };
                self.undo_from(first);
                self.poll_ourselves(&napis).map_err(|_| refusal)
            }
        }
    }

    /// Undoes what was done since there were `first` things to undo.
    fn undo_from(&mut self, first: usize) {
        let undo = self.undo.split_off(first);
        let Some(system) = &self.system else { return };
        undo.iter().rev().for_each(|undo| drop(undo.apply(&**system)));
    }

    /// The worker's own calls.
    fn poll_ourselves(&mut self, napis: &[Napi]) -> Result<(), PlacementRefusal> {
        let ids: Vec<_> = napis.iter().map(|napi| napi.id).collect();
        let driver = self.system()?.driver(&ids);
        let refuse =
            |error| PlacementRefusal::System("run the receive half from an io_uring", error);
        let driver = driver.map_err(refuse)?;
        for napi in napis {
            let threaded = napi.setting.threaded.map(|_| false);
            let (defer, flush_nanos) = (POLL_DEFER, POLL_FLUSH_NANOS);
            let ours = NapiSetting { defer, flush_nanos, threaded };
            self.set(napi, ours)?;
            self.driven.push((*napi, ours));
        }
        (self.driver, self.holds) = (Some(driver), true);
        self.report.place = NapiPolicy::BusyPoll.word();
        self.report.words = "within the worker's own calls while packets come".to_owned();
        Ok(())
    }

    /// The interface's receive halves; a veth is made to have one.
    fn napis(&mut self) -> Result<Vec<Napi>, PlacementRefusal> {
        let look = |error| PlacementRefusal::System("list the interface's receive halves", error);
        let link = self.system()?.link().map_err(look)?;
        if !link.is_up {
            return Err(PlacementRefusal::Unfit {
                missing: "a receive half while the interface is down",
                remedy: "bring it up first, with `ip link set dev INTERFACE up`",
            });
        }
        let mut napis = self.system()?.napis().map_err(look)?;
        if napis.is_empty() && link.kind == "veth" {
            let set = |error| PlacementRefusal::System("switch on the joining of packets", error);
            let joins = self.system()?.joins().map_err(set)?;
            self.remember(PlacementUndo::Joining(joins));
            self.system()?.set_joins(true).map_err(set)?;
            napis = self.system()?.napis().map_err(look)?;
        }
        match napis.len() {
            0 => Err(PlacementRefusal::Unfit {
                missing: "a receive half of its own (NAPI)",
                remedy: "use the card below it, or `leave`",
            }),
            n if n > UNDO_MAX / 2 => Err(PlacementRefusal::Unfit {
                missing: "an interface with so many queues",
                remedy: "give it fewer, with `ethtool -L`, or use `leave`",
            }),
            _ => Ok(napis),
        }
    }

    /// Writes down what will be undone, before it is done.
    fn remember(&mut self, undo: PlacementUndo) {
        self.undo.push(undo);
        let Some(note) = &mut self.note else { return };
        if let Err(error) = note.write(&self.undo) {
            self.report.lacks.push(MissingCapability {
                missing: format!(
                    "the note of the interface's settings cannot be written ({error})"
                ),
                costs: COSTS_NOTE,
                remedy: "make room in /run/floodwall".to_owned(),
            });
            self.note = None;
        }
    }

    fn set(&mut self, napi: &Napi, wish: NapiSetting) -> Result<(), PlacementRefusal> {
        self.remember(PlacementUndo::Napi(napi.id, napi.setting));
        let done = self.system()?.set_napi(napi.id, &wish);
        done.map_err(|error| PlacementRefusal::System("set the interface's receive half", error))
    }

    /// Threads of the kernel beside the worker, behind or before it in rank.
    fn use_threads(
        &mut self,
        napis: &[Napi],
        config: &PlacementConfig,
    ) -> Result<(), PlacementRefusal> {
        for napi in napis {
            let (defer, flush_nanos) = match config.rank {
                NapiPriority::Behind => (EMPTY_POLLS_DEFERRED, THREAD_FLUSH_NANOS),
                NapiPriority::Before | NapiPriority::Choosing => {
                    (EMPTY_POLLS_DEFERRED, BEFORE_FLUSH_NANOS)
                }
                NapiPriority::Guarding => (napi.setting.defer, napi.setting.flush_nanos),
            };
            self.set(napi, NapiSetting { defer, flush_nanos, threaded: Some(true) })?;
        }
        let look = |error| PlacementRefusal::System("find the receive half's thread", error);
        let threads = self.system()?.napis().map_err(look)?;
        let mut ranked = true;
        let mut named = Vec::new();
        for (queue, thread) in threads.iter().filter_map(|napi| napi.thread).enumerate() {
            let was = napis.iter().any(|napi| napi.thread == Some(thread));
            let core = config.cores.get(queue % config.cores.len().max(1)).copied();
            ranked &= self.rank(thread, config, (core, was))?;
            named.push(thread.to_string());
        }
        if named.is_empty() {
            return Err(PlacementRefusal::Unfit {
                missing: "a thread for its receive half",
                remedy: "it needs Linux 6.13 or newer with a driver that can; use `leave`",
            });
        }
        let plural = if named.len() == 1 { "a thread" } else { "threads" };
        let at = cores_in_words(&config.cores, named.len());
        let rank = match (ranked, config.rank) {
            (true, NapiPriority::Behind) => "behind the worker in rank",
            (true, NapiPriority::Before | NapiPriority::Choosing) => "before the worker in rank",
            (true, NapiPriority::Guarding) => "before programs in rank",
            (false, NapiPriority::Guarding) => "equal to programs in rank",
            (false, _) => "equal to the worker in rank",
        };
        self.beside = !config.cores.is_empty();
        if self.beside {
            self.halves = self.half_threads(&threads);
        }
        self.report.place = NapiPolicy::NapiThread.word();
        self.report.words =
            format!("in {plural} of its own ({}) on {at}, {rank}", named.join(", "));
        Ok(())
    }

    /// The thread of each half, as it stands by now.
    fn half_threads(&self, napis: &[Napi]) -> Vec<HalfThread> {
        let half =
            |napi: &Napi| HalfThread::new(self.system().ok()?.again().ok()?, *napi, &self.over);
        napis.iter().map_while(half).collect()
    }

    /// Puts a thread beside the worker, and behind or before it; whether all of that was granted.
    fn rank(
        &mut self,
        thread: u32,
        config: &PlacementConfig,
        (core, was): (Option<usize>, bool),
    ) -> Result<bool, PlacementRefusal> {
        let look = |error| PlacementRefusal::System("look at the receive half's thread", error);
        let standing = self.system()?.standing(thread).map_err(look)?;
        let group = self.system()?.group(Some(thread)).unwrap_or_default();
        let ours = self.system()?.group(None).unwrap_or_default();
        if was {
            // Threads that come with the place go with it.
            self.remember(PlacementUndo::Thread(thread, standing, group.clone()));
        }
        let system = self.system()?;
        let pinned = core.map_or(Ok(()), |core| system.pin(thread, &[core]));
        // In another group it would compete with whole groups, and starve at the last rank.
        let stays = group == ours || config.rank == NapiPriority::Guarding;
        let joined = if stays { Ok(()) } else { system.move_to(thread, &ours) };
        let (nice, side, costs) = match config.rank {
            NapiPriority::Behind => (NICE_BEHIND, "behind", COSTS_RANK),
            NapiPriority::Before => (NICE_BEFORE, "before", COSTS_BEFORE),
            NapiPriority::Choosing => (NICE_CHOOSING, "before", COSTS_BEFORE),
            NapiPriority::Guarding => (NICE_BEFORE, "before", COSTS_GUARDING),
        };
        let ranked = joined.is_ok().then(|| system.set_nice(thread, nice));
        // Before Linux 6.12 there are no slices of one's own, and turns are as long as ever.
        let _ = system.set_slice(thread, CORE_SLICE);
        let mut lacks = Vec::new();
        if let Err(error) = &joined {
            lacks.push(MissingCapability {
                missing: format!(
                    "the kernel's thread may not be moved into our control group {ours} ({error})"
                ),
                costs,
                remedy: "run as root, or delegate the group (Delegate=cpu in a systemd unit)"
                    .to_owned(),
            });
        }
        let refused = [Some(pinned), ranked].into_iter().flatten().find_map(Result::err);
        if let Some(error) = &refused {
            lacks.push(MissingCapability {
                missing: format!("the kernel's thread may not be put {side} the worker ({error})"),
                costs,
                remedy: grant("CAP_SYS_NICE"),
            });
        }
        let granted = lacks.is_empty();
        for lack in lacks {
            if !self.report.lacks.contains(&lack) {
                self.report.lacks.push(lack);
            }
        }
        Ok(granted)
    }
}

impl Drop for Placement {
    /// Everything as it was, the last change first.
    fn drop(&mut self) {
        // The card first: it must not wait for a poller that is gone.
        self.rest();
        self.halves.clear();
        self.over.store(true, Ordering::Relaxed);
        self.driver = None;
        let Some(system) = self.system.take() else { return };
        let is_there = system.link().is_ok_and(|link| link.index == self.index);
        let undone = |undo: &PlacementUndo| !is_there || undo.apply(&*system).is_ok();
        let all = self.undo.iter().rev().map(undone).fold(true, |all, done| all & done);
        // What could not be undone stays in the note, for the next one.
        if let (Some(note), true) = (self.note.take(), all) {
            note.remove();
        }
    }
}

/// Has the calling thread, a worker, run in turns as short as those of the kernel's half beside it.
pub(crate) fn take_turns() {
    let _ = thread::set_slice(0, CORE_SLICE);
}

/// On which cores so many threads are.
fn cores_in_words(cores: &[usize], threads: usize) -> String {
    match cores.get(..threads.min(cores.len())).unwrap_or_default() {
        [] => "any core".to_owned(),
        [core] => format!("core {core}"),
        several => {
            let several: Vec<_> = several.iter().map(ToString::to_string).collect();
            format!("cores {}", several.join(", "))
        }
    }
}

/// How to get a capability.
fn grant(capability: &str) -> String {
    format!(
        "run as root, or grant it with `setcap cap_net_admin,cap_net_raw,cap_sys_nice+ep \
         <binary>`, or AmbientCapabilities={capability} in a systemd unit"
    )
}

impl PlacementRefusal {
    fn into_lack(self, name: &str) -> MissingCapability {
        match self {
            Self::System(action, error) => {
                let denied = matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES));
                let remedy = match denied {
                    true => grant("CAP_NET_ADMIN"),
                    false => "it needs Linux 6.8 or newer; 6.13 for all of it".to_owned(),
                };
                let missing = match denied {
                    true => format!("CAP_NET_ADMIN is missing to {action}"),
                    false => format!("cannot {action} ({error})"),
                };
                MissingCapability { missing, costs: COSTS_ALL, remedy }
            }
            Self::Unfit { missing, remedy } => MissingCapability {
                missing: format!("{missing} is missing"),
                costs: COSTS_ALL,
                remedy: named(remedy, name),
            },
        }
    }

    fn into_error(self, name: &str, half: NapiPolicy) -> DeviceError {
        match self {
            Self::System(action, error)
                if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) =>
            {
                let missing = "CAP_NET_ADMIN";
                DeviceError::NoPrivilege { device: name.to_owned(), action, missing }
            }
            Self::System(action, source) => {
                DeviceError::Io { device: format!("{name}: {half}"), action, source }
            }
            Self::Unfit { missing, remedy } => {
                DeviceError::Unsupported { device: format!("{name}: {half}"), missing, remedy }
            }
        }
    }
}
