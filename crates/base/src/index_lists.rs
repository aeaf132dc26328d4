//! First-in-first-out lists over indices: the links are stored here, the items in the owner's
//! array.
//!
//! Called by [`crate::TimerWheel`] and by every table that needs its oldest entry, such as an LRU.
//! An index is in one list at most. Each list is a ring through a sentinel, so that linking and
//! unlinking have no special case; all memory is taken at construction. Invariant: following `next`
//! from any node and `prev` from there leads back to it; an unlinked item points to itself.

/// Two links of one item, or of one list's sentinel.
#[derive(Clone, Copy, Debug)]
struct ListNode {
    prev: u32,
    next: u32,
}

/// First-in-first-out lists over the indices of an array. Every operation is a handful of loads and
/// stores.
#[derive(Clone, Debug)]
pub struct IndexLists {
    nodes: Box<[ListNode]>,
    items: u32,
}

impl IndexLists {
    /// `lists` empty lists over the indices below `items`. Both together stay below 2^32; what is
    /// beyond cannot be named and is not made.
    #[must_use]
    pub fn new(items: usize, lists: usize) -> Self {
        let count = u32::try_from(items.saturating_add(lists)).unwrap_or(u32::MAX);
        let nodes = (0..count).map(|i| ListNode { prev: i, next: i }).collect();
        Self { nodes, items: u32::try_from(items).unwrap_or(u32::MAX).min(count) }
    }

    /// Becomes a copy of lists of the same sizes; allocates only where they are of others.
    pub fn copy_from(&mut self, other: &Self) {
        self.nodes.clone_from(&other.nodes);
        self.items = other.items;
    }

    /// How many items there are, linked or not.
    #[must_use]
    pub const fn items(&self) -> u32 {
        self.items
    }

    /// Appends an item, after taking it out of the list that it was in. An item or a list that
    /// does not exist is our own mistake: an assertion in debug builds, nothing in others.
    #[inline]
    pub fn push_back(&mut self, list: u32, item: u32) {
        let end = self.sentinel(list);
        debug_assert!(item < self.items && (end as usize) < self.nodes.len());
        if item >= self.items {
            return;
        }
        self.unlink(item);
        let Some(last) = self.nodes.get(end as usize).map(|n| n.prev) else {
            return;
        };
        self.join(last, item);
        self.join(item, end);
    }

    /// Takes an item out of its list; nothing where it is in none.
    #[inline]
    pub fn unlink(&mut self, item: u32) {
        if let Some(&ListNode { prev, next }) = self.nodes.get(item as usize) {
            self.join(prev, next);
            self.join(item, item);
        }
    }

    /// Whether the item is in a list.
    #[must_use]
    #[inline]
    pub fn is_linked(&self, item: u32) -> bool {
        self.nodes.get(item as usize).is_some_and(|n| n.next != item)
    }

    /// The item that is longest in the list.
    #[must_use]
    #[inline]
    pub fn first(&self, list: u32) -> Option<u32> {
        let end = self.sentinel(list);
        self.nodes.get(end as usize).map(|n| n.next).filter(|&first| first != end)
    }

    /// Takes out the item that is longest in the list.
    #[inline]
    pub fn pop_front(&mut self, list: u32) -> Option<u32> {
        let first = self.first(list)?;
        self.unlink(first);
        Some(first)
    }

    /// Whether the list is empty.
    #[must_use]
    #[inline]
    pub fn is_empty(&self, list: u32) -> bool {
        self.first(list).is_none()
    }

    /// Appends all of `from` to `to`, which are two lists. Constant time.
    #[inline]
    pub fn append(&mut self, from: u32, to: u32) {
        let (from, to) = (self.sentinel(from), self.sentinel(to));
        let Some(&ListNode { prev: last, next: first }) = self.nodes.get(from as usize) else {
            return;
        };
        let Some(end) = self.nodes.get(to as usize).map(|n| n.prev) else {
            return;
        };
        if first == from || from == to {
            return;
        }
        self.join(from, from);
        self.join(end, first);
        self.join(last, to);
    }

    /// The items of a list, longest in it first.
    pub fn iter(&self, list: u32) -> impl Iterator<Item = u32> + '_ {
        let end = self.sentinel(list);
        let mut at = self.nodes.get(end as usize).map_or(end, |n| n.next);
        core::iter::from_fn(move || {
            let here = (at != end).then_some(at)?;
            at = self.nodes.get(here as usize)?.next;
            Some(here)
        })
    }

    #[inline]
    const fn sentinel(&self, list: u32) -> u32 {
        self.items.saturating_add(list)
    }

    #[inline]
    fn join(&mut self, prev: u32, next: u32) {
        if let Some(node) = self.nodes.get_mut(prev as usize) {
            node.next = next;
        }
        if let Some(node) = self.nodes.get_mut(next as usize) {
            node.prev = prev;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lists: &IndexLists, list: u32) -> Vec<u32> {
        lists.iter(list).collect()
    }

    #[test]
    fn items_leave_in_the_order_in_which_they_came() {
        let mut lists = IndexLists::new(5, 2);
        for item in [3, 0, 4] {
            lists.push_back(0, item);
        }
        assert_eq!(all(&lists, 0), [3, 0, 4]);
        lists.unlink(0);
        assert!(!lists.is_linked(0) && lists.is_linked(4));
        lists.unlink(0);
        lists.push_back(1, 4);
        assert_eq!((all(&lists, 0), all(&lists, 1)), (vec![3], vec![4]));
        assert_eq!((lists.pop_front(0), lists.pop_front(0)), (Some(3), None));
    }

    #[test]
    fn a_list_is_appended_whole_and_the_emptied_one_is_usable() {
        let mut lists = IndexLists::new(4, 2);
        for item in 0..3 {
            lists.push_back(0, item);
        }
        lists.push_back(1, 3);
        lists.append(0, 1);
        assert_eq!((all(&lists, 0), all(&lists, 1)), (vec![], vec![3, 0, 1, 2]));
        lists.append(0, 1);
        lists.append(1, 1);
        lists.push_back(0, 3);
        assert_eq!((all(&lists, 0), all(&lists, 1)), (vec![3], vec![0, 1, 2]));
    }
}
