//! Duplicate address detection: whether an address of ours is unique on the link, both families.
//!
//! Called by `stack` when an address is configured, when `arp.rs` or `ndp.rs` report a conflict,
//! and for timed work. It never sends: its events report what to send, and when an address may be
//! used.
//!
//! IPv6 addresses are probed before use (RFC 4862 section 5.4: one probe, one second). IPv4
//! addresses are by default used at once and announced ([`Detection::Announce`]), as hosts with
//! configured addresses have always done; a conflict is then reported, and the address defended
//! with one announcement in ten seconds (RFC 5227 section 2.4 (c)): a server that gave up its
//! address because of one forged packet would be open to denial of service. [`Detection::Probe`]
//! does RFC 5227 in full.
//!
//! Invariants: an address is confirmed only after all its probes went unanswered; a conflict ends
//! in another try at most [`RETRIES_MAX`] times, at growing intervals, then in giving up; a probe
//! of our own that a loop brings back is no conflict (RFC 7527), and makes us probe longer once.
//!
//! # Under flood
//! Reachable by any station on the link, for our own addresses alone. Bound: as many entries as we
//! have addresses, allocated at the start. Worst work per packet: one table probe. An attacker that
//! answers every probe denies an address before it is used, which no host can prevent (RFC 3756
//! section 4.1.3); it costs us four rounds of probes, and is reported to the operator
//! (`FloodwallDadConflicts`). An address in use is never given up.

use core::net::IpAddr;
use core::time::Duration;

use floodwall_base::{HashKey, IfIndex, IndexLists, Instant, Randomness, TimerWheel, Units};
use thiserror::Error;

use crate::ndp::Nonce;
use crate::neighbor::NeighborIndex;

/// How often an address that met a conflict is tried again.
pub const RETRIES_MAX: u8 = 3;
/// How long after a conflict the address is tried again; doubled each time.
pub const RETRY_WAIT: Duration = Duration::from_secs(1);
/// The least time between two defences of an address (RFC 5227, DEFEND_INTERVAL).
pub const DEFEND_INTERVAL: Duration = Duration::from_secs(10);
/// Probes of an IPv6 address (RFC 4862, DupAddrDetectTransmits).
const PROBES_V6: u8 = 1;
/// Between and after them (RFC 4861, RETRANS_TIMER).
const PROBE_WAIT_V6: Duration = Duration::from_secs(1);
/// More of them once our own came back (RFC 7527 section 4.2, MAX_MULTICAST_SOLICIT).
const PROBES_LOOPED: u8 = 3;
/// Probes of an IPv4 address (RFC 5227, PROBE_NUM).
const PROBES_V4: u8 = 3;
/// Between them at least, and as much again at random (RFC 5227, PROBE_MIN and PROBE_MAX).
const PROBE_WAIT_V4: Duration = Duration::from_secs(1);
/// After the last, and between announcements (RFC 5227, ANNOUNCE_WAIT and ANNOUNCE_INTERVAL).
const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);
/// Announcements of an IPv4 address (RFC 5227, ANNOUNCE_NUM).
const ANNOUNCEMENTS_V4: u8 = 2;
/// Announcements of an IPv6 address that is used without probing.
const ANNOUNCEMENTS_V6: u8 = 1;

/// Whether an address is probed before it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detection {
    /// It is used at once, and announced.
    Announce,
    /// It is probed first, then used and, for IPv4, announced.
    Probe,
}

/// What timed work requires of its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DadEvent {
    /// Announce that we use the address.
    Announce(IfIndex, IpAddr),
    /// The address is ours: it may be used from now on.
    Confirmed(IfIndex, IpAddr),
    /// Probe for the address; the nonce is for IPv6.
    Probe(IfIndex, IpAddr, Nonce),
}

/// What is to be done about a conflict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum DadResponse {
    /// Announce the address once more: it is in use, and stays so. Report the conflict.
    Defend,
    /// Another host uses the address: mark it as duplicate, and report it to the operator.
    GiveUp,
    /// Nothing: a probe of our own came back, the conflict is answered already, or the address is
    /// not ours.
    Ignore,
    /// Nothing yet: it will be tried again.
    Retry,
}

/// There is no room for another address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("duplicate address detection watches as many addresses as it may")]
pub struct DadFull;

/// What an address is waiting for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DadPhase {
    /// The next of so many probes, or, after the last, the end of its wait.
    Probing { left: u8 },
    /// The next of so many announcements.
    Announcing { left: u8 },
    /// Nothing.
    Settled,
}

#[derive(Clone, Copy, Debug)]
struct DadEntry {
    iface: IfIndex,
    addr: IpAddr,
    hash: u32,
    phase: DadPhase,
    conflicts: u8,
    /// It met a conflict, and has not probed again since.
    resting: bool,
    /// Our own probe came back, and we probe longer for it.
    looped: bool,
    nonce: Option<Nonce>,
    defended: Option<Instant>,
}

/// Duplicate address detection for the addresses of one family.
#[derive(Debug)]
pub struct Dad {
    /// `None`: free.
    entries: Box<[Option<DadEntry>]>,
    index: NeighborIndex,
    /// One list: the free entries.
    free: IndexLists,
    wheel: TimerWheel,
    key: HashKey,
    delay_max: Duration,
}

impl Dad {
    /// A table for up to `capacity` addresses. The first probe of an address is delayed by a random
    /// time below `delay_max` (RFC 4862 section 5.4.2 and RFC 5227 specify a second), so that hosts
    /// that start together do not probe together.
    #[must_use]
    pub fn new(capacity: usize, delay_max: Duration, key: HashKey, now: Instant) -> Self {
        let mut free = IndexLists::new(capacity, 1);
        (0..free.items()).for_each(|at| free.push_back(0, at));
        Self {
            entries: vec![None; capacity].into(),
            index: NeighborIndex::new(capacity),
            free,
            wheel: TimerWheel::new(capacity, now),
            key,
            delay_max,
        }
    }

    /// Starts for an address, anew where it is watched already.
    ///
    /// # Errors
    /// As many addresses are watched as may be.
    pub fn start(
        &mut self,
        iface: IfIndex,
        addr: IpAddr,
        detection: Detection,
        now: Instant,
        random: &mut Randomness,
    ) -> Result<(), DadFull> {
        self.stop(iface, addr);
        let hash = self.hash(iface, addr);
        let at = self.free.first(0).ok_or(DadFull)?;
        if !self.index.insert(hash, at) {
            return Err(DadFull);
        }
        self.free.unlink(at);
        let (phase, wait) = match detection {
            Detection::Announce => (announcing(addr, detection), Duration::ZERO),
            Detection::Probe => {
                (DadPhase::Probing { left: probes(addr) }, below(self.delay_max, random))
            }
        };
        let entry = DadEntry {
            iface,
            addr,
            hash,
            phase,
            conflicts: 0,
            resting: false,
            looped: false,
            nonce: None,
            defended: None,
        };
        if let Some(slot) = self.entries.get_mut(at as usize) {
            *slot = Some(entry);
        }
        self.wheel.insert(at, now + wait);
        Ok(())
    }

    /// Removes an address: it was taken from the interface.
    pub fn stop(&mut self, iface: IfIndex, addr: IpAddr) {
        if let Some(at) = self.find(iface, addr) {
            self.discard(at);
        }
    }

    /// Another station probes for or uses the address, as `arp.rs` or `ndp.rs` has checked; `nonce`
    /// is the message's.
    pub fn conflict(
        &mut self,
        iface: IfIndex,
        addr: IpAddr,
        nonce: Option<Nonce>,
        now: Instant,
        random: &mut Randomness,
    ) -> DadResponse {
        let Some(at) = self.find(iface, addr) else {
            return DadResponse::Ignore;
        };
        let Some(entry) = self.entries.get_mut(at as usize).and_then(Option::as_mut) else {
            return DadResponse::Ignore;
        };
        if nonce.is_some() && nonce == entry.nonce {
            if let (DadPhase::Probing { left }, false) = (&mut entry.phase, entry.looped) {
                *left = left.saturating_add(PROBES_LOOPED);
                entry.looped = true;
            }
            return DadResponse::Ignore;
        }
        if !matches!(entry.phase, DadPhase::Probing { .. }) {
            let lately = entry.defended.is_some_and(|then| now < then + DEFEND_INTERVAL);
            if !lately {
                entry.defended = Some(now);
            }
            return if lately { DadResponse::Ignore } else { DadResponse::Defend };
        }
        if entry.resting {
            return DadResponse::Ignore;
        }
        if entry.conflicts >= RETRIES_MAX {
            self.discard(at);
            return DadResponse::GiveUp;
        }
        let wait = RETRY_WAIT * (1 << entry.conflicts) + below(self.delay_max, random);
        entry.conflicts += 1;
        entry.resting = true;
        entry.phase = DadPhase::Probing { left: probes(addr) };
        self.wheel.insert(at, now + wait);
        DadResponse::Retry
    }

    /// Does timed work, while units last; returns what was spent.
    pub fn work(
        &mut self,
        now: Instant,
        budget: Units,
        random: &mut Randomness,
        mut emit: impl FnMut(DadEvent),
    ) -> Units {
        let mut left = budget;
        while let Some(at) = self.wheel.pop_due(now, &mut left) {
            let Some(entry) = self.entries.get_mut(at as usize).and_then(Option::as_mut) else {
                continue;
            };
            let (event, wait) = ring(entry, random);
            if let Some(wait) = wait {
                self.wheel.insert(at, now + wait);
            }
            if let Some(event) = event {
                emit(event);
            }
        }
        budget.minus(left)
    }

    /// When [`Dad::work`] must be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.wheel.deadline()
    }

    fn hash(&self, iface: IfIndex, addr: IpAddr) -> u32 {
        self.key.addr(addr, u32::from(iface.0)) as u32
    }

    fn find(&self, iface: IfIndex, addr: IpAddr) -> Option<u32> {
        self.index.find(self.hash(iface, addr), |at| {
            let entry = self.entries.get(at as usize).and_then(Option::as_ref);
            entry.is_some_and(|e| e.iface == iface && e.addr == addr)
        })
    }

    fn discard(&mut self, at: u32) {
        if let Some(entry) = self.entries.get_mut(at as usize).and_then(Option::take) {
            self.index.remove(entry.hash, at);
            self.wheel.cancel(at);
            self.free.push_back(0, at);
        }
    }
}

/// An address's timer expired: what to send, and when the next timer expires.
fn ring(entry: &mut DadEntry, random: &mut Randomness) -> (Option<DadEvent>, Option<Duration>) {
    let (iface, addr) = (entry.iface, entry.addr);
    match &mut entry.phase {
        DadPhase::Probing { left: 0 } => {
            entry.phase = announcing(addr, Detection::Probe);
            let more = entry.phase != DadPhase::Settled;
            (Some(DadEvent::Confirmed(iface, addr)), more.then_some(Duration::ZERO))
        }
        DadPhase::Probing { left } => {
            *left -= 1;
            let wait = match addr {
                IpAddr::V6(_) => PROBE_WAIT_V6,
                IpAddr::V4(_) if *left == 0 => ANNOUNCE_WAIT,
                IpAddr::V4(_) => PROBE_WAIT_V4 + below(PROBE_WAIT_V4, random),
            };
            let [nonce @ .., _, _] = random.secret.next_u64().to_be_bytes();
            entry.resting = false;
            entry.nonce = Some(Nonce(nonce));
            (Some(DadEvent::Probe(iface, addr, Nonce(nonce))), Some(wait))
        }
        DadPhase::Announcing { left } => {
            *left = left.saturating_sub(1);
            if *left == 0 {
                entry.phase = DadPhase::Settled;
            }
            let more = entry.phase != DadPhase::Settled;
            (Some(DadEvent::Announce(iface, addr)), more.then_some(ANNOUNCE_WAIT))
        }
        DadPhase::Settled => (None, None),
    }
}

const fn probes(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { PROBES_V4 } else { PROBES_V6 }
}

/// What follows once an address may be used.
const fn announcing(addr: IpAddr, detection: Detection) -> DadPhase {
    match (addr, detection) {
        (IpAddr::V4(_), _) => DadPhase::Announcing { left: ANNOUNCEMENTS_V4 },
        (IpAddr::V6(_), Detection::Announce) => DadPhase::Announcing { left: ANNOUNCEMENTS_V6 },
        (IpAddr::V6(_), Detection::Probe) => DadPhase::Settled,
    }
}

/// A random time below `max`.
fn below(max: Duration, random: &mut Randomness) -> Duration {
    let nanos = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(random.public.below(nanos))
}

#[cfg(test)]
#[path = "dad/tests.rs"]
mod tests;
