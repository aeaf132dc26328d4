//! How much gets through a link of 100 Mbit/s and 50 ms with losses, against a stated model.
//!
//! The model: without loss nine tenths of what the link carries beside its headers; with a share p
//! of segments lost at random, half of MSS/RTT * sqrt(3/(2p)), which is what Reno's saw gives
//! (Mathis 1997), and which CUBIC never falls short of for long (RFC 9438 section 4.3): half,
//! because timeouts and short runs are not in it. The queue holds one more round trip.

use core::time::Duration;

use super::cable::{Cable, Weather};
use crate::{ConnectionId, Settings};

const RATE: u64 = 100_000_000;
const TRIP: Duration = Duration::from_millis(50);

fn settings() -> Settings {
    Settings { receive_bytes: 4 << 20, send_bytes: 2 << 20, ..Settings::default() }
}

/// Bits a second that each of so many flows reads.
fn goodput(flows: usize, loss: f64, time: Duration) -> Vec<f64> {
    let mut cable = Cable::new(42);
    cable.weather = Weather { delay: TRIP / 2, rate: Some((RATE, TRIP)), ..Weather::default() };
    let listener = cable.listen(1, 80, &settings());
    let clients: Vec<ConnectionId> =
        (0..flows).map(|_| cable.connect(false, 80, &settings())).collect();
    cable.run(TRIP * 4);
    let servers: Vec<_> =
        (0..flows).map(|_| cable.accept(1, listener).expect("it is open")).collect();
    cable.weather.loss = loss;
    let (start, piece) = (cable.now, vec![7; 64 << 10]);
    let (mut buffer, mut read) = (vec![0; 1 << 20], vec![0_u64; flows]);
    while cable.now - start < time {
        for client in &clients {
            while cable.write(0, *client, &piece) == piece.len() {}
        }
        cable.run(Duration::from_millis(2));
        for (server, total) in servers.iter().zip(&mut read) {
            while let Ok(n) = cable.recv(1, *server, &mut buffer) {
                *total += n as u64;
            }
        }
    }
    read.into_iter().map(|bytes| bytes as f64 * 8.0 / time.as_secs_f64()).collect()
}

#[test]
fn losses_cost_no_more_than_the_model_says() {
    let deep = std::env::var_os("FLOODWALL_DEEP").is_some();
    let of_model = |p: f64| 0.5 * 1448.0 * 8.0 / TRIP.as_secs_f64() * (1.5 / p).sqrt();
    for (loss, seconds, least) in
        [(0.0, 4, 0.85 * RATE as f64), (0.001, 10, of_model(0.001)), (0.01, 20, of_model(0.01))]
    {
        let seconds = if deep { 60 } else { seconds };
        let got = goodput(1, loss, Duration::from_secs(seconds))[0];
        println!("loss {loss}: {:.1} Mbit/s, model {:.1}", got / 1e6, least / 1e6);
        assert!(got >= least, "loss {loss}: {got:.0} bit/s, at least {least:.0}");
    }
}

#[test]
fn flows_that_share_a_link_share_it_fairly() {
    if std::env::var_os("FLOODWALL_DEEP").is_none() {
        return;
    }
    let got = goodput(10, 0.0, Duration::from_secs(60));
    let (sum, squares) = got.iter().fold((0.0, 0.0), |(sum, sq), it| (sum + it, sq + it * it));
    let jain = sum * sum / (squares * 10.0);
    println!("ten flows: {:.1} Mbit/s, Jain's index {jain:.3}", sum / 1e6);
    assert!(jain >= 0.85 && sum >= 0.85 * RATE as f64, "{got:?}");
}
