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

/// The handshakes of one worker, or of several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Handshakes {
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
        let mut it = Self { listeners: listeners.collect(), syncache: syncache.collect() };
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
        };
        let mut all = with(vec![listener(80, 1)], 5);
        all.add(with(vec![listener(22, 7), listener(80, 2)], 6));
        assert_eq!(all.listeners, [listener(22, 7), listener(80, 3)]);
        assert_eq!(all.syncache["SyncacheAdded"], 11);
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
