//! `Guard`: the first line of defence, in the program at the interface.
//!
//! Called by `steering.rs`, and by the devices of an interface, each for its receive queue. While
//! more comes than a worker handles, the program loses frames before they cost anything: those of
//! which triage would say that they are to be dropped anyway, by name, and strangers beyond a
//! credit that the worker renews each turn. Friends ([`Friends`]) always go through. What cannot be
//! read to its ports at a glance (neighbours' questions, ICMP, fragments, options, extension
//! headers) has a credit of its own, so that a flood of plain datagrams takes nothing from it.
//! Without pressure every frame goes through and costs two look-ups more; but for what the access
//! list denies whatever it is, which always ends here.
//!
//! Invariants: program and device share memory, and neither writes what the other counts; each
//! frame for our station goes to the socket or is counted here. The code: `guard/code.rs`.
//!
//! # Under flood
//! Anyone on the link uses up the credits. Bound: what the worker grants. Work per frame: three
//! look-ups and a hash of ten words; no memory grows. Strangers lose what the worker could not have
//! handled, plus what the last turn of a burst leaves unused.

mod behind;
mod code;
pub(super) mod destination;
mod friends;

use core::sync::atomic::Ordering::Relaxed;
use std::io;

use floodwall_base::Instant;
use floodwall_bpf::{Assembler, Label};

use self::code::Known;
pub(super) use self::code::{SEGMENTS, SYNS, reach, wire};
use self::destination::Maps;
use self::friends::{Friends, KEY_WORDS, SETS, WAYS};
use super::wants::Wants;
use super::words::Words;
use crate::stats::DeviceStats;

/// Words of a queue's desk: whether there is pressure; for each kind, how much was granted and how
/// much was used since the start; how many frames died, by reason.
const DESK_PRESSED: usize = 0;
const DESK_GRANTED: usize = 1;
const DESK_USED: usize = DESK_GRANTED + Kind::COUNT;
const DESK_REFUSED: usize = DESK_USED + Kind::COUNT;
const DESK_WORDS: usize = 16;
const _: () = assert!(DESK_REFUSED + Refusal::COUNT <= DESK_WORDS, "a desk has room for it all");
/// What segments of no known connection have of the credit of strangers, and at least.
const SEGMENTS_PART: usize = 8;
const SEGMENTS_MIN: usize = 4;
/// Friends that a queue makes known in a turn at most: they are there again in the next one.
const NEWCOMERS_MAX: u32 = 16;

/// Whose frames have a credit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// TCP and UDP, seen to their ports.
    Plain = 0,
    /// Everything else.
    Other = 1,
    /// TCP segments that are no SYN, of no known connection, with no cookie of ours: only where
    /// the programs for SYNs and ACKs are loaded (`cookies.rs`), else they are plain.
    Segment = 2,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Plain, Self::Other, Self::Segment];
    const COUNT: usize = Self::ALL.len();
}

/// Why a frame died at the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Its link source is a group.
    SourceGroup = 0,
    /// It is of a VLAN that is not ours.
    VlanForeign = 1,
    /// It carries neither IP nor ARP.
    KindUnknown = 2,
    /// Its IP header has another version than its link says, or claims more than arrived.
    HeaderMalformed = 3,
    /// A stranger's, beyond the credit.
    Stranger = 4,
    /// It is for an address that is none of ours.
    AddressForeign = 5,
    /// It is for a port of ours at which nobody waits for it.
    PortClosed = 6,
    /// It is from where the access list lets nothing in.
    Denied = 7,
    /// A segment of no known connection and with no cookie of ours, beyond the credit.
    Segment = 8,
}

impl Refusal {
    pub(crate) const ALL: [Self; 9] = [
        Self::SourceGroup,
        Self::VlanForeign,
        Self::KindUnknown,
        Self::HeaderMalformed,
        Self::Stranger,
        Self::AddressForeign,
        Self::PortClosed,
        Self::Denied,
        Self::Segment,
    ];
    const COUNT: usize = Self::ALL.len();
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Guard {
    desks: Words,
    friends: Friends,
    wants: Wants,
    queues: u32,
}

impl Guard {
    /// For so many receive queues; all frames go through at first.
    ///
    /// # Errors
    /// The kernel maps no such memory, or gives no randomness.
    pub(crate) fn create(queues: u32) -> io::Result<Self> {
        let desks = Words::create(DESK_WORDS, queues)?;
        let (friends, wants) = (Friends::create(secret()?)?, Wants::create(queues)?);
        Ok(Self { desks, friends, wants, queues })
    }

    /// Its part of the program: goes on at `through` with what does not die. `programs` has the
    /// programs for SYNs and for other segments of no known connection, where there are any.
    pub(crate) fn emit(&self, program: &mut Assembler, through: Label, programs: Option<i32>) {
        code::emit(program, &Known { programs, ..self.known() }, through);
    }

    /// What becomes of a frame of TCP that those programs have left alone: as
    /// [`Guard::emit`], for segments or for SYNs.
    pub(crate) fn emit_behind(&self, program: &mut Assembler, through: Label, is_syn: bool) {
        behind::emit(program, &self.known(), through, is_syn);
    }

    /// Makes the flow of a frame known, as a friend's.
    pub(crate) fn emit_befriend(&self, program: &mut Assembler, through: Label) {
        behind::befriend(program, &self.known(), through);
    }

    fn known(&self) -> Known<'_> {
        let (desks, friends) = (self.desks.fd(), self.friends.fd());
        Known { desks, friends, key: self.friends.key(), maps: self.maps(), programs: None }
    }

    /// What the stack wants.
    pub(crate) const fn wants(&self) -> &Wants {
        &self.wants
    }

    /// Where the program reads it.
    pub(super) fn maps(&self) -> Maps {
        self.wants.maps()
    }

    fn word(&self, queue: u32, word: usize) -> Option<&core::sync::atomic::AtomicU64> {
        let desk = (queue < self.queues).then_some(queue as usize * DESK_WORDS)?;
        self.desks.all().get(desk + word)
    }

    /// From now on `queue` lets so many strangers through, of each kind; with `None` whatever
    /// comes.
    pub(crate) fn admit(&self, queue: u32, strangers: Option<usize>) {
        let Some(pressed) = self.word(queue, DESK_PRESSED) else { return };
        let Some(strangers) = strangers else { return pressed.store(0, Relaxed) };
        for kind in Kind::ALL {
            let credit = match kind {
                Kind::Segment => (strangers / SEGMENTS_PART).max(SEGMENTS_MIN),
                Kind::Plain | Kind::Other => strangers,
            };
            let words = (
                self.word(queue, DESK_GRANTED + kind as usize),
                self.word(queue, DESK_USED + kind as usize),
            );
            if let (Some(granted), Some(used)) = words {
                granted.store(used.load(Relaxed).saturating_add(credit as u64), Relaxed);
            }
        }
        pressed.store(1, Relaxed);
    }

    /// How many frames have died at `queue` for want of credit.
    pub(crate) fn strangers(&self, queue: u32) -> u64 {
        let count = |why: Refusal| {
            let count = self.word(queue, DESK_REFUSED + why as usize);
            count.map_or(0, |count| count.load(Relaxed))
        };
        count(Refusal::Stranger) + count(Refusal::Segment)
    }

    /// Adds what died at `queue`.
    pub(crate) fn count(&self, queue: u32, stats: &mut DeviceStats) {
        for why in Refusal::ALL {
            let count = self.word(queue, DESK_REFUSED + why as usize);
            let count = count.map_or(0, |count| count.load(Relaxed));
            *match why {
                Refusal::SourceGroup => &mut stats.rx_source_group,
                Refusal::VlanForeign => &mut stats.rx_vlan_foreign,
                Refusal::KindUnknown => &mut stats.rx_kind_unknown,
                Refusal::HeaderMalformed => &mut stats.rx_header_malformed,
                Refusal::Stranger => &mut stats.rx_strangers,
                Refusal::AddressForeign => &mut stats.rx_address_foreign,
                Refusal::PortClosed => &mut stats.rx_port_closed,
                Refusal::Denied => &mut stats.rx_denied,
                Refusal::Segment => &mut stats.rx_segments,
            } += count;
        }
    }
}

/// One queue's way to the guard: how many newcomers it may still make known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    newcomers: u32,
    presses: bool,
    /// Strangers that the queue had refused by the last turn.
    refused: u64,
}

impl Turn {
    /// Whether strangers have a credit just now.
    pub(crate) const fn presses(self) -> bool {
        self.presses
    }

    /// Whether strangers have died for want of credit since the last turn: more come than are let
    /// in, although polls may have room.
    pub(crate) fn has_refused(&mut self, guard: &Guard, queue: u32) -> bool {
        let refused = guard.strangers(queue);
        core::mem::replace(&mut self.refused, refused) != refused
    }

    /// A turn begins.
    pub(crate) fn begin(&mut self, guard: &Guard, now: Instant, queue: u32, credit: Option<usize>) {
        let pressed = credit.is_some();
        if pressed {
            guard.friends.sweep(now);
        }
        if pressed || self.presses {
            guard.admit(queue, credit);
        }
        (self.newcomers, self.presses) = (NEWCOMERS_MAX, pressed);
    }

    /// While the worker sleeps nobody renews the credit: a ring may fill to so much.
    pub(crate) fn rest(self, guard: &Guard, queue: u32, room: usize) {
        if self.presses {
            guard.admit(queue, Some(room));
        }
    }

    /// This frame, which the queue has brought, is a friend's.
    pub(crate) fn befriend(&mut self, guard: &Guard, now: Instant, frame: &[u8]) {
        if guard.friends.note(now, frame, self.newcomers > 0) {
            self.newcomers = self.newcomers.saturating_sub(1);
        }
    }
}

/// A key that nobody knows.
fn secret() -> io::Result<[u64; KEY_WORDS]> {
    let mut key = [0_u64; KEY_WORDS];
    let bytes = size_of_val(&key);
    // SAFETY: the system writes `bytes` bytes at most, of words that live for the call and for
    // which every value is valid.
    let given = unsafe { libc::getrandom(key.as_mut_ptr().cast(), bytes, 0) };
    if given == bytes as isize { Ok(key) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod wants_tests;
