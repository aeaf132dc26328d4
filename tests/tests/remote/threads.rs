//! Real threads: order, wake-ups, memory, closing and ending in the midst of traffic.
#![expect(clippy::disallowed_methods, reason = "programs have threads")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::future::Future;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use floodwall_base::{Counter, DropReason, limits};
use floodwall_stack::remote::{GroupId, RemoteConfig, UdpHandle, WaitDirection};

use crate::worker::{PATIENCE, Worker, pieces};

const LOCALS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// A waker that counts.
#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// Runs one future on this thread.
fn run<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park_timeout(PATIENCE);
    }
}

fn receive(handle: &UdpHandle) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 2048];
    let received = handle.recv_from_blocking(&mut buffer, PATIENCE).unwrap();
    (buffer[..received.len].to_vec(), received.from)
}

#[test]
fn a_datagram_goes_from_one_thread_to_another_and_back() {
    for ip in LOCALS {
        let worker = Worker::start(&RemoteConfig::default());
        let (server, client) = (worker.bind(ip, 5300), worker.bind(ip, 0));
        assert_eq!(server.local_addr(), SocketAddr::new(ip, 5300));
        thread::scope(|scope| {
            scope.spawn(|| {
                let (request, from) = receive(&server);
                assert_eq!((request, from), (b"ping".to_vec(), client.local_addr()));
                server.send_to_blocking(b"pong", Some(from), PATIENCE).unwrap();
            });
            client.send_to_blocking(b"ping", Some(server.local_addr()), PATIENCE).unwrap();
            assert_eq!(receive(&client), (b"pong".to_vec(), server.local_addr()));
        });
        drop((server, client));
        worker.end().is_clean();
    }
}

/// No polling: each waits to be woken for each datagram, and no wake-up is lost.
#[test]
fn a_thousand_sleeping_exchanges_lose_no_wake_up() {
    const EXCHANGES: u32 = 1000;
    for ip in LOCALS {
        let worker = Worker::start(&RemoteConfig::default());
        let (server, client) = (worker.bind(ip, 5300), worker.bind(ip, 0));
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..EXCHANGES {
                    let (request, from) = receive(&server);
                    server.send_to_blocking(&request, Some(from), PATIENCE).unwrap();
                }
            });
            for number in 0..EXCHANGES {
                let request = number.to_be_bytes();
                client.send_to_blocking(&request, Some(server.local_addr()), PATIENCE).unwrap();
                assert_eq!(receive(&client).0, request);
            }
        });
        drop((server, client));
        let end = worker.end();
        end.is_clean();
        let counter = if ip.is_ipv4() { Counter::UdpInDatagrams } else { Counter::Udp6InDatagrams };
        assert_eq!(end.stats.counters.of(counter), u64::from(2 * EXCHANGES));
    }
}

/// A program moves its handle from thread to thread; what each sends comes behind what the others
/// sent before.
#[test]
fn a_handle_that_changes_threads_keeps_its_order() {
    const MOVES: u32 = 60;
    const EACH: u32 = 7;
    /// The reader is at most so many moves behind: one sender's share of the socket takes them.
    const BEHIND: u32 = 20;
    for ip in LOCALS {
        let worker = Worker::start(&RemoteConfig::default());
        let (server, client) = (worker.bind(ip, 5300), Arc::new(worker.bind(ip, 0)));
        let to = server.local_addr();
        let (tells, told) = mpsc::channel();
        let reader = thread::spawn(move || {
            for number in 0..MOVES * EACH {
                assert_eq!(receive(&server).0, number.to_be_bytes(), "out of order");
                tells.send(()).unwrap();
            }
        });
        for turn in 0..MOVES {
            let client = Arc::clone(&client);
            thread::spawn(move || {
                for number in turn * EACH..(turn + 1) * EACH {
                    client.send_to_blocking(&number.to_be_bytes(), Some(to), PATIENCE).unwrap();
                }
            })
            .join()
            .unwrap();
            for _ in 0..if turn < BEHIND { 0 } else { EACH } {
                told.recv_timeout(PATIENCE).unwrap();
            }
        }
        reader.join().unwrap();
        drop(client);
        worker.end().is_clean();
    }
}

#[test]
fn several_threads_share_a_handle_and_each_datagram_goes_to_one_of_them() {
    const EACH: usize = 200;
    for ip in LOCALS {
        let worker = Worker::start(&RemoteConfig::default());
        let (server, client) = (worker.bind(ip, 5300), worker.bind(ip, 0));
        let heard = AtomicUsize::new(0);
        thread::scope(|scope| {
            let servers = [(); 3].map(|()| {
                scope.spawn(|| {
                    loop {
                        let (request, from) = receive(&server);
                        if request.is_empty() {
                            break;
                        }
                        heard.fetch_add(1, Ordering::AcqRel);
                        server.send_to_blocking(b"heard", Some(from), PATIENCE).unwrap();
                    }
                })
            });
            let askers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..EACH {
                            let to = Some(server.local_addr());
                            client.send_to_blocking(b"?", to, PATIENCE).unwrap();
                            assert_eq!(receive(&client).0, b"heard");
                        }
                    })
                })
                .collect();
            askers.into_iter().for_each(|asker| asker.join().unwrap());
            for _ in 0..3 {
                client.send_to_blocking(b"", Some(server.local_addr()), PATIENCE).unwrap();
            }
            // A sanitizer sees that a thread has ended where it is joined, not by the scope's end.
            servers.into_iter().for_each(|server| server.join().unwrap());
        });
        assert_eq!(heard.load(Ordering::Acquire), 2 * EACH);
        drop((server, client));
        worker.end().is_clean();
    }
}

/// The server goes while three threads flood it: what it had not read is dropped, the others get no
/// answer worse than an ICMP error, and all memory is home.
#[test]
fn a_socket_closed_in_mid_flood_leaves_nothing_behind() {
    for ip in LOCALS {
        let worker = Worker::start(&RemoteConfig::default());
        for turn in 0..10 {
            let server = worker.bind(ip, 5300);
            let to = server.local_addr();
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        let client = worker.bind(ip, 0);
                        for _ in 0..100 {
                            client.send_to_blocking(&[1; 600], Some(to), PATIENCE).unwrap();
                        }
                    });
                }
                for _ in 0..turn {
                    receive(&server);
                }
                drop(server);
            });
        }
        worker.end().is_clean();
    }
}

/// Two slots serve any number of sockets one after the other; the third at a time is refused.
#[test]
fn slots_are_used_again_and_never_mix_their_users() {
    let config = RemoteConfig { sockets_max: 2, ..RemoteConfig::default() };
    for ip in LOCALS {
        let worker = Worker::start(&config);
        for turn in 0..100_u32 {
            let free = |port| loop {
                let family = floodwall_base::Family::of(ip);
                let settings = floodwall_udp::SocketSettings::new(family);
                let local = SocketAddr::new(ip, port);
                match worker.remote.bind_udp(local, settings).wait(PATIENCE) {
                    Ok(handle) => break handle,
                    // ENFILE, or the port: its last user has just let go of it.
                    Err(_) => thread::yield_now(),
                }
            };
            // A port of its own: what was sent to a former user of the port may arrive here.
            let (server, client) = (free(5300 + turn as u16), free(0));
            let settings = server.settings();
            let third = worker.remote.bind_udp(SocketAddr::new(ip, 0), settings).wait(PATIENCE);
            assert_eq!(third.unwrap_err().raw_os_error(), Some(23), "ENFILE");
            let payload = turn.to_be_bytes();
            client.send_to_blocking(&payload, Some(server.local_addr()), PATIENCE).unwrap();
            assert_eq!(receive(&server).0, payload, "a datagram of a former user");
            // This one is not read.
            client.send_to_blocking(&[9], Some(server.local_addr()), PATIENCE).unwrap();
        }
        worker.end().is_clean();
    }
}

/// Forty-eight sockets write one byte at a time while their worker does nothing: their credit is
/// counted in true bytes, so that there is memory left for everybody else.
#[test]
fn tiny_writes_are_paid_for_in_true_bytes() {
    let ip = LOCALS[0];
    let config = RemoteConfig { small: 32_768, frames: 16_384, ..RemoteConfig::default() };
    let worker = Worker::start(&config);
    let sockets: Vec<_> =
        (0..48).map(|_| worker.bind_with(ip, 0, |s| s.send_bytes = 65_536)).collect();
    worker.hold.store(true, Ordering::Release);
    let before = pieces(worker.remote.memory());
    let to = SocketAddr::new(ip, 9);
    for socket in &sockets {
        let mut taken = 0;
        let refused = loop {
            match socket.try_send_to(&[1], to) {
                Ok(_) => taken += 1,
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(refused, ErrorKind::WouldBlock);
        assert_eq!(taken, 65_536 / (256 + 128), "small frames and their descriptors");
    }
    let used = before - pieces(worker.remote.memory());
    assert_eq!(used, 48 * 170);
    assert!(used < before / 2, "{used} of {before}");
    // Credit comes back with the packets; the sleeper is woken.
    let sleeper = thread::spawn({
        let mut sockets = sockets;
        move || {
            let socket = sockets.swap_remove(0);
            socket.send_to_blocking(&[2], Some(to), PATIENCE).is_ok_and(|sent| sent == 1)
                || socket.send_to_blocking(&[2], Some(to), PATIENCE).is_ok()
        }
    });
    worker.hold.store(false, Ordering::Release);
    worker.wake();
    assert!(sleeper.join().unwrap());
    worker.end().is_clean();
}

/// Less memory than the writers want: they wait in line, none gets an error, all is sent.
#[test]
fn writers_without_memory_wait_and_are_served() {
    const EACH: usize = 150;
    for ip in LOCALS {
        let config = RemoteConfig { lanes: 1, small: 0, frames: 3, ..RemoteConfig::default() };
        let worker = Worker::start(&config);
        let server = worker.bind(ip, 5300);
        let to = Some(server.local_addr());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let client = worker.bind(ip, 0);
                    for _ in 0..EACH {
                        assert_eq!(client.send_to_blocking(&[7; 300], to, PATIENCE).unwrap(), 300);
                    }
                });
            }
            // The frames wait here until they are read.
            (0..4 * EACH).for_each(|_| assert_eq!(receive(&server).0.len(), 300));
        });
        drop(server);
        worker.end().is_clean();
    }
}

#[test]
fn an_icmp_error_is_given_once_to_a_connected_socket() {
    for ip in LOCALS {
        let worker = Worker::start(&RemoteConfig::default());
        let client = worker.bind(ip, 0);
        assert_eq!(client.try_send(b"?").unwrap_err().raw_os_error(), Some(89), "EDESTADDRREQ");
        client.connect_blocking(SocketAddr::new(ip, 9), PATIENCE).unwrap();
        assert_eq!(client.peer_addr(), Some(SocketAddr::new(ip, 9)));
        client.try_send(b"anybody?").unwrap();
        let mut buffer = [0; 10];
        let error = client.recv_from_blocking(&mut buffer, PATIENCE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let again = client.try_recv_from(&mut buffer).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::WouldBlock);
        // A writer gets the error as well as a reader.
        client.try_send(b"anybody?").unwrap();
        run(client.ready(WaitDirection::Read)).unwrap();
        assert_eq!(client.try_send(b"!").unwrap_err().kind(), ErrorKind::ConnectionRefused);
        run(client.disconnect()).unwrap();
        assert_eq!(client.peer_addr(), None);
        drop(client);
        let end = worker.end();
        end.is_clean();
        assert_eq!(end.stats.drops_in.of(DropReason::UdpNoPort), 2);
    }
}

#[test]
fn what_no_route_leads_to_is_told_by_the_next_call() {
    let worker = Worker::start(&RemoteConfig::default());
    let any = worker.bind(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    any.try_send_to(b"?", "203.0.113.9:9".parse().unwrap()).unwrap();
    run(any.ready(WaitDirection::Read)).unwrap();
    let error = any.try_recv_from(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
    assert!(any.take_error().is_none());
    let bad = [("127.0.0.1:0", ErrorKind::InvalidInput), ("0.0.0.0:1", ErrorKind::InvalidInput)];
    for (to, kind) in bad {
        assert_eq!(any.try_send_to(b"?", to.parse().unwrap()).unwrap_err().kind(), kind);
    }
    let error = any.try_send_to(b"?", "255.255.255.255:1".parse().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    let error = any.try_send_to(&[0; 65_508], "127.0.0.1:1".parse().unwrap()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(90), "EMSGSIZE");
    drop(any);
    worker.end().is_clean();
}

#[test]
fn the_largest_datagram_arrives_whole_and_by_pieces() {
    for ip in LOCALS {
        let worker = Worker::start(&RemoteConfig::default());
        let big = |s: &mut floodwall_udp::SocketSettings| s.receive_bytes = 1 << 20;
        let (server, client) = (worker.bind_with(ip, 5300, big), worker.bind(ip, 0));
        let payload: Vec<u8> = (0..65_000_u32).map(|n| (n % 251) as u8).collect();
        let (front, back) = payload.split_at(777);
        let sent = client.try_send_gather(&[front, back], Some(server.local_addr())).unwrap();
        assert_eq!(sent, payload.len());
        run(server.ready(WaitDirection::Read)).unwrap();
        let mut short = [0; 10];
        let peeked = server.try_peek_from(&mut short).unwrap();
        assert!(peeked.truncated && peeked.len == 10);
        let datagram = server.try_recv_packet().unwrap();
        let mut bytes = vec![0; datagram.payload.len()];
        datagram.packet.copy_out(datagram.payload.start, &mut bytes);
        assert!(bytes == payload);
        drop((server, client, datagram));
        worker.end().is_clean();
    }
}

#[test]
fn batches_go_and_come_by_one_call() {
    for ip in LOCALS {
        let worker = Worker::start(&RemoteConfig::default());
        let (server, client) = (worker.bind(ip, 5300), worker.bind(ip, 0));
        let to = Some(server.local_addr());
        let payloads: Vec<[u8; 2]> = (0..50_u16).map(u16::to_be_bytes).collect();
        let batch: Vec<_> = payloads.iter().map(|payload| (&payload[..], to)).collect();
        assert_eq!(client.try_send_batch(&batch).unwrap(), 50);
        let mut got = Vec::new();
        while got.len() < 50 {
            run(server.ready(WaitDirection::Read)).unwrap();
            let each = |d: floodwall_udp::ReceivedPacket| {
                got.push(d.packet.first()[d.payload.clone()].to_vec());
            };
            assert!(server.try_recv_batch(64, each).unwrap() > 0);
        }
        assert_eq!(got, payloads.iter().map(|p| p.to_vec()).collect::<Vec<_>>());
        drop((server, client));
        worker.end().is_clean();
    }
}

/// Readers, writers and callers wait; the worker ends, or panics: all of them get an error.
#[test]
fn one_that_waits_is_told_when_the_worker_ends_or_panics() {
    let ip = LOCALS[0];
    for panics in [false, true] {
        let worker = Worker::start(&RemoteConfig::default());
        let reader = worker.bind(ip, 0);
        let writer = worker.bind_with(ip, 0, |s| s.send_bytes = 400);
        worker.hold.store(true, Ordering::Release);
        writer.try_send_to(b"!", SocketAddr::new(ip, 9)).unwrap();
        let asked = worker.remote.bind_udp(SocketAddr::new(ip, 0), reader.settings());
        let remote = worker.remote.clone();
        let to = Some(SocketAddr::new(ip, 9));
        thread::scope(|scope| {
            let told = [
                scope.spawn(|| reader.recv_from_blocking(&mut [0], PATIENCE).unwrap_err()),
                scope.spawn(|| writer.send_to_blocking(b"?", to, PATIENCE).unwrap_err()),
                scope.spawn(|| asked.wait(PATIENCE).unwrap_err()),
            ];
            if panics {
                worker.panic();
                assert!(worker.has_panicked());
            } else {
                worker.end();
            }
            for told in told {
                assert_eq!(told.join().unwrap().kind(), ErrorKind::BrokenPipe);
            }
        });
        // And later ones too.
        assert_eq!(reader.try_recv_from(&mut [0]).unwrap_err().kind(), ErrorKind::BrokenPipe);
        let late = writer.try_send_to(b"?", SocketAddr::new(ip, 9)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::BrokenPipe);
        let late = remote.bind_udp(SocketAddr::new(ip, 0), reader.settings()).wait(PATIENCE);
        assert_eq!(late.unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}

/// A round's wakers of one runtime cost one foreign wake, of its driver.
#[test]
fn a_runtimes_tasks_are_woken_by_its_driver() {
    let ip = LOCALS[0];
    let worker = Worker::start(&RemoteConfig::default());
    let group = worker.remote.runtime_group();
    assert_ne!(group.id(), GroupId::DIRECT);
    let sockets: Vec<_> = (0..20).map(|_| worker.bind(ip, 0)).collect();
    let tasks: Vec<_> = sockets.iter().map(|_| Arc::new(Count::default())).collect();
    let woken = || tasks.iter().map(|task| task.0.load(Ordering::Acquire)).sum::<u32>();
    for (socket, task) in sockets.iter().zip(&tasks) {
        socket.set_read_group(group.id());
        let waker = Waker::from(Arc::clone(task));
        let mut cx = Context::from_waker(&waker);
        assert!(socket.poll_recv_from(&mut cx, &mut [0; 9]).is_pending());
    }
    let driver = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&driver));
    let mut cx = Context::from_waker(&waker);
    assert!(group.poll_drive(&mut cx, 100).is_pending());
    let client = worker.bind(ip, 0);
    worker.hold.store(true, Ordering::Release);
    let to: Vec<_> = sockets.iter().map(|s| (&b"now"[..], Some(s.local_addr()))).collect();
    assert_eq!(client.try_send_batch(&to).unwrap(), 20);
    worker.hold.store(false, Ordering::Release);
    while driver.0.load(Ordering::Acquire) == 0 {
        thread::yield_now();
    }
    assert_eq!(woken(), 0, "no task is woken from outside");
    while woken() < 20 {
        let _ = group.poll_drive(&mut cx, 7);
    }
    assert!(driver.0.load(Ordering::Acquire) <= 3, "one foreign wake a round");
    // The runtime ends: from now on its tasks are woken one by one.
    drop(group);
    for (socket, task) in sockets.iter().zip(&tasks) {
        assert_eq!(socket.try_recv_from(&mut [0; 9]).unwrap().len, 3);
        let waker = Waker::from(Arc::clone(task));
        let mut cx = Context::from_waker(&waker);
        assert!(socket.poll_recv_from(&mut cx, &mut [0; 9]).is_pending());
    }
    assert_eq!(client.try_send_batch(&to).unwrap(), 20);
    while woken() < 40 {
        thread::yield_now();
    }
    drop((sockets, client));
    worker.end().is_clean();
}

#[test]
fn requests_beyond_the_bound_are_refused_and_the_others_are_answered() {
    let ip = LOCALS[0];
    let worker = Worker::start(&RemoteConfig::default());
    let settings = worker.bind(ip, 0).settings();
    worker.hold.store(true, Ordering::Release);
    // Let the worker be where it is held.
    let before = worker.rounds.load(Ordering::Acquire);
    worker.wake();
    while worker.rounds.load(Ordering::Acquire) < before + 2 {
        thread::yield_now();
    }
    let asked: Vec<_> = (0..limits::REMOTE_REQUESTS_MAX + 5)
        .map(|_| worker.remote.bind_udp(SocketAddr::new(ip, 0), settings.clone()))
        .collect();
    worker.hold.store(false, Ordering::Release);
    let answers: Vec<_> = asked.into_iter().map(|asked| asked.wait(PATIENCE)).collect();
    let refused =
        answers.iter().filter(|a| a.as_ref().is_err_and(|e| e.kind() == ErrorKind::WouldBlock));
    assert_eq!(refused.count(), 5);
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), limits::REMOTE_REQUESTS_MAX);
    drop(answers);
    worker.end().is_clean();
}
