//! `XdpQueue`: the socket of one receive queue, its four rings, and the frames that it has.
//!
//! Called by `af_xdp.rs`. The packet pool itself is the socket's memory (UMEM), registered in
//! place: zero copy in both directions. Each socket registers the pool for itself, so that no
//! socket has to outlive another; the memory is the same. Invariants: a frame belongs to the kernel
//! from the moment its address is in a fill or transmit ring until it returns in a receive or
//! completion ring, and no handle to it exists meanwhile (`packet::lent`). When the queue closes,
//! the socket is closed first and then every frame that it had returns to the pool. Reading: the
//! kernel's `Documentation/networking/af_xdp.rst`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use floodwall_packet::{Class, PacketBuf, Pool, Region};

use super::ring::XdpRing;

/// Transmit calls in a row for one list: each moves at most 32 packets on devices that copy.
const KICKS_MAX: u32 = 8;

/// An AF_XDP socket without memory yet.
pub(crate) fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_XDP, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Raises this process's bound of locked memory as far as it may: the pool is pinned.
pub(crate) fn raise_memory_lock() {
    let unlimited = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the structure is borrowed for the call. A refusal shows in the registration.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const unlimited) };
}

/// The AF_XDP socket of one receive queue with its four rings and outstanding frames.
#[derive(Debug)]
pub(crate) struct XdpQueue {
    /// Goes first: after that the kernel has no frame any more.
    socket: Option<OwnedFd>,
    rx: XdpRing<libc::xdp_desc>,
    tx: XdpRing<libc::xdp_desc>,
    fill: XdpRing<u64>,
    completion: XdpRing<u64>,
    region: Arc<Region>,
    /// One bit a frame of the region: whether the kernel has it.
    out: Vec<u64>,
    frame_bytes: usize,
    frames: usize,
    /// The kernel did not take all of the transmit ring: the system call must be repeated.
    is_owed: bool,
}

/// What a frame that arrived turned out to be.
pub(crate) enum QueueArrival {
    Packet(PacketBuf),
    /// The kernel's description of it made no sense; the frame is back.
    Nonsense,
}

impl XdpQueue {
    /// Gives `socket` the memory of `pool` and rings of `size` entries (a power of two), and binds
    /// it to `queue` of the interface with these flags (`XDP_COPY`, `XDP_ZEROCOPY`).
    pub(crate) fn attach(
        socket: OwnedFd,
        pool: &Pool,
        index: u32,
        queue: u32,
        size: u32,
        flags: u16,
    ) -> io::Result<Self> {
        let fd = socket.as_fd();
        let region = Arc::clone(pool.region());
        let (memory, bytes, frame_bytes) = region.umem();
        let umem = libc::xdp_umem_reg {
            addr: memory.as_ptr() as u64,
            len: bytes as u64,
            chunk_size: frame_bytes as u32,
            // The kernel leaves 256 bytes free by itself: our headroom.
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(fd, libc::XDP_UMEM_REG, &umem)?;
        for ring in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            set(fd, ring, &size)?;
        }
        let at = offsets(fd)?;
        let fill_page = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let completion_page = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let mut made = Self {
            rx: XdpRing::map(fd, at.rx, size, libc::XDP_PGOFF_RX_RING)?,
            tx: XdpRing::map(fd, at.tx, size, libc::XDP_PGOFF_TX_RING)?,
            fill: XdpRing::map(fd, at.fr, size, fill_page)?,
            completion: XdpRing::map(fd, at.cr, size, completion_page)?,
            out: vec![0; (bytes / frame_bytes).div_ceil(64)],
            frames: bytes / frame_bytes,
            frame_bytes,
            region,
            socket: None,
            is_owed: false,
        };
        let bytes = size as usize * frame_bytes;
        raise_send_buffer(fd, libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX));
        bind(fd, index, queue, flags | libc::XDP_USE_NEED_WAKEUP)?;
        made.socket = Some(socket);
        made.refill(pool);
        Ok(made)
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.rx.is_ready()
    }

    /// How many frames wait.
    pub(crate) fn waiting(&self) -> usize {
        self.rx.waiting() as usize
    }

    /// Whether the kernel has used up every empty frame that it had: what comes now is lost.
    pub(crate) fn is_starved(&self) -> bool {
        self.fill.untaken() == 0
    }

    /// The oldest frame that has arrived.
    pub(crate) fn receive(&mut self) -> Option<QueueArrival> {
        let arrived = self.rx.pop()?;
        let packet = self.region.take_back_filled(arrived.addr, arrived.len as usize);
        if packet.is_some() {
            self.mark(arrived.addr, false);
        }
        Some(packet.map_or(QueueArrival::Nonsense, QueueArrival::Packet))
    }

    /// After a batch: the places in the ring are the kernel's again, and it gets empty frames.
    /// How many it lacks because the pool is empty.
    pub(crate) fn refill(&mut self, pool: &Pool) -> u32 {
        self.rx.give_back();
        let mut lacks = 0;
        let room = self.fill.room();
        for given in 0..room {
            let Some(address) = pool.alloc(Class::Frame).and_then(|frame| self.lend(frame)) else {
                lacks = room - given;
                break;
            };
            if !self.fill.push(address) {
                self.take_back(address);
                break;
            }
        }
        self.fill.show();
        if self.fill.needs_wakeup() {
            self.wake_receiver();
        }
        lacks
    }

    /// Takes home what has left.
    pub(crate) fn complete(&mut self) {
        while let Some(address) = self.completion.pop() {
            self.take_back(address);
        }
        self.completion.give_back();
    }

    /// Whether the transmit ring takes another packet.
    pub(crate) fn has_room(&mut self) -> bool {
        self.tx.room() > 0
    }

    /// Puts a packet of one pool frame into the transmit ring, or returns it.
    pub(crate) fn send(&mut self, packet: PacketBuf) -> Result<(), PacketBuf> {
        let len = packet.len();
        if self.tx.room() == 0 || !self.is_of_the_pool(&packet) {
            return Err(packet);
        }
        let address = packet.lend()?;
        self.mark(address, true);
        // There is room: this is the only producer.
        self.tx.push(libc::xdp_desc { addr: address, len: len as u32, options: 0 });
        Ok(())
    }

    /// Whether the packet is in the socket's registered memory.
    fn is_of_the_pool(&self, packet: &PacketBuf) -> bool {
        let (memory, bytes, _) = self.region.umem();
        let first = packet.first();
        let at = first.as_ptr().addr().wrapping_sub(memory.as_ptr().addr());
        packet.class() == Class::Frame && at < bytes && !first.is_empty()
    }

    /// Has the kernel send what is in the ring, as far as it can just now; what stays is owed.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.tx.show();
        let kicked = self.kick_until_taken();
        self.is_owed = kicked.is_ok() && self.tx.untaken() > 0 && self.tx.needs_wakeup();
        kicked
    }

    /// Whether the ring holds packets that need another [`XdpQueue::flush`] to be sent.
    pub(crate) const fn is_owed(&self) -> bool {
        self.is_owed
    }

    fn kick_until_taken(&self) -> io::Result<()> {
        for _ in 0..KICKS_MAX {
            if self.tx.untaken() == 0 || !self.tx.needs_wakeup() {
                break;
            }
            match self.kick().map_err(|error| (error.raw_os_error(), error)) {
                Ok(()) => break,
                // Its own budget of packets was used up.
                Err((Some(libc::EAGAIN), _)) => {}
                // The card is busy.
                Err((Some(libc::EBUSY | libc::ENOBUFS | libc::EINTR), _)) => break,
                Err((_, error)) => return Err(error),
            }
        }
        Ok(())
    }

    fn kick(&self) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let (fd, flags) = (socket.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: no memory is passed; the call only announces that the ring has entries.
        let result = unsafe { libc::sendto(fd, core::ptr::null(), 0, flags, core::ptr::null(), 0) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Announces that the fill ring has entries. On failure the call is repeated later.
    fn wake_receiver(&self) {
        let Some(socket) = &self.socket else { return };
        let (fd, flags, no_addr) =
            (socket.as_raw_fd(), libc::MSG_DONTWAIT, core::ptr::null_mut::<libc::sockaddr>());
        // SAFETY: no memory is passed.
        unsafe {
            libc::recvfrom(fd, core::ptr::null_mut(), 0, flags, no_addr, core::ptr::null_mut())
        };
    }

    /// What the kernel counts.
    pub(crate) fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        // SAFETY: all zeros is a value of this plain structure.
        let mut counts: libc::xdp_statistics = unsafe { core::mem::zeroed() };
        let Some(fd) = self.fd() else { return Ok(counts) };
        get(fd, libc::XDP_STATISTICS, &mut counts)?;
        Ok(counts)
    }

    /// Whether frames move between card and pool without a copy.
    pub(crate) fn is_zero_copy(&self) -> bool {
        let mut options = libc::xdp_options { flags: 0 };
        let asked = self.fd().map(|fd| get(fd, libc::XDP_OPTIONS, &mut options));
        matches!(asked, Some(Ok(()))) && options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0
    }

    fn lend(&mut self, frame: PacketBuf) -> Option<u64> {
        let address = frame.lend().ok()?;
        self.mark(address, true);
        Some(address)
    }

    fn take_back(&mut self, address: u64) {
        if let Some(packet) = self.region.take_back(address) {
            self.mark(address, false);
            drop(packet);
        }
    }

    fn mark(&mut self, address: u64, out: bool) {
        let frame = address as usize / self.frame_bytes;
        if let Some(word) = self.out.get_mut(frame / 64) {
            let bit = 1 << (frame % 64);
            *word = if out { *word | bit } else { *word & !bit };
        }
    }
}

impl Drop for XdpQueue {
    fn drop(&mut self) {
        // From here on the kernel writes into no frame of ours any more.
        drop(self.socket.take());
        for frame in 0..self.frames {
            let is_out = self.out.get(frame / 64).is_some_and(|w| w & 1 << (frame % 64) != 0);
            if is_out {
                drop(self.region.take_back_filled((frame * self.frame_bytes) as u64, 0));
            }
        }
    }
}

/// Raises the socket's send buffer as far as the system permits. On drivers that copy frames, the
/// kernel charges frames that the other side has not taken yet to the socket; the default allows
/// 166 small frames, fewer than wait there under load. Beyond it sends fail and are retried.
fn raise_send_buffer(socket: BorrowedFd<'_>, bytes: libc::c_int) {
    let set = |option| crate::socket::set_option(socket, libc::SOL_SOCKET, option, &bytes);
    if set(libc::SO_SNDBUFFORCE).is_err() {
        let _ = set(libc::SO_SNDBUF);
    }
}

/// Plain structures of the kernel, without pointers that it follows later.
trait PlainQueue {}
impl PlainQueue for u32 {}
impl PlainQueue for libc::xdp_umem_reg {}
impl PlainQueue for libc::xdp_mmap_offsets {}
impl PlainQueue for libc::xdp_statistics {}
impl PlainQueue for libc::xdp_options {}

fn set<T: PlainQueue>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    let (len, at) = (size_of::<T>() as libc::socklen_t, core::ptr::from_ref(value).cast());
    // SAFETY: the kernel reads `len` bytes of a plain value that is borrowed for the call. Memory
    // that a registration names is the region's, which the queue keeps for longer than the socket.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, at, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn get<T: PlainQueue>(
    socket: BorrowedFd<'_>,
    option: libc::c_int,
    value: &mut T,
) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let at = core::ptr::from_mut(value).cast();
    // SAFETY: the kernel writes `len` bytes at most, of a plain value that outlives the call.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, at, &raw mut len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn offsets(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: all zeros is a value of this plain structure.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { core::mem::zeroed() };
    get(socket, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
    Ok(offsets)
}

fn bind(socket: BorrowedFd<'_>, index: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    let at = (&raw const address).cast();
    // SAFETY: the kernel reads `len` bytes of a structure that outlives the call.
    let result = unsafe { libc::bind(socket.as_raw_fd(), at, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
