//! Historic designs, faithful and weak on purpose: what the experiments put beside the product.
//!
//! One file each. Every file states what it models and where that was (system, version, file), what
//! was simplified, and which claim it serves; `cargo xtask tidy` refuses one that does not. Words
//! of history (mbuf, cluster, pullup) stay in here. A baseline may be slow or fail; it may not give
//! wrong bytes: the tests of each experiment hold it to the flat packet.

pub mod chain;
pub mod drop_list;
pub mod gc_list;
pub mod lazy_quiescence;
pub mod pulldown;
pub mod pullup;
pub mod pullup2;
pub mod route_cache;
pub mod scratch;
pub mod udp_queues;
pub mod xdp_loop;
