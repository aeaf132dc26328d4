//! `KernelInterface`: properties of a network interface, read by name through ioctl(2).
//!
//! Called by `tun.rs` and `af_packet.rs` when they open, and when a device seems to be gone.
//! Invariant: every question goes to the network namespace in which the socket was made.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use floodwall_base::MacAddr;

/// Bytes of the longest interface name.
const NAME_MAX: usize = libc::IFNAMSIZ - 1;
/// Ethernet's number among the kinds of link addresses (RFC 826).
const ARPHRD_ETHER: u16 = libc::ARPHRD_ETHER;

/// Numbers of the questions for the length of an interface's queue (`linux/sockios.h`), which
/// `libc` does not name.
const SIOCGIFTXQLEN: libc::Ioctl = 0x8942;
/// The same, for the name of a number.
const SIOCGIFNAME: libc::Ioctl = 0x8910;
const SIOCSIFTXQLEN: libc::Ioctl = 0x8943;

/// A socket that answers questions about interfaces.
#[derive(Debug)]
pub(crate) struct InterfaceControl(OwnedFd);

impl InterfaceControl {
    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_INET, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The descriptor, for other ioctl(2) requests.
    pub(crate) fn fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }

    /// The name that the interface numbered `index` has now.
    pub(crate) fn name_of(&self, index: i32) -> io::Result<String> {
        name_by(&self.0, index)
    }

    /// The interface `name`.
    pub(crate) fn interface<'a>(&'a self, name: &'a str) -> KernelInterface<'a, OwnedFd> {
        KernelInterface { socket: &self.0, name }
    }
}

/// The name that the interface numbered `index` has now, by any socket of its namespace.
pub(crate) fn name_by(socket: &impl AsFd, index: i32) -> io::Result<String> {
    // SAFETY: all zeros is a value of this plain structure.
    let mut question: libc::ifreq = unsafe { core::mem::zeroed() };
    question.ifr_ifru.ifru_ifindex = index;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the request takes one `ifreq`, which outlives the call.
    let result = unsafe { libc::ioctl(fd, SIOCGIFNAME, &raw mut question) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(name_in(&question)) }
}

/// One interface, by any socket of its namespace.
#[derive(Debug)]
pub(crate) struct KernelInterface<'a, F: AsFd> {
    /// The control socket for the requests.
    pub(crate) socket: &'a F,
    /// Its name.
    pub(crate) name: &'a str,
}

impl<F: AsFd> KernelInterface<'_, F> {
    /// The system's number for it.
    pub(crate) fn index(&self) -> io::Result<i32> {
        let answer = self.ask(libc::SIOCGIFINDEX as libc::Ioctl, named(self.name)?)?;
        // SAFETY: the system has filled this field for this question.
        Ok(unsafe { answer.ifr_ifru.ifru_ifindex })
    }

    /// Bytes of the largest IP packet.
    pub(crate) fn mtu(&self) -> io::Result<u32> {
        let answer = self.ask(libc::SIOCGIFMTU as libc::Ioctl, named(self.name)?)?;
        // SAFETY: the system has filled this field for this question.
        Ok(unsafe { answer.ifr_ifru.ifru_mtu }.unsigned_abs())
    }

    /// Sets the MTU.
    pub(crate) fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        let mut question = named(self.name)?;
        question.ifr_ifru.ifru_mtu = i32::try_from(mtu).unwrap_or(i32::MAX);
        self.ask(libc::SIOCSIFMTU as libc::Ioctl, question).map(drop)
    }

    /// Packets that may wait in the system to leave by it.
    pub(crate) fn queue_len(&self) -> io::Result<i32> {
        let answer = self.ask(SIOCGIFTXQLEN, named(self.name)?)?;
        // SAFETY: the system has filled this field for this request; it stores the number in the
        // place of the metric, as it does every number of this structure.
        Ok(unsafe { answer.ifr_ifru.ifru_metric })
    }

    /// Sets how many packets may wait in the system to leave by it.
    pub(crate) fn set_queue_len(&self, packets: i32) -> io::Result<()> {
        let mut question = named(self.name)?;
        question.ifr_ifru.ifru_metric = packets;
        self.ask(SIOCSIFTXQLEN, question).map(drop)
    }

    /// The link address, where the type is Ethernet; also of the loopback, which is all zeros.
    pub(crate) fn mac(&self) -> io::Result<Option<MacAddr>> {
        let answer = self.ask(libc::SIOCGIFHWADDR as libc::Ioctl, named(self.name)?)?;
        // SAFETY: the system has filled this field for this question.
        let address = unsafe { answer.ifr_ifru.ifru_hwaddr };
        let bytes = address.sa_data.first_chunk::<6>().map(|b| b.map(|byte| byte as u8));
        let ethernet = [ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&address.sa_family);
        Ok(bytes.filter(|_| ethernet).map(MacAddr))
    }

    /// Brings the interface up.
    pub(crate) fn bring_up(&self) -> io::Result<()> {
        let mut question = self.ask(libc::SIOCGIFFLAGS as libc::Ioctl, named(self.name)?)?;
        // SAFETY: the system has filled this field for the question above.
        let flags = unsafe { question.ifr_ifru.ifru_flags };
        question.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
        self.ask(libc::SIOCSIFFLAGS as libc::Ioctl, question).map(drop)
    }

    /// Whether it is up and its link is there.
    pub(crate) fn carries(&self) -> io::Result<bool> {
        let answer = self.ask(libc::SIOCGIFFLAGS as libc::Ioctl, named(self.name)?)?;
        // SAFETY: the system has filled this field for this question.
        let flags = libc::c_int::from(unsafe { answer.ifr_ifru.ifru_flags });
        let all = libc::IFF_UP | libc::IFF_RUNNING;
        Ok(flags & all == all)
    }

    fn ask(&self, what: libc::Ioctl, mut question: libc::ifreq) -> io::Result<libc::ifreq> {
        let fd = self.socket.as_fd().as_raw_fd();
        // SAFETY: every request above takes one `ifreq`, which outlives the call.
        let result = unsafe { libc::ioctl(fd, what, &raw mut question) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(question) }
    }
}

/// A question about the interface `name`. Names that the system could not have are not found.
pub(crate) fn named(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all zeros is a value of this plain structure.
    let mut question: libc::ifreq = unsafe { core::mem::zeroed() };
    if name.is_empty() || name.len() > NAME_MAX || name.bytes().any(|b| b == 0 || b == b'/') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in question.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(question)
}

/// The name in an answer.
pub(crate) fn name_in(answer: &libc::ifreq) -> String {
    answer.ifr_name.iter().take_while(|c| **c != 0).map(|c| *c as u8 as char).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_known_and_impossible_names_are_not_found() {
        let control = InterfaceControl::open().unwrap();
        let lo = control.interface("lo");
        assert_eq!(lo.index().unwrap(), 1);
        assert_eq!(control.name_of(1).unwrap(), "lo");
        assert!(control.name_of(i32::MAX).is_err());
        assert!(lo.mtu().unwrap() >= 1280);
        lo.carries().unwrap();
        for name in ["", "a-name-that-is-too-long", "no/such", "no-such-if"] {
            let error = control.interface(name).index().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{name}");
        }
    }
}
