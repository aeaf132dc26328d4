//! The laboratory: experiments that put the product beside historic designs, and judge claims.
//!
//! A [`Plan`] (TOML) states what varies, what is held and what is claimed; an [`Experiment`]
//! measures; the frame ([`run()`]) repeats it for every seed, evaluates the claims, and makes a
//! [`Report`] that prints as tables, as JSON, and as a folder of raw results ([`keep()`]). Called
//! by the program `floodwall` (feature `lab`) and by this crate's tests, which run every plan's
//! quick form.
//!
//! Invariants: a claim is data, never code: the frame alone decides whether it holds, a claim that
//! measured nothing does not; the same plan and seed give the same numbers; published figures are
//! data of the plan, printed beside ours and never mixed with them. Historic designs live in
//! [`baselines`] and nowhere else (decision A4).
//!
//! To add an experiment: a plan in `plans/`, a file in `src/experiments/`, a row in each of the two
//! lists (`plan.rs`, `experiments.rs`). Start reading at `run.rs`.
#![deny(unsafe_code)]

pub mod baselines;
mod claim;
mod error;
pub mod experiments;
mod keep;
mod machine;
mod measure;
mod plan;
pub mod plot;
mod progress;
mod report;
mod run;
mod table;

pub use claim::{Bound, Claim, Verdict};
pub use error::LabError;
pub use experiments::Experiment;
pub use keep::{Kept, keep, redraw, results_folder};
pub use machine::Machine;
pub use measure::{Measured, Metrics, Spread};
pub use plan::{Listed, Plan, Published, Size, listed};
pub use progress::{Progress, Silent, to_stderr};
pub use report::Report;
pub use run::{run, run_experiment};
pub use table::Table;
