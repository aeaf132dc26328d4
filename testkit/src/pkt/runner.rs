//! Plays a script against a back end.
//!
//! Sequence numbers of a script are relative to the connection's first ones: the peer's are used as
//! written, ours are learnt from the first SYN that is seen. Timestamps are learnt likewise.
//! Invariant: what a script does not state is not compared; what it states is compared exactly,
//! times within the tolerance. A call without `...` must return at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use super::profile::Profile;
use super::script::{ACK, ANY_STAMP, Event, Opt, SYN, Script, Segment, SocketCall, What, When};
use super::segment::{Ends, decode, encode};
use super::watch::Watch;

/// The port of a script's client.
const CLIENT_PORT: u16 = 49_152;
/// How far a time may be off.
const TOLERANCE: Duration = Duration::from_millis(4);
/// How often a call that lasts is tried.
pub(super) const STEP: Duration = Duration::from_millis(1);
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
    /// To no address (`AF_UNSPEC`): the connection ends at once, and the socket begins anew.
    Disconnect(i64),
    /// Whether a connection that was begun is there: 0, `EINPROGRESS`, or how it failed.
    Connected(i64),
    /// So many zero bytes; returns how many were taken, or `EAGAIN`.
    Write(i64, usize),
    /// The same, and more is to come (`MSG_MORE`).
    WriteMore(i64, usize),
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
    /// Sets what a string names.
    SetText(i64, String, String),
    /// Returns a whole number.
    Option(i64, String),
    /// The events that `poll` reports now.
    Ready(i64),
    /// How many bytes wait to be read.
    Waiting(i64),
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
    /// How long a packet that may come at any time (`*`) is waited for.
    fn patience(&self) -> Duration;
    /// Gives the TCP under test a packet.
    ///
    /// # Errors
    /// The device's error.
    fn inject(&mut self, packet: &[u8]) -> Result<(), String>;
    /// Makes a call.
    ///
    /// # Errors
    /// The call's own.
    fn call(&mut self, call: &Call) -> Result<i64, Errno>;
    /// The particulars of a connection, by the names of `TCP_INFO`.
    ///
    /// # Errors
    /// This back end does not report it, or there is no connection.
    fn fields(&mut self, _socket: i64) -> Result<BTreeMap<String, i64>, String> {
        Err("this back end reports no details of a connection".to_owned())
    }
    /// Carries out a script's command (a system setting).
    ///
    /// # Errors
    /// It is not known here, or failed.
    fn command(&mut self, command: &str) -> Result<(), String>;
    /// The profile that sent segments are compared with.
    fn profile(&self) -> Profile {
        Profile::Own
    }
}

/// Why a script did not pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The line of the event; 0 for the script as a whole.
    pub line: usize,
    /// What was expected and what came.
    pub what: String,
}

impl Failure {
    /// Whether the script asks for what this player or this back end does not have, so that it says
    /// nothing about the TCP under test.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        let marks = ["not supported", "means nothing to", " alone"];
        marks.iter().any(|mark| self.what.contains(mark))
    }
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
pub(super) struct Pending<'a> {
    pub(super) event: &'a Event,
    pub(super) call: &'a SocketCall,
    /// When it must return.
    pub(super) until: Duration,
    /// Bytes written so far.
    pub(super) done: i64,
}

pub(super) struct Player<'a> {
    pub(super) script: &'a Script,
    pub(super) backend: &'a mut dyn Backend,
    pub(super) ends: Ends,
    /// Script's descriptors: the back end's sockets, and whether they never wait.
    pub(super) sockets: BTreeMap<i64, (i64, bool)>,
    /// Script's descriptors of `epoll`.
    pub(super) epolls: BTreeMap<i64, Vec<Watch>>,
    /// Script's descriptors of files.
    pub(super) files: BTreeSet<i64>,
    /// The back end's sockets that say with each message how much waits behind it.
    pub(super) tell_waiting: BTreeSet<i64>,
    /// Bytes that programs have written.
    pub(super) written: u32,
    /// Our first sequence number as it is, and as in the script; the peer's.
    local_isn: Option<(u32, u32)>,
    remote_isn: Option<u32>,
    /// Where a SYN began that came at another place: it may open the same ends anew.
    anew: Option<u32>,
    /// Our timestamps: the script's, and as they are.
    stamps: BTreeMap<u32, u32>,
    /// The first of them.
    first_stamp: Option<(u32, u32)>,
    /// Our latest timestamp of a segment without options in the script.
    unsaid_stamp: Option<u32>,
    /// Connections before this one.
    clients: u16,
    seen: VecDeque<(Duration, Vec<u8>)>,
    /// When the event before was done.
    base: Duration,
    pub(super) pending: Option<Pending<'a>>,
    /// A connect that lasts is under way on this socket.
    pub(super) connecting: Option<i64>,
    /// The socket of the connection under test.
    pub(super) tested: Option<i64>,
    /// What code blocks have assigned.
    names: BTreeMap<String, i64>,
}

pub(super) type Outcome = Result<(), String>;

impl<'a> Player<'a> {
    fn new(script: &'a Script, backend: &'a mut dyn Backend) -> Self {
        let (local, remote) = backend.addresses();
        Self {
            script,
            backend,
            ends: Ends { local: (local, script.ports.0), remote: (remote, CLIENT_PORT) },
            sockets: BTreeMap::new(),
            epolls: BTreeMap::new(),
            files: BTreeSet::new(),
            tell_waiting: BTreeSet::new(),
            written: 0,
            local_isn: None,
            remote_isn: None,
            anew: None,
            stamps: BTreeMap::new(),
            first_stamp: None,
            unsaid_stamp: None,
            clients: 0,
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
            let outcome = self.event(event).or_else(|what| self.forgive(event, what));
            self.look_at_watches();
            outcome.map_err(|what| Failure { line: event.line, what })?;
        }
        let line = self.pending.as_ref().map_or(0, |pending| pending.event.line);
        self.finish_pending().map_err(|what| Failure { line, what })
    }

    /// Fails, unless the script allows such an event to fail.
    fn forgive(&mut self, event: &Event, what: String) -> Outcome {
        let kind = match event.what {
            What::Inbound(_) | What::Outbound(_) | What::Icmp(_) => "packet",
            What::Call(_) => "syscall",
            What::Command(_) | What::Code(_) => "",
        };
        if !self.script.non_fatal.iter().any(|it| it == kind) {
            return Err(what);
        }
        println!("line {}: {what} (not fatal by the script)", event.line);
        self.base = self.backend.now();
        Ok(())
    }

    /// Plays one event.
    fn event(&mut self, event: &'a Event) -> Outcome {
        let due = match event.when {
            When::At(at) | When::BetweenTimes(at, _) => at,
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

    pub(super) fn tolerance(&self, gap: Duration) -> Duration {
        let part = gap.mul_f64(self.script.tolerance_part);
        self.script.tolerance.unwrap_or(TOLERANCE).max(part)
    }

    // Segments.

    /// A new socket's connection is the one under test: nothing is known of it, and it is between
    /// other ports than the one before.
    pub(super) fn begin_connection(&mut self) {
        if self.local_isn.is_none() && self.remote_isn.is_none() {
            return;
        }
        (self.local_isn, self.remote_isn, self.written) = (None, None, 0);
        (self.first_stamp, self.unsaid_stamp) = (None, None);
        self.stamps.clear();
        self.clients = self.clients.wrapping_add(1);
        self.ends.local.1 = self.script.ports.0;
        self.ends.remote.1 = CLIENT_PORT.wrapping_add(self.clients);
    }

    fn inbound(&mut self, written: &Segment) -> Outcome {
        let mut segment = written.clone();
        let (live, script) = self.local_isn.unwrap_or_default();
        if written.has(SYN) {
            // A second SYN is of the same connection, unless its place shows otherwise, and is
            // answered as such.
            let first = *self.remote_isn.get_or_insert(written.start);
            self.anew = Some(written.start).filter(|start| *start != first);
        } else if !written.raw_start {
            // Without a SYN there is no first number to count from.
            segment.start = written.start.wrapping_add(self.remote_isn.unwrap_or(0));
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
                    let scaled = self.first_stamp.filter(|_| self.script.scaled_echoes);
                    let scaled =
                        scaled.map(|(script, live)| echo.wrapping_sub(script).wrapping_add(live));
                    // Where a script left our options open, it cannot say our value either.
                    let known = scaled.or_else(|| self.stamps.get(echo).copied());
                    let Some(sent) = known.or(self.unsaid_stamp) else {
                        return Err(format!("ecr {echo} was never sent"));
                    };
                    *echo = sent;
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
            When::Any => self.backend.now() + self.backend.patience(),
            When::Between(_, latest) => self.base + latest + tolerance,
            When::BetweenTimes(_, latest) => latest + tolerance,
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
        self.learn(wanted, &segment, at)?;
        let mut relative = self.relative(&segment, wanted.raw_start);
        let mss = if self.ends.local.0.is_ipv6() { 1440 } else { 1460 };
        let written = self.written.wrapping_add(1);
        self.backend.profile().translate(wanted, &mut relative, written, mss);
        compare(wanted, &relative)?;
        let is_early = event.when != When::Any && at + tolerance < due;
        let is_early = is_early && !self.backend.profile().forgives_early(&relative, due - at);
        if is_early || at > latest {
            return Err(format!("sent at {at:?}; expected at {due:?} ± {tolerance:?}"));
        }
        self.base = at;
        Ok(())
    }

    /// Learns our first sequence number and our timestamps.
    fn learn(&mut self, wanted: &Segment, live: &Segment, at: Duration) -> Outcome {
        if live.has(SYN) && wanted.has(SYN) {
            let opens = |syn: &u32| live.has(ACK) && live.ack == Some(syn.wrapping_add(1));
            if let Some(syn) = self.anew.filter(opens) {
                (self.remote_isn, self.anew, self.local_isn) = (Some(syn), None, None);
                (self.first_stamp, self.unsaid_stamp) = (None, None);
            }
            self.local_isn.get_or_insert((live.start, wanted.start));
        }
        let stamp = |segment: &Segment| {
            segment.options.iter().find_map(|option| match option {
                Opt::Ts(value, _) => Some(*value),
                _ => None,
            })
        };
        let said = stamp(wanted).filter(|value| *value != ANY_STAMP);
        if wanted.any_options || said.is_none() && stamp(wanted).is_some() {
            self.unsaid_stamp = stamp(live).or(self.unsaid_stamp);
        }
        if let (Some(script), Some(sent)) = (said, stamp(live)) {
            self.stamps.insert(script, sent);
            let (first, first_sent) = *self.first_stamp.get_or_insert((script, sent));
            let ticks = script.wrapping_sub(first).abs_diff(sent.wrapping_sub(first_sent));
            let off = Duration::from_micros(u64::from(ticks) * u64::from(self.script.tick));
            if off > self.tolerance(at) {
                return Err(format!("the timestamp is {ticks} ticks off, expected {script}"));
            }
        }
        Ok(())
    }

    /// A live segment in the script's numbers.
    fn relative(&self, live: &Segment, raw_start: bool) -> Segment {
        let (isn, script) = self.local_isn.unwrap_or_default();
        let mut segment = live.clone();
        let from = if live.has(SYN) { script } else { 0 };
        if !raw_start {
            segment.start = live.start.wrapping_sub(isn).wrapping_add(from);
        }
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
        && (wanted.any_start || wanted.start == sent.start)
        && wanted.len == sent.len
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
    let header = |segment: &Segment| match (wanted.class, wanted.ttl) {
        (None, None) => String::new(),
        _ => format!(" (class {:?}, ttl {:?})", segment.class, segment.ttl),
    };
    let (seen, asked) = (header(sent), header(wanted));
    Err(format!("sent {}{seen}, expected {}{asked}", show(sent), show(wanted)))
}

pub(super) fn show(segment: &Segment) -> String {
    let letters = ['F', 'S', 'R', 'P', '.', 'U', 'E', 'W', 'A', '?', '?', '?'];
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
