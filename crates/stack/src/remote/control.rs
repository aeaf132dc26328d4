//! The stack's part: sending for programs, handing datagrams over, deciding programs' requests.
//!
//! Called in rounds and in timed work by `stack/engine.rs`; the followers' part,
//! [`Stack::carry_out`], by the code that connects the shards. Invariant: what the control shard
//! decided is carried out by every shard in the same order, so that a socket is the same
//! everywhere.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use floodwall_base::{Instant, Units, limits};
use floodwall_packet::Round;
use floodwall_udp::{SocketId, SocketSettings, part_of};

use crate::round_context::RoundContext;
use crate::sockets::Sockets;
use crate::stack::Stack;
use floodwall_remote::worker::{
    Errno, RequestAddrs, RequestKind, ShardKeeper, ShardNews, SlotId, SocketRequest,
};
use floodwall_remote::{RemoteShard, SocketChange, SocketCommand, UdpHandle};

/// How long a bind waits for a port that may be released soon.
const REUSE_PATIENCE: Duration = Duration::from_millis(5);

impl Stack {
    /// Serves programs on other threads: this stack is the worker that the shard was made for.
    pub fn serve(&mut self, mut shard: RemoteShard) {
        if let Some(tcp) = &mut self.tcp {
            // Connections with unacknowledged data must leave send memory for the others.
            tcp.set.limit_memory(shard.send_share());
        }
        let owner = self.tcp.as_mut().map(|tcp| tcp.next_owner());
        let connections_max = self.tcp.as_ref().map_or(0, |tcp| tcp.set.places_max());
        shard.prepare(self.sockets.path_cache.len(), connections_max, owner);
        if self.is_follower() {
            // Another stack may take its place.
            let place = self.shard.place.clone();
            shard.set_keeper(place.map(|place| place as Arc<dyn ShardKeeper>));
        }
        self.shard.remote = Some(Box::new(shard));
        self.parts_mark.set();
    }

    /// What the control shard has decided since the last call, for the other shards to carry out in
    /// this order. Nothing where it has none, or is none.
    pub fn take_commands(&mut self) -> Vec<SocketCommand> {
        self.shard
            .remote
            .as_mut()
            .map_or_else(Vec::new, |remote| core::mem::take(&mut remote.decided))
    }

    /// Whether [`Stack::take_commands`] has something.
    #[must_use]
    pub fn has_commands(&self) -> bool {
        self.shard.remote.as_ref().is_some_and(|remote| !remote.decided.is_empty())
    }

    /// Carries out what the control shard has decided. On the other shards, in the order given.
    pub fn carry_out(&mut self, round: &mut Round<'_>, command: &SocketCommand) {
        self.carry_out_here(&mut RoundContext::of(round), command);
    }

    pub(crate) fn carry_out_here(&mut self, cx: &mut RoundContext<'_>, command: &SocketCommand) {
        let Some(mut remote) = self.shard.remote.take() else { return };
        follow(&mut Sockets::new(self, cx.again()), &mut remote, command);
        self.shard.remote = Some(remote);
    }

    /// After a panic: programs' sockets are opened again as they were, once. Costs as much as
    /// opening them did.
    #[cold]
    pub(crate) fn open_again(&mut self, cx: &mut RoundContext<'_>) {
        let Some(remote) = &mut self.shard.remote else { return };
        for command in remote.take_histories() {
            self.carry_out_here(cx, &command);
        }
        if let Some(mut remote) = self.shard.remote.take() {
            self.listen_again(cx, &mut remote);
            self.shard.remote = Some(remote);
        }
    }

    /// Takes datagrams and requests of programs: of about as many sockets, and of as many
    /// connections, as there are units; of one at least. Part of timed work.
    pub(crate) fn serve_programs(&mut self, cx: &mut RoundContext<'_>, budget: Units) -> Units {
        let Some(mut remote) = self.shard.remote.take() else { return Units(0) };
        remote.hear();
        remote.look_at_dry(cx.now);
        let mut spent = 0;
        // Slots first: a program that drops a port and requests it again must get it.
        let most = limits::REMOTE_SLOTS_ROUND.min(budget.0.max(1) as usize);
        for _ in 0..most {
            let Some(index) = remote.next_slot() else { break };
            spent += 1 + self.send_for(cx, &mut remote, index);
        }
        for (request, until) in remote.take_requests() {
            spent += 1;
            self.decide(cx, &mut remote, request, until);
        }
        spent += self.serve_connections(cx, &mut remote, most as u32);
        self.shard.remote = Some(remote);
        Units(spent)
    }

    /// Sends what one program gave its worker, up to a round's share.
    fn send_for(&mut self, cx: &mut RoundContext<'_>, remote: &mut RemoteShard, index: u32) -> u32 {
        let (mut count, mut bytes) = (0, 0);
        let Some(socket) = remote.socket_at(index) else { return 0 };
        while bytes < limits::REMOTE_SLOT_BYTES
            && let Some((envelope, packet)) = remote.next_datagram(index)
        {
            count += 1;
            bytes += packet.len().max(1);
            let sum = envelope.payload_sum();
            let mut sockets = Sockets::new(self, cx.again());
            let ours = |from: &SocketAddr| sockets.stack.may_send_from(from.ip());
            let from = envelope.from.filter(|from| envelope.insists || ours(from));
            let way = (envelope.to, from, envelope.iface);
            let sent = sockets.udp_send_packet(socket, way, packet, sum);
            remote.owe(index, envelope.paid);
            if let Err(error) = sent {
                let news = ShardNews { error: Some(error.into()), ..ShardNews::default() };
                remote.deliver(socket, news, &mut self.stats.counters);
            }
        }
        if let Some(slot) = remote.after_slot(index) {
            self.close_for(cx, remote, slot, socket);
        }
        count
    }

    /// Hands programs what arrived on their connections, and what timers have made of them.
    #[inline]
    pub(crate) fn deliver_streams(&mut self, cx: &mut RoundContext<'_>) {
        if self.shard.remote.is_some() && self.tcp.is_some() {
            self.deliver_remote_streams(cx);
        }
    }

    #[inline(never)]
    fn deliver_remote_streams(&mut self, cx: &mut RoundContext<'_>) {
        if let Some(mut remote) = self.shard.remote.take() {
            self.deliver_connections(cx, &mut remote);
            self.shard.remote = Some(remote);
        }
    }

    /// Hands each socket's datagrams and error to its program: at the end of a round.
    #[inline]
    pub(crate) fn deliver_to_programs(&mut self, cx: &mut RoundContext<'_>) {
        if self.shard.remote.is_some() {
            self.deliver_to_remote(cx);
        }
    }

    #[inline(never)]
    fn deliver_to_remote(&mut self, cx: &mut RoundContext<'_>) {
        self.deliver_streams(cx);
        let Some(remote) = &mut self.shard.remote else { return };
        while let Some((socket, refused)) = self.sockets.udp.next_refusing() {
            remote.refused(socket, refused);
        }
        while let Some(socket) = self.sockets.udp.next_ready() {
            // The stack's own sockets are polled by their applications.
            if !remote.serves(socket) {
                continue;
            }
            let (packets, v4) = self.sockets.udp.take_waiting(socket);
            let error = self.sockets.udp.take_error(socket).ok().flatten().map(Errno::from);
            let news = ShardNews { packets, v4, error };
            remote.deliver(socket, news, &mut self.stats.counters);
        }
    }

    /// `until` is the deadline of a request that was put off: it is answered then in any case.
    fn decide(
        &mut self,
        cx: &mut RoundContext<'_>,
        remote: &mut RemoteShard,
        request: SocketRequest,
        until: Option<Instant>,
    ) {
        let now = cx.now;
        let mut sockets = Sockets::new(self, cx.again());
        match request {
            SocketRequest::Bind { local, settings, reply } => {
                let Some(slot) = remote.take_slot() else {
                    return reply.set(Err(Errno::TOO_MANY));
                };
                match open(&mut sockets, remote, slot, local, &settings) {
                    Ok((handle, command)) => {
                        reply.set(Ok(handle));
                        remote.announce(command, reply);
                    }
                    Err(errno) => {
                        remote.return_slot(slot);
                        let at = until.unwrap_or(now + REUSE_PATIENCE);
                        if errno == Errno::IN_USE && at > now && remote.may_be_let_go() {
                            remote.put_off(SocketRequest::Bind { local, settings, reply }, at);
                        } else {
                            reply.set(Err(errno));
                        }
                    }
                }
            }
            SocketRequest::Ask { slot, what, reply } => match remote.socket_of(slot) {
                None => reply.set(Err(Errno::STOPPED)),
                Some(socket) => match change(&mut sockets, remote, slot, socket, what) {
                    Ok(command) => {
                        reply.set(Ok(ends(&sockets, socket)));
                        remote.announce(command, reply);
                    }
                    Err(errno) => reply.set(Err(errno)),
                },
            },
            SocketRequest::Close { slot } => {
                if let Some(socket) = remote.socket_of(slot) {
                    self.close_for(cx, remote, slot, socket);
                }
            }
        }
    }

    fn close_for(
        &mut self,
        cx: &mut RoundContext<'_>,
        remote: &mut RemoteShard,
        slot: SlotId,
        socket: SocketId,
    ) {
        Sockets::new(self, cx.again()).udp_close(socket);
        remote.close(slot, socket);
    }
}

/// The part of the receive limit that this shard allows: the parts of all add up to the limit.
fn share(stack: &Stack, settings: &SocketSettings) -> SocketSettings {
    let (worker, workers) = (stack.worker(), stack.steering().workers());
    let receive_bytes = part_of(settings.receive_bytes, worker, workers);
    SocketSettings { receive_bytes, ..settings.clone() }
}

fn ends(sockets: &Sockets<'_>, socket: SocketId) -> RequestAddrs {
    let unspecified = SocketAddr::from(([0; 4], 0));
    let local = sockets.udp_local_addr(socket).unwrap_or(unspecified);
    RequestAddrs { local, peer: sockets.stack.sockets.udp.peer_addr(socket).ok().flatten() }
}

fn open(
    sockets: &mut Sockets<'_>,
    remote: &mut RemoteShard,
    slot: SlotId,
    local: SocketAddr,
    settings: &SocketSettings,
) -> Result<(UdpHandle, SocketCommand), Errno> {
    let socket = sockets.udp_bind_shared(local, share(sockets.stack, settings))?;
    let ends = ends(sockets, socket);
    let mut bound = ends.local;
    if let (SocketAddr::V6(bound), SocketAddr::V6(asked)) = (&mut bound, local) {
        bound.set_scope_id(asked.scope_id());
    }
    let ends = RequestAddrs { local: bound, ..ends };
    let change = SocketChange::Open { settings: Box::new(settings.clone()), local: bound };
    let handle = remote.open(slot, socket, ends, settings);
    Ok((handle, SocketCommand::new(socket, slot, change)))
}

fn change(
    sockets: &mut Sockets<'_>,
    remote: &mut RemoteShard,
    slot: SlotId,
    socket: SocketId,
    what: RequestKind,
) -> Result<SocketCommand, Errno> {
    let change = match what {
        RequestKind::Connect(peer) => {
            let allowed = sockets.stack.sockets.udp.settings(socket).is_ok_and(|s| s.broadcast);
            if !allowed && sockets.is_broadcast(peer.ip().to_canonical()) {
                return Err(Errno::ACCESS);
            }
            let (src_addr, zone) = sockets.udp_connect_from(socket, peer)?;
            SocketChange::Connect { remote: peer, src_addr, zone }
        }
        RequestKind::Disconnect => {
            sockets.stack.sockets.udp.disconnect(socket).map_err(Errno::from)?;
            SocketChange::Disconnect
        }
        RequestKind::Configure(settings) => {
            configure(sockets, remote, slot, socket, &settings);
            SocketChange::Configure { settings }
        }
        RequestKind::Join(group, iface, filter) => {
            let iface = sockets.group_interface(iface)?;
            sockets.udp_join(socket, group, iface)?;
            if !filter.is_all() {
                sockets.udp_set_group_filter(socket, group, iface, &filter)?;
            }
            SocketChange::Join { group, iface, filter }
        }
        RequestKind::Leave(group, iface) => {
            let iface = sockets.group_interface(iface)?;
            sockets.udp_leave(socket, group, iface)?;
            SocketChange::Leave { group, iface }
        }
    };
    Ok(SocketCommand::new(socket, slot, change))
}

fn configure(
    sockets: &mut Sockets<'_>,
    remote: &mut RemoteShard,
    slot: SlotId,
    socket: SocketId,
    settings: &SocketSettings,
) {
    // Known a moment ago.
    let _ = sockets.stack.sockets.udp.set_settings(socket, share(sockets.stack, settings));
    sockets.stack.sockets.path_cache.forget();
    remote.limit(slot, settings);
}

/// A follower repeats what the control shard did, with nothing left to decide. It cannot fail where
/// the shards are equal; if it does (a pool without accounts), the socket receives nothing on this
/// shard, and still receives on the others.
fn follow(sockets: &mut Sockets<'_>, remote: &mut RemoteShard, command: &SocketCommand) {
    remote.note(command);
    let SocketCommand { socket, slot, .. } = *command;
    match &command.change {
        SocketChange::Open { settings, local } => {
            let opened = sockets.udp_bind_as(socket, *local, share(sockets.stack, settings));
            if opened.is_ok() {
                remote.tie(slot, socket, settings);
            }
        }
        SocketChange::Connect { remote: peer, src_addr, zone } => {
            let secret = &mut sockets.cx.random.secret;
            let _ = sockets.stack.sockets.udp.connect(socket, *peer, *src_addr, *zone, secret);
        }
        SocketChange::Disconnect => _ = sockets.stack.sockets.udp.disconnect(socket),
        SocketChange::Configure { settings } => configure(sockets, remote, slot, socket, settings),
        SocketChange::Join { group, iface, filter } => {
            let _ = sockets.stack.sockets.udp.join(socket, *group, *iface);
            let _ = sockets.stack.sockets.udp.set_group_filter(socket, *group, *iface, filter);
        }
        SocketChange::Leave { group, iface } => {
            let _ = sockets.stack.sockets.udp.leave(socket, *group, *iface);
        }
        SocketChange::Close => {
            let _ = sockets.stack.sockets.udp.close(socket);
            remote.untie(slot, socket);
        }
    }
}
