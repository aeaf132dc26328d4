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
use crate::remote::errno::Errno;
use crate::remote::request::Reply;

/// A request to open a listener or a connection.
pub(in crate::remote) enum TcpRequest {
    Listen(Listen),
    Connect {
        /// Our end, or a part of it, where the program wants a certain one.
        local: Option<SocketAddr>,
        peer: SocketAddr,
        settings: Box<TcpSettings>,
        reply: Box<Reply<TcpHandle>>,
    },
}

/// A listener that is to be opened on every shard.
#[derive(Clone)]
pub(in crate::remote) struct Listen {
    pub(in crate::remote) listening: Arc<Listening>,
    pub(in crate::remote) local: SocketAddr,
    pub(in crate::remote) settings: Box<TcpSettings>,
    pub(in crate::remote) backlog: usize,
    /// Answers when the last shard has dropped it.
    pub(in crate::remote) reply: Option<Arc<Reply<SocketAddr>>>,
}

impl TcpRequest {
    /// Answers that it will not be carried out.
    pub(in crate::remote) fn refuse(self, errno: Errno) {
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
