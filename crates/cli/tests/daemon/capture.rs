//! `floodwall capture` on a running instance, read by tcpdump and tshark.
//!
//! Needs root, for a network namespace and the TAP; reports that it was skipped elsewhere.

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{BIN, Instance, may};
use rustix::process::{Pid, Signal, kill_process};

/// What a reader prints of a file; `None` where it is not installed.
fn read_by(program: &str, args: &[&str], file: &Path) -> Option<String> {
    let Ok(output) = Command::new(program).args(args).arg(file).output() else {
        eprintln!("skipped: {program} (Debian: {program}) is not installed");
        return None;
    };
    assert!(output.status.success(), "{program}: {output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Datagrams of both families to a closed port and to a service, until told to stop.
fn traffic(running: &Instance, done: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let done = Arc::clone(done);
    let ready = Arc::new(AtomicBool::new(false));
    let is_ready = Arc::clone(&ready);
    let sender = running.within(move || {
        let (v4, v6) =
            (UdpSocket::bind("10.0.0.1:0").unwrap(), UdpSocket::bind("[fd00::1]:0").unwrap());
        // Its IPv6 address is probed before it is used.
        v6.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        for _ in 0..400 {
            let _ = v6.send_to(b"?", ("fd00::2", 7123));
            if v6.recv(&mut [0; 16]).is_ok() {
                break;
            }
        }
        ready.store(true, Ordering::Relaxed);
        for _ in 0..20_000 {
            for port in [9, 7123] {
                let _ = v4.send_to(b"closed or open", ("10.0.0.2", port));
                let _ = v6.send_to(b"closed or open", ("fd00::2", port));
            }
            if done.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    while !is_ready.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(10));
    }
    sender
}

#[test]
fn dropped_packets_are_captured_with_their_reason_and_read_by_tcpdump_and_tshark() {
    if !may() {
        return;
    }
    let running = Instance::start_with_peer("capture", &["--service=udp-echo:7123"]);
    let done = Arc::new(AtomicBool::new(false));
    let sender = traffic(&running, &done);
    let file = running.folder.0.join("dropped.pcapng");
    let path = file.to_str().unwrap();
    running.text(&["capture", "--dropped", "-c", "100", "--seconds", "30", "-w", path, "udp"]);
    if let Some(text) = read_by(
        "tshark",
        &["-T", "fields", "-e", "frame.comment", "-e", "udp.dstport", "-r"],
        &file,
    ) {
        assert_eq!(text.lines().count(), 100, "{text}");
        for line in text.lines() {
            let is = "dropped: UdpNoPort (No socket is bound to the datagram's destination.); \
                      interface fw0; worker 0";
            assert!(line.starts_with(is) && line.ends_with("\t9"), "{line}");
        }
    }
    if let Some(text) = read_by("tcpdump", &["-n", "-r"], &file) {
        assert_eq!(text.lines().count(), 100, "{text}");
        assert!(text.contains("IP 10.0.0.1.") && text.contains("IP6 fd00::1."), "{text}");
        assert!(text.lines().all(|line| line.contains(".9: UDP, length 14")), "{text}");
    }
    // Everything of one flow, in both directions.
    let file = running.folder.0.join("all.pcapng");
    let path = file.to_str().unwrap();
    running.text(&["capture", "-c", "50", "-w", path, "ip6", "and", "udp", "port", "7123"]);
    if let Some(text) = read_by("tcpdump", &["-n", "-r"], &file) {
        assert!(text.contains("> fd00::2.7123: UDP") && text.contains("fd00::2.7123 > "), "{text}");
        assert_eq!(text.lines().count(), 50, "{text}");
    }
    done.store(true, Ordering::Relaxed);
    sender.join().unwrap();
    let json = running.json(&["stat", "--json"]);
    assert_eq!(json["conservation"]["holds"], true);
    running.end();
}

#[test]
fn a_capture_is_alone_ends_with_its_client_and_leaves_whole_blocks() {
    if !may() {
        return;
    }
    let running = Instance::start_with_peer("capture-end", &["--service=udp-echo:7123"]);
    let done = Arc::new(AtomicBool::new(false));
    let sender = traffic(&running, &done);
    let (file, socket) = (running.folder.0.join("cut.pcapng"), running.socket());
    let start = || {
        let mut command = Command::new(BIN);
        command.args(["capture", "-w"]).arg(&file).arg("--socket").arg(&socket);
        command.stderr(Stdio::null()).spawn().unwrap()
    };
    for signal in [Signal::INT, Signal::KILL] {
        let _ = std::fs::remove_file(&file);
        let mut child = start();
        for _ in 0..500 {
            if std::fs::metadata(&file).is_ok_and(|file| file.len() > 20_000) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let second = running.ask(&["capture", "-w", "/dev/null"]);
        assert_eq!(second.status.code(), Some(2), "{second:?}");
        assert!(String::from_utf8_lossy(&second.stderr).contains("a capture is running already"));
        kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), signal).unwrap();
        child.wait().unwrap();
        if let Some(text) = read_by("tcpdump", &["-n", "-r"], &file) {
            assert!(text.lines().count() > 20, "{text}");
        }
        // The instance sees that its client is gone, and the next one may begin.
        let mut is_free = false;
        for _ in 0..100 {
            is_free |= running.ask(&["capture", "-c", "1", "-w", "/dev/null"]).status.success();
            if is_free {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(is_free);
    }
    // A client that does not read is cut off, and a full disk is an error.
    let full = running.ask(&["capture", "-w", "/dev/full"]);
    assert_eq!(full.status.code(), Some(1), "{full:?}");
    for words in
        [&["capture", "-w", "/dev/null", "owner"][..], &["capture", "-w", "/dev/null", "port"]]
    {
        assert_eq!(running.ask(words).status.code(), Some(1));
    }
    done.store(true, Ordering::Relaxed);
    sender.join().unwrap();
    running.end();
}
