//! The answer to a segment that matches no connection and no listener: a reset.
//!
//! Called by `tcp.rs`, apart from the path of segments that are taken. Invariant: resets leave
//! within the limits of ICMP errors, from a token bucket of their own. Read first: RFC 9293 section
//! 3.10.7.1.

use floodwall_ip::icmp_limit::IcmpAllowance;
use floodwall_tcp::{ResetSegment, Transmit};

use crate::round_context::RoundContext;
use crate::stack::Stack;

impl Stack {
    /// The reset for a segment that matches nothing, within the limit of resets.
    #[inline(never)]
    pub(super) fn tcp_refuse(
        &mut self,
        cx: &mut RoundContext<'_>,
        reset: &ResetSegment,
    ) -> Option<Transmit> {
        let tcp = self.tcp.as_mut()?;
        let mut lend = lend!(self, cx);
        let peer = reset.flow.remote.ip();
        let allowed = tcp.resets.allow_error(peer, cx.now, &mut lend.random.secret);
        let may = matches!(allowed, IcmpAllowance::Yes);
        let packet = may.then(|| tcp.set.reset(&mut lend, reset)).flatten();
        packet.map(|packet| reset.transmit(packet))
    }
}
