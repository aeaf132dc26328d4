//! The exit codes of the command, distinct for scripts.
//!
//! Every command returns one of these; `main` is the only place that hands it to the system.

use std::process::ExitCode;

/// How the command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// The command succeeded.
    Done = 0,
    /// Usage, configuration, or something that the machine lacks.
    Usage = 1,
    /// A running instance refused.
    Refused = 2,
    /// No running instance was reached.
    Unreachable = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// For the man page and `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  usage, configuration, or something that the machine lacks
  2  the running instance refused
  3  no running instance was reached";
