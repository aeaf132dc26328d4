//! What an interface can do with XDP frames, as the kernel says (generic netlink, family `netdev`).
//!
//! Asked by `af_xdp.rs` where answers of the program would have to reach the peer of a veth: that
//! takes them only while it has a program of its own or GRO, and the sender gets no notice. The
//! kernel keeps a bit for it up to date. Reading: `Documentation/netlink/specs/netdev.yaml`. Not
//! here: anything else of netlink.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// The interface transmits XDP frames that are redirected to it (`NETDEV_XDP_ACT_NDO_XMIT`).
const XDP_TRANSMITS: u64 = 4;

/// Numbers of generic netlink and of the family.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const DEVICE_GET: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_FEATURES: u16 = 3;
const REQUEST: u16 = 1;
const ERROR: u16 = 2;
/// Bytes of the header of a message, with generic netlink's.
const HEADER: usize = 20;

/// Whether XDP frames that are redirected to an interface leave by it.
///
/// # Errors
/// The system's; kernels before 6.3 know no such family.
pub(crate) fn transmits(index: u32) -> io::Result<bool> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::GENERIC))?;
    let name = attribute(FAMILY_NAME, b"netdev\0");
    let answer = ask(&socket, CONTROLLER, GET_FAMILY, &name)?;
    let family = find(&answer, FAMILY_ID).and_then(|bytes| bytes.first_chunk::<2>());
    let family = u16::from_ne_bytes(*family.ok_or(io::ErrorKind::Unsupported)?);
    let number = attribute(DEVICE_INDEX, &index.to_ne_bytes());
    let answer = ask(&socket, family, DEVICE_GET, &number)?;
    let features = find(&answer, DEVICE_FEATURES).and_then(|bytes| bytes.first_chunk::<8>());
    let features = u64::from_ne_bytes(*features.ok_or(io::ErrorKind::Unsupported)?);
    Ok(features & XDP_TRANSMITS != 0)
}

/// One attribute, padded.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + value.len().next_multiple_of(4));
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Sends one request; the attributes of the answer.
fn ask(socket: &OwnedFd, family: u16, command: u8, attributes: &[u8]) -> io::Result<Vec<u8>> {
    let mut message = Vec::with_capacity(HEADER + attributes.len());
    message.extend((HEADER as u32 + attributes.len() as u32).to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    // Sequence and port: one request at a time, and the kernel knows us.
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    send(socket.as_fd(), &message, SendFlags::empty())?;
    let mut answer = [0_u8; 8192];
    let (len, _) = recv(socket.as_fd(), &mut answer[..], RecvFlags::empty())?;
    let answer = answer.get(..len).unwrap_or_default();
    let kind = answer.get(4..).and_then(|bytes| bytes.first_chunk::<2>());
    if kind.is_none_or(|kind| u16::from_ne_bytes(*kind) == ERROR) {
        let error = answer.get(16..).and_then(|bytes| bytes.first_chunk::<4>());
        let number = error.map_or(libc::EPROTO, |bytes| -i32::from_ne_bytes(*bytes));
        return Err(io::Error::from_raw_os_error(number));
    }
    Ok(answer.get(HEADER..).unwrap_or_default().to_vec())
}

/// The value of an attribute.
fn find(attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut rest = attributes;
    loop {
        let len = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?) & 0x3fff;
        if kind == wanted {
            return rest.get(4..len);
        }
        // A length of nothing would go on for ever.
        rest = rest.get(len.next_multiple_of(4).max(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_behind_others_and_wrong_lengths_end_the_search() {
        let all = [attribute(1, &[7]), attribute(3, &[1, 2, 3, 4, 5, 6, 7, 8])].concat();
        assert_eq!(find(&all, 3), Some(&[1, 2, 3, 4, 5, 6, 7, 8][..]));
        assert_eq!((find(&all, 1), find(&all, 2)), (Some(&[7][..]), None));
        for end in 0..all.len() {
            let _ = find(&all[..end], 3);
        }
        let mut lies = all;
        for len in 0..=u16::MAX {
            lies[..2].copy_from_slice(&len.to_ne_bytes());
            let _ = (find(&lies, 3), find(&lies, 1));
        }
    }

    #[test]
    fn the_loopback_interface_is_asked_for() {
        // No driver's frames: either it is known and has none, or the kernel is too old.
        match transmits(1) {
            Ok(transmits) => assert!(!transmits),
            Err(error) => eprintln!("SKIPPED: {error}"),
        }
    }
}
