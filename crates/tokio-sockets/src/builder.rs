//! `NetworkBuilder`: devices, addresses and workers in; a running [`Network`] out.
//!
//! Called by programs, once. Devices are given as specifications, as for `floodwall run`, or as
//! values. Invariant: nothing is opened before [`NetworkBuilder::start`], and where that fails,
//! nothing is left open or running. The effect of every field on the host is described at
//! [`StackConfig`](floodwall_stack::StackConfig).

use std::net::IpAddr;
use std::time::Duration;

use floodwall_base::{IfIndex, IpCidr, MacAddr, Randomness};
use floodwall_device::{
    Device, DeviceInfo, DeviceKind, DeviceSpec, FirstLineMode, Medium, NapiPolicy, OpenConfig,
    OpenedDevice, stable_secret, station_address,
};
use floodwall_dispatch::{Port, WORKERS_MAX, WorkerConfig, WorkerGroupConfig, WorkerSlot, entropy};
use floodwall_packet::PoolConfig;
use floodwall_stack::remote::RemoteConfig;
use floodwall_stack::{InterfaceConfig, LinkMedium, StackConfig, StaticRoute};

use crate::addrs::Resolver;
use crate::error::NetworkError;
use crate::links::WatchedLink;
use crate::network::{Network, NetworkPlan};

/// GSO frames in the pool, where a device carries such.
const SUPERS_POOLED: usize = 64;

/// Where an interface's packets come from.
enum DeviceSource {
    Word(String),
    Queues(Vec<Box<dyn Device>>),
}

/// The least MTU of any IP link (RFC 791), and the most that a packet can have.
const MTU_MIN: u32 = 68;
const MTU_MAX: u32 = 65_535;

/// TCP connections of each worker.
const CONNECTIONS_DEFAULT: usize = 4096;
/// How long connections may take to end.
const DRAIN_DEFAULT: Duration = Duration::from_secs(5);

/// The requested configuration of one interface.
struct WantedSetting {
    source: DeviceSource,
    addresses: Vec<String>,
    gateways: Vec<String>,
    mac: Option<MacAddr>,
    mtu: Option<u32>,
    offload: bool,
    learns: Option<bool>,
    any_destination: bool,
}

impl WantedSetting {
    fn new(source: DeviceSource) -> Self {
        Self {
            source,
            addresses: Vec::new(),
            gateways: Vec::new(),
            mac: None,
            mtu: None,
            offload: true,
            learns: None,
            any_destination: false,
        }
    }

    /// The interface on its device, addresses and gateways apart.
    fn on(&self, info: DeviceInfo, station: MacAddr) -> InterfaceConfig {
        let medium = match info.medium {
            Medium::Ethernet => LinkMedium::Ethernet(station),
            Medium::Ip => LinkMedium::Ip,
        };
        let learns =
            info.medium == Medium::Ethernet && self.learns.unwrap_or(self.addresses.is_empty());
        InterfaceConfig {
            mtu: self.mtu.unwrap_or(info.mtu),
            checksum_offload: info.offload,
            name: info.name,
            medium,
            accept_ra: learns,
            autoconf: learns,
            dhcp: learns,
            dhcpv6: learns,
            any_destination: self.any_destination,
            ..InterfaceConfig::default()
        }
    }
}

/// What the program adjusts last.
type Adjust = Box<dyn FnOnce(&mut StackConfig) + Send>;

/// The configuration of a [`Network`] before it starts. Made by [`Network::builder`].
///
/// Interface settings (addresses, gateways, MTU) belong to the device that was named last; errors
/// are returned by [`NetworkBuilder::start`].
#[must_use = "nothing happens before `start`"]
pub struct NetworkBuilder {
    interfaces: Vec<WantedSetting>,
    routes: Vec<StaticRoute>,
    workers: Option<usize>,
    cores: Vec<usize>,
    shares_core: Option<bool>,
    sockets_max: usize,
    connections_max: usize,
    tcp: floodwall_tcp::TcpSettings,
    memory: Option<PoolConfig>,
    sending: Option<RemoteConfig>,
    worker: WorkerConfig,
    resolver: Option<Box<dyn Resolver>>,
    drain: Duration,
    adjust: Vec<Adjust>,
    problem: Option<NetworkError>,
}

impl NetworkBuilder {
    pub(crate) fn new() -> Self {
        Self {
            interfaces: Vec::new(),
            routes: Vec::new(),
            workers: None,
            cores: Vec::new(),
            shares_core: None,
            sockets_max: RemoteConfig::default().sockets_max,
            connections_max: CONNECTIONS_DEFAULT,
            tcp: floodwall_tcp::TcpSettings::default(),
            memory: None,
            sending: None,
            worker: WorkerConfig::default(),
            resolver: None,
            drain: DRAIN_DEFAULT,
            adjust: Vec::new(),
            problem: None,
        }
    }

    /// A device of the system: `"tap:fw0"`, `"tun:fw0"`, `"packet:eth0"`. It is opened with a queue
    /// for each worker where it can have several.
    pub fn device(mut self, word: &str) -> Self {
        self.interfaces.push(WantedSetting::new(DeviceSource::Word(word.to_owned())));
        self
    }

    /// A device value, as one end of a wire in memory ([`floodwall_device::pair`]). The first
    /// worker has it; what belongs to others is handed on.
    pub fn attach(self, device: impl Device + 'static) -> Self {
        self.attach_queues(vec![Box::new(device)])
    }

    /// The queues of one device: one a worker, or one for all.
    pub fn attach_queues(mut self, queues: Vec<Box<dyn Device>>) -> Self {
        self.interfaces.push(WantedSetting::new(DeviceSource::Queues(queues)));
        self
    }

    fn last(mut self, what: &'static str, say: impl FnOnce(&mut WantedSetting)) -> Self {
        match self.interfaces.last_mut() {
            Some(wanted) => say(wanted),
            None => self.problem = self.problem.or(Some(NetworkError::NoDevice(what))),
        }
        self
    }

    /// An address of ours on the last device, with its prefix length: `"192.0.2.1/24"`,
    /// `"2001:db8::1/64"`. Without any, an Ethernet device uses DHCP and IPv6 router discovery.
    pub fn address(self, cidr: &str) -> Self {
        self.last("an address", |wanted| wanted.addresses.push(cidr.to_owned()))
    }

    /// A router on the last device: one default route.
    pub fn gateway(self, addr: &str) -> Self {
        self.last("a gateway", |wanted| wanted.gateways.push(addr.to_owned()))
    }

    /// The station's address on the last device. Otherwise one of our own making, which stays the
    /// same for this machine and device.
    pub fn mac(self, mac: MacAddr) -> Self {
        self.last("a station's address", |wanted| wanted.mac = Some(mac))
    }

    /// The largest packet on the last device, in bytes.
    pub fn mtu(self, mtu: u32) -> Self {
        self.last("an MTU", |wanted| wanted.mtu = Some(mtu))
    }

    /// Whether GSO frames (GSO) and partial checksums may cross the last device; the default is
    /// on.
    pub fn offload(self, on: bool) -> Self {
        self.last("offload", |wanted| wanted.offload = on)
    }

    /// Whether the last device is configured by DHCP servers and IPv6 routers, with or without
    /// given addresses.
    pub fn learns(self, on: bool) -> Self {
        self.last("what is learned", |wanted| wanted.learns = Some(on))
    }

    /// Whether packets from the last device are local for any destination, as VPNs and sandboxes
    /// need: see [`TcpListener::bind_every`](crate::TcpListener::bind_every).
    pub fn any_destination(self, on: bool) -> Self {
        self.last("any destination", |wanted| wanted.any_destination = on)
    }

    /// A route beside those of addresses and gateways, by the last device.
    pub fn route(mut self, prefix: IpCidr, via: Option<IpAddr>) -> Self {
        match self.interfaces.len().checked_sub(1) {
            Some(iface) => self.routes.push(StaticRoute { prefix, via, iface }),
            None => self.problem = self.problem.or(Some(NetworkError::NoDevice("a route"))),
        }
        self
    }

    /// Threads that process packets; the default is one for each core that is named, or 1. Flows
    /// are spread over them; a socket receives from all of them.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// The cores that the workers are pinned to, one each, in order. There are as many workers
    /// unless another number is given.
    pub fn cores(mut self, cores: impl IntoIterator<Item = usize>) -> Self {
        self.cores = cores.into_iter().collect();
        self
    }

    /// Whether workers and the runtime's threads share cores. Then a worker that sleeps is woken
    /// only when every ready task has run, which nearly doubles the throughput of both together.
    /// The default is on where the process has one core.
    pub fn shares_core(mut self, on: bool) -> Self {
        self.shares_core = Some(on);
        self
    }

    /// Sockets at most, of which everything is allocated at the start.
    pub fn sockets_max(mut self, sockets: usize) -> Self {
        self.sockets_max = sockets;
        self
    }

    /// Maximum TCP connections of each worker; their slots are allocated at the start. The default
    /// is 4,096. With 0 the host has no TCP.
    pub fn connections_max(mut self, connections: usize) -> Self {
        self.connections_max = connections;
        self
    }

    /// What TCP connections and listeners begin with: how many bytes may wait, and more.
    pub fn tcp(mut self, adjust: impl FnOnce(&mut floodwall_tcp::TcpSettings)) -> Self {
        adjust(&mut self.tcp);
        self
    }

    /// The packet memory of all workers together. The default is 18 MiB a worker.
    pub fn memory(mut self, memory: PoolConfig) -> Self {
        self.memory = Some(memory);
        self
    }

    /// The memory to send from, of all workers together. The default is 10 MiB a worker: the
    /// connections of each may hold its part.
    pub fn send_memory(mut self, small: usize, frames: usize) -> Self {
        self.sending = Some(RemoteConfig { small, frames, ..RemoteConfig::default() });
        self
    }

    /// How each worker behaves.
    pub fn worker(mut self, config: WorkerConfig) -> Self {
        self.worker = config;
        self
    }

    /// How long [`Network::shutdown`], and the drop of the last handle, wait for connections to
    /// end before they reset them. The default is 5 seconds; with zero all are reset at once.
    pub fn drain(mut self, patience: Duration) -> Self {
        self.drain = patience;
        self
    }

    /// The name resolver: see [`crate::SystemResolver`].
    pub fn resolver(mut self, resolver: impl Resolver) -> Self {
        self.resolver = Some(Box::new(resolver));
        self
    }

    /// Adjusts any other part of the host's configuration, after all other settings.
    pub fn stack(mut self, adjust: impl FnOnce(&mut StackConfig) + Send + 'static) -> Self {
        self.adjust.push(Box::new(adjust));
        self
    }

    /// Opens the devices, takes all memory, starts the workers, and waits until every configured
    /// address may be used: a second where IPv6 addresses are probed. Blocks the calling thread for
    /// some milliseconds before it first awaits. Dropped while it waits, it stops what it started.
    ///
    /// # Errors
    /// See [`NetworkError`]: each message gives a remedy.
    pub async fn start(self) -> Result<Network, NetworkError> {
        Network::launch(self.plan()?).await
    }

    fn plan(mut self) -> Result<NetworkPlan, NetworkError> {
        if let Some(problem) =
            self.problem.or(self.interfaces.is_empty().then_some(NetworkError::Empty))
        {
            return Err(problem);
        }
        let mut random = entropy::randomness()?;
        let mut stack = StackConfig {
            routes: std::mem::take(&mut self.routes),
            stable_secret: stable_secret(),
            udp_sockets_max: self.sockets_max,
            tcp_connections_max: self.connections_max,
            keep_gateways: true,
            ..StackConfig::default()
        };
        let workers = self.workers.unwrap_or(self.cores.len().max(1));
        if !(1..=WORKERS_MAX).contains(&workers) {
            return Err(NetworkError::WorkerCount(workers));
        }
        let wrong_mtu = |mtu: &u32| !is_mtu(mtu);
        if let Some(mtu) = self.interfaces.iter().filter_map(|wanted| wanted.mtu).find(wrong_mtu) {
            return Err(NetworkError::Mtu(mtu));
        }
        let mut slots: Vec<_> = (0..workers)
            .map(|worker| WorkerSlot { core: self.cores.get(worker).copied(), ports: Vec::new() })
            .collect();
        let (mut offload, mut links) = (false, Vec::new());
        for (index, mut wanted) in self.interfaces.into_iter().enumerate() {
            let iface = IfIndex(u16::try_from(index + 1).unwrap_or(u16::MAX));
            let addresses = addresses(&wanted.addresses)?;
            let gateways = gateways(&wanted.gateways)?;
            let by_name = is_fixed(&wanted.source);
            let (queues, info, station) = open(&mut wanted, workers, &mut random)?;
            links.extend(by_name.and_then(|fixed| watched(iface, &info, wanted.mtu, fixed)));
            offload |= info.offload;
            // An interface may have more queues than there are workers: in turn.
            for (number, queue) in queues.into_iter().enumerate() {
                if let Some(slot) = slots.get_mut(number % workers.max(1)) {
                    slot.ports.push(Port::new(iface, queue));
                }
            }
            let interface = InterfaceConfig { addresses, gateways, ..wanted.on(info, station) };
            stack.interfaces.push(interface);
        }
        for adjust in self.adjust {
            adjust(&mut stack);
        }
        floodwall_stack::check(&stack)?;
        let mut group = WorkerGroupConfig::new(slots)?;
        let usual = || usual_memory(workers, offload);
        let accounts = floodwall_stack::accounts_needed(&stack);
        group.memory = PoolConfig { accounts, ..self.memory.unwrap_or_else(usual) };
        group.worker = self.worker;
        let remote = RemoteConfig {
            sockets_max: stack.udp_sockets_max,
            connections_max: stack.tcp_connections_max,
            workers,
            ..self.sending.unwrap_or_else(|| usual_sending(workers))
        };
        Ok(NetworkPlan {
            stack,
            group,
            remote,
            shares_core: self.shares_core.unwrap_or_else(has_one_core),
            resolver: self.resolver,
            tcp: self.tcp,
            drain: self.drain,
            links,
        })
    }
}

/// Of a device that is opened by name, whether its frames keep the size with which it was opened.
fn is_fixed(source: &DeviceSource) -> Option<bool> {
    match source {
        DeviceSource::Word(word) => Some(word.starts_with("xdp:")),
        DeviceSource::Queues(_) => None,
    }
}

/// The link of a device that was opened by name, to be followed.
fn watched(
    iface: IfIndex,
    info: &DeviceInfo,
    wanted: Option<u32>,
    is_fixed: bool,
) -> Option<WatchedLink> {
    let most = wanted.or(is_fixed.then_some(info.mtu));
    WatchedLink::new(iface, &info.name, wanted.unwrap_or(info.mtu), most)
}

/// Whether a link can have this MTU.
pub(crate) fn is_mtu(mtu: &u32) -> bool {
    (MTU_MIN..=MTU_MAX).contains(mtu)
}

/// What each worker has by itself, for all of them; GSO frames where a device carries such.
fn usual_memory(workers: usize, offload: bool) -> PoolConfig {
    let usual = PoolConfig::default();
    PoolConfig {
        small: usual.small * workers.max(1),
        frames: usual.frames * workers.max(1),
        references: usual.references * workers.max(1),
        supers: if offload { SUPERS_POOLED * workers } else { 0 },
        ..usual
    }
}

/// What the programs of each worker send from by itself, for all of them.
fn usual_sending(workers: usize) -> RemoteConfig {
    let usual = RemoteConfig::default();
    let workers = workers.max(1);
    RemoteConfig { small: usual.small * workers, frames: usual.frames * workers, ..usual }
}

/// Whether everything of this process runs on one core.
fn has_one_core() -> bool {
    std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1)
}

fn addresses(texts: &[String]) -> Result<Vec<IpCidr>, NetworkError> {
    let read = |text: &String| {
        let whole = text.contains('/').then(|| text.parse().ok()).flatten();
        whole.ok_or_else(|| NetworkError::Address(text.clone()))
    };
    texts.iter().map(read).collect()
}

fn gateways(texts: &[String]) -> Result<Vec<IpAddr>, NetworkError> {
    let read = |text: &String| text.parse().map_err(|_| NetworkError::Gateway(text.clone()));
    texts.iter().map(read).collect()
}

type Queues = Vec<Box<dyn Device>>;

/// The device's queues, its properties, and our station's link address behind it.
fn open(
    wanted: &mut WantedSetting,
    workers: usize,
    random: &mut Randomness,
) -> Result<(Queues, DeviceInfo, MacAddr), NetworkError> {
    let none = DeviceSource::Queues(Vec::new());
    match std::mem::replace(&mut wanted.source, none) {
        DeviceSource::Queues(queues) => {
            let Some(first) = queues.first() else {
                return Err(NetworkError::Queues { device: String::new(), queues: 0, workers });
            };
            let info = first.info().clone();
            if queues.len() > workers {
                let (device, queues) = (info.name, queues.len());
                return Err(NetworkError::Queues { device, queues, workers });
            }
            let station = wanted.mac.unwrap_or_else(|| station_address(&info.name, random));
            Ok((queues, info, station))
        }
        DeviceSource::Word(word) => {
            let word: DeviceSpec = word.parse()?;
            let station = wanted.mac.unwrap_or_else(|| station_address(&word.name, random));
            let config = OpenConfig {
                workers,
                station: Some(station),
                offload: wanted.offload,
                mtu: wanted.mtu,
                // A library sets nothing of the system's unasked: see `device`'s placement.
                kernel_half: NapiPolicy::Leave,
                first_line: match word.kind {
                    DeviceKind::Packet => FirstLineMode::Off,
                    _ => FirstLineMode::Auto,
                },
                ..OpenConfig::default()
            };
            let OpenedDevice { queues, .. } = word.open(&config)?;
            let Some(first) = queues.first() else {
                return Err(NetworkError::Queues { device: word.name, queues: 0, workers });
            };
            let info = first.info().clone();
            Ok((queues, info, station))
        }
    }
}

impl std::fmt::Debug for NetworkBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetworkBuilder")
            .field("interfaces", &self.interfaces.len())
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_worker_for_each_core_that_is_named_unless_a_number_is_given() {
        let plan = |adjust: fn(NetworkBuilder) -> NetworkBuilder| {
            let (wire, _other) = floodwall_device::pair(4);
            let builder = NetworkBuilder::new().attach(wire).address("192.0.2.1/24");
            adjust(builder).plan().unwrap().remote.workers
        };
        assert_eq!(plan(|builder| builder), 1);
        assert_eq!(plan(|builder| builder.cores([0, 1])), 2);
        assert_eq!(plan(|builder| builder.cores([0]).workers(2)), 2);
        assert_eq!(plan(|builder| builder.workers(3)), 3);
    }

    /// Else slow readers of a program would be reset with two workers that are not with one.
    #[test]
    fn each_worker_has_memory_to_send_from_as_one_worker_alone_has() {
        let plan = |adjust: fn(NetworkBuilder) -> NetworkBuilder| {
            let (wire, _other) = floodwall_device::pair(4);
            let builder = NetworkBuilder::new().attach(wire).address("192.0.2.1/24");
            let RemoteConfig { small, frames, workers, .. } =
                adjust(builder).plan().unwrap().remote;
            (small / workers, frames / workers)
        };
        let one = plan(|builder| builder);
        assert_eq!(plan(|builder| builder.workers(2)), one);
        assert_eq!(plan(|builder| builder.cores([0, 1]).workers(4)), one);
        let given = plan(|builder| builder.workers(2).send_memory(64, 32));
        assert_eq!(given, (32, 16), "what is configured is for all together");
    }
}
