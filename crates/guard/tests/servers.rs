//! Servers as Debian has them behind the guard: nginx, sshd and redis, unchanged.
//!
//! Each is a process of the test's own with its files in a folder of the test's own. A server that
//! is not installed is skipped, with its package. `FLOODWALL_DEEP=1`: 300 MB in place of 20, the
//! whole matrix of options, and the rate of requests beside that of a direct connection.

use std::hash::{DefaultHasher, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::rig::{self, Flood, Rig, config, counted, server, skip, start};
use floodwall_guard::Watch;

const PATIENCE: Duration = Duration::from_secs(10);
const NGINX: u16 = 8080;
const REDIS: u16 = 6379;
const SSHD: u16 = 2222;
/// A second port of nginx.
const SECOND: u16 = 8081;

fn is_deep() -> bool {
    std::env::var_os("FLOODWALL_DEEP").is_some()
}

/// A server process with a folder, both gone with the test.
struct Server {
    child: Child,
    folder: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        // nginx ends its workers; the others have none.
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn folder(name: &str) -> PathBuf {
    // Of its own for each server: tests of one process run at once.
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let name = format!("floodwall-{name}-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

impl Server {
    /// Starts it and waits until it listens; `None`, with the reason printed, where it is not
    /// installed.
    fn start(package: &str, folder: PathBuf, command: &mut Command, port: u16) -> Option<Self> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = quiet.spawn() else {
            skip(&format!("no {package}"));
            let _ = std::fs::remove_dir_all(folder);
            return None;
        };
        let mut running = Self { child, folder };
        for v6 in [false, true] {
            let listens = (0..1000).any(|_| {
                assert!(running.child.try_wait().unwrap().is_none(), "{package} has ended");
                std::thread::sleep(Duration::from_millis(10));
                TcpStream::connect(server(v6, port)).is_ok()
            });
            assert!(listens, "{package} does not listen");
        }
        Some(running)
    }
}

fn nginx(port: u16, bytes: usize) -> Option<(Server, u64)> {
    let folder = folder("nginx");
    let mut hasher = DefaultHasher::new();
    let text: Vec<u8> =
        (0..bytes as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    hasher.write(&text);
    std::fs::write(folder.join("large"), text).unwrap();
    std::fs::write(folder.join("small"), "a small file\n").unwrap();
    configure_nginx(&folder, "master_process off;", &format!("listen {port}; listen [::]:{port};"));
    Some((start_nginx(folder, port)?, hasher.finish()))
}

/// Writes the file that nginx reads at its start and when it is reloaded.
fn configure_nginx(folder: &Path, head: &str, listens: &str) {
    let here = folder.display();
    let config = format!(
        "daemon off; {head} pid {here}/pid; error_log {here}/error; user root;
         events {{ worker_connections 512; }}
         http {{ access_log off; keepalive_requests 1000000; client_body_temp_path {here}/b;
         proxy_temp_path {here}/p; fastcgi_temp_path {here}/f; uwsgi_temp_path {here}/u;
         scgi_temp_path {here}/s; server {{ {listens} root {here}; }} }}"
    );
    std::fs::write(folder.join("conf"), config).unwrap();
}

fn start_nginx(folder: PathBuf, port: u16) -> Option<Server> {
    let mut command = Command::new("/usr/sbin/nginx");
    command.arg("-c").arg(folder.join("conf"));
    Server::start("nginx (Debian: nginx-light)", folder, &mut command, port)
}

fn redis() -> Option<Server> {
    let folder = folder("redis");
    let mut command = Command::new("redis-server");
    command.args(["--port", "6379", "--bind", "*", "-::*", "--save", "", "--protected-mode", "no"]);
    command.arg("--dir").arg(&folder);
    Server::start("redis-server (Debian: redis-server)", folder, &mut command, REDIS)
}

fn sshd() -> Option<Server> {
    let folder = folder("sshd");
    let key = folder.join("key");
    let mut make = Command::new("ssh-keygen");
    make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key);
    if !make.status().is_ok_and(|status| status.success()) {
        skip("no sshd (Debian: openssh-server)");
        return None;
    }
    let separated = std::path::Path::new("/run/sshd");
    if !separated.exists() {
        // sshd refuses to start without; it is empty, and an installed one makes it at its start.
        std::fs::create_dir(separated).unwrap();
    }
    let mut command = Command::new("/usr/sbin/sshd");
    command.args(["-D", "-e", "-f", "/dev/null", "-o", "PidFile=none", "-o", "Port=2222", "-h"]);
    command.arg(&key);
    Server::start("sshd (Debian: openssh-server)", folder, &mut command, SSHD)
}

/// A request on a connection that stays, and the hash of the answer's body.
fn get(stream: &mut BufReader<TcpStream>, path: &str) -> u64 {
    let request = format!("GET /{path} HTTP/1.1\r\nHost: here\r\n\r\n");
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    let (mut length, mut line) = (0, String::new());
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).unwrap();
        if let Some(text) = line.to_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
    }
    let (mut hasher, mut bytes) = (DefaultHasher::new(), vec![0; length]);
    stream.read_exact(&mut bytes).unwrap();
    hasher.write(&bytes);
    hasher.finish()
}

fn connected(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// A turn of requests: how many a second, and the time that one in a hundred exceeds, in
/// microseconds.
fn turn(to: SocketAddr, keeps: bool) -> (f64, f64) {
    let mut stream = BufReader::new(connected(to));
    let count = if keeps { 4000 } else { 1000 };
    let began = Instant::now();
    let mut times: Vec<_> = (0..count)
        .map(|_| {
            let from = Instant::now();
            if !keeps {
                stream = BufReader::new(connected(to));
            }
            get(&mut stream, "small");
            from.elapsed()
        })
        .collect();
    let rate = f64::from(count) / began.elapsed().as_secs_f64();
    times.sort_unstable();
    (rate, times[times.len() * 99 / 100].as_secs_f64() * 1e6)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Rate and 99th percentile direct and guarded, in turns; printed.
fn beside_direct(rig: &Rig, v6: bool, keeps: bool, (what, watch): (&str, Watch)) {
    let to = server(v6, NGINX);
    let (mut direct, mut guarded) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        direct.push(rig.run(move || turn(to, keeps)));
        let Some(_guard) = start(config(&[NGINX], watch)) else { return };
        guarded.push(rig.run(move || turn(to, keeps)));
    }
    let of = |all: &[(f64, f64)], n: usize| {
        median(all.iter().map(|it| if n == 0 { it.0 } else { it.1 }).collect())
    };
    let best = |all: &[(f64, f64)]| all.iter().map(|it| it.0).fold(0.0, f64::max);
    println!(
        "IPv6 {v6}, {}, {what}: medians {:.0} and {:.0} requests/s, {:.3} (best {:.3}); 99 % \
         within {:.0} and {:.0} us",
        if keeps { "one connection" } else { "a connection a request" },
        of(&direct, 0),
        of(&guarded, 0),
        of(&guarded, 0) / of(&direct, 0),
        best(&guarded) / best(&direct),
        of(&direct, 1),
        of(&guarded, 1),
    );
}

/// What requests cost behind the guard. It prints, and judges nothing.
#[test]
fn nginx_is_as_fast_as_without_the_guard() {
    if !is_deep() {
        return skip("it measures: FLOODWALL_DEEP=1");
    }
    let Some(rig) = Rig::new() else { return };
    // Ends that TIME-WAIT holds would go to the kernel.
    rig::sysctl("ipv4/tcp_max_tw_buckets", "0");
    rig.run(|| rig::sysctl("ipv4/tcp_max_tw_buckets", "0"));
    let Some(_nginx) = nginx(NGINX, 1000) else { return };
    for v6 in [false, true] {
        for keeps in [true, false] {
            let asleep = ("asleep", Watch::Backlog { shift: 2 });
            beside_direct(&rig, v6, keeps, asleep);
            beside_direct(&rig, v6, keeps, ("awake", Watch::Always));
        }
    }
}

/// Client sysctls of the matrix: timestamps, SACK, scale, ECN. A cookie without timestamps has no
/// room for ECN.
fn rows() -> Vec<[&'static str; 4]> {
    let bit = |n: usize, of: usize| if n >> of & 1 == 0 { "1" } else { "0" };
    let ecn = |n: usize| if n >> 3 == 0 { "2" } else { "1" };
    let all = (0..16).map(|n| [bit(n, 0), bit(n, 1), bit(n, 2), ecn(n)]);
    let short = [["1", "1", "1", "2"], ["0", "1", "1", "2"], ["1", "1", "1", "1"]];
    all.filter(|row| (row[0], row[3]) != ("0", "1"))
        .filter(|row| is_deep() || short.contains(row))
        .collect()
}

/// What both ends of a connection to each port have agreed on, row by row, with the row before it.
fn ends(rig: &Rig, ports: &[u16]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for row in rows() {
        rig.run(move || {
            let names = ["tcp_timestamps", "tcp_sack", "tcp_window_scaling", "tcp_ecn"];
            names
                .iter()
                .zip(row)
                .for_each(|(name, value)| rig::sysctl(&format!("ipv4/{name}"), value));
        });
        for (port, v6) in ports.iter().flat_map(|port| [(*port, false), (*port, true)]) {
            let (client, here, stream) = rig.run(move || {
                let mut stream = connected(server(v6, port));
                let line = match port {
                    NGINX => "GET /small HTTP/1.1\r\nHost: here\r\n\r\n",
                    REDIS => "PING\r\n",
                    _ => "SSH-2.0-floodwall\r\n",
                };
                stream.write_all(line.as_bytes()).unwrap();
                assert!(stream.read(&mut [0; 1]).unwrap() > 0);
                let own = stream.local_addr().unwrap().port();
                (rig::agreed(&format!("sport = :{own}")), own, stream)
            });
            let words = format!("state established sport = :{port} dport = :{here}");
            let mut all = vec![format!("{row:?}, port {port}, IPv6 {v6}")];
            all.extend(client);
            all.push("and".to_owned());
            all.extend(rig::agreed(&words));
            found.push(all);
            drop(stream);
        }
    }
    found
}

#[test]
fn real_servers_agree_on_what_they_would_without_the_guard() {
    let Some(rig) = Rig::new() else { return };
    let Some(_nginx) = nginx(NGINX, 1000) else { return };
    let (Some(_redis), Some(_sshd)) = (redis(), sshd()) else { return };
    let ports = [NGINX, REDIS, SSHD];
    let direct = ends(&rig, &ports);
    assert!(direct[0].iter().filter(|word| *word == "sack").count() == 2, "{:?}", direct[0]);
    let Some(guard) = start(config(&ports, Watch::Always)) else { return };
    let guarded = ends(&rig, &ports);
    for (direct, guarded) in direct.iter().zip(&guarded) {
        assert_eq!(direct, guarded);
    }
    println!("{} rows are equal at both ends", direct.len());
    assert_eq!(counted(&guard, "adopted"), guarded.len() as u64);
}

#[test]
fn nginx_serves_large_files_whole_and_many_requests_a_connection() {
    let Some(rig) = Rig::new() else { return };
    let port = NGINX;
    let bytes = if is_deep() { 300_000_000 } else { 20_000_000 };
    let Some((_nginx, hash)) = nginx(port, bytes) else { return };
    let Some(guard) = start(config(&[port], Watch::Always)) else { return };
    for v6 in [false, true] {
        let to = server(v6, port);
        let got = rig.run(move || {
            let mut stream = BufReader::new(connected(to));
            let first = get(&mut stream, "small");
            assert_eq!(get(&mut stream, "small"), first);
            get(&mut stream, "large")
        });
        assert_eq!(got, hash, "the file is whole, IPv6 {v6}");
        println!("IPv6 {v6}: {bytes} bytes, equal by hash");
    }
    assert!(counted(&guard, "adopted") >= 2);
    assert_eq!(counted(&guard, "not_adopted"), 0);
}

#[test]
fn redis_answers_behind_the_guard() {
    let Some(rig) = Rig::new() else { return };
    let port = REDIS;
    let Some(_redis) = redis() else { return };
    let Some(guard) = start(config(&[port], Watch::Always)) else { return };
    for v6 in [false, true] {
        let answers = rig.run(move || {
            let mut stream = connected(server(v6, port));
            let mut answers: Vec<u8> = Vec::new();
            // One segment with several commands, right behind the ACK that proves it.
            stream.write_all(b"PING\r\nSET a 1\r\nINCR a\r\n").unwrap();
            while answers.len() < 16 {
                let mut bytes = [0; 64];
                let len = stream.read(&mut bytes).unwrap();
                answers.extend(&bytes[..len]);
            }
            answers
        });
        assert_eq!(answers, b"+PONG\r\n+OK\r\n:2\r\n");
    }
    assert_eq!(counted(&guard, "adopted"), 2);
}

/// What nginx listens on at its n-th configuration: one more worker each time, each with a socket
/// of its own in the group of the port, and every other time a second port. Never a worker less:
/// nginx closes its socket, and resets what waits there to be accepted.
fn reconfigure(folder: &Path, n: usize) {
    let listens = |port: u16| format!("listen {port} reuseport; listen [::]:{port} reuseport;");
    let second = if n % 2 == 1 { listens(SECOND) } else { String::new() };
    let head = format!("worker_processes {};", n + 1);
    configure_nginx(folder, &head, &(listens(NGINX) + &second));
}

/// Requests of the client's, each on a connection of its own, until `ended`: how many, and how many
/// of them failed.
fn requests(to: SocketAddr, ended: &AtomicBool) -> (usize, usize) {
    let (mut asked, mut failed) = (0, 0);
    while !ended.load(Ordering::Relaxed) {
        let got = std::panic::catch_unwind(|| get(&mut BufReader::new(connected(to)), "small"));
        asked += 1;
        failed += usize::from(got.is_err());
    }
    (asked, failed)
}

/// New listeners, and new members of groups of them, are found by the next SYN.
#[test]
fn nginx_loses_no_client_while_it_is_reloaded_under_a_flood() {
    let Some(rig) = Rig::new() else { return };
    assert!(rig::ip(&format!("route add 198.18.0.0/15 via {}", rig::CLIENT.0)));
    assert!(rig::ip(&format!("route add 2001:db8::/32 via {}", rig::CLIENT.1)));
    let folder = folder("reload");
    std::fs::write(folder.join("small"), "a small file\n").unwrap();
    reconfigure(&folder, 0);
    let Some(nginx) = start_nginx(folder.clone(), NGINX) else { return };
    let master = rustix::process::Pid::from_raw(nginx.child.id().cast_signed()).unwrap();
    let Some(guard) = start(config(&[NGINX, SECOND], Watch::Always)) else { return };
    for v6 in [false, true] {
        let ended = Arc::new(AtomicBool::new(false));
        let (clients, flood) = rig.run({
            let ended = Arc::clone(&ended);
            move || {
                let stop = Arc::clone(&ended);
                let clients = thread::spawn(move || requests(server(v6, NGINX), &stop));
                let flood = thread::spawn(move || {
                    let floods = [(NGINX, 0x02), (NGINX, 0x10), (SECOND, 0x02)];
                    let mut floods = floods.map(|(port, kind)| Flood::new(server(v6, port), kind));
                    // Bounded in any case, and never less than is asserted of it.
                    for round in 0..3000 {
                        if ended.load(Ordering::Relaxed) && round >= 20 {
                            return;
                        }
                        floods.iter_mut().for_each(|flood| flood.send(100));
                        thread::sleep(Duration::from_millis(5));
                    }
                });
                (clients, flood)
            }
        });
        let first = if v6 { 5 } else { 1 };
        for n in first..first + 4 {
            let reloaded = Instant::now();
            reconfigure(&folder, n);
            rustix::process::kill_process(master, rustix::process::Signal::HUP).unwrap();
            if n % 2 == 1 {
                // By the loopback, which is not guarded.
                let is_there = || TcpStream::connect(server(v6, SECOND)).is_ok();
                let until = reloaded + PATIENCE;
                while !is_there() {
                    assert!(Instant::now() < until, "nginx does not listen on its second port");
                    thread::sleep(Duration::from_millis(2));
                }
                rig.run(move || get(&mut BufReader::new(connected(server(v6, SECOND))), "small"));
            }
            thread::sleep(Duration::from_millis(300).saturating_sub(reloaded.elapsed()));
        }
        ended.store(true, Ordering::Relaxed);
        let (asked, failed) = clients.join().unwrap();
        flood.join().unwrap();
        assert_eq!(failed, 0, "of {asked}, IPv6 {v6}: {:?}", guard.status());
        assert!(asked > 20, "{asked}");
    }
    let seen = |name| counted(&guard, name);
    assert!(seen("adopted") > 40 && seen("ack_forged") > 1000, "{:?}", guard.status());
    // Those of the loopback are not counted.
    assert_eq!(seen("not_adopted"), 0);
}

#[test]
fn sshd_which_speaks_first_is_heard_behind_the_guard() {
    let Some(rig) = Rig::new() else { return };
    let port = SSHD;
    let Some(_sshd) = sshd() else { return };
    let Some(guard) = start(config(&[port], Watch::Always)) else { return };
    for v6 in [false, true] {
        let key = rig.run(move || {
            let mut stream = BufReader::new(connected(server(v6, port)));
            let mut banner = String::new();
            stream.read_line(&mut banner).unwrap();
            assert!(banner.starts_with("SSH-2.0-"), "{banner}");
            // Its offer of a key exchange: both sides speak.
            stream.get_mut().write_all(b"SSH-2.0-floodwall\r\n").unwrap();
            let mut packet = [0; 6];
            stream.read_exact(&mut packet).unwrap();
            packet[5]
        });
        assert_eq!(key, 20, "the key exchange has begun");
    }
    assert_eq!(counted(&guard, "adopted"), 2);
}
