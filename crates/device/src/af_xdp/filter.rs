//! `XdpFilter`: the first line of defence, in the program at the interface.
//!
//! Called by `steering.rs`, and by the devices of an interface, each for its receive queue. Under
//! overload, when more arrives than a worker handles, the program drops frames before they cost
//! anything: those that triage would drop anyway, counted by reason, and frames of unverified flows
//! beyond a credit that the worker renews each turn (a token bucket). Established flows
//! ([`EstablishedFlows`]) pass for as long as they make progress and their prefixes leave room to
//! others (`flow_share.rs`), and so do a few newcomers of those prefixes. Traffic without readable
//! ports (neighbour discovery, ICMP, fragments, options, extension headers) has a credit of its
//! own, so that a flood of plain datagrams does not take it. Without pressure every frame passes at
//! the cost of two more look-ups, except frames that the access list denies, which are always
//! dropped here.
//!
//! Invariants: program and device share memory, and neither writes what the other counts; each
//! frame for our station goes to the socket or is counted here. The code: `filter/code.rs`.
//!
//! # Under flood
//! Any sender on the link can use up the credits. Bound: what the worker grants. Work per frame:
//! four look-ups and a hash of ten words; no memory grows. Unverified flows lose what the worker
//! could not have handled, plus what the last turn of a burst leaves unused.

mod behind;
mod code;
mod desk;
pub(super) mod destination;
mod emit;
mod established;
mod fair;
mod flow_share;
mod samples;

use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::Relaxed;
use std::io;

use floodwall_base::Instant;
use floodwall_bpf::{Assembler, Label, sample};
use floodwall_packet::{RedirectOffer, RxFilter};

use self::code::KnownFields;
pub(super) use self::code::{SEGMENT_PROGRAM, SYN_PROGRAM};
pub(crate) use self::desk::FilterRefusal;
use self::desk::{
    DESK_BEYOND, DESK_FLOW_PREFIX_MAX, DESK_FLOWS_DIVIDED, DESK_FLOWS_HIGH, DESK_FLOWS_NEAR,
    DESK_GRANTED, DESK_NEAR, DESK_PAIRS, DESK_PREFIX_MAX, DESK_PRESSED, DESK_REFUSED,
    DESK_SERVICE_HIGH, DESK_SERVICE_LEAST, DESK_SERVICE_MAX, DESK_TURN, DESK_USED, DESK_WORDS,
    PAIRS_V4, PAIRS_V6, ProgramKind,
};
pub(super) use self::emit::{reach, wire};
use self::established::{ENTRY_WORDS, EstablishedFlows, FlowKind, GRANTED, SET_WAYS, SETS, USED};
use self::fair::{FairCredit, FairLimits};
use self::flow_share::{FlowLimit, FlowShares};
use super::destination_maps::DestinationMaps;
use super::filter_tables::FilterTables;
use super::group_credit::GroupCredit;
use super::mapped_words::MappedWords;
use super::redirects::XdpRedirects;
use crate::service_sample::ServiceSample;
use crate::stats::DeviceStats;

/// The part of the credit for unverified flows that segments of unknown connections have, and their
/// least credit.
const SEGMENTS_PART: usize = 8;
const SEGMENTS_MIN: usize = 4;
/// Maximum number of established flows that a queue adds in a turn; others are added later.
const NEWCOMERS_MAX: u32 = 16;

/// The state that the XDP program's filter shares with the devices of an interface.
#[derive(Debug)]
pub(crate) struct XdpFilter {
    desks: MappedWords,
    established: EstablishedFlows,
    wants: FilterTables,
    fair: FairCredit,
    flows: FlowShares,
    redirects: XdpRedirects,
    groups: GroupCredit,
    samples: MappedWords,
    queues: u32,
    /// Established flows have tokens, and their prefixes a share.
    flow_credit: bool,
}

impl XdpFilter {
    /// For so many receive queues; all frames go through at first. Without `flow_credit` frames of
    /// established flows are never refused.
    ///
    /// # Errors
    /// The kernel maps no such memory, or gives no randomness.
    pub(crate) fn create(queues: u32, flow_credit: bool) -> io::Result<Self> {
        let desks = MappedWords::create(DESK_WORDS, queues)?;
        let (established, wants) =
            (EstablishedFlows::create(secret()?, secret()?)?, FilterTables::create(queues)?);
        let fair = FairCredit::create(queues, secret_word()?)?;
        let flows = FlowShares::create(queues, secret_word()?)?;
        let redirects = XdpRedirects::create(secret()?)?;
        let groups = GroupCredit::create()?;
        let samples = MappedWords::create(1, queues * sample::ENTRIES as u32)?;
        Ok(Self {
            desks,
            established,
            wants,
            fair,
            flows,
            redirects,
            groups,
            samples,
            queues,
            flow_credit,
        })
    }

    /// Emits its part of the program: continues at `through` with frames that are not dropped.
    /// `programs` holds the programs for SYNs and for other segments of unknown connections, if
    /// any; `redirects` is whether a router's packets may leave from here.
    pub(crate) fn emit(
        &self,
        program: &mut Assembler,
        through: Label,
        (programs, redirects): (Option<i32>, bool),
    ) {
        let redirects = redirects.then(|| self.redirects.maps());
        code::emit(program, &KnownFields { programs, redirects, ..self.known() }, through);
    }

    /// What bounds the frames for groups.
    pub(super) const fn groups(&self) -> &GroupCredit {
        &self.groups
    }

    /// Emits what becomes of a TCP frame that those programs have left alone: as
    /// [`XdpFilter::emit`], for segments or for SYNs.
    pub(crate) fn emit_behind(&self, program: &mut Assembler, through: Label, is_syn: bool) {
        behind::emit(program, &self.known(), through, is_syn);
    }

    /// Emits code that adds the flow of a frame to the established ones.
    pub(crate) fn emit_mark_established(&self, program: &mut Assembler, through: Label) {
        behind::mark_established(program, &self.known(), through);
    }

    fn known(&self) -> KnownFields<'_> {
        let (desks, established) = (self.desks.fd(), self.established.fd());
        KnownFields {
            desks,
            established,
            key: self.established.key(),
            prefix_key: *self.established.prefix_key(),
            maps: self.maps(),
            fair: self.fair.maps(),
            flows: self.flow_credit.then(|| self.flows.maps()),
            samples: self.samples.fd(),
            programs: None,
            redirects: None,
        }
    }

    /// What the program passes on by itself.
    pub(crate) const fn redirects(&self) -> &XdpRedirects {
        &self.redirects
    }

    /// The destinations that the stack accepts.
    pub(crate) const fn wants(&self) -> &FilterTables {
        &self.wants
    }

    /// Where programs say for which services frames were that end here.
    pub(super) fn samples(&self) -> i32 {
        self.samples.fd()
    }

    /// Adds for which services the last frames were that ended at `queue`.
    pub(crate) fn sampled_services(&self, queue: u32, all: &mut Vec<ServiceSample>) {
        samples::add(&self.samples, queue, all);
    }

    /// Where the program reads it.
    pub(super) fn maps(&self) -> DestinationMaps {
        self.wants.maps()
    }

    fn word(&self, queue: u32, word: usize) -> Option<&core::sync::atomic::AtomicU64> {
        let desk = (queue < self.queues).then_some(queue as usize * DESK_WORDS)?;
        self.desks.all().get(desk + word)
    }

    /// Sets the credit of `queue` for unverified flows, the same for each kind, and how it is
    /// divided; `None` is no limit.
    fn admit(&self, queue: u32, unknown: Option<usize>, limits: FairLimits) {
        let Some(pressed) = self.word(queue, DESK_PRESSED) else { return };
        let Some(unknown) = unknown else { return pressed.store(0, Relaxed) };
        for kind in ProgramKind::UNVERIFIED {
            let credit = match kind {
                ProgramKind::Segment => (unknown / SEGMENTS_PART).max(SEGMENTS_MIN),
                _ => unknown,
            };
            let words = (
                self.word(queue, DESK_GRANTED + kind as usize),
                self.word(queue, DESK_USED + kind as usize),
            );
            if let (Some(granted), Some(used)) = words {
                granted.store(used.load(Relaxed).saturating_add(credit as u64), Relaxed);
            }
        }
        let [service, high, prefix] = limits.of(unknown as u64);
        let [beyond, least] = fair::beyond(unknown as u64);
        let granted = self.word(queue, DESK_GRANTED + ProgramKind::Plain as usize);
        let granted = granted.map_or(0, |granted| granted.load(Relaxed));
        for (number, value) in [
            (DESK_BEYOND, granted.saturating_add(beyond)),
            (DESK_SERVICE_LEAST, least),
            (DESK_SERVICE_MAX, service),
            (DESK_SERVICE_HIGH, high),
            (DESK_PREFIX_MAX, prefix),
        ] {
            if let Some(place) = self.word(queue, number) {
                place.store(value, Relaxed);
            }
        }
        if let Some(turn) = self.word(queue, DESK_TURN) {
            turn.store(turn.load(Relaxed).wrapping_add(1), Relaxed);
        }
        pressed.store(1, Relaxed);
    }

    /// Shares out `room` frames of established flows among prefixes, in the turn that
    /// [`XdpFilter::admit`] began.
    fn share(&self, queue: u32, room: usize, limit: FlowLimit) {
        let used = DESK_USED + ProgramKind::Established as usize;
        let used = self.word(queue, used).map_or(0, |place| place.load(Relaxed));
        let [divided, high, prefix] = limit.of(room as u64);
        let words = [
            (DESK_FLOWS_DIVIDED, used.saturating_add(divided)),
            (DESK_FLOWS_HIGH, used.saturating_add(high)),
            (DESK_FLOW_PREFIX_MAX, prefix),
        ];
        for (number, value) in words {
            if let Some(place) = self.word(queue, number) {
                place.store(value, Relaxed);
            }
        }
    }

    /// How often the room for established flows was nearly used up since the start.
    fn flows_near(&self, queue: u32) -> u64 {
        self.word(queue, DESK_FLOWS_NEAR).map_or(0, |place| place.load(Relaxed))
    }

    /// Frames of unverified flows that `queue` has let through since the start.
    pub(crate) fn admitted(&self, queue: u32) -> u64 {
        let used = |kind| self.word(queue, DESK_USED + kind as usize);
        let used = ProgramKind::UNVERIFIED.into_iter().filter_map(used);
        used.map(|place| place.load(Relaxed)).sum()
    }

    /// What is left of the credit of `queue` for plain unverified flows, and how often a service
    /// has come near its limit since the start.
    fn left(&self, queue: u32) -> (u64, u64) {
        let word = |word| self.word(queue, word).map_or(0, |place| place.load(Relaxed));
        let plain = ProgramKind::Plain as usize;
        let left = word(DESK_GRANTED + plain).saturating_sub(word(DESK_USED + plain));
        (left, word(DESK_NEAR))
    }

    /// Frames dropped at `queue` for want of credit.
    pub(crate) fn unknown(&self, queue: u32) -> u64 {
        let count = |why: FilterRefusal| {
            let count = self.word(queue, DESK_REFUSED + why as usize);
            count.map_or(0, |count| count.load(Relaxed))
        };
        [
            FilterRefusal::Unknown,
            FilterRefusal::Segment,
            FilterRefusal::Service,
            FilterRefusal::Prefix,
            FilterRefusal::Flow,
            FilterRefusal::FlowPrefix,
        ]
        .into_iter()
        .map(count)
        .sum()
    }

    /// Frames dropped at `queue` since the start, for any reason.
    pub(crate) fn dropped(&self, queue: u32) -> u64 {
        let count = |why| self.word(queue, DESK_REFUSED + why as usize);
        let count = |why| count(why).map_or(0, |count| count.load(Relaxed));
        FilterRefusal::ALL.into_iter().map(count).sum()
    }

    /// Adds the frames dropped at `queue`.
    pub(crate) fn count(&self, queue: u32, stats: &mut DeviceStats) {
        for why in FilterRefusal::ALL {
            let count = self.word(queue, DESK_REFUSED + why as usize);
            let count = count.map_or(0, |count| count.load(Relaxed));
            *match why {
                FilterRefusal::SourceGroup => &mut stats.rx_source_group,
                FilterRefusal::VlanForeign => &mut stats.rx_vlan_foreign,
                FilterRefusal::KindUnknown => &mut stats.rx_kind_unknown,
                FilterRefusal::HeaderMalformed => &mut stats.rx_header_malformed,
                FilterRefusal::Unknown => &mut stats.rx_unverified,
                FilterRefusal::AddressForeign => &mut stats.rx_address_foreign,
                FilterRefusal::PortClosed => &mut stats.rx_port_closed,
                FilterRefusal::Denied => &mut stats.rx_denied,
                FilterRefusal::Segment => &mut stats.rx_segments,
                FilterRefusal::Service => &mut stats.rx_service_full,
                FilterRefusal::Prefix => &mut stats.rx_prefix_full,
                FilterRefusal::Flow => &mut stats.rx_flow_full,
                FilterRefusal::FlowPrefix => &mut stats.rx_flow_prefix_full,
            } += count;
        }
    }
}

/// One queue's way to the filter: how many newcomers it may still make known.
#[derive(Clone, Debug, Default)]
pub(crate) struct FilterTurn {
    newcomers: u32,
    /// On a router: the host's own addresses, in order; and the families that it passes on.
    own: Vec<Ipv6Addr>,
    pairs: u64,
    presses: bool,
    /// When this turn began, and whether the stack has told what it accepts.
    began: Instant,
    is_told: bool,
    /// Unverified frames that the queue had dropped by the last turn.
    refused: u64,
    /// The credit that it has got last, and how it is divided.
    granted: u64,
    /// Under which generation the offers of this turn are made.
    generation: u64,
    limits: FairLimits,
    flow_limit: FlowLimit,
}

impl FilterTurn {
    /// Whether a credit for unverified flows is in force.
    pub(crate) const fn presses(&self) -> bool {
        self.presses
    }

    /// When the turn began.
    pub(super) const fn now(&self) -> Instant {
        self.began
    }

    /// Whether packets for other hosts are wanted; `None` as long as nothing is told.
    pub(super) fn forwards(&self) -> Option<bool> {
        self.is_told.then_some(self.pairs != 0)
    }

    /// Whether unverified frames were dropped for lack of credit since the last turn: more arrive
    /// than are admitted, although polls may have room.
    pub(crate) fn has_refused(&mut self, filter: &XdpFilter, queue: u32) -> bool {
        let refused = filter.unknown(queue);
        core::mem::replace(&mut self.refused, refused) != refused
    }

    /// A turn begins, with `credit` for unverified flows and room for so many frames of
    /// established ones.
    pub(crate) fn begin(
        &mut self,
        filter: &XdpFilter,
        now: Instant,
        queue: u32,
        (credit, room): (Option<usize>, usize),
    ) {
        let pressed = credit.is_some();
        self.generation = filter.redirects.generation();
        if pressed {
            filter.established.sweep(now);
        }
        if pressed && self.presses {
            self.follow(filter, queue);
        }
        if pressed || self.presses {
            self.granted = credit.map_or(0, |credit| credit as u64);
            filter.share(queue, room, self.flow_limit);
            filter.admit(queue, credit, self.limits);
        }
        (self.newcomers, self.presses, self.began) = (NEWCOMERS_MAX, pressed, now);
    }

    /// Grants credit for the time that the worker sleeps, in which it is not renewed: `room`
    /// frames.
    pub(crate) fn rest(&mut self, filter: &XdpFilter, queue: u32, room: usize) {
        if self.presses {
            self.follow(filter, queue);
            self.granted = room as u64;
            filter.share(queue, room, self.flow_limit);
            filter.admit(queue, Some(room), self.limits);
        }
    }

    /// Limits follow what was used of the credit and of the room.
    fn follow(&mut self, filter: &XdpFilter, queue: u32) {
        let (left, near) = filter.left(queue);
        self.limits.turn(self.granted, left, near);
        self.flow_limit.turn(filter.flows_near(queue));
    }

    /// What the stack accepts at the interface: of a router, packets to hosts behind it.
    pub(crate) fn want(&mut self, filter: &XdpFilter, queue: u32, wanted: &RxFilter) {
        self.is_told = true;
        let before = self.pairs;
        let own_before = core::mem::take(&mut self.own);
        self.own.extend(wanted.addresses().map(|(addr, _)| addr));
        self.own.sort_unstable();
        // Where no address is told, own ones cannot be told from others.
        let family = |any: bool, v4: bool| {
            any && self.own.iter().any(|addr| addr.to_ipv4_mapped().is_some() == v4)
        };
        let (v4, v6) = (family(wanted.any_v4, true), family(wanted.any_v6, false));
        self.pairs = (u64::from(v4) * PAIRS_V4 as u64) | (u64::from(v6) * PAIRS_V6 as u64);
        if let Some(place) = filter.word(queue, DESK_PAIRS) {
            place.store(self.pairs, Relaxed);
        }
        // What was a flow of our own may be a pair's now, and would earn no tokens any more.
        if before != self.pairs || (before != 0 && own_before != self.own) {
            filter.established.clear();
        }
    }

    /// From now on the program passes on what is offered.
    pub(crate) fn redirect(
        &self,
        filter: &XdpFilter,
        now: Instant,
        offer: &RedirectOffer,
        target: u32,
    ) {
        filter.redirects.enter(now, self.generation, offer, target);
    }

    /// Whether this frame is for a host behind this router.
    fn is_transit(&self, frame: &[u8]) -> bool {
        self.pairs != 0
            && destination_of(frame).is_some_and(|to| {
                let bit = if to.to_ipv4_mapped().is_some() { PAIRS_V4 } else { PAIRS_V6 };
                self.pairs & bit as u64 != 0 && self.own.binary_search(&to).is_err()
            })
    }

    /// Records the flow of this frame, received on the queue, as established; of one for a host
    /// behind this router, the pair of hosts.
    pub(crate) fn mark_established(&mut self, filter: &XdpFilter, now: Instant, frame: &[u8]) {
        let flow = if self.is_transit(frame) { FlowKind::Pair } else { FlowKind::Ports };
        if filter.established.note(now, (frame, flow), self.newcomers > 0) {
            self.newcomers = self.newcomers.saturating_sub(1);
        }
    }
}

/// Where a frame's packet goes, an IPv4 address as IPv6 has it.
fn destination_of(frame: &[u8]) -> Option<Ipv6Addr> {
    match u16::from_be_bytes(*frame.get(12..)?.first_chunk()?) {
        0x0800 => Some(Ipv4Addr::from(*frame.get(30..)?.first_chunk::<4>()?).to_ipv6_mapped()),
        0x86dd => Some(Ipv6Addr::from(*frame.get(38..)?.first_chunk::<16>()?)),
        _ => None,
    }
}

/// A random key, secret to this process.
fn secret<const WORDS: usize>() -> io::Result<[u64; WORDS]> {
    let mut key = [0_u64; WORDS];
    let bytes = size_of_val(&key);
    // SAFETY: the system writes `bytes` bytes at most, of words that outlive the call and for which
    // every value is valid.
    let given = unsafe { libc::getrandom(key.as_mut_ptr().cast(), bytes, 0) };
    if given == bytes as isize { Ok(key) } else { Err(io::Error::last_os_error()) }
}

/// A random number, secret to this process.
pub(super) fn secret_word() -> io::Result<u64> {
    secret().map(|[word]| word)
}

#[cfg(test)]
mod mirror_tests;
#[cfg(test)]
mod rx_filter_tests;
#[cfg(test)]
mod tests;
