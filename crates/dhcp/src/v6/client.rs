//! `Dhcpv6Client`: the exchanges of a client (RFC 8415 section 18.2) and what leads from one to the
//! next.
//!
//! Called by `stack`: [`Dhcpv6Client::start`] when a router says that there is a server,
//! [`Dhcpv6Client::input`] with what arrived on port 546, [`Dhcpv6Client::poll`] for timed work,
//! until it has no more events. Invariants: each request is retransmitted by section 15's timers;
//! an address is used only after the caller has found it to be unused (section 18.2.10.1); the end
//! of a lease is always reported. Departures: a Release is sent once, since an instance that ends
//! does not wait for the answer; on a link that comes up again the client solicits with the address
//! of before as a hint instead of a Confirm, which gets the same answer and new times.

use core::net::Ipv6Addr;
use core::time::Duration;

use floodwall_base::limits::DHCP_MESSAGE_BYTES_MAX;
use floodwall_base::{Instant, MacAddr, Randomness};
use floodwall_wire::dhcpv6::{FIXED_LEN, option};
use floodwall_wire::{Dhcpv6Message, Dhcpv6Status, Dhcpv6Type, Dhcpv6Writer};

use super::Duid;
use super::lease::{Dhcpv6Lease, Dhcpv6Refused, Dhcpv6Settings, outcome, takes_back};
use crate::array_vec::ArrayVec;
use crate::client::LeaseEnd;

/// Maximum delay of the first message (SOL_MAX_DELAY, INF_MAX_DELAY).
const START_WAIT: Duration = Duration::from_secs(1);
/// How long verifying an address may take before it is thought forgotten.
const VERIFY_MAX: Duration = Duration::from_secs(30);
/// How long an address stays configured after its release, so that the release can be sent.
const RELEASE_WAIT: Duration = Duration::from_millis(300);
/// The longest time between two attempts where servers keep refusing.
const BACK_OFF_MAX: Duration = Duration::from_secs(64);
/// A server of this preference is taken at once (RFC 8415 section 18.2.1).
const PREFERENCE_MAX: u8 = 255;
/// What SOL_MAX_RT and INF_MAX_RT of a server may be, in seconds (RFC 8415 section 21.24).
const MAX_RT: core::ops::RangeInclusive<u32> = 60..=86_400;
/// Information is asked for again after this, where the server leaves it open, and not sooner than
/// that (RFC 8415 section 21.23).
const REFRESH_TIMES: (Duration, Duration) = (Duration::from_secs(86_400), Duration::from_secs(600));
/// Bytes of a message of ours.
const MESSAGE_ROOM: usize = 256;

/// What routers say that there is to be had.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Dhcpv6Wanted {
    /// Settings without an address (the O flag alone).
    Settings,
    /// An address (the M flag).
    Address,
}

/// Where the client stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dhcpv6State {
    /// Idle: no router asks for it, or the link is down.
    Stopped,
    /// It looks for servers (Solicit).
    Soliciting,
    /// It has chosen an offer, and waits for the server's reply (Request).
    Requesting,
    /// It checks whether another host uses the address.
    Verifying,
    /// It has a lease.
    Bound,
    /// It asks its server to extend the lease (Renew).
    Renewing,
    /// It asks any server to extend the lease (Rebind).
    Rebinding,
    /// It returns an address that another host uses (Decline).
    Declining,
    /// It asks for settings alone (Information-request).
    Informing,
    /// It has settings alone.
    Informed,
}

impl Dhcpv6State {
    /// The state's name, as it is shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stopped => "STOPPED",
            Self::Soliciting => "SOLICITING",
            Self::Requesting => "REQUESTING",
            Self::Verifying => "VERIFYING",
            Self::Bound => "BOUND",
            Self::Renewing => "RENEWING",
            Self::Rebinding => "REBINDING",
            Self::Declining => "DECLINING",
            Self::Informing => "INFORMING",
            Self::Informed => "INFORMED",
        }
    }

    /// The message of the state and its timers: initial time, maximum time (zero: none), maximum
    /// count (zero: none), of RFC 8415 section 7.6. `None` where nothing is asked.
    const fn request(self) -> Option<(Dhcpv6Type, RetransmitTimers)> {
        Some(match self {
            Self::Soliciting => (Dhcpv6Type::SOLICIT, RetransmitTimers::of(1, 3600, 0)),
            Self::Requesting => (Dhcpv6Type::REQUEST, RetransmitTimers::of(1, 30, 10)),
            Self::Renewing => (Dhcpv6Type::RENEW, RetransmitTimers::of(10, 600, 0)),
            Self::Rebinding => (Dhcpv6Type::REBIND, RetransmitTimers::of(10, 600, 0)),
            Self::Declining => (Dhcpv6Type::DECLINE, RetransmitTimers::of(1, 0, 4)),
            Self::Informing => (Dhcpv6Type::INFORMATION_REQUEST, RetransmitTimers::of(1, 3600, 0)),
            Self::Stopped | Self::Verifying | Self::Bound | Self::Informed => return None,
        })
    }
}

/// Retransmission parameters of a message (RFC 8415 section 15).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RetransmitTimers {
    first: Duration,
    most: Duration,
    count: u32,
}

impl RetransmitTimers {
    const fn of(first: u64, most: u64, count: u32) -> Self {
        Self { first: Duration::from_secs(first), most: Duration::from_secs(most), count }
    }
}

/// A message to be sent from port 546 of our link-local address to port 547 of
/// [`ALL_SERVERS`](floodwall_wire::dhcpv6::ALL_SERVERS).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dhcpv6Transmission {
    bytes: [u8; MESSAGE_ROOM],
    len: usize,
}

impl Dhcpv6Transmission {
    /// The message.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// What the caller is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dhcpv6Event {
    /// Send this.
    Send(Dhcpv6Transmission),
    /// Check whether another host uses the lease's address, and report [`Dhcpv6Client::verified`]
    /// or [`Dhcpv6Client::unusable`].
    Verify(Dhcpv6Lease),
    /// The lease is in force: it is new, or its times and what came with it are.
    Bound(Dhcpv6Lease),
    /// The lease of this address is over: remove it.
    Ended(Ipv6Addr, LeaseEnd),
    /// Settings have come without an address.
    Informed,
}

/// An event that waits, without the values that are at hand when it is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NextStep {
    Send(Dhcpv6Type),
    Verify,
    Bound,
    Ended(Ipv6Addr, LeaseEnd),
    Informed,
}

/// A DHCPv6 client for one interface.
#[derive(Clone, Debug)]
pub struct Dhcpv6Client {
    duid: Duid,
    iaid: u32,
    wanted: Option<Dhcpv6Wanted>,
    state: Dhcpv6State,
    xid: u32,
    /// When the first message of this exchange was sent.
    began: Instant,
    /// Messages of this exchange.
    tries: u32,
    /// The present retransmission time (RT).
    timeout: Duration,
    wake: Option<Instant>,
    /// Attempts that failed one after another.
    failures: u32,
    /// The best offer so far, and the preference of its server.
    offer: Option<(Dhcpv6Lease, u8)>,
    /// The lease, or the one that is being requested or verified.
    lease: Option<Dhcpv6Lease>,
    /// The lease's address is configured.
    assigned: bool,
    settings: Option<Dhcpv6Settings>,
    /// SOL_MAX_RT and INF_MAX_RT, where a server has changed them.
    most: (Option<Duration>, Option<Duration>),
    due: ArrayVec<NextStep, 4>,
    refused: u64,
    last_refusal: Option<Dhcpv6Refused>,
}

impl Dhcpv6Client {
    /// A client of the station `mac`, stopped. Its DUID is of the link-layer address (RFC 8415
    /// section 11.4), its IAID the end of that address: both are the same after a restart.
    #[must_use]
    pub fn new(mac: MacAddr) -> Self {
        let [a, b, c, d, e, f] = mac.0;
        let duid = Duid::new(&[0, 3, 0, 1, a, b, c, d, e, f]);
        Self {
            // Ten bytes are a DUID.
            duid: duid.unwrap_or(Duid { bytes: [0; 130], len: 0 }),
            iaid: u32::from_be_bytes([c, d, e, f]),
            wanted: None,
            state: Dhcpv6State::Stopped,
            xid: 0,
            began: Instant::ORIGIN,
            tries: 0,
            timeout: Duration::ZERO,
            wake: None,
            failures: 0,
            offer: None,
            lease: None,
            assigned: false,
            settings: None,
            most: (None, None),
            due: ArrayVec::default(),
            refused: 0,
            last_refusal: None,
        }
    }

    /// Where the client stands.
    #[must_use]
    pub const fn state(&self) -> Dhcpv6State {
        self.state
    }

    /// Our identifier, by which servers know us.
    #[must_use]
    pub const fn duid(&self) -> &Duid {
        &self.duid
    }

    /// The lease in force.
    #[must_use]
    pub fn lease(&self) -> Option<&Dhcpv6Lease> {
        self.lease.as_ref().filter(|_| self.assigned)
    }

    /// The DNS servers and domains in force: the lease's, or those that came without one.
    #[must_use]
    pub fn settings(&self) -> Option<&Dhcpv6Settings> {
        self.lease().map(|lease| &lease.settings).or(self.settings.as_ref())
    }

    /// Messages that were rejected, and why the last one was.
    #[must_use]
    pub const fn refused(&self) -> (u64, Option<Dhcpv6Refused>) {
        (self.refused, self.last_refusal)
    }

    /// Whether answers may come.
    #[must_use]
    pub const fn awaits(&self) -> bool {
        self.state.request().is_some() && self.tries > 0
    }

    /// A router says what there is to be had. Starts the client, or makes one that asked for
    /// settings ask for an address; a client that runs goes on.
    pub fn start(&mut self, wanted: Dhcpv6Wanted, now: Instant, random: &mut Randomness) {
        if self.state != Dhcpv6State::Stopped && self.wanted >= Some(wanted) {
            return;
        }
        self.wanted = self.wanted.max(Some(wanted));
        self.failures = 0;
        self.due.clear();
        self.begin(now, random);
    }

    /// The link is down: nothing is sent or accepted until a router speaks again. The lease's
    /// address is remembered as a hint; the caller has stopped using it.
    pub fn stop(&mut self) {
        self.due.clear();
        (self.state, self.wake, self.assigned) = (Dhcpv6State::Stopped, None, false);
        (self.wanted, self.settings, self.offer) = (None, None, None);
    }

    /// Releases the lease: an event to send the release, and, after it has had time to leave, an
    /// event to remove the address.
    pub fn release(&mut self, now: Instant) {
        self.due.clear();
        if self.assigned {
            self.due.push(NextStep::Send(Dhcpv6Type::RELEASE));
        } else {
            self.lease = None;
        }
        // Another exchange than the one of before; its answer is not waited for.
        self.xid = self.xid.wrapping_add(1) & 0x00ff_ffff;
        (self.state, self.tries, self.began) = (Dhcpv6State::Stopped, 0, now);
        (self.wanted, self.settings, self.offer) = (None, None, None);
        self.wake = self.assigned.then(|| now + RELEASE_WAIT);
    }

    /// No other host uses the address.
    pub fn verified(&mut self, now: Instant) {
        if self.state == Dhcpv6State::Verifying {
            self.bind(now);
        }
    }

    /// Another host uses the address, or it cannot be used: the server gets a Decline, and the
    /// client starts anew after it.
    pub fn unusable(&mut self, now: Instant, random: &mut Randomness) {
        if let Some(lease) = self.lease
            && (self.state == Dhcpv6State::Verifying || self.assigned)
        {
            self.assigned = false;
            self.due.push(NextStep::Ended(lease.addr, LeaseEnd::Unusable));
            self.enter(Dhcpv6State::Declining, random);
            self.ask(now, random);
        }
    }

    /// Takes a message that came to port 546 of our link-local address. `is_ours` reports which
    /// addresses other local interfaces use.
    ///
    /// # Errors
    /// See [`Dhcpv6Refused`]; nothing has changed then but the count, and what the server says of
    /// the pace of requests.
    pub fn input(
        &mut self,
        bytes: &[u8],
        now: Instant,
        random: &mut Randomness,
        is_ours: impl Fn(Ipv6Addr) -> bool,
    ) -> Result<(), Dhcpv6Refused> {
        self.answer(bytes, now, random, is_ours).inspect_err(|refused| {
            self.refused += 1;
            self.last_refusal = Some(*refused);
        })
    }

    fn answer(
        &mut self,
        bytes: &[u8],
        now: Instant,
        random: &mut Randomness,
        is_ours: impl Fn(Ipv6Addr) -> bool,
    ) -> Result<(), Dhcpv6Refused> {
        if !self.awaits() {
            return Err(Dhcpv6Refused::Unasked);
        }
        if bytes.len() > DHCP_MESSAGE_BYTES_MAX {
            return Err(Dhcpv6Refused::TooLong);
        }
        let message = Dhcpv6Message::parse(bytes)?;
        let client = message.options().find(option::CLIENT_ID);
        if message.xid() != self.xid || client != Some(self.duid.bytes()) {
            return Err(Dhcpv6Refused::NotOurs);
        }
        let server = message.options().find(option::SERVER_ID).and_then(Duid::new);
        let server = server.ok_or(Dhcpv6Refused::Server)?;
        self.take_pace(&message);
        match (self.state, message.kind()) {
            (Dhcpv6State::Soliciting, Dhcpv6Type::ADVERTISE) => {
                self.advertised(&message, server, now, random, is_ours)
            }
            (Dhcpv6State::Soliciting, _) | (_, Dhcpv6Type::ADVERTISE) => Err(Dhcpv6Refused::Kind),
            (Dhcpv6State::Informing, Dhcpv6Type::REPLY) => {
                self.informed(&message, now);
                Ok(())
            }
            (Dhcpv6State::Declining, Dhcpv6Type::REPLY) => {
                self.lease = None;
                self.back_off(now, random);
                Ok(())
            }
            (_, Dhcpv6Type::REPLY) => self.replied(&message, server, now, random, is_ours),
            _ => Err(Dhcpv6Refused::Kind),
        }
    }

    /// An offer (RFC 8415 section 18.2.9): the first one after the first timeout is taken, before
    /// that the one of the highest preference.
    fn advertised(
        &mut self,
        message: &Dhcpv6Message<'_>,
        server: Duid,
        now: Instant,
        random: &mut Randomness,
        is_ours: impl Fn(Ipv6Addr) -> bool,
    ) -> Result<(), Dhcpv6Refused> {
        let hint = self.lease.map(|lease| lease.addr);
        let lease = Dhcpv6Lease::judge(message, (server, self.iaid), hint, now, is_ours)?;
        let [preference] = message.options().array(option::PREFERENCE).unwrap_or([0]);
        if self.offer.is_none_or(|(_, best)| preference > best) {
            self.offer = Some((lease, preference));
        }
        if self.tries > 1 || preference == PREFERENCE_MAX {
            self.request(now, random);
        }
        Ok(())
    }

    /// Requests the best offer.
    fn request(&mut self, now: Instant, random: &mut Randomness) {
        let Some((lease, _)) = self.offer.take() else { return };
        self.lease = Some(lease);
        self.enter(Dhcpv6State::Requesting, random);
        self.ask(now, random);
    }

    /// A reply about our address (RFC 8415 section 18.2.10.1).
    fn replied(
        &mut self,
        message: &Dhcpv6Message<'_>,
        server: Duid,
        now: Instant,
        random: &mut Randomness,
        is_ours: impl Fn(Ipv6Addr) -> bool,
    ) -> Result<(), Dhcpv6Refused> {
        let before = self.lease.ok_or(Dhcpv6Refused::Unasked)?;
        if self.state != Dhcpv6State::Rebinding && server != before.server {
            return Err(Dhcpv6Refused::Server);
        }
        let renews = self.state != Dhcpv6State::Requesting;
        let status = outcome(message, self.iaid);
        match status {
            Dhcpv6Status::NO_BINDING if renews => {
                // The server has forgotten us: the same address is requested anew.
                self.lease = Some(Dhcpv6Lease { server, ..before });
                self.enter(Dhcpv6State::Requesting, random);
                self.ask(now, random);
                return Ok(());
            }
            Dhcpv6Status::NO_ADDRS_AVAIL | Dhcpv6Status::NOT_ON_LINK if !renews => {
                self.end(before.addr, LeaseEnd::TakenBack);
                self.lease = None;
                self.back_off(now, random);
                return Ok(());
            }
            _ => {}
        }
        let mine = |addr| !(self.assigned && addr == before.addr) && is_ours(addr);
        let wanted = (server, self.iaid);
        let lease = Dhcpv6Lease::judge(message, wanted, Some(before.addr), now, mine);
        let taken_back = takes_back(message, self.iaid, before.addr);
        match lease {
            Ok(lease) if lease.addr == before.addr => self.granted(lease, now),
            // Another address only where the one of before is over.
            Ok(lease) if taken_back || !self.assigned => {
                self.end(before.addr, LeaseEnd::TakenBack);
                self.granted(lease, now);
            }
            Err(_) if taken_back => {
                self.end(before.addr, LeaseEnd::TakenBack);
                self.lease = None;
                self.back_off(now, random);
            }
            Ok(_) => return Err(Dhcpv6Refused::NoAddress),
            Err(refused) => return Err(refused),
        }
        Ok(())
    }

    fn granted(&mut self, lease: Dhcpv6Lease, now: Instant) {
        self.lease = Some(lease);
        if self.assigned {
            return self.bind(now);
        }
        (self.state, self.tries) = (Dhcpv6State::Verifying, 0);
        self.wake = Some(now + VERIFY_MAX);
        self.due.push(NextStep::Verify);
    }

    fn bind(&mut self, now: Instant) {
        (self.state, self.tries, self.failures) = (Dhcpv6State::Bound, 0, 0);
        (self.assigned, self.settings) = (true, None);
        self.wake = self.lease.and_then(|lease| lease.renew_at).map(|at| at.max(now));
        self.due.push(NextStep::Bound);
    }

    /// The address is to be removed, where it is configured.
    fn end(&mut self, addr: Ipv6Addr, why: LeaseEnd) {
        if core::mem::take(&mut self.assigned) {
            self.due.push(NextStep::Ended(addr, why));
        }
    }

    fn informed(&mut self, message: &Dhcpv6Message<'_>, now: Instant) {
        let (usual, least) = REFRESH_TIMES;
        let refresh = message.options().number(option::REFRESH_TIME);
        let refresh = refresh.map_or(usual, |s| Duration::from_secs(u64::from(s)).max(least));
        self.settings = Some(Dhcpv6Settings::read(message));
        (self.state, self.tries, self.failures) = (Dhcpv6State::Informed, 0, 0);
        self.wake = Some(now + refresh);
        self.due.push(NextStep::Informed);
    }

    /// Servers may slow solicitations down (RFC 8415 section 21.24).
    fn take_pace(&mut self, message: &Dhcpv6Message<'_>) {
        let most = |code| {
            let seconds = message.options().number(code).filter(|s| MAX_RT.contains(s))?;
            Some(Duration::from_secs(u64::from(seconds)))
        };
        let (solicit, inform) = self.most;
        self.most = (most(option::SOL_MAX_RT).or(solicit), most(option::INF_MAX_RT).or(inform));
    }

    /// The next thing to do, if there is one at `now`. To be called until there is none: after
    /// [`Dhcpv6Client::input`], after what the caller has found out, and when
    /// [`Dhcpv6Client::deadline`] has come.
    pub fn poll(&mut self, now: Instant, random: &mut Randomness) -> Option<Dhcpv6Event> {
        // A timer makes two events at most, and the states that follow wait for a second.
        for _ in 0..3 {
            if let Some(due) = self.due.pop_front() {
                return self.event(due, now);
            }
            if self.wake.is_none_or(|wake| wake > now) {
                return None;
            }
            self.timer(now, random);
        }
        None
    }

    /// When [`Dhcpv6Client::poll`] must be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if self.due.is_empty() { self.wake } else { Some(Instant::ORIGIN) }
    }

    fn event(&mut self, due: NextStep, now: Instant) -> Option<Dhcpv6Event> {
        Some(match due {
            NextStep::Send(kind) => Dhcpv6Event::Send(self.write(kind, now)),
            NextStep::Verify => Dhcpv6Event::Verify(self.lease?),
            NextStep::Bound => Dhcpv6Event::Bound(self.lease?),
            NextStep::Ended(addr, why) => Dhcpv6Event::Ended(addr, why),
            NextStep::Informed => Dhcpv6Event::Informed,
        })
    }

    /// A wait is over.
    fn timer(&mut self, now: Instant, random: &mut Randomness) {
        self.wake = None;
        let over = self.lease.is_some_and(|lease| lease.is_over(now));
        match self.state {
            Dhcpv6State::Stopped => {
                if let Some(lease) = self.lease.take() {
                    self.end(lease.addr, LeaseEnd::Released);
                }
            }
            Dhcpv6State::Soliciting if self.offer.is_some() => self.request(now, random),
            Dhcpv6State::Verifying => self.unusable(now, random),
            Dhcpv6State::Bound | Dhcpv6State::Renewing | Dhcpv6State::Rebinding if over => {
                self.give_up(LeaseEnd::Expired, now, random);
            }
            Dhcpv6State::Bound => {
                self.enter(Dhcpv6State::Renewing, random);
                self.prolong(now, random);
            }
            Dhcpv6State::Renewing | Dhcpv6State::Rebinding => self.prolong(now, random),
            Dhcpv6State::Informed => {
                self.enter(Dhcpv6State::Informing, random);
                self.ask(now, random);
            }
            Dhcpv6State::Soliciting
            | Dhcpv6State::Requesting
            | Dhcpv6State::Declining
            | Dhcpv6State::Informing => {
                let limit = self.state.request().map_or(0, |(_, timers)| timers.count);
                if limit > 0 && self.tries >= limit {
                    self.give_up(LeaseEnd::Expired, now, random);
                } else {
                    self.ask(now, random);
                }
            }
        }
    }

    /// No server answers, or the lease is over: starts anew.
    fn give_up(&mut self, why: LeaseEnd, now: Instant, random: &mut Randomness) {
        if let Some(lease) = self.lease.take() {
            self.end(lease.addr, why);
        }
        self.back_off(now, random);
    }

    /// Asks to extend the lease: its server until T2, then any.
    fn prolong(&mut self, now: Instant, random: &mut Randomness) {
        let Some(lease) = self.lease else { return };
        let rebinds = lease.rebind_at.is_some_and(|at| at <= now);
        if rebinds && self.state == Dhcpv6State::Renewing {
            self.enter(Dhcpv6State::Rebinding, random);
        }
        self.ask(now, random);
        let end = if rebinds { lease.valid_until } else { lease.rebind_at };
        if let Some(end) = end {
            self.wake = self.wake.map(|wake| wake.min(end));
        }
    }

    /// Sends this state's message once more, and sets when to retransmit (RFC 8415 section 15).
    fn ask(&mut self, now: Instant, random: &mut Randomness) {
        let Some((kind, timers)) = self.state.request() else { return };
        let most = match self.state {
            Dhcpv6State::Soliciting => self.most.0.unwrap_or(timers.most),
            Dhcpv6State::Informing => self.most.1.unwrap_or(timers.most),
            _ => timers.most,
        };
        // A tenth more or less; the first Solicit's time is longer, so that offers can come.
        let mut spread = |of: Duration, up: bool| {
            let tenth = of / 10;
            let nanos = tenth.as_nanos() as u64;
            match up {
                true => of + Duration::from_nanos(1 + random.public.below(nanos.max(1))),
                false => of - tenth + Duration::from_nanos(random.public.below(2 * nanos + 1)),
            }
        };
        self.timeout = match self.tries {
            0 => spread(timers.first, self.state == Dhcpv6State::Soliciting),
            _ => self.timeout + spread(self.timeout, false),
        };
        if !most.is_zero() && self.timeout > most {
            self.timeout = spread(most, false);
        }
        if self.tries == 0 {
            self.began = now;
        }
        self.tries += 1;
        self.due.push(NextStep::Send(kind));
        self.wake = Some(now + self.timeout);
    }

    /// Begins the first exchange, after a random delay.
    fn begin(&mut self, now: Instant, random: &mut Randomness) {
        let address = self.wanted == Some(Dhcpv6Wanted::Address);
        let first = if address { Dhcpv6State::Soliciting } else { Dhcpv6State::Informing };
        self.enter(first, random);
        self.wake = Some(now + Duration::from_nanos(below(START_WAIT, random)));
    }

    /// Starts anew, with exponential backoff.
    fn back_off(&mut self, now: Instant, random: &mut Randomness) {
        let wait = Duration::from_secs(1 << self.failures.min(6)).min(BACK_OFF_MAX);
        self.failures = self.failures.saturating_add(1);
        self.begin(now + wait, random);
    }

    /// Enters another exchange, with a new transaction id.
    fn enter(&mut self, state: Dhcpv6State, random: &mut Randomness) {
        (self.state, self.tries, self.offer) = (state, 0, None);
        self.xid = random.secret.next_u32() & 0x00ff_ffff;
    }

    /// Writes a message of this type for the present exchange.
    fn write(&self, kind: Dhcpv6Type, now: Instant) -> Dhcpv6Transmission {
        let mut bytes = [0; MESSAGE_ROOM];
        let mut writer = Dhcpv6Writer::new(kind, self.xid, &mut bytes);
        writer.option(option::CLIENT_ID, &[self.duid.bytes()]);
        let to_one = [Dhcpv6Type::REQUEST, Dhcpv6Type::RENEW, Dhcpv6Type::RELEASE];
        if let Some(lease) = &self.lease
            && (to_one.contains(&kind) || kind == Dhcpv6Type::DECLINE)
        {
            writer.option(option::SERVER_ID, &[lease.server.bytes()]);
        }
        let hundredths = (now - self.began).as_millis() / 10;
        let elapsed = u16::try_from(hundredths).unwrap_or(u16::MAX);
        writer.option(option::ELAPSED, &[&elapsed.to_be_bytes()]);
        let informs = kind == Dhcpv6Type::INFORMATION_REQUEST;
        if !informs {
            writer.association(self.iaid, self.lease.map(|lease| lease.addr));
        }
        let pace = if informs { option::INF_MAX_RT } else { option::SOL_MAX_RT };
        let mut wanted: ArrayVec<u16, 4> = ArrayVec::default();
        for code in [option::DNS, option::SEARCH, pace] {
            wanted.push(code);
        }
        if informs {
            wanted.push(option::REFRESH_TIME);
        }
        if kind != Dhcpv6Type::RELEASE && kind != Dhcpv6Type::DECLINE {
            let mut codes = [0; 8];
            let pairs = codes.as_chunks_mut::<2>().0;
            pairs.iter_mut().zip(wanted.iter()).for_each(|(pair, code)| *pair = code.to_be_bytes());
            let codes = codes.get(..2 * wanted.len()).unwrap_or_default();
            writer.option(option::REQUEST, &[codes]);
        }
        // There is room: the options of ours are few, and a test counts.
        let len = writer.finish().unwrap_or(FIXED_LEN);
        Dhcpv6Transmission { bytes, len }
    }
}

/// Random nanoseconds below `max`.
fn below(max: Duration, random: &mut Randomness) -> u64 {
    random.public.below(max.as_nanos() as u64)
}

#[cfg(test)]
mod tests;
