//! The metrics over HTTP, on the host's own kernel: a few threads, each with one client at a time.
//!
//! Started by `run --metrics ADDRESS`. Apart from the packet path: it asks the workers as the
//! control socket does.
//!
//! # Under flood
//! Any host that reaches the address is served: bind one that only the collector can reach.
//! Bound: [`CLIENTS_MAX`] clients at a time, [`HEAD_PATIENCE`] for the request of each and
//! [`CLIENT_PATIENCE`] in all, [`HEAD_MAX`] bytes of request; the system queues others. A client
//! that drips or never reads is cut off; a hundred that drip keep others waiting for 6.5 s, less
//! than a collector's usual ten. One document a [`ASK_INTERVAL`] at most: faster clients get the
//! last one again.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use floodwall_base::Instant;
use floodwall_dispatch::Clock;

use super::format::MetricsFormat;

/// Clients that are served at once.
const CLIENTS_MAX: usize = 8;
/// How long a client may take for its request.
const HEAD_PATIENCE: Duration = Duration::from_millis(500);
/// How long a client may take, from its connection to the end of the answer.
const CLIENT_PATIENCE: Duration = Duration::from_secs(2);
/// How long one read or write may wait.
const IO_TIMEOUT: Duration = Duration::from_millis(250);
/// Bytes of the longest request head.
const HEAD_MAX: usize = 8 << 10;
/// The workers are asked so often at most.
const ASK_INTERVAL: Duration = Duration::from_millis(100);

/// What is given to clients, and the document that was given last.
struct Documents<M> {
    make: M,
    last: Option<(Instant, MetricsFormat, String)>,
}

impl<M: FnMut(MetricsFormat) -> Option<String>> Documents<M> {
    /// The document as of `now`, or the last one where that is new enough.
    fn get(&mut self, now: Instant, format: MetricsFormat) -> Option<String> {
        if let Some((at, kept, text)) = &self.last
            && *kept == format
            && now - *at < ASK_INTERVAL
        {
            return Some(text.clone());
        }
        let text = (self.make)(format)?;
        self.last = Some((now, format, text.clone()));
        Some(text)
    }
}

/// Serves until the listener fails; `make` gives the document.
pub(crate) fn serve(
    listener: &TcpListener,
    make: impl FnMut(MetricsFormat) -> Option<String> + Send,
) {
    let documents = Mutex::new(Documents { make, last: None });
    let clock = Clock::new();
    let serve_each = || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let begun = clock.now();
            // A client that fails is its own affair.
            let _ = answer(&mut stream, &clock, begun, |format| {
                let mut documents = documents.lock().unwrap_or_else(PoisonError::into_inner);
                documents.get(clock.now(), format)
            });
        }
    };
    thread::scope(|scope| {
        for _ in 1..CLIENTS_MAX {
            // Where the system gives no further thread, fewer clients are served at once.
            let thread = thread::Builder::new().name("metrics".to_owned());
            let _ = thread.spawn_scoped(scope, serve_each);
        }
        serve_each();
    });
}

fn answer(
    stream: &mut TcpStream,
    clock: &Clock,
    begun: Instant,
    make: impl FnOnce(MetricsFormat) -> Option<String>,
) -> io::Result<()> {
    let until = begun + CLIENT_PATIENCE;
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    let head = read_head(stream, clock, begun + HEAD_PATIENCE)?;
    let mut words = head.split_ascii_whitespace();
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let path = path.split('?').next().unwrap_or("");
    let lower = head.to_ascii_lowercase();
    let format = match lower.contains("application/openmetrics-text") {
        true => MetricsFormat::OpenMetrics,
        false => MetricsFormat::Prometheus,
    };
    let plain = MetricsFormat::Prometheus.content_type();
    let (status, kind, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => match make(format) {
            Some(text) => ("200 OK", format.content_type(), text),
            None => ("503 Service Unavailable", plain, "the workers do not answer\n".to_owned()),
        },
        ("GET" | "HEAD", _) => ("404 Not Found", plain, "the metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", plain, String::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    write_all(stream, clock, until, head.as_bytes())?;
    if method != "HEAD" {
        write_all(stream, clock, until, body.as_bytes())?;
    }
    Ok(())
}

fn read_head(stream: &mut TcpStream, clock: &Clock, until: Instant) -> io::Result<String> {
    let (mut head, mut piece) = (Vec::new(), [0; 1024]);
    while clock.now() < until && head.len() < HEAD_MAX {
        match stream.read(&mut piece) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => head.extend_from_slice(&piece[..n]),
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
        if head.windows(4).any(|four| four == b"\r\n\r\n") {
            return Ok(String::from_utf8_lossy(&head).into_owned());
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn write_all(
    stream: &mut TcpStream,
    clock: &Clock,
    until: Instant,
    mut bytes: &[u8],
) -> io::Result<()> {
    while !bytes.is_empty() {
        if clock.now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_pause(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test is a client of the kernel's loopback")]
mod tests {
    use super::*;
    use crate::threads::inside;

    fn start() -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener, |_| Some("a 1\n".repeat(1 << 20))));
        at
    }

    fn ask(at: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn many_clients_that_drip_and_some_that_never_read_do_not_keep_a_collector_waiting() {
        inside(|| {
            let at = start();
            // A byte every 50 ms, for as long as they are served.
            let drips: Vec<_> = (0..20)
                .map(|_| {
                    let mut drip = TcpStream::connect(at).unwrap();
                    drip.write_all(b"GET /met").unwrap();
                    std::thread::spawn(move || {
                        let begun = Clock::new().now();
                        while drip.write_all(b"r").is_ok()
                            && Clock::new().now() - begun < 20 * CLIENT_PATIENCE
                        {
                            std::thread::sleep(Duration::from_millis(50));
                        }
                        Clock::new().now() - begun
                    })
                })
                .collect();
            let deaf: Vec<_> = (0..CLIENTS_MAX / 2)
                .map(|_| {
                    let mut deaf = TcpStream::connect(at).unwrap();
                    deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
                    deaf
                })
                .collect();
            let accept = "Accept: application/openmetrics-text";
            let text = ask(at, &format!("GET /metrics HTTP/1.1\r\n{accept}\r\n\r\n"));
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text";
            assert!(text.starts_with(head));
            assert_eq!(text.matches("a 1\n").count(), 1 << 20);
            for drip in drips {
                assert!(drip.join().unwrap() < 20 * CLIENT_PATIENCE, "it was cut off");
            }
            drop(deaf);
        });
    }

    #[test]
    fn other_paths_and_methods_are_refused() {
        inside(|| {
            let at = start();
            assert!(ask(at, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
            assert!(ask(at, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        });
    }
}
