//! One conversation of HTTP/1.1, the same for every server: a request ends where its head does, and
//! its answer is prepared bytes.
//!
//! The path `/` is the small page, any other the large one; a client of HTTP/1.0 is answered and
//! its connection closed.

use std::io::{ErrorKind, Read, Write};

/// Bytes of the bodies.
pub(crate) const BODIES: [usize; 2] = [128, 16 * 1024];
/// Bytes that are read at a time.
pub(crate) const PIECE: usize = 16_384;

/// The answers, heads and all.
pub(crate) struct Pages([Vec<u8>; 2]);

impl Pages {
    pub(crate) fn new() -> Self {
        Self(BODIES.map(|len| {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
                 Content-Length: {len}\r\n\r\n"
            );
            let body = (0..len).map(|n| b'a' + (n % 23) as u8);
            head.into_bytes().into_iter().chain(body).collect()
        }))
    }

    pub(crate) fn answer(&self, page: usize) -> &[u8] {
        &self.0[page]
    }
}

/// What comes next for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Something has to come first.
    Read,
    /// There has to be room first.
    Write,
    /// It is to be closed.
    Close,
}

/// What is known of a connection.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Talk {
    /// Bytes of the request so far, and of the empty line at its end.
    len: usize,
    matched: u8,
    last: u8,
    large: bool,
    close: bool,
    /// A whole request came, and so much of its answer was taken.
    answered: Option<usize>,
}

impl Talk {
    /// Reads on in a request; returns the requested page once all of it is there.
    pub(crate) fn hear(&mut self, bytes: &[u8]) -> Option<usize> {
        for byte in bytes {
            self.matched = match (byte, self.matched) {
                (b'\r', 0 | 2) | (b'\n', 1 | 3) => self.matched + 1,
                (b'\r', _) => 1,
                _ => 0,
            };
            match self.len {
                // Behind `GET /`.
                5 => self.large = *byte != b' ',
                // The first line ends with the version.
                _ if self.matched == 1 && self.len < PIECE => {
                    self.close = self.last == b'0';
                    self.len = PIECE;
                }
                _ => {}
            }
            (self.last, self.len) = (*byte, self.len + 1);
        }
        if self.matched != 4 {
            return None;
        }
        (self.matched, self.len) = (0, 0);
        Some(self.large.into())
    }

    /// Whether an answer is on its way.
    pub(crate) fn is_answering(&self) -> bool {
        self.answered.is_some()
    }

    /// Whether the connection ends with this answer.
    pub(crate) fn closes(&self) -> bool {
        self.close
    }

    /// Serves the connection as far as it goes now. `to_the_end`: readiness is edge-triggered, so
    /// reading ends only where nothing is left.
    pub(crate) fn serve(
        &mut self,
        stream: &mut (impl Read + Write),
        pages: &Pages,
        buffer: &mut [u8],
        to_the_end: bool,
    ) -> Next {
        loop {
            if let Some(at) = self.answered {
                let answer = pages.answer(self.large.into());
                match stream.write(&answer[at..]) {
                    Ok(taken) if at + taken < answer.len() => self.answered = Some(at + taken),
                    Ok(_) if self.close => return Next::Close,
                    Ok(_) if !to_the_end => {
                        self.answered = None;
                        return Next::Read;
                    }
                    Ok(_) => self.answered = None,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Write,
                    Err(_) => return Next::Close,
                }
                continue;
            }
            match stream.read(buffer) {
                Ok(0) => return Next::Close,
                Ok(n) => self.answered = self.hear(&buffer[..n]).map(|_| 0),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Read,
                Err(_) => return Next::Close,
            }
        }
    }
}
