//! Seeded worlds: loss, reordering, repetition, corruption, changing delays, tiny windows, and one
//! side that starts anew. Every stream arrives exactly, and nothing is stuck.

use core::time::Duration;

use floodwall_base::PublicRandom;

use super::cable::{Cable, FRAMES, Host, Weather, small};
use crate::{ConnectionId, RecvError, SendError, Settings};

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
        let Some(id) = self.id else { return };
        let piece = 1 + cable.chance.below(5000) as usize;
        let now = cable.now;
        if !self.shut && self.failed.is_none() {
            let rest = &self.stream[self.written..];
            if rest.is_empty() {
                self.shut = true;
                cable.shutdown(host, id);
            } else {
                let (tcp, mut lend) = cable.hosts[host].lend(now);
                match tcp.send(&mut lend, id, &rest[..rest.len().min(piece)]) {
                    Ok(n) => self.written += n,
                    Err(SendError::WouldBlock) => {}
                    Err(error) => self.failed = Some(error.to_string()),
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

fn settings(chance: &mut PublicRandom) -> Settings {
    let receive_bytes = [1000, 5000, 70_000, 1 << 20][chance.below(4) as usize];
    let send_bytes = [3000, 20_000, 200_000][chance.below(3) as usize];
    Settings { receive_bytes, send_bytes, nodelay: chance.chance(0.5), ..Settings::default() }
}

/// One world; what it saw, so that a replay can be compared.
fn world(seed: u64) -> (u64, u64, u64) {
    let mut chance = PublicRandom::new(seed ^ 0x5eed);
    let mut cable = Cable::new(seed);
    cable.weather = weather(&mut chance);
    let of_server = settings(&mut chance);
    let listener = cable.listen(1, 80, &of_server);
    let of_client = settings(&mut chance);
    let client = cable.connect(seed & 1 == 1, 80, &of_client);
    let mut apps = [App::new(&mut chance, Some(client)), App::new(&mut chance, None)];
    let limit = cable.now + Duration::from_secs(3600);
    while !apps.iter().all(App::is_done) {
        let slice = Duration::from_micros(100 + chance.below(20_000));
        cable.run(slice);
        if chance.chance(0.002) {
            cable.weather = weather(&mut chance);
        }
        if apps[1].id.is_none() {
            apps[1].id = cable.accept(1, listener);
        }
        for (host, app) in apps.iter_mut().enumerate() {
            app.act(&mut cable, host);
            assert!(app.failed.is_none(), "seed {seed}: host {host}: {:?}", app.failed);
        }
        assert!(
            cable.now < limit,
            "seed {seed}: stuck: {:?}",
            apps.map(|a| (a.written, a.stream.len(), a.read.len(), a.shut, a.ended))
        );
    }
    let [a, b] = &apps;
    assert!(a.read == b.stream && b.read == a.stream, "seed {seed}: streams differ");
    for (host, app) in apps.iter().enumerate() {
        cable.close(host, app.id.unwrap());
    }
    cable.run(Duration::from_secs(400));
    for (host, it) in cable.hosts.iter().enumerate() {
        assert!(it.tcp.is_empty(), "seed {seed}: a connection is left at host {host}");
        let free = it.pool.available();
        assert_eq!((free.frames, free.small, free.references), (FRAMES, 4096, 8192), "seed {seed}");
    }
    (cable.sent[0], cable.sent[1], cable.now.as_nanos())
}

fn seeds(usual: u64, deep: u64) -> u64 {
    if std::env::var_os("FLOODWALL_DEEP").is_some() { deep } else { usual }
}

#[test]
fn every_stream_arrives_exactly_and_nothing_is_stuck_in_seeded_worlds() {
    (0..seeds(120, 5000)).for_each(|seed| {
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
        let settings = Settings::default();
        let listener = cable.listen(1, 80, &settings);
        let client = cable.connect(seed & 1 == 1, 80, &settings);
        cable.run(Duration::from_millis(100));
        assert!(cable.accept(1, listener).is_some());
        cable.hosts[1] = Host::new(seed + 1000, 2, small(), cable.now);
        cable.write(0, client, b"are you there?");
        cable.run(Duration::from_secs(2));
        let read = cable.recv(0, client, &mut [0; 8]);
        assert_eq!(read, Err(RecvError::Connection(crate::ConnectionError::Reset)));
        // The error is given once; then it is the end.
        assert_eq!(cable.recv(0, client, &mut [0; 8]), Ok(0));
        cable.close(0, client);
        assert!(cable.hosts[0].tcp.is_empty());
    }
}
