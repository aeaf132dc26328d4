//! The sockets that have news, each once, in order: what a round hands to applications.
//!
//! A doubly linked list through an array, so that marking, taking and closing are constant time
//! and cost nothing for sockets without news. Invariant: a socket is on the list at most once.

/// No neighbour in the list.
const NONE: u32 = u32::MAX;
/// Not on the list.
const OFF_LIST: ReadyLink = ReadyLink { prev: NONE, next: NONE, on: false };

#[derive(Clone, Copy, Debug)]
struct ReadyLink {
    prev: u32,
    next: u32,
    on: bool,
}

/// The queue of sockets with news.
#[derive(Debug)]
pub(crate) struct ReadyList {
    links: Vec<ReadyLink>,
    first: u32,
    last: u32,
}

impl ReadyList {
    pub(crate) fn new(sockets_max: usize) -> Self {
        Self { links: Vec::with_capacity(sockets_max), first: NONE, last: NONE }
    }

    /// Makes a place for one more socket.
    pub(crate) fn grow(&mut self) {
        self.links.push(OFF_LIST);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// Puts a socket last, unless it is on the list already.
    #[inline]
    pub(crate) fn mark(&mut self, index: u32) {
        let last = self.last;
        match self.links.get_mut(index as usize) {
            Some(link) if !link.on => *link = ReadyLink { prev: last, next: NONE, on: true },
            _ => return,
        }
        match self.links.get_mut(last as usize) {
            Some(link) => link.next = index,
            None => self.first = index,
        }
        self.last = index;
    }

    /// Takes the first socket.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let first = self.first;
        self.remove(first).then_some(first)
    }

    /// Takes a socket off; false where it was not on the list.
    pub(crate) fn remove(&mut self, index: u32) -> bool {
        let link = match self.links.get_mut(index as usize) {
            Some(link) if link.on => core::mem::replace(link, OFF_LIST),
            _ => return false,
        };
        match self.links.get_mut(link.prev as usize) {
            Some(prev) => prev.next = link.next,
            None => self.first = link.next,
        }
        match self.links.get_mut(link.next as usize) {
            Some(next) => next.prev = link.prev,
            None => self.last = link.prev,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_socket_is_announced_once_in_order_and_a_closed_one_never() {
        let mut ready = ReadyList::new(4);
        (0..4).for_each(|_| ready.grow());
        for index in [2, 0, 2, 3, 1, 0] {
            ready.mark(index);
        }
        assert!(ready.remove(3) && !ready.remove(3));
        assert_eq!([ready.take(), ready.take()], [Some(2), Some(0)]);
        ready.mark(2);
        assert_eq!([ready.take(), ready.take(), ready.take()], [Some(1), Some(2), None]);
        assert!(ready.is_empty());
    }
}
