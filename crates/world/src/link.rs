//! A link: two interfaces, and a lane in each direction.
//!
//! Built by `World::connect`. What a lane does to frames is in `lane.rs`.

use floodwall_base::IfIndex;

use crate::error::WorldError;
use crate::lane::{LaneConfig, LaneStats, LinkLane};
use crate::node_config::NodeId;

/// A link of one world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub(crate) usize);

/// An end of a link, and the lane that starts there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    /// The interface that was named first.
    A,
    /// The interface that was named second.
    B,
}

impl Side {
    /// The other end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// How a link treats frames, each direction for itself. The default is a perfect wire.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LinkConfig {
    /// From the interface that is named first.
    pub from_a: LaneConfig,
    /// From the interface that is named second.
    pub from_b: LaneConfig,
}

impl LinkConfig {
    /// The same in both directions.
    #[must_use]
    pub const fn both(lane: LaneConfig) -> Self {
        Self { from_a: lane, from_b: lane }
    }
}

/// What a link carried and lost, each direction for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkStats {
    /// From the interface that was named first.
    pub from_a: LaneStats,
    /// From the interface that was named second.
    pub from_b: LaneStats,
}

/// An interface of a node.
pub(crate) type Port = (NodeId, IfIndex);

/// A link at work.
pub(crate) struct SimulatedLink {
    a: Port,
    b: Port,
    from_a: LinkLane,
    from_b: LinkLane,
}

impl SimulatedLink {
    pub(crate) fn new(
        a: Port,
        b: Port,
        config: LinkConfig,
        seeds: [u64; 2],
    ) -> Result<Self, WorldError> {
        let [seed_a, seed_b] = seeds;
        Ok(Self {
            a,
            b,
            from_a: LinkLane::new(config.from_a, seed_a)?,
            from_b: LinkLane::new(config.from_b, seed_b)?,
        })
    }

    pub(crate) const fn port(&self, side: Side) -> Port {
        match side {
            Side::A => self.a,
            Side::B => self.b,
        }
    }

    /// The lane that starts at `side`.
    pub(crate) const fn lane_mut(&mut self, side: Side) -> &mut LinkLane {
        match side {
            Side::A => &mut self.from_a,
            Side::B => &mut self.from_b,
        }
    }

    pub(crate) const fn stats(&self) -> LinkStats {
        LinkStats { from_a: self.from_a.stats, from_b: self.from_b.stats }
    }
}
