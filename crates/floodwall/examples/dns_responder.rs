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

use floodwall::net::{Network, UdpSocket};
use floodwall::{Challenge, ChallengeHook, Challenged, HashKey, UnverifiedSource};

/// Bytes of a DNS header.
const HEADER: usize = 12;
/// The option that carries cookies, and the record type that carries options.
const COOKIE: u16 = 10;
const OPT: u16 = 41;
/// How long a server cookie is good, in seconds (RFC 9018 section 4.3).
const COOKIE_LIFE: u32 = 3600;

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

/// Cookies for unverified clients: a keyed hash of client cookie, client address and time.
struct Cookies {
    key: HashKey,
}

impl Cookies {
    fn hash(&self, client: &[u8], from: IpAddr, seconds: u32) -> [u8; 8] {
        let mut bytes = [0; 28];
        bytes[..8].copy_from_slice(&client[..8]);
        match from {
            IpAddr::V4(addr) => bytes[8..12].copy_from_slice(&addr.octets()),
            IpAddr::V6(addr) => bytes[8..24].copy_from_slice(&addr.octets()),
        }
        bytes[24..].copy_from_slice(&seconds.to_be_bytes());
        self.key.bytes(&bytes).to_be_bytes()
    }

    /// The cookie option of a query with one question: what it holds and where.
    fn option(query: &[u8]) -> Option<(usize, &[u8])> {
        let opt = question_end(query)?;
        // The only record behind the question: of the root's name, type, size, and so on.
        let [name, t0, t1, ..]: [u8; 11] = *query.get(opt..)?.first_chunk()?;
        if name != 0 || u16::from_be_bytes([t0, t1]) != OPT {
            return None;
        }
        let [c0, c1, l0, l1] = *query.get(opt + 11..)?.first_chunk()?;
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        let cookie = query.get(opt + 15..opt + 15 + len)?;
        (u16::from_be_bytes([c0, c1]) == COOKIE && len >= 8).then_some((opt + 15, cookie))
    }
}

impl Challenge for Cookies {
    fn judge(&self, stranger: &UnverifiedSource<'_>, out: &mut [u8]) -> Challenged {
        let Some((_, cookie)) = Self::option(stranger.payload) else { return Challenged::Pass };
        let seconds = (stranger.now.as_nanos() / 1_000_000_000) as u32;
        let (client, server) = cookie.split_at(8);
        if let [1, 0, 0, 0, s0, s1, s2, s3, hash @ ..] = server {
            let made = u32::from_be_bytes([*s0, *s1, *s2, *s3]);
            let is_fresh = seconds.wrapping_sub(made) <= COOKIE_LIFE;
            if is_fresh && hash == self.hash(client, stranger.from.ip(), made) {
                return Challenged::Proven;
            }
        }
        // Answers are no longer than queries: a client that leaves no room (RFC 7830) may pass as
        // an unverified one.
        let Some(end) = question_end(stranger.payload) else { return Challenged::Answer(0) };
        let len = end + 15 + 24;
        let Some(out) = out.get_mut(..len) else { return Challenged::Pass };
        out[..HEADER].copy_from_slice(&stranger.payload[..HEADER]);
        // BADCOOKIE is 23: 7 in the header, 1 in the record.
        (out[2], out[3]) = (0x84, 7);
        out[6..HEADER].copy_from_slice(&[0, 0, 0, 0, 0, 1]);
        out[HEADER..end].copy_from_slice(&stranger.payload[HEADER..end]);
        out[end..end + 15]
            .copy_from_slice(&[0, 0, OPT as u8, 4, 208, 1, 0, 0, 0, 0, 28, 0, 10, 0, 24]);
        out[end + 15..end + 23].copy_from_slice(client);
        out[end + 23..end + 27].copy_from_slice(&[1, 0, 0, 0]);
        out[end + 27..end + 31].copy_from_slice(&seconds.to_be_bytes());
        out[end + 31..].copy_from_slice(&self.hash(client, stranger.from.ip(), seconds));
        Challenged::Answer(len)
    }
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
        ChallengeHook(Arc::new(Cookies { key: HashKey::new(key, key.rotate_left(17)) }))
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
