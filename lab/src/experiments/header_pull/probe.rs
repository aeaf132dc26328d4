//! Table 1, found out: limits and habits of each accessor, found by calling it.
//!
//! No limit is hard-coded. A limit is searched for by requesting more and more of a packet cut into
//! small pieces until the answer is no; whether outer headers are copied again, and whether
//! pointers to them stay good, is read off the bytes copied and the places of bytes before and
//! after a call. Serves the plan's claims about limits.

use floodwall_packet::Pool;

use crate::baselines::chain::{Cut, Kind, Sizes};

use super::access::{Accessor, HeaderAccess, Own};

/// The longest packet that is probed: an IPv6 packet without a jumbo payload.
const PACKET_MAX: usize = 40 + 65_535;
/// Length of the header of which the place in the packet is probed.
const SHORT: usize = 8;

/// What was found out about one accessor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Habits {
    /// The most bytes from the packet's start to a header's end; `None` where the packet's own
    /// length is the only limit.
    pub total_max: Option<usize>,
    /// The most bytes of one header, where that is less than `total_max`.
    pub single_max: Option<usize>,
    /// Bytes before the requested header are left alone.
    pub spares_outer: bool,
    /// A pointer to an outer header stays good.
    pub keeps_pointers: bool,
}

/// What an accessor is tried with.
pub struct Bench<'a> {
    /// Buffer sizes.
    pub sizes: Sizes,
    /// The product's memory.
    pub pool: &'a Pool,
    /// Bytes of scratch that the caller of the product brings.
    pub scratch: usize,
}

impl Bench<'_> {
    /// Whether the accessor gives `len` bytes from `off` of a packet cut as told, and rightly.
    fn gives(&self, accessor: Accessor, (off, len): (usize, usize), cut: &Cut) -> Option<bool> {
        let flat: Vec<u8> = (0..off + len).map(|n| (n % 251) as u8).collect();
        let mut room = vec![0; self.scratch];
        let mut own = Own::new(accessor, self.sizes, &flat, cut, self.pool, &mut room)?;
        Some(own.header(off, len) == Some(&flat[off..]))
    }

    /// A cut of which the last `len` bytes straddle: small pieces at the front and behind `off`.
    fn straddling(&self, off: usize, len: usize) -> Cut {
        let Sizes { header, data, .. } = self.sizes;
        let middle = len / 2;
        let front = (off + middle).min(header / 2);
        let rest = off + middle - front;
        let mut cut = vec![(Kind::Header, front)];
        cut.extend(self.sizes.clusters(rest));
        let mut left = len - middle;
        // A packet of the product has a bounded number of chunks.
        let piece = data.max(left / 16 + 1);
        while left > 0 {
            let here = left.min(piece);
            cut.push((if here > data { Kind::Cluster } else { Kind::Data }, here));
            left -= here;
        }
        cut
    }

    /// The greatest `n` for which `holds` is true; `None` where it is true for all.
    fn search(max: usize, holds: impl Fn(usize) -> Option<bool>) -> Option<Option<usize>> {
        if holds(max)? {
            return Some(None);
        }
        let (mut good, mut bad) = (1, max);
        while good + 1 < bad {
            let middle = usize::midpoint(good, bad);
            if holds(middle)? { good = middle } else { bad = middle }
        }
        Some(Some(good))
    }

    /// Finds out. `None` where the product's memory is too small for it.
    #[must_use]
    pub fn probe(&self, accessor: Accessor) -> Option<Habits> {
        let total = |end: usize| {
            let len = SHORT.min(end);
            self.gives(accessor, (end - len, len), &self.straddling(end - len, len))
        };
        let single = |len: usize| self.gives(accessor, (0, len), &self.straddling(0, len));
        let total_max = Self::search(PACKET_MAX, total)?;
        let single_max = Self::search(8 * self.sizes.cluster, single)?;
        let (spares_outer, keeps_pointers) = self.habits(accessor)?;
        Some(Habits {
            total_max,
            single_max: single_max.filter(|max| Some(*max) != total_max),
            spares_outer,
            keeps_pointers,
        })
    }

    /// Whether outer bytes are left alone, and pointers to them stay good.
    fn habits(&self, accessor: Accessor) -> Option<(bool, bool)> {
        // The inner header straddles; everything fits every accessor's limit.
        let (outer, inner) = (40, SHORT);
        let flat: Vec<u8> = (0..outer + inner).map(|n| n as u8).collect();
        // Clusters, so that no accessor can get by with the room of the first piece.
        let cut = vec![(Kind::Cluster, outer + inner / 2), (Kind::Data, inner / 2)];
        let mut room = vec![0; self.scratch];
        let mut own = Own::new(accessor, self.sizes, &flat, &cut, self.pool, &mut room)?;
        let other = match &own {
            // A second owner of the cluster, as a listener's copy is: it is read-only.
            Own::Chain { chain, .. } => Some(chain.share()),
            Own::Scratch { .. } => None,
        };
        let before = address(&own, 0);
        own.header(outer, inner)?;
        let keeps_pointers = address(&own, 0) == before;
        drop(other);
        Some((own.costs().copied_bytes <= inner as u64, keeps_pointers))
    }
}

/// The address of a byte, in any kind of buffer.
fn address(own: &Own<'_>, off: usize) -> Option<usize> {
    let byte = match own {
        Own::Chain { chain, .. } => chain.contiguous(off, 1)?,
        Own::Scratch { packet, .. } => packet.chunks_in(off, 1).next()?,
    };
    Some(byte.as_ptr().addr())
}
