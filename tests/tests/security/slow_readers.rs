//! Slow readers of one source prefix: each takes a little of a huge answer, steadily. An honest
//! download of another prefix over a long path keeps its window and is not reset; where there is no
//! such one, the slow readers may be honest, and none is reset either.

use std::collections::VecDeque;
use std::time::Duration;

use floodwall_base::{Counter, Family};
use floodwall_tests::craft::FAMILIES;
use floodwall_tests::tcp::Heard;
use floodwall_wire::tcp::TcpFlags;

use crate::places::{Play, World, http, source};

const A: TcpFlags = TcpFlags::ACK;
const HUGE: &[u8] = b"GET /bytes/100000000000 HTTP/1.1\r\nHost: a\r\n\r\n";
/// What a reader takes at a time, and how often.
const TAKES: u32 = 2900;
const EVERY_MS: u64 = 80;
/// The honest peer's round trip.
const TRIP_MS: u64 = 300;
const MILLIS: u64 = 20_000;
/// A path that queues nothing, in bytes a millisecond.
const FAST: u64 = 1 << 30;

/// What a peer that acknowledges all at once keeps unread, and the scale of its window.
const BUFFER: u32 = 65_536;
const SCALE: u32 = 9;

/// How readers of a run take their answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Taking {
    /// They acknowledge what they take.
    Late,
    /// They acknowledge all that comes, within a window that closes: as Linux does.
    Buffered,
}

/// A reader, and how far the host has sent.
struct Reader {
    play: Play,
    sent: u32,
    /// What it has acknowledged and not read.
    unread: u32,
    gone: bool,
}

impl Reader {
    fn open(world: &mut World, family: Family, prefix: u16, host: u16) -> Option<Self> {
        let mut play = world.open(source(family, prefix, host), 80)?;
        world.say(&play, A | TcpFlags::PSH, HUGE);
        play.seq = play.seq.wrapping_add(HUGE.len() as u32);
        Some(Self { sent: play.ack, play, unread: 0, gone: false })
    }

    fn hear(&mut self, heard: &Heard) {
        self.gone |= heard.flags.contains(TcpFlags::RST);
        let end = heard.seq.wrapping_add(heard.text.len() as u32);
        if end.wrapping_sub(self.sent) < 1 << 31 {
            self.sent = end;
        }
    }

    /// Acknowledges up to `most` more bytes of what was sent; returns how many.
    fn take(&mut self, world: &mut World, most: u32) -> u32 {
        let bytes = self.sent.wrapping_sub(self.play.ack).min(most);
        self.play.ack = self.play.ack.wrapping_add(bytes);
        if bytes > 0 {
            world.say(&self.play, A, &[]);
        }
        bytes
    }

    /// Acknowledges all that was sent, and opens its window no further than it has read.
    fn buffer(&mut self, world: &mut World) {
        let bytes = self.sent.wrapping_sub(self.play.ack);
        if bytes > 0 && !self.gone {
            self.unread += bytes;
            self.play.ack = self.sent;
            self.tell_window(world);
        }
    }

    /// Reads up to `most` bytes; tells of it once its window opens by two segments.
    fn read(&mut self, world: &mut World, most: u32) {
        let before = self.unread;
        self.unread -= before.min(most);
        let told = u32::from(self.play.client.window) << SCALE;
        if BUFFER.saturating_sub(self.unread) >= told + TAKES {
            self.tell_window(world);
        }
    }

    fn tell_window(&mut self, world: &mut World) {
        self.play.client.window = (BUFFER.saturating_sub(self.unread) >> SCALE) as u16;
        world.say(&self.play, A, &[]);
    }
}

/// What became of an honest download, and of all connections beside it.
struct Outcome {
    got: u64,
    /// What of it came in the second half of the time.
    late: u64,
    is_reset: bool,
    resets: u64,
    /// How often a connection was ended for memory.
    ended: u64,
}

/// An honest download beside so many readers of so many prefixes that were there before it.
fn download(world: World, family: Family, readers: (u16, u16, Taking)) -> Outcome {
    download_from(world, family, readers, (0, 2000), FAST)
}

/// The same where readers and download begin at these times, over a path of so many bytes a
/// millisecond, which queues what is more.
fn download_from(
    mut world: World,
    family: Family,
    (readers, prefixes, taking): (u16, u16, Taking),
    (readers_at, honest_at): (u64, u64),
    rate: u64,
) -> Outcome {
    let again = |world: &mut World, n| {
        let mut reader = Reader::open(world, family, 10 + n % prefixes, n % 200)?;
        if taking == Taking::Buffered {
            reader.tell_window(world);
        }
        Some(reader)
    };
    let open = |world: &mut World, n| again(world, n).expect("a place");
    let mut slow = Vec::new();
    let mut honest: Option<Reader> = None;
    // When the path has carried all, in bytes since it began.
    let mut carried = 0_u64;
    let (mut got, mut late) = (0, 0);
    // What the honest peer will have received, and when its acknowledgment arrives.
    let mut trip: VecDeque<(u64, u32)> = VecDeque::new();
    for now in 0..MILLIS {
        if now == readers_at {
            slow = (0..readers).map(|n| open(&mut world, n)).collect();
        }
        if now == honest_at {
            honest = Reader::open(&mut world, family, 9, 1);
        }
        world.wait(Duration::from_millis(1));
        for heard in std::mem::take(&mut world.out) {
            let is_of = |reader: &Reader| reader.play.client.from == heard.to;
            if let Some(honest) = honest.as_mut().filter(|it| is_of(it)) {
                honest.hear(&heard);
                carried = carried.max(now.saturating_mul(rate)) + heard.text.len() as u64;
                trip.push_back((carried / rate + TRIP_MS, honest.sent));
            } else if let Some(reader) = slow.iter_mut().find(|it| is_of(it)) {
                reader.hear(&heard);
            }
        }
        let buffers = slow.iter_mut().filter(|_| taking == Taking::Buffered);
        buffers.for_each(|reader| reader.buffer(&mut world));
        while let Some((_, sent)) = trip.pop_front_if(|(at, _)| *at <= now) {
            let honest = honest.as_mut().expect("it was opened");
            if honest.gone {
                continue;
            }
            let bytes = sent.wrapping_sub(honest.play.ack);
            let bytes = honest.take(&mut world, if bytes < 1 << 31 { bytes } else { 0 });
            got += u64::from(bytes);
            late += if now >= MILLIS / 2 { u64::from(bytes) } else { 0 };
        }
        for (n, reader) in slow.iter_mut().enumerate() {
            if reader.gone {
                // It comes again at once.
                if let Some(again) = again(&mut world, n as u16) {
                    *reader = again;
                }
            } else if now % EVERY_MS == n as u64 % EVERY_MS {
                match taking {
                    Taking::Late => _ = reader.take(&mut world, TAKES),
                    Taking::Buffered => reader.read(&mut world, TAKES),
                }
            }
        }
    }
    Outcome {
        got,
        late,
        is_reset: honest.is_some_and(|honest| honest.gone),
        resets: world.count(Counter::TcpEstabResets),
        ended: world.count(Counter::TcpExtTCPAbortOnMemory),
    }
}

/// 64 readers had a download at 300 ms reset, six times of six.
#[test]
fn a_long_distance_download_keeps_its_window_beside_slow_readers_of_another_prefix() {
    for family in FAMILIES {
        let world = || World::new(vec![http()]);
        let alone = download(world(), family, (0, 1, Taking::Late)).got;
        assert!(alone > 5_000_000, "{alone}");
        use Taking::{Buffered, Late};
        for readers in [
            (64, 1, Late),
            (300, 1, Late),
            (64, 3, Late),
            (300, 1, Buffered),
            (300, 3, Buffered),
            (300, 30, Buffered),
        ] {
            let Outcome { got, resets, ended, is_reset, .. } = download(world(), family, readers);
            let what = format!("{family:?}, {readers:?}: {got} of {alone}, {resets} resets");
            // Alone it has the part of a single prefix; beside others more, as a send buffer
            // advertises nothing.
            let least = if readers.2 == Buffered { 11 } else { 9 };
            assert!(got * 10 >= alone * least && !is_reset, "{what}");
            // Each was counted once.
            assert_eq!(ended, resets, "{what}");
        }
    }
}

/// Its buffer is larger than its share when 120 or 300 readers of 30 prefixes begin to take theirs
/// at once, and takes up to a second to drain: it was reset at once.
#[test]
fn a_download_that_holds_more_than_its_share_is_throttled_to_it_and_not_reset() {
    const PREFIXES: u16 = 30;
    for family in FAMILIES {
        for (count, taking, rate) in [
            (120, Taking::Late, FAST),
            (120, Taking::Buffered, 1000),
            (300, Taking::Late, FAST),
            (300, Taking::Buffered, 1000),
        ] {
            let world = World::new(vec![http()]);
            let share = world.tcp_memory() / 4 * 3 / (u64::from(PREFIXES) + 1);
            let readers = (count, PREFIXES, taking);
            let Outcome { late, is_reset, resets, .. } =
                download_from(world, family, readers, (6000, 0), rate);
            // A segment of 1,400 bytes takes 2,176 with its frame.
            let permitted = share * 1400 / 2176 * (MILLIS / 2) / TRIP_MS;
            let what =
                format!("{family:?} {count} {taking:?}: {late} of {permitted}, {resets} resets");
            assert!(!is_reset && late * 10 >= permitted * 9, "{what}");
        }
    }
}

/// Without the mechanism the attack works: memory that is not shared between prefixes is the slow
/// readers'.
#[test]
fn without_shares_of_memory_slow_readers_take_a_long_distance_download_s_window() {
    for family in FAMILIES {
        let world = || World::unfair(vec![http()]);
        let alone = download(world(), family, (0, 1, Taking::Late)).got;
        let got = download(world(), family, (300, 1, Taking::Late)).got;
        assert!(got * 10 < alone * 9, "{family:?}: {got} of {alone}");
    }
}

/// Beside each other only: a tenth of them was reset.
#[test]
fn slow_downloads_of_one_prefix_alone_are_not_reset_and_keep_their_pace() {
    const READERS: u16 = 100;
    for family in FAMILIES {
        let mut world = World::new(vec![http()]);
        let open = |world: &mut World, n| Reader::open(world, family, 1, n).expect("a place");
        let mut slow: Vec<_> = (0..READERS).map(|n| open(&mut world, n)).collect();
        let mut got = vec![0; slow.len()];
        for now in 0..MILLIS {
            world.wait(Duration::from_millis(1));
            for heard in std::mem::take(&mut world.out) {
                if let Some(reader) = slow.iter_mut().find(|it| it.play.client.from == heard.to) {
                    reader.hear(&heard);
                    assert!(!reader.gone, "{family:?}: reset after {now} ms");
                }
            }
            for (n, reader) in slow.iter_mut().enumerate() {
                if now % EVERY_MS == n as u64 % EVERY_MS {
                    got[n] += reader.take(&mut world, TAKES);
                }
            }
        }
        let all = TAKES * (MILLIS / EVERY_MS) as u32;
        let least = got.iter().min().copied().unwrap_or(0);
        assert!(least >= all / 100 * 90, "{family:?}: {least} of {all}");
        assert_eq!(world.count(Counter::TcpExtTCPAbortOnMemory), 0, "{family:?}");
    }
}
