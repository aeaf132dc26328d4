//! The words of a queue's desk: the counters and credits that the filter's program shares with us.
//!
//! Written by the program (`code.rs`, `fair.rs`, `flow_share.rs`) and by `filter.rs` once a turn.

/// Words of a queue's desk (its shared counters): whether there is pressure; for each kind, the
/// credit granted and used since the start; frames dropped, by reason.
pub(super) const DESK_PRESSED: usize = 0;
pub(super) const DESK_GRANTED: usize = 1;
pub(super) const DESK_USED: usize = DESK_GRANTED + ProgramKind::COUNT;
pub(super) const DESK_REFUSED: usize = DESK_USED + ProgramKind::COUNT;
/// For `fair.rs`: the number of the turn, the limit of a service, from where on it is near, how
/// often a service was, and the limit of a prefix.
pub(super) const DESK_TURN: usize = DESK_REFUSED + FilterRefusal::COUNT;
pub(super) const DESK_SERVICE_MAX: usize = DESK_TURN + 1;
pub(super) const DESK_SERVICE_HIGH: usize = DESK_TURN + 2;
pub(super) const DESK_NEAR: usize = DESK_TURN + 3;
pub(super) const DESK_PREFIX_MAX: usize = DESK_TURN + 4;
/// For `flow_share.rs`: from which count of established frames on prefixes are limited, from which
/// on the room is nearly used up, how often it was, and the limit of a prefix.
pub(super) const DESK_FLOWS_DIVIDED: usize = DESK_TURN + 5;
pub(super) const DESK_FLOWS_HIGH: usize = DESK_TURN + 6;
pub(super) const DESK_FLOWS_NEAR: usize = DESK_TURN + 7;
pub(super) const DESK_FLOW_PREFIX_MAX: usize = DESK_TURN + 8;
/// Of which families packets between pairs of hosts are passed on: the bits below.
pub(super) const DESK_PAIRS: usize = DESK_TURN + 9;
pub(super) const PAIRS_V4: i32 = 1;
pub(super) const PAIRS_V6: i32 = 2;
/// For `fair.rs`: up to which count of unverified frames services that have had little may go on
/// once the credit is used up, and how much is little.
pub(super) const DESK_BEYOND: usize = DESK_TURN + 10;
pub(super) const DESK_SERVICE_LEAST: usize = DESK_TURN + 11;
pub(super) const DESK_WORDS: usize = 40;
const _: () = assert!(DESK_SERVICE_LEAST < DESK_WORDS, "a desk has room for it all");

/// A class of frames that has its own credit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProgramKind {
    /// TCP and UDP, seen to their ports.
    Plain = 0,
    /// Everything else.
    Other = 1,
    /// TCP segments other than SYNs, of no known connection and without a cookie of ours: only
    /// where the programs for SYNs and ACKs are loaded (`cookies.rs`), else they are plain.
    Segment = 2,
    /// Of established flows: counted, and shared out by `flow_share.rs`.
    Established = 3,
}

impl ProgramKind {
    pub(super) const ALL: [Self; 4] = [Self::Plain, Self::Other, Self::Segment, Self::Established];
    pub(super) const UNVERIFIED: [Self; 3] = [Self::Plain, Self::Other, Self::Segment];
    pub(super) const COUNT: usize = Self::ALL.len();
}

/// The reason for which a frame was dropped at the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FilterRefusal {
    /// Its link source is a group.
    SourceGroup = 0,
    /// It is of a VLAN that is not ours.
    VlanForeign = 1,
    /// It carries neither IP nor ARP.
    KindUnknown = 2,
    /// Its IP version contradicts the EtherType, or its length exceeds the frame.
    HeaderMalformed = 3,
    /// A frame of an unverified flow, beyond the credit.
    Unknown = 4,
    /// Its destination is not an address of this host.
    AddressForeign = 5,
    /// Its destination port has no socket.
    PortClosed = 6,
    /// It is from where the access list lets nothing in.
    Denied = 7,
    /// A segment of no known connection and without a cookie of ours, beyond the credit.
    Segment = 8,
    /// Of an unverified flow, beyond what its service has of the credit.
    Service = 9,
    /// Of an unverified flow, beyond what its source's prefix has of the service's part.
    Prefix = 10,
    /// Of an established flow, beyond what its progress allows.
    Flow = 11,
    /// Of an established flow, beyond what its source's prefix has of the room for those.
    FlowPrefix = 12,
}

impl FilterRefusal {
    pub(crate) const ALL: [Self; 13] = [
        Self::SourceGroup,
        Self::VlanForeign,
        Self::KindUnknown,
        Self::HeaderMalformed,
        Self::Unknown,
        Self::AddressForeign,
        Self::PortClosed,
        Self::Denied,
        Self::Segment,
        Self::Service,
        Self::Prefix,
        Self::Flow,
        Self::FlowPrefix,
    ];
    pub(super) const COUNT: usize = Self::ALL.len();
}
