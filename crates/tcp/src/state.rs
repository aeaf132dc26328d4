//! The states of a connection and the transitions between them: RFC 9293 section 3.3.2, as a table.
//!
//! Used by everything that changes a connection's state; nothing else writes one. Invariant: a step
//! that is not in [`TABLE`] does not happen ([`TcpState::after`] returns `None`). Half-open passive
//! connections are entries of `syncache`, not connections: LISTEN is a listener's state, and a
//! passive connection begins in ESTABLISHED, with a proven handshake. TIME-WAIT may outlive its
//! connection as a record (`time_wait.rs`).

use core::fmt;

/// A state of RFC 9293 section 3.3.2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum TcpState {
    /// No connection.
    #[default]
    Closed,
    /// Waiting for a SYN of any peer.
    Listen,
    /// A SYN was sent.
    SynSent,
    /// A SYN was sent and one received (simultaneous open).
    SynReceived,
    /// Open, both ways.
    Established,
    /// We have closed; our FIN is not acknowledged.
    FinWait1,
    /// We have closed, and the peer knows; it may still send.
    FinWait2,
    /// The peer has closed; we may still send.
    CloseWait,
    /// Both have closed at once; our FIN is not acknowledged.
    Closing,
    /// The peer closed first, then we; our FIN is not acknowledged.
    LastAck,
    /// Both have closed; segments still in flight are awaited.
    TimeWait,
}

/// An event that moves a connection from one state to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum StateStep {
    /// Active open: SYN.
    Open,
    /// Passive open.
    Listen,
    /// A SYN without an acknowledgment arrived: SYN, ACK.
    Syn,
    /// A SYN that acknowledges ours arrived: ACK.
    SynAck,
    /// Our SYN was acknowledged; for a passive open, with a proven handshake.
    SynAcked,
    /// The application closes: FIN, after the data.
    Close,
    /// The peer's FIN was received in order.
    Fin,
    /// Our FIN was acknowledged.
    FinAcked,
    /// Twice the maximum segment lifetime has passed.
    Quiet,
    /// A reset by either side, or the connection was given up.
    Abort,
}

impl TcpState {
    /// Every state, in the order of a connection's lifetime.
    pub const ALL: [Self; 11] = [
        Self::Closed,
        Self::Listen,
        Self::SynSent,
        Self::SynReceived,
        Self::Established,
        Self::FinWait1,
        Self::FinWait2,
        Self::CloseWait,
        Self::Closing,
        Self::LastAck,
        Self::TimeWait,
    ];

    /// The state after a step, or `None` where the step does not exist.
    #[must_use]
    pub const fn after(self, step: StateStep) -> Option<Self> {
        use StateStep as E;
        Some(match (self, step) {
            (Self::Closed, E::Open) => Self::SynSent,
            (Self::Closed, E::Listen) => Self::Listen,
            (Self::Listen, E::SynAcked) => Self::Established,
            (Self::Listen, E::Close) => Self::Closed,
            (Self::SynSent, E::Syn) => Self::SynReceived,
            (Self::SynSent, E::SynAck) => Self::Established,
            (Self::SynSent, E::Close) => Self::Closed,
            (Self::SynReceived, E::SynAcked) => Self::Established,
            (Self::SynReceived | Self::Established, E::Close) => Self::FinWait1,
            (Self::SynReceived | Self::Established, E::Fin) => Self::CloseWait,
            (Self::FinWait1, E::Fin) => Self::Closing,
            (Self::FinWait1, E::FinAcked) => Self::FinWait2,
            (Self::FinWait2, E::Fin) => Self::TimeWait,
            (Self::CloseWait, E::Close) => Self::LastAck,
            (Self::Closing, E::FinAcked) => Self::TimeWait,
            (Self::LastAck, E::FinAcked) => Self::Closed,
            (Self::TimeWait, E::Quiet) => Self::Closed,
            (Self::Closed | Self::Listen, E::Abort) => return None,
            (_, E::Abort) => Self::Closed,
            _ => return None,
        })
    }

    /// Whether the state is synchronized (RFC 9293 section 3.10.7.4: all states from ESTABLISHED
    /// on).
    #[must_use]
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, Self::Closed | Self::Listen | Self::SynSent | Self::SynReceived)
    }

    /// Whether data and a FIN of the peer are still expected.
    #[must_use]
    pub const fn hears(self) -> bool {
        matches!(self, Self::SynReceived | Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// Whether the application may write data. In SYN-SENT too: it is sent after the handshake (RFC
    /// 9293 section 3.10.2).
    #[must_use]
    pub const fn takes_data(self) -> bool {
        matches!(self, Self::SynSent | Self::SynReceived | Self::Established | Self::CloseWait)
    }

    /// Whether data or a FIN to the peer may be in flight.
    #[must_use]
    pub const fn sends(self) -> bool {
        matches!(
            self,
            Self::Established | Self::CloseWait | Self::FinWait1 | Self::Closing | Self::LastAck
        )
    }

    /// The name in the RFC.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "CLOSED",
            Self::Listen => "LISTEN",
            Self::SynSent => "SYN-SENT",
            Self::SynReceived => "SYN-RECEIVED",
            Self::Established => "ESTABLISHED",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::CloseWait => "CLOSE-WAIT",
            Self::Closing => "CLOSING",
            Self::LastAck => "LAST-ACK",
            Self::TimeWait => "TIME-WAIT",
        }
    }
}

impl fmt::Display for TcpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [StateStep; 10] = [
        StateStep::Open,
        StateStep::Listen,
        StateStep::Syn,
        StateStep::SynAck,
        StateStep::SynAcked,
        StateStep::Close,
        StateStep::Fin,
        StateStep::FinAcked,
        StateStep::Quiet,
        StateStep::Abort,
    ];

    /// To be changed only together with the RFC sentence that requires it.
    const PRINTED: &str = "\
CLOSED       Open     SYN-SENT
CLOSED       Listen   LISTEN
LISTEN       SynAcked ESTABLISHED
LISTEN       Close    CLOSED
SYN-SENT     Syn      SYN-RECEIVED
SYN-SENT     SynAck   ESTABLISHED
SYN-SENT     Close    CLOSED
SYN-SENT     Abort    CLOSED
SYN-RECEIVED SynAcked ESTABLISHED
SYN-RECEIVED Close    FIN-WAIT-1
SYN-RECEIVED Fin      CLOSE-WAIT
SYN-RECEIVED Abort    CLOSED
ESTABLISHED  Close    FIN-WAIT-1
ESTABLISHED  Fin      CLOSE-WAIT
ESTABLISHED  Abort    CLOSED
FIN-WAIT-1   Fin      CLOSING
FIN-WAIT-1   FinAcked FIN-WAIT-2
FIN-WAIT-1   Abort    CLOSED
FIN-WAIT-2   Fin      TIME-WAIT
FIN-WAIT-2   Abort    CLOSED
CLOSE-WAIT   Close    LAST-ACK
CLOSE-WAIT   Abort    CLOSED
CLOSING      FinAcked TIME-WAIT
CLOSING      Abort    CLOSED
LAST-ACK     FinAcked CLOSED
LAST-ACK     Abort    CLOSED
TIME-WAIT    Quiet    CLOSED
TIME-WAIT    Abort    CLOSED
";

    #[test]
    fn the_table_of_steps_is_the_one_that_is_written_down() {
        let mut printed = String::new();
        for from in TcpState::ALL {
            for step in STEPS {
                if let Some(to) = from.after(step) {
                    printed += &format!("{from:<12} {:<8} {to}\n", format!("{step:?}"));
                }
            }
        }
        assert_eq!(printed, PRINTED);
    }

    #[test]
    fn every_state_can_be_reached_and_left() {
        let steps = || TcpState::ALL.into_iter().flat_map(|s| STEPS.map(|e| (s, s.after(e))));
        for state in TcpState::ALL {
            assert!(steps().any(|(from, to)| from != state && to == Some(state)), "{state}");
            assert!(steps().any(|(from, to)| from == state && to.is_some()), "{state}");
        }
    }
}
