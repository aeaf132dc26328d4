//! `Query`: the inputs of a route look-up.

use floodwall_base::{Address, IfIndex};

/// One question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query<A: Address> {
    /// Where a packet goes.
    pub dst_addr: A,
    /// Where it comes from, if that is known: for rules.
    pub src_addr: Option<A>,
    /// The interface that it came in by; `None` for what this host sends itself: for rules.
    pub iif: Option<IfIndex>,
    /// A keyed hash of its flow, which keeps a flow on one of several ways; without, the
    /// destination decides.
    pub flow: Option<u64>,
}

impl<A: Address> Query<A> {
    /// For a packet of this host to `dst_addr`.
    #[must_use]
    pub const fn to(dst_addr: A) -> Self {
        Self { dst_addr, src_addr: None, iif: None, flow: None }
    }
}
