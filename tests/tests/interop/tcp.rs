//! TCP with real clients: bytes both ways, curl, wrk, ab, nc, socat, a redis-benchmark; and us as a
//! client of python's web server.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use floodwall_base::DropReason;
use floodwall_device::{FaultConfig, FaultRates};
use floodwall_services::{ServiceKind, StreamKind, StreamService, TcpService};
use floodwall_stack::Application;

use crate::bench::Bench;
use crate::command::{Process, Said, ip, run};
use crate::link::{Ends, Kind, NAME, ends};
use crate::namespace::{inside, is_deep, pause, skip, until};

pub(crate) const ECHO: u16 = 7;
const DISCARD: u16 = 9;
pub(crate) const CHARGEN: u16 = 19;
pub(crate) const HTTP: u16 = 80;
const BULK: u16 = 5001;
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs one scenario with all TCP services, in a namespace of its own.
pub(crate) fn over(kind: Kind, scenario: fn(Bench)) {
    over_a_link(kind, kind.usual_offload(), None, scenario);
}

pub(crate) fn over_a_link(
    kind: Kind,
    offload: bool,
    fault: Option<FaultConfig>,
    scenario: fn(Bench),
) {
    inside(move || {
        let services: Vec<Box<dyn Application>> = vec![
            Box::new(TcpService::new(ServiceKind::Echo, ECHO)),
            Box::new(TcpService::new(ServiceKind::Discard, DISCARD)),
            Box::new(StreamService::new(StreamKind::Chargen, CHARGEN)),
            Box::new(StreamService::new(StreamKind::Http, HTTP)),
            Box::new(StreamService::new(StreamKind::Bulk, BULK)),
        ];
        if let Some(bench) = Bench::with(kind, offload, fault, services) {
            scenario(bench);
        }
    });
}

pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The `at`th byte of a stream that repeats only after a long time.
pub(crate) fn byte(at: usize) -> u8 {
    (at ^ at >> 8 ^ at >> 16) as u8
}

/// Sends so many bytes and gets the same back, at once.
pub(crate) fn there_and_back(to: SocketAddr, len: usize) {
    let stream = connect(to);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut at = 0;
            while at < len {
                let piece: Vec<u8> = (at..len).take(100_000).map(byte).collect();
                (&stream).write_all(&piece).unwrap();
                at += piece.len();
            }
            stream.shutdown(Shutdown::Write).unwrap();
        });
        let (mut at, mut room) = (0, vec![0; 100_000]);
        while let n @ 1.. = (&stream).read(&mut room).unwrap() {
            let wrong = room[..n].iter().enumerate().find(|(i, found)| **found != byte(at + i));
            assert_eq!(wrong, None, "behind byte {at}");
            at += n;
        }
        assert_eq!(at, len);
    });
}

/// Nothing that the window advertised was refused.
fn end(bench: Bench) {
    let end = bench.running.stop();
    end.outcome.as_ref().expect("it was asked to end");
    assert_eq!(end.stats.drops_in.of(DropReason::TcpReceiveFull), 0);
}

pub(crate) fn megabytes(bench: Bench) {
    let len = if is_deep() { 1 << 30 } else { 4 << 20 };
    for Ends { ours, .. } in ends() {
        there_and_back(SocketAddr::new(ours, ECHO), len);
    }
    end(bench);
}

/// One packet in a hundred is lost each way, and as many are overtaken, some by more than the
/// peer's patience.
#[test]
fn every_byte_comes_back_over_a_link_that_loses_and_reorders() {
    let rates = FaultRates { loss: 0.01, reordering: 0.01, distance: 5, ..FaultRates::default() };
    let fault = FaultConfig { seed: 78, rx: rates, tx: rates };
    over_a_link(Kind::Tun, false, Some(fault), |bench| {
        let len = if is_deep() { 1 << 30 } else { 4 << 20 };
        for Ends { ours, .. } in ends() {
            there_and_back(SocketAddr::new(ours, ECHO), len);
        }
        let end = bench.running.stop();
        let stats = end.outcome.expect("it was asked to end").ports[0].stats;
        assert!(stats.rx_injected > 0 && stats.tx_injected > 0);
    });
}

/// What only goes one way: up, down, and characters without end until the reader goes.
pub(crate) fn one_way(bench: Bench) {
    const LEN: usize = 2 << 20;
    for Ends { ours, .. } in ends() {
        let mut up = connect(SocketAddr::new(ours, BULK));
        up.write_all(&vec![1; LEN]).unwrap();
        up.shutdown(Shutdown::Write).unwrap();
        let mut told = String::new();
        up.read_to_string(&mut told).unwrap();
        assert_eq!(told, format!("received {LEN}\n"));

        let mut down = connect(SocketAddr::new(ours, BULK));
        down.write_all(format!("send {LEN}\n").as_bytes()).unwrap();
        let mut found = Vec::new();
        down.read_to_end(&mut found).unwrap();
        let line = |at: usize| b' ' + (at % 95) as u8;
        assert!(found.len() == LEN && (0..LEN).all(|at| found[at] == line(at)));

        let mut endless = connect(SocketAddr::new(ours, CHARGEN));
        endless.read_exact(&mut found[..100_000]).unwrap();
        assert!((0..100_000).all(|at| found[at] == line(at)));
        drop(endless);
        let mut unheard = connect(SocketAddr::new(ours, DISCARD));
        unheard.write_all(&found).unwrap();
        unheard.shutdown(Shutdown::Write).unwrap();
        assert_eq!(unheard.read(&mut [0]).unwrap(), 0);
    }
    end(bench);
}

fn url(ours: std::net::IpAddr, path: &str) -> String {
    format!("http://{}{path}", SocketAddr::new(ours, HTTP))
}

pub(crate) fn curl(bench: Bench) {
    for Ends { ours, .. } in ends() {
        let page = run("curl", &format!("-s -S -m 20 {}", url(ours, "/")), b"");
        let Some(page) = page else { return };
        assert!(page.text.contains("It works"), "{} {}", page.text, page.complaint);
        // Several by one connection, each whole.
        let (one, two) = (url(ours, "/bytes/300000"), url(ours, "/bytes/7"));
        let words = format!("-s -S -m 20 -w %{{http_code}}.%{{num_connects}}; {one} {two}");
        let both = run("curl", &words, b"").unwrap();
        assert_eq!(both.text.len(), 300_000 + 7 + 2 * 6, "{}", both.complaint);
        assert!(both.text.ends_with("200.0;"), "the second takes no new connection");
        let missing = format!("-s -o /dev/null -m 20 -w %{{http_code}} {}", url(ours, "/none"));
        assert_eq!(run("curl", &missing, b"").unwrap().text, "404");
    }
    end(bench);
}

pub(crate) fn netcat(bench: Bench) {
    let lines = "a line of text\n".repeat(5000);
    for Ends { ours, .. } in ends() {
        let Some(said) = run("nc", &format!("-N {ours} {ECHO}"), lines.as_bytes()) else { return };
        assert!(said.text == lines, "{} bytes, {}", said.text.len(), said.complaint);
        let to = SocketAddr::new(ours, ECHO);
        let Some(said) = run("socat", &format!("-t 10 - TCP:{to}"), lines.as_bytes()) else {
            continue;
        };
        assert!(said.text == lines, "{} bytes, {}", said.text.len(), said.complaint);
    }
    end(bench);
}

/// An application that enables keepalive gets answers; the session survives silence.
pub(crate) fn idle_session(bench: Bench) {
    let Ends { ours, .. } = ends()[0];
    let mut idle = connect(SocketAddr::new(ours, ECHO));
    let quiet = Duration::from_secs(if is_deep() { 120 } else { 2 });
    let socket = rustix::fd::AsFd::as_fd(&idle);
    rustix::net::sockopt::set_socket_keepalive(socket, true).unwrap();
    rustix::net::sockopt::set_tcp_keepidle(socket, Duration::from_secs(1)).unwrap();
    rustix::net::sockopt::set_tcp_keepintvl(socket, Duration::from_secs(1)).unwrap();
    rustix::net::sockopt::set_tcp_keepcnt(socket, 1).unwrap();
    pause(quiet);
    idle.write_all(b"still there?").unwrap();
    let mut room = [0; 12];
    idle.read_exact(&mut room).unwrap();
    assert_eq!(&room, b"still there?");
    end(bench);
}

/// wrk for so many seconds, and as long again.
fn wrk(words: &str, seconds: u64) -> Option<Said> {
    let process = Process::start("wrk", words, b"")?;
    Some(process.wait(PATIENCE + 2 * Duration::from_secs(seconds)))
}

/// wrk and ab: hundreds of connections at a time, kept and new ones, without an error.
#[test]
fn wrk_and_ab_meet_no_error() {
    over(Kind::Tap, |bench| {
        let seconds = if is_deep() { 60 } else { 1 };
        for Ends { ours, .. } in ends() {
            let at = url(ours, "/");
            let words = format!("-t 1 -c 256 -d {seconds}s {at}");
            if let Some(said) = wrk(&words, seconds) {
                assert!(said.status.success(), "{}", said.complaint);
                assert!(
                    !said.text.contains("errors") && !said.text.contains("Non-2xx"),
                    "{}",
                    said.text
                );
                let rate = said.text.lines().find(|line| line.contains("Requests/sec"));
                crate::namespace::tell(&format!("wrk {ours}: {}", rate.unwrap_or("nothing")));
            }
            for keep in ["-k ", ""] {
                let Some(said) = run("ab", &format!("-q {keep}-n 1000 -c 32 {at}"), b"") else {
                    continue;
                };
                assert!(said.has_words("Complete requests: 1000"), "{}", said.complaint);
                assert!(said.has_words("Failed requests: 0"), "{}", said.text);
            }
        }
        end(bench);
    });
}

/// An example that cargo has built beside this test; `None`, and said so, where it has not.
pub(crate) fn example(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let path = own.parent()?.parent()?.join("examples").join(name);
    if !path.exists() {
        skip(&format!("there is no {}: `cargo test --workspace` builds it", path.display()));
        return None;
    }
    Some(path)
}

/// Starts an example on a TAP and gives the kernel its address there.
fn start(name: &str, words: &str) -> Option<Process> {
    let path = example(name)?;
    let process = Process::start(path.to_str()?, &format!("tap:{NAME} 10.77.0.2/24 {words}"), b"")?;
    let is_up = || ip(&format!("addr replace 10.77.0.1/24 dev {NAME}"));
    assert!(until(PATIENCE, is_up), "{name} makes its device");
    Some(process)
}

/// Waits until a listener is there.
fn wait_for(port: u16) {
    let to = SocketAddr::new("10.77.0.2".parse().unwrap(), port);
    let listens = || TcpStream::connect_timeout(&to, Duration::from_secs(1)).is_ok();
    assert!(until(PATIENCE, listens), "no listener at {to}");
}

#[test]
fn the_axum_example_serves_wrk_without_an_error() {
    inside(|| {
        let Some(server) = start("axum_hello", "") else { return };
        wait_for(8080);
        let page = run("curl", "-s -S -m 20 http://10.77.0.2:8080/bytes/1000000", b"");
        assert!(page.is_none_or(|page| page.text.len() == 1_000_000));
        let seconds = if is_deep() { 60 } else { 1 };
        let words = format!("-t 1 -c 256 -d {seconds}s http://10.77.0.2:8080/");
        if let Some(said) = wrk(&words, seconds) {
            assert!(said.status.success(), "{}", said.complaint);
            assert!(
                !said.text.contains("errors") && !said.text.contains("Non-2xx"),
                "{}",
                said.text
            );
        }
        server.kill();
    });
}

#[test]
fn redis_benchmark_runs_against_the_resp_example() {
    inside(|| {
        let Some(server) = start("resp_server", "") else { return };
        wait_for(6379);
        let words = "-h 10.77.0.2 -t ping_mbulk,set,get -n 2000 -c 50 -P 4 --csv";
        if let Some(said) = run("redis-benchmark", words, b"") {
            assert!(said.status.success(), "{}", said.complaint);
            assert!(
                said.text.contains("\"SET\"") && said.text.contains("\"GET\""),
                "{}",
                said.text
            );
        }
        server.kill();
    });
}

/// We ask, python answers.
#[test]
fn our_client_fetches_from_pythons_web_server() {
    inside(|| {
        let words = "-m http.server 8000 --bind 0.0.0.0 --directory /etc";
        let Some(server) = Process::start("python3", words, b"") else { return };
        let Some(path) = example("tcp_client") else {
            server.kill();
            return;
        };
        assert!(until(PATIENCE, || TcpStream::connect(("127.0.0.1", 8000)).is_ok()));
        // The device is there before the client, so that the kernel has its address.
        assert!(ip(&format!("tuntap add dev {NAME} mode tap")));
        assert!(
            ip(&format!("addr add 10.77.0.1/24 dev {NAME}")) && ip(&format!("link set {NAME} up"))
        );
        let words = format!("tap:{NAME} 10.77.0.2/24 10.77.0.1:8000 /hostname");
        let said = run(path.to_str().unwrap(), &words, b"").unwrap();
        let expected = std::fs::read_to_string("/etc/hostname").unwrap();
        assert!(said.text.ends_with(&expected), "{} {}", said.text, said.complaint);
        assert!(said.text.contains("200 OK"), "{}", said.text);
        server.kill();
    });
}
