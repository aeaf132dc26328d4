//! What TCP wants of the network layer beyond a packet, and applications of the set beyond sockets:
//! the two bits of ECN (RFC 3168 section 5), and a connection's particulars.
//!
//! Called by `tcp.rs` and by applications. Invariant: a header is complete before it is marked, and
//! right again afterwards.

use floodwall_base::{DropReason, Family};
use floodwall_ip::output::HeaderError;
use floodwall_packet::{AccessCounters, PacketBuf};
use floodwall_tcp::{Gone, Lend, Moment, Tcp};
use floodwall_wire::IpProtocol;

use crate::cx::Cx;
use crate::shard::Stack;
use crate::sockets::Sockets;
use crate::tables::{Ends, Tables};
use crate::tx::Path;

/// Whether a router marked the packet: congestion experienced.
pub(super) fn is_marked<A: Tables>(
    packet: &PacketBuf,
    l3: usize,
    access: &mut AccessCounters,
) -> bool {
    let mut scratch = [0; 2];
    let Some([first, second]) = packet.header_array(l3, &mut scratch, access) else { return false };
    let _ = first;
    let class = if A::FAMILY == Family::V4 { *second } else { *second >> 4 };
    class & 3 == 3
}

/// Sets ECT(0) in a complete IP header.
fn mark<A: Tables>(packet: &mut PacketBuf) {
    let Some(bytes) = packet.first_mut() else { return };
    if A::FAMILY == Family::V6 {
        if let Some(class) = bytes.get_mut(1) {
            *class |= 0b10 << 4;
        }
        return;
    }
    let Some([_, class, .., high, low]) = bytes.get_mut(..12) else { return };
    *class |= 0b10;
    // RFC 1624: the field grew by 2, so the complement of the sum falls by as much.
    let sum = u16::from_be_bytes([*high, *low]);
    let (less, borrows) = sum.overflowing_sub(2);
    [*high, *low] = less.wrapping_sub(borrows.into()).to_be_bytes();
}

impl Stack {
    /// Sends a segment that routers may mark.
    pub(super) fn output_capable<A: Tables>(
        &mut self,
        cx: &mut Cx<'_>,
        packet: PacketBuf,
        ends: Ends<A>,
        hop_limit: u8,
        path: Path<A>,
    ) {
        self.originate::<A>(packet.len() + A::HEADER_LEN);
        match A::header(cx.pool, packet, ends, IpProtocol::TCP, hop_limit) {
            Ok(mut packet) => {
                mark::<A>(&mut packet);
                self.send_headed(cx, packet, path, None);
            }
            Err(HeaderError::NoBuffer(packet)) => {
                self.die_out::<A>(packet, DropReason::NoBuffer);
            }
            Err(HeaderError::TooLong(packet)) => {
                self.die_out::<A>(packet, DropReason::PacketTooBig);
            }
        }
    }
}

impl Sockets<'_> {
    /// Does something with the set itself; what connections want to send leaves afterwards.
    ///
    /// # Errors
    /// This stack speaks no TCP.
    pub fn tcp_with<R>(
        &mut self,
        act: impl FnOnce(&mut Tcp, &mut Lend<'_>) -> R,
    ) -> Result<R, Gone> {
        let (stack, cx) = (&mut *self.stack, &mut self.cx);
        let tcp = stack.tcp.as_mut().ok_or(Gone)?;
        let mut lend = Lend {
            now: cx.now,
            epoch: Moment::simulated(cx.now).epoch,
            pool: cx.pool,
            random: &mut *cx.random,
            counters: &mut stack.stats.counters,
        };
        let done = act(&mut tcp.set, &mut lend);
        self.tcp_leave();
        Ok(done)
    }
}
