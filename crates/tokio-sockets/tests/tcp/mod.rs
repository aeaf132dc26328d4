//! One body a behaviour, run against tokio's own TCP sockets on the kernel's loopback and against
//! ours, on the loopback of one host and between two hosts.
//!
//! All bodies of a place run on one place, one after another, on a current-thread and on a
//! multi-thread runtime: hosts are made once a family. The kernel's loopback is that of a namespace
//! of the test's own, which takes root. Reading: `place.rs`, then the bodies.

mod ends;
mod options;
mod place;
mod readiness;
mod transfer;

use std::pin::Pin;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use crate::namespace;
use crate::tcp::place::{Kernel, Ours, Place, soon};

type Body<P> = fn(Arc<P>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! bodies {
    ($($file:ident { $($body:ident,)* })*) => {
        fn bodies<P: Place>() -> Vec<(&'static str, Body<P>)> {
            vec![$($((stringify!($body), |place| Box::pin($file::$body(place))),)*)*]
        }
    };
}

bodies! {
    transfer {
        bytes_go_there_and_the_answer_comes_back,
        a_megabyte_comes_back_through_split_halves,
        several_buffers_are_written_and_read_in_turn,
        what_is_peeked_at_stays,
        an_empty_buffer_reads_nothing_and_loses_nothing,
        halves_are_put_together_again,
        borrowed_halves_read_and_write,
        several_tasks_accept_from_one_listener,
        a_cancelled_read_loses_nothing,
        a_cancelled_accept_loses_nothing,
    }
    ends {
        a_clean_end_is_read_as_zero_for_ever,
        half_a_close_leaves_the_other_half,
        writing_after_the_own_shutdown_is_a_broken_pipe,
        a_dropped_writing_half_is_an_end,
        unread_data_at_the_drop_is_a_reset,
        a_reset_is_told_once_behind_the_data,
        a_reset_behind_the_end_is_a_broken_pipe,
        a_closed_port_is_refused,
        a_port_in_use_is_refused,
        a_port_is_free_again_once_its_listener_is_dropped,
        an_address_of_another_host_is_refused,
        one_that_nothing_accepts_is_reset_with_the_listener,
        shutting_down_twice_is_allowed,
        a_listener_on_every_address_is_reached_by_its_own_address,
    }
    readiness {
        trying_an_empty_stream_would_block,
        a_full_stream_would_block_until_the_peer_reads,
        readable_comes_with_the_bytes_and_with_the_end,
        a_fresh_stream_is_writable_and_not_readable,
        a_ready_stream_lets_other_tasks_run,
        try_io_that_would_block_waits_for_the_next,
        the_peers_end_closes_reading_and_both_ends_close_writing,
        a_reset_closes_both,
    }
    options {
        options_are_read_back,
        a_socket_is_bound_before_it_connects,
        a_socket_listens,
        several_listen_at_one_port_that_all_share_it,
        a_socket_of_the_other_family_is_refused,
    }
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn run<P: Place>(place: Option<P>) {
    let Some(place) = place.map(Arc::new) else { return };
    for (kind, runtime) in [("one thread", current_thread()), ("two threads", multi_thread())] {
        for (name, body) in bodies::<P>() {
            let task =
                runtime.block_on(async { soon(tokio::spawn(body(Arc::clone(&place)))).await });
            assert!(task.is_ok(), "{name}, on {kind}: see above");
        }
    }
}

/// Runs the bodies at the kernel; no process is started meanwhile by another test of this program.
fn at_the_kernel(kernel: Kernel) {
    let place = kernel.enter();
    let _closed_when_dropped = namespace::no_process_starts();
    run(place);
}

#[test]
fn at_the_kernel_v4() {
    at_the_kernel(Kernel::V4);
}

#[test]
fn at_the_kernel_v6() {
    at_the_kernel(Kernel::V6);
}

#[test]
fn on_our_loopback_v4() {
    run(Some(Ours::loopback(false)));
}

#[test]
fn on_our_loopback_v6() {
    run(Some(Ours::loopback(true)));
}

#[test]
fn between_our_hosts_v4() {
    run(Some(Ours::wire(false, 1)));
}

#[test]
fn between_our_hosts_v6_with_two_workers() {
    run(Some(Ours::wire(true, 2)));
}
