//! `RssSpread`: the crowd's end of a host's several queues, as a card that spreads flows over them.
//!
//! Made by `wire.rs`: one wire for each worker, and each frame goes to the worker that owns it, by
//! the function that real devices' frames are handed over by (`wire::steer`). Invariants: frames of
//! one flow keep their order; what finds its wire full stays with the sender.

use std::os::fd::BorrowedFd;

use floodwall_base::Steering;
use floodwall_device::{Device, DeviceError, DeviceInfo, DeviceStats, MemoryWire};
use floodwall_packet::{Burst, PacketList, Pool};
use floodwall_wire::steer;

/// The crowd's end of the wires to all workers of a host.
pub(crate) struct RssSpread {
    info: DeviceInfo,
    wires: Vec<MemoryWire>,
    /// What is to leave by each of them.
    leaving: Vec<PacketList>,
    steering: Steering,
    /// Which one is looked at first.
    turn: usize,
}

impl RssSpread {
    /// One wire for each worker of `steering`; `None` without any.
    pub(crate) fn new(wires: Vec<MemoryWire>, steering: Steering) -> Option<Self> {
        let info = wires.first()?.info().clone();
        let leaving = wires.iter().map(|_| PacketList::new()).collect();
        Some(Self { info, wires, leaving, steering, turn: 0 })
    }
}

impl Device for RssSpread {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        let (count, mut taken) = (self.wires.len(), 0);
        for n in 0..count {
            if let Some(wire) = self.wires.get_mut((self.turn + n) % count) {
                taken += wire.receive(pool, burst)?;
            }
        }
        self.turn = (self.turn + 1) % count;
        Ok(taken)
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        while let Some(packet) = packets.pop_front() {
            let owner = steer::frame(&self.steering, packet.first());
            if let Some(list) = self.leaving.get_mut(usize::from(owner.0)) {
                list.push_back(packet);
            }
        }
        let mut left = 0;
        for (wire, list) in self.wires.iter_mut().zip(&mut self.leaving) {
            left += wire.transmit(list)?;
            packets.append(list);
        }
        Ok(left)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn pending(&self) -> bool {
        self.wires.iter().any(Device::pending)
    }

    fn stats(&self) -> DeviceStats {
        let mut all = DeviceStats::default();
        for stats in self.wires.iter().map(Device::stats) {
            all.rx_packets += stats.rx_packets;
            all.rx_bytes += stats.rx_bytes;
            all.tx_packets += stats.tx_packets;
            all.tx_bytes += stats.tx_bytes;
            all.tx_refused += stats.tx_refused;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use floodwall_base::{HashKey, WorkerId};
    use floodwall_device::pair;
    use floodwall_packet::{PacketBuf, PoolConfig};

    use super::*;

    /// A datagram's headers, as far as steering reads them.
    fn frame(pool: &Pool, is_v6: bool, port: u16) -> PacketBuf {
        let mut bytes = vec![0; 64];
        let ports = if is_v6 { 54 } else { 34 };
        match is_v6 {
            false => {
                bytes[12..14].copy_from_slice(&[0x08, 0x00]);
                (bytes[14], bytes[23]) = (0x45, 17);
            }
            true => {
                bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
                (bytes[14], bytes[20]) = (0x60, 17);
            }
        }
        bytes[ports..ports + 2].copy_from_slice(&port.to_be_bytes());
        pool.packet_from(&bytes).unwrap()
    }

    #[test]
    fn each_frame_arrives_at_its_owner_and_what_finds_no_room_stays() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let steering = Steering::new(HashKey::new(1, 2), 3);
        let (ours, mut theirs): (Vec<_>, Vec<_>) = (0..3).map(|_| pair(64)).unzip();
        let mut fan = RssSpread::new(ours, steering).unwrap();
        let (mut burst, mut all) = (Burst::new(), 0);
        for is_v6 in [false, true] {
            let mut packets = PacketList::new();
            (1000..1040).for_each(|port| packets.push_back(frame(&pool, is_v6, port)));
            assert_eq!(fan.transmit(&mut packets).unwrap(), 40);
            assert!(packets.is_empty());
            for (worker, wire) in (0..).zip(&mut theirs) {
                assert!(wire.receive(&pool, &mut burst).unwrap() > 3);
                for packet in burst.drain() {
                    assert_eq!(steer::frame(&steering, packet.first()), WorkerId(worker));
                    all += 1;
                }
            }
        }
        assert_eq!((all, fan.stats().tx_packets), (80, 80));
        let mut packets = PacketList::new();
        (0..65).for_each(|_| packets.push_back(frame(&pool, true, 7)));
        assert_eq!((fan.transmit(&mut packets).unwrap(), packets.len()), (64, 1));
        let one = packets.pop_front().unwrap();
        let mut back = PacketList::new();
        back.push_back(one);
        theirs[2].transmit(&mut back).unwrap();
        assert!(fan.pending());
        assert_eq!(fan.receive(&pool, &mut burst).unwrap(), 1);
    }
}
