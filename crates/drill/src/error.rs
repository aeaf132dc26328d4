//! Why a drill could not be run at all: exit code 2, never a failed criterion.

use floodwall_device::DeviceError;
use floodwall_dispatch::{WorkerError, WorkerGroupError};
use floodwall_packet::PoolError;
use floodwall_pktgen::PlanError;
use floodwall_stack::HostError;
use floodwall_world::WorldError;
use thiserror::Error;

/// Why a drill or self-test could not be carried out.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DrillError {
    /// The packet memory could not be made.
    #[error("the packet memory cannot be made: {0}")]
    Pool(#[from] PoolError),
    /// A flood or a client makes no sense.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The host under test did not start.
    #[error("the host did not start: {0}")]
    Host(#[from] HostError),
    /// The worker did not start, or ended.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The host's workers did not start, or ended.
    #[error("the host's workers: {0}")]
    WorkerGroup(#[from] WorkerGroupError),
    /// The cable or the TAP broke.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The simulated world refused a link.
    #[error(transparent)]
    World(#[from] WorldError),
    /// The system refused something that a drill needs.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The worker ended before the drill did.
    #[error("the host's worker ended during the drill: {0}")]
    WorkerEnded(String),
    /// Something is missing on this machine.
    #[error("it cannot run here: {what}; {remedy}")]
    Missing {
        /// What is missing.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The user interrupted it.
    #[error("interrupted")]
    Interrupted,
    /// A report could not be written.
    #[error("cannot write the report: {0}")]
    Write(#[from] serde_json::Error),
}
