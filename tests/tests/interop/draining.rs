//! SIGTERM to `floodwall run` in the middle of downloads of Linux clients, over a TAP.
//!
//! Claims: within the drain time all that go on reading get the whole answer and the end; what is
//! left then is reset; no client waits for ever, no new one is accepted; a second signal ends the
//! process at once.

#![expect(clippy::disallowed_methods, reason = "clients run on threads of their own")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::instance::Instance;
use crate::link::Kind;
use crate::namespace::{inside, is_deep, tell, until};
use crate::site::{Host, Site};

const OURS: [&str; 2] = ["10.77.0.1", "fd77::1"];
/// Of the downloads, such that read nothing more.
const STALLED: usize = 10;
/// More than the host, the TAP and the client's window hold of an answer.
const BYTES: usize = 1_000_000;
/// Longest time that a client waits for anything: nothing may hang.
const PATIENCE: Duration = Duration::from_secs(60);
/// Threads that read.
const THREADS: usize = 10;

/// How many there are: by default fewer than with `FLOODWALL_DEEP=1`, to save time.
fn downloads() -> usize {
    if is_deep() { 100 } else { 24 }
}

fn ours(number: usize) -> SocketAddr {
    SocketAddr::new(OURS[number % 2].parse().unwrap(), 8080)
}

/// How a download ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    Whole,
    Reset,
    /// With an end, but not all of it.
    Truncated,
    /// Not at all.
    Hung,
}

/// A download of which a little has been read.
struct Download {
    stream: TcpStream,
    text: Vec<u8>,
}

impl Download {
    fn begin(number: usize) -> Self {
        let mut stream = TcpStream::connect_timeout(&ours(number), PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET /bytes/{BYTES} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut text = vec![0; 1000];
        stream.read_exact(&mut text).unwrap();
        Self { stream, text }
    }

    fn finish(mut self) -> Ended {
        match self.stream.read_to_end(&mut self.text) {
            Ok(_) if self.is_whole() => Ended::Whole,
            Ok(_) => Ended::Truncated,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ended::Reset,
            Err(_) => Ended::Hung,
        }
    }

    fn is_whole(&self) -> bool {
        let head = self.text.windows(4).position(|four| four == b"\r\n\r\n");
        let body = head.and_then(|at| self.text.get(at + 4..)).unwrap_or_default();
        body.len() == BYTES && body.iter().enumerate().all(|(at, it)| *it == b' ' + (at % 95) as u8)
    }
}

fn finish(downloads: Vec<Download>) -> Vec<Ended> {
    let mut lists: Vec<Vec<_>> = (0..THREADS).map(|_| Vec::new()).collect();
    downloads.into_iter().enumerate().for_each(|(n, it)| lists[n % THREADS].push(it));
    let readers = lists
        .into_iter()
        .map(|list| thread::spawn(|| list.into_iter().map(Download::finish).collect::<Vec<_>>()));
    let readers: Vec<_> = readers.collect();
    readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
}

/// An instance with that long to drain, and a host on its link.
fn set_up(drain: &str) -> Option<(Instance, Host)> {
    let site = Site::new(1500);
    let host = site.host(3);
    let flags = "--address 10.77.0.1/24 --address fd77::1/64 --service http:8080 --drain";
    let instance = Instance::start(&site, Kind::Tap, &format!("{flags} {drain}"))?;
    for ours in OURS {
        // Our addresses are tentative for a second.
        assert!(until(PATIENCE, || host.is_answered(ours)), "{ours}");
    }
    Some((instance, host))
}

fn begin_all() -> Vec<Download> {
    (0..downloads()).map(Download::begin).collect()
}

fn count(all: &[Ended], ended: Ended) -> usize {
    all.iter().filter(|it| **it == ended).count()
}

#[test]
fn downloads_in_progress_at_sigterm_are_whole_and_then_it_ends() {
    inside(|| {
        let Some((instance, host)) = set_up("50") else { return };
        let all = host.inside(|| {
            let all = begin_all();
            instance.signal(Signal::TERM);
            finish(all)
        });
        assert_eq!(count(&all, Ended::Whole), downloads(), "{all:?}");
        let said = instance.wait(PATIENCE);
        assert_eq!(said.status.code(), Some(0), "{}", said.complaint);
        let counts = format!("{} closed, 0 reset", downloads());
        assert!(said.complaint.contains(&counts), "{}", said.complaint);
    });
}

#[test]
fn downloads_that_are_not_read_are_reset_when_the_drain_time_is_over() {
    inside(|| {
        let Some((instance, host)) = set_up("3") else { return };
        let (all, stalled, said) = host.inside(|| {
            let mut all = begin_all();
            let stalled = all.split_off(downloads() - STALLED);
            instance.signal(Signal::TERM);
            let all = finish(all);
            let said = instance.wait(PATIENCE);
            (all, finish(stalled), said)
        });
        let [whole, reset] = [Ended::Whole, Ended::Reset].map(|ended| count(&all, ended));
        tell(&format!("within 3 s {whole} of {} are whole, {reset} reset", all.len()));
        assert_eq!(whole + reset, downloads() - STALLED, "{all:?}");
        assert_eq!(count(&stalled, Ended::Reset), STALLED, "{stalled:?}");
        assert_eq!(said.status.code(), Some(0), "{}", said.complaint);
        let counts = format!("{whole} closed, {} reset", reset + STALLED);
        assert!(said.complaint.contains(&counts), "not {counts}: {}", said.complaint);
    });
}

/// Without time to drain each client is told by a reset.
#[test]
fn without_time_to_drain_downloads_are_reset_and_none_is_whole() {
    inside(|| {
        let Some((instance, host)) = set_up("0") else { return };
        let all = host.inside(|| {
            let all = begin_all();
            instance.signal(Signal::TERM);
            let said = instance.wait(PATIENCE);
            assert_eq!(said.status.code(), Some(0), "{}", said.complaint);
            finish(all)
        });
        assert_eq!(count(&all, Ended::Reset), downloads(), "{all:?}");
    });
}

#[test]
fn a_second_sigterm_ends_it_at_once() {
    inside(|| {
        let Some((instance, host)) = set_up("600") else { return };
        let all = host.inside(|| {
            let all = begin_all();
            instance.signal(Signal::TERM);
            // It drains once it accepts no more.
            let refuses = |n| TcpStream::connect_timeout(&ours(n), PATIENCE).is_err();
            assert!(until(PATIENCE, || refuses(0) && refuses(1)), "it accepts new ones");
            all
        });
        instance.signal(Signal::TERM);
        let said = instance.wait(PATIENCE);
        assert_eq!(said.status.code(), Some(128 + Signal::TERM.as_raw()), "{}", said.complaint);
        drop(all);
    });
}
