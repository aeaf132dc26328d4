//! A parsed script, as values.

use std::net::IpAddr;
use std::time::Duration;

use super::addresses::{V4, V6};
use super::icmp::Icmp;
use super::profile::Profile;

/// The port that scripts bind and connect to unless they say otherwise.
const PORT: u16 = 8080;

/// A whole script.
#[derive(Clone, Debug)]
pub struct Script {
    /// Both ends are IPv6.
    pub(super) ipv6: bool,
    /// How far a time may be off.
    pub(super) tolerance: Option<Duration>,
    /// Which part of the gap before an event is tolerated, too.
    pub(super) tolerance_part: f64,
    /// IPv4 on the wire, but sockets of IPv6.
    pub(super) mapped: bool,
    /// The address of the TCP under test, and the length of its prefix; the script's own.
    pub(super) local: Option<(IpAddr, Option<u8>)>,
    pub(super) remote: Option<IpAddr>,
    /// Where `bind` and `connect` go.
    pub(super) ports: (u16, u16),
    /// Kinds of events (`packet`, `syscall`) that fail without failing the script.
    pub(super) non_fatal: Vec<String>,
    /// Microseconds of a tick of our timestamps; 0: their values are not compared.
    pub(super) tick: u32,
    /// Echoes of the script count from our first timestamp, instead of naming one that was seen.
    pub(super) scaled_echoes: bool,
    /// Outbound segments are not joined.
    pub(super) strict_segments: bool,
    /// A command to run before the clock starts.
    pub(super) init: Option<String>,
    /// Bytes of the largest packet of the link.
    pub(super) mtu: Option<u32>,
    /// It was stated by the command line, for the family that is played.
    pub(super) mtu_is_final: bool,
    pub(super) events: Vec<Event>,
    /// A command to run at the end, with any outcome.
    pub(super) cleanup: Option<String>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            ipv6: false,
            mapped: false,
            tolerance: None,
            tolerance_part: 0.125,
            local: None,
            remote: None,
            ports: (PORT, PORT),
            non_fatal: Vec::new(),
            tick: 0,
            scaled_echoes: false,
            strict_segments: false,
            init: None,
            mtu: None,
            mtu_is_final: false,
            events: Vec::new(),
            cleanup: None,
        }
    }
}

impl Script {
    /// The system that it expects.
    #[must_use]
    pub fn profile(&self) -> Profile {
        Profile::of(self)
    }

    /// The address of the TCP under test with the length of its prefix, and the script's own.
    pub(super) fn addresses(&self) -> Result<((IpAddr, u8), IpAddr), String> {
        let (ours, theirs, most) = if self.ipv6 { (V6.0, V6.1, 48) } else { (V4.0, V4.1, 16) };
        let parse = |text: &str| text.parse::<IpAddr>().map_err(|error| error.to_string());
        let (local, bits) = self.local.unwrap_or((parse(ours)?, None));
        let remote = self.remote.map_or_else(|| parse(theirs), Ok)?;
        if local.is_ipv6() != self.ipv6 || remote.is_ipv6() != self.ipv6 {
            return Err(format!("{local} and {remote} are not both of the script's IP version"));
        }
        Ok(((local, bits.unwrap_or(most)), remote))
    }

    /// Whether both ends are IPv6.
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        self.ipv6
    }

    /// Bytes of the largest packet of the link.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        // Linux's own runner gives IPv6 a link on which segments are as large as over IPv4.
        let is_long = self.ipv6 && self.profile() == super::profile::Profile::Linux;
        self.mtu.unwrap_or(if is_long { 1520 } else { 1500 })
    }

    /// Whether it needs what only some back ends can report: the connection's details.
    #[must_use]
    pub fn has_code(&self) -> bool {
        self.events.iter().any(|event| matches!(event.what, What::Code(_)))
    }

    /// How many events it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The same script between IPv6 addresses.
    #[must_use]
    pub fn over_ipv6(mut self) -> Self {
        // The segments of a script are as large in both families.
        if !self.mtu_is_final {
            self.mtu = Some(self.mtu() + 20);
        }
        self.ipv6 = true;
        self
    }
}

/// When an event is due.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum When {
    /// Since the start.
    At(Duration),
    /// Since the event before.
    After(Duration),
    /// Between two times since the event before.
    Between(Duration, Duration),
    /// Between two times since the start.
    BetweenTimes(Duration, Duration),
    /// At any time.
    Any,
}

#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) line: usize,
    pub(super) when: When,
    /// For a call that blocks: when it returns, from the same base as `when`.
    pub(super) until: Option<Duration>,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Inbound(Segment),
    Outbound(Segment),
    Call(SocketCall),
    Command(String),
    /// Assertions about the connection under test.
    Code(String),
    /// An ICMP error that is given to the TCP.
    Icmp(Icmp),
}

/// A segment as a script writes it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Segment {
    pub(super) flags: u16,
    pub(super) start: u32,
    pub(super) len: u32,
    pub(super) ack: Option<u32>,
    pub(super) win: Option<u16>,
    pub(super) urgent: u16,
    pub(super) options: Vec<Opt>,
    /// `<...>`: any options will do.
    pub(super) any_options: bool,
    /// The traffic class: what is to be sent, or what came.
    pub(super) class: Option<u8>,
    /// Which of the four values of its lowest two bits will do: a bit for each.
    pub(super) ecn: Option<u8>,
    /// The hop limit.
    pub(super) ttl: Option<u8>,
    /// `...(n)`: any first sequence number will do.
    pub(super) any_start: bool,
    /// `!`: the sequence number is the wire's.
    pub(super) raw_start: bool,
}

pub(super) const FIN: u16 = 0x01;
pub(super) const SYN: u16 = 0x02;
pub(super) const RST: u16 = 0x04;
pub(super) const PSH: u16 = 0x08;
pub(super) const ACK: u16 = 0x10;
pub(super) const URG: u16 = 0x20;
pub(super) const ECE: u16 = 0x40;
pub(super) const CWR: u16 = 0x80;
/// Accurate ECN's flag (RFC 9768); the reserved bits are above it.
pub(super) const AE: u16 = 0x100;

impl Segment {
    pub(super) const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// `TS val ...`: any value of ours.
pub(super) const ANY_STAMP: u32 = u32::MAX;

/// An option of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Opt {
    Eol,
    Nop,
    Mss(u16),
    Wscale(u8),
    SackOk,
    Sack(Vec<(u32, u32)>),
    Ts(u32, u32),
    /// Of any other kind, and its bytes.
    Raw(u8, Vec<u8>),
}

/// An argument of a call.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Arg {
    Int(i64),
    /// A symbol, or several joined by `|`.
    Word(String),
    /// `...`
    Fill,
    /// A string.
    Text(String),
    /// `[a, b]`
    List(Vec<Self>),
    /// `{name=a, name=b}`; what has no name has an empty one.
    Struct(Vec<(String, Self)>),
}

impl Arg {
    /// The value under a name.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Struct(fields) => fields.iter().find(|(it, _)| it == name).map(|(_, arg)| arg),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct SocketCall {
    pub(super) name: String,
    pub(super) args: Vec<Arg>,
    pub(super) result: i64,
    pub(super) errno: Option<String>,
}
