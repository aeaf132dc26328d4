//! The back end "memory": a whole Floodwall stack with one interface, its time moved by the runner.
//!
//! Called by `cargo xtask pkt` and by the conformance tests. Invariants: time stands still but for
//! [`Backend::wait`] and [`Backend::next_packet`], so a script of minutes is played in
//! milliseconds, and twice the same; the stack is the product's own, from the IP header on. Not
//! here: Linux's settings; commands that set them are told apart in `knobs.rs`; options of sockets
//! (`memory/sockopts.rs`).

mod sockopts;
mod times;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use floodwall_base::{IfIndex, Instant, Randomness, Units};
use floodwall_packet::{Burst, Engine, PacketBuf, PacketList, Pool, PoolConfig, Round};
use floodwall_stack::{InterfaceConfig, Sockets, Stack, StackConfig, TcpError, accounts_needed};
use floodwall_tcp::{
    ConnectionError, ConnectionId, Info, Keepalive, ListenerId, RecvError, SendError, TcpSettings,
    TcpState,
};

pub(super) use sockopts::algorithm_of;
use times::Times;

use super::knobs::{Asked, Knobs, asked_of_sockets};
use super::profile::Profile;
use super::runner::{Backend, Call, Errno};
use super::script::Script;

/// Bytes of a listener's and a client's buffers, unless a script sets another size: a window of
/// 65535 in SYNs, as Linux has it.
const BUFFER: u32 = 262_144;
/// The ports of connections that are opened, unless a script sets one, as Linux has them.
const EPHEMERAL: RangeInclusive<u16> = 32_768..=60_999;

/// What a script's descriptor is.
#[derive(Clone, Debug)]
enum Socket {
    /// Neither listens nor is connected.
    Fresh,
    Listener(ListenerId),
    Connection(ConnectionId),
}

#[derive(Clone, Debug)]
struct Entry {
    socket: Socket,
    settings: TcpSettings,
    port: u16,
    /// The only port that a connection may begin at (`IP_LOCAL_PORT_RANGE` of one).
    range: Option<u16>,
    /// Closing resets (`SO_LINGER` of no time).
    abortive: bool,
    /// Our side was shut.
    shut: bool,
    /// The program reads no more.
    deaf: bool,
    /// How many may wait for a listener's program.
    backlog: usize,
    /// When a silent peer is probed, once the program enables keepalive.
    keepalive: Keepalive,
    /// Bytes of a receive buffer that does not grow: the system's habit, or the program's word.
    buffer: Option<u32>,
    /// The limit of unsent bytes as the program has set it.
    lowat: u32,
    /// What its connection has waited for.
    times: Times,
    /// Bytes that the program has read.
    taken: i64,
}

/// Floodwall's TCP: a whole stack with one interface in virtual time.
pub struct Memory {
    stack: Stack,
    pool: Pool,
    random: Randomness,
    now: Instant,
    start: Instant,
    addresses: (IpAddr, IpAddr),
    mtu: u32,
    mapped: bool,
    owner: u32,
    knobs: Knobs,
    sockets: BTreeMap<i64, Entry>,
    next: i64,
    seen: VecDeque<(Duration, Vec<u8>)>,
}

impl Memory {
    /// A stack for this script.
    ///
    /// # Errors
    /// It cannot be made: the machine has no memory.
    pub fn new(script: &Script) -> Result<Self, String> {
        let ((local, bits), remote) = script.addresses()?;
        let cidr = |addr: &str| addr.parse().map_err(|error| format!("{addr}: {error:?}"));
        let all = if script.is_ipv6() { "::/0" } else { "0.0.0.0/0" };
        let config = StackConfig {
            interfaces: vec![InterfaceConfig {
                name: "pkt0".to_owned(),
                mtu: script.mtu(),
                addresses: vec![cidr(&format!("{local}/{bits}"))?],
                ..InterfaceConfig::default()
            }],
            routes: vec![floodwall_stack::StaticRoute { prefix: cidr(all)?, via: None, iface: 0 }],
            tcp_connections_max: 64,
            udp_sockets_max: 4,
            duplicate_address_detection: false,
            ..StackConfig::default()
        };
        let pool = PoolConfig { accounts: accounts_needed(&config), ..PoolConfig::default() };
        let pool = Pool::new(&pool).map_err(|error| error.to_string())?;
        let (mut random, start) = (Randomness::from_number(1), Instant::from_nanos(1 << 40));
        let stack = Stack::new(&config, &mut random, start).map_err(|error| error.to_string())?;
        let mut it = Self {
            stack,
            pool,
            random,
            now: start,
            start,
            addresses: (local, remote),
            mtu: script.mtu(),
            mapped: script.mapped,
            owner: 0,
            knobs: Knobs::of(script, BUFFER),
            sockets: BTreeMap::new(),
            next: 0,
            seen: VecDeque::new(),
        };
        it.owner = it.with(|sockets| sockets.tcp_owner()).map_err(|error| error.to_string())?;
        Ok(it)
    }

    /// A round with what arrived; what departs is kept.
    fn round<R>(
        &mut self,
        arrived: Option<PacketBuf>,
        act: impl FnOnce(&mut Stack, &mut Round<'_>) -> R,
    ) -> R {
        let (mut burst, mut departing) = (Burst::new(), PacketList::new());
        if let Some(mut packet) = arrived {
            packet.set_iface(IfIndex(1));
            let _ = burst.push(packet);
        }
        let mut round = Round {
            now: self.now,
            pool: &self.pool,
            random: &mut self.random,
            arrived: &mut burst,
            departing: &mut departing,
            budget: Units(256),
            peers: None,
        };
        let result = act(&mut self.stack, &mut round);
        let at = self.now - self.start;
        while let Some(packet) = departing.pop_front() {
            if self.knobs.is_cut() {
                continue;
            }
            self.seen.push_back((at, packet.chunks().flatten().copied().collect()));
        }
        result
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut Sockets<'_>) -> R) -> R {
        self.round(None, |stack, round| act(&mut stack.sockets(round)))
    }

    /// Does the next timed work, if it is due until then.
    fn step(&mut self, until: Duration) -> bool {
        let until = self.start + until;
        let due = self.stack.deadline().filter(|due| *due <= until);
        self.note_times(due.unwrap_or(until));
        self.now = self.now.max(due.unwrap_or(until));
        if due.is_none() {
            return false;
        }
        self.round(None, |stack, round| stack.work(round));
        true
    }

    /// Notes what connections wait for until then: nothing changes before.
    fn note_times(&mut self, until: Instant) {
        let time = until.saturating_since(self.now);
        let names: Vec<i64> = self.sockets.keys().copied().collect();
        for name in names {
            let Ok(info) = self.info(name) else { continue };
            if let Ok(entry) = self.entry(name) {
                entry.times.pass(time, &info);
            }
        }
    }

    fn keep(&mut self, socket: Socket, settings: TcpSettings) -> i64 {
        self.next += 1;
        let entry = Entry {
            socket,
            settings,
            port: 0,
            backlog: 0,
            range: None,
            abortive: false,
            shut: false,
            deaf: false,
            keepalive: self.knobs.keepalive(),
            buffer: self.knobs.receive_fixed(),
            lowat: 0,
            times: Times::default(),
            taken: 0,
        };
        self.sockets.insert(self.next, entry);
        self.next
    }

    fn entry(&mut self, name: i64) -> Result<&mut Entry, Errno> {
        self.sockets.get_mut(&name).ok_or_else(|| errno("EBADF"))
    }

    fn connection(&mut self, name: i64) -> Result<ConnectionId, Errno> {
        match self.entry(name)?.socket {
            Socket::Connection(id) => Ok(id),
            _ => Err(errno("ENOTCONN")),
        }
    }

    fn try_call(&mut self, call: &Call) -> Result<i64, Errno> {
        match call {
            Call::Socket => {
                let settings = self.knobs.settings();
                Ok(self.keep(Socket::Fresh, settings))
            }
            Call::Bind(name, port) => {
                self.entry(*name)?.port = *port;
                Ok(0)
            }
            Call::Listen(name, backlog) => self.listen(*name, *backlog),
            Call::Accept(name) => self.accept(*name),
            Call::Connect(name, port) => self.connect(*name, *port),
            Call::Disconnect(name) => self.disconnect(*name),
            Call::Connected(name) => self.connected(*name),
            Call::Write(name, len) => self.write(*name, *len, false),
            Call::WriteMore(name, len) => self.write(*name, *len, true),
            Call::Read(name, len) => self.read(*name, *len, false),
            Call::Peek(name, len) => self.read(*name, *len, true),
            Call::Shutdown(name, how) => self.shutdown(*name, how),
            Call::Close(name) => self.close(*name),
            Call::SetOption(name, option, values) => self.set_option(*name, option, values),
            Call::SetText(name, option, value) => self.set_text(*name, option, value),
            Call::Option(name, option) => self.option(*name, option),
            Call::Ready(name) => self.ready(*name),
            Call::Waiting(name) => Ok(self.info(*name)?.readable.into()),
        }
    }

    fn listen(&mut self, name: i64, backlog: i64) -> Result<i64, Errno> {
        self.entry(name)?.backlog = usize::try_from(backlog).unwrap_or(0);
        self.begin_to_listen(name)
    }

    fn begin_to_listen(&mut self, name: i64) -> Result<i64, Errno> {
        let Entry { mut settings, port, backlog, .. } = self.entry(name)?.clone();
        settings.ecn = self.knobs.answers_ecn();
        let (local, owner) = (SocketAddr::new(self.of_socket(self.addresses.0), port), self.owner);
        let listener = self
            .with(|sockets| sockets.tcp_listen(local, &settings, backlog, owner))
            .map_err(|_| errno("EADDRINUSE"))?;
        self.entry(name)?.socket = Socket::Listener(listener);
        Ok(0)
    }

    /// An address as the script's sockets have it: IPv4 addresses mapped where they are of IPv6.
    fn of_socket(&self, addr: IpAddr) -> IpAddr {
        match addr {
            IpAddr::V4(v4) if self.mapped => IpAddr::V6(v4.to_ipv6_mapped()),
            other => other,
        }
    }

    fn unlisten(&mut self, listener: ListenerId) {
        let _ = self.with(|sockets| sockets.tcp_with(|tcp, lend| tcp.unlisten(lend, listener)));
    }

    fn accept(&mut self, name: i64) -> Result<i64, Errno> {
        let Entry { socket, settings, buffer, keepalive, .. } = self.entry(name)?.clone();
        let Socket::Listener(listener) = socket else { return Err(errno("EINVAL")) };
        match self.with(|sockets| sockets.tcp_accept(listener)) {
            Ok(Some(id)) => {
                let name = self.keep(Socket::Connection(id), settings);
                let entry = self.entry(name)?;
                (entry.buffer, entry.keepalive) = (buffer, keepalive);
                self.apply(name)?;
                Ok(name)
            }
            Ok(None) => Err(errno("EAGAIN")),
            Err(_) => Err(errno("EINVAL")),
        }
    }

    /// Applies a socket's option to its connection.
    fn apply(&mut self, name: i64) -> Result<(), Errno> {
        let Entry { socket, mut settings, buffer, .. } = self.entry(name)?.clone();
        let id = match socket {
            Socket::Connection(id) => id,
            Socket::Fresh => return Ok(()),
            Socket::Listener(listener) => {
                // It listens anew: its options hold for connections to come.
                self.unlisten(listener);
                return self.begin_to_listen(name).map(|_| ());
            }
        };
        if let Some(buffer) = buffer {
            settings.receive_tuned = false;
            settings.receive_bytes = match self.knobs.profile() {
                Profile::FreeBsd => whole_segments(buffer, self.mss()),
                Profile::Own | Profile::Linux => buffer,
            };
        }
        let set = |sockets: &mut Sockets<'_>| {
            sockets.tcp_with(|tcp, lend| tcp.configure(id, &settings, lend.now))
        };
        let _ = self.with(set);
        Ok(())
    }

    /// The largest payload that the interface takes in a segment without options.
    fn mss(&self) -> u32 {
        self.mtu.saturating_sub(if self.addresses.0.is_ipv6() { 60 } else { 40 })
    }

    fn connect(&mut self, name: i64, port: u16) -> Result<i64, Errno> {
        let (remote, owner) = (SocketAddr::new(self.of_socket(self.addresses.1), port), self.owner);
        let Entry { socket, settings, range, port, .. } = self.entry(name)?.clone();
        let asked = Some(port).filter(|port| *port > 0);
        let local = asked.map(|port| SocketAddr::new(self.of_socket(self.addresses.0), port));
        let ports = range.map_or(EPHEMERAL, |port| port..=port);
        let _ = self.with(|sockets| sockets.tcp_with(|tcp, _| tcp.set_ephemeral(ports)));
        match socket {
            Socket::Fresh => {
                let opened = self.with(|sockets| match local {
                    Some(local) => sockets.tcp_connect_from(local, remote, &settings, owner),
                    None => sockets.tcp_connect(remote, &settings, owner),
                });
                let id = opened.map_err(|error| match error {
                    TcpError::NoRoute(_) => errno("ENETUNREACH"),
                    _ => errno("EADDRNOTAVAIL"),
                })?;
                self.entry(name)?.socket = Socket::Connection(id);
                self.apply(name)?;
                Err(errno("EINPROGRESS"))
            }
            Socket::Connection(id) => match self.with(|sockets| sockets.tcp_state(id)) {
                Ok(TcpState::SynSent | TcpState::SynReceived) => Err(errno("EALREADY")),
                Ok(TcpState::Closed) | Err(_) => {
                    self.failure(id).map_or(Err(errno("EISCONN")), Err)
                }
                Ok(_) => Err(errno("EISCONN")),
            },
            Socket::Listener(_) => Err(errno("EISCONN")),
        }
    }

    /// As a program does that wants to use a socket again: what was is over at once.
    fn disconnect(&mut self, name: i64) -> Result<i64, Errno> {
        if let Socket::Connection(id) = self.entry(name)?.socket {
            let _ = self.with(|sockets| sockets.tcp_abort(id));
        }
        let entry = self.entry(name)?;
        (entry.socket, entry.shut, entry.deaf) = (Socket::Fresh, false, false);
        Ok(0)
    }

    /// Takes the error that a connection ended with.
    fn failure(&mut self, id: ConnectionId) -> Option<Errno> {
        let error = self.with(|sockets| sockets.tcp_with(|tcp, _| tcp.take_error(id)));
        error.ok()?.ok()?.map(|error| errno(name_of(error)))
    }

    fn connected(&mut self, name: i64) -> Result<i64, Errno> {
        let id = self.connection(name)?;
        match self.with(|sockets| sockets.tcp_state(id)) {
            Ok(TcpState::SynSent | TcpState::SynReceived) => Err(errno("EINPROGRESS")),
            _ => self.failure(id).map_or(Ok(0), Err),
        }
    }

    fn write(&mut self, name: i64, len: usize, more: bool) -> Result<i64, Errno> {
        // Linux counts a socket that was never connected as one that was shut.
        let is_pipe = self.knobs.profile() == Profile::Linux;
        let id = self.connection(name).map_err(|Errno(error)| match &*error {
            "ENOTCONN" if is_pipe => errno("EPIPE"),
            other => errno(other),
        })?;
        let bytes = vec![0; len];
        let sent = self.with(|sockets| match more {
            true => sockets.tcp_send_more(id, &bytes),
            false => sockets.tcp_send(id, &bytes),
        });
        let is_short = !matches!(sent, Ok(taken) if taken == len);
        self.entry(name)?.times.has_no_space = is_short;
        match sent {
            Ok(taken) => Ok(length(taken)),
            Err(SendError::WouldBlock) => Err(errno("EAGAIN")),
            Err(SendError::Connection(error)) => Err(errno(name_of(error))),
            Err(_) => Err(errno("EPIPE")),
        }
    }

    fn read(&mut self, name: i64, len: usize, stays: bool) -> Result<i64, Errno> {
        let id = self.connection(name)?;
        let mut out = vec![1; len];
        let got = self.with(|sockets| match stays {
            true => sockets.tcp_peek(id, &mut out),
            false => sockets.tcp_recv(id, &mut out),
        });
        let entry = self.entry(name)?;
        if let (Ok(n), false) = (&got, stays) {
            entry.taken += length(*n);
        }
        let is_deaf = entry.deaf;
        match got {
            // What came before is read by Linux; FreeBSD has thrown it away.
            Err(RecvError::WouldBlock) if is_deaf => Ok(0),
            Ok(_) if is_deaf && self.knobs.profile() == Profile::FreeBsd => Ok(0),
            Ok(n) if out.iter().take(n).all(|byte| *byte == 0) => Ok(length(n)),
            Ok(_) => Err(errno("the bytes are not those that were sent")),
            Err(RecvError::WouldBlock) => Err(errno("EAGAIN")),
            Err(RecvError::Connection(error)) => Err(errno(name_of(error))),
            Err(RecvError::Gone(_)) => Err(errno("ENOTCONN")),
        }
    }

    fn shutdown(&mut self, name: i64, how: &str) -> Result<i64, Errno> {
        let id = self.connection(name)?;
        let state = self.with(|sockets| sockets.tcp_state(id));
        if matches!(state, Err(_) | Ok(TcpState::Closed)) {
            return Err(errno("ENOTCONN"));
        }
        self.entry(name)?.deaf |= how != "SHUT_WR";
        match how {
            "SHUT_WR" | "SHUT_RDWR" => {
                self.entry(name)?.shut = true;
                let done = self.with(|sockets| sockets.tcp_shutdown(id));
                done.map(|()| 0).map_err(|_| errno("ENOTCONN"))
            }
            // Nothing leaves for it, and the peer may go on.
            "SHUT_RD" => Ok(0),
            _ => Err(errno("EINVAL")),
        }
    }

    fn close(&mut self, name: i64) -> Result<i64, Errno> {
        let entry = self.sockets.remove(&name).ok_or_else(|| errno("EBADF"))?;
        match entry.socket {
            Socket::Fresh => {}
            Socket::Listener(listener) => self.unlisten(listener),
            Socket::Connection(id) => {
                let _ = self.with(|sockets| match entry.abortive {
                    true => sockets.tcp_abort(id),
                    false => sockets.tcp_close(id),
                });
            }
        }
        Ok(0)
    }

    /// How many of the script's sockets are in a state, by FreeBSD's name for it.
    fn count_in(&mut self, wanted: &str) -> u64 {
        let ids: Vec<_> = self.sockets.values().map(|entry| entry.socket.clone()).collect();
        let states = ids.into_iter().map(|socket| match socket {
            Socket::Fresh => "CLOSED",
            Socket::Listener(_) => "LISTEN",
            Socket::Connection(id) => match self.with(|sockets| sockets.tcp_state(id)) {
                Ok(TcpState::Listen) => "LISTEN",
                Ok(TcpState::SynSent) => "SYN_SENT",
                Ok(TcpState::SynReceived) => "SYN_RCVD",
                Ok(TcpState::Established) => "ESTABLISHED",
                Ok(TcpState::CloseWait) => "CLOSE_WAIT",
                Ok(TcpState::FinWait1) => "FIN_WAIT_1",
                Ok(TcpState::FinWait2) => "FIN_WAIT_2",
                Ok(TcpState::Closing) => "CLOSING",
                Ok(TcpState::LastAck) => "LAST_ACK",
                Ok(TcpState::TimeWait) => "TIME_WAIT",
                Ok(TcpState::Closed) | Err(_) => "CLOSED",
            },
        });
        states.map(|state| u64::from(state == wanted)).sum()
    }

    fn ready(&mut self, name: i64) -> Result<i64, Errno> {
        const IN: i64 = 1;
        const OUT: i64 = 4;
        const HUP: i64 = 16;
        const RDHUP: i64 = 0x2000;
        match self.entry(name)?.socket.clone() {
            Socket::Fresh => Ok(OUT | HUP),
            Socket::Listener(id) => {
                let waits = self.with(|sockets| sockets.tcp_with(|tcp, _| tcp.has_waiting(id)));
                Ok(if matches!(waits, Ok(Ok(true))) { IN } else { 0 })
            }
            Socket::Connection(_) => {
                let (info, is_deaf) = (self.info(name)?, self.entry(name)?.deaf);
                let mut ready = 0;
                if info.readable > 0 || info.has_ended || is_deaf {
                    ready |= IN;
                }
                if info.has_ended || is_deaf {
                    ready |= RDHUP;
                }
                if info.writable {
                    ready |= OUT;
                }
                if info.state == TcpState::Closed {
                    ready |= IN | OUT | HUP | RDHUP;
                }
                Ok(ready)
            }
        }
    }

    fn info(&mut self, name: i64) -> Result<Info, Errno> {
        let id = self.connection(name)?;
        let info = self.with(|sockets| sockets.tcp_with(|tcp, lend| tcp.info(id, lend.now)));
        info.ok().and_then(Result::ok).ok_or_else(|| errno("ENOTCONN"))
    }
}

impl Backend for Memory {
    fn addresses(&self) -> (IpAddr, IpAddr) {
        self.addresses
    }

    fn now(&mut self) -> Duration {
        self.now - self.start
    }

    fn wait(&mut self, until: Duration) {
        while self.step(until) {}
    }

    fn patience(&self) -> Duration {
        // All that a stack still does by itself is done by then.
        Duration::from_secs(7 * 24 * 3600)
    }

    fn next_packet(&mut self, until: Duration) -> Option<(Duration, Vec<u8>)> {
        while self.seen.is_empty() && self.step(until) {}
        self.seen.pop_front()
    }

    fn inject(&mut self, packet: &[u8]) -> Result<(), String> {
        let packet = self.pool.packet_from(packet).ok_or("the packet is too long")?;
        self.round(Some(packet), |stack, round| stack.round(round));
        Ok(())
    }

    fn call(&mut self, call: &Call) -> Result<i64, Errno> {
        self.try_call(call)
    }

    fn command(&mut self, command: &str) -> Result<(), String> {
        let Some(Asked { state, count: wanted, of_programs }) = asked_of_sockets(command)? else {
            self.knobs.command(command)?;
            if let Some(mtu) = self.knobs.mtu().filter(|mtu| *mtu != self.mtu) {
                self.mtu = mtu;
                self.stack.set_link_mtu(IfIndex(1), mtu);
            }
            return Ok(());
        };
        let mut count = self.count_in(&state);
        if !of_programs && state == "SYN_RCVD" {
            count += self.stack.tcp_listeners().map(|it| it.counts.half_open).sum::<u64>();
        }
        if count == wanted {
            return Ok(());
        }
        Err(format!("{count} sockets are {state}, expected {wanted}"))
    }

    fn profile(&self) -> Profile {
        self.knobs.profile()
    }

    fn fields(&mut self, socket: i64) -> Result<BTreeMap<String, i64>, String> {
        let state = match self.entry(socket).map_err(|Errno(name)| name)?.socket {
            Socket::Fresh => Some(TcpState::Closed),
            Socket::Listener(_) => Some(TcpState::Listen),
            Socket::Connection(_) => None,
        };
        if let Some(state) = state {
            return Ok([("tcpi_state".to_owned(), super::fields::number_of(state))].into());
        }
        let info = self.info(socket).map_err(|Errno(name)| name)?;
        let entry = self.entry(socket).map_err(|Errno(name)| name)?;
        let (times, taken) = (entry.times, entry.taken);
        let mut fields = super::fields::of(&info);
        fields.extend(times.fields());
        fields.insert("tcpi_bytes_received".to_owned(), taken + i64::from(info.readable));
        Ok(fields)
    }
}

fn errno(name: &str) -> Errno {
    Errno(name.to_owned())
}

fn length(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn name_of(error: ConnectionError) -> &'static str {
    match error {
        ConnectionError::Refused => "ECONNREFUSED",
        ConnectionError::Reset => "ECONNRESET",
        ConnectionError::TimedOut => "ETIMEDOUT",
        ConnectionError::Unreachable => "EHOSTUNREACH",
        _ => "ECONNABORTED",
    }
}

/// A buffer that holds whole segments: the next number of bytes that does.
fn whole_segments(buffer: u32, mss: u32) -> u32 {
    buffer.div_ceil(mss.max(1)).saturating_mul(mss)
}
