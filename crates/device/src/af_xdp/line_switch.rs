//! `LineSwitch`: a thread that puts the program of a packet interface to its interface and takes it
//! off.
//!
//! Started by `packet_line.rs` where that is done on demand. Attaching takes the lock of all
//! interfaces, and the driver stops its queues for a moment, so no worker does it.
//!
//! Invariant: the thread ends with the interface; it holds nothing that a worker waits for.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::bpf::Attach;
use super::steering::QueueSteering;

/// How long after a refusal it is tried again.
const REFUSAL_RETRY: Duration = Duration::from_secs(1);
/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// What worker and thread share.
#[derive(Debug)]
struct SwitchState {
    ends: AtomicBool,
    wanted: AtomicBool,
    attached: AtomicBool,
    /// How often it was attached.
    times: AtomicU64,
}

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct LineSwitch {
    state: Arc<SwitchState>,
    thread: JoinHandle<()>,
}

impl LineSwitch {
    /// Starts it for the program of `steering` at the interface `index`, where it is not attached.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(steering: &Arc<QueueSteering>, index: u32) -> io::Result<Self> {
        let state = Arc::new(SwitchState {
            ends: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            attached: AtomicBool::new(false),
            times: AtomicU64::new(0),
        });
        let (shared, steering) = (Arc::clone(&state), Arc::clone(steering));
        let thread = Builder::new().name("xdp-line".to_owned()).spawn(move || {
            // It may share the worker's core, which a flood leaves little of. Without the privilege
            // it comes later.
            let _ = rustix::process::setpriority_process(None, -20);
            while !shared.ends.load(Ordering::Acquire) {
                std::thread::park_timeout(shared.follow(&steering, index));
            }
        })?;
        Ok(Self { state, thread })
    }

    /// Whether the program is to be at the interface. Costs a system call where that has changed.
    pub(super) fn set(&self, wanted: bool) {
        if self.state.wanted.load(Ordering::Relaxed) != wanted {
            self.state.wanted.store(wanted, Ordering::Release);
            self.thread.thread().unpark();
        }
    }

    /// Whether the program is at the interface.
    pub(super) fn is_attached(&self) -> bool {
        self.state.attached.load(Ordering::Acquire)
    }

    /// How often it was attached.
    pub(super) fn times(&self) -> u64 {
        self.state.times.load(Ordering::Relaxed)
    }
}

impl SwitchState {
    /// Does what is wanted; returns how long it may sleep.
    fn follow(&self, steering: &QueueSteering, index: u32) -> Duration {
        let (wanted, attached) =
            (self.wanted.load(Ordering::Acquire), self.attached.load(Ordering::Relaxed));
        match (wanted, attached) {
            (true, false) => {
                if steering.attach(index, Attach::Native).is_err() {
                    return REFUSAL_RETRY;
                }
                self.times.fetch_add(1, Ordering::Relaxed);
            }
            (false, true) => steering.detach(),
            _ => return SLEEP_MAX,
        }
        self.attached.store(wanted, Ordering::Release);
        // It may have changed meanwhile.
        Duration::ZERO
    }
}

impl Drop for LineSwitch {
    /// Does not wait for it: it may wait for the kernel.
    fn drop(&mut self) {
        self.state.ends.store(true, Ordering::Release);
        self.thread.thread().unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use floodwall_base::MacAddr;

    use super::*;
    use crate::af_xdp::cookies::CookieProgramPlan;
    use crate::af_xdp::link_station::LinkStation;
    use crate::interface::InterfaceControl;

    /// Its interfaces are in a namespace that ends with its thread.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a namespace is left with its thread")]
    fn the_program_comes_and_goes_as_it_is_wanted() {
        let inside = std::thread::spawn(|| {
            // SAFETY: the new thread alone enters another network namespace.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return eprintln!("SKIPPED: no namespace: {}", io::Error::last_os_error());
            }
            let ip = |words: &str| Command::new("ip").args(words.split(' ')).output();
            if !ip("link add sw0 type veth peer name sw1").is_ok_and(|said| said.status.success()) {
                return eprintln!("SKIPPED: no veth");
            }
            let station = LinkStation { mac: MacAddr([2, 0, 0, 0, 0, 9]), is_shared: false };
            let plan = CookieProgramPlan::default();
            let steering = match QueueSteering::load(station, 1, &plan, &mut Vec::new()) {
                Ok(steering) => Arc::new(steering),
                Err(error) => return eprintln!("SKIPPED: the kernel loads no program: {error}"),
            };
            let index = InterfaceControl::open().unwrap().interface("sw0").index().unwrap();
            let switch = LineSwitch::start(&steering, index.cast_unsigned()).unwrap();
            let is_shown = || {
                let said = ip("link show sw0").unwrap();
                String::from_utf8_lossy(&said.stdout).contains("prog/xdp")
            };
            let comes_to = |wanted: bool| {
                switch.set(wanted);
                let late = std::time::Instant::now() + Duration::from_secs(60);
                while switch.is_attached() != wanted {
                    assert!(std::time::Instant::now() < late, "it is never {wanted}");
                    std::thread::sleep(Duration::from_millis(5));
                }
                assert_eq!(is_shown(), wanted);
            };
            assert!(!is_shown() && !switch.is_attached());
            for times in 1..=2 {
                comes_to(true);
                assert_eq!(switch.times(), times);
                comes_to(false);
            }
        });
        inside.join().unwrap();
    }
}
