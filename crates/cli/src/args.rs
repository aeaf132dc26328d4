//! What the command line may say.
//!
//! Called by `main`. Words of the network (devices, addresses) stay text here: `settings` reads
//! them, so that flags and file are judged by the same code in the same words.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::cmd::drill::DrillArgs;
#[cfg(feature = "lab")]
use crate::cmd::lab::LabArgs;
use crate::exit::EXIT_CODES;

/// A network stack in user space that keeps serving under flood.
#[derive(Debug, Parser)]
#[command(name = "floodwall", version, about, after_help = EXIT_CODES)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a host on one or more devices, until SIGINT or SIGTERM
    Run(Box<RunArgs>),
    /// Show what a running instance has counted
    Stat(StatArgs),
    /// Validate a configuration file, without starting anything
    Check(CheckArgs),
    /// Flood a host of its own, and judge what it promises: no root, no device
    Drill(DrillArgs),
    /// Run an experiment beside historic designs, and judge what is claimed: no root, no device
    #[cfg(feature = "lab")]
    Lab(LabArgs),
    /// Write the man page to standard output
    #[command(hide = true)]
    Man,
    /// Write a shell's completions to standard output
    #[command(hide = true)]
    Completions {
        /// Which shell
        shell: Shell,
    },
}

const RUN_EXAMPLE: &str = "\
Example:
  floodwall run --device tap:fw0 --mac 02:00:00:00:00:02 \\
    --address 10.0.0.2/24 --address fd00::2/64 --gateway 10.0.0.1 --gateway fd00::1 \\
    --service udp-echo:7001 --cpu 2

The same as a file, for --config and `floodwall check`:
  cpu = 2
  [[interface]]
  device = \"tap:fw0\"
  mac = \"02:00:00:00:00:02\"
  address = [\"10.0.0.2/24\", \"fd00::2/64\"]
  gateway = [\"10.0.0.1\", \"fd00::1\"]
  [[service]]
  kind = \"udp-echo\"
  port = 7001

Where both are given, the file is read first; flags replace its single values and add to its
lists. Flags of an interface mean the one that --device names, or the file's only one.";

/// `floodwall run`
#[derive(Debug, Default, Args)]
#[command(after_long_help = RUN_EXAMPLE)]
pub(crate) struct RunArgs {
    /// Configuration file (TOML), read before the flags
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where packets come from: tun:NAME, tap:NAME or packet:INTERFACE
    #[arg(long, value_name = "KIND:NAME")]
    pub(crate) device: Option<String>,
    /// Link address of our station; by default one of our own making that stays the same on this
    /// machine
    #[arg(long, value_name = "MAC")]
    pub(crate) mac: Option<String>,
    /// An address of ours with its prefix length; repeat for more
    #[arg(long, value_name = "ADDRESS/LENGTH")]
    pub(crate) address: Vec<String>,
    /// A router on the link, for a default route; repeat for the other family
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) gateway: Vec<String>,
    /// Largest IP packet of the link in bytes; by default the device's own
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(i64))]
    pub(crate) mtu: Option<i64>,
    /// Queues of a TUN or TAP
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64))]
    pub(crate) queues: Option<i64>,
    /// Do not let super-frames and unfinished checksums cross the device
    #[arg(long)]
    pub(crate) no_offload: bool,
    /// A service to offer: udp-echo:PORT, udp-discard:PORT or udp-chargen:PORT; repeat for more
    #[arg(long, value_name = "KIND:PORT")]
    pub(crate) service: Vec<String>,
    /// Core to run on; by default wherever the system likes
    #[arg(long, value_name = "CORE", value_parser = clap::value_parser!(i64))]
    pub(crate) cpu: Option<i64>,
    /// Record every packet to a pcapng file; several devices or queues get one each, named after
    /// them
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Control socket, for `floodwall stat`; by default $XDG_RUNTIME_DIR/floodwall/DEVICE.sock, or
    /// /run/floodwall/DEVICE.sock
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// `floodwall stat`
#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    /// Control socket of the instance; by default the only one that is found
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// One JSON document on standard output; words for humans go to standard error
    #[arg(long)]
    pub(crate) json: bool,
    /// Counters that stand at zero, too
    #[arg(long)]
    pub(crate) all: bool,
    /// Again and again, until interrupted
    #[arg(long)]
    pub(crate) watch: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1, requires = "watch")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) interval: u64,
}

/// `floodwall check`
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Configuration file (TOML)
    pub(crate) file: PathBuf,
}
