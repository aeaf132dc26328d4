//! `Challenge`: a socket's hook to verify source addresses before it queues anything.
//!
//! A function of the datagram alone, without any state: where a socket fills up, `input.rs` hands
//! it datagrams of unverified sources, and it lets a datagram pass, reports its source as verified
//! (it returned a token that only its address could have received), or writes an answer that is
//! sent at once: the token. DNS cookies (RFC 7873, 9018), QUIC's Retry (RFC 9000 section 8.1) and
//! DTLS's HelloVerifyRequest (RFC 6347 section 4.2.1) are of this kind; `challenges.rs` has those
//! of DNS and of game queries.
//!
//! Invariants: nothing is kept of a challenged source; an answer is never longer than what it
//! answers, so that there is no amplification; a datagram that fails its checksum is not answered.
//!
//! # Under flood
//! Worst work per datagram: the checksum, the function, and one packet that leaves. Nothing grows.
//! Reason: `UdpChallenged`.

use core::fmt;
use core::net::SocketAddr;
use std::sync::Arc;

use floodwall_base::Instant;
use floodwall_checksum::{pseudo_header_v4, pseudo_header_v6};
use floodwall_packet::{PacketBuf, Pool};
use floodwall_wire::UdpFields;

use crate::gather::gather;
use crate::header::{HEADER_LEN, PROTOCOL};

/// Bytes of an answer at most.
pub const CHALLENGE_MAX: usize = 512;

/// A datagram of a source that the socket does not know.
#[derive(Clone, Copy, Debug)]
pub struct UnverifiedSource<'a> {
    /// The source address.
    pub from: SocketAddr,
    /// Where it was sent to.
    pub to: SocketAddr,
    /// When.
    pub now: Instant,
    /// Its payload, up to [`CHALLENGE_MAX`] bytes of it.
    pub payload: &'a [u8],
}

/// What is to be done with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Challenged {
    /// As without a challenge: the share of unverified sources decides.
    Pass,
    /// It returned a token that only its address could have received: it is known.
    Proven,
    /// It is not taken; so many bytes that were written are its answer. 0: it has none.
    Answer(usize),
}

/// A hook that decides about datagrams of unverified sources. Called by any worker: what it needs
/// (keys) it owns.
pub trait Challenge: Send + Sync {
    /// Decides about one datagram; `answer` has as many bytes as its payload, [`CHALLENGE_MAX`] at
    /// most. Must not wait, lock or allocate.
    fn judge(&self, unknown: &UnverifiedSource<'_>, answer: &mut [u8]) -> Challenged;
}

/// A challenge as socket settings hold it. Two are equal where they are the same value.
#[derive(Clone)]
pub struct ChallengeHook(pub Arc<dyn Challenge>);

impl PartialEq for ChallengeHook {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ChallengeHook {}

impl fmt::Debug for ChallengeHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChallengeHook")
    }
}

/// Calls a hook with a packet's payload, which begins at `offset`; the answer comes back as a
/// packet that begins with its UDP header.
pub(crate) fn judge(
    hook: &ChallengeHook,
    (from, to, now): (SocketAddr, SocketAddr, Instant),
    packet: &PacketBuf,
    payload: core::ops::Range<usize>,
    pool: &Pool,
) -> ChallengeOutcome {
    let (mut bytes, mut answer) = ([0; CHALLENGE_MAX], [0; CHALLENGE_MAX]);
    let len = payload.len().min(CHALLENGE_MAX);
    let (Some(bytes), Some(answer)) = (bytes.get_mut(..len), answer.get_mut(..len)) else {
        return ChallengeOutcome::Pass;
    };
    let len = packet.copy_out(payload.start, bytes);
    let unknown = UnverifiedSource { from, to, now, payload: bytes.get(..len).unwrap_or_default() };
    match hook.0.judge(&unknown, answer) {
        Challenged::Pass => ChallengeOutcome::Pass,
        Challenged::Proven => ChallengeOutcome::Proven,
        Challenged::Answer(0) => ChallengeOutcome::Refused(None),
        Challenged::Answer(len) => {
            let written = answer.get(..len).unwrap_or_default();
            ChallengeOutcome::Refused(datagram(pool, to, from, written))
        }
    }
}

/// The result of [`judge`].
pub(crate) enum ChallengeOutcome {
    Pass,
    Proven,
    Refused(Option<PacketBuf>),
}

/// A datagram that belongs to no socket.
fn datagram(pool: &Pool, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Option<PacketBuf> {
    let (mut packet, sum) = gather(pool, HEADER_LEN, &[payload])?;
    let len = (HEADER_LEN + payload.len()) as u16;
    let pseudo = match (from, to) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => {
            pseudo_header_v4(*from.ip(), *to.ip(), PROTOCOL, len)
        }
        (SocketAddr::V6(from), SocketAddr::V6(to)) => {
            pseudo_header_v6(*from.ip(), *to.ip(), PROTOCOL, u32::from(len))
        }
        _ => return None,
    };
    let fields = UdpFields { src_port: from.port(), dst_port: to.port(), len };
    fields.emit(pseudo, sum, packet.first_mut()?.first_chunk_mut()?);
    packet.set_layers(0, 0, HEADER_LEN);
    Some(packet)
}
