//! `DnsList`: the DNS servers and the search list that routers of one link advertise.
//!
//! Called by `router_discovery.rs`; read by the resolver. Invariants: at most [`DNS_SERVERS_MAX`]
//! servers and [`DNS_SEARCH_MAX`] domains; a kept name has only letters, digits, hyphens,
//! underscores and dots, so that it may be written into any file; what has expired is absent by the
//! reader's own clock check. Read first: RFC 8106 sections 5 and 6. Not here: resolving names.
//!
//! # Under flood
//! Reachable by any station on the link. When full, the new entry is refused: RFC 8106 section 6.3
//! would evict the one that ends first, which would let a forger replace the valid ones. Honest
//! servers that are known already lose nothing. Worst work per option: its bytes once, and 8
//! compares for each server or name. A name cannot point back into itself: compression is refused.

use core::fmt;
use core::net::Ipv6Addr;

use floodwall_base::limits::{DNS_SEARCH_MAX, DNS_SERVERS_MAX};
use floodwall_base::{Instant, ipv6_source_is_plausible};

/// Characters of a name, its dots included and the last one left out (RFC 1035 section 2.3.4).
const NAME_MAX: usize = 253;
/// Bytes of one label.
const LABEL_MAX: usize = 63;

/// A domain name, in small letters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DomainName {
    bytes: [u8; NAME_MAX],
    len: u8,
}

impl DomainName {
    /// The name as text, without a dot at its end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }

    const EMPTY: Self = Self { bytes: [0; NAME_MAX], len: 0 };

    /// Appends a label; `None` where the name or the label is none.
    fn push(&mut self, label: &[u8]) -> Option<()> {
        let dot = usize::from(self.len > 0);
        let at = usize::from(self.len) + dot;
        let room = self.bytes.get_mut(at..at + label.len())?;
        for (to, from) in room.iter_mut().zip(label) {
            let good = from.is_ascii_alphanumeric() || matches!(from, b'-' | b'_');
            *to = good.then(|| from.to_ascii_lowercase())?;
        }
        if let Some(to) = self.bytes.get_mut(at.wrapping_sub(1)).filter(|_| dot == 1) {
            *to = b'.';
        }
        self.len = u8::try_from(at + label.len()).ok()?;
        Some(())
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The names of a search list option (RFC 8106 section 5.2); `None` where any of them is none,
/// which makes the whole option none.
fn names(bytes: &[u8]) -> Option<impl Iterator<Item = DomainName> + '_> {
    let mut rest = bytes;
    while let Some((_, behind)) = take_name(rest)? {
        rest = behind;
    }
    let mut rest = bytes;
    Some(core::iter::from_fn(move || {
        let (name, behind) = take_name(rest)??;
        rest = behind;
        Some(name)
    }))
}

/// The first name and what is behind it; `Some(None)` where only padding is left.
#[expect(clippy::option_option, reason = "an end is not an error")]
fn take_name(bytes: &[u8]) -> Option<Option<(DomainName, &[u8])>> {
    let mut rest = bytes;
    let mut name = DomainName::EMPTY;
    loop {
        let Some((&len, behind)) = rest.split_first() else {
            // An empty name, or one without its end, is malformed.
            return (name.len == 0 && bytes.is_empty()).then_some(None);
        };
        if len == 0 {
            let padding = name.len == 0;
            let clean = !padding || behind.iter().all(|byte| *byte == 0);
            return clean.then_some((!padding).then_some((name, behind)));
        }
        // Two high bits would be a pointer.
        let len = usize::from(len);
        let (label, behind) = behind.split_at_checked(len).filter(|_| len <= LABEL_MAX)?;
        name.push(label)?;
        rest = behind;
    }
}

/// One entry, and until when.
#[derive(Clone, Copy, Debug)]
struct TimedServer<T> {
    value: T,
    until: Instant,
}

/// A few values, each with its end.
#[derive(Debug)]
pub(super) struct TimedSet<T>(Box<[Option<TimedServer<T>>]>);

impl<T: Copy + PartialEq> TimedSet<T> {
    fn new(max: usize) -> Self {
        Self(vec![None; max].into())
    }

    /// Sets when `value` ends, at once for a past moment; true where what is there has changed.
    fn set(&mut self, value: T, until: Instant, now: Instant) -> bool {
        let live = |e: &Option<TimedServer<T>>| e.filter(|t| t.until > now);
        if let Some(slot) = self.0.iter_mut().find(|e| live(e).is_some_and(|t| t.value == value)) {
            let goes = until <= now;
            *slot = (!goes).then_some(TimedServer { value, until });
            return goes;
        }
        let free = self.0.iter_mut().find(|e| live(e).is_none()).filter(|_| until > now);
        let added = free.is_some();
        if let Some(slot) = free {
            *slot = Some(TimedServer { value, until });
        }
        added
    }

    /// Removes what has expired; true where something had.
    fn expire(&mut self, now: Instant) -> bool {
        let mut gone = false;
        for slot in &mut self.0 {
            if slot.as_ref().is_some_and(|t| t.until <= now) {
                (*slot, gone) = (None, true);
            }
        }
        gone
    }

    fn clear(&mut self) -> bool {
        let any = self.0.iter().any(Option::is_some);
        self.0.fill_with(|| None);
        any
    }

    fn iter(&self, now: Instant) -> impl Iterator<Item = (&T, Instant)> {
        self.0.iter().flatten().filter(move |t| t.until > now).map(|t| (&t.value, t.until))
    }

    fn next_end(&self) -> Option<Instant> {
        self.0.iter().flatten().map(|t| t.until).filter(|t| *t != Instant::FAR).min()
    }
}

/// The DNS servers and search domains of one interface.
#[derive(Debug)]
pub struct DnsList {
    servers: TimedSet<Ipv6Addr>,
    search: TimedSet<DomainName>,
}

impl DnsList {
    pub(super) fn new() -> Self {
        Self { servers: TimedSet::new(DNS_SERVERS_MAX), search: TimedSet::new(DNS_SEARCH_MAX) }
    }

    /// The servers at `now`, each with its end.
    pub fn servers(&self, now: Instant) -> impl Iterator<Item = (Ipv6Addr, Instant)> + '_ {
        self.servers.iter(now).map(|(addr, until)| (*addr, until))
    }

    /// The search list at `now`, each domain with its end.
    pub fn search(&self, now: Instant) -> impl Iterator<Item = (&DomainName, Instant)> + '_ {
        self.search.iter(now)
    }

    /// Takes servers of an advertisement; true where the list has changed.
    pub(super) fn servers_input(
        &mut self,
        servers: &[[u8; 16]],
        until: Instant,
        now: Instant,
    ) -> bool {
        let addrs = servers.iter().map(|octets| Ipv6Addr::from_octets(*octets));
        let possible = addrs.filter(|addr| ipv6_source_is_plausible(*addr));
        possible.fold(false, |changed, addr| self.servers.set(addr, until, now) | changed)
    }

    /// Takes domains of an advertisement; true where the list has changed.
    pub(super) fn search_input(&mut self, bytes: &[u8], until: Instant, now: Instant) -> bool {
        let names = names(bytes).into_iter().flatten();
        names.fold(false, |changed, name| self.search.set(name, until, now) | changed)
    }

    /// Removes what has expired; true where something had.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        self.servers.expire(now) | self.search.expire(now)
    }

    /// Removes everything; true where there was something.
    pub(super) fn clear(&mut self) -> bool {
        self.servers.clear() | self.search.clear()
    }

    /// When the next of them ends.
    pub(super) fn next_end(&self) -> Option<Instant> {
        [self.servers.next_end(), self.search.next_end()].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(10);
    const LATER: Instant = Instant::from_nanos(20);

    fn encoded(names: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for name in names {
            for label in name.split('.') {
                out.push(label.len() as u8);
                out.extend(label.as_bytes());
            }
            out.push(0);
        }
        out
    }

    fn search(bytes: &[u8]) -> Vec<String> {
        let mut list = DnsList::new();
        list.search_input(bytes, LATER, NOW);
        list.search(NOW).map(|(name, _)| name.to_string()).collect()
    }

    #[test]
    fn names_are_read_with_and_without_padding() {
        let names = ["example.org", "a.B-1._x.example"];
        for padding in 0..9 {
            let bytes = [encoded(&names), vec![0; padding]].concat();
            assert_eq!(search(&bytes), ["example.org", "a.b-1._x.example"]);
        }
        assert!(search(&[0; 16]).is_empty());
        let label = "a".repeat(63);
        let longest = [label.as_str(), &label, &label, &label[..61]].join(".");
        assert_eq!(search(&encoded(&[&longest])), [longest]);
    }

    #[test]
    fn a_broken_name_makes_its_whole_option_none() {
        let good = encoded(&["example.org"]);
        let broken: [&[u8]; 9] = [
            &[0xc0, 0],
            &[0xc0, 13],
            &[3, b'a', b'b'],
            &[3, b'a', b'b', b'c'],
            &[64],
            &[1, b' ', 0],
            &[2, b'\n', b'x', 0],
            &[1, b'.', 0],
            &[0, 1, b'a', 0],
        ];
        for bad in broken {
            assert!(search(&[&good, bad].concat()).is_empty(), "{bad:?}");
        }
        let label = "a".repeat(63);
        let long = [label.as_str(), &label, &label, &label].join(".");
        assert!(search(&encoded(&["example.org", &long])).is_empty());
    }

    #[test]
    fn lists_are_bounded_and_keep_what_they_have() {
        let mut list = DnsList::new();
        let server = |n: u16| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n).octets();
        for n in 0..1000 {
            assert_eq!(list.servers_input(&[server(n + 1)], LATER, NOW), n < 8, "{n}");
            list.search_input(&encoded(&[&format!("n{n}.example")]), LATER, NOW);
        }
        assert_eq!((list.servers(NOW).count(), list.search(NOW).count()), (8, 8));
        // A known one can be prolonged, and ended; then there is room again.
        assert!(!list.servers_input(&[server(3)], Instant::FAR, NOW));
        assert!(list.servers_input(&[server(1)], NOW, NOW));
        assert!(list.servers_input(&[server(2000)], LATER, NOW));
        assert_eq!(list.servers(LATER).count(), 1, "by the reader's own clock");
        assert_eq!(list.next_end(), Some(LATER));
        assert!(list.expire(LATER) && !list.expire(LATER) && list.search(NOW).count() == 0);
        assert!(list.clear() && !list.clear());
    }

    #[test]
    fn servers_that_cannot_be_are_left_out() {
        let mut list = DnsList::new();
        for addr in ["::", "::1", "ff02::1", "::ffff:10.0.0.1"] {
            let addr: Ipv6Addr = addr.parse().unwrap();
            assert!(!list.servers_input(&[addr.octets()], LATER, NOW), "{addr}");
        }
        let addr: Ipv6Addr = "fe80::1".parse().unwrap();
        assert!(list.servers_input(&[addr.octets()], LATER, NOW));
    }
}
