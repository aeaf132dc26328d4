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

use floodwall_base::{IfIndex, Instant, IpCidr, MacAddr, Units};
use floodwall_packet::{Burst, Engine, Round};
use floodwall_stack::tcp_set::{ConnectionId, RecvError, SendError, TcpSettings};
use floodwall_stack::{InterfaceConfig, LinkMedium, Sockets, Stack, StackConfig};

use crate::error::DrillError;
use crate::honest::{SentQuestion, TIMEOUT};
use crate::topology;

/// The request of a client of the echo service.
const LINE: &[u8] = b"hello from client\n";
/// The request of a web client: more than a segment in return.
const REQUEST: &[u8] = b"GET /bytes/2000 HTTP/1.1\r\nHost: drill\r\nConnection: close\r\n\r\n";
/// Bytes of that page.
const PAGE: usize = 2000;
/// The request of clients that then read nothing of the answer.
const GREEDY: &[u8] = b"GET /bytes/1000000 HTTP/1.1\r\nHost: drill\r\n\r\n";
/// True bytes that may wait for those: a segment's.
const NARROW: u32 = 2048;
/// Calls that may be under way.
const CALLS_MAX: usize = 4096;
/// The longest answer that is read, head included.
const ANSWER_MAX: usize = 4096;

/// What a client opens connections for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallPurpose {
    /// Honest: a line and its echo, and a page of the web server, in turn.
    Asks,
    /// Fills the queue of a service that accepts slowly.
    Holds,
    /// Requests much of the web server and reads nothing.
    Stalls,
    /// Is gone as soon as the connection is there, with a reset.
    Drops,
}

impl CallPurpose {
    /// The port of the service for the `n`th call, and the request.
    fn of(self, n: u64) -> (u16, &'static [u8]) {
        match self {
            Self::Asks if n % 2 == 1 => (topology::WEB_PORT, REQUEST),
            Self::Asks | Self::Drops => (topology::SERVICE_PORT, LINE),
            Self::Holds => (topology::SLOW_PORT, LINE),
            Self::Stalls => (topology::WEB_PORT, GREEDY),
        }
    }

    /// What its connections are like.
    fn settings(self) -> TcpSettings {
        let defaults = TcpSettings::default();
        match self {
            Self::Stalls => TcpSettings { receive_bytes: NARROW, receive_tuned: false, ..defaults },
            _ => defaults,
        }
    }
}

/// What callers of one stretch do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Calling {
    pub(crate) errand: CallPurpose,
    /// Calls a second, each family.
    pub(crate) rate: u64,
    /// For how long.
    pub(crate) length: Duration,
}

impl Calling {
    /// How many calls each family makes.
    fn count(&self) -> u64 {
        let count = self.length.as_nanos() * u128::from(self.rate) / 1_000_000_000;
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    /// When the `n`th call of a family is due; the families take turns.
    fn due(&self, started: Instant, family: usize, n: u64) -> Instant {
        let gap = 1_000_000_000 / self.rate.max(1);
        started + Duration::from_nanos(n * gap + family as u64 * gap / 2)
    }
}

/// One call.
struct TcpCall {
    id: ConnectionId,
    errand: CallPurpose,
    says: &'static [u8],
    family: usize,
    due: Instant,
    said: bool,
}

/// The TCP clients of one family, on a stack of their own.
pub(crate) struct Callers {
    stack: Stack,
    owner: u32,
    pub(crate) inbox: Burst,
    calling: Option<(Calling, Instant)>,
    begun: [u64; 2],
    calls: Vec<TcpCall>,
    heard: [SentQuestion; 2],
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
            owner,
            inbox: Burst::new(),
            calling: None,
            begun: [0; 2],
            calls: Vec::with_capacity(CALLS_MAX),
            heard: <[SentQuestion; 2]>::default(),
        })
    }

    /// Begins another stretch. Of the last one nothing is under way.
    pub(crate) fn begin(&mut self, calling: Option<(Calling, Instant)>) {
        (self.calling, self.begun) = (calling, [0; 2]);
        self.heard = <[SentQuestion; 2]>::default();
    }

    /// What became of the calls, by family.
    pub(crate) const fn heard(&self) -> &[SentQuestion; 2] {
        &self.heard
    }

    /// Whether every call has its echo or is lost.
    pub(crate) fn is_finished(&self) -> bool {
        let all = self.calling.is_none_or(|(it, _)| self.begun.iter().all(|n| *n >= it.count()));
        all && self.calls.is_empty()
    }

    /// What came for them.
    pub(crate) fn input(&mut self, round: &mut Round<'_>) -> Units {
        let spent = self.stack.round(round);
        self.call(round);
        spent
    }

    /// What is due.
    pub(crate) fn work(&mut self, round: &mut Round<'_>) -> Units {
        let spent = self.stack.work(round);
        self.call(round);
        spent.plus(Units(1))
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let next = self.calling.and_then(|(it, started)| {
            let due = self.begun.iter().enumerate().filter(|(_, n)| **n < it.count());
            due.map(|(family, n)| it.due(started, family, *n)).min()
        });
        let lost = self.calls.first().map(|call| call.due + TIMEOUT);
        [next, lost, self.stack.deadline()].into_iter().flatten().min()
    }

    fn call(&mut self, round: &mut Round<'_>) {
        let now = round.now;
        let mut sockets = self.stack.sockets(round);
        if let Some((it, started)) = self.calling {
            for (family, begun) in self.begun.iter_mut().enumerate() {
                while *begun < it.count() && it.due(started, family, *begun) <= now {
                    let due = it.due(started, family, *begun);
                    *begun += 1;
                    if let Some(heard) = self.heard.get_mut(family) {
                        heard.asked += 1;
                    }
                    let to = topology::FAMILIES.get(family).map(|f| topology::server_addr(*f));
                    let (Some(ip), (port, says)) = (to, it.errand.of(*begun)) else { continue };
                    let (to, settings) = (SocketAddr::new(ip, port), it.errand.settings());
                    if let Ok(id) = sockets.tcp_connect(to, &settings, self.owner) {
                        let errand = it.errand;
                        self.calls.push(TcpCall { id, errand, says, family, due, said: false });
                    }
                }
            }
        }
        while let Some((id, _)) = sockets.tcp_event(self.owner) {
            let Some(at) = self.calls.iter().position(|call| call.id == id) else { continue };
            let Some(call) = self.calls.get_mut(at) else { continue };
            if let Some(answered) = talk(&mut sockets, call) {
                let TcpCall { family, due, .. } = self.calls.swap_remove(at);
                if let Some(heard) = self.heard.get_mut(family).filter(|_| answered) {
                    heard.answered += 1;
                    heard.latency.record(now.saturating_since(due));
                }
            }
        }
        self.calls.retain(|call| {
            let lost = now >= call.due + TIMEOUT;
            if lost {
                let _ = sockets.tcp_abort(call.id);
            }
            !lost
        });
        // The first is the oldest, for the deadline.
        self.calls.sort_unstable_by_key(|call| call.due);
    }
}

/// Takes a call as far as it goes now: `None` if it goes on, else whether it came off.
fn talk(sockets: &mut Sockets<'_>, call: &mut TcpCall) -> Option<bool> {
    if !call.said {
        match sockets.tcp_send(call.id, call.says) {
            Ok(n) if n == call.says.len() => call.said = true,
            Ok(_) | Err(SendError::WouldBlock) => return None,
            Err(_) => return end(sockets, call.id, false),
        }
    }
    match call.errand {
        CallPurpose::Asks => {}
        CallPurpose::Holds | CallPurpose::Stalls => return None,
        CallPurpose::Drops => return end(sockets, call.id, false),
    }
    let mut room = [0; ANSWER_MAX];
    match sockets.tcp_peek(call.id, &mut room) {
        Ok(0) => end(sockets, call.id, false),
        Ok(n) => {
            let said = room.get(..n).unwrap_or_default();
            let right = if call.says == LINE { is_echo(said) } else { is_page(said) };
            right.and_then(|right| end(sockets, call.id, right))
        }
        Err(RecvError::WouldBlock) => None,
        Err(_) => end(sockets, call.id, false),
    }
}

/// Whether the answer is the echo; `None` while it may become that.
fn is_echo(answer: &[u8]) -> Option<bool> {
    let right = LINE.starts_with(answer);
    (!right || answer.len() == LINE.len()).then_some(right)
}

/// Whether this is the requested page, whole, each byte what it should be; `None` while it may
/// become that.
fn is_page(answer: &[u8]) -> Option<bool> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = answer.split_at_checked(end + 4)?;
    let right = head.starts_with(b"HTTP/1.1 200 ")
        && body.iter().enumerate().all(|(at, byte)| *byte == b' ' + (at % 95) as u8);
    (!right || body.len() >= PAGE).then_some(right && body.len() == PAGE)
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

/// What came is for their interface.
pub(crate) fn arrived(inbox: &mut Burst) {
    inbox.iter_mut().for_each(|packet| packet.set_iface(IfIndex(1)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_judged_by_every_byte_and_not_before_it_is_whole() {
        let body: Vec<u8> = (0..PAGE).map(|at| b' ' + (at % 95) as u8).collect();
        let page = [&b"HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n"[..], &body].concat();
        assert!((0..page.len()).all(|n| is_page(&page[..n]).is_none()));
        assert_eq!(is_page(&page), Some(true));
        assert_eq!(is_page(&[&page[..], b"!"].concat()), Some(false));
        let mut wrong = page;
        wrong[1000] ^= 1;
        assert_eq!(is_page(&wrong), Some(false));
        assert_eq!(is_page(b"HTTP/1.1 404 Not Found\r\n\r\n"), Some(false));
        assert_eq!(is_echo(LINE), Some(true));
        assert_eq!(is_echo(&LINE[..3]), None);
        assert_eq!(is_echo(b"it"), Some(false));
    }
}
