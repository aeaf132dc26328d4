//! What an operator wants, out of a file and flags, judged before anything is opened.
//!
//! Called by `run` and `check`. The file is read first, flags override it. Invariant: every value
//! remembers where it was given, and every problem names that place, the key, what is wrong and the
//! remedy; all problems are collected, so that one run shows them all. No text of any kind makes
//! this panic.

mod file;
mod flags;
mod given;
mod interface;
pub(crate) mod parse;
#[cfg(test)]
mod tests;
mod transit;
mod validate;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use floodwall_dispatch::OnPanic;
use floodwall_stack::StaticRoute;

pub(crate) use self::given::{GivenSettings, SettingPlace};
pub(crate) use self::interface::InterfaceSettings;
pub(crate) use self::parse::ServiceWord;
pub(crate) use self::transit::{HostTransit, InterfaceTransit};
use crate::args::RunArgs;
use crate::log::{LogFormat, LogLevel};
pub(crate) use floodwall_device::{DeviceKind, DeviceSpec, FirstLineMode, NapiPolicy};

/// Everything that is wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RunSettings {
    pub(crate) interfaces: Vec<InterfaceSettings>,
    pub(crate) services: Vec<GivenSettings<ServiceWord>>,
    /// The core of the only worker.
    pub(crate) cpu: Option<GivenSettings<usize>>,
    pub(crate) workers: Option<GivenSettings<usize>>,
    /// Room for so many of each family.
    pub(crate) routes: Option<GivenSettings<usize>>,
    /// One a worker.
    pub(crate) cores: Option<GivenSettings<Vec<usize>>>,
    /// What the panic of one worker does.
    pub(crate) on_panic: Option<GivenSettings<OnPanic>>,
    /// How long connections may take to end.
    pub(crate) drain: Option<GivenSettings<Duration>>,
    pub(crate) record: Option<GivenSettings<PathBuf>>,
    pub(crate) socket: Option<GivenSettings<PathBuf>>,
    /// Where DNS servers and search list are written.
    pub(crate) dns_file: Option<GivenSettings<PathBuf>>,
    /// Whether UDP sockets that fill up prefer light senders to heavy ones.
    pub(crate) udp_fair_drop: Option<GivenSettings<bool>>,
    /// Where the secret of SYN cookies is.
    pub(crate) cookie_secret: Option<GivenSettings<PathBuf>>,
    pub(crate) log_format: Option<GivenSettings<LogFormat>>,
    pub(crate) log_level: Option<GivenSettings<LogLevel>>,
    /// Where metrics are served, on the host's own kernel.
    pub(crate) metrics: Option<GivenSettings<SocketAddr>>,
    /// What is done with packets for others.
    pub(crate) transit: HostTransit,
}

impl RunSettings {
    /// How many workers there shall be.
    pub(crate) fn worker_count(&self) -> usize {
        let of_cores = || self.cores.as_ref().map(|cores| cores.value.len());
        self.workers.as_ref().map(|workers| workers.value).or_else(of_cores).unwrap_or(1)
    }

    /// The static routes of all interfaces, in their order.
    pub(crate) fn static_routes(&self) -> Vec<StaticRoute> {
        let of = |(iface, settings): (usize, &InterfaceSettings)| settings.static_routes(iface);
        self.interfaces.iter().enumerate().flat_map(of).collect()
    }
}

/// One problem: `PLACE: KEY: what is wrong; remedy`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SettingProblem {
    pub(crate) place: SettingPlace,
    /// Empty where the place is a flag, which is its own key.
    pub(crate) key: String,
    pub(crate) what: String,
    pub(crate) remedy: String,
}

impl fmt::Display for SettingProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            SettingPlace::File(file, line, column) => write!(f, "{file}:{line}:{column}: ")?,
            SettingPlace::Flag(flag) => write!(f, "{flag}: ")?,
            SettingPlace::Nowhere => {}
        }
        if !self.key.is_empty() && !matches!(self.place, SettingPlace::Flag(_)) {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

/// Reads the file, lays the flags on top, and judges the whole.
pub(crate) fn load(
    file: Option<&Path>,
    flags: &RunArgs,
) -> Result<RunSettings, Vec<SettingProblem>> {
    let mut settings = RunSettings::default();
    if let Some(path) = file {
        let text = read(path).map_err(|problem| vec![problem])?;
        settings = file::parse(&path.display().to_string(), &text)?;
    }
    flags::lay(&mut settings, flags)?;
    validate::validate(&settings)?;
    Ok(settings)
}

/// Largest configuration file: far above need, far below harm.
const FILE_BYTES_MAX: u64 = 1 << 20;

fn read(path: &Path) -> Result<Vec<u8>, SettingProblem> {
    use std::io::Read;
    let problem = |what: String, remedy: &str| SettingProblem {
        place: SettingPlace::Nowhere,
        key: path.display().to_string(),
        what,
        remedy: remedy.to_owned(),
    };
    let mut text = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text))
        .map_err(|error| problem(format!("cannot be read: {error}"), "name a readable file"))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(problem("is longer than 1 MiB".to_owned(), "name a configuration file"));
    }
    Ok(text)
}
