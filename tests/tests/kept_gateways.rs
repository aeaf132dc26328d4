//! Gateways that a host keeps: resolved before the first packet, fresh for as long as they answer,
//! and found while a flood takes most answers; both families, in virtual time.

use std::net::IpAddr;
use std::time::Duration;

use floodwall_base::{Family, IfIndex, Instant};
use floodwall_ip::NeighborState;
use floodwall_stack::StackConfig;
use floodwall_tests::bytes_of;
use floodwall_tests::craft::{FAMILIES, PEER, addr, neighbor_answer};
use floodwall_tests::{Rig, ethernet_config};

const STEP: Duration = Duration::from_millis(5);

/// A host with a gateway of each family on its link.
fn config(keep_gateways: bool) -> StackConfig {
    let mut config = StackConfig { keep_gateways, ..ethernet_config(1) };
    config.interfaces[0].gateways = FAMILIES.map(|family| addr(family, PEER)).to_vec();
    config
}

/// Whether a frame asks for the gateway's link address.
fn asks(family: Family, frame: &[u8]) -> bool {
    match addr(family, PEER) {
        IpAddr::V4(gateway) => {
            frame[12..14] == [0x08, 0x06]
                && frame[20..22] == [0, 1]
                && frame[38..42] == gateway.octets()
        }
        IpAddr::V6(gateway) => {
            frame[12..14] == [0x86, 0xdd]
                && frame[20] == 58
                && frame[54] == 135
                && frame[62..78] == gateway.octets()
        }
    }
}

fn state(rig: &Rig, family: Family) -> Option<NeighborState> {
    let iface = IfIndex(1);
    match addr(family, PEER) {
        IpAddr::V4(addr) => rig.stack.neighbors_v4().neighbor(iface, addr).map(|n| n.state),
        IpAddr::V6(addr) => rig.stack.neighbors_v6().neighbor(iface, addr).map(|n| n.state),
    }
}

/// Runs for a time; the gateway's answer to the solicitation numbered `n` of a family arrives where
/// `arrives` says so. Returns when each family was solicited; `look` sees each step.
fn run(
    rig: &mut Rig,
    time: Duration,
    arrives: impl Fn(usize) -> bool,
    mut look: impl FnMut(&Rig),
) -> [Vec<Instant>; 2] {
    let (mut asked, until) = ([Vec::new(), Vec::new()], rig.now + time);
    while rig.now < until {
        let departed = rig.run_for(STEP);
        for (family, asked) in FAMILIES.into_iter().zip(&mut asked) {
            let solicits = departed.iter().filter(|packet| asks(family, &bytes_of(packet)));
            for _ in 0..solicits.count() {
                asked.push(rig.now);
                if arrives(asked.len() - 1) {
                    rig.frame(&neighbor_answer(family, PEER));
                }
            }
        }
        look(rig);
    }
    asked
}

#[test]
fn a_gateway_is_resolved_before_the_first_packet_and_is_known_for_as_long_as_it_answers() {
    let mut rig = Rig::new(&config(true));
    let first = run(&mut rig, Duration::from_millis(20), |_| true, |_| {});
    assert_eq!(first.map(|asked| asked.len()), [1, 1], "at the start");
    let asked = run(
        &mut rig,
        Duration::from_secs(600),
        |_| true,
        |rig| {
            for family in FAMILIES {
                let state = state(rig, family).unwrap();
                assert!(state.is_resolved(), "{family:?}: {state:?}");
            }
        },
    );
    for (family, asked) in FAMILIES.into_iter().zip(asked) {
        assert!((10..=45).contains(&asked.len()), "{family:?}: {} in ten minutes", asked.len());
    }
    assert!(rig.conservation().holds());
}

#[test]
fn without_that_setting_nothing_is_solicited_before_there_is_a_packet() {
    let mut rig = Rig::new(&config(false));
    let asked = run(&mut rig, Duration::from_secs(60), |_| true, |_| {});
    assert_eq!(asked.map(|asked| asked.len()), [0, 0]);
}

#[test]
fn a_gateway_is_found_within_a_second_where_a_flood_takes_five_answers_of_six() {
    let mut rig = Rig::new(&config(true));
    run(&mut rig, Duration::from_secs(1), |n| n % 6 == 5, |_| {});
    for family in FAMILIES {
        assert_eq!(state(&rig, family), Some(NeighborState::Reachable), "{family:?}");
    }
    // And stays known, where probes are lost as well.
    run(
        &mut rig,
        Duration::from_secs(600),
        |n| n % 6 == 5,
        |rig| {
            for family in FAMILIES {
                let state = state(rig, family).unwrap();
                assert!(state.is_resolved(), "{family:?}: {state:?}");
            }
        },
    );
}

#[test]
fn a_gateway_that_never_answers_is_solicited_at_a_bounded_rate_and_found_once_it_is_there() {
    let mut rig = Rig::new(&config(true));
    let asked = run(&mut rig, Duration::from_secs(120), |_| false, |_| {});
    for (family, asked) in FAMILIES.into_iter().zip(asked) {
        assert!((40..=90).contains(&asked.len()), "{family:?}: {} in two minutes", asked.len());
    }
    run(&mut rig, Duration::from_secs(15), |_| true, |_| {});
    for family in FAMILIES {
        assert_eq!(state(&rig, family), Some(NeighborState::Reachable), "{family:?}");
    }
}
