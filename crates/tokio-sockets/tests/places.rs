//! Few real connections of one source prefix beside honest ones of another, at a program's
//! listener, with one worker and with two: those that stay idle, take their answer and never close,
//! or never acknowledge our FIN, shut no other prefix out, and the program is told which of its
//! connections were reset; those that take little of much, or send without end, at once or byte by
//! byte, slow no other prefix to a stop. `FLOODWALL_DEEP=1` adds four times the price, and each
//! family with one worker and with two.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use floodwall_base::MacAddr;
use floodwall_device::{Device, DeviceError, DeviceInfo, DeviceStats, MemoryWire, pair};
use floodwall_dispatch::WorkerConfig;
use floodwall_packet::{Burst, PacketList, Pool, PoolConfig};
use floodwall_tokio_sockets::{Network, TcpSocket, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

/// How long anything may take that must happen, on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// Places of each worker of the server, and for each of them connections of the attacker.
const PLACES: usize = 64;
const ATTACKS: usize = 200;
/// Bytes of a download.
const MUCH: usize = 400_000;
/// Exchanges and downloads beside an attack that goes on.
const EXCHANGES: usize = 50;
const DOWNLOADS: usize = 5;

/// What a connection of the attacker does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attack {
    /// It sends nothing (A3).
    Idles,
    /// It takes its answer, and never closes (A1).
    Takes,
    /// It never acknowledges our FIN; every other one has closed before (A2).
    Leaves,
    /// It takes a little of much, all the time (A4).
    Drips,
    /// It sends requests back to back (A5).
    Pipelines,
    /// It sends a request byte by byte (A6).
    Trickles,
}

impl Attack {
    /// How many connections go on with it, where these are few.
    const fn few(self) -> Option<usize> {
        match self {
            Self::Idles | Self::Takes | Self::Leaves => None,
            Self::Drips => Some(64),
            Self::Pipelines => Some(20),
            Self::Trickles => Some(50),
        }
    }

    /// A connection of an attack that needs many, and what it does once.
    async fn once(self, attackers: &Network, v6: bool, number: usize) -> Option<TcpStream> {
        let mut stream = connect(attackers, Link::Attackers, v6, 1).await.ok()?;
        let has_done = match self {
            Self::Takes => echoes(&mut stream, b"last.").await,
            Self::Leaves if number.is_multiple_of(2) => stream.write_all(b"last.").await.is_ok(),
            Self::Leaves => stream.shutdown().await.is_ok(),
            _ => true,
        };
        has_done.then_some(stream)
    }

    /// What a connection of an attack does that needs few, until it is reset.
    async fn go_on(self, mut stream: TcpStream) -> Option<()> {
        let mut room = [0; 2900];
        if self == Self::Drips {
            stream.write_all(b"much!").await.ok()?;
            loop {
                stream.read(&mut room).await.ok().filter(|n| *n > 0)?;
                sleep(Duration::from_millis(80)).await;
            }
        }
        let (mut reader, mut writer) = stream.split();
        let says: &[u8] = if self == Self::Trickles { b"x" } else { &[b'x'; 2000] };
        let send = async {
            while writer.write_all(says).await.is_ok() {
                yield_now().await;
            }
        };
        let receive = async {
            while reader.read(&mut room).await.is_ok_and(|n| n > 0) {
                yield_now().await;
            }
        };
        tokio::join!(send, receive);
        None
    }
}

/// The attackers' end of the wire. Where it is deaf no FIN arrives, so that their host never
/// acknowledges one.
struct AttackersEnd {
    wire: MemoryWire,
    is_deaf: bool,
}

/// Whether a frame is a TCP segment with FIN.
fn is_fin(frame: &[u8]) -> bool {
    let is_v6 = frame.get(12..14) == Some(&[0x86, 0xdd]);
    let (protocol, flags) = if is_v6 { (20, 67) } else { (23, 47) };
    frame.get(protocol) == Some(&6) && frame.get(flags).is_some_and(|flags| flags & 1 != 0)
}

impl Device for AttackersEnd {
    fn info(&self) -> &DeviceInfo {
        self.wire.info()
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        let before = burst.len();
        self.wire.receive(pool, burst)?;
        let is_lost = |frame: &[u8]| self.is_deaf && is_fin(frame);
        burst.sort_out(before, |packet| (!is_lost(packet.first())).then_some(packet));
        Ok(burst.len() - before)
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        self.wire.transmit(packets)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.wire.readiness()
    }

    fn pending(&self) -> bool {
        self.wire.pending()
    }

    fn stats(&self) -> DeviceStats {
        self.wire.stats()
    }
}

/// The honest hosts' link with the server, and the attackers': these have a host of their own, so
/// that what that lacks harms no honest one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    Honest,
    Attackers,
}

/// An address of host `number` of a prefix on a link.
fn address(link: Link, v6: bool, prefix: u16, number: u16) -> IpAddr {
    match (link, v6) {
        (Link::Honest, true) => IpAddr::from([0x2001, 0xdb8, prefix, 0, 0, 0, 0, number]),
        (Link::Honest, false) => IpAddr::from([198, 18, prefix as u8, number as u8]),
        (Link::Attackers, true) => IpAddr::from([0x2001, 0xdba, prefix, 0, 0, 0, 0, number]),
        (Link::Attackers, false) => IpAddr::from([198, 20, prefix as u8, number as u8]),
    }
}

/// A host `number` on some links, in several prefixes of each.
async fn host(
    wires: Vec<(Link, Box<dyn Device>)>,
    number: u16,
    connections: usize,
    workers: usize,
) -> Network {
    let mut builder = Network::builder();
    for (link, wire) in wires {
        let mac = MacAddr([2, 0, 0, 0, link as u8, number as u8]);
        builder = builder.attach(wire).mac(mac);
        for prefix in 0..4 {
            let [v4, v6] = [false, true].map(|v6| address(link, v6, prefix, number));
            builder = builder.address(&format!("{v4}/16")).address(&format!("{v6}/32"));
        }
    }
    builder
        .workers(workers)
        .memory(PoolConfig {
            small: 4096 * workers,
            frames: 4096 * workers,
            references: 8192 * workers,
            ..PoolConfig::default()
        })
        .send_memory(4096, 4096)
        .sockets_max(16)
        .connections_max(connections)
        // A memory wire has no descriptor to wake the worker.
        .worker(WorkerConfig { look_every: Duration::from_micros(200), ..WorkerConfig::default() })
        .stack(|config| config.duplicate_address_detection = false)
        .start()
        .await
        .unwrap()
}

async fn connect(
    network: &Network,
    link: Link,
    v6: bool,
    prefix: u16,
) -> std::io::Result<TcpStream> {
    let socket = if v6 { TcpSocket::new_v6(network) } else { TcpSocket::new_v4(network) }?;
    socket.bind(SocketAddr::new(address(link, v6, prefix, 1), 0))?;
    socket.connect(SocketAddr::new(address(link, v6, 0, 2), 4000)).await
}

/// Echoes, until it is told to end, or to send much; counts the connections that were reset to make
/// room.
async fn serve(mut stream: TcpStream, evicted: Arc<AtomicUsize>) {
    let mut buffer = [0; 2048];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) => return,
            Ok(n) if buffer[..n].contains(&b'!') => {
                let _ = stream.write_all(&vec![b'm'; MUCH]).await;
                return;
            }
            Ok(n) => {
                if stream.write_all(&buffer[..n]).await.is_err() || buffer[..n].contains(&b'.') {
                    return;
                }
                yield_now().await;
            }
            Err(error) => {
                let told = error.kind() == ErrorKind::ConnectionAborted;
                assert!(told || error.kind() == ErrorKind::ConnectionReset, "{error}");
                evicted.fetch_add(usize::from(told), Ordering::Relaxed);
                return;
            }
        }
    }
}

async fn echoes(stream: &mut TcpStream, says: &[u8; 5]) -> bool {
    let mut back = [0; 5];
    stream.write_all(says).await.is_ok() && stream.read_exact(&mut back).await.is_ok()
}

/// Bytes of a download by another prefix.
async fn download(clients: &Network, v6: bool) -> std::io::Result<usize> {
    let mut stream = connect(clients, Link::Honest, v6, 3).await?;
    stream.write_all(b"much!").await?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await?;
    Ok(all.len())
}

/// Of which family an attack is, against how many workers, and at how many times its price.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Scale {
    v6: bool,
    workers: usize,
    price: usize,
}

impl Scale {
    /// Both families, and one worker and two, at the price.
    const USUAL: [Self; 2] =
        [Self { v6: false, workers: 1, price: 1 }, Self { v6: true, workers: 2, price: 1 }];

    /// Those of a run.
    fn all() -> Vec<Self> {
        if std::env::var("FLOODWALL_DEEP").is_ok_and(|value| value == "1") {
            let both = |v6| [1, 2].map(|workers| (v6, workers));
            let scenes = [false, true].into_iter().flat_map(both);
            let at = |(v6, workers)| [1, 4].map(|price| Self { v6, workers, price });
            return scenes.flat_map(at).collect();
        }
        Self::USUAL.to_vec()
    }
}

/// A server, honest clients and a connection of theirs, attackers.
struct Scene {
    clients: Network,
    attackers: Network,
    _server: Network,
    old: TcpStream,
    evicted: Arc<AtomicUsize>,
    accepting: tokio::task::JoinHandle<()>,
    scale: Scale,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Scene {
    /// With a listener that evicts or does not.
    async fn set_up(scale: Scale, attack: Attack, evicts: bool) -> Self {
        let Scale { v6, workers, price } = scale;
        let places = if attack.few().is_some() { 4 * PLACES * price } else { PLACES };
        let ([here, its], [away, also_its]) = (pair(1024).into(), pair(1024).into());
        let clients = host(vec![(Link::Honest, Box::new(here))], 1, 1024, 1).await;
        let away = Box::new(AttackersEnd { wire: away, is_deaf: attack == Attack::Leaves });
        let attackers = host(vec![(Link::Attackers, away)], 1, 1024 * price, 1).await;
        let wires: Vec<(_, Box<dyn Device>)> =
            vec![(Link::Honest, Box::new(its)), (Link::Attackers, Box::new(also_its))];
        let server = host(wires, 2, places, workers).await;
        let any = if v6 { TcpSocket::new_v6(&server) } else { TcpSocket::new_v4(&server) }.unwrap();
        let unspecified = if v6 { "[::]:4000" } else { "0.0.0.0:4000" };
        any.bind(unspecified.parse().unwrap()).unwrap();
        if !evicts {
            any.adjust(|settings| settings.evict_idle_after = None);
        }
        let listener = any.listen(128).await.unwrap();
        let evicted = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&evicted);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&counts)));
            }
        });
        let mut old = connect(&clients, Link::Honest, v6, 2).await.unwrap();
        assert!(echoes(&mut old, b"hello").await);
        Self { clients, attackers, _server: server, old, evicted, accepting, scale }
    }

    async fn newcomer(&self) -> bool {
        let mut newcomer = connect(&self.clients, Link::Honest, self.scale.v6, 3).await.unwrap();
        echoes(&mut newcomer, b"hello").await
    }

    /// Attackers that take all places, and newcomers meanwhile.
    async fn beside_many(&mut self, attack: Attack) {
        let Scale { v6, workers, price } = self.scale;
        let what = format!("{attack:?}, {:?}", self.scale);
        let attacks = ATTACKS * workers * price;
        let (mut held, mut served) = (Vec::new(), 0);
        for n in 0..attacks {
            // What finds no place waits for one: the attacker does not.
            let attempt = timeout(Duration::from_millis(20), attack.once(&self.attackers, v6, n));
            held.extend(attempt.await.ok().flatten());
            if n % 10 == 0 {
                served += usize::from(self.newcomer().await);
                assert!(echoes(&mut self.old, b"hello").await, "{what}: an old one, beside {n}");
            }
        }
        assert_eq!(served, attacks / 10, "{what}: newcomers of another prefix");
        assert!(held.len() > PLACES * workers, "{what}: {} held", held.len());
        // No program knows those that it has closed.
        let told = self.evicted.load(Ordering::Relaxed);
        assert!(attack != Attack::Idles || told > 0, "{what}: the program is told");
    }

    /// Few attackers that go on, and newcomers, an old connection and downloads meanwhile.
    async fn beside_few(&mut self, attack: Attack, few: usize) {
        let Scale { v6, price, .. } = self.scale;
        let what = format!("{attack:?}, {:?}", self.scale);
        let mut attackers = JoinSet::new();
        for _ in 0..few * price {
            let stream = connect(&self.attackers, Link::Attackers, v6, 1).await.unwrap();
            stream.set_nodelay(true).unwrap();
            attackers.spawn(attack.go_on(stream));
        }
        for n in 0..EXCHANGES {
            assert!(self.newcomer().await, "{what}: newcomer {n}");
            assert!(echoes(&mut self.old, b"hello").await, "{what}: an old one, beside {n}");
        }
        for n in 0..DOWNLOADS {
            assert_eq!(download(&self.clients, v6).await.unwrap(), MUCH, "{what}: download {n}");
        }
        attackers.abort_all();
    }
}

async fn attack_beside_honest(scale: Scale, attack: Attack) {
    let mut scene = Scene::set_up(scale, attack, true).await;
    match attack.few() {
        Some(few) => scene.beside_few(attack, few).await,
        None => scene.beside_many(attack).await,
    }
}

fn block_on(scale: Scale, all: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let patience = PATIENCE * scale.price as u32;
    runtime.block_on(async { timeout(patience, all).await.unwrap() });
}

fn run(attack: Attack) {
    for scale in Scale::all() {
        block_on(scale, attack_beside_honest(scale, attack));
    }
}

#[test]
fn idle_connections_of_one_prefix_shut_no_other_one_out() {
    run(Attack::Idles);
}

#[test]
fn connections_that_are_never_closed_shut_no_other_prefix_out() {
    run(Attack::Takes);
}

#[test]
fn connections_that_never_acknowledge_our_fin_shut_no_other_prefix_out() {
    run(Attack::Leaves);
}

#[test]
fn readers_that_take_little_of_much_leave_memory_to_other_prefixes() {
    run(Attack::Drips);
}

#[test]
fn requests_back_to_back_leave_turns_to_other_prefixes() {
    run(Attack::Pipelines);
}

#[test]
fn requests_that_come_byte_by_byte_leave_turns_to_other_prefixes() {
    run(Attack::Trickles);
}

/// Without the mechanism the attack works: a listener that permits no eviction keeps its places
/// taken.
#[test]
fn without_eviction_idle_connections_shut_another_prefix_out() {
    for scale in Scale::USUAL {
        let Scale { v6, workers, .. } = scale;
        block_on(scale, async {
            let scene = Scene::set_up(scale, Attack::Idles, false).await;
            let mut held = Vec::new();
            for n in 0..ATTACKS * workers {
                let attempt = Attack::Idles.once(&scene.attackers, v6, n);
                held.extend(timeout(Duration::from_millis(5), attempt).await.ok().flatten());
            }
            // Its SYN was answered, perhaps; its request never is.
            let newcomer = timeout(Duration::from_millis(300), async {
                let mut newcomer = connect(&scene.clients, Link::Honest, v6, 3).await.ok()?;
                echoes(&mut newcomer, b"hello").await.then_some(())
            });
            let served = newcomer.await.ok().flatten();
            assert_eq!(served, None, "{scale:?}: {} held", held.len());
        });
    }
}
