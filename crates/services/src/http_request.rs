//! `RequestParser`: the head of an HTTP/1.1 request, byte by byte.
//!
//! Called by `http_service.rs` with what has arrived; each byte is looked at once, however the peer
//! cuts its request into segments. Strict where a lenient reader and another one could disagree on
//! where a request ends (request smuggling): RFC 9112 sections 2.2, 5 and 6. Invariants: the state
//! has a fixed size and holds one word of the head at most; no input makes it panic; what follows
//! the head is not consumed.

/// Maximum length of a request's head in bytes.
pub(crate) const HEAD_MAX: u16 = 8192;
/// The longest word that means anything here: `/bytes/` and a number of 64 bits.
const WORD_MAX: usize = 27;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum RequestTarget {
    /// `/`.
    Page,
    /// `/bytes/N`.
    Bytes(u64),
    /// Anything else.
    #[default]
    Unknown,
}

/// The methods that are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum RequestMethod {
    Get,
    Head,
    #[default]
    Other,
}

/// A request with a complete head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestHead {
    pub(crate) method: RequestMethod,
    pub(crate) target: RequestTarget,
    /// The connection ends with the answer.
    pub(crate) close: bool,
    /// Bytes of the body that follows.
    pub(crate) body: u64,
}

/// What the bytes so far are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ParsedRequest {
    /// The head is incomplete.
    Partly,
    /// The head is complete.
    Wholly(RequestHead),
    /// It is refused with this status, and the connection with it: where the next request begins is
    /// unknown.
    Refused(u16),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum ParserState {
    #[default]
    Method,
    Target,
    Version,
    /// Behind the carriage return of a line.
    LineEnd,
    LineStart,
    Name,
    /// Blanks before a value.
    Blanks,
    Value,
    /// Behind the carriage return of the empty line.
    HeadEnd,
}

/// The fields that mean something here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum HeaderField {
    #[default]
    Other,
    Connection,
    ContentLength,
    TransferEncoding,
}

/// A word of the head: cut where it is longer than any that means something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct HeadWord {
    bytes: [u8; WORD_MAX],
    len: u8,
    is_cut: bool,
}

impl HeadWord {
    fn push(&mut self, byte: u8) {
        match self.bytes.get_mut(usize::from(self.len)) {
            Some(place) => (*place, self.len) = (byte, self.len + 1),
            None => self.is_cut = true,
        }
    }

    /// The word without blanks around it; nothing where it was cut.
    fn get(&self) -> &[u8] {
        let whole = if self.is_cut { 0 } else { usize::from(self.len) };
        self.bytes.get(..whole).unwrap_or_default().trim_ascii()
    }

    const fn clear(&mut self) {
        (self.len, self.is_cut) = (0, false);
    }

    /// A number: digits only (RFC 9110 section 8.6).
    fn number(&self) -> Option<u64> {
        let digits = self.get();
        let are_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        core::str::from_utf8(digits).ok().filter(|_| are_digits)?.parse().ok()
    }
}

/// The state of a head that is being parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RequestParser {
    state: ParserState,
    field: HeaderField,
    word: HeadWord,
    /// Bytes of the head so far.
    bytes: u16,
    method: RequestMethod,
    target: RequestTarget,
    is_old: bool,
    says_close: bool,
    says_keep: bool,
    has_coding: bool,
    length: Option<u64>,
}

/// The end of the head, or its refusal.
type Step = Result<bool, u16>;

impl RequestParser {
    /// Takes bytes up to the end of the head. Returns how many of them it took, and what the
    /// request is so far. To be made anew after anything but [`ParsedRequest::Partly`].
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> (usize, ParsedRequest) {
        for (at, byte) in bytes.iter().enumerate() {
            self.bytes += 1;
            let step = if self.bytes > HEAD_MAX { Err(431) } else { self.step(*byte) };
            match step {
                Ok(false) => {}
                Ok(true) => return (at + 1, self.whole()),
                Err(status) => return (at + 1, ParsedRequest::Refused(status)),
            }
        }
        (bytes.len(), ParsedRequest::Partly)
    }

    /// Whether not a byte of a request has come.
    pub(crate) const fn is_fresh(&self) -> bool {
        self.bytes == 0
    }

    fn step(&mut self, byte: u8) -> Step {
        match (self.state, byte) {
            (ParserState::Method, b' ') if self.word.len > 0 => self.end_method(),
            (ParserState::Target, b' ') if self.word.len > 0 => self.end_target(),
            (ParserState::Version, b'\r') => self.end_version()?,
            (ParserState::Method | ParserState::Name, _) if is_token(byte) => self.word.push(byte),
            (ParserState::Target | ParserState::Version, 0x21..=0x7e) => self.word.push(byte),
            (ParserState::LineEnd, b'\n') => self.state = ParserState::LineStart,
            (ParserState::LineStart, b'\r') => self.state = ParserState::HeadEnd,
            // A blank here would continue the line before (section 5.2).
            (ParserState::LineStart, _) if is_token(byte) => {
                self.state = ParserState::Name;
                self.word.push(byte);
            }
            // A blank before the colon is in none of these arms (section 5.1).
            (ParserState::Name, b':') => self.end_name(),
            (ParserState::Blanks, b' ' | b'\t') => {}
            (ParserState::Blanks | ParserState::Value, b'\r') => self.end_value()?,
            (ParserState::Value, b',') if self.field == HeaderField::Connection => {
                self.end_option();
            }
            (ParserState::Blanks | ParserState::Value, b' ' | b'\t' | 0x21..=0x7e | 0x80..) => {
                self.state = ParserState::Value;
                self.word.push(byte);
            }
            (ParserState::HeadEnd, b'\n') => return Ok(true),
            _ => return Err(400),
        }
        Ok(false)
    }

    fn end_method(&mut self) {
        self.method = match self.word.get() {
            b"GET" => RequestMethod::Get,
            b"HEAD" => RequestMethod::Head,
            _ => RequestMethod::Other,
        };
        self.next(ParserState::Target);
    }

    fn end_target(&mut self) {
        let word = self.word.get();
        self.target = if word == b"/" {
            RequestTarget::Page
        } else {
            let number = word.strip_prefix(b"/bytes/").filter(|n| n.iter().all(u8::is_ascii_digit));
            let number = number.and_then(|n| core::str::from_utf8(n).ok()?.parse().ok());
            number.map_or(RequestTarget::Unknown, RequestTarget::Bytes)
        };
        self.next(ParserState::Version);
    }

    fn end_version(&mut self) -> Result<(), u16> {
        match self.word.get().strip_prefix(b"HTTP/1.") {
            Some([minor]) if minor.is_ascii_digit() => self.is_old = *minor == b'0',
            _ => return Err(505),
        }
        self.next(ParserState::LineEnd);
        Ok(())
    }

    fn end_name(&mut self) {
        let name = self.word.get();
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        self.field = if is(b"connection") {
            HeaderField::Connection
        } else if is(b"content-length") {
            HeaderField::ContentLength
        } else if is(b"transfer-encoding") {
            HeaderField::TransferEncoding
        } else {
            HeaderField::Other
        };
        self.next(ParserState::Blanks);
    }

    fn end_value(&mut self) -> Result<(), u16> {
        match self.field {
            HeaderField::Connection => self.end_option(),
            HeaderField::TransferEncoding => self.has_coding = true,
            HeaderField::ContentLength => {
                let length = self.word.number().ok_or(400_u16)?;
                // The same once more does no harm (section 6.3).
                if self.length.is_some_and(|before| before != length) {
                    return Err(400);
                }
                self.length = Some(length);
            }
            HeaderField::Other => {}
        }
        self.next(ParserState::LineEnd);
        Ok(())
    }

    /// One option of a `Connection` field.
    fn end_option(&mut self) {
        let word = self.word.get();
        self.says_close |= word.eq_ignore_ascii_case(b"close");
        self.says_keep |= word.eq_ignore_ascii_case(b"keep-alive");
        self.word.clear();
    }

    const fn next(&mut self, state: ParserState) {
        self.state = state;
        self.word.clear();
    }

    fn whole(&self) -> ParsedRequest {
        if self.has_coding {
            // With a length, or of a version without codings, its end is ambiguous (section 6.1).
            let is_ambiguous = self.length.is_some() || self.is_old;
            return ParsedRequest::Refused(if is_ambiguous { 400 } else { 501 });
        }
        ParsedRequest::Wholly(RequestHead {
            method: self.method,
            target: self.target,
            close: self.says_close || self.is_old && !self.says_keep,
            body: self.length.unwrap_or(0),
        })
    }
}

/// A byte of a token (RFC 9110 section 5.6.2).
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> (usize, ParsedRequest) {
        RequestParser::default().feed(text)
    }

    fn head(text: &str) -> RequestHead {
        match parse(text.as_bytes()) {
            (_, ParsedRequest::Wholly(head)) => head,
            (_, other) => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn a_request_ends_with_its_head_however_it_is_cut() {
        let text = b"GET /bytes/3 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";
        let whole = parse(text);
        let (method, target) = (RequestMethod::Get, RequestTarget::Bytes(3));
        let expected = RequestHead { method, target, close: false, body: 5 };
        assert_eq!(whole, (text.len() - 5, ParsedRequest::Wholly(expected)));
        for cut in 1..text.len() - 5 {
            let mut parser = RequestParser::default();
            assert_eq!(parser.feed(&text[..cut]), (cut, ParsedRequest::Partly));
            let (taken, parsed) = parser.feed(&text[cut..]);
            assert_eq!((cut + taken, parsed), whole, "cut at {cut}");
        }
        let mut parser = RequestParser::default();
        let each = text.iter().map(|byte| parser.feed(&[*byte]).1);
        let last = each.take(whole.0).last().unwrap();
        assert_eq!(last, whole.1, "byte by byte");
    }

    #[test]
    fn the_end_of_a_connection_is_read_of_version_and_options() {
        assert!(head("GET / HTTP/1.0\r\n\r\n").close);
        assert!(!head("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").close);
        assert!(head("GET / HTTP/1.1\r\nConnection: close\r\n\r\n").close);
        assert!(
            head("GET / HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings , close \r\n\r\n").close
        );
        assert!(!head("GET / HTTP/1.1\r\nConnection: closed\r\n\r\n").close);
        assert!(!head("GET / HTTP/1.1\r\nX: close\r\n\r\n").close);
        assert_eq!(head("HEAD / HTTP/1.1\r\n\r\n").method, RequestMethod::Head);
        assert_eq!(head("HEADS / HTTP/1.1\r\n\r\n").method, RequestMethod::Other);
        assert_eq!(head("GET /bytes/+5 HTTP/1.1\r\n\r\n").target, RequestTarget::Unknown);
    }

    #[test]
    fn what_two_readers_could_read_in_two_ways_is_refused() {
        let refused: [(&str, u16); 25] = [
            ("Content-Length: 5\r\nContent-Length: 6\r\n", 400),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", 200),
            ("Content-Length: 5, 5\r\n", 400),
            ("Content-Length: +5\r\n", 400),
            ("Content-Length: -1\r\n", 400),
            ("Content-Length: 0x5\r\n", 400),
            ("Content-Length: 5 5\r\n", 400),
            ("Content-Length:\r\n", 400),
            ("Content-Length: 18446744073709551616\r\n", 400),
            ("Content-Length: 00000000000000000000000000000005\r\n", 400),
            ("Content-Length : 5\r\n", 400),
            ("Content-Length\t: 5\r\n", 400),
            (" Content-Length: 5\r\n", 400),
            ("X: a\r\n b\r\n", 400),
            ("X: a\r\n\tb\r\n", 400),
            ("X: a\nContent-Length: 5\r\n", 400),
            ("X: a\rContent-Length: 5\r\n", 400),
            ("X: a\0b\r\n", 400),
            (": a\r\n", 400),
            ("no colon\r\n", 400),
            ("Transfer-Encoding: chunked\r\n", 501),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400),
            ("Content-Length: 5\r\ntransfer-encoding: identity\r\n", 400),
            ("Content-Length: 5\r\nTransfer-Encoding:\r\n", 400),
            ("X-Y: \u{fc}ber \r\n", 200),
        ];
        for (fields, status) in refused {
            for version in ["HTTP/1.1", "HTTP/1.0"] {
                let parsed = parse(format!("POST / {version}\r\n{fields}\r\n").as_bytes()).1;
                let found = match parsed {
                    ParsedRequest::Wholly(_) => 200,
                    ParsedRequest::Refused(status) => status,
                    ParsedRequest::Partly => 0,
                };
                // Version 1.0 has no codings.
                let expected = if version == "HTTP/1.0" && status == 501 { 400 } else { status };
                assert_eq!(found, expected, "{version}: {fields:?}");
            }
        }
    }

    #[test]
    fn request_lines_that_are_none_are_refused() {
        let refused: [(&str, u16); 12] = [
            ("\r\n\r\n", 400),
            ("GET /\r\n\r\n", 400),
            (" GET / HTTP/1.1\r\n\r\n", 400),
            ("GET  / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1 \r\n\r\n", 400),
            ("GET\t/ HTTP/1.1\r\n\r\n", 400),
            ("G(T / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\n\n", 400),
            ("GET / SPDY/3\r\n\r\n", 505),
            ("GET / HTTP/2.0\r\n\r\n", 505),
            ("GET / HTTP/1.10\r\n\r\n", 505),
            ("GET / http/1.1\r\n\r\n", 505),
        ];
        for (text, status) in refused {
            assert_eq!(parse(text.as_bytes()).1, ParsedRequest::Refused(status), "{text:?}");
        }
        let endless = format!("GET /{}", "x".repeat(usize::from(HEAD_MAX)));
        let (taken, parsed) = parse(endless.as_bytes());
        assert_eq!((taken, parsed), (usize::from(HEAD_MAX) + 1, ParsedRequest::Refused(431)));
    }
}
