//! The experiments, and what every one of them is to the frame.

use crate::error::LabError;
use crate::measure::Measured;
use crate::plan::Plan;
use crate::progress::Progress;

mod account;
mod namespace;
mod service;
mod stalls;
mod stamps;

pub mod fib_gc;
pub mod first_line;
pub mod grace_period;
pub mod header_pull;
pub mod route_flood;
pub mod starvation;
pub mod syn_flood;
pub mod udp_flood;
pub mod xdp_flood;

/// Something that can be measured. What varies and what is held it reads from the plan; what is
/// claimed it does not know.
pub trait Experiment {
    /// What plans call it.
    fn name(&self) -> &'static str;

    /// Measures once. `amount` is the plan's `[full]` or `[quick]`; the same arguments give the
    /// same numbers, except where an experiment measures time.
    ///
    /// # Errors
    /// It cannot be measured: the plan requests what does not exist, or memory is exhausted.
    fn run(
        &self,
        plan: &Plan,
        amount: &toml::Table,
        seed: u64,
        progress: &mut dyn Progress,
    ) -> Result<Measured, LabError>;
}

/// All of them.
const EXPERIMENTS: &[&dyn Experiment] = &[
    &fib_gc::FibGc,
    &first_line::FirstLine,
    &grace_period::GracePeriod,
    &header_pull::HeaderPull,
    &route_flood::RouteFlood,
    &starvation::Starvation,
    &syn_flood::SynFlood,
    &udp_flood::UdpFlood,
    &xdp_flood::XdpFlood,
];

/// The experiment of a name.
pub(crate) fn named(name: &str) -> Option<&'static dyn Experiment> {
    EXPERIMENTS.iter().copied().find(|experiment| experiment.name() == name)
}
