//! The metrics over HTTP, on the host's own kernel: one thread, one client after the other.
//!
//! Started by `run --metrics ADDRESS`. Apart from the packet path: it asks the workers as the
//! control socket does.
//!
//! # Under flood
//! Any host that reaches the address is served: bind one that only the collector can reach.
//! Bound: one client at a time, [`CLIENT_PATIENCE`] for each, [`HEAD_MAX`] bytes of request; the
//! system queues others. A client that drips or never reads is cut off and keeps others waiting for
//! that long. One document a [`ASK_INTERVAL`] at most: faster clients get the last one again.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use floodwall_base::Instant;
use floodwall_dispatch::Clock;

use super::format::MetricsFormat;

/// How long a client may take, from its connection to the end of the answer.
const CLIENT_PATIENCE: Duration = Duration::from_secs(2);
/// How long one read or write may wait.
const IO_TIMEOUT: Duration = Duration::from_millis(250);
/// Bytes of the longest request head.
const HEAD_MAX: usize = 8 << 10;
/// The workers are asked so often at most.
const ASK_INTERVAL: Duration = Duration::from_millis(100);

/// Serves until the listener fails; `make` gives the document.
pub(crate) fn serve(listener: &TcpListener, mut make: impl FnMut(MetricsFormat) -> Option<String>) {
    let clock = Clock::new();
    let mut last: Option<(Instant, MetricsFormat, String)> = None;
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let until = clock.now() + CLIENT_PATIENCE;
        // A client that fails is its own affair.
        let _ = answer(&mut stream, &clock, until, |format| {
            let now = clock.now();
            if let Some((at, kept, text)) = &last
                && *kept == format
                && now - *at < ASK_INTERVAL
            {
                return Some(text.clone());
            }
            let text = make(format)?;
            last = Some((now, format, text.clone()));
            Some(text)
        });
    }
}

fn answer(
    stream: &mut TcpStream,
    clock: &Clock,
    until: Instant,
    make: impl FnOnce(MetricsFormat) -> Option<String>,
) -> io::Result<()> {
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    let head = read_head(stream, clock, until)?;
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
    fn a_client_that_drips_or_never_reads_holds_others_up_for_a_bounded_time() {
        inside(|| {
            let at = start();
            // A byte every 50 ms, for as long as it is served.
            let mut drip = TcpStream::connect(at).unwrap();
            drip.write_all(b"GET /met").unwrap();
            let mut more = drip.try_clone().unwrap();
            let dripping = std::thread::spawn(move || {
                let begun = Clock::new().now();
                while more.write_all(b"r").is_ok()
                    && Clock::new().now() - begun < 10 * CLIENT_PATIENCE
                {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Clock::new().now() - begun
            });
            let mut deaf = TcpStream::connect(at).unwrap();
            deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            let accept = "Accept: application/openmetrics-text";
            let text = ask(at, &format!("GET /metrics HTTP/1.1\r\n{accept}\r\n\r\n"));
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text";
            assert!(text.starts_with(head));
            assert_eq!(text.matches("a 1\n").count(), 1 << 20);
            assert!(dripping.join().unwrap() < 10 * CLIENT_PATIENCE, "it was cut off");
            drop((drip, deaf));
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
