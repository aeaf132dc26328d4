//! `AfXdp`: an existing Ethernet interface of the host, by sockets that share our memory with it.
//!
//! Called by programs that attach a stack to a real card or a veth at full rate without taking the
//! card away from the host. An XDP program (`af_xdp/steering.rs`) redirects frames for our
//! station's link address to the socket of their receive queue, straight into the packet pool. All
//! other frames go to the host's own stack. Groups and broadcasts belong to both: the host gets
//! them, and the device of the first queue takes a copy through a packet socket.
//!
//! Invariants: never blocks; a frame is in the pool, at the kernel, or counted as lost; nothing is
//! left behind when the devices are dropped or the process ends, however it ends. Memory is shared
//! with the kernel at the first call of [`Device::receive`], which has the pool. Reading: the
//! kernel's `Documentation/networking/af_xdp.rst`. Not here: GSO frames; frames longer than one
//! frame of the pool.
//!
//! # Under flood
//! Any sender on the link can fill the receive ring. Bound: [`AfXdpConfig::ring`] frames a queue.
//! When it is full the kernel drops every frame, counted as `rx_ring_full`. Before that point the
//! program passes established flows and limits unverified ones to what the worker can handle
//! (`af_xdp/filter.rs`). Work per frame: two ring entries, no copy of ours. Groups have a ring of
//! their own, so that neither crowds out the other, and a credit by time
//! (`af_xdp/group_credit.rs`), since the host works on each of them, too.

mod attach;
pub(crate) mod bpf;
mod card;
mod cookie_programs;
mod cookies;
mod demand;
mod destination_maps;
mod failure;
pub(crate) mod features;
mod filter;
mod filter_tables;
mod first_line;
mod group_credit;
mod line_lacks;
mod line_report;
mod line_switch;
mod link_station;
pub(crate) mod mapped_words;
pub(crate) mod packet_line;
mod partial;
mod program_switch;
mod queue;
mod redirects;
mod ring;
mod shared;
mod steering;
mod waiting_frames;
mod way_back;
pub(crate) mod xdp_abi;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{Instant, MacAddr};
use floodwall_packet::{
    Burst, Class, PacketBuf, PacketList, Pool, PoolConfig, RedirectOffer, RxFilter, SynOffers,
};
use rustix::event::epoll;

use self::attach::attach;
use self::card::Card;
use self::cookies::CookieProgramPlan;
use self::failure::{failed, unsupported};
use self::filter::{FilterTurn, XdpFilter};
use self::filter_tables::FilterUpdate;
pub use self::first_line::{FirstLine, FirstLineState};
use self::line_report::LineMoment;
use self::link_station::LinkStation;
use self::queue::{QueueArrival, XdpQueue};
use self::redirects::XdpRedirects;
use self::steering::QueueSteering;
use self::waiting_frames::WaitingFrames;
use crate::af_packet::{AfPacket, AfPacketConfig};
use crate::device::{Device, DeviceInfo, Medium};
use crate::error::DeviceError;
use crate::first_line_mode::FirstLineMode;
use crate::first_line_place::FirstLinePlace;
use crate::first_line_report::FirstLineReport;
use crate::interface::InterfaceControl;
use crate::napi::half_thread::HalfThread;
use crate::napi::own_half::{OwnHalf, RUNS_MAX};
use crate::napi::{self, Placement};
use crate::napi_rank::NapiRank;
use crate::service_sample::ServiceSample;
use crate::socket::Accept;
use crate::stats::DeviceStats;
use crate::thread_time::ThreadTime;
use crate::vnet::{self, Completion};
use crate::xdp_mode::XdpMode;

/// What the kernel keeps free in front of a frame that arrives, and what the link header needs.
const FRAME_FRONT: usize = 256;
const LINK_BYTES: usize = 18;
/// Frames kept for copies of packets that span several frames.
const SPARE_FRAMES: usize = 256;
/// Tries to get a queue that its last owner has just left.
const TRIES_MAX: u32 = 20_000;
/// How often in a row the kernel's half is run for one burst, at most.
const POLLS_MAX: u32 = 4;
/// Entries of the rings by which the memory is tried out when a device opens.
const TRIAL_ENTRIES: u32 = 64;

/// How an interface is opened.
#[derive(Clone, Debug)]
pub struct AfXdpConfig {
    /// The link address of the stack behind the device. It may be the interface's own, which the
    /// host keeps: then packets for an address that the stack accepts ([`Device::want`]) come here,
    /// and the rest goes to the host.
    pub station: MacAddr,
    /// How many of the interface's receive queues; `None` is all. Frames for us on another queue
    /// are lost: fewer queues only make sense where the card's RSS or flow rules are set
    /// accordingly.
    pub queues: Option<usize>,
    /// By which way.
    pub mode: XdpMode,
    /// Entries of each ring of a queue: a power of two. So many frames of the pool wait for what
    /// arrives.
    pub ring: u32,
    /// Bytes of a frame of the pool: 2048 or 4096.
    pub frame_bytes: usize,
    /// What the program at the interface does besides steering.
    pub first_line: FirstLineMode,
    /// Whether under pressure frames of established flows cost tokens that their progress earns,
    /// and their prefixes have a share; where false, replays of real connections fill the ring
    /// before newcomers.
    pub flow_credit: bool,
    /// Frames for our station are dropped at the interface.
    pub sends_only: bool,
}

impl AfXdpConfig {
    /// All queues of the interface, by the best way that there is.
    #[must_use]
    pub const fn new(station: MacAddr) -> Self {
        Self {
            station,
            queues: None,
            mode: XdpMode::Auto,
            ring: 1024,
            frame_bytes: 2048,
            first_line: FirstLineMode::Auto,
            flow_credit: true,
            sends_only: false,
        }
    }
}

/// What all queues of an interface share.
#[derive(Debug)]
struct SharedUmem {
    steering: QueueSteering,
    index: u32,
    /// Whether senders on the other side leave their checksums to us.
    local: bool,
    ring: u32,
    /// `XDP_COPY` or `XDP_ZEROCOPY`.
    bind: u16,
    sends_only: bool,
    /// Why packets may not pass by way of the driver alone, where that is so.
    no_redirect: Option<&'static str>,
}

/// An AF_XDP device: one receive queue of an interface.
#[derive(Debug)]
pub struct AfXdp {
    info: DeviceInfo,
    shared: Arc<SharedUmem>,
    number: u32,
    /// The socket before its memory is registered, until the first call brings the pool.
    unattached: Option<OwnedFd>,
    tries: u32,
    queue: Option<XdpQueue>,
    /// Groups, and whether the interface is still there.
    groups: AfPacket,
    /// Readable when either has something.
    either: OwnedFd,
    /// Frames for copies of packets that span several frames.
    spares: PacketList,
    /// The thread of this queue's kernel half.
    half: Option<HalfThread>,
    placement: Option<Placement>,
    /// Its kernel half is a thread on the worker's core.
    beside: bool,
    turn: FilterTurn,
    /// The last report to the program of what the stack accepts.
    told: Option<FilterUpdate>,
    /// State of our own NAPI polls (busy polling).
    own_half: OwnHalf,
    /// The kernel had no empty frame left.
    overflowed: bool,
    /// Frames taken out of the ring since the start, and which of those in it are unverified.
    took: u64,
    waiting: WaitingFrames,
    stats: DeviceStats,
}

/// What [`AfXdp::open`] gives.
#[derive(Debug)]
pub struct OpenedXdp {
    /// One device a queue.
    pub queues: Vec<AfXdp>,
    /// How it was got, and why not better.
    pub notes: Vec<String>,
}

impl AfXdp {
    /// Opens the interface `name`, which must exist and be Ethernet's kind, and attaches the
    /// program. Costs some system calls and, for a moment, a little memory to try what the driver
    /// can do.
    ///
    /// # Errors
    /// No privilege (CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF are needed), no such interface or
    /// queue, another program on it, an MTU that fits no frame, too little memory may be locked.
    pub fn open(name: &str, config: &AfXdpConfig) -> Result<OpenedXdp, DeviceError> {
        let io = |action| move |error| failed(name, action, error);
        let control = InterfaceControl::open().map_err(io("open a socket"))?;
        let interface = control.interface(name);
        let index = interface.index().map_err(|error| crate::af_packet::not_found(name, error))?;
        let mtu = interface.mtu().map_err(io("read the MTU"))?;
        fits(name, mtu, config.frame_bytes)?;
        let mac = interface.mac().map_err(io("read the link address"))?;
        let station = LinkStation { mac: config.station, is_shared: mac == Some(config.station) };
        if station.is_shared {
            shared::check(name, station.mac)?;
        }
        let card = Card::of(name).map_err(io("query the driver"))?;
        let queues = chosen(name, config.queues, card.queues)?;
        queue::raise_memory_lock();
        let mut notes = Vec::new();
        let (mode, number) = (config.first_line, index.cast_unsigned());
        let plan = CookieProgramPlan {
            flow_credit: config.flow_credit,
            ..CookieProgramPlan::of(mode, &station, card.is_local(), number)
        };
        let mut steering = QueueSteering::load(station, card.queues, &plan, &mut notes)
            .map_err(|error| shared::not_loaded(name, station.is_shared, error))?;
        plan.validate(name, &steering)?;
        if station.is_shared {
            notes.push(shared::SHARED_ADDRESS_NOTE.to_owned());
        }
        attach(name, &steering, index.cast_unsigned(), config.mode, &mut notes)?;
        let is_generic =
            config.mode == XdpMode::Generic || notes.iter().any(|note| note.starts_with("generic"));
        steering.reach_peer(&plan, is_generic, &mut notes);
        let bind = trial(name, index.cast_unsigned(), config, &mut notes)?;
        // Of a veth it depends on the peer, and is looked at again.
        let transmits =
            card.is_local() || features::transmits(index.cast_unsigned()).unwrap_or(true);
        let info = DeviceInfo {
            name: name.to_owned(),
            medium: Medium::Ethernet,
            mtu,
            mac,
            offload: false,
        };
        let shared = Arc::new(SharedUmem {
            steering,
            index: index.cast_unsigned(),
            local: card.is_local(),
            ring: config.ring,
            bind,
            sends_only: config.sends_only,
            no_redirect: line_report::no_redirect((is_generic, config.sends_only, transmits)),
        });
        let queues = (0..queues).map(|number| Self::queue(&info, &shared, number));
        Ok(OpenedXdp { queues: queues.collect::<Result<_, _>>()?, notes })
    }

    fn queue(
        info: &DeviceInfo,
        shared: &Arc<SharedUmem>,
        number: u32,
    ) -> Result<Self, DeviceError> {
        let io = |action| move |error| failed(&info.name, action, error);
        let wanted = AfPacketConfig {
            accept: match number {
                0 if shared.steering.is_shared() => Accept::Common,
                0 => Accept::Groups,
                _ => Accept::Nothing,
            },
            promiscuous: number == 0,
            blocks: if number == 0 { 16 } else { 2 },
            ..AfPacketConfig::default()
        };
        let filter = shared.steering.filter();
        let groups = AfPacket::open(&info.name, &wanted)?;
        let unattached = queue::open().map_err(io("open an AF_XDP socket"))?;
        let either = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| failed(&info.name, "make an event queue", error.into()))?;
        if let Some(fd) = groups.readiness() {
            watch(&either, fd).map_err(io("watch for groups"))?;
        }
        Ok(Self {
            info: info.clone(),
            shared: Arc::clone(shared),
            number,
            unattached: Some(unattached),
            tries: 0,
            queue: None,
            groups,
            either,
            spares: PacketList::new(),
            half: None,
            placement: None,
            beside: false,
            turn: FilterTurn::default(),
            told: filter.map(|filter| filter.wants().join(number, shared.steering.is_shared())),
            own_half: OwnHalf::default(),
            overflowed: false,
            took: 0,
            waiting: WaitingFrames::default(),
            stats: DeviceStats::default(),
        })
    }

    /// Keeps a place for the kernel's half, until the device closes.
    pub fn place(&mut self, placement: Placement) {
        self.beside = placement.is_beside();
        self.placement = Some(placement);
    }

    /// The kernel's half of this queue is where that of the first queue is, which keeps its place.
    pub(crate) const fn place_as(&mut self, first: &Self) {
        self.beside = first.beside;
    }

    /// The thread of the kernel's half of this queue.
    pub(crate) fn set_half(&mut self, half: HalfThread) {
        self.half = Some(half);
    }

    /// Frames for our station that came to the interface, on all queues, and frames that were left
    /// to the host.
    ///
    /// # Errors
    /// The system's.
    pub fn steered(&self) -> io::Result<(u64, u64)> {
        Ok((self.shared.steering.ours()?, self.shared.steering.passed()?))
    }

    /// Whether frames move between card and pool without a copy; false until the first call of
    /// [`Device::receive`].
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.queue.as_ref().is_some_and(XdpQueue::is_zero_copy)
    }

    /// Shares the pool with the kernel. `Ok(false)` where the queue's last owner has not quite
    /// left it.
    fn attach(&mut self, pool: &Pool) -> Result<bool, DeviceError> {
        let Some(socket) = self.unattached.take() else { return Ok(self.queue.is_some()) };
        let SharedUmem { index, ring, bind, .. } = *self.shared;
        match XdpQueue::attach(socket, pool, index, self.number, ring, bind) {
            Ok(queue) => {
                self.connect(&queue)
                    .map_err(|error| failed(&self.info.name, "give frames to the socket", error))?;
                self.queue = Some(queue);
                // By now this is the worker's thread.
                if self.beside {
                    napi::take_turns();
                }
                Ok(true)
            }
            // The memory that a refused socket had locked is given back a moment later, too.
            Err(error)
                if self.tries < TRIES_MAX
                    && (is_busy(&error)
                        || self.tries > 0 && error.raw_os_error() == Some(libc::ENOBUFS)) =>
            {
                self.tries += 1;
                // A socket that was refused is bound half: another one.
                let another = queue::open()
                    .map_err(|error| failed(&self.info.name, "open an AF_XDP socket", error))?;
                self.unattached = Some(another);
                Ok(false)
            }
            Err(error) => Err(failed(&self.info.name, "share memory with the queue", error)),
        }
    }

    /// From now on frames come.
    fn connect(&self, queue: &XdpQueue) -> io::Result<()> {
        let Some(fd) = queue.fd() else { return Ok(()) };
        watch(&self.either, fd)?;
        if self.shared.sends_only {
            return Ok(());
        }
        self.shared.steering.take(self.number, fd.as_raw_fd())
    }

    /// Polls the card (NAPI busy polling), where that is left to us, until so many frames wait or
    /// the card has no more. Frames dropped for lack of credit count as well: established flows may
    /// be queued after them. If all frames have arrived already, no poll is made.
    fn run_kernel_half(&mut self, wanted: usize) {
        if self.half.as_ref().is_some_and(HalfThread::is_taken) {
            return self.run_taken_half(wanted);
        }
        let Some(queue) = &self.queue else { return };
        let filter = self.shared.steering.filter();
        let mut there = queue.waiting();
        let Some(placement) = self.placement.as_mut().filter(|placement| placement.is_ours())
        else {
            return;
        };
        if !self.own_half.must_run(there, self.turn.presses()) {
            placement.hold();
        } else {
            let refused = || filter.map_or(0, |filter| filter.unknown(self.number));
            let mut seen = there as u64 + refused();
            for _ in 0..POLLS_MAX {
                // The first run takes it from the card, which may be at it and not let go.
                if there >= wanted && placement.holds() {
                    break;
                }
                placement.poll();
                there = queue.waiting();
                let before = core::mem::replace(&mut seen, there as u64 + refused());
                if self.own_half.ran(seen.saturating_sub(before)) {
                    break;
                }
            }
        }
        self.own_half.takes(wanted, there);
    }

    /// As [`AfXdp::run_kernel_half`], for a half that was taken from its thread: until as many
    /// frames wait as are wanted, or the card's ring is empty, and [`RUNS_MAX`] times at most.
    fn run_taken_half(&mut self, wanted: usize) {
        let mut seen = self.judged();
        for run in 0..RUNS_MAX {
            if self.queue.as_ref().is_none_or(|queue| queue.waiting() >= wanted) {
                break;
            }
            self.half.iter_mut().for_each(|half| half.poll(run > 0));
            let before = core::mem::replace(&mut seen, self.judged());
            if self.own_half.ran_judged(seen.saturating_sub(before)) {
                break;
            }
        }
        let there = self.queue.as_ref().map_or(0, XdpQueue::waiting);
        self.own_half.takes(wanted, there);
    }

    /// Frames that wait, and all that were dropped or answered at the interface since the start.
    fn judged(&self) -> u64 {
        let steering = &self.shared.steering;
        let dropped = steering.filter().map_or(0, |filter| filter.dropped(self.number));
        let answered = steering.cookies().map_or(0, |cookies| cookies.judged(self.number));
        dropped + answered + self.queue.as_ref().map_or(0, XdpQueue::waiting) as u64
    }

    /// The maximum number of frames of unverified flows that may wait. Half of the ring is reserved
    /// for established flows, however long the worker is away. Where NAPI runs only on the worker's
    /// core a burst is enough: the time that it spends on them at a stretch must end before the
    /// card's ring is full.
    fn unverified_packet_places(&self) -> usize {
        let is_ours = self.placement.as_ref().is_some_and(Placement::is_ours);
        match is_ours || self.beside {
            true => BURST_MAX,
            false => self.shared.ring as usize / 2,
        }
    }

    /// Takes frames out of the ring into `burst`.
    fn take(&mut self, burst: &mut Burst) -> usize {
        let Some(queue) = &mut self.queue else { return 0 };
        let mut taken = 0;
        for _ in 0..burst.room() {
            match queue.receive() {
                None => break,
                Some(QueueArrival::Nonsense) => {
                    self.took += 1;
                    self.stats.rx_malformed += 1;
                }
                Some(QueueArrival::Packet(mut packet)) => {
                    self.took += 1;
                    if self.shared.local {
                        partial::describe(&mut packet);
                    }
                    self.stats.count_rx(packet.len());
                    let _ = burst.push(packet);
                    taken += 1;
                }
            }
        }
        taken
    }

    /// Prepares a packet for transmission: complete, in one frame of registered memory. Returns it
    /// where no frame is free now; `None` where it can never be sent.
    fn sendable(&mut self, mut packet: PacketBuf) -> Option<Result<PacketBuf, PacketBuf>> {
        let patch = match vnet::complete(&packet) {
            Completion::Whole => None,
            Completion::Patch(patch) => Some(patch),
            Completion::Impossible => return None,
        };
        let fits = packet.class() == Class::Frame && packet.is_contiguous();
        let mut ready = match packet.first_mut() {
            Some(_) if fits => packet,
            _ => {
                let Some(mut copy) = self.spares.pop_front() else { return Some(Err(packet)) };
                for chunk in packet.chunks() {
                    if !copy.extend_from_slice(chunk) {
                        self.spares.push_back(emptied(copy));
                        return None;
                    }
                }
                copy
            }
        };
        if let (Some(patch), Some(bytes)) = (patch, ready.first_mut()) {
            bytes.get_mut(patch.at..patch.at + 2)?.copy_from_slice(&patch.bytes);
        }
        Some(Ok(ready))
    }

    /// Puts packets from the front into the ring; how many left the list.
    fn load(&mut self, packets: &mut PacketList) -> usize {
        let mut left = 0;
        while self.queue.as_mut().is_some_and(XdpQueue::has_room) {
            let Some(packet) = packets.pop_front() else { break };
            let bytes = packet.len();
            match self.sendable(packet) {
                None => {
                    self.stats.tx_refused += 1;
                    left += 1;
                    continue;
                }
                Some(Err(packet)) => {
                    packets.push_front(packet);
                    break;
                }
                Some(Ok(ready)) => {
                    let sent = self.queue.as_mut().map(|queue| queue.send(ready));
                    match sent {
                        Some(Ok(())) => self.stats.count_tx(bytes),
                        _ => self.stats.tx_refused += 1,
                    }
                    left += 1;
                }
            }
        }
        left
    }

    /// Has the kernel send; false where the link is down: what is in the ring leaves when it is up
    /// again. Whether the interface is gone is found by the next look for groups.
    fn flush(&mut self) -> Result<bool, DeviceError> {
        let Some(queue) = &mut self.queue else { return Ok(false) };
        let Err(error) = queue.flush() else { return Ok(true) };
        match error.raw_os_error() {
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => Ok(false),
            _ => Err(failed(&self.info.name, "transmit", error)),
        }
    }

    /// Memory for the packets that must be copied on their way out.
    fn restock(&mut self, pool: &Pool) {
        while self.spares.len() < SPARE_FRAMES {
            let Some(frame) = pool.alloc(Class::Frame) else { break };
            self.spares.push_back(frame);
        }
    }
}

impl Device for AfXdp {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        if self.queue.is_none() && !self.attach(pool)? {
            return Ok(0);
        }
        self.run_kernel_half(burst.room());
        let mut taken = self.take(burst);
        if let Some(queue) = &mut self.queue {
            self.overflowed |= queue.is_starved();
            queue.complete();
            queue.refill(pool);
        }
        if self.queue.as_ref().is_some_and(XdpQueue::is_owed) {
            self.flush()?;
        }
        self.restock(pool);
        if taken == 0 || self.groups.pending() {
            // This also detects that the interface is gone.
            taken += self.groups.receive(pool, burst)?;
        }
        Ok(taken)
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        let mut left = 0;
        loop {
            if let Some(queue) = &mut self.queue {
                queue.complete();
            }
            let loaded = self.load(packets);
            left += loaded;
            if !self.flush()? || loaded == 0 || packets.is_empty() {
                break;
            }
        }
        Ok(left)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.either.as_fd())
    }

    fn pending(&self) -> bool {
        let has_work = |queue: &XdpQueue| queue.is_ready() || queue.is_owed();
        self.own_half.has_left_some()
            || self.queue.as_ref().is_none_or(has_work)
            || self.groups.pending()
    }

    fn rest(&mut self) {
        if let Some(filter) = self.shared.steering.filter() {
            let room = if self.beside { BURST_MAX } else { self.shared.ring as usize / 2 };
            self.turn.rest(filter, self.number, room);
        }
        if let Some(placement) = &mut self.placement {
            placement.rest();
        }
    }

    fn rank_half(&mut self, rank: NapiRank) {
        if let Some(half) = &mut self.half {
            half.set_rank(rank);
            if !half.is_taken() {
                self.own_half = OwnHalf::default();
            }
        }
    }

    fn half_time(&self) -> ThreadTime {
        self.half.as_ref().and_then(HalfThread::time).unwrap_or_default()
    }

    fn admit(&mut self, now: Instant, credit: Option<usize>) {
        if self.number == 0 {
            self.shared.steering.look_after(now);
        }
        let Some(filter) = self.shared.steering.filter() else { return };
        let admitted = filter.admitted(self.number);
        let waiting = self.queue.as_ref().map_or(0, XdpQueue::waiting);
        let unverified = self.waiting.turn(self.took, waiting, admitted);
        let credit = credit.map(|credit| match credit {
            usize::MAX => credit,
            _ => credit.min(self.unverified_packet_places().saturating_sub(unverified)),
        });
        let room = (self.shared.ring as usize / 2).saturating_sub(waiting).max(BURST_MAX);
        self.turn.begin(filter, now, self.number, (credit, room));
        if let Some(cookies) = self.shared.steering.cookies() {
            cookies.press(self.number, credit.is_some());
        }
        self.overflowed |= self.turn.has_refused(filter, self.number) && !self.own_half.saw_all();
    }

    fn want(&mut self, wanted: &RxFilter) {
        let steering = &self.shared.steering;
        if let (Some(filter), Some(told)) = (steering.filter(), &mut self.told) {
            filter.wants().tell(self.number, told, wanted, steering.is_shared());
            self.turn.want(filter, self.number, wanted);
        }
    }

    fn answer_syns(&mut self, offers: &SynOffers) {
        // All queues share the listeners and keys.
        if let (Some(cookies), 0) = (self.shared.steering.cookies(), self.number) {
            cookies.renew(offers);
        }
    }

    fn has_answered_syns(&self, now: Instant) -> bool {
        self.shared.steering.cookies().is_some_and(|cookies| cookies.has_answered(now))
    }

    fn knows_established_flows(&self) -> bool {
        self.shared.steering.filter().is_some()
    }

    fn first_line(&self) -> FirstLinePlace {
        let steering = &self.shared.steering;
        match steering.filter().is_some() || steering.cookies().is_some() {
            true => FirstLinePlace::Attached,
            false => FirstLinePlace::None,
        }
    }

    fn first_line_report(&self) -> FirstLineReport {
        let steering = &self.shared.steering;
        let is_taken = steering.takes_redirected(self.shared.local);
        let no_redirect =
            self.shared.no_redirect.or_else(|| line_report::no_redirect((false, false, is_taken)));
        let turn = &self.turn;
        line_report::report(steering, &LineMoment { turn, is_attached: true, no_redirect })
    }

    fn sampled_services(&self) -> Vec<ServiceSample> {
        let mut all = Vec::new();
        if let Some(filter) = self.shared.steering.filter() {
            filter.sampled_services(self.number, &mut all);
        }
        all
    }

    fn has_overflowed(&mut self) -> bool {
        core::mem::take(&mut self.overflowed) && self.shared.steering.filter().is_some()
    }

    fn mark_established(&mut self, now: Instant, established: &PacketBuf) {
        if let Some(filter) = self.shared.steering.filter() {
            self.turn.mark_established(filter, now, established.first());
        }
    }

    fn redirect_target(&self) -> Option<u32> {
        let steering = &self.shared.steering;
        let takes =
            self.shared.no_redirect.is_none() && steering.takes_redirected(self.shared.local);
        takes.then_some(self.shared.index)
    }

    fn redirect(&mut self, now: Instant, offer: &RedirectOffer, target: u32) {
        if let Some(filter) = self.shared.steering.filter() {
            self.turn.redirect(filter, now, offer, target);
        }
    }

    fn forget_redirects(&mut self, now: Instant) {
        if let Some(filter) = self.shared.steering.filter() {
            filter.redirects().forget(now);
        }
    }

    fn waits_for_core(&self) -> bool {
        self.beside && !self.half.as_ref().is_some_and(HalfThread::is_taken)
    }

    fn ring(&self) -> usize {
        self.shared.ring as usize
    }

    fn stats(&self) -> DeviceStats {
        let mut all = self.stats;
        if let Some(Ok(kernel)) = self.queue.as_ref().map(XdpQueue::statistics) {
            let empty = kernel.rx_fill_ring_empty_descs.min(kernel.rx_dropped);
            all.rx_ring_full += kernel.rx_ring_full;
            all.rx_no_buffer += empty;
            all.rx_truncated += kernel.rx_dropped - empty;
            all.rx_malformed += kernel.rx_invalid_descs;
            all.tx_refused += kernel.tx_invalid_descs;
        }
        if let Some(filter) = self.shared.steering.filter() {
            filter.count(self.number, &mut all);
        }
        if let Some(cookies) = self.shared.steering.cookies() {
            cookies.count(self.number, &mut all);
        }
        if self.number == 0 {
            all.rx_program_lost += self.shared.steering.lost();
            all.rx_group_full += self.shared.steering.groups_refused().unwrap_or(0);
            let redirects = self.shared.steering.filter().map(XdpFilter::redirects);
            let (packets, bytes) = redirects.map_or((0, 0), XdpRedirects::redirected);
            all.rx_redirected += packets;
            all.rx_redirected_bytes += bytes;
        }
        all.merge(&self.groups.stats());
        all
    }
}

/// Tries the first queue with a little memory, which is given back: whether the driver moves
/// frames without a copy, and whether it works at all.
fn trial(
    name: &str,
    index: u32,
    config: &AfXdpConfig,
    notes: &mut Vec<String>,
) -> Result<u16, DeviceError> {
    let io = |action| move |error| failed(name, action, error);
    let memory = PoolConfig {
        small: 0,
        frames: TRIAL_ENTRIES as usize,
        supers: 0,
        references: 0,
        frame_bytes: config.frame_bytes,
        ..PoolConfig::default()
    };
    let pool = Pool::new(&memory).map_err(|error| {
        failed(name, "take memory for a trial", io::Error::other(error.to_string()))
    })?;
    let try_with = |flags| {
        let socket = queue::open().map_err(io("open an AF_XDP socket"))?;
        Ok::<_, DeviceError>(XdpQueue::attach(socket, &pool, index, 0, TRIAL_ENTRIES, flags))
    };
    let generic = notes.iter().any(|note| note.starts_with("generic"));
    if !generic {
        match try_with(libc::XDP_ZEROCOPY)? {
            Ok(_) => {
                notes.push("frames move without a copy".to_owned());
                return Ok(libc::XDP_ZEROCOPY);
            }
            Err(error) if is_busy(&error) => return Err(DeviceError::Busy { device: name.into() }),
            Err(error) => notes.push(format!("frames are copied: the driver reports {error}")),
        }
    }
    match try_with(libc::XDP_COPY)? {
        Ok(_) => Ok(libc::XDP_COPY),
        Err(error) if is_busy(&error) => Err(DeviceError::Busy { device: name.into() }),
        Err(error) => Err(failed(name, "share memory with the interface", error)),
    }
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBUSY)
}

/// The receive queues to open.
fn chosen(name: &str, wanted: Option<usize>, there: u32) -> Result<u32, DeviceError> {
    match wanted.map(u32::try_from) {
        None => Ok(there),
        Some(Ok(wanted)) if (1..=there).contains(&wanted) => Ok(wanted),
        Some(_) => Err(unsupported(
            name,
            "that many receive queues",
            "`ethtool -l` shows how many the interface has; request at least one",
        )),
    }
}

/// Whether the link's largest frame fits into one frame of the pool.
fn fits(name: &str, mtu: u32, frame_bytes: usize) -> Result<(), DeviceError> {
    if mtu as usize + LINK_BYTES + FRAME_FRONT <= frame_bytes {
        return Ok(());
    }
    let remedy = if frame_bytes < 4096 {
        "lower it with `ip link set dev INTERFACE mtu 1500` (up to 1774 fit), or take memory in \
         frames of 4096 bytes"
    } else {
        "lower it with `ip link set dev INTERFACE mtu 1500` (up to 3822 fit)"
    };
    Err(unsupported(name, "an MTU that fits into no frame of the packet memory", remedy))
}

fn emptied(mut packet: PacketBuf) -> PacketBuf {
    packet.truncate(0);
    packet
}

fn watch(either: &OwnedFd, fd: BorrowedFd<'_>) -> io::Result<()> {
    let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
    epoll::add(either, fd, data, flags).map_err(io::Error::from)
}
