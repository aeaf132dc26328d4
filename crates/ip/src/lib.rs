//! The network layer, both families: what arrived is validated into plain values, what we
//! originate gets its header, neighbours are resolved, errors are made and limited.
//!
//! Called by `stack`, which owns the order of things. Invariants: nothing here looks outside or
//! allocates per packet; the outcome of a packet is a value ([`RefusedAction`], [`IcmpError`]).
//! Start reading at `input.rs`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

pub mod access_list;
mod action;
pub mod advertiser;
pub mod arp;
mod chain;
pub mod dad;
pub mod forward;
pub mod fragment;
pub mod icmp;
pub mod icmp_limit;
pub mod iface;
mod inbox;
pub mod input;
pub mod membership;
pub mod ndp;
pub mod neighbor;
pub mod output;
pub mod ping;
pub mod raw;
pub mod reassembly;
pub mod refragment;
pub mod reply_options;
pub mod router_discovery;
pub mod source_address;

pub use action::{IcmpError, RefusedAction};
pub use arp::ArpVerdict;
pub use dad::{Dad, DadEvent, DadFull, Detection};
pub use icmp_limit::{IcmpAllowance, IcmpLimit, IcmpLimitConfig, IcmpRate};
pub use iface::{
    AddressOrigin, AddressState, Interface, InterfaceAddress, InterfaceError, LinkMedium,
};
pub use input::{ArrivedHeading, ArrivedUpper};
pub use membership::{GroupHeading, GroupMessageKind, GroupProtocolState, SourceFilter, SourceSet};
pub use ndp::{Advertisement, NdpHeading, NdpVerdict, Nonce, RedirectSummary, RouterSummary};
pub use neighbor::{
    AdvertisementFlags, Neighbor, NeighborCache, NeighborConfig, NeighborEvent, NeighborEvidence,
    NeighborState, Resolution, Usable,
};
pub use ping::{PingId, PingOpenError, PingRecvError, PingReply, PingSettings, PingSockets};
pub use raw::{
    Icmpv6Filter, RawId, RawOpenError, RawReceived, RawRecvError, RawSettings, RawSockets,
};
pub use reassembly::{
    Fragment, FragmentPiece, FragmentStore, ReassemblyConfig, ReassemblyExpired, ReassemblyTally,
    Whole,
};
pub use router_discovery::{RouterAction, RouterActions, RouterDiscovery, RouterDiscoveryConfig};
pub use source_address::{SourceCandidate, choose_source, source_address};
