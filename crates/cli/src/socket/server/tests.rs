//! The control socket against clients that query, stall, send garbage and flood.
#![expect(clippy::disallowed_methods, reason = "the server under test has a thread of its own")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;
use crate::socket::client;
use crate::socket::path::{SocketTaken, TakenError, is_alive};

/// A request.
const STAT: &str = "stat";

struct Server {
    path: PathBuf,
    stop: Stop,
    asked: Arc<AtomicUsize>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    fn start(name: &str, answer: &'static str) -> Self {
        let folder = std::env::temp_dir().join(format!("floodwall-test-{}", std::process::id()));
        let path = folder.join(format!("{name}.sock"));
        let taken = SocketTaken::take(&path).unwrap();
        let (stop, asked) = (Stop::new().unwrap(), Arc::new(AtomicUsize::new(0)));
        let (stopped, counted) = (stop.clone(), Arc::clone(&asked));
        let thread = thread::spawn(move || {
            serve(&taken.listener, &stopped, |request, _| {
                counted.fetch_add(1, Ordering::Relaxed);
                Some(match request {
                    STAT => answer.to_owned(),
                    _ => "{\"error\":\"unknown\"}".to_owned(),
                })
            })
            .unwrap();
        });
        Self { path, stop, asked, thread: Some(thread) }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.trigger();
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_request_is_answered_with_one_document() {
    let server = Server::start("answered", "{\"up\":1}");
    for _ in 0..100 {
        assert_eq!(client::ask(&server.path, STAT).unwrap()["up"], 1);
    }
    assert_eq!(server.asked(), 100);
}

#[test]
fn an_unknown_request_is_a_refusal_and_a_missing_instance_is_unreachable() {
    let server = Server::start("refused", "{}");
    let error = client::ask(&server.path, "dance").unwrap_err();
    assert_eq!(error.exit(), crate::exit::Exit::Refused);
    let path = server.path.clone();
    drop(server);
    let error = client::ask(&path, STAT).unwrap_err();
    assert_eq!(error.exit(), crate::exit::Exit::Unreachable);
    assert!(!path.exists(), "the socket goes with its instance");
}

#[test]
fn clients_that_stall_hold_up_nothing_for_longer_than_their_patience() {
    let server = Server::start("stalled", "{}");
    let stalled: Vec<_> = (0..CONNECTIONS_MAX + 4)
        .map(|_| {
            let mut stream = UnixStream::connect(&server.path).unwrap();
            stream.write_all(b"sta").unwrap();
            stream
        })
        .collect();
    assert!(client::ask(&server.path, STAT).is_ok());
    assert_eq!(server.asked(), 1, "half a request is never answered");
    drop(stalled);
}

#[test]
fn a_client_that_babbles_is_cut_off_at_the_bound() {
    let server = Server::start("babble", "{}");
    let mut stream = UnixStream::connect(&server.path).unwrap();
    let babble = vec![b'x'; 1 << 20];
    assert!(stream.write_all(&babble).is_err(), "a megabyte is not read");
    assert_eq!(server.asked(), 0);
    assert!(client::ask(&server.path, STAT).is_ok());
}

#[test]
fn a_client_that_never_reads_does_not_hold_up_the_others() {
    let big: &'static str = format!("{{\"x\":\"{}\"}}", "y".repeat(8 << 20)).leak();
    let server = Server::start("deaf", big);
    let mut deaf = UnixStream::connect(&server.path).unwrap();
    deaf.write_all(b"stat\n").unwrap();
    assert!(client::ask(&server.path, STAT).is_ok());
    assert_eq!(server.asked(), 2);
}

#[test]
fn a_second_instance_is_refused_and_the_socket_of_an_ended_one_is_replaced() {
    let server = Server::start("second", "{}");
    assert!(is_alive(&server.path));
    let error = SocketTaken::take(&server.path).unwrap_err();
    assert!(matches!(&error, TakenError::Alive(path) if *path == server.path));
    assert!(error.to_string().contains("another floodwall answers"), "{error}");

    let dead = server.path.with_file_name("stale.sock");
    drop(UnixListener::bind(&dead).unwrap());
    assert!(dead.exists() && !is_alive(&dead));
    drop(SocketTaken::take(&dead).unwrap());
    assert!(!dead.exists());
}

#[test]
fn a_file_that_is_no_socket_is_never_removed() {
    let server = Server::start("file", "{}");
    let file = server.path.with_file_name("precious.sock");
    std::fs::write(&file, "precious").unwrap();
    assert!(matches!(SocketTaken::take(&file), Err(TakenError::Io { .. })));
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    std::fs::remove_file(file).unwrap();
}

#[test]
fn only_the_owner_may_connect() {
    use std::os::unix::fs::PermissionsExt;
    let server = Server::start("owner", "{}");
    let mode = std::fs::metadata(&server.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
