//! Floodwall as it runs: a host under a worker on a thread of its own.
//!
//! Used by every scenario. Invariant: when it has ended, however it did, every packet is accounted
//! for exactly once and all memory is back in the pool, or the test fails.

use std::net::IpAddr;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use floodwall_device::Device;
use floodwall_dispatch::{
    Clock, Control, ControlQueue, Ended, Port, PublishedReader, Shown, Stop, Worker, WorkerConfig,
    WorkerCounter, WorkerCounters, WorkerError, entropy,
};
use floodwall_ip::AddressState;
use floodwall_packet::{Pool, PoolConfig};
use floodwall_stack::{Application, Host, Stack, StackConfig, Stats, accounts_needed};
use rustix::time::{ClockId, clock_gettime};

use crate::namespace::until;

/// How long the worker may take to answer, or to end, on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(10);

/// A host under a worker on a thread of its own.
pub(crate) struct Running {
    control: Control<Shown<Host>>,
    reader: PublishedReader,
    stop: Stop,
    thread: Option<JoinHandle<End>>,
}

/// How it ended.
pub(crate) struct End {
    pub(crate) outcome: Result<Ended, WorkerError>,
    pub(crate) stats: Stats,
    pub(crate) facts: WorkerCounters,
}

/// Time on a core so far, of the calling thread.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned() as u32)
}

impl Running {
    /// Starts, and waits until the worker stands.
    pub(crate) fn start(
        config: StackConfig,
        device: Box<dyn Device>,
        applications: Vec<Box<dyn Application>>,
    ) -> Self {
        Self::start_on(config, vec![device], applications)
    }

    /// The same on several queues of the first interface.
    pub(crate) fn start_on(
        config: StackConfig,
        queues: Vec<Box<dyn Device>>,
        applications: Vec<Box<dyn Application>>,
    ) -> Self {
        let stop = Stop::new().unwrap();
        let (ready, is_ready) = mpsc::sync_channel(1);
        let its_stop = stop.clone();
        let name = thread::current().name().unwrap_or("test").to_owned();
        let thread = thread::Builder::new().name(name).spawn(move || {
            let pool = PoolConfig {
                supers: 16,
                accounts: accounts_needed(&config),
                ..PoolConfig::default()
            };
            let pool = Pool::new(&pool).unwrap();
            let (region, full) = (pool.region().clone(), pool.available());
            let mut worker = make_worker(&config, pool, queues, applications);
            ready.send((worker.control(), worker.reader())).unwrap();
            let outcome = worker.run(&its_stop);
            let stats = worker.engine().unwrap().engine.stack().stats();
            let facts = worker.facts().clone();
            drop(worker);
            assert_eq!(region.attach().unwrap().available(), full, "all memory is home");
            assert!(stats.conservation().holds(), "{:?}", stats.conservation());
            let departed = facts.of(WorkerCounter::TxPackets)
                + facts.of(WorkerCounter::Backlog)
                + facts.lost();
            assert_eq!(facts.of(WorkerCounter::SentPackets), departed, "{facts:?}");
            End { outcome, stats, facts }
        });
        let (control, reader) = is_ready.recv().expect("the worker stands");
        Self { control, reader, stop, thread: Some(thread.unwrap()) }
    }

    /// Waits until every address of ours may be used.
    pub(crate) fn wait_for_addresses(&self) {
        assert!(until(PATIENCE, || {
            let states = self.stack(|stack| states(stack));
            states.iter().all(|(_, state)| state.is_assigned())
        }));
    }

    /// Waits until this address of ours is in this state.
    pub(crate) fn wait_for_state(&self, addr: IpAddr, state: AddressState) {
        let has_come = || self.stack(|stack| states(stack)).contains(&(addr, state));
        assert!(until(PATIENCE, has_come), "{addr} is never {state:?}");
    }

    /// Runs a call on the worker's thread.
    pub(crate) fn ask<R: Send + 'static>(
        &self,
        what: impl FnOnce(&mut ControlQueue<'_, Shown<Host>>) -> R + Send + 'static,
    ) -> R {
        self.control.ask(PATIENCE, what).expect("the worker answers")
    }

    /// Runs a call on the stack.
    pub(crate) fn stack<R: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Stack) -> R + Send + 'static,
    ) -> R {
        self.ask(move |desk| what(desk.engine.engine.stack_mut()))
    }

    /// What the stack has counted.
    pub(crate) fn stats(&self) -> Stats {
        self.stack(|stack| stack.stats())
    }

    /// What the loop has counted when it last had nothing to do.
    pub(crate) fn facts(&self) -> WorkerCounters {
        self.reader.read().facts
    }

    /// Whether the worker's thread has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Requests it to stop, and waits for that.
    pub(crate) fn stop(self) -> End {
        self.stop.trigger();
        self.wait()
    }

    /// Waits until it has ended.
    pub(crate) fn wait(mut self) -> End {
        assert!(until(PATIENCE, || self.has_ended()), "the worker ends in time");
        match self.thread.take().unwrap().join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.trigger();
        // A test that drops it so has failed already: what the stack and the loop have counted may
        // show why.
        if let Some(Ok(end)) = self.thread.take().map(JoinHandle::join)
            && thread::panicking()
        {
            eprintln!("{:#?}\n{:#?}", end.stats, end.facts);
        }
    }
}

fn make_worker(
    config: &StackConfig,
    pool: Pool,
    queues: Vec<Box<dyn Device>>,
    applications: Vec<Box<dyn Application>>,
) -> Worker<Shown<Host>> {
    let mut random = entropy::randomness().unwrap();
    let now = Clock::new().now();
    let host = Host::new(config, applications, &pool, &mut random, now).unwrap();
    let port = |queue| Port::new(floodwall_base::IfIndex(1), queue);
    let ports = queues.into_iter().map(port).collect();
    Worker::new(Shown::silent(host), pool, random, ports, WorkerConfig::default()).unwrap()
}

/// All our addresses, and how far they may be used.
fn states(stack: &Stack) -> Vec<(IpAddr, AddressState)> {
    let all = stack.interfaces().iter().flat_map(|interface| interface.addresses());
    all.map(|address| (address.addr, address.state)).collect()
}
