//! The rules of RFC 9293, RFC 1337 and RFC 6191, and the table compared with a list.

use floodwall_base::{Endpoint, IfIndex};
use proptest::prelude::*;

use super::*;

const STAY: Duration = Duration::from_secs(60);

fn flow(n: u16) -> FlowKey {
    let host = if n.is_multiple_of(2) { "192.0.2.1" } else { "2001:db8::1" };
    FlowKey {
        local: Endpoint::new(host.parse().unwrap(), 80),
        remote: Endpoint::new(host.parse().unwrap(), n),
        zone: IfIndex::default(),
        protocol: 6,
    }
}

fn record(timestamp: Option<u32>) -> TimeWait {
    TimeWait {
        snd_nxt: Seq(5000),
        rcv_nxt: Seq(1000),
        window: 100,
        timestamps: timestamp
            .map(|v| (TimestampClock::default(), RecentTimestamp::new(v, Instant::ORIGIN))),
        challenges: ChallengeLimit::new(),
        syn_answered: false,
    }
}

fn at(secs: u64) -> Instant {
    Instant::ORIGIN + Duration::from_secs(secs)
}

/// When a record that expires then is removed.
fn due(expires: Instant) -> Instant {
    expires + STAY / EXPIRY_DIVISOR
}

fn with(timestamp: Option<u32>) -> TimeWaits {
    let mut table = TimeWaits::new(4, STAY, HashKey::new(1, 2));
    assert!(table.insert(&flow(1), record(timestamp), at(0)).is_none());
    table
}

const ACK: TimeWaitArrival = TimeWaitArrival {
    seq: Seq(1000),
    len: 0,
    syn: false,
    fin: false,
    rst: false,
    ack: true,
    timestamp: None,
    is_listened: true,
    timestamps_agreed: false,
};

#[test]
fn records_that_expire_one_after_the_other_are_removed_by_one_call() {
    let mut table = TimeWaits::new(64, STAY, HashKey::new(1, 2));
    let step = Duration::from_millis(20);
    for n in 0..40 {
        table.insert(&flow(n), record(None), at(0) + step * n.into());
    }
    let due = table.deadline().unwrap();
    assert!(due > at(60) && due <= at(61), "{due:?}");
    assert!((20..=30).contains(&table.expire(due, 64)));
    assert!(table.deadline() > Some(due));
    // One that has expired and is still there answers nothing.
    assert!(table.lookup(&flow(39)).is_some());
    assert!(matches!(table.input(&flow(39), &ACK, at(61)), TimeWaitVerdict::Absent));
}

#[test]
fn records_that_came_free_are_used_again_before_others() {
    let mut table = TimeWaits::new(64, STAY, HashKey::new(1, 2));
    for n in 0..200 {
        assert!(table.insert(&flow(n), record(None), at(n.into())).is_none());
        table.expire(at(n.into()), 64);
        let most = table.entries.iter().rposition(Option::is_some);
        assert!(most.is_some_and(|most| most <= 60), "{n}: {most:?}");
        let oldest = at(u64::from(n.saturating_sub(59)));
        assert_eq!(table.deadline(), Some(due(oldest + STAY)));
    }
}

#[test]
fn a_record_that_is_not_due_uses_up_no_units() {
    let mut table = with(None);
    assert_eq!(table.expire(at(59), 64), 0);
    assert_eq!(table.expire(at(60), 64), 1);
    assert!(table.lookup(&flow(1)).is_none());
}

#[test]
fn a_reset_does_not_end_time_wait() {
    let mut table = with(None);
    let rst = TimeWaitArrival { rst: true, ack: false, ..ACK };
    assert!(matches!(table.input(&flow(1), &rst, at(1)), TimeWaitVerdict::Ignore));
    assert!(table.lookup(&flow(1)).is_some());
}

#[test]
fn a_fin_that_comes_again_is_acknowledged_and_the_wait_begins_anew() {
    let mut table = with(None);
    let fin = TimeWaitArrival { seq: Seq(999), len: 1, fin: true, ..ACK };
    assert!(matches!(
        table.input(&flow(1), &fin, at(50)),
        TimeWaitVerdict::Ack(r) if r.rcv_nxt == Seq(1000)
    ));
    assert_eq!(table.deadline(), Some(due(at(110))));
    assert!(!matches!(table.input(&flow(1), &ACK, at(109)), TimeWaitVerdict::Absent));
    assert!(
        matches!(table.input(&flow(1), &ACK, at(110)), TimeWaitVerdict::Absent),
        "by the clock alone"
    );
    assert!(table.is_empty());
}

#[test]
fn old_data_and_a_syn_below_the_window_are_answered_and_change_nothing() {
    let mut table = with(Some(77));
    for arrived in [
        TimeWaitArrival { seq: Seq(500), len: 100, ..ACK },
        TimeWaitArrival {
            seq: Seq(900),
            syn: true,
            ack: false,
            len: 1,
            timestamp: Some(70),
            ..ACK
        },
        TimeWaitArrival { seq: Seq(2000), syn: true, len: 1, timestamp: Some(99), ..ACK },
        TimeWaitArrival { seq: Seq(999), len: 1, fin: true, timestamp: Some(70), ..ACK },
    ] {
        assert!(
            matches!(table.input(&flow(1), &arrived, at(1)), TimeWaitVerdict::Ack(_)),
            "{arrived:?}"
        );
        assert_eq!(table.deadline(), Some(due(at(60))), "the wait goes on");
    }
    assert!(
        matches!(table.input(&flow(1), &ACK, at(1)), TimeWaitVerdict::Ignore),
        "an ACK is in its place"
    );
    assert!(matches!(table.input(&flow(2), &ACK, at(1)), TimeWaitVerdict::Absent));
}

#[test]
fn a_syn_opens_anew_where_it_is_later_by_timestamp_or_by_sequence() {
    let syn = |seq, timestamp| TimeWaitArrival {
        seq: Seq(seq),
        syn: true,
        ack: false,
        len: 1,
        timestamp,
        ..ACK
    };
    // Kept timestamp, SYN's sequence number, SYN's timestamp, expected (RFC 6191 section 2).
    for (kept, seq, value, opens) in [
        (Some(77), 500, Some(78), true),
        (Some(77), 5000, Some(78), true),
        (Some(77), 5000, Some(76), false),
        (Some(77), 5000, Some(77), true),
        (Some(77), 1000, Some(77), false),
        (Some(77), 5000, None, true),
        (Some(77), 900, None, false),
        (None, 5000, Some(1), true),
        (None, 1000, None, false),
        (None, 1001, None, true),
    ] {
        let mut table = with(kept);
        let unheard = TimeWaitArrival { is_listened: false, ..syn(seq, value) };
        let verdict = table.input(&flow(1), &unheard, at(1));
        assert!(matches!(verdict, TimeWaitVerdict::Ack(_)), "nothing listens: nothing begins");
        let verdict = table.input(&flow(1), &syn(seq, value), at(1));
        assert_eq!(matches!(verdict, TimeWaitVerdict::Reopen(r) if r.snd_nxt == Seq(5000)), opens);
        assert_eq!(table.lookup(&flow(1)).is_none(), opens);
    }
}

#[test]
fn an_active_open_uses_ends_again_only_with_a_timestamp_that_is_old_enough() {
    assert!(with(None).reuse(&flow(1), at(50)).is_none());
    assert!(with(Some(1)).reuse(&flow(1), at(1)).is_none());
    let mut table = with(Some(1));
    assert!(table.reuse(&flow(1), at(2)).is_some());
    assert!(table.is_empty());
}

#[test]
fn more_flows_than_records_leave_the_latest() {
    let mut table = TimeWaits::new(100, STAY, HashKey::new(7, 8));
    for n in 0..10_000 {
        let evicted = table.insert(&flow(n), record(None), at(u64::from(n) / 1000));
        assert_eq!(evicted, n.checked_sub(100).map(flow));
    }
    assert_eq!(table.len(), 100);
    assert!((9_900..10_000).all(|n| table.lookup(&flow(n)).is_some()));
    assert_eq!(table.expire(at(1000), 30), 30);
    assert_eq!(table.len(), 70, "as many as were granted");
    table.expire(at(1000), 1000);
    assert!(table.is_empty() && table.deadline().is_none());
    assert!(
        TimeWaits::new(0, STAY, HashKey::new(7, 8)).insert(&flow(1), record(None), at(0)).is_none()
    );
}

proptest! {
    #[test]
    fn the_table_is_a_list_of_flows_by_age(
        steps in prop::collection::vec((0_u16..12, 0_u64..30, 0_u8..5), 1..200)
    ) {
        let mut table = TimeWaits::new(5, STAY, HashKey::new(3, 4));
        let mut model: Vec<(u16, Instant)> = Vec::new();
        let mut now = 0;
        for (n, wait, what) in steps {
            now += wait;
            if what < 3 {
                table.insert(&flow(n), record(None), at(now));
                model.retain(|(other, _)| *other != n);
                if model.len() == 5 { model.remove(0); }
                model.push((n, at(now + 60)));
            } else if what == 3 {
                table.remove(&flow(n));
                model.retain(|(other, _)| *other != n);
            } else {
                table.expire(at(now), 100);
                model.retain(|(_, expires)| at(now) < *expires);
            }
            for other in 0..12 {
                let found = model.iter().any(|(m, _)| *m == other);
                prop_assert_eq!(table.lookup(&flow(other)).is_some(), found);
            }
            prop_assert_eq!(table.len(), model.len());
            prop_assert_eq!(table.deadline(), model.first().map(|(_, expires)| due(*expires)));
        }
    }
}
