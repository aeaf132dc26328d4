//! `RawSent`: destinations that raw sockets sent to lately, so that an ICMP message about such a
//! packet is accepted.
//!
//! Written where a raw socket sends, read where an ICMP message quotes a protocol that no other
//! socket handles. Only programs of this host fill it. Bound: [`RAW_SENT_MAX`] destinations; the
//! least recently used is evicted, and its next packet adds it again.

use core::net::IpAddr;
use core::time::Duration;

use floodwall_base::Instant;
use floodwall_base::limits::RAW_SENT_MAX;
use floodwall_wire::IpProtocol;

/// How long a destination is remembered: as long as the peer of an unconnected UDP socket.
const DESTINATION_SILENCE: Duration = Duration::from_secs(30);

/// A destination and a protocol, where there is one.
type SentTo = Option<(IpAddr, IpProtocol)>;

/// Least-recently-used (LRU) list of the destinations and protocols that raw sockets sent to.
#[derive(Debug)]
pub(crate) struct RawSent {
    entries: Box<[(SentTo, Instant)]>,
}

impl RawSent {
    /// An empty table; no memory where there can be no raw socket.
    pub(crate) fn new(sockets_max: usize) -> Self {
        let places = if sockets_max == 0 { 0 } else { RAW_SENT_MAX };
        Self { entries: vec![(None, Instant::ORIGIN); places].into() }
    }

    /// Records that a raw socket sends to `dst_addr`. Visits all entries.
    pub(crate) fn note(&mut self, dst_addr: IpAddr, protocol: IpProtocol, now: Instant) {
        let sent_to = Some((dst_addr, protocol));
        let known = self.entries.iter().position(|(known, _)| *known == sent_to);
        let oldest = || (0..self.entries.len()).min_by_key(|at| self.entries.get(*at).map(|e| e.1));
        if let Some(entry) = known.or_else(oldest).and_then(|at| self.entries.get_mut(at)) {
            *entry = (sent_to, now);
        }
    }

    /// Whether a raw socket sent to `dst_addr` lately. Visits all entries.
    pub(crate) fn knows(&self, dst_addr: IpAddr, protocol: IpProtocol, now: Instant) -> bool {
        let sent_to = Some((dst_addr, protocol));
        self.entries
            .iter()
            .any(|(known, sent)| *known == sent_to && now < *sent + DESTINATION_SILENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_destinations_of_each_protocol_are_known_for_a_while() {
        let mut sent = RawSent::new(1);
        let (now, one) = (Instant::from_nanos(1), IpProtocol(200));
        let nth = |n: usize| IpAddr::from([10, 0, (n / 256) as u8, n as u8]);
        for n in 0..RAW_SENT_MAX + 1 {
            sent.note(nth(n), one, now + Duration::from_millis(n as u64));
        }
        let later = now + Duration::from_secs(1);
        assert!(!sent.knows(nth(0), one, later) && sent.knows(nth(1), one, later));
        assert!(!sent.knows(nth(1), IpProtocol(201), later));
        assert!(!sent.knows(nth(1), one, now + Duration::from_secs(31)));
        let mut none = RawSent::new(0);
        none.note(nth(1), one, now);
        assert!(!none.knows(nth(1), one, now));
    }
}
