//! Two hundred Linux clients that read nothing, or send what cannot be echoed because they do not
//! read: pings, new connections and web pages of the same address go on beside them. None of them
//! need be ended for that: they wait for each other.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::bench::Bench;
use crate::command::run;
use crate::link::{Ends, ends};
use crate::tcp::{CHARGEN, ECHO, HTTP};

/// Clients of each family.
const CLIENTS: usize = 100;
/// Longest time that an honest client waits for anything.
const PATIENCE: Duration = Duration::from_secs(5);

fn connect(ours: IpAddr, port: u16) -> TcpStream {
    let stream = TcpStream::connect_timeout(&SocketAddr::new(ours, port), PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A client that fills what it can, and reads nothing.
fn hog(ours: IpAddr, asks: bool) -> TcpStream {
    if asks {
        return connect(ours, CHARGEN);
    }
    let stream = connect(ours, ECHO);
    stream.set_nonblocking(true).unwrap();
    let piece = [b'x'; 65_536];
    loop {
        match (&stream).write(&piece) {
            Ok(taken) => assert!(taken > 0),
            // It is full, or was ended for the others' sake.
            Err(error) => {
                let kind = error.kind();
                let ends = [ErrorKind::WouldBlock, ErrorKind::ConnectionReset];
                assert!(ends.contains(&kind) || kind == ErrorKind::BrokenPipe, "{error}");
                return stream;
            }
        }
    }
}

fn exchange(ours: IpAddr) {
    let mut stream = connect(ours, ECHO);
    stream.write_all(&[b'q'; 1000]).unwrap();
    let mut back = [0; 1000];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, [b'q'; 1000]);
}

pub(crate) fn scenario(bench: Bench) {
    let mut hogs = Vec::new();
    for n in 0..CLIENTS {
        for Ends { ours, .. } in ends() {
            hogs.push(hog(ours, n % 2 == 0));
            if n % 20 == 19 {
                exchange(ours);
            }
        }
    }
    let mut unanswered = 0;
    for Ends { ours, .. } in ends() {
        if let Some(said) = run("ping", &format!("-q -c 50 -i 0.01 -w 10 {ours}"), b"") {
            let count = |what: &str| {
                let part = said.text.split([',', '\n']).find_map(|part| part.strip_suffix(what));
                part.and_then(|count| count.trim().parse::<u64>().ok())
            };
            let sent = count(" packets transmitted").unwrap_or_else(|| panic!("{}", said.text));
            unanswered += sent - count(" received").unwrap_or(0);
        }
        let url = format!("http://{}/bytes/100000", SocketAddr::new(ours, HTTP));
        if let Some(page) = run("curl", &format!("-s -S -m 10 {url}"), b"") {
            assert_eq!(page.text.len(), 100_000, "{}", page.complaint);
        }
    }
    drop(hogs);
    let end = bench.running.stop();
    let ended = end.outcome.as_ref().expect("it was asked to end");
    // Only a full ring before us may drop one, and counts it.
    let lost = ended.ports.iter().map(|port| port.stats.rx_lost() + port.stats.tx_lost());
    let lost: u64 = lost.sum();
    assert!(unanswered <= lost, "{unanswered} pings without an answer, {lost} packets lost");
}
