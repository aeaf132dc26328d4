//! What the input path of the KAME stack of 2000 reads of a packet, header by header.
//!
//! Reads through [`HeaderAccess`] only, so the same walk runs over the flat packet and over every
//! accessor. The lab's own, and not the product's walk (`floodwall_wire::ExtensionWalk`), because
//! it does what that must not: it follows a routing header of type 0 that lists only this host, and
//! gives the packet to input once more for each (RFC 2460 section 4.4, withdrawn by RFC 5095; the
//! product answers it with a parameter problem). What a hop writes (segments left, one address)
//! changes no length and is kept aside.
//!
//! Invariants: nothing is requested beyond the packet's end; the walk is a loop, at most 50 headers
//! a pass and as many passes as a routing header has addresses. Each header is requested as that
//! stack did: its fixed part first, then whole where its length is inside; TCP therefore three
//! checks with the IP header, ICMPv6 once more for raw listeners. Deliberately not here: whether a
//! packet is any good (addresses, checksums), reassembly, IPsec.

use floodwall_wire::{Icmpv6Type, IpProtocol};

use super::access::HeaderAccess;

/// Headers of one pass that are looked at.
const HEADERS_MAX: usize = 50;

/// Why a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Everything was read that input reads.
    Parsed,
    /// An accessor could not give a header that the packet has.
    Lost,
    /// The packet ends before a header does, or is none.
    Malformed,
    /// A fragment, ESP or an unknown protocol. The stack's input stops at the same header.
    Beyond,
}

/// What a walk has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// How it ended.
    pub end: End,
    /// The upper protocol, where it came to one.
    pub protocol: Option<IpProtocol>,
    /// Times that the packet was given to input: 1 and one for each hop that was this host.
    pub passes: u64,
    /// End of the furthest requested header: the packet's header portion in bytes.
    pub header_bytes: usize,
}

/// One walk in progress.
struct Walk<'a> {
    access: &'a mut dyn HeaderAccess,
    len: usize,
    reach: usize,
}

/// Why a walk goes no further.
struct Stop(End);

impl Walk<'_> {
    /// Requests bytes that the packet must have.
    fn ask(&mut self, off: usize, len: usize) -> Result<&[u8], Stop> {
        if off + len > self.len {
            return Err(Stop(End::Malformed));
        }
        self.reach = self.reach.max(off + len);
        self.access.header(off, len).ok_or(Stop(End::Lost))
    }

    fn byte(&mut self, off: usize, len: usize, at: usize) -> Result<u8, Stop> {
        self.ask(off, len)?.get(at).copied().ok_or(Stop(End::Malformed))
    }

    /// From the upper protocol's header on.
    fn upper(&mut self, protocol: IpProtocol, off: usize) -> Result<(), Stop> {
        match protocol {
            IpProtocol::TCP => {
                let words = self.byte(off, 20, 12)? >> 4;
                self.ask(off, (usize::from(words) * 4).max(20)).map(drop)
            }
            IpProtocol::UDP => self.ask(off, 8).map(drop),
            IpProtocol::ICMPV6 => self.icmpv6(off),
            IpProtocol::ICMPV4 => self.icmpv4(off),
            IpProtocol::IGMP => self.ask(off, 8).map(drop),
            _ => Err(Stop(End::Beyond)),
        }
    }

    fn icmpv6(&mut self, off: usize) -> Result<(), Stop> {
        let kind = Icmpv6Type(self.byte(off, 8, 0)?);
        if kind.is_error() {
            self.ask(off, 48)?;
            self.quoted(off + 8)?;
        } else if kind == Icmpv6Type::ECHO_REQUEST {
            // The reply is made in a copy with contiguous headers.
            self.access.check_own_copy();
        }
        // Raw listeners.
        self.ask(off, 8)?;
        // These are read in a copy of the packet: the one that raw listeners see stays as it was,
        // so their check comes first here.
        if kind.is_neighbor_discovery() {
            self.ask(off, self.len - off)?;
        } else if is_listener(kind) {
            self.ask(off, 24)?;
        }
        Ok(())
    }

    /// The headers that an error quotes, as far as the quote reaches.
    fn quoted(&mut self, off: usize) -> Result<(), Stop> {
        let (mut next, mut at) = (IpProtocol(self.byte(off, 40, 6)?), off + 40);
        for _ in 0..HEADERS_MAX {
            match next {
                IpProtocol::TCP | IpProtocol::UDP | IpProtocol::ICMPV6 => {
                    let there = self.len.saturating_sub(at).min(8);
                    return if there == 8 { self.ask(at, 8).map(drop) } else { Ok(()) };
                }
                next_header if is_skipped(next_header) && at + 8 <= self.len => {
                    let head = self.ask(at, 8)?;
                    let bytes = ext_len(next_header, head[1]);
                    next = IpProtocol(head[0]);
                    at += bytes;
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    fn icmpv4(&mut self, off: usize) -> Result<(), Stop> {
        let kind = self.byte(off, 8, 0)?;
        if matches!(kind, 3 | 4 | 5 | 11 | 12) {
            let ihl = usize::from(self.byte(off + 8, 20, 0)? & 15) * 4;
            self.ask(off, 8 + ihl.max(20) + 8)?;
        }
        Ok(())
    }

    /// One pass of IPv6 input. `Some` where a routing header sends the packet back to the start.
    fn pass(&mut self, hops: &mut Hops) -> Result<Option<IpProtocol>, Stop> {
        let head = self.ask(0, 40)?;
        let (mut next, mut off) = (IpProtocol(head[6]), 40);
        let own_addr: [u8; 16] = *head.last_chunk().ok_or(Stop(End::Malformed))?;
        for _ in 0..HEADERS_MAX {
            match next {
                IpProtocol::FRAGMENT => {
                    self.ask(off, 8)?;
                    return Err(Stop(End::Beyond));
                }
                IpProtocol::ROUTING => {
                    // Four bytes say how long it is.
                    let head = self.ask(off, 4)?;
                    let (after, bytes) = (IpProtocol(head[0]), (usize::from(head[1]) + 1) * 8);
                    let header = self.ask(off, bytes)?;
                    if hops.follow(header, own_addr)? {
                        return Ok(None);
                    }
                    (next, off) = (after, off + bytes);
                }
                _ if is_skipped(next) => {
                    let head = self.ask(off, 8)?;
                    let (after, bytes) = (IpProtocol(head[0]), ext_len(next, head[1]));
                    self.ask(off, bytes)?;
                    (next, off) = (after, off + bytes);
                }
                _ => return self.upper(next, off).map(|()| Some(next)),
            }
        }
        Err(Stop(End::Malformed))
    }

    fn ipv4(&mut self) -> Result<IpProtocol, Stop> {
        let head = self.ask(0, 20)?;
        let (ihl, protocol) = (usize::from(head[0] & 15) * 4, IpProtocol(head[9]));
        let fragment = u16::from_be_bytes([head[6], head[7]]) & 0x3fff;
        self.ask(0, ihl.max(20))?;
        if fragment != 0 {
            return Err(Stop(End::Beyond));
        }
        self.upper(protocol, ihl.max(20)).map(|()| protocol)
    }
}

/// How far a routing header of type 0 has been followed.
#[derive(Default)]
struct Hops {
    left: Option<u8>,
}

impl Hops {
    /// Whether the packet goes to its next hop: only where that is this host again.
    fn follow(&mut self, header: &[u8], own_addr: [u8; 16]) -> Result<bool, Stop> {
        let (hops, _) = header.get(8..).unwrap_or_default().as_chunks::<16>();
        let stated = header.get(3).copied().unwrap_or_default();
        let left = self.left.get_or_insert(stated);
        if header.get(2) != Some(&0) || *left == 0 {
            return Ok(false);
        }
        let next = hops.len().checked_sub(usize::from(*left)).and_then(|hop| hops.get(hop));
        *left -= 1;
        match next {
            Some(addr) if *addr == own_addr => Ok(true),
            Some(_) => Err(Stop(End::Beyond)),
            None => Err(Stop(End::Malformed)),
        }
    }
}

/// Walks a packet of `len` bytes through input. The link layer gives the `family`, 4 or 6.
pub fn walk(access: &mut dyn HeaderAccess, family: u8, len: usize) -> Seen {
    let mut walk = Walk { access, len, reach: 0 };
    let mut seen = Seen { end: End::Malformed, protocol: None, passes: 1, header_bytes: 0 };
    let mut hops = Hops::default();
    let ended = match family {
        6 => loop {
            match walk.pass(&mut hops) {
                Ok(Some(protocol)) => break Ok(protocol),
                Ok(None) => seen.passes += 1,
                Err(stop) => break Err(stop),
            }
        },
        4 => walk.ipv4(),
        _ => Err(Stop(End::Malformed)),
    };
    (seen.end, seen.protocol) = match ended {
        Ok(protocol) => (End::Parsed, Some(protocol)),
        Err(Stop(end)) => (end, None),
    };
    seen.header_bytes = walk.reach;
    seen
}

/// Extension headers that are read and passed.
fn is_skipped(kind: IpProtocol) -> bool {
    matches!(
        kind,
        IpProtocol::HOP_BY_HOP | IpProtocol::DESTINATION_OPTIONS | IpProtocol::AUTHENTICATION
    ) || kind == IpProtocol::ROUTING
}

fn ext_len(kind: IpProtocol, words: u8) -> usize {
    let words = usize::from(words);
    if kind == IpProtocol::AUTHENTICATION { (words + 2) * 4 } else { (words + 1) * 8 }
}

fn is_listener(kind: Icmpv6Type) -> bool {
    matches!(
        kind,
        Icmpv6Type::LISTENER_QUERY
            | Icmpv6Type::LISTENER_REPORT_V1
            | Icmpv6Type::LISTENER_DONE_V1
            | Icmpv6Type::LISTENER_REPORT_V2
    )
}
