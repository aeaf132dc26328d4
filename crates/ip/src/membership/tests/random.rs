//! Random sequences against an oracle: a router that accepts every report knows exactly which
//! sources are accepted, once all is reported.

use std::collections::HashMap;

use super::*;

both! {
    a_router_that_hears_everything_knows_who_is_heard => router_knows;
}

/// A router's view of one host: the filter of each group.
#[derive(Default)]
struct Router<A>(HashMap<A, SourceFilter<A>>);

impl<A: Nth> Router<A> {
    /// Takes a record; of the queried ones `IS_INCLUDE` may be about some sources only.
    fn hear(&mut self, (kind, group, sources): &Told<A>) {
        let set = SourceSet::of(sources.iter().copied()).unwrap();
        let known = self.0.get(group).copied().unwrap_or(SourceFilter::NO_SOURCES);
        let (with, without) = (
            |f: SourceSet<A>| SourceSet::of(f.iter().chain(set.iter())).unwrap(),
            |f: SourceSet<A>| f.filter(|s| !set.contains(s)),
        );
        let filter = match (*kind, known) {
            (RecordKind::TO_EXCLUDE | RecordKind::IS_EXCLUDE, _) => SourceFilter::Exclude(set),
            (RecordKind::TO_INCLUDE, _) => SourceFilter::Include(set),
            (RecordKind::ALLOW_NEW, SourceFilter::Include(f)) => SourceFilter::Include(with(f)),
            (RecordKind::ALLOW_NEW, SourceFilter::Exclude(f)) => SourceFilter::Exclude(without(f)),
            (RecordKind::BLOCK_OLD, SourceFilter::Include(f)) => SourceFilter::Include(without(f)),
            (RecordKind::BLOCK_OLD, SourceFilter::Exclude(f)) => SourceFilter::Exclude(with(f)),
            (_, known) => known,
        };
        self.0.insert(*group, filter);
    }
}

fn filter<A: Nth>(random: &mut PublicRandom) -> SourceFilter<A> {
    let bits = random.below(16);
    let sources = (0..4).filter(|n| bits >> n & 1 == 1).map(|n| A::station(50 + n));
    let set = SourceSet::of(sources).unwrap();
    match random.below(5) {
        0 => SourceFilter::NO_SOURCES,
        1 => SourceFilter::ALL_SOURCES,
        2 | 3 => SourceFilter::Include(set),
        _ => SourceFilter::Exclude(set),
    }
}

fn router_knows<A: Nth>() {
    for seed in 0..200 {
        let mut random = PublicRandom::new(seed);
        let (mut bench, mut router) = (Bench::<A>::new(), Router::<A>(HashMap::new()));
        let mut truth = HashMap::new();
        for _ in 0..60 {
            let n = random.below(4) as u32;
            match random.below(8) {
                0 => _ = bench.ask(&QueryFields::general()),
                1 => _ = bench.ask(&about(n, &[])),
                2 => _ = bench.ask(&about(n, &[A::station(50), A::station(51)])),
                _ => {
                    let filter = filter(&mut random);
                    truth.insert(A::group(n), filter);
                    bench.set(n, filter);
                }
            }
            let pause = Duration::from_millis(random.below(1500));
            bench.told(pause).iter().for_each(|told| router.hear(told));
        }
        bench.told(60 * SECOND).iter().for_each(|told| router.hear(told));
        for (group, filter) in truth {
            let known = router.0.get(&group).copied().unwrap_or(SourceFilter::NO_SOURCES);
            assert_eq!(known, filter, "seed {seed}: {group}");
            assert_eq!(bench.engine.filter(group), filter);
        }
        assert_eq!(bench.engine.deadline(), None);
    }
}
