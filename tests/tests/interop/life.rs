//! How a run ends, begins again, and rests.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use floodwall_base::Counter;
use floodwall_device::DeviceError;
use floodwall_dispatch::{WorkerCounter, WorkerError};

use crate::bench::{Bench, ECHO_PORT};
use crate::command::ip;
use crate::echo;
use crate::link::{self, Kind, ends};
use crate::namespace::{inside, pause, tell, until};
use crate::running::{End, cpu_time};

/// At most so many datagrams are sent at the worker while it ends.
const LOAD: u32 = 2_000_000;

/// Datagrams to the echo service in both families, as fast as the kernel sends, until dropped.
struct Load {
    ends: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Load {
    fn start() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let its_ends = ends.clone();
        let thread = thread::Builder::new().spawn(move || {
            let sockets = link::ends().map(|ends| {
                let socket = UdpSocket::bind((ends.kernel, 0)).unwrap();
                (socket, SocketAddr::new(ends.ours, ECHO_PORT))
            });
            for _ in 0..LOAD {
                for (socket, to) in &sockets {
                    // Refused once the device is gone.
                    let _ = socket.send_to(&[0; 512], to);
                }
                if its_ends.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        Self { ends, thread: Some(thread.unwrap()) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// Waits until the load has arrived.
fn wait_for_load(bench: &Bench) {
    let busy = || bench.running.stats().counters.of(Counter::Udp6InDatagrams) > 1000;
    assert!(until(Duration::from_secs(20), busy));
}

fn ended_by_name(end: End) {
    let Err(error) = end.outcome else { panic!("it was not asked to end") };
    assert!(matches!(error, WorkerError::NoDeviceLeft(DeviceError::Gone { .. })), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("no device is left: fw") && text.contains("gone"), "{text}");
    assert_eq!(end.facts.of(WorkerCounter::DevicesLive), 0);
}

pub(crate) fn deleted_at_rest(bench: Bench) {
    link::delete();
    ended_by_name(bench.running.wait());
}

pub(crate) fn deleted_under_load(bench: Bench) {
    let load = Load::start();
    wait_for_load(&bench);
    link::delete();
    let end = bench.running.wait();
    drop(load);
    ended_by_name(end);
}

pub(crate) fn stopped_under_load(bench: Bench) {
    let load = Load::start();
    wait_for_load(&bench);
    let end = bench.running.stop();
    drop(load);
    let ended = end.outcome.expect("it was asked to end");
    assert_eq!(ended.ports.len(), 1);
}

/// Also under load, so that packets in flight do not disturb the next run.
#[test]
fn a_second_run_begins_on_the_same_device_right_after_the_first() {
    inside(|| {
        for kind in [Kind::Tap, Kind::Tun, Kind::Packet] {
            for _ in 0..3 {
                let Some(bench) = Bench::set_up(kind, kind.usual_offload(), None) else { return };
                for ends in ends() {
                    echo::sizes(ends, 500);
                }
                let load = Load::start();
                wait_for_load(&bench);
                bench.running.stop().outcome.expect("it was asked to end");
                drop(load);
                if kind == Kind::Packet {
                    link::delete();
                }
            }
            if kind != Kind::Packet {
                link::wait_until_gone();
            }
        }
    });
}

/// Turns of a second without anything to do, and with a descriptor that calls for nothing.
const RESTLESS_DOWN: u64 = 200;

pub(crate) fn down_and_up(bench: Bench) {
    let [v4, _] = ends();
    echo::sizes(v4, 500);
    assert!(ip(&format!("link set {} down", link::NAME)));
    pause(Duration::from_millis(100));
    let before = bench.running.facts().of(WorkerCounter::Rounds);
    pause(Duration::from_secs(1));
    // A question wakes it: what it has counted is as of now.
    bench.running.ask(|_| ());
    let turns = bench.running.facts().of(WorkerCounter::Rounds) - before;
    tell(&format!("1 s with the interface down: {turns} turns"));
    assert!(turns <= RESTLESS_DOWN, "{turns} turns in a second with the interface down");
    assert!(ip(&format!("link set {} up", link::NAME)));
    echo::sizes(v4, 500);
    bench.running.stop().outcome.expect("it was asked to end");
}

/// Turns that three seconds of silence may take: the questions of this test and what the kernel
/// sends by itself.
const RESTLESS: u64 = 30;

pub(crate) fn at_rest(bench: Bench) {
    for ends in ends() {
        echo::sizes(ends, 1000);
    }
    // The work of the start, and of the first packets, is done by then.
    pause(Duration::from_secs(1));
    let look = |bench: &Bench| {
        let cpu = bench.running.ask(|_| cpu_time());
        (bench.running.facts(), cpu)
    };
    let (before, cpu) = look(&bench);
    pause(Duration::from_secs(3));
    let (after, cpu_then) = look(&bench);
    let count = |fact| after.of(fact) - before.of(fact);
    let (turns, spent) = (count(WorkerCounter::Rounds), cpu_then - cpu);
    let [device, bell, timer] =
        [WorkerCounter::WakesDevice, WorkerCounter::WakesBell, WorkerCounter::WakesTimer]
            .map(count);
    tell(&format!(
        "3 s at rest: {turns} turns, woken by device {device}, bell {bell}, timer {timer}; \
         {spent:?} of a core"
    ));
    assert!(turns <= RESTLESS, "{turns} turns in 3 s of silence");
    bench.end_without_loss();
}
