//! `GuardError`: why an interface cannot be guarded, and the remedy.

use std::io;
use std::path::PathBuf;

use floodwall_device::DeviceError;
use thiserror::Error;

/// Why an interface cannot be guarded.
#[derive(Debug, Error)]
pub enum GuardError {
    /// There is no such interface in this network namespace.
    #[error("{0}: no such interface in this network namespace")]
    NoInterface(String),
    /// No port is named, or too many are.
    #[error("{0} ports are named; name 1 to {1} ports with --port and --udp")]
    Ports(usize, usize),
    /// The kernel shows no type information.
    #[error(
        "the kernel shows no BTF (/sys/kernel/btf/vmlinux: {0}); it takes a kernel with \
         CONFIG_DEBUG_INFO_BTF"
    )]
    NoBtf(String),
    /// The kernel lacks a function.
    #[error(
        "the kernel has no {0}; it takes Linux 6.9 or later with CONFIG_SYN_COOKIES and \
         CONFIG_BPF_JIT"
    )]
    NoFunction(&'static str),
    /// A capability lacks.
    #[error(
        "no permission to load programs ({0}); it takes CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, \
         or root"
    )]
    NoPrivilege(io::Error),
    /// The kernel refuses a program.
    #[error("the kernel refuses the program `{0}`: {1}")]
    Program(&'static str, io::Error),
    /// A map cannot be made or written.
    #[error("a map of the programs: {0}")]
    Map(#[from] io::Error),
    /// There is a program already.
    #[error(
        "{0}: there is an XDP program already, of another guard or another tool; `ip link show \
         {0}` has its number, and `floodwall guard {0} --status` says whether it is a guard; one \
         that is pinned is replaced with --pin, and removed by `floodwall cleanup {0}`"
    )]
    Busy(String),
    /// The driver has no XDP.
    #[error("{0}: its driver has no XDP ({1}); `--generic` works with any driver, and costs more")]
    NoDriverSupport(String, io::Error),
    /// The program cannot be attached for another reason.
    #[error("{0}: a program cannot be attached: {1}")]
    Attach(String, io::Error),
    /// The kernel accepts no cookies.
    #[error(
        "net.ipv4.tcp_syncookies is 0, and then the kernel resets each connection that a cookie \
         proved; set it to 1"
    )]
    CookiesOff,
    /// A rule of the packet filter breaks connections: the words of `--check`.
    #[error("{0} (--ignore-rules starts in spite of it)")]
    Rule(String),
    /// Something could not be pinned.
    #[error("{0} cannot be pinned: {1}; it takes a BPF file system: mount -t bpf bpf /sys/fs/bpf")]
    Pin(String, io::Error),
    /// What is pinned under its name is at another interface.
    #[error(
        "{0}: what is pinned in {path} is at an interface of another network namespace, or of \
         another name; end that guard there with `floodwall guard {0} --unpin`, or start without \
         --pin",
        path = .1.display()
    )]
    PinnedElsewhere(String, PathBuf),
    /// The interface's receive half has no place before programs.
    #[error("{0} (without --kernel-half it stays where it is)")]
    Half(#[from] DeviceError),
}
