//! A link that loses one packet in a hundred in each direction, by a seed.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use floodwall_device::{FaultConfig, FaultRates};

use crate::bench::{Bench, ECHO_PORT};
use crate::command::{ip, run};
use crate::link::{Ends, Kind, NAME, ends};
use crate::namespace::{inside, set, tell};

/// Requests of each family.
const REQUESTS: u32 = 500;
/// Pings of each family, of which 2 in 100 get no answer: 20 on average, with a deviation of 4.4.
const PINGS: usize = 1000;
/// Six deviations either way.
const LOST_PINGS: std::ops::RangeInclusive<usize> = 1..=46;

fn lossy(loss: f64) -> Option<FaultConfig> {
    let rates = FaultRates { loss, ..FaultRates::default() };
    Some(FaultConfig { seed: 77, rx: rates, tx: rates })
}

/// Sends until answered; returns the number of attempts.
fn ask(socket: &UdpSocket, to: SocketAddr, number: u32) -> u32 {
    let (request, mut room) = (number.to_be_bytes(), [0; 64]);
    for tries in 1..=30 {
        socket.send_to(&request, to).unwrap();
        // An answer to an earlier try may come now.
        while let Ok((len, from)) = socket.recv_from(&mut room) {
            assert_eq!((len, from), (4, to));
            if room[..len] == request {
                return tries;
            }
        }
    }
    panic!("{to} never answered request {number}");
}

fn impatient(ends: Ends) -> UdpSocket {
    let socket = UdpSocket::bind((ends.kernel, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    socket
}

#[test]
fn over_a_link_that_loses_one_percent_every_request_is_answered_in_the_end() {
    inside(|| {
        let Some(bench) = Bench::set_up(Kind::Tap, true, lossy(0.01)) else { return };
        for ends in ends() {
            let (socket, to) = (impatient(ends), SocketAddr::new(ends.ours, ECHO_PORT));
            let tries: u32 = (0..REQUESTS).map(|number| ask(&socket, to, number)).sum();
            tell(&format!("{tries} tries for {REQUESTS} requests to {}", ends.ours));
            let words = format!("-n -q -i 0.001 -c {PINGS} -W 5 {}", ends.ours);
            let Some(said) = run("ping", &words, b"") else { continue };
            let received = said
                .text
                .split(" received")
                .next()
                .and_then(|before| before.rsplit(' ').next()?.parse::<usize>().ok());
            let lost = PINGS - received.expect("a count");
            tell(&format!("{lost} of {PINGS} pings to {} lost", ends.ours));
            assert!(LOST_PINGS.contains(&lost), "{}", said.text);
        }
        let end = bench.running.stop();
        let ended = end.outcome.expect("it was asked to end");
        let stats = ended.ports[0].stats;
        assert!(stats.rx_injected > 0 && stats.tx_injected > 0);
        assert_eq!((stats.rx_lost(), stats.tx_lost()), (stats.rx_injected, stats.tx_injected));
        assert_eq!(end.facts.lost(), 0);
    });
}

#[test]
fn over_a_link_that_loses_a_third_both_sides_still_find_each_other() {
    inside(|| {
        let Some(bench) = Bench::set_up(Kind::Tap, true, lossy(0.33)) else { return };
        for family in ["ipv4", "ipv6"] {
            set(&format!("net/{family}/neigh/{NAME}/retrans_time_ms"), "50");
        }
        for ends in ends() {
            let (socket, to) = (impatient(ends), SocketAddr::new(ends.ours, ECHO_PORT));
            for number in 0..20 {
                assert!(ip(&format!("neigh flush dev {NAME}")));
                ask(&socket, to, number);
            }
        }
        bench.running.stop();
    });
}
