//! What a program sets on an open connection, in one word of its slot.
//!
//! Written by the program, which then rings; the worker applies what differs from before.

use floodwall_tcp::Settings;

/// Small segments leave at once.
const NODELAY: u32 = 1;
/// A silent peer is asked.
const KEEPALIVE: u32 = 2;
const HOP_LIMIT_AT: u32 = 8;

/// See the file's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::remote) struct Options {
    pub(in crate::remote) nodelay: bool,
    pub(in crate::remote) keepalive: bool,
    /// The interface's where there is none.
    pub(in crate::remote) hop_limit: Option<u8>,
}

impl Options {
    pub(in crate::remote) fn of(settings: &Settings) -> Self {
        let Settings { nodelay, hop_limit, keepalive, .. } = settings;
        Self { nodelay: *nodelay, keepalive: keepalive.is_some(), hop_limit: *hop_limit }
    }

    pub(in crate::remote) fn word(self) -> u32 {
        let hops = u32::from(self.hop_limit.unwrap_or(0)) << HOP_LIMIT_AT;
        hops | if self.nodelay { NODELAY } else { 0 } | if self.keepalive { KEEPALIVE } else { 0 }
    }

    pub(in crate::remote) fn from_word(word: u32) -> Self {
        Self {
            nodelay: word & NODELAY != 0,
            keepalive: word & KEEPALIVE != 0,
            hop_limit: Some((word >> HOP_LIMIT_AT) as u8).filter(|limit| *limit != 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for hop_limit in [None, Some(1), Some(255)] {
            for (nodelay, keepalive) in [(false, true), (true, false)] {
                let options = Options { nodelay, keepalive, hop_limit };
                assert_eq!(Options::from_word(options.word()), options);
            }
        }
    }
}
