//! The rows of a flooded router: `floodwall run` with forwarding on two interfaces, and the kernel.
//!
//! Called by `trials.rs`. A host behind the router answers questions in a thousand flows that are
//! established before the flood, and another address of it newcomers by TCP; the flood goes to
//! random destinations behind that host, or on its link. Flood, clients and the host are on one
//! core, the router and the kernel's half of its interfaces on the other. Both hosts' ends are as
//! cards are: checksums are complete, and redirected frames arrive.

#![expect(clippy::disallowed_methods, reason = "this part measures real time in real threads")]

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use floodwall_dispatch::{Stop, pin_to_core};
use rustix::thread::gettid;

use super::questions::{self, Questions};
use super::trials::{
    CLIENTS, MAC_OURS, Moment, SERVERS, STANDS, SYN_PORT, Stand, Trial, flood_words, wait, wrong,
};
use super::victims::{self, Running, Victim};
use super::{TrialCase, Work, clients};
use crate::error::LabError;
use crate::experiments::namespace::{self, VETH_FAR, VETH_NEAR};
use crate::experiments::stalls;

/// The router's other interface, and the host's.
const RIGHT: &str = "fwlab3";
const HOST: &str = "fwlab4";
const MAC_RIGHT: &str = "02:00:00:00:77:03";
/// Of each family: the router's address there, the host's, the one for newcomers, and what the host
/// leads to.
const ROUTERS: [&str; 2] = ["10.78.0.1/16", "fd78::1/64"];
const HOSTS: [&str; 2] = ["10.78.0.2/16", "fd78::2/64"];
const NEWCOMERS: [&str; 2] = ["10.78.0.3/16", "fd78::3/64"];
const BEHIND: [&str; 2] = ["10.80.0.0/12", "fd80::/16"];
/// The ports at which the host is asked: a flow for each, and each socket of the clients.
const PORTS: u16 = 20;
const FIRST_PORT: u16 = 7200;
/// When a router stands: it passes that part of the questions of one try, of so many.
const PASSES: f64 = 0.9;
const ONE_TRY: Duration = Duration::from_millis(200);
const TRIES_MAX: u32 = 50;

fn bare(text: &str) -> &str {
    text.split('/').next().unwrap_or_default()
}

fn addr(of: [&str; 2], six: bool) -> Result<IpAddr, LabError> {
    let [v4, v6] = of;
    bare(if six { v6 } else { v4 }).parse().map_err(wrong)
}

/// One trial, in three namespaces of threads that end with it.
pub(super) fn run(stand: &Stand, work: &Work<'_>, case: TrialCase) -> Result<Trial, LabError> {
    let ((near_at, near_is), (host_at, host_is)) = (channel::<i32>(), channel::<i32>());
    let ((near_moved, near_to), (host_moved, host_to)) = (channel(), channel());
    let stop = Stop::new().map_err(wrong)?;
    let stop = &stop;
    thread::scope(|scope| {
        let host = scope.spawn(move || host(stand, (&host_at, &host_to), stop));
        let router = scope.spawn(move || {
            router(stand, &case, [(&near_is, &near_moved), (&host_is, &host_moved)], stop)
        });
        let near = scope.spawn(move || {
            let outcome = near(stand, work, case, (&near_at, &near_to));
            stop.trigger();
            outcome
        });
        let trial = near.join().unwrap_or_else(|_| Err(wrong("the clients panicked")));
        router.join().unwrap_or_else(|_| Err(wrong("the router panicked")))?;
        host.join().unwrap_or_else(|_| Err(wrong("the host panicked")))?;
        trial
    })
}

/// Its end of a cable: addresses, the router for good, and the receive half where the clients are.
fn raise(name: &str, own: &[&str], routers: [&str; 2], mac: &str) -> Result<(), LabError> {
    let mut lines = vec!["link set lo up".to_owned(), format!("link set {name} up")];
    for own in own {
        let nodad = if own.contains(':') { " nodad" } else { "" };
        lines.push(format!("addr add {own} dev {name}{nodad}"));
    }
    for router in routers.map(bare) {
        let flag = if router.contains(':') { "-6" } else { "-4" };
        lines.push(format!("{flag} neigh add {router} lladdr {mac} dev {name} nud permanent"));
        lines.push(format!("{flag} route add default via {router} dev {name}"));
    }
    lines.iter().try_for_each(|words| namespace::ip(words)).map_err(wrong)?;
    namespace::run("ethtool", &format!("-K {name} tso off tx off gro on")).map_err(wrong)
}

/// The host behind the router: services, until the stop.
fn host(
    stand: &Stand,
    (ready, moved): (&Sender<i32>, &Receiver<String>),
    stop: &Stop,
) -> Result<(), LabError> {
    namespace::enter().map_err(wrong)?;
    ready.send(gettid().as_raw_nonzero().get()).map_err(wrong)?;
    let mac = moved.recv().map_err(|_| wrong("the router does not stand"))?;
    pin_to_core(stand.outside).map_err(wrong)?;
    let own: Vec<_> = HOSTS.into_iter().chain(NEWCOMERS).collect();
    raise(HOST, &own, ROUTERS, &mac)?;
    let _ = victims::thread_half(HOST, stand.outside, -20);
    let _ = victims::put_first(HOST);
    let any: SocketAddr = (core::net::Ipv6Addr::UNSPECIFIED, SYN_PORT).into();
    let listener = TcpListener::bind(any).map_err(wrong)?;
    let mut sockets = Vec::new();
    for six in [false, true] {
        let at = addr(HOSTS, six)?;
        for port in FIRST_PORT..FIRST_PORT + PORTS {
            sockets.push(questions::bind(SocketAddr::new(at, port))?);
        }
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.is_triggered() {
                sockets.iter().for_each(questions::answer);
                thread::sleep(Duration::from_micros(500));
            }
        });
        victims::serve((&listener, &[]), stop, stand.outside)
    })
}

/// The router between the cables, until the stop.
fn router(
    stand: &Stand,
    case: &TrialCase,
    [near, host]: [(&Receiver<i32>, &Sender<String>); 2],
    stop: &Stop,
) -> Result<(), LabError> {
    namespace::enter().map_err(wrong)?;
    for ((end, _), own, far) in [(near, VETH_FAR, VETH_NEAR), (host, RIGHT, HOST)] {
        let peer = end.recv().map_err(|_| wrong("an end has no namespace"))?;
        namespace::ip(&format!("link add {far} type veth peer name {own}"))
            .and_then(|()| namespace::ip(&format!("link set {far} netns {peer}")))
            .and_then(|()| namespace::ip(&format!("link set {own} up")))
            .map_err(wrong)?;
    }
    let macs = match case.victim {
        Victim::Kernel => {
            [kernel_half(VETH_FAR, SERVERS, stand)?, kernel_half(RIGHT, ROUTERS, stand)?]
        }
        _ => [MAC_OURS, MAC_RIGHT].map(str::to_owned),
    };
    let _running = match case.victim {
        Victim::Kernel => {
            forward_by_kernel()?;
            None
        }
        victim => Some(ours(stand, victim)?),
    };
    for ((_, moved), mac) in [near, host].into_iter().zip(macs) {
        moved.send(mac).map_err(wrong)?;
    }
    wait(stop);
    Ok(())
}

/// One interface of the kernel's router; its link address.
fn kernel_half(name: &str, own: [&str; 2], stand: &Stand) -> Result<String, LabError> {
    for own in own {
        let nodad = if own.contains(':') { " nodad" } else { "" };
        namespace::ip(&format!("addr add {own} dev {name}{nodad}")).map_err(wrong)?;
    }
    victims::thread_half(name, stand.flooded, 0)?;
    let mac = std::fs::read_to_string(format!("/sys/class/net/{name}/address"));
    Ok(mac.map_err(wrong)?.trim().to_owned())
}

fn forward_by_kernel() -> Result<(), LabError> {
    for switch in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        std::fs::write(format!("/proc/sys/net/{switch}"), "1").map_err(wrong)?;
    }
    let routes = BEHIND.iter().zip(HOSTS);
    let add = |(to, via): (&&str, &str)| format!("route add {to} via {}", bare(via));
    routes.map(add).try_for_each(|words| namespace::ip(&words)).map_err(wrong)
}

fn ours(stand: &Stand, victim: Victim) -> Result<Running, LabError> {
    let side = |name: &str, mac: &str, own: [&str; 2], more: &str| {
        format!(
            "[[interface]]\ndevice = \"{}:{name}\"\nmac = \"{mac}\"\naddress = {own:?}\n{more}",
            victim.name()
        )
    };
    let routes = [0, 1].map(|n: usize| {
        let (to, via) = (BEHIND.get(n).copied().unwrap_or(""), HOSTS.get(n).copied().unwrap_or(""));
        format!("{to} via {}", bare(via))
    });
    let text = format!(
        "cpu = {}\nforwarding = true\n{}{}",
        stand.flooded,
        side(VETH_FAR, MAC_OURS, SERVERS, ""),
        side(RIGHT, MAC_RIGHT, ROUTERS, &format!("route = {routes:?}\n"))
    );
    let file: PathBuf =
        std::env::temp_dir().join(format!("floodwall-lab-{}.toml", std::process::id()));
    std::fs::write(&file, text).map_err(wrong)?;
    let words = ["run", "--config", &file.to_string_lossy()].map(str::to_owned);
    let running = Running::start(&stand.program, &words);
    // Read by now or never.
    thread::sleep(STANDS);
    let _ = std::fs::remove_file(&file);
    running
}

/// The near end: questions in flows that are there, then the flood, then both kinds of clients.
fn near(
    stand: &Stand,
    work: &Work<'_>,
    case: TrialCase,
    (ready, moved): (&Sender<i32>, &Receiver<String>),
) -> Result<Trial, LabError> {
    namespace::enter().map_err(wrong)?;
    ready.send(gettid().as_raw_nonzero().get()).map_err(wrong)?;
    let mac = moved.recv().map_err(|_| wrong("the router does not stand"))?;
    pin_to_core(stand.outside).map_err(wrong)?;
    raise(VETH_NEAR, &CLIENTS, SERVERS, &mac)?;
    let _ = victims::thread_half(VETH_NEAR, stand.outside, -20);
    let _ = victims::put_first(VETH_NEAR);
    let ports: Vec<u16> = (FIRST_PORT..FIRST_PORT + PORTS).collect();
    let flows = Questions::new(addr(CLIENTS, case.six)?, addr(HOSTS, case.six)?, ports)?;
    // Its addresses are tentative for some seconds (RFC 4862, RFC 5227).
    let mut tries = 0..TRIES_MAX;
    if !tries.any(|_| flows.ask(ONE_TRY, ONE_TRY).honest() > PASSES) {
        return Err(wrong(format!("the router ({}) passes nothing", case.victim.name())));
    }
    // The router knows both addresses of the host before the flood: what is judged is forwarding,
    // and not which unknown neighbours are looked for among many.
    let patience = Duration::from_millis(work.hold.patience_millis);
    let newcomers = SocketAddr::new(addr(NEWCOMERS, case.six)?, SYN_PORT);
    if clients::call(newcomers, (1, 1), patience)?.honest() < 1.0 {
        return Err(wrong(format!("the router ({}) passes no newcomer", case.victim.name())));
    }
    let mut flooding = victims::flood(&stand.program, &flood_words((&mac, "xdp"), &case))?;
    thread::sleep(work.rises());
    let length = Duration::from_secs_f64(work.calls as f64 / work.hold.honest_rate.max(1) as f64);
    let before = Moment::now(stand.flooded)?;
    let ((called, kept), stalls) =
        stalls::beside(work.watched(&[stand.outside, stand.flooded]), || {
            thread::scope(|scope| {
                let asking = scope.spawn(|| flows.ask(length, patience));
                let called =
                    clients::call(newcomers, (work.calls, work.hold.honest_rate), patience);
                (called, asking.join().unwrap_or_default())
            })
        });
    let after = Moment::now(stand.flooded)?;
    flooding.goes_on()?;
    drop(flooding);
    Ok(Trial {
        flows: Some(kept.honest()),
        ..Trial::of(case, called?, &before.until(&after), &stalls)
    })
}
