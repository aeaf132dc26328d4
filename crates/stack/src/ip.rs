//! The IP layer: from a device's packet to its upper layer, and back.
//!
//! Arrival: `rx.rs`, `deliver.rs`, `reassemble.rs`, `echo.rs`, `errors.rs`, `redirect.rs`.
//! Departure: `tx.rs`, `cut.rs` (fragments), `partial.rs` (checksums), `path_cache.rs`. Between
//! interfaces: `forward.rs`. The tables: `routes.rs`, `exceptions.rs`. What differs between the
//! families is one trait, `ip_family.rs`.

pub(crate) mod addr_pair;
pub(crate) mod cut;
pub(crate) mod deliver;
pub(crate) mod echo;
pub(crate) mod errors;
pub(crate) mod exceptions;
pub(crate) mod expected_datagrams;
pub(crate) mod fib_pair;
pub(crate) mod forward;
pub(crate) mod ip_family;
pub(crate) mod outgoing_packet;
pub(crate) mod partial;
pub(crate) mod path_cache;
pub(crate) mod quoted_packet;
pub(crate) mod reassemble;
pub(crate) mod redirect;
pub(crate) mod routes;
pub(crate) mod rx;
pub(crate) mod rx_meta;
pub(crate) mod tx;
pub(crate) mod udp_predict;
