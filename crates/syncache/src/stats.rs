//! The counters of a cache, total and per listener.
//!
//! Updated by `syn_cache.rs` as plain numbers; a worker publishes a copy. [`Stats::named`] gives
//! them under nstat's names and, with the prefix `Syncache`, under FreeBSD's (`netstat -sp tcp`).
//! Invariant: every SYN and every ACK is in exactly one of the outcome counters: see
//! [`Stats::syns`] and [`Stats::acks`].

/// Generates a structure of counters and their names from one table.
macro_rules! numbers {
    ($(#[$doc:meta])* $type:ident { $($field:ident $name:literal $sentence:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $type {
            $(#[doc = $sentence] pub $field: u64,)*
        }

        impl $type {
            /// Every counter with its name and its meaning.
            #[must_use]
            pub const fn named(&self) -> [(&'static str, u64, &'static str); $type::COUNT] {
                [$(($name, self.$field, $sentence),)*]
            }

            /// All counters zero.
            pub const NONE: Self = Self { $($field: 0,)* };

            /// The number of counters.
            pub const COUNT: usize = [$($name),*].len();
        }
    };
}

numbers! {
    /// The counters of a whole cache.
    Stats {
        half_open "SyncacheHalfOpen" "Half-open connections in the cache now.",
        added "SyncacheAdded" "SYNs that made an entry.",
        duplicates "SyncacheDupsyn" "SYNs of known clients, answered again.",
        cookies_sent "SyncookiesSent" "SYNs answered by a cookie, nothing kept.",
        cookies_for_share "TCPReqQFullDoCookies" "Of these, for lack of cache room or share.",
        refused_full "TCPReqQFullDrop" "SYNs refused because there was no room, and no cookies.",
        implausible "SyncacheImplausible" "SYNs from or to an invalid address or port.",
        no_listener "SyncacheNoListener" "SYNs and ACKs for a listener that is gone.",
        row_overflow "SyncacheBucketOverflow" "Entries displaced because their row was full.",
        cache_overflow "SyncacheCacheOverflow" "Entries displaced because the cache was full.",
        cookie_only "SyncacheCookieOnly" "Pauses in which a listener answered by cookies alone.",
        retransmitted "TCPSynRetrans" "SYN-ACKs retransmitted by timer.",
        withheld "SyncacheWithheld" "SYN-ACKs not retransmitted: flood, or over the rate.",
        stale "SyncacheStale" "Entries expired without completing the handshake.",
        aborted "SyncacheAborted" "Entries dropped because their listener ended.",
        unsent "SyncacheDropped" "Entries dropped because the SYN-ACK could not be sent.",
        completed "SyncacheCompleted" "Connections proved by an entry.",
        cookies_received "SyncookiesRecv" "Connections proved by a cookie.",
        cookies_failed "SyncookiesFailed" "ACKs verified as cookies and found invalid.",
        unasked "SyncacheUnasked" "Unknown ACKs refused unverified: no cookie was due.",
        over_budget "SyncacheOverBudget" "Unknown ACKs refused unverified: the budget was spent.",
        bad_ack "SyncacheBadAck" "ACKs for an entry that acknowledge something else.",
        bad_seq "SyncacheBadSeq" "ACKs for an entry with a wrong sequence number or timestamp.",
        accept_full "ListenOverflows" "ACKs dropped: accept queue, or the share of it, full.",
        reset "EmbryonicRsts" "Entries ended by a reset.",
        challenged "TCPChallengeACK" "Resets near an entry, answered by a challenge ACK.",
        unreachable "SyncacheUnreach" "Entries ended by ICMP errors.",
    }
}

numbers! {
    /// The counters of one listener.
    ListenerStats {
        half_open "half-open" "Half-open connections in the cache now.",
        waiting "waiting" "Connections that wait to be accepted now.",
        hits "hits" "Connections proved by an entry.",
        cookies_sent "cookies-sent" "SYNs answered by a cookie.",
        cookies_valid "cookies-valid" "Connections proved by a cookie.",
        refused "refused" "SYNs and ACKs refused.",
        cookie_only "cookie-only" "Pauses in which it answered by cookies alone.",
    }
}

impl Stats {
    /// All SYNs received.
    #[must_use]
    pub const fn syns(&self) -> u64 {
        self.added + self.duplicates + self.cookies_sent + self.refused_full + self.implausible
    }

    /// All ACKs received. SYNs and ACKs for a listener that is gone are counted in neither.
    #[must_use]
    pub const fn acks(&self) -> u64 {
        self.completed
            + self.cookies_received
            + self.cookies_failed
            + self.unasked
            + self.over_budget
            + self.bad_ack
            + self.bad_seq
            + self.accept_full
    }

    /// nstat's `ListenDrops`: SYNs and completions that a listener had no room for. Cookies do not
    /// count.
    #[must_use]
    pub const fn listen_drops(&self) -> u64 {
        self.refused_full + self.accept_full
    }

    /// Entries that have left the cache, for any reason.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.row_overflow
            + self.cache_overflow
            + self.stale
            + self.aborted
            + self.unsent
            + self.completed
            + self.reset
            + self.unreachable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_sentences_end() {
        let stats = Stats { added: 7, ..Stats::default() };
        let mut names: Vec<_> = stats.named().iter().map(|(name, ..)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Stats::COUNT);
        assert!(stats.named().contains(&("SyncacheAdded", 7, "SYNs that made an entry.")));
        assert!(stats.named().iter().all(|(.., says)| says.ends_with('.')));
    }
}
