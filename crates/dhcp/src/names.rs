//! `Names`: a few domain names that a server or router sent, sanitised for output.
//!
//! Called by `lease.rs` for the domain name (option 15) and the search list (option 119). What is
//! kept are letters, digits, hyphens, underscores and dots: these names end in files that other
//! programs read, and a server has no business with anything else there. Invariant: a pointer of a
//! compressed name leads backwards only, so that every walk ends. Read first: RFC 1035 section
//! 4.1.4, RFC 3397.

use floodwall_base::limits::DHCP_NAMES_BYTES;

/// Bytes of a name (RFC 1035 section 2.3.4).
const NAME_MAX: usize = 253;

/// A search list of domain names in a fixed buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Names {
    bytes: [u8; DHCP_NAMES_BYTES],
    len: usize,
}

impl Default for Names {
    fn default() -> Self {
        Self { bytes: [0; DHCP_NAMES_BYTES], len: 0 }
    }
}

impl core::fmt::Debug for Names {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Names {
    /// The names in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let text = self.bytes.get(..self.len).and_then(|bytes| str::from_utf8(bytes).ok());
        text.unwrap_or_default().split_ascii_whitespace()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a name written with dots; false where it is none, or there is no room.
    pub(crate) fn push_text(&mut self, text: &[u8]) -> bool {
        // Some servers end it with a zero, others with a dot.
        let text = text.strip_suffix(&[0]).unwrap_or(text);
        let text = text.strip_suffix(b".").unwrap_or(text);
        let start = self.len;
        let fits = text.len() <= NAME_MAX
            && text.split(|b| *b == b'.').all(|label| self.push_label(label, start));
        self.end(start, fits)
    }

    /// Appends the names of a search list, in which compression pointers count from its start;
    /// returns how many were left out.
    pub(crate) fn push_list(&mut self, list: &[u8]) -> u32 {
        let (mut at, mut lost) = (0, 0);
        while at < list.len() {
            let start = self.len;
            let after = self.push_compressed(list, at);
            let whole = after.is_some() && self.len > start && self.len - start <= NAME_MAX;
            lost += u32::from(!self.end(start, whole));
            // Behind a name that cannot be read, the start of the next one is unknown.
            let Some(after) = after else { return lost };
            at = after;
        }
        lost
    }

    /// Reads the name at `at`; returns where the next one begins.
    fn push_compressed(&mut self, list: &[u8], mut at: usize) -> Option<usize> {
        let start = self.len;
        let (mut after, mut floor) = (None, at);
        loop {
            let len = *list.get(at)?;
            match len {
                0 => return Some(after.unwrap_or(at + 1)),
                0xc0.. => {
                    let low = *list.get(at + 1)?;
                    after.get_or_insert(at + 2);
                    at = usize::from(len & 0x3f) << 8 | usize::from(low);
                    // Backwards only: each jump leaves less to jump to.
                    if at >= floor {
                        return None;
                    }
                    floor = at;
                }
                1..=63 => {
                    let next = at + 1 + usize::from(len);
                    if !self.push_label(list.get(at + 1..next)?, start) {
                        return None;
                    }
                    at = next;
                }
                _ => return None,
            }
        }
    }

    /// Appends a label, with a dot before it where it is not the first of its name.
    fn push_label(&mut self, label: &[u8], start: usize) -> bool {
        let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        let dot = usize::from(self.len > start);
        let end = self.len + dot + label.len();
        // One byte stays for the space behind the name.
        if label.is_empty()
            || label.len() > 63
            || !label.iter().all(plain)
            || end >= self.bytes.len()
        {
            return false;
        }
        if let Some(out) = self.bytes.get_mut(self.len..end) {
            out.iter_mut().zip(b".".iter().take(dot).chain(label)).for_each(|(o, b)| *o = *b);
        }
        self.len = end;
        true
    }

    /// Ends a name with a space, or takes back what was written of it.
    fn end(&mut self, start: usize, whole: bool) -> bool {
        if !whole {
            self.len = start;
        } else if let Some(space) = self.bytes.get_mut(self.len) {
            *space = b' ';
            self.len += 1;
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(names: &Names) -> Vec<&str> {
        names.iter().collect()
    }

    #[test]
    fn a_compressed_search_list_is_read() {
        let mut names = Names::default();
        let list = b"\x03eng\x07example\x03com\x00\x05sales\xc0\x04\x03foo\xc0\x11";
        assert_eq!(names.push_list(list), 0);
        assert_eq!(all(&names), ["eng.example.com", "sales.example.com", "foo.sales.example.com"]);
    }

    #[test]
    fn pointers_that_lead_forwards_or_to_themselves_end_the_list() {
        for list in
            [&b"\xc0\x00"[..], b"\x01a\xc0\x02", b"\x01a\xc0\x09\x01b\xc0\x00", b"\x01a", b"\x40a"]
        {
            let mut names = Names::default();
            assert_eq!(names.push_list(list), 1, "{list:?}");
            assert!(names.is_empty());
        }
    }

    #[test]
    fn a_name_that_a_shell_or_a_file_would_read_otherwise_is_left_out() {
        let mut names = Names::default();
        for bad in ["a b", "a\nnameserver 6.6.6.6", "$(reboot)", "a..b", "", "ä.example", ".a"] {
            assert!(!names.push_text(bad.as_bytes()), "{bad}");
        }
        assert!(names.push_text(b"lab.example.\0") || names.push_text(b"lab.example."));
        assert!(names.push_text(b"other_1.example"));
        assert_eq!(all(&names), ["lab.example", "other_1.example"]);
        assert!(!names.push_text(&[b'a'; 64]));
        assert!(!names.push_text([&[b'a'; 60][..]; 5].join(&b'.').as_slice()), "no room");
        assert_eq!(all(&names).len(), 2);
    }

    proptest! {
        #[test]
        fn no_list_makes_it_walk_for_ever(list in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut names = Names::default();
            names.push_list(&list);
            prop_assert!(names.iter().all(|name| name.len() <= NAME_MAX));
        }
    }
}
