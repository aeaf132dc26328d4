//! TCP clients: honest clients of the echo service and of the web server, and attackers with
//! connections of their own ([`CallPurpose`]).
//!
//! A stack of its own, as any client's would be, at the crowd's end of the cable: one connection
//! for each call, on a schedule; what it sends, the answer, and the end. Made by `traffic.rs`,
//! configured anew for each stretch. Invariant: latency counts from the moment at which a call was
//! meant to begin until the answer is read, whole handshake included, and a stretch is over when
//! each call is answered or lost.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use floodwall_base::{IfIndex, Instant, IpCidr, MacAddr, Units, limits};
use floodwall_packet::{AccessCounters, Burst, Engine, PacketBuf, Round};
use floodwall_stack::tcp_set::{ConnectionId, RecvError, SendError, TcpSettings, TcpState};
use floodwall_stack::{InterfaceConfig, LinkMedium, Sockets, Stack, StackConfig};
use floodwall_wire::tcp::{TcpFlags, TcpHeader};
use floodwall_wire::{IpProtocol, Ipv4Header, Ipv6Header, ethernet};

use crate::callers::replays::{REPLAYS_PER_SECOND, Replays};
use crate::error::DrillError;
use crate::honest::{ANSWER_TIMEOUT, SentQuestion};
use crate::server::TCP_CONNECTIONS;
use crate::topology;
use crate::traffic::with;

mod replays;

/// The request of a client of the echo service.
const ECHO_LINE: &[u8] = b"hello from client\n";
/// The request of a web client: more than a segment in return.
const PAGE_REQUEST: &[u8] = b"GET /bytes/2000 HTTP/1.1\r\nHost: drill\r\nConnection: close\r\n\r\n";
/// Bytes of that page.
const PAGE_BYTES: usize = 2000;
/// The request of honest clients with a long round trip, and how much it gives.
const FETCH_REQUEST: &[u8] =
    b"GET /bytes/200000 HTTP/1.1\r\nHost: drill\r\nConnection: close\r\n\r\n";
const FETCH_BYTES: usize = 200_000;
/// How long what is sent to them takes, and how many come a second, of each family, at most.
const FETCH_DELAY: Duration = Duration::from_millis(20);
const FETCHES_PER_SECOND: u64 = 20;
/// The request of clients that then read nothing of the answer.
const GREEDY_REQUEST: &[u8] = b"GET /bytes/1000000 HTTP/1.1\r\nHost: drill\r\n\r\n";
/// The shortest requests, of which clients send as many as they can.
const HEAD_REQUESTS: &[u8] =
    b"HEAD / HTTP/1.1\r\n\r\nHEAD / HTTP/1.1\r\n\r\nHEAD / HTTP/1.1\r\n\r\n";
/// A head that is sent byte by byte, again and again: it has no end.
const BEGUN_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nX: ";
/// True bytes that may wait for those: a segment's.
const NARROW_BUFFER: u32 = 2048;
/// What a slow reader takes at a time, and how often.
const SLOW_READS: (usize, Duration) = (2900, Duration::from_millis(80));
/// How often clients send that send without end.
const ENDLESS_SEND_INTERVAL: Duration = Duration::from_millis(1);
/// Writes of requests that such a client makes at a time.
const ENDLESS_WRITES: usize = 16;
/// So many attackers go at a time, and how often.
const ATTACKERS_LEAVE: (usize, Duration) = (32, Duration::from_micros(200));
/// Calls that may be under way.
const CALLS_MAX: usize = 5 * TCP_CONNECTIONS;
/// Bytes of a packet that are looked at for its headers.
const HEADER_BYTES: usize = 128;
/// The longest answer that is read, head included.
const ANSWER_MAX: usize = 4096;

/// What a client opens connections for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallPurpose {
    /// Honest: a line and its echo, and a page of the web server, in turn.
    Asks,
    /// Honest: a large page over a long round trip.
    Fetches,
    /// Fills the queue of a service that accepts slowly.
    Holds,
    /// Requests much of the web server and reads nothing.
    Stalls,
    /// Is gone as soon as the connection is there, with a reset.
    Drops,
    /// Takes its answer, behind which the server closes, and never closes (FIN-WAIT-2).
    Takes,
    /// Takes its answer, and never acknowledges the FIN behind it (FIN-WAIT-1); every other one has
    /// closed before (LAST-ACK).
    Leaves,
    /// Sends nothing, to two services.
    Idles,
    /// Requests much and takes a little of it all the time.
    Drips,
    /// Sends requests back to back.
    Pipelines,
    /// Sends a request byte by byte.
    Trickles,
    /// Sends a line, and its frame again and again, beside those that ask.
    Replays,
    /// The same beside those that fetch.
    ReplaysBesideFetches,
}

impl CallPurpose {
    /// The port of the service for the `n`th call, and the request.
    fn of(self, n: u64) -> (u16, &'static [u8]) {
        match self {
            Self::Asks if n % 2 == 1 => (topology::WEB_PORT, PAGE_REQUEST),
            Self::Asks | Self::Drops | Self::Replays | Self::ReplaysBesideFetches => {
                (topology::SERVICE_PORT, ECHO_LINE)
            }
            Self::Fetches => (topology::WEB_PORT, FETCH_REQUEST),
            Self::Holds => (topology::SLOW_PORT, ECHO_LINE),
            Self::Stalls | Self::Drips => (topology::WEB_PORT, GREEDY_REQUEST),
            Self::Takes | Self::Leaves => (topology::WEB_PORT, PAGE_REQUEST),
            Self::Idles if n % 2 == 1 => (topology::WEB_PORT, b""),
            Self::Idles => (topology::SERVICE_PORT, b""),
            Self::Pipelines => (topology::WEB_PORT, HEAD_REQUESTS),
            Self::Trickles => (topology::WEB_PORT, BEGUN_REQUEST),
        }
    }

    /// How many connections an attack takes, where that does not depend on its length: those with
    /// which few real connections have shut out or slowed the rest.
    const fn connections(self) -> Option<u64> {
        match self {
            Self::Takes | Self::Leaves | Self::Idles => Some(TCP_CONNECTIONS as u64 * 11 / 10),
            Self::Drips => Some(64),
            Self::Pipelines => Some(20),
            Self::Trickles => Some(50),
            Self::Replays | Self::ReplaysBesideFetches => Some(topology::FAMILIES.len() as u64),
            Self::Asks | Self::Fetches | Self::Holds | Self::Stalls | Self::Drops => None,
        }
    }

    /// Honest calls beside this attack, of which so many a second are usual: where memory is the
    /// aim, those that need some.
    pub(crate) fn victims(self, rate: u64, length: Duration) -> Calling {
        match self {
            Self::Drips | Self::ReplaysBesideFetches => {
                Calling::per_second(Self::Fetches, rate.min(FETCHES_PER_SECOND), length)
            }
            _ => Calling::per_second(Self::Asks, rate, length),
        }
    }

    /// Whether an attacker sends its frame again.
    pub(crate) const fn is_replay(self) -> bool {
        matches!(self, Self::Replays | Self::ReplaysBesideFetches)
    }

    /// How often a connection of it does something, independent of what happens on it.
    const fn every(self) -> Option<Duration> {
        match self {
            Self::Drips => Some(SLOW_READS.1),
            Self::Pipelines | Self::Trickles => Some(ENDLESS_SEND_INTERVAL),
            _ => None,
        }
    }

    /// Calls of an attack of that length, at so many times its price; as often as questions are
    /// sent where its number is not given.
    pub(crate) fn attack(self, price: u64, rate: u64, length: Duration) -> Calling {
        let Some(connections) = self.connections() else {
            return Calling::per_second(self, rate * price, length);
        };
        // Replays are more by their rate.
        let many = if self.is_replay() { 1 } else { price };
        let count = (connections * many / topology::FAMILIES.len() as u64).max(1);
        // Those that are few are all there soon; places are taken in the first half.
        let is_soon = self.every().is_some() || self.is_replay();
        let within = if is_soon { length / 10 } else { length / 2 };
        let gap = within / u32::try_from(count).unwrap_or(u32::MAX);
        Calling { purpose: self, price, count, gap, length }
    }

    /// What its connections are like.
    fn settings(self) -> TcpSettings {
        let defaults = TcpSettings::default();
        match self {
            Self::Stalls => {
                TcpSettings { receive_bytes: NARROW_BUFFER, receive_tuned: false, ..defaults }
            }
            Self::Drips => {
                TcpSettings { receive_bytes: 4 * NARROW_BUFFER, receive_tuned: false, ..defaults }
            }
            Self::Trickles => TcpSettings { nodelay: true, ..defaults },
            _ => defaults,
        }
    }
}

/// What callers of one stretch do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Calling {
    pub(crate) purpose: CallPurpose,
    /// At how many times its price an attack comes.
    price: u64,
    /// Calls of each family.
    count: u64,
    /// Time between two of them.
    gap: Duration,
    /// For how long.
    length: Duration,
}

impl Calling {
    /// So many calls a second of each family.
    pub(crate) fn per_second(purpose: CallPurpose, rate: u64, length: Duration) -> Self {
        let count = length.as_nanos() * u128::from(rate) / 1_000_000_000;
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let gap = Duration::from_nanos(1_000_000_000 / rate.max(1));
        Self { purpose, price: 1, count, gap, length }
    }

    /// When the `n`th call of a family is due; the families take turns.
    fn due(&self, started: Instant, family: usize, n: u64) -> Instant {
        let gap = self.gap.as_nanos() as u64;
        started + Duration::from_nanos(n * gap + family as u64 * gap / 2)
    }

    /// When a call that was due then is given up. Attackers that take places hold them until each
    /// honest call is over ([`Callers::leave`]), so that none is answered because they have gone.
    fn lost(&self, started: Instant, due: Instant) -> Instant {
        match self.purpose {
            CallPurpose::Asks | CallPurpose::Fetches => due + ANSWER_TIMEOUT,
            it if it.connections().is_some() => started + self.length + ANSWER_TIMEOUT,
            _ => (started + self.length).max(due).min(due + ANSWER_TIMEOUT),
        }
    }
}

/// One call.
struct TcpCall {
    id: ConnectionId,
    purpose: CallPurpose,
    says: &'static [u8],
    family: usize,
    due: Instant,
    lost: Instant,
    said: bool,
    /// Bytes of the answer that were read, where they are not kept.
    got: usize,
    /// It closes behind its request.
    closes: bool,
    /// When it does something next, where that is a matter of time.
    next: Instant,
}

/// The TCP clients of one family, on a stack of their own.
pub(crate) struct Callers {
    stack: Stack,
    mac: MacAddr,
    owner: u32,
    pub(crate) inbox: Burst,
    calling: Option<(Calling, Instant)>,
    begun: [u64; 2],
    /// The stretch is over.
    is_late: bool,
    /// When some more attackers go.
    leaves: Option<Instant>,
    calls: Vec<TcpCall>,
    heard: [SentQuestion; 2],
    /// What arrives later, where the round trip is long.
    delayed: VecDeque<(Instant, PacketBuf)>,
    replays: Option<Replays>,
}

impl Callers {
    /// A host with this link address, and with this one for each family.
    pub(crate) fn new(
        mac: MacAddr,
        addresses: Vec<IpCidr>,
        round: &mut Round<'_>,
    ) -> Result<Self, DrillError> {
        let config = StackConfig {
            interfaces: vec![InterfaceConfig {
                name: "caller0".to_owned(),
                medium: LinkMedium::Ethernet(mac),
                mtu: 1500,
                addresses,
                ..InterfaceConfig::default()
            }],
            udp_sockets_max: 0,
            tcp_connections_max: CALLS_MAX,
            duplicate_address_detection: false,
            ..StackConfig::default()
        };
        let made = Stack::new(&config, round.random, round.now);
        let mut stack = made.map_err(|error| DrillError::Host(error.into()))?;
        // It is Linux's default too, and the link is the drill's.
        let owner = stack.sockets(round).tcp_owner().unwrap_or(0);
        Ok(Self {
            stack,
            mac,
            owner,
            inbox: Burst::new(),
            calling: None,
            begun: [0; 2],
            is_late: false,
            leaves: None,
            calls: Vec::with_capacity(CALLS_MAX),
            heard: <[SentQuestion; 2]>::default(),
            delayed: VecDeque::new(),
            replays: None,
        })
    }

    /// Begins another stretch. Of the last one nothing is under way.
    pub(crate) fn begin(&mut self, calling: Option<(Calling, Instant)>) {
        (self.calling, self.begun, self.is_late) = (calling, [0; 2], false);
        self.leaves = None;
        self.heard = <[SentQuestion; 2]>::default();
        let calling = calling.map(|(it, _)| it).filter(|it| it.purpose.is_replay());
        self.replays = calling.map(|it| Replays::new(it.price * REPLAYS_PER_SECOND, it.length));
    }

    /// Holds frames that are sent again back, or lets them go on.
    pub(crate) const fn hold(&mut self, held: bool) {
        if let Some(replays) = &mut self.replays {
            replays.hold(held);
        }
    }

    /// Frames that were sent again.
    pub(crate) fn replayed(&self) -> u64 {
        self.replays.as_ref().map_or(0, Replays::sent)
    }

    /// What became of the calls, by family.
    pub(crate) const fn heard(&self) -> &[SentQuestion; 2] {
        &self.heard
    }

    /// Whether every call has its echo or is lost.
    pub(crate) fn is_finished(&self) -> bool {
        let all = self.calling.is_none_or(|(it, _)| self.begun.iter().all(|n| *n >= it.count));
        all && self.calls.is_empty()
    }

    /// The honest calls are over: attackers go, some at a time, so that none of their resets is
    /// lost; unless their stretch is not over.
    pub(crate) fn leave(&mut self, round: &mut Round<'_>) {
        let is_due = self.leaves.is_none_or(|at| at <= round.now) && self.is_late;
        if self.calls.is_empty() || !is_due {
            return;
        }
        self.leaves = Some(round.now + ATTACKERS_LEAVE.1);
        let mut sockets = self.stack.sockets(round);
        for call in self.calls.drain(..ATTACKERS_LEAVE.0.min(self.calls.len())) {
            let _ = sockets.tcp_abort(call.id);
        }
    }

    /// When the stretch is over.
    fn ends(&self) -> Option<Instant> {
        self.calling.map(|(it, started)| started + it.length)
    }

    /// What came for them. Those that never acknowledge a FIN do not see it.
    pub(crate) fn input(&mut self, round: &mut Round<'_>) -> Units {
        let purpose = self.calling.map(|(it, _)| it.purpose);
        if purpose == Some(CallPurpose::Leaves) {
            round.arrived.sort_out(0, |packet| (!has_fin(&packet)).then_some(packet));
        }
        if purpose == Some(CallPurpose::Fetches) {
            let due = round.now + FETCH_DELAY;
            self.delayed.extend(round.arrived.drain().map(|packet| (due, packet)));
        }
        let spent = self.stack.round(round);
        self.call(round);
        if let Some(replays) = &mut self.replays {
            replays.keep(round, self.mac.0, ECHO_LINE);
        }
        spent
    }

    /// What is due.
    pub(crate) fn work(&mut self, round: &mut Round<'_>) -> Units {
        let mut spent = self.stack.work(round);
        let mut due = Burst::new();
        while due.len() < limits::BURST_MAX
            && let Some((_, packet)) = self.delayed.pop_front_if(|(at, _)| *at <= round.now)
        {
            let _ = due.push(packet);
        }
        if !due.is_empty() {
            spent = spent.plus(self.stack.round(&mut with(round, &mut due)));
        }
        self.call(round);
        if let Some(replays) = &mut self.replays {
            replays.keep(round, self.mac.0, ECHO_LINE);
            replays.send(round);
        }
        spent.plus(Units(1))
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let next = self.calling.and_then(|(it, started)| {
            let due = self.begun.iter().enumerate().filter(|(_, n)| **n < it.count);
            due.map(|(family, n)| it.due(started, family, *n)).min()
        });
        let lost = self.calls.first().map(|call| call.lost);
        let acts = self.acts_by_time().then(|| self.calls.iter().map(|call| call.next).min());
        // Then they go, where the honest calls are over; the time of those that have not is passed.
        let ends = if self.is_late { self.leaves } else { self.ends() };
        let ends = ends.filter(|_| !self.calls.is_empty());
        let arrives = self.delayed.front().map(|(at, _)| *at);
        let stack = self.stack.deadline();
        let replays = self.replays.as_ref().and_then(Replays::deadline);
        [next, lost, acts.flatten(), ends, arrives, stack, replays].into_iter().flatten().min()
    }

    fn acts_by_time(&self) -> bool {
        self.calling.is_some_and(|(it, _)| it.purpose.every().is_some())
    }

    fn call(&mut self, round: &mut Round<'_>) {
        let now = round.now;
        self.is_late = self.ends().is_some_and(|end| end <= now);
        let mut sockets = self.stack.sockets(round);
        if let Some((it, started)) = self.calling {
            for (family, begun) in self.begun.iter_mut().enumerate() {
                while *begun < it.count && it.due(started, family, *begun) <= now {
                    let due = it.due(started, family, *begun);
                    *begun += 1;
                    if let Some(heard) = self.heard.get_mut(family) {
                        heard.asked += 1;
                    }
                    let addr = match it.purpose {
                        CallPurpose::Asks | CallPurpose::Fetches => topology::server_addr,
                        _ => topology::attacked_addr,
                    };
                    let to = topology::FAMILIES.get(family).map(|f| addr(*f));
                    let (Some(ip), (port, says)) = (to, it.purpose.of(*begun)) else { continue };
                    let (to, settings) = (SocketAddr::new(ip, port), it.purpose.settings());
                    if let Ok(id) = sockets.tcp_connect(to, &settings, self.owner) {
                        let (purpose, lost) = (it.purpose, it.lost(started, due));
                        let (said, next) = (false, now);
                        let closes = purpose == CallPurpose::Leaves && *begun % 2 == 0;
                        self.calls.push(TcpCall {
                            id,
                            purpose,
                            says,
                            family,
                            due,
                            lost,
                            said,
                            got: 0,
                            closes,
                            next,
                        });
                    }
                }
            }
        }
        while let Some((id, _)) = sockets.tcp_event(self.owner) {
            let Some(at) = self.calls.iter().position(|call| call.id == id) else { continue };
            let Some(call) = self.calls.get_mut(at) else { continue };
            if let Some(answered) = talk(&mut sockets, call) {
                let TcpCall { family, due, .. } = self.calls.remove(at);
                if let Some(heard) = self.heard.get_mut(family).filter(|_| answered) {
                    heard.answered += 1;
                    heard.latency.record(now.saturating_since(due));
                }
            }
        }
        if let Some(every) = self.calling.and_then(|(it, _)| it.purpose.every()) {
            for call in self.calls.iter_mut().filter(|call| call.next <= now) {
                call.next = now + every;
                act(&mut sockets, call);
            }
        }
        // The first is lost first.
        if self.calls.first().is_some_and(|call| call.lost <= now) {
            self.calls.retain(|call| {
                let lost = now >= call.lost;
                if lost {
                    let _ = sockets.tcp_abort(call.id);
                }
                !lost
            });
        }
    }
}

/// What an attacker does without being asked, where its connection is there.
fn act(sockets: &mut Sockets<'_>, call: &TcpCall) {
    if !call.said {
        return;
    }
    match call.purpose {
        CallPurpose::Drips => _ = sockets.tcp_recv(call.id, &mut [0; SLOW_READS.0]),
        CallPurpose::Trickles => _ = sockets.tcp_send(call.id, b"x"),
        CallPurpose::Pipelines => {
            let _ = sockets.tcp_recv(call.id, &mut [0; ANSWER_MAX]);
            // Where a request is cut, the next one begins in the middle of it: refused in the end.
            for _ in 0..ENDLESS_WRITES {
                if !sockets.tcp_send(call.id, HEAD_REQUESTS).is_ok_and(|n| n == HEAD_REQUESTS.len())
                {
                    break;
                }
            }
        }
        _ => {}
    }
}

/// Takes a call as far as it goes now: `None` if it goes on, else whether it came off.
fn talk(sockets: &mut Sockets<'_>, call: &mut TcpCall) -> Option<bool> {
    if !call.said {
        match sockets.tcp_send(call.id, call.says) {
            Ok(n) if n == call.says.len() => {
                call.said = true;
                if call.closes {
                    let _ = sockets.tcp_shutdown(call.id);
                }
            }
            Ok(_) | Err(SendError::WouldBlock) => return None,
            Err(_) => return end(sockets, call.id, false),
        }
    }
    match call.purpose {
        CallPurpose::Asks => {}
        CallPurpose::Fetches => return fetch(sockets, call),
        CallPurpose::Drops => return end(sockets, call.id, false),
        // It reads, and keeps its half open.
        CallPurpose::Takes | CallPurpose::Leaves => {
            return match sockets.tcp_recv(call.id, &mut [0; ANSWER_MAX]) {
                Ok(_) | Err(RecvError::WouldBlock) => None,
                Err(_) => end(sockets, call.id, false),
            };
        }
        _ if sockets.tcp_state(call.id).is_ok_and(|state| state == TcpState::Closed) => {
            return end(sockets, call.id, false);
        }
        _ => return None,
    }
    let mut room = [0; ANSWER_MAX];
    match sockets.tcp_peek(call.id, &mut room) {
        Ok(0) => end(sockets, call.id, false),
        Ok(n) => {
            let said = room.get(..n).unwrap_or_default();
            let right = if call.says == ECHO_LINE { is_echo(said) } else { is_page(said) };
            right.and_then(|right| end(sockets, call.id, right))
        }
        Err(RecvError::WouldBlock) => None,
        Err(_) => end(sockets, call.id, false),
    }
}

/// Reads what is there of a large page.
fn fetch(sockets: &mut Sockets<'_>, call: &mut TcpCall) -> Option<bool> {
    loop {
        match sockets.tcp_recv(call.id, &mut [0; ANSWER_MAX]) {
            Ok(0) => return end(sockets, call.id, call.got > FETCH_BYTES),
            Ok(n) => call.got += n,
            Err(RecvError::WouldBlock) => return None,
            Err(_) => return end(sockets, call.id, false),
        }
    }
}

/// Whether the answer is the echo; `None` while it may become that.
fn is_echo(answer: &[u8]) -> Option<bool> {
    let right = ECHO_LINE.starts_with(answer);
    (!right || answer.len() == ECHO_LINE.len()).then_some(right)
}

/// Whether this is the requested page, whole, each byte what it should be; `None` while it may
/// become that.
fn is_page(answer: &[u8]) -> Option<bool> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = answer.split_at_checked(end + 4)?;
    let right = head.starts_with(b"HTTP/1.1 200 ")
        && body.iter().enumerate().all(|(at, byte)| *byte == b' ' + (at % 95) as u8);
    (!right || body.len() >= PAGE_BYTES).then_some(right && body.len() == PAGE_BYTES)
}

/// Ends a call: what came is read, so that the end is not taken for a reset (RFC 2525 2.17).
fn end(sockets: &mut Sockets<'_>, id: ConnectionId, answered: bool) -> Option<bool> {
    if answered {
        let _ = sockets.tcp_recv(id, &mut [0; ANSWER_MAX]);
        let _ = sockets.tcp_close(id);
    } else {
        let _ = sockets.tcp_abort(id);
    }
    Some(answered)
}

/// Whether a packet is a TCP segment with FIN. One that is not as long as it says is not.
fn has_fin(packet: &PacketBuf) -> bool {
    let (mut scratch, mut access) = ([0; HEADER_BYTES], AccessCounters::default());
    let bytes = packet.header(0, packet.len().min(HEADER_BYTES), &mut scratch, &mut access);
    let Some(bytes) = bytes.and_then(|bytes| bytes.get(ethernet::HEADER_LEN..)) else {
        return false;
    };
    let available = packet.len() - ethernet::HEADER_LEN;
    let (protocol, at) = match Ipv4Header::parse(bytes, available) {
        Ok(ip) => (ip.protocol(), ip.header_len()),
        Err(_) => match Ipv6Header::parse(bytes, available) {
            Ok(ip) => (ip.next_header(), ip.header_len()),
            Err(_) => return false,
        },
    };
    let segment = bytes.get(at..).filter(|_| protocol == IpProtocol::TCP).unwrap_or_default();
    TcpHeader::parse(segment, available - at.min(available))
        .is_ok_and(|tcp| tcp.flags().contains(TcpFlags::FIN))
}

/// What came is for their interface.
pub(crate) fn arrived(inbox: &mut Burst) {
    inbox.iter_mut().for_each(|packet| packet.set_iface(IfIndex(1)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_judged_by_every_byte_and_not_before_it_is_whole() {
        let body: Vec<u8> = (0..PAGE_BYTES).map(|at| b' ' + (at % 95) as u8).collect();
        let page = [&b"HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n"[..], &body].concat();
        assert!((0..page.len()).all(|n| is_page(&page[..n]).is_none()));
        assert_eq!(is_page(&page), Some(true));
        assert_eq!(is_page(&[&page[..], b"!"].concat()), Some(false));
        let mut wrong = page;
        wrong[1000] ^= 1;
        assert_eq!(is_page(&wrong), Some(false));
        assert_eq!(is_page(b"HTTP/1.1 404 Not Found\r\n\r\n"), Some(false));
        assert_eq!(is_echo(ECHO_LINE), Some(true));
        assert_eq!(is_echo(&ECHO_LINE[..3]), None);
        assert_eq!(is_echo(b"it"), Some(false));
    }
}
