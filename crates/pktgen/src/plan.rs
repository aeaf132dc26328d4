//! What to send, how fast, and with which spread: plain values that a program or a test writes.
//!
//! Read by `blast.rs`. A plan is some streams side by side; a stream is like packets on one
//! schedule. Invariant: [`Plan::check`] finds every mistake before the first packet.

use core::net::IpAddr;
use core::time::Duration;

use floodwall_base::{Family, PublicRandom};
use floodwall_wire::TcpFlags;

use crate::error::PlanError;
use crate::forge::Forgery;
use crate::headers::Headers;
use crate::pace::Pace;
use crate::range::{AddrRange, PortRange, SizeRange, Spread};
use crate::spreads::{FLOWS_MAX, Flows, Spreads};
use crate::stamp::STAMP_BYTES;
use crate::station::StationConfig;

/// What the packets of a stream are.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Content {
    /// Messages of the link itself: neighbours, routers, redirects, group queries. Ports, payload,
    /// hop limit, headers and fragments of the stream mean nothing.
    Forged(Forgery),
    /// Echo requests of ICMP or ICMPv6, by the addresses' family.
    IcmpEcho,
    /// Given frames, one after the other, round and round; the station's link addresses are put
    /// in. Addresses, ports, payload and fragments of the stream mean nothing.
    Replay {
        /// Whole frames, as the medium carries them.
        frames: Vec<Vec<u8>>,
        /// Whether a few bytes behind the link header are changed at random in each.
        mutate: bool,
    },
    /// Segments with these flags; sequence and acknowledgment numbers are random. A SYN without
    /// ACK carries an MSS option.
    Tcp(TcpFlags),
    /// Datagrams.
    Udp,
}

/// Which fragments are kept back, so that a packet can never be put together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Withheld {
    /// The first.
    First,
    /// The last.
    #[default]
    Last,
    /// All but the first and the last.
    Middle,
    /// None: packets are complete.
    None,
}

/// How packets are cut into fragments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragments {
    /// Bytes of IP payload in each fragment but the last: a multiple of 8; 8 is the tiniest.
    pub bytes: usize,
    /// By how many bytes each fragment overlaps the one before: a multiple of 8 below `bytes`.
    pub overlap: usize,
    /// Which are kept back.
    pub withheld: Withheld,
}

impl Default for Fragments {
    fn default() -> Self {
        Self { bytes: 1280, overlap: 0, withheld: Withheld::default() }
    }
}

/// Like packets on one schedule. The default is small IPv4 datagrams between documentation
/// addresses, a thousand a second, for ever.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stream {
    /// What the packets are.
    pub content: Content,
    /// The source addresses.
    pub src_addrs: AddrRange,
    /// Where they go.
    pub dst_addrs: AddrRange,
    /// From which ports.
    pub src_ports: PortRange,
    /// To which ports.
    pub dst_ports: PortRange,
    /// How addresses and ports are drawn.
    pub spread: Spread,
    /// How each of them is drawn, and the payload's size, where they are not drawn alike.
    pub spreads: Option<Spreads>,
    /// How many packets keep their addresses and ports: in a row, or of the same one of `flows`.
    pub flow_packets: u32,
    /// How many flows there are at a time; `None` for one.
    pub flows: Option<Flows>,
    /// How many packets in a row are the very same, headers and all; 0 is 1.
    pub repeats: u32,
    /// Bytes behind the transport header; drawn evenly for each packet.
    pub payload: SizeRange,
    /// Whether the payload begins with a [`Stamp`](crate::Stamp).
    pub stamp: bool,
    /// Time to live, or hop limit.
    pub hop_limit: u8,
    /// What is put between the IP header and the transport; `None` for nothing.
    pub headers: Option<Headers>,
    /// How packets are cut, the headers above included; `None` for whole ones. A packet's fragments
    /// leave together.
    pub fragments: Option<Fragments>,
    /// How fast; packets before fragmentation.
    pub pace: Pace,
    /// Total number of packets; `None` for no end.
    pub count: Option<u64>,
    /// When the first packet is meant to leave, from the engine's first call.
    pub start_after: Duration,
    /// From when on nothing is meant to leave, from the engine's first call.
    pub stop_after: Option<Duration>,
}

impl Default for Stream {
    fn default() -> Self {
        let documentation = |host| AddrRange::from(IpAddr::from([192, 0, 2, host]));
        Self {
            content: Content::Udp,
            src_addrs: documentation(1),
            dst_addrs: documentation(2),
            src_ports: PortRange { first: 1024, last: 65_535 },
            dst_ports: PortRange::one(9),
            spread: Spread::Random,
            spreads: None,
            flow_packets: 1,
            flows: None,
            repeats: 1,
            payload: SizeRange::one(18),
            stamp: false,
            hop_limit: 64,
            headers: None,
            fragments: None,
            pace: Pace::per_second(1000),
            count: None,
            start_after: Duration::ZERO,
            stop_after: None,
        }
    }
}

impl Stream {
    /// A stream of `content` from and to these addresses, the rest by default.
    #[must_use]
    pub fn new(content: Content, src_addrs: AddrRange, dst_addrs: AddrRange, pace: Pace) -> Self {
        Self { content, src_addrs, dst_addrs, pace, ..Self::default() }
    }

    /// The packets' family.
    #[must_use]
    pub const fn family(&self) -> Family {
        self.dst_addrs.family()
    }

    pub(crate) fn check(&self) -> Result<(), PlanError> {
        self.pace.check()?;
        if let Content::Replay { frames, .. } = &self.content {
            return if frames.is_empty() { Err(PlanError::ReplayEmpty) } else { Ok(()) };
        }
        if self.src_addrs.family() != self.dst_addrs.family() {
            return Err(PlanError::MixedFamilies);
        }
        if let Some(headers) = self.headers {
            headers.size().check("headers")?;
        }
        self.src_ports.check("src_ports")?;
        self.dst_ports.check("dst_ports")?;
        self.payload.check("payload")?;
        if self.flows.is_some_and(|flows| !(1..=FLOWS_MAX).contains(&flows.count)) {
            return Err(PlanError::FlowCount);
        }
        if self.stamp && self.payload.min < STAMP_BYTES {
            return Err(PlanError::StampTooLong { have: self.payload.min });
        }
        let whole = |f: Fragments| {
            f.bytes.is_multiple_of(8) && f.overlap.is_multiple_of(8) && f.overlap < f.bytes
        };
        if self.fragments.is_none_or(whole) { Ok(()) } else { Err(PlanError::FragmentBytes) }
    }

    /// How everything is drawn.
    pub(crate) fn drawn(&self) -> Spreads {
        self.spreads.unwrap_or(Spreads { payload: Spread::Random, ..Spreads::all(self.spread) })
    }

    /// The addresses of flow `n`.
    pub(crate) fn draw_addrs(&self, n: u64, random: &mut PublicRandom) -> (IpAddr, IpAddr) {
        let how = self.drawn();
        let src_addr = self.src_addrs.draw(how.src_addr, n, random);
        (src_addr, self.dst_addrs.draw(how.dst_addr, n, random))
    }

    /// When packet `i` is meant to leave, from the engine's first call; `None` where there is no
    /// such packet.
    #[must_use]
    pub fn intended(&self, i: u64) -> Option<Duration> {
        if self.count.is_some_and(|count| i >= count) {
            return None;
        }
        let at = self.start_after.saturating_add(self.pace.intended(i));
        (self.stop_after.is_none_or(|stop| at < stop)).then_some(at)
    }

    /// How many packets are due before `elapsed` since the engine's first call. An unpaced stream
    /// misses none.
    pub(crate) fn meant_before(&self, elapsed: Duration) -> u64 {
        if self.pace.is_boundless() {
            return 0;
        }
        let until = self.stop_after.map_or(elapsed, |stop| stop.min(elapsed));
        let Some(time) = until.checked_sub(self.start_after) else { return 0 };
        self.pace.before(time).min(self.count.unwrap_or(u64::MAX))
    }
}

/// The station, and its streams.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The sender: link address, peer, addresses to answer for.
    pub station: StationConfig,
    /// What is sent, side by side.
    pub streams: Vec<Stream>,
}

impl Plan {
    /// Finds mistakes.
    ///
    /// # Errors
    /// The first one.
    pub fn check(&self) -> Result<(), PlanError> {
        self.station.check()?;
        self.streams.iter().try_for_each(Stream::check)
    }
}
