//! `WantsWatch`: the check that a stack reports all that it wants, and each change of it.
//!
//! Called by `Rig` for each packet that is classified by triage. The rules of the program at an
//! interface (`device/src/af_xdp/guard`) in a form that needs no kernel.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::IfIndex;
use floodwall_packet::{Engine as _, RxFilter, Triage};
use floodwall_stack::Stack;

/// Compares each triage class with what the stack reports to devices.
#[derive(Default)]
pub(crate) struct WantsWatch(RefCell<Option<(u64, RxFilter)>>);

impl WantsWatch {
    /// Checks `class`, the triage class of `packet`, with its network header at `l3`.
    pub(crate) fn look(&self, stack: &Stack, (packet, l3): (&[u8], usize), class: Triage) {
        let mut last = self.0.borrow_mut();
        let changed = stack.wants_changed();
        let (before, wanted) = last.get_or_insert_with(|| (changed, RxFilter::default()));
        let mut now = RxFilter::default();
        stack.rx_filter(IfIndex(1), &mut now);
        let is_first = *wanted == RxFilter::default();
        assert!(is_first || changed != *before || now == *wanted, "a change was not reported");
        if class != Triage::Rejectable {
            assert!(is_wanted(&now, packet, l3), "{class:?} but not wanted: {packet:x?}");
        }
        (*before, *wanted) = (changed, now);
    }
}

/// Whether a packet may be wanted.
fn is_wanted(wanted: &RxFilter, packet: &[u8], l3: usize) -> bool {
    let kind = (l3 > 0).then(|| packet.get(12..14)).flatten();
    let ip = packet.get(l3..).unwrap_or_default();
    let v4 = kind.is_none_or(|kind| kind == [8, 0]) && ip.first().is_some_and(|b| b >> 4 == 4);
    let v6 =
        kind.is_none_or(|kind| kind == [0x86, 0xdd]) && ip.first().is_some_and(|b| b >> 4 == 6);
    let of = |at: usize| ip.get(at..);
    if let Some(to) = of(16).filter(|_| v4).and_then(|b| b.first_chunk::<4>()) {
        let whole = ip[0] == 0x45 && u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff == 0;
        let any = wanted.any_v4 || wanted.asks_v4;
        let ports = of(20).filter(|_| whole).map(|ports| (ip[9], ports));
        return to[0] >= 224 || at(wanted, Ipv4Addr::from(*to).into(), any, ports);
    }
    if let Some(to) = of(24).filter(|_| v6).and_then(|b| b.first_chunk::<16>()) {
        let ports = of(40).map(|ports| (ip[6], ports));
        let spared = to[0] == 0xff || ip[6] == 58;
        return spared || at(wanted, Ipv6Addr::from(*to).into(), wanted.any_v6, ports);
    }
    true
}

fn at(wanted: &RxFilter, to: IpAddr, any: bool, ports: Option<(u8, &[u8])>) -> bool {
    let to = match to {
        IpAddr::V4(addr) => addr.to_ipv6_mapped(),
        IpAddr::V6(addr) => addr,
    };
    let mut claims = wanted.addresses().filter(|(addr, _)| *addr == to).peekable();
    if claims.peek().is_none() {
        return any;
    }
    if claims.any(|(_, by_port)| !by_port) {
        return true;
    }
    let Some((protocol, [_, _, high, low, ..])) = ports else { return true };
    let port = u16::from_be_bytes([*high, *low]);
    match protocol {
        17 => wanted.any_udp || wanted.udp.has(port),
        6 => wanted.any_tcp || wanted.tcp.has(port),
        _ => true,
    }
}
