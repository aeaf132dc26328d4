//! The end of a stack's connections in good order, before its host stops.
//!
//! Called by the shell ([`Stack::drain`]); the steps are part of timed work. Listeners close first.
//! Then applications on this core are told, each by an event for each of its connections, and
//! programs' connections are closed where that is wanted. What is written is sent, and the peers'
//! ends are waited for. When the time is over, what is left is reset, so that every peer learns of
//! the end. Invariants: data that a program had written before the call is sent, or its connection
//! is reset and counted; a turn visits [`TURN_VISITS`] connections at most.
//!
//! # Under flood
//! Peers that do not acknowledge, or do not close their side, delay the end: by the time that the
//! caller grants. A listener that is closed accepts nothing more.

pub(crate) mod progress;

use core::time::Duration;

use floodwall_base::Instant;

use self::progress::{DrainProgress, DrainStep, Drained, HeldConnections};
use crate::round_context::RoundContext;
use crate::sockets::Sockets;
use crate::stack::Stack;
use crate::tcp::lend;

/// Connections that are visited in one turn.
const TURN_VISITS: u32 = 256;
/// How long packets that wait for a neighbour's link address are waited for.
const NEIGHBOR_PATIENCE: Duration = Duration::from_secs(1);

impl Stack {
    /// Ends all connections in good order, within `patience`; see [`HeldConnections`] for those
    /// that programs still hold. `done` is called when none is left, or dropped with the stack. New
    /// connections are neither accepted nor opened any more. May be called again: the shorter time
    /// counts, and a call after the end finds nothing left.
    pub fn drain(
        &mut self,
        now: Instant,
        patience: Duration,
        held: HeldConnections,
        done: impl FnOnce(Drained) + Send + 'static,
    ) {
        let until = now + patience;
        self.parts_mark.set();
        let drain = self.shard.drain.get_or_insert_with(|| {
            Box::new(DrainProgress {
                step: DrainStep::Begin,
                closes_held: false,
                until,
                neighbors_until: now + NEIGHBOR_PATIENCE.min(patience),
                had: 0,
                broken: 0,
                replies: Vec::new(),
            })
        });
        if drain.step == DrainStep::Over {
            return done(Drained::default());
        }
        drain.until = drain.until.min(until);
        drain.replies.push(Box::new(done));
        let closes = held == HeldConnections::Close;
        if closes && !drain.closes_held && drain.step == DrainStep::Wait {
            drain.step = DrainStep::CloseHeld(0);
        }
        drain.closes_held |= closes;
    }

    /// Whether [`Stack::drain`] was called: applications should close their connections.
    #[must_use]
    pub const fn is_draining(&self) -> bool {
        self.shard.drain.is_some()
    }

    /// When the next step is due.
    pub(crate) fn drain_deadline(&self) -> Option<Instant> {
        let drain = self.shard.drain.as_ref()?;
        match drain.step {
            DrainStep::Over => None,
            DrainStep::Wait if !self.is_quiet() => Some(drain.until),
            DrainStep::Wait if self.stats.pending > 0 => {
                Some(drain.neighbors_until.min(drain.until))
            }
            _ => Some(Instant::ORIGIN),
        }
    }

    /// Whether no connection is left, and nothing of programs waits to be sent.
    fn is_quiet(&self) -> bool {
        self.unfinished() == 0
            && self.burst.loopback.is_empty()
            && self.shard.remote.as_ref().is_none_or(|remote| remote.is_quiet())
    }

    fn unfinished(&self) -> usize {
        self.tcp.as_ref().map_or(0, |tcp| tcp.set.unfinished())
    }

    fn broken(&self) -> u64 {
        self.tcp.as_ref().map_or(0, |tcp| {
            let broken = tcp.set.broken();
            broken.attempts + broken.open + broken.closing
        })
    }

    /// The steps that are due: part of timed work.
    pub(crate) fn drain_on(&mut self, cx: &mut RoundContext<'_>) {
        // Taken out, so that a step may use the rest of the stack.
        let Some(mut drain) = self.shard.drain.take() else { return };
        let mut step = drain.step;
        // A visit of all at most, and the steps between.
        while let Some(next) = self.drain_step(cx, &mut drain, step) {
            let visits = matches!(
                next,
                DrainStep::Notify(1..) | DrainStep::CloseHeld(1..) | DrainStep::Reset(1..)
            );
            step = next;
            if visits {
                break;
            }
        }
        if step != drain.step {
            self.tcp_transmit(cx);
            // What programs have to learn.
            self.deliver_streams(cx);
        }
        drain.step = step;
        let replies = match step {
            DrainStep::Over => core::mem::take(&mut drain.replies),
            _ => Vec::new(),
        };
        let reset = self.broken().saturating_sub(drain.broken);
        let drained = Drained { closed: drain.had.saturating_sub(reset), reset };
        self.shard.drain = Some(drain);
        replies.into_iter().for_each(|reply| reply(drained));
    }

    /// Does one step; what comes next, `None` where that is this one and must wait.
    fn drain_step(
        &mut self,
        cx: &mut RoundContext<'_>,
        drain: &mut DrainProgress,
        step: DrainStep,
    ) -> Option<DrainStep> {
        match step {
            DrainStep::Begin => {
                (drain.had, drain.broken) = (self.unfinished() as u64, self.broken());
                if let Some(remote) = &mut self.shard.remote {
                    remote.stop_listening();
                }
                Some(DrainStep::CloseListeners)
            }
            DrainStep::CloseListeners => {
                if let Some(tcp) = &mut self.tcp {
                    while tcp.set.unlisten_next(&lend!(self, cx)) {}
                }
                Some(DrainStep::Notify(0))
            }
            DrainStep::Notify(at) => {
                let tcp = self.tcp.as_mut();
                let next =
                    tcp.and_then(|tcp| tcp.set.notify_from(&lend!(self, cx), at, TURN_VISITS));
                let after = match drain.closes_held {
                    true => DrainStep::CloseHeld(0),
                    false => DrainStep::Wait,
                };
                Some(next.map_or(after, DrainStep::Notify))
            }
            DrainStep::CloseHeld(at) => {
                let next = self.close_held(cx, at, TURN_VISITS);
                Some(next.map_or(DrainStep::Wait, DrainStep::CloseHeld))
            }
            DrainStep::Wait => {
                let waits = self.stats.pending > 0 && cx.now < drain.neighbors_until;
                if self.is_quiet() && !waits {
                    return Some(DrainStep::Over);
                }
                (cx.now >= drain.until).then_some(DrainStep::Reset(0))
            }
            DrainStep::Reset(at) => {
                let tcp = self.tcp.as_mut();
                let next =
                    tcp.and_then(|tcp| tcp.set.reset_from(&lend!(self, cx), at, TURN_VISITS));
                Some(next.map_or(DrainStep::Over, DrainStep::Reset))
            }
            DrainStep::Over => None,
        }
    }
}

impl Sockets<'_> {
    /// Whether the host is about to stop ([`Stack::drain`]): an application finishes what it has
    /// begun on each connection, and closes it. It gets an event for each.
    #[must_use]
    pub const fn is_draining(&self) -> bool {
        self.stack.is_draining()
    }
}
