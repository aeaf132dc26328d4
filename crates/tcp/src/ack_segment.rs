//! `AckSegment`: what an acknowledgment says, for loss recovery.
//!
//! Made by `recovery.rs`; read by the scoreboard and by RACK. Plain data.

use floodwall_base::{Instant, Seq};
use floodwall_wire::tcp_options::SackBlock;

/// The acknowledgment information of one segment of the peer.
#[derive(Clone, Copy, Debug)]
pub struct AckSegment<'a> {
    /// SEG.ACK; the caller has refused values outside of the sent range.
    pub ack: Seq,
    /// The blocks of its SACK option.
    pub sack: &'a [Option<SackBlock>],
    /// When the segment was sent that carried the echoed timestamp
    /// ([`crate::timestamps::TimestampClock::moment`]).
    pub echoed_at: Option<Instant>,
    /// It is a duplicate ACK (RFC 5681 section 2); used only where SACK is not in use.
    pub is_duplicate: bool,
    /// The minimum RTT in nanoseconds, [`u64::MAX`] where it is not known: set by the sender.
    pub rtt_min: u64,
    /// The current time.
    pub now: Instant,
}
