//! The keepalive timer and the retry timer, which are in a rare state: set, hastened, due, cleared.

use floodwall_base::Instant;

use super::peer::Peer;
use crate::TcpSettings;
use crate::timer::{RareTimer, TimerKind};

const fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

#[test]
fn timers_that_few_connections_have_are_as_timers_of_all() {
    for v6 in [false, true] {
        let mut peer = Peer::new(v6);
        let id = peer.connect(&TcpSettings::default());
        let (it, rare) = peer.host.tcp.named_rare(id).unwrap();
        it.clear_timers();
        assert_eq!((it.next_timer(rare), rare.in_use()), (Instant::FAR, 0));
        // To clear what is not set takes no memory.
        it.set_rare_timer(rare, RareTimer::Keepalive, Instant::FAR);
        assert_eq!((it.next_timer(rare), rare.in_use()), (Instant::FAR, 0));
        it.set_rare_timer(rare, RareTimer::Keepalive, at(9));
        it.timers.set(TimerKind::Close, at(8));
        it.hasten_rare_timer(rare, RareTimer::Retry, at(7));
        it.hasten_rare_timer(rare, RareTimer::Retry, at(11));
        assert_eq!((it.next_timer(rare), rare.in_use()), (at(7), 1));
        let due = [6, 9, 9, 9].map(|now| it.pop_rare_timer(rare, at(now)));
        assert_eq!(due, [None, Some(RareTimer::Keepalive), Some(RareTimer::Retry), None]);
        assert_eq!(it.next_timer(rare), at(8));
        // What was cleared with all others is not set again with one of them.
        it.set_rare_timer(rare, RareTimer::Keepalive, at(3));
        it.clear_timers();
        it.set_rare_timer(rare, RareTimer::Retry, at(20));
        assert_eq!((it.next_timer(rare), rare.in_use()), (at(20), 1));
    }
}
