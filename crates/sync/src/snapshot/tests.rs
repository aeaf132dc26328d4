//! The snapshot under ordinary threads, and under loom.

use super::*;

#[cfg(not(loom))]
mod threads {
    use super::*;

    #[test]
    fn reader_sees_the_newest_version_whole() {
        let (mut writer, reader) = cell([7, 8, 9]);
        assert_eq!(reader.read(), Snapshot { version: 0, words: [7, 8, 9] });
        for version in 1..6 {
            writer.publish(&[version; 3]);
            assert_eq!(reader.try_read(), Some(Snapshot { version, words: [version; 3] }));
            assert_eq!(reader.read(), writer.reader().read());
        }
    }

    #[test]
    fn words_behind_the_front_stay_as_they_are() {
        let (mut writer, reader) = cell([7, 8, 9]);
        for version in 1..6 {
            writer.publish_front(&[version; 1]);
            assert_eq!(reader.read(), Snapshot { version, words: [version, 8, 9] });
        }
    }

    #[test]
    fn last_snapshot_outlives_its_writer() {
        let (mut writer, reader) = cell([0]);
        writer.publish(&[1]);
        drop(writer);
        assert_eq!(reader.read().words, [1]);
    }

    #[test]
    fn writer_that_stops_in_mid_write_keeps_no_reader_waiting() {
        let (mut writer, reader) = cell([0; 2]);
        writer.publish(&[1; 2]);
        reader.cell.buffer(2)[0].store(2, Relaxed);
        assert_eq!(reader.try_read(), Some(Snapshot { version: 1, words: [1; 2] }));
    }

    #[test]
    fn cell_of_no_words_still_counts_versions() {
        let (mut writer, reader) = cell([]);
        writer.publish(&[]);
        assert_eq!(reader.read(), Snapshot { version: 1, words: [] });
    }

    #[test]
    fn stress_of_a_writer_and_two_readers_shows_no_torn_snapshot() {
        const VERSIONS: u64 = 10_000;
        let (mut writer, reader) = cell([0; 20]);
        std::thread::scope(|scope| {
            let readers = [(); 2].map(|()| {
                let reader = reader.clone();
                scope.spawn(move || watch(&reader, VERSIONS))
            });
            for version in 1..=VERSIONS {
                writer.publish(&[version; 20]);
                if version % 64 == 0 {
                    std::thread::yield_now();
                }
            }
            readers.into_iter().for_each(|thread| thread.join().expect("reader"));
        });
    }

    /// Reads until version `last`: each snapshot is whole, and none is older than one before.
    fn watch(reader: &SnapshotReader<20>, last: u64) {
        let mut newest = 0;
        while newest < last {
            let seen = reader.read();
            assert!(seen.version >= newest, "{} after {newest}", seen.version);
            assert_eq!(seen.words, [seen.version; 20]);
            newest = seen.version;
            std::thread::yield_now();
        }
    }
}

/// The writer publishes twice, so that the buffer a reader began with is overwritten once. No
/// bound on preemption with one reader. Weakened by hand, each alone made these models fail: the
/// release of the version's store and the acquire of its load to relaxed, and either fence left
/// out.
#[cfg(loom)]
mod model {
    use loom::{model, model::Builder, thread};

    use super::*;

    fn assert_whole(seen: Snapshot<2>) {
        assert_eq!(seen.words, [seen.version; 2]);
    }

    #[test]
    fn reader_never_sees_a_torn_snapshot() {
        model(|| {
            let (mut writer, reader) = cell([0; 2]);
            let thread = thread::spawn(move || {
                writer.publish(&[1; 2]);
                writer.publish(&[2; 2]);
            });
            if let Some(seen) = reader.try_read() {
                assert_whole(seen);
            }
            thread.join().expect("writer");
            assert_eq!(reader.try_read(), Some(Snapshot { version: 2, words: [2; 2] }));
        });
    }

    #[test]
    fn reader_never_goes_back_in_time() {
        model(|| {
            let (mut writer, reader) = cell([0; 2]);
            let thread = thread::spawn(move || {
                writer.publish(&[1; 2]);
                writer.publish(&[2; 2]);
            });
            let versions = [(); 2].map(|()| reader.try_read().map(|seen| seen.version));
            if let [Some(first), Some(second)] = versions {
                assert!(first <= second);
            }
            thread.join().expect("writer");
        });
    }

    /// Preemption bound 3: real faults need one or two forced switches (Musuvathi and Qadeer,
    /// 2007), and three threads without a bound do not end soon.
    #[test]
    fn two_readers_do_not_disturb_each_other() {
        let mut builder = Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let (mut writer, reader) = cell([0; 2]);
            let other = reader.clone();
            let threads = [
                thread::spawn(move || writer.publish(&[1; 2])),
                thread::spawn(move || other.try_read().into_iter().for_each(assert_whole)),
            ];
            reader.try_read().into_iter().for_each(assert_whole);
            threads.into_iter().for_each(|thread| thread.join().expect("thread"));
        });
    }
}
