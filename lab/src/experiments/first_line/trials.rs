//! Trials: each victim meets each flood in namespaces of its own, in turns.
//!
//! Called by `first_line.rs`. Flood, honest clients and the receive half of the near end are on one
//! core, the victim with the kernel's half of the far end on another. The flood is `floodwall
//! pktgen` in a process of its own; what comes back to it is dropped at the near end by a program,
//! as a card's port would lead it away. Everything is bounded: a trial makes as many calls as
//! planned, processes are ended by their number, and the namespaces go with their threads.

#![expect(clippy::disallowed_methods, reason = "this part measures real time in real threads")]

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use floodwall_dispatch::{Stop, pin_to_core};
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

use super::clients::{self, Called};
use super::questions::{self, Questions};
use super::router;
use super::victims::{self, Running, Victim};
use super::{Flood, TrialCase, Work};
use crate::error::LabError;
use crate::experiments::namespace::{self, VETH_FAR, VETH_NEAR};
use crate::experiments::stalls::{self, Stalls};
use crate::experiments::stamps::Stamps;
use crate::progress::Progress;

pub(super) const SYN_PORT: u16 = 7;
pub(super) const UDP_PORT: u16 = 9;
/// Another port that answers datagrams, and is not flooded.
pub(super) const QUIET_PORT: u16 = 11;
pub(super) const MAC_OURS: &str = "02:00:00:00:77:02";
pub(super) const MAC_FLOOD: &str = "02:00:00:00:77:09";
pub(super) const SERVERS: [&str; 2] = ["10.77.0.2/24", "fd77::2/64"];
pub(super) const GATEWAYS: [&str; 2] = ["10.77.0.9", "fd77::9"];
pub(super) const CLIENTS: [&str; 2] = ["10.77.0.1/24", "fd77::1/64"];
/// How long a victim has to stand, and a flood to rise, before anything counts.
pub(super) const STANDS: Duration = Duration::from_millis(700);
/// The former of our host over IPv6: its address is tentative for up to two seconds (RFC 4862
/// section 5.4.2; the kernel is given its address with `nodad`).
const STANDS_V6: Duration = Duration::from_millis(2400);
pub(super) const RISES: Duration = Duration::from_millis(1500);
/// The latter where nothing is judged but that it works.
pub(super) const RISES_QUICK: Duration = Duration::from_millis(200);
/// There a victim stands when it answers one call; how long each has, and how many are made.
const FIRST_CALL: Duration = Duration::from_millis(100);
const FIRST_CALLS: u32 = 100;
/// How often a trial of the quick form is tried until one client is answered.
const TRIES_QUICK: u32 = 10;

/// One victim under one flood, once, or the medians of several times.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub(super) case: TrialCase,
    /// The answered part of the honest calls, and the time that one in a hundred exceeds.
    pub(super) honest: f64,
    pub(super) p99_millis: f64,
    /// Packets a second that were sent, and that arrived.
    pub(super) offered: f64,
    pub(super) arrived: f64,
    /// The idle part of the victim's core.
    pub(super) idle: f64,
    /// How long cores stood still meanwhile, both together, where it is known (`stalls.rs`).
    pub(super) stalled: Option<Duration>,
    /// Which part of the calls met that, and the answered part of the others.
    pub(super) spoilt: f64,
    pub(super) outside_stalls: f64,
    /// What the program on that core had, where there was one.
    pub(super) stamps: Option<Stamps>,
    /// Of a router: the answered part of the questions in flows that were there before.
    pub(super) flows: Option<f64>,
    /// Of a host under datagrams: the answered part of the questions at the flooded port and at
    /// another, asked from another prefix than the flood's.
    pub(super) datagrams: Option<Datagrams>,
}

/// The answered parts of questions in datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagrams {
    pub(super) same_port: f64,
    pub(super) other_port: f64,
}

/// All that was found, or why there is nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    pub(super) trials: Vec<Trial>,
    pub(super) rounds: u64,
    pub(super) why_not: Option<String>,
}

pub(super) fn wrong(error: impl core::fmt::Display) -> LabError {
    LabError::Scene(error.to_string())
}

/// Runs every trial. What this machine lacks is no error.
///
/// # Errors
/// Something failed that is not missing.
pub(super) fn measure(work: &Work<'_>, progress: &mut dyn Progress) -> Result<Results, LabError> {
    let none = |why: &str| {
        eprintln!("SKIPPED first-line: {why}");
        Ok(Results { why_not: Some(why.to_owned()), ..Results::default() })
    };
    let allowed = sched_getaffinity(None).map_err(wrong)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    let (Some(outside), Some(flooded)) = (cores.next(), cores.next()) else {
        return none("it takes two cores");
    };
    let program = std::env::current_exe().map_err(wrong)?;
    if program.file_name().is_none_or(|name| name != "floodwall") {
        return none("it runs `floodwall` as processes: use `floodwall lab first-line`");
    }
    if !rustix::process::geteuid().is_root() {
        return none("it makes network namespaces, and this is not root");
    }
    let mut cases = work.cases();
    let has_proxy = has_synproxy();
    if !has_proxy && cases.iter().any(|case| case.victim == Victim::Synproxy) {
        eprintln!("SKIPPED synproxy: it takes `nft`, and a kernel with NFT_SYNPROXY");
        cases.retain(|case| case.victim != Victim::Synproxy);
    }
    let steps = work.rounds * cases.len() as u64;
    let mut all = Vec::new();
    for round in 0..work.rounds {
        for (number, case) in cases.iter().enumerate() {
            progress.step("trials", round * cases.len() as u64 + number as u64, steps);
            let stand = Stand { program: program.clone(), outside, flooded };
            all.push(stand.trial(work, *case)?);
        }
    }
    let medians = cases.iter().filter_map(|case| {
        let of = |trial: &&Trial| trial.case == *case;
        Trial::middle(&all.iter().filter(of).collect::<Vec<_>>())
    });
    Ok(Results { trials: medians.collect(), rounds: work.rounds, why_not: None })
}

/// Whether the kernel takes a rule of SYNPROXY, asked in a namespace of a thread's own.
fn has_synproxy() -> bool {
    let asked = || namespace::enter().is_ok() && victims::synproxied().is_ok();
    thread::spawn(asked).join().unwrap_or(false)
}

/// Where a trial runs.
pub(super) struct Stand {
    pub(super) program: PathBuf,
    pub(super) outside: usize,
    pub(super) flooded: usize,
}

impl Stand {
    /// One trial. Where only function is tested, speed must not decide: on a machine that is busy
    /// with other work the flood and the clients may have no core for a whole trial.
    fn trial(&self, work: &Work<'_>, case: TrialCase) -> Result<Trial, LabError> {
        let tries = if work.only_load.is_some() { TRIES_QUICK } else { 1 };
        let mut trial = self.run(work, case)?;
        for _ in 1..tries {
            if trial.honest > 0.0 {
                break;
            }
            trial = self.run(work, case)?;
        }
        Ok(trial)
    }

    /// One try of it, in two namespaces of two threads that end with it.
    fn run(&self, work: &Work<'_>, case: TrialCase) -> Result<Trial, LabError> {
        if case.flood.is_transit() {
            return router::run(self, work, case);
        }
        let (ready, far_ready) = channel::<i32>();
        let (moved, near_moved) = channel::<String>();
        let stop = Stop::new().map_err(wrong)?;
        let stop = &stop;
        thread::scope(|scope| {
            // Each end has its ends of the channels: they close with it.
            let far = scope.spawn(move || self.far(&case, (&far_ready, &moved), stop));
            let near = scope.spawn(move || {
                let outcome = self.near(work, case, &ready, &near_moved);
                stop.trigger();
                outcome
            });
            let trial = near.join().unwrap_or_else(|_| Err(wrong("the clients panicked")));
            far.join().unwrap_or_else(|_| Err(wrong("the victim panicked")))?;
            trial
        })
    }

    /// The far end: the cable, and the victim until the stop.
    fn far(
        &self,
        case: &TrialCase,
        (near, moved): (&Receiver<i32>, &Sender<String>),
        stop: &Stop,
    ) -> Result<(), LabError> {
        namespace::enter().map_err(wrong)?;
        let peer = near.recv().map_err(|_| wrong("the near end has no namespace"))?;
        namespace::ip(&format!("link add {VETH_NEAR} type veth peer name {VETH_FAR}"))
            .map_err(wrong)?;
        let (clients, own) = (address(VETH_NEAR)?, address(VETH_FAR)?);
        namespace::ip(&format!("link set {VETH_NEAR} netns {peer}"))
            .and_then(|()| namespace::ip(&format!("link set {VETH_FAR} up")))
            .map_err(wrong)?;
        if !case.victim.is_kernels() {
            let _running = victims::ours(&self.program, case.victim, self.flooded, &clients)?;
            moved.send(MAC_OURS.to_owned()).map_err(wrong)?;
            wait(stop);
            return Ok(());
        }
        victims::prepare_kernel(self.flooded, &clients)?;
        let any = |port| SocketAddr::from((core::net::Ipv6Addr::UNSPECIFIED, port));
        let listener = TcpListener::bind(any(SYN_PORT)).map_err(wrong)?;
        let datagrams = match case.flood.has_datagrams() {
            true => vec![questions::bind(any(UDP_PORT))?, questions::bind(any(QUIET_PORT))?],
            false => Vec::new(),
        };
        let _guard = match case.victim {
            Victim::Guard => Some(victims::guarded(&self.program)?),
            Victim::Synproxy => victims::synproxied().map(|()| None)?,
            _ => None,
        };
        moved.send(own).map_err(wrong)?;
        victims::serve((&listener, &datagrams), stop, self.flooded)
    }

    /// The near end: the flood, and honest clients beside it.
    fn near(
        &self,
        work: &Work<'_>,
        case: TrialCase,
        ready: &Sender<i32>,
        moved: &Receiver<String>,
    ) -> Result<Trial, LabError> {
        namespace::enter().map_err(wrong)?;
        ready.send(gettid().as_raw_nonzero().get()).map_err(wrong)?;
        let mac = moved.recv().map_err(|_| wrong("the victim does not stand"))?;
        pin_to_core(self.outside).map_err(wrong)?;
        self.raise_near(&mac)?;
        let server = SERVERS.get(usize::from(case.six)).and_then(|text| text.split('/').next());
        let server = server.and_then(|text| text.parse().ok()).ok_or(wrong("an address"))?;
        until_it_stands(work, &case, SocketAddr::new(server, SYN_PORT))?;
        let mut flooding = self.flood(&mac, &case)?;
        let rises = work.rises();
        thread::sleep(rises / 2);
        // What comes back is received before it is sent for, or answers are lost here.
        let _ = victims::thread_half(VETH_NEAR, self.outside, -20);
        if let Err(error) = victims::put_first(VETH_NEAR) {
            eprintln!("answers may be lost at the clients' end: {error}");
        }
        thread::sleep(rises / 2);
        let before = Moment::now(self.flooded)?;
        let (outcome, stalls) = stalls::beside(work.watched(&[self.outside, self.flooded]), || {
            thread::scope(|scope| {
                let asking =
                    case.flood.has_datagrams().then(|| scope.spawn(|| ask(work, &case, server)));
                let (called, stamps) =
                    self.call(work, SocketAddr::new(server, SYN_PORT), case.shares)?;
                let asked = asking.map(|asking| {
                    asking.join().unwrap_or_else(|_| Err(wrong("the asking clients panicked")))
                });
                Ok::<_, LabError>((called, stamps, asked.transpose()?))
            })
        });
        let (called, stamps, asked) = outcome?;
        let after = Moment::now(self.flooded)?;
        flooding.iter_mut().try_for_each(Running::goes_on)?;
        drop(flooding);
        let datagrams = asked.as_ref().map(Datagrams::of);
        Ok(Trial { stamps, datagrams, ..Trial::of(case, called, &before.until(&after), &stalls) })
    }

    /// The generators: one for each kind of packet, of the same rate. The first drops what comes
    /// back, by the one program that the interface takes.
    fn flood(&self, mac: &str, case: &TrialCase) -> Result<Vec<Running>, LabError> {
        let parts = case.flood.parts();
        let planned = case.planned / parts.len().max(1) as u64;
        let one = |(number, flood): (usize, &Flood)| {
            let part = TrialCase { flood: *flood, planned, ..*case };
            let device = if number == 0 { "xdp" } else { "packet" };
            victims::flood(&self.program, &flood_words((mac, device), &part))
        };
        parts.iter().enumerate().map(one).collect()
    }

    /// The honest calls, and a program on the victim's core meanwhile where it shares that.
    fn call(
        &self,
        work: &Work<'_>,
        server: SocketAddr,
        shares: bool,
    ) -> Result<(Called, Option<Stamps>), LabError> {
        let (calls, rate) = (work.calls, work.hold.honest_rate);
        let length = Duration::from_secs_f64(calls as f64 / rate.max(1) as f64);
        let (core, patience) = (self.flooded, Duration::from_millis(work.hold.patience_millis));
        thread::scope(|scope| {
            let program = shares.then(|| {
                scope.spawn(move || {
                    // The calling thread is pinned elsewhere, and a new one with it.
                    let mut set = CpuSet::new();
                    set.set(core);
                    sched_setaffinity(None, &set).map_err(wrong)?;
                    // No thread of this process is the victim's.
                    Ok::<_, LabError>(Stamps::take(length, 0, core))
                })
            });
            let called = clients::call(server, (calls, rate), patience)?;
            let stamps = program.map(|program| {
                program.join().unwrap_or_else(|_| Err(wrong("the program panicked")))
            });
            Ok((called, stamps.transpose()?))
        })
    }

    fn raise_near(&self, mac: &str) -> Result<(), LabError> {
        let mut lines = vec![format!("link set {VETH_NEAR} up")];
        for (client, server) in CLIENTS.iter().zip(SERVERS) {
            let six = client.contains(':');
            let (flag, nodad) = if six { ("-6", " nodad") } else { ("-4", "") };
            let server = server.split('/').next().unwrap_or_default();
            lines.push(format!("addr add {client} dev {VETH_NEAR}{nodad}"));
            let entry = format!("neigh add {server} lladdr {mac} dev {VETH_NEAR} nud permanent");
            lines.push(format!("{flag} {entry}"));
        }
        lines.iter().try_for_each(|words| namespace::ip(words)).map_err(wrong)?;
        // Without it the far end would take packets outside of its receive half.
        namespace::run("ethtool", &format!("-K {VETH_NEAR} tso off")).map_err(wrong)?;
        let ports = "/proc/sys/net/ipv4/ip_local_port_range";
        std::fs::write(ports, "10000 65000").map_err(wrong)
    }
}

/// Waits until the victim stands: for a fixed time, so that nothing precedes what is measured;
/// where only function is tested, until it answers.
fn until_it_stands(work: &Work<'_>, case: &TrialCase, server: SocketAddr) -> Result<(), LabError> {
    if work.only_load.is_none() {
        let is_tentative = case.six && !case.victim.is_kernels();
        thread::sleep(if is_tentative { STANDS_V6 } else { STANDS });
        return Ok(());
    }
    for _ in 0..FIRST_CALLS {
        if clients::call(server, (1, 1), FIRST_CALL)?.honest() > 0.0 {
            break;
        }
    }
    Ok(())
}

/// Asks in datagrams at both ports, the flooded one first, for as long as the honest calls take.
fn ask(work: &Work<'_>, case: &TrialCase, server: IpAddr) -> Result<[Called; 2], LabError> {
    let client = CLIENTS.get(usize::from(case.six)).and_then(|text| text.split('/').next());
    let client: IpAddr = client.and_then(|text| text.parse().ok()).ok_or(wrong("an address"))?;
    let length = Duration::from_secs_f64(work.calls as f64 / work.hold.honest_rate.max(1) as f64);
    let patience = Duration::from_millis(work.hold.patience_millis);
    let [same, other] =
        [UDP_PORT, QUIET_PORT].map(|port| Questions::new(client, server, vec![port]));
    let (same, other) = (same?, other?);
    thread::scope(|scope| {
        let same = scope.spawn(|| same.ask(length, patience));
        let other = other.ask(length, patience);
        let same = same.join().map_err(|_| wrong("the asking clients panicked"))?;
        Ok([same, other])
    })
}

/// The link address of an interface of the calling thread's namespace.
fn address(name: &str) -> Result<String, LabError> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/address"));
    Ok(text.map_err(wrong)?.trim().to_owned())
}

pub(super) fn wait(stop: &Stop) {
    while !stop.is_triggered() {
        thread::sleep(Duration::from_millis(5));
    }
}

/// What the generator is started with.
pub(super) fn flood_words((mac, device): (&str, &str), case: &TrialCase) -> Vec<String> {
    let TrialCase { flood, six, planned, .. } = *case;
    let (own, to, low, high) = match six {
        false => ("10.77.0.9/24", "10.77.0.2", "11.0.0.0", "95.255.255.255"),
        true => ("fd77::9/64", "fd77::2", "2001:db8::1", "2001:db8:ffff::ffff:ffff"),
    };
    let (proto, port) = match flood {
        Flood::Syn => ("tcp-syn", SYN_PORT),
        Flood::Ack => ("tcp-ack", SYN_PORT),
        Flood::Rst => ("tcp-rst", SYN_PORT),
        Flood::Udp | Flood::Mixed | Flood::Routed | Flood::OnLink => ("udp", UDP_PORT),
    };
    let (least, most) = match (flood, six) {
        (Flood::Routed, false) => ("10.80.0.0", "10.95.255.255"),
        (Flood::Routed, true) => ("fd80::1", "fd80::ffff:ffff:ffff"),
        (Flood::OnLink, false) => ("10.78.1.0", "10.78.255.254"),
        (Flood::OnLink, true) => ("fd78::1:0", "fd78::ffff:ffff:ffff:ffff"),
        _ => (to, to),
    };
    let mut words: Vec<String> = [
        "pktgen",
        "--i-own-this-network",
        "--no-answers",
        "--live",
        "--device",
        &format!("{device}:{VETH_NEAR}"),
        "--address",
        own,
        "--peer",
        mac,
    ]
    .map(str::to_owned)
    .to_vec();
    for set in [
        format!("dst_min {least}"),
        format!("dst_max {most}"),
        format!("src_min {low}"),
        format!("src_max {high}"),
        "flag IPSRC_RND".to_owned(),
        "flag UDPSRC_RND".to_owned(),
        format!("flag {}", if flood.is_transit() { "IPDST_RND" } else { "UDPSRC_RND" }),
        "udp_src_min 1024".to_owned(),
        "udp_src_max 65000".to_owned(),
        format!("udp_dst_min {port}"),
        format!("udp_dst_max {port}"),
        format!("proto {proto}"),
        format!("src_mac {MAC_FLOOD}"),
        "count 0".to_owned(),
        format!("ratep {planned}"),
    ] {
        words.extend(["--set".to_owned(), set]);
    }
    words
}

/// What counts at one moment.
pub(super) struct Moment {
    at: floodwall_base::Instant,
    sent: u64,
    lost: u64,
    idle: u64,
    whole: u64,
}

/// What happened between two moments, a second; and the idle part of the core.
pub(super) struct Between {
    offered: f64,
    arrived: f64,
    idle: f64,
}

impl Moment {
    pub(super) fn now(core: usize) -> Result<Self, LabError> {
        let count = |what: &str| {
            let path = format!("/sys/class/net/{VETH_NEAR}/statistics/{what}");
            let text = std::fs::read_to_string(path).map_err(wrong)?;
            text.trim().parse::<u64>().map_err(wrong)
        };
        let stat = std::fs::read_to_string("/proc/stat").map_err(wrong)?;
        let line = stat.lines().find(|line| line.starts_with(&format!("cpu{core} ")));
        let times: Vec<u64> = line
            .into_iter()
            .flat_map(|line| line.split_whitespace().skip(1))
            .filter_map(|word| word.parse().ok())
            .take(8)
            .collect();
        Ok(Self {
            at: floodwall_dispatch::Clock::new().now(),
            sent: count("tx_packets")?,
            lost: count("tx_dropped")?,
            idle: times.iter().skip(3).take(2).sum(),
            whole: times.iter().sum(),
        })
    }

    pub(super) fn until(&self, later: &Self) -> Between {
        let seconds = (later.at - self.at).as_secs_f64().max(f64::EPSILON);
        let arrived = (later.sent - self.sent) as f64 / seconds;
        let lost = (later.lost - self.lost) as f64 / seconds;
        let whole = (later.whole - self.whole).max(1) as f64;
        let idle = later.idle.saturating_sub(self.idle) as f64 / whole;
        Between { offered: arrived + lost, arrived, idle }
    }
}

/// The middle one; the lower of two.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

impl Trial {
    pub(super) fn of(case: TrialCase, called: Called, between: &Between, stalls: &Stalls) -> Self {
        let (all, honest, p99_millis) = (called.0.len(), called.honest(), called.p99_millis());
        let outside = called.without(stalls);
        Self {
            case,
            honest,
            p99_millis,
            offered: between.offered,
            arrived: between.arrived,
            idle: between.idle,
            stalled: stalls.sum(),
            outside_stalls: outside.honest(),
            spoilt: 1.0 - outside.0.len() as f64 / all.max(1) as f64,
            stamps: None,
            flows: None,
            datagrams: None,
        }
    }

    /// The medians of trials of one case.
    fn middle(trials: &[&Self]) -> Option<Self> {
        let of = |what: fn(&Self) -> f64| median(trials.iter().map(|trial| what(trial)));
        Some(Self {
            honest: of(|trial| trial.honest),
            p99_millis: of(|trial| trial.p99_millis),
            offered: of(|trial| trial.offered),
            arrived: of(|trial| trial.arrived),
            idle: of(|trial| trial.idle),
            spoilt: of(|trial| trial.spoilt),
            outside_stalls: of(|trial| trial.outside_stalls),
            stalled: trials.iter().map(|trial| trial.stalled).max().flatten(),
            flows: trials
                .iter()
                .all(|trial| trial.flows.is_some())
                .then(|| median(trials.iter().filter_map(|trial| trial.flows))),
            datagrams: Datagrams::middle(trials.iter().filter_map(|trial| trial.datagrams)),
            stamps: Stamps::middle(trials.iter().filter_map(|trial| trial.stamps.as_ref())),
            ..(*trials.first()?).clone()
        })
    }
}

impl Datagrams {
    fn of(asked: &[Called; 2]) -> Self {
        let [same_port, other_port] = asked.each_ref().map(Called::honest);
        Self { same_port, other_port }
    }

    fn middle(all: impl Iterator<Item = Self>) -> Option<Self> {
        let all: Vec<Self> = all.collect();
        let of = |what: fn(&Self) -> f64| median(all.iter().map(what));
        let middle =
            Self { same_port: of(|one| one.same_port), other_port: of(|one| one.other_port) };
        (!all.is_empty()).then_some(middle)
    }
}
