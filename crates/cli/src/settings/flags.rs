//! Flags on top of a file: they replace single values and add to lists.

use std::path::PathBuf;

use super::parse::{self, WrongValue, wrong};
use super::{
    DeviceSpec, FirstLineMode, GivenSettings, InterfaceSettings, NapiPolicy, RunSettings,
    SettingPlace, SettingProblem,
};
use crate::args::RunArgs;

/// Lays the flags over the file. Returns all problems at once, in the order of the flags.
pub(super) fn lay(settings: &mut RunSettings, args: &RunArgs) -> Result<(), Vec<SettingProblem>> {
    let mut read = FlagReader(Vec::new());
    let device = read.one("--device", args.device.as_deref(), parse::device);
    let flags = InterfaceFlags {
        mac: read.one("--mac", args.mac.as_deref(), parse::mac),
        mtu: read.one("--mtu", args.mtu, parse::mtu),
        queues: read.one("--queues", args.queues, parse::queues),
        kernel_half: read.one("--kernel-half", args.kernel_half.as_deref(), parse::kernel_half),
        first_line: read.one("--first-line", args.first_line.as_deref(), parse::first_line),
        offload: args.no_offload.then(|| given("--no-offload", false)),
        addresses: read.many("--address", &args.address, parse::address),
        gateways: read.many("--gateway", &joined(&args.gateway), parse::router),
        routes: read.many("--route", &args.route, parse::route),
        dhcp: args.dhcp.map(|value| given("--dhcp", value)),
        dhcpv6: args.dhcpv6.map(|value| given("--dhcpv6", value)),
        accept_ra: args.accept_ra.map(|value| given("--accept-ra", value)),
        autoconf: args.autoconf.map(|value| given("--autoconf", value)),
    };
    let first = flags.first_flag(args);
    let cpu = read.one("--cpu", args.cpu, parse::cpu);
    settings.cpu = cpu.or(settings.cpu.take());
    let workers = read.one("--workers", args.workers, parse::workers);
    settings.workers = workers.or(settings.workers.take());
    let routes = read.one("--routes", args.routes, parse::routes);
    settings.routes = routes.or(settings.routes.take());
    let cores = read.one("--cores", args.cores.as_deref(), parse::cores);
    settings.cores = cores.or(settings.cores.take());
    let on_panic = read.one("--panic", args.panic.as_deref(), parse::on_panic);
    settings.on_panic = on_panic.or(settings.on_panic.take());
    let drain = read.one("--drain", args.drain, parse::drain);
    settings.drain = drain.or(settings.drain.take());
    settings.services.extend(read.many("--service", &args.service, parse::service));
    settings.record = path("--record", args.record.as_ref()).or(settings.record.take());
    settings.socket = path("--socket", args.socket.as_ref()).or(settings.socket.take());
    settings.dns_file = path("--dns-file", args.dns_file.as_ref()).or(settings.dns_file.take());
    let secret = path("--cookie-secret", args.cookie_secret.as_ref());
    settings.cookie_secret = secret.or(settings.cookie_secret.take());
    let metrics = read.one("--metrics", args.metrics.as_deref(), parse::metrics);
    settings.metrics = metrics.or(settings.metrics.take());
    let log_format = args.log_format.map(|value| given("--log-format", value));
    settings.log_format = log_format.or(settings.log_format.take());
    let log_level = args.log_level.map(|value| given("--log-level", value));
    settings.log_level = log_level.or(settings.log_level.take());

    // A device that could not be parsed does not tell which interface is meant.
    if args.device.is_none() || device.is_some() {
        match (interface(settings, device), first) {
            (Some(interface), _) => flags.lay(interface),
            (None, Some(flag)) => {
                let what = match settings.interfaces.len() {
                    0 => "there is no interface to apply this to".to_owned(),
                    n => format!("the file has {n} interfaces, and it is not clear which is meant"),
                };
                let remedy = "name it with --device, as in --device tap:fw0";
                read.complain(flag, wrong(what, remedy));
            }
            (None, None) => {}
        }
    }
    if read.0.is_empty() { Ok(()) } else { Err(read.0) }
}

/// The interface that flags mean: the named one, which is new where the file has none of the
/// name, or the only one.
fn interface(
    settings: &mut RunSettings,
    device: Option<GivenSettings<DeviceSpec>>,
) -> Option<&mut InterfaceSettings> {
    let interfaces = &mut settings.interfaces;
    match device {
        Some(device) => {
            let known = interfaces.iter().position(|i| i.device.value == device.value);
            let index = known.unwrap_or(interfaces.len());
            if known.is_none() {
                interfaces.push(InterfaceSettings::new(device));
            }
            interfaces.get_mut(index)
        }
        None if interfaces.len() == 1 => interfaces.first_mut(),
        None => None,
    }
}

/// The flags of one interface.
struct InterfaceFlags {
    mac: Option<GivenSettings<floodwall_base::MacAddr>>,
    mtu: Option<GivenSettings<u32>>,
    queues: Option<GivenSettings<usize>>,
    offload: Option<GivenSettings<bool>>,
    kernel_half: Option<GivenSettings<NapiPolicy>>,
    first_line: Option<GivenSettings<FirstLineMode>>,
    addresses: Vec<GivenSettings<floodwall_base::IpCidr>>,
    gateways: Vec<GivenSettings<parse::RouterWord>>,
    routes: Vec<GivenSettings<parse::RouteWord>>,
    dhcp: Option<GivenSettings<bool>>,
    dhcpv6: Option<GivenSettings<bool>>,
    accept_ra: Option<GivenSettings<bool>>,
    autoconf: Option<GivenSettings<bool>>,
}

impl InterfaceFlags {
    /// The first flag that needs an interface, read or not.
    fn first_flag(&self, args: &RunArgs) -> Option<&'static str> {
        let used = [
            ("--mac", args.mac.is_some()),
            ("--mtu", args.mtu.is_some()),
            ("--queues", args.queues.is_some()),
            ("--no-offload", args.no_offload),
            ("--kernel-half", args.kernel_half.is_some()),
            ("--first-line", args.first_line.is_some()),
            ("--address", !args.address.is_empty()),
            ("--gateway", !args.gateway.is_empty()),
            ("--route", !args.route.is_empty()),
            ("--dhcp", args.dhcp.is_some()),
            ("--dhcpv6", args.dhcpv6.is_some()),
            ("--accept-ra", args.accept_ra.is_some()),
            ("--autoconf", args.autoconf.is_some()),
        ];
        used.into_iter().find(|(_, used)| *used).map(|(flag, _)| flag)
    }

    fn lay(self, interface: &mut InterfaceSettings) {
        interface.mac = self.mac.or(interface.mac.take());
        interface.mtu = self.mtu.or(interface.mtu.take());
        interface.queues = self.queues.or(interface.queues.take());
        interface.kernel_half = self.kernel_half.or(interface.kernel_half.take());
        interface.first_line = self.first_line.or(interface.first_line.take());
        if let Some(offload) = self.offload {
            interface.offload = offload;
        }
        interface.addresses.extend(self.addresses);
        interface.add_routers(self.gateways);
        interface.transit.routes.extend(self.routes);
        interface.dhcp = self.dhcp.or(interface.dhcp.take());
        interface.dhcpv6 = self.dhcpv6.or(interface.dhcpv6.take());
        interface.accept_ra = self.accept_ra.or(interface.accept_ra.take());
        interface.autoconf = self.autoconf.or(interface.autoconf.take());
    }
}

/// `onlink` is a value of its own where it is not quoted together with its router.
fn joined(values: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for value in values {
        match all.last_mut() {
            Some(router) if value == "onlink" => *router += " onlink",
            _ => all.push(value.clone()),
        }
    }
    all
}

const fn given<T>(flag: &'static str, value: T) -> GivenSettings<T> {
    GivenSettings { value, place: SettingPlace::Flag(flag) }
}

fn path(flag: &'static str, path: Option<&PathBuf>) -> Option<GivenSettings<PathBuf>> {
    path.map(|path| given(flag, path.clone()))
}

/// Parses flags and collects the problems.
struct FlagReader(Vec<SettingProblem>);

impl FlagReader {
    fn complain(&mut self, flag: &'static str, wrong: WrongValue) {
        let WrongValue { what, remedy } = wrong;
        self.0.push(SettingProblem {
            place: SettingPlace::Flag(flag),
            key: String::new(),
            what,
            remedy,
        });
    }

    fn one<R, T>(
        &mut self,
        flag: &'static str,
        raw: Option<R>,
        word: impl Fn(R) -> Result<T, WrongValue>,
    ) -> Option<GivenSettings<T>> {
        match word(raw?) {
            Ok(value) => Some(given(flag, value)),
            Err(wrong) => {
                self.complain(flag, wrong);
                None
            }
        }
    }

    fn many<T>(
        &mut self,
        flag: &'static str,
        raw: &[String],
        word: impl Fn(&str) -> Result<T, WrongValue>,
    ) -> Vec<GivenSettings<T>> {
        raw.iter().filter_map(|text| self.one(flag, Some(text.as_str()), &word)).collect()
    }
}
