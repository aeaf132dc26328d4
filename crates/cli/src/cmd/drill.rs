//! `floodwall drill`: the flood contract, kept or broken before one's eyes.
//!
//! Only the arguments so far: the command is registered in `args.rs` together with the drill
//! itself, which does all the work.

use clap::Args;

/// `floodwall drill`
#[derive(Debug, Args)]
pub(crate) struct DrillArgs {
    /// Let the Linux kernel be the honest client, in namespaces that are made and removed (root)
    #[arg(long)]
    pub(crate) tap: bool,
    /// One JSON document on standard output; words for humans go to standard error
    #[arg(long)]
    pub(crate) json: bool,
    /// What all randomness of the drill comes from; the same number gives the same verdicts
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// How long each flood lasts
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: Option<u64>,
}
