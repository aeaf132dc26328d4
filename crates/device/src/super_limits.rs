//! `SuperLimits`: how long a frame may be that an interface cuts into packets of the link's size,
//! or has joined of such.
//!
//! Called by `af_packet.rs` when it opens. Read by rtnetlink, which needs no privilege. The kernel
//! segments GSO frames beyond an interface's own limit before they reach it, so a limit that is
//! changed later costs speed and loses nothing. Invariant: an interface without reported limits
//! gets the limits that all had before they could be set.

use std::io;

use crate::gso_join::RunLimits;
use crate::napi::netlink::{LINK_HEAD, attributes, link_named, number};

const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IFLA_GRO_MAX_SIZE: u16 = 58;
const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
const IFLA_GRO_IPV4_MAX_SIZE: u16 = 64;
/// Bytes below which a frame of any interface stays (`GSO_LEGACY_MAX_SIZE`).
const USUAL_FRAME_MAX: usize = 65_536;

/// Limits of an interface for GSO frames: GSO on departure, GRO on arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SuperLimits {
    /// Of what leaves.
    pub(crate) run: RunLimits,
    /// Bytes below which what was joined on arrival stays, of the family that allows more.
    pub(crate) joined: usize,
}

impl SuperLimits {
    /// Of an interface of which nothing is known.
    pub(crate) const USUAL: Self = Self {
        run: RunLimits {
            bytes_v4: USUAL_FRAME_MAX - 1,
            bytes_v6: USUAL_FRAME_MAX - 1,
            segments: u16::MAX as usize,
        },
        joined: USUAL_FRAME_MAX,
    };

    /// Of the interface `name`.
    pub(crate) fn of(name: &str) -> io::Result<Self> {
        Ok(Self::read(link_named(name)?.get(LINK_HEAD..).unwrap_or_default()))
    }

    fn read(answer: &[u8]) -> Self {
        let mut limits = Self::USUAL;
        let mut joined = [0; 2];
        for (kind, value) in attributes(answer) {
            let Some(value) = number(value).and_then(|value| usize::try_from(value).ok()) else {
                continue;
            };
            match kind {
                IFLA_GSO_MAX_SEGS => limits.run.segments = value,
                // A frame stays below, its link header included.
                IFLA_GSO_MAX_SIZE => limits.run.bytes_v6 = value.saturating_sub(1),
                IFLA_GSO_IPV4_MAX_SIZE => limits.run.bytes_v4 = value.saturating_sub(1),
                IFLA_GRO_MAX_SIZE => joined[0] = value,
                IFLA_GRO_IPV4_MAX_SIZE => joined[1] = value,
                _ => {}
            }
        }
        limits.joined =
            joined.into_iter().max().filter(|most| *most > 0).unwrap_or(USUAL_FRAME_MAX);
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_limits_and_odd_answers_leave_the_usual_ones() {
        let limits = SuperLimits::of("lo").unwrap();
        assert!(limits.run.segments > 0 && limits.run.bytes_v4 > 0 && limits.run.bytes_v6 > 0);
        assert_eq!(SuperLimits::of("no-such-if").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert_eq!(SuperLimits::read(&[]), SuperLimits::USUAL);
        assert_eq!(SuperLimits::read(&[3, 0, 41, 0, 1]), SuperLimits::USUAL);
        // A number of three bytes, then one of four.
        let odd = [7, 0, 41, 0, 1, 2, 3, 0, 8, 0, 63, 0, 0x10, 0x27, 0, 0];
        let read = SuperLimits::read(&odd);
        assert_eq!((read.run.bytes_v4, read.run.bytes_v6), (9_999, USUAL_FRAME_MAX - 1));
    }
}
