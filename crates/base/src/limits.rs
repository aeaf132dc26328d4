//! Every bound of the stack in one file, with its unit and its reason.
//!
//! These are defaults: the configuration holds the values in force (decision B9). What an attacker
//! can reach, and what honest traffic loses at the bound, is listed in `docs/threats.md`.

use core::time::Duration;

// Bursts and hand-off between workers.

/// Packets that one call to a device moves. Large enough to amortise the call, small enough that
/// a burst's headers stay in the first cache level.
pub const BURST_MAX: usize = 64;
/// Packets on their way from one worker to one other: eight bursts, which the other takes in eight
/// of its turns.
pub const HANDOFF_RING: usize = 512;
/// Of these, packets to be sent to neighbours that only the control shard may resolve: traffic to
/// addresses without a host leaves half of the ring to received packets.
pub const HANDOFF_OUTGOING_MAX: usize = HANDOFF_RING / 2;
/// How long a packet waits for room in a ring between two workers that was full, before packets for
/// that worker are dropped at once: longer than a worker loses its core to another thread.
pub const HANDOFF_WAIT: Duration = Duration::from_millis(10);
/// Packets that an engine may hand over in one call: a burst, of which each makes four.
pub const HANDOFF_MAX: usize = 4 * BURST_MAX;

// Packets and interfaces.

/// Chunks that one packet may have: 64 KiB in 1,792-byte pieces are 37; headers and splits on top.
pub const CHUNKS_MAX: usize = 64;
/// Interfaces that one stack may have.
pub const INTERFACES_MAX: usize = 64;
/// Addresses of each family on one interface.
pub const ADDRESSES_MAX: usize = 32;

// Routes (FIB), ECMP groups.

/// Routes of each family that the operator, the stack and DHCP may set, by default.
pub const ROUTES_MAX: usize = 1024;
/// Prefixes that a routing table keeps in a list, compared one after the other; one more makes it a
/// trie. About what a cache line holds for the price of the trie's first access.
pub const ROUTES_LISTED_MAX: usize = 64;
/// Routes that routers may advertise on one interface, default and prefix routes included.
pub const ROUTES_LEARNT_INTERFACE_MAX: usize = ROUTERS_MAX + ADVERTISED_ROUTES_MAX + PREFIXES_MAX;
/// Routes that one router may advertise: all that an interface may have besides the default one.
pub const ROUTES_LEARNT_ROUTER_MAX: usize = ADVERTISED_ROUTES_MAX + 1;
/// Routes of one prefix in one table: every router of every interface as the default one.
pub const ROUTES_PREFIX_MAX: usize = ROUTERS_MAX * INTERFACES_MAX;
/// Routing tables of one family.
pub const ROUTE_TABLES_MAX: usize = 256;
/// What one call does of what a change of a route leaves below its prefix, in units of about 20 ns:
/// an IPv6 line that inherits, or a route with an end that is uncovered, takes sixteen.
pub const ROUTE_STEP_UNITS: usize = 2048;
/// Rules of one family: each look-up may have to compare all of them.
pub const ROUTE_RULES_MAX: usize = 256;
/// Groups of next hops of one family.
pub const NEXT_HOP_GROUPS_MAX: usize = 64;
/// Members of one group: each has at least one of its 128 parts.
pub const NEXT_HOP_MEMBERS_MAX: usize = 32;
/// Gateways of groups of one family that are probed; further ones keep their flows when they do not
/// answer.
pub const GROUP_GATEWAYS_MAX: usize = 32;

// Reassembly of fragments.

/// True bytes that the fragments of one family hold while their datagrams are incomplete: about
/// 20 of the largest datagrams, an eighth of the default pool.
pub const REASSEMBLY_BYTES: usize = 2 << 20;
/// Which part of a shard's frames that may be at most.
pub const REASSEMBLY_DIVISOR: u64 = 8;
/// Incomplete datagrams of one family. The least recently extended one is evicted for a new one
/// (LRU).
pub const REASSEMBLY_DATAGRAMS: usize = 1024;
/// True bytes that one source (an IPv4 address, an IPv6 /64) may hold however full the store is:
/// the largest datagram in the most chunks. It may hold more as long as as much again is free.
pub const REASSEMBLY_SOURCE_BYTES: usize = CHUNKS_MAX * 2304;
/// Incomplete datagrams that one source may hold however full the store is.
pub const REASSEMBLY_SOURCE_DATAGRAMS: usize = 8;
/// Fragments of one datagram: 64 KiB at an MTU of 576 are 118.
pub const REASSEMBLY_FRAGMENTS_MAX: usize = 128;
/// Pieces with gaps between them of one datagram: every other one of its fragments.
pub const REASSEMBLY_RUNS_MAX: usize = REASSEMBLY_FRAGMENTS_MAX / 2;
/// Datagrams that one fragment may evict at most; beyond that the fragment itself is dropped.
pub const REASSEMBLY_EVICTIONS_MAX: usize = 8;
/// How long the rest of an IPv4 datagram is waited for (RFC 1122 section 3.3.2 has 60 to 120 s;
/// this is Linux's `ipfrag_time`).
pub const REASSEMBLY_TIMEOUT_V4: Duration = Duration::from_secs(30);
/// How long the rest of an IPv6 datagram is waited for (RFC 8200 section 4.5).
pub const REASSEMBLY_TIMEOUT_V6: Duration = Duration::from_secs(60);

// Neighbours (ARP, NDP).

/// Neighbours of one interface and family: Linux's `gc_thresh3`, which its operators know.
pub const NEIGHBORS_MAX: usize = 1024;
/// Of these, how many may be unresolved at a time: unresolved ones never displace the others
/// (RFC 6583 section 7.1).
pub const NEIGHBORS_INCOMPLETE_MAX: usize = 256;
/// Leading bits of an IPv4 source address that count as one requester of neighbours.
pub const REQUESTER_PREFIX_V4: u8 = 24;
/// Leading bits of an IPv6 source address that do: a site, which may have any number of links.
pub const REQUESTER_PREFIX_V6: u8 = 48;
/// Of the resolved ones, how many may be unverified neighbours: those that solicited us and never
/// answered a solicitation of ours. Any solicitation costs us an entry; only this many can be taken
/// that way.
pub const NEIGHBOR_UNVERIFIED_MAX: usize = 64;
/// Early solicitations a second of one interface and family for neighbours to which packets go,
/// and as many for the others: a fraction of the [`NEIGHBORS_INCOMPLETE_MAX`] that a sweep has us
/// send a second in any case.
pub const NEIGHBOR_EARLY_RATE: u32 = 32;
/// The same as a burst: several gateways and clients that lose their answers at once.
pub const NEIGHBOR_EARLY_BURST: u32 = 32;

// Router discovery and autoconfiguration.

/// Routers of one interface that advertise themselves: more than any link has; Linux keeps no count
/// and had 31,469 routes of a flood in two seconds.
pub const ROUTERS_MAX: usize = 16;
/// Prefixes of one interface that routers advertise.
pub const PREFIXES_MAX: usize = 32;
/// Routes of one interface that routers advertise besides the default one (RFC 4191).
pub const ADVERTISED_ROUTES_MAX: usize = 64;
/// Addresses of one interface made out of advertised prefixes: Linux's `max_addresses`.
pub const AUTOCONF_ADDRESSES_MAX: usize = 16;
/// DNS servers of one interface that routers advertise (RFC 8106 requires three).
pub const DNS_SERVERS_MAX: usize = 8;
/// Domains of one interface's search list that routers advertise.
pub const DNS_SEARCH_MAX: usize = 8;
/// Advertisements a second that are read of one known router. It may send one in three seconds (RFC
/// 4861, `MIN_DELAY_BETWEEN_RAS`), and answers our solicitations, at most one in four seconds.
pub const ROUTER_ADVERTISEMENT_RATE: u32 = 2;
/// Burst of advertisements of one known router: an answer and an announcement, each in two parts
/// (RFC 4861 section 6.2.3).
pub const ROUTER_ADVERTISEMENT_BURST: u32 = 4;
/// Advertisements a second that are read of all sources that are not known routers, together.
pub const ROUTER_NEWCOMER_RATE: u32 = 4;
/// Burst of advertisements from sources that are not known routers: as many routers answer a host
/// that starts as links have, and some more.
pub const ROUTER_NEWCOMER_BURST: u32 = 8;

// Path MTU and redirects.

/// Destinations of each family of which a path MTU or a redirect is remembered, total: 256 buckets
/// of [`EXCEPTION_DEPTH_MAX`]; Linux has 2048 buckets (IPv4) or 1024 (IPv6) of as many, for each
/// next hop.
pub const EXCEPTIONS_MAX: usize = 256 * EXCEPTION_DEPTH_MAX;
/// Of these, how many may be of one next hop: no router displaces the entries of others.
pub const EXCEPTIONS_HOP_MAX: usize = 1024;
/// Entries of one bucket: a new entry finds at least 5 and at most 9 places, drawn anew each time,
/// so that filling a bucket does not reveal where another host's destination hashes to
/// (CVE-2021-20322).
pub const EXCEPTION_DEPTH_MAX: usize = 9;
/// The minimum depth of a bucket for a new entry.
pub const EXCEPTION_DEPTH_MIN: usize = 5;
/// Path MTUs and redirects a second that one host accepts, all its workers together: a busy
/// server's flows behind one new tunnel are known within seconds.
pub const EXCEPTION_RATE: u32 = 256;
/// The same as a burst, after an idle time.
pub const EXCEPTION_BURST: u32 = 256;
/// Recent destinations of raw sockets, about which an ICMP message is accepted.
pub const RAW_SENT_MAX: usize = 64;
/// Destinations for which an ICMP message about an echo reply is remembered, for replies alone.
pub const ECHO_PATHS_MAX: usize = 256;

// Packets that wait, forwarding, access lists.

/// Packets that wait for one neighbour's link address. RFC 1122 section 2.3.2.2 requires at least
/// one; Linux kept three, and since 3.3 keeps 212,992 bytes, which remote senders can make it hold
/// for each unused address. Of a datagram in more fragments than this the first ones are lost while
/// its neighbour is resolved; the sender retransmits, and by then the neighbour is known.
pub const NEIGHBOR_PENDING_MAX: usize = 3;
/// Which part of a shard's frames the packets of one family that wait for neighbours may hold.
pub const NEIGHBOR_PENDING_DIVISOR: u64 = 32;
/// Packets of others that one follower hands over in a round because their neighbour is not known:
/// a fraction of a burst, so that neighbour discovery itself still gets through.
pub const FORWARD_HANDED_MAX: usize = 16;
/// Rules of one interface's access list: each packet may be compared with all of them.
pub const ACCESS_RULES_MAX: usize = 256;

// IPv6 extension headers.

/// IPv6 extension headers of one packet.
pub const EXTENSION_HEADERS_MAX: usize = 8;
/// Options of one extension header, padding apart (RFC 8504 section 5.3).
pub const EXTENSION_OPTIONS_MAX: usize = 8;
/// Consecutive bytes of padding between options (RFC 8504 section 5.3).
pub const EXTENSION_PADDING_MAX: usize = 7;
/// Bytes of one packet's extension headers together.
pub const EXTENSION_BYTES_MAX: usize = 1500;

// ICMP: token buckets, ping and raw sockets.

/// ICMP answers a second that one peer may cause.
pub const ICMP_PEER_RATE: u32 = 100;
/// ICMP answers that one peer may cause at once.
pub const ICMP_PEER_BURST: u32 = 50;
/// ICMP errors a second for all peers together: Linux's `icmp_msgs_per_sec`.
pub const ICMP_ERROR_RATE: u32 = 1000;
/// ICMP errors at once for all peers together.
pub const ICMP_ERROR_BURST: u32 = 50;
/// Echo replies a second that one peer may cause: high enough for any monitoring, and for `ping
/// -f`.
pub const ICMP_ECHO_PEER_RATE: u32 = 10_000;
/// Echo replies that one peer may cause at once.
pub const ICMP_ECHO_PEER_BURST: u32 = 1000;
/// Peers with an ICMP share of their own; more share slots by keyed hash.
pub const ICMP_PEERS: usize = 1024;
/// Ping sockets of one stack: as many programs as may ping at a time.
pub const PING_SOCKETS_MAX: usize = 64;
/// Peers that a ping socket remembers having sent to; beyond this it accepts replies from any
/// address.
pub const PING_PEERS_MAX: usize = 8;
/// Bytes that wait in one ping socket, counted in true bytes: Linux's `rmem_default`.
pub const PING_RECEIVE_BYTES: usize = 212_992;
/// Raw sockets of one stack, where the embedding program allows any: each looks at each packet of
/// its protocol.
pub const RAW_SOCKETS_MAX: usize = 16;
/// Bytes that wait in one raw socket, counted with the frames that they keep from being used.
pub const RAW_RECEIVE_BYTES: usize = 212_992;
/// Which part of a shard's frames all ping sockets may hold together, and all raw ones as many.
pub const ICMP_SOCKETS_DIVISOR: u64 = 32;
/// Chunks that wait in one raw or ping socket: raw ones take a reference of the pool each.
pub const RAW_CHUNKS_MAX: usize = 256;
/// ICMP errors that wait in one ping or raw socket until they are read.
pub const ICMP_REPORTS_MAX: usize = 8;

// UDP sockets and groups.

/// UDP sockets of one stack.
pub const UDP_SOCKETS_MAX: usize = 65_536;
/// Sockets that one datagram to a group or broadcast address reaches at most: each costs a copy.
pub const UDP_GROUP_SOCKETS_MAX: usize = 64;
/// Groups that one UDP socket may join: Linux's `igmp_max_memberships`.
pub const UDP_GROUPS_MAX: usize = 20;
/// Groups that the programs on one interface may have joined together.
pub const INTERFACE_GROUPS_MAX: usize = 64;
/// Sources that one filter of a group names: Linux's `igmp_max_msf` is 10. A filter that needs more
/// accepts all sources.
pub const GROUP_SOURCES_MAX: usize = 16;
/// Options of one neighbour discovery message.
pub const NDP_OPTIONS_MAX: usize = 64;
/// Bytes that wait in one UDP socket, counted in true bytes: Linux's `rmem_default`.
pub const UDP_RECEIVE_BYTES: usize = 212_992;
/// True bytes that the UDP sockets of a shard may hold together before they are held to less than
/// their own limits: a sixth of the frames that a shard has by default. Linux's `udp_mem`.
pub const UDP_MEMORY: usize = 3 * 1024 * 1024;
/// True bytes that a UDP socket may hold also where all hold a little more than that: two frames.
pub const UDP_MEMORY_FLOOR: usize = 2 * (2048 + 128);
/// Counters in a row of the count-min sketch that distinguishes light senders of a flooded UDP
/// socket from heavy ones.
pub const UDP_FAIR_CELLS: usize = 16_384;
/// Bytes of one UDP socket on their way out, counted in true bytes.
pub const UDP_SEND_BYTES: usize = 212_992;

// Rounds, triage, the XDP program.

/// Packets that wait on the loopback interface: Linux's `netdev_max_backlog`.
pub const LOOPBACK_QUEUE_MAX: usize = 1000;
/// How long a worker may run without a break (decision D18).
pub const ROUND_MAX: Duration = Duration::from_millis(1);
/// Packets of unverified sources of one family that wait while packets arrive faster than they are
/// handled: half of a usual device ring, handled within a fraction of a millisecond once there is
/// time.
pub const UNVERIFIED_WAITING_MAX: usize = 512;
/// Peers that sockets which are not connected have lately answered, and that triage prefers.
/// 256 KiB a shard.
pub const ANSWERED_PEERS: usize = 16_384;
/// Of these, how many may be of one IPv4 /24 or IPv6 /64: a multiple of eight. Eight clients of
/// one site that are active at once share a set's four unprotected places under one key in 20,000;
/// with 32 it was one key in nine.
pub const ANSWERED_PREFIX_MAX: usize = 256;
/// Listeners, each at one address, for which the program at an XDP interface answers SYNs.
pub const XDP_LISTENERS: usize = 1024;
/// Established flows that the program at an XDP interface knows: 384 KiB.
pub const XDP_ESTABLISHED_FLOWS: usize = 16_384;
/// Pairs of hosts, each for one direction, that the program at an XDP interface forwards for by
/// itself: 768 KiB where there is forwarding.
pub const XDP_REDIRECTS: usize = 8192;
/// Such pairs that a turn enters at most.
pub const REDIRECT_OFFERS_MAX: usize = 16;
/// Pairs of hosts between which a router has recently forwarded in both directions, and that triage
/// prefers: a power of two. One takes eight bytes.
pub const DIALOGUES: usize = 65_536;
/// Units of timed work in one slice.
pub const WORK_UNITS: u32 = 64;

// DHCP.

/// Bytes of a DHCP message that is looked at: an Ethernet frame's worth.
pub const DHCP_MESSAGE_BYTES_MAX: usize = 1472;
/// Routes that a DHCP server may give.
pub const DHCP_ROUTES_MAX: usize = 16;
/// Name servers that a DHCP server may give.
pub const DHCP_DNS_MAX: usize = 4;
/// Left-out options of a DHCP lease that are kept in detail, for the log.
pub const DHCP_LEFT_OUT_MAX: usize = 4;
/// Bytes of the domains that a DHCP server may give.
pub const DHCP_NAMES_BYTES: usize = 256;

// Sockets on other threads.

/// Sockets that programs on other threads may have open, by default.
pub const REMOTE_SOCKETS_MAX: usize = 1024;
/// Lanes from which programs take memory to send from, by default: two for each of two cores.
pub const REMOTE_LANES: usize = 4;
/// Requests of programs (binds, options) that wait for the control shard.
pub const REMOTE_REQUESTS_MAX: usize = 64;
/// Requests of programs that are carried out in one round.
pub const REMOTE_REQUESTS_ROUND: usize = 4;
/// Program sockets that may send in one round; the others are first in the next.
pub const REMOTE_SLOTS_ROUND: usize = 64;
/// Bytes that one such socket sends in one round, and one datagram more.
pub const REMOTE_SLOT_BYTES: usize = 65_536;
/// Requests for connections and listeners that wait at one worker.
pub const REMOTE_CONNECTS_MAX: usize = 1024;
/// How many of those one round carries out.
pub const REMOTE_CONNECTS_ROUND: usize = 64;
/// Finished connections that wait at a program's listener, beyond the backlogs of its shards.
pub const REMOTE_ACCEPT_MAX: u32 = 128;
/// Runtimes with tasks that are woken through a driver of their own; further ones are woken
/// directly.
pub const REMOTE_GROUPS_MAX: usize = 63;
/// Wakers that wait for one runtime's driver; further ones are woken directly.
pub const REMOTE_GROUP_WAKERS: usize = 4096;

// What shards publish.

/// How often the control shard of a host shows its interfaces, routes and redirects to the others
/// at most: a copy of full tables is 0.2 MB, so that churn never costs more than a few percent.
pub const SNAPSHOT_EVERY: Duration = Duration::from_millis(1);
/// Snapshots that wait for readers, besides the published one.
pub const SNAPSHOTS_WAITING: usize = 4;
/// Sets of published neighbours of each family that wait for readers.
pub const NEIGHBOR_SETS_WAITING: usize = 1024;
/// Commands to shared sockets that wait for one follower.
pub const SOCKET_COMMANDS_WAITING: usize = 256;

// TCP: challenge ACKs, TIME-WAIT, out-of-order data.

/// Answers to segments that change nothing which one TCP connection sends in a second.
pub const TCP_CHALLENGES_PER_SECOND: u32 = 5;
/// Smallest segment size that a peer's option makes us send.
pub const TCP_MSS_FLOOR: u16 = 88;
/// Pairs of addresses between which TCP segments pass without the network layer's questions.
pub const TCP_ADMITTED_ENDS: usize = 8;
/// Flows of TCP that are found without a hash: the last ones, in a direct-mapped table.
pub const TCP_RECENT_FLOWS: usize = 2048;
/// Records of TIME-WAIT of one shard, by default.
pub const TCP_TIME_WAITS: usize = 16_384;
/// Holes in what one TCP connection has received, plus one: losses of a large window.
pub const TCP_RUNS_FLOW: usize = 64;
/// Runs of received bytes that wait behind a hole, of all connections of a shard.
pub const TCP_RUNS: usize = 4096;
/// Which part of the runs is kept for connections that have hardly any.
pub const TCP_RUNS_RESERVE_DIVISOR: usize = 8;

// SYN cache and SYN cookies.

/// Rows of the SYN cache, a power of two: Lemon's and FreeBSD's `hashsize`.
pub const SYN_CACHE_ROWS: usize = 512;
/// Half-open connections of one row: FreeBSD's `bucketlimit`. With its place in the row each takes
/// 68 bytes, a row 2 KiB, the whole cache a megabyte.
pub const SYN_CACHE_WAYS: usize = 30;
/// Half-open connections of one SYN cache: FreeBSD's `cachelimit`, 512 x 30 less one.
pub const SYN_CACHE_ENTRIES: usize = 15_359;
/// Half-open connections of one IPv4 /24 or IPv6 /56: a quarter. Beyond, its SYNs are answered by
/// cookies, which costs a client the retransmission of our SYN-ACK and nothing else.
pub const SYN_CACHE_PREFIX_MAX: usize = SYN_CACHE_ENTRIES / 4;
/// How often an unacknowledged SYN-ACK is retransmitted: after 1, 3, 7, 15 and 31 seconds, as by
/// Linux, so that a half-open connection lasts 63 seconds.
pub const SYN_ACK_RETRANSMITS: u8 = 5;
/// SYN-ACKs that one cache sends again in a second: half a megabit of them.
pub const SYN_ACK_RETRANSMIT_RATE: u32 = 1000;
/// SYN-ACKs that are sent again at once.
pub const SYN_ACK_RETRANSMIT_BURST: u32 = 100;
/// How long one key makes SYN cookies: FreeBSD's 15 s. A cookie is good for one to two of these.
pub const SYN_COOKIE_PERIOD: Duration = Duration::from_secs(15);
/// SYN cookies validated in a second, of ACKs without a connection: at 50 ns each a twentieth of a
/// core.
pub const SYN_COOKIE_VERIFY_RATE: u32 = 1_000_000;
/// SYN cookies validated at once, after an idle time.
pub const SYN_COOKIE_VERIFY_BURST: u32 = 10_000;
/// How long a listener answers by cookies alone once its entries are lost before they serve.
pub const SYN_COOKIE_ONLY_MIN: Duration = Duration::from_secs(15);
/// The same at most, after doubling with every renewed flood.
pub const SYN_COOKIE_ONLY_MAX: Duration = Duration::from_secs(240);

// TCP: listeners, sent segments, connections.

/// Listeners of one SYN cache.
pub const LISTENERS_MAX: usize = 1024;
/// Records of sent data of a shard's TCP connections: several for each connection, of 48 bytes.
pub const TCP_RECORDS: usize = 65_536;
/// Records of one TCP connection: a loss in every second segment of 5 MiB in flight.
pub const TCP_RECORDS_FLOW: usize = 4096;
/// Which part of the records is kept for cuts, and for connections that have none.
pub const TCP_RECORDS_RESERVE_DIVISOR: usize = 8;
/// Records that the SACK blocks of one ACK may visit.
pub const TCP_SACK_STEPS: u32 = 256;
/// Small chunks of acknowledged data that the ACKs of one turn free: twice as many as connections
/// send packets in one. The rest is timed work.
pub const TCP_CHUNKS_FREED_MAX: u32 = 256;
/// TCP connections of one shard, TIME-WAIT apart.
pub const TCP_CONNECTIONS_MAX: usize = 65_536;
/// Which part of a shard's connection places is kept free: where less is free, each newcomer evicts
/// a connection of the source prefix that holds most.
pub const TCP_PLACES_KEPT_DIVISOR: usize = 16;
/// Which part is kept for newcomers of prefixes that have less than their fair share.
pub const TCP_PLACES_NEWCOMERS_DIVISOR: usize = 32;
/// Connections that are looked at to find one to evict, of one list.
pub const TCP_EVICT_LOOKS: usize = 16;
/// Connections that one newcomer evicts at most.
pub const TCP_EVICTED_MAX: usize = 2;
/// How long a connection must have been idle to be evicted for another one of its own prefix, or of
/// a prefix that holds as much.
pub const TCP_EVICT_OWN_IDLE: Duration = Duration::from_millis(500);
/// How much a connection that no program owns any more weighs in its prefix's share of the places,
/// beside one that is in use.
pub const TCP_UNOWNED_WEIGHT: u8 = 4;
/// Connections that may wait to be accepted of one listener, the limit of any backlog: Linux's
/// `somaxconn`.
pub const TCP_BACKLOG_MAX: usize = 4096;

// TCP: memory.

/// True bytes that may wait to be read of one TCP connection, at most: Linux's `tcp_rmem[2]`.
pub const TCP_RECEIVE_BYTES: usize = 6 << 20;
/// True bytes that may wait to be acknowledged of one TCP connection, at most: Linux's
/// `tcp_wmem[2]`.
pub const TCP_SEND_BYTES: usize = 4 << 20;
/// Where both begin: what a window without congestion needs within 20 ms at 100 Mbit/s. They grow
/// as the program reads, and as the congestion window does.
pub const TCP_BUFFER_BYTES_FIRST: usize = 262_144;
/// Which part of a shard's frames its TCP connections may hold together, so that packets still
/// arrive when peers leave data unread.
pub const TCP_MEMORY_DIVISOR: u64 = 2;
/// Which part of a shard's frames its TCP connections may hold regardless of what sockets,
/// fragments and unresolved neighbours use. Of these, sockets hold a quarter at most, the fragments
/// of each family an eighth, and packets for unresolved neighbours of each family a 32nd.
pub const TCP_MEMORY_PART_LEAST: u64 = 4;
/// Which part of a shard's frames is kept for packets that arrive and leave: TCP's connections have
/// what it, sockets, fragments and unresolved neighbours leave.
pub const PACKETS_KEPT_DIVISOR: u64 = 8;
/// By which part connections may exceed what they may hold together, while one that stands still
/// has time to move on.
pub const TCP_MEMORY_EXCESS_DIVISOR: u64 = 8;
/// Connections that are ended at a time for memory.
pub const TCP_MEMORY_ENDED_MAX: usize = 64;

// TCP: times.

/// How long TIME-WAIT lasts: Linux's `TCP_TIMEWAIT_LEN`.
pub const TCP_TIME_WAIT: Duration = Duration::from_secs(60);
/// How long a SYN is sent again (RFC 9293 section 3.8.3: three minutes at least).
pub const TCP_OPEN_PATIENCE: Duration = Duration::from_secs(180);
/// How long nothing may be acknowledged, nor a window opened, before a connection is given up:
/// what Linux's 15 retransmissions take.
pub const TCP_STALL_PATIENCE: Duration = Duration::from_secs(924);
/// How long a connection that no application owns any more waits for its peer's FIN.
pub const TCP_ORPHAN_PATIENCE: Duration = Duration::from_secs(60);
/// How long what such a connection has sent, or what its peer's window keeps back, may stand still:
/// more than the 100 seconds of RFC 9293 section 3.8.3 (R2).
pub const TCP_ORPHAN_STALL_PATIENCE: Duration = Duration::from_secs(120);
/// What both fall to as more than half of the places are used: Linux's orphans are reset at once
/// beyond `tcp_max_orphans`. A lost FIN is sent again within this time.
pub const TCP_ORPHAN_PATIENCE_MIN: Duration = Duration::from_secs(3);
