//! The plan `udp-flood` in its quick form, in a process of its own: it measures real threads.

use floodwall_lab::{Plan, Silent, Size, run};

#[test]
fn the_quick_form_of_udp_flood_holds() {
    let report = run(&Plan::load("udp-flood").unwrap(), Size::Quick, &mut Silent).unwrap();
    assert!(report.passed, "{report}");
}
