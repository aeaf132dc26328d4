//! What a node's core and device are like: what a test sets.

use core::time::Duration;

use floodwall_base::Units;
use floodwall_base::limits::WORK_UNITS;
use floodwall_schedule::{BalanceConfig, GateConfig};

use crate::cost::CostTable;

/// A node of one world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub(crate) usize);

/// What a node's core and device are like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeConfig {
    /// What the core's work costs.
    pub costs: CostTable,
    /// Packets that wait in the device ring while the core is busy; 4096 is a usual card's most.
    pub ring: usize,
    /// Units of work granted to one call of the engine.
    pub budget: Units,
    /// How the worker shares the core with the application; without, it takes all it can use.
    pub balance: Option<BalanceConfig>,
    /// The order of service under pressure; `None` is in order of arrival.
    pub gate: Option<GateConfig>,
    /// A program that gets the core whenever the worker does not have it.
    pub application: Option<SimulatedApplication>,
}

impl Default for NodeConfig {
    /// The core is the worker's alone, and packets are served in order of arrival.
    fn default() -> Self {
        Self {
            costs: CostTable::default(),
            ring: 1024,
            budget: Units(WORK_UNITS),
            balance: None,
            gate: None,
            application: None,
        }
    }
}

impl NodeConfig {
    /// A node with free work: for generators and others that are not under test.
    #[must_use]
    pub fn free() -> Self {
        Self { costs: CostTable::FREE, ..Self::default() }
    }
}

/// A program on a node's core that needs `job` of work in each `every`. It handles no packets: it
/// shows the core time that packet work leaves to others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimulatedApplication {
    /// How long one job takes.
    pub job: Duration,
    /// How often there is one. Jobs that find the core taken wait, however many.
    pub every: Duration,
}

impl SimulatedApplication {
    /// One that is always ready to run, as a program does that only uses time.
    pub const HUNGRY: Self =
        Self { job: Duration::from_millis(1), every: Duration::from_millis(1) };

    pub(crate) fn is_hungry(&self) -> bool {
        self.job >= self.every
    }
}
