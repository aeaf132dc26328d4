//! The states of a neighbour, and what an advertisement changes: RFC 4861's tables as functions.
//!
//! Called by `neighbor.rs` alone, which acts on the answer. Invariant: no memory and no time here,
//! so that the tests can compare every case with the RFC. Read first: RFC 4861 sections 7.3.2
//! (states), 7.2.5 (advertisements), appendix C (the table).

/// The state of a neighbour (RFC 4861 section 7.3.2, and two more that every implementation has).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NeighborState {
    /// Its link address was solicited, and no answer has come.
    Incomplete,
    /// Reachability was confirmed recently.
    Reachable,
    /// Its link address is known, and it has not been used since its reachability was last
    /// confirmed.
    Stale,
    /// It is being used, and an upper protocol may yet confirm its reachability.
    Delay,
    /// It is being probed for reachability.
    Probe,
    /// It was reachable once and does not answer; it is solicited by multicast, at growing
    /// intervals, and what is sent to it goes to its last link address (RFC 7048).
    Unreachable,
    /// It did not answer; for a while it is not solicited again.
    Failed,
    /// Static: the operator set its link address, and nothing changes it.
    Permanent,
}

impl NeighborState {
    /// iproute2's keyword.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Incomplete => "INCOMPLETE",
            Self::Reachable => "REACHABLE",
            Self::Stale => "STALE",
            Self::Delay => "DELAY",
            Self::Probe => "PROBE",
            Self::Unreachable => "UNREACHABLE",
            Self::Failed => "FAILED",
            Self::Permanent => "PERMANENT",
        }
    }

    /// Whether its link address is known.
    #[must_use]
    #[inline]
    pub const fn is_resolved(self) -> bool {
        !matches!(self, Self::Incomplete | Self::Failed)
    }
}

/// The flags of an advertisement (RFC 4861 section 4.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AdvertisementFlags {
    /// R: the sender is a router.
    pub router: bool,
    /// S: it answers a solicitation of ours.
    pub solicited: bool,
    /// O: it replaces what was known.
    pub overriding: bool,
}

/// The link address that an advertisement supplies, against what is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Supplied {
    /// None.
    Nothing,
    /// The one that is known.
    Same,
    /// Another one.
    Different,
}

/// What is to be done with the entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NeighborChange {
    /// Its state from now on.
    pub(crate) state: NeighborState,
    /// Whether the supplied link address replaces the known one.
    pub(crate) take_link_addr: bool,
    /// Whether the router flag is stored.
    pub(crate) take_router: bool,
}

/// What an advertisement does to an entry in `state` (RFC 4861 section 7.2.5); `None` where it
/// changes nothing. Failed counts as no entry: the RFC deletes such entries.
pub(crate) fn on_advertisement(
    state: NeighborState,
    supplied: Supplied,
    flags: AdvertisementFlags,
) -> Option<NeighborChange> {
    use NeighborState::{Failed, Incomplete, Permanent, Reachable, Stale};
    let answered = |otherwise| if flags.solicited { Reachable } else { otherwise };
    match state {
        Failed | Permanent => None,
        // "If the link layer has addresses and no Target Link-Layer Address option is included,
        // the receiving node SHOULD silently discard."
        Incomplete if supplied == Supplied::Nothing => None,
        Incomplete => {
            Some(NeighborChange { state: answered(Stale), take_link_addr: true, take_router: true })
        }
        // Case I: another address, and the override flag is clear.
        Reachable if supplied == Supplied::Different && !flags.overriding => {
            Some(NeighborChange { state: Stale, take_link_addr: false, take_router: false })
        }
        _ if supplied == Supplied::Different && !flags.overriding => None,
        // Case II: the override flag is set, or the address is unchanged.
        _ => {
            let take_link_addr = supplied == Supplied::Different;
            let otherwise = if take_link_addr { Stale } else { state };
            Some(NeighborChange { state: answered(otherwise), take_link_addr, take_router: true })
        }
    }
}

/// What a solicitation (or router message) with a source link address does to an entry (RFC 4861
/// section 7.2.3, appendix C); `None` where it changes nothing.
pub(crate) fn on_solicitation(state: NeighborState, supplied: Supplied) -> Option<NeighborState> {
    match state {
        NeighborState::Permanent => None,
        NeighborState::Incomplete | NeighborState::Failed => Some(NeighborState::Stale),
        _ => (supplied == Supplied::Different).then_some(NeighborState::Stale),
    }
}
