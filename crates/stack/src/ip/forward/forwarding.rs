//! `Forwarding`: what a stack keeps to forward packets: settings of its interfaces, the key of the
//! ECMP hash, the table of active pairs, and the packets of a burst.
//!
//! Made once with the stack (`build.rs`); used by `forward.rs`; the bounds are described there.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{HashKey, IfIndex, SecretRandom};
use floodwall_ip::forward::{Martians, ReversePath};
use floodwall_packet::PacketBuf;

use super::flows::{DialogueSlot, ForwardedFlows};
use super::redirect_offers::RedirectOffers;
use crate::config::StackConfig;
use crate::ip::rx_meta::RxMeta;

/// Forwarding settings of one interface.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ForwardPort {
    pub(super) v4: bool,
    pub(super) v6: bool,
    pub(super) reverse_path: ReversePath,
    pub(super) redirects: bool,
}

/// Packets that wait for the end of their burst. Each entry is written once and read in place: it
/// is twice a cache line, and copying it three times costs as much as the rest of forwarding a
/// packet.
pub(crate) struct ForwardBatch<A> {
    pub(super) packets: Vec<PacketBuf>,
    pub(super) ascents: Vec<RxMeta<A>>,
}

impl<A> ForwardBatch<A> {
    pub(super) fn new() -> Self {
        Self { packets: Vec::with_capacity(BURST_MAX), ascents: Vec::with_capacity(BURST_MAX) }
    }
}

/// An empty batch without memory: it stands in while a batch is processed.
impl<A> Default for ForwardBatch<A> {
    fn default() -> Self {
        Self { packets: Vec::new(), ascents: Vec::new() }
    }
}

/// The sampled packets of a burst that update the table of active pairs, with their places.
pub(super) struct NotedPacket {
    pub(super) places: [DialogueSlot; BURST_MAX],
    /// Bitmap of the sampled packets.
    pub(super) chosen: u64,
    /// Whether every packet has its place.
    pub(super) all: bool,
    pub(super) at: usize,
}

const _: () = assert!(BURST_MAX <= u64::BITS as usize, "a bit for each packet of a burst");

impl NotedPacket {
    /// The place of the next packet, if it has one, and whether that is to be updated.
    #[inline]
    pub(super) fn next(&mut self) -> (Option<DialogueSlot>, bool) {
        let at = self.at;
        self.at += 1;
        let is_chosen = self.chosen >> (at & 63) & 1 == 1;
        let place = (is_chosen || self.all).then(|| self.places.get(at).copied()).flatten();
        (place, is_chosen)
    }
}

/// Forwarding state of a stack: port settings, ECMP key, table of active pairs, batches.
pub(crate) struct Forwarding {
    pub(super) ports: Box<[ForwardPort]>,
    pub(super) martians: Martians,
    /// Whether any interface has reverse path filtering.
    pub(super) looks_back: bool,
    /// Key of the flow hash that selects a next hop (ECMP).
    pub(super) key: HashKey,
    /// The table of active pairs of hosts, for triage.
    pub(crate) dialogues: ForwardedFlows,
    pub(super) v4: ForwardBatch<Ipv4Addr>,
    pub(super) v6: ForwardBatch<Ipv6Addr>,
    /// What devices may pass on by themselves.
    pub(super) redirects: RedirectOffers,
    /// Packets of this round handed to the control shard for neighbour resolution.
    pub(super) handed: usize,
}

impl Forwarding {
    /// Allocates the forwarding state; `None` where forwarding is disabled.
    pub(crate) fn new(config: &StackConfig, random: &mut SecretRandom) -> Option<Box<Self>> {
        let (v4, v6) = (config.ipv4_forwarding, config.ipv6_forwarding);
        if !v4 && !v6 {
            return None;
        }
        // The loopback's comes first: nothing is forwarded from it.
        let configured = config.interfaces.iter().map(|interface| ForwardPort {
            v4: v4 && interface.forwarding,
            v6: v6 && interface.forwarding,
            reverse_path: interface.reverse_path,
            redirects: interface.send_redirects,
        });
        let ports: Box<[ForwardPort]> =
            core::iter::once(ForwardPort::default()).chain(configured).collect();
        Some(Box::new(Self {
            looks_back: ports.iter().any(|port| port.reverse_path != ReversePath::Off),
            ports,
            martians: config.martians,
            key: random.hash_key(),
            dialogues: ForwardedFlows::new(random),
            v4: ForwardBatch::new(),
            v6: ForwardBatch::new(),
            redirects: RedirectOffers::default(),
            handed: 0,
        }))
    }

    pub(super) fn port(&self, iface: IfIndex) -> ForwardPort {
        self.ports.get(usize::from(iface.0)).copied().unwrap_or_default()
    }
}
