//! `floodwall run`: opens the devices, starts the workers, and ends in good order.
//!
//! Each worker has a thread of its own (`crew.rs` in dispatch); this thread serves the control
//! socket. A worker's end and its panic trigger a stop; so do SIGINT and SIGTERM, once connections
//! are drained (`ending.rs`). After it devices are closed, the socket is removed and one line
//! reports what happened.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use floodwall_base::WorkerId;
use floodwall_device::NapiPriority;
use floodwall_dispatch::{
    Clock, ControlError, CrewConfig, CrewError, CrewReader, Event, OnPanic, Port, Setting, Shown,
    Stop, WorkerConfig, WorkerError, WorkerGroup, WorkerSeat, WorkerSlot, entropy, pin,
};
use floodwall_drill::measure_capacity;
use floodwall_packet::PoolConfig;
use floodwall_stack::services::{ServiceKind as StackService, UdpService};
use floodwall_stack::{
    Application, Host, InterfaceConfig, LinkMedium, Seats, Stack, StackConfig, StreamKind,
    StreamService, TcpService,
};

use crate::address_space;
use crate::args::RunArgs;
use crate::cookie_keys::CookieKeys;
use crate::devices::{self, OpenedDevices};
use crate::ending::{DRAIN, Ending};
use crate::exit::Exit;
use crate::hosted;
use crate::listeners::Handshakes;
use crate::network;
use crate::record::{self, Recording};
use crate::report::{self, RunReport, StartTime};
use crate::routes;
use crate::settings::parse::ServiceKind;
use crate::settings::{self, HostTransit, InterfaceSettings, RunSettings};
use crate::show;
use crate::socket::path::{self, SocketTaken, TakenError};
use crate::socket::request::ControlRequest;
use crate::socket::server;
use crate::watch::{self, StatWatch};

/// How long a worker may take to answer the control socket.
const PATIENCE: Duration = Duration::from_secs(1);
/// Super-frames in the pool, where a device carries such.
const SUPERS: usize = 64;
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
    match serve(&settings, args.capacity) {
        Ok(()) => Exit::Done,
        Err(failure) => {
            eprintln!("floodwall: {failure}");
            Exit::Usage
        }
    }
}

fn words(error: impl std::fmt::Display) -> Failure {
    error.to_string()
}

fn serve(settings: &RunSettings, capacity: bool) -> Result<(), Failure> {
    let socket = socket_path(settings);
    if path::is_alive(&socket) {
        return Err(words(TakenError::Alive(socket)));
    }
    let keys = CookieKeys::open(settings.cookie_secret.as_ref().map(|file| file.value.as_path()))?;
    let stop = Stop::new().map_err(words)?;
    let ending = Ending::new(&stop, settings.drain.as_ref().map_or(DRAIN, |drain| drain.value));
    let signals = ending.catch_signals()?;
    let cores = cores(settings)?;
    if capacity {
        tell_capacity(settings, &cores, &stop);
    }
    let mut opened = open_devices(settings, &cores)?;
    let config = stack_config(settings, &opened);
    floodwall_stack::check(&config).map_err(words)?;
    let taken = SocketTaken::take(&socket).map_err(words)?;
    let recordings = record_devices(settings, &mut opened)?;

    let placements = opened.iter().map(|o| (o.iface, o.placement.clone())).collect();
    let birth = StartTime { started: Clock::new().now(), cores: cores.clone(), placements };
    let names: Vec<_> = opened.iter().map(|o| (o.iface, o.info.name.clone())).collect();
    let crew = start_crew(settings, config, opened, &cores, (&stop, &keys))?;
    let seats = RunningWorkers { each: crew.seats().to_vec(), reader: crew.reader() };
    ending.set_workers(crew.seats());
    let watch = StatWatch {
        control: crew.control(),
        reader: seats.reader.clone(),
        links: watch::links(names),
        dns_file: settings.dns_file.as_ref().map(|file| file.value.clone()),
        keys: keys.watched(seats.each.iter().map(|seat| seat.control.clone()).collect()),
    };
    let watched = stop.clone();
    let watching = named("watch", move || watch.run(&watched))?;
    eprintln!(
        "floodwall: running; `floodwall stat --socket {}` shows counters, Ctrl-C ends",
        socket.display()
    );
    let served = server::serve(&taken.listener, &stop, |request| answer(request, &birth, &seats));
    // Only a broken system ends the server early; packets are processed until the stop.
    if let Err(error) = served {
        eprintln!("floodwall: the control socket is out of service: {error}");
    }
    let ended = crew.join().map_err(in_words);
    drop(taken);
    signals.close();
    // It ends with the same stop, and a panic in it has been reported.
    let _ = watching.join();
    for recording in recordings {
        let (Ok(told) | Err(told)) = recording.end();
        eprintln!("floodwall: {told}");
    }
    eprintln!("floodwall: {}", summary(&birth, &seats.reader));
    ended.map(drop)
}

/// How the workers ended, without a worker's number where there is only one.
fn in_words(error: CrewError) -> Failure {
    match error {
        CrewError::Worker { error, .. }
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

/// A thread with a name.
pub(crate) fn named<T: Send + 'static>(
    name: &str,
    what: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Failure> {
    let builder = thread::Builder::new().name(name.to_owned());
    builder.spawn(what).map_err(|error| format!("cannot start the thread for {name}: {error}"))
}

/// Prints this machine's capacity with such devices, before ours are opened. A failure of the
/// measurement here stops nothing.
fn tell_capacity(settings: &RunSettings, cores: &[Option<usize>], stop: &Stop) {
    for wanted in &settings.interfaces {
        let (word, core) = (&wanted.device.value, cores.first().copied().flatten());
        match measure_capacity(word, core, &|| stop.is_triggered()) {
            Ok(capacity) => eprintln!("floodwall: {word}: capacity: {capacity}"),
            Err(error) => eprintln!("floodwall: {word}: note: the capacity is unknown: {error}"),
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
        opened.lines(wanted).iter().for_each(|line| eprintln!("floodwall: {line}"));
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
    let plain = StackConfig { udp_fair_drop, ..plain };
    let routes = HostTransit::routes(&settings.interfaces);
    StackConfig { interfaces, routes, stable_secret, routes_max, tcp_connections_max, ..plain }
}

/// What other threads need of the workers.
struct RunningWorkers {
    each: Vec<WorkerSeat<Shown<Host>>>,
    reader: CrewReader,
}

/// Starts the workers, and waits until they stand.
fn start_crew(
    settings: &RunSettings,
    config: StackConfig,
    opened: Vec<OpenedDevices>,
    cores: &[Option<usize>],
    (stop, keys): (&Stop, &CookieKeys),
) -> Result<WorkerGroup<Shown<Host>>, Failure> {
    let (events, happened) = mpsc::sync_channel(64);
    let workers = cores.len();
    tell_events(happened, workers)?;
    let supers = if opened.iter().any(|opened| opened.info.offload) { SUPERS } else { 0 };
    let crew = CrewConfig::new(berths(opened, cores)).map_err(words)?;
    let plain = PoolConfig::default();
    let crew = CrewConfig {
        memory: PoolConfig {
            supers: supers * workers,
            small: plain.small * workers,
            frames: plain.frames * workers,
            references: plain.references * workers,
            accounts: floodwall_stack::accounts_needed(&config),
            ..plain
        },
        on_panic: settings.on_panic.as_ref().map_or(OnPanic::EndCrew, |policy| policy.value),
        worker: WorkerConfig { events: Some(events), ..WorkerConfig::default() },
        ..crew
    };
    address_space::check(&config, &crew.memory, workers)?;
    let make = maker(settings, config, &crew, keys)?;
    WorkerGroup::start(crew, stop, make).map_err(in_words)
}

/// How each worker's shard of the host is made.
fn maker(
    settings: &RunSettings,
    config: StackConfig,
    crew: &CrewConfig,
    keys: &CookieKeys,
) -> Result<impl Fn(&mut Setting<'_>) -> Result<Shown<Host>, String> + Send + Sync + use<>, Failure>
{
    let mut random = entropy::randomness().map_err(words)?;
    let seats = Seats::new(&config, &crew.domain, crew.steering, &mut random.secret);
    let (wanted, keys) = (settings.services.clone(), keys.clone());
    Ok(move |setting: &mut Setting<'_>| {
        let seat = seats.take(setting.worker).map_err(words)?;
        let Setting { pool, random, now, .. } = setting;
        let mut stack = Stack::seated(&config, seat, random, *now).map_err(words)?;
        keys.tell(&mut stack, *now);
        let host = Host::with_stack(stack, services(&wanted), pool, random, *now);
        host.map(hosted::shown).map_err(words)
    })
}

/// The devices' queues shared out to the workers, in turn.
fn berths(opened: Vec<OpenedDevices>, cores: &[Option<usize>]) -> Vec<WorkerSlot> {
    let mut berths: Vec<_> =
        cores.iter().map(|core| WorkerSlot { core: *core, ports: Vec::new() }).collect();
    let workers = berths.len();
    for OpenedDevices { iface, queues, .. } in opened {
        for (number, device) in queues.into_iter().enumerate() {
            berths[number % workers].ports.push(Port::new(iface, device));
        }
    }
    berths
}

fn services(
    wanted: &[settings::GivenSettings<settings::ServiceWord>],
) -> Vec<Box<dyn Application>> {
    let one = |service: &settings::GivenSettings<settings::ServiceWord>| {
        let port = service.value.port;
        let kind = match service.value.kind {
            ServiceKind::TcpEcho => {
                return Box::new(TcpService::new(StackService::Echo, port)) as Box<dyn Application>;
            }
            ServiceKind::TcpDiscard => {
                return Box::new(TcpService::new(StackService::Discard, port));
            }
            ServiceKind::TcpChargen => {
                return Box::new(StreamService::new(StreamKind::Chargen, port));
            }
            ServiceKind::Http => return Box::new(StreamService::new(StreamKind::Http, port)),
            ServiceKind::Bulk => return Box::new(StreamService::new(StreamKind::Bulk, port)),
            ServiceKind::Echo => StackService::Echo,
            ServiceKind::Discard => StackService::Discard,
            ServiceKind::Chargen => StackService::Chargen,
        };
        let made = UdpService::new(kind, port).in_groups(&service.value.groups);
        Box::new(made) as Box<dyn Application>
    };
    wanted.iter().map(one).collect()
}

/// Prints events of devices and workers, until the workers are gone.
fn tell_events(happened: Receiver<Event>, workers: usize) -> Result<(), Failure> {
    named("events", move || {
        for event in happened {
            match event {
                Event::DeviceLost { error, .. } => eprintln!("floodwall: {error}"),
                Event::Panicked(report) => {
                    eprintln!("floodwall: {report}. {}", outlook(report.worker, workers))
                }
                other => eprintln!("floodwall: {other:?}"),
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
fn answer(request: &str, birth: &StartTime, seats: &RunningWorkers) -> String {
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
            serde_json::to_value(&report).map_err(words)
        }),
        request => control.ask(PATIENCE, |desk| {
            // The worker's own randomness is in use; these are delays, which need not be
            // unpredictable.
            network::carry_out(request, desk.engine.engine.stack_mut(), desk.now)
        }),
    };
    match answered {
        Ok(Ok(answer)) => answer.to_string(),
        Ok(Err(why)) => refusal(why),
        Err(error) => refusal(words(error)),
    }
}

/// The control shard's state, and every worker's devices. A worker that does not answer, for
/// example because its shard is down, is left out: its counters are shown all the same.
fn ask_all(seats: &RunningWorkers) -> Result<report::ReportRequest, ControlError> {
    let (control, others) = seats.each.split_first().ok_or(ControlError::Ended)?;
    let mut asked = control.control.ask(PATIENCE, report::ask)?;
    for other in others {
        let of_worker = |desk: &mut floodwall_dispatch::ControlQueue<'_, Shown<Host>>| {
            (desk.ports(), Handshakes::of(desk.engine.engine.stack()))
        };
        let (ports, handshakes) = other.control.ask(PATIENCE, of_worker).unwrap_or_default();
        asked.add_ports(ports);
        asked.handshakes.add(handshakes);
    }
    Ok(asked)
}

/// The last line: packets received, sent and dropped.
fn summary(birth: &StartTime, reader: &CrewReader) -> String {
    use floodwall_dispatch::{WorkerCounter, WorkerCounters};
    let published = reader.read();
    let stats = hosted::read(&hosted::sum(&published));
    let facts = WorkerCounters::of_all(published.iter().map(|published| &published.facts));
    let at = published.iter().map(|published| published.at).max().unwrap_or(birth.started);
    let triaged = facts.of(WorkerCounter::DropsTriageRejectable)
        + facts.of(WorkerCounter::DropsTriageUnknown);
    let lost =
        facts.lost() + facts.lost_in_handoff() + facts.of(WorkerCounter::DropsShardDown) + triaged;
    let uptime = (at - birth.started).as_nanos();
    let mut worst: Vec<_> = stats.drops_in.nonzero().chain(stats.drops_out.nonzero()).collect();
    worst.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let reasons: Vec<_> =
        worst.iter().take(3).map(|(reason, n)| format!("{} {n}", reason.name())).collect();
    let reasons = match reasons.is_empty() {
        true => String::new(),
        false => format!(" ({})", reasons.join(", ")),
    };
    format!(
        "ended after {}: {} packets in, {} out, {} dropped{reasons}; {}",
        show::seconds(u64::try_from(uptime).unwrap_or(u64::MAX)),
        facts.of(WorkerCounter::RxPackets),
        facts.of(WorkerCounter::TxPackets),
        stats.drops_in.total() + stats.drops_out.total() + lost,
        match stats.conservation().holds() {
            true => "every packet is accounted for exactly once",
            false => "conservation is BROKEN, please report this",
        }
    )
}
