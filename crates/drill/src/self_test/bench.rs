//! The bench of a self-test: a cable in a namespace of its own, the kernel at one end, at the other
//! a host of ours on the device under test.
//!
//! The cable is a veth pair for `packet:` and `xdp:`, the device itself for a TUN or TAP. The host
//! is one worker on all queues, with the echo services of UDP and TCP.

use core::time::Duration;
use std::fs;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use floodwall_base::{Family, IfIndex, MacAddr, Randomness};
use floodwall_device::{
    Device, DeviceError, DeviceInfo, DeviceKind, DeviceSpec, FirstLineReport, Medium, OpenConfig,
    OpenedDevice,
};
use floodwall_dispatch::{
    Control, Port, PortReport, Setting, Shown, Stop, WorkerGroup, WorkerGroupConfig,
    WorkerGroupError, WorkerSlot, entropy,
};
use floodwall_packet::PoolConfig;
use floodwall_services::{ServiceKind, TcpService, UdpService};
use floodwall_stack::{
    Application, Host, InterfaceConfig, LinkMedium, Stack, StackConfig, accounts_needed, seats,
};

use super::finding::Findings;
use super::probes;
use super::witness::{Witness, WitnessSeen};
use crate::error::DrillError;
use crate::namespace::{self, ip};

/// Our station.
pub(super) const OUR_STATION: MacAddr = MacAddr([2, 0, 0, 0, 0x5e, 2]);
/// The kernel's end of a veth pair, and its name where the word's is that.
const FAR_INTERFACES: [&str; 2] = ["fwfar0", "fwfar1"];
/// Where we send back what we get.
pub(super) const ECHO_PORT: u16 = 7;
/// How long the worker may take to answer.
pub(super) const WORKER_PATIENCE: Duration = Duration::from_secs(10);
/// GSO frames in the pool.
const SUPERS_POOLED: usize = 64;

/// The addresses of a family: the kernel's, ours.
pub(super) fn ends(family: Family) -> [IpAddr; 2] {
    match family {
        Family::V4 => [[198, 18, 94, 1].into(), [198, 18, 94, 2].into()],
        Family::V6 => [1, 2].map(|n| [0xfd5e, 0, 0, 0, 0, 0, 0, n].into()),
    }
}

const fn length(family: Family) -> u8 {
    match family {
        Family::V4 => 24,
        Family::V6 => 64,
    }
}

/// What the probes use.
pub(super) struct SelfTestBench {
    pub(super) device: DeviceSpec,
    pub(super) info: DeviceInfo,
    pub(super) seen: Arc<WitnessSeen>,
    control: Control<Shown<Host>>,
}

impl SelfTestBench {
    /// Runs a query on the stack; `None` where the worker does not answer.
    pub(super) fn stack<R: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Stack, floodwall_base::Instant) -> R + Send + 'static,
    ) -> Option<R> {
        let asked = self
            .control
            .ask(WORKER_PATIENCE, |desk| what(desk.engine.engine.stack_mut(), desk.now));
        asked.ok()
    }

    /// What each queue has carried.
    pub(super) fn queues(&self) -> Vec<PortReport> {
        self.control.ask(WORKER_PATIENCE, |desk| desk.ports()).unwrap_or_default()
    }
}

/// Runs `what` in a namespace that goes with the thread in which it runs.
pub(super) fn in_namespace<T: Send>(
    way: &DeviceSpec,
    what: impl FnOnce() -> Result<T, DrillError> + Send,
) -> Result<T, DrillError> {
    let tun = matches!(way.kind, DeviceKind::Tun | DeviceKind::Tap);
    namespace::check(tun, "run it as root (sudo)")?;
    std::thread::scope(|scope| {
        let inside = std::thread::Builder::new().name("self-test".to_owned());
        let run = || {
            namespace::enter()?;
            ip(&["link", "set", "lo", "up"])?;
            what()
        };
        let thread = inside.spawn_scoped(scope, run).map_err(|source| DrillError::System {
            action: "start the namespace's thread",
            source,
        })?;
        thread.join().unwrap_or_else(|_| {
            Err(DrillError::WorkerEnded("it panicked; see above, and report it".to_owned()))
        })
    })
}

/// Proves one way of opening a device, in a namespace of its own.
pub(super) fn prove(
    way: &DeviceSpec,
    findings: &mut Findings,
    stop: &AtomicBool,
) -> Result<(), DrillError> {
    super::go_on(stop)?;
    findings.about(way);
    in_namespace(way, || run_inside(way, findings, stop))
}

fn run_inside(
    way: &DeviceSpec,
    findings: &mut Findings,
    stop: &AtomicBool,
) -> Result<(), DrillError> {
    let kernels = lay(way)?;
    let opened = match open(way, None) {
        Ok(opened) => opened,
        Err(error) => {
            findings.fails("open", error.to_string(), "");
            return Ok(());
        }
    };
    tell_opened(findings, &opened);
    address(&kernels)?;
    let (bench, group, ending) = raise(way, opened, None)?;
    let probed = probes::all(&bench, &kernels, findings, stop);
    ending.trigger();
    let ended = group.join()?;
    probed?;
    let words = if ended.is_conserved() {
        "every packet is accounted for once, by the stack and the devices"
    } else {
        "packets are missing from the ledger"
    };
    findings.judge("conservation", ended.is_conserved(), words, "report it, with this output");
    Ok(())
}

/// Opens our end of the cable, for a worker on `core` where it is pinned.
pub(super) fn open(way: &DeviceSpec, core: Option<usize>) -> Result<OpenedDevice, DeviceError> {
    let station = (way.kind != DeviceKind::Tun).then_some(OUR_STATION);
    way.open(&OpenConfig {
        station,
        offload: true,
        cores: core.into_iter().collect(),
        ..OpenConfig::default()
    })
}

/// A host of ours on the opened device, its worker, and what ends it.
pub(super) fn raise(
    way: &DeviceSpec,
    opened: OpenedDevice,
    core: Option<usize>,
) -> Result<(SelfTestBench, WorkerGroup<Shown<Host>>, Stop), DrillError> {
    let seen = Arc::new(WitnessSeen::default());
    let info = opened.queues.first().map(|queue| queue.info().clone());
    let info = info
        .ok_or(DrillError::Missing { what: format!("{way} has no queue"), remedy: "report it" })?;
    let ports = opened.queues.into_iter().map(|queue| Witness::of(queue, &seen));
    let ports = ports.map(|queue| Port::new(IfIndex(1), queue)).collect();
    let ending = Stop::new()
        .map_err(|source| DrillError::System { action: "make a stop signal", source })?;
    let group = start(&info, WorkerSlot { core, ports }, &ending)?;
    let bench = SelfTestBench { device: way.clone(), info, seen, control: group.control() };
    Ok((bench, group, ending))
}

/// Makes the cable where the device is none itself; the name of the kernel's end.
pub(super) fn lay(way: &DeviceSpec) -> Result<String, DrillError> {
    let ours = way.name.as_str();
    if matches!(way.kind, DeviceKind::Tun | DeviceKind::Tap) {
        return Ok(ours.to_owned());
    }
    let far = if ours == FAR_INTERFACES[0] { FAR_INTERFACES[1] } else { FAR_INTERFACES[0] };
    let queues = way.queues.unwrap_or(1).to_string();
    let each = ["numrxqueues", &queues, "numtxqueues", &queues];
    let words = [&["link", "add", ours][..], &each, &["type", "veth", "peer", "name", far], &each];
    ip(&words.concat())?;
    // The kernel is at one end only.
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{ours}/disable_ipv6"), "1");
    ip(&["link", "set", ours, "up"])?;
    Ok(far.to_owned())
}

/// Gives the kernel's end its addresses, which it keeps while the link is down.
pub(super) fn address(kernels: &str) -> Result<(), DrillError> {
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{kernels}/keep_addr_on_down"), "1");
    ip(&["link", "set", kernels, "up"])?;
    for family in crate::topology::FAMILIES {
        let [kernel, _] = ends(family);
        let addr = format!("{kernel}/{}", length(family));
        let words = ["addr", "add", &addr, "dev", kernels];
        let flags: &[&str] = if family == Family::V6 { &["nodad"] } else { &[] };
        ip(&[&words[..], flags].concat())?;
    }
    Ok(())
}

/// How the device was got, and why not better.
pub(super) fn tell_opened(findings: &mut Findings, opened: &OpenedDevice) {
    let Some(first) = opened.queues.first() else { return };
    let (info, queues) = (first.info(), opened.queues.len());
    let medium = match info.medium {
        Medium::Ethernet => "Ethernet",
        Medium::Ip => "IP without link header",
    };
    let plural = if queues == 1 { "queue" } else { "queues" };
    findings.works("open", format!("{medium}, MTU {}, {queues} {plural}", info.mtu));
    for note in &opened.notes {
        if note.starts_with("frames are copied") {
            findings.lacks("zero copy", note, "a card with driver support; all else works without");
        } else if note.starts_with("generic XDP: the driver") {
            let remedy = "a driver that has it, a lower MTU, or fewer queues (`ethtool -L`)";
            findings.lacks("native XDP", note, remedy);
        } else if note.contains("XDP") || note.contains("without a copy") {
            findings.works("mode", note);
        } else {
            findings.lacks("note", note, "");
        }
    }
    tell_first_line(findings, &first.first_line_report());
    let placement = &opened.placement;
    findings.works("the kernel's half", placement.words.clone());
    for lack in &placement.lacks {
        let words = format!("{}: {}", lack.missing, lack.costs);
        findings.lacks("the kernel's half", words, &lack.remedy);
    }
}

/// What of the first line is in force, a part a line, and why the rest is not.
fn tell_first_line(findings: &mut Findings, report: &FirstLineReport) {
    if let Some(reason) = report.common_reason() {
        return findings.lacks("first line", reason, "");
    }
    for (part, state) in &report.parts {
        let words = format!("{}: {}", part.name(), state.reason().unwrap_or(state.name()));
        match state.reason() {
            None => findings.works("first line", words),
            Some(_) => findings.lacks("first line", words, ""),
        }
    }
}

/// One worker on all queues.
fn start(
    info: &DeviceInfo,
    slot: WorkerSlot,
    ending: &Stop,
) -> Result<WorkerGroup<Shown<Host>>, DrillError> {
    let medium = match info.medium {
        Medium::Ethernet => LinkMedium::Ethernet(OUR_STATION),
        Medium::Ip => LinkMedium::Ip,
    };
    let cidr = |family| {
        let [_, ours] = ends(family);
        floodwall_base::IpCidr::new(ours, length(family))
    };
    let interface = InterfaceConfig {
        name: info.name.clone(),
        medium,
        mtu: info.mtu,
        addresses: crate::topology::FAMILIES.into_iter().filter_map(cidr).collect(),
        ..InterfaceConfig::default()
    };
    let config = StackConfig {
        interfaces: vec![interface],
        tcp_connections_max: 64,
        ..StackConfig::default()
    };
    let group = WorkerGroupConfig::new(vec![slot]).map_err(WorkerGroupError::from)?;
    let supers = if info.offload { SUPERS_POOLED } else { 0 };
    let accounts = accounts_needed(&config);
    let group =
        WorkerGroupConfig { memory: PoolConfig { accounts, supers, ..group.memory }, ..group };
    let mut random: Randomness = entropy::randomness().map_err(WorkerGroupError::from)?;
    let seated = seats(&config, &group.domain, group.steering, &mut random.secret);
    let seated = Mutex::new(seated);
    let make = move |setting: &mut Setting<'_>| {
        let seat = seated.lock().ok().and_then(|mut seats| seats.pop());
        let seat = seat.ok_or("a shard is made once")?;
        let Setting { pool, random, now, .. } = setting;
        let stack = Stack::seated(&config, seat, random, *now).map_err(|e| e.to_string())?;
        let services: Vec<Box<dyn Application>> = vec![
            Box::new(UdpService::new(ServiceKind::Echo, ECHO_PORT)),
            Box::new(TcpService::new(ServiceKind::Echo, ECHO_PORT)),
        ];
        let host = Host::with_stack(stack, services, pool, random, *now);
        host.map(Shown::silent).map_err(|e| e.to_string())
    };
    Ok(WorkerGroup::start(group, ending, make)?)
}
