//! What the shard's SYN cache is told from outside, and what it shows: keys, wall clock, counts.
//!
//! Called by the shell that runs the stack: it reads files and clocks, this crate does not
//! (decision C11). The wall clock says which keys of cookies are in force and nothing else, so a
//! wrong one costs cookies and opens nothing. Invariant: counters under nstat's names are the
//! cache's own, copied when somebody looks. Not here: the cache (`floodwall-syncache`).

use core::net::SocketAddr;
use core::time::Duration;

use floodwall_base::{Counter, Counters, Instant};
use floodwall_tcp::{
    CookiePolicy, Epoch, HalfOpenStats, ListenerCounts, ListenerId, Moment, Secret, SynSaid,
};

use crate::shard::Stack;
use crate::sockets::Sockets;

/// The wall clock, by the monotonic one, and what else was told of cookies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct WallClock {
    /// When somebody read both.
    at: Instant,
    /// What the wall clock said then, in nanoseconds: until the year 2554.
    since_1970: u64,
    /// How often a secret for cookies was given that other shards and instances have as well, and
    /// how often a listener's policy for cookies was set.
    pub(crate) secrets: u32,
    pub(crate) policies: u32,
}

impl WallClock {
    /// Which keys are in force. Never told, the wall clock began with the monotonic one.
    #[inline]
    pub(crate) fn epoch(&self, now: Instant) -> Epoch {
        Epoch::of(Duration::from_nanos(self.nanos_since_1970(now)))
    }

    /// What it says.
    #[inline]
    pub(crate) fn nanos_since_1970(&self, now: Instant) -> u64 {
        let (now, at) = (now.as_nanos(), self.at.as_nanos());
        let (ahead, behind) = (now.saturating_sub(at), at.saturating_sub(now));
        self.since_1970.saturating_add(ahead).saturating_sub(behind)
    }

    /// Another number when it was set, or a secret or a policy.
    pub(crate) fn number(&self) -> u64 {
        let others = u64::from(self.secrets) << 32 | u64::from(self.policies);
        self.since_1970.wrapping_sub(self.at.as_nanos()).wrapping_add(others)
    }
}

/// One listener, for `stat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListenerReport {
    /// Where it listens.
    pub local: SocketAddr,
    /// Connections that may wait to be accepted.
    pub backlog: usize,
    /// What was counted of it.
    pub counts: ListenerCounts,
}

impl Stack {
    /// Tells what the wall clock says at `now`: time since 1970-01-01 00:00 UTC. To be told again
    /// when it was set; between, it runs with the monotonic clock.
    pub fn set_wall_clock(&mut self, now: Instant, since_1970: Duration) {
        let since_1970 = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
        self.wall = WallClock { at: now, since_1970, ..self.wall };
    }

    /// Takes a secret for cookies that other instances have as well, so that each believes what the
    /// others made; unknown ACKs are then verified at any time, within the budget (decision E23).
    /// Cookies of the last secret stay good for their lifetime. Whether it is another secret than
    /// before. Nothing happens on a stack without TCP.
    pub fn set_cookie_secret(&mut self, secret: Secret, now: Instant) -> bool {
        let at = Moment::new(now, self.wall.epoch(now));
        self.wall.secrets += 1;
        self.tcp.as_mut().is_some_and(|tcp| tcp.set.share_cookies(secret, at))
    }

    /// What was counted of half-open connections; `None` without TCP.
    #[must_use]
    pub fn half_open_stats(&self) -> Option<HalfOpenStats> {
        self.tcp.as_ref().map(|tcp| tcp.set.half_open_stats())
    }

    /// Every listener of this shard.
    pub fn tcp_listeners(&self) -> impl Iterator<Item = ListenerReport> {
        let all = self.tcp.iter().flat_map(|tcp| tcp.set.listener_counts());
        all.map(|(local, backlog, counts)| ListenerReport { local, backlog, counts })
    }

    /// Writes what the SYN cache has counted into the counters of nstat's names.
    pub(crate) fn count_half_open(&self, counters: &mut Counters) {
        let Some(stats) = self.half_open_stats() else { return };
        for (counter, count) in [
            (Counter::TcpExtSyncookiesSent, stats.cookies_sent),
            (Counter::TcpExtSyncookiesRecv, stats.cookies_received),
            (Counter::TcpExtSyncookiesFailed, stats.cookies_failed),
            (Counter::TcpExtEmbryonicRsts, stats.reset),
            (Counter::TcpExtTCPReqQFullDoCookies, stats.cookies_for_share),
            (Counter::TcpExtTCPReqQFullDrop, stats.refused_full),
            (Counter::TcpExtTCPSynRetrans, stats.retransmitted),
            (Counter::TcpExtListenOverflows, stats.accept_full),
            (Counter::TcpExtListenDrops, stats.listen_drops()),
        ] {
            counters.set(counter, count);
        }
        // Half-open ones among them (RFC 4022, `tcpAttemptFails`).
        let broken = self.tcp.as_ref().map(|tcp| tcp.set.broken()).unwrap_or_default();
        counters.set(Counter::TcpAttemptFails, broken.attempts + stats.reset);
        counters.set(Counter::TcpEstabResets, broken.open);
    }
}

impl Sockets<'_> {
    /// Ends a listener, and with it at once all that is half open of it; who waits to be accepted
    /// is reset.
    ///
    /// # Errors
    /// The listener is gone.
    pub fn tcp_unlisten(&mut self, listener: ListenerId) -> Result<(), floodwall_tcp::Gone> {
        let (stack, cx) = (&mut *self.stack, &mut self.cx);
        let tcp = stack.tcp.as_mut().ok_or(floodwall_tcp::Gone)?;
        tcp.set.unlisten(&crate::tcp::lend!(stack, cx), listener)?;
        stack.tcp_transmit(cx);
        Ok(())
    }

    /// When SYNs of a listener are answered by cookies alone: never, when the cache overflows (as
    /// it begins), or always.
    ///
    /// # Errors
    /// The listener is gone.
    pub fn tcp_set_cookies(
        &mut self,
        listener: ListenerId,
        policy: CookiePolicy,
    ) -> Result<(), floodwall_tcp::Gone> {
        self.stack.wall.policies += 1;
        self.tcp()?.set_cookies(listener, policy)
    }

    /// What the SYN of an accepted connection said, as far as its handshake kept it (compare
    /// Linux's `TCP_SAVED_SYN`). `None` of a connection that we opened.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn tcp_syn_said(
        &mut self,
        id: floodwall_tcp::ConnectionId,
    ) -> Result<Option<SynSaid>, floodwall_tcp::Gone> {
        self.tcp()?.syn_said(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_runs_with_the_other_one_until_it_is_set() {
        let second = |n: u64| Instant::from_nanos(n * 1_000_000_000);
        let mut wall = WallClock::default();
        assert_eq!(wall.epoch(second(31)), Epoch(2), "never told");
        wall = WallClock { at: second(100), since_1970: 1_500_000_000_000, ..wall };
        assert_eq!(wall.epoch(second(100)), Epoch(100));
        assert_eq!((wall.epoch(second(114)), wall.epoch(second(115))), (Epoch(100), Epoch(101)));
        assert_eq!(wall.epoch(second(99)), Epoch(99), "a moment before it was told");
        assert_eq!(wall.epoch(Instant::ORIGIN), Epoch(93));
        wall.since_1970 = 0;
        assert_eq!(wall.epoch(Instant::ORIGIN), Epoch(0), "nothing is before 1970");
    }
}
