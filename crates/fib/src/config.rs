//! `FibConfig`: how much a routing table may hold.

use floodwall_base::limits;

/// Bounds of one family's tables together. Memory for next hops and lifetimes is taken at once,
/// that of the large look-up structure when a table outgrows [`limits::ROUTES_LISTED_MAX`]
/// prefixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FibConfig {
    /// Routes that the operator, the stack and DHCP set.
    pub routes_max: usize,
    /// Routes that routers advertise, of all interfaces together.
    pub learnt_max: usize,
    /// Of all these, how many may have an end.
    pub expiring_max: usize,
    /// Next-hop objects, shared and named ones together.
    pub next_hops_max: usize,
    /// Of these, how many may be groups.
    pub groups_max: usize,
}

impl Default for FibConfig {
    /// For a host.
    fn default() -> Self {
        Self::for_routes(limits::ROUTES_MAX)
    }
}

impl FibConfig {
    /// For so many routes of the operator's.
    #[must_use]
    pub const fn for_routes(routes_max: usize) -> Self {
        let learnt_max = 8 * limits::ROUTES_LEARNT_INTERFACE_MAX;
        let expiring_max = routes_max + learnt_max;
        let few = if routes_max < 4096 { routes_max } else { 4096 };
        Self {
            routes_max,
            learnt_max,
            expiring_max,
            next_hops_max: few + learnt_max,
            groups_max: limits::NEXT_HOP_GROUPS_MAX,
        }
    }
}
