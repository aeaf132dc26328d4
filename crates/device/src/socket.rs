//! System calls on packet sockets that no safe crate wraps, wrapped here.
//!
//! Called by `af_packet.rs` and `packet_ring.rs`. Invariant: what goes to the system is a plain
//! structure of libc's, of its true size, valid until the call returns.

use std::io::{self, IoSlice};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use floodwall_base::MacAddr;

/// Messages that one call sends.
pub(crate) const BATCH_MAX: usize = 16;

/// Which frames a packet socket takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Accept {
    /// All that arrive.
    #[default]
    All,
    /// Those for groups and broadcasts only.
    Groups,
    /// Those that the host and a station at its own link address both need: for groups and
    /// broadcasts, of either layer, address resolution, and answers to DHCP clients.
    Common,
    /// All but those that claim to come from this station: ours, which a program sends back.
    NotOf(MacAddr),
    /// None: the socket only reports whether the interface is there.
    Nothing,
}

/// Plain structures of the system, without pointers and without invalid values.
pub(crate) trait PlainAddress: Copy {}
impl PlainAddress for libc::c_int {}
impl PlainAddress for libc::tpacket_req3 {}
impl PlainAddress for libc::packet_mreq {}
impl PlainAddress for libc::tpacket_stats_v3 {}

/// A packet socket that sees nothing yet, because it is bound to no protocol.
pub(crate) fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option.
pub(crate) fn set_option<T: PlainAddress>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    let at = core::ptr::from_ref(value).cast();
    // SAFETY: the system reads `len` bytes of a plain value that is borrowed for the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, at, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has the kernel show only some frames, before the socket is bound.
pub(crate) fn filter(socket: BorrowedFd<'_>, accept: Accept) -> io::Result<()> {
    const fn line(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt, jf, k }
    }
    const ALL: libc::sock_filter = line(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX);
    const NONE: libc::sock_filter = line(libc::BPF_RET | libc::BPF_K, 0, 0, 0);
    // Groups have the lowest bit of the first byte set (IEEE 802).
    let groups = [
        line(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 0),
        line(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 1, 1),
        ALL,
        NONE,
    ];
    let common = common(line, (ALL, NONE));
    let except = |MacAddr([a, b, c, d, e, f]): MacAddr| {
        const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        [
            line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 6),
            line(EQUAL, 0, 2, u32::from_be_bytes([a, b, c, d])),
            line(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, 10),
            line(EQUAL, 1, 0, u16::from_be_bytes([e, f]).into()),
            ALL,
            NONE,
        ]
    };
    let not_ours;
    let lines: &[libc::sock_filter] = match accept {
        Accept::All => return Ok(()),
        Accept::Groups => &groups,
        Accept::Common => &common,
        Accept::NotOf(station) => {
            not_ours = except(station);
            &not_ours
        }
        Accept::Nothing => &[NONE],
    };
    let program = libc::sock_fprog { len: lines.len() as u16, filter: lines.as_ptr().cast_mut() };
    let (len, at) = (size_of::<libc::sock_fprog>() as libc::socklen_t, (&raw const program).cast());
    let (level, option) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    // SAFETY: the kernel copies the filter, which outlives the call, and keeps no address.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, at, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The classic BPF filter of [`Accept::Common`]. Jump offsets are relative: if true, if false.
fn common(
    line: impl Fn(u32, u8, u8, u32) -> libc::sock_filter,
    (all, none): (libc::sock_filter, libc::sock_filter),
) -> [libc::sock_filter; 20] {
    const BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    const MEETS: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    // The length of the IPv4 header at 14, and what follows it.
    const LENGTH: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
    const BEHIND: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
    [
        line(BYTE, 0, 0, 0),
        line(MEETS, 17, 0, 1),
        line(HALF, 0, 0, 12),
        line(EQUAL, 15, 0, 0x0806),
        line(EQUAL, 0, 3, 0x86dd),
        // IPv6, to a group.
        line(BYTE, 0, 0, 38),
        line(EQUAL, 12, 0, 0xff),
        line(libc::BPF_JMP | libc::BPF_JA, 0, 0, 10),
        line(EQUAL, 0, 9, 0x0800),
        // IPv4, to a group or the broadcast address.
        line(BYTE, 0, 0, 30),
        line(AT_LEAST, 8, 0, 224),
        // A whole datagram, or the first part of one, to a DHCP client.
        line(BYTE, 0, 0, 23),
        line(EQUAL, 0, 5, 17),
        line(HALF, 0, 0, 20),
        line(MEETS, 3, 0, 0x1fff),
        line(LENGTH, 0, 0, 14),
        line(BEHIND, 0, 0, 16),
        line(EQUAL, 1, 0, 68),
        none,
        all,
    ]
}

/// Packets dropped by the kernel since the last call: reading sets them back.
pub(crate) fn take_drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut stats = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
    let mut len = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
    let at = (&raw mut stats).cast();
    // SAFETY: the system writes `len` bytes at most, of a plain value that outlives the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            at,
            &raw mut len,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(stats.tp_drops) }
}

/// Binds to an interface, for frames of every protocol.
pub(crate) fn bind(socket: BorrowedFd<'_>, index: i32) -> io::Result<()> {
    // SAFETY: all zeros is a value of this plain structure.
    let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the system reads `len` bytes of a structure that outlives the call.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The interface that the socket is bound to; -1 once that is deleted.
pub(crate) fn bound_index(socket: BorrowedFd<'_>) -> io::Result<i32> {
    // SAFETY: all zeros is a value of this plain structure.
    let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    let at = (&raw mut address).cast();
    // SAFETY: the system writes `len` bytes at most, of a structure that outlives the call.
    let result = unsafe { libc::getsockname(socket.as_raw_fd(), at, &raw mut len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(address.sll_ifindex) }
}

/// Messages for one call.
pub(crate) struct Messages<'a> {
    list: [libc::mmsghdr; BATCH_MAX],
    len: usize,
    _slices: PhantomData<&'a [u8]>,
}

impl<'a> Messages<'a> {
    pub(crate) fn new() -> Self {
        // SAFETY: all zeros (null pointers of length 0) is a value of this plain structure.
        let empty: libc::mmsghdr = unsafe { core::mem::zeroed() };
        Self { list: [empty; BATCH_MAX], len: 0, _slices: PhantomData }
    }

    /// Adds a message made of `slices`; false where the call takes no more.
    pub(crate) fn push(&mut self, slices: &'a [IoSlice<'a>]) -> bool {
        let Some(message) = self.list.get_mut(self.len) else { return false };
        // An `IoSlice` is an `iovec` by its documentation; the system only reads through it.
        message.msg_hdr.msg_iov = slices.as_ptr().cast_mut().cast();
        message.msg_hdr.msg_iovlen = slices.len() as _;
        self.len += 1;
        true
    }

    /// Sends in order; how many were taken, or why not even the first was.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let (count, flags) = (self.len as libc::c_uint, libc::MSG_DONTWAIT);
        // SAFETY: the first `len` messages point to slices that are borrowed for `'a`, which
        // outlives `self`; no addresses and no control data.
        let sent =
            unsafe { libc::sendmmsg(socket.as_raw_fd(), self.list.as_mut_ptr(), count, flags) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }
}
