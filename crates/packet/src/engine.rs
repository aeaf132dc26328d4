//! The one trait of everything that turns packets into packets (decision C10).
//!
//! An engine never looks outside: packets, time and randomness come in, packets and a deadline
//! come out. So `dispatch` runs it on real devices, `world` in virtual time, and it cannot tell
//! which. Every call returns the units of work that it spent, by which a caller shares a core.

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{IfIndex, Instant, Randomness, Units};
use floodwall_sync::qsbr::DomainView;

use crate::burst::Burst;
use crate::handoff::HandoffList;
use crate::list::PacketList;
use crate::pool::Pool;
use crate::redirect_offer::RedirectOffer;
use crate::rx_filter::RxFilter;
use crate::syn_offers::SynOffers;

/// What an engine gets for one call.
pub struct Round<'a> {
    /// The time of the whole round.
    pub now: Instant,
    /// This worker's memory.
    pub pool: &'a Pool,
    /// This worker's randomness.
    pub random: &'a mut Randomness,
    /// What arrived, each packet with its interface named. The engine empties it.
    pub arrived: &'a mut Burst,
    /// What is to leave, each packet with its interface named. The engine appends.
    pub departing: &'a mut PacketList,
    /// How much work the caller grants.
    pub budget: Units,
    /// What ties this worker to the others; `None` where the engine is alone.
    pub peers: Option<Peers<'a>>,
}

impl Round<'_> {
    /// The same round for another call: nothing of it is used up.
    pub fn again(&mut self) -> Round<'_> {
        Round {
            now: self.now,
            pool: self.pool,
            random: self.random,
            arrived: self.arrived,
            departing: self.departing,
            budget: self.budget,
            peers: self.peers.as_mut().map(Peers::again),
        }
    }
}

/// What an engine needs of the other workers of its host.
pub struct Peers<'a> {
    /// Leave to look at what the control shard has published, until the end of this call.
    pub view: DomainView<'a>,
    /// What belongs to another worker.
    pub handoff: &'a mut HandoffList,
}

impl Peers<'_> {
    /// The same for another call.
    pub fn again(&mut self) -> Peers<'_> {
        Peers { view: self.view, handoff: self.handoff }
    }
}

/// The result of the triage step for one packet, before any work is put into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Triage {
    /// It belongs to something that we take part in: a known flow, an answered peer.
    Established,
    /// It may begin something new.
    Unknown,
    /// It would be dropped anyway.
    Rejectable,
}

/// A packet engine: it takes bursts in rounds, with time, randomness and memory as arguments.
pub trait Engine {
    /// Takes the arrived burst, of any size, and appends what is to be sent.
    fn round(&mut self, round: &mut Round<'_>) -> Units;

    /// Does up to `round.budget` units of timed work: retransmissions, ageing, applications.
    fn work(&mut self, round: &mut Round<'_>) -> Units;

    /// Takes what other workers handed over, all of it. An engine that hands nothing over is never
    /// handed anything, and need not care.
    fn adopt(&mut self, round: &mut Round<'_>, handed: &mut HandoffList) -> Units {
        let _ = round;
        handed.drain().for_each(drop);
        Units(0)
    }

    /// How many packets it is willing to take now: fewer than a burst where a consumer behind it
    /// is full, so that the excess waits, and is dropped, in the device's ring before any work is
    /// put into it (queue-state feedback: backpressure). Where the triage separates packets of
    /// established peers from those of unverified sources, it is the number of the latter:
    /// established peers have other consumers.
    fn rx_capacity(&self, now: Instant) -> usize {
        let _ = now;
        BURST_MAX
    }

    /// Touches the memory that packets would be the first to touch, so that none waits for a page
    /// fault; returns how many bytes that were. Called once, before the first packet.
    fn touch_memory(&mut self) -> usize {
        0
    }

    /// How many packets may wait in `departing` from now on: what connections have beyond that
    /// stays with them until later calls, and [`Engine::deadline`] is in the past meanwhile where
    /// there is any room. Answers to packets are appended all the same. Without a call there is no
    /// bound.
    fn set_tx_room(&mut self, packets: usize) {
        let _ = packets;
    }

    /// What the last calls appended has been given to the devices. Called once a turn, after they
    /// have transmitted: now programs are given their memory back, and those that wait are woken,
    /// so that no packet waits behind a wake-up.
    fn departed(&mut self) {}

    /// The caller is about to sleep: whether it may. `false` where another thread wants something
    /// of the engine already; after `true`, a thread that wants something wakes the caller by the
    /// means that the engine was given for it.
    fn rests(&mut self) -> bool {
        true
    }

    /// When [`Engine::work`] must be called at the latest; `None` where nothing is pending. A
    /// moment in the past means at once.
    fn deadline(&self) -> Option<Instant>;

    /// Classifies each packet of a burst, without changing anything, at the price of one table
    /// probe. `classes` is filled up to the burst's length.
    fn classify(&self, burst: &Burst, classes: &mut [Triage]);

    /// Reports what is wanted of what arrives at an interface, for devices that can lose the rest
    /// before it costs anything: nothing that is not wanted would get anywhere.
    fn rx_filter(&self, iface: IfIndex, wanted: &mut RxFilter) {
        let _ = iface;
        wanted.everything();
    }

    /// What SYNs that arrive at an interface at `now` are answered with, for devices that can
    /// answer them before they cost anything. `offers` is empty before; it stays so where only the
    /// engine can answer.
    fn syn_offers(&self, now: Instant, iface: IfIndex, offers: &mut SynOffers) {
        let _ = (now, iface, offers);
    }

    /// Another number whenever the result of [`Engine::syn_offers`] may have changed. Called once a
    /// turn; must cost a few loads.
    fn syn_offers_changed(&self, now: Instant) -> u64 {
        let _ = now;
        0
    }

    /// Whether a device has lately answered SYNs with what was offered: the engine then accepts the
    /// ACKs that come of it.
    fn syns_are_answered(&mut self, answered: bool) {
        let _ = answered;
    }

    /// Moves what devices may pass on by themselves to `offers`: of a router, pairs of hosts that
    /// talk. Called once a turn, only where a device takes such offers; from the first call on the
    /// engine makes them. A bounded number each time.
    fn take_redirects(&mut self, offers: &mut Vec<RedirectOffer>) {
        let _ = offers;
    }

    /// Another number whenever offers that were taken are no longer good. Called once a turn,
    /// before what the engine has appended is sent; must cost a few loads.
    fn redirects_changed(&self) -> u64 {
        0
    }

    /// Another number whenever the result of [`Engine::rx_filter`] may have changed. Called at
    /// least once a turn, before what the engine has appended is sent; must cost a few loads.
    fn wants_changed(&self) -> u64 {
        0
    }
}
