//! Options of sockets in the back end "memory": `setsockopt` and `getsockopt`.
//!
//! Invariants: an option that Floodwall has is set; one that changes nothing that a script sees is
//! granted; any other fails as a system fails that lacks it (`ENOPROTOOPT`).

use std::time::Duration;

use floodwall_tcp::{Acknowledge, Algorithm, TcpSettings, TcpState};

use super::super::calls::number_of;
use super::super::profile::Profile;
use super::super::runner::Errno;
use super::{Memory, Socket, errno, whole_segments};
use floodwall_stack::Sockets;

/// Options that need nothing: sharing of an address, and what other parts of a system make of a
/// packet.
const GRANTED: &[&str] = &[
    "SO_REUSEADDR",
    "SO_REUSEPORT",
    "SO_PRIORITY",
    "SO_MARK",
    "SO_DEBUG",
    "SO_BROADCAST",
    "IP_FREEBIND",
    // A connection gets its port with its peer in any case.
    "IP_BIND_ADDRESS_NO_PORT",
    // What is sent is copied, as Linux does where it must; no other flag asks for more.
    "SO_ZEROCOPY",
    // Whether a packet may be cut on its way is not compared.
    "IP_MTU_DISCOVER",
    "IPV6_MTU_DISCOVER",
    "IPV6_V6ONLY",
];
/// Refused, as systems without them do; a script that sets one needs it.
const MISSING: &[&str] = &[
    "SO_TIMESTAMPING",
    "TCP_FASTOPEN",
    "TCP_FASTOPEN_CONNECT",
    "TCP_FASTOPEN_KEY",
    "TCP_FASTOPEN_NO_COOKIE",
    "TCP_MD5SIG",
];
/// The segment size before a peer has sent one (RFC 9293 section 3.7.1), as systems report it.
const UNSAID_MSS: i64 = 536;
/// How long a handshake may take where nothing was set, as FreeBSD reports it.
const KEEPINIT: Duration = Duration::from_secs(75);
const SOCK_STREAM: i64 = 1;
const IPPROTO_TCP: i64 = 6;

impl Memory {
    pub(super) fn set_option(
        &mut self,
        name: i64,
        option: &str,
        values: &[i64],
    ) -> Result<i64, Errno> {
        let value = values.first().copied().unwrap_or(0);
        // `[-1]` and `[0xffffffff]` are the same four bytes.
        let number = u32::try_from(value & 0xffff_ffff).unwrap_or(0);
        let profile = self.knobs.profile();
        let entry = self.entry(name)?;
        match option {
            known if GRANTED.contains(&known) => return Ok(0),
            "TCP_QUICKACK" if value != 0 => entry.settings.acknowledge = Acknowledge::AtOnce,
            "TCP_QUICKACK" => entry.settings.acknowledge = Acknowledge::default(),
            // What the handshake agrees on is FreeBSD's own, not the program's.
            "SO_RCVBUF" if profile == Profile::FreeBsd => entry.buffer = Some(number),
            "SO_RCVBUF" => {
                (entry.settings.receive_bytes, entry.settings.receive_tuned) = (number, false);
            }
            "SO_SNDBUF" => {
                let number = if profile == Profile::Linux { number * 2 } else { number };
                (entry.settings.send_bytes, entry.settings.send_tuned) = (number, false);
            }
            "TCP_NODELAY" => {
                entry.settings.nodelay = value != 0;
                let socket = entry.socket.clone();
                self.ask_nodelay(&socket, value != 0);
            }
            // The first port in the low half, the last one in the high half.
            "IP_LOCAL_PORT_RANGE" if number >> 16 == number & 0xffff => {
                entry.range = u16::try_from(number & 0xffff).ok().filter(|port| *port > 0);
            }
            "IP_LOCAL_PORT_RANGE" => {
                return Err(errno("ENOPROTOOPT: a range of more than one port is not supported"));
            }
            missing if MISSING.contains(&missing) => {
                return Err(errno(&format!("ENOPROTOOPT: {option} is not supported")));
            }
            "TCP_NOOPT" => set_options(&mut entry.settings, value == 0),
            "TCP_CORK" => entry.settings.cork = value != 0,
            "TCP_NOTSENT_LOWAT" => {
                let is_bound = number > 0 && number < u32::MAX;
                entry.lowat = number;
                entry.settings.unsent_bytes = is_bound.then_some(number);
            }
            "TCP_SYNCNT" => entry.settings.syn_retries = u8::try_from(value).ok(),
            "TCP_MAXSEG" => entry.settings.mss = u16::try_from(value).ok().filter(|mss| *mss > 0),
            "TCP_KEEPINIT" => {
                let time = Duration::from_secs(number.into());
                entry.settings.open_timeout = (number > 0).then_some(time);
            }
            "SO_KEEPALIVE" => entry.settings.keepalive = (value != 0).then_some(entry.keepalive),
            "SO_LINGER" => entry.abortive = values == [1, 0],
            "TCP_USER_TIMEOUT" => {
                let timeout = Duration::from_millis(number.into());
                entry.settings.user_timeout = (number > 0).then_some(timeout);
            }
            "IP_TTL" | "IPV6_UNICAST_HOPS" => {
                entry.settings.hop_limit = u8::try_from(value).ok();
            }
            "IP_TOS" | "IPV6_TCLASS" => {
                entry.settings.traffic_class = u8::try_from(value).map_err(|_| errno("EINVAL"))?;
            }
            "TCP_KEEPIDLE" | "TCP_KEEPINTVL" | "TCP_KEEPCNT" => {
                let time = Duration::from_secs(number.into());
                match option {
                    "TCP_KEEPIDLE" => entry.keepalive.idle = time,
                    "TCP_KEEPINTVL" => entry.keepalive.interval = time,
                    _ => entry.keepalive.count = u8::try_from(value).unwrap_or(u8::MAX),
                }
                entry.settings.keepalive = entry.settings.keepalive.map(|_| entry.keepalive);
            }
            _ => return Err(errno("ENOPROTOOPT")),
        }
        self.apply(name)?;
        Ok(0)
    }

    /// A connection that is asked again sends what it holds back, which a setting alone does not.
    fn ask_nodelay(&mut self, socket: &Socket, on: bool) {
        let Socket::Connection(id) = socket else { return };
        let ask = |sockets: &mut Sockets<'_>| {
            sockets.tcp_with(|tcp, lend| tcp.set_nodelay(*id, on, lend.now))
        };
        let _ = self.with(ask);
    }

    pub(super) fn option(&mut self, name: i64, option: &str) -> Result<i64, Errno> {
        let entry = self.entry(name)?.clone();
        match (option, &entry.socket) {
            ("SO_ERROR", Socket::Connection(id)) => {
                Ok(self.failure(*id).map_or(0, |Errno(name)| number_of(&name).unwrap_or(5)))
            }
            ("SO_ERROR", _) => Ok(0),
            ("TCP_NODELAY", _) => Ok(entry.settings.nodelay.into()),
            ("TCP_CORK", _) => Ok(entry.settings.cork.into()),
            ("SO_REUSEADDR", _) => Ok(1),
            ("SO_TYPE", _) => Ok(SOCK_STREAM),
            ("SO_PROTOCOL", _) => Ok(IPPROTO_TCP),
            ("SO_ACCEPTCONN", of) => Ok(matches!(of, Socket::Listener(_)).into()),
            ("TCP_NOTSENT_LOWAT", _) => Ok(entry.lowat.into()),
            ("TCP_KEEPINIT", _) => Ok(seconds(entry.settings.open_timeout.unwrap_or(KEEPINIT))),
            ("SO_RCVBUF", _) => Ok(self.receive_buffer(name)?.into()),
            ("SO_SNDBUF", _) => Ok(entry.settings.send_bytes.into()),
            ("SO_KEEPALIVE", _) => Ok(entry.settings.keepalive.is_some().into()),
            ("TCP_KEEPIDLE", _) => Ok(seconds(entry.keepalive.idle)),
            ("TCP_KEEPINTVL", _) => Ok(seconds(entry.keepalive.interval)),
            ("TCP_KEEPCNT", _) => Ok(entry.keepalive.count.into()),
            ("TCP_USER_TIMEOUT", _) => {
                let timeout = entry.settings.user_timeout.unwrap_or_default();
                Ok(i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX))
            }
            ("TCP_MAXSEG", Socket::Connection(_)) => {
                let info = self.info(name)?;
                let is_early = info.state == TcpState::SynSent;
                Ok(if is_early { UNSAID_MSS } else { info.snd_mss.into() })
            }
            ("TCP_MAXSEG", _) => Ok(entry.settings.mss.map_or(UNSAID_MSS, i64::from)),
            ("TCP_SYNCNT", _) => entry.settings.syn_retries.map(i64::from).ok_or_else(unknown),
            ("IP_TOS" | "IPV6_TCLASS", _) => Ok(entry.settings.traffic_class.into()),
            ("IP_TTL" | "IPV6_UNICAST_HOPS", _) => {
                entry.settings.hop_limit.map(i64::from).ok_or_else(unknown)
            }
            _ => Err(unknown()),
        }
    }

    /// What each system reports of a receive buffer: Linux twice the requested size, FreeBSD whole
    /// segments once the connection is there.
    fn receive_buffer(&mut self, name: i64) -> Result<u32, Errno> {
        let entry = self.entry(name)?.clone();
        let buffer = entry.buffer.unwrap_or(entry.settings.receive_bytes);
        let is_early = match entry.socket {
            Socket::Connection(id) => {
                self.with(|sockets| sockets.tcp_state(id)) == Ok(TcpState::SynSent)
            }
            Socket::Fresh | Socket::Listener(_) => true,
        };
        Ok(match self.knobs.profile() {
            Profile::Linux if entry.buffer.is_some() => buffer.saturating_mul(2),
            Profile::FreeBsd if !is_early => whole_segments(buffer, self.mss()),
            _ => buffer,
        })
    }

    /// Sets what is named by a string.
    pub(super) fn set_text(&mut self, name: i64, option: &str, value: &str) -> Result<i64, Errno> {
        if option != "TCP_CONGESTION" {
            return Err(unknown());
        }
        let algorithm = algorithm_of(value).ok_or_else(|| errno("ENOENT"))?;
        self.entry(name)?.settings.algorithm = algorithm;
        self.apply(name)?;
        Ok(0)
    }
}

/// The congestion controller of this name, as Linux and FreeBSD call it.
pub(in super::super) fn algorithm_of(name: &str) -> Option<Algorithm> {
    match name {
        "reno" | "newreno" => Some(Algorithm::Reno),
        "cubic" => Some(Algorithm::Cubic),
        _ => None,
    }
}

/// Whether SYNs have options; the segment size they have in any case.
const fn set_options(settings: &mut TcpSettings, on: bool) {
    (settings.timestamps, settings.sack, settings.window_scale) = (on, on, on);
}

fn unknown() -> Errno {
    errno("ENOPROTOOPT")
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}
