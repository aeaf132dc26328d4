//! `floodwall run` as a router between two hosts of the kernel's, over TAP and packet sockets.
//!
//! Two bridges in the test's own namespace are the links, each with one host in a namespace of its
//! own and one of our interfaces; the right one carries 1,300 bytes only. Both families: ping,
//! traceroute, the path's MTU found, cut packets, a stream, a page; two next hops; and a host
//! configured only by our advertisements. Reading: RFC 1812, RFC 8201, RFC 4861 (6.2).

use std::time::Duration;

use serde_json::Value;

use crate::binary::floodwall;
use crate::command::{Process, Said, ip, run, shown_by_ip};
use crate::instance::{Folder, assert_conserved};
use crate::link::Kind;
use crate::namespace::{has_interface, inside, set, skip, until};
use crate::site::{ETH, Host};
use crate::supers;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// What the right link carries.
const NARROW: u32 = 1300;

/// One side: its bridge, its host, our interface.
pub(crate) struct Side {
    name: &'static str,
    mtu: u32,
}

pub(crate) const SIDES: [Side; 2] =
    [Side { name: "l", mtu: 1500 }, Side { name: "r", mtu: NARROW }];

impl Side {
    /// What `floodwall run` calls our interface.
    fn device(&self, kind: Kind) -> String {
        let word = if kind == Kind::Packet { "packet" } else { "tap" };
        format!("{word}:{}", self.interface(kind))
    }

    /// Our interface, as the kernel calls it.
    pub(crate) fn interface(&self, kind: Kind) -> String {
        format!("{}{}", if kind == Kind::Packet { 'g' } else { 'f' }, self.name)
    }

    /// Makes the bridge, plugs a host in, and where it is a packet socket, our cable.
    fn lay(&self, kind: Kind) -> Host {
        let Self { name, mtu } = self;
        assert!(ip(&format!("link add sw{name} type bridge mcast_snooping 0 forward_delay 0")));
        assert!(ip(&format!("link set sw{name} mtu {mtu} up")));
        let host = Host::alone();
        assert!(ip(&format!("link add h{name} type veth peer name e{name}")));
        host.take(&format!("e{name}"), *mtu);
        self.plug(&format!("h{name}"));
        if kind == Kind::Packet {
            assert!(ip(&format!("link add f{name} type veth peer name g{name}")));
            assert!(ip(&format!("link set g{name} mtu {mtu} up")));
            self.plug(&format!("f{name}"));
        }
        host
    }

    fn plug(&self, interface: &str) {
        let (name, mtu) = (self.name, self.mtu);
        assert!(ip(&format!("link set {interface} master sw{name} mtu {mtu} up")), "{interface}");
    }
}

/// The router, and a host on each side of it.
pub(crate) struct Scene {
    process: Process,
    binary: &'static str,
    socket: String,
    pub(crate) hosts: [Host; 2],
    kind: Kind,
    folder: Folder,
}

impl Scene {
    /// Lays both links and starts the router with `left` beside the left interface's settings;
    /// `None`, and said so, where this machine cannot.
    pub(crate) fn new(kind: Kind, left: &str) -> Option<Self> {
        let folder = Folder::new();
        for conf in ["all", "default"] {
            set(&format!("net/ipv6/conf/{conf}/disable_ipv6"), "1");
        }
        let hosts = SIDES.map(|side| side.lay(kind));
        let [l, r] = SIDES.map(|side| (side.device(kind), side.mtu));
        let text = format!(
            "forwarding = true\n\
             [[interface]]\ndevice = \"{}\"\nmtu = {}\n\
             address = [\"10.77.1.1/24\", \"fd77:1::1/64\"]\nrp_filter = \"strict\"\n{left}\n\
             [[interface]]\ndevice = \"{}\"\nmtu = {}\n\
             address = [\"10.77.2.1/24\", \"fd77:2::1/64\"]\n",
            l.0, l.1, r.0, r.1
        );
        std::fs::write(folder.file("router.toml"), text).unwrap();
        Self::start(kind, folder, hosts)
    }

    /// Starts a router with the folder's configuration between these hosts.
    fn start(kind: Kind, folder: Folder, hosts: [Host; 2]) -> Option<Self> {
        let binary = floodwall()?.to_str()?;
        let (socket, file) = (folder.file("control"), folder.file("router.toml"));
        let words = format!("run --config {file} --socket {socket}");
        let process = Process::start(binary, &words, b"")?;
        let mut scene = Self { process, binary, socket, hosts, kind, folder };
        let stands = until(PATIENCE, || scene.look().is_some() || scene.process.has_ended());
        assert!(stands, "it never answers");
        if scene.process.has_ended() {
            skip(&format!("the router does not start: {}", scene.process.end().complaint));
            return None;
        }
        if kind == Kind::Tap {
            SIDES.iter().for_each(|side| side.plug(&side.interface(kind)));
        }
        Some(scene)
    }

    /// The next run of it, on the same interfaces between the same hosts: behind one that was asked
    /// to end, or that was killed.
    pub(crate) fn again(self, is_killed: bool) -> Option<Self> {
        let Self { process, hosts, kind, folder, .. } = self;
        if is_killed {
            process.kill();
            // What it would have taken away.
            let _ = std::fs::remove_file(folder.file("control"));
        } else {
            ended_well(process.end());
        }
        if kind == Kind::Tap {
            let gone = || SIDES.iter().all(|side| !has_interface(&side.interface(kind)));
            assert!(until(PATIENCE, gone));
        }
        Self::start(kind, folder, hosts)
    }

    /// Memory that it holds, in KiB.
    pub(crate) fn resident(&self) -> u64 {
        crate::instance::resident(self.process.id())
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    pub(crate) fn look(&self) -> Option<Value> {
        let said = run(self.binary, &format!("stat --json --socket {}", self.socket), b"")?;
        said.status.success().then(|| serde_json::from_str(&said.text).unwrap())
    }

    /// Gives both hosts their addresses and us as their router.
    pub(crate) fn configure(&self) {
        for (n, host) in [1, 2].into_iter().zip(&self.hosts) {
            host.inside(|| {
                assert!(ip(&format!("addr add 10.77.{n}.2/24 dev {ETH}")));
                assert!(crate::link::give_v6(&format!("fd77:{n}::2/64"), ETH));
                assert!(ip(&format!("route add default via 10.77.{n}.1")));
                assert!(ip(&format!("-6 route add default via fd77:{n}::1")));
            });
        }
    }

    /// Ends the router, which reports that every packet is accounted for exactly once. The hosts
    /// stay.
    pub(crate) fn end(self) -> [Host; 2] {
        let stat = self.look().expect("it answers");
        assert_conserved(&stat);
        ended_well(self.process.end());
        self.hosts
    }
}

fn ended_well(said: Said) {
    assert_eq!(said.status.code(), Some(0), "{}", said.complaint);
    assert!(
        said.complaint.contains("every packet is accounted for exactly once"),
        "{}",
        said.complaint
    );
}

/// The output of one of the kernel's commands on a host; empty where it is missing.
fn said(host: &Host, program: &str, words: &str) -> Option<String> {
    host.inside(|| run(program, words, b"")).map(|said| said.text + &said.complaint)
}

fn between_two_hosts(kind: Kind) {
    inside(move || {
        let Some(scene) = Scene::new(kind, "") else { return };
        scene.configure();
        let [left, right] = &scene.hosts;
        for (router, to, family) in [("10.77.1.1", "10.77.2.2", 4), ("fd77:1::1", "fd77:2::2", 6)] {
            assert!(until(PATIENCE, || left.is_answered(to)), "{to} answers");
            if let Some(path) = said(left, "traceroute", &format!("-n -q 1 -w 3 -m 4 {to}")) {
                let hops: Vec<_> = path.lines().skip(1).map(str::trim).collect();
                assert!(hops.len() == 2 && hops[0].contains(router), "{path}");
                assert!(hops[1].contains(to), "{path}");
            }
            // Too big for the right link: an error is sent, and accepted by the kernel.
            let big = format!("-n -q -c 3 -i 0.1 -w 3 -M do -s 1400 {to}");
            let lost = said(left, "ping", &big).unwrap_or_default();
            let route = left.inside(|| shown_by_ip(&format!("-{family} route get {to}")));
            assert!(route.contains("mtu 1300"), "{route} {lost}");
            let fits = format!("-n -q -c 2 -i 0.1 -w 3 -M do -s 1200 {to}");
            assert!(left.inside(|| run("ping", &fits, b"")).is_none_or(|s| s.status.success()));
            stream(left, right, to);
            page(left, right, to);
            iperf(left, right, to);
            supers::through_a_router(left, right, to);
        }
        supers::through_a_router(right, left, "10.77.1.2");
        supers::through_a_router(right, left, "fd77:1::2");
        for anycast in ["fd77:1::", "fd77:2::"] {
            assert!(until(PATIENCE, || left.is_answered(anycast)), "{anycast} is any router");
        }
        // From the right nothing is too big for the left; what may be cut is.
        let cut = "-n -q -c 2 -i 0.1 -w 3 -M dont -s 1400 10.77.2.2";
        left.inside(|| assert!(ip("route flush cache")));
        assert!(left.inside(|| run("ping", cut, b"")).is_none_or(|s| s.status.success()));
        let stat = scene.look().expect("it answers");
        let count = |name: &str| stat["counters"][name].as_u64().unwrap_or(0);
        assert!(count("IpForwDatagrams") > 10 && count("Ip6OutForwDatagrams") > 10, "{stat:#}");
        assert!(count("Icmp6OutPktTooBigs") > 0 && count("IcmpOutTimeExcds") > 0, "{stat:#}");
        scene.end();
    });
}

/// A stream of 200 KiB from one host to the other arrives whole.
fn stream(from: &Host, to: &Host, addr: &str) {
    let payload = vec![b'x'; 200 * 1024];
    let (family, port) = if addr.contains(':') { ("-6", 7106) } else { ("-4", 7104) };
    let words = format!("{family} -l -N {port}");
    let Some(server) = to.inside(|| Process::start("nc", &words, b"")) else { return };
    let is_there = |text: &str| text.contains(&format!(":{port}"));
    let listens = || to.inside(|| run("ss", "-ltn", b"")).is_none_or(|said| is_there(&said.text));
    assert!(until(PATIENCE, listens));
    let client = from.inside(|| run("nc", &format!("-N -w 5 {addr} {port}"), &payload));
    assert!(client.is_some_and(|said| said.status.success()), "{addr}");
    assert_eq!(server.wait(PATIENCE).text.len(), payload.len(), "{addr}");
}

/// What `iperf3` sends arrives: a second of a stream, but what was under way when its sender had
/// enough (which its receiver does not count), and each of its datagrams. On a machine that is busy
/// the receiver's buffer may be full before it has a core: then they are sent again.
fn iperf(from: &Host, to: &Host, addr: &str) {
    let report = iperf_once(from, to, addr, ("-t 1", 5204));
    let received = |report: &Value| report["end"]["sum_received"]["bytes"].as_u64();
    assert!(report.is_none_or(|report| received(&report) >= Some(1 << 20)), "{addr}");
    let mut seen = Vec::new();
    for _ in 0..DATAGRAM_TRIES {
        let words = ("-u -n 1M -b 20M -l 1200", 5205);
        let Some(report) = iperf_once(from, to, addr, words) else { return };
        let sum = &report["end"]["sum"];
        assert!(sum["packets"].as_u64() > Some(800), "{addr}: {sum:#}");
        if sum["lost_packets"].as_u64() == Some(0) {
            return;
        }
        seen.push(sum.to_string());
    }
    panic!("{addr}: some are lost each time: {seen:#?}");
}

/// How often datagrams are sent until none is lost.
const DATAGRAM_TRIES: usize = 6;

/// The report of one run of `iperf3` with these words on this port; `None` without the program.
fn iperf_once(from: &Host, to: &Host, addr: &str, (words, port): (&str, u16)) -> Option<Value> {
    let listen = format!("-s -1 -p {port} -B {addr} --forceflush");
    let server = to.inside(|| Process::start("iperf3", &listen, b""))?;
    let is_there = |text: &str| text.contains(&format!(":{port}"));
    let listens = || to.inside(|| run("ss", "-ltn", b"")).is_none_or(|said| is_there(&said.text));
    assert!(until(PATIENCE, listens));
    let client = format!("-c {addr} -p {port} {words} -J");
    let said = from.inside(|| run("iperf3", &client, b"")).expect("the server is there");
    assert!(said.status.success(), "{addr} {words}: {} {}", said.text, said.complaint);
    server.wait(PATIENCE);
    Some(serde_json::from_str(&said.text).unwrap())
}

/// A page that `curl` on one host fetches from the other.
fn page(from: &Host, to: &Host, addr: &str) {
    let body = "y".repeat(40_000);
    let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let (family, port) = if addr.contains(':') { ("-6", 8086) } else { ("-4", 8084) };
    let answer = (head + &body).into_bytes();
    let words = format!("{family} -l -N {port}");
    let Some(server) = to.inside(|| Process::start("nc", &words, &answer)) else { return };
    let is_there = |text: &str| text.contains(&format!(":{port}"));
    let listens = || to.inside(|| run("ss", "-ltn", b"")).is_none_or(|said| is_there(&said.text));
    assert!(until(PATIENCE, listens));
    let at = if addr.contains(':') { format!("[{addr}]") } else { addr.to_owned() };
    let fetched = from.inside(|| run("curl", &format!("-s -m 10 http://{at}:{port}/"), b""));
    if let Some(fetched) = fetched {
        assert!(fetched.status.success() && fetched.text == body, "{addr}");
    }
    server.kill();
}

/// Two hosts on the right have the same networks behind them; each flow keeps to one of them.
fn over_two_next_hops(kind: Kind) {
    inside(move || {
        let Some(scene) = Scene::new(kind, "") else { return };
        scene.configure();
        let other = Host::alone();
        assert!(ip("link add hs type veth peer name es"));
        other.take("es", NARROW);
        SIDES[1].plug("hs");
        other.inside(|| {
            assert!(ip(&format!("addr add 10.77.2.3/24 dev {ETH}")));
            assert!(crate::link::give_v6("fd77:2::3/64", ETH));
            assert!(ip("route add default via 10.77.2.1"));
            assert!(ip("-6 route add default via fd77:2::1"));
        });
        let [left, right] = &scene.hosts;
        for host in [right, &other] {
            host.inside(|| {
                assert!(ip("route add local 10.77.9.0/24 dev lo"));
                assert!(ip("-6 route add local fd77:9::/64 dev lo"));
            });
        }
        for way in [
            "10.77.9.0/24 nexthop via 10.77.2.2 nexthop via 10.77.2.3",
            "fd77:9::/64 nexthop via fd77:2::2 nexthop via fd77:2::3",
        ] {
            let words = format!("route --socket {} add {way}", scene.socket);
            let said = run(scene.binary, &words, b"").expect("the command is there");
            assert!(said.status.success(), "{way}: {}", said.complaint);
        }
        for net in ["10.77.9.", "fd77:9::"] {
            let before = [right, &other].map(|host| host.received());
            for host in 1..=16 {
                let to = format!("{net}{host}");
                assert!(until(PATIENCE, || left.is_answered(&to)), "{to} answers");
            }
            let after = [right, &other].map(|host| host.received());
            for (before, after) in before.into_iter().zip(after) {
                assert!(after - before >= 4, "{net}: both had a part: {before} to {after}");
            }
        }
        scene.end();
    });
}

fn advertised_to_a_host(kind: Kind) {
    inside(move || {
        let said_to_hosts = "advertise = { prefix = [\"fd77:1::/64\"], \
            route = [\"fd77:2::/64\"], lifetime = 1800, interval = 600 }";
        let Some(scene) = Scene::new(kind, said_to_hosts) else { return };
        let [left, right] = &scene.hosts;
        right.inside(|| {
            assert!(crate::link::give_v6("fd77:2::2/64", ETH));
            assert!(ip("-6 route add default via fd77:2::1"));
        });
        left.inside(|| {
            // Again up, the host solicits routers.
            assert!(ip(&format!("link set {ETH} down")));
            for (switch, value) in [("accept_ra", "2"), ("router_solicitations", "5")] {
                set(&format!("net/ipv6/conf/{ETH}/{switch}"), value);
            }
            assert!(ip(&format!("link set {ETH} up")));
        });
        let configured = || {
            let (addrs, routes) = left.inside(|| {
                (shown_by_ip(&format!("-6 addr show dev {ETH}")), shown_by_ip("-6 route show"))
            });
            addrs.contains("inet6 fd77:1") && routes.contains("default via fe80::")
        };
        assert!(until(PATIENCE, configured), "the host has an address and a router");
        assert!(until(PATIENCE, || left.is_answered("fd77:2::2")), "and reaches the other side");
        let [left, _right] = scene.end();
        // A router that ceases to be one advertises this.
        let gone = || !left.inside(|| shown_by_ip("-6 route show")).contains("default via");
        assert!(until(PATIENCE, gone), "no default route is left");
    });
}

/// The script with which such floods were first measured, its two addresses lost as they are: what
/// it leaves open is given beside it, and it is not waited for to the end of its ten million.
const CLASSIC: &str = include_str!("../../../crates/pktgen/src/script/classic.sh");

/// What the script sends from the left host passes the router, in frames of the script's size.
fn classic_script(kind: Kind) {
    inside(move || {
        let Some(scene) = Scene::new(kind, "") else { return };
        scene.configure();
        let [left, right] = &scene.hosts;
        assert!(until(PATIENCE, || left.is_answered("10.77.2.2")));
        let way = format!("route --socket {} add 10.80.0.0/12 via 10.77.2.2", scene.socket);
        let added = run(scene.binary, &way, b"").expect("the command is there");
        assert!(added.status.success(), "{}", added.complaint);
        let script = scene.folder.file("classic.sh");
        std::fs::write(&script, CLASSIC).unwrap();
        let file = scene.folder.file("words.sh");
        let line = format!(
            "exec {} pktgen {script} --device packet:{ETH} --address 10.77.1.9/24 \\\n\
             --gateway 10.77.1.1 --set 'dst_min 10.80.0.0' --set 'dst_max 10.95.255.255' \\\n\
             --seconds 1 --seed 1 --i-own-this-network -j\n",
            scene.binary
        );
        std::fs::write(&file, line).unwrap();
        let before = right.received();
        let said = left.inside(|| run("sh", &file, b"")).expect("a shell");
        assert!(said.status.success(), "{}", said.complaint);
        assert!(said.complaint.contains("Configuring /proc/net/pktgen/eth0"), "{}", said.complaint);
        let report: Value = serde_json::from_str(&said.text).unwrap();
        let sent = report["frames"].as_u64().unwrap_or(0);
        let bytes = report["bytes"].as_u64().unwrap_or(0);
        assert!(sent >= 1000 && bytes == 60 * sent, "{report:#}");
        let passed = || right.received() - before;
        assert!(until(PATIENCE, || passed() >= 1000), "{} of {sent}", passed());
        let kept = scene.look().expect("it answers")["neighbours"].as_array().unwrap().len();
        assert!(kept < 16, "{kept} neighbours: nothing is kept for a destination");
        scene.end();
    });
}

#[test]
fn hosts_talk_through_a_router_on_taps() {
    between_two_hosts(Kind::Tap);
}

#[test]
fn hosts_talk_through_a_router_on_packet_sockets() {
    between_two_hosts(Kind::Packet);
}

#[test]
fn flows_take_both_of_two_next_hops_on_taps() {
    over_two_next_hops(Kind::Tap);
}

#[test]
fn flows_take_both_of_two_next_hops_on_packet_sockets() {
    over_two_next_hops(Kind::Packet);
}

#[test]
fn a_host_is_configured_by_our_advertisements_on_taps() {
    advertised_to_a_host(Kind::Tap);
}

#[test]
fn a_host_is_configured_by_our_advertisements_on_packet_sockets() {
    advertised_to_a_host(Kind::Packet);
}

#[test]
fn the_classic_script_runs_as_it_is_written_through_a_router_on_taps() {
    classic_script(Kind::Tap);
}

#[test]
fn the_classic_script_runs_as_it_is_written_through_a_router_on_packet_sockets() {
    classic_script(Kind::Packet);
}
