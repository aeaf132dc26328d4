//! Flags on top of a file: they replace single values and add to lists.

use std::path::PathBuf;

use super::words::{self, Wrong, wrong};
use super::{
    DeviceWord, FirstLineMode, Given, InterfaceSettings, KernelHalf, Place, Problem, Settings,
};
use crate::args::RunArgs;

/// Lays the flags on what the file said. All complaints at once, in the order of the flags.
pub(super) fn lay(settings: &mut Settings, args: &RunArgs) -> Result<(), Vec<Problem>> {
    let mut read = Read(Vec::new());
    let device = read.one("--device", args.device.as_deref(), words::device);
    let flags = InterfaceFlags {
        mac: read.one("--mac", args.mac.as_deref(), words::mac),
        mtu: read.one("--mtu", args.mtu, words::mtu),
        queues: read.one("--queues", args.queues, words::queues),
        kernel_half: read.one("--kernel-half", args.kernel_half.as_deref(), words::kernel_half),
        first_line: read.one("--first-line", args.first_line.as_deref(), words::first_line),
        offload: args.no_offload.then(|| given("--no-offload", false)),
        addresses: read.many("--address", &args.address, words::address),
        gateways: read.many("--gateway", &args.gateway, words::gateway),
        routes: read.many("--route", &args.route, words::route),
        dhcp: args.dhcp.map(|value| given("--dhcp", value)),
        accept_ra: args.accept_ra.map(|value| given("--accept-ra", value)),
        autoconf: args.autoconf.map(|value| given("--autoconf", value)),
    };
    let first = flags.first_flag(args);
    let cpu = read.one("--cpu", args.cpu, words::cpu);
    settings.cpu = cpu.or(settings.cpu.take());
    let workers = read.one("--workers", args.workers, words::workers);
    settings.workers = workers.or(settings.workers.take());
    let routes = read.one("--routes", args.routes, words::routes);
    settings.routes = routes.or(settings.routes.take());
    let cores = read.one("--cores", args.cores.as_deref(), words::cores);
    settings.cores = cores.or(settings.cores.take());
    let on_panic = read.one("--panic", args.panic.as_deref(), words::on_panic);
    settings.on_panic = on_panic.or(settings.on_panic.take());
    settings.services.extend(read.many("--service", &args.service, words::service));
    settings.record = path("--record", args.record.as_ref()).or(settings.record.take());
    settings.socket = path("--socket", args.socket.as_ref()).or(settings.socket.take());
    settings.dns_file = path("--dns-file", args.dns_file.as_ref()).or(settings.dns_file.take());
    let secret = path("--cookie-secret", args.cookie_secret.as_ref());
    settings.cookie_secret = secret.or(settings.cookie_secret.take());

    // A device that could not be read says nothing about which interface is meant.
    if args.device.is_none() || device.is_some() {
        match (interface(settings, device), first) {
            (Some(interface), _) => flags.lay(interface),
            (None, Some(flag)) => {
                let what = match settings.interfaces.len() {
                    0 => "there is no interface to apply this to".to_owned(),
                    n => format!("the file has {n} interfaces, and this says not which is meant"),
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
    settings: &mut Settings,
    device: Option<Given<DeviceWord>>,
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

/// What flags say of one interface.
struct InterfaceFlags {
    mac: Option<Given<floodwall_base::MacAddr>>,
    mtu: Option<Given<u32>>,
    queues: Option<Given<usize>>,
    offload: Option<Given<bool>>,
    kernel_half: Option<Given<KernelHalf>>,
    first_line: Option<Given<FirstLineMode>>,
    addresses: Vec<Given<floodwall_base::IpCidr>>,
    gateways: Vec<Given<std::net::IpAddr>>,
    routes: Vec<Given<words::RouteWord>>,
    dhcp: Option<Given<bool>>,
    accept_ra: Option<Given<bool>>,
    autoconf: Option<Given<bool>>,
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
        interface.gateways.extend(self.gateways);
        interface.transit.routes.extend(self.routes);
        interface.dhcp = self.dhcp.or(interface.dhcp.take());
        interface.accept_ra = self.accept_ra.or(interface.accept_ra.take());
        interface.autoconf = self.autoconf.or(interface.autoconf.take());
    }
}

const fn given<T>(flag: &'static str, value: T) -> Given<T> {
    Given { value, place: Place::Flag(flag) }
}

fn path(flag: &'static str, path: Option<&PathBuf>) -> Option<Given<PathBuf>> {
    path.map(|path| given(flag, path.clone()))
}

/// Reads flags and keeps the complaints.
struct Read(Vec<Problem>);

impl Read {
    fn complain(&mut self, flag: &'static str, wrong: Wrong) {
        let Wrong { what, remedy } = wrong;
        self.0.push(Problem { place: Place::Flag(flag), key: String::new(), what, remedy });
    }

    fn one<R, T>(
        &mut self,
        flag: &'static str,
        raw: Option<R>,
        word: impl Fn(R) -> Result<T, Wrong>,
    ) -> Option<Given<T>> {
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
        word: impl Fn(&str) -> Result<T, Wrong>,
    ) -> Vec<Given<T>> {
        raw.iter().filter_map(|text| self.one(flag, Some(text.as_str()), &word)).collect()
    }
}
