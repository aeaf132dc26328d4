//! The section of `stat` about TCP listeners and the SYN cache behind them.
//!
//! Queried at each worker: every worker has its own listeners of the same ports, and their counts
//! are added up here. Invariant: nothing is left out where workers differ; a listener on one worker
//! only has a line all the same.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use floodwall_stack::Stack;
use serde::{Deserialize, Serialize};

/// One listener, over all workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListenerSettings {
    pub(crate) local: SocketAddr,
    /// Connections that may wait to be accepted, of all workers together.
    pub(crate) backlog: usize,
    pub(crate) half_open: u64,
    /// Connections that wait to be accepted now.
    pub(crate) waiting: u64,
    /// Handshakes that the cache knew.
    pub(crate) cache_hits: u64,
    pub(crate) cookies_sent: u64,
    pub(crate) cookies_valid: u64,
    pub(crate) refused: u64,
    /// Pauses in which it answered by cookies alone.
    pub(crate) cookie_only: u64,
}

/// One UDP socket, over all workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UdpReport {
    pub(crate) local: SocketAddr,
    /// Datagrams taken since it was opened.
    #[serde(default)]
    pub(crate) taken: u64,
    /// Datagrams that wait to be read, and their true bytes.
    pub(crate) waiting: u64,
    pub(crate) charged: u64,
    /// Datagrams refused: by a full socket, over the source's share, to prove the source's address
    /// first, for the memory of all sockets.
    pub(crate) full: u64,
    pub(crate) over_share: u64,
    pub(crate) challenged: u64,
    pub(crate) memory: u64,
}

#[cfg(test)]
impl UdpReport {
    /// One on which nothing has happened.
    pub(crate) const fn quiet(local: SocketAddr) -> Self {
        let (taken, waiting, charged, full, over_share) = (0, 0, 0, 0, 0);
        Self { local, taken, waiting, charged, full, over_share, challenged: 0, memory: 0 }
    }
}

/// TCP connections, of all workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConnectionUse {
    /// Now, TIME-WAIT included.
    pub(crate) open: usize,
    /// That there is room for.
    pub(crate) max: usize,
}

/// UDP sockets that one worker's report looks at.
const UDP_SOCKETS_MAX: usize = 256;

/// The handshakes of one worker, or of several, and the queues of its sockets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Handshakes {
    pub(crate) udp_sockets: Vec<UdpReport>,
    pub(crate) connections: ConnectionUse,
    pub(crate) listeners: Vec<ListenerSettings>,
    pub(crate) syncache: BTreeMap<String, u64>,
}

impl Handshakes {
    /// The listeners and SYN cache of one worker. Costs a walk over its listeners.
    pub(crate) fn of(stack: &Stack) -> Self {
        let listeners = stack.tcp_listeners().map(|it| ListenerSettings {
            local: it.local,
            backlog: it.backlog,
            half_open: it.counts.half_open,
            waiting: it.counts.waiting,
            cache_hits: it.counts.hits,
            cookies_sent: it.counts.cookies_sent,
            cookies_valid: it.counts.cookies_valid,
            refused: it.counts.refused,
            cookie_only: it.counts.cookie_only,
        });
        let named = stack.half_open_stats().map(|stats| stats.named());
        let syncache = named.into_iter().flatten().map(|(name, n, _)| (name.to_owned(), n));
        let (open, max) = stack.tcp_use();
        let udp = stack.udp_sockets(0, UDP_SOCKETS_MAX).0.into_iter().map(|it| UdpReport {
            local: it.local,
            taken: it.taken,
            waiting: it.waiting as u64,
            charged: it.charged,
            full: it.refused.full,
            over_share: it.refused.over_share,
            challenged: it.refused.challenged,
            memory: it.refused.memory,
        });
        let mut it = Self {
            listeners: listeners.collect(),
            syncache: syncache.collect(),
            udp_sockets: udp.collect(),
            connections: ConnectionUse { open, max },
        };
        it.listeners.sort_by_key(|listener| listener.local);
        it
    }

    /// Adds another worker's.
    pub(crate) fn add(&mut self, other: Self) {
        for theirs in other.listeners {
            match self.listeners.iter_mut().find(|ours| ours.local == theirs.local) {
                None => self.listeners.push(theirs),
                Some(ours) => {
                    ours.backlog += theirs.backlog;
                    ours.half_open += theirs.half_open;
                    ours.waiting += theirs.waiting;
                    ours.cache_hits += theirs.cache_hits;
                    ours.cookies_sent += theirs.cookies_sent;
                    ours.cookies_valid += theirs.cookies_valid;
                    ours.refused += theirs.refused;
                    ours.cookie_only += theirs.cookie_only;
                }
            }
        }
        for theirs in other.udp_sockets {
            match self.udp_sockets.iter_mut().find(|ours| ours.local == theirs.local) {
                None => self.udp_sockets.push(theirs),
                Some(ours) => {
                    ours.taken += theirs.taken;
                    ours.waiting += theirs.waiting;
                    ours.charged += theirs.charged;
                    ours.full += theirs.full;
                    ours.over_share += theirs.over_share;
                    ours.challenged += theirs.challenged;
                    ours.memory += theirs.memory;
                }
            }
        }
        self.connections.open += other.connections.open;
        self.connections.max += other.connections.max;
        for (name, n) in other.syncache {
            *self.syncache.entry(name).or_default() += n;
        }
        self.listeners.sort_by_key(|listener| listener.local);
    }
}

/// One line per listener; nothing without listeners.
pub(crate) fn show(out: &mut String, listeners: &[ListenerSettings], (bold, plain): (&str, &str)) {
    if listeners.is_empty() {
        return;
    }
    // Writing to a string cannot fail.
    let _ = writeln!(out, "\n{bold}TCP listeners{plain}");
    for it in listeners {
        let _ = writeln!(
            out,
            "{} {} half open, {} of {} wait; {} by cache, {} cookies sent, {} valid, {} refused{}",
            it.local,
            it.half_open,
            it.waiting,
            it.backlog,
            it.cache_hits,
            it.cookies_sent,
            it.cookies_valid,
            it.refused,
            if it.cookie_only > 0 {
                format!(", {} times by cookies alone", it.cookie_only)
            } else {
                String::new()
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(port: u16, n: u64) -> ListenerSettings {
        ListenerSettings {
            local: SocketAddr::new("::".parse().unwrap(), port),
            backlog: n as usize,
            half_open: n,
            waiting: n,
            cache_hits: n,
            cookies_sent: n,
            cookies_valid: n,
            refused: n,
            cookie_only: n,
        }
    }

    #[test]
    fn workers_are_added_up_by_listener_and_shown_a_line_each() {
        let with = |listeners: Vec<ListenerSettings>, n: u64| Handshakes {
            listeners,
            syncache: [("SyncacheAdded".to_owned(), n)].into(),
            connections: ConnectionUse { open: 1, max: 4 },
            ..Handshakes::default()
        };
        let mut all = with(vec![listener(80, 1)], 5);
        all.add(with(vec![listener(22, 7), listener(80, 2)], 6));
        assert_eq!(all.listeners, [listener(22, 7), listener(80, 3)]);
        assert_eq!(all.syncache["SyncacheAdded"], 11);
        assert_eq!(all.connections, ConnectionUse { open: 2, max: 8 });
        let mut out = String::new();
        show(&mut out, &all.listeners, ("", ""));
        assert_eq!(out.lines().count(), 4);
        assert!(
            out.contains("[::]:80 3 half open, 3 of 3 wait; 3 by cache, 3 cookies sent"),
            "{out}"
        );
        let mut nothing = String::new();
        show(&mut nothing, &[], ("", ""));
        assert_eq!(nothing, "");
    }
}
