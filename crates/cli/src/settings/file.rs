//! The configuration file: TOML with the words of the flags.
//!
//! The document is walked with its positions kept, instead of being poured into structs, so that
//! every problem has a line and a column and all of them come at once.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use floodwall_stack::AdvertiserConfig;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::parse::{self, ServiceWord, WrongValue, wrong};
use super::transit::{self, TransitFamilies};
use super::{
    GivenSettings, HostTransit, InterfaceSettings, InterfaceTransit, RunSettings, SettingPlace,
    SettingProblem,
};

/// Keys of the file itself, of an interface, of a service.
const FILE_KEYS: &[&str] = &[
    "cores",
    "cpu",
    "dns_file",
    "drain",
    "cookie_secret",
    "forwarding",
    "interface",
    "log_format",
    "log_level",
    "martians",
    "metrics",
    "panic",
    "record",
    "routes",
    "service",
    "socket",
    "udp_fair_drop",
    "workers",
];
const INTERFACE_KEYS: &[&str] = &[
    "accept_ra",
    "access",
    "address",
    "advertise",
    "autoconf",
    "device",
    "dhcp",
    "dhcpv6",
    "first_line",
    "forwarding",
    "gateway",
    "kernel_half",
    "mac",
    "mtu",
    "offload",
    "onlink",
    "queues",
    "route",
    "rp_filter",
    "send_redirects",
];
const ROUTE_EXAMPLE: &str = "192.0.2.0/24 via 10.0.0.1";
const ADVERTISE_KEYS: &[&str] = &["dns", "interval", "lifetime", "mtu", "prefix", "route"];
const SERVICE_KEYS: &[&str] = &["kind", "port", "join"];

/// Every key that a file may have.
#[cfg(test)]
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    [FILE_KEYS, INTERFACE_KEYS, ADVERTISE_KEYS, SERVICE_KEYS].concat().into_iter()
}

/// Reads a file's bytes. Returns all problems at once, in order of their places.
pub(super) fn parse(name: &str, bytes: &[u8]) -> Result<RunSettings, Vec<SettingProblem>> {
    let valid = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    let mut walk = FileWalk { name: name.into(), text: valid, problems: Vec::new() };
    if valid.len() < bytes.len() {
        let problem = wrong("this byte is not UTF-8", "save the file as UTF-8");
        return Err(vec![walk.problem(valid.len(), "", problem)]);
    }
    let mut settings = RunSettings::default();
    match DeTable::parse(valid) {
        Ok(table) => walk.top(table.get_ref(), &mut settings),
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            let remedy = "see `floodwall run --help` for an example of the file";
            let problem = wrong(error.message().replace('\n', " "), remedy);
            walk.complain(at, "", problem);
        }
    }
    if walk.problems.is_empty() {
        return Ok(settings);
    }
    walk.problems.sort_by_key(|problem| match problem.place {
        SettingPlace::File(_, line, column) => (line, column),
        _ => (0, 0),
    });
    Err(walk.problems)
}

type Value<'a> = Spanned<DeValue<'a>>;

struct FileWalk<'a> {
    name: Arc<str>,
    text: &'a str,
    problems: Vec<SettingProblem>,
}

impl FileWalk<'_> {
    /// Line and column, from 1; columns count characters, as editors do.
    fn place(&self, at: usize) -> SettingPlace {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
        SettingPlace::File(Arc::clone(&self.name), line, column)
    }

    fn problem(&self, at: usize, key: &str, wrong: WrongValue) -> SettingProblem {
        let WrongValue { what, remedy } = wrong;
        SettingProblem { place: self.place(at), key: key.to_owned(), what, remedy }
    }

    fn complain(&mut self, at: usize, key: &str, wrong: WrongValue) {
        let problem = self.problem(at, key, wrong);
        self.problems.push(problem);
    }

    /// Reports unknown keys.
    fn known(&mut self, table: &DeTable<'_>, known: &[&str], within: &str) {
        for key in table.keys() {
            let word: &str = key.get_ref();
            if known.contains(&word) {
                continue;
            }
            let remedy = match known.iter().find(|known| is_near(known, word)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the keys here are {}", known.join(", ")),
            };
            let path = if within.is_empty() { word.to_owned() } else { format!("{within}.{word}") };
            self.complain(key.span().start, &path, wrong("unknown key", remedy));
        }
    }

    /// A value that a function of `words` understands.
    fn read<T, R>(
        &mut self,
        table: &DeTable<'_>,
        (within, key): (&str, &str),
        raw: impl Fn(&DeValue<'_>) -> Result<R, WrongValue>,
        word: impl Fn(R) -> Result<T, WrongValue>,
    ) -> Option<GivenSettings<T>> {
        let value = table.get(key)?;
        let path = if within.is_empty() { key.to_owned() } else { format!("{within}.{key}") };
        self.read_value(value, &path, raw, word)
    }

    fn read_value<T, R>(
        &mut self,
        value: &Value<'_>,
        path: &str,
        raw: impl Fn(&DeValue<'_>) -> Result<R, WrongValue>,
        word: impl Fn(R) -> Result<T, WrongValue>,
    ) -> Option<GivenSettings<T>> {
        let at = value.span().start;
        match raw(value.get_ref()).and_then(word) {
            Ok(value) => Some(GivenSettings { value, place: self.place(at) }),
            Err(wrong) => {
                self.complain(at, path, wrong);
                None
            }
        }
    }

    /// A list of texts, each of which a function of `words` understands.
    fn read_list<T>(
        &mut self,
        table: &DeTable<'_>,
        (within, key): (&str, &str),
        example: &str,
        word: impl Fn(&str) -> Result<T, WrongValue>,
    ) -> Vec<GivenSettings<T>> {
        let Some(value) = table.get(key) else { return Vec::new() };
        let path = format!("{within}.{key}");
        let Some(items) = value.get_ref().as_array() else {
            let remedy = format!("write a list: {key} = [\"{example}\"]");
            let what = format!("{}, not a list", this_is(value.get_ref()));
            self.complain(value.span().start, &path, wrong(what, remedy));
            return Vec::new();
        };
        let read = |item| self.read_value(item, &path, text, |t| word(&t));
        items.iter().filter_map(read).collect()
    }

    fn top(&mut self, table: &DeTable<'_>, settings: &mut RunSettings) {
        self.known(table, FILE_KEYS, "");
        settings.cpu = self.read(table, ("", "cpu"), number, parse::cpu);
        settings.workers = self.read(table, ("", "workers"), number, parse::workers);
        settings.routes = self.read(table, ("", "routes"), number, parse::routes);
        settings.cores = self.read(table, ("", "cores"), text, |t| parse::cores(&t));
        settings.on_panic = self.read(table, ("", "panic"), text, |t| parse::on_panic(&t));
        settings.drain = self.read(table, ("", "drain"), number, parse::drain);
        settings.record = self.read(table, ("", "record"), text, path_word);
        settings.socket = self.read(table, ("", "socket"), text, path_word);
        settings.dns_file = self.read(table, ("", "dns_file"), text, path_word);
        settings.udp_fair_drop = self.read(table, ("", "udp_fair_drop"), truth, Ok);
        settings.cookie_secret = self.read(table, ("", "cookie_secret"), text, path_word);
        settings.log_format = self.read(table, ("", "log_format"), text, |t| parse::log_format(&t));
        settings.log_level = self.read(table, ("", "log_level"), text, |t| parse::log_level(&t));
        settings.metrics = self.read(table, ("", "metrics"), text, |t| parse::metrics(&t));
        settings.transit = HostTransit {
            forwarding: self.read(table, ("", "forwarding"), forwarding, Ok),
            martians: self.read(table, ("", "martians"), text, |t| transit::martians(&t)),
        };
        for table in self.tables(table, "interface") {
            settings.interfaces.extend(self.interface(table));
        }
        for table in self.tables(table, "service") {
            settings.services.extend(self.service(table));
        }
    }

    /// The tables of `[[key]]`.
    fn tables<'t, 'i>(&mut self, table: &'t DeTable<'i>, key: &str) -> Vec<&'t Value<'i>> {
        let Some(value) = table.get(key) else { return Vec::new() };
        let items: Vec<_> = match value.get_ref() {
            DeValue::Array(items) => items.iter().collect(),
            _ => vec![value],
        };
        let is_list = matches!(value.get_ref(), DeValue::Array(_));
        if let Some(odd) = items.iter().find(|item| !is_list || !item.get_ref().is_table()) {
            let remedy = format!("begin each with a line [[{key}]]");
            self.complain(odd.span().start, key, wrong(this_is(odd.get_ref()), remedy));
            return Vec::new();
        }
        items
    }

    fn interface(&mut self, value: &Value<'_>) -> Option<InterfaceSettings> {
        const HERE: &str = "interface";
        let table = value.get_ref().as_table()?;
        self.known(table, INTERFACE_KEYS, HERE);
        if !table.contains_key("device") {
            let remedy = "add device = \"tap:NAME\", \"tun:NAME\", \"packet:INTERFACE\" or \
                          \"xdp:INTERFACE\"";
            self.complain(value.span().start, "interface.device", wrong("missing", remedy));
        }
        let device = self.read(table, (HERE, "device"), text, |t| parse::device(&t));
        let mac = self.read(table, (HERE, "mac"), text, |t| parse::mac(&t));
        let mtu = self.read(table, (HERE, "mtu"), number, parse::mtu);
        let queues = self.read(table, (HERE, "queues"), number, parse::queues);
        let offload = self.read(table, (HERE, "offload"), truth, Ok);
        let kernel_half = self.read(table, (HERE, "kernel_half"), text, |t| parse::kernel_half(&t));
        let first_line = self.read(table, (HERE, "first_line"), text, |t| parse::first_line(&t));
        let dhcp = self.read(table, (HERE, "dhcp"), truth, Ok);
        let dhcpv6 = self.read(table, (HERE, "dhcpv6"), truth, Ok);
        let accept_ra = self.read(table, (HERE, "accept_ra"), truth, Ok);
        let autoconf = self.read(table, (HERE, "autoconf"), truth, Ok);
        let address = (HERE, "address");
        let addresses = self.read_list(table, address, "10.0.0.2/24", parse::address);
        let gateways = self.read_list(table, (HERE, "gateway"), "10.0.0.1", parse::router);
        let onlink = self.read(table, (HERE, "onlink"), truth, Ok);
        let mut plain = InterfaceSettings::new(device?);
        plain.add_routers(gateways);
        let offload = offload.unwrap_or_else(|| plain.offload.clone());
        let transit = InterfaceTransit {
            forwarding: self.read(table, (HERE, "forwarding"), truth, Ok),
            rp_filter: self.read(table, (HERE, "rp_filter"), text, |t| transit::rp_filter(&t)),
            send_redirects: self.read(table, (HERE, "send_redirects"), truth, Ok),
            access: self.read_list(table, (HERE, "access"), "deny udp dport 53", transit::access),
            routes: self.read_list(table, (HERE, "route"), ROUTE_EXAMPLE, parse::route),
            advertise: table.get("advertise").and_then(|value| self.advertise(value)),
        };
        let plain = InterfaceSettings { kernel_half, first_line, dhcp, accept_ra, ..plain };
        let plain = InterfaceSettings { autoconf, dhcpv6, transit, ..plain };
        Some(InterfaceSettings { mac, mtu, queues, offload, addresses, onlink, ..plain })
    }

    /// The router advertisements that are sent to the hosts of a link.
    fn advertise(&mut self, value: &Value<'_>) -> Option<GivenSettings<AdvertiserConfig>> {
        const HERE: &str = "interface.advertise";
        let at = value.span().start;
        let Some(table) = value.get_ref().as_table() else {
            let remedy = "write a table: advertise = { prefix = [\"fd00:0:0:1::/64\"] }";
            self.complain(at, HERE, wrong(this_is(value.get_ref()), remedy));
            return None;
        };
        self.known(table, ADVERTISE_KEYS, HERE);
        let plain = AdvertiserConfig::default();
        let prefixes = self.read_list(table, (HERE, "prefix"), "fd00:0:0:1::/64", transit::prefix);
        let routes = self.read_list(table, (HERE, "route"), "fd16::/16", transit::route);
        let dns = self.read_list(table, (HERE, "dns"), "fd00::53", transit::dns);
        let interval = self.read(table, (HERE, "interval"), number, transit::seconds);
        let lifetime = self.read(table, (HERE, "lifetime"), number, transit::seconds);
        let mtu = self.read(table, (HERE, "mtu"), number, parse::mtu);
        let said = AdvertiserConfig {
            prefixes: prefixes.into_iter().map(|given| given.value).collect(),
            routes: routes.into_iter().map(|given| given.value).collect(),
            dns: dns.into_iter().map(|given| given.value).collect(),
            interval: interval.map_or(plain.interval, |given| given.value),
            lifetime: lifetime.map_or(plain.lifetime, |given| given.value),
            mtu: mtu.map(|given| given.value),
            ..plain
        };
        if let Err(error) = said.check() {
            let remedy = "see RFC 4861 section 6.2.1 for valid values";
            self.complain(at, HERE, wrong(error.to_string(), remedy));
            return None;
        }
        Some(GivenSettings { value: said, place: self.place(at) })
    }

    fn service(&mut self, value: &Value<'_>) -> Option<GivenSettings<ServiceWord>> {
        const HERE: &str = "service";
        let table = value.get_ref().as_table()?;
        self.known(table, SERVICE_KEYS, HERE);
        for (key, remedy) in
            [("kind", "add kind = \"udp-echo\" or another"), ("port", "add port = 7001 or another")]
        {
            if !table.contains_key(key) {
                let path = format!("service.{key}");
                self.complain(value.span().start, &path, wrong("missing", remedy));
            }
        }
        let kind = self.read(table, (HERE, "kind"), text, |t| parse::service_kind(&t));
        let port = self.read(table, (HERE, "port"), number, parse::port);
        let groups = self.read_list(table, (HERE, "join"), "239.1.2.3", parse::group);
        let groups = groups.into_iter().map(|group| group.value).collect();
        let (kind, port) = (kind?, port?);
        let value = ServiceWord { kind: kind.value, port: port.value, groups };
        Some(GivenSettings { value, place: port.place })
    }
}

/// The value's type in words.
fn this_is(value: &DeValue<'_>) -> String {
    let kind = value.type_str();
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("this is {article} {kind}")
}

fn text(value: &DeValue<'_>) -> Result<String, WrongValue> {
    let odd = || wrong(this_is(value), "write a text in quotes");
    value.as_str().map(str::to_owned).ok_or_else(odd)
}

fn number(value: &DeValue<'_>) -> Result<i64, WrongValue> {
    let Some(integer) = value.as_integer() else {
        let remedy = "write a whole number without quotes";
        return Err(wrong(this_is(value), remedy));
    };
    i64::from_str_radix(integer.as_str(), integer.radix())
        .map_err(|_| wrong("the number is far too large", "write a smaller one"))
}

fn truth(value: &DeValue<'_>) -> Result<bool, WrongValue> {
    let odd = || wrong(this_is(value), "write true or false");
    value.as_bool().ok_or_else(odd)
}

/// Whether packets for others are passed on: of both families, or of one.
fn forwarding(value: &DeValue<'_>) -> Result<TransitFamilies, WrongValue> {
    match (value.as_bool(), value.as_str()) {
        (Some(all), _) => Ok(TransitFamilies { v4: all, v6: all }),
        (_, Some("ipv4")) => Ok(TransitFamilies { v4: true, v6: false }),
        (_, Some("ipv6")) => Ok(TransitFamilies { v4: false, v6: true }),
        _ => Err(wrong(this_is(value), "write true, false, \"ipv4\" or \"ipv6\"")),
    }
}

fn path_word(text: String) -> Result<PathBuf, WrongValue> {
    if text.is_empty() || text.contains('\0') {
        return Err(wrong(format!("{text:?} is not a path"), "write the path of a file"));
    }
    Ok(text.into())
}

/// Whether two words differ by a slip of the finger: one letter more, less or other, two swapped,
/// or one a plural of the other.
fn is_near(known: &str, word: &str) -> bool {
    let word = word.to_lowercase();
    let edits = |word: &str| -> BTreeSet<String> {
        let letters: Vec<char> = word.chars().take(32).collect();
        let without = |i: usize| {
            let rest = letters.iter().enumerate().filter(move |(j, _)| *j != i);
            rest.map(|(_, letter)| *letter).collect::<String>()
        };
        (0..letters.len()).map(without).collect()
    };
    let (shorter_known, shorter_word) = (edits(known), edits(&word));
    known == word
        || shorter_known.contains(&word)
        || shorter_word.contains(known)
        || !shorter_known.is_disjoint(&shorter_word)
        || word.strip_suffix("es") == Some(known)
}
