//! `DnsChallenge`: DNS cookies, and truncated answers for clients without.
//!
//! A query that returns a cookie of ours proves its source. Other queries with a client's cookie
//! are answered with BADCOOKIE and a cookie where their length has room for it (clients that pad,
//! RFC 7830), else with a truncated answer, upon which a client asks again by TCP. Reading: RFC
//! 7873 section 5.2, RFC 9018 (the layout; the hash here is SipHash-1-3), RFC 7766.

use core::net::IpAddr;

use floodwall_base::HashKey;

use crate::challenge::{Challenge, Challenged, UnverifiedSource};

/// Bytes of a DNS header.
const HEADER: usize = 12;
/// The option that carries cookies, and the record type that carries options.
const COOKIE_OPTION: u16 = 10;
const OPT_RECORD: u16 = 41;
/// Bytes of a record of options without any, of the option's head, of both cookies.
const RECORD_BYTES: usize = 11;
const OPTION_BYTES: usize = 4;
const COOKIES_BYTES: usize = 24;
/// How long a server cookie is good, in seconds (RFC 9018 section 4.3), and how far ahead.
const COOKIE_LIFE: u32 = 3600;
const COOKIE_AHEAD: u32 = 300;
/// Flags: truncated, recursion desired.
const DNS_TRUNCATED: u8 = 0x02;
const DNS_DESIRED: u8 = 0x01;

/// Verifies clients of a DNS server. Datagrams that are no query pass as without it.
///
/// # Under flood
/// Reachable by anyone. Keeps nothing. Work per datagram: a walk over the name, one hash of 28
/// bytes, a copy. Moves `UdpChallenged`.
#[derive(Clone, Copy)]
pub struct DnsChallenge {
    key: HashKey,
    has_tcp: bool,
}

impl DnsChallenge {
    /// Cookies alone, with their secret: clients that send none pass as unverified ones.
    #[must_use]
    pub const fn new(key: HashKey) -> Self {
        Self { key, has_tcp: false }
    }

    /// Clients without a cookie are sent to TCP, where the same server has to answer.
    #[must_use]
    pub const fn with_tcp(self) -> Self {
        Self { has_tcp: true, ..self }
    }

    fn hash(&self, client: &[u8], from: IpAddr, seconds: u32) -> [u8; 8] {
        let address = match from {
            IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
            IpAddr::V6(addr) => addr.octets(),
        };
        let mut bytes = [0; 28];
        let parts = client.iter().copied().chain(address).chain(seconds.to_be_bytes());
        bytes.iter_mut().zip(parts).for_each(|(place, byte)| *place = byte);
        self.key.bytes(&bytes).to_be_bytes()
    }

    /// Whether these cookies are a pair that was made here, not long ago.
    fn is_ours(&self, client: &[u8], server: &[u8], from: IpAddr, seconds: u32) -> bool {
        let [1, _, _, _, s0, s1, s2, s3, hash @ ..] = server else { return false };
        let made = u32::from_be_bytes([*s0, *s1, *s2, *s3]);
        let age = seconds.wrapping_sub(made);
        (age <= COOKIE_LIFE || age.wrapping_neg() <= COOKIE_AHEAD)
            && hash == self.hash(client, from, made)
    }
}

/// Where the question ends: behind its name, type and class. `None` where it is no query.
fn question_end(query: &[u8]) -> Option<usize> {
    let flags = *query.get(2)?;
    // A query with one question, no answers and at most a record of options.
    if flags & 0xf8 != 0 || query.get(4..11)? != [0, 1, 0, 0, 0, 0, 0] || *query.get(11)? > 1 {
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

/// The options of a query, where it has a record of them.
fn options(query: &[u8], end: usize) -> Option<&[u8]> {
    let record: &[u8; RECORD_BYTES] = query.get(end..)?.first_chunk()?;
    let [0, t0, t1, _, _, _, _, _, _, l0, l1] = *record else { return None };
    let len = usize::from(u16::from_be_bytes([l0, l1]));
    let options = query.get(end + RECORD_BYTES..)?.get(..len)?;
    (u16::from_be_bytes([t0, t1]) == OPT_RECORD).then_some(options)
}

/// The client's and the server's cookie among options.
fn cookies(mut options: &[u8]) -> Option<(&[u8], &[u8])> {
    while let Some(([c0, c1, l0, l1], rest)) = options.split_first_chunk::<OPTION_BYTES>() {
        let len = usize::from(u16::from_be_bytes([*l0, *l1]));
        let (data, behind) = rest.split_at_checked(len)?;
        if u16::from_be_bytes([*c0, *c1]) == COOKIE_OPTION {
            return data.split_at_checked(8);
        }
        options = behind;
    }
    None
}

/// Writes header, question and an empty record of options, with a response code of 12 bits; `None`
/// where there is no room.
fn head(query: &[u8], end: usize, (flag, code): (u8, u16), out: &mut [u8]) -> Option<usize> {
    let has_options = options(query, end).is_some();
    out.get_mut(..end)?.copy_from_slice(query.get(..end)?);
    let [_, _, first, second, _, _, _, _, _, _, _, records] = out.first_chunk_mut::<HEADER>()?;
    let desired = *first & DNS_DESIRED;
    // Available where it is desired, else with authority: what is neither is no answer to some.
    *first = 0x80 | flag | desired | if desired == 0 { 0x04 } else { 0 };
    *second = desired << 7 | (*second & 0x10) | (code & 0xf) as u8;
    *records = has_options.into();
    if !has_options {
        return Some(end);
    }
    let record = out.get_mut(end..end + RECORD_BYTES)?;
    record.copy_from_slice(&[0, 0, OPT_RECORD as u8, 4, 208, (code >> 4) as u8, 0, 0, 0, 0, 0]);
    Some(end + RECORD_BYTES)
}

/// BADCOOKIE (RFC 7873 section 8).
const BAD_COOKIE: u16 = 23;

impl DnsChallenge {
    fn answer(&self, source: &UnverifiedSource<'_>, end: usize, out: &mut [u8]) -> Option<usize> {
        let query = source.payload;
        let seconds = (source.now.as_nanos() / 1_000_000_000) as u32;
        let client = options(query, end).and_then(cookies).map(|(client, _)| client);
        if let Some(client) = client
            && query.len() >= end + RECORD_BYTES + OPTION_BYTES + COOKIES_BYTES
        {
            let len = head(query, end, (0, BAD_COOKIE), out)?;
            let bytes = (OPTION_BYTES + COOKIES_BYTES) as u8;
            out.get_mut(len - 2..len)?.copy_from_slice(&[0, bytes]);
            let made = seconds.to_be_bytes();
            let parts = [0, COOKIE_OPTION as u8, 0, COOKIES_BYTES as u8]
                .into_iter()
                .chain(client.iter().copied());
            let parts = parts.chain([1, 0, 0, 0]).chain(made);
            let parts = parts.chain(self.hash(client, source.from.ip(), seconds));
            let place = out.get_mut(len..len + OPTION_BYTES + COOKIES_BYTES)?;
            place.iter_mut().zip(parts).for_each(|(place, byte)| *place = byte);
            return Some(len + OPTION_BYTES + COOKIES_BYTES);
        }
        head(query, end, (DNS_TRUNCATED, 0), out).filter(|_| self.has_tcp)
    }
}

impl Challenge for DnsChallenge {
    fn judge(&self, source: &UnverifiedSource<'_>, out: &mut [u8]) -> Challenged {
        let Some(end) = question_end(source.payload) else { return Challenged::Pass };
        let seconds = (source.now.as_nanos() / 1_000_000_000) as u32;
        if let Some((client, server)) = options(source.payload, end).and_then(cookies)
            && self.is_ours(client, server, source.from.ip(), seconds)
        {
            return Challenged::Proven;
        }
        match self.answer(source, end, out) {
            Some(len) => Challenged::Answer(len),
            None => Challenged::Pass,
        }
    }
}

#[cfg(test)]
mod tests;
