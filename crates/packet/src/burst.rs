//! `Burst`: a bounded batch of packets, moved in one call.

use floodwall_base::limits::BURST_MAX;

use crate::buf::PacketBuf;

/// At most [`BURST_MAX`] packets, in order.
pub struct Burst {
    slots: [Option<PacketBuf>; BURST_MAX],
    len: usize,
    /// Its limit of packets: fewer where its filler shall take fewer.
    limit: usize,
}

impl Default for Burst {
    fn default() -> Self {
        Self::new()
    }
}

impl Burst {
    /// An empty burst.
    #[must_use]
    pub const fn new() -> Self {
        Self { slots: [const { None }; BURST_MAX], len: 0, limit: BURST_MAX }
    }

    /// How many packets it has.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many more fit.
    #[must_use]
    #[inline]
    pub const fn room(&self) -> usize {
        self.limit.saturating_sub(self.len)
    }

    /// Limits it to `limit` packets, until the next call: how many a device shall deliver. What it
    /// has beyond that stays.
    #[inline]
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(BURST_MAX);
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// Gives it back where the burst is full.
    #[inline]
    pub fn push(&mut self, packet: PacketBuf) -> Result<(), PacketBuf> {
        match self.slots.get_mut(self.len) {
            Some(slot) if self.len < self.limit => {
                *slot = Some(packet);
                self.len += 1;
                Ok(())
            }
            _ => Err(packet),
        }
    }

    /// Shows each packet from number `from` on to `sort`, which takes it or gives it back; those
    /// given back stay, in order.
    #[inline]
    pub fn sort_out(&mut self, from: usize, mut sort: impl FnMut(PacketBuf) -> Option<PacketBuf>) {
        let len = self.len;
        self.len = from.min(len);
        for index in self.len..len {
            let taken = self.slots.get_mut(index).and_then(Option::take);
            if let Some(kept) = taken.and_then(&mut sort)
                && let Some(slot) = self.slots.get_mut(self.len)
            {
                *slot = Some(kept);
                self.len += 1;
            }
        }
    }

    /// Takes all packets out, in order. What the caller leaves in the iterator is dropped.
    #[inline]
    pub fn drain(&mut self) -> impl Iterator<Item = PacketBuf> {
        let len = core::mem::take(&mut self.len);
        Drain(self.slots.get_mut(..len).unwrap_or_default().iter_mut())
    }

    /// The packet with this number.
    #[must_use]
    #[inline]
    pub fn get(&self, at: usize) -> Option<&PacketBuf> {
        self.slots.get(at)?.as_ref()
    }

    /// The packets in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &PacketBuf> {
        self.slots.iter().take(self.len).flatten()
    }

    /// The packets in order, for changing them.
    #[inline]
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut PacketBuf> {
        self.slots.iter_mut().take(self.len).flatten()
    }
}

/// What is left of a burst that is being emptied.
struct Drain<'a>(core::slice::IterMut<'a, Option<PacketBuf>>);

impl Iterator for Drain<'_> {
    type Item = PacketBuf;

    #[inline]
    fn next(&mut self) -> Option<PacketBuf> {
        self.0.next()?.take()
    }
}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl core::fmt::Debug for Burst {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Burst({} packets)", self.len)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Pool, PoolConfig};

    #[test]
    fn a_limited_burst_takes_no_more_and_keeps_what_it_has() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let packet = || pool.packet_from(&[1]).unwrap();
        let mut burst = Burst::new();
        burst.set_limit(2);
        assert!(burst.push(packet()).is_ok() && burst.push(packet()).is_ok());
        assert!(burst.push(packet()).is_err() && burst.room() == 0);
        burst.set_limit(1);
        assert_eq!((burst.len(), burst.room()), (2, 0));
        burst.set_limit(usize::MAX);
        assert_eq!(burst.room(), BURST_MAX - 2);
        assert!(burst.push(packet()).is_ok());
    }

    #[test]
    fn what_is_sorted_out_leaves_and_the_rest_closes_up_in_order() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let before = pool.available();
        let mut burst = Burst::new();
        (0..6).for_each(|mark| burst.push(pool.packet_from(&[mark]).unwrap()).unwrap());
        let mut out = Vec::new();
        burst.sort_out(2, |packet| match packet.first()[0] % 2 {
            0 => {
                out.push(packet.first()[0]);
                None
            }
            _ => Some(packet),
        });
        let kept: Vec<_> = burst.iter().map(|packet| packet.first()[0]).collect();
        assert_eq!((out, kept, burst.len()), (vec![2, 4], vec![0, 1, 3, 5], 4));
        burst.sort_out(0, |_| None);
        assert!(burst.is_empty() && pool.available() == before);
        burst.sort_out(9, |_| unreachable!("there is nothing"));
    }
}
