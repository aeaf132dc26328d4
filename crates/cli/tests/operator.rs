//! What an operator sees of the built command under a flood: `stat --watch`, `top`, `explain`,
//! `socket show`, metrics; and clients of the control socket that never read.
//!
//! Needs root, for a network namespace and the TAP; reports that it was skipped elsewhere.
#![expect(clippy::unwrap_used, reason = "what a test cannot do without ends the test")]
#![expect(clippy::disallowed_methods, reason = "the test waits for another process")]

mod support;

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use support::{Instance, may};

/// An instance on a TAP, whose other side has 10.0.0.1 and fd00::1.
fn start(name: &str) -> Instance {
    let services = ["--metrics=127.0.0.1:9100", "--service=udp-echo:7001", "--service=http:80"];
    Instance::start_with_peer(name, &services)
}

#[test]
fn a_flood_is_seen_and_explained_and_nothing_is_claimed_at_rest() {
    if !may() {
        return;
    }
    let running = start("seen");
    let rest = running.json(&["explain", "--seconds", "1", "--json"]);
    assert_eq!(rest["verdict"], "fine: nothing is wrong", "{rest}");
    let done = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&done);
    // Datagrams to a port without a socket: bounded in number.
    let flood = running.within(move || {
        let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
        for _ in 0..40_000 {
            for _ in 0..32 {
                let _ = socket.send_to(b"flood", "10.0.0.2:9");
            }
            if over.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let said = running.json(&["explain", "--seconds", "2", "--json"]);
    let first = &said["findings"][0];
    assert_eq!(
        (&first["kind"], &first["name"]),
        (&"attack".into(), &"flood of closed ports".into())
    );
    assert!(first["evidence"][0].as_str().unwrap().starts_with("UdpNoPort "), "{said}");
    let text = running.text(&["explain", "--seconds", "1"]);
    assert!(text.starts_with("attack: flood of closed ports"), "{text}");
    let top = running.json(&["top", "-n", "1", "--json"]);
    assert!(top["interfaces"][0]["in_packets"].as_f64().unwrap() > 200.0, "{top}");
    assert_eq!(top["refusals"][0]["reason"], "UdpNoPort", "{top}");
    let text = running.text(&["top", "-n", "1"]);
    assert!(text.contains("\nSERVICE") && text.contains("tcp [::]:80"), "{text}");
    let said = running.wait_said("flood begins: flood of closed ports, ");
    assert_eq!(said.matches("flood begins").count(), 1, "{said}");
    assert!(said.contains(" WARN floodwall: flood begins"), "{said}");
    done.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    let said = running.wait_said("flood ended: flood of closed ports after ");
    assert!(said.contains(" refused; "), "{said}");
    let rest = running.json(&["explain", "--seconds", "1", "--json"]);
    assert_eq!(rest["verdict"], "fine: nothing is wrong", "{rest}");
}

#[test]
fn connections_of_both_families_are_shown_in_the_columns_of_ss() {
    if !may() {
        return;
    }
    let running = start("sockets");
    let clients = running.within(|| {
        let open = |at: &str| {
            let mut stream = TcpStream::connect(at).unwrap();
            stream.write_all(b"GET /bytes/1000 HTTP/1.1\r\n\r\n").unwrap();
            let mut room = [0; 2000];
            assert!(stream.read(&mut room).unwrap() > 0);
            stream
        };
        (open("10.0.0.2:80"), open("[fd00::2]:80"))
    });
    let (v4, v6) = clients.join().unwrap();
    let text = running.text(&["socket", "show", "-tani"]);
    let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..4], ["Netid", "State", "Recv-Q", "Send-Q"]);
    let row = |local: &str| rows.iter().find(|row| row.get(4) == Some(&local)).unwrap().clone();
    assert_eq!(row("*:80")[1], "LISTEN");
    let ours = |stream: &TcpStream| stream.local_addr().unwrap().to_string();
    assert_eq!((row("10.0.0.2:80")[1], row("10.0.0.2:80")[5]), ("ESTAB", ours(&v4).as_str()));
    assert_eq!((row("[fd00::2]:80")[1], row("[fd00::2]:80")[5]), ("ESTAB", ours(&v6).as_str()));
    assert!(text.contains(" rto:") && text.contains(" cwnd:"), "{text}");
    let json = running.json(&["socket", "show", "-t6", "--json"]);
    let all = json["sockets"].as_array().unwrap();
    assert!(all.len() == 1 && all[0]["local"] == "[fd00::2]:80", "{json}");
    let udp = running.text(&["socket", "show", "-ul"]);
    assert!(udp.lines().count() == 2 && udp.contains("UNCONN") && udp.contains("*:7001"), "{udp}");
}

#[test]
fn metrics_are_served_and_clients_that_never_read_harm_no_others() {
    if !may() {
        return;
    }
    let running = start("metrics");
    let served = running.within(|| {
        let mut stream = TcpStream::connect("127.0.0.1:9100").unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    });
    let served = served.join().unwrap();
    assert!(served.starts_with("HTTP/1.1 200 OK\r\n"), "{served}");
    assert!(served.contains("\nfloodwall_conservation_holds 1\n"), "{served}");
    let text = running.text(&["stat", "--prometheus"]);
    match Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::process::Stdio::piped())
        .spawn()
    {
        Err(_) => eprintln!("skipped: promtool (Debian: prometheus) is not installed"),
        Ok(mut promtool) => {
            promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
            assert!(promtool.wait().unwrap().success(), "{text}");
        }
    }
    // A hundred clients that ask and never read, and some that never ask.
    let deaf: Vec<_> = (0..100)
        .map(|n| {
            let mut stream = UnixStream::connect(running.socket()).unwrap();
            if n % 2 == 0 {
                stream.write_all(b"sockets\n").unwrap();
            }
            stream
        })
        .collect();
    assert!(text.len() > 1000);
    // Clients behind them are answered once these are cut off.
    let mut answered = false;
    for _ in 0..6 {
        answered |= running.ask(&["stat"]).status.success();
    }
    assert!(answered);
    drop(deaf);
    running.text(&["stat"]);
}
