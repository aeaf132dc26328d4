//! Floodwall beside the Linux kernel: both directions over TAP, TUN, a packet socket and AF_XDP.
//!
//! Floodwall runs as it does in `floodwall run`: a host under a worker, here on a thread of this
//! process; the kernel is its peer, in a network namespace that the test makes for itself and that
//! goes with the test's thread, also where the test panics. Root is needed: without it, or without
//! a command like `ping`, the test reports on its error output what was not checked, and passes.
//! Reading: `link.rs` for the cable, `running.rs` for our side, then the scenarios.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing test may panic")]

mod addresses;
mod attacks;
mod bench;
mod beside_linux;
mod binary;
mod cable;
mod client;
mod command;
mod configured;
mod cookies;
mod distant;
mod draining;
mod echo;
mod endurance;
mod few_connections;
mod flooded_router;
mod fragments;
mod groups;
mod instance;
mod life;
mod link;
mod lossy;
mod namespace;
mod neighbor;
mod nstat;
mod path;
mod path_mtu;
mod ping;
mod refusal;
mod relay;
mod replays;
mod router;
mod router_life;
mod routes;
mod running;
mod self_test;
mod several;
mod shared_interface;
mod site;
mod slow_readers;
mod supers;
mod syn_flood;
mod tcp;
mod xdp_site;
mod xdp_ways;

/// One test a scenario and kind of device.
macro_rules! over_every_link {
    ($($name:ident = $scenario:path,)*) => {
        mod over_tap { $(#[test] fn $name() {
            crate::bench::over(crate::link::Kind::Tap, $scenario);
        })* }
        mod over_tun { $(#[test] fn $name() {
            crate::bench::over(crate::link::Kind::Tun, $scenario);
        })* }
        mod over_a_packet_socket { $(#[test] fn $name() {
            crate::bench::over(crate::link::Kind::Packet, $scenario);
        })* }
        mod over_xdp { $(#[test] fn $name() {
            crate::bench::over(crate::link::Kind::Xdp, $scenario);
        })* }
    };
}

over_every_link! {
    pings_of_every_size_are_answered_without_loss = crate::ping::every_size,
    a_thousand_pings_at_a_millisecond_are_answered = crate::ping::a_thousand,
    our_link_local_address_answers_and_groups_are_silent = crate::ping::link_local_and_groups,
    pings_in_fragments_are_answered_in_fragments = crate::fragments::pings,
    datagrams_in_fragments_come_back_in_fragments = crate::fragments::datagrams,
    datagrams_of_every_size_come_back = crate::echo::every_size,
    a_dual_stack_socket_of_the_kernel_gets_its_datagrams_back = crate::echo::dual_stack,
    netcat_gets_its_lines_back = crate::echo::netcat,
    a_closed_port_is_a_refused_connection = crate::refusal::closed_port,
    an_unknown_protocol_is_refused_by_name = crate::refusal::unknown_protocol,
    tracepath_ends_at_us_and_finds_the_links_mtu = crate::path::tracepath,
    traceroute_ends_at_us = crate::refusal::traceroute,
    each_side_knows_the_other = crate::neighbor::each_side_knows_the_other,
    the_kernel_asks_again_and_is_answered = crate::neighbor::the_kernel_asks_again,
    a_device_deleted_at_rest_ends_the_worker_by_name = crate::life::deleted_at_rest,
    a_device_deleted_under_load_ends_the_worker_by_name = crate::life::deleted_under_load,
    an_interface_goes_down_and_comes_up_again = crate::life::down_and_up,
    a_stop_under_load_is_followed = crate::life::stopped_under_load,
    at_rest_a_worker_hardly_wakes = crate::life::at_rest,
}

/// The same with TCP's services; one scenario over AF_XDP, which takes long to set up.
mod tcp_over {
    use crate::link::Kind::{Packet, Tap, Tun, Xdp};
    use crate::tcp::{self, over};

    #[test]
    fn tap_megabytes_come_back() {
        over(Tap, tcp::megabytes);
    }

    #[test]
    fn tun_megabytes_come_back() {
        over(Tun, tcp::megabytes);
    }

    #[test]
    fn a_packet_socket_megabytes_come_back() {
        over(Packet, tcp::megabytes);
    }

    #[test]
    fn tap_segments_travel_together() {
        over(Tap, crate::supers::both_ways);
    }

    #[test]
    fn a_packet_socket_segments_travel_together() {
        over(Packet, crate::supers::both_ways);
    }

    #[test]
    fn xdp_megabytes_come_back() {
        over(Xdp, tcp::megabytes);
    }

    #[test]
    fn tap_what_goes_one_way_arrives() {
        over(Tap, tcp::one_way);
    }

    #[test]
    fn tun_what_goes_one_way_arrives() {
        over(Tun, tcp::one_way);
    }

    #[test]
    fn tap_clients_that_read_nothing_leave_memory_to_others() {
        over(Tap, crate::slow_readers::scenario);
    }

    #[test]
    fn a_packet_socket_clients_that_read_nothing_leave_memory_to_others() {
        over(Packet, crate::slow_readers::scenario);
    }

    #[test]
    fn tap_curl_is_served() {
        over(Tap, tcp::curl);
    }

    #[test]
    fn tun_curl_is_served() {
        over(Tun, tcp::curl);
    }

    #[test]
    fn a_packet_socket_curl_is_served() {
        over(Packet, tcp::curl);
    }

    #[test]
    fn tap_nc_and_socat_get_their_lines_back() {
        over(Tap, tcp::netcat);
    }

    #[test]
    fn tun_nc_and_socat_get_their_lines_back() {
        over(Tun, tcp::netcat);
    }

    #[test]
    fn tap_an_idle_session_lives() {
        over(Tap, tcp::idle_session);
    }
}
