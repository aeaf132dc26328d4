//! `Level`: nodes with weights, each below a parent; the heaviest child of a parent in constant
//! time.
//!
//! Used by [`crate::Shares`], once for prefixes and once for what is within them. The children of
//! a parent are kept in ranks: lists of children of nearly the same weight (within an eighth), from
//! the heaviest to the lightest. A change of weight moves a child over the ranks between, mostly
//! none or one. Invariants: a node has a rank exactly while its weight is not zero; no rank is
//! empty; every link leads to a live node or is [`NONE`].

use floodwall_base::HashKey;

/// No node, no rank.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    name: u64,
    parent: u32,
    /// Its hash bucket.
    bucket: u32,
    /// The next node of the same hash bucket; of a free node, the next free one.
    chain: u32,
    /// How many users keep the node.
    users: u32,
    weight: u64,
    rank: u32,
    /// The neighbours in the ring of its rank.
    prev: u32,
    next: u32,
}

#[derive(Clone, Copy)]
struct Rank {
    class: u16,
    /// The child that has been in the rank for longest.
    first: u32,
    heavier: u32,
    lighter: u32,
}

/// The ranks of one parent: its heaviest and its lightest.
#[derive(Clone, Copy)]
struct Ends {
    heaviest: u32,
    lightest: u32,
}

pub(crate) struct Level {
    key: HashKey,
    buckets: Box<[u32]>,
    nodes: Vec<Node>,
    nodes_max: usize,
    /// The first free node.
    free: u32,
    ranks: Vec<Rank>,
    ranks_free: Vec<u32>,
    parents: Box<[Ends]>,
}

/// The class of a weight: exact below 16, within an eighth above. At most 496 classes.
const fn class_of(weight: u64) -> u16 {
    if weight < 8 {
        return weight as u16;
    }
    let exponent = 63 - weight.leading_zeros();
    (((exponent - 2) << 3) + ((weight >> (exponent - 3)) & 7) as u32) as u16
}

impl Level {
    /// Room for so many nodes below so many parents.
    pub(crate) fn new(nodes: usize, parents: usize, key: HashKey) -> Self {
        let nodes_max = nodes.clamp(1, NONE as usize - 1);
        Self {
            key,
            buckets: vec![NONE; nodes_max.next_power_of_two()].into(),
            nodes: Vec::with_capacity(nodes_max),
            nodes_max,
            free: NONE,
            // A node that moves has a rank at both ends for a moment.
            ranks: Vec::with_capacity(nodes_max + 1),
            ranks_free: Vec::with_capacity(nodes_max + 1),
            parents: vec![Ends { heaviest: NONE, lightest: NONE }; parents].into(),
        }
    }

    fn node(&self, id: u32) -> Option<&Node> {
        self.nodes.get(id as usize)
    }

    fn edit(&mut self, id: u32, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(id as usize) {
            change(node);
        }
    }

    fn rank(&self, rank: u32) -> Option<&Rank> {
        self.ranks.get(rank as usize)
    }

    fn edit_rank(&mut self, rank: u32, change: impl FnOnce(&mut Rank)) {
        if let Some(rank) = self.ranks.get_mut(rank as usize) {
            change(rank);
        }
    }

    fn bucket(&self, parent: u32, name: u64) -> usize {
        self.key.words(&[name, u64::from(parent)]) as usize & (self.buckets.len() - 1)
    }

    pub(crate) fn weight(&self, id: u32) -> u64 {
        self.node(id).map_or(0, |node| node.weight)
    }

    pub(crate) fn parent(&self, id: u32) -> Option<u32> {
        self.node(id).map(|node| node.parent)
    }

    /// The node of that name.
    pub(crate) fn find(&self, parent: u32, name: u64) -> Option<u32> {
        self.find_in(self.bucket(parent, name), parent, name)
    }

    fn find_in(&self, bucket: usize, parent: u32, name: u64) -> Option<u32> {
        let mut at = *self.buckets.get(bucket)?;
        while let Some(node) = self.node(at) {
            if node.name == name && node.parent == parent {
                return Some(at);
            }
            at = node.chain;
        }
        None
    }

    /// One more user of the node of that name, which is made if necessary; `None` where there is no
    /// room for it. Also whether it was made.
    pub(crate) fn enter(&mut self, parent: u32, name: u64) -> Option<(u32, bool)> {
        let bucket = self.bucket(parent, name);
        if let Some(id) = self.find_in(bucket, parent, name) {
            self.edit(id, |node| node.users += 1);
            return Some((id, false));
        }
        if parent as usize >= self.parents.len() {
            return None;
        }
        let head = self.buckets.get_mut(bucket)?;
        let fresh = Node {
            name,
            parent,
            bucket: bucket as u32,
            chain: *head,
            users: 1,
            weight: 0,
            rank: NONE,
            prev: NONE,
            next: NONE,
        };
        let id = self.free;
        if let Some(node) = self.nodes.get_mut(id as usize) {
            self.free = core::mem::replace(node, fresh).chain;
            *head = id;
            return Some((id, true));
        }
        if self.nodes.len() >= self.nodes_max {
            return None;
        }
        *head = self.nodes.len() as u32;
        self.nodes.push(fresh);
        Some((*head, true))
    }

    /// One user less; without users the node is freed, and what it still weighs with it. Returns
    /// whether it was.
    pub(crate) fn leave(&mut self, id: u32) -> bool {
        let Some(node) = self.nodes.get_mut(id as usize).filter(|node| node.users > 0) else {
            return false;
        };
        node.users -= 1;
        if node.users > 0 {
            return false;
        }
        let bucket = node.bucket as usize;
        self.set(id, 0);
        let after = self.node(id).map_or(NONE, |node| node.chain);
        let mut at = self.buckets.get(bucket).copied().unwrap_or(NONE);
        if let Some(head) = self.buckets.get_mut(bucket).filter(|_| at == id) {
            *head = after;
            at = NONE;
        }
        while let Some(node) = self.nodes.get_mut(at as usize) {
            if node.chain == id {
                node.chain = after;
                break;
            }
            at = node.chain;
        }
        let free = core::mem::replace(&mut self.free, id);
        self.edit(id, |node| node.chain = free);
        true
    }

    /// Sets the weight of a node.
    pub(crate) fn set(&mut self, id: u32, weight: u64) {
        let Some(node) = self.nodes.get_mut(id as usize) else { return };
        let before = core::mem::replace(&mut node.weight, weight);
        if class_of(before) != class_of(weight) {
            self.move_to(id, class_of(weight));
        }
    }

    /// A child of a parent that is heaviest, within an eighth; of equals, the one that has been for
    /// longest.
    pub(crate) fn heaviest(&self, parent: u32) -> Option<u32> {
        let ends = self.parents.get(parent as usize)?;
        self.rank(ends.heaviest).map(|rank| rank.first)
    }

    /// The children of a parent that hold something, the heaviest rank first.
    pub(crate) fn heaviest_first(&self, parent: u32) -> impl Iterator<Item = u32> {
        let first = self.heaviest(parent);
        core::iter::successors(first, |id| {
            let node = self.node(*id)?;
            let rank = self.rank(node.rank)?;
            if node.next != rank.first {
                return Some(node.next);
            }
            self.rank(rank.lighter).map(|lighter| lighter.first)
        })
    }

    /// Moves a node to the rank of that class.
    fn move_to(&mut self, id: u32, class: u16) {
        let Some(&Node { parent, rank: from, .. }) = self.node(id) else { return };
        let before = self.rank_at_least(parent, from, class);
        self.detach(id);
        if class > 0 {
            let rank = match self.rank(before).filter(|rank| rank.class == class) {
                Some(_) => before,
                None => self.insert_rank(parent, before, class),
            };
            self.attach(id, rank);
        }
        if self.rank(from).is_some_and(|rank| rank.first == NONE) {
            self.remove_rank(parent, from);
        }
    }

    /// The lightest rank of at least that class, searched from `from` on, or from the lightest one.
    fn rank_at_least(&self, parent: u32, from: u32, class: u16) -> u32 {
        let ends = self.parents.get(parent as usize);
        let mut at = if from == NONE { ends.map_or(NONE, |ends| ends.lightest) } else { from };
        while let Some(rank) = self.rank(at)
            && rank.class < class
        {
            at = rank.heavier;
        }
        while let Some(lighter) = self.rank(at).map(|rank| rank.lighter)
            && self.rank(lighter).is_some_and(|rank| rank.class >= class)
        {
            at = lighter;
        }
        at
    }

    /// A new rank next to `heavier`, or the heaviest.
    fn insert_rank(&mut self, parent: u32, heavier: u32, class: u16) -> u32 {
        let Some(&ends) = self.parents.get(parent as usize) else { return NONE };
        let lighter = self.rank(heavier).map_or(ends.heaviest, |rank| rank.lighter);
        let fresh = Rank { class, first: NONE, heavier, lighter };
        let rank = match self.ranks_free.pop() {
            Some(rank) => rank,
            None => {
                debug_assert!(self.ranks.len() <= self.nodes_max);
                self.ranks.push(fresh);
                self.ranks.len() as u32 - 1
            }
        };
        self.edit_rank(rank, |it| *it = fresh);
        self.edit_rank(heavier, |it| it.lighter = rank);
        self.edit_rank(lighter, |it| it.heavier = rank);
        if let Some(ends) = self.parents.get_mut(parent as usize) {
            if heavier == NONE {
                ends.heaviest = rank;
            }
            if lighter == NONE {
                ends.lightest = rank;
            }
        }
        rank
    }

    fn remove_rank(&mut self, parent: u32, rank: u32) {
        let Some(&Rank { heavier, lighter, .. }) = self.rank(rank) else { return };
        self.edit_rank(heavier, |it| it.lighter = lighter);
        self.edit_rank(lighter, |it| it.heavier = heavier);
        if let Some(ends) = self.parents.get_mut(parent as usize) {
            if ends.heaviest == rank {
                ends.heaviest = lighter;
            }
            if ends.lightest == rank {
                ends.lightest = heavier;
            }
        }
        self.ranks_free.push(rank);
    }

    /// Appends a node to the ring of a rank.
    fn attach(&mut self, id: u32, rank: u32) {
        let Some(&Rank { first, .. }) = self.rank(rank) else { return };
        let last = self.node(first).map_or(id, |node| node.prev);
        let next = if first == NONE { id } else { first };
        self.edit(id, |node| (node.rank, node.prev, node.next) = (rank, last, next));
        self.edit(last, |node| node.next = id);
        self.edit(next, |node| node.prev = id);
        if first == NONE {
            self.edit_rank(rank, |it| it.first = id);
        }
    }

    /// Takes a node out of its rank, which may be empty afterwards.
    fn detach(&mut self, id: u32) {
        let Some(&Node { rank, prev, next, .. }) = self.node(id) else { return };
        let first = if next == id { NONE } else { next };
        self.edit_rank(rank, |it| {
            if it.first == id {
                it.first = first;
            }
        });
        self.edit(prev, |node| node.next = next);
        self.edit(next, |node| node.prev = prev);
        self.edit(id, |node| (node.rank, node.prev, node.next) = (NONE, NONE, NONE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_grow_with_weights_and_are_within_an_eighth() {
        let mut last = 0;
        for weight in 0..100_000 {
            let class = class_of(weight);
            assert!(class == last || class == last + 1, "{weight}");
            if class == class_of(weight / 8 * 7) {
                assert!(weight < 8, "{weight}");
            }
            last = class;
        }
        assert_eq!(class_of(u64::MAX), 495);
    }

    #[test]
    fn nodes_and_ranks_are_used_again() {
        let mut level = Level::new(4, 2, HashKey::new(1, 2));
        for round in 0..100 {
            let ids: Vec<_> = (0..4).map(|n| level.enter(1, round + n).unwrap().0).collect();
            assert_eq!(level.enter(1, 1000), None, "there is room for four");
            for (n, id) in ids.iter().enumerate() {
                level.set(*id, 1 << (n as u64 * round % 37));
            }
            assert!(level.heaviest(1).is_some() && level.heaviest(0).is_none());
            assert!(ids.into_iter().all(|id| level.leave(id)));
            assert_eq!(level.heaviest(1), None);
        }
        assert!(level.ranks.len() <= 5 && level.ranks_free.len() == level.ranks.len());
        assert_eq!(level.enter(2, 1), None, "there are two parents");
    }
}
