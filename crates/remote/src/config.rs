//! How much of everything there is for programs on other threads.

use floodwall_base::{NumaNode, limits};

/// Memory nodes at most.
const NODES_MAX: usize = 64;

/// What [`Remote::new`](super::Remote::new) allocates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteConfig {
    /// Sockets at most. The stack's own `udp_sockets_max` must not be less.
    pub sockets_max: usize,
    /// TCP connections of programs at most, for each worker; 0 where they have none.
    pub connections_max: usize,
    /// Workers of the host: each gets a [`RemoteShard`](super::RemoteShard).
    pub workers: usize,
    /// Memory nodes of the machine that the workers run on, in equal groups: each has queues of its
    /// own towards every socket. More than the machine has is allowed, for tests.
    pub nodes: usize,
    /// Lanes from which programs take memory to send from: two for each core that they run on.
    pub lanes: usize,
    /// Frames of 256 bytes for sending, total.
    pub small: usize,
    /// Frames for sending, total.
    pub frames: usize,
}

impl RemoteConfig {
    /// The node of a worker.
    #[must_use]
    pub fn node_of(&self, worker: usize) -> NumaNode {
        let (nodes, workers) = (self.nodes.clamp(1, NODES_MAX), self.workers.max(1));
        NumaNode((worker.min(workers - 1) * nodes / workers) as u8)
    }
}

impl Default for RemoteConfig {
    /// 1024 sockets of one worker's host, and 10 MiB to send from.
    fn default() -> Self {
        Self {
            sockets_max: limits::REMOTE_SOCKETS_MAX,
            connections_max: 0,
            workers: 1,
            nodes: 1,
            lanes: limits::REMOTE_LANES,
            small: 8192,
            frames: 4096,
        }
    }
}
