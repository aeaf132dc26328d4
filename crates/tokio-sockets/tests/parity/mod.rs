//! One body a behaviour, run against tokio's own UDP socket on the kernel's loopback and against
//! ours.
//!
//! Both families; ours on the loopback of one host, and between two hosts over a wire in memory.
//! Each body runs on a current-thread and on a multi-thread runtime. The kernel's loopback is that
//! of a namespace of the test's own, which takes root. Reading: `place.rs`, then the bodies.

mod datagrams;
mod place;

mod errors;
mod life;
mod options;
mod readiness;
mod sharing;
mod transfer;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::namespace;
use crate::parity::place::{Ip, Kernel, Ours, Place};

/// One test a behaviour, place and family.
macro_rules! parity {
    ($($file:ident { $($body:ident,)* })*) => { $($(
        mod $body {
            use super::*;

            #[test]
            fn at_the_kernel_v4() {
                at_the_kernel(Ip::V4, |place| Box::pin($file::$body(place)));
            }

            #[test]
            fn at_the_kernel_v6() {
                at_the_kernel(Ip::V6, |place| Box::pin($file::$body(place)));
            }

            #[test]
            fn on_our_loopback_v4() {
                run(Some(Ours::loopback(Ip::V4)), |place| Box::pin($file::$body(place)));
            }

            #[test]
            fn on_our_loopback_v6() {
                run(Some(Ours::loopback(Ip::V6)), |place| Box::pin($file::$body(place)));
            }

            #[test]
            fn between_our_hosts_v4() {
                run(Some(Ours::wire(Ip::V4, 1)), |place| Box::pin($file::$body(place)));
            }

            #[test]
            fn between_our_hosts_v6() {
                run(Some(Ours::wire(Ip::V6, 1)), |place| Box::pin($file::$body(place)));
            }
        }
    )*)* };
}

/// How long a body may take, of which each single wait is `soon` over: a thousand steps on a
/// machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(300);
const LATE: &str = "the body ends in time";

/// A body that runs.
type Body = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs a body at the kernel; no process is started meanwhile by another test of this program.
fn at_the_kernel(ip: Ip, body: fn(Arc<Kernel>) -> Body) {
    let place = Kernel::enter(ip);
    let _closed_when_dropped = namespace::no_process_starts();
    run(place, body);
}

/// Runs a body on both kinds of runtime.
fn run<P: Place>(place: Option<P>, body: fn(Arc<P>) -> Body) {
    let Some(place) = place.map(Arc::new) else { return };
    for runtime in [current_thread(), multi_thread()] {
        let body = body(Arc::clone(&place));
        runtime
            .block_on(async { timeout(PATIENCE, tokio::spawn(body)).await.expect(LATE) })
            .unwrap();
    }
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

parity! {
    transfer {
        a_datagram_goes_there_and_its_answer_comes_back,
        datagrams_of_every_kind_of_size_arrive_whole,
        a_datagram_without_payload_is_one,
        what_is_too_large_for_the_buffer_is_cut_and_the_next_is_whole,
        an_empty_buffer_takes_a_datagram,
        datagrams_of_one_sender_keep_their_order,
        what_is_peeked_at_stays,
        a_connected_socket_hears_its_peer_only,
        a_connected_socket_may_send_to_another,
        a_socket_connects_anew,
        a_socket_of_both_families_writes_ipv4_as_mapped,
    }
    errors {
        a_port_in_use_is_refused,
        a_wildcard_beside_an_address_is_refused,
        a_port_is_free_again_once_its_socket_is_dropped,
        an_address_of_another_host_is_refused,
        port_zero_gets_a_port,
        a_peer_is_known_only_when_connected,
        sending_without_a_destination_is_refused,
        a_datagram_beyond_the_largest_is_refused,
        port_zero_cannot_be_sent_to,
        a_destination_of_the_other_family_is_refused,
        a_closed_port_is_a_refused_connection,
        a_closed_port_is_told_once_and_the_socket_goes_on,
        a_closed_port_is_not_told_to_the_unconnected,
        a_peer_that_goes_away_is_a_refused_connection,
        a_pending_error_can_be_taken,
        a_pending_error_wakes_a_reader,
        a_broadcast_needs_leave,
    }
    readiness {
        trying_an_empty_socket_would_block,
        readable_comes_with_the_datagram,
        readable_stays_while_something_waits,
        writable_comes_at_once,
        a_waiting_reader_is_not_polled_in_vain,
        readiness_of_both_kinds_is_told_apart,
        try_io_that_would_block_waits_for_the_next,
        a_ready_socket_lets_other_tasks_run,
        a_sender_lets_other_tasks_run,
        poll_forms_agree_with_the_others,
    }
    sharing {
        several_readers_share_what_comes,
        a_reader_and_a_writer_share_a_socket,
        a_cancelled_read_loses_nothing,
        a_cancelled_reader_leaves_its_wake_to_another,
        select_between_two_sockets_loses_nothing,
        a_socket_moves_to_another_task,
    }
    life {
        a_socket_dropped_by_an_aborted_reader_frees_its_port,
        a_socket_serves_another_runtime,
        sockets_may_be_dropped_outside_of_any_runtime,
        a_thousand_short_lives_leave_nothing,
    }
    options {
        options_are_read_back,
        a_group_is_joined_and_left,
    }
}
