//! A small web server, a character generator and a bulk peer, for testing a stack.
//!
//! Applications on the stack's own core. HTTP/1.1 (RFC 9112) as far as static pages need it: GET
//! and HEAD of `/` and of `/bytes/N`, which has N bytes; pipelined requests. A web framework runs
//! on the sockets of `tokio-sockets` instead. Chargen (RFC 864) sends without end to a peer that
//! reads. Bulk sends N bytes to a peer that writes the line `send N`, and reports to any other how
//! many bytes it received from it.
//!
//! Invariants: a byte of a request is looked at once, when it has come (`http_request.rs`); what
//! cannot be sent yet is a position in an answer; nothing is allocated for a request; connections
//! get turns (`ready_queue.rs`), however many requests one of them sends at once.
//!
//! # Under flood
//! Reachable by any peer. Bound: a connection keeps `HttpConversation`, 40 bytes, within
//! `tcp_connections_max`; a head beyond `HEAD_MAX` bytes is refused and its connection closed; a
//! slice serves connections within its budget. From a peer that does not read, nothing is read
//! either (backpressure).

use core::mem::take;
use core::time::Duration;
use std::io::Write as _;

use floodwall_base::{Instant, Units};
use floodwall_stack::{Application, Sockets, StartError};
use floodwall_tcp::{ConnectionId, Keepalive, RecvError, SendError, TcpSettings, TcpState};

use crate::http_request::{
    ParsedRequest, RequestHead, RequestMethod, RequestParser, RequestTarget,
};
use crate::ready_queue::{ServedTurn, copied};
use crate::service_listener::ServiceListener;

/// Bytes of requests that are looked at together.
const LOOK_BYTES: usize = 1024;
/// Units that a whole request costs beside what is copied.
const REQUEST_UNITS: u32 = 2;
/// Bytes that are sent at a time, at most and at least.
const PIECE_BYTES: usize = 16_384;
const PIECE_MIN: usize = 2048;
/// The page at `/`.
const INDEX_PAGE: &[u8] =
    b"<!doctype html><title>Floodwall</title><p>It works. /bytes/N has N bytes.\n";
/// Contents of chargen and of `/bytes/`, repeated: all printable characters.
const CHARGEN_LINE: &[u8; 95] =
    b" !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`\
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
    /// The head that is coming.
    head: RequestParser,
    /// The last request was refused: what follows means nothing.
    refused: bool,
    /// How often the pieces that are sent have been halved: where a connection takes little at a
    /// time, not much more is made for it.
    halved: u8,
}

const _: () = assert!(size_of::<HttpConversation>() <= 192);

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
    listener: ServiceListener,
    /// Units spent in the turn that runs.
    spent: u32,
    talks: Vec<HttpConversation>,
    settings: TcpSettings,
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
            listener: ServiceListener::default(),
            spent: 0,
            talks: Vec::new(),
            settings: TcpSettings { nodelay: true, ecn: true, ..TcpSettings::default() },
            input: vec![0; PIECE_BYTES].into(),
            output: vec![0; PIECE_BYTES].into(),
        }
    }

    /// The same with connections that are evicted once they have been idle for so long, or never
    /// (see [`TcpSettings::evict_idle_after`]).
    #[must_use]
    pub fn evict_idle_after(mut self, idle: Option<Duration>) -> Self {
        self.settings.evict_idle_after = idle;
        self
    }

    /// The same with connections that are probed once they have been silent for so long, and end
    /// where nothing answers (see [`TcpSettings::keepalive`]).
    #[must_use]
    pub const fn keepalive(mut self, keepalive: Option<Keepalive>) -> Self {
        self.settings.keepalive = keepalive;
        self
    }

    /// Serves a connection within its quantum.
    fn serve(&mut self, sockets: &mut Sockets<'_>, id: ConnectionId, quantum: u32) -> ServedTurn {
        self.spent = 0;
        let Some(talk) = self.talks.get_mut(id.index()) else {
            return ServedTurn { spent: 0, more: false };
        };
        if talk.id != Some(id) {
            *talk = HttpConversation { id: Some(id), ..HttpConversation::default() };
        }
        let mut talk = *talk;
        let outcome = loop {
            let next = match talk.answer {
                Some(answer) => self.send(sockets, id, &mut talk, answer),
                None => self.read(sockets, id, &mut talk),
            };
            if !matches!(next, HttpStep::Again) || self.spent >= quantum {
                break next;
            }
        };
        let outcome = match outcome {
            HttpStep::Wait if sockets.is_draining() && self.is_idle(&talk) => HttpStep::Close,
            other => other,
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
        ServedTurn { spent: self.spent, more: matches!(outcome, HttpStep::Again) }
    }

    /// Whether a connection has nothing that must be finished before the host stops.
    fn is_idle(&self, talk: &HttpConversation) -> bool {
        match self.kind {
            StreamKind::Http => talk.answer.is_none(),
            // It has no end.
            StreamKind::Chargen => true,
            StreamKind::Bulk => talk.answer.is_none() && talk.taken == 0,
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
            self.discard(sockets, id);
        }
        let most = (PIECE_BYTES >> talk.halved).max(PIECE_MIN);
        let piece = answer.piece(self.output.get_mut(..most).unwrap_or_default());
        self.spent += 1 + copied(piece);
        let bytes = self.output.get(..piece).unwrap_or_default();
        let sent = if bytes.is_empty() { Ok(0) } else { sockets.tcp_send(id, bytes) };
        talk.note_taken(sent.unwrap_or(0), most);
        match sent {
            // Shorter than what there is room for: it is the last piece.
            Ok(taken) if taken == piece && piece < most => {
                talk.answer = None;
                if talk.refused {
                    // Unread data would reset the connection, and the answer with it.
                    self.discard(sockets, id);
                }
                if answer.close { HttpStep::Close } else { HttpStep::Again }
            }
            Ok(taken) => {
                talk.answer = Some(HttpAnswer { at: answer.at + taken as u64, ..answer });
                // Where it did not take all, an event follows once there is room.
                if taken < piece { HttpStep::Wait } else { HttpStep::Again }
            }
            Err(SendError::WouldBlock) => HttpStep::Wait,
            Err(_) => HttpStep::Abort,
        }
    }

    /// Discards received bytes, one piece at most.
    fn discard(&mut self, sockets: &mut Sockets<'_>, id: ConnectionId) {
        self.spent += copied(sockets.tcp_recv(id, &mut self.input).unwrap_or(0));
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
        let look =
            if self.kind == StreamKind::Http && talk.skip == 0 { LOOK_BYTES } else { PIECE_BYTES };
        let room = self.input.get_mut(..look).unwrap_or_default();
        let n = match sockets.tcp_peek(id, room) {
            Ok(n @ 1..) => n,
            Ok(_) if self.kind == StreamKind::Bulk && talk.taken > 0 => {
                let _ = sockets.tcp_send(id, told(talk.taken, &mut self.output));
                return HttpStep::Close;
            }
            // The peer's end in the middle of a request.
            Ok(_) if talk.skip > 0 || !talk.head.is_fresh() => return HttpStep::Abort,
            Err(RecvError::WouldBlock) => {
                self.spent += 1;
                return HttpStep::Wait;
            }
            _ => return HttpStep::Close,
        };
        self.spent += 1 + copied(n);
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
            let (eaten, parsed) = talk.head.feed(bytes);
            match parsed {
                ParsedRequest::Partly => {}
                ParsedRequest::Wholly(head) => talk.begin_answer(HttpAnswer::to(&head), head.body),
                ParsedRequest::Refused(status) => {
                    talk.begin_answer(HttpAnswer::refusal(status), 0);
                    talk.refused = true;
                }
            }
            self.spent += if talk.answer.is_some() { REQUEST_UNITS } else { 0 };
            eaten
        };
        if let Some(out) = self.input.get_mut(..eaten) {
            let _ = sockets.tcp_recv(id, out);
        }
        HttpStep::Again
    }
}

impl HttpConversation {
    /// The connection has taken so many bytes of `most`.
    const fn note_taken(&mut self, taken: usize, most: usize) {
        if taken >= most {
            self.halved = self.halved.saturating_sub(1);
        } else if taken < most / 2 && most > PIECE_MIN {
            self.halved += 1;
        }
    }

    /// A request is complete.
    fn begin_answer(&mut self, answer: HttpAnswer, body: u64) {
        (self.answer, self.skip) = (Some(answer), body);
        self.head = RequestParser::default();
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

impl HttpAnswer {
    const fn bare(len: u64) -> Self {
        Self { status: 200, len, page: false, head_only: false, close: false, bare: true, at: 0 }
    }

    /// The answer to a request.
    fn to(head: &RequestHead) -> Self {
        let head_only = head.method == RequestMethod::Head;
        let (status, page, len) = match (head.method, head.target) {
            (RequestMethod::Other, _) => (405, false, 0),
            (_, RequestTarget::Page) => (200, true, INDEX_PAGE.len() as u64),
            (_, RequestTarget::Bytes(len)) => (200, false, len),
            (_, RequestTarget::Unknown) => (404, false, 0),
        };
        Self { status, len, page, head_only, close: head.close, bare: false, at: 0 }
    }

    const fn refusal(status: u16) -> Self {
        Self { status, close: true, bare: false, ..Self::bare(0) }
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
            true => (INDEX_PAGE, from as usize),
            false => (&CHARGEN_LINE[..], (from % CHARGEN_LINE.len() as u64) as usize),
        };
        let (mut source, mut room) = (source.get(first..).unwrap_or_default(), room);
        while !room.is_empty() && !source.is_empty() {
            let (now, later) = room.split_at_mut(room.len().min(source.len()));
            now.copy_from_slice(source.get(..now.len()).unwrap_or_default());
            (source, room) = (CHARGEN_LINE, later);
        }
        done + left
    }
}

impl Application for StreamService {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        self.talks.resize(sockets.tcp_places_max(), HttpConversation::default());
        self.listener.open(sockets, self.port, &self.settings)
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, budget: Units) -> Units {
        let mut listener = take(&mut self.listener);
        let spent =
            listener.run(sockets, budget, |sockets, id, quantum| self.serve(sockets, id, quantum));
        self.listener = listener;
        spent
    }

    fn deadline(&self) -> Option<Instant> {
        self.listener.deadline()
    }

    fn stop(&mut self, sockets: &mut Sockets<'_>) -> bool {
        self.listener.shut(sockets);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(text: &str) -> HttpAnswer {
        match RequestParser::default().feed(text.as_bytes()).1 {
            ParsedRequest::Wholly(head) => HttpAnswer::to(&head),
            ParsedRequest::Refused(status) => HttpAnswer::refusal(status),
            ParsedRequest::Partly => panic!("{text:?} is whole"),
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
    fn what_cannot_be_answered_is_refused_by_number() {
        let refused = [
            ("GET / SPDY/3\r\n\r\n", 505, true),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 501, true),
            ("POST / HTTP/1.1\r\n\r\n", 405, false),
            ("GET /nothing HTTP/1.1\r\n\r\n", 404, false),
            ("GET /bytes/99999999999999999999 HTTP/1.1\r\n\r\n", 404, false),
        ];
        for (text, status, close) in refused {
            let answer = answered(text);
            assert_eq!((answer.status, answer.close), (status, close), "{text:?}");
        }
    }

    #[test]
    fn an_answer_is_the_same_in_pieces_of_any_size() {
        for text in ["GET /bytes/9999 HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"] {
            let answer = answered(text);
            let all = whole(answer, 20_000);
            let head = answer.head(&mut [0; 256]);
            assert_eq!(all.len() as u64, head as u64 + answer.len);
            let line = |(at, byte): (usize, &u8)| *byte == b' ' + (at % CHARGEN_LINE.len()) as u8;
            assert!(answer.page || all[head..].iter().enumerate().all(line));
            assert!(!answer.page || &all[head..] == INDEX_PAGE);
            for step in [1, 7, 64, 255, 2000, 5000] {
                assert!(whole(answer, step) == all, "in pieces of {step}");
            }
        }
        let head = whole(answered("HEAD /bytes/1000 HTTP/1.1\r\n\r\n"), 100);
        assert!(head.ends_with(b"\r\n\r\n"));
        assert_eq!(asked_bulk(b"send 12\n"), Some(12));
        assert_eq!(asked_bulk(b"sent"), None);
    }
}
