//! Given frames sent again, as they are or with a few bytes changed.
//!
//! Called by `blast.rs`. Invariant: a frame keeps its length, and on Ethernet gets the station's
//! link addresses, so that damage reaches the parsers behind the link header. What is damaged
//! depends on the randomness given and on nothing else.

use floodwall_base::{MacAddr, PublicRandom};
use floodwall_wire::ethernet;

use crate::station::StationMedium;

/// The most bytes that are changed in one frame.
const CHANGES_MAX: u64 = 4;
/// Of the bytes behind the link header, those in which most changes fall: the headers.
const HEADER_BYTES: usize = 80;

/// Writes frame number `n` of `frames`, counted round, to `out`.
pub(crate) fn write(
    frames: &[Vec<u8>],
    n: u64,
    medium: StationMedium,
    (from, to): (MacAddr, MacAddr),
    random: Option<&mut PublicRandom>,
    out: &mut Vec<u8>,
) {
    out.clear();
    let Some(at) = n.checked_rem(frames.len() as u64) else { return };
    out.extend_from_slice(frames.get(at as usize).map_or(&[], Vec::as_slice));
    let link_bytes = if medium == StationMedium::Ethernet { ethernet::HEADER_LEN } else { 0 };
    if let Some(random) = random {
        mutate(out.get_mut(link_bytes..).unwrap_or_default(), random);
    }
    if medium == StationMedium::Ethernet
        && let Some(addrs) = out.first_chunk_mut::<12>()
    {
        let (first, second) = addrs.split_at_mut(6);
        first.copy_from_slice(&to.0);
        second.copy_from_slice(&from.0);
    }
}

/// Changes one byte or a few.
fn mutate(bytes: &mut [u8], random: &mut PublicRandom) {
    let changes = 1 + random.below(CHANGES_MAX);
    for _ in 0..changes {
        let reach = if random.below(4) == 0 { bytes.len() } else { bytes.len().min(HEADER_BYTES) };
        let at = random.below(reach as u64) as usize;
        let change = 1 + random.below(255) as u8;
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= change;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_go_round_with_our_link_addresses_and_damage_behind_them() {
        let frames = vec![(0..60).collect::<Vec<u8>>(), vec![7; 20], vec![1; 5]];
        let link = (MacAddr([2; 6]), MacAddr([4; 6]));
        let (mut random, mut out) = (PublicRandom::new(1), Vec::new());
        for n in 0..300 {
            let frame = &frames[n as usize % 3];
            write(&frames, n, StationMedium::Ethernet, link, None, &mut out);
            assert_eq!(out.len(), frame.len());
            if frame.len() >= 14 {
                assert_eq!((&out[..6], &out[6..12]), (&[4; 6][..], &[2; 6][..]));
                assert_eq!(out[12..], frame[12..]);
            }
            write(&frames, n, StationMedium::Ethernet, link, Some(&mut random), &mut out);
            assert_eq!(out.len(), frame.len());
        }
        write(&frames, 0, StationMedium::Ip, link, Some(&mut random), &mut out);
        assert_ne!(out, frames[0]);
        write(&[], 0, StationMedium::Ip, link, Some(&mut random), &mut out);
        assert!(out.is_empty());
    }
}
