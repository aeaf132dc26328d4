//! Decision B6's first spike: the packet pool's frames are registered in place as the memory of an
//! AF_XDP socket (a UMEM). The device itself comes later.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use floodwall_packet::{PoolConfig, Region};

fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
}

/// What the kernel counts as pinned may exceed the usual bound: raise it as far as we may.
fn raise_memory_lock() {
    let unlimited = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the structure is borrowed for the call. A refusal shows in the registration.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const unlimited) };
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn register(socket: &OwnedFd, region: &Region) -> io::Result<()> {
    let (memory, bytes, chunk) = region.umem();
    let umem = libc::xdp_umem_reg {
        addr: memory.as_ptr() as u64,
        len: bytes as u64,
        chunk_size: chunk as u32,
        // The kernel leaves 256 bytes free by itself: our headroom.
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    let len = size_of::<libc::xdp_umem_reg>() as libc::socklen_t;
    let at = (&raw const umem).cast();
    // SAFETY: the structure is borrowed for the call. It names memory that the caller's region
    // keeps for longer than the socket; the kernel writes to it only once rings are made.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, at, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[test]
fn the_pool_is_registered_as_a_umem_with_chunks_of_either_size() {
    raise_memory_lock();
    for frame_bytes in [2048, 4096] {
        for workers in [1, 2] {
            let config =
                PoolConfig { workers, frames: 16_384, frame_bytes, ..PoolConfig::default() };
            let region = Region::new(&config).unwrap();
            let (memory, bytes, chunk) = region.umem();
            assert_eq!((bytes, chunk), (16_384 * frame_bytes, frame_bytes));
            assert_eq!(memory.as_ptr() as usize % 4096, 0, "starts on a page");
            let socket = match socket() {
                Ok(socket) => socket,
                Err(error) => return skip(&format!("no AF_XDP socket: {error}")),
            };
            match register(&socket, &region) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    return skip("the bound of locked memory cannot be raised (ulimit -l)");
                }
                Err(error) => panic!("not registered: {error}"),
            }
            // A second registration on the same socket is refused: the first one took.
            assert!(register(&socket, &region).is_err());
        }
    }
}
