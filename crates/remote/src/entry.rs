//! `Remote`: a program's access to the stack, from which it opens sockets and connections.
//!
//! Made with its shards before the stacks are; used from any thread. Clones are the same. Requests
//! go to the control shard, those of connections to a worker in its turn.

use core::net::SocketAddr;
use core::task::Waker;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};

use floodwall_base::{WorkerId, limits};
use floodwall_packet::{Lane, Pool, PoolConfig, PoolError, Region};
use floodwall_sync::{CachePadded, Call, Doorbell};
use floodwall_tcp::TcpSettings;
use floodwall_udp::{SocketSettings, UdpDrops};

use super::config::RemoteConfig;
use super::errno::Errno;
use super::handle::UdpHandle;
use super::request::{PendingRequest, SocketRequest, question};
use super::shard::RemoteShard;
use super::shared::{RemoteShared, SharedBell};
use super::slot::RemoteSlot;
use super::tcp::{AskedListen, Listen, Listening, TcpHandle, TcpRequest, TcpShared};
use super::wake::WakeGroups;
use super::wake::runtime_group::RuntimeGroup;

/// A program's access to the stack: opens UDP sockets and TCP connections from other threads. Cheap
/// to clone.
#[derive(Clone)]
pub struct Remote {
    pub(super) shared: Arc<RemoteShared>,
}

impl Remote {
    /// Allocates everything: the slots, the memory to send from, and one shard for each worker's
    /// stack (`Stack::serve`), the control shard's first.
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
