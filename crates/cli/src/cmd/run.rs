//! `floodwall run`: opens the devices, starts the worker, and ends in good order.
//!
//! The worker has a thread of its own, on which its memory is made; this thread serves the control
//! socket. SIGINT and SIGTERM, the worker's end and its panic all trigger the same stop, after
//! which devices are closed, the socket is removed and one line says what happened.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use floodwall_dispatch::{
    Clock, Control, Ended, Event, Port, PublishedReader, Stop, Worker, WorkerConfig, entropy,
    pin_to_core,
};
use floodwall_packet::{Pool, PoolConfig};
use floodwall_stack::services::{ServiceKind as StackService, UdpService};
use floodwall_stack::{Application, Host, InterfaceConfig, LinkMedium, StackConfig};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::RunArgs;
use crate::devices::{self, Opened};
use crate::exit::Exit;
use crate::hosted::{self, Hosted};
use crate::network;
use crate::record::{self, Recording};
use crate::report::{self, Birth, Report};
use crate::settings::words::ServiceKind;
use crate::settings::{self, InterfaceSettings, Settings};
use crate::show;
use crate::socket::path::{self, Taken, TakenError};
use crate::socket::request::Request;
use crate::socket::server;
use crate::watch::{self, Watch};

/// How long the worker may take to answer the control socket.
const PATIENCE: Duration = Duration::from_secs(1);
/// Super-frames in the pool, where a device carries such.
const SUPERS: usize = 64;
/// What a failure is told in: one line, which says what to do.
type Failure = String;

/// Runs until it is asked to stop.
pub(crate) fn run(args: &RunArgs) -> Exit {
    let settings = match settings::load(args.config.as_deref(), args) {
        Ok(settings) => settings,
        Err(problems) => {
            problems.iter().for_each(|problem| eprintln!("floodwall: {problem}"));
            return Exit::Usage;
        }
    };
    match serve(&settings) {
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

fn serve(settings: &Settings) -> Result<(), Failure> {
    let socket = socket_path(settings);
    if path::is_alive(&socket) {
        return Err(words(TakenError::Alive(socket)));
    }
    let stop = Stop::new().map_err(words)?;
    let farewell = Farewell::default();
    let signals = catch_signals(&stop, &farewell)?;
    let mut opened = open_devices(settings)?;
    let config = stack_config(settings, &opened);
    floodwall_stack::check(&config).map_err(words)?;
    let taken = Taken::take(&socket).map_err(words)?;
    let recordings = record_devices(settings, &mut opened)?;

    let birth =
        Birth { started: Clock::new().now(), cpu: settings.cpu.as_ref().map(|cpu| cpu.value) };
    let names: Vec<_> = opened.iter().map(|o| (o.iface, o.info.name.clone())).collect();
    let (worker, seat) = start_worker(settings, config, opened, &stop)?;
    // Nobody else sets it.
    let _ = farewell.set(seat.control.clone());
    let watch = Watch {
        control: seat.control.clone(),
        reader: seat.reader.clone(),
        links: watch::links(names),
        dns_file: settings.dns_file.as_ref().map(|file| file.value.clone()),
    };
    let watched = stop.clone();
    let watching = named("watch", move || watch.run(&watched))?;
    eprintln!(
        "floodwall: running; `floodwall stat --socket {}` shows counters, Ctrl-C ends",
        socket.display()
    );
    let served = server::serve(&taken.listener, &stop, |request| answer(request, &birth, &seat));
    // Only a broken system ends the server early; the packets go on until somebody stops them.
    if let Err(error) = served {
        eprintln!("floodwall: the control socket is out of service: {error}");
    }
    let ended = worker.join().map_err(|_| {
        "the worker panicked, which is a bug: please report the message above, with the \
         configuration and, if you can, a capture made with --record"
            .to_owned()
    })?;
    drop(taken);
    signals.close();
    // It ends with the same stop, and a panic in it has been said.
    let _ = watching.join();
    for recording in recordings {
        let (Ok(told) | Err(told)) = recording.end();
        eprintln!("floodwall: {told}");
    }
    eprintln!("floodwall: {}", summary(&birth, &seat.reader));
    ended.map(drop)
}

fn socket_path(settings: &Settings) -> PathBuf {
    let first = settings.interfaces.first().map_or("none", |i| i.device.value.name.as_str());
    settings.socket.as_ref().map_or_else(|| path::of_device(first), |socket| socket.value.clone())
}

/// SIGINT and SIGTERM end the run in good order; a second one ends it at once.
fn catch_signals(
    stop: &Stop,
    farewell: &Farewell,
) -> Result<signal_hook::iterator::Handle, Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| format!("cannot catch signals: {error}"))?;
    let (handle, stop, farewell) = (signals.handle(), stop.clone(), Arc::clone(farewell));
    let asked = AtomicBool::new(false);
    named("signals", move || {
        for signal in signals.forever() {
            if asked.swap(true, Ordering::Relaxed) {
                std::process::exit(128 + signal);
            }
            if let Some(control) = farewell.get() {
                watch::say_farewell(control);
            }
            stop.trigger();
        }
    })?;
    Ok(handle)
}

fn named<T: Send + 'static>(
    name: &str,
    what: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Failure> {
    let builder = thread::Builder::new().name(name.to_owned());
    builder.spawn(what).map_err(|error| format!("cannot start the thread for {name}: {error}"))
}

/// Opens all devices and says what was got.
fn open_devices(settings: &Settings) -> Result<Vec<Opened>, Failure> {
    let mut random = entropy::randomness().map_err(words)?;
    let mut all = Vec::new();
    for (index, wanted) in settings.interfaces.iter().enumerate() {
        let opened = devices::open(index, wanted, &mut random).map_err(words)?;
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
fn record_devices(settings: &Settings, opened: &mut [Opened]) -> Result<Vec<Recording>, Failure> {
    let Some(file) = &settings.record else { return Ok(Vec::new()) };
    let is_only = opened.iter().map(|opened| opened.queues.len()).sum::<usize>() == 1;
    let mut recordings = Vec::new();
    for Opened { info, queues, .. } in opened {
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

fn stack_config(settings: &Settings, opened: &[Opened]) -> StackConfig {
    let interface = |(wanted, opened): (&InterfaceSettings, &Opened)| InterfaceConfig {
        name: opened.info.name.clone(),
        medium: opened.mac.map_or(LinkMedium::Ip, LinkMedium::Ethernet),
        mtu: wanted.mtu.as_ref().map_or(opened.info.mtu, |mtu| mtu.value),
        addresses: wanted.addresses.iter().map(|address| address.value).collect(),
        gateways: wanted.gateways.iter().map(|gateway| gateway.value).collect(),
        dhcp: wanted.wants_dhcp(),
        accept_ra: wanted.wants_routers(),
        autoconf: wanted.wants_autoconf(),
    };
    let interfaces = settings.interfaces.iter().zip(opened).map(interface).collect();
    let stable_secret = floodwall_device::stable_secret();
    StackConfig { interfaces, stable_secret, ..StackConfig::default() }
}

/// How leases are given back before the end, once the worker stands.
type Farewell = Arc<OnceLock<Control<Hosted>>>;

/// What other threads need of the worker.
struct Seat {
    control: Control<Hosted>,
    reader: PublishedReader,
}

type Outcome = Result<Ended, Failure>;

/// Starts the worker on a thread of its own, and waits until it stands.
fn start_worker(
    settings: &Settings,
    config: StackConfig,
    opened: Vec<Opened>,
    stop: &Stop,
) -> Result<(JoinHandle<Outcome>, Seat), Failure> {
    let services = services(settings);
    let cpu = settings.cpu.as_ref().map(|cpu| cpu.value);
    let (ready, is_ready) = mpsc::sync_channel(1);
    let (events, happened) = mpsc::sync_channel(64);
    tell_events(happened)?;
    let stop = stop.clone();
    let thread = named("worker", move || {
        let guard = StopAtEnd(stop);
        let mut worker = make_worker(&config, services, opened, cpu, events)?;
        let seat = Seat { control: worker.control(), reader: worker.reader() };
        // The other side waits for exactly this.
        let _ = ready.send(seat);
        worker.run(&guard.0).map_err(words)
    })?;
    match is_ready.recv() {
        Ok(seat) => Ok((thread, seat)),
        Err(_) => match thread.join() {
            Ok(Err(failure)) => Err(failure),
            _ => Err("the worker did not start, which is a bug: please report it".to_owned()),
        },
    }
}

/// Triggers the stop when the worker's thread ends, however it ends.
struct StopAtEnd(Stop);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.trigger();
    }
}

fn make_worker(
    config: &StackConfig,
    services: Vec<Box<dyn Application>>,
    opened: Vec<Opened>,
    cpu: Option<usize>,
    events: SyncSender<Event>,
) -> Result<Worker<Hosted>, Failure> {
    if let Some(cpu) = cpu {
        pin_to_core(cpu).map_err(|error| format!("--cpu: {error}"))?;
    }
    let has_offload = opened.iter().any(|opened| opened.info.offload);
    let pool = Pool::new(&PoolConfig {
        supers: if has_offload { SUPERS } else { 0 },
        accounts: floodwall_stack::accounts_needed(config),
        ..PoolConfig::default()
    })
    .map_err(words)?;
    let mut random = entropy::randomness().map_err(words)?;
    let now = Clock::new().now();
    let host = Host::new(config, services, &pool, &mut random, now).map_err(words)?;
    let mut ports = Vec::new();
    for Opened { iface, queues, .. } in opened {
        ports.extend(queues.into_iter().map(|device| Port::new(iface, device)));
    }
    let config = WorkerConfig { events: Some(events), ..WorkerConfig::default() };
    Worker::new(Hosted(host), pool, random, ports, config).map_err(words)
}

fn services(settings: &Settings) -> Vec<Box<dyn Application>> {
    let one = |service: &settings::Given<settings::ServiceWord>| {
        let kind = match service.value.kind {
            ServiceKind::Echo => StackService::Echo,
            ServiceKind::Discard => StackService::Discard,
            ServiceKind::Chargen => StackService::Chargen,
        };
        let made = UdpService::new(kind, service.value.port).in_groups(&service.value.groups);
        Box::new(made) as Box<dyn Application>
    };
    settings.services.iter().map(one).collect()
}

/// Says what happens to devices, until the worker is gone.
fn tell_events(happened: Receiver<Event>) -> Result<(), Failure> {
    named("events", move || {
        for event in happened {
            match event {
                Event::DeviceLost { error, .. } => eprintln!("floodwall: {error}"),
                other => eprintln!("floodwall: {other:?}"),
            }
        }
    })?;
    Ok(())
}

/// One line of JSON for one request of the control socket.
fn answer(request: &str, birth: &Birth, seat: &Seat) -> String {
    let refusal = |why: String| serde_json::json!({ "error": why }).to_string();
    let Some(request) = Request::read(request) else {
        return refusal(format!("unknown request {request:?}: it is of another version"));
    };
    let answered = match request {
        Request::Stat => seat.control.ask(PATIENCE, report::ask).map(|asked| {
            let report = Report::new(birth, &seat.reader.read(), asked);
            serde_json::to_value(&report).map_err(words)
        }),
        request => seat.control.ask(PATIENCE, |desk| {
            // The worker's own randomness is in use; this is for delays that nobody need guess.
            network::carry_out(request, desk.engine.0.stack_mut(), desk.now)
        }),
    };
    match answered {
        Ok(Ok(answer)) => answer.to_string(),
        Ok(Err(why)) => refusal(why),
        Err(error) => refusal(words(error)),
    }
}

/// The last line: what came, what went, what died.
fn summary(birth: &Birth, reader: &PublishedReader) -> String {
    use floodwall_dispatch::Fact;
    let published = reader.read();
    let stats = hosted::read(&published.words);
    let uptime = (published.at - birth.started).as_nanos();
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
        published.facts.of(Fact::RxPackets),
        published.facts.of(Fact::TxPackets),
        stats.drops_in.total() + stats.drops_out.total() + published.facts.lost(),
        match stats.conservation().holds() {
            true => "every packet has one fate",
            false => "conservation is BROKEN, please report this",
        }
    )
}
