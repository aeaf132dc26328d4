//! A small web server, a character generator and a bulk peer, for testing a stack.
//!
//! Applications on the stack's own core. HTTP/1.1 (RFC 9112) as far as static pages need it: GET
//! and HEAD of `/` and of `/bytes/N`, which has N bytes; pipelined requests. A web framework runs
//! on the sockets of `tokio-sockets` instead. Chargen (RFC 864) sends without end to a peer that
//! reads. Bulk sends N bytes to a peer that writes the line `send N`, and reports to any other how
//! many bytes it received from it.
//!
//! Invariants: a request stays in the receive queue until all of it is there, so no byte is kept
//! here; what cannot be sent yet is a position in an answer; nothing is allocated for a request.
//!
//! # Under flood
//! Reachable by any peer. Bound: a connection keeps `HttpConversation`, 40 bytes, within
//! `tcp_connections_max`; a head beyond `HEAD_MAX` bytes is refused and its connection closed; a
//! slice serves connections within its budget. From a peer that does not read, nothing is read
//! either (backpressure).

use std::io::Write as _;

use floodwall_base::{Instant, Units};
use floodwall_tcp::{ConnectionId, RecvError, SendError, TcpSettings, TcpState};

use crate::host::Application;
use crate::service_listener::ServiceListener;
use crate::sockets::{Sockets, StartError};

/// Maximum length of a request's head in bytes.
const HEAD_MAX: usize = 8192;
/// Bytes that are sent at a time.
const PIECE: usize = 16_384;
/// The page at `/`.
const PAGE: &[u8] = b"<!doctype html><title>Floodwall</title><p>It works. /bytes/N has N bytes.\n";
/// Contents of chargen and of `/bytes/`, repeated: all printable characters.
const LINE: &[u8; 95] = b" !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`\
    abcdefghijklmnopqrstuvwxyz{|}~";

/// The kinds of service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamKind {
    /// Answers requests of HTTP/1.1.
    Http,
    /// Sends printable characters until the peer closes (RFC 864).
    Chargen,
    /// Sends as many bytes as the line `send N` requests, or counts the received ones.
    Bulk,
}

/// An answer that is being sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct HttpAnswer {
    status: u16,
    /// Length of the body, as the head states.
    len: u64,
    /// The body is the page.
    page: bool,
    /// Only the head is sent (HEAD).
    head_only: bool,
    close: bool,
    /// There is no head.
    bare: bool,
    /// Bytes of head and body that were taken together.
    at: u64,
}

/// State of a connection.
#[derive(Clone, Copy, Default, Debug)]
struct HttpConversation {
    id: Option<ConnectionId>,
    answer: Option<HttpAnswer>,
    /// Bytes of a request's body that are still to come.
    skip: u64,
    /// Bytes that were counted (bulk).
    taken: u64,
}

/// The next step for a connection.
enum HttpStep {
    /// More may follow at once.
    Again,
    /// Wait for an event.
    Wait,
    Close,
    Abort,
}

/// One of the services on one port, both families.
pub struct StreamService {
    kind: StreamKind,
    port: u16,
    name: String,
    door: ServiceListener,
    talks: Vec<HttpConversation>,
    input: Box<[u8]>,
    output: Box<[u8]>,
}

impl StreamService {
    /// Creates a service that will listen on `port`.
    #[must_use]
    pub fn new(kind: StreamKind, port: u16) -> Self {
        let word = match kind {
            StreamKind::Http => "http",
            StreamKind::Chargen => "tcp-chargen",
            StreamKind::Bulk => "bulk",
        };
        Self {
            kind,
            port,
            name: format!("{word}:{port}"),
            door: ServiceListener::default(),
            talks: Vec::new(),
            input: vec![0; PIECE].into(),
            output: vec![0; PIECE].into(),
        }
    }

    /// Serves a connection as far as possible now.
    fn serve(&mut self, sockets: &mut Sockets<'_>, id: ConnectionId) {
        if self.talks.len() <= id.index() {
            self.talks.resize(id.index() + 1, HttpConversation::default());
        }
        let Some(talk) = self.talks.get_mut(id.index()) else { return };
        if talk.id != Some(id) {
            *talk = HttpConversation { id: Some(id), ..HttpConversation::default() };
        }
        let mut talk = *talk;
        let outcome = loop {
            let next = match talk.answer {
                Some(answer) => self.send(sockets, id, &mut talk, answer),
                None => self.read(sockets, id, &mut talk),
            };
            if !matches!(next, HttpStep::Again) {
                break next;
            }
        };
        match outcome {
            HttpStep::Close => _ = sockets.tcp_close(id),
            HttpStep::Abort => _ = sockets.tcp_abort(id),
            HttpStep::Again | HttpStep::Wait => {}
        }
        let over = matches!(outcome, HttpStep::Close | HttpStep::Abort);
        if let Some(place) = self.talks.get_mut(id.index()) {
            *place = if over { HttpConversation::default() } else { talk };
        }
    }

    /// Sends as much of an answer as fits.
    fn send(
        &mut self,
        sockets: &mut Sockets<'_>,
        id: ConnectionId,
        talk: &mut HttpConversation,
        answer: HttpAnswer,
    ) -> HttpStep {
        if self.kind == StreamKind::Chargen {
            // Input is discarded: only the peer's close matters.
            let _ = drain(sockets, id, &mut self.input);
        }
        let piece = answer.piece(&mut self.output);
        let Some(bytes) = self.output.get(..piece).filter(|bytes| !bytes.is_empty()) else {
            talk.answer = None;
            return if answer.close { HttpStep::Close } else { HttpStep::Again };
        };
        match sockets.tcp_send(id, bytes) {
            Ok(taken) => {
                talk.answer = Some(HttpAnswer { at: answer.at + taken as u64, ..answer });
                HttpStep::Again
            }
            Err(SendError::WouldBlock) => HttpStep::Wait,
            Err(_) => HttpStep::Abort,
        }
    }

    /// Reads a request of the service's kind.
    fn read(
        &mut self,
        sockets: &mut Sockets<'_>,
        id: ConnectionId,
        talk: &mut HttpConversation,
    ) -> HttpStep {
        if self.kind == StreamKind::Chargen {
            talk.answer = Some(HttpAnswer { close: true, ..HttpAnswer::bare(u64::MAX) });
            return HttpStep::Again;
        }
        let n = match sockets.tcp_peek(id, &mut self.input) {
            Ok(0) if talk.taken > 0 => {
                let _ = sockets.tcp_send(id, told(talk.taken, &mut self.output));
                return HttpStep::Close;
            }
            Ok(0) => return HttpStep::Close,
            Ok(n) => n,
            Err(RecvError::WouldBlock) => return HttpStep::Wait,
            Err(_) => return HttpStep::Close,
        };
        let Some(bytes) = self.input.get(..n) else { return HttpStep::Abort };
        let eaten = if self.kind == StreamKind::Bulk {
            let is_over = sockets.tcp_state(id).is_ok_and(|state| state == TcpState::CloseWait);
            if talk.taken == 0 && b"send ".starts_with(bytes) && !is_over {
                // Only a part of the command: the rest follows.
                return HttpStep::Wait;
            }
            let asked = if talk.taken == 0 { asked_bulk(bytes) } else { None };
            talk.answer = asked.map(|len| HttpAnswer { close: true, ..HttpAnswer::bare(len) });
            talk.taken += n as u64;
            n
        } else if talk.skip > 0 {
            let eaten = talk.skip.min(n as u64);
            talk.skip -= eaten;
            eaten as usize
        } else {
            match request(bytes) {
                HttpRequest::Partly => {
                    let is_over = sockets.tcp_state(id).is_ok_and(|s| s == TcpState::CloseWait);
                    return if is_over { HttpStep::Abort } else { HttpStep::Wait };
                }
                HttpRequest::Wholly { head, body, answer } => {
                    talk.answer = Some(answer);
                    talk.skip = body;
                    head
                }
            }
        };
        if let Some(out) = self.input.get_mut(..eaten) {
            let _ = sockets.tcp_recv(id, out);
        }
        HttpStep::Again
    }
}

/// Discards the received bytes; whether more may follow.
fn drain(sockets: &mut Sockets<'_>, id: ConnectionId, room: &mut [u8]) -> bool {
    loop {
        match sockets.tcp_recv(id, room) {
            Ok(1..) => {}
            Err(RecvError::WouldBlock) => return true,
            _ => return false,
        }
    }
}

/// The line that reports to a bulk peer how many bytes were received.
fn told(taken: u64, out: &mut [u8]) -> &[u8] {
    let all = out.len();
    let mut rest = &mut *out;
    let _ = writeln!(rest, "received {taken}");
    let written = all - rest.len();
    out.get(..written).unwrap_or_default()
}

/// How many bytes a bulk peer requests.
fn asked_bulk(bytes: &[u8]) -> Option<u64> {
    let line = bytes.strip_prefix(b"send ")?.split(|byte| matches!(byte, b'\r' | b'\n')).next()?;
    core::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// Result of parsing the receive queue.
#[derive(PartialEq, Eq, Debug)]
enum HttpRequest {
    /// The head is incomplete.
    Partly,
    /// A head of so many bytes, followed by a body of `body` bytes.
    Wholly { head: usize, body: u64, answer: HttpAnswer },
}

/// Parses a request's head (RFC 9112 section 2.1). One pass over it.
fn request(bytes: &[u8]) -> HttpRequest {
    let refused = |status| HttpRequest::Wholly {
        head: bytes.len(),
        body: 0,
        answer: HttpAnswer { status, close: true, bare: false, ..HttpAnswer::bare(0) },
    };
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if bytes.len() >= HEAD_MAX { refused(431) } else { HttpRequest::Partly };
    };
    let Some(head) = bytes.get(..end) else { return refused(400) };
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let mut words = lines.next().unwrap_or_default().split(|byte| *byte == b' ');
    let (method, path, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(path), Some(version)) = (method, path, version) else {
        return refused(400);
    };
    if !version.starts_with(b"HTTP/1.") {
        return refused(505);
    }
    let (mut close, mut body) = (version == b"HTTP/1.0", 0);
    for line in lines {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return refused(400) };
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"connection") {
            close = value.eq_ignore_ascii_case(b"close")
                || close && !value.eq_ignore_ascii_case(b"keep-alive");
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let text = core::str::from_utf8(value).unwrap_or_default();
            let Ok(len) = text.parse() else { return refused(400) };
            body = len;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return refused(501);
        }
    }
    let head_only = method == b"HEAD";
    let (status, page, len) = if !head_only && method != b"GET" {
        (405, false, 0)
    } else if path == b"/" {
        (200, true, PAGE.len() as u64)
    } else {
        let asked = path.strip_prefix(b"/bytes/").and_then(|n| core::str::from_utf8(n).ok());
        asked.and_then(|n| n.parse().ok()).map_or((404, false, 0), |len| (200, false, len))
    };
    let answer = HttpAnswer { status, len, page, head_only, close, bare: false, at: 0 };
    HttpRequest::Wholly { head: end + 4, body, answer }
}

impl HttpAnswer {
    const fn bare(len: u64) -> Self {
        Self { status: 200, len, page: false, head_only: false, close: false, bare: true, at: 0 }
    }

    const fn reason(self) -> &'static str {
        match self.status {
            200 => "OK",
            404 => "Not Found",
            405 => "Method Not Allowed",
            431 => "Request Header Fields Too Large",
            501 => "Not Implemented",
            505 => "HTTP Version Not Supported",
            _ => "Bad Request",
        }
    }

    /// Writes the head; its length.
    fn head(self, out: &mut [u8]) -> usize {
        if self.bare {
            return 0;
        }
        let all = out.len();
        let mut rest = out;
        // Explicit in both cases: a client of HTTP/1.0 would wait for the end otherwise.
        let close = if self.close { "close" } else { "keep-alive" };
        let kind = if self.page { "text/html" } else { "application/octet-stream" };
        let _ = write!(
            rest,
            "HTTP/1.1 {} {}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\
             connection: {close}\r\n\r\n",
            self.status,
            self.reason(),
            self.len
        );
        all - rest.len()
    }

    /// Writes the next piece of head and body; its length, 0 at the end.
    fn piece(self, out: &mut [u8]) -> usize {
        let mut head = [0; 256];
        let head_len = self.head(&mut head);
        let body_len = if self.head_only { 0 } else { self.len };
        let mut done = 0;
        if let Some(rest) = head.get(self.at as usize..head_len).filter(|_| self.at < 256) {
            let (room, rest) = (out.iter_mut(), rest.iter());
            done = room.zip(rest).map(|(to, from)| *to = *from).count();
        }
        let from = (self.at + done as u64).saturating_sub(head_len as u64);
        let left = body_len.saturating_sub(from).min((out.len() - done) as u64) as usize;
        let Some(room) = out.get_mut(done..done + left) else { return done };
        let (source, first) = match self.page {
            true => (PAGE, from as usize),
            false => (&LINE[..], (from % LINE.len() as u64) as usize),
        };
        let (mut source, mut room) = (source.get(first..).unwrap_or_default(), room);
        while !room.is_empty() && !source.is_empty() {
            let (now, later) = room.split_at_mut(room.len().min(source.len()));
            now.copy_from_slice(source.get(..now.len()).unwrap_or_default());
            (source, room) = (LINE, later);
        }
        done + left
    }
}

impl Application for StreamService {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        let settings = TcpSettings { nodelay: true, ecn: true, ..TcpSettings::default() };
        self.door.open(sockets, self.port, &settings)
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, budget: Units) -> Units {
        let mut spent = 0;
        while spent < budget.0
            && let Some(id) = self.door.next(sockets)
        {
            self.serve(sockets, id);
            spent += 1;
        }
        Units(spent)
    }

    fn deadline(&self) -> Option<Instant> {
        self.door.deadline()
    }

    fn stop(&mut self, sockets: &mut Sockets<'_>) -> bool {
        self.door.shut(sockets);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(text: &str) -> (usize, u64, HttpAnswer) {
        match request(text.as_bytes()) {
            HttpRequest::Wholly { head, body, answer } => (head, body, answer),
            HttpRequest::Partly => panic!("{text:?} is whole"),
        }
    }

    fn whole(answer: HttpAnswer, step: usize) -> Vec<u8> {
        let (mut all, mut out) = (Vec::new(), vec![0; step]);
        loop {
            let n = HttpAnswer { at: all.len() as u64, ..answer }.piece(&mut out);
            if n == 0 {
                return all;
            }
            all.extend_from_slice(&out[..n]);
        }
    }

    #[test]
    fn requests_are_read_as_far_as_their_heads_go() {
        let text = "GET /bytes/3 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";
        let (head, body, answer) = answered(text);
        assert_eq!((head, body, answer.len, answer.close), (text.len() - 5, 5, 3, false));
        for end in 0..head {
            assert_eq!(request(&text.as_bytes()[..end]), HttpRequest::Partly);
        }
        assert!(answered("GET / HTTP/1.0\r\n\r\n").2.close);
        assert!(!answered("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").2.close);
        assert!(answered("GET / HTTP/1.1\r\nConnection: close\r\n\r\n").2.close);
    }

    #[test]
    fn what_cannot_be_answered_is_refused_by_number() {
        let refused = [
            ("\r\n\r\n", 400),
            ("GET /\r\n\r\n", 400),
            ("GET / SPDY/3\r\n\r\n", 505),
            ("GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
            ("POST / HTTP/1.1\r\n\r\n", 405),
            ("GET /nothing HTTP/1.1\r\n\r\n", 404),
            ("GET /bytes/99999999999999999999 HTTP/1.1\r\n\r\n", 404),
        ];
        for (text, status) in refused {
            assert_eq!(answered(text).2.status, status, "{text:?}");
        }
        assert_eq!(answered(&"x".repeat(HEAD_MAX)).2.status, 431);
    }

    #[test]
    fn an_answer_is_the_same_in_pieces_of_any_size() {
        for text in ["GET /bytes/9999 HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"] {
            let answer = answered(text).2;
            let all = whole(answer, 20_000);
            let head = answer.head(&mut [0; 256]);
            assert_eq!(all.len() as u64, head as u64 + answer.len);
            let line = |(at, byte): (usize, &u8)| *byte == b' ' + (at % LINE.len()) as u8;
            assert!(answer.page || all[head..].iter().enumerate().all(line));
            assert!(!answer.page || &all[head..] == PAGE);
            for step in [1, 7, 64, 255, 2000, 5000] {
                assert!(whole(answer, step) == all, "in pieces of {step}");
            }
        }
        let head = whole(answered("HEAD /bytes/1000 HTTP/1.1\r\n\r\n").2, 100);
        assert!(head.ends_with(b"\r\n\r\n"));
        assert_eq!(asked_bulk(b"send 12\n"), Some(12));
        assert_eq!(asked_bulk(b"sent"), None);
    }
}
