//! What differs between the families when a packet is sent: one trait, two short answers.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{Address, Counter};
use floodwall_fib::exceptions::Exceptions;
use floodwall_fib::lpm::LpmFamily as Routed;
use floodwall_fib::{Fib, FibReader};
use floodwall_ip::output::{self, HeaderError};
use floodwall_ip::{IcmpError, NeighborCache, icmp};
use floodwall_packet::{PacketBuf, Pool};
use floodwall_wire::{EtherType, IpProtocol};

use crate::ip::addr_pair::AddrPair;
use crate::ip::fib_pair::FibReaders;
use crate::ip::outgoing_packet::BEST_EFFORT;
use crate::ip::path_cache::LastPath;
use crate::shards::FollowerView;
use crate::stack::Stack;

/// The tables and words of one family.
pub(crate) trait IpFamily: Address + Routed + FollowerView + LastPath {
    const ETHER_TYPE: EtherType;
    const ICMP: IpProtocol;
    /// The traffic class of ICMP errors: precedence 6, "internetwork control" (RFC 1812 section
    /// 4.3.2.5); RFC 4443 specifies none for ICMPv6.
    const ERROR_CLASS: u8;
    const OUT_REQUESTS: Counter;
    const OUT_OCTETS: Counter;
    const OUT_NO_ROUTES: Counter;
    const OUT_DISCARDS: Counter;
    const OUT_ICMP: Counter;
    const OUT_ECHOS: Counter;
    const FRAG_OKS: Counter;
    const FRAG_FAILS: Counter;
    const FRAG_CREATES: Counter;
    const OUT_LIMITED_PEER: Counter;
    const OUT_LIMITED_ALL: Counter;

    fn fib(stack: &Stack) -> &Fib<Self>;
    fn fib_mut(stack: &mut Stack) -> &mut Fib<Self>;
    fn fib_reader(readers: &FibReaders) -> &FibReader<Self>;
    fn neighbors(stack: &mut Stack) -> &mut NeighborCache<Self>;
    fn exceptions(stack: &Stack) -> &Exceptions<Self>;
    fn exceptions_mut(stack: &mut Stack) -> &mut Exceptions<Self>;

    /// Puts the IP header before the upper layer's bytes.
    fn header(
        pool: &Pool,
        packet: PacketBuf,
        ends: AddrPair<Self>,
        protocol: IpProtocol,
        hop_limit: u8,
        class: u8,
    ) -> Result<PacketBuf, HeaderError>;

    /// An ICMP error about `packet`, checksum included, without IP header.
    fn icmp_error(
        pool: &Pool,
        error: IcmpError,
        packet: &PacketBuf,
        l3: usize,
        ends: AddrPair<Self>,
    ) -> Option<PacketBuf>;

    /// What is counted when an error goes out.
    fn count_error(stack: &mut Stack, error: IcmpError);
}

impl IpFamily for Ipv4Addr {
    const ETHER_TYPE: EtherType = EtherType::IPV4;
    const ICMP: IpProtocol = IpProtocol::ICMPV4;
    const ERROR_CLASS: u8 = 6 << 5;
    const OUT_REQUESTS: Counter = Counter::IpOutRequests;
    const OUT_OCTETS: Counter = Counter::IpOutOctets;
    const OUT_NO_ROUTES: Counter = Counter::IpOutNoRoutes;
    const OUT_DISCARDS: Counter = Counter::IpOutDiscards;
    const OUT_ICMP: Counter = Counter::IcmpOutMsgs;
    const OUT_ECHOS: Counter = Counter::IcmpOutEchos;
    const FRAG_OKS: Counter = Counter::IpFragOKs;
    const FRAG_FAILS: Counter = Counter::IpFragFails;
    const FRAG_CREATES: Counter = Counter::IpFragCreates;
    const OUT_LIMITED_PEER: Counter = Counter::IcmpOutRateLimitHost;
    const OUT_LIMITED_ALL: Counter = Counter::IcmpOutRateLimitGlobal;

    fn fib(stack: &Stack) -> &Fib<Self> {
        &stack.v4.routes
    }
    fn fib_mut(stack: &mut Stack) -> &mut Fib<Self> {
        &mut stack.v4.routes
    }
    fn fib_reader(readers: &FibReaders) -> &FibReader<Self> {
        &readers.v4
    }
    fn neighbors(stack: &mut Stack) -> &mut NeighborCache<Self> {
        &mut stack.v4.neighbors
    }
    fn exceptions(stack: &Stack) -> &Exceptions<Self> {
        &stack.v4.exceptions
    }
    fn exceptions_mut(stack: &mut Stack) -> &mut Exceptions<Self> {
        &mut stack.v4.exceptions
    }
    fn header(
        pool: &Pool,
        packet: PacketBuf,
        ends: AddrPair<Self>,
        protocol: IpProtocol,
        hop_limit: u8,
        class: u8,
    ) -> Result<PacketBuf, HeaderError> {
        output::ipv4(pool, packet, ends.src_addr, ends.dst_addr, protocol, hop_limit, class)
    }
    fn icmp_error(
        pool: &Pool,
        error: IcmpError,
        packet: &PacketBuf,
        l3: usize,
        _: AddrPair<Self>,
    ) -> Option<PacketBuf> {
        icmp::error_v4(pool, error, packet, l3)
    }
    fn count_error(stack: &mut Stack, error: IcmpError) {
        let counters = &mut stack.stats.counters;
        counters.count(Counter::IcmpOutMsgs);
        counters.count(match error {
            IcmpError::ParameterProblem { .. } => Counter::IcmpOutParmProbs,
            IcmpError::HopLimitExceeded | IcmpError::ReassemblyTimeExceeded => {
                Counter::IcmpOutTimeExcds
            }
            _ => Counter::IcmpOutDestUnreachs,
        });
    }
}

impl IpFamily for Ipv6Addr {
    const ETHER_TYPE: EtherType = EtherType::IPV6;
    const ICMP: IpProtocol = IpProtocol::ICMPV6;
    const ERROR_CLASS: u8 = BEST_EFFORT;
    const OUT_REQUESTS: Counter = Counter::Ip6OutRequests;
    const OUT_OCTETS: Counter = Counter::Ip6OutOctets;
    const OUT_NO_ROUTES: Counter = Counter::Ip6OutNoRoutes;
    const OUT_DISCARDS: Counter = Counter::Ip6OutDiscards;
    const OUT_ICMP: Counter = Counter::Icmp6OutMsgs;
    const OUT_ECHOS: Counter = Counter::Icmp6OutEchos;
    const FRAG_OKS: Counter = Counter::Ip6FragOKs;
    const FRAG_FAILS: Counter = Counter::Ip6FragFails;
    const FRAG_CREATES: Counter = Counter::Ip6FragCreates;
    const OUT_LIMITED_PEER: Counter = Counter::Icmp6OutRateLimitHost;
    const OUT_LIMITED_ALL: Counter = Counter::Icmp6OutRateLimitGlobal;

    fn fib(stack: &Stack) -> &Fib<Self> {
        &stack.v6.routes
    }
    fn fib_mut(stack: &mut Stack) -> &mut Fib<Self> {
        &mut stack.v6.routes
    }
    fn fib_reader(readers: &FibReaders) -> &FibReader<Self> {
        &readers.v6
    }
    fn neighbors(stack: &mut Stack) -> &mut NeighborCache<Self> {
        &mut stack.v6.neighbors
    }
    fn exceptions(stack: &Stack) -> &Exceptions<Self> {
        &stack.v6.exceptions
    }
    fn exceptions_mut(stack: &mut Stack) -> &mut Exceptions<Self> {
        &mut stack.v6.exceptions
    }
    fn header(
        pool: &Pool,
        packet: PacketBuf,
        ends: AddrPair<Self>,
        protocol: IpProtocol,
        hop_limit: u8,
        class: u8,
    ) -> Result<PacketBuf, HeaderError> {
        output::ipv6(pool, packet, ends.src_addr, ends.dst_addr, protocol, hop_limit, class)
    }
    fn icmp_error(
        pool: &Pool,
        error: IcmpError,
        packet: &PacketBuf,
        l3: usize,
        ends: AddrPair<Self>,
    ) -> Option<PacketBuf> {
        icmp::error_v6(pool, error, packet, l3, ends.src_addr, ends.dst_addr)
    }
    fn count_error(stack: &mut Stack, error: IcmpError) {
        let counters = &mut stack.stats.counters;
        counters.count(Counter::Icmp6OutMsgs);
        counters.count(match error {
            IcmpError::ParameterProblem { .. } | IcmpError::ProtocolUnreachable { .. } => {
                Counter::Icmp6OutParmProblems
            }
            IcmpError::PacketTooBig { .. } => Counter::Icmp6OutPktTooBigs,
            IcmpError::HopLimitExceeded | IcmpError::ReassemblyTimeExceeded => {
                Counter::Icmp6OutTimeExcds
            }
            _ => Counter::Icmp6OutDestUnreachs,
        });
    }
}
