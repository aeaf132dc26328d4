//! TCP (RFC 9293): a connection is a value that takes segments, time and application requests, and
//! returns the actions to perform.
//!
//! Used by `stack`. Invariant: nothing here sends, reads a clock, draws randomness or allocates for
//! a packet; memory comes from pools that were allocated at the start (decision B9). A connection's
//! own state (`connection.rs`) is what it needs at rest and for each segment; what matters only
//! from time to time lies in slabs of its shard: sent segments (`sent_segments.rs`), runs of
//! segments out of order (`out_of_order.rs`), losses and the congestion controller
//! (`loss_state.rs`), and unusual settings (`rare_state.rs`). Not here: half-open connections of
//! listeners (`syncache`), addresses and routes (`ip`), wake-ups of waiting applications (`stack`).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod ack_segment;
mod chunk_budget;
mod coarse_time;
mod connection;
mod connection_flags;
mod connection_index;
mod connection_table;
mod deferred_chunks;
mod delayed_ack;
mod demux;
mod ecn;
mod error;
mod events;
mod flow_admission;
mod flow_credit;
mod id;
mod input;
mod kept_deadline;
mod listener;
mod loss_state;
mod memory;
mod orphan_patience;
mod output;
mod path;
mod place_timers;
mod places;
mod port;
mod pseudo_header;
mod queue;
mod rare_state;
mod receive_state;
mod segment;
mod segment_range;
mod send_state;
mod settings;
mod state;
mod state_slab;
mod syn_said;
mod table;
mod timeouts;
mod timer;
mod transmit;
mod tuning;
mod undo;
mod user_options;

pub mod challenge;
pub mod congestion;
pub mod isn;
pub mod mss;
pub mod out_of_order;
mod port_counts;
pub mod prr;
pub mod rack;
pub mod recovery;
pub mod rtt;
pub mod scoreboard;
mod scoreboard_change;
mod scoreboard_marks;
pub mod senders;
mod sent_segments;
pub mod time_wait;
pub mod timestamps;

pub use congestion::Algorithm;
pub use connection_table::{AbortCounts, ConnectionTable, OWNERS_MAX, TcpContext};
pub use error::{ConnectionError, ListenError, OpenError, RecvError, SendError};
pub use events::ConnectionEvents;
pub use floodwall_syncache::{
    CookieEpoch, CookieMoment, CookiePolicy, ListenerStats as ListenerCounts, ProvenBy, Secret,
    SecretError, Stats as HalfOpenStats, SynAck,
};
pub use flow_admission::FlowAdmission;
pub use id::{ConnectionId, ListenerId, StaleHandle};
pub use recovery::RecoveryPhase;
pub use segment::{ResetSegment, Segment};
pub use settings::{Acknowledge, Keepalive, TcpConfig, TcpSettings};
pub use state::{StateStep, TcpState};
pub use syn_said::SynSaid;
pub use table::{
    AdmittedHosts, ArrivedSegment, CoalescedEnd, ConnectionAddrs, IcmpHeard, IcmpSays, Info,
    PredictingConnection, SegmentInput, SegmentVerdict, WrittenAtOnce,
};
pub use transmit::{OutgoingSegment, SegmentMarks, Transmit};

#[cfg(test)]
mod tests;
