//! One link with several stations: a bridge in the test's own namespace, and hosts with a
//! namespace each.
//!
//! Used where an attacker, an honest client, a router or a DHCP server must be another host.
//! Invariant: only we change what passes. The bridge does not snoop, floods what it must, and has
//! no address; no host accepts an advertisement or a redirect. The namespaces have no names and go
//! with their descriptors.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::command::{ip, run};
use crate::namespace::{packets_at, set};

/// The bridge.
const BRIDGE: &str = "br0";
/// A host's interface.
pub(crate) const ETH: &str = "eth0";

/// A bridge in the test's own namespace: one link with several stations.
pub(crate) struct Site {
    pub(crate) mtu: u32,
}

impl Site {
    /// Makes the bridge in the calling thread's namespace.
    pub(crate) fn new(mtu: u32) -> Self {
        for conf in ["all", "default"] {
            set(&format!("net/ipv6/conf/{conf}/disable_ipv6"), "1");
        }
        assert!(ip(&format!("link add {BRIDGE} type bridge mcast_snooping 0 forward_delay 0")));
        assert!(ip(&format!("link set {BRIDGE} mtu {mtu} up")));
        Self { mtu }
    }

    /// Plugs in an interface of this namespace.
    pub(crate) fn plug(&self, name: &str) {
        assert!(ip(&format!("link set {name} master {BRIDGE} mtu {} up", self.mtu)), "{name}");
    }

    /// A host with the addresses 10.77.0.`number` and fd77::`number`.
    pub(crate) fn host(&self, number: u8) -> Host {
        let v4 = format!("10.77.0.{number}/24");
        self.host_with(number, &v4, &format!("fd77::{number:x}/64"))
    }

    /// A host of a /24 and a /64 of its own, on a link with a /16 and a /48: 10.77.`number`.1 and
    /// fd77:0:0:`number`::1.
    pub(crate) fn host_of_own_network(&self, number: u8) -> Host {
        let v4 = format!("10.77.{number}.1/16");
        self.host_with(number, &v4, &format!("fd77:0:0:{number:x}::1/48"))
    }

    fn host_with(&self, number: u8, v4: &str, v6: &str) -> Host {
        let near = format!("h{number}");
        let host = Host::at(&near, &format!("e{number}"), self.mtu);
        self.plug(&near);
        // Hosts do not meet each other, only us: what one of them loses, it loses by us.
        assert!(ip(&format!("link set {near} type bridge_slave isolated on")));
        host.inside(|| {
            assert!(ip(&format!("addr add {v4} dev {ETH}")));
            assert!(crate::link::give_v6(v6, ETH));
        });
        host
    }
}

/// A station of its own on the link.
pub(crate) struct Host {
    namespace: File,
}

impl Host {
    /// A host at the other end of a new cable, `near`, without addresses; `far` is what its end is
    /// called before it is its interface.
    pub(crate) fn at(near: &str, far: &str, mtu: u32) -> Self {
        let host = Self::alone();
        assert!(ip(&format!("link add {near} mtu {mtu} type veth peer name {far} mtu {mtu}")));
        host.take(far, mtu);
        host
    }

    /// One that has no interface yet but its loopback.
    pub(crate) fn alone() -> Self {
        Self { namespace: make_namespace() }
    }

    /// Takes an interface of the calling thread's namespace for its own, and lets it accept no
    /// advertisement or redirect.
    pub(crate) fn take(&self, name: &str, mtu: u32) {
        let file = format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd());
        assert!(ip(&format!("link set {name} netns {file}")));
        self.inside(|| {
            assert!(ip("link set lo up"));
            assert!(ip(&format!("link set {name} name {ETH} mtu {mtu}")));
            for conf in ["all", "default", ETH] {
                for switch in ["accept_dad", "router_solicitations", "accept_ra"] {
                    set(&format!("net/ipv6/conf/{conf}/{switch}"), "0");
                }
                set(&format!("net/ipv6/conf/{conf}/accept_redirects"), "0");
            }
            assert!(ip(&format!("link set {ETH} up")));
        });
    }

    /// Does something in the host's namespace, on a thread of its own; so do the processes that it
    /// starts.
    pub(crate) fn inside<R: Send>(&self, what: impl FnOnce() -> R + Send) -> R {
        thread::scope(|scope| {
            let name = thread::current().name().unwrap_or("test").to_owned();
            let entered = thread::Builder::new().name(name).spawn_scoped(scope, || {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(self.namespace.as_fd(), kind).unwrap();
                what()
            });
            match entered.unwrap().join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Lets the host send so many packets a second, however large, and makes a faster sender wait;
    /// false, with a message, where the kernel or `tc` cannot.
    pub(crate) fn pace(&self, packets_per_second: u32) -> bool {
        self.pace_by(packets_per_second, "64k")
    }

    /// The same with so many bytes at once.
    pub(crate) fn pace_by(&self, packets_per_second: u32, burst: &str) -> bool {
        // A packet counts as much as the largest one (`mpu`), so that bytes are packets.
        let bits = u64::from(packets_per_second) * 1514 * 8;
        let words = format!(
            "qdisc replace dev {ETH} root tbf rate {bits}bit burst {burst} limit 20m mpu 1514"
        );
        self.inside(|| run("tc", &words, b"").is_some_and(|said| said.status.success()))
    }

    /// Whether a ping to this address is answered; words of `ping` may precede it.
    pub(crate) fn is_answered(&self, to: &str) -> bool {
        let words = format!("-n -q -c 2 -i 0.1 -w 1 {to}");
        self.inside(|| run("ping", &words, b"")).is_some_and(|said| said.status.success())
    }

    /// Packets that the host's interface has received.
    pub(crate) fn received(&self) -> u64 {
        self.inside(|| packets_at(ETH))[0]
    }

    /// Packets that the host's interface has sent.
    pub(crate) fn sent(&self) -> u64 {
        self.inside(|| packets_at(ETH))[1]
    }
}

/// A namespace that is there as long as its descriptor.
fn make_namespace() -> File {
    let made = thread::Builder::new().spawn(|| {
        #[expect(deprecated, reason = "what makes it unsafe is a flag about descriptors")]
        rustix::thread::unshare(UnshareFlags::NEWNET).unwrap();
        File::open("/proc/thread-self/ns/net").unwrap()
    });
    made.unwrap().join().unwrap()
}
