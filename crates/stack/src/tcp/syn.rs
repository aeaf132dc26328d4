//! Inputs and counters of the shard's SYN cache: cookie keys, wall clock, counts.
//!
//! Called by the shell that runs the stack: it reads files and clocks, this crate does not
//! (decision C11). The wall clock only selects the keys of cookies, so a wrong one costs cookies
//! and nothing else. Invariant: counters under nstat's names are the cache's own, copied when they
//! are read. Not here: the cache (`floodwall-syncache`).

use core::net::SocketAddr;
use core::time::Duration;

use floodwall_base::{Counter, Counters, Instant};
use floodwall_tcp::{
    CookieMoment, CookiePolicy, HalfOpenStats, ListenerCounts, ListenerId, Secret, SynSaid,
};

use crate::sockets::Sockets;
use crate::stack::Stack;
use crate::tcp::wall_clock::WallClock;

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
    /// Sets the wall clock at `now`: time since 1970-01-01 00:00 UTC. To be called again when the
    /// system's clock was set; in between, it runs with the monotonic clock.
    pub fn set_wall_clock(&mut self, now: Instant, since_1970: Duration) {
        let since_1970 = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
        // The epoch is found anew.
        let known = Default::default();
        self.shard.wall = WallClock { at: now, since_1970, known, ..self.shard.wall };
    }

    /// Sets a cookie secret that other instances share, so that each accepts cookies that the
    /// others made; unknown ACKs are then verified at any time, within the budget (decision E23).
    /// Cookies of the previous secret stay valid for their lifetime. Returns whether the secret
    /// differs from the one before. Does nothing on a stack without TCP.
    pub fn set_cookie_secret(&mut self, secret: Secret, now: Instant) -> bool {
        let at = CookieMoment::new(now, self.shard.wall.epoch(now));
        self.shard.wall.secrets += 1;
        self.tcp.as_mut().is_some_and(|tcp| tcp.set.share_cookies(secret, at))
    }

    /// Sets the cookie secret that all shards of this host use, and no other instance: then a
    /// program at the interface can answer SYNs for all of them. Returns whether the secret differs
    /// from the one before. Does nothing on a stack without TCP.
    pub fn set_common_cookie_secret(&mut self, secret: Secret, now: Instant) -> bool {
        let at = CookieMoment::new(now, self.shard.wall.epoch(now));
        self.shard.wall.secrets += 1;
        self.tcp.as_mut().is_some_and(|tcp| tcp.set.agree_on_cookies(secret, at))
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
    /// Closes a listener, and with it at once all its half-open connections; connections that wait
    /// to be accepted are reset.
    ///
    /// # Errors
    /// The listener is gone.
    pub fn tcp_unlisten(&mut self, listener: ListenerId) -> Result<(), floodwall_tcp::StaleHandle> {
        let (stack, cx) = (&mut *self.stack, &mut self.cx);
        let tcp = stack.tcp.as_mut().ok_or(floodwall_tcp::StaleHandle)?;
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
    ) -> Result<(), floodwall_tcp::StaleHandle> {
        self.stack.shard.wall.policies += 1;
        self.tcp()?.set_cookies(listener, policy)
    }

    /// The SYN of an accepted connection, as far as its handshake kept it (compare Linux's
    /// `TCP_SAVED_SYN`). `None` of a connection that we opened.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn tcp_syn_said(
        &mut self,
        id: floodwall_tcp::ConnectionId,
    ) -> Result<Option<SynSaid>, floodwall_tcp::StaleHandle> {
        self.tcp()?.syn_said(id)
    }
}
