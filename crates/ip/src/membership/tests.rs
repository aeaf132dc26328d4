//! What a host does about its groups, clause by clause, for both families.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_wire::group::{QueryFields, RecordKind};

use super::*;

/// The same body for both families.
macro_rules! both {
    ($($name:ident => $body:ident;)*) => {$(
        #[test]
        fn $name() {
            $body::<Ipv4Addr>();
            $body::<Ipv6Addr>();
        }
    )*};
}
#[path = "tests/merging.rs"]
mod merging;
#[path = "tests/old_versions.rs"]
mod old_versions;
#[path = "tests/random.rs"]
mod random;

const SECOND: Duration = Duration::from_secs(1);

/// Groups and stations of either family by number.
trait Nth: GroupProtocol {
    fn group(n: u32) -> Self;
    fn station(n: u32) -> Self;
}

impl Nth for Ipv4Addr {
    fn group(n: u32) -> Self {
        Self::from_bits(0xef01_0000 + n)
    }
    fn station(n: u32) -> Self {
        Self::from_bits(0x0a00_0000 + n)
    }
}

impl Nth for Ipv6Addr {
    fn group(n: u32) -> Self {
        Self::from_bits(0xff05 << 112 | u128::from(n))
    }
    fn station(n: u32) -> Self {
        Self::from_bits(0xfe80 << 112 | u128::from(n))
    }
}

/// What was reported: by records, or by one old message, which has kind 0 for a report, 100 for a
/// leave.
type Told<A> = (RecordKind, A, Vec<A>);
const OLD_REPORT: RecordKind = RecordKind(0);
const OLD_LEAVE: RecordKind = RecordKind(100);

/// An engine with its clock.
struct Bench<A> {
    engine: GroupProtocolState<A>,
    random: PublicRandom,
    now: Instant,
    /// When each message left.
    times: Vec<Instant>,
}

impl<A: Nth> Bench<A> {
    fn new() -> Self {
        let now = Instant::from_nanos(5_000_000_000);
        let random = PublicRandom::new(3);
        Self { engine: GroupProtocolState::new(), random, now, times: Vec::new() }
    }

    fn set(&mut self, n: u32, filter: SourceFilter<A>) {
        self.engine.set(A::group(n), filter, self.now, Duration::ZERO).unwrap();
    }

    fn join(&mut self, n: u32) {
        self.set(n, SourceFilter::ALL_SOURCES);
    }

    fn leave(&mut self, n: u32) {
        self.set(n, SourceFilter::NO_SOURCES);
    }

    /// A bench with groups 1 to `count`, reported long ago.
    fn joined(count: u32) -> Self {
        let mut bench = Self::new();
        (1..=count).for_each(|n| bench.join(n));
        bench.run(60 * SECOND);
        bench.times.clear();
        bench
    }

    /// Lets time pass; returns what was reported in each message.
    fn run(&mut self, length: Duration) -> Vec<Vec<Told<A>>> {
        let (until, mut told) = (self.now + length, Vec::new());
        let mut rounds = 0;
        while let Some(due) = self.engine.deadline().filter(|due| *due <= until) {
            rounds += 1;
            assert!(rounds < 100_000, "an engine that is never done");
            self.now = self.now.max(due);
            let mut out = [0; 1400];
            let (now, random) = (self.now, &mut self.random);
            let Some(report) = self.engine.work(A::station(1), &mut out, now, random) else {
                continue;
            };
            let message = &out[..report.len];
            let pseudo = A::pseudo(report.ends, report.len);
            assert!(floodwall_checksum::sum(message).add(pseudo).verifies());
            self.times.push(self.now);
            told.push(read(&report, message));
        }
        self.now = until;
        told
    }

    fn told(&mut self, length: Duration) -> Vec<Told<A>> {
        self.run(length).into_iter().flatten().collect()
    }

    /// A query from a router of this link, to where it should go.
    fn ask(&mut self, fields: &QueryFields<'_, A>) -> Result<(), DropReason> {
        let general = fields.group == A::UNSPECIFIED;
        let dst_addr = if general { A::ALL_SYSTEMS } else { fields.group };
        self.ask_as(&heading(dst_addr), fields)
    }

    fn ask_as(
        &mut self,
        heading: &GroupHeading<A>,
        fields: &QueryFields<'_, A>,
    ) -> Result<(), DropReason> {
        let mut out = [0; 2000];
        let ends = GroupAddrs { src_addr: heading.src_addr, dst_addr: heading.dst_addr };
        let len = A::emit_query(fields, ends, &mut out).unwrap();
        let message = A::parse(&out[..len]).unwrap();
        self.engine.input(heading, &message, self.now, &mut self.random)
    }
}

fn heading<A: Nth>(dst_addr: A) -> GroupHeading<A> {
    GroupHeading { src_addr: A::station(9), dst_addr, hop_limit: 1, router_alert: true }
}

fn about<'a, A: Nth>(n: u32, sources: &'a [A]) -> QueryFields<'a, A> {
    QueryFields { group: A::group(n), sources, ..QueryFields::general() }
}

fn read<A: Nth>(report: &MembershipReport<A>, message: &[u8]) -> Vec<Told<A>> {
    match A::parse(message).unwrap() {
        GroupMessage::Records(records) => {
            assert_eq!(report.ends.dst_addr, A::ALL_REPORT_ROUTERS);
            records
                .map(|r| r.unwrap())
                .map(|r| (r.kind, r.group, r.sources.iter().collect()))
                .collect()
        }
        GroupMessage::Report { group, .. } => {
            assert_eq!(report.ends.dst_addr, group);
            vec![(OLD_REPORT, group, vec![])]
        }
        GroupMessage::Leave { group } => {
            assert_eq!(report.ends.dst_addr, A::ALL_ROUTERS);
            vec![(OLD_LEAVE, group, vec![])]
        }
        other => panic!("{other:?}"),
    }
}

both! {
    joining_is_told_at_once_and_once_more_within_a_second => joining;
    leaving_is_told_at_once_and_once_more_within_a_second => leaving;
    what_changes_together_is_told_together => together;
    groups_that_every_host_is_in_are_never_told => never_told;
    a_general_query_is_answered_once_within_its_time => general;
    a_flood_of_general_queries_makes_one_answer_wait => flood;
    a_query_that_wants_an_answer_at_once_gets_it_no_faster_than_the_floor => at_once;
    a_query_about_a_group_is_answered_for_that_group_alone => specific;
    a_query_about_a_group_is_covered_by_an_earlier_general_answer => covered;
    a_query_about_sources_is_answered_about_these_sources => sources_asked;
    questions_about_sources_add_up_until_they_are_the_whole_group => sources_added;
    a_query_about_a_group_that_is_not_joined_is_for_others => not_joined;
    queries_from_afar_or_to_the_wrong_place_change_nothing => invalid;
    messages_of_other_hosts_are_for_routers => for_routers;
    queries_to_a_joined_group_are_answered => to_a_joined_group;
    the_querier_says_how_often_a_change_is_told => robustness;
    more_groups_than_fit_one_message_are_told_in_several => split;
    a_full_table_refuses_and_what_was_left_gives_way => full;
    a_link_that_comes_up_again_is_told_everything => announced;
    a_link_that_goes_down_is_told_nothing => cleared;
}

fn joining<A: Nth>() {
    let mut bench = Bench::<A>::new();
    let begun = bench.now;
    bench.join(1);
    let told = bench.run(60 * SECOND);
    let once = vec![(RecordKind::TO_EXCLUDE, A::group(1), vec![])];
    assert_eq!(told, [once.clone(), once]);
    assert_eq!(bench.times[0], begun);
    let apart = bench.times[1] - begun;
    assert!(apart >= REPORT_GAP && apart <= SECOND + REPORT_GAP, "{apart:?}");
    // Joined again by others: nothing changes.
    bench.join(1);
    assert!(bench.run(60 * SECOND).is_empty());
}

fn leaving<A: Nth>() {
    let mut bench = Bench::<A>::joined(1);
    bench.leave(1);
    let left = bench.now;
    let once = vec![(RecordKind::TO_INCLUDE, A::group(1), vec![])];
    assert_eq!(bench.run(60 * SECOND), [once.clone(), once]);
    assert_eq!(bench.times[0], left);
    assert_eq!((bench.engine.groups.len(), bench.engine.deadline()), (0, None));
}

fn together<A: Nth>() {
    let mut bench = Bench::<A>::joined(3);
    bench.leave(1);
    bench.join(4);
    bench.join(5);
    let told = bench.run(60 * SECOND);
    assert_eq!(told.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
    // "If another change occurs before all the retransmissions": one schedule, each reported twice.
    bench.leave(4);
    bench.run(5 * REPORT_GAP);
    bench.leave(5);
    let told = bench.told(60 * SECOND);
    let count = |n| told.iter().filter(|(_, group, _)| *group == A::group(n)).count();
    assert!(count(5) == 2 && count(4) == 1, "{told:?}");
}

fn never_told<A: Nth>() {
    let mut bench = Bench::<A>::new();
    let node_local = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 5);
    let reserved = Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 5);
    let others = [node_local, reserved].map(|a| A::from_ip(a.into()));
    let all = others.into_iter().flatten().chain([A::ALL_SYSTEMS, A::station(1), A::UNSPECIFIED]);
    for group in all {
        bench.engine.set(group, SourceFilter::ALL_SOURCES, bench.now, Duration::ZERO).unwrap();
        assert!(!GroupProtocolState::<A>::is_told(group));
    }
    assert_eq!((bench.run(60 * SECOND).len(), bench.engine.groups.len()), (0, 0));
    bench.ask(&QueryFields::general()).unwrap();
    assert!(bench.run(60 * SECOND).is_empty());
}

fn general<A: Nth>() {
    let mut bench = Bench::<A>::joined(3);
    let asked = bench.now;
    bench.ask(&QueryFields::general()).unwrap();
    let told = bench.run(60 * SECOND);
    assert_eq!((told.len(), told[0].len()), (1, 3));
    assert!(told[0].iter().all(|(kind, _, s)| *kind == RecordKind::IS_EXCLUDE && s.is_empty()));
    assert!(bench.times[0] - asked <= 10 * SECOND && bench.times[0] - asked >= RESPONSE_DELAY_MIN);
    // The delay is a random one.
    let mut delays = Vec::new();
    for _ in 0..20 {
        let asked = bench.now;
        bench.ask(&QueryFields::general()).unwrap();
        bench.run(60 * SECOND);
        delays.push(*bench.times.last().unwrap() - asked);
    }
    let (least, most) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
    assert!(*least < 3 * SECOND && *most > 7 * SECOND, "{delays:?}");
}

fn flood<A: Nth>() {
    let mut bench = Bench::<A>::joined(3);
    for _ in 0..10_000 {
        bench.ask(&QueryFields::general()).unwrap();
        bench.ask(&about(2, &[])).unwrap();
    }
    // One answer about all, and perhaps one about the second group before.
    let told = bench.run(60 * SECOND).len();
    assert!((1..=2).contains(&told), "{told}");
    // A flood that goes on: no two messages closer than the gap.
    bench.times.clear();
    let soon = QueryFields { max_response: Duration::ZERO, ..QueryFields::general() };
    for _ in 0..1000 {
        bench.ask(&soon).unwrap();
        bench.run(Duration::from_millis(1));
    }
    let apart = bench.times.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(apart >= REPORT_GAP && bench.times.len() <= 100, "{apart:?} {}", bench.times.len());
}

/// smoltcp 0.12 panicked here: a random number below zero.
fn at_once<A: Nth>() {
    let mut bench = Bench::<A>::joined(1);
    let asked = bench.now;
    bench.ask(&QueryFields { max_response: Duration::ZERO, ..about(1, &[]) }).unwrap();
    bench.ask(&QueryFields { max_response: Duration::ZERO, ..QueryFields::general() }).unwrap();
    assert_eq!(bench.told(60 * SECOND).len(), 1);
    assert_eq!(bench.times, [asked + RESPONSE_DELAY_MIN]);
}

fn specific<A: Nth>() {
    let mut bench = Bench::<A>::joined(3);
    bench.ask(&QueryFields { max_response: SECOND, ..about(2, &[]) }).unwrap();
    let asked = bench.now;
    assert_eq!(bench.told(60 * SECOND), [(RecordKind::IS_EXCLUDE, A::group(2), vec![])]);
    assert!(bench.times[0] - asked <= SECOND);
}

fn covered<A: Nth>() {
    let mut bench = Bench::<A>::joined(3);
    bench.ask(&QueryFields { max_response: Duration::ZERO, ..QueryFields::general() }).unwrap();
    bench.ask(&about(2, &[])).unwrap();
    assert_eq!(bench.told(60 * SECOND).len(), 3);
    // And a later general answer includes the earlier query for one group.
    bench.ask(&about(2, &[])).unwrap();
    bench.ask(&QueryFields { max_response: Duration::ZERO, ..QueryFields::general() }).unwrap();
    assert_eq!(bench.told(60 * SECOND).len(), 3);
}

fn sources_asked<A: Nth>() {
    let sources = [A::station(5), A::station(6)];
    let mut bench = Bench::<A>::joined(1);
    // EXCLUDE (nothing): all that were queried are accepted.
    bench.ask(&about(1, &sources)).unwrap();
    let all = (RecordKind::IS_INCLUDE, A::group(1), sources.to_vec());
    assert_eq!(bench.told(60 * SECOND), [all]);
    // EXCLUDE one: the other.
    bench.set(1, SourceFilter::Exclude(SourceSet::of([sources[0]]).unwrap()));
    bench.run(60 * SECOND);
    bench.ask(&about(1, &sources)).unwrap();
    let one = (RecordKind::IS_INCLUDE, A::group(1), vec![sources[1]]);
    assert_eq!(bench.told(60 * SECOND), [one]);
    bench.ask(&about(1, &sources[..1])).unwrap();
    assert!(bench.told(60 * SECOND).is_empty(), "an empty record is not sent");
    // INCLUDE: those that are in both.
    bench.set(1, SourceFilter::Include(SourceSet::of([sources[0], A::station(7)]).unwrap()));
    bench.run(60 * SECOND);
    bench.ask(&about(1, &sources)).unwrap();
    let one = (RecordKind::IS_INCLUDE, A::group(1), vec![sources[0]]);
    assert_eq!(bench.told(60 * SECOND), [one]);
}

fn sources_added<A: Nth>() {
    let many: Vec<A> = (1..100).map(A::station).collect();
    let mut bench = Bench::<A>::joined(1);
    bench.ask(&about(1, &many[..2])).unwrap();
    bench.ask(&about(1, &many[1..4])).unwrap();
    let four = (RecordKind::IS_INCLUDE, A::group(1), many[..4].to_vec());
    assert_eq!(bench.told(60 * SECOND), [four]);
    // Rule 4: a query for the whole group covers those for sources.
    bench.ask(&about(1, &many[..2])).unwrap();
    bench.ask(&about(1, &[])).unwrap();
    bench.ask(&about(1, &many[..2])).unwrap();
    let whole = [(RecordKind::IS_EXCLUDE, A::group(1), vec![])];
    assert_eq!(bench.told(60 * SECOND), whole);
    // More than can be remembered: the whole group, at once or in steps.
    bench.ask(&about(1, &many)).unwrap();
    assert_eq!(bench.told(60 * SECOND), whole);
    for pair in many.chunks(2) {
        bench.ask(&about(1, pair)).unwrap();
    }
    assert_eq!(bench.told(60 * SECOND), whole);
}

fn not_joined<A: Nth>() {
    let mut bench = Bench::<A>::joined(1);
    assert_eq!(bench.ask(&about(7, &[])), Err(DropReason::GroupMessageNotForUs));
    bench.leave(1);
    assert_eq!(bench.ask(&about(1, &[])), Err(DropReason::GroupMessageNotForUs));
    assert_eq!(bench.told(60 * SECOND).len(), 2);
}

fn invalid<A: Nth>() {
    let mut bench = Bench::<A>::joined(2);
    let (good, general) = (heading(A::ALL_SYSTEMS), QueryFields::general());
    let refused = Err(DropReason::GroupMessageInvalid);
    for hop_limit in [0, 2, 64, 255] {
        assert_eq!(bench.ask_as(&GroupHeading { hop_limit, ..good }, &general), refused);
    }
    for bad in [
        GroupHeading { router_alert: false, ..good },
        // To a group that we are not in.
        GroupHeading { dst_addr: A::group(9), ..good },
        GroupHeading { dst_addr: A::ALL_ROUTERS, ..good },
    ] {
        assert_eq!(bench.ask_as(&bad, &general), refused, "{bad:?}");
    }
    if let Some(src_addr) = A::from_ip(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into()) {
        assert_eq!(bench.ask_as(&GroupHeading { src_addr, ..good }, &general), refused);
    }
    // About one group, to one that we are not in; about none; about a group that is none.
    let to_other = GroupHeading { dst_addr: A::group(9), ..good };
    assert_eq!(bench.ask_as(&to_other, &about(1, &[])), refused);
    let sources = [A::station(5)];
    assert_eq!(bench.ask_as(&good, &QueryFields { sources: &sources, ..general }), refused);
    let no_group = QueryFields { group: A::station(4), ..general };
    assert_eq!(bench.ask_as(&good, &no_group), refused);
    assert_eq!((bench.engine.deadline(), bench.run(60 * SECOND).len()), (None, 0));
    // To an address of ours is allowed (RFC 9776 section 4.1.13).
    bench.ask_as(&GroupHeading { dst_addr: A::station(1), ..good }, &general).unwrap();
    assert_eq!(bench.told(60 * SECOND).len(), 2);
}

/// RFC 9776 section 4.1.12, RFC 9777 section 5.1.15: to any address of the interface, unicast or
/// joined group.
fn to_a_joined_group<A: Nth>() {
    let mut bench = Bench::<A>::joined(2);
    let general = QueryFields::general();
    let to = |n| GroupHeading { dst_addr: A::group(n), ..heading(A::ALL_SYSTEMS) };
    bench.ask_as(&to(1), &general).unwrap();
    assert_eq!(bench.told(60 * SECOND).len(), 2);
    bench.ask_as(&to(2), &about(1, &[])).unwrap();
    assert_eq!(bench.told(60 * SECOND).len(), 1);
    bench.leave(1);
    bench.told(60 * SECOND);
    assert_eq!(bench.ask_as(&to(1), &general), Err(DropReason::GroupMessageInvalid));
}

fn for_routers<A: Nth>() {
    let mut bench = Bench::<A>::joined(1);
    let mut out = [0; 200];
    let ends = GroupAddrs { src_addr: A::station(9), dst_addr: A::ALL_REPORT_ROUTERS };
    let mut writer = ReportWriter::new(&mut out).unwrap();
    writer.record(RecordKind::TO_INCLUDE, A::group(1), [].into_iter());
    let len = writer.finish(ends);
    let leave = &mut [0; 200];
    let leave_len = A::emit_leave(A::group(1), ends, leave).unwrap();
    let report = &mut [0; 200];
    let report_len = A::emit_report(Generation::Second, A::group(1), ends, report).unwrap();
    for message in [&out[..len], &leave[..leave_len], &report[..report_len]] {
        let message = A::parse(message).unwrap();
        let heading = heading(A::group(1));
        let verdict = bench.engine.input(&heading, &message, bench.now, &mut bench.random);
        assert_eq!(verdict, Err(DropReason::GroupMessageNotForUs));
    }
    // Nor do they keep us from answering (RFC 9776: no suppression).
    bench.ask(&QueryFields::general()).unwrap();
    let message = A::parse(&report[..report_len]).unwrap();
    let _ = bench.engine.input(&heading(A::group(1)), &message, bench.now, &mut bench.random);
    assert_eq!(bench.told(60 * SECOND).len(), 1);
}

fn robustness<A: Nth>() {
    // The value sent, the value used: 0 is the default, 1 is never accepted.
    for (said, times) in [(0, 2), (1, 2), (2, 2), (3, 3), (7, 7)] {
        let mut bench = Bench::<A>::joined(1);
        bench.ask(&QueryFields { robustness: said, ..QueryFields::general() }).unwrap();
        bench.run(60 * SECOND);
        bench.times.clear();
        bench.join(2);
        assert_eq!(bench.told(60 * SECOND).len(), times, "{said}");
        let apart = bench.times.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(apart.max().unwrap() <= SECOND + REPORT_GAP);
    }
}

fn split<A: Nth>() {
    let mut bench = Bench::<A>::new();
    let count = GROUPS_MAX as u32;
    (1..=count).for_each(|n| bench.join(n));
    let mut groups: Vec<A> =
        bench.told(60 * SECOND).into_iter().map(|(_, group, _)| group).collect();
    groups.sort_unstable();
    let twice: Vec<A> = (1..=count).flat_map(|n| [A::group(n); 2]).collect();
    assert_eq!(groups, twice);
    bench.times.clear();
    bench.ask(&QueryFields::general()).unwrap();
    let told = bench.run(60 * SECOND);
    assert_eq!(told.iter().map(Vec::len).sum::<usize>(), GROUPS_MAX);
    assert_eq!(told.len(), if A::FAMILY == Family::V6 { 2 } else { 1 });
}

fn full<A: Nth>() {
    let mut bench = Bench::<A>::joined(GROUPS_MAX as u32);
    let (all_sources, now) = (SourceFilter::ALL_SOURCES, bench.now);
    let one_more =
        |bench: &mut Bench<A>| bench.engine.set(A::group(1000), all_sources, now, Duration::ZERO);
    assert_eq!(one_more(&mut bench), Err(GroupsFull));
    bench.leave(5);
    assert_eq!(one_more(&mut bench), Ok(()));
    assert_eq!(bench.engine.groups.len(), GROUPS_MAX);
    assert!(bench.engine.groups.capacity() == GROUPS_MAX, "memory was taken");
}

fn announced<A: Nth>() {
    let mut bench = Bench::<A>::joined(3);
    bench.engine.announce(bench.now, Duration::ZERO);
    let told = bench.run(60 * SECOND);
    assert_eq!(told.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
    assert!(told[0].iter().all(|(kind, ..)| *kind == RecordKind::TO_EXCLUDE));
}

fn cleared<A: Nth>() {
    let mut bench = Bench::<A>::joined(3);
    bench.leave(1);
    bench.ask(&QueryFields::general()).unwrap();
    bench.engine.clear();
    assert_eq!((bench.engine.deadline(), bench.run(60 * SECOND).len()), (None, 0));
}
