//! Messages of `AfXdp::open` on systems that lack something, simulated for one thread by a seccomp
//! filter, or by a lower limit. A process of its own, because limits are per process.

use floodwall_base::MacAddr;
use floodwall_device::{AfXdp, AfXdpConfig, Device, DeviceError, OpenedXdp};
use floodwall_packet::{Burst, Pool, PoolConfig};
use rustix::thread::CapabilitySet;

use crate::namespace::{self, inside, ip, skip};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0a]);

fn veth() -> bool {
    let made = ip("link add ours type veth peer name theirs")
        && ip("link set ours up")
        && ip("link set theirs up");
    if !made {
        skip("no veth pair in this kernel");
    }
    made
}

/// From now on the calling thread's calls of this kind end with this error; `first` is what their
/// first argument must be, where that matters.
fn fail(call: libc::c_long, first: Option<u32>, errno: libc::c_int) -> bool {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    // Offsets of the call's number and of the low half of its first argument.
    let (number_at, first_at) = (0, if cfg!(target_endian = "little") { 16 } else { 20 });
    let line = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let anything = u8::from(first.is_some());
    let mut lines = [
        line(LOAD, 0, 0, number_at),
        line(EQUAL, 0, 3, call as u32),
        line(LOAD, 0, 0, first_at),
        line(EQUAL, 0, anything, first.unwrap_or(0)),
        line(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        line(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: lines.len() as u16, filter: lines.as_mut_ptr() };
    // SAFETY: takes no pointer; changes this thread alone.
    let pledged = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0;
    // SAFETY: the kernel copies the filter, which outlives the call.
    let set = unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    pledged && set
}

/// The error of opening where these calls fail.
fn refused(call: libc::c_long, first: Option<u32>, errno: libc::c_int) -> Option<DeviceError> {
    let (tell, told) = std::sync::mpsc::channel();
    inside(move || {
        if !veth() {
            return;
        }
        if !fail(call, first, errno) {
            return skip("no filter of system calls in this kernel");
        }
        tell.send(AfXdp::open("ours", &AfXdpConfig::new(MAC)).map(drop).unwrap_err()).unwrap();
    });
    told.try_recv().ok()
}

#[test]
fn a_system_without_bpf_or_without_its_sockets_is_told_what_to_do() {
    let cases = [
        (libc::SYS_bpf, None, libc::ENOSYS, ["BPF in this kernel", "CONFIG_BPF_SYSCALL"]),
        (libc::SYS_bpf, None, libc::EPERM, ["CAP_BPF", "cap_net_admin"]),
        (
            libc::SYS_socket,
            Some(libc::AF_XDP as u32),
            libc::EAFNOSUPPORT,
            ["AF_XDP in this kernel", "CONFIG_XDP_SOCKETS"],
        ),
    ];
    for (call, first, errno, words) in cases {
        let Some(error) = refused(call, first, errno) else { return };
        let said = error.to_string();
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
        let instead = matches!(error, DeviceError::NoPrivilege { .. });
        assert!(instead || said.contains("packet:ours"), "{said}");
    }
}

#[test]
fn a_bound_on_locked_memory_is_told_with_what_raises_it() {
    inside(|| {
        let little = libc::rlimit { rlim_cur: 64 << 10, rlim_max: 64 << 10 };
        // SAFETY: the structure is borrowed for the call.
        let bounded = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const little) } == 0;
        let three = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::BPF;
        if !veth() || !bounded || !namespace::become_nothing(three) {
            return skip("no bound can be set here");
        }
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let opened = AfXdp::open("ours", &AfXdpConfig::new(MAC));
        // The trial, or at the latest the pool, is more than may be locked.
        let error = match opened {
            Ok(OpenedXdp { mut queues, .. }) => {
                (0..64).find_map(|_| queues[0].receive(&pool, &mut Burst::new()).err())
            }
            Err(error) => Some(error),
        };
        let said = error.expect("more than the bound was locked").to_string();
        assert!(said.contains("LimitMEMLOCK=infinity") && said.contains("ulimit -l"), "{said}");
    });
}
