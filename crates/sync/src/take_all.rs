//! Many producers, one word, and a taker that takes the whole list: the take-all list.
//!
//! # What it is
//!
//! A linked list with links *inside* the nodes, so that handing a node over allocates nothing and
//! can never find the list full. A producer puts its node in front by one compare-and-exchange of
//! the head; a taker exchanges the head for null and has every node, newest first. This is the push
//! half of Treiber's stack (*Systems Programming: Coping with Parallelism*, IBM RJ 5118, 1986) with
//! the whole list taken instead of one node, as Linux does in `llist` (`llist_add`,
//! `llist_del_all`). DPDK and BSD have no equal; their rings are bounded.
//!
//! # Callers
//!
//! `packet`: frames freed by an application thread go home to the worker that owns them, a batch
//! at a time ([`TakeAllList::push_chain`]). `udp`: a socket's intake, one list per memory node.
//! Both wrap it in a type that owns; no other code should handle the raw pointers.
//!
//! # Invariant: the owner of a node at each moment
//!
//! A node belongs to exactly one of: its producer, the list, a [`Chain`].
//!
//! 1. Before `push`, and during it until the exchange succeeds, the *producer*: it may write all
//!    of the node.
//! 2. From then on the *list*: no thread reads or writes any of the node, not even its link.
//! 3. From `take_all` on the *chain*, and after the chain's iterator has yielded it, *the caller of
//!    `next`*.
//!
//! There is no ABA problem, although nodes are used again at once: the exchange depends on no
//! node's content. The head that a producer saw is stored into its own node and never followed,
//! and if the same address is the head once more, the link is right once more.
//!
//! # Orderings, and why
//!
//! * `push`'s exchange is **release**: what the producer wrote into the node, link included,
//!   happens before the taker's look. It need not acquire, as it follows no pointer. Later
//!   pushes are read-modify-writes of the same word and so stay in the release sequence of the
//!   earlier ones: one acquire by the taker covers every producer in the list.
//! * `take_all`'s exchange is **acquire**, the other end of the same edge. It need not release:
//!   it publishes nothing; a node travels back to a producer by other means, which order it.
//! * The loads before either are **relaxed**: the first only guesses what the exchange then
//!   verifies. The second may miss a push that nothing orders before the call, as a call made a
//!   moment earlier would have; after a doorbell or a join it misses nothing (coherence).
//!
//! # Progress and cost
//!
//! `push` is lock-free: it tries again only after another push or a take succeeded. `take_all` is
//! wait-free, and writes nothing to the shared line when the list is empty. At batches of 64 both
//! sides together cost some 3 ns a node between two cores; single pushes under contention cost a
//! line transfer each. Put the list on lines of its own ([`CachePadded`](crate::CachePadded)).
//!
//! # Under flood
//!
//! The list itself has no bound: it holds as many nodes as exist. Its owner bounds the nodes (a
//! pool is finite; an intake charges its account before it pushes).

use core::{fmt, iter::FusedIterator, ptr, ptr::NonNull};

use crate::shim::{
    UnsafeCell,
    atomic::{
        AtomicPtr,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// A type that carries its own link.
///
/// # Safety
///
/// For every `node` that fulfils its contract, `link` must return a pointer to a [`TakeAllLink`]
/// that is inside that node, the same at each call, valid as long as the node. It must reach it by
/// pointer arithmetic only (`&raw mut (*node.as_ptr()).link`): neither make a reference to the
/// whole node nor read or write any of it.
pub unsafe trait Node: Sized {
    /// The place of the link of `node`. Costs an addition.
    ///
    /// # Safety
    ///
    /// `node` points to a live node, with provenance over all of it.
    unsafe fn link(node: NonNull<Self>) -> NonNull<TakeAllLink<Self>>;
}

/// The link inside a node: which node comes next in the list that holds it.
///
/// One pointer wide. The owner of the node may use it for lists of its own meanwhile; every push
/// overwrites it.
#[repr(transparent)]
pub struct TakeAllLink<N> {
    next: UnsafeCell<Option<NonNull<N>>>,
}

impl<N> TakeAllLink<N> {
    /// A link to nothing. Never panics.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self { next: UnsafeCell::new(None) }
    }

    /// A link to nothing.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self { next: UnsafeCell::new(None) }
    }

    /// The next node. One load; never panics.
    ///
    /// # Safety
    ///
    /// The caller owns the node that contains this link.
    #[must_use]
    #[inline]
    pub unsafe fn next(&self) -> Option<NonNull<N>> {
        // SAFETY: only the owner of the node writes its link.
        self.next.with(|next| unsafe { *next })
    }

    /// Makes `next` the next node. One store; never panics.
    ///
    /// # Safety
    ///
    /// The caller owns the node that contains this link.
    #[inline]
    pub unsafe fn set_next(&self, next: Option<NonNull<N>>) {
        // SAFETY: only the owner of the node accesses its link.
        self.next.with_mut(|slot| unsafe { *slot = next });
    }
}

impl<N> Default for TakeAllLink<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<N> fmt::Debug for TakeAllLink<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

/// What a push found: only a push onto an empty list needs to ring the taker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushedOnto {
    /// The list was empty: the taker has not been notified yet.
    Empty,
    /// The list held nodes: the first push has notified the taker.
    NotEmpty,
}

/// A list that any thread may push to, and that is always taken whole.
///
/// One word. Dropping it does not free the nodes it holds, as it does not know where they came
/// from: its owner takes them first.
pub struct TakeAllList<N> {
    head: AtomicPtr<N>,
}

// SAFETY: the list is a word that is only accessed atomically, and hands nodes from thread to
// thread, which `N: Send` allows.
unsafe impl<N: Node + Send> Send for TakeAllList<N> {}
// SAFETY: as above; by a shared reference nodes are moved in and out, never borrowed.
unsafe impl<N: Node + Send> Sync for TakeAllList<N> {}

impl<N: Node> TakeAllList<N> {
    /// An empty list. Allocates nothing, never panics.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()) }
    }

    /// An empty list.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Gives `node` to the list. One exchange without contention; never panics.
    ///
    /// # Safety
    ///
    /// `node` points to a live node, with provenance over all of it, which the caller owns and
    /// gives up: until a [`Chain`] taken from this list yields it, there is no other access to it,
    /// and it stays in its place and allocated.
    #[inline]
    pub unsafe fn push(&self, node: NonNull<N>) -> PushedOnto {
        // SAFETY: one node is a chain of one.
        unsafe { self.push_chain(node, node) }
    }

    /// Gives the nodes from `first` to `last`, linked, to the list by one exchange.
    ///
    /// To a taker `first` is the newest and `last` the oldest of them: link them in the reverse
    /// of the order in which they should arrive. Costs as much as one `push`; never panics.
    ///
    /// # Safety
    ///
    /// As for [`push`](Self::push), for each node from `first` to `last`; and `last` is reached
    /// from `first` by links, without a circle. The link of `last` itself may hold anything.
    #[inline]
    pub unsafe fn push_chain(&self, first: NonNull<N>, last: NonNull<N>) -> PushedOnto {
        let mut head = self.head.load(Relaxed);
        loop {
            // SAFETY: `last` is live and ours until the exchange below succeeds.
            unsafe { N::link(last).as_ref().set_next(NonNull::new(head)) };
            match self.head.compare_exchange_weak(head, first.as_ptr(), Release, Relaxed) {
                Ok(_) if head.is_null() => return PushedOnto::Empty,
                Ok(_) => return PushedOnto::NotEmpty,
                Err(now) => head = now,
            }
        }
    }

    /// Takes every node, newest first. One exchange, or one load if the list is empty; never
    /// panics.
    ///
    /// Any thread may take; two that take at once get disjoint chains.
    #[inline]
    pub fn take_all(&self) -> Chain<N> {
        if self.is_empty() {
            return Chain { first: None };
        }
        Chain { first: NonNull::new(self.head.swap(ptr::null_mut(), Acquire)) }
    }

    /// Whether the list is empty just now: a hint, as a push may follow at once. One load; never
    /// panics.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.load(Relaxed).is_null()
    }
}

impl<N: Node> Default for TakeAllList<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<N> fmt::Debug for TakeAllList<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TakeAllList").finish_non_exhaustive()
    }
}

/// The nodes that were taken, newest first, or oldest first after [`reverse`](Self::reverse).
///
/// Owns them: yields each once, and with it its ownership. Nodes not yet yielded when the chain
/// is dropped are lost (leaked, never freed twice).
#[must_use = "nodes that are not taken out of the chain are lost"]
pub struct Chain<N> {
    first: Option<NonNull<N>>,
}

// SAFETY: a chain owns its nodes, and `N: Send` lets them change threads.
unsafe impl<N: Node + Send> Send for Chain<N> {}

impl<N: Node> Chain<N> {
    /// The chain that starts at `first` and ends at the first link to nothing. Never panics.
    ///
    /// # Safety
    ///
    /// Every node reached from `first` is live, is reached once, and is owned by the caller, which
    /// gives it up.
    #[inline]
    pub const unsafe fn from_first(first: Option<NonNull<N>>) -> Self {
        Self { first }
    }

    /// Gives the nodes to the caller, linked: the first of them, the last's link being `None`.
    /// Never panics.
    #[must_use]
    #[inline]
    pub const fn into_first(self) -> Option<NonNull<N>> {
        self.first
    }

    /// Whether no node is left. Never panics.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The same nodes in the opposite order: from newest first to the order of arrival.
    ///
    /// Arrival order is that of the pushes' exchanges, so each producer's own order is kept.
    /// Reads and writes each node's link once; never panics.
    pub fn reverse(self) -> Self {
        let mut done = None;
        let mut rest = self.first;
        while let Some(node) = rest {
            // SAFETY: the chain owns its nodes, each of them live.
            let link = unsafe { N::link(node).as_ref() };
            // SAFETY: as above.
            rest = unsafe { link.next() };
            // SAFETY: as above.
            unsafe { link.set_next(done) };
            done = Some(node);
        }
        Self { first: done }
    }
}

impl<N: Node> Iterator for Chain<N> {
    type Item = NonNull<N>;

    /// Takes the first node out of the chain: the caller owns it now.
    #[inline]
    fn next(&mut self) -> Option<NonNull<N>> {
        let node = self.first?;
        // SAFETY: the chain owns its nodes, each of them live.
        self.first = unsafe { N::link(node).as_ref().next() };
        Some(node)
    }
}

impl<N: Node> FusedIterator for Chain<N> {}

impl<N> fmt::Debug for Chain<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
