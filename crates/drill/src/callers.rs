//! The honest clients that open TCP connections, and those who open some only to fill a queue.
//!
//! A stack of its own, as any client's would be, that lives at the crowd's end of the cable: one
//! connection for each call, on a schedule, a line, its echo, and the end. Made by `crowd.rs`, told
//! anew for each stretch. Invariant: latency counts from the moment at which a call was meant to
//! begin until the echo is read, whole handshake included, and a stretch is over when each call has
//! its echo or is lost.

use core::time::Duration;

use floodwall_base::{IfIndex, Instant, IpCidr, MacAddr, Units};
use floodwall_packet::{Burst, Engine, Round};
use floodwall_stack::tcp_set::{ConnectionId, RecvError, Settings};
use floodwall_stack::{InterfaceConfig, LinkMedium, Sockets, Stack, StackConfig};

use crate::error::DrillError;
use crate::honest::{Asked, TIMEOUT};
use crate::scene;

/// What a client says.
const LINE: &[u8] = b"is anybody there?\n";
/// Calls that may be under way.
const CALLS_MAX: usize = 4096;

/// What callers of one stretch do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Calling {
    /// Calls a second, each family.
    pub(crate) rate: u64,
    /// For how long.
    pub(crate) length: Duration,
    /// Where the service listens.
    pub(crate) port: u16,
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
struct Call {
    id: ConnectionId,
    family: usize,
    due: Instant,
    said: bool,
}

/// See the file's head.
pub(crate) struct Callers {
    stack: Stack,
    owner: u32,
    pub(crate) inbox: Burst,
    calling: Option<(Calling, Instant)>,
    begun: [u64; 2],
    calls: Vec<Call>,
    heard: [Asked; 2],
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
            heard: <[Asked; 2]>::default(),
        })
    }

    /// Begins another stretch. Of the last one nothing is under way.
    pub(crate) fn begin(&mut self, calling: Option<(Calling, Instant)>) {
        (self.calling, self.begun) = (calling, [0; 2]);
        self.heard = <[Asked; 2]>::default();
    }

    /// What became of the calls, by family.
    pub(crate) const fn heard(&self) -> &[Asked; 2] {
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
                    let to = scene::FAMILIES.get(family).map(|f| scene::server_addr(*f));
                    let Some(to) = to.map(|ip| core::net::SocketAddr::new(ip, it.port)) else {
                        continue;
                    };
                    if let Ok(id) = sockets.tcp_connect(to, &Settings::default(), self.owner) {
                        self.calls.push(Call { id, family, due, said: false });
                    }
                }
            }
        }
        while let Some((id, _)) = sockets.tcp_event(self.owner) {
            let Some(at) = self.calls.iter().position(|call| call.id == id) else { continue };
            let Some(call) = self.calls.get_mut(at) else { continue };
            if let Some(answered) = talk(&mut sockets, call) {
                let Call { family, due, .. } = self.calls.swap_remove(at);
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
fn talk(sockets: &mut Sockets<'_>, call: &mut Call) -> Option<bool> {
    if !call.said {
        match sockets.tcp_send(call.id, LINE) {
            Ok(n) if n == LINE.len() => call.said = true,
            Ok(_) | Err(floodwall_stack::tcp_set::SendError::WouldBlock) => return None,
            Err(_) => return end(sockets, call.id, false),
        }
    }
    let mut echo = [0; LINE.len()];
    match sockets.tcp_peek(call.id, &mut echo) {
        Ok(n) if n == LINE.len() => {
            let _ = sockets.tcp_recv(call.id, &mut echo);
            end(sockets, call.id, echo == LINE)
        }
        Ok(0) => end(sockets, call.id, false),
        Ok(_) | Err(RecvError::WouldBlock) => None,
        Err(_) => end(sockets, call.id, false),
    }
}

fn end(sockets: &mut Sockets<'_>, id: ConnectionId, answered: bool) -> Option<bool> {
    let _ = if answered { sockets.tcp_close(id) } else { sockets.tcp_abort(id) };
    Some(answered)
}

/// What came is for their interface.
pub(crate) fn arrived(inbox: &mut Burst) {
    inbox.iter_mut().for_each(|packet| packet.set_iface(IfIndex(1)));
}
