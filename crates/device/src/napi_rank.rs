//! `NapiRank`: how the thread of the kernel's half stands beside its worker for the moment.
//!
//! Set by a worker that shares its core with other programs, so that both of them together keep to
//! the worker's share.

/// The rank of a device's kernel half, where that is a thread on the worker's core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NapiRank {
    /// As its place asks for: nothing else wants the core.
    #[default]
    Placed,
    /// Before every other program, and beside the worker, which may interrupt it at any time.
    Granted,
    /// Behind every other program: the worker's share is used up.
    Denied,
    /// Asleep: the half runs within the worker's calls of `Device::receive`, and nothing arrives
    /// outside of them. For a thread that does not let go of the core in time.
    Taken,
}
