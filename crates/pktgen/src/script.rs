//! The classic generator's scripts, read as they are written, and what their parameters mean.
//!
//! Called by programs before anything is sent. [`ClassicScript::read`] takes a script line by line:
//! remarks, `NAME="words"`, `pgset "$NAME"`, `echo`, and the shell functions that such scripts
//! carry along, which are passed over (`script/shell.rs`). [`ClassicScript::stream`] makes a stream
//! of `pktgen` of it. Invariant: a word that is not understood is an error with its line, never
//! ignored; a script that was read makes a stream that [`Stream`]'s own check accepts, or returns
//! an error that states what is missing. Beyond the classic parameters there are `proto`,
//! `headers`, `fragments` and `hop_limit`. Reading: Linux, Documentation/networking/pktgen.rst. Not
//! here: several devices and processors of one script; what `frags`, `vlan` and `mpls` do.

mod shell;

use core::net::IpAddr;
use core::time::Duration;

use floodwall_base::MacAddr;
use floodwall_wire::{TcpFlags, ethernet, ipv4, ipv6, tcp, udp};
use thiserror::Error;

use crate::headers::Headers;
use crate::pace::Pace;
use crate::plan::{Content, Fragments, Stream, Withheld};
use crate::range::{AddrRange, AddrSpan, PortRange, SizeRange, Spread};
use crate::spreads::{FLOWS_MAX, Flows, Spreads};
use crate::stamp::STAMP_BYTES;

/// What is wrong with a script.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("line {line}: `{word}`: {what}")]
pub struct ScriptError {
    /// Which line, from 1; 0 for the script as a whole.
    pub line: usize,
    /// The token at fault.
    pub word: String,
    /// What is wrong with it, and what to write instead.
    pub what: String,
}

/// What packets are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum ScriptProtocol {
    #[default]
    Udp,
    Tcp(TcpFlags),
    Icmp,
}

/// What may be random; what is not, is taken in turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct ScriptFlags {
    dst_addr: bool,
    src_addr: bool,
    src_port: bool,
    dst_port: bool,
    size: bool,
    in_sequence: bool,
}

/// The first and the last address, as far as they are given.
type Ends = (Option<IpAddr>, Option<IpAddr>);

/// The parameters of the classic generator. The default is what the classic generator does without
/// any: packets of 60 bytes to one address, as fast as can be, a thousand of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassicScript {
    /// How often each packet is sent.
    copies: u32,
    /// Bytes of a frame without its checksum, from and to.
    size: (usize, usize),
    count: u64,
    gap: Duration,
    flows: u32,
    flowlen: u32,
    to: Ends,
    from: Ends,
    src_ports: (u16, u16),
    dst_ports: (u16, u16),
    flags: ScriptFlags,
    proto: ScriptProtocol,
    headers: Option<Headers>,
    fragments: Option<Fragments>,
    hop_limit: u8,
    /// The destination link address, where the script sets it.
    pub dst_mac: Option<MacAddr>,
    /// The source link address, where the script sets it.
    pub src_mac: Option<MacAddr>,
    /// The device that it names, if it does.
    pub device: Option<String>,
    /// The output of its `echo` lines.
    pub told: Vec<String>,
}

impl Default for ClassicScript {
    fn default() -> Self {
        Self {
            copies: 0,
            size: (60, 60),
            count: 1000,
            gap: Duration::ZERO,
            flows: 0,
            flowlen: 0,
            to: (None, None),
            from: (None, None),
            src_ports: (9, 9),
            dst_ports: (9, 9),
            flags: ScriptFlags::default(),
            proto: ScriptProtocol::Udp,
            headers: None,
            fragments: None,
            hop_limit: 32,
            dst_mac: None,
            src_mac: None,
            device: None,
            told: Vec::new(),
        }
    }
}

/// A token, and what is wrong with it.
type Fault = (String, String);

fn fault(word: &str, what: impl Into<String>) -> Fault {
    (word.to_owned(), what.into())
}

fn number<N: core::str::FromStr>(word: &str) -> Result<N, Fault> {
    word.parse().map_err(|_| fault(word, "is not a number that fits here"))
}

fn address(word: &str) -> Result<IpAddr, Fault> {
    word.parse().map_err(|_| fault(word, "is not an address, as 10.0.0.1 or fd00::1"))
}

fn station(word: &str) -> Result<MacAddr, Fault> {
    word.parse().map_err(|_| fault(word, "is not a link address, as 02:00:00:00:00:01"))
}

impl ClassicScript {
    /// These parameters, and what a script changes of them. `given` are variables that it may use
    /// besides its own, as `PGDEV`; one that is not set is empty, as in a shell.
    ///
    /// # Errors
    /// The first line that is not understood, with its token.
    pub fn read(mut self, text: &str, given: &[(&str, &str)]) -> Result<Self, ScriptError> {
        let mut shell = shell::Shell::new(given);
        for (at, line) in text.lines().enumerate() {
            let told = |(word, what): Fault| ScriptError { line: at + 1, word, what };
            match shell.line(line).map_err(told)? {
                shell::ShellAction::Nothing => {}
                shell::ShellAction::Say(words) => self.told.push(words),
                shell::ShellAction::Set(words) => self.set(&words).map_err(told)?,
            }
        }
        shell.end().map_err(|(word, what)| ScriptError {
            line: text.lines().count(),
            word,
            what,
        })?;
        Ok(self)
    }

    /// One parameter with its value, as `clone_skb 1`.
    ///
    /// # Errors
    /// The token that is not understood (its line is 0).
    pub fn parameter(&mut self, words: &str) -> Result<(), ScriptError> {
        self.set(words).map_err(|(word, what)| ScriptError { line: 0, word, what })
    }

    fn set(&mut self, words: &str) -> Result<(), Fault> {
        let all: Vec<&str> = words.split_ascii_whitespace().collect();
        let [name, values @ ..] = all.as_slice() else {
            return Err(fault(words, "a parameter is missing, as in pgset \"count 1000\""));
        };
        match (*name, values) {
            // An address without a value leaves what is given elsewhere.
            ("dst" | "dst_min" | "dst_max" | "dst6" | "dst6_min" | "dst6_max", []) => Ok(()),
            ("src" | "src_min" | "src_max" | "src6" | "src6_min" | "src6_max", []) => Ok(()),
            // What only concerned the kernel's threads, and the moment of the start.
            ("rem_device_all" | "start" | "inject" | "stop" | "reset", []) => Ok(()),
            ("max_before_softirq" | "debug" | "queue_map_min" | "queue_map_max", [_]) => Ok(()),
            (name, []) => Err(fault(name, "no value stands behind it, or it is no parameter")),
            (name, [value]) => self.one(name, value),
            ("flag", flags) => flags.iter().try_for_each(|flag| self.one("flag", flag)),
            (_, [_, other, ..]) => Err(fault(other, "one value is enough")),
        }
    }

    fn one(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        match name {
            "clone_skb" => self.copies = number(value)?,
            "pkt_size" => {
                let size = number(value)?;
                self.size = (size, size);
            }
            "min_pkt_size" => self.size.0 = number(value)?,
            "max_pkt_size" => self.size.1 = number(value)?,
            "count" => self.count = number(value)?,
            "ipg" | "delay" => self.gap = Duration::from_nanos(number(value)?),
            "ratep" => {
                let rate: u64 = number(value)?;
                let gap = 1_000_000_000_u64.checked_div(rate);
                self.gap = Duration::from_nanos(gap.ok_or_else(|| fault(value, "is no rate"))?);
            }
            "flows" => {
                self.flows = number(value)?;
                if self.flows > FLOWS_MAX {
                    return Err(fault(value, format!("there are {FLOWS_MAX} flows at most")));
                }
            }
            "flowlen" => self.flowlen = number(value)?,
            "dst" | "dst_min" | "dst6" | "dst6_min" => self.to.0 = Some(address(value)?),
            "dst_max" | "dst6_max" => self.to.1 = Some(address(value)?),
            "src" | "src_min" | "src6" | "src6_min" => self.from.0 = Some(address(value)?),
            "src_max" | "src6_max" => self.from.1 = Some(address(value)?),
            "udp_src_min" => self.src_ports.0 = number(value)?,
            "udp_src_max" => self.src_ports.1 = number(value)?,
            "udp_dst_min" => self.dst_ports.0 = number(value)?,
            "udp_dst_max" => self.dst_ports.1 = number(value)?,
            "dst_mac" | "dstmac" => self.dst_mac = Some(station(value)?),
            "src_mac" | "srcmac" => self.src_mac = Some(station(value)?),
            "add_device" | "odev" => self.device = Some(value.to_owned()),
            "hop_limit" | "ttl" => self.hop_limit = number(value)?,
            "flag" => return self.flag(value),
            "proto" => self.proto = proto(value)?,
            "headers" => self.headers = headers(value)?,
            "fragments" => self.fragments = fragments(value)?,
            _ => return Err(fault(name, "is no parameter of the classic generator known here")),
        }
        Ok(())
    }

    fn flag(&mut self, word: &str) -> Result<(), Fault> {
        let (name, on) = match word.strip_prefix('!') {
            Some(name) => (name, false),
            None => (word, true),
        };
        let flags = &mut self.flags;
        *match name {
            "IPDST_RND" => &mut flags.dst_addr,
            "IPSRC_RND" => &mut flags.src_addr,
            "UDPSRC_RND" => &mut flags.src_port,
            "UDPDST_RND" => &mut flags.dst_port,
            "TXSIZE_RND" => &mut flags.size,
            "FLOW_SEQ" => &mut flags.in_sequence,
            _ => {
                let known = "IPDST_RND, IPSRC_RND, UDPSRC_RND, UDPDST_RND, TXSIZE_RND, FLOW_SEQ";
                return Err(fault(word, format!("is no flag known here; they are {known}")));
            }
        } = on;
        Ok(())
    }

    /// Whether destinations are given.
    #[must_use]
    pub const fn has_destination(&self) -> bool {
        self.to.0.is_some()
    }

    /// Whether these are of IPv6.
    #[must_use]
    pub fn wants_ipv6(&self) -> bool {
        self.to.0.is_some_and(|addr| addr.is_ipv6())
    }

    /// The requested addresses, from the first to the last.
    fn range((first, last): Ends, name: &str) -> Result<Option<AddrRange>, ScriptError> {
        let wrong = |what: &str| ScriptError { line: 0, word: name.to_owned(), what: what.into() };
        let Some(first) = first else {
            return match last {
                Some(_) => Err(wrong("has a last address and no first")),
                None => Ok(None),
            };
        };
        let span = AddrSpan::new(first, last.unwrap_or(first));
        let span = span.ok_or_else(|| wrong("begins and ends in two families, or backwards"))?;
        Ok(Some(AddrRange::Span(span)))
    }

    /// What is to be sent, from `src_addr` where the script names no source.
    ///
    /// # Errors
    /// What is missing, or does not fit together.
    pub fn stream(&self, src_addr: IpAddr) -> Result<Stream, ScriptError> {
        let wrong = |word: &str, what: &str| ScriptError {
            line: 0,
            word: word.to_owned(),
            what: what.to_owned(),
        };
        let dst_addrs = Self::range(self.to, "dst")?;
        let dst_addrs = dst_addrs.ok_or_else(|| wrong("dst_min", "no destination is given"))?;
        let src_addrs = Self::range(self.from, "src")?.unwrap_or_else(|| src_addr.into());
        if src_addrs.family() != dst_addrs.family() {
            return Err(wrong("src", "sources and destinations are of two families"));
        }
        if self.size.0 > self.size.1 {
            return Err(wrong("min_pkt_size", "is more than max_pkt_size"));
        }
        let network = match dst_addrs.family() {
            floodwall_base::Family::V4 => ipv4::HEADER_LEN,
            floodwall_base::Family::V6 => ipv6::HEADER_LEN,
        };
        let (content, transport) = match self.proto {
            ScriptProtocol::Udp => (Content::Udp, udp::HEADER_LEN),
            ScriptProtocol::Icmp => (Content::IcmpEcho, 8),
            // A SYN has the MSS option with it.
            ScriptProtocol::Tcp(flags) if flags == TcpFlags::SYN => {
                (Content::Tcp(flags), tcp::HEADER_LEN + 4)
            }
            ScriptProtocol::Tcp(flags) => (Content::Tcp(flags), tcp::HEADER_LEN),
        };
        let around = ethernet::HEADER_LEN + network + transport;
        let payload = SizeRange {
            min: self.size.0.saturating_sub(around),
            max: self.size.1.saturating_sub(around),
        };
        let ports = |(first, last): (u16, u16)| PortRange { first, last: last.max(first) };
        let how = |random: bool| if random { Spread::Random } else { Spread::InTurn };
        let ScriptFlags { dst_addr, src_addr, src_port, dst_port, size, in_sequence } = self.flags;
        Ok(Stream {
            stamp: content == Content::Udp && payload.min >= STAMP_BYTES,
            content,
            src_addrs,
            dst_addrs,
            src_ports: ports(self.src_ports),
            dst_ports: ports(self.dst_ports),
            spreads: Some(Spreads {
                src_addr: how(src_addr),
                dst_addr: how(dst_addr),
                src_port: how(src_port),
                dst_port: how(dst_port),
                payload: how(size),
            }),
            flow_packets: if self.flows > 0 { self.flowlen.max(1) } else { 1 },
            flows: (self.flows > 0).then_some(Flows { count: self.flows, in_sequence }),
            repeats: self.copies.max(1),
            payload,
            hop_limit: self.hop_limit,
            headers: self.headers,
            fragments: self.fragments,
            pace: Pace::every(self.gap.max(Duration::from_nanos(1))),
            count: (self.count > 0).then_some(self.count),
            ..Stream::default()
        })
    }
}

fn proto(word: &str) -> Result<ScriptProtocol, Fault> {
    Ok(match word {
        "udp" => ScriptProtocol::Udp,
        "icmp" => ScriptProtocol::Icmp,
        "tcp-syn" => ScriptProtocol::Tcp(TcpFlags::SYN),
        "tcp-ack" => ScriptProtocol::Tcp(TcpFlags::ACK),
        "tcp-rst" => ScriptProtocol::Tcp(TcpFlags::RST),
        _ => return Err(fault(word, "is neither udp, icmp, tcp-syn, tcp-ack nor tcp-rst")),
    })
}

fn headers(word: &str) -> Result<Option<Headers>, Fault> {
    let few = SizeRange { min: 1, max: 8 };
    Ok(Some(match word {
        "none" => return Ok(None),
        "chain" => Headers::Chain(few),
        "options" => Headers::Options(few),
        "unknown" => Headers::Unknown(few),
        "padding" => Headers::Padding(SizeRange { min: 8, max: 64 }),
        "routing" => Headers::Routing(SizeRange { min: 1, max: 4 }),
        "mixed" => Headers::Mixed,
        _ => {
            let known = "none, chain, options, unknown, padding, routing or mixed";
            return Err(fault(word, format!("are no headers; use {known}")));
        }
    }))
}

/// `BYTES`, or `BYTES,first`, `last`, `middle` for what is kept back.
fn fragments(word: &str) -> Result<Option<Fragments>, Fault> {
    let (bytes, kept_back) = word.split_once(',').unwrap_or((word, "none"));
    let bytes: usize = number(bytes)?;
    if bytes == 0 {
        return Ok(None);
    }
    let withheld = match kept_back {
        "none" => Withheld::None,
        "first" => Withheld::First,
        "last" => Withheld::Last,
        "middle" => Withheld::Middle,
        _ => return Err(fault(word, "kept back are none, first, last or middle")),
    };
    if !bytes.is_multiple_of(8) {
        return Err(fault(word, "fragments are cut in multiples of 8 bytes"));
    }
    Ok(Some(Fragments { bytes, overlap: 0, withheld }))
}

#[cfg(test)]
mod tests;
