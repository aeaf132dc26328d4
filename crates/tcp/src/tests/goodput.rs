//! Goodput over a link of 50 ms: without losses nearly the link's capacity, at any rate, by windows
//! that grow; with losses compared with a stated model.
//!
//! The model: without loss nine tenths of the link's capacity beside the headers; with a share p of
//! segments lost at random, half of MSS/RTT * sqrt(3/(2p)), which is the mean of Reno's sawtooth
//! (Mathis 1997), and a lower bound of CUBIC in the long run (RFC 9438 section 4.3): half, because
//! the model ignores timeouts and short transfers. The queue holds one more round trip.

use core::time::Duration;

use floodwall_base::{Instant, limits};

use super::cable::{Cable, FRAMES, Weather};
use crate::{Algorithm, ConnectionId, TcpSettings};

const TRIP: Duration = Duration::from_millis(50);
const FIRST: u32 = limits::TCP_BUFFER_BYTES_FIRST as u32;

/// Hosts and the link between them; all flows go in one direction.
struct Link {
    /// Bits per second.
    rate: u64,
    v6: bool,
    frames: usize,
    settings: TcpSettings,
}

impl Default for Link {
    fn default() -> Self {
        Self { rate: 100_000_000, v6: false, frames: FRAMES, settings: TcpSettings::default() }
    }
}

/// Open flows: clients send, servers read.
struct Flows {
    cable: Cable,
    clients: Vec<ConnectionId>,
    servers: Vec<ConnectionId>,
    piece: Vec<u8>,
    buffer: Vec<u8>,
}

impl Flows {
    fn open(link: &Link, count: usize) -> Self {
        let mut cable = Cable::with_frames(42, Instant::from_nanos(1_000_000_000), link.frames);
        let rate = Some((link.rate, TRIP));
        cable.weather = Weather { delay: TRIP / 2, rate, ..Weather::default() };
        let listener = cable.listen(1, 80, &link.settings);
        let clients: Vec<_> =
            (0..count).map(|_| cable.connect(link.v6, 80, &link.settings)).collect();
        cable.run(TRIP * 4);
        let servers = (0..count).map(|_| cable.accept(1, listener).expect("it is open")).collect();
        Self { cable, clients, servers, piece: vec![7; 64 << 10], buffer: vec![0; 1 << 20] }
    }

    /// Bits per second that each server reads, and the size of one read.
    fn read(&mut self, time: Duration, (every, most): (Duration, usize)) -> Vec<f64> {
        let (start, mut read) = (self.cable.now, vec![0_u64; self.servers.len()]);
        while self.cable.now - start < time {
            for client in &self.clients {
                while self.cable.write(0, *client, &self.piece) == self.piece.len() {}
            }
            self.cable.run(every);
            for (server, total) in self.servers.iter().zip(&mut read) {
                let mut left = most;
                while left > 0 {
                    let room = left.min(self.buffer.len());
                    let Ok(n) = self.cable.recv(1, *server, &mut self.buffer[..room]) else {
                        break;
                    };
                    (*total, left) = (*total + n as u64, left - n);
                }
            }
        }
        read.into_iter().map(|bytes| bytes as f64 * 8.0 / time.as_secs_f64()).collect()
    }

    /// As fast as data arrives.
    fn goodput(&mut self, time: Duration) -> Vec<f64> {
        self.read(time, (Duration::from_millis(2), usize::MAX))
    }

    fn receive_limit(&self) -> u32 {
        let Cable { hosts, now, .. } = &self.cable;
        hosts[1].tcp.info(self.servers[0], *now).expect("it is open").receive_limit
    }

    fn send_limit(&self) -> u32 {
        let Cable { hosts, now, .. } = &self.cable;
        hosts[0].tcp.info(self.clients[0], *now).expect("it is open").send_limit
    }
}

fn is_deep() -> bool {
    std::env::var_os("FLOODWALL_DEEP").is_some()
}

#[test]
fn windows_grow_until_one_flow_fills_the_link() {
    // The default sizes suffice with the default pool; ten times the rate needs larger sizes and a
    // larger pool: 6 MB in frames that are two thirds full, of which one flow may have a twelfth.
    // CUBIC needs twenty seconds for that by design, which is not tested here.
    let larger =
        TcpSettings { receive_bytes: 16 << 20, send_bytes: 16 << 20, ..TcpSettings::default() };
    let larger = TcpSettings { algorithm: Algorithm::Reno, ..larger };
    let links = [
        Link::default(),
        Link { v6: true, ..Link::default() },
        Link {
            settings: TcpSettings { timestamps: false, ..TcpSettings::default() },
            ..Link::default()
        },
        Link { rate: 1_000_000_000, frames: 65_536, settings: larger, ..Link::default() },
    ];
    for link in links {
        let mut flows = Flows::open(&link, 1);
        let seconds = if is_deep() { 20 } else { 1 };
        flows.goodput(Duration::from_millis(1500));
        let got = flows.goodput(Duration::from_secs(seconds))[0];
        let (window, buffer) = (flows.receive_limit(), flows.send_limit());
        println!("{} bit/s: {got:.0}, window {window}, buffer {buffer}", link.rate);
        assert!(got >= 0.9 * link.rate as f64, "{} bit/s: {got:.0}", link.rate);
        assert!(window > FIRST && window <= link.settings.receive_bytes, "{window}");
        assert!(buffer > FIRST && buffer <= link.settings.send_bytes, "{buffer}");
    }
}

#[test]
fn a_slow_reader_s_window_stays_as_it_began() {
    let mut flows = Flows::open(&Link::default(), 1);
    let got = flows.read(Duration::from_secs(10), (Duration::from_millis(50), 10_000))[0];
    assert!((1_000_000.0..2_000_000.0).contains(&got), "{got}");
    assert_eq!(flows.receive_limit(), FIRST);
    flows.read(Duration::from_secs(10), (Duration::from_millis(50), 0));
    assert_eq!(flows.receive_limit(), FIRST);
}

#[test]
fn sizes_that_a_program_chose_stay() {
    let (receive_bytes, send_bytes) = (1 << 20, 400_000);
    let chosen = TcpSettings { receive_bytes, send_bytes, ..TcpSettings::default() };
    let settings = TcpSettings { receive_tuned: false, send_tuned: false, ..chosen };
    let mut flows = Flows::open(&Link { settings, ..Link::default() }, 1);
    assert_eq!((flows.receive_limit(), flows.send_limit()), (receive_bytes, send_bytes));
    flows.goodput(Duration::from_secs(2));
    assert_eq!((flows.receive_limit(), flows.send_limit()), (receive_bytes, send_bytes));
}

#[test]
fn losses_cost_no_more_than_the_model_says() {
    let rate = Link::default().rate as f64;
    let of_model = |p: f64| 0.5 * 1448.0 * 8.0 / TRIP.as_secs_f64() * (1.5 / p).sqrt();
    for (loss, seconds, least) in
        [(0.0, 4, 0.85 * rate), (0.001, 10, of_model(0.001)), (0.01, 20, of_model(0.01))]
    {
        let seconds = if is_deep() { 60 } else { seconds };
        let mut flows = Flows::open(&Link::default(), 1);
        flows.cable.weather.loss = loss;
        let got = flows.goodput(Duration::from_secs(seconds))[0];
        println!("loss {loss}: {:.1} Mbit/s, model {:.1}", got / 1e6, least / 1e6);
        assert!(got >= least, "loss {loss}: {got:.0} bit/s, at least {least:.0}");
    }
}

#[test]
fn flows_that_share_a_link_share_it_fairly() {
    if !is_deep() {
        return;
    }
    let got = Flows::open(&Link::default(), 10).goodput(Duration::from_secs(60));
    let (sum, squares) = got.iter().fold((0.0, 0.0), |(sum, sq), it| (sum + it, sq + it * it));
    let jain = sum * sum / (squares * 10.0);
    println!("ten flows: {:.1} Mbit/s, Jain's index {jain:.3}", sum / 1e6);
    assert!(jain >= 0.85 && sum >= 0.85 * Link::default().rate as f64, "{got:?}");
}
