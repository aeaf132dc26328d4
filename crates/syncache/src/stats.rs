//! What is counted, in all and by listener.
//!
//! Kept by `syn_cache.rs` as plain numbers; a worker publishes a copy. [`Stats::named`] gives them
//! under nstat's names and, with `Syncache` before them, under FreeBSD's (`netstat -sp tcp`).
//! Invariant: every SYN and every ACK that was offered is in exactly one of the counts that end it:
//! see [`Stats::syns`] and [`Stats::acks`].

/// Writes a structure of numbers and their names from one table.
macro_rules! numbers {
    ($(#[$doc:meta])* $type:ident { $($field:ident $name:literal $sentence:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $type {
            $(#[doc = $sentence] pub $field: u64,)*
        }

        impl $type {
            /// Every number with its name and its meaning.
            #[must_use]
            pub const fn named(&self) -> [(&'static str, u64, &'static str); $type::COUNT] {
                [$(($name, self.$field, $sentence),)*]
            }

            /// Nothing counted yet.
            pub const NONE: Self = Self { $($field: 0,)* };

            /// How many numbers there are.
            pub const COUNT: usize = [$($name),*].len();
        }
    };
}

numbers! {
    /// Of a whole cache.
    Stats {
        half_open "SyncacheHalfOpen" "Half-open connections in the cache now.",
        added "SyncacheAdded" "SYNs that made an entry.",
        duplicates "SyncacheDupsyn" "SYNs of known clients, answered again.",
        cookies_sent "SyncookiesSent" "SYNs answered by a cookie, nothing kept.",
        cookies_for_share "TCPReqQFullDoCookies" "Of these, for want of room or share.",
        refused_full "TCPReqQFullDrop" "SYNs refused because there was no room, and no cookies.",
        implausible "SyncacheImplausible" "SYNs from or to what nobody can be.",
        no_listener "SyncacheNoListener" "SYNs and ACKs for a listener that is gone.",
        row_overflow "SyncacheBucketOverflow" "Entries displaced because their row was full.",
        cache_overflow "SyncacheCacheOverflow" "Entries displaced because the cache was full.",
        cookie_only "SyncacheCookieOnly" "Pauses in which a listener answered by cookies alone.",
        retransmitted "TCPSynRetrans" "SYN-ACKs sent again by themselves.",
        withheld "SyncacheWithheld" "SYN-ACKs not sent again: under flood, or beyond the rate.",
        stale "SyncacheStale" "Entries that nobody completed in time.",
        aborted "SyncacheAborted" "Entries whose listener ended.",
        unsent "SyncacheDropped" "Entries whose SYN-ACK could not be sent.",
        completed "SyncacheCompleted" "Connections proved by an entry.",
        cookies_received "SyncookiesRecv" "Connections proved by a cookie.",
        cookies_failed "SyncookiesFailed" "ACKs whose cookie was computed and is none.",
        unasked "SyncacheUnasked" "Unknown ACKs refused unverified: no cookie was due.",
        over_budget "SyncacheOverBudget" "Unknown ACKs refused unverified: the budget was spent.",
        bad_ack "SyncacheBadAck" "ACKs for an entry that acknowledge something else.",
        bad_seq "SyncacheBadSeq" "ACKs for an entry with a wrong sequence number or timestamp.",
        accept_full "ListenOverflows" "ACKs put off: accept queue, or the share of it, full.",
        reset "EmbryonicRsts" "Entries ended by a reset.",
        challenged "TCPChallengeACK" "Resets near an entry that ask for a challenge.",
        unreachable "SyncacheUnreach" "Entries ended by ICMP errors.",
    }
}

numbers! {
    /// Of one listener.
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
    /// All SYNs that were offered.
    #[must_use]
    pub const fn syns(&self) -> u64 {
        self.added + self.duplicates + self.cookies_sent + self.refused_full + self.implausible
    }

    /// All ACKs that were offered. SYNs and ACKs for a listener that is gone are in neither.
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

    /// Entries that have left the cache, for whatever reason.
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
