//! A program that reads more slowly than one honest client sends, on a real stack in virtual time:
//! what its counts are explained as. The services of `run` read in the turn in which packets
//! arrive, so that none of them can be slow.

use std::net::SocketAddr;
use std::time::Duration;

use floodwall_base::{Counter, Family, Instant, Randomness, Units};
use floodwall_packet::{Burst, Engine, PacketList, Pool, PoolConfig, Round};
use floodwall_stack::{Stack, StackConfig, accounts_needed};
use floodwall_udp::SocketSettings;

use super::*;
use crate::listeners::Handshakes;
use crate::report::RunReport;

const SIM_STEP: Duration = Duration::from_millis(1);
/// Datagrams that the client sends in a step.
const SENDS_PER_STEP: usize = 2;

fn report(stack: &Stack, now: Instant) -> RunReport {
    let stats = stack.stats();
    let count = |counter: &Counter| (counter.name().to_owned(), stats.counters.of(*counter));
    RunReport {
        uptime_ns: now.as_nanos(),
        counters: Counter::ALL.iter().map(count).collect(),
        drops: crate::report::drops(&stats),
        udp_sockets: Handshakes::of(stack).udp_sockets,
        ..RunReport::default()
    }
}

/// What is said of two seconds in which the program reads so often, in steps.
fn explained(server: SocketAddr, reads_every: u32) -> Vec<Explanation> {
    let config = StackConfig { udp_sockets_max: 4, ..StackConfig::default() };
    let accounts = accounts_needed(&config);
    let pool = Pool::new(&PoolConfig { accounts, ..PoolConfig::default() }).unwrap();
    let mut random = Randomness::from_number(5);
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut stack = Stack::new(&config, &mut random, now).unwrap();
    let (mut ends, mut before) = (None, RunReport::default());
    let mut room = [0; 2000];
    for step in 0..4000 {
        if step == 2000 {
            before = report(&stack, now);
        }
        let (mut arrived, mut departing) = (Burst::new(), PacketList::new());
        let mut round = Round {
            now,
            pool: &pool,
            random: &mut random,
            arrived: &mut arrived,
            departing: &mut departing,
            budget: Units(256),
            peers: None,
        };
        stack.round(&mut round);
        stack.work(&mut round);
        let mut sockets = stack.sockets(&mut round);
        let (client, service) = *ends.get_or_insert_with(|| {
            let mut bind = |port| {
                let settings = SocketSettings::new(Family::of(server.ip()));
                sockets.udp_bind(SocketAddr::new(server.ip(), port), settings).unwrap()
            };
            (bind(0), bind(server.port()))
        });
        for _ in 0..SENDS_PER_STEP {
            let _ = sockets.udp_send(client, Some(server), &[7; 1200]);
        }
        if step % reads_every == 0 {
            let reads = if reads_every == 1 { 2 * SENDS_PER_STEP } else { 1 };
            (0..reads).for_each(|_| _ = sockets.udp_recv(service, &mut room));
        }
        now += SIM_STEP;
    }
    let after = report(&stack, now);
    findings(&ReportDifference::new(&before, &after).unwrap())
}

#[test]
fn a_program_that_hardly_reads_is_slow_and_one_that_keeps_up_is_fine() {
    for server in ["127.0.0.1:4000", "[::1]:4000"] {
        let server = server.parse().unwrap();
        let slow = explained(server, 10);
        let first = slow.first().expect("a finding");
        let told = (first.kind, first.name.as_str(), first.place.clone());
        assert_eq!(
            told,
            (TroubleKind::SlowApplication, "UDP receive queue", server.to_string()),
            "{slow:?}"
        );
        assert!(first.rate > 1000.0 && slow.len() == 1, "{slow:?}");
        assert_eq!(explained(server, 1), [], "it keeps up");
    }
}
