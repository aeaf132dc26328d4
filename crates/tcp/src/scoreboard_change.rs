//! `ScoreboardChange`: what an acknowledgment has changed, for loss recovery.
//!
//! Made by `scoreboard.rs`; read by `recovery.rs` and by the detection of spurious reductions.
//! Plain data.

use core::time::Duration;

use floodwall_base::Seq;
use floodwall_wire::tcp_options::SackBlock;

/// The changes that an ACK has caused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScoreboardChange {
    /// Bytes newly acknowledged cumulatively.
    pub acked: u32,
    /// Of those, bytes not SACKed before.
    pub acked_new: u32,
    /// Bytes newly SACKed.
    pub sacked: u32,
    /// The RTT of the latest sent segment among the newly delivered ones that were sent once.
    pub rtt: Option<Duration>,
    /// A duplicate range that the peer reports (D-SACK, RFC 2883), within the sent range.
    pub dsack: Option<SackBlock>,
    /// The end of the first segment, in stream order, that was sent once and was newly delivered.
    pub original: Option<Seq>,
    /// By how many bytes a segment that was newly delivered was overtaken at most.
    pub reach: u32,
}

impl ScoreboardChange {
    /// Bytes newly delivered: PRR's DeliveredData.
    #[must_use]
    pub const fn delivered(&self) -> u32 {
        self.acked_new + self.sacked
    }
}
