//! `AfPacket`: an existing Ethernet interface of the host, through a packet socket.
//!
//! Called by programs that attach a stack to a real card or a veth without taking the card away
//! from the host: the host's own stack sees every frame too. Frames arrive in a ring that the
//! kernel fills (TPACKET_V3) and are copied once into the pool (`packet_arrival.rs`). They are sent
//! in batches by sendmmsg(2), which gathers a packet's chunks without a copy. With offload,
//! consecutive segments of a TCP flow leave as one GSO frame (`gso_join.rs`) within the
//! interface's limits and MTU; the kernel segments it where the interface cannot (TSO). What a
//! local sender or the kernel (GRO) has joined arrives as one GSO frame, and is segmented on
//! arrival without offload.
//!
//! Invariant: never blocks; our own frames do not come back; a frame that arrives while the pool is
//! empty is lost and counted; the kernel's own drop counter is read and added. The same interface
//! may be opened twice: both then see every frame.
//!
//! # Under flood
//! Any sender on the link can fill the ring. Bound: the configured blocks. Work per frame: one
//! copy. When full the kernel drops every frame, counted as `rx_ring_full`. A batch waits in the
//! kernel until its block is full or for 1 ms.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{Instant, MacAddr};
use floodwall_packet::{Burst, PacketBuf, PacketList, Pool, RxFilter, SynOffers};

use crate::af_xdp::packet_line::PacketLine;
use crate::device::{Device, DeviceInfo, Medium};
use crate::error::DeviceError;
use crate::first_line_place::FirstLinePlace;
use crate::first_line_report::FirstLineReport;
use crate::gather::Slices;
use crate::gso_join::{self, JoinRun};
use crate::interface::KernelInterface;
use crate::napi::half_thread::HalfThread;
use crate::napi::own_half::{OwnHalf, RUNS_MAX};
use crate::napi::{self, Placement};
use crate::napi_policy::NapiPriority;
use crate::napi_rank::NapiRank;
use crate::packet_arrival::{PacketArrival, arrive};
use crate::packet_ring::PacketRing;
use crate::service_sample::ServiceSample;
use crate::socket::{self, Accept, BATCH_MAX, Messages};
use crate::stats::DeviceStats;
use crate::super_limits::SuperLimits;
use crate::thread_time::ThreadTime;
use crate::vnet::{self, VNET_BYTES};

/// Bytes of the ring that a small frame takes, with its headers there and what blocks leave unused.
const SMALL_FRAME: usize = 256;
/// How long the kernel may keep frames to fill a block.
const BLOCK_MILLIS: u32 = 1;
/// Bytes of a block into which the largest GSO frame fits.
const SUPER_BLOCK: usize = 128 << 10;
/// Bytes below which a joined frame stays, unless the administrator raised that limit.
const SUPER_MAX: usize = 64 << 10;
/// Bytes that may wait in the kernel on their way out.
const SEND_BYTES: libc::c_int = 4 << 20;
/// How often in a row the kernel may have no buffer for the same packet before it is refused: a
/// card drops some packets for good under this name, and must not hold up all behind them.
const STUCK_MAX: u32 = 1000;
/// Bytes of the link header, and of a tag behind its addresses.
const LINK_BYTES: usize = 14;
const TAG_BYTES: usize = 4;

/// How an interface is opened.
#[derive(Clone, Debug)]
pub struct AfPacketConfig {
    /// Which frames.
    pub accept: Accept,
    /// Bytes of a block of the ring: a multiple of the page, 64 KiB by measurement. With offload
    /// at least 128 KiB, so that a GSO frame fits.
    pub block_bytes: usize,
    /// Blocks of the ring.
    pub blocks: usize,
    /// Whether to see frames for other link addresses than the interface's own. A stack with an
    /// address of its own needs it.
    pub promiscuous: bool,
    /// Whether GSO frames cross: those that arrive as such, and those that segments in a row are
    /// joined to as they leave, for the interface to cut. Else they are cut as they arrive, and
    /// refused where they shall leave. Partial checksums cross in any case.
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

/// A device on a packet socket (AF_PACKET) of an existing Ethernet interface.
#[derive(Debug)]
pub struct AfPacket {
    info: DeviceInfo,
    socket: OwnedFd,
    ring: PacketRing,
    /// Which piece of the ring's front frame is next, where that one is cut on its way in.
    piece: usize,
    /// How long what leaves as one may be.
    limits: SuperLimits,
    /// Whether segments are joined: until the kernel rejects some.
    joins: bool,
    /// Whether the MTU was looked at in this call.
    knows_mtu: bool,
    /// How often in a row the kernel had no room for the packet at the front.
    stuck: u32,
    /// The interface has been down: it may have come back, or be deleted. Never reset: frames that
    /// the kernel delivers late do not prove that it exists, and a deletion has no other sign.
    down: bool,
    stats: DeviceStats,
    /// Sum of the drops that the kernel has reported.
    ring_full: Cell<u64>,
    /// Where the kernel's half runs; given back when this is dropped.
    placement: Option<Placement>,
    /// The worker's first call is still to take the turns of the kernel's half beside it.
    takes_turns: bool,
    /// Its kernel half is a thread on the worker's core.
    beside: bool,
    /// The threads of the kernel's half there; whether their place is before the worker.
    halves: Vec<HalfThread>,
    goes_first: bool,
    own_half: OwnHalf,
    /// The program at the interface, where there is one.
    line: Option<PacketLine>,
    /// What is said where there is none.
    no_line: FirstLineReport,
}

impl AfPacket {
    /// Opens the interface `name`, which must exist and be Ethernet's kind.
    ///
    /// # Errors
    /// No privilege, no such interface, another kind of interface, or no memory for the ring.
    pub fn open(name: &str, config: &AfPacketConfig) -> Result<Self, DeviceError> {
        let socket = socket::open().map_err(fail(name, "open a packet socket"))?;
        let interface = KernelInterface { socket: &socket, name };
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
        Ok(Self {
            joins: config.offload,
            info,
            socket,
            ring,
            piece: 0,
            limits: SuperLimits::of(name).unwrap_or(SuperLimits::USUAL),
            knows_mtu: false,
            stuck: 0,
            down: false,
            stats: DeviceStats::default(),
            ring_full: Cell::new(0),
            placement: None,
            takes_turns: false,
            beside: false,
            halves: Vec::new(),
            goes_first: false,
            own_half: OwnHalf::default(),
            line: None,
            no_line: FirstLineReport::missing("no link address of ours is known"),
        })
    }

    /// Notes for the operator on the interface.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let (name, joined) = (&self.info.name, self.limits.joined);
        if joined <= SUPER_MAX {
            return Vec::new();
        }
        vec![format!(
            "{name} joins what arrives to up to {joined} bytes, and what is beyond 64 KiB is lost: \
             do `ip link set {name} gro_max_size 65536 gro_ipv4_max_size 65536`"
        )]
    }

    /// Keeps a place for the kernel's half, until the device closes.
    pub fn place(&mut self, mut placement: Placement) {
        self.halves = placement.halves();
        self.beside = placement.is_beside();
        self.takes_turns = self.beside;
        self.placement = Some(placement);
    }

    /// Keeps the program at the interface, until the device closes.
    pub(crate) fn set_line(&mut self, station: MacAddr, line: Result<PacketLine, String>) {
        match line {
            Ok(line) => {
                // Answers may pass by here, and would be copied for nothing.
                let _ = socket::filter(self.socket.as_fd(), Accept::NotOf(station));
                self.line = Some(line);
            }
            Err(reason) => self.no_line = FirstLineReport::missing(&reason),
        }
    }

    /// Whether a program is at the interface for as long as the device is open.
    pub(crate) fn has_program(&self) -> bool {
        self.line.as_ref().is_some_and(|line| !line.is_on_demand())
    }

    /// Where the kernel's half runs, if that was arranged.
    #[must_use]
    pub const fn placement(&self) -> Option<&Placement> {
        self.placement.as_ref()
    }

    /// Follows the program, which comes to the interface and leaves it: while it is there the
    /// kernel's half goes before the worker, because it answers and drops most of what arrives;
    /// else it goes behind, or the worker would get no time.
    fn follow_line(&mut self) {
        let Some(line) = self.line.as_ref().filter(|line| line.is_on_demand()) else { return };
        let goes_first = line.is_attached();
        if core::mem::replace(&mut self.goes_first, goes_first) != goes_first {
            let place = if goes_first { NapiPriority::Choosing } else { NapiPriority::Behind };
            self.halves.iter_mut().for_each(|half| half.place(place));
        }
    }

    /// Whether the kernel's half runs within our calls, taken from its thread.
    fn has_taken_half(&self) -> bool {
        self.halves.iter().any(HalfThread::is_taken)
    }

    /// Runs a half that was taken from its thread: until a block of frames waits or the card's ring
    /// is empty, and [`RUNS_MAX`] times at most.
    fn run_taken_half(&mut self) {
        let mut seen = self.seen();
        for run in 0..RUNS_MAX {
            if self.ring.is_ready() {
                break;
            }
            self.halves.iter_mut().for_each(|half| half.poll(run > 0));
            let before = core::mem::replace(&mut seen, self.seen());
            if self.own_half.ran_judged(seen.saturating_sub(before)) {
                break;
            }
        }
    }

    /// Frames of the block that is being filled, and all that were dropped or answered at the
    /// interface since the start.
    fn seen(&self) -> u64 {
        let judged = self.line.as_ref().map_or(0, PacketLine::judged);
        judged + u64::from(self.ring.filled())
    }

    /// Looks why nothing arrives: once the interface has been down, whether it still exists.
    fn check(&mut self) -> Result<(), DeviceError> {
        match rustix::net::sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => {}
            Ok(Err(_)) => self.down = true,
            Err(error) => return Err(self.broken("read the socket's error", error.into())),
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

    /// Bytes of the largest IP packet that the interface carries now. Read once a call, and only
    /// for GSO frames: for all others the kernel checks the MTU.
    fn mtu(&mut self) -> usize {
        if !self.knows_mtu {
            self.knows_mtu = true;
            let name = socket::bound_index(self.socket.as_fd())
                .and_then(|index| crate::interface::name_by(&self.socket, index))
                .unwrap_or_default();
            let interface = KernelInterface { socket: &self.socket, name: &name };
            self.info.mtu = interface.mtu().unwrap_or(self.info.mtu);
        }
        self.info.mtu as usize
    }

    /// Sends the front of the list as one GSO frame, where it is one; how many left the list.
    fn send_run(&mut self, packets: &mut PacketList) -> Result<Option<usize>, DeviceError> {
        if !self.joins || packets.len() < 2 {
            return Ok(None);
        }
        let Some(run) = JoinRun::at_front(packets, self.info.medium, &self.limits.run) else {
            return Ok(None);
        };
        if run.piece > self.mtu() {
            return Ok(None);
        }
        let sent = {
            let slices = run.slices(packets);
            let mut messages = Messages::new();
            messages.push(slices.as_slice());
            messages.send(self.socket.as_fd())
        };
        match sent {
            Ok(_) => Ok(Some(self.left(packets, run.count))),
            // Nothing is lost: they leave one by one, as all do from now on.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EMSGSIZE)) => {
                self.joins = false;
                Ok(None)
            }
            Err(error) => self.not_sent(packets, &error).map(Some),
        }
    }

    /// Sends the front of the list by one call; how many left the list. 0 where there is no room.
    fn send_batch(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        let mut headers = [[0; VNET_BYTES]; BATCH_MAX];
        let alone = match self.joins {
            true => gso_join::alone(packets, self.info.medium, BATCH_MAX),
            false => BATCH_MAX,
        };
        let mut ready = 0;
        for (packet, header) in packets.iter().zip(&mut headers).take(alone) {
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

    /// The virtio header for a packet; `None` where it cannot be sent.
    fn header_of(&mut self, packet: &PacketBuf) -> Option<[u8; VNET_BYTES]> {
        if let Some(cut) = packet.offload().filter(|offload| offload.gso_type != 0) {
            let is_tagged = packet.first().get(LINK_BYTES - 2..LINK_BYTES) == Some(&[0x81, 0x00]);
            let link = if is_tagged { LINK_BYTES + TAG_BYTES } else { LINK_BYTES };
            let piece = usize::from(cut.header_len) + usize::from(cut.gso_size);
            if !self.info.offload || piece > link + self.mtu() {
                return None;
            }
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

/// Sets everything but the ring, in the order that the kernel requires: before the bind.
fn set_options(fd: BorrowedFd<'_>, info: &DeviceInfo) -> Result<(), DeviceError> {
    let name = info.name.as_str();
    let bypass = libc::c_int::from(!info.offload);
    let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
    let options = [
        (libc::PACKET_VERSION, version, "rings of version 3"),
        (libc::PACKET_VNET_HDR, 1, "the virtio header on packet sockets"),
        (libc::PACKET_IGNORE_OUTGOING, 1, "leaving out the frames that we send ourselves"),
        // Past the discipline the kernel would drop a GSO frame that the card cannot cut.
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

impl Device for AfPacket {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        let mut taken = 0;
        let mut looked = 0_u64;
        if core::mem::take(&mut self.takes_turns) {
            napi::take_turns();
        }
        if self.has_taken_half() {
            self.run_taken_half();
        } else if let Some(placement) = &mut self.placement {
            match self.ring.is_ready() {
                true => placement.hold(),
                false => placement.poll(),
            }
        }
        // Lost frames count against the room too, so that a call ends.
        for _ in 0..burst.room() {
            let (piece, joined) = (&mut self.piece, self.info.offload);
            let arrival = self.ring.with_next(|frame| {
                let arrival = arrive(&frame, pool, joined, piece);
                (arrival, *piece == 0)
            });
            let Some(arrival) = arrival else { break };
            looked += 1;
            match arrival {
                PacketArrival::Packet(packet) => {
                    self.stats.count_rx(packet.len());
                    if let Some(line) = &mut self.line {
                        line.sees(packet.first());
                    }
                    let _ = burst.push(packet);
                    taken += 1;
                }
                PacketArrival::NoBuffer => self.stats.rx_no_buffer += 1,
                PacketArrival::Truncated => self.stats.rx_truncated += 1,
                PacketArrival::Malformed => self.stats.rx_malformed += 1,
            }
        }
        if let Some(line) = &mut self.line {
            line.took(looked, !self.ring.is_ready());
        }
        if looked == 0 && burst.room() > 0 {
            self.check()?;
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
        self.knows_mtu = false;
        while !packets.is_empty() {
            let sent = match self.send_run(packets)? {
                Some(sent) => sent,
                None => self.send_batch(packets)?,
            };
            match sent {
                0 => break,
                sent => left += sent,
            }
            if !goes_on() {
                break;
            }
        }
        Ok(left)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn rest(&mut self) {
        let room = if self.beside { BURST_MAX } else { self.ring() / 2 };
        if let Some(line) = &mut self.line {
            line.rest(room);
        }
        if let Some(placement) = &mut self.placement {
            placement.rest();
        }
    }

    fn rank_half(&mut self, rank: NapiRank) {
        self.halves.iter_mut().for_each(|half| half.set_rank(rank));
        if !self.has_taken_half() {
            self.own_half = OwnHalf::default();
        }
    }

    fn half_time(&self) -> ThreadTime {
        let times = self.halves.iter().filter_map(HalfThread::time);
        times.fold(ThreadTime::default(), core::ops::Add::add)
    }

    fn admit(&mut self, now: Instant, credit: Option<usize>) {
        self.follow_line();
        if let Some(line) = &mut self.line {
            // As many as the worker handles before the ring has to be seen to again.
            let places =
                if self.beside { 2 * BURST_MAX } else { self.ring.bytes() / SMALL_FRAME / 2 };
            line.admit(now, credit, places);
        }
    }

    fn want(&mut self, wanted: &RxFilter) {
        if let Some(line) = &mut self.line {
            line.want(wanted);
        }
    }

    fn answer_syns(&mut self, offers: &SynOffers) {
        if let Some(line) = &self.line {
            line.answer_syns(offers);
        }
    }

    fn has_answered_syns(&self, now: Instant) -> bool {
        self.line.as_ref().is_some_and(|line| line.has_answered_syns(now))
    }

    fn knows_established_flows(&self) -> bool {
        self.line.is_some()
    }

    fn first_line(&self) -> FirstLinePlace {
        match self.line.as_ref().map(PacketLine::is_attached) {
            None => FirstLinePlace::None,
            Some(true) => FirstLinePlace::Attached,
            Some(false) => FirstLinePlace::OnDemand,
        }
    }

    fn first_line_report(&self) -> FirstLineReport {
        self.line.as_ref().map_or_else(|| self.no_line.clone(), PacketLine::report)
    }

    fn sampled_services(&self) -> Vec<ServiceSample> {
        self.line.as_ref().map(PacketLine::sampled_services).unwrap_or_default()
    }

    fn has_overflowed(&mut self) -> bool {
        // More waits at the card than our own polls take: what is unverified must be dropped there.
        let is_behind = self.own_half.has_left_some();
        self.line.as_mut().is_some_and(PacketLine::has_overflowed) || is_behind
    }

    fn mark_established(&mut self, now: Instant, established: &PacketBuf) {
        if let Some(line) = &mut self.line {
            line.mark_established(now, established.first());
        }
    }

    fn waits_for_core(&self) -> bool {
        self.beside
            && !self.has_taken_half()
            && self.line.as_ref().is_some_and(PacketLine::is_attached)
    }

    fn pending(&self) -> bool {
        self.ring.is_ready() || self.own_half.has_left_some()
    }

    fn ring(&self) -> usize {
        self.ring.bytes() / SMALL_FRAME
    }

    fn stats(&self) -> DeviceStats {
        let dropped = socket::take_drops(self.socket.as_fd()).unwrap_or(0);
        self.ring_full.set(self.ring_full.get() + u64::from(dropped));
        let mut all = DeviceStats { rx_ring_full: self.ring_full.get(), ..self.stats };
        if let Some(line) = &self.line {
            line.count(&mut all);
        }
        all
    }
}
