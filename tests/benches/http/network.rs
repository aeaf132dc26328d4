//! Namespaces without names, the addresses in them, and the core of the kernel's receiving half.
//!
//! The bench itself is in the clients' namespace, where the TUNs are too; the kernel's server is in
//! one of its own at the other end of a veth. All of it goes with its last process.

use std::path::Path;
use std::process::Command;

use floodwall_dispatch::pin;

use crate::run_words;

/// A command in a namespace of its own with its own `/sys`; its arguments follow.
pub(crate) fn apart(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    let script = "mount -t sysfs sysfs /sys && exec \"$@\"";
    command.args(["--net", "--mount", "sh", "-c", script, "sh"]).arg(program);
    command
}

/// The loopback, and no duplicate address detection, as no address is used twice.
pub(crate) fn prepare() {
    assert!(run_words("ip link set lo up"), "`ip` works");
}

/// The server's core and the clients', where there are two.
pub(crate) fn cores() -> Option<[usize; 2]> {
    let cores = pin::cores_for(2).ok()?;
    Some([*cores.first()?, *cores.get(1)?])
}

/// The kernel's addresses on a device of the clients, and the device up.
pub(crate) fn give_addresses(device: &str, net: usize) {
    assert!(run_words(&format!("ip link set {device} up")), "{device} comes up");
    assert!(run_words(&format!("ip addr add 10.77.{net}.1/24 dev {device}")));
    assert!(run_words(&format!("ip addr add fd77:{net}::1/64 dev {device} nodad")));
}

/// What is written to a TUN is received on the clients' core.
pub(crate) fn receive_on_clients_core(device: &str) {
    let Some([_, clients]) = cores() else { return };
    let mask = format!("{:x}", 1_u64 << (clients % 32));
    let groups = ",00000000".repeat(clients / 32);
    let file = format!("/sys/class/net/{device}/queues/rx-0/rps_cpus");
    std::fs::write(&file, mask + &groups).unwrap_or_else(|error| panic!("{file}: {error}"));
}

/// A veth from here to the namespace of process `far`.
pub(crate) fn cable(near_end: &str, far_end: &str, net: usize, far: u32) {
    let add = format!("ip link add {near_end} type veth peer name {far_end} netns {far}");
    assert!(run_words(&add), "{add}");
    give_addresses(near_end, net);
    let there = format!("nsenter -t {far} -n -m");
    for words in [
        "ip link set lo up".to_owned(),
        format!("ip link set {far_end} up"),
        format!("ip addr add 10.77.{net}.2/24 dev {far_end}"),
        format!("ip addr add fd77:{net}::2/64 dev {far_end} nodad"),
    ] {
        assert!(run_words(&format!("{there} {words}")), "{words}");
    }
    for (prefix, end) in [("", near_end), (there.as_str(), far_end)] {
        assert!(run_words(&format!("{prefix} ethtool -K {end} gro on")), "GRO on {end}");
        let mut words = prefix.split_whitespace().chain(["sh", "-c"]);
        let mut command = Command::new(words.next().unwrap());
        let script = format!("echo 1 > /sys/class/net/{end}/threaded");
        assert!(command.args(words).arg(script).status().unwrap().success(), "threaded NAPI");
    }
}

/// The kernel threads that receive what arrives at a veth's end.
pub(crate) fn receivers(end: &str) -> Vec<u32> {
    let start = format!("napi/{end}-");
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let entry = entry.ok()?;
        let comm = std::fs::read_to_string(entry.path().join("comm")).ok()?;
        comm.starts_with(&start).then(|| entry.file_name().to_str()?.parse().ok()).flatten()
    });
    processes.collect()
}

/// The same command, bound to a core.
pub(crate) fn bound(core: usize, command: &Command) -> Command {
    let mut bound = Command::new("taskset");
    bound.args(["-c", &core.to_string()]).arg(command.get_program()).args(command.get_args());
    bound
}

/// Binds a thread to a core.
pub(crate) fn bind(thread: u32, core: usize) {
    assert!(run_words(&format!("taskset -cp {core} {thread}")), "taskset binds {thread}");
}
