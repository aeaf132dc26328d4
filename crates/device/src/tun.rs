//! `Tun`: a Linux TUN (IP packets) or TAP (Ethernet frames) interface, one object a queue.
//!
//! Called by programs that attach a stack to the host's network: the host routes or bridges into
//! the interface, and the stack is behind it. With the virtio header, GSO frames (GSO/GRO) and
//! partial checksums cross unsplit, which gives a factor of eight in throughput.
//!
//! Invariant: never blocks; one system call a packet, or with the virtio header one for segments of
//! a TCP flow that leave in a row (`gso_join.rs`); a packet that arrives while the pool is
//! empty is lost and counted, so that what waits in the system does not grow old.
//!
//! # Under flood
//! Any sender that the host routes to us fills the system's queue, which has its own bound
//! (`txqueuelen` of the interface; its drops are the interface's tx drops). With the system's
//! default, that queue is full after 2.5 or 5 ms of 200,000 packets a second: less than the
//! scheduler's pauses on a busy machine, after which all packets are lost regardless of their flow.
//! So an interface that still has the default length is given [`QUEUE_PACKETS`]; a configured
//! length is kept. Work per packet: one read into pool memory. At most a burst is taken per call,
//! and no more than the worker's turn has time for: a read may run its sender's TCP in the kernel.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use floodwall_packet::{Burst, PacketBuf, PacketList, Pool};
use rustix::io::Errno;

use crate::device::{Device, DeviceInfo, Medium};
use crate::error::DeviceError;
use crate::gather::{GatherBuffer, GatheredFrame, SLICES_MAX, Slices};
use crate::gso_join::{JoinRun, RunLimits};
use crate::interface::{self, InterfaceControl};
use crate::stats::DeviceStats;
use crate::vnet::{self, Completion, Patch, VNET_BYTES};

const TUN_NODE: &str = "/dev/net/tun";
/// Packets that wait in the system for us: 20 ms of 200,000 a second.
const QUEUE_PACKETS: i32 = 4096;
/// The system's default queue lengths of a TUN and a TAP.
const SYSTEM_QUEUES: [i32; 2] = [500, 1000];
/// Room beyond the MTU: link header, two tags, and one byte to notice a longer packet by.
const BEYOND_MTU: usize = 14 + 8 + 1;
/// Largest packet with offload: 64 KiB of IP, link header, and one byte to notice more by.
const SUPER_MAX: usize = 65_535 + BEYOND_MTU;
/// Slices of a packet that arrives where the pool has GSO frames, and one.
const SLICES_FEW: usize = 4;
/// Bytes of a packet, header included, that leaves as one slice: as long as a frame.
const FLAT_MAX: usize = 2048;

/// TUN or TAP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TunKind {
    /// Carries IP packets.
    Tun,
    /// Carries Ethernet frames.
    Tap,
}

/// How an interface is opened.
#[derive(Clone, Debug)]
pub struct TunConfig {
    /// TUN or TAP.
    pub kind: TunKind,
    /// Queues, one [`Tun`] each; the system spreads flows over them. At least 1.
    pub queues: usize,
    /// Whether GSO frames and partial checksums cross whole (virtio header).
    pub vnet_header: bool,
    /// Whether to bring the interface up; otherwise the administrator does so.
    pub up: bool,
    /// The MTU to set; else the interface keeps its own.
    pub mtu: Option<u32>,
}

impl Default for TunConfig {
    fn default() -> Self {
        Self { kind: TunKind::Tun, queues: 1, vnet_header: true, up: false, mtu: None }
    }
}

/// A device on one queue of a TUN or TAP interface.
#[derive(Debug)]
pub struct Tun {
    info: DeviceInfo,
    queue: File,
    control: InterfaceControl,
    landing: GatherBuffer,
    /// Where a packet in pieces is put together to leave.
    flat: Box<[u8]>,
    vnet_header: bool,
    /// Whether segments are joined: until the system rejects some.
    joins: bool,
    /// Packets that wait in the system.
    ring: usize,
    stats: DeviceStats,
}

impl Tun {
    /// Opens the interface `name`, which is created unless it exists; `%d` in the name is replaced
    /// by the first free number. It is removed with its last queue, unless made persistent before.
    ///
    /// # Errors
    /// No privilege, the system lacks this kind of device, the device is in use, or it exists with
    /// another kind or number of queues.
    pub fn open(name: &str, config: &TunConfig) -> Result<Vec<Self>, DeviceError> {
        let count = config.queues.max(1);
        let mut name = name.to_owned();
        let mut queues = Vec::with_capacity(count);
        for _ in 0..count {
            let queue = open_node(&name)?;
            name = attach(&queue, &name, config, count > 1)?;
            queues.push(queue);
        }
        let info = set_up(&name, config)?;
        let wanted = if config.vnet_header { SUPER_MAX } else { info.mtu as usize + BEYOND_MTU };
        let open_one = |queue| {
            let control = control(&info.name)?;
            let (info, landing) = (info.clone(), GatherBuffer::new(wanted));
            let (vnet_header, stats) = (config.vnet_header, DeviceStats::default());
            let flat = vec![0; FLAT_MAX].into();
            let joins = vnet_header;
            let ring = control.interface(&info.name).queue_len();
            let ring = ring.ok().and_then(|len| usize::try_from(len).ok()).unwrap_or(0);
            Ok(Self { info, queue, control, landing, flat, vnet_header, joins, ring, stats })
        };
        queues.into_iter().map(open_one).collect()
    }

    /// Reads one packet. `None` where nothing waits.
    fn receive_one(&mut self, pool: &Pool) -> Result<Option<TunArrival>, DeviceError> {
        if !self.landing.refill(pool) {
            return Ok(None);
        }
        let mut header = [0; VNET_BYTES];
        let header_bytes = if self.vnet_header { VNET_BYTES } else { 0 };
        let header_room = header.get_mut(..header_bytes).unwrap_or_default();
        let read = match self.landing.count() {
            1 if header_bytes == 0 => self.read_plainly(),
            0..SLICES_FEW => self.read_into::<SLICES_FEW>(header_room),
            _ => self.read_into::<SLICES_MAX>(header_room),
        };
        let read = match read {
            Ok(read) => read,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(self.broken("receive", error)),
        };
        let Some(len) = read.checked_sub(header_bytes) else {
            self.stats.rx_malformed += 1;
            return Ok(Some(TunArrival::Lost));
        };
        Ok(Some(self.land(pool, len, header)))
    }

    /// Reads into one chunk.
    fn read_plainly(&mut self) -> Result<usize, Errno> {
        let room = self.landing.chunks_mut().next().unwrap_or_default();
        rustix::io::read(&self.queue, room)
    }

    /// Reads into the header's room and into all chunks, of which there are fewer than `N`.
    fn read_into<const N: usize>(&mut self, header: &mut [u8]) -> Result<usize, Errno> {
        let mut slices: [IoSliceMut<'_>; N] = core::array::from_fn(|_| IoSliceMut::new(&mut []));
        let rooms = core::iter::once(header).chain(self.landing.chunks_mut());
        let mut used = 0;
        for (slot, room) in slices.iter_mut().zip(rooms) {
            *slot = IoSliceMut::new(room);
            used += 1;
        }
        rustix::io::readv(&self.queue, slices.get_mut(..used).unwrap_or_default())
    }

    fn land(&mut self, pool: &Pool, len: usize, header: [u8; VNET_BYTES]) -> TunArrival {
        match self.landing.take(pool, len) {
            GatheredFrame::Whole(mut packet) => {
                if !self.vnet_header || vnet::describe(&mut packet, vnet::decode(header)) {
                    return TunArrival::Packet(packet);
                }
                self.stats.rx_malformed += 1;
            }
            GatheredFrame::NoBuffer => self.stats.rx_no_buffer += 1,
            GatheredFrame::Truncated => {
                self.stats.rx_truncated += 1;
                self.look_at_mtu();
            }
        }
        TunArrival::Lost
    }

    /// Adapts the buffers to an MTU that was raised on the interface.
    fn look_at_mtu(&mut self) {
        if let Ok(mtu) = self.control.interface(&self.info.name).mtu() {
            self.info.mtu = mtu;
            self.landing.want(mtu as usize + BEYOND_MTU);
        }
    }

    fn send_one(&mut self, packet: &PacketBuf) -> Result<TunSent, DeviceError> {
        let (header, completion) = if self.vnet_header {
            match vnet::header_of(packet) {
                Some(header) => (header, Completion::Whole),
                None => return Ok(TunSent::Refused),
            }
        } else {
            ([0; VNET_BYTES], vnet::complete(packet))
        };
        let patch = match &completion {
            Completion::Whole => None,
            Completion::Patch(patch) => Some(patch),
            Completion::Impossible => return Ok(TunSent::Refused),
        };
        let header = if self.vnet_header { &header[..] } else { &[] };
        let written = self.write(header, packet, patch);
        self.sent(written)
    }

    /// Sends the front of the list as one GSO frame, where it is one; how many packets that was.
    fn send_run(&mut self, packets: &PacketList) -> Result<Option<(usize, TunSent)>, DeviceError> {
        if !self.joins || packets.len() < 2 {
            return Ok(None);
        }
        let run = JoinRun::at_front(packets, self.info.medium, &RunLimits::NONE);
        let Some(run) = run else { return Ok(None) };
        let written = rustix::io::writev(&self.queue, run.slices(packets).as_slice());
        match self.sent(written)? {
            // Nothing is lost: they leave one by one, as all do from now on.
            TunSent::Refused => {
                self.joins = false;
                Ok(None)
            }
            sent => Ok(Some((run.count, sent))),
        }
    }

    /// What the system's answer means.
    fn sent(&self, written: Result<usize, Errno>) -> Result<TunSent, DeviceError> {
        match written {
            Ok(_) => Ok(TunSent::Yes),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => Ok(TunSent::NoRoom),
            Err(Errno::IO) => Ok(TunSent::Down),
            Err(Errno::BADFD | Errno::NODEV | Errno::NXIO) => {
                Err(DeviceError::Gone { device: self.info.name.clone() })
            }
            Err(_) => Ok(TunSent::Refused),
        }
    }

    /// Writes a packet: as one slice where it is no longer than a frame, which the system takes
    /// sooner than three, even with the copy.
    fn write(
        &mut self,
        header: &[u8],
        packet: &PacketBuf,
        patch: Option<&Patch>,
    ) -> Result<usize, Errno> {
        if patch.is_none()
            && let Some(bytes) = self.flat.get_mut(..header.len() + packet.len())
            && let Some((front, rest)) = bytes.split_at_mut_checked(header.len())
        {
            front.copy_from_slice(header);
            packet.copy_out(0, rest);
            return rustix::io::write(&self.queue, bytes);
        }
        let slices = Slices::of(header, packet, patch);
        rustix::io::writev(&self.queue, slices.as_slice())
    }

    fn broken(&self, action: &'static str, error: Errno) -> DeviceError {
        DeviceError::from_system(&self.info.name, action, error.into())
    }
}

/// What one read gave.
enum TunArrival {
    Packet(PacketBuf),
    Lost,
}

/// What became of one packet on its way out.
enum TunSent {
    Yes,
    NoRoom,
    Refused,
    Down,
}

fn open_node(device: &str) -> Result<File, DeviceError> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let node = OpenOptions::new().read(true).write(true).custom_flags(flags).open(TUN_NODE);
    node.map_err(|source| {
        let device = device.to_owned();
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => DeviceError::NotFound {
                device,
                missing: TUN_NODE,
                remedy: "load the module (`sudo modprobe tun`), or in a container pass the node in",
            },
            Some(libc::EACCES | libc::EPERM) => DeviceError::NoPrivilege {
                device,
                action: "open /dev/net/tun",
                missing: "read and write permission on /dev/net/tun",
            },
            _ => DeviceError::Io { device, action: "open /dev/net/tun", source },
        }
    })
}

/// Makes `queue` a queue of the interface, and returns the interface's name.
fn attach(
    queue: &File,
    name: &str,
    config: &TunConfig,
    multi: bool,
) -> Result<String, DeviceError> {
    const NAME: &str = "a name that is empty, longer than 15 bytes, or has a slash";
    let unsupported =
        |missing, remedy| DeviceError::Unsupported { device: name.to_owned(), missing, remedy };
    let mut request =
        interface::named(name).map_err(|_| unsupported(NAME, "choose another name"))?;
    let kind = match config.kind {
        TunKind::Tun => libc::IFF_TUN,
        TunKind::Tap => libc::IFF_TAP,
    };
    let header = if config.vnet_header { libc::IFF_VNET_HDR } else { 0 };
    let queues = if multi { libc::IFF_MULTI_QUEUE } else { 0 };
    request.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI | header | queues) as libc::c_short;
    // SAFETY: TUNSETIFF takes an `ifreq`, which outlives the call.
    let result = unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::EINVAL) => unsupported(
                "an interface of this name with another kind or number of queues",
                "delete that one (`ip link del <name>`), or choose another name",
            ),
            Some(libc::E2BIG) => unsupported("that many queues", "use fewer queues"),
            _ => DeviceError::from_system(name, "create or attach to the interface", error),
        });
    }
    if config.vnet_header {
        set_offload(queue, name)?;
    }
    Ok(interface::name_in(&request))
}

/// Enables the virtio header of 10 bytes, partial checksums and TCP GSO frames.
fn set_offload(queue: &File, name: &str) -> Result<(), DeviceError> {
    let fail = |action| DeviceError::from_system(name, action, io::Error::last_os_error());
    let bytes = VNET_BYTES as libc::c_int;
    // SAFETY: TUNSETVNETHDRSZ takes a pointer to an `int`, which outlives the call.
    let result = unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const bytes) };
    if result < 0 {
        return Err(fail("set the virtio header's size"));
    }
    let features = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    // SAFETY: TUNSETOFFLOAD takes a plain number.
    let result = unsafe {
        libc::ioctl(queue.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(features))
    };
    if result < 0 { Err(fail("switch offload on")) } else { Ok(()) }
}

fn control(name: &str) -> Result<InterfaceControl, DeviceError> {
    InterfaceControl::open().map_err(|e| DeviceError::from_system(name, "open a control socket", e))
}

/// Applies the configuration, and reads the interface's properties.
fn set_up(name: &str, config: &TunConfig) -> Result<DeviceInfo, DeviceError> {
    let control = control(name)?;
    let interface = control.interface(name);
    let fail = |action| move |e| DeviceError::from_system(name, action, e);
    if let Some(mtu) = config.mtu {
        interface.set_mtu(mtu).map_err(fail("set the MTU"))?;
    }
    // Where we may not, it stays as it is: only pauses are survived less well.
    if interface.queue_len().is_ok_and(|len| SYSTEM_QUEUES.contains(&len)) {
        let _ = interface.set_queue_len(QUEUE_PACKETS);
    }
    if config.up {
        interface.bring_up().map_err(fail("bring the interface up"))?;
    }
    Ok(DeviceInfo {
        name: name.to_owned(),
        medium: match config.kind {
            TunKind::Tun => Medium::Ip,
            TunKind::Tap => Medium::Ethernet,
        },
        mtu: interface.mtu().map_err(fail("read the MTU"))?,
        mac: interface.mac().map_err(fail("read the link address"))?,
        offload: config.vnet_header,
    })
}

impl Device for Tun {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        self.receive_while(pool, burst, &mut || true)
    }

    fn receive_while(
        &mut self,
        pool: &Pool,
        burst: &mut Burst,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<usize, DeviceError> {
        let mut taken = 0;
        // Lost packets count against the room too, so that a call ends.
        for read in 0..burst.room() {
            if read > 0 && !goes_on() {
                break;
            }
            match self.receive_one(pool) {
                Ok(Some(TunArrival::Packet(packet))) => {
                    self.stats.count_rx(packet.len());
                    let _ = burst.push(packet);
                    taken += 1;
                }
                Ok(Some(TunArrival::Lost)) => {}
                Ok(None) => break,
                Err(error) if taken == 0 => return Err(error),
                // The next call reports the error again.
                Err(_) => break,
            }
        }
        Ok(taken)
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        self.transmit_while(packets, &mut || true)
    }

    fn transmit_while(
        &mut self,
        packets: &mut PacketList,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<usize, DeviceError> {
        let mut left = 0;
        while !packets.is_empty() {
            let (count, sent) = match self.send_run(packets)? {
                Some(run) => run,
                None => match packets.iter().next() {
                    Some(packet) => (1, self.send_one(packet)?),
                    None => break,
                },
            };
            if matches!(sent, TunSent::NoRoom) {
                break;
            }
            for packet in core::iter::from_fn(|| packets.pop_front()).take(count) {
                match sent {
                    TunSent::Yes => self.stats.count_tx(packet.len()),
                    TunSent::Down => self.stats.tx_down += 1,
                    TunSent::Refused | TunSent::NoRoom => self.stats.tx_refused += 1,
                }
            }
            left += count;
            if !goes_on() {
                break;
            }
        }
        Ok(left)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.as_fd())
    }

    fn pending(&self) -> bool {
        false
    }

    fn reads_by_calls(&self) -> bool {
        true
    }

    fn ring(&self) -> usize {
        self.ring
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}
