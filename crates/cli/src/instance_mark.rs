//! `InstanceMark`: an instance shows on which interface it is, and with which link address, so that
//! others of its network namespace notice it.
//!
//! Taken by `devices.rs` before an interface is opened. The mark is a Unix socket with an abstract
//! name: it is of the network namespace, as interfaces are, needs no folder, and goes with its
//! process however that ends. Invariant: of two instances that show the same interface and link
//! address the second does not start, since each would answer what is meant for the other; other
//! neighbours are legal, and told. A process of another user proves nothing by such a name, root's
//! excepted: it is passed over. Not here: control sockets (`socket/path.rs`), exclusive devices.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use floodwall_base::MacAddr;
use floodwall_device::DeviceError;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use thiserror::Error;

/// What all names begin with.
const MARK_PREFIX: &str = "floodwall/instance";
/// Instances of a namespace that are looked at.
const OTHERS_MAX: usize = 64;

/// The mark of this instance on one interface; it goes when this is dropped.
#[derive(Debug)]
pub(crate) struct InstanceMark {
    _listener: Option<UnixListener>,
}

/// Why an interface cannot be opened.
#[derive(Debug, Error)]
pub(crate) enum OpenError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(
        "{interface}: another floodwall (process {process}) is there with the link address {mac}, \
         too, and each would answer for the other; stop that one, or give this one an address of \
         its own with --mac"
    )]
    Taken { interface: String, mac: MacAddr, process: i32 },
}

impl InstanceMark {
    /// Shows this instance on an interface; returns what is to be told of others beside it.
    ///
    /// # Errors
    /// Another instance has the interface and the link address.
    pub(crate) fn take(interface: &str, mac: MacAddr) -> Result<(Self, Vec<String>), OpenError> {
        let names = std::fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
        let name = format!("{MARK_PREFIX}/{interface}/{mac}");
        let bind = |name: &str| UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?);
        let listener = match bind(&name) {
            Ok(listener) => Some(listener),
            Err(_) => match instance_of(&name) {
                Some(process) => {
                    let interface = interface.to_owned();
                    return Err(OpenError::Taken { interface, mac, process });
                }
                None => None,
            },
        };
        // A name is listed again for each connection to it.
        let mut others = Vec::new();
        for other in marks(&names).filter(|other| *other != (interface, mac)) {
            if others.len() < OTHERS_MAX && !others.contains(&other) {
                others.push(other);
            }
        }
        let notes = others.into_iter().filter_map(|(other, of_other)| {
            let process = instance_of(&format!("{MARK_PREFIX}/{other}/{of_other}"))?;
            if other == interface {
                Some(format!(
                    "another floodwall (process {process}) uses this interface, too, with the link \
                     address {of_other}"
                ))
            } else {
                (of_other == mac).then(|| {
                    format!(
                        "another floodwall (process {process}) has the link address {mac} on \
                         {other}; if that is the same network, give one of them another by --mac"
                    )
                })
            }
        });
        let notes = notes.collect();
        Ok((Self { _listener: listener }, notes))
    }
}

/// The marks in the system's list of Unix sockets.
fn marks(list: &str) -> impl Iterator<Item = (&str, MacAddr)> {
    list.lines().filter_map(|line| {
        let name = line.rsplit_once('@')?.1.strip_prefix(MARK_PREFIX)?.strip_prefix('/')?;
        let (interface, mac) = name.split_once('/')?;
        Some((interface, mac.parse().ok()?))
    })
}

/// The process that listens under a name, if it is ours or root's. Never waits: one that has been
/// asked too often to answer is passed over.
fn instance_of(name: &str) -> Option<i32> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let asks = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    connect(&asks, &SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?).ok()?;
    let peer = socket_peercred(&asks).ok()?;
    let trusted = peer.uid.is_root() || peer.uid == rustix::process::geteuid();
    trusted.then(|| peer.pid.as_raw_nonzero().get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "it waits for processes of other tests")]
    fn two_instances_with_one_link_address_on_one_interface_notice_each_other() {
        // Names of this process alone, since tests share a namespace.
        let one = format!("t{}", std::process::id());
        let two = format!("{one}x");
        let mac = MacAddr([2, 0, 0, 0, 0, 7]);
        let process = i32::try_from(std::process::id()).expect("a process number");
        let (mark, notes) = InstanceMark::take(&one, mac).expect("the first");
        assert_eq!(notes, [""; 0]);
        let refused = InstanceMark::take(&one, mac).expect_err("the second").to_string();
        assert!(refused.contains(&format!("process {process}")) && refused.contains("--mac"));
        // Another link address on the same interface, and the same one on another interface.
        let (other, notes) = InstanceMark::take(&one, MacAddr([2, 0, 0, 0, 0, 8])).expect("legal");
        assert!(notes.len() == 1 && notes[0].contains("uses this interface, too"), "{notes:?}");
        let (_, notes) = InstanceMark::take(&two, mac).expect("legal");
        assert!(notes.len() == 1 && notes[0].contains(&format!("on {one};")), "{notes:?}");
        // The first ends, however: its mark goes with it, when no process that another test starts
        // has a copy of the socket any more: until that is a program of its own.
        drop((mark, other));
        let is_free = (0..1000).any(|_| {
            let taken = InstanceMark::take(&one, mac);
            let is_free = taken.is_ok_and(|(_, notes)| notes.is_empty());
            if !is_free {
                std::thread::sleep(core::time::Duration::from_millis(10));
            }
            is_free
        });
        assert!(is_free, "free again");
    }

    #[test]
    fn names_of_others_in_the_systems_list_are_passed_over() {
        let list = "Num RefCount Protocol Flags Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 12 /run/x@y
0000000000000000: 00000002 00000000 00010000 0001 01 13 @floodwall/instance/eth0
0000000000000000: 00000002 00000000 00010000 0001 01 14 @floodwall/instance/eth0/02:zz
0000000000000000: 00000002 00000000 00010000 0001 01 15 @floodwall/instance/eth0/02:00:00:00:00:07
";
        let found: Vec<_> = marks(list).collect();
        assert_eq!(found, [("eth0", MacAddr([2, 0, 0, 0, 0, 7]))]);
    }
}
