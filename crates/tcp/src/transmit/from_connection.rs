//! A connection's segment as the network layer is asked to send it.
//!
//! Called by the table for each segment that a connection has built.

use floodwall_packet::PacketBuf;

use super::{OutgoingSegment, SegmentMarks};
use crate::connection::Connection;

impl OutgoingSegment {
    /// What a connection has just built, if anything, with what it sets in the IP header.
    #[inline]
    pub(crate) fn from_connection(
        packet: Option<PacketBuf>,
        connection: &mut Connection,
    ) -> Option<Self> {
        let (ecn_capable, fragmentable) =
            (connection.take_capable(), connection.take_fragmentable());
        let Connection { hop_limit, traffic_class, .. } = *connection;
        let marks = SegmentMarks { hop_limit, traffic_class, ecn_capable, fragmentable };
        packet.map(|packet| Self { packet, marks })
    }
}
