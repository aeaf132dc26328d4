//! Rules of the packet filter that break guarded connections.
//!
//! Used by `check.rs`, by `guard.rs` at its start, and by [`RuleWatch`] while it runs. The tools
//! that are there are asked for their rules, as text: a rule that is blamed is shown. Invariant:
//! nothing is changed. Bound: the tools are asked when the kernel says that its rules have changed,
//! and once a second where it cannot say it.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::process::Command;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use crate::check::{GuardFinding, Trouble};
use crate::notice::Notice;

/// What the rules, and the tracker's settings, do to connections of these ports.
pub(crate) fn findings(ports: &[u16]) -> Vec<GuardFinding> {
    let is_strict = read(LOOSE_FILE) == "0";
    let rules = rules();
    let mut found = conntrack(is_strict, &rules);
    found.extend(ports.iter().filter_map(|port| translated(*port, &rules)));
    found
}

/// The words on the first of them that breaks connections.
pub(crate) fn breaking(ports: &[u16]) -> BTreeSet<String> {
    let breaks = |finding: &GuardFinding| finding.trouble == Some(Trouble::Breaks);
    findings(ports).into_iter().filter(breaks).map(|finding| finding.text).collect()
}

const LOOSE_FILE: &str = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose";
/// Tables of the older tools, which have no generation.
const OLDER_TABLES: [&str; 2] =
    ["/proc/thread-self/net/ip_tables_names", "/proc/thread-self/net/ip6_tables_names"];
/// Looks to which such tables are read once.
const OLDER_TABLE_LOOKS: u32 = 4;

fn read(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Notices rules that come while a guard runs.
#[derive(Debug)]
pub(crate) struct RuleWatch {
    /// To nftables.
    socket: Option<OwnedFd>,
    generation: Option<u32>,
    loose: String,
    looks: u32,
    breaking: BTreeSet<String>,
}

impl RuleWatch {
    /// As the rules are now, of which these break connections.
    pub(crate) fn new(breaking: BTreeSet<String>) -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(family, kind, flags, Some(netlink::NETFILTER)).ok();
        let mut watch =
            Self { socket, generation: None, loose: read(LOOSE_FILE), looks: 0, breaking };
        watch.generation = watch.ask();
        watch
    }

    /// Looks again, where something has changed.
    pub(crate) fn look(&mut self, ports: &[u16]) -> Vec<Notice> {
        self.looks = self.looks.wrapping_add(1);
        let (generation, loose) = (self.ask(), read(LOOSE_FILE));
        let is_seldom = self.looks.is_multiple_of(OLDER_TABLE_LOOKS);
        let has_older = is_seldom && OLDER_TABLES.iter().any(|path| !read(path).is_empty());
        if generation == self.generation && loose == self.loose && !has_older {
            return Vec::new();
        }
        (self.generation, self.loose) = (generation, loose);
        let now = breaking(ports);
        let mut notices: Vec<_> =
            now.difference(&self.breaking).map(|text| Notice::Rule(text.clone())).collect();
        if now.is_empty() && !self.breaking.is_empty() {
            notices.push(Notice::RulesWell);
        }
        self.breaking = now;
        notices
    }

    /// The number of the last change of nftables' rules (`NFT_MSG_GETGEN`).
    fn ask(&self) -> Option<u32> {
        const GET: u16 = 10 << 8 | 16;
        const REQUEST: u16 = 1;
        let socket = self.socket.as_ref()?;
        let mut message = Vec::with_capacity(20);
        message.extend(20_u32.to_ne_bytes());
        message.extend(GET.to_ne_bytes());
        message.extend(REQUEST.to_ne_bytes());
        message.extend([0; 12]);
        send(socket, &message, SendFlags::empty()).ok()?;
        let mut answer = [0; 256];
        // The kernel answers before the call returns.
        let (len, _) = recv(socket, &mut answer[..], RecvFlags::empty()).ok()?;
        generation_of(answer.get(..len)?)
    }
}

/// The first attribute of the answer: its kind is 1, its value a number of four bytes.
fn generation_of(message: &[u8]) -> Option<u32> {
    let attribute: &[u8; 8] = message.get(20..)?.first_chunk()?;
    let [l0, l1, k0, k1, value @ ..] = *attribute;
    let is_it = u16::from_ne_bytes([l0, l1]) == 8 && u16::from_ne_bytes([k0, k1]) == 1;
    is_it.then(|| u32::from_be_bytes(value))
}

/// The rules of the packet filter, one a line, by the tools that are there.
fn rules() -> Vec<String> {
    let said = |command: &str, args: &[&str]| {
        let out = Command::new(command).args(args).output().ok()?;
        Some(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let all = [
        // States and flags by name: `-n` would have them as numbers.
        said("nft", &["list", "ruleset"]),
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
    let names = |rule: &&String| rule.split("dport ").skip(1).any(|rest| has_port(rest, port));
    let moves = |rule: &&String| ["dnat", "redirect"].iter().any(|word| rule.contains(word));
    let rule = rules.iter().filter(moves).find(names)?;
    Some(GuardFinding::breaks(format!(
        "the rule `{rule}` sends port {port} elsewhere: a listener of this host would answer in \
         its place; do not guard that port here"
    )))
}

/// Whether the port is what the words begin with: a number, a range of them, or a set of both.
fn has_port(words: &str, port: u16) -> bool {
    let set = words.strip_prefix("{ ").and_then(|rest| rest.split('}').next());
    let is = |one: &str| {
        let ends = |c: char| !c.is_ascii_digit() && c != '-' && c != ':';
        let one = one.trim().split(ends).next().unwrap_or_default();
        let (first, last) = one.split_once(['-', ':']).unwrap_or((one, one));
        matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last))
            if (first..=last).contains(&port))
    };
    match set {
        Some(set) => set.split(',').any(is),
        None => is(words),
    }
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
            "tcp flags != syn / fin,syn,rst,ack ct state new drop",
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
            "tcp dport { 1000-1010, 2000 } redirect to :7001",
            "-a pre -p tcp -m tcp --dport 3000:3001 -j redirect --to-ports 9",
            "-a docker ! -i docker0 -p tcp --dport 80 -j dnat --to-destination 172.17.0.2:80",
        ]);
        for port in [1000, 1005, 1010, 2000, 3001] {
            assert!(translated(port, &rules).is_some(), "{port}");
        }
        assert!(translated(8443, &rules).is_some() && translated(80, &rules).is_some());
        for port in [443, 8080, 999, 1011, 2001, 3002, 9] {
            assert_eq!(translated(port, &rules), None, "{port}");
        }
    }
}
