//! Path MTUs and redirects that arrive: their validation, and where they are stored.
//!
//! Called by `errors.rs` (packet too big), by `redirect.rs`, and by `shards/handover.rs` for other
//! shards. Both families and both messages take the same steps:
//!
//! ```text
//!   arrives ──► the shard of the quoted flow ──► fib::exceptions::Judge ──► the control shard
//!               does it quote a live flow?       floor, lower, rate          writes, publishes
//! ```
//!
//! The shard at which a message arrives is that of its flow, with two exceptions: redirects arrive
//! at the control shard, and a program's socket is sent for by one shard. The responsible shard is
//! then queried (`HandoffKind::Quoting`). An accepted message goes to the control shard
//! (`HandoffKind::Believed`), the one writer (decision D15); followers read their copy. Only the
//! ICMP message is handed over, and parsed again from the start at each end. Invariant: nothing is
//! learnt from a message about a flow that no local socket has connected or lately sent to, except
//! the path MTU of echo replies (`echo_paths.rs`); each refusal has its counter, and its drop
//! reason where it was not reported to a socket either. No message is ever answered. Reading: RFC
//! 1191, RFC 8201, RFC 5927 section 7, RFC 8085 section 5.2.
//!
//! # Under flood
//! Reachable by any source. A message that quotes no live flow costs the parse of its quote and one
//! look-up of a socket, as any ICMP error; it changes nothing. For an unconnected socket, the flows
//! to the peers in `recent_peers.rs` are live: bounded there, and an evicted peer is added again
//! with the next datagram to it. Messages that quote a live flow are rate-limited by `Judge`, then
//! bounded by [`floodwall_fib::exceptions`]. Of a host with several workers each has its own part
//! of the rate, so that a flood of one worker's flow takes nothing from the others.

mod echo_paths;
mod quote;
mod raw_sent;

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use floodwall_base::{Counter, DropReason, WorkerId};
use floodwall_fib::exceptions::{
    Exceptions, PathUpdate, PathUpdateRefusal, TooBig, path_mtu_floor,
};
use floodwall_packet::{HandoffKind, PacketBuf, PacketList};
use floodwall_tcp::IcmpHeard;
use floodwall_udp::{DatagramKey, QuotedDatagram};
use floodwall_wire::IpProtocol;

pub(crate) use self::echo_paths::EchoPaths;
pub(crate) use self::quote::{PathUpdateFamily, PathUpdateQuote, QuotedFlow};
pub(crate) use self::raw_sent::RawSent;
use crate::ip::ip_family::IpFamily;
use crate::ip::outgoing_packet::OutputPath;
use crate::round_context::RoundContext;
use crate::stack::Stack;
use crate::triage::recent_peers::peer_of;

/// Which shard has the flow that a message quotes.
pub(crate) enum PathStanding {
    /// This shard sends it.
    Live,
    /// That shard must be queried.
    AskAt(WorkerId),
    /// No local flow matches.
    Unknown,
}

/// Of a message that was reported to no socket.
const NOT_TOLD: (bool, IcmpHeard) = (false, IcmpHeard::Unknown);

/// Why a message was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PathUpdateReason {
    NoFlow,
    NoRoute,
    Judged(PathUpdateRefusal),
}

impl Stack {
    /// Path exceptions (path MTUs, redirects) of single IPv4 destinations.
    #[must_use]
    pub const fn exceptions_v4(&self) -> &Exceptions<Ipv4Addr> {
        &self.v4.exceptions
    }

    /// Path exceptions (path MTUs, redirects) of single IPv6 destinations.
    #[must_use]
    pub const fn exceptions_v6(&self) -> &Exceptions<Ipv6Addr> {
        &self.v6.exceptions
    }

    /// Handles "packet too big", or a redirect that passed the route and link checks; its ICMP
    /// header is at `l4`. `told`: it was reported to a socket; `segment`: what a TCP connection
    /// made of it.
    pub(crate) fn exception_message<A: PathUpdateFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        l4: usize,
        told: bool,
        segment: IcmpHeard,
    ) {
        match segment {
            IcmpHeard::Late => {
                // Its first report has taught the path, or the data have come through: no news.
                self.stats.counters.count(Counter::FloodwallExceptionsNotLower);
                match told {
                    true => self.stats.outcomes.delivered += 1,
                    false => self.drop_packet(packet, DropReason::PathMtuNotLower),
                }
            }
            heard => self.heard::<A>(cx, packet, l4, (told, heard), false),
        }
    }

    /// Handles another shard's query whether a message quotes a live flow of this one.
    #[cold]
    pub(crate) fn adopt_quoting(&mut self, cx: &mut RoundContext<'_>, packet: PacketBuf) {
        match quote::is_v4(&packet) {
            true => self.heard::<Ipv4Addr>(cx, packet, 0, NOT_TOLD, true),
            false => self.heard::<Ipv6Addr>(cx, packet, 0, NOT_TOLD, true),
        }
    }

    /// Stores a message that the flow's shard has accepted.
    #[cold]
    pub(crate) fn adopt_believed(&mut self, cx: &mut RoundContext<'_>, packet: PacketBuf) {
        match quote::is_v4(&packet) {
            true => self.write_down::<Ipv4Addr>(cx, packet),
            false => self.write_down::<Ipv6Addr>(cx, packet),
        }
    }

    fn write_down<A: PathUpdateFamily>(&mut self, cx: &mut RoundContext<'_>, packet: PacketBuf) {
        // State may have changed since: another shard may have been faster, or the route is gone.
        let said = A::statement(&packet, 0, &mut self.stats.access);
        let Some(said) = said else { return self.drop_packet(packet, DropReason::IcmpMalformed) };
        let news = match said.lesson {
            PathUpdate::PathMtu(mtu) => {
                self.mtu_to(cx, said.flow.dst_addr).is_some_and(|now| mtu < now)
            }
            PathUpdate::Redirect(_) => true,
        };
        if !news {
            return self.unbelieved::<A>(
                packet,
                &said,
                PathUpdateReason::Judged(PathUpdateRefusal::NotLower),
                false,
            );
        }
        self.learn_exception(cx, &said, packet);
    }

    fn heard<A: PathUpdateFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        mut packet: PacketBuf,
        l4: usize,
        (told, segment): (bool, IcmpHeard),
        asked: bool,
    ) {
        let Some(said) = A::statement(&packet, l4, &mut self.stats.access) else {
            self.stats.counters.count(Counter::FloodwallExceptionsNoFlow);
            return match told {
                true => self.stats.outcomes.delivered += 1,
                false => self.drop_packet(packet, DropReason::IcmpNoFlow),
            };
        };
        let standing = match segment {
            IcmpHeard::Accepted => PathStanding::Live,
            _ => self.standing(&said.flow, &packet, asked, cx),
        };
        match standing {
            PathStanding::Live => {}
            PathStanding::AskAt(worker) => {
                packet.trim_front(l4);
                return self.hand_to(cx, worker, HandoffKind::Quoting, packet);
            }
            PathStanding::Unknown => {
                return match self.learn_of_reply(&said, cx) {
                    Ok(()) => {
                        self.stats.counters.count(Counter::FloodwallExceptionsLearnt);
                        self.stats.outcomes.delivered += 1;
                    }
                    Err(why) => self.unbelieved::<A>(packet, &said, why, told),
                };
            }
        }
        if let Err(why) = self.weigh(&said, cx) {
            return self.unbelieved::<A>(packet, &said, why, told);
        }
        if self.is_follower() {
            packet.trim_front(l4);
            return self.hand_to(cx, WorkerId::CONTROL, HandoffKind::Believed, packet);
        }
        self.learn_exception(cx, &said, packet);
    }

    /// Whether a quoted flow is one that a local socket has connected, or lately sent to.
    pub(crate) fn standing<A: IpFamily>(
        &mut self,
        flow: &QuotedFlow<A>,
        packet: &PacketBuf,
        asked: bool,
        cx: &RoundContext<'_>,
    ) -> PathStanding {
        if !self.owns(flow.src_addr) {
            return PathStanding::Unknown;
        }
        let live = match flow.protocol {
            IpProtocol::UDP => return self.standing_of_udp(flow, packet, asked, cx),
            protocol if protocol == A::ICMP => flow
                .ping()
                .is_some_and(|quote| self.sockets.ping.has_asked(&quote, flow.dst_addr.to_ip())),
            _ => false,
        };
        let raw = || self.sockets.raw_sent.knows(flow.dst_addr.to_ip(), flow.protocol, cx.now);
        if live || raw() { PathStanding::Live } else { PathStanding::Unknown }
    }

    fn standing_of_udp<A: IpFamily>(
        &mut self,
        flow: &QuotedFlow<A>,
        packet: &PacketBuf,
        asked: bool,
        cx: &RoundContext<'_>,
    ) -> PathStanding {
        let [a, b, c, d, ..] = flow.front;
        let local = SocketAddr::new(flow.src_addr.to_ip(), u16::from_be_bytes([a, b]));
        let remote = SocketAddr::new(flow.dst_addr.to_ip(), u16::from_be_bytes([c, d]));
        if self.shard.steering.workers() > 1 && !asked {
            let owner = self.shard.steering.flow(remote, local, IpProtocol::UDP.0);
            if owner != self.shard.worker {
                return PathStanding::AskAt(owner);
            }
        }
        let iface = packet.iface();
        let Some((id, connected)) =
            self.sockets.udp.sender_of(&QuotedDatagram { local, remote, iface })
        else {
            return PathStanding::Unknown;
        };
        let datagram_key =
            DatagramKey::new((remote.ip(), remote.port()), (local.ip(), local.port()), iface);
        let peer = peer_of(&datagram_key, iface);
        if connected || self.sockets.recent_peers.has_sent(&peer, cx.now) {
            return PathStanding::Live;
        }
        // A program's socket: one shard sends for it, whichever shard the flow belongs to.
        let home = self.shard.remote.as_ref().and_then(|remote| remote.home_of(id));
        match home.map(|home| WorkerId(home as u16)).filter(|home| *home != self.shard.worker) {
            Some(home) => PathStanding::AskAt(home),
            None => PathStanding::Unknown,
        }
    }

    fn weigh<A: IpFamily>(
        &mut self,
        said: &PathUpdateQuote<A>,
        cx: &mut RoundContext<'_>,
    ) -> Result<(), PathUpdateReason> {
        let now = cx.now;
        let verdict = match said.lesson {
            PathUpdate::PathMtu(mtu) => {
                let current =
                    self.mtu_to(cx, said.flow.dst_addr).ok_or(PathUpdateReason::NoRoute)?;
                let said = TooBig { family: A::FAMILY, mtu, current, quoted: said.flow.len };
                self.icmp.path_updates.path_mtu(&said, now, &mut cx.random.secret)
            }
            PathUpdate::Redirect(_) => self.icmp.path_updates.afford(now, &mut cx.random.secret),
        };
        verdict.map_err(PathUpdateReason::Judged)
    }

    /// Learns a path MTU from a message about an echo reply of ours: it applies to replies only,
    /// since a forged request's sender can quote the reply.
    fn learn_of_reply<A: IpFamily>(
        &mut self,
        said: &PathUpdateQuote<A>,
        cx: &RoundContext<'_>,
    ) -> Result<(), PathUpdateReason> {
        let flow = &said.flow;
        let PathUpdate::PathMtu(mtu) = said.lesson else { return Err(PathUpdateReason::NoFlow) };
        if !(flow.is_echo_reply() && self.owns(flow.src_addr)) {
            return Err(PathUpdateReason::NoFlow);
        }
        if mtu < path_mtu_floor(A::FAMILY) {
            return Err(PathUpdateReason::Judged(PathUpdateRefusal::BelowFloor));
        }
        let dst_addr = flow.dst_addr.to_ip();
        let path_mtu = self.mtu_to(cx, flow.dst_addr).ok_or(PathUpdateReason::NoRoute)?;
        let known = self.icmp.echo_paths.mtu(dst_addr, cx.now).unwrap_or(u32::MAX);
        if mtu >= path_mtu.min(known).min(flow.len) {
            return Err(PathUpdateReason::Judged(PathUpdateRefusal::NotLower));
        }
        self.icmp.echo_paths.learn(dst_addr, mtu, cx.now);
        Ok(())
    }

    fn mtu_to<A: IpFamily>(&self, cx: &RoundContext<'_>, dst_addr: A) -> Option<u32> {
        match self.path(cx, dst_addr, None) {
            Ok(OutputPath::Via { mtu, .. }) => Some(mtu),
            _ => None,
        }
    }

    /// Stores an accepted exception. Of a redirect, the better hop's link address too, where given
    /// (RFC 4861 section 8.3); a target that is not the destination is a router.
    fn learn_exception<A: PathUpdateFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        said: &PathUpdateQuote<A>,
        packet: PacketBuf,
    ) {
        let dst_addr = said.flow.dst_addr;
        let Some(hop) = self.hop_of(cx, dst_addr) else {
            return self.unbelieved::<A>(packet, said, PathUpdateReason::NoRoute, false);
        };
        let secret = &mut cx.random.secret;
        A::exceptions_mut(self).learn(dst_addr, hop, said.lesson, cx.now, secret);
        self.sockets.path_cache.forget();
        self.stats.counters.count(Counter::FloodwallExceptionsLearnt);
        self.stats.outcomes.delivered += 1;
        let (PathUpdate::Redirect(target_addr), Some(link_addr)) = (said.lesson, said.link_addr)
        else {
            return;
        };
        let (mut released, on) = (PacketList::new(), hop.iface);
        let cache = A::neighbors(self);
        let known = if target_addr == dst_addr {
            cache.solicited_by(on, target_addr, link_addr, cx.now, &mut released)
        } else {
            cache.router_said(on, target_addr, Some(link_addr), cx.now, &mut released)
        };
        self.learnt::<A>(cx, released, known.unwrap_or(link_addr));
    }

    /// Counts why a message was refused. It is accounted for already where a socket was notified.
    #[cold]
    fn unbelieved<A: IpFamily>(
        &mut self,
        packet: PacketBuf,
        said: &PathUpdateQuote<A>,
        why: PathUpdateReason,
        told: bool,
    ) {
        let of_path = matches!(said.lesson, PathUpdate::PathMtu(_));
        let (counter, reason) = match why {
            PathUpdateReason::NoFlow if of_path => {
                (Counter::FloodwallExceptionsNoFlow, DropReason::IcmpNoFlow)
            }
            PathUpdateReason::NoFlow => {
                (Counter::FloodwallExceptionsNoFlow, DropReason::RedirectNotQuoted)
            }
            PathUpdateReason::NoRoute => (Counter::FloodwallExceptionsNoRoute, DropReason::NoRoute),
            PathUpdateReason::Judged(PathUpdateRefusal::BelowFloor) => {
                (Counter::FloodwallExceptionsBelowFloor, DropReason::PathMtuBelowFloor)
            }
            PathUpdateReason::Judged(PathUpdateRefusal::NotLower) => {
                (Counter::FloodwallExceptionsNotLower, DropReason::PathMtuNotLower)
            }
            PathUpdateReason::Judged(PathUpdateRefusal::Limited) => {
                (Counter::FloodwallExceptionsLimited, DropReason::ExceptionLimited)
            }
        };
        self.stats.counters.count(counter);
        match told {
            true => self.stats.outcomes.delivered += 1,
            false => self.drop_packet(packet, reason),
        }
    }
}
