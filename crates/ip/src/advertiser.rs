//! `Advertiser`: when a router sends advertisements on one link, and their contents.
//!
//! Kept by the stack, one for each interface that is configured as a router; the message is built
//! there with `ndp::router_advertisement`. Invariants: answers go to all nodes and never sooner
//! than three seconds after the last one, so a flood of solicitations causes no more than the usual
//! multicast advertisements; a router that ceases sends a lifetime of zero. Reading: RFC 4861
//! section 6.2 (variables, intervals, answers, ceasing), RFC 4191 (preference, routes), RFC 8106
//! (DNS), RFC 8319 (lifetimes). Not here: what others' advertisements mean (`router_discovery.rs`).
//!
//! # Under flood
//! Reachable by any station on the link with router solicitations. It keeps one timestamp, however
//! many solicitations arrive. Worst work per packet: one comparison and one random number. Honest
//! hosts lose nothing: the answer to one is the answer to all. Counter: `Icmp6InRouterSolicits`.

use core::net::Ipv6Addr;
use core::time::Duration;

use floodwall_base::{Instant, MacAddr, PublicRandom};
use floodwall_wire::ndp::{
    Lifetime, NdpOption, Preference, PrefixInfo, RouteInfo, RouterAdvertisementFields,
};
use thiserror::Error;

/// Initial advertisements of a router that starts (MAX_INITIAL_RTR_ADVERTISEMENTS).
const INITIAL_COUNT: u8 = 3;
/// How far apart those are at most (MAX_INITIAL_RTR_ADVERT_INTERVAL).
const INITIAL_INTERVAL_MAX: Duration = Duration::from_secs(16);
/// Between two advertisements to all (MIN_DELAY_BETWEEN_RAS).
pub const DELAY_BETWEEN: Duration = Duration::from_secs(3);
/// How long an answer may be put off (MAX_RA_DELAY_TIME).
const ANSWER_DELAY_MAX: Duration = Duration::from_millis(500);
/// The longest interval that may be configured (MaxRtrAdvInterval).
const INTERVAL_LONGEST: Duration = Duration::from_secs(1800);
/// The shortest.
const INTERVAL_SHORTEST: Duration = Duration::from_secs(4);
/// The longest lifetime as a default router (RFC 8319 section 4).
const LIFETIME_LONGEST: Duration = Duration::from_secs(65_535);
/// Maximum number of prefixes, routes and DNS servers together: with all of them the message fits
/// IPv6's minimum MTU.
pub const ADVERTISED_MAX: usize = 32;
/// Maximum number of DNS servers.
const DNS_MAX: usize = 8;
/// Bytes of the longest message: fixed part, link address, MTU, and options of 32 bytes.
pub const MESSAGE_MAX: usize = 16 + 8 + 8 + ADVERTISED_MAX * 32 + 8 + DNS_MAX * 16;

/// What one interface advertises. Defaults are RFC 4861's of section 6.2.1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdvertiserConfig {
    /// The longest time between two advertisements (MaxRtrAdvInterval); the shortest is a third.
    pub interval: Duration,
    /// How long hosts may use us as their default router; zero where we are none.
    pub lifetime: Duration,
    /// The router's preference.
    pub preference: Preference,
    /// The hop limit that hosts shall use; 0 for no opinion.
    pub hop_limit: u8,
    /// The link's MTU, where hosts shall use another than their own.
    pub mtu: Option<u32>,
    /// The M flag: hosts use DHCPv6 for addresses.
    pub managed: bool,
    /// The O flag: hosts use DHCPv6 for other configuration.
    pub other: bool,
    /// Prefixes of the link.
    pub prefixes: Vec<PrefixInfo>,
    /// Advertised routes besides the default one.
    pub routes: Vec<RouteInfo>,
    /// Recursive DNS servers, which hosts may use for three intervals.
    pub dns: Vec<Ipv6Addr>,
}

impl Default for AdvertiserConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(600),
            lifetime: Duration::from_secs(1800),
            preference: Preference::Medium,
            hop_limit: 64,
            mtu: None,
            managed: false,
            other: false,
            prefixes: Vec::new(),
            routes: Vec::new(),
            dns: Vec::new(),
        }
    }
}

/// Why the values cannot be advertised.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AdvertiserError {
    /// The interval is none that RFC 4861 section 6.2.1 allows.
    #[error("the interval must be between 4 and 1800 seconds")]
    Interval,
    /// A default router's lifetime must exceed its advertisement interval.
    #[error("the lifetime must be 0, or between the interval and 65535 seconds")]
    Lifetime,
    /// The message would not fit.
    #[error(
        "at most {ADVERTISED_MAX} prefixes and routes and {DNS_MAX} DNS servers fit one message"
    )]
    TooMany,
    /// No host could use it.
    #[error("{0} is no prefix that hosts of a link can have")]
    Prefix(Ipv6Addr),
    /// IPv6 needs 1280 bytes.
    #[error("an MTU of {0} is below 1280 bytes, which IPv6 needs")]
    Mtu(u32),
}

impl AdvertiserConfig {
    /// Whether the values are valid to advertise.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), AdvertiserError> {
        if !(INTERVAL_SHORTEST..=INTERVAL_LONGEST).contains(&self.interval) {
            return Err(AdvertiserError::Interval);
        }
        if !self.lifetime.is_zero() && !(self.interval..=LIFETIME_LONGEST).contains(&self.lifetime)
        {
            return Err(AdvertiserError::Lifetime);
        }
        let count = self.prefixes.len() + self.routes.len();
        if count > ADVERTISED_MAX || self.dns.len() > DNS_MAX {
            return Err(AdvertiserError::TooMany);
        }
        let odd = |p: &&PrefixInfo| {
            p.prefix.is_multicast() || p.prefix.is_unicast_link_local() || p.prefix_len > 128
        };
        if let Some(odd) = self.prefixes.iter().find(odd) {
            return Err(AdvertiserError::Prefix(odd.prefix));
        }
        if let Some(odd) = self.routes.iter().find(|r| r.prefix_len > 128) {
            return Err(AdvertiserError::Prefix(odd.prefix));
        }
        match self.mtu {
            Some(mtu) if mtu < 1280 => Err(AdvertiserError::Mtu(mtu)),
            _ => Ok(()),
        }
    }
}

/// The advertisement timer of one interface, and what it advertises.
#[derive(Clone, Debug)]
pub struct Advertiser {
    config: AdvertiserConfig,
    /// The servers' addresses as the option has them.
    dns: Vec<[u8; 16]>,
    next: Option<Instant>,
    /// No advertisement to all before this moment.
    not_before: Instant,
    /// Of the first ones, how many are left.
    initial: u8,
    /// No longer a router: a final advertisement is due.
    ceases: bool,
}

impl Advertiser {
    /// An advertiser that starts at `now`. Allocates all that it ever needs.
    #[must_use]
    pub fn new(config: AdvertiserConfig, now: Instant, random: &mut PublicRandom) -> Self {
        let dns = config.dns.iter().map(Ipv6Addr::octets).collect();
        let not_before = Instant::ORIGIN;
        let mut this = Self { config, dns, next: None, not_before, initial: 0, ceases: false };
        this.start(now, random);
        this
    }

    /// The advertised configuration.
    #[must_use]
    pub const fn config(&self) -> &AdvertiserConfig {
        &self.config
    }

    /// The link came up: initial advertisements follow at short intervals.
    pub fn start(&mut self, now: Instant, random: &mut PublicRandom) {
        self.initial = INITIAL_COUNT;
        self.next = Some((now + below(ANSWER_DELAY_MAX, random)).max(self.not_before));
    }

    /// The link went down: nothing is sent.
    pub const fn stop(&mut self) {
        self.next = None;
    }

    /// No longer a router: a final advertisement is due now, and nothing after it.
    pub const fn cease(&mut self, now: Instant) {
        (self.ceases, self.next) = (true, Some(now));
    }

    /// A solicitation arrived: an advertisement to all nodes follows within half a second, or as
    /// soon as the rate limit allows.
    pub fn asked(&mut self, now: Instant, random: &mut PublicRandom) {
        let answer = (now + below(ANSWER_DELAY_MAX, random)).max(self.not_before);
        self.next = self.next.map(|next| next.min(answer));
    }

    /// Whether to send an advertisement now.
    pub fn work(&mut self, now: Instant, random: &mut PublicRandom) -> bool {
        if self.next.is_none_or(|next| now < next) {
            return false;
        }
        let (most, least) = (self.config.interval, self.config.interval / 3);
        let mut wait = least + below(most.saturating_sub(least), random);
        if self.initial > 0 {
            self.initial -= 1;
            wait = wait.min(INITIAL_INTERVAL_MAX);
        }
        self.not_before = now + DELAY_BETWEEN;
        if self.ceases {
            self.next = None;
            return true;
        }
        self.next = Some(now + wait.max(DELAY_BETWEEN));
        true
    }

    /// When [`Advertiser::work`] must be called at the latest.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// What stands before the options: of one that ceases, a lifetime of zero.
    #[must_use]
    pub const fn fields(&self) -> RouterAdvertisementFields {
        let config = &self.config;
        RouterAdvertisementFields {
            hop_limit: if config.hop_limit == 0 { None } else { Some(config.hop_limit) },
            managed: config.managed,
            other: config.other,
            preference: config.preference,
            router_lifetime: if self.ceases { Duration::ZERO } else { config.lifetime },
            reachable_time: Duration::ZERO,
            retrans_timer: Duration::ZERO,
        }
    }

    /// The options, in `room`; what has been written of it.
    #[must_use]
    pub fn options<'a>(
        &'a self,
        link_addr: Option<MacAddr>,
        room: &'a mut [NdpOption<'a>; ADVERTISED_MAX + 3],
    ) -> &'a [NdpOption<'a>] {
        let config = &self.config;
        let lifetime = Lifetime::from_secs(config.interval.as_secs() as u32 * 3);
        let dns = (!self.dns.is_empty())
            .then_some(NdpOption::RecursiveDns { lifetime, servers: &self.dns });
        let all = link_addr
            .map(NdpOption::SourceLinkAddr)
            .into_iter()
            .chain(config.mtu.map(NdpOption::Mtu))
            .chain(config.prefixes.iter().map(|prefix| NdpOption::PrefixInfo(*prefix)))
            .chain(config.routes.iter().map(|route| NdpOption::RouteInfo(*route)))
            .chain(dns);
        let mut count = 0;
        for (slot, option) in room.iter_mut().zip(all) {
            *slot = option;
            count += 1;
        }
        room.get(..count).unwrap_or_default()
    }
}

fn below(bound: Duration, random: &mut PublicRandom) -> Duration {
    Duration::from_nanos(random.below((bound.as_nanos() as u64).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advertiser(random: &mut PublicRandom) -> Advertiser {
        Advertiser::new(AdvertiserConfig::default(), Instant::ORIGIN, random)
    }

    /// Sends advertisements for so long; returns when each was sent.
    fn speaks(
        advertiser: &mut Advertiser,
        until: Instant,
        random: &mut PublicRandom,
    ) -> Vec<Instant> {
        let mut spoken = Vec::new();
        while let Some(due) = advertiser.deadline().filter(|due| *due <= until) {
            let before = Instant::from_nanos(due.as_nanos().saturating_sub(1));
            assert!(before == due || !advertiser.work(before, random), "not before its time");
            assert!(advertiser.work(due, random));
            spoken.push(due);
        }
        spoken
    }

    #[test]
    fn it_speaks_soon_and_often_at_first_then_within_its_interval() {
        let mut random = PublicRandom::new(3);
        let mut advertiser = advertiser(&mut random);
        let hours = Instant::ORIGIN + Duration::from_secs(7200);
        let spoken = speaks(&mut advertiser, hours, &mut random);
        assert!(spoken[0] <= Instant::ORIGIN + ANSWER_DELAY_MAX);
        for pair in spoken[..=3].windows(2) {
            assert!(pair[1] - pair[0] <= INITIAL_INTERVAL_MAX);
        }
        for pair in spoken[4..].windows(2) {
            let wait = (pair[1] - pair[0]).as_secs();
            assert!((200..=600).contains(&wait), "{wait}");
        }
        assert!((14..40).contains(&spoken.len()), "{}", spoken.len());
    }

    #[test]
    fn one_that_asks_however_often_all_are_told_once_in_three_seconds() {
        let mut random = PublicRandom::new(3);
        let mut advertiser = advertiser(&mut random);
        let mut now = Instant::ORIGIN + Duration::from_secs(100);
        speaks(&mut advertiser, now, &mut random);
        let asked_at = now;
        advertiser.asked(now, &mut random);
        assert!(advertiser.deadline().unwrap() <= now + ANSWER_DELAY_MAX, "answered at once");
        let (mut spoken, mut last) = (0, Instant::ORIGIN);
        while now < asked_at + Duration::from_secs(30) {
            now += Duration::from_millis(1);
            advertiser.asked(now, &mut random);
            if advertiser.work(now, &mut random) {
                assert!(now - last >= DELAY_BETWEEN);
                (spoken, last) = (spoken + 1, now);
            }
        }
        assert!((8..=10).contains(&spoken), "{spoken} in thirty seconds of solicitations");
    }

    #[test]
    fn a_link_that_is_down_hears_nothing_and_one_that_comes_is_told() {
        let mut random = PublicRandom::new(3);
        let mut advertiser = advertiser(&mut random);
        advertiser.stop();
        advertiser.asked(Instant::ORIGIN, &mut random);
        assert_eq!(advertiser.deadline(), None);
        let now = Instant::ORIGIN + Duration::from_secs(50);
        advertiser.start(now, &mut random);
        assert!(advertiser.deadline().unwrap() <= now + ANSWER_DELAY_MAX);
    }

    #[test]
    fn what_rfc_4861_forbids_is_refused() {
        let good = AdvertiserConfig::default();
        assert_eq!(good.check(), Ok(()));
        let secs = Duration::from_secs;
        let prefix = |text: &str| PrefixInfo {
            prefix: text.parse().unwrap(),
            prefix_len: 64,
            on_link: true,
            autonomous: true,
            valid_lifetime: Lifetime::INFINITE,
            preferred_lifetime: Lifetime::INFINITE,
        };
        for (bad, why) in [
            (AdvertiserConfig { interval: secs(3), ..good.clone() }, AdvertiserError::Interval),
            (AdvertiserConfig { interval: secs(1801), ..good.clone() }, AdvertiserError::Interval),
            (AdvertiserConfig { lifetime: secs(599), ..good.clone() }, AdvertiserError::Lifetime),
            (AdvertiserConfig { mtu: Some(1279), ..good.clone() }, AdvertiserError::Mtu(1279)),
            (
                AdvertiserConfig { prefixes: vec![prefix("fd00::"); 33], ..good.clone() },
                AdvertiserError::TooMany,
            ),
            (
                AdvertiserConfig { prefixes: vec![prefix("fe80::")], ..good.clone() },
                AdvertiserError::Prefix("fe80::".parse().unwrap()),
            ),
        ] {
            assert_eq!(bad.check(), Err(why));
        }
        assert_eq!(AdvertiserConfig { lifetime: secs(0), ..good }.check(), Ok(()));
    }
}
