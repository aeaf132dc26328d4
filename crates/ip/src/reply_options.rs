//! The options of an echo reply, made of those of the request.
//!
//! Called by `stack` for an echo request that has IPv4 options, which are checked already (see
//! [`crate::input::ipv4_upper`]). A record route and a timestamp come back with an entry of ours
//! for the arrival and one for the departure, as far as there is room; all other options stay
//! behind. Invariant: a reply's options are as long as the request's at most. Reading: RFC 1122
//! sections 3.2.1.8 and 3.2.2.6, RFC 791 section 3.1. Not here: source routes, which are dropped.

use core::net::Ipv4Addr;

use floodwall_wire::ipv4;
use floodwall_wire::ipv4_options::{Ipv4Option, Ipv4Options, RouteData, TimestampData};

/// The bytes of options that a header holds.
const LEN_MAX: usize = ipv4::HEADER_LEN_MAX - ipv4::HEADER_LEN;
/// Marks a time that does not count from midnight (RFC 791 section 3.1).
const NOT_SINCE_MIDNIGHT: u32 = 1 << 31;

/// Options as they stand in a header, up to 40 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyOptions {
    bytes: [u8; LEN_MAX],
    len: usize,
}

impl ReplyOptions {
    /// The options of a reply from `own` to a request with the options `asked`. `is_ours` tells
    /// which addresses are this host's; `millis` is any clock of milliseconds.
    #[must_use]
    pub fn to(
        asked: &[u8],
        own: Ipv4Addr,
        is_ours: impl Fn(Ipv4Addr) -> bool,
        millis: u32,
    ) -> Self {
        let mut reply = Self { bytes: [0; LEN_MAX], len: 0 };
        for option in Ipv4Options::new(asked).map_while(Result::ok) {
            match option {
                Ipv4Option::RecordRoute(route) => reply.record(route, own),
                Ipv4Option::Timestamp(times) => {
                    reply.stamp(times, own, &is_ours, millis | NOT_SINCE_MIDNIGHT);
                }
                _ => {}
            }
        }
        reply
    }

    /// The bytes, without padding.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Whether the reply has no options.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn record(&mut self, route: RouteData<'_>, own: Ipv4Addr) {
        let start = self.append(7, route.addrs().len() * 4, &[route.pointer]);
        for (n, addr) in route.addrs().enumerate() {
            self.put(start + 3 + 4 * n, &addr.octets());
        }
        for _ in 0..2 {
            self.enter(start, &own.octets());
        }
    }

    fn stamp(
        &mut self,
        times: TimestampData<'_>,
        own: Ipv4Addr,
        is_ours: impl Fn(Ipv4Addr) -> bool,
        time: u32,
    ) {
        let flags = times.overflow << 4 | times.flag;
        let start = self.append(68, times.entries.len(), &[times.pointer, flags]);
        self.put(start + 4, times.entries);
        let (own, time) = (u32::from(own).to_be_bytes(), time.to_be_bytes());
        for is_arrival in [true, false] {
            if self.room(start).is_none() {
                // A host that finds no room says so, once.
                if is_arrival && times.flag != TimestampData::ADDRESSES_GIVEN {
                    self.put(start + 3, &[flags.wrapping_add(0x10)]);
                }
                return;
            }
            match times.flag {
                TimestampData::TIMES => self.enter(start, &time),
                TimestampData::ADDRESSES => {
                    let mut entry = [0; 8];
                    entry[..4].copy_from_slice(&own);
                    entry[4..].copy_from_slice(&time);
                    self.enter(start, &entry);
                }
                TimestampData::ADDRESSES_GIVEN => {
                    let next = self.room(start).and_then(|room| room.first_chunk::<4>());
                    let Some(next) = next.copied().filter(|&it| is_ours(it.into())) else { return };
                    let mut entry = [0; 8];
                    entry[..4].copy_from_slice(&next);
                    entry[4..].copy_from_slice(&time);
                    self.enter(start, &entry);
                }
                _ => return,
            }
        }
    }

    /// Appends an option's first bytes and room for `entries` bytes; returns where it begins.
    fn append(&mut self, kind: u8, entries: usize, fixed: &[u8]) -> usize {
        let (start, len) = (self.len, 2 + fixed.len() + entries);
        self.put(start, &[kind, u8::try_from(len).unwrap_or(u8::MAX)]);
        self.put(start + 2, fixed);
        self.len = (start + len).min(LEN_MAX);
        start
    }

    /// What is left of the option at `start` behind its pointer.
    fn room(&self, start: usize) -> Option<&[u8]> {
        let [_, len, pointer, ..] = *self.bytes.get(start..)? else { return None };
        let from = (start + usize::from(pointer)).checked_sub(1)?;
        self.bytes.get(from..start + usize::from(len)).filter(|room| !room.is_empty())
    }

    /// Writes an entry at the pointer, and moves that, where there is room.
    fn enter(&mut self, start: usize, entry: &[u8]) {
        if self.room(start).is_none_or(|room| room.len() < entry.len()) {
            return;
        }
        let pointer = self.bytes.get(start + 2).copied().unwrap_or(0);
        self.put(start + usize::from(pointer) - 1, entry);
        let moved = u8::try_from(entry.len()).unwrap_or(0);
        self.put(start + 2, &[pointer.saturating_add(moved)]);
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(at..at + bytes.len()) {
            room.copy_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn reply(asked: &[u8]) -> Vec<u8> {
        ReplyOptions::to(asked, OWN, |addr| addr == OWN, 0x0102_0304).bytes().to_vec()
    }

    #[test]
    fn a_recorded_route_names_us_twice_where_there_is_room() {
        let (a, own) = ([192, 0, 2, 9], OWN.octets());
        for (pointer, entries, moved, filled) in [
            (4, vec![[0; 4]; 3], 12, vec![own, own, [0; 4]]),
            (8, vec![a, [0; 4]], 12, vec![a, own]),
            (12, vec![a, a], 12, vec![a, a]),
            (4, vec![], 4, vec![]),
        ] {
            let len = 3 + entries.len() as u8 * 4;
            let asked = [&[7, len, pointer][..], entries.as_flattened()].concat();
            let answer = [&[7, len, moved][..], filled.as_flattened()].concat();
            assert_eq!(reply(&asked), answer);
        }
    }

    #[test]
    fn timestamps_are_marked_as_not_of_midnight_and_a_lack_of_room_is_counted() {
        let (own, time) = (OWN.octets(), [0x81, 2, 3, 4]);
        let other = [192, 0, 2, 9];
        for (flags, pointer, entries, said, moved, filled) in [
            (0x00, 5, vec![[0; 4]; 3], 0x00, 13, vec![time, time, [0; 4]]),
            (0x00, 9, vec![other, [0; 4]], 0x00, 13, vec![other, time]),
            (0x20, 9, vec![other], 0x30, 9, vec![other]),
            (0x01, 5, vec![[0; 4]; 4], 0x01, 21, vec![own, time, own, time]),
            (0x01, 5, vec![[0; 4]; 2], 0x01, 13, vec![own, time]),
            (0x03, 5, vec![own, [0; 4], other, [0; 4]], 0x03, 13, vec![own, time, other, [0; 4]]),
            (0x03, 5, vec![other, [0; 4]], 0x03, 5, vec![other, [0; 4]]),
            (0x03, 13, vec![other, time], 0x03, 13, vec![other, time]),
            (0x07, 5, vec![[0; 4]; 2], 0x07, 5, vec![[0; 4]; 2]),
        ] {
            let len = 4 + entries.len() as u8 * 4;
            let asked = [&[68, len, pointer, flags][..], entries.as_flattened()].concat();
            let answer = [&[68, len, moved, said][..], filled.as_flattened()].concat();
            assert_eq!(reply(&asked), answer, "{flags:x} {pointer}");
        }
    }

    #[test]
    fn other_options_stay_behind_and_nothing_grows() {
        for other in [&[1, 1, 1, 1][..], &[148, 4, 0, 0], &[0x9e, 4, 0, 0], &[0, 7, 7, 4]] {
            assert!(ReplyOptions::to(other, OWN, |_| true, 0).is_empty());
        }
        let both = [&[1, 148, 4, 0, 0][..], &[7, 7, 4, 0, 0, 0, 0], &[68, 8, 5, 0, 0, 0, 0, 0]];
        assert_eq!(reply(&both.concat()).len(), 15);
        // Every byte string of options, some of them broken: no panic, and never longer.
        for seed in 0..20_000_u32 {
            let mut x = seed.wrapping_mul(2_654_435_761) | 1;
            let asked: Vec<u8> = (0..seed % 41)
                .map(|n| {
                    x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let kinds = [7, 68, 7, 11, 4, 5, 8, 1, 3, 0x40, (x >> 8) as u8];
                    if n % 2 == 0 {
                        kinds[(x >> 16) as usize % kinds.len()]
                    } else {
                        (x >> 24) as u8 % 41
                    }
                })
                .collect();
            assert!(reply(&asked).len() <= asked.len(), "{asked:?}");
        }
    }
}
