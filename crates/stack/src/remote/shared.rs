//! `Remote`: what a program needs to make sockets; and all that programs and workers share.
//!
//! Made once, before the workers: [`Remote::new`] gives each worker's stack its
//! [`RemoteShard`](super::RemoteShard). Clones are the same. Invariant: all of this is allocated
//! at the start and lives as long as the last handle.

use core::net::SocketAddr;
use core::task::Waker;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};

use floodwall_base::{WorkerId, limits};
use floodwall_packet::{Lane, Pool, PoolConfig, PoolError, Region};
use floodwall_sync::{CachePadded, Call, Doorbell, Ring, WakerCell};
use floodwall_tcp::TcpSettings;
use floodwall_udp::{SocketSettings, UdpDrops};

use super::config::RemoteConfig;
use super::errno::Errno;
use super::handle::UdpHandle;
use super::request::{PendingRequest, SocketRequest, question};
use super::shard::RemoteShard;
use super::slot::{RemoteSlot, STOPPED};
use super::tcp::{AskedListen, Listen, Listening, TcpHandle, TcpRequest, TcpShared, TcpSlot};
use super::wake::{RuntimeGroup, WakeGroups};

/// A worker's doorbell, and how it is woken where it sleeps.
pub(super) struct SharedBell {
    pub(super) bell: Doorbell,
    alarm: OnceLock<Waker>,
}

/// What programs and workers share.
pub(super) struct RemoteShared {
    pub(super) slots: Box<[RemoteSlot]>,
    pub(super) bells: Box<[CachePadded<SharedBell>]>,
    pub(super) groups: WakeGroups,
    /// Of each worker, what it refused for each slot.
    pub(super) refused: Box<[CachePadded<UdpDrops>]>,
    /// Slots with writers that wait for memory, in FIFO order.
    pub(super) dry: CachePadded<Doorbell>,
    /// Slots that every shard has released.
    pub(super) freed: CachePadded<Doorbell>,
    lanes: Box<[CachePadded<Lane>]>,
    /// True bytes of the lanes' frames, for each worker.
    pub(super) share: u64,
    requests: SyncSender<SocketRequest>,
    /// To the control shard: requests wait.
    pub(super) asked: Call,
    /// The connections'.
    pub(super) tcp: TcpShared,
}

impl RemoteShared {
    /// The link of a slot in its worker's doorbell; the place behind the last slot is the
    /// requests', and behind it are TCP's.
    #[inline]
    pub(super) fn link(&self, index: u32) -> Option<&AtomicU32> {
        match self.slots.get(index as usize) {
            Some(slot) => Some(&slot.link),
            None => match (index as usize).checked_sub(self.slots.len())? {
                0 => Some(self.asked.link()),
                number => self.tcp.link(number - 1),
            },
        }
    }

    /// The worker that sends for a slot.
    #[inline]
    pub(super) fn home(&self, index: u32) -> usize {
        index as usize % self.bells.len().max(1)
    }

    /// Rings for a slot (or, behind the last one, for requests) at a worker, and wakes it where it
    /// sleeps.
    #[inline]
    pub(super) fn ring(&self, worker: usize, index: u32) -> Result<(), Errno> {
        let (Some(bell), Some(link)) = (self.bells.get(worker), self.link(index)) else {
            return Err(Errno::STOPPED);
        };
        if bell.bell.ring(index, link).map_err(|_| Errno::STOPPED)? == Ring::Wake {
            self.alarm(worker);
        }
        Ok(())
    }

    /// Wakes a worker that sleeps.
    #[cold]
    pub(super) fn alarm(&self, worker: usize) {
        if let Some(alarm) = self.bells.get(worker).and_then(|bell| bell.alarm.get()) {
            alarm.wake_by_ref();
        }
    }

    /// Whether a worker has stopped: then no handle is served any more.
    #[inline]
    pub(super) fn is_stopped(&self, worker: usize) -> bool {
        self.bells.get(worker).is_none_or(|bell| bell.bell.is_stopped())
    }

    /// Hands a request to the control shard; `false` where too many wait, and then it has answered
    /// so. One that is dropped without being looked at answers that the stack has stopped.
    pub(super) fn request(&self, request: SocketRequest) -> bool {
        if let Err(TrySendError::Full(request)) = self.requests.try_send(request) {
            request.refuse(Errno::AGAIN);
            return false;
        }
        if self.asked.make() {
            // A worker that has stopped drops what waits for it.
            let _ = self.ring(0, self.slots.len() as u32);
        }
        true
    }

    /// Runs `act` on a lane's pool: the caller's lane if it is free, else another.
    pub(super) fn with_lane<R>(&self, mine: usize, act: impl FnOnce(&Pool) -> R) -> Option<R> {
        let count = self.lanes.len().max(1);
        let mut act = act;
        for step in 0..count {
            match self.lanes.get((mine + step) % count)?.try_enter(act) {
                Ok(done) => return Some(done),
                Err(back) => act = back,
            }
        }
        Some(self.lanes.get(mine % count)?.enter(act))
    }

    /// What stands for a slot, by its number in the doorbell, among those that wait for memory.
    fn thirst(&self, index: u32) -> Option<WakeupWant<'_>> {
        if let Some(slot) = self.slots.get(index as usize) {
            let RemoteSlot { dry_link, dry, writer, write_group, .. } = slot;
            return Some(WakeupWant { link: dry_link, dry, writer, group: write_group });
        }
        let TcpSlot { dry_link, dry, writer, write_group, .. } =
            self.tcp.slot(index.checked_sub(self.tcp_bell(0))?)?;
        Some(WakeupWant { link: dry_link, dry, writer, group: write_group })
    }

    /// Puts a slot, by its number in the doorbell, among those that wait for memory.
    pub(super) fn wait_for_memory(&self, index: u32) {
        if let Some(thirst) = self.thirst(index)
            && thirst.dry.swap(1, Ordering::AcqRel) == 0
        {
            // This bell is never stopped: stopping the stack wakes all waiters in any case.
            let _ = self.dry.ring(index, thirst.link);
        }
    }

    /// The slots that wait for memory, which may ring again: the runtime and waker of each.
    pub(super) fn dry_slots(&self) -> impl Iterator<Item = (u8, Option<Waker>)> {
        let rung = self.dry.take(|index| self.thirst(index).map(|thirst| thirst.link));
        rung.filter_map(|index| {
            let thirst = self.thirst(index)?;
            thirst.dry.swap(0, Ordering::AcqRel);
            Some((thirst.group.load(Ordering::Relaxed), thirst.writer.take()))
        })
    }

    /// Every shard has released the slot: it may be used again.
    pub(super) fn free(&self, index: u32) {
        if let Some(slot) = self.slots.get(index as usize) {
            slot.clear();
            let _ = self.freed.ring(index, &slot.link);
        }
    }

    /// Stops all workers' doorbells after one has ended for any reason: later rings fail, and all
    /// waiters are woken.
    pub(super) fn stop(&self) {
        self.bells.iter().for_each(|bell| bell.bell.stop());
        for slot in &self.slots {
            slot.rx.set(STOPPED);
            slot.reader.take().into_iter().for_each(Waker::wake);
            slot.writer.take().into_iter().for_each(Waker::wake);
        }
        self.tcp.stop();
    }
}

/// A slot of either kind, of a writer that waits for memory.
struct WakeupWant<'a> {
    link: &'a AtomicU32,
    dry: &'a AtomicU8,
    writer: &'a WakerCell,
    group: &'a AtomicU8,
}

/// A program's access to the stack: opens UDP sockets and TCP connections from other threads. Cheap
/// to clone.
#[derive(Clone)]
pub struct Remote {
    pub(super) shared: Arc<RemoteShared>,
}

impl Remote {
    /// Allocates everything: the slots, the memory to send from, and one shard for each worker's
    /// stack ([`Stack::serve`](crate::Stack::serve)), the control shard's first.
    ///
    /// # Errors
    /// The memory for sending could not be had.
    pub fn new(config: &RemoteConfig) -> Result<(Self, Vec<RemoteShard>), PoolError> {
        let (workers, lanes) = (config.workers.max(1), config.lanes.max(1));
        let region = Region::new(&PoolConfig {
            workers: lanes,
            small: config.small,
            frames: config.frames.max(lanes),
            frame_bytes: 2048,
            supers: 0,
            references: 0,
            accounts: 0,
        })?;
        let share = region.frames_true_bytes() / workers as u64;
        let lanes: Result<Vec<Lane>, PoolError> = (0..lanes).map(|_| region.lane()).collect();
        let (requests, asked) = sync_channel(limits::REMOTE_REQUESTS_MAX);
        let sockets_max = config.sockets_max.clamp(1, limits::UDP_SOCKETS_MAX);
        let (tcp, mut desks) = TcpShared::new(workers, config.connections_max);
        let bell =
            || CachePadded::new(SharedBell { bell: Doorbell::new(), alarm: OnceLock::new() });
        let shared = Arc::new(RemoteShared {
            slots: (0..sockets_max).map(|_| RemoteSlot::new(config.nodes.max(1))).collect(),
            refused: (0..workers).map(|_| CachePadded::new(UdpDrops::new(sockets_max))).collect(),
            bells: (0..workers).map(|_| bell()).collect(),
            groups: WakeGroups::new(workers, sockets_max + config.connections_max),
            dry: CachePadded::new(Doorbell::new()),
            freed: CachePadded::new(Doorbell::new()),
            lanes: lanes?.into_iter().map(CachePadded::new).collect(),
            share,
            requests,
            asked: Call::new(),
            tcp,
        });
        let mut asked = Some(asked);
        let shards = desks
            .drain(..)
            .enumerate()
            .map(|(worker, desk)| {
                let node = config.node_of(worker);
                RemoteShard::new(Arc::clone(&shared), (worker, node), asked.take(), desk)
            })
            .collect();
        Ok((Self { shared }, shards))
    }

    /// Sets how a sleeping worker is woken. To be called once, before it sleeps for the first time.
    pub fn set_alarm(&self, worker: WorkerId, alarm: Waker) {
        if let Some(bell) = self.shared.bells.get(usize::from(worker.0)) {
            let _ = bell.alarm.set(alarm);
        }
    }

    /// Opens a UDP socket and binds it: to one of the host's addresses or to the unspecified one,
    /// to a port or (port 0) to an ephemeral one. The answer comes when every shard listens.
    ///
    /// # Errors
    /// In the answer: `AddrInUse`, `AddrNotAvailable`; `WouldBlock` where too many requests wait;
    /// `BrokenPipe` where the stack has stopped; too many sockets (`ENFILE`).
    pub fn bind_udp(
        &self,
        local: SocketAddr,
        settings: SocketSettings,
    ) -> PendingRequest<UdpHandle> {
        let (reply, asked) = question();
        let settings = Box::new(settings);
        self.shared.request(SocketRequest::Bind { local, settings, reply });
        asked
    }

    /// Listens at one of the host's addresses or at the unspecified one, at a port or (port 0) at
    /// an ephemeral one. The answer comes when every shard listens. At most `backlog` connections
    /// of each shard wait to be accepted, and `REMOTE_ACCEPT_MAX` beyond.
    ///
    /// # Errors
    /// In the answer: `AddrInUse`, `AddrNotAvailable`; `WouldBlock` where too many requests wait;
    /// `BrokenPipe` where the stack has stopped.
    pub fn listen_tcp(
        &self,
        local: SocketAddr,
        settings: TcpSettings,
        backlog: usize,
    ) -> AskedListen {
        let (reply, asked) = question();
        let listening = Arc::new(Listening::new());
        self.shared.tcp.note(Arc::downgrade(&listening));
        let listen = Listen {
            listening: Arc::clone(&listening),
            local,
            settings: Box::new(settings),
            backlog,
            reply: Some(Arc::new(reply)),
        };
        if let Err(request) = self.shared.ask_worker(0, TcpRequest::Listen(listen)) {
            request.refuse(Errno::AGAIN);
        }
        AskedListen { asked, made: Some((Arc::clone(&self.shared), listening)) }
    }

    /// Opens a connection, from an end or a part of one where `local` names it, on a worker in its
    /// turn. The answer comes when the first segment has left: wait for
    /// [`TcpHandle::poll_opened`] then.
    ///
    /// # Errors
    /// In the answer: `NetworkUnreachable`, `AddrNotAvailable`, `InvalidInput`; `WouldBlock` where
    /// too many requests wait; `BrokenPipe` where the stack has stopped; too many connections
    /// (`ENFILE`).
    pub fn connect_tcp(
        &self,
        local: Option<SocketAddr>,
        peer: SocketAddr,
        settings: TcpSettings,
    ) -> PendingRequest<TcpHandle> {
        let (reply, asked) = question();
        let request = TcpRequest::Connect {
            local,
            peer,
            settings: Box::new(settings),
            reply: Box::new(reply),
        };
        if let Err(request) = self.shared.ask_worker(self.shared.tcp.next_worker(), request) {
            request.refuse(Errno::AGAIN);
        }
        asked
    }

    /// A wake group for a runtime: its adapter spawns a task that polls it, and sets it on each
    /// handle that is used by tasks of this runtime.
    #[must_use]
    pub fn runtime_group(&self) -> RuntimeGroup {
        RuntimeGroup::new(Arc::clone(&self.shared))
    }

    /// Frames that are free for sending at the moment, in all lanes: for tests and reports.
    #[must_use]
    pub fn memory(&self) -> floodwall_packet::Available {
        let none = floodwall_packet::Available { small: 0, frames: 0, supers: 0, references: 0 };
        self.shared.lanes.iter().fold(none, |all, lane| {
            let here = lane.enter(Pool::available);
            floodwall_packet::Available {
                small: all.small + here.small,
                frames: all.frames + here.frames,
                ..all
            }
        })
    }
}

impl core::fmt::Debug for Remote {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Remote").field("slots", &self.shared.slots.len()).finish_non_exhaustive()
    }
}
