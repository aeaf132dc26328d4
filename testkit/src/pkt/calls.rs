//! Calls of sockets: what a script calls and what must come back.
//!
//! Part of the runner. Invariants: a call is made as often as it must, none ever waits inside of
//! the back end; a flag, an option or a form that is not known fails the script.

use std::time::Duration;

use super::profile::Profile;
use super::runner::{Call, Errno, Outcome, Pending, Player, STEP};
use super::script::{Arg, Event, SocketCall, When};
use super::watch::{EDGE, ONCE};

/// The calls that a script may make.
pub(super) const CALLS: &[&str] = &[
    "socket",
    "bind",
    "listen",
    "accept",
    "connect",
    "read",
    "readv",
    "write",
    "writev",
    "recv",
    "recvfrom",
    "recvmsg",
    "send",
    "sendto",
    "sendmsg",
    "close",
    "shutdown",
    "fcntl",
    "ioctl",
    "setsockopt",
    "getsockopt",
    "poll",
    "epoll_create",
    "epoll_ctl",
    "epoll_wait",
    "open",
    "sendfile",
    "pipe",
    "splice",
];
/// Those that give bytes to the TCP.
pub(super) const WRITES: &[&str] = &["write", "writev", "send", "sendto", "sendmsg", "sendfile"];

impl<'a> Player<'a> {
    pub(super) fn call(
        &mut self,
        event: &'a Event,
        call: &'a SocketCall,
        due: Duration,
    ) -> Outcome {
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
        let says_so = |arg: &Arg| matches!(arg, Arg::Word(it) if it.contains("MSG_DONTWAIT"));
        if call.args.iter().any(says_so) {
            return false;
        }
        let never_waits = match call.args.first() {
            Some(Arg::Int(fd)) => self.sockets.get(fd).is_some_and(|(_, never)| *never),
            _ => false,
        };
        !never_waits && matches!(errno.as_str(), "EAGAIN" | "EINPROGRESS" | "EALREADY")
    }

    pub(super) fn try_pending(&mut self) -> Outcome {
        let Some(mut pending) = self.pending.take() else {
            return Ok(());
        };
        let now = self.backend.now();
        let (event, call, until) = (pending.event, pending.call, pending.until);
        let mut result = self.make(call)?;
        let is_write = WRITES.contains(&call.name.as_str());
        if let (Ok(written), true) = (&result, is_write) {
            pending.done += written;
            result = Ok(pending.done);
        }
        let is_partial = is_write && pending.done < call.result;
        // A call that expects nothing waits until the timeout.
        let is_asleep = matches!(call.name.as_str(), "poll" | "epoll_wait")
            && result == Ok(0)
            && call.result == 0
            && now < until;
        let is_partial = is_partial || is_asleep;
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

    pub(super) fn finish_pending(&mut self) -> Outcome {
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
                let is_said =
                    |arg: &Arg| matches!(arg, Arg::Word(it) if it.contains("SOCK_NONBLOCK"));
                self.sockets.insert(call.result, (*made, call.args.iter().any(is_said)));
                self.tested = Some(*made);
                if call.name == "socket" {
                    self.begin_connection();
                }
                Ok(())
            }
            (Ok(_), None) if call.name == "epoll_create" => {
                self.epolls.insert(call.result, Vec::new());
                Ok(())
            }
            (Ok(_), None) if call.name == "open" => {
                self.files.insert(call.result);
                Ok(())
            }
            (Ok(n), None) if *n == call.result => Ok(()),
            (Err(Errno(errno)), Some(wanted)) if is_same_errno(errno, wanted) => Ok(()),
            (Err(_), None) if call.result < 0 => Ok(()),
            // The back end lacks what the script needs, and says what.
            (Err(Errno(errno)), None) if errno.contains(": ") => {
                let why = errno.split_once(": ").map_or("", |(_, why)| why);
                Err(format!("{}: {why}", call.name))
            }
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
            return match word(1)?.split('|').next() {
                Some("SOCK_STREAM") => Ok(self.backend.call(&Call::Socket)),
                other => Err(format!("socket: {other:?} is not supported, only SOCK_STREAM")),
            };
        }
        match call.name.as_str() {
            "poll" => return self.poll(call),
            "epoll_create" | "open" => return Ok(Ok(0)),
            "pipe" => return Ok(Ok(self.pipe(call))),
            "epoll_ctl" => return self.watch(call),
            "epoll_wait" => return self.watched(call),
            "close" if self.epolls.remove(&number(0)?).is_some() => return Ok(Ok(0)),
            "close" if self.files.remove(&number(0)?) => return Ok(Ok(0)),
            "sendfile" if !self.files.contains(&number(1)?) => {
                return Err(format!("sendfile: {} is no file of this script", number(1)?));
            }
            _ => {}
        }
        let script_fd = number(0)?;
        let Some(&(socket, _)) = self.sockets.get(&script_fd) else {
            return Ok(Err(Errno("EBADF".to_owned())));
        };
        let made = match call.name.as_str() {
            "bind" => Call::Bind(socket, self.script.ports.0),
            "listen" => Call::Listen(socket, number(1)?),
            "accept" => Call::Accept(socket),
            "connect" if names_nothing(call) => {
                self.connecting = self.connecting.filter(|it| *it != socket);
                Call::Disconnect(socket)
            }
            "connect" if self.connecting == Some(socket) => Call::Connected(socket),
            "connect" => Call::Connect(socket, self.script.ports.1),
            "write" | "send" | "sendto" | "writev" | "sendmsg" | "sendfile" | "read" | "recv"
            | "recvfrom" | "readv" | "recvmsg" | "splice" => return self.transfer(socket, call),
            "ioctl" => return self.ioctl(socket, call),
            "shutdown" => Call::Shutdown(socket, word(1)?),
            "close" => {
                self.sockets.remove(&script_fd);
                Call::Close(socket)
            }
            "fcntl" => return self.fcntl(script_fd, &word(1)?, call),
            "setsockopt" if word(2)? == "TCP_INQ" => {
                self.tell_waiting(socket, call.args.get(3));
                return Ok(Ok(0));
            }
            "setsockopt" => match call.args.get(3) {
                Some(Arg::Text(value)) => Call::SetText(socket, word(2)?, value.clone()),
                value => Call::SetOption(socket, word(2)?, known_numbers(value)?),
            },
            _ => return self.get_option(socket, &word(2)?, call),
        };
        let result = self.backend.call(&made);
        if matches!(made, Call::Connect(..)) {
            self.ends.remote.1 = self.script.ports.1;
            // A socket that never waits is polled by its next call; one that may wait, by us.
            let waits = self.sockets.get(&script_fd).is_some_and(|(_, never)| !never);
            self.connecting = waits.then_some(socket);
        }
        Ok(result)
    }

    /// `pipe([one end, the other])`: both are files without content.
    fn pipe(&mut self, call: &SocketCall) -> i64 {
        self.files.extend(numbers(call.args.first()));
        0
    }

    /// Whether messages say how much waits behind them (`TCP_INQ`).
    fn tell_waiting(&mut self, socket: i64, value: Option<&Arg>) {
        if numbers(value).first().is_some_and(|value| *value != 0) {
            self.tell_waiting.insert(socket);
        } else {
            self.tell_waiting.remove(&socket);
        }
    }

    /// `poll([{fd=.., events=.., revents=..}], n, timeout)`: as many as have something.
    fn poll(&mut self, call: &SocketCall) -> Result<Result<i64, Errno>, String> {
        let (mut count, mut waits) = (0, call.result > 0);
        let Some(Arg::List(polled)) = call.args.first() else {
            return Err("poll: the first argument is no list".to_owned());
        };
        for one in polled {
            let fields = (one.field("fd"), one.field("events"), one.field("revents"));
            let (Some(Arg::Int(fd)), Some(events), Some(wanted)) = fields else {
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
        let o_nonblock = if self.backend.profile() == Profile::FreeBsd { 4 } else { 0o4000 };
        let Some((_, never_waits)) = self.sockets.get_mut(&fd) else {
            return Ok(Err(Errno("EBADF".to_owned())));
        };
        match (what, call.args.get(2)) {
            ("F_GETFL", _) => Ok(Ok(O_RDWR | if *never_waits { o_nonblock } else { 0 })),
            ("F_SETFL", Some(Arg::Word(flags))) => {
                *never_waits = flags.contains("O_NONBLOCK");
                Ok(Ok(0))
            }
            _ => Err(format!("fcntl {what} is not supported")),
        }
    }
}

/// `connect(fd, AF_UNSPEC, ...)`.
fn names_nothing(call: &SocketCall) -> bool {
    matches!(call.args.get(1), Some(Arg::Word(word)) if word == "AF_UNSPEC")
}

fn after(when: When) -> Duration {
    match when {
        When::After(gap) | When::At(gap) | When::Between(gap, _) => gap,
        When::BetweenTimes(at, _) => at,
        When::Any => Duration::ZERO,
    }
}

const POLLERR: i64 = 8;
const POLLHUP: i64 = 16;

/// The bits that a script's words for `poll` name.
pub(super) fn poll_bits(arg: &Arg) -> Result<i64, String> {
    let one = |word: &str| {
        let word = word.strip_prefix('E').unwrap_or(word);
        let names = [
            ("POLLIN", 1),
            ("POLLPRI", 2),
            ("POLLOUT", 4),
            ("POLLERR", POLLERR),
            ("POLLHUP", POLLHUP),
            ("POLLRDNORM", 0x40),
            ("POLLWRNORM", 0x100),
            ("POLLRDHUP", 0x2000),
            ("POLLEXCLUSIVE", 1 << 28),
            ("POLLONESHOT", ONCE),
            ("POLLET", EDGE),
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

pub(super) fn numbers(arg: Option<&Arg>) -> Vec<i64> {
    let one = |arg: &Arg| match arg {
        Arg::Int(n) => Some(*n),
        Arg::Word(name) => number_of(name),
        _ => None,
    };
    match arg {
        Some(Arg::List(list)) => list.iter().filter_map(one).collect(),
        Some(Arg::Struct(fields)) => fields.iter().filter_map(|(_, arg)| one(arg)).collect(),
        Some(arg) => one(arg).into_iter().collect(),
        None => Vec::new(),
    }
}

/// The numbers of an option's value, each word of which must stand for one.
fn known_numbers(arg: Option<&Arg>) -> Result<Vec<i64>, String> {
    if let Some(Arg::List(list)) = arg {
        for arg in list {
            if let Arg::Word(name) = arg
                && number_of(name).is_none()
            {
                return Err(format!("setsockopt: the value {name} is not supported"));
            }
        }
    }
    Ok(numbers(arg))
}

/// One errno may have two names.
fn is_same_errno(a: &str, b: &str) -> bool {
    let one =
        |name: &str| if name == "EWOULDBLOCK" { "EAGAIN".to_owned() } else { name.to_owned() };
    one(a) == one(b)
}

/// The number that a word stands for: an errno, as Linux counts them, or an option's value.
pub(super) fn number_of(name: &str) -> Option<i64> {
    Some(match name {
        "EPIPE" => 32,
        "EADDRINUSE" => 98,
        "ENETUNREACH" => 101,
        "ECONNABORTED" => 103,
        "ECONNRESET" => 104,
        "ENOTCONN" => 107,
        "ETIMEDOUT" => 110,
        "ECONNREFUSED" => 111,
        "EHOSTUNREACH" => 113,
        "NULL" | "IP_PMTUDISC_DONT" | "IPTOS_DSCP_CS0" => 0,
        "IP_PMTUDISC_WANT" => 1,
        "IP_PMTUDISC_DO" => 2,
        "IP_PMTUDISC_PROBE" => 3,
        "IPTOS_DSCP_CS1" => 0x20,
        "IPTOS_DSCP_CS2" => 0x40,
        "IPTOS_DSCP_CS3" => 0x60,
        "IPTOS_DSCP_CS4" => 0x80,
        "IPTOS_DSCP_CS5" => 0xa0,
        "IPTOS_DSCP_CS6" => 0xc0,
        "IPTOS_DSCP_CS7" => 0xe0,
        "IPTOS_DSCP_EF" => 0xb8,
        _ => return None,
    })
}
