//! What would stand in a guard's way, found before anything is attached.
//!
//! Used by `guard --check`. Settings are read, the programs are loaded and dropped again, and the
//! rules of the packet filter are looked through for those that break connections of which it has
//! seen no SYN, or that send a port elsewhere. Invariant: nothing is changed. Not here: a
//! connection through the guard.

use std::process::Command;

use floodwall_device::host_bpf::{carries, interface};

use crate::error::GuardError;
use crate::facts::{Facts, ListeningPorts};
use crate::loaded::Loaded;

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuardFinding {
    /// Whether it breaks the guard, or only may; `None` where it is well.
    pub trouble: Option<Trouble>,
    /// What was found, with the remedy.
    pub text: String,
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The guard does not start, or breaks connections.
    Breaks,
    /// It depends.
    MayBreak,
}

impl GuardFinding {
    fn well(text: impl Into<String>) -> Self {
        Self { trouble: None, text: text.into() }
    }

    fn breaks(text: impl Into<String>) -> Self {
        Self { trouble: Some(Trouble::Breaks), text: text.into() }
    }

    fn may(text: impl Into<String>) -> Self {
        Self { trouble: Some(Trouble::MayBreak), text: text.into() }
    }
}

/// Looks at everything that a guard of these ports depends on.
#[must_use]
pub fn check(name: &str, ports: &[u16]) -> Vec<GuardFinding> {
    let mut found = Vec::new();
    let Ok((_, mtu)) = interface(name) else {
        return vec![GuardFinding::breaks(GuardError::NoInterface(name.to_owned()).to_string())];
    };
    if !carries(name).unwrap_or(false) {
        found.push(GuardFinding::may(format!("{name} is down or has no carrier")));
    }
    found.push(match Loaded::load() {
        Ok(_) => GuardFinding::well("the kernel takes the programs"),
        Err(error) => GuardFinding::breaks(error.to_string()),
    });
    found.push(match Facts::read(name, mtu).syncookies {
        0 => GuardFinding::breaks(GuardError::CookiesOff.to_string()),
        _ => GuardFinding::well("net.ipv4.tcp_syncookies is on"),
    });
    let listening = ListeningPorts::read();
    found.extend(ports.iter().map(|port| match listening.has(*port) {
        true => GuardFinding::well(format!("a socket listens on port {port}")),
        false => GuardFinding::may(format!(
            "no socket of this network namespace listens on port {port}: nothing is guarded until \
             one does; one of a container must be guarded there"
        )),
    }));
    let is_strict = read("/proc/sys/net/netfilter/nf_conntrack_tcp_loose") == "0";
    let rules = rules();
    found.extend(conntrack(is_strict, &rules));
    found.extend(ports.iter().filter_map(|port| translated(*port, &rules)));
    found
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// The rules of the packet filter, one a line, by the tools that are there.
fn rules() -> Vec<String> {
    let said = |command: &str, args: &[&str]| {
        let out = Command::new(command).args(args).output().ok()?;
        Some(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let all = [
        said("nft", &["-n", "list", "ruleset"]),
        said("iptables-save", &[]),
        said("ip6tables-save", &[]),
    ];
    let lines = all
        .into_iter()
        .flatten()
        .map(|text| text.lines().map(|line| line.trim().to_lowercase()).collect::<Vec<_>>());
    lines.flatten().collect()
}

/// Rules by which connections of which the tracker has seen no SYN are dropped.
fn conntrack(is_strict: bool, rules: &[String]) -> Vec<GuardFinding> {
    let drops = |rule: &&String| rule.contains("drop") || rule.contains("reject");
    let mut found = Vec::new();
    let invalid = rules.iter().filter(drops).find(|rule| rule.contains("invalid"));
    match (is_strict, invalid) {
        (true, Some(rule)) => found.push(GuardFinding::breaks(format!(
            "net.netfilter.nf_conntrack_tcp_loose is 0, and the rule `{rule}` then drops each \
             guarded connection; set it to 1"
        ))),
        (true, None) => found.push(GuardFinding::may(
            "net.netfilter.nf_conntrack_tcp_loose is 0: a rule that drops what is invalid would \
             drop each guarded connection; set it to 1",
        )),
        (false, _) => {}
    }
    let no_syn = |rule: &&String| {
        let is_new = rule.contains("ct state new") || rule.contains("state new");
        // Both tools' words for a new connection that does not begin with a SYN.
        let without = (rule.contains("tcp flags") && rule.contains("!= 0x2"))
            || rule.contains("!= syn")
            || rule.contains("! --syn")
            || rule.contains("! --tcp-flags");
        is_new && without
    };
    if let Some(rule) = rules.iter().filter(drops).find(no_syn) {
        found.push(GuardFinding::breaks(format!(
            "the rule `{rule}` drops new connections without a SYN, and so each guarded one; take \
             it out, or except the guarded ports"
        )));
    }
    if found.is_empty() {
        found.push(GuardFinding::well("no rule was found that drops connections without a SYN"));
    }
    found
}

/// A rule that sends the port elsewhere.
fn translated(port: u16, rules: &[String]) -> Option<GuardFinding> {
    let names = |rule: &&String| {
        ["dport ", "--dport "].iter().any(|key| {
            let behind = rule.split(key).skip(1);
            behind.into_iter().any(|rest| {
                rest.split(|c: char| !c.is_ascii_digit()).next() == Some(port.to_string().as_str())
            })
        })
    };
    let moves = |rule: &&String| ["dnat", "redirect"].iter().any(|word| rule.contains(word));
    let rule = rules.iter().filter(moves).find(names)?;
    Some(GuardFinding::breaks(format!(
        "the rule `{rule}` sends port {port} elsewhere: a listener of this host would answer in \
         its place; do not guard that port here"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[&str]) -> Vec<String> {
        text.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn rules_that_break_guarded_connections_are_blamed() {
        let invalid = lines(&["ct state 0x1 drop", "ct state invalid drop"]);
        assert_eq!(conntrack(false, &invalid)[0].trouble, None, "loose tracking takes them");
        let strict = conntrack(true, &invalid);
        assert_eq!(strict[0].trouble, Some(Trouble::Breaks));
        assert!(strict[0].text.contains("`ct state invalid drop`"), "{strict:?}");
        assert_eq!(conntrack(true, &[])[0].trouble, Some(Trouble::MayBreak));
        for rule in [
            "tcp flags & (0x1 | 0x2 | 0x4 | 0x10) != 0x2 ct state new drop",
            "tcp flags & (fin | syn | rst | ack) != syn ct state new counter drop",
            "-a input -p tcp ! --syn -m state --state new -j drop",
        ] {
            let found = conntrack(false, &lines(&[rule]));
            assert_eq!(found[0].trouble, Some(Trouble::Breaks), "{rule}");
        }
        assert_eq!(conntrack(false, &lines(&["ct state new accept"]))[0].trouble, None);
    }

    #[test]
    fn ports_that_are_sent_elsewhere_are_blamed() {
        let rules = lines(&[
            "tcp dport 8443 dnat to 10.0.0.5:443",
            "-a docker ! -i docker0 -p tcp --dport 80 -j dnat --to-destination 172.17.0.2:80",
        ]);
        assert!(translated(8443, &rules).is_some() && translated(80, &rules).is_some());
        assert_eq!((translated(443, &rules), translated(8080, &rules)), (None, None));
    }
}
