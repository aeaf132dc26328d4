//! `A2sChallenge`: the challenge of the Source engine's server queries.
//!
//! A query for information, players or rules that returns no token of ours is answered with one, a
//! keyed hash of the sender's address and port and of the time. Protocol: "Server queries" of
//! Valve's developer documentation.

use core::net::{IpAddr, SocketAddr};

use floodwall_base::HashKey;

use crate::challenge::{Challenge, Challenged, UnverifiedSource};

/// What every query begins with, and what one for information says behind its kind.
const QUERY_HEAD: &[u8; 4] = b"\xff\xff\xff\xff";
const INFORMATION_QUERY: &[u8; 21] = b"TSource Engine Query\0";
/// A token is good for so many nanoseconds, and as long again.
const TOKEN_UNIT_NANOS: u64 = 60_000_000_000;

/// Verifies senders of server queries. Datagrams that are no query pass as without it.
///
/// # Under flood
/// Reachable by anyone. Keeps nothing. Work per datagram: two hashes of 26 bytes. An answer has 9
/// bytes, of questions of 9 to 29. Moves `UdpChallenged`.
#[derive(Clone, Copy)]
pub struct A2sChallenge {
    key: HashKey,
}

impl A2sChallenge {
    /// With the secret of its tokens, which stays here.
    #[must_use]
    pub const fn new(key: HashKey) -> Self {
        Self { key }
    }

    fn token(&self, from: SocketAddr, unit: u64) -> [u8; 4] {
        let address = match from.ip() {
            IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
            IpAddr::V6(addr) => addr.octets(),
        };
        let mut bytes = [0; 26];
        let parts = address.into_iter().chain(from.port().to_be_bytes()).chain(unit.to_be_bytes());
        bytes.iter_mut().zip(parts).for_each(|(place, byte)| *place = byte);
        // Never what stands for none, nor 0.
        ((self.key.bytes(&bytes) as u32 & 0x7fff_ffff) | 1).to_be_bytes()
    }
}

/// The token that a query returns; `None` where it is no query.
fn returned(payload: &[u8]) -> Option<&[u8]> {
    let query = payload.strip_prefix(QUERY_HEAD)?;
    if let Some(token) = query.strip_prefix(INFORMATION_QUERY) {
        return matches!(token.len(), 0 | 4).then_some(token);
    }
    match query {
        [0x55 | 0x56, token @ ..] if token.len() == 4 => Some(token),
        _ => None,
    }
}

impl Challenge for A2sChallenge {
    fn judge(&self, source: &UnverifiedSource<'_>, answer: &mut [u8]) -> Challenged {
        let Some(token) = returned(source.payload) else { return Challenged::Pass };
        let unit = source.now.as_nanos() / TOKEN_UNIT_NANOS;
        let now = self.token(source.from, unit);
        if token == now || token == self.token(source.from, unit.wrapping_sub(1)) {
            return Challenged::Proven;
        }
        let words = QUERY_HEAD.iter().chain(b"A").chain(&now);
        answer.iter_mut().zip(words).for_each(|(place, byte)| *place = *byte);
        Challenged::Answer(QUERY_HEAD.len() + 1 + now.len())
    }
}

#[cfg(test)]
mod tests {
    use floodwall_base::Instant;

    use super::*;

    fn judge(from: &str, seconds: u64, payload: &[u8]) -> (Challenged, Vec<u8>) {
        let challenge = A2sChallenge::new(HashKey::new(1, 2));
        let source = UnverifiedSource {
            from: from.parse().unwrap(),
            to: "[::1]:27015".parse().unwrap(),
            now: Instant::from_nanos(seconds * 1_000_000_000),
            payload,
        };
        let mut answer = vec![0; payload.len()];
        (challenge.judge(&source, &mut answer), answer)
    }

    #[test]
    fn a_query_gets_a_token_that_proves_its_sender_alone_and_for_a_while() {
        let players = b"\xff\xff\xff\xffU\xff\xff\xff\xff";
        let information = [&QUERY_HEAD[..], INFORMATION_QUERY].concat();
        for (from, other) in
            [("192.0.2.1:9", "192.0.2.2:9"), ("[2001:db8::1]:9", "[2001:db8::1]:10")]
        {
            for query in [&players[..], &information] {
                let (judged, answer) = judge(from, 100, query);
                assert_eq!(judged, Challenged::Answer(9));
                assert_eq!(answer[..5], *b"\xff\xff\xff\xffA");
                let kept = if query.len() == 9 { &query[..5] } else { query };
                let again = [kept, &answer[5..9]].concat();
                assert_eq!(judge(from, 170, &again).0, Challenged::Proven);
                assert_eq!(judge(from, 240, &again).0, Challenged::Answer(9), "too old");
                assert_eq!(judge(other, 100, &again).0, Challenged::Answer(9));
            }
        }
        for payload in [&b"\xff\xff\xff\xffW"[..], b"", b"the game", &information[..20]] {
            assert_eq!(judge("192.0.2.1:9", 1, payload).0, Challenged::Pass, "{payload:?}");
        }
    }
}
