//! A small DNS server on a flooded port: `dns_responder serve packet:eth0 192.0.2.1/24,fd00::1/64`.
//!
//! It answers every query for an address with one, and works on each answer for a configured time,
//! so that it can be flooded. With `fair` (the default) its socket prefers light senders to heavy
//! ones while it fills up (fair drop), with `plain` it is first come, first served; with `cookies`
//! unverified clients are sent a DNS cookie (RFC 7873, made as in RFC 9018, but for the hash)
//! before a query of theirs is queued. `dns_responder kernel [::]:53` is the same server on the
//! kernel's socket, and `dns_responder flood 192.0.2.1:53 20000 5 SOURCE...` a flood of so many
//! queries a second, for so many seconds, out of those addresses of this machine.
#![expect(clippy::disallowed_methods, reason = "a program reads clocks and waits")]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use floodwall::challenges::DnsChallenge;
use floodwall::net::{Network, UdpSocket};
use floodwall::{ChallengeHook, HashKey};

/// Bytes of a DNS header.
const HEADER: usize = 12;
/// Where the question ends: behind its name, type and class. `None` where it is no question.
fn question_end(query: &[u8]) -> Option<usize> {
    let flags = *query.get(2)?;
    if flags & 0x80 != 0 || query.get(4..6)? != [0, 1] {
        return None;
    }
    let mut at = HEADER;
    loop {
        match *query.get(at)? {
            0 => break,
            len @ 1..=63 => at += 1 + usize::from(len),
            _ => return None,
        }
    }
    let end = at + 5;
    (end <= query.len()).then_some(end)
}

/// The answer to a question: one address of its type, or none.
fn answer(query: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(end) = question_end(query) else { return false };
    let kind = [query[end - 4], query[end - 3]];
    let data: &[u8] = match u16::from_be_bytes(kind) {
        1 => &[192, 0, 2, 77],
        28 => &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 77],
        _ => &[],
    };
    out.clear();
    out.extend(&query[..2]);
    // An answer, with authority; recursion was perhaps desired.
    out.extend([0x84 | (query[2] & 1), 0, 0, 1, 0, u8::from(!data.is_empty()), 0, 0, 0, 0]);
    out.extend(&query[HEADER..end]);
    if !data.is_empty() {
        out.extend([0xc0, HEADER as u8]);
        out.extend(kind);
        out.extend([0, 1, 0, 0, 0, 60, 0, data.len() as u8]);
        out.extend(data);
    }
    true
}

/// What one answer costs beside: the thread is busy for so long.
fn work(micros: u64) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(micros) {
        std::hint::spin_loop();
    }
}

async fn serve(device: &str, addresses: &str, words: &[String]) -> std::io::Result<()> {
    let has = |word: &str| words.iter().any(|w| w == word);
    let network = Network::builder().device(device);
    let network = addresses.split(',').fold(network, |network, address| network.address(address));
    let network = network.start().await?;
    let cookies = has("cookies").then(|| {
        let key = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), "cookies");
        ChallengeHook(Arc::new(DnsChallenge::new(HashKey::new(key, key.rotate_left(17)))))
    });
    let socket = UdpSocket::bind_with(&network, "[::]:53", |settings| {
        settings.fair_drop = !has("plain");
        settings.challenge.clone_from(&cookies);
    })
    .await?;
    println!("serving");
    let (mut query, mut out, micros) = ([0; 512], Vec::new(), micros(words));
    loop {
        let (len, from) = socket.recv_from(&mut query).await?;
        if answer(&query[..len], &mut out) {
            work(micros);
            let _ = socket.send_to(&out, from).await;
        }
    }
}

/// Parses a number among the arguments.
fn micros(words: &[String]) -> u64 {
    words.iter().find_map(|word| word.parse().ok()).unwrap_or(0)
}

fn kernel(address: &str, words: &[String]) -> std::io::Result<()> {
    let socket = std::net::UdpSocket::bind(address)?;
    println!("serving");
    let (mut query, mut out, micros) = ([0; 512], Vec::new(), micros(words));
    loop {
        let (len, from) = socket.recv_from(&mut query)?;
        if answer(&query[..len], &mut out) {
            work(micros);
            let _ = socket.send_to(&out, from);
        }
    }
}

fn flood(target: &str, rate: u64, seconds: u64, sources: &[String]) -> std::io::Result<()> {
    let to: SocketAddr = target.parse().map_err(std::io::Error::other)?;
    let mut sockets = Vec::new();
    for source in sources {
        let addr: IpAddr = source.parse().map_err(std::io::Error::other)?;
        sockets.push(std::net::UdpSocket::bind((addr, 0))?);
    }
    let mut query = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    query.extend(b"\x05flood\x07example\0\0\x01\0\x01");
    let (start, length) = (Instant::now(), Duration::from_secs(seconds));
    let mut sent = 0;
    while start.elapsed() < length {
        let due = (start.elapsed().as_nanos() as u64).saturating_mul(rate) / 1_000_000_000;
        while sent < due {
            let _ = sockets[sent as usize % sockets.len()].send_to(&query, to);
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    println!("{sent} sent");
    Ok(())
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", device, addresses, ..] => serve(device, addresses, &args[3..]).await,
        ["kernel", address, ..] => kernel(address, &args[2..]),
        ["flood", target, rate, seconds, _, ..] => {
            let number = |text: &str| text.parse().map_err(std::io::Error::other);
            flood(target, number(rate)?, number(seconds)?, &args[4..])
        }
        _ => {
            eprintln!(
                "usage: dns_responder serve DEVICE ADDRESS,... [fair|plain|cookies] [MICROS]"
            );
            eprintln!("       dns_responder kernel ADDRESS:PORT [MICROS]");
            eprintln!("       dns_responder flood ADDRESS:PORT RATE SECONDS SOURCE...");
            std::process::exit(2);
        }
    }
}
