//! The floodwall command: parse, hand over to a command, exit with its number.
//!
//! The only crate that parses arguments and formats for humans. Invariant: clap's usage errors
//! exit with 1, as every other refusal before anything has started (`exit.rs`); but `drill` and
//! `self-test`, where 1 means that a check failed, exit with 2.
#![forbid(unsafe_code)]
// Both panic where the output is full or closed: `output::print` takes their place.
#![deny(clippy::print_stdout, clippy::print_stderr)]

/// Writes a line to standard error, as the standard library's macro of this name, but never panics:
/// where the terminal or the disk behind it is gone, the line is lost and the work goes on.
macro_rules! eprintln {
    ($($parts:tt)*) => { $crate::output::complain(format_args!("{}\n", format_args!($($parts)*))) };
}

mod address_space;
mod args;
mod argv;
mod capture;
mod cmd;
mod cookie_keys;
mod devices;
mod ending;
mod exit;
mod explain;
mod first_line;
mod floods;
mod hosted;
mod html;
mod instance_mark;
mod listeners;
mod live_flood;
mod log;
mod metrics;
mod neighbors;
mod network;
mod notify;
mod output;
mod proc_net;
mod rates;
mod record;
mod reload;
mod report;
mod routes;
mod settings;
mod show;
mod signals;
mod socket;
mod sockets;
mod sources;
mod terminal;
mod threads;
mod top;
mod watch;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::{Cli, Command};
use crate::exit::Exit;

fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(argv::arranged(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => {
            // Where the terminal is gone, there is no reader for the error.
            let _ = error.print();
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            if !asked
                && std::env::args_os()
                    .nth(1)
                    .is_some_and(|word| ["drill", "cost", "self-test"].iter().any(|w| word == *w))
            {
                return cmd::drill::NOT_RUN.into();
            }
            return if asked { Exit::Done } else { Exit::Usage }.into();
        }
    };
    match cli.command {
        Command::Run(args) => cmd::run::run(&args),
        Command::Stat(args) => cmd::stat::stat(&args),
        Command::Address(args) => cmd::address::address(&args),
        Command::Link(args) => cmd::address::link(&args),
        Command::Route(args) => cmd::route::route(&args),
        Command::Rule(args) => cmd::route::rule(&args),
        Command::Neigh(args) => cmd::neigh::neigh(&args),
        Command::Pktgen(args) => cmd::pktgen::pktgen(&args),
        Command::Top(args) => cmd::top::top(&args),
        Command::Explain(args) => cmd::explain::explain(&args),
        Command::Socket(args) => cmd::socket::socket(&args),
        Command::Capture(args) => cmd::capture::capture(&args),
        Command::Reload(args) => cmd::reload::reload(&args),
        Command::Cleanup(args) => cmd::cleanup::cleanup(&args),
        Command::Check(args) => cmd::check::check(&args),
        Command::SelfTest(args) => return cmd::self_test::self_test(&args),
        Command::Drill(args) => return cmd::drill::drill(&args),
        #[cfg(feature = "lab")]
        Command::Cost(args) => return cmd::cost::cost(&args),
        #[cfg(feature = "lab")]
        Command::Lab(args) => return cmd::lab::lab(&args),
        Command::Guard(args) => cmd::guard::guard(&args),
        Command::Man => cmd::paper::man(),
        Command::Completions { shell } => cmd::paper::completions(shell),
    }
    .into()
}
