//! Bytes that go in and out: `read` and `write` and their relatives, and what waits (`SIOCINQ`).
//!
//! Part of the runner. Invariant: a flag that is not known, or that Floodwall's TCP has nothing
//! for, fails the script.

use super::calls::{WRITES, numbers};
use super::runner::{Call, Errno, Player};
use super::script::{Arg, SocketCall};

/// Flags of sending. `MSG_EOR` requests a boundary that TCP does not have.
/// `MSG_ZEROCOPY` allows a copy.
const SEND_FLAGS: &[&str] =
    &["0", "MSG_DONTWAIT", "MSG_NOSIGNAL", "MSG_EOR", "MSG_MORE", "MSG_ZEROCOPY"];
/// Flags of receiving. What `MSG_TRUNC` throws away is read here, and not looked at.
const RECV_FLAGS: &[&str] = &["0", "MSG_DONTWAIT", "MSG_NOSIGNAL", "MSG_PEEK", "MSG_TRUNC"];

type Made = Result<Result<i64, Errno>, String>;

impl Player<'_> {
    /// Moves bytes one way or the other.
    pub(super) fn transfer(&mut self, socket: i64, call: &SocketCall) -> Made {
        let name = call.name.as_str();
        let arg = |at: usize| call.args.get(at).ok_or(format!("{name}: an argument is missing"));
        let (bytes, is_null) = match name {
            "sendmsg" | "recvmsg" => buffers(name, arg(1)?.field("msg_iov"))?,
            "readv" | "writev" => buffers(name, Some(arg(1)?))?,
            // A file's bytes are those of all buffers: zeros.
            "sendfile" => (whole(name, arg(3)?)?, false),
            // To a pipe alone: what comes out of one would have to be kept.
            "splice" => match arg(2)? {
                Arg::Int(to) if self.files.contains(to) => (whole(name, arg(4)?)?, false),
                other => return Err(format!("splice to {other:?} is not supported")),
            },
            _ => {
                let is_null = matches!(arg(1)?, Arg::Word(word) if word == "NULL");
                (whole(name, arg(2)?)?, is_null)
            }
        };
        let flags = match name {
            "read" | "write" | "readv" | "writev" | "sendfile" | "splice" => String::new(),
            "sendmsg" | "recvmsg" => flags(name, arg(2)?)?,
            _ => flags(name, arg(3)?)?,
        };
        let is_write = WRITES.contains(&name);
        let known = if is_write { SEND_FLAGS } else { RECV_FLAGS };
        if let Some(flag) = flags.split('|').find(|flag| !flag.is_empty() && !known.contains(flag))
        {
            return Err(format!("{name}: {flag} is not supported"));
        }
        if is_null && bytes > 0 {
            return Ok(Err(Errno("EFAULT".to_owned())));
        }
        let made = match (is_write, flags.contains("MSG_PEEK")) {
            (true, _) if flags.contains("MSG_MORE") => Call::WriteMore(socket, bytes),
            (true, _) => Call::Write(socket, bytes),
            (false, true) => Call::Peek(socket, bytes),
            (false, false) => Call::Read(socket, bytes),
        };
        let result = self.backend.call(&made);
        if let (Ok(taken), true) = (&result, is_write) {
            self.written = self.written.wrapping_add(u32::try_from(*taken).unwrap_or(0));
        }
        if name == "recvmsg" && result.is_ok() {
            self.compare_message(socket, arg(1)?)?;
        }
        Ok(result)
    }

    /// What comes with a message: no flags, and where it was requested, how much waits behind it.
    fn compare_message(&mut self, socket: i64, wanted: &Arg) -> Result<(), String> {
        if numbers(wanted.field("msg_flags")).first().is_some_and(|flags| *flags != 0) {
            return Err("recvmsg: msg_flags are 0".to_owned());
        }
        let control = match wanted.field("msg_control") {
            Some(Arg::List(control)) => control.as_slice(),
            None => &[],
            Some(_) => return Err("recvmsg: msg_control is no list".to_owned()),
        };
        if !self.tell_waiting.contains(&socket) {
            return match control {
                [] => Ok(()),
                _ => Err("recvmsg: no control message came".to_owned()),
            };
        }
        let is_it = |one: &Arg| {
            let is = |name, wanted: &[&str]| match one.field(name) {
                Some(Arg::Word(word)) => wanted.contains(&word.as_str()),
                _ => false,
            };
            is("cmsg_level", &["SOL_TCP", "IPPROTO_TCP"]) && is("cmsg_type", &["TCP_CM_INQ"])
        };
        let [one] = control else { return Err("recvmsg: one control message came".to_owned()) };
        if !is_it(one) {
            return Err(format!("recvmsg: TCP_CM_INQ came, expected {one:?}"));
        }
        let waits = self.backend.call(&Call::Waiting(socket)).unwrap_or(0);
        // The end of the stream counts as something to read.
        let ready = self.backend.call(&Call::Ready(socket)).unwrap_or(0);
        let waits = if waits == 0 && ready & 0x2000 != 0 { 1 } else { waits };
        match numbers(one.field("cmsg_data")).first() {
            Some(wanted) if *wanted == waits => Ok(()),
            wanted => Err(format!("recvmsg: TCP_CM_INQ is {waits}, expected {wanted:?}")),
        }
    }

    /// `ioctl(fd, SIOCINQ, [n])`.
    pub(super) fn ioctl(&mut self, socket: i64, call: &SocketCall) -> Made {
        match call.args.get(1) {
            Some(Arg::Word(word)) if word == "SIOCINQ" || word == "FIONREAD" => {}
            other => return Err(format!("ioctl: {other:?} is not supported")),
        }
        let waits = match self.backend.call(&Call::Waiting(socket)) {
            Ok(waits) => waits,
            Err(errno) => return Ok(Err(errno)),
        };
        match numbers(call.args.get(2)).first() {
            Some(wanted) if *wanted == waits => Ok(Ok(0)),
            wanted => Err(format!("ioctl: {waits} bytes wait, expected {wanted:?}")),
        }
    }

    /// `getsockopt(fd, level, name, [value], [length])`.
    pub(super) fn get_option(&mut self, socket: i64, name: &str, call: &SocketCall) -> Made {
        let got = match self.backend.call(&Call::Option(socket, name.to_owned())) {
            Ok(got) => got,
            Err(errno) => return Ok(Err(errno)),
        };
        let wanted = numbers(call.args.get(3));
        match numbers(call.args.get(4)).first() {
            Some(4) => {}
            Some(other) => return Err(format!("{name} has 4 bytes, expected {other}")),
            None => return Err(format!("{name}: the length is missing")),
        }
        // `[-1]` and `[0xffffffff]` are the same four bytes.
        if wanted.first().is_some_and(|wanted| wanted & 0xffff_ffff == got & 0xffff_ffff) {
            return Ok(Ok(0));
        }
        Err(format!("{name} is {got}, expected {wanted:?}"))
    }
}

/// The bytes of a list of buffers, and whether one of them is nowhere.
fn buffers(name: &str, list: Option<&Arg>) -> Result<(usize, bool), String> {
    let Some(Arg::List(list)) = list else { return Err(format!("{name}: no list of buffers")) };
    let (mut bytes, mut is_null) = (0, false);
    for one in list {
        match one {
            Arg::Struct(fields) => match fields.as_slice() {
                [(_, place), (_, len)] => {
                    bytes += whole(name, len)?;
                    is_null |= matches!(place, Arg::Word(word) if word == "NULL");
                }
                _ => return Err(format!("{name}: a buffer is {{..., length}}")),
            },
            _ => return Err(format!("{name}: a buffer is {{..., length}}")),
        }
    }
    Ok((bytes, is_null))
}

fn whole(name: &str, arg: &Arg) -> Result<usize, String> {
    match arg {
        Arg::Int(n) => Ok(usize::try_from(*n).unwrap_or(0)),
        other => Err(format!("{name}: {other:?} is no length")),
    }
}

fn flags(name: &str, arg: &Arg) -> Result<String, String> {
    match arg {
        Arg::Int(0) => Ok(String::new()),
        Arg::Word(word) => Ok(word.clone()),
        other => Err(format!("{name}: {other:?} are no flags")),
    }
}
