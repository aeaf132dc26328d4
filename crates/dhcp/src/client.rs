//! `DhcpClient`: the states of a client (RFC 2131 figure 5) and what leads from one to the next.
//!
//! Called by `stack`: [`DhcpClient::input`] with what arrived on port 68, [`DhcpClient::poll`] for
//! timed work, until it has no more events. Invariants: requests are retransmitted at growing
//! intervals, never more than once a second; a lease is used only after the caller has found its
//! address to be unused (RFC 5227); the end of a lease is always reported. Read first: RFC 2131
//! sections 3 and 4.4. Departures: the first request is delayed by less than a second, not up to
//! ten, as all clients do; renewing a short lease retransmits sooner than after a minute, since one
//! lost packet would end it.

use core::net::Ipv4Addr;
use core::time::Duration;

use floodwall_base::limits::DHCP_MESSAGE_BYTES_MAX;
use floodwall_base::{Instant, MacAddr, Randomness};
use floodwall_wire::dhcpv4::{self, option};
use floodwall_wire::{Dhcpv4Fields, Dhcpv4Message, Dhcpv4Type};

use crate::array_vec::ArrayVec;
use crate::lease::{Lease, LeaseRefused, server};

/// The longest time between two tries where servers keep refusing or lying.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(64);
/// Maximum delay of the first request, so that hosts that start together do not send together.
const START_WAIT: Duration = Duration::from_millis(500);
/// How long the first answer is waited for; doubled each time (RFC 2131 section 4.1).
const ANSWER_WAIT: Duration = Duration::from_secs(4);
/// Doublings of it: 64 seconds.
const DOUBLINGS_MAX: u32 = 4;
/// Unanswered requests for an address before the client restarts.
const REQUESTS_MAX: u32 = 4;
/// Requests for the address of before, until it is given up.
const REBOOTS_MAX: u32 = 2;
/// How long to wait after an address was declined (RFC 2131 section 3.1).
const DECLINE_WAIT: Duration = Duration::from_secs(10);
/// How long verifying an address may take before it is thought forgotten.
const VERIFY_MAX: Duration = Duration::from_secs(30);
/// The least time between two renewals of a long lease (RFC 2131 section 4.4.5).
const RENEW_WAIT: Duration = Duration::from_secs(60);
/// How long an address stays configured after its release, so that its server can be resolved and
/// the release sent.
const RELEASE_WAIT: Duration = Duration::from_millis(300);
/// Bytes of a message of ours.
const MESSAGE_ROOM: usize = 320;
/// The parameter request list; classless routes before routers (RFC 3442).
const REQUESTED_PARAMETERS: [u8; 11] = [
    option::MASK,
    option::ROUTES,
    option::ROUTES_MICROSOFT,
    option::ROUTERS,
    option::DNS,
    option::DOMAIN,
    option::SEARCH,
    option::MTU,
    option::LEASE_TIME,
    option::RENEWAL_TIME,
    option::REBINDING_TIME,
];

/// Where the client stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DhcpState {
    /// Idle: the link is down.
    Stopped,
    /// About to send the first request.
    Init,
    /// It waits for offers.
    Selecting,
    /// It has chosen an offer, and waits for the server's acknowledgement.
    Requesting,
    /// It requests the address that it had before.
    Rebooting,
    /// It checks whether another host uses the address.
    Verifying,
    /// It has a lease.
    Bound,
    /// It asks its server to extend the lease.
    Renewing,
    /// It asks any server to extend the lease.
    Rebinding,
}

impl DhcpState {
    /// RFC 2131's name of the state.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stopped => "STOPPED",
            Self::Init => "INIT",
            Self::Selecting => "SELECTING",
            Self::Requesting => "REQUESTING",
            Self::Rebooting => "REBOOTING",
            Self::Verifying => "VERIFYING",
            Self::Bound => "BOUND",
            Self::Renewing => "RENEWING",
            Self::Rebinding => "REBINDING",
        }
    }
}

/// A message to be sent from port 68 to port 67.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmission {
    /// From where: 0.0.0.0 while there is no address.
    pub src_addr: Ipv4Addr,
    /// The destination: broadcast, or our server.
    pub dst_addr: Ipv4Addr,
    bytes: [u8; MESSAGE_ROOM],
    len: usize,
}

impl Transmission {
    /// The message.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Why a lease ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseEnd {
    /// Its time was over.
    Expired,
    /// A server took it back.
    TakenBack,
    /// Another host uses the address, or it could not be used.
    Unusable,
    /// We gave it back.
    Released,
}

impl LeaseEnd {
    /// What happened, as an event for the caller.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Expired => "its time was over",
            Self::TakenBack => "the server took it back",
            Self::Unusable => "the address cannot be used",
            Self::Released => "given back",
        }
    }
}

/// What the caller is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DhcpEvent {
    /// Send this.
    Send(Transmission),
    /// Check whether another host uses the lease's address, and report [`DhcpClient::verified`] or
    /// [`DhcpClient::unusable`].
    Verify(Lease),
    /// The lease is in force: it is new, or its times and what came with it are.
    Bound(Lease),
    /// The lease of this address is over: remove everything that came with it.
    Ended(Ipv4Addr, LeaseEnd),
}

/// An event that waits, without the values that are at hand when it is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NextStep {
    Send(Dhcpv4Type),
    Verify,
    Bound,
    Ended(Ipv4Addr, LeaseEnd),
}

/// A DHCPv4 client for one interface.
#[derive(Clone, Debug)]
pub struct DhcpClient {
    mac: MacAddr,
    state: DhcpState,
    xid: u32,
    /// When this attempt began.
    began: Instant,
    /// When the request that is answered now was first sent.
    asked_at: Instant,
    /// Requests of this state without an answer.
    tries: u32,
    wake: Option<Instant>,
    /// Attempts that failed one after another.
    failures: u32,
    /// The lease, or the offer that is to become one.
    lease: Option<Lease>,
    due: ArrayVec<NextStep, 4>,
    refused: u64,
    last_refusal: Option<LeaseRefused>,
}

impl DhcpClient {
    /// A client of the station `mac`, stopped.
    #[must_use]
    pub fn new(mac: MacAddr) -> Self {
        Self {
            mac,
            state: DhcpState::Stopped,
            xid: 0,
            began: Instant::ORIGIN,
            asked_at: Instant::ORIGIN,
            tries: 0,
            wake: None,
            failures: 0,
            lease: None,
            due: ArrayVec::default(),
            refused: 0,
            last_refusal: None,
        }
    }

    /// Where the client stands.
    #[must_use]
    pub const fn state(&self) -> DhcpState {
        self.state
    }

    /// The lease in force.
    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref().filter(|_| self.is_bound())
    }

    /// Messages that were rejected, and why the last one was.
    #[must_use]
    pub const fn refused(&self) -> (u64, Option<LeaseRefused>) {
        (self.refused, self.last_refusal)
    }

    /// Whether answers may come while we have no address yet.
    #[must_use]
    pub const fn awaits_without_address(&self) -> bool {
        matches!(self.state, DhcpState::Selecting | DhcpState::Requesting | DhcpState::Rebooting)
    }

    const fn is_bound(&self) -> bool {
        matches!(self.state, DhcpState::Bound | DhcpState::Renewing | DhcpState::Rebinding)
    }

    /// Whether answers may come.
    #[must_use]
    pub const fn awaits(&self) -> bool {
        self.awaits_without_address()
            || matches!(self.state, DhcpState::Renewing | DhcpState::Rebinding)
    }

    /// The link is up: requests the previous address where that lease has not expired, else any.
    pub fn start(&mut self, now: Instant, random: &mut Randomness) {
        let lasts = self.lease.is_some_and(|lease| !lease.is_over(now));
        self.due.clear();
        (self.failures, self.began) = (0, now);
        self.enter(if lasts { DhcpState::Rebooting } else { DhcpState::Init }, random);
        self.wake = Some(now + below(START_WAIT, random));
    }

    /// The link is down: nothing is sent or accepted. The lease is remembered for
    /// [`DhcpClient::start`]; the caller has stopped using it.
    pub fn stop(&mut self) {
        self.due.clear();
        (self.state, self.wake) = (DhcpState::Stopped, None);
    }

    /// Releases the lease: an event to send the release, and, after it has had time to leave from
    /// its address, an event to remove the lease.
    pub fn release(&mut self, now: Instant) {
        self.due.clear();
        let bound = self.is_bound() && self.lease.is_some();
        if bound {
            self.due.push(NextStep::Send(Dhcpv4Type::RELEASE));
        }
        (self.state, self.wake) = (DhcpState::Stopped, bound.then(|| now + RELEASE_WAIT));
    }

    /// No other host uses the address.
    pub fn verified(&mut self, now: Instant) {
        if self.state == DhcpState::Verifying {
            self.bind(now);
        }
    }

    /// Another host uses the address, or it cannot be used: the server gets a DHCPDECLINE, and the
    /// client restarts after a delay.
    pub fn unusable(&mut self, now: Instant, random: &mut Randomness) {
        if let Some(lease) = self.lease
            && (self.state == DhcpState::Verifying || self.is_bound())
        {
            self.due.push(NextStep::Send(Dhcpv4Type::DECLINE));
            self.due.push(NextStep::Ended(lease.addr, LeaseEnd::Unusable));
            self.back_off(now, DECLINE_WAIT, random);
        }
    }

    /// Takes a message that came to port 68 from the address `from`. `is_ours` reports which
    /// addresses other local interfaces use.
    ///
    /// # Errors
    /// See [`LeaseRefused`]; nothing has changed then but the count.
    pub fn input(
        &mut self,
        bytes: &[u8],
        from: Ipv4Addr,
        now: Instant,
        random: &mut Randomness,
        is_ours: impl Fn(Ipv4Addr) -> bool,
    ) -> Result<(), LeaseRefused> {
        self.answer((bytes, from), now, random, is_ours).inspect_err(|refused| {
            self.refused += 1;
            self.last_refusal = Some(*refused);
        })
    }

    fn answer(
        &mut self,
        (bytes, from): (&[u8], Ipv4Addr),
        now: Instant,
        random: &mut Randomness,
        is_ours: impl Fn(Ipv4Addr) -> bool,
    ) -> Result<(), LeaseRefused> {
        if !self.awaits() {
            return Err(LeaseRefused::Unasked);
        }
        // Before anything is parsed: an answer to another client is recognised by its first bytes.
        let ours = bytes.get(4..8) == Some(&self.xid.to_be_bytes()[..])
            && bytes.get(28..34) == Some(&self.mac.0[..]);
        if !ours || bytes.first() != Some(&2) {
            return Err(LeaseRefused::NotOurs);
        }
        if bytes.len() > DHCP_MESSAGE_BYTES_MAX {
            return Err(LeaseRefused::TooLong);
        }
        let message = Dhcpv4Message::parse(bytes)?;
        let kind = message.kind().ok_or(LeaseRefused::Kind)?;
        match (self.state, kind) {
            (DhcpState::Selecting, Dhcpv4Type::OFFER) => {
                self.lease = Some(Lease::judge(&message, from, self.asked_at, is_ours)?);
                self.enter(DhcpState::Requesting, random);
                self.ask(now, random);
                Ok(())
            }
            (_, Dhcpv4Type::OFFER) => Err(LeaseRefused::Late),
            (DhcpState::Selecting, _) => Err(LeaseRefused::Kind),
            (_, Dhcpv4Type::ACK) => {
                let wanted = self.wanted(&message, from)?;
                if message.yiaddr() != wanted.addr {
                    return Err(LeaseRefused::AddressChanged(message.yiaddr()));
                }
                let is_others = |addr| !self.is_bound() && is_ours(addr);
                self.lease = Some(Lease::judge(&message, from, self.asked_at, is_others)?);
                self.acknowledged(now);
                Ok(())
            }
            (_, Dhcpv4Type::NAK) => {
                let wanted = self.wanted(&message, from)?;
                if self.is_bound() {
                    self.due.push(NextStep::Ended(wanted.addr, LeaseEnd::TakenBack));
                }
                self.lease = None;
                self.back_off(now, Duration::ZERO, random);
                Ok(())
            }
            _ => Err(LeaseRefused::Kind),
        }
    }

    /// The request that this message answers, if it comes from the requested server.
    fn wanted(&self, message: &Dhcpv4Message<'_>, from: Ipv4Addr) -> Result<Lease, LeaseRefused> {
        let lease = self.lease.ok_or(LeaseRefused::Unasked)?;
        let any = matches!(self.state, DhcpState::Rebooting | DhcpState::Rebinding);
        if any || server(message, from) == Some(lease.server) {
            Ok(lease)
        } else {
            Err(LeaseRefused::Server)
        }
    }

    fn acknowledged(&mut self, now: Instant) {
        if self.is_bound() {
            return self.bind(now);
        }
        (self.state, self.tries) = (DhcpState::Verifying, 0);
        self.wake = Some(now + VERIFY_MAX);
        self.due.push(NextStep::Verify);
    }

    fn bind(&mut self, now: Instant) {
        (self.state, self.tries, self.failures) = (DhcpState::Bound, 0, 0);
        self.wake = self.lease.and_then(|lease| lease.expires.map(|_| lease.renew_at.max(now)));
        self.due.push(NextStep::Bound);
    }

    /// The next thing to do, if there is one at `now`. To be called until there is none: after
    /// [`DhcpClient::input`], after what the caller has found out, and when
    /// [`DhcpClient::deadline`] has come.
    pub fn poll(&mut self, now: Instant, random: &mut Randomness) -> Option<DhcpEvent> {
        // A timer makes two events at most, and a state lasts at least half a second.
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

    /// When [`DhcpClient::poll`] must be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if self.due.is_empty() { self.wake } else { Some(Instant::ORIGIN) }
    }

    fn event(&mut self, due: NextStep, now: Instant) -> Option<DhcpEvent> {
        let lease = self.lease;
        Some(match due {
            NextStep::Send(kind) => DhcpEvent::Send(self.write(kind, now)),
            NextStep::Verify => DhcpEvent::Verify(lease?),
            NextStep::Bound => DhcpEvent::Bound(lease?),
            NextStep::Ended(addr, why) => {
                self.lease = None;
                DhcpEvent::Ended(addr, why)
            }
        })
    }

    /// A wait is over.
    fn timer(&mut self, now: Instant, random: &mut Randomness) {
        self.wake = None;
        match self.state {
            DhcpState::Stopped => {
                if let Some(lease) = self.lease {
                    self.due.push(NextStep::Ended(lease.addr, LeaseEnd::Released));
                }
            }
            DhcpState::Init => {
                (self.lease, self.began) = (None, now);
                self.enter(DhcpState::Selecting, random);
                self.ask(now, random);
            }
            DhcpState::Selecting => self.ask(now, random),
            DhcpState::Requesting if self.tries >= REQUESTS_MAX => {
                self.back_off(now, Duration::ZERO, random);
            }
            DhcpState::Rebooting if self.tries >= REBOOTS_MAX => {
                self.enter(DhcpState::Init, random);
                self.wake = Some(now);
            }
            DhcpState::Requesting | DhcpState::Rebooting => self.ask(now, random),
            DhcpState::Verifying => self.unusable(now, random),
            DhcpState::Bound | DhcpState::Renewing | DhcpState::Rebinding => {
                self.prolong(now, random);
            }
        }
    }

    /// Asks to extend the lease, or ends it.
    fn prolong(&mut self, now: Instant, random: &mut Randomness) {
        let Some(lease) = self.lease else { return };
        if lease.is_over(now) {
            self.due.push(NextStep::Ended(lease.addr, LeaseEnd::Expired));
            self.lease = None;
            return self.back_off(now, Duration::ZERO, random);
        }
        let rebinds = now >= lease.rebind_at;
        let next = if rebinds { DhcpState::Rebinding } else { DhcpState::Renewing };
        if next != self.state {
            self.enter(next, random);
        }
        self.due.push(NextStep::Send(Dhcpv4Type::REQUEST));
        // A server that answers late answers one of these: the lease counts from the first.
        if self.tries == 0 {
            self.asked_at = now;
        }
        self.tries += 1;
        let end = if rebinds { lease.expires.unwrap_or(Instant::FAR) } else { lease.rebind_at };
        let left = end - now;
        let least = RENEW_WAIT.min((end - lease.asked_at) / 16).max(Duration::from_secs(1));
        self.wake = Some((now + (left / 2).max(least)).min(end));
    }

    /// Sends this state's request once more, and returns when to retransmit.
    fn ask(&mut self, now: Instant, random: &mut Randomness) {
        let selecting = self.state == DhcpState::Selecting;
        let kind = if selecting { Dhcpv4Type::DISCOVER } else { Dhcpv4Type::REQUEST };
        self.due.push(NextStep::Send(kind));
        if self.tries == 0 || selecting {
            self.asked_at = now;
        }
        let wait = ANSWER_WAIT * (1 << self.tries.min(DOUBLINGS_MAX)) - Duration::from_secs(1);
        self.tries += 1;
        // Plus or minus a second (RFC 2131 section 4.1).
        self.wake = Some(now + wait + below(Duration::from_secs(2), random));
    }

    /// Enters another state; each request but the one that follows an offer gets a new transaction
    /// id.
    fn enter(&mut self, state: DhcpState, random: &mut Randomness) {
        (self.state, self.tries) = (state, 0);
        if state != DhcpState::Requesting {
            self.xid = random.secret.next_u32();
        }
    }

    /// Restarts with exponential backoff, `least` at least.
    fn back_off(&mut self, now: Instant, least: Duration, random: &mut Randomness) {
        let wait = Duration::from_secs(1 << self.failures.min(6)).min(BACK_OFF_MAX).max(least);
        self.failures = self.failures.saturating_add(1);
        (self.state, self.tries) = (DhcpState::Init, 0);
        self.wake = Some(now + wait + below(START_WAIT, random));
    }

    /// Writes a message of this kind for the present state.
    fn write(&self, kind: Dhcpv4Type, now: Instant) -> Transmission {
        let (addr, server) = match &self.lease {
            Some(lease) => (lease.addr, lease.server),
            None => (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED),
        };
        let released = kind == Dhcpv4Type::RELEASE;
        let prolongs = kind == Dhcpv4Type::REQUEST && self.is_bound();
        let owned = released || prolongs;
        let (none, broadcast) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
        let to_server = released || self.state == DhcpState::Renewing;
        let secs = (now - self.began).as_secs().min(u64::from(u16::MAX)) as u16;
        let fields = Dhcpv4Fields {
            is_reply: false,
            xid: self.xid,
            secs: if released || kind == Dhcpv4Type::DECLINE { 0 } else { secs },
            wants_broadcast: !owned && kind != Dhcpv4Type::DECLINE,
            ciaddr: if owned { addr } else { none },
            yiaddr: none,
            chaddr: self.mac,
        };
        let [a, b, c, d, e, f] = self.mac.0;
        let (client, addr_octets) = ([1, a, b, c, d, e, f], addr.octets());
        let (room, server_octets) =
            ((DHCP_MESSAGE_BYTES_MAX as u16).to_be_bytes(), server.octets());
        let kind_octet = [kind.0];
        let mut options: [(u8, &[u8]); 6] = [(0, &[]); 6];
        let mut given = options.iter_mut();
        let mut give = |code: u8, value| given.next().map(|slot| *slot = (code, value));
        give(option::MESSAGE_TYPE, &kind_octet[..]);
        give(option::CLIENT_ID, &client[..]);
        if !owned && kind != Dhcpv4Type::DISCOVER {
            give(option::REQUESTED_ADDR, &addr_octets[..]);
        }
        if released || kind == Dhcpv4Type::DECLINE || self.state == DhcpState::Requesting {
            give(option::SERVER_ID, &server_octets[..]);
        }
        if matches!(kind, Dhcpv4Type::DISCOVER | Dhcpv4Type::REQUEST) {
            give(option::MESSAGE_LEN_MAX, &room[..]);
            give(option::PARAMETERS, &REQUESTED_PARAMETERS[..]);
        }
        let mut bytes = [0; MESSAGE_ROOM];
        let given = options.iter().take_while(|(code, _)| *code != 0).count();
        let options = options.get(..given).unwrap_or_default();
        // There is room: the options of ours are few, and a test counts.
        let len = fields.emit_into(options, &mut bytes).unwrap_or(dhcpv4::FIXED_LEN);
        Transmission {
            src_addr: if owned { addr } else { none },
            dst_addr: if to_server { server } else { broadcast },
            bytes,
            len,
        }
    }
}

impl Lease {
    /// Whether its time is over.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }
}

/// A random time below `max`.
fn below(max: Duration, random: &mut Randomness) -> Duration {
    Duration::from_nanos(random.public.below(max.as_nanos() as u64))
}

#[cfg(test)]
mod tests;
