//! Challenges of known protocols, for sockets: DNS, game queries, QUIC.
//!
//! Each is a [`Challenge`](crate::Challenge) to be put into
//! [`SocketSettings::challenge`](crate::SocketSettings::challenge). They keep nothing, hold a key
//! alone, and answer with no more bytes than were asked with. `floodwall guard` has the first two
//! in front of services of the kernel (`crates/bpf/src/cookie/host/challenge.rs`). Start reading at
//! `challenges/dns.rs`. Not here, with the reason: STUN (no error or response that proves anything
//! fits into a binding request of 20 bytes, RFC 8489), ENet (its handshake has no cookie), RakNet
//! (its server takes no cookie that it has not made).

mod a2s;
mod dns;
mod quic;

pub use a2s::A2sChallenge;
pub use dns::DnsChallenge;
pub use quic::QuicRetryChallenge;
