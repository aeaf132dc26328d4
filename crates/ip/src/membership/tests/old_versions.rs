//! Queriers that use an older version (RFC 9776 section 7.2, RFC 9777 section 8.2).

use super::*;

both! {
    an_old_querier_is_answered_in_its_version_group_by_group => answered;
    an_old_querier_is_told_of_joining_and_leaving_in_its_version => changes;
    the_newest_version_is_spoken_again_once_the_old_querier_is_gone => gone;
    another_hosts_report_silences_ours_in_an_old_version_only => suppressed;
    a_change_of_version_voids_what_was_to_be_answered => voided;
    an_old_query_that_wants_all_at_once_is_paced => paced;
    what_an_old_querier_can_pin_us_to_is_bounded => pinned;
}

fn old<A: Nth>() -> QueryFields<'static, A> {
    QueryFields { generation: Generation::Second, ..QueryFields::general() }
}

fn answered<A: Nth>() {
    let mut bench = Bench::<A>::joined(3);
    bench.ask(&old()).unwrap();
    let asked = bench.now;
    let told = bench.run(60 * SECOND);
    assert_eq!(told.len(), 3);
    assert!(told.iter().flatten().all(|(kind, ..)| *kind == OLD_REPORT));
    assert!(bench.times.iter().all(|at| *at - asked <= 10 * SECOND + 3 * REPORT_GAP));
    // Also where a new querier sends a query meanwhile.
    bench.ask(&QueryFields::general()).unwrap();
    bench.ask(&about(2, &[A::station(3)])).unwrap();
    let told = bench.told(60 * SECOND);
    assert_eq!(told.len(), 3);
    assert!(told.iter().all(|(kind, ..)| *kind == OLD_REPORT));
}

fn changes<A: Nth>() {
    let mut bench = Bench::<A>::joined(1);
    bench.ask(&old()).unwrap();
    bench.run(20 * SECOND);
    bench.times.clear();
    bench.join(2);
    let joined = bench.now;
    assert_eq!(bench.told(30 * SECOND), vec![(OLD_REPORT, A::group(2), vec![]); 2]);
    assert_eq!(bench.times[0], joined);
    bench.leave(2);
    assert_eq!(bench.told(30 * SECOND), [(OLD_LEAVE, A::group(2), vec![])]);
    // A host that did not report last sends no leave.
    report_by_another(&mut bench, 1).unwrap();
    bench.leave(1);
    assert!(bench.told(30 * SECOND).is_empty());
    assert!(bench.engine.groups.is_empty());
    // IGMPv1 has no leaving at all.
    if A::FAMILY == Family::V4 {
        bench.join(3);
        bench.run(30 * SECOND);
        bench.ask(&QueryFields { generation: Generation::First, ..old() }).unwrap();
        bench.run(30 * SECOND);
        bench.leave(3);
        assert!(bench.told(30 * SECOND).is_empty());
    }
}

fn gone<A: Nth>() {
    let mut bench = Bench::<A>::joined(1);
    bench.ask(&old()).unwrap();
    // Robustness times interval, and a response: 260 seconds.
    bench.run(259 * SECOND);
    bench.join(2);
    assert_eq!(bench.told(Duration::ZERO)[0].0, OLD_REPORT);
    bench.run(2 * SECOND);
    bench.join(3);
    let told = bench.told(30 * SECOND);
    assert!(told.contains(&(RecordKind::TO_EXCLUDE, A::group(3), vec![])), "{told:?}");
    assert!(told.iter().all(|(kind, ..)| *kind != OLD_REPORT));
}

fn report_by_another<A: Nth>(bench: &mut Bench<A>, n: u32) -> Result<(), DropReason> {
    report_as(bench, &heading(A::group(n)), n)
}

fn report_as<A: Nth>(
    bench: &mut Bench<A>,
    heading: &GroupHeading<A>,
    n: u32,
) -> Result<(), DropReason> {
    let mut out = [0; 64];
    let ends = GroupAddrs { src_addr: heading.src_addr, dst_addr: heading.dst_addr };
    let len = A::emit_report(Generation::Second, A::group(n), ends, &mut out).unwrap();
    let message = A::parse(&out[..len]).unwrap();
    bench.engine.input(heading, &message, bench.now, &mut bench.random)
}

fn suppressed<A: Nth>() {
    let mut bench = Bench::<A>::joined(2);
    bench.ask(&old()).unwrap();
    report_by_another(&mut bench, 1).unwrap();
    assert_eq!(bench.told(60 * SECOND), [(OLD_REPORT, A::group(2), vec![])]);
    // From off-link, or to the wrong address, it suppresses no report.
    bench.ask(&old()).unwrap();
    let good = heading(A::group(1));
    let refused = Err(DropReason::GroupMessageInvalid);
    assert_eq!(report_as(&mut bench, &GroupHeading { hop_limit: 2, ..good }, 1), refused);
    assert_eq!(report_as(&mut bench, &GroupHeading { dst_addr: A::group(2), ..good }, 1), refused);
    assert_eq!(bench.told(60 * SECOND).len(), 2);
}

fn voided<A: Nth>() {
    let mut bench = Bench::<A>::joined(2);
    bench.ask(&about(1, &[])).unwrap();
    bench.ask(&QueryFields::general()).unwrap();
    // The old query is about another group: what else was pending is void.
    bench.ask(&QueryFields { group: A::group(2), ..old() }).unwrap();
    assert_eq!(bench.told(60 * SECOND), [(OLD_REPORT, A::group(2), vec![])]);
    // But no query makes us drop a pending join report.
    let mut bench = Bench::<A>::joined(1);
    bench.join(2);
    bench.ask(&QueryFields { group: A::group(1), ..old() }).unwrap();
    let told = bench.told(60 * SECOND);
    assert!(told.contains(&(OLD_REPORT, A::group(2), vec![])), "{told:?}");
}

fn paced<A: Nth>() {
    let mut bench = Bench::<A>::joined(GROUPS_MAX as u32);
    for _ in 0..1000 {
        bench.ask(&QueryFields { max_response: Duration::ZERO, ..old() }).unwrap();
        bench.run(Duration::from_millis(1));
    }
    let apart = bench.times.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(apart >= REPORT_GAP && bench.times.len() <= 101, "{}", bench.times.len());
}

fn pinned<A: Nth>() {
    let mut bench = Bench::<A>::joined(1);
    let longest = QueryFields {
        robustness: 7,
        interval: Duration::from_secs(1_000_000),
        ..QueryFields::general()
    };
    bench.ask(&longest).unwrap();
    bench.ask(&QueryFields { max_response: 1_000_000 * SECOND, ..old() }).unwrap();
    // Seven hours of intervals and one to answer.
    bench.run(9 * 3600 * SECOND);
    bench.join(2);
    assert_eq!(bench.told(60 * SECOND)[0].0, RecordKind::TO_EXCLUDE);
}
