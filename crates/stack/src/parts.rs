//! The parts of a [`Stack`](crate::Stack): fields that belong to one concern, grouped.
//!
//! Each part is plain data: the `impl` blocks of `Stack` work on several at once, and the borrow
//! checker tells them apart by field.

use core::cell::Cell;
use std::sync::Arc;

use floodwall_base::{Address, Instant, Steering, WorkerId};
use floodwall_fib::Fib;
use floodwall_fib::exceptions::{Exceptions, PathUpdateFilter};
use floodwall_fib::lpm::LpmFamily;
use floodwall_ip::access_list::AccessList;
use floodwall_ip::{Dad, FragmentStore, IcmpLimit, NeighborCache, PingSockets, RawSockets};
use floodwall_packet::PacketList;
use floodwall_udp::Udp;
use floodwall_wire::ExtensionLimits;

use crate::control::advertise::state::Advertisers;
use crate::control::dhcp::state::Dhcp;
use crate::control::dhcpv6::state::Dhcpv6;
use crate::control::group_gateways::state::GroupGateways;
use crate::control::multicast::state::MulticastGroups;
use crate::control::router::state::InterfaceRouters;
use crate::ip::echo::refusals::EchoRefusals;
use crate::ip::exceptions::{EchoPaths, RawSent};
use crate::ip::expected_datagrams::ExpectedDatagrams;
use crate::ip::forward::forwarding::Forwarding;
use crate::ip::path_cache::PathCache;
use crate::shards::{Role, ShardPlace};
use crate::tcp::drain::progress::DrainProgress;
use crate::tcp::gro::GroFlow;
use crate::tcp::wall_clock::WallClock;
use crate::triage::recent_peers::RecentPeers;
use crate::triage::scratch::TriageScratch;
use crate::watched::Watched;
use crate::work_snapshot::WorkSnapshot;
use floodwall_remote::RemoteShard;

/// The tables of one address family.
pub(crate) struct FamilyState<A: Address + LpmFamily> {
    pub(crate) routes: Watched<Fib<A>>,
    pub(crate) neighbors: Watched<NeighborCache<A>>,
    /// What routers have reported about single destinations (path MTU, redirects).
    pub(crate) exceptions: Exceptions<A>,
    pub(crate) reassembly: Watched<FragmentStore<A>>,
}

/// What configures the host's addresses and routes while it runs.
pub(crate) struct ControlState {
    pub(crate) dad: Dad,
    /// Whether new addresses are probed before their use.
    pub(crate) detects: bool,
    /// When an address may have to be looked at: never later than its next end.
    pub(crate) address_deadline: Option<Instant>,
    /// State of router discovery, for each interface that accepts router advertisements.
    pub(crate) routers: InterfaceRouters,
    /// Where we advertise ourselves.
    pub(crate) advertisers: Advertisers,
    /// The DHCP clients of the interfaces.
    pub(crate) dhcp: Dhcp,
    /// The same of IPv6.
    pub(crate) dhcpv6: Dhcpv6,
    /// Whether the gateways of ECMP groups answer.
    pub(crate) group_gateways: GroupGateways,
    /// Multicast groups that we are members of, and reports that we sent.
    pub(crate) groups: MulticastGroups,
    pub(crate) follows_redirects: bool,
}

/// What ICMP needs to answer, and to judge what it receives.
pub(crate) struct IcmpState {
    pub(crate) limit: IcmpLimit,
    pub(crate) echo_refusals: EchoRefusals,
    /// MTU of the paths of our echo replies.
    pub(crate) echo_paths: EchoPaths,
    /// Decides which reports of routers are accepted, for flows of this shard.
    pub(crate) path_updates: PathUpdateFilter,
}

/// Which packets are let in, and which are passed on.
pub(crate) struct PacketPolicy {
    /// What each interface lets in; empty where none has rules.
    pub(crate) access_lists: Box<[Option<AccessList>]>,
    /// How often one of them was replaced.
    pub(crate) access_changes: u64,
    /// What is needed to pass others' packets on, where that is wanted.
    pub(crate) forwarding: Option<Box<Forwarding>>,
    pub(crate) extension_limits: ExtensionLimits,
}

/// The datagram sockets, and what is remembered of their peers.
pub(crate) struct SocketTables {
    pub(crate) udp: Udp,
    pub(crate) ping: PingSockets,
    pub(crate) raw: RawSockets,
    /// Destinations to which raw sockets have lately sent.
    pub(crate) raw_sent: RawSent,
    /// Peers to which sockets that are not connected have lately sent.
    pub(crate) recent_peers: RecentPeers,
    /// What each socket's last datagram took.
    pub(crate) path_cache: PathCache,
    /// Where datagrams led that sockets have taken lately.
    pub(crate) expected: ExpectedDatagrams,
}

/// What this stack is among the shards of its host, and which work of others it has.
pub(crate) struct ShardContext {
    pub(crate) role: Role,
    /// Where the next one finds what it needs, if this one is dropped.
    pub(crate) place: Option<Arc<ShardPlace>>,
    pub(crate) worker: WorkerId,
    /// The worker that owns a flow (software RSS).
    pub(crate) steering: Steering,
    /// The wall clock, which selects the keys of SYN cookies.
    pub(crate) wall: WallClock,
    /// The sockets of programs on other threads, where there are any.
    pub(crate) remote: Option<Box<RemoteShard>>,
    /// Its connections are being ended, or have been.
    pub(crate) drain: Option<Box<DrainProgress>>,
    /// The last query whether this stack may sleep was answered no: there is work.
    pub(crate) restless: bool,
    /// Timers have a part of each call's units, however much programs have taken.
    pub(crate) timers_have_part: bool,
}

impl ShardContext {
    /// A shard without programs and without a place that another one takes over.
    pub(crate) fn new(
        (role, timers_have_part): (Role, bool),
        worker: WorkerId,
        steering: Steering,
    ) -> Self {
        Self {
            role,
            place: None,
            worker,
            steering,
            wall: WallClock::default(),
            remote: None,
            drain: None,
            restless: false,
            timers_have_part,
        }
    }
}

/// What lives from one packet of a burst to the next.
pub(crate) struct BurstState {
    /// What triage notes of a burst.
    pub(crate) triage: Cell<Option<Box<TriageScratch>>>,
    /// When the last round was.
    pub(crate) at: Instant,
    /// Behind the packet that is taken in, others of its burst follow.
    pub(crate) more_arrives: bool,
    /// The segment before, where others may follow it.
    pub(crate) follow: GroFlow,
    /// The connection of the burst's last segment that was predicted.
    pub(crate) predicted: u32,
    /// Packets of the burst that were read in one go.
    pub(crate) in_one_go: u32,
    /// The counters before the first packet of the burst that was not.
    pub(crate) general: Option<WorkSnapshot>,
    /// What we sent to ourselves and have not yet received.
    pub(crate) loopback: PacketList,
    /// Packets that may depart in a call before connections keep what they have.
    pub(crate) tx_room: usize,
    /// Some connection has kept what it would have sent.
    pub(crate) owes_segments: bool,
}

/// Whether the shares of the packet memory are up to date.
pub(crate) struct MemoryShare {
    /// Its parts know how much of the packet memory is theirs.
    pub(crate) is_fitted: bool,
    /// Some part may hold more packet memory than the limit last given to the TCP connections
    /// allows for.
    pub(crate) has_moved: bool,
}

impl BurstState {
    /// As the connection of a predicted segment: none.
    pub(crate) const NO_CONNECTION: u32 = u32::MAX;
}

impl Default for BurstState {
    fn default() -> Self {
        Self {
            triage: Some(Box::default()).into(),
            at: Instant::ORIGIN,
            more_arrives: false,
            follow: GroFlow::default(),
            predicted: Self::NO_CONNECTION,
            in_one_go: 0,
            general: None,
            loopback: PacketList::new(),
            tx_room: usize::MAX,
            owes_segments: false,
        }
    }
}

impl Default for MemoryShare {
    fn default() -> Self {
        Self { is_fitted: false, has_moved: true }
    }
}
