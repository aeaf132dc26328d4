//! The drop reasons: every way in which a packet can be dropped, one variant and sentence each.
//!
//! Each drop is decided in one place and counted once, there. Received packets and locally
//! generated packets have separate accounting ([`DropCounts`] twice in `stack`), and both balance.

/// Writes the enum, its names and its sentences from one table.
macro_rules! drop_reasons {
    ($($variant:ident = $sentence:literal,)*) => {
        /// Why a packet was dropped.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum DropReason {
            $(#[doc = $sentence] $variant,)*
        }

        impl DropReason {
            /// Every reason, in the order of the packet's walk.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name under which the reason is counted.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)* }
            }

            /// What happened, in one sentence.
            #[must_use]
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)* }
            }
        }
    };
}

drop_reasons! {
    NoBuffer = "The packet pool was empty.",
    TriageRejectable = "Under load: the packet would have been dropped anyway.",
    TriageUnknown = "Under load: too many packets of unverified sources waited.",
    TooManyChunks = "The packet came in more pieces than a packet may have.",
    InterfaceUnknown = "The packet named an interface that does not exist.",
    FrameTruncated = "The frame ends within its link header.",
    FrameNotForUs = "The frame's link destination is another station.",
    FrameSourceGroup = "The frame's link source is a group address.",
    FrameVlan = "The frame belongs to a VLAN that is not configured.",
    EtherTypeUnknown = "The frame carries a protocol that is neither IP nor ARP.",
    ArpMalformed = "The ARP packet is truncated or not about IPv4 over Ethernet.",
    ArpNotForUs = "The ARP packet is about addresses that are not ours.",
    ArpSenderInvalid = "The ARP packet's sender address cannot be a station's.",
    IpTruncated = "The packet ends within its IP header.",
    IpVersion = "The version field does not fit the protocol that the link announced.",
    IpHeaderLength = "The IPv4 header length is below 20 bytes or beyond the packet.",
    IpLength = "The IP header claims more bytes than arrived, or fewer than its own header.",
    IpHeaderChecksum = "The IPv4 header checksum is wrong.",
    IpSourceInvalid = "The source address cannot be a sender's (martian).",
    IpDestinationInvalid = "The destination address cannot be a receiver's.",
    IpNotForUs = "The packet is for another host, and this one does not forward.",
    IpGroupNotJoined = "The packet is for a group that no local socket has joined.",
    IpOptionMalformed = "An IPv4 option has an impossible length.",
    IpSourceRoute = "The packet carries an IPv4 source route.",
    FragmentMalformed = "The fragment's offset or length is impossible.",
    FragmentTiny = "The first fragment ends within the upper header, or another one overwrites it.",
    FragmentDuplicate = "All bytes of the fragment had arrived before.",
    FragmentOverlap = "Fragments of the datagram overlap, or disagree about its length.",
    FragmentTooMany = "The datagram came in more fragments than a datagram may have.",
    FragmentTimeout = "The rest of the fragment's datagram did not arrive in time.",
    FragmentSourceFull = "The source holds more incomplete datagrams than its share.",
    FragmentStoreFull = "The reassembly store had no room.",
    ExtensionMalformed = "An IPv6 extension header is truncated or has an invalid length.",
    ExtensionLimit = "The extension headers exceed the configured limits.",
    ExtensionOrder = "Hop-by-hop options stand elsewhere than first.",
    ExtensionOptionUnknown = "An unknown IPv6 option requires that the packet be discarded.",
    ExtensionRouting = "The routing header is of a kind that this host does not process.",
    ExtensionJumbo = "The packet is a jumbogram, which no interface here supports.",
    NoNextHeader = "The packet ends with No Next Header.",
    ProtocolUnknown = "The packet's upper protocol is not supported.",
    IcmpMalformed = "The ICMP message is truncated or has an impossible field.",
    IcmpChecksum = "The ICMP checksum is wrong.",
    IcmpTypeUnknown = "The ICMP message is of a type that this host does not act upon.",
    IcmpEchoRefused = "The echo request was sent to a group or broadcast address.",
    IcmpNoFlow = "The ICMP error or reply quotes no packet that we sent.",
    IcmpSocketFull = "The ping socket's receive buffer is full.",
    IcmpRateLimited = "The sender is over its share of ICMP answers.",
    NdpMalformed = "The neighbour discovery message breaks a rule of RFC 4861.",
    NdpHopLimit = "The neighbour discovery message crossed a router.",
    NdpNotForUs = "The neighbour discovery message is about addresses that are not ours.",
    NdpUnsolicited = "The advertisement is for a neighbour that was not solicited.",
    RedirectIgnored = "Redirects are not followed here.",
    RedirectNotQuoted = "The redirect quotes no packet of ours to its destination.",
    RedirectTarget = "The redirect leads to what is no neighbour.",
    RedirectNotFirstHop = "The redirect is not from the router that leads to its destination.",
    PathMtuBelowFloor = "The reported path MTU is below the family's minimum.",
    PathMtuNotLower = "The reported path MTU is not lower, or the quoted packet fits it.",
    ExceptionLimited = "Path MTUs or redirects exceed the accepted rate per second.",
    RouterTalkative = "The advertisement is one of too many: of its router, or of unknown ones.",
    RouterListFull = "The list of routers is full of routers that may answer.",
    IgmpChecksum = "The IGMP checksum is wrong.",
    GroupMessageMalformed = "The IGMP or MLD message is truncated or of an unknown type.",
    GroupMessageInvalid = "The IGMP or MLD message is from off-link, or to the wrong address.",
    GroupMessageNotForUs = "The IGMP or MLD message is for routers, or about a group not joined.",
    UdpMalformed = "The UDP length is below eight bytes or beyond the packet.",
    UdpChecksum = "The UDP checksum is wrong, or zero over IPv6.",
    TcpMalformed = "The TCP header or one of its options is impossible.",
    TcpChecksum = "The TCP checksum is wrong.",
    TcpNoConnection = "The TCP segment belongs to no connection and no listener.",
    TcpHandshakeRefused = "There is no room for the TCP handshake, or no time for its proof.",
    TcpOutOfWindow = "The TCP segment is outside the window, or its SYN or RST is not acceptable.",
    TcpTimestamp = "The TCP segment's timestamp is old, or missing though agreed on.",
    TcpNoAck = "The TCP segment acknowledges nothing, where every segment must.",
    TcpAckInvalid = "The TCP segment acknowledges what was never sent, or is far too old.",
    TcpReceiveFull = "There is no room for what the TCP segment carries.",
    UdpNoPort = "No socket is bound to the datagram's destination.",
    DhcpRefused = "The DHCP message answers no request of ours, or offers an unusable lease.",
    UdpOverShare = "The datagram's source is over its share of a socket that fills up.",
    UdpChallenged = "The datagram's source was challenged to prove its address first.",
    UdpSocketFull = "The socket's receive buffer is full.",
    UdpMemoryFull = "All UDP sockets together hold too much for this one to take more.",
    NoRoute = "No route leads to the destination.",
    RouteUnreachable = "The route to the destination is marked unreachable.",
    RouteProhibited = "The route to the destination forbids its packets.",
    RouteBlackhole = "The route to the destination swallows its packets.",
    HopLimitExceeded = "The packet's hop limit ran out at this router.",
    ForwardMartian = "An address of the packet is of a range that no router passes on.",
    ForwardLinkScope = "An address of the packet is valid on its own link only.",
    ForwardBroadcast = "The packet is for all of a network, or came in a frame for many.",
    AccessDenied = "A rule of the interface's access list denies the packet.",
    ForwardReversePath = "The way back to the packet's source leads elsewhere, or nowhere.",
    PacketTooBig = "The packet exceeds the interface's MTU and cannot be cut.",
    NeighborPendingFull = "Too many packets wait for the neighbour's link address.",
    NeighborTableFull = "The neighbour cache has no room for another unresolved neighbour.",
    NeighborUnreachable = "The neighbour did not answer.",
    InterfaceDown = "The interface is down.",
    DeviceFull = "The device's transmit ring was full.",
    DeviceGone = "The device vanished.",
    ShardPanicked = "A shard of the host panicked and began again; it held the packet.",
    HandoffFull = "The packet is another worker's, and the list of what is handed over was full.",
    LoopbackFull = "The loopback queue was full.",
}

/// One number per reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropCounts([u64; DropReason::ALL.len()]);

impl Default for DropCounts {
    fn default() -> Self {
        Self([0; DropReason::ALL.len()])
    }
}

impl DropCounts {
    /// Counts one drop.
    #[inline]
    pub fn count(&mut self, reason: DropReason) {
        self.add(reason, 1);
    }

    /// Counts `n` drops.
    #[inline]
    pub fn add(&mut self, reason: DropReason, n: u64) {
        if let Some(slot) = self.0.get_mut(reason as usize) {
            *slot = slot.wrapping_add(n);
        }
    }

    /// The number of packets dropped for `reason`.
    #[must_use]
    pub fn of(&self, reason: DropReason) -> u64 {
        self.0.get(reason as usize).copied().unwrap_or(0)
    }

    /// The total number of dropped packets.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, n| sum.wrapping_add(*n))
    }

    /// The reasons that have a count, with it.
    pub fn nonzero(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|r| (*r, self.of(*r))).filter(|(_, n)| *n > 0)
    }

    /// Adds another table to this one.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = mine.wrapping_add(*theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_drop_is_counted_once_under_its_name() {
        let mut counts = DropCounts::default();
        counts.count(DropReason::UdpNoPort);
        counts.add(DropReason::LoopbackFull, 2);
        assert_eq!((counts.of(DropReason::UdpNoPort), counts.total()), (1, 3));
        let mut twice = counts.clone();
        twice.merge(&counts);
        assert_eq!(twice.total(), 6);
        let names: Vec<_> = counts.nonzero().map(|(r, n)| (r.name(), n)).collect();
        assert_eq!(names, [("UdpNoPort", 1), ("LoopbackFull", 2)]);
    }

    #[test]
    fn every_reason_has_a_sentence() {
        for reason in DropReason::ALL {
            assert!(reason.sentence().ends_with('.'), "{reason:?}");
        }
    }
}
