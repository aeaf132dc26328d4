//! Wake groups: the wakers of a round, by the runtime that they belong to.
//!
//! Worker's side: [`Wakes`] gathers a round's wakers and hands them over once the packets have
//! left. Program's side: a runtime's adapter takes a [`RuntimeGroup`](runtime_group::RuntimeGroup),
//! spawns a driver task that polls it, and sets on each handle the group that waits there. Group 0
//! has no driver: its wakers are woken one by one, which is right for blocked threads and for
//! executors without an adapter.

pub(super) mod runtime_group;

use core::task::Waker;

use floodwall_base::limits;
use floodwall_sync::WakeGroup;
use floodwall_sync::lock::{Mutex, PoisonError};

/// Which runtime a waiter belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupId(pub(super) u8);

impl GroupId {
    /// No runtime: woken directly.
    pub const DIRECT: Self = Self(0);
}

/// The groups of one worker, and of all workers which are in use.
pub(super) struct WakeGroups {
    /// Of each worker, one for each runtime: group `n` is at `n - 1`.
    of_worker: Box<[Box<[WakeGroup]>]>,
    taken: Mutex<u64>,
}

impl WakeGroups {
    pub(super) fn new(workers: usize, sockets_max: usize) -> Self {
        let wakers = (2 * sockets_max).min(limits::REMOTE_GROUP_WAKERS);
        let groups = || (0..limits::REMOTE_GROUPS_MAX).map(|_| WakeGroup::new(wakers)).collect();
        Self { of_worker: (0..workers).map(|_| groups()).collect(), taken: Mutex::new(0) }
    }

    fn group(&self, worker: usize, id: GroupId) -> Option<&WakeGroup> {
        self.of_worker.get(worker)?.get(usize::from(id.0.checked_sub(1)?))
    }

    fn of_all(&self, id: GroupId) -> impl Iterator<Item = &WakeGroup> {
        (0..self.of_worker.len()).filter_map(move |worker| self.group(worker, id))
    }

    /// A group that no runtime has; group 0 where every one is taken.
    fn take(&self) -> GroupId {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free = (!*taken).trailing_zeros();
        if free as usize >= limits::REMOTE_GROUPS_MAX {
            return GroupId::DIRECT;
        }
        *taken |= 1 << free;
        let id = GroupId(free as u8 + 1);
        self.of_all(id).for_each(WakeGroup::open);
        id
    }

    fn give_back(&self, id: GroupId) {
        let Some(bit) = id.0.checked_sub(1) else { return };
        self.of_all(id).for_each(WakeGroup::close);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        *taken &= !(1 << bit);
    }
}

/// A round's wakers.
pub(super) struct Wakes {
    worker: usize,
    gathered: Vec<(GroupId, Option<Waker>)>,
    /// The groups among them.
    groups: u64,
}

impl Wakes {
    /// Memory for two wakers a socket.
    pub(super) fn new(worker: usize, sockets_max: usize) -> Self {
        Self { worker, gathered: Vec::with_capacity(2 * sockets_max), groups: 0 }
    }

    #[inline]
    pub(super) fn gather(&mut self, group: u8, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.groups |= 1 << (group & 63);
            self.gathered.push((GroupId(group), Some(waker)));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gathered.is_empty()
    }

    /// Hands all over: at most one foreign wake a runtime; group 0's directly. Returns how many
    /// wakers there were.
    pub(super) fn hand_over(&mut self, groups: &WakeGroups) -> usize {
        let mut left = core::mem::take(&mut self.groups);
        while left != 0 {
            let id = GroupId(left.trailing_zeros() as u8);
            left &= left - 1;
            let of_group = self.gathered.iter_mut().filter(|(group, _)| *group == id);
            let wakers = of_group.filter_map(|(_, waker)| waker.take());
            match groups.group(self.worker, id) {
                Some(group) => _ = group.hand_over(wakers),
                None => wakers.for_each(Waker::wake),
            }
        }
        let count = self.gathered.len();
        self.gathered.clear();
        count
    }
}
