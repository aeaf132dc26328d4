//! `floodwall run`: opens the devices, starts the workers, and ends in good order.
//!
//! Each worker has a thread of its own (`worker_group.rs` in dispatch); this thread serves the
//! control socket. A worker's end and its panic trigger a stop; so do SIGINT and SIGTERM, once
//! connections are drained (`ending.rs`). After it devices are closed, the socket is removed and
//! one line reports what happened.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use floodwall_base::WorkerId;
use floodwall_device::{DeviceKind, Medium, NapiPriority};
use floodwall_dispatch::{
    BalanceConfig, Clock, Control, ControlError, Event, OnPanic, Port, Setting, Share, Shown, Stop,
    WorkerConfig, WorkerCounter, WorkerCounters, WorkerError, WorkerGroup, WorkerGroupConfig,
    WorkerGroupError, WorkerGroupReader, WorkerSeat, WorkerSlot, entropy, pin,
};
use floodwall_drill::measure_capacity;
use floodwall_packet::PoolConfig;
use floodwall_services::{
    ServiceKind as StackService, StreamKind, StreamService, TcpService, UdpService,
};
use floodwall_stack::{
    Application, Host, InterfaceConfig, LinkMedium, Seats, Stack, StackConfig, Stats,
};
use tracing::{error, info, warn};

use crate::address_space;
use crate::args::{OnOff, RunArgs};
use crate::capture::Captures;
use crate::cookie_keys::CookieKeys;
use crate::devices::{self, OpenedDevices};
use crate::ending::{DRAIN_DEFAULT, Ending};
use crate::exit::Exit;
use crate::floods::{FloodLog, FloodNote, Look};
use crate::hosted;
use crate::listeners::Handshakes;
use crate::log;
use crate::metrics;
use crate::network;
use crate::notify::ServiceManager;
use crate::record::{self, Recording};
use crate::reload::{Reloader, ShardConfig, SharedShardConfig};
use crate::report::{self, AnswerTimes, RunReport, StartTime};
use crate::routes;
use crate::settings::parse::ServiceKind;
use crate::settings::{self, InterfaceSettings, RunSettings};
use crate::show;
use crate::signals;
use crate::socket::path::{self, SocketTaken, TakenError};
use crate::socket::request::ControlRequest;
use crate::socket::server;
use crate::sockets;
use crate::threads::spawn_named;
use crate::watch::{self, StatWatch, WatchedLink};

/// How long a worker may take to answer the control socket.
const WORKER_PATIENCE: Duration = Duration::from_secs(1);
/// GSO frames in the pool, where a device carries such.
const SUPERS_POOLED: usize = 64;
/// How a failure is reported: one line, with the remedy.
type Failure = String;

/// Runs until it is stopped.
pub(crate) fn run(args: &RunArgs) -> Exit {
    let settings = match settings::load(args.config.as_deref(), args) {
        Ok(settings) => settings,
        Err(problems) => {
            problems.iter().for_each(|problem| eprintln!("floodwall: {problem}"));
            return Exit::Usage;
        }
    };
    let format = settings.log_format.as_ref().map_or_else(Default::default, |given| given.value);
    let level = settings.log_level.as_ref().map_or_else(Default::default, |given| given.value);
    if let Err(failure) = log::start(format, level) {
        eprintln!("floodwall: {failure}");
        return Exit::Usage;
    }
    let exit = match serve(&settings, args, application) {
        Ok(()) => Exit::Done,
        Err(failure) => {
            error!("{failure}");
            Exit::Usage
        }
    };
    log::flush();
    exit
}

fn words(error: impl std::fmt::Display) -> Failure {
    error.to_string()
}

/// Makes the application of a service.
type ApplicationMaker = fn(&settings::ServiceWord) -> Box<dyn Application>;

fn serve(settings: &RunSettings, args: &RunArgs, make: ApplicationMaker) -> Result<(), Failure> {
    let socket = socket_path(settings);
    if path::is_alive(&socket) {
        return Err(words(TakenError::Alive(socket)));
    }
    let stop = Stop::new().map_err(words)?;
    let ending = Ending::new(&stop, drain_time(settings));
    let signals = ending.catch_signals()?;
    let cores = cores(settings)?;
    let secret = settings.cookie_secret.as_ref().map(|file| file.value.as_path());
    let keys = CookieKeys::open(secret, cores.len())?;
    if args.capacity {
        tell_capacity(settings, &cores, &stop);
    }
    let mut opened = open_devices(settings, &cores)?;
    let _marks: Vec<_> = opened.iter_mut().filter_map(|opened| opened.mark.take()).collect();
    let config = stack_config(settings, &opened);
    floodwall_stack::check(&config).map_err(words)?;
    let taken = SocketTaken::take(&socket).map_err(words)?;
    let recordings = record_devices(settings, &mut opened)?;

    let placements = opened.iter().map(|o| (o.iface, o.placement.clone())).collect();
    let birth = StartTime { started: Clock::new().now(), cores: cores.clone(), placements };
    let links = watched_links(settings, &opened);
    let devices_drop = devices_drop(settings);
    let services = settings.services.clone();
    let shards: SharedShardConfig = Arc::new(Mutex::new(ShardConfig { stack: config, services }));
    let outside = (&stop, &keys, args.share_core == OnOff::On, make);
    let group = start_group(settings, &shards, opened, &cores, outside)?;
    let seats = RunningWorkers::new(group.seats().to_vec(), group.reader());
    ending.set_workers(group.seats());
    let captures = captures(settings, &seats, &stop);
    let watch = StatWatch {
        control: group.control(),
        reader: seats.reader.clone(),
        links: watch::links(links),
        dns_file: settings.dns_file.as_ref().map(|file| file.value.clone()),
        keys: keys.watched(seats.each.iter().map(|seat| seat.control.clone()).collect()),
        floods: flood_log(&birth, &seats, &captures, devices_drop),
    };
    let watched = stop.clone();
    let watching = spawn_named("watch", move || watch.run(&watched))?;
    info!("running; `floodwall stat --socket {}` shows counters, Ctrl-C ends", socket.display());
    let controls = seats.each.iter().map(|seat| seat.control.clone()).collect();
    let reloader = Arc::new(Reloader::new(args, settings, controls, shards, make));
    let manager = ServiceManager::of_environment();
    let hangups = catch_hangups(&reloader, &birth, &seats, &manager)?;
    watch_dog(&manager, &seats, &stop)?;
    if let Some(address) = &settings.metrics {
        serve_metrics(address.value, &birth, &seats)?;
    }
    manager.ready(&format!("serving on {} workers", seats.each.len()));
    let served = server::serve(&taken.listener, &stop, |request, stream| {
        match request.strip_prefix("capture ") {
            Some(words) => captures.begin(words, stream),
            None if request == "sources" => captures.sources(stream),
            None => Some(answer(request, &birth, &seats, (&reloader, &manager))),
        }
    });
    manager.stopping();
    // Only a broken system ends the server early; packets are processed until the stop.
    if let Err(error) = served {
        error!("the control socket is out of service: {error}");
    }
    let ended = group.join().map_err(in_words);
    drop(taken);
    signals.close();
    hangups.close();
    // It ends with the same stop, and a panic in it has been reported.
    let _ = watching.join();
    end_recordings(recordings);
    info!("{}", summary("ended after", &birth, &seats.reader));
    ended.map(drop)
}

/// What the log says of floods, also noted for reports.
fn flood_log(
    birth: &StartTime,
    seats: &RunningWorkers,
    captures: &Captures,
    devices_drop: bool,
) -> FloodLog {
    let note = seats.floods.clone();
    FloodLog::new(looks(birth, seats), captures.sampler(), devices_drop, note)
}

/// Whether a program at an interface may drop packets before a worker sees them.
fn devices_drop(settings: &RunSettings) -> bool {
    let filters = [DeviceKind::Xdp, DeviceKind::Packet];
    settings.interfaces.iter().any(|i| filters.contains(&i.device.value.kind))
}

/// How long connections may take to end after a signal.
fn drain_time(settings: &RunSettings) -> Duration {
    settings.drain.as_ref().map_or(DRAIN_DEFAULT, |drain| drain.value)
}

/// Closes the captures of `--record`, and logs what is in them.
fn end_recordings(recordings: Vec<Recording>) {
    for recording in recordings {
        match recording.end() {
            Ok(told) => info!("{told}"),
            Err(told) => warn!("{told}"),
        }
    }
}

/// How the workers ended, without a worker's number where there is only one.
fn in_words(error: WorkerGroupError) -> Failure {
    match error {
        WorkerGroupError::Worker { error, .. }
            if matches!(error, WorkerError::NoDeviceLeft(_) | WorkerError::Panicked(_)) =>
        {
            words(error)
        }
        error => words(error),
    }
}

/// A core for each worker, where they are pinned. Determined before anything is opened.
fn cores(settings: &RunSettings) -> Result<Vec<Option<usize>>, Failure> {
    let (flag, cores) = match (&settings.cores, &settings.cpu, settings.worker_count()) {
        (Some(cores), _, _) => ("--cores", cores.value.clone()),
        (None, Some(cpu), _) => ("--cpu", vec![cpu.value]),
        (None, None, 1) => return Ok(vec![None]),
        (None, None, workers) => {
            let cores = pin::cores_for(workers).map_err(|error| format!("--workers: {error}"))?;
            ("--workers", cores)
        }
    };
    for core in &cores {
        pin::check_core(*core).map_err(|error| format!("{flag}: {error}"))?;
    }
    Ok(cores.into_iter().map(Some).collect())
}

fn socket_path(settings: &RunSettings) -> PathBuf {
    let first = settings.interfaces.first().map_or("none", |i| i.device.value.name.as_str());
    settings.socket.as_ref().map_or_else(|| path::of_device(first), |socket| socket.value.clone())
}

/// Prints this machine's capacity with such devices, before ours are opened. A failure of the
/// measurement here stops nothing.
fn tell_capacity(settings: &RunSettings, cores: &[Option<usize>], stop: &Stop) {
    for wanted in &settings.interfaces {
        let (word, core) = (&wanted.device.value, cores.first().copied().flatten());
        match measure_capacity(word, core, &|| stop.is_triggered()) {
            Ok(capacity) => info!("{word}: capacity: {capacity}"),
            Err(error) => warn!("{word}: the capacity is unknown: {error}"),
        }
    }
}

/// Opens all devices and prints what was obtained.
fn open_devices(
    settings: &RunSettings,
    cores: &[Option<usize>],
) -> Result<Vec<OpenedDevices>, Failure> {
    let mut random = entropy::randomness().map_err(words)?;
    let mut all = Vec::new();
    // A router looks at packets much faster than it passes them on.
    let rank = settings.transit.forwards().then_some(NapiPriority::Before);
    for (index, wanted) in settings.interfaces.iter().enumerate() {
        let opened = devices::open(index, wanted, (cores, rank), &mut random).map_err(words)?;
        if let Some(mtu) = &wanted.mtu
            && mtu.value > opened.info.mtu
        {
            return Err(format!(
                "{}: an MTU of {} is more than the interface carries; use at most {}, or raise \
                 the interface's with `ip link set`",
                wanted.device.value, mtu.value, opened.info.mtu
            ));
        }
        opened.lines(wanted).iter().for_each(|line| info!("{line}"));
        all.push(opened);
    }
    Ok(all)
}

/// Has the devices recorded where that is wanted.
fn record_devices(
    settings: &RunSettings,
    opened: &mut [OpenedDevices],
) -> Result<Vec<Recording>, Failure> {
    let Some(file) = &settings.record else { return Ok(Vec::new()) };
    let is_only = opened.iter().map(|opened| opened.queues.len()).sum::<usize>() == 1;
    let mut recordings = Vec::new();
    for OpenedDevices { info, queues, .. } in opened {
        for (number, device) in std::mem::take(queues).into_iter().enumerate() {
            let path = record::path_of(&file.value, &info.name, number, is_only);
            let (device, recording) = record::record(device, &path).map_err(|error| {
                format!("cannot record to {}: {error}; name another file", path.display())
            })?;
            queues.push(device);
            recordings.push(recording);
        }
    }
    Ok(recordings)
}

/// The links to be watched. An `xdp:` interface's MTU is not followed beyond what it was opened
/// with: its frames have that size.
fn watched_links(settings: &RunSettings, opened: &[OpenedDevices]) -> Vec<WatchedLink> {
    let link = |(wanted, opened): (&InterfaceSettings, &OpenedDevices)| {
        let configured = wanted.mtu.as_ref().map(|mtu| mtu.value);
        let is_fixed = wanted.device.value.kind == DeviceKind::Xdp;
        WatchedLink {
            iface: opened.iface,
            name: opened.info.name.clone(),
            mtu: configured.unwrap_or(opened.info.mtu),
            mtu_max: configured.or(is_fixed.then_some(opened.info.mtu)),
        }
    };
    settings.interfaces.iter().zip(opened).map(link).collect()
}

/// What of its core a worker that shares it leaves to other programs while they want it: half, what
/// it costs them to be interrupted and to go on, and what they had less before they were found.
const OTHERS_SHARE: Share = Share::per_mille(640);
/// TCP connections of each worker, where a service takes any.
const TCP_CONNECTIONS: usize = 16_384;

fn stack_config(settings: &RunSettings, opened: &[OpenedDevices]) -> StackConfig {
    let interface = |(wanted, opened): (&InterfaceSettings, &OpenedDevices)| InterfaceConfig {
        name: opened.info.name.clone(),
        medium: opened.mac.map_or(LinkMedium::Ip, LinkMedium::Ethernet),
        mtu: wanted.mtu.as_ref().map_or(opened.info.mtu, |mtu| mtu.value),
        checksum_offload: opened.info.offload,
        addresses: wanted.addresses.iter().map(|address| address.value).collect(),
        gateways: wanted.gateways.iter().map(|gateway| gateway.value).collect(),
        dhcp: wanted.wants_dhcp(),
        dhcpv6: wanted.wants_dhcpv6(),
        accept_ra: wanted.wants_routers(),
        autoconf: wanted.wants_autoconf(),
        ..settings.transit.of_interface(&wanted.transit)
    };
    let interfaces = settings.interfaces.iter().zip(opened).map(interface).collect();
    let stable_secret = floodwall_device::stable_secret();
    let tcp = settings.services.iter().any(|service| service.value.kind.is_tcp());
    let tcp_connections_max = if tcp { TCP_CONNECTIONS } else { 0 };
    let plain = settings.transit.of_host();
    let routes_max = settings.routes.as_ref().map_or(plain.routes_max, |routes| routes.value);
    let udp_fair_drop = settings.udp_fair_drop.as_ref().is_none_or(|on| on.value);
    let plain = StackConfig { udp_fair_drop, keep_gateways: true, ..plain };
    let routes = settings.static_routes();
    StackConfig { interfaces, routes, stable_secret, routes_max, tcp_connections_max, ..plain }
}

/// What other threads need of the workers.
#[derive(Clone)]
struct RunningWorkers {
    each: Vec<WorkerSeat<Shown<Host>>>,
    reader: WorkerGroupReader,
    /// How long each has taken to answer.
    answers: Arc<Mutex<Vec<AnswerTimes>>>,
    /// The floods that are under way.
    floods: FloodNote,
}

impl RunningWorkers {
    fn new(each: Vec<WorkerSeat<Shown<Host>>>, reader: WorkerGroupReader) -> Self {
        Self { each, reader, answers: Arc::default(), floods: FloodNote::default() }
    }
}

/// Starts the workers, and waits until they stand.
fn start_group(
    settings: &RunSettings,
    shards: &SharedShardConfig,
    opened: Vec<OpenedDevices>,
    cores: &[Option<usize>],
    (stop, keys, shares, make): (&Stop, &CookieKeys, bool, ApplicationMaker),
) -> Result<WorkerGroup<Shown<Host>>, Failure> {
    let (events, happened) = mpsc::sync_channel(64);
    let workers = cores.len();
    tell_events(happened, workers)?;
    let supers = if opened.iter().any(|opened| opened.info.offload) { SUPERS_POOLED } else { 0 };
    let group = WorkerGroupConfig::new(slots(opened, cores)).map_err(words)?;
    let plain = PoolConfig::default();
    let accounts = floodwall_stack::accounts_needed(&lock(shards).stack);
    let group = WorkerGroupConfig {
        memory: PoolConfig {
            supers: supers * workers,
            small: plain.small * workers,
            frames: plain.frames * workers,
            references: plain.references * workers,
            accounts,
            ..plain
        },
        on_panic: settings.on_panic.as_ref().map_or(OnPanic::EndGroup, |policy| policy.value),
        worker: WorkerConfig {
            events: Some(events),
            balance: shares
                .then(|| BalanceConfig { share: OTHERS_SHARE, ..BalanceConfig::default() }),
            watches_core: shares,
            ..WorkerConfig::default()
        },
        ..group
    };
    address_space::check(&lock(shards).stack, &group.memory, workers)?;
    let make = maker(shards, &group, keys, make)?;
    WorkerGroup::start(group, stop, make).map_err(in_words)
}

/// How each worker's shard of the host is made.
fn maker(
    shards: &SharedShardConfig,
    group: &WorkerGroupConfig,
    keys: &CookieKeys,
    make: ApplicationMaker,
) -> Result<impl Fn(&mut Setting<'_>) -> Result<Shown<Host>, String> + Send + Sync + use<>, Failure>
{
    let mut random = entropy::randomness().map_err(words)?;
    let seats = Seats::new(&lock(shards).stack, &group.domain, group.steering, &mut random.secret);
    let (shards, keys) = (Arc::clone(shards), keys.clone());
    Ok(move |setting: &mut Setting<'_>| {
        let seat = seats.take(setting.worker).map_err(words)?;
        let Setting { pool, random, now, .. } = setting;
        // What was reloaded since the start, too, where a shard is made again.
        let shards = lock(&shards);
        let mut stack = Stack::seated(&shards.stack, seat, random, *now).map_err(words)?;
        keys.tell(&mut stack, *now);
        let applications = shards.services.iter().map(|s| make(&s.value)).collect();
        let host = Host::with_stack(stack, applications, pool, random, *now);
        host.map(hosted::shown).map_err(words)
    })
}

/// The devices' queues shared out to the workers, in turn.
fn slots(opened: Vec<OpenedDevices>, cores: &[Option<usize>]) -> Vec<WorkerSlot> {
    let mut slots: Vec<_> =
        cores.iter().map(|core| WorkerSlot { core: *core, ports: Vec::new() }).collect();
    let workers = slots.len();
    for OpenedDevices { iface, queues, .. } in opened {
        for (number, device) in queues.into_iter().enumerate() {
            slots[number % workers].ports.push(Port::new(iface, device));
        }
    }
    slots
}

/// The application of one service.
fn application(service: &settings::ServiceWord) -> Box<dyn Application> {
    let port = service.port;
    let kind = match service.kind {
        ServiceKind::TcpEcho => return Box::new(TcpService::new(StackService::Echo, port)),
        ServiceKind::TcpDiscard => return Box::new(TcpService::new(StackService::Discard, port)),
        ServiceKind::TcpChargen => return Box::new(StreamService::new(StreamKind::Chargen, port)),
        ServiceKind::Http => return Box::new(StreamService::new(StreamKind::Http, port)),
        ServiceKind::Bulk => return Box::new(StreamService::new(StreamKind::Bulk, port)),
        ServiceKind::Echo => StackService::Echo,
        ServiceKind::Discard => StackService::Discard,
        ServiceKind::Chargen => StackService::Chargen,
    };
    Box::new(UdpService::new(kind, port).in_groups(&service.groups))
}

fn lock(shards: &SharedShardConfig) -> std::sync::MutexGuard<'_, ShardConfig> {
    shards.lock().unwrap_or_else(PoisonError::into_inner)
}

/// SIGHUP reads the file again, SIGUSR1 reports the counts in a line.
fn catch_hangups(
    reloader: &Arc<Reloader>,
    birth: &StartTime,
    seats: &RunningWorkers,
    manager: &ServiceManager,
) -> Result<signal_hook::iterator::Handle, Failure> {
    let (reloader, manager) = (Arc::clone(reloader), manager.clone());
    let (birth, reader) = (birth.clone(), seats.reader.clone());
    signals::catch(
        move || drop(reload(&reloader, &manager)),
        move || info!("{}", summary("running for", &birth, &reader)),
    )
}

/// Reads the file again, and reports to the log and the service manager what came of it.
fn reload(reloader: &Reloader, manager: &ServiceManager) -> Result<serde_json::Value, String> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    manager.reloading(Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    ));
    let outcome = reloader.reload();
    match &outcome {
        Ok(outcome) => {
            info!("reloaded: {} changes", outcome.changed.len());
            outcome.changed.iter().for_each(|line| info!("{line}"));
            let restart = outcome.needs_restart.iter();
            restart.for_each(|key| warn!("needs a restart: {key}"));
            manager.ready("reloaded");
        }
        Err(problems) => {
            problems.iter().for_each(|problem| error!("{problem}"));
            error!("not reloaded: what ran goes on");
            manager.ready("the last reload was refused; what ran goes on");
        }
    }
    outcome.map(|outcome| outcome.to_json()).map_err(|problems| problems.join("\n"))
}

/// What a capture needs of this instance.
fn captures(settings: &RunSettings, seats: &RunningWorkers, stop: &Stop) -> Captures {
    let medium = |i: &InterfaceSettings| match i.device.value.kind {
        DeviceKind::Tun => Medium::Ip,
        _ => Medium::Ethernet,
    };
    let interface = |i: &InterfaceSettings| (i.device.value.name.clone(), medium(i));
    let interfaces = settings.interfaces.iter().map(interface).collect();
    let controls = seats.each.iter().map(|seat| seat.control.clone()).collect();
    Captures::new(interfaces, controls, stop)
}

/// How other threads get a report of the whole instance.
fn looks(birth: &StartTime, seats: &RunningWorkers) -> Look {
    let (birth, seats) = (birth.clone(), seats.clone());
    Box::new(move || Some(RunReport::new(&birth, &seats.reader, ask_all(&seats).ok()?)))
}

/// Serves the metrics on the host's own kernel, in a thread that ends with the process.
fn serve_metrics(
    address: SocketAddr,
    birth: &StartTime,
    seats: &RunningWorkers,
) -> Result<(), Failure> {
    let listener = TcpListener::bind(address).map_err(|error| {
        format!("metrics at {address}: {error}; use an address and a free port of this host")
    })?;
    let at = listener.local_addr().map_err(words)?;
    let look = looks(birth, seats);
    let _ = spawn_named("metrics", move || {
        metrics::serve(&listener, move |format| Some(metrics::text(&look()?, format)));
    })?;
    info!("metrics at http://{at}/metrics");
    Ok(())
}

/// Tells the service manager that this process is alive, as long as every worker answers.
#[expect(clippy::disallowed_methods, reason = "a thread that has nothing else to do")]
fn watch_dog(manager: &ServiceManager, seats: &RunningWorkers, stop: &Stop) -> Result<(), Failure> {
    let Some(interval) = manager.watchdog_interval() else { return Ok(()) };
    let controls: Vec<_> = seats.each.iter().map(|seat| seat.control.clone()).collect();
    let (manager, stop) = (manager.clone(), stop.clone());
    let _ = spawn_named("watchdog", move || {
        while !stop.is_triggered() {
            // A shard that is being made again is not hung.
            let hung = |c: &Control<Shown<Host>>| {
                matches!(
                    c.ask(WORKER_PATIENCE, |_| ()),
                    Err(ControlError::Late | ControlError::Full)
                )
            };
            if !controls.iter().any(hung) {
                manager.alive();
            }
            thread::sleep(interval);
        }
    })?;
    Ok(())
}

/// Prints events of devices and workers, until the workers are gone.
fn tell_events(happened: Receiver<Event>, workers: usize) -> Result<(), Failure> {
    spawn_named("events", move || {
        for event in happened {
            match event {
                Event::DeviceLost { error, .. } => error!("{error}"),
                Event::Panicked(report) => {
                    error!("{report}. {}", outlook(report.worker, workers))
                }
                other => info!("{other:?}"),
            }
        }
    })?;
    Ok(())
}

/// What comes after a panic that is isolated, in words.
fn outlook(worker: WorkerId, workers: usize) -> &'static str {
    if worker == WorkerId::CONTROL && workers > 1 {
        return "This worker learns and decides for all: the others cannot go on without it, and \
                the process ends";
    }
    "Its flows are closed, and it begins again; the other workers go on"
}

/// One line of JSON for one request of the control socket.
fn answer(
    request: &str,
    birth: &StartTime,
    seats: &RunningWorkers,
    (reloader, manager): (&Reloader, &ServiceManager),
) -> String {
    let refusal = |why: String| serde_json::json!({ "error": why }).to_string();
    if let Some(batch) = request.strip_prefix("routes ") {
        return routes::session::serve(&seats.each[0].control, batch).to_string();
    }
    let Some(request) = ControlRequest::read(request) else {
        return refusal(format!("unknown request {request:?}: it is of another version"));
    };
    let control = &seats.each[0].control;
    let answered = match request {
        ControlRequest::Stat => ask_all(seats).map(|asked| {
            let report = RunReport::new(birth, &seats.reader, asked);
            serde_json::to_string(&report).map_err(words)
        }),
        ControlRequest::Reload => Ok(reload(reloader, manager).map(|it| it.to_string())),
        ControlRequest::Sockets => sockets::ask(seats.each.iter().map(|seat| &seat.control))
            .map(|sockets| Ok(sockets.to_string())),
        request => control.ask(WORKER_PATIENCE, |desk| {
            // The worker's own randomness is in use; these are delays, which need not be
            // unpredictable.
            let stack = desk.engine.engine.stack_mut();
            network::carry_out(request, stack, desk.now).map(|answer| answer.to_string())
        }),
    };
    match answered {
        Ok(Ok(answer)) => answer,
        Ok(Err(why)) => refusal(why),
        Err(error @ ControlError::Late) => {
            serde_json::json!({ "error": words(error), "late": true }).to_string()
        }
        Err(error) => refusal(words(error)),
    }
}

/// The control shard's state, and every worker's devices. A worker that does not answer, for
/// example because its shard is down, is left out: its counters are shown all the same.
fn ask_all(seats: &RunningWorkers) -> Result<report::ReportRequest, ControlError> {
    let (control, others) = seats.each.split_first().ok_or(ControlError::Ended)?;
    let (clock, mut took) = (Clock::new(), Vec::new());
    let begun = clock.now();
    let mut asked = control.control.ask(WORKER_PATIENCE, report::ask)?;
    took.push(clock.now() - begun);
    for other in others {
        let begun = clock.now();
        let of_worker = |desk: &mut floodwall_dispatch::ControlQueue<'_, Shown<Host>>| {
            (desk.ports(), Handshakes::of(desk.engine.engine.stack()))
        };
        let (ports, handshakes) = other.control.ask(WORKER_PATIENCE, of_worker).unwrap_or_default();
        took.push(clock.now() - begun);
        asked.add_ports(ports);
        asked.handshakes.add(handshakes);
    }
    let mut answers = seats.answers.lock().unwrap_or_else(PoisonError::into_inner);
    answers.resize_with(took.len(), AnswerTimes::default);
    answers.iter_mut().zip(took).for_each(|(times, took)| times.add(took));
    asked.answers.clone_from(&answers);
    asked.floods = seats.floods.get();
    Ok(asked)
}

/// Reasons that the last line names.
const REASONS_MAX: usize = 3;

/// How many packets were dropped, and the commonest reasons: the stack's, and the loops' own, under
/// the names that `stat` shows. What is not named is summed, so that the numbers add up.
fn drops(stats: &Stats, facts: impl Iterator<Item = (&'static str, u64)>) -> (u64, String) {
    let of_stack = stats.drops_in.nonzero().chain(stats.drops_out.nonzero());
    let of_loops = facts.filter(|(name, n)| name.starts_with("drops_") && *n > 0);
    let mut worst: Vec<_> =
        of_stack.map(|(reason, n)| (reason.name(), n)).chain(of_loops).collect();
    worst.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let total = worst.iter().map(|(_, n)| n).sum();
    let named = worst.iter().take(REASONS_MAX).map(|(name, n)| format!("{name} {n}"));
    let others: u64 = worst.iter().skip(REASONS_MAX).map(|(_, n)| n).sum();
    let reasons: Vec<_> =
        named.chain((others > 0).then(|| format!("other reasons {others}"))).collect();
    let reasons = match reasons.is_empty() {
        true => String::new(),
        false => format!(" ({})", reasons.join(", ")),
    };
    (total, reasons)
}

/// The last line: packets received, sent and dropped.
fn summary(state: &str, birth: &StartTime, reader: &WorkerGroupReader) -> String {
    let published = reader.read();
    let stats = hosted::read(&hosted::sum(&published));
    let facts = WorkerCounters::of_all(published.iter().map(|published| &published.facts));
    let at = published.iter().map(|published| published.at).max().unwrap_or(birth.started);
    let uptime = (at - birth.started).as_nanos();
    let (dropped, reasons) = drops(&stats, facts.named());
    format!(
        "{state} {}: {} packets in, {} out, {dropped} dropped{reasons}; {}",
        show::seconds(u64::try_from(uptime).unwrap_or(u64::MAX)),
        facts.of(WorkerCounter::RxPackets),
        facts.of(WorkerCounter::TxPackets),
        match stats.conservation().holds() {
            true => "every packet is accounted for exactly once",
            false => "conservation is BROKEN, please report this",
        }
    )
}

#[cfg(test)]
mod slow_service;
#[cfg(test)]
mod tests {
    use floodwall_base::DropReason;

    use super::*;

    #[test]
    fn the_last_line_names_the_loops_drops_and_its_numbers_add_up() {
        let mut stats = Stats::default();
        let said = |stats: &Stats, facts: &[(WorkerCounter, u64)]| {
            drops(stats, facts.iter().map(|(fact, n)| (fact.name(), *n)))
        };
        assert_eq!(said(&stats, &[(WorkerCounter::RxPackets, 9)]), (0, String::new()));
        stats.drops_in.add(DropReason::UdpNoPort, 13);
        let mut facts = vec![
            (WorkerCounter::DropsHandoffFrame, 722),
            (WorkerCounter::RxPackets, 9000),
            (WorkerCounter::DropsHandoffDeparture, 2016),
        ];
        let named = "(drops_handoff_departure 2016, drops_handoff_frame 722, UdpNoPort 13)";
        assert_eq!(said(&stats, &facts), (2751, format!(" {named}")));
        facts.extend(
            [WorkerCounter::DropsShardDown, WorkerCounter::DropsTriageUnknown].map(|f| (f, 1)),
        );
        stats.drops_out.add(DropReason::LoopbackFull, 5);
        let named = named.replace(')', ", other reasons 7)");
        assert_eq!(said(&stats, &facts), (2758, format!(" {named}")));
    }
}
