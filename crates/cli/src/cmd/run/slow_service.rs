//! A slow application on a running instance: a real TAP, workers, control socket and `explain`'s
//! rules. The services of `run` read in the turn in which packets arrive, so that none of them can
//! be slow; here one reads a datagram every few milliseconds.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;

use floodwall_base::{Instant, Units};
use floodwall_stack::{Sockets, StartError};
use rustix::process::{Signal, getpid, kill_process};

use super::*;
use crate::explain::{self, Explanation, TroubleKind};
use crate::rates::ReportDifference;
use crate::socket::client;
use crate::threads::inside;

/// Between two datagrams that the slow service reads.
const PAUSE: Duration = Duration::from_millis(10);

struct SlowService {
    service: UdpService,
    next: Instant,
}

impl Application for SlowService {
    fn name(&self) -> &str {
        self.service.name()
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        self.service.start(sockets)
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, _budget: Units) -> Units {
        if sockets.now() < self.next {
            return Units(0);
        }
        self.next = sockets.now() + PAUSE;
        self.service.run(sockets, Units(1))
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.next)
    }
}

/// The service at port 7001 is slow, that at 7002 is not.
fn make(service: &settings::ServiceWord) -> Box<dyn Application> {
    match service.port {
        7001 => Box::new(SlowService {
            service: UdpService::new(StackService::Discard, 7001),
            next: Instant::ORIGIN,
        }),
        _ => application(service),
    }
}

/// Some datagrams a millisecond to a service, in so many stretches at most, until something is
/// found; what is found.
#[expect(clippy::disallowed_methods, reason = "the test is the kernel's side of a TAP")]
fn explained(socket: &Path, to: &str, stretches: u32) -> Vec<Explanation> {
    let own = if to.starts_with('[') { "[fd00::1]:0" } else { "10.0.0.1:0" };
    let client = UdpSocket::bind(own).unwrap();
    let mut found = Vec::new();
    for _ in 0..stretches {
        let before = client::report(socket).unwrap();
        for _ in 0..700 {
            (0..3).for_each(|_| _ = client.send_to(&[7; 1200], to));
            std::thread::sleep(Duration::from_millis(1));
        }
        let after = client::report(socket).unwrap();
        let between = ReportDifference::new(&before, &after).unwrap();
        assert!(between.counter("UdpInDatagrams") + between.counter("Udp6InDatagrams") > 10.0);
        found = explain::findings(&between);
        if !found.is_empty() {
            break;
        }
    }
    found
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test is the kernel's side of a TAP")]
fn a_slow_service_of_a_running_instance_is_explained_and_its_queue_is_named() {
    inside(|| {
        if std::fs::File::options().write(true).open("/dev/net/tun").is_err() {
            return eprintln!("skipped: needs /dev/net/tun");
        }
        let folder = std::env::temp_dir().join(format!("floodwall-slow-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("s.sock");
        let words = |list: &[&str]| list.iter().map(|&word| word.to_owned()).collect();
        let args = RunArgs {
            device: Some("tap:fw0".to_owned()),
            address: words(&["10.0.0.2/24", "fd00::2/64"]),
            service: words(&["udp-discard:7001", "udp-discard:7002"]),
            socket: Some(socket.clone()),
            ..RunArgs::default()
        };
        let running = std::thread::spawn(move || {
            let settings = settings::load(None, &args).unwrap();
            serve(&settings, &args, make)
        });
        let is_up = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            running.is_finished() || client::report(&socket).is_ok()
        });
        assert!(is_up && !running.is_finished(), "{:?}", running.join());
        for words in
            ["addr add 10.0.0.1/24 dev fw0", "addr add fd00::1/64 dev fw0 nodad", "link set fw0 up"]
        {
            assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success());
        }
        for to in ["10.0.0.2:7001", "[fd00::2]:7001"] {
            let found = explained(&socket, to, 8);
            let first = found.first().expect("a finding");
            let told = (first.kind, first.name.as_str(), first.place.as_str());
            let queue = (TroubleKind::SlowApplication, "UDP receive queue", "[::]:7001");
            assert_eq!(told, queue, "{found:?}");
            assert!(found.len() == 1 && !first.evidence.is_empty(), "{found:?}");
        }
        for to in ["10.0.0.2:7002", "[fd00::2]:7002"] {
            assert_eq!(explained(&socket, to, 1), [], "it keeps up");
        }
        // `serve` has caught it: in its order, as a service manager ends it.
        kill_process(getpid(), Signal::TERM).unwrap();
        running.join().unwrap().unwrap();
        assert!(!socket.exists());
        let _ = std::fs::remove_dir_all(&folder);
    });
}
