//! What TCP wants of the network layer beyond a packet, and applications of the set beyond sockets:
//! whether a packet was marked (RFC 3168 section 5), and a connection's particulars.
//!
//! Called by `tcp.rs` and by applications.

use floodwall_packet::{AccessCounters, PacketBuf};
use floodwall_tcp::{ConnectionTable, CookieMoment, StaleHandle, TcpContext};
use floodwall_wire::Ecn;

use crate::ip::ip_family::IpFamily;
use crate::ip::outgoing_packet::traffic_class;
use crate::sockets::Sockets;

/// Whether a router marked the packet: congestion experienced.
pub(super) fn is_marked<A: IpFamily>(
    packet: &PacketBuf,
    l3: usize,
    access: &mut AccessCounters,
) -> bool {
    let mut scratch = [0; 2];
    let class = packet.header_array(l3, &mut scratch, access).map(traffic_class::<A>);
    class.is_some_and(|class| Ecn::of_traffic_class(class) == Ecn::CongestionExperienced)
}

impl Sockets<'_> {
    /// Does something with the set itself; what connections want to send leaves afterwards.
    ///
    /// # Errors
    /// TCP is disabled on this stack.
    pub fn tcp_with<R>(
        &mut self,
        act: impl FnOnce(&mut ConnectionTable, &mut TcpContext<'_>) -> R,
    ) -> Result<R, StaleHandle> {
        let (stack, cx) = (&mut *self.stack, &mut self.cx);
        let tcp = stack.tcp.as_mut().ok_or(StaleHandle)?;
        let mut lend = TcpContext {
            now: cx.now,
            epoch: CookieMoment::simulated(cx.now).epoch,
            pool: cx.pool,
            random: &mut *cx.random,
            counters: &mut stack.stats.counters,
        };
        let done = act(&mut tcp.set, &mut lend);
        self.tcp_leave();
        Ok(done)
    }
}
