//! The back end "kernel": its sockets on one side, a TUN interface on the other.
//!
//! Called by `cargo xtask pkt --kernel` and by the conformance tests, in a network namespace that
//! the caller has made for this thread. Invariant: no socket ever waits here; the runner waits,
//! with the interface in its hand, so that what is sent is stamped when it comes.

#![expect(clippy::disallowed_methods, reason = "the kernel is played in real time")]

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use floodwall_device::{Device, Tun, TunConfig, TunKind};
use floodwall_packet::{Burst, PacketList, Pool, PoolConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as Os;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use socket2::SockRef;

use super::runner::{Backend, Call, Errno};
use super::script::Script;

/// The kernel's TCP: its sockets on one side, a TUN interface on the other.
pub struct Kernel {
    tun: Tun,
    pool: Pool,
    start: Instant,
    addresses: (IpAddr, IpAddr),
    /// Sockets are IPv6's, and their addresses mapped (RFC 4291 section 2.5.5.2).
    mapped: bool,
    sockets: BTreeMap<i64, OwnedFd>,
    next: i64,
    seen: VecDeque<(Duration, Vec<u8>)>,
}

impl Kernel {
    /// Gives this thread a network namespace of its own, for its whole life.
    ///
    /// # Errors
    /// The system's: it takes root.
    pub fn own_namespace() -> Result<(), String> {
        #[expect(deprecated, reason = "what makes it unsafe is a flag about descriptors")]
        let own = rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET);
        own.map_err(|error| format!("no network namespace of its own ({error}); it takes root"))
    }

    /// Makes the interface and its addresses, in a namespace that is the caller's own.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn new(script: &Script) -> Result<Self, String> {
        // No packets but the script's: no solicitations, no waiting for addresses.
        for conf in ["all", "default"] {
            for (name, value) in [("accept_dad", "0"), ("router_solicitations", "0")] {
                let path = format!("/proc/sys/net/ipv6/conf/{conf}/{name}");
                std::fs::write(&path, value).map_err(|error| format!("{path}: {error}"))?;
            }
        }
        ip("link set lo up")?;
        let mtu = Some(script.mtu());
        let (kind, up) = (TunKind::Tun, true);
        let config = TunConfig { kind, vnet_header: false, up, mtu, ..Default::default() };
        let tun = Tun::open("pkt%d", &config).map_err(|error| error.to_string())?;
        let tun = tun.into_iter().next().ok_or("no queue")?;
        let name = tun.info().name.clone();
        let ((local, bits), remote) = script.addresses()?;
        let (family, how) = if script.ipv6 { ("-6 ", "nodad") } else { ("", "") };
        ip(&format!("{family}addr add {local}/{bits} dev {name} {how}"))?;
        ip(&format!("{family}route add default dev {name}"))?;
        let few = PoolConfig { small: 64, frames: 512, ..PoolConfig::default() };
        let pool = Pool::new(&few).map_err(|error| error.to_string())?;
        Ok(Self {
            tun,
            pool,
            start: Instant::now(),
            addresses: (local, remote),
            mapped: script.mapped,
            sockets: BTreeMap::new(),
            next: 0,
            seen: VecDeque::new(),
        })
    }

    /// Takes what the interface has.
    fn collect(&mut self) {
        let mut burst = Burst::new();
        if self.tun.receive(&self.pool, &mut burst).is_ok() {
            let now = self.start.elapsed();
            for packet in burst.drain() {
                let mut bytes = vec![0; packet.len()];
                packet.copy_out(0, &mut bytes);
                self.seen.push_back((now, bytes));
            }
        }
    }

    /// Waits for the interface, at most until then.
    fn wait_for_packet(&mut self, until: Duration) {
        let left = until.saturating_sub(self.start.elapsed());
        if let Some(fd) = self.tun.readiness() {
            let time = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&time));
        }
        self.collect();
    }

    fn keep(&mut self, socket: OwnedFd) -> i64 {
        self.next += 1;
        self.sockets.insert(self.next, socket);
        self.next
    }

    fn try_call(&mut self, call: &Call) -> Result<i64, Os> {
        let of_socket = |addr| if self.mapped { mapped(addr) } else { addr };
        let (local, remote) = (of_socket(self.addresses.0), of_socket(self.addresses.1));
        let flags = SocketFlags::NONBLOCK;
        let done = |()| 0;
        let length = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        Ok(match call {
            Call::Socket => {
                let v6 = local.is_ipv6();
                let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
                let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
                // The machine's own choice may be one with another window than TCP's rules give.
                sockopt::set_tcp_congestion(&socket, "cubic")?;
                self.keep(socket)
            }
            Call::Close(socket) => self.sockets.remove(socket).map(|_| 0).ok_or(Os::BADF)?,
            Call::Bind(s, port) => {
                net::bind(self.socket(*s)?, &SocketAddr::new(local, *port)).map(done)?
            }
            Call::Listen(s, n) => net::listen(self.socket(*s)?, *n as i32).map(done)?,
            Call::Accept(s) => {
                let accepted = net::accept_with(self.socket(*s)?, flags)?;
                self.keep(accepted)
            }
            Call::Connect(s, port) => {
                net::connect(self.socket(*s)?, &SocketAddr::new(remote, *port)).map(done)?
            }
            Call::Disconnect(s) => net::connect_unspec(self.socket(*s)?).map(done)?,
            Call::Connected(s) => self.connected(*s)?,
            Call::Write(s, n) => {
                length(net::send(self.socket(*s)?, &vec![0; *n], SendFlags::NOSIGNAL)?)
            }
            Call::WriteMore(s, n) => {
                let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
                length(net::send(self.socket(*s)?, &vec![0; *n], flags)?)
            }
            Call::Read(s, n) => self.receive(*s, *n, RecvFlags::empty())?,
            Call::Peek(s, n) => self.receive(*s, *n, RecvFlags::PEEK)?,
            Call::Shutdown(s, how) => {
                let how = match how.as_str() {
                    "SHUT_RD" => Shutdown::Read,
                    "SHUT_WR" => Shutdown::Write,
                    "SHUT_RDWR" => Shutdown::Both,
                    _ => return Err(Os::INVAL),
                };
                let how = match how {
                    Shutdown::Read => net::Shutdown::Read,
                    Shutdown::Write => net::Shutdown::Write,
                    Shutdown::Both => net::Shutdown::Both,
                };
                net::shutdown(self.socket(*s)?, how).map(done)?
            }
            Call::SetOption(s, name, values) => self.set_option(*s, name, values).map(done)?,
            Call::SetText(s, name, value) if name == "TCP_CONGESTION" => {
                let socket = self.socket(*s)?;
                also(SockRef::from(socket).set_tcp_congestion(value.as_bytes())).map(done)?
            }
            Call::SetText(..) => return Err(Os::NOPROTOOPT),
            Call::Option(s, name) => self.option(*s, name)?,
            Call::Ready(s) => self.ready(*s)?,
            Call::Waiting(s) => {
                let waits = rustix::io::ioctl_fionread(self.socket(*s)?)?;
                i64::try_from(waits).unwrap_or(i64::MAX)
            }
        })
    }

    fn socket(&self, name: i64) -> Result<&OwnedFd, Os> {
        self.sockets.get(&name).ok_or(Os::BADF)
    }

    fn receive(&self, name: i64, n: usize, flags: RecvFlags) -> Result<i64, Os> {
        let (got, _) = net::recv(self.socket(name)?, vec![0; n].as_mut_slice(), flags)?;
        Ok(i64::try_from(got).unwrap_or(i64::MAX))
    }

    fn connected(&self, name: i64) -> Result<i64, Os> {
        let socket = self.socket(name)?;
        let mut polled = [PollFd::new(socket, PollFlags::OUT)];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut polled, Some(&none))? == 0 {
            return Err(Os::INPROGRESS);
        }
        sockopt::socket_error(socket)?.map(|()| 0)
    }

    fn ready(&self, name: i64) -> Result<i64, Os> {
        let flags = PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP;
        let mut polled = [PollFd::new(self.socket(name)?, flags)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        Ok(polled.first().map_or(0, |polled| polled.revents().bits().into()))
    }

    fn set_option(&self, name: i64, option: &str, values: &[i64]) -> Result<(), Os> {
        let socket = self.socket(name)?.as_fd();
        let value = values.first().copied().unwrap_or(0);
        let (is_on, number) = (value != 0, u32::try_from(value).unwrap_or(0));
        let seconds = Duration::from_secs(number.into());
        match option {
            "SO_REUSEADDR" => sockopt::set_socket_reuseaddr(socket, is_on),
            "SO_LINGER" => {
                let time = values.get(1).copied().unwrap_or(0);
                let time = Duration::from_secs(u64::try_from(time).unwrap_or(0));
                sockopt::set_socket_linger(socket, is_on.then_some(time))
            }
            "SO_KEEPALIVE" => sockopt::set_socket_keepalive(socket, is_on),
            "SO_RCVBUF" => sockopt::set_socket_recv_buffer_size(socket, number as usize),
            "SO_SNDBUF" => sockopt::set_socket_send_buffer_size(socket, number as usize),
            "IPV6_UNICAST_HOPS" => sockopt::set_ipv6_unicast_hops(socket, u8::try_from(value).ok()),
            "IP_TTL" => sockopt::set_ip_ttl(socket, number),
            "IP_TOS" => sockopt::set_ip_tos(socket, number as u8),
            "IPV6_TCLASS" => sockopt::set_ipv6_tclass(socket, number),
            "TCP_NODELAY" => sockopt::set_tcp_nodelay(socket, is_on),
            "TCP_MAXSEG" => also(SockRef::from(&socket).set_tcp_mss(number)),
            "TCP_NOTSENT_LOWAT" => also(SockRef::from(&socket).set_tcp_notsent_lowat(number)),
            "TCP_CORK" => sockopt::set_tcp_cork(socket, is_on),
            "TCP_QUICKACK" => sockopt::set_tcp_quickack(socket, is_on),
            "TCP_KEEPIDLE" => sockopt::set_tcp_keepidle(socket, seconds),
            "TCP_KEEPINTVL" => sockopt::set_tcp_keepintvl(socket, seconds),
            "TCP_KEEPCNT" => sockopt::set_tcp_keepcnt(socket, number),
            "TCP_USER_TIMEOUT" => sockopt::set_tcp_user_timeout(socket, number),
            _ => Err(Os::NOPROTOOPT),
        }
    }

    fn option(&self, name: i64, option: &str) -> Result<i64, Os> {
        let socket = self.socket(name)?;
        match option {
            "SO_ERROR" => {
                let error = sockopt::socket_error(socket)?;
                Ok(error.err().map_or(0, |error| error.raw_os_error().into()))
            }
            "TCP_NODELAY" => sockopt::tcp_nodelay(socket).map(i64::from),
            "TCP_MAXSEG" => read(SockRef::from(socket).tcp_mss()),
            "TCP_NOTSENT_LOWAT" => read(SockRef::from(socket).tcp_notsent_lowat()),
            _ => Err(Os::NOPROTOOPT),
        }
    }
}

impl Backend for Kernel {
    fn addresses(&self) -> (IpAddr, IpAddr) {
        self.addresses
    }

    fn now(&mut self) -> Duration {
        self.start.elapsed()
    }

    fn wait(&mut self, until: Duration) {
        self.collect();
        while self.start.elapsed() < until {
            self.wait_for_packet(until);
        }
    }

    fn next_packet(&mut self, until: Duration) -> Option<(Duration, Vec<u8>)> {
        self.collect();
        while self.seen.is_empty() && self.start.elapsed() < until {
            self.wait_for_packet(until);
        }
        self.seen.pop_front()
    }

    fn patience(&self) -> Duration {
        // It is real time.
        Duration::from_secs(900)
    }

    fn inject(&mut self, packet: &[u8]) -> Result<(), String> {
        let packet = self.pool.packet_from(packet).ok_or("the packet is too long")?;
        let mut list = PacketList::new();
        list.push_back(packet);
        for _ in 0..100 {
            if self.tun.transmit(&mut list).map_err(|error| error.to_string())? > 0 {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Err("the interface takes nothing".to_owned())
    }

    fn call(&mut self, call: &Call) -> Result<i64, Errno> {
        self.try_call(call).map_err(|error| Errno(name_of(error)))
    }

    fn command(&mut self, command: &str) -> Result<(), String> {
        let status = Command::new("sh").args(["-c", command]).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("`{command}`: {status}")),
            Err(error) => Err(format!("`{command}`: {error}")),
        }
    }
}

/// An IPv4 address as a socket of IPv6 has it.
fn mapped(addr: IpAddr) -> IpAddr {
    match addr {
        IpAddr::V4(v4) => IpAddr::V6(v4.to_ipv6_mapped()),
        v6 @ IpAddr::V6(_) => v6,
    }
}

/// A number of another crate's call.
fn read(got: std::io::Result<u32>) -> Result<i64, Os> {
    got.map(i64::from).map_err(|error| Os::from_raw_os_error(error.raw_os_error().unwrap_or(0)))
}

/// An error of another crate's call, as this file's calls say theirs.
fn also(done: std::io::Result<()>) -> Result<(), Os> {
    done.map_err(|error| Os::from_raw_os_error(error.raw_os_error().unwrap_or(0)))
}

/// Runs one `ip` command in the calling thread's namespace.
fn ip(words: &str) -> Result<(), String> {
    let status = Command::new("ip").args(words.split_whitespace()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("ip {words}: {status}")),
        Err(error) => Err(format!("ip: {error}")),
    }
}

fn name_of(error: Os) -> String {
    let names = [
        (Os::AGAIN, "EAGAIN"),
        (Os::INPROGRESS, "EINPROGRESS"),
        (Os::ALREADY, "EALREADY"),
        (Os::ISCONN, "EISCONN"),
        (Os::NOTCONN, "ENOTCONN"),
        (Os::CONNREFUSED, "ECONNREFUSED"),
        (Os::CONNRESET, "ECONNRESET"),
        (Os::TIMEDOUT, "ETIMEDOUT"),
        (Os::PIPE, "EPIPE"),
        (Os::INVAL, "EINVAL"),
        (Os::BADF, "EBADF"),
        (Os::ADDRINUSE, "EADDRINUSE"),
        (Os::HOSTUNREACH, "EHOSTUNREACH"),
        (Os::NOPROTOOPT, "ENOPROTOOPT"),
    ];
    let known = names.iter().find(|(other, _)| *other == error);
    known.map_or_else(|| format!("errno {}", error.raw_os_error()), |(_, name)| (*name).to_owned())
}
