//! `floodwall guard`: services of the kernel's own stack behind SYN cookies.
//!
//! The programs and what they follow are the crate `guard`; here are arguments, the secret's file,
//! signals, the log and the socket on which `--status` asks. Invariant: the
//! links are gone when the process ends, after SIGKILL too, unless `--pin` keeps them.

mod file;
mod status;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use floodwall_device::NapiPolicy;
use floodwall_dispatch::entropy;
use floodwall_guard::{
    DatagramProtocol, Guard, GuardConfig, GuardError, GuardFinding, Trouble, UdpPort, Watch, pins,
};
use floodwall_stack::tcp_set::Secret;

use self::status::StatusSocket;
use crate::cookie_keys::{self, KeyFileStamp};
use crate::exit::Exit;
use crate::notify::ServiceManager;
use crate::output;

const GUARD_EXAMPLE: &str = "\
Example:
  floodwall guard eth0 --port 443 --port 22
  floodwall guard eth0 --status

Services of the kernel's own stack go on unchanged: SYNs to these ports are answered at the
interface with cookies, and the kernel takes over the connections that are proven. Asleep in quiet
times, when the kernel answers itself. docs/guard.md says what it does and what it cannot.";

/// `floodwall guard`
#[derive(Clone, Debug, Args)]
#[command(after_long_help = GUARD_EXAMPLE)]
pub(crate) struct GuardArgs {
    /// The interface that the traffic comes by
    pub(crate) interface: String,
    /// A file in TOML that says what the flags would
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "ports", "udp_ports", "udp_rate", "udp_unproven", "cookie_secret", "always", "watch",
            "generic", "pin", "ignore_rules", "kernel_half", "unpin", "status",
        ]
    )]
    pub(crate) config: Option<PathBuf>,
    /// A TCP port to protect; once for each
    #[arg(long = "port", value_name = "PORT")]
    pub(crate) ports: Vec<u16>,
    /// A UDP port to share fairly among source prefixes; once for each. With the protocol behind
    /// it, `dns` or `a2s`, sources that nothing has proven are challenged once there are many; with
    /// `dns` the TCP port is protected too
    #[arg(long = "udp", value_name = "PORT[:PROTOCOL]", value_parser = udp_port)]
    pub(crate) udp_ports: Vec<UdpPort>,
    /// Datagrams a second that one source prefix (IPv4 /24, IPv6 /64) may send to these ports
    #[arg(long, value_name = "RATE", default_value_t = 5000)]
    pub(crate) udp_rate: u32,
    /// Datagrams a second by one core that may come of unproven sources to a UDP port with a
    /// protocol before they are challenged; none with --always
    #[arg(long, value_name = "RATE", default_value_t = 5000)]
    pub(crate) udp_unproven: u32,
    /// The file with the secret of cookies, 32 or more random bytes, which sister hosts share;
    /// without it a random one
    #[arg(long, value_name = "FILE")]
    pub(crate) cookie_secret: Option<PathBuf>,
    /// Answer SYNs at any time
    #[arg(long, conflicts_with = "watch")]
    pub(crate) always: bool,
    /// Answer SYNs once half-open connections pass this part of a listener's backlog, in percent
    /// (rounded to a power of two below 100), or 10,000 SYNs a second come by one core
    #[arg(long, value_name = "PERCENT", default_value = "25", value_parser = percent)]
    pub(crate) watch: u32,
    /// In front of the system's stack, for drivers without XDP
    #[arg(long)]
    pub(crate) generic: bool,
    /// Keep the programs at the interface beyond this process, in a BPF file system; one that is
    /// kept there already is replaced without a gap
    #[arg(long)]
    pub(crate) pin: bool,
    /// Start in spite of rules of the packet filter that break connections
    #[arg(long)]
    pub(crate) ignore_rules: bool,
    /// Where the interface's receive half runs: leave, or napi-thread: in threads that go before
    /// programs on their cores, until the guard ends
    #[arg(long, value_name = "PLACE", default_value = "leave", value_parser = kernel_half)]
    pub(crate) kernel_half: NapiPolicy,
    /// End a guard that was kept with --pin
    #[arg(long, conflicts_with_all = ["ports", "always", "generic", "cookie_secret", "pin"])]
    pub(crate) unpin: bool,
    /// Say what would stand in the way: kernel, settings, listeners, rules; make one connection to
    /// each port through a guard on a cable of its own, and attach nothing to the interface
    #[arg(long, conflicts_with_all = ["unpin", "pin", "always", "generic", "cookie_secret"])]
    pub(crate) check: bool,
    /// Show what the guard of this interface does and has counted, and end
    #[arg(long, conflicts_with_all = ["ports", "always", "generic", "cookie_secret"])]
    pub(crate) status: bool,
    /// With --status: as JSON
    #[arg(long, requires = "status")]
    pub(crate) json: bool,
}

/// How far a backlog is to be shifted right for the power of two next below that part of it.
fn percent(text: &str) -> Result<u32, String> {
    let text = text.strip_suffix('%').unwrap_or(text);
    let percent = text.parse::<u32>().ok().filter(|percent| (1..100).contains(percent));
    let percent = percent.ok_or("a number from 1 to 99 is wanted")?;
    Ok((100 / percent).next_power_of_two().ilog2())
}

/// A place of the receive half that a guard can give it.
fn kernel_half(text: &str) -> Result<NapiPolicy, String> {
    let place = text.parse().ok();
    let place = place.filter(|it| matches!(it, NapiPolicy::Leave | NapiPolicy::NapiThread));
    place.ok_or_else(|| format!("{text:?} is neither leave nor napi-thread"))
}

/// A UDP port, and what its datagrams are.
fn udp_port(text: &str) -> Result<UdpPort, String> {
    let (port, protocol) = match text.split_once(':') {
        None => (text, None),
        Some((port, "dns")) => (port, Some(DatagramProtocol::Dns)),
        Some((port, "a2s")) => (port, Some(DatagramProtocol::A2s)),
        Some((_, other)) => return Err(format!("{other:?} is neither dns nor a2s")),
    };
    let port = port.parse().ok().filter(|port| *port != 0);
    Ok(UdpPort { port: port.ok_or("a port from 1 to 65535 is wanted")?, protocol })
}

/// Guards an interface until SIGINT or SIGTERM, or asks the guard of one.
pub(crate) fn guard(args: &GuardArgs) -> Exit {
    let read = match &args.config {
        Some(path) => file::read(args, path),
        None => Ok(args.clone()),
    };
    let args = match &read {
        Ok(args) => args,
        Err(text) => {
            eprintln!("floodwall: {}", output::shown(text));
            return Exit::Usage;
        }
    };
    if args.status {
        return status::show(&args.interface, &folder(args), args.json);
    }
    if args.check {
        return check(args);
    }
    if args.unpin {
        return match pins::remove(&folder(args)) {
            Ok(()) => Exit::Done,
            Err(error) => {
                eprintln!("floodwall: {}: {error}", folder(args).display());
                Exit::Usage
            }
        };
    }
    match run(args) {
        Ok(()) => Exit::Done,
        Err(text) => {
            eprintln!("floodwall: {text}");
            Exit::Usage
        }
    }
}

/// Prints what was found; refused where something breaks the guard.
fn check(args: &GuardArgs) -> Exit {
    let found = floodwall_guard::check(&args.interface, &args.ports);
    let mut text = String::new();
    for GuardFinding { trouble, text: words } in &found {
        let mark = match trouble {
            None => "ok",
            Some(Trouble::MayBreak) => "note",
            Some(Trouble::Breaks) => "BREAKS",
        };
        text.push_str(&format!("{mark:<7}{}\n", output::shown(words)));
    }
    let breaks = found.iter().any(|finding| finding.trouble == Some(Trouble::Breaks));
    match output::print(&text) {
        Exit::Done if breaks => Exit::Usage,
        exit => exit,
    }
}

/// Where the programs of the interface are kept.
fn folder(args: &GuardArgs) -> PathBuf {
    Path::new(pins::FOLDER).join(&args.interface)
}

fn log(interface: &str, text: &dyn std::fmt::Display) {
    eprintln!("floodwall: {}: {}", output::shown(&interface), output::shown(&text.to_string()));
}

fn config(args: &GuardArgs) -> Result<GuardConfig, String> {
    let mut random = entropy::randomness().map_err(|error| error.to_string())?;
    let secret = match &args.cookie_secret {
        Some(path) => cookie_keys::read(path)
            .map_err(|error| format!("the cookie secret {} {error}", path.display()))?,
        None => Secret::random(&mut random.secret),
    };
    let mut udp_ports = args.udp_ports.clone();
    udp_ports.sort_by_key(|port| port.port);
    if let Some([port, _]) = udp_ports.array_windows().find(|[one, two]| one.port == two.port) {
        return Err(format!("--udp names port {} twice", port.port));
    }
    Ok(GuardConfig {
        interface: args.interface.clone(),
        ports: args.ports.clone(),
        udp_ports,
        udp_rate: args.udp_rate,
        udp_unproven: args.udp_unproven,
        secret,
        clock: (random.secret.next_u64(), random.secret.next_u64()),
        watch: match args.always {
            true => Watch::Always,
            false => Watch::Backlog { shift: args.watch },
        },
        generic: args.generic,
        pin: args.pin.then(|| folder(args)),
        own_secret: args.cookie_secret.is_some(),
        ignore_rules: args.ignore_rules,
        half_first: args.kernel_half == NapiPolicy::NapiThread,
    })
}

fn run(args: &GuardArgs) -> Result<(), String> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ended))
            .map_err(|error| format!("cannot catch signals: {error}"))?;
    }
    let config = config(args)?;
    let mut guard = Guard::start(config).map_err(|error| error.to_string())?;
    let tcp = guard.config().ports.iter().map(u16::to_string);
    let udp = guard.config().udp_ports.iter().map(|port| format!("{}/udp", port.port));
    let ports = tcp.chain(udp).collect::<Vec<_>>().join(", ");
    let socket = StatusSocket::take(&args.interface)?;
    let manager = ServiceManager::of_environment();
    let words = format!("ports {ports} are guarded");
    log(&args.interface, &words);
    if let Some(report) = guard.half() {
        log(&args.interface, &format!("its receive half is {}", report.words));
        report.lacks.iter().for_each(|lack| log(&args.interface, lack));
    }
    manager.ready(&words);
    let ending = follow(args, &mut guard, &socket, &manager, &ended);
    manager.stopping();
    if ending.is_ok() && !args.pin && guard.end().is_ok() {
        // Handshakes that have begun; a second signal does not shorten it.
        socket.serve(&guard, Guard::LINGERS, &AtomicBool::new(false));
    }
    match args.pin && ending.is_ok() {
        true => {
            if let Err(error) = guard.leave_pinned() {
                log(
                    &args.interface,
                    &format!("that it is pinned on purpose is not noted: {error}"),
                );
            }
        }
        false => drop(guard),
    }
    match ending {
        Ok(()) => {
            let words = match args.pin {
                true => "still guarded by what is pinned; `--unpin` ends that",
                false => "no longer guarded",
            };
            log(&args.interface, &words);
            Ok(())
        }
        Err(GuardError::NoInterface(name)) => Err(format!("{name}: the interface has gone")),
        Err(error) => Err(error.to_string()),
    }
}

/// Looks at everything four times a second until the end.
fn follow(
    args: &GuardArgs,
    guard: &mut Guard,
    socket: &StatusSocket,
    manager: &ServiceManager,
    ended: &AtomicBool,
) -> Result<(), GuardError> {
    let path = args.cookie_secret.as_deref();
    let mut stamp = path.and_then(KeyFileStamp::of);
    while !ended.load(Ordering::Relaxed) {
        for notice in guard.follow()? {
            log(&args.interface, &notice);
        }
        if let Some(path) = path {
            let now = KeyFileStamp::of(path);
            if now != stamp {
                stamp = now;
                match cookie_keys::read(path) {
                    Ok(secret) => {
                        guard.set_secret(secret)?;
                        log(&args.interface, &"the cookie secret has changed, and is followed");
                    }
                    Err(error) => {
                        let text = format!("the cookie secret {} {error}", path.display());
                        log(&args.interface, &text);
                    }
                }
            }
        }
        manager.alive();
        socket.serve(guard, Guard::PERIOD, ended);
    }
    Ok(())
}
