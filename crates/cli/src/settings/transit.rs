//! What a host does with packets for others: the words of the configuration file.
//!
//! Filled by `file.rs`, used by `run` for the stack's configuration. Words are those of Linux's
//! sysctls where it has them. There are no flags: a router has several interfaces, and so a file.

use floodwall_stack::{InterfaceConfig, Martians, ReversePath, StackConfig};

use super::Given;
use super::words::{Wrong, wrong};

/// Whose packets are passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Families {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
}

/// Of the whole host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct HostTransit {
    pub(crate) forwarding: Option<Given<Families>>,
    pub(crate) martians: Option<Given<Martians>>,
}

/// Of one interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct InterfaceTransit {
    pub(crate) forwarding: Option<Given<bool>>,
    pub(crate) rp_filter: Option<Given<ReversePath>>,
    pub(crate) send_redirects: Option<Given<bool>>,
}

/// `strict`, `loose`, `off`.
pub(super) fn rp_filter(text: &str) -> Result<ReversePath, Wrong> {
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
pub(super) fn martians(text: &str) -> Result<Martians, Wrong> {
    match text {
        "impossible" => Ok(Martians::Impossible),
        "registry" => Ok(Martians::Registry),
        _ => {
            let remedy = "write \"impossible\" or \"registry\" (RFC 6890)";
            Err(wrong(format!("{text:?} is no list of addresses"), remedy))
        }
    }
}

fn value<T: Copy>(given: &Option<Given<T>>) -> Option<T> {
    given.as_ref().map(|given| given.value)
}

impl HostTransit {
    /// The stack's part of it.
    pub(crate) fn of_host(&self) -> StackConfig {
        let Families { v4, v6 } = value(&self.forwarding).unwrap_or_default();
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
        let one = file::parse("r.toml", b"forwarding = \"ipv6\"").unwrap().transit.of_host();
        assert!(!one.ipv4_forwarding && one.ipv6_forwarding);
        let none = file::parse("r.toml", b"").unwrap().transit.of_host();
        assert!(!none.ipv4_forwarding && !none.ipv6_forwarding);
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
        for (word, value) in [("rp_filter", "\"1\""), ("send_redirects", "\"no\"")] {
            let text = format!("[[interface]]\ndevice = \"tap:f\"\n{word} = {value}\n");
            let problems = file::parse("r.toml", text.as_bytes()).unwrap_err();
            assert_eq!(problems[0].key, format!("interface.{word}"));
        }
    }
}
