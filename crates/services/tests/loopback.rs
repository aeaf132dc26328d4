//! A stack that talks to itself over its loopback, in both families.

use core::net::SocketAddr;
use core::time::Duration;

use floodwall_base::{Counter, DropReason, Instant, Randomness, Units};
use floodwall_packet::{Burst, Engine, PacketList, Pool, PoolConfig, Round};
use floodwall_services::{ServiceKind, TcpService};
use floodwall_stack::{
    Application, Host, Sockets, Stack, StackConfig, StartError, accounts_needed,
};
use floodwall_tcp::{
    ConnectionEvents, ConnectionId, ListenerId, RecvError, SendError, TcpSettings,
};

/// A round in which nothing arrives from outside.
fn alone<'a>(
    now: Instant,
    pool: &'a Pool,
    random: &'a mut Randomness,
    (arrived, departing): &'a mut (Burst, PacketList),
) -> Round<'a> {
    Round { now, pool, random, arrived, departing, budget: Units(64), peers: None }
}

#[test]
fn an_echo_service_gives_back_a_clients_stream_and_a_closed_port_refuses() {
    let mut accounts = PoolConfig::default();
    let config = StackConfig { tcp_connections_max: 16, ..StackConfig::default() };
    accounts.accounts = accounts.accounts.max(accounts_needed(&config));
    let pool = Pool::new(&accounts).unwrap();
    let mut random = Randomness::from_number(3);
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut stack = Stack::new(&config, &mut random, now).unwrap();
    let mut service = TcpService::new(ServiceKind::Echo, 7);
    let sent: Vec<u8> = (0..50_000_u32).map(|n| (n >> 3) as u8).collect();
    let mut started = false;
    for addr in ["127.0.0.1:7", "[::1]:7", "127.0.0.1:9"] {
        let (mut client, mut written, mut back) = (None, 0, vec![]);
        let mut refused = false;
        for _ in 0..3000 {
            let mut lists = (Burst::new(), PacketList::new());
            let mut round = alone(now, &pool, &mut random, &mut lists);
            stack.round(&mut round);
            stack.work(&mut round);
            let mut sockets = stack.sockets(&mut round);
            if !started {
                service.start(&mut sockets).unwrap();
                started = true;
            }
            service.run(&mut sockets, Units(64));
            let id = *client.get_or_insert_with(|| {
                sockets.tcp_connect(addr.parse().unwrap(), &TcpSettings::default(), 60).unwrap()
            });
            // An error is reported once, to the first call.
            match sockets.tcp_send(id, &sent[written..]) {
                Ok(n) => written += n,
                Err(SendError::WouldBlock) => {}
                Err(_) => refused = true,
            }
            let mut buffer = [0; 3000];
            match sockets.tcp_recv(id, &mut buffer) {
                Ok(n) => back.extend_from_slice(&buffer[..n]),
                Err(RecvError::WouldBlock) => {}
                Err(_) => refused = true,
            }
            if back.len() == sent.len() || refused {
                sockets.tcp_close(id).unwrap();
                break;
            }
            now += Duration::from_millis(1);
        }
        let ledgers = stack.stats();
        let dropped: Vec<_> = DropReason::ALL
            .iter()
            .map(|reason| (reason, ledgers.drops_in.of(*reason), ledgers.drops_out.of(*reason)))
            .filter(|(_, arrived, own)| arrived + own > 0)
            .collect();
        assert_eq!(refused, addr.ends_with(":9"), "{addr}: {written} written, {dropped:?}");
        let of = |counter| ledgers.counters.of(counter);
        let broken = (of(Counter::TcpAttemptFails), of(Counter::TcpEstabResets));
        assert_eq!(broken, (u64::from(refused), 0), "{addr}: what ends in order is not counted");
        assert!(refused || back == sent, "{addr}: {} of {written}: {dropped:?}", back.len());
    }
    assert_eq!(stack.stats().drops_in.of(DropReason::TcpNoConnection), 1);
}

/// Answers each connection once and closes it, in one slice.
struct Once(Option<(ListenerId, u32)>);

impl Application for Once {
    fn name(&self) -> &str {
        "once"
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        let (any, owner) =
            ("[::]:80".parse().expect("as the test set it up"), sockets.tcp_owner()?);
        self.0 = Some((sockets.tcp_listen(any, &TcpSettings::default(), 4, owner)?, owner));
        Ok(())
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, _: Units) -> Units {
        let (listener, owner) = self.0.expect("as the test set it up");
        let _ = sockets.tcp_accept(listener);
        while let Some((id, _)) = sockets.tcp_event(owner) {
            if sockets.tcp_recv(id, &mut [0; 100]).is_ok_and(|n| n > 0) {
                assert_eq!(sockets.tcp_send(id, b"answer"), Ok(6));
                sockets.tcp_close(id).expect("as the test set it up");
            }
        }
        Units(1)
    }
}

/// Sends a request, reads to the end, and closes.
struct Asks(SocketAddr, Option<(ConnectionId, u32)>);

impl Application for Asks {
    fn name(&self) -> &str {
        "asks"
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        let owner = sockets.tcp_owner()?;
        self.1 = Some((sockets.tcp_connect(self.0, &TcpSettings::default(), owner)?, owner));
        Ok(())
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, _: Units) -> Units {
        let (id, owner) = self.1.expect("as the test set it up");
        while let Some((_, events)) = sockets.tcp_event(owner) {
            if events.contains(ConnectionEvents::OPENED) {
                assert_eq!(sockets.tcp_send(id, b"ask"), Ok(3));
            }
            while let Ok(n) = sockets.tcp_recv(id, &mut [0; 100]) {
                if n == 0 {
                    sockets.tcp_close(id).expect("as the test set it up");
                }
            }
        }
        Units(1)
    }
}

#[test]
fn what_is_read_answered_and_closed_in_one_slice_leaves_as_one_segment() {
    for addr in ["127.0.0.1:80", "[::1]:80"] {
        let config = StackConfig { tcp_connections_max: 16, ..StackConfig::default() };
        let accounts = accounts_needed(&config);
        let pool = Pool::new(&PoolConfig { accounts, ..PoolConfig::default() }).unwrap();
        let mut random = Randomness::from_number(5);
        let mut now = Instant::from_nanos(1_000_000_000);
        let asks = Box::new(Asks(addr.parse().unwrap(), None));
        let applications: Vec<Box<dyn Application>> = vec![Box::new(Once(None)), asks];
        let mut host = Host::new(&config, applications, &pool, &mut random, now).unwrap();
        for _ in 0..50 {
            let mut lists = (Burst::new(), PacketList::new());
            let mut round = alone(now, &pool, &mut random, &mut lists);
            host.round(&mut round);
            host.work(&mut round);
            now += Duration::from_millis(1);
        }
        let counters = host.stack().stats().counters;
        assert_eq!(counters.of(Counter::TcpPassiveOpens), 1, "{addr}");
        // A record in TIME-WAIT is no work: a turn in which nothing is due ends at once.
        let mut lists = (Burst::new(), PacketList::new());
        let spent = host.work(&mut alone(now, &pool, &mut random, &mut lists));
        assert!(spent.0 < 16, "{addr}: {spent:?}");
        // SYN, its answer, the ACK; the question; the answer with its FIN; the other FIN, which
        // acknowledges that; the ACK.
        assert_eq!(counters.of(Counter::TcpOutSegs), 7, "{addr}");
    }
}

#[test]
fn a_host_touches_the_memory_of_all_its_connections() {
    const PLACES: usize = 10_000;
    let touched = |tcp_connections_max| {
        let config = StackConfig { tcp_connections_max, ..StackConfig::default() };
        let accounts = accounts_needed(&config);
        let pool = Pool::new(&PoolConfig { accounts, ..PoolConfig::default() }).unwrap();
        let (mut random, now) = (Randomness::from_number(5), Instant::ORIGIN);
        let mut host = Host::new(&config, Vec::new(), &pool, &mut random, now).unwrap();
        host.touch_memory()
    };
    assert_eq!(touched(0), 0);
    assert!(touched(PLACES) >= PLACES * 512, "a place has more than that");
}
