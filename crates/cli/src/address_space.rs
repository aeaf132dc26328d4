//! Whether the address space that the process may use is enough for what it is about to take.
//!
//! Called by `run` before it starts its workers. All memory is taken at the start, and a limit
//! (`ulimit -v`, `LimitAS=`) that is too small for it would end the process without a word of what
//! to do: most of the tables have no other way to fail.

use floodwall_packet::{PoolConfig, Region};
use floodwall_stack::StackConfig;
use rustix::process::{Resource, getrlimit};

/// Bytes of one worker beside the pool: its stack's tables, its thread, its rings.
const WORKER_BYTES: usize = 40 << 20;
/// Bytes that the allocator of the C library reserves for each thread that is new, where there are
/// so many; it needs few of them, and where they are missing it shares those of another thread.
const ARENA_BYTES: usize = 64 << 20;
/// Bytes of a connection: its state, its place in tables, and what services keep of it.
const CONNECTION_BYTES: usize = 2048;
/// Bytes of a route, in the table and in what is published of it.
const ROUTE_BYTES: usize = 128;

/// Checks it, where there is a limit.
///
/// # Errors
/// The limit is too small, in words.
pub(crate) fn check(
    config: &StackConfig,
    memory: &PoolConfig,
    workers: usize,
) -> Result<(), String> {
    let Some(limit) = getrlimit(Resource::As).current else { return Ok(()) };
    let connections = config.tcp_connections_max.saturating_mul(CONNECTION_BYTES);
    let each = WORKER_BYTES.saturating_add(connections);
    let tables = each.saturating_mul(workers).saturating_add(2 * ROUTE_BYTES * config.routes_max);
    let pool = Region::bytes_of(memory).unwrap_or(usize::MAX);
    // Arenas of the workers, and of one of the threads beside them, come before the tables.
    let arenas = ARENA_BYTES.saturating_mul(workers + 1);
    let wanted = pool.saturating_add(tables).saturating_add(arenas);
    // Reserved and given back: nothing is touched.
    if Vec::<u8>::new().try_reserve_exact(wanted).is_ok() {
        return Ok(());
    }
    Err(format!(
        "the limit on address space (ulimit -v, LimitAS=) is {} MiB, and {} MiB more are needed \
         for {workers} worker(s): raise it, or use fewer workers or routes",
        limit >> 20,
        wanted >> 20
    ))
}

/// Says that a thread cannot be started, and what limits it.
pub(crate) fn no_thread(name: &str, error: &std::io::Error) -> String {
    let remedy = match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::OutOfMemory => {
            ": raise the limit on address space (ulimit -v, LimitAS=) or threads (ulimit -u)"
        }
        _ => "",
    };
    format!("cannot start the thread for {name}: {error}{remedy}")
}
