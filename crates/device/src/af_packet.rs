//! `AfPacket`: an existing Ethernet interface of the host, through a packet socket.
//!
//! Called by whoever puts a stack onto a real card or a veth without taking the card away from the
//! host: the host's own stack sees every frame too. Frames arrive in a ring that the kernel fills
//! (TPACKET_V3) and are copied once into the pool; they leave by batches of sendmmsg(2).
//!
//! Invariant: never blocks; our own frames do not come back; a frame that arrives while the pool
//! is empty is lost and counted; what the kernel dropped before is read from it and counted.
//! Nobody is kept from opening the same interface twice: both then see every frame.
//!
//! # Under flood
//! Anyone on the link fills the ring. Bound: the configured blocks. Work per frame: one copy. When
//! full the kernel drops blindly, friend and foe, which is `rx_ring_full`. A batch waits in the
//! kernel until its block is full or for 1 ms.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use floodwall_packet::{Burst, ChecksumState, PacketBuf, PacketList, Pool};

use crate::copy;
use crate::device::{Device, DeviceInfo, Medium};
use crate::error::DeviceError;
use crate::gather::Slices;
use crate::interface::Interface;
use crate::packet_ring::{PacketRing, RingFrame};
use crate::placement::Placement;
use crate::socket::{self, BATCH_MAX, Messages};
use crate::stats::DeviceStats;
use crate::vnet::{self, VNET_BYTES};

/// Bytes of the ring that a small frame takes, with its headers there and what blocks leave unused.
const SMALL_FRAME: usize = 256;
/// How long the kernel may keep frames to fill a block.
const BLOCK_MILLIS: u32 = 1;
/// Bytes of a block into which the largest super-frame fits.
const SUPER_BLOCK: usize = 128 << 10;
/// Bytes that may wait in the kernel on their way out.
const SEND_BYTES: libc::c_int = 4 << 20;
/// How often in a row the kernel may have no buffer for the same packet before it is refused: a
/// card drops some packets for good under this name, and must not hold up all behind them.
const STUCK_MAX: u32 = 1000;
/// Bytes of both link addresses: a tag stands behind them.
const ADDRESSES: usize = 12;

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
    /// None: it only tells whether the interface is there.
    Nothing,
}

/// How an interface is opened.
#[derive(Clone, Debug)]
pub struct AfPacketConfig {
    /// Which frames.
    pub accept: Accept,
    /// Bytes of a block of the ring: a multiple of the page, 64 KiB by measurement. With offload
    /// at least 128 KiB, so that a super-frame fits.
    pub block_bytes: usize,
    /// Blocks of the ring.
    pub blocks: usize,
    /// Whether to see frames for other link addresses than the interface's own. A stack with an
    /// address of its own needs it.
    pub promiscuous: bool,
    /// Whether super-frames and partial checksums are transmitted as such, for the interface to
    /// cut and to complete. They arrive in any case where the sender is on the same machine.
    pub offload: bool,
}

impl Default for AfPacketConfig {
    fn default() -> Self {
        Self {
            accept: Accept::All,
            block_bytes: 64 << 10,
            blocks: 64,
            promiscuous: true,
            offload: false,
        }
    }
}

/// See the file's head.
#[derive(Debug)]
pub struct AfPacket {
    info: DeviceInfo,
    socket: OwnedFd,
    ring: PacketRing,
    /// How often in a row the kernel had no room for the packet at the front.
    stuck: u32,
    /// The interface has been down: it may have come back, or be deleted. Never forgotten: frames
    /// that the kernel shows late say nothing about it, and of a deletion there is no other sign.
    down: bool,
    stats: DeviceStats,
    /// What the kernel says that it dropped, summed up.
    ring_full: Cell<u64>,
    /// Where the kernel's half runs; given back when this is dropped.
    placement: Option<Placement>,
}

impl AfPacket {
    /// Opens the interface `name`, which must exist and be Ethernet's kind.
    ///
    /// # Errors
    /// No privilege, no such interface, another kind of interface, or no memory for the ring.
    pub fn open(name: &str, config: &AfPacketConfig) -> Result<Self, DeviceError> {
        let socket = socket::open().map_err(fail(name, "open a packet socket"))?;
        let interface = Interface { socket: &socket, name };
        let index = interface.index().map_err(|e| not_found(name, e))?;
        let mac = interface.mac().map_err(fail(name, "read the link address"))?;
        if mac.is_none() {
            return Err(DeviceError::Unsupported {
                device: name.to_owned(),
                missing: "a packet socket on an interface without Ethernet addresses",
                remedy: "route into a TUN instead",
            });
        }
        let info = DeviceInfo {
            name: name.to_owned(),
            medium: Medium::Ethernet,
            mtu: interface.mtu().map_err(fail(name, "read the MTU"))?,
            mac,
            offload: config.offload,
        };
        let fd = socket.as_fd();
        set_options(fd, &info)?;
        socket::filter(fd, config.accept).map_err(fail(name, "choose frames"))?;
        let least = if config.offload { SUPER_BLOCK } else { 4096 };
        let block_bytes = config.block_bytes.max(least).next_multiple_of(4096);
        let ring = PacketRing::map(fd, block_bytes, config.blocks.max(2), BLOCK_MILLIS)
            .map_err(fail(name, "make the receive ring"))?;
        socket::bind(fd, index).map_err(fail(name, "bind to the interface"))?;
        if config.promiscuous {
            let wish = libc::packet_mreq {
                mr_ifindex: index,
                mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            socket::set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &wish)
                .map_err(fail(name, "see frames for other addresses"))?;
        }
        let (stats, ring_full) = (DeviceStats::default(), Cell::new(0));
        let (stuck, down, placement) = (0, false, None);
        Ok(Self { info, socket, ring, stuck, down, stats, ring_full, placement })
    }

    /// Keeps a place for the kernel's half, until the device closes.
    pub fn place(&mut self, placement: Placement) {
        self.placement = Some(placement);
    }

    /// Where the kernel's half runs, if that was arranged.
    #[must_use]
    pub const fn placement(&self) -> Option<&Placement> {
        self.placement.as_ref()
    }

    /// Looks why nothing arrives: once the interface has been down, whether it still exists.
    fn check(&mut self) -> Result<(), DeviceError> {
        match rustix::net::sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => {}
            Ok(Err(_)) => self.down = true,
            Err(error) => return Err(self.broken("ask for errors", error.into())),
        }
        if self.down && self.is_deleted() { Err(self.gone()) } else { Ok(()) }
    }

    fn is_deleted(&self) -> bool {
        socket::bound_index(self.socket.as_fd()).is_ok_and(|index| index < 0)
    }

    fn gone(&self) -> DeviceError {
        DeviceError::Gone { device: self.info.name.clone() }
    }

    fn broken(&self, action: &'static str, error: io::Error) -> DeviceError {
        fail(&self.info.name, action)(error)
    }

    /// Sends the front of the list by one call; how many left the list. 0 where there is no room.
    fn send_batch(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        let mut headers = [[0; VNET_BYTES]; BATCH_MAX];
        let mut ready = 0;
        for (packet, header) in packets.iter().zip(&mut headers) {
            let Some(told) = self.header_of(packet) else { break };
            *header = told;
            ready += 1;
        }
        if ready == 0 {
            return Ok(self.refuse(packets));
        }
        let mut slices = Slices::new();
        let mut ends = [0; BATCH_MAX];
        let mut count = 0;
        for ((packet, header), end) in packets.iter().zip(&headers).zip(&mut ends).take(ready) {
            let Some(len) = slices.add(header, packet) else { break };
            *end = len;
            count += 1;
        }
        let mut messages = Messages::new();
        let mut start = 0;
        for end in ends.iter().take(count) {
            messages.push(slices.as_slice().get(start..*end).unwrap_or_default());
            start = *end;
        }
        let result = messages.send(self.socket.as_fd());
        match result {
            Ok(sent) => Ok(self.left(packets, sent)),
            Err(error) => self.not_sent(packets, &error),
        }
    }

    /// What the kernel is to be told of a packet; `None` where it cannot be sent.
    fn header_of(&self, packet: &PacketBuf) -> Option<[u8; VNET_BYTES]> {
        let cut = packet.offload().is_some_and(|o| o.gso_type != 0);
        if cut && !self.info.offload {
            return None;
        }
        vnet::header_of(packet)
    }

    fn left(&mut self, packets: &mut PacketList, sent: usize) -> usize {
        self.stuck = 0;
        for packet in core::iter::from_fn(|| packets.pop_front()).take(sent) {
            self.stats.count_tx(packet.len());
        }
        sent
    }

    fn refuse(&mut self, packets: &mut PacketList) -> usize {
        self.stuck = 0;
        let dropped = usize::from(packets.pop_front().is_some());
        self.stats.tx_refused += dropped as u64;
        dropped
    }

    /// What the kernel's refusal of the first packet means.
    fn not_sent(
        &mut self,
        packets: &mut PacketList,
        error: &io::Error,
    ) -> Result<usize, DeviceError> {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(0),
            Some(libc::ENOBUFS | libc::ENOMEM) if self.stuck < STUCK_MAX => {
                self.stuck += 1;
                Ok(0)
            }
            Some(libc::ENXIO | libc::ENODEV) => Err(self.gone()),
            Some(libc::ENETDOWN) if self.is_deleted() => Err(self.gone()),
            Some(libc::ENETDOWN) => {
                let dropped = usize::from(packets.pop_front().is_some());
                self.stats.tx_down += dropped as u64;
                Ok(dropped)
            }
            _ => Ok(self.refuse(packets)),
        }
    }
}

/// Everything but the ring, in the order in which the kernel wants it: before the socket is bound.
fn set_options(fd: BorrowedFd<'_>, info: &DeviceInfo) -> Result<(), DeviceError> {
    let name = info.name.as_str();
    let bypass = libc::c_int::from(!info.offload);
    let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
    let options = [
        (libc::PACKET_VERSION, version, "rings of version 3"),
        (libc::PACKET_VNET_HDR, 1, "the virtio header on packet sockets"),
        (libc::PACKET_IGNORE_OUTGOING, 1, "leaving out the frames that we send ourselves"),
        // Past the discipline the kernel would drop a super-frame that the card cannot cut.
        (libc::PACKET_QDISC_BYPASS, bypass, "sending past the queueing discipline"),
    ];
    for (option, value, missing) in options {
        socket::set_option(fd, libc::SOL_PACKET, option, &value).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::ENOPROTOOPT | libc::EINVAL) => DeviceError::Unsupported {
                    device: name.to_owned(),
                    missing,
                    remedy: "it needs Linux 4.20 or newer; a TAP behind a bridge needs less",
                },
                _ => fail(name, "set up the packet socket")(error),
            }
        })?;
    }
    // Beyond the system's bound where we may; else what it grants.
    let forced =
        socket::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BYTES).is_ok();
    if !forced {
        let _ = socket::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BYTES);
    }
    Ok(())
}

fn fail(name: &str, action: &'static str) -> impl Fn(io::Error) -> DeviceError {
    move |source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            DeviceError::NoPrivilege { device: name.to_owned(), action, missing: "CAP_NET_RAW" }
        }
        _ => DeviceError::from_system(name, action, source),
    }
}

pub(crate) fn not_found(name: &str, source: io::Error) -> DeviceError {
    match source.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO) => DeviceError::NotFound {
            device: name.to_owned(),
            missing: "an interface of this name",
            remedy: "`ip link` lists those of this network namespace",
        },
        _ => DeviceError::from_system(name, "look for the interface", source),
    }
}

/// What became of one frame of the ring.
enum Arrival {
    Packet(PacketBuf),
    NoBuffer,
    Truncated,
    Malformed,
}

/// Copies one frame into the pool, its tag put back.
fn arrive(frame: &RingFrame<'_>, pool: &Pool) -> Arrival {
    if frame.bytes.len() < frame.wire_len {
        return Arrival::Truncated;
    }
    let (addresses, rest) = frame.bytes.split_at(ADDRESSES.min(frame.bytes.len()));
    let (protocol, value) = frame.vlan.unwrap_or_default();
    let ([a, b], [c, d]) = (protocol.to_be_bytes(), value.to_be_bytes());
    let tag = [a, b, c, d];
    let tag = if frame.vlan.is_some() { &tag[..] } else { &[] };
    let total = frame.bytes.len() + tag.len();
    let Some(mut packet) = copy::assemble(pool, total, [addresses, tag, rest]) else {
        return Arrival::NoBuffer;
    };
    let mut offload = vnet::decode(frame.vnet);
    // The kernel counts from the frame without the tag.
    let moved = tag.len() as u16;
    if offload.flags & 1 != 0 {
        offload.checksum_start = offload.checksum_start.saturating_add(moved);
    }
    if offload.header_len != 0 {
        offload.header_len = offload.header_len.saturating_add(moved);
    }
    if !vnet::describe(&mut packet, offload) {
        return Arrival::Malformed;
    }
    if frame.status & libc::TP_STATUS_CSUM_VALID != 0
        && packet.checksum_state() == ChecksumState::Unverified
    {
        packet.set_checksum_state(ChecksumState::Verified);
    }
    Arrival::Packet(packet)
}

impl Device for AfPacket {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        let mut taken = 0;
        let mut looked = 0;
        if let Some(placement) = &mut self.placement {
            match self.ring.is_ready() {
                true => placement.hold(),
                false => placement.poll(),
            }
        }
        // Lost frames count against the room too, so that a call ends.
        for _ in 0..burst.room() {
            let Some(arrival) = self.ring.with_next(|frame| arrive(&frame, pool)) else { break };
            looked += 1;
            match arrival {
                Arrival::Packet(packet) => {
                    self.stats.count_rx(packet.len());
                    let _ = burst.push(packet);
                    taken += 1;
                }
                Arrival::NoBuffer => self.stats.rx_no_buffer += 1,
                Arrival::Truncated => self.stats.rx_truncated += 1,
                Arrival::Malformed => self.stats.rx_malformed += 1,
            }
        }
        if looked == 0 && burst.room() > 0 {
            self.check()?;
        }
        Ok(taken)
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        let mut left = 0;
        while !packets.is_empty() {
            match self.send_batch(packets)? {
                0 => break,
                sent => left += sent,
            }
        }
        Ok(left)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn rest(&mut self) {
        if let Some(placement) = &mut self.placement {
            placement.rest();
        }
    }

    fn pending(&self) -> bool {
        self.ring.is_ready()
    }

    fn ring(&self) -> usize {
        self.ring.bytes() / SMALL_FRAME
    }

    fn stats(&self) -> DeviceStats {
        let dropped = socket::take_drops(self.socket.as_fd()).unwrap_or(0);
        self.ring_full.set(self.ring_full.get() + u64::from(dropped));
        DeviceStats { rx_ring_full: self.ring_full.get(), ..self.stats }
    }
}
