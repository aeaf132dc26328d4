//! `floodwall socket show`: the sockets of a running instance in ss(8)'s columns.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use floodwall_base::IpCidr;

use crate::args::SocketArgs;
use crate::exit::Exit;
use crate::output;
use crate::settings::parse::{WrongValue, wrong};
use crate::socket::request::ControlRequest;
use crate::socket::{client, path};
use crate::sockets::{SocketEntry, SocketInfo, SocketList};

const SOCKET_USE: &str =
    "use `show [state STATE] [sport PORT] [dport PORT] [src PREFIX] [dst PREFIX]`";

/// Which sockets are shown.
#[derive(Debug, Default, PartialEq)]
struct SocketFilter {
    state: Option<String>,
    sport: Option<u16>,
    dport: Option<u16>,
    src: Option<IpCidr>,
    dst_addr: Option<IpCidr>,
}

/// Shows them.
pub(crate) fn socket(args: &SocketArgs) -> Exit {
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    let filter = match SocketFilter::read(&words) {
        Ok(filter) => filter,
        Err(WrongValue { what, remedy }) => {
            eprintln!("floodwall: {what}; {remedy}");
            return Exit::Usage;
        }
    };
    let socket = match path::find(args.ask.socket.as_deref()) {
        Ok(socket) => socket,
        Err(exit) => return exit,
    };
    let answer = match client::ask_slowly(&socket, &ControlRequest::Sockets.to_string()) {
        Ok(answer) => answer,
        Err(error) => {
            eprintln!("floodwall: {error}");
            return error.exit();
        }
    };
    let Ok(mut list) = serde_json::from_value::<SocketList>(answer) else {
        eprintln!("floodwall: the instance is of another version; ask it with its own binary");
        return Exit::Refused;
    };
    list.sockets.retain(|entry| is_wanted(entry, args) && filter.passes(entry));
    if args.ask.json {
        return match serde_json::to_string(&list) {
            Ok(text) => output::print_document(&text),
            Err(_) => Exit::Refused,
        };
    }
    if list.more {
        eprintln!("floodwall: there are more sockets than are shown");
    }
    output::print(&table(&list.sockets, args.info))
}

/// What the flags select, as with ss(8): without `-a` or `-l`, listening sockets are left out.
fn is_wanted(entry: &SocketEntry, args: &SocketArgs) -> bool {
    let tcp = entry.netid == "tcp";
    let kind = match (args.tcp, args.udp) {
        (true, false) => tcp,
        (false, true) => !tcp,
        _ => true,
    };
    let listens = matches!(entry.state.as_str(), "LISTEN" | "UNCONN");
    let listening = match (args.all, args.listening) {
        (true, _) => true,
        (false, true) => listens,
        (false, false) => !listens,
    };
    let both = entry.local.ip().is_unspecified() && entry.local.is_ipv6();
    let family = match (args.v4, args.v6) {
        (true, _) => entry.local.is_ipv4() || both,
        (_, true) => entry.local.is_ipv6(),
        _ => true,
    };
    kind && listening && family
}

impl SocketFilter {
    fn read(words: &[&str]) -> Result<Self, WrongValue> {
        let mut words = match words {
            ["show" | "sh" | "s" | "list" | "ls" | "l", rest @ ..] => rest,
            all => all,
        };
        let mut filter = Self::default();
        let port = |text: &str| {
            let text = text.strip_prefix(':').unwrap_or(text);
            let odd = |_| wrong(format!("{text:?} is not a port"), "write a number");
            text.parse().map(Some).map_err(odd)
        };
        let prefix = |text: &str| {
            let addr: Option<IpAddr> = text.parse().ok();
            let len = |addr: IpAddr| if addr.is_ipv4() { 32 } else { 128 };
            let whole = addr.and_then(|addr| IpCidr::new(addr, len(addr)));
            let odd = || wrong(format!("{text:?} is not a prefix"), "write one as in 10.0.0.0/8");
            whole.or_else(|| text.parse().ok()).map(Some).ok_or_else(odd)
        };
        loop {
            words = match words {
                [] => return Ok(filter),
                ["state", state, rest @ ..] => {
                    filter.state = Some(known_state(state)?);
                    rest
                }
                ["sport", "=" | "eq", text, rest @ ..] | ["sport", text, rest @ ..] => {
                    filter.sport = port(text)?;
                    rest
                }
                ["dport", "=" | "eq", text, rest @ ..] | ["dport", text, rest @ ..] => {
                    filter.dport = port(text)?;
                    rest
                }
                ["src", text, rest @ ..] => {
                    filter.src = prefix(text)?;
                    rest
                }
                ["dst", text, rest @ ..] => {
                    filter.dst_addr = prefix(text)?;
                    rest
                }
                [other, ..] => {
                    return Err(wrong(
                        format!("{other:?} is no word here, or lacks one"),
                        SOCKET_USE,
                    ));
                }
            };
        }
    }

    fn passes(&self, entry: &SocketEntry) -> bool {
        let within = |prefix: &IpCidr, at: SocketAddr| prefix.contains(at.ip().to_canonical());
        self.state.as_ref().is_none_or(|state| *state == entry.state)
            && self.sport.is_none_or(|port| port == entry.local.port())
            && self.dport.is_none_or(|port| entry.peer.is_some_and(|peer| peer.port() == port))
            && self.src.as_ref().is_none_or(|prefix| within(prefix, entry.local))
            && self.dst_addr.as_ref().is_none_or(|p| entry.peer.is_some_and(|peer| within(p, peer)))
    }
}

/// ss(8)'s states, by either of their names.
fn known_state(word: &str) -> Result<String, WrongValue> {
    let states = [
        ("established", "ESTAB"),
        ("syn-sent", "SYN-SENT"),
        ("syn-recv", "SYN-RECV"),
        ("fin-wait-1", "FIN-WAIT-1"),
        ("fin-wait-2", "FIN-WAIT-2"),
        ("time-wait", "TIME-WAIT"),
        ("closed", "UNCONN"),
        ("close-wait", "CLOSE-WAIT"),
        ("last-ack", "LAST-ACK"),
        ("closing", "CLOSING"),
        ("listening", "LISTEN"),
    ];
    let lower = word.to_ascii_lowercase();
    let is = |(name, shown): &&(&str, &str)| *name == lower || shown.to_ascii_lowercase() == lower;
    states.iter().find(is).map(|(_, shown)| (*shown).to_owned()).ok_or_else(|| {
        let all: Vec<_> = states.iter().map(|(name, _)| *name).collect();
        wrong(format!("{word:?} is not a state"), format!("the states are {}", all.join(", ")))
    })
}

/// An address as ss(8) writes it: `*:80` where it is of both families.
fn end(at: Option<SocketAddr>) -> String {
    match at {
        None => "*:*".to_owned(),
        Some(at) if at.ip().is_unspecified() && at.is_ipv6() => format!("*:{}", at.port()),
        Some(at) => at.to_string(),
    }
}

fn table(sockets: &[SocketEntry], details: bool) -> String {
    let ends: Vec<_> = sockets.iter().map(|s| (end(Some(s.local)), end(s.peer))).collect();
    let local = ends.iter().map(|(local, _)| local.len()).max().unwrap_or(0).max(18);
    let mut out = format!(
        "{:<6}{:<11}{:>8} {:>8} {:>local$} {}\n",
        "Netid", "State", "Recv-Q", "Send-Q", "Local Address:Port", "Peer Address:Port"
    );
    for (socket, (ours, theirs)) in sockets.iter().zip(&ends) {
        let SocketEntry { netid, state, recv_q, send_q, .. } = socket;
        // Writing to a string cannot fail.
        let _ =
            writeln!(out, "{netid:<6}{state:<11}{recv_q:>8} {send_q:>8} {ours:>local$} {theirs}");
        if let (true, Some(info)) = (details, &socket.info) {
            let _ = writeln!(out, "\t {}", in_ss_words(info));
        }
    }
    out
}

fn in_ss_words(info: &SocketInfo) -> String {
    let mut out = String::new();
    for (on, word) in [
        (info.timestamps, "ts "),
        (info.sack, "sack "),
        (info.ecn, "ecn "),
        (info.wscale, "wscale "),
    ] {
        if on {
            out.push_str(word);
        }
    }
    let _ = write!(
        out,
        "rto:{} rtt:{}/{} mss:{} rcvmss:{} cwnd:{}",
        info.rto_ms, info.rtt_ms, info.rttvar_ms, info.mss, info.rcvmss, info.cwnd
    );
    if let Some(threshold) = info.ssthresh {
        let _ = write!(out, " ssthresh:{threshold}");
    }
    for (name, value) in [
        ("unacked_bytes", u64::from(info.unacked_bytes)),
        ("sacked_bytes", info.sacked_bytes.into()),
        ("lost_bytes", info.lost_bytes.into()),
        ("backoff", info.backoff.into()),
    ] {
        if value > 0 {
            let _ = write!(out, " {name}:{value}");
        }
    }
    let _ = write!(
        out,
        " lastrcv:{} rcv_limit:{} snd_limit:{}",
        info.lastrcv_ms, info.rcv_limit, info.snd_limit
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(netid: &str, state: &str, local: &str, peer: Option<&str>) -> SocketEntry {
        SocketEntry {
            netid: netid.to_owned(),
            state: state.to_owned(),
            recv_q: 0,
            send_q: 0,
            local: local.parse().unwrap(),
            peer: peer.map(|peer| peer.parse().unwrap()),
            worker: 0,
            info: None,
            drops: None,
        }
    }

    #[test]
    fn filters_select_by_state_port_and_prefix_of_both_families() {
        let v4 = entry("tcp", "ESTAB", "10.0.0.2:80", Some("192.0.2.7:4000"));
        let v6 = entry("tcp", "CLOSE-WAIT", "[fd00::2]:80", Some("[fd00::7]:4001"));
        let passes = |text: &str| {
            let words: Vec<_> = text.split(' ').collect();
            let filter = SocketFilter::read(&words).unwrap();
            (filter.passes(&v4), filter.passes(&v6))
        };
        assert_eq!(passes("show"), (true, true));
        assert_eq!(passes("state established"), (true, false));
        assert_eq!(passes("state CLOSE-WAIT"), (false, true));
        assert_eq!(passes("sport = :80 dport 4001"), (false, true));
        assert_eq!(passes("dst 192.0.2.0/24"), (true, false));
        assert_eq!(passes("show src fd00::2"), (false, true));
        for text in ["show state dancing", "show dport x", "show src", "show owner 1"] {
            let words: Vec<_> = text.split(' ').collect();
            assert!(SocketFilter::read(&words).is_err(), "{text}");
        }
    }

    #[test]
    fn the_columns_are_those_of_ss() {
        let all = [
            entry("tcp", "LISTEN", "[::]:80", None),
            entry("tcp", "ESTAB", "10.0.0.2:80", Some("10.0.0.1:4000")),
        ];
        let text = table(&all, false);
        let columns: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            columns[0],
            ["Netid", "State", "Recv-Q", "Send-Q", "Local", "Address:Port", "Peer", "Address:Port"]
        );
        assert_eq!(columns[1], ["tcp", "LISTEN", "0", "0", "*:80", "*:*"]);
        assert_eq!(columns[2], ["tcp", "ESTAB", "0", "0", "10.0.0.2:80", "10.0.0.1:4000"]);
    }
}
