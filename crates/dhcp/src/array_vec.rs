//! `ArrayVec`: a list of at most `N` values, without memory of its own.
//!
//! Used in leases, so that one is a plain value. Invariant: what does not fit is not there, and
//! [`ArrayVec::push`] reports it.

/// A list of at most `N` values, stored inline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrayVec<T, const N: usize> {
    items: [Option<T>; N],
    len: usize,
}

impl<T: Copy, const N: usize> Default for ArrayVec<T, N> {
    fn default() -> Self {
        Self { items: [None; N], len: 0 }
    }
}

impl<T: Copy, const N: usize> ArrayVec<T, N> {
    /// Appends a value; false where there is no room.
    pub fn push(&mut self, item: T) -> bool {
        let Some(slot) = self.items.get_mut(self.len) else { return false };
        *slot = Some(item);
        self.len += 1;
        true
    }

    /// Takes the first value out.
    pub fn pop_front(&mut self) -> Option<T> {
        let first = self.items.first_mut()?.take()?;
        self.items.rotate_left(1);
        self.len -= 1;
        Some(first)
    }

    /// The values in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.items.iter().copied().flatten()
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
