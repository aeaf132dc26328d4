//! Sockets for programs on tokio, over a Floodwall host that runs on workers of its own.
//!
//! Called by applications. Invariant: the workers are never waited for with a lock held, and never
//! wait for a task.
#![forbid(unsafe_code)]
