//! What of the first line is in force at an interface: for `Device::first_line_report`.
//!
//! Called by `af_xdp.rs` and `packet_line.rs` when a report is asked for. Reasons that are known
//! when a program is loaded are kept by `steering.rs`; others are looked up here.

use super::filter::FilterTurn;
use super::steering::QueueSteering;
use crate::first_line_report::{FirstLinePart, FirstLinePartState, FirstLineReport};

/// What a device knows besides the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineMoment<'a> {
    pub(super) turn: &'a FilterTurn,
    /// Whether the program is at the interface now.
    pub(super) is_attached: bool,
    /// Why packets are not passed on by the driver alone, where that is so.
    pub(super) no_redirect: Option<&'static str>,
}

/// The report of the program of `steering` at this moment.
pub(super) fn report(steering: &QueueSteering, seen: &LineMoment<'_>) -> FirstLineReport {
    let missing = |reason: &str| FirstLinePartState::Missing(reason.to_owned());
    let waits = |acts: bool| match (seen.is_attached, acts) {
        (false, _) => FirstLinePartState::OnDemand,
        (true, true) => FirstLinePartState::Awake,
        (true, false) => FirstLinePartState::Asleep,
    };
    let Some(filter) = steering.filter() else {
        let reason = steering.lacks().filter.as_deref().unwrap_or("it was not asked for");
        return FirstLineReport::missing(reason);
    };
    let presses = seen.turn.presses();
    FirstLineReport::of(|part| match part {
        FirstLinePart::LiveFlows | FirstLinePart::FairCredit => waits(presses),
        FirstLinePart::Cookies => match steering.cookies() {
            None => missing(steering.lacks().cookies.as_deref().unwrap_or("not asked for")),
            Some(cookies) => match cookies.why_not() {
                Some(reason) => missing(reason),
                None => waits(cookies.is_awake(seen.turn.now())),
            },
        },
        FirstLinePart::Redirect => match (seen.no_redirect, seen.turn.forwards()) {
            (Some(reason), _) => missing(reason),
            (None, Some(false)) => missing("this host forwards nothing"),
            (None, _) => waits(filter.redirects().is_active()),
        },
    })
}

/// The reason of a redirect that is not in force, by how an interface was opened.
pub(super) const fn no_redirect(
    (is_generic, sends_only, transmits): (bool, bool, bool),
) -> Option<&'static str> {
    if sends_only {
        Some("the device only sends")
    } else if is_generic {
        Some("the program is in generic mode")
    } else if !transmits {
        Some(
            "the driver sends no redirected frames; of a veth the peer needs a program of its own, \
             or `ethtool -K PEER gro on`",
        )
    } else {
        None
    }
}
