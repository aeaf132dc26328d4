//! The receive queue of a ping or raw socket: packets to be read, and errors to be reported.
//!
//! Used by `ping.rs` and `raw.rs`. Programs get bytes copied out, so what waits is all that a
//! socket holds, and plain sums kept with the queue are exact: no account of the pool is needed.
//! Invariants: what waits counts with all the memory that it keeps alive; an empty queue takes one
//! packet of any size, or a low limit would block the socket; what waits stays, the new packet is
//! dropped. Not here: which packets a socket accepts.
//!
//! # Under flood
//! Reachable by any sender from which a socket receives. Bound: the socket's limit in true bytes,
//! [`RAW_CHUNKS_MAX`] chunks where they are shared, [`ICMP_REPORTS_MAX`] errors; and as much as all
//! sockets of its kind leave of their part of the pool (`ICMP_SOCKETS_DIVISOR`; a dynamic
//! threshold: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6, 1998). Worst work per
//! refused packet: a compare and a sum over the sockets. When full the new packet is refused:
//! `IcmpSocketFull` where the packet is dropped for it, and the socket's own count of drops.

use floodwall_base::limits::{ICMP_REPORTS_MAX, RAW_CHUNKS_MAX};
use floodwall_packet::{PacketBuf, PacketList};
use floodwall_wire::icmp_report::IcmpReport;

/// A bounded queue of packets and errors for one socket.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    queue: PacketList,
    /// True bytes that live as long as what waits.
    held: u64,
    /// Chunks of what waits.
    chunks: usize,
    limit: u64,
    reports: [Option<IcmpReport>; ICMP_REPORTS_MAX],
    /// Packets refused for want of room.
    pub(crate) drops: u64,
}

impl ReceiveQueue {
    /// For `limit` true bytes.
    pub(crate) fn new(limit: u64) -> Self {
        let (queue, reports) = (PacketList::new(), [None; ICMP_REPORTS_MAX]);
        Self { queue, held: 0, chunks: 0, limit, reports, drops: 0 }
    }

    /// True bytes of what waits.
    pub(crate) const fn held(&self) -> u64 {
        self.held
    }

    /// Whether the queue is full: checked before any copy is made. Counts the refusal.
    pub(crate) fn refuses(&mut self) -> bool {
        let full =
            !self.queue.is_empty() && (self.held >= self.limit || self.chunks >= RAW_CHUNKS_MAX);
        self.drops += u64::from(full);
        full
    }

    /// Queues a packet, where all sockets together leave `left` true bytes; gives it back where
    /// there is no room, and counts that.
    pub(crate) fn push(&mut self, packet: PacketBuf, left: u64) -> Result<(), PacketBuf> {
        let (held, limit) = (u64::from(packet.held_size()), self.limit.min(left));
        if !self.queue.is_empty() && self.held.saturating_add(held) > limit {
            self.drops += 1;
            return Err(packet);
        }
        self.held = self.held.saturating_add(held);
        self.chunks += packet.chunk_count();
        self.queue.push_back(packet);
        Ok(())
    }

    /// The oldest packet.
    pub(crate) fn take(&mut self) -> Option<PacketBuf> {
        let packet = self.queue.pop_front()?;
        self.held = self.held.saturating_sub(u64::from(packet.held_size()));
        self.chunks = self.chunks.saturating_sub(packet.chunk_count());
        Some(packet)
    }

    /// Queues an error, unless the maximum waits already.
    pub(crate) fn report(&mut self, report: IcmpReport) {
        if let Some(place) = self.reports.iter_mut().find(|r| r.is_none()) {
            *place = Some(report);
        }
    }

    /// The oldest error, once.
    pub(crate) fn take_report(&mut self) -> Option<IcmpReport> {
        let report = self.reports.first_mut()?.take();
        if report.is_some() {
            self.reports.rotate_left(1);
        }
        report
    }

    /// How many packets wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use floodwall_base::IfIndex;
    use floodwall_packet::{Pool, PoolConfig};

    use super::*;

    /// All that there is.
    const MOST: u64 = u64::MAX;

    fn pool() -> Pool {
        Pool::new(&PoolConfig { small: 256, frames: 16, references: 512, ..Default::default() })
            .unwrap()
    }

    #[test]
    fn an_inbox_keeps_to_its_limit_and_an_empty_one_takes_any() {
        let pool = pool();
        let one = u64::from(pool.packet_from(b"x").unwrap().true_size());
        for limit in [0, 1, one - 1, one, one * 3, one * 4 - 1] {
            let mut inbox = ReceiveQueue::new(limit);
            let taken =
                (0..9).filter(|_| inbox.push(pool.packet_from(b"x").unwrap(), MOST).is_ok());
            let most = (limit / one).max(1) as usize;
            assert_eq!((taken.count(), inbox.len(), inbox.drops), (most, most, 9 - most as u64));
            while inbox.take().is_some() {}
            assert_eq!((inbox.held, inbox.chunks), (0, 0));
        }
    }

    #[test]
    fn shared_packets_count_the_frames_that_they_pin_and_their_chunks() {
        let pool = pool();
        let packet = pool.packet_from(&[7; 1400]).unwrap();
        let frame = u64::from(packet.true_size());
        let mut inbox = ReceiveQueue::new(frame * 3);
        let shared = || packet.share(&pool, 0, 1400).unwrap();
        assert!(inbox.push(shared(), MOST).is_ok() && inbox.push(shared(), MOST).is_ok());
        assert!(inbox.push(shared(), MOST).is_err(), "each pins a frame, and has a descriptor");
        let mut inbox = ReceiveQueue::new(u64::MAX);
        let taken = (0..600).take_while(|_| !inbox.refuses() && inbox.push(shared(), MOST).is_ok());
        assert_eq!(taken.count(), RAW_CHUNKS_MAX);
    }

    #[test]
    fn what_others_hold_lowers_the_limit_and_an_empty_one_takes_any() {
        let pool = pool();
        let one = u64::from(pool.packet_from(b"x").unwrap().true_size());
        let (mut first, mut second) = (ReceiveQueue::new(MOST), ReceiveQueue::new(MOST));
        let all = 10 * one;
        let fill = |inbox: &mut ReceiveQueue, others: u64| {
            (0..20).for_each(|_| {
                let left = all.saturating_sub(others + inbox.held());
                let _ = inbox.push(pool.packet_from(b"x").unwrap(), left);
            });
            inbox.held() / one
        };
        assert_eq!(fill(&mut first, 0), 5, "half of all");
        assert_eq!(fill(&mut second, first.held()), 3, "and half of the rest, and one");
        let mut third = ReceiveQueue::new(MOST);
        assert_eq!(fill(&mut third, 100 * one), 1);
    }

    #[test]
    fn errors_are_told_once_in_order_and_never_more_than_may_wait() {
        let mut inbox = ReceiveQueue::new(0);
        let addr = Ipv4Addr::LOCALHOST.into();
        for info in 0..20 {
            let (offender, dst_addr, iface) = (addr, addr, IfIndex(1));
            inbox.report(IcmpReport { offender, iface, dst_addr, kind: 3, code: 1, info });
        }
        for info in 0..ICMP_REPORTS_MAX as u32 {
            assert_eq!(inbox.take_report().map(|r| r.info), Some(info));
        }
        assert_eq!(inbox.take_report(), None);
    }
}
