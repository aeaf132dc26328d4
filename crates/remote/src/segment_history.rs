//! What a follower must repeat so that a fresh shard has the sockets that programs have open.
//!
//! Written by `follow` in `control.rs`, off the packets' path; read once, when a shard begins again
//! after a panic. Invariant: repeating what is here, in the order of the sockets' opening, makes
//! every socket what the control shard has made of it. Bound: a socket's opening, its last peer and
//! settings, and each group that it is in (`UDP_GROUPS_MAX`).

use core::mem;

use floodwall_udp::SocketId;

use super::command::{SocketChange, SocketCommand};

/// What was decided about one socket and still holds.
#[derive(Default)]
pub(super) struct SegmentHistory {
    /// Which socket.
    pub(super) socket: Option<SocketId>,
    /// The how-manieth of all that were opened here.
    pub(super) opened: u64,
    changes: Vec<SocketChange>,
}

impl SegmentHistory {
    /// Notes a change, in place of what it puts an end to.
    pub(super) fn note(&mut self, command: &SocketCommand, opened: u64) {
        let SocketCommand { socket, change, .. } = command;
        match change {
            SocketChange::Open { .. } => {
                (self.socket, self.opened) = (Some(*socket), opened);
                self.changes.clear();
            }
            SocketChange::Close => return *self = Self::default(),
            SocketChange::Connect { .. } | SocketChange::Disconnect => self.changes.retain(|old| {
                !matches!(old, SocketChange::Connect { .. } | SocketChange::Disconnect)
            }),
            SocketChange::Configure { .. } => {
                self.changes.retain(|old| !matches!(old, SocketChange::Configure { .. }));
            }
            SocketChange::Join { group, iface, .. } | SocketChange::Leave { group, iface } => {
                let same = |old: &SocketChange| match old {
                    SocketChange::Join { group: g, iface: i, .. } => (g, i) == (group, iface),
                    _ => false,
                };
                self.changes.retain(|old| !same(old));
            }
        }
        if !matches!(change, SocketChange::Leave { .. } | SocketChange::Disconnect) {
            self.changes.push(change.clone());
        }
    }

    /// What is to be repeated, and so noted again.
    pub(super) fn take(&mut self) -> Option<(SocketId, Vec<SocketChange>)> {
        Some((self.socket?, mem::take(&mut self.changes)))
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr};

    use floodwall_base::{Family, IfIndex};
    use floodwall_udp::{GroupFilter, SocketSettings};

    use super::super::slot::SlotId;
    use super::*;

    fn names(history: &SegmentHistory) -> String {
        let name = |change: &SocketChange| match change {
            SocketChange::Open { .. } => 'o',
            SocketChange::Connect { .. } => 'c',
            SocketChange::Configure { .. } => 's',
            SocketChange::Join { .. } => 'j',
            SocketChange::Disconnect | SocketChange::Leave { .. } | SocketChange::Close => '?',
        };
        history.changes.iter().map(name).collect()
    }

    #[test]
    fn only_what_still_holds_is_repeated() {
        let mut history = SegmentHistory::default();
        let (id, slot) = (SocketId::from_u64(3), SlotId { index: 0, generation: 1 });
        let settings = || Box::new(SocketSettings::new(Family::V4));
        let (any, iface) = ((Ipv4Addr::UNSPECIFIED, 7).into(), IfIndex(1));
        let group = |n| IpAddr::from([224, 0, 1, n]);
        let join = |n| SocketChange::Join {
            group: group(n),
            iface,
            filter: Box::new(GroupFilter::all_sources()),
        };
        let connect = SocketChange::Connect { remote: any, src_addr: any.ip(), zone: None };
        let open = SocketChange::Open { settings: settings(), local: any };
        for (change, expected) in [
            (open.clone(), "o"),
            (connect.clone(), "oc"),
            (SocketChange::Configure { settings: settings() }, "ocs"),
            (connect, "osc"),
            (join(1), "oscj"),
            (join(2), "oscjj"),
            (join(1), "oscjj"),
            (SocketChange::Leave { group: group(1), iface }, "oscj"),
            (SocketChange::Disconnect, "osj"),
            (SocketChange::Configure { settings: settings() }, "ojs"),
            (SocketChange::Close, ""),
            (open, "o"),
        ] {
            let command = SocketCommand { socket: id, change, slot, done: None };
            history.note(&command, 3);
            assert_eq!(names(&history), expected, "{command:?}");
        }
        assert_eq!(history.opened, 3);
        assert_eq!(history.take().map(|(socket, changes)| (socket, changes.len())), Some((id, 1)));
    }
}
