//! `Network`: a running host, and the way to its sockets.
//!
//! Started by [`NetworkBuilder`]; shared by cloning. Its workers are threads of their own, on which
//! no task ever runs; another thread waits for their end. It runs until [`Network::shutdown`],
//! until its last clone *and* its last socket are dropped, or until its last device vanishes. In
//! the first two cases its connections are drained first (`drain.rs`).
//! Invariants: a program never waits for a worker with a lock held, and no worker ever waits for a
//! program; however it ends, every task that waits on a socket gets `BrokenPipe`.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use floodwall_base::{Counter, DropReason};
use floodwall_dispatch::{
    Control, ControlError, ControlQueue, PortReport, Setting, Shown, Stop, WorkerCommand,
    WorkerCounter, WorkerCounters, WorkerGroup, WorkerGroupConfig, WorkerGroupEnded,
    WorkerGroupError, WorkerGroupReader, entropy,
};
use floodwall_stack::remote::{GroupId, ListenHandle, Remote, RemoteConfig, RemoteShard};
use floodwall_stack::{HeldConnections, Seat, Stack, StackConfig, Stats, seats};
use floodwall_sync::lock::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{oneshot, watch};

use crate::addrs::Resolver;
use crate::builder::NetworkBuilder;
use crate::driver::Drivers;
use crate::error::NetworkError;
use crate::events::Subscribers;
use crate::links::{self, WatchedLink};

/// How long configured addresses may take to become usable.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(10);
/// How often they are looked at.
const ADDRESS_LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The checked configuration of a network.
pub(crate) struct NetworkPlan {
    pub(crate) stack: StackConfig,
    pub(crate) group: WorkerGroupConfig,
    pub(crate) remote: RemoteConfig,
    pub(crate) shares_core: bool,
    pub(crate) resolver: Option<Box<dyn Resolver>>,
    pub(crate) tcp: floodwall_tcp::TcpSettings,
    pub(crate) drain: Duration,
    /// Links of devices that were opened by name.
    pub(crate) links: Vec<WatchedLink>,
}

/// A running host with its workers, as a shared handle.
///
/// # Example
///
/// ```
/// use floodwall_tokio_sockets::{Network, UdpSocket};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let (here, there) = floodwall_device::pair(256);
/// let a = Network::builder().attach(here).address("198.18.0.1/24").start().await?;
/// let b = Network::builder().attach(there).address("198.18.0.2/24").start().await?;
///
/// let server = UdpSocket::bind(&a, "0.0.0.0:7001").await?;
/// let client = UdpSocket::bind(&b, "0.0.0.0:0").await?;
/// client.send_to(b"hello", "198.18.0.1:7001").await?;
///
/// let mut room = [0; 1500];
/// let (len, from) = server.recv_from(&mut room).await?;
/// assert_eq!((&room[..len], from.ip()), (&b"hello"[..], "198.18.0.2".parse().unwrap()));
///
/// assert!(b.stats().await?.is_conserved());
/// a.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Network {
    pub(crate) inner: Arc<NetworkInner>,
}

pub(crate) struct NetworkInner {
    remote: Remote,
    drivers: Arc<Drivers>,
    pub(crate) controls: Vec<Control<Shown<Stack>>>,
    pub(crate) reader: WorkerGroupReader,
    pub(crate) subscribers: Arc<Subscribers>,
    resolver: Option<Box<dyn Resolver>>,
    receive_bytes: u64,
    /// Listeners on a port that others may share.
    shared_listeners: Mutex<HashMap<SocketAddr, Weak<ListenHandle>>>,
    tcp: floodwall_tcp::TcpSettings,
    /// How long connections may take to end.
    pub(crate) drain: Duration,
    pub(crate) stop: Stop,
    ended: watch::Receiver<Option<Ending>>,
}

/// Its end; the first query gets the report.
type Ending = Arc<Mutex<Option<Result<WorkerGroupEnded, WorkerGroupError>>>>;

impl Drop for NetworkInner {
    fn drop(&mut self) {
        // The threads end by themselves: a runtime's thread must not wait for them.
        self.drain_and_stop();
    }
}

impl Network {
    /// A builder for a network's configuration.
    pub fn builder() -> NetworkBuilder {
        NetworkBuilder::new()
    }

    /// Listeners on a port that others may share, by their address.
    pub(crate) fn shared_listeners(
        &self,
    ) -> MutexGuard<'_, HashMap<SocketAddr, Weak<ListenHandle>>> {
        self.inner.shared_listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn launch(plan: NetworkPlan) -> Result<Self, NetworkError> {
        let NetworkPlan { stack, group, remote, shares_core, resolver, tcp, drain, links } = plan;
        let system = |source| NetworkError::System { action: "make the stop", source };
        let stop = Stop::new().map_err(system)?;
        let (remote, shards) = Remote::new(&remote)?;
        let drivers = Drivers::new(remote.clone(), group.slots.len(), shares_core);
        let receive_bytes = stack.udp_receive_bytes as u64;
        let addresses = configured(&stack);
        let mut random = entropy::randomness()?;
        let seats = seats(&stack, &group.domain, group.steering, &mut random.secret);
        let places = seats.into_iter().zip(shards).map(Some).collect();
        let group = WorkerGroup::start(group, &stop, maker(stack, places, Arc::clone(&drivers)))?;
        let controls = group.seats().iter().map(|seat| seat.control.clone()).collect::<Vec<_>>();
        let reader = group.reader();
        let (tell, ended) = watch::channel(None);
        let (ready, is_ready) = oneshot::channel();
        let inner = NetworkInner {
            remote,
            drivers,
            controls,
            reader,
            subscribers: Arc::default(),
            resolver,
            receive_bytes,
            shared_listeners: Mutex::default(),
            tcp,
            drain,
            stop,
            ended,
        };
        let network = Self { inner: Arc::new(inner) };
        links::watch(links, group.control(), network.inner.stop.clone())?;
        #[cfg(feature = "tracing")]
        crate::events::trace(&network.inner)?;
        let (control, stop) = (group.control(), network.inner.stop.clone());
        let wait = move || {
            let _ = ready.send(wait_for(&addresses, &control, &stop));
            let ended = group.join();
            let _ = tell.send(Some(Arc::new(Mutex::new(Some(ended)))));
        };
        let system = |source| NetworkError::System { action: "start a thread", source };
        thread::Builder::new().name("floodwall".to_owned()).spawn(wait).map_err(system)?;
        match is_ready.await {
            Ok(Ok(())) => Ok(network),
            Ok(Err(NetworkError::Ended)) | Err(_) => Err(network.ending().await),
            Ok(Err(error)) => Err(error),
        }
    }

    pub(crate) fn remote(&self) -> &Remote {
        &self.inner.remote
    }

    pub(crate) fn resolver(&self) -> Option<&dyn Resolver> {
        self.inner.resolver.as_deref()
    }

    pub(crate) fn receive_bytes(&self) -> u64 {
        self.inner.receive_bytes
    }

    /// What connections begin with.
    pub(crate) fn tcp_settings(&self) -> floodwall_tcp::TcpSettings {
        self.inner.tcp.clone()
    }

    /// The wake group of the runtime that the caller runs in.
    pub(crate) fn group(&self) -> GroupId {
        self.inner.drivers.group()
    }

    /// The counters of all workers, read from each between two bursts.
    ///
    /// # Errors
    /// `Ended`.
    pub async fn stats(&self) -> Result<NetworkStats, NetworkError> {
        let answers = self.ask(|desk| (desk.engine.engine.stats(), desk.ports())).await?;
        let published = self.inner.reader.read();
        let both = answers.into_iter().zip(published);
        let worker = |((stack, ports), published): (_, floodwall_dispatch::Published)| {
            WorkerStats { stack, ports, facts: published.facts }
        };
        Ok(NetworkStats { workers: both.map(worker).collect() })
    }

    /// Lets every worker finish its earlier requests: a drop that was sent before has been received
    /// by its worker, decided by the control shard, and carried out by all then.
    pub(crate) async fn settle(&self) -> Result<(), NetworkError> {
        for _ in 0..4 {
            self.ask(|_| ()).await?;
        }
        Ok(())
    }

    /// Sends a request to every worker.
    pub(crate) async fn ask<R: Send + 'static>(
        &self,
        what: impl Fn(&mut ControlQueue<'_, Shown<Stack>>) -> R + Clone + Send + 'static,
    ) -> Result<Vec<R>, NetworkError> {
        let mut answers = Vec::new();
        for control in &self.inner.controls {
            let answered = loop {
                let (answer, answered) = oneshot::channel();
                let what = what.clone();
                let command =
                    WorkerCommand::new(move |desk: &mut ControlQueue<'_, Shown<Stack>>| {
                        // The caller may have been dropped.
                        let _ = answer.send(what(desk));
                    });
                match control.post(command) {
                    Ok(()) => break answered,
                    // Many requests at once: the worker takes some each turn.
                    Err(ControlError::Full) => tokio::task::yield_now().await,
                    Err(_) => return Err(NetworkError::Ended),
                }
            };
            answers.push(answered);
        }
        let mut all = Vec::new();
        for answered in answers {
            all.push(answered.await.map_err(|_| NetworkError::Ended)?);
        }
        Ok(all)
    }

    /// Sends a request to the control shard.
    pub(crate) async fn ask_control<R: Send + 'static>(
        &self,
        what: impl FnOnce(&mut ControlQueue<'_, Shown<Stack>>) -> R + Send + 'static,
    ) -> Result<R, NetworkError> {
        let control = self.inner.controls.first().ok_or(NetworkError::Ended)?;
        let (answer, answered) = oneshot::channel();
        let mut command = WorkerCommand::new(move |desk: &mut ControlQueue<'_, Shown<Stack>>| {
            // The caller may have been dropped.
            let _ = answer.send(what(desk));
        });
        loop {
            match control.offer(command) {
                Ok(()) => break,
                // Many requests at once: the worker takes some each turn.
                Err((ControlError::Full, back)) => command = back,
                Err(_) => return Err(NetworkError::Ended),
            }
            tokio::task::yield_now().await;
        }
        answered.await.map_err(|_| NetworkError::Ended)
    }

    /// Ends the network in good order, as a kernel ends what a process leaves behind: listeners
    /// close; connections are closed behind all that was written, also those that the program still
    /// holds; this waits until the peers have acknowledged all and closed their side, at most for
    /// the time set by [`NetworkBuilder::drain`]; what is left then is reset. Sockets get
    /// `BrokenPipe`, and the workers' threads end. Without connections it takes a few milliseconds.
    /// May be called again. See [`Network::drain`] for programs that shall go on with connections
    /// meanwhile, and for how connections ended.
    ///
    /// # Errors
    /// How it had ended before, where that was not by a call of this.
    pub async fn shutdown(&self) -> Result<(), NetworkError> {
        self.drain_by(self.inner.drain, HeldConnections::Close).await;
        self.inner.stop.trigger();
        self.closed().await
    }

    /// Waits until it has ended, for any reason.
    ///
    /// # Errors
    /// The last device vanished, or a worker failed; returned to the first caller.
    pub async fn closed(&self) -> Result<(), NetworkError> {
        let mut ended = self.inner.ended.clone();
        let ending = match ended.wait_for(Option::is_some).await {
            Ok(ending) => ending.clone(),
            Err(_) => None,
        };
        let outcome = ending.and_then(|e| e.lock().unwrap_or_else(PoisonError::into_inner).take());
        match outcome {
            Some(Err(error)) => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn ending(&self) -> NetworkError {
        self.closed().await.err().unwrap_or(NetworkError::Ended)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("workers", &self.inner.controls.len())
            .finish_non_exhaustive()
    }
}

/// What each worker's shard is made with, once: a worker that fails ends the network.
type Places = Vec<Option<(Seat, RemoteShard)>>;

/// Makes each worker's shard, on its own thread.
fn maker(
    config: StackConfig,
    places: Places,
    drivers: Arc<Drivers>,
) -> impl Fn(&mut Setting<'_>) -> Result<Shown<Stack>, String> + Send + Sync + 'static {
    let places = Mutex::new(places);
    move |setting| {
        let place = {
            let mut places = places.lock().unwrap_or_else(PoisonError::into_inner);
            places.get_mut(usize::from(setting.worker.0)).and_then(Option::take)
        };
        let (seat, shard) = place.ok_or("a worker that failed is not made again")?;
        let mut stack = Stack::seated(&config, seat, setting.random, setting.now)
            .map_err(|error| error.to_string())?;
        stack.serve(shard);
        if let Some(bell) = setting.waker(setting.worker) {
            drivers.set_bell(setting.worker, bell);
        }
        Ok(Shown::silent(stack))
    }
}

fn configured(stack: &StackConfig) -> Vec<std::net::IpAddr> {
    stack.interfaces.iter().flat_map(|i| i.addresses.iter().map(|cidr| cidr.addr())).collect()
}

/// Waits until these addresses may be used. On the network's own thread.
#[expect(clippy::disallowed_methods, reason = "a start is waited for in real time")]
fn wait_for(
    addresses: &[std::net::IpAddr],
    control: &Control<Shown<Stack>>,
    stop: &Stop,
) -> Result<(), NetworkError> {
    let end = std::time::Instant::now() + ADDRESS_PATIENCE;
    loop {
        let wanted = addresses.to_vec();
        let missing = control.ask(ADDRESS_PATIENCE, move |desk| {
            let interfaces = desk.engine.engine.interfaces();
            let is_ready = |wanted: &std::net::IpAddr| {
                let mut all = interfaces.iter().flat_map(|interface| interface.addresses());
                all.any(|address| address.addr == *wanted && address.state.is_assigned())
            };
            wanted.iter().copied().find(|wanted| !is_ready(wanted))
        });
        match missing {
            Ok(None) => return Ok(()),
            Err(_) => return Err(NetworkError::Ended),
            Ok(Some(_)) if stop.is_triggered() => return Err(NetworkError::Ended),
            Ok(Some(missing)) if std::time::Instant::now() > end => {
                return Err(NetworkError::NotReady(missing));
            }
            Ok(Some(_)) => thread::sleep(ADDRESS_LOOK_INTERVAL),
        }
    }
}

/// What one worker has counted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Its stack's counters and drops by reason.
    pub stack: Stats,
    /// What its loop has counted, as last published.
    pub facts: WorkerCounters,
    /// What its devices have carried and lost.
    pub ports: Vec<PortReport>,
}

/// What a network has counted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NetworkStats {
    /// Each worker's, in order.
    pub workers: Vec<WorkerStats>,
}

impl NetworkStats {
    /// One counter of all workers together.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.workers.iter().map(|worker| worker.stack.counters.of(counter)).sum()
    }

    /// Packets dropped on receive for one reason, all workers together.
    #[must_use]
    pub fn drops_in(&self, reason: DropReason) -> u64 {
        self.workers.iter().map(|worker| worker.stack.drops_in.of(reason)).sum()
    }

    /// Packets dropped on transmit for one reason, all workers together.
    #[must_use]
    pub fn drops_out(&self, reason: DropReason) -> u64 {
        self.workers.iter().map(|worker| worker.stack.drops_out.of(reason)).sum()
    }

    /// One fact of all workers' loops together.
    #[must_use]
    pub fn fact(&self, fact: WorkerCounter) -> u64 {
        self.workers.iter().map(|worker| worker.facts.of(fact)).sum()
    }

    /// Whether the packet accounting of each worker balances.
    #[must_use]
    pub fn is_conserved(&self) -> bool {
        self.workers.iter().all(|worker| worker.stack.conservation().holds())
    }
}
