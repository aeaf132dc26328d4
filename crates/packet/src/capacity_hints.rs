//! What still fits into accounts, two bits each, for look-ups among a million of them.
//!
//! Triage checks for every packet whether its socket is full. The account of one socket among a
//! million is in no cache; these bits are (256 KiB a million). Written by `account.rs` where an
//! account passes a size, by its home's worker and by releasing threads; read by any thread, as a
//! hint.
//!
//! Invariant, proved by the model in `account.rs`: an account is shown as full only while it is
//! full; a release takes the word back before it is over. The other way round a hint may be late:
//! then a charge decides, and updates it.

use std::sync::Arc;

use floodwall_sync::shim::atomic::{AtomicU64, Ordering};

use crate::descriptor::{Class, Descriptor};
use crate::pool::SMALL_BYTES;

/// Accounts in one word.
const A_WORD: usize = 32;

/// The largest piece of memory for which an account has room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum CapacityHint {
    /// Any single frame.
    Frame = 0,
    /// A small one, and no more.
    Small = 1,
    /// A reference to memory of another handle.
    Reference = 2,
    /// Nothing at all.
    Nothing = 3,
}

impl CapacityHint {
    /// The room for `left` true bytes, where a frame has `frame` with its descriptor.
    pub(crate) const fn of(left: u64, frame: u64) -> Self {
        const REFERENCE: u64 = size_of::<Descriptor>() as u64;
        const SMALL: u64 = REFERENCE + SMALL_BYTES as u64;
        match left {
            _ if left >= frame => Self::Frame,
            SMALL.. => Self::Small,
            REFERENCE.. => Self::Reference,
            _ => Self::Nothing,
        }
    }

    const fn from_bits(bits: u64) -> Self {
        match bits & 3 {
            0 => Self::Frame,
            1 => Self::Small,
            2 => Self::Reference,
            _ => Self::Nothing,
        }
    }

    /// Whether a packet with a first chunk of this class may be charged. Of longer packets it
    /// returns true where it should be false, never the other way round.
    #[must_use]
    #[inline(always)]
    pub const fn admits(self, class: Class) -> bool {
        let needs = match class {
            Class::Frame | Class::Super => Self::Frame,
            Class::Small => Self::Small,
            Class::Reference => Self::Reference,
        };
        self as u8 <= needs as u8
    }
}

/// Two bits per account: what still fits into it.
pub struct CapacityHints(Box<[AtomicU64]>);

impl CapacityHints {
    /// For `count` accounts, numbered by their opener. Takes two bits each, once.
    #[must_use]
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(Self((0..count.div_ceil(A_WORD)).map(|_| AtomicU64::new(0)).collect()))
    }

    /// What fits into account `index`: a hint, exact for the worker while there are no other
    /// releases. [`CapacityHint::Frame`] for a number without an account. One load.
    #[must_use]
    #[inline(always)]
    pub fn of(&self, index: u32) -> CapacityHint {
        let word = self.0.get(index as usize / A_WORD);
        CapacityHint::from_bits(word.map_or(0, |word| word.load(Ordering::Acquire) >> shift(index)))
    }

    /// Stores what fits. Writes only on a change.
    pub(crate) fn set(&self, index: u32, room: CapacityHint) {
        let Some(word) = self.0.get(index as usize / A_WORD) else { return };
        let (mask, bits) = (3 << shift(index), (room as u64) << shift(index));
        let mut old = word.load(Ordering::Relaxed);
        while old & mask != bits {
            let new = old & !mask | bits;
            match word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }
}

/// The place of an account's bits in its word.
#[inline(always)]
const fn shift(index: u32) -> u32 {
    index % A_WORD as u32 * 2
}

impl core::fmt::Debug for CapacityHints {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Rooms({} words)", self.0.len())
    }
}
