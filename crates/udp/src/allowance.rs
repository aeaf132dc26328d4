//! An account with a limit that lets one packet pass when nothing is charged, as Linux does.
//!
//! Used for what waits in a socket and for what it sends. Without the exception a limit below one
//! packet's true size would make the socket deaf or dumb. Invariant: more than the limit is
//! charged only while a single packet is.

use std::sync::Arc;

use floodwall_packet::{Account, CapacityHints, PacketBuf, Pool};

/// Above this limit there is no exception, so that sums cannot wrap (CVE-2025-22059).
const SANE_MAX: u64 = i32::MAX as u64 / 2;

/// A pool account with a byte limit.
#[derive(Debug)]
pub(crate) struct Allowance {
    account: Account,
    limit: u64,
}

impl Allowance {
    pub(crate) fn open(pool: &Pool, limit: u64) -> Option<Self> {
        Some(Self { account: pool.open_account(limit)?, limit })
    }

    /// An allowance that publishes in `rooms`, under `index`, how much room is left.
    pub(crate) fn open_watched(
        pool: &Pool,
        limit: u64,
        rooms: &Arc<CapacityHints>,
        index: u32,
    ) -> Option<Self> {
        Some(Self { account: pool.open_watched_account(limit, rooms, index)?, limit })
    }

    /// Whether a packet of this true size may be charged: a hint, the charge decides.
    #[inline]
    pub(crate) fn admits(&self, true_size: u32) -> bool {
        self.account.has_room(true_size) || self.is_unused()
    }

    /// Charges the packet; false, and nothing charged, where there is no room.
    #[inline(always)]
    pub(crate) fn charge(&self, packet: &mut PacketBuf) -> bool {
        packet.charge(&self.account).is_ok() || self.charge_beyond(packet)
    }

    #[cold]
    fn charge_beyond(&self, packet: &mut PacketBuf) -> bool {
        if !self.is_unused() {
            return false;
        }
        self.account.set_limit(u64::MAX);
        let charged = packet.charge(&self.account).is_ok();
        self.account.set_limit(self.limit);
        charged
    }

    #[cold]
    fn is_unused(&self) -> bool {
        self.limit <= SANE_MAX && self.account.used() == 0
    }

    #[inline(always)]
    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    #[inline(always)]
    pub(crate) fn used(&self) -> u64 {
        self.account.used()
    }

    /// Charges as if the limit were this, where that is less, until the next call.
    pub(crate) fn hold_to(&self, bytes: u64) {
        self.account.set_limit(self.limit.min(bytes));
    }

    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        self.account.set_limit(limit);
    }
}
