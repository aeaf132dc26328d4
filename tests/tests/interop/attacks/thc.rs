//! THC-IPv6 (Debian's `thc-ipv6`): floods of advertisements, solicitations, redirects and reports,
//! headers without end, fragments, and answers sent to victims.

use std::time::Duration;

use serde_json::Value;

use crate::attacks::honest::{Lost, Pings, assert_all_answered};
use crate::attacks::{Scene, drops_of, gained, pace, withstand, withstand_and};
use crate::command::{Process, ip};
use crate::instance::assert_conserved;
use crate::link::Kind;
use crate::namespace::{inside, tell};

/// One test a tool.
macro_rules! withstands {
    ($($name:ident = $kind:ident $program:literal $words:literal;)*) => {
        $(#[test] fn $name() { withstand(Kind::$kind, $program, $words); })*
    };
}

withstands! {
    flood_router26_over_tap = Tap "atk6-flood_router26" "eth0";
    flood_router26_over_a_packet_socket = Packet "atk6-flood_router26" "eth0";
    flood_router26_with_small_lifetimes = Tap "atk6-flood_router26" "-s eth0";
    flood_router26_behind_other_headers = Tap "atk6-flood_router26" "-F eth0";
    flood_redir6 = Tap "atk6-flood_redir6" "eth0 fd77::2";
    flood_solicitate6_over_tap = Tap "atk6-flood_solicitate6" "eth0 fd77::2 fd77::2";
    flood_solicitate6_over_a_packet_socket =
        Packet "atk6-flood_solicitate6" "eth0 fd77::2 fd77::2";
    flood_advertise6 = Tap "atk6-flood_advertise6" "eth0";
    flood_advertise6_to_us_alone = Packet "atk6-flood_advertise6" "eth0 fd77::2";
    denial6_1_router_alert_and_unknown_options = Tap "atk6-denial6" "eth0 fd77::2 1";
    denial6_2_destination_options = Tap "atk6-denial6" "eth0 fd77::2 2";
    denial6_3_headers_by_the_hundred = Tap "atk6-denial6" "eth0 fd77::2 3";
    denial6_4_headers_before_a_ping = Packet "atk6-denial6" "eth0 fd77::2 4";
    denial6_5_authentication_header = Tap "atk6-denial6" "eth0 fd77::2 5";
    denial6_6_first_fragments = Packet "atk6-denial6" "eth0 fd77::2 6";
    denial6_7_unknown_options = Tap "atk6-denial6" "eth0 fd77::2 7";
    flood_mld6 = Tap "atk6-flood_mld6" "eth0";
    flood_mld26 = Packet "atk6-flood_mld26" "eth0";
}

/// Echo requests to all nodes from our neighbour's address: we may answer, but no error goes out.
#[test]
fn smurf6_gets_no_error_out_of_us() {
    withstand_and(Kind::Tap, Some(pace()), "atk6-smurf6", "eth0 fd77::9", |before, after| {
        assert_eq!(errors_sent(before, after), 0);
    });
}

/// Echo requests from the group of all nodes, to us: nothing goes to a group.
#[test]
fn rsmurf6_gets_no_answer_and_no_error() {
    withstand_and(Kind::Tap, Some(pace()), "atk6-rsmurf6", "eth0 fd77::2", |before, after| {
        assert_eq!(errors_sent(before, after), 0);
    });
}

fn errors_sent(before: &Value, after: &Value) -> u64 {
    let kinds = ["DestUnreachs", "ParmProblems", "PktTooBigs", "TimeExcds"];
    kinds.iter().map(|kind| gained(before, after, &format!("Icmp6Out{kind}"))).sum()
}

/// A router's burden: addresses without end behind us. We are a host: none of it is ours.
#[test]
fn ndpexhaust26_and_ndpexhaust6() {
    inside(|| {
        let Some(scene) = Scene::set_up(Kind::Tap, Some(pace()), "") else { return };
        assert!(scene.unknown.inside(|| ip("-6 route add fd99::/64 via fd77::2")));
        for (tool, words) in [
            ("atk6-ndpexhaust26", "eth0 fd99::"),
            ("atk6-ndpexhaust26", "-p -r eth0 fd99::"),
            ("atk6-ndpexhaust6", "eth0 fd99::/64"),
        ] {
            let Some((_, after)) = scene.flood(tool, words) else { return };
            let known = after["neighbours"].as_array().unwrap().len();
            assert!(known <= 8, "{known} neighbours: {:#}", after["neighbours"]);
        }
        scene.end();
    });
}

/// Cases of `implementation6`: headers in every order, fragments, source routes, odd messages.
const IMPLEMENTATION_CASES: u32 = 57;
/// Cases of `fragmentation6`: overlaps, tiny and huge fragments, fragments that never end.
const FRAGMENTATION_CASES: u32 = 33;
/// So many of them at once: each waits for an answer that mostly must not come. What one is
/// answered another may take for its own, so the verdicts are only shown.
const AT_ONCE: u32 = 20;

#[test]
fn implementation6() {
    // What a zero authentication header before a ping gets, from Linux too: it is an unrecognized
    // next header (RFC 8200 section 4).
    let alone = Some((32, "error reply [4:1]"));
    in_cases("atk6-implementation6", "-p", IMPLEMENTATION_CASES, "Test", alone);
}

#[test]
fn fragmentation6() {
    in_cases("atk6-fragmentation6", "-p -n 1", FRAGMENTATION_CASES, "ATTACK", None);
}

/// Every case of a tool, while the honest host pings; one before them alone, with its verdict.
fn in_cases(
    tool: &'static str,
    flags: &'static str,
    cases: u32,
    mark: &'static str,
    alone: Option<(u32, &'static str)>,
) {
    inside(move || {
        let Some(scene) = Scene::set_up(Kind::Tap, None, "") else { return };
        if let Some((case, verdict)) = alone {
            let words = format!("{flags} eth0 fd77::2 {case}");
            let one = scene.unknown.inside(|| Process::start(tool, &words, b""));
            let Some(one) = one else { return };
            let said = one.wait(Duration::from_secs(60)).text;
            assert!(said.contains(verdict), "{said}");
        }
        let Some(pings) = Pings::start(&scene.honest, Duration::from_secs(6)) else { return };
        let mut said = Vec::new();
        for first in (1..=cases).step_by(AT_ONCE as usize) {
            let these = (first..=cases.min(first + AT_ONCE - 1)).map(|case| {
                let words = format!("{flags} eth0 fd77::2 {case}");
                scene.unknown.inside(|| Process::start(tool, &words, b""))
            });
            let Some(these) = these.collect::<Option<Vec<_>>>() else { return };
            said.extend(these.into_iter().map(|case| case.wait(Duration::from_secs(60)).text));
        }
        let during = pings.end();
        assert!(during.iter().all(Lost::is_at_most_one_in_a_hundred), "{during:?}");
        let ran = said.iter().filter(|text| text.lines().any(|line| line.starts_with(mark)));
        assert_eq!(ran.count(), cases as usize, "{said:?}");
        let answered = said.iter().filter(|text| text.contains("PASSED")).count();
        let stat = scene.instance.wait_until_idle();
        assert_conserved(&stat);
        tell(&format!("{cases} cases of {tool}, {answered} answered; {}", drops_of(&stat)));
        assert_all_answered(&scene.honest);
        scene.end();
    });
}
