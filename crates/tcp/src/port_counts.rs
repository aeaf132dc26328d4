//! `PortCounts`: the number of connections per local port.
//!
//! Maintained by the table of connections and by that of TIME-WAIT, so that a device filter can be
//! given the ports without any. Invariant: a port is in the set while its count is not zero.

use floodwall_base::PortSet;

/// The number of connections per local port. Of a port with one connection, as those that are drawn
/// for active opens have mostly, only the two sets are touched: they fit a cache.
#[derive(Debug)]
pub(crate) struct PortCounts {
    /// Connections beyond the first one.
    others: Box<[u32]>,
    set: PortSet,
    /// The ports with more than one.
    many: PortSet,
}

impl Default for PortCounts {
    fn default() -> Self {
        let [set, many] = [PortSet::default(), PortSet::default()];
        Self { others: vec![0; 1 << 16].into(), set, many }
    }
}

impl PortCounts {
    /// Increments the count of this port.
    pub(crate) fn enter(&mut self, port: u16) {
        if self.set.has(port) {
            self.change_others(port, 1);
        } else {
            self.set.set(port, true);
        }
    }

    /// Decrements the count of this port.
    pub(crate) fn leave(&mut self, port: u16) {
        if self.many.has(port) {
            self.change_others(port, -1);
        } else {
            self.set.set(port, false);
        }
    }

    #[inline(never)]
    fn change_others(&mut self, port: u16, by: i32) {
        let Some(others) = self.others.get_mut(usize::from(port)) else { return };
        let before = core::mem::replace(others, others.saturating_add_signed(by));
        if before == 0 || *others == 0 {
            self.many.set(port, *others > 0);
        }
    }

    /// The ports with a count above zero.
    pub(crate) const fn set(&self) -> &PortSet {
        &self.set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_there_until_its_last_connection_has_left() {
        let mut counts = PortCounts::default();
        (0..3).for_each(|_| counts.enter(80));
        counts.enter(81);
        (0..2).for_each(|_| counts.leave(80));
        assert!(counts.set().has(80) && counts.set().has(81) && !counts.set().has(82));
        let before = counts.set().changes();
        counts.leave(80);
        assert!(!counts.set().has(80) && counts.set().has(81));
        counts.leave(80);
        assert!(!counts.set().has(80));
        assert_eq!(counts.set().changes(), before + 1);
    }
}
