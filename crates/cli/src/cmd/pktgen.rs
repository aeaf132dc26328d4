//! `floodwall pktgen`: the classic packet generator's script, carried out on any device.
//!
//! The script is read and judged before the device is opened; a device that reaches a real network
//! is opened only where the operator confirms that it is theirs, or where it stands in a network
//! namespace that is not the system's first. Sends on the script's schedule and never waits for an
//! answer; counts what comes back, and how long each stamped datagram took from the moment at which
//! it was meant to leave.

use std::fs;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use floodwall_base::{IpCidr, MacAddr, Units};
use floodwall_device::{
    Device, DeviceKind, DeviceSpec, FirstLineMode, LiveSender, Medium as DeviceMedium,
    NapiPriority, OpenConfig, station_address,
};
use floodwall_dispatch::{Clock, entropy};
use floodwall_packet::{Burst, Engine, PacketList, Pool, PoolConfig, Round};
use floodwall_pktgen::{Blast, ClassicScript, Peer, Plan, StationConfig, StationMedium, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::exit::Exit;
use crate::live_flood;
use crate::output;

const SCRIPT_EXAMPLE: &str = "\
Examples:
  floodwall pktgen classic.sh --device packet:eth1 --address 10.0.0.9/24 --gateway 10.0.0.1 \\
    --set 'dst_min 10.1.0.0' --set 'dst_max 10.1.255.255'
  floodwall pktgen --device tap:fw9 --address fd00::9/64 --peer 02:00:00:00:00:01 \\
    --set 'dst fd00::1' --set 'count 1000000' --set 'pkt_size 100' --set 'ratep 50000'

A script is what the kernel's generator is given: COUNT=\"count 0\", pgset \"$COUNT\", echo and
remarks. Its words: clone_skb, pkt_size, min_pkt_size, max_pkt_size, count (0: without end), ipg or
delay (nanoseconds), ratep, flows, flowlen, dst, dst_min, dst_max, src_min, src_max, udp_src_min,
udp_src_max, udp_dst_min, udp_dst_max, dst_mac, src_mac, flag IPDST_RND, IPSRC_RND, UDPSRC_RND,
UDPDST_RND, TXSIZE_RND, FLOW_SEQ; and of ours: proto udp|icmp|tcp-syn|tcp-ack|tcp-rst,
headers chain|options|unknown|padding|routing|mixed|none, fragments BYTES[,first|last|middle],
hop_limit.";

/// `floodwall pktgen`
#[derive(Debug, Args)]
#[command(after_help = SCRIPT_EXAMPLE)]
pub(crate) struct PktgenArgs {
    /// The script, or - for standard input; without it, only what --set gives
    script: Option<PathBuf>,
    /// tun:NAME, tap:NAME, packet:INTERFACE or xdp:INTERFACE; by default packet: and the interface
    /// that the script adds
    #[arg(long, value_name = "KIND:NAME")]
    device: Option<String>,
    /// A parameter, as `count 0`: read before the script, which may override it; repeat for more
    #[arg(long, value_name = "WORDS")]
    set: Vec<String>,
    /// An address of ours with its prefix length, which packets come from by default; repeat for
    /// the other family
    #[arg(long, value_name = "ADDRESS/LENGTH", required = true)]
    address: Vec<IpCidr>,
    /// The next hop that all packets are sent to, by its address: it is resolved to its link
    /// address
    #[arg(long, value_name = "ADDRESS", conflicts_with = "peer")]
    gateway: Option<IpAddr>,
    /// The same by its link address; dst_mac in the script goes before
    #[arg(long, value_name = "MAC")]
    peer: Option<MacAddr>,
    /// End after so long, independent of the count
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// How long to wait for answers behind the last packet
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=60_000))]
    linger: u64,
    /// Of xdp: drop what comes back at the interface, uncounted, which leaves the core to sending
    #[arg(long)]
    no_answers: bool,
    /// Have a program in the kernel make the packets and send them by the interface, where it can:
    /// one frame with random addresses, ports and numbers (Linux 5.18); else they are sent as usual
    #[arg(long, requires = "no_answers")]
    live: bool,
    /// Decides every random address, port and size
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Floods leave by a real interface of this system: you own the network behind it. In a network
    /// namespace of its own the flag is not needed, where the system lets us see that
    #[arg(long)]
    i_own_this_network: bool,
    /// One JSON document on standard output; words for humans go to standard error
    #[arg(long, short = 'j')]
    json: bool,
}

/// Sends, and reports.
pub(crate) fn pktgen(args: &PktgenArgs) -> Exit {
    match prepared(args).and_then(|run| run.send(args)) {
        Ok(()) => Exit::Done,
        Err(why) => {
            eprintln!("floodwall pktgen: {why}");
            Exit::Usage
        }
    }
}

/// Everything that is judged before a device is touched.
struct PreparedRun {
    device: DeviceSpec,
    classic: ClassicScript,
    plan: Plan,
}

fn text_of(path: &PathBuf) -> Result<String, String> {
    let mut text = String::new();
    let read = match path.as_os_str() == "-" {
        true => io::stdin().lock().take(1 << 20).read_to_string(&mut text).map(|_| text),
        false => fs::read_to_string(path),
    };
    read.map_err(|error| format!("{}: {error}", path.display()))
}

fn prepared(args: &PktgenArgs) -> Result<PreparedRun, String> {
    let mut classic = ClassicScript::default();
    for words in &args.set {
        classic.parameter(words).map_err(|error| format!("--set {words:?}: {error}"))?;
    }
    if let Some(path) = &args.script {
        let name = args.device.as_deref().and_then(|word| word.split([':', ',']).nth(1));
        let device = format!("/proc/net/pktgen/{}", name.unwrap_or_default());
        let text = text_of(path)?;
        let read = classic.read(&text, &[("PGDEV", device.trim_end_matches('/'))]);
        classic = read.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let word = match (&args.device, &classic.device) {
        (Some(word), _) => word.clone(),
        (None, Some(name)) => format!("packet:{name}"),
        (None, None) => return Err("no device: name one with --device, as tap:fw9".to_owned()),
    };
    let device: DeviceSpec = word.parse().map_err(|error| format!("--device: {error}"))?;
    permitted(&device, args.i_own_this_network)?;
    // The address of the destinations' family; the stream reports a wrong one.
    let six = |cidr: &&IpCidr| cidr.addr().is_ipv6() == classic.wants_ipv6();
    let own = args.address.iter().find(six).or(args.address.first());
    let own = own.map(|cidr| cidr.addr()).ok_or("no --address")?;
    let stream = classic.stream(own).map_err(|error| error.to_string())?;
    let peer = match (classic.dst_mac.or(args.peer), args.gateway) {
        (Some(mac), _) => Peer::Link(mac),
        (None, Some(gateway)) => Peer::Addr(gateway),
        (None, None) if device.kind == DeviceKind::Tun => Peer::Link(MacAddr::BROADCAST),
        (None, None) => {
            return Err("no next hop; give --gateway ADDRESS, or --peer MAC, or dst_mac".to_owned());
        }
    };
    let single = |cidr: &IpCidr| {
        let bits = if cidr.addr().is_ipv4() { 32 } else { 128 };
        IpCidr::new(cidr.addr(), bits)
    };
    let station = StationConfig {
        medium: if device.kind == DeviceKind::Tun {
            StationMedium::Ip
        } else {
            StationMedium::Ethernet
        },
        addrs: args.address.iter().filter_map(single).collect(),
        peer,
        ..StationConfig::default()
    };
    Ok(PreparedRun { device, classic, plan: Plan { station, streams: vec![stream] } })
}

/// Whether floods may leave there.
fn permitted(device: &DeviceSpec, owned: bool) -> Result<(), String> {
    let real = matches!(device.kind, DeviceKind::Packet | DeviceKind::Xdp);
    if !real || owned || is_apart() {
        return Ok(());
    }
    let name = &device.name;
    Err(format!(
        "{name} is an interface of the system's own network; run in a network namespace (ip netns \
         exec …), or say --i-own-this-network"
    ))
}

/// Whether this process stands in another network namespace than the system's first process. Where
/// that is unknown, it does not.
fn is_apart() -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    match (namespace("self"), namespace("1")) {
        (Some(own), Some(first)) => own != first,
        _ => false,
    }
}

impl PreparedRun {
    fn send(self, args: &PktgenArgs) -> Result<(), String> {
        let told = |error: &dyn core::fmt::Display| error.to_string();
        for line in &self.classic.told {
            eprintln!("{line}");
        }
        let mut random = entropy::randomness().map_err(|error| told(&error))?;
        if let Some(seed) = args.seed {
            random = floodwall_base::Randomness::from_number(seed);
        }
        let mut plan = self.plan;
        let station = self.classic.src_mac;
        let mac = station.unwrap_or_else(|| station_address(&self.device.name, &mut random));
        plan.station.mac = mac;
        let config = OpenConfig {
            workers: 1,
            station: (self.device.kind != DeviceKind::Tun).then_some(mac),
            // A sender has nothing to defend.
            first_line: FirstLineMode::Off,
            sends_only: args.no_answers,
            cores: own_core().into_iter().collect(),
            rank: args.no_answers.then_some(NapiPriority::Choosing),
            ..OpenConfig::default()
        };
        let opened = self.device.open(&config).map_err(|error| told(&error))?;
        let mut device = opened.queues.into_iter().next().ok_or("the device has no queue")?;
        let fits = matches!(
            (plan.station.medium, device.info().medium),
            (StationMedium::Ip, DeviceMedium::Ip)
                | (StationMedium::Ethernet, DeviceMedium::Ethernet)
        );
        if !fits {
            return Err(format!("{} carries no such frames", self.device));
        }
        let stream = plan.streams.first().cloned().unwrap_or_default();
        let mut first = Blast::new(plan.clone()).map_err(|error| told(&error))?;
        let mut blast = Blast::new(plan).map_err(|error| told(&error))?;
        let pool = Pool::new(&PoolConfig::default()).map_err(|error| told(&error))?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            let flag = Arc::clone(&stop);
            signal_hook::flag::register(signal, flag).map_err(|error| told(&error))?;
        }
        let length = args.seconds.map(Duration::from_secs);
        if args.live {
            let live = LiveRun { name: &self.device.name, stream: &stream, length, stop: &stop };
            match live.send(&mut first, &pool, &mut random) {
                Ok(sent) => return report_live(args.json, sent),
                Err(why) => eprintln!("floodwall pktgen: sent as usual: {why}"),
            }
        }
        let linger = Duration::from_millis(args.linger);
        let mut sending =
            SendingRun { device: device.as_mut(), pool: &pool, random, length, linger, stop };
        let ran = sending.run(&mut blast).map_err(|error| told(&error))?;
        report(args.json, &blast, ran)
    }
}

/// A flood that a program in the kernel makes.
struct LiveRun<'a> {
    name: &'a str,
    stream: &'a Stream,
    length: Option<Duration>,
    stop: &'a AtomicBool,
}

/// How long one call of the kernel sends: between two of them it sends nothing for a moment.
const LIVE_CALL: Duration = Duration::from_secs(2);

/// Frames, their bytes, and how long it took.
type LiveSent = (u64, u64, Duration);

impl LiveRun<'_> {
    /// Sends until all is sent, or it is stopped. `first` makes the frame.
    fn send(
        &self,
        first: &mut Blast,
        pool: &Pool,
        random: &mut floodwall_base::Randomness,
    ) -> Result<LiveSent, String> {
        let (clock, mut departing) = (Clock::new(), PacketList::new());
        let (now, mut arrived) = (clock.now(), Burst::new());
        let (budget, peers) = (Units(64), None);
        let departing = &mut departing;
        first.work(&mut Round {
            now,
            pool,
            random,
            arrived: &mut arrived,
            departing,
            budget,
            peers,
        });
        let packet = departing.pop_front().ok_or("no frame was made")?;
        let mut frame = vec![0; packet.len()];
        packet.copy_out(0, &mut frame);
        let config = live_flood::config_of(self.stream, frame)?;
        let told = |error: io::Error| format!("{}: {error}", self.name);
        let mut sender = LiveSender::open(self.name, &config).map_err(told)?;
        let begun = clock.now();
        // A signal ends a call early.
        loop {
            let ran = clock.now() - begun;
            let left = self.length.map_or(LIVE_CALL, |length| length.saturating_sub(ran));
            if left.is_zero() || self.stop.load(Ordering::Relaxed) {
                break;
            }
            if !sender.send(left.min(LIVE_CALL)).map_err(told)? {
                break;
            }
        }
        let sent = sender.sent();
        Ok((sent, sent * config.frame.len() as u64, clock.now() - begun))
    }
}

/// Of what the kernel made, only the count is known.
fn report_live(json: bool, (sent, bytes, ran): LiveSent) -> Result<(), String> {
    let seconds = ran.as_secs_f64();
    let rate = if seconds > 0.0 { sent as f64 / seconds } else { 0.0 };
    if !json {
        eprintln!("{sent} frames, {bytes} bytes in {seconds:.3} s: {rate:.0} packets/s, live");
        return Ok(());
    }
    let document = serde_json::json!({
        "sent": sent, "frames": sent, "bytes": bytes, "seconds": seconds, "pps": rate, "live": true,
    });
    output::try_print(&format!("{document}\n"))
}

/// The core that this process is bound to, if it is one.
fn own_core() -> Option<usize> {
    let set = rustix::thread::sched_getaffinity(None).ok()?;
    let mut cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| set.is_set(*core));
    cores.next().filter(|_| cores.next().is_none())
}

/// The loop's things.
struct SendingRun<'a> {
    device: &'a mut dyn Device,
    pool: &'a Pool,
    random: floodwall_base::Randomness,
    length: Option<Duration>,
    linger: Duration,
    stop: Arc<AtomicBool>,
}

impl SendingRun<'_> {
    /// Sends until all is sent and answers had their time. Returns how long sending took.
    fn run(&mut self, blast: &mut Blast) -> Result<Duration, floodwall_device::DeviceError> {
        let (clock, mut arrived, mut departing) = (Clock::new(), Burst::new(), PacketList::new());
        let begun = clock.now();
        let mut sent: Option<floodwall_base::Instant> = None;
        loop {
            let now = clock.now();
            let over = blast.is_finished()
                || self.stop.load(Ordering::Relaxed)
                || self.length.is_some_and(|length| now - begun >= length);
            if over && departing.is_empty() {
                let ended = *sent.get_or_insert(now);
                if now - ended >= self.linger || self.stop.load(Ordering::Relaxed) {
                    return Ok(ended - begun);
                }
            }
            let came = self.device.receive(self.pool, &mut arrived)?;
            let mut round = Round {
                now,
                pool: self.pool,
                random: &mut self.random,
                arrived: &mut arrived,
                departing: &mut departing,
                budget: Units(64),
                peers: None,
            };
            if came > 0 {
                blast.round(&mut round);
            }
            // What the device had no room for goes first.
            if !over && round.departing.is_empty() {
                blast.work(&mut round);
            }
            let left = self.device.transmit(&mut departing)?;
            if over || (came == 0 && left == 0) {
                let due = blast.deadline().filter(|_| !over);
                let wait = due.map_or(Duration::from_millis(1), |due| due - clock.now());
                self.rest(wait.min(Duration::from_millis(1)), !departing.is_empty());
            }
        }
    }

    /// Sleeps until something comes, or something is due.
    fn rest(&mut self, wait: Duration, full: bool) {
        if wait < Duration::from_micros(50) && !full {
            return;
        }
        self.device.rest();
        let Some(fd) = self.device.readiness() else { return };
        let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        // Interrupted by a signal or by nothing: the loop looks at both.
        let _ = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&wait));
    }
}

fn report(json: bool, blast: &Blast, ran: Duration) -> Result<(), String> {
    let (sent, back) = (blast.stats(), blast.returned());
    let seconds = ran.as_secs_f64();
    let rate = if seconds > 0.0 { sent.sent as f64 / seconds } else { 0.0 };
    let latency = blast.latency().filter(|latency| latency.count() > 0);
    let micros = |time: Option<Duration>| time.map(|time| time.as_nanos() as f64 / 1000.0);
    if !json {
        let bits = if seconds > 0.0 { 8.0 * sent.bytes as f64 / seconds / 1e6 } else { 0.0 };
        eprintln!(
            "{} packets, {} frames, {} bytes in {seconds:.3} s: {rate:.0} packets/s, {bits:.0} \
             Mbit/s",
            sent.sent, sent.frames, sent.bytes
        );
        eprintln!(
            "{} came back: {} UDP, {} echo replies, {} SYN+ACK, {} RST, {} unreachable, {} other \
             ICMP errors, {} neighbour, {} fragments, {} other",
            back.total(),
            back.udp,
            back.echo_replies,
            back.tcp_syn_ack,
            back.tcp_rst,
            back.unreachable,
            back.icmp_errors,
            back.neighbor,
            back.fragments,
            back.other + back.tcp
        );
        if let Some(latency) = latency {
            let of = |share| micros(latency.quantile(share)).unwrap_or_default();
            let [half, most] = [0.5, 0.99].map(of);
            eprintln!(
                "from the intended time to the answer: median {half:.1} us, 99 % {most:.1} us, \
                 {} answers",
                latency.count()
            );
        }
        return Ok(());
    }
    let document = serde_json::json!({
        "sent": sent.sent,
        "frames": sent.frames,
        "bytes": sent.bytes,
        "seconds": seconds,
        "pps": rate,
        "no_buffer": sent.no_buffer,
        "no_peer": sent.no_peer,
        "late_max_us": micros(Some(sent.late_max)),
        "returned": {
            "total": back.total(),
            "udp": back.udp,
            "echo_replies": back.echo_replies,
            "tcp_syn_ack": back.tcp_syn_ack,
            "tcp_rst": back.tcp_rst,
            "tcp": back.tcp,
            "unreachable": back.unreachable,
            "icmp_errors": back.icmp_errors,
            "neighbor": back.neighbor,
            "fragments": back.fragments,
            "other": back.other,
        },
        "latency_us": latency.map(|latency| serde_json::json!({
            "count": latency.count(),
            "min": micros(latency.min()),
            "p50": micros(latency.quantile(0.5)),
            "p99": micros(latency.quantile(0.99)),
            "max": micros(latency.max()),
        })),
    });
    output::try_print(&format!("{document}\n"))
}
