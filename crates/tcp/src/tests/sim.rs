//! Seeded simulations: loss, reordering, duplication, corruption, changing delays, tiny windows,
//! and an end that restarts. Every stream arrives exactly, and no connection stalls.
//!
//! `FLOODWALL_SEED=n` runs one simulation, which a failure prints; `FLOODWALL_DEEP=1` runs a
//! thousand.

use core::time::Duration;

use floodwall_base::PublicRandom;

use super::cable::{Cable, FRAMES, Host, Weather, small};
use crate::{ConnectionId, Keepalive, ListenerId, RecvError, SendError, TcpSettings};

/// Time limit in virtual time: beyond it, a connection has stalled.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Time in which an end that restarted is detected, where we have no data to send.
const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(20), interval: Duration::from_secs(5), count: 9 };

/// One end's application: writes its stream, reads the other's, closes.
struct App {
    id: Option<ConnectionId>,
    stream: Vec<u8>,
    written: usize,
    read: Vec<u8>,
    ended: bool,
    shut: bool,
    failed: Option<String>,
}

impl App {
    fn new(chance: &mut PublicRandom, id: Option<ConnectionId>) -> Self {
        let len = match chance.below(4) {
            0 => chance.below(4),
            1 => chance.below(3000),
            _ => chance.below(60_000),
        };
        let stream = (0..len).map(|_| chance.next_u64() as u8).collect();
        Self { id, stream, written: 0, read: vec![], ended: false, shut: false, failed: None }
    }

    fn act(&mut self, cable: &mut Cable, host: usize) {
        let Some(id) = self.id.filter(|_| self.failed.is_none()) else { return };
        let piece = 1 + cable.chance.below(5000) as usize;
        let now = cable.now;
        if !self.shut {
            let rest = &self.stream[self.written..];
            if rest.is_empty() {
                self.shut = true;
                cable.shutdown(host, id);
            } else {
                let (tcp, mut lend) = cable.hosts[host].lend(now);
                match tcp.send(&mut lend, id, &rest[..rest.len().min(piece)]) {
                    Ok(n) => self.written += n,
                    Err(SendError::WouldBlock) => {}
                    Err(error) => return self.failed = Some(error.to_string()),
                }
            }
        }
        let mut buffer = vec![0; 1 + cable.chance.below(8000) as usize];
        match cable.recv(host, id, &mut buffer) {
            Ok(0) => self.ended = true,
            Ok(n) => self.read.extend_from_slice(&buffer[..n]),
            Err(RecvError::WouldBlock) => {}
            Err(error) => self.failed = Some(error.to_string()),
        }
    }

    fn is_done(&self) -> bool {
        self.shut && self.ended
    }
}

fn weather(chance: &mut PublicRandom) -> Weather {
    let bad = chance.below(3) as f64 * 0.04;
    Weather {
        delay: Duration::from_micros(chance.below(60_000)),
        jitter: Duration::from_micros(chance.below(2) * chance.below(20_000)),
        loss: bad,
        twice: bad / 2.0,
        spoil: bad / 4.0,
        rate: None,
    }
}

fn settings(chance: &mut PublicRandom) -> TcpSettings {
    let receive_bytes = [1000, 5000, 70_000, 1 << 20][chance.below(4) as usize];
    let send_bytes = [3000, 20_000, 200_000][chance.below(3) as usize];
    let nodelay = chance.chance(0.5);
    let keepalive = Some(KEEPALIVE);
    TcpSettings { receive_bytes, send_bytes, nodelay, keepalive, ..TcpSettings::default() }
}

/// A cable, a listener, and a connection after the other.
struct World {
    seed: u64,
    chance: PublicRandom,
    cable: Cable,
    listener: ListenerId,
    /// The client's end of the connection, then the server's.
    apps: [App; 2],
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = PublicRandom::new(seed ^ 0x5eed);
        let mut cable = Cable::new(seed);
        cable.weather = weather(&mut chance);
        let references = Self::references(seed);
        cable.hosts = cable.hosts.map(|host| host.with_references(references));
        let of_server = settings(&mut chance);
        let listener = cable.listen(1, 80, &of_server);
        let apps = [0; 2].map(|_| App::new(&mut chance, None));
        let mut world = Self { seed, chance, cable, listener, apps };
        world.connect();
        world
    }

    /// Pool size of each host: large, small, or zero.
    const fn references(seed: u64) -> usize {
        match seed % 4 {
            2 => 8,
            3 => 0,
            _ => 8192,
        }
    }

    /// The next connection, with streams of its own.
    fn connect(&mut self) {
        let settings = settings(&mut self.chance);
        let client = self.cable.connect(self.seed & 1 == 1, 80, &settings);
        self.apps = [Some(client), None].map(|id| App::new(&mut self.chance, id));
    }

    /// Advances time a little, and runs the applications.
    fn turn(&mut self) {
        let slice = Duration::from_micros(100 + self.chance.below(20_000));
        self.cable.run(slice);
        if self.chance.chance(0.002) {
            self.cable.weather = weather(&mut self.chance);
        }
        self.accept();
        for (host, app) in self.apps.iter_mut().enumerate() {
            app.act(&mut self.cable, host);
        }
    }

    /// The server's end. Connections left over from a client that has restarted are released.
    fn accept(&mut self) {
        let Self { cable, apps, listener, .. } = self;
        while apps[1].id.is_none()
            && let Some(id) = cable.accept(1, *listener)
        {
            let client = apps[0].id.and_then(|client| cable.hosts[0].tcp.ends(client).ok());
            let (_, remote) = cable.hosts[1].tcp.ends(id).expect("it was accepted just now");
            if client.is_none_or(|(local, _)| local == remote) {
                apps[1].id = Some(id);
            } else {
                cable.close(1, id);
            }
        }
    }

    fn tell(&self) -> String {
        let seen = |a: &App| (a.written, a.stream.len(), a.read.len(), a.shut, a.ended);
        let [client, server] = &self.apps;
        format!("seed {}: {:?} {:?}", self.seed, seen(client), seen(server))
    }

    /// Both streams arrive exactly.
    fn finish(&mut self) {
        let limit = self.cable.now + PATIENCE;
        while !self.apps.iter().all(App::is_done) {
            self.turn();
            for (host, app) in self.apps.iter().enumerate() {
                assert!(app.failed.is_none(), "{}: host {host}: {:?}", self.tell(), app.failed);
            }
            assert!(self.cable.now < limit, "stuck: {}", self.tell());
        }
        let [a, b] = &self.apps;
        assert!(a.read == b.stream && b.read == a.stream, "streams differ: {}", self.tell());
        for (host, app) in self.apps.iter().enumerate() {
            self.cable.close(host, app.id.unwrap());
        }
    }

    /// One end restarts without its state. The other has read a prefix of what was sent, and
    /// detects the restart; then they connect again.
    fn restart(&mut self) {
        for _ in 0..self.chance.below(100) {
            self.turn();
        }
        let (lost, left) = if self.chance.chance(0.5) { (0, 1) } else { (1, 0) };
        let (seed, now) = (self.seed + 1_000_000, self.cable.now);
        let host = Host::new(seed, lost as u8 + 1, small(), now);
        self.cable.hosts[lost] = host.with_references(Self::references(self.seed));
        if lost == 1 {
            let of_server = settings(&mut self.chance);
            self.listener = self.cable.listen(1, 80, &of_server);
        }
        self.apps[lost].id = None;
        let limit = now + PATIENCE;
        let is_over = |app: &App| app.failed.is_some() || app.is_done();
        // A server may never have received the SYN.
        let unheard = now + Duration::from_secs(200);
        while !is_over(&self.apps[left])
            && (self.apps[left].id.is_some() || self.cable.now < unheard)
        {
            self.turn();
            assert!(self.cable.now < limit, "{left} does not detect the restart: {}", self.tell());
        }
        let (sent, read) = (&self.apps[lost].stream, &self.apps[left].read);
        assert!(sent.starts_with(read), "what came was not sent: {}", self.tell());
        // A SYN sent before the restart may have opened a connection to the new instance.
        for (host, app) in self.apps.iter().enumerate() {
            if let Some(id) = app.id {
                self.cable.close(host, id);
            }
        }
        self.connect();
    }

    /// No state is left of any connection.
    fn end(&mut self) {
        for _ in 0..2 {
            self.cable.run(Duration::from_secs(400));
            // Handshakes completed after their client had restarted, or by a late copy of the
            // completing ACK.
            while let Some(id) = self.cable.accept(1, self.listener) {
                self.cable.close(1, id);
            }
        }
        for (host, it) in self.cable.hosts.iter().enumerate() {
            let seed = self.seed;
            assert!(it.tcp.is_empty(), "seed {seed}: a connection is left at host {host}");
            let free = it.pool.available();
            assert_eq!(
                (free.frames, free.small, free.references),
                (FRAMES, 4096, Self::references(seed)),
                "seed {seed}"
            );
        }
    }
}

/// Runs one simulation; returns a trace, so that a replay can be compared.
fn world(seed: u64) -> (u64, u64, u64) {
    let mut world = World::new(seed);
    if world.chance.below(4) == 0 {
        world.restart();
    }
    world.finish();
    world.end();
    let Cable { sent, now, .. } = &world.cable;
    (sent[0], sent[1], now.as_nanos())
}

/// The seeds to run: few, a thousand, or one.
fn seeds() -> core::ops::Range<u64> {
    let one = std::env::var("FLOODWALL_SEED").ok().and_then(|seed| seed.parse().ok());
    match one {
        Some(seed) => seed..seed + 1,
        None if std::env::var_os("FLOODWALL_DEEP").is_some() => 0..1000,
        None => 0..60,
    }
}

#[test]
fn every_stream_arrives_exactly_and_nothing_is_stuck_in_seeded_worlds() {
    seeds().for_each(|seed| {
        world(seed);
    });
}

#[test]
fn a_world_replays_exactly() {
    assert_eq!(world(7), world(7));
    assert_ne!(world(7), world(8));
}

#[test]
fn a_side_that_starts_anew_resets_what_it_does_not_know() {
    for seed in 0..20 {
        let mut cable = Cable::new(seed);
        let settings = TcpSettings::default();
        let listener = cable.listen(1, 80, &settings);
        let client = cable.connect(seed & 1 == 1, 80, &settings);
        cable.run(Duration::from_millis(100));
        assert!(cable.accept(1, listener).is_some());
        cable.hosts[1] = Host::new(seed + 1000, 2, small(), cable.now);
        cable.write(0, client, b"are you there?");
        cable.run(Duration::from_secs(2));
        let read = cable.recv(0, client, &mut [0; 8]);
        assert_eq!(read, Err(RecvError::Connection(crate::ConnectionError::Reset)));
        // The error is reported once; then reads return end of stream.
        assert_eq!(cable.recv(0, client, &mut [0; 8]), Ok(0));
        cable.close(0, client);
        assert!(cable.hosts[0].tcp.is_empty());
    }
}
