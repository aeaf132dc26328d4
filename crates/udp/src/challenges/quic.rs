//! `QuicRetryChallenge`: address validation by Retry packets, without state.
//!
//! An Initial packet without a token of ours is answered with a Retry; one that returns it from
//! the same address proves its source. The server has to be told, because it owes the client both
//! connection IDs in its transport parameters (RFC 9000 section 7.3): it asks
//! [`QuicRetryChallenge::original`] with the token of the Initial that reaches it. Reading: RFC
//! 9000 sections 8.1.2 and 17.2.5, RFC 9001 section 5.8, RFC 9369 (version 2).

mod tag;

use core::net::{IpAddr, SocketAddr};

use floodwall_base::{HashKey, Instant};

use self::tag::RetryKey;
use crate::challenge::{CHALLENGE_MAX, Challenge, Challenged, UnverifiedSource};

/// Bytes of a connection ID: at most, and of a client's first at least (RFC 9000 section 7.2).
const ID_MAX: usize = 20;
const FIRST_ID_MIN: usize = 8;
/// Bytes of our connection IDs, and of the hash at the end of a token.
const OUR_ID_BYTES: usize = 8;
/// A token is good for so many nanoseconds, and as long again.
const TOKEN_UNIT_NANOS: u64 = 10_000_000_000;
/// Bytes of a Retry at most: head, two IDs with their lengths, token, tag.
const RETRY_MAX: usize = 5 + 1 + ID_MAX + 1 + OUR_ID_BYTES + ID_MAX + OUR_ID_BYTES + 16;
/// Each version with the type of its Initial, and the first byte of its Retry.
const QUIC_VERSIONS: [([u8; 4], u8, u8, &RetryKey); 2] = [
    ([0, 0, 0, 1], 0x00, 0xf0, &RetryKey::V1),
    ([0x6b, 0x33, 0x43, 0xcf], 0x10, 0xc0, &RetryKey::V2),
];

/// Verifies clients of a QUIC server, versions 1 and 2. Datagrams that are no Initial of those pass
/// as without it.
///
/// # Under flood
/// Reachable by anyone. Keeps nothing. Work per datagram: up to four hashes of 47 bytes, and the
/// tag of a Retry over at most 106 bytes. An answer has at most 79 bytes; an Initial has 1,200 or
/// is not answered. Moves `UdpChallenged`.
#[derive(Clone, Copy)]
pub struct QuicRetryChallenge {
    key: HashKey,
}

/// What is read of an Initial.
struct Initial<'a> {
    version: [u8; 4],
    first: u8,
    key: &'static RetryKey,
    destination: &'a [u8],
    source: &'a [u8],
    token: &'a [u8],
}

impl QuicRetryChallenge {
    /// With the secret of its tokens, which stays here.
    #[must_use]
    pub const fn new(key: HashKey) -> Self {
        Self { key }
    }

    /// The destination connection ID of the client's first Initial, which a Retry has answered;
    /// `None` where the token is not ours, of another address, or more than 20 s old. `token` and
    /// `destination` are those of the Initial that has returned the token.
    ///
    /// The server sends what is returned as `original_destination_connection_id` and `destination`
    /// as `retry_source_connection_id` (RFC 9000 section 7.3).
    #[must_use]
    pub fn original<'a>(
        &self,
        from: SocketAddr,
        now: Instant,
        token: &'a [u8],
        destination: &[u8],
    ) -> Option<&'a [u8]> {
        let (original, hash) = token.split_last_chunk::<OUR_ID_BYTES>()?;
        if !(FIRST_ID_MIN..=ID_MAX).contains(&original.len()) || destination != self.id(hash) {
            return None;
        }
        let unit = now.as_nanos() / TOKEN_UNIT_NANOS;
        let is_ours = |unit| *hash == self.hash(from, unit, original);
        (is_ours(unit) || is_ours(unit.wrapping_sub(1))).then_some(original)
    }

    /// What stands behind the original ID in a token.
    fn hash(&self, from: SocketAddr, unit: u64, original: &[u8]) -> [u8; OUR_ID_BYTES] {
        let address = match from.ip() {
            IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
            IpAddr::V6(addr) => addr.octets(),
        };
        let mut bytes = [0; 47];
        let head = [original.len() as u8].into_iter().chain(address);
        let parts = head.chain(from.port().to_be_bytes()).chain(unit.to_be_bytes());
        let parts = parts.chain(original.iter().copied());
        bytes.iter_mut().zip(parts).for_each(|(place, byte)| *place = byte);
        self.key.bytes(&bytes).to_be_bytes()
    }

    /// The ID that the Retry with this hash has: it cannot be foretold without the key.
    fn id(&self, hash: &[u8; OUR_ID_BYTES]) -> [u8; OUR_ID_BYTES] {
        self.key.bytes(hash).to_be_bytes()
    }

    /// Writes the Retry; its bytes, or 0 where there is no room.
    fn retry(
        &self,
        source: &UnverifiedSource<'_>,
        initial: &Initial<'_>,
        answer: &mut [u8],
    ) -> usize {
        let unit = source.now.as_nanos() / TOKEN_UNIT_NANOS;
        let hash = self.hash(source.from, unit, initial.destination);
        let id = self.id(&hash);
        // Behind the ID of the Initial, which only its tag covers.
        let mut bytes = [0; 1 + ID_MAX + RETRY_MAX];
        let lengths = [initial.destination, initial.source].map(|id| id.len() as u8);
        let [destination_len, source_len] = lengths;
        let parts: [&[u8]; 10] = [
            &[destination_len],
            initial.destination,
            &[initial.first],
            &initial.version,
            &[source_len],
            initial.source,
            &[OUR_ID_BYTES as u8],
            &id,
            initial.destination,
            &hash,
        ];
        let len = parts.iter().map(|part| part.len()).sum();
        bytes.iter_mut().zip(parts.into_iter().flatten()).for_each(|(place, byte)| *place = *byte);
        let Some(covered) = bytes.get(..len) else { return 0 };
        let tag = initial.key.tag(covered);
        let retry = covered.get(1 + initial.destination.len()..).unwrap_or_default();
        let Some(answer) = answer.get_mut(..retry.len() + tag.len()) else { return 0 };
        answer.iter_mut().zip(retry.iter().chain(&tag)).for_each(|(place, byte)| *place = *byte);
        answer.len()
    }
}

/// Reads an Initial of a known version, up to its token; `None` of all else.
fn read(payload: &[u8]) -> Option<Initial<'_>> {
    let (&first, rest) = payload.split_first()?;
    let (version, rest) = rest.split_first_chunk::<4>()?;
    let (_, kind, retry, key) = QUIC_VERSIONS.iter().find(|it| it.0 == *version)?;
    // A long header with the fixed bit, and the type.
    if first & 0xf0 != 0xc0 | kind {
        return None;
    }
    let (destination, rest) = id(rest)?;
    let (source, rest) = id(rest)?;
    let (len, rest) = number(rest)?;
    let token = rest.get(..usize::try_from(len).ok()?)?;
    Some(Initial { version: *version, first: *retry, key, destination, source, token })
}

/// A connection ID behind its length.
fn id(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&len, rest) = bytes.split_first()?;
    let len = usize::from(len);
    (len <= ID_MAX).then(|| rest.split_at_checked(len)).flatten()
}

/// A number of variable length (RFC 9000 section 16).
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let len = 1 << (bytes.first()? >> 6);
    let (number, rest) = bytes.split_at_checked(len)?;
    let value = number.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    Some((value & !(3 << (8 * len - 2)), rest))
}

impl Challenge for QuicRetryChallenge {
    fn judge(&self, source: &UnverifiedSource<'_>, answer: &mut [u8]) -> Challenged {
        let Some(initial) = read(source.payload) else { return Challenged::Pass };
        let original = self.original(source.from, source.now, initial.token, initial.destination);
        if original.is_some() {
            return Challenged::Proven;
        }
        // A datagram with an Initial has 1,200 bytes (RFC 9000 section 14.1); we see these of it.
        if source.payload.len() < CHALLENGE_MAX || initial.destination.len() < FIRST_ID_MIN {
            return Challenged::Answer(0);
        }
        Challenged::Answer(self.retry(source, &initial, answer))
    }
}

#[cfg(test)]
mod tests;
