//! The honest host: a ping of each family every five milliseconds, and what of it was lost.

use std::time::Duration;

use crate::command::{Process, Said};
use crate::site::Host;

/// Our addresses.
pub(crate) const OURS: [&str; 2] = ["10.77.0.2", "fd77::2"];
const INTERVAL: Duration = Duration::from_millis(5);
/// How long answers that are missing are waited for.
const LATE: Duration = Duration::from_secs(3);

/// Pings of both families that are under way.
pub(crate) struct Pings(Vec<(Process, usize)>);

/// What became of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    sent: usize,
    lost: usize,
}

impl Pings {
    /// Starts them; `None`, and said so, where there is no `ping`.
    pub(crate) fn start(host: &Host, length: Duration) -> Option<Self> {
        Self::start_within(host, length, length + LATE)
    }

    /// As many as that length has place for, and so long at most.
    fn start_within(host: &Host, length: Duration, limit: Duration) -> Option<Self> {
        let count = (length.as_millis() / INTERVAL.as_millis()) as usize;
        let limit = limit.as_secs();
        host.inside(|| {
            let start = |addr: &&str| {
                let words = format!("-n -i 0.005 -c {count} -w {limit} {addr}");
                Some((Process::start("ping", &words, b"")?, count))
            };
            OURS.iter().map(start).collect::<Option<Vec<_>>>().map(Self)
        })
    }

    /// Waits until they are through.
    pub(crate) fn end(self) -> Vec<Lost> {
        let limit = Duration::from_secs(120);
        self.0.into_iter().map(|(process, count)| judge(process.wait(limit), count)).collect()
    }
}

impl Lost {
    /// The bound of every flood.
    pub(crate) fn is_at_most_one_in_a_hundred(&self) -> bool {
        self.lost * 100 <= self.sent
    }

    /// The bound where the path to us lost so many packets of all: it loses them blindly, and in
    /// bursts.
    pub(crate) fn is_explained_by(&self, lost: u64, of_all: u64) -> bool {
        let (honest, sent) = (self.lost as u64, self.sent as u64);
        lost > 0 && honest * of_all * 50 <= sent * (100 * lost + of_all)
    }
}

/// Ping goes on until so many are answered or its time is over, so the last one of its packets may
/// still be on its way.
fn judge(said: Said, count: usize) -> Lost {
    let text = said.text;
    assert!(!text.contains("wrong data") && !text.contains("DUP!"), "{text}");
    let answers = text.lines().filter(|line| line.contains("bytes from")).count();
    let (before, _) = text.split_once(" packets transmitted").expect("a summary");
    let sent: usize = before.rsplit('\n').next().unwrap().parse().unwrap();
    let judged = if answers >= count { 0 } else { sent.saturating_sub(1) };
    let sent = sent.min(last_answered(&text).max(judged));
    Lost { sent, lost: sent - answers.min(sent) }
}

fn last_answered(text: &str) -> usize {
    let number = |line: &str| {
        let (_, rest) = line.split_once("icmp_seq=")?;
        rest.split(' ').next()?.parse().ok()
    };
    text.lines().filter_map(number).max().unwrap_or(0)
}

/// A hundred pings, none of which is lost, in half a second or as long as the machine needs.
pub(crate) fn assert_all_answered(host: &Host) {
    let (length, limit) = (Duration::from_millis(500), Duration::from_secs(60));
    let Some(pings) = Pings::start_within(host, length, limit) else { return };
    for lost in pings.end() {
        assert!(lost.lost == 0 && lost.sent >= 90, "after the flood: {lost:?}");
    }
}
