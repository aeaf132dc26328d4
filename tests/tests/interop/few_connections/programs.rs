//! The attacks of `few_connections.rs` on a program with tokio listeners.

use super::{
    AttackPlan, DRIPS, ENDS, IDLES, LEAVES, PIPELINES, ServerKind, TAKES, TRICKLES, withstand_at,
};
use crate::namespace::{is_deep, tell};

/// At the price with so many workers, and in the deep form at all prices with one and two.
fn withstand(plan: &'static AttackPlan, workers: usize) {
    match is_deep() {
        true => [(1, 1), (1, 2), (4, 1), (4, 2)]
            .into_iter()
            .for_each(|scene| withstand_at(plan, ServerKind::Tokio, scene)),
        false => withstand_at(plan, ServerKind::Tokio, (1, workers)),
    }
}

/// Of six attacks two are tried by default: they are the same as on `floodwall run`.
fn withstand_if_deep(plan: &'static AttackPlan) {
    match is_deep() {
        true => withstand(plan, 1),
        false => tell("skipped: FLOODWALL_DEEP=1 runs it"),
    }
}

#[test]
fn a_program_keeps_places_beside_connections_that_take_their_answer_and_never_close() {
    withstand(&TAKES, 2);
}

#[test]
fn a_program_keeps_places_beside_connections_that_say_nothing() {
    withstand_if_deep(&IDLES);
}

#[test]
fn a_program_keeps_places_beside_connections_that_never_acknowledge_the_end() {
    withstand_if_deep(&LEAVES);
}

#[test]
fn a_program_keeps_places_beside_ends_that_fit_no_window() {
    withstand_if_deep(&ENDS);
}

#[test]
fn a_program_keeps_memory_beside_readers_that_take_little_of_much() {
    // Of two workers one may be given more readers than it has room for: ports decide.
    withstand(&DRIPS, 1);
}

#[test]
fn a_program_keeps_its_turns_beside_requests_back_to_back() {
    withstand_if_deep(&PIPELINES);
}

#[test]
fn a_program_keeps_its_turns_beside_heads_that_come_byte_by_byte() {
    withstand_if_deep(&TRICKLES);
}
