//! What of a stream is drawn how, and the flows that it keeps at a time.
//!
//! Written by plans, read by `blast.rs` for every packet. Invariant: the memory of flows is taken
//! when the generator is made, and bounded.

use core::net::IpAddr;

use floodwall_base::PublicRandom;

use crate::plan::Stream;
use crate::range::Spread;

/// Flows that a stream keeps at most: as many as the classic generator.
pub const FLOWS_MAX: u32 = 65_536;

/// How each part of a packet is drawn from its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spreads {
    /// The source address.
    pub src_addr: Spread,
    /// Where it goes.
    pub dst_addr: Spread,
    /// From which port.
    pub src_port: Spread,
    /// To which port.
    pub dst_port: Spread,
    /// The payload's size.
    pub payload: Spread,
}

impl Spreads {
    /// Everything alike.
    #[must_use]
    pub const fn all(how: Spread) -> Self {
        Self { src_addr: how, dst_addr: how, src_port: how, dst_port: how, payload: how }
    }
}

/// So many flows side by side, each of [`Stream::flow_packets`] packets; then it gets other ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flows {
    /// How many, 1 to [`FLOWS_MAX`].
    pub count: u32,
    /// Whether a flow has all its packets before the next one's; else each packet belongs to one
    /// at random.
    pub in_sequence: bool,
}

/// The ends of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpreadAddrs {
    pub(crate) addrs: (IpAddr, IpAddr),
    pub(crate) ports: (u16, u16),
}

/// The flows under way.
#[derive(Debug, Default)]
pub(crate) struct KeptSpread {
    /// Ends, and packets that the flow still has; `None` before its first.
    flows: Vec<(Option<SpreadAddrs>, u32)>,
    /// Which one has its packets now, where they have them in sequence.
    current: usize,
    /// Flows begun.
    begun: u64,
}

impl KeptSpread {
    pub(crate) fn new(stream: &Stream) -> Self {
        let count = stream.flows.map_or(1, |flows| flows.count.clamp(1, FLOWS_MAX));
        Self { flows: vec![(None, 0); count as usize], current: 0, begun: 0 }
    }

    /// The ends of the next packet.
    pub(crate) fn next(
        &mut self,
        stream: &Stream,
        random: &mut PublicRandom,
    ) -> Option<SpreadAddrs> {
        let at = match stream.flows {
            Some(flows) if !flows.in_sequence && self.flows.len() > 1 => {
                random.below(self.flows.len() as u64) as usize
            }
            _ => self.current,
        };
        let (ends, left) = self.flows.get_mut(at)?;
        if *left == 0 {
            let (n, how) = (self.begun, stream.drawn());
            let addrs = stream.draw_addrs(n, random);
            let src_port = stream.src_ports.draw(how.src_port, n, random);
            let dst_port = stream.dst_ports.draw(how.dst_port, n, random);
            *ends = Some(SpreadAddrs { addrs, ports: (src_port, dst_port) });
            *left = stream.flow_packets.max(1);
            self.begun += 1;
        }
        *left -= 1;
        let (ends, ended) = (*ends, *left == 0);
        if ended && at == self.current {
            self.current = (at + 1) % self.flows.len().max(1);
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use floodwall_wire::TcpFlags;

    use super::*;
    use crate::plan::Content;

    fn stream(flows: Flows, flow_packets: u32) -> Stream {
        let content = Content::Tcp(TcpFlags::SYN);
        let dst_addrs = "10.0.0.0/8".parse().unwrap();
        Stream { content, dst_addrs, flows: Some(flows), flow_packets, ..Stream::default() }
    }

    #[test]
    fn flows_in_sequence_have_their_packets_in_a_row() {
        let stream = stream(Flows { count: 4, in_sequence: true }, 3);
        let (mut kept, mut random) = (KeptSpread::new(&stream), PublicRandom::new(1));
        let ends: Vec<_> = (0..24).map(|_| kept.next(&stream, &mut random).unwrap()).collect();
        assert!(ends.chunks(3).all(|flow| flow.iter().all(|ends| *ends == flow[0])));
        let flows: HashSet<_> = ends.chunks(3).map(|flow| flow[0].addrs.1).collect();
        assert_eq!(flows.len(), 8);
    }

    #[test]
    fn flows_side_by_side_have_as_many_packets_each() {
        let stream = stream(Flows { count: 100, in_sequence: false }, 10);
        let (mut kept, mut random) = (KeptSpread::new(&stream), PublicRandom::new(1));
        let (mut seen, mut repeats, mut last) = (HashMap::new(), 0, None);
        for _ in 0..20_000 {
            let to = kept.next(&stream, &mut random).unwrap().addrs.1;
            repeats += u32::from(last == Some(to));
            last = Some(to);
            *seen.entry(to).or_insert(0) += 1;
        }
        assert!(seen.values().all(|count| *count <= 10));
        assert!(seen.values().filter(|count| **count == 10).count() > 1800);
        assert!(repeats < 400, "they are mixed: {repeats}");
    }
}
