//! The stack's part of programs' connections: serving, accepting, listening and connecting for
//! them, and closing them at the end.
//!
//! Called in rounds and in timed work by `remote/control.rs`, and by `tcp/drain.rs`. Invariant: a
//! round serves a bounded number of slots and requests.

use core::net::SocketAddr;

use floodwall_base::Counter;
use floodwall_tcp::TcpSettings;
use floodwall_wire::IpProtocol;

use crate::round_context::RoundContext;
use crate::sockets::Sockets;
use crate::stack::Stack;
use floodwall_remote::worker::{Errno, Listen, PendingOpen, Reply, TcpRequest};
use floodwall_remote::{RemoteShard, TcpHandle};

impl Stack {
    /// Takes what programs wrote, and their requests, until `most` units are spent, and what one
    /// connection may hold beyond that. Part of timed work.
    pub(in crate::remote) fn serve_connections(
        &mut self,
        cx: &mut RoundContext<'_>,
        remote: &mut RemoteShard,
        most: u32,
    ) -> u32 {
        let mut spent = 0;
        while spent < most {
            let Some((index, rung)) = remote.next_connection() else { break };
            spent += 1;
            if !rung {
                continue;
            }
            let tcp = self.tcp.as_mut().map(|tcp| &mut tcp.set);
            let (dropped, cost) = remote.serve_connection(tcp, index, cx.now);
            spent += cost;
            if let Some(dropped) = dropped {
                let mut sockets = Sockets::new(self, cx.again());
                let _ = match dropped.resets {
                    true => sockets.tcp_abort(dropped.id),
                    false => sockets.tcp_close(dropped.id),
                };
            }
        }
        if let Some(PendingOpen { requests, gone }) = remote.take_opening() {
            for id in gone {
                let _ = Sockets::new(self, cx.again()).tcp_unlisten(id);
            }
            for request in requests {
                spent += 1;
                self.decide_tcp(cx, remote, request);
            }
        }
        remote.forward_listeners();
        if spent > 0 {
            self.tcp_transmit(cx);
        }
        spent
    }

    /// Hands programs what has become possible for their connections: at the end of a round.
    pub(in crate::remote) fn deliver_connections(
        &mut self,
        cx: &mut RoundContext<'_>,
        remote: &mut RemoteShard,
    ) {
        self.accept_for(cx, remote);
        if let Some(tcp) = &mut self.tcp {
            remote.deliver_events(&mut tcp.set, cx.now);
        }
    }

    /// Hands finished connections to the programs that listen.
    fn accept_for(&mut self, cx: &mut RoundContext<'_>, remote: &mut RemoteShard) {
        if !remote.may_accept(self.stats.counters.of(Counter::TcpPassiveOpens)) {
            return;
        }
        for number in 0..remote.listeners() {
            while let Some(listener) = remote.listener_with_room(number) {
                let Ok(Some(id)) = Sockets::new(self, cx.again()).tcp_accept(listener) else {
                    break;
                };
                let Some(tcp) = &mut self.tcp else { break };
                if let Err(id) = remote.accepted(&mut tcp.set, number, id, cx.now) {
                    let _ = Sockets::new(self, cx.again()).tcp_abort(id);
                }
            }
        }
    }

    fn decide_tcp(
        &mut self,
        cx: &mut RoundContext<'_>,
        remote: &mut RemoteShard,
        request: TcpRequest,
    ) {
        if remote.owner().is_none() {
            return request.refuse(Errno::NO_PROTOCOL);
        }
        if self.is_draining() {
            return request.refuse(Errno::STOPPED);
        }
        match request {
            TcpRequest::Listen(listen) => self.listen_for(cx, remote, listen),
            TcpRequest::Connect { local, peer, settings, reply } => {
                self.connect_for(cx, remote, (local, peer), settings, reply);
            }
        }
    }

    /// Opens a listener; the control shard also forwards the request to the others.
    fn listen_for(&mut self, cx: &mut RoundContext<'_>, remote: &mut RemoteShard, listen: Listen) {
        let owner = remote.owner().unwrap_or(0);
        let mut sockets = Sockets::new(self, cx.again());
        let local = match listen.settings.every_port {
            true => Ok(listen.local),
            false => sockets.tcp_port(listen.local),
        };
        let found = local.and_then(|local| {
            let Listen { settings, backlog, .. } = &listen;
            let id = sockets.tcp_listen(local, settings, *backlog, owner)?;
            Ok((local, id))
        });
        match found {
            Ok((local, id)) => remote.listens(listen, local, id),
            Err(error) => remote.cannot_listen(listen, error.into()),
        }
    }

    fn connect_for(
        &mut self,
        cx: &mut RoundContext<'_>,
        remote: &mut RemoteShard,
        (local, peer): (Option<SocketAddr>, SocketAddr),
        settings: Box<TcpSettings>,
        reply: Box<Reply<TcpHandle>>,
    ) {
        let owner = remote.owner().unwrap_or(0);
        if !remote.has_connection_slot() {
            return reply.set(Err(Errno::TOO_MANY));
        }
        let mut sockets = Sockets::new(self, cx.again());
        let ends = match sockets.tcp_ends_towards(local, peer) {
            Ok(ends) => ends,
            Err(error) => return reply.set(Err(error.into())),
        };
        if ends.local.port() != 0 {
            // The port determines the worker that receives the replies (RSS).
            let home = self.steering().flow(ends.local, ends.remote, IpProtocol::TCP.0);
            let home = usize::from(home.0);
            if home != remote.worker() {
                let local = Some(ends.local);
                return remote.pass_on(home, TcpRequest::Connect { local, peer, settings, reply });
            }
        }
        let opened = Sockets::new(self, cx.again()).tcp_open(&ends, &settings, owner);
        let id = match opened {
            Ok(id) => id,
            Err(error) => return reply.set(Err(error.into())),
        };
        let tcp = self.tcp.as_ref();
        let handle = tcp.and_then(|tcp| remote.connected(&tcp.set, id, &settings));
        reply.set(handle.ok_or(Errno::TOO_MANY));
    }

    /// After a panic: listeners are opened again as they were.
    #[cold]
    pub(in crate::remote) fn listen_again(
        &mut self,
        cx: &mut RoundContext<'_>,
        remote: &mut RemoteShard,
    ) {
        for listen in remote.take_listeners() {
            self.listen_for(cx, remote, listen);
        }
    }

    /// Closes the connections of programs in the slots from `from` on, `visits` of them at most,
    /// behind all that was written. Their programs may read what has arrived. Returns the next slot
    /// to visit; `None` at the end.
    pub(crate) fn close_held(
        &mut self,
        cx: &mut RoundContext<'_>,
        from: u32,
        visits: u32,
    ) -> Option<u32> {
        let mut remote = self.shard.remote.take()?;
        let count = remote.connection_slots();
        let end = from.saturating_add(visits).min(count);
        for number in from..end {
            let tcp = self.tcp.as_mut().map(|tcp| &mut tcp.set);
            if let Some(id) = remote.part_from(tcp, number, cx.now) {
                // It was there a moment ago.
                let _ = Sockets::new(self, cx.again()).tcp_close(id);
            }
        }
        self.shard.remote = Some(remote);
        (end < count).then_some(end)
    }
}
