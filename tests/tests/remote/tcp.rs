//! Connections of programs on other threads: bytes, order, back-pressure, ends, memory.
#![expect(clippy::disallowed_methods, reason = "programs have threads")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{ErrorKind, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;

use floodwall_stack::remote::{ListenHandle, RemoteConfig, TcpHandle};
use floodwall_tcp::TcpSettings;

use crate::worker::{PATIENCE, Worker};

const LOCALS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

fn worker() -> Worker {
    Worker::start(&RemoteConfig { connections_max: 64, ..RemoteConfig::default() })
}

fn listen(worker: &Worker, ip: IpAddr) -> ListenHandle {
    let at = SocketAddr::new(ip, 0);
    worker.remote.listen_tcp(at, TcpSettings::default(), 16).wait(PATIENCE).unwrap()
}

fn connect(worker: &Worker, to: SocketAddr) -> TcpHandle {
    connect_with(worker, to, TcpSettings::default())
}

fn connect_with(worker: &Worker, to: SocketAddr, settings: TcpSettings) -> TcpHandle {
    let client = worker.remote.connect_tcp(None, to, settings).wait(PATIENCE).unwrap();
    client.opened_blocking(PATIENCE).unwrap();
    client
}

/// Two ends of one connection.
fn both(worker: &Worker, ip: IpAddr) -> (TcpHandle, TcpHandle) {
    let listener = listen(worker, ip);
    let client = connect(worker, listener.local_addr());
    (client, listener.accept_blocking(PATIENCE).unwrap())
}

/// The `at`th byte of a stream that repeats only after a long time.
fn byte(at: usize) -> u8 {
    (at ^ at >> 8 ^ at >> 16) as u8
}

fn write_all(handle: &TcpHandle, from: usize, len: usize, step: usize) {
    let mut at = from;
    while at < from + len {
        let bytes: Vec<u8> = (at..from + len).take(step).map(byte).collect();
        at += handle.write_blocking(&bytes, PATIENCE).unwrap();
    }
}

/// Reads until the peer's end; how many bytes, each as it should be.
fn read_all(handle: &TcpHandle, step: usize) -> usize {
    let (mut at, mut room) = (0, vec![0; step]);
    loop {
        let n = handle.read_blocking(&mut room, PATIENCE).unwrap();
        if n == 0 {
            return at;
        }
        for (i, found) in room[..n].iter().enumerate() {
            assert_eq!(*found, byte(at + i), "byte {}", at + i);
        }
        at += n;
    }
}

#[test]
fn ends_are_known_and_bytes_go_both_ways() {
    for ip in LOCALS {
        let worker = worker();
        let (client, server) = both(&worker, ip);
        assert_eq!(client.peer_addr(), server.local_addr());
        assert_eq!(server.peer_addr(), client.local_addr());
        let mut room = [0; 16];
        client.write_blocking(b"ping", PATIENCE).unwrap();
        assert_eq!(server.read_blocking(&mut room, PATIENCE).unwrap(), 4);
        server.try_write(&[IoSlice::new(b"po"), IoSlice::new(b""), IoSlice::new(b"ng")]).unwrap();
        assert_eq!(client.read_blocking(&mut room, PATIENCE).unwrap(), 4);
        assert_eq!(&room[..4], b"pong");
        drop((client, server));
        worker.end().is_clean();
    }
}

/// Several times all that windows and credit hold, in sizes that fit nothing, both ways at once.
#[test]
fn megabytes_arrive_exactly_both_ways_at_once() {
    const BYTES: usize = 3_000_000;
    for ip in LOCALS {
        let worker = worker();
        let (client, server) = both(&worker, ip);
        thread::scope(|scope| {
            let threads = [&client, &server].map(|end| {
                let writer = scope.spawn(move || {
                    write_all(end, 0, BYTES, 70_001);
                    end.shutdown_write();
                });
                let reader = scope.spawn(move || assert_eq!(read_all(end, 33_333), BYTES));
                [writer, reader]
            });
            // A sanitizer sees that a thread has ended where it is joined, not by the scope's end.
            threads.into_iter().flatten().for_each(|thread| thread.join().unwrap());
        });
        drop((client, server));
        worker.end().is_clean();
    }
}

/// No polling: each end sleeps until the other has written, and no wake-up is lost.
#[test]
fn a_thousand_sleeping_exchanges_lose_no_wake_up() {
    let worker = worker();
    let (client, server) = both(&worker, LOCALS[0]);
    thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let mut room = [0; 8];
            while let n @ 1.. = server.read_blocking(&mut room, PATIENCE).unwrap() {
                server.write_blocking(&room[..n], PATIENCE).unwrap();
            }
        });
        for number in 0..1000_u32 {
            let mut room = [0; 4];
            client.write_blocking(&number.to_be_bytes(), PATIENCE).unwrap();
            assert_eq!(client.read_blocking(&mut room, PATIENCE).unwrap(), 4);
            assert_eq!(u32::from_be_bytes(room), number);
        }
        client.shutdown_write();
        echo.join().unwrap();
    });
    drop((client, server));
    worker.end().is_clean();
}

#[test]
fn one_that_does_not_read_stops_the_writer_and_loses_nothing() {
    let worker = worker();
    let (client, server) = both(&worker, LOCALS[0]);
    let bytes: Vec<u8> = (0..65_536).map(byte).collect();
    let mut written = 0;
    // Short writes fill chunks badly: what is guaranteed is kept all the same.
    loop {
        let from = written % 65_536;
        let len = (65_536 - from).min(777);
        match client.try_write(&[IoSlice::new(&bytes[from..from + len])]) {
            Ok(n) => written += n,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                thread::sleep(std::time::Duration::from_millis(100));
                if client.try_write(&[IoSlice::new(b"")]).is_ok()
                    && client.try_write(&[IoSlice::new(&bytes[from..from + len])]).is_err()
                {
                    break;
                }
                written += len;
            }
        }
        assert!(written < 4 << 20, "the writer is never stopped");
    }
    let reader = thread::spawn(move || {
        let (mut at, mut room) = (0, [0; 5000]);
        while let n @ 1.. = server.read_blocking(&mut room, PATIENCE).unwrap() {
            for found in &room[..n] {
                assert_eq!(*found, byte(at % 65_536), "byte {at}");
                at += 1;
            }
        }
        at
    });
    client.shutdown_write();
    assert_eq!(reader.join().unwrap(), written);
    drop(client);
    let end = worker.end();
    assert_eq!(end.stats.drops_in.of(floodwall_base::DropReason::TcpReceiveFull), 0);
    end.is_clean();
}

#[test]
fn a_refused_connection_is_told() {
    for ip in LOCALS {
        let worker = worker();
        let silent = listen(&worker, ip).local_addr();
        let client = worker.remote.connect_tcp(None, silent, TcpSettings::default()).wait(PATIENCE);
        let refused = client.unwrap().opened_blocking(PATIENCE).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        worker.end().is_clean();
    }
}

#[test]
fn data_is_read_before_a_reset_and_the_reset_is_told_once() {
    let worker = worker();
    let (client, server) = both(&worker, LOCALS[0]);
    server.write_blocking(b"last words", PATIENCE).unwrap();
    let mut room = [0; 4];
    assert_eq!(client.read_blocking(&mut room, PATIENCE).unwrap(), 4);
    server.reset();
    let ready = client.read_blocking(&mut [0; 6], PATIENCE).unwrap();
    assert_eq!(ready, 6);
    let told = client.read_blocking(&mut room, PATIENCE).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::ConnectionReset);
    assert_eq!(client.read_blocking(&mut room, PATIENCE).unwrap(), 0);
    let closed = client.write_blocking(b"x", PATIENCE).unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::BrokenPipe);
    drop(client);
    worker.end().is_clean();
}

#[test]
fn unread_data_at_the_drop_resets_the_peer() {
    let worker = worker();
    let (client, server) = both(&worker, LOCALS[0]);
    client.write_blocking(b"unheard", PATIENCE).unwrap();
    let mut room = [0; 3];
    assert_eq!(server.read_blocking(&mut room, PATIENCE).unwrap(), 3);
    drop(server);
    let told = client.read_blocking(&mut room, PATIENCE).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::ConnectionReset);
    drop(client);
    worker.end().is_clean();
}

#[test]
fn half_a_close_leaves_the_other_half() {
    let worker = worker();
    let (client, server) = both(&worker, LOCALS[1]);
    client.shutdown_write();
    assert_eq!(client.write_blocking(b"x", PATIENCE).unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(server.read_blocking(&mut [0; 4], PATIENCE).unwrap(), 0);
    write_all(&server, 0, 100_000, 9999);
    drop(server);
    assert_eq!(read_all(&client, 4096), 100_000);
    drop(client);
    worker.end().is_clean();
}

/// More connections than there are slots, one after another: each slot is used again.
#[test]
fn what_a_cork_holds_back_arrives_with_the_end() {
    for ip in LOCALS {
        let worker = worker();
        let (client, server) = both(&worker, ip);
        client.set_cork(true);
        assert!(client.cork() && !server.cork());
        write_all(&client, 0, 500, 100);
        client.shutdown_write();
        assert_eq!(read_all(&server, 64), 500);
        // A socket with this setting has one from the beginning.
        let listener = listen(&worker, ip);
        let corked = TcpSettings { cork: true, ..TcpSettings::default() };
        let client = connect_with(&worker, listener.local_addr(), corked);
        assert!(client.cork());
        write_all(&client, 0, 70_000, 333);
        client.set_cork(false);
        client.shutdown_write();
        assert_eq!(read_all(&listener.accept_blocking(PATIENCE).unwrap(), 4096), 70_000);
    }
}

#[test]
fn slots_are_used_again_and_a_port_is_free_when_its_listener_is_dropped() {
    let worker = worker();
    let mut at = SocketAddr::new(LOCALS[0], 4000);
    for _ in 0..5 {
        let listening = worker.remote.listen_tcp(at, TcpSettings::default(), 16);
        let listener = listening.wait(PATIENCE).unwrap();
        let taken = worker.remote.listen_tcp(at, TcpSettings::default(), 16).wait(PATIENCE);
        assert_eq!(taken.unwrap_err().kind(), ErrorKind::AddrInUse);
        at = listener.local_addr();
        for _ in 0..40 {
            let client = connect(&worker, at);
            let server = listener.accept_blocking(PATIENCE).unwrap();
            server.write_blocking(b"hello", PATIENCE).unwrap();
            drop(server);
            let mut room = [0; 8];
            assert_eq!(client.read_blocking(&mut room, PATIENCE).unwrap(), 5);
            assert_eq!(client.read_blocking(&mut room, PATIENCE).unwrap(), 0);
        }
    }
    worker.end().is_clean();
}

#[test]
fn connections_that_nothing_accepts_are_reset_with_their_listener() {
    let worker = worker();
    let listener = listen(&worker, LOCALS[0]);
    let clients: Vec<_> = (0..5).map(|_| connect(&worker, listener.local_addr())).collect();
    drop(listener);
    for client in clients {
        let told = client.read_blocking(&mut [0; 4], PATIENCE).unwrap_err();
        assert_eq!(told.kind(), ErrorKind::ConnectionReset);
    }
    worker.end().is_clean();
}

#[test]
fn one_that_waits_is_told_when_the_worker_ends() {
    let worker = worker();
    let (client, server) = both(&worker, LOCALS[0]);
    let listener = listen(&worker, LOCALS[0]);
    thread::scope(|scope| {
        let reading = scope.spawn(|| client.read_blocking(&mut [0; 4], PATIENCE));
        let accepting = scope.spawn(|| listener.accept_blocking(PATIENCE).map(drop));
        thread::sleep(std::time::Duration::from_millis(20));
        worker.panic();
        for told in [reading.join().unwrap().map(drop), accepting.join().unwrap()] {
            assert_eq!(told.unwrap_err().kind(), ErrorKind::BrokenPipe);
        }
    });
    assert_eq!(server.try_write(&[IoSlice::new(b"x")]).unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert!(worker.has_panicked());
}
