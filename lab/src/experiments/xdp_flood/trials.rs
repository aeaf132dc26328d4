//! Trials: each victim meets each load, in turns, in a namespace of one thread.
//!
//! Called by `xdp_flood.rs`. The victim's halves, the kernel's and its own, are on one core, with
//! them, where that is the scene, a program that takes timestamps; flood and clients are on the
//! other. Everything is bounded: a trial lasts as long as planned, and its threads are joined.
//! Claims compare medians of trials that took turns.

#![expect(clippy::disallowed_methods, reason = "this part measures real time in real threads")]

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use floodwall_base::MacAddr;
use floodwall_dispatch::{Clock, Stop, pin_to_core};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::outside::{Outside, Seen};
use super::topology::{self, Server};
use super::victims::{Ended, Run, Shared, Victim};
use super::{Hold, Scene, Work};
use crate::baselines::xdp_loop::Does;
use crate::error::LabError;
use crate::experiments::namespace;
use crate::experiments::stamps::Stamps;
use crate::progress::Progress;

/// How long a victim may take to stand.
const STANDS: Duration = Duration::from_secs(10);

/// One victim under one load, once, or the medians of several times.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub(super) scene: Scene,
    pub(super) victim: Victim,
    /// Packets a second that were to be offered.
    pub(super) planned: u64,
    /// Whether it was reached by everybody: the flood, and honest clients of both families.
    pub(super) works: bool,
    pub(super) seen: Seen,
    /// Datagrams a second that reached a program which forgets them.
    pub(super) served: f64,
    pub(super) stamps: Option<Stamps>,
    pub(super) ended: Ended,
}

/// All that was found, or why there is nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    pub(super) trials: Vec<Trial>,
    pub(super) rounds: u64,
    pub(super) why_not: Option<String>,
}

/// Which core runs which thread.
#[derive(Clone, Copy, Debug)]
struct Cores {
    outside: usize,
    flooded: usize,
    /// Where threads may go that are not pinned yet.
    allowed: CpuSet,
}

fn wrong(error: impl core::fmt::Display) -> LabError {
    LabError::Scene(error.to_string())
}

/// Runs every trial, in a namespace of its own. What this machine lacks is no error.
///
/// # Errors
/// Something failed that is not missing.
pub(super) fn measure(work: &Work<'_>, progress: &mut dyn Progress) -> Result<Results, LabError> {
    let why_not = |why: String| Ok(Results { why_not: Some(why), ..Results::default() });
    let allowed = sched_getaffinity(None).map_err(wrong)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    let (Some(outside), Some(flooded)) = (cores.next(), cores.next()) else {
        return why_not("it takes two cores".to_owned());
    };
    let cores = Cores { outside, flooded, allowed };
    let steps = work.rounds * work.cases().len() as u64;
    let (told, step) = std::sync::mpsc::channel();
    // A thread of its own: what it enters, it never leaves.
    let outcome = thread::scope(|scope| {
        let inside = scope.spawn(move || match namespace::enter() {
            Ok(()) => Bench::lay(cores).and_then(|mut bench| bench.all(work, &told)).map_err(Some),
            Err(why) => {
                eprintln!("SKIPPED xdp-flood: {why}");
                Ok(Results { why_not: Some(why), ..Results::default() })
            }
        });
        // Until the other thread has ended, and its end of the channel with it.
        while let Ok(done) = step.recv() {
            progress.step("trials", done, steps);
        }
        inside.join().unwrap_or(Err(None))
    });
    outcome.map_err(|error| error.unwrap_or_else(|| wrong("a thread panicked")))
}

/// The veth pair, and the senders on it.
struct Bench {
    cores: Cores,
    /// The kernel's link address.
    kernel: MacAddr,
    outside: Outside,
}

impl Bench {
    /// Lays the cable.
    fn lay(cores: Cores) -> Result<Self, LabError> {
        let mac = namespace::lay_veth(&topology::kernel_addrs(), cores.flooded).map_err(wrong)?;
        // What comes back is the outside's work, or the victim's core would do it.
        namespace::steer(namespace::VETH_NEAR, cores.outside).map_err(wrong)?;
        for words in topology::kernel_ways(namespace::VETH_FAR) {
            namespace::ip(&words).map_err(wrong)?;
        }
        Ok(Self { cores, kernel: MacAddr(mac), outside: Outside::open(1)? })
    }

    /// Every victim at every load, in turns, so that each moment of the machine is shared by all.
    fn all(
        &mut self,
        work: &Work<'_>,
        told: &std::sync::mpsc::Sender<u64>,
    ) -> Result<Results, LabError> {
        let (cases, mut all) = (work.cases(), Vec::new());
        for round in 0..work.rounds {
            for (number, (scene, victim, rate)) in cases.iter().enumerate() {
                let _ = told.send(round * cases.len() as u64 + number as u64);
                all.push(self.trial(work, *scene, *victim, *rate)?);
            }
        }
        let medians = cases.iter().filter_map(|(scene, victim, rate)| {
            let of = |trial: &&Trial| {
                (trial.scene, trial.victim, trial.planned) == (*scene, *victim, *rate)
            };
            Trial::middle(&all.iter().filter(of).collect::<Vec<_>>())
        });
        Ok(Results { trials: medians.collect(), rounds: work.rounds, why_not: None })
    }

    fn trial(
        &mut self,
        work: &Work<'_>,
        scene: Scene,
        victim: Victim,
        rate: u64,
    ) -> Result<Trial, LabError> {
        let shared = Shared {
            stop: Stop::new().map_err(wrong)?,
            ready: AtomicI32::new(0),
            served: Arc::default(),
        };
        let core = self.cores.flooded;
        let shares = scene == Scene::Shared;
        let run = Run { victim, does: scene.does(), shares, core, seed: work.seed };
        let server = match victim {
            Victim::Kernel => Server::kernels(self.kernel),
            _ => Server::ours(),
        };
        thread::scope(|scope| {
            let running = scope.spawn(|| {
                let ended = run.until_stopped(&shared);
                // A victim that could not be set up is not waited for.
                shared.stop.trigger();
                ended
            });
            let outcome = self.meet(work, &shared, (server, rate), scene);
            shared.stop.trigger();
            let ended = running.join().unwrap_or_else(|_| Err(wrong("the victim panicked")));
            // Its own error is more precise than that of the thread that waited for it.
            let ended = ended?;
            let (works, seen, served, stamps) = outcome?;
            Ok(Trial { scene, victim, planned: rate, works, seen, served, stamps, ended })
        })
    }

    /// The flood meets the victim once that stands.
    fn meet(
        &mut self,
        work: &Work<'_>,
        shared: &Shared,
        (server, rate): (Server, u64),
        scene: Scene,
    ) -> Result<(bool, Seen, f64, Option<Stamps>), LabError> {
        let (clock, core) = (Clock::new(), self.cores.flooded);
        let (length, shares) = (work.length, scene == Scene::Shared);
        let begin = clock.now();
        while shared.ready.load(Ordering::Acquire) == 0 {
            if shared.stop.is_triggered() || clock.now() - begin > STANDS {
                return Err(wrong("the victim does not stand"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        let receiver = shared.ready.load(Ordering::Acquire);
        thread::scope(|scope| {
            let window = scope.spawn(move || {
                pin_to_core(core).map_err(wrong)?;
                thread::sleep(Outside::before_window());
                let before = shared.served.load(Ordering::Relaxed);
                let stamps = shares.then(|| Stamps::take(length, receiver, core));
                if !shares {
                    thread::sleep(length);
                }
                Ok::<_, LabError>((shared.served.load(Ordering::Relaxed) - before, stamps))
            });
            // Where only function is tested, speed must not decide.
            let works = |seen: &Seen| match scene.does() {
                Does::Answers => seen.all_answered,
                Does::Drops => shared.served.load(Ordering::Relaxed) > 0,
            };
            let is_over = |seen: &Seen| !work.least || works(seen);
            let seen = self.outside_run(work.hold, (server, rate), length, is_over);
            let (served, stamps) =
                window.join().unwrap_or_else(|_| Err(wrong("the program panicked")))?;
            let seen = seen?;
            Ok((works(&seen), seen, served as f64 / length.as_secs_f64(), stamps))
        })
    }

    /// What the outside sees, on its core; only now, because threads start where their maker is.
    fn outside_run(
        &mut self,
        hold: &Hold,
        flood: (Server, u64),
        length: Duration,
        is_over: impl Fn(&Seen) -> bool,
    ) -> Result<Seen, LabError> {
        pin_to_core(self.cores.outside).map_err(wrong)?;
        let seen = self.outside.run(hold, flood, length, is_over);
        sched_setaffinity(None, &self.cores.allowed).map_err(wrong)?;
        seen
    }
}

/// The middle one; the lower of two.
fn median<T: Copy + PartialOrd>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(core::cmp::Ordering::Equal));
    values.get(values.len().saturating_sub(1) / 2).copied()
}

impl Trial {
    /// The medians of trials of one victim at one load.
    fn middle(trials: &[&Self]) -> Option<Self> {
        let first = (*trials.first()?).clone();
        let of = |what: &dyn Fn(&Self) -> f64| median(trials.iter().map(|trial| what(trial)));
        let time = |what: fn(&Stamps) -> Duration| {
            median(trials.iter().filter_map(|trial| trial.stamps.as_ref().map(what)))
        };
        let count = |what: fn(&Ended) -> u64| median(trials.iter().map(|trial| what(&trial.ended)));
        let stamps = first.stamps.as_ref().map(|_| Stamps {
            whole: time(|stamps| stamps.whole).unwrap_or_default(),
            lost: time(|stamps| stamps.lost).unwrap_or_default(),
            thirds: time(|stamps| stamps.thirds).unwrap_or_default(),
            longest: time(|stamps| stamps.longest).unwrap_or_default(),
            p99: time(|stamps| stamps.p99).unwrap_or_default(),
        });
        Some(Self {
            works: trials.iter().all(|trial| trial.works),
            seen: Seen {
                offered: of(&|trial| trial.seen.offered)?,
                answers: of(&|trial| trial.seen.answers)?,
                honest: [
                    of(&|trial| trial.seen.honest.first().copied().unwrap_or(0.0))?,
                    of(&|trial| trial.seen.honest.last().copied().unwrap_or(0.0))?,
                ],
                ..first.seen
            },
            served: of(&|trial| trial.served)?,
            stamps,
            ended: Ended {
                place: first.ended.place,
                unknown: count(|ended| ended.unknown)?,
                ring_full: count(|ended| ended.ring_full)?,
                gate: count(|ended| ended.gate)?,
            },
            ..first
        })
    }
}
