//! The cable between the kernel and us: one interface of the kernel's, one device of ours.

use std::net::IpAddr;

use floodwall_base::MacAddr;
use floodwall_device::{
    AfPacket, AfPacketConfig, AfXdp, AfXdpConfig, Device, Tun, TunConfig, TunKind,
};
use floodwall_stack::{InterfaceConfig, LinkMedium};

use crate::command::{ip, shown_by_ip};
use crate::namespace::{available, has_interface, pause, set, until};

/// Our station.
pub(crate) const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0x77, 2]);
/// The kernel's interface, unless it is one end of a veth pair with ours at the other.
pub(crate) const NAME: &str = "fw0";
/// Our end of the cable.
pub(crate) const OTHER_END: &str = "fw1";
/// What every link here carries.
pub(crate) const MTU: u32 = 1500;

/// By what our packets reach the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Tap,
    Tun,
    /// A packet socket on one end of a virtual cable.
    Packet,
    /// AF_XDP on one end of a virtual cable.
    Xdp,
}

impl Kind {
    pub(crate) fn is_ethernet(self) -> bool {
        self != Self::Tun
    }

    pub(crate) fn medium(self) -> LinkMedium {
        if self.is_ethernet() { LinkMedium::Ethernet(MAC) } else { LinkMedium::Ip }
    }

    /// The default of `floodwall run`.
    pub(crate) fn usual_offload(self) -> bool {
        self != Self::Xdp
    }
}

/// The addresses at both ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    pub(crate) kernel: IpAddr,
    pub(crate) ours: IpAddr,
}

/// Of both families.
pub(crate) fn ends() -> [Ends; 2] {
    let pair = |kernel: &str, ours: &str| Ends {
        kernel: kernel.parse().unwrap(),
        ours: ours.parse().unwrap(),
    };
    [pair("10.77.0.1", "10.77.0.2"), pair("fd77::1", "fd77::2")]
}

/// Those of them that a link with such packets carries (RFC 8200 section 5).
pub(crate) fn ends_at(mtu: u32) -> Vec<Ends> {
    ends().into_iter().filter(|ends| ends.ours.is_ipv4() || mtu >= 1280).collect()
}

/// Our interface on such a link.
pub(crate) fn interface(kind: Kind, mtu: u32) -> InterfaceConfig {
    let ours = ends_at(mtu).into_iter().map(|Ends { ours, .. }| ours);
    let with_length =
        ours.map(|addr| if addr.is_ipv4() { format!("{addr}/24") } else { format!("{addr}/64") });
    InterfaceConfig {
        name: NAME.to_owned(),
        medium: kind.medium(),
        mtu,
        addresses: with_length.map(|addr| addr.parse().unwrap()).collect(),
        gateways: Vec::new(),
        ..InterfaceConfig::default()
    }
}

/// Lays the cable, gives the kernel its addresses, and opens our end. `None`, and said so, where
/// this machine cannot.
pub(crate) fn open(kind: Kind, offload: bool) -> Option<Box<dyn Device>> {
    open_with(kind, offload, MTU)
}

/// The same, with packets of at most `mtu` bytes.
pub(crate) fn open_with(kind: Kind, offload: bool, mtu: u32) -> Option<Box<dyn Device>> {
    let device: Box<dyn Device> = match kind {
        Kind::Tap => Box::new(open_tun(TunKind::Tap, offload, mtu)?),
        Kind::Tun => Box::new(open_tun(TunKind::Tun, offload, mtu)?),
        Kind::Packet | Kind::Xdp => {
            let ends = format!("{NAME} mtu {mtu} type veth peer name {OTHER_END} mtu {mtu}");
            assert!(ip(&format!("link add {ends}")));
            if mtu >= 1280 {
                set(&format!("net/ipv6/conf/{OTHER_END}/disable_ipv6"), "1");
            }
            assert!(ip(&format!("link set {OTHER_END} up")) && ip(&format!("link set {NAME} up")));
            if kind == Kind::Xdp {
                let opened = available(AfXdp::open(OTHER_END, &AfXdpConfig::new(MAC)))?;
                Box::new(opened.queues.into_iter().next().expect("one queue"))
            } else {
                let config = AfPacketConfig { offload, ..AfPacketConfig::default() };
                Box::new(available(AfPacket::open(OTHER_END, &config))?)
            }
        }
    };
    assert!(ip(&format!("addr add 10.77.0.1/24 dev {NAME}")));
    // Below 1280 the kernel has no IPv6 there.
    assert!(mtu < 1280 || give_v6("fd77::1/64", NAME));
    Some(device)
}

/// Gives an interface of the kernel's an IPv6 address, and waits until the kernel takes packets for
/// it: it adds that route later, on a thread of its own, and what comes before is lost.
pub(crate) fn give_v6(addr: &str, name: &str) -> bool {
    let host = addr.split('/').next().unwrap_or_default();
    let local = || shown_by_ip("-6 route show table local").contains(&format!("local {host} "));
    ip(&format!("addr add {addr} dev {name} nodad"))
        && until(std::time::Duration::from_secs(10), local)
}

/// A queue that was closed a moment ago may be held by a child process that is just being made.
fn open_tun(kind: TunKind, offload: bool, mtu: u32) -> Option<Tun> {
    let config = TunConfig { kind, queues: 1, vnet_header: offload, up: true, mtu: Some(mtu) };
    let mut opened = Tun::open(NAME, &config);
    until(std::time::Duration::from_secs(5), || {
        if opened.is_err() {
            opened = Tun::open(NAME, &config);
        }
        opened.is_ok()
    });
    available(opened)?.pop()
}

/// Deletes the kernel's interface, and with it the cable.
pub(crate) fn delete() {
    assert!(ip(&format!("link del {NAME}")));
}

/// Waits until the interface of an earlier run is gone.
pub(crate) fn wait_until_gone() {
    assert!(until(std::time::Duration::from_secs(5), || !has_interface(NAME)));
    pause(std::time::Duration::from_millis(1));
}

/// The kernel's station.
pub(crate) fn kernel_mac() -> MacAddr {
    let shown = shown_by_ip(&format!("-o link show dev {NAME}"));
    let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether").skip(1);
    words.next().expect("an Ethernet interface").parse().unwrap()
}
