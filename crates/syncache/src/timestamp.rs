//! The timestamps of our SYN-ACKs: a clock, a per-flow offset, and options in the low six bits.
//!
//! Used by `syn_cache.rs`. A client that uses timestamps (RFC 7323 section 3) echoes our TSval, so
//! the exact window scale, SACK and ECN are carried in it. Invariants: a marked value is never
//! ahead of the clock, and those of one flow never go backwards; the offset is a keyed function of
//! the flow, so that no client learns our uptime, and a later connection of the same endpoints
//! continues where the last one ended.

use core::time::Duration;

use floodwall_base::Instant;

/// Bits that carry options.
const BITS: u32 = 6;
const OPTION_MASK: u32 = (1 << BITS) - 1;
/// Encodes the absence of a window scale.
const NO_SCALE: u8 = 15;
/// Nanoseconds of a tick, as a power of two.
const TICK_LOG2: u32 = 20;
/// Longer than half a minute, which exceeds the lifetime of a cookie. An older value did not
/// come from this clock, but from another instance.
const OLDEST_TICKS: u32 = 1 << 15;

/// The clock: ticks of 2^20 ns, about a millisecond (RFC 7323 section 5.4 requires 1 ms to 1
/// s).
#[inline]
pub(crate) const fn clock(now: Instant, offset: u32) -> u32 {
    ((now.as_nanos() >> TICK_LOG2) as u32).wrapping_add(offset)
}

/// The six bits: scale, SACK, ECN.
#[inline]
pub(crate) fn marks(scale: Option<u8>, sack: bool, ecn: bool) -> u8 {
    scale.unwrap_or(NO_SCALE) & 0xf | u8::from(sack) << 4 | u8::from(ecn) << 5
}

/// Decodes the six bits.
#[inline]
pub(crate) fn read(marks: u8) -> (Option<u8>, bool, bool) {
    let scale = marks & 0xf;
    (Some(scale).filter(|s| *s <= 14), marks & 0x10 != 0, marks & 0x20 != 0)
}

/// The greatest value with these option bits that is not ahead of the clock.
#[inline]
pub(crate) fn marked(clock: u32, marks: u8) -> u32 {
    let value = clock & !OPTION_MASK | u32::from(marks) & OPTION_MASK;
    if (clock.wrapping_sub(value) as i32) < 0 { value.wrapping_sub(1 << BITS) } else { value }
}

/// The option bits of a value.
#[inline]
pub(crate) const fn marks_of(value: u32) -> u8 {
    (value & OPTION_MASK) as u8
}

/// The latest clock reading that a marked value can stand for.
#[inline]
pub(crate) const fn latest(value: u32) -> u32 {
    value.wrapping_add(OPTION_MASK)
}

/// The maximum age of a marked value: overestimated by up to 64 ticks, never underestimated.
/// `None` where it did not come from this clock.
#[inline]
pub(crate) fn ago(clock: u32, value: u32) -> Option<Duration> {
    let ticks = Some(clock.wrapping_sub(value)).filter(|ticks| *ticks < OLDEST_TICKS)?;
    Some(Duration::from_nanos(u64::from(ticks + 1) << TICK_LOG2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_back_exactly() {
        for scale in (0..=14).map(Some).chain([None]) {
            for (sack, ecn) in [(false, false), (true, false), (false, true), (true, true)] {
                let marks = marks(scale, sack, ecn);
                assert!(marks < 64);
                for clock in [0, 1, 63, 64, 0x8000_0000, u32::MAX] {
                    let value = marked(clock, marks);
                    assert_eq!(read(marks_of(value)), (scale, sack, ecn));
                    assert!(clock.wrapping_sub(value) < 64, "not ahead, and not far behind");
                    assert!(latest(value).wrapping_sub(clock) < 64, "nor is the connection's");
                }
            }
        }
    }

    #[test]
    fn marked_values_of_one_flow_never_run_backwards_across_the_wrap_too() {
        let marks = marks(Some(7), true, false);
        let mut last = marked(u32::MAX - 500, marks);
        for step in 1..1000_u32 {
            let value = marked((u32::MAX - 500).wrapping_add(step), marks);
            assert!(value.wrapping_sub(last) < 128, "{last} then {value}");
            last = value;
        }
    }
}
