//! What an operator wants, out of a file and flags, judged before anything is opened.
//!
//! Called by `run` and `check`. The file is read first, flags override it. Invariant: every value
//! remembers where it was given, and every problem names that place, the key, what is wrong and the
//! remedy; all problems are collected, so that one run shows them all. No text of any kind makes
//! this panic.

mod file;
mod flags;
pub(crate) mod parse;
#[cfg(test)]
mod tests;
mod transit;
mod validate;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use floodwall_base::{IpCidr, MacAddr};
use floodwall_dispatch::OnPanic;

pub(crate) use self::parse::ServiceWord;
pub(crate) use self::transit::{HostTransit, InterfaceTransit};
use crate::args::RunArgs;
pub(crate) use floodwall_device::{DeviceKind, DeviceSpec, FirstLineMode, NapiPolicy};

/// Where a value was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SettingPlace {
    /// In a file: its name, line and column, both from 1.
    File(Arc<str>, usize, usize),
    /// By a flag.
    Flag(&'static str),
    /// Nowhere: it is missing, and there is no place to point at.
    Nowhere,
}

/// A value and where it was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GivenSettings<T> {
    pub(crate) value: T,
    pub(crate) place: SettingPlace,
}

/// One interface as wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct InterfaceSettings {
    pub(crate) device: GivenSettings<DeviceSpec>,
    pub(crate) mac: Option<GivenSettings<MacAddr>>,
    pub(crate) mtu: Option<GivenSettings<u32>>,
    pub(crate) queues: Option<GivenSettings<usize>>,
    pub(crate) offload: GivenSettings<bool>,
    /// Where the kernel's half of the device runs.
    pub(crate) kernel_half: Option<GivenSettings<NapiPolicy>>,
    /// What the program at an XDP interface does.
    pub(crate) first_line: Option<GivenSettings<FirstLineMode>>,
    pub(crate) addresses: Vec<GivenSettings<IpCidr>>,
    pub(crate) gateways: Vec<GivenSettings<IpAddr>>,
    /// Routers that are on the link although no prefix covers them.
    pub(crate) onlink_routers: Vec<IpAddr>,
    /// All routers of the interface are.
    pub(crate) onlink: Option<GivenSettings<bool>>,
    pub(crate) dhcp: Option<GivenSettings<bool>>,
    pub(crate) accept_ra: Option<GivenSettings<bool>>,
    pub(crate) autoconf: Option<GivenSettings<bool>>,
    /// What it does with packets for others.
    pub(crate) transit: InterfaceTransit,
}

impl InterfaceSettings {
    fn new(device: GivenSettings<DeviceSpec>) -> Self {
        Self {
            device,
            mac: None,
            mtu: None,
            queues: None,
            offload: GivenSettings { value: true, place: SettingPlace::Nowhere },
            kernel_half: None,
            first_line: None,
            addresses: Vec::new(),
            gateways: Vec::new(),
            onlink_routers: Vec::new(),
            onlink: None,
            dhcp: None,
            accept_ra: None,
            autoconf: None,
            transit: InterfaceTransit::default(),
        }
    }

    /// Adds routers, with those among them that are said to be on the link.
    fn add_routers(&mut self, routers: Vec<GivenSettings<parse::RouterWord>>) {
        let onlink = routers.iter().filter(|given| given.value.onlink);
        self.onlink_routers.extend(onlink.map(|given| given.value.addr));
        let addr = |given: GivenSettings<parse::RouterWord>| GivenSettings {
            value: given.value.addr,
            place: given.place,
        };
        self.gateways.extend(routers.into_iter().map(addr));
    }

    /// Whether a router is said to be on the link, although no address's prefix covers it.
    pub(crate) fn is_onlink(&self, router: IpAddr) -> bool {
        let of_route = |given: &GivenSettings<parse::RouteWord>| {
            given.value.onlink && given.value.via == Some(router)
        };
        self.onlink.as_ref().is_some_and(|given| given.value)
            || self.onlink_routers.contains(&router)
            || self.transit.routes.iter().any(of_route)
    }

    /// Whether an address's prefix covers a router, or a configured route on the link does.
    pub(crate) fn covers(&self, router: IpAddr) -> bool {
        let on_link = |given: &GivenSettings<parse::RouteWord>| {
            given.value.via.is_none() && given.value.prefix.contains(router)
        };
        self.addresses.iter().any(|given| given.value.contains(router))
            || self.transit.routes.iter().any(on_link)
    }

    /// Whether the link's addresses are configured by DHCP and routers, because none was given.
    fn asks_by_default(&self) -> bool {
        self.addresses.is_empty() && self.device.value.kind != DeviceKind::Tun
    }

    /// Whether DHCP servers are queried.
    pub(crate) fn wants_dhcp(&self) -> bool {
        self.dhcp.as_ref().map_or_else(|| self.asks_by_default(), |dhcp| dhcp.value)
    }

    /// Whether router advertisements are accepted.
    pub(crate) fn wants_routers(&self) -> bool {
        let default = || self.asks_by_default() || self.autoconf.as_ref().is_some_and(|a| a.value);
        self.accept_ra.as_ref().map_or_else(default, |accept| accept.value)
    }

    /// Whether addresses are made of the prefixes that routers advertise.
    pub(crate) fn wants_autoconf(&self) -> bool {
        let default = || self.asks_by_default() && self.wants_routers();
        self.autoconf.as_ref().map_or_else(default, |autoconf| autoconf.value)
    }
}

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
    /// What is done with packets for others.
    pub(crate) transit: HostTransit,
}

impl RunSettings {
    /// How many workers there shall be.
    pub(crate) fn worker_count(&self) -> usize {
        let of_cores = || self.cores.as_ref().map(|cores| cores.value.len());
        self.workers.as_ref().map(|workers| workers.value).or_else(of_cores).unwrap_or(1)
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
