//! Why a plan could not be run at all: never a claim that does not hold.

use std::path::PathBuf;

use thiserror::Error;

/// Why an experiment could not be run, or its results not kept.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// Neither a plan of the program nor a file.
    #[error(
        "no plan is called {0}: `floodwall lab list` names them; a path to a .toml file works too"
    )]
    NoPlan(String),
    /// A plan names an experiment that does not exist.
    #[error("plan {plan}: no experiment is called {experiment}")]
    NoExperiment {
        /// Which plan.
        plan: String,
        /// The requested experiment.
        experiment: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A plan is not what a plan must be.
    #[error("plan {plan}: {what}")]
    Plan {
        /// Which plan.
        plan: String,
        /// What is wrong, with its place.
        what: String,
    },
    /// A capture that the plan names cannot be used.
    #[error("capture {name}: {what}")]
    Capture {
        /// Which capture.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// A plot could not be drawn.
    #[error("a plot cannot be drawn: {0}")]
    Plot(String),
    /// The packet memory could not be made.
    #[error("the packet memory cannot be made: {0}")]
    Pool(#[from] floodwall_packet::PoolError),
    /// The packet memory is used up: the plan requests packets that do not fit it.
    #[error("the packet memory is too small for a packet of {0} bytes")]
    NoBuffer(usize),
    /// A scene that the plan describes cannot be made.
    #[error("the scene cannot be made: {0}")]
    Scene(String),
    /// A report could not be written.
    #[error("cannot write the report: {0}")]
    Write(#[from] serde_json::Error),
}
