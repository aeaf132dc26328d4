//! The accessors behind one face, each with its own copy of the packet, and the flat packet as
//! judge.
//!
//! The walker (`walk.rs`) reads through [`HeaderAccess`]; each implementation counts. Invariant:
//! what an accessor gives is compared with the flat packet ([`Audit`]), so a wrong byte is a
//! number, never luck.

use floodwall_packet::{AccessCounters, PacketBuf, Pool};
use serde::{Deserialize, Serialize};

use crate::baselines::chain::{Chain, Costs, Cut, Sizes};
use crate::baselines::{pulldown::pulldown, pullup::pullup, pullup2::pullup2, scratch};

/// The four ways to a header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accessor {
    /// 4.4BSD.
    Pullup,
    /// NRL.
    Pullup2,
    /// KAME.
    Pulldown,
    /// The product.
    Scratch,
}

impl Accessor {
    /// All of them, in the order of the source's Table 1, ours last.
    pub const ALL: [Self; 4] = [Self::Pullup, Self::Pullup2, Self::Pulldown, Self::Scratch];

    /// In names of numbers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pullup => "pullup",
            Self::Pullup2 => "pullup2",
            Self::Pulldown => "pulldown",
            Self::Scratch => "scratch",
        }
    }

    /// For humans.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Pullup => "m_pullup",
            Self::Pullup2 => "m_pullup2",
            Self::Pulldown => "m_pulldown",
            Self::Scratch => "scratch",
        }
    }
}

/// A source of headers.
pub trait HeaderAccess {
    /// The `len` bytes from `off`; `None` where they cannot be had.
    fn header(&mut self, off: usize, len: usize) -> Option<&[u8]>;

    /// A length check on a fresh copy that is contiguous by construction.
    fn check_own_copy(&mut self) {}
}

/// The packet in one piece: the judge.
pub struct Flat<'a>(pub &'a [u8]);

impl HeaderAccess for Flat<'_> {
    fn header(&mut self, off: usize, len: usize) -> Option<&[u8]> {
        self.0.get(off..off.checked_add(len)?)
    }
}

/// One accessor on its own copy of a packet.
pub enum Own<'p> {
    /// On a chain of the year 2000.
    Chain {
        /// Which of the three.
        accessor: Accessor,
        /// The copy.
        chain: Chain,
        /// What it has cost.
        costs: Costs,
    },
    /// On the product's packet.
    Scratch {
        /// The copy.
        packet: PacketBuf,
        /// What the product counts.
        access: AccessCounters,
        /// What it has cost.
        costs: Costs,
        /// Where straddling headers go; the caller's.
        room: &'p mut [u8],
    },
}

impl<'p> Own<'p> {
    /// A copy for `accessor`, cut as told; `None` where the pool is used up.
    pub fn new(
        accessor: Accessor,
        sizes: Sizes,
        flat: &[u8],
        cut: &Cut,
        pool: &Pool,
        room: &'p mut [u8],
    ) -> Option<Self> {
        let costs = Costs::default();
        Some(match accessor {
            Accessor::Scratch => {
                let packet = scratch::packet(pool, flat, cut)?;
                Self::Scratch { packet, access: AccessCounters::default(), costs, room }
            }
            _ => Self::Chain { accessor, chain: Chain::new(sizes, flat, cut), costs },
        })
    }

    /// What it has cost so far.
    #[must_use]
    pub fn costs(&self) -> Costs {
        match self {
            Self::Chain { costs, .. } => *costs,
            Self::Scratch { access, costs, .. } => Costs {
                copies: access.copies,
                copied_bytes: access.copied_bytes,
                allocations: access.allocations,
                failures: access.failures,
                ..*costs
            },
        }
    }

    /// Whether one piece has the bytes now.
    #[must_use]
    pub fn is_contiguous(&self, off: usize, len: usize) -> bool {
        match self {
            Self::Chain { chain, .. } => chain.is_contiguous(off, len),
            Self::Scratch { packet, .. } => {
                let mut pieces = packet.chunks_in(off, len);
                pieces.next().is_some_and(|piece| piece.len() == len)
            }
        }
    }

    /// The packet in one piece; empty where it was lost.
    #[must_use]
    pub fn flat(&self) -> Vec<u8> {
        match self {
            Self::Chain { chain, .. } => chain.flat(),
            Self::Scratch { packet, .. } => packet.chunks().flatten().copied().collect(),
        }
    }
}

impl HeaderAccess for Own<'_> {
    fn header(&mut self, off: usize, len: usize) -> Option<&[u8]> {
        match self {
            Self::Chain { accessor, chain, costs } => {
                costs.checks += 1;
                if chain.first().len() < off + len {
                    costs.calls += 1;
                    let done = match accessor {
                        Accessor::Pullup => pullup(chain, off + len, costs),
                        Accessor::Pullup2 => pullup2(chain, off + len, costs),
                        _ => pulldown(chain, off, len, costs),
                    };
                    done.ok()?;
                }
                chain.contiguous(off, len)
            }
            Self::Scratch { packet, access, costs, room } => {
                costs.checks += 1;
                costs.calls += u64::from(packet.first().len() < off + len);
                scratch::header(packet, off, len, room, access)
            }
        }
    }

    fn check_own_copy(&mut self) {
        match self {
            Self::Chain { costs, .. } | Self::Scratch { costs, .. } => costs.checks += 1,
        }
    }
}

/// One requested header, and what it has cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Where it begins.
    pub off: usize,
    /// How long it is.
    pub len: usize,
    /// Whether one piece had it before.
    pub was_contiguous: bool,
    /// What this asking has cost.
    pub costs: Costs,
}

/// An accessor on its own copy: every answer is compared with the flat packet, and every request is
/// noted with its cost.
pub struct Audit<'a> {
    own: Own<'a>,
    flat: &'a [u8],
    last: Option<(usize, usize, bool)>,
    settled: Costs,
    asked: Vec<Asked>,
    wrong: u64,
}

impl<'a> Audit<'a> {
    /// Over `own`, a copy of `flat`.
    #[must_use]
    pub fn new(own: Own<'a>, flat: &'a [u8]) -> Self {
        let settled = own.costs();
        Self { own, flat, last: None, settled, asked: Vec::new(), wrong: 0 }
    }

    /// Attributes what was spent since the last asking to it.
    fn settle(&mut self) {
        let (now, then) = (self.own.costs(), self.settled);
        self.settled = now;
        if let Some((off, len, was_contiguous)) = self.last.take() {
            let costs = now.since(then);
            self.asked.push(Asked { off, len, was_contiguous, costs });
        }
    }

    /// All requested headers, what they cost, and how many answers were wrong.
    #[must_use]
    pub fn finish(mut self) -> (Vec<Asked>, Costs, u64) {
        self.settle();
        (self.asked, self.settled, self.wrong)
    }
}

impl HeaderAccess for Audit<'_> {
    fn header(&mut self, off: usize, len: usize) -> Option<&[u8]> {
        self.settle();
        self.last = Some((off, len, self.own.is_contiguous(off, len)));
        let bytes = self.own.header(off, len)?;
        self.wrong += u64::from(self.flat.get(off..off + len) != Some(bytes));
        Some(bytes)
    }

    fn check_own_copy(&mut self) {
        self.own.check_own_copy();
    }
}
