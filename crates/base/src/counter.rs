//! What the stack counts, under nstat's names where the meaning is the same.
//!
//! Counters are plain numbers of one shard: adding costs one instruction. A worker publishes a
//! copy of the whole once a round (decision D19). Reading: RFC 4293, RFC 4113, RFC 2011.

/// Writes the enum and its names from one table.
macro_rules! counters {
    ($($variant:ident = $sentence:literal,)*) => {
        /// One thing that is counted.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Counter {
            $(#[doc = $sentence] $variant,)*
        }

        impl Counter {
            /// Every counter, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// nstat's name, or ours where nstat has none.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)* }
            }

            /// What is counted, in one sentence.
            #[must_use]
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)* }
            }
        }
    };
}

counters! {
    IpInReceives = "IPv4 packets that arrived.",
    IpForwDatagrams = "IPv4 packets passed on.",
    IpInNoRoutes = "IPv4 packets that arrived for a destination without a route.",
    IpInHdrErrors = "IPv4 packets dropped for an error in their header.",
    IpInAddrErrors = "IPv4 packets dropped for an impossible address, or for another host.",
    IpInUnknownProtos = "IPv4 packets for an unknown upper protocol.",
    IpInDiscards = "IPv4 packets dropped for want of room.",
    IpInDelivers = "IPv4 packets handed to their protocol.",
    IpInOctets = "Bytes of IPv4 packets that arrived.",
    IpOutRequests = "IPv4 packets that we made.",
    IpOutNoRoutes = "IPv4 packets that found no route.",
    IpOutDiscards = "IPv4 packets of ours dropped for want of room or of a neighbour.",
    IpReasmReqds = "IPv4 fragments that arrived.",
    IpReasmOKs = "IPv4 datagrams put together.",
    IpReasmFails = "IPv4 datagrams given up, and fragments refused.",
    IpReasmTimeout = "IPv4 datagrams given up because fragments were missing.",
    IpFragOKs = "IPv4 datagrams of ours that left in fragments.",
    IpFragFails = "IPv4 datagrams of ours that could not be cut.",
    IpFragCreates = "IPv4 fragments made.",
    IpOutOctets = "Bytes of IPv4 packets that we made.",
    Ip6InReceives = "IPv6 packets that arrived.",
    Ip6OutForwDatagrams = "IPv6 packets passed on.",
    Ip6InNoRoutes = "IPv6 packets that arrived for a destination without a route.",
    Ip6InTooBigErrors = "IPv6 packets that were larger than the link that they were to leave by.",
    Ip6InHdrErrors = "IPv6 packets dropped for an error in their headers.",
    Ip6InTruncatedPkts = "IPv6 packets that claim more bytes than arrived.",
    Ip6InAddrErrors = "IPv6 packets dropped for an impossible address, or for another host.",
    Ip6InUnknownProtos = "IPv6 packets for an unknown upper protocol.",
    Ip6InDiscards = "IPv6 packets dropped for want of room.",
    Ip6InDelivers = "IPv6 packets handed to their protocol.",
    Ip6InOctets = "Bytes of IPv6 packets that arrived.",
    Ip6OutRequests = "IPv6 packets that we made.",
    Ip6OutNoRoutes = "IPv6 packets that found no route.",
    Ip6OutDiscards = "IPv6 packets of ours dropped for want of room or of a neighbour.",
    Ip6ReasmReqds = "IPv6 fragments that arrived.",
    Ip6ReasmOKs = "IPv6 datagrams put together.",
    Ip6ReasmFails = "IPv6 datagrams given up, and fragments refused.",
    Ip6ReasmTimeout = "IPv6 datagrams given up because fragments were missing.",
    Ip6FragOKs = "IPv6 datagrams of ours that left in fragments.",
    Ip6FragFails = "IPv6 datagrams of ours that could not be cut.",
    Ip6FragCreates = "IPv6 fragments made.",
    Ip6OutOctets = "Bytes of IPv6 packets that we made.",
    IcmpInMsgs = "ICMP messages that arrived.",
    IcmpInErrors = "ICMP messages dropped for an error.",
    IcmpInCsumErrors = "ICMP messages with a wrong checksum.",
    IcmpInEchos = "ICMP echo requests that arrived.",
    IcmpInEchoReps = "ICMP echo replies that arrived.",
    IcmpInDestUnreachs = "ICMP destination unreachable messages that arrived.",
    IcmpInTimeExcds = "ICMP time exceeded messages that arrived.",
    IcmpInParmProbs = "ICMP parameter problem messages that arrived.",
    IcmpInSrcQuenchs = "ICMP source quench messages that arrived, and were ignored (RFC 6633).",
    IcmpInRedirects = "ICMP redirect messages that arrived.",
    IcmpOutMsgs = "ICMP messages sent.",
    IcmpOutEchoReps = "ICMP echo replies sent.",
    IcmpOutDestUnreachs = "ICMP destination unreachable messages sent.",
    IcmpOutTimeExcds = "ICMP time exceeded messages sent.",
    IcmpOutParmProbs = "ICMP parameter problem messages sent.",
    IcmpOutRedirects = "ICMP redirect messages sent.",
    IcmpOutEchos = "ICMP echo requests sent.",
    IcmpOutRateLimitGlobal = "ICMP messages withheld by the limit for all.",
    IcmpOutRateLimitHost = "ICMP messages withheld by the limit for one peer.",
    Icmp6InMsgs = "ICMPv6 messages that arrived.",
    Icmp6InErrors = "ICMPv6 messages dropped for an error.",
    Icmp6InCsumErrors = "ICMPv6 messages with a wrong checksum.",
    Icmp6InEchos = "ICMPv6 echo requests that arrived.",
    Icmp6InEchoReplies = "ICMPv6 echo replies that arrived.",
    Icmp6InDestUnreachs = "ICMPv6 destination unreachable messages that arrived.",
    Icmp6InPktTooBigs = "ICMPv6 packet too big messages that arrived.",
    Icmp6InTimeExcds = "ICMPv6 time exceeded messages that arrived.",
    Icmp6InParmProblems = "ICMPv6 parameter problem messages that arrived.",
    Icmp6InRedirects = "ICMPv6 redirect messages that arrived.",
    Icmp6InNeighborSolicits = "Neighbour solicitations that arrived.",
    Icmp6InNeighborAdvertisements = "Neighbour advertisements that arrived.",
    Icmp6InRouterAdvertisements = "Router advertisements that arrived.",
    Icmp6InRouterSolicits = "Router solicitations that arrived where we advertise.",
    Icmp6InGroupMembQueries = "MLD queries that arrived.",
    Icmp6InGroupMembResponses = "MLDv1 reports that arrived.",
    Icmp6InGroupMembReductions = "MLDv1 done messages that arrived.",
    Icmp6InMLDv2Reports = "MLDv2 reports that arrived.",
    Icmp6OutMsgs = "ICMPv6 messages sent.",
    Icmp6OutEchoReplies = "ICMPv6 echo replies sent.",
    Icmp6OutDestUnreachs = "ICMPv6 destination unreachable messages sent.",
    Icmp6OutTimeExcds = "ICMPv6 time exceeded messages sent.",
    Icmp6OutParmProblems = "ICMPv6 parameter problem messages sent.",
    Icmp6OutPktTooBigs = "ICMPv6 packet too big messages sent.",
    Icmp6OutEchos = "ICMPv6 echo requests sent.",
    Icmp6OutRouterSolicits = "Router solicitations sent.",
    Icmp6OutRouterAdvertisements = "Router advertisements sent.",
    Icmp6OutRedirects = "ICMPv6 redirect messages sent.",
    Icmp6OutNeighborSolicits = "Neighbour solicitations sent.",
    Icmp6OutNeighborAdvertisements = "Neighbour advertisements sent.",
    Icmp6OutGroupMembResponses = "MLDv1 reports sent.",
    Icmp6OutGroupMembReductions = "MLDv1 done messages sent.",
    Icmp6OutMLDv2Reports = "MLDv2 reports sent.",
    Icmp6OutRateLimitHost = "ICMPv6 messages withheld by the limit for one peer.",
    Icmp6OutRateLimitGlobal = "ICMPv6 messages withheld by the limit for all.",
    UdpInDatagrams = "IPv4 datagrams read by applications.",
    UdpNoPorts = "IPv4 datagrams for a port without a socket.",
    UdpInErrors = "IPv4 datagrams dropped, for any reason but a missing socket.",
    UdpInCsumErrors = "IPv4 datagrams with a wrong checksum.",
    UdpRcvbufErrors = "IPv4 datagrams dropped because the socket was full.",
    UdpMemErrors = "IPv4 datagrams dropped because all UDP sockets together held too much.",
    UdpOutDatagrams = "IPv4 datagrams sent.",
    Udp6InDatagrams = "IPv6 datagrams read by applications.",
    Udp6NoPorts = "IPv6 datagrams for a port without a socket.",
    Udp6InErrors = "IPv6 datagrams dropped, for any reason but a missing socket.",
    Udp6InCsumErrors = "IPv6 datagrams with a wrong checksum.",
    Udp6RcvbufErrors = "IPv6 datagrams dropped because the socket was full.",
    Udp6MemErrors = "IPv6 datagrams dropped because all UDP sockets together held too much.",
    Udp6OutDatagrams = "IPv6 datagrams sent.",
    TcpActiveOpens = "Connections that applications opened.",
    TcpPassiveOpens = "Passive opens: handshakes that a client completed.",
    TcpAttemptFails = "Connections that ended before they were open.",
    TcpEstabResets = "Open connections that ended by a reset or were given up.",
    TcpInSegs = "TCP segments that arrived.",
    TcpOutSegs = "TCP segments sent.",
    TcpRetransSegs = "TCP segments sent again.",
    TcpInErrs = "TCP segments dropped for an error in their bytes.",
    TcpOutRsts = "TCP resets sent.",
    TcpInCsumErrors = "TCP segments with a wrong checksum.",
    TcpExtSyncookiesSent = "SYNs answered by a cookie, nothing kept.",
    TcpExtSyncookiesRecv = "Connections proven by a cookie.",
    TcpExtSyncookiesFailed = "Acknowledgments that failed SYN cookie validation.",
    TcpExtEmbryonicRsts = "Half-open connections ended by a reset.",
    TcpExtListenOverflows = "Handshakes put off because the accept queue was full.",
    TcpExtListenDrops = "SYNs and handshakes for which a listener had no room.",
    TcpExtTCPReqQFullDoCookies = "SYNs answered by a cookie for want of room.",
    TcpExtTCPReqQFullDrop = "SYNs refused for want of room, where cookies are off.",
    TcpExtTCPSynRetrans = "Answers to SYNs that were sent again.",
    TcpExtTCPAbortOnMemory = "TCP connections that stood still, ended because memory was short.",
    TcpExtTCPTimeouts = "Retransmission timers of TCP that rang.",
    TcpExtTCPChallengeACK = "Challenge acknowledgments sent (RFC 5961).",
    TcpExtIPReversePathFilter = "Packets that failed reverse path filtering.",
    FloodwallTcpEvictedUnowned = "TCP connections without an owner, reset to make room for others.",
    FloodwallTcpEvictedUnaccepted = "TCP connections not accepted yet, reset to make room.",
    FloodwallTcpEvictedIdle = "TCP connections in use, idle for longest, reset to make room.",
    FloodwallAccessDenied = "Packets that an access list denied.",
    FloodwallForwardBursts = "Times that packets were passed on together.",
    FloodwallForwardAgain = "Packets passed on the way of the one before.",
    FloodwallArpInRequests = "ARP requests that arrived for us.",
    FloodwallArpInReplies = "ARP replies that arrived for us.",
    FloodwallArpOutRequests = "ARP requests sent.",
    FloodwallArpOutReplies = "ARP replies sent.",
    FloodwallIgmpInQueries = "IGMP queries that arrived.",
    FloodwallIgmpInReports = "IGMP reports and leave messages that arrived.",
    FloodwallIgmpInErrors = "IGMP messages dropped for an error.",
    FloodwallIgmpInCsumErrors = "IGMP messages with a wrong checksum.",
    FloodwallIgmpOutReports = "IGMP reports sent.",
    FloodwallIgmpOutLeaves = "IGMPv2 leave messages sent.",
    FloodwallHeaderChecks = "Header accesses.",
    FloodwallHeaderBorrows = "Headers read where they lay.",
    FloodwallHeaderCopies = "Headers copied to scratch because they straddled chunks.",
    FloodwallHeaderCopiedBytes = "Bytes of headers copied to scratch.",
    FloodwallHeaderPulldowns = "Headers made contiguous for writing.",
    FloodwallHeaderFailures = "Header accesses beyond the packet's end.",
    FloodwallRounds = "Rounds run.",
    FloodwallDhcpIn = "DHCP messages that arrived while an answer was waited for.",
    FloodwallDhcpRefused = "DHCP messages that were rejected.",
    FloodwallDhcpOut = "DHCP messages sent.",
    FloodwallDhcpLeases = "Leases taken or prolonged.",
    FloodwallDhcpDeclines = "Leased addresses declined because another host uses them.",
    FloodwallChanges = "Changes of addresses, links, routes, leases and name servers.",
    FloodwallSnapshots = "Snapshots of interfaces and routes shown to the other workers.",
    FloodwallSnapshotsRefused = "Snapshots put off because too many waited for readers.",
    FloodwallSnapshotsTaken = "Snapshots taken over from the control shard.",
    FloodwallNeighborsPublished = "Neighbours shown to the other workers, changed or taken back.",
    FloodwallNeighborsRefused = "Neighbours not shown yet because too many waited for readers.",
    FloodwallPanicDatagrams = "Datagrams that waited unread when a worker panicked.",
    FloodwallSocketCommands = "Commands to sockets that all workers have, done or repeated.",
    FloodwallExceptionsLearnt = "Path MTUs and redirects that were accepted.",
    FloodwallExceptionsNoFlow = "Path MTUs and redirects rejected: they quote no live local flow.",
    FloodwallExceptionsBelowFloor = "Path MTUs below their family's least.",
    FloodwallExceptionsNotLower = "Path MTUs that lower nothing.",
    FloodwallExceptionsLimited = "Path MTUs and redirects beyond the accepted rate.",
    FloodwallExceptionsNoRoute = "Path MTUs and redirects of destinations without a route.",
    FloodwallDadConflicts = "Addresses given up because another host uses them.",
}

/// One number per counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters([u64; Counter::ALL.len()]);

impl Default for Counters {
    fn default() -> Self {
        Self([0; Counter::ALL.len()])
    }
}

impl Counters {
    /// Counts one.
    #[inline]
    pub fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Counts `n`.
    #[inline]
    pub fn add(&mut self, counter: Counter, n: u64) {
        if let Some(slot) = self.0.get_mut(counter as usize) {
            *slot = slot.wrapping_add(n);
        }
    }

    /// Sets a counter that is maintained elsewhere.
    pub fn set(&mut self, counter: Counter, n: u64) {
        if let Some(slot) = self.0.get_mut(counter as usize) {
            *slot = n;
        }
    }

    /// What a counter stands at.
    #[must_use]
    pub fn of(&self, counter: Counter) -> u64 {
        self.0.get(counter as usize).copied().unwrap_or(0)
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
    fn names_are_unique_and_counts_add_up() {
        let mut names: Vec<_> = Counter::ALL.iter().map(|c| c.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Counter::ALL.len());
        let mut a = Counters::default();
        a.count(Counter::IpInReceives);
        let mut b = a.clone();
        b.merge(&a);
        assert_eq!(b.of(Counter::IpInReceives), 2);
        assert!(Counter::ALL.iter().all(|c| c.sentence().ends_with('.')));
    }
}
