//! A write with a segment that leaves at once sends what the same write by the lists sends: the
//! same bytes at the same times, in both families, with loss, held writes and several connections.

use core::time::Duration;

use floodwall_base::PublicRandom;

use super::cable::{Cable, Weather};
use crate::{ConnectionId, TcpSettings};

/// Two connections of each host, in one of two ways of writing.
struct Pair {
    cable: Cable,
    at_once: bool,
    /// By host.
    ids: [Vec<ConnectionId>; 2],
}

impl Pair {
    fn new(seed: u64, v6: bool, settings: &TcpSettings, at_once: bool) -> Self {
        let mut cable = Cable::new(seed);
        let listener = cable.listen(1, 80, settings);
        let clients = (0..2).map(|_| cable.connect_out(v6, 80, settings, at_once)).collect();
        assert_eq!(cable.at_once, if at_once { 2 } else { 0 }, "SYNs that left at once");
        cable.run(Duration::from_millis(100));
        let servers = std::iter::from_fn(|| cable.accept(1, listener)).collect();
        Self { cable, at_once, ids: [clients, servers] }
    }
}

/// A few bytes mostly; sometimes about a segment, sometimes much.
fn length(random: &mut PublicRandom) -> usize {
    let most = [1, 200, 200, 200, 1448, 1500, 3000, 40_000][random.below(8) as usize];
    random.below(most + 1) as usize
}

fn writes_alike(seed: u64, v6: bool) -> u64 {
    let mut random = PublicRandom::new(seed);
    let settings = TcpSettings {
        nodelay: random.below(2) == 0,
        ecn: random.below(2) == 0,
        timestamps: random.below(4) != 0,
        slow_start_after_idle: random.below(2) == 0,
        unsent_bytes: (random.below(4) == 0).then_some(500),
        ..TcpSettings::default()
    };
    let mut pairs = [false, true].map(|at_once| Pair::new(seed, v6, &settings, at_once));
    let loss = random.below(2) as f64 * 0.05;
    for pair in &mut pairs {
        let delay = Duration::from_micros(500);
        pair.cable.weather = Weather { delay, loss, ..Weather::default() };
        assert_eq!((pair.ids[0].len(), pair.ids[1].len()), (2, 2), "seed {seed}");
    }
    for round in 0..300 {
        let (host, which, len) =
            (random.below(2) as usize, random.below(2) as usize, length(&mut random));
        let (more, reads) = (random.below(6) == 0, random.below(3) != 0);
        let wait = [0, 50, 400, 1000, 50_000, 3_000_000][random.below(6) as usize];
        let shut = round == 290;
        let happened = pairs.each_mut().map(|Pair { cable, at_once, ids }| {
            let id = ids[host][which];
            let bytes: Vec<u8> = (0..len).map(|n| (n + round) as u8).collect();
            let sent = cable.write_out(host, id, &bytes, more, *at_once);
            if shut {
                cable.shutdown(host, id);
                cable.flush();
            }
            cable.run(Duration::from_micros(wait));
            let mut out = [0; 20_000];
            let read =
                if reads { cable.recv(1 - host, ids[1 - host][which], &mut out) } else { Ok(0) };
            cable.flush();
            (sent, read, cable.seen, cable.sent, cable.hosts[host].tcp.deadline())
        });
        assert_eq!(happened[0], happened[1], "seed {seed}, round {round}, of {len} bytes");
    }
    pairs[1].cable.at_once
}

/// Closes both ends after short exchanges; how often a FIN left at once.
fn closes_alike(seed: u64, v6: bool) -> u64 {
    let mut random = PublicRandom::new(seed);
    let settings = TcpSettings { nodelay: random.below(2) == 0, ..TcpSettings::default() };
    let mut pairs = [false, true].map(|at_once| Pair::new(seed, v6, &settings, at_once));
    let loss = random.below(2) as f64 * 0.05;
    for pair in &mut pairs {
        let delay = Duration::from_micros(500);
        pair.cable.weather = Weather { delay, loss, ..Weather::default() };
    }
    let first = random.below(2) as usize;
    for which in 0..2 {
        // Nothing, a message that is acknowledged, one in flight, or one held back.
        let (len, wait) = (random.below(4) * 700, [0, 400, 50_000][random.below(3) as usize]);
        let (reads, pause) = (random.below(4) != 0, [0, 600, 9_000][random.below(3) as usize]);
        let happened = pairs.each_mut().map(|Pair { cable, at_once, ids }| {
            let sent =
                cable.write_out(first, ids[first][which], &vec![7; len as usize], false, true);
            cable.run(Duration::from_micros(wait));
            for host in [first, 1 - first] {
                let id = ids[host][which];
                if reads {
                    let _ = cable.recv(host, id, &mut [0; 4000]);
                    cable.flush();
                }
                cable.close_out(host, id, *at_once);
                cable.run(Duration::from_micros(pause));
            }
            let open = cable.hosts.each_ref().map(|host| (host.tcp.len(), host.tcp.deadline()));
            (sent, cable.seen, cable.sent, open)
        });
        assert_eq!(happened[0], happened[1], "seed {seed}, connection {which}");
    }
    let ended = pairs.each_mut().map(|Pair { cable, .. }| {
        cable.run(Duration::from_secs(200));
        (cable.seen, cable.hosts.each_ref().map(|host| host.tcp.len()))
    });
    assert_eq!(ended[0], ended[1], "seed {seed}");
    assert_eq!(ended[0].1, [0, 0], "seed {seed}: all have ended");
    pairs[1].cable.at_once - pairs[0].cable.at_once
}

#[test]
fn a_fin_that_leaves_at_once_is_what_the_lists_would_send_in_both_families() {
    let at_once: u64 =
        (1..=40).flat_map(|seed| [false, true].map(|v6| closes_alike(seed, v6))).sum();
    assert!(at_once > 100, "only {at_once} left at once");
}

#[test]
fn a_write_that_leaves_at_once_sends_what_the_lists_would_in_both_families() {
    let at_once: u64 =
        (1..=20).flat_map(|seed| [false, true].map(|v6| writes_alike(seed, v6))).sum();
    assert!(at_once > 1000, "only {at_once} left at once");
}
