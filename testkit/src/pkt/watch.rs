//! `epoll`: descriptors that are watched together.
//!
//! Part of the runner, on top of the readiness that the back end reports for each socket. Edges are
//! looked for after each event of the script.

use super::calls::poll_bits;
use super::runner::{Call, Errno, Player};
use super::script::{Arg, SocketCall};

/// `EPOLLET`.
pub(super) const EDGE: i64 = 1 << 31;
/// `EPOLLONESHOT`.
pub(super) const ONCE: i64 = 1 << 30;
/// What is always reported: `EPOLLERR` and `EPOLLHUP`.
const ALWAYS: i64 = 8 | 16;
/// `EPOLLERR`.
const ERROR: i64 = 8;
/// What Linux reports where only its error queue has something: `EPOLLERR` and `EPOLLOUT`.
const ERROR_QUEUE: i64 = ERROR | 4;

/// A socket that is watched.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    fd: i64,
    events: i64,
    /// The user data that is returned with it.
    data: (String, Arg),
    /// What it was ready for when it was looked at last, and how many bytes waited.
    last: (i64, i64),
    /// It became ready since it was last reported.
    fresh: bool,
}

type Made = Result<Result<i64, Errno>, String>;

impl Player<'_> {
    /// `epoll_ctl(epoll, what, fd, {events=, fd=})`.
    pub(super) fn watch(&mut self, call: &SocketCall) -> Made {
        let [Arg::Int(epoll), Arg::Word(what), Arg::Int(fd), event] = call.args.as_slice() else {
            return Err("epoll_ctl: (epoll, what, fd, event)".to_owned());
        };
        let errno = |name: &str| Ok(Err(Errno(name.to_owned())));
        let Some(watches) = self.epolls.get_mut(epoll) else { return errno("EBADF") };
        let at = watches.iter().position(|watch| watch.fd == *fd);
        match (what.as_str(), at) {
            ("EPOLL_CTL_DEL", Some(at)) => {
                watches.remove(at);
                return Ok(Ok(0));
            }
            ("EPOLL_CTL_ADD", None) | ("EPOLL_CTL_MOD", Some(_)) => {}
            ("EPOLL_CTL_ADD", Some(_)) => return errno("EEXIST"),
            ("EPOLL_CTL_MOD" | "EPOLL_CTL_DEL", None) => return errno("ENOENT"),
            _ => return Err(format!("epoll_ctl: {what} is not supported")),
        }
        let events = poll_bits(event.field("events").ok_or("epoll_ctl: events are missing")?)?;
        let watch = Watch { fd: *fd, events, data: data(event)?, last: (0, 0), fresh: false };
        match at {
            Some(at) => watches[at] = watch,
            None => watches.push(watch),
        }
        self.look_at_watches();
        Ok(Ok(0))
    }

    /// Notes which sockets have become ready.
    pub(super) fn look_at_watches(&mut self) {
        for watch in self.epolls.values_mut().flatten() {
            let Some(&(socket, _)) = self.sockets.get(&watch.fd) else { continue };
            let ready = self.backend.call(&Call::Ready(socket)).unwrap_or(0);
            let waits = self.backend.call(&Call::Waiting(socket)).unwrap_or(0);
            let ready = ready & (watch.events | ALWAYS);
            watch.fresh |= ready & !watch.last.0 != 0 || waits > watch.last.1 && ready & 1 != 0;
            watch.last = (ready, waits);
        }
    }

    /// `epoll_wait(epoll, {events=, fd=}, most, timeout)`: the first event is compared.
    pub(super) fn watched(&mut self, call: &SocketCall) -> Made {
        self.look_at_watches();
        let [Arg::Int(epoll), wanted, Arg::Int(most), Arg::Int(timeout)] = call.args.as_slice()
        else {
            return Err("epoll_wait: (epoll, event, most, timeout)".to_owned());
        };
        let Some(watches) = self.epolls.get_mut(epoll) else {
            return Ok(Err(Errno("EBADF".to_owned())));
        };
        let is_told =
            |watch: &&mut Watch| watch.last.0 != 0 && (watch.events & EDGE == 0 || watch.fresh);
        let most = usize::try_from(*most).unwrap_or(0);
        let told: Vec<_> = watches.iter_mut().filter(is_told).take(most).collect();
        if told.is_empty() && *timeout != 0 && call.result > 0 {
            return Ok(Err(Errno("EAGAIN".to_owned())));
        }
        let count = i64::try_from(told.len()).unwrap_or(i64::MAX);
        let mut first = None;
        for watch in told {
            first.get_or_insert((watch.last.0, watch.data.clone()));
            watch.fresh = false;
            if watch.events & ONCE != 0 {
                watch.events = 0;
            }
        }
        let events = poll_bits(wanted.field("events").ok_or("epoll_wait: events are missing")?)?;
        match first {
            None if events == 0 => {}
            // An error of the connection would come with the end of both directions.
            _ if events == ERROR_QUEUE && first.as_ref().is_none_or(|it| it.0 & ERROR == 0) => {
                return Err("epoll_wait: the error queue of MSG_ZEROCOPY is not supported".into());
            }
            None => return Err(format!("epoll_wait: nothing is ready, expected {wanted:?}")),
            Some((ready, told)) if ready == events && told == data(wanted)? => {}
            Some(told) => return Err(format!("epoll_wait: {told:?}, expected {wanted:?}")),
        }
        Ok(Ok(count))
    }
}

/// What an event carries beside its bits.
fn data(event: &Arg) -> Result<(String, Arg), String> {
    let known = ["fd", "ptr", "u32", "u64"];
    let found =
        known.iter().find_map(|name| Some(((*name).to_owned(), event.field(name)?.clone())));
    found.ok_or_else(|| "epoll: an event has fd, ptr, u32 or u64".to_owned())
}
