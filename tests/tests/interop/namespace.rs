//! A network namespace of one thread and of the processes and threads that it starts.
//!
//! Every test runs in one. It has no name, so that no other test can meet it, and it goes with its
//! last thread, process and descriptor, so that it need not be removed by hand. Waiting is here
//! too.

#![expect(clippy::disallowed_methods, reason = "the kernel is waited for in real time")]

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use floodwall_device::DeviceError;
use rustix::thread::UnshareFlags;

use crate::command::{ip, run};

/// Which tests are under way. A test that needs the machine for itself waits until no other runs,
/// and lets others begin meanwhile: several that wait then follow one another, and the machine is
/// left idle once for all of them.
static MACHINE: Machine = Machine {
    users: Mutex::new(Users { shared: 0, alone: false, waiting: 0 }),
    left: Condvar::new(),
};

struct Machine {
    users: Mutex<Users>,
    left: Condvar,
}

struct Users {
    shared: usize,
    alone: bool,
    /// Tests that wait to be alone.
    waiting: usize,
}

/// When so many tests wait to be alone no other test begins: they are harness threads that do
/// nothing.
const WAITING_MAX: usize = 3;

/// A test's use of the machine, until dropped.
struct Use {
    alone: bool,
}

impl Machine {
    fn shared(&self) -> Use {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.left.wait_while(users, |users| users.alone || users.waiting >= WAITING_MAX);
        free.unwrap_or_else(PoisonError::into_inner).shared += 1;
        Use { alone: false }
    }

    fn alone(&self) -> Use {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.waiting += 1;
        let free = self.left.wait_while(users, |users| users.alone || users.shared > 0);
        let mut users = free.unwrap_or_else(PoisonError::into_inner);
        (users.alone, users.waiting) = (true, users.waiting - 1);
        Use { alone: true }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut users = MACHINE.users.lock().unwrap_or_else(PoisonError::into_inner);
        if self.alone {
            users.alone = false;
        } else {
            users.shared -= 1;
        }
        MACHINE.left.notify_all();
    }
}

/// Whether tests that need the machine for themselves run, or says why not: what they find depends
/// on what else runs on it. `.ci/run` has them.
fn may_be_alone() -> bool {
    let is_set = std::env::var_os("FLOODWALL_ALONE").is_some_and(|value| value != "0");
    if !is_set && !is_deep() {
        skip("it needs the machine for itself; FLOODWALL_ALONE=1 runs it");
        return false;
    }
    true
}

/// As [`inside`], while no other test runs: for one that takes both cores, or holds up the kernel's
/// own configuration of networks with thousands of entries. With `FLOODWALL_ALONE=1`.
pub(crate) fn inside_alone(test: impl FnOnce() + Send + 'static) {
    if !may_be_alone() {
        return;
    }
    let _alone = MACHINE.alone();
    in_namespace(test);
}

/// The same for a test that need not be alone while it is set up; it ends where that gives `None`.
pub(crate) fn inside_then_alone<T>(
    set_up: impl FnOnce() -> Option<T> + Send + 'static,
    test: impl FnOnce(T) + Send + 'static,
) {
    if !may_be_alone() {
        return;
    }
    in_namespace(move || {
        let beside = MACHINE.shared();
        let Some(scene) = set_up() else { return };
        drop(beside);
        let _alone = MACHINE.alone();
        test(scene);
    });
}

/// Runs `test` on a thread with its own network namespace, or prints why not.
pub(crate) fn inside(test: impl FnOnce() + Send + 'static) {
    let _beside = MACHINE.shared();
    in_namespace(test);
}

fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if std::env::var_os("FLOODWALL_APART").is_some_and(|apart| apart == "waiting") {
        return skip("a step of its own runs it, with more at a time");
    }
    let name = thread::current().name().unwrap_or("test").to_owned();
    let runner = thread::Builder::new().name(name).spawn(move || {
        if enter_own() {
            test();
        }
    });
    if let Err(panic) = runner.unwrap().join() {
        std::panic::resume_unwind(panic);
    }
}

/// Gives the calling thread a namespace of its own, for what it does and starts from here on; or
/// prints why not.
pub(crate) fn enter_own() -> bool {
    #[expect(deprecated, reason = "what makes it unsafe is a flag about descriptors")]
    let own = rustix::thread::unshare(UnshareFlags::NEWNET);
    if let Err(error) = own {
        skip(&format!("no network namespace of its own ({error}); it takes root"));
        return false;
    }
    if !ip("link set lo up") {
        skip("the command `ip` is missing or refuses");
        return false;
    }
    // Most of what follows begins with a ping: without it a missing tool would look like a fault.
    if run("ping", "-V", b"").is_none() {
        return false;
    }
    // What is tested waits for no address of the kernel's, and receives little unsolicited traffic.
    for conf in ["all", "default"] {
        set(&format!("net/ipv6/conf/{conf}/accept_dad"), "0");
        set(&format!("net/ipv6/conf/{conf}/router_solicitations"), "0");
    }
    true
}

/// Reports what was not checked.
pub(crate) fn skip(why: &str) {
    eprintln!("SKIPPED {}: {why}", thread::current().name().unwrap_or("test"));
}

/// Whether tests may last: `FLOODWALL_DEEP=1`.
pub(crate) fn is_deep() -> bool {
    std::env::var_os("FLOODWALL_DEEP").is_some_and(|value| value != "0")
}

/// Reports what was measured.
pub(crate) fn tell(what: &str) {
    eprintln!("MEASURED {}: {what}", thread::current().name().unwrap_or("test"));
}

/// Unwraps what this machine may lack; prints why and gives `None` where it does.
pub(crate) fn available<T>(what: Result<T, DeviceError>) -> Option<T> {
    match what {
        Ok(found) => Some(found),
        Err(error @ (DeviceError::NotFound { .. } | DeviceError::NoPrivilege { .. })) => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Sets one of the namespace's switches under `/proc/sys`.
pub(crate) fn set(switch: &str, value: &str) {
    std::fs::write(format!("/proc/sys/{switch}"), value)
        .unwrap_or_else(|error| panic!("{switch}: {error}"));
}

/// What the kernel shows of an interface of the calling thread's namespace, asked without a
/// process; `None` where there is none of this name.
fn interface(name: &str) -> Option<String> {
    let all = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let mut rows = all.lines().filter_map(|line| line.split_once(':'));
    rows.find(|(found, _)| found.trim() == name).map(|(_, row)| row.to_owned())
}

/// Whether the calling thread's namespace has an interface of this name.
pub(crate) fn has_interface(name: &str) -> bool {
    interface(name).is_some()
}

/// Packets that an interface of the calling thread's namespace has received, and has sent.
pub(crate) fn packets_at(name: &str) -> [u64; 2] {
    let row = interface(name).unwrap_or_else(|| panic!("there is no {name}"));
    let numbers: Vec<u64> = row.split_whitespace().map(|word| word.parse().unwrap()).collect();
    [numbers[1], numbers[9]]
}

pub(crate) fn pause(length: Duration) {
    thread::sleep(length);
}

/// Waits until something is so, for as long as `limit`; whether it became so.
pub(crate) fn until(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        pause(Duration::from_millis(5));
    }
}
