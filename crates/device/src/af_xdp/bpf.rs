//! bpf(2): maps, programs and links of the kernel, by the raw system call.
//!
//! Called by `steering.rs` and `filter.rs`. Invariant: attributes passed to the kernel are zeroed
//! to their full size, so that a field that only a newer kernel reads never holds stack contents.
//! Every descriptor is owned; program, maps and attachment are released with it. Reading: bpf(2),
//! `linux/bpf.h`. Not here: object files; the program is assembled in this process.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use floodwall_bpf::Instruction;

use super::xdp_abi::Deliver;

pub(crate) const MAP_CREATE: libc::c_int = 0;
pub(crate) const MAP_LOOKUP: libc::c_int = 1;
pub(crate) const MAP_UPDATE: libc::c_int = 2;
pub(crate) const MAP_DELETE: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
pub(crate) const OBJECT_INFO: libc::c_int = 15;
pub(crate) const LINK_CREATE: libc::c_int = 28;
pub(crate) const PROG_TYPE_SCHED: u32 = 3;
pub(crate) const PROG_TYPE_XDP: u32 = 6;
pub(crate) const ATTACH_XDP: u32 = 37;
pub(crate) const ATTACH_INGRESS: u32 = 46;
/// Of a program: frames of several parts do not stop it.
pub(crate) const HAS_FRAGMENTS: u32 = 1 << 5;
/// How often a program is given to the verifier that was interrupted.
const LOAD_TRIES: usize = 50;
/// Bytes of the verifier's log.
const LOG_BYTES: usize = 64 << 10;
/// Of a map: its values can be mapped into this process.
const MAP_MAPPABLE: u32 = 1 << 10;

/// Kinds of maps by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MapKind {
    /// One value an index, which this process can map into its memory.
    Mapped = 2,
    /// Programs by index.
    Programs = 3,
    /// One value a core and index.
    PerCpuArray = 6,
    /// Interfaces to redirect frames to.
    Interfaces = 14,
    /// Sockets by receive queue.
    Sockets = 17,
}

/// Where a program is attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attach {
    /// In the driver, before the system has made anything of the frame.
    Native = 4,
    /// In front of the system's stack, by any driver.
    Generic = 2,
}

/// The fields of one command; the kernel's union is longer, and zero beyond.
#[repr(C, align(8))]
pub(crate) struct Attr([u8; 128]);

impl Attr {
    pub(crate) const fn new() -> Self {
        Self([0; 128])
    }

    pub(crate) fn u32(mut self, at: usize, value: u32) -> Self {
        if let Some(place) = self.0.get_mut(at..at + 4) {
            place.copy_from_slice(&value.to_ne_bytes());
        }
        self
    }

    pub(crate) fn u64(mut self, at: usize, value: u64) -> Self {
        if let Some(place) = self.0.get_mut(at..at + 8) {
            place.copy_from_slice(&value.to_ne_bytes());
        }
        self
    }

    /// The address of memory that outlives the call: the caller keeps it borrowed.
    pub(crate) fn memory<T: ?Sized>(self, at: usize, memory: *const T) -> Self {
        self.u64(at, memory.cast::<u8>().addr() as u64)
    }

    pub(crate) fn u32_at(&self, at: usize) -> u32 {
        let bytes = self.0.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
        bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    /// # Safety
    /// Every address in it points to live memory of the length that the command expects.
    pub(crate) unsafe fn call(&mut self, command: libc::c_int) -> io::Result<libc::c_long> {
        // SAFETY: the attribute is borrowed for the call; what it points to is the caller's claim.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), self.0.len() as libc::c_uint)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    /// # Safety
    /// As for [`Attr::call`], and the command answers with a descriptor.
    pub(crate) unsafe fn call_for_fd(&mut self, command: libc::c_int) -> io::Result<OwnedFd> {
        // SAFETY: the caller's claim.
        let fd = unsafe { self.call(command) }?;
        // SAFETY: a new descriptor, which has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    }
}

/// A map of 4-byte keys 0 to `entries` - 1.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    value_bytes: usize,
}

impl Map {
    pub(crate) fn create(kind: MapKind, value_bytes: usize, entries: u32) -> io::Result<Self> {
        let mut attr = Attr::new()
            .u32(0, kind as u32)
            .u32(4, 4)
            .u32(8, value_bytes as u32)
            .u32(12, entries)
            .u32(16, if kind == MapKind::Mapped { MAP_MAPPABLE } else { 0 });
        // SAFETY: no addresses in it.
        let fd = unsafe { attr.call_for_fd(MAP_CREATE) }?;
        Ok(Self { fd, value_bytes })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Stores a 4-byte value, as maps of sockets have.
    pub(crate) fn set(&self, key: u32, value: u32) -> io::Result<()> {
        if self.value_bytes != 4 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut attr = Attr::new()
            .u32(0, self.fd.as_raw_fd() as u32)
            .memory(8, &raw const key)
            .memory(16, &raw const value);
        // SAFETY: key and value are 4 bytes long, as the map's are, and outlive the call.
        unsafe { attr.call(MAP_UPDATE) }.map(drop)
    }

    /// Takes a 4-byte value out, as maps of programs let one.
    pub(crate) fn clear(&self, key: u32) -> io::Result<()> {
        let mut attr = Attr::new().u32(0, self.fd.as_raw_fd() as u32).memory(8, &raw const key);
        // SAFETY: the key is 4 bytes long, as the map's are, and outlives the call.
        unsafe { attr.call(MAP_DELETE) }.map(drop)
    }

    /// The sum over all cores of an 8-byte value.
    pub(crate) fn sum(&self, key: u32) -> io::Result<u64> {
        // One value for every core that there can be.
        let mut values = [0_u64; CORES_MAX];
        if self.value_bytes != 8 || possible_cores()? > CORES_MAX {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut attr = Attr::new()
            .u32(0, self.fd.as_raw_fd() as u32)
            .memory(8, &raw const key)
            .memory(16, values.as_mut_ptr());
        // SAFETY: the key has 4 bytes; the kernel writes 8 for each possible core, of which there
        // are no more than `values` has room for.
        unsafe { attr.call(MAP_LOOKUP) }?;
        Ok(values.iter().sum())
    }
}

/// A hash table with keys of `KEY` bytes and one 64-bit word each.
#[derive(Debug)]
pub(crate) struct BpfMapData<const KEY: usize>(OwnedFd);

impl<const KEY: usize> BpfMapData<KEY> {
    /// A hash table of so many entries, with exact match.
    pub(crate) fn create(entries: u32) -> io::Result<Self> {
        const HASH: u32 = 1;
        Self::of_kind(HASH, entries, 0)
    }

    /// A longest-prefix-match table (LPM trie) of so many entries. Keys begin with a 32-bit prefix
    /// length in bits.
    pub(crate) fn create_of_prefixes(entries: u32) -> io::Result<Self> {
        const LPM_TRIE: u32 = 11;
        const NO_PREALLOC: u32 = 1;
        Self::of_kind(LPM_TRIE, entries, NO_PREALLOC)
    }

    fn of_kind(kind: u32, entries: u32, flags: u32) -> io::Result<Self> {
        let mut attr =
            Attr::new().u32(0, kind).u32(4, KEY as u32).u32(8, 8).u32(12, entries).u32(16, flags);
        // SAFETY: no addresses in it.
        unsafe { attr.call_for_fd(MAP_CREATE) }.map(Self)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// From now on there is `value` under `key`.
    pub(crate) fn set(&self, key: &[u8; KEY], value: u64) -> io::Result<()> {
        let fd = self.0.as_raw_fd() as u32;
        let mut attr = Attr::new().u32(0, fd).memory(8, key.as_ptr()).memory(16, &raw const value);
        // SAFETY: key and value have the table's sizes, `KEY` and 8 bytes, and outlive the call.
        unsafe { attr.call(MAP_UPDATE) }.map(drop)
    }

    /// From now on there is nothing under `key`, where something was.
    pub(crate) fn remove(&self, key: &[u8; KEY]) -> io::Result<()> {
        let mut attr = Attr::new().u32(0, self.0.as_raw_fd() as u32).memory(8, key.as_ptr());
        // SAFETY: the key has the table's size, `KEY` bytes, and outlives the call.
        unsafe { attr.call(MAP_DELETE) }.map(drop)
    }
}

/// Cores for which a counter has room.
const CORES_MAX: usize = 512;

/// Possible CPUs of this kernel: a lookup in a per-CPU map writes one value for each.
pub(crate) fn possible_cores() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next().and_then(|n| n.parse::<usize>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

/// What the kernel has to know of a program besides its code, by number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramShape {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    /// Where it will be attached; 0 where the kind says it.
    pub(crate) attach: u32,
}

/// Has the kernel verify and load a program. If the verifier rejects it, the error contains the
/// verifier's message. The verifier gives up where a signal waits, and is asked again.
pub(crate) fn load_program(code: &[Instruction], shape: ProgramShape) -> io::Result<OwnedFd> {
    let is_interrupted = |loaded: &io::Result<OwnedFd>| {
        loaded.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    };
    let mut loaded = load_once(code, shape, None);
    for _ in 0..LOAD_TRIES {
        if !is_interrupted(&loaded) {
            break;
        }
        // On a busy machine what waits may wait for this thread's turn.
        std::thread::yield_now();
        loaded = load_once(code, shape, None);
    }
    match loaded {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EINVAL)) => {
            let mut log = vec![0; LOG_BYTES];
            load_once(code, shape, Some(&mut log)).map_err(|error| explained(&error, &log))
        }
        other => other,
    }
}

fn load_once(
    code: &[Instruction],
    shape: ProgramShape,
    log: Option<&mut [u8]>,
) -> io::Result<OwnedFd> {
    let license = c"Dual MIT/GPL";
    let mut attr = Attr::new()
        .u32(0, shape.kind)
        .u32(44, shape.flags)
        .u32(68, shape.attach)
        .u32(4, code.len() as u32)
        .memory(8, code.as_ptr())
        .memory(16, license.as_ptr());
    if let Some(log) = log {
        attr = attr.u32(24, 1).u32(28, log.len() as u32).memory(32, log.as_mut_ptr());
    }
    // SAFETY: instructions, licence and log outlive the call, with these lengths.
    unsafe { attr.call_for_fd(PROG_LOAD) }
}

/// Runs a program on `frame`, which no device has seen, so many times one after another, each on
/// what the last one left; `frame` is what it left then. Returns the last verdict and the
/// nanoseconds of one run.
pub(crate) fn run_program(
    program: &OwnedFd,
    frame: &mut Vec<u8>,
    times: u32,
) -> io::Result<(u32, u32)> {
    let mut out = vec![0; frame.len() + 512];
    let mut attr = Attr::new()
        .u32(0, program.as_raw_fd() as u32)
        .u32(8, frame.len() as u32)
        .u32(12, out.len() as u32)
        .memory(16, frame.as_ptr())
        .memory(24, out.as_mut_ptr())
        .u32(32, times);
    // SAFETY: the kernel reads `frame.len()` bytes of the frame and writes no more than
    // `out.len()` bytes to `out`; both outlive the call.
    unsafe { attr.call(PROG_TEST_RUN) }?;
    out.truncate(attr.u32_at(12) as usize);
    *frame = out;
    Ok((attr.u32_at(4), attr.u32_at(36)))
}

/// Runs a program on copies of `frame` that interface `index` seems to have received; what it sends
/// back or passes on really goes there. Linux 5.18.
pub(crate) fn run_program_live(
    program: &OwnedFd,
    (index, frame): (u32, &[u8]),
    times: u32,
) -> io::Result<()> {
    const LIVE_FRAMES: u32 = 2;
    // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
    let context = [0, frame.len() as u32, 0, index, 0, 0];
    let mut attr = Attr::new()
        .u32(0, program.as_raw_fd() as u32)
        .u32(8, frame.len() as u32)
        .memory(16, frame.as_ptr())
        .u32(32, times)
        .u32(40, size_of_val(&context) as u32)
        .memory(48, context.as_ptr())
        .u32(64, LIVE_FRAMES);
    // SAFETY: the kernel reads `frame.len()` bytes of the frame and the whole context, which both
    // outlive the call, and writes to neither.
    unsafe { attr.call(PROG_TEST_RUN) }.map(drop)
}

/// A loaded program.
#[derive(Debug)]
pub(crate) struct BpfProgram(OwnedFd);

impl BpfProgram {
    /// Has the kernel verify and load the program. If the verifier rejects it, the error contains
    /// the verifier's message.
    pub(crate) fn load(code: &[Instruction], deliver: Deliver) -> io::Result<Self> {
        // What goes on to the system may be longer than a page, and is read in its first part.
        let flags = if deliver == Deliver::Onward { HAS_FRAGMENTS } else { 0 };
        load_program(code, ProgramShape { kind: PROG_TYPE_XDP, flags, attach: 0 }).map(Self)
    }

    /// The same for a program of the traffic control's ingress.
    pub(crate) fn load_for_ingress(code: &[Instruction]) -> io::Result<Self> {
        let shape = ProgramShape { kind: PROG_TYPE_SCHED, flags: 0, attach: 0 };
        load_program(code, shape).map(Self)
    }

    /// The descriptor, for a map of programs.
    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The descriptor.
    pub(crate) const fn descriptor(&self) -> &OwnedFd {
        &self.0
    }

    /// Runs it on `frame`, which no device has seen, so many times one after another, each on what
    /// the last one left; `frame` is what it left then. Returns the last verdict and the
    /// nanoseconds of one run. For tests and benches.
    pub(crate) fn run(&self, frame: &mut Vec<u8>, times: u32) -> io::Result<(u32, u32)> {
        run_program(&self.0, frame, times)
    }

    /// Attaches it to an interface, until what is returned is dropped.
    pub(crate) fn attach(&self, index: u32, how: Attach) -> io::Result<Attachment> {
        self.attach_as(index, (ATTACH_XDP, how as u32))
    }

    /// Attaches it to what an interface has received and is to give to the system (Linux 6.6).
    pub(crate) fn attach_to_ingress(&self, index: u32) -> io::Result<Attachment> {
        self.attach_as(index, (ATTACH_INGRESS, 0))
    }

    fn attach_as(&self, index: u32, (at, flags): (u32, u32)) -> io::Result<Attachment> {
        let mut attr =
            Attr::new().u32(0, self.0.as_raw_fd() as u32).u32(4, index).u32(8, at).u32(12, flags);
        // SAFETY: no addresses in it.
        unsafe { attr.call_for_fd(LINK_CREATE) }.map(|link| Attachment { link })
    }

    /// The program's verdict for `frame`, by a test run that involves no device.
    #[cfg(test)]
    pub(crate) fn verdict(&self, frame: &[u8]) -> io::Result<u32> {
        let mut attr = Attr::new()
            .u32(0, self.0.as_raw_fd() as u32)
            .u32(8, frame.len() as u32)
            .memory(16, frame.as_ptr())
            .u32(32, 1);
        // SAFETY: the kernel reads `frame.len()` bytes of the frame, which outlives the call.
        unsafe { attr.call(PROG_TEST_RUN) }?;
        Ok(attr.u32_at(4))
    }
}

/// A program on an interface; leaves it when dropped, and with the process.
#[derive(Debug)]
pub(crate) struct Attachment {
    link: OwnedFd,
}

impl Attachment {
    /// Whether the program is still there: it was not taken off, and the interface exists. One
    /// system call.
    pub(crate) fn is_in_force(&self) -> io::Result<bool> {
        const INFO_WORDS: usize = 16;
        let mut info = [0_u64; INFO_WORDS];
        let mut attr = Attr::new()
            .u32(0, self.link.as_raw_fd() as u32)
            .u32(4, size_of_val(&info) as u32)
            .memory(8, info.as_mut_ptr());
        // SAFETY: the kernel writes no more than the size of `info`, which outlives the call, and
        // every value is valid for it.
        unsafe { attr.call(OBJECT_INFO) }?;
        // The first four bytes of that word are the number of the interface.
        let [_, _, interface, ..] = info;
        let number = u32::from_ne_bytes(*interface.to_ne_bytes().first_chunk().unwrap_or(&[0; 4]));
        Ok(number != 0)
    }

    /// As another program of the system may do: takes the program off the interface.
    #[cfg(test)]
    pub(crate) fn take_off(&self) -> io::Result<()> {
        const LINK_DETACH: libc::c_int = 34;
        let mut attr = Attr::new().u32(0, self.link.as_raw_fd() as u32);
        // SAFETY: no addresses in it.
        unsafe { attr.call(LINK_DETACH) }.map(|_| ())
    }
}

pub(crate) fn explained(error: &io::Error, log: &[u8]) -> io::Error {
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let words = String::from_utf8_lossy(log.get(..end).unwrap_or_default());
    let last: Vec<_> = words.lines().rev().take(3).collect();
    let last = last.into_iter().rev().collect::<Vec<_>>().join("; ");
    io::Error::new(error.kind(), format!("the kernel's verifier rejects the program: {last}"))
}
