//! `RuntimeGroup`: one runtime's wake group, which its driver task polls.
//!
//! Made by [`Remote::runtime_group`](crate::Remote::runtime_group).

use core::task::{Context, Poll};
use std::sync::Arc;

use super::GroupId;
use crate::shared::RemoteShared;

/// One runtime's group. Its driver polls it; when it is dropped, what was handed over is woken and
/// workers wake this runtime's tasks one by one.
pub struct RuntimeGroup {
    shared: Arc<RemoteShared>,
    id: GroupId,
}

impl RuntimeGroup {
    pub(crate) fn new(shared: Arc<RemoteShared>) -> Self {
        let id = shared.groups.take();
        Self { shared, id }
    }

    /// The group to set on handles. [`GroupId::DIRECT`] where all groups are taken: then no driver
    /// is needed.
    #[must_use]
    pub const fn id(&self) -> GroupId {
        self.id
    }

    /// One poll of the driver task: wakes up to `most` tasks of each worker's. Ready: there may be
    /// more, so let others run and poll again. Pending: all were woken, and the driver is woken
    /// when a worker hands over again.
    pub fn poll_drive(&self, cx: &mut Context<'_>, most: usize) -> Poll<()> {
        let mut polled = Poll::Pending;
        for group in self.shared.groups.of_all(self.id) {
            if group.drive(cx, most).is_ready() {
                polled = Poll::Ready(());
            }
        }
        polled
    }
}

impl Drop for RuntimeGroup {
    fn drop(&mut self) {
        self.shared.groups.give_back(self.id);
    }
}

impl core::fmt::Debug for RuntimeGroup {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("RuntimeGroup").field(&self.id).finish()
    }
}
