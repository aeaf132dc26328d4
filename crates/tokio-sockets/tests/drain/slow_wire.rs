//! A wire in memory with a delay and losses: the ends that two hosts attach.
#![expect(clippy::disallowed_methods, reason = "a delay of real packets passes in real time")]

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use floodwall_base::PublicRandom;
use floodwall_device::{
    Device, DeviceError, DeviceInfo, DeviceStats, Medium, MemoryWire, WireConfig, pair_of,
};
use floodwall_packet::{Burst, PacketBuf, PacketList, Pool};

/// What a wire does to packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireFaults {
    pub(crate) delay: Duration,
    /// Of a thousand packets, how many are lost.
    pub(crate) losses: u64,
    pub(crate) seed: u64,
}

/// One end: what arrives there is late, and some of it is lost.
pub(crate) struct SlowEnd {
    inner: MemoryWire,
    faults: WireFaults,
    random: PublicRandom,
    waiting: VecDeque<(Instant, PacketBuf)>,
    burst: Burst,
}

/// Both ends of a wire for IP packets.
pub(crate) fn slow_wire(faults: WireFaults) -> (SlowEnd, SlowEnd) {
    let (here, there) =
        pair_of(WireConfig { medium: Medium::Ip, capacity: 1024, ..WireConfig::default() });
    let end = |inner, number| SlowEnd {
        inner,
        faults,
        random: PublicRandom::new(2 * faults.seed + number),
        waiting: VecDeque::new(),
        burst: Burst::new(),
    };
    (end(here, 0), end(there, 1))
}

impl Device for SlowEnd {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        let now = Instant::now();
        let received = self.inner.receive(pool, &mut self.burst);
        for packet in self.burst.drain() {
            if self.random.below(1000) >= self.faults.losses {
                self.waiting.push_back((now + self.faults.delay, packet));
            }
        }
        let mut taken = 0;
        while burst.room() > 0
            && let Some((_, packet)) = self.waiting.pop_front_if(|(due, _)| *due <= now)
        {
            let _ = burst.push(packet);
            taken += 1;
        }
        match received {
            Err(error) if self.waiting.is_empty() && taken == 0 => Err(error),
            _ => Ok(taken),
        }
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        self.inner.transmit(packets)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn pending(&self) -> bool {
        let is_due = |(due, _): &(Instant, PacketBuf)| *due <= Instant::now();
        self.inner.pending() || self.waiting.front().is_some_and(is_due)
    }

    fn stats(&self) -> DeviceStats {
        self.inner.stats()
    }
}
