//! Challenges of known protocols, for sockets: DNS and game queries.
//!
//! Each is a [`Challenge`](crate::Challenge) to be put into
//! [`SocketSettings::challenge`](crate::SocketSettings::challenge). They keep nothing, hold a key
//! alone, and answer with no more bytes than were asked with. `floodwall guard` has the same two in
//! front of services of the kernel (`crates/bpf/src/cookie/host/challenge.rs`). Start reading at
//! `challenges/dns.rs`. Not here, with the reason: STUN (no error or response that proves anything
//! fits into a binding request of 20 bytes, RFC 8489), QUIC (a Retry is undone by a server that
//! does not know of it: RFC 9000 section 7.3).

mod a2s;
mod dns;

pub use a2s::A2sChallenge;
pub use dns::DnsChallenge;
