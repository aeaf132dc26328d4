//! Connections that stay open although this process has no descriptor of them, for attacks of more
//! connections than one process may have open files: they are in flight between two sockets of its
//! own (`SCM_RIGHTS`), and are closed with those.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Descriptors of one message: fewer than the system takes.
const EACH: usize = 200;

/// Where connections wait that are only to be open.
pub(super) struct Parked {
    /// Both ends: a message that is not read stays in flight.
    ends: (UnixStream, UnixStream),
    /// Those that are not in flight.
    here: Vec<TcpStream>,
    away: usize,
}

impl Parked {
    pub(super) fn new() -> Self {
        let ends = UnixStream::pair().unwrap();
        ends.0.set_nonblocking(true).unwrap();
        Self { ends, here: Vec::with_capacity(EACH), away: 0 }
    }

    /// Takes one. Where the system takes no more of them in flight it stays here, with its
    /// descriptor.
    pub(super) fn push(&mut self, stream: TcpStream) {
        self.here.push(stream);
        if self.here.len().is_multiple_of(EACH) && self.send() {
            self.away += self.here.len();
            self.here.clear();
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.away + self.here.len()
    }

    /// Whether the next message is in flight.
    fn send(&self) -> bool {
        let rights: Vec<_> = self.here.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(EACH))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&rights))
            && sendmsg(&self.ends.0, &[IoSlice::new(b"p")], &mut control, SendFlags::empty())
                .is_ok()
    }
}
