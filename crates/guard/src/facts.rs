//! `Facts`: what the kernel would answer to a SYN, read from its settings.
//!
//! Read at the start and four times a second (`guard.rs`), from `/proc`, which shows the network
//! namespace of the reading thread. Invariant: a setting that cannot be read counts as the kernel's
//! default.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;

use floodwall_bpf::cookie::Offer;
use floodwall_bpf::cookie::host::NO_SCALING;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// Bytes of the headers of an answer: IPv4, IPv6.
const ANSWER_HEADERS: (u32, u32) = (40, 60);
/// The largest window that is said without a scale.
const WINDOW_MAX: u32 = 0xffff;
/// The largest window scale (RFC 7323 section 2.3).
const SCALE_MAX: u32 = 14;

/// What decides an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// `net.ipv4.tcp_syncookies`: 0 accepts no cookie.
    pub syncookies: u64,
    /// Timestamps, SACK, window scaling.
    pub timestamps: bool,
    /// See [`Facts::timestamps`].
    pub sack: bool,
    /// See [`Facts::timestamps`].
    pub scaling: bool,
    /// ECN is agreed to.
    pub ecn: bool,
    /// Bytes of the receive buffer that a connection has, and that it can grow to.
    pub receive_buffer: (u64, u64),
    /// Hop limits: IPv4, IPv6.
    pub hop_limits: (u8, u8),
    /// The MTU of the interface.
    pub mtu: u32,
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}

fn sysctl(name: &str, default: u64) -> u64 {
    number(&format!("/proc/sys/net/{name}")).unwrap_or(default)
}

impl Facts {
    /// As they are now, for an interface.
    #[must_use]
    pub fn read(interface: &str, mtu: u32) -> Self {
        let rmem = fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap_or_default();
        let mut rmem = rmem.split_whitespace().filter_map(|word| word.parse().ok()).skip(1);
        let (usual, most) = (rmem.next().unwrap_or(131_072), rmem.next().unwrap_or(6_291_456));
        let hops = sysctl(&format!("ipv6/conf/{interface}/hop_limit"), 64);
        Self {
            syncookies: sysctl("ipv4/tcp_syncookies", 1),
            timestamps: sysctl("ipv4/tcp_timestamps", 1) != 0,
            sack: sysctl("ipv4/tcp_sack", 1) != 0,
            scaling: sysctl("ipv4/tcp_window_scaling", 1) != 0,
            ecn: sysctl("ipv4/tcp_ecn", 2) != 0,
            receive_buffer: (usual, most.max(sysctl("core/rmem_max", 212_992))),
            hop_limits: (sysctl("ipv4/ip_default_ttl", 64) as u8, hops as u8),
            mtu,
        }
    }

    /// What clients are answered: IPv4, IPv6.
    #[must_use]
    pub fn offers(&self) -> (u64, u64) {
        let scale = self.receive_buffer.1.max(1).ilog2().saturating_sub(15).min(SCALE_MAX);
        let offer = |headers: u32, hop_limit: u8| {
            let mss = self.mtu.saturating_sub(headers).clamp(1, WINDOW_MAX);
            // A half of the buffer, in whole segments, as the kernel has it.
            let space = u32::try_from(self.receive_buffer.0 / 2).unwrap_or(WINDOW_MAX);
            let space = space.min(WINDOW_MAX);
            let window = if space > mss { space / mss * mss } else { space };
            let offer = Offer {
                window: window as u16,
                mss: mss as u16,
                window_scale: scale as u8,
                sack: self.sack,
                timestamps: self.timestamps,
                ecn: self.ecn,
                hop_limit,
                traffic_class: 0,
            };
            offer.word() | if self.scaling { 0 } else { NO_SCALING }
        };
        (offer(ANSWER_HEADERS.0, self.hop_limits.0), offer(ANSWER_HEADERS.1, self.hop_limits.1))
    }
}

/// The ports that TCP sockets of this network namespace listen on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListeningPorts(BTreeSet<u16>);

impl ListeningPorts {
    /// As they are now. The kernel is asked for listeners alone (`SOCK_DIAG_BY_FAMILY`): its text
    /// files go through the table of all connections too, which holds a core for milliseconds.
    #[must_use]
    pub fn read() -> Self {
        Self(Self::by_netlink().unwrap_or_else(Self::by_text))
    }

    /// `None` where the kernel has no such interface.
    fn by_netlink() -> Option<BTreeSet<u16>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(family, kind, flags, Some(netlink::SOCK_DIAG)).ok()?;
        let mut ports = BTreeSet::new();
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            send(&socket, &listeners_wanted(family), SendFlags::empty()).ok()?;
            listeners_told(&socket, &mut ports)?;
        }
        Some(ports)
    }

    fn by_text() -> BTreeSet<u16> {
        let mut ports = BTreeSet::new();
        for path in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
            let Ok(file) = fs::File::open(path) else { continue };
            let lines = BufReader::new(file).lines().skip(1).map_while(Result::ok);
            ports.extend(lines.map_while(|line| listener(&line)));
        }
        ports
    }

    /// Whether there is one on that port, at any address.
    #[must_use]
    pub fn has(&self, port: u16) -> bool {
        self.0.contains(&port)
    }
}

/// Bytes of the head of a netlink message.
const NETLINK_HEAD: usize = 16;
/// Answers that are read at most: a few hundred listeners each.
const ANSWERS_MAX: usize = 1024;

/// A request for all TCP listeners of a family: the head, `struct inet_diag_req_v2`.
fn listeners_wanted(family: AddressFamily) -> [u8; 72] {
    const BY_FAMILY: u16 = 20;
    const REQUEST_DUMP: u16 = 0x301;
    const TCP: u8 = 6;
    const LISTEN: u32 = 1 << 10;
    let mut message = [0; 72];
    let head = [&72_u32.to_ne_bytes()[..], &BY_FAMILY.to_ne_bytes(), &REQUEST_DUMP.to_ne_bytes()];
    let rest = [&[0; 8][..], &[family.as_raw() as u8, TCP, 0, 0], &LISTEN.to_ne_bytes()];
    let bytes = head.into_iter().chain(rest).flatten();
    message.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
    message
}

/// The ports in the answers up to the last; `None` for an error.
fn listeners_told(socket: &OwnedFd, ports: &mut BTreeSet<u16>) -> Option<()> {
    const ERROR: u16 = 2;
    const DONE: u16 = 3;
    let mut answer = vec![0; 1 << 15];
    for _ in 0..ANSWERS_MAX {
        // The kernel has the next answer ready before a call returns.
        let (len, _) = recv(socket, &mut answer[..], RecvFlags::empty()).ok()?;
        let mut rest = answer.get(..len)?;
        while let Some((bytes, kind, port)) = message(rest) {
            match kind {
                ERROR => return None,
                DONE => return Some(()),
                _ => ports.extend(port),
            }
            rest = rest.get(bytes.next_multiple_of(4)..).unwrap_or_default();
        }
    }
    None
}

/// The first message: its bytes, its kind, and the port of the `struct inet_diag_msg` that a
/// listener's has.
fn message(bytes: &[u8]) -> Option<(usize, u16, Option<u16>)> {
    let [l0, l1, l2, l3, k0, k1, ..] = *bytes else { return None };
    let len = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
    let whole = bytes.get(..len).filter(|whole| whole.len() >= NETLINK_HEAD)?;
    let port = whole.get(NETLINK_HEAD + 4..).and_then(|rest| rest.first_chunk());
    Some((len, u16::from_ne_bytes([k0, k1]), port.map(|port| u16::from_be_bytes(*port))))
}

/// The port of a line of a listener; `None` of another socket.
fn listener(line: &str) -> Option<u16> {
    let mut words = line.split_whitespace().skip(1);
    let local = words.next()?;
    let state = words.nth(1)?;
    let (_, port) = local.rsplit_once(':')?;
    u16::from_str_radix(port, 16).ok().filter(|_| state == "0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Facts = Facts {
        syncookies: 1,
        timestamps: true,
        sack: true,
        scaling: true,
        ecn: true,
        receive_buffer: (131_072, 6_291_456),
        hop_limits: (64, 64),
        mtu: 1500,
    };

    #[test]
    fn an_offer_is_what_linux_answers_by_its_defaults() {
        let offer = |mss, window| Offer {
            window,
            mss,
            window_scale: 7,
            sack: true,
            timestamps: true,
            ecn: true,
            hop_limit: 64,
            traffic_class: 0,
        };
        let wanted = (offer(1460, 64_240).word(), offer(1440, 64_800).word());
        assert_eq!(USUAL.offers(), wanted);
        let larger = Facts { receive_buffer: (131_072, 33_554_432), ..USUAL };
        assert_eq!(larger.offers().0 >> 32 & 0xff, 10, "`rmem_max` counts too");
        let unscaled = Facts { scaling: false, ..USUAL };
        assert_eq!(unscaled.offers().0, wanted.0 | NO_SCALING);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a namespace is entered by a thread")]
    fn the_kernel_tells_listeners_and_no_connections() {
        // A namespace of this thread's own.
        let test = std::thread::spawn(|| match crate::trial::enter_namespace() {
            Ok(()) => listeners_are_told(),
            Err(error) => eprintln!("SKIPPED: no network namespace of its own: {error}"),
        });
        test.join().unwrap();
    }

    fn listeners_are_told() {
        use std::net::{TcpListener, TcpStream};
        let listeners = ["127.0.0.1:0", "[::1]:0"].map(|addr| TcpListener::bind(addr).unwrap());
        let ports = listeners.each_ref().map(|it| it.local_addr().unwrap().port());
        let held: Vec<_> =
            listeners.iter().map(|it| TcpStream::connect(it.local_addr().unwrap())).collect();
        let client = held[0].as_ref().unwrap().local_addr().unwrap().port();
        let told = ListeningPorts::by_netlink().expect("Linux with TCP's diagnosis");
        assert!(ports.iter().all(|port| told.contains(port)), "{told:?}");
        assert!(!told.contains(&client), "a connection is no listener");
        drop(listeners);
        let told = ListeningPorts::by_netlink().unwrap();
        assert!(ports.iter().all(|port| !told.contains(port)), "{told:?}");
    }

    #[test]
    fn what_is_no_whole_message_is_none() {
        assert_eq!(message(&[]), None);
        assert_eq!(message(&[0; 16]), None);
        assert_eq!(message(&[17, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        let done = [16, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(message(&done), Some((16, 3, None)));
    }

    #[test]
    fn listeners_are_told_from_other_sockets() {
        let line = "   0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000";
        assert_eq!(listener(line), Some(22));
        let other = "   1: 0100007F:0016 0100007F:D2F0 01 00000000:00000000 00:00000000 00000000";
        assert_eq!(listener(other), None);
        let six = "   0: 00000000000000000000000001000000:01BB \
                   00000000000000000000000000000000:0000 0A 00000000:00000000";
        assert_eq!(listener(six), Some(443));
        assert_eq!(listener(""), None);
    }
}
