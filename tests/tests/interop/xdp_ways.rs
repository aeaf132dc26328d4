//! Every way in which an interface is opened by AF_XDP: native and generic, one queue and four.
//!
//! In each, both families: pings of several sizes, and datagrams of many flows and sizes there and
//! back, with checksums left unfinished by the kernel at the other end.

use std::net::{IpAddr, SocketAddr};

use floodwall_device::XdpMode;
use floodwall_services::{ServiceKind, UdpService};

use crate::bench::ECHO_PORT;
use crate::echo::{PATIENCE, bind, there_and_back};
use crate::link::{Ends, ends};
use crate::namespace::{inside, until};
use crate::ping::ping_all;
use crate::xdp_site::{KEPT, SharedInterface};

/// Flows of a family: enough for each of four queues to have some.
const FLOWS: usize = 48;

/// In one way: the mode, the word that the notes begin with, the queues.
fn come_back(mode: XdpMode, words: &'static str, queues: usize) {
    inside(move || {
        let echo = Box::new(UdpService::new(ServiceKind::Echo, ECHO_PORT));
        let Some(shared) = SharedInterface::set_up(mode, queues, vec![echo]) else { return };
        let way = format!("{mode}, {queues} queues");
        assert!(shared.notes[0].starts_with(words), "{way}: {:?}", shared.notes);
        for Ends { ours, kernel } in ends() {
            shared.host.inside(|| asks(ours, kernel));
        }
        for kept in KEPT {
            assert!(shared.host.is_answered(kept), "{way}: the interface is the kernel's, too");
        }
        assert!(until(PATIENCE, || shared.settle().1.is_exact()), "{:?}", shared.settle());
        let (each, settled) = shared.settle();
        assert_eq!((each.len(), settled.lost), (queues, 0), "{way}");
        for (number, queue) in each.iter().enumerate().take(used(mode, queues)) {
            assert!(queue.rx_packets >= 3, "{way}: queue {number} is hardly used: {queue:?}");
        }
        let end = shared.running.stop();
        let ended = end.outcome.expect("it was asked to end");
        let lost = ended.ports.iter().map(|port| port.stats.rx_lost() + port.stats.tx_lost());
        assert_eq!(lost.sum::<u64>(), 0, "{way}: {:?}", ended.ports);
    });
}

#[test]
fn pings_and_datagrams_of_both_families_come_back_in_native_mode_by_one_queue() {
    come_back(XdpMode::Native, "native XDP", 1);
}

#[test]
fn pings_and_datagrams_of_both_families_come_back_in_native_mode_by_four_queues() {
    come_back(XdpMode::Native, "native XDP", 4);
}

#[test]
fn pings_and_datagrams_of_both_families_come_back_in_generic_mode_by_one_queue() {
    come_back(XdpMode::Generic, "generic XDP", 1);
}

#[test]
fn pings_and_datagrams_of_both_families_come_back_in_generic_mode_by_four_queues() {
    come_back(XdpMode::Generic, "generic XDP", 4);
}

/// Queues that the kernel puts frames into. In generic mode it takes the queue `n` of a veth's
/// sender for `n - 1`, so that the last stays empty.
fn used(mode: XdpMode, queues: usize) -> usize {
    if mode == XdpMode::Generic { (queues - 1).max(1) } else { queues }
}

/// The host's questions to us, and our answers.
fn asks(ours: IpAddr, kernel: IpAddr) {
    for bytes in [0, 56, 1400] {
        let Some(()) = ping_all(&ours.to_string(), 10, &format!("-i 0.01 -s {bytes}")) else {
            return;
        };
    }
    for _ in 0..FLOWS {
        let socket = bind(kernel);
        for len in [0, 1, 700, 1452] {
            there_and_back(&socket, SocketAddr::new(ours, ECHO_PORT), len);
        }
    }
}
