//! What the kernel's collector of IPv6 routes visited, before and after its list.
//!
//! Models: `fib6_run_gc` of Linux (`net/ipv6/ip6_fib.c`) as it was until 6.8, a walk of the whole
//! tree; as Kui-Feng Lee's series of July 2023 made it (merged in 6.9), a list of the routes that
//! have a lifetime; and as it is since 2025 (6.14 and later), the same list with every route that
//! owns an exception.
//! Simplified: a tree is a vector of routes, as the walk's cost here is a visit each; locks,
//! notifications and the ageing of the exceptions themselves are left out, so times are kinder to
//! them than the kernel's are.
//! Serves: the plan `fib-gc`, the number of routes that one collection visits.

/// One route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it ends; `None` for never.
    pub expires: Option<u64>,
    /// Whether some destination behind it has an exception.
    pub owns_exception: bool,
}

/// Which collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collector {
    /// Every route of the table.
    Tree,
    /// Routes with a lifetime.
    List,
    /// These, and those that own an exception.
    ListWithExceptions,
}

/// A table with one of them.
#[derive(Debug)]
pub struct Table {
    collector: Collector,
    routes: Vec<Option<Entry>>,
    /// The routes that a collection visits.
    listed: Vec<usize>,
}

impl Table {
    /// An empty one.
    #[must_use]
    pub const fn new(collector: Collector) -> Self {
        Self { collector, routes: Vec::new(), listed: Vec::new() }
    }

    /// Adds a route.
    pub fn add(&mut self, route: Entry) {
        let at = self.routes.len();
        let listed = match self.collector {
            Collector::Tree => true,
            Collector::List => route.expires.is_some(),
            Collector::ListWithExceptions => route.expires.is_some() || route.owns_exception,
        };
        if listed {
            self.listed.push(at);
        }
        self.routes.push(Some(route));
    }

    /// One collection; returns how many routes it visited, and how many it removed.
    pub fn collect(&mut self, now: u64) -> (usize, usize) {
        let (visited, routes) = (self.listed.len(), &mut self.routes);
        self.listed.retain(|at| {
            let Some(slot) = routes.get_mut(*at) else { return false };
            let over = slot.is_some_and(|route| route.expires.is_some_and(|end| end <= now));
            if over {
                *slot = None;
            }
            !over
        });
        (visited, visited - self.listed.len())
    }
}
