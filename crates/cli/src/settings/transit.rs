//! What a host does with packets for others: the words of the configuration file.
//!
//! Filled by `file.rs`, used by `run` for the stack's configuration. Words are those of Linux's
//! sysctls where it has them. But for `--route` there are no flags: a router has several
//! interfaces, and so a file.

use floodwall_stack::{
    AccessRule, AdvertiserConfig, InterfaceConfig, Martians, ReversePath, StackConfig,
};

use core::net::Ipv6Addr;
use core::time::Duration;

use floodwall_base::Prefix;
use floodwall_wire::ndp::{Lifetime, Preference, PrefixInfo, RouteInfo};

use super::given::GivenSettings;
use super::parse::{RouteWord, WrongValue, wrong};

/// The senders that packets are forwarded for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TransitFamilies {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
}

/// Of the whole host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct HostTransit {
    pub(crate) forwarding: Option<GivenSettings<TransitFamilies>>,
    pub(crate) martians: Option<GivenSettings<Martians>>,
}

/// Of one interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct InterfaceTransit {
    pub(crate) forwarding: Option<GivenSettings<bool>>,
    pub(crate) rp_filter: Option<GivenSettings<ReversePath>>,
    pub(crate) send_redirects: Option<GivenSettings<bool>>,
    pub(crate) advertise: Option<GivenSettings<AdvertiserConfig>>,
    /// What may come in.
    pub(crate) access: Vec<GivenSettings<AccessRule>>,
    /// Destinations behind it, besides its own prefixes and gateways.
    pub(crate) routes: Vec<GivenSettings<RouteWord>>,
}

/// `strict`, `loose`, `off`.
pub(super) fn rp_filter(text: &str) -> Result<ReversePath, WrongValue> {
    match text {
        "off" => Ok(ReversePath::Off),
        "strict" => Ok(ReversePath::Strict),
        "loose" => Ok(ReversePath::Loose),
        _ => {
            let remedy = "write \"strict\", \"loose\" or \"off\"";
            Err(wrong(format!("{text:?} is no way to look at the way back"), remedy))
        }
    }
}

/// `impossible`, `registry`.
pub(super) fn martians(text: &str) -> Result<Martians, WrongValue> {
    match text {
        "impossible" => Ok(Martians::Impossible),
        "registry" => Ok(Martians::Registry),
        _ => {
            let remedy = "write \"impossible\" or \"registry\" (RFC 6890)";
            Err(wrong(format!("{text:?} is no list of addresses"), remedy))
        }
    }
}

/// `deny udp from 10.0.0.0/8 to any dport 53`.
pub(super) fn access(text: &str) -> Result<AccessRule, WrongValue> {
    let remedy = "write permit or deny, then udp, tcp, icmp, icmpv6 or a number, from PREFIX, to \
                  PREFIX, sport PORTS, dport PORTS, as far as wanted";
    text.parse().map_err(|error: floodwall_stack::AccessRuleError| wrong(error.to_string(), remedy))
}

/// A prefix that hosts make addresses of, for a day, four hours of them preferred (RFC 9096 section
/// 3.5 shortens RFC 4861's month).
pub(super) fn prefix(text: &str) -> Result<PrefixInfo, WrongValue> {
    let (prefix, prefix_len) = ipv6_prefix(text)?;
    Ok(PrefixInfo {
        prefix,
        prefix_len,
        on_link: true,
        autonomous: prefix_len == 64,
        valid_lifetime: Lifetime::from_secs(86_400),
        preferred_lifetime: Lifetime::from_secs(14_400),
    })
}

/// A route of medium preference for half an hour.
pub(super) fn route(text: &str) -> Result<RouteInfo, WrongValue> {
    let (prefix, prefix_len) = ipv6_prefix(text)?;
    let (preference, lifetime) = (Preference::Medium, Lifetime::from_secs(1800));
    Ok(RouteInfo { prefix, prefix_len, preference, lifetime })
}

fn ipv6_prefix(text: &str) -> Result<(Ipv6Addr, u8), WrongValue> {
    let odd = || wrong(format!("{text:?} is no IPv6 prefix"), "write one as in fd00:0:0:1::/64");
    let (addr, len) = text.split_once('/').ok_or_else(odd)?;
    let addr: Ipv6Addr = addr.parse().map_err(|_| odd())?;
    let len: u8 = len.parse().ok().filter(|len| *len <= 128).ok_or_else(odd)?;
    let prefix = Prefix::new(addr, len).ok_or_else(odd)?;
    Ok((prefix.addr(), len))
}

/// A DNS server.
pub(super) fn dns(text: &str) -> Result<Ipv6Addr, WrongValue> {
    let odd = |_| wrong(format!("{text:?} is no IPv6 address"), "write one as in fd00::53");
    text.parse().map_err(odd)
}

/// Seconds.
pub(super) fn seconds(number: i64) -> Result<Duration, WrongValue> {
    let odd = |_| wrong(format!("{number} is no number of seconds"), "write 0 to 65535");
    u16::try_from(number).map(|secs| Duration::from_secs(secs.into())).map_err(odd)
}

fn value<T: Copy>(given: &Option<GivenSettings<T>>) -> Option<T> {
    given.as_ref().map(|given| given.value)
}

impl HostTransit {
    /// Whether packets for others are passed on.
    pub(crate) fn forwards(&self) -> bool {
        self.forwarding.as_ref().is_some_and(|given| given.value.v4 || given.value.v6)
    }

    /// The stack's part of it.
    pub(crate) fn of_host(&self) -> StackConfig {
        let TransitFamilies { v4, v6 } = value(&self.forwarding).unwrap_or_default();
        let martians = value(&self.martians).unwrap_or_default();
        StackConfig { ipv4_forwarding: v4, ipv6_forwarding: v6, martians, ..StackConfig::default() }
    }

    /// The stack's part of one interface.
    pub(crate) fn of_interface(&self, interface: &InterfaceTransit) -> InterfaceConfig {
        let plain = InterfaceConfig::default();
        InterfaceConfig {
            forwarding: value(&interface.forwarding).unwrap_or(plain.forwarding),
            reverse_path: value(&interface.rp_filter).unwrap_or(plain.reverse_path),
            send_redirects: value(&interface.send_redirects).unwrap_or(plain.send_redirects),
            access: interface.access.iter().map(|given| given.value.clone()).collect(),
            advertise: interface.advertise.as_ref().map(|given| given.value.clone()),
            ..plain
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::file;

    const ROUTER: &str = r#"
        forwarding = true
        martians = "registry"
        [[interface]]
        device = "packet:eth0"
        address = ["10.0.0.1/24"]
        rp_filter = "strict"
        send_redirects = false
        [[interface]]
        device = "packet:eth1"
        address = ["10.1.0.1/24"]
        forwarding = false
    "#;

    #[test]
    fn a_router_is_read_from_its_file() {
        let settings = file::parse("r.toml", ROUTER.as_bytes()).unwrap();
        let host = settings.transit.of_host();
        assert!(host.ipv4_forwarding && host.ipv6_forwarding);
        assert_eq!(host.martians, Martians::Registry);
        let of = |n: usize| settings.transit.of_interface(&settings.interfaces[n].transit);
        assert_eq!((of(0).reverse_path, of(0).send_redirects), (ReversePath::Strict, false));
        assert_eq!((of(0).forwarding, of(1).forwarding), (true, false));
        assert_eq!((of(1).reverse_path, of(1).send_redirects), (ReversePath::Off, true));
        let text = "[[interface]]\ndevice = \"tap:f\"\nadvertise = { prefix = [\"fd00::1/64\"], \
            dns = [\"fd00::53\"], route = [\"fd16::/16\"], interval = 60, lifetime = 180 }";
        let settings = file::parse("r.toml", text.as_bytes()).unwrap();
        let said = settings.transit.of_interface(&settings.interfaces[0].transit).advertise;
        let said = said.unwrap();
        assert_eq!((said.prefixes.len(), said.routes.len(), said.dns.len()), (1, 1, 1));
        assert_eq!(said.prefixes[0].prefix, "fd00::".parse::<Ipv6Addr>().unwrap());
        assert_eq!((said.interval.as_secs(), said.lifetime.as_secs()), (60, 180));
        let one = file::parse("r.toml", b"forwarding = \"ipv6\"").unwrap().transit.of_host();
        assert!(!one.ipv4_forwarding && one.ipv6_forwarding);
        let none = file::parse("r.toml", b"").unwrap().transit.of_host();
        assert!(!none.ipv4_forwarding && !none.ipv6_forwarding);
    }

    #[test]
    fn routes_stand_with_the_interface_that_they_leave_by() {
        let text = "[[interface]]\ndevice = \"tap:a\"\naddress = [\"10.0.0.1/24\"]\n\
            [[interface]]\ndevice = \"tap:b\"\naddress = [\"10.1.0.1/24\", \"fd01::1/64\"]\n\
            route = [\"192.0.2.0/24 via 10.1.0.2\", \"default via fe80::2\", \"198.51.100.0/24\"]";
        let settings = file::parse("r.toml", text.as_bytes()).unwrap();
        let routes = settings.static_routes();
        let shown: Vec<_> =
            routes.iter().map(|r| (r.prefix.to_string(), r.via.map(|v| v.to_string()))).collect();
        let via = |text: &str| Some(text.to_owned());
        assert_eq!(shown[0], ("192.0.2.0/24".to_owned(), via("10.1.0.2")));
        assert_eq!(shown[1], ("::/0".to_owned(), via("fe80::2")));
        assert_eq!(shown[2], ("198.51.100.0/24".to_owned(), None));
        assert!(routes.iter().all(|route| route.iface == 1));
    }

    /// A host address of /32 with a gateway that no prefix covers, as some hosters give it.
    #[test]
    fn a_router_outside_of_every_prefix_is_on_the_link_where_that_is_said() {
        let text = |more: &str| {
            format!(
                "[[interface]]\ndevice = \"tap:a\"\n\
                 address = [\"10.9.1.5/32\", \"fd19::5/128\"]\n{more}"
            )
        };
        let near = [("172.31.1.1/32", None)];
        let both = [("172.31.1.1/32", None), ("fd19:9::1/128", None)];
        type Routes<'a> = &'a [(&'a str, Option<&'a str>)];
        let ways: [(&str, Routes<'_>); 6] = [
            ("gateway = [\"172.31.1.1 onlink\", \"fe80::1\"]", &near),
            ("gateway = [\"172.31.1.1\", \"fd19:9::1\", \"fe80::1\"]\nonlink = true", &both),
            ("gateway = [\"172.31.1.1\"]\nroute = [\"172.31.1.1/32\"]", &near),
            ("gateway = [\"172.31.1.1\"]\nroute = [\"172.31.1.1/32\"]\nonlink = true", &near),
            (
                "route = [\"172.31.1.1/32\", \"default via 172.31.1.1\"]",
                &[near[0], ("0.0.0.0/0", Some("172.31.1.1"))],
            ),
            (
                "route = [\"default via 172.31.1.1 onlink\"]",
                &[near[0], ("0.0.0.0/0", Some("172.31.1.1"))],
            ),
        ];
        for (more, expected) in ways {
            let settings = file::parse("r.toml", text(more).as_bytes()).unwrap();
            crate::settings::validate::validate(&settings).expect(more);
            let routes = settings.static_routes();
            let shown: Vec<_> = routes
                .iter()
                .map(|r| (r.prefix.to_string(), r.via.map(|via| via.to_string())))
                .collect();
            let shown: Vec<_> =
                shown.iter().map(|(prefix, via)| (prefix.as_str(), via.as_deref())).collect();
            assert_eq!(shown, expected, "{more}");
        }
        let refused = file::parse("r.toml", text("gateway = [\"172.31.1.1\"]").as_bytes()).unwrap();
        let problems = crate::settings::validate::validate(&refused).unwrap_err();
        assert!(problems[0].remedy.contains("onlink = true"), "{}", problems[0]);
    }

    #[test]
    fn wrong_words_are_named_with_their_place_and_remedy() {
        for (line, key) in [
            ("forwarding = \"both\"", "forwarding"),
            ("forwarding = 1", "forwarding"),
            ("martians = \"all\"", "martians"),
        ] {
            let problems = file::parse("r.toml", line.as_bytes()).unwrap_err();
            assert_eq!((problems.len(), problems[0].key.as_str()), (1, key), "{line}");
            assert!(problems[0].remedy.starts_with("write "), "{line}");
        }
        for (word, value, key) in [
            ("rp_filter", "\"1\"", "rp_filter"),
            ("send_redirects", "\"no\"", "send_redirects"),
            ("advertise", "true", "advertise"),
            ("access", "[\"allow udp\"]", "access"),
            ("route", "[\"10.0.0.0/8 through 10.0.0.1\"]", "route"),
            ("route", "[\"10.0.0.0/8 via fd00::1\"]", "route"),
            ("route", "[\"default\"]", "route"),
            ("advertise.prefix", "[\"10.0.0.0/8\"]", "advertise.prefix"),
            // Too short, and shorter than another value requires: the whole table is reported.
            ("advertise.interval", "3", "advertise"),
        ] {
            let text = format!("[[interface]]\ndevice = \"tap:f\"\n{word} = {value}\n");
            let problems = file::parse("r.toml", text.as_bytes()).unwrap_err();
            assert_eq!(problems[0].key, format!("interface.{key}"));
        }
    }
}
