//! Floods, told from counters: when one begins, when it ends, what it was.
//!
//! Called on the control side about once a second, by the log of `floodwall run` and by a program's
//! `Network::events`; never on the packet path. A value: counts and time come in, events go out.
//! Invariants: a flood begins once and ends once; between the two are at least [`FLOOD_LINGER`];
//! what was counted before the first look proves nothing.
//!
//! # Under flood
//! Reachable by every packet that is refused. Bound: one state for each [`FloodKind`]. Work: one
//! pass over the drop reasons a look. When an attacker switches floods on and off: one that stops
//! for less than [`FLOOD_LINGER`] is one flood, so that each kind has at most one pair of events in
//! that time.

use std::time::Duration;

use floodwall_base::{Counter, Counters, DropCounts, DropReason, Instant};

use crate::worker_counters::{WorkerCounter, WorkerCounters};

/// From this many refusals a second on, a look counts as a flood.
pub const FLOOD_RATE_MIN: f64 = 200.0;
/// How long refusals must stay below [`FLOOD_RATE_MIN`] until a flood has ended.
const FLOOD_LINGER: Duration = Duration::from_secs(5);
/// Below this many served requests a second before the flood, their share is not computed.
const SERVED_MIN: f64 = 5.0;
/// The part of a new rate in the average of what is served at rest.
const AVERAGE_PART: f64 = 0.25;

/// A kind of flood that counters tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FloodKind {
    /// SYNs that are answered by cookies or refused, and not completed.
    Syn,
    /// Datagrams of senders over their share of a socket.
    Udp,
    /// Datagrams to ports without a socket.
    ClosedPorts,
    /// Fragments of datagrams that do not become whole.
    Fragments,
    /// Echo requests and errors beyond their limits.
    Icmp,
    /// Packets that no correct sender makes.
    Malformed,
    /// TCP segments that belong to no connection.
    NoConnection,
    /// Addresses of the link that do not exist.
    Neighbors,
    /// Packets of unverified flows shed under pressure, where no other kind explains them.
    Overload,
}

const KIND_COUNT: usize = FloodKind::ALL.len();

impl FloodKind {
    /// Every kind, in the order of report.
    pub const ALL: [Self; 9] = [
        Self::Syn,
        Self::Udp,
        Self::ClosedPorts,
        Self::Fragments,
        Self::Icmp,
        Self::Malformed,
        Self::NoConnection,
        Self::Neighbors,
        Self::Overload,
    ];

    /// A short name for operators.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Syn => "SYN flood",
            Self::Udp => "UDP flood",
            Self::ClosedPorts => "flood of closed ports",
            Self::Fragments => "fragment flood",
            Self::Icmp => "ICMP flood",
            Self::Malformed => "flood of malformed packets",
            Self::NoConnection => "flood of TCP segments without a connection",
            Self::Neighbors => "neighbour table flood",
            Self::Overload => "packet flood",
        }
    }

    /// What is refused, as the first part of a sentence.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Syn => "SYNs are answered by cookies or refused",
            Self::Udp => "datagrams of senders over their share are refused",
            Self::ClosedPorts => "datagrams for ports without a service are dropped",
            Self::Fragments => "fragments of datagrams that do not become whole are dropped",
            Self::Icmp => "echo requests beyond the senders' share are not answered",
            Self::Malformed => "packets that no honest sender makes are dropped",
            Self::NoConnection => "segments that belong to no connection are dropped",
            Self::Neighbors => "addresses of the link that do not exist are asked for",
            Self::Overload => "packets of unverified flows are shed, established flows go first",
        }
    }

    /// The counts of a device (`DeviceStats::named`) that are of this kind: what a program at the
    /// interface does with it before a worker sees it.
    #[must_use]
    pub const fn device_counts(self) -> &'static [&'static str] {
        match self {
            Self::Syn => &["rx_syns_answered"],
            Self::NoConnection => &["rx_segments"],
            Self::ClosedPorts => &["rx_port_closed"],
            Self::Malformed => &["rx_header_malformed"],
            Self::Overload => &[
                "rx_unverified",
                "rx_service_full",
                "rx_prefix_full",
                "rx_flow_full",
                "rx_flow_prefix_full",
                "rx_group_full",
            ],
            Self::Udp | Self::Fragments | Self::Icmp | Self::Neighbors => &[],
        }
    }

    /// The drop reasons that tell it; none where it is told by other counters.
    #[must_use]
    pub const fn reasons(self) -> &'static [DropReason] {
        use DropReason as R;
        match self {
            Self::Syn | Self::Overload => &[],
            Self::Udp => &[R::UdpOverShare, R::UdpChallenged],
            Self::ClosedPorts => &[R::UdpNoPort],
            Self::Fragments => &[
                R::FragmentSourceFull,
                R::FragmentStoreFull,
                R::FragmentOverlap,
                R::FragmentTooMany,
                R::FragmentTiny,
                R::FragmentDuplicate,
            ],
            Self::Icmp => &[R::IcmpRateLimited, R::IcmpNoFlow, R::IcmpEchoRefused],
            Self::Malformed => &[
                R::IpTruncated,
                R::IpVersion,
                R::IpHeaderLength,
                R::IpLength,
                R::IpHeaderChecksum,
                R::IpSourceInvalid,
                R::IpSourceRoute,
                R::IpOptionMalformed,
                R::FragmentMalformed,
                R::ExtensionMalformed,
                R::ExtensionLimit,
                R::ExtensionOrder,
                R::TcpMalformed,
                R::TcpChecksum,
                R::UdpMalformed,
                R::UdpChecksum,
                R::IcmpMalformed,
                R::IcmpChecksum,
            ],
            Self::NoConnection => &[R::TcpNoConnection, R::TcpOutOfWindow, R::TcpAckInvalid],
            Self::Neighbors => &[R::NeighborPendingFull, R::NeighborTableFull],
        }
    }
}

/// What a look reads: totals since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FloodCounts {
    refused: [u64; KIND_COUNT],
    /// Connections opened, and datagrams delivered.
    opened: u64,
    served: u64,
}

impl FloodCounts {
    /// Of a host's counters, and of what its workers' loops count.
    #[must_use]
    pub fn new(counters: &Counters, drops_in: &DropCounts, loops: &WorkerCounters) -> Self {
        let mut counts = Self::default();
        for kind in FloodKind::ALL {
            counts.add(kind, kind.reasons().iter().map(|reason| drops_in.of(*reason)).sum());
        }
        // A full accept queue refuses handshakes, too: that is the application's.
        let refused = counters
            .of(Counter::TcpExtListenDrops)
            .max(drops_in.of(DropReason::TcpHandshakeRefused));
        let refused = refused.saturating_sub(counters.of(Counter::TcpExtListenOverflows));
        counts.add(FloodKind::Syn, counters.of(Counter::TcpExtSyncookiesSent) + refused);
        let shed = [WorkerCounter::DropsTriageUnknown, WorkerCounter::DropsTriageRejectable];
        counts.add(FloodKind::Overload, shed.iter().map(|fact| loops.of(*fact)).sum());
        counts.opened = counters.of(Counter::TcpPassiveOpens);
        let datagrams =
            counters.of(Counter::UdpInDatagrams) + counters.of(Counter::Udp6InDatagrams);
        counts.served = counts.opened + datagrams;
        counts
    }

    /// Adds what programs at the interfaces dropped or answered; `count` gives the sum over all
    /// devices of a count by its name.
    pub fn add_devices(&mut self, count: impl Fn(&str) -> u64) {
        for kind in FloodKind::ALL {
            self.add(kind, kind.device_counts().iter().map(|name| count(name)).sum());
        }
    }

    /// Adds refusals that other counters know.
    pub fn add(&mut self, kind: FloodKind, n: u64) {
        if let Some(slot) = self.refused.get_mut(kind as usize) {
            *slot += n;
        }
    }

    fn of(&self, kind: FloodKind) -> u64 {
        self.refused.get(kind as usize).copied().unwrap_or(0)
    }
}

/// A flood began.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct FloodBegan {
    /// Its kind.
    pub kind: FloodKind,
    /// Packets refused per second.
    pub rate: f64,
}

/// A flood has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct FloodEnded {
    /// Its kind.
    pub kind: FloodKind,
    /// From the look that saw it begin to the last one that saw it.
    pub length: Duration,
    /// The highest rate of refused packets per second.
    pub peak: f64,
    /// Packets refused in all.
    pub refused: u64,
    /// What was served meanwhile (connections opened, datagrams delivered) as a share of the rate
    /// before, at most 1. `None` where little was served before, and of UDP floods: the
    /// flood's own datagrams are among those delivered.
    pub honest_share: Option<f64>,
}

/// A flood that is under way.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct FloodUnderWay {
    /// Its kind.
    pub kind: FloodKind,
    /// The look before the one that saw it first.
    pub began: Instant,
    /// The highest rate of refused packets per second so far.
    pub peak: f64,
    /// Packets refused so far.
    pub refused: u64,
    /// As [`FloodEnded::honest_share`], so far.
    pub honest_share: Option<f64>,
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FloodEvent {
    /// A flood began.
    Began(FloodBegan),
    /// A flood has ended.
    Ended(FloodEnded),
}

#[derive(Clone, Debug)]
struct OpenFlood {
    began: Instant,
    last: Instant,
    peak: f64,
    refused: u64,
    served: u64,
    /// The rate of what was served before, per second.
    served_before: f64,
}

/// The state between looks.
#[derive(Clone, Debug, Default)]
pub struct FloodWatch {
    last: Option<(Instant, FloodCounts)>,
    open: [Option<OpenFlood>; KIND_COUNT],
    served_rate: f64,
}

impl FloodWatch {
    /// Compares with the last look; returns what began or ended. To be called every half second or
    /// less often; costs one pass over [`FloodKind::ALL`].
    pub fn look(&mut self, now: Instant, counts: &FloodCounts) -> Vec<FloodEvent> {
        let Some((then, before)) = self.last.replace((now, counts.clone())) else {
            return Vec::new();
        };
        let seconds = now.saturating_since(then).as_secs_f64();
        if seconds <= 0.0 {
            return Vec::new();
        }
        // A shard that was made again counts from zero.
        let more = |before: u64, after: u64| after.checked_sub(before).unwrap_or(after);
        let opened = more(before.opened, counts.opened) as f64 / seconds;
        let served = more(before.served, counts.served);
        let mut events = Vec::new();
        let mut is_other = false;
        for kind in FloodKind::ALL {
            let refused = more(before.of(kind), counts.of(kind));
            let rate = refused as f64 / seconds;
            let is_flood = rate >= FLOOD_RATE_MIN
                && match kind {
                    // A busy service behind a full cache opens about what it answers by cookies.
                    FloodKind::Syn => rate >= 4.0 * opened,
                    FloodKind::Overload => !is_other,
                    _ => true,
                };
            is_other |= is_flood;
            let Some(slot) = self.open.get_mut(kind as usize) else { continue };
            if is_flood && slot.is_none() {
                events.push(FloodEvent::Began(FloodBegan { kind, rate }));
                *slot = Some(OpenFlood {
                    began: then,
                    last: now,
                    peak: rate,
                    refused: 0,
                    served: 0,
                    served_before: self.served_rate,
                });
            }
            let Some(open) = slot else { continue };
            if is_flood {
                open.last = now;
                open.peak = open.peak.max(rate);
            }
            open.refused += refused;
            if open.last == now {
                open.served += served;
            }
            if now.saturating_since(open.last) >= FLOOD_LINGER {
                events.push(FloodEvent::Ended(open.ended(kind)));
                *slot = None;
            }
        }
        if self.open.iter().all(Option::is_none) {
            let rate = served as f64 / seconds;
            self.served_rate += AVERAGE_PART * (rate - self.served_rate);
        }
        events
    }

    /// The floods that are under way as of the last look, at most one of each kind.
    pub fn under_way(&self) -> impl Iterator<Item = FloodUnderWay> {
        let open = FloodKind::ALL.into_iter().zip(&self.open);
        open.filter_map(|(kind, open)| {
            let open = open.as_ref()?;
            let FloodEnded { peak, refused, honest_share, .. } = open.ended(kind);
            Some(FloodUnderWay { kind, began: open.began, peak, refused, honest_share })
        })
    }

    /// Whether a flood is under way.
    #[must_use]
    pub fn is_flooded(&self) -> bool {
        self.open.iter().any(Option::is_some)
    }
}

impl OpenFlood {
    fn ended(&self, kind: FloodKind) -> FloodEnded {
        let length = self.last.saturating_since(self.began);
        let rate = self.served as f64 / length.as_secs_f64().max(1e-9);
        let known = self.served_before >= SERVED_MIN && kind != FloodKind::Udp;
        FloodEnded {
            kind,
            length,
            peak: self.peak,
            refused: self.refused,
            honest_share: known.then(|| (rate / self.served_before).min(1.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    /// Totals of one kind, and datagrams served.
    fn counts(kind: FloodKind, refused: u64, served: u64) -> FloodCounts {
        let mut counts = FloodCounts { served, ..FloodCounts::default() };
        counts.add(kind, refused);
        counts
    }

    #[test]
    fn a_flood_begins_once_and_ends_once_with_its_length_peak_and_honest_share() {
        let kind = FloodKind::ClosedPorts;
        let mut watch = FloodWatch::default();
        for second in 0..20 {
            assert_eq!(watch.look(at(second), &counts(kind, 7, second * 100)), []);
        }
        let mut events = Vec::new();
        for second in 20..24 {
            let refused = 7 + (second - 19) * 1000 + u64::from(second == 23) * 500;
            events
                .extend(watch.look(at(second), &counts(kind, refused, 1900 + (second - 19) * 50)));
        }
        assert_eq!(events, [FloodEvent::Began(FloodBegan { kind, rate: 1000.0 })]);
        let under_way: Vec<_> = watch.under_way().collect();
        let [now] = under_way[..] else { panic!("{under_way:?}") };
        assert_eq!((now.kind, now.began, now.peak, now.refused), (kind, at(19), 1500.0, 4500));
        assert!(now.honest_share.is_some_and(|share| (0.49..0.52).contains(&share)), "{now:?}");
        let mut events = Vec::new();
        for second in 24..40 {
            events.extend(watch.look(at(second), &counts(kind, 4507, 3000)));
        }
        let [FloodEvent::Ended(ended)] = events[..] else { panic!("{events:?}") };
        assert_eq!((ended.kind, ended.peak, ended.refused), (kind, 1500.0, 4500));
        assert_eq!(ended.length, Duration::from_secs(4));
        let share = ended.honest_share.unwrap();
        assert!((0.49..0.52).contains(&share), "{share}");
        assert_eq!((watch.is_flooded(), watch.under_way().count()), (false, 0));
    }

    #[test]
    fn one_that_is_switched_on_and_off_is_one_flood() {
        let kind = FloodKind::Malformed;
        let (mut watch, mut events, mut total) = (FloodWatch::default(), 0, 0);
        for second in 0..100 {
            total += if second % 4 == 0 { 900 } else { 0 };
            events += watch.look(at(second), &counts(kind, total, 0)).len();
        }
        assert_eq!(events, 1);
    }

    #[test]
    fn what_was_counted_before_and_what_is_little_is_no_flood() {
        let mut watch = FloodWatch::default();
        for (second, refused) in [(1, 1_000_000), (2, 1_000_100), (3, 1_000_250)] {
            assert_eq!(watch.look(at(second), &counts(FloodKind::Icmp, refused, 0)), []);
        }
        // A busy service behind a full SYN cache.
        let mut busy = counts(FloodKind::Syn, 5000, 4000);
        busy.opened = 4000;
        watch.look(at(4), &FloodCounts::default());
        assert_eq!(watch.look(at(5), &busy), []);
    }

    #[test]
    fn shed_packets_are_a_flood_of_their_own_only_where_no_kind_explains_them() {
        let (mut watch, mut both) = (FloodWatch::default(), counts(FloodKind::Overload, 5000, 0));
        watch.look(at(1), &FloodCounts::default());
        both.add(FloodKind::Fragments, 5000);
        let began = FloodBegan { kind: FloodKind::Fragments, rate: 5000.0 };
        assert_eq!(watch.look(at(2), &both), [FloodEvent::Began(began)]);
        both.add(FloodKind::Overload, 700);
        let began = FloodBegan { kind: FloodKind::Overload, rate: 700.0 };
        assert_eq!(watch.look(at(3), &both), [FloodEvent::Began(began)]);
    }

    #[test]
    fn what_ends_at_the_interface_is_of_its_kind_by_counts_that_devices_have() {
        let known = floodwall_device::DeviceStats::default().named();
        for kind in FloodKind::ALL {
            for name in kind.device_counts() {
                assert!(known.iter().any(|(count, _)| count == name), "{name}");
            }
            let mut counted = FloodCounts::default();
            counted.add_devices(|name| u64::from(kind.device_counts().contains(&name)));
            let expected = kind.device_counts().len() as u64;
            assert_eq!(FloodKind::ALL.map(|k| counted.of(k)).iter().sum::<u64>(), expected);
            assert_eq!(counted.of(kind), expected, "{kind:?}");
        }
    }

    #[test]
    fn the_kinds_stand_at_their_places() {
        for (place, kind) in FloodKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, place);
        }
    }
}
