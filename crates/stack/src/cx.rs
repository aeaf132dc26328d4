//! What one round lends to the stack's parts.

use floodwall_base::{Instant, Randomness};
use floodwall_packet::{PacketList, Pool};

/// The round's arguments without its packets: see [`floodwall_packet::Round`].
pub(crate) struct Cx<'a> {
    pub(crate) now: Instant,
    pub(crate) pool: &'a Pool,
    pub(crate) random: &'a mut Randomness,
    pub(crate) departing: &'a mut PacketList,
}
