//! `Netlink`: one question to the kernel over a netlink socket, and its answers.
//!
//! Called by `napi.rs` (the generic family `netdev`), `link.rs` and `super_limits.rs` (rtnetlink,
//! [`link_named`]). Written by hand, because it is shorter than the glue to a crate: a request is
//! built in a vector, and every length in a reply is checked. Not used on the packet path.
//!
//! Invariants: the socket belongs to the network namespace of the thread that opened it; a call
//! waits for [`KERNEL_PATIENCE`] at most and reads [`ANSWER_MAX`] bytes at most; no answer, however
//! odd, makes it panic or loop. Reading: RFC 3549, the kernel's
//! `Documentation/userspace-api/netlink`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// How long the kernel may take.
const KERNEL_PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of all answers to one question.
const ANSWER_MAX: usize = 1 << 20;
/// Bytes of a message's header.
const HEADER: usize = 16;
/// Bytes of an attribute's header.
const ATTRIBUTE_HEADER: usize = 4;
/// The bits of an attribute's kind that are its number.
const ATTRIBUTE_KIND_MASK: u16 = 0x3fff;
/// The attribute of an interface's name.
pub(crate) const IFLA_IFNAME: u16 = 3;
/// Bytes of `struct ifinfomsg`.
pub(crate) const LINK_HEAD: usize = 16;

/// A question under construction: a message of `kind` with flags, then its fixed head.
#[derive(Debug)]
pub(super) struct NetlinkRequest(Vec<u8>);

impl NetlinkRequest {
    /// A question of this kind, with the bytes that every message of its family begins with.
    pub(super) fn new(kind: u16, flags: libc::c_int, head: &[u8]) -> Self {
        let flags = (flags | libc::NLM_F_REQUEST) as u16;
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(head);
        Self(bytes)
    }

    /// With an attribute.
    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let len = (ATTRIBUTE_HEADER + value.len()) as u16;
        self.0.extend_from_slice(&len.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn finish(mut self) -> Vec<u8> {
        let len = (self.0.len() as u32).to_ne_bytes();
        self.0.iter_mut().zip(len).for_each(|(to, from)| *to = from);
        self.0
    }
}

/// A netlink socket, used for one request at a time.
#[derive(Debug)]
pub(super) struct Netlink(OwnedFd);

impl Netlink {
    /// A socket of a protocol, as `NETLINK_GENERIC`, in the calling thread's network namespace.
    pub(super) fn open(protocol: libc::c_int) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        set_socket_timeout(&socket, Timeout::Recv, Some(KERNEL_PATIENCE))?;
        Ok(Self(socket))
    }

    /// Sends a request with a single reply; returns the reply without its header.
    pub(super) fn ask_once(&self, question: NetlinkRequest) -> io::Result<Vec<u8>> {
        let mut answers = self.exchange(question, 1)?;
        answers.pop().ok_or_else(|| io::Error::other("the kernel does not answer"))
    }

    /// Sends a request for a dump or an acknowledgement; returns each reply without its header. A
    /// netlink error message becomes the error.
    pub(super) fn ask(&self, question: NetlinkRequest) -> io::Result<Vec<Vec<u8>>> {
        self.exchange(question, usize::MAX)
    }

    fn exchange(&self, question: NetlinkRequest, most: usize) -> io::Result<Vec<Vec<u8>>> {
        let bytes = question.finish();
        // SAFETY: the system reads `len` bytes of a vector that outlives the call. Without an
        // address the kernel is the destination.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let (mut answers, mut total) = (Vec::new(), 0);
        let mut buffer = vec![0; 64 << 10];
        while total < ANSWER_MAX {
            let (received, _) =
                rustix::net::recv(&self.0, &mut *buffer, rustix::net::RecvFlags::empty())?;
            total += received.max(1);
            let mut rest = buffer.get(..received).unwrap_or_default();
            while let Some((kind, body, behind)) = message(rest) {
                rest = behind;
                match libc::c_int::from(kind) {
                    libc::NLMSG_DONE => return Ok(answers),
                    libc::NLMSG_ERROR => return refusal(body).map(|()| answers),
                    _ => answers.push(body.to_vec()),
                }
                if answers.len() >= most {
                    return Ok(answers);
                }
            }
        }
        Err(io::Error::other("the kernel's answer has no end"))
    }
}

/// Splits off the first message: its type, its body, and the bytes after it.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(HEADER..len)?;
    Some((kind, body, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

/// Parses an error message; number 0 is an acknowledgement.
fn refusal(body: &[u8]) -> io::Result<()> {
    match body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)) {
        Some(0) => Ok(()),
        Some(number) => Err(io::Error::from_raw_os_error(number.saturating_neg())),
        None => Err(io::Error::other("the kernel's answer is cut off")),
    }
}

/// Reads the interface `name` by rtnetlink, in the calling thread's network namespace: a `struct
/// ifinfomsg` of [`LINK_HEAD`] bytes, followed by attributes.
pub(crate) fn link_named(name: &str) -> io::Result<Vec<u8>> {
    let ended = [name.as_bytes(), &[0]].concat();
    let question =
        NetlinkRequest::new(libc::RTM_GETLINK, 0, &[0; LINK_HEAD]).with(IFLA_IFNAME, &ended);
    Netlink::open(libc::NETLINK_ROUTE)?.ask_once(question)
}

/// The attributes of an answer, behind its fixed head.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    core::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?) & ATTRIBUTE_KIND_MASK;
        let value = bytes.get(ATTRIBUTE_HEADER..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// An attribute's number: 2, 4 or 8 bytes.
pub(crate) fn number(value: &[u8]) -> Option<u64> {
    match value.len() {
        2 => value.first_chunk().map(|b| u64::from(u16::from_ne_bytes(*b))),
        4 => value.first_chunk().map(|b| u64::from(u32::from_ne_bytes(*b))),
        8 => value.first_chunk().map(|b| u64::from_ne_bytes(*b)),
        _ => None,
    }
}

/// An attribute's text, without the zero at its end.
pub(super) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_as_long_as_it_says_and_reads_back() {
        let bytes =
            NetlinkRequest::new(7, 0, &[1, 0, 0, 0]).with(3, b"abc").with(4, &[9; 4]).finish();
        let (kind, body, behind) = message(&bytes).unwrap();
        assert_eq!((kind, behind.len()), (7, 0));
        let read: Vec<_> = attributes(&body[4..]).collect();
        assert_eq!(read, [(3, &b"abc"[..]), (4, &[9; 4][..])]);
    }

    #[test]
    fn odd_answers_end_and_say_nothing() {
        for len in 0..40_usize {
            let mut bytes = vec![0xff; len];
            assert!(message(&bytes).is_none());
            assert_eq!(attributes(&bytes).count(), 0);
            bytes.fill(0);
            assert!(message(&bytes).is_none(), "a length of 0 leads nowhere");
            assert_eq!(attributes(&bytes).count(), 0);
        }
        assert!(refusal(&[]).is_err());
        assert_eq!(refusal(&(-1_i32).to_ne_bytes()).unwrap_err().raw_os_error(), Some(1));
        assert_eq!(number(&[1, 2, 3]), None);
        assert_eq!((text(b"veth\0"), text(b"")), ("veth".to_owned(), String::new()));
    }
}
