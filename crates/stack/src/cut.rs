//! Packets of ours that are larger than their link: cut at the last moment, all or nothing.
//!
//! Called by `tx.rs` for a packet that has its IP header and a link address to go to. Invariants:
//! each fragment is a packet that we made, in the ledger too; identifications come from the secret
//! source, one draw a packet. Not here: how a packet is cut (`floodwall_ip::fragment`).

use floodwall_base::MacAddr;
use floodwall_ip::fragment;
use floodwall_packet::PacketBuf;

use crate::cx::Cx;
use crate::shard::Stack;
use crate::tables::Tables;

impl Stack {
    /// Cuts an IP packet to `mtu` bytes and lets the fragments depart: in frames between `stations`
    /// (source, destination), or bare where the link has none.
    #[cold]
    pub(crate) fn depart_cut<A: Tables>(
        &mut self,
        cx: &mut Cx<'_>,
        packet: PacketBuf,
        mtu: u32,
        stations: Option<(MacAddr, MacAddr)>,
    ) {
        let id = cx.random.secret.next_u32();
        let counters = &mut self.stats.counters;
        let mut fragments = match fragment::cut::<A>(cx.pool, packet, mtu as usize, id) {
            Ok(fragments) => fragments,
            Err((packet, reason)) => {
                counters.count(A::FRAG_FAILS);
                return self.die_out::<A>(packet, reason);
            }
        };
        let count = fragments.len() as u64;
        counters.count(A::FRAG_OKS);
        counters.add(A::FRAG_CREATES, count);
        self.stats.fates.originated += count.saturating_sub(1);
        while let Some(fragment) = fragments.pop_front() {
            match stations {
                Some((from, to)) => self.frame::<A>(cx, fragment, from, to, None),
                None => self.depart(cx, fragment),
            }
        }
    }
}
