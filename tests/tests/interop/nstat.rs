//! What `floodwall run` counts while a Linux host floods a service and a closed port, as programs
//! of others see it: at every moment each packet is accounted for exactly once and no counter runs
//! backwards, and stock `nstat` reads what `floodwall stat --proc-net` writes.
//!
//! `FLOODWALL_DEEP=1` floods for a minute, without a pause.
#![expect(clippy::disallowed_methods, reason = "a flood lasts so long in real time")]

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::attacks::ADDRESSES;
use crate::command::run;
use crate::instance::{Folder, Instance, assert_conserved};
use crate::link::{Kind, MTU};
use crate::namespace::{inside, is_deep, pause, tell};
use crate::site::{Host, Site};

const SERVICE: u16 = 7001;
const CLOSED: u16 = 7002;
/// Datagrams between two pauses of the short form, a millisecond each.
const AT_ONCE: usize = 20;

/// Counters by name.
type Counters = BTreeMap<String, u64>;

fn counters(stat: &Value) -> Counters {
    let all = stat["counters"].as_object().unwrap().iter();
    all.map(|(name, value)| (name.clone(), value.as_u64().unwrap())).collect()
}

/// Sends to the service, of every fourth datagram to a closed port, until `stop` is set; how many
/// of each family were sent.
fn flood(host: &Host, stop: &AtomicBool) -> [u64; 2] {
    host.inside(|| {
        let sockets = [("0.0.0.0:0", "10.77.0.2"), ("[::]:0", "fd77::2")];
        let sockets = sockets.map(|(own, to)| {
            let to: std::net::IpAddr = to.parse().unwrap();
            (UdpSocket::bind(own).unwrap(), to)
        });
        let mut sent = [0; 2];
        while !stop.load(Ordering::Relaxed) {
            for n in 0..AT_ONCE {
                for ((socket, to), sent) in sockets.iter().zip(&mut sent) {
                    let port = if n % 4 == 3 { CLOSED } else { SERVICE };
                    // What the path refused, or an ICMP error reported, was not sent.
                    *sent +=
                        u64::from(socket.send_to(&[7; 64], SocketAddr::new(*to, port)).is_ok());
                }
            }
            if !is_deep() {
                pause(Duration::from_millis(1));
            }
        }
        sent
    })
}

/// What `nstat` reads out of the files that `stat` wrote there; `None`, and said so, where it is
/// missing.
fn read_by_nstat(folder: &Folder) -> Option<Counters> {
    let files = [("SNMP", "snmp"), ("SNMP6", "snmp6"), ("NETSTAT", "netstat")];
    let files = files.map(|(name, file)| format!("PROC_NET_{name}={}", folder.file(file)));
    let history = folder.file("history");
    let words = format!("{} NSTAT_HISTORY={history} nstat -a -s -z", files.join(" "));
    run("nstat", "-V", b"")?;
    let said = run("env", &words, b"")?;
    assert!(said.status.success(), "{}", said.complaint);
    let lines = said.text.lines().filter(|line| !line.starts_with('#'));
    let read = lines.map(|line| {
        let mut words = line.split_whitespace();
        (words.next().unwrap().to_owned(), words.next().unwrap().parse().unwrap())
    });
    Some(read.collect())
}

#[test]
fn through_a_flood_every_look_balances_and_nstat_reads_the_counters() {
    inside(|| {
        let site = Site::new(MTU);
        let host = site.host(9);
        let flags = format!("{ADDRESSES} --service udp-discard:{SERVICE}");
        let Some(instance) = Instance::start(&site, Kind::Tap, &flags) else { return };
        // Our addresses are tentative for a second.
        for ours in ["10.77.0.2", "fd77::2"] {
            assert!(crate::namespace::until(Duration::from_secs(20), || host.is_answered(ours)));
        }
        let length = Duration::from_secs(if is_deep() { 60 } else { 3 });
        let (stop, start) = (AtomicBool::new(false), Instant::now());
        let (sent, looks) = thread::scope(|scope| {
            let flood = scope.spawn(|| flood(&host, &stop));
            let (mut before, mut looks) = (counters(&instance.stat()), 0);
            while start.elapsed() < length {
                let stat = instance.stat();
                assert_conserved(&stat);
                let now = counters(&stat);
                for (name, value) in &now {
                    assert!(*value >= before[name], "{name}: {} and then {value}", before[name]);
                }
                (before, looks) = (now, looks + 1);
                pause(Duration::from_millis(50));
            }
            stop.store(true, Ordering::Relaxed);
            (flood.join().unwrap(), looks)
        });
        let before = counters(&instance.wait_until_idle());
        let folder = Folder::new();
        let said = instance.command(&format!("stat --proc-net {}", folder.file("")));
        assert!(said.status.success(), "{}", said.complaint);
        let after = counters(&instance.stat());
        tell(&format!("{sent:?} sent, {looks} looks in {length:?}"));
        assert!(looks >= 10, "{looks} looks");
        if let Some(read) = read_by_nstat(&folder) {
            assert_eq!(read.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
            for (name, value) in &read {
                assert!((before[name]..=after[name]).contains(value), "{name}: {value}");
            }
            for (family, sent) in ["Udp", "Udp6"].into_iter().zip(sent) {
                let of = |what: &str| read[&format!("{family}{what}")];
                let (taken, closed) = (of("InDatagrams") + of("InErrors"), of("NoPorts"));
                assert!(taken > 1000 && closed > 300, "{family}: {taken} {closed}");
                assert!(taken + closed <= sent, "{family}: {taken} + {closed} of {sent}");
            }
        }
        instance.end();
    });
}
