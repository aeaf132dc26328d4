//! `PathSize`: how large segments may be on the path to the peer, from all that is known of it.
//!
//! Used by a connection. The routing tables give the path MTU with every transmission
//! (`Connection::follow_path`), so that a connection follows its route, its link and what others
//! have learnt of the destination, without a list of connections per route. A router's report (RFC
//! 1191, RFC 8201) counts beside it until the tables have it as well. Where full segments vanish
//! without a report, smaller ones are tried, and larger ones are searched for again once the path
//! is alive (RFC 4821). Invariants: the size is never below its family's floor, for any
//! report; a search never exceeds what tables and reports permit; where a path carries less than
//! IPv4's floor, segments may be fragmented by routers (DF clear), never by us.

mod adopt;

use core::time::Duration;

use floodwall_base::{Family, IfIndex, Instant};

use crate::coarse_time::CoarseTime;
use crate::flow_admission::FlowAdmission;
use crate::mss::{announced_mss, floored_mtu};

/// How long a report counts, and after which time larger segments are tried again (RFC 1191 section
/// 6.3, RFC 8201 section 4, RFC 4821 section 7.3).
const REPORT_LIFETIME: u32 = CoarseTime::ticks_of(Duration::from_secs(600));
/// The MTU that is assumed before the first look-up.
const ETHERNET_MTU: u32 = 1500;
/// A search ends where so few bytes are left to be gained.
const CLOSE_ENOUGH: u16 = 24;
/// The MSS of IPv4's smallest path MTU: with it, DF is clear.
const LEAST_MSS_V4: u16 = 512;

/// What each connection keeps of its path. The rest is in its [`crate::rare_state`], where there is
/// any: reports, and a search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathKept {
    /// As in [`PathSize`].
    pub(crate) mtu: u32,
    /// Where the network layer lets in what the peer sends, as [`FlowAdmission`] (`rx_predict.rs`).
    admitted_at: u32,
    admitted_on: IfIndex,
    /// As in [`PathSize`].
    pub(crate) cap: u16,
}

/// The segment sizes of one path. Fields hold the payload of a segment without options, unless
/// stated otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PathSize {
    /// Where it `has_at`: in a search when a probe may be sent, which needs a path that has proved
    /// alive; else until when `told` counts.
    at: CoarseTime,
    /// The path MTU by the routing tables, in bytes; 0 before the first look-up.
    mtu: u32,
    /// The path MTU that a router has reported, in bytes; 0 where there is none.
    told: u16,
    /// The largest size that the program permits.
    cap: u16,
    /// The size in use while a search is on; 0 where there is none.
    low: u16,
    /// The largest size of the search that is not refuted.
    high: u16,
    /// The size of the probe in flight; 0 where there is none.
    probe: u16,
    has_at: bool,
    /// The search has tried its largest size.
    has_tried: bool,
    /// The path carries less than the floor: routers may fragment.
    clears_df: bool,
}

impl PathSize {
    pub(crate) const UNKNOWN: Self = Self::new(0, 0);

    /// A path with this MTU by the routing tables, 0 where it was not looked up yet.
    pub(crate) const fn new(mtu: u32, cap: u16) -> Self {
        Self {
            at: CoarseTime::ORIGIN,
            has_at: false,
            mtu,
            told: 0,
            cap,
            low: 0,
            high: 0,
            probe: 0,
            has_tried: false,
            clears_df: false,
        }
    }

    pub(crate) const fn mtu(&self) -> u32 {
        self.mtu
    }

    /// What a connection keeps of it, where nothing else is known.
    pub(crate) const fn kept(&self) -> PathKept {
        let FlowAdmission { iface: admitted_on, generation: admitted_at } = FlowAdmission::NONE;
        PathKept { mtu: self.mtu, admitted_at, admitted_on, cap: self.cap }
    }

    /// The size that tables, reports and the program permit.
    fn permitted(&self, family: Family) -> u16 {
        let mtu = if self.mtu == 0 { ETHERNET_MTU } else { self.mtu };
        let mtu = if self.told == 0 { mtu } else { mtu.min(self.told.into()) };
        announced_mss(family, floored_mtu(family, mtu)).0.min(self.cap)
    }

    /// The size in use.
    pub(crate) fn mss(&self, family: Family) -> u16 {
        let permitted = self.permitted(family);
        if self.is_searching() { permitted.min(self.low) } else { permitted }
    }

    /// Whether a smaller size than permitted is in use, because full segments vanished.
    pub(crate) const fn is_searching(&self) -> bool {
        self.low != 0
    }

    const fn wait_until(&mut self, at: CoarseTime) {
        (self.at, self.has_at) = (at, true);
    }

    /// Whether a time is awaited.
    const fn waits(&self, now: Instant) -> bool {
        self.has_at && self.at.is_within(CoarseTime::of(now), REPORT_LIFETIME)
    }

    /// Ends a search and what was reported before.
    fn start_over(&mut self) {
        *self = Self::new(self.mtu, self.cap);
    }

    /// Whether a segment of ours may be fragmented by routers.
    pub(crate) const fn clears_df(&self) -> bool {
        self.clears_df
    }

    /// The routing tables' MTU at this moment; returns whether it changes anything.
    fn follow(&mut self, mtu: u32, now: Instant) -> bool {
        if mtu == self.mtu && self.told == 0 {
            return false;
        }
        let is_over = !self.is_searching() && !self.waits(now);
        // Once the tables have it, they also know when it ends.
        let is_known = mtu <= u32::from(self.told) && !self.clears_df;
        if self.told != 0 && (is_over || is_known) {
            self.start_over();
        } else if self.mtu != mtu && self.is_searching() {
            // Another path: what was found does not hold for it.
            self.start_over();
        }
        self.mtu = mtu;
        true
    }

    /// A router reports that the path carries `mtu` bytes.
    fn report(&mut self, family: Family, mtu: u32, now: Instant) {
        let floor = floored_mtu(family, mtu);
        let at_floor = self.mss(family) <= LEAST_MSS_V4;
        // Without a size in it, it comes from a router older than RFC 1191: the floor is a guess.
        let is_less = family == Family::V4 && mtu < floor && (mtu > 0 || at_floor);
        let clears_df = self.clears_df || is_less;
        self.start_over();
        self.told = u16::try_from(floor).unwrap_or(u16::MAX);
        self.wait_until(CoarseTime::of(now).after(REPORT_LIFETIME));
        self.clears_df = clears_df;
    }

    /// Full segments of `size` bytes were lost several times: `smaller` ones are tried.
    fn suspect(&mut self, size: u16, smaller: u16) {
        self.high = self.high.max(size);
        (self.low, self.probe, self.has_tried) = (smaller, 0, false);
        self.has_at = false;
        self.clears_df |= smaller == LEAST_MSS_V4;
    }

    /// Data was acknowledged: the path is alive.
    fn prove_alive(&mut self, now: Instant) {
        if self.is_searching() && !self.has_at {
            self.wait_until(CoarseTime::of(now));
        }
    }

    /// The size of the next probe, where one is due.
    fn next_probe(&mut self, family: Family, peer: u16, now: Instant) -> Option<u16> {
        if self.probe != 0 || !self.has_at || self.waits(now) {
            return None;
        }
        let permitted = self.permitted(family).min(peer);
        let high = if self.has_tried { self.high.min(permitted) } else { permitted };
        if high <= self.low {
            self.start_over();
            return None;
        }
        self.high = high;
        Some(if self.has_tried { self.low + (high - self.low).div_ceil(2) } else { high })
    }

    /// A probe's outcome is known; returns whether the size in use grows.
    fn judge(&mut self, arrived: bool, now: Instant) -> bool {
        let size = core::mem::take(&mut self.probe);
        if size == 0 || !self.is_searching() {
            return false;
        }
        self.has_tried = true;
        if arrived {
            self.low = size;
            self.clears_df = false;
        } else {
            self.high = size - 1;
        }
        if self.high <= self.low && arrived {
            self.start_over();
        } else if self.high.saturating_sub(self.low) < CLOSE_ENOUGH {
            self.has_tried = false;
            self.wait_until(CoarseTime::of(now).after(REPORT_LIFETIME));
        }
        arrived
    }
}

/// Consecutive timeouts after which the path MTU is suspected: Linux's `tcp_retries1`.
const BLACK_HOLE_TRIES: u8 = 3;
/// Those after which IPv4 segments of the smallest size are sent with DF clear.
const FRAGMENT_TRIES: u8 = 6;
/// The MSS that is tried first, over IPv4 (Linux's `tcp_base_mss`) and over IPv6 (which every link
/// carries).
const BLACK_HOLE_MSS: (u16, u16) = (1024, 1220);

impl PathKept {
    /// Where the network layer has admitted a packet of the peer last.
    #[inline]
    pub(crate) const fn admission(&self) -> FlowAdmission {
        FlowAdmission { iface: self.admitted_on, generation: self.admitted_at }
    }

    /// It has admitted one.
    #[inline]
    pub(crate) const fn admit(&mut self, admission: FlowAdmission) {
        (self.admitted_on, self.admitted_at) = (admission.iface, admission.generation);
    }
}
