//! Requests of a program to a worker: to listen, to connect.
//!
//! Each worker has a bounded queue. A listen request goes to the control shard, which decides
//! whether the port is free and forwards it to the others; a connect request goes to any worker,
//! which chooses a port such that replies are steered to itself.

use core::net::SocketAddr;
use std::sync::Arc;

use floodwall_tcp::TcpSettings;

use super::listening::Listening;
use super::stream::TcpHandle;
use crate::errno::Errno;
use crate::request::Reply;

/// A request to open a listener or a connection.
pub enum TcpRequest {
    /// To listen.
    Listen(Listen),
    /// To connect.
    Connect {
        /// Our end, or a part of it, where the program wants a certain one.
        local: Option<SocketAddr>,
        /// The peer.
        peer: SocketAddr,
        /// The connection's settings.
        settings: Box<TcpSettings>,
        /// Answers when the first segment has left.
        reply: Box<Reply<TcpHandle>>,
    },
}

/// A listener that is to be opened on every shard.
#[derive(Clone)]
pub struct Listen {
    pub(crate) listening: Arc<Listening>,
    /// Where: the control shard decides a port of 0.
    pub local: SocketAddr,
    /// Settings of its connections.
    pub settings: Box<TcpSettings>,
    /// Connections that wait to be accepted, at most, at each shard.
    pub backlog: usize,
    /// Answers when the last shard has dropped it.
    pub(crate) reply: Option<Arc<Reply<SocketAddr>>>,
}

impl TcpRequest {
    /// Answers that it will not be carried out.
    pub fn refuse(self, errno: Errno) {
        match self {
            Self::Listen(listen) => {
                if let Some(reply) = listen.reply {
                    reply.set(Err(errno));
                }
            }
            Self::Connect { reply, .. } => reply.set(Err(errno)),
        }
    }
}
