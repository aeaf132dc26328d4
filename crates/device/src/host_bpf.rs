//! Programs, maps and links of the kernel's BPF, for programs that stand before the kernel's own
//! stack.
//!
//! Called by the crate `guard`; `af_xdp` has its own, narrower set. Invariants: every descriptor is
//! owned; a link leaves its interface when it is dropped, unless it was pinned; no call reads or
//! writes beyond the sizes that a map was made with. Reading: bpf(2), `linux/bpf.h`.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use floodwall_bpf::Instruction;

use crate::af_xdp::bpf::{
    ATTACH_INGRESS, ATTACH_XDP, Attr, HAS_FRAGMENTS, LINK_CREATE, MAP_CREATE, MAP_DELETE,
    MAP_LOOKUP, MAP_UPDATE, OBJECT_INFO, PROG_TYPE_SCHED, PROG_TYPE_XDP, ProgramShape,
    load_program, possible_cores, run_program, run_program_live,
};
use crate::interface::InterfaceControl;

const MAP_NEXT_KEY: libc::c_int = 4;
const OBJ_PIN: libc::c_int = 6;
const OBJ_GET: libc::c_int = 7;
const PROG_QUERY: libc::c_int = 16;
const LINK_UPDATE: libc::c_int = 29;
/// Links that one hook of an interface has at most (`bpf_mprog_max`).
const HOOK_LINKS: usize = 64;

/// XDP in front of the system's stack, by any driver; in the driver.
const GENERIC_MODE: u32 = 1 << 1;
const DRIVER_MODE: u32 = 1 << 2;

/// Kinds of maps by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostMapKind {
    /// A value by key.
    Hash = 1,
    /// A value an index.
    Array = 2,
    /// Programs by index.
    Programs = 3,
    /// One value a core and index.
    PerCoreArray = 6,
    /// A value by key; when full, what was used longest ago goes.
    LruHash = 9,
}

/// A map.
#[derive(Debug)]
pub struct HostMap {
    fd: OwnedFd,
    kind: HostMapKind,
    key_bytes: usize,
    value_bytes: usize,
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

impl HostMap {
    /// Creates one.
    ///
    /// # Errors
    /// The kernel refuses: no privilege, no memory.
    pub fn create(
        kind: HostMapKind,
        key_bytes: usize,
        value_bytes: usize,
        entries: u32,
    ) -> io::Result<Self> {
        let mut attr = Attr::new()
            .u32(0, kind as u32)
            .u32(4, key_bytes as u32)
            .u32(8, value_bytes as u32)
            .u32(12, entries);
        // SAFETY: no addresses in it.
        let fd = unsafe { attr.call_for_fd(MAP_CREATE) }?;
        Ok(Self { fd, kind, key_bytes, value_bytes })
    }

    /// The descriptor, for programs.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Puts a value under a key. Not for values of each core's own.
    ///
    /// # Errors
    /// Sizes differ from the map's, or the kernel refuses: it is full.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let fits = key.len() == self.key_bytes && value.len() == self.value_bytes;
        if !fits || self.kind == HostMapKind::PerCoreArray {
            return Err(invalid());
        }
        let mut attr = Attr::new()
            .u32(0, self.fd.as_raw_fd() as u32)
            .memory(8, key.as_ptr())
            .memory(16, value.as_ptr());
        // SAFETY: key and value have the map's sizes, as was checked, and outlive the call.
        unsafe { attr.call(MAP_UPDATE) }.map(drop)
    }

    /// Puts a program into a map of programs.
    ///
    /// # Errors
    /// The kernel refuses: another kind of program than those that are there.
    pub fn set_program(&self, index: u32, program: &HostProgram) -> io::Result<()> {
        self.set(&index.to_ne_bytes(), &program.fd().to_ne_bytes())
    }

    /// Takes a key out.
    ///
    /// # Errors
    /// It is not there, or the map lets none be taken out.
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        if key.len() != self.key_bytes {
            return Err(invalid());
        }
        let mut attr = Attr::new().u32(0, self.fd.as_raw_fd() as u32).memory(8, key.as_ptr());
        // SAFETY: the key has the map's size, as was checked, and outlives the call.
        unsafe { attr.call(MAP_DELETE) }.map(drop)
    }

    /// The key behind this one, or the first.
    ///
    /// # Errors
    /// There is none.
    pub fn next_key(&self, key: Option<&[u8]>) -> io::Result<Vec<u8>> {
        if key.is_some_and(|key| key.len() != self.key_bytes) {
            return Err(invalid());
        }
        let mut next = vec![0; self.key_bytes];
        let mut attr = Attr::new().u32(0, self.fd.as_raw_fd() as u32).memory(16, next.as_mut_ptr());
        if let Some(key) = key {
            attr = attr.memory(8, key.as_ptr());
        }
        // SAFETY: both keys have the map's size and outlive the call.
        unsafe { attr.call(MAP_NEXT_KEY) }?;
        Ok(next)
    }

    /// The value under a key: of each core one behind the other, where cores have their own.
    ///
    /// # Errors
    /// It is not there.
    pub fn get(&self, key: &[u8]) -> io::Result<Vec<u8>> {
        if key.len() != self.key_bytes {
            return Err(invalid());
        }
        let values = if self.kind == HostMapKind::PerCoreArray { possible_cores()? } else { 1 };
        // The kernel rounds each core's value up to whole words.
        let mut value = vec![0; self.value_bytes.next_multiple_of(8) * values];
        let mut attr = Attr::new()
            .u32(0, self.fd.as_raw_fd() as u32)
            .memory(8, key.as_ptr())
            .memory(16, value.as_mut_ptr());
        // SAFETY: the key has the map's size; the value has room for what the kernel writes, one
        // rounded value for each possible core; both outlive the call.
        unsafe { attr.call(MAP_LOOKUP) }?;
        Ok(value)
    }

    /// Keeps it in a BPF file system under this name.
    ///
    /// # Errors
    /// The name is taken, or of no BPF file system.
    pub fn pin(&self, path: &Path) -> io::Result<()> {
        pin(&self.fd, path)
    }

    /// Opens a pinned map, which has this shape.
    ///
    /// # Errors
    /// It is not there.
    pub fn open(
        path: &Path,
        kind: HostMapKind,
        key_bytes: usize,
        value_bytes: usize,
    ) -> io::Result<Self> {
        Ok(Self { fd: open(path)?, kind, key_bytes, value_bytes })
    }
}

fn path_of(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| invalid())
}

fn pin(fd: &OwnedFd, path: &Path) -> io::Result<()> {
    let path = path_of(path)?;
    let mut attr = Attr::new().memory(0, path.as_ptr()).u32(8, fd.as_raw_fd() as u32);
    // SAFETY: the path ends with a zero and outlives the call.
    unsafe { attr.call(OBJ_PIN) }.map(drop)
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let path = path_of(path)?;
    let mut attr = Attr::new().memory(0, path.as_ptr());
    // SAFETY: the path ends with a zero and outlives the call, which answers with a descriptor.
    unsafe { attr.call_for_fd(OBJ_GET) }
}

/// Kinds of programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostProgramKind {
    /// In the driver.
    Xdp,
    /// At the kernel's traffic control, on arrival.
    TcIngress,
}

/// A loaded program.
#[derive(Debug)]
pub struct HostProgram {
    fd: OwnedFd,
    kind: HostProgramKind,
}

impl HostProgram {
    /// Has the kernel verify and load a program.
    ///
    /// # Errors
    /// It refuses; the verifier's last words are in the error.
    pub fn load(code: &[Instruction], kind: HostProgramKind) -> io::Result<Self> {
        let (number, flags, attach) = match kind {
            HostProgramKind::Xdp => (PROG_TYPE_XDP, HAS_FRAGMENTS, ATTACH_XDP),
            HostProgramKind::TcIngress => (PROG_TYPE_SCHED, 0, ATTACH_INGRESS),
        };
        let fd = load_program(code, ProgramShape { kind: number, flags, attach })?;
        Ok(Self { fd, kind })
    }

    fn fd(&self) -> u32 {
        self.fd.as_raw_fd() as u32
    }

    /// Runs it on `frame`, which no device has seen, so many times, each on what the last one left.
    /// Returns the last verdict and the nanoseconds of one run. For tests and benches.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn run(&self, frame: &mut Vec<u8>, times: u32) -> io::Result<(u32, u32)> {
        run_program(&self.fd, frame, times)
    }

    /// Runs it on so many copies of `frame` that the interface with that number seems to have
    /// received; what it sends back really leaves. For tests.
    ///
    /// # Errors
    /// The kernel refuses, or a signal came.
    pub fn run_live(&self, index: u32, frame: &[u8], times: u32) -> io::Result<()> {
        run_program_live(&self.fd, (index, frame), times)
    }
}

/// A program on an interface. It leaves it when this is dropped and it is not pinned.
#[derive(Debug)]
pub struct HostLink(OwnedFd);

impl HostLink {
    /// Attaches a program to the interface with that number; an XDP program in front of the
    /// system's stack, and not in the driver, where `generic` says so.
    ///
    /// # Errors
    /// The kernel refuses: there is one already (`EBUSY`), or the driver has no XDP
    /// (`EOPNOTSUPP`).
    pub fn attach(program: &HostProgram, index: u32, generic: bool) -> io::Result<Self> {
        let (attach, flags) = match program.kind {
            HostProgramKind::Xdp if generic => (ATTACH_XDP, GENERIC_MODE),
            HostProgramKind::Xdp => (ATTACH_XDP, DRIVER_MODE),
            HostProgramKind::TcIngress => (ATTACH_INGRESS, 0),
        };
        let mut attr = Attr::new().u32(0, program.fd()).u32(4, index).u32(8, attach).u32(12, flags);
        // SAFETY: no addresses in it.
        unsafe { attr.call_for_fd(LINK_CREATE) }.map(Self)
    }

    /// Puts another program in the place of the one that is attached, without a gap.
    ///
    /// # Errors
    /// The kernel refuses: it is of another kind.
    pub fn update(&self, program: &HostProgram) -> io::Result<()> {
        let mut attr = Attr::new().u32(0, self.0.as_raw_fd() as u32).u32(4, program.fd());
        // SAFETY: no addresses in it.
        unsafe { attr.call(LINK_UPDATE) }.map(drop)
    }

    /// Keeps it in a BPF file system under this name.
    ///
    /// # Errors
    /// The name is taken, or of no BPF file system.
    pub fn pin(&self, path: &Path) -> io::Result<()> {
        pin(&self.0, path)
    }

    /// Opens a pinned one.
    ///
    /// # Errors
    /// It is not there.
    pub fn open(path: &Path) -> io::Result<Self> {
        open(path).map(Self)
    }
}

/// A link's number in the system, and the number of its interface, 0 once that is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostLinkInfo {
    /// Of the link; no other has it.
    pub id: u32,
    /// Of the interface, in whichever network namespace that is.
    pub interface: u32,
}

impl HostLink {
    /// What the kernel says of it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn info(&self) -> io::Result<HostLinkInfo> {
        // `struct bpf_link_info`: type, id, prog_id, padding, then that of its kind, of which XDP
        // and tcx have the interface first.
        let mut info = [0_u32; 32];
        let mut attr = Attr::new()
            .u32(0, self.0.as_raw_fd() as u32)
            .u32(4, size_of_val(&info) as u32)
            .memory(8, info.as_mut_ptr());
        // SAFETY: the kernel writes no more than the size of `info`, which outlives the call, and
        // every value is valid for it.
        unsafe { attr.call(OBJECT_INFO) }?;
        let [_, id, _, _, interface, ..] = info;
        Ok(HostLinkInfo { id, interface })
    }
}

/// The numbers of the links at the traffic control's ingress of an interface of this network
/// namespace, by its number (Linux 6.6).
///
/// # Errors
/// There is no such interface, or the kernel refuses.
pub fn ingress_links(interface: u32) -> io::Result<Vec<u32>> {
    let (mut programs, mut links) = ([0_u32; HOOK_LINKS], [0_u32; HOOK_LINKS]);
    let mut attr = Attr::new()
        .u32(0, interface)
        .u32(4, ATTACH_INGRESS)
        .memory(16, programs.as_mut_ptr())
        .u32(24, HOOK_LINKS as u32)
        .memory(40, links.as_mut_ptr());
    // SAFETY: the kernel writes as many numbers as the attribute says to each of the two places,
    // which have so many and outlive the call; every value is valid for them.
    unsafe { attr.call(PROG_QUERY) }?;
    // A program without a link has the number 0 there.
    Ok(links.into_iter().take(attr.u32_at(24) as usize).filter(|id| *id != 0).collect())
}

/// Number and MTU of an interface of this network namespace.
///
/// # Errors
/// It is not there.
pub fn interface(name: &str) -> io::Result<(u32, u32)> {
    let control = InterfaceControl::open()?;
    let interface = control.interface(name);
    Ok((interface.index()?.cast_unsigned(), interface.mtu()?))
}

/// Whether an interface of this network namespace is up and has a carrier.
///
/// # Errors
/// It is not there.
pub fn carries(name: &str) -> io::Result<bool> {
    InterfaceControl::open()?.interface(name).carries()
}

/// Nanoseconds of the clock that programs read (`bpf_ktime_get_boot_ns`).
#[must_use]
pub fn boot_nanos() -> u64 {
    nanos(rustix::time::ClockId::Boottime)
}

/// Nanoseconds since 1970.
#[must_use]
pub fn wall_nanos() -> u64 {
    nanos(rustix::time::ClockId::Realtime)
}

fn nanos(clock: rustix::time::ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
