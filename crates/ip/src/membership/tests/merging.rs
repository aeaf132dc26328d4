//! Source filters: how they are merged, and how their changes are reported.

use super::*;

both! {
    merged_filters_accept_each_source_that_one_of_them_accepts => merged;
    changes_of_sources_are_told_as_such => sources_told;
    a_change_of_mode_is_told_by_the_whole_filter => mode_told;
    a_group_left_by_its_last_source_is_over => last_source;
    more_changes_than_fit_are_told_by_the_whole_filter => too_many;
}

/// Every filter over three sources: sixteen.
fn filters<A: Nth>() -> Vec<SourceFilter<A>> {
    let subset = |bits: u32| (0..3).filter(move |n| bits >> n & 1 == 1).map(A::station);
    let set = |bits| SourceSet::of(subset(bits)).unwrap();
    (0..8)
        .flat_map(|bits| [SourceFilter::Include(set(bits)), SourceFilter::Exclude(set(bits))])
        .collect()
}

fn merged<A: Nth>() {
    for a in filters::<A>() {
        for b in filters::<A>() {
            let both = a.merge(&b);
            assert_eq!(both, b.merge(&a));
            // The fourth source is one that no filter names.
            for source in (0..4).map(A::station) {
                let heard = a.passes(source) || b.passes(source);
                assert_eq!(both.passes(source), heard, "{a:?} {b:?} {source}");
            }
            for c in filters::<A>() {
                assert_eq!(both.merge(&c), a.merge(&b.merge(&c)));
            }
        }
    }
    // More than fits: all sources, never fewer.
    let set = |from: u32| {
        let sources = (from..from + GROUP_SOURCES).map(A::station);
        SourceFilter::Include(SourceSet::of(sources).unwrap())
    };
    assert_eq!(set(0).merge(&set(5)), SourceFilter::ALL_SOURCES);
}

const GROUP_SOURCES: u32 = floodwall_base::limits::GROUP_SOURCES_MAX as u32;

fn include<A: Nth>(numbers: impl IntoIterator<Item = u32>) -> SourceFilter<A> {
    SourceFilter::Include(SourceSet::of(numbers.into_iter().map(A::station)).unwrap())
}

fn exclude<A: Nth>(numbers: impl IntoIterator<Item = u32>) -> SourceFilter<A> {
    SourceFilter::Exclude(SourceSet::of(numbers.into_iter().map(A::station)).unwrap())
}

fn sources_told<A: Nth>() {
    // The table of RFC 9776 section 5.1.
    let (allow, block) = (RecordKind::ALLOW_NEW, RecordKind::BLOCK_OLD);
    for (old, new, heard, not_heard) in
        [(include([1, 2]), include([2, 3]), 3, 1), (exclude([1, 2]), exclude([2, 3]), 1, 3)]
    {
        let mut bench = Bench::<A>::new();
        bench.set(1, old);
        bench.run(60 * SECOND);
        bench.set(1, new);
        let once = vec![
            (allow, A::group(1), vec![A::station(heard)]),
            (block, A::group(1), vec![A::station(not_heard)]),
        ];
        assert_eq!(bench.run(60 * SECOND), [once.clone(), once]);
    }
    // A source that comes and goes before all is reported: its last state, as often as ever.
    let mut bench = Bench::<A>::new();
    bench.set(1, include([1]));
    bench.run(60 * SECOND);
    bench.set(1, include([1, 2]));
    bench.run(REPORT_GAP / 2);
    bench.set(1, include([1]));
    let gone = vec![(block, A::group(1), vec![A::station(2)])];
    assert_eq!(bench.run(60 * SECOND), [gone.clone(), gone]);
}

fn mode_told<A: Nth>() {
    let mut bench = Bench::<A>::joined(1);
    bench.set(1, include([4]));
    let once = vec![(RecordKind::TO_INCLUDE, A::group(1), vec![A::station(4)])];
    assert_eq!(bench.run(60 * SECOND), [once.clone(), once]);
    bench.set(1, exclude([5]));
    bench.run(REPORT_GAP / 2);
    // While that is being reported, its sources change: the whole once more.
    bench.set(1, exclude([5, 6]));
    let told = bench.told(60 * SECOND);
    let both = vec![A::station(5), A::station(6)];
    assert_eq!(told, vec![(RecordKind::TO_EXCLUDE, A::group(1), both); 2]);
}

fn last_source<A: Nth>() {
    let mut bench = Bench::<A>::new();
    bench.set(1, include([1]));
    assert_eq!(bench.told(60 * SECOND)[0].0, RecordKind::ALLOW_NEW);
    bench.leave(1);
    let gone = (RecordKind::BLOCK_OLD, A::group(1), vec![A::station(1)]);
    assert_eq!(bench.told(60 * SECOND), vec![gone; 2]);
    assert!(bench.engine.groups.is_empty());
}

fn too_many<A: Nth>() {
    let mut bench = Bench::<A>::new();
    bench.set(1, include(0..GROUP_SOURCES));
    bench.run(60 * SECOND);
    bench.set(1, include(100..100 + GROUP_SOURCES));
    let told = bench.told(60 * SECOND);
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|(kind, _, s)| *kind == RecordKind::TO_INCLUDE && s.len() == 16));
}
