//! Link addresses: each side's neighbour entry for the other, and that it stays.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, IfIndex, MacAddr};
use floodwall_ip::AddressState;
use floodwall_ip::neighbor::NeighborState;

use crate::bench::{Bench, ECHO_PORT, start};
use crate::command::{ip, shown_by_ip};
use crate::echo::{self, PATIENCE};
use crate::link::{self, Ends, Kind, MAC, NAME, ends, kernel_mac};
use crate::namespace::{inside, pause, set, until};

/// The kernel's neighbour entry for `addr`.
fn known_to_kernel(addr: IpAddr) -> String {
    shown_by_ip(&format!("neigh show {addr} dev {NAME}"))
}

/// What we know of `addr`.
fn known_to_us(bench: &Bench, addr: IpAddr) -> Option<(NeighborState, Option<MacAddr>)> {
    bench.running.stack(move |stack| match addr {
        IpAddr::V4(addr) => {
            let found = stack.neighbors_v4().neighbor(IfIndex(1), addr);
            found.map(|n| (n.state, n.link_addr))
        }
        IpAddr::V6(addr) => {
            let found = stack.neighbors_v6().neighbor(IfIndex(1), addr);
            found.map(|n| (n.state, n.link_addr))
        }
    })
}

pub(crate) fn each_side_knows_the_other(bench: Bench) {
    for ends in ends() {
        echo::sizes(ends, 500);
        let (theirs, ours) = (known_to_kernel(ends.ours), known_to_us(&bench, ends.kernel));
        if !bench.kind.is_ethernet() {
            assert_eq!((theirs.as_str(), ours), ("", None), "there is nothing to know");
            continue;
        }
        let is_known = ["REACHABLE", "DELAY", "STALE"].iter().any(|word| theirs.contains(word));
        assert!(is_known && theirs.contains(&format!("lladdr {MAC}")), "{theirs}");
        let (state, link_addr) = ours.expect("an entry");
        assert_eq!(link_addr, Some(kernel_mac()));
        use NeighborState::{Delay, Reachable, Stale};
        assert!(matches!(state, Reachable | Delay | Stale), "{state:?}");
    }
    bench.end_without_loss();
}

/// The kernel's reachability confirmation expires soon, and it probes us by unicast; nothing is
/// lost meanwhile.
pub(crate) fn the_kernel_asks_again(bench: Bench) {
    if !bench.kind.is_ethernet() {
        return;
    }
    for family in ["ipv4", "ipv6"] {
        set(&format!("net/{family}/neigh/{NAME}/base_reachable_time_ms"), "300");
        set(&format!("net/{family}/neigh/{NAME}/delay_first_probe_time"), "1");
    }
    use floodwall_base::Counter::{FloodwallArpInRequests, Icmp6InNeighborSolicits};
    for (ends, counter) in ends().into_iter().zip([FloodwallArpInRequests, Icmp6InNeighborSolicits])
    {
        let before = bench.running.stats().counters.of(counter);
        let (socket, ours) = (echo::bind(ends.kernel), ends.ours);
        // Not by `ping`, which confirms reachability to the kernel with each answer.
        for len in 0..20 {
            echo::there_and_back(&socket, SocketAddr::new(ours, ECHO_PORT), len);
            pause(Duration::from_millis(200));
        }
        let asked = bench.running.stats().counters.of(counter) - before;
        assert!(asked >= 2, "asked {asked} times in 4 s");
        let is_good = || !known_to_kernel(ours).contains("FAILED");
        assert!(until(Duration::from_secs(1), is_good), "{}", known_to_kernel(ours));
    }
    bench.end_without_loss();
}

/// Address detection of the kernel's: it must not get what is ours.
#[test]
fn the_kernel_learns_that_our_address_is_taken() {
    inside(|| {
        let Some(bench) = Bench::set_up(Kind::Tap, true, None) else { return };
        set(&format!("net/ipv6/conf/{NAME}/accept_dad"), "1");
        let [_, Ends { ours, .. }] = ends();
        assert!(ip(&format!("addr add {ours}/64 dev {NAME}")));
        let has_failed = || shown_by_ip(&format!("addr show dev {NAME} dadfailed"));
        assert!(until(PATIENCE, || has_failed().contains(&format!("{ours}/64"))));
        bench.running.wait_for_state(ours, AddressState::Preferred);
        // Linux answers for no address that failed, so we are the only ones that have it.
        bench.end_without_loss();
    });
}

/// And the other way: what the kernel has is not ours, and the other addresses are.
#[test]
fn an_address_that_the_kernel_has_is_not_used() {
    inside(|| {
        let Some(device) = link::open(Kind::Tap, true) else { return };
        let [v4, Ends { ours, .. }] = ends();
        assert!(ip(&format!("addr add {ours}/64 dev {NAME} nodad")));
        // The kernel ends the tentative state in deferred work, and answers no probe until then.
        let tentative = format!("-6 addr show dev {NAME} to {ours} tentative");
        assert!(until(PATIENCE, || shown_by_ip(&tentative).is_empty()));
        let running = start(Kind::Tap, device, Vec::new());
        running.wait_for_state(ours, AddressState::Duplicate);
        running.wait_for_state(v4.ours, AddressState::Preferred);
        assert!(running.stats().counters.of(Counter::FloodwallDadConflicts) >= 1);
        running.stop().outcome.expect("it was asked to end");
    });
}
