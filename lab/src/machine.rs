//! Where and of what a run was made: machine, commit, date. Kept with every result.
//!
//! The one file of the lab that looks outside: it reads the clock and `/proc`, and runs git.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The machine, commit and date of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Machine {
    /// The processor's name, as it calls itself.
    pub cpu: String,
    /// Threads that the program may use.
    pub cores: usize,
    /// Operating system and kernel.
    pub system: String,
    /// `debug` or `release`.
    pub build: &'static str,
    /// The program's version.
    pub version: &'static str,
    /// The commit of the repository that the run was started in, with `-dirty` where files differ
    /// from it; the version where there is none.
    pub commit: String,
    /// The day, as 2026-01-31 (UTC).
    pub date: String,
}

impl Machine {
    /// This one, now.
    #[must_use]
    pub fn here() -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(": ")?.1.to_owned())
        });
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let version = env!("CARGO_PKG_VERSION");
        Self {
            cpu: cpu.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            system: format!("{} {}", std::env::consts::OS, kernel.trim()).trim().to_owned(),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            version,
            commit: repository()
                .and_then(|root| commit(&root))
                .unwrap_or_else(|| format!("v{version}")),
            date: date(now_secs()),
        }
    }
}

/// The repository around the current directory: the folder that has the lab's plans.
pub(crate) fn repository() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let is_root = |path: &&Path| path.join("lab/plans").is_dir() && path.join(".git").exists();
    here.ancestors().find(is_root).map(Path::to_owned)
}

fn commit(root: &Path) -> Option<String> {
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let short = git(&["rev-parse", "--short=8", "HEAD"])?;
    let clean = git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if clean { short } else { format!("{short}-dirty") })
}

#[expect(clippy::disallowed_methods, reason = "a result is kept under the day it was made")]
fn now_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The civil date of a number of seconds since 1970 (UTC), by whole eras of 400 years.
fn date(secs: u64) -> String {
    let days = secs / 86_400 + 719_468; // since 0000-03-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153; // from March
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_named_right_round_leap_days_and_new_year() {
        for (secs, day) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_798_761_599, "2026-12-31"),
            (1_798_761_600, "2027-01-01"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date(secs), day);
        }
    }
}
