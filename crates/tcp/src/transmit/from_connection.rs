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
        let marks = marks_of(connection);
        packet.map(|packet| Self { packet, marks })
    }

    /// The same of a packet that was built.
    #[inline]
    pub(crate) fn of_packet(packet: PacketBuf, connection: &mut Connection) -> Self {
        Self { packet, marks: marks_of(connection) }
    }
}

#[inline]
fn marks_of(connection: &mut Connection) -> SegmentMarks {
    let (ecn_capable, fragmentable) = (connection.take_capable(), connection.take_fragmentable());
    let Connection { hop_limit, traffic_class, .. } = *connection;
    SegmentMarks { hop_limit, traffic_class, ecn_capable, fragmentable }
}
