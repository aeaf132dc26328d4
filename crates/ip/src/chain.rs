//! The walk over an IPv6 packet's extension headers, wherever its chunks end.
//!
//! Called by `input.rs`. `wire` decides what a header means and what the limits are; here the
//! headers are read from the packet: from the first chunk where that has the header, as it nearly
//! always has, else header by header. Invariants: iterative, one header a step; a header that
//! straddles chunks is copied once, and no other byte is. Reading: RFC 8200 section 4; Hagino,
//! "Mbuf issues in 4.4BSD IPv6/IPsec support" (FREENIX 2000), sections 4 and 5.
//!
//! # Under flood
//! The limits of `wire/ipv6_walk.rs` hold here. Worst work per packet: one look at each header, and
//! where the packet is in pieces one copy of each and a look at its length.

use floodwall_base::{DropReason, limits};
use floodwall_packet::{AccessCounters, PacketBuf};
use floodwall_wire::ipv6_ext::{self, HEADER_LEN_MIN};
use floodwall_wire::{ExtensionError, ExtensionLimits, ExtensionWalk, IpProtocol, Step, ipv6};

use crate::action::RefusedAction;
use crate::input::extension_reason;

/// Bytes of scratch that the longest extension header allowed may need.
const SCRATCH_BYTES: usize = limits::EXTENSION_BYTES_MAX;

/// Walks the headers behind the IPv6 header at `l3` to their end: `start` is the protocol of the
/// first and the length of the packet from `l3`.
///
/// # Errors
/// A refusal, with its ICMP error.
pub(crate) fn walk(
    packet: &PacketBuf,
    l3: usize,
    start: (IpProtocol, usize),
    limits: &ExtensionLimits,
    access: &mut AccessCounters,
) -> Result<ExtensionWalk, RefusedAction> {
    walk_until(packet, l3, start, limits, access, false)
}

/// Looks at the hop-by-hop header alone, which is all that a router looks at (RFC 8200 section 4):
/// `len` is the length of the packet from `l3`.
///
/// # Errors
/// As [`walk`].
#[cold]
pub(crate) fn hop_by_hop(
    packet: &PacketBuf,
    l3: usize,
    len: usize,
    limits: &ExtensionLimits,
    access: &mut AccessCounters,
) -> Result<(), RefusedAction> {
    walk_until(packet, l3, (IpProtocol::HOP_BY_HOP, len), limits, access, true).map(|_| ())
}

#[inline]
fn walk_until(
    packet: &PacketBuf,
    l3: usize,
    start: (IpProtocol, usize),
    limits: &ExtensionLimits,
    access: &mut AccessCounters,
    first_only: bool,
) -> Result<ExtensionWalk, RefusedAction> {
    let (first, len) = start;
    let mut walk = ExtensionWalk::new(first, ipv6::HEADER_LEN, len, *limits);
    if first == IpProtocol::HOP_BY_HOP && has_no_length(packet, l3, access) {
        walk = walk.of_jumbogram();
    }
    let flat = packet.first();
    let flat = flat.get(l3..flat.len().min(l3.saturating_add(len))).unwrap_or_default();
    while let Some(want) = walk.wants() {
        match flat.get(want.offset..) {
            Some(bytes) if bytes.len() >= want.len => {
                access.borrow();
                let step = walk.feed(bytes).map_err(refusal)?;
                if first_only && matches!(step, Step::Header { .. }) {
                    return Ok(walk);
                }
            }
            _ => return walk_in_pieces(packet, l3, walk, access, first_only),
        }
    }
    Ok(walk)
}

/// The rest of a walk, from the first header that the first chunk does not have whole.
#[cold]
#[inline(never)]
fn walk_in_pieces(
    packet: &PacketBuf,
    l3: usize,
    mut walk: ExtensionWalk,
    access: &mut AccessCounters,
    first_only: bool,
) -> Result<ExtensionWalk, RefusedAction> {
    let mut scratch = [0; SCRATCH_BYTES];
    while let Some(want) = walk.wants() {
        let at = l3 + want.offset;
        // Its length first, a byte of it, so that it is copied whole and once.
        let whole = whole_len(packet, at, &walk, access).max(want.len);
        let len =
            if whole <= SCRATCH_BYTES && at + whole <= packet.len() { whole } else { want.len };
        let bytes =
            packet.header(at, len, &mut scratch, access).ok_or(DropReason::ExtensionLimit)?;
        let step = walk.feed(bytes).map_err(refusal)?;
        if first_only && matches!(step, Step::Header { .. }) {
            break;
        }
    }
    Ok(walk)
}

/// The length that the header at `at` states, 0 where it does not get that far.
fn whole_len(
    packet: &PacketBuf,
    at: usize,
    walk: &ExtensionWalk,
    access: &mut AccessCounters,
) -> usize {
    let mut scratch = [0; 1];
    let said: Option<&[u8; 1]> = packet.header_array(at + 1, &mut scratch, access);
    let Some(&[said]) = said else { return 0 };
    let mut first = [0; HEADER_LEN_MIN];
    first[1] = said;
    ipv6_ext::header_len(walk.next_header(), &first).unwrap_or(0)
}

/// Whether the IPv6 header's payload length is zero: byte by byte, so that nothing is copied.
#[cold]
fn has_no_length(packet: &PacketBuf, l3: usize, access: &mut AccessCounters) -> bool {
    [4, 5].into_iter().all(|at| {
        let mut scratch = [0; 1];
        packet.header_array(l3 + at, &mut scratch, access) == Some(&[0])
    })
}

#[cold]
fn refusal(error: ExtensionError) -> RefusedAction {
    RefusedAction::of_extension(extension_reason(error.reason), error.owed)
}
