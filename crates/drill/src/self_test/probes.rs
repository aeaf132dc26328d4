//! What the kernel at the other end of the cable does with us, and what must come of it.
//!
//! Called by `bench.rs` in its namespace. Every probe is bounded in packets and time.

use core::time::Duration;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use floodwall_base::{Family, IfIndex, Randomness};
use floodwall_device::{DeviceStats, XdpMode};
use floodwall_dispatch::Clock;

use super::bench::{ECHO_PORT, SelfTestBench, WORKER_PATIENCE, ends};
use super::finding::Findings;
use crate::error::DrillError;
use crate::namespace::ip;
use crate::topology::FAMILIES;

/// Pings of a family.
const PINGS_SENT: usize = 20;
/// Sockets that send datagrams, each a flow: enough for each of several queues to have some.
const FLOW_SOCKETS: usize = 48;
/// How long one answer may take.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes there and back by TCP; fewer where GSO frames are dropped in generic mode and each is
/// waited for by a timer of the sender's.
const STREAM_BYTES: usize = 1 << 18;
const BYTES_GENERIC: usize = 1 << 16;
/// How long the link is down.
const LINK_DOWN_TIME: Duration = Duration::from_millis(200);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// All of them, in an order in which each finds what it needs.
pub(super) fn all(
    bench: &SelfTestBench,
    kernels: &str,
    findings: &mut Findings,
    stop: &AtomicBool,
) -> Result<(), DrillError> {
    if !until(|| addresses_stand(bench)) {
        findings.fails("addresses", "ours were not usable in time", "report it");
        return Ok(());
    }
    let probes: [fn(&SelfTestBench, Family, &mut Findings); 3] = [ping, echo, tcp];
    for probe in probes {
        for family in FAMILIES {
            super::go_on(stop)?;
            probe(bench, family, findings);
        }
    }
    unfinished(bench, findings);
    super_frames(bench, findings);
    queues(bench, findings);
    losses(bench, findings);
    super::go_on(stop)?;
    flap(bench, kernels, findings)
}

pub(super) fn addresses_stand(bench: &SelfTestBench) -> bool {
    let stand = bench.stack(|stack, _| {
        let mut all = stack.interfaces().iter().flat_map(|interface| interface.addresses());
        all.all(|address| address.state.is_assigned())
    });
    stand.unwrap_or(false)
}

/// Waits until something is so, for a while; whether it became so.
#[expect(clippy::disallowed_methods, reason = "the kernel is waited for in real time")]
pub(super) fn until(mut is_so: impl FnMut() -> bool) -> bool {
    let clock = Clock::new();
    let end = clock.now() + WORKER_PATIENCE;
    loop {
        if is_so() {
            return true;
        }
        if clock.now() > end {
            return false;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// By family.
const fn named(family: Family, names: [&'static str; 2]) -> &'static str {
    match family {
        Family::V4 => names[0],
        Family::V6 => names[1],
    }
}

/// How many of so many pings are answered; `None` where there is no `ping`.
fn pinged(to: IpAddr, count: usize) -> Option<usize> {
    let count = count.to_string();
    let words = ["-n", "-c", &count, "-i", "0.01", "-w", "5", &to.to_string()];
    let said = Command::new("ping").args(words).env("LC_ALL", "C").output().ok()?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    Some(text.lines().filter(|line| line.contains(" bytes from ")).count())
}

fn ping(_: &SelfTestBench, family: Family, findings: &mut Findings) {
    let check = named(family, ["ping IPv4", "ping IPv6"]);
    let [_, ours] = ends(family);
    match pinged(ours, PINGS_SENT) {
        None => findings.lacks(check, "the command `ping` is missing", "install iputils-ping"),
        Some(answers) => {
            let words = format!("{answers} of {PINGS_SENT} answered");
            findings.judge(check, answers >= PINGS_SENT, words, "look at the losses below");
        }
    }
}

/// Datagrams of many flows and sizes, there and back.
fn echo(bench: &SelfTestBench, family: Family, findings: &mut Findings) {
    let check = named(family, ["UDP IPv4", "UDP IPv6"]);
    let [kernel, ours] = ends(family);
    let header = if family == Family::V4 { 28 } else { 48 };
    let largest = (bench.info.mtu as usize).saturating_sub(header);
    let (mut sent, mut back) = (0, 0);
    let mut room = vec![0; largest + 1];
    for flow in 0..FLOW_SOCKETS {
        let Ok(socket) = UdpSocket::bind((kernel, 0)) else { continue };
        let _ = socket.set_read_timeout(Some(ANSWER_PATIENCE));
        for len in [0, 1, 701, largest] {
            let payload: Vec<u8> = (0..len).map(|at| (at * 31 + flow) as u8).collect();
            sent += 1;
            let answer = socket
                .send_to(&payload, (ours, ECHO_PORT))
                .and_then(|_| socket.recv(&mut room))
                .ok()
                .and_then(|len| room.get(..len));
            back += usize::from(answer == Some(&payload[..]));
        }
    }
    let words = format!("{back} of {sent} datagrams of {FLOW_SOCKETS} flows came back whole");
    findings.judge(check, sent > 0 && back == sent, words, "look at the losses below");
}

/// Some bytes there and back by one connection.
fn tcp(bench: &SelfTestBench, family: Family, findings: &mut Findings) {
    let check = named(family, ["TCP IPv4", "TCP IPv6"]);
    let [_, ours] = ends(family);
    let is_generic = bench.device.mode == XdpMode::Generic;
    let bytes = if is_generic { BYTES_GENERIC } else { STREAM_BYTES };
    match there_and_back(ours, bytes) {
        Ok(true) => findings.works(check, format!("{} KiB there and back", bytes >> 10)),
        Ok(false) => findings.fails(check, "other bytes came back", "report it"),
        Err(error) => findings.fails(check, error.to_string(), "look at the losses below"),
    }
}

fn there_and_back(to: IpAddr, bytes: usize) -> std::io::Result<bool> {
    let stream = TcpStream::connect_timeout(&(to, ECHO_PORT).into(), ANSWER_PATIENCE)?;
    stream.set_read_timeout(Some(WORKER_PATIENCE))?;
    stream.set_write_timeout(Some(WORKER_PATIENCE))?;
    let sent: Vec<u8> = (0..bytes).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect();
    std::thread::scope(|scope| {
        let writer = std::thread::Builder::new().spawn_scoped(scope, || {
            (&stream).write_all(&sent)?;
            stream.shutdown(std::net::Shutdown::Write)
        })?;
        let mut back = Vec::with_capacity(bytes);
        (&stream).read_to_end(&mut back)?;
        let wrote = writer.join().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()));
        wrote.map(|()| back == sent)
    })
}

/// Whether the kernel left checksums to us, and we coped: all of the above came back.
fn unfinished(bench: &SelfTestBench, findings: &mut Findings) {
    let count = bench.seen.unfinished.load(Ordering::Relaxed);
    let check = "unfinished checksums";
    if count > 0 {
        let words = format!("{count} packets of the kernel's came with one, no ethtool needed");
        findings.works(check, words);
    } else {
        findings.lacks(check, "the kernel finished every one by itself", "nothing");
    }
}

/// Segments that travel as one, where the device carries such.
fn super_frames(bench: &SelfTestBench, findings: &mut Findings) {
    let check = "GSO frames";
    let count = bench.seen.supers.load(Ordering::Relaxed);
    match (bench.info.offload, count) {
        (true, 0) => findings.fails(
            check,
            "the device carries such, and none came with all that TCP",
            "look whether segmentation is switched off at the kernel's end (`ethtool -k`)",
        ),
        (true, count) => findings.works(check, format!("{count} packets longer than the link's")),
        (false, _) => {
            let remedy = "use tap: where bulk matters more than the rate of packets";
            findings.lacks(check, "this kind of device carries none", remedy);
        }
    }
}

fn queues(bench: &SelfTestBench, findings: &mut Findings) {
    let check = "each queue used";
    let all: Vec<_> = bench.queues().iter().map(|port| port.stats.rx_packets).collect();
    let words = all.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let words = format!("packets by queue: {words}");
    let used = all.iter().filter(|packets| **packets > 0).count();
    let is_generic = bench.device.mode == XdpMode::Generic;
    if is_generic && used > 0 && used + 1 == all.len() && all.last() == Some(&0) {
        // It takes the sender's queue n for n - 1.
        let remedy = "native mode; nothing is lost by it";
        return findings.lacks(check, format!("{words}; so the kernel fills a veth's"), remedy);
    }
    let is_so = used > 0 && used == all.len();
    findings.judge(check, is_so, words, "open fewer (`queues=`), or ask the driver why");
}

/// What the device counts as lost, which is nothing where it works. A GSO frame that finds no
/// room in generic mode is no surprise.
fn losses(bench: &SelfTestBench, findings: &mut Findings) {
    let check = "the device's losses";
    let mut all = DeviceStats::default();
    bench.queues().iter().for_each(|port| all.merge(&port.stats));
    let is_generic = bench.device.mode == XdpMode::Generic;
    if is_generic && all.rx_truncated > 0 {
        let words = format!(
            "{} GSO frames of TCP dropped: in generic mode what was joined, or not split yet, \
             fits into no frame of ours",
            all.rx_truncated
        );
        let remedy = "native mode; or no joining here (`ethtool -K INTERFACE gro off`), and at \
                      the other end of a veth no `tso` and `gso`";
        findings.lacks("GSO frames", words, remedy);
        all.rx_truncated = 0;
    }
    let lost = all.rx_lost() + all.tx_lost();
    let counts = all.named().into_iter().skip(4).filter(|(_, count)| *count > 0);
    let words: Vec<_> = counts.map(|(name, count)| format!("{name} {count}")).collect();
    let words = if lost == 0 { "none".to_owned() } else { words.join(", ") };
    findings.judge(check, lost == 0, words, "docs/operating.md explains each counter");
}

/// The link falls and rises: our side goes on without a new start.
#[expect(clippy::disallowed_methods, reason = "the kernel runs in real time")]
fn flap(bench: &SelfTestBench, kernels: &str, findings: &mut Findings) -> Result<(), DrillError> {
    let carrier = |is_there| {
        bench.stack(move |stack, now| {
            let mut random = Randomness::from_number(now.as_nanos());
            stack.set_carrier(IfIndex(1), is_there, now, &mut random);
        });
    };
    ip(&["link", "set", &bench.device.name, "down"])?;
    carrier(false);
    std::thread::sleep(LINK_DOWN_TIME);
    ip(&["link", "set", &bench.device.name, "up"])?;
    ip(&["link", "set", kernels, "up"])?;
    carrier(true);
    let again = FAMILIES.map(|family| {
        let [_, ours] = ends(family);
        let mut is_there = true;
        let answered = until(|| match pinged(ours, 1) {
            Some(answers) => answers > 0,
            None => {
                is_there = false;
                true
            }
        });
        (answered, is_there)
    });
    let check = "link down and up";
    if again.iter().any(|(_, is_there)| !is_there) {
        findings.lacks(check, "the command `ping` is missing", "install iputils-ping");
        return Ok(());
    }
    let both = again.iter().all(|(answered, _)| *answered);
    let words = if both { "both families are answered again" } else { "silence after it" };
    findings.judge(check, both, words, "open the device anew; report it");
    Ok(())
}
