//! Commands to sockets that all shards have, carried from the control shard to the others.
//!
//! Called at the end of each call of the control shard and at the start of each call of a follower.
//! What is decided, and how it is carried out, stands in `remote/`; here is its way: a log for each
//! follower. Invariants: a command is logged for every follower or for none yet; each follower
//! carries them out in the order in which they were decided, before it looks at another packet.
//!
//! # Under flood
//! Only programs reach this. Bound: [`limits::SOCKET_COMMANDS_WAITING`] commands for each follower.
//! While the log of one is full, what is decided waits at the control shard, within the bound of
//! requests that programs may have waiting (`REMOTE_REQUESTS_MAX`): a worker that is stuck delays
//! binds, and nothing else.

use floodwall_base::{Counter, WorkerId, limits};

use super::control::ControlShard;
use super::role::Role;
use crate::round_context::RoundContext;
use crate::stack::Stack;

const _: () = assert!(limits::SOCKET_COMMANDS_WAITING.is_power_of_two());

impl ControlShard {
    /// How many commands every follower has room for.
    fn room(&mut self) -> usize {
        self.logs.iter_mut().map(|log| log.room()).min().unwrap_or(usize::MAX)
    }
}

impl Stack {
    /// Logs what was decided for every follower, and wakes them.
    pub(super) fn spread_commands(&mut self, cx: &mut RoundContext<'_>) {
        let (Role::Control(control), Some(remote)) = (&mut self.shard.role, &mut self.shard.remote)
        else {
            return;
        };
        if remote.decided.is_empty() {
            return;
        }
        let count = remote.decided.len().min(control.room());
        for command in remote.decided.drain(..count) {
            self.stats.counters.count(Counter::FloodwallSocketCommands);
            for log in &mut control.logs {
                // There is room, which was looked at.
                let _ = log.push(command.clone());
            }
        }
        for follower in 1..=control.logs.len() as u16 {
            remote.call(usize::from(follower));
            if let Some(peers) = &mut cx.peers {
                peers.handoff.nudge(WorkerId(follower));
            }
        }
    }

    /// Carries out what the control shard has decided, all of it: at most as much as a log holds.
    pub(super) fn repeat_commands(&mut self, cx: &mut RoundContext<'_>) {
        if self.shard.remote.as_ref().is_some_and(|remote| remote.begins_again()) {
            self.open_again(cx);
        }
        while let Role::Follower(follower) = &mut self.shard.role
            && let Some(command) = follower.log.pop()
        {
            self.stats.counters.count(Counter::FloodwallSocketCommands);
            self.carry_out_here(cx, &command);
        }
    }

    /// Whether the control shard has decided something that waits for room in a log.
    pub(crate) fn has_decided(&self) -> bool {
        matches!(self.shard.role, Role::Control(_))
            && self.shard.remote.as_ref().is_some_and(|remote| !remote.decided.is_empty())
    }

    /// Whether a follower must carry something out before it sleeps.
    pub(crate) fn has_to_repeat(&mut self) -> bool {
        match &mut self.shard.role {
            Role::Follower(follower) => follower.log.ready() > 0,
            _ => false,
        }
    }
}
