//! A router of the kernel's; its other link becomes narrow under live flows of ours: they learn of
//! it, send smaller packets, and go on; both families.
//!
//! The test's namespace is the router; behind it is a host of its own with an echo service.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use floodwall_base::{Counter, Family, Instant, Units};
use floodwall_stack::{Application, InterfaceConfig, SendError, Sockets, StackConfig, StartError};
use floodwall_udp::{RecvError, SendError as UdpSendError, SocketId, SocketSettings};

use crate::client::Echo;
use crate::command::ip;
use crate::echo::PATIENCE;
use crate::link::{self, Kind, MTU};
use crate::namespace::{inside, set, tell, until};
use crate::running::Running;
use crate::site::{ETH, Host};

/// The router's cable to the host behind it.
const NEAR: &str = "r0";
/// How long a flow waits for an answer, and between one answer and the next question.
const AGAIN: Duration = Duration::from_millis(100);
const PACE: Duration = Duration::from_millis(5);

/// What one flow has seen.
#[derive(Clone, Debug, Default)]
struct Seen {
    answers: u32,
    /// Bytes of the last answer.
    size: usize,
    tries: u32,
    /// What our own stack said is the most that the path carries.
    limits: Vec<usize>,
}

/// Sends one peer requests, with the largest datagrams that it may send.
struct Flow {
    to: SocketAddr,
    /// Its packets must not be fragmented.
    whole: bool,
    size: usize,
    question: u32,
    socket: Option<SocketId>,
    again: Instant,
    seen: Arc<Mutex<Seen>>,
}

/// Bytes of IP's and UDP's headers.
const fn headers(addr: IpAddr) -> usize {
    if addr.is_ipv4() { 28 } else { 48 }
}

impl Flow {
    fn new(to: SocketAddr, whole: bool) -> Self {
        let size = MTU as usize - headers(to.ip());
        let (again, seen) = (Instant::ORIGIN, Arc::default());
        Self { to, whole, size, question: 0, socket: None, again, seen }
    }

    fn ask(&mut self, sockets: &mut Sockets<'_>, socket: SocketId) {
        self.again = sockets.now() + AGAIN;
        let mut seen = self.seen.lock().unwrap();
        // The first answer to "too large" is to be enough; our address may still be tentative.
        for _ in 0..2 {
            let mut bytes = vec![0x5a; self.size];
            bytes[..4].copy_from_slice(&self.question.to_be_bytes());
            match sockets.udp_send(socket, None, &bytes) {
                Err(SendError::Socket(UdpSendError::MessageTooLong { max })) => {
                    seen.limits.push(max);
                    self.size = max;
                }
                Err(_) => {
                    let _ = sockets.udp_connect(socket, self.to);
                    return;
                }
                Ok(()) => {
                    seen.tries += 1;
                    return;
                }
            }
        }
    }

    fn hear(&mut self, sockets: &mut Sockets<'_>, socket: SocketId) {
        let mut room = [0; 2048];
        match sockets.udp_recv(socket, &mut room) {
            Ok(received) if room[..4] == self.question.to_be_bytes() => {
                let mut seen = self.seen.lock().unwrap();
                (seen.answers, seen.size) = (seen.answers + 1, received.len);
                self.question += 1;
                self.again = sockets.now() + PACE;
            }
            // It has the error of the narrow link: it sends again at once.
            Err(RecvError::Icmp(_)) => self.again = sockets.now(),
            Ok(_) | Err(_) => {}
        }
    }
}

impl Application for Flow {
    fn name(&self) -> &str {
        "flow"
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        let (any, family): (SocketAddr, _) = match self.to {
            SocketAddr::V4(_) => ("0.0.0.0:0".parse().unwrap(), Family::V4),
            SocketAddr::V6(_) => ("[::]:0".parse().unwrap(), Family::V6),
        };
        let settings = SocketSettings { dont_fragment: self.whole, ..SocketSettings::new(family) };
        self.socket = Some(sockets.udp_bind(any, settings)?);
        Ok(())
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, _: Units) -> Units {
        let Some(socket) = self.socket else { return Units(0) };
        self.hear(sockets, socket);
        if self.again <= sockets.now() {
            self.ask(sockets, socket);
        }
        Units(1)
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.again)
    }
}

/// The host behind the router, with so many addresses of each family.
fn host_behind(addresses: u8) -> Host {
    let host = Host::at(NEAR, "r1", MTU);
    assert!(ip(&format!("link set {NEAR} up")));
    assert!(ip(&format!("addr add 10.78.0.1/24 dev {NEAR}")));
    assert!(crate::link::give_v6("fd78::1/64", NEAR));
    for switch in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        set(&format!("net/{switch}"), "1");
    }
    // Of the kernel's own limit the test is not about.
    set("net/ipv4/icmp_ratelimit", "0");
    host.inside(|| {
        for n in 2..2 + addresses {
            assert!(ip(&format!("addr add 10.78.0.{n}/24 dev {ETH}")));
            assert!(crate::link::give_v6(&format!("fd78::{n}/64"), ETH));
        }
        assert!(ip("route add default via 10.78.0.1") && ip("route add default via fd78::1"));
    });
    host
}

/// The link behind the router carries no more than this from now on.
fn narrow(host: &Host, mtu: u32) {
    assert!(ip(&format!("link set {NEAR} mtu {mtu}")));
    host.inside(|| assert!(ip(&format!("link set {ETH} mtu {mtu}"))));
}

fn a_narrow_hop(kind: Kind) {
    let host = host_behind(2);
    let far = ["10.78.0.2", "10.78.0.3", "fd78::2", "fd78::3"].map(|a| a.parse().unwrap());
    // One for each address, from which it answers.
    let servers = far.map(|addr: IpAddr| host.inside(|| UdpSocket::bind((addr, 0)).unwrap()));
    let ends = servers.each_ref().map(|server| server.local_addr().unwrap());
    let _servers = servers.map(Echo::start);
    let flows = ends.map(|to| Flow::new(to, to.ip() == far[0] || to.ip() == far[2]));
    let watched = flows.each_ref().map(|flow| (flow.to.ip(), flow.whole, flow.seen.clone()));
    let seen = || watched.each_ref().map(|(_, _, seen)| seen.lock().unwrap().clone());

    let Some(device) = link::open(kind, kind.usual_offload()) else { return };
    let gateways = vec!["10.77.0.1".parse().unwrap(), "fd77::1".parse().unwrap()];
    let interface = InterfaceConfig { gateways, ..link::interface(kind, MTU) };
    let config =
        StackConfig { interfaces: vec![interface], udp_sockets_max: 64, ..StackConfig::default() };
    let applications = flows.into_iter().map(|flow| Box::new(flow) as Box<dyn Application>);
    let running = Running::start(config, device, applications.collect());
    running.wait_for_addresses();

    let mut learnt = 0;
    for mtu in [MTU, 1400, 1300] {
        if mtu != MTU {
            narrow(&host, mtu);
            // No router cuts what left whole, of either family; of IPv4, a fragment is cut again
            // without an error.
            learnt += if mtu == 1400 { 4 } else { 3 };
        }
        let before = seen();
        let goes_on = || {
            let pairs = || seen().into_iter().zip(&before).zip(&watched);
            pairs().all(|((now, before), (addr, whole, _))| {
                let size = if *whole { mtu } else { MTU } as usize - headers(*addr);
                now.answers >= before.answers + 20 && now.size == size
            })
        };
        assert!(until(PATIENCE, goes_on), "{mtu}: {before:#?}, then {:#?}", seen());
        let counters = running.stats().counters;
        assert_eq!(counters.of(Counter::FloodwallExceptionsLearnt), learnt, "{mtu}");
    }
    let end = running.stop();
    for (seen, (addr, whole, _)) in seen().into_iter().zip(&watched) {
        tell(&format!("{addr}: {} answers of {} tries", seen.answers, seen.tries));
        let told =
            if *whole { [1400, 1300].map(|mtu| mtu - headers(*addr)).to_vec() } else { vec![] };
        assert_eq!(seen.limits, told, "{addr} got an error of our own stack, once for each");
    }
    let count = |counter| end.stats.counters.of(counter);
    let cut = [Counter::IpFragOKs, Counter::Ip6FragOKs].map(count);
    assert!(cut.iter().all(|cut| *cut > 20), "packets that may be fragmented are: {cut:?}");
}

/// A ping from behind the narrow link loses the reply for which the router sends an error.
fn a_narrow_hop_for_replies(kind: Kind) {
    let host = host_behind(1);
    narrow(&host, 1300);
    let Some(device) = link::open(kind, kind.usual_offload()) else { return };
    let gateways = vec!["10.77.0.1".parse().unwrap(), "fd77::1".parse().unwrap()];
    let interface = InterfaceConfig { gateways, ..link::interface(kind, MTU) };
    let config = StackConfig { interfaces: vec![interface], ..StackConfig::default() };
    let running = Running::start(config, device, vec![]);
    running.wait_for_addresses();
    for ours in ["10.77.0.2", "fd77::2"] {
        let words = format!("-n -i 0.2 -W 2 -c 10 -s 1430 {ours}");
        let Some(said) = host.inside(|| crate::command::run("ping", &words, b"")) else { return };
        let lost: Vec<_> =
            (1..=10).filter(|n| !said.text.contains(&format!("icmp_seq={n} ttl="))).collect();
        assert_eq!(lost, [1], "{ours}: {} {}", said.text, said.complaint);
    }
    let end = running.stop();
    assert_eq!(end.stats.counters.of(Counter::FloodwallExceptionsLearnt), 2);
}

#[test]
fn a_router_with_a_narrow_link_lowers_the_path_of_echo_replies() {
    inside(|| a_narrow_hop_for_replies(Kind::Tap));
}

#[test]
fn a_router_with_a_narrow_link_lowers_the_path_of_live_flows_over_tap() {
    inside(|| a_narrow_hop(Kind::Tap));
}

#[test]
fn a_router_with_a_narrow_link_lowers_the_path_of_live_flows_over_a_packet_socket() {
    inside(|| a_narrow_hop(Kind::Packet));
}
