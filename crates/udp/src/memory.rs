//! `SocketMemory`: what the sockets of a shard hold together, and how much more each may take.
//!
//! Checked by `input.rs` before anything is charged, and updated after. Invariants: `held` is the
//! sum of what each socket's account had charged when it was last looked at, or more: every charge
//! is made here, so it is never too low, and what programs released meanwhile is found when the
//! socket is used again, or by a review of a few sockets a round while much seems to be held. The
//! pool's free count is not used: it shows nothing about sockets, since packets on their way are
//! not free either.
//!
//! A socket may hold as much as is left of the limit (a dynamic threshold: Choudhury and Hahne,
//! IEEE/ACM Transactions on Networking 6, 1998), so that sockets that hold much are limited first
//! and something stays for the next one, and [`UDP_MEMORY_FLOOR`] as long as not even a quarter
//! beyond the limit is held. From there to a half beyond only sockets have it that released
//! something since they were last refused: sockets that are read go on. Linux's `net.ipv4.udp_mem`
//! is one number for all: there the first to come have it.
//!
//! # Under flood
//! Reachable by any sender, through sockets that are not read. Bound: one and a half times the
//! limit (`UDP_MEMORY`, a sixth of the pool's frames at most), and one datagram. Worst work per
//! datagram: a line and some sums; [`REVIEW_MAX`] accounts a round while memory is short. Dropped:
//! the new datagram at sockets that hold much, before its checksum; the socket's own limit is
//! lowered then, so that triage refuses the next one. Honest traffic loses room in sockets that lag
//! behind; where a thousand sockets hold their floor, also the first datagram of sockets that were
//! never read. Counters: `UdpMemErrors`, `Udp6MemErrors`. Not counted: packets that a program keeps
//! of a socket that it has closed.

use floodwall_base::limits::UDP_MEMORY_FLOOR;
use floodwall_packet::Pool;

use crate::ready::ReadyList;

/// With half beyond the limit a quarter of the frames: the shares of all parts are listed together
/// in `stack/src/memory.rs`.
const POOL_DIVISOR: u64 = 6;
/// Of a pool with hardly any frames: some floors, or one socket would not have its own.
const LIMIT_MIN: u64 = 16 * MEMORY_FLOOR;
const MEMORY_FLOOR: u64 = UDP_MEMORY_FLOOR as u64;
/// Accounts that one round looks at.
const REVIEW_MAX: usize = 16;

/// What one socket holds.
#[derive(Clone, Copy, Default, Debug)]
struct BufferHolder {
    held: u64,
    /// Datagrams that it has taken since it was opened.
    taken: u64,
    /// It gave something back since it was last refused.
    gave: bool,
    /// Its account's limit is lower than its own.
    cut: bool,
}

/// The memory accounting of all UDP sockets of a shard.
#[derive(Debug)]
pub(crate) struct SocketMemory {
    limit: u64,
    held: u64,
    holders: Vec<BufferHolder>,
    /// The sockets that hold something; the least recently reviewed is first.
    order: ReadyList,
    cuts: usize,
}

impl SocketMemory {
    /// For at most so many sockets.
    pub(crate) fn new(limit: u64, sockets: usize) -> Self {
        let holders = Vec::with_capacity(sockets);
        Self { limit, held: 0, holders, order: ReadyList::new(sockets), cuts: 0 }
    }

    /// Makes a place for one more socket.
    pub(crate) fn grow(&mut self) {
        self.holders.push(BufferHolder::default());
        self.order.grow();
    }

    /// Leaves most of the pool to others. Called whenever a socket is opened, so before any holds
    /// something.
    pub(crate) fn fit(&mut self, pool: &Pool) {
        self.limit = self.limit.min((pool.frames_true_bytes() / POOL_DIVISOR).max(LIMIT_MIN));
    }

    /// True bytes that all hold, or more.
    pub(crate) const fn held(&self) -> u64 {
        self.held
    }

    /// How much the socket may hold, of which `used` is charged now; 0: it takes nothing.
    #[inline(always)]
    pub(crate) fn allowed(&mut self, index: u32, used: u64) -> u64 {
        let Some(holder) = self.holders.get_mut(index as usize) else { return 0 };
        if used < holder.held {
            self.held -= holder.held - used;
            holder.held = used;
            holder.gave = true;
        }
        match self.limit.checked_sub(self.held) {
            Some(left) => left.max(MEMORY_FLOOR),
            None => beyond(self.held - self.limit, self.limit, holder.gave),
        }
    }

    /// The socket has taken a datagram, and so much is charged to it now.
    #[inline(always)]
    pub(crate) fn note(&mut self, index: u32, used: u64) {
        let Some(holder) = self.holders.get_mut(index as usize) else { return };
        if holder.held == 0 {
            self.order.mark(index);
        }
        self.held = (self.held + used).saturating_sub(holder.held);
        holder.held = used;
        holder.taken += 1;
    }

    /// Datagrams that the socket has taken since it was opened.
    pub(crate) fn taken(&self, index: u32) -> u64 {
        self.holders.get(index as usize).map_or(0, |holder| holder.taken)
    }

    /// The socket was refused a datagram.
    pub(crate) fn refused(&mut self, index: u32) {
        if let Some(holder) = self.holders.get_mut(index as usize) {
            holder.gave = false;
        }
    }

    /// Whether the socket's account has a lower limit than its own.
    #[inline(always)]
    pub(crate) fn is_cut(&self, index: u32) -> bool {
        self.cuts > 0 && self.holders.get(index as usize).is_some_and(|holder| holder.cut)
    }

    /// Restores the account's own limit, until a review lowers it again; returns whether it was
    /// lowered.
    #[inline(always)]
    pub(crate) fn lift(&mut self, index: u32) -> bool {
        let was_cut = self.is_cut(index);
        if was_cut {
            self.set_cut(index, false);
        }
        was_cut
    }

    /// It was, or no longer is.
    pub(crate) fn set_cut(&mut self, index: u32, cut: bool) {
        let Some(holder) = self.holders.get_mut(index as usize) else { return };
        self.cuts = (self.cuts + usize::from(cut)).saturating_sub(usize::from(holder.cut));
        holder.cut = cut;
    }

    /// Whether some sockets are to be looked at again.
    #[inline]
    pub(crate) const fn wants_review(&self) -> bool {
        self.cuts > 0 || self.held > self.limit / 2
    }

    /// The sockets to review in this round, one after the other: each is reported to
    /// [`SocketMemory::reviewed`].
    pub(crate) fn take_due(&mut self) -> impl Iterator<Item = u32> + use<> {
        let mut due = [0; REVIEW_MAX];
        let mut count = 0;
        for slot in &mut due {
            let Some(index) = self.order.take() else { break };
            *slot = index;
            count += 1;
        }
        due.into_iter().take(count)
    }

    /// A socket of [`SocketMemory::take_due`] holds something still, or nothing.
    pub(crate) fn reviewed(&mut self, index: u32, used: u64) {
        if used > 0 {
            self.order.mark(index);
        }
    }

    /// The socket is closed.
    pub(crate) fn forget(&mut self, index: u32) {
        self.set_cut(index, false);
        self.order.remove(index);
        if let Some(holder) = self.holders.get_mut(index as usize) {
            self.held -= holder.held;
            *holder = BufferHolder::default();
        }
    }
}

/// What one may hold while all hold so much more than the limit.
#[cold]
const fn beyond(more: u64, limit: u64, gave: bool) -> u64 {
    if more < limit / 4 || gave && more < limit / 2 { MEMORY_FLOOR } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 100 * MEMORY_FLOOR;
    const PIECE: u64 = MEMORY_FLOOR / 2;

    fn memory(sockets: u32) -> SocketMemory {
        let mut memory = SocketMemory::new(LIMIT, sockets as usize);
        (0..sockets).for_each(|_| memory.grow());
        memory
    }

    /// Fills sockets that hold `used` with pieces as long as each may take some.
    fn fill(memory: &mut SocketMemory, used: &mut [u64], indices: core::ops::Range<usize>) {
        for index in indices {
            while memory.allowed(index as u32, used[index]) >= used[index] + PIECE {
                used[index] += PIECE;
                memory.note(index as u32, used[index]);
            }
            memory.refused(index as u32);
        }
    }

    #[test]
    fn what_one_may_hold_falls_with_what_all_hold_and_never_below_the_floor() {
        let (mut memory, mut used) = (memory(200), [0; 200]);
        fill(&mut memory, &mut used, 0..200);
        assert!(used.is_sorted_by(|a, b| a >= b) && used[0] == LIMIT / 2, "{used:?}");
        assert!(used[20] == MEMORY_FLOOR && used[199] == 0, "a quarter beyond, the rest get none");
        assert_eq!(memory.held(), used.iter().sum());
        assert!(memory.held() >= LIMIT / 4 * 5 && memory.held() < LIMIT / 4 * 5 + PIECE);
        (0..200).for_each(|index| memory.forget(index));
        assert_eq!((memory.held(), memory.wants_review()), (0, false));
    }

    #[test]
    fn beyond_the_limit_a_socket_that_gives_back_has_its_floor() {
        let (mut memory, mut used) = (memory(300), [0; 300]);
        used[..2].fill(PIECE);
        (0..2).for_each(|index| memory.note(index, PIECE));
        fill(&mut memory, &mut used, 2..300);
        assert_eq!(memory.allowed(299, 0), 0, "it was never read");
        for _ in 0..1000 {
            used[0] = 0;
            fill(&mut memory, &mut used, 0..1);
            assert_eq!((used[0], memory.allowed(0, MEMORY_FLOOR)), (MEMORY_FLOOR, 0));
        }
        // What the other gave back others take, and it has its floor all the same.
        used[1] = 0;
        assert_eq!(memory.allowed(1, 0), MEMORY_FLOOR);
        fill(&mut memory, &mut used, 2..300);
        assert_eq!(memory.allowed(299, used[299]), 0);
        fill(&mut memory, &mut used, 1..2);
        assert_eq!(used[1], MEMORY_FLOOR);
        assert!(memory.held() < LIMIT / 2 * 3);
    }

    #[test]
    fn a_review_finds_what_was_given_back_by_any_thread() {
        let mut memory = memory(100);
        (0..100).for_each(|index| memory.note(index, MEMORY_FLOOR));
        assert_eq!((memory.held(), memory.wants_review()), (LIMIT, true));
        // All but the last ten were read, and nothing more comes to them.
        let used = |index| if index < 90 { 0 } else { MEMORY_FLOOR };
        let mut seen = 0;
        while memory.wants_review() {
            for index in memory.take_due() {
                memory.allowed(index, used(index));
                memory.reviewed(index, used(index));
                seen += 1;
            }
        }
        assert_eq!(seen, 4 * REVIEW_MAX, "until half of the limit is held, and no further");
        assert_eq!(memory.held(), LIMIT - 64 * MEMORY_FLOOR);
    }

    #[test]
    fn one_that_is_cut_is_looked_at_until_it_is_not() {
        let mut memory = memory(2);
        memory.note(1, MEMORY_FLOOR);
        memory.set_cut(1, true);
        memory.set_cut(1, true);
        for _ in 0..3 {
            assert!(memory.is_cut(1) && memory.wants_review());
            assert_eq!(memory.take_due().collect::<Vec<_>>(), [1]);
            memory.reviewed(1, MEMORY_FLOOR);
        }
        memory.set_cut(1, false);
        assert!(!memory.is_cut(1) && !memory.wants_review());
        memory.set_cut(1, true);
        memory.forget(1);
        assert!(!memory.is_cut(1) && !memory.wants_review());
        assert_eq!((memory.held(), memory.take_due().count()), (0, 0));
    }
}
