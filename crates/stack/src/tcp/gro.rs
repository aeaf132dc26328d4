//! `GroFlow`: the headers of the segment before, by which one that follows it is known at a glance.
//!
//! Called by `rx.rs` for each packet while a run of segments waits for more (coalescing as GRO
//! does it, `floodwall-tcp`'s `rx_coalesce/run.rs`). The headers of the segment before, from its
//! link header to its options, are parsed and checked already; where the next has the same bytes,
//! but for lengths, identification, sequence number, PSH and checksums, this need not be repeated.
//! Both checksums are verified, lengths are checked. Invariant: a packet that is not taken here
//! goes the ordinary way, unchanged. Not here: packets that other parts must process one by one
//! (access lists, raw sockets).

mod input;

use floodwall_base::{Address, Counter, Family, IfIndex};
use floodwall_checksum::{InternetSum, header20};
use floodwall_packet::{ChecksumState, PacketBuf};

/// Link header, IPv6's, and TCP's with all options, in words of eight bytes.
const HEADER_WORDS: usize = (14 + 40 + 60_usize).div_ceil(8);
/// What PSH is among TCP's flags.
const PSH: u8 = 0x08;

/// The headers of the last segment of a flow: a compare with them replaces parsing for the next
/// one.
#[derive(Default)]
pub(crate) struct GroFlow {
    /// Bytes of all headers; 0 while no flow is followed.
    len: usize,
    l3: usize,
    l4: usize,
    is_v4: bool,
    iface: IfIndex,
    /// The headers, and which of their bits count: whole words, and the last eight bytes.
    want: [u64; HEADER_WORDS],
    mask: [u64; HEADER_WORDS],
    last: [u64; 2],
    /// Of the pseudo-header without the length.
    pseudo: InternetSum,
}

impl GroFlow {
    /// Whether a flow is followed.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.len > 0
    }

    /// Stops following.
    #[inline]
    pub(crate) fn stop(&mut self) {
        self.len = 0;
    }

    /// Stores the headers of a packet with payload and its TCP header at `l4`. Does nothing where
    /// they are not contiguous, or are unusual.
    pub(crate) fn learn<A: Address>(&mut self, packet: &PacketBuf, l3: usize, l4: usize) {
        self.len = 0;
        let is_v4 = A::FAMILY == Family::V4;
        let bytes = packet.first();
        let Some(offset) = bytes.get(l4 + 12) else { return };
        let len = l4 + usize::from(offset >> 4) * 4;
        let usual = if is_v4 {
            matches!(bytes.get(l3..), Some([0x45, _, _, _, _, _, 0 | 0x40, 0, ..])) && l4 == l3 + 20
        } else {
            l4 == l3 + 40
        };
        let Some(heads) = bytes.get(..len).filter(|_| usual && packet.len() > len) else { return };
        let mut mask = [0xff_u8; 8 * HEADER_WORDS];
        let vary = if is_v4 { [(2, 6), (10, 12)] } else { [(4, 6), (4, 6)] };
        let in_tcp = [(4, 8), (16, 18)].map(|(from, to)| (l4 + from, l4 + to));
        for (from, to) in vary.map(|(from, to)| (l3 + from, l3 + to)).into_iter().chain(in_tcp) {
            mask.get_mut(from..to).into_iter().flatten().for_each(|byte| *byte = 0);
        }
        mask.get_mut(l4 + 13).into_iter().for_each(|byte| *byte = !PSH);
        let Some(mask) = mask.get(..len) else { return };
        for (to, from) in [(&mut self.want, heads), (&mut self.mask, mask)] {
            let words = from.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
            to.iter_mut().zip(words).for_each(|(to, word)| *to = word);
        }
        self.last = [heads, mask].map(last_word);
        (self.len, self.l3, self.l4, self.is_v4) = (len, l3, l4, is_v4);
        self.iface = packet.iface();
    }

    /// Whether a packet has those headers.
    #[inline]
    fn matches(&self, packet: &PacketBuf) -> bool {
        let Some(heads) = packet.first().get(..self.len) else { return false };
        let mut differs = (last_word(heads) ^ self.last[0]) & self.last[1];
        for (word, (want, mask)) in
            heads.as_chunks::<8>().0.iter().zip(self.want.iter().zip(&self.mask))
        {
            differs |= (u64::from_ne_bytes(*word) ^ want) & mask;
        }
        differs == 0 && packet.iface() == self.iface
    }

    /// Where a packet with those headers ends and its text is right, by its lengths and checksums.
    #[inline]
    fn end_of(&self, packet: &PacketBuf) -> Option<usize> {
        let bytes = packet.first();
        let end = if self.is_v4 {
            let fixed: &[u8; 20] = bytes.get(self.l3..)?.first_chunk()?;
            header20(fixed).verifies().then_some(())?;
            self.l3 + usize::from(u16::from_be_bytes([fixed[2], fixed[3]]))
        } else {
            let fixed: &[u8; 40] = bytes.get(self.l3..)?.first_chunk()?;
            self.l4 + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]))
        };
        if end <= self.len || end > packet.len() {
            return None;
        }
        if packet.checksum_state() == ChecksumState::Unverified {
            let len = end - self.l4;
            let sum =
                self.pseudo.add(InternetSum::of_u32(len as u32)).add(packet.sum(self.l4, len));
            sum.verifies().then_some(())?;
        }
        Some(end)
    }
}

/// The last eight bytes as a word; no headers are shorter.
#[inline]
fn last_word(bytes: &[u8]) -> u64 {
    bytes.last_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
}

/// What is counted of a packet on its way up.
pub(crate) const COUNTERS_V4: [Counter; 3] =
    [Counter::IpInReceives, Counter::IpInOctets, Counter::IpInDelivers];
pub(crate) const COUNTERS_V6: [Counter; 3] =
    [Counter::Ip6InReceives, Counter::Ip6InOctets, Counter::Ip6InDelivers];
