//! Placements on a fake kernel: which settings are made, restored and reported.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::note::NoteTaken;
use super::system::System;
use super::thread::ThreadStanding;
use super::tuning::NICE_DENIED;
use super::*;
use crate::napi_rank::NapiRank;

/// What the fake kernel has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    link: InterfaceLink,
    joins: bool,
    napis: Vec<Napi>,
    standing: ThreadStanding,
    slice: Duration,
    group: String,
}

/// A fake kernel with one interface; it rejects the operations in `denied`.
#[derive(Clone, Debug)]
struct Fake {
    state: Arc<Mutex<State>>,
    denied: Arc<Mutex<Vec<(&'static str, i32)>>>,
    polled: Arc<Mutex<(u32, u32)>>,
}

/// A driver that counts: polls, and times that it was given back.
#[derive(Debug)]
struct Polled(Arc<Mutex<(u32, u32)>>);

impl PollDrive for Polled {
    fn poll(&mut self) {
        self.0.lock().unwrap().0 += 1;
    }

    fn release(&mut self) {
        self.0.lock().unwrap().1 += 1;
    }
}

const THREAD: u32 = 77;

impl Fake {
    /// A veth that is up, with one receive half once it joins packets.
    fn veth() -> Self {
        let link = InterfaceLink {
            index: 5,
            kind: "veth".to_owned(),
            is_up: true,
            ..InterfaceLink::default()
        };
        let standing = ThreadStanding { cores: vec![0, 1], nice: 0 };
        let napis = vec![Napi::default()];
        let state = State {
            link,
            joins: false,
            napis,
            standing,
            group: "/".to_owned(),
            slice: Duration::ZERO,
        };
        let setting = NapiSetting { threaded: Some(false), ..NapiSetting::default() };
        let mut state = State { ..state };
        state.napis[0] = Napi { id: 9000, thread: None, setting };
        Self { state: Arc::new(Mutex::new(state)), denied: Arc::default(), polled: Arc::default() }
    }

    fn deny(self, what: &'static str, number: i32) -> Self {
        self.denied.lock().unwrap().push((what, number));
        self
    }

    fn state(&self) -> State {
        self.state.lock().unwrap().clone()
    }

    fn with<T>(&self, what: &str, act: impl FnOnce(&mut State) -> T) -> io::Result<T> {
        let denied = self.denied.lock().unwrap();
        match denied.iter().find(|(denied, _)| *denied == what) {
            Some((_, number)) => Err(io::Error::from_raw_os_error(*number)),
            None => Ok(act(&mut self.state.lock().unwrap())),
        }
    }
}

impl System for Fake {
    fn link(&self) -> io::Result<InterfaceLink> {
        self.with("link", |state| state.link.clone())
    }

    fn napis(&self) -> io::Result<Vec<Napi>> {
        let has = |state: &mut State| state.joins || state.link.kind != "veth";
        self.with("napis", |state| if has(state) { state.napis.clone() } else { Vec::new() })
    }

    fn set_napi(&self, id: u32, wish: &NapiSetting) -> io::Result<()> {
        self.with("set_napi", |state| {
            let napi = state.napis.iter_mut().find(|napi| napi.id == id).unwrap();
            // Unset fields stay unchanged.
            let threaded = wish.threaded.or(napi.setting.threaded);
            napi.setting = NapiSetting { threaded, ..*wish };
            napi.thread = threaded.unwrap().then_some(THREAD);
        })
    }

    fn joins(&self) -> io::Result<bool> {
        self.with("joins", |state| state.joins)
    }

    fn set_joins(&self, on: bool) -> io::Result<()> {
        self.with("set_joins", |state| state.joins = on)
    }

    fn standing(&self, _: u32) -> io::Result<ThreadStanding> {
        self.with("standing", |state| state.standing.clone())
    }

    fn pin(&self, _: u32, cores: &[usize]) -> io::Result<()> {
        self.with("pin", |state| state.standing.cores = cores.to_vec())
    }

    fn set_nice(&self, _: u32, nice: i32) -> io::Result<()> {
        self.with("set_nice", |state| state.standing.nice = nice)
    }

    fn set_slice(&self, _: u32, slice: Duration) -> io::Result<()> {
        self.with("set_slice", |state| state.slice = slice)
    }

    fn group(&self, thread: Option<u32>) -> io::Result<String> {
        let ours = "/ours".to_owned();
        self.with("group", |state| if thread.is_some() { state.group.clone() } else { ours })
    }

    fn set_turns(&self, _: u32, nice: i32, slice: Duration) -> io::Result<()> {
        self.with("set_turns", |state| (state.standing.nice, state.slice) = (nice, slice))
    }

    fn again(&self) -> io::Result<Box<dyn System>> {
        Ok(Box::new(self.clone()))
    }

    fn thread_time(&self, _: u32) -> io::Result<std::fs::File> {
        std::fs::File::open("/proc/thread-self/schedstat")
    }

    fn driver(&self, ids: &[u32]) -> io::Result<Box<dyn PollDrive>> {
        assert_eq!(ids, [9000]);
        let polled = Polled(Arc::clone(&self.polled));
        self.with("driver", |_| Box::new(polled) as Box<dyn PollDrive>)
    }

    fn move_to(&self, _: u32, group: &str) -> io::Result<()> {
        self.with("move_to", |state| state.group = group.to_owned())
    }
}

fn take(fake: &Fake, half: NapiPolicy) -> Result<Placement, DeviceError> {
    let config = PlacementConfig { half, cores: vec![1], ..PlacementConfig::default() };
    let nowhere = NoteTaken::Nowhere(io::ErrorKind::ReadOnlyFilesystem.into());
    Placement::take_by("v0", &config, Box::new(fake.clone()), nowhere)
}

#[test]
fn a_thread_stands_beside_the_worker_and_everything_is_as_before_when_the_device_closes() {
    let fake = Fake::veth();
    let before = fake.state();
    let placement = take(&fake, NapiPolicy::NapiThread).unwrap();
    let during = fake.state();
    assert!(during.joins, "a veth has a receive half only then");
    assert_eq!(during.napis[0].setting.threaded, Some(true));
    assert_eq!(during.standing, ThreadStanding { cores: vec![1], nice: NICE_BEHIND });
    assert_eq!(during.group, "/ours");
    assert_eq!(during.slice, CORE_SLICE);
    let report = placement.report();
    assert_eq!(report.place, "napi-thread");
    assert!(report.words.contains("(77) on core 1, behind the worker"), "{}", report.words);
    drop(placement);
    let after = fake.state();
    assert_eq!((after.joins, &after.napis), (before.joins, &before.napis));
}

#[test]
fn a_thread_that_chooses_or_looks_for_a_router_stands_before_the_worker_and_looks_more_often() {
    let nowhere = || NoteTaken::Nowhere(io::ErrorKind::ReadOnlyFilesystem.into());
    let ranked = |fake: &Fake, rank, core: Option<usize>| {
        let cores = core.into_iter().collect();
        let config = PlacementConfig { half: NapiPolicy::Auto, cores, rank };
        Placement::take_by("v0", &config, Box::new(fake.clone()), nowhere()).unwrap()
    };
    for (rank, nice) in
        [(NapiPriority::Before, NICE_BEFORE), (NapiPriority::Choosing, NICE_CHOOSING)]
    {
        let fake = Fake::veth();
        let placement = ranked(&fake, rank, Some(1));
        let during = fake.state();
        assert_eq!(during.standing, ThreadStanding { cores: vec![1], nice });
        assert_eq!(during.napis[0].setting.flush_nanos, BEFORE_FLUSH_NANOS);
        assert!(placement.report().words.contains("before the worker"), "{placement:?}");
        assert!(placement.is_beside());
    }
    let placement = ranked(&Fake::veth(), NapiPriority::Choosing, None);
    assert!(!placement.is_beside(), "it is unknown which core it takes");
    let take = |fake: &Fake| ranked(fake, NapiPriority::Before, Some(1));
    let fake = Fake::veth().deny("set_nice", libc::EPERM);
    let placement = take(&fake);
    assert!(placement.report().words.contains("equal to the worker"), "{placement:?}");
    let lack = placement.report().lacks.last().unwrap().to_string();
    assert!(lack.contains("may not be put before") && lack.contains("ring overflows"), "{lack}");
}

/// A guard's: no worker of ours is there, and honest traffic must not wait for a timer.
#[test]
fn a_guards_thread_goes_before_programs_and_keeps_its_group_and_times() {
    let fake = Fake::veth();
    {
        let mut state = fake.state.lock().unwrap();
        (state.joins, state.standing.cores) = (true, vec![0]);
        state.napis[0].setting = NapiSetting { defer: 3, flush_nanos: 4, threaded: Some(false) };
    }
    assert_eq!(Placement::look_by(&fake).unwrap(), HalfStanding::Interrupts);
    let before = fake.state();
    let config = PlacementConfig {
        half: NapiPolicy::NapiThread,
        cores: Vec::new(),
        rank: NapiPriority::Guarding,
    };
    let nowhere = NoteTaken::Nowhere(io::ErrorKind::ReadOnlyFilesystem.into());
    let placement = Placement::take_by("v0", &config, Box::new(fake.clone()), nowhere).unwrap();
    let during = fake.state();
    assert_eq!(during.standing, ThreadStanding { cores: vec![0], nice: NICE_BEFORE });
    assert_eq!((during.group.as_str(), during.slice), ("/", CORE_SLICE));
    let wanted = NapiSetting { defer: 3, flush_nanos: 4, threaded: Some(true) };
    assert_eq!(during.napis[0].setting, wanted);
    let words = &placement.report().words;
    assert!(words.contains("on any core, before programs in rank"), "{words}");
    let seen = Placement::look_by(&fake).unwrap();
    assert_eq!(seen, HalfStanding::Threads { nice: NICE_BEFORE });
    drop(placement);
    assert_eq!(fake.state().napis, before.napis);
    let none = Fake::veth();
    assert_eq!(Placement::look_by(&none).unwrap(), HalfStanding::Absent);
}

#[test]
fn a_thread_that_was_the_users_gets_its_rank_cores_and_group_back() {
    let fake = Fake::veth();
    {
        let mut state = fake.state.lock().unwrap();
        state.joins = true;
        state.napis[0].thread = Some(THREAD);
        state.napis[0].setting = NapiSetting { defer: 3, flush_nanos: 4, threaded: Some(true) };
        state.standing.nice = -3;
    }
    let before = fake.state();
    let placement = take(&fake, NapiPolicy::NapiThread).unwrap();
    assert_ne!(fake.state(), before);
    drop(placement);
    assert_eq!(fake.state(), before);
}

#[test]
fn the_worker_runs_the_kernels_half_itself_and_gives_it_back_before_it_sleeps() {
    let fake = Fake::veth();
    let before = fake.state().napis;
    let mut placement = take(&fake, NapiPolicy::BusyPoll).unwrap();
    assert_eq!(placement.report().place, "busy-poll");
    let setting = fake.state().napis[0].setting;
    assert_eq!((setting.defer, setting.flush_nanos), (POLL_DEFER, POLL_FLUSH_NANOS));
    (0..3).for_each(|_| placement.poll());
    // As long as it sleeps, what comes for others is looked at as it was before us.
    placement.rest();
    assert_eq!((*fake.polled.lock().unwrap(), placement.polls()), ((3, 1), 3));
    assert_eq!(fake.state().napis, before);
    placement.hold();
    assert_eq!(fake.state().napis[0].setting, setting);
    assert_eq!(*fake.polled.lock().unwrap(), (3, 1), "frames in the ring go first");
    drop(placement);
    assert_eq!(fake.polled.lock().unwrap().1, 2, "the card calls again when we are gone");
    assert_eq!(fake.state().napis, before);

    let fake = Fake::veth().deny("driver", libc::EPERM);
    let error = take(&fake, NapiPolicy::BusyPoll).unwrap_err().to_string();
    assert!(error.contains("io_uring"), "{error}");
    assert_eq!(fake.state().napis, before);
}

#[test]
fn a_panic_gives_the_place_back_too() {
    let fake = Fake::veth();
    let before = fake.state().napis;
    let placement = take(&fake, NapiPolicy::NapiThread).unwrap();
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _held = placement;
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(unwound.is_err());
    assert_eq!(fake.state().napis, before);
}

#[test]
fn without_the_privilege_it_says_which_what_it_costs_and_how_to_get_it() {
    for denied in ["set_joins", "set_napi"] {
        let fake = Fake::veth().deny(denied, libc::EPERM);
        let placement = take(&fake, NapiPolicy::Auto).unwrap();
        assert_eq!(placement.report().place, "left", "{denied}");
        let [lack] = &placement.report().lacks[..] else { panic!("{placement:?}") };
        let text = lack.to_string();
        assert!(text.starts_with("CAP_NET_ADMIN is missing to "), "{text}");
        assert!(text.contains("may leave it nothing of the core"), "{text}");
        assert!(text.contains("setcap") && text.contains("AmbientCapabilities="), "{text}");
        let error = take(&fake, NapiPolicy::NapiThread).unwrap_err().to_string();
        assert!(error.contains("CAP_NET_ADMIN is missing"), "{error}");
        assert!(!fake.state().napis[0].setting.threaded.unwrap());
    }
}

#[test]
fn without_a_rank_behind_the_worker_the_thread_stays_equal_and_it_is_said() {
    let fake = Fake::veth().deny("set_nice", libc::EPERM).deny("pin", libc::EPERM);
    let placement = take(&fake, NapiPolicy::Auto).unwrap();
    assert_eq!(placement.report().place, "napi-thread");
    assert!(placement.report().words.contains("equal to the worker"), "{placement:?}");
    let lack = placement.report().lacks.last().unwrap().to_string();
    assert!(lack.contains("CAP_SYS_NICE") && lack.contains("as much of the core"), "{lack}");

    // In another group than ours the last rank would be none at all.
    let fake = Fake::veth().deny("move_to", libc::EACCES);
    let placement = take(&fake, NapiPolicy::Auto).unwrap();
    assert_eq!(fake.state().standing.nice, 0);
    let lack = placement.report().lacks.last().unwrap().to_string();
    assert!(lack.contains("control group /ours") && lack.contains("Delegate="), "{lack}");
}

#[test]
fn an_interface_without_a_receive_half_is_left_and_named() {
    let fake = Fake::veth();
    fake.state.lock().unwrap().link.is_up = false;
    let error = take(&fake, NapiPolicy::NapiThread).unwrap_err().to_string();
    assert!(error.contains("v0: napi-thread") && error.contains("ip link set"), "{error}");
    let fake = Fake::veth();
    fake.state.lock().unwrap().link.kind = "dummy".to_owned();
    fake.state.lock().unwrap().napis.clear();
    let placement = take(&fake, NapiPolicy::Auto).unwrap();
    let lack = placement.report().lacks[0].to_string();
    assert!(lack.contains("(NAPI) is missing"), "{lack}");
    // A kernel that does not support the request.
    let fake = Fake::veth().deny("napis", libc::EOPNOTSUPP);
    let lack = take(&fake, NapiPolicy::Auto).unwrap().report().lacks[0].to_string();
    assert!(lack.contains("Linux 6.8"), "{lack}");
}

#[test]
fn an_interface_that_vanished_needs_no_undoing_and_a_number_of_another_process_is_left_alone() {
    let fake = Fake::veth();
    let placement = take(&fake, NapiPolicy::NapiThread).unwrap();
    fake.denied.lock().unwrap().extend(["set_napi", "set_joins"].map(|w| (w, libc::ENODEV)));
    assert!(placement.undo.iter().all(|undo| undo.apply(&fake).is_ok()));
    drop(placement);

    let fake = Fake::veth();
    let standing = ThreadStanding { cores: vec![0], nice: -20 };
    PlacementUndo::Thread(4321, standing, "/x".to_owned()).apply(&fake).unwrap();
    assert_eq!((fake.state().standing.nice, fake.state().group.as_str()), (0, "/"));
}

#[test]
fn what_a_killed_process_left_is_undone_first() {
    let folder = std::env::temp_dir().join(format!("floodwall-left-{}", std::process::id()));
    let note = || super::note::PlacementNote::take_in(&folder, "n", "boot v0");
    let fake = Fake::veth();
    let users = fake.state();
    let config = PlacementConfig { half: NapiPolicy::NapiThread, ..PlacementConfig::default() };
    let mut killed = Placement::take_by("v0", &config, Box::new(fake.clone()), note()).unwrap();
    // As the system does for a killed process: nothing is set back, the lock is gone.
    killed.system = None;
    drop(killed);
    assert_ne!(fake.state().napis, users.napis);
    let next = Placement::take_by("v0", &config, Box::new(fake.clone()), note()).unwrap();
    // Meanwhile another one finds it taken.
    let other = Placement::take_by("v0", &config, Box::new(fake.clone()), note()).unwrap();
    assert!(other.report().words.contains("another floodwall"), "{other:?}");
    drop(other);
    assert_eq!(fake.state().napis[0].setting.threaded, Some(true));
    drop(next);
    assert_eq!((fake.state().napis, fake.state().joins), (users.napis, users.joins));
    assert!(!folder.join("n").exists());
    std::fs::remove_dir(&folder).unwrap();
}

#[test]
fn a_half_stands_behind_all_while_its_share_is_used_up_and_as_placed_in_the_end() {
    let fake = Fake::veth();
    let mut placement = take(&fake, NapiPolicy::NapiThread).unwrap();
    let placed = fake.state();
    let mut halves = placement.halves();
    assert_eq!(halves.len(), 1, "one for each receive half");
    assert!(placement.halves().is_empty(), "each is had once");
    let mut half = halves.pop().unwrap();
    assert!(half.time().is_some());
    half.set_rank(NapiRank::Granted);
    let granted = fake.state();
    assert_eq!(granted.standing.nice, -20);
    assert!(granted.slice > placed.slice, "the worker's slice is the shorter one");
    half.set_rank(NapiRank::Denied);
    assert_eq!(fake.state().standing.nice, NICE_DENIED);
    half.poll(true);
    assert_eq!(*fake.polled.lock().unwrap(), (0, 0), "it is its thread's");
    half.set_rank(NapiRank::Taken);
    let taken = fake.state().napis[0].setting;
    assert_eq!((taken.defer, taken.flush_nanos), (POLL_DEFER, POLL_FLUSH_NANOS));
    half.poll(false);
    half.set_rank(NapiRank::Denied);
    assert_eq!(*fake.polled.lock().unwrap(), (1, 1), "polled, and given back");
    assert_eq!(fake.state().napis, placed.napis);
    half.set_rank(NapiRank::Taken);
    drop(half);
    assert_eq!(fake.state(), placed);
}

/// A program comes to the interface and leaves it while others use the core: what it is for its
/// place counts once the core is the worker's again.
#[test]
fn a_place_that_changes_while_the_core_is_shared_is_taken_afterwards() {
    let fake = Fake::veth();
    let mut placement = take(&fake, NapiPolicy::NapiThread).unwrap();
    let mut half = placement.halves().pop().unwrap();
    half.set_rank(NapiRank::Denied);
    half.place(NapiPriority::Choosing);
    assert_eq!(fake.state().standing.nice, NICE_DENIED);
    assert_eq!(fake.state().napis[0].setting.flush_nanos, BEFORE_FLUSH_NANOS);
    half.set_rank(NapiRank::Placed);
    assert_eq!(fake.state().standing.nice, NICE_CHOOSING);
    half.set_rank(NapiRank::Taken);
    half.place(NapiPriority::Behind);
    assert_eq!(fake.state().napis[0].setting.flush_nanos, POLL_FLUSH_NANOS);
    half.set_rank(NapiRank::Placed);
    assert_eq!(fake.state().standing.nice, NICE_BEHIND);
    assert_eq!(fake.state().napis[0].setting.flush_nanos, THREAD_FLUSH_NANOS);
}

#[test]
fn a_half_that_outlives_its_place_changes_nothing_any_more() {
    let fake = Fake::veth();
    let mut placement = take(&fake, NapiPolicy::NapiThread).unwrap();
    let mut half = placement.halves().pop().unwrap();
    half.set_rank(NapiRank::Granted);
    drop(placement);
    let after = fake.state();
    half.set_rank(NapiRank::Denied);
    drop(half);
    assert_eq!(fake.state(), after);
}

#[test]
fn a_half_that_cannot_be_polled_stays_its_threads() {
    let fake = Fake::veth().deny("driver", libc::EPERM);
    let mut placement = take(&fake, NapiPolicy::NapiThread).unwrap();
    let placed = fake.state();
    let mut half = placement.halves().pop().unwrap();
    half.set_rank(NapiRank::Taken);
    assert!(!half.is_taken());
    assert_eq!(fake.state(), placed);
}

#[test]
fn no_half_is_had_where_its_thread_is_on_no_workers_core() {
    let fake = Fake::veth();
    let config = PlacementConfig { half: NapiPolicy::NapiThread, ..PlacementConfig::default() };
    let nowhere = NoteTaken::Nowhere(io::ErrorKind::ReadOnlyFilesystem.into());
    let mut placement = Placement::take_by("v0", &config, Box::new(fake), nowhere).unwrap();
    assert!(placement.halves().is_empty());
}
