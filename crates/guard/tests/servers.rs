//! Servers as Debian has them behind the guard: nginx, sshd and redis, unchanged.
//!
//! Each is a process of the test's own with its files in a folder of the test's own. A server that
//! is not installed is skipped, with its package. `FLOODWALL_DEEP=1`: 300 MB in place of 20, and
//! the rate of requests beside that of a direct connection.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a failing test may panic")]

mod rig;

use std::hash::{DefaultHasher, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use floodwall_guard::Watch;
use rig::{Rig, config, counted, server, skip, start};

const PATIENCE: Duration = Duration::from_secs(10);

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
    let folder = std::env::temp_dir().join(format!("floodwall-{name}-{}", std::process::id()));
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
    let here = folder.display();
    let config = format!(
        "daemon off; master_process off; pid {here}/pid; error_log {here}/error; user root;
         events {{ worker_connections 512; }}
         http {{ access_log off; keepalive_requests 1000000; client_body_temp_path {here}/b;
         proxy_temp_path {here}/p; fastcgi_temp_path {here}/f; uwsgi_temp_path {here}/u;
         scgi_temp_path {here}/s; server {{ listen {port}; listen [::]:{port}; root {here}; }} }}"
    );
    let path = folder.join("conf");
    std::fs::write(&path, config).unwrap();
    let mut command = Command::new("/usr/sbin/nginx");
    command.arg("-c").arg(path);
    Some((
        Server::start("nginx (Debian: nginx-light)", folder, &mut command, port)?,
        hasher.finish(),
    ))
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

/// Requests a second on one connection, the best of a few turns.
fn rate(rig: &Rig, to: SocketAddr) -> f64 {
    rig.run(move || {
        let mut stream = BufReader::new(connected(to));
        let turns = (0..5).map(|_| {
            let began = Instant::now();
            let hashes = (0..4000).map(|_| get(&mut stream, "small"));
            assert_ne!(hashes.fold(0, |all, one| all ^ one), 1, "each is read whole");
            4000.0 / began.elapsed().as_secs_f64()
        });
        turns.fold(0.0, f64::max)
    })
}

#[test]
fn nginx_serves_large_files_whole_and_many_requests_a_connection() {
    let Some(rig) = Rig::new() else { return };
    let port = 8080;
    let bytes = if is_deep() { 300_000_000 } else { 20_000_000 };
    let Some((_nginx, hash)) = nginx(port, bytes) else { return };
    let direct = is_deep().then(|| [false, true].map(|v6| rate(&rig, server(v6, port))));
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
        if let Some(direct) = direct {
            let (guarded, direct) = (rate(&rig, to), direct[usize::from(v6)]);
            let part = guarded / direct;
            println!("IPv6 {v6}: {direct:.0} requests/s direct, {guarded:.0} guarded: {part:.3}");
        }
    }
    assert!(counted(&guard, "adopted") >= 2);
    assert_eq!(counted(&guard, "not_adopted"), 0);
}

#[test]
fn redis_answers_behind_the_guard() {
    let Some(rig) = Rig::new() else { return };
    let (port, folder) = (6379, folder("redis"));
    let mut command = Command::new("redis-server");
    command.args(["--port", "6379", "--bind", "*", "-::*", "--save", "", "--protected-mode", "no"]);
    command.arg("--dir").arg(&folder);
    let name = "redis-server (Debian: redis-server)";
    let Some(_redis) = Server::start(name, folder, &mut command, port) else { return };
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

#[test]
fn sshd_which_speaks_first_is_heard_behind_the_guard() {
    let Some(rig) = Rig::new() else { return };
    let (port, folder) = (2222, folder("sshd"));
    let key = folder.join("key");
    let mut make = Command::new("ssh-keygen");
    make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key);
    if !make.status().is_ok_and(|status| status.success()) {
        return skip("no sshd (Debian: openssh-server)");
    }
    let separated = std::path::Path::new("/run/sshd");
    if !separated.exists() {
        // sshd refuses to start without; it is empty, and an installed one makes it at its start.
        std::fs::create_dir(separated).unwrap();
    }
    let mut command = Command::new("/usr/sbin/sshd");
    command.args(["-D", "-e", "-f", "/dev/null", "-o", "PidFile=none", "-o", "Port=2222", "-h"]);
    command.arg(&key);
    let name = "sshd (Debian: openssh-server)";
    let Some(_sshd) = Server::start(name, folder, &mut command, port) else { return };
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
