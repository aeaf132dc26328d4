//! `PortSet`: a bit for each port that is in use.
//!
//! 8 KiB, which stay in the L1 cache where tables by port (256 KiB) do not: a flood at all ports is
//! refused from this set. Kept by UDP's and TCP's look-ups, passed to devices that refuse packets
//! early.

/// Bits of a 64-bit word.
const BITS: usize = u64::BITS as usize;
/// The number of words in a set.
const WORDS: usize = (1 << 16) / BITS;

/// A set of ports as a bitmap of 65,536 bits.
#[derive(Clone, Debug)]
pub struct PortSet {
    words: Box<[u64; WORDS]>,
    changes: u64,
}

impl Default for PortSet {
    fn default() -> Self {
        Self { words: Box::new([0; WORDS]), changes: 0 }
    }
}

impl PartialEq for PortSet {
    /// Whether both have the same ports, however they came.
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}

impl Eq for PortSet {}

impl PortSet {
    /// Whether a port is in it. One load.
    #[inline(always)]
    #[must_use]
    pub fn has(&self, port: u16) -> bool {
        let word = self.words.get(usize::from(port) / BITS).copied().unwrap_or(0);
        word >> (usize::from(port) % BITS) & 1 != 0
    }

    /// Puts a port in, or takes it out.
    pub fn set(&mut self, port: u16, has: bool) {
        if let Some(word) = self.words.get_mut(usize::from(port) / BITS) {
            let bit = 1 << (usize::from(port) % BITS);
            let before = *word;
            *word = if has { before | bit } else { before & !bit };
            self.changes += u64::from(*word != before);
        }
    }

    /// How often a port was added or removed: the owner of a copy refreshes it when this has
    /// changed.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// 64 ports each, port 0 the lowest bit of the first.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &*self.words
    }

    /// All ports in it, in order. Costs a look at each of 1,024 words.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        (0..).step_by(BITS).zip(self.words.iter()).flat_map(|(first, word): (u32, &u64)| {
            let mut left = *word;
            core::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                u16::try_from(first + bit).ok()
            })
        })
    }

    /// No port any more.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.changes += 1;
    }

    /// Puts in what another one has.
    pub fn add(&mut self, other: &Self) {
        for (word, others) in self.words.iter_mut().zip(other.words()) {
            *word |= others;
        }
        self.changes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_and_go_and_each_change_is_told() {
        let (mut set, mut other) = (PortSet::default(), PortSet::default());
        let ports = [0, 1, 63, 64, 443, u16::MAX];
        for port in ports {
            assert!(!set.has(port));
            set.set(port, true);
            set.set(port, true);
            assert!(set.has(port));
        }
        assert_eq!(set.changes(), ports.len() as u64);
        assert_eq!((set.words()[0], set.words()[1]), (1 << 63 | 3, 1));
        assert_eq!(set.iter().collect::<Vec<_>>(), ports);
        set.set(63, false);
        assert!(!set.has(63) && set.has(64) && set.changes() == 7);
        other.set(63, true);
        other.add(&set);
        assert!(ports.iter().all(|port| other.has(*port)));
        other.clear();
        assert!(other.words().iter().all(|word| *word == 0) && other.changes() == 3);
    }
}
