//! What a program's host knows of itself, and its events.
#![expect(clippy::disallowed_methods, reason = "the router at the far end is a thread")]

use std::future::Future;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use floodwall_base::Family;
use floodwall_device::{Device, DeviceError, DeviceInfo, DeviceStats, MemoryWire, pair};
use floodwall_packet::{Burst, PacketList, Pool, PoolConfig};
use floodwall_tokio_sockets::{
    FloodEvent, FloodKind, HostChangeError, Network, NetworkEvent, TcpListener, TcpStream,
    UdpSocket,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

async fn soon<F: Future>(what: F) -> F::Output {
    timeout(Duration::from_secs(30), what).await.unwrap()
}

async fn two() -> (Network, Network) {
    let (here, there) = pair(1024);
    let a = Network::builder().attach(here).address("198.18.0.1/24").address("fd00::1/64").start();
    let b = Network::builder().attach(there).address("198.18.0.2/24").address("fd00::2/64").start();
    (soon(a).await.unwrap(), soon(b).await.unwrap())
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[tokio::test]
async fn addresses_routes_and_neighbours_of_both_families_are_shown_and_changed() {
    let (a, b) = soon(two()).await;
    assert_eq!(soon(a.online(Family::V4)).await.unwrap(), ip("198.18.0.1"));
    assert_eq!(soon(a.online(Family::V6)).await.unwrap(), ip("fd00::1"));
    assert!(a.dns_servers().await.unwrap().is_empty());
    for (address, prefix, gateway) in [
        ("198.18.7.1/24", "203.0.113.0/24", "198.18.7.9"),
        ("fd07::1/64", "2001:db8::/32", "fd07::9"),
    ] {
        let (addr, gateway) = (ip(address.split('/').next().unwrap()), ip(gateway));
        a.add_address(address, None).await.unwrap();
        let again = a.add_address(address, None).await.unwrap_err();
        assert!(matches!(again, HostChangeError::Address(_)), "{again}");
        let all = a.addresses().await.unwrap();
        let new = all.iter().find(|one| one.address.addr() == addr).unwrap();
        assert!(!new.learnt && new.valid_for.is_none());
        a.add_route(prefix, Some(gateway), None).await.unwrap();
        let routes = a.routes().await.unwrap();
        assert!(
            routes.iter().any(|r| r.prefix.to_string() == prefix && r.gateway == Some(gateway))
        );
        assert!(a.remove_route(prefix, Some(gateway)).await.unwrap());
        assert!(!a.remove_route(prefix, None).await.unwrap());
        a.remove_address(addr).await.unwrap();
        assert!(a.addresses().await.unwrap().iter().all(|one| one.address.addr() != addr));
    }
    let off_link = a.add_route("203.0.113.0/24", Some(ip("192.0.2.1")), None).await.unwrap_err();
    assert!(off_link.to_string().contains("no interface has a prefix"), "{off_link}");
    let mixed = a.add_route("203.0.113.0/24", Some(ip("fd00::2")), None).await.unwrap_err();
    assert!(mixed.to_string().contains("different families"), "{mixed}");
    assert!(a.add_address("198.18.0.1", None).await.is_err());
    assert!(a.add_address("198.18.9.1/24", Some("nowhere")).await.is_err());
    let server = UdpSocket::bind(&b, "[::]:7").await.unwrap();
    for (own, to) in [("0.0.0.0:0", "198.18.0.2:7"), ("[::]:0", "[fd00::2]:7")] {
        let client = UdpSocket::bind(&a, own).await.unwrap();
        client.send_to(b"?", to).await.unwrap();
        soon(server.recv_from(&mut [0; 8])).await.unwrap();
    }
    // Both are stations of this link.
    let both = [ip("198.18.0.2"), ip("fd00::2")];
    soon(async {
        loop {
            let known: Vec<_> = a.neighbours().await.unwrap().iter().map(|n| n.addr).collect();
            if both.iter().all(|addr| known.contains(addr)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

const ROUTER: &str = "fe80::99";
const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

/// A router advertisement (RFC 4861 section 4.2) with a prefix for addresses and a DNS server
/// (RFC 8106 section 5.1), as an Ethernet frame.
fn advertisement() -> Vec<u8> {
    let addr = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let mut icmp = vec![134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    icmp.extend([1, 1]);
    icmp.extend(ROUTER_MAC);
    // On this link, for addresses; valid for an hour.
    icmp.extend([3, 4, 64, 0xc0, 0, 0, 14, 16, 0, 0, 14, 16, 0, 0, 0, 0]);
    icmp.extend(addr("2001:db8:7::"));
    icmp.extend([25, 3, 0, 0, 0, 0, 14, 16]);
    icmp.extend(addr("2001:db8:7::53"));
    let length = u16::try_from(icmp.len()).unwrap().to_be_bytes();
    let ends = [addr(ROUTER), addr("ff02::1")].concat();
    let pseudo = [&ends[..], &[0, 0], &length, &[0, 0, 0, 58], &icmp].concat();
    let mut sum: u32 =
        pseudo.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    icmp[2..4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let link = [&[0x33, 0x33, 0, 0, 0, 1][..], &ROUTER_MAC, &[0x86, 0xdd]].concat();
    [&link[..], &[0x60, 0, 0, 0], &length, &[58, 255], &ends, &icmp].concat()
}

/// Nothing is configured: address, route and DNS server come from a router, and the program waits
/// for them.
#[tokio::test]
async fn a_host_that_learns_is_online_once_its_router_has_spoken() {
    let (here, mut there) = pair(64);
    let network = soon(Network::builder().attach(here).learns(true).start()).await.unwrap();
    let early = timeout(Duration::from_millis(300), network.online(Family::V6)).await;
    assert!(early.is_err(), "no router has spoken");
    assert!(network.dns_servers().await.unwrap().is_empty());
    let mut events = network.events().unwrap();
    // The first look is what later ones are compared with.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let done = Arc::new(AtomicU64::new(0));
    let over = Arc::clone(&done);
    let router = std::thread::spawn(move || {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let mut burst = Burst::new();
        while over.load(Ordering::Relaxed) == 0 {
            let mut list = PacketList::new();
            list.push_back(pool.packet_from(&advertisement()).unwrap());
            // Once the host has ended its end is gone.
            let _ = there.transmit(&mut list);
            // What the host sends is no matter.
            let _ = there.receive(&pool, &mut burst);
            burst.drain().for_each(drop);
            #[expect(clippy::disallowed_methods, reason = "a router that speaks now and then")]
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let online = soon(network.online(Family::V6)).await.unwrap();
    assert!(online.to_string().starts_with("2001:db8:7:"), "{online}");
    let addresses = network.addresses().await.unwrap();
    let learnt = addresses.iter().find(|one| one.address.addr() == online).unwrap();
    assert!(learnt.learnt && learnt.usable && learnt.valid_for.is_some(), "{learnt:?}");
    assert_eq!(network.dns_servers().await.unwrap(), [ip("2001:db8:7::53")]);
    let routes = network.routes().await.unwrap();
    let default = routes.iter().find(|route| route.prefix.to_string() == "::/0").unwrap();
    assert_eq!(default.gateway, Some(ip(ROUTER)));
    let neighbours = network.neighbours().await.unwrap();
    assert!(neighbours.iter().any(|it| it.addr == ip(ROUTER) && it.is_router), "{neighbours:?}");
    let added = soon(async {
        loop {
            if let Some(NetworkEvent::AddressAdded { address, learnt, .. }) = events.next().await
                && address.addr() == online
            {
                return learnt;
            }
        }
    });
    assert!(added.await, "and it is told as learnt");
    assert!(timeout(Duration::from_millis(300), network.online(Family::V4)).await.is_err());
    // The wire is gone with its other end.
    network.shutdown().await.unwrap();
    done.store(1, Ordering::Relaxed);
    router.join().unwrap();
}

#[tokio::test]
async fn a_stream_tells_its_details_until_it_is_gone() {
    let (a, b) = soon(two()).await;
    for (bind, to) in [("0.0.0.0:80", "198.18.0.2:80"), ("[::]:81", "[fd00::2]:81")] {
        let listener = TcpListener::bind(&b, bind).await.unwrap();
        let client = soon(TcpStream::connect(&a, to)).await.unwrap();
        let (server, _) = soon(listener.accept()).await.unwrap();
        client.writable().await.unwrap();
        client.try_write(b"hello").unwrap();
        server.readable().await.unwrap();
        let (ours, theirs) = (client.info().await.unwrap(), server.info().await.unwrap());
        assert_eq!(ours.state.to_string(), "ESTABLISHED");
        assert!(ours.window >= ours.snd_mss && ours.snd_mss > 1000, "{ours:?}");
        // What has arrived is the program's already.
        assert_eq!((theirs.readable, theirs.outstanding), (0, 0));
        assert!(theirs.writable && !theirs.has_ended);
    }
}

#[tokio::test]
async fn events_tell_addresses_floods_and_the_end() {
    let (a, b) = soon(two()).await;
    let mut events = a.events().unwrap();
    // The first look is what later ones are compared with.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    a.add_address("198.18.9.1/24", None).await.unwrap();
    let added = soon(async {
        loop {
            if let Some(NetworkEvent::AddressAdded { address, learnt, .. }) = events.next().await {
                return (address.to_string(), learnt);
            }
        }
    });
    assert_eq!(added.await, ("198.18.9.1/24".to_owned(), false));
    a.remove_address(ip("198.18.9.1")).await.unwrap();
    let lost = soon(async {
        loop {
            if let Some(NetworkEvent::AddressLost { address, .. }) = events.next().await {
                return address.to_string();
            }
        }
    });
    assert_eq!(lost.await, "198.18.9.1/24");
    // A flood of datagrams to a closed port, bounded in number. Its network lives on: without the
    // other end of its wire, this one has no device left and ends with an error.
    let other = b.clone();
    let flood = tokio::spawn(async move {
        let socket = UdpSocket::bind(&other, "0.0.0.0:0").await.unwrap();
        for _ in 0..4000 {
            for _ in 0..16 {
                let _ = socket.try_send_to(b"flood", "198.18.0.1:9".parse().unwrap());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let began = soon(async {
        loop {
            if let Some(NetworkEvent::Flood(event)) = events.next().await {
                return event;
            }
        }
    });
    let FloodEvent::Began(began) = began.await else { panic!("it ended first") };
    assert!(began.kind == FloodKind::ClosedPorts && began.rate >= 200.0, "{began:?}");
    flood.abort();
    assert_eq!(events.lost(), 0);
    a.shutdown().await.unwrap();
    while soon(events.next()).await.is_some() {}
    drop(b);
}

/// Of a device that the program attached, which has no interface of the system's behind it.
#[tokio::test]
async fn the_mtu_of_an_attached_device_can_be_told() {
    let (a, b) = soon(two()).await;
    let name =
        a.addresses().await.unwrap().into_iter().find(|one| one.address.addr() == ip("198.18.0.1"));
    let name = name.unwrap();
    let listener = TcpListener::bind(&a, "198.18.0.1:7").await.unwrap();
    for mtu in [1300_u32, 1500] {
        a.set_mtu(&name.interface, mtu).await.unwrap();
        let mut client = soon(TcpStream::connect(&b, "198.18.0.1:7")).await.unwrap();
        let (mut stream, _) = soon(listener.accept()).await.unwrap();
        // The path is looked up with the first segment.
        stream.write_all(&[7; 3000]).await.unwrap();
        soon(client.read_exact(&mut [0; 3000])).await.unwrap();
        let info = stream.info().await.unwrap();
        let timestamps = if info.timestamps { 12 } else { 0 };
        assert_eq!(info.snd_mss + timestamps, mtu - 40);
    }
    assert!(a.set_mtu(&name.interface, 10).await.unwrap_err().to_string().contains("68 to 65535"));
    let none = a.set_mtu("eth77", 1300).await.unwrap_err();
    assert!(matches!(none, HostChangeError::Interface(_)), "{none}");
}

/// A wire with a program at its interface that answers SYNs, so that no worker sees them.
struct AnsweringWire {
    wire: MemoryWire,
    /// The other end, on which no frame arrives.
    _far: MemoryWire,
    answered: Arc<AtomicU64>,
}

impl Device for AnsweringWire {
    fn info(&self) -> &DeviceInfo {
        self.wire.info()
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        self.wire.receive(pool, burst)
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
        let mut stats = self.wire.stats();
        stats.rx_syns_answered = self.answered.load(Ordering::Relaxed);
        stats
    }
}

/// A host behind such a wire, and what counts the SYNs.
async fn answering() -> (Network, Arc<AtomicU64>) {
    let (wire, _far) = pair(64);
    let answered = Arc::new(AtomicU64::new(7_000_000));
    let device = AnsweringWire { wire, _far, answered: Arc::clone(&answered) };
    let builder = Network::builder().attach(device).address("198.18.0.1/24").address("fd00::1/64");
    (soon(builder.start()).await.unwrap(), answered)
}

#[tokio::test]
async fn a_flood_that_ends_at_the_interface_is_an_event() {
    let (network, answered) = answering().await;
    let mut events = network.events().unwrap();
    let flood = tokio::spawn(async move {
        loop {
            answered.fetch_add(500, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let began = soon(async {
        loop {
            if let Some(NetworkEvent::Flood(FloodEvent::Began(began))) = events.next().await {
                return began;
            }
        }
    });
    let began = began.await;
    assert!(began.kind == FloodKind::Syn && began.rate >= 200.0, "{began:?}");
    flood.abort();
    network.shutdown().await.unwrap();
}

#[cfg(feature = "tracing")]
mod traced {
    use std::fmt::{Debug, Write as _};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;

    /// Collects the host's events: level, and fields as text.
    #[derive(Clone, Default)]
    struct Collector(Arc<Mutex<Vec<(Level, String)>>>);

    impl Collector {
        fn lines(&self) -> MutexGuard<'_, Vec<(Level, String)>> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        async fn wait_for(&self, part: &str) -> (Level, String) {
            soon(async {
                loop {
                    let found = self.lines().iter().find(|(_, text)| text.contains(part)).cloned();
                    if let Some(found) = found {
                        return found;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
            .await
        }
    }

    struct Fields(String);

    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let _ = write!(self.0, "{}={value:?} ", field.name());
        }
    }

    impl Subscriber for Collector {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "floodwall"
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut fields = Fields(String::new());
            event.record(&mut fields);
            self.lines().push((*event.metadata().level(), fields.0));
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    /// The subscriber where the network is started gets what `Network::events` would give, without
    /// a subscription.
    #[tokio::test]
    async fn what_happens_to_the_host_is_traced_with_levels() {
        let collector = Collector::default();
        let guard = tracing::subscriber::set_default(collector.clone());
        let (network, answered) = answering().await;
        drop(guard);
        // The first look is what later ones are compared with.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        for address in ["198.18.9.1/24", "fd09::1/64"] {
            network.add_address(address, None).await.unwrap();
            let (level, text) = collector.wait_for(&format!("address={address}")).await;
            assert!(level == Level::INFO && text.contains("event=\"address_added\""), "{text}");
        }
        network.remove_address(ip("198.18.9.1")).await.unwrap();
        assert_eq!(collector.wait_for("event=\"address_lost\"").await.0, Level::INFO);
        let name = network.addresses().await.unwrap().last().unwrap().interface.clone();
        network.set_mtu(&name, 1300).await.unwrap();
        let (level, text) = collector.wait_for("event=\"mtu\"").await;
        assert!(level == Level::INFO && text.contains("mtu=1300"), "{text}");
        let flood = tokio::spawn(async move {
            loop {
                answered.fetch_add(500, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        let (level, text) = collector.wait_for("event=\"flood_began\"").await;
        assert!(level == Level::WARN && text.contains("kind=\"SYN flood\""), "{text}");
        flood.abort();
        let (level, text) = collector.wait_for("event=\"flood_ended\"").await;
        assert!(level == Level::INFO && text.contains("peak_rate="), "{text}");
        network.shutdown().await.unwrap();
    }
}
