//! What a program sets on an open connection, in one word of its slot.
//!
//! Written by the program, which then rings; the worker applies what differs from before.

use floodwall_tcp::TcpSettings;

/// Small segments leave at once.
const NODELAY: u32 = 1;
/// An idle peer is probed (keepalive).
const KEEPALIVE: u32 = 2;
/// Less than a full segment waits.
const CORK: u32 = 4;
const HOP_LIMIT_AT: u32 = 8;
const CLASS_AT: u32 = 16;

/// The options of an open connection that a program may change, packed into one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct StreamOptions {
    pub(crate) nodelay: bool,
    pub(crate) keepalive: bool,
    pub(crate) cork: bool,
    /// The interface's where there is none.
    pub(crate) hop_limit: Option<u8>,
    pub(crate) traffic_class: u8,
}

impl StreamOptions {
    pub(crate) fn of(settings: &TcpSettings) -> Self {
        Self {
            nodelay: settings.nodelay,
            keepalive: settings.keepalive.is_some(),
            cork: settings.cork,
            hop_limit: settings.hop_limit,
            traffic_class: settings.traffic_class,
        }
    }

    pub(crate) fn word(self) -> u32 {
        let hops = u32::from(self.hop_limit.unwrap_or(0)) << HOP_LIMIT_AT;
        let class = u32::from(self.traffic_class) << CLASS_AT;
        let bit = |on, bit| if on { bit } else { 0 };
        let flags = bit(self.nodelay, NODELAY) | bit(self.keepalive, KEEPALIVE);
        class | hops | flags | bit(self.cork, CORK)
    }

    pub(crate) fn from_word(word: u32) -> Self {
        Self {
            nodelay: word & NODELAY != 0,
            keepalive: word & KEEPALIVE != 0,
            cork: word & CORK != 0,
            hop_limit: Some((word >> HOP_LIMIT_AT) as u8).filter(|limit| *limit != 0),
            traffic_class: (word >> CLASS_AT) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (hop_limit, traffic_class) in [(None, 255), (Some(1), 0), (Some(255), 0xb8)] {
            for at in 0..3 {
                let (nodelay, keepalive, cork) = (at == 0, at == 1, at == 2);
                let options = StreamOptions { nodelay, keepalive, cork, hop_limit, traffic_class };
                assert_eq!(StreamOptions::from_word(options.word()), options);
            }
        }
    }
}
