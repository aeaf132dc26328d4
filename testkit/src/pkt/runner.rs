//! Plays a script against a back end.
//!
//! Sequence numbers of a script are relative to the connection's first ones: the peer's are used as
//! written, ours are learnt from the first SYN that is seen. Timestamps are learnt likewise.
//! Invariant: what a script does not say is not compared; what it says is compared exactly, times
//! within the tolerance. A call without `...` must return at once.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use super::script::{ACK, Arg, Event, Opt, SYN, Script, Segment, SocketCall, What, When};
use super::segment::{Ends, decode, encode};

/// The calls that a script may make.
pub(super) const CALLS: &[&str] = &[
    "socket",
    "bind",
    "listen",
    "accept",
    "connect",
    "read",
    "write",
    "recv",
    "send",
    "close",
    "shutdown",
    "fcntl",
    "setsockopt",
    "getsockopt",
    "poll",
    "sendto",
    "recvfrom",
];
/// The port that scripts bind and connect to, and the one of a script's client.
const PORT: u16 = 8080;
const CLIENT_PORT: u16 = 49_152;
/// How far a time may be off, and which part of the gap before it.
const TOLERANCE: Duration = Duration::from_millis(4);
const TOLERANCE_PART: u32 = 8;
/// How often a call that lasts is tried.
const STEP: Duration = Duration::from_millis(1);
/// How long a packet that may come at any time is waited for.
const ANY: Duration = Duration::from_secs(60);

/// A failed call: the name of its errno.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Errno(pub String);

/// A call of a socket that never waits. Sockets are named by what the back end returned.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Call {
    /// A TCP socket of the script's family; returns its name.
    Socket,
    /// To the local address and this port.
    Bind(i64, u16),
    /// With this backlog.
    Listen(i64, i64),
    /// Returns the new socket's name, or `EAGAIN`.
    Accept(i64),
    /// To the remote address and this port; `EINPROGRESS` where it lasts.
    Connect(i64, u16),
    /// Whether a connection that was begun is there: 0, `EINPROGRESS`, or how it failed.
    Connected(i64),
    /// So many zero bytes; returns how many were taken, or `EAGAIN`.
    Write(i64, usize),
    /// At most so many bytes; returns how many came, or `EAGAIN`.
    Read(i64, usize),
    /// Reads without taking.
    Peek(i64, usize),
    /// `SHUT_RD`, `SHUT_WR` or `SHUT_RDWR`.
    Shutdown(i64, String),
    /// The socket is gone.
    Close(i64),
    /// Sets a whole number, or two.
    SetOption(i64, String, Vec<i64>),
    /// Returns a whole number.
    Option(i64, String),
    /// What `poll` says is possible now.
    Ready(i64),
}

/// Where a script is played. Time counts from the start of the play.
pub trait Backend {
    /// The addresses: the one of the TCP under test, and the script's.
    fn addresses(&self) -> (IpAddr, IpAddr);
    /// How long the play has lasted.
    fn now(&mut self) -> Duration;
    /// Lets time pass; what is sent meanwhile is kept with its moment.
    fn wait(&mut self, until: Duration);
    /// The next packet that the TCP under test sent, waited for until then.
    fn next_packet(&mut self, until: Duration) -> Option<(Duration, Vec<u8>)>;
    /// Gives the TCP under test a packet.
    ///
    /// # Errors
    /// What the device says.
    fn inject(&mut self, packet: &[u8]) -> Result<(), String>;
    /// Makes a call.
    ///
    /// # Errors
    /// The call's own.
    fn call(&mut self, call: &Call) -> Result<i64, Errno>;
    /// The particulars of a connection, by the names of `TCP_INFO`.
    ///
    /// # Errors
    /// This back end does not tell, or there is no connection.
    fn fields(&mut self, _socket: i64) -> Result<BTreeMap<String, i64>, String> {
        Err("this back end tells no particulars of a connection".to_owned())
    }
    /// Carries out a script's command (a system setting).
    ///
    /// # Errors
    /// It is not known here, or failed.
    fn command(&mut self, command: &str) -> Result<(), String>;
}

/// Why a script did not pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The line of the event; 0 for the script as a whole.
    pub line: usize,
    /// What was expected and what came.
    pub what: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for Failure {}

/// Plays a script.
///
/// # Errors
/// The first event that went another way.
pub fn play(script: &Script, backend: &mut dyn Backend) -> Result<(), Failure> {
    let whole = |what| Failure { line: 0, what };
    if let Some(command) = &script.init {
        backend.command(command).map_err(whole)?;
    }
    let outcome = Player::new(script, backend).play();
    if let Some(command) = &script.cleanup {
        backend.command(command).map_err(whole)?;
    }
    outcome
}

/// A call that lasts.
struct Pending<'a> {
    event: &'a Event,
    call: &'a SocketCall,
    /// When it must return.
    until: Duration,
    /// Bytes written so far.
    done: i64,
}

struct Player<'a> {
    script: &'a Script,
    backend: &'a mut dyn Backend,
    ends: Ends,
    /// Script's descriptors: the back end's sockets, and whether they never wait.
    sockets: BTreeMap<i64, (i64, bool)>,
    /// Our first sequence number as it is, and as the script says; the peer's.
    local_isn: Option<(u32, u32)>,
    remote_isn: Option<u32>,
    /// Our timestamps: the script's, and as they are.
    stamps: BTreeMap<u32, u32>,
    seen: VecDeque<(Duration, Vec<u8>)>,
    /// When the event before was done.
    base: Duration,
    pending: Option<Pending<'a>>,
    /// A connect that lasts is under way on this socket.
    connecting: Option<i64>,
    /// The socket of the connection under test.
    tested: Option<i64>,
    /// What code blocks have assigned.
    names: BTreeMap<String, i64>,
}

type Outcome = Result<(), String>;

impl<'a> Player<'a> {
    fn new(script: &'a Script, backend: &'a mut dyn Backend) -> Self {
        let (local, remote) = backend.addresses();
        Self {
            script,
            backend,
            ends: Ends { local: (local, PORT), remote: (remote, CLIENT_PORT) },
            sockets: BTreeMap::new(),
            local_isn: None,
            remote_isn: None,
            stamps: BTreeMap::new(),
            seen: VecDeque::new(),
            base: Duration::ZERO,
            pending: None,
            connecting: None,
            tested: None,
            names: BTreeMap::new(),
        }
    }

    fn play(mut self) -> Result<(), Failure> {
        let script = self.script;
        for event in &script.events {
            let outcome = self.event(event);
            outcome.map_err(|what| Failure { line: event.line, what })?;
        }
        let line = self.pending.as_ref().map_or(0, |pending| pending.event.line);
        self.finish_pending().map_err(|what| Failure { line, what })
    }

    /// Plays one event.
    fn event(&mut self, event: &'a Event) -> Outcome {
        let due = match event.when {
            When::At(at) => at,
            When::After(gap) | When::Between(gap, _) => self.base + gap,
            When::Any => self.base,
        };
        if let What::Outbound(segment) = &event.what {
            return self.outbound(event, due, segment);
        }
        self.pass(due)?;
        match &event.what {
            What::Inbound(segment) => {
                self.inbound(segment)?;
                // Segments in a row keep their distances.
                self.base = due;
            }
            What::Call(call) => {
                self.finish_pending()?;
                self.call(event, call, due)?;
                self.base = self.backend.now();
            }
            What::Icmp(icmp) => {
                let isn = self.local_isn.map_or(0, |(live, _)| live);
                let seq = isn.wrapping_add(icmp.quoted.0);
                let packet = super::icmp::encode(&self.ends, icmp, seq);
                self.backend.inject(&packet.ok_or("no such ICMP error in this family")?)?;
                self.base = due;
            }
            What::Code(text) => {
                let socket = self.tested.ok_or("there is no connection under test")?;
                let mut fields = self.backend.fields(socket)?;
                fields.extend(super::fields::constants());
                super::code::run(text, &fields, &mut self.names)?;
                self.base = self.backend.now();
            }
            What::Command(command) => {
                self.backend.command(command)?;
                self.base = self.backend.now();
            }
            What::Outbound(_) => {}
        }
        Ok(())
    }

    /// Lets time pass until then, trying a call that lasts meanwhile.
    fn pass(&mut self, until: Duration) -> Outcome {
        while self.pending.is_some() && self.backend.now() < until {
            self.try_pending()?;
            let next = (self.backend.now() + STEP).min(until);
            self.backend.wait(next);
        }
        self.backend.wait(until);
        Ok(())
    }

    fn tolerance(&self, gap: Duration) -> Duration {
        self.script.tolerance.unwrap_or(TOLERANCE).max(gap / TOLERANCE_PART)
    }

    // Segments.

    fn inbound(&mut self, written: &Segment) -> Outcome {
        let mut segment = written.clone();
        let (live, script) = self.local_isn.unwrap_or_default();
        if written.has(SYN) {
            // A second SYN is of the same connection, unless it says otherwise by its place.
            self.remote_isn.get_or_insert(written.start);
        } else {
            segment.start =
                written.start.wrapping_add(*self.remote_isn.get_or_insert(written.start));
        }
        if written.has(ACK) {
            let from = if written.has(SYN) { script } else { 0 };
            let ack = written.ack.unwrap_or(0);
            segment.ack = Some(ack.wrapping_sub(from).wrapping_add(live));
        }
        for option in &mut segment.options {
            match option {
                Opt::Sack(blocks) => blocks.iter_mut().for_each(|(left, right)| {
                    *left = left.wrapping_add(live);
                    *right = right.wrapping_add(live);
                }),
                Opt::Ts(_, echo) if written.has(ACK) => {
                    let Some(sent) = self.stamps.get(echo) else {
                        return Err(format!("ecr {echo} was never sent"));
                    };
                    *echo = *sent;
                }
                _ => {}
            }
        }
        self.backend.inject(&encode(&self.ends, &segment))
    }

    /// The next segment of the connection under test, waited for until then.
    fn next_segment(&mut self, until: Duration) -> Result<Option<(Duration, Segment)>, String> {
        loop {
            let packet = match self.seen.pop_front() {
                Some(packet) => packet,
                None if self.pending.is_some() && self.backend.now() < until => {
                    self.try_pending()?;
                    let step = (self.backend.now() + STEP).min(until);
                    match self.backend.next_packet(step) {
                        Some(packet) => packet,
                        None => continue,
                    }
                }
                None => match self.backend.next_packet(until) {
                    Some(packet) => packet,
                    None => return Ok(None),
                },
            };
            if let Some((ports, segment)) = decode(&packet.1, &self.ends) {
                if segment.has(SYN) && !segment.has(ACK) && self.local_isn.is_none() {
                    self.ends.local.1 = ports.0;
                    self.ends.remote.1 = ports.1;
                }
                if ports == (self.ends.local.1, self.ends.remote.1) {
                    return Ok(Some((packet.0, segment)));
                }
            }
        }
    }

    fn outbound(&mut self, event: &Event, due: Duration, wanted: &Segment) -> Outcome {
        let gap = due.saturating_sub(self.base);
        let tolerance = self.tolerance(gap);
        let latest = match event.when {
            When::Any => self.backend.now() + ANY,
            When::Between(_, latest) => self.base + latest + tolerance,
            When::At(_) | When::After(_) => due + tolerance,
        };
        let Some((first_at, mut segment)) = self.next_segment(latest)? else {
            return Err(format!("nothing was sent by {latest:?}; expected {}", show(wanted)));
        };
        let mut at = first_at;
        while segment.len < wanted.len && !self.script.strict_segments && segment.len > 0 {
            let Some((then, more)) = self.next_segment(latest)? else {
                break;
            };
            let follows = more.start == segment.start.wrapping_add(segment.len);
            if !follows || (more.ack, more.win) != (segment.ack, segment.win) {
                break;
            }
            segment.len += more.len;
            segment.flags |= more.flags;
            at = then;
        }
        self.learn(wanted, &segment);
        let relative = self.relative(&segment);
        compare(wanted, &relative)?;
        let is_early = event.when != When::Any && at + tolerance < due;
        if is_early || at > latest {
            return Err(format!("sent at {at:?}; expected at {due:?} ± {tolerance:?}"));
        }
        self.base = at;
        Ok(())
    }

    /// Learns our first sequence number and our timestamps.
    fn learn(&mut self, wanted: &Segment, live: &Segment) {
        if live.has(SYN) && wanted.has(SYN) && self.local_isn.is_none() {
            self.local_isn = Some((live.start, wanted.start));
        }
        let stamp = |segment: &Segment| {
            segment.options.iter().find_map(|option| match option {
                Opt::Ts(value, _) => Some(*value),
                _ => None,
            })
        };
        if let (Some(script), Some(sent)) = (stamp(wanted), stamp(live)) {
            self.stamps.insert(script, sent);
        }
    }

    /// A live segment in the script's numbers.
    fn relative(&self, live: &Segment) -> Segment {
        let (isn, script) = self.local_isn.unwrap_or_default();
        let mut segment = live.clone();
        let from = if live.has(SYN) { script } else { 0 };
        segment.start = live.start.wrapping_sub(isn).wrapping_add(from);
        let is_ack = live.has(ACK);
        let peer = if live.has(SYN) { 0 } else { self.remote_isn.unwrap_or(0) };
        segment.ack = live.ack.filter(|_| is_ack).map(|ack| ack.wrapping_sub(peer));
        for option in &mut segment.options {
            if let Opt::Sack(blocks) = option {
                for (left, right) in blocks {
                    *left = left.wrapping_sub(peer);
                    *right = right.wrapping_sub(peer);
                }
            }
        }
        segment
    }

    // Calls.

    fn call(&mut self, event: &'a Event, call: &'a SocketCall, due: Duration) -> Outcome {
        if let Some(until) = event.until {
            let until = match event.when {
                When::At(_) => until,
                _ => due + until.saturating_sub(after(event.when)),
            };
            self.pending = Some(Pending { event, call, until, done: 0 });
            return self.try_pending();
        }
        // What is on its way inside the TCP may need a moment.
        let until = self.backend.now() + self.tolerance(Duration::ZERO);
        loop {
            let result = self.make(call)?;
            let would_wait = self.would_wait(call, &result);
            if !would_wait {
                return self.compare_result(call, &result);
            }
            if self.backend.now() >= until {
                return Err(format!("{} does not return at once", call.name));
            }
            let step = self.backend.now() + STEP;
            self.backend.wait(step);
        }
    }

    /// Whether a call on a socket that may wait would do so.
    fn would_wait(&self, call: &SocketCall, result: &Result<i64, Errno>) -> bool {
        let Err(Errno(errno)) = result else {
            return false;
        };
        let never_waits = match call.args.first() {
            Some(Arg::Int(fd)) => self.sockets.get(fd).is_some_and(|(_, never)| *never),
            _ => false,
        };
        !never_waits && matches!(errno.as_str(), "EAGAIN" | "EINPROGRESS" | "EALREADY")
    }

    fn try_pending(&mut self) -> Outcome {
        let Some(mut pending) = self.pending.take() else {
            return Ok(());
        };
        let now = self.backend.now();
        let (event, call, until) = (pending.event, pending.call, pending.until);
        let mut result = self.make(call)?;
        let is_write = matches!(call.name.as_str(), "write" | "send" | "sendto");
        if let (Ok(written), true) = (&result, is_write) {
            pending.done += written;
            result = Ok(pending.done);
        }
        let is_partial = is_write && pending.done < call.result;
        if self.would_wait(call, &result) || is_partial {
            if now > until + self.tolerance(until) {
                return Err(format!("{} of line {} has not returned", call.name, event.line));
            }
            self.pending = Some(pending);
            return Ok(());
        }
        let off = now.abs_diff(until);
        if off > self.tolerance(Duration::ZERO).max(2 * STEP) {
            let name = &call.name;
            return Err(format!(
                "{name} of line {} returned at {now:?}, not {until:?}",
                event.line
            ));
        }
        self.compare_result(call, &result)
    }

    fn finish_pending(&mut self) -> Outcome {
        while self.pending.is_some() {
            self.try_pending()?;
            let step = self.backend.now() + STEP;
            self.backend.wait(step);
        }
        Ok(())
    }

    fn compare_result(&mut self, call: &SocketCall, result: &Result<i64, Errno>) -> Outcome {
        let makes = matches!(call.name.as_str(), "socket" | "accept");
        match (result, &call.errno) {
            (Ok(made), None) if makes && *made >= 0 => {
                self.sockets.insert(call.result, (*made, false));
                self.tested = Some(*made);
                Ok(())
            }
            (Ok(n), None) if *n == call.result => Ok(()),
            (Err(Errno(errno)), Some(wanted)) if errno == wanted => Ok(()),
            _ => {
                let wanted = call.errno.clone().unwrap_or_else(|| call.result.to_string());
                Err(format!("{} gave {result:?}, expected {wanted}", call.name))
            }
        }
    }

    /// Makes a call once. The outer error is the script's, the inner one the call's.
    fn make(&mut self, call: &SocketCall) -> Result<Result<i64, Errno>, String> {
        let number = |at: usize| match call.args.get(at) {
            Some(Arg::Int(n)) => Ok(*n),
            other => Err(format!("{}: argument {at} is {other:?}, not a number", call.name)),
        };
        let word = |at: usize| match call.args.get(at) {
            Some(Arg::Word(word)) => Ok(word.clone()),
            Some(Arg::Int(n)) => Ok(n.to_string()),
            other => Err(format!("{}: argument {at} is {other:?}, not a name", call.name)),
        };
        if call.name == "socket" {
            return Ok(self.backend.call(&Call::Socket));
        }
        if call.name == "poll" {
            return self.poll(call);
        }
        let script_fd = number(0)?;
        let Some(&(socket, _)) = self.sockets.get(&script_fd) else {
            return Ok(Err(Errno("EBADF".to_owned())));
        };
        let length = |at| number(at).map(|n| usize::try_from(n).unwrap_or(0));
        let made = match call.name.as_str() {
            "bind" => Call::Bind(socket, PORT),
            "listen" => Call::Listen(socket, number(1)?),
            "accept" => Call::Accept(socket),
            "connect" if self.connecting == Some(socket) => Call::Connected(socket),
            "connect" => Call::Connect(socket, PORT),
            "write" | "send" | "sendto" => Call::Write(socket, length(2)?),
            "read" => Call::Read(socket, length(2)?),
            "recv" if word(3)?.contains("MSG_PEEK") => Call::Peek(socket, length(2)?),
            "recv" | "recvfrom" => Call::Read(socket, length(2)?),
            "shutdown" => Call::Shutdown(socket, word(1)?),
            "close" => {
                self.sockets.remove(&script_fd);
                Call::Close(socket)
            }
            "fcntl" => return self.fcntl(script_fd, &word(1)?, call),
            "setsockopt" => Call::SetOption(socket, word(2)?, numbers(call.args.get(3))),
            _ => {
                let got = self.backend.call(&Call::Option(socket, word(2)?));
                let wanted = numbers(call.args.get(3));
                return match got {
                    Ok(n) if wanted.first() == Some(&n) => Ok(Ok(0)),
                    Ok(n) => Err(format!("{} is {n}, expected {wanted:?}", word(2)?)),
                    Err(errno) => Ok(Err(errno)),
                };
            }
        };
        let result = self.backend.call(&made);
        if matches!(made, Call::Connect(..)) {
            self.ends.remote.1 = PORT;
            // A socket that never waits is asked by its next call; one that may wait, by us.
            let waits = self.sockets.get(&script_fd).is_some_and(|(_, never)| !never);
            self.connecting = waits.then_some(socket);
        }
        Ok(result)
    }

    /// `poll([{fd=.., events=.., revents=..}], n, timeout)`: as many as have something.
    fn poll(&mut self, call: &SocketCall) -> Result<Result<i64, Errno>, String> {
        let (mut count, mut waits) = (0, call.result > 0);
        let Some(Arg::List(polled)) = call.args.first() else {
            return Err("poll: the first argument is no list".to_owned());
        };
        for one in polled {
            let Arg::List(parts) = one else { continue };
            let [Arg::Int(fd), events, wanted] = parts.as_slice() else {
                return Err("poll: a structure has fd, events and revents".to_owned());
            };
            let Some(&(socket, _)) = self.sockets.get(fd) else {
                return Ok(Err(Errno("EBADF".to_owned())));
            };
            let ready = match self.backend.call(&Call::Ready(socket)) {
                Ok(ready) => ready & (poll_bits(events)? | POLLERR | POLLHUP),
                Err(errno) => return Ok(Err(errno)),
            };
            waits &= ready == 0;
            count += i64::from(ready != 0);
            if ready != 0 && ready != poll_bits(wanted)? {
                return Err(format!("poll: fd {fd} is ready for {ready:#x}, expected {wanted:?}"));
            }
        }
        if waits { Ok(Err(Errno("EAGAIN".to_owned()))) } else { Ok(Ok(count)) }
    }

    fn fcntl(
        &mut self,
        fd: i64,
        what: &str,
        call: &SocketCall,
    ) -> Result<Result<i64, Errno>, String> {
        const O_RDWR: i64 = 2;
        const O_NONBLOCK: i64 = 0o4000;
        let Some((_, never_waits)) = self.sockets.get_mut(&fd) else {
            return Ok(Err(Errno("EBADF".to_owned())));
        };
        match (what, call.args.get(2)) {
            ("F_GETFL", _) => Ok(Ok(O_RDWR | if *never_waits { O_NONBLOCK } else { 0 })),
            ("F_SETFL", Some(Arg::Word(flags))) => {
                *never_waits = flags.contains("O_NONBLOCK");
                Ok(Ok(0))
            }
            _ => Err(format!("fcntl {what} is not supported")),
        }
    }
}

fn after(when: When) -> Duration {
    match when {
        When::After(gap) | When::At(gap) | When::Between(gap, _) => gap,
        When::Any => Duration::ZERO,
    }
}

const POLLERR: i64 = 8;
const POLLHUP: i64 = 16;

/// The bits that a script's words for `poll` name.
fn poll_bits(arg: &Arg) -> Result<i64, String> {
    let one = |word: &str| {
        let names = [
            ("POLLIN", 1),
            ("POLLPRI", 2),
            ("POLLOUT", 4),
            ("POLLERR", POLLERR),
            ("POLLHUP", POLLHUP),
            ("POLLRDHUP", 0x2000),
        ];
        let known = names.iter().find(|(name, _)| *name == word);
        known.map(|(_, bit)| *bit).ok_or_else(|| format!("poll: {word} is not known"))
    };
    match arg {
        Arg::Int(bits) => Ok(*bits),
        Arg::Word(words) => words.split('|').try_fold(0, |bits, word| Ok(bits | one(word)?)),
        _ => Err("poll: events are no number".to_owned()),
    }
}

fn numbers(arg: Option<&Arg>) -> Vec<i64> {
    let one = |arg: &Arg| match arg {
        Arg::Int(n) => Some(*n),
        _ => None,
    };
    match arg {
        Some(Arg::List(list)) => list.iter().filter_map(one).collect(),
        Some(arg) => one(arg).into_iter().collect(),
        None => Vec::new(),
    }
}

/// Compares what was sent with what a script wants.
fn compare(wanted: &Segment, sent: &Segment) -> Outcome {
    let kinds = |segment: &Segment| -> Vec<Opt> {
        // The values of timestamps are not compared: a script cannot know them.
        let bare = |option: &Opt| match option {
            Opt::Ts(..) => Opt::Ts(0, 0),
            other => other.clone(),
        };
        segment.options.iter().map(bare).collect()
    };
    let is_equal = wanted.flags == sent.flags
        && (wanted.start, wanted.len) == (sent.start, sent.len)
        && (!wanted.has(ACK) || wanted.ack.unwrap_or(0) == sent.ack.unwrap_or(0))
        && wanted.win.is_none_or(|win| sent.win == Some(win))
        && wanted.urgent == sent.urgent
        && wanted.ecn.is_none_or(|any| sent.class.is_some_and(|it| any >> (it & 3) & 1 == 1))
        && (wanted.ecn.is_some()
            || wanted.class.is_none_or(|it| Some(it & !3) == sent.class.map(|it| it & !3)))
        && (wanted.ttl.is_none() || wanted.ttl == sent.ttl)
        && (wanted.any_options || kinds(wanted) == kinds(sent));
    if is_equal {
        return Ok(());
    }
    Err(format!("sent {}, expected {}", show(sent), show(wanted)))
}

fn show(segment: &Segment) -> String {
    let letters = ['F', 'S', 'R', 'P', '.', 'U', 'E', 'W'];
    let flags: String = letters
        .iter()
        .enumerate()
        .filter(|(bit, _)| segment.flags >> bit & 1 == 1)
        .map(|(_, letter)| letter)
        .collect();
    let end = u64::from(segment.start) + u64::from(segment.len);
    let ack = segment.ack.map_or(String::new(), |ack| format!(" ack {ack}"));
    let win = segment.win.map_or(String::new(), |win| format!(" win {win}"));
    let options = if segment.any_options { " <...>".to_owned() } else { list(&segment.options) };
    format!("{flags} {}:{end}({}){ack}{win}{options}", segment.start, segment.len)
}

fn list(options: &[Opt]) -> String {
    if options.is_empty() { String::new() } else { format!(" {options:?}") }
}
