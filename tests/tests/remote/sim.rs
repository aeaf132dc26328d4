//! In simulation: two hosts on one thread, a seed that decides the order of their steps, both
//! families. The same calls as on real threads; nothing in them reads time or depends on threads.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, Family, PublicRandom, Units};
use floodwall_packet::Engine;
use floodwall_stack::StackConfig;
use floodwall_stack::remote::{Remote, RemoteConfig, UdpHandle};
use floodwall_tests::{Rig, bytes_of, craft, ethernet_config};
use floodwall_udp::SocketSettings;

/// Sockets of each host.
const SOCKETS: usize = 4;
const PORT: u16 = 7000;

struct Host {
    rig: Rig,
    remote: Remote,
    addr: IpAddr,
}

impl Host {
    fn new(host: u8, other: u8, family: Family) -> Self {
        Self::with_sockets(host, other, family, SOCKETS)
    }

    fn with_sockets(host: u8, other: u8, family: Family, sockets_max: usize) -> Self {
        Self::of(&ethernet_config(host), (host, other), family, sockets_max)
    }

    fn of(
        config: &StackConfig,
        (host, other): (u8, u8),
        family: Family,
        sockets_max: usize,
    ) -> Self {
        let udp_sockets_max = sockets_max.max(64);
        let stack = StackConfig { udp_sockets_max, ..config.clone() };
        let mut rig = Rig::with_neighbor(&stack, other);
        let config = RemoteConfig { sockets_max, lanes: 1, ..RemoteConfig::default() };
        let (remote, mut shards) = Remote::new(&config).unwrap();
        rig.stack.serve(shards.remove(0));
        let addr = match family {
            Family::V4 => format!("10.0.0.{host}"),
            Family::V6 => format!("fd00::{host}"),
        };
        Self { rig, remote, addr: addr.parse().unwrap() }
    }

    /// Everything that is due now; what leaves.
    fn turn(&mut self) -> Vec<Vec<u8>> {
        let left = self.rig.run_for(Duration::ZERO);
        self.rig.stack.departed();
        left.iter().map(bytes_of).collect()
    }

    fn arrive(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let left = self.rig.frame(frame);
        self.rig.stack.departed();
        left.iter().map(bytes_of).collect()
    }

    fn bind(&mut self, port: u16) -> UdpHandle {
        self.bind_with(port, SocketSettings::new(Family::of(self.addr)))
    }

    fn bind_with(&mut self, port: u16, settings: SocketSettings) -> UdpHandle {
        let local = SocketAddr::new(self.addr, port);
        let asked = self.remote.bind_udp(local, settings);
        self.turn();
        asked.wait(Duration::ZERO).unwrap()
    }
}

/// One run: all reads in their order, and how many datagrams were sent.
fn run(seed: u64, family: Family, closes: bool) -> (Vec<(usize, usize, u32)>, usize) {
    let mut random = PublicRandom::new(seed);
    let mut below = |n: usize| (random.next_u64() % n as u64) as usize;
    let mut hosts = [Host::new(1, 2, family), Host::new(2, 1, family)];
    let free = hosts.each_ref().map(|host| host.rig.pool.available());
    let memory = hosts.each_ref().map(|host| host.remote.memory());
    let mut sockets: Vec<Vec<UdpHandle>> = hosts
        .iter_mut()
        .map(|host| (0..SOCKETS).map(|n| host.bind(PORT + n as u16)).collect())
        .collect();
    let mut wires: [Vec<Vec<u8>>; 2] = [Vec::new(), Vec::new()];
    let (mut sent, mut next, mut reads) = (0, [[0_u32; SOCKETS]; 2], Vec::new());
    let mut last = [[None; SOCKETS]; 2];
    for step in 0..3000 {
        let (side, socket) = (below(2), below(SOCKETS));
        // In the end all is carried over and read.
        let action = if step < 2000 { below(6) } else { 2 + below(4) };
        match action {
            0 | 1 => {
                // Each socket sends to the one of its own number.
                let to = SocketAddr::new(hosts[1 - side].addr, PORT + socket as u16);
                let number = next[side][socket];
                if sockets[side][socket].try_send_to(&number.to_be_bytes(), to).is_ok() {
                    next[side][socket] += 1;
                    sent += 1;
                }
            }
            2 => {
                let left = hosts[side].turn();
                wires[1 - side].extend(left);
            }
            3 => {
                let some = wires[side].len().min(if step < 2000 { 3 } else { 64 });
                for frame in wires[side].drain(..some).collect::<Vec<_>>() {
                    let left = hosts[side].arrive(&frame);
                    wires[1 - side].extend(left);
                }
            }
            4 if closes && below(40) == 0 => {
                let old = sockets[side].remove(socket);
                drop(old);
                let again = hosts[side].bind(PORT + socket as u16);
                sockets[side].insert(socket, again);
            }
            _ => {
                let mut bytes = [0; 4];
                while let Ok(received) = sockets[side][socket].try_recv_from(&mut bytes) {
                    assert_eq!(usize::from(received.from.port() - PORT), socket);
                    let number = u32::from_be_bytes(bytes);
                    let before = last[side][socket].replace(number);
                    assert!(before.is_none_or(|before| before < number), "out of order");
                    reads.push((side, socket, number));
                }
            }
        }
    }
    drop(sockets);
    for host in &mut hosts {
        host.turn();
        assert!(host.rig.stack.stats().conservation().holds());
    }
    assert_eq!(hosts.each_ref().map(|host| host.rig.pool.available()), free);
    assert_eq!(hosts.each_ref().map(|host| host.remote.memory()), memory);
    (reads, sent)
}

#[test]
fn every_datagram_is_read_in_order_in_any_schedule() {
    for family in [Family::V4, Family::V6] {
        for seed in 0..10 {
            let (reads, sent) = run(seed, family, false);
            assert!(sent > 300, "seed {seed}: {sent} sent");
            assert_eq!(reads.len(), sent, "seed {seed}: all that was sent was read");
        }
    }
}

#[test]
fn sockets_that_close_and_open_again_lose_only_their_own() {
    for family in [Family::V4, Family::V6] {
        for seed in 100..108 {
            let (reads, sent) = run(seed, family, true);
            assert!(reads.len() <= sent && reads.len() > sent / 3, "seed {seed}");
        }
    }
}

#[test]
fn the_same_seed_makes_the_same_run() {
    for family in [Family::V4, Family::V6] {
        assert_eq!(run(7, family, true), run(7, family, true));
        assert_ne!(run(7, family, true), run(8, family, true));
    }
}

/// A program that stops to read costs what its socket holds; what else came is refused, told by
/// reason, and with each datagram that is read later.
#[test]
fn a_program_that_does_not_read_is_told_what_was_refused() {
    for family in [Family::V4, Family::V6] {
        let mut host = Host::new(1, 2, family);
        let free = host.rig.pool.available();
        let handle = host.bind(PORT);
        let from = SocketAddr::new(craft::addr(family, 2), 9);
        let frame = craft::from_peer(&craft::udp(from, handle.local_addr(), &[7; 32]));
        for _ in 0..1000 {
            host.arrive(&frame);
        }
        let refused = handle.refused();
        assert!(refused.over_share > 0 && refused.challenged == 0, "{refused:?}");
        let mut read = 0;
        let mut buffer = [0; 64];
        while let Ok(received) = handle.try_recv_from(&mut buffer) {
            assert_eq!((received.len, received.dropped), (32, 0), "it did not ask");
            read += 1;
        }
        assert_eq!(read + refused.total(), 1000, "{refused:?}");
        assert_eq!(host.rig.pool.available(), free, "all charges and all memory return");
        let counters = host.rig.stats().counters;
        let rcvbuf = [Counter::UdpRcvbufErrors, Counter::Udp6RcvbufErrors];
        assert_eq!(rcvbuf.map(|c| counters.of(c)).iter().sum::<u64>(), refused.total());
        assert!(host.rig.conservation().holds());
    }
}

/// What a program reads gives its room back later, all together; what it keeps costs its own size.
#[test]
fn a_packet_that_is_kept_pays_for_itself_and_not_for_what_was_read_before_it() {
    for family in [Family::V4, Family::V6] {
        let mut host = Host::new(1, 1, family);
        let settings = SocketSettings { fair_drop: false, ..SocketSettings::new(family) };
        let handle = host.bind_with(PORT, settings);
        let from = SocketAddr::new(craft::addr(family, 2), 9);
        let frame = craft::from_peer(&craft::udp(from, handle.local_addr(), &[7; 32]));
        let fill = |host: &mut Host| {
            let before = handle.refused().total();
            (0..2000).for_each(|_| _ = host.arrive(&frame));
            2000 - (handle.refused().total() - before)
        };
        let holds = fill(&mut host);
        let (mut kept, mut read) = (Vec::new(), 0);
        while handle.try_recv_from(&mut [0; 64]).is_ok() {
            read += 1;
            if read % 10 == 0 {
                kept.extend(handle.try_recv_packet());
            }
        }
        assert_eq!(read + kept.len() as u64, holds);
        assert!(kept.len() > 20, "{} of {holds}", kept.len());
        assert_eq!(fill(&mut host) + kept.len() as u64, holds);
        while handle.try_recv_from(&mut [0; 64]).is_ok() {}
        kept.clear();
        assert_eq!(fill(&mut host), holds);
        assert!(host.rig.conservation().holds());
    }
}

/// Carries what leaves one host to the other.
fn carry(from: &mut Host, to: &mut Host) {
    for frame in from.turn() {
        to.arrive(&frame);
    }
}

/// A payload goes in segments and comes back as a whole, as far as there is room, credit, and
/// likeness; a thread that blocks sends and reads as many as one that does not.
#[test]
fn segments_of_one_payload_are_datagrams_and_are_read_as_one() {
    for family in [Family::V4, Family::V6] {
        let mut hosts = [Host::new(1, 2, family), Host::new(2, 1, family)];
        let [a, b, other] =
            [(0, PORT), (1, PORT), (0, PORT + 1)].map(|(n, port)| hosts[n].bind(port));
        let payload: Vec<u8> = (0..3500).map(|n| (n % 251) as u8).collect();
        let to = b.local_addr();
        assert_eq!(a.try_send_segments(&payload, 1000, Some(to)).unwrap(), 3500);
        assert_eq!(a.try_send_segments(&payload[..1000], 1000, Some(to)).unwrap(), 1000);
        assert_eq!(
            other.send_segments_blocking(&payload, 1200, Some(to), Duration::ZERO).unwrap(),
            3500
        );
        assert_eq!(other.send_segments_blocking(&[], 1200, Some(to), Duration::ZERO).unwrap(), 0);
        assert!(a.try_send_segments(&payload, 0, Some(to)).is_err());
        let [left, right] = &mut hosts;
        carry(left, right);
        let mut buffer = [0; 8000];
        // The shorter one ends the first four, another sender the fifth.
        for (sender, len, size) in [(&a, 3500, 1000), (&a, 1000, 1000), (&other, 3500, 1200)] {
            let got = b.recv_segments_blocking(&mut buffer, Duration::ZERO).unwrap();
            assert_eq!((got.received.len, got.size), (len, size), "{family:?}");
            assert_eq!(got.received.from, sender.local_addr());
            assert!(buffer[..len] == payload[..len]);
        }
        let nothing = b.try_recv_segments(&mut buffer).unwrap();
        assert_eq!((nothing.received.len, nothing.size), (0, 0));
        assert!(b.try_recv_segments(&mut buffer).is_err());
        // A buffer with room for two and a half has two; one that is too small cuts the first.
        assert_eq!(a.try_send_segments(&payload, 1000, Some(to)).unwrap(), 3500);
        carry(left, right);
        assert_eq!(b.try_recv_segments(&mut buffer[..2500]).unwrap().received.len, 2000);
        let cut = b.try_recv_segments(&mut buffer[..400]).unwrap();
        assert!(cut.received.truncated && cut.received.len == 400 && cut.size == 400);
        assert_eq!(b.try_recv_segments(&mut buffer).unwrap().received.len, 500);
    }
}

/// A worker of which turns take too long grants few units: programs are served that few at a time,
/// in order, and none is forgotten.
#[test]
fn as_many_programs_are_served_in_a_turn_as_there_are_units_for() {
    for family in [Family::V4, Family::V6] {
        let mut host = Host::with_sockets(1, 2, family, 32);
        let handles: Vec<_> = (0..32).map(|n| host.bind(PORT + n)).collect();
        let to = SocketAddr::new(craft::addr(family, 2), 9);
        for handle in &handles {
            assert_eq!(handle.try_send_to(&[7; 32], to).unwrap(), 32);
        }
        for (units, least, most) in [(0, 1, 1), (1, 1, 1), (8, 4, 8), (64, 19, 26)] {
            let left = host.rig.round(Vec::new(), |stack, round| {
                round.budget = Units(units);
                stack.work(round)
            });
            host.rig.stack.departed();
            let sent = left.1.len();
            assert!((least..=most).contains(&sent), "{family:?}: {sent} with {units} units");
        }
        assert!(host.turn().is_empty(), "{family:?}: each has sent once");
        assert!(host.rig.conservation().holds());
    }
}

/// Credit ends a burst between two datagrams, and nothing is lost or sent twice.
#[test]
fn bursts_end_where_credit_does_and_go_on_behind_it() {
    for family in [Family::V4, Family::V6] {
        let mut hosts = [Host::new(1, 2, family), Host::new(2, 1, family)];
        // It takes all that the credit allows.
        let wide = SocketSettings { receive_bytes: 1 << 20, ..SocketSettings::new(family) };
        let [a, b] = [0, 1].map(|n| hosts[n].bind_with(PORT, wide.clone()));
        let [left, right] = &mut hosts;
        let payload: Vec<u8> = (0..400_000_u32).map(|n| (n / 1000) as u8).collect();
        let (to, mut sent, mut read) = (b.local_addr(), 0, Vec::new());
        while sent < payload.len() {
            let taken = a.try_send_segments(&payload[sent..], 1000, Some(to)).unwrap();
            assert!(taken > 0 && taken % 1000 == 0 && taken < 300_000, "{taken}");
            sent += taken;
            let more = a.try_send_segments(&payload[sent..], 1000, Some(to));
            assert!(sent == payload.len() || more.is_err(), "the credit is used up: {more:?}");
            carry(left, right);
            let mut each = |datagram: floodwall_udp::ReceivedPacket| {
                let bytes = datagram.packet.first();
                read.extend_from_slice(&bytes[datagram.payload]);
            };
            assert!(b.recv_batch_blocking(usize::MAX, Duration::ZERO, &mut each).is_ok());
        }
        assert!(read == payload, "{family:?}: {} of {} bytes", read.len(), payload.len());
        let batch = [(&b"one"[..], Some(to)), (b"two", Some(to))];
        assert_eq!(a.send_batch_blocking(&batch, Duration::ZERO).unwrap(), 2);
    }
}

/// A future, polled once and dropped.
fn ask_and_forget(future: impl Future<Output = std::io::Result<()>>) {
    let mut future = std::pin::pin!(future);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(future.as_mut().poll(&mut cx).is_pending());
}

#[derive(Default)]
struct Woken(std::sync::atomic::AtomicUsize);

impl std::task::Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A writer sleeps for credit while its socket's `send_bytes` changes, by any factor, and the
/// future of the change is dropped: it is woken, and then as much may be under way as was asked.
#[test]
fn a_writer_that_sleeps_is_woken_when_its_limit_changes_and_the_change_is_forgotten() {
    for family in [Family::V4, Family::V6] {
        for (before, after) in [(4000, 400_000), (4000, 5000), (40_000, 4000), (400_000, 400)] {
            let mut host = Host::new(1, 2, family);
            let with = |send_bytes| SocketSettings { send_bytes, ..SocketSettings::new(family) };
            let socket = host.bind_with(PORT, with(before));
            let to = SocketAddr::new(craft::addr(family, 2), 9);
            let woken = std::sync::Arc::new(Woken::default());
            let waker = std::task::Waker::from(std::sync::Arc::clone(&woken));
            let mut cx = std::task::Context::from_waker(&waker);
            let count = || woken.0.load(std::sync::atomic::Ordering::Relaxed);
            while socket.try_send_to(&[1; 1000], to).is_ok() {}
            // Everything leaves, and comes back, before a writer with more to send than that
            // sleeps: only the change itself can wake it then. Where the limit shrinks, it is all
            // in use.
            if after > before {
                host.turn();
                while socket.try_send_to(&[1; 1000], to).is_ok() {}
            }
            assert!(socket.poll_send_to(&mut cx, &[1; 1000], Some(to)).is_pending());
            ask_and_forget(socket.set_settings(with(after)));
            host.turn();
            assert_eq!(count(), 1, "{before} to {after}");
            // In one burst no more than asked, and at least one datagram, as often as it is asked.
            for _ in 0..3 {
                let mut taken = 0;
                while socket.poll_send_to(&mut cx, &[1; 1000], Some(to)).is_ready() {
                    taken += 1;
                }
                let (least, most) = ((after / 2200).max(1), (after / 1100).max(1) + 1);
                assert!((least..=most).contains(&taken), "{taken} for {before} to {after}");
                let awake = count();
                host.turn();
                assert_eq!(count(), awake + 1, "{before} to {after}");
            }
        }
    }
}

/// Limits up and down while datagrams are under way: in the end exactly the last one is there.
#[test]
fn limits_that_change_under_way_leave_no_credit_over_and_lose_none() {
    for family in [Family::V4, Family::V6] {
        let mut host = Host::new(1, 2, family);
        let with = |send_bytes| SocketSettings { send_bytes, ..SocketSettings::new(family) };
        let socket = host.bind_with(PORT, with(40_000));
        let to = SocketAddr::new(craft::addr(family, 2), 9);
        let burst = |socket: &UdpHandle| {
            (0..).take_while(|_| socket.try_send_to(&[1; 1000], to).is_ok()).count()
        };
        let first = burst(&socket);
        host.turn();
        for limit in [4000, 80_000, 9000, 9000, 400_000, 1, 40_000] {
            burst(&socket);
            ask_and_forget(socket.set_settings(with(limit)));
            host.turn();
        }
        host.turn();
        assert_eq!(burst(&socket), first);
        host.turn();
        assert_eq!(burst(&socket), first);
    }
}

/// Handles of programs that read nothing hold no more of the workers' memory together than all may.
#[test]
fn programs_that_read_nothing_leave_memory_to_others() {
    for family in [Family::V4, Family::V6] {
        let mut host = Host::with_sockets(1, 2, family, 80);
        let frames = host.rig.pool.available().frames;
        let settings = SocketSettings { fair_drop: false, ..SocketSettings::new(family) };
        let handles: Vec<UdpHandle> =
            (0..79).map(|n| host.bind_with(PORT + n, settings.clone())).collect();
        let read = host.bind(PORT + 79);
        let from = SocketAddr::new(craft::addr(family, 2), 9);
        let to = |handle: &UdpHandle| {
            craft::from_peer(&craft::udp(from, handle.local_addr(), &[7; 1000]))
        };
        for _ in 0..40 {
            for handle in &handles {
                host.arrive(&to(handle));
            }
            host.arrive(&to(&read));
            assert_eq!(read.try_recv_from(&mut [0; 1000]).unwrap().len, 1000);
            let free = host.rig.pool.available().frames;
            assert!(free > frames * 3 / 4, "{free} of {frames} are free");
        }
        let refused: u64 = handles.iter().map(|handle| handle.refused().memory).sum();
        assert!(refused > 1000, "{refused}");
        // They read at last: where that is found out they may hold as much again.
        let mut all = 0;
        for handle in &handles {
            while handle.try_recv_packet().is_ok() {
                all += 1;
            }
        }
        assert_eq!(all + refused, 79 * 40);
        for _ in 0..20 {
            host.arrive(&to(&read));
            read.try_recv_from(&mut [0; 1000]).unwrap();
        }
        (0..30).for_each(|_| _ = host.arrive(&to(&handles[0])));
        assert_eq!(handles[0].try_recv_batch(100, drop).unwrap(), 30);
        assert!(host.rig.conservation().holds());
    }
}

/// Solicitations of a neighbour that does not answer, in two and a half seconds in which programs
/// send nothing, or have more to send than the units of each call.
fn solicited(family: Family, sends: bool, timers_have_part: bool) -> usize {
    const BUDGET: u32 = 16;
    let config = StackConfig { timers_have_part, ..ethernet_config(1) };
    let sockets = 4 * BUDGET as usize;
    let mut host = Host::of(&config, (1, 2), family, sockets);
    let handles: Vec<_> = (0..sockets).map(|n| host.bind(PORT + n as u16)).collect();
    let silent = craft::addr(family, 9);
    handles[0].try_send_to(b"first", SocketAddr::new(silent, 9)).unwrap();
    let target = match silent {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    };
    // Where ARP has its target, and a neighbour solicitation.
    let (kind, at) = match family {
        Family::V4 => ([0x08, 0x06], 14 + 24),
        Family::V6 => ([0x86, 0xdd], 14 + 40 + 8),
    };
    let asks = |frame: &Vec<u8>| frame[12..14] == kind && frame[at..].starts_with(&target);
    let (mut asked, mut sent) = (0, 0);
    for _ in 0..250 {
        host.rig.now += Duration::from_millis(10);
        for handle in handles.iter().filter(|_| sends) {
            let _ = handle.try_send_to(b"more", SocketAddr::new(craft::addr(family, 2), 9));
        }
        let (spent, left) = host.rig.round(Vec::new(), |stack, round| {
            round.budget = Units(BUDGET);
            stack.work(round)
        });
        host.rig.stack.departed();
        assert_eq!(spent.0 >= BUDGET, sends, "{family:?}: {} units in a call", spent.0);
        let left: Vec<_> = left.iter().map(bytes_of).collect();
        asked += left.iter().filter(|frame| asks(frame)).count();
        sent += left.len();
    }
    assert_eq!(sent > 250 * BUDGET as usize / 4, sends, "{family:?}: {sent} sent");
    asked
}

#[test]
fn timers_have_a_part_of_each_call_beside_programs_that_send_all_they_can() {
    for family in [Family::V4, Family::V6] {
        let alone = solicited(family, false, true);
        assert!(alone > 2, "{family:?}: {alone} without programs that send");
        assert_eq!(solicited(family, true, true), alone, "{family:?}");
        // The first one leaves with the packet that waits for the answer.
        assert_eq!(solicited(family, true, false), 1, "{family:?}: without that part");
    }
}
