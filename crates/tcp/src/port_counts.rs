//! `PortCounts`: the number of connections per local port.
//!
//! Maintained by the table of connections and by that of TIME-WAIT, so that a device filter can be
//! given the ports without any. Invariant: a port is in the set while its count is not zero.

use floodwall_base::PortSet;

/// The number of connections per local port. Each change costs a load and a store; memory is
/// touched only for ports in use.
#[derive(Debug)]
pub(crate) struct PortCounts {
    counts: Box<[u32]>,
    set: PortSet,
}

impl Default for PortCounts {
    fn default() -> Self {
        Self { counts: vec![0; 1 << 16].into(), set: PortSet::default() }
    }
}

impl PortCounts {
    /// Increments the count of this port.
    pub(crate) fn enter(&mut self, port: u16) {
        self.change(port, 1);
    }

    /// Decrements the count of this port.
    pub(crate) fn leave(&mut self, port: u16) {
        self.change(port, -1);
    }

    fn change(&mut self, port: u16, by: i32) {
        let Some(count) = self.counts.get_mut(usize::from(port)) else { return };
        *count = count.saturating_add_signed(by);
        if *count == u32::from(by > 0) {
            self.set.set(port, by > 0);
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
