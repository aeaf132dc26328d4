//! ICMP errors that quote a segment of ours: RFC 5927, RFC 5461, RFC 1191, RFC 8201.
//!
//! Called by `stack` with the parsed quotation. Invariants: an error is accepted only where the
//! quoted sequence number is in flight (RFC 5927 section 4), one about acknowledged data changes
//! nothing; no error ends an established
//! connection, and no router reduces its rate (rows 33 and 34 of the bar); a path MTU is
//! only lowered, never below its family's floor (decision E25); one that is known already is no
//! news, but is still about a segment of ours.

use floodwall_base::{FlowKey, IfIndex, Instant, Seq};
use floodwall_syncache::HalfOpen;

use crate::connection_table::ConnectionTable;
use crate::error::ConnectionError;
use crate::state::TcpState;

/// An ICMP error of either family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpSays {
    /// Destination unreachable or prohibited: the errors that RFC 1122 section 4.2.3.9 calls hard.
    Refused,
    /// A temporary failure: the soft errors.
    Unreachable,
    /// The packet exceeds the path MTU of so many bytes.
    TooBig(u32),
}

/// What a connection made of an ICMP error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpHeard {
    /// No connection can have sent what it quotes.
    Unknown,
    /// It quotes a segment that is not in flight any more: nothing has changed.
    Late,
    /// It quotes a segment in flight.
    Accepted,
}

impl<H: HalfOpen> ConnectionTable<H> {
    /// Processes an ICMP error about a flow of ours that quotes this sequence number. Returns
    /// whether it was accepted.
    pub fn icmp_error(
        &mut self,
        flow: &FlowKey,
        seq: Seq,
        says: IcmpSays,
        now: Instant,
    ) -> IcmpHeard {
        let zoneless = FlowKey { zone: IfIndex::default(), ..*flow };
        let Some(index) = self.find(&zoneless).or_else(|| self.find(flow)) else {
            if !matches!(says, IcmpSays::TooBig(_)) {
                self.mark_works();
                let _ = self.half_open.unreachable(&zoneless, seq);
            }
            return IcmpHeard::Unknown;
        };
        let Some((connection, records)) = self.with_records(index) else {
            return IcmpHeard::Unknown;
        };
        let in_flight = connection.snd.nxt.since(connection.snd.una);
        if !seq.is_within(connection.snd.una, in_flight.max(1)) || in_flight == 0 {
            // Each packet of a flight is reported, some after the data have been acknowledged.
            let sent = connection.snd.may_acknowledge(seq) && seq != connection.snd.nxt;
            return if sent { IcmpHeard::Late } else { IcmpHeard::Unknown };
        }
        let opening = matches!(connection.state(), TcpState::SynSent | TcpState::SynReceived);
        match says {
            IcmpSays::Refused if opening => connection.fail(ConnectionError::Refused),
            IcmpSays::Unreachable if opening => connection.fail(ConnectionError::Unreachable),
            // Soft for every connection that was established (RFC 5461): the timers decide.
            IcmpSays::Refused | IcmpSays::Unreachable => {}
            IcmpSays::TooBig(mtu) => connection.on_too_big(records, mtu, now),
        }
        self.settle(index, now);
        IcmpHeard::Accepted
    }
}
