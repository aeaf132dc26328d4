//! A packet as a chain of small buffers: what every accessor of the year 2000 works on.
//!
//! Models: the mbuf chain of 4.4BSD as of NetBSD 1.4 (`sys/sys/mbuf.h`, `sys/kern/uipc_mbuf.c`),
//! and how drivers fill it (`m_devget`): up to one header buffer in one small buffer, up to one
//! more in two with the packet split wherever the first is full, anything longer in clusters.
//! Simplified: no leading space left by drivers, no types, no packet header but the total length; a
//! cluster is shared by counting its owners. Space before the data of a cluster is never used, as
//! in 4.4BSD's macro.
//! Serves: every claim of the plan `header-pull`.

use std::rc::Rc;

/// Bytes of each kind of buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// In a packet's first small buffer (MHLEN).
    pub header: usize,
    /// In a further small buffer (MLEN).
    pub data: usize,
    /// In a cluster (MCLBYTES).
    pub cluster: usize,
}

/// The kind of buffer that holds a piece.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A packet's first small buffer.
    Header,
    /// A further small buffer.
    Data,
    /// A cluster: the only kind that can be shared.
    Cluster,
}

/// How a packet is cut: kind and bytes of each piece, in order.
pub type Cut = Vec<(Kind, usize)>;

impl Sizes {
    /// As the drivers of 4.4BSD cut a packet of `len` bytes.
    #[must_use]
    pub fn driver(self, len: usize) -> Cut {
        if len <= self.header {
            return vec![(Kind::Header, len)];
        }
        if len <= self.header + self.data {
            return vec![(Kind::Header, self.header), (Kind::Data, len - self.header)];
        }
        self.clusters(len)
    }

    /// In clusters, as many as it takes.
    #[must_use]
    pub fn clusters(self, len: usize) -> Cut {
        let whole = core::iter::repeat_n(self.cluster, len / self.cluster);
        let rest = Some(len % self.cluster).filter(|rest| *rest > 0);
        whole.chain(rest).map(|bytes| (Kind::Cluster, bytes)).collect()
    }

    /// Bytes of a buffer of one kind.
    #[must_use]
    pub const fn of(self, kind: Kind) -> usize {
        match kind {
            Kind::Header => self.header,
            Kind::Data => self.data,
            Kind::Cluster => self.cluster,
        }
    }
}

/// What reading headers has cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Costs {
    /// Headers requested: comparisons with a length.
    pub checks: u64,
    /// Requested from the accessor, because the first piece had not got them.
    pub calls: u64,
    /// Buffers taken.
    pub allocations: u64,
    /// Copies made.
    pub copies: u64,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// Packets lost because a header could not be made contiguous.
    pub failures: u64,
}

impl Costs {
    /// What came on top of `then`.
    #[must_use]
    pub const fn since(self, then: Self) -> Self {
        Self {
            checks: self.checks - then.checks,
            calls: self.calls - then.calls,
            allocations: self.allocations - then.allocations,
            copies: self.copies - then.copies,
            copied_bytes: self.copied_bytes - then.copied_bytes,
            failures: self.failures - then.failures,
        }
    }
}

impl core::ops::AddAssign for Costs {
    fn add_assign(&mut self, more: Self) {
        self.checks += more.checks;
        self.calls += more.calls;
        self.allocations += more.allocations;
        self.copies += more.copies;
        self.copied_bytes += more.copied_bytes;
        self.failures += more.failures;
    }
}

/// The packet is lost: a function of this era frees the chain that it fails on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost;

/// One piece of a packet.
#[derive(Clone, Debug)]
pub struct Piece {
    kind: Kind,
    room: Rc<Vec<u8>>,
    start: usize,
    len: usize,
}

impl Piece {
    fn new(kind: Kind, sizes: Sizes, bytes: &[u8]) -> Self {
        let mut room = vec![0; sizes.of(kind).max(bytes.len())];
        room[..bytes.len()].copy_from_slice(bytes);
        Self { kind, room: Rc::new(room), start: 0, len: bytes.len() }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.room[self.start..][..self.len]
    }

    /// Whether its buffer is a cluster.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        self.kind == Kind::Cluster
    }

    fn is_shared(&self) -> bool {
        Rc::strong_count(&self.room) > 1
    }

    /// Bytes that may be written behind the data.
    #[must_use]
    pub fn trailing(&self) -> usize {
        if self.is_shared() { 0 } else { self.room.len() - self.start - self.len }
    }

    /// Bytes that may be written before the data.
    #[must_use]
    pub fn leading(&self) -> usize {
        if self.is_shared() || self.is_cluster() { 0 } else { self.start }
    }
}

/// A packet. A clone shares its clusters and copies nothing else that could be written.
#[derive(Debug)]
pub struct Chain {
    sizes: Sizes,
    pieces: Vec<Piece>,
}

impl Chain {
    /// A packet cut in pieces; what the cut does not reach is left out.
    #[must_use]
    pub fn new(sizes: Sizes, flat: &[u8], cut: &Cut) -> Self {
        let mut chain = Self { sizes, pieces: Vec::with_capacity(cut.len() + 1) };
        let mut rest = flat;
        for &(kind, len) in cut {
            let (bytes, behind) = rest.split_at(len.min(rest.len()));
            chain.pieces.push(Piece::new(kind, sizes, bytes));
            rest = behind;
        }
        chain
    }

    /// Another packet that shares the memory of this one's clusters, as a copy for a second reader
    /// does.
    #[must_use]
    pub fn share(&self) -> Self {
        let pieces = self.pieces.iter().map(|piece| match piece.kind {
            Kind::Cluster => piece.clone(),
            _ => Piece { room: Rc::new(piece.room.to_vec()), ..piece.clone() },
        });
        Self { sizes: self.sizes, pieces: pieces.collect() }
    }

    /// What buffers can hold.
    #[must_use]
    pub const fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// All bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len).sum()
    }

    /// Whether there is none: a packet that was lost is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces, in order.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The first piece's bytes; none of a packet that was lost.
    #[must_use]
    pub fn first(&self) -> &[u8] {
        self.pieces.first().map(Piece::bytes).unwrap_or_default()
    }

    /// The packet in one piece.
    #[must_use]
    pub fn flat(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(Piece::bytes).copied().collect()
    }

    /// Number of the piece that has byte `off`, and where in it; empty pieces have none.
    #[must_use]
    pub fn locate(&self, off: usize) -> Option<(usize, usize)> {
        let mut left = off;
        for (number, piece) in self.pieces.iter().enumerate() {
            if left < piece.len {
                return Some((number, left));
            }
            left -= piece.len;
        }
        None
    }

    /// Whether one piece has all of `len` bytes from `off`.
    #[must_use]
    pub fn is_contiguous(&self, off: usize, len: usize) -> bool {
        let within = self.locate(off);
        within.is_some_and(|(number, within)| self.pieces[number].len - within >= len)
    }

    /// The `len` bytes from `off`, where one piece has them.
    #[must_use]
    pub fn contiguous(&self, off: usize, len: usize) -> Option<&[u8]> {
        let (number, within) = self.locate(off)?;
        self.pieces.get(number)?.bytes().get(within..within + len)
    }

    /// Frees everything.
    pub fn lose(&mut self) -> Lost {
        self.pieces.clear();
        Lost
    }

    /// Moves the first `wanted` bytes of the pieces behind `number` to the end of that piece, which
    /// has room for them.
    pub fn pull_forward(&mut self, number: usize, wanted: usize) {
        let taken = self.take_behind(number, wanted);
        let piece = &mut self.pieces[number];
        let end = piece.start + piece.len;
        if let Some(room) = Rc::get_mut(&mut piece.room) {
            room[end..end + taken.len()].copy_from_slice(&taken);
            piece.len += taken.len();
        }
        self.drop_empty_behind(number);
    }

    /// Moves the last `wanted` bytes of the piece `number` before those of the next, which has
    /// room.
    pub fn push_back(&mut self, number: usize, wanted: usize) {
        let piece = &mut self.pieces[number];
        piece.len -= wanted;
        let taken = piece.room[piece.start + piece.len..][..wanted].to_vec();
        let next = &mut self.pieces[number + 1];
        if let Some(room) = Rc::get_mut(&mut next.room) {
            next.start -= wanted;
            next.len += wanted;
            room[next.start..next.start + wanted].copy_from_slice(&taken);
        }
    }

    /// A fresh buffer of `kind` behind the piece `number`, filled with that piece's bytes from
    /// `within` on and as many of those behind as make `len` in total.
    pub fn insert_behind(&mut self, number: usize, within: usize, len: usize, kind: Kind) {
        let piece = &mut self.pieces[number];
        let mut bytes = piece.bytes()[within..].to_vec();
        piece.len = within;
        let missing = len - bytes.len();
        bytes.extend(self.take_behind(number, missing));
        self.drop_empty_behind(number);
        let fresh = Piece::new(kind, self.sizes, &bytes);
        self.pieces.insert(number + 1, fresh);
    }

    /// A fresh buffer of `kind` before everything, with the first `len` bytes moved into it.
    pub fn insert_first(&mut self, len: usize, kind: Kind) {
        let empty = Piece::new(kind, self.sizes, &[]);
        self.pieces.insert(0, empty);
        self.pull_forward(0, len);
    }

    /// Takes bytes off the front of what is behind a piece.
    fn take_behind(&mut self, number: usize, wanted: usize) -> Vec<u8> {
        let mut taken = Vec::with_capacity(wanted);
        for piece in self.pieces.iter_mut().skip(number + 1) {
            let here = (wanted - taken.len()).min(piece.len);
            taken.extend_from_slice(&piece.bytes()[..here]);
            piece.start += here;
            piece.len -= here;
        }
        taken
    }

    fn drop_empty_behind(&mut self, number: usize) {
        let mut at = 0;
        self.pieces.retain(|piece| {
            at += 1;
            at <= number + 1 || piece.len > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { header: 100, data: 104, cluster: 2048 };

    #[test]
    fn drivers_cut_as_4_4bsd_did() {
        let lens = |len| SIZES.driver(len).iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>();
        assert_eq!(lens(100), [100]);
        assert_eq!(lens(101), [100, 1]);
        assert_eq!(lens(204), [100, 104]);
        assert_eq!(SIZES.driver(205), [(Kind::Cluster, 205)]);
        assert_eq!(lens(4097), [2048, 2048, 1]);
    }

    #[test]
    fn moving_bytes_keeps_the_packet_and_a_shared_cluster() {
        let flat: Vec<u8> = (0..=255).collect();
        let cut = vec![(Kind::Header, 10), (Kind::Cluster, 200), (Kind::Data, 46)];
        let mut chain = Chain::new(SIZES, &flat, &cut);
        let other = chain.share();
        assert_eq!((chain.pieces[1].trailing(), chain.pieces[0].trailing()), (0, 90));
        chain.pull_forward(0, 20);
        chain.insert_behind(1, 5, 190, Kind::Cluster);
        assert_eq!(chain.flat(), flat);
        assert_eq!(other.flat(), flat);
        chain.insert_first(32, Kind::Header);
        assert_eq!((chain.first().len(), chain.flat()), (32, flat.clone()));
        assert_eq!(chain.contiguous(0, 32), flat.get(..32));
        let Lost = chain.lose();
        assert!(chain.is_empty());
    }
}
